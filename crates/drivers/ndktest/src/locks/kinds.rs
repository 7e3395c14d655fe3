//! The spin locks that a driver can choose from.

use core::{cell::UnsafeCell, ptr};

use kernel::{QueuedSpinLock, check, wdf::attributes};
use ndkpi::NtStatus;
use wdk_sys::{
    KSPIN_LOCK, WDFSPINLOCK, call_unsafe_wdf_function_binding,
    ntddk::{KeAcquireSpinLockRaiseToDpc, KeInitializeSpinLock, KeReleaseSpinLock},
};

/// A kind of spin lock. `IRQL <= DISPATCH_LEVEL`.
///
/// # Safety
///
/// Of all calls of `locked` for one lock, on whichever threads they are, only one at a time is in its `work`, and sees what those
/// before it have written.
pub unsafe trait Kind: Sync {
    /// What reports call it.
    const NAME: &'static str;

    /// Carries out `work` with the lock held, at `DISPATCH_LEVEL`.
    fn locked<U>(&self, work: impl FnOnce() -> U) -> U;
}

/// A value behind a lock, in a cache line with it as in the drivers, and with nothing else.
///
/// # Invariants
///
/// `value` is touched only inside of `lock.locked`, or through a `&mut` of the whole.
#[repr(align(128))]
pub struct Guarded<K, T> {
    lock: K,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time, on whichever thread that is.
unsafe impl<K: Kind, T: Send> Sync for Guarded<K, T> {}

impl<K: Kind, T: Send> Guarded<K, T> {
    /// A value behind a lock that nobody holds.
    pub const fn new(lock: K, value: T) -> Self {
        Self { lock, value: UnsafeCell::new(value) }
    }

    /// Carries out `work` on the value, with the lock held.
    pub fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        self.lock.locked(|| {
            // SAFETY: the lock is held, so nobody else has a reference to the value (invariant).
            let value = unsafe { &mut *self.value.get() };
            work(value)
        })
    }

    /// The value, when nobody else can reach it.
    pub const fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// The word of a lock of the kernel.
///
/// # Invariants
///
/// It was initialised, and is only touched by the kernel's routines.
struct Word(UnsafeCell<KSPIN_LOCK>);

// SAFETY: the routines may be called for one word by any number of threads at a time.
unsafe impl Sync for Word {}

impl Word {
    /// A lock that nobody holds. As long as that is so it may be moved: it is a number.
    fn new() -> Self {
        let mut word = 0;
        // SAFETY: `word` is memory for a lock.
        unsafe { KeInitializeSpinLock(&raw mut word) };
        Self(UnsafeCell::new(word))
    }
}

/// The kernel's in-stack queued lock: what the provider uses.
pub type Queued = QueuedSpinLock;

// SAFETY: the kernel's lock lets one processor go on at a time.
unsafe impl Kind for QueuedSpinLock {
    const NAME: &'static str = "queued";

    fn locked<U>(&self, work: impl FnOnce() -> U) -> U {
        Self::locked(self, work)
    }
}

/// The kernel's plain lock.
///
/// # Invariants
///
/// The word is only acquired as a plain lock.
pub struct Plain(Word);

impl Plain {
    /// A lock that nobody holds.
    pub fn new() -> Self {
        Self(Word::new())
    }
}

// SAFETY: as for `Queued`.
unsafe impl Kind for Plain {
    const NAME: &'static str = "plain";

    fn locked<U>(&self, work: impl FnOnce() -> U) -> U {
        // SAFETY: the lock is initialised (invariant).
        let before = unsafe { KeAcquireSpinLockRaiseToDpc(self.0.0.get()) };
        let result = work();
        // SAFETY: the lock was acquired above, at that level.
        unsafe { KeReleaseSpinLock(self.0.0.get(), before) };
        result
    }
}

/// The framework's lock. Dropping it deletes it.
///
/// # Invariants
///
/// The handle is that of a live lock which nobody else deletes.
pub struct Framework(WDFSPINLOCK);

// SAFETY: the framework's functions may be called for one lock by any number of threads at a time.
unsafe impl Sync for Framework {}

impl Framework {
    /// A lock that nobody holds.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        let (mut attributes, mut handle) = (attributes(), ptr::null_mut());
        // SAFETY: both places live until the call returns. Without another parent the lock is the driver's.
        check(unsafe { call_unsafe_wdf_function_binding!(WdfSpinLockCreate, &raw mut attributes, &raw mut handle) })?;
        Ok(Self(handle))
    }
}

impl Drop for Framework {
    fn drop(&mut self) {
        // SAFETY: the lock is live and ours (invariant), and nobody holds it, because that would borrow it.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, self.0.cast()) };
    }
}

// SAFETY: as for `Queued`.
unsafe impl Kind for Framework {
    const NAME: &'static str = "WDF";

    fn locked<U>(&self, work: impl FnOnce() -> U) -> U {
        // SAFETY: the lock is live (invariant).
        unsafe { call_unsafe_wdf_function_binding!(WdfSpinLockAcquire, self.0) };
        let result = work();
        // SAFETY: the lock was acquired above.
        unsafe { call_unsafe_wdf_function_binding!(WdfSpinLockRelease, self.0) };
        result
    }
}
