//! Memory objects: a buffer of their own, one of the driver's, or one of a request.

use std::{
    ptr,
    sync::{Arc, Mutex, atomic::Ordering::Acquire},
};

use host::machine::Irql;
use wdk_bindings::{
    NTSTATUS, POOL_TYPE, PVOID, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES, STATUS_BUFFER_TOO_SMALL,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER,
    STATUS_SUCCESS, ULONG, WDF_OBJECT_ATTRIBUTES, WDFMEMORY, WDFREQUEST,
};

use super::{
    function::function,
    object::{Kind, Object, Part},
    request::{RequestObject, at_hand},
};
use crate::{
    context::{self, DriverId},
    pool,
    report::bug_check,
    routine::{Limit, carry_out},
    rule::Rule,
    state::{State, lock},
    wdm::memory::is_paged,
};

/// The tag of a buffer for which the driver has given none: the framework uses the driver's own then.
const TAG: u32 = u32::from_ne_bytes(*b"FxDr");

/// Whose a buffer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It was allocated with the object and goes with it. With its tag.
    Object(u32),
    /// The driver's, which frees it.
    Driver,
    /// A request's, and so is the object.
    Request,
}

/// A memory object.
pub struct MemoryObject {
    buffer: Mutex<(usize, usize)>,
    owner: Owner,
    paged: bool,
}

impl MemoryObject {
    const fn new(buffer: (usize, usize), owner: Owner, paged: bool) -> Self {
        Self { buffer: Mutex::new(buffer), owner, paged }
    }
}

impl Drop for MemoryObject {
    fn drop(&mut self) {
        if let Owner::Object(tag) = self.owner {
            pool::free(lock(&self.buffer).0, Some(tag));
        }
    }
}

impl Part for MemoryObject {
    const NAME: &'static str = "memory object";
}

impl Kind for MemoryObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn check_deletion(&self, object: &Object) {
        if self.owner == Owner::Request {
            object.refuse_to_delete();
        }
        if self.paged {
            object.require_passive_level();
        }
    }
}

impl MemoryObject {
    /// With a buffer of its own, of a driver. `None` if there is no memory.
    pub fn allocated(owner: DriverId, size: usize, tag: ULONG, paged: bool) -> Option<Self> {
        let tag = if tag == 0 { TAG } else { tag };
        let block =
            if paged { pool::allocate_paged(owner, size, tag) } else { pool::allocate(owner, size, tag, false) };
        Some(Self::new((block?, size), Owner::Object(tag), paged))
    }

    /// The program's memory that a driver has locked, for as long as the request has it.
    pub const fn of_program(buffer: (usize, usize)) -> Self {
        Self::new(buffer, Owner::Request, false)
    }

    /// Its buffer, and how long that is.
    pub fn whole(&self) -> (usize, usize) {
        *lock(&self.buffer)
    }
}

fn memory(state: &State, handle: WDFMEMORY) -> Arc<MemoryObject> {
    state.given_as(handle).1
}

