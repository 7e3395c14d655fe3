//! Tokens: the 32 bits that name registered bytes in requests.
//!
//! ```text
//!          31               11 10        1  0
//!          +------------------+-----------+---+
//! fixed    | slot             | tag       | r |    below 0xA000_0000
//!          +------------------+-----------+---+
//!          31          17 16                  0
//!          +-------------+--------------------+
//! rotating | slot        | tag                |    from 0xA000_0000 on
//!          +-------------+--------------------+
//! ```
//!
//! The *slot* is one of the table of tokens ([`super::tokens`]); slot zero of either kind does not exist, so zero is never a
//! token. The *tag* is what makes the tokens stale that the slot had before.
//!
//! A *fixed* pair of tokens, a local one and a remote one (`r` is set), is good for one registration: the next one of the same
//! region has another slot. A slot is used again after at least [`FIXED_REST`] others, with the next of its 2^10 tags, so the same
//! pair comes back after at least 2^20 registrations. A region for fast registration keeps its pair until it is closed.
//!
//! A *rotating* object keeps its slot, and its remote token changes: windows with each bind, regions for fast registration with
//! each post if the adapter says so ([`FastTokens`](super::FastTokens)). All tokens of the slot have tags of one sequence of
//! 2^17; those that are in use when their turn comes, at most two more than are posted, are passed over. So a token comes back
//! after at least 2^16 binds, and mostly after 2^17.
//!
//! The tags of a slot step by an odd number that is chosen at random once, as their first is. An odd step goes through all tags
//! before one repeats, so both bounds hold whatever is registered, bound and closed in which order; they are no averages. That a
//! token cannot be guessed is not their purpose.

/// Bits of a fixed token below its slot.
const FIXED_BITS: u32 = 11;
const FIXED_MASK: u32 = (1 << FIXED_BITS) - 1;
/// The first rotating token.
const ROTATING: u32 = 0xA000_0000;
/// Bits of a rotating token below its slot.
const ROTATING_BITS: u32 = 17;

/// Says that a fixed token is a remote one.
const REMOTE: u32 = 1;

/// The least number of other slots that are used before a slot of fixed tokens is used again.
pub const FIXED_REST: u32 = 1024;
/// Objects with fixed tokens at one time. Their slots are numbered from one on.
pub const MOST_FIXED: u32 = (ROTATING >> FIXED_BITS) - 1 - FIXED_REST;
/// Objects with rotating tokens at one time. The last slot is left out: the token with all bits set is for mistakes.
pub const MOST_ROTATING: u32 = ((u32::MAX - ROTATING) >> ROTATING_BITS) - 1;

//= invariant 7
/// The slot that `token` names, and if its tokens rotate.
#[inline]
pub const fn slot_of(token: u32) -> (u32, bool) {
    if token < ROTATING { (token >> FIXED_BITS, false) } else { ((token - ROTATING) >> ROTATING_BITS, true) }
}

/// Returns true if two tokens are of one region or window, whatever is registered or bound.
pub const fn are_of_one_object(one: u32, other: u32) -> bool {
    let ((one, rotates), (other, does_other)) = (slot_of(one), slot_of(other));
    one == other && rotates == does_other
}

/// The tokens of a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// For the consumer's own requests.
    pub local: u32,
    /// For peers.
    pub remote: u32,
}

impl Pair {
    /// The next pair of a slot for fixed tokens.
    pub const fn next(slot: u32, stamp: &mut u32, random: u32) -> Self {
        let tag = (step(stamp, random) << 1) & FIXED_MASK;
        let local = slot << FIXED_BITS | tag;
        Self { local, remote: local | REMOTE }
    }

    /// The pair that the fixed token `local` is of.
    pub const fn of_local(local: u32) -> Self {
        Self { local, remote: local | REMOTE }
    }
}

const TAG_MASK: u32 = (1 << ROTATING_BITS) - 1;

