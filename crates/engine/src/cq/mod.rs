//! Completion queues (`NDKPI 7.1`).
//!
//! Any number of NIC engines put completions in, one after the other under the queue's lock. The consumer takes them out
//! through its [`CqConsumer`] without a lock: NDKPI has it serialise its own calls (`NDKPI 7.1.2`), and here the exclusive
//! reference says so. Whether to call the consumer back is decided in [`notify`], by producers and by arms alike; the
//! callback itself always comes from the queue's own deferred call, with no lock held.

mod completion;
pub mod moderation;
pub mod notify;

use alloc::boxed::Box;

pub use completion::{Completion, Operation, Outcome};
use fallible::{Shared, try_box};
use moderation::Moderation;
use ndkpi::NtStatus;
use notify::{Action, ArmType, Class, CqFailure, Notify, View};

use crate::{
    fault::{self, Fault},
    memory_status,
    os::{Dpc, Os, Routine, SpinLock, Timer},
    qp::{Attached, Qp, ToFail},
    ring::{self, Plan, ResizeError, Spare},
    sync::CachePadded,
};

/// Callbacks that one run of the deferred call makes before it queues itself again.
const CALLBACKS_PER_RUN: usize = 4;
/// Queue pairs that one run of the deferred call fails before it queues itself again.
const FAILURES_PER_RUN: usize = 16;

/// Who is told about a completion queue.
///
/// The queue drops its client when its own last reference is gone: no callback of it can come after that, nor run.
pub trait CqClient: Send + Sync + 'static {
    /// The arm is satisfied (`NDK_FN_CQ_NOTIFICATION_CALLBACK`). Called at `IRQL <= DISPATCH_LEVEL` with no lock held, never
    /// while another call for the same queue runs. It may call everything on the queue, also close it.
    fn notify(&self, status: NtStatus);

    /// The queue has failed. Called once, whether armed or not, under the same conditions as `notify`.
    fn failed(&self, failure: CqFailure);
}

/// What a completion queue is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqParameters {
    /// The most completions it holds.
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
    /// How the queue has failed, if it has.
    pub failure: Option<CqFailure>,
}

// The entries first, close to the lock.
#[repr(C)]
struct State<O: Os> {
    entries: ring::Producer<Completion>,
    notify: Notify,
    depth: u32,
    /// Every queue pair that completes here, once for each of its queues that does.
    attached: Attached<O>,
    /// The client was told that the queue has failed.
    told: bool,
}

impl<O: Os> State<O> {
    /// Opens [the short way](Cq::push_plain) if plain completions have no consequence now.
    #[inline]
    fn permit_at_once(&mut self) {
        if !self.notify.is_waiting_for_plain() && self.notify.failure().is_none() {
            self.entries.permit_at_once();
        }
    }
}

/// A completion queue, as producers and the engine see it.
pub struct Cq<O: Os> {
    os: O,
    state: CachePadded<O::Lock<State<O>>>,
    dpc: O::Dpc<Notification<O>>,
    timer: O::Timer<HoldExpiry<O>>,
    client: Box<dyn CqClient>,
    max_depth: u32,
}

/// The consumer's end of a completion queue: exactly one exists.
pub struct CqConsumer<O: Os> {
    cq: Shared<Cq<O>>,
    entries: ring::Consumer<Completion>,
}

