//! How times are written on the wire (RoCEv2 5.2, 6.5, 8.2). Times of this crate are microseconds.

/// Microseconds of a five-bit time-out code: 4.096 µs · 2^code. Code 0 is none.
#[must_use]
pub const fn of_code(code: u8) -> Option<u64> {
    match code & 31 {
        0 => None,
        code => Some((4096 << code) / 1000),
    }
}

/// Hundredths of milliseconds of the 32 codes of an RNR NAK.
const RNR: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Microseconds that a requester waits at least after an RNR NAK with this code.
#[must_use]
pub const fn of_rnr_code(code: u8) -> u64 {
    RNR[(code & 31) as usize] as u64 * 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_times() {
        assert_eq!(of_code(0), None);
        assert_eq!(of_code(14), Some(67_108));
        assert_eq!(of_code(20), Some(4_294_967));
        assert_eq!(of_rnr_code(0), 655_360);
        assert_eq!(of_rnr_code(1), 10);
        assert_eq!(of_rnr_code(14), 1_280);
        assert_eq!(of_rnr_code(31), 491_520);
    }
}
