//! The interface between NDIS and a provider (NDIS-NDK, `docs/reference/ndis-ndk.md`): the registration of the provider,
//! the opening of an adapter, the information requests and the network events.
//!
//! Only the structures that speak of NDK are here, not the general ones of NDIS.

use crate::{BOOLEAN, NDIS_HANDLE, NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_VERSION, NtStatus};

mod events;
mod information;

pub use events::*;
pub use information::*;

/// The type of an object with no type of its own.
pub const NDIS_OBJECT_TYPE_DEFAULT: u8 = 0x80;
/// The type of [`NDIS_NDK_PROVIDER_CHARACTERISTICS`].
pub const NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS: u8 = 0xB2;
/// The type of [`NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES`].
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES: u8 = 0xB3;

/// The switch of an adapter that has no other.
pub const NDIS_DEFAULT_SWITCH_ID: u32 = 0;
/// The virtual port of an adapter that has no other.
pub const NDIS_DEFAULT_VPORT_ID: u32 = 0;
/// The port of an adapter that has no other.
pub const NDIS_DEFAULT_PORT_NUMBER: u32 = 0;

/// The keyword under which the administrator switches NDK on (1) and off (0).
pub const NETWORK_DIRECT_KEYWORD: &str = "*NetworkDirect";
/// The keyword of the global flags.
pub const NETWORK_DIRECT_GLOBAL_FLAGS_KEYWORD: &str = "*NetworkDirectGlobalFlags";
/// The global flag that allows a peer in another subnet.
pub const NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET: u32 = 0x1;

/// The header of NDIS structures: kind, revision and length (NDIS-NDK 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_OBJECT_HEADER {
    /// The kind, an `NDIS_OBJECT_TYPE_` constant.
    pub Type: u8,
    /// The revision, from 1.
    pub Revision: u8,
    /// The length of the structure in this revision, in bytes.
    pub Size: u16,
}

layout!(NDIS_OBJECT_HEADER: size 4, align 2, { Type @ 0x00, Revision @ 0x01, Size @ 0x02 });

impl NDIS_OBJECT_HEADER {
    /// The header with these values.
    #[must_use]
    pub const fn new(object_type: u8, revision: u8, size: u16) -> Self {
        Self { Type: object_type, Revision: revision, Size: size }
    }
}

/// The only revision of [`NDIS_NDK_PROVIDER_CHARACTERISTICS`].
pub const NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_NDK_PROVIDER_CHARACTERISTICS`].
pub const NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1: u16 = 0x18;

/// How a driver registers as a provider, with `NdisSetOptionalHandlers` (NDIS-NDK 1, NDIS-NDK 3).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_PROVIDER_CHARACTERISTICS {
    /// See [`Self::HEADER`]; the driver fills it.
    pub Header: NDIS_OBJECT_HEADER,
    /// Zero.
    pub Flags: u32,
    /// Opens an adapter for a consumer.
    pub OpenNDKAdapterHandler: Option<OPEN_NDK_ADAPTER_HANDLER>,
    /// Closes it.
    pub CloseNDKAdapterHandler: Option<CLOSE_NDK_ADAPTER_HANDLER>,
}

layout!(NDIS_NDK_PROVIDER_CHARACTERISTICS: size 0x18, align 8, {
    Header @ 0x00,
    Flags @ 0x04,
    OpenNDKAdapterHandler @ 0x08,
    CloseNDKAdapterHandler @ 0x10,
});

header!(
    NDIS_NDK_PROVIDER_CHARACTERISTICS:
    NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS,
    NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1,
    NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1
);

/// The parameters with which a consumer opens an adapter (NDIS-NDK 3).
///
/// The structure has no header and no length. A driver that registered for NDIS before 6.50 gets the version alone, so it
/// must not read, nor make a reference to, the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_OPEN_NDK_ADAPTER_PARAMETERS {
    /// The lowest version that the consumer can live with; see [`NDK_VERSION::negotiate`].
    pub Version: NDK_VERSION,
    /// The switch, [`NDIS_DEFAULT_SWITCH_ID`] if there is no other; from NDIS 6.50.
    pub SwitchId: u32,
    /// The virtual port, [`NDIS_DEFAULT_VPORT_ID`] if there is no other; from NDIS 6.50.
    pub VPortId: u32,
}

layout!(NDIS_OPEN_NDK_ADAPTER_PARAMETERS: size 0x0C, align 4, { Version @ 0x00, SwitchId @ 0x04, VPortId @ 0x08 });

/// Opens an adapter for one consumer: synchronous.
///
/// [`NtStatus::NDIS_BAD_VERSION`], [`NtStatus::NDIS_ADAPTER_NOT_READY`] or
/// [`NDIS_STATUS_RESOURCES`](crate::status::NDIS_STATUS_RESOURCES) if it fails. IRQL: `PASSIVE_LEVEL` (NDIS-NDK 4).
pub type OPEN_NDK_ADAPTER_HANDLER = unsafe extern "system" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    Parameters: *const NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    ppNdkAdapter: *mut *mut NDK_ADAPTER,
) -> NtStatus;

/// Closes what [`OPEN_NDK_ADAPTER_HANDLER`] opened: blocks until everything created from the adapter is closed and
/// every callback has returned (NDKPI 7.9).
///
/// IRQL: `PASSIVE_LEVEL` (NDIS-NDK 4).
pub type CLOSE_NDK_ADAPTER_HANDLER =
    unsafe extern "system" fn(MiniportAdapterContext: NDIS_HANDLE, pNdkAdapter: *mut NDK_ADAPTER);

/// The only revision of [`NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES`].
pub const NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES`].
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1: u16 = 0x10;

