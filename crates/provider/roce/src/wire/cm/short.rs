//! The messages that have little to say: RTU, REJ, MRA, DREQ, DREP (RoCEv2 8.3). "Local" is their sender.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32},
};

use super::Reason;
use crate::wire::U24;

/// Ready to use: the active side has seen the REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Rtu {
    /// The sender's communication id.
    pub local_id: U32,
    /// The receiver's.
    pub remote_id: U32,
    /// Not used by NDK.
    pub private: [u8; 224],
}

/// The message that a REJ or MRA is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Message {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// Another one.
    Other = 2,
}

/// A refusal, or the end of a connection that is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Rej {
    /// The sender's communication id; zero if it made none.
    pub local_id: U32,
    /// The receiver's.
    pub remote_id: U32,
    /// Bits 7-6: [`Message`].
    pub message: u8,
    /// Bits 7-1: bytes of additional information.
    pub information_length: u8,
    /// The [`Reason`].
    pub reason: U16,
    /// Additional reject information: what would be right.
    pub information: [u8; 72],
    /// The consumer's.
    pub private: [u8; 148],
}

impl Rej {
    /// A refusal without private data. Of `information` at most 72 bytes go along.
    #[must_use]
    pub fn new(local_id: u32, remote_id: u32, message: Message, reason: Reason, information: &[u8]) -> Self {
        let mut bytes = [0; 72];
        let information = &information[..information.len().min(bytes.len())];
        bytes[..information.len()].copy_from_slice(information);
        let length = u8::try_from(information.len()).unwrap_or_default();
        Self {
            local_id: U32::new(local_id),
            remote_id: U32::new(remote_id),
            message: (message as u8) << 6,
            information_length: length << 1,
            reason: U16::new(reason.0),
            information: bytes,
            private: [0; 148],
        }
    }
}

/// The receiver got a message and needs time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Mra {
    /// The sender's communication id.
    pub local_id: U32,
    /// The receiver's.
    pub remote_id: U32,
    /// Bits 7-6: [`Message`].
    pub message: u8,
    /// Bits 7-3: the time that is needed.
    pub service_timeout: u8,
    /// Not used by NDK.
    pub private: [u8; 222],
}

/// A wish to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dreq {
    /// The sender's communication id.
    pub local_id: U32,
    /// The receiver's.
    pub remote_id: U32,
    /// The receiver's queue pair.
    pub qpn: U24,
    /// Zero.
    pub reserved: u8,
    /// Not used by NDK.
    pub private: [u8; 220],
}

/// The answer to a [`Dreq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Drep {
    /// The sender's communication id.
    pub local_id: U32,
    /// The receiver's.
    pub remote_id: U32,
    /// Not used by NDK.
    pub private: [u8; 224],
}
