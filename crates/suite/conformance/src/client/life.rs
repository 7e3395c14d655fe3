//! The life of an object: who uses it, what depends on it, and how it ends (`NDKPI 7.9`).

use core::{
    ffi::c_void,
    mem::ManuallyDrop,
    ops::Deref,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use ndkpi::{GUID, NDK_EXTENSION_INTERFACE, NDK_FN_CLOSE_OBJECT, NDK_OBJECT_HEADER, NDK_VERSION, NtStatus, Object};

use super::{
    arena::Later,
    session::{CompletionKind, Session},
};
use crate::case::{Check, Stop};

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of NDKPI's objects")]
pub enum Kind {
    Cq,
    Pd,
    Qp,
    Srq,
    Mr,
    Mw,
    Connector,
    Listener,
    SharedEndpoint,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Cq,
        Self::Pd,
        Self::Qp,
        Self::Srq,
        Self::Mr,
        Self::Mw,
        Self::Connector,
        Self::Listener,
        Self::SharedEndpoint,
    ];
}

/// The object is being closed: no call begins any more. The other bits of the gate count the calls that run.
const CLOSED: u32 = 1 << 31;

/// The life of one object.
pub struct Life<'s> {
    session: &'s Session<'s>,
    kind: Kind,
    object: AtomicPtr<c_void>,
    gate: AtomicU32,
    /// Running callbacks of the object, without its close completion.
    callbacks: AtomicU32,
    /// Objects that depend on this one and whose close has not begun or runs its callback.
    successors: AtomicU32,
    antecedents: [Edge<'s>; 6],
    /// The close has completed.
    closed: AtomicBool,
    close_callbacks: AtomicU32,
    close_returned: AtomicU32,
}

/// That an object depends on another.
struct Edge<'s> {
    to: Later<'s, Life<'s>>,
    /// It is among the successors of the other.
    counted: AtomicBool,
}

impl<'s> Edge<'s> {
    #[expect(clippy::declare_interior_mutable_const, reason = "the value from which an array is made")]
    const NONE: Self = Self { to: Later::new(), counted: AtomicBool::new(false) };

    fn count(&self, counted: bool) {
        let Some(antecedent) = self.to.get() else { return };
        match (self.counted.swap(counted, AcqRel), counted) {
            (false, true) => {
                antecedent.successors.fetch_add(1, AcqRel);
            }
            (true, false) => {
                antecedent.successors.fetch_sub(1, AcqRel);
            }
            _ => {}
        }
    }

    fn is_to(&self, antecedent: &'s Life<'s>) -> bool {
        self.to.get().is_some_and(|to| ptr::eq(to, antecedent))
    }
}

/// Nothing was returned yet, the close pends, the close is done.
const RUNS: u32 = 0;
const PENDS: u32 = 1;
const DONE: u32 = 2;

