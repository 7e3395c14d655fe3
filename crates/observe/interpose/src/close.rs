//! `NDK_FN_CLOSE_OBJECT` (`NDKPI 5.1`, `NDKPI 7.9`).

use core::ffi::c_void;

use fallible::Arc;
use ndkpi::{NDK_FN_CLOSE_COMPLETION, NDK_FN_CLOSE_OBJECT, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NtStatus, Object};

use crate::{
    Args, Function, Hooks, Outcome, Phase, Verdict,
    call::EventReport,
    later::{Later, Work},
    shadow::{CloseRequest, Shadow, ShadowRef, find},
};

/// The close of a provider's object.
///
/// # Safety
///
/// `inner` is an open object that is no adapter.
pub unsafe fn close_slot(inner: *mut c_void) -> Option<NDK_FN_CLOSE_OBJECT> {
    // All object structures have one shape: the pointer to the table comes after the header (`NDKPI 3.4`).
    let inner: *mut ndkpi::NDK_CQ = inner.cast();
    // SAFETY: the object is open (`# Safety`), whatever its kind. Slot 0 of every table but the adapter's is the
    // close (`NDKPI 4`).
    unsafe { (*(*inner).Dispatch).NdkCloseCq }
}

/// Closes an object of the type `T`.
///
/// # Safety
///
/// As `NDKPI 7.9` has it: `header` is an open object, no other call of the consumer on it runs but those whose completion this is
/// inside of, and none is made after this one.
pub unsafe extern "system" fn close<H: Hooks, T: Object>(
    header: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the caller passes an open object.
    let Ok(found) = (unsafe { find::<H, T>(header.cast(), Function::Close) }) else {
        // A close cannot fail, and there is nothing to close.
        return NtStatus::SUCCESS;
    };
    // SAFETY: the shadow is open.
    let shadow = unsafe { found.hold() };
    let mut report = EventReport::new(&shadow, Function::Close, Args::None).asks(completion.is_some(), context);
    let verdict = report.tell(Phase::Call, Outcome::None);
    if !shadow.begin_close(CloseRequest { call: report.number(), completion, context }) {
        return NtStatus::SUCCESS;
    }
    if H::INTERFERES {
        if let Some(ending) = shadow.ending() {
            ending.cancel();
        }
        // From the close on a listener refuses connections (`NDKPI 7.8`), so its close is not put off.
        if let Verdict::Late(delay) = verdict
            && completion.is_some()
            && shadow.id().kind != NDK_OBJECT_TYPE::LISTENER
        {
            // Refused if the place is taken by the completion of the creation, inside of which this may be.
            let _ = Later::put(shadow.later.as_ref(), delay, Work::Close(shadow.clone()));
        }
        if !shadow.gate.close() {
            report.end(Outcome::Status(NtStatus::PENDING));
            return NtStatus::PENDING;
        }
    }
    let inner = shadow.inner::<T>();
    // SAFETY: the provider's object is open.
    let slot = unsafe { close_slot(inner.cast()) };
    let status = slot.map_or(NtStatus::SUCCESS, |function| {
        // SAFETY: the object is open, and closed once; the context is the consumer's reference.
        unsafe { function(inner.cast(), Some(closed::<H>), shadow.as_public()) }
    });
    if status == NtStatus::PENDING {
        report.end(Outcome::Status(status));
        return status;
    }
    shadow.mark_gone();
    // SAFETY: the close has completed without a callback, and the consumer does not use its pointer any more.
    let consumers: ShadowRef<H> = unsafe { Arc::from_raw(shadow.as_public().cast_const().cast()) };
    report.end(Outcome::Status(status));
    shadow.root.bury(consumers);
    status
}

/// Closes the provider's object of a shadow whose close was held back: its consumer waits for the completion.
pub fn finish_close<H: Hooks>(shadow: &ShadowRef<H>) {
    let inner = shadow.inner::<ndkpi::NDK_CQ>();
    // SAFETY: the provider's object is open, whatever its kind.
    let slot = unsafe { close_slot(inner.cast()) };
    let status = slot.map_or(NtStatus::SUCCESS, |function| {
        // SAFETY: the object is open, and closed once; the context is the consumer's reference.
        unsafe { function(inner.cast(), Some(closed::<H>), shadow.as_public()) }
    });
    if status != NtStatus::PENDING {
        // SAFETY: the provider has not pended, so this is the one completion.
        unsafe { closed::<H>(shadow.as_public()) };
    }
}

/// `NDK_FN_CLOSE_COMPLETION`.
///
/// # Safety
///
/// `context` is the consumer's pointer of a shadow whose close pended, and this is its one completion.
unsafe extern "system" fn closed<H: Hooks>(context: *mut c_void) {
    // SAFETY: the consumer's reference, which it does not use any more.
    let shadow: ShadowRef<H> = unsafe { Arc::from_raw(context.cast_const().cast::<Shadow<H>>()) };
    // SAFETY: this is the completion of the close.
    let Some(request) = (unsafe { shadow.close_request() }) else { return };
    shadow.mark_gone();
    let mut report = EventReport::new(&shadow, Function::Close, Args::None)
        .of_call(request.call)
        .asks(request.completion.is_some(), request.context);
    report.tell(Phase::Callback, Outcome::None);
    if let Some(completion) = request.completion {
        // SAFETY: the consumer's callback with its context (`NDKPI 6`); no lock is held.
        unsafe { completion(request.context) };
    }
    report.tell(Phase::CallbackReturn, Outcome::None);
    let root = shadow.root.clone();
    root.bury(shadow);
}
