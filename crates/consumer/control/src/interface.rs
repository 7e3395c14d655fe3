//! The provider's interface for kernel consumers.

#![allow(non_camel_case_types, non_snake_case, reason = "names as in the C header")]

use core::ffi::c_void;

use ndkpi::{CLOSE_NDK_ADAPTER_HANDLER, GUID, NDIS_HANDLE, NtStatus, OPEN_NDK_ADAPTER_HANDLER, SOCKADDR_INET};

/// The device interface class of every `SoftNDK` adapter: `GUID_DEVINTERFACE_SOFTNDK`.
pub const DEVICE_INTERFACE: GUID = GUID::from_u128(0x0f3a_9a70_5d7c_4b52_9b1e_6d6f_8f0c_2a11);

/// The interface type of `IRP_MN_QUERY_INTERFACE`: `GUID_SOFTNDK_INTERFACE`.
pub const GUID_SOFTNDK: GUID = GUID::from_u128(0x5a1f_6c02_93be_4d0f_8a57_c1d2_44e9_7b30);

/// The version of [`SOFTNDK_INTERFACE`].
///
/// A query for a lower version is refused. A query for a higher one succeeds and returns the provider's version, as documented
/// for `IRP_MN_QUERY_INTERFACE`; the framework answers it without telling the provider which version was asked for. So check
/// [`SOFTNDK_INTERFACE::Version`]. Later versions only append fields; a different layout gets a different identifier.
pub const SOFTNDK_INTERFACE_VERSION: u16 = 1;

/// A routine that references or dereferences an interface.
pub type INTERFACE_ROUTINE = unsafe extern "C" fn(Context: *mut c_void);

/// The result of `IRP_MN_QUERY_INTERFACE`: the system's `INTERFACE`, followed by the provider's functions.
///
/// Everything is for `PASSIVE_LEVEL`. The functions stay valid until the interface is dereferenced; the consumer keeps the
/// device open as long as it has the interface, which keeps the provider loaded.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SOFTNDK_INTERFACE {
    /// The size of this structure.
    pub Size: u16,
    /// The provider's version, which may be lower than the one asked for ([`SOFTNDK_INTERFACE_VERSION`]).
    pub Version: u16,
    /// The context of the next two routines.
    pub Context: *mut c_void,
    /// References the interface. The query has already done so once.
    pub InterfaceReference: Option<INTERFACE_ROUTINE>,
    /// Dereferences the interface.
    pub InterfaceDereference: Option<INTERFACE_ROUTINE>,
    /// The context of the next two functions.
    pub AdapterContext: NDIS_HANDLE,
    /// Opens the adapter for one consumer.
    ///
    /// The parameters are those of NDIS 6.30: `SwitchId` and `VPortId` are not read.
    pub OpenNdkAdapter: Option<OPEN_NDK_ADAPTER_HANDLER>,
    /// Closes the adapter. Blocks until everything created from it is closed.
    pub CloseNdkAdapter: Option<CLOSE_NDK_ADAPTER_HANDLER>,
    /// Returns the adapter's addresses. (For a miniport, a consumer gets them from the IP stack.)
    pub QueryNdkAddresses: Option<QUERY_NDK_ADDRESSES>,
}

/// Copies the adapter's addresses, with port 0, to the array.
///
/// `Count` is the length of the array on input and the number of addresses on output. If the array is too short:
/// `STATUS_BUFFER_TOO_SMALL`, and nothing is copied.
pub type QUERY_NDK_ADDRESSES =
    unsafe extern "system" fn(AdapterContext: NDIS_HANDLE, Addresses: *mut SOCKADDR_INET, Count: *mut u32) -> NtStatus;

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<SOFTNDK_INTERFACE>() == 64);
    assert!(offset_of!(SOFTNDK_INTERFACE, Version) == 2);
    assert!(offset_of!(SOFTNDK_INTERFACE, Context) == 8);
    assert!(offset_of!(SOFTNDK_INTERFACE, InterfaceReference) == 16);
    assert!(offset_of!(SOFTNDK_INTERFACE, InterfaceDereference) == 24);
    assert!(offset_of!(SOFTNDK_INTERFACE, AdapterContext) == 32);
    assert!(offset_of!(SOFTNDK_INTERFACE, OpenNdkAdapter) == 40);
    assert!(offset_of!(SOFTNDK_INTERFACE, CloseNdkAdapter) == 48);
    assert!(offset_of!(SOFTNDK_INTERFACE, QueryNdkAddresses) == 56);
};

/// The size of [`SOFTNDK_INTERFACE`] for its `Size` field and for the query.
#[expect(clippy::cast_possible_truncation, reason = "asserted above")]
pub const SOFTNDK_INTERFACE_SIZE: u16 = size_of::<SOFTNDK_INTERFACE>() as u16;

impl SOFTNDK_INTERFACE {
    /// An empty interface for a query to fill in.
    pub const EMPTY: Self = Self {
        Size: SOFTNDK_INTERFACE_SIZE,
        Version: SOFTNDK_INTERFACE_VERSION,
        Context: core::ptr::null_mut(),
        InterfaceReference: None,
        InterfaceDereference: None,
        AdapterContext: core::ptr::null_mut(),
        OpenNdkAdapter: None,
        CloseNdkAdapter: None,
        QueryNdkAddresses: None,
    };
}
