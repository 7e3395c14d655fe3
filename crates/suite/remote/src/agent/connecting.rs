//! Connectors, listeners and shared endpoints.

use alloc::boxed::Box;
use core::{ffi::c_void, sync::atomic::Ordering::Relaxed};

use fallible::{Arc, try_slice};
use ndkpi::{
    NDK_CONNECTOR, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION,
    NDK_OBJECT_TYPE, NtStatus, SOCKADDR,
};

use super::{
    Agent,
    call::{Incoming, Reply},
    callbacks,
    creation::of_one_adapter,
    object::Used,
};
use crate::wire::{ANSWER_TAIL, Carried};

/// The bytes of an address at most: more than any family has.
pub const MOST_ADDRESS: u32 = 128;

/// An address as a function takes it, of any length.
pub struct Address {
    words: Box<[u64]>,
    length: u32,
}

impl Address {
    /// The address that the bytes begin with, and the bytes after it.
    pub fn read(bytes: &[u8], length: u32) -> Result<(Self, &[u8]), Carried> {
        if length > MOST_ADDRESS {
            return Err(Carried::Withheld);
        }
        let (address, rest) = bytes.split_at_checked(length as usize).ok_or(Carried::Malformed)?;
        let word = |index| {
            let mut word = [0; 8];
            let bytes = address.get(index * 8..).unwrap_or_default();
            let count = bytes.len().min(8);
            word[..count].copy_from_slice(&bytes[..count]);
            u64::from_ne_bytes(word)
        };
        // A function may look at the family before the length.
        let words = try_slice(MOST_ADDRESS as usize / 8, word).map_err(|_| Carried::NoMemory)?;
        Ok((Self { words, length }, rest))
    }

    /// Where it is: good for [`MOST_ADDRESS`] bytes.
    pub fn pointer(&self) -> *const SOCKADDR {
        self.words.as_ptr().cast()
    }

    /// Its length.
    pub const fn length(&self) -> u32 {
        self.length
    }
}

/// The private data that is all of these bytes, if there is any.
fn private<'b>(call: &Incoming<'_>, bytes: &'b [u8], length: u64) -> Result<Option<&'b [u8]>, Carried> {
    if bytes.len() as u64 != length {
        return Err(Carried::Malformed);
    }
    Ok(call.given(0).then_some(bytes))
}

fn pointer(data: Option<&[u8]>) -> *const c_void {
    data.map_or(core::ptr::null(), |data| data.as_ptr().cast())
}

/// The callback of an outgoing or incoming connection's end.
#[derive(Clone, Copy)]
enum OnEnd {
    Plain(Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>),
    Ex(Option<NDK_FN_DISCONNECT_EVENT_CALLBACK_EX>),
}

impl OnEnd {
    /// The callback, and memory for it.
    fn ready(call: &Incoming<'_>, connector: &Used, ex: bool) -> Result<Self, Carried> {
        if !call.given(1) {
            return Ok(if ex { Self::Ex(None) } else { Self::Plain(None) });
        }
        connector.entry().have_spare()?;
        Ok(if ex { Self::Ex(Some(callbacks::disconnected_ex)) } else { Self::Plain(Some(callbacks::disconnected)) })
    }
}

