//! The network events with which a provider enables and disables NDK (NDIS-NDK 5).

use core::{ffi::c_void, ptr};

use super::{NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT};

open_enum! {
    /// A network event (NDIS-NDK 2). Only the two that NDK adds have a name here.
    NET_PNP_EVENT_CODE {
        /// NDK is enabled on the adapter.
        NDK_ENABLE = 13, "NetEventNDKEnable";
        /// NDK is disabled on the adapter. `NdisMNetPnPEvent` returns when every consumer has closed it.
        NDK_DISABLE = 14, "NetEventNDKDisable";
    }
}

/// A network event (NDIS-NDK 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NET_PNP_EVENT {
    /// Which event.
    pub NetEvent: NET_PNP_EVENT_CODE,
    /// More about the event; null for those of NDK.
    pub Buffer: *mut c_void,
    /// The bytes of the buffer.
    pub BufferLength: u32,
    /// Belongs to NDIS.
    pub NdisReserved: [usize; 4],
    /// Belongs to the transport.
    pub TransportReserved: [usize; 4],
    /// Belongs to TDI.
    pub TdiReserved: [usize; 4],
    /// Belongs to the clients of TDI.
    pub TdiClientReserved: [usize; 4],
}

layout!(NET_PNP_EVENT: size 0x98, align 8, {
    NetEvent @ 0x00,
    Buffer @ 0x08,
    BufferLength @ 0x10,
    NdisReserved @ 0x18,
    TransportReserved @ 0x38,
    TdiReserved @ 0x58,
    TdiClientReserved @ 0x78,
});

impl NET_PNP_EVENT {
    /// An event that carries nothing, as those of NDK.
    #[must_use]
    pub const fn new(event: NET_PNP_EVENT_CODE) -> Self {
        Self {
            NetEvent: event,
            Buffer: ptr::null_mut(),
            BufferLength: 0,
            NdisReserved: [0; 4],
            TransportReserved: [0; 4],
            TdiReserved: [0; 4],
            TdiClientReserved: [0; 4],
        }
    }
}

/// The revision of [`NET_PNP_EVENT_NOTIFICATION`] before NDIS 6.50.
pub const NET_PNP_EVENT_NOTIFICATION_REVISION_1: u8 = 1;
/// The revision of [`NET_PNP_EVENT_NOTIFICATION`] from NDIS 6.50.
pub const NET_PNP_EVENT_NOTIFICATION_REVISION_2: u8 = 2;
/// The bytes of the first revision of [`NET_PNP_EVENT_NOTIFICATION`].
pub const NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1: u16 = 0xA4;
/// The bytes of the second revision of [`NET_PNP_EVENT_NOTIFICATION`].
pub const NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2: u16 = 0xAC;
/// The flag that says that `VPortId` is not the default.
pub const NET_EVENT_FLAGS_VPORT_ID_VALID: u32 = 0x2;

/// The argument of `NdisMNetPnPEvent` (NDIS-NDK 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NET_PNP_EVENT_NOTIFICATION {
    /// The default type, and the length of the revision, which ends before the padding.
    pub Header: NDIS_OBJECT_HEADER,
    /// The port, [`NDIS_DEFAULT_PORT_NUMBER`](super::NDIS_DEFAULT_PORT_NUMBER) if there is no other.
    pub PortNumber: u32,
    /// The event.
    pub NetPnPEvent: NET_PNP_EVENT,
    /// Zero or [`NET_EVENT_FLAGS_VPORT_ID_VALID`].
    pub Flags: u32,
    /// The switch; from the second revision.
    pub SwitchId: u32,
    /// The virtual port; from the second revision.
    pub VPortId: u32,
}

layout!(NET_PNP_EVENT_NOTIFICATION: size 0xB0, align 8, {
    Header @ 0x00,
    PortNumber @ 0x04,
    NetPnPEvent @ 0x08,
    Flags @ 0xA0,
    SwitchId @ 0xA4,
    VPortId @ 0xA8,
});

impl NET_PNP_EVENT_NOTIFICATION {
    /// The header of the first revision, for a driver that registers for NDIS before 6.50.
    pub const HEADER_1: NDIS_OBJECT_HEADER = NDIS_OBJECT_HEADER::new(
        NDIS_OBJECT_TYPE_DEFAULT,
        NET_PNP_EVENT_NOTIFICATION_REVISION_1,
        NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1,
    );
    /// The header of the second revision.
    pub const HEADER_2: NDIS_OBJECT_HEADER = NDIS_OBJECT_HEADER::new(
        NDIS_OBJECT_TYPE_DEFAULT,
        NET_PNP_EVENT_NOTIFICATION_REVISION_2,
        NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2,
    );
}

// Each revision ends behind its last field.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(
        NET_PNP_EVENT_NOTIFICATION::HEADER_1.Size as usize
            == core::mem::offset_of!(NET_PNP_EVENT_NOTIFICATION, SwitchId)
    );
    assert!(
        NET_PNP_EVENT_NOTIFICATION::HEADER_2.Size as usize
            == core::mem::offset_of!(NET_PNP_EVENT_NOTIFICATION, VPortId) + size_of::<u32>()
    );
};
