//! Paged pool. Its pages are out of reach until they are touched, which only code below `DISPATCH_LEVEL` may do.
//!
//! Whenever the kernel raises to `DISPATCH_LEVEL` it takes all pages out of reach again, as Driver Verifier trims the working
//! set. A touch is a fault: below `DISPATCH_LEVEL` it brings the page back, at or above it ends the test.

use std::sync::{
    Mutex, Once,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use host::machine::{Irql, current_irql};

use crate::{
    platform::{self, PAGE},
    report::EXIT_CODE,
    sync::lock,
};

/// Addresses of paged memory in all.
const ARENA: usize = 1 << 30;

static BASE: AtomicUsize = AtomicUsize::new(0);
static USED: Mutex<usize> = Mutex::new(0);
static PRESENT: AtomicBool = AtomicBool::new(false);
/// A bit for each page whose memory was freed. It is never used for anything else.
static FREED: [AtomicU64; ARENA / PAGE / 64] = [const { AtomicU64::new(0) }; ARENA / PAGE / 64];

/// Reserves the addresses. Whoever installs the handler of faults has it call [`fault`].
pub fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        BASE.store(platform::reserve(ARENA, false), Relaxed);
    });
}

/// Something at that address was touched and is out of reach. Returns true if it is pageable and can be used now, which code that
/// runs there cannot. Called by the handler of faults, on the thread that has touched it.
pub fn fault(address: usize, runs: bool) -> bool {
    if runs || !contains(address) {
        return false;
    }
    let (word, bit) = place_of(address);
    if FREED[word].load(Relaxed) & bit != 0 {
        platform::end(
            b"simulated kernel: bug check: rule broken: use-after-free: pageable memory touched that is free\n",
            EXIT_CODE,
        );
    }
    if current_irql() >= Irql::DISPATCH_LEVEL {
        platform::end(
            b"simulated kernel: bug check: rule broken: paged-at-dispatch: pageable memory touched\n",
            EXIT_CODE,
        );
    }
    PRESENT.store(true, Relaxed);
    platform::protect(address - address % PAGE, PAGE, true);
    true
}

/// Takes all pages out of reach.
pub fn trim() {
    if PRESENT.swap(false, Relaxed) {
        let used = *lock(&USED);
        platform::protect(BASE.load(Relaxed), used.next_multiple_of(PAGE), false);
    }
}

/// Addresses of pageable memory, never used again: `None` if there are no more.
pub fn reserve(size: usize) -> Option<usize> {
    begin();
    let mut used = lock(&USED);
    let start = *used;
    let end = start.checked_add(size.max(1).next_multiple_of(PAGE)).filter(|&end| end <= ARENA)?;
    platform::commit_unreachable(BASE.load(Relaxed) + start, end - start);
    *used = end;
    Some(BASE.load(Relaxed) + start)
}

/// Where a page is noted as freed.
fn place_of(address: usize) -> (usize, u64) {
    let page = (address - BASE.load(Relaxed)) / PAGE;
    (page / 64, 1 << (page % 64))
}

/// A block is freed: who touches it is found out.
pub fn release(address: usize, size: usize) {
    let bytes = size.max(1).next_multiple_of(PAGE);
    for page in (address..address + bytes).step_by(PAGE) {
        let (word, bit) = place_of(page);
        FREED[word].fetch_or(bit, Relaxed);
    }
    platform::protect(address, bytes, false);
}

/// Returns true if the address is pageable.
pub fn contains(address: usize) -> bool {
    let base = BASE.load(Relaxed);
    base != 0 && (base..base + ARENA).contains(&address)
}
