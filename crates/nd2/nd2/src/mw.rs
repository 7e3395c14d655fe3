//! Memory windows.

use engine::memory::Window;
use fallible::Arc;
use ndkpi::NtStatus;

use crate::{
    Engine, Item, OverlappedOs,
    adapter::AdapterCore,
    back_end,
    limits::{Reservation, Resource},
};

/// A memory window.
pub struct MemoryWindow<P: OverlappedOs> {
    adapter: Arc<AdapterCore<P>>,
    window: Arc<Window<P::Os>>,
}

impl<P: OverlappedOs> MemoryWindow<P> {
    /// Makes a window that is not bound.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_DEVICE_REMOVED`, `STATUS_IMPLEMENTATION_LIMIT`.
    pub fn try_new(adapter: &Arc<AdapterCore<P>>) -> Result<Self, NtStatus> {
        adapter.device().check_present()?;
        let device = adapter.device();
        let taken = Reservation::try_new(device, adapter.account(), Resource::MemoryWindows, 1)?;
        let charges = (device.charge(adapter.account(), Item::Tokens, 1)?, adapter.charge_object(0)?);
        // Given back after the last transfer through the window.
        let window = Window::try_new_for(adapter.domain(), (taken, charges))?;
        Ok(Self { adapter: adapter.clone(), window })
    }

    pub const fn window(&self) -> &Arc<Window<P::Os>> {
        &self.window
    }
}

impl<P: OverlappedOs> back_end::Part<Engine<P>> for MemoryWindow<P> {
    fn adapter(&self) -> &Arc<AdapterCore<P>> {
        &self.adapter
    }
}

impl<P: OverlappedOs> back_end::MemoryWindow<Engine<P>> for MemoryWindow<P> {
    fn remote_token(&self) -> u32 {
        self.window.remote_token()
    }
}
