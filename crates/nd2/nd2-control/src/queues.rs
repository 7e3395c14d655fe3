//! Completion queues, shared receive queues, queue pairs.

use core::ptr;

use nd2::abi::{
    HRESULT, IID_IND2CompletionQueue, IID_IND2QueuePair, IID_IND2SharedReceiveQueue, IND2AdapterVtbl,
    IND2CompletionQueueVtbl, IND2QueuePairVtbl, IND2SharedReceiveQueueVtbl, KAFFINITY, ND2_RESULT, OVERLAPPED,
};
use ndkpi::NtStatus;
use zerocopy::FromBytes;

use crate::{
    Request, Session, System,
    handles::{Interface, Kind, Object},
    objects::{done, one},
    server::FILE,
    wire::{
        Completion, CreateCompletionQueue, CreateQueuePair, CreateQueuePairWithShared, CreateSharedReceiveQueue,
        Handle, Modify, Notify, Processors, RESULT, Resize, all, answer,
    },
};

/// Results that are taken at a time.
const BATCH: usize = 8;

/// A context of the process, which means nothing here.
pub const fn context(value: u64) -> *mut core::ffi::c_void {
    #[expect(clippy::cast_possible_truncation, reason = "the driver has 64 bits")]
    ptr::without_provenance_mut(value as usize)
}

/// A group and a set of processors, as they are sent.
fn group_and_set(of: Processors) -> Result<(u16, KAFFINITY), NtStatus> {
    let group = u16::try_from(of.group.get()).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    #[expect(clippy::cast_possible_truncation, reason = "the driver has 64 bits")]
    let set = of.affinity.get() as KAFFINITY;
    Ok((group, set))
}

/// A result as it is sent.
fn as_sent(result: &ND2_RESULT) -> Completion {
    Completion {
        status: result.Status.to_bits().into(),
        bytes: result.BytesTransferred.into(),
        queue_pair_context: (result.QueuePairContext.addr() as u64).into(),
        request_context: (result.RequestContext.addr() as u64).into(),
        kind: result.RequestType.0.cast_unsigned().into(),
    }
}

/// The pointer of an argument.
fn pointer<T: Interface>(object: Option<&Object<T>>) -> *mut core::ffi::c_void {
    object.map_or(ptr::null_mut(), Object::as_ptr)
}

impl<S: System> Session<S> {
    /// `CreateCompletionQueue`.
    pub(crate) fn create_completion_queue(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let input: CreateCompletionQueue = *all(request.input())?;
        let adapter: Object<IND2AdapterVtbl> = self.object(input.adapter.get())?;
        let (depth, (group, set)) = (input.depth.get(), group_and_set(input.processors)?);
        let (table, iid) = (adapter.table(), IID_IND2CompletionQueue);
        // SAFETY: the adapter is held, the identifier and the place are valid, and every adapter has that file.
        let make = |out| unsafe {
            (table.CreateCompletionQueue)(adapter.as_ptr(), &raw const iid, FILE, depth, group, set, out)
        };
        self.make(request, Kind::CompletionQueue, make)
    }

    /// `Affinity`.
    pub(crate) fn affinity(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let (kind, object) = self.any(one(request)?)?;
        let (mut group, mut set) = (0, 0);
        match kind {
            Kind::CompletionQueue => {
                let queue: Object<IND2CompletionQueueVtbl> = self.object(one(request)?)?;
                // SAFETY: the queue is held, and the places are valid.
                done(unsafe { (queue.table().GetNotifyAffinity)(queue.as_ptr(), &raw mut group, &raw mut set) })?;
            }
            Kind::SharedReceiveQueue => {
                let queue: Object<IND2SharedReceiveQueueVtbl> = self.object(one(request)?)?;
                // SAFETY: the queue is held, and the places are valid.
                done(unsafe { (queue.table().GetNotifyAffinity)(queue.as_ptr(), &raw mut group, &raw mut set) })?;
            }
            _ => return Err(NtStatus::INVALID_HANDLE),
        }
        drop(object);
        let processors = Processors { group: u32::from(group).into(), affinity: (set as u64).into() };
        answer(request.output(), &processors)
    }

    /// `Resize`.
    pub(crate) fn resize(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let input: &Resize = all(request.input())?;
        let queue: Object<IND2CompletionQueueVtbl> = self.object(input.queue.get())?;
        // SAFETY: the queue is held.
        done(unsafe { (queue.table().Resize)(queue.as_ptr(), input.depth.get()) })?;
        Ok(0)
    }

    /// `Notify`.
    pub(crate) fn notify(&self, input: &[u8], overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let input: &Notify = all(input)?;
        let queue: Object<IND2CompletionQueueVtbl> = self.object(input.queue.get())?;
        let kind = input.kind.get();
        // SAFETY: the queue is held, and the structure is a call that lives until it ends.
        Ok(unsafe { (queue.table().Notify)(queue.as_ptr(), kind, overlapped) })
    }

