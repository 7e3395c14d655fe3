//! A queue that never grows: its memory is there from the start.

use alloc::collections::VecDeque;

use fallible::AllocError;

/// A queue of at most so many elements.
#[derive(Debug)]
pub struct Bounded<T> {
    queue: VecDeque<T>,
    most: usize,
}

impl<T> Bounded<T> {
    /// An empty queue with room for `most`.
    pub fn new(most: usize) -> Result<Self, AllocError> {
        let mut queue = VecDeque::new();
        queue.try_reserve_exact(most)?;
        Ok(Self { queue, most })
    }

    /// Appends `element`; gives it back if there is no room.
    pub fn push(&mut self, element: T) -> Result<(), T> {
        if self.is_full() {
            return Err(element);
        }
        // There is room for it, so nothing is allocated.
        self.queue.push_back(element);
        Ok(())
    }

    pub fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    pub fn front(&self) -> Option<&T> {
        self.queue.front()
    }

    pub fn get(&self, index: usize) -> Option<&T> {
        self.queue.get(index)
    }

    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.queue.get_mut(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.queue.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.queue.iter_mut()
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many fit.
    pub const fn capacity(&self) -> usize {
        self.most
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.queue.len() == self.most
    }

    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.queue.retain(keep);
    }

    pub fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Bounded;

    #[test]
    fn there_is_room_for_so_many_and_the_oldest_comes_first() {
        let mut queue = Bounded::new(2).expect("memory");
        assert!(queue.is_empty() && !queue.is_full());
        assert_eq!((queue.push(1), queue.push(2), queue.push(3)), (Ok(()), Ok(()), Err(3)));
        assert!(queue.is_full());
        assert_eq!((queue.len(), queue.capacity(), queue.front()), (2, 2, Some(&1)));
        assert_eq!((queue.pop(), queue.push(4)), (Some(1), Ok(())));
        assert!(queue.iter().eq(&[2, 4]));
        queue.retain(|element| *element > 2);
        assert_eq!((queue.get(0), queue.get(1)), (Some(&4), None));
        queue.clear();
        assert_eq!(queue.front(), None);
        assert_eq!(queue.pop(), None);
    }
}
