//! `IND2MemoryRegion` and `IND2MemoryWindow`.

use core::ffi::c_void;

use ndkpi::GUID;

use super::{
    Class, borrow,
    overlapped::{overlapped, request},
    part::part,
    unknown,
};
use crate::{
    abi::{
        HRESULT, IID_IND2MemoryRegion, IID_IND2MemoryWindow, IID_IND2Overlapped, IND2MemoryRegionVtbl,
        IND2MemoryWindowVtbl, OVERLAPPED,
    },
    back_end::{BackEnd, MemoryRegion as _, MemoryWindow as _},
};

part! {
    /// A memory region.
    MemoryRegion: MemoryRegion
}

part! {
    /// A memory window.
    MemoryWindow: MemoryWindow
}

impl<B: BackEnd> Class for MemoryRegion<B> {
    type Table = IND2MemoryRegionVtbl;

    const TABLE: &'static IND2MemoryRegionVtbl = &IND2MemoryRegionVtbl {
        base: overlapped::<Self>(),
        Register: register::<B>,
        Deregister: deregister::<B>,
        GetLocalToken: get_local_token::<B>,
        GetRemoteToken: get_remote_token::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2MemoryRegion, IID_IND2Overlapped];
}

impl<B: BackEnd> Class for MemoryWindow<B> {
    type Table = IND2MemoryWindowVtbl;

    const TABLE: &'static IND2MemoryWindowVtbl =
        &IND2MemoryWindowVtbl { base: unknown::<Self>(), GetRemoteToken: get_window_token::<B> };
    const INTERFACES: &'static [GUID] = &[IID_IND2MemoryWindow];
}

/// `IND2MemoryRegion::Register`.
///
/// # Safety
///
/// `this` is such a region; the bytes stay as long as they are registered; no request is outstanding on `overlapped`, which
/// the client keeps until a request that pends ends.
unsafe extern "system" fn register<B: BackEnd>(
    this: *mut c_void,
    buffer: *const c_void,
    length: usize,
    flags: u32,
    overlapped: *mut OVERLAPPED,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe {
        request::<MemoryRegion<B>>(this, overlapped, |object, overlapped| {
            object.0.register((buffer, length), flags, overlapped)
        })
    }
}

/// `IND2MemoryRegion::Deregister`. Pends while transfers use the bytes.
///
/// # Safety
///
/// `this` is such a region; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn deregister<B: BackEnd>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds. Nothing is outstanding on `overlapped`, which stays (`# Safety`).
    unsafe { request::<MemoryRegion<B>>(this, overlapped, |object, overlapped| object.0.deregister(overlapped)) }
}

/// `IND2MemoryRegion::GetLocalToken`.
///
/// # Safety
///
/// `this` is such a region.
unsafe extern "system" fn get_local_token<B: BackEnd>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<B>>(this) };
    object.0.local_token()
}

/// `IND2MemoryRegion::GetRemoteToken`.
///
/// # Safety
///
/// `this` is such a region.
unsafe extern "system" fn get_remote_token<B: BackEnd>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryRegion<B>>(this) };
    object.0.remote_token()
}

/// `IND2MemoryWindow::GetRemoteToken`.
///
/// # Safety
///
/// `this` is such a window.
unsafe extern "system" fn get_window_token<B: BackEnd>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryWindow<B>>(this) };
    object.0.remote_token()
}
