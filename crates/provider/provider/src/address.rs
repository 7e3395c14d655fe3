//! Socket addresses as NDKPI passes them (`NDKPI 0.2`).

use core::{net::SocketAddr, ptr};

use ndkpi::{NtStatus, SOCKADDR, SOCKADDR_INET};

/// The address that a consumer names.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` for a null pointer, an unknown family, or a length that does not fit the family.
///
/// # Safety
///
/// `address` is null or valid for reading `length` bytes.
pub unsafe fn read(address: *const SOCKADDR, length: u32) -> Result<SocketAddr, NtStatus> {
    // SAFETY: `address` is null or valid for reading `length` bytes (`# Safety`).
    let read = unsafe { SOCKADDR_INET::read(address, length) };
    read.and_then(|address| address.to_socket_addr()).ok_or(NtStatus::INVALID_PARAMETER)
}

/// Answers a consumer that asks for an address (`NDKPI 5.8`, `NDKPI 5.9`).
///
/// `STATUS_BUFFER_TOO_SMALL` if there is not room enough; `length` holds what is needed then, and what was written on
/// success.
///
/// # Safety
///
/// `length` is null or valid for reading and writing; `buffer` is null or valid for writing the bytes it says.
pub unsafe fn write(address: Result<SocketAddr, NtStatus>, buffer: *mut SOCKADDR, length: *mut u32) -> NtStatus {
    let address = match address {
        Ok(_) if length.is_null() => return NtStatus::INVALID_PARAMETER,
        Ok(address) => SOCKADDR_INET::from(address),
        Err(status) => return status,
    };
    // SAFETY: `length` is valid for reading.
    let room = unsafe { length.read() };
    // SAFETY: `length` is valid for writing.
    unsafe { length.write(address.length()) };
    if buffer.is_null() || room < address.length() {
        return NtStatus::BUFFER_TOO_SMALL;
    }
    // SAFETY: the address has that many bytes, and the buffer has room for them; the two do not overlap.
    unsafe { ptr::copy_nonoverlapping(address.as_ptr().cast::<u8>(), buffer.cast::<u8>(), address.length() as usize) };
    NtStatus::SUCCESS
}
