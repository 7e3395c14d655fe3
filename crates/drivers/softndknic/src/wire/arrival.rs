//! Datagrams that have come: frames of RDMA go to the engine, others to the receive buffers of the adapter.
//!
//! Winsock Kernel calls at up to `DISPATCH_LEVEL`, and gets its datagrams back when the call returns. A frame of RDMA that lies in one piece
//! is not copied but by the engine, to where it belongs; any other frame is copied once. A call does a bounded amount of work: of a
//! longer list the rest is lost, as frames may be.
//!
//! # Lent
//!
//! What the unsafe functions here ask for, and what Winsock Kernel promises of the list that it gives to the callback: until the callback returns
//! the datagrams of the list are the callback's alone, linked by `Next`, the last one by null. The MDLs of each describe pages that are locked or
//! not paged, and nobody writes the bytes. `RemoteAddress` is an address of the socket's family: 16 bytes for IPv4, 28 for IPv6.

use core::{ffi::c_void, slice};

use arrayvec::ArrayVec;
use cable::{Class, class::LOOKS_AT, link::BATCH};
use driver_common::os::Kernel;
use engine::{
    os::{Os, SpinLock},
    wire::Wire,
};
use fallible::Arc;
use kernel::at_dispatch_level;
use ndis::{WSK_CLIENT_DATAGRAM_DISPATCH, WSK_DATAGRAM_INDICATION};
use ndkpi::{AF_INET, NtStatus, SOCKADDR_INET};
use roce::vxlan::HEADER;

use super::Tunnel;
use crate::{adapter::Adapter, frames::Frame, receive::Receiver};

/// What a socket tells of.
pub static EVENTS: WSK_CLIENT_DATAGRAM_DISPATCH = WSK_CLIENT_DATAGRAM_DISPATCH { WskReceiveFromEvent: Some(arrived) };

/// Datagrams that one call looks at.
const DATAGRAMS: usize = 256;

/// Frames that go to the receive buffers together.
type Others = ArrayVec<Frame, BATCH>;

/// What of a frame is wanted before it is known whose it is.
type Head = [u8; HEADER + LOOKS_AT];

/// `WskReceiveFromEvent`. `IRQL <= DISPATCH_LEVEL`.
unsafe extern "system" fn arrived(context: *mut c_void, _flags: u32, list: *mut WSK_DATAGRAM_INDICATION) -> NtStatus {
    // SAFETY: the context of the socket: the tunnel, which closes the socket before it goes.
    let tunnel = unsafe { &*context.cast_const().cast::<Tunnel>() };
    if list.is_null() {
        tunnel.broke(NtStatus::CONNECTION_ABORTED);
    } else if let Some(adapter) = tunnel.adapter() {
        // SAFETY: the list is lent to this call until it returns (the module's documentation), and `bring_in` keeps nothing of it.
        at_dispatch_level(|| unsafe { bring_in(tunnel, &adapter, list) });
    }
    NtStatus::SUCCESS
}

/// Brings in what is in a list, and keeps nothing of it. `IRQL = DISPATCH_LEVEL`, no lock held.
///
/// # Safety
///
/// The list is lent (the module's documentation) until this returns.
unsafe fn bring_in(tunnel: &Tunnel, adapter: &Arc<Adapter>, list: *const WSK_DATAGRAM_INDICATION) {
    // None while NDK is disabled, or the adapter sleeps: then everything is TCP/IP's.
    let engine = adapter.is_rdma_on().then(|| adapter.provider().wire()).flatten();
    let mut others = Others::new();
    let mut next = list;
    for _ in 0..DATAGRAMS {
        // SAFETY: null, or a datagram of the list, which is lent (`# Safety`).
        let Some(datagram) = (unsafe { next.as_ref() }) else { break };
        next = datagram.Next;
        // SAFETY: the datagram is of that list, and so is the frame, which is not used when this has returned.
        let Some(frame) = (unsafe { frame_of(tunnel, adapter, datagram) }) else { continue };
        let frame = match (frame.class, &engine) {
            (Class::Other, _) => frame,
            (_, None) => frame.of_class(Class::Other),
            // They come late, and go where they belong then.
            (_, Some(_)) if tunnel.is_impaired() => frame,
            (class, Some(engine)) => {
                // SAFETY: the frame is in a datagram of the list, which is lent (`# Safety`).
                unsafe { give_to_engine(adapter, engine, &frame) };
                if class == Class::Rdma {
                    continue;
                }
                frame.of_class(Class::Other)
            }
        };
        if others.is_full() {
            // SAFETY: the frames are in datagrams of the list, which is lent (`# Safety`).
            unsafe { pass_up(adapter, &others) };
            others.clear();
        }
        others.push(frame);
    }
    if !next.is_null() {
        adapter.received().discard(1);
    }
    if !others.is_empty() {
        // SAFETY: the frames are in datagrams of the list, which is lent (`# Safety`).
        unsafe { pass_up(adapter, &others) };
    }
}

