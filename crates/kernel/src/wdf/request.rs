//! Requests of a control device.

use core::{mem::ManuallyDrop, ptr, slice};

use fallible::Arc;
use ndkpi::NtStatus;
use wdk_sys::{WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding};

use super::ContextType;
use crate::check;

/// A request with buffers that the system copies (`METHOD_BUFFERED`). It is completed once, at the latest when dropped.
///
/// Input and output are the same memory, so the borrow of the one ends before that of the other begins.
///
/// # Invariants
///
/// The driver owns `request` and has not completed it.
#[must_use = "dropped, the request fails"]
pub struct Request {
    request: WDFREQUEST,
}

impl Request {
    /// Takes over a request to a control device, with what the device carries. A request to a device that carries nothing fails
    /// with `STATUS_DEVICE_NOT_READY`.
    ///
    /// # Safety
    ///
    /// The framework handed `request` of `queue` to the driver, whose control codes are all `METHOD_BUFFERED`, and nobody else
    /// completes it. The queue's device was created with a context of `kind`.
    pub unsafe fn take<T: Send + Sync + 'static>(
        kind: &'static ContextType<T>,
        queue: WDFQUEUE,
        request: WDFREQUEST,
    ) -> Option<(Arc<T>, Self)> {
        let request = Self { request };
        // SAFETY: the queue is live as long as one of its requests (the caller's promise).
        let device = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, queue) };
        // SAFETY: the device is live as its queue is, and has a context of this kind (the caller's promise).
        let Some(context) = (unsafe { kind.get(device.cast()) }) else {
            request.finish(Err(NtStatus::DEVICE_NOT_READY));
            return None;
        };
        Some((context, request))
    }

    /// The bytes sent along, at least `minimum`.
    ///
    /// # Errors
    ///
    /// `STATUS_BUFFER_TOO_SMALL` and what else the framework says.
    pub fn input(&self, minimum: usize) -> Result<&[u8], NtStatus> {
        if minimum == 0 {
            // The framework has no buffer for nothing and calls that an error.
            return Ok(&[]);
        }
        let (mut buffer, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the request is ours (invariant), and the places live until the call returns.
        let status = unsafe {
            call_unsafe_wdf_function_binding!(
                WdfRequestRetrieveInputBuffer,
                self.request,
                minimum,
                &raw mut buffer,
                &raw mut length
            )
        };
        check(status)?;
        // SAFETY: the framework says that the buffer has that many bytes; it is the system's copy, which nobody changes and
        // which lives until the request is completed, for which `self` is needed.
        Ok(unsafe { slice::from_raw_parts(buffer.cast::<u8>(), length) })
    }

    /// Room for the answer, at least `minimum` bytes.
    ///
    /// # Errors
    ///
    /// `STATUS_BUFFER_TOO_SMALL` and what else the framework says.
    pub fn output(&mut self, minimum: usize) -> Result<&mut [u8], NtStatus> {
        let (mut buffer, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the request is ours (invariant), and the places live until the call returns.
        let status = unsafe {
            call_unsafe_wdf_function_binding!(
                WdfRequestRetrieveOutputBuffer,
                self.request,
                minimum.max(1),
                &raw mut buffer,
                &raw mut length
            )
        };
        check(status)?;
        // SAFETY: as for the input; `&mut self` ends every borrow of the input, which is the same memory.
        Ok(unsafe { slice::from_raw_parts_mut(buffer.cast::<u8>(), length) })
    }

    /// Answers with `bytes`, all of them or nothing.
    pub fn answer(self, bytes: &[u8]) {
        self.answer_part(bytes, true);
    }

    /// Answers with as much of `bytes` as there is room for; `STATUS_BUFFER_OVERFLOW`, a warning, if that is not all.
    pub fn answer_cut(mut self, bytes: &[u8]) {
        match self.output(1).map(|room| room.len().min(bytes.len())) {
            Ok(count) => self.answer_part(&bytes[..count], count == bytes.len()),
            Err(status) => self.complete(status, 0),
        }
    }

    /// Answers with `bytes`, all of them or nothing; `STATUS_BUFFER_OVERFLOW`, a warning, if they are not `all`.
    pub fn answer_part(mut self, bytes: &[u8], all: bool) {
        match self.output(bytes.len()).map(|room| room[..bytes.len()].copy_from_slice(bytes)) {
            Ok(()) if all => self.complete(NtStatus::SUCCESS, bytes.len()),
            Ok(()) => self.complete(NtStatus::BUFFER_OVERFLOW, bytes.len()),
            Err(status) => self.complete(status, 0),
        }
    }

    /// Completes the request without an answer.
    pub fn finish(self, outcome: Result<(), NtStatus>) {
        self.complete(outcome.err().unwrap_or(NtStatus::SUCCESS), 0);
    }

    fn complete(self, status: NtStatus, information: usize) {
        let this = ManuallyDrop::new(self);
        complete(this.request, status, information);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        complete(self.request, NtStatus::INTERNAL_ERROR, 0);
    }
}

fn complete(request: WDFREQUEST, status: NtStatus, information: usize) {
    // SAFETY: the only caller is a `Request` that gives the request up here (invariant).
    unsafe {
        call_unsafe_wdf_function_binding!(
            WdfRequestCompleteWithInformation,
            request,
            status.0,
            // `ULONG_PTR` is an integer of the width of a pointer.
            information as wdk_sys::ULONG_PTR
        );
    }
}
