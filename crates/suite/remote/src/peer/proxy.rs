//! A proxy: what a consumer here takes for an object of the other machine's adapter.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use fallible::{Arc, try_box};
use ndkpi::{
    GUID, NDK_CQ, NDK_EXTENSION_INTERFACE, NDK_FN_CLOSE_COMPLETION, NDK_FN_CONNECT_EVENT_CALLBACK,
    NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION, NDK_FN_DISCONNECT_EVENT_CALLBACK,
    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_VERSION,
    NtStatus, Object,
};

use super::{
    link::{Excuse, Known, Link},
    mirror::Mirror,
    request::{self, LamPlaces},
};
use crate::{
    lock::Lock,
    wire::{Answer, Call, Function},
};

/// A callback of an object's own.
#[derive(Clone, Copy)]
pub enum Own {
    /// There is none.
    None,
    /// Of a completion queue or a shared receive queue: both have one type.
    Notify(NDK_FN_CQ_NOTIFICATION_CALLBACK, *mut c_void),
    /// Of a listener.
    Connect(NDK_FN_CONNECT_EVENT_CALLBACK, *mut c_void),
    /// Of a connector.
    Disconnect(NDK_FN_DISCONNECT_EVENT_CALLBACK, *mut c_void),
    /// Of a connector, with a reason.
    DisconnectEx(NDK_FN_DISCONNECT_EVENT_CALLBACK_EX, *mut c_void),
}

/// The completion of a close.
#[derive(Clone, Copy)]
pub struct Ending {
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
}

impl Ending {
    /// Makes it.
    ///
    /// # Safety
    ///
    /// The object is closed, and this was not called for it.
    pub unsafe fn complete(self) {
        if let Some(completion) = self.completion {
            // SAFETY: the consumer gave the callback and its context for this close (`# Safety`).
            unsafe { completion(self.context) };
        }
    }
}

/// The antecedents of an object that are remembered: a queue pair has four, and a window the last regions it was bound to.
const ANTECEDENTS: usize = 6;

/// A proxy. It begins with the structure of its object; all of them have one shape (`NDKPI 3.4`).
#[repr(C)]
pub struct Proxy {
    public: UnsafeCell<NDK_CQ>,
    /// The next in the list of those that are to be closed.
    pub next: AtomicPtr<Self>,
    link: Arc<Link>,
    kind: NDK_OBJECT_TYPE,
    version: NDK_VERSION,
    cookie: AtomicU64,
    handle: AtomicU64,
    made: AtomicBool,
    closes: AtomicBool,
    /// Its close is complete on the other machine.
    closed: AtomicBool,
    /// What events name its antecedents by (`NDKPI 7.9`).
    antecedents: Lock<[u64; ANTECEDENTS]>,
    own: Lock<Own>,
    creation: Option<(NDK_FN_CREATE_COMPLETION, *mut c_void)>,
    ending: UnsafeCell<Ending>,
    mirror: Lock<Option<Arc<Mirror>>>,
}

#[expect(clippy::non_send_fields_in_send_ty, reason = "the contexts are for the threads that make the callbacks")]
// SAFETY: what is not a lock or an atomic is set before the proxy is shared, or by its close, which nothing runs beside
// (`NDKPI 7.9`). The contexts belong to callbacks that any thread may make.
unsafe impl Send for Proxy {}
// SAFETY: as for `Send`.
unsafe impl Sync for Proxy {}

