//! Messages of the connection manager: management datagrams between the queue pairs 1 (RoCEv2 8.1 to 8.4).

mod mad;
mod path;
mod private;
mod reason;
mod rep;
mod req;
mod short;

pub use mad::{Attribute, BYTES, DATA, Header, LENGTH, Mad};
pub use path::{Path, gid};
pub use private::{CONSUMER_DATA, IpAddresses, PORT_SPACE_TCP, ReqPrivate, service_id, service_port};
pub use reason::Reason;
pub use rep::Rep;
pub use req::Req;
pub use short::{Drep, Dreq, Message, Mra, Rej, Rtu};

/// The queue key of every queue pair 1.
pub const Q_KEY: u32 = 0x8001_0000;
/// The queue pair of connection managers.
pub const QP: u32 = 1;
