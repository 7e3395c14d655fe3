//! The stack as tests see it: what is plugged in, configured and routed.

use std::{net::IpAddr, sync::Arc};

use ndis::{MIB_NOTIFICATION_TYPE, NET_IFINDEX, NET_LUID, NL_DAD_STATE};

use super::{Address, Interface, routes::Route};
use crate::{
    context,
    kernel::{Kernel, State, lock},
    wsk::NdkProvider,
};

/// The type of an Ethernet interface.
const ETHERNET: u64 = 6;

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
        let _inside = context::Inside::new("the network stack");
        let mut net = lock(&self.state.net);
        // The first is the loopback interface on Windows; indices have gaps.
        net.last = if net.last == 0 { 7 } else { net.last + 4 };
        let index = net.last;
        let luid = NET_LUID { Value: ETHERNET << 48 | (0x8000 + u64::from(index)) << 24 };
        net.interfaces.insert(index, Interface { luid, new: new.clone(), up: true, ndk: None });
        drop(net);
        self.state.tell_of_interface(index, luid, MIB_NOTIFICATION_TYPE::ADD_INSTANCE);
        (index, luid)
    }

    /// What an interface is from now on.
    ///
    /// # Panics
    ///
    /// If there is no such interface.
    pub fn describe(&self, index: NET_IFINDEX, new: &NewInterface) {
        let _inside = context::Inside::new("the network stack");
        lock(&self.state.net).interfaces.get_mut(&index).expect("an interface").new = new.clone();
    }

    /// Takes an interface away, and first its addresses.
    pub fn remove_interface(&self, index: NET_IFINDEX) {
        let _inside = context::Inside::new("the network stack");
        let addresses: Vec<_> = {
            let net = lock(&self.state.net);
            net.addresses.iter().filter(|row| row.index == index).map(|row| row.ip).collect()
        };
        for address in addresses {
            self.remove_address(address);
        }
        let mut net = lock(&self.state.net);
        net.routes.retain(|route| route.index != index);
        let gone = net.interfaces.remove(&index);
        drop(net);
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
        let mut net = lock(&self.state.net);
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
            let mut net = lock(&self.state.net);
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
    /// If there is no such interface, or the address is in use.
    pub fn add_address_in(&self, index: NET_IFINDEX, address: IpAddr, prefix: u8, state: NL_DAD_STATE) {
        let _inside = context::Inside::new("the network stack");
        {
            let mut net = lock(&self.state.net);
            assert!(net.interfaces.contains_key(&index), "there is no interface {index}");
            assert!(net.addresses.iter().all(|row| row.ip != address), "{address} is in use");
            net.addresses.push(Address { index, ip: address, prefix, state });
        }
        self.state.tell_of_address(index, address, MIB_NOTIFICATION_TYPE::ADD_INSTANCE);
    }

    /// Where an address stands with duplicate address detection from now on.
    ///
    /// # Panics
    ///
    /// If nobody has the address.
    pub fn set_dad_state(&self, address: IpAddr, state: NL_DAD_STATE) {
        let _inside = context::Inside::new("the network stack");
        let index = {
            let mut net = lock(&self.state.net);
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
        let gone = {
            let mut net = lock(&self.state.net);
            let place = net.addresses.iter().position(|row| row.ip == address);
            net.addresses.remove(place.expect("an address of the machine"))
        };
        self.state.tell_of_address(gone.index, address, MIB_NOTIFICATION_TYPE::DELETE_INSTANCE);
    }

    /// Adds a route: packets to addresses with that prefix leave through the interface. Prefixes of an interface's addresses
    /// have one already, with the metric 256.
    pub fn add_route(&self, prefix: IpAddr, length: u8, index: NET_IFINDEX, metric: u32) {
        let _inside = context::Inside::new("the network stack");
        lock(&self.state.net).routes.push(Route { prefix, length, index, metric, loopback: false });
    }

    /// Winsock Kernel is not there yet, or has come.
    pub fn set_wsk_ready(&self, ready: bool) {
        let _inside = context::Inside::new("the network stack");
        lock(&self.state.wsk).set_ready(ready);
        self.state.dispatcher.signal();
    }

    /// How many NDK adapters are open through Winsock Kernel.
    #[must_use]
    pub fn open_ndk_adapters(&self) -> usize {
        lock(&self.state.wsk).open_adapters()
    }
}
