//! Objects of the driver, by handle, and what is sent to them.

use std::{ffi::c_void, ptr::NonNull, sync::Arc};

use nd2::{
    abi::{BOOL, HRESULT, IND2OverlappedVtbl, OVERLAPPED},
    com::{Class, borrow, unknown},
};
use nd2_control::wire::{DATA, ELEMENT, ELEMENTS, Reader, Verb, Writer};
use ndkpi::NtStatus;

use crate::{RemoteFile, Transport};

/// The longest message: numbers, and elements or data.
const LONGEST: usize = 128 + DATA + ELEMENT * ELEMENTS;

/// An input.
pub struct Message {
    room: [u8; LONGEST],
    written: usize,
    /// It does not fit, and is not sent.
    too_long: bool,
}

impl Message {
    /// An empty one.
    pub const fn new() -> Self {
        Self { room: [0; LONGEST], written: 0, too_long: false }
    }

    /// One that begins with a handle.
    pub fn of(handle: u64) -> Self {
        Self::new().u64(handle)
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let mut writer = Writer::new(&mut self.room[self.written..]);
        if writer.bytes(bytes).is_ok() {
            self.written += bytes.len();
        } else {
            self.too_long = true;
        }
        self
    }

    pub fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn u64(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    pub fn get(&self) -> Result<&[u8], NtStatus> {
        if self.too_long { Err(NtStatus::INVALID_BUFFER_SIZE) } else { Ok(&self.room[..self.written]) }
    }
}

/// Sends a verb and takes `N` bytes of its answer.
pub fn ask<const N: usize>(transport: &impl Transport, verb: Verb, message: &Message) -> Result<[u8; N], NtStatus> {
    let mut answer = [0; N];
    let length = transport.call(verb.code(), message.get()?, &mut answer)?;
    if length == N { Ok(answer) } else { Err(NtStatus::INTERNAL_ERROR) }
}

/// An object of the driver. Given back when it is dropped.
pub struct Held<T: Transport> {
    pub transport: T,
    pub handle: u64,
}

impl<T: Transport> Held<T> {
    /// Has the driver make one.
    pub fn make(transport: &T, verb: Verb, message: &Message) -> Result<Self, NtStatus> {
        let answer: [u8; 8] = ask(transport, verb, message)?;
        Ok(Self { transport: transport.clone(), handle: Reader::new(&answer).u64()? })
    }

    /// A message that begins with the handle.
    pub fn message(&self) -> Message {
        Message::of(self.handle)
    }

    /// Sends a verb and takes `N` bytes of its answer.
    pub fn ask<const N: usize>(&self, verb: Verb, message: &Message) -> Result<[u8; N], NtStatus> {
        ask(&self.transport, verb, message)
    }

    /// Sends a verb without an answer.
    pub fn tell(&self, verb: Verb, message: &Message) -> HRESULT {
        self.ask::<0>(verb, message).map(drop).into()
    }
}

impl<T: Transport> Drop for Held<T> {
    fn drop(&mut self) {
        // Cannot fail: the handle is this value's.
        let _ = self.tell(Verb::Close, &self.message());
    }
}

/// A class with overlapped requests.
pub trait Overlapped: Class {
    /// How it reaches the driver.
    type Transport: Transport;

    /// The driver's object.
    fn held(&self) -> &Held<Self::Transport>;

    /// The client's file.
    fn file(&self) -> &Arc<<Self::Transport as Transport>::File>;

    /// Sends a verb with the client's structure.
    ///
    /// # Safety
    ///
    /// As [`RemoteFile::begin`], but for null.
    unsafe fn begin(&self, verb: Verb, message: &Message, overlapped: *mut OVERLAPPED) -> HRESULT {
        let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
        match message.get() {
            // SAFETY: the caller's promise.
            Ok(input) => unsafe { self.file().begin(verb.code(), input, overlapped) }.into(),
            Err(status) => status.into(),
        }
    }
}

/// The table's first functions.
pub const fn overlapped<C: Overlapped>() -> IND2OverlappedVtbl {
    IND2OverlappedVtbl {
        base: unknown::<C>(),
        CancelOverlappedRequests: cancel_overlapped_requests::<C>,
        GetOverlappedResult: get_overlapped_result::<C>,
    }
}

/// `IND2Overlapped::CancelOverlappedRequests`.
///
/// # Safety
///
/// `this` is an object of the class.
pub unsafe extern "system" fn cancel_overlapped_requests<C: Overlapped>(this: *mut c_void) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    object.held().tell(Verb::Cancel, &object.held().message())
}

/// `IND2Overlapped::GetOverlappedResult`.
///
/// # Safety
///
/// `this` is an object of the class; `overlapped` is null or was given to one of its methods and is still valid.
pub unsafe extern "system" fn get_overlapped_result<C: Overlapped>(
    this: *mut c_void,
    overlapped: *mut OVERLAPPED,
    wait: BOOL,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    let status = if wait == 0 {
        // SAFETY: the structure is valid (the caller's promise).
        unsafe { object.file().status(overlapped) }
    } else {
        // SAFETY: as before; a client that waits has given an event (`NDSPI 1`).
        unsafe { object.file().wait(overlapped) }
    };
    status.into()
}
