//! The hooks that record.

use core::{ptr, slice};

use fallible::Arc;
use interpose::{Args, Event, Hooks, InterposeOs, ObjectId, OutArgs, Outcome, Phase, Place, Verdict};
use ndkpi::{NDK_ADAPTER_INFO, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NtStatus};

use crate::{
    encode::{Beside, OneSlot, encode, length, words_of_transfer},
    format::{
        FLAG_COMPLETION, FLAG_NO_PLACE, FLAG_RETURNED, MOST_BYTES, MOST_MORE, MOST_PAGES, PAYLOAD_WORDS, at, tag,
    },
    ring::{Recorded, Ring},
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

    /// Writes a record. Returns what its return needs, unless there was no room.
    fn record(&self, event: &Event<'_, State>, number: Number, returned: bool) -> Option<Begun> {
        // SAFETY: the event is of a call that goes on.
        let beside = unsafe { self.beside(event) };
        let (tag, words) = length(&event.args, &beside);
        let more = words.div_ceil(PAYLOAD_WORDS).min(MOST_MORE);
        let place = self.os.place();
        let mut writer = self.ring.begin(more);
        let call = match number {
            Number::Given(call) => call,
            Number::OfRecord => OF_RECORD | writer.ordinal(),
        };
        let words = head(event, &Head { place, call, tag, more, returned });
        let recorded = writer.put_first(&words)?;
        if more == 1 {
            let mut rest = OneSlot::default();
            encode(&event.args, &beside, &mut rest);
            writer.put_slot(&rest.words);
        } else if more > 1 {
            encode(&event.args, &beside, &mut writer);
        }
        Some(Begun { recorded, flags: words[RESULT] })
    }

    /// The commonest record, which has two slots: a transfer with one element, or none. As [`Recorder::record`] writes it, without looking
    /// for what it does not have.
    #[inline]
    fn transfer(&self, event: &Event<'_, State>) -> Option<Begun> {
        let place = self.os.place();
        let mut writer = self.ring.begin(1);
        let call = OF_RECORD | writer.ordinal();
        let recorded = writer.put_first(&head_of_transfer(event, &place, call))?;
        writer.put_slot(&words_of_transfer(&event.args));
        Some(Begun { recorded, flags: 0 })
    }

    /// What is not a post of one element, or a poll that begins.
    #[inline(never)]
    fn other(&self, event: &Event<'_, State>, call: &mut Option<Begun>) {
        let is_of_data_path = event.function.is_of_data_path();
        match event.phase {
            Phase::Return if event.function.is_poll() => {
                let _ = self.record(event, Number::OfRecord, true);
            }
            Phase::Call if is_of_data_path => *call = self.record(event, Number::OfRecord, false),
            Phase::Return if is_of_data_path => self.returned(event, call.as_ref()),
            _ => {
                let _ = self.record(event, Number::Given(event.call), false);
            }
        }
    }

    /// A call has returned: its record says so, and how many slots came meanwhile. If it is not there any more, the return has a record of
    /// its own. Without its call a return says nothing.
    #[inline]
    fn returned(&self, event: &Event<'_, State>, call: Option<&Begun>) {
        let Some(begun) = call else { return };
        let amended = self.ring.amend(&begun.recorded, RESULT, begun.flags, |after| {
            begun.flags | result(event.outcome, FLAG_RETURNED, after)
        });
        if !amended {
            let _ = self.record(event, Number::Given(OF_RECORD | begun.recorded.ordinal), false);
        }
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

/// The number of a call of the data path is that of its record, with this bit.
const OF_RECORD: u64 = 1 << 63;

/// Where a call's number comes from.
#[derive(Clone, Copy)]
enum Number {
    Given(u64),
    OfRecord,
}

/// A call of the data path that was recorded, for its return.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    recorded: Recorded,
    /// The word of its first slot that the return changes.
    flags: u64,
}

/// The word of a first slot, after its ordinal, that says how a call has ended.
const RESULT: usize = at::OUTCOME / 8 - 1;

const fn result(outcome: Outcome, flags: u8, after: u16) -> u64 {
    let (kind, outcome) = match outcome {
        Outcome::None => (0, 0),
        Outcome::Status(status) => (1, status.0.cast_unsigned()),
        Outcome::Count(count) => (2, count),
        Outcome::Token(token) => (3, token),
    };
    outcome as u64 | (after as u64) << 32 | kind << 48 | (flags as u64) << 56
}

/// The first slot of a transfer, as [`head`] makes it.
#[inline]
fn head_of_transfer(event: &Event<'_, State>, place: &Place, call: u64) -> [u64; PAYLOAD_WORDS] {
    [place.time, call, event.object.state.object.into(), 0, 0, runs(event, place), what(event, tag::TRANSFER, 1, place)]
}

/// Where it runs, for which adapter.
#[inline]
fn runs(event: &Event<'_, State>, place: &Place) -> u64 {
    let thread = place.thread as u64;
    (thread ^ thread >> 32) & 0xFFFF_FFFF
        | u64::from(place.processor & 0xFFFF) << 32
        | u64::from(event.object.state.adapter) << 48
}

/// What it is.
#[inline]
fn what(event: &Event<'_, State>, tag: u8, more: u8, place: &Place) -> u64 {
    u64::from(event.function as u8) << 32 | u64::from(tag) << 40 | u64::from(more) << 48 | u64::from(place.irql) << 56
}

/// What of a first slot does not come from the event.
struct Head {
    place: Place,
    call: u64,
    tag: u8,
    more: usize,
    returned: bool,
}

/// The first slot, after its ordinal.
fn head(event: &Event<'_, State>, head: &Head) -> [u64; PAYLOAD_WORDS] {
    let number = |state: Option<&State>| state.map_or(0, |state| state.object);
    let related = event.related.map(|related| number(related.map(|object| object.state)));
    let (created, created_kind) =
        event.created.map_or((0, 0), |created| (created.state.object, low_byte(created.id.kind.0.cast_unsigned())));
    let phase = match event.phase {
        // Its record is that of the call as well.
        _ if head.returned => 0,
        Phase::Call => 0,
        Phase::Return => 1,
        Phase::Callback => 2,
        Phase::CallbackReturn => 3,
    };
    let more = low_byte(u32::try_from(head.more).unwrap_or(u32::MAX));
    let (mut flags, mut after) = (0, 0);
    if head.returned {
        (flags, after) = (FLAG_RETURNED, 1 + u16::from(more));
    }
    if let Some(request) = event.request {
        flags |= if request.has_completion { FLAG_COMPLETION } else { 0 };
        flags |= if request.lacks_place { FLAG_NO_PLACE } else { 0 };
    }
    [
        head.place.time,
        head.call,
        two(event.object.state.object, created),
        two(related[0], related[1]),
        result(event.outcome, flags, after),
        runs(event, &head.place) | u64::from(phase | created_kind << 2) << 56,
        u64::from(related[2]) | what(event, head.tag, more, &head.place),
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
    type Call = Option<Begun>;
    const NUMBERS_ALL: bool = false;

    fn os(&self) -> &O {
        &self.os
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<State, NtStatus> {
        Ok(self.next(self.ring.next_adapter()))
    }

    fn object(&self, event: &Event<'_, State>, _: ObjectId) -> Result<State, NtStatus> {
        Ok(self.next(event.object.state.adapter))
    }

    fn event(&self, event: &Event<'_, State>, call: &mut Option<Begun>) -> Verdict {
        if !self.ring.is_on() {
            return Verdict::Forward;
        }
        match (event.phase, &event.args) {
            (Phase::Call, Args::Transfer { sgl, .. }) if sgl.elements().len() <= 1 => *call = self.transfer(event),
            (Phase::Return, Args::Transfer { .. }) => self.returned(event, call.as_ref()),
            // Its return says what it has found: that is when it took place.
            (Phase::Call, Args::GetCqResults { .. } | Args::GetCqResultsEx { .. }) => {}
            _ => self.other(event, call),
        }
        Verdict::Forward
    }
}
