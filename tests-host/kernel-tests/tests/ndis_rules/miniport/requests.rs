//! The miniport's answers to requests, and what it tells those above.

use std::ptr;

use ndis::{
    NDIS_OID_REQUEST, NDIS_REQUEST_TYPE, NDIS_STATUS, NDIS_STATUS_INDICATION, NDIS_STATUS_LINK_STATE,
    NdisMIndicateStatusEx, NdisMNetPnPEvent, OID_GEN_VENDOR_ID, OID_PNP_SET_POWER,
};
use ndkpi::{
    GUID, NDIS_HANDLE, NET_PNP_EVENT, NET_PNP_EVENT_CODE, NET_PNP_EVENT_NOTIFICATION, OID_NDK_SET_STATE,
    OID_NDK_STATISTICS,
    status::{NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS},
};

use super::with;

/// The OID and type of a request.
pub fn asked(request: *mut NDIS_OID_REQUEST) -> (u32, NDIS_REQUEST_TYPE) {
    // SAFETY: NDIS's own request.
    let request = unsafe { request.read() };
    // SAFETY: every arm begins with the OID.
    (unsafe { request.DATA.QUERY_INFORMATION }.Oid, request.RequestType)
}

/// Answers a query with a number.
pub fn answer_number(request: *mut NDIS_OID_REQUEST, number: u32) -> NDIS_STATUS {
    // SAFETY: NDIS's own request, which is the miniport's now.
    let data = unsafe { &mut (*request).DATA };
    // SAFETY: the request is a query.
    let query = unsafe { &mut data.QUERY_INFORMATION };
    if query.InformationBufferLength < 4 {
        query.BytesNeeded = 4;
        return NDIS_STATUS_BUFFER_TOO_SHORT;
    }
    // SAFETY: the buffer has at least as many bytes.
    unsafe { query.InformationBuffer.cast::<u32>().write_unaligned(number) };
    query.BytesWritten = 4;
    NDIS_STATUS_SUCCESS
}

pub fn answer(request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    match asked(request) {
        (OID_GEN_VENDOR_ID | OID_NDK_STATISTICS, NDIS_REQUEST_TYPE::QUERY_INFORMATION) => answer_number(request, 7),
        (OID_PNP_SET_POWER | OID_NDK_SET_STATE, NDIS_REQUEST_TYPE::SET_INFORMATION) => {
            // SAFETY: NDIS's own request, which is the miniport's now.
            let data = unsafe { &mut (*request).DATA };
            // SAFETY: the request sets a value.
            let set = unsafe { &mut data.SET_INFORMATION };
            set.BytesRead = set.InformationBufferLength;
            NDIS_STATUS_SUCCESS
        }
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

/// Raises an event of NDK.
pub fn raise(event: NET_PNP_EVENT_CODE) -> NDIS_STATUS {
    let adapter = with(|world| {
        world.ndk_enabled = event == NET_PNP_EVENT_CODE::NDK_ENABLE;
        world.adapter
    });
    let mut notification = NET_PNP_EVENT_NOTIFICATION {
        Header: NET_PNP_EVENT_NOTIFICATION::HEADER_2,
        PortNumber: 0,
        NetPnPEvent: NET_PNP_EVENT::new(event),
        Flags: 0,
        SwitchId: 0,
        VPortId: 0,
    };
    // SAFETY: the adapter is live, and the structure lives until the call returns.
    unsafe { NdisMNetPnPEvent(adapter, &raw mut notification) }
}

/// Indicates the state of the link.
pub fn indicate_status(adapter: NDIS_HANDLE) {
    let mut state = 5_u32;
    let indication = NDIS_STATUS_INDICATION {
        Header: NDIS_STATUS_INDICATION::HEADER,
        SourceHandle: adapter,
        PortNumber: 0,
        StatusCode: NDIS_STATUS_LINK_STATE,
        Flags: 0,
        DestinationHandle: ptr::null_mut(),
        RequestId: ptr::null_mut(),
        StatusBuffer: (&raw mut state).cast(),
        StatusBufferSize: 4,
        Guid: GUID::default(),
        NdisReserved: [ptr::null_mut(); 4],
    };
    // SAFETY: the structure lives until the call returns.
    unsafe { NdisMIndicateStatusEx(adapter, &raw const indication) };
}