impl<O: Os> Cq<O> {
    /// Makes an empty, unarmed completion queue.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the depth is 0 or above the adapter's limit; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        os: &O,
        parameters: CqParameters,
        client: impl CqClient,
    ) -> Result<(Shared<Self>, CqConsumer<O>), NtStatus> {
        Self::try_new_at(os, parameters, client, 0)
    }

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
    ) -> Result<(Shared<Self>, CqConsumer<O>), NtStatus> {
        let CqParameters { depth, max_depth, processor } = parameters;
        check_depth(depth, max_depth)?;
        let (producer, consumer) =
            ring::try_new(depth + u32::from(fault::is(Fault::DepthOffByOne)), first).map_err(memory_status)?;
        let state =
            State { entries: producer, notify: Notify::new(first), depth, attached: Attached::new(), told: false };
        let cq = Shared::try_new(Self {
            os: os.clone(),
            state: CachePadded(os.lock(state)?),
            dpc: os.dpc(processor)?,
            timer: os.timer()?,
            client: try_box(client).map_err(memory_status)?,
            max_depth,
        })
        .map_err(memory_status)?;
        Ok((cq.clone(), CqConsumer { cq, entries: consumer }))
    }

    /// Puts `completions` in, in their order, and notifies if that satisfies the arm.
    ///
    /// A completion that does not fit fails the queue (`NDKPI 7.1.10`): what is queued stays, that one and all later ones
    /// are gone, and the attached queue pairs fail.
    #[inline]
    pub fn push(this: &Shared<Self>, completions: &[Completion]) {
        if let [completion] = completions {
            return Self::push_one(this, *completion);
        }
        let plain = Completion::are_plain(completions);
        Self::with_producer(this, |producer| producer.push_as(completions, plain));
    }

    /// [`Cq::push`] for one completion.
    #[inline]
    pub fn push_one(this: &Shared<Self>, completion: Completion) {
        let Completion { qp_context, request_context, outcome, bytes, invalidated_token } = completion;
        let amounts = u64::from(bytes) | u64::from(invalidated_token) << 32;
        // Mistakes that are made on purpose are made on the other way.
        if completion.class() == Class::Plain && !fault::is_any() {
            Self::push_plain(this, qp_context, outcome, request_context, amounts);
        } else {
            Self::push_words(this, qp_context, outcome, request_context, amounts);
        }
    }

    /// [`Cq::push_one`] for a plain completion, as nearly all are, that is known to have no consequence and to fit: a few stores
    /// behind one comparison. Whatever is different is left to [`Cq::push_words`], from the beginning.
    ///
    /// A lock waits for all stores before it, and the next one comes with the next completion: each store that is not made here is a
    /// cycle less (measured).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: a call is two stores more, and the words are in registers")]
    fn push_plain(this: &Shared<Self>, qp_context: usize, outcome: Outcome, request_context: usize, amounts: u64) {
        let pushed = this.state.with_at_once(|state| {
            state.entries.push_at_once(Self::from_words(qp_context, outcome, request_context, amounts))
        });
        if pushed != Some(true) {
            Self::push_words(this, qp_context, outcome, request_context, amounts);
        }
    }

    /// [`Cq::push_one`] for a completion in registers: on the way over the stack, loads of other widths than the stores would
    /// wait for them. One function for all callers, so that what is done under the lock becomes part of it.
    #[inline(never)]
    fn push_words(this: &Shared<Self>, qp_context: usize, outcome: Outcome, request_context: usize, amounts: u64) {
        Self::with_producer(this, |producer| {
            producer.push(Self::from_words(qp_context, outcome, request_context, amounts));
            producer.state.permit_at_once();
        });
    }

    /// A completion of its four words. The halves of the last one come together, so that they are stored together.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: the words go from registers to the queue")]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    const fn from_words(qp_context: usize, outcome: Outcome, request_context: usize, amounts: u64) -> Completion {
        let (bytes, invalidated_token) = (amounts as u32, (amounts >> 32) as u32);
        Completion { qp_context, outcome, request_context, bytes, invalidated_token }
    }

    /// Lets `work` put completions in, one after the other while it has the queue's lock. The consumer sees them together, at the
    /// end. What `work` does must be short, and must not lead back to this queue.
    ///
    /// The lock is taken before there is anything to tell. So what the completions are about may be written meanwhile, and all
    /// of it goes to the consumer's processor together: a lock taken in between would wait until the first part was there.
    #[inline]
    pub(crate) fn with_producer<U>(this: &Shared<Self>, work: impl FnOnce(&mut CqProducer<'_, O>) -> U) -> U {
        let (result, queue) = this.state.with(|state| {
            let before = state.entries.tail();
            let mut producer = CqProducer { cq: this, state, queue: false };
            let result = work(&mut producer);
            let queue = producer.queue;
            state.entries.publish_and_reach(before);
            (result, queue)
        });
        this.queue_if(queue, this);
        result
    }

    /// Puts a completion in that still has to be published. Whether the deferred call has to be queued.
    #[inline]
    fn push_one_locked(this: &Shared<Self>, state: &mut State<O>, completion: Completion) -> bool {
        if state.notify.failure().is_some() || fault::recall(Fault::ResizeLosesEntry) {
            return false;
        }
        if !state.entries.push(completion) {
            return !fault::is(Fault::OverrunSilent) && Self::fail_locked(this, state, CqFailure::Overrun);
        }
        let class = completion.class();
        state.notify.queued_plain(state.entries.tail().wrapping_sub(1));
        if state.notify.is_waiting() || fault::is(Fault::UnarmedCallback) {
            return Self::decide_on_one(this, state, class);
        }
        state.notify.queued_unseen([class]);
        false
    }

    /// Lets `work` see and change everything. What it does may give plain completions consequences, so
    /// [the short way](Cq::push_plain) is closed until one has been decided on.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as a lock's `with`")]
    fn with_all<U>(&self, work: impl FnOnce(&mut State<O>) -> U) -> U {
        self.state.with(move |state| {
            state.entries.forbid_at_once();
            state.notify.queued_plain(state.entries.tail());
            work(state)
        })
    }

    /// Decides for an entry of this class that was pushed while somebody waits. Whether the deferred call has to be queued.
    #[inline(never)]
    fn decide_on_one(this: &Shared<Self>, state: &mut State<O>, class: Class) -> bool {
        state.entries.forbid_at_once();
        let full = !state.entries.has_room(1);
        let action = state.notify.queued(class, full);
        Self::follow(this, state, action)
    }

    /// [`Cq::push_one_locked`] for several completions, which are copied to their places in one go.
    /// `plain` if [all of them are](Completion::are_plain).
    #[inline]
    fn push_all_locked(this: &Shared<Self>, state: &mut State<O>, completions: &[Completion], plain: bool) -> bool {
        if state.notify.failure().is_some() {
            return false;
        }
        let pushed = state.entries.push_all(completions);
        let queue = if plain && !state.notify.is_waiting_for_plain() {
            state.notify.queued_plain(state.entries.tail());
            false
        } else {
            Self::decide(this, state, &completions[..pushed])
        };
        let overrun = pushed < completions.len() && !fault::is(Fault::OverrunSilent);
        (overrun && Self::fail_locked(this, state, CqFailure::Overrun)) || queue
    }

    /// Decides for every entry that was just queued. Whether the deferred call has to be queued.
    #[inline(never)]
    fn decide(this: &Shared<Self>, state: &mut State<O>, completions: &[Completion]) -> bool {
        state.entries.forbid_at_once();
        state.notify.queued_plain(state.entries.tail().wrapping_sub(completions.len() as u64));
        if !state.notify.is_waiting() {
            state.notify.queued_unseen(completions.iter().map(Completion::class));
            return false;
        }
        let mut queue = false;
        for (index, completion) in completions.iter().enumerate() {
            let full = index + 1 == completions.len() && !state.entries.has_room(1);
            let action = state.notify.queued(completion.class(), full);
            queue |= Self::follow(this, state, action);
        }
        queue
    }

    /// Fails the queue as a broken adapter would: sticky, with the consequences of `NDKPI 7.1.10`.
    pub fn fail(this: &Shared<Self>, failure: CqFailure) {
        let queue = this.with_all(|state| Self::fail_locked(this, state, failure));
        this.queue_if(queue, this);
    }

    #[cold]
    #[inline(never)]
    fn fail_locked(this: &Shared<Self>, state: &mut State<O>, failure: CqFailure) -> bool {
        if state.notify.failure().is_some() {
            return false;
        }
        // In an overrun queue nothing is permitted: what is known to fit has been put in.
        if !fault::is(Fault::OverrunLeavesQueuePairs) {
            state.attached.begin_failure();
        }
        let action = state.notify.fail(failure);
        let _ = Self::follow(this, state, action);
        // The deferred call has queue pairs to fail, also when nothing is armed, and also when the queue is closed: its close
        // waits for the queue pairs that still complete here (`NDKPI 7.1.12`).
        true
    }

    /// How the queue has failed, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<CqFailure> {
        self.with_all(|state| state.notify.failure())
    }

    /// What is queued and armed at this moment. A client that arms first and looks then misses nothing: what comes after the
    /// look satisfies the arm.
    #[must_use]
    pub fn observe(&self) -> Observation {
        self.with_all(|state| Observation {
            view: state.notify.view(),
            newest_failed: state.notify.newest_failed(),
            failure: state.notify.failure(),
        })
    }

    /// Sets the number of completions the queue can hold (`NDKPI 7.1.11`), while producers and the consumer go on.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if the depth is 0 or above the adapter's limit, `STATUS_BUFFER_OVERFLOW` if more completions
    /// are queued than that, `STATUS_INSUFFICIENT_RESOURCES`. The queue is unchanged then.
    pub fn resize(this: &Shared<Self>, depth: u32) -> Result<(), NtStatus> {
        check_depth(depth, this.max_depth)?;
        let mut spare = match this.with_all(|state| state.entries.plan(depth)) {
            Plan::InPlace => None,
            Plan::NewSegment => Some(Spare::try_new(depth).map_err(memory_status)?),
        };
        loop {
            let given = spare.take();
            let (result, queue) = this.with_all(|state| match state.entries.resize(depth, given) {
                Ok(()) => {
                    state.depth = depth;
                    fault::remember(Fault::ResizeLosesEntry);
                    let full = !state.entries.has_room(1);
                    let action = state.notify.resized(full);
                    (Ok(()), Self::follow(this, state, action))
                }
                Err(error) => (Err(error), false),
            });
            this.queue_if(queue, this);
            match result {
                Ok(()) => return Ok(()),
                Err(ResizeError::Occupied) => return Err(NtStatus::BUFFER_OVERFLOW),
                // Another resize came between the plan and the lock.
                Err(ResizeError::NeedsSpare) => spare = Some(Spare::try_new(depth).map_err(memory_status)?),
            }
        }
    }

    /// Sets the interrupt moderation (`NDKPI 7.1.6`), `interval` in microseconds.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER_MIX` if neither side has a limit.
    pub fn moderate(this: &Shared<Self>, interval: u32, count: u32) -> Result<(), NtStatus> {
        let resolution = this.os.timer_resolution();
        let queue = this.with_all(|state| {
            let moderation = match Moderation::new(interval, count, state.depth, resolution) {
                Err(_) if fault::is(Fault::ModerationWithoutLimit) => Moderation::OFF,
                moderation => moderation?,
            };
            let full = !state.entries.has_room(1);
            let action = state.notify.moderate(moderation, full, this.os.now());
            Ok::<_, NtStatus>(Self::follow(this, state, action))
        })?;
        this.queue_if(queue, this);
        Ok(())
    }

    /// [`CqConsumer::arm`] for a consumer that has [taken](CqConsumer::taken) that much.
    ///
    /// The callback may begin, and poll, before this returns. So that it finds nothing in use that belongs to the consumer's
    /// end, this does without it.
    #[inline]
    pub fn arm(this: &Shared<Self>, kind: ArmType, taken: u64) {
        // Moved, so that nothing has to lie in memory for the sake of a lock that is taken.
        let queue = this.with_all(move |state| {
            let action = state.notify.arm(kind, taken);
            Self::follow(this, state, action)
        });
        if (queue && fault::is(Fault::CallbackInsideArm)) || Self::breaks_turn(this) {
            return Self::notify(this);
        }
        this.queue_if(queue, this);
    }

    /// For [`Fault::CallbackReentered`].
    #[inline]
    fn breaks_turn(this: &Shared<Self>) -> bool {
        fault::is(Fault::CallbackReentered) && this.with_all(|state| state.notify.break_turn())
    }

    /// Lets no callback begin from now on. One that runs goes on; the client is dropped after it.
    ///
    /// Callable from inside the callback.
    pub fn close(&self) {
        self.with_all(|state| {
            state.notify.close();
            let _ = self.timer.cancel();
        });
    }

    /// Notes that `qp` completes here, for [`Cq::detach`].
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub(crate) fn attach(&self, qp: Shared<Qp<O>>) -> Result<usize, NtStatus> {
        self.with_all(|state| state.attached.insert(qp))
    }

    /// Forgets the queue pair that [`Cq::attach`] gave this number.
    pub(crate) fn detach(&self, number: usize) {
        // The reference is dropped after the lock is released.
        drop(self.with_all(|state| state.attached.remove(number)));
    }

    /// Sets the timer if `action` says so. Returns whether the deferred call has to be queued.
    #[inline]
    fn follow(this: &Shared<Self>, state: &mut State<O>, action: Action) -> bool {
        if let Some(micros) = action.timer
            && !fault::is(Fault::ModerationIgnoresInterval)
        {
            Self::set_timer(this, state, micros);
        }
        action.queue
    }

    #[cold]
    fn set_timer(this: &Shared<Self>, state: &mut State<O>, micros: u32) {
        state.notify.hold_for(this.os.now(), micros);
        this.timer.set(u64::from(micros), this);
    }

    #[inline]
    fn queue_if(&self, queue: bool, this: &Shared<Self>) {
        if queue {
            self.dpc.queue(this);
        }
    }

    /// Calls the consumer back for what is due, a bounded number of times.
    fn notify(this: &Shared<Self>) {
        if fault::is(Fault::CallbackUnderLock) {
            return this.with_all(|state| {
                if let Some(status) = state.notify.begin() {
                    this.client.notify(status);
                    let _ = state.notify.end();
                }
            });
        }
        for _ in 0..CALLBACKS_PER_RUN {
            let Some(status) = this.with_all(|state| state.notify.begin()) else { return };
            this.client.notify(status);
            if !this.with_all(|state| state.notify.end()) {
                return;
            }
        }
        this.dpc.queue(this);
    }

    /// Tells the client of a failure and fails attached queue pairs, a bounded number of them.
    fn spread_failure(this: &Shared<Self>) {
        let untold = this.with_all(|state| {
            let failure = state.notify.failure()?;
            (!core::mem::replace(&mut state.told, true)).then_some(failure)
        });
        if let Some(failure) = untold {
            this.client.failed(failure);
        }
        for _ in 0..FAILURES_PER_RUN {
            match this.with_all(|state| state.attached.next_to_fail()) {
                ToFail::Qp(qp) => Qp::fail(&qp),
                ToFail::Nobody => {}
                ToFail::Done => return,
            }
        }
        this.dpc.queue(this);
    }
}

