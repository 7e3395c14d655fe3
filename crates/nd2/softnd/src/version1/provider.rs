//! `INDProvider`.

use std::{ffi::c_void, net::IpAddr};

use nd2::{
    abi::{HRESULT, IID_INDProvider, IID_SoftAdapter, IND2ProviderVtbl, INDProviderVtbl, SOCKET_ADDRESS_LIST},
    address,
    com::{Class, Object, borrow, unknown},
};
use ndkpi::{GUID, SOCKADDR};

use crate::version1::{
    adapter::Adapter,
    held::{ComRef, short, with_length},
};

/// A provider of version 1.
pub struct Provider(pub ComRef<IND2ProviderVtbl>);

impl Provider {
    /// Opens the adapter that has this address.
    fn open(&self, ip: IpAddr, sockaddr: *const SOCKADDR, length: u32) -> Result<Adapter, HRESULT> {
        let (table, this) = (self.0.table(), self.0.as_ptr());
        let mut number = 0;
        // SAFETY: the provider is held; the address has been read, so it is valid, and the number has a place.
        let result = unsafe { (table.ResolveAddress)(this, sockaddr, length, &raw mut number) };
        if result != HRESULT::ND_SUCCESS {
            return Err(result);
        }
        let open = |iid, out| {
            // SAFETY: the provider is held, and both pointers are valid.
            unsafe { (table.OpenAdapter)(this, iid, number, out) }
        };
        // SAFETY: the adapters beneath have this table.
        let adapter = unsafe { ComRef::make(&IID_SoftAdapter, open) }?;
        Adapter::try_new(adapter, ip)
    }
}

impl Class for Provider {
    type Table = INDProviderVtbl;

    const TABLE: &'static INDProviderVtbl =
        &INDProviderVtbl { base: unknown::<Self>(), QueryAddressList: query_address_list, OpenAdapter: open_adapter };
    const INTERFACES: &'static [GUID] = &[IID_INDProvider];
}

/// `INDProvider::QueryAddressList`.
///
/// # Safety
///
/// `this` is such a provider; `length` is null or valid, `list` null or valid for writing as many bytes.
unsafe extern "system" fn query_address_list(
    this: *mut c_void,
    list: *mut SOCKET_ADDRESS_LIST,
    length: *mut usize,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider>(this) };
    // SAFETY: the provider is held; `list` is null or has room for as many bytes as `length` says (`# Safety`).
    let fill = |length| unsafe { (object.0.table().QueryAddressList)(object.0.as_ptr(), list, length) };
    // SAFETY: `length` is null or valid for reading and writing (`# Safety`).
    unsafe { with_length(length, fill) }
}

/// `INDProvider::OpenAdapter`: by one of its addresses.
///
/// # Safety
///
/// `this` is such a provider; `address` is null or valid for reading `length` bytes, `out` null or valid for writing.
unsafe extern "system" fn open_adapter(
    this: *mut c_void,
    address: *const SOCKADDR,
    length: usize,
    out: *mut *mut c_void,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Provider>(this) };
    let make = || {
        // SAFETY: `address` is null or valid for reading `length` bytes (`# Safety`).
        let ip = unsafe { address::read(address, short(length)) }.map_err(|_| HRESULT::ND_INVALID_ADDRESS)?.ip();
        object.open(ip, address, short(length))
    };
    // SAFETY: the identifier is a constant, and `out` is null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(&nd2::abi::IID_INDAdapter, out, make) }
}
