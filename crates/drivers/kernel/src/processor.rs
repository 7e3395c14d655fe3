//! Processors and IRQL.

// `KeLowerIrql` is a function for x86-64, and for ARM64 a macro for the function of another name (`wdm.h`).
#[cfg(not(all(windows, target_arch = "aarch64")))]
use wdk_sys::ntddk::KeLowerIrql;
#[cfg(all(windows, target_arch = "aarch64"))]
use wdk_sys::ntddk::KfLowerIrql as KeLowerIrql;
use wdk_sys::{
    DISPATCH_LEVEL, GROUP_AFFINITY, KIRQL, PROCESSOR_NUMBER,
    ntddk::{
        KeGetProcessorNumberFromIndex, KeRevertToUserGroupAffinityThread, KeSetSystemGroupAffinityThread, KfRaiseIrql,
    },
};

use crate::check;

/// Keeps this thread on one processor as long as the value lives.
///
/// It belongs to the thread that made it, and cannot be sent to another.
pub struct Bound {
    before: GROUP_AFFINITY,
    _not_send: core::marker::PhantomData<*mut ()>,
}

impl Bound {
    /// Moves this thread to the processor with this index. `None` if there is none.
    #[must_use = "dropped at once, it binds nothing"]
    pub fn to(index: u32) -> Option<Self> {
        let mut number = PROCESSOR_NUMBER::default();
        // SAFETY: the place lives until the call returns.
        check(unsafe { KeGetProcessorNumberFromIndex(index, &raw mut number) }).ok()?;
        let mut affinity = GROUP_AFFINITY {
            Mask: 1_u64.checked_shl(u32::from(number.Number))?,
            Group: number.Group,
            ..GROUP_AFFINITY::default()
        };
        let mut before = GROUP_AFFINITY::default();
        // SAFETY: both structures live until the call returns, and the caller is at `PASSIVE_LEVEL`.
        unsafe { KeSetSystemGroupAffinityThread(&raw mut affinity, &raw mut before) };
        Some(Self { before, _not_send: core::marker::PhantomData })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: what the thread had before; it is the thread that was bound, at `PASSIVE_LEVEL`.
        unsafe { KeRevertToUserGroupAffinityThread(&raw mut self.before) };
    }
}

/// The IRQL of the caller. `IRQL <= DISPATCH_LEVEL`.
#[must_use]
pub fn irql() -> u8 {
    #[expect(clippy::cast_possible_truncation, reason = "two")]
    const RAISED: KIRQL = DISPATCH_LEVEL as KIRQL;
    // SAFETY: the caller is at `DISPATCH_LEVEL` or below, and the level is lowered again below.
    let before = unsafe { KfRaiseIrql(RAISED) };
    // SAFETY: the level that this thread had before, and no lock is held.
    unsafe { KeLowerIrql(before) };
    before
}

/// Runs `work` at `DISPATCH_LEVEL`. `IRQL <= DISPATCH_LEVEL`.
///
/// `work` must not unwind and must not leave a spin lock held.
pub fn at_dispatch_level<T>(work: impl FnOnce() -> T) -> T {
    #[expect(clippy::cast_possible_truncation, reason = "two")]
    const RAISED: KIRQL = DISPATCH_LEVEL as KIRQL;
    // SAFETY: the caller is at `DISPATCH_LEVEL` or below, and the level is lowered again below.
    let before = unsafe { KfRaiseIrql(RAISED) };
    let result = work();
    // SAFETY: the level that this thread had before, and no lock is held.
    unsafe { KeLowerIrql(before) };
    result
}