/// Who puts completions in and has the queue's lock: see [`Cq::with_producer`].
pub(crate) struct CqProducer<'locked, O: Os> {
    cq: &'locked Shared<Cq<O>>,
    state: &'locked mut State<O>,
    queue: bool,
}

impl<O: Os> CqProducer<'_, O> {
    /// [`Cq::push_one`].
    #[inline]
    pub fn push(&mut self, completion: Completion) {
        self.queue |= Cq::push_one_locked(self.cq, self.state, completion);
    }

    /// [`Cq::push`].
    pub fn push_all(&mut self, completions: &[Completion]) {
        self.push_as(completions, Completion::are_plain(completions));
    }

    /// [`CqProducer::push_all`] for completions that [are all plain](Completion::are_plain), or not.
    #[inline]
    fn push_as(&mut self, completions: &[Completion], plain: bool) {
        self.queue |= Cq::push_all_locked(self.cq, self.state, completions, plain);
    }
}

impl<O: Os> CqConsumer<O> {
    /// The queue.
    #[must_use]
    pub const fn cq(&self) -> &Shared<Cq<O>> {
        &self.cq
    }

    /// Takes up to `most` completions out, oldest first, and gives them to `each`. Returns how many.
    ///
    /// Takes no lock and allocates nothing; the producers learn of the free places once, at the end.
    #[inline]
    pub fn poll(&mut self, most: usize, each: impl FnMut(&Completion)) -> usize {
        self.entries.take(most, each)
    }

