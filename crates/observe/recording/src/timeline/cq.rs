//! The lanes of completion queues: when the queue is armed and for what, merges, the decisions to call back with their reason, callbacks,
//! polls, moderation.
//!
//! The recording has what happened at NDKPI. What made the provider decide is worked out from it, by the rules: which arm was in force,
//! which completions the consumer finds next, whether their requests were posted before that arm.

use std::collections::HashMap;

use interpose::{Function, Phase};
use ndkpi::NtStatus;

use crate::{Arguments, Outcome, Record, Recording};

use super::{Arrow, LaneKind, Mark, MarkKind, Moments, Timeline, names, names::Names, rules, words};

/// What is known of a queue so far.
#[derive(Default)]
struct Queue {
    /// The mark of the arm in force, what it asks for, and when it began.
    armed: Option<(usize, u32, usize)>,
    /// The mark of the decision that led to the callback whose completions are to be found.
    decision: Option<usize>,
    /// The mark of the running callback.
    callback: Option<usize>,
    moderated: Option<(u32, u32)>,
}

/// Adds the lanes of completion queues.
pub fn add(timeline: &mut Timeline, recording: &Recording, moments: &Moments, names: &Names) {
    let mut queues: HashMap<u32, Queue> = HashMap::new();
    for (moment, record) in moments.records(recording) {
        if !is_of_a_queue(record.function) {
            continue;
        }
        let lane = timeline.lane(LaneKind::CompletionQueue, record.object, || names.name(record.object));
        let queue = queues.entry(record.object).or_default();
        let here = Here { lane, moment, record, names };
        match (record.phase, record.function) {
            (Phase::Call, Function::ArmCq) => here.arm(timeline, queue),
            (Phase::Callback, Function::CqNotification) => here.callback(timeline, queue),
            (Phase::CallbackReturn, Function::CqNotification) => {
                if let Some(mark) = queue.callback.take() {
                    timeline.marks[mark].to = moment;
                }
            }
            (Phase::Return, Function::GetCqResults | Function::GetCqResultsEx) => here.poll(timeline, queue),
            (Phase::Return, Function::ControlCqInterruptModeration) => here.moderate(timeline, queue),
            (Phase::Return, Function::ResizeCq) => here.resize(timeline),
            _ => {}
        }
    }
    let last = moments.times.len().saturating_sub(1);
    for (mark, ..) in queues.values().filter_map(|queue| queue.armed) {
        let mark = &mut timeline.marks[mark];
        mark.to = last;
        mark.text = format!("{} No callback came before the recording ends: nothing satisfied it.", mark.text);
    }
}

const fn is_of_a_queue(function: Function) -> bool {
    matches!(
        function,
        Function::ArmCq
            | Function::GetCqResults
            | Function::GetCqResultsEx
            | Function::CqNotification
            | Function::ControlCqInterruptModeration
            | Function::ResizeCq
    )
}

struct Here<'a> {
    lane: usize,
    moment: usize,
    record: &'a Record,
    names: &'a Names,
}

