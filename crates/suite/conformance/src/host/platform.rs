//! [`Platform`] on a host.

use std::{
    fmt,
    net::IpAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::Duration,
};

use super::cable::{Impairments, Line};
use crate::platform::{ExecutionContext, Family, PinnedMemory, Platform, Shape, Task};
use engine::{
    connection::{Fabric, Timeouts},
    memory::FastTokens,
    nic::NicMode,
    wire::{Times as WireTimes, WireConfig},
};
use host::{
    HostOs,
    device::{self, HostDevice},
    machine::{Irql, Machine, current_irql, locks_held, lower, raise},
    note,
};
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};
use provider::{CompletionMode, Config, Profile};
use recorder::{Ring, Tap};

use super::{memory::HostPinned, tasks};

/// What decides what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// The host: a thread for each processor.
    Threads,
    /// A seed: one thread, a clock that counts, the same run for the same seed. The number is the chance, in percent, that
    /// others get in between at each point where they could.
    Seeded {
        /// The seed.
        seed: u64,
        /// The chance of a preemption.
        preemption: u8,
    },
}

/// What kind of machine and provider the suite meets.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The machine.
    pub scheduler: Scheduler,
    /// Its processors; by default the machine decides.
    pub processors: Option<u32>,
    /// How requests complete.
    pub completion: CompletionMode,
    /// Determines the sequence of [`CompletionMode::Mixed`].
    pub seed: u64,
    /// Where work requests are carried out.
    pub nic: NicMode,
    /// True if spin locks raise the IRQL and find mistakes; false if they only lock, which lets the engine's shortest path for
    /// completions be taken. A seed then lets nobody in between: who came to such a lock while it is held would not let its
    /// holder go on.
    pub watched_locks: bool,
    /// Adapters on the fabric.
    pub adapters: u8,
    /// What kind of adapter they are like.
    pub profile: Profile,
    /// Flags that the adapters leave out (`NDKPI 2.6`).
    pub without: u32,
    /// Memory regions, windows and protection domains of an adapter at most, together; by default the provider decides.
    pub tokens: Option<u32>,
    /// Elements of a read at most (`MaxReadRequestSge`); by default the provider decides.
    pub read_sge: Option<u32>,
    /// What fast registrations do to remote tokens.
    pub fast_tokens: FastTokens,
    /// The first two adapters reach each other only by frames on a cable that does this to them.
    pub wire: Option<Impairments>,
    /// Until when something that has to happen must have happened, in microseconds.
    pub patience: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::Threads,
            processors: None,
            completion: CompletionMode::Inline,
            seed: 0,
            nic: NicMode::Deferred,
            watched_locks: true,
            adapters: 2,
            profile: Profile::Own,
            without: 0,
            tokens: None,
            read_sge: None,
            fast_tokens: FastTokens::Stable,
            wire: None,
            patience: 5_000_000,
        }
    }
}

/// How long connections may take, in microseconds: short enough to be waited for.
const TIMEOUT: u64 = 2_000_000;

impl Setup {
    /// How long connections may take. Who has an address is asked once in a second, and the question may be lost.
    const fn timeout(&self) -> u64 {
        if self.wire.is_some() { 4 * TIMEOUT } else { TIMEOUT }
    }
}

/// The times of a wire: short ones, so that a few messages in a row can be lost before that.
const TIMES: WireTimes =
    WireTimes { response: 14, retries: 15, ack: 12, retry_count: 7, rnr_retry_count: 7, rnr_timer: 12 };

/// A machine with SoftNDK's provider on it.
pub struct HostPlatform {
    setup: Setup,
    devices: Vec<fallible::Arc<HostDevice>>,
    line: Line,
    machine: Machine,
    cancelled: Arc<AtomicBool>,
    verbose: AtomicBool,
    pub(crate) task_seed: AtomicU64,
}

/// Microseconds for which a wait gives its processor to others before it sleeps: most are over by then.
const YIELDS: u64 = 100;

/// Registered bytes that one DPC may copy: 512 KiB that a NIC moves in a run, and the inline bytes (at most 1024) of the
/// request that spends the last of them.
const MOST_COPIED: usize = (512 << 10) + 1024;

