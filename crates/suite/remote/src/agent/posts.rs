//! Posts.

use alloc::boxed::Box;
use core::{ffi::c_void, sync::atomic::Ordering::Relaxed};

use fallible::try_slice;
use ndkpi::{NDK_LOGICAL_ADDRESS, NDK_OBJECT_TYPE, NDK_OP_FLAG_INLINE, NDK_QP, NDK_SGE, NtStatus};

use super::{Agent, call::Incoming, creation::of_one_adapter, memory::PAGE, object::Used};
use crate::wire::{Carried, Element, Pages, word_as_pointer};

/// The inline bytes of a request at most, far more than any adapter has.
const MOST_INLINE: u64 = 1 << 20;
/// The pages of a fast registration at most.
const MOST_PAGES: u64 = 1 << 14;

/// The list of a post.
struct List {
    entries: Box<[NDK_SGE]>,
    /// What inline entries point to.
    _bytes: Box<[u8]>,
}

impl List {
    fn pointer(&self) -> *const NDK_SGE {
        self.entries.as_ptr()
    }

    fn count(&self) -> u32 {
        self.entries.len() as u32
    }
}

impl Agent<'_> {
    /// The list that the tail of a call has: its entries, and after them inline bytes if the flags say so.
    fn list(&self, call: &Incoming<'_>, queue: &Used, count: usize, flags: u32) -> Result<List, Carried> {
        let (elements, inline) = call.values::<Element>(call.size(count)?)?;
        if flags & NDK_OP_FLAG_INLINE != 0 {
            return list_of_inline(elements, inline, queue.entry().inline().load(Relaxed));
        }
        let privileged = queue.entry().privileged().load(Relaxed);
        for element in elements.iter().filter(|element| element.token.get() == privileged) {
            self.is_mapped(element.address.get(), element.length.get())?;
        }
        let entry = |index: usize| {
            let element: &Element = &elements[index];
            NDK_SGE::new(word_as_pointer(element.address.get()), element.length.get(), element.token.get())
        };
        let entries = try_slice(elements.len(), entry).map_err(|_| Carried::NoMemory)?;
        Ok(List { entries, _bytes: Box::default() })
    }

    fn queue_pair(&self, call: &Incoming<'_>) -> Result<Used, Carried> {
        self.object(call.head.object.get(), NDK_OBJECT_TYPE::QP)
    }

    /// An object of the same adapter that a post names.
    fn named(&self, qp: &Used, handle: u64, kind: NDK_OBJECT_TYPE) -> Result<Used, Carried> {
        let named = self.object(handle, kind)?;
        of_one_adapter(qp, &named)?;
        Ok(named)
    }

    pub(super) fn send(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let flags = call.number(2)?;
        let list = self.list(call, &qp, 1, flags)?;
        let (raw, function) = slot!(qp, NDK_QP, NdkSend);
        // SAFETY: the queue pair is open, one post at a time, and the list is valid for the call.
        Ok(unsafe { function(raw, context(call), list.pointer(), list.count(), flags) })
    }

    pub(super) fn send_and_invalidate(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let (flags, token) = (call.number(2)?, call.number(3)?);
        let list = self.list(call, &qp, 1, flags)?;
        let raw: *mut NDK_QP = qp.raw();
        // SAFETY: the queue pair is open.
        let function = unsafe { NDK_QP::send_and_invalidate(raw) }.ok_or(Carried::Withheld)?;
        // SAFETY: as in `send`.
        Ok(unsafe { function(raw, context(call), list.pointer(), list.count(), flags, token) })
    }

    pub(super) fn receive(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let list = self.list(call, &qp, 1, 0)?;
        let (raw, function) = slot!(qp, NDK_QP, NdkReceive);
        // SAFETY: as in `send`.
        Ok(unsafe { function(raw, context(call), list.pointer(), list.count()) })
    }

    pub(super) fn srq_receive(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let srq = self.object(call.head.object.get(), NDK_OBJECT_TYPE::SRQ)?;
        let _turn = srq.turn(self.platform)?;
        let list = self.list(call, &srq, 1, 0)?;
        let (raw, function) = slot!(srq, NDK_SRQ, NdkSrqReceive);
        // SAFETY: as in `send`, of a shared receive queue.
        Ok(unsafe { function(raw, context(call), list.pointer(), list.count()) })
    }

    pub(super) fn read(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let (flags, token) = (call.number(2)?, call.number(3)?);
        let list = self.list(call, &qp, 1, flags)?;
        let (raw, function) = slot!(qp, NDK_QP, NdkRead);
        // SAFETY: as in `send`.
        Ok(unsafe { function(raw, context(call), list.pointer(), list.count(), call.word(4), token, flags) })
    }

    pub(super) fn write(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let (flags, token) = (call.number(2)?, call.number(3)?);
        let list = self.list(call, &qp, 1, flags)?;
        let (raw, function) = slot!(qp, NDK_QP, NdkWrite);
        // SAFETY: as in `send`.
        Ok(unsafe { function(raw, context(call), list.pointer(), list.count(), call.word(4), token, flags) })
    }

    pub(super) fn bind(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let region = self.named(&qp, call.word(1), NDK_OBJECT_TYPE::MR)?;
        let window = self.named(&qp, call.word(2), NDK_OBJECT_TYPE::MW)?;
        let (length, flags) = (call.size(4)?, call.number(5)?);
        let (raw, function) = slot!(qp, NDK_QP, NdkBind);
        let at = word_as_pointer(call.word(3));
        // SAFETY: the queue pair, the region and the window are open; one post at a time.
        Ok(unsafe { function(raw, context(call), region.raw(), window.raw(), at, length, flags) })
    }

    pub(super) fn fast_register(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let region = self.named(&qp, call.word(1), NDK_OBJECT_TYPE::MR)?;
        let (runs, _) = call.values::<Pages>(call.size(2)?)?;
        let mut count = 0_u64;
        for run in runs {
            count = count.checked_add(run.count.get()).filter(|count| *count <= MOST_PAGES).ok_or(Carried::Withheld)?;
            self.are_mapped(run.first.get(), run.count.get())?;
        }
        let (mut run, mut index) = (0, 0);
        let page = |_| {
            while index == runs[run].count.get() {
                (run, index) = (run + 1, 0);
            }
            let page = runs[run].first.get() + index * PAGE;
            index += 1;
            NDK_LOGICAL_ADDRESS::from_bits(page)
        };
        let pages = try_slice(count as usize, page).map_err(|_| Carried::NoMemory)?;
        let (offset, length, flags) = (call.number(3)?, call.size(4)?, call.number(6)?);
        let base = word_as_pointer(call.word(5));
        let (raw, function) = slot!(qp, NDK_QP, NdkFastRegister);
        // SAFETY: the queue pair and the region are open, one post at a time, and the pages are valid for the call.
        Ok(unsafe {
            function(raw, context(call), region.raw(), count as u32, pages.as_ptr(), offset, length, base, flags)
        })
    }

    pub(super) fn invalidate(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let named = self.any_object(call.word(1))?;
        of_one_adapter(&qp, &named)?;
        if ![NDK_OBJECT_TYPE::MR, NDK_OBJECT_TYPE::MW].contains(&named.entry().kind()) {
            return Err(Carried::Stale);
        }
        let (raw, function) = slot!(qp, NDK_QP, NdkInvalidate);
        // SAFETY: the queue pair and the region or window are open; one post at a time.
        Ok(unsafe { function(raw, context(call), named.raw(), call.number(2)?) })
    }

    pub(super) fn flush(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let qp = self.queue_pair(call)?;
        let _turn = qp.turn(self.platform)?;
        let (raw, function) = slot!(qp, NDK_QP, NdkFlush);
        // SAFETY: the queue pair is open.
        unsafe { function(raw) };
        Ok(NtStatus::SUCCESS)
    }
}

/// The context of a request: a word that the agent only hands on.
fn context(call: &Incoming<'_>) -> *mut c_void {
    word_as_pointer(call.word(0))
}

/// A list whose entries point to inline bytes. Of more bytes than the adapter takes those that did not fit into the call may be
/// missing.
fn list_of_inline(elements: &[Element], inline: &[u8], most: u32) -> Result<List, Carried> {
    let total: u64 = elements.iter().map(|element| u64::from(element.length.get())).sum();
    if total > MOST_INLINE || total <= u64::from(most) && inline.len() as u64 != total {
        return Err(Carried::Withheld);
    }
    let byte = |index: usize| inline.get(index).copied().unwrap_or_default();
    let bytes = try_slice(total as usize, byte).map_err(|_| Carried::NoMemory)?;
    let mut at = 0;
    let entry = |index: usize| {
        let element: &Element = &elements[index];
        let place = bytes.as_ptr().wrapping_add(at).cast_mut().cast();
        at += element.length.get() as usize;
        NDK_SGE::new(place, element.length.get(), element.token.get())
    };
    let entries = try_slice(elements.len(), entry).map_err(|_| Carried::NoMemory)?;
    Ok(List { entries, _bytes: bytes })
}
