//! The requests of clients: each has an IRP, which Winsock Kernel completes whatever comes of it, in the call or later, as the seed says.

use std::sync::{Arc, Mutex};

use host::machine::Irql;
use litemap::LiteMap;
use ndis::IRP;
use ndkpi::NtStatus;
use wdk_bindings::{NTSTATUS, PDRIVER_CANCEL, PIRP};

use crate::{
    context::NOBODY,
    pins::Pin,
    pool,
    report::bug_check,
    routine::{Limit, carry_out},
    rule::Rule,
    state::{self, Part, State},
    wdm::io::{cancel::IoReleaseCancelSpinLock, device::Device, request::Request},
};

/// A request of which the call has not returned.
#[must_use = "an IRP that is not completed is lost"]
pub struct Call {
    request: Arc<Request>,
    socket: Option<usize>,
    pin: Option<u64>,
}

/// A request that is completed later.
#[must_use = "an IRP that is not completed is lost"]
pub struct Pended {
    /// No other request has it.
    pub number: u64,
    call: Call,
}

/// The requests that are not complete.
#[derive(Default)]
pub struct PendedRequests {
    /// How many each socket has.
    counts: LiteMap<usize, u32>,
    /// Their numbers, by the addresses of their IRPs.
    numbers: LiteMap<usize, u64>,
}

impl Part for Mutex<PendedRequests> {}

/// Carries out a function of Winsock Kernel.
pub fn function<R>(name: &'static str, work: impl FnOnce(&Arc<State>) -> R) -> R {
    carry_out(name, &Limit::at(Irql::DISPATCH_LEVEL), work)
}

/// Flags that are the system's must be zero.
pub fn no_flags(flags: u32, routine: &str) {
    if flags != 0 {
        bug_check(Rule::BadArgument, format_args!("{routine} with the flags {flags:#x}, which are reserved"));
    }
}

#[expect(clippy::cast_possible_wrap, reason = "a status is the same bits")]
const fn raw(status: NtStatus) -> NTSTATUS {
    status.to_bits() as NTSTATUS
}

impl Call {
    /// Takes the IRP of a call.
    pub fn new(state: &State, device: &Arc<Device>, irp: *mut IRP, routine: &str) -> Self {
        Self { request: state.take_irp(irp.cast(), device, routine), socket: None, pin: None }
    }

    /// It is a request of a socket, which is not closed before it is complete.
    pub const fn of(mut self, socket: usize) -> Self {
        self.socket = Some(socket);
        self
    }

    /// The request needs memory until it is complete.
    pub fn pin(&mut self, state: &State, pin: Pin) {
        self.pin = Some(state.pin(pin));
    }

    /// Completes it now. What the function returns.
    pub fn end_now(self, state: &Arc<State>, status: NtStatus, information: usize) -> NtStatus {
        if let Some(pin) = self.pin {
            state.unpin(pin);
        }
        state.finish_irp(&self.request, raw(status), information);
        status
    }

    /// It is completed later.
    pub fn pend(self, state: &State) -> Pended {
        self.pend_with(state, None)
    }

    /// It is completed later, and may be cancelled before.
    pub fn pend_with(self, state: &State, cancel: PDRIVER_CANCEL) -> Pended {
        let number = state.next();
        {
            let mut requests = state.locked::<PendedRequests>();
            if let Some(socket) = self.socket {
                *requests.counts.entry(socket).or_default() += 1;
            }
            requests.numbers.insert(self.request.address, number);
        }
        state.pend_irp(&self.request, cancel);
        Pended { number, call: self }
    }

    /// Completes it, now or later. What the function returns.
    pub fn end(self, state: &Arc<State>, status: NtStatus, information: usize) -> NtStatus {
        self.end_with(state, status, information, || ())
    }

    /// As [`Call::end`], after something that is part of the request.
    pub fn end_with(
        self,
        state: &Arc<State>,
        status: NtStatus,
        information: usize,
        work: impl FnOnce() + Send + 'static,
    ) -> NtStatus {
        if state.at_once() {
            work();
            return self.end_now(state, status, information);
        }
        let pended = self.pend(state);
        state.after(state.a_while(), move |state| {
            work();
            pended.end(state, status, information);
        });
        NtStatus::PENDING
    }
}

/// A client has cancelled a request, and `work` takes it out of its list, if it is still there, a little later. The cancel spin lock is held,
/// as in any cancel routine.
pub fn cancelled(irp: PIRP, work: fn(&Arc<State>, u64)) {
    let state = state::current();
    // SAFETY: an IRP that is not complete, for who completes it takes the cancel routine away under the lock.
    let before = unsafe { (*irp).CancelIrql };
    let number = state.locked::<PendedRequests>().numbers.get(&irp.addr()).copied();
    IoReleaseCancelSpinLock(before);
    if let Some(number) = number {
        state.after(state.a_while(), move |state| work(state, number));
    }
}

/// The tag of what Winsock Kernel allocates.
const TAG: u32 = u32::from_ne_bytes(*b"Wsk ");

/// A block of Winsock Kernel's own.
pub fn block(size: usize) -> usize {
    let block = pool::allocate(NOBODY, size.max(1), TAG, false);
    block.unwrap_or_else(|| bug_check(Rule::NotSimulated, format_args!("no memory for Winsock Kernel")))
}

/// Frees it.
pub fn free_block(address: usize) {
    pool::free(address, Some(TAG));
}

impl Pended {
    /// Its client has cancelled it.
    pub fn is_cancelled(&self) -> bool {
        let irp = self.call.request.pointer();
        // SAFETY: an IRP that is not complete.
        unsafe { (*irp).Cancel != 0 }
    }

    /// Completes it.
    pub fn end(self, state: &Arc<State>, status: NtStatus, information: usize) {
        let socket = self.call.socket;
        // The client may use the IRP again as soon as it has it.
        state.locked::<PendedRequests>().numbers.remove(&self.call.request.address);
        let _ = self.call.end_now(state, status, information);
        if let Some(socket) = socket {
            let counts = &mut state.locked::<PendedRequests>().counts;
            if let Some(count) = counts.get_mut(&socket) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&socket);
                }
            }
        }
        state.dispatcher.signal();
    }
}

impl State {
    /// Returns true if requests of a socket are not complete.
    pub fn has_requests(&self, socket: usize) -> bool {
        self.locked::<PendedRequests>().counts.contains_key(&socket)
    }
}
