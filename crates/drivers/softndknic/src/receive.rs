//! The receiving end of the cable: buffers for frames, which senders fill, and their lists, which protocols get.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{AcqRel, Relaxed},
    },
};

use cable::{Counters, Impairment, Kind, Link, Reserved, frame::HEADER_BYTES, link::BATCH};
use driver_common::os::{Kernel, KernelDpc, KernelLock, KernelTimer};
use engine::os::{Dpc, Os, Routine, SpinLock, Timer};
use fallible::{Arc, try_slice};
use ndis::{
    NDIS_PROTOCOL_ID_DEFAULT, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NET_BUFFER, NET_BUFFER_DATA_LENGTH, NET_BUFFER_LIST,
    NET_BUFFER_LIST_POOL_PARAMETERS, NdisAllocateMdl, NdisAllocateNetBufferAndNetBufferList,
    NdisAllocateNetBufferListPool, NdisFreeMdl, NdisFreeNetBufferList, NdisFreeNetBufferListPool,
    NdisMIndicateReceiveNetBufferLists,
};
use ndkpi::{MDL, NDIS_HANDLE, NtStatus};

use crate::{
    adapter::Adapter,
    filter::Filter,
    frames::{self, Chain},
};

/// Receive buffers of an adapter.
pub const BUFFERS: u16 = 512;

/// Indications that one run of the deferred call makes at most, each of up to [`BATCH`] frames.
const INDICATIONS_PER_RUN: usize = 8;

/// The tag of the lists.
const POOL_TAG: u32 = u32::from_le_bytes(*b"Snic");

/// The receiving end of an adapter.
///
/// # Invariants
///
/// Each entry of `lists` and `mdls` is null or NDIS's, and `pool` is; none of them is used after `released` is set. `bytes` has
/// `frame` bytes for each of them. The bytes of a buffer are touched only by whom the link has given its number to.
pub struct Receiver {
    link: KernelLock<Link>,
    dpc: KernelDpc<Deliver>,
    timer: KernelTimer<Deliver>,
    frame: usize,
    bytes: Box<[UnsafeCell<u8>]>,
    /// The bytes of the frame in each buffer.
    lengths: Box<[AtomicU32]>,
    lists: Box<[*mut NET_BUFFER_LIST]>,
    mdls: Box<[*mut MDL]>,
    pool: NDIS_HANDLE,
    released: AtomicBool,
}

// SAFETY: NDIS's lists, MDLs and pool may be used on any thread; bytes belong to one at a time (invariant).
unsafe impl Send for Receiver {}
// SAFETY: as for `Send`.
unsafe impl Sync for Receiver {}

/// What a receiver has done with frames.
pub struct Taken {
    /// How many were taken; the others have to wait.
    pub count: usize,
    /// No buffer was free for the next one: the sender is called when there is one.
    pub full: bool,
}

