//! The routines of this module have the types that the crate `ndis` declares: otherwise this does not compile.

use super::{attributes, configuration, device, event, lifecycle, oid, pool, receive, registration, send, work_item};

macro_rules! routines {
    ($($module:ident::$name:ident($($argument:tt),*);)+) => {
        /// The routines of `ndis.sys` that are here.
        pub const ROUTINES: &[&str] = &[$(stringify!($name)),+];

        const _: () = {
            $(let _: [unsafe extern "system" fn($($argument),*) -> _; 2] = [ndis::$name, $module::$name];)+
        };
    };
}

routines! {
    registration::NdisMRegisterMiniportDriver(_, _, _, _, _);
    registration::NdisMDeregisterMiniportDriver(_);
    registration::NdisSetOptionalHandlers(_, _);
    attributes::NdisMSetMiniportAttributes(_, _);
    attributes::NdisMGetDeviceProperty(_, _, _, _, _, _);
    configuration::NdisOpenConfigurationEx(_, _);
    configuration::NdisCloseConfiguration(_);
    configuration::NdisReadConfiguration(_, _, _, _, _);
    configuration::NdisReadNetworkAddress(_, _, _, _);
    device::NdisRegisterDeviceEx(_, _, _, _);
    device::NdisDeregisterDeviceEx(_);
    event::NdisMIndicateStatusEx(_, _);
    event::NdisMNetPnPEvent(_, _);
    lifecycle::NdisMPauseComplete(_);
    lifecycle::NdisMRemoveMiniport(_);
    lifecycle::NdisMRestartComplete(_, _);
    oid::NdisMOidRequestComplete(_, _, _);
    oid::NdisMDirectOidRequestComplete(_, _, _);
    pool::NdisAllocateNetBufferListPool(_, _);
    pool::NdisFreeNetBufferListPool(_);
    pool::NdisAllocateNetBufferAndNetBufferList(_, _, _, _, _, _);
    pool::NdisFreeNetBufferList(_);
    pool::NdisAllocateMdl(_, _, _);
    pool::NdisFreeMdl(_);
    pool::NdisGetDataBuffer(_, _, _, _, _);
    receive::NdisMIndicateReceiveNetBufferLists(_, _, _, _, _);
    send::NdisMSendNetBufferListsComplete(_, _, _);
    work_item::NdisAllocateIoWorkItem(_);
    work_item::NdisQueueIoWorkItem(_, _, _);
    work_item::NdisFreeIoWorkItem(_);
}
