//! The consumer's side of a ring.

use core::ptr;

use fallible::Arc;

use super::{
    Indices, is_past, low,
    segment::{SegmentView, Slot},
};
use crate::{prefetch, sync::Ordering};

/// Takes entries out, in the order they were pushed.
///
/// # Invariants
///
/// The entries from `head` up to `readable` are known to be published, and lie in the current segment.
pub struct Consumer<T> {
    indices: Arc<Indices>,
    view: SegmentView<T>,
    /// Number of the next entry to be taken.
    head: u64,
    /// Number of the first entry that cannot be read before the next [`Consumer::refresh`].
    readable: u64,
}

impl<T: Copy + Send> Consumer<T> {
    pub(super) const fn new(indices: Arc<Indices>, view: SegmentView<T>, first: u64) -> Self {
        Self { indices, view, head: first, readable: first }
    }

    /// Number of the next entry to be taken.
    #[inline]
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// Gives `each` up to `most` entries and frees their slots with one publication at the end. Returns how many.
    #[inline]
    pub fn take(&mut self, most: usize, each: impl FnMut(&T)) -> usize {
        if most == 1 { usize::from(self.take_one(each)) } else { self.take_several(most, each) }
    }

    /// Takes the next entry out.
    pub fn pop(&mut self) -> Option<T> {
        let mut next = None;
        self.take_one(|entry| next = Some(*entry));
        next
    }

    // Not a part of its callers: they would save registers for it that one entry does not need.
    #[inline(never)]
    fn take_several(&mut self, most: usize, mut each: impl FnMut(&T)) -> usize {
        let mut taken = 0;
        while taken < most && !self.is_empty() {
            let count = self.known().min(most - taken);
            for ahead in 0..count {
                // SAFETY: the entry lies before `readable`.
                unsafe { Self::read(self.slot_ahead(ahead), &mut each) };
            }
            self.head = self.head.wrapping_add(count as u64);
            taken += count;
        }
        if taken > 0 {
            self.publish();
        }
        taken
    }

    #[inline]
    fn take_one(&mut self, each: impl FnOnce(&T)) -> bool {
        // Loaded before the refresh, which does not change it.
        let head = self.head;
        let is_there = !self.is_empty();
        if is_there {
            let slot = self.view.slot(head);
            // SAFETY: the entry lies before `readable`.
            unsafe { Self::read(slot, each) };
            self.head = head.wrapping_add(1);
            self.publish();
        }
        is_there
    }

