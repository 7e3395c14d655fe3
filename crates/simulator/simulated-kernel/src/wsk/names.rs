//! Names: numeric addresses, `localhost`, and what a test has told the network.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ptr,
    sync::Mutex,
};

use host::machine::Irql;
use litemap::LiteMap;
use ndis::{ADDRINFOEXW, IRP, NDIS_STRING};
use ndkpi::{AF_INET, AF_INET6, GUID, NtStatus, SOCKADDR, SOCKADDR_INET, WSK_CLIENT};
use wdk_bindings::{PVOID, UNICODE_STRING};

use super::{
    buffer::present,
    clients::{Clients, captured},
    request::{self, Call},
    sockets::address_of,
    status::NO_MATCH,
};
use crate::{
    context::{self, DriverId},
    netio::network::Network,
    pins::Pin,
    report::bug_check,
    routine::{Limit, carry_out},
    rule::Rule,
    state::{Part, State},
    text, tracked,
};

/// A hint: the address is for a socket that listens.
const AI_PASSIVE: i32 = 1;
/// The address is wanted, and no name.
const NI_NUMERICHOST: u32 = 2;
/// A name is wanted, and no address.
const NI_NAMEREQD: u32 = 4;

/// The names, and the lists that clients have.
#[derive(Default)]
pub struct Names {
    known: Vec<(String, IpAddr)>,
    /// By the address of the first structure: whose it is, and its blocks.
    lists: LiteMap<usize, (DriverId, Vec<usize>)>,
}

impl Part for Mutex<Names> {}

impl Network {
    /// A name stands for an address from now on: for one of several, if it had one before.
    pub fn add_name(&self, name: &str, address: IpAddr) {
        let _inside = context::Inside::new("the network stack");
        self.state().locked::<Names>().known.push((name.to_lowercase(), address));
    }
}

impl State {
    /// A driver is unloaded: it must have freed what it has asked for.
    pub fn check_names(&self, owner: DriverId, name: &str) {
        if self.locked::<Names>().lists.values().any(|(whose, _)| *whose == owner) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a list of WskGetAddressInfo"));
        }
    }
}

/// The addresses that a name stands for.
fn resolve(state: &State, node: &str, is_passive: bool) -> Vec<IpAddr> {
    let loopback = [IpAddr::from(Ipv6Addr::LOCALHOST), Ipv4Addr::LOCALHOST.into()];
    if node.is_empty() {
        let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
        return if is_passive { all } else { loopback }.to_vec();
    }
    if let Ok(address) = node.parse() {
        return vec![address];
    }
    let node = node.to_lowercase();
    if node == "localhost" {
        return loopback.to_vec();
    }
    let names = state.locked::<Names>();
    names.known.iter().filter(|(name, _)| *name == node).map(|(_, address)| *address).collect()
}

/// Makes the list for these addresses, the first of which is returned, and its blocks.
fn list_of(addresses: &[SocketAddr], (kind, protocol): (i32, i32)) -> (usize, Vec<usize>) {
    let (mut next, mut blocks) = (0, Vec::new());
    for &address in addresses.iter().rev() {
        let address = SOCKADDR_INET::from(address);
        let length = address.length() as usize;
        let (place, here) = (request::block(length), request::block(size_of::<ADDRINFOEXW>()));
        let start: *mut u8 = ptr::with_exposed_provenance_mut(place);
        // SAFETY: a new block with room for it.
        unsafe { start.copy_from_nonoverlapping(address.as_ptr().cast(), length) };
        let whole = ADDRINFOEXW {
            ai_flags: 0,
            ai_family: i32::from(address.family()),
            ai_socktype: kind,
            ai_protocol: protocol,
            ai_addrlen: length,
            ai_canonname: ptr::null_mut(),
            ai_addr: ptr::with_exposed_provenance_mut(place),
            ai_blob: ptr::null_mut(),
            ai_bloblen: 0,
            ai_provider: ptr::null_mut(),
            ai_next: ptr::with_exposed_provenance_mut(next),
        };
        // SAFETY: a new block with room for it.
        unsafe { ptr::with_exposed_provenance_mut::<ADDRINFOEXW>(here).write(whole) };
        blocks.extend([place, here]);
        next = here;
    }
    (next, blocks)
}

/// What a client calls a request of its own with: the device that takes its IRP.
fn begin(state: &State, client: *mut WSK_CLIENT, irp: *mut IRP, routine: &str) -> Call {
    captured(state, client, routine);
    let device = state.locked::<Clients>().registered[&client.addr()].device.clone();
    Call::new(state, &device, irp, routine)
}

