//! What had been carried out before a call, though nobody had looked yet.
//!
//! A recording has posts and polls, and not when a request was carried out between the two. Where it was posted before a call and was not cancelled,
//! it may have been carried out before that call or after it, and the call may end differently: a flush cancels it or does not, an arm is satisfied
//! at once or is not. The machine is then given the time, as the adapter most likely had it. A post is made at once, as it would be refused
//! otherwise that found its queue full; if it is refused and was accepted then, the machine is given the time and it is made again.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use interpose::Phase;
use ndkpi::NtStatus;
use recording::{Arguments, Outcome, Record, Recording};

/// The spans from the post of a request that is carried out to the poll that takes its completion.
#[derive(Debug, Default)]
pub struct Progress {
    /// How many spans begin, less how many end, up to a record.
    spans: BTreeMap<u64, i64>,
    /// The posts that were refused, by adapter and call.
    refused: HashSet<(u8, u64)>,
}

/// The context of a request that was posted.
const fn context(record: &Record) -> Option<u64> {
    match (record.phase, &record.arguments) {
        (
            Phase::Call,
            Arguments::Transfer { context, .. }
            | Arguments::Bind { context, .. }
            | Arguments::FastRegister { context, .. }
            | Arguments::Invalidate { context, .. },
        ) => Some(*context),
        _ => None,
    }
}

impl Progress {
    /// What a recording tells.
    pub fn of(recording: &Recording) -> Self {
        let mut ends: BTreeMap<u64, i64> = BTreeMap::new();
        let mut refused_posts = HashSet::new();
        let mut posted: HashMap<(u8, u64), VecDeque<(u64, u64)>> = HashMap::new();
        for record in &recording.records {
            if let Some(context) = context(record) {
                posted.entry((record.adapter, context)).or_default().push_back((record.ordinal, record.call));
            }
            let refused = record.function.is_post()
                && matches!((record.phase, record.outcome), (Phase::Return, Outcome::Status(status)) if !status.is_success());
            if refused {
                refused_posts.insert((record.adapter, record.call));
                for posts in posted.values_mut() {
                    posts.retain(|(_, call)| *call != record.call);
                }
            }
            let Arguments::GetCqResults { results, .. } = &record.arguments else { continue };
            for result in results.iter().filter(|_| record.phase == Phase::Return) {
                let post = posted.get_mut(&(record.adapter, result.request_context)).and_then(VecDeque::pop_front);
                if let Some((begin, _)) = post.filter(|_| result.status != NtStatus::CANCELLED) {
                    *ends.entry(begin + 1).or_default() += 1;
                    *ends.entry(record.ordinal + 1).or_default() -= 1;
                }
            }
        }
        let mut open = 0;
        let spans = ends.into_iter().map(|(at, change)| {
            open += change;
            (at, open)
        });
        Self { spans: spans.collect(), refused: refused_posts }
    }

    /// A request was posted before this record that is carried out, and its completion is taken later.
    pub fn is_between(&self, record: &Record) -> bool {
        self.spans.range(..=record.ordinal).next_back().is_some_and(|(_, open)| *open > 0)
    }

    /// The post was accepted.
    pub fn was_accepted(&self, record: &Record) -> bool {
        !self.refused.contains(&(record.adapter, record.call))
    }
}
