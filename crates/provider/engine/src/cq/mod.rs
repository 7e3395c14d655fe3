//! Completion queues (`NDKPI 7.1`).
//!
//! Any number of queue pairs [push](Cq::push) completions under the queue's lock. The consumer polls them through its
//! [`CqConsumer`] without a lock: NDKPI has it serialise its own calls (`NDKPI 7.1.2`), which the exclusive reference expresses.
//! [`notify`] decides when to call the consumer back, for producers and arms alike. The callback always comes from the queue's own
//! DPC, with no lock held.
//!
//! A plain completion that [has no consequence now](Notify::ignores_plain) costs a few comparisons and stores under the lock, and is
//! told of when the next decision is made. All others go through the decision.

mod cqe;
pub mod dependents;
pub mod moderation;
pub mod notify;

use alloc::boxed::Box;
use core::marker::PhantomData;

use crate::NtStatus;
pub use cqe::{Cause, Cqe, CqeOutcome, Operation, Received};
use dependents::{DependentRef, Dependents, Spread, fail_some};
use fallible::{Arc, try_box};
use moderation::Moderation;
use notify::{Action, ArmType, Class, CqFailure, Notify, View};

use crate::{
    os::{Dpc, Os, Routine, SpinLock, Timer},
    ring::{self, Spare},
    sync::CachePadded,
};

/// Callbacks in one run of the DPC, which queues itself again if there are more.
const CALLBACKS_PER_RUN: usize = 4;

/// What a completion queue calls.
///
/// The queue drops its client with its own last reference. No callback runs or begins after that.
pub trait CqClient: Send + Sync + 'static {
    /// The arm is satisfied (`NDK_FN_CQ_NOTIFICATION_CALLBACK`). Called at `IRQL <= DISPATCH_LEVEL` with no lock held, never
    /// while another call for the same queue runs. It may call everything on the queue, also close it.
    fn notify(&self, status: NtStatus);

    /// The queue has failed. Called once, whether armed or not, under the same conditions as `notify`.
    fn failed(&self, failure: CqFailure);
}

/// The parameters of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqParameters {
    /// The number of completions it holds.
    pub depth: u32,
    /// The largest depth of the adapter (`MaxCqDepth`).
    pub max_depth: u32,
    /// The processor on which callbacks should run.
    pub processor: u32,
}

/// What a client sees of a queue that decides for each of its own waiters (`NDSPI 9`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What the decision is made from.
    pub view: View,
    /// Ordinal of the newest entry of a failed request.
    pub newest_failed: u64,
    /// How the queue has failed, if it has, and its queue pairs with it.
    pub failure: Option<CqFailure>,
}

// What a plain completion needs is first, close to the lock: producers on several processors take few cache lines from each other.
#[repr(C)]
struct State {
    entries: ring::Producer<Cqe>,
    /// Plain entries have no consequence, and [`State::settle`] tells `notify` of them.
    ignores_plain: bool,
    notify: Notify,
    depth: u32,
    /// The queue pairs that complete here, once for each of their queues that does.
    dependents: Dependents,
    /// The client has been told that the queue has failed.
    told: bool,
}

impl State {
    /// Pushes a completion of `cq`, which the caller publishes. Returns true if the DPC has to be queued.
    #[inline]
    fn push<O: Os>(&mut self, cq: &Arc<Cq<O>>, cqe: Cqe) -> bool {
        let Cqe { qp_context, outcome, request_context, received } = cqe;
        let is_ignored = self.ignores_plain && outcome.is_plain() && self.entries.push(cqe);
        !is_ignored && self.push_and_decide(cq, qp_context, outcome, request_context, received)
    }

    /// [`State::push`] for a completion that may have a consequence.
    // The fields, because a completion whose address is taken lies in memory, also where it has no consequence.
    #[inline(never)]
    fn push_and_decide<O: Os>(
        &mut self,
        cq: &Arc<Cq<O>>,
        qp_context: usize,
        outcome: CqeOutcome,
        request_context: usize,
        received: Received,
    ) -> bool {
        if self.settle().failure().is_some() {
            return false;
        }
        if !self.entries.push(Cqe { qp_context, outcome, request_context, received }) {
            return self.fail(CqFailure::Overrun);
        }
        let is_full = !self.entries.has_room(1);
        let action = self.notify.queued(Class::of(outcome), is_full);
        self.ignores_plain = self.notify.ignores_plain();
        if let Some(micros) = action.timer {
            self.hold(cq, micros);
        }
        action.queue
    }

