//! The seeded scheduler: one step at a time, chosen by a random number.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Relaxed},
        },
    },
    thread,
    time::Duration,
};

use super::{
    core::MachineRef,
    dpc::run_entry,
    irql::{Irql, assert_irql_at_most, assert_no_locks_held, current_irql, no_locks_held},
    outside::{Horizon, NEVER, Outside},
    queue::Next,
    random::{Random, mix},
    rules::{Rule, broken},
    spin_lock::RawSpinLock,
    threads::{expire, report},
};

/// One step in this many lets time pass although calls are queued: processors can be slow.
const RARELY: usize = 16;

/// So many microseconds pass at most, between two calls, while one is queued: otherwise time passes only by what runs. As long as a
/// queue that nobody has begun waits for the clock's tick.
const LATENCY: u64 = 1_000;

/// Inside a critical section the chance of a pre-emption is this many times smaller.
const INSIDE_LOCKS: usize = 4;

/// The scheduler's state.
pub struct Seeded {
    choices: Mutex<Choices>,
    /// Microseconds.
    clock: AtomicU64,
    /// One bit for each processor that runs something, or on which a thread stands at `DISPATCH_LEVEL`.
    busy: AtomicU64,
    horizon: Horizon,
}

struct Choices {
    random: Random,
    steps: u64,
    trace: u64,
    /// Microseconds that have passed without a call although something was ready to run.
    late: u64,
}

/// The kind of a step in the trace that lets time pass.
const ADVANCED: u64 = 3;

/// What a step does.
enum Step {
    /// The processor runs its next call.
    Run(u32),
    /// One of the timers that are due expires.
    Expire(usize),
    /// Time passes.
    Advance(u64),
}

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self {
            choices: Mutex::new(Choices { random: Random::new(seed), steps: 0, trace: 0, late: 0 }),
            clock: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            horizon: Horizon::new(),
        }
    }

    pub fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    fn lock(&self) -> MutexGuard<'_, Choices> {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses a step. None lets time pass beyond `limit`.
    fn choose(&self, machine: &MachineRef, limit: u64) -> Option<Step> {
        let mut choices = self.lock();
        let busy = self.busy.load(Relaxed);
        let mut ready = [0_u32; 64];
        let mut count = 0;
        let mut wanted = 0;
        for (index, processor) in (0_u32..).zip(&machine.core.processors) {
            let (waiting, begun) = processor.waiting();
            if waiting && busy & (1 << index) == 0 {
                ready[count] = index;
                count += 1;
                wanted += usize::from(begun);
            }
        }
        let now = self.now();
        let due = machine.core.timers.due(now);
        let later = machine.core.timers.next_due().filter(|&next| next > now && next <= limit);
        if count + due == 0 {
            choices.late = 0;
            return later.map(Step::Advance);
        }
        // What is ready keeps time from going far: a timer may be first, but not by longer than processors are slow.
        let later = later.map(|next| next.min(now + LATENCY - choices.late)).filter(|&next| next > now);
        if let Some(next) = later {
            let chance = if wanted + due == 0 { 2 } else { RARELY };
            if choices.random.below(chance) == 0 {
                choices.late += next - now;
                return Some(Step::Advance(next));
            }
        }
        let pick = choices.random.below(count + due);
        drop(choices);
        Some(if pick < count { Step::Run(ready[pick]) } else { Step::Expire(pick - count) })
    }

    /// Returns true if there is a step that lets no time pass.
    fn is_ready(&self, machine: &MachineRef) -> bool {
        let busy = self.busy.load(Relaxed);
        let mut processors = (0_u32..).zip(&machine.core.processors);
        processors.any(|(index, processor)| processor.waiting().0 && busy & (1 << index) == 0)
            || machine.core.timers.due(self.now()) > 0
    }

    /// Notes a step in the trace.
    fn note(&self, kind: u64, processor: u32, number: u64) {
        let mut choices = self.lock();
        choices.steps += 1;
        if kind != ADVANCED {
            choices.late = 0;
        }
        let step = mix(number) ^ (kind << 32) ^ u64::from(processor) ^ self.now().rotate_left(40);
        choices.trace = mix(choices.trace ^ step);
    }

    /// How long others were waited for, in real time, up to now.
    pub fn waited_outside(&self) -> Duration {
        self.horizon.waited_for()
    }

    /// Lets time pass until then, but for what comes from outside before that.
    fn advance(&self, machine: &MachineRef, to: u64) {
        let mut to = to;
        while to > self.horizon.limit() {
            self.horizon.ask(to);
            // Until now nothing else was due before.
            to = machine.core.timers.next_due().map_or(to, |next| next.min(to));
        }
        self.clock.fetch_max(to, Relaxed);
    }

    /// Takes one step. Returns false if there is none.
    fn step(&self, machine: &MachineRef, limit: u64) -> bool {
        // What comes at this time is there before anything else happens at it.
        while self.now() >= self.horizon.limit() && self.is_ready(machine) {
            self.horizon.ask(self.now());
        }
        let Some(step) = self.choose(machine, limit) else { return false };
        match step {
            Step::Run(index) => {
                let processor = &machine.core.processors[index as usize];
                let _busy = Busy::new(self, index);
                if let Next::Run(entry) = processor.next(true) {
                    self.note(1, index, entry.dpc.number);
                    self.clock.fetch_add(1, Relaxed);
                    let name = entry.dpc.name;
                    let outcome = catch_unwind(AssertUnwindSafe(|| run_entry(machine, entry, index)));
                    processor.end_run();
                    report_and_resume(machine, index, name, outcome);
                }
            }
            Step::Expire(skip) => {
                if let Some(expired) = machine.core.timers.expire(self.now(), skip) {
                    let (index, name) = (expired.processor, expired.timer.name);
                    self.note(2, index, expired.timer.number);
                    let outcome = catch_unwind(AssertUnwindSafe(|| expire(machine, &expired)));
                    report_and_resume(machine, index, name, outcome);
                }
            }
            Step::Advance(to) => {
                self.advance(machine, to);
                self.note(ADVANCED, 0, 0);
            }
        }
        true
    }
}

