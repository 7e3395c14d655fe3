//! The stack as tests see it: what is plugged in, configured and routed.

use std::{net::IpAddr, sync::Arc};

use ndis::{MIB_NOTIFICATION_TYPE, NET_IFINDEX, NET_LUID, NL_DAD_STATE};

use super::{
    routes::routes_of,
    stack::{Address, Interface, Net, NewInterface, Route},
};
use crate::{context, kernel::Kernel, ndk_provider::NdkProvider, state::State};

/// The type of an Ethernet interface.
const ETHERNET: u64 = 6;

/// The network stack of a kernel.
#[derive(Clone)]
pub struct Network {
    state: Arc<State>,
}

impl Kernel {
    /// The network stack.
    #[must_use]
    pub fn network(&self) -> Network {
        Network { state: self.state.clone() }
    }
}

impl Network {
    /// The stack of that kernel.
    #[must_use]
    pub const fn of(state: Arc<State>) -> Self {
        Self { state }
    }

    /// The kernel.
    pub(crate) const fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Adds an interface, which is up, without addresses and without NDK. Its index and identifier.
    #[must_use]
    pub fn add_interface(&self, new: &NewInterface) -> (NET_IFINDEX, NET_LUID) {
        self.add_interface_as(new, None, None)
    }

    /// The same with an index, or an identifier, of its own; without them the next ones.
    ///
    /// # Panics
    ///
    /// If another interface has it ([`Network::has_interface`]).
    #[must_use]
    pub fn add_interface_as(
        &self,
        new: &NewInterface,
        index: Option<NET_IFINDEX>,
        luid: Option<u64>,
    ) -> (NET_IFINDEX, NET_LUID) {
        let _inside = context::Inside::new("the network stack");
        assert!(!self.has_interface(index, luid), "an interface has {index:?} or {luid:?}");
        let mut net = self.state.locked::<Net>();
        let index = index.unwrap_or_else(|| net.next_index());
        let luid = NET_LUID { Value: luid.unwrap_or_else(|| ETHERNET << 48 | (0x8000 + u64::from(index)) << 24) };
        net.interfaces.insert(index, Interface { luid, new: new.clone(), up: true, ndk: None });
        drop(net);
        self.state.tell_of_interface(index, luid, MIB_NOTIFICATION_TYPE::ADD_INSTANCE);
        (index, luid)
    }

    /// Returns true if an interface has that index, or that identifier.
    #[must_use]
    pub fn has_interface(&self, index: Option<NET_IFINDEX>, luid: Option<u64>) -> bool {
        let net = self.state.locked::<Net>();
        let mut all = net.interfaces.iter();
        all.any(|(&one, interface)| Some(one) == index || Some(interface.luid.Value) == luid)
    }

    /// What an interface is from now on.
    ///
    /// # Panics
    ///
    /// If there is no such interface.
    pub fn describe(&self, index: NET_IFINDEX, new: &NewInterface) {
        let _inside = context::Inside::new("the network stack");
        self.state.locked::<Net>().interfaces.get_mut(&index).expect("an interface").new = new.clone();
    }

    /// Takes an interface away, and first its addresses.
    pub fn remove_interface(&self, index: NET_IFINDEX) {
        let _inside = context::Inside::new("the network stack");
        let addresses: Vec<_> = {
            let net = self.state.locked::<Net>();
            net.addresses.iter().filter(|row| row.index == index).map(|row| row.ip).collect()
        };
        for address in addresses {
            self.take_address(|row| row.index == index && row.ip == address);
        }
        let mut net = self.state.locked::<Net>();
        let routes: Vec<_> = net.routes.extract_if(.., |route| route.index == index).collect();
        drop(net);
        for route in routes {
            self.state.tell_of_route(&route, MIB_NOTIFICATION_TYPE::DELETE_INSTANCE);
        }
        let gone = self.state.locked::<Net>().interfaces.remove(&index);
        if let Some(gone) = gone {
            self.state.tell_of_interface(index, gone.luid, MIB_NOTIFICATION_TYPE::DELETE_INSTANCE);
        }
    }

