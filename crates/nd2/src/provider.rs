//! `IND2Provider`.

use alloc::vec::Vec;
use core::ffi::c_void;

use fallible::Arc;
use ndkpi::{GUID, SOCKADDR};

use crate::{
    Client, Device, Platform,
    abi::{HRESULT, IID_IND2Provider, IND2ProviderVtbl, SOCKET_ADDRESS_LIST},
    adapter::{Adapter, memory_result},
    address,
    com::{Class, Object, borrow, unknown},
};

/// A provider of some adapters.
pub struct Provider<P: Platform> {
    devices: Vec<Arc<Device<P>>>,
    client: Client,
}

impl<P: Platform> Provider<P> {
    /// Makes a COM object with the interface `iid` that provides `devices` to `client`.
    ///
    /// # Safety
    ///
    /// `iid` is null or valid for reading, `out` null or valid for writing.
    pub unsafe fn create(
        devices: &[Arc<Device<P>>],
        client: &Client,
        iid: *const GUID,
        out: *mut *mut c_void,
    ) -> HRESULT {
        let make = || {
            let mut own = Vec::new();
            own.try_reserve_exact(devices.len()).map_err(|_| HRESULT::ND_NO_MEMORY)?;
            own.extend(devices.iter().cloned());
            Ok(Self { devices: own, client: client.clone() })
        };
        // SAFETY: the caller's promise.
        unsafe { Object::hand_out(iid, out, make) }
    }
}

impl<P: Platform> Class for Provider<P> {
    type Table = IND2ProviderVtbl;

    const TABLE: &'static IND2ProviderVtbl = &IND2ProviderVtbl {
        base: unknown::<Self>(),
        QueryAddressList: query_address_list::<P>,
        ResolveAddress: resolve_address::<P>,
        OpenAdapter: open_adapter::<P>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Provider];
}

/// `IND2Provider::QueryAddressList`.
///
/// # Safety
///
/// `this` is such a provider; `length` is null or valid, `list` null or valid for writing as many bytes.
unsafe extern "system" fn query_address_list<P: Platform>(
    this: *mut c_void,
    list: *mut SOCKET_ADDRESS_LIST,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<P>>(this) };
    let all = || {
        let mut all = Vec::new();
        for device in object.devices.iter().filter(|device| device.check_present().is_ok()) {
            let own = device.addresses()?;
            all.try_reserve(own.len()).map_err(fallible::AllocError::from)?;
            all.extend(own);
        }
        // SAFETY: the caller's promise.
        unsafe { address::write_list(all.iter().copied(), list, length) }
    };
    all().into()
}

/// `IND2Provider::ResolveAddress`.
///
/// # Safety
///
/// `this` is such a provider; `address` is null or valid for reading `length` bytes, `adapter` null or valid for writing.
unsafe extern "system" fn resolve_address<P: Platform>(
    this: *mut c_void,
    address: *const SOCKADDR,
    length: u32,
    adapter: *mut u64,
) -> HRESULT {
    if adapter.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<P>>(this) };
    // SAFETY: the caller's promise.
    let Ok(wanted) = (unsafe { address::read(address, length) }) else { return HRESULT::ND_INVALID_ADDRESS };
    // The port is ignored.
    let has = |device: &&Arc<Device<P>>| {
        device.check_present().is_ok() && device.addresses().is_ok_and(|own| own.contains(&wanted.ip()))
    };
    let Some(device) = object.devices.iter().find(has) else { return HRESULT::ND_INVALID_ADDRESS };
    // SAFETY: the pointer is not null.
    unsafe { adapter.write(device.config().info.AdapterId) };
    HRESULT::ND_SUCCESS
}

/// `IND2Provider::OpenAdapter`.
///
/// # Safety
///
/// `this` is such a provider; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe extern "system" fn open_adapter<P: Platform>(
    this: *mut c_void,
    iid: *const GUID,
    adapter: u64,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<P>>(this) };
    let make = || {
        let is_it = |device: &&Arc<Device<P>>| device.config().info.AdapterId == adapter;
        let device = object.devices.iter().find(is_it).ok_or(HRESULT::ND_INVALID_PARAMETER)?;
        device.check_present()?;
        Adapter::try_new(device, &object.client).map_err(memory_result)
    };
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}
