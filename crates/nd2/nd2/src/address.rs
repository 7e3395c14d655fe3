//! Addresses as clients pass and get them.

use core::net::{IpAddr, SocketAddr};

use ndkpi::{NtStatus, SOCKADDR, SOCKADDR_INET};

use crate::abi::{SOCKET_ADDRESS, SOCKET_ADDRESS_LIST};

/// The client's address.
///
/// # Errors
///
/// `STATUS_INVALID_ADDRESS` if it is no address of the internet.
///
/// # Safety
///
/// `address` is null or valid for reading `length` bytes.
pub unsafe fn read(address: *const SOCKADDR, length: u32) -> Result<SocketAddr, NtStatus> {
    // SAFETY: `address` is null or valid for reading `length` bytes (`# Safety`).
    let read = unsafe { SOCKADDR_INET::read(address, length) };
    read.as_ref().and_then(SOCKADDR_INET::to_socket_addr).ok_or(NtStatus::INVALID_ADDRESS)
}

/// Gives the client an address, and in `length` the bytes it has.
///
/// # Errors
///
/// `STATUS_BUFFER_OVERFLOW` if it does not fit: `length` is then what is needed, and the buffer untouched.
///
/// # Safety
///
/// `length` is null or valid for reading and writing; `into` is null or valid for writing as many bytes.
pub unsafe fn write(address: SocketAddr, into: *mut SOCKADDR, length: *mut u32) -> Result<(), NtStatus> {
    if length.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let raw = SOCKADDR_INET::from(address);
    let needed = raw.length();
    // SAFETY: the pointer is not null.
    let room = unsafe { length.replace(needed) };
    if into.is_null() || room < needed {
        return Err(NtStatus::BUFFER_OVERFLOW);
    }
    // SAFETY: the address holds `needed` bytes, and the buffer has room for them.
    unsafe { into.cast::<u8>().copy_from(raw.as_ptr().cast::<u8>(), needed as usize) };
    Ok(())
}

/// Gives the client a list of addresses with port zero, and in `length` the bytes it has.
///
/// # Errors
///
/// As [`write()`].
///
/// # Safety
///
/// As [`write()`].
pub unsafe fn write_list(
    addresses: impl Iterator<Item = IpAddr> + Clone,
    into: *mut SOCKET_ADDRESS_LIST,
    length: *mut u32,
) -> Result<(), NtStatus> {
    if length.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let raw = addresses.map(|address| SOCKADDR_INET::from(SocketAddr::new(address, 0)));
    let count = raw.clone().count();
    let head = core::mem::offset_of!(SOCKET_ADDRESS_LIST, Address) + count * size_of::<SOCKET_ADDRESS>();
    let head = head.max(size_of::<SOCKET_ADDRESS_LIST>());
    let total: usize = head + raw.clone().map(|address| stride(&address)).sum::<usize>();
    let needed = u32::try_from(total).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    // SAFETY: the pointer is not null.
    let room = unsafe { length.replace(needed) };
    if into.is_null() || room < needed {
        return Err(NtStatus::BUFFER_OVERFLOW);
    }
    // SAFETY: the buffer has room for the head of the list.
    unsafe { (&raw mut (*into).iAddressCount).write_unaligned(i32::try_from(count).unwrap_or(i32::MAX)) };
    // SAFETY: only the address of a field of that head is taken.
    let mut entry = unsafe { &raw mut (*into).Address }.cast::<SOCKET_ADDRESS>();
    let mut at = head;
    for address in raw {
        // SAFETY: all addresses lie behind the head, and the buffer has room for them.
        let place = unsafe {
            let place = into.cast::<u8>().add(at);
            place.copy_from(address.as_ptr().cast::<u8>(), address.length() as usize);
            place
        };
        at += stride(&address);
        let described = SOCKET_ADDRESS {
            lpSockaddr: place.cast(),
            iSockaddrLength: i32::try_from(address.length()).unwrap_or(i32::MAX),
        };
        // SAFETY: the head has as many entries as there are addresses.
        unsafe { entry.write_unaligned(described) };
        // SAFETY: the entry is in the head, so the place behind it is in it or right at its end.
        entry = unsafe { entry.add(1) };
    }
    Ok(())
}

/// The bytes an address takes in a list, so that the next one is aligned.
const fn stride(address: &SOCKADDR_INET) -> usize {
    (address.length() as usize).next_multiple_of(8)
}

/// A client's bytes; none if there are none.
///
/// # Errors
///
/// `STATUS_ACCESS_VIOLATION` if there should be some and the pointer is null.
///
/// # Safety
///
/// `bytes` is null or valid for reading `length` bytes as long as the result is used.
pub const unsafe fn bytes<'a>(bytes: *const core::ffi::c_void, length: u32) -> Result<&'a [u8], NtStatus> {
    if length == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() {
        return Err(NtStatus::ACCESS_VIOLATION);
    }
    // SAFETY: the pointer is not null and valid for reading that many bytes (`# Safety`).
    Ok(unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), length as usize) })
}
