//! One process: its objects, what it may take, and its end.

use alloc::boxed::Box;
use core::{
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering},
};

use engine::{
    connection::Owner,
    os::{Os, SpinLock},
};
use fallible::{Arc, try_slice};
use nd2::{
    Account, Charge, Client, Device, Exhausted, Item, Registration,
    abi::{HRESULT, IND2CompletionQueueVtbl, OVERLAPPED},
};
use ndkpi::NtStatus;

use crate::{
    Call, Request, Server, System,
    handles::{Com, Handles, Interface, Kind, Object},
    wire::{Handle, Verb, begin},
};

/// The longest input of a verb that pends: an address, private data, and some numbers.
const LONGEST_INPUT: usize = 2048;

/// Bytes that a session takes, without its objects.
const SESSION: u64 = 1024;

/// Bytes that a request takes that pends, without its input: the call, its request of the system, and its place in a list of an object.
const CALL: u64 = 1024;

struct State {
    handles: Handles,
    /// No more objects: the process has gone, or the driver is going.
    ended: bool,
}

/// What the driver has of one process.
pub struct Session<S: System> {
    system: S,
    account: Arc<Account>,
    _charges: [Charge; 2],
    /// For the table of handles.
    table: Charge,
    state: <S::Os as Os>::Lock<State>,
    /// The system wanted pages back whose region had no handle any more.
    revoked: AtomicBool,
}

impl<S: System> Session<S> {
    /// A session without objects, of the process with this account.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, also at a limit of the process.
    pub fn try_new(system: &S, account: &Arc<Account>) -> Result<Arc<Self>, NtStatus> {
        let charges = [charge(system, account, Item::Sessions, 1)?, charge(system, account, Item::Memory, SESSION)?];
        let table = charge(system, account, Item::Memory, 0)?;
        let state = system.os().lock(State { handles: Handles::default(), ended: false })?;
        let (system, account, revoked) = (system.clone(), account.clone(), AtomicBool::new(false));
        Arc::try_new(Self { system, account, _charges: charges, table, state, revoked }).map_err(Into::into)
    }

    pub(crate) const fn system(&self) -> &S {
        &self.system
    }

    /// Who listings say that its connections belong to.
    pub(crate) fn owner(&self) -> Owner {
        Owner { process: Some(self.account.client()) }
    }

    /// Whom objects are made for.
    pub(crate) fn client(&self) -> Client {
        Client { owner: self.owner(), account: Some(self.account.clone()) }
    }

