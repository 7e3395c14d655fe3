//! Frames and bytes by kind, as `NDIS_STATISTICS_INFO` counts them.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Kind;

/// Frames and bytes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Bytes, link headers included.
    pub bytes: u64,
}

/// One way of an adapter, in or out.
#[derive(Default)]
pub struct Counters {
    kinds: [(AtomicU64, AtomicU64); 3],
    errors: AtomicU64,
    discards: AtomicU64,
}

impl Counters {
    /// Counts frames of a kind, of so many bytes together.
    pub fn add(&self, kind: Kind, frames: u64, bytes: u64) {
        let counted = &self.kinds[kind as usize];
        counted.0.fetch_add(frames, Relaxed);
        counted.1.fetch_add(bytes, Relaxed);
    }

    /// Counts a frame that was no good.
    pub fn error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Counts frames that were good, and were dropped.
    pub fn discard(&self, frames: u64) {
        self.discards.fetch_add(frames, Relaxed);
    }

    /// What was counted of a kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Count {
        let counted = &self.kinds[kind as usize];
        Count { frames: counted.0.load(Relaxed), bytes: counted.1.load(Relaxed) }
    }

    /// What was counted of all kinds together.
    #[must_use]
    pub fn sum(&self) -> Count {
        let kinds = [Kind::Directed, Kind::Multicast, Kind::Broadcast].map(|kind| self.of(kind));
        Count { frames: kinds.iter().map(|count| count.frames).sum(), bytes: kinds.iter().map(|one| one.bytes).sum() }
    }

    /// Frames that were no good.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Frames that were dropped.
    #[must_use]
    pub fn discards(&self) -> u64 {
        self.discards.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Counters};
    use crate::Kind;

    #[test]
    fn each_kind_is_counted_by_itself() {
        let counters = Counters::default();
        counters.add(Kind::Directed, 2, 3000);
        counters.add(Kind::Broadcast, 1, 60);
        counters.error();
        counters.error();
        counters.discard(5);
        assert_eq!(counters.of(Kind::Directed), Count { frames: 2, bytes: 3000 });
        assert_eq!(counters.of(Kind::Multicast), Count::default());
        assert_eq!(counters.sum(), Count { frames: 3, bytes: 3060 });
        assert_eq!((counters.errors(), counters.discards()), (2, 5));
    }
}
