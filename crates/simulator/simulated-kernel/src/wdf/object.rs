//! Objects of the framework: parents and children, contexts, references, and the order in which they go.

use std::{
    collections::BTreeMap,
    ptr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU8, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
    },
};

use host::machine::{self, Irql};
use wdk_bindings::{
    NTSTATUS, PCHAR, PCWDF_OBJECT_CONTEXT_TYPE_INFO, PFN_WDF_OBJECT_CONTEXT_CLEANUP, PFN_WDF_OBJECT_CONTEXT_DESTROY,
    PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_SUCCESS, WDF_OBJECT_ATTRIBUTES, WDF_OBJECT_CONTEXT_TYPE_INFO, WDFOBJECT,
};

use super::{
    CollectionObject, DeviceObject, DpcObject, FileObject, QueueObject, RequestObject, SpinLockObject, StringObject,
    TargetObject, TimerObject, WaitLockObject, WorkItemObject, function,
};
use crate::{
    context::{self, DriverId},
    kernel::{State, lock},
    pool,
    report::bug_check,
    rule::Rule,
};

/// The tag of what the framework allocates.
const TAG: u32 = u32::from_ne_bytes(*b"FxDr");

/// All objects by handle.
#[derive(Default)]
pub struct Framework {
    objects: BTreeMap<usize, Arc<Object>>,
    pub inits: BTreeMap<usize, super::device_init::Init>,
}

/// What objects of one kind have of their own.
pub trait Part: Sized {
    /// The kind, in words.
    const NAME: &'static str;

    /// What an object of that kind has; `None` for one of another kind.
    fn of(kind: &Kind) -> Option<&Arc<Self>>;
}

macro_rules! kinds {
    ($($kind:ident($part:ty) = $name:literal,)+) => {
        /// What an object is.
        #[derive(Clone)]
        pub enum Kind {
            Driver,
            $($kind(Arc<$part>),)+
            Key,
            General,
        }

        impl Kind {
            pub const fn name(&self) -> &'static str {
                match self {
                    Self::Driver => "driver",
                    $(Self::$kind(_) => $name,)+
                    Self::Key => "registry key",
                    Self::General => "general object",
                }
            }
        }

        $(impl Part for $part {
            const NAME: &'static str = $name;

            fn of(kind: &Kind) -> Option<&Arc<Self>> {
                if let Kind::$kind(part) = kind { Some(part) } else { None }
            }
        })+
    };
}

kinds! {
    Device(DeviceObject) = "device",
    Queue(QueueObject) = "queue",
    Request(RequestObject) = "request",
    File(FileObject) = "file",
    Target(TargetObject) = "I/O target",
    SpinLock(SpinLockObject) = "spin lock",
    WaitLock(WaitLockObject) = "wait lock",
    Timer(TimerObject) = "timer",
    Dpc(DpcObject) = "DPC",
    WorkItem(WorkItemObject) = "work item",
    Collection(CollectionObject) = "collection",
    String(StringObject) = "string",
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
    pub kind: Kind,
    parent: Option<usize>,
    children: Mutex<Vec<usize>>,
    references: AtomicI64,
    phase: AtomicU8,
    context: Option<(usize, usize)>,
    cleanup: PFN_WDF_OBJECT_CONTEXT_CLEANUP,
    destroy: PFN_WDF_OBJECT_CONTEXT_DESTROY,
}

