//! Queue pairs.

use std::{ffi::c_void, slice};

use fallible::Arc;
use nd2::{
    abi::{ND2_SGE, op_flags::ND_OP_FLAG_INLINE},
    back_end::{self, Transfer},
};
use nd2_control::wire::{
    Access, Bind, DATA, ELEMENTS, Element, Invalidate, Post, Send, SendAndInvalidate, Token, Verb,
};
use ndkpi::NtStatus;
use zerocopy::{Immutable, IntoBytes};

use super::{
    Driver, Transport,
    adapter::Adapter,
    held::{DriverHandle, Message},
    memory::{MemoryRegion, MemoryWindow},
};

/// A queue pair.
pub struct QueuePair<T: Transport> {
    pub adapter: Arc<Adapter<T>>,
    pub held: DriverHandle<T>,
}

/// A message that ends with elements.
///
/// # Errors
///
/// `STATUS_DATA_OVERRUN` if there are more than any queue pair takes.
pub fn elements(head: &(impl IntoBytes + Immutable), list: &[ND2_SGE]) -> Result<Message, NtStatus> {
    if list.len() > ELEMENTS {
        return Err(NtStatus::DATA_OVERRUN);
    }
    let mut message = Message::of(head);
    for entry in list {
        let element = Element {
            address: (entry.Buffer.addr() as u64).into(),
            length: entry.BufferLength.into(),
            token: entry.MemoryRegionToken.into(),
        };
        message.push(element.as_bytes())?;
    }
    Ok(message)
}

/// A message that ends with the bytes that the entries of an inline request name.
///
/// # Errors
///
/// `STATUS_INVALID_BUFFER_SIZE` if there are more than fit.
///
/// # Safety
///
/// The bytes that the entries name are valid for reading.
unsafe fn inline(head: &(impl IntoBytes + Immutable), list: &[ND2_SGE]) -> Result<Message, NtStatus> {
    let mut message = Message::of(head);
    let mut total = 0_usize;
    for entry in list.iter().filter(|entry| !entry.Buffer.is_null() && entry.BufferLength > 0) {
        total = total.saturating_add(entry.BufferLength as usize);
        if total > DATA {
            return Err(NtStatus::INVALID_BUFFER_SIZE);
        }
        let bytes = entry.Buffer.cast_const().cast::<u8>();
        // SAFETY: the address is not null and valid for reading (`# Safety`).
        message.push(unsafe { slice::from_raw_parts(bytes, entry.BufferLength as usize) })?;
    }
    Ok(message)
}

/// A message that ends with what a request names: elements, or with `ND_OP_FLAG_INLINE` bytes.
///
/// # Errors
///
/// As [`elements`] and [`inline`].
///
/// # Safety
///
/// As [`inline`], if it is inline.
unsafe fn message(head: &(impl IntoBytes + Immutable), list: &[ND2_SGE], flags: u32) -> Result<Message, NtStatus> {
    if flags & ND_OP_FLAG_INLINE == 0 {
        return elements(head, list);
    }
    // SAFETY: the request is inline, so the bytes that its entries name are valid for reading (`# Safety`).
    unsafe { inline(head, list) }
}

/// How a read or a write begins.
fn access(post: Post, address: u64, token: u32, flags: u32) -> Access {
    Access { post, address: address.into(), token: token.into(), flags: flags.into() }
}

impl<T: Transport> back_end::Part<Driver<T>> for QueuePair<T> {
    fn adapter(&self) -> &Arc<Adapter<T>> {
        &self.adapter
    }
}

impl<T: Transport> back_end::QueuePair<Driver<T>> for QueuePair<T> {
    fn flush(&self) -> Result<(), NtStatus> {
        self.held.tell(Verb::Flush, self.held.handle().as_bytes())
    }

    unsafe fn initiate(
        &self,
        context: *mut c_void,
        transfer: Transfer,
        list: &[ND2_SGE],
        flags: u32,
    ) -> Result<(), NtStatus> {
        let post = self.held.post(context);
        let (verb, message) = match transfer {
            Transfer::Send { invalidate: None } => {
                // SAFETY: the bytes that the entries of an inline request name are valid for reading (the trait's `# Safety`).
                (Verb::Send, unsafe { message(&Send { post, flags: flags.into() }, list, flags) })
            }
            Transfer::Send { invalidate: Some(token) } => {
                let head = SendAndInvalidate { post, token: token.into(), flags: flags.into() };
                // SAFETY: the bytes that the entries of an inline request name are valid for reading (the trait's `# Safety`).
                (Verb::SendAndInvalidate, unsafe { message(&head, list, flags) })
            }
            Transfer::Read { address, token } => (Verb::Read, elements(&access(post, address, token, flags), list)),
            Transfer::Write { address, token } => {
                // SAFETY: the bytes that the entries of an inline request name are valid for reading (the trait's `# Safety`).
                (Verb::Write, unsafe { message(&access(post, address, token, flags), list, flags) })
            }
        };
        self.held.tell(verb, message?.as_bytes())
    }

    fn receive(&self, context: *mut c_void, list: &[ND2_SGE]) -> Result<(), NtStatus> {
        self.held.tell(Verb::Receive, elements(&self.held.post(context), list)?.as_bytes())
    }

    fn bind(
        &self,
        context: *mut c_void,
        region: &MemoryRegion<T>,
        window: &MemoryWindow<T>,
        (address, length): (u64, u64),
        flags: u32,
    ) -> Result<(), NtStatus> {
        let input = Bind {
            post: self.held.post(context),
            region: region.handle().into(),
            window: window.held.handle.into(),
            address: address.into(),
            length: length.into(),
            flags: flags.into(),
        };
        self.held.ask::<Token>(Verb::Bind, input.as_bytes()).map(drop)
    }

    fn invalidate(&self, context: *mut c_void, window: &MemoryWindow<T>, flags: u32) -> Result<(), NtStatus> {
        let input =
            Invalidate { post: self.held.post(context), window: window.held.handle.into(), flags: flags.into() };
        self.held.tell(Verb::Invalidate, input.as_bytes())
    }
}
