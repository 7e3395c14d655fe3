//! `ProbeForRead` and `ProbeForWrite`: whether a buffer lies where a program's memory may be.
//!
//! What they refuse is an exception, which a driver handles: `__except` in an image. In a driver that is linked in nothing can.

use wdk_bindings::{NTSTATUS, PVOID, SIZE_T, STATUS_ACCESS_VIOLATION, ULONG};

use super::exception::raise;
use crate::{report::bug_check, routine::routine, rule::Rule};

/// `STATUS_DATATYPE_MISALIGNMENT`.
const MISALIGNED: NTSTATUS = 0x8000_0002_u32.cast_signed();
/// `MmUserProbeAddress`: no program has memory from here on.
const END: usize = 0x7FFF_FFFF_0000;
/// No program has memory below this address.
const LOWEST: usize = 0x1_0000;

/// What is wrong with a buffer.
fn refused(name: &str, address: PVOID, length: SIZE_T, alignment: ULONG) -> Option<NTSTATUS> {
    if ![1, 2, 4, 8, 16].contains(&alignment) {
        bug_check(Rule::BadArgument, format_args!("{name} with an alignment of {alignment}: 1, 2, 4, 8 or 16"));
    }
    if length == 0 {
        return None;
    }
    if !address.addr().is_multiple_of(alignment as usize) {
        return Some(MISALIGNED);
    }
    let end = usize::try_from(length).ok().and_then(|length| address.addr().checked_add(length));
    end.is_none_or(|end| end > END).then_some(STATUS_ACCESS_VIOLATION)
}

/// It compares addresses and touches no memory: what is not there, a null pointer's included, is an exception at the driver's own access.
#[unsafe(no_mangle)]
extern "C-unwind" fn ProbeForRead(address: PVOID, length: SIZE_T, alignment: ULONG) {
    let refused = routine!("ProbeForRead", APC_LEVEL, |_| refused("ProbeForRead", address, length, alignment));
    if let Some(status) = refused {
        raise("ProbeForRead", status);
    }
}

/// On Windows each page is written too, so that one that is only to be read is refused, or that is not there. Here those of low addresses
/// are refused, a null pointer's included: no program has memory there.
#[unsafe(no_mangle)]
extern "C-unwind" fn ProbeForWrite(address: PVOID, length: SIZE_T, alignment: ULONG) {
    let refused = routine!("ProbeForWrite", APC_LEVEL, |_| {
        let is_absent = length != 0 && address.addr() < LOWEST;
        refused("ProbeForWrite", address, length, alignment).or_else(|| is_absent.then_some(STATUS_ACCESS_VIOLATION))
    });
    if let Some(status) = refused {
        raise("ProbeForWrite", status);
    }
}
