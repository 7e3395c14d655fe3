//! A consumer of NDKPI with nothing in it that would cost time: calls through the dispatch tables, as a driver makes them.

use std::{
    ffi::c_void,
    net::{Ipv4Addr, SocketAddr},
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicPtr, AtomicU32, AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

use host::{
    HostOs, PinnedBuffer,
    machine::{Irql, MachineRef, lower, raise},
};
use interpose::{
    Hooks, NoHooks,
    adviser::{Adviser, Mode, Report, Settings, Sink, Totals},
};
use ndkpi::{
    NDK_ADAPTER, NDK_CONNECTOR, NDK_CQ, NDK_FN_ARM_CQ, NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION,
    NDK_FN_GET_CQ_RESULTS_EX, NDK_FN_READ, NDK_FN_RECEIVE, NDK_FN_SEND, NDK_FN_WRITE, NDK_LISTENER, NDK_MR,
    NDK_OBJECT_HEADER, NDK_PD, NDK_QP, NDK_RESULT_EX, NDK_SGE, NDK_VERSION, NtStatus, SOCKADDR_INET, mr_flags, notify,
};
use provider::{CompletionMode, Config, Device, NdkOs, NicMode};
use recorder::{Keep, Recorder, Ring};

use crate::kind::{CalledOs, Kind, LayerOs, Lock};

/// A function of an object's dispatch table.
macro_rules! slot {
    ($object:expr, $name:ident) => {{
        let object = $object;
        // SAFETY: the object is open. The table of an open object is valid, and as long as version 2.1 says.
        let function = unsafe { (*(*object).Dispatch).$name };
        function.expect("a provider fills every slot")
    }};
}

/// What [`Waiter::complete`] stores for a request that has completed. Statuses that are seen here are never this.
const NOTHING: u32 = u32::MAX;

/// Waits for the completion of a request that is pending.
struct Waiter(AtomicU32);

impl Waiter {
    const fn new() -> Self {
        Self(AtomicU32::new(NOTHING))
    }

    unsafe extern "system" fn complete(context: *mut c_void, status: NtStatus) {
        // SAFETY: the context is the waiter of the request, which waits.
        let waiter = unsafe { &*context.cast_const().cast::<Self>() };
        waiter.0.store(status.0.cast_unsigned(), Release);
    }

    const fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The status of the request, of which the call returned `status`.
    fn wait(&self, machine: &Driver, status: NtStatus) -> NtStatus {
        if status != NtStatus::PENDING {
            return status;
        }
        until(machine, || self.0.load(Acquire) != NOTHING);
        NtStatus(self.0.load(Acquire).cast_signed())
    }
}

/// A machine, and whether it does something by itself.
#[derive(Clone, Debug)]
struct Driver {
    machine: MachineRef,
    steps: bool,
}

impl Driver {
    fn go_on(&self) {
        if !self.steps || !self.machine.step() {
            thread::yield_now();
        }
    }
}

/// Lets a machine go on until something is so.
fn until(machine: &Driver, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        machine.go_on();
        assert!(started.elapsed() < Duration::from_secs(20), "a request does not complete: {machine:?}");
    }
}

/// One end of a connection: a queue pair with a completion queue for each of its queues, and registered bytes.
pub struct Side {
    qp: *mut NDK_QP,
    send: NDK_FN_SEND,
    receive: NDK_FN_RECEIVE,
    read: NDK_FN_READ,
    write: NDK_FN_WRITE,
    poll: NDK_FN_GET_CQ_RESULTS_EX,
    arm: NDK_FN_ARM_CQ,
    notifications: Box<AtomicU64>,
    received: *mut NDK_CQ,
    initiated: *mut NDK_CQ,
    mr: *mut NDK_MR,
    token: u32,
    remote_token: u32,
    buffer: Arc<PinnedBuffer>,
    raises: bool,
}

// SAFETY: NDKPI's objects belong to no thread.
unsafe impl Send for Side {}

impl Side {
    fn elements(&self, offset: usize, length: u32) -> [NDK_SGE; 1] {
        [NDK_SGE::new(self.buffer.pointer(offset).cast(), length, self.token)]
    }