    /// What its process has taken, by all its sessions together.
    #[must_use]
    pub const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Charges for one more call with so many bytes of input, and for the bytes that it locks.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES` at a limit.
    pub(crate) fn charge_call(&self, input: usize, locked: u64) -> Result<[Charge; 3], NtStatus> {
        let amounts = [(Item::Requests, 1), (Item::Memory, CALL + input as u64), (Item::Locked, locked)];
        let [calls, memory, locked] = amounts.map(|(item, amount)| charge(&self.system, &self.account, item, amount));
        Ok([calls?, memory?, locked?])
    }

    /// Carries out a control code. `PASSIVE_LEVEL`.
    ///
    /// Whatever it asks for is checked; the request is completed now or when what it waits for has happened.
    pub fn serve(this: &Arc<Self>, code: u32, mut request: S::Request) {
        let served = match Verb::from_code(code) {
            Some(Verb::RegisterReadable) => return Self::register(this, request, false),
            Some(Verb::RegisterWritable) => return Self::register(this, request, true),
            Some(
                verb @ (Verb::Notify
                | Verb::NotifyShared
                | Verb::Registered
                | Verb::Deregister
                | Verb::Connect
                | Verb::CompleteConnect
                | Verb::Accept
                | Verb::NotifyDisconnect
                | Verb::Disconnect
                | Verb::GetConnectionRequest),
            ) => return Self::pend(this, verb, request),
            Some(verb) => this.answer(verb, &mut request),
            None => Err(NtStatus::INVALID_DEVICE_REQUEST),
        };
        match served {
            Ok(information) => request.complete(NtStatus::SUCCESS, information),
            Err(status) => request.complete(status, 0),
        }
    }

    /// A verb that ends at once. Returns the bytes that were written to the output.
    fn answer(&self, verb: Verb, request: &mut S::Request) -> Result<usize, NtStatus> {
        match verb {
            Verb::Addresses => self.addresses(request),
            Verb::Open => self.open(request),
            Verb::Close => self.close(request),
            Verb::Query => self.query(request),
            Verb::Cancel => self.cancel(request),
            Verb::CreateCompletionQueue => self.create_completion_queue(request),
            Verb::Affinity => self.affinity(request),
            Verb::Resize => self.resize(request),
            Verb::Results => self.results(request),
            Verb::CreateRegion => self.create_region(request),
            Verb::Tokens => self.tokens(request),
            Verb::CreateWindow => self.create_window(request),
            Verb::WindowToken => self.window_token(request),
            Verb::CreateSharedReceiveQueue => self.create_shared_receive_queue(request),
            Verb::Modify => self.modify(request),
            Verb::CreateQueuePair => self.create_queue_pair(request),
            Verb::CreateQueuePairWithShared => self.create_queue_pair_with_shared(request),
            Verb::Flush => self.flush(request),
            Verb::Send | Verb::SendAndInvalidate | Verb::Receive | Verb::ReceiveShared | Verb::Read | Verb::Write => {
                self.post(verb, request)
            }
            Verb::Bind => self.bind(request),
            Verb::Invalidate => self.invalidate(request),
            Verb::CreateConnector => self.create_connector(request),
            Verb::CreateListener => self.create_listener(request),
            Verb::BindConnector | Verb::BindListener => self.bind_address(verb, request),
            Verb::Listen => self.listen(request),
            Verb::Reject => self.reject(request),
            Verb::ReadLimits => self.read_limits(request),
            Verb::PrivateData => self.private_data(request),
            Verb::LocalAddress | Verb::PeerAddress => self.address(verb, request),
            // Those of a file, and those that pend.
            Verb::Begin
            | Verb::Join
            | Verb::Notify
            | Verb::NotifyShared
            | Verb::RegisterReadable
            | Verb::RegisterWritable
            | Verb::Registered
            | Verb::Deregister
            | Verb::Connect
            | Verb::CompleteConnect
            | Verb::Accept
            | Verb::NotifyDisconnect
            | Verb::Disconnect
            | Verb::GetConnectionRequest => Err(NtStatus::INVALID_DEVICE_REQUEST),
        }
    }

    /// A verb that pends.
    fn pend(this: &Arc<Self>, verb: Verb, request: S::Request) {
        // A copy: when the request is cancelled its own bytes are gone.
        let input = match copy(request.input()) {
            Ok(input) => input,
            Err(status) => return request.answer(status),
        };
        // The handle of an object comes first. An input without one is refused by its method.
        let object = begin::<Handle>(&input).map_or(0, |(first, _)| first.object.get());
        let call = match Call::try_new(this, object, input.len(), None) {
            Ok(call) => call,
            Err(status) => return request.answer(status),
        };
        if Call::begin(&call, request).is_err() {
            return;
        }
        let overlapped = Call::into_overlapped(call.clone());
        let result = this.begin(verb, &input, overlapped);
        if result.is_pending() {
            return call.waits();
        }
        // SAFETY: the method did not pend, so nobody else has the reference.
        drop(unsafe { Call::<S>::from_overlapped(overlapped) });
        call.answer(result.to_status());
    }

    fn begin(&self, verb: Verb, input: &[u8], overlapped: *mut OVERLAPPED) -> HRESULT {
        let result = match verb {
            Verb::Notify => self.notify(input, overlapped),
            Verb::NotifyShared => self.notify_shared(input, overlapped),
            Verb::Registered => self.registered(input, overlapped),
            Verb::Deregister => self.deregister(input, overlapped),
            Verb::Connect => self.connect(input, overlapped),
            Verb::Accept => self.accept(input, overlapped),
            Verb::GetConnectionRequest => self.connection_request(input, overlapped),
            verb => self.of_connection(verb, input, overlapped),
        };
        result.unwrap_or_else(HRESULT::of)
    }

    /// The object with a handle.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_HANDLE` if the process has none of that kind.
    pub(crate) fn object<T: Interface>(&self, handle: u64) -> Result<Object<T>, NtStatus> {
        self.state.with(|state| state.handles.get(handle)).ok_or(NtStatus::INVALID_HANDLE)
    }

    /// [`Session::object`] for an argument, which may be zero: no object, and the method says what it thinks of that.
    pub(crate) fn argument<T: Interface>(&self, handle: u64) -> Result<Option<Object<T>>, NtStatus> {
        if handle == 0 { Ok(None) } else { self.object(handle).map(Some) }
    }

