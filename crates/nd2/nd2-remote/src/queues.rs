//! Completion queues of both versions, and shared receive queues.

use std::{ffi::c_void, ptr, sync::Arc};

use nd2::{
    abi::{
        BOOL, HRESULT, IID_IND2CompletionQueue, IID_IND2Overlapped, IID_IND2SharedReceiveQueue, IID_INDCompletionQueue,
        IID_INDOverlapped, IND2CompletionQueueVtbl, IND2SharedReceiveQueueVtbl, INDCompletionQueueVtbl,
        INDOverlappedVtbl, KAFFINITY, ND_RESULT, ND2_REQUEST_TYPE, ND2_RESULT, ND2_SGE, OVERLAPPED,
    },
    com::{Class, borrow, find, unknown},
};
use nd2_control::wire::{RESULT, Reader, Verb};
use ndkpi::{GUID, NtStatus};

use crate::{
    Transport,
    adapter::Core,
    held::{Held, Overlapped, cancel_overlapped_requests, get_overlapped_result, overlapped},
    post::elements,
};

/// Results that are taken at a time.
const BATCH: usize = 32;

/// What a queue is made of.
type Parts<T> = (Arc<Core<T>>, Arc<<T as Transport>::File>, Held<T>);

/// A completion queue, of either version.
pub struct Queue<T: Transport> {
    adapter: Arc<Core<T>>,
    file: Arc<T::File>,
    held: Held<T>,
}

/// A completion queue of version 2.
pub struct CompletionQueue2<T: Transport>(Queue<T>);

/// A completion queue of version 1.
pub struct CompletionQueue1<T: Transport>(Queue<T>);

impl<T: Transport> CompletionQueue2<T> {
    pub fn new((adapter, file, held): Parts<T>) -> Self {
        Self(Queue { adapter, file, held })
    }
}

impl<T: Transport> CompletionQueue1<T> {
    pub fn new((adapter, file, held): Parts<T>) -> Self {
        Self(Queue { adapter, file, held })
    }
}

/// The handle of the queue behind a client's pointer, of either version; zero if it is none of this adapter.
///
/// # Safety
///
/// `unknown` is null or a COM object.
pub unsafe fn handle_of_queue<T: Transport>(adapter: &Arc<Core<T>>, unknown: *mut c_void) -> u64 {
    let handle = |queue: &Queue<T>| if Arc::ptr_eq(&queue.adapter, adapter) { queue.held.handle } else { 0 };
    // SAFETY: the caller's promise.
    if let Some(found) = unsafe { find::<CompletionQueue2<T>, _>(unknown, |queue| handle(&queue.0)) } {
        return found;
    }
    // SAFETY: the caller's promise.
    unsafe { find::<CompletionQueue1<T>, _>(unknown, |queue| handle(&queue.0)) }.unwrap_or(0)
}

/// The driver's handle of the queue behind a client's pointer, of either version. For tests. `None` if it is no queue.
///
/// # Safety
///
/// `unknown` is null or a COM object.
pub unsafe fn queue_handle<T: Transport>(unknown: *mut c_void) -> Option<u64> {
    // SAFETY: the caller's promise.
    let found = unsafe { find::<CompletionQueue2<T>, _>(unknown, |queue| queue.0.held.handle) };
    // SAFETY: the caller's promise.
    found.or_else(|| unsafe { find::<CompletionQueue1<T>, _>(unknown, |queue| queue.0.held.handle) })
}

impl<T: Transport> Queue<T> {
    /// Takes results and gives them to `each`. Returns how many.
    fn take(&self, most: usize, mut each: impl FnMut(ND2_RESULT)) -> usize {
        let mut taken = 0;
        while taken < most {
            let asked = (most - taken).min(BATCH);
            let mut answer = [0; RESULT * BATCH];
            let message = self.held.message();
            let Ok(input) = message.get() else { break };
            let room = &mut answer[..RESULT * asked];
            let Ok(length) = self.held.transport.call(Verb::Results.code(), input, room) else { break };
            let results = room[..length].chunks_exact(RESULT).filter_map(|bytes| read(Reader::new(bytes)).ok());
            let before = taken;
            for result in results {
                each(result);
                taken += 1;
            }
            if taken - before < asked {
                break;
            }
        }
        taken
    }
}

