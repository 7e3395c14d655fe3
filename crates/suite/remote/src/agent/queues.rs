//! Completion queues, shared receive queues, and what regions and windows answer.

use fallible::try_slice;
use ndkpi::{NDK_CQ, NDK_OBJECT_TYPE, NDK_RESULT, NDK_RESULT_EX, NtStatus};
use zerocopy::IntoBytes;

use super::{
    Agent,
    call::{Incoming, Reply},
    object::Used,
};
use crate::wire::{ANSWER_TAIL, Carried, Completion};

impl Agent<'_> {
    fn completion_queue(&self, call: &Incoming<'_>) -> Result<Used, Carried> {
        self.object(call.head.object.get(), NDK_OBJECT_TYPE::CQ)
    }

    pub(super) fn resize_cq(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let cq = self.completion_queue(call)?;
        let _turn = cq.turn(self.platform)?;
        let depth = call.number(0)?;
        let (raw, function) = slot!(cq, NDK_CQ, NdkResizeCq);
        self.request(call, 0, |completion, context| {
            // SAFETY: the queue is open, the context lives until the completion has come.
            unsafe { function(raw, depth, completion, context) }
        })
    }

    pub(super) fn arm_cq(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let cq = self.completion_queue(call)?;
        let _turn = cq.turn(self.platform)?;
        let what = call.number(0)?;
        cq.entry().have_spare()?;
        let (raw, function) = slot!(cq, NDK_CQ, NdkArmCq);
        // SAFETY: the queue is open, and one call at a time is made on it (`NDKPI 7.1.2`).
        unsafe { function(raw, what) };
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn poll(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let cq = self.completion_queue(call)?;
        let _turn = cq.turn(self.platform)?;
        let (raw, function) = slot!(cq, NDK_CQ, NdkGetCqResults);
        let mut results = try_slice(most(call)?, |_| NDK_RESULT::ZEROED).map_err(|_| Carried::NoMemory)?;
        // SAFETY: as in `arm_cq`; there is room for so many results.
        let count = unsafe { function(raw, results.as_mut_ptr(), results.len() as u32) };
        for result in results.iter().take(count as usize) {
            let result = NDK_RESULT_EX {
                Status: result.Status,
                BytesTransferred: result.BytesTransferred,
                QPContext: result.QPContext,
                RequestContext: result.RequestContext,
                ..NDK_RESULT_EX::ZEROED
            };
            reply.append(Completion::from(&result).as_bytes())?;
        }
        reply.set(0, count);
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn poll_ex(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let cq = self.completion_queue(call)?;
        let _turn = cq.turn(self.platform)?;
        let raw: *mut NDK_CQ = cq.raw();
        // SAFETY: the queue is open.
        let function = unsafe { NDK_CQ::get_cq_results_ex(raw) }.ok_or(Carried::Withheld)?;
        let mut results = try_slice(most(call)?, |_| NDK_RESULT_EX::ZEROED).map_err(|_| Carried::NoMemory)?;
        // SAFETY: as in `poll`.
        let count = unsafe { function(raw, results.as_mut_ptr(), results.len() as u32) };
        for result in results.iter().take(count as usize) {
            reply.append(Completion::from(result).as_bytes())?;
        }
        reply.set(0, count);
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn moderate(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let cq = self.completion_queue(call)?;
        let _turn = cq.turn(self.platform)?;
        let (interval, count) = (call.number(0)?, call.number(1)?);
        let (raw, function) = slot!(cq, NDK_CQ, NdkControlCqInterruptModeration);
        // SAFETY: the queue is open.
        Ok(unsafe { function(raw, interval, count) })
    }

    pub(super) fn modify_srq(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let srq = self.object(call.head.object.get(), NDK_OBJECT_TYPE::SRQ)?;
        let _turn = srq.turn(self.platform)?;
        let (depth, threshold) = (call.number(0)?, call.number(1)?);
        srq.entry().have_spare()?;
        let (raw, function) = slot!(srq, NDK_SRQ, NdkModifySrq);
        self.request(call, 0, |completion, context| {
            // SAFETY: the queue is open, the context lives until the completion has come.
            unsafe { function(raw, depth, threshold, completion, context) }
        })
    }

    pub(super) fn deregister(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let region = self.object(call.head.object.get(), NDK_OBJECT_TYPE::MR)?;
        let _turn = region.turn(self.platform)?;
        let (raw, function) = slot!(region, NDK_MR, NdkDeregisterMr);
        self.request(call, 0, |completion, context| {
            // SAFETY: the region is open, the context lives until the completion has come.
            unsafe { function(raw, completion, context) }
        })
    }

    pub(super) fn initialize_fast_register(&self, call: &Incoming<'_>) -> Result<NtStatus, Carried> {
        let region = self.object(call.head.object.get(), NDK_OBJECT_TYPE::MR)?;
        let _turn = region.turn(self.platform)?;
        let pages = call.number(0)?;
        let (raw, function) = slot!(region, NDK_MR, NdkInitializeFastRegisterMr);
        self.request(call, 0, |completion, context| {
            // SAFETY: as in `deregister`.
            unsafe { function(raw, pages, call.given(0).into(), completion, context) }
        })
    }

    pub(super) fn remote_token(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let used = self.any_object(call.head.object.get())?;
        let _turn = used.turn(self.platform)?;
        let token = match used.entry().kind() {
            NDK_OBJECT_TYPE::MR => {
                let (raw, function) = slot!(used, NDK_MR, NdkGetRemoteTokenFromMr);
                // SAFETY: the region is open.
                unsafe { function(raw) }
            }
            NDK_OBJECT_TYPE::MW => {
                let (raw, function) = slot!(used, NDK_MW, NdkGetRemoteTokenFromMw);
                // SAFETY: the window is open.
                unsafe { function(raw) }
            }
            _ => return Err(Carried::Stale),
        };
        reply.set(0, token);
        Ok(NtStatus::SUCCESS)
    }

    pub(super) fn local_token(&self, call: &Incoming<'_>, reply: &mut Reply<'_>) -> Result<NtStatus, Carried> {
        let region = self.object(call.head.object.get(), NDK_OBJECT_TYPE::MR)?;
        let _turn = region.turn(self.platform)?;
        let (raw, function) = slot!(region, NDK_MR, NdkGetLocalTokenFromMr);
        // SAFETY: the region is open.
        reply.set(0, unsafe { function(raw) });
        Ok(NtStatus::SUCCESS)
    }
}

/// How many completions an answer can have of those that the call asks for.
fn most(call: &Incoming<'_>) -> Result<usize, Carried> {
    Ok((call.number(0)? as usize).min(ANSWER_TAIL / size_of::<Completion>()))
}
