//! How far two cores are from each other, and figures that were taken at one distance.
//!
//! The processors of a virtual machine are threads of its host, which moves them: seen on one machine within a minute were
//! 36, 72 and 210 ns for a cache line there and back (two threads of one core, two cores with a common cache, two without).
//! What two cores do together changes with it by factors. So the line is measured before and after every turn, and only those
//! turns count during which it took the same time, the one that most of the turns have seen. Ours and the peers' figures then
//! stand for the same pair of cores. Which turns these are does not depend on what was measured in them.

use std::{
    hint::spin_loop,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;

use crate::{
    measure::{Cores, Effort, LEAST_ROUNDS, Samples, Subject, Turn, each, round},
    row::{Row, Unit},
};

/// Round trips that tell the distance.
const LOOK: u64 = 1 << 11;
/// Distances that differ by less are the same.
const SAME: f64 = 1.25;
/// More rounds, to have enough of one distance, are made for so long.
const LONG: Duration = Duration::from_mins(1);
/// And at most so many times as many as asked for.
const MORE: usize = 3;
/// With fewer turns at one distance all of them count.
const FEW: usize = 3;

/// A number on a cache line of its own, and on the pair of lines that processors like to fetch together.
pub type Line = CachePadded<AtomicU64>;

/// Sends a cache line from the first core to the second and back, `count` times: nanoseconds each.
#[must_use]
pub fn line(cores: &Cores, count: u64) -> f64 {
    let line = Line::default();
    let wait = |value| {
        while line.load(Acquire) != value {
            spin_loop();
        }
    };
    let here = || {
        for number in 0..count {
            line.store(2 * number + 1, Release);
            wait(2 * number + 2);
        }
    };
    let there = || {
        for number in 0..count {
            wait(2 * number + 1);
            line.store(2 * number + 2, Release);
        }
    };
    let (time, ()) = cores.both(here, there);
    each(time, usize::try_from(count).unwrap_or(usize::MAX))
}

/// What was measured at one distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The samples of every subject.
    pub samples: Vec<Samples>,
    /// The cache line, before and after the turns of all of them.
    pub line: Samples,
}

impl Measured {
    /// A row that says how far the cores were from each other while the rows of `what` were measured.
    #[must_use]
    pub fn row(&self, what: &str) -> Row {
        let name = format!("machine: a cache line there and back, during {what}");
        Row::plain(&name, Unit::Nanoseconds, &self.line)
    }
}

/// [`interleave`](crate::measure::interleave) for subjects on two cores.
pub fn interleave(effort: Effort, cores: &Cores, subjects: &mut [Subject<'_>]) -> Measured {
    let mut turns = vec![Vec::new(); subjects.len()];
    let started = Instant::now();
    let mut look = || line(cores, LOOK);
    // The first round is not counted.
    let _ = round(0, effort.repeats, subjects, &mut look);
    for number in 1..=MORE * effort.rounds {
        for (turns, turn) in turns.iter_mut().zip(round(number, effort.repeats, subjects, &mut look)) {
            turns.push(turn);
        }
        let enough = number >= effort.rounds && counted(&turns).1 >= LEAST_ROUNDS.min(effort.rounds);
        if enough || (number >= LEAST_ROUNDS && started.elapsed() > LONG) {
            break;
        }
    }
    at_one_distance(&turns)
}

fn is_steady(turn: &Turn<f64>) -> bool {
    is_same(turn.before, turn.after)
}

fn is_same(this: f64, that: f64) -> bool {
    this <= that * SAME && that <= this * SAME
}

fn is_at(turn: &Turn<f64>, distance: f64) -> bool {
    is_same(turn.before, distance) && is_same(turn.after, distance)
}

/// The distance at which there are most turns of every subject, and how many at least.
fn counted(turns: &[Vec<Turn<f64>>]) -> (f64, usize) {
    let distances = turns.iter().flatten().filter(|turn| is_steady(turn)).map(|turn| turn.before);
    let counts = distances.map(|distance| {
        let count = |turns: &Vec<Turn<f64>>| turns.iter().filter(|turn| is_at(turn, distance)).count();
        (distance, turns.iter().map(count).min().unwrap_or(0))
    });
    counts.max_by_key(|(_, count)| *count).unwrap_or((0.0, 0))
}

fn at_one_distance(turns: &[Vec<Turn<f64>>]) -> Measured {
    let (distance, count) = counted(turns);
    let counts = |turn: &&Turn<f64>| count < FEW || is_at(turn, distance);
    let samples = turns.iter().map(|turns| turns.iter().filter(counts).map(|turn| turn.figure).collect());
    let line = turns.iter().flatten().filter(counts).flat_map(|turn| [turn.before, turn.after]);
    Measured { samples: samples.map(Samples::new).collect(), line: Samples::new(line.collect()) }
}

#[cfg(test)]
mod tests {
    use super::at_one_distance;
    use crate::measure::{Samples, Turn};

    fn turns(turns: &[(f64, f64, f64)]) -> Vec<Turn<f64>> {
        turns.iter().map(|(before, figure, after)| Turn { before: *before, figure: *figure, after: *after }).collect()
    }

    #[test]
    fn the_turns_at_the_most_frequent_distance_count() {
        let ours =
            turns(&[(70.0, 1.0, 72.0), (70.0, 2.0, 210.0), (69.0, 3.0, 70.0), (200.0, 4.0, 210.0), (71.0, 5.0, 70.0)]);
        let peer =
            turns(&[(70.0, 6.0, 71.0), (210.0, 7.0, 205.0), (72.0, 8.0, 70.0), (208.0, 9.0, 70.0), (70.0, 10.0, 70.0)]);
        let measured = at_one_distance(&[ours, peer]);
        assert_eq!(measured.samples, [Samples::new(vec![1.0, 3.0, 5.0]), Samples::new(vec![6.0, 8.0, 10.0])]);
        assert!(measured.line.quantile(0.0) >= 69.0 && measured.line.quantile(1.0) <= 72.0);
    }

    #[test]
    fn everything_counts_where_no_distance_lasts() {
        let ours = turns(&[(70.0, 1.0, 72.0), (36.0, 2.0, 35.0), (200.0, 3.0, 70.0)]);
        assert_eq!(at_one_distance(&[ours]).samples, [Samples::new(vec![1.0, 2.0, 3.0])]);
    }
}
