//! What is not simulated: the resolution of names.

use ndis::{ADDRINFOEXW, IRP, NDIS_STRING};
use ndkpi::{GUID, NtStatus, SOCKADDR, WSK_CLIENT};
use wdk_bindings::PVOID;

use crate::{context, report::bug_check, rule::Rule};

/// Ends the test.
fn absent(routine: &'static str, what: &str) -> ! {
    let _inside = context::Inside::new(routine);
    bug_check(Rule::NotSimulated, format_args!("{routine}: Winsock Kernel has sockets here, and no {what}"))
}

pub unsafe extern "system" fn get_address_info(
    _client: *mut WSK_CLIENT,
    _node: *mut NDIS_STRING,
    _service: *mut NDIS_STRING,
    _space: u32,
    _provider: *mut GUID,
    _hints: *mut ADDRINFOEXW,
    _result: *mut *mut ADDRINFOEXW,
    _process: PVOID,
    _thread: PVOID,
    _irp: *mut IRP,
) -> NtStatus {
    absent("WskGetAddressInfo", "names")
}

pub unsafe extern "system" fn free_address_info(_client: *mut WSK_CLIENT, _information: *mut ADDRINFOEXW) {
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
