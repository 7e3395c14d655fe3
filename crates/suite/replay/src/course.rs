//! What a replay does where a recording does not tell what had been carried out.
//!
//! Nobody who records sees when a request is carried out. What may happen depends on it: a flush cancels the request or not, a post finds room or
//! not, a connection ends before it or behind it. If the recording is what one of several courses brings about, it shows nothing wrong.

use interpose::NoHooks;
use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};
use recording::{Record, Recording};

use crate::{Report, player::End, progress::Progress, replay};

/// Courses that are tried at most, and records that are gone through for it: long recordings have fewer tries.
const MOST_COURSES: usize = 256;
const MOST_RECORDS: usize = 50_000;

/// [`Course::preemption`] of the courses at random, in turn.
const PREEMPTION: [u8; 4] = [0, 5, 20, 50];

/// One course.
#[derive(Clone, Debug)]
pub struct Course {
    pub full: Full,
    pub pace: Pace,
    /// Of a hundred places where the machine may let another thread or DPC get in between, so many are taken.
    pub preemption: u8,
}

/// When the machine is given the time to carry out what was posted.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Where the completions that were taken later tell ([`Progress`]).
    AsCompleted,
    /// Before some calls and not before others.
    AtRandom(SplitMix64),
}

/// What becomes of posts that were refused because their queue was full, and might find room here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// They are made. One that finds room ends the replay.
    Made,
    /// They are not made.
    LeftOut,
}

impl Pace {
    /// The machine is given the time before this call.
    pub fn has_time(&mut self, progress: &Progress, record: &Record) -> bool {
        match self {
            Self::AsCompleted => !record.function.is_post() && progress.is_between(record),
            Self::AtRandom(random) => random.next_u32() & 1 == 0,
        }
    }
}

/// The course that brings about what was recorded, or comes farthest, and what it shows. Hooks do not hear of it.
pub fn choose(recording: &Recording, progress: &Progress, seed: u64) -> Result<(Course, Report), String> {
    let go = |course: &Course| replay(recording, progress, seed, |os| NoHooks(os.clone()), course.clone());
    let mut course = Course { full: Full::Made, pace: Pace::AsCompleted, preemption: 0 };
    let mut end = go(&course)?;
    if matches!(end, End::FoundRoom) {
        course.full = Full::LeftOut;
        end = go(&course)?;
    }
    let End::Whole(report) = end else { return Err("a post that is not made has found room".to_owned()) };
    let mut best = (course, report);
    let tries = MOST_COURSES.min(MOST_RECORDS / recording.records.len().max(1));
    for number in 0..tries {
        if best.1.differences.is_empty() {
            break;
        }
        let course = Course {
            full: Full::LeftOut,
            pace: Pace::AtRandom(SplitMix64::seed_from_u64(number as u64)),
            preemption: PREEMPTION[number % PREEMPTION.len()],
        };
        if let End::Whole(report) = go(&course)?
            && comes_to(&report) > comes_to(&best.1)
        {
            best = (course, report);
        }
    }
    Ok(best)
}

/// The record up to which there is no difference.
fn comes_to(report: &Report) -> u64 {
    report.differences.iter().map(|difference| difference.record).min().unwrap_or(u64::MAX)
}
