//! Shadow objects: what the consumer gets in place of the provider's objects.

use core::{
    any::TypeId,
    cell::UnsafeCell,
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use alloc::vec::Vec;
use engine::os::{Event as _, Os, SpinLock};
use fallible::{Arc, try_slice};
use ndkpi::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_VERSION, NtStatus,
    Object,
};

use crate::{
    Event, Function, Hooks, Misuse, ObjectId, ObjectRef,
    ending::Ending,
    gate::Gate,
    later::Later,
    notifier::Notifier,
    request::{DisconnectEvent, Requests},
    tables,
};

/// The structure that the consumer sees: the ten have the same shape (`NDKPI 3.4`).
#[repr(C)]
struct Public {
    header: NDK_OBJECT_HEADER,
    dispatch: *const c_void,
}

const _: () = assert!(size_of::<Public>() == size_of::<ndkpi::NDK_CQ>());
const _: () = assert!(align_of::<Public>() == align_of::<ndkpi::NDK_CQ>());

/// Closed objects that are kept for a while.
type Kept<H> = <<H as Hooks>::Os as Os>::Lock<Ring<H>>;

/// A ring of closed objects.
pub struct Ring<H: Hooks> {
    objects: alloc::boxed::Box<[Option<Arc<Shadow<H>>>]>,
    next: usize,
}

/// What all shadows of one adapter have in common.
pub struct Root<H: Hooks> {
    /// The hooks.
    pub hooks: H,
    objects: AtomicU32,
    calls: AtomicU64,
    /// The version in which the extension for receive-side scaling was got: minor in the low half.
    rss_version: AtomicU32,
    kept: Option<Kept<H>>,
    /// What is to be done later, and one for the adapter that is open.
    pending: AtomicU32,
    /// Nothing is to be done any more. Only for hooks that interfere, as the next.
    idle: Option<<H::Os as Os>::Event>,
    /// The queue pairs that are open.
    qps: Option<<H::Os as Os>::Lock<Vec<OpenQp<H>>>>,
}

/// A queue pair that is open, with its number.
struct OpenQp<H: Hooks>(u32, *const Shadow<H>);

// SAFETY: the shadow is used while the lock is held, which who closes it takes first.
unsafe impl<H: Hooks> Send for OpenQp<H> {}

impl<H: Hooks> Root<H> {
    pub fn try_new(hooks: H) -> Result<Arc<Self>, NtStatus> {
        let kept = if H::KEPT == 0 {
            None
        } else {
            let objects = try_slice(H::KEPT, |_| None)?;
            Some(hooks.os().lock(Ring { objects, next: 0 })?)
        };
        let idle = if H::INTERFERES { Some(hooks.os().event()?) } else { None };
        let qps = if H::INTERFERES { Some(hooks.os().lock(Vec::new())?) } else { None };
        Arc::try_new(Self {
            hooks,
            objects: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            rss_version: AtomicU32::new(0),
            kept,
            pending: AtomicU32::new(1),
            idle,
            qps,
        })
        .map_err(Into::into)
    }

    /// Something is to be done later: the close of the adapter waits for it.
    pub fn begin(&self) {
        self.pending.fetch_add(1, AcqRel);
    }

    /// It is done.
    pub fn done(&self) {
        if self.pending.fetch_sub(1, AcqRel) == 1
            && let Some(idle) = &self.idle
        {
            idle.set();
        }
    }

    /// Waits until nothing is to be done any more. `PASSIVE_LEVEL`, once.
    pub fn wait(&self) {
        if let Some(idle) = &self.idle
            && self.pending.fetch_sub(1, AcqRel) != 1
        {
            idle.wait();
        }
    }

