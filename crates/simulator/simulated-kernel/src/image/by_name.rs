//! Routines that images ask for by name while they run.

use std::sync::Arc;

use wdk_bindings::{PUNICODE_STRING, PVOID};

use super::{code::Writer, exports};
use crate::{
    context::{self, DriverId},
    routine::routine,
    sites::images,
    text,
};

/// A routine of the kernel by its name, as an import of that driver would get it, for as long as the driver is loaded.
fn export(driver: DriverId, name: &str) -> Option<usize> {
    match exports::find("ntoskrnl.exe", name)? {
        exports::Export::Plain(address) => Some(address),
        exports::Export::Routine(address) => {
            let mut writer = Writer::default();
            let thunk = writer.thunk(driver, address);
            let code = writer.finish()?;
            let place = code.at(thunk);
            images::keep(driver, Arc::new(code));
            Some(place)
        }
    }
}

/// Only images can ask: what is linked has its routines already.
#[unsafe(no_mangle)]
extern "C" fn MmGetSystemRoutineAddress(name: PUNICODE_STRING) -> PVOID {
    routine!("MmGetSystemRoutineAddress", |_| {
        let address = export(context::caller(), &text::text(name));
        std::ptr::with_exposed_provenance_mut(address.unwrap_or(0))
    })
}
