//! What the processor refuses in a process and a kernel may do, and what nobody may.
//!
//! A handler of exceptions that is asked before all others looks where an exception comes from. In an image
//!
//! - reads and writes of `cr8` are reads and changes of the IRQL;
//! - breakpoints that the loader has put in place of instructions that read the processor's block read that of the simulated
//!   processor ([`super::processor_block`]);
//! - reads of the data that the kernel shares with programs, by its address in the  read the simulated clocks
//!   ([`super::shared_data`]);
//! - any other privileged instruction is a broken rule that names it.
//!
//! Touches of the paged pool come here too. What is left goes to handlers of the driver (`__try`), and if it has none it is a broken
//! rule. An instruction that reads memory of the kernel is not carried out by hand: a copy of it, whose operand is the simulated memory,
//! runs elsewhere and jumps back ([`super::stubs`]).

use std::{panic, sync::Once};

use host::machine::{self, Irql};
use iced_x86::{Code, Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, Register};
use windows_sys::Win32::{
    Foundation::{
        EXCEPTION_ACCESS_VIOLATION, EXCEPTION_BREAKPOINT, EXCEPTION_PRIV_INSTRUCTION, NTSTATUS, STATUS_STACK_OVERFLOW,
    },
    System::{
        Diagnostics::Debug::{
            AddVectoredExceptionHandler, CONTEXT, EXCEPTION_CONTINUE_EXECUTION, EXCEPTION_CONTINUE_SEARCH,
            EXCEPTION_POINTERS, EXCEPTION_RECORD, SetUnhandledExceptionFilter,
        },
        Threading::GetCurrentThreadStackLimits,
    },
};

use super::{processor_block, shared_data, stubs};
use crate::{
    paged, pool,
    report::{self, bug_check},
    routine::{Limit, carry_out},
    rule::Rule,
    sites::{
        images::{describe, with_image},
        origin,
    },
};

/// Installs the handlers, once.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a function of this program.
        let first = unsafe { AddVectoredExceptionHandler(1, Some(handle)) };
        assert!(!first.is_null(), "no handler for exceptions");
        // SAFETY: the filter is a function of this program.
        unsafe { SetUnhandledExceptionFilter(Some(unhandled)) };
    });
}

/// An instruction of an image, as it was before the loader changed it.
struct Original {
    instruction: Instruction,
    /// The breakpoint there is the loader's.
    patched: bool,
    live: bool,
}

fn place(address: usize) -> Option<Original> {
    with_image(address, |image| {
        let offset = u32::try_from(address - image.base).unwrap_or(u32::MAX);
        let first = image.patched.binary_search_by_key(&offset, |&(place, _)| place);
        let first = first.ok().map(|index| image.patched[index].1);
        let mut bytes = [0; 15];
        let length = bytes.len().min(image.base + image.size - address);
        if image.live {
            let code = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: bytes of an image that is loaded, and code runs there.
            unsafe { code.copy_to_nonoverlapping(bytes.as_mut_ptr(), length) };
        }
        if let Some(first) = first {
            bytes[0] = first;
        }
        let mut decoder = Decoder::with_ip(64, &bytes[..length], address as u64, DecoderOptions::NONE);
        Original { instruction: decoder.decode(), patched: first.is_some(), live: image.live }
    })
}

unsafe extern "system" fn handle(pointers: *mut EXCEPTION_POINTERS) -> i32 {
    // SAFETY: the system passes the exception, which lives until the handler returns. Nobody else has the context.
    let (record, context) = unsafe {
        let pointers = &*pointers;
        let record = &*pointers.ExceptionRecord;
        (record, &mut *pointers.ContextRecord)
    };
    let outcome = panic::catch_unwind(panic::AssertUnwindSafe(|| try_to(record, context)));
    match outcome {
        Ok(true) => EXCEPTION_CONTINUE_EXECUTION,
        Ok(false) => EXCEPTION_CONTINUE_SEARCH,
        Err(panic) => report::bug_check_panic(&report::words_of(&*panic)),
    }
}

