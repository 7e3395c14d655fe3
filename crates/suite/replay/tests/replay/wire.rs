//! What was recorded of a wire: every frame, whose it is, what it belongs to; and the capture that is made of them.

use std::collections::{HashMap, HashSet};

use conformance::host::Impairments;
use interpose::{Function, Phase};
use recording::{
    Frame, Recording, Seen, What, pcapng,
    timeline::{LaneKind, MarkKind, Timeline},
    traffic,
};
use roce::wire::{Envelope, Unreadable};

use crate::world::{file_of, file_on_wire};

const CASES: [&str; 3] = ["results.order-of-receives", "rdma.reads-see-earlier-writes", "post.read-fence"];
const SLOTS: usize = 1 << 17;

fn on_wire(name: &str, impairments: Impairments) -> Recording {
    let recording = Recording::read(&file_on_wire(name, SLOTS, impairments)).expect("a recording");
    assert_eq!((recording.lost, recording.torn), (0, 0), "{name}: all of it is there");
    assert!(!recording.frames.is_empty(), "{name}");
    recording
}

/// The bytes of frames that went one way.
fn bytes(recording: &Recording, wire: u8, came_in: bool) -> Vec<&[u8]> {
    let way = recording.frames.iter().filter(|frame| frame.wire == wire && frame.came_in == came_in);
    way.map(|frame| &*frame.bytes).collect()
}

#[test]
fn what_leaves_one_adapter_comes_in_at_the_other() {
    for name in CASES {
        let recording = on_wire(name, Impairments::default());
        for (from, to) in [(1, 2), (2, 1)] {
            assert_eq!(bytes(&recording, from, false), bytes(&recording, to, true), "{name}: from wire {from}");
        }
        let is_bad =
            |frame: &&Frame| matches!(Envelope::parse(&frame.bytes), Err(Unreadable::Icrc | Unreadable::Malformed));
        assert_eq!(recording.frames.iter().find(is_bad), None, "{name}");
    }
}

/// The queue pairs that a consumer has posted to, of requests that need the wire.
fn posted_to(recording: &Recording) -> HashSet<u32> {
    let sends = recording.records.iter().filter(|record| {
        let is_transfer = matches!(record.function, Function::Send | Function::Write | Function::Read);
        is_transfer && record.phase == Phase::Call
    });
    sends.map(|record| record.object).collect()
}

#[test]
fn every_packet_is_of_its_queue_pair_and_names_its_request() {
    for name in CASES {
        let recording = on_wire(name, Impairments::default());
        let seen = traffic(&recording);
        assert_eq!(seen.len(), recording.frames.len());
        let owners: HashSet<u32> = seen.iter().filter_map(|seen| seen.qp).collect();
        assert!(posted_to(&recording).iter().any(|qp| owners.contains(qp)), "{name}: {owners:?}");
        for (frame, seen) in recording.frames.iter().zip(&seen) {
            let is_of_a_pair = matches!(seen.what, What::Packet | What::Again | What::Ack | What::Nak);
            assert_eq!(seen.qp.is_some(), is_of_a_pair, "{name}: {}", seen.text);
            let begins_request = ["SEND first", "SEND only", "WRITE first", "WRITE only", "READ request"];
            if !frame.came_in && begins_request.iter().any(|begin| seen.label.starts_with(begin)) {
                assert!(seen.text.contains(" Of Ndk"), "{name}: {}", seen.text);
            }
        }
        assert!(seen.iter().all(|seen| seen.what != What::Again), "{name}: nothing was lost");
    }
}

/// The number of a packet that was sent, and if it is data of a READ, which is numbered by the peer's requests.
fn number(seen: &Seen) -> (bool, &str) {
    (seen.label.starts_with("READ response"), seen.label.rsplit(' ').next().unwrap_or(""))
}

