//! Reads a recording. Whatever the bytes are, the answer is a recording or one line.

use std::fmt;

use interpose::{Function, Phase};
use ndkpi::{NDK_OBJECT_TYPE, NtStatus};
use recorder::format::{
    Checksum, FLAG_COMPLETION, FLAG_NO_PLACE, FLAG_TIME, FUNCTION_OF_NONE, FileHeader, HEADER_BYTES, IRQL_SHIFT,
    KIND_SHIFT, MAGIC, OF_RECORD, OLDEST, OUTCOME_SHIFT, PAYLOAD_WORDS, RETURNED, SLOT_BYTES, TICKS_PER_SECOND,
    VERSION, at, kind, tag,
};

use crate::{
    Arguments, Found, Frame, Number,
    clock::{Clock, Pair},
    found,
    frames::{self, Entry},
    timeline::Names,
};

/// How a call, or what it began, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has not, or there is nothing to tell.
    None,
    /// With a status.
    Status(NtStatus),
    /// With a number of results.
    Count(u32),
    /// With a token.
    Token(u32),
}

/// One record: a call, its return, a callback or its return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of its slot, which a call and its return may have in common.
    pub ordinal: u64,
    /// When, in units of 100 nanoseconds.
    pub time: u64,
    /// What the call, its return and its completion have in common, for one adapter.
    pub call: u64,
    /// The object.
    pub object: u32,
    /// The object that was created, or 0.
    pub created: u32,
    /// What it is.
    pub created_kind: NDK_OBJECT_TYPE,
    /// The number by which the adviser calls it, or 0 if that is not known.
    pub created_number: u16,
    /// Other objects, or 0.
    pub related: [u32; 3],
    /// The result.
    pub outcome: Outcome,
    /// The thread.
    pub thread: u32,
    /// The processor.
    pub processor: u16,
    /// The number of the adapter, from 1.
    pub adapter: u8,
    /// What it is the beginning or end of.
    pub phase: Phase,
    /// The function.
    pub function: Function,
    /// The IRQL.
    pub irql: u8,
    /// The request has a completion callback.
    pub has_completion: bool,
    /// It is a creation, and there is no place for the object.
    pub lacks_place: bool,
    /// What the function was given, or has returned.
    pub arguments: Arguments,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// In the order in which it happened.
    pub records: Vec<Record>,
    /// What went over wires, in the order in which it did.
    pub frames: Vec<Frame>,
    /// The numbers that queue pairs have on wires.
    pub numbers: Vec<Number>,
    /// What an adviser has found meanwhile, in the order in which it did.
    pub findings: Vec<Found>,
    /// How many slots were written over before the first one.
    pub first: u64,
    /// Slots that are not there, or that came when there was no more room.
    pub lost: u64,
    /// Records of which a part is not there.
    pub torn: u64,
    /// Processors of the machine.
    pub processors: u32,
}

/// Why bytes are no recording. Displays as one line that says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Something else.
    NotARecording,
    /// Of a version that this program does not know.
    Version(u32),
    /// It ends too early, or too late.
    Length {
        /// As many bytes as it says.
        expected: u64,
        /// As many as there are.
        found: u64,
    },
    /// The checksum differs.
    Checksum,
    /// A record cannot be.
    Record(u64),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARecording => write!(f, "this is no recording: make one with `ndkctl ping --record FILE`"),
            Self::Version(version) => write!(
                f,
                "the recording has version {version} of the format, this program reads {OLDEST} to {VERSION}: use the ndkctl that made it"
            ),
            Self::Length { expected, found } => write!(
                f,
                "the recording has {found} bytes where its header says {expected}: it was cut or joined, copy it again"
            ),
            Self::Checksum => write!(f, "the checksum of the recording is wrong: it was damaged, copy it again"),
            Self::Record(ordinal) => {
                write!(f, "record {ordinal} of the recording cannot be: it was not made by a recorder of this version")
            }
        }
    }
}