impl Proxy {
    /// A proxy for an object that is yet to be made.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(
        link: &Arc<Link>,
        kind: NDK_OBJECT_TYPE,
        version: NDK_VERSION,
        table: *const c_void,
        own: Own,
        creation: Option<(NDK_FN_CREATE_COMPLETION, *mut c_void)>,
    ) -> Result<Box<Self>, NtStatus> {
        let mut public = NDK_CQ::new(version, table.cast());
        public.Header.ObjectType = kind;
        let ending = Ending { completion: None, context: ptr::null_mut() };
        let proxy = Self {
            public: UnsafeCell::new(public),
            next: AtomicPtr::new(ptr::null_mut()),
            link: link.clone(),
            kind,
            version,
            cookie: AtomicU64::new(0),
            handle: AtomicU64::new(0),
            made: AtomicBool::new(false),
            closes: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            antecedents: Lock::new([0; ANTECEDENTS]),
            own: Lock::new(own),
            creation,
            ending: UnsafeCell::new(ending),
            mirror: Lock::new(None),
        };
        Ok(try_box(proxy)?)
    }

    /// The proxy of an object.
    ///
    /// # Safety
    ///
    /// `object` is a proxy that is open, and not closed as long as the result is used.
    pub unsafe fn of<'a, T>(object: *mut T) -> &'a Self {
        // SAFETY: the caller gives an open proxy (`# Safety`); `public` is its first field.
        unsafe { &*object.cast_const().cast::<Self>() }
    }

    /// The link.
    pub const fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The version in force.
    pub const fn version(&self) -> NDK_VERSION {
        self.version
    }

    /// What events name it by.
    pub fn cookie(&self) -> u64 {
        self.cookie.load(Acquire)
    }

    /// Sets what events name it by.
    pub fn set_cookie(&self, cookie: u64) {
        self.cookie.store(cookie, Release);
    }

    /// The handle on the other machine.
    pub fn handle(&self) -> u64 {
        self.handle.load(Acquire)
    }

    /// It is made, with this handle.
    pub fn set_made(&self, handle: u64) {
        self.handle.store(handle, Release);
        self.made.store(true, Release);
    }

    /// Returns true if it is made.
    pub fn is_made(&self) -> bool {
        self.made.load(Acquire)
    }

    /// Returns true if its close has begun.
    pub fn closes(&self) -> bool {
        self.closes.load(Acquire)
    }

    /// Its close is complete on the other machine, and waits for those of its successors here.
    pub fn set_closed(&self) {
        self.closed.store(true, Release);
    }

    /// Returns true if its close is complete on the other machine.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// It depends on an object from now on, or may do so. The caller may wait.
    pub fn depend_on(&self, antecedent: u64) {
        let Some(ends) = self.link.ends() else { return };
        let mut known = self.antecedents.lock(ends.platform());
        if !known.contains(&antecedent) {
            // The last to be forgotten are the first: those that it was made with.
            let place = known.iter().position(|place| *place == 0).unwrap_or(ANTECEDENTS - 1);
            known[place] = antecedent;
        }
    }

    /// What it depends on.
    pub fn antecedents(&self) -> [u64; ANTECEDENTS] {
        self.link.ends().map_or([0; ANTECEDENTS], |ends| *self.antecedents.lock(ends.platform()))
    }

    /// Its own callback.
    pub const fn own(&self) -> &Lock<Own> {
        &self.own
    }

    /// The completion of its creation, if that can pend.
    pub const fn creation(&self) -> Option<(NDK_FN_CREATE_COMPLETION, *mut c_void)> {
        self.creation
    }

    /// What is registered.
    pub const fn mirror(&self) -> &Lock<Option<Arc<Mirror>>> {
        &self.mirror
    }

    /// The completion of its close.
    ///
    /// # Safety
    ///
    /// The close has begun.
    pub unsafe fn ending(&self) -> Ending {
        // SAFETY: nobody writes it after the close has begun (`# Safety`).
        unsafe { *self.ending.get() }
    }

    /// Begins a call of one of its functions. The caller may wait.
    ///
    /// # Errors
    ///
    /// It may not, or there is no memory.
    pub fn begin(&self, function: Function) -> Result<Outgoing, NtStatus> {
        drop(self.link.may_wait()?);
        let (link, call) = (self.link.clone(), Call::try_new(function, self.handle())?);
        Ok(Outgoing { link, call, version: self.version, antecedents: [self.cookie(), 0, 0, 0] })
    }
}

/// An object that a call names.
#[derive(Clone, Copy)]
pub struct Named {
    /// Its handle on the other machine.
    pub handle: u64,
    /// What events name it by.
    pub cookie: u64,
}

/// The object that a call names, of one of these kinds.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if it is none of the same link.
pub fn named<T>(link: &Link, object: *mut T, kinds: &[NDK_OBJECT_TYPE]) -> Result<Named, NtStatus> {
    let ends = link.may_wait()?;
    let known = link.known.lock(ends.platform());
    let object: *mut Proxy = object.cast();
    let is_it = |known: &Known| matches!(known, Known::Object(proxy) if *proxy == object);
    known.iter().find(|(_, known)| is_it(known)).ok_or(NtStatus::INVALID_PARAMETER)?;
    // SAFETY: the pointer is in the table, so it is a proxy that is not closed.
    let proxy = unsafe { &*object };
    if !kinds.contains(&proxy.kind) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(Named { handle: proxy.handle(), cookie: proxy.cookie() })
}

