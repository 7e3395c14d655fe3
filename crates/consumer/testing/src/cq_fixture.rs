//! Cqe queues on a machine of the host, whose consumer writes down what it sees and does what a test tells it.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use engine::cq::{
    Cq, CqClient, CqConsumer, CqParameters, Cqe, CqeOutcome, Operation, Received,
    notify::{ArmType, CqFailure},
};
use host::{
    HostOs,
    machine::{Irql, Machine, current_irql},
};
use ndkpi::NtStatus;

/// The largest depth of a queue, unless a test says otherwise.
pub const MAX_DEPTH: u32 = 1 << 16;

/// All kinds of requests.
pub const OPERATIONS: [Operation; 8] = [
    Operation::Receive,
    Operation::ReceiveAndInvalidate,
    Operation::Send,
    Operation::FastRegister,
    Operation::Bind,
    Operation::Invalidate,
    Operation::Read,
    Operation::Write,
];

/// Runs `test` on seeded machines of two processors, each with another seed. On the last one nobody watches the locks: then they
/// can be had at once, and most completions go another way.
pub fn on_seeds(test: impl Fn(&Machine, &HostOs)) {
    for seed in 0..5 {
        let machine = Machine::seeded(seed).start();
        test(&machine, &if seed < 4 { HostOs::new(&machine) } else { HostOs::unwatched(&machine) });
        machine.shutdown();
    }
}

/// A completion with the number `context` that nobody marked.
#[must_use]
pub const fn plain(context: usize) -> Cqe {
    Cqe {
        qp_context: 0,
        outcome: CqeOutcome::new(Operation::Receive, NtStatus::SUCCESS),
        request_context: context,
        received: Received::new(0, 0),
    }
}

/// A completion for which the sender asked for an event.
#[must_use]
pub const fn solicited(context: usize) -> Cqe {
    let plain = plain(context);
    Cqe { outcome: plain.outcome.soliciting(true), ..plain }
}

/// A completion of a request that failed.
#[must_use]
pub const fn failed(context: usize) -> Cqe {
    Cqe { outcome: CqeOutcome::new(Operation::Send, NtStatus::CANCELLED), ..plain(context) }
}

/// Completions with the numbers of `contexts` that nobody marked.
pub fn plains(contexts: impl IntoIterator<Item = usize>) -> Vec<Cqe> {
    contexts.into_iter().map(plain).collect()
}

/// One call of the consumer's callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What the callback was told.
    pub status: NtStatus,
    /// Where it ran.
    pub processor: u32,
    /// When it ran, in the machine's microseconds.
    pub at: u64,
}

type Handler = Box<dyn FnMut(&TestCq, NtStatus) + Send>;

struct Inner {
    os: HostOs,
    cq: Mutex<Option<fallible::Arc<Cq<HostOs>>>>,
    consumer: Mutex<Option<CqConsumer<HostOs>>>,
    calls: Mutex<Vec<Call>>,
    failures: Mutex<Vec<CqFailure>>,
    handler: Mutex<Option<Handler>>,
    /// The engine has dropped its client.
    client_gone: Arc<AtomicBool>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let cq = lock(&self.cq).take();
        if let Some(cq) = cq {
            cq.close();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks what only one may use at a time, so that nobody ever has to wait.
#[track_caller]
pub(crate) fn lock_alone<'a, T>(mutex: &'a Mutex<T>, what: &str) -> MutexGuard<'a, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
        Err(TryLockError::WouldBlock) => panic!("{what} at the same time as another"),
    }
}

/// The engine's client. It refers to the test's end as long as that exists.
struct Client {
    inner: Weak<Inner>,
    gone: Arc<AtomicBool>,
    running: AtomicBool,
}

impl CqClient for Client {
    fn notify(&self, status: NtStatus) {
        HostOs::assert_callback_context();
        assert_eq!(current_irql(), Irql::DISPATCH_LEVEL, "callbacks come from a DPC");
        assert!(!self.running.swap(true, Ordering::AcqRel), "two callbacks of one queue at the same time");
        if let Some(inner) = self.inner.upgrade() {
            let machine = inner.os.machine();
            lock(&inner.calls).push(Call { status, processor: machine.current_processor(), at: machine.now() });
            // Out of its place while it runs: it may set another one.
            let handler = lock(&inner.handler).take();
            if let Some(mut handler) = handler {
                let cq = TestCq { inner: inner.clone() };
                handler(&cq, status);
                lock(&inner.handler).get_or_insert(handler);
            }
        }
        self.running.store(false, Ordering::Release);
    }

    fn failed(&self, failure: CqFailure) {
        HostOs::assert_callback_context();
        if let Some(inner) = self.inner.upgrade() {
            lock(&inner.failures).push(failure);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        assert!(!self.running.load(Ordering::Acquire), "the client is dropped while it is called");
        self.gone.store(true, Ordering::Release);
    }
}

/// A completion queue and its consumer.
#[derive(Clone)]
pub struct TestCq {
    inner: Arc<Inner>,
}

impl fmt::Debug for TestCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestCq").field("calls", &self.calls()).finish_non_exhaustive()
    }
}

impl TestCq {
    /// A queue for `depth` completions whose callbacks run on processor 0.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[must_use]
    #[track_caller]
    pub fn new(os: &HostOs, depth: u32) -> Self {
        Self::with(os, CqParameters { depth, max_depth: MAX_DEPTH, processor: 0 }, 0).expect("memory and a good depth")
    }

