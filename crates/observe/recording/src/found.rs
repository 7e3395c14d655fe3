//! What an adviser has found while it was recorded, and which object of the recording that is about.

use std::collections::HashMap;

use interpose::{Function, Phase};
use ndkpi::NDK_OBJECT_TYPE;
use recorder::format::at;

use crate::{
    Record, Recording,
    frames::bytes,
    read::{half, number, word},
    timeline::Names,
};

/// A finding of the adviser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// When, in units of 100 nanoseconds.
    pub time: u64,
    /// How many records come before it.
    pub place: usize,
    /// Its number: 3 for `SN0003`.
    pub finding: u16,
    /// The type of the object.
    pub kind: NDK_OBJECT_TYPE,
    /// What was called.
    pub function: Function,
    /// What was seen.
    pub seen: String,
    /// The thread.
    pub thread: u32,
    /// The processor.
    pub processor: u16,
    /// The adviser stood in front of the recorder: the record of the call may come behind the finding.
    pub in_front: bool,
}

/// A finding. `None` if it cannot be.
pub fn read(slot: &[u8], words: &[u64]) -> Option<Found> {
    let about = word(slot, at::SHORT);
    let part = |shift: u32, bits: u32| about >> shift & ((1 << bits) - 1);
    let seen = String::from_utf8(bytes(slot, words, usize::try_from(part(32, 31)).ok()?)?).ok()?;
    Some(Found {
        time: 0,
        place: 0,
        finding: u16::try_from(part(0, 16)).ok()?,
        kind: NDK_OBJECT_TYPE(i32::try_from(part(16, 8)).ok()?),
        function: *Function::ALL.get(usize::try_from(part(24, 8)).ok()?)?,
        seen,
        thread: number(slot, at::THREAD),
        processor: half(slot, at::PROCESSOR),
        in_front: part(63, 1) != 0,
    })
}

/// Of each finding the record of the call or callback in which it was made, as far as that is in the recording.
fn calls(recording: &Recording) -> Vec<Option<&Record>> {
    // Of each thread what goes on in it, the innermost last, and what it did last.
    let mut open: HashMap<u32, Vec<&Record>> = HashMap::new();
    let mut before: HashMap<u32, &Record> = HashMap::new();
    let mut findings = recording.findings.iter().peekable();
    let mut calls = Vec::with_capacity(recording.findings.len());
    for place in 0..=recording.records.len() {
        while let Some(found) = findings.next_if(|found| found.place <= place) {
            let is_it = |record: &&Record| record.function == found.function;
            let goes_on = open.get(&found.thread).and_then(|open| open.iter().rev().copied().find(is_it));
            let last = || before.get(&found.thread).copied().filter(is_it);
            let next = || {
                let mut rest = recording.records.iter().skip(place);
                rest.find(|record| record.thread == found.thread).filter(is_it)
            };
            // A post or arm has one record with its return, written when it begins, a poll one that is written when it returns.
            let comes = found.in_front || found.function.is_poll();
            calls.push(goes_on.or_else(|| if comes { next().or_else(last) } else { last().or_else(next) }));
        }
        let Some(record) = recording.records.get(place) else { continue };
        before.insert(record.thread, record);
        let open = open.entry(record.thread).or_default();
        match record.phase {
            Phase::Call | Phase::Callback => open.push(record),
            Phase::Return | Phase::CallbackReturn => {
                let is_callback = record.phase == Phase::CallbackReturn;
                let began = open.iter().rposition(|one| {
                    one.call == record.call
                        && one.adapter == record.adapter
                        && (one.phase == Phase::Callback) == is_callback
                });
                if let Some(began) = began {
                    open.remove(began);
                }
            }
        }
    }
    calls
}

/// What a finding is about.
#[derive(Clone, Copy)]
pub struct About {
    /// The adapter of the call.
    pub adapter: u8,
    /// The object: one of its type that the call was given, or that belongs to what it was given.
    pub object: Option<u32>,
}

/// Of each finding what it is about; nothing if its call is not in the recording.
pub fn abouts(recording: &Recording, names: &Names) -> Vec<Option<About>> {
    let of_call = |found: &Found, call: &Record| {
        let [first, second, third] = call.related;
        let given = [call.object, first, second, third, call.created];
        let is_it = |object: &u32| *object != 0 && names.kind(*object) == Some(found.kind);
        let object = given.into_iter().find(is_it).or_else(|| {
            // A post names a queue pair, and is found to fill its completion queue.
            names.cq(call.object, call.function == Function::Receive).filter(is_it)
        });
        About { adapter: call.adapter, object }
    };
    let calls = calls(recording);
    recording.findings.iter().zip(calls).map(|(found, call)| Some(of_call(found, call?))).collect()
}
