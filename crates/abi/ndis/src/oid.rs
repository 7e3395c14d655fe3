//! OID requests, and the structures of those that every miniport answers. Those of NDK are in `ndkpi`.

use core::ffi::c_void;

use ndkpi::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT};

use crate::{
    NDIS_MEDIA_CONNECT_STATE, NDIS_MEDIA_DUPLEX_STATE, NDIS_PORT_NUMBER, NDIS_STATUS, header, layout, open_enum,
};

/// Query: the OIDs that the adapter answers.
pub const OID_GEN_SUPPORTED_LIST: u32 = 0x0001_0101;
/// Query: the state of the hardware.
pub const OID_GEN_HARDWARE_STATUS: u32 = 0x0001_0102;
/// Set: which frames are indicated, a combination of `NDIS_PACKET_TYPE_`.
pub const OID_GEN_CURRENT_PACKET_FILTER: u32 = 0x0001_010E;
/// Set: the bytes of a frame that protocols see at once.
pub const OID_GEN_CURRENT_LOOKAHEAD: u32 = 0x0001_010F;
/// Query: the bytes of a frame with its link header.
pub const OID_GEN_MAXIMUM_TOTAL_SIZE: u32 = 0x0001_0111;
/// Query: the bytes of memory for sends.
pub const OID_GEN_TRANSMIT_BUFFER_SPACE: u32 = 0x0001_0108;
/// Query: the bytes of memory for receives.
pub const OID_GEN_RECEIVE_BUFFER_SPACE: u32 = 0x0001_0109;
/// Query: the smallest block of memory that a send takes.
pub const OID_GEN_TRANSMIT_BLOCK_SIZE: u32 = 0x0001_010A;
/// Query: the smallest block of memory that a receive takes.
pub const OID_GEN_RECEIVE_BLOCK_SIZE: u32 = 0x0001_010B;
/// Query: three bytes of the vendor's address block and one of the vendor's choice.
pub const OID_GEN_VENDOR_ID: u32 = 0x0001_010C;
/// Query: a text that ends with a zero.
pub const OID_GEN_VENDOR_DESCRIPTION: u32 = 0x0001_010D;
/// Query: the version of the driver.
pub const OID_GEN_VENDOR_DRIVER_VERSION: u32 = 0x0001_0116;
/// Query: frames sent.
pub const OID_GEN_XMIT_OK: u32 = 0x0002_0101;
/// Query: frames received.
pub const OID_GEN_RCV_OK: u32 = 0x0002_0102;
/// Query: frames that could not be sent.
pub const OID_GEN_XMIT_ERROR: u32 = 0x0002_0103;
/// Query: frames received with errors.
pub const OID_GEN_RCV_ERROR: u32 = 0x0002_0104;
/// Query: frames dropped for want of a buffer.
pub const OID_GEN_RCV_NO_BUFFER: u32 = 0x0002_0105;
/// Query: [`NDIS_STATISTICS_INFO`].
pub const OID_GEN_STATISTICS: u32 = 0x0002_0106;
/// Set: [`NDIS_LINK_PARAMETERS`].
pub const OID_GEN_LINK_PARAMETERS: u32 = 0x0001_0208;
/// Query and set: [`NDIS_INTERRUPT_MODERATION_PARAMETERS`].
pub const OID_GEN_INTERRUPT_MODERATION: u32 = 0x0001_0209;
/// Query: the address that the adapter was made with.
pub const OID_802_3_PERMANENT_ADDRESS: u32 = 0x0101_0101;
/// Query: the address in use.
pub const OID_802_3_CURRENT_ADDRESS: u32 = 0x0101_0102;
/// Query and set: the addresses whose frames are indicated.
pub const OID_802_3_MULTICAST_LIST: u32 = 0x0101_0103;
/// Query: how many addresses that list may have.
pub const OID_802_3_MAXIMUM_LIST_SIZE: u32 = 0x0101_0104;
/// Query: how the adapter wakes the machine.
pub const OID_PNP_CAPABILITIES: u32 = 0xFD01_0100;
/// Set: the state of power, an `NDIS_DEVICE_POWER_STATE`.
pub const OID_PNP_SET_POWER: u32 = 0xFD01_0101;
/// Query: may the adapter go to that state of power?
pub const OID_PNP_QUERY_POWER: u32 = 0xFD01_0102;

open_enum! {
    /// What an OID request asks.
    NDIS_REQUEST_TYPE {
        /// For a value.
        QUERY_INFORMATION = 0, "NdisRequestQueryInformation";
        /// To set a value.
        SET_INFORMATION = 1, "NdisRequestSetInformation";
        /// For a value, on behalf of management.
        QUERY_STATISTICS = 2, "NdisRequestQueryStatistics";
        /// To do something with a value, and for a result.
        METHOD = 12, "NdisRequestMethod";
    }
}