impl Agent<'_> {
    fn connector(&self, call: &Incoming<'_>) -> Result<Used, Carried> {
        self.object(call.head.object.get(), NDK_OBJECT_TYPE::CONNECTOR)
    }

    fn queue_pair_of(&self, connector: &Used, handle: u64) -> Result<Used, Carried> {
        let qp = self.object(handle, NDK_OBJECT_TYPE::QP)?;
        of_one_adapter(connector, &qp)?;
        Ok(qp)
    }

    pub(super) fn connect(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let connector = self.connector(call)?;
        let _turn = connector.turn(self.platform)?;
        let qp = self.queue_pair_of(&connector, call.word(0))?;
        let (inbound, outbound) = (call.number(2)?, call.number(3)?);
        let (from, rest) = Address::read(call.tail, call.number(4)?)?;
        let (to, rest) = Address::read(rest, call.number(5)?)?;
        let data = private(call, rest, call.word(6))?;
        let (raw, function) = slot!(connector, NDK_CONNECTOR, NdkConnect);
        self.request(call, 0, |completion, context| {
            // SAFETY: both objects are open; the addresses and the data are valid for the call.
            unsafe {
                function(
                    raw,
                    qp.raw(),
                    from.pointer(),
                    from.length(),
                    to.pointer(),
                    to.length(),
                    inbound,
                    outbound,
                    pointer(data),
                    rest.len() as u32,
                    completion,
                    context,
                )
            }
        })
    }

    pub(super) fn connect_with_shared_endpoint(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let connector = self.connector(call)?;
        let _turn = connector.turn(self.platform)?;
        let qp = self.queue_pair_of(&connector, call.word(0))?;
        let endpoint = self.object(call.word(1), NDK_OBJECT_TYPE::SHARED_ENDPOINT)?;
        of_one_adapter(&connector, &endpoint)?;
        let (inbound, outbound) = (call.number(2)?, call.number(3)?);
        let (to, rest) = Address::read(call.tail, call.number(5)?)?;
        let data = private(call, rest, call.word(6))?;
        let (raw, function) = slot!(connector, NDK_CONNECTOR, NdkConnectWithSharedEndpoint);
        self.request(call, 0, |completion, context| {
            // SAFETY: the objects are open; the address and the data are valid for the call.
            unsafe {
                function(
                    raw,
                    qp.raw(),
                    endpoint.raw(),
                    to.pointer(),
                    to.length(),
                    inbound,
                    outbound,
                    pointer(data),
                    rest.len() as u32,
                    completion,
                    context,
                )
            }
        })
    }

    pub(super) fn complete_connect(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        self.complete(call, false)
    }

    pub(super) fn complete_connect_ex(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        self.complete(call, true)
    }

    fn complete(&self, call: &Incoming<'_>, ex: bool) -> Result<NtStatus, Carried> {
        let connector = self.connector(call)?;
        let _turn = connector.turn(self.platform)?;
        let event = OnEnd::ready(call, &connector, ex)?;
        let own = connector.context();
        name(&connector, call);
        let raw: *mut NDK_CONNECTOR = connector.raw();
        match event {
            OnEnd::Plain(event) => {
                let (_, function) = slot!(connector, NDK_CONNECTOR, NdkCompleteConnect);
                self.request(call, 0, |completion, context| {
                    // SAFETY: the connector is open; the contexts live until the callbacks have come.
                    unsafe { function(raw, event, own, completion, context) }
                })
            }
            OnEnd::Ex(event) => {
                // SAFETY: the connector is open.
                let function = unsafe { NDK_CONNECTOR::complete_connect_ex(raw) }.ok_or(Carried::Withheld)?;
                self.request(call, 0, |completion, context| {
                    // SAFETY: the connector is open; the contexts live until the callbacks have come.
                    unsafe { function(raw, event, own, completion, context) }
                })
            }
        }
    }

    pub(super) fn accept(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        self.take(call, false)
    }

    pub(super) fn accept_ex(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        self.take(call, true)
    }

    fn take(&self, call: &Incoming<'_>, ex: bool) -> Result<NtStatus, Carried> {
        let connector = self.connector(call)?;
        let _turn = connector.turn(self.platform)?;
        let qp = self.queue_pair_of(&connector, call.word(0))?;
        let (inbound, outbound) = (call.number(2)?, call.number(3)?);
        let data = private(call, call.tail, call.word(6))?;
        let event = OnEnd::ready(call, &connector, ex)?;
        let own = connector.context();
        name(&connector, call);
        let (raw, length): (*mut NDK_CONNECTOR, u32) = (connector.raw(), call.tail.len() as u32);
        match event {
            OnEnd::Plain(event) => {
                let (_, function) = slot!(connector, NDK_CONNECTOR, NdkAccept);
                self.request(call, 0, |completion, context| {
                    let (qp, data) = (qp.raw(), pointer(data));
                    // SAFETY: both objects are open, the data is valid for the call; the contexts live until the callbacks have
                    // come.
                    unsafe { function(raw, qp, inbound, outbound, data, length, event, own, completion, context) }
                })
            }
            OnEnd::Ex(event) => {
                // SAFETY: the connector is open.
                let function = unsafe { NDK_CONNECTOR::accept_ex(raw) }.ok_or(Carried::Withheld)?;
                self.request(call, 0, |completion, context| {
                    let (qp, data) = (qp.raw(), pointer(data));
                    // SAFETY: connector and queue pair are open; the contexts live until the callbacks have come.
                    unsafe { function(raw, qp, inbound, outbound, data, length, event, own, completion, context) }
                })
            }
        }
    }

    pub(super) fn reject(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let connector = self.connector(call)?;
        let _turn = connector.turn(self.platform)?;
        let data = private(call, call.tail, call.word(6))?;
        let (raw, function) = slot!(connector, NDK_CONNECTOR, NdkReject);
        // SAFETY: the connector is open, the data is valid for the call.
        Ok(unsafe { function(raw, pointer(data), call.tail.len() as u32) })
    }

    /// The bits say which of the limits, the data and its length are wanted.
    pub(super) fn connection_data(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let connector = self.connector(call)?;
        let _turn = connector.turn(self.platform)?;
        let mut length = call.number(0)?;
        let mut data = try_slice(length as usize, |_| 0_u8).map_err(|_| Carried::NoMemory)?;
        if data.len() > ANSWER_TAIL {
            return Err(Carried::Withheld);
        }
        let mut limits = [0_u32; 2];
        let [inbound, outbound] = &mut limits;
        let (raw, function) = slot!(connector, NDK_CONNECTOR, NdkGetConnectionData);
        let or_null = |bit, place: *mut u32| if call.given(bit) { place } else { core::ptr::null_mut() };
        let (inbound, outbound) = (or_null(0, inbound), or_null(1, outbound));
        let place = if call.given(2) { data.as_mut_ptr().cast() } else { core::ptr::null_mut() };
        let size = or_null(3, &raw mut length);
        // SAFETY: the connector is open; what is not null is as long as it is said to be.
        let status = unsafe { function(raw, inbound, outbound, place, size) };
        reply.set(0, limits[0]);
        reply.set(1, limits[1]);
        reply.set(2, length);
        reply.append(&data)?;
        Ok(status)
    }

    pub(super) fn local_address(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let used = self.any_object(call.head.object.get())?;
        let _turn = used.turn(self.platform)?;
        match used.entry().kind() {
            NDK_OBJECT_TYPE::CONNECTOR => {
                let (raw, function) = slot!(used, NDK_CONNECTOR, NdkGetLocalAddress);
                // SAFETY: the connector is open; `address` gives a place as long as it says.
                address(call, reply, |place, length| unsafe { function(raw, place, length) })
            }
            NDK_OBJECT_TYPE::LISTENER => {
                let (raw, function) = slot!(used, NDK_LISTENER, NdkGetLocalAddress);
                // SAFETY: as before, of a listener.
                address(call, reply, |place, length| unsafe { function(raw, place, length) })
            }
            NDK_OBJECT_TYPE::SHARED_ENDPOINT => {
                let (raw, function) = slot!(used, NDK_SHARED_ENDPOINT, NdkGetLocalAddress);
                // SAFETY: as before, of a shared endpoint.
                address(call, reply, |place, length| unsafe { function(raw, place, length) })
            }
            _ => Err(Carried::Stale),
        }
    }

    pub(super) fn peer_address(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let connector = self.connector(call)?;
        let _turn = connector.turn(self.platform)?;
        let (raw, function) = slot!(connector, NDK_CONNECTOR, NdkGetPeerAddress);
        // SAFETY: the connector is open; `address` gives a place as long as it says.
        address(call, reply, |place, length| unsafe { function(raw, place, length) })
    }

    pub(super) fn disconnect(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let connector = self.connector(call)?;
        let _turn = connector.turn(self.platform)?;
        let (raw, function) = slot!(connector, NDK_CONNECTOR, NdkDisconnect);
        self.request(call, 0, |completion, context: *mut c_void| {
            // SAFETY: the connector is open, the context lives until the completion has come.
            unsafe { function(raw, completion, context) }
        })
    }

    pub(super) fn listen(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let listener = self.object(call.head.object.get(), NDK_OBJECT_TYPE::LISTENER)?;
        let _turn = listener.turn(self.platform)?;
        let (at, _) = Address::read(call.tail, call.number(0)?)?;
        let (raw, function) = slot!(listener, NDK_LISTENER, NdkListen);
        self.request(call, 0, |completion: Option<NDK_FN_REQUEST_COMPLETION>, context| {
            // SAFETY: as in `disconnect`; the address is valid for the call.
            unsafe { function(raw, at.pointer(), at.length(), completion, context) }
        })
    }

    pub(super) fn control_connect_events(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let listener = self.object(call.head.object.get(), NDK_OBJECT_TYPE::LISTENER)?;
        let _turn = listener.turn(self.platform)?;
        let (raw, function) = slot!(listener, NDK_LISTENER, NdkControlConnectEvents);
        // SAFETY: the listener is open.
        unsafe { function(raw, call.given(0).into()) };
        Ok(NtStatus::SUCCESS)
    }
}

