//! Whom the handles belong to that drivers pass.

use ndkpi::NDIS_HANDLE;

use super::registration::Miniports;
use crate::{
    context::{self, DriverId},
    state::State,
};

/// Whom a handle belongs to that a driver passes to allocate something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub driver: DriverId,
    /// The adapter's handle; the driver's own if the thing outlives adapters.
    pub handle: usize,
}

impl State {
    /// Whom a handle belongs to, that of an adapter or of a driver.
    pub fn owner_of(&self, handle: NDIS_HANDLE) -> Owner {
        let of_driver = self.locked::<Miniports>().0.values().any(|driver| driver.handle == handle.addr());
        if of_driver {
            return Owner { driver: context::caller(), handle: handle.addr() };
        }
        let adapter = self.adapter(handle);
        Owner { driver: adapter.owner, handle: adapter.handle }
    }
}