impl Receiver {
    /// A receiver of frames of up to `frame` bytes, whose deferred calls run on that processor. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS that lives until the result is [released](Receiver::release) or dropped.
    #[inline(never)]
    pub unsafe fn try_new(
        adapter: NDIS_HANDLE,
        frame: u32,
        impairment: Impairment,
        processor: u32,
    ) -> Result<Self, NtStatus> {
        let count = usize::from(BUFFERS);
        let frame_bytes = frame as usize;
        let mut this = Self {
            link: Kernel.lock(Link::try_new(BUFFERS, impairment)?)?,
            dpc: Kernel.dpc(processor)?,
            timer: Kernel.timer()?,
            frame: frame_bytes,
            bytes: try_slice(count * frame_bytes, |_| UnsafeCell::new(0))?,
            lengths: try_slice(count, |_| AtomicU32::new(0))?,
            lists: try_slice(count, |_| ptr::null_mut())?,
            mdls: try_slice(count, |_| ptr::null_mut())?,
            pool: ptr::null_mut(),
            released: AtomicBool::new(false),
        };
        let parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
            Header: NET_BUFFER_LIST_POOL_PARAMETERS::HEADER,
            ProtocolId: NDIS_PROTOCOL_ID_DEFAULT,
            fAllocateNetBuffer: 1,
            ContextSize: 0,
            PoolTag: POOL_TAG,
            DataSize: 0,
        };
        // SAFETY: the caller's promise, and a structure that lives until the call returns.
        this.pool = unsafe { NdisAllocateNetBufferListPool(adapter, &raw const parameters) };
        if this.pool.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        for index in 0..count {
            let place = this.place(index);
            // SAFETY: the caller's promise; the bytes live as long as the MDL.
            let mdl = unsafe { NdisAllocateMdl(adapter, place.cast(), frame) };
            this.mdls[index] = mdl;
            if mdl.is_null() {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            // SAFETY: the pool was just made for lists with a net buffer, and the MDL for the bytes.
            let list = unsafe { NdisAllocateNetBufferAndNetBufferList(this.pool, 0, 0, mdl, 0, 0) };
            this.lists[index] = list;
            if list.is_null() {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            // SAFETY: the list is ours.
            let reserved = unsafe { &raw mut (*list).MiniportReserved };
            // What comes back says which buffer it is.
            // SAFETY: as above.
            unsafe { (*reserved)[0] = ptr::without_provenance_mut(index) };
        }
        Ok(this)
    }

    /// Where a buffer's bytes are.
    fn place(&self, index: usize) -> *mut u8 {
        self.bytes[index * self.frame].get()
    }

    /// Takes frames of a sender, as many as there are buffers for, and counts them. The receiver's gate is open as long as this
    /// runs, and it is the only sender's turn. `IRQL = DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// The frames are net buffers that the caller has, and that nobody changes.
    pub unsafe fn take(
        &self,
        frames: &[*mut NET_BUFFER],
        filter: &Filter,
        sent: &Counters,
        received: &Counters,
    ) -> Taken {
        let mut reserved = [Reserved::Full; BATCH];
        let (mut count, mut full) = self.link.with(|link| {
            for (index, place) in reserved.iter_mut().take(frames.len()).enumerate() {
                *place = link.reserve();
                if *place == Reserved::Full {
                    return (index, true);
                }
            }
            (frames.len().min(BATCH), false)
        });
        count = count.min(frames.len());

        let mut lengths = [0; BATCH];
        let (mut out, mut into, mut lost) = ([(0_u64, 0_u64); 3], [(0_u64, 0_u64); 3], 0);
        for ((frame, place), length) in frames.iter().zip(&reserved).zip(&mut lengths).take(count) {
            // SAFETY: the caller's promise.
            let bytes = unsafe { frames::length(*frame) };
            if !(HEADER_BYTES..=self.frame).contains(&bytes) {
                sent.error();
                continue;
            }
            let Reserved::Buffer(buffer) = *place else {
                lost += 1;
                continue;
            };
            let target = self.place(buffer.into());
            // SAFETY: the buffer was reserved by this call, and has room for the frame; the frame is the caller's.
            if !unsafe { frames::copy(*frame, target) } {
                sent.error();
                continue;
            }
            // SAFETY: the first six bytes of the buffer, which the copy has written.
            let destination = unsafe { target.cast::<[u8; 6]>().read() };
            let kind = Kind::of(&destination) as usize;
            out[kind] = (out[kind].0 + 1, out[kind].1 + bytes as u64);
            if filter.accepts(&destination) {
                into[kind] = (into[kind].0 + 1, into[kind].1 + bytes as u64);
                *length = bytes;
            }
        }

        let now = Kernel.now();
        self.link.with(|link| {
            for (place, &length) in reserved.iter().zip(&lengths).take(count) {
                let Reserved::Buffer(buffer) = *place else { continue };
                if length > 0 {
                    #[expect(clippy::cast_possible_truncation, reason = "no longer than a frame")]
                    self.lengths[usize::from(buffer)].store(length as u32, Relaxed);
                    link.send(buffer, length, now);
                } else if link.give_back([buffer]) {
                    // It is this sender that waits: it need not.
                    full = false;
                }
            }
        });
        for (kind, index) in [(Kind::Directed, 0), (Kind::Multicast, 1), (Kind::Broadcast, 2)] {
            debug_assert_eq!(kind as usize, index, "the order of the kinds");
            if out[index].0 > 0 {
                sent.add(kind, out[index].0, out[index].1);
            }
            if into[index].0 > 0 {
                received.add(kind, into[index].0, into[index].1);
            }
        }
        if lost > 0 {
            received.discard(lost);
        }
        Taken { count, full }
    }

    /// Queues the deferred call that indicates arrived frames. `IRQL <= DISPATCH_LEVEL`.
    pub fn wake(adapter: &Arc<Adapter>) {
        adapter.receiver().dpc.queue(adapter);
    }

    /// Buffers come back from the protocols. True if the sender waits for one. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn take_back(&self, lists: Chain) -> bool {
        let mut lists = lists;
        let mut waits = false;
        loop {
            let (mut buffers, mut count) = ([0_u16; BATCH], 0);
            while count < BATCH
                && let Some(list) = lists.pop()
            {
                // SAFETY: a list of this receiver, which was indicated and has come back.
                let reserved = unsafe { (*list).MiniportReserved };
                #[expect(clippy::cast_possible_truncation, reason = "the index of a buffer")]
                let buffer = reserved[0].addr() as u16;
                buffers[count] = buffer;
                count += 1;
            }
            if count == 0 {
                return waits;
            }
            waits |= self.link.with(|link| link.give_back(buffers[..count].iter().copied()));
        }
    }

