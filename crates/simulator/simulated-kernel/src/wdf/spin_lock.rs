//! The framework's spin locks.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use host::machine::{Irql, RawSpinLock};
use wdk_bindings::{
    NTSTATUS, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, WDFSPINLOCK,
};

use super::{
    function::function,
    object::{Kind, Object, Part},
};
use crate::{context, report::bug_check, rule::Rule, state::State, wdm::lock};

/// Nobody holds the lock. No level of the kernel.
const FREE: u8 = u8::MAX;

/// A spin lock. The framework keeps the holder's level for it.
pub struct SpinLockObject {
    lock: RawSpinLock,
    /// The level to which the holder returns, or that nobody holds it. Changed by the holder only.
    before: AtomicU8,
}

impl Part for SpinLockObject {
    const NAME: &'static str = "spin lock";
}

impl Kind for SpinLockObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// The lock is being deleted, by its driver or with its parent.
    fn end(&self, _state: &Arc<State>, object: &Object) {
        if self.before.load(Relaxed) != FREE {
            bug_check(Rule::LockHeld, format_args!("a spin lock of the framework is deleted while somebody holds it"));
        }
        lock::forget_order(&(object.handle..object.handle + 1));
    }
}

fn spin_lock(state: &State, handle: WDFSPINLOCK) -> Arc<SpinLockObject> {
    state.usable(handle, Object::is_live).1
}

pub extern "C" fn WdfSpinLockCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFSPINLOCK,
) -> NTSTATUS {
    function!("WdfSpinLockCreate", |state| {
        let parent = state.driver_object(context::caller());
        let kind = SpinLockObject { lock: RawSpinLock::new(), before: AtomicU8::new(FREE) };
        let Some(object) = state.create_object(Arc::new(kind), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfSpinLockAcquire(_globals: PWDF_DRIVER_GLOBALS, handle: WDFSPINLOCK) {
    function!("WdfSpinLockAcquire", |state| {
        let spin_lock = spin_lock(state, handle);
        let before = lock::hold(state, &spin_lock.lock, lock::name_of(handle.addr()));
        spin_lock.before.store(before.0, Relaxed);
    });
}

pub extern "C" fn WdfSpinLockRelease(_globals: PWDF_DRIVER_GLOBALS, handle: WDFSPINLOCK) {
    function!("WdfSpinLockRelease", |state| {
        lock::at_dispatch("WdfSpinLockRelease");
        let spin_lock = spin_lock(state, handle);
        if !spin_lock.lock.is_held_here() {
            bug_check(
                Rule::LockNotHeld,
                format_args!("a spin lock of the framework is released by a thread that does not hold it"),
            );
        }
        let before = Irql(spin_lock.before.swap(FREE, Relaxed));
        lock::let_go(state, &spin_lock.lock, before);
    });
}
