//! The machine itself: what its processors, timers and callers share, and how it begins and ends.

use std::{
    fmt::{self, Write as _},
    ops::Deref,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use fallible::AllocError;

use super::{
    config::{Builder, Scheduler, Settings},
    dpc::{DpcInner, Importance},
    failure::{Failure, Failures},
    irql::{self, Irql, assert_irql_at_most, assert_no_locks_held},
    queue::{Entry, Flush, From, Life, Processor},
    random::RandomSource,
    rules::{Rule, broken, broken_at_drop},
    seeded::Seeded,
    statistics::{ProcessorStatistics, Statistics},
    step_threads::StepThreads,
    thread, threads,
    timer_queue::TimerQueue,
};

/// What all of a machine shares.
pub struct Core {
    /// Tells machines apart. Not zero.
    number: u64,
    settings: Settings,
    pub processors: Box<[Processor]>,
    pub timers: TimerQueue,
    pub seeded: Option<Seeded>,
    pub step_threads: StepThreads,
    pub failures: Failures,
    random: RandomSource,
    started: Instant,
    /// The greatest that [`MachineRef::ticks`] has returned.
    ticks: AtomicU64,
    /// All threads have ended.
    stopped: AtomicBool,
    /// The number of DPC objects alive.
    dpcs: AtomicUsize,
    next_number: AtomicU64,
    /// Creations so far, and the one that fails.
    creations: AtomicU64,
    failing_creation: AtomicU64,
    /// The most registered bytes that one DPC has copied.
    pub most_copied: AtomicUsize,
}

/// [`MachineRef::ticks_per_unit`], as a power of two.
const TICKS_SHIFT: u32 = 16;

/// A machine, as its objects and callers refer to it.
#[derive(Clone)]
pub struct MachineRef {
    pub(super) core: Arc<Core>,
}

/// A machine. Dropping it shuts it down, as [`Machine::shutdown`] does.
pub struct Machine {
    machine: MachineRef,
    threads: Vec<JoinHandle<()>>,
}

impl Deref for Machine {
    type Target = MachineRef;

    fn deref(&self) -> &MachineRef {
        &self.machine
    }
}

impl fmt::Debug for MachineRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machine.fmt(f)
    }
}

impl Machine {
    /// A machine whose processors are threads and whose time is real.
    pub fn threads() -> Builder {
        Builder::new(Scheduler::Threads)
    }

    /// A machine without threads, on which `seed` decides what happens next, and time is a counter.
    ///
    /// Things happen in [`MachineRef::step`] and whatever calls it: waiting, flushing, [`MachineRef::run_until_idle`]. One
    /// thread should use the machine: what several do at the same time, no seed decides.
    pub fn seeded(seed: u64) -> Builder {
        Builder::new(Scheduler::Seeded(seed))
    }

    pub(super) fn start(settings: Settings) -> Self {
        static MACHINES: AtomicU64 = AtomicU64::new(1);
        let (seeded, random) = match settings.scheduler {
            Scheduler::Threads => (None, RandomSource::system()),
            Scheduler::Seeded(seed) => (Some(Seeded::new(seed)), RandomSource::seeded(seed)),
        };
        let core = Core {
            number: MACHINES.fetch_add(1, Relaxed),
            processors: (0..settings.processors).map(|_| Processor::new()).collect(),
            timers: TimerQueue::new(),
            seeded,
            step_threads: StepThreads::default(),
            failures: Failures::default(),
            random,
            started: Instant::now(),
            ticks: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            dpcs: AtomicUsize::new(0),
            next_number: AtomicU64::new(1),
            creations: AtomicU64::new(0),
            failing_creation: AtomicU64::new(0),
            most_copied: AtomicUsize::new(0),
            settings,
        };
        let machine = MachineRef { core: Arc::new(core) };
        let threads = if machine.core.seeded.is_none() { threads::start(&machine) } else { Vec::new() };
        Self { machine, threads }
    }

    /// Runs what is queued, as `KeFlushQueuedDpcs` in a driver's unload routine does, ends the threads, and checks that
    /// nothing is left.
    ///
    /// # Panics
    ///
    /// [`Rule::RoutinePanicked`] if a routine panicked on a processor, [`Rule::Leak`] if a DPC is queued or a timer set,
    /// [`Rule::IrqlTooHigh`] above `PASSIVE_LEVEL`.
    #[track_caller]
    pub fn shutdown(mut self) {
        self.finish();
    }

