//! What is not simulated: connections and the resolution of names.

use ndis::{IRP, NDIS_STRING};
use ndkpi::{GUID, NtStatus, SOCKADDR, WSK_CLIENT};
use wdk_bindings::PVOID;

use crate::{context, report::bug_check, rule::Rule};

/// Ends the test.
fn absent(routine: &'static str, what: &str) -> ! {
    let _inside = context::Inside::new(routine);
    bug_check(Rule::NotSimulated, format_args!("{routine}: Winsock Kernel has datagram sockets here, and no {what}"))
}

pub unsafe extern "system" fn socket_connect(
    _client: *mut WSK_CLIENT,
    _kind: u16,
    _protocol: u32,
    _local: *mut SOCKADDR,
    _remote: *mut SOCKADDR,
    _flags: u32,
    _context: PVOID,
    _dispatch: *const std::ffi::c_void,
    _process: PVOID,
    _thread: PVOID,
    _security: PVOID,
    _irp: *mut IRP,
) -> NtStatus {
    absent("WskSocketConnect", "connections")
}

pub unsafe extern "system" fn get_address_info(
    _client: *mut WSK_CLIENT,
    _node: *mut NDIS_STRING,
    _service: *mut NDIS_STRING,
    _space: u32,
    _provider: *mut GUID,
    _hints: PVOID,
    _result: *mut PVOID,
    _process: PVOID,
    _thread: PVOID,
    _irp: *mut IRP,
) -> NtStatus {
    absent("WskGetAddressInfo", "names")
}

pub unsafe extern "system" fn free_address_info(_client: *mut WSK_CLIENT, _information: PVOID) {
    absent("WskFreeAddressInfo", "names")
}

pub unsafe extern "system" fn get_name_info(
    _client: *mut WSK_CLIENT,
    _address: *mut SOCKADDR,
    _length: u32,
    _node: *mut NDIS_STRING,
    _service: *mut NDIS_STRING,
    _flags: u32,
    _process: PVOID,
    _thread: PVOID,
    _irp: *mut IRP,
) -> NtStatus {
    absent("WskGetNameInfo", "names")
}