/// What the other machine knows a connector by goes with the call whose event may come: one that came with a connection had no name
/// before.
fn name(connector: &Used, call: &Incoming<'_>) {
    connector.entry().cookie().store(call.word(7), Relaxed);
}

impl Used {
    /// The context of the object's own callbacks.
    fn context(&self) -> *mut c_void {
        Arc::as_ptr(self.entry()).cast_mut().cast()
    }
}

/// Asks for an address, in a place of the size that the call says.
fn address(
    call: &Incoming<'_>,
    reply: &mut Reply<'_>,
    ask: impl FnOnce(*mut SOCKADDR, *mut u32) -> NtStatus,
) -> Result<NtStatus, Carried> {
    let mut length = call.number(0)?;
    if length > MOST_ADDRESS {
        return Err(Carried::Withheld);
    }
    let size = length as usize;
    let mut words = try_slice(MOST_ADDRESS as usize / 8, |_| 0_u64).map_err(|_| Carried::NoMemory)?;
    let place = if call.given(0) { words.as_mut_ptr().cast() } else { core::ptr::null_mut() };
    let status = ask(place, &raw mut length);
    reply.set(0, length);
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).take(size);
    for (place, byte) in reply.room(size).ok_or(Carried::Malformed)?.iter_mut().zip(bytes) {
        *place = byte;
    }
    Ok(status)
}
