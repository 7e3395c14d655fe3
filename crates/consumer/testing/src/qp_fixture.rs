//! Queue pairs on a machine of the host, each with its own registered bytes and with two completion queues.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use engine::{
    Nic,
    cq::Cqe,
    memory::{Domain, MemoryLimits, MemoryTable, Region, RegionKind, Release, Released, Rights},
    nic::{NicMode, NicRules},
    qp::{Flags, NewQp, Qp, QpParameters, Sge, Srq, SrqClient, SrqParameters, Work},
};
use host::{
    HostMemory, HostOs, PinnedBuffer,
    machine::{Machine, MachineRef},
};
use ndkpi::NtStatus;

use crate::{
    cq_fixture::{TestCq, lock, lock_alone},
    posters::{Initiator, Receiver},
};

/// No flags.
pub const PLAIN: Flags = Flags::empty();
/// A send without invalidation.
pub const SEND: Work = Work::Send { invalidate: None };

/// Limits that most tests can live with.
pub const PARAMETERS: QpParameters = QpParameters {
    receive_depth: 64,
    initiator_depth: 64,
    max_receive_sge: 4,
    max_initiator_sge: 4,
    max_peer_sge: 4,
    inline_size: 256,
    max_transfer: 16 << 20,
    context: 0,
};

/// [`PARAMETERS`] with a context.
#[must_use]
pub const fn with_context(context: usize) -> QpParameters {
    QpParameters { context, ..PARAMETERS }
}

/// Completions that a queue of the fixture holds.
const CQ_DEPTH: u32 = 512;
/// Registered bytes of a queue pair.
const BYTES: usize = 64 << 10;

/// Runs `test` on seeded machines, each with another seed, with a NIC that works in DPCs and with one that works
/// directly.
pub fn on_nics(test: impl Fn(&Net)) {
    run(0, &test);
}

/// [`on_nics`] on machines whose processors get in between at every lock, by chance.
pub fn on_busy_nics(test: impl Fn(&Net)) {
    run(40, &test);
}

fn run(preemption: u8, test: &impl Fn(&Net)) {
    for mode in [NicMode::Deferred, NicMode::Direct] {
        for seed in 0..4 {
            let machine = Machine::seeded(seed).preemption(preemption).start();
            let net = Net::new(&machine, mode);
            test(&net);
            drop(net);
            machine.run_until_idle();
            machine.shutdown();
        }
    }
}

/// A NIC on a machine.
pub struct Net {
    machine: MachineRef,
    os: HostOs,
    nic: fallible::Arc<Nic<HostOs>>,
    table: fallible::Arc<MemoryTable<HostOs>>,
}