impl<'s> Life<'s> {
    /// The life of an object that is yet to be made, and will depend on the `antecedents`.
    pub(super) fn new(session: &'s Session<'s>, kind: Kind, antecedents: &[&'s Self]) -> Self {
        let life = Self {
            session,
            kind,
            object: AtomicPtr::new(ptr::null_mut()),
            gate: AtomicU32::new(CLOSED),
            callbacks: AtomicU32::new(0),
            successors: AtomicU32::new(0),
            antecedents: [const { Edge::NONE }; 6],
            closed: AtomicBool::new(false),
            close_callbacks: AtomicU32::new(0),
            close_returned: AtomicU32::new(RUNS),
        };
        for (edge, antecedent) in life.antecedents.iter().zip(antecedents) {
            edge.to.set(antecedent);
        }
        life
    }

    /// The object is made: it begins to live.
    ///
    /// # Safety
    ///
    /// `object` is an open object of the session's provider, of this life's kind, and this is its only life.
    pub(super) unsafe fn begin(&'s self, object: *mut c_void) {
        self.object.store(object, Release);
        self.session.opened(self.kind);
        self.count(true);
        self.gate.store(0, Release);
    }

    /// Counts the object among the successors of its antecedents, or not any more.
    fn count(&self, counted: bool) {
        self.antecedents.iter().for_each(|edge| edge.count(counted));
    }

    /// From now on the object depends on `antecedent` too.
    pub(super) fn depend_on(&self, antecedent: &'s Self) {
        if let Some(edge) = self.antecedents.iter().find(|edge| edge.to.set(antecedent)) {
            edge.count(true);
        }
    }

    /// What [`Life::depend_on`] was called for has not come about.
    pub(super) fn depend_no_more_on(&self, antecedent: &'s Self) {
        if let Some(edge) = self.antecedents.iter().find(|edge| edge.is_to(antecedent)) {
            edge.count(false);
            edge.to.take();
        }
    }

    /// The session.
    pub const fn session(&self) -> &'s Session<'s> {
        self.session
    }

    /// Begins a call on the object.
    ///
    /// # Errors
    ///
    /// The object is closed: the case is wrong.
    pub fn call(&self) -> Check<Call<'_, 's>> {
        let mut gate = self.gate.load(Relaxed);
        loop {
            if gate & CLOSED != 0 {
                fail!("the case calls a closed {:?}", self.kind);
            }
            match self.gate.compare_exchange_weak(gate, gate + 1, Acquire, Relaxed) {
                Ok(_) => return Ok(Call { life: self }),
                Err(changed) => gate = changed,
            }
        }
    }

    /// Returns true if the close has completed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Counts the close completions.
    #[must_use]
    pub fn close_callbacks(&self) -> u32 {
        self.close_callbacks.load(Acquire)
    }

    /// Objects that depend on this one and whose close has not begun.
    #[must_use]
    pub fn successors(&self) -> u32 {
        self.successors.load(Acquire)
    }

    /// Callbacks of the object that run.
    #[must_use]
    pub fn callbacks(&self) -> u32 {
        self.callbacks.load(Acquire)
    }

    pub(super) fn callback_begins(&self) {
        self.callbacks.fetch_add(1, AcqRel);
        if self.is_closed() {
            self.session.fault(format_args!("a callback of a {:?} after its close completed (NDKPI 7.9)", self.kind));
        }
    }

    pub(super) fn callback_ends(&self) {
        self.callbacks.fetch_sub(1, AcqRel);
    }

    /// Calls close while `calls` other calls of the closer itself are on its stack (`NDKPI 7.9`, consumer rule 1).
    ///
    /// # Errors
    ///
    /// The object is closed already, or another thread uses it: the case is wrong.
    pub fn close_within(&'s self, calls: u32) -> Check<Closing<'s>> {
        if let Err(gate) = self.gate.compare_exchange(calls, calls | CLOSED, AcqRel, Relaxed) {
            fail!("the case closes a {:?} that is in use or closed ({gate:#x})", self.kind);
        }
        let object = self.object.load(Acquire);
        let function = close_slot(object)?;
        self.session.await_callback(true);
        // The call may close the object and with it an antecedent, whose completion may come before the call returns.
        self.count(false);
        // SAFETY: the object is open, no other call of the consumer on it runs but those of this thread that NDKPI allows,
        // and the gate lets none begin after this. The context is kept by the session.
        let status = unsafe { function(object.cast(), Some(close_completed), ptr::from_ref(self).cast_mut().cast()) };
        Ok(Closing { life: self, kind: self.close_has_returned(status), status })
    }

    fn close_has_returned(&'s self, status: NtStatus) -> CompletionKind {
        let session = self.session;
        if status == NtStatus::PENDING {
            let early = self.close_callbacks() > 0;
            self.close_returned.store(PENDS, Release);
            let kind = if early { CompletionKind::Early } else { CompletionKind::Later };
            session.count_completion(kind);
            return kind;
        }
        self.close_returned.store(DONE, Release);
        session.count_completion(CompletionKind::Inline);
        if status != NtStatus::SUCCESS {
            session.fault(format_args!(
                "the close of a {:?} returned {status}: a close cannot fail (NDKPI 5.1)",
                self.kind
            ));
        }
        if self.close_callbacks() > 0 {
            session.fault(format_args!("a close of a {:?} returned {status} and completed too (NDKPI 5.0)", self.kind));
        } else {
            self.check_gone();
            self.let_go();
            session.await_callback(false);
        }
        CompletionKind::Inline
    }

    /// The close has completed: nothing of the object, and nothing that depends on it, may be left.
    fn check_gone(&self) {
        let (kind, session) = (self.kind, self.session);
        let callbacks = self.callbacks.load(Acquire);
        if callbacks != 0 {
            session.fault(format_args!("the close of a {kind:?} completed while a callback of it ran (NDKPI 7.9.3)"));
        }
        let successors = self.successors.load(Acquire);
        if successors != 0 {
            session.fault(format_args!(
                "the close of a {kind:?} completed while {successors} of its successors were open (NDKPI 7.9.1, 7.9.5)"
            ));
        }
        self.closed.store(true, Release);
    }

    /// The first thing to do in the callback of the close: until it has returned, no antecedent may be closed.
    fn hold_antecedents(&self) {
        self.count(true);
        for antecedent in self.antecedents.iter().filter_map(|edge| edge.to.get()) {
            if antecedent.is_closed() {
                self.session.fault(format_args!(
                    "the close of a {:?} completed before that of its successor, a {:?} (NDKPI 7.9.5)",
                    antecedent.kind, self.kind
                ));
            }
        }
    }

    /// The last thing to do in the callback of the close, or after a close without one.
    fn let_go(&self) {
        self.count(false);
        self.session.closed(self.kind);
    }
}

/// The first slot of the object's table, which closes it in every table but the adapter's (`NDKPI 4`).
fn close_slot(object: *mut c_void) -> Check<NDK_FN_CLOSE_OBJECT> {
    // All object structures have one shape: the pointer to the table comes after the header (`NDKPI 3.4`).
    let object: *mut ndkpi::NDK_CQ = object.cast();
    // SAFETY: the object is open (the caller's gate), and its `Dispatch` is at this offset whatever its kind.
    let table = unsafe { (*object).Dispatch };
    // SAFETY: every table is a row of function pointers, and the first one is that of the close.
    let slot = unsafe { table.cast::<Option<NDK_FN_CLOSE_OBJECT>>().read() };
    slot.ok_or_else(|| Stop::failed(format_args!("the slot of the close is NULL")))
}

/// `NDK_FN_CLOSE_COMPLETION`.
///
/// # Safety
///
/// `context` is a `Life` that is kept by a session.
unsafe extern "system" fn close_completed(context: *mut c_void) {
    // SAFETY: a `Life` that a session keeps (`# Safety`), and the session outlives every callback.
    let life = unsafe { &*context.cast_const().cast::<Life<'_>>() };
    let session = life.session;
    let running = session.enter_callback(None);
    let before = life.close_callbacks.fetch_add(1, AcqRel);
    let kind = life.kind;
    if before > 0 {
        session.fault(format_args!("the close of a {kind:?} completed {} times", before + 1));
    } else if life.close_returned.load(Acquire) == DONE {
        session.fault(format_args!("the close of a {kind:?} did not pend and completed too (NDKPI 5.0)"));
    } else {
        life.hold_antecedents();
        life.check_gone();
        life.let_go();
        session.await_callback(false);
    }
    drop(running);
}

/// A call on an object: it is open until this is dropped.
pub struct Call<'l, 's> {
    life: &'l Life<'s>,
}

impl Call<'_, '_> {
    /// The object.
    #[must_use]
    pub fn object<T: Object>(&self) -> *mut T {
        self.life.object.load(Acquire).cast()
    }

    /// Its header.
    #[must_use]
    pub fn header(&self) -> *mut NDK_OBJECT_HEADER {
        self.life.object.load(Acquire).cast()
    }
}

impl Drop for Call<'_, '_> {
    fn drop(&mut self) {
        self.life.gate.fetch_sub(1, Release);
    }
}

/// A close that was begun.
#[derive(Clone, Copy)]
#[must_use]
pub struct Closing<'s> {
    life: &'s Life<'s>,
    kind: CompletionKind,
    status: NtStatus,
}

impl<'s> Closing<'s> {
    /// What the close returned.
    pub const fn status(&self) -> NtStatus {
        self.status
    }

    /// How it came to its end, as far as is known.
    #[must_use]
    pub const fn kind(&self) -> CompletionKind {
        self.kind
    }

    /// Returns true if the close is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.life.is_closed()
    }

    /// Waits until it is complete.
    ///
    /// # Errors
    ///
    /// It does not come to an end.
    pub fn wait(self) -> Check<CompletionKind> {
        let kind = self.life.kind;
        self.life.session.wait_for(format_args!("the close of a {kind:?} (NDKPI 7.9)"), || self.is_done())?;
        Ok(self.kind)
    }

    /// The life that ends.
    #[must_use]
    pub const fn life(&self) -> &'s Life<'s> {
        self.life
    }
}

/// What the client keeps of an object.
pub trait Core<'s>: Sync {
    /// The structure of the object.
    type Public: Object;
    /// What the object is.
    const KIND: Kind;
    /// Its life.
    fn life(&self) -> &Life<'s>;
    /// Something to do before the object is closed.
    fn before_close(&self) {}
}

