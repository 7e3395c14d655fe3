//! Requests that pend.

use core::sync::atomic::Ordering;

use engine::os::{Os, SpinLock};
use fallible::Arc;
use nd2::abi::OVERLAPPED;
use ndkpi::NtStatus;

use crate::{Request, Session, System};

/// Where a request is.
struct State<R> {
    /// `None` before it begins, and when somebody completes it.
    request: Option<R>,
    /// The system calls when it is cancelled.
    watched: bool,
    /// The system has called, or will.
    cancelled: bool,
    /// How it has ended, while the system's call for a cancellation is on its way.
    outcome: Option<NtStatus>,
}

/// A request of a process that ends when something has happened: the `OVERLAPPED` of the objects in the kernel.
///
/// What waits for the event has one reference, which it gives up when it ends the request. A request that was cancelled meanwhile
/// is gone then, and nobody is told.
#[repr(C)]
pub struct Call<S: System> {
    /// First, so that its address is that of the call.
    overlapped: OVERLAPPED,
    session: Arc<Session<S>>,
    /// Of a registration: the region's handle, and the number of bytes.
    registers: Option<(u64, u64)>,
    state: <S::Os as Os>::Lock<State<S::Request>>,
}

impl<S: System> Call<S> {
    /// A call without a request, counted among those of the session; and for a registration what it registers.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, also at a limit of the session.
    pub(crate) fn try_new(session: &Arc<Session<S>>, registers: Option<(u64, u64)>) -> Result<Arc<Self>, NtStatus> {
        let state = State { request: None, watched: false, cancelled: false, outcome: None };
        let state = session.system().os().lock(state)?;
        session.take_call(registers.map_or(0, |(_, bytes)| bytes))?;
        // From here on dropping it gives back what was taken.
        let call =
            Self { overlapped: OVERLAPPED::new(core::ptr::null_mut()), session: session.clone(), registers, state };
        Arc::try_new(call).map_err(Into::into)
    }

    /// Takes the request over. It can be cancelled from now on.
    ///
    /// # Errors
    ///
    /// `STATUS_CANCELLED` if it is cancelled already. It is completed then.
    pub(crate) fn begin(this: &Arc<Self>, request: S::Request) -> Result<(), NtStatus> {
        let refused = this.state.with(|state| match request.watch(this) {
            Ok(()) => {
                state.watched = true;
                state.request = Some(request);
                None
            }
            Err(status) => Some((request, status)),
        });
        refused.map_or(Ok(()), |(request, status)| {
            request.complete(status, 0);
            Err(status)
        })
    }

    /// The address that stands for the call, with a reference.
    pub(crate) fn into_overlapped(this: Arc<Self>) -> *mut OVERLAPPED {
        // The structure is the first field.
        Arc::into_raw(this).cast_mut().cast()
    }

    /// The call of an address.
    ///
    /// # Safety
    ///
    /// The address came from [`Call::into_overlapped`], whose reference is taken back here.
    pub(crate) unsafe fn from_overlapped(overlapped: *mut OVERLAPPED) -> Arc<Self> {
        // SAFETY: the caller's promise; the structure is the first field of a call.
        unsafe { Arc::from_raw(overlapped.cast_const().cast::<Self>()) }
    }

    /// Ends the request, unless it is cancelled. No lock is held.
    pub(crate) fn end(&self, status: NtStatus) {
        if let Some(request) = self.take(status) {
            request.complete(status, 0);
        }
    }

    /// Ends the request, whose method has answered at once, unless it is cancelled. No lock is held.
    pub(crate) fn answer(&self, status: NtStatus) {
        if let Some(request) = self.take(status) {
            request.answer(status);
        }
    }

    /// The request, if it is to be completed now.
    fn take(&self, status: NtStatus) -> Option<S::Request> {
        self.overlapped.Internal.store(status.to_bits() as usize, Ordering::Release);
        self.state.with(|state| {
            if state.watched {
                let request = state.request.take()?;
                if !request.unwatch() {
                    // The system calls, and completes it.
                    state.outcome = Some(status);
                    state.request = Some(request);
                    return None;
                }
                state.watched = false;
                return Some(request);
            }
            state.request.take()
        })
    }

    /// The system wants the request back: a thread that has sent it ends, or the process has asked for that.
    ///
    /// The event is still waited for, by nobody. A registration ends, and its request with it as soon as nothing uses the bytes; if
    /// windows are bound to it, the whole session ends.
    pub fn cancel(this: &Arc<Self>) {
        let request = this.state.with(|state| {
            state.watched = false;
            state.cancelled = true;
            if this.registers.is_some() && state.outcome.is_none() {
                return None;
            }
            let status = state.outcome.unwrap_or(NtStatus::CANCELLED);
            state.request.take().map(|request| (request, status))
        });
        if let Some((request, status)) = request {
            return request.complete(status, 0);
        }
        this.revoke();
    }

    /// Ends the registration that a cancelled request was for.
    fn revoke(&self) {
        if let Some((region, _)) = self.registers {
            self.session.revoke(region);
        }
    }

    /// The registration has begun. It ends at once if the request was cancelled before.
    pub(crate) fn registered(&self) {
        if self.state.with(|state| state.cancelled) {
            self.revoke();
        }
    }
}

impl<S: System> Drop for Call<S> {
    fn drop(&mut self) {
        self.session.give_call_back(self.registers.map_or(0, |(_, bytes)| bytes));
    }
}