impl Net {
    /// A NIC that works as `mode` says.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn new(machine: &MachineRef, mode: NicMode) -> Self {
        Self::with_rules(machine, mode, NicRules::default())
    }

    /// A NIC that works as `mode` says, by these rules.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn with_rules(machine: &MachineRef, mode: NicMode, rules: NicRules) -> Self {
        let os = HostOs::new(machine);
        let nic = Nic::try_new_with(&os, mode, rules).expect("memory");
        let limits = MemoryLimits { tokens: 256, mappings: 16, registration: 1 << 30, fast_register_pages: 4096 };
        let table = MemoryTable::try_new(&os, limits).expect("memory");
        Self { machine: machine.clone(), os, nic, table }
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &MachineRef {
        &self.machine
    }

    /// The operating system.
    #[must_use]
    pub const fn os(&self) -> &HostOs {
        &self.os
    }

    /// The NIC.
    #[must_use]
    pub const fn nic(&self) -> &fallible::Arc<Nic<HostOs>> {
        &self.nic
    }

    /// Lets the machine run until it has nothing left to do.
    #[track_caller]
    pub fn settle(&self) {
        self.machine.run_until_idle();
    }

    /// A completion queue.
    #[must_use]
    pub fn cq(&self, depth: u32) -> TestCq {
        TestCq::new(&self.os, depth)
    }

    /// A queue pair with queues of its own.
    #[must_use]
    pub fn qp(&self, parameters: QpParameters) -> TestQp {
        self.qp_on(parameters, &self.cq(CQ_DEPTH), &self.cq(CQ_DEPTH), BYTES)
    }

    /// A queue pair with these completion queues and `bytes` registered bytes.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn qp_on(&self, parameters: QpParameters, sends: &TestCq, receives: &TestCq, bytes: usize) -> TestQp {
        self.try_qp_on(parameters, sends, receives, bytes).expect("memory")
    }

    /// [`Net::qp_on`] without a panic.
    ///
    /// # Errors
    ///
    /// As [`Qp::try_new`].
    pub fn try_qp_on(
        &self,
        parameters: QpParameters,
        sends: &TestCq,
        receives: &TestCq,
        bytes: usize,
    ) -> Result<TestQp, NtStatus> {
        let bytes = Bytes::new(&Domain::try_new(&self.table)?, bytes, ALL_RIGHTS)?;
        self.try_qp_with(parameters, sends, receives, bytes, None)
    }

    fn try_qp_with(
        &self,
        parameters: QpParameters,
        sends: &TestCq,
        receives: &TestCq,
        bytes: Bytes,
        srq: Option<&fallible::Arc<Srq<HostOs>>>,
    ) -> Result<TestQp, NtStatus> {
        let domain = bytes.region.domain();
        let client = Arc::new(());
        let new = Qp::try_new(&self.nic, domain, &receives.cq(), &sends.cq(), srq, &parameters, client.clone())?;
        let NewQp { qp, send_queue, receive_queue } = new;
        let (initiator, receiver) = (Initiator::new(&qp, send_queue), Receiver::new(&qp, receive_queue));
        Ok(TestQp {
            qp,
            initiator: Mutex::new(Some(initiator)),
            receiver: Mutex::new(Some(receiver)),
            sends: sends.clone(),
            receives: receives.clone(),
            bytes,
            client,
        })
    }

    /// A shared receive queue for `depth` receives, with `bytes` bytes of its own.
    ///
    /// # Errors
    ///
    /// As [`Srq::try_new`].
    pub fn try_srq(&self, depth: u32, threshold: u32, bytes: usize) -> Result<TestSrq, NtStatus> {
        let bytes = Bytes::new(&Domain::try_new(&self.table)?, bytes, ALL_RIGHTS)?;
        let seen = Arc::new(SrqSeen::default());
        let parameters =
            SrqParameters { depth, max_depth: 1_024, max_sge: 2, max_transfer: 1 << 20, threshold, processor: 0 };
        let srq = Srq::try_new(&self.os, bytes.region.domain(), parameters, SrqConsumer(seen.clone()))?;
        Ok(TestSrq { srq, bytes, seen })
    }

    /// [`Net::try_srq`] for a test that expects it to succeed.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[must_use]
    pub fn srq(&self, depth: u32, threshold: u32) -> TestSrq {
        self.try_srq(depth, threshold, BYTES).expect("memory and a good depth")
    }

    /// Two queue pairs that are joined, the second of which takes its receives from `srq`.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn pair_on(&self, srq: &TestSrq, context: usize) -> (TestQp, TestQp) {
        let a = self.qp(PARAMETERS);
        let b = self.joined_on(srq, context, &a);
        (a, b)
    }

    /// A queue pair that takes its receives from `srq` and is joined to `a`.
    ///
    /// # Panics
    ///
    /// If there is no memory, or `a` was joined before.
    #[must_use]
    pub fn joined_on(&self, srq: &TestSrq, context: usize, a: &TestQp) -> TestQp {
        let bytes = Bytes::new(srq.bytes.region.domain(), 64, ALL_RIGHTS).expect("memory");
        let (sends, receives) = (self.cq(CQ_DEPTH), self.cq(CQ_DEPTH));
        let b = self.try_qp_with(with_context(context), &sends, &receives, bytes, Some(&srq.srq)).expect("memory");
        Qp::link(a.qp(), b.qp()).expect("both are new");
        b
    }

    /// Two queue pairs that are joined.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn pair(&self) -> (TestQp, TestQp) {
        self.pair_with(PARAMETERS)
    }

    /// [`Net::pair`] with other limits.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn pair_with(&self, parameters: QpParameters) -> (TestQp, TestQp) {
        let (a, b) = (self.qp(parameters), self.qp(parameters));
        Qp::link(a.qp(), b.qp()).expect("both are new");
        (a, b)
    }

    /// Two joined queue pairs of the protection domains of `a` and `b`.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn pair_beside(&self, a: &TestQp, b: &TestQp) -> (TestQp, TestQp) {
        let (a, b) = (self.qp_beside(a), self.qp_beside(b));
        Qp::link(a.qp(), b.qp()).expect("both are new");
        (a, b)
    }

    /// A queue pair of the protection domain of `qp`.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn qp_beside(&self, qp: &TestQp) -> TestQp {
        let bytes = Bytes::new(qp.bytes.region.domain(), BYTES, ALL_RIGHTS).expect("memory");
        self.try_qp_with(PARAMETERS, &self.cq(CQ_DEPTH), &self.cq(CQ_DEPTH), bytes, None).expect("memory")
    }
}

