//! CRC-32 of Ethernet, which is that of the ICRC (`RoCEv2 2`), without a standard library.
//!
//! | where | by |
//! |---|---|
//! | programs (feature `std`) | `crc32fast`, which asks the processor at run time |
//! | x64 | carry-less multiplication (PCLMULQDQ), if CPUID has it |
//! | ARM64, drivers (feature `kernel`) | the instructions for CRC-32, if `ID_AA64ISAR0_EL1` has them |
//! | any other | the tables of `crc32fast` |
//!
//! A driver for x64 may use the XMM registers at any IRQL, also in interrupts, and need not save them ("Using Floating Point in a WDM
//! Driver", Microsoft); its compiler does so for copies. The wider ones of AVX it would have to save, by `KeSaveExtendedProcessorState`:
//! nothing here uses them without `std`. The instructions of ARM64 work on general registers.

#![no_std]

#[cfg(any(test, feature = "std"))]
extern crate std;

#[cfg(all(target_arch = "aarch64", any(test, all(feature = "kernel", not(feature = "std")))))]
mod arm64;
#[cfg(all(target_arch = "x86_64", any(test, not(feature = "std"))))]
mod x64;

/// The CRC of `bytes` behind others, whose CRC is `before`: zero if there are none.
///
/// Allocates nothing and takes a time that the length bounds; any IRQL.
#[must_use]
#[inline]
pub fn update(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(feature = "std")))]
    if let Some(crc) = x64::update(before, bytes) {
        return crc;
    }
    #[cfg(all(target_arch = "aarch64", feature = "kernel", not(feature = "std")))]
    if let Some(crc) = arm64::update(before, bytes) {
        return crc;
    }
    by_library(before, bytes)
}

/// With `std` by what the processor has, otherwise by tables, sixteen bytes at a time.
#[inline]
fn by_library(before: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(before);
    crc.update(bytes);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use std::{vec, vec::Vec};

    use proptest::{collection::vec as bytes, prelude::any, prop_assert_eq, proptest};

    use super::{by_library, update};

    /// One bit at a time, as the polynomial says.
    fn slow(before: u32, bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!before, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 })
        })
    }

    /// A way to the CRC, and its name.
    type Way = (&'static str, fn(u32, &[u8]) -> u32);

    /// All that this processor has.
    fn ways() -> Vec<Way> {
        let mut ways: Vec<Way> = vec![("update", update), ("crc32fast", by_library)];
        #[cfg(target_arch = "x86_64")]
        if std::is_x86_feature_detected!("pclmulqdq") {
            ways.push(("PCLMULQDQ", |before, bytes| {
                let folded = super::x64::update(before, bytes);
                assert_eq!(folded.is_some(), bytes.len() >= super::x64::LEAST, "{} bytes", bytes.len());
                folded.unwrap_or_else(|| by_library(before, bytes))
            }));
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("crc") {
            // SAFETY: the processor has the instructions.
            ways.push(("CRC32X", |before, bytes| unsafe { super::arm64::by_instructions(before, bytes) }));
        }
        ways
    }

    #[test]
    fn the_check_value_of_the_polynomial() {
        for (way, crc) in ways() {
            assert_eq!(crc(0, b"123456789"), 0xCBF4_3926, "{way}");
            assert_eq!(crc(0, b""), 0, "{way}");
        }
    }

    #[test]
    fn every_length_at_every_offset_of_a_block() {
        let bytes: Vec<u8> = (0..700_u32).map(|index| (index.wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        for (way, crc) in ways() {
            for offset in 0..16 {
                for length in 0..=bytes.len() - offset {
                    let part = &bytes[offset..][..length];
                    assert_eq!(crc(0x1234_5678, part), slow(0x1234_5678, part), "{way}, {length} bytes at {offset}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_behind_any_others_in_any_parts(
            before in any::<u32>(),
            (all, cut) in (bytes(any::<u8>(), 0..6000), any::<proptest::sample::Index>()),
        ) {
            let (first, last) = all.split_at(cut.index(all.len() + 1));
            let expected = slow(before, &all);
            for (way, crc) in ways() {
                prop_assert_eq!(crc(before, &all), expected, "{}", way);
                prop_assert_eq!(crc(crc(before, first), last), expected, "{}, in two parts", way);
            }
        }
    }
}
