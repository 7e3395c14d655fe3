//! Objects of the framework: parents and children, contexts, references, and the order in which they go.

use std::{
    any::Any,
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicI64, AtomicU8,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use host::machine::{self, Irql};
use litemap::LiteMap;
use wdk_bindings::{
    NTSTATUS, PCHAR, PCWDF_OBJECT_CONTEXT_TYPE_INFO, PFN_WDF_OBJECT_CONTEXT_CLEANUP, PFN_WDF_OBJECT_CONTEXT_DESTROY,
    PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS,
    WDF_OBJECT_ATTRIBUTES, WDF_OBJECT_CONTEXT_TYPE_INFO, WDFOBJECT,
};

use super::function::function;
use crate::{
    argument::check_size,
    context::{self, DriverId},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{self, State, lock},
    wdm::io::interface::STATUS_OBJECT_NAME_EXISTS,
};

/// The tag of what the framework allocates.
const TAG: u32 = u32::from_ne_bytes(*b"FxDr");

/// All objects by handle.
#[derive(Default)]
pub struct Objects(LiteMap<usize, Arc<Object>>);

impl state::Part for Mutex<Objects> {}

/// What objects of one kind have of their own.
pub trait Part: Kind + Sized {
    /// The kind, in words.
    const NAME: &'static str;
}

/// What an object is, and what becomes of it.
pub trait Kind: Any + Send + Sync {
    /// The kind, in words.
    fn name(&self) -> &'static str;

    /// Ends the test if a driver may not delete such an object, or not now.
    fn check_deletion(&self, _object: &Object) {}

    /// A driver deletes it.
    fn delete(&self, state: &Arc<State>, object: &Object) {
        state.delete_object(object.handle);
    }

    /// Its device is being deleted.
    fn device_stops(&self, _state: &Arc<State>, _object: &Object) {}

    /// It is being deleted, by its driver or with its parent.
    fn end(&self, _state: &Arc<State>, _object: &Object) {}

    /// Its last reference is gone.
    fn freed(&self, _state: &State) {}
}

/// Of kinds of which the framework keeps nothing more.
pub struct Driver;
struct General;

impl Kind for Driver {
    fn name(&self) -> &'static str {
        "driver"
    }

    fn check_deletion(&self, object: &Object) {
        object.refuse_to_delete();
    }
}

impl Kind for General {
    fn name(&self) -> &'static str {
        "general object"
    }
}

/// It can be used.
const LIVE: u8 = 0;
/// It is being deleted.
const DELETING: u8 = 1;
/// Its cleanup callback has run.
const CLEAN: u8 = 2;

/// An object.
pub struct Object {
    pub handle: usize,
    pub owner: DriverId,
    pub kind: Arc<dyn Kind>,
    pub parent: Option<usize>,
    children: Mutex<Vec<usize>>,
    references: AtomicI64,
    phase: AtomicU8,
    /// The first is that of its creation, whose routines there are without a context too.
    contexts: Mutex<Vec<Context>>,
}

/// What an object carries for its driver.
#[derive(Clone, Copy)]
struct Context {
    /// The type's own address, and the memory; `None` of a driver that wants no more than the routines.
    memory: Option<(usize, usize)>,
    cleanup: PFN_WDF_OBJECT_CONTEXT_CLEANUP,
    destroy: PFN_WDF_OBJECT_CONTEXT_DESTROY,
}

// SAFETY: the routines are functions, which any thread may call.
unsafe impl Send for Context {}

impl Context {
    /// As a driver has said it. `None` if there is no memory.
    fn new(owner: DriverId, attributes: &WDF_OBJECT_ATTRIBUTES) -> Option<Self> {
        let memory = if attributes.ContextTypeInfo.is_null() {
            None
        } else {
            // SAFETY: not null, so the driver's description, which lives as long as the driver.
            let info = unsafe { attributes.ContextTypeInfo.read() };
            check_size::<WDF_OBJECT_CONTEXT_TYPE_INFO>(info.Size, "WDF_OBJECT_CONTEXT_TYPE_INFO");
            let size =
                if attributes.ContextSizeOverride == 0 { info.ContextSize } else { attributes.ContextSizeOverride };
            Some((info.UniqueType.addr(), pool::allocate(owner, size.max(1), TAG, true)?))
        };
        Some(Self { memory, cleanup: attributes.EvtCleanupCallback, destroy: attributes.EvtDestroyCallback })
    }
}

