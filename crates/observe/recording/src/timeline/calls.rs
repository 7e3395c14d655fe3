//! The lanes of processors: every call from its beginning to its return, and every callback.

use std::collections::HashMap;

use interpose::{Function, Phase};

use crate::{Outcome, Record, Recording};

use super::{LaneKind, Mark, MarkKind, Moments, Rule, Timeline, names, names::Names, rules, words};

/// Adds the lanes of processors.
pub fn add(timeline: &mut Timeline, recording: &Recording, moments: &Moments, names: &Names) {
    let mut processors: Vec<u32> = recording.records.iter().map(|record| record.processor.into()).collect();
    processors.sort_unstable();
    processors.dedup();
    for processor in processors {
        timeline.lane(LaneKind::Processor, processor, || format!("processor {processor}"));
    }
    // What has begun and not ended: by adapter, call and whether it is a callback.
    let mut open = HashMap::new();
    for (moment, record) in moments.records(recording) {
        let is_callback = matches!(record.phase, Phase::Callback | Phase::CallbackReturn);
        let key = (record.adapter, record.call, is_callback);
        if matches!(record.phase, Phase::Call | Phase::Callback) {
            let lane = timeline.lane(LaneKind::Processor, record.processor.into(), String::new);
            let mark = timeline.mark(mark(record, lane, moment, names));
            open.insert(key, mark);
            continue;
        }
        let Some(mark) = open.remove(&key) else { continue };
        let began = timeline.marks[mark].from;
        let took = timeline.moments[moment] - timeline.moments[began];
        let mark = &mut timeline.marks[mark];
        mark.to = moment;
        if is_callback {
            mark.text = format!("{} It takes {}.", mark.text, words::time(took));
            continue;
        }
        mark.text = format!("{} Returns {} after {}.", mark.text, names::outcome(record), words::time(took));
        if matches!(record.outcome, Outcome::Status(status) if !status.is_success()) {
            mark.kind = MarkKind::Failure;
        }
    }
}

fn mark(record: &Record, lane: usize, moment: usize, names: &Names) -> Mark {
    let name = record.function.name();
    let object = names.name(record.object);
    let (kind, text, rule) = if record.phase == Phase::Call {
        (MarkKind::Call, format!("{name} on {object}."), rule_of(record.function))
    } else {
        let what = if is_event(record.function) { name.to_owned() } else { format!("completion of {name}") };
        let status = names::outcome(record);
        (MarkKind::Callback, format!("{what}, of {object}, with {status}."), rules::CALLBACK)
    };
    let text = match words::request(&record.arguments) {
        about if about.is_empty() => text,
        about => format!("{text} {about}."),
    };
    Mark { lane, kind, from: moment, to: moment, label: short(record), text, rule }
}

/// Returns true for what the provider calls by itself.
const fn is_event(function: Function) -> bool {
    matches!(
        function,
        Function::CqNotification
            | Function::SrqNotification
            | Function::ConnectEvent
            | Function::DisconnectEvent
            | Function::DisconnectEventEx
    )
}

fn short(record: &Record) -> String {
    let name = record.function.name();
    match record.function {
        Function::CqNotification => "callback".to_owned(),
        function if is_event(function) => "event".to_owned(),
        Function::Close => "close".to_owned(),
        Function::ArmCq => "arm".to_owned(),
        Function::GetCqResults | Function::GetCqResultsEx => "poll".to_owned(),
        Function::Send | Function::Receive | Function::Read | Function::Write | Function::Bind => {
            name.trim_start_matches("Ndk").to_lowercase()
        }
        _ => name.trim_start_matches("Ndk").to_owned(),
    }
}

const fn rule_of(function: Function) -> Rule {
    match function {
        Function::ArmCq => rules::ARM,
        Function::GetCqResults | Function::GetCqResultsEx => rules::DRAIN,
        Function::ControlCqInterruptModeration => rules::MODERATION,
        Function::ResizeCq => rules::RESIZE,
        Function::Send
        | Function::Receive
        | Function::Bind
        | Function::FastRegister
        | Function::Invalidate
        | Function::Read
        | Function::Write
        | Function::SendAndInvalidate
        | Function::SrqReceive => rules::POST,
        Function::Flush => rules::QUEUE_PAIR,
        Function::Connect
        | Function::ConnectWithSharedEndpoint
        | Function::CompleteConnect
        | Function::CompleteConnectEx
        | Function::Accept
        | Function::AcceptEx
        | Function::Reject
        | Function::Disconnect
        | Function::Listen
        | Function::GetConnectionData => rules::CONNECTION,
        Function::Close | Function::CloseAdapter => rules::CLOSE,
        _ => rules::CALL,
    }
}
