//! `IND2SharedReceiveQueue`.

use core::{ffi::c_void, ptr::NonNull};

use engine::{
    os::{Affinity, Os, SpinLock},
    qp::{Srq, SrqClient, SrqParameters},
};
use fallible::Arc;
use ndkpi::{GUID, NtStatus};

use crate::{
    Charge, Device, Platform,
    abi::{
        HRESULT, IID_IND2Overlapped, IID_IND2SharedReceiveQueue, IND2SharedReceiveQueueVtbl, KAFFINITY, ND2_SGE,
        OVERLAPPED,
    },
    adapter::AdapterCore,
    com::{Class, borrow, find},
    cq::v2::write_affinity,
    device::{Member, Membership},
    overlapped::{Outstanding, Overlapped, Pending, overlapped},
    post::{element, elements},
};

struct State<P: Platform> {
    /// Requests for notification.
    requests: Outstanding<P>,
    /// Below so many receives the requests end. Zero: never.
    threshold: u32,
    /// What every request ends with from now on: the queue has failed or is destroyed, or the adapter is gone.
    end: Option<NtStatus>,
}

/// A shared receive queue behind its COM object.
pub struct Core<P: Platform> {
    adapter: Arc<AdapterCore<P>>,
    file: Arc<P::File>,
    state: <P::Os as Os>::Lock<State<P>>,
    processor: u32,
    parameters: SrqParameters,
    /// For the memory. The engine's queue keeps this core by its client as long as it is there itself.
    charge: Charge,
}

struct Client<P: Platform>(Arc<Core<P>>);

impl<P: Platform> SrqClient for Client<P> {
    fn notify(&self, status: NtStatus) {
        self.0.end(status);
    }
}

impl<P: Platform> Core<P> {
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
pub struct SharedReceiveQueue<P: Platform> {
    core: Arc<Core<P>>,
    srq: Arc<Srq<P::Os>>,
    _member: Membership<P>,
}

impl<P: Platform> SharedReceiveQueue<P> {
    /// Makes an empty queue.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`. The sizes were checked.
    pub fn try_new(
        adapter: &Arc<AdapterCore<P>>,
        file: &Arc<P::File>,
        depth: u32,
        max_sge: u32,
        threshold: u32,
        affinity: Affinity,
    ) -> Result<Self, NtStatus> {
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

    /// The engine's queue behind a client's pointer, if it is one of this adapter.
    ///
    /// # Safety
    ///
    /// `unknown` is null or a COM object.
    pub unsafe fn find(adapter: &Arc<AdapterCore<P>>, unknown: *mut c_void) -> Option<Arc<Srq<P::Os>>> {
        let srq = |srq: &Self| Arc::ptr_eq(&srq.core.adapter, adapter).then(|| srq.srq.clone());
        // SAFETY: the caller's promise.
        unsafe { find::<Self, _>(unknown, srq) }?
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
            // SAFETY: the caller's promise.
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

impl<P: Platform> Drop for SharedReceiveQueue<P> {
    fn drop(&mut self) {
        self.srq.close();
        self.core.end(NtStatus::CANCELLED);
    }
}

impl<P: Platform> Class for SharedReceiveQueue<P> {
    type Table = IND2SharedReceiveQueueVtbl;

    const TABLE: &'static IND2SharedReceiveQueueVtbl = &IND2SharedReceiveQueueVtbl {
        base: overlapped::<Self>(),
        GetNotifyAffinity: get_notify_affinity::<P>,
        Modify: modify::<P>,
        Notify: notify::<P>,
        Receive: receive::<P>,
    };
    const INTERFACES: &'static [GUID] = &[IID_IND2SharedReceiveQueue, IID_IND2Overlapped];
}

impl<P: Platform> Overlapped for SharedReceiveQueue<P> {
    type Platform = P;

    fn file(&self) -> &Arc<P::File> {
        &self.core.file
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        self.core.state.with(|state| state.requests.end(NtStatus::CANCELLED));
        self.core.report();
        Ok(())
    }

    fn cancel_one(&self, overlapped: NonNull<OVERLAPPED>) {
        self.core.state.with(|state| state.requests.cancel_one(overlapped));
        self.core.report();
    }
}

/// `IND2SharedReceiveQueue::GetNotifyAffinity`.
///
/// # Safety
///
/// `this` is such a queue; `group` and `affinity` are null or valid for writing.
unsafe extern "system" fn get_notify_affinity<P: Platform>(
    this: *mut c_void,
    group: *mut u16,
    affinity: *mut KAFFINITY,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<P>>(this) };
    if let Err(status) = object.core.adapter.device().check_present() {
        return status.into();
    }
    let number = u16::try_from(object.core.processor / KAFFINITY::BITS).unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe { write_affinity((number, 1 << (object.core.processor % KAFFINITY::BITS)), group, affinity) }
}

/// `IND2SharedReceiveQueue::Modify`.
///
/// # Safety
///
/// `this` is such a queue.
unsafe extern "system" fn modify<P: Platform>(this: *mut c_void, depth: u32, threshold: u32) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<P>>(this) };
    object.modify(depth, threshold).into()
}

/// `IND2SharedReceiveQueue::Notify`.
///
/// # Safety
///
/// `this` is such a queue; no request is outstanding on `overlapped`, which the client keeps until a request that pends ends.
unsafe extern "system" fn notify<P: Platform>(this: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT {
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<P>>(this) };
    // SAFETY: the caller's promise.
    unsafe { object.notify(overlapped) }.into()
}

/// `IND2SharedReceiveQueue::Receive`.
///
/// # Safety
///
/// `this` is such a queue; `list` is null or valid for reading `count` entries.
unsafe extern "system" fn receive<P: Platform>(
    this: *mut c_void,
    context: *mut c_void,
    list: *const ND2_SGE,
    count: u32,
) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<SharedReceiveQueue<P>>(this) };
    let post = || {
        object.core.adapter.device().check_present()?;
        // SAFETY: the caller's promise.
        let list = unsafe { elements(list, count) }?;
        object.srq.post(context.expose_provenance(), list.iter().map(element))
    };
    post().into()
}
