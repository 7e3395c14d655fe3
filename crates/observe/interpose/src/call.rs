//! How the functions of the tables begin and end.

use core::{ffi::c_void, ptr};

use fallible::Arc;
use ndkpi::{NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NtStatus, Object};

use crate::{
    Args, Event, Function, Hooks, ObjectRef, Outcome, Phase, RequestArgs, Verdict,
    later::{Later, Work},
    request::Request,
    shadow::{Creation, EventCallback, Root, Shadow, ShadowRef, find},
};

/// Reads a slot of the provider's table, or returns `$absent`.
macro_rules! slot {
    ($inner:expr, $slot:ident $(, $absent:expr)?) => {{
        let inner = $inner;
        // SAFETY: the provider's object is open as long as its shadow is, and the call keeps that open.
        let table = unsafe { (*inner).Dispatch };
        // SAFETY: the slot is in the table of every version; only the slot is read.
        match unsafe { (*table).$slot } {
            Some(function) => (inner, function),
            None => return $($absent)?,
        }
    }};
}
pub(crate) use slot;

/// What an event is made of. `DATA_PATH`: of a post, an arm or a poll.
pub struct EventReport<'a, H: Hooks, const DATA_PATH: bool = false> {
    root: &'a Root<H>,
    event: Event<'a, H::State>,
    /// What the hooks keep of the call.
    kept: H::Call,
}

impl<'a, H: Hooks> EventReport<'a, H> {
    /// An event of a call that begins.
    pub fn new(shadow: &'a Shadow<H>, function: Function, args: Args<'a>) -> Self {
        let call = if H::LISTENS { shadow.root.next_call() } else { 0 };
        Self::numbered(shadow, function, args, call)
    }
}

impl<'a, H: Hooks> EventReport<'a, H, true> {
    /// An event of a post, an arm or a poll that begins.
    #[inline(always)]
    pub fn of_data_path(shadow: &'a Shadow<H>, function: Function, args: Args<'a>) -> Self {
        let call = match (H::LISTENS, H::NUMBERS_ALL) {
            (false, _) => 0,
            (true, true) => shadow.root.next_call(),
            (true, false) => shadow.root.coming_call(),
        };
        Self::numbered(shadow, function, args, call)
    }
}

impl<'a, H: Hooks, const DATA_PATH: bool> EventReport<'a, H, DATA_PATH> {
    #[inline(always)]
    fn numbered(shadow: &'a Shadow<H>, function: Function, args: Args<'a>, call: u64) -> Self {
        let event = Event {
            phase: Phase::Call,
            function,
            call,
            object: shadow.object_ref(),
            related: [None; 3],
            created: None,
            args,
            request: None,
            outcome: Outcome::None,
        };
        Self { root: &shadow.root, event, kept: H::Call::default() }
    }

    /// With other objects that the function is given.
    #[inline(always)]
    pub fn with(mut self, related: [Option<&'a Shadow<H>>; 3]) -> Self {
        self.event.related = related.map(|shadow| shadow.map(Shadow::object_ref));
        self
    }

    /// With a completion.
    pub fn asks(mut self, has_completion: bool, context: *mut c_void) -> Self {
        self.event.request = Some(RequestArgs { has_completion, context: context.addr(), lacks_place: false });
        self
    }

    /// As a creation without a place for the object, if that is so.
    pub const fn lacks_place(mut self, lacks_place: bool) -> Self {
        if let Some(request) = &mut self.event.request {
            request.lacks_place = lacks_place;
        }
        self
    }

    /// As part of another call.
    pub const fn of_call(mut self, call: u64) -> Self {
        self.event.call = call;
        self
    }

    /// With the object that came about.
    pub const fn created(mut self, created: Option<ObjectRef<'a, H::State>>) -> Self {
        self.event.created = created;
        self
    }

    /// The number of the call.
    pub const fn number(&self) -> u64 {
        self.event.call
    }

    /// The event as it is.
    pub const fn event(&self) -> &Event<'a, H::State> {
        &self.event
    }

    /// Tells the hooks.
    #[inline(always)]
    pub fn tell(&mut self, phase: Phase, outcome: Outcome) -> Verdict {
        if !H::LISTENS {
            return Verdict::Forward;
        }
        self.event.phase = phase;
        self.event.outcome = outcome;
        let (hooks, event, kept) = (&self.root.hooks, &self.event, &mut self.kept);
        if DATA_PATH { hooks.data_path(event, kept) } else { hooks.event(event, kept) }
    }

    /// Tells the hooks of the call. `Err` if it is to be refused.
    #[inline(always)]
    pub fn begin(&mut self) -> Result<Verdict, NtStatus> {
        match self.tell(Phase::Call, Outcome::None) {
            Verdict::Refuse(status) => {
                self.tell(Phase::Return, Outcome::Status(status));
                Err(status)
            }
            verdict => Ok(verdict),
        }
    }

