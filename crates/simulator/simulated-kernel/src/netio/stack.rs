//! What the network stack knows: interfaces, addresses and routes.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use ndis::{NET_IFINDEX, NET_LUID, NL_DAD_STATE};
use ndkpi::NtStatus;

use crate::{
    ndk_provider::NdkProvider,
    state::{Part, State},
};

/// Nothing has what was asked for. `ndkpi` has no name for it.
pub const NOT_FOUND: NtStatus = NtStatus::from_bits(0xC000_0225);

/// Carries out a routine of the IP helper. Where the reference names another level than `PASSIVE_LEVEL`, or none, this is
/// stricter.
macro_rules! helper {
    ($name:literal, $work:expr) => {
        $crate::routine::carry_out($name, &$crate::routine::Limit::at(host::machine::Irql::PASSIVE_LEVEL), $work)
    };
}
pub(super) use helper;

/// An interface, as it is added.
#[derive(Clone, Debug)]
pub struct NewInterface {
    /// The name that people give it.
    pub alias: String,
    /// What it is.
    pub description: String,
    /// Its link-layer address.
    pub mac: [u8; 6],
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// Bits per second.
    pub speed: u64,
}

impl NewInterface {
    /// An Ethernet interface with that name, of 100 Gb/s.
    #[must_use]
    pub fn ethernet(alias: &str) -> Self {
        Self {
            alias: alias.to_owned(),
            description: format!("Simulated Ethernet adapter {alias}"),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            speed: 100_000_000_000,
        }
    }
}

/// What the stack keeps.
#[derive(Default)]
pub struct Net {
    pub interfaces: LiteMap<NET_IFINDEX, Interface>,
    pub addresses: Vec<Address>,
    pub routes: Vec<Route>,
    /// The index of the interface that was added last.
    pub last: NET_IFINDEX,
}

impl Part for Mutex<Net> {}

/// A network interface.
pub struct Interface {
    pub luid: NET_LUID,
    pub new: NewInterface,
    pub up: bool,
    pub ndk: Option<Arc<dyn NdkProvider>>,
}

/// A unicast address of an interface.
#[derive(Clone, Copy)]
pub struct Address {
    pub index: NET_IFINDEX,
    pub ip: IpAddr,
    pub prefix: u8,
    pub state: NL_DAD_STATE,
}

impl Net {
    /// The interface with this index or, if that is zero, with this identifier.
    pub fn find(&self, index: NET_IFINDEX, luid: NET_LUID) -> Option<(NET_IFINDEX, &Interface)> {
        let mut all = self.interfaces.iter().map(|(&index, interface)| (index, interface));
        all.find(|(one, interface)| if index == 0 { interface.luid == luid } else { *one == index })
    }

    /// The interface with this identifier or, if that is of none, with this index: in rows the identifier comes first.
    pub fn by_luid_or_index(&self, luid: NET_LUID, index: NET_IFINDEX) -> Option<(NET_IFINDEX, &Interface)> {
        self.find(0, luid).or_else(|| self.find(index, luid).filter(|_| index != 0))
    }

    /// The index of one more interface: the first is the loopback interface on Windows; indices have gaps.
    pub fn next_index(&mut self) -> NET_IFINDEX {
        self.last = if self.last == 0 { 7 } else { self.last + 4 };
        while self.interfaces.contains_key(&self.last) {
            self.last += 4;
        }
        self.last
    }

    /// The identifier of an interface; zero if it is gone.
    pub fn luid(&self, index: NET_IFINDEX) -> NET_LUID {
        self.interfaces.get(&index).map(|interface| interface.luid).unwrap_or_default()
    }
}

/// A route: what has the prefix leaves through the interface.
#[derive(Clone, Copy)]
pub struct Route {
    pub prefix: IpAddr,
    pub length: u8,
    pub index: NET_IFINDEX,
    pub metric: u32,
    /// It leads to this machine.
    pub loopback: bool,
}

impl State {
    /// What answers the opening of NDK adapters on an interface.
    ///
    /// # Errors
    ///
    /// There is no such interface, or nothing answers on it.
    pub fn ndk_of(&self, index: NET_IFINDEX) -> Result<Arc<dyn NdkProvider>, NtStatus> {
        let net = self.locked::<Net>();
        let interface = net.interfaces.get(&index).ok_or(NOT_FOUND)?;
        interface.ndk.clone().ok_or(NtStatus::NOT_SUPPORTED)
    }

    /// Returns true if the machine has that address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.locked::<Net>().addresses.iter().any(|row| row.ip == address)
    }
}
