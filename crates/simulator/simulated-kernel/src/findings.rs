//! What the adviser in a provider has found (`docs/adviser.md`): its events, in words.
//!
//! The adviser of `softndk` and `softndknic` writes an event `Finding` for each. A duty stops the machine, and the event has the words for
//! that. Advice does not: it is kept, and said at the end of whatever breaks a rule later, because a wait for ever, for example, is often what
//! the advice was about.

use std::{
    fmt::{self, Write},
    sync::Mutex,
};

use crate::{
    sites::place_in_words,
    state::{Part, lock},
};

/// A value of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A number, whatever its width.
    Number(u64),
    /// Text.
    Text(String),
    /// A list of numbers.
    Numbers(Vec<u64>),
}

/// As many are kept.
const MOST: usize = 8;

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    number: u64,
    words: String,
}

/// What was found in this kernel, the last one at the end.
#[derive(Default)]
pub struct Findings(Mutex<Vec<Finding>>);

impl Part for Findings {}

impl Findings {
    /// An event `Finding` was written, with these fields. One that has others than the adviser's is not the adviser's.
    pub fn hear(&self, fields: &[(String, Field)]) {
        let Some(finding) = finding(fields) else { return };
        let mut all = lock(&self.0);
        if all.len() < MOST && !all.contains(&finding) {
            all.push(finding);
        }
    }

    /// The words of the last finding with that number, which stops the machine: it is not advice.
    pub fn take(&self, number: u64) -> Option<String> {
        let mut all = lock(&self.0);
        let place = all.iter().rposition(|finding| finding.number == number)?;
        Some(all.remove(place).words)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        lock(&self.0).iter().try_for_each(|Finding { number, words }| {
            write!(f, "; before that the adviser has said SN{number:04}, {words}")
        })
    }
}

/// The name of a type of objects, such as `Cq`.
pub fn kind_in_words(number: u64) -> &'static str {
    let kind = i32::try_from(number).map(ndkpi::NDK_OBJECT_TYPE);
    kind.ok().and_then(|kind| kind.name()?.strip_prefix("NdkObjectType")).unwrap_or("object")
}

fn finding(fields: &[(String, Field)]) -> Option<Finding> {
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
    let text = |name| match field(name) {
        Some(Field::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let number = |name| match field(name) {
        Some(Field::Number(number)) => Some(*number),
        _ => None,
    };
    let kind = kind_in_words(number("ObjectType")?);
    let (title, section, seen) = (text("What")?, text("Section")?, text("Seen")?);
    let mut words = format!("{title} ({section}): {kind} {}: {seen}, in {}", number("Object")?, text("Function")?);
    for (who, name) in [("created", "Creator"), ("called", "Caller")] {
        if let Some(Field::Numbers(stack)) = field(name) {
            let places: Vec<_> =
                stack.iter().filter_map(|&place| place_in_words(usize::try_from(place).ok()?)).collect();
            if !places.is_empty() {
                let _ = write!(words, "; {who} at {}", places.join(", "));
            }
        }
    }
    Some(Finding { number: number("Finding")?, words })
}
