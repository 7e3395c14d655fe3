//! Numbered places for values, found in constant time by any number of processors at once.
//!
//! Places come in chunks, which are made when they are first needed. Each chunk has a lock of its own, and numbers that
//! follow each other lie in different chunks: processors that look up different numbers rarely meet. All locks exist from
//! the beginning, because a look-up without one would need unsafe code to see that a chunk has been made.
//!
//! Locks: the list of free places is locked before a chunk. A look-up locks one chunk and nothing else, one of two values
//! perhaps two, the lower one first.

use alloc::{boxed::Box, vec::Vec};
use core::cmp::Ordering::{Equal, Greater, Less};

use fallible::{AllocError, try_slice};
use ndkpi::NtStatus;

use crate::{
    memory_status,
    os::{Os, SpinLock},
};

/// Places in one chunk.
const CHUNK: u32 = 64;
/// Numbers that follow each other and lie in as many chunks.
const LANES: u32 = 16;

/// What ends the list of free places. It is no number, so that a table of numbers can say "none" with zero.
const NONE: u32 = 0;

struct Place<T> {
    /// What was noted about the place. It outlives the values.
    stamp: u32,
    state: State<T>,
}

enum State<T> {
    /// Nothing, and the next free place.
    Free(u32),
    Taken(T),
}

/// A chunk, or none yet.
type Chunk<T> = Option<Box<[Place<T>]>>;

/// The free places, those first that have been free longest.
struct FreeList {
    /// Means nothing while the list is empty, as `last` does.
    first: u32,
    last: u32,
    length: u32,
    /// The first number that was never taken. It and those after it are not in the list.
    fresh: u32,
    chunks: u32,
}

/// A growing table of `T`s with the numbers from one on.
pub struct Places<O: Os, T: Send + 'static> {
    chunks: Vec<O::Lock<Chunk<T>>>,
    /// Chunks in one lane.
    rows: u32,
    /// The largest number.
    largest: u32,
    /// A place is taken again only if so many others have been freed after it, as long as there are others.
    rest: u32,
    free: O::Lock<FreeList>,
}