/// The frame in a datagram, with its class; `None` if it is none for this adapter, which was counted. `IRQL = DISPATCH_LEVEL`.
///
/// # Safety
///
/// The datagram is of a list that is lent (the module's documentation), as long as the frame is used.
unsafe fn frame_of(tunnel: &Tunnel, adapter: &Adapter, datagram: &WSK_DATAGRAM_INDICATION) -> Option<Frame> {
    let buffer = &datagram.Buffer;
    let whole = Frame::in_chain(buffer.Mdl.cast(), buffer.Offset as usize, buffer.Length);
    let mut head: Head = [0; HEADER + LOOKS_AT];
    // SAFETY: the datagram is lent (`# Safety`): its pages are locked or not paged, and nobody writes its bytes.
    let head = unsafe { whole.head(&mut head) }.and_then(|length| head.get(..length))?;
    // SAFETY: the datagram is lent (`# Safety`): an address of the socket's family, which comes first in it, as in every address.
    let length = if unsafe { datagram.RemoteAddress.cast::<u16>().read_unaligned() } == AF_INET { 16 } else { 28 };
    // SAFETY: as above: an address has as many bytes as its family says.
    let from = unsafe { SOCKADDR_INET::read(datagram.RemoteAddress, length) }?.to_socket_addr()?;
    let now = Kernel.now();
    if tunnel.bridge().with(|bridge| bridge.receive(now, head, from)).is_err() {
        adapter.received().error();
        return None;
    }
    Some(whole.behind(HEADER).of_class(Class::of(&head[HEADER..])))
}

/// Has the engine take a frame, of which it keeps nothing. `IRQL = DISPATCH_LEVEL`, no lock held.
///
/// # Safety
///
/// The frame is in a datagram that is lent (the module's documentation) until this returns.
unsafe fn give_to_engine(adapter: &Adapter, engine: &Arc<Wire<Kernel>>, frame: &Frame) {
    // SAFETY: the datagram is lent (`# Safety`): the chain is ours, and its pages are locked or not paged.
    if let Some(start) = unsafe { frame.in_one_piece() } {
        // SAFETY: as many bytes are mapped there in one piece, and nobody writes them while the datagram is lent (`# Safety`).
        Wire::receive(engine, unsafe { slice::from_raw_parts(start, frame.length()) });
        return;
    }
    // SAFETY: the datagram is lent (`# Safety`): pages as `lend` asks for, whose bytes nobody writes.
    if !unsafe { adapter.receiver().lend(frame, |bytes| Wire::receive(engine, bytes)) } {
        adapter.received().discard(1);
    }
}

/// Has the adapter's receiver copy frames. `IRQL = DISPATCH_LEVEL`, no lock held.
///
/// # Safety
///
/// The frames are in datagrams that are lent (the module's documentation) until this returns.
unsafe fn pass_up(adapter: &Arc<Adapter>, frames: &[Frame]) {
    if !adapter.enter(1) {
        adapter.received().discard(frames.len() as u64);
        return;
    }
    // SAFETY: the datagrams are lent (`# Safety`): pages as `take` asks for, whose bytes nobody writes.
    let taken = unsafe { adapter.receiver().take(frames, &adapter.filter(), None, adapter.received()) };
    // Without a buffer they are lost: the sender is far away.
    adapter.received().discard((frames.len() - taken.count) as u64);
    Receiver::wake(adapter);
    adapter.leave(1);
}
