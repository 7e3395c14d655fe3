//! Functions of a queue pair.

use core::ffi::c_void;

use ndkpi::{
    NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_OP_FLAG_INLINE, NDK_QP,
    NDK_QP_DISPATCH, NDK_SGE, NDK_SRQ, NtStatus,
};
use zerocopy::IntoBytes;

use super::proxy::{Outgoing, Proxy, close, flat, named, query_extension};
use crate::wire::{Element, Function, Pages};

/// The table of a queue pair.
pub static QP: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: Some(close),
    NdkQueryExtension: Some(query_extension),
    NdkFlush: Some(flush),
    NdkSend: Some(send),
    NdkReceive: Some(receive),
    NdkBind: Some(bind),
    NdkFastRegister: Some(fast_register),
    NdkInvalidate: Some(invalidate),
    NdkRead: Some(read),
    NdkWrite: Some(write),
    NdkSendAndInvalidate: Some(send_and_invalidate),
};

/// The bytes of a page of the adapter (`NDKPI 7.4`).
const PAGE: u64 = 4096;

/// A post with a list: the context, the entries, and after them inline bytes if the flags say so.
///
/// # Safety
///
/// `object` is open; the list is null or good for `count` entries, and those for their bytes if they are inline.
unsafe fn post<T>(
    object: *mut T,
    function: Function,
    context: *mut c_void,
    (list, count): (*const NDK_SGE, u32),
    flags: u32,
    more: impl FnOnce(Outgoing) -> Outgoing,
) -> NtStatus {
    if list.is_null() && count > 0 {
        return NtStatus::INVALID_PARAMETER;
    }
    // SAFETY: the object is open (`# Safety`).
    let proxy = unsafe { Proxy::of(object) };
    let inline = flags & NDK_OP_FLAG_INLINE != 0;
    flat(proxy.begin(function).and_then(|call| {
        let mut call = more(call.pointer(0, context).word(1, count).word(2, flags));
        for index in 0..count as usize {
            // SAFETY: the list is good for so many entries (`# Safety`).
            let entry = unsafe { &*list.add(index) };
            let address = if inline { 0 } else { call.link.translated(entry)? };
            call.append(Element::new(address, entry).as_bytes())?;
        }
        for index in (0..count as usize).filter(|_| inline) {
            // SAFETY: the list is good for so many entries (`# Safety`).
            let entry = unsafe { &*list.add(index) };
            if entry.Length > 0 && !entry.virtual_address().is_null() {
                let (bytes, length) = (entry.virtual_address().cast_const().cast(), entry.Length as usize);
                // SAFETY: the bytes of an inline entry can be read (`# Safety`), and do not change during the call.
                call.append_some(unsafe { core::slice::from_raw_parts(bytes, length) });
            }
        }
        Ok(call.send()?.status())
    }))
}

unsafe extern "system" fn send(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    flags: u32,
) -> NtStatus {
    // SAFETY: as the consumer promises (`NDK_FN_SEND`).
    unsafe { post(qp, Function::Send, context, (list, count), flags, |call| call) }
}

unsafe extern "system" fn send_and_invalidate(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    flags: u32,
    token: u32,
) -> NtStatus {
    // SAFETY: as the consumer promises (`NDK_FN_SEND_AND_INVALIDATE`).
    unsafe { post(qp, Function::SendAndInvalidate, context, (list, count), flags, |call| call.word(3, token)) }
}

unsafe extern "system" fn receive(qp: *mut NDK_QP, context: *mut c_void, list: *const NDK_SGE, count: u32) -> NtStatus {
    // SAFETY: as the consumer promises (`NDK_FN_RECEIVE`).
    unsafe { post(qp, Function::Receive, context, (list, count), 0, |call| call) }
}

pub unsafe extern "system" fn srq_receive(
    srq: *mut NDK_SRQ,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
) -> NtStatus {
    // SAFETY: as the consumer promises (`NDK_FN_SRQ_RECEIVE`).
    unsafe { post(srq, Function::SrqReceive, context, (list, count), 0, |call| call) }
}

