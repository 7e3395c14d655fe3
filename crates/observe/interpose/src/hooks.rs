//! What a layer does with the events, and what it needs of an operating system.

use engine::os::Os;
use ndkpi::{MDL, NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NDK_RESULT, NDK_RESULT_EX, NtStatus};

use crate::{Event, Function, ObjectId, ObjectRef, Phase, Stamp};

/// An operating system that knows where code runs.
pub trait InterposeOs: Os {
    /// When and where the caller runs. At any `IRQL <= DISPATCH_LEVEL`. Reads a clock: not for hooks that need only a part of it.
    fn place(&self) -> Stamp;

    /// As [`InterposeOs::place`], with the time in ticks ([`ticks`](crate::ticks)), which takes less time than a clock. What a call has led
    /// to has no smaller ones than the call, on whichever processors the two were.
    fn stamp(&self, phase: Phase) -> Stamp;

    /// How many ticks there are in a unit of [`Stamp::time`], if both begin together and that is so exactly; 0 if it has to be measured.
    fn ticks_per_unit(&self) -> u64 {
        0
    }

    /// The IRQL of the caller: that of [`InterposeOs::place`].
    fn irql(&self) -> u8;

    /// The thread of the caller: that of [`InterposeOs::place`].
    fn thread(&self) -> usize {
        self.place().thread
    }

    /// The addresses to which the callers return, the innermost first, as far as the platform can tell; those of this layer and of the
    /// provider are left out where it can tell them. Returns how many were stored. At any `IRQL <= DISPATCH_LEVEL`.
    fn stack(&self, frames: &mut [usize]) -> usize {
        let _ = frames;
        0
    }

    /// The address by which the consumer names the first byte of a chain of MDLs, if the platform can tell.
    ///
    /// # Safety
    ///
    /// `mdl` is null or points to a chain of MDLs.
    unsafe fn mdl_base(&self, mdl: *const MDL) -> Option<u64> {
        let _ = mdl;
        None
    }

    /// The lowest and highest address of the caller's stack, if the platform knows them.
    fn stack_limits(&self) -> Option<(usize, usize)> {
        None
    }
}

/// What is done with a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The provider is called.
    #[default]
    Forward,
    /// The provider is not called; a function with a status returns this one, which is a failure. A poll returns 0. Ignored for
    /// closes and for functions without a result: those cannot fail.
    Refuse(NtStatus),
    /// The provider is called. What it answers at once, of a request that may pend, comes by a callback before the call returns
    /// `STATUS_PENDING`. Ignored for calls without a completion.
    Early,
    /// The provider is called. The completion comes so many microseconds after the provider has it, by a callback after the call
    /// has returned `STATUS_PENDING`; the provider hears of a close so much later. Ignored for calls without a completion.
    Late(u64),
    /// The provider is not called. The call returns `STATUS_PENDING`, and its completion comes so many microseconds later with this
    /// status, which is a failure. Ignored for closes and calls without a completion.
    Fail(NtStatus, u64),
    /// Of an accept or the last step of a connect: the provider is called, and so many microseconds after its success the
    /// connection ends. The peer hears of a disconnect, the consumer of an abort.
    EndAfter(u64),
    /// Of an arm or a poll: the completion queue fails with this status. A poll returns 0 from then on; who arms is notified.
    FailQueue(NtStatus),
}

/// The results of a poll.
#[derive(Debug)]
pub enum Results<'a> {
    /// Of `NdkGetCqResults`.
    Plain(&'a mut [NDK_RESULT]),
    /// Of `NdkGetCqResultsEx`.
    Ex(&'a mut [NDK_RESULT_EX]),
}

/// Why a call did not reach the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// The object is of another type than the function is for.
    WrongKind,
    /// The object is closed, or its close has begun.
    Closed,
}

