//! What went over wires: frames, and the numbers that queue pairs have there.

use std::collections::HashMap;

use interpose::{Function, Phase};
use recorder::format::{BYTES_IN_FIRST, MOST_FRAME, at, tag};

use crate::{
    Found, Record, Recording, found,
    read::{half, number, word},
};

/// An Ethernet frame that an adapter has sent, or that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When, in units of 100 nanoseconds.
    pub time: u64,
    /// How many records come before it.
    pub place: usize,
    /// The number of the wire, from 1.
    pub wire: u8,
    /// It came in; otherwise the adapter has sent it.
    pub came_in: bool,
    /// Bytes that it had.
    pub length: u32,
    /// Its bytes, without a frame check sequence: all of them, unless it was longer than any of Ethernet.
    pub bytes: Vec<u8>,
    /// The processor.
    pub processor: u16,
}

/// The number that a queue pair has on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// How many records come before it is known.
    pub place: usize,
    /// The number of the wire, from 1.
    pub wire: u8,
    /// The number.
    pub number: u32,
    /// The queue pair.
    pub qp: u32,
}

/// What stands in a recording.
pub enum Entry {
    Record(Record),
    Frame(Frame),
    Found(Found),
    /// The queue pair of the call that goes on in a thread has a number.
    Number {
        wire: u8,
        number: u32,
        thread: u32,
    },
}

/// An entry of no call. `None` if it cannot be.
pub fn read(slot: &[u8], words: &[u64]) -> Option<Entry> {
    if slot[at::ARGS] == tag::FINDING {
        return found::read(slot, words).map(Entry::Found);
    }
    let wire = slot[at::ADAPTER];
    if slot[at::ARGS] == tag::WIRE_NUMBER {
        return Some(Entry::Number { wire, number: number(slot, at::SHORT), thread: number(slot, at::THREAD) });
    }
    let both = word(slot, at::SHORT);
    let length = u32::try_from(both & 0xFFFF_FFFF).ok().filter(|_| slot[at::ARGS] == tag::FRAME)?;
    let bytes = bytes(slot, words, (length as usize).min(MOST_FRAME))?;
    let processor = half(slot, at::PROCESSOR);
    Some(Entry::Frame(Frame { time: 0, place: 0, wire, came_in: both >> 32 & 1 != 0, length, bytes, processor }))
}

/// So many bytes of an entry. `None` if they are not there.
pub fn bytes(slot: &[u8], words: &[u64], count: usize) -> Option<Vec<u8>> {
    let first = slot.get(at::SHORT + 8..)?.get(..BYTES_IN_FIRST)?;
    let rest: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    [first, &rest].concat().get(..count).map(<[u8]>::to_vec)
}

/// Puts entries, which are in order, with their times where they belong in a recording.
pub fn part(recording: &mut Recording, entries: impl Iterator<Item = (u64, Entry)>) {
    // The queue pair of the call that goes on in each thread.
    let mut calls: HashMap<u32, u32> = HashMap::new();
    for (time, entry) in entries {
        let place = recording.records.len();
        match entry {
            Entry::Record(record) => {
                if connects(record.function) {
                    match record.phase {
                        Phase::Call => drop(calls.insert(record.thread, record.related[0])),
                        Phase::Return => drop(calls.remove(&record.thread)),
                        Phase::Callback | Phase::CallbackReturn => {}
                    }
                }
                recording.records.push(Record { time, ..record });
            }
            Entry::Frame(frame) => recording.frames.push(Frame { time, place, ..frame }),
            Entry::Found(found) => recording.findings.push(Found { time, place, ..found }),
            Entry::Number { wire, number, thread } => {
                if let Some(qp) = calls.get(&thread) {
                    recording.numbers.push(Number { place, wire, number, qp: *qp });
                }
            }
        }
    }
}

/// Returns true for the calls that make a queue pair a part of a connection.
const fn connects(function: Function) -> bool {
    matches!(function, Function::Connect | Function::ConnectWithSharedEndpoint | Function::Accept | Function::AcceptEx)
}