/// A buffer that is read or written.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QUERY {
    /// The OID.
    pub Oid: u32,
    /// The answer goes here.
    pub InformationBuffer: *mut c_void,
    /// The bytes of the buffer.
    pub InformationBufferLength: u32,
    /// The bytes of the answer.
    pub BytesWritten: u32,
    /// The bytes that the answer needs, if the buffer is too small.
    pub BytesNeeded: u32,
}

/// A value to be set.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SET {
    /// The OID.
    pub Oid: u32,
    /// The value.
    pub InformationBuffer: *mut c_void,
    /// The bytes of the buffer.
    pub InformationBufferLength: u32,
    /// The bytes that were read.
    pub BytesRead: u32,
    /// The bytes that the value needs, if the buffer is too small.
    pub BytesNeeded: u32,
}

/// A value that is given, and a result that is asked for.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct METHOD {
    /// The OID.
    pub Oid: u32,
    /// Both.
    pub InformationBuffer: *mut c_void,
    /// The bytes of the value.
    pub InputBufferLength: u32,
    /// The bytes of the buffer.
    pub OutputBufferLength: u32,
    /// Which method.
    pub MethodId: u32,
    /// The bytes of the result.
    pub BytesWritten: u32,
    /// The bytes that were read.
    pub BytesRead: u32,
    /// The bytes that the result needs, if the buffer is too small.
    pub BytesNeeded: u32,
}

/// The part of a request that its type decides. All of them begin with the OID, the buffer and a length.
#[derive(Clone, Copy)]
#[repr(C)]
pub union REQUEST_DATA {
    /// Of a query.
    pub QUERY_INFORMATION: QUERY,
    /// Of a set request.
    pub SET_INFORMATION: SET,
    /// Of a method.
    pub METHOD_INFORMATION: METHOD,
}

impl core::fmt::Debug for REQUEST_DATA {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("REQUEST_DATA").finish_non_exhaustive()
    }
}

/// The type of [`NDIS_OID_REQUEST`].
pub const NDIS_OBJECT_TYPE_OID_REQUEST: u8 = 0x96;
/// The revision of [`NDIS_OID_REQUEST`] from NDIS 6.50.
pub const NDIS_OID_REQUEST_REVISION_2: u8 = 2;
/// The bytes of that revision.
pub const NDIS_SIZEOF_OID_REQUEST_REVISION_2: u16 = 0xF8;

/// A request to an adapter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_OID_REQUEST {
    /// The kind and revision.
    pub Header: NDIS_OBJECT_HEADER,
    /// What is asked.
    pub RequestType: NDIS_REQUEST_TYPE,
    /// The port.
    pub PortNumber: NDIS_PORT_NUMBER,
    /// Seconds until NDIS cancels the request; 0 for never.
    pub Timeout: u32,
    /// What names the request when it is cancelled.
    pub RequestId: *mut c_void,
    /// Who asks.
    pub RequestHandle: NDIS_HANDLE,
    /// The rest, by type.
    pub DATA: REQUEST_DATA,
    /// Belongs to NDIS.
    pub NdisReserved: [u8; 128],
    /// Belongs to the miniport while it has the request.
    pub MiniportReserved: [u8; 16],
    /// Belongs to who asks.
    pub SourceReserved: [u8; 16],
    /// The revision that the miniport knows, told after a request with a later one.
    pub SupportedRevision: u8,
    /// Zero.
    pub Reserved1: u8,
    /// Zero.
    pub Reserved2: u16,
    /// The switch; from NDIS 6.50.
    pub SwitchId: u32,
    /// The virtual port; from NDIS 6.50.
    pub VPortId: u32,
    /// Flags; from NDIS 6.50.
    pub Flags: u32,
}

layout!(NDIS_OID_REQUEST: size 0xF8, align 8, {
    Header @ 0x00,
    RequestType @ 0x04,
    PortNumber @ 0x08,
    Timeout @ 0x0C,
    RequestId @ 0x10,
    RequestHandle @ 0x18,
    DATA @ 0x20,
    NdisReserved @ 0x48,
    MiniportReserved @ 0xC8,
    SourceReserved @ 0xD8,
    SupportedRevision @ 0xE8,
    Reserved1 @ 0xE9,
    Reserved2 @ 0xEA,
    SwitchId @ 0xEC,
    VPortId @ 0xF0,
    Flags @ 0xF4,
});

