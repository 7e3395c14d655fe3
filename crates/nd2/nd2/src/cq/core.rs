//! What is behind both interfaces of a completion queue.

use core::ptr::NonNull;

use engine::{
    cq::{Cq, CqClient, CqConsumer, CqParameters, Cqe, notify::CqFailure},
    os::{Affinity, Os, SpinLock},
};
use fallible::Arc;
use ndkpi::NtStatus;

use super::{
    hold::Hold,
    results::result,
    waiters::{Kind, Waiters},
};
use crate::{
    Charge, Device, Engine, OverlappedOs,
    abi::{KAFFINITY, ND2_RESULT, OVERLAPPED, adapter_flags::ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED},
    adapter::AdapterCore,
    back_end,
    device::{Member, Membership},
    overlapped::Pending,
};

/// The requests for notification, and the client's end of the queue.
struct State<P: OverlappedOs> {
    waiters: Waiters<Pending<P>>,
    /// `None` before the queue is made and after it is destroyed. The queue's client refers to this state, so this is what
    /// keeps the two alive.
    consumer: Option<CqConsumer<P::Os>>,
    /// What every request ends with: the queue is destroyed, or the adapter was removed.
    end: Option<NtStatus>,
    /// Somebody reports the ends of requests. Nobody else does then, so that their order is kept.
    reporting: bool,
    /// What delays the completions, if something does.
    hold: Option<Hold<P>>,
}

/// A completion queue behind its COM object. Queue pairs refer to it too.
pub struct Core<P: OverlappedOs> {
    adapter: Arc<AdapterCore<P>>,
    file: Arc<P::File>,
    state: <P::Os as Os>::Lock<State<P>>,
    processor: u32,
    /// For the memory. The engine's queue keeps this core by its client as long as it is there itself.
    charge: Charge,
}

/// How the engine's queue reaches the requests.
struct Client<P: OverlappedOs>(Arc<Core<P>>);

impl<P: OverlappedOs> CqClient for Client<P> {
    fn notify(&self, _status: NtStatus) {
        Core::look(&self.0);
    }

    fn failed(&self, _failure: CqFailure) {
        Core::look(&self.0);
    }
}

/// The handle of a COM object on its queue: destroys the queue when it is dropped.
pub struct Owned<P: OverlappedOs> {
    pub core: Arc<Core<P>>,
    pub cq: Arc<Cq<P::Os>>,
    _member: Membership<P>,
}

impl<P: OverlappedOs> Drop for Owned<P> {
    fn drop(&mut self) {
        Core::destroy(&self.core);
    }
}

impl<P: OverlappedOs> Core<P> {
    /// Makes a queue.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_IMPLEMENTATION_LIMIT`. The depth was checked.
    pub fn try_new(
        adapter: &Arc<AdapterCore<P>>,
        file: &Arc<P::File>,
        depth: u32,
        affinity: Affinity,
    ) -> Result<Owned<P>, NtStatus> {
        let device = adapter.device();
        let os = device.platform().os();
        // Affinity is advice, and zero is none (`NDSPI 2`).
        let wanted = (affinity.mask != 0).then(|| os.processor_for(affinity)).flatten();
        let processor = wanted.unwrap_or_else(|| os.current_processor());
        let waiters = Waiters::new(device.config().max_notify_requests as usize, 0);
        let hold = Hold::try_new(os, device.config().faults.completion_delay)?;
        let state = State { waiters, consumer: None, end: None, reporting: false, hold };
        let charge = adapter.charge_object(Cq::<P::Os>::bytes(depth))?;
        let (adapter_of_core, state) = (adapter.clone(), os.lock(state)?);
        let core = Arc::try_new(Self { adapter: adapter_of_core, file: file.clone(), state, processor, charge })?;
        let member = Device::join(adapter, Member::CompletionQueue(core.clone()))?;
        let max_depth = device.config().info.MaxCompletionQueueDepth;
        let parameters = CqParameters { depth, max_depth, processor };
        let (cq, consumer) = Cq::try_new(os, parameters, Client(core.clone()))?;
        core.state.with(|state| state.consumer = Some(consumer));
        Ok(Owned { core, cq, _member: member })
    }

