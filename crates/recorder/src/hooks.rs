//! The hooks that record.

use core::{ptr, slice};

use fallible::Arc;
use interpose::{Args, Event, Hooks, InterposeOs, ObjectId, OutArgs, Outcome, Phase, Verdict};
use ndkpi::{NDK_ADAPTER_INFO, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NtStatus};

use crate::{
    encode::{Beside, Count, encode},
    format::{FLAG_COMPLETION, FLAG_NO_PLACE, MOST_BYTES, MOST_MORE, MOST_PAGES, PAYLOAD_WORDS},
    ring::Ring,
};

/// What is kept of an object: its number in the recording, which no other object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Counts from 1, adapters included.
    pub object: u32,
    /// The number of its adapter, from 1.
    pub adapter: u8,
}

/// Hooks that write into a [`Ring`], which several adapters can share.
pub struct Recorder<O> {
    os: O,
    ring: Arc<Ring>,
}

impl<O: InterposeOs> Recorder<O> {
    /// Records into this ring.
    pub const fn new(os: O, ring: Arc<Ring>) -> Self {
        Self { os, ring }
    }

    /// Where the records go.
    #[must_use]
    pub const fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    fn next(&self, adapter: u8) -> State {
        State { object: self.ring.next_object(), adapter }
    }

    fn record(&self, event: &Event<'_, State>) {
        // SAFETY: the event is of a call that goes on.
        let beside = unsafe { self.beside(event) };
        let mut words = Count::default();
        let tag = encode(&event.args, &beside, &mut words);
        let more = words.0.div_ceil(PAYLOAD_WORDS).min(MOST_MORE);
        let mut writer = self.ring.begin(more);
        for word in head(event, tag, more) {
            writer.put(word);
        }
        encode(&event.args, &beside, &mut writer);
    }

    /// What the arguments point to, as far as it is recorded.
    ///
    /// # Safety
    ///
    /// The event is of a call or callback that goes on: what its arguments name is there.
    unsafe fn beside<'a>(&self, event: &Event<'a, State>) -> Beside<'a> {
        let succeeded = event.phase == Phase::Return && event.outcome == Outcome::Status(NtStatus::SUCCESS);
        match event.args {
            Args::RegisterMr { mdl, .. } | Args::BuildLam { mdl, .. } if event.phase == Phase::Call => {
                // SAFETY: the consumer's MDL is valid until its call returns (`NDKPI 7.4`, `NDKPI 7.5`).
                let base = unsafe { self.os.mdl_base(ptr::with_exposed_provenance(mdl)) };
                let base = base.unwrap_or(0);
                Beside { base, ..Beside::default() }
            }
            Args::ReleaseLam { mapping } if event.phase == Phase::Call => {
                // SAFETY: the consumer gives a mapping that was built and not released (`NDKPI 7.5`).
                Beside { pages: unsafe { pages_of(mapping) }, ..Beside::default() }
            }
            Args::Address { out } | Args::GetConnectionData { out, .. } if succeeded => {
                // SAFETY: the provider has just stored so many bytes there.
                Beside { bytes: unsafe { bytes_of(out) }, ..Beside::default() }
            }
            _ => Beside::default(),
        }
    }
}

/// The pages of a mapping.
///
/// # Safety
///
/// `mapping` is 0 or the address of a mapping that was built and stays as long as the result is used.
unsafe fn pages_of<'a>(mapping: usize) -> &'a [NDK_LOGICAL_ADDRESS] {
    let mapping = ptr::with_exposed_provenance_mut::<NDK_LOGICAL_ADDRESS_MAPPING>(mapping);
    if mapping.is_null() || !mapping.is_aligned() {
        return &[];
    }
    // SAFETY: a mapping (the caller's promise).
    let count = unsafe { (*mapping).AdapterPageCount };
    // SAFETY: as above.
    let first = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(mapping) };
    // SAFETY: a mapping has as many addresses as it says, the first of them there.
    unsafe { slice::from_raw_parts(first, (count as usize).min(MOST_PAGES)) }
}

/// What the provider has stored.
///
/// # Safety
///
/// The provider has just stored as many bytes in the buffer as it says, and they stay as long as the result is used.
unsafe fn bytes_of<'a>(out: OutArgs) -> &'a [u8] {
    let buffer = ptr::with_exposed_provenance::<u8>(out.buffer);
    let length = out.length.unwrap_or(0) as usize;
    if buffer.is_null() || length > MOST_BYTES {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(buffer, length) }
}

/// The first slot, after its ordinal.
fn head(event: &Event<'_, State>, tag: u8, more: usize) -> [u64; PAYLOAD_WORDS] {
    let number = |state: Option<&State>| state.map_or(0, |state| state.object);
    let related = event.related.map(|related| number(related.map(|object| object.state)));
    let created = event.created.map_or(0, |created| created.state.object);
    let created_kind = event.created.map_or(0, |created| low_byte(created.id.kind.0.cast_unsigned()));
    let (outcome_kind, outcome) = match event.outcome {
        Outcome::None => (0, 0),
        Outcome::Status(status) => (1, status.0.cast_unsigned()),
        Outcome::Count(count) => (2, count),
        Outcome::Token(token) => (3, token),
    };
    let phase: u64 = match event.phase {
        Phase::Call => 0,
        Phase::Return => 1,
        Phase::Callback => 2,
        Phase::CallbackReturn => 3,
    };
    let flags = event.request.map_or(0, |request| {
        let completion = if request.has_completion { FLAG_COMPLETION } else { 0 };
        completion | if request.lacks_place { FLAG_NO_PLACE } else { 0 }
    });
    let processor = event.place.processor.to_le_bytes();
    let thread = event.place.thread as u64;
    #[expect(clippy::cast_possible_truncation, reason = "equal threads have equal numbers all the same")]
    let thread = (thread ^ thread >> 32) as u32;
    let small = |bytes: [u8; 8]| u64::from_le_bytes(bytes);
    [
        event.place.time,
        event.call,
        two(event.object.state.object, created),
        two(related[0], related[1]),
        two(related[2], outcome),
        u64::from(thread)
            | u64::from(u16::from_le_bytes([processor[0], processor[1]])) << 32
            | u64::from(event.object.state.adapter) << 48
            | phase << 56,
        small([
            event.function as u8,
            event.place.irql,
            outcome_kind,
            low_byte(u32::try_from(more).unwrap_or(u32::MAX)),
            created_kind,
            flags,
            tag,
            0,
        ]),
    ]
}

const fn low_byte(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

const fn two(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl<O: InterposeOs> Hooks for Recorder<O> {
    type Os = O;
    type State = State;

    fn os(&self) -> &O {
        &self.os
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<State, NtStatus> {
        Ok(self.next(self.ring.next_adapter()))
    }

    fn object(&self, event: &Event<'_, State>, _: ObjectId) -> Result<State, NtStatus> {
        Ok(self.next(event.object.state.adapter))
    }

    fn event(&self, event: &Event<'_, State>) -> Verdict {
        if self.ring.is_on() {
            self.record(event);
        }
        Verdict::Forward
    }
}