/// Keeps bytes until the engine has let go of them.
struct Keep(#[expect(dead_code, reason = "kept, not used")] Arc<PinnedBuffer>);

impl Released for Keep {
    fn released(&self) {}
}

/// All that can be granted.
const ALL_RIGHTS: Rights = Rights::REMOTE_WRITE.and(Rights::REMOTE_READ).and(Rights::READ_SINK);

/// Registered bytes.
struct Bytes {
    buffer: Arc<PinnedBuffer>,
    region: fallible::Arc<Region<HostOs>>,
    rights: Rights,
}

impl Bytes {
    fn new(domain: &fallible::Arc<Domain<HostOs>>, length: usize, rights: Rights) -> Result<Self, NtStatus> {
        let buffer = Arc::new(PinnedBuffer::new(length)?);
        let region = Region::try_new(domain, RegionKind::Normal)?;
        let bytes = Self { buffer, region, rights };
        bytes.register()?;
        Ok(bytes)
    }

    fn register(&self) -> Result<(), NtStatus> {
        // SAFETY: the descriptors are the buffer's own, and its bytes live until the engine has let go of them: the region's
        // client keeps the buffer.
        let memory = unsafe { HostMemory::from_mdl(self.buffer.mdl(), self.buffer.len()) }?;
        self.region.register(memory, self.rights, Keep(self.buffer.clone()))
    }

    fn write_to(&self, offset: usize) -> Work {
        Work::Write { address: self.buffer.address(offset), token: self.region.remote_token() }
    }

    fn read_from(&self, offset: usize) -> Work {
        Work::Read { address: self.buffer.address(offset), token: self.region.remote_token() }
    }

    fn sge(&self, offset: usize, length: u32) -> Sge {
        Sge { address: self.buffer.address(offset), length, token: self.region.local_token() }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // Transfers in progress keep them.
        let _ = self.region.deregister();
    }
}

/// What [`TestQp::more_bytes`] gives. Dropping it ends the registration.
pub struct MoreBytes(Bytes);

impl fmt::Debug for MoreBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoreBytes").finish_non_exhaustive()
    }
}

impl MoreBytes {
    /// A part of them.
    #[must_use]
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        self.0.sge(offset, length)
    }

    /// A write to a part of them, for the peer.
    #[must_use]
    pub fn write_to(&self, offset: usize) -> Work {
        self.0.write_to(offset)
    }

    /// A read of a part of them, for the peer.
    #[must_use]
    pub fn read_from(&self, offset: usize) -> Work {
        self.0.read_from(offset)
    }

    /// The bytes.
    #[must_use]
    pub fn buffer(&self) -> &PinnedBuffer {
        &self.0.buffer
    }

    /// Closes the region without an end of its registration. What it gives tells whether the bytes are gone.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn into_witness(mut self) -> impl Fn() -> bool {
        let bytes = Arc::downgrade(&self.0.buffer);
        let another = Region::try_new(self.0.region.domain(), RegionKind::Normal).expect("memory");
        drop(mem::replace(&mut self.0.region, another));
        drop(self);
        move || bytes.strong_count() == 0
    }

    /// How many refer to the bytes, this value included.
    #[must_use]
    pub fn references(&self) -> usize {
        Arc::strong_count(&self.0.buffer)
    }

    /// Ends the registration.
    ///
    /// # Errors
    ///
    /// As [`Region::deregister`].
    pub fn deregister(&self) -> Result<Release, NtStatus> {
        self.0.region.deregister()
    }

    /// Registers the bytes again, under other tokens.
    ///
    /// # Errors
    ///
    /// As [`Region::register`].
    pub fn register(&self) -> Result<(), NtStatus> {
        self.0.register()
    }
}

/// What the consumer of a shared receive queue sees.
#[derive(Default)]
struct SrqSeen {
    statuses: Mutex<Vec<NtStatus>>,
    gone: AtomicBool,
}

/// The engine's client.
struct SrqConsumer(Arc<SrqSeen>);

impl SrqClient for SrqConsumer {
    fn notify(&self, status: NtStatus) {
        HostOs::assert_callback_context();
        lock(&self.0.statuses).push(status);
    }
}

impl Drop for SrqConsumer {
    fn drop(&mut self) {
        self.0.gone.store(true, Ordering::Release);
    }
}