impl HostPlatform {
    /// Starts a machine and makes its adapters.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn start(setup: Setup) -> Result<Self, NtStatus> {
        Self::start_with(setup, |_| {})
    }

    /// Like [`HostPlatform::start`]; the suite ends early when the flag is set.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn start_with_cancel(setup: Setup, cancelled: &Arc<AtomicBool>) -> Result<Self, NtStatus> {
        let mut platform = Self::start(setup)?;
        platform.cancelled = cancelled.clone();
        Ok(platform)
    }

    /// Like [`HostPlatform::start`], with a last word on each adapter's configuration.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn start_with(setup: Setup, adjust: impl Fn(&mut Config)) -> Result<Self, NtStatus> {
        let builder = match setup.scheduler {
            Scheduler::Threads => Machine::threads(),
            Scheduler::Seeded { seed, preemption } => {
                Machine::seeded(seed).preemption(if setup.watched_locks { preemption } else { 0 })
            }
        };
        let builder = match setup.processors {
            Some(count) => builder.processors(count),
            None => builder,
        };
        let machine = builder.dpc_byte_limit(MOST_COPIED).start();
        let os = if setup.watched_locks { HostOs::new(&machine) } else { HostOs::unwatched(&machine) };
        let fabric = Fabric::try_new(&os)?;
        let (mut devices, line) = (Vec::new(), Line::default());
        for number in 1..=setup.adapters {
            let mut config = Config {
                addresses: Config::addresses_of(number),
                nic: setup.nic,
                mode: setup.completion,
                seed: setup.seed,
                fast_tokens: setup.fast_tokens,
                ..Config::default()
            };
            // What the engine can register at once.
            let longest = usize::try_from(engine::memory::MAX_LENGTH).unwrap_or(usize::MAX);
            config.info.MaxRegistrationSize = config.info.MaxRegistrationSize.min(longest);
            config.info.MaxWindowSize = config.info.MaxWindowSize.min(longest);
            config.info.AdapterFlags &= !setup.without;
            config.max_tokens = setup.tokens.unwrap_or(config.max_tokens);
            config.info.MaxReadRequestSge = setup.read_sge.unwrap_or(config.info.MaxReadRequestSge);
            let timeout = setup.timeout();
            config.timeouts = Timeouts { connect: timeout, establish: timeout, disconnect: timeout };
            setup.profile.limit(&mut config);
            adjust(&mut config);
            let Some(impairments) = setup.wire.filter(|_| number <= 2) else {
                devices.push(device::on_fabric(&os, &fabric, config)?);
                continue;
            };
            // Neither is on the other's link.
            config.link = number.into();
            let wire = WireConfig { seed: setup.seed, times: TIMES, ..WireConfig::new([2, 0, 0, 0, 0, number]) };
            let (end, seed) = (usize::from(number) - 1, setup.seed.wrapping_add(number.into()));
            let device = device::with_cable(&os, &fabric, config, wire, line.end(end, impairments, seed))?;
            if let Some(wire) = device.wire() {
                line.plug(end, wire);
            }
            devices.push(device);
        }
        Ok(Self {
            setup,
            devices,
            line,
            machine,
            cancelled: Arc::default(),
            verbose: AtomicBool::new(false),
            task_seed: AtomicU64::new(setup.seed),
        })
    }

    /// The machine.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The adapters.
    #[must_use]
    pub fn devices(&self) -> &[fallible::Arc<HostDevice>] {
        &self.devices
    }

    /// Pulls the cable: no frame arrives any more.
    pub fn pull_cable(&self) {
        self.line.pull();
    }

    /// Records what goes over the cable from now on, at both of its ends, beside what a recorder in front of the adapters writes there.
    pub fn record_cable(&self, ring: &fallible::Arc<Ring>) {
        if let (Some(device), true) = (self.devices.first(), self.setup.wire.is_some()) {
            self.line.record([0, 1].map(|_| Tap::new(device.os().clone(), ring.clone())));
        }
    }

    /// The last frame that an adapter has sent.
    #[must_use]
    pub fn last_frame(&self, adapter: usize) -> Vec<u8> {
        self.line.last(adapter)
    }

    /// Prints what the suite logs to the standard error.
    pub fn set_verbose(&self, verbose: bool) {
        self.verbose.store(verbose, Relaxed);
    }

    /// The first panic on a processor since the last time this was asked.
    #[must_use]
    pub fn take_panic(&self) -> Option<String> {
        self.machine.take_failures().first().map(ToString::to_string)
    }

    /// Shuts the machine down and looks that nothing is left: no reference to an adapter, no DPC, no timer.
    ///
    /// # Errors
    ///
    /// What is left.
    pub fn finish(self) -> Result<(), String> {
        let Self { devices, line, machine, .. } = self;
        machine.flush();
        line.pull();
        for (number, device) in devices.iter().enumerate() {
            let references = fallible::Arc::references_now(device);
            if references != 1 {
                return Err(format!("{} references to adapter {number} are left", references - 1));
            }
        }
        drop(devices);
        catch_unwind(AssertUnwindSafe(|| machine.shutdown())).map_err(|panic| {
            panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "the machine does not shut down".to_owned())
        })
    }

    const fn is_seeded(&self) -> bool {
        matches!(self.setup.scheduler, Scheduler::Seeded { .. })
    }

    fn wait_seeded(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        let end = self.machine.now().saturating_add(limit);
        let mut pause = 1;
        loop {
            self.machine.run_until(until);
            if until() {
                return true;
            }
            let now = self.machine.now();
            if now >= end {
                return false;
            }
            self.machine.run_for(pause.min(end - now));
            pause = (pause * 2).min(10_000);
        }
    }

    fn wait_in_real_time(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        let begun = self.machine.now();
        while !until() {
            // In each round: beside busy processes a yield takes milliseconds.
            let waited = self.machine.now() - begun;
            if waited >= limit {
                return until();
            }
            if waited < YIELDS {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros((waited / 8).clamp(50, 200)));
            }
        }
        true
    }

    /// Closes an adapter on a thread that may be left behind if the close does not return.
    ///
    /// # Safety
    ///
    /// Like [`Platform::close`].
    unsafe fn close_beside(&self, adapter: *mut NDK_ADAPTER) -> bool {
        struct Moved(*mut NDK_ADAPTER);
        // SAFETY: the adapter may be closed on any thread.
        unsafe impl Send for Moved {}
        let (done, closed) = mpsc::channel();
        let moved = Moved(adapter);
        let thread = std::thread::spawn(move || {
            let moved = moved;
            // SAFETY: `adapter` came from this platform and is not used after this call (the trait's `# Safety`).
            unsafe { device::close(moved.0) };
            // Nobody listens any more if it has taken too long.
            let _ = done.send(());
        });
        let returned = closed.recv_timeout(Duration::from_micros(self.setup.patience)).is_ok();
        if returned {
            return thread.join().is_ok();
        }
        false
    }
}

