//! The loopback NIC: where requests are carried out, and what it counts.
//!
//! Each queue pair has a DPC on one processor, in which the NIC gives it a quantum of bounded work
//! ([`crate::qp`]). If that is not enough it queues the call again, behind those of other queue pairs: so a long transfer of one does
//! not starve the others, nor monopolise the processor.

use alloc::{boxed::Box, vec::Vec};

use fallible::Arc;

use crate::{
    NtStatus,
    os::{Os, Routine},
    sync::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Ordering},
};

/// Where a NIC carries requests out. Consumers cannot tell the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NicMode {
    /// In DPCs, as hardware would: while the consumer's call runs, or after it has returned.
    #[default]
    Deferred,
    /// In the consumer's post, if the queue pair is idle and the request is not large; otherwise in DPCs.
    Direct,
}

/// What becomes of a message for which the peer has no receive. NDKPI leaves it to the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotReady {
    /// It waits until there is one.
    #[default]
    Wait,
    /// It is sent again, as on RoCE. When that was done `retries` times the request fails with `STATUS_IO_TIMEOUT`, and ends the
    /// connection.
    Retry {
        /// How often. InfiniBand has up to six; its seven means [`NotReady::Wait`].
        retries: u32,
        /// Microseconds before each time.
        interval: u64,
    },
    /// The peer's adapter ends the connection at once, as on iWARP. The request fails with `STATUS_IO_TIMEOUT`.
    End,
}

/// What a NIC may do to its consumers that NDKPI allows, and most hardware does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicRules {
    /// Messages for which the peer has no receive.
    pub not_ready: NotReady,
    /// Incoming bytes land in order: the last one never changes before an earlier one (`NDKPI 2.6`, `IN_ORDER_DMA_SUPPORTED`). If
    /// not, they land in another order.
    pub in_order: bool,
    /// The most microseconds that the completion of an initiator request comes late. Receives, also those of answers to it, may
    /// complete before; the order of a queue pair's initiator completions is kept.
    pub initiator_delay: u32,
    /// Decides what is left to chance.
    pub seed: u64,
}

impl Default for NicRules {
    fn default() -> Self {
        Self { not_ready: NotReady::Wait, in_order: true, initiator_delay: 0, seed: 0 }
    }
}

impl NicRules {
    /// Returns true if nothing of it is out of the ordinary, whatever the seed.
    pub(crate) fn are_plain(&self) -> bool {
        *self == Self { seed: self.seed, ..Self::default() }
    }
}

/// An amount of work: what may still be done, or what was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that are moved.
    pub bytes: usize,
    /// Requests that are finished. Narrower than the bytes, so that no load reads both and waits for two stores.
    pub requests: u32,
}

impl Budget {
    /// No work.
    pub const NONE: Self = Self { bytes: 0, requests: 0 };

    /// Returns true if there is nothing left of it.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        self.bytes == 0 || self.requests == 0
    }
}

/// Traffic of an adapter within this machine, as `NDIS_NDK_PERFORMANCE_COUNTERS` counts it (`NDIS-NDK 3`).
///
/// A message counts as one frame. What goes over a wire is in the counters of that ([`Counters`](crate::wire::Counters)), which has frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that came in.
    pub in_octets: u64,
    /// Bytes that went out.
    pub out_octets: u64,
    /// Messages that came in.
    pub in_frames: u64,
    /// Messages that went out.
    pub out_frames: u64,
}

/// Bytes and messages in one direction.
#[derive(Default)]
struct Direction {
    octets: AtomicU64,
    frames: AtomicU64,
}

impl Direction {
    #[inline]
    fn add(&self, done: Budget) {
        self.octets.fetch_add(done.bytes as u64, Ordering::Relaxed);
        self.frames.fetch_add(done.requests.into(), Ordering::Relaxed);
    }
}

/// Identifies a NIC, by its address.
struct Identity;

/// The traffic of a NIC's queue pairs on one processor.
pub(crate) struct TrafficCounters {
    nic: Arc<Identity>,
    /// Traffic between queue pairs of the same NIC: it came in and went out. The initiator counts it, so that two queue pairs that
    /// send to each other do not share this cache line.
    within: CachePadded<Direction>,
    incoming: CachePadded<Direction>,
    outgoing: CachePadded<Direction>,
}

