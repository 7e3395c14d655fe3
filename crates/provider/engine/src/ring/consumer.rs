//! The consumer's side of a ring.

use fallible::Arc;

use super::{
    Indices, low, newer,
    segment::{SegmentView, Slot},
};
use crate::{prefetch, sync::Ordering};

//= NDKPI 7.1.2
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
    pub fn take(&mut self, most: usize, mut each: impl FnMut(&T)) -> usize {
        let mut taken = 0;
        while taken < most && !self.is_empty() {
            // SAFETY: the entry lies before `readable`, and `head` is published below.
            each(unsafe { Self::entry(self.view.slot(self.head)) });
            self.head = self.head.wrapping_add(1);
            taken += 1;
        }
        if taken > 0 {
            self.publish();
        }
        taken
    }

    //= NDKPI 7.1.8
    /// Takes the next entry out.
    pub fn pop(&mut self) -> Option<T> {
        let mut next = None;
        self.take(1, |entry| next = Some(*entry));
        next
    }

    /// Returns true if there is no entry.
    #[inline]
    #[must_use]
    pub fn is_empty(&mut self) -> bool {
        self.head == self.readable && !self.refresh()
    }

    /// The entry `ahead` places behind the next one, in its slot; `None` if it is not published or lies in another segment.
    ///
    /// A reference: a copy would stall on failed store-to-load forwarding.
    #[inline]
    pub fn get(&mut self, ahead: usize) -> Option<&T> {
        if self.known() > ahead || self.refresh() { self.get_known(ahead) } else { None }
    }

    /// [`Consumer::get`] without another load of the producer's index.
    #[inline]
    #[must_use]
    pub fn get_known(&self, ahead: usize) -> Option<&T> {
        // SAFETY: the entry lies before `readable`. `head` is not published past it while `self` is borrowed.
        (self.known() > ahead).then(|| unsafe { Self::entry(self.slot_ahead(ahead)) })
    }

    /// Prefetches the entry `ahead` places behind the next one, if it is known to be published.
    #[inline]
    pub fn prefetch(&self, ahead: usize) {
        if self.known() > ahead {
            prefetch::to_read(self.slot_ahead(ahead));
        }
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
            let _ = self.take(count, |_| {});
        }
    }

    #[inline]
    fn publish(&self) {
        self.indices.consumer.head.store(self.head, Ordering::Release);
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

    /// The entry in `slot`.
    ///
    /// # Safety
    ///
    /// The entry lies before `readable`: it was published and seen to be with acquire, and the producer does not write to the slot
    /// until `head` is published past it, which is after the last use of the result.
    #[inline]
    unsafe fn entry(slot: &Slot<T>) -> &T {
        // SAFETY: a published entry has been written, and nobody writes to the slot (`# Safety`).
        slot.with(|slot| unsafe { &*slot.cast::<T>() })
    }

    /// Loads the producer's index, and follows the link if the current segment is empty. Returns true if there is more to read.
    #[inline]
    fn refresh(&mut self) -> bool {
        // Loaded first: after an acquire load it would be loaded again.
        let (readable, filled) = (self.readable, &*self.indices.producer);
        let tail = filled.tail.load(Ordering::Acquire);
        // A tail past the end of the segment was published after the seal, so the seal is seen here.
        let is_sealed = filled.sealed.load(Ordering::Acquire) != self.view.number;
        let end = if is_sealed { self.end_of_sealed() } else { tail };
        // A tail goes back only if publishers are used out of order, against their rules.
        let is_more = newer(end, readable);
        if is_more {
            self.readable = end;
        }
        is_more
    }

    /// The end of the published entries in the current segment, which is sealed; if it is empty, the consumer first moves to the
    /// next one that is not.
    #[cold]
    #[inline(never)]
    fn end_of_sealed(&mut self) -> u64 {
        loop {
            let tail = self.indices.producer.tail.load(Ordering::Acquire);
            if self.indices.producer.sealed.load(Ordering::Acquire) == self.view.number {
                return tail;
            }
            let next = self.view.segment.next.with_mut(|next| {
                // SAFETY: the segment is sealed, so `next` is the consumer's, and `self` is borrowed mutably.
                let next = unsafe { &mut *next };
                match next {
                    // All entries of the segment were published before the seal.
                    Some(link) if link.end != self.head => Err(link.end),
                    _ => Ok(next.take()),
                }
            });
            match next {
                Err(end) => return end,
                Ok(None) => return self.head,
                Ok(Some(link)) => {
                    self.view = SegmentView::new(link.segment, self.view.number.wrapping_add(1));
                    self.indices.consumer.followed.store(self.view.number, Ordering::Relaxed);
                }
            }
        }
    }
}
