//! The engine's operating-system trait on a [`Machine`](crate::machine::Machine).

mod dpc;
mod event;
mod lock;
mod mdl;
mod place;
mod target;
mod timer;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use engine::os::{Affinity, Os, Routine};
use fallible::AllocError;
use ndkpi::NtStatus;

use crate::{
    HostMemory,
    machine::{Irql, MachineRef, assert_irql_at_most, assert_no_locks_held},
};

pub use self::{dpc::HostDpc, event::HostEvent, lock::HostLock, place::names, timer::HostTimer};

/// An operating system that is a machine of the host. Cloning it is cheap.
///
/// It refers to its machine, it does not own it: whoever started the machine shuts it down, after everything that uses this
/// value is closed.
#[derive(Clone)]
pub struct HostOs {
    machine: MachineRef,
    /// Where the next search for a processor of an affinity begins.
    next_processor: Arc<AtomicU32>,
    /// Locks keep the rules of the machine.
    watched: bool,
}

impl HostOs {
    /// The operating system on `machine`.
    #[must_use]
    pub fn new(machine: &MachineRef) -> Self {
        Self { machine: machine.clone(), next_processor: Arc::new(AtomicU32::new(0)), watched: true }
    }

    /// The operating system on `machine`, with spin locks that do nothing but lock: they neither raise the IRQL nor find
    /// mistakes, and a seeded machine does not get in between. For measurements.
    #[must_use]
    pub fn unwatched(machine: &MachineRef) -> Self {
        Self { watched: false, ..Self::new(machine) }
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &MachineRef {
        &self.machine
    }

    /// Checks that the current thread may call a consumer back: at `DISPATCH_LEVEL` or below, and with no lock held.
    ///
    /// # Panics
    ///
    /// [`IrqlTooHigh`](crate::machine::Rule::IrqlTooHigh), [`LockHeld`](crate::machine::Rule::LockHeld).
    #[track_caller]
    pub fn assert_callback_context() {
        assert_irql_at_most(Irql::DISPATCH_LEVEL);
        assert_no_locks_held();
    }

    /// Counts the creation of an object, which may be one that is to fail.
    fn create<T>(&self, object: impl FnOnce() -> Result<T, AllocError>) -> Result<T, NtStatus> {
        let created = self.machine.count_creation().and_then(|()| object());
        created.map_err(|AllocError| NtStatus::INSUFFICIENT_RESOURCES)
    }
}

/// In an `impl Os` for a tuple structure whose first field is a [`HostOs`]: everything that it has from there, which is all but
/// its lock and its memory.
#[macro_export]
macro_rules! from_host_os {
    () => {
        type Dpc<R: engine::os::Routine> = $crate::HostDpc<R>;
        type Timer<R: engine::os::Routine> = $crate::HostTimer<R>;
        type Event = $crate::HostEvent;

        fn dpc<R: engine::os::Routine>(&self, processor: u32) -> Result<$crate::HostDpc<R>, ndkpi::NtStatus> {
            self.0.dpc(processor)
        }

        fn timer<R: engine::os::Routine>(&self) -> Result<$crate::HostTimer<R>, ndkpi::NtStatus> {
            self.0.timer()
        }

        fn event(&self) -> Result<$crate::HostEvent, ndkpi::NtStatus> {
            self.0.event()
        }

        fn processors(&self) -> u32 {
            self.0.processors()
        }

        fn current_processor(&self) -> u32 {
            self.0.current_processor()
        }

        fn processor_for(&self, affinity: engine::os::Affinity) -> Option<u32> {
            self.0.processor_for(affinity)
        }

        fn now(&self) -> u64 {
            self.0.now()
        }

        fn timer_resolution(&self) -> u32 {
            self.0.timer_resolution()
        }

        fn random(&self) -> u32 {
            self.0.random()
        }
    };
}

impl Os for HostOs {
    type Lock<T: Send + 'static> = HostLock<T>;
    type Dpc<R: Routine> = HostDpc<R>;
    type Timer<R: Routine> = HostTimer<R>;
    type Event = HostEvent;
    type Memory = HostMemory;

    fn lock<T: Send + 'static>(&self, value: T) -> Result<HostLock<T>, NtStatus> {
        self.create(|| if self.watched { HostLock::try_new(&self.machine, value) } else { Ok(HostLock::plain(value)) })
    }

    fn dpc<R: Routine>(&self, processor: u32) -> Result<HostDpc<R>, NtStatus> {
        self.create(|| HostDpc::try_new(&self.machine, processor, self.watched))
    }

    fn timer<R: Routine>(&self) -> Result<HostTimer<R>, NtStatus> {
        self.create(|| HostTimer::try_new(&self.machine))
    }

    fn event(&self) -> Result<HostEvent, NtStatus> {
        self.create(|| Ok(HostEvent::new(&self.machine)))
    }

    fn processors(&self) -> u32 {
        self.machine.processors()
    }

    fn current_processor(&self) -> u32 {
        self.machine.current_processor()
    }

    fn processor_for(&self, affinity: Affinity) -> Option<u32> {
        let all = u64::MAX >> (u64::BITS - self.machine.processors());
        let mask = if affinity.group == 0 { affinity.mask & all } else { 0 };
        let count = mask.count_ones();
        if count == 0 {
            return None;
        }
        let turn = self.next_processor.fetch_add(1, Relaxed) % count;
        (0..u64::BITS).filter(|bit| mask & (1 << bit) != 0).nth(turn as usize)
    }

    fn now(&self) -> u64 {
        self.machine.now()
    }

    fn timer_resolution(&self) -> u32 {
        self.machine.timer_resolution()
    }

    fn random(&self) -> u32 {
        // The upper half is as good as the lower one.
        (self.machine.random() >> 32) as u32
    }
}