/// An open object. Dropping it begins its close, which the end of the session waits for.
pub struct Owned<'s, C: Core<'s>> {
    core: &'s C,
    life: &'s Life<'s>,
}

impl<'s, C: Core<'s>> Owned<'s, C> {
    /// Takes over an object that was just made, and looks at its header (`NDKPI 3.3`).
    ///
    /// # Safety
    ///
    /// `object` is an open object of the session's provider that has no owner, and `core` has not had an object.
    pub(super) unsafe fn adopt(core: &'s C, object: *mut C::Public, version: NDK_VERSION) -> Self {
        let life: &'s Life<'s> = core.life();
        // SAFETY: the object is open, has no other life, and is of the kind that the core says (`# Safety`).
        unsafe { life.begin(object.cast()) };
        inspect_header::<C>(life.session, object.cast(), version);
        Self { core, life }
    }

    /// Takes over an object that lives already.
    ///
    /// The object must have no other owner.
    pub(super) fn of(core: &'s C) -> Self {
        Self { core, life: core.life() }
    }

    /// Gives up the ownership without closing the object.
    pub(super) fn release(self) -> &'s C {
        ManuallyDrop::new(self).core
    }

    /// What callbacks and other threads may use.
    #[must_use]
    pub const fn core(&self) -> &'s C {
        self.core
    }

    /// Its life.
    #[must_use]
    pub const fn life(&self) -> &'s Life<'s> {
        self.life
    }

    /// The number of the first slot of the object's table, of `slots`, that is null.
    ///
    /// # Errors
    ///
    /// The object is closed.
    pub fn null_slot(&self, slots: usize) -> Check<Option<usize>> {
        let call = self.life.call()?;
        Ok(table_of(&call, slots)[..slots.min(MOST_SLOTS)].iter().position(|slot| slot.is_null()))
    }

    /// `NdkQueryExtension`.
    ///
    /// # Errors
    ///
    /// The object is closed, or its second slot is null.
    pub fn query_extension(&self, id: &GUID, version: NDK_VERSION) -> Check<NtStatus> {
        let call = self.life.call()?;
        // SAFETY: the object is open, and its `Dispatch` is at this offset whatever its kind. The second slot of every table
        // but the adapter's asks for an extension.
        let slot = unsafe { (*(*call.object::<ndkpi::NDK_CQ>()).Dispatch).NdkQueryExtension };
        let Some(function) = slot else { fail!("the slot NdkQueryExtension is NULL (NDKPI 4)") };
        let mut interface = NDK_EXTENSION_INTERFACE { Dispatch: ptr::null() };
        // SAFETY: the object is open, the other pointers are valid for the call.
        Ok(unsafe { function(call.header(), ptr::from_ref(id), version, &raw mut interface) })
    }

    /// Does what the operating system's layer does (`NDKPI 7.10`): points `Dispatch` to a copy of the table, and writes to the
    /// reserved block. Returns what [`Owned::is_interposed`] wants.
    ///
    /// # Errors
    ///
    /// The object is closed, or there is no memory.
    pub fn interpose(&self, slots: usize) -> Check<&'s Interposed> {
        let call = self.life.call()?;
        let copy = self.life.session.keep(Interposed { slots: table_of(&call, slots) })?;
        let object: *mut ndkpi::NDK_CQ = call.object();
        // SAFETY: the object is open, and its `Dispatch` is the consumer's side's.
        unsafe { (*object).Dispatch = ptr::from_ref(copy).cast() };
        // SAFETY: the object is open, and its reserved block is the consumer's side's.
        unsafe { (*object).Header.NdkReserved.rf = [SCRIBBLE; 4] };
        Ok(copy)
    }

    /// Looks that what [`Owned::interpose`] did is still there: the provider must touch neither.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn is_interposed(&self, copy: &Interposed) -> Check {
        let call = self.life.call()?;
        let object: *mut ndkpi::NDK_CQ = call.object();
        // SAFETY: the object is open.
        let dispatch = unsafe { (*object).Dispatch };
        ensure!(ptr::addr_eq(dispatch, copy), "the provider has changed Dispatch of a {:?} (NDKPI 7.10)", C::KIND);
        // SAFETY: the object is open.
        let reserved = unsafe { (*object).Header.NdkReserved.rf };
        ensure!(reserved == [SCRIBBLE; 4], "the provider has changed NdkReserved of a {:?} (NDKPI 7.10)", C::KIND);
        Ok(())
    }

    /// Begins the close.
    ///
    /// # Errors
    ///
    /// A thread uses the object.
    pub fn start_close(self) -> Check<Closing<'s>> {
        self.begin_close()
    }

    fn begin_close(&self) -> Check<Closing<'s>> {
        self.core.before_close();
        let life = self.life;
        // NDKPI 7.9, first rule for the consumer: no close while a call runs.
        let unused = || life.gate.load(Acquire) & !CLOSED == 0;
        let platform = life.session.platform();
        if !unused() && !platform.wait(platform.patience(), &unused) {
            fail!("the calls on a {:?} do not return", C::KIND);
        }
        life.close_within(0)
    }

    /// Closes the object and waits for the end.
    ///
    /// # Errors
    ///
    /// The close does not complete.
    pub fn close(self) -> Check<CompletionKind> {
        self.start_close()?.wait()
    }
}

