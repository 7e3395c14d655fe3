//! The loopback NIC: engines that carry out the requests of queue pairs.
//!
//! There is one engine per processor, and each queue pair belongs to one engine. An engine runs as a deferred call. It gives its
//! queue pairs quanta of bounded work, one after the other, so that a long transfer of one does not starve the others. It queues
//! itself again after a bounded amount of work, so that it does not monopolise the processor.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::marker::PhantomData;

use fallible::Arc;

use crate::{
    NtStatus,
    os::{Dpc, Os, Routine, SpinLock},
    sync::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Ordering},
};

/// Where a NIC carries requests out. Consumers cannot tell the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NicMode {
    /// In deferred calls, as hardware would: while the consumer's call runs, or after it has returned.
    #[default]
    Deferred,
    /// In the consumer's post, if the queue pair is idle and the request is not large; otherwise in deferred calls.
    Direct,
}

/// Bytes that one run of an engine's deferred call moves at most.
const RUN_BYTES: usize = 512 << 10;
/// Quanta in one run.
const QUANTA_PER_RUN: usize = 16;
/// Requests that a queue pair may finish in one quantum. Bytes are limited per run only: it costs time to leave a long transfer
/// and to come back to it.
const REQUESTS_PER_QUANTUM: u32 = 32;

/// The doorbell bit that is set while a member is in its engine's list or has its quantum. It keeps the member from being listed
/// twice.
pub const OWNED: u32 = 1 << 0;

/// An amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes that may still be moved.
    pub bytes: usize,
    /// Requests that may still be finished. Narrower than the bytes, so that no load reads both and waits for two stores.
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

/// Requests that a queue pair has carried out, either reads only or sends and writes only.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    pub is_read: bool,
    pub requests: u32,
    pub bytes: usize,
}

/// Bytes and messages in one direction.
#[derive(Default)]
struct Direction {
    octets: AtomicU64,
    frames: AtomicU64,
}

/// A member of an engine, which gives it quanta: a queue pair.
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
    /// The NIC that the engine belongs to.
    nic: Arc<Identity>,
    /// Traffic between queue pairs of the same NIC: it came in and went out. The initiator counts it, so that two queue pairs that
    /// send to each other do not share this cache line.
    within: CachePadded<Direction>,
    incoming: CachePadded<Direction>,
    outgoing: CachePadded<Direction>,
}

/// Identifies a NIC, by its address.
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

    /// Removes a member that joined.
    pub(crate) fn leave(&self) {
        self.ready.with(|ready| ready.members -= 1);
    }

    /// Rings the `doorbell` of a member, which gets a quantum to follow `orders`.
    pub(crate) fn ring(this: &Arc<Self>, doorbell: &AtomicU32, orders: u32, member: &Arc<M>) {
        let before = doorbell.fetch_or(orders | OWNED, Ordering::AcqRel);
        if before & OWNED == 0 {
            this.ready.with(|ready| ready.list.push_back(member.clone()));
            this.dpc.queue(this);
        }
    }

    /// Counts traffic between a queue pair of this engine and one of the engine `peer`, on both sides.
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
                // A member that was listed since then has queued the call again.
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
    /// [`NicMode::Direct`] for new queue pairs.
    direct: AtomicBool,
    engines: Box<[Arc<Engine<O, M>>]>,
    /// The number of members so far, to spread them over the engines.
    dealt: AtomicU32,
}

impl<O: Os, M: Member> LoopbackNic<O, M> {
    /// A NIC with one engine per processor.
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

    /// The operating system.
    #[must_use]
    pub const fn os(&self) -> &O {
        &self.os
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

    /// The engine of a new member, with room for it.
    pub(crate) fn deal(&self) -> Result<Arc<Engine<O, M>>, NtStatus> {
        let number = self.dealt.fetch_add(1, Ordering::Relaxed) as usize;
        let engine = &self.engines[number % self.engines.len()];
        engine.join()?;
        Ok(engine.clone())
    }

    /// The traffic of all engines so far.
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
