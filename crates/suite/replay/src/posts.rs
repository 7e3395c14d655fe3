//! Posts and polls.

use std::{
    collections::{HashMap, VecDeque},
    sync::atomic::Ordering::Relaxed,
};

use interpose::Function;
use ndkpi::{
    NDK_CQ, NDK_MR, NDK_MW, NDK_OP_FLAG_INLINE as INLINE, NDK_QP, NDK_RESULT, NDK_RESULT_EX, NDK_SGE, NDK_SRQ,
};
use recording::{Arguments, Completion, Element, Outcome, Record};

use crate::{
    calls::{Made, context, function, object},
    player::{Answer, Player},
};

/// Completions that were taken here and not yet in the recording, by completion queue.
pub type Taking = HashMap<u32, VecDeque<Completion>>;

/// The list of a request: a pointer and a number.
fn list(elements: &[NDK_SGE], given: u32) -> (*const NDK_SGE, u32) {
    // A list that was not there is not there here either. Of one that was too long to be kept the first ones are there.
    if elements.is_empty() {
        return (std::ptr::null(), given);
    }
    (elements.as_ptr(), u32::try_from(elements.len()).unwrap_or(0))
}

impl Player<'_> {
    /// Makes a post.
    pub fn post(&mut self, record: &Record) -> Made {
        if let Arguments::ModifySrq { depth, threshold } = &record.arguments {
            let srq = object!(self, record, record.object, NDK_SRQ);
            let function = function!(self, record, srq, NdkModifySrq);
            return Ok(Self::request(record, |completion, context| {
                // SAFETY: an open queue.
                unsafe { function(srq, *depth, *threshold, completion, context) }
            }));
        }
        if let (Function::SrqReceive, Arguments::Transfer { context: number, given, elements, .. }) =
            (record.function, &record.arguments)
        {
            let srq = object!(self, record, record.object, NDK_SRQ);
            let function = function!(self, record, srq, NdkSrqReceive);
            let Some(sgl) = self.memory.elements(record.adapter, elements, false) else { return Ok(Answer::Nothing) };
            let (first, count) = list(&sgl, *given);
            // SAFETY: an open queue, and a list of that length that lives until the call returns.
            return Ok(Answer::Status(unsafe { function(srq, context(*number), first, count) }));
        }
        let qp = object!(self, record, record.object, NDK_QP);
        match &record.arguments {
            Arguments::Transfer { context, remote_address, remote_token, flags, given, elements } => {
                let remote = (*remote_address, *remote_token);
                self.transfer(record, qp, *context, remote, *flags, (*given, elements))
            }
            _ => self.other_request(record, qp),
        }
    }

    fn transfer(
        &mut self,
        record: &Record,
        qp: *mut NDK_QP,
        number: u64,
        remote: (u64, u32),
        flags: u32,
        (given, elements): (u32, &[Element]),
    ) -> Made {
        let is_inline = record.function != Function::Receive && flags & INLINE != 0;
        let Some(sgl) = self.memory.elements(record.adapter, elements, is_inline) else {
            return Ok(self.leave_out(record, "more inline data than a replay has"));
        };
        let (first, count) = list(&sgl, given);
        let own = context(number);
        // The peer's tokens are those of its adapter.
        let peer = self.peers.get(&record.object).and_then(|peer| self.adapter_of.get(peer));
        let peer = peer.copied().unwrap_or(record.adapter);
        let (address, token) = self.memory.remote(peer, remote.0, remote.1);
        let status = match record.function {
            Function::Send => {
                let function = function!(self, record, qp, NdkSend);
                // SAFETY: an open queue pair, and a list of that length that lives until the call returns.
                unsafe { function(qp, own, first, count, flags) }
            }
            Function::Receive => {
                let function = function!(self, record, qp, NdkReceive);
                // SAFETY: an open queue pair, and a list that lives until the call returns.
                unsafe { function(qp, own, first, count) }
            }
            Function::Read => {
                let function = function!(self, record, qp, NdkRead);
                // SAFETY: an open queue pair, and a list that lives until the call returns.
                unsafe { function(qp, own, first, count, address, token, flags) }
            }
            Function::Write => {
                let function = function!(self, record, qp, NdkWrite);
                // SAFETY: an open queue pair, and a list that lives until the call returns.
                unsafe { function(qp, own, first, count, address, token, flags) }
            }
            _ => {
                // SAFETY: an open queue pair.
                let Some(function) = (unsafe { NDK_QP::send_and_invalidate(qp) }) else {
                    return Ok(self.leave_out(record, "the provider does not have the function"));
                };
                let token = self.memory.token(peer, remote.1);
                // SAFETY: an open queue pair, and a list that lives until the call returns.
                unsafe { function(qp, own, first, count, flags, token) }
            }
        };
        Ok(Answer::Status(status))
    }

    fn other_request(&mut self, record: &Record, qp: *mut NDK_QP) -> Made {
        let status = match &record.arguments {
            Arguments::Bind { context: number, address, length, flags } => {
                let mr = object!(self, record, record.related[0], NDK_MR);
                let mw = object!(self, record, record.related[1], NDK_MW);
                let function = function!(self, record, qp, NdkBind);
                let delta = self.memory.delta(record.related[0]);
                self.memory.set_delta(record.related[1], delta);
                let address = context(address.wrapping_add(delta));
                let length = usize::try_from(*length).unwrap_or(usize::MAX);
                // SAFETY: open objects.
                unsafe { function(qp, context(*number), mr, mw, address, length, *flags) }
            }
            Arguments::FastRegister { context: number, first_byte, flags, length, base, pages, .. } => {
                let mr = object!(self, record, record.related[0], NDK_MR);
                let function = function!(self, record, qp, NdkFastRegister);
                let pages: Vec<_> = pages
                    .iter()
                    .map(|page| ndkpi::NDK_LOGICAL_ADDRESS::from_bits(self.memory.logical(record.adapter, *page)))
                    .collect();
                let count = u32::try_from(pages.len()).unwrap_or(0);
                let first = if pages.is_empty() { std::ptr::null() } else { pages.as_ptr() };
                let length = usize::try_from(*length).unwrap_or(usize::MAX);
                // SAFETY: open objects, and a list of that length that lives until the call returns.
                unsafe { function(qp, context(*number), mr, count, first, *first_byte, length, context(*base), *flags) }
            }
            Arguments::Invalidate { context: number, flags } => {
                let Some((_, object)) = self.objects.any(record.related[0]) else {
                    return Ok(self.leave_out(record, "the object is not there, or is closed"));
                };
                let function = function!(self, record, qp, NdkInvalidate);
                // SAFETY: open objects.
                unsafe { function(qp, context(*number), object, *flags) }
            }
            _ => {
                let function = function!(self, record, qp, NdkFlush);
                // SAFETY: an open queue pair.
                unsafe { function(qp) };
                return Ok(Answer::Nothing);
            }
        };
        Ok(Answer::Status(status))
    }

    /// A poll was recorded: as many completions are taken here, and compared.
    pub fn poll(&mut self, record: &Record) {
        let Arguments::GetCqResults { room, results, .. } = &record.arguments else { return };
        for recorded in results {
            self.take(record, recorded);
        }
        self.look(record, *room);
        if let Outcome::Count(count) = record.outcome
            && count as usize > results.len()
        {
            let kept = results.len();
            self.differ(record, format!("recorded {count} completions, of which {kept} are in the recording"));
        }
    }

    /// A look at the queue, of which hooks learn what the consumer did.
    fn look(&self, record: &Record, room: u32) {
        let Some(cq) = self.objects.get::<NDK_CQ>(record.object) else { return };
        let Outcome::Count(count) = record.outcome else { return };
        self.left.store(room.saturating_sub(count), Relaxed);
        // SAFETY: the queue is open.
        if let Some(function) = unsafe { NDK_CQ::get_cq_results_ex(cq) } {
            let mut none = NDK_RESULT_EX::ZEROED;
            // SAFETY: an open queue, on which no other call runs, and room for none.
            unsafe { function(cq, &raw mut none, 0) };
        } else if let Some(function) = crate::calls::slot!(cq, NdkGetCqResults) {
            let mut none = NDK_RESULT::ZEROED;
            // SAFETY: an open queue, on which no other call runs, and room for none.
            unsafe { function(cq, &raw mut none, 0) };
        }
    }

    fn take(&mut self, record: &Record, recorded: &Completion) {
        let Some(cq) = self.objects.get::<NDK_CQ>(record.object) else {
            self.differ(record, "left out: the queue is not there, or is closed");
            return;
        };
        // Completions of one queue pair come in order; those of several in any.
        let is_it = |taken: &Completion| {
            taken.qp_context == recorded.qp_context && (recorded.kind == 0 || taken.kind & 1 == recorded.kind & 1)
        };
        let mut taken = self.taking.remove(&record.object).unwrap_or_default();
        while !taken.iter().any(is_it) {
            let next = std::cell::Cell::new(None);
            let found = self.wait(|| {
                // It is asked again after it was so.
                next.set(next.get().or_else(|| one(cq)));
                next.get().is_some()
            });
            let Some(next) = next.get().filter(|_| found) else { break };
            taken.push_back(next);
        }
        let here = taken.iter().position(is_it).and_then(|place| taken.remove(place));
        self.taking.insert(record.object, taken);
        let named = format!("completion of context {:#x}", recorded.request_context);
        match here {
            None => self.differ(record, format!("recorded the {named} with {}, here none comes", recorded.status)),
            Some(here) if here.request_context != recorded.request_context => {
                let other = here.request_context;
                self.differ(record, format!("recorded the {named}, here that of context {other:#x} comes first"));
            }
            Some(here) if here.status != recorded.status => {
                self.differ(record, format!("{named}: recorded {}, here {}", recorded.status, here.status));
            }
            Some(here) if here.is_receive() && here.status.is_success() && here.bytes != recorded.bytes => {
                self.differ(record, format!("{named}: recorded {} bytes, here {}", recorded.bytes, here.bytes));
            }
            Some(here) if recorded.kind != 0 && here.kind != recorded.kind => {
                self.differ(record, format!("{named}: recorded the type {:#x}, here {:#x}", recorded.kind, here.kind));
            }
            Some(_) => {}
        }
    }
}