impl Object {
    /// The handle as the driver has it.
    pub const fn pointer<T>(&self) -> *mut T {
        ptr::without_provenance_mut(self.handle)
    }

    /// The memory of its context of that type.
    fn context(&self, unique: usize) -> Option<usize> {
        let contexts = lock(&self.contexts);
        contexts.iter().filter_map(|context| context.memory).find(|&(kind, _)| kind == unique).map(|(_, memory)| memory)
    }

    /// The part of its kind, if it is of that kind.
    pub fn part<P: Kind>(&self) -> Option<Arc<P>> {
        let kind: Arc<dyn Any + Send + Sync> = self.kind.clone();
        kind.downcast().ok()
    }

    /// Ends the test: only the framework deletes such an object.
    pub fn refuse_to_delete(&self) -> ! {
        bug_check(Rule::BadHandle, format_args!("a driver may not delete a {}", self.kind.name()))
    }

    /// Ends the test if such an object is deleted above `PASSIVE_LEVEL`.
    pub fn require_passive_level(&self) {
        if machine::current_irql() > Irql::PASSIVE_LEVEL {
            let (kind, irql) = (self.kind.name(), machine::current_irql());
            bug_check(Rule::IrqlTooHigh, format_args!("WdfObjectDelete of a {kind} at {irql}"));
        }
    }

    pub fn is_live(&self) -> bool {
        self.phase.load(Acquire) == LIVE
    }

    /// It is live, or being deleted: its callbacks may still use it.
    pub fn is_there(&self) -> bool {
        self.phase.load(Acquire) != CLEAN
    }

    /// One more reference.
    pub fn refer(&self) {
        self.references.fetch_add(1, AcqRel);
    }

    /// The handle of the parent.
    pub fn parent_pointer(&self) -> WDFOBJECT {
        ptr::without_provenance_mut(self.parent.unwrap_or(0))
    }
}

/// What a driver says of a new object, checked.
pub fn read_attributes(attributes: PWDF_OBJECT_ATTRIBUTES) -> WDF_OBJECT_ATTRIBUTES {
    if attributes.is_null() {
        return WDF_OBJECT_ATTRIBUTES::default();
    }
    // SAFETY: not null, so the driver's structure, which lives until the call returns.
    let attributes = unsafe { attributes.read() };
    check_size::<WDF_OBJECT_ATTRIBUTES>(attributes.Size, "WDF_OBJECT_ATTRIBUTES");
    if attributes.ExecutionLevel == 0 || attributes.SynchronizationScope == 0 {
        bug_check(Rule::BadArgument, format_args!("attributes that were not initialised"));
    }
    attributes
}

/// Checks the level where the reference has it in two parts: `PASSIVE_LEVEL` to wait, otherwise up to `DISPATCH_LEVEL`.
pub fn check_level(name: &str, waits: bool) {
    let (limit, does) = if waits { (Irql::PASSIVE_LEVEL, "waits") } else { (Irql::DISPATCH_LEVEL, "is called") };
    let now = machine::current_irql();
    if now > limit {
        bug_check(Rule::IrqlTooHigh, format_args!("{name} {does} at {now}"));
    }
}

/// What the framework says of a parent for an object that has its own.
pub const STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED: NTSTATUS = 0xC020_020F_u32.cast_signed();

/// Returns true if a driver names a parent.
pub fn has_parent(attributes: PWDF_OBJECT_ATTRIBUTES) -> bool {
    // SAFETY: null, or the driver's structure, which lives until the call returns.
    unsafe { attributes.as_ref() }.is_some_and(|attributes| !attributes.ParentObject.is_null())
}

