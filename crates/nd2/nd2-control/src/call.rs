//! Requests that pend.

use core::{ptr::NonNull, sync::atomic::Ordering};

use engine::os::{Os, SpinLock};
use fallible::Arc;
use nd2::{Charge, Registration, abi::OVERLAPPED};
use ndkpi::NtStatus;

use crate::{Request, Server, Session, System};

/// Where a request is.
struct State<S: System> {
    /// `None` before it begins, and when somebody completes it.
    request: Option<S::Request>,
    /// The system calls when it is cancelled.
    watched: bool,
    /// The system has called, or will.
    cancelled: bool,
    /// How it has ended, while the system's call for a cancellation is on its way.
    outcome: Option<NtStatus>,
    /// What it has registered.
    registration: Option<Registration<Server<S>>>,
}

/// A request of a process that ends when something has happened: the `OVERLAPPED` of the objects in the kernel.
///
/// What waits for the event has one reference, which it gives up when it ends the request. A request that is cancelled stops to wait,
/// and with its last reference goes all that it was counted for.
#[repr(C)]
pub struct Call<S: System> {
    /// First, so that its address is that of the call.
    overlapped: OVERLAPPED,
    session: Arc<Session<S>>,
    /// The handle of the object that it waits at, or zero.
    object: u64,
    /// It registers bytes.
    registers: bool,
    _charges: [Charge; 3],
    state: <S::Os as Os>::Lock<State<S>>,
}

impl<S: System> Call<S> {
    /// A call without a request on the object with this handle, with so many bytes of input; and for a registration the number of
    /// bytes that it locks. It is charged to the process of the session.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, also at a limit of the process.
    pub(crate) fn try_new(
        session: &Arc<Session<S>>,
        object: u64,
        input: usize,
        registers: Option<u64>,
    ) -> Result<Arc<Self>, NtStatus> {
        let charges = session.charge_call(input, registers.unwrap_or(0))?;
        let state = State { request: None, watched: false, cancelled: false, outcome: None, registration: None };
        let state = session.system().os().lock(state)?;
        let (overlapped, registers) = (OVERLAPPED::new(core::ptr::null_mut()), registers.is_some());
        let call = Self { overlapped, session: session.clone(), object, registers, _charges: charges, state };
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
        // SAFETY: `into_overlapped` gave this reference away (`# Safety`); the structure is the first field of a call.
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
    /// Nothing waits for its event any more: a connect is given up, as by `CancelOverlappedRequests`. A registration ends, and its
    /// request with it as soon as nothing uses the bytes; if windows keep it, the whole session ends.
    pub fn cancel(this: &Arc<Self>) {
        let (request, registration) = this.state.with(|state| {
            state.watched = false;
            state.cancelled = true;
            if this.registers && state.outcome.is_none() {
                return (None, state.registration.clone());
            }
            let status = state.outcome.unwrap_or(NtStatus::CANCELLED);
            (state.request.take().map(|request| (request, status)), None)
        });
        if let Some((request, status)) = request {
            request.complete(status, 0);
            this.stop_waiting();
        }
        if let Some(registration) = registration {
            this.session.revoke(this.object, &registration);
        }
    }

    /// Has the object forget a request that was cancelled.
    fn stop_waiting(&self) {
        self.session.cancel_one(self.object, NonNull::from(&self.overlapped));
    }

    /// The request's method has let it pend. If it was cancelled before, its object did not know it yet.
    pub(crate) fn waits(&self) {
        if self.state.with(|state| state.cancelled) {
            self.stop_waiting();
        }
    }

    /// The registration has begun. It ends at once if the request was cancelled before.
    pub(crate) fn registered(&self, registration: &Registration<Server<S>>) {
        let cancelled = self.state.with(|state| {
            state.registration = Some(registration.clone());
            state.cancelled
        });
        if cancelled {
            self.session.revoke(self.object, registration);
        }
    }
}