impl Here<'_> {
    fn mark(&self, kind: MarkKind, label: String, text: String, rule: super::Rule) -> Mark {
        Mark { lane: self.lane, kind, from: self.moment, to: self.moment, label, text, rule }
    }

    fn arm(&self, timeline: &mut Timeline, queue: &mut Queue) {
        let Arguments::ArmCq { kind } = self.record.arguments else { return };
        let inside = if queue.callback.is_some() {
            " It is armed inside its callback: what satisfies it calls back after that one has returned (NDKPI 7.1.7)."
        } else {
            ""
        };
        let Some((mark, before, _)) = queue.armed else {
            let text = format!("Armed for {}: one callback, then it is not armed any more.{inside}", words::arm(kind));
            let label = format!("armed: {}", words::arm_short(kind));
            let mark = timeline.mark(self.mark(MarkKind::Armed, label, text, rules::ARM));
            queue.armed = Some((mark, kind, self.moment));
            return;
        };
        let together = words::merged(before, kind);
        let text = format!(
            "Armed for {} while it is armed for {}: both are one arm, for {}.{inside}",
            words::arm(kind),
            words::arm(before),
            words::arm(together)
        );
        timeline.mark(self.mark(
            MarkKind::Merge,
            format!("merged: {}", words::arm_short(together)),
            text,
            rules::MERGE,
        ));
        let armed = &mut timeline.marks[mark];
        if together != before {
            armed.label = format!("armed: {}", words::arm_short(together));
            armed.text = format!("{} Merged with a later arm: then for {}.", armed.text, words::arm(together));
        }
        queue.armed = Some((mark, together, armed.from));
    }

    fn callback(&self, timeline: &mut Timeline, queue: &mut Queue) {
        let status = match self.record.outcome {
            Outcome::Status(status) => status,
            _ => NtStatus::SUCCESS,
        };
        let text = format!("NdkCqNotificationCallback with {status}.");
        let callback = timeline.mark(self.mark(MarkKind::Callback, "callback".to_owned(), text, rules::SERIALISED));
        queue.callback = Some(callback);
        let (reason, rule) = match (queue.armed, status.is_success()) {
            (_, false) => {
                (format!("The queue has failed with {status}: that satisfies every arm."), rules::FAILED_QUEUE)
            }
            (Some((_, kind, _)), true) => {
                let held = queue.moderated.map_or_else(String::new, |(interval, count)| {
                    format!(" Moderation may have held it back: {interval} us, {count} completions (NDKPI 7.1.6).")
                });
                (format!("Armed for {}, and a completion satisfies that.{held}", words::arm(kind)), rules::SATISFIED)
            }
            (None, true) => {
                let text = "No arm was in force: the provider has called without being asked, or an arm is not in the recording.";
                (text.to_owned(), rules::ARM)
            }
        };
        let decision = timeline.mark(self.mark(MarkKind::Decision, "call back".to_owned(), reason, rule));
        queue.decision = Some(decision);
        if let Some((mark, ..)) = queue.armed.take() {
            timeline.marks[mark].to = self.moment;
            timeline.arrows.push(Arrow { from: mark, to: callback });
        }
    }

    fn poll(&self, timeline: &mut Timeline, queue: &mut Queue) {
        let Arguments::GetCqResults { room, results, .. } = &self.record.arguments else { return };
        let taken = match self.record.outcome {
            Outcome::Count(count) => count as usize,
            _ => results.len(),
        };
        if taken == 0 {
            let text = format!("{} finds nothing: the queue is empty.", self.record.function.name());
            timeline.mark(self.mark(MarkKind::EmptyPoll, "empty".to_owned(), text, rules::DRAIN));
            return;
        }
        let what: Vec<String> = results.iter().take(8).map(|result| self.describe(result)).collect();
        let rest = if taken > what.len() { format!("; and {} more", taken - what.len()) } else { String::new() };
        let full = if taken == *room as usize { " As many as there was room for: there may be more." } else { "" };
        let text = format!("{} takes {taken}: {}{rest}.{full}", self.record.function.name(), what.join("; "));
        let mark = timeline.mark(self.mark(MarkKind::Poll, format!("takes {taken}"), text, rules::DRAIN));
        // The first poll after a callback finds what satisfied the arm.
        if let Some(decision) = queue.decision.take() {
            let found = what.first().map_or("completions that are not in the recording", String::as_str);
            timeline.marks[decision].text =
                format!("{} The next poll finds first: {found}.", timeline.marks[decision].text);
            timeline.arrows.push(Arrow { from: decision, to: mark });
        }
    }

    fn describe(&self, result: &crate::Completion) -> String {
        let qp = self
            .names
            .qp(self.record, result.qp_context)
            .map_or_else(|| format!("queue pair context {:#x}", result.qp_context), |qp| self.names.name(qp));
        let kind = match result.kind {
            0 => "a request",
            1 => "a receive",
            0x8001 => "a receive whose sender invalidated a token",
            2 => "a send",
            4 => "a fast registration",
            8 => "a bind",
            16 => "an invalidation",
            32 => "a read",
            64 => "a write",
            _ => "a request of an unknown type",
        };
        format!("{kind} of {qp}, context {:#x}, {}", result.request_context, result.status)
    }

    fn moderate(&self, timeline: &mut Timeline, queue: &mut Queue) {
        let Arguments::Moderation { interval, count } = self.record.arguments else { return };
        queue.moderated = (interval != 0 && count > 1).then_some((interval, count));
        let text = format!(
            "Moderation: at most {interval} us after the arm is satisfied, or {count} completions. {}.",
            names::outcome(self.record)
        );
        timeline.mark(self.mark(MarkKind::Control, "moderation".to_owned(), text, rules::MODERATION));
    }

    fn resize(&self, timeline: &mut Timeline) {
        let text = format!("NdkResizeCq: {}.", names::outcome(self.record));
        timeline.mark(self.mark(MarkKind::Control, "resize".to_owned(), text, rules::RESIZE));
    }
}