    pub(crate) fn any(&self, handle: u64) -> Result<(Kind, Com), NtStatus> {
        self.state.with(|state| state.handles.any(handle)).ok_or(NtStatus::INVALID_HANDLE)
    }

    /// Gives a new object a handle.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_CANCELLED` if the session has ended.
    pub(crate) fn insert(&self, kind: Kind, object: Com) -> Result<u64, NtStatus> {
        let inserted = self.state.with(|state| {
            if state.ended {
                return Err((NtStatus::CANCELLED, object));
            }
            state.handles.insert(kind, object).map(|handle| (handle, state.handles.bytes()))
        });
        let (handle, bytes) = inserted.map_err(|(status, object)| {
            drop(object);
            status
        })?;
        self.table.raise(bytes).map_err(|exhausted| {
            drop(self.remove(handle));
            refuse(&self.system, exhausted)
        })?;
        Ok(handle)
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Com> {
        self.state.with(|state| state.handles.remove(handle))
    }

    /// Ends a registration whose pages the system wants back. If windows keep it, everything ends. `IRQL <= DISPATCH_LEVEL`.
    pub(crate) fn revoke(&self, region: u64, registration: &Registration<Server<S>>) {
        let object = self.state.with(|state| state.handles.any(region));
        let is_revoked = if let Some((_, object)) = object {
            // SAFETY: the object is one of `nd2`, and held.
            unsafe { nd2::revoke(object.as_ptr(), registration) }
        } else {
            // Without a handle nothing but windows keeps it, or a bind that is just being posted.
            self.revoked.store(true, Ordering::SeqCst);
            !registration.is_kept_by_windows()
        };
        if !is_revoked {
            self.end();
        }
    }

    /// A bind to the region with this handle has been posted. If the region was released meanwhile, and the system wants the pages of
    /// such a one back, [`Session::revoke`] has not seen the bind.
    pub(crate) fn bound(&self, region: u64) {
        if self.revoked.load(Ordering::SeqCst) && self.any(region).is_err() {
            self.end();
        }
    }

    /// Cancels a request that waits at the object with this handle. Without the object it has ended. `IRQL <= DISPATCH_LEVEL`.
    pub(crate) fn cancel_one(&self, object: u64, overlapped: NonNull<OVERLAPPED>) {
        if let Ok((_, object)) = self.any(object) {
            // SAFETY: the object is one of `nd2`, and held.
            unsafe { nd2::cancel_one::<Server<S>>(object.as_ptr(), overlapped) };
        }
    }

    /// Lets a completion queue fail as broken hardware would. For tests.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_HANDLE` if the process has no such queue.
    pub fn break_completion_queue(&self, queue: u64) -> Result<(), NtStatus> {
        let queue: Object<IND2CompletionQueueVtbl> = self.object(queue)?;
        // SAFETY: the queue is held.
        unsafe { Device::<Server<S>>::break_completion_queue(queue.as_ptr()) }
    }

    /// Releases every object, for good. What pends ends with `STATUS_CANCELLED`; registrations end when nothing uses their bytes.
    /// May be called again. `IRQL <= DISPATCH_LEVEL`.
    pub fn end(&self) {
        self.state.with(|state| state.ended = true);
        for kind in Kind::ALL {
            let mut from = 0;
            // Dropped when the lock is released, one after the other.
            while let Some(object) = self.state.with(|state| state.handles.remove_one(kind, &mut from)) {
                drop(object);
            }
        }
    }
}

/// Tells who watches that a process has no more of something.
fn refuse(system: &impl System, exhausted: Exhausted) -> NtStatus {
    system.limit_reached(exhausted.name, exhausted.most);
    NtStatus::INSUFFICIENT_RESOURCES
}

/// Charges a process for something that is none of an adapter.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`.
pub fn charge(system: &impl System, account: &Arc<Account>, item: Item, amount: u64) -> Result<Charge, NtStatus> {
    Charge::try_new(Some(account), item, amount, 0).map_err(|exhausted| refuse(system, exhausted))
}

fn copy(input: &[u8]) -> Result<Box<[u8]>, NtStatus> {
    if input.len() > LONGEST_INPUT {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    try_slice(input.len(), |index| input[index]).map_err(Into::into)
}