    /// `Results`.
    pub(crate) fn results(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let queue: Object<IND2CompletionQueueVtbl> = self.object(one(request)?)?;
        let output = request.output();
        let room = output.len() / RESULT;
        let (places, _) =
            <[Completion]>::mut_from_prefix_with_elems(output, room).map_err(|_| NtStatus::BUFFER_TOO_SMALL)?;
        let mut written = 0;
        for places in places.chunks_mut(BATCH) {
            let mut results = [ND2_RESULT::default(); BATCH];
            #[expect(clippy::cast_possible_truncation, reason = "a small constant at most")]
            let asked = places.len() as u32;
            // SAFETY: the queue is held, and the array has as many places.
            let taken = unsafe { (queue.table().GetResults)(queue.as_ptr(), results.as_mut_ptr(), asked) };
            let taken = (taken as usize).min(places.len());
            for (place, result) in places.iter_mut().zip(&results[..taken]) {
                *place = as_sent(result);
            }
            written += taken;
            if taken < places.len() {
                break;
            }
        }
        Ok(written * RESULT)
    }

    /// `CreateSharedReceiveQueue`.
    pub(crate) fn create_shared_receive_queue(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let input: CreateSharedReceiveQueue = *all(request.input())?;
        let adapter: Object<IND2AdapterVtbl> = self.object(input.adapter.get())?;
        let (depth, elements, threshold) = (input.depth.get(), input.elements.get(), input.threshold.get());
        let (group, set) = group_and_set(input.processors)?;
        let (table, iid) = (adapter.table(), IID_IND2SharedReceiveQueue);
        // SAFETY: the adapter is held, the identifier and the place are valid, and every adapter has that file.
        let make = |out| unsafe {
            (table.CreateSharedReceiveQueue)(
                adapter.as_ptr(),
                &raw const iid,
                FILE,
                depth,
                elements,
                threshold,
                group,
                set,
                out,
            )
        };
        self.make(request, Kind::SharedReceiveQueue, make)
    }

    /// `Modify`.
    pub(crate) fn modify(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let input: &Modify = all(request.input())?;
        let queue: Object<IND2SharedReceiveQueueVtbl> = self.object(input.queue.get())?;
        let (depth, threshold) = (input.depth.get(), input.threshold.get());
        // SAFETY: the queue is held.
        done(unsafe { (queue.table().Modify)(queue.as_ptr(), depth, threshold) })?;
        Ok(0)
    }

    /// `NotifyShared`.
    pub(crate) fn notify_shared(&self, input: &[u8], overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let queue: Object<IND2SharedReceiveQueueVtbl> = self.object(all::<Handle>(input)?.object.get())?;
        // SAFETY: the queue is held, and the structure is a call that lives until it ends.
        Ok(unsafe { (queue.table().Notify)(queue.as_ptr(), overlapped) })
    }

    /// `CreateQueuePair`.
    pub(crate) fn create_queue_pair(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let input: CreateQueuePair = *all(request.input())?;
        let adapter: Object<IND2AdapterVtbl> = self.object(input.adapter.get())?;
        let receives = self.argument::<IND2CompletionQueueVtbl>(input.receive_queue.get())?;
        let others = self.argument::<IND2CompletionQueueVtbl>(input.initiator_queue.get())?;
        let (table, iid) = (adapter.table(), IID_IND2QueuePair);
        let (receives, others) = (receives.as_ref(), others.as_ref());
        // SAFETY: the objects are held or null, and the identifier and the place are valid.
        let make = |out| unsafe {
            (table.CreateQueuePair)(
                adapter.as_ptr(),
                &raw const iid,
                pointer(receives),
                pointer(others),
                context(input.context.get()),
                input.receive_depth.get(),
                input.initiator_depth.get(),
                input.receive_elements.get(),
                input.initiator_elements.get(),
                input.inline_bytes.get(),
                out,
            )
        };
        self.make(request, Kind::QueuePair, make)
    }

    /// `CreateQueuePairWithShared`.
    pub(crate) fn create_queue_pair_with_shared(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let input: CreateQueuePairWithShared = *all(request.input())?;
        let adapter: Object<IND2AdapterVtbl> = self.object(input.adapter.get())?;
        let receives = self.argument::<IND2CompletionQueueVtbl>(input.receive_queue.get())?;
        let others = self.argument::<IND2CompletionQueueVtbl>(input.initiator_queue.get())?;
        let shared = self.argument::<IND2SharedReceiveQueueVtbl>(input.shared.get())?;
        let (table, iid) = (adapter.table(), IID_IND2QueuePair);
        let (receives, others, shared) = (receives.as_ref(), others.as_ref(), shared.as_ref());
        // SAFETY: the objects are held or null, and the identifier and the place are valid.
        let make = |out| unsafe {
            (table.CreateQueuePairWithSrq)(
                adapter.as_ptr(),
                &raw const iid,
                pointer(receives),
                pointer(others),
                pointer(shared),
                context(input.context.get()),
                input.initiator_depth.get(),
                input.initiator_elements.get(),
                input.inline_bytes.get(),
                out,
            )
        };
        self.make(request, Kind::QueuePair, make)
    }

    /// `Flush`.
    pub(crate) fn flush(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let qp: Object<IND2QueuePairVtbl> = self.object(one(request)?)?;
        // SAFETY: the queue pair is held.
        done(unsafe { (qp.table().Flush)(qp.as_ptr()) })?;
        Ok(0)
    }
}
