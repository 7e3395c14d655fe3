//! The hooks that record.

#![expect(
    clippy::inline_always,
    reason = "where hooks are inlined, what is known of the call leaves little of them; without it the compiler does not"
)]

use core::{ptr, slice};

use fallible::Arc;
use interpose::{Args, Event, Hooks, InterposeOs, ObjectId, OutArgs, Outcome, Phase, Stamp, Verdict};
use ndkpi::{NDK_ADAPTER_INFO, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NtStatus};

use crate::{
    encode::{Beside, encode, length},
    format::{
        FLAG_COMPLETION, FLAG_NO_PLACE, FLAG_TIME, HAS_ELEMENT, IRQL_SHIFT, MOST_BYTES, MOST_MORE, MOST_PAGES,
        MOST_RESULTS, OF_RECORD, OUTCOME_SHIFT, PAYLOAD_WORDS, RETURNED, tag,
    },
    polled::Polled,
    ring::{Anchor, Ring, Room, Writer},
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

    /// Writes a record of any kind. Returns what its return needs, unless there was no room.
    #[inline(never)]
    fn record(&self, event: &Event<'_, State>, call: Option<u64>) -> Option<Begun> {
        // SAFETY: the event is of a call that goes on.
        let beside = unsafe { self.beside(event) };
        let place = self.os.stamp(event.phase);
        let (tag, words) = length(&event.args, &beside);
        let is_of_data_path = event.function.is_of_data_path();
        // It costs a clock, and mostly no slot.
        let has_time = !is_of_data_path && (words != 0 || event.phase == Phase::Call);
        let more = (words + usize::from(has_time)).div_ceil(PAYLOAD_WORDS).min(MOST_MORE);
        let room = self.ring.take(place.processor, 1 + more as u64, || Anchor::now(&self.os))?;
        let call = match call {
            Some(call) => call,
            None if is_of_data_path => OF_RECORD | room.ordinal,
            None => event.call,
        };
        // A poll is recorded when it returns.
        let returned = event.phase == Phase::Return && event.function.is_poll();
        self.ring.put_first(&room, head(event, &place, &Head { call, tag, more, has_time, returned }));
        let mut writer = Writer::new(&self.ring, &room);
        if has_time {
            writer.put(self.os.place().time);
        }
        encode(&event.args, &beside, &mut writer);
        Some(Begun { room, extra: 0 })
    }

    /// Writes a record of which everything but the arguments is what most have.
    #[inline(always)]
    fn short(
        &self,
        event: &Event<'_, State>,
        tag: u8,
        more: usize,
        [first, second, third]: [u64; 3],
        result: u64,
    ) -> Option<Room> {
        let place = self.os.stamp(event.phase);
        let room = self.ring.take(place.processor, 1 + more as u64, || Anchor::now(&self.os))?;
        let words = [place.time, runs(event, &place), what(event, &place, tag, more), first, second, third, result];
        self.ring.put_first(&room, words);
        Some(room)
    }

    /// A transfer begins. Most have a short record: with one element or none, and flags that fit.
    #[inline(always)]
    fn transfer(&self, event: &Event<'_, State>) -> Option<Begun> {
        let Args::Transfer { context, ref sgl, flags, remote_address, remote_token } = event.args else { return None };
        let (address, more, has_element) = match sgl.elements() {
            [element] => {
                (element.logical_address().to_bits(), two(element.Length, element.MemoryRegionToken), HAS_ELEMENT)
            }
            [] if !sgl.is_missing() => (0, 0, 0),
            _ => return self.long(*event),
        };
        if flags >= HAS_ELEMENT.into() {
            return self.long(*event);
        }
        let extra = low_half(flags) | has_element;
        let has_remote = remote_address != 0 || remote_token != 0;
        let words = [context as u64, address, more];
        let room = self.short(event, tag::SHORT_TRANSFER, usize::from(has_remote), words, u64::from(extra) << 32)?;
        if has_remote {
            let words = [remote_address, remote_token.into(), 0, 0, 0, 0, 0];
            self.ring.put_further(room.ordinal + 1, &words);
        }
        Some(Begun { room, extra })
    }

    fn arm(&self, event: &Event<'_, State>, kind: u32) -> Option<Begun> {
        let room = self.short(event, tag::SHORT_ARM, 0, [kind.into(), 0, 0], 0)?;
        Some(Begun { room, extra: 0 })
    }

    /// A record that is not short. The event comes as a copy: where this is called, it need not be in memory otherwise.
    #[cold]
    #[inline(never)]
    fn long(&self, event: Event<'_, State>) -> Option<Begun> {
        self.record(&event, None)
    }

    /// The return of a call has a record of its own.
    #[cold]
    #[inline(never)]
    fn return_of(&self, event: Event<'_, State>, ordinal: u64) {
        let _ = self.record(&event, Some(OF_RECORD | ordinal));
    }

    /// A call has returned: its record says so. If it cannot, the return has a record of its own. Without its call a return says nothing.
    #[inline(always)]
    fn returned(&self, event: &Event<'_, State>, call: Option<&Begun>) {
        let Some(begun) = call else { return };
        if !self.ring.amend(&begun.room, result(event.outcome, true) | u64::from(begun.extra) << 32) {
            self.return_of(*event, begun.room.ordinal);
        }
    }

    /// A poll has returned. That is when it took place, for it says what it has found. Most have a short record: of successes of one
    /// queue pair.
    #[inline(always)]
    fn polled<R: Polled>(&self, event: &Event<'_, State>, room: u32, results: &[R]) {
        let (qp, [context, more], rest) = match results {
            [] => (0, [0; 2], results),
            [first, rest @ ..] => (first.qp(), first.words(), rest),
        };
        let is_short = results.iter().all(|one| one.is_plain() && one.qp() == qp);
        let is_all = u32::try_from(results.len()).is_ok_and(|found| event.outcome == Outcome::Count(found));
        if !is_short || !is_all || room > u16::MAX.into() || results.len() > MOST_RESULTS {
            self.long(*event);
            return;
        }
        let slots = (2 * rest.len()).div_ceil(PAYLOAD_WORDS);
        let result = result(event.outcome, true) | u64::from(room) << 32;
        let place = self.short(event, tag::SHORT_POLL, slots, [qp as u64, context, more], result);
        if let (Some(place), false) = (place, rest.is_empty()) {
            let mut writer = Writer::new(&self.ring, &place);
            rest.iter().flat_map(R::words).for_each(|word| writer.put(word));
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
            Args::ReleaseLam { mapping, .. } if event.phase == Phase::Call => {
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
    // SAFETY: a mapping (`# Safety`).
    let (count, first) = unsafe { ((*mapping).AdapterPageCount, NDK_LOGICAL_ADDRESS_MAPPING::pages(mapping)) };
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
    // SAFETY: the provider has just stored `length` bytes there, and they stay as long as the result is used (`# Safety`).
    unsafe { slice::from_raw_parts(buffer, length) }
}

/// A call of the data path that was recorded, for its return.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    room: Room,
    /// What stands beside its result.
    extra: u16,
}

/// The word of a first slot that says how a call has ended, and if the record is that of its return, too.
const fn result(outcome: Outcome, returned: bool) -> u64 {
    let (kind, outcome) = match outcome {
        Outcome::None => (0, 0),
        Outcome::Status(status) => (1, status.0.cast_unsigned()),
        Outcome::Count(count) => (2, count),
        Outcome::Token(token) => (3, token),
    };
    let result: u16 = kind << OUTCOME_SHIFT | if returned { RETURNED } else { 0 };
    outcome as u64 | (result as u64) << 48
}

/// The object, and the thread.
#[inline]
fn runs(event: &Event<'_, State>, place: &Stamp) -> u64 {
    let thread = place.thread as u64;
    u64::from(event.object.state.object) | (thread ^ thread >> 32) << 32
}

/// What it is, in which adapter, and on which processor: of a call without a completion.
#[inline]
fn what(event: &Event<'_, State>, place: &Stamp, tag: u8, more: usize) -> u64 {
    u64::from(event.function as u8)
        | u64::from(event.object.state.adapter) << 8
        | u64::from(tag) << 16
        | (more as u64) << 24
        | u64::from(place.irql & 0xF) << (40 + IRQL_SHIFT)
        | u64::from(place.processor & 0xFFFF) << 48
}

/// What of a first slot does not come from the event.
struct Head {
    call: u64,
    tag: u8,
    more: usize,
    has_time: bool,
    returned: bool,
}

/// The first slot, after its ordinal, of a record that is not short.
fn head(event: &Event<'_, State>, place: &Stamp, head: &Head) -> [u64; PAYLOAD_WORDS] {
    let number = |state: Option<&State>| state.map_or(0, |state| state.object);
    let related = event.related.map(|related| number(related.map(|object| object.state)));
    let (created, created_kind, created_number) = event.created.map_or((0, 0, 0), |created| {
        let number = u16::try_from(created.id.number).unwrap_or(0);
        (created.state.object, low_byte(created.id.kind.0.cast_unsigned()), number)
    });
    let phase = match event.phase {
        // Its record is that of the call as well.
        _ if head.returned => 0,
        Phase::Call => 0,
        Phase::Return => 1,
        Phase::Callback => 2,
        Phase::CallbackReturn => 3,
    };
    let mut flags = if head.has_time { FLAG_TIME } else { 0 };
    if let Some(request) = event.request {
        flags |= if request.has_completion { FLAG_COMPLETION } else { 0 };
        flags |= if request.lacks_place { FLAG_NO_PLACE } else { 0 };
    }
    [
        place.time,
        runs(event, place),
        what(event, place, head.tag, head.more) | u64::from(phase | created_kind << 2) << 32 | u64::from(flags) << 40,
        head.call,
        two(created, related[0]),
        two(related[1], related[2]),
        result(event.outcome, head.returned) | u64::from(created_number) << 32,
    ]
}

const fn low_byte(value: u32) -> u8 {
    value.to_le_bytes()[0]
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn low_half(value: u32) -> u16 {
    value as u16
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

    fn event(&self, event: &Event<'_, State>, _: &mut Option<Begun>) -> Verdict {
        if self.ring.is_on() {
            let _ = self.record(event, None);
        }
        Verdict::Forward
    }

    #[inline(always)]
    fn data_path(&self, event: &Event<'_, State>, call: &mut Option<Begun>) -> Verdict {
        if !self.ring.is_on() {
            return Verdict::Forward;
        }
        match (event.phase, &event.args) {
            (Phase::Call, Args::Transfer { .. }) => *call = self.transfer(event),
            (Phase::Call, &Args::ArmCq { kind }) => *call = self.arm(event, kind),
            (Phase::Call, Args::GetCqResults { .. } | Args::GetCqResultsEx { .. }) => {}
            (Phase::Call, _) => *call = self.long(*event),
            (_, &Args::GetCqResults { room, results }) => self.polled(event, room, results),
            (_, &Args::GetCqResultsEx { room, results }) => self.polled(event, room, results),
            _ => self.returned(event, call.as_ref()),
        }
        Verdict::Forward
    }
}