/// What a function returns.
pub fn flat(outcome: Result<NtStatus, NtStatus>) -> NtStatus {
    outcome.unwrap_or_else(|status| status)
}

/// A call that is put together.
pub struct Outgoing {
    /// The link, which outlives the call whatever becomes of the object.
    pub link: Arc<Link>,
    call: Call,
    version: NDK_VERSION,
    /// What an object that the call creates depends on: that whose function it is, and what it names.
    antecedents: [u64; 4],
}

impl Outgoing {
    /// With an argument.
    pub fn word(mut self, index: usize, value: impl Into<u64>) -> Self {
        self.call = self.call.word(index, value);
        self
    }

    /// With a context or an address, as a word.
    pub fn pointer<T>(self, index: usize, value: *const T) -> Self {
        self.word(index, value.addr() as u64)
    }

    /// With an object that what the call creates depends on.
    pub fn antecedent(mut self, index: usize, named: Named) -> Self {
        if let Some(place) = self.antecedents.iter_mut().find(|place| **place == 0) {
            *place = named.cookie;
        }
        self.word(index, named.handle)
    }

    /// With a bit that says whether something is there.
    pub fn given(mut self, bit: u32, given: bool) -> Self {
        self.call = self.call.given(bit, given);
        self
    }

    /// With more bytes.
    ///
    /// # Errors
    ///
    /// They do not fit.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), NtStatus> {
        if self.call.append(bytes) {
            return Ok(());
        }
        self.link.excuse(Excuse::TooLong);
        Err(NtStatus::NOT_SUPPORTED)
    }

    /// Appends as many bytes as fit.
    pub fn append_some(&mut self, bytes: &[u8]) {
        let room = self.call.room().min(bytes.len());
        let _ = self.call.append(&bytes[..room]);
    }

    /// Makes the call.
    ///
    /// # Errors
    ///
    /// It was not carried out.
    pub fn send(mut self) -> Result<Answer, NtStatus> {
        self.link.send(&mut self.call)
    }

    /// Makes the call of a request.
    ///
    /// # Errors
    ///
    /// It was not carried out.
    pub fn request(
        self,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
    ) -> Result<NtStatus, NtStatus> {
        request::request(&self.link, self.call, completion, context, None)
    }

    /// Makes the call of a request for a mapping.
    ///
    /// # Errors
    ///
    /// It was not carried out.
    pub fn request_lam(
        self,
        completion: Option<NDK_FN_REQUEST_COMPLETION>,
        context: *mut c_void,
        lam: LamPlaces,
    ) -> Result<NtStatus, NtStatus> {
        request::request(&self.link, self.call, completion, context, Some(lam))
    }

    /// Makes the call of a creation.
    ///
    /// # Safety
    ///
    /// `place` is null or valid for writing, and `table` is that of `T`.
    ///
    /// # Errors
    ///
    /// It was not carried out.
    pub unsafe fn create<T: Object>(
        self,
        table: &'static T::Dispatch,
        own: Own,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        place: *mut *mut T,
    ) -> Result<NtStatus, NtStatus> {
        let completion = completion.ok_or(NtStatus::INVALID_PARAMETER)?;
        if place.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let Self { link, call, version, antecedents } = self;
        let table = ptr::from_ref(table).cast();
        let proxy = Proxy::try_new(&link, T::OBJECT_TYPE, version, table, own, Some((completion, context)))?;
        for antecedent in antecedents.into_iter().filter(|antecedent| *antecedent != 0) {
            proxy.depend_on(antecedent);
        }
        let ends = link.may_wait()?;
        let (proxy, cookie) = share(&link, proxy)?;
        let answer = link.send(&mut call.cookie(cookie));
        if let Ok(answer) = &answer
            && answer.status() == NtStatus::PENDING
        {
            return Ok(NtStatus::PENDING);
        }
        let mut known = link.known.lock(ends.platform());
        if known.get(cookie).is_none() {
            // The channel died while the call was made, and the pump has completed the creation for that.
            return Ok(NtStatus::PENDING);
        }
        if let Ok(answer) = &answer
            && answer.status().is_success()
        {
            // SAFETY: the proxy is in the table, so nobody has freed it.
            unsafe { (*proxy).set_made(answer.word(0)) };
            drop(known);
            // SAFETY: the place is valid for writing (`# Safety`).
            unsafe { place.write(proxy.cast()) };
            return Ok(answer.status());
        }
        known.remove(cookie);
        drop(known);
        // SAFETY: the proxy came from a box, and was taken out of the only place that knew it.
        drop(unsafe { Box::from_raw(proxy) });
        answer.map(|answer| answer.status())
    }
}

