//! Overlapped requests (`NDSPI 1`).

use alloc::collections::VecDeque;
use core::{ffi::c_void, ptr::NonNull};

use engine::os::SpinLock;
use fallible::{AllocError, Arc};
use ndkpi::NtStatus;

use crate::{
    Device, Engine, OverlappedFile, OverlappedOs,
    abi::OVERLAPPED,
    com::{self, find, find_queue},
};

/// A request that is outstanding. It ends once: with [`Pending::complete`], or cancelled when it is dropped.
pub struct Pending<P: OverlappedOs> {
    file: Arc<P::File>,
    overlapped: NonNull<OVERLAPPED>,
    /// The adapter, if the request ends late.
    late: Option<Arc<Device<P>>>,
}

// SAFETY: the structure is the provider's alone until the request ends, except for reading its atomic fields.
unsafe impl<P: OverlappedOs> Send for Pending<P> {}

impl<P: OverlappedOs> Pending<P> {
    /// Begins the request.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until this one ends.
    pub unsafe fn begin(file: &Arc<P::File>, overlapped: NonNull<OVERLAPPED>) -> Self {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
        unsafe { file.begin(overlapped) };
        Self { file: file.clone(), overlapped, late: None }
    }

    /// Begins a request that ends late if the adapter's settings ask for that.
    ///
    /// # Safety
    ///
    /// As [`Pending::begin`].
    pub unsafe fn begin_on(device: &Arc<Device<P>>, file: &Arc<P::File>, overlapped: NonNull<OVERLAPPED>) -> Self {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
        let mut this = unsafe { Self::begin(file, overlapped) };
        this.late = device.late().is_some().then(|| device.clone());
        this
    }

    /// Returns true if this is the request on `overlapped`.
    pub fn is_on(&self, overlapped: NonNull<OVERLAPPED>) -> bool {
        self.overlapped == overlapped
    }

    /// Ends the request and tells the client, perhaps later. No lock may be held.
    pub fn complete(mut self, status: NtStatus) {
        if let Some(device) = self.late.take()
            && status != NtStatus::CANCELLED
            && let Some(late) = device.late()
        {
            return late.end(&device, self, status);
        }
        self.complete_now(status);
    }

    /// Ends the request and tells the client. No lock may be held.
    pub fn complete_now(mut self, status: NtStatus) {
        drop(self.late.take());
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the reference is taken over once.
        let file = unsafe { (&raw const this.file).read() };
        // SAFETY: the request was begun, and ends here only: `self` is gone.
        unsafe { file.complete(this.overlapped, status) };
    }

    /// Takes the request back: its method returns `status` itself, so the client does not wait for its end.
    pub fn withdraw(mut self, status: NtStatus) -> NtStatus {
        drop(self.late.take());
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the reference is taken over once.
        drop(unsafe { (&raw const this.file).read() });
        // SAFETY: the client keeps the structure until its call returns.
        let overlapped = unsafe { this.overlapped.as_ref() };
        overlapped.Internal.store(status.to_bits() as usize, core::sync::atomic::Ordering::Release);
        status
    }
}

/// Answers a request that has succeeded, as the adapter's [policy](crate::CompletionPolicy) says: with `STATUS_SUCCESS`, or
/// with `STATUS_PENDING` after its end was reported, or before if it ends late. No lock may be held.
///
/// # Safety
///
/// As [`Pending::begin`].
pub unsafe fn succeed<P: OverlappedOs>(
    device: &Arc<Device<P>>,
    file: &Arc<P::File>,
    overlapped: NonNull<OVERLAPPED>,
) -> NtStatus {
    if !device.pends() {
        return NtStatus::SUCCESS;
    }
    // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
    let pending = unsafe { Pending::begin_on(device, file, overlapped) };
    pending.complete(NtStatus::SUCCESS);
    NtStatus::PENDING
}

impl<P: OverlappedOs> Drop for Pending<P> {
    fn drop(&mut self) {
        // SAFETY: the request was begun and has not ended: who ends it does not drop it.
        unsafe { self.file.complete(self.overlapped, NtStatus::CANCELLED) };
    }
}

