//! The instructions for CRC-32, which every processor has from ARMv8.1 on, and most of ARMv8.0 have.

use core::arch::aarch64::{__crc32b, __crc32d};
#[cfg(all(feature = "kernel", not(feature = "std")))]
use core::{
    arch::asm,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

/// The CRC-32 of `bytes` behind others with the CRC `before`; `None` if the processor has no such instructions.
#[cfg(all(feature = "kernel", not(feature = "std")))]
#[inline]
pub fn update(before: u32, bytes: &[u8]) -> Option<u32> {
    // SAFETY: the processor has said that it has the instructions.
    has_instructions().then(|| unsafe { by_instructions(before, bytes) })
}

/// Asks the processor once, and remembers.
#[cfg(all(feature = "kernel", not(feature = "std")))]
fn has_instructions() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    let mut known = KNOWN.load(Relaxed);
    if known == UNKNOWN {
        let features: u64;
        // SAFETY: reads a register that every ARM64 processor has, and nothing else. The feature `kernel` says that this is one, which may.
        unsafe { asm!("mrs {}, ID_AA64ISAR0_EL1", out(reg) features, options(nomem, nostack, preserves_flags, pure)) };
        // Its field CRC32.
        known = if (features >> 16) & 0xF == 0 { NO } else { YES };
        KNOWN.store(known, Relaxed);
    }
    known == YES
}

/// Eight bytes at a time.
#[target_feature(enable = "crc")]
pub fn by_instructions(before: u32, bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut crc = !before;
    for word in words {
        crc = __crc32d(crc, u64::from_le_bytes(*word));
    }
    for byte in tail {
        crc = __crc32b(crc, *byte);
    }
    !crc
}