/// The next tag of a slot, of which fixed tokens take the low bits.
///
/// `stamp` is what the slot remembers, whatever lies in it: the last tag, and above it by how much they step. Zero at first, and
/// never again. `random` counts for the first tag only.
const fn step(stamp: &mut u32, random: u32) -> u32 {
    if *stamp == 0 {
        *stamp = random | 1 << ROTATING_BITS;
    }
    let step = *stamp >> ROTATING_BITS << 1 | 1;
    let tag = stamp.wrapping_add(step) & TAG_MASK;
    *stamp = *stamp & !TAG_MASK | tag;
    tag
}

/// Gives the object in a slot its next token.
pub struct Rotation<'a> {
    stamp: &'a mut u32,
    /// A token of the slot.
    token: u32,
}

impl<'a> Rotation<'a> {
    /// For the slot that `token` names.
    #[inline]
    pub const fn new(stamp: &'a mut u32, token: u32) -> Self {
        Self { stamp, token }
    }

    /// The first token of an object in the slot.
    pub const fn first(slot: u32, stamp: &'a mut u32, random: u32) -> u32 {
        ROTATING + (slot << ROTATING_BITS | step(stamp, random))
    }

    /// The next token that is not `used`, which at most `most` are; `None` if the object's tokens are fixed.
    pub fn next(self, most: usize, used: impl Fn(u32) -> bool) -> Option<u32> {
        if !slot_of(self.token).1 {
            return None;
        }
        let mut tokens = (0..=most).map(|_| self.token & !TAG_MASK | step(self.stamp, 0));
        tokens.find(|token| !used(*token))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn every_tag_comes_before_one_comes_again() {
        for random in [0, 1, u32::MAX, 0x1234_5678, 0xFFFE_0000] {
            let (mut stamp, mut tags) = (0, vec![false; 1 << ROTATING_BITS]);
            for _ in 0..2 {
                for number in 0..1 << ROTATING_BITS {
                    let tag = step(&mut stamp, random ^ number) as usize;
                    assert!(!core::mem::replace(&mut tags[tag], true), "{random:#x}: {tag:#x} after {number}");
                }
                tags.fill(false);
            }
            let mut pairs = vec![false; 1 << FIXED_BITS];
            for number in 0..1 << (FIXED_BITS - 1) {
                let pair = Pair::next(0, &mut stamp, number);
                assert!(!core::mem::replace(&mut pairs[pair.local as usize], true), "{random:#x}: {number}");
            }
        }
    }

    #[test]
    fn a_token_names_its_slot() {
        for slot in [1, 77, MOST_FIXED + FIXED_REST] {
            let pair = Pair::next(slot, &mut 0, u32::MAX);
            assert_eq!((slot_of(pair.local), slot_of(pair.remote)), ((slot, false), (slot, false)));
            assert_eq!(Pair::of_local(pair.local), pair);
            assert_eq!(Rotation::new(&mut 0, pair.local).next(0, |_| false), None);
        }
        for slot in [1, 77, MOST_ROTATING] {
            let mut stamp = 0;
            let token = Rotation::first(slot, &mut stamp, 0x8765_4321);
            assert_eq!(slot_of(token), (slot, true));
            let next = Rotation::new(&mut stamp, token).next(0, |_| false).expect("it rotates");
            assert_eq!(slot_of(next), (slot, true));
        }
        assert_eq!(slot_of(0), (0, false));
        assert_eq!((MOST_FIXED, MOST_ROTATING), (1_309_695, 12_286));
    }

    #[test]
    fn a_token_in_use_is_passed_over() {
        let mut stamp = 0;
        let first = Rotation::first(1, &mut stamp, 5);
        let used = |token| token == first;
        let mut least = u32::MAX;
        for number in 0..2 << ROTATING_BITS {
            let token = Rotation::new(&mut stamp, first).next(1, used).expect("one is not used");
            assert_ne!(token, first);
            if token & TAG_MASK == 0 {
                least = least.min(number);
            }
        }
        assert!(least < 1 << ROTATING_BITS);
    }
}
