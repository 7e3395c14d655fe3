//! What an adviser has found: on the lane of the object, or of the processor if that has none.

use interpose::adviser::Finding;
use ndkpi::NDK_OBJECT_TYPE;

use crate::{Found, Recording, found};

use super::{LaneKind, Mark, MarkKind, Moments, Timeline, names::Names, rules};

/// Adds the findings.
pub fn add(timeline: &mut Timeline, recording: &Recording, moments: &Moments, names: &Names) {
    let abouts = found::abouts(recording, names);
    for ((found, about), moment) in recording.findings.iter().zip(abouts).zip(&moments.findings) {
        let object = about.and_then(|about| about.object);
        let lane = match object {
            Some(qp) if found.kind == NDK_OBJECT_TYPE::QP => timeline.lane(LaneKind::QueuePair, qp, || names.name(qp)),
            Some(cq) if found.kind == NDK_OBJECT_TYPE::CQ => {
                timeline.lane(LaneKind::CompletionQueue, cq, || names.name(cq))
            }
            _ => {
                let processor = found.processor.into();
                timeline.lane(LaneKind::Processor, processor, || format!("processor {processor}"))
            }
        };
        let Found { seen, function, .. } = found;
        // The adviser counts by itself: one object has one name on the page.
        let seen = about.map_or_else(|| seen.clone(), |about| names.in_words(about.adapter, seen));
        let about = object.map_or_else(String::new, |object| format!(" of {}", names.name(object)));
        let (name, text, rule) = Finding::from_number(found.finding).map_or_else(
            || (format!("SN{:04}", found.finding), "A finding that this program does not know".to_owned(), rules::CALL),
            |finding| {
                let page = finding.page();
                let text = format!("{}. {} Instead: {}", page.title, page.rule, page.fix);
                (finding.to_string(), text, rules::of_finding(finding))
            },
        );
        let text = format!("{name}{about}, in {}: {seen}. {text}", function.name());
        let mark = Mark { lane, kind: MarkKind::Finding, from: *moment, to: *moment, label: name, text, rule };
        timeline.mark(mark);
    }
}
