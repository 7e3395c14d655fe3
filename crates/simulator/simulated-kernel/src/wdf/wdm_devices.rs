//! The device objects that stand for a device of the framework.

use std::sync::Arc;

use crate::{state::State, wdm::io::device::Device};

/// The device objects of a device: its own, and the bus driver's if it is the lowest of its stack.
#[derive(Default)]
pub struct WdmDevices {
    pub own: Option<Arc<Device>>,
    pub physical: Option<Arc<Device>>,
}

impl WdmDevices {
    /// The device is gone, and so are they; the highest of a stack goes first, and nothing is attached to what is below it any more.
    pub fn delete(self, state: &State, below: Option<&Device>) {
        if let Some(below) = below.filter(|_| self.own.is_some()) {
            // SAFETY: a device object that lives.
            unsafe { (*below.pointer()).AttachedDevice = std::ptr::null_mut() };
        }
        for device in self.own.into_iter().chain(self.physical) {
            state.delete_physical_device(&device);
        }
    }
}