impl State {
    /// Makes an object. `None` if there is no memory.
    pub fn create_object(
        self: &Arc<Self>,
        kind: Arc<dyn Kind>,
        attributes: PWDF_OBJECT_ATTRIBUTES,
        parent: Option<usize>,
    ) -> Option<Arc<Object>> {
        self.create_object_of(context::caller(), kind, &read_attributes(attributes), parent)
    }

    /// Makes an object of a driver, which need not be the one that has called. `None` if there is no memory.
    pub fn create_object_of(
        self: &Arc<Self>,
        owner: DriverId,
        kind: Arc<dyn Kind>,
        attributes: &WDF_OBJECT_ATTRIBUTES,
        parent: Option<usize>,
    ) -> Option<Arc<Object>> {
        if self.strikes() {
            return None;
        }
        let parent = if attributes.ParentObject.is_null() { parent } else { Some(attributes.ParentObject.addr()) };
        let context = Context::new(owner, attributes)?;
        let object = Arc::new(Object {
            handle: 0xFD00_0000_0000 + usize::try_from(self.next()).unwrap_or(0) * 16,
            owner,
            kind,
            parent,
            children: Mutex::default(),
            references: AtomicI64::new(1),
            phase: AtomicU8::new(LIVE),
            contexts: Mutex::new(vec![context]),
        });
        if let Some(parent) = parent {
            lock(&self.object(parent).children).push(object.handle);
        }
        self.locked::<Objects>().0.insert(object.handle, object.clone());
        Some(object)
    }

    /// The object with that handle.
    pub fn object(&self, handle: usize) -> Arc<Object> {
        let found = self.locked::<Objects>().0.get(&handle).cloned();
        found.unwrap_or_else(|| bug_check(Rule::BadHandle, format_args!("{handle:#x} is no object, or was one")))
    }

    /// The object with that handle and its part, if it is there still, and of that kind.
    pub fn if_there<P: Part>(&self, handle: usize) -> Option<(Arc<Object>, Arc<P>)> {
        let object = self.locked::<Objects>().0.get(&handle).cloned()?;
        let part = object.part()?;
        Some((object, part))
    }

    /// The object with a handle that a driver passes.
    pub fn given<T>(&self, handle: *mut T) -> Arc<Object> {
        self.object(handle.addr())
    }

    /// The object with a handle that a driver passes, which must be of that kind, and its part.
    pub fn given_as<T, P: Part>(&self, handle: *mut T) -> (Arc<Object>, Arc<P>) {
        let object = self.given(handle);
        let Some(part) = object.part() else {
            bug_check(
                Rule::BadHandle,
                format_args!("a {} is given as {} of the framework", object.kind.name(), P::NAME),
            );
        };
        (object, part)
    }

    /// As [`State::given_as`], of an object that can be used: it is live, or is there.
    pub fn usable<T, P: Part>(&self, handle: *mut T, can_be_used: fn(&Object) -> bool) -> (Arc<Object>, Arc<P>) {
        let (object, part) = self.given_as(handle);
        if !can_be_used(&object) {
            bug_check(Rule::BadHandle, format_args!("a {} of the framework is used after its deletion", P::NAME));
        }
        (object, part)
    }

    /// Deletes an object, as the framework or a driver does.
    pub fn delete_object(self: &Arc<Self>, handle: usize) {
        let object = self.object(handle);
        self.clean(&object);
        self.let_go(&object);
    }

