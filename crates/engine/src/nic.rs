//! The loopback NIC: engines that carry out what queue pairs have to do.
//!
//! There is one engine to a processor, and each queue pair belongs to one engine. An engine runs as a deferred call. It
//! gives its queue pairs quanta: bounded work, one after the other, so that a long transfer of one does not keep the
//! others waiting; and it queues itself again after a bounded amount of work, so that it does not keep the processor.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::marker::PhantomData;

use fallible::Arc;

use crate::{
    NtStatus,
    os::{Dpc, Os, Routine, SpinLock},
    sync::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Ordering},
};

/// Where a NIC carries requests out. What a consumer can see is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NicMode {
    /// In deferred calls, as hardware would: beside the consumer, after its call has returned or while it runs.
    #[default]
    Deferred,
    /// In the consumer's call that posts them, if nobody is carrying out requests of the queue pair and they are not large;
    /// otherwise in deferred calls.
    Direct,
}

/// Bytes that one run of an engine's deferred call moves at most.
const RUN_BYTES: usize = 512 << 10;
/// Quanta in one run.
const QUANTA_PER_RUN: usize = 16;
/// Requests that a queue pair may finish in one quantum. Of the bytes it gets what is left of the run: it costs time to leave a long
/// transfer and to come back to it.
const REQUESTS_PER_QUANTUM: u32 = 32;

/// The bit of a doorbell that says that the member is in its engine's list, or has its quantum. It keeps the member from coming into
/// the list twice.
pub const OWNED: u32 = 1 << 0;

/// An amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that may still be moved.
    pub bytes: usize,
    /// Requests that may still be finished. Not as wide as the bytes: both would be loaded at a time, and wait for their stores.
    pub requests: u32,
}

impl Budget {
    /// Returns true if there is nothing left of it.
    #[must_use]
    pub const fn is_spent(&self) -> bool {
        self.bytes == 0 || self.requests == 0
    }
}

/// Traffic of an adapter, as `NDIS_NDK_PERFORMANCE_COUNTERS` counts it (`NDIS-NDK 3`).
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

/// Requests that a queue pair has carried out, and their bytes: all reads, or all sends and writes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    pub is_read: bool,
    pub requests: u32,
    pub bytes: usize,
}

/// Bytes and messages that went one way.
#[derive(Default)]
struct Direction {
    octets: AtomicU64,
    frames: AtomicU64,
}

/// Who an engine gives quanta to: a queue pair.
pub trait Member: Send + Sync + Sized + 'static {
    /// Does a bounded amount of work. Returns true if the member wants another quantum.
    fn quantum(this: &Arc<Self>, budget: &mut Budget) -> bool;
}

/// Members with something to do.
///
/// # Invariants
///
/// `list` has room for all `members`, and each is in it at most once.
struct Ready<M> {
    list: VecDeque<Arc<M>>,
    /// Members of the engine.
    members: usize,
}

/// One engine of a NIC.
pub struct Engine<O: Os, M: Member> {
    ready: O::Lock<Ready<M>>,
    dpc: O::Dpc<EngineRun<O, M>>,
    /// The NIC, to tell whether two engines belong to the same.
    nic: Arc<Identity>,
    /// What moved between queue pairs of the NIC, in either direction: it came in and went out. Counted by who sends or reads,
    /// on a cache line of its own, so that two that send to each other do not meet here.
    within: CachePadded<Direction>,
    incoming: CachePadded<Direction>,
    outgoing: CachePadded<Direction>,
}

/// That of a NIC differs from all others by its address.
struct Identity;

impl<O: Os, M: Member> Engine<O, M> {
    fn try_new(os: &O, nic: &Arc<Identity>, processor: u32) -> Result<Arc<Self>, NtStatus> {
        Arc::try_new(Self {
            ready: os.lock(Ready { list: VecDeque::new(), members: 0 })?,
            dpc: os.dpc(processor)?,
            nic: nic.clone(),
            within: CachePadded::new(Direction::default()),
            incoming: CachePadded::new(Direction::default()),
            outgoing: CachePadded::new(Direction::default()),
        })
        .map_err(Into::into)
    }

    /// Makes room for one more member.
    fn join(&self) -> Result<(), NtStatus> {
        self.ready.with(|ready| {
            let missing = (ready.members + 1).saturating_sub(ready.list.len());
            ready.list.try_reserve(missing).map_err(fallible::AllocError::from)?;
            ready.members += 1;
            Ok(())
        })
    }

    /// A member that joined is gone.
    pub(crate) fn leave(&self) {
        self.ready.with(|ready| ready.members -= 1);
    }