    /// The interface can or cannot pass packets.
    ///
    /// # Panics
    ///
    /// If there is no such interface.
    pub fn set_up(&self, index: NET_IFINDEX, up: bool) {
        let mut net = self.state.locked::<Net>();
        let interface = net.interfaces.get_mut(&index).expect("an interface");
        let (luid, before) = (interface.luid, std::mem::replace(&mut interface.up, up));
        drop(net);
        if up != before {
            self.state.tell_of_interface(index, luid, MIB_NOTIFICATION_TYPE::PARAMETER);
        }
    }

    /// What answers the opening of NDK adapters on the interface from now on; `None` for an interface without NDK.
    ///
    /// # Panics
    ///
    /// If there is no such interface.
    pub fn set_ndk(&self, index: NET_IFINDEX, provider: Option<Arc<dyn NdkProvider>>) {
        let _inside = context::Inside::new("the network stack");
        let before = {
            let mut net = self.state.locked::<Net>();
            std::mem::replace(&mut net.interfaces.get_mut(&index).expect("an interface").ndk, provider)
        };
        drop(before);
    }

    /// Gives the interface an address, which is preferred at once.
    pub fn add_address(&self, index: NET_IFINDEX, address: IpAddr, prefix: u8) {
        self.add_address_in(index, address, prefix, NL_DAD_STATE::PREFERRED);
    }

    /// Gives the interface an address that stands there with duplicate address detection.
    ///
    /// # Panics
    ///
    /// If there is no such interface, or it has the address. Another one may have it too.
    pub fn add_address_in(&self, index: NET_IFINDEX, address: IpAddr, prefix: u8, state: NL_DAD_STATE) {
        let _inside = context::Inside::new("the network stack");
        let new = Address { index, ip: address, prefix, state };
        {
            let mut net = self.state.locked::<Net>();
            assert!(net.interfaces.contains_key(&index), "there is no interface {index}");
            assert!(net.addresses.iter().all(|row| (row.index, row.ip) != (index, address)), "{address} is in use");
            net.addresses.push(new);
        }
        self.state.tell_of_address(index, address, MIB_NOTIFICATION_TYPE::ADD_INSTANCE);
        for route in routes_of(&new) {
            self.state.tell_of_route(&route, MIB_NOTIFICATION_TYPE::ADD_INSTANCE);
        }
    }

    /// Where an address stands with duplicate address detection from now on.
    ///
    /// # Panics
    ///
    /// If nobody has the address.
    pub fn set_dad_state(&self, address: IpAddr, state: NL_DAD_STATE) {
        let _inside = context::Inside::new("the network stack");
        let index = {
            let mut net = self.state.locked::<Net>();
            let row = net.addresses.iter_mut().find(|row| row.ip == address).expect("an address of the machine");
            row.state = state;
            row.index
        };
        self.state.tell_of_address(index, address, MIB_NOTIFICATION_TYPE::PARAMETER);
    }

    /// Takes an address away.
    ///
    /// # Panics
    ///
    /// If nobody has it.
    pub fn remove_address(&self, address: IpAddr) {
        let _inside = context::Inside::new("the network stack");
        self.take_address(|row| row.ip == address);
    }

    fn take_address(&self, is_it: impl Fn(&Address) -> bool) {
        let gone = {
            let mut net = self.state.locked::<Net>();
            let place = net.addresses.iter().position(is_it);
            net.addresses.remove(place.expect("an address of the machine"))
        };
        self.state.tell_of_address(gone.index, gone.ip, MIB_NOTIFICATION_TYPE::DELETE_INSTANCE);
        for route in routes_of(&gone) {
            self.state.tell_of_route(&route, MIB_NOTIFICATION_TYPE::DELETE_INSTANCE);
        }
    }

    /// Adds a route: packets to addresses with that prefix leave through the interface. Prefixes of an interface's addresses
    /// have one already, with the metric 256.
    pub fn add_route(&self, prefix: IpAddr, length: u8, index: NET_IFINDEX, metric: u32) {
        let _inside = context::Inside::new("the network stack");
        let route = Route { prefix, length, index, metric, loopback: false };
        self.state.locked::<Net>().routes.push(route);
        self.state.tell_of_route(&route, MIB_NOTIFICATION_TYPE::ADD_INSTANCE);
    }
}
