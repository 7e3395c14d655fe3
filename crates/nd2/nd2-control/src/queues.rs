//! Completion queues, shared receive queues, queue pairs.

use core::ptr;

use nd2::abi::{
    HRESULT, IID_IND2CompletionQueue, IID_IND2QueuePair, IID_IND2SharedReceiveQueue, IND2AdapterVtbl,
    IND2CompletionQueueVtbl, IND2QueuePairVtbl, IND2SharedReceiveQueueVtbl, KAFFINITY, ND2_RESULT, OVERLAPPED,
};
use ndkpi::NtStatus;

use crate::{
    Request, Session, System,
    handles::{Interface, Kind, Object},
    objects::{done, one},
    server::FILE,
    wire::{RESULT, Reader, Writer},
};

/// Results that are taken at a time.
const BATCH: usize = 8;

/// A context of the process, which means nothing here.
pub const fn context(value: u64) -> *mut core::ffi::c_void {
    #[expect(clippy::cast_possible_truncation, reason = "the driver has 64 bits")]
    ptr::without_provenance_mut(value as usize)
}

/// A group and a set of processors, as they are sent.
fn group_and_set(input: &mut Reader<'_>) -> Result<(u16, KAFFINITY), NtStatus> {
    let group = u16::try_from(input.u32()?).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    #[expect(clippy::cast_possible_truncation, reason = "the driver has 64 bits")]
    let set = input.u64()? as KAFFINITY;
    Ok((group, set))
}

/// The pointer of an argument.
fn pointer<T: Interface>(object: Option<&Object<T>>) -> *mut core::ffi::c_void {
    object.map_or(ptr::null_mut(), Object::as_ptr)
}

impl<S: System> Session<S> {
    /// `CreateCompletionQueue`.
    pub(crate) fn create_completion_queue(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let mut input = Reader::new(request.input());
        let adapter: Object<IND2AdapterVtbl> = self.object(input.u64()?)?;
        let (depth, (group, set)) = (input.u32()?, group_and_set(&mut input)?);
        input.end()?;
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
        let mut writer = Writer::new(request.output());
        writer.u32(group.into())?.u64(set as u64)?;
        Ok(writer.written())
    }

    /// `Resize`.
    pub(crate) fn resize(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let mut input = Reader::new(request.input());
        let queue: Object<IND2CompletionQueueVtbl> = self.object(input.u64()?)?;
        let depth = input.u32()?;
        input.end()?;
        // SAFETY: the queue is held.
        done(unsafe { (queue.table().Resize)(queue.as_ptr(), depth) })?;
        Ok(0)
    }

    /// `Notify`.
    pub(crate) fn notify(&self, mut input: Reader<'_>, overlapped: *mut OVERLAPPED) -> Result<HRESULT, NtStatus> {
        let queue: Object<IND2CompletionQueueVtbl> = self.object(input.u64()?)?;
        let kind = input.u32()?;
        input.end()?;
        // SAFETY: the queue is held, and the structure is a call that lives until it ends.
        Ok(unsafe { (queue.table().Notify)(queue.as_ptr(), kind, overlapped) })
    }

    /// `Results`.
    pub(crate) fn results(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let queue: Object<IND2CompletionQueueVtbl> = self.object(one(request)?)?;
        let output = request.output();
        let mut room = output.len() / RESULT;
        let mut writer = Writer::new(output);
        while room > 0 {
            let mut results = [ND2_RESULT::default(); BATCH];
            let most = room.min(BATCH);
            #[expect(clippy::cast_possible_truncation, reason = "a small constant at most")]
            let asked = most as u32;
            // SAFETY: the queue is held, and the array has as many places.
            let taken = unsafe { (queue.table().GetResults)(queue.as_ptr(), results.as_mut_ptr(), asked) };
            let taken = (taken as usize).min(most);
            for result in &results[..taken] {
                writer.u32(result.Status.to_bits())?.u32(result.BytesTransferred)?;
                writer.u64(result.QueuePairContext.addr() as u64)?.u64(result.RequestContext.addr() as u64)?;
                writer.u32(result.RequestType.0.cast_unsigned())?;
            }
            if taken < most {
                break;
            }
            room -= taken;
        }
        Ok(writer.written())
    }

    /// `CreateSharedReceiveQueue`.
    pub(crate) fn create_shared_receive_queue(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let mut input = Reader::new(request.input());
        let adapter: Object<IND2AdapterVtbl> = self.object(input.u64()?)?;
        let (depth, elements, threshold) = (input.u32()?, input.u32()?, input.u32()?);
        let (group, set) = group_and_set(&mut input)?;
        input.end()?;
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
        let mut input = Reader::new(request.input());
        let queue: Object<IND2SharedReceiveQueueVtbl> = self.object(input.u64()?)?;
        let (depth, threshold) = (input.u32()?, input.u32()?);
        input.end()?;
        // SAFETY: the queue is held.
        done(unsafe { (queue.table().Modify)(queue.as_ptr(), depth, threshold) })?;
        Ok(0)
    }

    /// `NotifyShared`.
    pub(crate) fn notify_shared(
        &self,
        mut input: Reader<'_>,
        overlapped: *mut OVERLAPPED,
    ) -> Result<HRESULT, NtStatus> {
        let queue: Object<IND2SharedReceiveQueueVtbl> = self.object(input.u64()?)?;
        input.end()?;
        // SAFETY: the queue is held, and the structure is a call that lives until it ends.
        Ok(unsafe { (queue.table().Notify)(queue.as_ptr(), overlapped) })
    }

    /// `CreateQueuePair`.
    pub(crate) fn create_queue_pair(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let mut input = Reader::new(request.input());
        let adapter: Object<IND2AdapterVtbl> = self.object(input.u64()?)?;
        let receives = self.argument::<IND2CompletionQueueVtbl>(input.u64()?)?;
        let others = self.argument::<IND2CompletionQueueVtbl>(input.u64()?)?;
        let context = context(input.u64()?);
        let sizes = [input.u32()?, input.u32()?, input.u32()?, input.u32()?, input.u32()?];
        input.end()?;
        let [receive_depth, initiator_depth, receive_sge, initiator_sge, inline] = sizes;
        let (table, iid) = (adapter.table(), IID_IND2QueuePair);
        let (receives, others) = (receives.as_ref(), others.as_ref());
        // SAFETY: the objects are held or null, and the identifier and the place are valid.
        let make = |out| unsafe {
            (table.CreateQueuePair)(
                adapter.as_ptr(),
                &raw const iid,
                pointer(receives),
                pointer(others),
                context,
                receive_depth,
                initiator_depth,
                receive_sge,
                initiator_sge,
                inline,
                out,
            )
        };
        self.make(request, Kind::QueuePair, make)
    }

    /// `CreateQueuePairWithShared`.
    pub(crate) fn create_queue_pair_with_shared(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let mut input = Reader::new(request.input());
        let adapter: Object<IND2AdapterVtbl> = self.object(input.u64()?)?;
        let receives = self.argument::<IND2CompletionQueueVtbl>(input.u64()?)?;
        let others = self.argument::<IND2CompletionQueueVtbl>(input.u64()?)?;
        let shared = self.argument::<IND2SharedReceiveQueueVtbl>(input.u64()?)?;
        let context = context(input.u64()?);
        let (depth, elements, inline) = (input.u32()?, input.u32()?, input.u32()?);
        input.end()?;
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
                context,
                depth,
                elements,
                inline,
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
