//! Hooks that keep nothing of objects and look at events only.

use host::HostOs;
use interpose::{Event, Hooks, ObjectId, Verdict};
use ndkpi::{NDK_ADAPTER_INFO, NtStatus};

/// What is done with each event.
type Look = Box<dyn Fn(&Event<'_, ()>) -> Verdict + Send + Sync>;

/// Calls a closure for each event.
pub struct OnEvent {
    os: HostOs,
    look: Look,
}

impl OnEvent {
    /// Hooks that do this with each event.
    #[must_use]
    pub fn new(os: &HostOs, look: impl Fn(&Event<'_, ()>) -> Verdict + Send + Sync + 'static) -> Self {
        Self { os: os.clone(), look: Box::new(look) }
    }
}

impl Hooks for OnEvent {
    type Os = HostOs;
    type State = ();
    type Call = ();

    fn os(&self) -> &HostOs {
        &self.os
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<(), NtStatus> {
        Ok(())
    }

    fn object(&self, _: &Event<'_, ()>, _: ObjectId) -> Result<(), NtStatus> {
        Ok(())
    }

    fn event(&self, event: &Event<'_, ()>, (): &mut ()) -> Verdict {
        (self.look)(event)
    }
}
