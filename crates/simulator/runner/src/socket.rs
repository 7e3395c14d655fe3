//! What the program of a script does with sockets, and how that is carried out.

use std::net::SocketAddr;

use ntstatus::NtStatus;
use serde::{Deserialize, Serialize};

use crate::{
    bytes::{Pattern, Template},
    machine::Machine,
    status::INVALID_ADDRESS_COMPONENT,
};

/// What a program does with a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketAction {
    /// Connects to a port, and waits until it is.
    Connect {
        /// The address that it has; any of its own without one.
        from: Option<SocketAddr>,
        /// Where somebody listens.
        to: SocketAddr,
    },
    /// Listens for connections.
    Listen(SocketAddr),
    /// Waits for a connection that comes to that socket.
    Accept(String),
    /// Is for datagrams.
    Bind(SocketAddr),
    /// Sends bytes of a stream, or a datagram.
    Send {
        /// The bytes.
        input: Template,
        /// Where a datagram goes.
        to: Option<SocketAddr>,
    },
    /// Waits for bytes of a stream, for its end, or for a datagram.
    Receive {
        /// What has to come; nothing for the end of a stream. `None` if the step has to fail.
        expect: Option<Pattern>,
        /// Where a datagram has to come from.
        from: Option<SocketAddr>,
    },
    /// Ends its stream.
    End,
    /// Drops the connection.
    Abort,
    /// Closes the socket.
    Close,
}

impl SocketAction {
    /// The word of the script.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Connect { .. } => "connect",
            Self::Listen(_) => "listen",
            Self::Accept(_) => "accept",
            Self::Bind(_) => "bind",
            Self::Send { .. } => "send",
            Self::Receive { .. } => "receive",
            Self::End => "end",
            Self::Abort => "abort",
            Self::Close => "close",
        }
    }

    /// A socket of that name is there from here on.
    #[must_use]
    pub const fn makes(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Listen(_) | Self::Accept(_) | Self::Bind(_))
    }

    /// It is not there any more.
    #[must_use]
    pub const fn ends(&self) -> bool {
        matches!(self, Self::Abort | Self::Close)
    }

    /// Does it. `wanted` is how it has to end.
    ///
    /// # Errors
    ///
    /// A sentence: it ended otherwise.
    pub(crate) fn carry_out(
        &self,
        machine: &mut impl Machine,
        socket: &str,
        wanted: NtStatus,
    ) -> Result<NtStatus, String> {
        let done = match self {
            Self::Connect { from, to } => machine.connect(socket, *from, *to),
            Self::Listen(at) => machine.listen(socket, *at),
            Self::Accept(listener) => machine.accept(socket, listener),
            Self::Bind(at) => machine.bind(socket, *at),
            Self::Send { input, to } => {
                let bytes = input.bytes(|device, name| machine.property(device, name))?;
                machine.send(socket, &bytes, *to)
            }
            Self::Receive { expect, from } => {
                let count = expect.as_ref().map_or(0, Pattern::length);
                match machine.receive(socket, count) {
                    Ok((sender, bytes)) if wanted.is_success() => {
                        came_from(*from, sender)?;
                        let check =
                            |expect: &Pattern| expect.check(&bytes, |device, name| machine.property(device, name));
                        expect.as_ref().map_or(Ok(()), check)?;
                        Ok(())
                    }
                    received => received.map(drop),
                }
            }
            Self::End => machine.end(socket),
            Self::Abort => {
                machine.abort(socket);
                Ok(())
            }
            Self::Close => {
                machine.close_socket(socket);
                Ok(())
            }
        };
        Ok(done.err().unwrap_or(NtStatus::SUCCESS))
    }

    /// What could be looked at if it has ended so, against what the script says.
    pub(crate) fn advice(&self, seen: NtStatus, machine: &impl Machine) -> Option<String> {
        match (self, seen) {
            (Self::Connect { to, .. }, NtStatus::CONNECTION_REFUSED) => {
                let ports: Vec<String> = machine.listening().iter().map(ToString::to_string).collect();
                let ports = if ports.is_empty() { "nowhere".to_owned() } else { format!("at {}", ports.join(", ")) };
                Some(format!("nobody listens at {to}, and drivers of this machine listen {ports}"))
            }
            (Self::Connect { to, .. }, NtStatus::IO_TIMEOUT) => {
                Some(format!("nobody answers at {to}: no machine has the address, or the network loses everything"))
            }
            (_, NtStatus::NETWORK_UNREACHABLE) => {
                Some("no `addresses` of the machine or of its NICs have a prefix with that address".to_owned())
            }
            (Self::Listen(at) | Self::Bind(at) | Self::Connect { from: Some(at), .. }, INVALID_ADDRESS_COMPONENT) => {
                let words = "is none of this machine's: start the NIC that has it before, or take 127.0.0.1 or 0.0.0.0";
                Some(format!("{} {words}", at.ip()))
            }
            (
                Self::Listen(at) | Self::Bind(at) | Self::Connect { from: Some(at), .. },
                NtStatus::ADDRESS_ALREADY_EXISTS,
            ) => Some(format!("another socket has the port {}: take another one, or 0 for any", at.port())),
            (Self::Receive { .. }, NtStatus::SUCCESS) => Some("bytes have come, or the end of the stream".to_owned()),
            _ => None,
        }
    }
}

/// Where a datagram comes from is what the script says, if it says something.
fn came_from(wanted: Option<SocketAddr>, seen: Option<SocketAddr>) -> Result<(), String> {
    match (wanted, seen) {
        (Some(wanted), Some(seen)) if wanted != seen => Err(format!("a datagram from {seen} instead of {wanted}")),
        _ => Ok(()),
    }
}
