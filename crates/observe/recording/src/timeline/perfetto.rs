//! A timeline as a trace that Perfetto, and everything else that reads Chrome's JSON, shows.
//!
//! Groups are processes, lanes are threads. What lasts is a slice of its thread where slices lie in each other, as calls do; requests do not,
//! so they are asynchronous slices of their group. A moment is an instant, an arrow is a flow.

use std::collections::HashMap;

use serde::Serialize;

use super::{LaneKind, Mark, Timeline};

#[derive(Serialize)]
struct Trace<'a> {
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "traceEvents")]
    events: Vec<Event<'a>>,
}

/// An event. Times are in microseconds.
#[derive(Default, Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    pid: usize,
    tid: usize,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    /// Of an instant, whose it is; of the end of a flow, what it ends at.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Args<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Name { name: &'a str },
    Text { what: &'a str, rule: &'a str },
}

/// The trace of a timeline, in JSON.
#[must_use]
pub fn perfetto(timeline: &Timeline) -> String {
    let (mut events, mut processes) = (Vec::new(), HashMap::new());
    for (tid, lane) in timeline.lanes.iter().enumerate() {
        let next = processes.len() + 1;
        let pid = *processes.entry(&*lane.group).or_insert(next);
        let named =
            |name, args| Event { ph: "M", name, pid, tid, args: Some(Args::Name { name: args }), ..Event::default() };
        events.extend([named("process_name", &lane.group), named("thread_name", &lane.name)]);
    }
    #[expect(clippy::cast_precision_loss, reason = "no recording is of 2^52 units of 100 nanoseconds")]
    let micros = |moment: usize| timeline.moments.get(moment).map_or(0.0, |time| *time as f64 / 10.0);
    let place = |mark: &Mark| (processes[&*timeline.lanes[mark.lane].group], mark.lane);
    for (id, mark) in timeline.marks.iter().enumerate() {
        let (pid, tid) = place(mark);
        let (begin, end) = (micros(mark.from), micros(mark.to));
        let args = Some(Args::Text { what: &mark.text, rule: mark.rule.section });
        let event =
            Event { name: &mark.label, pid, tid, ts: begin, cat: Some(mark.kind.name()), args, ..Event::default() };
        if mark.from == mark.to {
            events.push(Event { ph: "i", s: Some("t"), ..event });
        } else if timeline.lanes[mark.lane].kind == LaneKind::QueuePair {
            let ends = Event {
                ph: "e",
                name: &mark.label,
                pid,
                tid,
                ts: end,
                cat: event.cat,
                id: Some(id),
                ..Event::default()
            };
            events.extend([Event { ph: "b", id: Some(id), ..event }, ends]);
        } else {
            events.push(Event { ph: "X", dur: Some(end - begin), ..event });
        }
    }
    for (id, arrow) in timeline.arrows.iter().enumerate() {
        let [from, to] = [arrow.from, arrow.to].map(|mark| &timeline.marks[mark]);
        let flow = |ph, mark: &Mark, bp| {
            let (pid, tid) = place(mark);
            let ts = micros(mark.from);
            Event { ph, name: "because of", pid, tid, ts, cat: Some("cause"), id: Some(id), bp, ..Event::default() }
        };
        events.extend([flow("s", from, None), flow("f", to, Some("e"))]);
    }
    serde_json::to_string(&Trace { unit: "ns", events }).unwrap_or_default()
}
