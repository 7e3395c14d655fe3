//! Processors, counted across groups: their indices are what the engine calls them by.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use engine::os::Affinity;
use kernel::check;
use ndkpi::NtStatus;
use wdk_sys::{
    ALL_PROCESSOR_GROUPS, PROCESSOR_NUMBER, USHORT,
    ntddk::{
        KeGetCurrentProcessorNumberEx, KeGetProcessorIndexFromNumber, KeGetProcessorNumberFromIndex,
        KeQueryActiveProcessorCountEx,
    },
};

/// The number of processors when the driver was loaded. Those that are added later are not used.
static KNOWN: AtomicU32 = AtomicU32::new(1);

/// Counts the processors.
pub fn count() {
    #[expect(clippy::cast_possible_truncation, reason = "the constant is the largest USHORT")]
    const ALL: USHORT = ALL_PROCESSOR_GROUPS as USHORT;
    // SAFETY: the routine has no conditions.
    let active = unsafe { KeQueryActiveProcessorCountEx(ALL) };
    KNOWN.store(active.max(1), Relaxed);
}

/// The number of processors.
pub fn known() -> u32 {
    KNOWN.load(Relaxed)
}

/// The processor that asks; one that was added later is called by another's index.
pub fn current() -> u32 {
    // SAFETY: a null pointer says that only the index is wanted.
    let index = unsafe { KeGetCurrentProcessorNumberEx(core::ptr::null_mut()) };
    index % known()
}

/// Group and number of the processor with that index.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if there is none.
pub fn number(index: u32) -> Result<PROCESSOR_NUMBER, NtStatus> {
    let mut number = PROCESSOR_NUMBER::default();
    // SAFETY: the place lives until the call returns.
    check(unsafe { KeGetProcessorNumberFromIndex(index, &raw mut number) })?;
    Ok(number)
}

/// One of the processors of a set, another one each time; `None` if the machine has none of them.
pub fn one_of(affinity: Affinity) -> Option<u32> {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let count = affinity.mask.count_ones();
    if count == 0 {
        return None;
    }
    let first = TURN.fetch_add(1, Relaxed) % count;
    let bits = || (0..64_u8).filter(move |bit| affinity.mask >> bit & 1 != 0);
    let from_first = bits().skip(first as usize);
    from_first.chain(bits().take(first as usize)).find_map(|bit| index(affinity.group, bit))
}

fn index(group: u16, bit: u8) -> Option<u32> {
    let mut number = PROCESSOR_NUMBER { Group: group, Number: bit, Reserved: 0 };
    // SAFETY: the number lives until the call returns. Without such a processor the index is the highest number there is.
    let index = unsafe { KeGetProcessorIndexFromNumber(&raw mut number) };
    (index < known()).then_some(index)
}
