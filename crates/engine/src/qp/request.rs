//! What a consumer posts.

use crate::{
    cq::Operation,
    memory::{Access, Posted, Wanted},
};

/// A piece of registered memory: an element of a scatter/gather list (`NDKPI 3.9`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// A virtual address inside the region, or a logical address if the token is the domain's privileged one.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The region's local token.
    pub token: u32,
}

impl Sge {
    /// Its bytes, wanted for `access`.
    #[inline]
    pub(super) const fn wanted(&self, access: Access) -> Wanted {
        Wanted { token: self.token, address: self.address, length: self.length, access }
    }
}

/// How a request is to be carried out (`NDKPI 2.4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of one request, as NDKPI has them")]
pub struct Flags {
    /// Success makes no completion; failure does.
    pub silent_success: bool,
    /// Does not begin before all earlier reads of the queue pair are complete. The engine carries a queue's requests out one
    /// after the other, so this always holds.
    pub read_fence: bool,
    /// The receiver's completion counts as solicited.
    pub solicit: bool,
    /// More requests follow: the doorbell may wait for them.
    pub defer: bool,
    /// A read that succeeds invalidates the token of its first element.
    pub local_invalidate: bool,
}

/// What an initiator request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Moves bytes into a receive of the peer, and invalidates a token of the peer's first if one is named.
    Send {
        /// The token that the peer's adapter invalidates before the receive completes.
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
}

impl Work {
    /// Whether the request moves bytes between the two sides.
    #[must_use]
    pub const fn moves_bytes(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Read { .. } | Self::Write { .. })
    }
}

/// A request of the initiator queue, as it lies in the queue. What does not fit of its elements or inline bytes lies in queues
/// of their own.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub context: usize,
    pub work: Work,
    pub flags: Flags,
    /// Bytes of all elements, or inline.
    pub length: u32,
    pub source: Source,
}

/// Inline bytes that lie in the request itself: as many as an element takes.
pub const HERE: usize = size_of::<Sge>();

/// Where the local bytes of a request are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In elements.
    Elements {
        /// How many there are.
        count: u32,
        /// The first of them, if there is one. The others lie in the queue of elements.
        first: Sge,
    },
    /// In the request, and if they are more than [`HERE`], in the queue of inline bytes.
    Inline {
        /// The first of them.
        first: [u8; HERE],
    },
}

impl Source {
    /// The token of the first element; zero, which is none, without one.
    pub const fn first_token(&self) -> u32 {
        match self {
            Self::Elements { first, .. } => first.token,
            Self::Inline { .. } => 0,
        }
    }

    /// How many entries of the queue of elements belong to the request.
    pub const fn queued_elements(&self) -> usize {
        match self {
            Self::Elements { count, .. } => count.saturating_sub(1) as usize,
            Self::Inline { .. } => 0,
        }
    }
}

/// A request of a receive queue. All elements but the first lie in a queue of their own.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest {
    pub context: usize,
    /// Bytes of all elements.
    pub length: u32,
    /// How many elements there are.
    pub elements: u32,
    /// The first of them, if there is one.
    pub first: Sge,
}

impl ReceiveRequest {
    /// How many entries of the queue of elements belong to the request.
    pub const fn queued_elements(&self) -> usize {
        self.elements.saturating_sub(1) as usize
    }
}

/// Inline bytes lie in their queue in pieces of this size.
pub const CHUNK: usize = 32;

/// A piece of inline bytes.
pub type Chunk = [u8; CHUNK];

/// How many pieces of the queue of inline bytes so many inline bytes need.
pub const fn chunks_for(length: usize) -> usize {
    length.saturating_sub(HERE).div_ceil(CHUNK)
}
