//! REQ: a connection is wanted (RoCEv2 8.2).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U16, U32, U64},
};

use super::{Path, ReqPrivate};
use crate::wire::U24;

/// A request for communication. "Local" is its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Req {
    /// The sender's communication id.
    pub local_id: U32,
    /// Zero.
    pub reserved: u8,
    /// Of ECE.
    pub vendor: U24,
    /// What is asked for: [`service_id`](super::service_id).
    pub service: U64,
    /// The sender's adapter.
    pub guid: U64,
    /// Zero.
    pub reserved2: U32,
    /// Zero for reliable connections.
    pub q_key: U32,
    /// The sender's queue pair.
    pub qpn: U24,
    /// READs that the sender can serve.
    pub responder_resources: u8,
    /// Of end-to-end contexts, zero.
    pub local_eecn: U24,
    /// READs that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// Of end-to-end contexts, zero.
    pub remote_eecn: U24,
    /// Bits 7-3 remote response time-out, 2-1 transport, 0 flow control.
    pub remote_timeout: u8,
    /// The number of the packet that the sender expects first.
    pub starting_psn: U24,
    /// Bits 7-3 local response time-out, 2-0 retries.
    pub local_timeout: u8,
    /// The partition.
    pub p_key: U16,
    /// Bits 7-4 path MTU, 3 RDC, 2-0 RNR retries.
    pub mtu: u8,
    /// Bits 7-4 retries of the connection manager, 3 SRQ, 2-0 extended transport.
    pub retries: u8,
    /// The path.
    pub primary: Path,
    /// Another one, of which there is none.
    pub alternate: Path,
    /// Of RDMA_CM and of the consumer.
    pub private: ReqPrivate,
}

impl Req {
    /// The transport's code: 0 is a reliable connection.
    #[must_use]
    pub const fn transport(&self) -> u8 {
        self.remote_timeout >> 1 & 3
    }

    /// The time-out code of the sender's answers.
    #[must_use]
    pub const fn local_timeout_code(&self) -> u8 {
        self.local_timeout >> 3
    }

    /// How often the receiver's queue pair may repeat a request.
    #[must_use]
    pub const fn retry_count(&self) -> u8 {
        self.local_timeout & 7
    }

    /// How often the receiver's queue pair may repeat a request after RNR NAKs.
    #[must_use]
    pub const fn rnr_retry_count(&self) -> u8 {
        self.mtu & 7
    }

    /// The path MTU's code.
    #[must_use]
    pub const fn mtu_code(&self) -> u8 {
        self.mtu >> 4
    }

    /// How often a message may be repeated.
    #[must_use]
    pub const fn cm_retries(&self) -> u8 {
        self.retries >> 4
    }
}