impl<O: Os, T: Send + 'static> Places<O, T> {
    /// Room for `capacity` values. A place that was freed is left alone for the next `rest` values, if possible.
    pub fn try_new(os: &O, capacity: u32, rest: u32) -> Result<Self, NtStatus> {
        let rows = capacity / (CHUNK * LANES) + 1;
        let count = (rows * LANES) as usize;
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(count).map_err(|error| memory_status(error.into()))?;
        for _ in 0..count {
            chunks.push(os.lock(None)?);
        }
        let free = os.lock(FreeList { first: NONE, last: NONE, length: 0, fresh: NONE + 1, chunks: 0 })?;
        Ok(Self { chunks, rows, largest: capacity, rest, free })
    }

    /// The chunk of a place and where it lies in there, for numbers up to the largest.
    #[inline]
    const fn locate(&self, number: u32) -> (usize, usize) {
        let (lane, row) = (number % LANES, number / (LANES * CHUNK));
        ((lane * self.rows + row) as usize, (number / LANES % CHUNK) as usize)
    }

    #[inline]
    fn with_place<U>(&self, number: u32, work: impl FnOnce(&mut Place<T>) -> U) -> Option<U> {
        if number > self.largest {
            return None;
        }
        let (chunk, place) = self.locate(number);
        self.chunks.get(chunk)?.with(|chunk| chunk.as_mut()?.get_mut(place).map(work))
    }

    /// Works on the value `number` and its place's stamp, if there is one, under the lock of its chunk.
    ///
    /// Nothing that `work` does may come back to this table, not even by dropping something.
    #[inline]
    pub fn with<U>(&self, number: u32, work: impl FnOnce(&mut u32, &mut T) -> U) -> Option<U> {
        self.with_place(number, |place| match &mut place.state {
            State::Taken(value) => Some(work(&mut place.stamp, value)),
            State::Free(_) => None,
        })?
    }

    /// Works on the values `first` and `second`, if both exist, as [`Places::with`] does on one. They may be the same.
    ///
    /// This is where two chunks are locked at a time: always the one with the lower index first.
    #[inline]
    pub fn with_two<U>(&self, first: u32, second: u32, work: impl FnOnce(&T, &T) -> U) -> Option<U> {
        fn value<T>(chunk: Option<&[Place<T>]>, place: usize) -> Option<&T> {
            match &chunk?.get(place)?.state {
                State::Taken(value) => Some(value),
                State::Free(_) => None,
            }
        }
        if first > self.largest || second > self.largest {
            return None;
        }
        let ((first_chunk, first), (second_chunk, second)) = (self.locate(first), self.locate(second));
        let (one, other) = (self.chunks.get(first_chunk)?, self.chunks.get(second_chunk)?);
        let pair = |one: &Chunk<T>, other: &Chunk<T>| {
            Some(work(value(one.as_deref(), first)?, value(other.as_deref(), second)?))
        };
        match first_chunk.cmp(&second_chunk) {
            Equal => one.with(|both| pair(both, both)),
            Less => one.with(|one| other.with(|other| pair(one, other))),
            Greater => other.with(|other| one.with(|one| pair(one, other))),
        }
    }

    /// Puts a value in a free place, whose number is returned. `make` gets the place's stamp and follows the rule of
    /// [`Places::with`].
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no free place, or no memory for more.
    pub fn insert(&self, make: impl FnOnce(&mut u32) -> T) -> Result<u32, AllocError> {
        let number = self.free.with(|free| {
            let fresh = free.fresh <= self.largest;
            if fresh && free.length <= self.rest {
                self.make_chunk(free)?;
                free.fresh += 1;
                return Ok(free.fresh - 1);
            }
            self.unlink_first(free)
        })?;
        let done = self.with_place(number, |place| place.state = State::Taken(make(&mut place.stamp)));
        debug_assert!(done.is_some(), "the place was made before its number was given");
        Ok(number)
    }

    /// Makes the chunk of the first fresh place, if there is none.
    fn make_chunk(&self, free: &mut FreeList) -> Result<(), AllocError> {
        let (chunk, _) = self.locate(free.fresh);
        let Some(chunk) = self.chunks.get(chunk) else { return Err(AllocError) };
        if chunk.with(|chunk| chunk.is_none()) {
            // Nobody else makes chunks: the list of free places is locked. A chunk is a few kilobytes of memory, which may be
            // allocated at `DISPATCH_LEVEL`.
            let places = try_slice(CHUNK as usize, |_| Place { stamp: 0, state: State::Free(NONE) })?;
            chunk.with(|chunk| *chunk = Some(places));
            free.chunks += 1;
        }
        Ok(())
    }

    fn unlink_first(&self, free: &mut FreeList) -> Result<u32, AllocError> {
        if free.length == 0 {
            return Err(AllocError);
        }
        let number = free.first;
        let next = self.with_place(number, |place| match place.state {
            State::Free(next) => Some(next),
            State::Taken(_) => None,
        });
        let Some(Some(next)) = next else {
            debug_assert!(false, "the list of free places names free places only");
            return Err(AllocError);
        };
        free.first = next;
        free.length -= 1;
        Ok(number)
    }

    /// Takes the value `number` out if it is the one that is `meant`. The caller drops it, without a lock.
    pub fn remove_if(&self, number: u32, meant: impl FnOnce(&T) -> bool) -> Option<T> {
        let value = self.with_place(number, |place| {
            match &place.state {
                State::Taken(value) if meant(value) => {}
                State::Taken(_) | State::Free(_) => return None,
            }
            match core::mem::replace(&mut place.state, State::Free(NONE)) {
                State::Taken(value) => Some(value),
                State::Free(_) => None,
            }
        })??;
        self.free.with(|free| {
            if free.length == 0 {
                free.first = number;
            } else {
                self.with_place(free.last, |place| place.state = State::Free(number));
            }
            free.last = number;
            free.length += 1;
        });
        Some(value)
    }

    /// How many values there are.
    pub fn taken(&self) -> u32 {
        self.free.with(|free| free.fresh - 1 - free.length)
    }

    /// The bytes of the table itself, without what values own.
    pub fn bytes(&self) -> usize {
        let chunks = self.free.with(|free| free.chunks);
        self.chunks.len() * size_of::<O::Lock<Chunk<T>>>() + chunks as usize * CHUNK as usize * size_of::<Place<T>>()
    }
}
