//! How a figure is taken: in turn with what it is compared with, many times.

use std::{
    cell::Cell,
    hint,
    sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire},
    thread,
    time::{Duration, Instant},
};

use core_affinity::CoreId;
use cpu_time::{ProcessTime, ThreadTime};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How often every subject of a row has its turn.
    pub rounds: usize,
    /// How often a subject is run in one turn. The best run counts: what makes another one slower is not the subject.
    pub repeats: usize,
    /// Divides the operations of one run.
    pub divisor: usize,
}

impl Effort {
    /// For figures that are kept.
    pub const FULL: Self = Self { rounds: 21, repeats: 5, divisor: 1 };
    /// To see that everything runs.
    pub const QUICK: Self = Self { rounds: 3, repeats: 1, divisor: 16 };

    /// How many operations a run of `full` has.
    #[must_use]
    pub fn scale(&self, full: usize) -> usize {
        (full / self.divisor).max(1)
    }
}

/// Rounds that a row has at least, however long they take.
pub const LEAST_ROUNDS: usize = 11;
/// After so long there are no more rounds than that.
const LONG: Duration = Duration::from_secs(15);
/// A round that takes so long is not repeated within itself.
const LONG_ROUND: Duration = Duration::from_secs(2);

/// Times of one subject: one for each round, in nanoseconds for each operation, or any other unit in which less is better.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Samples from elsewhere.
    #[must_use]
    pub const fn new(values: Vec<f64>) -> Self {
        Self(values)
    }

    /// What `of` makes of the samples of both in each round.
    ///
    /// # Panics
    ///
    /// If there are not as many of both.
    #[must_use]
    pub fn each_with(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        assert_eq!(self.0.len(), other.0.len(), "samples of other rounds");
        Self(self.0.iter().zip(&other.0).map(|(this, that)| of(*this, *that)).collect())
    }

    /// The sample below which a share of `part` (0 to 1) of the samples lies.
    ///
    /// # Panics
    ///
    /// If there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "an index into a short list"
        )]
        let index = (part * last as f64).round() as usize;
        sorted[index.min(last)]
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// The median.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Half of the distance between the quartiles, as a share of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let median = self.median();
        if median == 0.0 { 0.0 } else { (self.quantile(0.75) - self.quantile(0.25)) / 2.0 / median }
    }
}

/// One thing to measure: runs once, and gives a figure of which less is better.
pub type Subject<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// The turn of a subject, and what was seen before and after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn<L> {
    /// What was seen before.
    pub before: L,
    /// The best run.
    pub figure: f64,
    /// What was seen after.
    pub after: L,
}

/// Gives every subject its turn, which is as many runs as `repeats`. The turns, in the order of the subjects.
///
/// Every other round begins at the other end, so that nobody always comes after the same one.
pub fn round<L>(
    number: usize,
    repeats: usize,
    subjects: &mut [Subject<'_>],
    mut look: impl FnMut() -> L,
) -> Vec<Turn<L>> {
    let mut take = |subject: &mut Subject<'_>| {
        let before = look();
        let figure = (0..repeats).map(|_| subject()).fold(f64::INFINITY, f64::min);
        Turn { before, figure, after: look() }
    };
    if number.is_multiple_of(2) {
        return subjects.iter_mut().map(take).collect();
    }
    let mut turns: Vec<_> = subjects.iter_mut().rev().map(&mut take).collect();
    turns.reverse();
    turns
}

/// Gives every subject its turn in every round. The samples of each, in the order of the subjects.
///
/// The first round is not counted: caches, branch predictors and lazily made pages are not the subject. On a busy machine
/// there are fewer rounds than `effort` asks for, so that all rows are measured in minutes.
pub fn interleave(effort: Effort, subjects: &mut [Subject<'_>]) -> Vec<Samples> {
    let mut samples = vec![Samples::default(); subjects.len()];
    let (started, mut repeats) = (Instant::now(), effort.repeats);
    for number in 0..=effort.rounds {
        if number > LEAST_ROUNDS && started.elapsed() > LONG {
            break;
        }
        let began = Instant::now();
        let turns = round(number, repeats, subjects, || ());
        if number > 0 {
            for (samples, turn) in samples.iter_mut().zip(turns) {
                samples.0.push(turn.figure);
            }
        }
        if began.elapsed() > LONG_ROUND {
            repeats = 1;
        }
    }
    samples
}

/// Nanoseconds for each of `operations`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 nanoseconds and operations")]
pub fn each(time: Duration, operations: usize) -> f64 {
    time.as_nanos() as f64 / operations as f64
}

/// The processor time that `work` takes on this thread, in nanoseconds for each of `operations`.
///
/// Other threads on the same core do not count, so it is the right clock for what one thread does alone.
pub fn alone(operations: usize, work: impl FnOnce()) -> f64 {
    let started = ThreadTime::now();
    work();
    each(started.elapsed(), operations)
}

/// The processor time that `work` takes on all threads of this program, in nanoseconds for each of `operations`: what one core would need.
pub fn together(operations: usize, work: impl FnOnce()) -> f64 {
    let started = ProcessTime::now();
    work();
    each(started.elapsed(), operations)
}

/// The two cores that measurements with two sides use.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    first: Option<CoreId>,
    second: Option<CoreId>,
}

