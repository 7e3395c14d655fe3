//! Paged pool. Its pages are out of reach until they are touched, which only code below `DISPATCH_LEVEL` may do.
//!
//! Whenever the kernel raises to `DISPATCH_LEVEL` it takes all pages out of reach again, as Driver Verifier trims the working
//! set. A touch is a fault: below `DISPATCH_LEVEL` it brings the page back, at or above it ends the test.

use std::{
    ptr,
    sync::{
        Mutex, Once,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use host::machine::{Irql, current_irql};

use crate::{kernel::lock, pool::PAGE, report::EXIT_CODE};

/// Addresses of paged memory in all.
const ARENA: usize = 1 << 30;

static BASE: AtomicUsize = AtomicUsize::new(0);
static USED: Mutex<usize> = Mutex::new(0);
static PRESENT: AtomicBool = AtomicBool::new(false);

fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice, of nothing that anybody has.
        let base = unsafe { libc::mmap(ptr::null_mut(), ARENA, libc::PROT_NONE, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED, "no addresses for the paged pool");
        BASE.store(base.expose_provenance(), Relaxed);
        // SAFETY: all zeros is a value of this structure of numbers and pointers.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = (fault as *const () as usize) as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that `SA_SIGINFO` asks for, and the structures live until the call returns.
        let set = unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) };
        assert_eq!(set, 0, "no handler for faults");
    });
}

extern "C" fn fault(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system passes the information of this very signal.
    let info = unsafe { &*info };
    // SAFETY: this signal's information has an address.
    let address = unsafe { info.si_addr() }.addr();
    let base = BASE.load(Relaxed);
    if !(base..base + ARENA).contains(&address) {
        // SAFETY: the default is what happens without a handler; the fault happens again when this returns.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    if current_irql() >= Irql::DISPATCH_LEVEL {
        let words = b"simulated kernel: bug check: rule broken: paged-at-dispatch: pageable memory touched\n";
        // SAFETY: the bytes live until the call returns, and the call is safe in a handler.
        unsafe { libc::write(2, words.as_ptr().cast(), words.len()) };
        // SAFETY: the call is safe in a handler.
        unsafe { libc::_exit(EXIT_CODE) };
    }
    PRESENT.store(true, Relaxed);
    protect(address - address % PAGE, PAGE, libc::PROT_READ | libc::PROT_WRITE);
}

fn protect(address: usize, len: usize, protection: libc::c_int) {
    // SAFETY: pages of the arena, which holds nothing but paged blocks.
    unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(address), len, protection) };
}

/// Takes all pages out of reach.
pub fn trim() {
    if PRESENT.swap(false, Relaxed) {
        let used = *lock(&USED);
        protect(BASE.load(Relaxed), used.next_multiple_of(PAGE), libc::PROT_NONE);
    }
}

/// Addresses of pageable memory, never used again: `None` if there are no more.
pub fn reserve(size: usize) -> Option<usize> {
    begin();
    let mut used = lock(&USED);
    let start = *used;
    let end = start.checked_add(size.max(1).next_multiple_of(PAGE)).filter(|&end| end <= ARENA)?;
    *used = end;
    Some(BASE.load(Relaxed) + start)
}

/// Returns true if the address is pageable.
pub fn contains(address: usize) -> bool {
    let base = BASE.load(Relaxed);
    base != 0 && (base..base + ARENA).contains(&address)
}
