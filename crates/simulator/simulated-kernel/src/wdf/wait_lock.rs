//! The framework's wait locks: one thread has one, and gets no normal kernel APCs meanwhile.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire},
    },
};

use wdk_bindings::{
    LONGLONG, NTSTATUS, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS,
    STATUS_TIMEOUT, WDFWAITLOCK,
};

use super::{
    function::function,
    object::{Kind, Object, Part, check_level},
};
use crate::{
    context,
    report::bug_check,
    rule::Rule,
    state::State,
    waiting::{self, Wait},
    wdm::timeout,
};

/// A wait lock.
#[derive(Default)]
pub struct WaitLockObject {
    /// The number of the thread that has it, plus one; zero if nobody has.
    owner: AtomicU64,
}

fn me() -> u64 {
    context::thread() + 1
}

impl Part for WaitLockObject {
    const NAME: &'static str = "wait lock";
}

impl Kind for WaitLockObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// The lock is being deleted, by its driver or with its parent.
    fn end(&self, _state: &Arc<State>, _object: &Object) {
        if self.owner.load(Acquire) != 0 {
            bug_check(Rule::LockHeld, format_args!("a wait lock of the framework is deleted while somebody has it"));
        }
    }
}

impl WaitLockObject {
    fn try_acquire(&self) -> bool {
        self.owner.compare_exchange(0, me(), AcqRel, Acquire).is_ok()
    }
}

fn wait_lock(state: &State, handle: WDFWAITLOCK) -> Arc<WaitLockObject> {
    state.usable(handle, Object::is_live).1
}

pub extern "C" fn WdfWaitLockCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFWAITLOCK,
) -> NTSTATUS {
    function!("WdfWaitLockCreate", |state| {
        let parent = state.driver_object(context::caller());
        let Some(object) = state.create_object(Arc::new(WaitLockObject::default()), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfWaitLockAcquire(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFWAITLOCK,
    timeout: *mut LONGLONG,
) -> NTSTATUS {
    function!("WdfWaitLockAcquire", |state| {
        let end = timeout::end(state, timeout.cast());
        check_level("WdfWaitLockAcquire", end != Some(0));
        let wait_lock = wait_lock(state, handle);
        if wait_lock.owner.load(Acquire) == me() && end.is_none() {
            bug_check(Rule::RecursiveLock, format_args!("WdfWaitLockAcquire: the thread has the wait lock already"));
        }
        state.preempt();
        let objects = [handle.addr()];
        let wait = Wait::of("WdfWaitLockAcquire", &objects);
        if !wait_lock.try_acquire() && !waiting::until(state, end, wait, || wait_lock.try_acquire()) {
            return STATUS_TIMEOUT;
        }
        context::set_critical(context::critical() + 1);
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfWaitLockRelease(_globals: PWDF_DRIVER_GLOBALS, handle: WDFWAITLOCK) {
    function!("WdfWaitLockRelease", |state| {
        let wait_lock = wait_lock(state, handle);
        if wait_lock.owner.compare_exchange(me(), 0, AcqRel, Acquire).is_err() {
            bug_check(
                Rule::LockNotHeld,
                format_args!("a wait lock of the framework is released by a thread that does not have it"),
            );
        }
        context::set_critical(context::critical().saturating_sub(1));
        state.dispatcher.signal_of(handle.addr());
        state.preempt();
    });
}
