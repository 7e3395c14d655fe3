//! Why a segment cannot be opened.

use std::{error::Error, fmt, io, net::SocketAddr};

/// Why a segment cannot be opened, and what to do about it.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another program, or the system, has the UDP port.
    InUse(SocketAddr),
    /// The address is not one of this machine.
    NotHere(SocketAddr),
    /// The system wants a privilege that this program does not have.
    NoPermission {
        /// What was to be opened.
        what: String,
        /// The privilege: `CAP_NET_RAW`.
        needs: &'static str,
    },
    /// There is no interface of this name.
    NoInterface(String),
    /// What was asked for makes no sense.
    Wrong(String),
    /// Anything else, as the system says.
    System(String, io::Error),
}

impl OpenError {
    /// The error of a socket.
    pub(crate) fn of_socket(at: SocketAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(at),
            io::ErrorKind::AddrNotAvailable => Self::NotHere(at),
            io::ErrorKind::PermissionDenied => {
                Self::NoPermission { what: format!("UDP {at}"), needs: "CAP_NET_BIND_SERVICE" }
            }
            _ => Self::System(format!("UDP {at}"), error),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(at) => write!(
                f,
                "UDP port {} is in use: another program, or a VXLAN device of the system, has {at}; end it, or take another port on \
                 both sides",
                at.port()
            ),
            Self::NotHere(at) => write!(f, "{} is no address of this machine: bind to one that it has", at.ip()),
            Self::NoPermission { what, needs } => {
                write!(f, "{what} needs {needs}: run as root, or use VXLAN, which needs nothing")
            }
            Self::NoInterface(name) => write!(f, "there is no network interface {name}: `ip link` lists them"),
            Self::Wrong(what) => f.write_str(what),
            Self::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System(_, error) => Some(error),
            _ => None,
        }
    }
}
