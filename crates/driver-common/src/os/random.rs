//! Numbers that a peer cannot guess easily, for the keys in tokens.
//!
//! Peers are consumers in the same kernel, so this keeps mistakes apart, not enemies (`docs/threat-model.md`).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wdk_sys::{
    LARGE_INTEGER,
    ntddk::{KeQueryInterruptTimePrecise, KeQuerySystemTimePrecise},
};

static STATE: AtomicU64 = AtomicU64::new(0);

/// Begins anew, from clocks that no two loads of the driver see alike.
pub fn seed() {
    let mut counter = 0;
    // SAFETY: the place lives until the call returns.
    let since_start = unsafe { KeQueryInterruptTimePrecise(&raw mut counter) };
    let mut date = LARGE_INTEGER::default();
    // SAFETY: the place lives until the call returns.
    unsafe { KeQuerySystemTimePrecise(&raw mut date) };
    // SAFETY: the routine has written all of it.
    let date = unsafe { date.QuadPart };
    STATE.store(mix(since_start).wrapping_add(mix(counter)) ^ mix(date.cast_unsigned()), Relaxed);
}

/// The next thirty-two bits. At any IRQL, on any number of processors.
pub fn next() -> u32 {
    /// The odd number nearest to 2^64 divided by the golden ratio.
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let state = STATE.fetch_add(STEP, Relaxed);
    (mix(state.wrapping_add(STEP)) >> 32) as u32
}

/// Every bit of the result depends on every bit of `value` (the finaliser of the generator `SplitMix64`).
const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}
