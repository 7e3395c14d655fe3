//! What a case runs in: an environment with two adapters on a fabric, and an open one.

use std::{
    ffi::c_void,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use nd2::{
    CompletionPolicy, Config,
    abi::{HANDLE, HRESULT, IID_IND2Adapter, IID_IND2Provider, mr_flags::ND_MR_FLAG_ALLOW_LOCAL_WRITE},
};
use ndkpi::{GUID, NtStatus};

use crate::{
    CompletionPort, Environment, Failure, Memory, Options, OverlappedHost,
    case::{is, ok},
    client::{Adapter, Client, Com, Connector, Overlapped, Piece, Provider, Qp, QpSizes},
    environment::HostEnvironment,
};

/// What decides which processor of the machine is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// The host's operating system: every processor is a thread.
    #[default]
    Threads,
    /// A seed, and the chance in percent that others get in between.
    Seeded(u64, u8),
}

/// The address of the first adapter.
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Its other address.
pub const HERE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, 1));
/// The address of the second adapter.
pub const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// Requests for notification that one queue takes.
pub const MAX_NOTIFY_REQUESTS: u32 = 8;
/// Listeners of an adapter.
pub const MAX_LISTENERS: u64 = 64;
/// Bytes that can be registered.
pub const MAX_REGISTERED: u64 = 64 << 20;
/// Pieces that a read may have.
pub const MAX_READ_SGE: u32 = 3;

/// An environment, with its first adapter open.
pub struct World {
    /// The provider of both adapters.
    pub provider: Provider,
    /// The first adapter, open.
    pub adapter: Adapter,
    /// A file of it.
    pub file: HANDLE,
    /// The equivalents of Windows.
    pub platform: OverlappedHost,
    /// Last, because everything above lives on it.
    environment: Box<dyn Environment>,
}

