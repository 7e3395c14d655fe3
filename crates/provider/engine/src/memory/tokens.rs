//! The table of all tokens of an adapter, and what lies under each.

use fallible::AllocError;
use ntstatus::NtStatus;

use super::{
    entry::Entry,
    slots::SlotTable,
    token::{FIXED_REST, MOST_ROTATING, Pair, Rotation, slot_of},
};
use crate::os::Os;

/// The objects of an adapter that have tokens, by their tokens.
pub struct TokenTable<O: Os> {
    os: O,
    fixed: SlotTable<O, Entry<O>>,
    rotating: SlotTable<O, Entry<O>>,
}

impl<O: Os> TokenTable<O> {
    /// Room for `capacity` objects. The caller sees to it that there are no more.
    pub fn try_new(os: &O, capacity: u32) -> Result<Self, NtStatus> {
        let fixed = SlotTable::try_new(os, capacity, FIXED_REST)?;
        let rotating = SlotTable::try_new_after(Some(&fixed), os, capacity.min(MOST_ROTATING), 0)?;
        Ok(Self { os: os.clone(), fixed, rotating })
    }

    #[inline]
    const fn locate(&self, token: u32) -> (&SlotTable<O, Entry<O>>, u32) {
        let (slot, rotates) = slot_of(token);
        (if rotates { &self.rotating } else { &self.fixed }, slot)
    }

    /// Works on the object that a token, good or stale, names the slot of, under the lock of 64 slots.
    ///
    /// Nothing that `work` does may come back to this table, not even by dropping something.
    #[inline]
    pub fn with<U>(&self, token: u32, work: impl FnOnce(Rotation<'_>, &mut Entry<O>) -> U) -> Option<U> {
        let (slots, slot) = self.locate(token);
        slots.with(slot, |stamp, entry| work(Rotation::new(stamp, token), entry))
    }

    /// [`TokenTable::with`] for two tokens, which may name the same slot.
    #[inline]
    pub fn with_two<U>(&self, first: u32, second: u32, work: impl FnOnce(&Entry<O>, &Entry<O>) -> U) -> Option<U> {
        SlotTable::with_two(self.locate(first), self.locate(second), work)
    }

    /// Puts in an object whose tokens stay the same. `make` follows the rule of [`TokenTable::with`].
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn insert_fixed(&self, make: impl FnOnce(Pair) -> Entry<O>) -> Result<Pair, AllocError> {
        let (random, mut tokens) = (self.os.random(), Pair { local: 0, remote: 0 });
        self.fixed.insert(|slot, stamp| {
            tokens = Pair::next(slot, stamp, random);
            make(tokens)
        })?;
        Ok(tokens)
    }

    /// Puts in an object whose tokens change, and returns the first of them. `make` follows the rule of [`TokenTable::with`].
    ///
    /// # Errors
    ///
    /// [`AllocError`], also if there are as many such objects as there can be.
    pub fn insert_rotating(&self, make: impl FnOnce(u32) -> Entry<O>) -> Result<u32, AllocError> {
        let (random, mut token) = (self.os.random(), 0);
        self.rotating.insert(|slot, stamp| {
            token = Rotation::first(slot, stamp, random);
            make(token)
        })?;
        Ok(token)
    }

    /// Takes out the object that a token names the slot of, if it is the one that is `meant`. The caller drops it, without a lock.
    pub fn remove_if(&self, token: u32, meant: impl FnOnce(&Entry<O>) -> bool) -> Option<Entry<O>> {
        let (slots, slot) = self.locate(token);
        slots.remove_if(slot, meant)
    }

    /// The bytes of the table itself, without what objects own.
    pub fn bytes(&self) -> usize {
        self.fixed.bytes() + self.rotating.bytes()
    }
}