    /// Rings the `doorbell` of a member: it has to do what `orders` say, and gets a quantum for that.
    pub(crate) fn ring(this: &Arc<Self>, doorbell: &AtomicU32, orders: u32, member: &Arc<M>) {
        let before = doorbell.fetch_or(orders | OWNED, Ordering::AcqRel);
        if before & OWNED == 0 {
            this.ready.with(|ready| ready.list.push_back(member.clone()));
            this.dpc.queue(this);
        }
    }

    /// Counts what a queue pair of this engine and one of the engine `peer` have exchanged, on both sides.
    #[inline]
    pub(crate) fn count(&self, peer: &Self, moved: &Moved) {
        let add = |direction: &Direction| {
            direction.octets.fetch_add(moved.bytes as u64, Ordering::Relaxed);
            direction.frames.fetch_add(moved.requests.into(), Ordering::Relaxed);
        };
        if Arc::ptr_eq(&self.nic, &peer.nic) {
            return add(&self.within);
        }
        let (from, to) = if moved.is_read { (peer, self) } else { (self, peer) };
        add(&from.outgoing);
        add(&to.incoming);
    }

    fn run(this: &Arc<Self>) {
        let mut budget = Budget { bytes: RUN_BYTES, requests: 0 };
        for _ in 0..QUANTA_PER_RUN {
            let (member, is_last) = this.ready.with(|ready| (ready.list.pop_front(), ready.list.is_empty()));
            let Some(member) = member else { return };
            budget.requests = REQUESTS_PER_QUANTUM;
            if M::quantum(&member, &mut budget) {
                this.ready.with(|ready| ready.list.push_back(member));
            } else if is_last {
                // Whoever has come into the list since then has queued the call again.
                return;
            }
            if budget.bytes == 0 {
                break;
            }
        }
        if this.ready.with(|ready| !ready.list.is_empty()) {
            this.dpc.queue(this);
        }
    }
}

/// The deferred call of an engine.
pub struct EngineRun<O, M>(PhantomData<(O, M)>);

impl<O: Os, M: Member> Routine for EngineRun<O, M> {
    type Target = Engine<O, M>;

    fn run(engine: &Arc<Engine<O, M>>) {
        Engine::run(engine);
    }
}

/// A loopback NIC.
pub struct LoopbackNic<O: Os, M: Member> {
    os: O,
    /// [`NicMode::Direct`] for queue pairs that are made from now on.
    direct: AtomicBool,
    engines: Box<[Arc<Engine<O, M>>]>,
    /// Counts members, to spread them over the engines.
    dealt: AtomicU32,
}

impl<O: Os, M: Member> LoopbackNic<O, M> {
    /// A NIC with an engine on every processor, which carries everything out.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(os: &O) -> Result<Arc<Self>, NtStatus> {
        Self::try_new_in(os, NicMode::Deferred)
    }

    /// A NIC with an engine on every processor that works as `mode` says.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new_in(os: &O, mode: NicMode) -> Result<Arc<Self>, NtStatus> {
        let identity = Arc::try_new(Identity)?;
        let mut engines = Vec::new();
        engines.try_reserve_exact(os.processors() as usize).map_err(fallible::AllocError::from)?;
        for processor in 0..os.processors() {
            engines.push(Engine::try_new(os, &identity, processor)?);
        }
        let nic = Self {
            os: os.clone(),
            direct: AtomicBool::new(mode == NicMode::Direct),
            engines: engines.into_boxed_slice(),
            dealt: AtomicU32::new(0),
        };
        Arc::try_new(nic).map_err(Into::into)
    }

    /// The operating system this NIC lives in.
    #[must_use]
    pub const fn os(&self) -> &O {
        &self.os
    }

    /// Where queue pairs that are made now carry requests out.
    #[must_use]
    pub fn mode(&self) -> NicMode {
        if self.direct.load(Ordering::Relaxed) { NicMode::Direct } else { NicMode::Deferred }
    }

    /// Changes the mode. Queue pairs keep the one that they were made with.
    pub fn set_mode(&self, mode: NicMode) {
        self.direct.store(mode == NicMode::Direct, Ordering::Relaxed);
    }

    /// The engine that a new member belongs to, with room made for it.
    pub(crate) fn deal(&self) -> Result<Arc<Engine<O, M>>, NtStatus> {
        let number = self.dealt.fetch_add(1, Ordering::Relaxed) as usize;
        let engine = &self.engines[number % self.engines.len()];
        engine.join()?;
        Ok(engine.clone())
    }

    /// What went through all engines so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for engine in &self.engines {
            let [within, incoming, outgoing] = [&engine.within, &engine.incoming, &engine.outgoing]
                .map(|direction| (direction.octets.load(Ordering::Relaxed), direction.frames.load(Ordering::Relaxed)));
            sum.in_octets += within.0 + incoming.0;
            sum.out_octets += within.0 + outgoing.0;
            sum.in_frames += within.1 + incoming.1;
            sum.out_frames += within.1 + outgoing.1;
        }
        sum
    }
}