/// Gives a proxy its number.
///
/// # Errors
///
/// `STATUS_INSUFFICIENT_RESOURCES`.
pub fn share(link: &Link, proxy: Box<Proxy>) -> Result<(*mut Proxy, u64), NtStatus> {
    let ends = link.may_wait()?;
    let proxy = Box::into_raw(proxy);
    let mut known = link.known.lock(ends.platform());
    match known.insert(Known::Object(proxy)) {
        Ok(cookie) => {
            // SAFETY: the proxy is in the table, and its creation is not answered yet.
            unsafe { (*proxy).set_cookie(cookie) };
            Ok((proxy, cookie))
        }
        Err(status) => {
            // SAFETY: the proxy came from a box, and nobody else knows it.
            drop(unsafe { Box::from_raw(proxy) });
            Err(status)
        }
    }
}

/// `NDK_FN_CLOSE_OBJECT` of every proxy. It always pends: its completion is behind all other callbacks of the object.
///
/// # Safety
///
/// As NDKPI 5.1 says: the object is open, and no call on it begins any more.
pub unsafe extern "system" fn close(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    let proxy: *mut Proxy = object.cast();
    // SAFETY: the proxy is open, and nobody else closes it (`# Safety`).
    let link = unsafe {
        (*(*proxy).ending.get()) = Ending { completion, context };
        (*proxy).closes.store(true, Release);
        (*proxy).link.clone()
    };
    let waits = link.dead().is_none() && link.ends().is_some_and(|ends| ends.channel().may_wait());
    // SAFETY: as before. The completion can come as soon as the call is made, and the proxy is gone then.
    if !waits || unsafe { call_close(&link, proxy) }.is_err() {
        link.close_later(proxy);
    }
    NtStatus::PENDING
}

/// Calls the close of an object on the other machine.
///
/// # Safety
///
/// Its close has begun, and was not called.
pub unsafe fn call_close(link: &Link, proxy: *mut Proxy) -> Result<(), NtStatus> {
    // SAFETY: the proxy is not freed before its close was called (`# Safety`).
    let (handle, cookie) = unsafe { ((*proxy).handle(), (*proxy).cookie()) };
    link.send(&mut Call::try_new(Function::Close, handle)?.cookie(cookie)).map(drop)
}

/// `NDK_FN_QUERY_EXTENSION_INTERFACE` of every proxy: what the other machine says, but that a table of functions there is of no use
/// here.
///
/// # Safety
///
/// As NDKPI 5.1 says.
pub unsafe extern "system" fn query_extension(
    object: *mut NDK_OBJECT_HEADER,
    id: *const GUID,
    version: NDK_VERSION,
    interface: *mut NDK_EXTENSION_INTERFACE,
) -> NtStatus {
    if id.is_null() || interface.is_null() {
        return NtStatus::INVALID_PARAMETER;
    }
    // SAFETY: the object is open (`# Safety`).
    let proxy = unsafe { Proxy::of(object) };
    // SAFETY: the identifier is valid for the call (`# Safety`).
    let digits = unsafe { id.read() }.to_u128();
    let asked = proxy.begin(Function::QueryExtension).and_then(|call| {
        let version = u64::from(version.Major) << 16 | u64::from(version.Minor);
        let answer = call.word(0, (digits >> 64) as u64).word(1, digits as u64).word(2, version).send()?;
        Ok(answer.status())
    });
    match asked {
        Ok(status) if status.is_success() => {
            proxy.link.excuse(Excuse::Extension);
            NtStatus::NOT_SUPPORTED
        }
        asked => flat(asked),
    }
}
