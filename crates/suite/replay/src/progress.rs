//! What had been carried out before a call, though nobody had looked yet.
//!
//! A recording has posts and polls, and not when a request was carried out between the two. Where it was posted before a call and was not cancelled,
//! it may have been carried out before that call or after it, and the call may end differently: a flush cancels it or does not, an arm is satisfied
//! at once or is not. The machine is then given the time, as the adapter most likely had it. A post is made at once, as it would be refused
//! otherwise that found its queue full; if it is refused and was accepted then, the machine is given the time and it is made again. If one that was
//! refused then finds room here, both are allowed, and the recording goes on without it: it is run once more without such posts.
//!
//! A request with `NDK_OP_FLAG_SILENT_SUCCESS` of which no completion was taken has succeeded, so it was carried out before whatever would have
//! cancelled it: a flush of its queue pair, or the end of a connection.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use interpose::{Function, Phase};
use ndkpi::{NtStatus, op_flags};
use recording::{Arguments, Outcome, Record, Recording};

/// The spans from the post of a request that is carried out to the poll that takes its completion.
#[derive(Debug, Default)]
pub struct Progress {
    /// How many spans begin, less how many end, up to a record.
    spans: BTreeMap<u64, i64>,
    /// The calls that would have cancelled a request that has succeeded silently: their records.
    cancelling: HashSet<u64>,
    /// The posts that were refused, by adapter and call, and why.
    refused: HashMap<(u8, u64), NtStatus>,
}

/// The context and the flags of a request that was posted.
const fn posted(record: &Record) -> Option<(u64, u32)> {
    match (record.phase, &record.arguments) {
        (
            Phase::Call,
            Arguments::Transfer { context, flags, .. }
            | Arguments::Bind { context, flags, .. }
            | Arguments::FastRegister { context, flags, .. }
            | Arguments::Invalidate { context, flags },
        ) => Some((*context, *flags)),
        _ => None,
    }
}

/// A request, from its post on.
struct Request {
    ordinal: u64,
    call: u64,
    qp: u32,
    is_silent: bool,
}

impl Progress {
    /// What a recording tells.
    pub fn of(recording: &Recording) -> Self {
        let mut ends: BTreeMap<u64, i64> = BTreeMap::new();
        let mut refused = HashMap::new();
        let mut requests: HashMap<(u8, u64), VecDeque<Request>> = HashMap::new();
        for record in &recording.records {
            if let Some((context, flags)) = posted(record) {
                let is_silent = op_flags::is_silent_success(flags);
                let request = Request { ordinal: record.ordinal, call: record.call, qp: record.object, is_silent };
                requests.entry((record.adapter, context)).or_default().push_back(request);
            }
            if let (true, Phase::Return, Outcome::Status(status)) =
                (record.function.is_post(), record.phase, record.outcome)
                && !status.is_success()
            {
                refused.insert((record.adapter, record.call), status);
                for posts in requests.values_mut() {
                    posts.retain(|request| request.call != record.call);
                }
            }
            let Arguments::GetCqResults { results, .. } = &record.arguments else { continue };
            for result in results.iter().filter(|_| record.phase == Phase::Return) {
                let request = requests.get_mut(&(record.adapter, result.request_context)).and_then(VecDeque::pop_front);
                if let Some(request) = request.filter(|_| result.status != NtStatus::CANCELLED) {
                    *ends.entry(request.ordinal + 1).or_default() += 1;
                    *ends.entry(record.ordinal + 1).or_default() -= 1;
                }
            }
        }
        let mut open = 0;
        let spans = ends.into_iter().map(|(at, change)| {
            open += change;
            (at, open)
        });
        let silent = requests.into_values().flatten().filter(|request| request.is_silent);
        Self { spans: spans.collect(), cancelling: cancelling(recording, silent), refused }
    }

    /// A request was posted before this record that is carried out, and its completion is taken later or never.
    pub fn is_between(&self, record: &Record) -> bool {
        self.cancelling.contains(&record.ordinal)
            || self.spans.range(..=record.ordinal).next_back().is_some_and(|(_, open)| *open > 0)
    }

    /// The post was accepted, or was refused for another reason than that its queue was full.
    pub fn had_room(&self, record: &Record) -> bool {
        self.refused.get(&(record.adapter, record.call)) != Some(&NtStatus::NO_MORE_ENTRIES)
    }

    /// The post was refused because its queue was full, while requests were being carried out: a moment later there may have been room.
    pub fn was_full(&self, record: &Record) -> bool {
        self.refused.get(&(record.adapter, record.call)) == Some(&NtStatus::NO_MORE_ENTRIES) && self.is_between(record)
    }
}

/// The first call behind each of these requests that would have cancelled it.
fn cancelling(recording: &Recording, silent: impl Iterator<Item = Request>) -> HashSet<u64> {
    let mut silent: Vec<Request> = silent.collect();
    silent.sort_unstable_by_key(|request| std::cmp::Reverse(request.ordinal));
    let mut open: HashSet<u32> = HashSet::new();
    let mut cancelling = HashSet::new();
    for record in recording.records.iter().filter(|record| record.phase == Phase::Call) {
        let is_hit = match record.function {
            Function::Flush => open.remove(&record.object),
            // Which queue pair a connector has is not asked: the other ones only get more time.
            Function::Disconnect | Function::Close => !std::mem::take(&mut open).is_empty(),
            _ => false,
        };
        if is_hit {
            cancelling.insert(record.ordinal);
        }
        while let Some(request) = silent.pop_if(|request| request.ordinal <= record.ordinal) {
            open.insert(request.qp);
        }
    }
    cancelling
}
