//! Functions of a completion queue (`NDKPI 5.4`).

use core::{ffi::c_void, slice};

use ndkpi::{NDK_CQ, NDK_FN_REQUEST_COMPLETION, NDK_QP, NDK_RESULT, NDK_RESULT_EX, NtStatus};

use crate::{
    Args, Function, Hooks, Outcome, Phase, Results, Verdict,
    call::{EventReport, immediate, request, slot},
    later::leave,
    notifier::tell,
    shadow::{Shadow, find},
};

/// `NDK_FN_RESIZE_CQ`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the queue is open.
pub unsafe extern "system" fn resize<H: Hooks>(
    cq: *mut NDK_CQ,
    depth: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let call = |inner: *mut NDK_CQ, completion, context| {
        let (inner, function) = slot!(inner, NdkResizeCq, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's queue is open; the rest is as the consumer gave it, or this layer's.
        unsafe { function(inner, depth, completion, context) }
    };
    let args = Args::ResizeCq { depth };
    // SAFETY: `cq` is open; it is closed at the earliest inside the completion (`# Safety`).
    unsafe { request::<H, _>(cq, Function::ResizeCq, args, [None; 3], completion, context, call) }
}

/// `NDK_FN_ARM_CQ`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the queue is open.
pub unsafe extern "system" fn arm<H: Hooks>(cq: *mut NDK_CQ, kind: u32) {
    // SAFETY: `cq` is open for the call (`# Safety`).
    let Ok(shadow) = (unsafe { find::<H, _>(cq, Function::ArmCq) }) else { return };
    let mut report = EventReport::of_data_path(shadow, Function::ArmCq, Args::ArmCq { kind });
    let verdict = report.tell(Phase::Call, Outcome::None);
    if !forwards(shadow, verdict, true) {
        report.end(Outcome::None);
        return;
    }
    let (inner, function) = slot!(shadow.inner::<NDK_CQ>(), NdkArmCq);
    // SAFETY: the provider's queue is open.
    unsafe { function(inner, kind) };
    report.end(Outcome::None);
}

/// The results that the provider has stored.
///
/// # Safety
///
/// `results` points to at least `count` results, unless that is 0.
const unsafe fn stored<'a, T>(results: *const T, count: u32) -> &'a [T] {
    if count == 0 || results.is_null() {
        return &[];
    }
    // SAFETY: the provider has stored as many (`# Safety`).
    unsafe { slice::from_raw_parts(results, count as usize) }
}

/// `NDK_FN_GET_CQ_RESULTS`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the queue is open, `results` has room for `room`.
pub unsafe extern "system" fn get_results<H: Hooks>(cq: *mut NDK_CQ, results: *mut NDK_RESULT, room: u32) -> u32 {
    // SAFETY: `cq` is open for the call (`# Safety`).
    let Ok(shadow) = (unsafe { find::<H, _>(cq, Function::GetCqResults) }) else { return 0 };
    let mut report =
        EventReport::of_data_path(shadow, Function::GetCqResults, Args::GetCqResults { room, results: &[] });
    if !matches!(report.begin(), Ok(verdict) if forwards(shadow, verdict, false)) {
        return 0;
    }
    let (inner, function) = slot!(shadow.inner::<NDK_CQ>(), NdkGetCqResults, 0);
    // SAFETY: the provider's queue is open, and the room is the consumer's.
    let count = unsafe { function(inner, results, room) };
    if H::INTERFERES && count > 0 && !results.is_null() {
        // SAFETY: the provider says that it has stored as many, and the room is the consumer's.
        let results = unsafe { slice::from_raw_parts_mut(results, count.min(room) as usize) };
        shadow.root.hooks.results(shadow.object_ref(), Results::Plain(results));
        flush_broken(shadow);
    }
    if H::LISTENS {
        // SAFETY: the provider says that it has stored as many.
        let results = unsafe { stored(results.cast_const(), count.min(room)) };
        report.end_with(Args::GetCqResults { room, results }, Outcome::Count(count));
    }
    count
}

/// `NDK_FN_GET_CQ_RESULTS_EX`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the queue is open, `results` has room for `room`.
pub unsafe extern "system" fn get_results_ex<H: Hooks>(cq: *mut NDK_CQ, results: *mut NDK_RESULT_EX, room: u32) -> u32 {
    // SAFETY: `cq` is open for the call (`# Safety`).
    let Ok(shadow) = (unsafe { find::<H, _>(cq, Function::GetCqResultsEx) }) else { return 0 };
    let mut report =
        EventReport::of_data_path(shadow, Function::GetCqResultsEx, Args::GetCqResultsEx { room, results: &[] });
    if !matches!(report.begin(), Ok(verdict) if forwards(shadow, verdict, false)) {
        return 0;
    }
    let inner = shadow.inner::<NDK_CQ>();
    // SAFETY: the provider's queue is open.
    let Some(function) = (unsafe { NDK_CQ::get_cq_results_ex(inner) }) else { return 0 };
    // SAFETY: the provider's queue is open, and the room is the consumer's.
    let count = unsafe { function(inner, results, room) };
    if H::INTERFERES && count > 0 && !results.is_null() {
        // SAFETY: the provider says that it has stored as many, and the room is the consumer's.
        let results = unsafe { slice::from_raw_parts_mut(results, count.min(room) as usize) };
        shadow.root.hooks.results(shadow.object_ref(), Results::Ex(results));
        flush_broken(shadow);
    }
    if H::LISTENS {
        // SAFETY: the provider says that it has stored as many.
        let results = unsafe { stored(results.cast_const(), count.min(room)) };
        report.end_with(Args::GetCqResultsEx { room, results }, Outcome::Count(count));
    }
    count
}

/// `NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION`.
///
/// # Safety
///
/// As NDKPI asks of a consumer: the queue is open.
pub unsafe extern "system" fn control_moderation<H: Hooks>(cq: *mut NDK_CQ, interval: u32, count: u32) -> NtStatus {
    let call = |inner: *mut NDK_CQ| {
        let (inner, function) = slot!(inner, NdkControlCqInterruptModeration, NtStatus::NOT_SUPPORTED);
        // SAFETY: the provider's queue is open.
        unsafe { function(inner, interval, count) }
    };
    let args = Args::Moderation { interval, count };
    // SAFETY: `cq` is open for the call (`# Safety`).
    unsafe { immediate::<H, _>(cq, Function::ControlCqInterruptModeration, args, call) }
}

/// `NDK_FN_CQ_NOTIFICATION_CALLBACK`, and that of shared receive queues, which is the same.
///
/// # Safety
///
/// `context` is the shadow that was given to the creation of a queue, which is not closed yet.
pub unsafe extern "system" fn notified<H: Hooks>(context: *mut c_void, status: NtStatus) {
    // SAFETY: the provider calls back before the close has completed: the consumer's reference is still there.
    let shadow = unsafe { (*context.cast_const().cast::<Shadow<H>>()).hold() };
    let Some(notifier) = shadow.notifier() else {
        tell(&shadow, status);
        return;
    };
    if notifier.failed().is_none() {
        let delay = shadow.root.hooks.delay(Function::CqNotification, shadow.object_ref());
        notifier.came(&shadow, status, delay, true);
    }
}

/// Does what hooks want of an arm or a poll. Returns true if the provider is to be called.
fn forwards<H: Hooks>(shadow: &Shadow<H>, verdict: Verdict, is_arm: bool) -> bool {
    let Some(notifier) = shadow.notifier() else { return true };
    // SAFETY: the queue is open.
    let shadow = unsafe { shadow.hold() };
    if let Verdict::FailQueue(status) = verdict {
        notifier.fail(&shadow, status);
        flush_broken(&shadow);
    }
    if is_arm { notifier.armed(&shadow) } else { notifier.failed().is_none() }
}

/// Flushes the queue pairs that the hooks have broken.
fn flush_broken<H: Hooks>(cq: &Shadow<H>) {
    let root = &cq.root;
    while let Some(number) = root.hooks.broken(cq.object_ref()) {
        let Some(qp) = root.qp(number).filter(|qp| qp.gate.enter()) else { continue };
        let inner = qp.inner::<NDK_QP>();
        // SAFETY: the provider's queue pair is open as long as its gate is held.
        let table = unsafe { (*inner).Dispatch };
        // SAFETY: as above; only the slot is read.
        if let Some(flush) = unsafe { (*table).NdkFlush } {
            // SAFETY: as above. A flush may run beside any other call (`NDKPI 7.2`).
            unsafe { flush(inner) };
        }
        leave(&qp);
    }
}