/// What a driver reports about an adapter with `NdisMSetMiniportAttributes`, NDK being enabled or not (NDIS-NDK 3).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// True if NDK is enabled now.
    pub Enabled: BOOLEAN,
    /// What the adapter can do. Keep it in place for the adapter's life.
    pub NdkCapabilities: *mut NDIS_NDK_CAPABILITIES,
}

layout!(NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES: size 0x10, align 8, {
    Header @ 0x00,
    Enabled @ 0x04,
    NdkCapabilities @ 0x08,
});

header!(
    NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES:
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
    NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1
);

/// The only revision of [`NDIS_NDK_CAPABILITIES`].
pub const NDIS_NDK_CAPABILITIES_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_NDK_CAPABILITIES`].
pub const NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1: u16 = 0x38;

/// What an adapter can do for all its consumers together (NDIS-NDK 3).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_NDK_CAPABILITIES {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// Zero.
    pub Flags: u32,
    /// The greatest number of queue pairs.
    pub MaxQpCount: u32,
    /// The greatest number of completion queues.
    pub MaxCqCount: u32,
    /// The greatest number of memory regions.
    pub MaxMrCount: u32,
    /// The greatest number of protection domains.
    pub MaxPdCount: u32,
    /// The greatest number of the peers' reads in progress; 0 if only each queue pair has a limit.
    pub MaxInboundReadLimit: u32,
    /// The greatest number of own reads in progress; 0 if only each queue pair has a limit.
    pub MaxOutboundReadLimit: u32,
    /// The greatest number of memory windows.
    pub MaxMwCount: u32,
    /// The greatest number of shared receive queues.
    pub MaxSrqCount: u32,
    /// The counters that the adapter does not keep; see [`NDIS_NDK_PERFORMANCE_COUNTERS::mask_of`].
    pub MissingCounterMask: u64,
    /// What the adapter can do for one consumer.
    pub NdkInfo: *mut NDK_ADAPTER_INFO,
}

layout!(NDIS_NDK_CAPABILITIES: size 0x38, align 8, {
    Header @ 0x00,
    Flags @ 0x04,
    MaxQpCount @ 0x08,
    MaxCqCount @ 0x0C,
    MaxMrCount @ 0x10,
    MaxPdCount @ 0x14,
    MaxInboundReadLimit @ 0x18,
    MaxOutboundReadLimit @ 0x1C,
    MaxMwCount @ 0x20,
    MaxSrqCount @ 0x24,
    MissingCounterMask @ 0x28,
    NdkInfo @ 0x30,
});

header!(
    NDIS_NDK_CAPABILITIES:
    NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_NDK_CAPABILITIES_REVISION_1,
    NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1
);

// The lengths in the headers are the lengths of the structures.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(NDIS_NDK_PROVIDER_CHARACTERISTICS::HEADER.Size as usize == size_of::<NDIS_NDK_PROVIDER_CHARACTERISTICS>());
    assert!(
        NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES::HEADER.Size as usize == size_of::<NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES>()
    );
    assert!(NDIS_NDK_CAPABILITIES::HEADER.Size as usize == size_of::<NDIS_NDK_CAPABILITIES>());
};
