//! Tokens: the 32 bits that name registered bytes in requests.
//!
//! ```text
//! 31            11 10    8 7        0
//! +---------------+-------+----------+
//! | number        | gen.  | key      |
//! +---------------+-------+----------+
//! ```
//!
//! The number is a place in the table of tokens; zero is not one, so zero is never a token. Generation and key together are
//! the *tag* that the place has to have for the token to be good. The generation counts, so that the tokens a place had
//! before stay bad for its next seven tags; the key is random, so that older tokens and guesses are bad too, all but one in
//! 256.

/// How many numbers tokens have room for, zero among them.
pub const NUMBERS: u32 = 1 << (u32::BITS - TAG_BITS);

const KEY_BITS: u32 = 8;
const GENERATION_BITS: u32 = 3;
const TAG_BITS: u32 = KEY_BITS + GENERATION_BITS;

const KEY_MASK: u32 = (1 << KEY_BITS) - 1;
const TAG_MASK: u32 = (1 << TAG_BITS) - 1;

/// The number of the place that `token` names.
#[inline]
pub const fn number_of(token: u32) -> u32 {
    token >> TAG_BITS
}

/// What a token has besides its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u16);

impl Tag {
    /// The tag of `token`.
    #[inline]
    pub const fn of(token: u32) -> Self {
        Self::from_bits(token & TAG_MASK)
    }

    /// The token for the place `number` with this tag.
    #[inline]
    pub const fn token(self, number: u32) -> u32 {
        number << TAG_BITS | self.0 as u32
    }

    const fn from_bits(bits: u32) -> Self {
        Self((bits & TAG_MASK) as u16)
    }

    /// The tag after the last one of a place, which `stamp` keeps.
    ///
    /// It has another generation and another key than that one, a key made of `random`, and is not `used`. At most eight tags
    /// of a place are used at a time, so only a few keys are tried.
    pub fn next(stamp: &mut u32, random: u32, used: impl Fn(Self) -> bool) -> Self {
        let generation = (*stamp >> KEY_BITS).wrapping_add(1) << KEY_BITS;
        let mut key = random & KEY_MASK;
        loop {
            let tag = Self::from_bits(generation | key);
            if key != *stamp & KEY_MASK && !used(tag) {
                *stamp = u32::from(tag.0);
                return tag;
            }
            key = (key + 1) & KEY_MASK;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_tag_has_another_generation_and_another_key() {
        let mut stamp = 0;
        for random in 0..1000 {
            let before = stamp;
            // The worst random numbers: the key of the last tag again.
            let tag = Tag::next(&mut stamp, if random % 2 == 0 { before } else { random }, |_| false);
            assert_ne!(before & KEY_MASK, stamp & KEY_MASK);
            assert_ne!(before >> KEY_BITS, stamp >> KEY_BITS);
            assert_eq!(Tag::of(tag.token(77)), tag);
            assert_eq!(number_of(tag.token(77)), 77);
        }
    }

    #[test]
    fn a_used_tag_is_not_given_again() {
        let mut stamp = 0;
        let first = Tag::next(&mut stamp, 9, |_| false);
        for _ in 0..7 {
            Tag::next(&mut stamp, 40, |_| false);
        }
        assert_ne!(Tag::next(&mut stamp, 9, |tag| tag == first), first);
    }
}
