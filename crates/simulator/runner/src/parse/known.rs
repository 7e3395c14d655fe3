//! Names of settings: what `softndk` and `softndknic` read. What other drivers read is theirs to know.

use std::path::Path;

use super::nearest::nearest;
use crate::script::service_of;

/// What both read of `Parameters` (`docs/registry.md`).
const PARAMETERS: [&str; 17] = [
    "Advise",
    "Backlog",
    "CompletionMode",
    "MaxCqDepth",
    "MaxCqs",
    "MaxPds",
    "MaxQps",
    "MaxQueueDepth",
    "MaxTokens",
    "ModerationGranularity",
    "NdUsers",
    "NicMode",
    "Profile",
    "Record",
    "RnrRetries",
    "RnrTimer",
    "RotateTokens",
];

/// What `softndk` reads besides.
const OF_SOFTNDK: [&str; 1] = ["Addresses"];

/// Advanced properties of an adapter of `softndknic` (`docs/settings.md`).
const KEYWORDS: [&str; 16] = [
    "*JumboPacket",
    "*NetworkDirect",
    "*NetworkDirectRoCEFrameSize",
    "*NetworkDirectTechnology",
    "*PriorityVLANTag",
    "CableDelay",
    "CableJitter",
    "CableLoss",
    "CableRate",
    "CableSeed",
    "NetworkAddress",
    "RdmaProfile",
    "WireLocal",
    "WirePeer",
    "WirePort",
    "WireVni",
];

/// The words of a name that is none of those; nothing if it is one, or if nobody knows what there is.
fn unknown(name: &str, known: &[&'static str], what: &str) -> Option<String> {
    let is_one = known.is_empty() || known.iter().any(|known| known.eq_ignore_ascii_case(name));
    (!is_one).then(|| format!("{what}{}", nearest(name, known.iter().copied())))
}

/// Why the driver of that file reads no such value of its `Parameters`.
pub fn no_parameter(file: &Path, name: &str) -> Option<String> {
    let driver = service_of(file).to_ascii_lowercase();
    let known = match driver.as_str() {
        "softndk" => [&PARAMETERS[..], &OF_SOFTNDK].concat(),
        "softndknic" => PARAMETERS.to_vec(),
        _ => Vec::new(),
    };
    unknown(name, &known, &format!("`registry.{name}`: {driver} has no such value"))
}

/// Why the adapters of the driver of that file have no such keyword.
pub fn no_keyword(file: &Path, name: &str) -> Option<String> {
    let is_nic = service_of(file).eq_ignore_ascii_case("softndknic");
    let known: &[_] = if is_nic { &KEYWORDS } else { &[] };
    unknown(name, known, &format!("`keywords.{name}`: softndknic has no such property"))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::{KEYWORDS, OF_SOFTNDK, PARAMETERS, no_keyword, no_parameter};

    /// The names in backquotes at the beginning of the rows of a table, of those rows that `is_wanted` finds.
    fn rows(document: &str, is_wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(document);
        let text = std::fs::read_to_string(path).expect("a document");
        let rows = text.lines().filter(|line| is_wanted(line)).filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
    }

    fn owned(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_names_are_those_of_the_documents() {
        assert_eq!(rows("registry.md", |line| line.contains("| REG_DWORD |")), owned(&PARAMETERS));
        assert_eq!(rows("settings.md", |line| line.contains("| advanced property")), owned(&KEYWORDS));
        assert_eq!(rows("settings.md", |line| line.contains("registry, `softndk` only")), owned(&OF_SOFTNDK));
    }

    #[test]
    fn a_name_that_there_is_not_is_answered_with_the_nearest() {
        let of = |file: &str, name: &str| no_parameter(Path::new(file), name);
        let words = "`registry.CompletionMod`: softndk has no such value; did you mean `CompletionMode`?";
        assert_eq!(of("a/softndk.sys", "CompletionMod").as_deref(), Some(words));
        assert_eq!(of("softndknic.sys", "completionmode"), None);
        assert_eq!(of("softndk.sys", "Addresses"), None);
        assert!(of("softndknic.sys", "Addresses").is_some(), "its addresses are those of its interface");
        assert_eq!(of("consumer.sys", "CompletionMod"), None, "nobody knows what it reads");
        let words = no_keyword(Path::new("SoftNdkNic.sys"), "CableLos").expect("there is none");
        assert!(words.ends_with("did you mean `CableLoss`?"), "{words}");
        assert_eq!(no_keyword(Path::new("softndknic.sys"), "*networkdirect"), None);
        assert_eq!(no_keyword(Path::new("other.sys"), "CableLos"), None);
    }
}
