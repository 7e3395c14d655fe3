//! Status indications: what an adapter tells those above without being asked.

use core::ffi::c_void;

use ndkpi::{GUID, NDIS_HANDLE, NDIS_OBJECT_HEADER};

use crate::{NDIS_PORT_NUMBER, NDIS_STATUS, header, layout};

/// The type of [`NDIS_STATUS_INDICATION`].
pub const NDIS_OBJECT_TYPE_STATUS_INDICATION: u8 = 0x98;
/// The only revision of [`NDIS_STATUS_INDICATION`].
pub const NDIS_STATUS_INDICATION_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_STATUS_INDICATION`].
pub const NDIS_SIZEOF_STATUS_INDICATION_REVISION_1: u16 = 0x70;

/// The state of the link changed: the buffer is an [`NDIS_LINK_STATE`](crate::NDIS_LINK_STATE).
pub const NDIS_STATUS_LINK_STATE: NDIS_STATUS = NDIS_STATUS::from_bits(0x4001_0017);

/// Something that an adapter tells those above.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_STATUS_INDICATION {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// The miniport's handle of NDIS.
    pub SourceHandle: NDIS_HANDLE,
    /// The port.
    pub PortNumber: NDIS_PORT_NUMBER,
    /// What it is about.
    pub StatusCode: NDIS_STATUS,
    /// Zero.
    pub Flags: u32,
    /// Null for all above.
    pub DestinationHandle: NDIS_HANDLE,
    /// The request that led to it; null if none did.
    pub RequestId: *mut c_void,
    /// More about it.
    pub StatusBuffer: *mut c_void,
    /// The bytes of the buffer.
    pub StatusBufferSize: u32,
    /// For statuses that are named by an identifier.
    pub Guid: GUID,
    /// Belongs to NDIS.
    pub NdisReserved: [*mut c_void; 4],
}

layout!(NDIS_STATUS_INDICATION: size 0x70, align 8, {
    Header @ 0x00,
    SourceHandle @ 0x08,
    PortNumber @ 0x10,
    StatusCode @ 0x14,
    Flags @ 0x18,
    DestinationHandle @ 0x20,
    RequestId @ 0x28,
    StatusBuffer @ 0x30,
    StatusBufferSize @ 0x38,
    Guid @ 0x3C,
    NdisReserved @ 0x50,
});

header!(NDIS_STATUS_INDICATION:
    NDIS_OBJECT_TYPE_STATUS_INDICATION,
    NDIS_STATUS_INDICATION_REVISION_1,
    NDIS_SIZEOF_STATUS_INDICATION_REVISION_1);

#[cfg_attr(windows, link(name = "ndis.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// Indicates a status. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisMIndicateStatusEx(MiniportAdapterHandle: NDIS_HANDLE, StatusIndication: *const NDIS_STATUS_INDICATION);
}