/// What happens between consumer and provider.
///
/// The functions are called at `IRQL <= DISPATCH_LEVEL`, on any processor and on several at once, with no lock held. Those for
/// calls on the data path must not allocate.
pub trait Hooks: Send + Sync + Sized + 'static {
    /// The operating system.
    type Os: InterposeOs;

    /// What is kept of an object. Dropped some time after its close has completed.
    type State: Send + Sync + 'static;

    /// What is kept of a call from its beginning to its return.
    type Call: Copy + Default;

    /// False if [`Hooks::event`] need not be called.
    const LISTENS: bool = true;

    /// True if these hooks change more than the status of a call: [`Verdict::Late`] and what follows it there, [`Hooks::delay`],
    /// [`Hooks::results`]. What that takes is allocated with each object.
    const INTERFERES: bool = false;

    /// False if posts, arms and polls need no number of their own: [`Event::call`] is then that of the call or callback that comes
    /// next. It costs a contended atomic increment.
    const NUMBERS_ALL: bool = true;

    /// True if [`ConnectArgs::ends`](crate::ConnectArgs::ends) is wanted. The provider is asked for both addresses then.
    const PAIRS: bool = false;

    /// How many closed objects are kept, so that a call on them is recognised ([`Hooks::misuse`]). Those before them are freed.
    const KEPT: usize = 0;

    /// The operating system.
    fn os(&self) -> &Self::Os;

    /// An adapter is opened, with these limits and abilities. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: then it is not opened.
    fn adapter(&self, info: &NDK_ADAPTER_INFO) -> Result<Self::State, NtStatus>;

    /// An object of this kind may come about by the call or callback in `event`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: then the provider is not called, or the connection that came in is refused.
    fn object(&self, event: &Event<'_, Self::State>, id: ObjectId) -> Result<Self::State, NtStatus>;

    /// Something happens. The result matters in [`Phase::Call`](crate::Phase::Call) only. `call` is what was left there at the
    /// beginning of the call that returns, or of the callback that returns; otherwise it is new.
    fn event(&self, event: &Event<'_, Self::State>, call: &mut Self::Call) -> Verdict;

    /// As [`Hooks::event`], for the calls and returns of posts, arms and polls, which that hears of unless this is implemented. Where
    /// it is inlined, phase and function are known. Hooks around others pass both on.
    #[inline]
    fn data_path(&self, event: &Event<'_, Self::State>, call: &mut Self::Call) -> Verdict {
        self.event(event, call)
    }

    /// How many microseconds an event callback is held back that the provider makes now: a notification of a completion queue, a
    /// connect or a disconnect event. 0: not at all.
    fn delay(&self, function: Function, object: ObjectRef<'_, Self::State>) -> u64 {
        let _ = (function, object);
        0
    }

    /// A poll of a completion queue has these results, which may be changed.
    fn results(&self, cq: ObjectRef<'_, Self::State>, results: Results<'_>) {
        let _ = (cq, results);
    }

    /// Asked after a call on a completion queue, until there is none: the number of a queue pair of it that has to be flushed,
    /// because the hooks let one of its requests or its completion queue fail.
    fn broken(&self, cq: ObjectRef<'_, Self::State>) -> Option<u32> {
        let _ = cq;
        None
    }

    /// A call did not reach the provider, because it would have been undefined behaviour. `wanted` is the type that the function
    /// is for.
    fn misuse(&self, function: Function, object: ObjectRef<'_, Self::State>, wanted: NDK_OBJECT_TYPE, why: Misuse) {
        let _ = (function, object, wanted, why);
    }
}

/// Hooks that do nothing.
#[derive(Clone, Debug)]
pub struct NoHooks<O>(
    /// The operating system.
    pub O,
);

impl<O: InterposeOs> Hooks for NoHooks<O> {
    type Os = O;
    type State = ();
    type Call = ();
    const LISTENS: bool = false;

    fn os(&self) -> &O {
        &self.0
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<(), NtStatus> {
        Ok(())
    }

    fn object(&self, _: &Event<'_, ()>, _: ObjectId) -> Result<(), NtStatus> {
        Ok(())
    }

    fn event(&self, _: &Event<'_, ()>, (): &mut ()) -> Verdict {
        Verdict::Forward
    }
}

/// What two hooks want, in the order in which they hear of it.
#[inline]
fn verdict_of_both(phase: Phase, first: impl FnOnce() -> Verdict, second: impl FnOnce() -> Verdict) -> Verdict {
    if phase != Phase::Call {
        let _ = (second(), first());
        return Verdict::Forward;
    }
    match first() {
        refused @ Verdict::Refuse(_) => refused,
        Verdict::Forward => second(),
        other => match second() {
            Verdict::Forward => other,
            second => second,
        },
    }
}

/// Two hooks: the first hears a call first, and of a return or callback last; what one does not forward, the other does not hear
/// of.
impl<A: Hooks, B: Hooks<Os = A::Os>> Hooks for (A, B) {
    type Os = A::Os;
    type State = (A::State, B::State);
    type Call = (A::Call, B::Call);
    const LISTENS: bool = A::LISTENS || B::LISTENS;
    const INTERFERES: bool = A::INTERFERES || B::INTERFERES;
    const NUMBERS_ALL: bool = A::LISTENS && A::NUMBERS_ALL || B::LISTENS && B::NUMBERS_ALL;
    const PAIRS: bool = A::PAIRS || B::PAIRS;
    const KEPT: usize = if A::KEPT > B::KEPT { A::KEPT } else { B::KEPT };

    fn os(&self) -> &A::Os {
        self.0.os()
    }

    fn adapter(&self, info: &NDK_ADAPTER_INFO) -> Result<Self::State, NtStatus> {
        Ok((self.0.adapter(info)?, self.1.adapter(info)?))
    }

    fn object(&self, event: &Event<'_, Self::State>, id: ObjectId) -> Result<Self::State, NtStatus> {
        Ok((self.0.object(&event.map(|state| &state.0), id)?, self.1.object(&event.map(|state| &state.1), id)?))
    }

    fn event(&self, event: &Event<'_, Self::State>, (first, second): &mut Self::Call) -> Verdict {
        let first = || if A::LISTENS { self.0.event(&event.map(|state| &state.0), first) } else { Verdict::Forward };
        let second = || if B::LISTENS { self.1.event(&event.map(|state| &state.1), second) } else { Verdict::Forward };
        verdict_of_both(event.phase, first, second)
    }

    #[inline]
    fn data_path(&self, event: &Event<'_, Self::State>, (first, second): &mut Self::Call) -> Verdict {
        let (of_first, of_second) = (|| event.map(|state| &state.0), || event.map(|state| &state.1));
        let first = || if A::LISTENS { self.0.data_path(&of_first(), first) } else { Verdict::Forward };
        let second = || if B::LISTENS { self.1.data_path(&of_second(), second) } else { Verdict::Forward };
        verdict_of_both(event.phase, first, second)
    }

    fn delay(&self, function: Function, object: ObjectRef<'_, Self::State>) -> u64 {
        let first = self.0.delay(function, ObjectRef { id: object.id, state: &object.state.0 });
        first.saturating_add(self.1.delay(function, ObjectRef { id: object.id, state: &object.state.1 }))
    }

    fn results(&self, cq: ObjectRef<'_, Self::State>, results: Results<'_>) {
        let (first, second) =
            (ObjectRef { id: cq.id, state: &cq.state.0 }, ObjectRef { id: cq.id, state: &cq.state.1 });
        match results {
            Results::Plain(results) => {
                self.1.results(second, Results::Plain(results));
                self.0.results(first, Results::Plain(results));
            }
            Results::Ex(results) => {
                self.1.results(second, Results::Ex(results));
                self.0.results(first, Results::Ex(results));
            }
        }
    }

    fn broken(&self, cq: ObjectRef<'_, Self::State>) -> Option<u32> {
        let first = self.0.broken(ObjectRef { id: cq.id, state: &cq.state.0 });
        first.or_else(|| self.1.broken(ObjectRef { id: cq.id, state: &cq.state.1 }))
    }

    fn misuse(&self, function: Function, object: ObjectRef<'_, Self::State>, wanted: NDK_OBJECT_TYPE, why: Misuse) {
        self.0.misuse(function, ObjectRef { id: object.id, state: &object.state.0 }, wanted, why);
        self.1.misuse(function, ObjectRef { id: object.id, state: &object.state.1 }, wanted, why);
    }
}
