//! What a finding says.

use core::fmt::{self, Write};

use crate::{
    Function, InterposeOs, ObjectId, Stamp,
    adviser::{Adviser, FRAMES, Finding, Mode, Node, Severity, Sink},
};

/// What was seen, in a few words.
pub struct Seen {
    bytes: [u8; 200],
    length: usize,
}

impl Seen {
    fn new(what: fmt::Arguments<'_>) -> Self {
        let mut seen = Self { bytes: [0; 200], length: 0 };
        // What does not fit is cut off.
        let _ = seen.write_fmt(what);
        seen
    }

    /// The words.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl Write for Seen {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let mut buffer = [0; 4];
            let encoded = character.encode_utf8(&mut buffer).as_bytes();
            let place = self.bytes.get_mut(self.length..self.length + encoded.len()).ok_or(fmt::Error)?;
            place.copy_from_slice(encoded);
            self.length += encoded.len();
        }
        Ok(())
    }
}

/// A finding about one object.
pub struct Report<'a> {
    /// What was found.
    pub finding: Finding,
    /// The object.
    pub object: ObjectId,
    /// What was called.
    pub function: Function,
    /// When and where.
    pub place: Stamp,
    /// What was seen.
    pub seen: &'a str,
    /// Who created the object: return addresses, the innermost first. 0 where nothing is known.
    pub creator: &'a [usize; FRAMES],
    /// Who made the call.
    pub caller: &'a [usize; FRAMES],
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let page = self.finding.page();
        write!(
            f,
            "{} {} ({}): {}: {}, in {}, processor {}, IRQL {}",
            self.finding,
            page.title,
            page.section,
            self.object,
            self.seen,
            self.function.name(),
            self.place.processor,
            self.place.irql
        )
    }
}

impl Report<'_> {
    /// Who created the object, and who made the call: the return addresses that are known.
    #[must_use]
    pub fn stacks(&self) -> [(&'static str, &[usize]); 2] {
        [("created by", self.creator), ("called by", self.caller)].map(|(who, frames)| {
            let known = frames.iter().position(|&frame| frame == 0).unwrap_or(frames.len());
            (who, &frames[..known])
        })
    }
}

impl<O: InterposeOs, S: Sink> Adviser<O, S> {
    /// Something was found.
    #[cold]
    pub(super) fn found(&self, finding: Finding, node: &Node<O>, function: Function, what: fmt::Arguments<'_>) {
        if finding.page().severity == Severity::Advice && !self.settings.advice {
            return;
        }
        self.totals.count(finding);
        if !node.is_first(finding) || self.settings.mode == Mode::Count {
            return;
        }
        let mut caller = [0; FRAMES];
        self.os.stack(&mut caller);
        let seen = Seen::new(what);
        let report = Report {
            finding,
            object: node.id,
            function,
            place: self.os.place(),
            seen: seen.as_str(),
            creator: &node.creator,
            caller: &caller,
        };
        self.sink.report(&report);
        match self.settings.mode {
            Mode::Break => self.sink.break_in(),
            // Advice is about what is allowed: nothing to stop for.
            Mode::Bugcheck if finding.page().severity == Severity::Duty => self.sink.bugcheck(&report),
            Mode::Bugcheck | Mode::Log | Mode::Count => {}
        }
    }
}