    /// A place in the list of queue pairs.
    fn make_room_for_qp(&self) -> Result<(), NtStatus> {
        let Some(qps) = &self.qps else { return Ok(()) };
        // As many as are being made at once need a place, too; that many may be made on each processor.
        qps.with(|qps| qps.try_reserve(qps.len() + 64)).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// A queue pair is open.
    fn add_qp(&self, number: u32, shadow: *const Shadow<H>) {
        let Some(qps) = &self.qps else { return };
        qps.with(|qps| {
            // Without a place it is not flushed when it ought to be, which is all that the list is for.
            if qps.len() < qps.capacity() {
                qps.push(OpenQp(number, shadow));
            }
        });
    }

    fn remove_qp(&self, number: u32) {
        let Some(qps) = &self.qps else { return };
        qps.with(|qps| {
            if let Some(place) = qps.iter().position(|there| there.0 == number) {
                qps.swap_remove(place);
            }
        });
    }

    /// The queue pair with this number, if it is open.
    pub fn qp(&self, number: u32) -> Option<Arc<Shadow<H>>> {
        self.qps.as_ref()?.with(|qps| {
            let there = qps.iter().find(|there| there.0 == number)?;
            // SAFETY: what is in the list is open, and its consumer's reference lives.
            let shadow = unsafe { &*there.1 };
            // SAFETY: the consumer's reference counts until the queue pair is taken from this list, which is locked.
            Some(unsafe { shadow.hold() })
        })
    }

    /// Remembers the version in which the consumer got the extension for receive-side scaling.
    pub fn set_rss_version(&self, version: NDK_VERSION) {
        self.rss_version.store(u32::from(version.Major) << 16 | u32::from(version.Minor), Relaxed);
    }

    /// That version.
    pub fn rss_version(&self) -> NDK_VERSION {
        let version = self.rss_version.load(Relaxed);
        let [minor_low, minor_high, major_low, major_high] = version.to_le_bytes();
        NDK_VERSION::new(u16::from_le_bytes([major_low, major_high]), u16::from_le_bytes([minor_low, minor_high]))
    }

    /// The number of the next call or event.
    pub fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Relaxed) + 1
    }

    /// The number that the next call or event will have.
    pub fn coming_call(&self) -> u64 {
        self.calls.load(Relaxed) + 1
    }

    /// Keeps a closed object for a while, if that is wanted.
    pub fn bury(&self, object: Arc<Shadow<H>>) {
        let Some(kept) = &self.kept else { return };
        let before = kept.with(|ring| {
            let place = ring.next;
            ring.next = (place + 1) % ring.objects.len();
            ring.objects[place].replace(object)
        });
        // Freed without the lock.
        drop(before);
    }

    /// Frees the closed objects.
    pub fn exhume(&self) {
        let Some(kept) = &self.kept else { return };
        for place in 0..H::KEPT {
            let object = kept.with(|ring| ring.objects[place].take());
            drop(object);
        }
    }
}

/// What a creation that pends has to be told when it completes.
#[derive(Clone, Copy)]
pub struct Creation {
    pub function: Function,
    pub call: u64,
    pub completion: Option<NDK_FN_CREATE_COMPLETION>,
    pub context: *mut c_void,
    /// How long the completion is held back, in microseconds, if it is.
    pub delay: Option<u64>,
}

/// A close that the consumer has asked for.
#[derive(Clone, Copy)]
pub struct CloseRequest {
    pub call: u64,
    pub completion: Option<NDK_FN_CLOSE_COMPLETION>,
    pub context: *mut c_void,
}

/// An event callback of the consumer, as the type of the object has it: a notification or a connect event.
#[derive(Clone, Copy)]
pub struct EventCallback {
    /// A function pointer, whose type follows from the object's. Not null.
    pub function: *const (),
    pub context: *mut c_void,
}

/// States of a shadow.
const MAKING: u32 = 0;
const OPEN: u32 = 1;
const CLOSING: u32 = 2;

/// Marks shadows, behind the structure that the consumer sees.
const SIGNATURE: u64 = u64::from_le_bytes(*b"NDK-SHDW");

