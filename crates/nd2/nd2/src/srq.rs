//! Shared receive queues.

use core::{ffi::c_void, ptr::NonNull};

use engine::{
    os::{Affinity, Os, SpinLock},
    qp::{Srq, SrqClient, SrqParameters},
};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::{
    Charge, Device, Engine, OverlappedOs,
    abi::{ND2_SGE, OVERLAPPED},
    adapter::AdapterCore,
    back_end::{self, SharedReceiveQueueSizes},
    cq::core::affinity_of,
    device::{Member, Membership},
    overlapped::{Outstanding, Pending},
    post::element,
};

struct State<P: OverlappedOs> {
    /// Requests for notification.
    requests: Outstanding<P>,
    /// Below so many receives the requests end. Zero: never.
    threshold: u32,
    /// What every request ends with from now on: the queue has failed or is destroyed, or the adapter is gone.
    end: Option<NtStatus>,
}

/// A shared receive queue behind its COM object.
pub struct Core<P: OverlappedOs> {
    adapter: Arc<AdapterCore<P>>,
    file: Arc<P::File>,
    state: <P::Os as Os>::Lock<State<P>>,
    processor: u32,
    parameters: SrqParameters,
    /// For the memory. The engine's queue keeps this core by its client as long as it is there itself.
    charge: Charge,
}

struct Client<P: OverlappedOs>(Arc<Core<P>>);

impl<P: OverlappedOs> SrqClient for Client<P> {
    fn notify(&self, status: NtStatus) {
        self.0.end(status);
    }
}

impl<P: OverlappedOs> Core<P> {
    /// Ends all requests with `status`, in the order of their issue. Later ones too, if that is an error.
    fn end(&self, status: NtStatus) {
        self.state.with(|state| {
            if !status.is_success() {
                state.end.get_or_insert(status);
            }
            state.requests.end(status);
        });
        self.report();
    }

    fn report(&self) {
        Outstanding::report(&self.state, |state| &mut state.requests);
    }

    /// The adapter is gone.
    pub fn removed(&self) {
        self.end(NtStatus::DEVICE_REMOVED);
    }
}

/// A shared receive queue.
pub struct SharedReceiveQueue<P: OverlappedOs> {
    core: Arc<Core<P>>,
    srq: Arc<Srq<P::Os>>,
    _member: Membership<P>,
}

impl<P: OverlappedOs> SharedReceiveQueue<P> {
    /// Makes an empty queue.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`. The sizes were checked.
    pub fn try_new(
        adapter: &Arc<AdapterCore<P>>,
        file: &Arc<P::File>,
        sizes: &SharedReceiveQueueSizes,
    ) -> Result<Self, NtStatus> {
        let SharedReceiveQueueSizes { depth, max_sge, threshold, affinity } = *sizes;
        let device = adapter.device();
        let os = device.platform().os();
        let wanted = (affinity.mask != 0).then(|| os.processor_for(affinity)).flatten();
        let processor = wanted.unwrap_or_else(|| os.current_processor());
        let requests = Outstanding::new(device.config().max_notify_requests as usize);
        let state = State { requests, threshold, end: None };
        let info = &device.config().info;
        let parameters = SrqParameters {
            depth,
            max_depth: info.MaxSharedReceiveQueueDepth,
            max_sge,
            max_transfer: info.MaxTransferLength,
            // A new queue notifies nobody: a request for notification arms it.
            threshold: 0,
            processor,
        };
        let (adapter_of_core, state) = (adapter.clone(), os.lock(state)?);
        let charge = adapter.charge_object(parameters.bytes::<P::Os>())?;
        let core = Core { adapter: adapter_of_core, file: file.clone(), state, processor, parameters, charge };
        let core = Arc::try_new(core)?;
        let member = Device::join(adapter, Member::SharedReceiveQueue(core.clone()))?;
        let srq = Srq::try_new(os, adapter.domain(), parameters, Client(core.clone()))?;
        Ok(Self { core, srq, _member: member })
    }

    pub const fn srq(&self) -> &Arc<Srq<P::Os>> {
        &self.srq
    }

    fn modify(&self, depth: u32, threshold: u32) -> Result<(), NtStatus> {
        let core = &self.core;
        core.adapter.device().check_present()?;
        if depth <= core.parameters.max_depth {
            // The receives before stay where they are until they are taken: at most as much memory again.
            let parameters = SrqParameters { depth, ..core.parameters };
            core.adapter.raise(&core.charge, 2 * parameters.bytes::<P::Os>())?;
        }
        Srq::modify(&self.srq, depth, 0)?;
        if threshold > 0 {
            let waits = self.core.state.with(|state| {
                state.threshold = threshold;
                state.requests.wait()
            });
            if waits {
                Srq::modify(&self.srq, 0, threshold)?;
            }
        }
        Ok(())
    }

    /// Asks for notification.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until a request that pends ends.
    unsafe fn notify(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        let armed = self.core.state.with(|state| {
            if let Some(status) = state.end {
                return Err(status);
            }
            state.requests.reserve()?;
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
            state.requests.push(unsafe { Pending::begin(&self.core.file, overlapped) });
            Ok(state.threshold)
        });
        match armed {
            Ok(0) => NtStatus::PENDING,
            Ok(threshold) => {
                // Cannot fail: the depth stays. It ends the requests at once if too few receives are there.
                let _ = Srq::modify(&self.srq, 0, threshold);
                NtStatus::PENDING
            }
            Err(status) => status,
        }
    }
}

impl<P: OverlappedOs> Drop for SharedReceiveQueue<P> {
    fn drop(&mut self) {
        self.srq.close();
        self.core.end(NtStatus::CANCELLED);
    }
}

impl<P: OverlappedOs> SharedReceiveQueue<P> {
    /// Cancels the request on `overlapped` alone.
    pub fn cancel_one(&self, overlapped: NonNull<OVERLAPPED>) {
        self.core.state.with(|state| state.requests.cancel_one(overlapped));
        self.core.report();
    }
}

impl<P: OverlappedOs> back_end::Part<Engine<P>> for SharedReceiveQueue<P> {
    fn adapter(&self) -> &Arc<AdapterCore<P>> {
        &self.core.adapter
    }
}

impl<P: OverlappedOs> back_end::Requests<Engine<P>> for SharedReceiveQueue<P> {
    fn file(&self) -> &Arc<P::File> {
        &self.core.file
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        self.core.state.with(|state| state.requests.end(NtStatus::CANCELLED));
        self.core.report();
        Ok(())
    }
}

impl<P: OverlappedOs> back_end::SharedReceiveQueue<Engine<P>> for SharedReceiveQueue<P> {
    fn affinity(&self) -> Result<Affinity, NtStatus> {
        self.core.adapter.device().check_present()?;
        Ok(affinity_of(self.core.processor))
    }

    fn modify(&self, depth: u32, threshold: u32) -> Result<(), NtStatus> {
        self.modify(depth, threshold)
    }

    unsafe fn notify(&self, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { self.notify(overlapped) }
    }

    fn receive(&self, context: *mut c_void, list: &[ND2_SGE]) -> Result<(), NtStatus> {
        self.core.adapter.device().check_present()?;
        self.srq.post(context.expose_provenance(), list.iter().map(element))
    }
}