/// With a seed, a panic ends the test where it happens. It is recorded too, in case it is caught.
fn report_and_resume(machine: &MachineRef, processor: u32, routine: &'static str, outcome: thread::Result<()>) {
    if let Err(panic) = outcome {
        report(machine, processor, routine, Err(Box::new(super::failure::message_of(&*panic))));
        resume_unwind(panic);
    }
}

/// A processor that is taken as long as this lives.
struct Busy<'seeded> {
    seeded: &'seeded Seeded,
    bit: u64,
}

impl<'seeded> Busy<'seeded> {
    fn new(seeded: &'seeded Seeded, processor: u32) -> Self {
        let bit = 1 << processor;
        let before = seeded.busy.fetch_or(bit, AcqRel);
        Self { seeded, bit: bit & !before }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.seeded.busy.fetch_and(!self.bit, AcqRel);
    }
}

impl MachineRef {
    /// Takes one step of a seeded machine, whatever it is: a call runs, a timer expires, time passes to the next timer.
    /// `false` if there is nothing left to do.
    ///
    /// # Panics
    ///
    /// If the machine has threads; [`Rule::IrqlTooHigh`] above `PASSIVE_LEVEL`; whatever a routine panics with.
    #[track_caller]
    #[expect(clippy::must_use_candidate, reason = "a caller who polls something else does not ask")]
    pub fn step(&self) -> bool {
        assert_irql_at_most(Irql::PASSIVE_LEVEL);
        assert_no_locks_held();
        self.seeded().step(self, u64::MAX)
    }