/// A shadow object.
///
/// # Invariants
///
/// - It lives in an [`Arc`]. The consumer's pointer is one of its references, from when it is handed out until the close has
///   completed.
/// - `public` is the consumer's once the object was handed out. It is not read again (`NDKPI 7.10`).
/// - `inner` is the provider's object, open as long as the state is `OPEN` or `CLOSING`.
/// - `creation`, `event` and the header are written before the object is handed out; `close` by who sets the state to `CLOSING`.
///
/// What every post reads comes first, on cache lines of its own: nobody writes to them while the object is open, and a neighbour on
/// the heap that somebody writes to would take them away.
#[repr(C, align(128))]
pub struct Shadow<H: Hooks> {
    public: UnsafeCell<Public>,
    signature: u64,
    kind: NDK_OBJECT_TYPE,
    state: AtomicU32,
    layer: TypeId,
    inner: AtomicPtr<c_void>,
    /// Everything of this adapter.
    pub root: Arc<Root<H>>,
    number: u32,
    hooks_state: H::State,
    creation: UnsafeCell<Option<Creation>>,
    close: UnsafeCell<Option<CloseRequest>>,
    event: UnsafeCell<Option<EventCallback>>,
    /// For completions that pend on this object.
    pub requests: Requests<H>,
    /// The disconnect events of a connector, the newest first.
    pub disconnects: AtomicPtr<DisconnectEvent<H>>,
    /// The object on which this one was created; none for the adapter.
    pub parent: Option<Arc<Self>>,
    closed: AtomicBool,
    /// Holds the close of the provider's object back.
    pub gate: Gate,
    /// For the completion of the creation, and later for the close.
    pub later: Option<Arc<Later<H>>>,
    notifier: Option<Notifier<H>>,
    ending: Option<Ending<H>>,
}

#[allow(clippy::non_send_fields_in_send_ty, reason = "the pointers are the consumer's and the provider's")]
// SAFETY: `public` is the consumer's; the cells are used as the invariants say, by one thread after the other; the pointers are
// only handed on, which NDKPI allows on any thread.
unsafe impl<H: Hooks> Send for Shadow<H> {}
// SAFETY: as for `Send`.
unsafe impl<H: Hooks> Sync for Shadow<H> {}

impl<H: Hooks> Drop for Shadow<H> {
    fn drop(&mut self) {
        DisconnectEvent::free_all(*self.disconnects.get_mut());
    }
}

/// A counted reference to a shadow.
pub type ShadowRef<H> = Arc<Shadow<H>>;

impl<H: Hooks> Shadow<H> {
    /// Makes a shadow for an object that is yet to be created.
    pub fn try_new(
        root: &Arc<Root<H>>,
        parent: Option<&ShadowRef<H>>,
        id: ObjectId,
        hooks_state: H::State,
    ) -> Result<ShadowRef<H>, NtStatus> {
        let header = NDK_OBJECT_HEADER::new(NDK_VERSION::new(0, 0), id.kind);
        let os = root.hooks.os();
        let is = |kind: NDK_OBJECT_TYPE| H::INTERFERES && id.kind == kind;
        let notifier = if is(NDK_OBJECT_TYPE::CQ) { Some(Notifier::try_new(os)?) } else { None };
        let ending = if is(NDK_OBJECT_TYPE::CONNECTOR) { Some(Ending::try_new(os)?) } else { None };
        if is(NDK_OBJECT_TYPE::QP) {
            root.make_room_for_qp()?;
        }
        Arc::try_new(Self {
            public: UnsafeCell::new(Public { header, dispatch: tables::table::<H>(id.kind) }),
            signature: SIGNATURE,
            layer: TypeId::of::<H>(),
            kind: id.kind,
            state: AtomicU32::new(MAKING),
            inner: AtomicPtr::new(ptr::null_mut()),
            number: id.number,
            creation: UnsafeCell::new(None),
            close: UnsafeCell::new(None),
            event: UnsafeCell::new(None),
            requests: Requests::try_new(os)?,
            disconnects: AtomicPtr::new(ptr::null_mut()),
            root: root.clone(),
            parent: parent.cloned(),
            closed: AtomicBool::new(false),
            gate: Gate::default(),
            later: Later::try_new(os)?,
            notifier,
            ending,
            hooks_state,
        })
        .map_err(Into::into)
    }

    /// Makes a shadow for what a call or callback may bring about, as the hooks want it.
    // Not inlined: what this takes of the stack is free again when the provider or the consumer is called.
    #[inline(never)]
    pub fn try_new_for(
        parent: &ShadowRef<H>,
        kind: NDK_OBJECT_TYPE,
        event: &Event<'_, H::State>,
    ) -> Result<ShadowRef<H>, NtStatus> {
        let root = &parent.root;
        let id = ObjectId { kind, number: root.objects.fetch_add(1, Relaxed).wrapping_add(1) };
        let state = root.hooks.object(event, id)?;
        Self::try_new(root, Some(parent), id, state)
    }

