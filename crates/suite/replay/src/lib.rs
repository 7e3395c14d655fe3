//! Runs a recording again on the host's provider, and says where it differs (`docs/recorder.md`).
//!
//! The calls are made in the order in which they were recorded, on a machine whose order is determined by a seed. Objects, tokens, logical
//! addresses, port numbers and the addresses of registered memory are other ones than in the recording, and are translated. A poll
//! takes as many completions as were taken then; a completion or callback that came then is waited for. What differs is reported,
//! and the replay goes on.
//!
//! A recording is input of unknown origin: a call on an object of another type, or on one that is closed, is left out and reported;
//! memory and adapters are bounded.

#![allow(
    clippy::significant_drop_in_scrutinee,
    reason = "clippy 1.95 follows types without end here, as in the crate provider"
)]

mod adapters;
mod addresses;
mod answers;
mod calls;
mod connecting;
mod course;
mod memory;
mod objects;
mod player;
mod polls;
mod posts;
mod progress;

use std::sync::Arc;

use conformance::host::{HostPlatform, Interposed, Layer};
use host::HostOs;
use interpose::Hooks;
use recording::Recording;

use crate::{
    course::Course,
    player::{End, Player},
    polls::{AsRecorded, Left},
    progress::Progress,
};

/// Something that was otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The record.
    pub record: u64,
    /// What was recorded, and what came.
    pub what: String,
}

/// What a replay has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that were made.
    pub calls: u64,
    /// Calls that could not be made, each with a difference that says why.
    pub left_out: u64,
    /// Posts that were refused because their queue was full, while requests were being carried out, and are not made: here they would have
    /// found room, and both are allowed.
    pub either_way: u64,
    /// In the order in which they were found.
    pub differences: Vec<Difference>,
}

/// Differences that are reported at most: after so many nothing is left to compare.
pub const MOST_DIFFERENCES: usize = 1000;

/// Runs a recording again.
///
/// # Errors
///
/// One line: the recording does not begin with its first record, has none, or asks for more than a replay has; the machine cannot be
/// made.
pub fn run(recording: &Recording, seed: u64) -> Result<Report, String> {
    check(recording)?;
    course::choose(recording, &Progress::of(recording), seed).map(|(_, report)| report)
}

/// [`run`], with hooks between the calls and the provider that only look on: the adviser, for example. They hear of polls as these were
/// recorded.
///
/// # Errors
///
/// As [`run`].
pub fn run_behind<H: Hooks<Os = HostOs>>(
    recording: &Recording,
    seed: u64,
    hooks: impl Fn(&HostOs) -> H + Clone + Send + Sync + 'static,
) -> Result<Report, String> {
    check(recording)?;
    let progress = Progress::of(recording);
    let (course, _) = course::choose(recording, &progress, seed)?;
    match replay(recording, &progress, seed, hooks, course)? {
        End::Whole(report) => Ok(report),
        End::FoundRoom => Err("the replay does not repeat itself".to_owned()),
    }
}

fn check(recording: &Recording) -> Result<(), String> {
    if recording.records.is_empty() {
        return Err("nothing was recorded: there is nothing to run again".to_owned());
    }
    if recording.first > 0 {
        return Err(format!(
            "the first {} slots were written over: record again with more --record-slots, or without --record-last",
            recording.first
        ));
    }
    Ok(())
}

/// Goes one course.
fn replay<H: Hooks<Os = HostOs>>(
    recording: &Recording,
    progress: &Progress,
    seed: u64,
    hooks: impl Fn(&HostOs) -> H + Clone + Send + Sync + 'static,
    course: Course,
) -> Result<End, String> {
    let left = Left::default();
    let of_hooks = left.clone();
    let layer: Layer = Arc::new(move |host: &Arc<HostPlatform>| {
        let (hooks, left) = (hooks.clone(), of_hooks.clone());
        let make = move |os: &HostOs| AsRecorded { hooks: hooks(os), left: left.clone() };
        Box::new(Interposed::new(host, Box::new(make)))
    });
    Player::start(recording, progress, seed, &layer, left, course)?.run()
}
