//! The data that the kernel shares with programs (`KUSER_SHARED_DATA`), at its address in the kernel: what the macros of the kit read the
//! clocks from.

use std::sync::OnceLock;

use super::stubs;
use crate::{
    state,
    wdm::{clock, version},
};

/// Where it lies in every Windows kernel on x86-64.
const BASE: usize = 0xFFFF_F780_0000_0000;
const SIZE: usize = 4096;

/// Offsets, as the public headers have them.
const TICK_MULTIPLIER: usize = 0x004;
const INTERRUPT_TIME: usize = 0x008;
const SYSTEM_TIME: usize = 0x014;
const BUILD: usize = 0x260;
const PRODUCT: usize = 0x264;
const MAJOR: usize = 0x26C;
const QPC_FREQUENCY: usize = 0x300;
const TICKS: usize = 0x320;
const PROCESSORS: usize = 0x3C0;

/// The simulated place of an address, with what it holds at this time. `None` for any other address.
pub fn simulated(address: usize) -> Option<usize> {
    static PAGE: OnceLock<Option<usize>> = OnceLock::new();
    let offset = address.checked_sub(BASE).filter(|&offset| offset < SIZE)?;
    let page = (*PAGE.get_or_init(|| stubs::memory(SIZE)))?;
    fill(page);
    Some(page + offset)
}

fn put<T>(page: usize, offset: usize, value: T) {
    let place = std::ptr::with_exposed_provenance_mut::<T>(page + offset);
    // SAFETY: a place of the page, which is never freed. Drivers read it at any time, as they read the real one.
    unsafe { place.write_unaligned(value) };
}

/// A time as `KSYSTEM_TIME`: its upper half twice, for readers that make sure that it has not changed meanwhile.
fn time(page: usize, offset: usize, value: u64) {
    put(page, offset + 8, (value >> 32) as u32);
    put(page, offset, value);
}

fn fill(page: usize) {
    let state = state::current();
    let (interrupt, system) = (clock::interrupt_time(&state), clock::system_time(&state));
    // 15.625 milliseconds.
    const TICK: u64 = 156_250;
    put(page, TICK_MULTIPLIER, 0x0FA0_0000_u32);
    time(page, INTERRUPT_TIME, interrupt);
    time(page, SYSTEM_TIME, system);
    time(page, TICKS, interrupt / TICK);
    put(page, BUILD, version::BUILD);
    // A workstation.
    put(page, PRODUCT, 1_u32);
    put(page, MAJOR, [10_u32, 0]);
    put(page, QPC_FREQUENCY, 10_000_000_u64);
    put(page, PROCESSORS, state.machine.processors());
}
