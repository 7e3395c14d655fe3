//! Runs of `ndktest` over network interfaces: any vendor's adapters, as Winsock Kernel opens them.
//!
//! The codes belong to the control device of [`crate::test_device`]. An older driver answers them with
//! `STATUS_INVALID_DEVICE_REQUEST`.

use core::net::{IpAddr, SocketAddr};

use crate::wire::{READ, WRITE, control_code, wire};

/// Takes a [`StartOn`] with two names behind it, and answers with a [`Begun`]. `STATUS_DEVICE_BUSY` during a run.
pub const START_ON: u32 = control_code(0x24, WRITE);
/// Takes a [`From`](crate::test_device::From), the number of an interface from zero on, and answers with an [`Interface`] with
/// text behind it. The index is zero after the last one.
pub const QUERY_INTERFACE: u32 = control_code(0x25, READ);

/// The maximum total size of the names behind a [`StartOn`], in bytes.
pub const NAMES: usize = 2 * 4 * 256;

wire! {
    /// What to run, and on which interfaces. Their names follow as UTF-8 text: an index, a local address, or an alias.
    StartOn {
        /// A [`Kind`](crate::test_device::Kind).
        kind: u32,
        /// Like [`Start::seconds`](crate::test_device::Start::seconds).
        seconds: u32,
        /// Like [`Start::seed`](crate::test_device::Start::seed).
        seed: u64,
        /// 1 to include calls that a correct consumer never makes, else 0.
        hostile: u32,
        /// The length of the interface's name in bytes.
        interface: u32,
        /// The length of the second interface's name in bytes; 0 for none. It may be that of a [`machine`].
        peer: u32,
        /// Zero.
        reserved: u32,
    }
}

/// The first of the ports at which the agent of another machine is, unless another one is named.
pub const AGENT_PORT: u16 = 4792;

/// The machine that a name stands for: `@192.0.2.7`, `@192.0.2.7:4800`, `@[2001:db8::7]:4800`; `Some(None)` if what is behind the `@` is no
/// address.
///
/// As the second name of a run of the suite it says that the second adapter is on that machine, where an agent runs
/// ([`Kind::Agent`](crate::test_device::Kind)). As that of an agent it is the machine that may call, and the first of the ports of this one.
#[must_use]
pub fn machine(name: &str) -> Option<Option<SocketAddr>> {
    let address = name.strip_prefix('@')?;
    let with_port = address.parse().ok();
    let of_agent = || address.parse().ok().map(|address: IpAddr| SocketAddr::new(address, AGENT_PORT));
    Some(with_port.or_else(of_agent))
}

impl StartOn {
    /// The request and its two names; `None` if it is malformed.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &str, &str)> {
        let (head, names) = bytes.split_at_checked(Self::BYTES)?;
        let head = Self::from_bytes(head)?;
        let length = |bytes: u32| usize::try_from(bytes).ok();
        let (interface, peer) = names.split_at_checked(length(head.interface)?)?;
        let whole = names.len() <= NAMES && peer.len() == length(head.peer)? && !interface.is_empty();
        let (interface, peer) = (core::str::from_utf8(interface).ok()?, core::str::from_utf8(peer).ok()?);
        (whole && head.hostile <= 1).then_some((head, interface, peer))
    }
}

wire! {
    /// The answer to [`StartOn`]: whether the run was started.
    Begun {
        /// A [`Problem`].
        problem: u32,
        /// 1 if the problem is with the second interface, else 0.
        peer: u32,
        /// The status from the system or the provider; 0 if there is none.
        status: u32,
        /// The index of the interface, if it was found, else 0.
        index: u32,
    }
}

/// Why a run on interfaces was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Problem {
    /// It was started.
    None = 0,
    /// No interface has this alias or index.
    UnknownInterface = 1,
    /// No interface has this address.
    UnknownAddress = 2,
    /// Winsock Kernel does not open an NDK adapter on it.
    NoNdk = 3,
    /// It has no preferred address that can be connected to.
    NoAddress = 4,
    /// There is no route from the first interface to an address of the second.
    NoRoute = 5,
    /// Both are the same interface.
    Same = 6,
    /// Winsock Kernel itself refused.
    NoWinsock = 7,
    /// The driver's suite has no case of this name ([`crate::case`]).
    UnknownCase = 8,
    /// The name of the other machine is no address.
    BadMachine = 9,
    /// The other machine does not answer: there is no agent, or no way to it.
    NoMachine = 10,
    /// The agent of the other machine has somebody else's run.
    BusyMachine = 11,
    /// The agent's ports cannot be had.
    NoPort = 12,
}

impl Problem {
    /// All problems.
    pub const ALL: [Self; 13] = [
        Self::None,
        Self::UnknownInterface,
        Self::UnknownAddress,
        Self::NoNdk,
        Self::NoAddress,
        Self::NoRoute,
        Self::Same,
        Self::NoWinsock,
        Self::UnknownCase,
        Self::BadMachine,
        Self::NoMachine,
        Self::BusyMachine,
        Self::NoPort,
    ];

