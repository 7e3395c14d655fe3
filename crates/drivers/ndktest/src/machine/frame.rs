//! What a datagram between two machines begins with. Numbers are little-endian.

use core::net::{IpAddr, SocketAddr};

/// What every datagram begins with: it is of this driver, and of this form.
const MAGIC: [u8; 4] = *b"NDK\x01";

/// The bytes of a [`Head`].
pub const HEAD: usize = 20;

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A call. The first one of a session, on the first lane, begins it.
    Call = 0,
    /// The answer to a call, an end or a question.
    Answer = 1,
    /// The session is over.
    End = 2,
    /// Asks whether an agent is there that can begin a session.
    Ask = 3,
    /// The agent has a session with somebody else.
    Busy = 4,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        [Self::Call, Self::Answer, Self::End, Self::Ask, Self::Busy].into_iter().find(|kind| *kind as u32 == number)
    }
}

/// The head of a datagram. What follows is the agent's or for the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub kind: Kind,
    /// The number of the call on its lane, from 1 on. An answer has that of its call.
    pub sequence: u32,
    /// A number that the machine that calls has chosen.
    pub session: u64,
}

impl Head {
    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[12..].copy_from_slice(&self.session.to_le_bytes());
        bytes
    }

    /// The head of a datagram, and what follows; `None` if it is none of ours.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (head, body) = datagram.split_first_chunk::<HEAD>()?;
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let (sequence, session) = rest.split_first_chunk::<4>()?;
        let kind = Kind::from_number(u32::from_le_bytes(*kind)).filter(|_| *magic == MAGIC)?;
        let session = u64::from_le_bytes(session.try_into().ok()?);
        Some((Self { kind, sequence: u32::from_le_bytes(*sequence), session }, body))
    }
}

/// Returns true if both are of one machine: one of them may be in IPv6's form of an IPv4 address.
#[must_use]
pub fn is_same_machine(one: SocketAddr, other: IpAddr) -> bool {
    one.ip().to_canonical() == other.to_canonical()
}