pub unsafe extern "system" fn get_address_info(
    client: *mut WSK_CLIENT,
    node: *mut NDIS_STRING,
    service: *mut NDIS_STRING,
    _space: u32,
    _provider: *mut GUID,
    hints: *mut ADDRINFOEXW,
    result: *mut *mut ADDRINFOEXW,
    _process: PVOID,
    _thread: PVOID,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskGetAddressInfo";
    carry_out(NAME, &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        let mut call = begin(state, client, irp, NAME);
        present(result.addr(), "the place for a list of addresses");
        tracked::check_memory_of(result.addr(), "place for a list of addresses");
        let (node, service) = (text::text(node.cast()), text::text(service.cast()));
        // SAFETY: null, or the client's structure, which lives until the call returns.
        let hint = unsafe { hints.as_ref() };
        let (flags, family) = hint.map_or((0, 0), |hint| (hint.ai_flags, hint.ai_family));
        let kind = hint.map_or((0, 0), |hint| (hint.ai_socktype, hint.ai_protocol));
        let port = if service.is_empty() { Some(0) } else { service.parse::<u16>().ok() };
        let mut found = resolve(state, &node, flags & AI_PASSIVE != 0);
        found.retain(|address| family == 0 || family == i32::from(if address.is_ipv4() { AF_INET } else { AF_INET6 }));
        let status = match port {
            _ if state.strikes() => NtStatus::INSUFFICIENT_RESOURCES,
            Some(_) if !found.is_empty() => NtStatus::SUCCESS,
            _ => NO_MATCH,
        };
        if status != NtStatus::SUCCESS {
            return call.end(state, status, 0);
        }
        let range = result.addr()..result.addr() + size_of::<usize>();
        call.pin(state, Pin { routine: NAME, memory: vec![(range, "the place for a list")], mdls: Vec::new() });
        let found: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, port.unwrap_or(0))).collect();
        let (first, blocks) = list_of(&found, kind);
        state.locked::<Names>().lists.insert(first, (context::caller(), blocks));
        let place = result.expose_provenance();
        call.end_with(state, NtStatus::SUCCESS, 0, move || {
            let place: *mut usize = ptr::with_exposed_provenance_mut(place);
            // SAFETY: the client's place, which stays until the request is complete: that is watched.
            unsafe { place.write_unaligned(first) };
        })
    })
}

pub unsafe extern "system" fn free_address_info(client: *mut WSK_CLIENT, list: *mut ADDRINFOEXW) {
    const NAME: &str = "WskFreeAddressInfo";
    carry_out(NAME, &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        captured(state, client, NAME);
        let gone = state.locked::<Names>().lists.remove(&list.addr());
        let Some((_, blocks)) = gone else {
            let words = "is no list of WskGetAddressInfo, or was freed";
            bug_check(Rule::BadHandle, format_args!("{NAME} of {list:p}, which {words}"));
        };
        blocks.into_iter().for_each(request::free_block);
    });
}

/// Writes text and a zero where a client wants it. Returns false if there is no room.
fn write_text(place: *mut NDIS_STRING, words: &str) -> bool {
    let place: *mut UNICODE_STRING = place.cast();
    // SAFETY: null, or the client's string, which lives until the call returns.
    let Some(place) = (unsafe { place.as_mut() }) else { return true };
    let units: Vec<u16> = words.encode_utf16().chain([0]).collect();
    let bytes = u16::try_from(size_of_val(units.as_slice())).unwrap_or(u16::MAX);
    if bytes > place.MaximumLength {
        return false;
    }
    present(place.Buffer.addr(), "the place for a name");
    // SAFETY: the string says that it has room for so many bytes.
    unsafe { place.Buffer.copy_from_nonoverlapping(units.as_ptr(), units.len()) };
    place.Length = bytes - 2;
    true
}

pub unsafe extern "system" fn get_name_info(
    client: *mut WSK_CLIENT,
    address: *mut SOCKADDR,
    length: u32,
    node: *mut NDIS_STRING,
    service: *mut NDIS_STRING,
    flags: u32,
    _process: PVOID,
    _thread: PVOID,
    irp: *mut IRP,
) -> NtStatus {
    const NAME: &str = "WskGetNameInfo";
    carry_out(NAME, &Limit::at(Irql::PASSIVE_LEVEL), |state| {
        let call = begin(state, client, irp, NAME);
        present(address.addr(), "an address");
        if node.is_null() && service.is_null() {
            bug_check(Rule::BadArgument, format_args!("{NAME} that wants neither a name nor a service"));
        }
        // SAFETY: the client's structure, of which the family comes first.
        let family = unsafe { address.cast::<u16>().read_unaligned() };
        let needed = if family == AF_INET { 16 } else { 28 };
        if ![AF_INET, AF_INET6].contains(&family) || length < needed {
            return call.end(state, NtStatus::INVALID_PARAMETER, 0);
        }
        let address = address_of(address, family, NAME);
        let known = {
            let names = state.locked::<Names>();
            let found = names.known.iter().find(|(_, ip)| *ip == address.ip());
            found.map(|(name, _)| name.clone()).filter(|_| flags & NI_NUMERICHOST == 0)
        };
        if known.is_none() && flags & NI_NAMEREQD != 0 {
            return call.end(state, NO_MATCH, 0);
        }
        let name = known.unwrap_or_else(|| address.ip().to_string());
        let is_written = write_text(node, &name) && write_text(service, &address.port().to_string());
        let status = if is_written { NtStatus::SUCCESS } else { NtStatus::BUFFER_TOO_SMALL };
        call.end(state, status, 0)
    })
}