/// Gives the memory of an empty list back, unless it is little: what requests take is charged while they are outstanding.
pub fn trim<T>(list: &mut VecDeque<T>) {
    const LITTLE: usize = 8;
    if list.is_empty() && list.capacity() > LITTLE {
        *list = VecDeque::new();
    }
}

/// Requests that all end at the next event, in the order in which they were issued.
pub struct Outstanding<P: OverlappedOs> {
    list: VecDeque<(Pending<P>, Option<NtStatus>)>,
    limit: usize,
    /// A thread reports the ends of requests. Only one does at a time, so that their order is kept.
    reporting: bool,
}

impl<P: OverlappedOs> Outstanding<P> {
    /// Makes an empty list with room for `limit`.
    pub const fn new(limit: usize) -> Self {
        Self { list: VecDeque::new(), limit, reporting: false }
    }

    /// Makes room for one more.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no memory, or at the limit.
    pub fn reserve(&mut self) -> Result<(), AllocError> {
        if self.list.len() >= self.limit {
            return Err(AllocError);
        }
        Ok(self.list.try_reserve(1)?)
    }

    /// Adds a request, for which there is [room](Outstanding::reserve).
    pub fn push(&mut self, request: Pending<P>) {
        self.list.push_back((request, None));
    }

    /// Returns true if a request waits for the event.
    pub fn wait(&self) -> bool {
        self.list.iter().any(|(_, outcome)| outcome.is_none())
    }

    /// Ends all requests with `status`. [`Outstanding::report`] tells their clients.
    pub fn end(&mut self, status: NtStatus) {
        for (_, outcome) in &mut self.list {
            outcome.get_or_insert(status);
        }
    }

    /// Ends the request on `overlapped` alone, if it is one of these.
    pub fn cancel_one(&mut self, overlapped: NonNull<OVERLAPPED>) {
        let one = self.list.iter_mut().find(|(request, _)| request.is_on(overlapped));
        if let Some((_, outcome)) = one {
            outcome.get_or_insert(NtStatus::CANCELLED);
        }
    }

    fn take_ended(&mut self) -> Option<(Pending<P>, NtStatus)> {
        if self.reporting {
            return None;
        }
        let place = self.list.iter().position(|(_, outcome)| outcome.is_some())?;
        let (request, status) = self.list.remove(place)?;
        trim(&mut self.list);
        self.reporting = true;
        Some((request, status?))
    }

    /// Reports the ends of requests, with no lock held. `requests` are in what `lock` protects.
    pub fn report<T>(lock: &impl SpinLock<T>, requests: impl Fn(&mut T) -> &mut Self) {
        while let Some((request, status)) = lock.with(|state| requests(state).take_ended()) {
            request.complete(status);
            lock.with(|state| requests(state).reporting = false);
        }
    }
}

/// Cancels the request on `overlapped`, which was given to a method of `object`: what `CancelOverlappedRequests` does, for one.
///
/// It is not counted as outstanding any more. Nothing happens if it has ended, or is a deregistration, which waits for transfers
/// only. `IRQL <= DISPATCH_LEVEL`, no lock held.
///
/// # Safety
///
/// `object` is null or a COM object; `overlapped` is only compared.
pub unsafe fn cancel_one<P: OverlappedOs>(object: *mut c_void, overlapped: NonNull<OVERLAPPED>) {
    // SAFETY: `object` is null or a COM object (`# Safety`).
    if let Some(queue) = unsafe { find_queue::<Engine<P>>(object) } {
        return queue.core.cancel_one(overlapped);
    }
    // SAFETY: `object` is null or a COM object (`# Safety`).
    if let Some(connector) = unsafe { find::<com::Connector<Engine<P>>>(object) } {
        return connector.0.core().cancel_one(overlapped);
    }
    // SAFETY: `object` is null or a COM object (`# Safety`).
    if let Some(listener) = unsafe { find::<com::Listener<Engine<P>>>(object) } {
        return listener.0.cancel_one(overlapped);
    }
    // SAFETY: `object` is null or a COM object (`# Safety`).
    if let Some(queue) = unsafe { find::<com::SharedReceiveQueue<Engine<P>>>(object) } {
        queue.0.cancel_one(overlapped);
    }
}
