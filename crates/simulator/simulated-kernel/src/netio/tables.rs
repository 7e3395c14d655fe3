//! Tables that the stack hands out and takes back, and the one of addresses.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Mutex,
};

use litemap::LiteMap;
use ndis::{AF_UNSPEC, MIB_UNICASTIPADDRESS_ROW, MIB_UNICASTIPADDRESS_TABLE, NET_LUID, NL_DAD_STATE};
use ndkpi::{AF_INET, AF_INET6, NtStatus, SOCKADDR_INET};
use wdk_bindings::PVOID;

use super::stack::{Address, NOT_FOUND, Net, helper};
use crate::{
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
    state::Part,
};

/// What freed tables are filled with.
const POISON: u64 = 0xDDDD_DDDD_DDDD_DDDD;

/// The tables that drivers have.
#[derive(Default)]
pub struct Tables {
    out: LiteMap<usize, Table>,
    /// Those that came back: kept, so that who reads one reads nonsense.
    back: LiteMap<usize, Box<[u64]>>,
}

impl Part for Mutex<Tables> {}

struct Table {
    owner: DriverId,
    what: &'static str,
    memory: Box<[u64]>,
}

impl Tables {
    /// Hands a table out: the number of rows, and the rows.
    pub fn give<Row>(&mut self, what: &'static str, rows: &[Row]) -> usize {
        let words = 1 + size_of_val(rows).div_ceil(8);
        let mut memory = vec![0_u64; words].into_boxed_slice();
        let start = memory.as_mut_ptr();
        // SAFETY: the memory begins with the number.
        unsafe { start.cast::<u32>().write(u32::try_from(rows.len()).unwrap_or(u32::MAX)) };
        // SAFETY: the memory has one word more than the rows need.
        let first = unsafe { start.add(1) };
        // SAFETY: the memory has room for the rows, which are aligned as words are.
        unsafe { first.cast::<Row>().copy_from_nonoverlapping(rows.as_ptr(), rows.len()) };
        let address = start.expose_provenance();
        self.out.insert(address, Table { owner: context::caller(), what, memory });
        address
    }

    /// What a driver has not given back.
    pub fn left_by(&self, owner: DriverId) -> Option<&'static str> {
        self.out.values().find(|table| table.owner == owner).map(|table| table.what)
    }
}

/// A row as the stack fills it.
fn row(net: &Net, address: &Address) -> MIB_UNICASTIPADDRESS_ROW {
    let mut own = SocketAddr::new(address.ip, 0);
    // The zone of a link-local address is its interface.
    if let SocketAddr::V6(own) = &mut own
        && own.ip().is_unicast_link_local()
    {
        own.set_scope_id(address.index);
    }
    MIB_UNICASTIPADDRESS_ROW {
        Address: own.into(),
        InterfaceLuid: net.luid(address.index),
        InterfaceIndex: address.index,
        PrefixOrigin: 1,
        SuffixOrigin: 1,
        ValidLifetime: u32::MAX,
        PreferredLifetime: u32::MAX,
        OnLinkPrefixLength: address.prefix,
        SkipAsSource: 0,
        DadState: address.state,
        ScopeId: 0,
        CreationTimeStamp: 0,
    }
}

#[unsafe(no_mangle)]
extern "system" fn GetUnicastIpAddressTable(family: u16, table: *mut *mut MIB_UNICASTIPADDRESS_TABLE) -> NtStatus {
    helper!("GetUnicastIpAddressTable", |state| {
        if table.is_null() || ![AF_UNSPEC, AF_INET, AF_INET6].contains(&family) {
            return NtStatus::INVALID_PARAMETER;
        }
        if state.strikes() {
            return NtStatus::NO_MEMORY;
        }
        let net = state.locked::<Net>();
        let of = |address: &IpAddr| if address.is_ipv4() { AF_INET } else { AF_INET6 };
        let wanted = net.addresses.iter().filter(|row| family == AF_UNSPEC || family == of(&row.ip));
        let rows: Vec<_> = wanted.map(|address| row(&net, address)).collect();
        if rows.is_empty() {
            return NOT_FOUND;
        }
        let given = state.locked::<Tables>().give("unicast addresses", &rows);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { table.write(std::ptr::with_exposed_provenance_mut(given)) };
        NtStatus::SUCCESS
    })
}

/// The address in a row, of the interface that the row names.
#[unsafe(no_mangle)]
extern "system" fn GetUnicastIpAddressEntry(place: *mut MIB_UNICASTIPADDRESS_ROW) -> NtStatus {
    helper!("GetUnicastIpAddressEntry", |state| {
        // SAFETY: null, or the driver's row, which lives until the call returns.
        let Some(wanted) = (unsafe { place.as_mut() }) else { return NtStatus::INVALID_PARAMETER };
        let Some(address) = wanted.Address.to_socket_addr() else { return NtStatus::INVALID_PARAMETER };
        if wanted.InterfaceLuid == NET_LUID::default() && wanted.InterfaceIndex == 0 {
            return NtStatus::INVALID_PARAMETER;
        }
        let net = state.locked::<Net>();
        let interface = net.by_luid_or_index(wanted.InterfaceLuid, wanted.InterfaceIndex);
        let found = interface
            .and_then(|(index, _)| net.addresses.iter().find(|row| (row.index, row.ip) == (index, address.ip())));
        let Some(found) = found else { return NOT_FOUND };
        *wanted = row(&net, found);
        NtStatus::SUCCESS
    })
}

/// What an address has unless a driver says more; the length of its prefix is one that none has.
#[unsafe(no_mangle)]
extern "system" fn InitializeUnicastIpAddressEntry(place: *mut MIB_UNICASTIPADDRESS_ROW) {
    /// `IpPrefixOriginUnchanged` and `IpSuffixOriginUnchanged`.
    const UNCHANGED: i32 = 16;
    helper!("InitializeUnicastIpAddressEntry", |_| {
        let empty = MIB_UNICASTIPADDRESS_ROW {
            Address: SOCKADDR_INET::UNSPECIFIED,
            InterfaceLuid: NET_LUID::default(),
            InterfaceIndex: 0,
            PrefixOrigin: UNCHANGED,
            SuffixOrigin: UNCHANGED,
            ValidLifetime: u32::MAX,
            PreferredLifetime: u32::MAX,
            OnLinkPrefixLength: u8::MAX,
            SkipAsSource: 0,
            DadState: NL_DAD_STATE(0),
            ScopeId: 0,
            CreationTimeStamp: 0,
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(empty) };
    });
}

#[unsafe(no_mangle)]
extern "system" fn FreeMibTable(memory: PVOID) {
    helper!("FreeMibTable", |state| {
        let mut tables = state.locked::<Tables>();
        let address = memory.addr();
        let Some(mut table) = tables.out.remove(&address) else {
            let rule = if tables.back.contains_key(&address) { Rule::DoubleFree } else { Rule::BadFree };
            drop(tables);
            bug_check(rule, format_args!("FreeMibTable of {address:#x}"));
        };
        table.memory.fill(POISON);
        tables.back.insert(address, table.memory);
    });
}
