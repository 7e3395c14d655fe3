//! Registration of miniport drivers, and what is optional of them.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use ndis::{DRIVER_OBJECT, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_STATUS, NDIS_STRING, NDIS_WDM_DRIVER};
use ndkpi::{
    NDIS_HANDLE, NDIS_NDK_PROVIDER_CHARACTERISTICS, NDIS_OBJECT_HEADER,
    status::{NDIS_STATUS_BAD_VERSION, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};

use super::{
    attributes::whole,
    structure::{check_header, ndis_routine, pointer, read},
};
use crate::{
    context::{self, DriverId},
    ndis::adapter::Adapters,
    report::bug_check,
    rule::Rule,
    state::{Part, State, lock},
};

/// A miniport driver.
pub struct Miniport {
    pub handle: usize,
    pub context: usize,
    pub handlers: NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
    pub ndk: Mutex<Option<NDIS_NDK_PROVIDER_CHARACTERISTICS>>,
}

/// The drivers that are registered as miniport drivers.
#[derive(Default)]
pub struct Miniports(pub LiteMap<DriverId, Arc<Miniport>>);

impl Part for Mutex<Miniports> {}

thread_local! {
    /// The driver whose `MiniportSetOptions` runs on this thread.
    static SETS_OPTIONS: Cell<DriverId> = const { Cell::new(context::NOBODY) };
}

impl State {
    /// The registration of a driver, if it is a miniport driver.
    pub fn miniport(&self, driver: DriverId) -> Option<Arc<Miniport>> {
        self.locked::<Miniports>().0.get(&driver).cloned()
    }

    /// Has a miniport driver unload itself. False if the driver is none.
    pub fn unload_miniport(&self, driver: DriverId, object: usize) -> bool {
        let Some(miniport) = self.miniport(driver) else { return false };
        if let Some(unload) = miniport.handlers.UnloadHandler {
            context::call(driver, "MiniportDriverUnload", || {
                // SAFETY: the driver's own handler, with its own object, which outlives it.
                unsafe { unload(std::ptr::with_exposed_provenance_mut(object)) };
            });
        }
        true
    }
}

/// The handlers that every miniport driver owes, by name.
fn check_handlers(handlers: &NDIS_MINIPORT_DRIVER_CHARACTERISTICS) {
    let owed = [
        ("InitializeHandlerEx", handlers.InitializeHandlerEx.is_some()),
        ("HaltHandlerEx", handlers.HaltHandlerEx.is_some()),
        ("UnloadHandler", handlers.UnloadHandler.is_some()),
        ("PauseHandler", handlers.PauseHandler.is_some()),
        ("RestartHandler", handlers.RestartHandler.is_some()),
        ("OidRequestHandler", handlers.OidRequestHandler.is_some()),
        ("SendNetBufferListsHandler", handlers.SendNetBufferListsHandler.is_some()),
        ("ReturnNetBufferListsHandler", handlers.ReturnNetBufferListsHandler.is_some()),
        ("CancelSendHandler", handlers.CancelSendHandler.is_some()),
        ("DevicePnPEventNotifyHandler", handlers.DevicePnPEventNotifyHandler.is_some()),
        ("ShutdownHandlerEx", handlers.ShutdownHandlerEx.is_some()),
        ("CancelOidRequestHandler", handlers.CancelOidRequestHandler.is_some()),
    ];
    if let Some((name, _)) = owed.iter().find(|(_, is_there)| !is_there) {
        bug_check(Rule::NdisHandler, format_args!("a miniport driver registers without {name}"));
    }
    if handlers.DirectOidRequestHandler.is_some() != handlers.CancelDirectOidRequestHandler.is_some() {
        bug_check(
            Rule::NdisHandler,
            format_args!("direct OID requests without a handler that cancels them, or the reverse"),
        );
    }
    if handlers.Flags & !NDIS_WDM_DRIVER != 0 {
        bug_check(Rule::BadArgument, format_args!("the flags {:#x} are no flags of a miniport driver", handlers.Flags));
    }
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMRegisterMiniportDriver(
    object: *mut DRIVER_OBJECT,
    path: *const NDIS_STRING,
    driver_context: NDIS_HANDLE,
    characteristics: *const NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisMRegisterMiniportDriver", PASSIVE_LEVEL, |state| {
        let driver = context::caller();
        let expected = NDIS_MINIPORT_DRIVER_CHARACTERISTICS::for_ndis_6_80().Header;
        // SAFETY: the driver's structure, which lives until the call returns.
        let handlers = unsafe { read(characteristics, expected, "NDIS_MINIPORT_DRIVER_CHARACTERISTICS") };
        let is_own = state.drivers().get(&driver).is_some_and(|loaded| loaded.object == object.addr());
        if !is_own || path.is_null() || place.is_null() {
            bug_check(
                Rule::BadArgument,
                format_args!("a miniport driver registers without the arguments of DriverEntry"),
            );
        }
        if (handlers.MajorNdisVersion, handlers.MinorNdisVersion) != (6, 80) {
            // What there is here is NDIS 6.80: an older driver would be served, this simulation does not.
            return NDIS_STATUS_BAD_VERSION;
        }
        check_handlers(&handlers);
        if state.miniport(driver).is_some() {
            bug_check(Rule::NdisPlace, format_args!("a driver registers twice as a miniport driver"));
        }
        if state.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        let miniport = Arc::new(Miniport {
            handle: state.new_handle(),
            context: driver_context.expose_provenance(),
            handlers,
            ndk: Mutex::default(),
        });
        state.locked::<Miniports>().0.insert(driver, miniport.clone());
        // SAFETY: the driver's place, which lives until the call returns. It has the handle before its handler is called.
        unsafe { place.write(pointer(miniport.handle)) };
        if let Some(set_options) = handlers.SetOptionsHandler {
            let before = SETS_OPTIONS.replace(driver);
            let status = context::call(driver, "MiniportSetOptions", || {
                // SAFETY: the driver's own handler, with the handle and context of its registration.
                unsafe { set_options(pointer(miniport.handle), driver_context) }
            });
            SETS_OPTIONS.set(before);
            if status != NDIS_STATUS_SUCCESS {
                state.locked::<Miniports>().0.remove(&driver);
                return status;
            }
        }
        NDIS_STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisMDeregisterMiniportDriver(handle: NDIS_HANDLE) {
    ndis_routine!("NdisMDeregisterMiniportDriver", PASSIVE_LEVEL, |state| {
        let driver = context::caller();
        if state.miniport(driver).is_none_or(|miniport| miniport.handle != handle.addr()) {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no registration of the driver"));
        }
        if state.locked::<Adapters>().live.values().any(|adapter| adapter.owner == driver) {
            bug_check(Rule::NdisPlace, format_args!("a driver deregisters while it has adapters"));
        }
        state.locked::<Miniports>().0.remove(&driver);
    });
}

#[unsafe(no_mangle)]
pub extern "system" fn NdisSetOptionalHandlers(
    handle: NDIS_HANDLE,
    handlers: *const NDIS_OBJECT_HEADER,
) -> NDIS_STATUS {
    ndis_routine!("NdisSetOptionalHandlers", PASSIVE_LEVEL, |state| {
        if let Some(status) = state.set_frame_handlers(handle, handlers) {
            return status;
        }
        let driver = context::caller();
        if state.is_filter(driver, handle.addr()) {
            bug_check(Rule::NotSimulated, format_args!("optional handlers of a filter driver"));
        }
        let Some(miniport) = state.miniport(driver).filter(|miniport| miniport.handle == handle.addr()) else {
            bug_check(Rule::BadHandle, format_args!("{handle:p} is no registration of the driver"));
        };
        if SETS_OPTIONS.get() != driver {
            bug_check(Rule::NdisPlace, format_args!("optional handlers are set outside of MiniportSetOptions"));
        }
        // SAFETY: the driver's structure, which begins with a header.
        let header = unsafe { handlers.read() };
        let expected = NDIS_NDK_PROVIDER_CHARACTERISTICS::HEADER;
        if header.Type != expected.Type {
            bug_check(Rule::NotSimulated, format_args!("optional handlers of the type {:#x}", header.Type));
        }
        check_header(header, expected, "NDIS_NDK_PROVIDER_CHARACTERISTICS");
        // SAFETY: the header says that it is this structure.
        let ndk = unsafe { whole::<NDIS_NDK_PROVIDER_CHARACTERISTICS>(handlers).read() };
        if ndk.OpenNDKAdapterHandler.is_none() || ndk.CloseNDKAdapterHandler.is_none() {
            bug_check(
                Rule::NdisHandler,
                format_args!("a provider of NDK without a handler that opens, or one that closes"),
            );
        }
        if ndk.Flags != 0 {
            bug_check(Rule::BadArgument, format_args!("a provider of NDK with the flags {:#x}", ndk.Flags));
        }
        if state.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        *lock(&miniport.ndk) = Some(ndk);
        NDIS_STATUS_SUCCESS
    })
}
