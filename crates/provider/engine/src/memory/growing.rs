//! Queues that grow, with memory that is allocated where no lock is held.

use alloc::collections::VecDeque;

use fallible::AllocError;

/// A queue of what an object has posted. Its room is made with the object, and grows when it was never used so much before: whoever
/// needs more allocates a queue with more room, with no lock held, and gives it to [`Growing::adopt`].
pub struct Growing<T>(VecDeque<T>);

impl<T> Growing<T> {
    /// No room.
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// An empty queue with room for `count` entries.
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn with_room(count: usize) -> Result<Self, AllocError> {
        let mut entries = VecDeque::new();
        entries.try_reserve_exact(count)?;
        Ok(Self(entries))
    }

    /// How many entries there is room for.
    pub fn room(&self) -> usize {
        self.0.capacity()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the room of `other`, which is empty, if that is more. `other` gets the room of this one.
    ///
    /// Moves the entries, and allocates nothing.
    pub fn adopt(&mut self, other: &mut Self) {
        if other.room() > self.room() {
            other.0.append(&mut self.0);
            core::mem::swap(&mut self.0, &mut other.0);
        }
    }

    /// Puts an entry at the end, for which the caller knows that there is room.
    pub fn push(&mut self, entry: T) {
        debug_assert!(self.len() < self.room(), "it would allocate");
        self.0.push_back(entry);
    }

    /// The entries, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// The newest entry.
    pub fn newest(&self) -> Option<&T> {
        self.0.back()
    }

    /// Takes out the oldest entry for which `is_it` is true. Mostly that is the oldest of all: requests of a queue are carried out
    /// in the order of their posts.
    pub fn take(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let place = self.0.iter().position(is_it)?;
        self.0.remove(place)
    }

    /// Puts the oldest entry at the end, and returns it.
    pub fn turn(&mut self) -> Option<&T> {
        let oldest = self.0.pop_front()?;
        self.0.push_back(oldest);
        self.0.back()
    }

    /// Takes out all entries, the oldest first.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain(..)
    }
}
