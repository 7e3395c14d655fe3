//! What goes over wires: on the lane of its queue pair, or of the wire if it is of none.

use crate::{Recording, Seen, What, traffic};

use super::{LaneKind, Mark, MarkKind, Moments, Rule, Timeline, names::Names, rules};

/// Adds the frames.
pub fn add(timeline: &mut Timeline, recording: &Recording, moments: &Moments, names: &Names) {
    for ((frame, seen), moment) in recording.frames.iter().zip(traffic(recording)).zip(&moments.frames) {
        let Seen { what, qp, label, text } = seen;
        let lane = match qp {
            Some(qp) => timeline.lane(LaneKind::QueuePair, qp, || names.name(qp)),
            None => timeline.lane(LaneKind::Wire, frame.wire.into(), || format!("wire {}", frame.wire)),
        };
        let (kind, rule) = shown(what);
        let label = format!("{} {label}", if frame.came_in { "<" } else { ">" });
        timeline.mark(Mark { lane, kind, from: *moment, to: *moment, label, text, rule });
    }
}

const fn shown(what: What) -> (MarkKind, Rule) {
    match what {
        What::Packet => (MarkKind::Packet, rules::WIRE_PSN),
        What::Again => (MarkKind::Retry, rules::WIRE_BACK),
        What::Ack => (MarkKind::Ack, rules::WIRE_ACK),
        What::Nak => (MarkKind::Nak, rules::WIRE_RESPONSE),
        What::Management => (MarkKind::Management, rules::WIRE_MANAGER),
        What::Unreadable => (MarkKind::Failure, rules::WIRE_FRAME),
    }
}
