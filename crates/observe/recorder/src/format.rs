//! The file: a header, slots of 64 bytes, a checksum (`docs/recorder.md`). All numbers are little-endian.
//!
//! A record is one slot, and as many behind it as its arguments need. What is here is part of the format: a number never changes its
//! meaning without a new [`VERSION`].

use zerocopy::{
    FromBytes, Immutable, IntoBytes,
    little_endian::{U32, U64},
};

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"NDKREC\r\n";
/// The version of the format.
pub const VERSION: u32 = 5;
/// The oldest one that can be read as this one: it has nothing that this one has not.
pub const OLDEST: u32 = 4;
/// Bytes of the header.
pub const HEADER_BYTES: usize = size_of::<FileHeader>();
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 64;
/// Words of a slot besides its ordinal.
pub const PAYLOAD_WORDS: usize = SLOT_BYTES / 8 - 1;
/// The bits of a slot's ordinal beside which its [`kind`] stands.
pub const KIND_SHIFT: u32 = 62;

/// What a slot is.
pub mod kind {
    /// The first one of a record.
    pub const FIRST: u64 = 0;
    /// Another one of a record.
    pub const FURTHER: u64 = 1;
    /// A pair of ticks and time: words [`ANCHOR_TICKS`], [`ANCHOR_TIME`], [`ANCHOR_UNIT`].
    pub const ANCHOR: u64 = 2;
    /// Taken and not written: to be left out.
    pub const UNUSED: u64 = 3;

    /// The ticks.
    pub const ANCHOR_TICKS: usize = 0;
    /// The time then.
    pub const ANCHOR_TIME: usize = 1;
    /// How many ticks a unit of time has, if both begin together; else 0.
    pub const ANCHOR_UNIT: usize = 2;
}

/// The number of a call that has a short record, or is of the data path, is that of its record, beside this bit.
pub const OF_RECORD: u64 = 1 << 63;
/// Times are in units of which a second has so many.
pub const TICKS_PER_SECOND: u64 = 10_000_000;
/// Slots behind the first one of a record at most.
pub const MOST_MORE: usize = 255;

/// What stands in the place of the function where a record is of no call: of a wire, the number of which, from 1, stands in the place of the
/// adapter then, or of a finding.
pub const FUNCTION_OF_NONE: u8 = 0xFF;
/// Bytes of a frame, or of the words of a finding, that the first slot has.
pub const BYTES_IN_FIRST: usize = 16;
/// Bytes of a frame that are kept: all of one of Ethernet, jumbo frames included.
pub const MOST_FRAME: usize = BYTES_IN_FIRST + MOST_MORE * 8 * PAYLOAD_WORDS;

/// Elements of a request that are kept; of more only the number is.
pub const MOST_ELEMENTS: usize = 256;
/// Pages of a fast registration or mapping that are kept.
pub const MOST_PAGES: usize = 1024;
/// Results of a poll that are kept.
pub const MOST_RESULTS: usize = 256;
/// Bytes of an address or of private data that are kept.
pub const MOST_BYTES: usize = 1024;

/// What the file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many slots follow.
    pub slots: u64,
    /// The ordinal of the first slot that could be there: how many were written over before it.
    pub first: u64,
    /// Slots that are not there, because somebody wrote there, or that came when there was no more room.
    pub lost: u64,
    /// Processors of the machine.
    pub processors: u32,
}

impl Header {
    /// The header as it is written.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        #[expect(clippy::cast_possible_truncation, reason = "64")]
        let header_bytes = U32::new(HEADER_BYTES as u32);
        zerocopy::transmute!(FileHeader {
            magic: MAGIC,
            version: VERSION.into(),
            header_bytes,
            slots: self.slots.into(),
            first: self.first.into(),
            lost: self.lost.into(),
            ticks_per_second: TICKS_PER_SECOND.into(),
            processors: self.processors.into(),
            reserved: [0; 12],
        })
    }
}

/// A [`Header`] in a file, whatever it says.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct FileHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`HEADER_BYTES`].
    pub header_bytes: U32,
    /// See [`Header`].
    pub slots: U64,
    /// See [`Header`].
    pub first: U64,
    /// See [`Header`].
    pub lost: U64,
    /// [`TICKS_PER_SECOND`].
    pub ticks_per_second: U64,
    /// See [`Header`].
    pub processors: U32,
    reserved: [u8; 12],
}

impl FileHeader {
    /// What `file` begins with. What is behind its end is zero.
    #[must_use]
    pub fn of(file: &[u8]) -> Self {
        let mut bytes = [0; HEADER_BYTES];
        let there = file.len().min(HEADER_BYTES);
        bytes[..there].copy_from_slice(&file[..there]);
        zerocopy::transmute!(bytes)
    }
}

/// The checksum of a file: FNV-1a of all bytes before it, word by word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Checksum {
    /// Takes in more bytes, a multiple of eight.
    pub fn add(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.0 = (self.0 ^ u64::from_le_bytes(padded)).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
        }
    }

    /// The checksum as it is written.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }
}

