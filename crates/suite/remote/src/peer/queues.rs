//! Functions of completion queues, shared receive queues, regions and windows.

use core::ffi::c_void;

use ndkpi::{
    BOOLEAN, FALSE, MDL, NDK_CQ, NDK_CQ_DISPATCH, NDK_FN_REQUEST_COMPLETION, NDK_MR, NDK_MR_DISPATCH, NDK_MW_DISPATCH,
    NDK_RESULT, NDK_RESULT_EX, NDK_SRQ, NDK_SRQ_DISPATCH, NtStatus,
};
use zerocopy::FromBytes;

use super::proxy::{Outgoing, Proxy, close, flat, query_extension};
use crate::wire::{ANSWER_TAIL, Completion, Function};

/// The table of a completion queue.
pub static CQ: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkResizeCq: Some(resize),
    NdkArmCq: Some(arm),
    NdkGetCqResults: Some(results),
    NdkControlCqInterruptModeration: Some(moderate),
    NdkGetCqResultsEx: Some(results_ex),
};

/// The table of a shared receive queue.
pub static SRQ: NDK_SRQ_DISPATCH = NDK_SRQ_DISPATCH {
    NdkCloseSrq: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkModifySrq: Some(modify),
    NdkSrqReceive: Some(super::posts::srq_receive),
};

/// The table of a region.
pub static MR: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkRegisterMr: Some(register),
    NdkDeregisterMr: Some(deregister),
    NdkInitializeFastRegisterMr: Some(initialize),
    NdkGetRemoteTokenFromMr: Some(remote_token),
    NdkGetLocalTokenFromMr: Some(local_token),
};

/// The table of a window.
pub static MW: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkGetRemoteTokenFromMw: Some(remote_token),
};

unsafe extern "system" fn resize(
    cq: *mut NDK_CQ,
    depth: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the queue is open (`NDK_FN_RESIZE_CQ`).
    let call = unsafe { Proxy::of(cq) }.begin(Function::ResizeCq);
    flat(call.and_then(|call| call.word(0, depth).request(completion, context)))
}

unsafe extern "system" fn arm(cq: *mut NDK_CQ, what: u32) {
    // SAFETY: the queue is open (`NDK_FN_ARM_CQ`). What has failed is noted as the reason why the case says nothing.
    let _ = unsafe { Proxy::of(cq) }.begin(Function::ArmCq).and_then(|call| call.word(0, what).send());
}

unsafe extern "system" fn moderate(cq: *mut NDK_CQ, interval: u32, count: u32) -> NtStatus {
    // SAFETY: the queue is open (`NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION`).
    let call = unsafe { Proxy::of(cq) }.begin(Function::Moderate);
    flat(call.and_then(|call| Ok(call.word(0, interval).word(1, count).send()?.status())))
}

/// Takes completions, as many at a time as an answer can have. `store` stores one at a place.
fn poll(proxy: &Proxy, function: Function, most: u32, store: impl Fn(usize, NDK_RESULT_EX)) -> u32 {
    let mut taken = 0;
    loop {
        let asked = (most - taken).min((ANSWER_TAIL / size_of::<Completion>()) as u32);
        let Ok(answer) = proxy.begin(function).and_then(|call| call.word(0, asked).send()) else { return taken };
        let Ok(completions) = <[Completion]>::ref_from_bytes(answer.tail()) else { return taken };
        for completion in completions.iter().take(asked as usize) {
            store(taken as usize, completion.into());
            taken += 1;
        }
        if completions.len() < asked as usize || taken == most {
            return taken;
        }
    }
}

unsafe extern "system" fn results(cq: *mut NDK_CQ, results: *mut NDK_RESULT, most: u32) -> u32 {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the queue is open (`NDK_FN_GET_CQ_RESULTS`).
    let proxy = unsafe { Proxy::of(cq) };
    poll(proxy, Function::Poll, most, |index, result| {
        // SAFETY: there is room for `most` results.
        unsafe { results.add(index).write(result.into()) };
    })
}

unsafe extern "system" fn results_ex(cq: *mut NDK_CQ, results: *mut NDK_RESULT_EX, most: u32) -> u32 {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the queue is open (`NDK_FN_GET_CQ_RESULTS_EX`).
    let proxy = unsafe { Proxy::of(cq) };
    poll(proxy, Function::PollEx, most, |index, result| {
        // SAFETY: there is room for `most` results.
        unsafe { results.add(index).write(result) };
    })
}

unsafe extern "system" fn modify(
    srq: *mut NDK_SRQ,
    depth: u32,
    threshold: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the queue is open (`NDK_FN_MODIFY_SRQ`).
    let call = unsafe { Proxy::of(srq) }.begin(Function::ModifySrq);
    flat(call.and_then(|call| call.word(0, depth).word(1, threshold).request(completion, context)))
}

unsafe extern "system" fn register(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: usize,
    flags: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the region is open (`NDK_FN_REGISTER_MR`).
    let proxy = unsafe { Proxy::of(mr) };
    flat(proxy.begin(Function::Register).and_then(|call| {
        let mirror = proxy.link().mirror(mdl)?;
        proxy.link().tie(&mirror)?;
        let call = call.word(0, mirror.handle()).word(1, length as u64).word(2, flags);
        *proxy.mirror().lock(proxy.link().may_wait()?.platform()) = Some(mirror);
        call.request(completion, context)
    }))
}

unsafe extern "system" fn deregister(
    mr: *mut NDK_MR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the region is open (`NDK_FN_DEREGISTER_MR`).
    let call = unsafe { Proxy::of(mr) }.begin(Function::Deregister);
    flat(call.and_then(|call| call.request(completion, context)))
}

unsafe extern "system" fn initialize(
    mr: *mut NDK_MR,
    pages: u32,
    remote: BOOLEAN,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the region is open (`NDK_FN_INITIALIZE_FAST_REGISTER_MR`).
    let call = unsafe { Proxy::of(mr) }.begin(Function::InitializeFastRegister);
    flat(call.and_then(|call| call.word(0, pages).given(0, remote != FALSE).request(completion, context)))
}

unsafe extern "system" fn remote_token<T>(object: *mut T) -> u32 {
    // SAFETY: the region or window is open (`NDK_FN_GET_REMOTE_TOKEN_FROM_MR`, `NDK_FN_GET_REMOTE_TOKEN_FROM_MW`).
    let answer = unsafe { Proxy::of(object) }.begin(Function::RemoteToken).and_then(Outgoing::send);
    answer.map_or(0, |answer| answer.word(0) as u32)
}

unsafe extern "system" fn local_token(mr: *mut NDK_MR) -> u32 {
    // SAFETY: the region is open (`NDK_FN_GET_LOCAL_TOKEN_FROM_MR`).
    let proxy = unsafe { Proxy::of(mr) };
    let asked = proxy.begin(Function::LocalToken).and_then(|call| {
        let token = call.send()?.word(0) as u32;
        let mirror = proxy.mirror().lock(proxy.link().may_wait()?.platform()).clone();
        if let Some(mirror) = mirror {
            proxy.link().note_token(token, proxy.cookie(), mirror.distance())?;
        }
        Ok(token)
    });
    asked.unwrap_or_default()
}
