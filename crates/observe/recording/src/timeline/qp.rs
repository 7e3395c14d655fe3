//! The lanes of queue pairs: each request from its post until a poll takes its completion, flushes, and steps of the connection.

use std::collections::{HashMap, VecDeque};

use interpose::{Function, Phase};
use ndkpi::NDK_OP_FLAG_SILENT_SUCCESS as SILENT;

use crate::{Arguments, Outcome, Record, Recording};

use super::{LaneKind, Mark, MarkKind, Moments, Timeline, names, names::Names, rules, words};

/// A request whose completion was not seen yet: its mark, and when it was posted.
type Outstanding = HashMap<(u32, u64, bool), VecDeque<usize>>;

/// Adds the lanes of queue pairs.
pub fn add(timeline: &mut Timeline, recording: &Recording, moments: &Moments, names: &Names) {
    let mut outstanding = Outstanding::new();
    let mut calls = HashMap::new();
    for (moment, record) in moments.records(recording) {
        let key = (record.adapter, record.call);
        match (record.phase, record.function) {
            (Phase::Call, function) if is_post(function) => {
                let lane = lane(timeline, record.object, names);
                if let Some(mark) = posted(record, lane, moment) {
                    calls.insert(key, timeline.mark(mark));
                }
            }
            (Phase::Return, function) if is_post(function) => {
                if let Some(mark) = calls.remove(&key) {
                    answered(timeline, mark, record, moment, &mut outstanding);
                }
            }
            (Phase::Return, Function::GetCqResults | Function::GetCqResultsEx) => {
                taken(timeline, record, moment, names, &mut outstanding);
            }
            (Phase::Call, Function::Flush) => {
                let lane = lane(timeline, record.object, names);
                let text = "NdkFlush: every request of both queues ends with STATUS_CANCELLED, unless it is done.";
                timeline.mark(step(lane, moment, "flush", text.to_owned(), rules::QUEUE_PAIR));
            }
            _ => connection(timeline, record, moment, names),
        }
    }
}

fn lane(timeline: &mut Timeline, qp: u32, names: &Names) -> usize {
    timeline.lane(LaneKind::QueuePair, qp, || names.name(qp))
}

const fn is_post(function: Function) -> bool {
    matches!(
        function,
        Function::Send
            | Function::Receive
            | Function::Bind
            | Function::FastRegister
            | Function::Invalidate
            | Function::Read
            | Function::Write
            | Function::SendAndInvalidate
    )
}

fn posted(record: &Record, lane: usize, moment: usize) -> Option<Mark> {
    let (context, _) = words::posted(&record.arguments)?;
    let name = format!("{} {context:#x}", record.function.name().trim_start_matches("Ndk").to_lowercase());
    let text = format!("{}: {}.", record.function.name(), words::request(&record.arguments));
    Some(Mark { lane, kind: MarkKind::Request, from: moment, to: moment, label: name, text, rule: rules::POST })
}

/// The post has returned.
fn answered(timeline: &mut Timeline, mark: usize, record: &Record, moment: usize, outstanding: &mut Outstanding) {
    let shown = &mut timeline.marks[mark];
    shown.to = moment;
    match record.outcome {
        Outcome::Status(status) if !status.is_success() => {
            shown.kind = MarkKind::Failure;
            shown.text = format!("{} Refused with {status}: it is not posted, and has no completion.", shown.text);
        }
        _ => match words::posted(&record.arguments) {
            Some((_, flags)) if record.function != Function::Receive && flags & SILENT != 0 => {
                shown.text = format!("{} Silent: a success has no completion.", shown.text);
                let key = (record.object, context(record), false);
                outstanding.entry(key).or_default().push_back(mark);
            }
            _ => {
                let key = (record.object, context(record), record.function == Function::Receive);
                outstanding.entry(key).or_default().push_back(mark);
            }
        },
    }
}

const fn context(record: &Record) -> u64 {
    match words::posted(&record.arguments) {
        Some((context, _)) => context,
        None => 0,
    }
}

/// A poll has taken results: the requests end there.
fn taken(timeline: &mut Timeline, record: &Record, moment: usize, names: &Names, outstanding: &mut Outstanding) {
    let Arguments::GetCqResults { results, .. } = &record.arguments else { return };
    for result in results {
        let Some(qp) = names.qp(record, result.qp_context) else { continue };
        let receives = names.cq(qp, true) == Some(record.object);
        let initiates = names.cq(qp, false) == Some(record.object);
        // A queue for both: the plain poll does not tell the kinds apart.
        let first = if result.kind != 0 { result.kind & 1 == 1 } else { receives };
        let found = [first, !first]
            .into_iter()
            .filter(|kind| if *kind { receives } else { initiates })
            .find_map(|kind| outstanding.get_mut(&(qp, result.request_context, kind)).and_then(VecDeque::pop_front));
        let Some(mark) = found else { continue };
        let took = timeline.moments[moment] - timeline.moments[timeline.marks[mark].from];
        let shown = &mut timeline.marks[mark];
        shown.to = moment;
        let bytes =
            if first && result.status.is_success() { format!(", {} bytes", result.bytes) } else { String::new() };
        shown.text = format!(
            "{} Its completion is taken from {} {} after the post: {}{bytes}.",
            shown.text,
            names.name(record.object),
            words::time(took),
            result.status
        );
        if !result.status.is_success() {
            shown.kind = MarkKind::Failure;
        }
    }
}

fn step(lane: usize, moment: usize, label: &str, text: String, rule: super::Rule) -> Mark {
    Mark { lane, kind: MarkKind::Control, from: moment, to: moment, label: label.to_owned(), text, rule }
}

/// A step of the connection of a queue pair.
fn connection(timeline: &mut Timeline, record: &Record, moment: usize, names: &Names) {
    let label = match (record.phase, record.function) {
        (Phase::Call, Function::Connect | Function::ConnectWithSharedEndpoint) => "connect",
        (Phase::Call, Function::CompleteConnect | Function::CompleteConnectEx) => "complete connect",
        (Phase::Call, Function::Accept | Function::AcceptEx) => "accept",
        (Phase::Call, Function::Disconnect) => "disconnect",
        (Phase::Callback, Function::DisconnectEvent | Function::DisconnectEventEx) => "disconnected",
        (Phase::Callback, Function::Connect | Function::ConnectWithSharedEndpoint) => "connect completes",
        (Phase::Callback, Function::Accept | Function::AcceptEx) => "accept completes",
        _ => return,
    };
    let Some(qp) = names.qp_of(record.object) else { return };
    let lane = lane(timeline, qp, names);
    let result = if record.phase == Phase::Call { String::new() } else { format!(": {}", names::outcome(record)) };
    let text = format!("{} of {}{result}.", record.function.name(), names.name(record.object));
    timeline.mark(step(lane, moment, label, text, rules::CONNECTION));
}
