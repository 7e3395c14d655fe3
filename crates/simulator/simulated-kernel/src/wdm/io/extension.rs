//! What a driver keeps with its driver object: extensions, each under an address that its driver chooses.

use std::sync::Mutex;

use litemap::LiteMap;
use wdk_bindings::{
    NTSTATUS, PDRIVER_OBJECT, PVOID, STATUS_INSUFFICIENT_RESOURCES, STATUS_OBJECT_NAME_COLLISION, STATUS_SUCCESS, ULONG,
};

use super::block;
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// Extensions by the addresses of the driver object and of what names them.
#[derive(Default)]
pub struct Extensions(LiteMap<(usize, usize), usize>);

impl Part for Mutex<Extensions> {}

impl State {
    /// A driver object goes, and with it what is kept with it.
    pub fn free_extensions(&self, driver: usize) {
        let mut extensions = self.locked::<Extensions>();
        let own: Vec<_> = extensions.0.keys().copied().filter(|&(of, _)| of == driver).collect();
        for key in own {
            if let Some(address) = extensions.0.remove(&key) {
                block::free(address);
            }
        }
    }

    fn check_driver_object(&self, driver: PDRIVER_OBJECT) {
        if !self.drivers().values().any(|loaded| loaded.object == driver.addr()) {
            bug_check(Rule::BadHandle, format_args!("{driver:p} is no driver object, or was one"));
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoAllocateDriverObjectExtension(
    driver: PDRIVER_OBJECT,
    name: PVOID,
    size: ULONG,
    place: *mut PVOID,
) -> NTSTATUS {
    routine!("IoAllocateDriverObjectExtension", DISPATCH_LEVEL, |state| {
        state.check_driver_object(driver);
        let mut extensions = state.locked::<Extensions>();
        if extensions.0.contains_key(&(driver.addr(), name.addr())) {
            return STATUS_OBJECT_NAME_COLLISION;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let address = block::allocate(size as usize, true);
        extensions.0.insert((driver.addr(), name.addr()), address);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(std::ptr::with_exposed_provenance_mut(address)) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoGetDriverObjectExtension(driver: PDRIVER_OBJECT, name: PVOID) -> PVOID {
    routine!("IoGetDriverObjectExtension", DISPATCH_LEVEL, |state| {
        state.check_driver_object(driver);
        let found = state.locked::<Extensions>().0.get(&(driver.addr(), name.addr())).copied();
        found.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
    })
}