    /// Runs the cleanup callbacks, the children's before the parent's.
    fn clean(self: &Arc<Self>, object: &Arc<Object>) {
        if object.phase.swap(DELETING, AcqRel) != LIVE {
            bug_check(Rule::BadHandle, format_args!("a {} is deleted twice", object.kind.name()));
        }
        object.kind.end(self, object);
        let children = lock(&object.children).clone();
        for child in children.into_iter().rev() {
            let child = self.object(child);
            if child.is_live() {
                self.clean(&child);
            }
        }
        let contexts = lock(&object.contexts).clone();
        for cleanup in contexts.into_iter().filter_map(|context| context.cleanup) {
            context::call(object.owner, "EvtCleanupCallback", || {
                // SAFETY: the driver's own callback, with the handle of the object that it is for.
                unsafe { cleanup(object.pointer()) };
            });
        }
        object.phase.store(CLEAN, Release);
    }

    /// Gives up the references that creation made, the children's before the parent's.
    fn let_go(self: &Arc<Self>, object: &Arc<Object>) {
        let children = lock(&object.children).clone();
        for child in children.into_iter().rev() {
            let child = self.locked::<Objects>().0.get(&child).cloned();
            if let Some(child) = child {
                self.let_go(&child);
            }
        }
        self.dereference(object);
    }

    /// Gives a reference up; with the last one the object is gone.
    pub fn dereference(self: &Arc<Self>, object: &Arc<Object>) {
        let before = object.references.fetch_sub(1, AcqRel);
        if before < 1 {
            bug_check(
                Rule::ReferenceUnderflow,
                format_args!("a {} is dereferenced once too often", object.kind.name()),
            );
        }
        if before > 1 {
            return;
        }
        if object.is_live() {
            bug_check(
                Rule::ReferenceUnderflow,
                format_args!("the last reference to a {} is given up", object.kind.name()),
            );
        }
        // The routines may look at all of them.
        let contexts = lock(&object.contexts).clone();
        for destroy in contexts.iter().filter_map(|context| context.destroy) {
            context::call(object.owner, "EvtDestroyCallback", || {
                // SAFETY: the driver's own callback, with the handle of the object that it is for.
                unsafe { destroy(object.pointer()) };
            });
        }
        self.locked::<Objects>().0.remove(&object.handle);
        object.kind.freed(self);
        for (_, memory) in contexts.into_iter().filter_map(|context| context.memory) {
            pool::free(memory, Some(TAG));
        }
        if let Some(parent) = object.parent {
            let parent = self.locked::<Objects>().0.get(&parent).cloned();
            if let Some(parent) = parent {
                lock(&parent.children).retain(|&child| child != object.handle);
            }
        }
    }

    /// A driver is unloaded: none of its objects may be left.
    pub fn check_objects(&self, owner: DriverId, name: &str) {
        let left = self.locked::<Objects>().0.values().find(|object| object.owner == owner).cloned();
        if let Some(object) = left {
            let references = object.references.load(Acquire);
            let kind = object.kind.name();
            bug_check(
                Rule::ReferenceLeak,
                format_args!("driver {name} left a {kind} of the framework with {references} references"),
            );
        }
    }

    /// The handle of a driver's object.
    pub fn driver_object(&self, driver: DriverId) -> Option<usize> {
        self.drivers().get(&driver).and_then(|driver| driver.handle)
    }

    /// The part of every live object of a kind.
    pub fn all_of<P: Kind>(&self) -> Vec<Arc<P>> {
        self.objects_of(|object| object.part())
    }

    fn objects_of<T>(&self, of: impl Fn(&Arc<Object>) -> Option<T>) -> Vec<T> {
        self.locked::<Objects>().0.values().filter(|object| object.is_live()).filter_map(of).collect()
    }
}