    #[track_caller]
    fn finish(&mut self) {
        if self.core.stopped.load(Acquire) {
            return;
        }
        let panicking = std::thread::panicking();
        if !panicking {
            assert_irql_at_most(Irql::PASSIVE_LEVEL);
            self.flush_quietly();
        }
        self.set_life(Life::Stops);
        // A machine with a short limit, for a test of hangs, still gives its threads time to end.
        let limit = self.settings().hang_limit.max(Duration::from_secs(1));
        let hangs = !threads::join(&mut self.threads, limit);
        self.core.step_threads.end();
        self.set_life(Life::Closed);
        self.core.stopped.store(true, Release);
        if panicking && let Scheduler::Seeded(seed) = self.settings().scheduler {
            eprintln!("machine: the seed was {seed}");
        }
        if hangs {
            broken_at_drop(Rule::Hang, format_args!("a routine does not end: {}", self.describe()));
        } else if let Some(summary) = self.core.failures.summary() {
            broken_at_drop(Rule::RoutinePanicked, format_args!("{summary}{}", self.seed_in_words()));
        } else if let Some(leaks) = self.leaks()
            && !panicking
        {
            broken(Rule::Leak, format_args!("{leaks}{}", self.seed_in_words()));
        }
    }

    fn set_life(&self, life: Life) {
        self.core.timers.set_life(life);
        self.core.processors.iter().for_each(|processor| processor.set_life(life));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.finish();
    }
}

impl MachineRef {
    /// The number of processors.
    #[must_use]
    pub fn processors(&self) -> u32 {
        self.settings().processors
    }

    /// The processor on which the current thread stands. A thread that is no processor and was not put on one stands on
    /// some processor, always the same one.
    #[must_use]
    pub fn current_processor(&self) -> u32 {
        thread::with(|state| state.processor_of(self.core.number)).unwrap_or_else(|| self.processor_of_others())
    }

    /// The current thread, as a number that no other live thread has, its processor and its IRQL.
    #[inline]
    #[must_use]
    pub fn here(&self) -> (usize, u32, Irql) {
        let (thread, processor, irql) =
            thread::with(|state| (state.token(), state.processor_of(self.core.number), state.irql.get()));
        (thread, processor.unwrap_or_else(|| self.processor_of_others()), irql)
    }

    /// The processor of a thread that was put on none.
    #[cold]
    fn processor_of_others(&self) -> u32 {
        match self.core.seeded {
            None => thread::number() % self.processors(),
            Some(_) => 0,
        }
    }

    /// Puts the current thread on `processor`. A thread stands on a processor of one machine at a time.
    ///
    /// # Panics
    ///
    /// If the machine has no such processor.
    pub fn bind_current_thread(&self, processor: u32) {
        let count = self.processors();
        assert!(processor < count, "no processor {processor} among {count}");
        thread::with(|state| state.bind(self.core.number, processor));
    }

    /// Time since a machine of threads was started, as its clock has it.
    fn elapsed(&self) -> Duration {
        let elapsed = self.core.started.elapsed();
        // A division takes longer than the clock.
        if self.settings().pace == 1 { elapsed } else { elapsed / self.settings().pace }
    }

    /// How long so many microseconds of a machine of threads take in real time.
    pub(super) fn in_real_time(&self, microseconds: u64) -> Duration {
        Duration::from_micros(microseconds.saturating_mul(self.settings().pace.into()))
    }

