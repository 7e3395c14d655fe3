//! A call as it came, and the answer as it is put together.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use ndkpi::NtStatus;

use crate::wire::{ANSWER_HEAD, ANSWER_WORDS, AnswerHead, CallHead, Carried};

/// A call.
pub struct Incoming<'c> {
    /// Its head.
    pub head: CallHead,
    /// The rest.
    pub tail: &'c [u8],
}

impl<'c> Incoming<'c> {
    /// The call in these bytes, if they are one.
    pub fn read(bytes: &'c [u8]) -> Option<Self> {
        let (head, tail) = CallHead::read_from_prefix(bytes).ok()?;
        Some(Self { head, tail })
    }

    /// An argument.
    pub fn word(&self, index: usize) -> u64 {
        self.head.words[index].get()
    }

    /// An argument of 32 bits.
    pub fn number(&self, index: usize) -> Result<u32, Carried> {
        u32::try_from(self.word(index)).map_err(|_| Carried::Malformed)
    }

    /// An argument that is a size.
    pub fn size(&self, index: usize) -> Result<usize, Carried> {
        usize::try_from(self.word(index)).map_err(|_| Carried::Malformed)
    }

    /// Whether something is there.
    pub fn given(&self, bit: u32) -> bool {
        self.head.given.get() >> bit & 1 != 0
    }

    /// The values that the tail begins with, and what follows them.
    pub fn values<T: FromBytes + Immutable + KnownLayout + Unaligned>(
        &self,
        count: usize,
    ) -> Result<(&'c [T], &'c [u8]), Carried> {
        <[T]>::ref_from_prefix_with_elems(self.tail, count).map_err(|_| Carried::Malformed)
    }
}

/// An answer.
pub struct Reply<'a> {
    bytes: &'a mut [u8],
    words: [u64; ANSWER_WORDS],
    length: usize,
}

impl<'a> Reply<'a> {
    /// An answer in these bytes; `None` if there are too few for any.
    pub fn new(bytes: &'a mut [u8]) -> Option<Self> {
        (bytes.len() >= ANSWER_HEAD).then_some(Self { bytes, words: [0; ANSWER_WORDS], length: ANSWER_HEAD })
    }

    /// Sets what the function has stored.
    pub fn set(&mut self, index: usize, value: impl Into<u64>) {
        self.words[index] = value.into();
    }

    /// So many more bytes, to be filled.
    pub fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        let end = self.length.checked_add(length)?;
        let room = self.bytes.get_mut(self.length..end)?;
        self.length = end;
        Some(room)
    }

    /// More bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Carried> {
        self.room(bytes.len()).ok_or(Carried::Malformed)?.copy_from_slice(bytes);
        Ok(())
    }

    /// The bytes of the answer, once it is finished.
    pub fn finish(self, outcome: Result<NtStatus, Carried>) -> usize {
        let (carried, status, length) = match outcome {
            Ok(status) => (Carried::Out, status, self.length),
            Err(carried) => (carried, NtStatus::UNSUCCESSFUL, ANSWER_HEAD),
        };
        let head = AnswerHead {
            carried: (carried as u32).into(),
            status: status.to_bits().into(),
            words: self.words.map(Into::into),
        };
        self.bytes[..ANSWER_HEAD].copy_from_slice(head.as_bytes());
        length
    }
}