/// Where the fields of a record are in its first slot, in bytes.
pub mod at {
    /// The number of the slot, counted from 0, and its [`super::kind`]. 8 bytes, of every slot.
    pub const ORDINAL: usize = 0;
    /// When, in ticks. 8 bytes.
    pub const TICKS: usize = 8;
    /// The object. 4 bytes.
    pub const OBJECT: usize = 16;
    /// The thread, as a number that equal threads have. 4 bytes.
    pub const THREAD: usize = 20;
    /// The function: its place in `interpose::Function::ALL`. 1 byte.
    pub const FUNCTION: usize = 24;
    /// The number of the adapter, from 1. 1 byte.
    pub const ADAPTER: usize = 25;
    /// Which arguments there are: a number of [`super::tag`]. 1 byte.
    pub const ARGS: usize = 26;
    /// Slots that follow. 1 byte.
    pub const MORE: usize = 27;
    /// What it is the beginning or end of: 0 call, 1 return, 2 callback, 3 return of a callback; from bit 2 on the type of the object that
    /// was created (`NDKPI 2.1`). 1 byte.
    pub const PHASE: usize = 28;
    /// Bit 0: the request has a completion callback; bit 1: it is a creation without a place for the object; bit 2: the first word
    /// behind the first slot is the time; from bit 4 on the IRQL. 1 byte.
    pub const FLAGS: usize = 29;
    /// The processor. 2 bytes.
    pub const PROCESSOR: usize = 30;
    /// Of a short record: its arguments. 3 words.
    pub const SHORT: usize = 32;
    /// Of any other: what the call, its return and its completion have in common, for one adapter. 8 bytes.
    pub const CALL: usize = 32;
    /// The object that was created, or 0. 4 bytes.
    pub const CREATED: usize = 40;
    /// Three other objects, or 0. 12 bytes.
    pub const RELATED: usize = 44;
    /// The status, number or token. 4 bytes.
    pub const OUTCOME: usize = 56;
    /// Of a short record: more of its arguments. Of any other: the adviser's number of the created object. 2 bytes.
    ///
    /// The number is that of `interpose::ObjectId`. 0: nothing was created, or the number is too large.
    pub const EXTRA: usize = 60;
    /// From bit 12 on what the outcome is: 0 nothing, 1 a status, 2 a number, 3 a token; bit 14: the call has returned, with this
    /// outcome, and has no other record for that. 2 bytes.
    pub const RESULT: usize = 62;
}

/// The request has a completion callback.
pub const FLAG_COMPLETION: u8 = 1;
/// The request is a creation, and there is no place for the object.
pub const FLAG_NO_PLACE: u8 = 2;
/// The first word behind the first slot is the time.
pub const FLAG_TIME: u8 = 4;
/// From this bit on the flags have the IRQL.
pub const IRQL_SHIFT: u32 = 4;

/// From this bit on a result says what the outcome is.
pub const OUTCOME_SHIFT: u32 = 12;
/// In a result: the record is of the call and of its return.
pub const RETURNED: u16 = 1 << 14;

/// In the extra bits of a short transfer: it has an element. The others are its flags.
pub const HAS_ELEMENT: u16 = 1 << 15;

/// Which arguments a record has: those of a short one are in its first slot, and go on behind it; of any other they are behind it, behind
/// the time. All are words of 64 bits.
#[expect(missing_docs, reason = "each is named like the arguments of the crate interpose")]
pub mod tag {
    pub const NONE: u8 = 0;
    pub const QUERY_EXTENSION: u8 = 1;
    pub const QUERY_ADAPTER_INFO: u8 = 2;
    pub const CREATE_CQ: u8 = 3;
    pub const CREATE_SHARED_ENDPOINT: u8 = 4;
    pub const CREATE_LISTENER: u8 = 5;
    pub const BUILD_LAM: u8 = 6;
    pub const RELEASE_LAM: u8 = 7;
    pub const RESIZE_CQ: u8 = 8;
    pub const ARM_CQ: u8 = 9;
    pub const GET_CQ_RESULTS: u8 = 10;
    pub const GET_CQ_RESULTS_EX: u8 = 11;
    pub const MODERATION: u8 = 12;
    pub const TRANSFER: u8 = 13;
    pub const BIND: u8 = 14;
    pub const FAST_REGISTER: u8 = 15;
    pub const INVALIDATE: u8 = 16;
    pub const MODIFY_SRQ: u8 = 17;
    pub const CREATE_MR: u8 = 18;
    pub const CREATE_SRQ: u8 = 19;
    pub const CREATE_QP: u8 = 20;
    pub const REGISTER_MR: u8 = 21;
    pub const INITIALIZE_FAST_REGISTER_MR: u8 = 22;
    pub const ADDRESS: u8 = 23;
    pub const CONNECT: u8 = 24;
    pub const GET_CONNECTION_DATA: u8 = 25;
    pub const LISTEN: u8 = 26;
    pub const CONTROL_CONNECT_EVENTS: u8 = 27;
    pub const EVENT: u8 = 28;
    /// A transfer with one element or none: its context, the address, length and token of the element; behind it the remote address and
    /// token, if there are any.
    pub const SHORT_TRANSFER: u8 = 29;
    /// A poll whose results are successes of one queue pair: its context, and of each result the context, bytes and type. The extra
    /// bits are the room.
    pub const SHORT_POLL: u8 = 30;
    /// An arm: its type.
    pub const SHORT_ARM: u8 = 31;
    /// A frame of a wire: the bytes that it had, and from bit 32 on 1 if it came in; then its bytes, the first sixteen in the first slot.
    pub const FRAME: u8 = 32;
    /// The number on the wire of the queue pair of the call that goes on in the same thread.
    pub const WIRE_NUMBER: u8 = 33;
    /// A finding of the adviser, from version 5 on.
    ///
    /// Its number in 16 bits, the type of the object in 8, the function in 8, and from bit 32 on how many bytes its words have; bit 63 if the
    /// adviser is in front of the recorder. Then the words, the first sixteen bytes in the first slot.
    pub const FINDING: u8 = 34;
}