    /// Microseconds since the machine was started.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.core
            .seeded
            .as_ref()
            .map_or_else(|| u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX), Seeded::now)
    }

    /// The same time, in units of 100 nanoseconds.
    #[must_use]
    pub fn now_100ns(&self) -> u64 {
        self.core.seeded.as_ref().map_or_else(
            || {
                // Without a division of 128 bits, which takes longer than the clock.
                let elapsed = self.elapsed();
                elapsed.as_secs().saturating_mul(10_000_000).saturating_add(u64::from(elapsed.subsec_nanos() / 100))
            },
            |seeded| seeded.now().saturating_mul(10),
        )
    }

    /// A count that orders what happens on a seeded machine, whose time stands still meanwhile: no two calls return the same. `None` on
    /// a machine of threads, which has the processor's counter.
    #[inline]
    #[must_use]
    pub fn ticks(&self) -> Option<u64> {
        self.core.seeded.as_ref().map(|_| {
            self.core.ticks.fetch_max(self.now_100ns() << TICKS_SHIFT, Relaxed);
            self.core.ticks.fetch_add(1, Relaxed) + 1
        })
    }

    /// How many of [`MachineRef::ticks`] there are in 100 nanoseconds; 0 on a machine of threads.
    #[must_use]
    pub fn ticks_per_unit(&self) -> u64 {
        if self.core.seeded.is_some() { 1 << TICKS_SHIFT } else { 0 }
    }

    /// The shortest delay that a timer can tell from none, in microseconds.
    #[must_use]
    pub fn timer_resolution(&self) -> u32 {
        self.settings().timer_resolution
    }

    /// Random bits: from the operating system, or from the seed.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.core.random.draw()
    }

    /// Waits until every call has run that is queued now, on any processor: `KeFlushQueuedDpcs`.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlTooHigh`] above `PASSIVE_LEVEL`; [`Rule::RoutinePanicked`]; [`Rule::Hang`].
    #[track_caller]
    pub fn flush(&self) {
        assert_irql_at_most(Irql::PASSIVE_LEVEL);
        assert_no_locks_held();
        self.flush_quietly();
        self.check_failures();
    }

    #[track_caller]
    fn flush_quietly(&self) {
        let watch = self.watch();
        // A timer that has expired is as good as queued: the kernel lets timers expire at DISPATCH_LEVEL.
        while !self.core.timers.is_flushed(threads::LOOK_AGAIN) {
            watch.check("a flush");
        }
        let mut flushes = [Flush::default(); 64];
        for (processor, flush) in self.core.processors.iter().zip(&mut flushes) {
            *flush = processor.begin_flush();
        }
        for (processor, &flush) in self.core.processors.iter().zip(&flushes) {
            if self.core.seeded.is_some() {
                self.run_while(self.now(), || !processor.is_flushed(flush, Duration::ZERO));
            }
            while !processor.is_flushed(flush, threads::LOOK_AGAIN) {
                watch.check("a flush");
            }
        }
    }

    /// The names of what is queued or set now, if anything is: what a driver may not leave behind.
    #[must_use]
    pub fn leaks(&self) -> Option<String> {
        let mut words = String::new();
        for (index, processor) in self.core.processors.iter().enumerate() {
            for name in processor.queued() {
                let _ = write!(words, "DPC `{name}` queued on processor {index}; ");
            }
        }
        for (name, due) in self.core.timers.set_timers() {
            let _ = write!(words, "timer `{name}` set for {due} us; ");
        }
        (!words.is_empty()).then(|| words.trim_end_matches("; ").to_owned())
    }

    /// Takes the failures of routines on processors out of the machine. For tests that expect them; otherwise they panic
    /// in the next wait or at the shutdown.
    #[must_use]
    pub fn take_failures(&self) -> Vec<Failure> {
        self.core.failures.take()
    }

    /// What the machine has done so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let processors = self.core.processors.iter().map(|processor| {
            let (dpcs_run, longest_queue) = processor.statistics();
            ProcessorStatistics { dpcs_run, longest_queue }
        });
        Statistics {
            processors: processors.collect(),
            timers_fired: self.core.timers.fired(),
            steps: self.steps(),
            most_copied: self.core.most_copied.load(Relaxed),
        }
    }

    /// How many choices a seeded machine has made; zero with threads.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.core.seeded.as_ref().map_or(0, Seeded::steps)
    }

    /// The number of DPCs that `processor` has begun since its queue was last empty, the running one included.
    ///
    /// A processor with an empty queue is below `DISPATCH_LEVEL`. Zero if there is no such processor.
    #[must_use]
    pub fn calls_in_a_row(&self, processor: u32) -> u64 {
        self.core.processors.get(processor as usize).map_or(0, Processor::in_a_row)
    }

    /// Lets the `nth` creation of an object from now on fail (1 is the next one); 0 lets none fail.
    ///
    /// Creations are counted by those who create for others, such as [`HostOs`](crate::HostOs).
    pub fn fail_creation(&self, nth: u64) {
        let at = if nth == 0 { 0 } else { self.core.creations.load(Relaxed) + nth };
        self.core.failing_creation.store(at, Relaxed);
    }

    /// How many objects were created, or should have been.
    #[must_use]
    pub fn creations(&self) -> u64 {
        self.core.creations.load(Relaxed)
    }

    /// Counts a creation.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if it is the one to fail.
    pub fn count_creation(&self) -> Result<(), AllocError> {
        let number = self.core.creations.fetch_add(1, Relaxed) + 1;
        if number == self.core.failing_creation.load(Relaxed) { Err(AllocError) } else { Ok(()) }
    }

    /// Tells machines apart.
    pub(super) fn number(&self) -> u64 {
        self.core.number
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.core.settings
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.core.stopped.load(Acquire)
    }

    /// A number for a new object, in the order of creation.
    pub(crate) fn next_number(&self) -> u64 {
        self.core.next_number.fetch_add(1, Relaxed)
    }

    /// Makes room in every queue for one more DPC.
    pub(super) fn expect_dpc(&self) -> Result<(), AllocError> {
        let count = self.core.dpcs.fetch_add(1, AcqRel) + 1;
        let reserved = self.core.processors.iter().try_for_each(|processor| processor.reserve(count));
        if reserved.is_err() {
            self.forget_dpc();
        }
        reserved
    }

    /// Takes back [`MachineRef::expect_dpc`]. The room stays.
    pub(super) fn forget_dpc(&self) {
        self.core.dpcs.fetch_sub(1, AcqRel);
    }

    /// Queues a call on `processor`. If that is what the current thread runs on, the call runs on the thread, as soon as it is
    /// below `DISPATCH_LEVEL`. If it is that already, at once, but only if no lock can be held: `raises` says that locks raise.
    pub(super) fn insert(&self, index: u32, entry: Entry, importance: Importance, raises: bool) {
        let processor = &self.core.processors[index as usize];
        let (runs_here, low) = thread::with(|state| (state.interrupted.is(processor), state.is_interruptible()));
        let from = if runs_here && (raises || !low) {
            From::Interrupted
        } else if runs_here || self.current_processor() == index {
            From::SameProcessor
        } else {
            From::Elsewhere
        };
        if processor.insert(index, entry, importance, from) {
            self.core.timers.request_tick(self.now());
        } else if from == From::Interrupted && low {
            irql::lower(irql::raise(Irql::DISPATCH_LEVEL));
        }
    }

    /// Takes a call out of the queue of `processor`.
    pub(super) fn take_out(&self, processor: u32, dpc: &DpcInner) -> Option<Entry> {
        self.core.processors[processor as usize].take_out(dpc)
    }

    /// Panics if a routine has panicked: for those who would wait for it.
    #[track_caller]
    pub(super) fn check_failures(&self) {
        if self.core.failures.any()
            && let Some(summary) = self.core.failures.summary()
        {
            broken(Rule::RoutinePanicked, format_args!("{summary}"));
        }
    }

    /// What is queued, set and running, for a message.
    pub(super) fn describe(&self) -> String {
        let mut words = format!("machine at {} us", self.now());
        for (index, processor) in self.core.processors.iter().enumerate() {
            let _ =
                write!(words, "; processor {index} runs {:?}, queued {:?}", processor.running(), processor.queued());
            if let own @ 1.. = processor.own_now() {
                let _ = write!(words, ", and {own} that its thread has queued to itself");
            }
        }
        let _ = write!(words, "; timers set {:?}", self.core.timers.set_timers());
        words + &self.seed_in_words()
    }

    fn seed_in_words(&self) -> String {
        match self.settings().scheduler {
            Scheduler::Threads => String::new(),
            Scheduler::Seeded(seed) => format!("; the seed is {seed}"),
        }
    }

    /// How long the outside of a seeded machine ([`MachineRef::join`]) was waited for, in real time, up to now. Zero for one with threads.
    #[must_use]
    pub fn waited_outside(&self) -> Duration {
        self.core.seeded.as_ref().map_or(Duration::ZERO, Seeded::waited_outside)
    }

    /// A watch over a wait that begins now.
    pub(super) fn watch(&self) -> Watch<'_> {
        Watch { machine: self, since: Instant::now(), waited: self.waited_outside() }
    }
}

/// Ends waits that would not end.
pub struct Watch<'machine> {
    machine: &'machine MachineRef,
    since: Instant,
    /// How long others had been waited for when it began.
    waited: Duration,
}

impl Watch<'_> {
    /// Panics if a routine has panicked or the wait has lasted too long.
    #[track_caller]
    pub fn check(&self, what: &str) {
        self.machine.check_failures();
        let limit = self.machine.settings().hang_limit;
        // The time of other machines is not this one's.
        let others = self.machine.waited_outside().saturating_sub(self.waited);
        if self.since.elapsed().saturating_sub(others) > limit {
            broken(Rule::Hang, format_args!("{what} has lasted {limit:?}: {}", self.machine.describe()));
        }
    }
}
