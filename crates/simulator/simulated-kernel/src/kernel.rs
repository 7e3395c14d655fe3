//! A kernel that runs, as a test has it: its statistics and its time, and what has to be in order when it ends.
//!
//! What a test does with a part of the kernel is a method of [`Kernel`] beside that part.

use std::sync::{Arc, Mutex, MutexGuard, atomic::Ordering::Relaxed};

use host::machine::{Machine, MachineRef};

use crate::{
    baton::Baton,
    context,
    drivers::Drivers,
    during_run, paged, pool,
    state::{State, lock, set_current},
    waiting,
};

/// A running kernel. Dropping it checks that nothing is left.
pub struct Kernel {
    pub(crate) state: Arc<State>,
    machine: Option<Machine>,
    only: Option<MutexGuard<'static, ()>>,
}

static ONE: Mutex<()> = Mutex::new(());

/// Waits while another kernel runs in this process.
pub fn wait_for_others() -> MutexGuard<'static, ()> {
    lock(&ONE)
}

impl Kernel {
    /// From here on this kernel is the one that runs, and the only one.
    pub(crate) fn begin(state: Arc<State>, machine: Machine, only: MutexGuard<'static, ()>) -> Self {
        if let Some(baton) = &state.baton {
            baton.begin();
        }
        pool::begin();
        paged::begin();
        set_current(Some(state.clone()));
        during_run::enter();
        Self { state, machine: Some(machine), only: Some(only) }
    }

    /// A number that depends on every choice so far: equal for two runs with the same seed.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        let baton = self.state.baton.as_ref().map_or(0, Baton::trace);
        if self.state.seed.is_some() { self.state.machine.trace_hash() ^ baton } else { 0 }
    }

    /// How many routines and functions were called.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.calls.load(Relaxed)
    }

    /// The machine below: its processors, DPCs, timers and time.
    #[must_use]
    pub fn machine(&self) -> &MachineRef {
        &self.state.machine
    }

    /// How many DPCs were made.
    #[must_use]
    pub fn dpcs_run(&self) -> u64 {
        self.state.machine.statistics().dpcs_run()
    }

    /// Bytes of the pool that are in use now.
    #[must_use]
    pub fn pool_bytes(&self) -> usize {
        pool::in_use()
    }

    /// Microseconds since the kernel was started.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.state.machine.now()
    }

    /// Lets time pass, with DPCs, timers and threads running meanwhile.
    pub fn sleep(&self, microseconds: u64) {
        // What the kernel allocates meanwhile is its own, also if the test runs as a driver.
        let _inside = context::Inside::new("the test");
        let end = self.now().saturating_add(microseconds);
        waiting::until(&self.state, Some(end), waiting::Wait::time("the test"), || false);
    }

    /// Waits until `condition` holds.
    pub fn wait_until(&self, condition: impl FnMut() -> bool) {
        waiting::until(&self.state, None, "the test", condition);
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        during_run::leave();
        if std::thread::panicking() {
            // The test has failed already; drivers that are still loaded may use the kernel as long as the process lives.
            self.state.part::<Drivers>().leave();
            std::mem::forget(self.machine.take());
            return;
        }
        let loaded: Vec<String> = self.state.drivers().values().map(|driver| driver.name.clone()).collect();
        assert!(loaded.is_empty(), "the kernel ends while drivers are loaded: {loaded:?}");
        pool::check_poison();
        // What other machines still send comes to nobody.
        self.state.machine.part();
        if let Some(machine) = self.machine.take() {
            machine.shutdown();
        }
        set_current(None);
        drop(self.only.take());
    }
}
