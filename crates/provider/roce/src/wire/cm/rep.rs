//! REP: a connection is accepted (RoCEv2 8.3).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U32, U64},
};

use crate::wire::U24;

/// A reply to a REQ. "Local" is its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Rep {
    /// The sender's communication id.
    pub local_id: U32,
    /// The receiver's.
    pub remote_id: U32,
    /// Zero for reliable connections.
    pub q_key: U32,
    /// The sender's queue pair.
    pub qpn: U24,
    /// Of ECE.
    pub vendor: u8,
    /// Of end-to-end contexts, zero; its last byte is a part of ECE's.
    pub eecn: U32,
    /// The number of the packet that the sender expects first.
    pub starting_psn: U24,
    /// Reserved.
    pub reserved: u8,
    /// READs that the sender will serve.
    pub responder_resources: u8,
    /// READs that the sender will have outstanding.
    pub initiator_depth: u8,
    /// Bits 7-3 how long the sender's ACKs take, 2-1 failover, 0 flow control.
    pub ack_delay: u8,
    /// Bits 7-5 RNR retries, 4 SRQ.
    pub rnr_retry: u8,
    /// The sender's adapter.
    pub guid: U64,
    /// The consumer's.
    pub private: [u8; 196],
}
