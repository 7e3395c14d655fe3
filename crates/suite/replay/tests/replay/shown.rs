//! What a recording shows: the timeline and the packets.

use std::collections::BTreeSet;

use conformance::cases;
use ndkpi::NDK_OBJECT_TYPE;
use recorder::Adviser;
use recording::timeline::{LaneKind, MarkKind, Timeline, html, perfetto};

use crate::world::{advised, recorded};

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

#[test]
fn a_finding_of_the_adviser_is_a_mark_with_its_rule() {
    for adviser in [Adviser::InFront, Adviser::Behind] {
        let (recording, _) = advised("arm.merge-any-errors", adviser);
        let timeline = Timeline::of(&recording);
        let mark = timeline.marks.iter().find(|mark| mark.label == "SN0004").expect("the case arms for less");
        assert_eq!((mark.kind, mark.rule.section), (MarkKind::Finding, "NDKPI 7.1.4"));
        assert_eq!(mark.rule.place, "findings.md#sn0004-an-arm-for-less-than-is-armed-already");
        let lane = &timeline.lanes[mark.lane];
        assert_eq!(lane.kind, LaneKind::CompletionQueue, "{}", mark.text);
        for words in [format!("SN0004 of {}, in NdkArmCq: ", lane.name), "Instead: ".to_owned()] {
            assert!(mark.text.contains(&words), "{}", mark.text);
        }
        // Beside the arm that it is about: not before its call, and not behind its callback.
        let merge = timeline.marks.iter().find(|one| one.kind == MarkKind::Merge).expect("a merge");
        assert!(mark.from.abs_diff(merge.from) <= 2, "{adviser:?}: {mark:?} {merge:?}");
        assert!(html(&timeline, "").contains("findings.md#sn0004"));
    }
}

/// Every finding that the suite brings about is a mark, and is on the lane of the object that the adviser has named.
#[test]
fn findings_are_on_the_lanes_of_their_objects() {
    let (mut marks, mut on_lanes) = (0, 0);
    for case in cases::all().filter(|case| ["arm", "overrun", "post", "results"].contains(&case.theme())) {
        for adviser in [Adviser::InFront, Adviser::Behind] {
            let (recording, reported) = advised(case.name, adviser);
            let timeline = Timeline::of(&recording);
            let shown: Vec<_> = timeline.marks.iter().filter(|mark| mark.kind == MarkKind::Finding).collect();
            assert_eq!(recording.findings.len(), reported.len(), "{}", case.name);
            assert_eq!(shown.len(), reported.len(), "{}", case.name);
            for (mark, (finding, object)) in shown.iter().zip(&reported) {
                assert_eq!(mark.label, finding.to_string(), "{}", case.name);
                let lane = &timeline.lanes[mark.lane];
                marks += 1;
                // The recorder counts the adapter too.
                let of_one = recording.records.iter().all(|record| record.adapter == 1);
                let is_it = || !of_one || lane.number == object.number + 1;
                let expected = match object.kind {
                    NDK_OBJECT_TYPE::QP => LaneKind::QueuePair,
                    NDK_OBJECT_TYPE::CQ => LaneKind::CompletionQueue,
                    _ => LaneKind::Processor,
                };
                if lane.kind == LaneKind::Processor && expected != lane.kind {
                    continue;
                }
                assert_eq!(lane.kind, expected, "{}: {}", case.name, mark.text);
                if lane.kind != LaneKind::Processor {
                    on_lanes += 1;
                    assert!(is_it(), "{}, {adviser:?}: {object} is on {}: {}", case.name, lane.name, mark.text);
                }
            }
        }
    }
    assert!(marks >= 20 && on_lanes * 10 >= marks * 7, "{on_lanes} of {marks} findings are on the lane of an object");
}

/// A file of the version before, which had no findings, is read as ever.
#[test]
fn the_version_before_is_read() {
    let file = crate::world::file_of("arm.one-callback-per-arm", 1 << 16, recorder::Keep::First);
    let now = recording::Recording::read(&file).expect("a recording");
    let with_version = |version: u8| {
        let mut bytes = file[..file.len() - 8].to_vec();
        bytes[8] = version;
        recording::Recording::read(&recording::seal(bytes, &[]))
    };
    assert_eq!(with_version(4), Ok(now.clone()));
    assert_eq!(with_version(5), Ok(now));
    assert_eq!(with_version(3), Err(recording::ReadError::Version(3)));
    assert_eq!(with_version(6), Err(recording::ReadError::Version(6)));
}