pub extern "C" fn WdfObjectCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFOBJECT,
) -> NTSTATUS {
    function!("WdfObjectCreate", |state| {
        let parent = state.driver_object(context::caller());
        let Some(object) = state.create_object(Arc::new(General), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfObjectDelete(_globals: PWDF_DRIVER_GLOBALS, handle: WDFOBJECT) {
    function!("WdfObjectDelete", |state| {
        let object = state.given(handle);
        object.kind.check_deletion(&object);
        object.kind.delete(state, &object);
    });
}

/// At any level: routines of interrupts find the context of their device by it.
pub extern "C" fn WdfObjectGetTypedContextWorker(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFOBJECT,
    info: PCWDF_OBJECT_CONTEXT_TYPE_INFO,
) -> PVOID {
    routine!("WdfObjectGetTypedContextWorker", HIGH_LEVEL, |state| {
        // SAFETY: the driver's description, which lives as long as the driver.
        let unique = unsafe { (*info).UniqueType }.addr();
        let context = state.given(handle).context(unique);
        context.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    })
}

/// One more context, of another type. Its routines come after those of the contexts that there are.
pub extern "C" fn WdfObjectAllocateContext(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFOBJECT,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut PVOID,
) -> NTSTATUS {
    routine!("WdfObjectAllocateContext", DISPATCH_LEVEL, |state| {
        let object = state.given(handle);
        let attributes = read_attributes(attributes);
        if attributes.ContextTypeInfo.is_null() {
            bug_check(Rule::BadArgument, format_args!("WdfObjectAllocateContext without the context's type"));
        }
        if !attributes.ParentObject.is_null() {
            return STATUS_WDF_PARENT_ASSIGNMENT_NOT_ALLOWED;
        }
        if !object.is_live() {
            return STATUS_DELETE_PENDING;
        }
        // SAFETY: not null, so the driver's description, which lives as long as the driver.
        let unique = unsafe { (*attributes.ContextTypeInfo).UniqueType }.addr();
        let give = |memory| {
            if !place.is_null() {
                // SAFETY: not null, so the driver's place, which lives until the call returns.
                unsafe { place.write(ptr::with_exposed_provenance_mut(memory)) };
            }
        };
        if let Some(memory) = object.context(unique) {
            give(memory);
            return STATUS_OBJECT_NAME_EXISTS;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let Some(context) = Context::new(context::caller(), &attributes) else { return STATUS_INSUFFICIENT_RESOURCES };
        lock(&object.contexts).push(context);
        give(context.memory.map_or(0, |(_, memory)| memory));
        STATUS_SUCCESS
    })
}

/// `STATUS_DELETE_PENDING`.
const STATUS_DELETE_PENDING: NTSTATUS = 0xC000_0056_u32.cast_signed();

/// A breakpoint for a driver whose key says that the framework's verifier breaks into the debugger. No driver's here does.
pub extern "C" fn WdfVerifierDbgBreakPoint(_globals: PWDF_DRIVER_GLOBALS) {
    routine!("WdfVerifierDbgBreakPoint", HIGH_LEVEL, |_| ());
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 2] {
    [
        ("WdfObjectAllocateContext", WdfObjectAllocateContext as *const ()),
        ("WdfVerifierDbgBreakPoint", WdfVerifierDbgBreakPoint as *const ()),
    ]
}

pub extern "C" fn WdfObjectContextGetObject(_globals: PWDF_DRIVER_GLOBALS, context: PVOID) -> WDFOBJECT {
    function!("WdfObjectContextGetObject", |state| {
        let is_it = |object: &&Arc<Object>| {
            let contexts = lock(&object.contexts);
            contexts.iter().filter_map(|context| context.memory).any(|(_, memory)| memory == context.addr())
        };
        let found = state.locked::<Objects>().0.values().find(is_it).cloned();
        let Some(object) = found else {
            bug_check(Rule::BadHandle, format_args!("{context:p} is not the context of an object"));
        };
        object.pointer()
    })
}

pub extern "C" fn WdfObjectReferenceActual(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFOBJECT,
    _tag: PVOID,
    _line: i32,
    _file: PCHAR,
) {
    function!("WdfObjectReferenceActual", |state| {
        state.given(handle).refer();
    });
}

pub extern "C" fn WdfObjectDereferenceActual(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFOBJECT,
    _tag: PVOID,
    _line: i32,
    _file: PCHAR,
) {
    function!("WdfObjectDereferenceActual", |state| {
        let object = state.given(handle);
        state.dereference(&object);
    });
}
