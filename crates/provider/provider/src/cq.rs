//! `NDK_CQ` (`NDKPI 5.4`, `NDKPI 7.1`).

use core::{ffi::c_void, ptr, sync::atomic::Ordering};

use engine::{
    cq::{
        Cq, CqClient, CqConsumer, CqParameters, Cqe, Operation,
        notify::{ArmType, CqFailure},
    },
    os::Affinity,
};
use fallible::Arc;
use ndkpi::{
    GROUP_AFFINITY, NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, NDK_CQ,
    NDK_CQ_DISPATCH, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_REQUEST_COMPLETION, NDK_OPERATION_TYPE, NDK_RESULT,
    NDK_RESULT_EX, NDK_VERSION, NtStatus,
};

use crate::{
    NdkOs,
    adapter::Adapter,
    borrow::{Exclusive, OVERLAP, Slot},
    device::Device,
    dispatch,
    note::Note,
    object::{Body, Borrowed, EngineObject, ObjectRef, close, kind, query_extension},
    reason::Reason,
};

/// A completion queue.
pub struct CompletionQueue<O: NdkOs> {
    consumer: Exclusive<CqConsumer<O>>,
    cq: Slot<Arc<Cq<O>>>,
    adapter: ObjectRef<Adapter<O>>,
}

/// The client of the engine's queue. It keeps the object alive while the queue may call back.
struct Client<O: NdkOs> {
    /// [`nobody`] for a queue that is only polled: arming it does nothing that its consumer could see.
    callback: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    context: *mut c_void,
    object: ObjectRef<CompletionQueue<O>>,
}

// SAFETY: the context is handed back to the consumer and not used here; callbacks may come on any thread (`NDKPI 6`).
unsafe impl<O: NdkOs> Send for Client<O> {}
// SAFETY: as for `Send`.
unsafe impl<O: NdkOs> Sync for Client<O> {}

/// The callback of a consumer that gave none.
const unsafe extern "system" fn nobody(_: *mut c_void, _: NtStatus) {}

impl<O: NdkOs> CqClient for Client<O> {
    fn notify(&self, status: NtStatus) {
        // SAFETY: the consumer's callback, with its context (`NDKPI 6`). The engine calls with no lock held and one at a time.
        unsafe { (self.callback)(self.context, status) };
    }

    fn failed(&self, failure: CqFailure) {
        let device = self.object.device();
        device.cq_errors.fetch_add(1, Ordering::Relaxed);
        device.os().note(Note::QueueFailed(failure));
    }
}

impl<O: NdkOs> CompletionQueue<O> {
    /// Makes a completion queue on `adapter`.
    pub fn create(
        adapter: &ObjectRef<Adapter<O>>,
        depth: u32,
        callback: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
        context: *mut c_void,
        affinity: Option<GROUP_AFFINITY>,
    ) -> Result<ObjectRef<Self>, NtStatus> {
        let device = adapter.device();
        device.cqs.take()?;
        // From here on, dropping the object gives the place back.
        let body = Self { consumer: Exclusive::empty(), cq: Slot::empty(), adapter: adapter.clone() };
        let object = ObjectRef::try_new(adapter.version(), body)?;
        // Affinity is advice (`NDKPI 5.2`): a processor that does not exist is no reason to fail.
        let processor = affinity
            .and_then(|wanted| device.os().processor_for(Affinity { group: wanted.Group, mask: wanted.Mask as u64 }))
            .unwrap_or_else(|| device.os().current_processor());
        let parameters = CqParameters { depth, max_depth: device.config().info.MaxCqDepth, processor };
        let client = Client { callback: callback.unwrap_or(nobody), context, object: object.clone() };
        let (cq, consumer) = Cq::try_new(device.os(), parameters, client)?;
        // SAFETY: the object is being made: nobody else knows it.
        unsafe {
            object.cq.replace(Some(cq));
            object.consumer.replace(Some(consumer));
        }
        Ok(object)
    }

    const TABLE: &'static NDK_CQ_DISPATCH = &NDK_CQ_DISPATCH {
        NdkCloseCq: Some(close::<Self>),
        NdkQueryExtension: Some(query_extension),
        NdkResizeCq: Some(resize_cq::<O>),
        NdkArmCq: Some(arm_cq::<O>),
        NdkGetCqResults: Some(get_cq_results::<O>),
        NdkControlCqInterruptModeration: Some(control_cq_interrupt_moderation::<O>),
        NdkGetCqResultsEx: Some(get_cq_results_ex::<O>),
    };
}

