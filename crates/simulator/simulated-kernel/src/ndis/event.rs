//! What a miniport tells those above: status indications, and the events of NDK.

use ndis::{NDIS_STATUS, NDIS_STATUS_INDICATION};
use ndkpi::{
    NDIS_HANDLE, NET_PNP_EVENT_CODE, NET_PNP_EVENT_NOTIFICATION,
    status::{NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS},
};

use super::{
    adapter::Phase,
    oid,
    structure::{check_no_lock, ndis_routine, read},
};
use crate::{report::bug_check, rule::Rule, state::lock};

#[unsafe(no_mangle)]
pub extern "system" fn NdisMIndicateStatusEx(handle: NDIS_HANDLE, indication: *const NDIS_STATUS_INDICATION) {
    ndis_routine!("NdisMIndicateStatusEx", DISPATCH_LEVEL, |state| {
        let adapter = state.adapter(handle);
        check_no_lock("NdisMIndicateStatusEx");
        // SAFETY: the driver's structure, which lives until the call returns.
        let indication = unsafe { read(indication, NDIS_STATUS_INDICATION::HEADER, "NDIS_STATUS_INDICATION") };
        if indication.SourceHandle.addr() != adapter.handle {
            bug_check(Rule::BadHandle, format_args!("a status is indicated whose SourceHandle is not the adapter's"));
        }
        if adapter.phase() == Phase::Initialising && lock(&adapter.changing).attributes.general.is_none() {
            bug_check(Rule::AttributeOrder, format_args!("a status is indicated before the attributes are set"));
        }
        state.status_up(&adapter, None, &indication);
        state.dispatcher.signal();
    });
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMNetPnPEvent(
    handle: NDIS_HANDLE,
    notification: *mut NET_PNP_EVENT_NOTIFICATION,
) -> NDIS_STATUS {
    ndis_routine!("NdisMNetPnPEvent", PASSIVE_LEVEL, |state| {
        let adapter = state.adapter(handle);
        check_no_lock("NdisMNetPnPEvent");
        if oid::is_inside() {
            bug_check(Rule::PnpEventInOid, format_args!("NdisMNetPnPEvent is called in an OID handler"));
        }
        state.check_no_request_pends(&adapter);
        let expected = NET_PNP_EVENT_NOTIFICATION::HEADER_2;
        // SAFETY: the driver's structure, which lives until the call returns.
        let notification = unsafe { read(notification, expected, "NET_PNP_EVENT_NOTIFICATION") };
        if !lock(&adapter.changing).attributes.ndk {
            bug_check(Rule::AttributeOrder, format_args!("an event of NDK of an adapter without attributes of NDK"));
        }
        if notification.Flags != 0 || notification.VPortId != 0 || notification.PortNumber != 0 {
            bug_check(Rule::NotSimulated, format_args!("an event of a port or virtual port"));
        }
        match notification.NetPnPEvent.NetEvent {
            NET_PNP_EVENT_CODE::NDK_ENABLE => state.ndk_is_enabled(&adapter),
            NET_PNP_EVENT_CODE::NDK_DISABLE => state.ndk_is_disabled(&adapter),
            _ => return NDIS_STATUS_NOT_SUPPORTED,
        }
        NDIS_STATUS_SUCCESS
    })
}
