//! What a consumer asks of a queue pair.

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Moves bytes into a receive of the peer.
    Send {
        /// A token that the peer's adapter invalidates before the receive completes.
        invalidate: Option<u32>,
    },
    /// Moves bytes to the peer's memory.
    Write {
        /// The first byte there.
        address: u64,
        /// The remote token.
        key: u32,
    },
    /// Moves bytes from the peer's memory.
    Read {
        /// The first byte there.
        address: u64,
        /// The remote token.
        key: u32,
    },
}

/// How a request is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It completes only if it fails.
    pub silent_success: bool,
    /// It begins when all READs before it have ended.
    pub read_fence: bool,
    /// The receive of a SEND is a solicited one.
    pub solicited: bool,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What its owner calls it.
    pub context: u64,
    /// What it does.
    pub work: Work,
    /// How.
    pub flags: Flags,
    /// Bytes of its data.
    pub length: u32,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The send queue is full.
    Full,
    /// The queue pair is not connected.
    NotConnected,
    /// It is longer than messages may be, or has more inline data than fits.
    TooLong,
    /// A READ, where none may be outstanding.
    NoReads,
}

/// The longest message (RoCEv2 1).
pub const LONGEST: u32 = 1 << 31;