    /// A queue whose first completion has the running number `first`.
    ///
    /// # Errors
    ///
    /// As [`Cq::try_new`].
    pub fn with(os: &HostOs, parameters: CqParameters, first: u64) -> Result<Self, NtStatus> {
        let inner = Arc::new(Inner {
            os: os.clone(),
            cq: Mutex::new(None),
            consumer: Mutex::new(None),
            calls: Mutex::default(),
            failures: Mutex::default(),
            handler: Mutex::default(),
            client_gone: Arc::default(),
        });
        let gone = inner.client_gone.clone();
        let client = Client { inner: Arc::downgrade(&inner), gone, running: AtomicBool::new(false) };
        let (cq, consumer) = Cq::try_new_at(os, parameters, client, first)?;
        *lock(&inner.cq) = Some(cq);
        *lock(&inner.consumer) = Some(consumer);
        Ok(Self { inner })
    }

    /// The engine's queue.
    ///
    /// # Panics
    ///
    /// If it was closed.
    #[must_use]
    #[track_caller]
    pub fn cq(&self) -> fallible::Arc<Cq<HostOs>> {
        lock(&self.inner.cq).clone().expect("the queue is open")
    }

    /// The engine's queue, unless it was closed.
    #[must_use]
    pub fn try_cq(&self) -> Option<fallible::Arc<Cq<HostOs>>> {
        lock(&self.inner.cq).clone()
    }

    /// Runs `work` on the consumer's end.
    ///
    /// # Panics
    ///
    /// If the queue was closed, or another call on it runs (`NDKPI 7.1.2`).
    #[track_caller]
    pub fn consume<U>(&self, work: impl FnOnce(&mut CqConsumer<HostOs>) -> U) -> U {
        let mut consumer = lock_alone(&self.inner.consumer, "a call of the consumer");
        work(consumer.as_mut().expect("the queue is open"))
    }

    /// Does `handler` in each callback from now on.
    pub fn on_callback(&self, handler: impl FnMut(&Self, NtStatus) + Send + 'static) {
        *lock(&self.inner.handler) = Some(Box::new(handler));
    }

    /// Puts completions in, in one batch.
    #[track_caller]
    pub fn push(&self, completions: &[Cqe]) {
        match completions {
            [completion] => Cq::push(&self.cq(), *completion),
            _ => Cq::push_all(&self.cq(), || completions),
        }
    }

    /// Takes up to `most` completions out and gives their request contexts.
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "also called to make room")]
    pub fn poll(&self, most: usize) -> Vec<usize> {
        self.poll_entries(most).iter().map(|completion| completion.request_context).collect()
    }

    /// Takes all completions out and gives their request contexts.
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "also called to make room")]
    pub fn drain(&self) -> Vec<usize> {
        self.poll(usize::MAX)
    }

    /// Takes up to `most` completions out.
    ///
    /// # Panics
    ///
    /// If the queue was closed, or the engine miscounts.
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "also called to make room")]
    pub fn poll_entries(&self, most: usize) -> Vec<Cqe> {
        let mut taken = Vec::new();
        let count = self.consume(|consumer| consumer.poll(most, |completion| taken.push(*completion)));
        assert_eq!(count, taken.len(), "the count is that of the completions given");
        taken
    }

    /// Arms the queue.
    #[track_caller]
    pub fn arm(&self, kind: ArmType) {
        self.consume(|consumer| consumer.arm(kind));
    }

    /// Sets the depth.
    ///
    /// # Errors
    ///
    /// As [`Cq::resize`].
    #[track_caller]
    pub fn resize(&self, depth: u32) -> Result<(), NtStatus> {
        Cq::resize(&self.cq(), depth)
    }

    /// Sets the interrupt moderation.
    ///
    /// # Errors
    ///
    /// As [`Cq::moderate`].
    #[track_caller]
    pub fn moderate(&self, interval: u32, count: u32) -> Result<(), NtStatus> {
        Cq::moderate(&self.cq(), interval, count)
    }

    /// Fails the queue.
    #[track_caller]
    pub fn fail(&self, failure: CqFailure) {
        Cq::fail(&self.cq(), failure);
    }

    /// How the queue has failed, if it has.
    #[must_use]
    #[track_caller]
    pub fn failure(&self) -> Option<CqFailure> {
        self.cq().failure()
    }

    /// Closes the queue and lets go of both ends, as a provider does.
    ///
    /// # Panics
    ///
    /// If it was closed.
    #[track_caller]
    pub fn close(&self) {
        let cq = lock(&self.inner.cq).take().expect("closed once");
        cq.close();
        drop(lock_alone(&self.inner.consumer, "a close").take());
    }

    /// Returns true if the engine has dropped its client: nothing of the queue is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.inner.client_gone.load(Ordering::Acquire)
    }

    /// How many callbacks have begun since they were last taken.
    #[must_use]
    pub fn calls(&self) -> usize {
        lock(&self.inner.calls).len()
    }

    /// Forgets the callbacks so far and gives them.
    #[must_use = "the callbacks are forgotten"]
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut lock(&self.inner.calls))
    }

    /// Forgets the callbacks so far and gives their statuses.
    #[must_use = "the callbacks are forgotten"]
    pub fn take_statuses(&self) -> Vec<NtStatus> {
        self.take_calls().iter().map(|call| call.status).collect()
    }

    /// The failures that the engine has told its client of.
    #[must_use]
    pub fn failures(&self) -> Vec<CqFailure> {
        lock(&self.inner.failures).clone()
    }
}
