//! Numbered slots for values, found in constant time by any number of processors at once.
//!
//! Slots come in chunks, which are made when they are first needed. Each chunk has a lock of its own, and numbers that
//! follow each other lie in different chunks: processors that look up different numbers rarely meet. All locks exist from
//! the beginning, because a look-up without one would need unsafe code to see that a chunk has been made.
//!
//! # Rest
//!
//! A table has `rest` slots more than it takes values, and its free slots form a queue: a slot that is emptied goes to the end. A
//! value goes into the first of them only while there are more than `rest` of them, otherwise into a slot that was never used. So
//! once the queue has had `rest` slots it never has fewer, and each slot that is emptied from then on has at least `rest` others
//! before it: as many values are put in before it is used again. Only the slots that were emptied before, each once, may come
//! back sooner. This holds in every order in which values come and go, and bounds how soon a token repeats ([`super::token`]).
//!
//! Locks: the queue of free slots is locked before a chunk. A look-up locks one chunk and nothing else, one of two values
//! perhaps two, in the order of their numbers.

use alloc::{boxed::Box, vec::Vec};
use core::cmp::Ordering::{Equal, Greater, Less};

use fallible::{AllocError, try_slice};
use ntstatus::NtStatus;

use crate::os::{Os, SpinLock};

/// Slots in one chunk.
const CHUNK: u32 = 64;
/// Numbers that follow each other and lie in as many chunks.
const LANES: u32 = 16;

/// What ends the queue of free slots. It is no number, so that a table of numbers can say "none" with zero.
const NONE: u32 = 0;

struct Slot<T> {
    /// What was noted about the slot. It outlives the values.
    stamp: u32,
    state: State<T>,
}

enum State<T> {
    /// Nothing, and the next free slot.
    Free(u32),
    Taken(T),
}

/// A chunk, or none yet.
type Chunk<T> = Option<Box<[Slot<T>]>>;
type ChunkLock<O, T> = <O as Os>::Lock<Chunk<T>>;

//= invariant 7
/// The free slots, those first that have been free longest.
struct FreeSlots {
    /// Means nothing while the list is empty, as `last` does.
    first: u32,
    last: u32,
    length: u32,
    /// The first number that was never taken. It and those after it are not in the list.
    fresh: u32,
    chunks: u32,
}

impl FreeSlots {
    /// How many slots are not free.
    const fn taken(&self) -> u32 {
        self.fresh - 1 - self.length
    }
}

//= invariant 3
/// A growing table of `T`s with the numbers from one on.
pub struct SlotTable<O: Os, T: Send + 'static> {
    chunks: Vec<ChunkLock<O, T>>,
    /// Chunks in one lane.
    rows: u32,
    /// The largest number.
    largest: u32,
    /// A slot is used again only while more than this number of slots are free.
    rest: u32,
    /// What is added to the index of a chunk for the order of locks: those of this table come after as many others.
    after: usize,
    free: O::Lock<FreeSlots>,
}