    /// The notification state, which has been told of all entries. The next one is decided on.
    fn settle(&mut self) -> &mut Notify {
        self.ignores_plain = false;
        self.notify.ignored_up_to(self.entries.tail());
        &mut self.notify
    }

    /// Lets `work` update the notification state, with `true` if the queue is full. Returns true if the DPC has to be
    /// queued.
    fn update<O: Os>(&mut self, cq: &Arc<Cq<O>>, work: impl FnOnce(&mut Notify, bool) -> Action) -> bool {
        let is_full = !self.entries.has_room(1);
        let action = work(self.settle(), is_full);
        if let Some(micros) = action.timer {
            self.hold(cq, micros);
        }
        action.queue
    }

    /// Sets the timer that ends a hold.
    fn hold<O: Os>(&mut self, cq: &Arc<Cq<O>>, micros: u32) {
        self.notify.hold_for(cq.os.now(), micros);
        cq.timer.set(u64::from(micros), cq);
    }

    /// [`Cq::fail`]. Returns true if the DPC has to be queued.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, failure: CqFailure) -> bool {
        if self.settle().failure().is_some() {
            return false;
        }
        self.dependents.begin_failure();
        let _ = self.notify.fail(failure);
        // The DPC fails the queue pairs, even if nothing is armed, and even if the queue is closed: its close waits for
        // the queue pairs that still complete here (`NDKPI 7.1.12`).
        true
    }
}

/// A completion queue, as producers and the engine see it.
pub struct Cq<O: Os> {
    os: O,
    state: CachePadded<O::Lock<State>>,
    dpc: O::Dpc<Notification<O>>,
    timer: O::Timer<HoldExpiry<O>>,
    client: Box<dyn CqClient>,
    max_depth: u32,
}

/// The consumer's end of a completion queue: exactly one exists.
pub struct CqConsumer<O: Os> {
    cq: Arc<Cq<O>>,
    entries: ring::Consumer<Cqe>,
}

impl<O: Os> Cq<O> {
    /// Bytes of memory that a completion queue of this depth takes, without its client.
    #[must_use]
    pub const fn bytes(depth: u32) -> u64 {
        size_of::<Self>() as u64 + ring::bytes::<Cqe>(depth)
    }