/// The address that an access was refused at, and if it was to run there.
fn refused(record: &EXCEPTION_RECORD) -> (usize, bool) {
    const RUN: usize = 8;
    (record.ExceptionInformation[1], record.ExceptionInformation[0] == RUN)
}

/// The place in an image to which a call that has just been made would return, if it is an image's.
fn caller(context: &CONTEXT) -> Option<String> {
    let (mut low, mut high) = (0, 0);
    // SAFETY: both places are variables here.
    unsafe { GetCurrentThreadStackLimits(&raw mut low, &raw mut high) };
    let stack = usize::try_from(context.Rsp).ok()?;
    if stack % size_of::<usize>() != 0 || !(low..=high - size_of::<usize>()).contains(&stack) {
        return None;
    }
    let pushed = std::ptr::with_exposed_provenance::<usize>(stack);
    // SAFETY: an aligned word of this thread's stack, above the stack pointer: the thread has written it.
    describe(unsafe { pushed.read() })
}

/// Does what the instruction wanted, if a kernel may do it. Whether it has.
fn try_to(record: &EXCEPTION_RECORD, context: &mut CONTEXT) -> bool {
    let at = record.ExceptionAddress.addr();
    match record.ExceptionCode {
        EXCEPTION_ACCESS_VIOLATION => {
            let (address, run) = refused(record);
            if paged::fault(address, run) {
                return true;
            }
            if run
                && let Some(where_to) =
                    with_image(address, |image| !image.live).filter(|&gone| gone).and(describe(address))
            {
                bug_check(Rule::UnloadedCode, format_args!("{where_to} is called"));
            }
            let Some(place) = place(at).filter(|place| place.live) else { return false };
            if let Some(there) = shared_data::simulated(address) {
                return go_through(context, &place.instruction, there);
            }
            // Some systems report a privileged instruction like an access that has no address.
            is_privileged(&place.instruction) && privileged(context, &place.instruction, at)
        }
        EXCEPTION_PRIV_INSTRUCTION => {
            place(at).is_some_and(|place| place.live && privileged(context, &place.instruction, at))
        }
        EXCEPTION_BREAKPOINT => {
            let Some(place) = place(at).filter(|place| place.live && place.patched) else { return false };
            let Some(there) = processor_block::simulated(place.instruction.memory_displacement64()) else {
                stop(&place.instruction, at);
            };
            go_through(context, &place.instruction, there)
        }
        _ => false,
    }
}

/// Goes on with a copy of the instruction whose operand is at `there`.
fn go_through(context: &mut CONTEXT, instruction: &Instruction, there: usize) -> bool {
    let Some(stub) = stubs::reading(instruction, there) else {
        let at = usize::try_from(instruction.ip()).unwrap_or(0);
        stop(instruction, at);
    };
    context.Rip = stub as u64;
    true
}

/// Returns true for instructions that only a kernel may carry out.
fn is_privileged(instruction: &Instruction) -> bool {
    instruction.is_privileged()
}

fn privileged(context: &mut CONTEXT, instruction: &Instruction, at: usize) -> bool {
    // `cr8` is the other operand.
    let (to_cr8, operand) = match instruction.code() {
        Code::Mov_cr_r64 if instruction.op0_register() == Register::CR8 => (true, instruction.op1_register()),
        Code::Mov_r64_cr if instruction.op1_register() == Register::CR8 => (false, instruction.op0_register()),
        _ => stop(instruction, at),
    };
    let stack = usize::try_from(context.Rsp).unwrap_or(0);
    let Some(register) = register(context, operand) else { stop(instruction, at) };
    origin::note(with_image(at, |image| image.driver), at, stack);
    if to_cr8 {
        let Ok(level) = u8::try_from(*register).map(Irql) else { stop(instruction, at) };
        carry_out("mov cr8", &Limit::at(Irql::HIGH_LEVEL), |_| {
            if level > machine::current_irql() {
                let _ = machine::raise(level);
                if level >= Irql::DISPATCH_LEVEL {
                    paged::trim();
                }
            } else {
                machine::lower(level);
            }
        });
    } else {
        *register = carry_out("mov from cr8", &Limit::at(Irql::HIGH_LEVEL), |_| u64::from(machine::current_irql().0));
    }
    context.Rip = instruction.next_ip();
    true
}

