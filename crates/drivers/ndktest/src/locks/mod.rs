//! What spin locks cost: the in-stack queued one that the provider uses, the framework's, and the kernel's plain one.
//!
//! One thread on each of some processors acquires and releases a lock, in turns of a fixed number of pairs. The kinds have their
//! turns one after the other, so that whatever else the machine does concerns all of them, and the median counts. A turn is timed
//! by who holds the lock: from the first pair, on whichever processor that is, to the last.

mod kinds;

use alloc::boxed::Box;
use core::{
    fmt,
    sync::atomic::{
        AtomicU32,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use conformance::{
    Check, Stop,
    platform::{Platform, Step, Task},
    text::Text,
};
use fallible::try_box;
use ndkpi::NtStatus;

use self::kinds::{Framework, Guarded, Kind, Plain, Queued};
use crate::{
    performance::Until,
    platform::{now, ticks},
};

/// Pairs of an acquisition and a release in a turn, of all threads together.
const PAIRS: u64 = 1024;
/// Turns of each kind, at most.
const TURNS: u32 = 31;
/// Kinds.
const KINDS: u32 = 3;
/// Threads, at most.
pub const THREADS: usize = 4;

/// What is behind each lock. The holder counts in several places: if two held the lock, they would differ in the end.
struct Counted {
    pairs: u64,
    again: [u64; 3],
    /// Who held the lock last, and how often that was somebody else than before.
    last: u32,
    changes: u64,
    /// When the turn began.
    began: u64,
    /// How long each turn took, in units of 100 nanoseconds.
    times: [u64; TURNS as usize],
}

impl Counted {
    const NONE: Self =
        Self { pairs: 0, again: [0; 3], last: u32::MAX, changes: 0, began: 0, times: [0; TURNS as usize] };

    /// One more pair of that turn, by that thread; `false` if the turn is over.
    fn pair(&mut self, turn: u32, thread: u32) -> bool {
        let first = u64::from(turn) * PAIRS;
        if self.pairs >= first + PAIRS {
            return false;
        }
        if self.pairs == first {
            self.began = ticks();
        }
        for count in &mut self.again {
            *count += 1;
        }
        self.changes += u64::from(self.last != thread);
        self.last = thread;
        self.pairs += 1;
        if self.pairs == first + PAIRS {
            self.times[turn as usize] = ticks() - self.began;
        }
        true
    }

    /// The median of the turns for each pair, in tenths of a nanosecond; `None` if there were no turns.
    fn median(&mut self) -> Option<u64> {
        let turns = usize::try_from(self.pairs / PAIRS).ok().filter(|turns| (1..=self.times.len()).contains(turns))?;
        let times = &mut self.times[..turns];
        times.sort_unstable();
        Some(times[turns / 2] * 1000 / PAIRS)
    }
}

/// The locks, and what the threads have to agree about.
struct Race<'run> {
    queued: Guarded<Queued, Counted>,
    framework: Guarded<Framework, Counted>,
    plain: Guarded<Plain, Counted>,
    until: &'run Until<'run>,
    threads: u32,
    /// How many of them exist.
    begun: AtomicU32,
    /// How often one has come to a turn.
    arrivals: AtomicU32,
    /// The turn that is none: all end when they have come to it. The first thread decides before it comes there. A flag would not
    /// do, for who comes late to the turn before must still take part in it, and come to this one.
    end: AtomicU32,
}

impl<'run> Race<'run> {
    /// In memory of its own: a lock must not be on a stack, because that of a thread that waits may be paged out. Not inlined,
    /// so that what is copied on the way there is off the stack again when the threads run.
    #[inline(never)]
    fn try_new(until: &'run Until<'run>, threads: u32) -> Result<Box<Self>, NtStatus> {
        let framework = Framework::try_new()?;
        try_box(Self {
            queued: Guarded::new(Queued::new(), Counted::NONE),
            framework: Guarded::new(framework, Counted::NONE),
            plain: Guarded::new(Plain::new(), Counted::NONE),
            until,
            threads,
            begun: AtomicU32::new(0),
            arrivals: AtomicU32::new(0),
            end: AtomicU32::new(u32::MAX),
        })
        .map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// Waits until all threads have come to that turn; `false` if the run is cancelled meanwhile. They spin, for who sleeps would
    /// miss the turn, and ask for the time, because a simulated kernel that runs one thread at a time lets others go on then.
    fn meet(&self, turn: u32) -> bool {
        let all = self.threads * (turn + 1);
        self.arrivals.fetch_add(1, AcqRel);
        while self.arrivals.load(Acquire) < all {
            if self.until.is_cancelled() {
                return false;
            }
            let _ = now();
        }
        true
    }
}

/// One of the threads.
struct Racer<'race> {
    race: &'race Race<'race>,
    thread: u32,
    begun: bool,
    /// The next turn, of whichever kind.
    turn: u32,
    /// The pairs of this thread, for each kind.
    pairs: [u64; KINDS as usize],
}

impl<'race> Racer<'race> {
    const fn new(race: &'race Race<'race>, thread: u32) -> Self {
        Self { race, thread, begun: false, turn: 0, pairs: [0; KINDS as usize] }
    }

    /// Returns true if the others exist. As long as one does not, it may be that it never will.
    fn others_exist(&mut self) -> bool {
        if !self.begun {
            self.race.begun.fetch_add(1, AcqRel);
            self.begun = true;
        }
        self.race.begun.load(Acquire) == self.race.threads
    }

    fn race<K: Kind>(&mut self, lock: &Guarded<K, Counted>, kind: usize, turn: u32) {
        let thread = self.thread;
        while lock.with(|counted| counted.pair(turn, thread)) {
            self.pairs[kind] += 1;
        }
    }
}

impl Task for Racer<'_> {
    fn step(&mut self) -> Step {
        let race = self.race;
        if !self.others_exist() {
            return if race.until.is_cancelled() { Step::Done } else { Step::Waits };
        }
        // Each kind has a turn at least.
        let enough = self.turn == KINDS * TURNS || (self.turn >= KINDS && race.until.is_over());
        if self.thread == 0 && enough {
            race.end.store(self.turn, Release);
        }
        if !race.meet(self.turn) || self.turn == race.end.load(Acquire) {
            return Step::Done;
        }
        let turn = self.turn / KINDS;
        match self.turn % KINDS {
            0 => self.race(&race.queued, 0, turn),
            1 => self.race(&race.framework, 1, turn),
            _ => self.race(&race.plain, 2, turn),
        }
        self.turn += 1;
        Step::Worked
    }
}