impl std::error::Error for ReadError {}

pub fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

pub fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        let header = FileHeader::of(bytes);
        if bytes.len() < 16 || header.magic != MAGIC {
            return Err(ReadError::NotARecording);
        }
        if !(OLDEST..=VERSION).contains(&header.version.get()) {
            return Err(ReadError::Version(header.version.get()));
        }
        let found = bytes.len() as u64;
        let body = header.slots.get().checked_mul(SLOT_BYTES as u64);
        let expected = body.and_then(|body| body.checked_add(HEADER_BYTES as u64 + 8)).unwrap_or(u64::MAX);
        let is_ours = header.header_bytes.get() as usize == HEADER_BYTES && header.ticks_per_second == TICKS_PER_SECOND;
        if expected != found || !is_ours {
            return Err(ReadError::Length { expected, found });
        }
        let (content, sum) = bytes.split_at(bytes.len() - 8);
        let mut checksum = Checksum::default();
        checksum.add(content);
        if checksum.to_bytes() != *sum {
            return Err(ReadError::Checksum);
        }
        let slots: Vec<&[u8]> = content[HEADER_BYTES..].chunks_exact(SLOT_BYTES).collect();
        let mut recording = Self {
            records: Vec::new(),
            frames: Vec::new(),
            numbers: Vec::new(),
            findings: Vec::new(),
            first: header.first.get(),
            lost: header.lost.get(),
            torn: 0,
            processors: header.processors.get(),
        };
        recording.take(&slots)?;
        Ok(recording)
    }

    fn take(&mut self, slots: &[&[u8]]) -> Result<(), ReadError> {
        let (mut index, mut ordered, mut pairs, mut unit) = (0, Vec::new(), Vec::new(), 0);
        while let Some(slot) = slots.get(index) {
            let (ordinal, kind) = ordinal_of(slot);
            if kind == kind::ANCHOR {
                let field = |place: usize| word(slot, 8 * (1 + place));
                pairs.push(Pair { ticks: field(kind::ANCHOR_TICKS), time: field(kind::ANCHOR_TIME) });
                unit = field(kind::ANCHOR_UNIT);
            }
            if matches!(kind, kind::ANCHOR | kind::UNUSED) {
                index += 1;
                continue;
            }
            let more = slot[at::MORE] as usize;
            let rest = slots.get(index + 1..index + 1 + more).filter(|_| kind == kind::FIRST);
            let whole = rest.filter(|rest| {
                let mut expected = (1..).map(|further| (ordinal.wrapping_add(further), kind::FURTHER));
                rest.iter().all(|slot| expected.next() == Some(ordinal_of(slot)))
            });
            // A recording of the last slots may begin within a record, and slots may have been lost.
            let Some(rest) = whole else {
                self.torn += 1;
                index += 1;
                continue;
            };
            let words: Vec<u64> =
                rest.iter().flat_map(|slot| (1..=PAYLOAD_WORDS).map(|place| word(slot, 8 * place))).collect();
            let ticks = word(slot, at::TICKS);
            index += 1 + more;
            if slot[at::FUNCTION] == FUNCTION_OF_NONE {
                ordered.push((ticks, frames::read(slot, &words).ok_or(ReadError::Record(ordinal))?));
                continue;
            }
            let (record, time) = record(slot, &words).ok_or(ReadError::Record(ordinal))?;
            pairs.extend(time.map(|time| Pair { ticks, time }));
            if half(slot, at::RESULT) & RETURNED == 0 {
                ordered.push((ticks, Entry::Record(record)));
            } else {
                let (call, returned) = parted(record).ok_or(ReadError::Record(ordinal))?;
                ordered.extend([(ticks, Entry::Record(call)), (ticks, Entry::Record(returned))]);
            }
        }
        // Those of the same ticks stay in the order of their slots.
        ordered.sort_by_key(|(ticks, _)| *ticks);
        let clock = Clock::new(pairs, unit);
        frames::part(self, ordered.into_iter().map(|(ticks, entry)| (clock.time(ticks), entry)));
        Ok(())
    }

    /// The words of a finding of the adviser by this rule (`SN0025`), with the objects called as a timeline of the recording calls them. As
    /// they are, if the recording does not have the finding.
    #[must_use]
    pub fn in_its_names(&self, rule: &str, words: &str) -> String {
        let names = Names::of(self);
        let is_it = |found: &&Found| format!("SN{:04}", found.finding) == rule && words.contains(&found.seen);
        let abouts = found::abouts(self, &names);
        let about = self.findings.iter().zip(abouts).find(|(found, _)| is_it(found)).and_then(|(_, about)| about);
        about.map_or_else(|| words.to_owned(), |about| names.in_words(about.adapter, words))
    }

    /// When it begins and ends.
    #[must_use]
    pub fn times(&self) -> (u64, u64) {
        let of_frames = self.frames.iter().map(|frame| frame.time);
        let aside = of_frames.chain(self.findings.iter().map(|found| found.time));
        let times = || self.records.iter().map(|record| record.time).chain(aside.clone());
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    }
}

