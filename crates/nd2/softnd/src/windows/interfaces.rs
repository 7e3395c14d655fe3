//! The addresses of the machine's interfaces.
//!
//! They are asked for whenever a client asks the provider for its addresses. So a program that waits for a change with
//! `SIO_ADDRESS_LIST_CHANGE` and asks then, as the public framework does, gets what there is then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use engine::connection::InterfaceAddress;
use ndkpi::{SOCKADDR, SOCKADDR_INET};
use windows_sys::Win32::{
    Foundation::{ERROR_BUFFER_OVERFLOW, NO_ERROR},
    NetworkManagement::{
        IpHelper::{
            GAA_FLAG_SKIP_ANYCAST, GAA_FLAG_SKIP_DNS_SERVER, GAA_FLAG_SKIP_FRIENDLY_NAME, GAA_FLAG_SKIP_MULTICAST,
            GetAdaptersAddresses, IP_ADAPTER_ADDRESSES_LH, IP_ADAPTER_UNICAST_ADDRESS_LH,
        },
        Ndis::IfOperStatusUp,
    },
    Networking::WinSock::{AF_UNSPEC, IpDadStatePreferred},
};

/// How often the list may grow while it is asked for.
const ATTEMPTS: usize = 5;

/// The loopback addresses, which every machine has.
const LOOPBACK: [InterfaceAddress; 2] = [
    InterfaceAddress::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
    InterfaceAddress::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
];

/// The addresses of the interfaces that are up: the loopback addresses at least.
///
/// Link-local addresses of IPv6 are left out: they need the interface beside them, which an adapter's address does not have.
pub fn list() -> Vec<InterfaceAddress> {
    let mut found = LOOPBACK.to_vec();
    for one in ask() {
        if found.iter().all(|other| other.address != one.address) {
            found.push(one);
        }
    }
    found
}

fn ask() -> Vec<InterfaceAddress> {
    let flags =
        GAA_FLAG_SKIP_ANYCAST | GAA_FLAG_SKIP_MULTICAST | GAA_FLAG_SKIP_DNS_SERVER | GAA_FLAG_SKIP_FRIENDLY_NAME;
    let mut length = 16 << 10;
    for _ in 0..ATTEMPTS {
        let mut room = vec![0_u64; (length as usize).div_ceil(8)];
        let first = room.as_mut_ptr().cast::<IP_ADAPTER_ADDRESSES_LH>();
        let family = u32::from(AF_UNSPEC);
        // SAFETY: the room has the length that is said, and is aligned for the structure.
        match unsafe { GetAdaptersAddresses(family, flags, std::ptr::null(), first, &raw mut length) } {
            NO_ERROR => {
                // SAFETY: the system has filled the room with a list, which it keeps as long as it lives.
                return unsafe { read(first) };
            }
            ERROR_BUFFER_OVERFLOW => {}
            _ => break,
        }
    }
    Vec::new()
}

/// The addresses in a list of interfaces.
///
/// # Safety
///
/// `interface` is null or the first of a list that is valid for reading.
unsafe fn read(mut interface: *const IP_ADAPTER_ADDRESSES_LH) -> Vec<InterfaceAddress> {
    let mut found = Vec::new();
    while !interface.is_null() {
        // SAFETY: the interface is one of the list (`# Safety`).
        let now = unsafe { &*interface };
        let mut address = if now.OperStatus == IfOperStatusUp { now.FirstUnicastAddress } else { std::ptr::null_mut() };
        while !address.is_null() {
            // SAFETY: the address is one of the interface's.
            let one = unsafe { &*address };
            found.extend(address_of(one));
            address = one.Next;
        }
        interface = now.Next;
    }
    found
}

fn address_of(one: &IP_ADAPTER_UNICAST_ADDRESS_LH) -> Option<InterfaceAddress> {
    if one.DadState != IpDadStatePreferred {
        return None;
    }
    let length = u32::try_from(one.Address.iSockaddrLength).ok()?;
    // SAFETY: the system's address is as long as it says.
    let raw = unsafe { SOCKADDR_INET::read(one.Address.lpSockaddr.cast::<SOCKADDR>(), length) }?;
    let address = raw.to_socket_addr()?.ip();
    let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!is_link_local).then_some(InterfaceAddress::new(address, one.OnLinkPrefixLength))
}
