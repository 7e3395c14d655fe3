//! Why a REJ refuses (RoCEv2 8.9).

/// The reason in a REJ. Those that are named are those of RoCEv2 8.9; a peer may send any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u16);

impl Reason {
    /// There is no queue pair for it.
    pub const NO_QP: Self = Self(1);
    /// There is no room for it.
    pub const NO_RESOURCES: Self = Self(3);
    /// The other side did not answer in time.
    pub const TIMEOUT: Self = Self(4);
    /// The receiver does not know the message, or not in this state.
    pub const UNSUPPORTED: Self = Self(5);
    /// The communication id is not known.
    pub const BAD_COMMUNICATION_ID: Self = Self(6);
    /// Nobody listens there.
    pub const BAD_SERVICE_ID: Self = Self(8);
    /// Another transport than a reliable connection.
    pub const BAD_TRANSPORT: Self = Self(9);
    /// The receiver still knows a connection with these numbers.
    pub const STALE: Self = Self(10);
    /// The receiver does not have this address.
    pub const BAD_GID: Self = Self(12);
    /// The path's local identifier cannot be. RoCE has none.
    pub const BAD_LID: Self = Self(13);
    /// The path's service level cannot be.
    pub const BAD_SERVICE_LEVEL: Self = Self(14);
    /// The path's traffic class cannot be.
    pub const BAD_TRAFFIC_CLASS: Self = Self(15);
    /// The path's hop limit cannot be.
    pub const BAD_HOP_LIMIT: Self = Self(16);
    /// The path's packet rate cannot be.
    pub const BAD_PACKET_RATE: Self = Self(17);
    /// Another connection manager has to be asked.
    pub const MANAGER_REDIRECT: Self = Self(24);
    /// Another port has to be asked.
    pub const PORT_REDIRECT: Self = Self(25);
    /// The path MTU cannot be.
    pub const BAD_MTU: Self = Self(26);
    /// The receiver cannot serve as many READs.
    pub const RESPONDER_RESOURCES: Self = Self(27);
    /// The consumer does not want it.
    pub const CONSUMER: Self = Self(28);
    /// The RNR retry count cannot be.
    pub const BAD_RNR_RETRY: Self = Self(29);
    /// The communication id is in use by another connection.
    pub const DUPLICATE_COMMUNICATION_ID: Self = Self(30);
    /// The connection manager has another version.
    pub const BAD_CLASS_VERSION: Self = Self(31);
    /// The path's flow label cannot be.
    pub const BAD_FLOW_LABEL: Self = Self(32);
}
