//! What a case runs in: a machine, two adapters on a fabric, and an open one.

use std::{
    ffi::c_void,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use engine::connection::{Fabric, InterfaceAddress, Timeouts};
use host::{PinnedBuffer, machine::Machine};
use nd2::{
    CompletionPolicy, Config, Device, Platform, Resource,
    abi::{
        HANDLE, HRESULT, IID_IND2Adapter, IID_IND2Provider, adapter_flags::ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED,
        mr_flags::ND_MR_FLAG_ALLOW_LOCAL_WRITE,
    },
    class::get_class_object,
};

use nd2_control::Server;
use ndkpi::GUID;

use crate::{
    BackEnd, CompletionPort, Failure, HostPlatform, Options,
    case::{is, ok},
    client::{Adapter, Client, Com, Connector, Overlapped, Piece, Provider, Qp, QpSizes},
    codes::{HostSystem, HostTransport},
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
const MAX_READ_SGE: u32 = 3;
/// The longest that something may take before it is called a hang.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where the adapters are. The second one cannot resize queues.
enum Adapters {
    /// In the client's process.
    Here([fallible::Arc<Device<HostPlatform>>; 2]),
    /// Behind control codes.
    Codes([Adapter2; 2], HostSystem, HostTransport),
}

type Adapter2 = nd2_control::Adapter<HostSystem>;

/// A machine with two adapters.
pub struct World {
    /// The provider of both adapters.
    pub provider: Provider,
    /// The first adapter, open.
    pub adapter: Adapter,
    /// A file of it.
    pub file: HANDLE,
    adapters: Adapters,
    /// The equivalents of Windows.
    pub platform: HostPlatform,
    /// Last, because everything above lives on it.
    machine: Machine,
    schedule: Schedule,
    policy: CompletionPolicy,
    /// The longest that the adapters are late on purpose, in microseconds.
    late: u64,
}

impl World {
    /// Starts the machine with the deferred engine and opens the adapter.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn new(schedule: Schedule, policy: CompletionPolicy) -> Result<Self, Failure> {
        Self::with(&Options { schedule, policy, ..Options::default() })
    }

    /// Starts the machine and opens the adapter.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn with(options: &Options<'_>) -> Result<Self, Failure> {
        let Options { schedule, policy, nic, faults, .. } = *options;
        let machine = match schedule {
            Schedule::Threads => Machine::threads().processors(2).start(),
            Schedule::Seeded(seed, percent) => Machine::seeded(seed).preemption(percent).start(),
        };
        let platform = HostPlatform::new(&machine);
        let second = 2_000_000;
        // Who waits for the peer to answer Disconnect waits longer than any case does.
        let timeouts = Timeouts { connect: 30 * second, establish: 30 * second, disconnect: 60 * second };
        let mut config =
            Config { max_notify_requests: MAX_NOTIFY_REQUESTS, timeouts, policy, nic, faults, ..Config::default() };
        config.limits.set(Resource::Listeners, MAX_LISTENERS);
        config.limits.set(Resource::RegisteredBytes, MAX_REGISTERED);
        // Fewer than of other requests.
        config.info.MaxReadSge = MAX_READ_SGE;
        let adapters = match options.back_end {
            BackEnd::Process => Adapters::Here(devices(&platform, config)?),
            BackEnd::Codes => {
                let system = HostSystem::new(&platform);
                let devices = devices(&Server(system.clone()), config)?;
                system.set_devices(&devices);
                let transport = HostTransport::try_new(&system)?;
                Adapters::Codes(devices, system, transport)
            }
        };
        let provider = Com::make(|out| adapters.class_object(&IID_IND2Provider, out));
        let provider: Provider = provider.map_err(|result| Failure::new(format!("the provider: {result}")))?;
        let adapter = provider.open(&IID_IND2Adapter, 1).map_err(|result| Failure::new(format!("open: {result}")))?;
        let file = adapter.file().map_err(|result| Failure::new(format!("the file: {result}")))?;
        let late = faults.completion_delay.longest().max(faults.request_delay.longest()).into();
        Ok(Self { provider, adapter, file, adapters, platform, machine, schedule, policy, late })
    }

    /// Closes everything and stops the machine, which watches that nothing is left.
    ///
    /// # Errors
    ///
    /// What is left.
    pub fn end(self) -> Result<(), Failure> {
        let Self { provider, adapter, adapters, platform, machine, .. } = self;
        drop((adapter, provider));
        // What runs still refers to the adapters.
        for _ in 0..4 {
            machine.flush();
        }
        match adapters {
            Adapters::Here(devices) => no_references(devices)?,
            Adapters::Codes(devices, system, transport) => {
                is("requests and locked bytes that are left", transport.session().in_use(), (0, 0))?;
                system.set_devices(&[]);
                drop((transport, system));
                no_references(devices)?;
            }
        }
        drop(platform);
        machine.shutdown();
        Ok(())
    }

    /// Removes an adapter: the first has number 0.
    pub fn remove(&self, number: usize) {
        match &self.adapters {
            Adapters::Here(devices) => devices[number].remove(),
            Adapters::Codes(devices, ..) => devices[number].remove(),
        }
    }

    /// What the first adapter was made with.
    #[must_use]
    pub fn config(&self) -> &Config {
        match &self.adapters {
            Adapters::Here(devices) => devices[0].config(),
            Adapters::Codes(devices, ..) => devices[0].config(),
        }
    }

    /// References to the first adapter, besides those of the world.
    #[must_use]
    pub fn references(&self) -> usize {
        match &self.adapters {
            Adapters::Here(devices) => fallible::Arc::references_now(&devices[0]) - 1,
            Adapters::Codes(devices, ..) => fallible::Arc::references_now(&devices[0]) - 2,
        }
    }

    /// Lets a completion queue fail as broken hardware would.
    pub(crate) fn break_queue(&self, queue: *mut c_void) -> Result<(), Failure> {
        match &self.adapters {
            // SAFETY: the case has the object.
            Adapters::Here(_) => unsafe { Device::<HostPlatform>::break_completion_queue(queue) }?,
            Adapters::Codes(_, _, transport) => {
                // SAFETY: the case has the object.
                let handle = unsafe { nd2_remote::queue_handle::<HostTransport>(queue) };
                transport.session().break_completion_queue(handle.unwrap_or(0))?;
            }
        }
        Ok(())
    }

    /// `DllGetClassObject`.
    pub fn class_object(&self, iid: *const GUID, out: *mut *mut c_void) -> HRESULT {
        self.adapters.class_object(iid, out)
    }

    /// The machine it runs on.
    #[must_use]
    pub const fn schedule(&self) -> Schedule {
        self.schedule
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

    /// How requests that wait for nothing end.
    #[must_use]
    pub const fn policy(&self) -> CompletionPolicy {
        self.policy
    }

    /// Lets everything happen that is going to.
    pub fn settle(&self) {
        if matches!(self.schedule, Schedule::Seeded(..)) {
            return self.run_seeded();
        }
        // A call that runs may queue another: longer chains than this are not in the way of a notification.
        for _ in 0..6 {
            self.machine.flush();
        }
    }

    /// Time passes only if the adapters are late: a timeout would be as good as anything else to a seeded machine.
    fn run_seeded(&self) {
        self.machine.run_for(self.late);
        self.machine.run_until_idle();
    }

    /// Lets time pass on a seeded machine, in microseconds.
    pub fn let_pass(&self, time: u64) {
        self.machine.run_for(time);
    }

    /// Waits until `condition` holds.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut() -> bool) -> Result<(), Failure> {
        let started = Instant::now();
        while !condition() {
            match self.schedule {
                Schedule::Threads => self.machine.yield_now(),
                Schedule::Seeded(..) => self.run_seeded(),
            }
            if started.elapsed() > PATIENCE {
                return Err(Failure::new(format!("waited in vain: {what}")));
            }
        }
        Ok(())
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
        match self.policy {
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
        let buffer = PinnedBuffer::new(length)?;
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
        self.ends("the connection request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
        is("Accept", link.passive.accept(passive, (16, 16), b"welcome", &accepts), HRESULT::ND_PENDING)?;
        self.ends("the connect", &link.active, &connects, HRESULT::ND_SUCCESS)?;
        self.now("CompleteConnect", &link.active, &completes, link.active.complete(&completes))?;
        self.ends("the accept", &link.passive, &accepts, HRESULT::ND_SUCCESS)?;
        Ok(link)
    }
}

impl Adapters {
    fn class_object(&self, iid: *const GUID, out: *mut *mut c_void) -> HRESULT {
        let version2 = |iid, out| match self {
            // SAFETY: the identifier and the place are valid or null.
            Self::Here(devices) => unsafe { get_class_object(iid, out, || Ok(devices.clone())) },
            Self::Codes(_, _, transport) => {
                let transport = transport.clone();
                // SAFETY: the identifier and the place are valid or null.
                unsafe { nd2_remote::get_class_object(iid, out, || Ok(transport)) }
            }
        };
        // SAFETY: the identifier and the place are valid or null.
        unsafe { nd2_version1::get_class_object(iid, out, version2) }
    }
}

/// The two adapters on a fabric of their own.
fn devices<P: Platform>(platform: &P, mut config: Config) -> Result<[fallible::Arc<Device<P>>; 2], Failure> {
    let fabric = Fabric::try_new(platform.os())?;
    let network = |address: IpAddr| InterfaceAddress { address, prefix: if address.is_ipv4() { 24 } else { 64 } };
    let first = Device::try_new(platform, &fabric, &[network(HERE), network(HERE_V6)], config)?;
    config.info.AdapterId = 2;
    config.info.AdapterFlags &= !ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED;
    Ok([first, Device::try_new(platform, &fabric, &[network(THERE)], config)?])
}

fn no_references<P: Platform>(devices: [fallible::Arc<Device<P>>; 2]) -> Result<(), Failure> {
    for device in devices {
        is("references to the adapter that are left", fallible::Arc::references_now(&device), 1)?;
    }
    Ok(())
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