/// The ordinal of a slot, and its kind.
fn ordinal_of(slot: &[u8]) -> (u64, u64) {
    let both = word(slot, at::ORDINAL);
    (both & ((1 << KIND_SHIFT) - 1), both >> KIND_SHIFT)
}

/// The call and the return of a record that is both.
fn parted(record: Record) -> Option<(Record, Record)> {
    if record.phase != Phase::Call {
        return None;
    }
    let mut call = Record { outcome: Outcome::None, ..record.clone() };
    if let Arguments::GetCqResults { results, .. } = &mut call.arguments {
        results.clear();
    }
    Some((call, Record { phase: Phase::Return, ..record }))
}

/// A record, and the time if it says so.
fn record(slot: &[u8], words: &[u64]) -> Option<(Record, Option<u64>)> {
    let outcome = number(slot, at::OUTCOME);
    let outcome = match half(slot, at::RESULT) >> OUTCOME_SHIFT & 3 {
        0 => Outcome::None,
        1 => Outcome::Status(NtStatus(outcome.cast_signed())),
        2 => Outcome::Count(outcome),
        _ => Outcome::Token(outcome),
    };
    let phase = match slot[at::PHASE] & 3 {
        0 => Phase::Call,
        1 => Phase::Return,
        2 => Phase::Callback,
        _ => Phase::CallbackReturn,
    };
    let (function, flags, ordinal) =
        (*Function::ALL.get(usize::from(slot[at::FUNCTION]))?, slot[at::FLAGS], ordinal_of(slot).0);
    let mut record = Record {
        ordinal,
        time: 0,
        call: OF_RECORD | ordinal,
        object: number(slot, at::OBJECT),
        created: 0,
        created_kind: NDK_OBJECT_TYPE((slot[at::PHASE] >> 2).into()),
        created_number: 0,
        related: [0; 3],
        outcome,
        thread: number(slot, at::THREAD),
        processor: half(slot, at::PROCESSOR),
        adapter: slot[at::ADAPTER],
        phase,
        function,
        irql: flags >> IRQL_SHIFT,
        has_completion: flags & FLAG_COMPLETION != 0,
        lacks_place: flags & FLAG_NO_PLACE != 0,
        arguments: Arguments::None,
    };
    if slot[at::ARGS] >= tag::SHORT_TRANSFER {
        let short = ([0, 8, 16].map(|place| word(slot, at::SHORT + place)), half(slot, at::EXTRA));
        record.arguments = Arguments::read_short(slot[at::ARGS], function, outcome, short, words)?;
        return Some((record, None));
    }
    let (time, words) = match words {
        [time, words @ ..] if flags & FLAG_TIME != 0 => (Some(*time), words),
        _ => (None, words),
    };
    record.call = word(slot, at::CALL);
    record.created = number(slot, at::CREATED);
    record.created_number = half(slot, at::EXTRA);
    record.related = [0, 4, 8].map(|place| number(slot, at::RELATED + place));
    record.arguments = Arguments::read(slot[at::ARGS], words)?;
    Some((record, time))
}

