//! Numbers that a peer cannot guess easily, for the keys in tokens.
//!
//! Peers are consumers in the same kernel, so this keeps mistakes apart, not enemies (`docs/threat-model.md`).

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};
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
    (mix(STATE.fetch_add(1, Relaxed)) >> 32) as u32
}

/// Every bit of the result depends on every bit of `value`.
fn mix(value: u64) -> u64 {
    SplitMix64::seed_from_u64(value).next_u64()
}