    /// Sends bytes of the buffer.
    #[inline]
    pub fn send(&mut self, offset: usize, length: u32, flags: u32) -> NtStatus {
        let list = self.elements(offset, length);
        // SAFETY: the queue pair is open, nobody else posts to it, and the list is valid for the call.
        unsafe { (self.send)(self.qp, ptr::null_mut(), list.as_ptr(), 1, flags) }
    }

    /// Posts a receive into bytes of the buffer.
    #[inline]
    pub fn receive(&mut self, offset: usize, length: u32) -> NtStatus {
        let list = self.elements(offset, length);
        // SAFETY: as in `send`.
        unsafe { (self.receive)(self.qp, ptr::null_mut(), list.as_ptr(), 1) }
    }

    /// Writes bytes of the buffer to the same place of the peer's.
    pub fn write(&mut self, peer: &Self, offset: usize, length: u32, flags: u32) -> NtStatus {
        let list = self.elements(offset, length);
        let address = peer.buffer.address(offset);
        // SAFETY: as in `send`.
        unsafe { (self.write)(self.qp, ptr::null_mut(), list.as_ptr(), 1, address, peer.remote_token, flags) }
    }

    /// Reads bytes of the peer's buffer to the same place of this one.
    pub fn read(&mut self, peer: &Self, offset: usize, length: u32, flags: u32) -> NtStatus {
        let list = self.elements(offset, length);
        let address = peer.buffer.address(offset);
        // SAFETY: as in `send`.
        unsafe { (self.read)(self.qp, ptr::null_mut(), list.as_ptr(), 1, address, peer.remote_token, flags) }
    }

    /// Takes completions of receives.
    #[inline]
    pub fn received(&mut self, results: &mut [NDK_RESULT_EX]) -> usize {
        self.poll(self.received, results)
    }

    /// Takes completions of initiator requests.
    #[inline]
    pub fn initiated(&mut self, results: &mut [NDK_RESULT_EX]) -> usize {
        self.poll(self.initiated, results)
    }

    #[inline]
    fn poll(&self, cq: *mut NDK_CQ, results: &mut [NDK_RESULT_EX]) -> usize {
        let most = u32::try_from(results.len()).unwrap_or(u32::MAX);
        // SAFETY: the queue is open, nobody else polls it, and the array has that many places.
        let taken = unsafe { (self.poll)(cq, results.as_mut_ptr(), most) } as usize;
        for result in &results[..taken] {
            assert_eq!(result.Status, NtStatus::SUCCESS, "a request has failed");
        }
        taken
    }

    /// Arms the queue of initiator requests for the next completion.
    #[inline]
    pub fn arm_initiated(&mut self) {
        // SAFETY: the queue is open.
        unsafe { (self.arm)(self.initiated, notify::NDK_CQ_NOTIFY_ANY) };
    }

    /// How many times either queue has notified.
    #[inline]
    #[must_use]
    pub fn notifications(&self) -> u64 {
        self.notifications.load(Acquire)
    }

    /// Raises a consumer of the deferred engine to `DISPATCH_LEVEL`: drivers often post in DPCs. What the post queues
    /// runs when the value is dropped.
    #[inline]
    #[must_use = "dropping it lowers"]
    pub fn raised(&self) -> Raised {
        Raised(self.raises.then(|| raise(Irql::DISPATCH_LEVEL)))
    }

    /// The registered bytes.
    #[must_use]
    pub fn buffer(&self) -> &PinnedBuffer {
        &self.buffer
    }
}

/// The level that a consumer returns to, if it has raised its own.
pub struct Raised(Option<Irql>);

impl Drop for Raised {
    #[inline]
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            lower(before);
        }
    }
}

/// How a [`Connection`] is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The adapter.
    pub kind: Kind,
    /// Requests outstanding at most, of either queue.
    pub depth: u32,
    /// Bytes of each buffer.
    pub bytes: usize,
    /// Inline bytes of a request at most.
    pub inline: u32,
    /// The machine is a seeded one: it goes on only when it is told to.
    pub steps: bool,
}

