//! A small light-weight filter of NDIS that lets frames of up to [`LONGEST`] bytes through, and gives longer ones back to whoever sends them.
//!
//! Structures are at their offsets: the crate `ndis` has what a miniport needs.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicPtr, Ordering::SeqCst},
};

use ndis::{NDIS_STATUS, NET_BUFFER_LIST};
use ndkpi::{NDIS_HANDLE, NtStatus, status::NDIS_STATUS_SUCCESS};
use simulated_kernel::DuringRun;
use wdk_sys::{NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT};

// The kit declares them, the crate `ndis` leaves them out: SoftNDK is no filter.
unsafe extern "system" {
    fn NdisFRegisterFilterDriver(
        object: PDRIVER_OBJECT,
        context: NDIS_HANDLE,
        characteristics: *const u64,
        place: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    fn NdisFDeregisterFilterDriver(handle: NDIS_HANDLE);
    fn NdisFSetAttributes(handle: NDIS_HANDLE, context: NDIS_HANDLE, attributes: *const u64) -> NDIS_STATUS;
    fn NdisFSendNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, port: u32, flags: u32);
    fn NdisFSendNetBufferListsComplete(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32);
    fn NdisFIndicateReceiveNetBufferLists(
        handle: NDIS_HANDLE,
        first: *mut NET_BUFFER_LIST,
        port: u32,
        count: u32,
        flags: u32,
    );
    fn NdisFReturnNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32);
}

/// Bytes of a frame that it lets through, at most.
pub const LONGEST: u32 = 1_000;

/// `NDIS_SEND_FLAGS_DISPATCH_LEVEL` and `NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL`.
const AT_DISPATCH_LEVEL: u32 = 1;

/// The registration.
static DRIVER: DuringRun<AtomicPtr<c_void>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

/// What it registers with: `NDIS_FILTER_DRIVER_CHARACTERISTICS`, whose handlers are at these offsets.
fn characteristics() -> [u64; 28] {
    let handlers: [(usize, *const ()); 8] = [
        (80, attach as *const ()),
        (88, detach as *const ()),
        (96, restart as *const ()),
        (104, pause as *const ()),
        (112, send as *const ()),
        (120, sent as *const ()),
        (136, receive as *const ()),
        (144, returned as *const ()),
    ];
    let mut characteristics = [0; 28];
    // The type, the revision and the size; NDIS 6.30.
    characteristics[0] = u64::from_le_bytes([0x8B, 2, 224, 0, 6, 30, 1, 0]);
    for (offset, handler) in handlers {
        characteristics[offset / 8] = handler.addr() as u64;
    }
    characteristics
}

/// Its entry.
///
/// # Safety
///
/// The arguments of `DriverEntry`.
pub unsafe extern "system" fn entry(object: PDRIVER_OBJECT, _: PCUNICODE_STRING) -> NTSTATUS {
    // SAFETY: the driver's own object.
    unsafe { (*object).DriverUnload = Some(unload) };
    let (characteristics, mut handle) = (characteristics(), ptr::null_mut());
    // SAFETY: the structure and the place live until the call returns.
    let status =
        unsafe { NdisFRegisterFilterDriver(object, ptr::null_mut(), characteristics.as_ptr(), &raw mut handle) };
    DRIVER.store(handle, SeqCst);
    status.0
}

unsafe extern "C" fn unload(_: PDRIVER_OBJECT) {
    // SAFETY: the registration of this driver, which is not used again.
    unsafe { NdisFDeregisterFilterDriver(DRIVER.load(SeqCst)) };
}

/// The handle of a module is its context too.
unsafe extern "system" fn attach(module: NDIS_HANDLE, _: NDIS_HANDLE, _: *mut c_void) -> NDIS_STATUS {
    // `NDIS_FILTER_ATTRIBUTES`, which are a header and flags.
    let attributes = u64::from_le_bytes([0x8D, 1, 8, 0, 0, 0, 0, 0]);
    // SAFETY: the module that is being attached, and a structure that lives until the call returns.
    unsafe { NdisFSetAttributes(module, module, &raw const attributes) }
}

const unsafe extern "system" fn detach(_: NDIS_HANDLE) {}

const unsafe extern "system" fn restart(_: NDIS_HANDLE, _: *mut c_void) -> NDIS_STATUS {
    NDIS_STATUS_SUCCESS
}

const unsafe extern "system" fn pause(_: NDIS_HANDLE, _: *mut c_void) -> NDIS_STATUS {
    NDIS_STATUS_SUCCESS
}

unsafe extern "system" fn send(module: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, port: u32, flags: u32) {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: a list that the module has.
        let list = unsafe { &mut *next };
        let this = std::mem::replace(&mut next, std::mem::replace(&mut list.Next, ptr::null_mut()));
        if is_short(list) {
            // SAFETY: the module has the list, and gives it on.
            unsafe { NdisFSendNetBufferLists(module, this, port, flags) };
        } else {
            list.Status = NtStatus::NDIS_INVALID_LENGTH;
            // The bit of the level is the same in both kinds of flags.
            // SAFETY: the module has the list, and gives it back.
            unsafe { NdisFSendNetBufferListsComplete(module, this, flags & AT_DISPATCH_LEVEL) };
        }
    }
}

/// Every frame of a list is short enough.
fn is_short(list: &NET_BUFFER_LIST) -> bool {
    let mut next = list.FirstNetBuffer;
    while !next.is_null() {
        // SAFETY: a buffer of the list, which the module has.
        let buffer = unsafe { &*next };
        // SAFETY: what drivers read.
        if unsafe { buffer.DataLength.DataLength } > LONGEST {
            return false;
        }
        next = buffer.Next;
    }
    true
}

unsafe extern "system" fn sent(module: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32) {
    // SAFETY: as above, back.
    unsafe { NdisFSendNetBufferListsComplete(module, first, flags) };
}

unsafe extern "system" fn receive(module: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, port: u32, count: u32, flags: u32) {
    // SAFETY: as for those that are sent.
    unsafe { NdisFIndicateReceiveNetBufferLists(module, first, port, count, flags) };
}

unsafe extern "system" fn returned(module: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32) {
    // SAFETY: as above, back.
    unsafe { NdisFReturnNetBufferLists(module, first, flags) };
}
