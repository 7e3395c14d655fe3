//! Datagrams that have come: frames of RDMA go to the engine, others to the receive buffers of the adapter.
//!
//! Winsock Kernel calls at up to `DISPATCH_LEVEL`, and gets its datagrams back when the call returns. A frame of RDMA that lies in one piece
//! is not copied but by the engine, to where it belongs; any other frame is copied once. A call does a bounded amount of work: of a
//! longer list the rest is lost, as frames may be.

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
        // SAFETY: the list is this call's until it returns.
        at_dispatch_level(|| unsafe { bring_in(tunnel, &adapter, list) });
    }
    NtStatus::SUCCESS
}

/// Brings in what is in a list. `IRQL = DISPATCH_LEVEL`, no lock held.
///
/// # Safety
///
/// The list is the caller's.
unsafe fn bring_in(tunnel: &Tunnel, adapter: &Arc<Adapter>, list: *const WSK_DATAGRAM_INDICATION) {
    // None while NDK is disabled, or the adapter sleeps: then everything is TCP/IP's.
    let engine = adapter.is_rdma_on().then(|| adapter.provider().wire()).flatten();
    let mut others = Others::new();
    let mut next = list;
    for _ in 0..DATAGRAMS {
        // SAFETY: null, or a datagram of the list.
        let Some(datagram) = (unsafe { next.as_ref() }) else { break };
        next = datagram.Next;
        // SAFETY: as above.
        let Some(frame) = (unsafe { frame_of(tunnel, adapter, datagram) }) else { continue };
        let frame = match (frame.class, &engine) {
            (Class::Other, _) => frame,
            (_, None) => frame.of_class(Class::Other),
            // They come late, and go where they belong then.
            (_, Some(_)) if tunnel.is_impaired() => frame,
            (class, Some(engine)) => {
                // SAFETY: the frame is in the list.
                unsafe { give_to_engine(adapter, engine, &frame) };
                if class == Class::Rdma {
                    continue;
                }
                frame.of_class(Class::Other)
            }
        };
        if others.is_full() {
            // SAFETY: the frames are in the list.
            unsafe { pass_up(adapter, &others) };
            others.clear();
        }
        others.push(frame);
    }
    if !next.is_null() {
        adapter.received().discard(1);
    }
    if !others.is_empty() {
        // SAFETY: the frames are in the list.
        unsafe { pass_up(adapter, &others) };
    }
}

/// The frame in a datagram, with its class; `None` if it is none for this adapter, which was counted.
///
/// # Safety
///
/// The datagram is the caller's.
unsafe fn frame_of(tunnel: &Tunnel, adapter: &Adapter, datagram: &WSK_DATAGRAM_INDICATION) -> Option<Frame> {
    let buffer = &datagram.Buffer;
    let whole = Frame::in_chain(buffer.Mdl.cast(), buffer.Offset as usize, buffer.Length);
    let mut head: Head = [0; HEADER + LOOKS_AT];
    // SAFETY: the datagram's chain, which is the caller's, is mapped or can be.
    let head = unsafe { whole.head(&mut head) }.and_then(|length| head.get(..length))?;
    // SAFETY: an address of the socket's family, of which the family comes first and says how long it is.
    let length = if unsafe { datagram.RemoteAddress.cast::<u16>().read_unaligned() } == AF_INET { 16 } else { 28 };
    // SAFETY: as above.
    let from = unsafe { SOCKADDR_INET::read(datagram.RemoteAddress, length) }?.to_socket_addr()?;
    let now = Kernel.now();
    if tunnel.bridge().with(|bridge| bridge.receive(now, head, from)).is_err() {
        adapter.received().error();
        return None;
    }
    Some(whole.behind(HEADER).of_class(Class::of(&head[HEADER..])))
}

/// Has the engine take a frame.
///
/// # Safety
///
/// The frame's chain is the caller's.
unsafe fn give_to_engine(adapter: &Adapter, engine: &Arc<Wire<Kernel>>, frame: &Frame) {
    // SAFETY: the chain is the caller's (`# Safety`).
    if let Some(start) = unsafe { frame.in_one_piece() } {
        // SAFETY: as many bytes are mapped there, and nobody writes them while the list is this driver's.
        Wire::receive(engine, unsafe { slice::from_raw_parts(start, frame.length()) });
        return;
    }
    // SAFETY: the chain is the caller's (`# Safety`).
    if !unsafe { adapter.receiver().lend(frame, |bytes| Wire::receive(engine, bytes)) } {
        adapter.received().discard(1);
    }
}

/// Has the adapter's receiver take frames.
///
/// # Safety
///
/// The frames' chains are the caller's.
unsafe fn pass_up(adapter: &Arc<Adapter>, frames: &[Frame]) {
    if !adapter.enter(1) {
        adapter.received().discard(frames.len() as u64);
        return;
    }
    // SAFETY: the chains are the caller's (`# Safety`), and the gate is open.
    let taken = unsafe { adapter.receiver().take(frames, &adapter.filter(), None, adapter.received()) };
    // Without a buffer they are lost: the sender is far away.
    adapter.received().discard((frames.len() - taken.count) as u64);
    Receiver::wake(adapter);
    adapter.leave(1);
}
