//! Objects of the driver, by handle, and what is sent to them.

use std::{ffi::c_void, ptr::NonNull};

use fallible::Arc;
use nd2::abi::{HANDLE, HRESULT, OVERLAPPED};
use nd2_control::wire::{DATA, Handle, Post, Verb};
use ndkpi::NtStatus;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{RemoteFile, Transport, adapter::Adapter};

/// The longest message: a structure, and elements or data.
const LONGEST: usize = 128 + DATA;

/// An input with elements or data behind its structure.
pub struct Message {
    room: [u8; LONGEST],
    written: usize,
}

impl Message {
    /// One that begins with a structure.
    pub fn of(head: &(impl IntoBytes + Immutable)) -> Self {
        let mut this = Self { room: [0; LONGEST], written: size_of_val(head) };
        this.room[..size_of_val(head)].copy_from_slice(head.as_bytes());
        this
    }

    /// Adds what follows.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_BUFFER_SIZE` if there is no room for it.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), NtStatus> {
        let end = self.written.saturating_add(bytes.len());
        self.room.get_mut(self.written..end).ok_or(NtStatus::INVALID_BUFFER_SIZE)?.copy_from_slice(bytes);
        self.written = end;
        Ok(())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.room[..self.written]
    }
}

/// Sends a verb and takes its answer.
pub fn ask<A: FromBytes + IntoBytes>(transport: &impl Transport, verb: Verb, input: &[u8]) -> Result<A, NtStatus> {
    let mut answer = A::new_zeroed();
    let length = transport.call(verb.code(), input, answer.as_mut_bytes())?;
    if length == size_of::<A>() { Ok(answer) } else { Err(NtStatus::INTERNAL_ERROR) }
}

/// An object of the driver. Given back when it is dropped.
pub struct DriverHandle<T: Transport> {
    pub transport: T,
    pub handle: u64,
}

impl<T: Transport> DriverHandle<T> {
    /// Has the driver make one.
    pub fn make(transport: &T, verb: Verb, input: &[u8]) -> Result<Self, NtStatus> {
        let made: Handle = ask(transport, verb, input)?;
        Ok(Self { transport: transport.clone(), handle: made.object.get() })
    }

    /// The input that is the handle.
    pub fn handle(&self) -> Handle {
        Handle { object: self.handle.into() }
    }

    /// How the input of a request begins.
    pub fn post(&self, context: *mut c_void) -> Post {
        Post { queue: self.handle.into(), context: (context.expose_provenance() as u64).into() }
    }

    /// Sends a verb and takes its answer.
    pub fn ask<A: FromBytes + IntoBytes>(&self, verb: Verb, input: &[u8]) -> Result<A, NtStatus> {
        ask(&self.transport, verb, input)
    }

    /// Sends a verb without an answer.
    pub fn tell(&self, verb: Verb, input: &[u8]) -> Result<(), NtStatus> {
        self.ask::<[u8; 0]>(verb, input).map(drop)
    }
}

impl<T: Transport> Drop for DriverHandle<T> {
    fn drop(&mut self) {
        // Cannot fail: the handle is this value's.
        let _ = self.tell(Verb::Close, self.handle().as_bytes());
    }
}

/// An object of the driver with overlapped requests.
pub struct OverlappedObject<T: Transport> {
    pub adapter: Arc<Adapter<T>>,
    /// The client's file.
    pub file: Arc<T::File>,
    pub held: DriverHandle<T>,
}

impl<T: Transport> OverlappedObject<T> {
    /// Has the driver make one.
    pub fn make(adapter: &Arc<Adapter<T>>, file: HANDLE, verb: Verb, input: &[u8]) -> Result<Self, HRESULT> {
        let file = adapter.file(file)?;
        let held = DriverHandle::make(&adapter.held.transport, verb, input)?;
        Ok(Self { adapter: adapter.clone(), file, held })
    }

    /// Sends a verb with the client's structure.
    ///
    /// # Safety
    ///
    /// As [`RemoteFile::begin`].
    pub unsafe fn begin(&self, verb: Verb, input: &[u8], overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
        unsafe { self.file.begin(verb.code(), input, overlapped) }
    }

    /// Sends a verb whose input is the handle with the client's structure.
    ///
    /// # Safety
    ///
    /// As [`RemoteFile::begin`].
    pub unsafe fn begin_alone(&self, verb: Verb, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
        unsafe { self.begin(verb, self.held.handle().as_bytes(), overlapped) }
    }

    /// Cancels what is outstanding.
    pub fn cancel(&self) -> Result<(), NtStatus> {
        self.held.tell(Verb::Cancel, self.held.handle().as_bytes())
    }
}

/// Implements what all parts with overlapped requests have in the same way: the field `$field` is a [`OverlappedObject`].
macro_rules! requests {
    ($($class:ident: $field:tt),+) => {
        $(
            impl<T: Transport> back_end::Part<Driver<T>> for $class<T> {
                fn adapter(&self) -> &Arc<Adapter<T>> {
                    &self.$field.adapter
                }
            }

            impl<T: Transport> back_end::Requests<Driver<T>> for $class<T> {
                fn file(&self) -> &Arc<T::File> {
                    &self.$field.file
                }

                fn cancel(&self) -> Result<(), NtStatus> {
                    self.$field.cancel()
                }
            }
        )+
    };
}

pub(super) use requests;