    pub const fn adapter(&self) -> &Arc<AdapterCore<P>> {
        &self.adapter
    }

    /// Asks for notification (`IND2CompletionQueue::Notify`). What is returned is final, except `STATUS_PENDING`.
    ///
    /// # Safety
    ///
    /// `overlapped` is valid, no request is outstanding on it, and the client keeps it until a request that pends ends.
    pub unsafe fn notify(this: &Arc<Self>, kind: Kind, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        let status = this.state.with(|state| {
            let State { waiters, consumer: Some(consumer), end: None, hold, .. } = state else {
                return state.end.unwrap_or(NtStatus::CANCELLED);
            };
            if waiters.reserve().is_err() {
                return NtStatus::INSUFFICIENT_RESOURCES;
            }
            if let Some(arm) = waiters.arm(Some(kind)) {
                consumer.arm(arm);
            }
            // What comes after this look satisfies the arm, and the queue calls.
            let seen = consumer.cq().observe();
            if let Some(failure) = seen.failure {
                waiters.end(failure.status());
                return failure.status();
            }
            let waits = seen.view.newest > consumer.taken();
            let sees = hold.as_mut().is_none_or(|hold| hold.sees(this, waits));
            let satisfied = sees && waiters.decide(&seen, Some(kind));
            if satisfied && !this.adapter.device().pends() {
                return NtStatus::SUCCESS;
            }
            // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (`# Safety`).
            let request = unsafe { Pending::begin(&this.file, overlapped) };
            waiters.push(kind, seen.view.taken, request, satisfied.then_some(NtStatus::SUCCESS));
            NtStatus::PENDING
        });
        this.report();
        status
    }

    /// Looks what requests are satisfied: something has been queued, or the queue has failed.
    fn look(this: &Arc<Self>) {
        this.state.with(|state| {
            let State { waiters, consumer: Some(consumer), hold, .. } = state else { return };
            // Who still waits after this needs the arm, which is spent.
            let Some(arm) = waiters.arm(None) else { return };
            consumer.arm(arm);
            let seen = consumer.cq().observe();
            match seen.failure {
                Some(failure) => waiters.end(failure.status()),
                // Somebody looks again when the delay is over.
                None if hold.as_mut().is_some_and(|hold| !hold.sees(this, seen.view.newest > consumer.taken())) => {}
                None => {
                    let _ = waiters.decide(&seen, None);
                }
            }
        });
        this.report();
    }

    /// The delay of what has come is over.
    pub fn delay_is_over(this: &Arc<Self>) {
        this.state.with(|state| {
            if let Some(hold) = &mut state.hold {
                hold.open();
            }
        });
        Self::look(this);
    }

    /// Reports the ends of requests, in the order of their issue, with no lock held.
    fn report(&self) {
        loop {
            let ended = self.state.with(|state| {
                if state.reporting {
                    return None;
                }
                let ended = state.waiters.take_ended()?;
                state.reporting = true;
                Some(ended)
            });
            let Some((request, status)) = ended else { return };
            request.complete(status);
            self.state.with(|state| state.reporting = false);
        }
    }

    /// Cancels the requests for notification (`IND2Overlapped::CancelOverlappedRequests`).
    pub fn cancel(&self) {
        self.state.with(|state| state.waiters.end(NtStatus::CANCELLED));
        self.report();
    }

    /// [`Core::cancel`] for the request on `overlapped` alone.
    pub fn cancel_one(&self, overlapped: NonNull<OVERLAPPED>) {
        self.state.with(|state| state.waiters.end_those(NtStatus::CANCELLED, |request| request.is_on(overlapped)));
        self.report();
    }