/// A shared receive queue and its consumer. Dropping it closes it.
pub struct TestSrq {
    srq: fallible::Arc<Srq<HostOs>>,
    bytes: Bytes,
    seen: Arc<SrqSeen>,
}

impl fmt::Debug for TestSrq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestSrq").finish_non_exhaustive()
    }
}

impl TestSrq {
    /// The engine's queue.
    #[must_use]
    pub const fn srq(&self) -> &fallible::Arc<Srq<HostOs>> {
        &self.srq
    }

    /// A part of the registered bytes.
    #[must_use]
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        self.bytes.sge(offset, length)
    }

    /// The registered bytes.
    #[must_use]
    pub fn buffer(&self) -> &PinnedBuffer {
        &self.bytes.buffer
    }

    /// Their region.
    #[must_use]
    pub const fn region(&self) -> &fallible::Arc<Region<HostOs>> {
        &self.bytes.region
    }

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// As [`Srq::post`].
    pub fn post(&self, context: usize, elements: &[Sge]) -> Result<(), NtStatus> {
        self.srq.post(context, elements.iter().copied())
    }

    /// Posts a receive of `length` bytes.
    ///
    /// # Panics
    ///
    /// If the post is refused.
    #[track_caller]
    pub fn receive(&self, context: usize, length: u32) {
        self.post(context, &[self.sge(0, length)]).expect("a receive");
    }

    /// Forgets the notifications so far and gives their statuses.
    #[must_use = "the notifications are forgotten"]
    pub fn take_statuses(&self) -> Vec<NtStatus> {
        std::mem::take(&mut lock(&self.seen.statuses))
    }

    /// Closes the queue, and gives something that says whether the engine has let go of it.
    pub fn into_witness(self) -> impl Fn() -> bool {
        let seen = self.seen.clone();
        drop(self);
        move || seen.gone.load(Ordering::Acquire)
    }
}

impl Drop for TestSrq {
    fn drop(&mut self) {
        self.srq.close();
    }
}

/// A queue pair and its consumer. Dropping it closes it.
pub struct TestQp {
    qp: fallible::Arc<Qp<HostOs>>,
    initiator: Mutex<Option<Initiator<HostOs>>>,
    receiver: Mutex<Option<Receiver<HostOs>>>,
    sends: TestCq,
    receives: TestCq,
    bytes: Bytes,
    client: Arc<()>,
}

impl fmt::Debug for TestQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestQp").field("linked", &self.qp.is_linked()).finish_non_exhaustive()
    }
}

impl TestQp {
    /// The engine's queue pair.
    #[must_use]
    pub const fn qp(&self) -> &fallible::Arc<Qp<HostOs>> {
        &self.qp
    }

    /// Where initiator requests complete.
    #[must_use]
    pub const fn send_cq(&self) -> &TestCq {
        &self.sends
    }

    /// Where receives complete.
    #[must_use]
    pub const fn receive_cq(&self) -> &TestCq {
        &self.receives
    }

    /// A part of the registered bytes.
    #[must_use]
    pub fn sge(&self, offset: usize, length: u32) -> Sge {
        self.bytes.sge(offset, length)
    }

