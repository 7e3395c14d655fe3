//! What IP knows of an interface, for each family of addresses.

use std::mem::offset_of;

use ndis::{NET_IFINDEX, NET_LUID};
use ndkpi::{AF_INET, AF_INET6, NtStatus};

use super::stack::{Interface, NOT_FOUND, Net, helper};

/// `MIB_IPINTERFACE_ROW`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct InterfaceRow {
    family: u16,
    luid: NET_LUID,
    index: NET_IFINDEX,
    max_reassembly_size: u32,
    identifier: u64,
    router_advertisement_intervals: [u32; 2],
    /// From `AdvertisingEnabled` to `AdvertiseDefaultRoute`.
    flags: [u8; 9],
    router_discovery_behavior: u32,
    dad_transmits: u32,
    base_reachable_time: u32,
    retransmit_time: u32,
    path_mtu_discovery_timeout: u32,
    link_local_address_behavior: u32,
    link_local_address_timeout: u32,
    zone_indices: [u32; 16],
    site_prefix_length: u32,
    metric: u32,
    nl_mtu: u32,
    /// `Connected`, and whether there are wake-up patterns, discovery of neighbours and of routers.
    supports: [u8; 4],
    reachable_time: u32,
    /// What is offloaded on sending and on receiving, and `DisableDefaultRoutes`.
    offloads: [u8; 3],
}

const _: () = {
    assert!(size_of::<InterfaceRow>() == 168);
    assert!(offset_of!(InterfaceRow, flags) == 40 && offset_of!(InterfaceRow, dad_transmits) == 56);
    assert!(offset_of!(InterfaceRow, zone_indices) == 80 && offset_of!(InterfaceRow, nl_mtu) == 152);
    assert!(offset_of!(InterfaceRow, supports) == 156 && offset_of!(InterfaceRow, offloads) == 164);
};

/// The place of `UseAutomaticMetric` and `UseNeighborUnreachabilityDetection` in the flags.
const AUTOMATIC_METRIC: usize = 4;
const UNREACHABILITY_DETECTION: usize = 5;

impl InterfaceRow {
    /// One that says only which it is: all other bytes are this one.
    pub const fn of(family: u16, luid: NET_LUID, index: NET_IFINDEX, other: u8) -> Self {
        let number = u32::from_ne_bytes([other; 4]);
        Self {
            family,
            luid,
            index,
            max_reassembly_size: number,
            identifier: u64::from_ne_bytes([other; 8]),
            router_advertisement_intervals: [number; 2],
            flags: [other; 9],
            router_discovery_behavior: number,
            dad_transmits: number,
            base_reachable_time: number,
            retransmit_time: number,
            path_mtu_discovery_timeout: number,
            link_local_address_behavior: number,
            link_local_address_timeout: number,
            zone_indices: [number; 16],
            site_prefix_length: number,
            metric: number,
            nl_mtu: number,
            supports: [other; 4],
            reachable_time: number,
            offloads: [other; 3],
        }
    }

    /// What Windows begins with, in milliseconds where it is a time.
    fn filled(family: u16, index: NET_IFINDEX, interface: &Interface) -> Self {
        let is_v4 = family == AF_INET;
        let mut row = Self {
            max_reassembly_size: 65535,
            dad_transmits: if is_v4 { 3 } else { 1 },
            base_reachable_time: 30_000,
            retransmit_time: 1000,
            path_mtu_discovery_timeout: 600_000,
            zone_indices: [index; 16],
            site_prefix_length: 64,
            metric: 25,
            nl_mtu: interface.new.mtu,
            supports: [interface.up.into(), 0, 1, u8::from(!is_v4)],
            reachable_time: 30_000,
            ..Self::of(family, interface.luid, index, 0)
        };
        row.flags[AUTOMATIC_METRIC] = 1;
        row.flags[UNREACHABILITY_DETECTION] = 1;
        row
    }
}

#[unsafe(no_mangle)]
extern "system" fn GetIpInterfaceEntry(place: *mut InterfaceRow) -> NtStatus {
    helper!("GetIpInterfaceEntry", |state| {
        // SAFETY: null, or the driver's row, which lives until the call returns.
        let Some(row) = (unsafe { place.as_mut() }) else { return NtStatus::INVALID_PARAMETER };
        let is_named = row.luid != NET_LUID::default() || row.index != 0;
        if !is_named || ![AF_INET, AF_INET6].contains(&row.family) {
            return NtStatus::INVALID_PARAMETER;
        }
        let net = state.locked::<Net>();
        let Some((index, interface)) = net.by_luid_or_index(row.luid, row.index) else { return NOT_FOUND };
        *row = InterfaceRow::filled(row.family, index, interface);
        NtStatus::SUCCESS
    })
}

/// Which interface it is the driver says then; what it does not say is a value that no interface has.
#[unsafe(no_mangle)]
extern "system" fn InitializeIpInterfaceEntry(place: *mut InterfaceRow) {
    helper!("InitializeIpInterfaceEntry", |_| {
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(InterfaceRow::of(0, NET_LUID::default(), 0, 0xFF)) };
    });
}
