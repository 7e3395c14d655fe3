//! The end of a system thread: `PsTerminateSystemThread` does not return to the driver.
//!
//! The routine of a thread is called by a few instructions that keep where the stack was. The end goes back there, past whatever the driver
//! has on the stack, as if the routine had returned: so the thread's last steps are the same either way. Elsewhere than on x86-64 it returns.

use std::cell::Cell;

use wdk_bindings::{PKSTART_ROUTINE, PVOID};

/// A thread's routine.
type Start = <PKSTART_ROUTINE as IntoIterator>::Item;

thread_local! {
    /// Where the stack was before the thread's routine was called; zero if this is no thread of a driver's.
    static STACK: Cell<usize> = const { Cell::new(0) };
}

/// Returns true if the thread was made by a driver: such a one may end itself, a thread of the system's may not.
pub fn is_possible() -> bool {
    STACK.get() != 0
}

/// Calls the routine of a thread. Returns when it has returned, or when the thread was ended.
///
/// # Safety
///
/// The routine's own conditions.
pub unsafe fn run(start: Start, context: PVOID) {
    let place = STACK.with(Cell::as_ptr);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the routine's conditions are the caller's; the place is this thread's, and stays until the thread ends.
    unsafe {
        code::begin(start, context, place);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        STACK.set(1);
        let _ = place;
        // SAFETY: the caller's conditions.
        unsafe { start(context) };
    }
    STACK.set(0);
}

/// Ends the thread, which was made by a driver and has nothing of this crate on its stack above the driver's routine but the caller,
/// which has nothing to put in order.
pub fn go() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `run` is on this thread's stack, for its mark is set; what lies between is the driver's, whose thread ends there in Windows too.
    unsafe {
        code::end(STACK.get());
    }
}

#[cfg(target_arch = "x86_64")]
mod code {
    use std::arch::naked_asm;

    use super::{PVOID, Start};

    // Calls `start` with `context`, having written the stack pointer to `place`. In the convention of System V on every system, in which the
    // caller keeps what has to be kept but for six registers. The routine finds its argument in the register of either convention, and room
    // for its four arguments as that of Windows has it.
    macro_rules! begin {
        ($before:literal, $prologue_1:literal, $prologue_2:literal, $after:literal) => {
            #[unsafe(naked)]
            pub unsafe extern "sysv64" fn begin(start: Start, context: PVOID, place: *mut usize) {
                naked_asm!(
                    $before,
                    "push rbp",
                    "push rbx",
                    "push r12",
                    "push r13",
                    "push r14",
                    "push r15",
                    $prologue_1,
                    "sub rsp, 40",
                    $prologue_2,
                    "mov [rdx], rsp",
                    "mov rax, rdi",
                    "mov rcx, rsi",
                    "mov rdi, rsi",
                    "call rax",
                    "add rsp, 40",
                    "pop r15",
                    "pop r14",
                    "pop r13",
                    "pop r12",
                    "pop rbx",
                    "pop rbp",
                    "ret",
                    $after,
                    me = sym begin,
                )
            }
        };
    }

    // What an unwinder needs to get past it: exceptions of a driver are looked at from frame to frame.
    #[cfg(windows)]
    begin!(
        ".seh_proc {me}",
        ".seh_pushreg rbp\n.seh_pushreg rbx\n.seh_pushreg r12\n.seh_pushreg r13\n.seh_pushreg r14\n.seh_pushreg r15",
        ".seh_stackalloc 40\n.seh_endprologue",
        ".seh_endproc"
    );
    #[cfg(not(windows))]
    begin!(".cfi_startproc\n/* {me} */", ".cfi_def_cfa_offset 56", ".cfi_def_cfa_offset 96", ".cfi_endproc");

    /// Goes on behind the call of a `begin` that runs, with the stack pointer that it has written.
    #[unsafe(naked)]
    pub unsafe extern "sysv64" fn end(stack: usize) {
        naked_asm!(
            "mov rsp, rdi",
            "add rsp, 40",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbx",
            "pop rbp",
            "ret",
        )
    }
}