impl<'s, C: Core<'s>> Deref for Owned<'s, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.core
    }
}

impl<'s, C: Core<'s>> Drop for Owned<'s, C> {
    fn drop(&mut self) {
        if self.life.gate.load(Acquire) & CLOSED == 0 {
            self.life.session.note(self.begin_close().map(|_| ()));
        }
    }
}

/// The table of the longest object.
const MOST_SLOTS: usize = 16;

/// What the operating system's layer might write to a reserved block.
const SCRIBBLE: *mut c_void = ptr::without_provenance_mut(0x05_C41B_B1E5);

/// A copy of an object's table.
pub struct Interposed {
    #[expect(dead_code, reason = "the object reads it, through its `Dispatch`")]
    slots: [*const c_void; MOST_SLOTS],
}

// SAFETY: the slots are functions, which any thread may call.
unsafe impl Send for Interposed {}
// SAFETY: as for `Send`.
unsafe impl Sync for Interposed {}

/// The first slots of an object's table.
fn table_of(call: &Call<'_, '_>, slots: usize) -> [*const c_void; MOST_SLOTS] {
    let mut copy = [ptr::null(); MOST_SLOTS];
    // SAFETY: the object is open, and its `Dispatch` is at this offset whatever its kind.
    let table = unsafe { (*call.object::<ndkpi::NDK_CQ>()).Dispatch };
    for (index, slot) in copy.iter_mut().enumerate().take(slots) {
        // SAFETY: every table is a row of function pointers, and the caller knows how many.
        let place = unsafe { table.cast::<*const c_void>().add(index) };
        // SAFETY: the slot is one of those that the table has.
        *slot = unsafe { place.read() };
    }
    copy
}

