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
/// A query for an earlier version is refused. A query for a later one succeeds and gets the latest version that the provider has:
/// so `IRP_MN_QUERY_INTERFACE` is documented and so the framework answers, without telling the provider what was asked for. The
/// consumer looks at [`SOFTNDK_INTERFACE::Version`]. Later versions only add at the end; another layout gets another identifier.
pub const SOFTNDK_INTERFACE_VERSION: u16 = 1;

/// A routine of an interface that counts its users.
pub type INTERFACE_ROUTINE = unsafe extern "C" fn(Context: *mut c_void);

/// What `IRP_MN_QUERY_INTERFACE` returns: the system's `INTERFACE` and after it what is the provider's.
///
/// Everything is for `PASSIVE_LEVEL`. The functions stay valid until the interface is dereferenced; the consumer keeps the
/// device open as long as it has the interface, which keeps the provider loaded.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SOFTNDK_INTERFACE {
    /// The size of this structure.
    pub Size: u16,
    /// The version that the provider has, perhaps an earlier one than was asked for ([`SOFTNDK_INTERFACE_VERSION`]).
    pub Version: u16,
    /// For the two routines that follow.
    pub Context: *mut c_void,
    /// Counts one more user. The query has counted one already.
    pub InterfaceReference: Option<INTERFACE_ROUTINE>,
    /// Counts one user less.
    pub InterfaceDereference: Option<INTERFACE_ROUTINE>,
    /// For the two functions that follow.
    pub AdapterContext: NDIS_HANDLE,
    /// Opens the adapter for one consumer.
    ///
    /// It takes the first structure of NDIS 6.30, so `SwitchId` and `VPortId` of the parameters are not read.
    pub OpenNdkAdapter: Option<OPEN_NDK_ADAPTER_HANDLER>,
    /// Closes what was opened. Blocks until everything created from the adapter is closed.
    pub CloseNdkAdapter: Option<CLOSE_NDK_ADAPTER_HANDLER>,
    /// Tells the adapter's addresses, which a consumer of a miniport would learn from the IP stack.
    pub QueryNdkAddresses: Option<QUERY_NDK_ADDRESSES>,
}

/// Copies the adapter's addresses, with port 0, to the array.
///
/// `Count` is the length of the array, and then the number of addresses. `STATUS_BUFFER_TOO_SMALL`, and nothing copied, if there
/// are more than there is room for.
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
    /// An interface to be filled by a query.
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