    /// Tells the hooks of the return, with other arguments.
    #[inline(always)]
    pub fn end_with(&mut self, args: Args<'a>, outcome: Outcome) {
        self.event.args = args;
        self.tell(Phase::Return, outcome);
    }

    /// Tells the hooks of the return.
    #[inline(always)]
    pub fn end(&mut self, outcome: Outcome) {
        self.tell(Phase::Return, outcome);
    }
}

/// A function that returns its outcome: `call` asks the provider.
///
/// # Safety
///
/// `public` is an object that stays open until this returns.
pub unsafe fn immediate<H: Hooks, T: Object>(
    public: *mut T,
    function: Function,
    args: Args<'_>,
    call: impl FnOnce(*mut T) -> NtStatus,
) -> NtStatus {
    // SAFETY: `public` is open for the call (`# Safety`).
    let shadow = match unsafe { find::<H, T>(public, function) } {
        Ok(shadow) => shadow,
        Err(status) => return status,
    };
    let mut report = EventReport::new(shadow, function, args);
    if let Err(status) = report.begin() {
        return status;
    }
    let status = call(shadow.inner());
    report.end(Outcome::Status(status));
    status
}

/// Holds other objects of a call, which may be closed inside its completion.
fn hold<H: Hooks>(related: [Option<&Shadow<H>>; 3]) -> [Option<ShadowRef<H>>; 3] {
    // SAFETY: the consumer passes open objects.
    related.map(|shadow| shadow.map(|shadow| unsafe { shadow.hold() }))
}

fn borrow<H: Hooks>(held: &[Option<ShadowRef<H>>; 3]) -> [Option<&Shadow<H>>; 3] {
    [0, 1, 2].map(|index| held[index].as_deref())
}