#[test]
fn what_is_sent_again_was_sent_before_and_losses_are_seen() {
    let impairments = Impairments { loss: 60, ..Impairments::default() };
    let (mut again, mut lost) = (0, 0);
    for name in CASES {
        let recording = on_wire(name, impairments);
        let mut before = HashMap::<_, HashSet<(bool, String)>>::new();
        for (frame, seen) in recording.frames.iter().zip(traffic(&recording)) {
            if frame.came_in || !matches!(seen.what, What::Packet | What::Again) {
                continue;
            }
            let (is_answer, psn) = number(&seen);
            let is_new = before.entry((frame.wire, seen.qp)).or_default().insert((is_answer, psn.to_owned()));
            // A READ that goes on in the middle of its data has a number that no packet had.
            let goes_on = seen.label.starts_with("READ request");
            assert!(!is_new || seen.what == What::Packet || goes_on, "{name}: {}", seen.text);
            assert!(is_new || seen.what == What::Again, "{name}: {}", seen.text);
            again += u32::from(seen.what == What::Again);
        }
        lost += [(1, 2), (2, 1)]
            .map(|(from, to)| bytes(&recording, from, false).len() - bytes(&recording, to, true).len())
            .iter()
            .sum::<usize>();
    }
    assert!(again > 0 && lost > 0, "{again} packets again, {lost} frames lost");
}

#[test]
fn the_timeline_has_every_frame_on_a_lane_in_its_order() {
    let recording = on_wire("results.order-of-receives", Impairments { loss: 60, ..Impairments::default() });
    let timeline = Timeline::of(&recording);
    assert_eq!(timeline.moments.len(), recording.records.len() + recording.frames.len());
    assert!(timeline.moments.is_sorted());
    let of_wire = |kind| {
        matches!(kind, MarkKind::Packet | MarkKind::Retry | MarkKind::Ack | MarkKind::Nak | MarkKind::Management)
    };
    let marks: Vec<_> = timeline.marks.iter().filter(|mark| of_wire(mark.kind)).collect();
    assert_eq!(marks.len(), recording.frames.len());
    for mark in &marks {
        let expected = if mark.kind == MarkKind::Management { LaneKind::Wire } else { LaneKind::QueuePair };
        assert_eq!(timeline.lanes[mark.lane].kind, expected, "{mark:?}");
    }
    for kind in [MarkKind::Packet, MarkKind::Ack, MarkKind::Management] {
        assert!(marks.iter().any(|mark| mark.kind == kind), "{kind:?}");
    }
}

/// A block of a capture: its type and its body.
fn blocks(file: &[u8]) -> Vec<(u32, &[u8])> {
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        let length = number(at + 4) as usize;
        assert_eq!(number(at + length - 4) as usize, length, "the length is repeated at the end");
        found.push((number(at), &file[at + 8..at + length - 4]));
        at += length;
    }
    found
}

#[test]
fn a_capture_has_the_bytes_that_went_over_the_wire() {
    let recording = on_wire("post.read-fence", Impairments::default());
    let capture = pcapng(&recording).expect("something went over a wire");
    let blocks = blocks(&capture);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds[..3], [0x0A0D_0D0A, 1, 1], "a section and two interfaces");
    let packets = &blocks[3..];
    assert_eq!(packets.len(), recording.frames.len());
    for ((kind, body), frame) in packets.iter().zip(&recording.frames) {
        let field = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((*kind, field(0), field(12)), (6, u32::from(frame.wire) - 1, frame.length));
        assert_eq!(body[20..][..frame.bytes.len()], frame.bytes);
    }
}

#[test]
fn what_went_through_memory_has_no_packets() {
    let recording = Recording::read(&file_of("results.order-of-receives", SLOTS, recorder::Keep::First));
    let recording = recording.expect("a recording");
    assert!(recording.frames.is_empty() && recording.numbers.is_empty());
    assert_eq!(pcapng(&recording), None);
}

/// The calls are there as well: they run again on adapters without a wire.
#[test]
fn a_recording_of_a_wire_runs_again_without_one() {
    let recording = on_wire("results.order-of-receives", Impairments::default());
    let report = replay::run(&recording, 0).expect("it runs");
    assert_eq!(report.differences, []);
}