/// Takes one completion.
fn one(cq: *mut NDK_CQ) -> Option<Completion> {
    // SAFETY: the queue is open.
    if let Some(function) = unsafe { NDK_CQ::get_cq_results_ex(cq) } {
        let mut result = NDK_RESULT_EX::ZEROED;
        // SAFETY: an open queue, on which no other call runs, and room for one.
        let count = unsafe { function(cq, &raw mut result, 1) };
        return (count == 1).then(|| Completion {
            status: result.Status,
            bytes: result.BytesTransferred,
            qp_context: result.QPContext.addr() as u64,
            request_context: result.RequestContext.addr() as u64,
            kind: result.Type.0.cast_unsigned(),
            error: result.ProviderErrorCode,
            output: result.TypeSpecificCompletionOutput as u64,
        });
    }
    let function = crate::calls::slot!(cq, NdkGetCqResults)?;
    let mut result = NDK_RESULT::ZEROED;
    // SAFETY: an open queue, on which no other call runs, and room for one.
    let count = unsafe { function(cq, &raw mut result, 1) };
    (count == 1).then(|| Completion {
        status: result.Status,
        bytes: result.BytesTransferred,
        qp_context: result.QPContext.addr() as u64,
        request_context: result.RequestContext.addr() as u64,
        kind: 0,
        error: 0,
        output: 0,
    })
}
