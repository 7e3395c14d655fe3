//! `IND2Provider`.

use core::ffi::c_void;

use ndkpi::{GUID, SOCKADDR};

use super::{Class, Object, adapter::Adapter, borrow, unknown};
use crate::{
    abi::{HRESULT, IID_IND2Provider, IND2ProviderVtbl, SOCKET_ADDRESS_LIST},
    address,
    back_end::BackEnd,
};

/// A provider of a back end's adapters.
pub struct Provider<B: BackEnd>(pub B);

impl<B: BackEnd> Class for Provider<B> {
    type Table = IND2ProviderVtbl;

    const TABLE: &'static IND2ProviderVtbl = &IND2ProviderVtbl {
        base: unknown::<Self>(),
        QueryAddressList: query_address_list::<B>,
        ResolveAddress: resolve_address::<B>,
        OpenAdapter: open_adapter::<B>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2Provider];
}

/// `IND2Provider::QueryAddressList`.
///
/// # Safety
///
/// `this` is such a provider; `length` is null or valid, `list` null or valid for writing as many bytes.
unsafe extern "system" fn query_address_list<B: BackEnd>(
    this: *mut c_void,
    list: *mut SOCKET_ADDRESS_LIST,
    length: *mut u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<B>>(this) };
    let all = object.0.addresses();
    // SAFETY: `length` is null or valid, and `list` null or valid for writing as many bytes (`# Safety`).
    all.and_then(|all| unsafe { address::write_list(all.iter().copied(), list, length) }).into()
}

/// `IND2Provider::ResolveAddress`. The port is ignored.
///
/// # Safety
///
/// `this` is such a provider; `address` is null or valid for reading `length` bytes, `adapter` null or valid for writing.
unsafe extern "system" fn resolve_address<B: BackEnd>(
    this: *mut c_void,
    address: *const SOCKADDR,
    length: u32,
    adapter: *mut u64,
) -> HRESULT {
    if adapter.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<B>>(this) };
    // SAFETY: `address` is null or valid for reading `length` bytes (`# Safety`).
    let wanted = unsafe { address::read(address, length) };
    match wanted.and_then(|wanted| object.0.resolve(wanted.ip())) {
        Ok(number) => {
            // SAFETY: the pointer is not null.
            unsafe { adapter.write(number) };
            HRESULT::ND_SUCCESS
        }
        Err(status) => status.into(),
    }
}

/// `IND2Provider::OpenAdapter`.
///
/// # Safety
///
/// `this` is such a provider; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe extern "system" fn open_adapter<B: BackEnd>(
    this: *mut c_void,
    iid: *const GUID,
    adapter: u64,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider<B>>(this) };
    // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(iid, out, || object.0.open(adapter).map(Adapter::<B>)) }
}
