//! The network stack: interfaces, addresses and routes, and the routines of the IP helper that ask about them.

#![allow(non_snake_case, reason = "names of the C headers")]

mod changes;
mod interfaces;
mod names;
mod network;
mod routes;
mod tables;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use ndis::{NET_IFINDEX, NET_LUID, NL_DAD_STATE};
use ndkpi::NtStatus;

pub use self::network::{Network, NewInterface};
use self::{changes::Listeners, routes::Route, tables::Tables};
use crate::{
    context::DriverId,
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
    wsk::NdkProvider,
};

/// Nothing has what was asked for. `ndkpi` has no name for it.
pub const NOT_FOUND: NtStatus = NtStatus::from_bits(0xC000_0225);

/// Carries out a routine of the IP helper. Where the reference names another level than `PASSIVE_LEVEL`, or none, this is
/// stricter.
macro_rules! helper {
    ($name:literal, $work:expr) => {
        $crate::kernel::routine($name, || host::machine::Irql::PASSIVE_LEVEL, $work)
    };
}
use helper;

/// What the stack keeps.
#[derive(Default)]
pub struct Net {
    interfaces: BTreeMap<NET_IFINDEX, Interface>,
    addresses: Vec<Address>,
    routes: Vec<Route>,
    tables: Tables,
    listeners: Listeners,
    /// The index of the interface that was added last.
    last: NET_IFINDEX,
}

/// A network interface.
struct Interface {
    luid: NET_LUID,
    new: NewInterface,
    up: bool,
    ndk: Option<Arc<dyn NdkProvider>>,
}

/// A unicast address of an interface.
#[derive(Clone, Copy)]
struct Address {
    index: NET_IFINDEX,
    ip: IpAddr,
    prefix: u8,
    state: NL_DAD_STATE,
}

impl Net {
    /// The interface with this index or, if that is zero, with this identifier.
    fn find(&self, index: NET_IFINDEX, luid: NET_LUID) -> Option<(NET_IFINDEX, &Interface)> {
        let mut all = self.interfaces.iter().map(|(&index, interface)| (index, interface));
        all.find(|(one, interface)| if index == 0 { interface.luid == luid } else { *one == index })
    }

    /// The identifier of an interface; zero if it is gone.
    fn luid(&self, index: NET_IFINDEX) -> NET_LUID {
        self.interfaces.get(&index).map(|interface| interface.luid).unwrap_or_default()
    }
}

impl State {
    /// What answers the opening of NDK adapters on an interface.
    ///
    /// # Errors
    ///
    /// There is no such interface, or nothing answers on it.
    pub fn ndk_of(&self, index: NET_IFINDEX) -> Result<Arc<dyn NdkProvider>, NtStatus> {
        let net = lock(&self.net);
        let interface = net.interfaces.get(&index).ok_or(NOT_FOUND)?;
        interface.ndk.clone().ok_or(NtStatus::NOT_SUPPORTED)
    }

    /// Returns true if the machine has that address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        lock(&self.net).addresses.iter().any(|row| row.ip == address)
    }

    /// A driver is unloaded: it must have given everything back.
    pub fn check_netio(&self, owner: DriverId, name: &str) {
        let net = lock(&self.net);
        if let Some(what) = net.tables.left_by(owner) {
            bug_check(Rule::PoolLeak, format_args!("driver {name} never freed a table of {what} (FreeMibTable)"));
        }
        if net.listeners.left_by(owner) {
            bug_check(
                Rule::ReferenceLeak,
                format_args!("driver {name} still listens for changes of addresses (CancelMibChangeNotify2)"),
            );
        }
    }
}
