//! Completion queues of both versions, and shared receive queues.

use std::{ffi::c_void, ptr, ptr::NonNull};

use engine::os::Affinity;
use fallible::Arc;
use nd2::{
    abi::{HRESULT, ND2_REQUEST_TYPE, ND2_RESULT, ND2_SGE, OVERLAPPED},
    back_end,
    com::find_queue,
};
use nd2_control::wire::{Completion, Modify, Notify, Processors, RESULT, Resize, Verb};
use ndkpi::NtStatus;
use zerocopy::{FromZeros, IntoBytes, little_endian::U64};

use super::{
    Driver, Transport,
    adapter::Adapter,
    held::{DriverHandle, OverlappedObject, requests},
    qp::elements,
};

/// Results that are taken at a time.
const BATCH: usize = 32;

/// A completion queue, of either version.
pub struct CompletionQueue<T: Transport>(pub OverlappedObject<T>);

/// A shared receive queue.
pub struct SharedReceiveQueue<T: Transport>(pub OverlappedObject<T>);

requests!(CompletionQueue: 0, SharedReceiveQueue: 0);

/// The driver's handle of the queue behind a client's pointer, of either version. For tests. `None` if it is no queue.
///
/// # Safety
///
/// `unknown` is null or a COM object.
pub unsafe fn queue_handle<T: Transport>(unknown: *mut c_void) -> Option<u64> {
    // SAFETY: `unknown` is null or a COM object (`# Safety`).
    unsafe { find_queue::<Driver<T>>(unknown) }.map(|queue| queue.0.held.handle)
}

/// A result as it was sent.
fn result_of(sent: &Completion) -> ND2_RESULT {
    let place = |value: U64| ptr::with_exposed_provenance_mut(usize::try_from(value.get()).unwrap_or(0));
    ND2_RESULT {
        Status: HRESULT::from_bits(sent.status.get()),
        BytesTransferred: sent.bytes.get(),
        QueuePairContext: place(sent.queue_pair_context),
        RequestContext: place(sent.request_context),
        RequestType: ND2_REQUEST_TYPE(sent.kind.get().cast_signed()),
    }
}

/// Where a queue's requests for notification end.
fn affinity<T: Transport>(held: &DriverHandle<T>) -> Result<Affinity, NtStatus> {
    let sent: Processors = held.ask(Verb::Affinity, held.handle().as_bytes())?;
    Ok(Affinity { group: u16::try_from(sent.group.get()).unwrap_or(0), mask: sent.affinity.get() })
}

impl<T: Transport> back_end::CompletionQueue<Driver<T>> for CompletionQueue<T> {
    fn affinity(&self) -> Result<Affinity, NtStatus> {
        affinity(&self.0.held)
    }

    fn resize(&self, depth: u32) -> Result<(), NtStatus> {
        let input = Resize { queue: self.0.held.handle.into(), depth: depth.into() };
        self.0.held.tell(Verb::Resize, input.as_bytes())
    }

    unsafe fn notify(&self, kind: u32, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        let input = Notify { queue: self.0.held.handle.into(), kind: kind.into() };
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.0.begin(Verb::Notify, input.as_bytes(), overlapped) }
    }

    fn take(&self, most: usize, mut each: impl FnMut(ND2_RESULT)) -> usize {
        let held = &self.0.held;
        let mut taken = 0;
        while taken < most {
            let asked = (most - taken).min(BATCH);
            let mut answer = [Completion::new_zeroed(); BATCH];
            let room = answer[..asked].as_mut_bytes();
            let Ok(length) = held.transport.call(Verb::Results.code(), held.handle().as_bytes(), room) else { break };
            let found = &answer[..(length / RESULT).min(asked)];
            for sent in found {
                each(result_of(sent));
            }
            taken += found.len();
            if found.len() < asked {
                break;
            }
        }
        taken
    }
}

impl<T: Transport> back_end::SharedReceiveQueue<Driver<T>> for SharedReceiveQueue<T> {
    fn affinity(&self) -> Result<Affinity, NtStatus> {
        affinity(&self.0.held)
    }

    fn modify(&self, depth: u32, threshold: u32) -> Result<(), NtStatus> {
        let input = Modify { queue: self.0.held.handle.into(), depth: depth.into(), threshold: threshold.into() };
        self.0.held.tell(Verb::Modify, input.as_bytes())
    }

    unsafe fn notify(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.0.begin_alone(Verb::NotifyShared, overlapped) }
    }

    fn receive(&self, context: *mut c_void, list: &[ND2_SGE]) -> Result<(), NtStatus> {
        let message = elements(&self.0.held.post(context), list)?;
        self.0.held.tell(Verb::ReceiveShared, message.as_bytes())
    }
}
