//! The kernel as a whole: how a test begins and ends one.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::machine::{self, Machine, MachineRef};

use crate::{
    baton::Baton,
    context,
    faults::Faults,
    ndis::Ndis,
    netio::Net,
    paged,
    pnp::Pnp,
    pool, report,
    report::bug_check,
    rule::Rule,
    sites, stack,
    tracked::Tracked,
    waiting::Dispatcher,
    wdf::Framework,
    wdm::{self, Wdm},
    wsk::{Pins, Wsk},
};

/// What all routines share.
pub struct State {
    pub machine: MachineRef,
    pub seed: Option<u64>,
    pub baton: Option<Baton>,
    pub dispatcher: Dispatcher,
    pub tracked: Mutex<Tracked>,
    pub wdm: Wdm,
    pub framework: Mutex<Framework>,
    pub pnp: Mutex<Pnp>,
    pub net: Mutex<Net>,
    pub wsk: Mutex<Wsk>,
    /// Memory of requests with Winsock Kernel.
    pub pins: Mutex<Pins>,
    pub ndis: Ndis,
    pub faults: Faults,
    pub images: Mutex<sites::Images>,
    pub dpc_limit: Duration,
    pub dispatch_limit: Duration,
    pub hang_limit: Duration,
    next: AtomicU64,
    /// Calls of the routines and functions, for the statistics.
    pub calls: AtomicU64,
    pub drivers: AtomicU32,
}

impl State {
    /// A number that nothing else has.
    pub fn next(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }
}

static CURRENT: RwLock<Option<Arc<State>>> = RwLock::new(None);
static ONE: Mutex<()> = Mutex::new(());

/// The kernel that runs.
pub fn current() -> Arc<State> {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone();
    current.unwrap_or_else(|| {
        bug_check(Rule::NotSimulated, format_args!("a routine was called while no kernel runs"));
    })
}

/// Locks, whatever happened to the last holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The seed, for a message.
pub fn seed_in_words() -> String {
    let seed = glance(|state| state.seed);
    seed.map_or_else(String::new, |seed| format!("; the seed is {seed}"))
}

/// The state, for a message: nobody may wait for it there.
fn glance<R>(look: impl FnOnce(&State) -> Option<R>) -> Option<R> {
    CURRENT.try_read().ok().and_then(|current| look(current.as_ref()?))
}

/// Whose code it is, for a message.
pub fn driver_in_words(driver: context::DriverId) -> String {
    let name = glance(|state| Some(state.pnp.try_lock().ok()?.drivers.get(&driver)?.name.clone()));
    match name {
        _ if driver == context::NOBODY => String::new(),
        Some(name) => format!(" of driver {name}"),
        None => format!(" of driver {}", driver.0),
    }
}

/// Failures that were injected, for a message.
pub fn failures_in_words() -> &'static str {
    let failed = glance(|state| Some(state.faults.has_struck())).unwrap_or(false);
    if failed { "; after an injected failure" } else { "" }
}

/// Returns true if the environment wants each call printed, with `SIMULATED_KERNEL_TRACE`.
pub fn trace() -> bool {
    static WANTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("SIMULATED_KERNEL_TRACE").is_some())
}

/// Carries out a routine that a driver calls: checks the IRQL, and lets panics end as bug checks.
pub fn routine<R>(name: &'static str, limit: impl FnOnce() -> machine::Irql, work: impl FnOnce(&Arc<State>) -> R) -> R {
    let _inside = context::Inside::new(name);
    if trace() {
        eprintln!(
            "{name}, thread {}, driver {}, at {}",
            context::thread(),
            context::caller().0,
            machine::current_irql()
        );
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        #[cfg(unix)]
        crate::heap::report_violation();
        stack::check(name);
        let (now, limit) = (machine::current_irql(), limit());
        if now > limit {
            bug_check(Rule::IrqlTooHigh, format_args!("{name} called at {now}, but at most {limit} is allowed"));
        }
        let state = current();
        state.calls.fetch_add(1, Relaxed);
        if now < machine::Irql::DISPATCH_LEVEL {
            wdm::is_below(&state);
        }
        work(&state)
    }));
    outcome.unwrap_or_else(|panic| report::bug_check_panic(&report::words_of(&*panic)))
}

/// Settings of a [`Kernel`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct Builder {
    seed: Option<u64>,
    processors: u32,
    preemption: u8,
    dpc_limit: Duration,
    dispatch_limit: Duration,
    hang_limit: Duration,
}

impl Builder {
    /// The number of processors. Default: 4.
    pub const fn processors(mut self, count: u32) -> Self {
        self.processors = count;
        self
    }