/// A result as it is sent.
fn read(mut bytes: Reader<'_>) -> Result<ND2_RESULT, NtStatus> {
    let place = |value: u64| ptr::with_exposed_provenance_mut(usize::try_from(value).unwrap_or(0));
    Ok(ND2_RESULT {
        Status: HRESULT::from_bits(bytes.u32()?),
        BytesTransferred: bytes.u32()?,
        QueuePairContext: place(bytes.u64()?),
        RequestContext: place(bytes.u64()?),
        RequestType: ND2_REQUEST_TYPE(bytes.u32()?.cast_signed()),
    })
}

impl<T: Transport> Class for CompletionQueue2<T> {
    type Table = IND2CompletionQueueVtbl;

    const TABLE: &'static IND2CompletionQueueVtbl = &IND2CompletionQueueVtbl {
        base: overlapped::<Self>(),
        GetNotifyAffinity: get_notify_affinity::<Self>,
        Resize: resize::<T>,
        Notify: notify::<Self>,
        GetResults: get_results::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2CompletionQueue, IID_IND2Overlapped];
}

impl<T: Transport> Class for CompletionQueue1<T> {
    type Table = INDCompletionQueueVtbl;

    const TABLE: &'static INDCompletionQueueVtbl = &INDCompletionQueueVtbl {
        base: INDOverlappedVtbl {
            base: unknown::<Self>(),
            CancelOverlappedRequests: cancel_overlapped_requests::<Self>,
            GetOverlappedResult: get_overlapped_result_1::<T>,
        },
        Resize: resize_1::<T>,
        Notify: notify::<Self>,
        GetResults: get_results_1::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_INDCompletionQueue, IID_INDOverlapped];
}

macro_rules! overlapped_classes {
    ($($class:ident: $held:ident $file:ident),+ $(,)?) => {
        $(impl<T: Transport> Overlapped for $class<T> {
            type Transport = T;

            fn held(&self) -> &Held<T> {
                &self.0.$held
            }

            fn file(&self) -> &Arc<T::File> {
                &self.0.$file
            }
        })+
    };
}

overlapped_classes!(CompletionQueue2: held file, CompletionQueue1: held file);

/// `GetNotifyAffinity`.
///
/// # Safety
///
/// `this` is an object of the class; `group` and `affinity` are null or valid for writing.
unsafe extern "system" fn get_notify_affinity<C: Overlapped>(
    this: *mut c_void,
    group: *mut u16,
    affinity: *mut KAFFINITY,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    let answer: [u8; 12] = match object.held().ask(Verb::Affinity, &object.held().message()) {
        Ok(answer) => answer,
        Err(status) => return status.into(),
    };
    if group.is_null() || affinity.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    let mut answer = Reader::new(&answer);
    let (Ok(number), Ok(set)) = (answer.u32(), answer.u64()) else { return HRESULT::ND_INTERNAL_ERROR };
    // SAFETY: the pointer is not null.
    unsafe { group.write(u16::try_from(number).unwrap_or(0)) };
    // SAFETY: the pointer is not null.
    unsafe { affinity.write(KAFFINITY::try_from(set).unwrap_or(0)) };
    HRESULT::ND_SUCCESS
}

/// `IND2CompletionQueue::Resize`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn resize<T: Transport>(this: *mut c_void, depth: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue2<T>>(this) };
    object.0.held.tell(Verb::Resize, &object.0.held.message().u32(depth))
}

/// `INDCompletionQueue::Resize`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn resize_1<T: Transport>(this: *mut c_void, entries: usize) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue1<T>>(this) };
    // What does not fit is more than any adapter has.
    let depth = u32::try_from(entries).unwrap_or(u32::MAX);
    object.0.held.tell(Verb::Resize, &object.0.held.message().u32(depth))
}

/// `Notify` of either version.
///
/// # Safety
///
/// `this` is an object of the class; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn notify<C: Overlapped>(this: *mut c_void, kind: u32, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.begin(Verb::Notify, &object.held().message().u32(kind), overlapped) }
}

/// `IND2CompletionQueue::GetResults`.
///
/// # Safety
///
/// `this` is such a queue; `results` is null or valid for writing `count` entries.
unsafe extern "system" fn get_results<T: Transport>(this: *mut c_void, results: *mut ND2_RESULT, count: u32) -> u32 {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue2<T>>(this) };
    let mut place = results;
    let taken = object.0.take(count as usize, |result| {
        // SAFETY: at most `count` are taken, and the array has that many places.
        unsafe { place.write(result) };
        // SAFETY: the entry is in the array, so the place behind it is in it or right at its end.
        place = unsafe { place.add(1) };
    });
    u32::try_from(taken).unwrap_or(count)
}

