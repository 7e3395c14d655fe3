//! The rules that marks refer to.

use std::sync::LazyLock;

use interpose::adviser::Finding;

/// A rule of NDKPI, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The section, as in `NDKPI 7.1.3`.
    pub section: &'static str,
    /// The heading in `docs/semantics.md` or `docs/reference/ndkpi.md`, with the file.
    pub place: &'static str,
}

/// Where the documents are, for a reader that has only the picture.
pub const BASE: &str = "https://github.com/softndk/softndk/blob/main/docs/";

macro_rules! rules {
    ($($name:ident: $section:literal at $place:literal;)+) => {
        $(pub const $name: Rule = Rule { section: $section, place: $place };)+

        /// All rules that marks refer to.
        #[cfg(test)]
        pub const ALL: &[Rule] = &[$($name),+];
    };
}

rules! {
    CALL: "NDKPI 5.0" at "reference/ndkpi.md#50-four-calling-patterns";
    CALLBACK: "NDKPI 6" at "reference/ndkpi.md#6-consumer-callbacks-all--dispatch_level-doc-header-ndkpi";
    ARM: "NDKPI 7.1.3" at "semantics.md#ndkpi-71-completion-queues";
    MERGE: "NDKPI 7.1.4" at "semantics.md#ndkpi-71-completion-queues";
    SATISFIED: "NDKPI 7.1.5" at "semantics.md#ndkpi-71-completion-queues";
    MODERATION: "NDKPI 7.1.6" at "semantics.md#ndkpi-71-completion-queues";
    SERIALISED: "NDKPI 7.1.7" at "semantics.md#ndkpi-71-completion-queues";
    DRAIN: "NDKPI 7.1.8" at "semantics.md#ndkpi-71-completion-queues";
    FAILED_QUEUE: "NDKPI 7.1.10" at "semantics.md#ndkpi-71-completion-queues";
    RESIZE: "NDKPI 7.1.11" at "semantics.md#ndkpi-71-completion-queues";
    QUEUE_PAIR: "NDKPI 7.2" at "semantics.md#ndkpi-72-queue-pairs";
    POST: "NDKPI 7.3" at "semantics.md#ndkpi-73-posting";
    CONNECTION: "NDKPI 7.7" at "semantics.md#ndkpi-77-connections";
    CLOSE: "NDKPI 7.9" at "semantics.md#ndkpi-79-object-lifetime-and-close";
    WIRE_FRAME: "RoCEv2 1" at "reference/rocev2.md#1-frames";
    WIRE_PSN: "RoCEv2 4" at "reference/rocev2.md#4-psn-and-msn";
    WIRE_ACK: "RoCEv2 5.2" at "reference/rocev2.md#52-acknowledging";
    WIRE_RESPONSE: "RoCEv2 6.3" at "reference/rocev2.md#63-responses";
    WIRE_BACK: "RoCEv2 6.4" at "reference/rocev2.md#64-going-back";
    WIRE_MANAGER: "RoCEv2 8" at "reference/rocev2.md#8-connection-management";
}

/// Where the page of each finding is.
static PAGES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let heading = |finding: &Finding| format!("{finding}: {}", finding.page().title);
    Finding::ALL.iter().map(|finding| format!("findings.md#{}", anchor(&heading(finding)))).collect()
});

/// The rule of a finding, with its page.
pub fn of_finding(finding: Finding) -> Rule {
    let place = Finding::ALL.iter().position(|one| *one == finding).and_then(|place| PAGES.get(place));
    Rule { section: finding.page().section, place: place.map_or("findings.md", String::as_str) }
}

/// The address of a heading, as the forge makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

impl Rule {
    /// The address of the text.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{BASE}{}", self.place)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use interpose::adviser::Finding;

    use super::anchor;

    #[test]
    fn every_rule_has_a_heading() {
        let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
        let of_findings = Finding::ALL.iter().map(|finding| super::of_finding(*finding));
        for rule in super::ALL.iter().copied().chain(of_findings) {
            let (file, heading) = rule.place.split_once('#').expect("a heading");
            let text = fs::read_to_string(documents.join(file)).expect("the document");
            let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor);
            assert!(headings.any(|found| found == heading), "{rule:?}");
        }
    }
}
