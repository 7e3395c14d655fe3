//! [`Event`] of the engine.

use engine::os::Event;

use crate::machine::{self, EventKind, Irql, MachineRef, assert_irql_at_most};

/// Something to wait for, once set forever set.
pub struct HostEvent {
    event: machine::Event,
}

impl HostEvent {
    pub(super) fn new(machine: &MachineRef) -> Self {
        Self { event: machine::Event::new(machine, EventKind::Notification) }
    }

    /// Returns true if the event was set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.event.is_set()
    }
}

impl Event for HostEvent {
    #[track_caller]
    fn set(&self) {
        self.event.set();
    }

    #[track_caller]
    fn wait(&self) {
        assert_irql_at_most(Irql::PASSIVE_LEVEL);
        self.event.wait();
    }
}