#[cfg(test)]
mod tests {
    use interpose::{Function, Phase};
    use ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_OBJECT_TYPE, NtStatus};

    use crate::{
        Arguments, Outcome, Record, Recording,
        timeline::{MarkKind, Timeline},
    };

    fn recording(events: &[(Phase, Function, Arguments, Outcome)]) -> Recording {
        let record =
            |(number, (phase, function, arguments, outcome)): (u64, &(Phase, Function, Arguments, Outcome))| Record {
                ordinal: number,
                time: number,
                call: number,
                object: 3,
                created: 0,
                created_kind: NDK_OBJECT_TYPE::UNDEFINED,
                created_number: 0,
                related: [0; 3],
                outcome: *outcome,
                thread: 1,
                processor: 0,
                adapter: 1,
                phase: *phase,
                function: *function,
                irql: 0,
                has_completion: false,
                lacks_place: false,
                arguments: arguments.clone(),
            };
        let records = (0..).zip(events).map(record).collect();
        Recording { records, processors: 1, ..Recording::default() }
    }

    fn arm(kind: u32) -> [(Phase, Function, Arguments, Outcome); 2] {
        let of = |phase| (phase, Function::ArmCq, Arguments::ArmCq { kind }, Outcome::None);
        [of(Phase::Call), of(Phase::Return)]
    }

    /// Any number of arms in any order, and the recording ends: the first mark says what all of them are together.
    #[test]
    fn arms_that_merge_and_see_no_callback_are_described_as_one() {
        const KINDS: [u32; 4] = [NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_CQ_NOTIFY_ANY, 7];
        for number in 0..KINDS.len().pow(3) {
            let [first, second, third] = [1, 4, 16].map(|place| KINDS[number / place % 4]);
            let events = [arm(first), arm(second), arm(third)].concat();
            let timeline = Timeline::of(&recording(&events));
            let armed: Vec<_> = timeline.marks.iter().filter(|mark| mark.kind == MarkKind::Armed).collect();
            let [armed] = armed[..] else { panic!("one arm: {armed:?}") };
            let merged = super::words::merged(super::words::merged(first, second), third);
            let what = super::words::arm(merged);
            let is_said = armed.text.starts_with(&format!("Armed for {what}"))
                || armed.text.contains(&format!("then for {what}."));
            assert!(
                is_said && armed.text.ends_with("nothing satisfied it."),
                "{first}, {second}, {third}: {}",
                armed.text
            );
            assert_eq!(armed.label, format!("armed: {}", super::words::arm_short(merged)));
            assert_eq!(armed.to, events.len() - 1);
        }
    }

    /// Completions that were taken, and of which the recording has kept none.
    #[test]
    fn a_poll_whose_results_were_not_kept_is_shown() {
        let results = Arguments::GetCqResults { room: 4, extended: false, results: Vec::new() };
        let events = [
            arm(NDK_CQ_NOTIFY_ANY).to_vec(),
            vec![
                (Phase::Callback, Function::CqNotification, Arguments::None, Outcome::Status(NtStatus::SUCCESS)),
                (Phase::Return, Function::GetCqResults, results, Outcome::Count(3)),
            ],
        ];
        let timeline = Timeline::of(&recording(&events.concat()));
        let decision = timeline.marks.iter().find(|mark| mark.kind == MarkKind::Decision).expect("it was called back");
        assert!(decision.text.ends_with("completions that are not in the recording."), "{}", decision.text);
    }
}
