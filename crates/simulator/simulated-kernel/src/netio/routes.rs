//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ndis::{AF_UNSPEC, IP_ADDRESS_PREFIX, MIB_IPFORWARD_ROW2, NET_IFINDEX, NET_LUID, NL_DAD_STATE};
use ndkpi::{AF_INET, AF_INET6, NtStatus, SOCKADDR_INET};

use super::{
    stack::{Address, NOT_FOUND, Net, Route, helper},
    tables::Tables,
};
use crate::state::State;

/// The bits of an address, the first of them in front, and how many there are.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

impl Route {
    fn covers(&self, address: IpAddr) -> bool {
        let ((mine, width), (theirs, other)) = (bits(self.prefix), bits(address));
        let differ = mine ^ theirs;
        width == other && (self.length == 0 || differ >> (128 - u32::from(self.length)) == 0)
    }
}

/// The network that an address of that prefix is in.
fn network_of(address: IpAddr, length: u8) -> IpAddr {
    let kept = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    let bits = bits(address).0 & kept;
    match address {
        IpAddr::V4(_) => Ipv4Addr::from_bits(u32::try_from(bits >> 96).unwrap_or(0)).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
    }
}

/// The routes that an address brings with it: to its link, and to itself.
pub fn routes_of(address: &Address) -> [Route; 2] {
    let Address { index, ip, prefix, .. } = *address;
    let on_link = Route { prefix: network_of(ip, prefix), length: prefix, index, metric: 256, loopback: false };
    [on_link, Route { prefix: ip, length: bits(ip).1, loopback: true, ..on_link }]
}

impl Net {
    /// The routes that somebody has added, and those that addresses bring with them.
    fn all_routes(&self) -> impl Iterator<Item = Route> {
        self.routes.iter().copied().chain(self.addresses.iter().flat_map(routes_of))
    }

    /// The best route to an address, through this interface or through any: the longest prefix, then the lowest metric.
    fn best_route(&self, to: IpAddr, through: Option<NET_IFINDEX>) -> Option<Route> {
        let fitting = self.all_routes().filter(|route| through.is_none_or(|index| route.index == index));
        fitting.filter(|route| route.covers(to)).min_by_key(|route| (u8::MAX - route.length, route.metric))
    }
}

impl State {
    /// The address that datagrams to this one come from: of the interface through which the best route leads. `None` without a route.
    pub fn source_for(&self, to: IpAddr) -> Option<IpAddr> {
        let net = self.locked::<Net>();
        let best = net.best_route(to, None)?;
        let own = net.addresses.iter().find(|row| {
            row.index == best.index && row.ip.is_ipv4() == to.is_ipv4() && row.state == NL_DAD_STATE::PREFERRED
        });
        own.map(|row| row.ip)
    }
}

const fn unspecified(of: IpAddr) -> IpAddr {
    match of {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// A route as the stack fills it.
pub fn row(net: &Net, route: &Route) -> MIB_IPFORWARD_ROW2 {
    MIB_IPFORWARD_ROW2 {
        InterfaceLuid: net.luid(route.index),
        InterfaceIndex: route.index,
        DestinationPrefix: IP_ADDRESS_PREFIX {
            Prefix: SocketAddr::new(route.prefix, 0).into(),
            PrefixLength: route.length,
        },
        NextHop: SocketAddr::new(unspecified(route.prefix), 0).into(),
        SitePrefixLength: 0,
        ValidLifetime: u32::MAX,
        PreferredLifetime: u32::MAX,
        Metric: route.metric,
        Protocol: 3,
        Loopback: route.loopback.into(),
        AutoconfigureAddress: 0,
        Publish: 0,
        Immortal: 1,
        Age: 0,
        Origin: 0,
    }
}

/// `MIB_IPFORWARD_TABLE2` at its start: how many rows follow at the next multiple of eight bytes.
type Table = u32;

#[unsafe(no_mangle)]
extern "system" fn GetIpForwardTable2(family: u16, table: *mut *mut Table) -> NtStatus {
    helper!("GetIpForwardTable2", |state| {
        if table.is_null() || ![AF_UNSPEC, AF_INET, AF_INET6].contains(&family) {
            return NtStatus::INVALID_PARAMETER;
        }
        if state.strikes() {
            return NtStatus::NO_MEMORY;
        }
        let net = state.locked::<Net>();
        let of = |route: &Route| if route.prefix.is_ipv4() { AF_INET } else { AF_INET6 };
        let wanted = net.all_routes().filter(|route| family == AF_UNSPEC || family == of(route));
        let rows: Vec<_> = wanted.map(|route| row(&net, &route)).collect();
        if rows.is_empty() {
            return NOT_FOUND;
        }
        let given = state.locked::<Tables>().give("routes", &rows);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { table.write(std::ptr::with_exposed_provenance_mut(given)) };
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn GetBestRoute2(
    luid: *mut NET_LUID,
    index: NET_IFINDEX,
    source: *const SOCKADDR_INET,
    destination: *const SOCKADDR_INET,
    _options: u32,
    route: *mut MIB_IPFORWARD_ROW2,
    best_source: *mut SOCKADDR_INET,
) -> NtStatus {
    helper!("GetBestRoute2", |state| {
        if destination.is_null() || route.is_null() || best_source.is_null() {
            return NtStatus::INVALID_PARAMETER;
        }
        // SAFETY: the driver's address, which lives until the call returns.
        let Some(to) = (unsafe { &*destination }).to_socket_addr() else { return NtStatus::INVALID_PARAMETER };
        // SAFETY: null or the driver's address, which lives until the call returns.
        let from = unsafe { source.as_ref() }.and_then(SOCKADDR_INET::to_socket_addr);
        // SAFETY: null or the driver's identifier, which lives until the call returns.
        let luid = unsafe { luid.as_ref() }.copied();
        let net = state.locked::<Net>();
        let through = match (luid, index) {
            (None, 0) => None,
            (luid, index) => match net.find(if luid.is_some() { 0 } else { index }, luid.unwrap_or_default()) {
                Some((index, _)) => Some(index),
                None => return NOT_FOUND,
            },
        };
        let Some(best) = net.best_route(to.ip(), through) else { return NtStatus::NETWORK_UNREACHABLE };
        let own = net.addresses.iter().find(|row| {
            row.index == best.index
                && row.ip.is_ipv4() == to.is_ipv4()
                && row.state == NL_DAD_STATE::PREFERRED
                && from.is_none_or(|from| from.ip() == row.ip)
        });
        let Some(own) = own.map(|row| row.ip).or_else(|| from.map(|from| from.ip())) else {
            return NtStatus::NETWORK_UNREACHABLE;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe {
            route.write(row(&net, &best));
            best_source.write(SocketAddr::new(own, 0).into());
        }
        NtStatus::SUCCESS
    })
}