/// What was measured of a kind.
struct Shown {
    name: &'static str,
    /// Tenths of a nanosecond for a pair.
    tenths: u64,
    /// Tenths of a pair between two changes of the holder, if there are several.
    in_a_row: Option<u64>,
}

impl Shown {
    /// Looks whether each pair was counted everywhere.
    fn try_new<K: Kind>(lock: &mut Guarded<K, Counted>, by_threads: u64, threads: usize) -> Check<Self> {
        let (name, counted) = (K::NAME, lock.get_mut());
        if counted.again.iter().any(|&count| count != by_threads) || counted.pairs != by_threads {
            let (pairs, again) = (counted.pairs, counted.again);
            return Err(Stop::failed(format_args!(
                "the {name} lock does not exclude: {by_threads} pairs were carried out, counted {pairs} and {again:?}"
            )));
        }
        let in_a_row = (threads > 1).then_some(counted.pairs * 10 / counted.changes.max(1));
        let tenths = counted.median().ok_or_else(|| Stop::skipped(format_args!("cancelled")))?;
        Ok(Self { name, tenths, in_a_row })
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, tenths, in_a_row } = self;
        write!(f, "{name} {}.{} ns a pair", tenths / 10, tenths % 10)?;
        in_a_row.map_or(Ok(()), |row| write!(f, ", {}.{} in a row", row / 10, row % 10))
    }
}

/// How much of the first one's time the second one takes, in hundredths.
fn share(of: &Shown, this: &Shown) -> (u64, u64) {
    let hundredths = this.tenths * 100 / of.tenths.max(1);
    (hundredths / 100, hundredths % 100)
}

/// Measures with so many threads, at most [`THREADS`] and at most one for each processor.
///
/// # Errors
///
/// No memory, no threads, cancelled; a lock that two have held at a time.
pub fn measure(platform: &dyn Platform, until: &Until<'_>, threads: usize) -> Check<Text> {
    let processors = usize::try_from(platform.processors()).unwrap_or(usize::MAX);
    let count = threads.min(processors).clamp(1, THREADS);
    if count < threads.min(2) {
        return Err(Stop::skipped(format_args!("there is one processor")));
    }
    let cannot = |status: NtStatus| Stop::skipped(format_args!("cannot begin: {status}"));
    let mut race = Race::try_new(until, u32::try_from(count).unwrap_or(1)).map_err(cannot)?;
    let mut racers = [0, 1, 2, 3].map(|thread| Racer::new(&race, thread));
    let mut tasks = racers.each_mut().map(|racer| racer as &mut dyn Task);
    platform.run(&mut tasks[..count]).map_err(cannot)?;
    let by_threads = [0, 1, 2].map(|kind| racers.iter().map(|racer| racer.pairs[kind]).sum::<u64>());

    let queued = Shown::try_new(&mut race.queued, by_threads[0], count)?;
    let framework = Shown::try_new(&mut race.framework, by_threads[1], count)?;
    let plain = Shown::try_new(&mut race.plain, by_threads[2], count)?;
    let [(wdf, wdf_part), (kernel, kernel_part)] = [&framework, &plain].map(|other| share(&queued, other));
    Ok(Text::new(format_args!(
        "{} pairs, threads: {count}; {queued}; {framework}, {wdf}.{wdf_part:02} of queued; \
         {plain}, {kernel}.{kernel_part:02} of queued",
        by_threads.iter().sum::<u64>()
    )))
}