    /// Returns true if there is no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&mut self) -> bool {
        self.head == self.readable && !self.refresh()
    }

    /// Gives `work` the entry `ahead` places behind the next one, which stays in the queue; `None` if it is not there or lies in
    /// another segment.
    ///
    /// In its place, because a copy loads it in other widths than it was stored in, and waits for the stores.
    #[inline]
    pub fn with_ahead<U>(&mut self, ahead: usize, work: impl FnOnce(&T) -> U) -> Option<U> {
        if self.known() > ahead || self.refresh() { self.with_known(ahead, work) } else { None }
    }

    /// [`Consumer::with_ahead`] for an entry that is known to be there.
    #[inline]
    pub fn with_known<U>(&self, ahead: usize, work: impl FnOnce(&T) -> U) -> Option<U> {
        // SAFETY: the entry lies before `readable`.
        (self.known() > ahead).then(|| unsafe { Self::read(self.slot_ahead(ahead), work) })
    }

    /// A copy of the entry `ahead` places behind the next one, as [`Consumer::with_ahead`].
    #[inline]
    pub fn peek(&mut self, ahead: usize) -> Option<T> {
        self.with_ahead(ahead, |entry| *entry)
    }

    /// Prefetches the entry `ahead` places behind the next one, if it is known to be published.
    #[inline]
    pub fn prefetch(&self, ahead: usize) {
        if self.known() > ahead {
            prefetch::to_read(self.slot_ahead(ahead));
        }
    }

    /// Prefetches the slot that the producer writes next, as far as is known.
    pub fn prefetch_end(&self) {
        let slot = ptr::from_ref(self.slot_ahead(self.known()));
        prefetch::to_write(slot);
        // It may lie in two cache lines.
        prefetch::to_write(slot.cast::<u8>().wrapping_add(size_of::<Slot<T>>().saturating_sub(1)));
    }

    /// Frees the slots of the next `count` entries, or of all published ones if these are fewer: the head never passes the tail.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        // Entries that were read are known.
        if count <= self.known() {
            self.head = self.head.wrapping_add(count as u64);
            self.publish();
        } else {
            let _ = self.take_several(count, |_| {});
        }
    }

    #[inline]
    fn publish(&self) {
        self.indices.taken.head.store(self.head, Ordering::Release);
    }

    /// The number of entries that can be read without another load of the producer's index.
    #[inline]
    #[must_use]
    pub const fn known(&self) -> usize {
        low(self.readable.wrapping_sub(self.head))
    }

    #[inline]
    fn slot_ahead(&self, ahead: usize) -> &Slot<T> {
        self.view.slot(self.head.wrapping_add(ahead as u64))
    }

    /// Gives `work` the entry in `slot`.
    ///
    /// # Safety
    ///
    /// The entry lies before `readable`: it was published and seen to be with acquire, and the producer does not write to the slot
    /// until `head` is published past it.
    #[inline]
    unsafe fn read<U>(slot: &Slot<T>, work: impl FnOnce(&T) -> U) -> U {
        // SAFETY: a published entry has been written, and nobody writes to the slot (the caller's promise).
        slot.with(|slot| work(unsafe { &*slot.cast::<T>() }))
    }

    /// Loads the producer's index, and follows the link if the current segment is empty. Returns true if there is more to read.
    #[inline]
    fn refresh(&mut self) -> bool {
        // Loaded first: after an acquire load it would be loaded again.
        let (readable, filled) = (self.readable, &*self.indices.filled);
        let tail = filled.tail.load(Ordering::Acquire);
        // A tail past the end of the segment was published after the seal, so the seal is seen here.
        let is_sealed = filled.sealed.load(Ordering::Acquire) != self.view.number;
        let end = if is_sealed { self.end_of_sealed() } else { tail };
        // A tail goes back only if publishers are used out of order, against their rules.
        let is_more = is_past(end, readable);
        if is_more {
            self.readable = end;
        }
        is_more
    }

    /// Where the published entries end in the segment at hand, which is sealed, or in the first one behind it that has any left.
    #[cold]
    #[inline(never)]
    fn end_of_sealed(&mut self) -> u64 {
        loop {
            let tail = self.indices.filled.tail.load(Ordering::Acquire);
            if self.indices.filled.sealed.load(Ordering::Acquire) == self.view.number {
                return tail;
            }
            // What is in the segment was published before the seal.
            let end = self.end();
            if end != self.head {
                return end;
            }
            self.follow();
        }
    }

    /// Number of the first entry that is not in the segment, which is sealed.
    fn end(&self) -> u64 {
        self.view.segment.next.with(|next| {
            // SAFETY: the segment is sealed, so `next` is the consumer's, and `self` is borrowed.
            let next = unsafe { &*next };
            next.as_ref().map_or(self.head, |link| link.end)
        })
    }

    /// Goes on in the next segment. The one at hand is sealed and empty.
    fn follow(&mut self) {
        let link = self.view.segment.next.with_mut(|next| {
            // SAFETY: the segment is sealed, so `next` is the consumer's, and `self` is borrowed mutably.
            let next = unsafe { &mut *next };
            next.take()
        });
        if let Some(link) = link {
            self.view = SegmentView::new(link.segment, self.view.number.wrapping_add(1));
            self.indices.taken.followed.store(self.view.number, Ordering::Relaxed);
        }
    }
}