    /// Makes an empty, unarmed completion queue.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the depth is 0 or above the adapter's limit; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        os: &O,
        parameters: CqParameters,
        client: impl CqClient,
    ) -> Result<(Arc<Self>, CqConsumer<O>), NtStatus> {
        Self::try_new_at(os, parameters, client, 0)
    }

    //= NDKPI 7.1.1
    /// [`Cq::try_new`] with the running number of the first completion, so that tests can let it wrap around.
    ///
    /// # Errors
    ///
    /// As [`Cq::try_new`].
    pub fn try_new_at(
        os: &O,
        parameters: CqParameters,
        client: impl CqClient,
        first: u64,
    ) -> Result<(Arc<Self>, CqConsumer<O>), NtStatus> {
        let CqParameters { depth, max_depth, processor } = parameters;
        check_depth(depth, max_depth)?;
        let (producer, consumer) = ring::try_new(depth, first)?;
        let (notify, dependents) = (Notify::new(first), Dependents::default());
        let state = State { entries: producer, ignores_plain: false, notify, depth, dependents, told: false };
        let cq = Arc::try_new(Self {
            os: os.clone(),
            state: CachePadded::new(os.lock(state)?),
            dpc: os.dpc(processor)?,
            timer: os.timer()?,
            client: try_box(client)?,
            max_depth,
        })?;
        Ok((cq.clone(), CqConsumer { cq, entries: consumer }))
    }

    /// Pushes a completion, and notifies the consumer if that satisfies the arm.
    ///
    /// If the queue is full, it fails (`NDKPI 7.1.10`): queued completions stay, this one and all later ones are lost, and the
    /// attached queue pairs fail.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the completion stays in registers until it is in its slot")]
    pub fn push(this: &Arc<Self>, cqe: Cqe) {
        let Cqe { qp_context, outcome, request_context, received } = cqe;
        Self::push_one(this, move || Cqe { qp_context, outcome, request_context, received });
    }

    /// [`Cq::push`] for the completion that `work` returns: it is made with the queue locked, and stays in registers.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "code of its own for each caller, because `work` is")]
    pub(crate) fn push_one(this: &Arc<Self>, work: impl FnOnce() -> Cqe) {
        Self::push_under_lock(this, |state| state.push(this, work()));
    }

    /// [`Cq::push`] for the completions that `work` returns, which become visible together. It runs with the queue locked: it must
    /// be short and must not use the queue.
    ///
    /// `work` writes what the completions announce. To lock the queue after that would wait until those stores have reached the
    /// consumer's processor.
    #[inline]
    pub fn push_all<'a>(this: &Arc<Self>, work: impl FnOnce() -> &'a [Cqe]) {
        Self::push_under_lock(this, |state| match work() {
            [cqe] => state.push(this, *cqe),
            cqes => cqes.iter().fold(false, |queue, cqe| state.push(this, *cqe) | queue),
        });
    }

    /// Publishes what `push` pushes, and queues the DPC if it says so.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "code of its own for each caller, because `push` is")]
    fn push_under_lock(this: &Arc<Self>, push: impl FnOnce(&mut State) -> bool) {
        let queue = this.state.with(|state| {
            let queue = push(state);
            state.entries.publish();
            queue
        });
        if queue {
            this.dpc.queue(this);
        }
    }

    /// Fails the queue for good, as a broken adapter would (`NDKPI 7.1.10`).
    pub fn fail(this: &Arc<Self>, failure: CqFailure) {
        if this.state.with(|state| state.fail(failure)) {
            this.dpc.queue(this);
        }
    }

    /// How the queue has failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<CqFailure> {
        self.state.with(|state| state.notify.failure())
    }

    /// The state of the queue now. A client that arms before it observes misses nothing: later completions satisfy the arm.
    #[must_use]
    pub fn observe(&self) -> Observation {
        self.state.with(|state| {
            // A failure is seen when nothing that depends on the queue can be used any more.
            let is_told = !state.dependents.are_failing();
            let notify = state.settle();
            let failure = notify.failure().filter(|_| is_told);
            Observation { view: notify.view(), newest_failed: notify.newest_failed(), failure }
        })
    }

    //= NDKPI 7.1.11
    /// Sets the number of completions the queue can hold (`NDKPI 7.1.11`), while producers and the consumer go on.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the depth is 0 or above the adapter's limit, `STATUS_BUFFER_OVERFLOW` if more completions
    /// are queued than that, `STATUS_INSUFFICIENT_RESOURCES`. The queue is unchanged then.
    pub fn resize(this: &Arc<Self>, depth: u32) -> Result<(), NtStatus> {
        check_depth(depth, this.max_depth)?;
        // Allocated and freed without the lock; a queue that keeps its memory does not use it.
        let spare = Spare::try_new(depth)?;
        let result = this.state.with(|state| {
            let unused = state.entries.resize(spare)?;
            state.depth = depth;
            Ok((unused, state.update(this, |notify, is_full| notify.resized(depth, is_full))))
        });
        let (_unused, queue) = result.map_err(|_: Spare<Cqe>| NtStatus::BUFFER_OVERFLOW)?;
        if queue {
            this.dpc.queue(this);
        }
        Ok(())
    }

    /// Sets the interrupt moderation (`NDKPI 7.1.6`), `interval` in microseconds.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER_MIX` if neither side has a limit.
    pub fn moderate(this: &Arc<Self>, interval: u32, count: u32) -> Result<(), NtStatus> {
        let queue = this.state.with(|state| {
            let moderation = Moderation::new(interval, count, state.depth, this.os.timer_resolution())?;
            Ok::<_, NtStatus>(state.update(this, |notify, is_full| notify.moderate(moderation, is_full, this.os.now())))
        })?;
        if queue {
            this.dpc.queue(this);
        }
        Ok(())
    }

    /// [`CqConsumer::arm`] for a consumer that has [taken](CqConsumer::taken) that much.
    ///
    /// The callback may begin, and poll, before this returns. Therefore this does not use the consumer's end.
    #[inline]
    pub fn arm(this: &Arc<Self>, kind: ArmType, taken: u64) {
        // An arm is never held back.
        let queue = this.state.with(move |state| state.settle().arm(kind, taken).queue);
        if queue {
            this.dpc.queue(this);
        }
    }

    /// Prevents further callbacks. One that runs goes on; the client is dropped after it. May be called by the callback.
    //= NDKPI 7.1.12
    //= NDKPI 7.9.4
    pub fn close(&self) {
        self.state.with(|state| {
            state.settle().close();
            let _ = self.timer.cancel();
        });
    }

    /// Adds a queue pair that completes here and fails with the queue. Returns its number for [`Cq::detach`].
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub(crate) fn attach(&self, dependent: DependentRef) -> Result<usize, NtStatus> {
        self.state.with(|state| state.dependents.insert(dependent)).map_err(Into::into)
    }

    /// Removes what [`Cq::attach`] added.
    pub(crate) fn detach(&self, number: usize) {
        // The reference is dropped after the lock is released.
        drop(self.state.with(|state| state.dependents.remove(number)));
    }

    /// Makes the callbacks that are due, a bounded number of them.
    fn notify(this: &Arc<Self>) {
        for _ in 0..CALLBACKS_PER_RUN {
            let due = this.state.with(|state| match state.settle().failure() {
                Some(failure) if !state.told => Err(failure),
                _ => Ok(state.notify.begin()),
            });
            match due {
                Err(failure) => match Self::spread_failure(this, failure) {
                    Spread::Unfinished => break,
                    Spread::Elsewhere => return,
                    Spread::Everywhere => {}
                },
                Ok(None) => return,
                Ok(Some(status)) => {
                    this.client.notify(status);
                    if !this.state.with(|state| state.settle().end()) {
                        return;
                    }
                }
            }
        }
        this.dpc.queue(this);
    }

    //= NDKPI 7.1.10
    /// Fails a bounded number of dependents, and then tells the client of the failure: whoever has heard of it finds no queue pair
    /// that still accepts requests (`NDSPI 2`).
    #[cold]
    fn spread_failure(this: &Arc<Self>, failure: CqFailure) -> Spread {
        let spread = fail_some(&*this.state, |state| &mut state.dependents);
        if spread == Spread::Everywhere && !this.state.with(|state| core::mem::replace(&mut state.told, true)) {
            this.client.failed(failure);
        }
        spread
    }
}