    /// The adapter is paused: frames under way are dropped. How many.
    #[must_use]
    pub fn clear(&self) -> usize {
        let _ = self.timer.cancel();
        self.link.with(Link::clear)
    }

    /// Frees what is NDIS's. `PASSIVE_LEVEL`, when the adapter is paused for good.
    pub fn release(&self) {
        let _ = self.timer.cancel();
        if self.released.swap(true, AcqRel) {
            return;
        }
        for &list in self.lists.iter().filter(|list| !list.is_null()) {
            // SAFETY: a list of the pool that is not with the protocols, freed once.
            unsafe { NdisFreeNetBufferList(list) };
        }
        for &mdl in self.mdls.iter().filter(|mdl| !mdl.is_null()) {
            // SAFETY: an MDL of NDIS whose list is free, freed once.
            unsafe { NdisFreeMdl(mdl) };
        }
        if !self.pool.is_null() {
            // SAFETY: the pool's lists are free; it is freed once.
            unsafe { NdisFreeNetBufferListPool(self.pool) };
        }
    }

    /// The lists of these buffers, with the frames in them, for the protocols.
    fn chain(&self, buffers: &[u16], source: NDIS_HANDLE) -> Chain {
        let mut chain = Chain::EMPTY;
        for index in buffers.iter().map(|&buffer| usize::from(buffer)) {
            let (list, mdl) = (self.lists[index], self.mdls[index]);
            let length = self.lengths[index].load(Relaxed);
            // SAFETY: the list is this receiver's until it is indicated.
            unsafe { (*list).SourceHandle = source };
            // SAFETY: as above.
            let buffer = unsafe { (*list).FirstNetBuffer };
            // Protocols may have moved the beginning of the data.
            // SAFETY: the net buffer of the list.
            let buffer = unsafe { &mut *buffer };
            (buffer.CurrentMdl, buffer.MdlChain) = (mdl, mdl);
            (buffer.CurrentMdlOffset, buffer.DataOffset) = (0, 0);
            buffer.DataLength = NET_BUFFER_DATA_LENGTH { stDataLength: length as usize };
            // SAFETY: the list is this receiver's, and in no chain.
            unsafe { chain.push(list) };
        }
        chain
    }

    /// Indicates frames that have arrived, a bounded number of them.
    fn deliver(adapter: &Arc<Adapter>) {
        let this = adapter.receiver();
        if !this.link.with(|link| link.delivery.begin()) {
            return;
        }
        for _ in 0..INDICATIONS_PER_RUN {
            let mut buffers = [0; BATCH];
            let now = Kernel.now();
            let count = this.link.with(|link| link.arrived(now, &mut buffers));
            if count == 0 {
                break;
            }
            let buffers = &buffers[..count];
            #[expect(clippy::cast_possible_truncation, reason = "a batch at most")]
            let lists = count as u32;
            // One more for the call itself.
            if !adapter.enter(lists + 1) {
                let dropped = this.link.with(|link| {
                    let _ = link.give_back(buffers.iter().copied());
                    link.clear()
                });
                adapter.received().discard((count + dropped) as u64);
                break;
            }
            let chain = this.chain(buffers, adapter.handle());
            let flags = NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL;
            // SAFETY: the adapter is not paused as long as this call is inside of its gate; the lists are this receiver's, and
            // come back by the return handler.
            unsafe { NdisMIndicateReceiveNetBufferLists(adapter.handle(), chain.first(), 0, lists, flags) };
            adapter.leave(1);
        }
        let now = Kernel.now();
        let next = this.link.with(|link| link.next_due());
        if let Some(due) = next.filter(|&due| due > now) {
            this.timer.set(due - now, adapter);
        }
        let again = this.link.with(|link| link.delivery.end());
        if again || next.is_some_and(|due| due <= now) {
            this.dpc.queue(adapter);
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.release();
    }
}

/// The deferred call of a receiver, and of its timer.
pub struct Deliver;

impl Routine for Deliver {
    type Target = Adapter;

    fn run(adapter: &Arc<Adapter>) {
        Receiver::deliver(adapter);
    }
}
