//! Registration of filter drivers.

use ndis::{DRIVER_OBJECT, NDIS_STATUS};
use ndkpi::{NDIS_HANDLE, status::NDIS_STATUS_SUCCESS};

use super::structure::ndis_routine;
use crate::{context, report::bug_check, rule::Rule};

#[unsafe(no_mangle)]
extern "system" fn NdisFRegisterFilterDriver(
    object: *mut DRIVER_OBJECT,
    context: NDIS_HANDLE,
    characteristics: *const u8,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisFRegisterFilterDriver", PASSIVE_LEVEL, |state| {
        let driver = context::caller();
        let is_own = state.drivers().get(&driver).is_some_and(|loaded| loaded.object == object.addr());
        if !is_own {
            bug_check(Rule::BadArgument, format_args!("a filter registers without its driver object"));
        }
        let status = state.register_filter(context, characteristics, place);
        if status != NDIS_STATUS_SUCCESS {
            return status;
        }
        // SAFETY: the driver's place, which was just written.
        let handle = unsafe { place.read() };
        let Some(filter) = state.filter(handle.addr()) else { unreachable!("it has just registered") };
        let status = filter.set_options();
        if status == NDIS_STATUS_SUCCESS {
            state.attach_filter_soon(&filter);
            state.preempt();
        } else {
            state.deregister_filter(handle);
        }
        status
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFDeregisterFilterDriver(handle: NDIS_HANDLE) {
    ndis_routine!("NdisFDeregisterFilterDriver", PASSIVE_LEVEL, |state| {
        state.detach_filter(handle.addr());
        state.deregister_filter(handle);
    });
}