/// The statistics of an adapter. What it counts for RDMA is in them as well (NDIS-NDK 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_STATISTICS_INFO {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// Which fields count, a combination of `NDIS_STATISTICS_FLAGS_VALID_`.
    pub SupportedStatistics: u32,
    /// Frames received and dropped.
    pub ifInDiscards: u64,
    /// Frames received with errors.
    pub ifInErrors: u64,
    /// Bytes received.
    pub ifHCInOctets: u64,
    /// Directed frames received.
    pub ifHCInUcastPkts: u64,
    /// Multicast frames received.
    pub ifHCInMulticastPkts: u64,
    /// Broadcast frames received.
    pub ifHCInBroadcastPkts: u64,
    /// Bytes sent.
    pub ifHCOutOctets: u64,
    /// Directed frames sent.
    pub ifHCOutUcastPkts: u64,
    /// Multicast frames sent.
    pub ifHCOutMulticastPkts: u64,
    /// Broadcast frames sent.
    pub ifHCOutBroadcastPkts: u64,
    /// Frames that could not be sent.
    pub ifOutErrors: u64,
    /// Frames that were dropped instead of being sent.
    pub ifOutDiscards: u64,
    /// Bytes of directed frames received.
    pub ifHCInUcastOctets: u64,
    /// Bytes of multicast frames received.
    pub ifHCInMulticastOctets: u64,
    /// Bytes of broadcast frames received.
    pub ifHCInBroadcastOctets: u64,
    /// Bytes of directed frames sent.
    pub ifHCOutUcastOctets: u64,
    /// Bytes of multicast frames sent.
    pub ifHCOutMulticastOctets: u64,
    /// Bytes of broadcast frames sent.
    pub ifHCOutBroadcastOctets: u64,
}

layout!(NDIS_STATISTICS_INFO: size 0x98, align 8, {
    Header @ 0x00,
    SupportedStatistics @ 0x04,
    ifInDiscards @ 0x08,
    ifInErrors @ 0x10,
    ifHCInOctets @ 0x18,
    ifHCInUcastPkts @ 0x20,
    ifHCInMulticastPkts @ 0x28,
    ifHCInBroadcastPkts @ 0x30,
    ifHCOutOctets @ 0x38,
    ifHCOutUcastPkts @ 0x40,
    ifHCOutMulticastPkts @ 0x48,
    ifHCOutBroadcastPkts @ 0x50,
    ifOutErrors @ 0x58,
    ifOutDiscards @ 0x60,
    ifHCInUcastOctets @ 0x68,
    ifHCInMulticastOctets @ 0x70,
    ifHCInBroadcastOctets @ 0x78,
    ifHCOutUcastOctets @ 0x80,
    ifHCOutMulticastOctets @ 0x88,
    ifHCOutBroadcastOctets @ 0x90,
});

