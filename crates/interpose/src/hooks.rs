//! What a layer does with the events, and what it needs of an operating system.

use engine::os::Os;
use ndkpi::{MDL, NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NtStatus};

use crate::{Event, ObjectId, ObjectRef, Place};

/// An operating system that knows where code runs.
pub trait InterposeOs: Os {
    /// When and where the caller runs. At any `IRQL <= DISPATCH_LEVEL`.
    fn place(&self) -> Place;

    /// The addresses of the callers, the innermost first. Returns how many were stored. At any `IRQL <= DISPATCH_LEVEL`.
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

    /// False if [`Hooks::event`] need not be called.
    const LISTENS: bool = true;

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

    /// Something happens. The result matters in [`Phase::Call`](crate::Phase::Call) only.
    fn event(&self, event: &Event<'_, Self::State>) -> Verdict;

    /// A call did not reach the provider, because it would have been undefined behaviour. `wanted` is the type that the function
    /// is for.
    fn misuse(
        &self,
        function: crate::Function,
        object: ObjectRef<'_, Self::State>,
        wanted: NDK_OBJECT_TYPE,
        why: Misuse,
    ) {
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

    fn event(&self, _: &Event<'_, ()>) -> Verdict {
        Verdict::Forward
    }
}

/// Two hooks: the first hears a call first, and of a return or callback last; what one does not forward, the other does not hear
/// of.
impl<A: Hooks, B: Hooks<Os = A::Os>> Hooks for (A, B) {
    type Os = A::Os;
    type State = (A::State, B::State);
    const LISTENS: bool = A::LISTENS || B::LISTENS;
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

    fn event(&self, event: &Event<'_, Self::State>) -> Verdict {
        let first = || if A::LISTENS { self.0.event(&event.map(|state| &state.0)) } else { Verdict::Forward };
        let second = || if B::LISTENS { self.1.event(&event.map(|state| &state.1)) } else { Verdict::Forward };
        if event.phase != crate::Phase::Call {
            let _ = (second(), first());
            return Verdict::Forward;
        }
        match (first(), event) {
            (refused @ Verdict::Refuse(_), _) => refused,
            (Verdict::Early, _) => match second() {
                Verdict::Forward => Verdict::Early,
                other => other,
            },
            (Verdict::Forward, _) => second(),
        }
    }

    fn misuse(
        &self,
        function: crate::Function,
        object: ObjectRef<'_, Self::State>,
        wanted: NDK_OBJECT_TYPE,
        why: Misuse,
    ) {
        self.0.misuse(function, ObjectRef { id: object.id, state: &object.state.0 }, wanted, why);
        self.1.misuse(function, ObjectRef { id: object.id, state: &object.state.1 }, wanted, why);
    }
}