thread_local! {
    static PINNED: Cell<bool> = const { Cell::new(false) };
}

impl Cores {
    /// The first two cores that this process may use. Where the operating system does not tell, threads are not pinned.
    #[must_use]
    pub fn find() -> Self {
        let mut ids = core_affinity::get_core_ids().unwrap_or_default().into_iter();
        Self { first: ids.next(), second: ids.next() }
    }

    /// Returns true if there are two.
    #[must_use]
    pub const fn are_two(&self) -> bool {
        self.second.is_some()
    }

    /// The number of a core, for programs that are told where to run.
    #[must_use]
    pub fn number(&self, second: bool) -> Option<usize> {
        if second { self.second } else { self.first }.map(|core| core.id)
    }

    /// Keeps this thread on the first core. Threads that it starts from then on stay there too, unless they say otherwise.
    pub fn pin_first(&self) {
        Self::pin(self.first);
    }

    /// Keeps this thread on the second core.
    pub fn pin_second(&self) {
        Self::pin(self.second);
    }

    fn pin(core: Option<CoreId>) {
        PINNED.set(core.is_some_and(core_affinity::set_for_current));
    }

    /// Returns true if this thread is kept on its core.
    #[must_use]
    pub fn is_pinned() -> bool {
        PINNED.get()
    }

    /// Runs one side on each core and gives the time from when both are ready until both are done.
    pub fn both<S: Send>(&self, here: impl FnOnce(), there: impl FnOnce() -> S + Send) -> (Duration, S) {
        let gate = Gate::new(2);
        self.pin_first();
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                self.pin_second();
                gate.pass();
                (Instant::now(), there())
            });
            gate.pass();
            let started = Instant::now();
            here();
            let (started_there, result) = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // Whoever is taken off its core at the gate begins late. The work of the other one counts from its own beginning.
            (started.min(started_there).elapsed(), result)
        })
    }
}

/// Lets threads begin at the same moment.
pub struct Gate {
    missing: AtomicU32,
}

impl Gate {
    /// A gate for so many threads.
    #[must_use]
    pub const fn new(threads: u32) -> Self {
        Self { missing: AtomicU32::new(threads) }
    }

    /// Waits until all are here.
    pub fn pass(&self) {
        self.missing.fetch_sub(1, AcqRel);
        let mut wait = Wait::new();
        while self.missing.load(Acquire) > 0 {
            wait.once();
        }
    }
}

/// Waits for another core in a loop: without sleeping, but the core is lent to others when it takes long.
#[derive(Debug, Default)]
pub struct Wait {
    rounds: u32,
}

impl Wait {
    /// A wait that begins.
    #[must_use]
    pub const fn new() -> Self {
        Self { rounds: 0 }
    }

    /// What was awaited has come; the next wait begins.
    #[inline]
    pub const fn over(&mut self) {
        self.rounds = 0;
    }

    /// Waits a little.
    #[inline]
    pub fn once(&mut self) {
        self.rounds += 1;
        if self.rounds.is_multiple_of(4096) {
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Effort, Samples, Subject, interleave};

    #[test]
    fn the_median_and_the_spread_are_those_of_the_middle() {
        let samples = Samples::new(vec![5.0, 1.0, 2.0, 4.0, 100.0]);
        assert!((samples.median() - 4.0).abs() < f64::EPSILON);
        assert!((samples.spread() - 0.375).abs() < f64::EPSILON);
    }

    #[test]
    fn every_subject_has_its_turn_in_every_round_and_the_best_run_counts() {
        let effort = Effort { rounds: 4, repeats: 3, divisor: 1 };
        let mut calls = [0, 0];
        let [first, second] = &mut calls;
        let mut subjects: Vec<Subject<'_>> = vec![
            Box::new(|| {
                *first += 1;
                f64::from(*first % 3)
            }),
            Box::new(|| {
                *second += 1;
                7.0
            }),
        ];
        let samples = interleave(effort, &mut subjects);
        drop(subjects);
        assert_eq!(calls, [15, 15], "a round that is not counted, and four of three runs");
        assert_eq!(samples, [Samples::new(vec![0.0; 4]), Samples::new(vec![7.0; 4])]);
    }
}