#[cfg(test)]
mod tests {
    use recorder::format::Header;

    use super::{
        Function, KIND_SHIFT, NtStatus, OUTCOME_SHIFT, Outcome, Phase, RETURNED, ReadError, Recording, SLOT_BYTES, at,
        kind, tag,
    };
    use crate::{Arguments, seal};

    type Slot = [u8; SLOT_BYTES];

    fn slot(ordinal: u64, kind: u64, words: [u64; 3]) -> Slot {
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(&(ordinal | kind << KIND_SHIFT).to_le_bytes());
        for (place, word) in slot[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        slot
    }

    /// An arm that has returned, or a poll that found so many results.
    fn record(ordinal: u64, ticks: u64, function: Function, count: u32) -> Slot {
        let mut slot = slot(ordinal, kind::FIRST, [ticks, 0, 0]);
        let (args, kind) = if function == Function::ArmCq { (tag::SHORT_ARM, 0) } else { (tag::SHORT_POLL, 2) };
        (slot[at::FUNCTION], slot[at::ARGS]) = (function as u8, args);
        slot[at::OUTCOME..][..4].copy_from_slice(&count.to_le_bytes());
        let result: u16 = kind << OUTCOME_SHIFT | RETURNED;
        slot[at::RESULT..][..2].copy_from_slice(&result.to_le_bytes());
        slot
    }

    fn read(slots: &[Slot]) -> Result<Recording, ReadError> {
        let header = Header { slots: slots.len() as u64, first: 0, lost: 0, processors: 2 };
        Recording::read(&seal(header.to_bytes().to_vec(), slots))
    }

    #[test]
    fn records_of_several_processors_are_in_the_order_of_their_ticks() {
        let slots = [
            slot(0, kind::ANCHOR, [1000, 10, 0]),
            record(1, 1000, Function::ArmCq, 0),
            record(2, 4000, Function::GetCqResults, 0),
            slot(16, kind::ANCHOR, [3000, 30, 0]),
            record(17, 2000, Function::GetCqResultsEx, 1),
            record(18, 4000, Function::ArmCq, 0),
        ];
        let records = read(&slots).expect("a recording").records;
        let found: Vec<_> = records.iter().map(|record| (record.ordinal, record.phase, record.time)).collect();
        let both = |ordinal, time| [(ordinal, Phase::Call, time), (ordinal, Phase::Return, time)];
        assert_eq!(
            found,
            [both(1, 10), both(17, 20), both(2, 40), both(18, 40)].concat(),
            "a call and its return together"
        );
        assert_eq!(records[3].outcome, Outcome::Count(1));
        let Arguments::GetCqResults { extended: true, results, .. } = &records[3].arguments else {
            panic!("{:?}", records[3])
        };
        assert_eq!(results.iter().map(|result| result.status).collect::<Vec<_>>(), [NtStatus::SUCCESS]);
    }

    #[test]
    fn a_poll_of_more_results_than_there_are_cannot_be() {
        assert!(read(&[record(0, 0, Function::GetCqResults, 1)]).is_ok());
        assert_eq!(read(&[record(0, 0, Function::GetCqResults, 2)]), Err(ReadError::Record(0)));
        assert_eq!(read(&[record(0, 0, Function::GetCqResults, u32::MAX)]), Err(ReadError::Record(0)));
    }

    #[test]
    fn what_was_not_written_is_left_out_and_a_part_of_a_record_is_counted() {
        let slots = [slot(0, kind::UNUSED, [7; 3]), slot(1, kind::FURTHER, [7; 3]), record(2, 0, Function::ArmCq, 0)];
        let recording = read(&slots).expect("a recording");
        assert_eq!((recording.records.len(), recording.torn), (2, 1));
    }
}