    /// Arms the queue (`NDKPI 7.1.3` to `7.1.5`): one callback, once something of the kind is there that is newer than the
    /// last callback and not yet taken. Two arms merge into the stronger one.
    #[inline]
    pub fn arm(&mut self, kind: ArmType) {
        Cq::arm(&self.cq, kind, self.taken());
    }

    /// Ordinal of the newest completion that was taken, for [`Cq::arm`].
    #[inline]
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.entries.head()
    }
}

fn check_depth(depth: u32, max_depth: u32) -> Result<(), NtStatus> {
    if (1..=max_depth).contains(&depth) { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
}

/// The deferred call that calls the consumer back.
pub struct Notification<O>(core::marker::PhantomData<O>);

impl<O: Os> Routine for Notification<O> {
    type Target = Cq<O>;

    fn run(cq: &Shared<Cq<O>>) {
        Cq::spread_failure(cq);
        Cq::notify(cq);
    }
}

/// The end of the time for which moderation holds a callback back.
pub struct HoldExpiry<O>(core::marker::PhantomData<O>);

impl<O: Os> Routine for HoldExpiry<O> {
    type Target = Cq<O>;

    fn run(cq: &Shared<Cq<O>>) {
        let queue = cq.with_all(|state| {
            let action = state.notify.timer_ran(cq.os.now());
            Cq::follow(cq, state, action)
        });
        cq.queue_if(queue, cq);
    }
}