/// What lies between the consumer and the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Nothing.
    None,
    /// A layer whose hooks do nothing.
    Forwarding,
    /// The adviser.
    Advising,
    /// A layer that records, and keeps what came last.
    Recording,
}

impl Layer {
    /// What stands in a row.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "without a layer",
            Self::Forwarding => "behind hooks that do nothing",
            Self::Advising => "behind the adviser",
            Self::Recording => "behind the recorder",
        }
    }

    /// What stands in the name of a count.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Forwarding => "behind-hooks",
            Self::Advising => "behind-adviser",
            Self::Recording => "behind-recorder",
        }
    }

    /// Slots of a recording.
    const SLOTS: usize = 1 << 16;

    /// Puts the layer in front of an adapter that was just opened, and says how it is closed.
    fn wrap<O: LayerOs>(self, os: &O, adapter: *mut NDK_ADAPTER) -> (*mut NDK_ADAPTER, unsafe fn(*mut NDK_ADAPTER)) {
        match self {
            Self::None => (adapter, Device::<O>::close),
            Self::Forwarding => {
                // SAFETY: the adapter is open, and nobody else uses it.
                let wrapped = unsafe { interpose::wrap(adapter, NoHooks(os.clone())) };
                (wrapped.expect("memory"), close_layer::<NoHooks<O>, O>)
            }
            Self::Advising => {
                let (sink, totals) = (fallible::Arc::try_new(Silent), fallible::Arc::try_new(Totals::default()));
                // How long a callback takes is the row's business.
                let settings = Settings { mode: Mode::Log, advice: true, longest_callback: 0 };
                let hooks = Adviser::new(os.clone(), settings, sink.expect("memory"), totals.expect("memory"));
                // SAFETY: the adapter was just opened, and nobody else has it.
                let wrapped = unsafe { interpose::wrap(adapter, hooks) };
                (wrapped.expect("memory"), close_layer::<Adviser<O, Silent>, O>)
            }
            Self::Recording => {
                let ring = Ring::try_new(Self::SLOTS, Keep::Last, os.host().machine().processors()).expect("memory");
                // SAFETY: the adapter was just opened, and nobody else has it.
                let wrapped = unsafe { interpose::wrap(adapter, Recorder::new(os.clone(), ring)) };
                (wrapped.expect("memory"), close_layer::<Recorder<O>, O>)
            }
        }
    }
}

/// What the adviser finds of the rows would be a mistake of theirs.
struct Silent;

impl Sink for Silent {
    fn report(&self, report: &Report<'_>) {
        panic!("the adviser: {report}");
    }
}

/// Closes an adapter behind a layer, and the layer.
///
/// # Safety
///
/// The adapter is one of this layer, and is not used after this.
unsafe fn close_layer<H: Hooks, O: NdkOs>(adapter: *mut NDK_ADAPTER) {
    let close = |inner| {
        // SAFETY: the provider's adapter, which nobody uses any more.
        unsafe { Device::<O>::close(inner) };
    };
    // SAFETY: an adapter of this layer that is not used again (`# Safety`).
    let closed = unsafe { interpose::close::<H, _>(adapter, close) };
    assert!(closed.is_some(), "an adapter of the layer");
}

/// Two connected queue pairs of an adapter.
pub struct Connection {
    adapter: *mut NDK_ADAPTER,
    pd: *mut NDK_PD,
    connectors: [*mut NDK_CONNECTOR; 2],
    listener: *mut NDK_LISTENER,
    /// The two ends.
    pub sides: [Side; 2],
    machine: Driver,
    close_adapter: unsafe fn(*mut NDK_ADAPTER),
}

/// Never called: the adapter creates in the call.
const unsafe extern "system" fn created(_: *mut c_void, _: NtStatus, _: *mut NDK_OBJECT_HEADER) {}

const CREATED: Option<NDK_FN_CREATE_COMPLETION> = Some(created);

/// A close that is pending completes without the consumer's doing: closing the adapter waits for it.
const unsafe extern "system" fn closed(_: *mut c_void) {}

const CLOSED: Option<NDK_FN_CLOSE_COMPLETION> = Some(closed);

const unsafe extern "system" fn ignore_event(_: *mut c_void) {}