    /// The problem with that number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|problem| *problem as u32 == number)
    }
}

wire! {
    /// A network interface, and what its NDK adapter reports about itself. Three lines of UTF-8 text follow: the alias, the
    /// description, and the preferred addresses, separated by spaces.
    Interface {
        /// Its index; 0 if there is none with this number.
        index: u32,
        /// 1 if it can pass packets, else 0.
        up: u32,
        /// Bits per second.
        speed: u64,
        /// The status of opening its NDK adapter. The fields below are valid if it is 0.
        status: u32,
        /// The major version in force.
        major: u32,
        /// The minor version in force.
        minor: u32,
        /// `NDK_RDMA_TECHNOLOGY`.
        technology: u32,
        /// `NDK_ADAPTER_FLAG_` constants.
        flags: u32,
        /// The organisationally unique identifier of the vendor.
        vendor: u32,
        /// Depth of a receive queue.
        receive_depth: u32,
        /// Depth of an initiator queue.
        initiator_depth: u32,
        /// Depth of a completion queue.
        cq_depth: u32,
        /// Scatter/gather entries of a receive.
        receive_sge: u32,
        /// Scatter/gather entries of a request on the initiator queue.
        initiator_sge: u32,
        /// Scatter/gather entries of a read.
        read_sge: u32,
        /// The peer's reads in progress on one queue pair.
        inbound_reads: u32,
        /// This side's reads in progress on one queue pair.
        outbound_reads: u32,
        /// Bytes of one transfer.
        transfer: u32,
        /// Bytes that a request may carry inline.
        inline: u32,
        /// Bytes of private data in a connect.
        caller_data: u32,
        /// Bytes of private data in an accept or reject.
        callee_data: u32,
    }
}

/// Why a run ended early, in [`Progress::reason`](crate::test_device::Progress::reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// It did not, or a program or the removal of a device ended it.
    None = 0,
    /// One of its interfaces lost an address.
    AddressGone = 1,
    /// Winsock Kernel no longer opens the adapter.
    AdapterGone = 2,
    /// The other machine could not be told to begin.
    MachineGone = 3,
    /// The agent's sockets do not work any more.
    AgentFailed = 4,
}

impl Reason {
    /// The reason with that number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::AddressGone),
            2 => Some(Self::AdapterGone),
            3 => Some(Self::MachineGone),
            4 => Some(Self::AgentFailed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{string::String, vec::Vec};

    use super::{NAMES, StartOn, machine};

    fn request(interface: &str, peer: &str) -> Vec<u8> {
        let length = |name: &str| u32::try_from(name.len()).expect("a short name");
        let head = StartOn { interface: length(interface), peer: length(peer), ..StartOn::default() };
        [&head.to_bytes(), interface.as_bytes(), peer.as_bytes()].concat()
    }

    #[test]
    fn names_come_behind_the_request() {
        let parsed = |bytes: &[u8]| StartOn::parse(bytes).map(|(_, one, two)| (String::from(one), String::from(two)));
        let whole = request("Ethernet 3", "192.0.2.7");
        assert_eq!(parsed(&whole), Some(("Ethernet 3".into(), "192.0.2.7".into())));
        assert_eq!(parsed(&request("7", "")), Some(("7".into(), String::new())));
        assert_eq!(parsed(&whole[..whole.len() - 1]), None, "less than is said");
        assert_eq!(parsed(&[&whole[..], b"x"].concat()), None, "more than is said");
        assert_eq!(parsed(&request("", "7")), None, "no interface");
        assert_eq!(parsed(&request(&"x".repeat(NAMES), "7")), None, "too much");
        let mut hostile = request("7", "");
        hostile[16] = 2;
        assert_eq!(parsed(&hostile), None, "neither yes nor no");
        let mut letters = request("ab", "");
        letters[StartOn::BYTES] = 0xFF;
        assert_eq!(parsed(&letters), None, "no text");
    }

    #[test]
    fn a_machine_is_an_address_behind_an_at_sign() {
        let named = |name| machine(name).map(|machine| machine.map(|address| std::format!("{address}")));
        assert_eq!(named("192.0.2.7"), None, "a local address");
        assert_eq!(named("@192.0.2.7"), Some(Some("192.0.2.7:4792".into())));
        assert_eq!(named("@192.0.2.7:4800"), Some(Some("192.0.2.7:4800".into())));
        assert_eq!(named("@2001:db8::7"), Some(Some("[2001:db8::7]:4792".into())));
        assert_eq!(named("@[2001:db8::7]:4800"), Some(Some("[2001:db8::7]:4800".into())));
        assert_eq!(named("@beta"), Some(None));
    }
}