impl<O: NdkOs> Drop for CompletionQueue<O> {
    fn drop(&mut self) {
        self.adapter.device().cqs.give_back();
    }
}

impl<O: NdkOs> Body for CompletionQueue<O> {
    kind!(Cq, b"NdkC");

    type Public = NDK_CQ;

    fn public(version: NDK_VERSION) -> NDK_CQ {
        NDK_CQ::new(version, Self::TABLE)
    }

    fn device(&self) -> &Arc<Device<O>> {
        self.adapter.device()
    }

    unsafe fn begin_close(&self) {
        // SAFETY: the object is being closed: no other call runs (`# Safety` of the trait).
        let (cq, consumer) = unsafe { (self.cq.replace(None), self.consumer.replace(None)) };
        if let Some(cq) = cq {
            cq.close();
        }
        drop(consumer);
    }
}

impl<O: NdkOs> EngineObject for CompletionQueue<O> {
    type Engine = Cq<O>;

    fn slot(&self) -> &Slot<Arc<Cq<O>>> {
        &self.cq
    }
}

/// `NDK_FN_RESIZE_CQ` (`NDKPI 5.4`, `NDKPI 7.1.11`).
///
/// # Safety
///
/// `cq` is open.
unsafe extern "system" fn resize_cq<O: NdkOs>(
    cq: *mut NDK_CQ,
    depth: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let resize = |object: &Borrowed<CompletionQueue<O>>| {
        if !object.device().has(NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED) {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        Cq::resize(object.engine()?, depth)
    };
    // SAFETY: the caller passes an open queue.
    unsafe { dispatch::request(cq, completion, context, resize) }
}

/// `NDK_FN_ARM_CQ` (`NDKPI 5.4`, `NDKPI 7.1.3` to `7.1.5`). An unknown type is ignored: the function returns nothing, so it cannot
/// refuse.
///
/// # Safety
///
/// `cq` is open; no other call of this function or of the two that get results runs on it (`NDKPI 7.1.2`).
unsafe extern "system" fn arm_cq<O: NdkOs>(cq: *mut NDK_CQ, kind: u32) {
    let arm = |object: &Borrowed<CompletionQueue<O>>| {
        let kind = ArmType::from_value(kind).ok_or(NtStatus::INVALID_PARAMETER)?;
        // The callback may come, and poll, before this function returns: by then it is done with the consumer's end.
        // SAFETY: no other call on the consumer's end runs (`NDKPI 7.1.2`).
        let consumer = unsafe { object.consumer.borrow() }.ok_or(OVERLAP)?;
        let taken = consumer.taken();
        drop(consumer);
        object.engine().map(|cq| Cq::arm(cq, kind, taken))
    };
    // The function has no result to refuse anything with.
    // SAFETY: the caller passes an open queue.
    let _ = unsafe { dispatch::with(cq, arm) };
}

//= NDKPI 7.1.9
/// `NDK_FN_GET_CQ_RESULTS` (`NDKPI 5.4`, `NDKPI 7.1.8`, `NDKPI 7.1.9`).
///
/// # Safety
///
/// As [`arm_cq`], and `results` is valid for writing `count` entries.
unsafe extern "system" fn get_cq_results<O: NdkOs>(cq: *mut NDK_CQ, results: *mut NDK_RESULT, count: u32) -> u32 {
    // SAFETY: no other call of the three runs on the queue, and `results` is valid for writing `count` entries (`# Safety`).
    unsafe { poll::<O, NDK_RESULT>(cq, results, count, plain_result) }
}

//= NDKPI 7.1.9
/// `NDK_FN_GET_CQ_RESULTS_EX` (`NDKPI 5.4`, `NDKPI 7.1.9`).
///
/// # Safety
///
/// As [`get_cq_results`].
unsafe extern "system" fn get_cq_results_ex<O: NdkOs>(cq: *mut NDK_CQ, results: *mut NDK_RESULT_EX, count: u32) -> u32 {
    // SAFETY: no other call of the three runs on the queue, and `results` is valid for writing `count` entries (`# Safety`).
    unsafe { poll::<O, NDK_RESULT_EX>(cq, results, count, extended_result) }
}

/// Takes up to `count` completions and writes them as `result` makes them.
///
/// # Safety
///
/// As [`get_cq_results`].
#[inline]
unsafe fn poll<O: NdkOs, R>(cq: *mut NDK_CQ, results: *mut R, count: u32, result: impl Fn(&Cqe) -> R) -> u32 {
    if results.is_null() {
        return 0;
    }
    let mut place = results;
    let write = |completion: &Cqe| {
        // SAFETY: at most `count` entries are taken, and the array has that many places.
        unsafe { place.write(result(completion)) };
        // SAFETY: the entry is in the array, so the place behind it is in it or right at its end.
        place = unsafe { place.add(1) };
    };
    let poll = |object: &Borrowed<CompletionQueue<O>>| {
        // SAFETY: no other call on the consumer's end runs (`NDKPI 7.1.2`).
        let mut consumer = unsafe { object.consumer.borrow() }.ok_or(OVERLAP)?;
        Ok(consumer.poll(count as usize, write))
    };
    // SAFETY: the caller passes an open queue.
    let taken = unsafe { dispatch::with(cq, poll) }.unwrap_or(0);
    // At most `count`.
    #[expect(clippy::cast_possible_truncation, reason = "at most `count`, a u32")]
    let taken = taken as u32;
    taken
}

#[inline]
const fn plain_result(completion: &Cqe) -> NDK_RESULT {
    NDK_RESULT {
        Status: completion.outcome.status(),
        BytesTransferred: completion.received.bytes(),
        QPContext: ptr::with_exposed_provenance_mut(completion.qp_context),
        RequestContext: ptr::with_exposed_provenance_mut(completion.request_context),
    }
}

/// The entry of `NdkGetCqResultsEx` for a completion (`NDKPI 3.6`).
#[inline]
#[must_use]
pub const fn extended_result(completion: &Cqe) -> NDK_RESULT_EX {
    NDK_RESULT_EX {
        Status: completion.outcome.status(),
        BytesTransferred: completion.received.bytes(),
        QPContext: ptr::with_exposed_provenance_mut(completion.qp_context),
        RequestContext: ptr::with_exposed_provenance_mut(completion.request_context),
        Type: operation_type(completion.outcome.operation()),
        ProviderErrorCode: if completion.outcome.status().is_success() { 0 } else { failure_code(completion) },
        TypeSpecificCompletionOutput: completion.received.invalidated_token() as usize,
    }
}

/// The number of the reason for which a request has failed.
#[cold]
const fn failure_code(completion: &Cqe) -> u32 {
    let kind = operation_type(completion.outcome.operation());
    if let Some(cause) = completion.outcome.cause() {
        return Reason::number_of_cause(cause) as u32;
    }
    match Reason::of_request(kind, completion.outcome.status()) {
        Some(reason) => reason.number() as u32,
        None => 0,
    }
}

const fn operation_type(operation: Operation) -> NDK_OPERATION_TYPE {
    match operation {
        Operation::Receive => NDK_OPERATION_TYPE::RECEIVE,
        Operation::ReceiveAndInvalidate => NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE,
        Operation::Send => NDK_OPERATION_TYPE::SEND,
        Operation::FastRegister => NDK_OPERATION_TYPE::FAST_REGISTER,
        Operation::Bind => NDK_OPERATION_TYPE::BIND,
        Operation::Invalidate => NDK_OPERATION_TYPE::INVALIDATE,
        Operation::Read => NDK_OPERATION_TYPE::READ,
        Operation::Write => NDK_OPERATION_TYPE::WRITE,
    }
}

/// `NDK_FN_CONTROL_CQ_INTERRUPT_MODERATION` (`NDKPI 5.4`, `NDKPI 7.1.6`).
///
/// # Safety
///
/// `cq` is open.
unsafe extern "system" fn control_cq_interrupt_moderation<O: NdkOs>(
    cq: *mut NDK_CQ,
    interval: u32,
    count: u32,
) -> NtStatus {
    let control = |object: &Borrowed<CompletionQueue<O>>| {
        if !object.device().has(NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED) {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        Cq::moderate(object.engine()?, interval, count)
    };
    // SAFETY: the caller passes an open queue.
    unsafe { dispatch::with(cq, control) }.into()
}
