//! Numbered places for values: constant time to fill and to empty one.

use alloc::vec::Vec;

use fallible::AllocError;

enum Place<T> {
    /// Nothing, and the free place after this one.
    Free(Option<usize>),
    Taken(T),
}

/// Values under numbers that stay the same until they are removed.
pub struct Slab<T> {
    places: Vec<Place<T>>,
    free: Option<usize>,
}

impl<T> Slab<T> {
    /// No places.
    #[must_use]
    pub const fn new() -> Self {
        Self { places: Vec::new(), free: None }
    }

    /// Puts `value` in a free place and returns its number.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory for another place; `value` is dropped.
    pub fn try_insert(&mut self, value: T) -> Result<usize, AllocError> {
        if let Some(number) = self.free {
            let Place::Free(next) = core::mem::replace(&mut self.places[number], Place::Taken(value)) else {
                unreachable!("the list of free places names free places only")
            };
            self.free = next;
            return Ok(number);
        }
        self.places.try_reserve(1)?;
        self.places.push(Place::Taken(value));
        Ok(self.places.len() - 1)
    }

    /// Takes the value out of the place `number`.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        let place = self.places.get_mut(number)?;
        if matches!(place, Place::Free(_)) {
            return None;
        }
        let Place::Taken(value) = core::mem::replace(place, Place::Free(self.free)) else { return None };
        self.free = Some(number);
        Some(value)
    }

    /// The value in the place `number`.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&T> {
        match self.places.get(number)? {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    /// As [`Slab::get`], to change it.
    #[must_use]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        match self.places.get_mut(number)? {
            Place::Taken(value) => Some(value),
            Place::Free(_) => None,
        }
    }

    /// One more than the highest number given out so far.
    #[must_use]
    pub const fn bound(&self) -> usize {
        self.places.len()
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}
