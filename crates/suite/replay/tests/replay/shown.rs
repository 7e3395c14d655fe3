//! What a recording shows: the timeline and the packets.

use std::{collections::BTreeSet, fs, path::PathBuf};

use interpose::Function;
use recording::{
    pcapng::pcapng,
    timeline::{LaneKind, MarkKind, Timeline, html},
};

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

/// Blocks of the file: their types.
fn blocks(file: &[u8]) -> Vec<u32> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut kinds) = (0, Vec::new());
    while at < file.len() {
        let length = number(at + 4) as usize;
        assert_eq!(number(at + length - 4) as usize, length, "the length is repeated at the end");
        kinds.push(number(at));
        at += length;
    }
    assert_eq!(at, file.len());
    kinds
}

#[test]
fn packets_are_whole_blocks_one_or_more_for_each_send() {
    let recording = recorded("results.order-of-receives");
    let sends = recording.records.iter().filter(|record| record.function == Function::Send).count() / 2;
    let kinds = blocks(&pcapng(&recording));
    assert_eq!(kinds[..2], [0x0A0D_0D0A, 1], "a section and an interface");
    assert!(sends > 0 && kinds[2..].len() >= 2 * sends, "{sends} sends, {} packets", kinds.len() - 2);
}

/// The numbers of functions are part of the format: the document has them.
#[test]
fn functions_keep_their_numbers() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/recorder.md");
    let document = fs::read_to_string(path).expect("docs/recorder.md");
    for (number, function) in Function::ALL.iter().enumerate() {
        let row = format!("| {number} | `{}` |", function.name());
        assert!(document.contains(&row), "{row}");
    }
}
