//! Hints to the compiler, and to the processor that a cache line will be needed.
//!
//! What a message is written to lies in the cache of the receiver's processor. Stores to such lines wait one behind the other,
//! and those behind them; lines that were asked for early are there when their stores are.

#![allow(unsafe_code, reason = "hints are instructions of the processor, which no safe function has")]

/// Says that the code around it is rarely run. Without such a hint the compiler takes code behind many conditions for that.
#[cold]
#[inline(never)]
pub const fn cold_path() {}

/// The line of `place` will be read.
#[inline]
pub fn to_read<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint has no effect that a program could see, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) place, options(nostack, readonly, preserves_flags));
    }
    let _ = place;
}

/// The line of `place` will be written.
#[inline]
pub fn to_write<T>(place: *const T) {
    // Every processor that runs 64-bit Windows knows the instruction. The compiler, which does not know that, has another one for
    // this hint, with which the line would come as a copy.
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
