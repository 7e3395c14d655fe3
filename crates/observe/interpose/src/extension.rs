//! `NDK_FN_QUERY_EXTENSION_INTERFACE` (`NDKPI 5.1`).
//!
//! The table of an extension is the provider's own, and its functions take the provider's objects: this layer cannot stand
//! between them and the consumer unless it knows the extension. The one that Microsoft's headers define is known; every other is
//! answered with `STATUS_NOT_SUPPORTED`, as a provider may.

use core::{ffi::c_void, ptr};

use ndkpi::{
    GUID, NDIS_RSS_PROCESSOR_INFO, NDK_ADAPTER, NDK_EXTENSION_ADAPTER_RSS_DISPATCH,
    NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH, NDK_EXTENSION_INTERFACE, NDK_OBJECT_HEADER, NDK_VERSION, NtStatus, Object,
};

use crate::{
    Args, Function, Hooks,
    call::immediate,
    shadow::{find, recognise},
};

struct Rss<H>(core::marker::PhantomData<H>);

impl<H: Hooks> Rss<H> {
    const TABLE: &'static NDK_EXTENSION_ADAPTER_RSS_DISPATCH =
        &NDK_EXTENSION_ADAPTER_RSS_DISPATCH { NdkGetRssProcessorInfo: Some(get_rss_processor_info::<H>) };
}

/// Asks an object of the type `T` for an extension.
///
/// # Safety
///
/// The object is open; `id` is null or valid for reading, `interface` null or valid for writing.
pub unsafe extern "system" fn query_extension<H: Hooks, T: Object>(
    object: *mut NDK_OBJECT_HEADER,
    id: *const GUID,
    version: NDK_VERSION,
    interface: *mut NDK_EXTENSION_INTERFACE,
) -> NtStatus {
    let asked = if id.is_null() {
        None
    } else {
        // SAFETY: not null, and valid for reading (`# Safety`).
        Some(unsafe { id.read() })
    };
    let args = Args::QueryExtension { id: asked, version };
    let call = |inner: *mut T| {
        let mut theirs = NDK_EXTENSION_INTERFACE { Dispatch: ptr::null() };
        // SAFETY: the provider's object is open; the table is that of its type.
        let status = unsafe { ask::<T>(inner, id, version, &raw mut theirs) };
        if !status.is_success() || interface.is_null() {
            return status;
        }
        if T::OBJECT_TYPE != NDK_ADAPTER::OBJECT_TYPE || asked != Some(NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH) {
            return NtStatus::NOT_SUPPORTED;
        }
        let ours = NDK_EXTENSION_INTERFACE { Dispatch: ptr::from_ref(Rss::<H>::TABLE).cast() };
        // SAFETY: the caller passes an open object, which `immediate` has found.
        if let Some(shadow) = unsafe { recognise::<H>(object.cast_const().cast()) } {
            shadow.root.set_rss_version(version);
        }
        // SAFETY: not null, and valid for writing (`# Safety`).
        unsafe { interface.write(ours) };
        status
    };
    // SAFETY: the object is open for the call (`# Safety`).
    unsafe { immediate::<H, T>(object.cast(), Function::QueryExtension, args, call) }
}

/// Asks the provider's object.
///
/// # Safety
///
/// As [`query_extension`], of a provider's object.
unsafe fn ask<T: Object>(
    inner: *mut T,
    id: *const GUID,
    version: NDK_VERSION,
    interface: *mut NDK_EXTENSION_INTERFACE,
) -> NtStatus {
    let slot = if T::OBJECT_TYPE == NDK_ADAPTER::OBJECT_TYPE {
        let adapter: *mut NDK_ADAPTER = inner.cast();
        // SAFETY: an open adapter. The slot is in every version.
        unsafe { (*(*adapter).Dispatch).NdkQueryExtension }
    } else {
        // All object structures have one shape, and slot 1 of every table but the adapter's asks for an extension (`NDKPI 4`).
        let object: *mut ndkpi::NDK_CQ = inner.cast();
        // SAFETY: an open object. The slot is in every version.
        unsafe { (*(*object).Dispatch).NdkQueryExtension }
    };
    // SAFETY: the object is open, and the pointers are valid for the call (`# Safety`): the provider gets them as they are.
    slot.map_or(NtStatus::NOT_SUPPORTED, |function| unsafe { function(inner.cast(), id, version, interface) })
}

/// `NdkGetRssProcessorInfo`, by the provider's table, which is asked for anew: the layer keeps none.
///
/// # Safety
///
/// The adapter is open; `info` is null or valid for writing `*size` bytes.
unsafe extern "system" fn get_rss_processor_info<H: Hooks>(
    adapter: *mut NDK_ADAPTER,
    info: *mut NDIS_RSS_PROCESSOR_INFO,
    size: *mut usize,
) -> NtStatus {
    // SAFETY: the caller passes an open adapter.
    let shadow = match unsafe { find::<H, NDK_ADAPTER>(adapter, Function::QueryExtension) } {
        Ok(shadow) => shadow,
        Err(status) => return status,
    };
    let inner = shadow.inner::<NDK_ADAPTER>();
    let mut theirs = NDK_EXTENSION_INTERFACE { Dispatch: ptr::null::<c_void>() };
    let id = NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH;
    // SAFETY: the provider's adapter is open, and the other pointers are valid for the call.
    let status = unsafe { ask(inner, &raw const id, shadow.root.rss_version(), &raw mut theirs) };
    if !status.is_success() || theirs.Dispatch.is_null() {
        return NtStatus::NOT_SUPPORTED;
    }
    let table: *const NDK_EXTENSION_ADAPTER_RSS_DISPATCH = theirs.Dispatch.cast();
    // SAFETY: the provider has given the table of this extension, which has this slot.
    let slot = unsafe { (*table).NdkGetRssProcessorInfo };
    // SAFETY: the provider's adapter is open, and `info` and `size` go to it as the consumer gave them (`# Safety`).
    slot.map_or(NtStatus::NOT_SUPPORTED, |function| unsafe { function(inner, info, size) })
}
