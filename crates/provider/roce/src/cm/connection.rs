//! A connection, as the connection manager sees it.

use core::net::SocketAddr;

use crate::{
    mtu::Mtu,
    path::Path,
    psn::Psn,
    wire::cm::{Attribute, Mad, Message, Rej},
};

/// How many READs a side wants to serve and to have outstanding (NDKPI 7.7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// READs of the peer that are served at once.
    pub inbound: u8,
    /// READs that may be outstanding.
    pub outbound: u8,
}

/// Where a connection stands.
///
/// ```text
/// active:   Resolving -> RequestSent -> ReplyReceived -+
///                                                      +-> Established -> DisconnectSent -> Over
/// passive:  RequestReceived -> ReplySent --------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The station of the peer is asked for.
    Resolving,
    /// A REQ was sent.
    RequestSent,
    /// A REP has come; the consumer has to complete the connect.
    ReplyReceived,
    /// A REQ has come; the consumer has to accept.
    RequestReceived,
    /// A REP was sent.
    ReplySent,
    /// Both sides may send.
    Established,
    /// A DREQ was sent.
    DisconnectSent,
    /// Nothing is on the wire any more. The consumer has not closed it.
    Over,
}

/// The bit of a communication id that tells the second try of a connection from the first.
pub const RENEWED: u32 = 1 << 31;

/// The most private data that a message has.
pub const PRIVATE: usize = 196;

/// A connection.
#[expect(clippy::struct_excessive_bools, reason = "each is about another party: the peer, the consumer, the connector")]
pub struct Connection {
    /// The consumer's name for it, whose highest bit is free.
    pub id: u32,
    /// The peer's.
    pub remote_id: u32,
    pub state: State,
    /// The queue pair; zero before there is one.
    pub qp: u32,
    pub remote_qpn: u32,
    pub remote_guid: u64,
    pub transaction: u64,
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub path: Path,
    /// The message that is repeated until it is answered.
    pub message: Mad,
    pub deadline: Option<u64>,
    pub interval: u64,
    pub retries: u8,
    /// How often the peer may still ask for time.
    pub patience: u8,
    /// A refusal was answered with another id.
    pub renewed: bool,
    /// What the peer sent along.
    pub private: [u8; PRIVATE],
    pub private_length: usize,
    /// What is wanted, and once both sides are known, what is agreed on.
    pub limits: ReadLimits,
    pub mtu: Mtu,
    /// The number that the peer expects first.
    pub send_psn: Psn,
    /// The number that this side expects first.
    pub receive_psn: Psn,
    pub ack_timeout: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    /// The REQ has come again while the consumer decides.
    pub asked_again: bool,
    /// The peer does not answer, and its station is asked for again.
    pub doubted: bool,
    /// The consumer waits for the end of its disconnect.
    pub disconnecting: bool,
    /// The consumer has closed it: nobody is told anything.
    pub closed: bool,
}

impl Connection {
    /// This side's communication id.
    pub const fn wire_id(&self) -> u32 {
        if self.renewed { self.id | RENEWED } else { self.id }
    }

    /// The message that a REJ by this side is about, in this state.
    pub const fn rejected(&self) -> Message {
        match self.state {
            State::Resolving | State::RequestSent | State::RequestReceived => Message::Req,
            State::ReplyReceived => Message::Rep,
            _ => Message::Other,
        }
    }

    /// The REJ that the peer's REQ was answered with.
    pub fn refusal(&self) -> Option<Mad> {
        (self.message.attribute() == Some(Attribute::Rej)).then_some(self.message)
    }

    /// Keeps the peer's private data.
    pub fn keep(&mut self, private: &[u8]) {
        self.private[..private.len()].copy_from_slice(private);
        self.private_length = private.len();
    }
}

/// Puts a consumer's bytes into private data, with zeros behind them.
pub fn put(private: &mut [u8], bytes: &[u8]) -> Option<()> {
    let (front, rest) = private.split_at_mut_checked(bytes.len())?;
    front.copy_from_slice(bytes);
    rest.fill(0);
    Some(())
}

/// A REJ about a connection that takes a consumer's bytes along.
pub fn with_private(mut rej: Rej, bytes: &[u8]) -> Option<Rej> {
    put(&mut rej.private, bytes)?;
    Some(rej)
}