/// `INDOverlapped::GetOverlappedResult`. Notifications transfer no bytes.
///
/// # Safety
///
/// `this` is such a queue; `overlapped` is null or was given to its method and is valid; `bytes` is null or valid for writing.
unsafe extern "system" fn get_overlapped_result_1<T: Transport>(
    this: *mut c_void,
    overlapped: *mut OVERLAPPED,
    bytes: *mut usize,
    wait: BOOL,
) -> HRESULT {
    if !bytes.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { bytes.write(0) };
    }
    // SAFETY: the caller's promises are the same.
    unsafe { get_overlapped_result::<CompletionQueue1<T>>(this, overlapped, wait) }
}

/// `INDCompletionQueue::GetResults`.
///
/// # Safety
///
/// `this` is such a queue; `results` is null or valid for writing `count` entries; the contexts of all requests that complete
/// here are addresses of `ND_RESULT`s that are valid until they are returned, or null.
unsafe extern "system" fn get_results_1<T: Transport>(
    this: *mut c_void,
    results: *mut *mut ND_RESULT,
    count: usize,
) -> usize {
    if results.is_null() {
        return 0;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<CompletionQueue1<T>>(this) };
    let mut place = results;
    object.0.take(count, |result| {
        let block = result.RequestContext.cast::<ND_RESULT>();
        if !block.is_null() {
            let outcome = ND_RESULT { Status: result.Status, BytesTransferred: result.BytesTransferred as usize };
            // SAFETY: the context is the address of a valid block (the caller's promise).
            unsafe { block.write(outcome) };
        }
        // SAFETY: at most `count` are taken, and the array has that many places.
        unsafe { place.write(block) };
        // SAFETY: the entry is in the array, so the place behind it is in it or right at its end.
        place = unsafe { place.add(1) };
    })
}

/// A shared receive queue.
pub struct SharedReceiveQueue<T: Transport> {
    pub adapter: Arc<Core<T>>,
    pub file: Arc<T::File>,
    pub held: Held<T>,
}

impl<T: Transport> SharedReceiveQueue<T> {
    /// The handle of the queue behind a client's pointer; zero if it is none of this adapter.
    ///
    /// # Safety
    ///
    /// `unknown` is null or a COM object.
    pub unsafe fn handle_of(adapter: &Arc<Core<T>>, unknown: *mut c_void) -> u64 {
        let handle = |queue: &Self| if Arc::ptr_eq(&queue.adapter, adapter) { queue.held.handle } else { 0 };
        // SAFETY: the caller's promise.
        unsafe { find::<Self, _>(unknown, handle) }.unwrap_or(0)
    }
}

impl<T: Transport> Overlapped for SharedReceiveQueue<T> {
    type Transport = T;

    fn held(&self) -> &Held<T> {
        &self.held
    }

    fn file(&self) -> &Arc<T::File> {
        &self.file
    }
}

impl<T: Transport> Class for SharedReceiveQueue<T> {
    type Table = IND2SharedReceiveQueueVtbl;

    const TABLE: &'static IND2SharedReceiveQueueVtbl = &IND2SharedReceiveQueueVtbl {
        base: overlapped::<Self>(),
        GetNotifyAffinity: get_notify_affinity::<Self>,
        Modify: modify::<T>,
        Notify: notify_shared::<T>,
        Receive: receive::<T>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2SharedReceiveQueue, IID_IND2Overlapped];
}

/// `IND2SharedReceiveQueue::Modify`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn modify<T: Transport>(this: *mut c_void, depth: u32, threshold: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<T>>(this) };
    object.held.tell(Verb::Modify, &object.held.message().u32(depth).u32(threshold))
}

/// `IND2SharedReceiveQueue::Notify`.
///
/// # Safety
///
/// `this` is such a queue; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn notify_shared<T: Transport>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<T>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.begin(Verb::NotifyShared, &object.held.message(), overlapped) }
}

/// `IND2SharedReceiveQueue::Receive`.
///
/// # Safety
///
/// `this` is such a queue; `list` is null or valid for reading `count` entries.
unsafe extern "system" fn receive<T: Transport>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<T>>(this) };
    let message = object.held.message().u64(context.expose_provenance() as u64);
    // SAFETY: the caller's promise.
    match unsafe { elements(message, list, count) } {
        Ok(message) => object.held.tell(Verb::ReceiveShared, &message),
        Err(status) => status.into(),
    }
}
