//! A cable whose frames are recorded, once somebody wants that.

use alloc::boxed::Box;
use std::sync::{Arc as StdArc, OnceLock};

use engine::wire::Cable;
use host::HostOs;
use recorder::Tap;

/// Where a tap is, once there is one.
#[derive(Clone, Default)]
pub struct TapSlot(StdArc<OnceLock<Tap<HostOs>>>);

impl TapSlot {
    /// Records from now on. The first tap stays.
    pub fn set(&self, tap: Tap<HostOs>) {
        let _ = self.0.set(tap);
    }

    /// Does something with the tap, if there is one.
    pub fn with(&self, work: impl FnOnce(&Tap<HostOs>)) {
        if let Some(tap) = self.0.get() {
            work(tap);
        }
    }
}

/// A cable in front of which there may be a tap.
pub struct Tapped {
    cable: Box<dyn Cable>,
    tap: TapSlot,
}

impl Tapped {
    /// A tap in front of `cable`.
    pub const fn new(cable: Box<dyn Cable>, tap: TapSlot) -> Self {
        Self { cable, tap }
    }
}

impl Cable for Tapped {
    fn send(&self, frame: &[u8]) {
        self.tap.with(|tap| tap.sent(frame));
        self.cable.send(frame);
    }

    fn send_all(&self, frames: &mut dyn Iterator<Item = &[u8]>) {
        let tap = |frame: &&[u8]| self.tap.with(|tap| tap.sent(frame));
        self.cable.send_all(&mut frames.inspect(tap));
    }

    fn carries(&self, number: u32) {
        self.tap.with(|tap| tap.carries(number));
        self.cable.carries(number);
    }
}