impl<O: Os> CqConsumer<O> {
    /// The queue.
    #[must_use]
    pub const fn cq(&self) -> &Arc<Cq<O>> {
        &self.cq
    }

    /// Passes up to `most` completions to `each`, oldest first. Returns how many.
    ///
    /// Takes no lock and allocates nothing. The slots are freed together, at the end.
    #[inline]
    pub fn poll(&mut self, most: usize, each: impl FnMut(&Cqe)) -> usize {
        self.entries.take(most, each)
    }

    /// Arms the queue (`NDKPI 7.1.3` to `7.1.5`) for one callback, as soon as it has a completion of this kind that is newer than
    /// the last callback and has not been taken. Two arms merge into the stronger one.
    #[inline]
    pub fn arm(&mut self, kind: ArmType) {
        Cq::arm(&self.cq, kind, self.taken());
    }

    /// The ordinal of the newest completion that was taken, for [`Cq::arm`].
    #[inline]
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.entries.head()
    }
}

fn check_depth(depth: u32, max_depth: u32) -> Result<(), NtStatus> {
    if (1..=max_depth).contains(&depth) { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
}

//= NDKPI 7.1.7
/// The DPC that makes callbacks.
pub struct Notification<O>(PhantomData<O>);

impl<O: Os> Routine for Notification<O> {
    type Target = Cq<O>;

    fn run(cq: &Arc<Cq<O>>) {
        Cq::notify(cq);
    }
}

/// The timer that ends a hold of moderation.
pub struct HoldExpiry<O>(PhantomData<O>);

impl<O: Os> Routine for HoldExpiry<O> {
    type Target = Cq<O>;

    fn run(cq: &Arc<Cq<O>>) {
        if cq.state.with(|state| state.update(cq, |notify, _| notify.timer_ran(cq.os.now()))) {
            cq.dpc.queue(cq);
        }
    }
}
