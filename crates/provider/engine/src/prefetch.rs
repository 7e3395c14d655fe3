//! Hints to the compiler, and to the processor that a cache line will be needed.
//!
//! The destination of a message lies in the cache of the receiver's processor. Stores to such lines wait for each other, and all
//! later stores wait for them, unless the lines were prefetched.

#![allow(unsafe_code, reason = "hints are instructions of the processor, which no safe function has")]

/// Marks the code around it as rarely run. Without such a hint the compiler takes the code behind many conditions for that.
#[cold]
#[inline(never)]
pub const fn cold_path() {}

/// Prefetches the line of `place` for reading.
#[inline]
pub fn to_read<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint has no effect that a program could see, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a hint, as the other one is.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) place, options(nostack, readonly, preserves_flags));
    }
    let _ = place;
}

/// Prefetches the line of `place` for writing.
#[inline]
pub fn to_write<T>(place: *const T) {
    // Every processor that runs 64-bit Windows has this instruction. The compiler, which does not know that, would use another
    // one, which fetches the line in a shared state.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `to_read`.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as in `to_read`.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) place, options(nostack, readonly, preserves_flags));
    }
    let _ = place;
}
