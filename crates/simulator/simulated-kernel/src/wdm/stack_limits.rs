//! Where the stack of a thread begins and ends: of the size that Windows gives it, which is less than a thread has here.

use wdk_bindings::{NTSTATUS, PVOID, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

use crate::{context, report::bug_check, routine::routine, rule::Rule, stack};

/// `KERNEL_STACK_SIZE`.
const SIZE: usize = 0x6000;
/// `MAXIMUM_EXPANSION_SIZE`: that of a large stack, without the page behind it and what the call itself takes.
const LARGEST_EXPANSION: u64 = 0x12000 - 0x1000 - 0x1000;

type Callout = unsafe extern "C" fn(PVOID);

/// A page: what is left at least.
const PAGE: usize = 0x1000;

/// The lowest address of the stack, and the first behind it. Where this kernel's own frames between those of drivers have taken more than Windows
/// gives, a page is left.
fn limits() -> (usize, usize) {
    let (top, local) = (stack::top(), 0_u8);
    let here = (&raw const local).addr();
    ((top - SIZE).min(here - PAGE), top)
}

#[unsafe(no_mangle)]
extern "C" fn IoGetStackLimits(low: *mut usize, high: *mut usize) {
    routine!("IoGetStackLimits", HIGH_LEVEL, |_| {
        let (lowest, end) = limits();
        // SAFETY: the driver's places, which live until the call returns.
        unsafe {
            low.write(lowest);
            high.write(end);
        }
    });
}

#[unsafe(no_mangle)]
extern "C" fn IoWithinStackLimits(start: usize, size: usize) -> u32 {
    routine!("IoWithinStackLimits", HIGH_LEVEL, |_| {
        let (lowest, end) = limits();
        u32::from(start >= lowest && start.checked_add(size).is_some_and(|behind| behind <= end))
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoGetInitialStack() -> PVOID {
    routine!("IoGetInitialStack", HIGH_LEVEL, |_| std::ptr::with_exposed_provenance_mut(limits().1))
}

/// There is room enough here: the routine is called where it is.
fn expand(callout: Option<Callout>, parameter: PVOID, size: u64) -> NTSTATUS {
    let Some(callout) = callout else { bug_check(Rule::BadArgument, format_args!("a larger stack for no routine")) };
    if size > LARGEST_EXPANSION {
        return STATUS_INVALID_PARAMETER;
    }
    context::call(context::caller(), "a routine with a larger stack", || {
        // SAFETY: the driver's own routine with its own argument.
        unsafe { callout(parameter) };
    });
    STATUS_SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn KeExpandKernelStackAndCallout(callout: Option<Callout>, parameter: PVOID, size: u64) -> NTSTATUS {
    routine!("KeExpandKernelStackAndCallout", APC_LEVEL, |_| expand(callout, parameter, size))
}

#[unsafe(no_mangle)]
extern "C" fn KeExpandKernelStackAndCalloutEx(
    callout: Option<Callout>,
    parameter: PVOID,
    size: u64,
    wait: u8,
    context: PVOID,
) -> NTSTATUS {
    routine!("KeExpandKernelStackAndCalloutEx", DISPATCH_LEVEL, |_| {
        if !context.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        if wait != 0 && host::machine::current_irql() > host::machine::Irql::APC_LEVEL {
            bug_check(Rule::IrqlTooHigh, format_args!("a larger stack is waited for at a raised level"));
        }
        expand(callout, parameter, size)
    })
}
