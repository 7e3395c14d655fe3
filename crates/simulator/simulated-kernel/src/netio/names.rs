//! Names, indices and identifiers of interfaces.

use ndis::{IF_MAX_STRING_SIZE, NET_IFINDEX, NET_LUID};
use ndkpi::{GUID, NtStatus};

use super::{
    interfaces::identifier,
    stack::{Net, helper},
};
use crate::{report::bug_check, rule::Rule};

/// The index of no interface.
const NET_IFINDEX_UNSPECIFIED: NET_IFINDEX = 0;

/// Ends the test if a driver passes a null pointer.
fn present<T>(pointer: *const T, routine: &str) {
    if pointer.is_null() {
        bug_check(Rule::BadArgument, format_args!("{routine} with a null pointer"));
    }
}

#[unsafe(no_mangle)]
extern "system" fn ConvertInterfaceAliasToLuid(alias: *const u16, luid: *mut NET_LUID) -> NtStatus {
    helper!("ConvertInterfaceAliasToLuid", |state| {
        present(alias, "ConvertInterfaceAliasToLuid");
        present(luid, "ConvertInterfaceAliasToLuid");
        // What is not found is said so there too.
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { luid.write(NET_LUID::default()) };
        let mut units = Vec::new();
        loop {
            // SAFETY: the driver's string has units up to its zero.
            let place = unsafe { alias.add(units.len()) };
            // SAFETY: the driver's string has units up to its zero.
            match unsafe { place.read() } {
                0 => break,
                _ if units.len() > IF_MAX_STRING_SIZE => return NtStatus::INVALID_PARAMETER,
                unit => units.push(unit),
            }
        }
        let name = String::from_utf16_lossy(&units).to_lowercase();
        let net = state.locked::<Net>();
        let found = net.interfaces.values().find(|interface| interface.new.alias.to_lowercase() == name);
        let Some(found) = found else { return NtStatus::INVALID_PARAMETER };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { luid.write(found.luid) };
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn ConvertInterfaceIndexToLuid(index: NET_IFINDEX, luid: *mut NET_LUID) -> NtStatus {
    helper!("ConvertInterfaceIndexToLuid", |state| {
        present(luid, "ConvertInterfaceIndexToLuid");
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { luid.write(NET_LUID::default()) };
        let net = state.locked::<Net>();
        let Some(found) = net.interfaces.get(&index) else { return NtStatus::INVALID_PARAMETER };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { luid.write(found.luid) };
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn ConvertInterfaceLuidToIndex(luid: *const NET_LUID, index: *mut NET_IFINDEX) -> NtStatus {
    helper!("ConvertInterfaceLuidToIndex", |state| {
        present(luid, "ConvertInterfaceLuidToIndex");
        present(index, "ConvertInterfaceLuidToIndex");
        // SAFETY: the driver's identifier, which lives until the call returns.
        let luid = unsafe { luid.read() };
        let net = state.locked::<Net>();
        let found = net.find(0, luid).map(|(found, _)| found);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { index.write(found.unwrap_or(NET_IFINDEX_UNSPECIFIED)) };
        if found.is_none() {
            return NtStatus::INVALID_PARAMETER;
        }
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn ConvertInterfaceLuidToAlias(luid: *const NET_LUID, alias: *mut u16, length: usize) -> NtStatus {
    helper!("ConvertInterfaceLuidToAlias", |state| {
        present(luid, "ConvertInterfaceLuidToAlias");
        present(alias, "ConvertInterfaceLuidToAlias");
        // SAFETY: the driver's identifier, which lives until the call returns.
        let luid = unsafe { luid.read() };
        let net = state.locked::<Net>();
        let Some((_, found)) = net.find(0, luid) else { return NtStatus::INVALID_PARAMETER };
        let units: Vec<u16> = found.new.alias.encode_utf16().chain([0]).collect();
        if units.len() > length {
            return NtStatus::NO_MEMORY;
        }
        // SAFETY: the driver's place has room for `length` units.
        unsafe { alias.copy_from_nonoverlapping(units.as_ptr(), units.len()) };
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn ConvertInterfaceLuidToGuid(luid: *const NET_LUID, guid: *mut GUID) -> NtStatus {
    helper!("ConvertInterfaceLuidToGuid", |state| {
        present(luid, "ConvertInterfaceLuidToGuid");
        present(guid, "ConvertInterfaceLuidToGuid");
        // SAFETY: the driver's identifier, which lives until the call returns.
        let luid = unsafe { luid.read() };
        let found = state.locked::<Net>().find(0, luid).map(|(index, _)| index);
        let Some(index) = found else { return NtStatus::INVALID_PARAMETER };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { guid.write(identifier(index)) };
        NtStatus::SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "system" fn ConvertInterfaceGuidToLuid(guid: *const GUID, luid: *mut NET_LUID) -> NtStatus {
    helper!("ConvertInterfaceGuidToLuid", |state| {
        present(guid, "ConvertInterfaceGuidToLuid");
        present(luid, "ConvertInterfaceGuidToLuid");
        // SAFETY: the driver's identifier, which lives until the call returns.
        let guid = unsafe { guid.read() };
        let net = state.locked::<Net>();
        let found = net.interfaces.get(&guid.Data1).filter(|_| guid == identifier(guid.Data1));
        let Some(found) = found else { return NtStatus::INVALID_PARAMETER };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { luid.write(found.luid) };
        NtStatus::SUCCESS
    })
}

/// A mask as it is on the wire: the first byte of the address is the first in memory.
#[unsafe(no_mangle)]
extern "system" fn ConvertLengthToIpv4Mask(length: u32, mask: *mut u32) -> NtStatus {
    helper!("ConvertLengthToIpv4Mask", |_| {
        present(mask, "ConvertLengthToIpv4Mask");
        // All ones are no mask that a length could have led to.
        let found = (length <= 32).then(|| u32::MAX.checked_shl(32 - length).unwrap_or(0).to_be());
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { mask.write(found.unwrap_or(u32::MAX)) };
        if found.is_some() { NtStatus::SUCCESS } else { NtStatus::INVALID_PARAMETER }
    })
}

#[unsafe(no_mangle)]
extern "system" fn ConvertIpv4MaskToLength(mask: u32, length: *mut u8) -> NtStatus {
    helper!("ConvertIpv4MaskToLength", |_| {
        present(length, "ConvertIpv4MaskToLength");
        let mask = u32::from_be(mask);
        let ones = mask.leading_ones();
        if ones != mask.count_ones() {
            return NtStatus::INVALID_PARAMETER;
        }
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { length.write(u8::try_from(ones).unwrap_or(0)) };
        NtStatus::SUCCESS
    })
}