fn inspect_header<'s, C: Core<'s>>(session: &Session<'s>, header: *const NDK_OBJECT_HEADER, version: NDK_VERSION) {
    // SAFETY: the object was just made, so its header is valid for reading.
    let seen = unsafe { header.read() };
    let kind = C::KIND;
    if seen.Version != version {
        session.fault(format_args!("the header of a {kind:?} has version {}, not {version} (NDKPI 3.3)", seen.Version));
    }
    if seen.ObjectType != C::Public::OBJECT_TYPE {
        session.fault(format_args!("the header of a {kind:?} has the type {:?} (NDKPI 3.3)", seen.ObjectType));
    }
    if seen.NdkReserved.rf.iter().any(|word| !word.is_null()) {
        session.fault(format_args!("the reserved block of a new {kind:?} is not zero (NDKPI 3.3)"));
    }
}

/// Calls a slot of an object's table. What the arguments promise stands beside the call.
macro_rules! slot {
    ($call:expr, $object:ident, $slot:ident) => {{
        let object: *mut ndkpi::$object = $call.object();
        // SAFETY: the object is open as long as the call's guard lives. The slot is in the table of every version; only the
        // slot is read.
        let slot = unsafe { (*(*object).Dispatch).$slot };
        let Some(slot) = slot else { fail!(concat!("the slot ", stringify!($slot), " is NULL (NDKPI 4)")) };
        (object, slot)
    }};
}
