//! What a recording shows: the timeline and the packets.

use std::collections::BTreeSet;

use recording::timeline::{LaneKind, MarkKind, Timeline, html, perfetto};

use crate::world::recorded;

fn kinds(timeline: &Timeline) -> BTreeSet<MarkKind> {
    timeline.marks.iter().map(|mark| mark.kind).collect()
}

#[test]
fn arms_callbacks_and_polls_have_their_reasons() {
    let timeline = Timeline::of(&recorded("arm.one-callback-per-arm"));
    for kind in [LaneKind::Processor, LaneKind::QueuePair, LaneKind::CompletionQueue] {
        assert!(timeline.lanes.iter().any(|lane| lane.kind == kind), "{kind:?}");
    }
    let shown = kinds(&timeline);
    for kind in [MarkKind::Call, MarkKind::Callback, MarkKind::Request, MarkKind::Armed, MarkKind::Decision] {
        assert!(shown.contains(&kind), "{kind:?} in {shown:?}");
    }
    let decisions = timeline.marks.iter().filter(|mark| mark.kind == MarkKind::Decision);
    for decision in decisions {
        assert!(decision.text.starts_with("Armed for any completion"), "{}", decision.text);
        assert_eq!(decision.rule.section, "NDKPI 7.1.5");
    }
    assert!(!timeline.arrows.is_empty());
    assert!(timeline.marks.iter().all(|mark| mark.from <= mark.to && mark.to < timeline.moments.len()));
    assert!(timeline.moments.is_sorted());
}

#[test]
fn merged_arms_and_failures_are_shown() {
    let merged = Timeline::of(&recorded("arm.merge-any-solicited"));
    let merge = merged.marks.iter().find(|mark| mark.kind == MarkKind::Merge).expect("a merge");
    assert!(merge.text.contains("both are one arm, for any completion"), "{}", merge.text);
    let refused = Timeline::of(&recorded("protection.remote-rights"));
    let failure = refused
        .marks
        .iter()
        .find(|mark| mark.kind == MarkKind::Failure && refused.lanes[mark.lane].kind == LaneKind::QueuePair);
    assert!(failure.is_some_and(|mark| mark.text.contains("STATUS_")), "{failure:?}");
}

#[test]
fn a_page_needs_nothing_else() {
    let page = html(&Timeline::of(&recorded("arm.one-callback-per-arm")), "a test");
    for other in ["src=", "@import", "fetch(", "XMLHttpRequest", "url(http"] {
        assert!(!page.contains(other), "{other}");
    }
    assert!(page.contains("<title>a test</title>") && page.contains("NDKPI 7.1.5"));
}

#[test]
fn a_trace_has_every_mark_once_and_ends_what_it_begins() {
    let timeline = Timeline::of(&recorded("arm.one-callback-per-arm"));
    let trace: serde_json::Value = serde_json::from_str(&perfetto(&timeline)).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!(count("X") + count("i") + count("b"), timeline.marks.len());
    assert_eq!((count("b"), count("s")), (count("e"), count("f")));
    assert_eq!((count("M"), count("s")), (2 * timeline.lanes.len(), timeline.arrows.len()));
    for begin in events.iter().filter(|event| event["ph"] == "b") {
        let end = events.iter().find(|event| event["ph"] == "e" && event["id"] == begin["id"]).expect("an end");
        assert!(end["ts"].as_f64() >= begin["ts"].as_f64() && end["pid"] == begin["pid"], "{begin}");
    }
}