impl Object {
    /// The handle as the driver has it.
    pub const fn pointer<T>(&self) -> *mut T {
        ptr::without_provenance_mut(self.handle)
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

/// Whether the parent that the attributes name is a device, or leads to one, as timers and work items need it.
pub fn check_parent(state: &State, attributes: PWDF_OBJECT_ATTRIBUTES) -> Result<(), NTSTATUS> {
    /// `STATUS_WDF_PARENT_NOT_SPECIFIED` of wdfstatus.h.
    const NO_PARENT: NTSTATUS = 0xC020_0212_u32.cast_signed();
    let mut next = Some(read_attributes(attributes).ParentObject.addr()).filter(|&parent| parent != 0);
    if next.is_none() {
        return Err(NO_PARENT);
    }
    while let Some(parent) = next {
        let object = state.object(parent);
        if matches!(object.kind, Kind::Device(_)) {
            return Ok(());
        }
        next = object.parent;
    }
    Err(STATUS_INVALID_DEVICE_REQUEST)
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

/// Checks the size that a structure says of itself.
pub fn check_size<T>(size: u32, name: &str) {
    if size as usize != size_of::<T>() {
        bug_check(Rule::BadArgument, format_args!("{name} says that it has {size} bytes"));
    }
}

impl State {
    /// Makes an object. `None` if there is no memory.
    pub fn create_object(
        self: &Arc<Self>,
        kind: Kind,
        attributes: PWDF_OBJECT_ATTRIBUTES,
        parent: Option<usize>,
    ) -> Option<Arc<Object>> {
        self.create_object_of(context::caller(), kind, &read_attributes(attributes), parent)
    }

    /// Makes an object of a driver, which need not be the one that has called. `None` if there is no memory.
    pub fn create_object_of(
        self: &Arc<Self>,
        owner: DriverId,
        kind: Kind,
        attributes: &WDF_OBJECT_ATTRIBUTES,
        parent: Option<usize>,
    ) -> Option<Arc<Object>> {
        if self.strikes() {
            return None;
        }
        let parent = if attributes.ParentObject.is_null() { parent } else { Some(attributes.ParentObject.addr()) };
        let context = if attributes.ContextTypeInfo.is_null() {
            None
        } else {
            // SAFETY: not null, so the driver's description, which lives as long as the driver.
            let info = unsafe { attributes.ContextTypeInfo.read() };
            check_size::<WDF_OBJECT_CONTEXT_TYPE_INFO>(info.Size, "WDF_OBJECT_CONTEXT_TYPE_INFO");
            let size =
                if attributes.ContextSizeOverride == 0 { info.ContextSize } else { attributes.ContextSizeOverride };
            Some((info.UniqueType.addr(), pool::allocate(owner, size.max(1), TAG, true)?))
        };
        let object = Arc::new(Object {
            handle: 0xFD00_0000_0000 + usize::try_from(self.next()).unwrap_or(0) * 16,
            owner,
            kind,
            parent,
            children: Mutex::default(),
            references: AtomicI64::new(1),
            phase: AtomicU8::new(LIVE),
            context,
            cleanup: attributes.EvtCleanupCallback,
            destroy: attributes.EvtDestroyCallback,
        });
        if let Some(parent) = parent {
            lock(&self.object(parent).children).push(object.handle);
        }
        lock(&self.framework).objects.insert(object.handle, object.clone());
        Some(object)
    }

    /// The object with that handle.
    pub fn object(&self, handle: usize) -> Arc<Object> {
        let found = lock(&self.framework).objects.get(&handle).cloned();
        found.unwrap_or_else(|| bug_check(Rule::BadHandle, format_args!("{handle:#x} is no object, or was one")))
    }

    /// The object with a handle that a driver passes.
    pub fn given<T>(&self, handle: *mut T) -> Arc<Object> {
        self.object(handle.addr())
    }

    /// The object with a handle that a driver passes, which must be of that kind, and what it has of its own.
    pub fn given_as<T, P: Part>(&self, handle: *mut T) -> (Arc<Object>, Arc<P>) {
        let object = self.given(handle);
        let Some(part) = P::of(&object.kind).cloned() else {
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
        match &object.kind {
            Kind::Device(device) => self.stop_device(device),
            Kind::Queue(queue) => self.stop_queue(queue),
            Kind::Target(target) => self.close_target(target),
            Kind::SpinLock(spin_lock) => spin_lock.end(object.handle),
            Kind::WaitLock(wait_lock) => wait_lock.end(),
            Kind::Timer(timer) => timer.end(self),
            Kind::Dpc(dpc) => dpc.end(self),
            Kind::WorkItem(work_item) => work_item.end(self),
            Kind::Collection(collection) => {
                for member in collection.take() {
                    self.dereference(&self.object(member));
                }
            }
            _ => {}
        }
        let children = lock(&object.children).clone();
        for child in children.into_iter().rev() {
            let child = self.object(child);
            if child.is_live() {
                self.clean(&child);
            }
        }
        if let Some(cleanup) = object.cleanup {
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
            let child = lock(&self.framework).objects.get(&child).cloned();
            if let Some(child) = child {
                self.let_go(&child);
            }
        }
        self.dereference(object);
    }

    fn dereference(self: &Arc<Self>, object: &Arc<Object>) {
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
        if let Some(destroy) = object.destroy {
            context::call(object.owner, "EvtDestroyCallback", || {
                // SAFETY: the driver's own callback, with the handle of the object that it is for.
                unsafe { destroy(object.pointer()) };
            });
        }
        lock(&self.framework).objects.remove(&object.handle);
        if let Kind::Device(device) = &object.kind {
            self.device_is_gone(device);
        }
        if let Some((_, memory)) = object.context {
            pool::free(memory, Some(TAG));
        }
        if let Some(parent) = object.parent {
            let parent = lock(&self.framework).objects.get(&parent).cloned();
            if let Some(parent) = parent {
                lock(&parent.children).retain(|&child| child != object.handle);
            }
        }
    }

    /// A driver is unloaded: none of its objects may be left.
    pub fn check_objects(&self, owner: DriverId, name: &str) {
        let framework = lock(&self.framework);
        let left = framework.objects.values().find(|object| object.owner == owner).cloned();
        let init = framework.inits.values().any(|init| init.owner == owner);
        drop(framework);
        if let Some(object) = left {
            let references = object.references.load(Acquire);
            let kind = object.kind.name();
            bug_check(
                Rule::ReferenceLeak,
                format_args!("driver {name} left a {kind} of the framework with {references} references"),
            );
        }
        if init {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a WDFDEVICE_INIT"));
        }
    }

    /// Every live object of a kind that `of` recognises.
    pub fn objects_of<T>(&self, of: impl Fn(&Arc<Object>) -> Option<T>) -> Vec<T> {
        lock(&self.framework).objects.values().filter(|object| object.is_live()).filter_map(of).collect()
    }
}

pub extern "C" fn WdfObjectCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFOBJECT,
) -> NTSTATUS {
    function!("WdfObjectCreate", |state| {
        let parent = state.driver_object(context::caller());
        let Some(object) = state.create_object(Kind::General, attributes, parent) else {
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
        match &object.kind {
            Kind::Driver | Kind::Request(_) | Kind::File(_) => {
                bug_check(Rule::BadHandle, format_args!("a driver may not delete a {}", object.kind.name()));
            }
            Kind::Queue(queue) => {
                if queue.device.default_queue.load(Acquire) == object.handle {
                    bug_check(Rule::BadHandle, format_args!("a driver may not delete the default queue of a device"));
                }
                lock(&queue.device.queues).retain(|&one| one != object.handle);
            }
            Kind::Device(device) if !device.control && !device.is_of_miniport() => {
                bug_check(Rule::BadHandle, format_args!("a driver may not delete a device of plug and play"));
            }
            Kind::Device(_) | Kind::Target(_) | Kind::Key if machine::current_irql() > Irql::PASSIVE_LEVEL => {
                let (kind, irql) = (object.kind.name(), machine::current_irql());
                bug_check(Rule::IrqlTooHigh, format_args!("WdfObjectDelete of a {kind} at {irql}"));
            }
            _ => {}
        }
        match &object.kind {
            Kind::Device(device) if device.control => state.delete_control_device(device),
            _ => state.delete_object(object.handle),
        }
    });
}

pub extern "C" fn WdfObjectGetTypedContextWorker(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFOBJECT,
    info: PCWDF_OBJECT_CONTEXT_TYPE_INFO,
) -> PVOID {
    function!("WdfObjectGetTypedContextWorker", |state| {
        // SAFETY: the driver's description, which lives as long as the driver.
        let unique = unsafe { (*info).UniqueType }.addr();
        let context = state.given(handle).context.filter(|&(kind, _)| kind == unique);
        context.map_or(ptr::null_mut(), |(_, memory)| ptr::with_exposed_provenance_mut(memory))
    })
}

pub extern "C" fn WdfObjectContextGetObject(_globals: PWDF_DRIVER_GLOBALS, context: PVOID) -> WDFOBJECT {
    function!("WdfObjectContextGetObject", |state| {
        let is_it = |object: &&Arc<Object>| object.context.is_some_and(|(_, memory)| memory == context.addr());
        let found = lock(&state.framework).objects.values().find(is_it).cloned();
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
