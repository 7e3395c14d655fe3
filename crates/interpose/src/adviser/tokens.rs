//! Which region a local token stands for.

use alloc::boxed::Box;

use fallible::{Arc, try_slice};
use ndkpi::NtStatus;

use crate::{InterposeOs, adviser::Node};

/// A table of tokens. Grows when a region is created, never later.
pub struct Tokens<O: InterposeOs> {
    slots: Box<[Slot<O>]>,
    used: usize,
}

/// A token and its region.
type Slot<O> = Option<(u32, Arc<Node<O>>)>;

fn hash(token: u32) -> usize {
    (token.wrapping_mul(0x9E37_79B1) >> 7) as usize
}

impl<O: InterposeOs> Tokens<O> {
    pub fn try_new() -> Result<Self, NtStatus> {
        Ok(Self { slots: Self::places(64)?, used: 0 })
    }

    /// Places for a table of this size.
    pub fn places(size: usize) -> Result<Box<[Slot<O>]>, NtStatus> {
        try_slice(size, |_| None).map_err(Into::into)
    }

    /// The size that a table needs which is to hold so many tokens; `None` if it has it.
    pub fn wanted(&self, tokens: usize) -> Option<usize> {
        (tokens * 2 > self.slots.len()).then(|| (tokens * 4).next_power_of_two())
    }

    /// Moves to larger places. Returns those before.
    pub fn grow(&mut self, places: Box<[Slot<O>]>) -> Box<[Slot<O>]> {
        if places.len() <= self.slots.len() {
            return places;
        }
        let mut before = core::mem::replace(&mut self.slots, places);
        self.used = 0;
        for (token, node) in before.iter_mut().filter_map(Option::take) {
            self.insert(token, node);
        }
        before
    }

    /// Where a token is, or where it would be.
    fn place(&self, token: u32) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let first = hash(token) & mask;
        (0..self.slots.len())
            .map(|step| (first + step) & mask)
            .find(|&place| self.slots[place].as_ref().is_none_or(|(there, _)| *there == token))
    }

    /// Remembers a token. Returns the region that had it before, or the one that found no place.
    pub fn insert(&mut self, token: u32, node: Arc<Node<O>>) -> Option<Arc<Node<O>>> {
        // A full table would make every search as long as it is: rather forget.
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            return Some(node);
        }
        let Some(place) = self.place(token) else { return Some(node) };
        let before = self.slots[place].replace((token, node));
        if before.is_none() {
            self.used += 1;
        }
        before.map(|(_, node)| node)
    }

    /// The region of a token.
    pub fn get(&self, token: u32) -> Option<&Arc<Node<O>>> {
        self.slots[self.place(token)?].as_ref().map(|(_, node)| node)
    }

    /// Forgets a token, if it stands for this region. Returns the reference.
    pub fn remove(&mut self, token: u32, node: &Node<O>) -> Option<Arc<Node<O>>> {
        let place = self.place(token)?;
        if !self.slots[place].as_ref().is_some_and(|(_, there)| core::ptr::eq(&raw const **there, node)) {
            return None;
        }
        let removed = self.slots[place].take().map(|(_, node)| node);
        self.used -= 1;
        // Those behind it that are not where their hash says move up.
        let mask = self.slots.len() - 1;
        let mut next = (place + 1) & mask;
        while let Some((token, node)) = self.slots[next].take() {
            self.used -= 1;
            self.insert(token, node);
            next = (next + 1) & mask;
        }
        removed
    }
}