    /// More registered bytes of the same protection domain, under a token of their own.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn more_bytes(&self, length: usize) -> MoreBytes {
        self.more_bytes_with(length, ALL_RIGHTS)
    }

    /// [`TestQp::more_bytes`] with these rights.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    pub fn more_bytes_with(&self, length: usize, rights: Rights) -> MoreBytes {
        MoreBytes(Bytes::new(self.bytes.region.domain(), length, rights).expect("memory"))
    }

    /// A write to a part of this side's bytes, for the peer.
    #[must_use]
    pub fn write_to(&self, offset: usize) -> Work {
        self.bytes.write_to(offset)
    }

    /// A read of a part of this side's bytes, for the peer.
    #[must_use]
    pub fn read_from(&self, offset: usize) -> Work {
        self.bytes.read_from(offset)
    }

    /// The registered bytes.
    #[must_use]
    pub fn buffer(&self) -> &PinnedBuffer {
        &self.bytes.buffer
    }

    /// Takes the end of the initiator queue away: nothing else can be posted through this value.
    ///
    /// # Panics
    ///
    /// If the queue pair was closed.
    pub fn take_initiator(&self) -> Initiator<HostOs> {
        lock_alone(&self.initiator, "a post to the initiator queue").take().expect("the queue pair is open")
    }

    /// Runs `work` on the end of the initiator queue.
    ///
    /// # Panics
    ///
    /// If the queue pair was closed.
    pub fn initiate<U>(&self, work: impl FnOnce(&mut Initiator<HostOs>) -> U) -> U {
        let mut initiator = lock_alone(&self.initiator, "a post to the initiator queue");
        work(initiator.as_mut().expect("the queue pair is open"))
    }

    /// Posts an initiator request.
    ///
    /// # Errors
    ///
    /// As [`Initiator::post`].
    pub fn post(&self, context: usize, work: Work, flags: Flags, elements: &[Sge]) -> Result<(), NtStatus> {
        self.initiate(|initiator| initiator.post(context, work, flags, elements.iter().copied()))
    }

    /// Posts an initiator request with its bytes.
    ///
    /// # Errors
    ///
    /// As [`Initiator::post_inline`].
    pub fn post_inline(&self, context: usize, work: Work, flags: Flags, parts: &[&[u8]]) -> Result<(), NtStatus> {
        self.initiate(|initiator| initiator.post_inline(context, work, flags, parts.iter().copied()))
    }

    /// Posts a send of the first `length` registered bytes.
    ///
    /// # Panics
    ///
    /// If the post is refused.
    #[track_caller]
    pub fn send(&self, context: usize, length: u32) {
        self.send_with(context, length, PLAIN);
    }

    /// [`TestQp::send`] with flags.
    ///
    /// # Panics
    ///
    /// If the post is refused.
    #[track_caller]
    pub fn send_with(&self, context: usize, length: u32, flags: Flags) {
        let element = self.sge(0, length);
        let elements = if length == 0 { &[][..] } else { std::slice::from_ref(&element) };
        self.post(context, SEND, flags, elements).expect("a send");
    }

    /// Posts a receive.
    ///
    /// # Errors
    ///
    /// As [`Receiver::post`].
    ///
    /// # Panics
    ///
    /// If the queue pair was closed.
    pub fn post_receive(&self, context: usize, elements: &[Sge]) -> Result<(), NtStatus> {
        let mut receiver = lock_alone(&self.receiver, "a post to the receive queue");
        receiver.as_mut().expect("the queue pair is open").post(context, elements.iter().copied())
    }

    /// Posts a receive into `length` registered bytes beginning at the half of them.
    ///
    /// # Panics
    ///
    /// If the post is refused.
    #[track_caller]
    pub fn receive(&self, context: usize, length: u32) {
        let element = self.sge(self.bytes.buffer.len() / 2, length);
        let elements = if length == 0 { &[][..] } else { std::slice::from_ref(&element) };
        self.post_receive(context, elements).expect("a receive");
    }

    /// Takes all completions of initiator requests: their contexts and statuses.
    #[track_caller]
    pub fn sent(&self) -> Vec<(usize, NtStatus)> {
        outcomes(&self.sends.poll_entries(usize::MAX))
    }

    /// Takes all completions of receives: their contexts and statuses.
    #[track_caller]
    pub fn received(&self) -> Vec<(usize, NtStatus)> {
        outcomes(&self.receives.poll_entries(usize::MAX))
    }

    /// Begins to cancel what is posted.
    pub fn flush(&self) {
        Qp::flush(&self.qp);
    }

    /// Ends the connection.
    pub fn unlink(&self) {
        Qp::unlink(&self.qp);
    }

    /// Closes the queue pair and lets go of both ends, as a provider does.
    pub fn close(&self) {
        drop(lock_alone(&self.initiator, "a close").take());
        drop(lock_alone(&self.receiver, "a close").take());
        Qp::close(&self.qp);
    }

    /// How many refer to the queue pair besides the test.
    #[must_use]
    pub fn references(&self) -> usize {
        fallible::Arc::references_now(&self.qp) - 1
    }

    /// Drops the fixture, and gives something that says whether the engine has let go of the queue pair.
    pub fn into_witness(self) -> impl Fn() -> bool {
        let client = self.client.clone();
        drop(self);
        move || Arc::strong_count(&client) == 1
    }
}

impl Drop for TestQp {
    fn drop(&mut self) {
        self.close();
    }
}

/// The contexts and statuses of completions.
#[must_use]
pub fn outcomes(completions: &[Cqe]) -> Vec<(usize, NtStatus)> {
    completions.iter().map(|completion| (completion.request_context, completion.outcome.status())).collect()
}

/// Outcomes with one status for all.
pub fn all(contexts: impl IntoIterator<Item = usize>, status: NtStatus) -> Vec<(usize, NtStatus)> {
    contexts.into_iter().map(|context| (context, status)).collect()
}
