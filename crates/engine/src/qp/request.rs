//! What a consumer posts.

use crate::{cq::Operation, memory::Posted};

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

/// A request of the initiator queue, as it lies in the queue. Its elements or inline bytes lie in queues of their own.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub context: usize,
    pub work: Work,
    pub flags: Flags,
    /// Bytes of all elements, or inline.
    pub length: u32,
    pub source: Source,
}

/// Where the local bytes of a request are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In this many elements.
    Elements(u32),
    /// In the queue of inline bytes.
    Inline,
}

/// A request of a receive queue. Its elements lie in a queue of their own.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest {
    pub context: usize,
    /// Bytes of all elements.
    pub length: u32,
    pub elements: u32,
}

/// Inline bytes lie in the queue in pieces of this size.
pub const CHUNK: usize = 32;

/// A piece of inline bytes.
pub type Chunk = [u8; CHUNK];
