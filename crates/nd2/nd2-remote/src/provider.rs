//! `IND2Provider`.

use std::{ffi::c_void, net::SocketAddr};

use nd2::{
    abi::{HRESULT, IID_IND2Provider, IND2ProviderVtbl, SOCKET_ADDRESS_LIST},
    address,
    com::{Class, Object, borrow, unknown},
};
use nd2_control::wire::{ADDRESS, Reader, Verb};
use ndkpi::{GUID, NtStatus, SOCKADDR};

use crate::{Transport, adapter::Adapter, held::Message};

/// Bytes of the longest list of addresses: eight adapters with eight addresses.
const LIST: usize = 4 + 64 * (8 + ADDRESS);

/// The adapters' addresses, with their adapters.
pub fn addresses(transport: &impl Transport) -> Result<Vec<(u64, SocketAddr)>, NtStatus> {
    let mut answer = [0; LIST];
    let length = transport.call(Verb::Addresses.code(), Message::new().get()?, &mut answer)?;
    let mut answer = Reader::new(&answer[..length]);
    (0..answer.u32()?).map(|_| Ok((answer.u64()?, read_address(answer.bytes(ADDRESS)?)?))).collect()
}

/// An address as it is sent.
pub fn read_address(bytes: &[u8]) -> Result<SocketAddr, NtStatus> {
    let length = u32::try_from(bytes.len()).map_err(|_| NtStatus::INVALID_ADDRESS)?;
    // SAFETY: the address is as long as it says.
    unsafe { address::read(bytes.as_ptr().cast(), length) }
}

/// A provider of the driver's adapters.
pub struct Provider<T: Transport>(T);

/// `DllGetClassObject`: makes a provider over `transport()`, which is called only if the interface exists.
///
/// # Safety
///
/// `iid` is null or valid for reading, `out` null or valid for writing.
pub unsafe fn get_class_object<T: Transport>(
    iid: *const GUID,
    out: *mut *mut c_void,
    transport: impl FnOnce() -> Result<T, HRESULT>,
) -> HRESULT {
    if iid.is_null() || out.is_null() {
        return HRESULT::E_POINTER;
    }
    // SAFETY: `iid` is not null.
    if !nd2::class::has(&unsafe { iid.read() }) {
        // SAFETY: `out` is not null.
        unsafe { out.write(std::ptr::null_mut()) };
        return HRESULT::E_NOINTERFACE;
    }
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, || transport().map(Provider)) }
}

impl<T: Transport> Class for Provider<T> {
    type Table = IND2ProviderVtbl;

    const TABLE: &'static IND2ProviderVtbl = &IND2ProviderVtbl {
        base: unknown::<Self>(),
        QueryAddressList: query_address_list::<T>,
        ResolveAddress: resolve_address::<T>,
        OpenAdapter: open_adapter::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Provider];
}

/// `IND2Provider::QueryAddressList`.
///
/// # Safety
///
/// `this` is such a provider; `length` is null or valid, `list` null or valid for writing as many bytes.
unsafe extern "system" fn query_address_list<T: Transport>(
    this: *mut c_void,
    list: *mut SOCKET_ADDRESS_LIST,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<T>>(this) };
    let found = addresses(&object.0);
    // SAFETY: the caller's promise.
    found.and_then(|found| unsafe { address::write_list(found.iter().map(|(_, one)| one.ip()), list, length) }).into()
}

/// `IND2Provider::ResolveAddress`.
///
/// # Safety
///
/// `this` is such a provider; `address` is null or valid for reading `length` bytes, `adapter` null or valid for writing.
unsafe extern "system" fn resolve_address<T: Transport>(
    this: *mut c_void,
    address: *const SOCKADDR,
    length: u32,
    adapter: *mut u64,
) -> HRESULT {
    if adapter.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<T>>(this) };
    // SAFETY: the caller's promise.
    let Ok(wanted) = (unsafe { address::read(address, length) }) else { return HRESULT::ND_INVALID_ADDRESS };
    let found = match addresses(&object.0) {
        Ok(found) => found,
        Err(status) => return status.into(),
    };
    let Some((id, _)) = found.iter().find(|(_, one)| one.ip() == wanted.ip()) else {
        return HRESULT::ND_INVALID_ADDRESS;
    };
    // SAFETY: the pointer is not null.
    unsafe { adapter.write(*id) };
    HRESULT::ND_SUCCESS
}

/// `IND2Provider::OpenAdapter`.
///
/// # Safety
///
/// `this` is such a provider; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe extern "system" fn open_adapter<T: Transport>(
    this: *mut c_void,
    iid: *const GUID,
    adapter: u64,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<T>>(this) };
    let make = || Adapter::try_new(&object.0, adapter).map_err(HRESULT::of);
    // SAFETY: the caller's promise.
    unsafe { Object::hand_out(iid, out, make) }
}
