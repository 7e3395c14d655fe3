//! Where code runs on the host.

use interpose::{InterposeOs, Place};
use ndkpi::MDL;

use super::HostOs;
use crate::{HostMdl, machine::current_irql};

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

    unsafe fn mdl_base(&self, mdl: *const MDL) -> Option<u64> {
        // SAFETY: what a consumer on the host passes as an MDL is a chain of `HostMdl`s (the caller's promise), or null.
        let first = unsafe { mdl.cast::<HostMdl>().as_ref() }?;
        Some(first.address.addr() as u64)
    }
}
