//! What drivers tell each other through the modules of filters: statuses and events of the network upwards, events of the device downwards.

use std::sync::Arc;

use ndis::{
    NDIS_SIZEOF_NET_DEVICE_PNP_EVENT_REVISION_1, NDIS_STATUS, NDIS_STATUS_INDICATION, NET_DEVICE_PNP_EVENT,
    NET_DEVICE_PNP_EVENT_REVISION_1,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NET_PNP_EVENT_NOTIFICATION, status::NDIS_STATUS_SUCCESS,
};

use super::{
    adapter::{Adapter, owed},
    module::Module,
    status::Status,
    structure::{check_no_lock, ndis_routine, read},
};
use crate::{
    report::bug_check,
    rule::Rule,
    state::{State, lock},
};

impl State {
    /// Tells whoever is next above a module, or above the miniport, of a status.
    pub fn status_up(&self, adapter: &Adapter, from: Option<&Module>, indication: &NDIS_STATUS_INDICATION) {
        if let Some(module) = self.next_above(adapter, from, |module| module.filter.handlers.status.is_some()) {
            let handler = owed(module.filter.handlers.status, "StatusHandler");
            module.call("FilterStatus", |context| {
                // SAFETY: the driver's own handler and context, and an indication that lives until it returns.
                unsafe { handler(context, std::ptr::from_ref(indication)) };
            });
            return;
        }
        let bytes = if indication.StatusBuffer.is_null() || indication.StatusBufferSize == 0 {
            Vec::new()
        } else {
            let (start, size) = (indication.StatusBuffer.cast::<u8>(), indication.StatusBufferSize as usize);
            // SAFETY: the driver's buffer has as many bytes as it says, and lives until the call returns.
            unsafe { std::slice::from_raw_parts(start, size) }.to_vec()
        };
        self.tell_status(adapter, indication);
        lock(&adapter.changing).statuses.push(Status { code: indication.StatusCode, bytes });
    }

    /// Tells whoever is next below a module, or below the protocols, of an event of the device.
    pub fn device_event_down(&self, adapter: &Adapter, from: Option<&Module>, event: *mut NET_DEVICE_PNP_EVENT) {
        if let Some(module) = self.next_below(adapter, from, |module| module.filter.handlers.device_event.is_some()) {
            let handler = owed(module.filter.handlers.device_event, "DevicePnPEventNotifyHandler");
            module.call("FilterDevicePnPEventNotify", |context| {
                // SAFETY: the driver's own handler and context, and an event that lives until it returns.
                unsafe { handler(context, event) };
            });
            return;
        }
        let handler = owed(adapter.handlers.DevicePnPEventNotifyHandler, "DevicePnPEventNotifyHandler");
        adapter.call("MiniportDevicePnPEventNotify", |context| {
            // SAFETY: the driver's own handler and context, and an event that lives until it returns.
            unsafe { handler(context, event) };
        });
    }

    /// Tells whoever is next above a module, or above the miniport, of an event of the network. What the first says that refuses.
    pub fn net_event_up(
        self: &Arc<Self>,
        adapter: &Adapter,
        from: Option<&Module>,
        event: *mut NET_PNP_EVENT_NOTIFICATION,
    ) -> NDIS_STATUS {
        if let Some(module) = self.next_above(adapter, from, |module| module.filter.handlers.net_event.is_some()) {
            let handler = owed(module.filter.handlers.net_event, "NetPnPEventHandler");
            return module.call("FilterNetPnPEvent", |context| {
                // SAFETY: the driver's own handler and context, and an event that lives until it returns.
                unsafe { handler(context, event) }
            });
        }
        let mut first = NDIS_STATUS_SUCCESS;
        for binding in self.bindings_of(adapter) {
            // SAFETY: an event that lives until all have heard of it.
            let status = binding.tell(self, unsafe { event.read() });
            if first == NDIS_STATUS_SUCCESS {
                first = status;
            }
        }
        first
    }
}

#[unsafe(no_mangle)]
extern "system" fn NdisFIndicateStatus(handle: NDIS_HANDLE, indication: *const NDIS_STATUS_INDICATION) {
    ndis_routine!("NdisFIndicateStatus", DISPATCH_LEVEL, |state| {
        let module = state.module(handle);
        check_no_lock("NdisFIndicateStatus");
        // SAFETY: the driver's structure, which lives until the call returns.
        let indication = unsafe { read(indication, NDIS_STATUS_INDICATION::HEADER, "NDIS_STATUS_INDICATION") };
        // Its own, or one that has come up to it.
        let source = indication.SourceHandle.addr();
        let is_below = |below: &Arc<Module>| below.handle == source && below.handle < module.handle;
        let adapter = &module.adapter;
        if ![module.handle, adapter.handle].contains(&source) && !state.modules_of(adapter).iter().any(is_below) {
            bug_check(
                Rule::BadHandle,
                format_args!("a status is indicated whose SourceHandle is neither the module's nor one below it"),
            );
        }
        state.status_up(adapter, Some(&module), &indication);
        state.dispatcher.signal();
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFDevicePnPEventNotify(handle: NDIS_HANDLE, event: *mut NET_DEVICE_PNP_EVENT) {
    ndis_routine!("NdisFDevicePnPEventNotify", PASSIVE_LEVEL, |state| {
        let module = state.module(handle);
        let size = NDIS_SIZEOF_NET_DEVICE_PNP_EVENT_REVISION_1;
        let expected = NDIS_OBJECT_HEADER::new(NDIS_OBJECT_TYPE_DEFAULT, NET_DEVICE_PNP_EVENT_REVISION_1, size);
        // SAFETY: the driver's structure, which lives until the call returns.
        unsafe { read(event, expected, "NET_DEVICE_PNP_EVENT") };
        state.device_event_down(&module.adapter, Some(&module), event);
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFNetPnPEvent(handle: NDIS_HANDLE, event: *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS {
    ndis_routine!("NdisFNetPnPEvent", PASSIVE_LEVEL, |state| {
        let module = state.module(handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        unsafe { read(event, NET_PNP_EVENT_NOTIFICATION::HEADER_2, "NET_PNP_EVENT_NOTIFICATION") };
        state.net_event_up(&module.adapter, Some(&module), event)
    })
}