/// The only revision of [`NDIS_STATISTICS_INFO`].
pub const NDIS_STATISTICS_INFO_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_STATISTICS_INFO`].
pub const NDIS_SIZEOF_STATISTICS_INFO_REVISION_1: u16 = 0x98;

header!(NDIS_STATISTICS_INFO:
    NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_STATISTICS_INFO_REVISION_1,
    NDIS_SIZEOF_STATISTICS_INFO_REVISION_1);

/// Directed frames received are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV: u32 = 0x1;
/// Bytes of directed frames received are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_RCV: u32 = 0x0001_0000;
/// Directed frames sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT: u32 = 0x40;
/// Bytes of directed frames sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_XMIT: u32 = 0x0008_0000;
/// Multicast frames received are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_RCV: u32 = 0x2;
/// Bytes of multicast frames received are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_RCV: u32 = 0x0002_0000;
/// Multicast frames sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_XMIT: u32 = 0x80;
/// Bytes of multicast frames sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_XMIT: u32 = 0x0010_0000;
/// Broadcast frames received are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_RCV: u32 = 0x4;
/// Bytes of broadcast frames received are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_RCV: u32 = 0x0004_0000;
/// Broadcast frames sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_XMIT: u32 = 0x100;
/// Bytes of broadcast frames sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_XMIT: u32 = 0x0020_0000;
/// Bytes received are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV: u32 = 0x8;
/// Bytes sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT: u32 = 0x200;
/// Frames received and dropped are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS: u32 = 0x10;
/// Frames received with errors are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR: u32 = 0x20;
/// Frames that could not be sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR: u32 = 0x400;
/// Frames that were dropped instead of being sent are counted.
pub const NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS: u32 = 0x8000;

/// A change of the link's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_LINK_PARAMETERS {
    /// The kind and revision.
    pub Header: NDIS_OBJECT_HEADER,
    /// The duplex state.
    pub MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE,
    /// Speed of sending, in bits per second.
    pub XmitLinkSpeed: u64,
    /// Speed of receiving, in bits per second.
    pub RcvLinkSpeed: u64,
    /// Flow control.
    pub PauseFunctions: NDIS_SUPPORTED_PAUSE_FUNCTIONS,
    /// What is to be negotiated.
    pub AutoNegotiationFlags: u32,
}

layout!(NDIS_LINK_PARAMETERS: size 0x20, align 8, {
    Header @ 0x00,
    MediaDuplexState @ 0x04,
    XmitLinkSpeed @ 0x08,
    RcvLinkSpeed @ 0x10,
    PauseFunctions @ 0x18,
    AutoNegotiationFlags @ 0x1C,
});

open_enum! {
    /// Flow control of the link.
    NDIS_SUPPORTED_PAUSE_FUNCTIONS {
        /// None.
        UNSUPPORTED = 0, "NdisPauseFunctionsUnsupported";
        /// Pause frames are sent.
        SEND_ONLY = 1, "NdisPauseFunctionsSendOnly";
        /// Pause frames are obeyed.
        RECEIVE_ONLY = 2, "NdisPauseFunctionsReceiveOnly";
        /// Both.
        SEND_AND_RECEIVE = 3, "NdisPauseFunctionsSendAndReceive";
        /// Not known.
        UNKNOWN = 4, "NdisPauseFunctionsUnknown";
    }
}

/// The state of the link, in a status indication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_LINK_STATE {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// The state of the link.
    pub MediaConnectState: NDIS_MEDIA_CONNECT_STATE,
    /// The duplex state.
    pub MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE,
    /// Speed of sending, in bits per second.
    pub XmitLinkSpeed: u64,
    /// Speed of receiving, in bits per second.
    pub RcvLinkSpeed: u64,
    /// Flow control.
    pub PauseFunctions: NDIS_SUPPORTED_PAUSE_FUNCTIONS,
    /// What was negotiated.
    pub AutoNegotiationFlags: u32,
}

layout!(NDIS_LINK_STATE: size 0x28, align 8, {
    Header @ 0x00,
    MediaConnectState @ 0x04,
    MediaDuplexState @ 0x08,
    XmitLinkSpeed @ 0x10,
    RcvLinkSpeed @ 0x18,
    PauseFunctions @ 0x20,
    AutoNegotiationFlags @ 0x24,
});

/// The only revision of [`NDIS_LINK_STATE`].
pub const NDIS_LINK_STATE_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_LINK_STATE`].
pub const NDIS_SIZEOF_LINK_STATE_REVISION_1: u16 = 0x28;

header!(NDIS_LINK_STATE: NDIS_OBJECT_TYPE_DEFAULT, NDIS_LINK_STATE_REVISION_1, NDIS_SIZEOF_LINK_STATE_REVISION_1);

open_enum! {
    /// Interrupt moderation.
    NDIS_INTERRUPT_MODERATION {
        /// Not known.
        UNKNOWN = 0, "NdisInterruptModerationUnknown";
        /// There is none.
        NOT_SUPPORTED = 1, "NdisInterruptModerationNotSupported";
        /// On.
        ENABLED = 2, "NdisInterruptModerationEnabled";
        /// Off.
        DISABLED = 3, "NdisInterruptModerationDisabled";
    }
}

/// Interrupt moderation of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NDIS_INTERRUPT_MODERATION_PARAMETERS {
    /// The kind and revision.
    pub Header: NDIS_OBJECT_HEADER,
    /// What a change would need.
    pub Flags: u32,
    /// The state.
    pub InterruptModeration: NDIS_INTERRUPT_MODERATION,
}

layout!(NDIS_INTERRUPT_MODERATION_PARAMETERS: size 0x0C, align 4, {
    Header @ 0x00,
    Flags @ 0x04,
    InterruptModeration @ 0x08,
});

/// The only revision of [`NDIS_INTERRUPT_MODERATION_PARAMETERS`].
pub const NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_INTERRUPT_MODERATION_PARAMETERS`].
pub const NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1: u16 = 0xC;

#[cfg_attr(windows, link(name = "ndis.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// Completes an OID request that pended. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisMOidRequestComplete(
        MiniportAdapterHandle: NDIS_HANDLE,
        OidRequest: *mut NDIS_OID_REQUEST,
        Status: NDIS_STATUS,
    );

    /// Completes a direct OID request that pended. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisMDirectOidRequestComplete(
        MiniportAdapterHandle: NDIS_HANDLE,
        OidRequest: *mut NDIS_OID_REQUEST,
        Status: NDIS_STATUS,
    );
}
