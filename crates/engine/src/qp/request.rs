//! Work requests: what a consumer posts.

use alloc::vec::Vec;
use core::iter;

use super::Flags;
use crate::{
    NtStatus,
    cq::Operation,
    memory::{Access, Domain, Lookup, Posted, Segment},
    os::Os,
};

/// A scatter/gather element: bytes of registered memory (`NDKPI 3.9`).
///
/// Its halves are not in the order of an `NDK_SGE`: one instruction would load both, and wait for the consumer's two stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// A virtual address inside the region, or a logical address if the token is the domain's privileged one.
    pub address: u64,
    /// The region's local token.
    pub token: u32,
    /// Bytes.
    pub length: u32,
}

impl Sge {
    /// The look-up of its token for `access`.
    #[inline]
    pub(super) const fn key(&self, access: Access) -> Lookup {
        Lookup { token: self.token, access }
    }
}

/// Resolves all elements of a request for `access`, and pushes them to `found`, which has room for them.
///
/// # Errors
///
/// That of [`Domain::resolve`] for the first element that may not be used. Those before it have been pushed.
pub(super) fn resolve_all<O: Os>(
    domain: &Domain<O>,
    first: Sge,
    others: impl Iterator<Item = Sge>,
    access: Access,
    found: &mut Vec<Segment<O>>,
) -> Result<(), NtStatus> {
    for element in iter::once(first).chain(others).filter(|element| element.length > 0) {
        found.push(domain.resolve(element.token, element.address, element.length, access)?);
    }
    Ok(())
}

/// What an initiator request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Moves bytes into a receive of the peer.
    Send {
        /// A token that the peer's adapter invalidates before the receive completes.
        invalidate: Option<u32>,
    },
    /// Moves bytes from the peer's memory.
    Read {
        /// Address in the peer's region or window.
        address: u64,
        /// The remote token of that region or window.
        token: u32,
    },
    /// Moves bytes to the peer's memory.
    Write {
        /// Address in the peer's region or window.
        address: u64,
        /// The remote token of that region or window.
        token: u32,
    },
    /// Carries out a fast registration of memory of this side.
    FastRegister(Posted),
    /// Carries out a bind of a window of this side.
    Bind(Posted),
    /// Ends the use of a fast-registered region or of a window of this side.
    Invalidate {
        /// Its invalidation token.
        token: u32,
    },
}

impl Work {
    /// The type of the request's completion.
    #[inline]
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Send { .. } => Operation::Send,
            Self::Read { .. } => Operation::Read,
            Self::Write { .. } => Operation::Write,
            Self::FastRegister(_) => Operation::FastRegister,
            Self::Bind(_) => Operation::Bind,
            Self::Invalidate { .. } => Operation::Invalidate,
        }
    }

    /// Returns true if the request moves bytes between the two sides.
    #[must_use]
    pub const fn moves_bytes(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Read { .. } | Self::Write { .. })
    }
}

/// A request in the send queue. Elements and inline bytes that do not fit lie in queues of their own.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest {
    pub context: usize,
    pub work: Work,
    pub flags: Flags,
    /// Bytes of the data.
    pub length: u32,
    pub data: LocalData,
}

/// The local data of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalData {
    /// In registered memory.
    Elements {
        /// The number of elements.
        count: u32,
        /// The first, if there is one. The others lie in the queue of elements.
        first: Sge,
    },
    /// In the request, and if they are more than [`INLINE`], in the queue of inline bytes too.
    Inline(InlineData),
}

impl LocalData {
    /// No data.
    pub const NONE: Self = Self::Elements { count: 0, first: Sge { address: 0, token: 0, length: 0 } };

    /// The token of the first element; zero, which is none, without one.
    pub const fn first_token(&self) -> u32 {
        match self {
            Self::Elements { first, .. } => first.token,
            Self::Inline(_) => 0,
        }
    }

    /// How many entries of the queue of elements belong to the request.
    pub const fn queued_elements(&self) -> usize {
        match self {
            Self::Elements { count, .. } => count.saturating_sub(1) as usize,
            Self::Inline(_) => 0,
        }
    }
}

/// Inline bytes that a request holds itself: the size of an element.
pub const INLINE: usize = size_of::<Sge>();

/// Up to [`INLINE`] bytes, in two words that are stored and loaded as such.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct InlineData {
    low: u64,
    high: u64,
}

impl InlineData {
    /// `bytes`, of which there are at most [`INLINE`].
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        match bytes.split_first_chunk() {
            Some((first, [])) => Self { low: u64::from_le_bytes(*first), high: 0 },
            Some((first, rest)) => Self { low: u64::from_le_bytes(*first), high: word(rest) },
            None => Self { low: word(bytes), high: 0 },
        }
    }

    /// The bytes, and zeros behind them.
    #[inline]
    pub const fn bytes(&self) -> [[u8; 8]; INLINE / 8] {
        [self.low.to_le_bytes(), self.high.to_le_bytes()]
    }
}

/// At most eight bytes, put together in a register.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_le_bytes(*whole);
    }
    let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) else {
        return bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    };
    // Two halves, which overlap if there are less than eight.
    let [low, high] = [first, last].map(|half| u64::from(u32::from_le_bytes(*half)));
    low | high << (8 * (bytes.len() - 4))
}

/// A request in a receive queue. All elements but the first lie in a queue of their own.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest {
    pub context: usize,
    /// Bytes of all elements.
    pub length: u32,
    /// The number of elements.
    pub elements: u32,
    /// The first, if there is one.
    pub first: Sge,
}

impl ReceiveRequest {
    /// How many entries of the queue of elements belong to the request.
    pub const fn queued_elements(&self) -> usize {
        self.elements.saturating_sub(1) as usize
    }
}

/// Size of an entry in the queue of inline bytes.
pub const CHUNK: usize = 32;

/// An entry of the queue of inline bytes.
pub type Chunk = [u8; CHUNK];

/// How many chunks a request with this many inline bytes needs.
pub const fn chunks_for(length: usize) -> usize {
    length.saturating_sub(INLINE).div_ceil(CHUNK)
}

#[cfg(test)]
mod tests {
    use super::{INLINE, InlineData};

    #[test]
    fn inline_bytes_keep_their_places() {
        let bytes = *b"sixteen letters!";
        for length in 0..=INLINE {
            let packed = InlineData::new(&bytes[..length]).bytes();
            let mut expected = [0; INLINE];
            expected[..length].copy_from_slice(&bytes[..length]);
            assert_eq!(packed.as_flattened(), expected, "{length} bytes");
        }
    }
}