    /// Seeded only: the chance, in percent, that others get in between at each point where they could. Default: 20.
    pub const fn preemption(mut self, percent: u8) -> Self {
        self.preemption = percent;
        self
    }

    /// How long a DPC may run: real time plus what it stalled. Default: two seconds, for hosts are busy.
    pub const fn dpc_limit(mut self, limit: Duration) -> Self {
        self.dpc_limit = limit;
        self
    }

    /// How long DPCs, one after the other, may keep a processor at `DISPATCH_LEVEL`. Default: two minutes, as Windows
    /// has it.
    ///
    /// Not real time, which says more of the host than of the driver: each call counts as 100 microseconds, which is what the
    /// DDI reference allows it, or as long as it stalls.
    pub const fn dispatch_limit(mut self, limit: Duration) -> Self {
        self.dispatch_limit = limit;
        self
    }

    /// How long a thread may wait, unless it is bound to a processor and serves that. Default: one minute.
    pub const fn hang_limit(mut self, limit: Duration) -> Self {
        self.hang_limit = limit;
        self
    }

    /// Starts the kernel. Waits while another one runs in this process.
    pub fn start(self) -> Kernel {
        let only = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        report::install_hook();
        let builder = self.seed.map_or_else(Machine::threads, |seed| Machine::seeded(seed).preemption(self.preemption));
        let machine = builder.processors(self.processors).hang_limit(self.hang_limit).start();
        let state = Arc::new(State {
            machine: machine.clone(),
            seed: self.seed,
            baton: self.seed.map(|seed| Baton::new(seed, self.preemption)),
            dispatcher: Dispatcher::default(),
            tracked: Mutex::default(),
            wdm: Wdm::default(),
            framework: Mutex::default(),
            pnp: Mutex::default(),
            net: Mutex::default(),
            wsk: Mutex::default(),
            pins: Mutex::default(),
            ndis: Ndis::default(),
            faults: Faults::default(),
            images: Mutex::default(),
            dpc_limit: self.dpc_limit,
            dispatch_limit: self.dispatch_limit,
            hang_limit: self.hang_limit,
            next: AtomicU64::new(1),
            calls: AtomicU64::new(0),
            drivers: AtomicU32::new(0),
        });
        if let Some(baton) = &state.baton {
            baton.begin();
        }
        pool::begin();
        paged::begin();
        *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(state.clone());
        #[cfg(unix)]
        crate::wdf::install();
        Kernel { state, machine: Some(machine), only: Some(only) }
    }
}

/// A running kernel. Dropping it checks that nothing is left.
pub struct Kernel {
    pub(crate) state: Arc<State>,
    machine: Option<Machine>,
    only: Option<MutexGuard<'static, ()>>,
}

impl Kernel {
    /// A kernel whose processors are threads.
    pub const fn threads() -> Builder {
        Builder {
            seed: None,
            processors: 4,
            preemption: 20,
            dpc_limit: Duration::from_secs(2),
            dispatch_limit: Duration::from_mins(2),
            hang_limit: Duration::from_mins(1),
        }
    }

    /// A kernel in which a seed decides what happens next. The same seed, the same run.
    pub const fn seeded(seed: u64) -> Builder {
        Builder { seed: Some(seed), ..Self::threads() }
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

    /// How often a queued spin lock was held by another thread when a driver wanted it. Zero with a seed: there nobody is taken off
    /// while he holds one.
    #[must_use]
    pub fn lock_waits(&self) -> u64 {
        self.state.wdm.lock_waits.load(Relaxed)
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

    /// How often each event of `TraceLogging` was written, by its name.
    #[must_use]
    pub fn events(&self) -> BTreeMap<String, u32> {
        lock(&self.state.wdm.events).clone()
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
        crate::waiting::until(&self.state, Some(end), "the test", || false);
    }

    /// Waits until all work items of all drivers have returned, but not longer than so many microseconds. Whether they have.
    #[must_use]
    pub fn wait_for_work_items(&self, longest: u64) -> bool {
        let end = self.now().saturating_add(longest);
        let have_returned = || !self.state.has_work_items(|_| true);
        have_returned() || crate::waiting::until(&self.state, Some(end), "the test, for work items,", have_returned)
    }

    /// Waits until `condition` holds.
    pub fn wait_until(&self, condition: impl FnMut() -> bool) {
        crate::waiting::until(&self.state, None, "the test", condition);
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test has failed already; drivers that are still loaded may use the kernel as long as the process lives.
            std::mem::forget(self.machine.take());
            return;
        }
        self.state.pnp_is_empty();
        pool::check_poison();
        if let Some(machine) = self.machine.take() {
            machine.shutdown();
        }
        *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = None;
        drop(self.only.take());
    }
}
