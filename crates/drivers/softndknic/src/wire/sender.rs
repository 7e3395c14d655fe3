//! Datagrams on their way out: a slot for each, with room for a frame, its MDL, and an IRP.
//!
//! ```text
//! free --take--> being filled --push--> waits --flush--> with Winsock Kernel --complete--> free
//!  ^                  |                   |
//!  +------------------+------ drop -------+
//! ```
//!
//! A slot is in exactly one of these places. Those that wait for the same peer, one after the other, go with one request, of which the IRP
//! is the first one's. There is no more memory than that of the slots: a frame that finds none free is lost if it is the driver's own,
//! and waits if it is of TCP/IP.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    net::SocketAddr,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Release},
    },
};

use cable::{
    Tag, Turn,
    frame::{HEADER_BYTES, TAG_BYTES},
    link::BATCH,
};
use driver_common::os::{Kernel, KernelLock};
use engine::os::{Os, SpinLock};
use fallible::try_slice;
use kernel::{NonPaged, OwnIrp};
use ndis::{WSK_BUF, WSK_BUF_LIST};
use ndkpi::{NtStatus, SOCKADDR_INET};
use roce::vxlan::{self, HEADER};
use wdk_sys::{NTSTATUS, PDEVICE_OBJECT, PIRP, PVOID, STATUS_MORE_PROCESSING_REQUIRED};

use super::{Tunnel, socket::Used};
use crate::frames::Frame;

/// Datagrams on their way at a time.
pub const SLOTS: u16 = 256;

/// Slots that only the driver's own frames get: a protocol that sends as much as it can does not keep RDMA from its acknowledgements.
const OWN_SLOTS: usize = 64;

/// No slot.
const NONE: u16 = u16::MAX;

/// The tag of the slots' memory.
const POOL_TAG: u32 = u32::from_le_bytes(*b"Snic");

/// Bytes of an Ethernet header with a tag.
const TAGGED: usize = HEADER_BYTES + TAG_BYTES;

/// Bytes of the addresses of a frame.
const ADDRESSES: usize = 12;

/// A slot.
struct Slot {
    irp: OwnIrp,
    memory: NonPaged,
    index: u16,
    message: UnsafeCell<Message>,
    /// Whose it is, as soon as anything is sent.
    tunnel: AtomicPtr<Tunnel>,
}

/// What is in a slot.
struct Message {
    /// The datagram, and the next one of the same request.
    list: WSK_BUF_LIST,
    /// Where it goes.
    to: SocketAddr,
    /// The same, as Winsock Kernel wants it.
    address: SOCKADDR_INET,
    /// The slot of the next one of the same request.
    next: u16,
}

/// A way out.
///
/// # Invariants
///
/// A slot is touched only by whom the queue has given it to, or, while it is in the queue, under its lock. Its MDL describes all of its
/// memory, which has room for a header, a tag and a frame of `frame` bytes with a tag.
pub struct Sender {
    slots: Box<[Slot]>,
    queue: KernelLock<Queue>,
    frame: usize,
    header: [u8; HEADER],
}

// SAFETY: the pointers are those of slots, which are one's at a time (invariant), on whichever thread.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pointers are those of slots")]
unsafe impl Send for Sender {}
// SAFETY: as for `Send`.
unsafe impl Sync for Sender {}

/// Where slots are.
///
/// # Invariants
///
/// `free[..free_count]` are free; `count` elements of the ring `waiting` from `first` on wait. No slot is in both, or twice.
struct Queue {
    free: Box<[u16]>,
    free_count: usize,
    waiting: Box<[u16]>,
    first: usize,
    count: usize,
    /// A protocol waits for a slot.
    is_wanted: bool,
    /// Who hands slots to Winsock Kernel.
    turn: Turn,
}

impl Queue {
    fn push(&mut self, slot: u16) {
        // There is room for all slots (invariant).
        let place = (self.first + self.count) % self.waiting.len();
        self.waiting[place] = slot;
        self.count += 1;
    }

    fn pop(&mut self) -> Option<u16> {
        let slot = (self.count > 0).then(|| self.waiting[self.first])?;
        self.first = (self.first + 1) % self.waiting.len();
        self.count -= 1;
        Some(slot)
    }

    fn front(&self) -> Option<u16> {
        (self.count > 0).then(|| self.waiting[self.first])
    }
}

