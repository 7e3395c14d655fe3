//! One processor: its queue of DPCs, and how it sleeps while there are none.

use std::{
    collections::VecDeque,
    hint,
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    thread::Thread,
    time::{Duration, Instant},
};

use fallible::{AllocError, Arc};

use super::{
    dpc::{Arguments, DpcInner, Importance},
    rules::{Rule, broken},
};

/// A queue longer than this is begun at once, whatever the importance of its calls (the kernel's `MaximumDpcQueueDepth`).
const LONG_QUEUE: usize = 4;

/// A flush looks this often at calls that a thread has queued to itself.
const OWN_AGAIN: Duration = Duration::from_micros(50);

/// How far the shutdown of the machine has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has not begun.
    Runs,
    /// Threads end. Calls that still run may queue more, which is reported as left behind.
    Stops,
    /// All threads have ended, and nobody may queue anything.
    Closed,
}

/// A queued call.
pub struct Entry {
    pub dpc: Arc<DpcInner>,
    pub arguments: Arguments,
    /// The number of flushes that had begun when it was queued.
    epoch: u64,
    /// It was queued at the beginning.
    ahead: bool,
}

impl Entry {
    pub const fn new(dpc: Arc<DpcInner>, arguments: Arguments) -> Self {
        Self { dpc, arguments, epoch: 0, ahead: false }
    }
}

/// What a flush waits for on a processor.
#[derive(Clone, Copy, Default)]
pub struct Flush {
    /// Its number: calls in the queue with this one and below.
    epoch: u64,
    /// This many calls that threads on the processor have queued to themselves.
    own: u64,
}

/// What is queued on a processor and what it does.
///
/// # Invariants
///
/// `entries` has room for every DPC of the machine, so that queueing does not allocate. A DPC is in one queue at most.
pub struct Queue {
    entries: VecDeque<Entry>,
    /// The processor shall begin with its queue (or has begun).
    begun: bool,
    /// The processor's thread is about to park and must be woken.
    sleeping: bool,
    life: Life,
    /// The number of flushes that have begun.
    epoch: u64,
    /// The name of the call that runs, or of the last one.
    running: &'static str,
    longest: usize,
    ran: u64,
    /// Calls that came from threads which had queued them to themselves: they are counted as run there.
    left: u64,
    /// Calls begun since the queue was last empty: for that long the processor has not been below `DISPATCH_LEVEL`.
    in_a_row: u64,
}

/// Counts the calls that threads on a processor queue to themselves ([`PlainDpc`](super::PlainDpc)), in the order in which they run.
/// Whoever counts has [taken](Processor::take) the processor.
struct Own {
    queued: AtomicU64,
    ran: AtomicU64,
    longest: AtomicUsize,
}

/// A processor, on cache lines of its own.
#[repr(align(128))]
pub struct Processor {
    queue: Mutex<Queue>,
    /// Nothing is queued, and the processor runs: calls that a thread queues to itself are next.
    quiet: AtomicBool,
    own: Own,
    flushed: Condvar,
    /// One more than the epoch of the call that runs; zero if none does. Set with the queue locked.
    running: AtomicU64,
    /// The number of threads that wait for a flush.
    flushing: AtomicUsize,
    /// The queue was begun; for the processor's spin before it parks, and for threads that lower their IRQL.
    pending: AtomicBool,
    /// A thread on the processor is at `DISPATCH_LEVEL`: its own while it runs calls, or one that was put there.
    taken: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Who queues a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A thread on another processor.
    Elsewhere,
    /// A thread on this processor.
    SameProcessor,
    /// A thread on this processor that the call interrupts, so that nobody has to be woken.
    Interrupted,
}

/// What a processor's thread does next.
pub enum Next {
    /// Run this call.
    Run(Entry),
    /// Sleep until woken.
    Sleep,
    /// End.
    Stop,
}

