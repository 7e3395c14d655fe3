//! Why a REJ refuses (RoCEv2 8.9).

/// The reason in a REJ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason(pub u16);

impl Reason {
    /// There is no queue pair for it.
    pub const NO_QP: Self = Self(1);
    /// There is no room for it.
    pub const NO_RESOURCES: Self = Self(3);
    /// The other side did not answer in time.
    pub const TIMEOUT: Self = Self(4);
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
    /// The path MTU cannot be.
    pub const BAD_MTU: Self = Self(26);
    /// The consumer does not want it.
    pub const CONSUMER: Self = Self(28);
}
