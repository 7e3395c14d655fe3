//! Logical address mappings (`NDKPI 5.2`, `NDKPI 7.5`).

use core::{ffi::c_void, ptr};

use engine::{
    memory::{PAGE_SIZE, Released, pages_touched},
    os::Memory,
};
use fallible::Arc;
use ndkpi::{MDL, NDK_ADAPTER, NDK_FN_REQUEST_COMPLETION, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NtStatus};

use crate::{
    Holder, NdkOs,
    adapter::Adapter,
    completion::AsyncRequest,
    device::Device,
    dispatch,
    object::{Body, Borrowed, ObjectRef},
};

/// Keeps the adapter from going away before its mappings (`NDKPI 7.9`: the adapter is the parent of a LAM).
struct Client<O: NdkOs> {
    _adapter: ObjectRef<Adapter<O>>,
}

impl<O: NdkOs> Released for Client<O> {
    fn released(&self) {}
}

/// The mapping, as the user of the bytes that are mapped.
fn holder<O: NdkOs>(device: &Arc<Device<O>>, key: u64) -> Holder {
    Holder::Mapping(ptr::from_ref::<Device<O>>(device).addr(), key)
}

/// `NDK_FN_BUILD_LAM`.
///
/// # Safety
///
/// `adapter` is open; `mdl` is null or a chain of MDLs whose pages stay locked until the mapping is released; `size` is
/// valid for reading and writing, `first_byte` for writing, and `lam` is null or valid for writing the bytes `size` says.
pub unsafe extern "system" fn build_lam<O: NdkOs>(
    adapter: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    length: usize,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut u32,
    first_byte: *mut u32,
) -> NtStatus {
    let answer = |adapter: &Borrowed<Adapter<O>>| {
        if size.is_null() || first_byte.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: the adapter is open, the pages of `mdl` stay locked, and what is written to is valid (`# Safety`).
        let status = unsafe { build(adapter, mdl, length, lam, size, first_byte) }.into();
        // The callback is optional here (`NDKPI 5.2`); without one the request completes in the call.
        Ok(AsyncRequest::new(completion, context).map_or(status, |request| request.finish(adapter, status)))
    };
    // SAFETY: the caller passes an open adapter.
    unsafe { dispatch::with(adapter, answer) }.unwrap_or_else(|status| status)
}

//= NDKPI 7.5.1
//= NDKPI 7.5.2
/// Maps the range and writes the mapping to the consumer's memory.
///
/// # Safety
///
/// As [`build_lam`].
unsafe fn build<O: NdkOs>(
    adapter: &ObjectRef<Adapter<O>>,
    mdl: *mut MDL,
    length: usize,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut u32,
    first_byte: *mut u32,
) -> Result<(), NtStatus> {
    let device = adapter.device();
    if length == 0 || length > device.config().info.MaxRegistrationSize {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the pages of the chain stay locked while they are mapped (`# Safety`).
    let memory = unsafe { device.os().memory_from_mdl(mdl, length) }?;
    let first = (memory.base() % PAGE_SIZE) as u32;
    let pages = u32::try_from(pages_touched(first, length as u64)).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let needed =
        u32::try_from(NDK_LOGICAL_ADDRESS_MAPPING::size_for(pages)).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    // SAFETY: `size` is valid for reading.
    let given = unsafe { size.read() };
    // SAFETY: `size` is valid for writing.
    unsafe { size.write(needed) };
    if lam.is_null() || given < needed {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let mapping = device.memory().map(memory, Client { _adapter: adapter.clone() })?;
    device.os().borrow(holder(device, mapping.key()), mdl, length);
    // SAFETY: `first_byte` is valid for writing.
    unsafe { first_byte.write(mapping.first_byte()) };
    #[expect(clippy::cast_possible_truncation, reason = "pointers have 64 bits where NDKPI exists")]
    let key = ptr::without_provenance_mut(mapping.key() as usize);
    // SAFETY: `lam` is valid for writing, and has room for the fixed part.
    let (context, page_count) = unsafe { (&raw mut (*lam).AdapterContext, &raw mut (*lam).AdapterPageCount) };
    // SAFETY: the place is in the fixed part.
    unsafe {
        context.write(key);
        page_count.write(mapping.pages());
    }
    // SAFETY: `lam` has room for all pages.
    let mut page = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(lam) };
    for address in mapping.page_addresses() {
        // SAFETY: there are `pages` places, one for each address.
        unsafe { page.write(NDK_LOGICAL_ADDRESS::from_bits(address)) };
        // SAFETY: the place is in the array, so the next is in it or right at its end.
        page = unsafe { page.add(1) };
    }
    Ok(())
}

/// `NDK_FN_RELEASE_LAM`.
///
/// # Safety
///
/// `adapter` is open; `lam` is null or a mapping that [`build_lam`] has written.
pub unsafe extern "system" fn release_lam<O: NdkOs>(adapter: *mut NDK_ADAPTER, lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) {
    let release = |adapter: &Borrowed<Adapter<O>>| {
        if lam.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // SAFETY: `lam` is valid for reading.
        let key = unsafe {
            let context = &raw const (*lam).AdapterContext;
            context.read()
        };
        let (device, key) = (adapter.device(), key.addr() as u64);
        device.os().give_back(holder(device, key));
        // Transfers that still use the pages keep them mapped.
        device.memory().unmap(key)
    };
    // A release cannot fail: a key that names no mapping leaves nothing to release.
    // SAFETY: the caller passes an open adapter.
    let _ = unsafe { dispatch::with(adapter, release) };
}
