//! Identifiers that nothing else has.

use wdk_bindings::{GUID, NTSTATUS, STATUS_SUCCESS};

use crate::routine::routine;

/// Spreads a number over all bits, each number to another one (the last steps of Vigna's splitmix64).
const fn spread(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// One of version 4: random numbers, by the seed if there is one.
#[unsafe(no_mangle)]
extern "C" fn ExUuidCreate(place: *mut GUID) -> NTSTATUS {
    routine!("ExUuidCreate", PASSIVE_LEVEL, |state| {
        let number = state.next().wrapping_add(state.seed.unwrap_or(0) << 32);
        let high = spread(number);
        // The version is in four bits of the first half, the variant in two of the second.
        let high = high & !0xF000 | 0x4000;
        let low = spread(!number) & !(3 << 62) | 2 << 62;
        let first = high.to_be_bytes();
        let guid = GUID {
            Data1: u32::from_be_bytes([first[0], first[1], first[2], first[3]]),
            Data2: u16::from_be_bytes([first[4], first[5]]),
            Data3: u16::from_be_bytes([first[6], first[7]]),
            Data4: low.to_be_bytes(),
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(guid) };
        STATUS_SUCCESS
    })
}
