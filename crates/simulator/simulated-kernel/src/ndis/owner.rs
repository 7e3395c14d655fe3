//! Whom the handles belong to that drivers pass.

use ndkpi::NDIS_HANDLE;

use super::{binding::Bindings, module::Modules, registration::Miniports};
use crate::{
    context::{self, DriverId},
    state::State,
};

/// Whom a handle belongs to that a driver passes to allocate something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub driver: DriverId,
    /// The handle of the adapter, of the filter's module or of a generic object; the driver's own if the thing outlives them.
    pub handle: usize,
}

impl State {
    /// Whether that is the registration of a protocol.
    pub fn is_protocol(&self, handle: usize) -> bool {
        self.protocol(handle).is_some()
    }

    /// Whom a handle belongs to, that of an adapter, of a filter's module, of a generic object or of a driver.
    pub fn owner_of(&self, handle: NDIS_HANDLE) -> Owner {
        let of_driver = self.locked::<Miniports>().0.values().any(|driver| driver.handle == handle.addr());
        if of_driver {
            return Owner { driver: context::caller(), handle: handle.addr() };
        }
        // What a protocol allocates by a binding goes with the protocol.
        let protocol = self.locked::<Bindings>().open.get(&handle.addr()).map(|binding| binding.protocol.handle);
        let registration = protocol.unwrap_or_else(|| handle.addr());
        if let Some(driver) = self.client(registration) {
            return Owner { driver, handle: registration };
        }
        if let Some(module) = self.locked::<Modules>().attached.get(&handle.addr()) {
            return Owner { driver: module.filter.owner, handle: module.handle };
        }
        if let Some(driver) = self.generic_object(handle.addr()) {
            return Owner { driver, handle: handle.addr() };
        }
        let adapter = self.adapter(handle);
        Owner { driver: adapter.owner, handle: adapter.handle }
    }
}