impl World {
    /// Starts a machine of the host's with the deferred engine and opens the adapter.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn new(schedule: Schedule, policy: CompletionPolicy) -> Result<Self, Failure> {
        Self::with(&Options { schedule, policy, ..Options::default() })
    }

    /// Starts a machine of the host's and opens the adapter.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn with(options: &Options<'_>) -> Result<Self, Failure> {
        Self::on(Box::new(HostEnvironment::try_new(options)?))
    }

    /// Opens the first adapter of an environment.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn on(environment: Box<dyn Environment>) -> Result<Self, Failure> {
        let provider = Com::make(|out| class_object(&*environment, &IID_IND2Provider, out));
        let provider: Provider = provider.map_err(|result| Failure::new(format!("the provider: {result}")))?;
        let adapter = provider.open(&IID_IND2Adapter, 1).map_err(|result| Failure::new(format!("open: {result}")))?;
        let file = adapter.file().map_err(|result| Failure::new(format!("the file: {result}")))?;
        let platform = environment.platform().clone();
        Ok(Self { provider, adapter, file, platform, environment })
    }

    /// Closes everything and ends the environment, which watches that nothing is left.
    ///
    /// # Errors
    ///
    /// What is left.
    pub fn end(self) -> Result<(), Failure> {
        let Self { provider, adapter, platform, environment, .. } = self;
        drop((adapter, provider, platform));
        environment.end()
    }

    /// Removes an adapter: the first has number 0.
    pub fn remove(&self, number: usize) {
        self.environment.remove(number);
    }

    /// What the first adapter was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.environment.config()
    }

    /// References to the first adapter, besides those of the world.
    #[must_use]
    pub fn references(&self) -> usize {
        self.environment.references()
    }

    /// The limits that the client has reached since this was asked last, with their names.
    pub(crate) fn limits_reached(&self) -> Vec<(&'static str, u64)> {
        self.environment.limits_reached()
    }

    /// Lets a completion queue fail as broken hardware would.
    pub(crate) fn break_queue(&self, queue: *mut c_void) -> Result<(), Failure> {
        // SAFETY: the case has the object.
        unsafe { self.environment.break_queue(queue) }
    }

    /// `DllGetClassObject`.
    pub fn class_object(&self, iid: *const GUID, out: *mut *mut c_void) -> HRESULT {
        class_object(&*self.environment, iid, out)
    }

    /// The machine it runs on.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        self.environment.schedule()
    }

    /// A request's structure with an event.
    #[must_use]
    pub fn request(&self) -> Client {
        Client::new(&self.platform)
    }

    /// A completion port for the file.
    pub(crate) fn port(&self) -> Result<Arc<CompletionPort>, Failure> {
        self.platform.completion_port(self.file).ok_or_else(|| Failure::new("no such file"))
    }

    /// Takes the packets of all that has happened so far: one may come later than its request's end is seen.
    pub(crate) fn drain(&self, port: &CompletionPort) {
        self.settle();
        while port.get().is_some() {}
    }

    /// How requests that wait for nothing end.
    #[must_use]
    pub fn policy(&self) -> CompletionPolicy {
        if self.environment.every_request_pends() { CompletionPolicy::Pending } else { self.config().policy }
    }

    /// Lets everything happen that is going to.
    pub fn settle(&self) {
        self.environment.settle();
    }

    /// Lets time pass on a seeded machine, in microseconds.
    pub fn let_pass(&self, time: u64) {
        self.environment.let_pass(time);
    }

    /// Bytes of the client's.
    pub(crate) fn bytes(&self, length: usize) -> Result<Memory, NtStatus> {
        self.environment.memory(length)
    }

    /// Waits until `condition` holds.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Failure> {
        let came = self.environment.wait(what, &mut condition);
        if came { Ok(()) } else { Err(Failure::new(format!("waited in vain: {what}"))) }
    }

    /// Checks that a request is refused: by its method, or by its end if every request pends that gets beyond the library.
    pub(crate) fn refuses(&self, what: &str, request: &Client, result: HRESULT, with: HRESULT) -> Result<(), Failure> {
        if !(self.environment.every_request_pends() && result.is_pending()) {
            return is(what, result, with);
        }
        self.until(what, || !request.status().is_pending())?;
        is(what, request.status(), with)
    }

    /// What the structure of a request says that was refused with this: nothing, unless every request pends.
    pub(crate) fn structure_after(&self, refusal: HRESULT) -> HRESULT {
        if self.environment.every_request_pends() { refusal } else { HRESULT::ND_SUCCESS }
    }

    /// Waits for the end of a request and checks it.
    pub(crate) fn ends(
        &self,
        what: &str,
        of: &impl Overlapped,
        request: &Client,
        with: HRESULT,
    ) -> Result<(), Failure> {
        self.until(what, || !of.outcome(request, false).is_pending())?;
        is(what, of.outcome(request, true), with)
    }

    /// Checks that a request succeeds, whether its method says so or its end.
    pub(crate) fn succeeds(
        &self,
        what: &str,
        of: &impl Overlapped,
        request: &Client,
        result: HRESULT,
    ) -> Result<(), Failure> {
        if result.is_pending() { self.ends(what, of, request, HRESULT::ND_SUCCESS) } else { ok(what, result) }
    }

    /// Checks that a request that waits for nothing succeeds, in the way that the adapter's policy has.
    pub(crate) fn now(
        &self,
        what: &str,
        of: &impl Overlapped,
        request: &Client,
        result: HRESULT,
    ) -> Result<(), Failure> {
        self.policy_holds(what, result)?;
        self.succeeds(what, of, request, result)
    }

    /// Checks that a method which could answer at once does what the adapter's policy says.
    pub(crate) fn policy_holds(&self, what: &str, result: HRESULT) -> Result<(), Failure> {
        match self.policy() {
            CompletionPolicy::Pending => is(what, result, HRESULT::ND_PENDING),
            CompletionPolicy::Mixed if result.is_pending() => Ok(()),
            CompletionPolicy::Inline | CompletionPolicy::Mixed => ok(what, result),
        }
    }

    /// Checks that a request has not ended, after all has happened.
    pub(crate) fn pends(&self, what: &str, of: &impl Overlapped, request: &Client) -> Result<(), Failure> {
        self.settle();
        is(what, of.outcome(request, false), HRESULT::ND_PENDING)?;
        is("the event", request.is_signalled(), false)
    }

    /// Registered bytes with these rights besides local write.
    pub(crate) fn memory(&self, length: usize, flags: u32) -> Result<Piece, Failure> {
        self.registered(length, flags | ND_MR_FLAG_ALLOW_LOCAL_WRITE)
    }

    /// Registered bytes with these rights.
    pub(crate) fn registered(&self, length: usize, flags: u32) -> Result<Piece, Failure> {
        let region = self.adapter.region(self.file).map_err(|result| Failure::new(format!("region: {result}")))?;
        let buffer = self.bytes(length)?;
        let request = self.request();
        self.now("Register", &region, &request, region.register(buffer.pointer(0).cast(), length, flags, &request))?;
        Ok(Piece { region, buffer })
    }

    /// Connects two queue pairs of the first adapter.
    pub(crate) fn connect(&self, active: &Qp, passive: &Qp) -> Result<Link, Failure> {
        let connector = || self.adapter.connector(self.file).map_err(|result| Failure::new(format!("{result}")));
        let listener = self.adapter.listener(self.file).map_err(|result| Failure::new(format!("{result}")))?;
        let link = Link { active: connector()?, passive: connector()? };
        ok("Listener::Bind", listener.bind(SocketAddr::new(HERE, 0)))?;
        ok("Listen", listener.listen(0))?;
        let at = listener.local().map_err(|result| Failure::new(format!("{result}")))?;
        let [arrives, connects, accepts, completes] = [(); 4].map(|()| self.request());
        is("GetConnectionRequest", listener.request(&link.passive, &arrives), HRESULT::ND_PENDING)?;
        ok("Connector::Bind", link.active.bind(SocketAddr::new(HERE, 0)))?;
        is("Connect", link.active.connect(active, at, (16, 16), b"hello", &connects), HRESULT::ND_PENDING)?;
        let either = || !arrives.status().is_pending() || !connects.status().is_pending();
        self.until("the connection request", either)?;
        is("Connect", connects.status(), HRESULT::ND_PENDING)?;
        self.ends("the connection request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
        is("Accept", link.passive.accept(passive, (16, 16), b"welcome", &accepts), HRESULT::ND_PENDING)?;
        self.ends("the connect", &link.active, &connects, HRESULT::ND_SUCCESS)?;
        self.now("CompleteConnect", &link.active, &completes, link.active.complete(&completes))?;
        self.ends("the accept", &link.passive, &accepts, HRESULT::ND_SUCCESS)?;
        Ok(link)
    }
}

fn class_object(environment: &dyn Environment, iid: *const GUID, out: *mut *mut c_void) -> HRESULT {
    // SAFETY: the identifier and the place are valid or null.
    let version2 = |iid, out| unsafe { environment.class_object(iid, out) };
    // SAFETY: the identifier and the place are valid or null.
    unsafe { softnd::version1::get_class_object(iid, out, version2) }
}

/// A connection.
pub struct Link {
    /// The side that has connected.
    pub active: Connector,
    /// The side that has listened.
    pub passive: Connector,
}

/// The sizes of queue pairs that most cases use.
pub const SIZES: QpSizes = QpSizes { receives: 64, initiates: 64, receive_sge: 4, initiator_sge: 4, inline: 128 };