/// An instruction that this kernel does not do for an image.
fn stop(instruction: &Instruction, at: usize) -> ! {
    let mut words = String::new();
    IntelFormatter::new().format(instruction, &mut words);
    let place = describe(at).unwrap_or_default();
    bug_check(Rule::PrivilegedInstruction, format_args!("`{words}` at {place}"))
}

fn register(context: &mut CONTEXT, register: Register) -> Option<&mut u64> {
    let place = match register {
        Register::RAX => &mut context.Rax,
        Register::RBX => &mut context.Rbx,
        Register::RCX => &mut context.Rcx,
        Register::RDX => &mut context.Rdx,
        Register::RSI => &mut context.Rsi,
        Register::RDI => &mut context.Rdi,
        Register::RBP => &mut context.Rbp,
        Register::RSP => &mut context.Rsp,
        Register::R8 => &mut context.R8,
        Register::R9 => &mut context.R9,
        Register::R10 => &mut context.R10,
        Register::R11 => &mut context.R11,
        Register::R12 => &mut context.R12,
        Register::R13 => &mut context.R13,
        Register::R14 => &mut context.R14,
        Register::R15 => &mut context.R15,
        _ => return None,
    };
    Some(place)
}

/// An exception that neither this module nor the driver has handled.
unsafe extern "system" fn unhandled(pointers: *const EXCEPTION_POINTERS) -> i32 {
    // SAFETY: the system passes the exception, which lives until the filter returns.
    let (record, context) = unsafe {
        let pointers = &*pointers;
        let record = &*pointers.ExceptionRecord;
        (record, &*pointers.ContextRecord)
    };
    let at = record.ExceptionAddress.addr();
    let place = describe(at).or_else(|| caller(context)).unwrap_or_else(|| "the kernel".to_owned());
    let what = what(record.ExceptionCode, refused(record));
    let rule = match record.ExceptionCode {
        EXCEPTION_ACCESS_VIOLATION if has_poison(context) => {
            bug_check(Rule::UseAfterFree, format_args!("an address was taken from memory that is free, in {place}"))
        }
        EXCEPTION_ACCESS_VIOLATION => Rule::AccessViolation,
        _ => Rule::UnhandledException,
    };
    bug_check(rule, format_args!("{what} in {place}"))
}

/// Returns true if a register holds what free memory is filled with: then the address was made of it.
fn has_poison(context: &CONTEXT) -> bool {
    let registers = [
        context.Rax,
        context.Rbx,
        context.Rcx,
        context.Rdx,
        context.Rsi,
        context.Rdi,
        context.Rbp,
        context.R8,
        context.R9,
        context.R10,
        context.R11,
        context.R12,
        context.R13,
        context.R14,
        context.R15,
    ];
    registers.contains(&pool::POISON_WORD)
}

fn what(code: NTSTATUS, (address, run): (usize, bool)) -> String {
    /// What the compiler's check of the stack raises, and `__fastfail`.
    const STACK_BUFFER_OVERRUN: NTSTATUS = 0xC000_0409_u32.cast_signed();
    const DIVISION: NTSTATUS = 0xC000_0094_u32.cast_signed();
    match code {
        EXCEPTION_ACCESS_VIOLATION if run => format!("a call of {address:#x}, where no code is,"),
        EXCEPTION_ACCESS_VIOLATION if address == usize::MAX => "an access to an address that no memory has".to_owned(),
        EXCEPTION_ACCESS_VIOLATION => format!("an access to {address:#x}, where nothing is or may be,"),
        EXCEPTION_BREAKPOINT => "a breakpoint".to_owned(),
        STATUS_STACK_OVERFLOW => "the end of the stack".to_owned(),
        STACK_BUFFER_OVERRUN => "a fast failure: the driver's own checks have found it corrupted,".to_owned(),
        DIVISION => "a division by zero".to_owned(),
        code => format!("the exception {:#010x}", code.cast_unsigned()),
    }
}
