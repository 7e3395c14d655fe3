//! The sending end of the cable: lists of frames wait here for the DPC that carries them to the other adapter.
//!
//! A list is complete when all its frames are in buffers of the receiver, or dropped. If the receiver has no free buffer the lists
//! wait, [`MAX_QUEUED`] at most; further ones are refused and their frames counted as dropped.

use core::{ffi::c_void, ptr};

use arrayvec::ArrayVec;
use cable::{Tagging, Turn, link::BATCH};
use driver_common::os::{Kernel, KernelDpc, KernelLock};
use engine::os::{Dpc, Os, Routine, SpinLock};
use fallible::Arc;
use ndis::{
    NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL, NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS, NDIS_STATUS_PAUSED,
    NDIS_STATUS_SEND_ABORTED, NET_BUFFER, NET_BUFFER_LIST, NdisMSendNetBufferListsComplete, NetBufferListCancelId,
};
use ndkpi::NtStatus;

use crate::{
    adapter::Adapter,
    frames::{self, Chain, Frame},
    receive::Receiver,
    wire::Tunnel,
};

/// Lists that wait at most.
pub const MAX_QUEUED: u32 = 4096;

/// Batches that one run of the DPC carries at most.
const BATCHES_PER_RUN: usize = 8;

/// The sending end of an adapter.
pub struct Transmitter {
    queue: KernelLock<Queue>,
    dpc: KernelDpc<Carry>,
}

/// Cancellations that a run of the DPC remembers. More come to nothing, if it has the lists that they are for.
const REMEMBERED: usize = 8;

/// What waits.
struct Queue {
    waiting: Unsent,
    /// The DPC that carries frames to the other end.
    turn: Turn,
    /// The identifiers that were cancelled since the DPC has taken the lists that waited: it puts none of these back.
    cancelled: ArrayVec<usize, REMEMBERED>,
}

/// Lists with frames that were not sent.
struct Unsent {
    lists: Chain,
    /// The next frame of the first list; null for its first one.
    next: *mut NET_BUFFER,
}

// SAFETY: the frames belong to the miniport until it completes their lists, on whichever thread.
unsafe impl Send for Unsent {}

impl Unsent {
    const NONE: Self = Self { lists: Chain::EMPTY, next: ptr::null_mut() };

    fn take(&mut self) -> Self {
        core::mem::replace(self, Self::NONE)
    }

    /// Puts what waits behind these lists, which were there before.
    fn followed_by(mut self, behind: Self) -> Self {
        if self.lists.count() == 0 {
            return behind;
        }
        self.lists.append(behind.lists);
        self
    }

    /// Takes the lists whose identifier is a cancelled one.
    fn take_cancelled(&mut self, is_cancelled: impl Fn(usize) -> bool) -> Chain {
        let (mut all, mut kept, mut cancelled) = (self.lists.take(), Chain::EMPTY, Chain::EMPTY);
        let first = all.first();
        while let Some(list) = all.pop() {
            // SAFETY: a list that was not completed.
            let id = unsafe { (*list).NetBufferListInfo }[NetBufferListCancelId];
            let is_taken = is_cancelled(id.addr());
            if is_taken && list == first {
                self.next = ptr::null_mut();
            }
            let chain = if is_taken { &mut cancelled } else { &mut kept };
            // SAFETY: the list was in this chain.
            unsafe { chain.push(list) };
        }
        self.lists = kept;
        cancelled
    }

    /// The next frames, up to a batch, with the tags that their lists ask for. How many.
    fn gather(&self, frames: &mut [Frame; BATCH], tagging: Tagging) -> usize {
        let (mut list, mut frame, mut count) = (self.lists.first(), self.first_frame(), 0);
        while count < BATCH && !list.is_null() {
            if frame.is_null() {
                // SAFETY: a list that is being sent.
                list = unsafe { (*list).Next };
                // SAFETY: null, or a list that is being sent.
                frame = unsafe { list.as_ref() }.map_or(ptr::null_mut(), |list| list.FirstNetBuffer);
                continue;
            }
            // SAFETY: a list that is being sent.
            let tag = tagging.carried(unsafe { frames::tag_of(list) });
            // SAFETY: a frame of that list.
            frames[count] = unsafe { Frame::of(frame, (!tag.is_none()).then_some(tag)) };
            count += 1;
            // SAFETY: a frame of a list that is being sent.
            frame = unsafe { (*frame).Next };
        }
        count
    }

    fn first_frame(&self) -> *mut NET_BUFFER {
        if !self.next.is_null() {
            return self.next;
        }
        // SAFETY: null, or a list that is being sent.
        unsafe { self.lists.first().as_ref() }.map_or(ptr::null_mut(), |list| list.FirstNetBuffer)
    }

    /// Moves on by `frames` frames, which were sent. Lists whose frames are all sent go to `done`.
    fn settle(&mut self, frames: usize, done: &mut Chain) {
        let mut left = frames;
        while self.lists.count() > 0 {
            let mut frame = self.first_frame();
            while left > 0 && !frame.is_null() {
                // SAFETY: a frame of a list that is being sent.
                frame = unsafe { (*frame).Next };
                left -= 1;
            }
            self.next = frame;
            if !frame.is_null() {
                return;
            }
            if let Some(list) = self.lists.pop() {
                // SAFETY: the list was in this chain.
                unsafe { done.push(list) };
            }
        }
    }
}

impl Transmitter {
    /// Nothing waits; DPCs run on that processor.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    #[inline(never)]
    pub fn try_new(processor: u32) -> Result<Self, NtStatus> {
        let queue = Queue { waiting: Unsent::NONE, turn: Turn::new(), cancelled: ArrayVec::new_const() };
        Ok(Self { queue: Kernel.lock(queue)?, dpc: Kernel.dpc(processor)? })
    }

