//! Faults outside of the paged pool: an address without memory. The code that touches it is a driver's, or the fault is the simulation's.

use std::{
    fmt::{self, Write as _},
    sync::Once,
};

use crate::{paged, pool::POISON_WORD, report::EXIT_CODE, rule::Rule, running};

/// A line that is put together without an allocation, as in a handler of signals it has to be.
struct Words {
    bytes: [u8; 256],
    length: usize,
}

impl fmt::Write for Words {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

/// Ends the process, if a driver's code runs. Called in a handler of signals.
fn report(address: usize, context: *mut libc::c_void) {
    if !running::in_driver() {
        return;
    }
    let mut line = Words { bytes: [0; 256], length: 0 };
    let start = "simulated kernel: bug check: rule broken";
    let _ = if has_poison(context) {
        writeln!(line, "{start}: {}: an address was taken from memory that is free", Rule::UseAfterFree)
    } else {
        writeln!(line, "{start}: {}: the address {address:#x} was touched", Rule::AccessViolation)
    };
    // SAFETY: the bytes live until the call returns, and the call is safe in a handler.
    unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.length) };
    // SAFETY: the call is safe in a handler.
    unsafe { libc::_exit(EXIT_CODE) };
}

/// Returns true if a register holds what free memory is filled with: then the address was made of it.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn has_poison(context: *mut libc::c_void) -> bool {
    // SAFETY: the system passes the registers of the interrupted thread, of this type.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs.contains(&POISON_WORD.cast_signed())
}

/// Returns true if it is code at that address that was to run.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn runs_at(address: usize, context: *mut libc::c_void) -> bool {
    // SAFETY: the system passes the registers of the interrupted thread, of this type.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RIP as usize].cast_unsigned() == address as u64
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn runs_at(_: usize, _: *mut libc::c_void) -> bool {
    false
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn has_poison(_: *mut libc::c_void) -> bool {
    false
}

/// Has the paged pool hear of faults, and then this module.
pub fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(install);
}

fn install() {
    // SAFETY: all zeros is a value of this structure of numbers and pointers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = (fault as *const () as usize) as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that `SA_SIGINFO` asks for, and the structures live until the call returns.
    let set = unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) };
    assert_eq!(set, 0, "no handler for faults");
}

extern "C" fn fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes the information of this very signal.
    let info = unsafe { &*info };
    // SAFETY: this signal's information has an address.
    let address = unsafe { info.si_addr() }.addr();
    if !paged::fault(address, runs_at(address, context)) {
        report(address, context);
        // SAFETY: the default is what happens without a handler; the fault happens again when this returns.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
