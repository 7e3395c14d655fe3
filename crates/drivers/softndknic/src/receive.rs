//! The receiving end of the cable: buffers for frames, which senders fill, and their lists, which protocols get.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ptr, slice,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{AcqRel, Relaxed},
    },
};

use cable::{
    Class, Counters, Kind, Link, Reserved, Tag, Tagging,
    frame::{HEADER_BYTES, TAG_BYTES},
    link::BATCH,
};
use driver_common::os::{Kernel, KernelDpc, KernelLock, KernelTimer};
use engine::{
    os::{Dpc, Os, Routine, SpinLock, Timer},
    wire::Wire,
};
use fallible::{Arc, try_slice};
use ndis::{
    Ieee8021QNetBufferListInfo, MaxNetBufferListInfo, NDIS_PROTOCOL_ID_DEFAULT, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL,
    NDIS_STATUS, NET_BUFFER_DATA_LENGTH, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS, NdisAllocateMdl,
    NdisAllocateNetBufferAndNetBufferList, NdisAllocateNetBufferListPool, NdisFreeMdl, NdisFreeNetBufferList,
    NdisFreeNetBufferListPool, NdisMIndicateReceiveNetBufferLists,
};
use ndkpi::{MDL, NDIS_HANDLE, NtStatus};

use crate::{
    adapter::Adapter,
    configuration::Keywords,
    filter::Filter,
    frames::{self, Chain, Frame},
};

/// Receive buffers of an adapter.
pub const BUFFERS: u16 = 512;

/// Indications that one run of the DPC makes at most, each of up to [`BATCH`] frames.
const INDICATIONS_PER_RUN: usize = 8;

/// The tag of the lists.
const POOL_TAG: u32 = u32::from_le_bytes(*b"Snic");

/// The receiving end of an adapter.
///
/// # Invariants
///
/// Each entry of `lists` and `mdls` is null or NDIS's, and `pool` is; none of them is used after `released` is set. `bytes` has
/// `room` bytes for each of them: those of a frame, and of a tag in front of it and in it. The bytes of a buffer are touched only by
/// whom the link has given its number to.
pub struct Receiver {
    link: KernelLock<Link>,
    dpc: KernelDpc<Deliver>,
    timer: KernelTimer<Deliver>,
    frame: usize,
    room: usize,
    tagging: Tagging,
    bytes: Box<[UnsafeCell<u8>]>,
    /// What is in each buffer: [`Arrived`].
    arrived: Box<[AtomicU64]>,
    lists: Box<[*mut NET_BUFFER_LIST]>,
    mdls: Box<[*mut MDL]>,
    pool: NDIS_HANDLE,
    released: AtomicBool,
}

// SAFETY: NDIS's lists, MDLs and pool may be used on any thread; bytes belong to one at a time (invariant).
unsafe impl Send for Receiver {}
// SAFETY: as for `Send`.
unsafe impl Sync for Receiver {}

/// A frame in a buffer, as the protocols get it.
#[derive(Clone, Copy)]
struct Arrived {
    /// Its first byte in the buffer.
    offset: u8,
    length: u32,
    /// What is said beside it.
    tag: Tag,
    /// Whose it is.
    class: Class,
}

impl Arrived {
    const fn to_bits(self) -> u64 {
        self.length as u64 | (self.offset as u64) << 32 | (self.tag.control() as u64) << 40 | (self.class as u64) << 56
    }

    #[expect(clippy::cast_possible_truncation, reason = "the parts that were put together")]
    const fn from_bits(bits: u64) -> Self {
        let class = match bits >> 56 {
            0 => Class::Rdma,
            1 => Class::Neighbours,
            _ => Class::Other,
        };
        Self { offset: (bits >> 32) as u8, length: bits as u32, tag: Tag::from_control((bits >> 40) as u16), class }
    }
}

/// What a receiver has done with frames.
pub struct Received {
    /// How many were taken; the others have to wait.
    pub count: usize,
    /// No buffer was free for the next one: the sender is called when there is one.
    pub full: bool,
}