impl TrafficCounters {
    fn try_new(nic: &Arc<Identity>) -> Result<Arc<Self>, NtStatus> {
        let [within, incoming, outgoing] = [(); 3].map(|()| CachePadded::new(Direction::default()));
        Arc::try_new(Self { nic: nic.clone(), within, incoming, outgoing }).map_err(Into::into)
    }

    /// Counts what a queue pair that counts here has done with one that counts at `peer`, on both sides: only reads, or only
    /// sends and writes.
    #[inline]
    pub fn count(&self, peer: &Self, done: Budget, are_reads: bool) {
        if Arc::ptr_eq(&self.nic, &peer.nic) {
            return self.within.add(done);
        }
        let (from, to) = if are_reads { (peer, self) } else { (self, peer) };
        from.outgoing.add(done);
        to.incoming.add(done);
    }
}

/// A loopback NIC.
pub struct Nic<O: Os> {
    os: O,
    /// [`NicMode::Direct`] for new queue pairs.
    direct: AtomicBool,
    rules: NicRules,
    /// One for each processor.
    counters: Box<[Arc<TrafficCounters>]>,
    /// The number of queue pairs so far, to spread them over the processors.
    dealt: AtomicU32,
}

impl<O: Os> Nic<O> {
    /// A NIC that works on all processors.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new_in(os: &O, mode: NicMode) -> Result<Arc<Self>, NtStatus> {
        Self::try_new_with(os, mode, NicRules::default())
    }

    /// [`Nic::try_new_in`] with other rules.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new_with(os: &O, mode: NicMode, rules: NicRules) -> Result<Arc<Self>, NtStatus> {
        let identity = Arc::try_new(Identity)?;
        let mut counters = Vec::new();
        counters.try_reserve_exact(os.processors() as usize).map_err(fallible::AllocError::from)?;
        for _ in 0..os.processors() {
            counters.push(TrafficCounters::try_new(&identity)?);
        }
        let nic = Self {
            os: os.clone(),
            direct: AtomicBool::new(mode == NicMode::Direct),
            rules,
            counters: counters.into_boxed_slice(),
            dealt: AtomicU32::new(0),
        };
        Arc::try_new(nic).map_err(Into::into)
    }

    /// The operating system.
    #[must_use]
    pub const fn os(&self) -> &O {
        &self.os
    }

    /// The rules of its queue pairs. The seed is that of the queue pair made next.
    pub(crate) fn rules(&self) -> NicRules {
        let number = u64::from(self.dealt.load(Ordering::Relaxed));
        NicRules { seed: self.rules.seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)), ..self.rules }
    }

    /// Where new queue pairs have their requests carried out.
    #[must_use]
    pub fn mode(&self) -> NicMode {
        if self.direct.load(Ordering::Relaxed) { NicMode::Direct } else { NicMode::Deferred }
    }

    /// Changes the mode of new queue pairs. Existing ones keep theirs.
    pub fn set_mode(&self, mode: NicMode) {
        self.direct.store(mode == NicMode::Direct, Ordering::Relaxed);
    }

    /// The DPC of a new queue pair, on the next processor, and the counters there.
    pub(crate) fn deal<R: Routine>(&self) -> Result<(O::Dpc<R>, Arc<TrafficCounters>), NtStatus> {
        let processor = self.dealt.fetch_add(1, Ordering::Relaxed) % self.os.processors();
        Ok((self.os.dpc(processor)?, self.counters[processor as usize].clone()))
    }

    /// The traffic of all queue pairs so far, but for what went over a wire.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for counters in &self.counters {
            let [within, incoming, outgoing] = [&counters.within, &counters.incoming, &counters.outgoing]
                .map(|direction| (direction.octets.load(Ordering::Relaxed), direction.frames.load(Ordering::Relaxed)));
            sum.in_octets += within.0 + incoming.0;
            sum.out_octets += within.0 + outgoing.0;
            sum.in_frames += within.1 + incoming.1;
            sum.out_frames += within.1 + outgoing.1;
        }
        sum
    }
}