    /// The provider has made the object: from now on this is its shadow.
    ///
    /// # Safety
    ///
    /// `inner` is an open object of this kind, and the shadow was not handed out.
    pub unsafe fn adopt(&self, inner: *mut c_void) {
        // SAFETY: the object is open, so its header is valid for reading.
        let version = unsafe { (*inner.cast::<NDK_OBJECT_HEADER>()).Version };
        // SAFETY: the consumer does not have the object yet: nobody else reads or writes it.
        unsafe { (*self.public.get()).header.Version = version };
        self.inner.store(inner, Relaxed);
        self.state.store(OPEN, Release);
        if H::INTERFERES && self.is_of(NDK_OBJECT_TYPE::QP) {
            self.root.add_qp(self.number, self);
        }
    }

    /// Hands a reference to the consumer.
    pub fn into_public(this: ShadowRef<H>) -> *mut c_void {
        Arc::into_raw(this).cast_mut().cast()
    }

    /// The consumer's pointer. Gives no reference away.
    pub fn as_public(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Counts one more reference.
    ///
    /// # Safety
    ///
    /// The shadow lives in an `Arc` (it does by the invariant) and is live.
    pub unsafe fn hold(&self) -> ShadowRef<H> {
        // SAFETY: the shadow lives in an `Arc`; the reference that is made of the pointer is not given back.
        let this = core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(ptr::from_ref(self)) });
        (*this).clone()
    }

    /// The provider's object.
    pub fn inner<T: Object>(&self) -> *mut T {
        self.inner.load(Relaxed).cast()
    }

    /// Who it is.
    pub const fn id(&self) -> ObjectId {
        ObjectId { kind: self.kind, number: self.number }
    }

    /// For an event.
    pub const fn object_ref(&self) -> ObjectRef<'_, H::State> {
        ObjectRef { id: self.id(), state: &self.hooks_state }
    }

    /// Of a completion queue, for hooks that interfere. For others the compiler leaves out what would be done with it.
    #[inline]
    pub const fn notifier(&self) -> Option<&Notifier<H>> {
        if H::INTERFERES { self.notifier.as_ref() } else { None }
    }

    /// Of a connector, for hooks that interfere, as [`Shadow::notifier`].
    #[inline]
    pub const fn ending(&self) -> Option<&Ending<H>> {
        if H::INTERFERES { self.ending.as_ref() } else { None }
    }

    /// Notes what the creation has to be told.
    ///
    /// # Safety
    ///
    /// The creation has not begun.
    pub unsafe fn set_creation(&self, creation: Creation) {
        // SAFETY: nobody else has the object.
        unsafe { *self.creation.get() = Some(creation) };
    }

    /// What the creation has to be told.
    ///
    /// # Safety
    ///
    /// Called by the completion of the creation.
    pub unsafe fn creation(&self) -> Option<Creation> {
        // SAFETY: written before the creation began, and not again.
        unsafe { *self.creation.get() }
    }

    /// Notes the event callback.
    ///
    /// # Safety
    ///
    /// The creation has not begun.
    pub unsafe fn set_event(&self, event: EventCallback) {
        // SAFETY: nobody else has the object.
        unsafe { *self.event.get() = Some(event) };
    }

    /// The event callback.
    pub fn event(&self) -> Option<EventCallback> {
        // SAFETY: written before the creation began, and not again.
        unsafe { *self.event.get() }
    }

    /// Begins the close. `false` if it has begun already.
    pub fn begin_close(&self, request: CloseRequest) -> bool {
        if self.state.compare_exchange(OPEN, CLOSING, AcqRel, Acquire).is_err() {
            return false;
        }
        if H::INTERFERES && self.is_of(NDK_OBJECT_TYPE::QP) {
            self.root.remove_qp(self.number);
        }
        // SAFETY: this thread alone has changed the state, and the provider has not been asked to close yet.
        unsafe { *self.close.get() = Some(request) };
        true
    }

    /// What the close has to be told.
    ///
    /// # Safety
    ///
    /// Called by the completion of the close.
    pub unsafe fn close_request(&self) -> Option<CloseRequest> {
        // SAFETY: written before the provider was asked to close, and not again.
        unsafe { *self.close.get() }
    }

    /// The close has completed: the provider's object is no more.
    pub fn mark_gone(&self) {
        self.closed.store(true, Release);
    }

    const fn is_of(&self, kind: NDK_OBJECT_TYPE) -> bool {
        self.kind.0 == kind.0
    }
}

