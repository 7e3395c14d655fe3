//! Where code runs on the host.

use interpose::{InterposeOs, Place};

use super::HostOs;
use crate::machine::current_irql;

thread_local! {
    /// Its address tells threads apart.
    static HERE: u8 = const { 0 };
}

impl InterposeOs for HostOs {
    fn place(&self) -> Place {
        Place {
            time: self.machine.now_100ns(),
            processor: self.machine.current_processor(),
            irql: current_irql().0,
            thread: HERE.with(|here| std::ptr::from_ref(here).addr()),
        }
    }
}
