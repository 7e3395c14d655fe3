//! What an adapter reports of itself, in the order that is owed: registration, general, and then the others.

use std::sync::atomic::Ordering::Release;

use ndis::{
    DEVICE_OBJECT, IF_TYPE_ETHERNET_CSMACD, NDIS_MEDIUM, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_PHYSICAL_MEDIUM, NDIS_PM_CAPABILITIES,
    NDIS_PM_CAPABILITIES_REVISION_2, NDIS_STATUS,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, NDIS_NDK_CAPABILITIES, NDIS_OBJECT_HEADER,
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    status::{NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};

use super::{
    adapter::{Adapter, is_inside},
    structure::{ndis_routine, read},
};
use crate::{report::bug_check, rule::Rule, state::lock};

/// What was reported.
#[derive(Default)]
pub struct Attributes {
    /// The flags of the registration attributes.
    pub registration: Option<u32>,
    pub general: Option<General>,
    pub ndk: bool,
}

/// The general attributes, with copies of what they point to.
pub struct General {
    pub medium: NDIS_MEDIUM,
    /// The type of its interface.
    pub kind: u16,
    pub mtu: u32,
    pub mac_options: u32,
    pub mac: Vec<u8>,
    pub link_speed: u64,
    pub oids: Vec<u32>,
}

impl General {
    /// What the adapter looks like, and what it is physically, as the structures of protocols and filters have it. Of one for packets of IP
    /// the latter is not said.
    pub fn media(&self) -> (u32, u32) {
        let is_ip = self.medium == NDIS_MEDIUM::IP;
        let physical = if is_ip { NDIS_PHYSICAL_MEDIUM::UNSPECIFIED } else { NDIS_PHYSICAL_MEDIUM::ETHERNET };
        (self.medium.0.cast_unsigned(), physical.0.cast_unsigned())
    }

    /// The address, and how many of its bytes there are, as the structures of protocols and filters have it.
    pub fn address(&self) -> (u16, [u8; 32]) {
        let mut address = [0; 32];
        address[..self.mac.len()].copy_from_slice(&self.mac);
        (u16::try_from(self.mac.len()).unwrap_or(0), address)
    }
}

impl Attributes {
    /// Returns true if the frames of the adapter are packets of IP.
    pub fn is_for_ip(&self) -> bool {
        self.general.as_ref().is_some_and(|general| general.medium == NDIS_MEDIUM::IP)
    }

    /// The initialisation has succeeded: what is owed must be there.
    pub fn check(&self, adapter: &Adapter) {
        if self.registration.is_none() || self.general.is_none() {
            bug_check(Rule::AttributeOrder, format_args!("an adapter is initialised without its attributes"));
        }
        if adapter.ndk.is_some() && !self.ndk {
            bug_check(Rule::AttributeOrder, format_args!("an adapter of a provider of NDK has no attributes of NDK"));
        }
    }
}

/// The structure that a header is the beginning of.
pub const fn whole<T>(header: *const NDIS_OBJECT_HEADER) -> *const T {
    header.cast()
}

fn registration(adapter: &Adapter, place: *const NDIS_OBJECT_HEADER) {
    let expected = NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES::HEADER;
    let name = "NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES";
    // SAFETY: the driver's structure, of the type that its header says.
    let attributes = unsafe { read(whole::<NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES>(place), expected, name) };
    let mut changing = lock(&adapter.changing);
    if changing.attributes.registration.is_some() {
        bug_check(Rule::AttributeOrder, format_args!("registration attributes are set twice"));
    }
    changing.attributes.registration = Some(attributes.AttributeFlags);
    adapter.context.store(attributes.MiniportAdapterContext.expose_provenance(), Release);
}

fn general(adapter: &Adapter, place: *const NDIS_OBJECT_HEADER) {
    let expected = NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES::HEADER;
    let name = "NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES";
    // SAFETY: the driver's structure, of the type that its header says.
    let attributes = unsafe { read(whole::<NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES>(place), expected, name) };
    let wrong = |what: &str| -> ! { bug_check(Rule::BadArgument, format_args!("general attributes with {what}")) };
    let is_ethernet = attributes.MediaType == NDIS_MEDIUM::ETHERNET && attributes.IfType == IF_TYPE_ETHERNET_CSMACD;
    if !is_ethernet && attributes.MediaType != NDIS_MEDIUM::IP {
        bug_check(Rule::NotSimulated, format_args!("an adapter that is neither Ethernet nor for packets of IP"));
    }
    let mac = attributes.CurrentMacAddress.get(..usize::from(attributes.MacAddressLength));
    let Some(mac) = mac.filter(|mac| mac.len() == if is_ethernet { 6 } else { 0 }) else {
        wrong("a hardware address that has not six bytes, or one of an adapter for packets of IP")
    };
    if is_ethernet && (mac[0] & 1 != 0 || mac == [0; 6]) {
        wrong("a hardware address that no adapter can have");
    }
    if attributes.MtuSize == 0 || attributes.MaxXmitLinkSpeed == 0 || attributes.MaxRcvLinkSpeed == 0 {
        wrong("no MTU or no speed");
    }
    let list = attributes.SupportedOidListLength as usize;
    if attributes.SupportedOidList.is_null() || list == 0 || !list.is_multiple_of(size_of::<u32>()) {
        wrong("no list of OIDs");
    }
    // SAFETY: the driver's list has as many bytes as the structure says.
    let oids = unsafe { std::slice::from_raw_parts(attributes.SupportedOidList, list / size_of::<u32>()) };
    if !attributes.PowerManagementCapabilitiesEx.is_null() {
        let size = u16::try_from(size_of::<NDIS_PM_CAPABILITIES>()).unwrap_or(0);
        let expected = NDIS_OBJECT_HEADER::new(NDIS_OBJECT_TYPE_DEFAULT, NDIS_PM_CAPABILITIES_REVISION_2, size);
        // SAFETY: the driver's structure, which lives until the call returns.
        unsafe { read(attributes.PowerManagementCapabilitiesEx, expected, "NDIS_PM_CAPABILITIES") };
    }
    let mut changing = lock(&adapter.changing);
    if changing.attributes.registration.is_none() {
        bug_check(Rule::AttributeOrder, format_args!("general attributes are set before registration attributes"));
    }
    if changing.attributes.general.is_some() {
        bug_check(Rule::AttributeOrder, format_args!("general attributes are set twice"));
    }
    changing.attributes.general = Some(General {
        medium: attributes.MediaType,
        kind: attributes.IfType,
        mtu: attributes.MtuSize,
        mac_options: attributes.MacOptions,
        mac: mac.to_vec(),
        link_speed: attributes.XmitLinkSpeed,
        oids: oids.to_vec(),
    });
}

fn ndk(adapter: &Adapter, place: *const NDIS_OBJECT_HEADER) {
    let expected = NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES::HEADER;
    let name = "NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES";
    // SAFETY: the driver's structure, of the type that its header says.
    let attributes = unsafe { read(whole::<NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES>(place), expected, name) };
    let expected = NDIS_NDK_CAPABILITIES::HEADER;
    // SAFETY: the driver's structure, which lives as long as the adapter.
    let capabilities = unsafe { read(attributes.NdkCapabilities, expected, "NDIS_NDK_CAPABILITIES") };
    if capabilities.NdkInfo.is_null() {
        bug_check(Rule::BadArgument, format_args!("capabilities of NDK without NDK_ADAPTER_INFO"));
    }
    if adapter.ndk.is_none() {
        bug_check(Rule::AttributeOrder, format_args!("attributes of NDK of a driver that is no provider of NDK"));
    }
    let mut changing = lock(&adapter.changing);
    if changing.attributes.general.is_none() {
        bug_check(Rule::AttributeOrder, format_args!("attributes of NDK are set before general attributes"));
    }
    if changing.attributes.ndk {
        bug_check(Rule::AttributeOrder, format_args!("attributes of NDK are set twice"));
    }
    changing.attributes.ndk = true;
    changing.ndk_enabled = attributes.Enabled != 0;
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMSetMiniportAttributes(
    handle: NDIS_HANDLE,
    attributes: *const NDIS_OBJECT_HEADER,
) -> NDIS_STATUS {
    ndis_routine!("NdisMSetMiniportAttributes", PASSIVE_LEVEL, |state| {
        let adapter = state.adapter(handle);
        if !is_inside(&adapter, "MiniportInitializeEx") {
            bug_check(Rule::NdisPlace, format_args!("attributes are set outside of MiniportInitializeEx"));
        }
        if state.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        // SAFETY: the driver's structure, which begins with a header.
        let header = unsafe { attributes.read() };
        match header.Type {
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES => registration(&adapter, attributes),
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES => general(&adapter, attributes),
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES => ndk(&adapter, attributes),
            other => bug_check(Rule::NdisHeader, format_args!("attributes of the type {other:#x}")),
        }
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMGetDeviceProperty(
    handle: NDIS_HANDLE,
    physical: *mut *mut DEVICE_OBJECT,
    functional: *mut *mut DEVICE_OBJECT,
    next: *mut *mut DEVICE_OBJECT,
    resources: *mut *mut std::ffi::c_void,
    translated: *mut *mut std::ffi::c_void,
) {
    ndis_routine!("NdisMGetDeviceProperty", PASSIVE_LEVEL, |state| {
        let adapter = state.adapter(handle);
        for (place, device) in [physical, functional, next].into_iter().zip(adapter.devices) {
            if !place.is_null() {
                // SAFETY: not null, so the driver's place, which lives until the call returns.
                unsafe { place.write(std::ptr::with_exposed_provenance_mut(device)) };
            }
        }
        for place in [resources, translated] {
            if !place.is_null() {
                // SAFETY: not null, so the driver's place, which lives until the call returns.
                unsafe { place.write(std::ptr::null_mut()) };
            }
        }
    });
}