impl<O: Os, T: Send + 'static> SlotTable<O, T> {
    /// Room for `capacity` values. A slot that was emptied is left alone while the next `rest` values are put in.
    pub fn try_new(os: &O, capacity: u32, rest: u32) -> Result<Self, NtStatus> {
        Self::try_new_after(None, os, capacity, rest)
    }

    /// [`SlotTable::try_new`] for a table whose chunks are locked together with those of `before`, and after them.
    pub fn try_new_after(before: Option<&Self>, os: &O, capacity: u32, rest: u32) -> Result<Self, NtStatus> {
        let largest = capacity + rest;
        let rows = largest / (CHUNK * LANES) + 1;
        let count = (rows * LANES) as usize;
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(count).map_err(AllocError::from)?;
        for _ in 0..count {
            chunks.push(os.lock(None)?);
        }
        let free = os.lock(FreeSlots { first: NONE, last: NONE, length: 0, fresh: NONE + 1, chunks: 0 })?;
        let after = before.map_or(0, |before| before.after + before.chunks.len());
        Ok(Self { chunks, rows, largest, rest, after, free })
    }

    /// The index of a slot's chunk and where in the chunk the slot lies, for numbers up to the largest.
    #[inline]
    const fn locate(&self, number: u32) -> (usize, usize) {
        let (lane, row) = (number % LANES, number / (LANES * CHUNK));
        ((lane * self.rows + row) as usize, (number / LANES % CHUNK) as usize)
    }

    /// The lock of a slot's chunk, its place in the order of locks, and where in the chunk the slot lies.
    #[inline]
    fn chunk(&self, number: u32) -> Option<(&ChunkLock<O, T>, usize, usize)> {
        if number > self.largest {
            return None;
        }
        let (chunk, slot) = self.locate(number);
        Some((self.chunks.get(chunk)?, self.after + chunk, slot))
    }

    #[inline]
    fn with_slot<U>(&self, number: u32, work: impl FnOnce(&mut Slot<T>) -> U) -> Option<U> {
        let (chunk, _, slot) = self.chunk(number)?;
        chunk.with(|chunk| chunk.as_mut()?.get_mut(slot).map(work))
    }

    /// Works on the value `number` and its slot's stamp, if there is one, under the lock of its chunk.
    ///
    /// Nothing that `work` does may come back to this table, not even by dropping something.
    #[inline]
    pub fn with<U>(&self, number: u32, work: impl FnOnce(&mut u32, &mut T) -> U) -> Option<U> {
        self.with_slot(number, |slot| match &mut slot.state {
            State::Taken(value) => Some(work(&mut slot.stamp, value)),
            State::Free(_) => None,
        })?
    }

    /// Works on two values, if both exist, as [`SlotTable::with`] does on one. They may be the same, and in two tables.
    ///
    /// This is where two chunks are locked at a time: always those of one table before those of the one
    /// [after](SlotTable::try_new_after) it, and in one the one with the lower index first.
    #[inline]
    pub fn with_two<U>(first: (&Self, u32), second: (&Self, u32), work: impl FnOnce(&T, &T) -> U) -> Option<U> {
        fn value<T>(chunk: Option<&[Slot<T>]>, slot: usize) -> Option<&T> {
            match &chunk?.get(slot)?.state {
                State::Taken(value) => Some(value),
                State::Free(_) => None,
            }
        }
        let (one, one_order, first) = first.0.chunk(first.1)?;
        let (other, other_order, second) = second.0.chunk(second.1)?;
        let pair = |one: &Chunk<T>, other: &Chunk<T>| {
            Some(work(value(one.as_deref(), first)?, value(other.as_deref(), second)?))
        };
        match one_order.cmp(&other_order) {
            Equal => one.with(|both| pair(both, both)),
            Less => one.with(|one| other.with(|other| pair(one, other))),
            Greater => other.with(|other| one.with(|one| pair(one, other))),
        }
    }

    /// Puts a value in a free slot, whose number is returned. `make` gets the number and the slot's stamp, and follows the rule
    /// of [`SlotTable::with`].
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there are as many values as there is room for, or no memory for more.
    pub fn insert(&self, make: impl FnOnce(u32, &mut u32) -> T) -> Result<u32, AllocError> {
        let number = self.free.with(|free| {
            if free.taken() >= self.largest - self.rest {
                return Err(AllocError);
            }
            if free.length > self.rest {
                return self.unlink_first(free);
            }
            self.make_chunk(free)?;
            free.fresh += 1;
            Ok(free.fresh - 1)
        })?;
        let done = self.with_slot(number, |slot| slot.state = State::Taken(make(number, &mut slot.stamp)));
        debug_assert!(done.is_some(), "the slot was made before its number was given");
        Ok(number)
    }

    /// Makes the chunk of the first fresh slot, if there is none.
    fn make_chunk(&self, free: &mut FreeSlots) -> Result<(), AllocError> {
        let (chunk, _) = self.locate(free.fresh);
        let Some(chunk) = self.chunks.get(chunk) else { return Err(AllocError) };
        if chunk.with(|chunk| chunk.is_none()) {
            // Nobody else makes chunks: the queue of free slots is locked. A chunk is a few kilobytes of memory, which may be
            // allocated at `DISPATCH_LEVEL`.
            let slots = try_slice(CHUNK as usize, |_| Slot { stamp: 0, state: State::Free(NONE) })?;
            chunk.with(|chunk| *chunk = Some(slots));
            free.chunks += 1;
        }
        Ok(())
    }

    fn unlink_first(&self, free: &mut FreeSlots) -> Result<u32, AllocError> {
        if free.length == 0 {
            return Err(AllocError);
        }
        let number = free.first;
        let next = self.with_slot(number, |slot| match slot.state {
            State::Free(next) => Some(next),
            State::Taken(_) => None,
        });
        let Some(Some(next)) = next else {
            debug_assert!(false, "the queue of free slots names free slots only");
            return Err(AllocError);
        };
        free.first = next;
        free.length -= 1;
        Ok(number)
    }

    /// Takes the value `number` out if it is the one that is `meant`. The caller drops it, without a lock.
    pub fn remove_if(&self, number: u32, meant: impl FnOnce(&T) -> bool) -> Option<T> {
        let value = self.with_slot(number, |slot| {
            match &slot.state {
                State::Taken(value) if meant(value) => {}
                State::Taken(_) | State::Free(_) => return None,
            }
            match core::mem::replace(&mut slot.state, State::Free(NONE)) {
                State::Taken(value) => Some(value),
                State::Free(_) => None,
            }
        })??;
        self.free.with(|free| {
            if free.length == 0 {
                free.first = number;
            } else {
                self.with_slot(free.last, |slot| slot.state = State::Free(number));
            }
            free.last = number;
            free.length += 1;
        });
        Some(value)
    }

    /// How many values there are.
    pub fn taken(&self) -> u32 {
        self.free.with(|free| free.taken())
    }

    /// The bytes of the table itself, without what values own.
    pub fn bytes(&self) -> usize {
        let chunks = self.free.with(|free| free.chunks);
        self.chunks.len() * size_of::<ChunkLock<O, T>>() + chunks as usize * CHUNK as usize * size_of::<Slot<T>>()
    }
}