/// The callback of a completion queue.
unsafe extern "system" fn notified(context: *mut c_void, status: NtStatus) {
    assert_eq!(status, NtStatus::SUCCESS, "a completion queue has failed");
    // SAFETY: the context is the count of the side, which outlives its queues.
    let count = unsafe { &*context.cast_const().cast::<AtomicU64>() };
    count.fetch_add(1, Release);
}

unsafe extern "system" fn arrived(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context is the place for the connector, which outlives the listener.
    let place = unsafe { &*context.cast_const().cast::<AtomicPtr<NDK_CONNECTOR>>() };
    place.store(connector, Release);
}

impl Connection {
    /// Makes an adapter on `os` and connects two queue pairs of it.
    ///
    /// # Panics
    ///
    /// If anything fails: then there is nothing to measure.
    #[must_use]
    pub fn new(os: &HostOs, plan: Plan) -> Self {
        Self::behind(os, plan, Layer::None)
    }

    /// [`Connection::new`] behind a layer, whose locks are like the adapter's.
    ///
    /// # Panics
    ///
    /// As [`Connection::new`].
    #[must_use]
    pub fn behind(os: &HostOs, plan: Plan, layer: Layer) -> Self {
        let buffer = || Arc::new(PinnedBuffer::new(plan.bytes).expect("memory"));
        Self::make(os, plan, [buffer(), buffer()], layer)
    }

    /// [`Connection::new`] with the bytes of others.
    ///
    /// # Panics
    ///
    /// As [`Connection::new`].
    #[must_use]
    pub fn with_buffers(os: &HostOs, plan: Plan, buffers: [Arc<PinnedBuffer>; 2]) -> Self {
        Self::make(os, plan, buffers, Layer::None)
    }

    fn make(os: &HostOs, plan: Plan, buffers: [Arc<PinnedBuffer>; 2], layer: Layer) -> Self {
        match plan.kind.lock {
            Lock::Inlined => Self::on(os, plan, buffers, layer),
            Lock::Called => Self::on(&CalledOs::new(os), plan, buffers, layer),
        }
    }

    fn on<O: LayerOs>(os: &O, plan: Plan, buffers: [Arc<PinnedBuffer>; 2], layer: Layer) -> Self {
        let machine = Driver { machine: os.host().machine().clone(), steps: plan.steps };
        let mut config = Config { nic: plan.kind.engine, mode: CompletionMode::Inline, ..Config::default() };
        // What the engine can register at once.
        let longest = usize::try_from(engine::memory::MAX_LENGTH).unwrap_or(usize::MAX);
        config.info.MaxRegistrationSize = longest.min(config.info.MaxRegistrationSize);
        config.info.MaxWindowSize = longest.min(config.info.MaxWindowSize);
        let device = Device::try_new(os, config).expect("memory");
        let adapter = Device::open(&device, NDK_VERSION::V2_1).expect("memory");
        let (adapter, close_adapter) = layer.wrap(os, adapter);
        let (create, mut pd) = (slot!(adapter, NdkCreatePd), ptr::null_mut());
        // SAFETY: the adapter is open, and `pd` is valid for writing.
        let status = unsafe { create(adapter, CREATED, ptr::null_mut(), &raw mut pd) };
        assert_eq!(status, NtStatus::SUCCESS);
        let sides = buffers.map(|buffer| Self::side(adapter, pd, &machine, plan, buffer));
        let (connectors, listener) = Self::connect(adapter, &machine, [sides[0].qp, sides[1].qp]);
        Self { adapter, pd, connectors, listener, sides, machine, close_adapter }
    }

