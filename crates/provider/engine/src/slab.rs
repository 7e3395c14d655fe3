//! Numbered slots for values: constant time to fill and to empty one.

use alloc::vec::Vec;

use fallible::AllocError;

enum Slot<T> {
    /// Nothing, and the free slot after this one.
    Free(Option<usize>),
    Taken(T),
}

/// Values under numbers that stay the same until they are removed.
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Option<usize>,
}

impl<T> Slab<T> {
    /// No slots.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: None }
    }

    /// Puts `value` in a free slot and returns its number.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for another slot; `value` is dropped.
    pub fn try_insert(&mut self, value: T) -> Result<usize, AllocError> {
        if let Some(number) = self.free {
            let Slot::Free(next) = core::mem::replace(&mut self.slots[number], Slot::Taken(value)) else {
                unreachable!("the list of free slots names free slots only")
            };
            self.free = next;
            return Ok(number);
        }
        self.slots.try_reserve(1)?;
        self.slots.push(Slot::Taken(value));
        Ok(self.slots.len() - 1)
    }

    /// Takes the value out of the slot `number`.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        let slot = self.slots.get_mut(number)?;
        if matches!(slot, Slot::Free(_)) {
            return None;
        }
        let Slot::Taken(value) = core::mem::replace(slot, Slot::Free(self.free)) else { return None };
        self.free = Some(number);
        Some(value)
    }

    /// The value in the slot `number`.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&T> {
        match self.slots.get(number)? {
            Slot::Taken(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// As [`Slab::get`], to change it.
    #[must_use]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        match self.slots.get_mut(number)? {
            Slot::Taken(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// One more than the highest number given out so far.
    #[must_use]
    pub const fn bound(&self) -> usize {
        self.slots.len()
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}
