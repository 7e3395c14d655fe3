//! Where code runs on the host, and for whom.

use interpose::{InterposeOs, Phase, Stamp};
use ndkpi::MDL;

use super::HostOs;
use crate::{HostMdl, machine::current_irql};

/// What the names of functions begin with that stand between a consumer's call and [`HostOs::stack`].
const LAYER: [&str; 6] = ["backtrace::", "core::", "fallible::", "host::", "interpose::", "std::"];

/// The names of the functions to which calls return at these addresses.
///
/// From the innermost one on that is not of the layer. What has no name is left out.
#[must_use]
pub fn names(addresses: &[usize]) -> Vec<String> {
    let mut names = Vec::new();
    for &address in addresses {
        backtrace::resolve(std::ptr::without_provenance_mut(address.wrapping_sub(1)), |symbol| {
            names.extend(symbol.name().map(|name| format!("{name:#}")));
        });
    }
    let is_of_layer = |name: &String| LAYER.iter().any(|layer| name.trim_start_matches('<').starts_with(layer));
    let first = names.iter().position(|name| !is_of_layer(name)).unwrap_or(0);
    names.split_off(first)
}

impl HostOs {
    #[inline]
    fn place_at(&self, time: u64) -> Stamp {
        let (thread, processor, irql) = self.machine.here();
        Stamp { time, processor, irql: irql.0, thread }
    }
}

impl InterposeOs for HostOs {
    fn place(&self) -> Stamp {
        self.place_at(self.machine.now_100ns())
    }

    #[inline]
    fn stamp(&self, phase: Phase) -> Stamp {
        self.place_at(self.machine.ticks().unwrap_or_else(|| interpose::ticks(phase)))
    }

    fn ticks_per_unit(&self) -> u64 {
        self.machine.ticks_per_unit()
    }

    fn irql(&self) -> u8 {
        current_irql().0
    }

    fn thread(&self) -> usize {
        self.place_at(0).thread
    }

    fn stack(&self, frames: &mut [usize]) -> usize {
        let mut stored = 0;
        backtrace::trace(|frame| {
            if let Some(place) = frames.get_mut(stored) {
                *place = frame.ip().addr();
                stored += 1;
            }
            stored < frames.len()
        });
        stored
    }

    unsafe fn mdl_base(&self, mdl: *const MDL) -> Option<u64> {
        // SAFETY: an MDL on the host is null or a chain of `HostMdl`s, valid during the call (`# Safety` of the trait).
        let first = unsafe { mdl.cast::<HostMdl>().as_ref() }?;
        Some(first.address.addr() as u64)
    }
}