pub extern "C" fn WdfMemoryCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    pool: POOL_TYPE,
    tag: ULONG,
    size: usize,
    place: *mut WDFMEMORY,
    buffer: *mut PVOID,
) -> NTSTATUS {
    let paged = is_paged(pool);
    // The reference leaves the level to the pool.
    let level = if paged { Irql::APC_LEVEL } else { Irql::DISPATCH_LEVEL };
    carry_out("WdfMemoryCreate", &Limit::at(level), |state| {
        if size == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        let owner = context::caller();
        let Some(kind) = MemoryObject::allocated(owner, size, tag, paged) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        let block = kind.whole().0;
        let Some(object) = state.create_object(Arc::new(kind), attributes, state.driver_object(owner)) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        if !buffer.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { buffer.write(ptr::with_exposed_provenance_mut(block)) };
        }
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfMemoryCreatePreallocated(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    buffer: PVOID,
    size: usize,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    function!("WdfMemoryCreatePreallocated", |state| {
        if buffer.is_null() || size == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        let kind = MemoryObject::new((buffer.expose_provenance(), size), Owner::Driver, false);
        let parent = state.driver_object(context::caller());
        let Some(object) = state.create_object(Arc::new(kind), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

/// Only for an object whose buffer is the driver's.
pub extern "C" fn WdfMemoryAssignBuffer(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFMEMORY,
    buffer: PVOID,
    size: usize,
) -> NTSTATUS {
    function!("WdfMemoryAssignBuffer", |state| {
        let memory = memory(state, handle);
        if memory.owner != Owner::Driver {
            bug_check(Rule::BadHandle, format_args!("a buffer is assigned to a memory object that has one of its own"));
        }
        if buffer.is_null() || size == 0 {
            return STATUS_INVALID_PARAMETER;
        }
        *lock(&memory.buffer) = (buffer.expose_provenance(), size);
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfMemoryGetBuffer(_globals: PWDF_DRIVER_GLOBALS, handle: WDFMEMORY, size: *mut usize) -> PVOID {
    function!("WdfMemoryGetBuffer", |state| {
        let (buffer, length) = *lock(&memory(state, handle).buffer);
        if !size.is_null() {
            // SAFETY: not null, so the driver's place, which lives until the call returns.
            unsafe { size.write(length) };
        }
        ptr::with_exposed_provenance_mut(buffer)
    })
}

/// The place in a buffer of so many bytes from an offset on, or `outside`.
fn part((buffer, length): (usize, usize), offset: usize, count: usize, outside: NTSTATUS) -> Result<*mut u8, NTSTATUS> {
    if count == 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let fits = offset.checked_add(count).is_some_and(|end| end <= length);
    if fits { Ok(ptr::with_exposed_provenance_mut(buffer + offset)) } else { Err(outside) }
}

pub extern "C" fn WdfMemoryCopyToBuffer(
    _globals: PWDF_DRIVER_GLOBALS,
    source: WDFMEMORY,
    offset: usize,
    buffer: PVOID,
    count: usize,
) -> NTSTATUS {
    function!("WdfMemoryCopyToBuffer", |state| {
        let memory = memory(state, source);
        let whole = *lock(&memory.buffer);
        match part(whole, offset, count, STATUS_BUFFER_TOO_SMALL) {
            _ if buffer.is_null() => STATUS_INVALID_PARAMETER,
            Err(status) => status,
            Ok(from) => {
                // SAFETY: as many bytes of the object's buffer; the driver says that its own has room for them.
                unsafe { ptr::copy(from, buffer.cast::<u8>(), count) };
                STATUS_SUCCESS
            }
        }
    })
}

pub extern "C" fn WdfMemoryCopyFromBuffer(
    _globals: PWDF_DRIVER_GLOBALS,
    target: WDFMEMORY,
    offset: usize,
    buffer: PVOID,
    count: usize,
) -> NTSTATUS {
    function!("WdfMemoryCopyFromBuffer", |state| {
        let memory = memory(state, target);
        let whole = *lock(&memory.buffer);
        match part(whole, offset, count, STATUS_INVALID_BUFFER_SIZE) {
            _ if buffer.is_null() => STATUS_INVALID_PARAMETER,
            Err(status) => status,
            Ok(to) => {
                // SAFETY: as many bytes of the object's buffer; the driver says that its own has them.
                unsafe { ptr::copy(buffer.cast::<u8>(), to, count) };
                STATUS_SUCCESS
            }
        }
    })
}

/// Gives a driver the memory object of one of the two buffers of a request: the same one each time, until the request is complete.
fn of_request(
    state: &Arc<State>,
    request: &RequestObject,
    (buffer, length): (usize, usize),
    known: &Mutex<usize>,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    if request.has_own_buffers() {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    if length == 0 {
        return STATUS_BUFFER_TOO_SMALL;
    }
    if buffer == 0 {
        return STATUS_INVALID_DEVICE_REQUEST;
    }
    let mut known = lock(known);
    while *known == 0 {
        // The framework has it in the request: this does not fail.
        let kind = Arc::new(MemoryObject::new((buffer, length), Owner::Request, false));
        let (owner, parent) = (context::caller(), Some(request.handle.load(Acquire)));
        let made = state.create_object_of(owner, kind, &WDF_OBJECT_ATTRIBUTES::default(), parent);
        *known = made.map_or(0, |object| object.handle);
    }
    // SAFETY: the driver's place, which lives until the call returns.
    unsafe { place.write(ptr::without_provenance_mut(*known)) };
    STATUS_SUCCESS
}

pub extern "C" fn WdfRequestRetrieveInputMemory(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    function!("WdfRequestRetrieveInputMemory", |state| {
        let request = at_hand(state, handle);
        if request.is_one_sided(true) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        of_request(state, &request, request.input_buffer(), &request.memory[0], place)
    })
}

pub extern "C" fn WdfRequestRetrieveOutputMemory(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFREQUEST,
    place: *mut WDFMEMORY,
) -> NTSTATUS {
    function!("WdfRequestRetrieveOutputMemory", |state| {
        let request = at_hand(state, handle);
        if request.is_one_sided(false) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        of_request(state, &request, request.output_buffer(), &request.memory[1], place)
    })
}
