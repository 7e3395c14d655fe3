//! Requests of a control device.

use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull},
    slice,
};

use fallible::Arc;
use ndkpi::NtStatus;
use wdk_sys::{PFN_WDF_REQUEST_CANCEL, WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding};

use super::ContextType;
use crate::{Buffered, check};

/// A request with buffers that the system copies ([`Buffered`]).
///
/// # Invariants
///
/// The driver owns `request` and has not completed it.
#[must_use = "dropped, the request fails"]
pub struct Request {
    request: WDFREQUEST,
}

// SAFETY: the framework's handle may be used on any thread, and the buffers are the same on all of them.
unsafe impl Send for Request {}

impl Request {
    /// Takes over a request as it is.
    ///
    /// # Safety
    ///
    /// The framework handed `request` to the driver, its control code is `METHOD_BUFFERED` unless only [`Request::locked`] is
    /// asked for its output, and nobody else completes it.
    pub const unsafe fn new(request: WDFREQUEST) -> Self {
        Self { request }
    }

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
        // SAFETY: the queue is live as long as one of its requests (`# Safety`).
        let device = unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueGetDevice, queue) };
        // SAFETY: the device is live as its queue is, and has a context of this kind (`# Safety`).
        let Some(context) = (unsafe { kind.get(device.cast()) }) else {
            request.finish(Err(NtStatus::DEVICE_NOT_READY));
            return None;
        };
        Some((context, request))
    }

    /// All bytes that were sent along; none if there are none.
    #[must_use]
    pub fn whole_input(&self) -> &[u8] {
        self.input(1).unwrap_or_default()
    }

    /// All the room for the answer; none if there is none.
    #[must_use]
    pub fn whole_output(&mut self) -> &mut [u8] {
        self.output(1).unwrap_or_default()
    }

    /// The process's memory behind the second buffer of a direct method, mapped as long as the request is not completed. The
    /// process can change it at any time.
    ///
    /// # Errors
    ///
    /// `STATUS_BUFFER_TOO_SMALL` if there is none, and what else the framework says.
    pub fn locked(&self) -> Result<(NonNull<u8>, usize), NtStatus> {
        let (mut buffer, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the request is ours (invariant), and the places live until the call returns.
        let status = unsafe {
            call_unsafe_wdf_function_binding!(
                WdfRequestRetrieveOutputBuffer,
                self.request,
                1,
                &raw mut buffer,
                &raw mut length
            )
        };
        check(status)?;
        NonNull::new(buffer.cast()).map(|bytes| (bytes, length)).ok_or(NtStatus::INTERNAL_ERROR)
    }

    /// The framework's handle.
    #[must_use]
    pub const fn handle(&self) -> WDFREQUEST {
        self.request
    }

    /// Has the framework call `cancel` when the request is cancelled, before or after this returns. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_CANCELLED` if it is cancelled already; then `cancel` is not called.
    ///
    /// # Safety
    ///
    /// Nobody completes the request before [`Request::unmark_cancelable`] has returned true, except `cancel` or who it asks to.
    pub unsafe fn mark_cancelable(&self, cancel: PFN_WDF_REQUEST_CANCEL) -> Result<(), NtStatus> {
        // SAFETY: the request is ours (invariant).
        check(unsafe { call_unsafe_wdf_function_binding!(WdfRequestMarkCancelableEx, self.request, cancel) })
    }

    /// Undoes [`Request::mark_cancelable`]. `false` if the framework calls the routine, or has. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn unmark_cancelable(&self) -> bool {
        // SAFETY: the request is ours (invariant).
        check(unsafe { call_unsafe_wdf_function_binding!(WdfRequestUnmarkCancelable, self.request) }).is_ok()
    }
}

impl Buffered for Request {
    fn input(&self, minimum: usize) -> Result<&[u8], NtStatus> {
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

    fn output(&mut self, minimum: usize) -> Result<&mut [u8], NtStatus> {
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