impl fmt::Debug for HostPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPlatform").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl Platform for HostPlatform {
    fn adapters(&self) -> u32 {
        u32::from(self.setup.adapters)
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let device = self.devices.get(adapter as usize).ok_or(NtStatus::INVALID_PARAMETER)?;
        device::open(device, version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        if self.is_seeded() {
            let close = || {
                // SAFETY: `adapter` came from this platform and is not used after this call (the trait's `# Safety`).
                unsafe { device::close(adapter) };
            };
            // A machine on which nothing is left to do says so by a panic.
            return catch_unwind(AssertUnwindSafe(close)).is_ok();
        }
        // SAFETY: `adapter` came from this platform and is not used after this call (the trait's `# Safety`).
        unsafe { self.close_beside(adapter) }
    }

    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr> {
        let device = self.devices.get(adapter as usize)?;
        let mut addresses = device.config().addresses.iter().flatten().map(|interface| interface.address);
        addresses.find(|address| address.is_ipv4() == (family == Family::V4))
    }

    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        let pinned = fallible::try_box(HostPinned::new(shape, length)?);
        Ok(pinned.map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?)
    }

    fn now(&self) -> u64 {
        self.machine.now()
    }

    fn patience(&self) -> u64 {
        self.setup.patience
    }

    fn timeouts(&self) -> Option<u64> {
        Some(3 * self.setup.timeout())
    }

    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        if self.is_seeded() { self.wait_seeded(limit, until) } else { self.wait_in_real_time(limit, until) }
    }

    fn dwell(&self, until: &dyn Fn() -> bool) -> bool {
        if self.is_seeded() {
            for _ in 0..100 {
                if until() {
                    return true;
                }
                self.machine.preempt();
            }
            return until();
        }
        let end = self.machine.now() + 20_000;
        while !until() {
            if self.machine.now() > end {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn settle(&self) {
        if self.is_seeded() {
            self.machine.run_until_idle();
            self.machine.run_for(500);
            return;
        }
        // A transfer, a completion and a notification follow each other.
        for _ in 0..4 {
            self.machine.flush();
        }
        std::thread::sleep(Duration::from_micros(500));
        self.machine.flush();
    }

    fn sleep(&self, micros: u64) {
        self.machine.sleep(micros);
    }

    fn raised(&self, work: &mut dyn FnMut()) {
        let before = raise(Irql::DISPATCH_LEVEL);
        work();
        lower(before);
    }

    fn execution_context(&self) -> ExecutionContext {
        thread_local! {
            static HERE: u8 = const { 0 };
        }
        let thread = HERE.with(|here| std::ptr::from_ref(here).addr());
        ExecutionContext { thread, processor: self.machine.current_processor() }
    }

    fn processors(&self) -> u32 {
        self.machine.processors()
    }

    fn run(&self, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
        if self.is_seeded() {
            tasks::one_by_one(self, tasks);
            return Ok(());
        }
        tasks::on_threads(self, tasks)
    }

    fn inspect_callback(&self) -> Result<(), &'static str> {
        if locks_held() != 0 {
            return Err("a spin lock is held");
        }
        if current_irql() > Irql::DISPATCH_LEVEL {
            return Err("the IRQL is above DISPATCH_LEVEL");
        }
        Ok(())
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        if self.verbose.load(Relaxed) {
            note!("{line}");
        }
    }
}