    fn side(
        adapter: *mut NDK_ADAPTER,
        pd: *mut NDK_PD,
        machine: &Driver,
        plan: Plan,
        buffer: Arc<PinnedBuffer>,
    ) -> Side {
        let notifications: Box<AtomicU64> = Box::default();
        let context = ptr::from_ref(&*notifications).cast_mut().cast();
        let cq = || {
            let mut cq: *mut NDK_CQ = ptr::null_mut();
            let create = slot!(adapter, NdkCreateCq);
            let (null, depth) = (ptr::null_mut(), plan.depth.max(64));
            // SAFETY: the adapter is open, and `cq` is valid for writing.
            let status =
                unsafe { create(adapter, depth, Some(notified), context, ptr::null(), CREATED, null, &raw mut cq) };
            assert_eq!(status, NtStatus::SUCCESS);
            cq
        };
        let (received, initiated) = (cq(), cq());
        let mut qp: *mut NDK_QP = ptr::null_mut();
        let (create, null, depth) = (slot!(pd, NdkCreateQp), ptr::null_mut(), plan.depth);
        // SAFETY: the domain and the queues are open, and `qp` is valid for writing.
        let status = unsafe {
            create(pd, received, initiated, null, depth, depth, 1, 1, plan.inline, CREATED, null, &raw mut qp)
        };
        assert_eq!(status, NtStatus::SUCCESS);
        let mr = Self::register(pd, machine, &buffer);
        let (local, remote) = (slot!(mr, NdkGetLocalTokenFromMr), slot!(mr, NdkGetRemoteTokenFromMr));
        // SAFETY: the region is open.
        let (token, remote_token) = unsafe { (local(mr), remote(mr)) };
        Side {
            qp,
            send: slot!(qp, NdkSend),
            receive: slot!(qp, NdkReceive),
            read: slot!(qp, NdkRead),
            write: slot!(qp, NdkWrite),
            poll: slot!(received, NdkGetCqResultsEx),
            arm: slot!(initiated, NdkArmCq),
            notifications,
            received,
            initiated,
            mr,
            token,
            remote_token,
            buffer,
            raises: plan.kind.engine == NicMode::Deferred && !plan.steps,
        }
    }

    fn register(pd: *mut NDK_PD, machine: &Driver, buffer: &PinnedBuffer) -> *mut NDK_MR {
        let (create, mut mr) = (slot!(pd, NdkCreateMr), ptr::null_mut::<NDK_MR>());
        // SAFETY: the domain is open, and `mr` is valid for writing.
        let status = unsafe { create(pd, 0, CREATED, ptr::null_mut(), &raw mut mr) };
        assert_eq!(status, NtStatus::SUCCESS);
        let rights = mr_flags::NDK_MR_FLAG_ALLOW_REMOTE_WRITE | mr_flags::NDK_MR_FLAG_ALLOW_REMOTE_READ;
        let (register, waiter) = (slot!(mr, NdkRegisterMr), Waiter::new());
        let mdl = buffer.mdl().cast();
        // SAFETY: the region is open; the buffer outlives it, and the waiter the request.
        let status = unsafe { register(mr, mdl, buffer.len(), rights, Some(Waiter::complete), waiter.context()) };
        assert_eq!(waiter.wait(machine, status), NtStatus::SUCCESS);
        mr
    }