    /// Runs a seeded machine until no call is queued and no timer is due. It does not wait for timers that are due later.
    ///
    /// # Panics
    ///
    /// Like [`MachineRef::step`]; [`Rule::Livelock`] if it does not come to an end.
    #[track_caller]
    pub fn run_until_idle(&self) {
        assert_irql_at_most(Irql::PASSIVE_LEVEL);
        assert_no_locks_held();
        self.run_while(0, || true);
    }

    /// [`MachineRef::run_until_idle`], but stops as soon as `condition` holds: whoever waits for something goes on while other
    /// work is still to be done.
    ///
    /// # Panics
    ///
    /// Like [`MachineRef::run_until_idle`].
    #[track_caller]
    pub fn run_until(&self, condition: impl Fn() -> bool) {
        assert_irql_at_most(Irql::PASSIVE_LEVEL);
        assert_no_locks_held();
        self.run_while(0, || !condition());
    }

    /// Runs a seeded machine for a time, timers included.
    ///
    /// # Panics
    ///
    /// Like [`MachineRef::run_until_idle`].
    #[track_caller]
    pub fn run_for(&self, microseconds: u64) {
        assert_irql_at_most(Irql::PASSIVE_LEVEL);
        assert_no_locks_held();
        self.let_pass(microseconds);
    }

    /// [`MachineRef::run_for`], but stops as soon as `goes_on` does not hold any more: whoever waits for something goes on before more
    /// time passes.
    ///
    /// # Panics
    ///
    /// Like [`MachineRef::run_until_idle`].
    #[track_caller]
    pub fn run_for_while(&self, microseconds: u64, goes_on: impl Fn() -> bool) {
        assert_irql_at_most(Irql::PASSIVE_LEVEL);
        assert_no_locks_held();
        self.let_pass_while(microseconds, goes_on);
    }

    #[track_caller]
    pub(super) fn let_pass(&self, microseconds: u64) {
        self.let_pass_while(microseconds, || true);
    }

    #[track_caller]
    fn let_pass_while(&self, microseconds: u64, goes_on: impl Fn() -> bool) {
        let end = self.now().saturating_add(microseconds);
        while self.now() < end {
            self.run_while(end, || self.now() < end && goes_on());
            if !goes_on() {
                return;
            }
            self.seeded().advance(self, end);
        }
        self.run_while(end, goes_on);
    }

    /// Runs a seeded machine as long as `condition` holds and there is something to do without waiting beyond `limit`.
    #[track_caller]
    pub(super) fn run_while(&self, limit: u64, condition: impl Fn() -> bool) {
        let seeded = self.seeded();
        let mut steps = 0;
        while condition() && seeded.step(self, limit.max(self.now())) {
            steps += 1;
            if steps > self.settings().step_limit {
                broken(Rule::Livelock, format_args!("{steps} steps did not come to an end: {}", self.describe()));
            }
        }
    }

    /// From now on a seeded machine is one of several: `outside` is asked before time goes on. Before anything is queued or set.
    ///
    /// # Panics
    ///
    /// If the machine has threads.
    #[track_caller]
    pub fn join(&self, outside: Arc<dyn Outside>) {
        self.seeded().horizon.set(Some(outside));
    }

    /// The machine is alone, from now on.
    pub fn part(&self) {
        if let Some(seeded) = &self.core.seeded {
            seeded.horizon.set(None);
        }
    }

    /// For a machine that has nothing left to do: waits until something comes from outside. `false` if nothing will come.
    ///
    /// # Panics
    ///
    /// If the machine has threads.
    #[must_use]
    #[track_caller]
    pub fn wait_for_outside(&self) -> bool {
        let seeded = self.seeded();
        if seeded.horizon.limit() != NEVER {
            seeded.horizon.ask(NEVER);
        }
        self.core.timers.next_due().is_some()
    }

    /// Returns true if another thread runs something on a seeded machine at this moment.
    pub(super) fn is_busy(&self) -> bool {
        self.seeded().busy.load(Relaxed) != 0
    }

