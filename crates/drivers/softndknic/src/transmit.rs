//! The sending end of the cable: lists of frames wait here for the DPC that carries them to the other adapter.
//!
//! A list is complete when all its frames are in buffers of the receiver, or dropped. If the receiver has no free buffer the lists
//! wait, [`MAX_QUEUED`] at most; further ones are refused and their frames counted as dropped.

use core::{ffi::c_void, ptr};

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

/// Lists that wait.
struct Queue {
    lists: Chain,
    /// The next frame of the first list; null for its first one.
    next: *mut NET_BUFFER,
    /// The DPC that carries frames to the other end.
    turn: Turn,
}

// SAFETY: the frames belong to the miniport as long as they wait, on whichever thread.
unsafe impl Send for Queue {}

/// Lists that are being carried.
struct Sending {
    lists: Chain,
    next: *mut NET_BUFFER,
}

impl Sending {
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
        let queue = Queue { lists: Chain::EMPTY, next: ptr::null_mut(), turn: Turn::new() };
        Ok(Self { queue: Kernel.lock(queue)?, dpc: Kernel.dpc(processor)? })
    }

    /// Takes everything that waits, and is not being carried at this moment.
    #[must_use]
    pub fn take_all(&self) -> Chain {
        self.queue.with(|queue| {
            queue.next = ptr::null_mut();
            queue.lists.take()
        })
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
            if queue.lists.count() + lists.count() <= MAX_QUEUED {
                return queue.lists.append(lists.take());
            }
            while let Some(list) = lists.pop() {
                let chain = if queue.lists.count() < MAX_QUEUED { &mut queue.lists } else { &mut refused };
                // SAFETY: the list was in the caller's chain.
                unsafe { chain.push(list) };
            }
        });
        this.sent().discard(refused.count().into());
        this.complete(refused, NtStatus::INSUFFICIENT_RESOURCES, dispatch, true);
        Self::wake_sender(this);
    }

    /// `MiniportCancelSend`: gives back the lists with that identifier that wait. `IRQL <= DISPATCH_LEVEL`.
    pub fn cancel_send(&self, id: *mut c_void) {
        let cancelled = self.transmitter().queue.with(|queue| {
            let (mut all, mut kept, mut cancelled) = (queue.lists.take(), Chain::EMPTY, Chain::EMPTY);
            let first = all.first();
            while let Some(list) = all.pop() {
                // SAFETY: a list that waits.
                let own = unsafe { (*list).NetBufferListInfo }[NetBufferListCancelId];
                if own == id && list == first {
                    queue.next = ptr::null_mut();
                }
                let chain = if own == id { &mut cancelled } else { &mut kept };
                // SAFETY: the list was in the queue.
                unsafe { chain.push(list) };
            }
            queue.lists = kept;
            cancelled
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
        let begun = own.queue.with(|queue| {
            let next = ptr::null_mut();
            queue
                .turn
                .begin()
                .then(|| Sending { lists: queue.lists.take(), next: core::mem::replace(&mut queue.next, next) })
        });
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

        let mut left = Chain::EMPTY;
        let again = own.queue.with(|queue| {
            let mut lists = sending.lists.take();
            let more = lists.count() > 0 && !full;
            // A pause takes what waits after it has closed the gate: so it finds what is put back here, or is seen here.
            if this.is_open() {
                if lists.count() > 0 {
                    queue.next = sending.next;
                }
                lists.append(queue.lists.take());
                queue.lists = lists;
            } else {
                lists.append(queue.lists.take());
                left = lists;
            }
            queue.turn.end() || more
        });
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