    /// Takes everything that waits, and is not being carried at this moment.
    #[must_use]
    pub fn take_all(&self) -> Chain {
        self.queue.with(|queue| queue.waiting.take().lists)
    }
}

impl Adapter {
    /// Queues the DPC that sends the frames that wait. `IRQL <= DISPATCH_LEVEL`.
    pub fn wake_sender(this: &Arc<Self>) {
        this.transmitter().dpc.queue(this);
    }

    /// `MiniportSendNetBufferLists`. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// The lists belong to the miniport from now on, until they are completed.
    pub unsafe fn send(this: &Arc<Self>, lists: *mut NET_BUFFER_LIST, flags: u32) {
        // SAFETY: the lists are the miniport's from now on (`# Safety`).
        let mut lists = unsafe { Chain::of(lists) };
        let dispatch = flags & NDIS_SEND_FLAGS_DISPATCH_LEVEL != 0;
        if !this.enter(lists.count()) {
            return this.complete(lists, NDIS_STATUS_PAUSED, dispatch, false);
        }
        let mut refused = Chain::EMPTY;
        this.transmitter().queue.with(|queue| {
            let waiting = &mut queue.waiting.lists;
            if waiting.count() + lists.count() <= MAX_QUEUED {
                return waiting.append(lists.take());
            }
            while let Some(list) = lists.pop() {
                let chain = if waiting.count() < MAX_QUEUED { &mut *waiting } else { &mut refused };
                // SAFETY: the list was in the caller's chain.
                unsafe { chain.push(list) };
            }
        });
        this.sent().discard(refused.count().into());
        this.complete(refused, NtStatus::INSUFFICIENT_RESOURCES, dispatch, true);
        Self::wake_sender(this);
    }

    /// `MiniportCancelSend`: gives back the lists with that identifier that wait; the DPC does with those that it has, and that it cannot
    /// send. `IRQL <= DISPATCH_LEVEL`.
    pub fn cancel_send(&self, id: *mut c_void) {
        let id = id.addr();
        let cancelled = self.transmitter().queue.with(|queue| {
            if queue.turn.is_taken() && !queue.cancelled.contains(&id) {
                let _ = queue.cancelled.try_push(id);
            }
            queue.waiting.take_cancelled(|own| own == id)
        });
        self.complete(cancelled, NDIS_STATUS_SEND_ABORTED, false, true);
    }

    /// Completes lists. `inside`: they are counted at the gate. `IRQL <= DISPATCH_LEVEL`, no lock held.
    pub fn complete(&self, lists: Chain, status: NDIS_STATUS, dispatch: bool, inside: bool) {
        let mut lists = lists;
        let count = lists.count();
        if count == 0 {
            return;
        }
        lists.set_status(status);
        let flags = if dispatch { NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL } else { 0 };
        // SAFETY: the lists are the miniport's, and are not used again.
        unsafe { NdisMSendNetBufferListsComplete(self.handle(), lists.first(), flags) };
        if inside {
            self.leave(count);
        }
    }

    /// Carries frames to the other end, a bounded number of them. At `DISPATCH_LEVEL`.
    fn carry(this: &Arc<Self>) {
        let own = this.transmitter();
        let begun = own.queue.with(|queue| queue.turn.begin().then(|| queue.waiting.take()));
        let Some(mut sending) = begun else { return };
        let partner = this.enter_partner();
        let filter = partner.as_ref().map(|partner| partner.filter());
        let (mut done, mut full) = (Chain::EMPTY, false);
        for _ in 0..BATCHES_PER_RUN {
            let mut frames = [Frame::NONE; BATCH];
            let count = sending.gather(&mut frames, this.keywords().tagging);
            let frames = &frames[..count];
            let taken = if let Some(tunnel) = this.tunnel() {
                // SAFETY: the frames are of lists that this has.
                let taken = unsafe { Tunnel::take(tunnel, frames, this.sent()) };
                full = taken.full;
                taken.count
            } else if let (Some(partner), Some(filter)) = (&partner, &filter) {
                let (sent, received) = (Some(this.sent()), partner.received());
                // SAFETY: the frames are of lists that this has until it completes them: locked pages, which nobody changes. The partner's
                // gate is open: `enter_partner`.
                let taken = unsafe { partner.receiver().take(frames, filter, sent, received) };
                full = taken.full;
                taken.count
            } else {
                this.sent().discard(count as u64);
                count
            };
            sending.settle(taken, &mut done);
            if full || sending.lists.count() == 0 {
                break;
            }
        }
        if let Some(partner) = partner {
            Receiver::wake(&partner);
            partner.leave(1);
        }
        this.complete(done, NDIS_STATUS::SUCCESS, true, true);

        let (mut left, mut cancelled) = (Chain::EMPTY, Chain::EMPTY);
        let again = own.queue.with(|queue| {
            if !queue.cancelled.is_empty() {
                cancelled = sending.take_cancelled(|id| queue.cancelled.contains(&id));
                queue.cancelled.clear();
            }
            let more = sending.lists.count() > 0 && !full;
            queue.waiting = sending.take().followed_by(queue.waiting.take());
            // A pause takes what waits after it has closed the gate: so it finds what is put back here, or is seen here.
            if !this.is_open() {
                left = queue.waiting.take().lists;
            }
            queue.turn.end() || more
        });
        this.complete(cancelled, NDIS_STATUS_SEND_ABORTED, true, true);
        this.complete(left, NDIS_STATUS_PAUSED, true, true);
        if again {
            Self::wake_sender(this);
        }
    }
}

/// The DPC of a sender.
pub struct Carry;

impl Routine for Carry {
    type Target = Adapter;

    fn run(adapter: &Arc<Adapter>) {
        Adapter::carry(adapter);
    }
}