unsafe extern "system" fn read(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> NtStatus {
    let remote = |call: Outgoing| call.word(3, token).word(4, address);
    // SAFETY: as the consumer promises (`NDK_FN_READ`).
    unsafe { post(qp, Function::Read, context, (list, count), flags, remote) }
}

unsafe extern "system" fn write(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    flags: u32,
) -> NtStatus {
    let remote = |call: Outgoing| call.word(3, token).word(4, address);
    // SAFETY: as the consumer promises (`NDK_FN_WRITE`).
    unsafe { post(qp, Function::Write, context, (list, count), flags, remote) }
}

unsafe extern "system" fn bind(
    qp: *mut NDK_QP,
    context: *mut c_void,
    mr: *mut NDK_MR,
    mw: *mut NDK_MW,
    address: *mut c_void,
    length: usize,
    flags: u32,
) -> NtStatus {
    // SAFETY: the queue pair is open (`NDK_FN_BIND`).
    let proxy = unsafe { Proxy::of(qp) };
    flat(proxy.begin(Function::Bind).and_then(|call| {
        let region = named(proxy.link(), mr, &[NDK_OBJECT_TYPE::MR])?;
        let window = named(proxy.link(), mw, &[NDK_OBJECT_TYPE::MW])?;
        // The address is one for peers: not translated.
        // SAFETY: the window is in the table of this link, so it is a proxy that is not closed.
        unsafe { Proxy::of(mw) }.depend_on(region.cookie);
        let call = call.pointer(0, context).word(1, region.handle).word(2, window.handle).pointer(3, address);
        Ok(call.word(4, length as u64).word(5, flags).send()?.status())
    }))
}

unsafe extern "system" fn fast_register(
    qp: *mut NDK_QP,
    context: *mut c_void,
    mr: *mut NDK_MR,
    count: u32,
    pages: *const NDK_LOGICAL_ADDRESS,
    offset: u32,
    length: usize,
    base: *mut c_void,
    flags: u32,
) -> NtStatus {
    if pages.is_null() && count > 0 {
        return NtStatus::INVALID_PARAMETER;
    }
    // SAFETY: the queue pair is open (`NDK_FN_FAST_REGISTER`).
    let proxy = unsafe { Proxy::of(qp) };
    flat(proxy.begin(Function::FastRegister).and_then(|call| {
        let region = named(proxy.link(), mr, &[NDK_OBJECT_TYPE::MR])?;
        // The base is an address for peers: not translated.
        let call = call.pointer(0, context).word(1, region.handle).word(3, offset).word(4, length as u64);
        let mut call = call.pointer(5, base).word(6, flags);
        let mut runs = 0_u64;
        let mut index = 0;
        while index < count as usize {
            // SAFETY: the array has `count` pages.
            let first = unsafe { pages.add(index).read() }.to_bits();
            let follows = |run: usize| {
                // SAFETY: as before, if the page is one of them.
                let page = (index + run < count as usize).then(|| unsafe { pages.add(index + run).read() });
                page.is_some_and(|page| page.to_bits() == first.wrapping_add(run as u64 * PAGE))
            };
            let mut run = 1;
            while follows(run) {
                run += 1;
            }
            call.append(Pages { first: first.into(), count: (run as u64).into() }.as_bytes())?;
            runs += 1;
            index += run;
        }
        Ok(call.word(2, runs).send()?.status())
    }))
}

unsafe extern "system" fn invalidate(
    qp: *mut NDK_QP,
    context: *mut c_void,
    named_object: *mut NDK_OBJECT_HEADER,
    flags: u32,
) -> NtStatus {
    // SAFETY: the queue pair is open (`NDK_FN_INVALIDATE`).
    let proxy = unsafe { Proxy::of(qp) };
    flat(proxy.begin(Function::Invalidate).and_then(|call| {
        let named = named(proxy.link(), named_object, &[NDK_OBJECT_TYPE::MR, NDK_OBJECT_TYPE::MW])?;
        Ok(call.pointer(0, context).word(1, named.handle).word(2, flags).send()?.status())
    }))
}

unsafe extern "system" fn flush(qp: *mut NDK_QP) {
    // SAFETY: the queue pair is open (`NDK_FN_FLUSH`). What has failed is noted as the reason why the case says nothing.
    let _ = unsafe { Proxy::of(qp) }.begin(Function::Flush).and_then(Outgoing::send);
}
