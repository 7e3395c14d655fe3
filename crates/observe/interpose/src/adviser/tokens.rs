//! Which region a local token stands for.

use alloc::boxed::Box;

use fallible::{Arc, try_slice};
use ndkpi::NtStatus;

use super::node::{Node, Registration};
use crate::InterposeOs;

/// A table of tokens. Grows when a region is created, never later.
pub struct Tokens<O: InterposeOs> {
    slots: Box<[Slot<O>]>,
    used: usize,
}

/// A token, its region, and what posts have to know of that.
pub struct Entry<O: InterposeOs> {
    token: u32,
    /// The region.
    pub node: Arc<Node<O>>,
    /// Its registration: a copy, so that a post takes one lock.
    pub registration: Registration,
}

type Slot<O> = Option<Entry<O>>;

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
        for entry in before.iter_mut().filter_map(Option::take) {
            self.put(entry);
        }
        before
    }

    /// Where a token is, or where it would be.
    fn place(&self, token: u32) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let first = hash(token) & mask;
        (0..self.slots.len())
            .map(|step| (first + step) & mask)
            .find(|&place| self.slots[place].as_ref().is_none_or(|there| there.token == token))
    }

    fn put(&mut self, entry: Entry<O>) -> Option<Entry<O>> {
        // A full table would make every search as long as it is: rather forget.
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            return Some(entry);
        }
        let Some(place) = self.place(entry.token) else { return Some(entry) };
        let before = self.slots[place].replace(entry);
        if before.is_none() {
            self.used += 1;
        }
        before
    }

    /// Remembers a token. Returns the region that had it before, or the one that found no place.
    pub fn insert(&mut self, token: u32, node: Arc<Node<O>>, registration: Registration) -> Option<Arc<Node<O>>> {
        self.put(Entry { token, node, registration }).map(|entry| entry.node)
    }

    /// What is known of a token.
    pub fn get(&self, token: u32) -> Option<&Entry<O>> {
        self.slots[self.place(token)?].as_ref()
    }

    /// The registration of a region has changed.
    pub fn update(&mut self, token: u32, node: &Node<O>, registration: &Registration) {
        if let Some(place) = self.place(token)
            && let Some(entry) = &mut self.slots[place]
            && core::ptr::eq(&raw const *entry.node, node)
        {
            entry.registration = *registration;
        }
    }

    /// Forgets a token, if it stands for this region. Returns the reference.
    pub fn remove(&mut self, token: u32, node: &Node<O>) -> Option<Arc<Node<O>>> {
        let place = self.place(token)?;
        if !self.slots[place].as_ref().is_some_and(|there| core::ptr::eq(&raw const *there.node, node)) {
            return None;
        }
        let removed = self.slots[place].take().map(|there| there.node);
        self.used -= 1;
        // Those behind it that are not where their hash says move up.
        let mask = self.slots.len() - 1;
        let mut next = (place + 1) & mask;
        while let Some(entry) = self.slots[next].take() {
            self.used -= 1;
            self.put(entry);
            next = (next + 1) & mask;
        }
        removed
    }
}
