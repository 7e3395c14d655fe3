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

impl WorkRequest {
    /// How many entries of the queue of inline bytes belong to the request.
    pub const fn queued_chunks(&self) -> usize {
        match self.data {
            LocalData::Elements { .. } => 0,
            LocalData::Inline(_) => chunks_for(self.length as usize),
        }
    }
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

/// The most frequent length of an inline message.
pub const WORD: usize = size_of::<u64>();

/// Up to [`INLINE`] bytes, and zeros behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(8))]
pub struct InlineData(pub [u8; INLINE]);

impl InlineData {
    /// `bytes`, of which there are at most [`INLINE`].
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        let mut data = [0; INLINE];
        match bytes.first_chunk::<WORD>() {
            // Without a call of the copy routine.
            Some(word) if bytes.len() == WORD => data[..WORD].copy_from_slice(word),
            _ => data[..bytes.len()].copy_from_slice(bytes),
        }
        Self(data)
    }
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