impl Receiver {
    /// A receiver of an adapter with these keywords, whose DPCs run on that processor. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS that lives until the result is [released](Receiver::release) or dropped.
    #[inline(never)]
    pub unsafe fn try_new(adapter: NDIS_HANDLE, keywords: &Keywords, processor: u32) -> Result<Self, NtStatus> {
        let count = usize::from(BUFFERS);
        let frame = keywords.frame as usize;
        let room = frame + 2 * TAG_BYTES;
        let length = u32::try_from(room).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let mut this = Self {
            link: Kernel.lock(Link::try_new(BUFFERS, keywords.impairment)?)?,
            dpc: Kernel.dpc(processor)?,
            timer: Kernel.timer()?,
            frame,
            room,
            tagging: keywords.tagging,
            bytes: try_slice(count * room, |_| UnsafeCell::new(0))?,
            arrived: try_slice(count, |_| AtomicU64::new(0))?,
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
        // SAFETY: an adapter of NDIS that outlives the pool (`# Safety`), and a structure that lives until the call returns.
        this.pool = unsafe { NdisAllocateNetBufferListPool(adapter, &raw const parameters) };
        if this.pool.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        for index in 0..count {
            let place = this.place(index);
            // SAFETY: an adapter of NDIS (`# Safety`); the bytes live as long as the MDL.
            let mdl = unsafe { NdisAllocateMdl(adapter, place.cast(), length) };
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
            // SAFETY: the list is ours and not indicated yet; its reserved words are the miniport's.
            unsafe { (*reserved)[0] = ptr::without_provenance_mut(index) };
        }
        Ok(this)
    }

    /// Where a buffer's bytes are.
    fn place(&self, index: usize) -> *mut u8 {
        self.bytes[index * self.room].get()
    }

    /// Copies a frame into a buffer as the protocols of this adapter get it. `None` if it is no good.
    ///
    /// A frame lies behind the room of a tag, so that only the addresses move when a tag is put in or taken out.
    ///
    /// # Safety
    ///
    /// The frame is a net buffer that the caller has, and that nobody changes; the buffer at `place` is the caller's.
    unsafe fn fill(&self, place: *mut u8, frame: Frame) -> Option<Arrived> {
        const ADDRESSES: usize = 12;
        let length = frame.length();
        if !(HEADER_BYTES..=self.frame + TAG_BYTES).contains(&length) {
            return None;
        }
        let start = place.wrapping_add(TAG_BYTES);
        // SAFETY: nobody changes the frame (`# Safety`); the buffer has room for as many bytes behind those of a tag.
        if !unsafe { frame.copy(start) } {
            return None;
        }
        let inside = if length < HEADER_BYTES + TAG_BYTES {
            None
        } else {
            // SAFETY: the copy has written at least as many bytes.
            Tag::of_header(&unsafe { start.cast::<[u8; HEADER_BYTES + TAG_BYTES]>().read() })
        };
        if length > self.frame && inside.is_none() {
            return None;
        }
        let (offset, length, tag) = match (frame.tag, inside, self.tagging.is_any()) {
            (Some(tag), _, true) => (TAG_BYTES, length, tag),
            (None, Some(tag), true) => {
                let moved = start.wrapping_add(TAG_BYTES);
                // SAFETY: the addresses take the place of the tag, inside of the frame.
                unsafe { ptr::copy(start, moved, ADDRESSES) };
                (2 * TAG_BYTES, length - TAG_BYTES, tag)
            }
            (Some(tag), _, false) => {
                // SAFETY: the addresses move into the room in front of the frame.
                unsafe { ptr::copy(start, place, ADDRESSES) };
                // SAFETY: the bytes between the addresses and the rest of the frame.
                unsafe { place.wrapping_add(ADDRESSES).cast::<[u8; TAG_BYTES]>().write(tag.bytes()) };
                (0, length + TAG_BYTES, Tag::NONE)
            }
            (None, _, _) => (TAG_BYTES, length, Tag::NONE),
        };
        #[expect(clippy::cast_possible_truncation, reason = "no longer than a frame with its tags")]
        Some(Arrived {
            offset: offset as u8,
            length: length as u32,
            tag: self.tagging.carried(tag),
            class: frame.class,
        })
    }

    /// Lets `look` see a frame in one piece, which it is not. False if there is no buffer for it, or it is no good. `IRQL = DISPATCH_LEVEL`,
    /// no lock held.
    ///
    /// # Safety
    ///
    /// The frame's chain is the caller's, its pages are locked or not paged, and nobody changes its bytes until this returns.
    #[must_use]
    pub unsafe fn lend(&self, frame: &Frame, look: impl FnOnce(&[u8])) -> bool {
        let Reserved::Buffer(buffer) = self.link.with(Link::reserve) else { return false };
        let place = self.place(buffer.into());
        // SAFETY: the chain is as `copy` asks for (`# Safety`); this call reserved the buffer, which has that room.
        let is_good = frame.length() <= self.room && unsafe { frame.copy(place) };
        if is_good {
            // SAFETY: the copy has written as many bytes; nobody else has the buffer.
            look(unsafe { slice::from_raw_parts(place, frame.length()) });
        }
        // A sender that waits is on another machine.
        let _ = self.link.with(|link| link.give_back([buffer]));
        is_good
    }

    /// Takes frames of a sender, as many as there are buffers for, and counts them. The receiver's gate is open as long as this
    /// runs. `IRQL = DISPATCH_LEVEL`.
    ///
    /// Frames of RDMA are not counted and not filtered: the engine does both. `sent` are the counters of a sender on this machine.
    ///
    /// # Safety
    ///
    /// The frames' chains are the caller's, their pages are locked or not paged, and nobody changes their bytes until this returns.
    pub unsafe fn take(
        &self,
        frames: &[Frame],
        filter: &Filter,
        sent: Option<&Counters>,
        received: &Counters,
    ) -> Received {
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
            let Reserved::Buffer(buffer) = *place else {
                lost += 1;
                continue;
            };
            let target = self.place(buffer.into());
            // SAFETY: the buffer was reserved by this call; the frame is the caller's.
            let Some(arrived) = (unsafe { self.fill(target, *frame) }) else {
                sent.unwrap_or(received).error();
                continue;
            };
            // As long as it is on the cable, with its tag.
            let bytes = frame.length() + frame.tag.map_or(0, |_| TAG_BYTES);
            // SAFETY: the first six bytes of the frame, which are in the buffer.
            let destination = unsafe { target.wrapping_add(arrived.offset.into()).cast::<[u8; 6]>().read() };
            let kind = Kind::of(&destination) as usize;
            self.arrived[usize::from(buffer)].store(arrived.to_bits(), Relaxed);
            if frame.class == Class::Rdma {
                *length = bytes;
                continue;
            }
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
                    link.send(buffer, length, now);
                } else if link.give_back([buffer]) {
                    // It is this sender that waits: it need not.
                    full = false;
                }
            }
        });
        for (kind, index) in [(Kind::Directed, 0), (Kind::Multicast, 1), (Kind::Broadcast, 2)] {
            debug_assert_eq!(kind as usize, index, "the order of the kinds");
            if out[index].0 > 0
                && let Some(sent) = sent
            {
                sent.add(kind, out[index].0, out[index].1);
            }
            if into[index].0 > 0 {
                received.add(kind, into[index].0, into[index].1);
            }
        }
        if lost > 0 {
            received.discard(lost);
        }
        Received { count, full }
    }

    /// Queues the DPC that indicates arrived frames. `IRQL <= DISPATCH_LEVEL`.
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

    /// Nobody is inside of the gate any more: nothing is due. `IRQL <= DISPATCH_LEVEL`.
    pub fn paused(&self) {
        let _ = self.timer.cancel();
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
            let Arrived { offset, length, tag, .. } = Arrived::from_bits(self.arrived[index].load(Relaxed));
            // SAFETY: the list is this receiver's until it is indicated.
            let new = unsafe { &mut *list };
            new.SourceHandle = source;
            // The drivers above have left in it what was theirs.
            (new.NblFlags, new.Status) = (0, NDIS_STATUS::SUCCESS);
            new.NetBufferListInfo = [ptr::null_mut(); MaxNetBufferListInfo];
            new.NetBufferListInfo[Ieee8021QNetBufferListInfo] = frames::info_of(tag);
            // Protocols may have moved the beginning of the data.
            // SAFETY: the net buffer of the list.
            let buffer = unsafe { &mut *new.FirstNetBuffer };
            (buffer.CurrentMdl, buffer.MdlChain) = (mdl, mdl);
            (buffer.CurrentMdlOffset, buffer.DataOffset) = (offset.into(), offset.into());
            buffer.DataLength = NET_BUFFER_DATA_LENGTH { stDataLength: length as usize };
            // SAFETY: the list is this receiver's, and in no chain.
            unsafe { chain.push(list) };
        }
        chain
    }

    /// Has the engine take the frames of RDMA among those that have arrived, and see those that both want. The others move to the front.
    /// How many. At `DISPATCH_LEVEL`, no lock held.
    fn give_to_engine(adapter: &Arc<Adapter>, buffers: &mut [u16; BATCH], count: usize) -> usize {
        // Frames of a cable are all of protocols.
        if adapter.tunnel().is_none() {
            return count;
        }
        let this = adapter.receiver();
        let engine = adapter.is_rdma_on().then(|| adapter.provider().wire()).flatten();
        let mut kept = 0;
        for index in 0..count {
            let buffer = buffers[index];
            let arrived = Arrived::from_bits(this.arrived[usize::from(buffer)].load(Relaxed));
            if let Some(engine) = engine.as_ref().filter(|_| arrived.class != Class::Other) {
                let start = this.place(buffer.into()).wrapping_add(arrived.offset.into());
                // SAFETY: the frame in a buffer that has arrived, which is this call's.
                Wire::receive(engine, unsafe { slice::from_raw_parts(start, arrived.length as usize) });
            }
            if arrived.class == Class::Rdma {
                let _ = this.link.with(|link| link.give_back([buffer]));
            } else {
                buffers[kept] = buffer;
                kept += 1;
            }
        }
        kept
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
            let count = Self::give_to_engine(adapter, &mut buffers, count);
            if count == 0 {
                continue;
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
        // Inside of the gate: a pause is complete when the timer that was set last is cancelled (`Receiver::paused`).
        if let Some(due) = next.filter(|&due| due > now)
            && adapter.enter(1)
        {
            this.timer.set(due - now, adapter);
            adapter.leave(1);
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

/// The DPC of a receiver, and of its timer.
pub struct Deliver;

impl Routine for Deliver {
    type Target = Adapter;

    fn run(adapter: &Arc<Adapter>) {
        Receiver::deliver(adapter);
    }
}
