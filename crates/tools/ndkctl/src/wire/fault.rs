//! Why a command has not done what it should, and what to do next.

use std::{fmt, net::IpAddr};

use engine::wire::RejectReason;
use ndk::NtStatus;
use network::OpenError;
use provider::Reason;

/// Why a command has not done what it should.
#[derive(Debug)]
pub enum Fault {
    /// Somebody wanted it to end.
    Interrupted,
    /// The segment cannot be opened.
    Open(OpenError),
    /// Nobody answers to ARP or neighbour discovery.
    NoNeighbour(IpAddr),
    /// No address or router leads there.
    NoRoute(IpAddr),
    /// The peer has refused the connection; the reason of the REJ, if it was seen.
    Refused(Option<u16>),
    /// The peer wants another MTU.
    OtherMtu(Option<u32>),
    /// The peer does not answer.
    Silent(String),
    /// Other bytes came.
    WrongData(String),
    /// An address or port is in use.
    InUse(String),
    /// Anything else.
    Other(String),
}

impl Fault {
    /// The exit code.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Interrupted => crate::INTERRUPTED,
            Self::Open(OpenError::Wrong(_) | OpenError::NoInterface(_)) => crate::USAGE,
            Self::NoNeighbour(_) => 3,
            Self::Refused(_) => 4,
            Self::OtherMtu(_) => 5,
            Self::Open(OpenError::InUse(_)) | Self::InUse(_) => 6,
            Self::Open(OpenError::NoPermission { .. }) => 7,
            Self::Silent(_) => 8,
            Self::WrongData(_) => 9,
            Self::Open(_) | Self::NoRoute(_) | Self::Other(_) => 1,
        }
    }

    /// The status of a request during `what`.
    pub fn of(what: &str, status: NtStatus) -> Self {
        match status {
            NtStatus::IO_TIMEOUT => Self::Silent(format!("{what}: {status}")),
            NtStatus::SHARING_VIOLATION => Self::InUse(format!("{what}: {status}")),
            _ => Self::Other(format!("{what}: {status}")),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Open(error) => error.fmt(f),
            Self::NoNeighbour(address) => write!(
                f,
                "nobody answers to {} for {address}: is the peer up, has it the address, are --peer, --vni and the peer's VXLAN device \
                 the same?",
                if address.is_ipv4() { "ARP" } else { "neighbour discovery" }
            ),
            Self::NoRoute(address) => {
                write!(f, "{address} is of no network of --local: give one of its network and family, or a --gateway")
            }
            Self::Refused(Some(number)) => {
                let (reject, why) = (RejectReason(*number), Reason::of_rejection(RejectReason(*number)));
                write!(f, "connection refused ({why}): {} {}", why.what, why.fix)?;
                if reject == RejectReason::BAD_SERVICE_ID {
                    f.write_str(" `ndkctl wire serve` and `rping -s` listen on port 7174.")?;
                }
                Ok(())
            }
            Self::Refused(None) => f.write_str("connection refused: does somebody listen on the port there?"),
            Self::OtherMtu(Some(wanted)) => write!(
                f,
                "the peer wants packets of {wanted} bytes: give --mtu {} or less, or a larger MTU to its interface",
                wanted + 96
            ),
            Self::OtherMtu(None) => f.write_str("the peer wants another MTU: give both sides the same --mtu"),
            Self::Silent(what) => {
                write!(f, "{what}: the peer does not answer any more; is it up, and does its log say why it ended?")
            }
            Self::WrongData(what) => write!(f, "other bytes came: {what}; --pcap FILE shows where they changed"),
            Self::InUse(what) => write!(f, "{what}: in use; take another port"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

#[cfg(test)]
mod tests {
    use ndk::NtStatus;
    use network::OpenError;

    use super::Fault;

    #[test]
    fn every_fault_has_its_code_and_says_what_to_do() {
        let address = [10, 0, 0, 1].into();
        let permission = || OpenError::NoPermission { what: "a socket".to_owned(), needs: "CAP_NET_RAW" };
        for (fault, code, part) in [
            (Fault::NoNeighbour(address), 3, "ARP"),
            (Fault::NoNeighbour([0_u16; 8].into()), 3, "neighbour discovery"),
            (Fault::Refused(Some(8)), 4, "ndkctl wire serve"),
            (Fault::Refused(Some(28)), 4, "SR0147"),
            (Fault::Refused(Some(99)), 4, "another number"),
            (Fault::Refused(None), 4, "listen"),
            (Fault::OtherMtu(Some(512)), 5, "--mtu 608"),
            (Fault::OtherMtu(None), 5, "same --mtu"),
            (Fault::Open(OpenError::InUse(([127, 0, 0, 1], 4789).into())), 6, "another port"),
            (Fault::of("listen", NtStatus::SHARING_VIOLATION), 6, "another port"),
            (Fault::Open(permission()), 7, "CAP_NET_RAW"),
            (Fault::of("a read", NtStatus::IO_TIMEOUT), 8, "is it up"),
            (Fault::WrongData("byte 3".to_owned()), 9, "--pcap"),
            (Fault::NoRoute(address), 1, "--gateway"),
            (Fault::Open(OpenError::NoInterface("x".to_owned())), 2, "ip link"),
            (Fault::of("a read", NtStatus::CANCELLED), 1, "STATUS_CANCELLED"),
            (Fault::Interrupted, 130, "interrupted"),
        ] {
            let said = fault.to_string();
            assert!(fault.code() == code && said.contains(part) && !said.contains('\n'), "{code}: {said}");
        }
    }
}