/// A request that may pend: `call` asks the provider, with a completion and context of this layer's.
///
/// # Safety
///
/// `public` is an object that stays open until this returns, or is closed inside the completion.
pub unsafe fn request<'a, H: Hooks, T: Object>(
    public: *mut T,
    function: Function,
    args: Args<'a>,
    related: [Option<&'a Shadow<H>>; 3],
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    call: impl FnOnce(*mut T, Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NtStatus,
) -> NtStatus {
    // SAFETY: `public` is open for the call (`# Safety`).
    let found = match unsafe { find::<H, T>(public, function) } {
        Ok(found) => found,
        Err(status) => return status,
    };
    // SAFETY: the shadow is open.
    let shadow = unsafe { found.hold() };
    let held = hold(related);
    let mut report = EventReport::new(&shadow, function, args).with(borrow(&held)).asks(completion.is_some(), context);
    let verdict = match report.begin() {
        Ok(verdict) => verdict,
        Err(status) => return status,
    };
    if completion.is_none() {
        // Nothing to wrap; it is the provider's to refuse.
        let status = call(shadow.inner(), None, context);
        report.end(Outcome::Status(status));
        return status;
    }
    let mut place = match shadow.requests.take(shadow.root.hooks.os()) {
        Ok(place) => place,
        Err(status) => {
            report.end(Outcome::Status(status));
            return status;
        }
    };
    let (delay, end_after) = match verdict {
        Verdict::Late(delay) | Verdict::Fail(_, delay) => (Some(delay), None),
        Verdict::EndAfter(delay) => (None, Some(delay)),
        _ => (None, None),
    };
    let later = place.later.take();
    *place = Request {
        shadow: Some(shadow.clone()),
        function,
        call: report.number(),
        completion,
        context,
        delay,
        end_after,
        later,
    };
    let place = alloc::boxed::Box::into_raw(place);
    let status = match verdict {
        Verdict::Fail(status, _) => status,
        _ => call(shadow.inner(), Some(requested::<H>), place.cast()),
    };
    if status == NtStatus::PENDING {
        report.end(Outcome::Status(status));
        return status;
    }
    // SAFETY: the provider has not pended, so nobody else has the place.
    if H::INTERFERES && delay.is_some() && unsafe { put_off::<H>(place, status) } {
        report.end(Outcome::Status(NtStatus::PENDING));
        return NtStatus::PENDING;
    }
    if verdict == Verdict::Early {
        // SAFETY: the provider has not pended, so it does not call back: this is the one completion.
        unsafe { requested::<H>(place.cast(), status) };
        report.end(Outcome::Status(NtStatus::PENDING));
        return NtStatus::PENDING;
    }
    // SAFETY: the provider has not pended, so nobody else has the place.
    let mut place = unsafe { alloc::boxed::Box::from_raw(place) };
    place.shadow = None;
    shadow.requests.give_back(place);
    if let (true, Some(ending), Some(delay)) = (status.is_success(), shadow.ending(), end_after) {
        ending.after(&shadow, delay);
    }
    report.end(Outcome::Status(status));
    status
}

/// Puts the completion of a request off, if it may be.
///
/// # Safety
///
/// `place` is a `Request` from `into_raw` that nobody else uses.
unsafe fn put_off<H: Hooks>(place: *mut Request<H>, status: NtStatus) -> bool {
    // SAFETY: nobody else uses it (`# Safety`).
    let request = unsafe { &*place };
    let (Some(shadow), Some(delay)) = (request.shadow.clone(), request.delay) else { return false };
    let later = request.later.clone();
    Later::put(later.as_ref(), delay, Work::Request { place, shadow, status }).is_ok()
}

/// `NDK_FN_REQUEST_COMPLETION`.
///
/// # Safety
///
/// `context` is a `Request` from `into_raw`, and this is its one completion.
unsafe extern "system" fn requested<H: Hooks>(context: *mut c_void, status: NtStatus) {
    let place = context.cast::<Request<H>>();
    // SAFETY: this is the one completion of the request (`# Safety`), so nobody else uses the place.
    if H::INTERFERES && unsafe { put_off::<H>(place, status) } {
        return;
    }
    // SAFETY: `place` is a `Request` from `into_raw`, and this is its one completion (`# Safety`).
    unsafe { deliver_requested::<H>(place, status) };
}

/// Calls the consumer's completion of a request.
///
/// # Safety
///
/// `place` is a `Request` from `into_raw` that nobody else uses, and this is its one completion.
pub unsafe fn deliver_requested<H: Hooks>(place: *mut Request<H>, status: NtStatus) {
    // SAFETY: `place` came from `into_raw`, and nobody else uses it (`# Safety`).
    let mut place = unsafe { alloc::boxed::Box::from_raw(place) };
    let Some(shadow) = place.shadow.take() else { return };
    if let (true, Some(ending), Some(delay)) = (status.is_success(), shadow.ending(), place.end_after) {
        ending.after(&shadow, delay);
    }
    let (function, number, completion, context) = (place.function, place.call, place.completion, place.context);
    shadow.requests.give_back(place);
    let mut report = EventReport::new(&shadow, function, Args::None).of_call(number).asks(true, context);
    report.tell(Phase::Callback, Outcome::Status(status));
    if let Some(completion) = completion {
        // SAFETY: the consumer's callback with its context (`NDKPI 6`); no lock is held.
        unsafe { completion(context, status) };
    }
    report.tell(Phase::CallbackReturn, Outcome::Status(status));
}

/// What the consumer gives a creation.
pub struct Create<T> {
    pub function: Function,
    pub completion: Option<NDK_FN_CREATE_COMPLETION>,
    pub context: *mut c_void,
    pub out: *mut *mut T,
    pub event: Option<EventCallback>,
}

/// Creates an object: `call` asks the provider, with a completion, a context and a place for the object of this layer's, and the
/// new shadow, for its event callbacks.
///
/// # Safety
///
/// `public` is an object that stays open until this returns; `out` is null or valid for writing.
pub unsafe fn create<'a, H: Hooks, P: Object, T: Object>(
    public: *mut P,
    args: Args<'a>,
    related: [Option<&'a Shadow<H>>; 3],
    how: &Create<T>,
    call: impl FnOnce(*mut P, Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T, *mut c_void) -> NtStatus,
) -> NtStatus {
    let &Create { function, completion, context, out, event } = how;
    // SAFETY: `public` is open for the call (`# Safety`).
    let found = match unsafe { find::<H, P>(public, function) } {
        Ok(found) => found,
        Err(status) => return status,
    };
    // SAFETY: the shadow is open.
    let parent = unsafe { found.hold() };
    let held = hold(related);
    let mut report = EventReport::new(&parent, function, args).with(borrow(&held)).asks(completion.is_some(), context);
    report = report.lacks_place(out.is_null());
    let verdict = match report.begin() {
        Ok(verdict) => verdict,
        Err(status) => return status,
    };
    let shadow = match Shadow::try_new_for(&parent, T::OBJECT_TYPE, report.event()) {
        Ok(shadow) => shadow,
        Err(status) => {
            report.end(Outcome::Status(status));
            return status;
        }
    };
    let delay = match verdict {
        Verdict::Late(delay) | Verdict::Fail(_, delay) if completion.is_some() => Some(delay),
        _ => None,
    };
    // SAFETY: nobody else has the new shadow.
    unsafe { shadow.set_creation(Creation { function, call: report.number(), completion, context, delay }) };
    if let Some(event) = event {
        // SAFETY: it is not the consumer's yet: nobody else has the new shadow.
        unsafe { shadow.set_event(event) };
    }
    let kept = shadow.clone();
    let raw = Shadow::into_public(shadow);
    let mut made = ptr::null_mut();
    let place = if out.is_null() { ptr::null_mut() } else { &raw mut made };
    let (ours, our_context) = match completion {
        Some(_) => (Some(created::<H> as NDK_FN_CREATE_COMPLETION), raw),
        None => (None, context),
    };
    let status = match verdict {
        Verdict::Fail(status, _) if completion.is_some() => status,
        _ => call(parent.inner(), ours, our_context, place, raw),
    };
    if status == NtStatus::PENDING {
        report.end(Outcome::Status(status));
        return status;
    }
    if H::INTERFERES && delay.is_some() && put_creation_off(&kept, raw, status, made.cast()) {
        report.end(Outcome::Status(NtStatus::PENDING));
        return NtStatus::PENDING;
    }
    if verdict == Verdict::Early && completion.is_some() {
        // SAFETY: the provider has not pended, so this is the one completion, with the object that it made or none.
        unsafe { created::<H>(raw, status, made.cast()) };
        report.end(Outcome::Status(NtStatus::PENDING));
        return NtStatus::PENDING;
    }
    if status.is_success() && !made.is_null() {
        // SAFETY: the provider has made the object, and the shadow was not handed out.
        unsafe { kept.adopt(made.cast()) };
        // SAFETY: valid for writing (`# Safety`), and not null, or the provider could not have stored an object.
        unsafe { *out = raw.cast() };
        report = report.created(Some(kept.object_ref()));
        report.end(Outcome::Status(status));
        return status;
    }
    // SAFETY: the provider has not taken the reference: nobody else has it.
    drop(unsafe { Arc::from_raw(raw.cast_const().cast::<Shadow<H>>()) });
    report.end(Outcome::Status(status));
    status
}

/// `NDK_FN_CREATE_COMPLETION`.
///
/// # Safety
///
/// `context` is a shadow's reference that was given to the creation, and this is its one completion.
unsafe extern "system" fn created<H: Hooks>(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    if H::INTERFERES {
        // SAFETY: the reference of the creation, whose one completion this is (`# Safety`): only this call gives it back.
        let shadow = unsafe { &*context.cast_const().cast::<Shadow<H>>() };
        // SAFETY: the shadow lives in an `Arc`.
        let shadow = unsafe { shadow.hold() };
        if put_creation_off(&shadow, context, status, object) {
            return;
        }
    }
    // SAFETY: `context` is the reference that was given to the creation, and this is its one completion (`# Safety`).
    unsafe { deliver_created::<H>(context, status, object) };
}

/// Puts the completion of a creation off, if it may be.
fn put_creation_off<H: Hooks>(
    shadow: &ShadowRef<H>,
    new: *mut c_void,
    status: NtStatus,
    object: *mut NDK_OBJECT_HEADER,
) -> bool {
    // SAFETY: this is the completion of the creation.
    let creation = unsafe { shadow.creation() };
    let (Some(delay), Some(parent)) = (creation.and_then(|creation| creation.delay), shadow.parent.clone()) else {
        return false;
    };
    Later::put(shadow.later.as_ref(), delay, Work::Created { parent, new, status, object }).is_ok()
}

/// Calls the consumer's completion of a creation.
///
/// # Safety
///
/// As [`created`].
pub unsafe fn deliver_created<H: Hooks>(context: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: `context` is the reference that was given to the creation, which this takes back (`# Safety`).
    let shadow: ShadowRef<H> = unsafe { Arc::from_raw(context.cast_const().cast()) };
    // SAFETY: this is the completion of the creation.
    let Some(creation) = (unsafe { shadow.creation() }) else { return };
    let Some(parent) = shadow.parent.clone() else { return };
    let is_made = status.is_success() && !object.is_null();
    let mut report =
        EventReport::new(&parent, creation.function, Args::None).of_call(creation.call).asks(true, creation.context);
    let public = if is_made {
        // SAFETY: the provider has made the object, and the shadow was not handed out.
        unsafe { shadow.adopt(object.cast()) };
        report = report.created(Some(shadow.object_ref()));
        Shadow::into_public(shadow.clone()).cast()
    } else {
        ptr::null_mut()
    };
    report.tell(Phase::Callback, Outcome::Status(status));
    if let Some(completion) = creation.completion {
        // SAFETY: the consumer's callback with its context (`NDKPI 6`); no lock is held.
        unsafe { completion(creation.context, status, public) };
    }
    report.tell(Phase::CallbackReturn, Outcome::Status(status));
}