    /// Takes completions out and gives them to `each` (`IND2CompletionQueue::GetResults`). Returns how many.
    pub fn take(this: &Arc<Self>, most: usize, each: impl FnMut(&Cqe)) -> usize {
        this.state.with(|state| {
            let State { consumer: Some(consumer), hold, .. } = state else { return 0 };
            let Some(hold) = hold else { return consumer.poll(most, each) };
            let seen = consumer.cq().observe();
            if seen.failure.is_none() && !hold.sees(this, seen.view.newest > consumer.taken()) {
                return 0;
            }
            let taken = consumer.poll(most, each);
            if consumer.cq().observe().view.newest == consumer.taken() {
                hold.shut();
            }
            taken
        })
    }

    /// Sets the depth (`IND2CompletionQueue::Resize`).
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_REMOVED`, `STATUS_NOT_SUPPORTED` if the adapter's flags say so, `STATUS_INVALID_PARAMETER`,
    /// `STATUS_BUFFER_OVERFLOW`, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn resize(&self, cq: &Arc<Cq<P::Os>>, depth: u32) -> Result<(), NtStatus> {
        let device = self.adapter.device();
        device.check_present()?;
        if device.config().info.AdapterFlags & ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED == 0 {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        if depth <= device.config().info.MaxCompletionQueueDepth {
            // The results before stay where they are until they are taken: at most as much memory again.
            self.adapter.raise(&self.charge, 2 * Cq::<P::Os>::bytes(depth))?;
        }
        Cq::resize(cq, depth)
    }

    /// The client has released its last reference.
    fn destroy(this: &Arc<Self>) {
        let consumer = this.state.with(|state| {
            state.end = Some(NtStatus::CANCELLED);
            state.waiters.end(NtStatus::CANCELLED);
            if let Some(hold) = &state.hold {
                hold.end();
            }
            state.consumer.take()
        });
        if let Some(consumer) = consumer {
            consumer.cq().close();
        }
        this.report();
    }

    /// The adapter is gone.
    pub fn removed(&self) {
        self.state.with(|state| {
            state.end = Some(NtStatus::DEVICE_REMOVED);
            state.waiters.end(NtStatus::DEVICE_REMOVED);
        });
        self.report();
    }
}

/// A processor as a group and a set.
pub fn affinity_of(processor: u32) -> Affinity {
    let group = processor / KAFFINITY::BITS;
    Affinity { group: u16::try_from(group).unwrap_or(0), mask: 1 << (processor % KAFFINITY::BITS) }
}

impl<P: OverlappedOs> back_end::Part<Engine<P>> for Owned<P> {
    fn adapter(&self) -> &Arc<AdapterCore<P>> {
        &self.core.adapter
    }
}

impl<P: OverlappedOs> back_end::Requests<Engine<P>> for Owned<P> {
    fn file(&self) -> &Arc<P::File> {
        &self.core.file
    }

    fn cancel(&self) -> Result<(), NtStatus> {
        self.core.cancel();
        Ok(())
    }
}

impl<P: OverlappedOs> back_end::CompletionQueue<Engine<P>> for Owned<P> {
    fn affinity(&self) -> Result<Affinity, NtStatus> {
        self.core.adapter.device().check_present()?;
        Ok(affinity_of(self.core.processor))
    }

    fn resize(&self, depth: u32) -> Result<(), NtStatus> {
        self.core.resize(&self.cq, depth)
    }

    unsafe fn notify(&self, kind: u32, overlapped: NonNull<OVERLAPPED>) -> NtStatus {
        let Some(kind) = Kind::from_value(kind) else { return NtStatus::INVALID_PARAMETER };
        // SAFETY: no request is outstanding on `overlapped`, which the client keeps until this one ends (the trait's `# Safety`).
        unsafe { Core::notify(&self.core, kind, overlapped) }
    }

    fn take(&self, most: usize, mut each: impl FnMut(ND2_RESULT)) -> usize {
        Core::take(&self.core, most, |completion| each(result(completion)))
    }
}
