//! Reads a recording. Whatever the bytes are, the answer is a recording or one line.

use std::{cmp::Reverse, fmt};

use interpose::{Function, Phase};
use ndkpi::{NDK_OBJECT_TYPE, NtStatus};
use recorder::format::{
    Checksum, FLAG_COMPLETION, FLAG_NO_PLACE, FLAG_RETURNED, FURTHER, HEADER_BYTES, MAGIC, PAYLOAD_WORDS, SLOT_BYTES,
    TICKS_PER_SECOND, VERSION, at,
};

use crate::Arguments;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// In the order in which it happened.
    pub records: Vec<Record>,
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
                "the recording has version {version} of the format, this program reads {VERSION}: use the ndkctl that made it"
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

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, ReadError> {
        if bytes.len() < 16 || bytes[..8] != MAGIC {
            return Err(ReadError::NotARecording);
        }
        let version = number(bytes, 8);
        if version != VERSION {
            return Err(ReadError::Version(version));
        }
        let slots = word(bytes, 16);
        let found = bytes.len() as u64;
        let body = slots.checked_mul(SLOT_BYTES as u64);
        let expected = body.and_then(|body| body.checked_add(HEADER_BYTES as u64 + 8)).unwrap_or(u64::MAX);
        if expected != found || number(bytes, 12) as usize != HEADER_BYTES || word(bytes, 40) != TICKS_PER_SECOND {
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
            first: word(bytes, 24),
            lost: word(bytes, 32),
            torn: 0,
            processors: number(bytes, 48),
        };
        recording.take(&slots)?;
        Ok(recording)
    }

    fn take(&mut self, slots: &[&[u8]]) -> Result<(), ReadError> {
        let (mut index, mut ordered) = (0, Vec::new());
        while let Some(slot) = slots.get(index) {
            let ordinal = word(slot, at::ORDINAL);
            let more = slot[at::MORE] as usize;
            let rest = slots.get(index + 1..index + 1 + more).filter(|_| ordinal & FURTHER == 0);
            let whole = rest.filter(|rest| {
                let mut expected = (1..).map(|further| ordinal.wrapping_add(further) | FURTHER);
                rest.iter().all(|slot| expected.next() == Some(word(slot, at::ORDINAL)))
            });
            // A recording of the last slots may begin within a record, and slots may have been lost.
            let Some(rest) = whole else {
                self.torn += 1;
                index += 1;
                continue;
            };
            let words: Vec<u64> =
                rest.iter().flat_map(|slot| (1..=PAYLOAD_WORDS).map(|place| word(slot, 8 * place))).collect();
            let record = record(slot, &words).ok_or(ReadError::Record(ordinal))?;
            if slot[at::FLAGS] & FLAG_RETURNED == 0 {
                ordered.push((Place { ordinal, is_there: true, begun: Reverse(ordinal) }, record));
            } else {
                let (call, returned) = parted(record).ok_or(ReadError::Record(ordinal))?;
                let next = ordinal.wrapping_add(u16::from_le_bytes([slot[at::AFTER], slot[at::AFTER + 1]]).into());
                ordered.push((Place { ordinal, is_there: true, begun: Reverse(ordinal) }, call));
                ordered.push((Place { ordinal: next, is_there: false, begun: Reverse(ordinal) }, returned));
            }
            index += 1 + more;
        }
        ordered.sort_by_key(|(place, _)| *place);
        self.records = ordered.into_iter().map(|(_, record)| record).collect();
        Ok(())
    }

    /// When it begins and ends.
    #[must_use]
    pub fn times(&self) -> (u64, u64) {
        let times = || self.records.iter().map(|record| record.time);
        (times().min().unwrap_or(0), times().max().unwrap_or(0))
    }
}

/// Where a record belongs: in the order of the slots. The return of a call that has no slot of its own comes before the slot that was
/// next then; of several such, what was called last returns first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    ordinal: u64,
    /// It has the slot.
    is_there: bool,
    begun: Reverse<u64>,
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

fn record(slot: &[u8], words: &[u64]) -> Option<Record> {
    let outcome = number(slot, at::OUTCOME);
    let outcome = match slot[at::OUTCOME_KIND] {
        0 => Outcome::None,
        1 => Outcome::Status(NtStatus(outcome.cast_signed())),
        2 => Outcome::Count(outcome),
        3 => Outcome::Token(outcome),
        _ => return None,
    };
    let phase = match slot[at::PHASE] & 3 {
        0 => Phase::Call,
        1 => Phase::Return,
        2 => Phase::Callback,
        _ => Phase::CallbackReturn,
    };
    Some(Record {
        ordinal: word(slot, at::ORDINAL),
        time: word(slot, at::TIME),
        call: word(slot, at::CALL),
        object: number(slot, at::OBJECT),
        created: number(slot, at::CREATED),
        created_kind: NDK_OBJECT_TYPE((slot[at::PHASE] >> 2).into()),
        related: [at::RELATED, at::RELATED + 4, at::RELATED_LAST].map(|place| number(slot, place)),
        outcome,
        thread: number(slot, at::THREAD),
        processor: u16::from_le_bytes([slot[at::PROCESSOR], slot[at::PROCESSOR + 1]]),
        adapter: slot[at::ADAPTER],
        phase,
        function: *Function::ALL.get(usize::from(slot[at::FUNCTION]))?,
        irql: slot[at::IRQL],
        has_completion: slot[at::FLAGS] & FLAG_COMPLETION != 0,
        lacks_place: slot[at::FLAGS] & FLAG_NO_PLACE != 0,
        arguments: Arguments::read(slot[at::ARGS], words)?,
    })
}
