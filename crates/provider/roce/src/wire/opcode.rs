//! BTH opcodes (RoCEv2 1).

use zerocopy::TryFromBytes;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u8)]
#[expect(missing_docs, reason = "the field's names")]
pub enum Opcode {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0A,
    WriteOnlyImmediate = 0x0B,
    ReadRequest = 0x0C,
    ReadResponseFirst = 0x0D,
    ReadResponseMiddle = 0x0E,
    ReadResponseLast = 0x0F,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    UdSendOnly = 0x64,
    UdSendOnlyImmediate = 0x65,
    Cnp = 0x81,
}

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first of several.
    First,
    /// Between the first and the last.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    Only,
}

impl Position {
    /// The position of the packet `index` of `count`, in a stream that begins with the packet `start`.
    #[must_use]
    pub const fn of(index: u32, start: u32, count: u32) -> Self {
        match (index == start, index + 1 == count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    /// Returns true if the message begins with this packet.
    #[must_use]
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns true if the message ends with this packet.
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// What the packets of a message do, at any position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of a SEND.
    Send,
    /// A part of a WRITE.
    Write,
    /// A READ request.
    Read,
    /// A compare-and-swap or fetch-and-add, of which NDK has none.
    Atomic,
    /// Data of a READ.
    ReadResponse,
    /// An ACK or NAK.
    Acknowledge,
    /// The answer to an atomic.
    AtomicAcknowledge,
    /// A datagram, to QP 1.
    Datagram,
    /// A congestion notification.
    Cnp,
}

impl Opcode {
    /// The opcode of a byte; `None` for one that is not RoCEv2's, or of a transport that is not spoken here.
    #[must_use]
    #[inline]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::try_read_from_bytes(&[byte]).ok()
    }

    /// What packets of this opcode do.
    #[must_use]
    #[inline]
    pub const fn kind(self) -> Kind {
        match self {
            Self::SendFirst
            | Self::SendMiddle
            | Self::SendLast
            | Self::SendLastImmediate
            | Self::SendOnly
            | Self::SendOnlyImmediate
            | Self::SendLastInvalidate
            | Self::SendOnlyInvalidate => Kind::Send,
            Self::WriteFirst
            | Self::WriteMiddle
            | Self::WriteLast
            | Self::WriteLastImmediate
            | Self::WriteOnly
            | Self::WriteOnlyImmediate => Kind::Write,
            Self::ReadRequest => Kind::Read,
            Self::CompareSwap | Self::FetchAdd => Kind::Atomic,
            Self::ReadResponseFirst | Self::ReadResponseMiddle | Self::ReadResponseLast | Self::ReadResponseOnly => {
                Kind::ReadResponse
            }
            Self::Acknowledge => Kind::Acknowledge,
            Self::AtomicAcknowledge => Kind::AtomicAcknowledge,
            Self::UdSendOnly | Self::UdSendOnlyImmediate => Kind::Datagram,
            Self::Cnp => Kind::Cnp,
        }
    }

    /// Where packets of this opcode stand in their message.
    #[must_use]
    #[inline]
    pub const fn position(self) -> Position {
        match self {
            Self::SendFirst | Self::WriteFirst | Self::ReadResponseFirst => Position::First,
            Self::SendMiddle | Self::WriteMiddle | Self::ReadResponseMiddle => Position::Middle,
            Self::SendLast
            | Self::SendLastImmediate
            | Self::SendLastInvalidate
            | Self::WriteLast
            | Self::WriteLastImmediate
            | Self::ReadResponseLast => Position::Last,
            _ => Position::Only,
        }
    }

    /// The opcode of a part of a SEND, which invalidates a key with its last packet or not.
    #[must_use]
    pub const fn send(position: Position, invalidates: bool) -> Self {
        match (position, invalidates) {
            (Position::First, _) => Self::SendFirst,
            (Position::Middle, _) => Self::SendMiddle,
            (Position::Last, false) => Self::SendLast,
            (Position::Last, true) => Self::SendLastInvalidate,
            (Position::Only, false) => Self::SendOnly,
            (Position::Only, true) => Self::SendOnlyInvalidate,
        }
    }

    /// The opcode of a part of a WRITE.
    #[must_use]
    pub const fn write(position: Position) -> Self {
        match position {
            Position::First => Self::WriteFirst,
            Position::Middle => Self::WriteMiddle,
            Position::Last => Self::WriteLast,
            Position::Only => Self::WriteOnly,
        }
    }

    /// The opcode of a part of the data of a READ.
    #[must_use]
    pub const fn read_response(position: Position) -> Self {
        match position {
            Position::First => Self::ReadResponseFirst,
            Position::Middle => Self::ReadResponseMiddle,
            Position::Last => Self::ReadResponseLast,
            Position::Only => Self::ReadResponseOnly,
        }
    }

    /// A RETH follows.
    #[must_use]
    #[inline]
    pub const fn has_reth(self) -> bool {
        matches!(self, Self::WriteFirst | Self::WriteOnly | Self::WriteOnlyImmediate | Self::ReadRequest)
    }

    /// An AETH follows.
    #[must_use]
    #[inline]
    pub const fn has_aeth(self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst
                | Self::ReadResponseLast
                | Self::ReadResponseOnly
                | Self::Acknowledge
                | Self::AtomicAcknowledge
        )
    }

    /// A DETH follows.
    #[must_use]
    #[inline]
    pub const fn has_deth(self) -> bool {
        matches!(self, Self::UdSendOnly | Self::UdSendOnlyImmediate)
    }

    /// Immediate data follow.
    #[must_use]
    #[inline]
    pub const fn has_immediate(self) -> bool {
        matches!(
            self,
            Self::SendLastImmediate
                | Self::SendOnlyImmediate
                | Self::WriteLastImmediate
                | Self::WriteOnlyImmediate
                | Self::UdSendOnlyImmediate
        )
    }

    /// An IETH follows.
    #[must_use]
    #[inline]
    pub const fn has_ieth(self) -> bool {
        matches!(self, Self::SendLastInvalidate | Self::SendOnlyInvalidate)
    }
}
