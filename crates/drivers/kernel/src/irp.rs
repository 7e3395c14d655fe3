//! Requests of a device without the framework: an IRP, from the dispatch routine to its completion.

use core::{mem::ManuallyDrop, slice};

use ndkpi::NtStatus;
use wdk_sys::{
    CCHAR, IO_NO_INCREMENT, IO_STACK_LOCATION, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL,
    METHOD_BUFFERED, NTSTATUS, PIRP, ntddk::IofCompleteRequest,
};

use crate::Buffered;

/// What a dispatch routine was called with.
///
/// It is completed once, at the latest when dropped, and what the routine returns is what it was completed with.
///
/// # Invariants
///
/// The driver owns `irp` and has not completed it.
#[must_use = "dropped, the request fails"]
pub struct Irp<'status> {
    irp: PIRP,
    status: &'status mut NTSTATUS,
}

/// What is asked of a device.
pub enum Asked<'status> {
    /// A program opens the device.
    Open(Irp<'status>),
    /// The last handle of what was opened is closed.
    Cleanup(Irp<'status>),
    /// After that, no request of it is left.
    Close(Irp<'status>),
    /// A control code with buffers that the system copies.
    Control(u32, Control<'status>),
    /// Something else: a file on the device, a control code of another method.
    Other(Irp<'status>),
}

/// What a dispatch routine does: has `serve` complete the request before it returns, and returns the same.
///
/// # Safety
///
/// The I/O manager has called a dispatch routine with `irp`, and nobody else completes it.
pub unsafe fn dispatch(irp: PIRP, serve: impl FnOnce(Asked<'_>)) -> NTSTATUS {
    let mut status = NtStatus::INTERNAL_ERROR.0;
    let irp = Irp { irp, status: &mut status };
    let location = irp.location();
    match location.MajorFunction.into() {
        IRP_MJ_CREATE => {
            // SAFETY: a creation has a file object, which lives longer than the request.
            let file = unsafe { location.FileObject.as_ref() };
            if file.is_none_or(|file| file.FileName.Length == 0) {
                serve(Asked::Open(irp));
            } else {
                serve(Asked::Other(irp));
            }
        }
        IRP_MJ_CLEANUP => serve(Asked::Cleanup(irp)),
        IRP_MJ_CLOSE => serve(Asked::Close(irp)),
        IRP_MJ_DEVICE_CONTROL => {
            // SAFETY: the arm of this kind of request.
            let control = unsafe { location.Parameters.DeviceIoControl };
            if control.IoControlCode & 3 == METHOD_BUFFERED {
                let (input, output) = (control.InputBufferLength as usize, control.OutputBufferLength as usize);
                serve(Asked::Control(control.IoControlCode, Control { irp, input, output }));
            } else {
                serve(Asked::Other(irp));
            }
        }
        _ => serve(Asked::Other(irp)),
    }
    status
}

impl Irp<'_> {
    /// This driver's place in the IRP: `IoGetCurrentIrpStackLocation`, which is a macro.
    fn location(&self) -> IO_STACK_LOCATION {
        // SAFETY: the driver owns the IRP (invariant), and nobody changes it meanwhile.
        let tail = unsafe { (*self.irp).Tail };
        // SAFETY: the arm that is in use while a driver has the IRP.
        let location = unsafe {
            let overlay = tail.Overlay;
            overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation
        };
        // SAFETY: the location is part of the IRP.
        unsafe { location.read() }
    }

    /// Completes the request, with so many bytes of its output.
    pub fn complete(self, status: NtStatus, information: usize) {
        ManuallyDrop::new(self).end(status, information);
    }

    fn end(&mut self, status: NtStatus, information: usize) {
        *self.status = status.0;
        // SAFETY: the driver owns the IRP (invariant).
        let block = unsafe { &mut (*self.irp).IoStatus };
        block.__bindgen_anon_1.Status = status.0;
        // `ULONG_PTR` is an integer of the width of a pointer.
        block.Information = information as wdk_sys::ULONG_PTR;
        #[expect(clippy::cast_possible_truncation, reason = "zero")]
        let boost = IO_NO_INCREMENT as CCHAR;
        // SAFETY: the IRP is the driver's until here, and not used again: the callers give the request up.
        unsafe { IofCompleteRequest(self.irp, boost) };
    }
}

impl Drop for Irp<'_> {
    fn drop(&mut self) {
        self.end(NtStatus::INTERNAL_ERROR, 0);
    }
}

/// A control code with the buffers that the system copies.
///
/// # Invariants
///
/// The request is `IRP_MJ_DEVICE_CONTROL` of `METHOD_BUFFERED`, with these lengths.
pub struct Control<'status> {
    irp: Irp<'status>,
    input: usize,
    output: usize,
}

impl Control<'_> {
    /// The system's copy, which is as long as the longer of the two.
    fn buffer(&self) -> *mut u8 {
        // SAFETY: the driver owns the IRP (invariant of the request).
        let associated = unsafe { (*self.irp.irp).AssociatedIrp };
        // SAFETY: the arm of a request of this method (invariant).
        unsafe { associated.SystemBuffer.cast() }
    }
}

impl Buffered for Control<'_> {
    fn input(&self, minimum: usize) -> Result<&[u8], NtStatus> {
        if self.input < minimum {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        if self.input == 0 {
            return Ok(&[]);
        }
        // SAFETY: the system has copied that many bytes (invariant), which nobody changes and which live until the request is
        // completed, for which `self` is needed.
        Ok(unsafe { slice::from_raw_parts(self.buffer(), self.input) })
    }

    fn output(&mut self, minimum: usize) -> Result<&mut [u8], NtStatus> {
        if self.output < minimum.max(1) {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        // SAFETY: the system's buffer has room for that many bytes (invariant); `&mut self` ends every borrow of the input, which
        // is the same memory.
        Ok(unsafe { slice::from_raw_parts_mut(self.buffer(), self.output) })
    }

    fn complete(self, status: NtStatus, information: usize) {
        self.irp.complete(status, information);
    }
}