impl Processor {
    pub const fn new() -> Self {
        let queue = Queue {
            entries: VecDeque::new(),
            begun: false,
            sleeping: false,
            life: Life::Runs,
            epoch: 0,
            running: "",
            longest: 0,
            ran: 0,
            left: 0,
            in_a_row: 0,
        };
        Self {
            queue: Mutex::new(queue),
            quiet: AtomicBool::new(true),
            own: Own { queued: AtomicU64::new(0), ran: AtomicU64::new(0), longest: AtomicUsize::new(0) },
            flushed: Condvar::new(),
            running: AtomicU64::new(0),
            flushing: AtomicUsize::new(0),
            pending: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for `count` calls in all.
    pub fn reserve(&self, count: usize) -> Result<(), AllocError> {
        let mut queue = self.lock();
        let more = count.saturating_sub(queue.entries.len());
        Ok(queue.entries.try_reserve(more)?)
    }

    /// Queues a call. Returns true if the processor does not begin with it by itself: then the clock's tick does.
    pub fn insert(&self, index: u32, mut entry: Entry, importance: Importance, from: From) -> bool {
        let mut queue = self.lock();
        if queue.life == Life::Closed {
            entry.dpc.clear_place();
            drop(queue);
            broken(Rule::MachineStopped, format_args!("DPC `{}` queued after the shutdown", entry.dpc.name));
        }
        entry.epoch = queue.epoch;
        entry.dpc.set_place(index);
        debug_assert!(queue.entries.len() < queue.entries.capacity(), "no room (invariant)");
        entry.ahead = importance == Importance::High;
        if entry.ahead {
            queue.entries.push_front(entry);
        } else {
            queue.entries.push_back(entry);
        }
        self.note_quiet(&queue);
        queue.longest = queue.longest.max(queue.entries.len());
        let begin = match importance {
            Importance::High | Importance::MediumHigh => true,
            Importance::Medium => from != From::Elsewhere,
            Importance::Low => false,
        };
        if begin || queue.entries.len() + self.own_now() > LONG_QUEUE {
            if from == From::Interrupted {
                queue.begun = true;
                self.pending.store(true, Release);
            } else {
                self.begin_locked(queue);
            }
            return false;
        }
        !queue.begun
    }

    /// Queues calls that a thread had queued to itself, and that are older than what others have queued.
    pub fn insert_own(&self, index: u32, entries: impl Iterator<Item = Entry>) {
        let mut queue = self.lock();
        let ahead = queue.entries.iter().take_while(|entry| entry.ahead).count();
        let mut count = 0;
        // An entry of epoch 0 is waited for by every flush: one that has begun counts it among the thread's own.
        for entry in entries {
            entry.dpc.set_place(index);
            queue.entries.insert(ahead + count, entry);
            count += 1;
        }
        let count = count as u64;
        self.note_quiet(&queue);
        queue.left += count;
        self.own.ran.store(self.own.ran.load(Relaxed) + count, Release);
    }

    /// Looks again if anything is queued. Called whenever that has changed.
    fn note_quiet(&self, queue: &Queue) {
        self.quiet.store(queue.entries.is_empty() && queue.life == Life::Runs, Relaxed);
    }

    /// Returns true if what a thread on the processor queues to itself is next, after what it has queued to itself before.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.quiet.load(Relaxed)
    }

    /// Counts a call that a thread has queued to itself.
    #[inline]
    pub fn count_own(&self, length: usize) {
        self.own.queued.store(self.own.queued.load(Relaxed) + 1, Release);
        if length > self.own.longest.load(Relaxed) {
            self.own.longest.store(length, Relaxed);
        }
    }

    /// Says that the oldest call that a thread has queued to itself has run.
    #[inline]
    pub fn end_own(&self) {
        self.own.ran.store(self.own.ran.load(Relaxed) + 1, Release);
    }

    /// The number of calls that a thread has queued to itself and that have not run.
    pub fn own_now(&self) -> usize {
        let ran = self.own.ran.load(Relaxed);
        usize::try_from(self.own.queued.load(Relaxed).saturating_sub(ran)).unwrap_or(usize::MAX)
    }

    /// Begins with the queue if there is something in it.
    pub fn begin(&self) {
        let queue = self.lock();
        if !queue.entries.is_empty() {
            self.begin_locked(queue);
        }
    }

    fn begin_locked(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.begun = true;
        self.pending.store(true, Release);
        let wake = std::mem::take(&mut queue.sleeping);
        drop(queue);
        if wake {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Takes a certain call out of the queue.
    pub fn take_out(&self, dpc: &DpcInner) -> Option<Entry> {
        let mut queue = self.lock();
        let index = queue.entries.iter().position(|entry| std::ptr::eq(Arc::as_ptr(&entry.dpc), dpc))?;
        let entry = queue.entries.remove(index)?;
        self.note_quiet(&queue);
        entry.dpc.clear_place();
        if self.flushing.load(SeqCst) > 0 {
            self.flushed.notify_all();
        }
        drop(queue);
        Some(entry)
    }

    /// Ends the call that ran before and takes the next one from the queue. With `unbegun`, even if the queue was not begun.
    pub fn next(&self, unbegun: bool) -> Next {
        let mut queue = self.lock();
        self.end(&mut queue);
        queue.sleeping = false;
        if queue.life != Life::Runs {
            return Next::Stop;
        }
        if !queue.begun && !unbegun {
            queue.sleeping = true;
            return Next::Sleep;
        }
        let Some(entry) = queue.entries.pop_front() else {
            queue.begun = false;
            queue.sleeping = true;
            self.pending.store(false, Relaxed);
            return Next::Sleep;
        };
        queue.begun = true;
        self.take_entry(&mut queue, &entry);
        queue.in_a_row += 1;
        drop(queue);
        Next::Run(entry)
    }

    /// Notes that `entry` was taken out of the queue and runs.
    fn take_entry(&self, queue: &mut Queue, entry: &Entry) {
        self.note_quiet(queue);
        entry.dpc.clear_place();
        // Flushes look with the queue locked.
        self.running.store(entry.epoch + 1, Relaxed);
        queue.running = entry.dpc.name;
        queue.ran += 1;
    }

    /// [`Processor::next`] for a thread that the processor's calls interrupt, and that has taken the processor. After the last
    /// one nothing is [pending](Processor::pending), and after each of them follows [`Processor::end_here`]. With `has_own`,
    /// only a call that goes ahead of those that the thread has queued to itself.
    pub fn next_here(&self, has_own: bool) -> Option<Entry> {
        let mut queue = self.lock();
        if queue.life != Life::Runs || has_own && queue.entries.front().is_some_and(|entry| !entry.ahead) {
            return None;
        }
        let entry = queue.entries.pop_front();
        if let Some(entry) = &entry {
            self.take_entry(&mut queue, entry);
        }
        if queue.entries.is_empty() {
            queue.begun = false;
            self.pending.store(false, Relaxed);
        }
        drop(queue);
        entry
    }

    /// Says that the call taken by [`Processor::next_here`] has run.
    pub fn end_here(&self) {
        // In one order with a flush that counts itself and then looks whether a call runs: one of the two sees the other.
        self.running.store(0, SeqCst);
        if self.flushing.load(SeqCst) > 0 {
            let _queue = self.lock();
            self.flushed.notify_all();
        }
    }

    /// Takes the processor: from now on nothing else runs on it at `DISPATCH_LEVEL`. Waits until nothing does.
    #[inline]
    pub fn take(&self) {
        if self.taken.swap(true, Acquire) {
            self.take_slowly();
        }
    }

    #[cold]
    fn take_slowly(&self) {
        let mut rounds = 0_u32;
        while self.taken.load(Relaxed) || self.taken.swap(true, Acquire) {
            rounds = rounds.saturating_add(1);
            if rounds < 128 {
                hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Gives the processor back.
    #[inline]
    pub fn give(&self) {
        self.taken.store(false, Release);
    }

    /// Says that the call taken by [`Processor::next`] has run. So does the next `next`.
    pub fn end_run(&self) {
        self.end(&mut self.lock());
    }

    fn end(&self, queue: &mut Queue) {
        self.running.store(0, SeqCst);
        if queue.entries.is_empty() {
            queue.in_a_row = 0;
        }
        if self.flushing.load(SeqCst) > 0 {
            self.flushed.notify_all();
        }
    }

    /// Says if a call is queued, and if the processor is to begin with it.
    pub fn waiting(&self) -> (bool, bool) {
        let queue = self.lock();
        (!queue.entries.is_empty(), queue.begun)
    }

    /// Begins a flush: everything queued so far is to run.
    pub fn begin_flush(&self) -> Flush {
        let own = self.own.queued.load(Acquire);
        let mut queue = self.lock();
        let epoch = queue.epoch;
        queue.epoch += 1;
        if !queue.entries.is_empty() {
            self.begin_locked(queue);
        }
        Flush { epoch, own }
    }

    /// Waits until a thread has run `count` of the calls that it has queued to itself, but not longer than `wait`.
    fn own_have_run(&self, count: u64, wait: Duration) -> bool {
        let have_run = || self.own.ran.load(Acquire) >= count;
        if have_run() || wait.is_zero() {
            return have_run();
        }
        // The thread wakes nobody: it would have to ask after each call if somebody waits.
        let end = Instant::now() + wait;
        while !have_run() && Instant::now() < end {
            std::thread::sleep(OWN_AGAIN);
        }
        have_run()
    }

    /// Returns true if everything has run that was queued when `flush` began. Waits for that, but not longer than `wait`, or
    /// twice that.
    pub fn is_flushed(&self, Flush { epoch, own }: Flush, wait: Duration) -> bool {
        // First: what a thread leaves to others is in the queue before it is counted as run.
        if !self.own_have_run(own, wait) {
            return false;
        }
        let mut queue = self.lock();
        let mut timed_out = wait.is_zero();
        // Before the look whether a call runs: see `end_here`.
        let _counted = Counted::new(&self.flushing);
        loop {
            let old = |of: u64| of <= epoch;
            let running = self.running.load(SeqCst).checked_sub(1).is_some_and(old);
            if !running && !queue.entries.iter().any(|entry| old(entry.epoch)) {
                return true;
            }
            if timed_out {
                return false;
            }
            let result = self.flushed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner);
            (queue, timed_out) = (result.0, result.1.timed_out());
        }
    }

    /// Remembers the thread that is this processor.
    pub fn set_thread(&self, thread: Thread) {
        // A processor is given one thread, when the machine starts.
        let _ = self.thread.set(thread);
    }

    /// Returns true if the queue has been begun since the processor last found it empty.
    pub fn pending(&self) -> bool {
        self.pending.load(Acquire)
    }

    /// Parks the processor's thread, unless something came meanwhile.
    pub fn sleep(&self) {
        loop {
            let queue = self.lock();
            if !queue.sleeping || queue.begun || queue.life != Life::Runs {
                return;
            }
            drop(queue);
            std::thread::park();
        }
    }

    /// Stops the processor, or refuses what is queued from now on.
    pub fn set_life(&self, life: Life) {
        let mut queue = self.lock();
        queue.life = life;
        self.note_quiet(&queue);
        drop(queue);
        self.unpark();
    }

    /// The names of what is queued, in order.
    pub fn queued(&self) -> Vec<&'static str> {
        self.lock().entries.iter().map(|entry| entry.dpc.name).collect()
    }

    /// The name of what runs.
    pub fn running(&self) -> Option<&'static str> {
        let queue = self.lock();
        (self.running.load(SeqCst) != 0).then_some(queue.running)
    }

    /// The number of calls begun since the queue was last empty, the running one included.
    pub fn in_a_row(&self) -> u64 {
        self.lock().in_a_row
    }

    /// The number of calls begun and the length of the longest queue so far.
    pub fn statistics(&self) -> (u64, usize) {
        let queue = self.lock();
        let own = (self.own.ran.load(Acquire), self.own.longest.load(Relaxed));
        (queue.ran + own.0 - queue.left, queue.longest.max(own.1))
    }
}

/// Counts a thread as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
