//! Threads of the system process.

use alloc::boxed::Box;
use core::ptr;

use fallible::try_box;
use ndkpi::NtStatus;
use wdk_sys::{
    HANDLE, OBJ_KERNEL_HANDLE, OBJECT_ATTRIBUTES, PVOID, STATUS_SUCCESS, SYNCHRONIZE,
    ntddk::{PsCreateSystemThread, PsTerminateSystemThread, ZwClose, ZwWaitForSingleObject},
};

use crate::{check, wdf::size};

/// A running thread. Dropping it waits until the thread has ended, so its code cannot be unloaded under it.
///
/// # Invariants
///
/// `handle` is a kernel handle of the thread, and nobody else closes it.
pub struct Thread {
    handle: HANDLE,
}

// SAFETY: a kernel handle may be used from any thread.
unsafe impl Send for Thread {}
// SAFETY: as for `Send`; a `&Thread` can do nothing with it.
unsafe impl Sync for Thread {}

impl Thread {
    /// Runs `work` on a new thread at `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES` or what the kernel says; `work` is dropped.
    pub fn try_spawn<F: FnOnce() + Send + 'static>(work: F) -> Result<Self, NtStatus> {
        let work = Box::into_raw(try_box(work).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?);
        let mut attributes = OBJECT_ATTRIBUTES {
            Length: size::<OBJECT_ATTRIBUTES>(),
            // Valid in every process, out of reach of user mode.
            Attributes: OBJ_KERNEL_HANDLE,
            ..OBJECT_ATTRIBUTES::default()
        };
        let mut handle = ptr::null_mut();
        // SAFETY: the attributes and the place for the handle live until the call returns; no process handle means the
        // system process; `run::<F>` gets the box that it expects.
        let status = unsafe {
            PsCreateSystemThread(
                &raw mut handle,
                SYNCHRONIZE,
                &raw mut attributes,
                ptr::null_mut(),
                ptr::null_mut(),
                Some(run::<F>),
                work.cast(),
            )
        };
        check(status).inspect_err(|_| {
            // SAFETY: no thread was made, so the box is still ours.
            drop(unsafe { Box::from_raw(work) });
        })?;
        Ok(Self { handle })
    }
}

unsafe extern "C" fn run<F: FnOnce()>(context: PVOID) {
    // SAFETY: `try_spawn` made this thread with a box of that type, once.
    let work = unsafe { Box::from_raw(context.cast::<F>()) };
    work();
    // SAFETY: this is a thread that `PsCreateSystemThread` made, at `PASSIVE_LEVEL`, and it owns nothing any more.
    let _ = unsafe { PsTerminateSystemThread(STATUS_SUCCESS) };
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: the handle is valid until it is closed below (invariant), and the owner drops this at `PASSIVE_LEVEL`.
        let _ = unsafe { ZwWaitForSingleObject(self.handle, 0, ptr::null_mut()) };
        // SAFETY: the handle is ours (invariant) and not used again.
        let _ = unsafe { ZwClose(self.handle) };
    }
}
