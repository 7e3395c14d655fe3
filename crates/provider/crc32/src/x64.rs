//! Bytes folded by carry-less multiplication. V. Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
//! Instruction", Intel, 2009.
//!
//! A block of 128 bits that others follow is worth what its two halves, multiplied by powers of x modulo the polynomial, are worth where the
//! following ones lie. So a block is folded into one further behind, until one is left, which has the CRC of all: the tables take that.

use core::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cvtsi32_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_unpackhi_epi64,
    _mm_xor_si128,
};

cpufeatures::new!(carry_less, "pclmulqdq");

type Block = [u8; 16];

/// So many lanes fold side by side: the processor multiplies while other products are under way.
const LANES: usize = 4;
/// Bits of them all.
const ALL_LANES: u32 = 4 * 128;
/// Fewer bytes go by the tables, which are as fast then.
pub const LEAST: usize = LANES * size_of::<Block>();

/// The CRC-32 of `bytes` behind others with the CRC `before`; `None` if they are few, or the processor has no such instruction.
#[inline]
pub fn update(before: u32, bytes: &[u8]) -> Option<u32> {
    // Asks the processor once, and remembers.
    if bytes.len() < LEAST || !carry_less::get() {
        return None;
    }
    // SAFETY: CPUID has said that the processor has the instruction. XMM registers are there on any x64, also in a kernel.
    Some(unsafe { folded(before, bytes) })
}

/// x to this power, modulo the polynomial, its bits in the order of the CRC's: that of the lowest power first. One bit further up, for the
/// product of two such numbers is one bit short of its place.
const fn power(exponent: u32) -> i64 {
    let (mut value, mut count) = (1_u32 << 31, 0);
    while count < exponent {
        value = (value >> 1) ^ (0xEDB8_8320 * (value & 1));
        count += 1;
    }
    ((value as u64) << 1).cast_signed()
}

/// What takes a block over so many bits: the factors of its halves, the lower one of which has the higher powers.
const fn over(bits: u32) -> [i64; 2] {
    [power(bits + 32), power(bits - 32)]
}

const NEXT: [i64; 2] = over(128);
const NEXT_OF_LANE: [i64; 2] = over(ALL_LANES);

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn load(block: &Block) -> __m128i {
    let [low, high] = *block.as_chunks::<8>().0 else { unreachable!("a block is two times eight bytes") };
    _mm_set_epi64x(i64::from_le_bytes(high), i64::from_le_bytes(low))
}

/// `block`, taken over to `onto`.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn fold(block: __m128i, by: [i64; 2], onto: __m128i) -> __m128i {
    let by = _mm_set_epi64x(by[1], by[0]);
    let low = _mm_clmulepi64_si128::<0x00>(block, by);
    let high = _mm_clmulepi64_si128::<0x11>(block, by);
    _mm_xor_si128(_mm_xor_si128(low, high), onto)
}

#[target_feature(enable = "pclmulqdq")]
fn folded(before: u32, bytes: &[u8]) -> u32 {
    let (blocks, tail) = bytes.as_chunks::<16>();
    let Some((first, rest)) = blocks.split_first_chunk::<LANES>() else { return super::by_library(before, bytes) };
    let [a, b, c, d] = first;
    let a = _mm_xor_si128(load(a), _mm_cvtsi32_si128((!before).cast_signed()));
    let mut lanes = [a, load(b), load(c), load(d)];
    let (groups, rest) = rest.as_chunks::<LANES>();
    for group in groups {
        for (lane, block) in lanes.iter_mut().zip(group) {
            *lane = fold(*lane, NEXT_OF_LANE, load(block));
        }
    }
    let [a, b, c, d] = lanes;
    let mut block = fold(fold(fold(a, NEXT, b), NEXT, c), NEXT, d);
    for next in rest {
        block = fold(block, NEXT, load(next));
    }
    let (low, high) = (_mm_cvtsi128_si64(block), _mm_cvtsi128_si64(_mm_unpackhi_epi64(block, block)));
    let mut last = [0; size_of::<Block>()];
    last[..8].copy_from_slice(&low.to_le_bytes());
    last[8..].copy_from_slice(&high.to_le_bytes());
    // The block has all that was before in it: the register is zero there, whose CRC is all ones.
    super::by_library(super::by_library(u32::MAX, &last), tail)
}

#[cfg(test)]
mod tests {
    use super::{ALL_LANES, over, power};

    #[test]
    fn powers_are_the_remainders_of_the_polynomial() {
        // The bits of x^0 to x^31 stand alone, and x^32 is what the polynomial has besides it.
        for exponent in 0..32 {
            assert_eq!(power(exponent), 1 << (32 - exponent), "x^{exponent}");
        }
        assert_eq!(power(32), 0xEDB8_8320 << 1);
        // As Intel's paper has them for the reflected polynomial.
        assert_eq!(over(ALL_LANES), [0x1_5444_2BD4, 0x1_C6E4_1596]);
        assert_eq!(over(128), [0x1_7519_97D0, 0x0_CCAA_009E]);
    }
}