/// A frame that goes out.
#[derive(Clone, Copy)]
pub enum Source<'frame> {
    /// One of protocols.
    Frame(&'frame Frame),
    /// One of the driver's own.
    Bytes(&'frame [u8]),
}

impl Source<'_> {
    const fn length(self) -> usize {
        match self {
            Self::Frame(frame) => frame.length(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    const fn tag(self) -> Option<Tag> {
        match self {
            Self::Frame(frame) => frame.tag,
            Self::Bytes(_) => None,
        }
    }

    /// Whose slots it may take.
    const fn from(self) -> From {
        match self {
            Self::Frame(_) => From::Protocols,
            Self::Bytes(_) => From::Engine,
        }
    }

    /// # Safety
    ///
    /// As for [`Frame::copy`].
    unsafe fn copy(self, place: *mut u8) -> bool {
        match self {
            // SAFETY: `Frame::copy` asks for the same (`# Safety`).
            Self::Frame(frame) => unsafe { frame.copy(place) },
            Self::Bytes(bytes) => {
                // SAFETY: the place has that room (`# Safety`), in memory that the slice is not in.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
                true
            }
        }
    }
}

/// Whose frames are to go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// The driver's own: it is lost if there is no slot.
    Engine,
    /// Those of protocols: it waits.
    Protocols,
}

impl Sender {
    /// A way out for frames of up to `frame` bytes without a tag, in the network `vni`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    #[inline(never)]
    pub fn try_new(frame: usize, vni: u32) -> Result<Self, NtStatus> {
        let count = usize::from(SLOTS);
        let mut slots = alloc::vec::Vec::new();
        slots.try_reserve_exact(count).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        for index in 0..SLOTS {
            slots.push(Slot::try_new(index, HEADER + TAG_BYTES + frame + TAG_BYTES)?);
        }
        let queue = Queue {
            free: try_slice(count, |index| u16::try_from(index).unwrap_or(NONE))?,
            free_count: count,
            waiting: try_slice(count, |_| NONE)?,
            first: 0,
            count: 0,
            is_wanted: false,
            turn: Turn::new(),
        };
        Ok(Self { slots: slots.into_boxed_slice(), queue: Kernel.lock(queue)?, frame, header: vxlan::header(vni) })
    }

    /// Takes a slot.
    fn take(&self, from: From) -> Option<u16> {
        self.queue.with(|queue| {
            let kept = if from == From::Engine { 0 } else { OWN_SLOTS };
            if queue.free_count <= kept {
                queue.is_wanted |= from == From::Protocols;
                return None;
            }
            queue.free_count -= 1;
            Some(queue.free[queue.free_count])
        })
    }

    /// Slots are free again: this one and those behind it. True if a protocol waits for one.
    fn give_back(&self, first: u16) -> bool {
        self.queue.with(|queue| {
            let mut index = first;
            // As many as went with one request.
            while let Some(slot) = self.slots.get(usize::from(index)) {
                queue.free[queue.free_count] = index;
                queue.free_count += 1;
                // SAFETY: the slot was the caller's until here, and the lock is held.
                index = unsafe { core::mem::replace(&mut (*slot.message.get()).next, NONE) };
            }
            queue.free_count > OWN_SLOTS && core::mem::take(&mut queue.is_wanted)
        })
    }

    /// Puts a frame in line for each of its peers. How many it has found a slot for; `None` if it is no good. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// As for [`Frame::copy`].
    pub unsafe fn put(&self, frame: Source<'_>, peers: &[SocketAddr]) -> Option<usize> {
        for (done, peer) in peers.iter().enumerate() {
            let Some(index) = self.take(frame.from()) else { return Some(done) };
            // SAFETY: the slot was just taken; nobody changes the frame (`# Safety`).
            if !unsafe { self.fill(index, frame, *peer) } {
                // The same slot, which nobody waits for: there was one free.
                let _ = self.give_back(index);
                return None;
            }
            self.queue.with(|queue| queue.push(index));
        }
        Some(peers.len())
    }

    /// Copies a frame into a slot, behind the header and with its tag. False if it is no good.
    ///
    /// # Safety
    ///
    /// The slot was taken, and is in no other place; and as for [`Frame::copy`].
    unsafe fn fill(&self, index: u16, frame: Source<'_>, to: SocketAddr) -> bool {
        let slot = &self.slots[usize::from(index)];
        let length = frame.length();
        if !(ADDRESSES + 2..=self.frame + TAG_BYTES).contains(&length) {
            return false;
        }
        let tag = if frame.tag().is_some() { TAG_BYTES } else { 0 };
        // The frame is always in the same place. With a tag its addresses move to the front of that, and the header with them.
        let place = slot.memory.address().wrapping_add(HEADER + TAG_BYTES);
        // SAFETY: the slot is this call's, and has that room (invariant); nobody changes the frame (`# Safety`).
        if !unsafe { frame.copy(place) } {
            return false;
        }
        if length > self.frame {
            // SAFETY: bytes that the copy has written: the frame is longer than a header.
            let header = unsafe { place.cast::<[u8; TAGGED]>().read() };
            // It may be longer by a tag that is in it.
            if frame.tag().is_some() || Tag::of_header(&header).is_none() {
                return false;
            }
        }
        if let Some(tag) = frame.tag() {
            let front = place.wrapping_sub(TAG_BYTES);
            // SAFETY: inside of the slot's memory, behind the room of the header.
            unsafe { ptr::copy(place, front, ADDRESSES) };
            // SAFETY: the bytes between the addresses and the rest of the frame.
            unsafe { front.wrapping_add(ADDRESSES).cast::<[u8; TAG_BYTES]>().write(tag.bytes()) };
        }
        let start = place.wrapping_sub(tag).wrapping_sub(HEADER);
        // SAFETY: the bytes in front of the frame.
        unsafe { start.cast::<[u8; HEADER]>().write(self.header) };
        #[expect(clippy::cast_possible_truncation, reason = "zero or four")]
        let offset = (TAG_BYTES - tag) as u32;
        // SAFETY: the slot is this call's.
        let message = unsafe { &mut *slot.message.get() };
        message.list.Next = ptr::null_mut();
        message.list.Buffer = WSK_BUF { Mdl: slot.memory.mdl().cast(), Offset: offset, Length: HEADER + tag + length };
        message.next = NONE;
        if message.to != to || message.address.family() == 0 {
            (message.to, message.address) = (to, to.into());
        }
        true
    }

    /// Takes what waits for one peer, one after the other: the first slot, and how many there are.
    fn batch(&self) -> Option<(u16, u64)> {
        self.queue.with(|queue| {
            let first = queue.pop()?;
            let (mut last, mut count) = (first, 1);
            while count < BATCH as u64
                && let Some(next) = queue.front()
            {
                let (before, behind) = (&self.slots[usize::from(last)], &self.slots[usize::from(next)]);
                // SAFETY: both slots are in the queue, or were until now, and its lock is held.
                let (before, behind) = unsafe { (&mut *before.message.get(), &mut *behind.message.get()) };
                if before.to != behind.to {
                    break;
                }
                before.list.Next = &raw mut behind.list;
                before.next = next;
                last = next;
                count += 1;
                let _ = queue.pop();
            }
            Some((first, count))
        })
    }

    /// Begins to hand slots to Winsock Kernel. False if somebody does, who looks again.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.queue.with(|queue| queue.turn.begin())
    }

    /// Ends it. True if there is more to do.
    #[must_use]
    pub fn end(&self) -> bool {
        self.queue.with(|queue| queue.turn.end() || queue.count > 0)
    }

    /// Hands what waits for one peer to Winsock Kernel, or drops it without a socket. What has become of it; `None` if nothing waits.
    /// `IRQL <= DISPATCH_LEVEL`, no lock held, in between [`Sender::begin`] and [`Sender::end`].
    #[must_use]
    pub fn flush(&self, tunnel: &Tunnel, used: Option<&Used<'_>>) -> Option<Flushed> {
        let (first, count) = self.batch()?;
        let slot = &self.slots[usize::from(first)];
        let Some(used) = used else {
            return Some(Flushed { dropped: count, is_wanted: self.give_back(first) });
        };
        slot.tunnel.store(ptr::from_ref(tunnel).cast_mut(), Release);
        let context: PVOID = ptr::from_ref(slot).cast_mut().cast();
        // SAFETY: the slot is this call's, and so is its IRP; the slot lives as long as the tunnel, which closes the socket before it goes.
        let irp = unsafe { slot.irp.begin(complete, context) };
        let message = slot.message.get();
        // SAFETY: the IRP was begun for this; slots stay as they are until `complete` has them.
        unsafe { used.send(&raw mut (*message).list, &raw const (*message).address, irp.cast()) };
        Some(Flushed { dropped: 0, is_wanted: false })
    }
}

/// What has become of a batch.
pub struct Flushed {
    /// Datagrams that were dropped.
    pub dropped: u64,
    /// A protocol waits for a slot that is free now.
    pub is_wanted: bool,
}

impl Slot {
    fn try_new(index: u16, room: usize) -> Result<Self, NtStatus> {
        let mut memory = NonPaged::try_new(room, POOL_TAG)?;
        memory.describe(0, room)?;
        let nowhere = SocketAddr::new(core::net::IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED), 0);
        let message = Message {
            list: WSK_BUF_LIST {
                Next: ptr::null_mut(),
                Buffer: WSK_BUF { Mdl: ptr::null_mut(), Offset: 0, Length: 0 },
            },
            to: nowhere,
            address: SOCKADDR_INET::UNSPECIFIED,
            next: NONE,
        };
        Ok(Self {
            irp: OwnIrp::try_new()?,
            memory,
            index,
            message: UnsafeCell::new(message),
            tunnel: AtomicPtr::new(ptr::null_mut()),
        })
    }
}

/// A request is complete. `IRQL <= DISPATCH_LEVEL`.
unsafe extern "C" fn complete(_device: PDEVICE_OBJECT, _irp: PIRP, slot: PVOID) -> NTSTATUS {
    // SAFETY: the slot of the request, which lives as long as the tunnel.
    let slot = unsafe { &*slot.cast_const().cast::<Slot>() };
    // SAFETY: the tunnel of the request: it waits for this before it goes.
    let tunnel = unsafe { &*slot.tunnel.load(Acquire) };
    // SAFETY: the request is complete.
    let (status, _) = unsafe { slot.irp.outcome() };
    tunnel.sent(slot.index, status);
    STATUS_MORE_PROCESSING_REQUIRED
}

impl Tunnel {
    /// The request of a slot is complete: its slots are free again.
    fn sent(&self, first: u16, status: NtStatus) {
        let is_wanted = self.sender().give_back(first);
        self.settle(status, is_wanted);
        self.current().complete();
    }
}
