//! The counter that orders what happens on several processors.

use crate::Phase;

/// The counter of the processors: the time-stamp counter of x64, the virtual counter of Arm64.
///
/// Of a call, it is read before anything that is done behind it can be seen. Of anything else, it is read when everything before has
/// been done: what was seen there came first. So what a call has led to has no smaller ticks than the call, on whichever processors
/// the two were. What the caller itself has seen in the last hundred nanoseconds or so may have greater ones than its call: to wait for
/// that would make each call slower.
///
/// It holds where the counters of all processors agree, as they do where Windows and Linux take their clock from them. At any IRQL.
#[inline]
#[must_use]
pub fn ticks(phase: Phase) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if phase != Phase::Call {
            // SAFETY: every processor of the architecture has the instruction, which changes nothing.
            unsafe { core::arch::x86_64::_mm_lfence() };
        }
        // SAFETY: every processor for x86-64 has the instruction.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count;
        if phase != Phase::Call {
            // SAFETY: a barrier, behind which everything before has been done.
            unsafe { core::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
        }
        // SAFETY: reads a register that kernels and programs may read. What is stored behind it waits for it.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", "dmb ish", out(reg) count, options(nostack, preserves_flags)) };
        count
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        use core::sync::atomic::{AtomicU64, Ordering::AcqRel};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let _ = phase;
        COUNT.fetch_add(1, AcqRel)
    }
}