/// Recognises a shadow of this layer, of whatever kind and state.
///
/// # Safety
///
/// `public` is null, or points to an object of this layer or another provider that is readable for the length of the result:
/// open, or closed and kept.
pub unsafe fn recognise<'a, H: Hooks>(public: *const c_void) -> Option<&'a Shadow<H>> {
    let shadow = public.cast::<Shadow<H>>();
    if shadow.is_null() || !shadow.is_aligned() {
        return None;
    }
    // SAFETY: the pointer is to an object; behind the structure of any provider's object is its own part, and of a shadow's the
    // signature, which is not changed after it was made.
    let signature = unsafe { (*shadow).signature };
    if signature != SIGNATURE {
        return None;
    }
    // SAFETY: the signature says that it is a shadow; every layer's have this field at this place.
    let layer = unsafe { (*shadow).layer };
    // SAFETY: a shadow of this layer, which lives as long as the result is used (`# Safety`).
    (layer == TypeId::of::<H>()).then(|| unsafe { &*shadow })
}

/// The shadow of an open object with `T`'s table, if it is one. Nobody is told if it is none.
///
/// # Safety
///
/// As [`recognise`].
pub unsafe fn open<'a, H: Hooks, T: Object>(public: *mut T) -> Option<&'a Shadow<H>> {
    // SAFETY: `public` is null, or an object that stays open as long as the shadow is used (`# Safety`).
    let shadow = unsafe { recognise::<H>(public.cast()) }?;
    (shadow.is_of(T::OBJECT_TYPE) && shadow.state.load(Acquire) == OPEN).then_some(shadow)
}

/// Finds the shadow on which a function of `T`'s table is called.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if there is none that the provider could be asked about; the hooks are told why.
///
/// # Safety
///
/// As [`recognise`].
pub unsafe fn find<'a, H: Hooks, T: Object>(public: *mut T, function: Function) -> Result<&'a Shadow<H>, NtStatus> {
    // SAFETY: `public` is null, or an object that stays open as long as the shadow is used (`# Safety`).
    let shadow = unsafe { recognise::<H>(public.cast()) }.ok_or(NtStatus::INVALID_PARAMETER)?;
    let why = if !shadow.is_of(T::OBJECT_TYPE) {
        Misuse::WrongKind
    } else if shadow.state.load(Acquire) == OPEN {
        return Ok(shadow);
    } else {
        Misuse::Closed
    };
    shadow.root.hooks.misuse(function, shadow.object_ref(), T::OBJECT_TYPE, why);
    Err(NtStatus::INVALID_PARAMETER)
}

/// Another object that a function is given: the provider's pointer, and the shadow. What is not this layer's is passed on as it
/// is; of what is closed, null.
///
/// # Safety
///
/// As [`recognise`].
pub unsafe fn other<'a, H: Hooks, T>(
    public: *mut T,
    wanted: NDK_OBJECT_TYPE,
    function: Function,
) -> (*mut T, Option<&'a Shadow<H>>) {
    // SAFETY: `public` is null, or an object that stays open as long as the shadow is used (`# Safety`).
    let Some(shadow) = (unsafe { recognise::<H>(public.cast()) }) else { return (public, None) };
    if shadow.state.load(Acquire) != OPEN {
        shadow.root.hooks.misuse(function, shadow.object_ref(), wanted, Misuse::Closed);
        return (ptr::null_mut(), Some(shadow));
    }
    if wanted != NDK_OBJECT_TYPE::UNDEFINED && !shadow.is_of(wanted) {
        shadow.root.hooks.misuse(function, shadow.object_ref(), wanted, Misuse::WrongKind);
    }
    (shadow.inner.load(Relaxed).cast(), Some(shadow))
}
