//! Requests of queue pairs and shared receive queues.

use core::ptr;

use nd2::abi::{
    IND2MemoryRegionVtbl, IND2MemoryWindowVtbl, IND2SharedReceiveQueueVtbl, ND2_SGE, SoftQueuePairVtbl,
    op_flags::ND_OP_FLAG_INLINE,
};
use ndkpi::NtStatus;
use zerocopy::FromBytes;

use crate::{
    Request, Session, System,
    handles::Object,
    objects::{done, one},
    queues::context,
    wire::{
        Access, Bind, DATA, ELEMENTS, Element, Invalidate, Post, Send, SendAndInvalidate, Token, Verb, all, answer,
        begin,
    },
};

/// What a request names: elements, or bytes.
struct List {
    elements: [ND2_SGE; ELEMENTS],
    count: u32,
}

const NOTHING: ND2_SGE = ND2_SGE { Buffer: ptr::null_mut(), BufferLength: 0, MemoryRegionToken: 0 };

impl List {
    /// The rest of an input as elements, whose addresses are the process's and only compared; or as bytes, which live as long as
    /// the input.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if it is neither; `STATUS_DATA_OVERRUN`, `STATUS_INVALID_BUFFER_SIZE` if there is too much of it.
    fn of(bytes: &[u8], inline: bool) -> Result<Self, NtStatus> {
        let mut elements = [NOTHING; ELEMENTS];
        if inline {
            let length = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= DATA);
            let length = length.ok_or(NtStatus::INVALID_BUFFER_SIZE)?;
            elements[0] =
                ND2_SGE { Buffer: bytes.as_ptr().cast_mut().cast(), BufferLength: length, MemoryRegionToken: 0 };
            return Ok(Self { elements, count: u32::from(length > 0) });
        }
        let sent = <[Element]>::ref_from_bytes(bytes).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let count = u32::try_from(sent.len()).ok().filter(|_| sent.len() <= ELEMENTS);
        let count = count.ok_or(NtStatus::DATA_OVERRUN)?;
        for (element, sent) in elements.iter_mut().zip(sent) {
            *element = ND2_SGE {
                Buffer: context(sent.address.get()),
                BufferLength: sent.length.get(),
                MemoryRegionToken: sent.token.get(),
            };
        }
        Ok(Self { elements, count })
    }

    const fn as_ptr(&self) -> *const ND2_SGE {
        if self.count == 0 { ptr::null() } else { self.elements.as_ptr() }
    }
}

impl<S: System> Session<S> {
    /// `Send`, `SendAndInvalidate`, `Receive`, `ReceiveShared`, `Read`, `Write`.
    pub(crate) fn post(&self, verb: Verb, request: &S::Request) -> Result<usize, NtStatus> {
        let input = request.input();
        let (post, list) = begin::<Post>(input)?;
        let (object, context) = (post.queue.get(), context(post.context.get()));
        if verb == Verb::ReceiveShared {
            let queue: Object<IND2SharedReceiveQueueVtbl> = self.object(object)?;
            let list = List::of(list, false)?;
            // SAFETY: the queue is held, and the list has as many entries.
            done(unsafe { (queue.table().Receive)(queue.as_ptr(), context, list.as_ptr(), list.count) })?;
            return Ok(0);
        }
        let qp: Object<SoftQueuePairVtbl> = self.object(object)?;
        let (table, this) = (&qp.table().base, qp.as_ptr());
        let posted = match verb {
            Verb::Receive => {
                let list = List::of(list, false)?;
                // SAFETY: the queue pair is held, and the list has as many entries.
                unsafe { (table.Receive)(this, context, list.as_ptr(), list.count) }
            }
            Verb::Send => {
                let (send, list) = begin::<Send>(input)?;
                let flags = send.flags.get();
                let list = List::of(list, flags & ND_OP_FLAG_INLINE != 0)?;
                // SAFETY: the queue pair is held, and the list has as many entries; inline bytes are those of the input.
                unsafe { (table.Send)(this, context, list.as_ptr(), list.count, flags) }
            }
            Verb::SendAndInvalidate => {
                let (send, list) = begin::<SendAndInvalidate>(input)?;
                let (token, flags) = (send.token.get(), send.flags.get());
                let list = List::of(list, flags & ND_OP_FLAG_INLINE != 0)?;
                let method = qp.table().SendAndInvalidate;
                // SAFETY: the queue pair is held, and the list has as many entries; inline bytes are those of the input.
                unsafe { method(this, context, list.as_ptr(), list.count, token, flags) }
            }
            _ => {
                let (access, list) = begin::<Access>(input)?;
                let (address, token, flags) = (access.address.get(), access.token.get(), access.flags.get());
                // A read has no such flag, and its method says so: then the bytes are not looked at.
                let list = List::of(list, verb == Verb::Write && flags & ND_OP_FLAG_INLINE != 0)?;
                let method = if verb == Verb::Write { table.Write } else { table.Read };
                // SAFETY: the queue pair is held, and the list has as many entries; inline bytes are those of the input.
                unsafe { method(this, context, list.as_ptr(), list.count, address, token, flags) }
            }
        };
        done(posted)?;
        Ok(0)
    }

    /// `Bind`.
    pub(crate) fn bind(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let input: Bind = *all(request.input())?;
        let qp: Object<SoftQueuePairVtbl> = self.object(input.post.queue.get())?;
        let request_context = context(input.post.context.get());
        let of_region = input.region.get();
        let region = self.argument::<IND2MemoryRegionVtbl>(of_region)?;
        let window = self.argument::<IND2MemoryWindowVtbl>(input.window.get())?;
        let (address, flags) = (context(input.address.get()), input.flags.get());
        if request.output().len() < size_of::<Token>() {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        let length = usize::try_from(input.length.get()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let region = region.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        let of_window = window.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        let bind = qp.table().base.Bind;
        // SAFETY: the objects are held or null. The address is only compared.
        done(unsafe { bind(qp.as_ptr(), request_context, region, of_window, address, length, flags) })?;
        self.bound(of_region);
        let token = window.map_or(0, |window| {
            // SAFETY: the window is held.
            unsafe { (window.table().GetRemoteToken)(window.as_ptr()) }
        });
        answer(request.output(), &Token { remote: token.into() })
    }

    /// `Invalidate`.
    pub(crate) fn invalidate(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let input: &Invalidate = all(request.input())?;
        let qp: Object<SoftQueuePairVtbl> = self.object(input.post.queue.get())?;
        let context = context(input.post.context.get());
        let window = self.argument::<IND2MemoryWindowVtbl>(input.window.get())?;
        let flags = input.flags.get();
        let window = window.as_ref().map_or(ptr::null_mut(), Object::as_ptr);
        // SAFETY: the objects are held or null.
        done(unsafe { (qp.table().base.Invalidate)(qp.as_ptr(), context, window, flags) })?;
        Ok(0)
    }

    /// `WindowToken`.
    pub(crate) fn window_token(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let window: Object<IND2MemoryWindowVtbl> = self.object(one(request)?)?;
        // SAFETY: the window is held.
        let token = unsafe { (window.table().GetRemoteToken)(window.as_ptr()) };
        answer(request.output(), &Token { remote: token.into() })
    }
}