    /// A number that depends on every choice so far: equal for two runs with the same seed.
    ///
    /// # Panics
    ///
    /// If the machine has threads.
    #[must_use]
    #[track_caller]
    pub fn trace_hash(&self) -> u64 {
        self.seeded().lock().trace
    }

    /// Lets others run: `YieldProcessor` in a loop that polls. Takes one step of a seeded machine.
    ///
    /// # Panics
    ///
    /// Like [`MachineRef::step`]; [`Rule::RoutinePanicked`], for what is polled for may never come then.
    #[track_caller]
    pub fn yield_now(&self) {
        self.check_failures();
        if self.core.seeded.is_some() {
            self.step();
        } else {
            thread::yield_now();
        }
    }

    /// Waits for a time: `KeDelayExecutionThread`.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlTooHigh`] above `APC_LEVEL`.
    #[track_caller]
    pub fn sleep(&self, microseconds: u64) {
        assert_irql_at_most(Irql::APC_LEVEL);
        assert_no_locks_held();
        if self.core.seeded.is_some() {
            self.let_pass(microseconds);
        } else {
            thread::sleep(self.in_real_time(microseconds));
        }
    }

    /// A point at which other processors of a seeded machine may get in between, if the machine was built for it. Nothing
    /// happens here while the thread holds a spin lock: that is what `preempt_at_lock` is for.
    #[inline]
    pub fn preempt(&self) {
        if no_locks_held() {
            self.preempt_at_lock();
        }
    }

    /// [`MachineRef::preempt`] also for a thread that holds spin locks. What gets in between waits if it meets one of them, and
    /// goes on in [`MachineRef::released`].
    #[inline]
    pub(crate) fn preempt_at_lock(&self) {
        if let Some(seeded) = &self.core.seeded
            && self.settings().preemption > 0
            && current_irql() <= Irql::DISPATCH_LEVEL
        {
            self.preempt_slowly(seeded);
        }
    }

    /// Returns true if [`MachineRef::preempt`] can do anything.
    pub(crate) fn preempts(&self) -> bool {
        self.core.seeded.is_some() && self.settings().preemption > 0
    }

    #[cold]
    fn preempt_slowly(&self, seeded: &Seeded) {
        let _busy = self.hold_processor(seeded);
        let is_free = no_locks_held();
        // Inside a critical section less often: there are many of them, and the threads for it cost time.
        let chance = usize::from(self.settings().preemption) / if is_free { 1 } else { INSIDE_LOCKS };
        while seeded.lock().random.below(100) < chance {
            let limit = seeded.now();
            let stepped = if is_free {
                seeded.step(self, limit)
            } else {
                // Most often there is none, and no need to change threads for that.
                seeded.is_ready(self) && self.core.step_threads.step(self, limit)
            };
            if !stepped {
                break;
            }
        }
    }

    /// The current thread has released `lock`: steps that waited for it go on.
    pub(crate) fn released(&self, lock: &RawSpinLock) {
        let threads = &self.core.step_threads;
        if let Some(seeded) = &self.core.seeded
            && threads.is_awaited(lock.address())
        {
            let _busy = self.hold_processor(seeded);
            // Who goes on may wait for another lock before it releases this one. Then it lets the next one go on itself.
            while lock.is_free() && threads.is_awaited(lock.address()) {
                threads.go_on(lock.address());
            }
        }
    }

    /// Keeps the processor that this thread has taken from running anything.
    fn hold_processor<'seeded>(&self, seeded: &'seeded Seeded) -> Option<Busy<'seeded>> {
        (current_irql() == Irql::DISPATCH_LEVEL).then(|| Busy::new(seeded, self.current_processor()))
    }

    /// Takes a step on the current thread.
    pub(super) fn take_step(&self, limit: u64) -> bool {
        self.seeded().step(self, limit)
    }

    #[track_caller]
    fn seeded(&self) -> &Seeded {
        self.core.seeded.as_ref().expect("only a seeded machine is run step by step")
    }
}
