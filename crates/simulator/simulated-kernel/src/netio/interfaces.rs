//! The table of interfaces.

use ndis::{
    IF_OPER_STATUS, MIB_IF_ROW2, MIB_IF_TABLE2, NDIS_MEDIUM, NDIS_PHYSICAL_MEDIUM, NET_IF_ACCESS_TYPE,
    NET_IF_CONNECTION_TYPE, NET_IF_DIRECTION_TYPE, NET_IFINDEX,
};
use ndkpi::{GUID, NtStatus};

use super::{
    stack::{Interface, NOT_FOUND, Net, helper},
    tables::Tables,
};
use crate::state::State;

/// Text as the row has it, with a zero at its end.
fn units(text: &str) -> [u16; 257] {
    let mut units = [0; 257];
    for (place, unit) in units.iter_mut().take(256).zip(text.encode_utf16()) {
        *place = unit;
    }
    units
}

/// The `GUID` of the interface with that index.
pub fn identifier(index: NET_IFINDEX) -> GUID {
    GUID { Data1: index, ..NONE }
}

const NONE: GUID = GUID { Data1: 0, Data2: 0, Data3: 0, Data4: [0; 8] };

fn row(index: NET_IFINDEX, interface: &Interface) -> MIB_IF_ROW2 {
    let mut mac = [0; 32];
    mac[..6].copy_from_slice(&interface.new.mac);
    MIB_IF_ROW2 {
        InterfaceLuid: interface.luid,
        InterfaceIndex: index,
        InterfaceGuid: identifier(index),
        Alias: units(&interface.new.alias),
        Description: units(&interface.new.description),
        PhysicalAddressLength: if interface.new.mac == [0; 6] { 0 } else { 6 },
        PhysicalAddress: mac,
        PermanentPhysicalAddress: mac,
        Mtu: interface.new.mtu,
        Type: u32::from(interface.luid.interface_type()),
        TunnelType: 0,
        MediaType: NDIS_MEDIUM::ETHERNET,
        PhysicalMediumType: NDIS_PHYSICAL_MEDIUM::ETHERNET,
        AccessType: NET_IF_ACCESS_TYPE::BROADCAST,
        DirectionType: NET_IF_DIRECTION_TYPE::SEND_RECEIVE,
        InterfaceAndOperStatusFlags: 0,
        OperStatus: if interface.up { IF_OPER_STATUS::UP } else { IF_OPER_STATUS::DOWN },
        AdminStatus: 1,
        MediaConnectState: 1,
        NetworkGuid: NONE,
        ConnectionType: NET_IF_CONNECTION_TYPE::DEDICATED,
        TransmitLinkSpeed: interface.new.speed,
        ReceiveLinkSpeed: interface.new.speed,
        InOctets: 0,
        InUcastPkts: 0,
        InNUcastPkts: 0,
        InDiscards: 0,
        InErrors: 0,
        InUnknownProtos: 0,
        InUcastOctets: 0,
        InMulticastOctets: 0,
        InBroadcastOctets: 0,
        OutOctets: 0,
        OutUcastPkts: 0,
        OutNUcastPkts: 0,
        OutDiscards: 0,
        OutErrors: 0,
        OutUcastOctets: 0,
        OutMulticastOctets: 0,
        OutBroadcastOctets: 0,
        OutQLen: 0,
    }
}

/// `MIB_IF_ENTRY_LEVEL` and `MIB_IF_TABLE_LEVEL`: normal, raw (of a table only), without statistics. There are no filters between, and nothing is
/// counted, so that all are alike.
const NORMAL: i32 = 0;
const RAW: i32 = 1;
const WITHOUT_STATISTICS: i32 = 2;

fn table(state: &State, table: *mut *mut MIB_IF_TABLE2) -> NtStatus {
    if table.is_null() {
        return NtStatus::INVALID_PARAMETER;
    }
    if state.strikes() {
        return NtStatus::NO_MEMORY;
    }
    let net = state.locked::<Net>();
    let rows: Vec<_> = net.interfaces.iter().map(|(&index, interface)| row(index, interface)).collect();
    let given = state.locked::<Tables>().give("interfaces", &rows);
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { table.write(std::ptr::with_exposed_provenance_mut(given)) };
    NtStatus::SUCCESS
}

fn entry(state: &State, place: *mut MIB_IF_ROW2) -> NtStatus {
    if place.is_null() {
        return NtStatus::INVALID_PARAMETER;
    }
    // SAFETY: the driver's row, which lives until the call returns.
    let (index, luid) = unsafe { ((*place).InterfaceIndex, (*place).InterfaceLuid) };
    let net = state.locked::<Net>();
    let Some((index, interface)) = net.by_luid_or_index(luid, index) else { return NOT_FOUND };
    // SAFETY: the driver's row, which lives until the call returns.
    unsafe { place.write(row(index, interface)) };
    NtStatus::SUCCESS
}

#[unsafe(no_mangle)]
extern "system" fn GetIfTable2(place: *mut *mut MIB_IF_TABLE2) -> NtStatus {
    helper!("GetIfTable2", |state| table(state, place))
}

#[unsafe(no_mangle)]
extern "system" fn GetIfTable2Ex(level: i32, place: *mut *mut MIB_IF_TABLE2) -> NtStatus {
    helper!("GetIfTable2Ex", |state| {
        let is_known = [NORMAL, RAW, WITHOUT_STATISTICS].contains(&level);
        if is_known { table(state, place) } else { NtStatus::INVALID_PARAMETER }
    })
}

#[unsafe(no_mangle)]
extern "system" fn GetIfEntry2(place: *mut MIB_IF_ROW2) -> NtStatus {
    helper!("GetIfEntry2", |state| entry(state, place))
}

#[unsafe(no_mangle)]
extern "system" fn GetIfEntry2Ex(level: i32, place: *mut MIB_IF_ROW2) -> NtStatus {
    helper!("GetIfEntry2Ex", |state| {
        let is_known = [NORMAL, WITHOUT_STATISTICS].contains(&level);
        if is_known { entry(state, place) } else { NtStatus::INVALID_PARAMETER }
    })
}
