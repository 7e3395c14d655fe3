//! Handles of the kernel and of processes: of threads and of registry keys.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::AcqRel},
};

use litemap::LiteMap;
use wdk_bindings::{OBJ_KERNEL_HANDLE, ULONG};

use crate::{
    context::{self, SYSTEM_PROCESS},
    report::bug_check,
    rule::Rule,
    state::{Part, State},
};

/// The processes of handles that are not the kernel's.
#[derive(Default)]
pub struct Handles(LiteMap<usize, u32>);

impl Part for Mutex<Handles> {}

/// Handles of threads and keys: each is used once. They look like the kernel's.
static NEXT_HANDLE: AtomicU64 = AtomicU64::new(1);
const KERNEL_HANDLES: u64 = 0xFFFF_FFFF_8000_0000;

/// A handle that nothing else has had: the kernel's, if the driver says so, or one of the process in whose context it runs. A thread of
/// the system, such as that of `DriverEntry`, is in the system's own process; in another one the program could use the handle.
pub fn new_handle(state: &State, attributes: ULONG, what: &str) -> usize {
    let is_kernels = attributes & OBJ_KERNEL_HANDLE != 0;
    let process = context::process();
    if !is_kernels && process != SYSTEM_PROCESS {
        bug_check(
            Rule::BadArgument,
            format_args!("{what} whose handle is not a kernel handle, in the context of process {process}"),
        );
    }
    let number = 4 * NEXT_HANDLE.fetch_add(1, AcqRel);
    let handle = usize::try_from(if is_kernels { KERNEL_HANDLES + number } else { number }).unwrap_or(0);
    if !is_kernels {
        state.locked::<Handles>().0.insert(handle, process);
    }
    handle
}

/// Ends the test if a handle is used in the context of another process than that whose it is.
pub fn check_handle(state: &State, handle: usize) {
    let (process, here) = (state.locked::<Handles>().0.get(&handle).copied(), context::process());
    if let Some(process) = process.filter(|&process| process != here) {
        let words = "and is no kernel handle: there it is nothing, or another one";
        bug_check(
            Rule::BadHandle,
            format_args!(
                "the handle {handle:#x} is one of process {process}, is used in the context of process {here}, {words}"
            ),
        );
    }
}

/// From here on a handle may be used in the context of any process.
pub fn forget_process(state: &State, handle: usize) {
    state.locked::<Handles>().0.remove(&handle);
}
