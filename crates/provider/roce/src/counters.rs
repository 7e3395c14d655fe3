//! What was counted. All of it since the stack was made.

/// Counters of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in.
    pub frames_received: u64,
    /// Frames that went out.
    pub frames_sent: u64,
    /// Packets of RoCEv2 that came in for this interface, whole.
    pub packets_received: u64,
    /// Packets of RoCEv2 that went out.
    pub packets_sent: u64,
    /// Bytes of the frames of `packets_received`: headers and all, without the frame check sequence.
    pub octets_received: u64,
    /// Bytes of the frames of `packets_sent`.
    pub octets_sent: u64,
    /// Frames for another protocol, port or address.
    pub not_for_us: u64,
    /// Packets with a wrong length, version, opcode or message.
    pub malformed: u64,
    /// Packets whose ICRC was wrong.
    pub wrong_icrc: u64,
    /// Packets for a queue pair that is not there, or is of another kind.
    pub unknown_queue_pair: u64,
    /// Packets for a queue pair that does not take them now.
    pub wrong_state: u64,
    /// Packets of another sender than the connection's.
    pub unknown_source: u64,
    /// Packets of another partition.
    pub wrong_p_key: u64,
    /// Datagrams with another queue key.
    pub wrong_q_key: u64,
    /// Requests ahead of the one that is expected.
    pub psn_ahead: u64,
    /// Requests that were carried out before.
    pub duplicates: u64,
    /// Answers to nothing that is outstanding.
    pub ghosts: u64,
    /// READ responses of another length than was asked for.
    pub wrong_length: u64,
    /// Congestion notifications, which are not acted upon.
    pub congestion_notifications: u64,
    /// ACKs that went out.
    pub acks_sent: u64,
    /// NAKs that went out, RNR NAKs among them.
    pub naks_sent: u64,
    /// NAKs that came in, without RNR NAKs.
    pub naks_received: u64,
    /// RNR NAKs that came in.
    pub rnr_naks_received: u64,
    /// Times that a requester went back: by NAK 0x60, by an answer that shows a loss.
    pub goes_back: u64,
    /// Times that a requester waited for an answer in vain.
    pub timeouts: u64,
    /// Messages of the connection manager that went out again.
    pub cm_retries: u64,
    /// Messages of the connection manager that were dropped because too many were waiting to go out.
    pub cm_overflows: u64,
    /// Requests for connections that were refused because too many are half open, or no room was left.
    pub refused_for_room: u64,
}