    fn connect(
        adapter: *mut NDK_ADAPTER,
        machine: &Driver,
        [active, passive]: [*mut NDK_QP; 2],
    ) -> ([*mut NDK_CONNECTOR; 2], *mut NDK_LISTENER) {
        let at = |port| SOCKADDR_INET::from(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port)));
        let (server, client, null) = (at(4791), at(0), ptr::null_mut::<c_void>());
        let place: Box<AtomicPtr<NDK_CONNECTOR>> = Box::default();
        // The listener lives as long as the connection, and so does the place: it is given away.
        let place: &'static AtomicPtr<NDK_CONNECTOR> = Box::leak(place);
        let context = ptr::from_ref(place).cast_mut().cast();
        let mut listener: *mut NDK_LISTENER = null.cast();
        let create = slot!(adapter, NdkCreateListener);
        // SAFETY: the adapter is open, and `listener` is valid for writing.
        let status = unsafe { create(adapter, Some(arrived), context, CREATED, null, &raw mut listener) };
        assert_eq!(status, NtStatus::SUCCESS);
        let (listen, waiter) = (slot!(listener, NdkListen), Waiter::new());
        let completion: Option<unsafe extern "system" fn(*mut c_void, NtStatus)> = Some(Waiter::complete);
        // SAFETY: the listener is open, the address valid for the call, the waiter as long as the request.
        let status = unsafe { listen(listener, server.as_ptr(), server.length(), completion, waiter.context()) };
        assert_eq!(waiter.wait(machine, status), NtStatus::SUCCESS);

        let (create, mut connector) = (slot!(adapter, NdkCreateConnector), ptr::null_mut::<NDK_CONNECTOR>());
        // SAFETY: the adapter is open, and `connector` is valid for writing.
        let status = unsafe { create(adapter, CREATED, null, &raw mut connector) };
        assert_eq!(status, NtStatus::SUCCESS);
        let (connect, connecting) = (slot!(connector, NdkConnect), Waiter::new());
        let (from, to, data) = (client.as_ptr(), server.as_ptr(), ptr::null());
        let (length, context) = (server.length(), connecting.context());
        // SAFETY: the objects are open, the addresses valid for the call, the waiter as long as the request.
        let connected =
            unsafe { connect(connector, active, from, length, to, length, 16, 16, data, 0, completion, context) };
        until(machine, || !place.load(Acquire).is_null());
        let incoming = place.swap(null.cast(), AcqRel);
        let (accept, accepting) = (slot!(incoming, NdkAccept), Waiter::new());
        let (event, context) = (Some(ignore_event as _), accepting.context());
        // SAFETY: the objects are open, and the waiter lives as long as the request.
        let accepted = unsafe { accept(incoming, passive, 16, 16, data, 0, event, null, completion, context) };
        assert_eq!(connecting.wait(machine, connected), NtStatus::SUCCESS);
        let (complete, waiter) = (slot!(connector, NdkCompleteConnect), Waiter::new());
        // SAFETY: the connector is open, and the waiter lives as long as the request.
        let status = unsafe { complete(connector, event, null, completion, waiter.context()) };
        assert_eq!(waiter.wait(machine, status), NtStatus::SUCCESS);
        assert_eq!(accepting.wait(machine, accepted), NtStatus::SUCCESS);
        ([connector, incoming], listener)
    }

    /// Closes everything.
    ///
    /// # Panics
    ///
    /// If anything fails.
    pub fn close(self) {
        let Self { adapter, pd, connectors, listener, sides, machine, close_adapter } = self;
        let header = |object: *mut c_void| object.cast::<NDK_OBJECT_HEADER>();
        for connector in connectors {
            let close = slot!(connector, NdkCloseConnector);
            // SAFETY: the connector is open and not used after this.
            let _ = unsafe { close(header(connector.cast()), CLOSED, ptr::null_mut()) };
        }
        let close = slot!(listener, NdkCloseListener);
        // SAFETY: as for the connectors.
        let _ = unsafe { close(header(listener.cast()), CLOSED, ptr::null_mut()) };
        let memory = sides.map(|side| {
            let Side { qp, received, initiated, mr, buffer, notifications, .. } = side;
            let close = slot!(qp, NdkCloseQp);
            // SAFETY: as for the connectors.
            let _ = unsafe { close(header(qp.cast()), CLOSED, ptr::null_mut()) };
            let (deregister, waiter) = (slot!(mr, NdkDeregisterMr), Waiter::new());
            // SAFETY: the region is open, and the waiter lives as long as the request.
            let status = unsafe { deregister(mr, Some(Waiter::complete), waiter.context()) };
            assert_eq!(waiter.wait(&machine, status), NtStatus::SUCCESS);
            let close = slot!(mr, NdkCloseMr);
            // SAFETY: as for the connectors.
            let _ = unsafe { close(header(mr.cast()), CLOSED, ptr::null_mut()) };
            for cq in [received, initiated] {
                let close = slot!(cq, NdkCloseCq);
                // SAFETY: as for the connectors.
                let _ = unsafe { close(header(cq.cast()), CLOSED, ptr::null_mut()) };
            }
            (buffer, notifications)
        });
        let close = slot!(pd, NdkClosePd);
        // SAFETY: as for the connectors.
        let _ = unsafe { close(header(pd.cast()), CLOSED, ptr::null_mut()) };
        // SAFETY: everything that was made on the adapter is closed, and it is not used after this.
        unsafe { close_adapter(adapter) };
        drop(memory);
    }
}
