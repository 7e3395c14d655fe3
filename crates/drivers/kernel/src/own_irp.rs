//! Requests of a driver's own: an IRP that is given to others and comes back, again and again.

use ndkpi::NtStatus;
use wdk_sys::{
    IRP, PDEVICE_OBJECT, PIRP, PVOID, SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS,
    STATUS_MORE_PROCESSING_REQUIRED, STATUS_UNSUCCESSFUL,
    ntddk::{IoAllocateIrp, IoFreeIrp, IoReuseIrp},
};

use crate::Event;

/// What is called when a request is complete, with its context. `IRQL <= DISPATCH_LEVEL`. It returns
/// `STATUS_MORE_PROCESSING_REQUIRED`: the IRP is the driver's again.
pub type Completion = unsafe extern "C" fn(PDEVICE_OBJECT, PIRP, PVOID) -> wdk_sys::NTSTATUS;

/// Winsock Kernel is asked: there is one driver below.
const LOCATIONS: wdk_sys::CCHAR = 1;

/// An IRP of the driver's own with one stack location.
///
/// # Invariants
///
/// `irp` came from `IoAllocateIrp` with [`LOCATIONS`].
pub struct OwnIrp {
    irp: PIRP,
}

// SAFETY: an IRP may be handled on any thread by whom it belongs to.
unsafe impl Send for OwnIrp {}
// SAFETY: everything that changes it asks for a promise that nobody else has it.
unsafe impl Sync for OwnIrp {}

impl OwnIrp {
    /// An IRP that nobody has. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        // SAFETY: `IRQL <= DISPATCH_LEVEL` (the caller's).
        let irp = unsafe { IoAllocateIrp(LOCATIONS, 0) };
        if irp.is_null() { Err(NtStatus::INSUFFICIENT_RESOURCES) } else { Ok(Self { irp }) }
    }

    /// Readies the IRP for a request that `routine` is called for at whatever end it has, and returns it. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// Nobody has the IRP, nor gets it but by the result, which is given to one request. The value is not dropped before that is complete.
    #[must_use]
    pub unsafe fn begin(&self, routine: Completion, context: PVOID) -> *mut IRP {
        // SAFETY: nobody else has the IRP (`# Safety`).
        unsafe { IoReuseIrp(self.irp, STATUS_UNSUCCESSFUL) };
        // SAFETY: as above; the arm that is in use while a driver has the IRP.
        let current = unsafe {
            let overlay = &(*self.irp).Tail.Overlay;
            overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation
        };
        // What `IoSetCompletionRoutine` does, which is a macro: the routine is in the location of the driver below.
        // SAFETY: an IRP with one location that nobody has stands behind that.
        let next = unsafe { &mut *current.wrapping_sub(1) };
        (next.CompletionRoutine, next.Context) = (Some(routine), context);
        #[expect(clippy::cast_possible_truncation, reason = "three flags of eight bits")]
        let always = (SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL) as u8;
        next.Control = always;
        self.irp
    }

    /// How the request has ended: its status, and what else it says.
    ///
    /// # Safety
    ///
    /// It has.
    pub unsafe fn outcome(&self) -> (NtStatus, usize) {
        // SAFETY: the request has ended (`# Safety`), so the IRP is the driver's again.
        let block = unsafe { (*self.irp).IoStatus };
        // SAFETY: the arm of a request that has ended.
        let status = NtStatus(unsafe { block.__bindgen_anon_1.Status });
        #[expect(clippy::cast_possible_truncation, reason = "`ULONG_PTR` is as wide as a pointer")]
        let information = block.Information as usize;
        (status, information)
    }

    /// Makes a request. The event, which is cleared, is set when it is complete; then [`OwnIrp::outcome`] says how.
    ///
    /// # Safety
    ///
    /// Nobody has the IRP. `request` gives it to one request, which completes it. The event lives until it is set, and so does the value.
    pub unsafe fn start(&self, event: &Event, request: impl FnOnce(*mut IRP) -> NtStatus) {
        event.clear();
        let context: PVOID = core::ptr::from_ref(event).cast_mut().cast();
        // SAFETY: nobody has the IRP, and one request gets it; the event and this live until that is complete (`# Safety`).
        let irp = unsafe { self.begin(wake, context) };
        // What it says is what the request ends with, or that this comes later.
        let _ = request(irp);
    }

    /// Makes a request and waits for its end. What it says beside its status.
    ///
    /// # Errors
    ///
    /// Its status.
    ///
    /// # Safety
    ///
    /// Nobody has the IRP. `request` gives it to one request, which completes it.
    pub unsafe fn ask(&self, event: &Event, request: impl FnOnce(*mut IRP) -> NtStatus) -> Result<usize, NtStatus> {
        // SAFETY: nobody has the IRP, and one request gets it (`# Safety`); this waits for its end.
        unsafe { self.start(event, request) };
        event.wait();
        // SAFETY: the completion routine was called.
        let (status, information) = unsafe { self.outcome() };
        status.ok().map(|()| information)
    }
}

impl Drop for OwnIrp {
    fn drop(&mut self) {
        // SAFETY: the IRP is ours (invariant), nobody has it (the promise of who gave it away), and it is not used again.
        unsafe { IoFreeIrp(self.irp) };
    }
}

/// Tells who waits, and keeps the IRP.
unsafe extern "C" fn wake(_device: PDEVICE_OBJECT, _irp: PIRP, event: PVOID) -> wdk_sys::NTSTATUS {
    // SAFETY: the event of `start`, which lives until it is set.
    unsafe { &*event.cast_const().cast::<Event>() }.set();
    STATUS_MORE_PROCESSING_REQUIRED
}
