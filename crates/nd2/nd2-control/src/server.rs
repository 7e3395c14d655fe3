//! What a session asks of the operating system, and the operating system that it gives to `nd2`.

use core::{ffi::c_void, marker::PhantomData, ptr, ptr::NonNull, sync::atomic::Ordering};

use engine::os::Os;
use fallible::Arc;
use nd2::{
    Device, OverlappedFile, OverlappedOs,
    abi::{HANDLE, OVERLAPPED},
    back_end::RequestFile,
};
use ndkpi::NtStatus;

use crate::Call;

/// An operating system in whose kernel sessions are.
pub trait System: Clone + Send + Sync + 'static {
    /// What the engine runs on.
    type Os: Os;
    /// A request of a process.
    type Request: Request<Self>;

    /// What the engine runs on.
    fn os(&self) -> &Self::Os;

    /// Calls `each` with every adapter that there is now. No lock is held.
    fn each_device(&self, each: &mut dyn FnMut(&Adapter<Self>));

    /// A process was refused something because there is no more. No lock is held.
    fn limit_reached(&self, name: &'static str, most: u64);
}

/// A request of a process. Whoever has it completes it; dropped, it fails.
///
/// Input and output may be the same memory.
pub trait Request<S: System>: Send + Sized + 'static {
    /// The system's copy of what the process has sent.
    fn input(&self) -> &[u8];

    /// Room for the answer; empty if there is none.
    fn output(&mut self) -> &mut [u8];

    /// The bytes of the second buffer, whose pages the system keeps locked until the request is completed, under the
    /// addresses from `base` on.
    ///
    /// # Errors
    ///
    /// `STATUS_ACCESS_VIOLATION` if there are none; `STATUS_INVALID_PARAMETER` if the addresses wrap;
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn locked(&self, base: u64) -> Result<<S::Os as Os>::Memory, NtStatus>;

    /// Has the system call [`Call::cancel`] when the request is cancelled, from now on. Called with a spin lock held.
    ///
    /// # Errors
    ///
    /// `STATUS_CANCELLED` if it is cancelled already. Then nobody calls.
    fn watch(&self, call: &Arc<Call<S>>) -> Result<(), NtStatus>;

    /// Undoes [`Request::watch`]. `false` if [`Call::cancel`] is called, or will be. Called with a spin lock held.
    fn unwatch(&self) -> bool;

    /// Completes the request, which has written `information` bytes of its output. No lock is held.
    fn complete(self, status: NtStatus, information: usize);

    /// Completes a request that would have pended, and whose method has answered at once. Systems that report the end of every
    /// request in the same way need not tell these apart. No lock is held.
    fn answer(self, status: NtStatus) {
        self.complete(status, 0);
    }
}

/// An adapter as sessions have it.
pub type Adapter<S> = Arc<Device<Server<S>>>;

/// `nd2`'s operating system in the kernel.
#[derive(Clone)]
pub struct Server<S: System>(pub S);

impl<S: System> OverlappedOs for Server<S> {
    type Os = S::Os;
    type File = Calls<S>;
    type Pages = Pages<S>;

    fn os(&self) -> &S::Os {
        self.0.os()
    }

    fn create_file(&self) -> Result<Calls<S>, NtStatus> {
        Ok(Calls(PhantomData))
    }

    fn limit_reached(&self, name: &'static str, most: u64) {
        self.0.limit_reached(name, most);
    }

    unsafe fn memory(&self, _: *const c_void, _: usize, _: bool) -> Result<<S::Os as Os>::Memory, NtStatus> {
        // A process registers with a request that locks the pages.
        Err(NtStatus::NOT_SUPPORTED)
    }
}

/// The file of all requests of a session: each is a [`Call`], which knows its request by itself.
pub struct Calls<S: System>(PhantomData<fn() -> S>);

/// Every adapter has one file, with this handle.
pub const FILE: HANDLE = ptr::without_provenance_mut(4);

impl<S: System> RequestFile for Calls<S> {
    fn handle(&self) -> HANDLE {
        FILE
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn close(&self) {
        // The handle is every session's, and names nothing of the system.
    }

    unsafe fn status(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: the structure is valid (`# Safety` of the trait).
        unsafe { overlapped.as_ref() }.status().to_status()
    }

    unsafe fn wait(&self, _: NonNull<OVERLAPPED>) -> NtStatus {
        // Processes wait for their requests, and not in the kernel.
        NtStatus::INVALID_PARAMETER
    }
}

impl<S: System> OverlappedFile for Calls<S> {
    fn prepare(&self) -> Result<(), NtStatus> {
        Ok(())
    }

    unsafe fn begin(&self, overlapped: NonNull<OVERLAPPED>) {
        // SAFETY: the structure is valid (`# Safety` of the trait).
        let overlapped = unsafe { overlapped.as_ref() };
        overlapped.Internal.store(NtStatus::PENDING.to_bits() as usize, Ordering::Release);
    }

    unsafe fn complete(&self, overlapped: NonNull<OVERLAPPED>, status: NtStatus) {
        // SAFETY: every structure that a session passes on is a call with a reference that is given up here: the request was
        // begun, and ends once (`# Safety` of the trait).
        let call = unsafe { Call::<S>::from_overlapped(overlapped.as_ptr()) };
        call.end(status);
    }
}

/// The locked pages of a registration. Dropping it ends the request that has locked them.
pub struct Pages<S: System> {
    call: Arc<Call<S>>,
    outcome: NtStatus,
}

impl<S: System> Pages<S> {
    pub(crate) const fn new(call: Arc<Call<S>>) -> Self {
        Self { call, outcome: NtStatus::SUCCESS }
    }

    /// The registration has not begun.
    pub(crate) fn refuse(mut self, status: NtStatus) {
        self.outcome = status;
    }
}

impl<S: System> Drop for Pages<S> {
    fn drop(&mut self) {
        self.call.end(self.outcome);
    }
}
