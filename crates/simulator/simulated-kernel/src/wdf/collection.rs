//! The framework's collections and strings.

use std::sync::{Arc, Mutex};

use wdk_bindings::{
    NTSTATUS, PCUNICODE_STRING, PUNICODE_STRING, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, ULONG, UNICODE_STRING, WDFCOLLECTION, WDFOBJECT, WDFSTRING,
};

use super::{Kind, Object, function};
use crate::{
    context,
    kernel::{State, lock},
    pool, text,
};

/// The tag of what the framework allocates.
const TAG: u32 = u32::from_ne_bytes(*b"FxDr");

/// A collection: handles of objects, each of which it refers to.
#[derive(Default)]
pub struct CollectionObject(Mutex<Vec<usize>>);

impl CollectionObject {
    /// The collection is being deleted: takes out what is in it.
    pub fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// A string, in a block of the pool that may be paged out.
pub struct StringObject {
    /// Zero if the string is empty.
    address: usize,
    bytes: u16,
}

impl Drop for StringObject {
    fn drop(&mut self) {
        if self.address != 0 {
            pool::free(self.address, Some(TAG));
        }
    }
}

fn collection(state: &State, handle: WDFCOLLECTION) -> Arc<CollectionObject> {
    state.usable(handle, Object::is_live).1
}

pub extern "C" fn WdfCollectionCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFCOLLECTION,
) -> NTSTATUS {
    function!("WdfCollectionCreate", |state| {
        let parent = state.driver_object(context::caller());
        let Some(object) = state.create_object(Kind::Collection(Arc::default()), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfCollectionAdd(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFCOLLECTION,
    member: WDFOBJECT,
) -> NTSTATUS {
    function!("WdfCollectionAdd", |state| {
        let (collection, member) = (collection(state, handle), state.given(member));
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        member.refer();
        lock(&collection.0).push(member.handle);
        STATUS_SUCCESS
    })
}

pub extern "C" fn WdfCollectionGetCount(_globals: PWDF_DRIVER_GLOBALS, handle: WDFCOLLECTION) -> ULONG {
    function!("WdfCollectionGetCount", |state| {
        ULONG::try_from(lock(&collection(state, handle).0).len()).unwrap_or(ULONG::MAX)
    })
}

pub extern "C" fn WdfCollectionGetItem(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFCOLLECTION,
    index: ULONG,
) -> WDFOBJECT {
    function!("WdfCollectionGetItem", |state| {
        let member = lock(&collection(state, handle).0).get(index as usize).copied();
        std::ptr::without_provenance_mut(member.unwrap_or(0))
    })
}

pub extern "C" fn WdfStringCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    string: PCUNICODE_STRING,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFSTRING,
) -> NTSTATUS {
    function!("WdfStringCreate", |state| {
        let (units, owner) = (text::units(string), context::caller());
        let bytes = size_of_val(&units[..]);
        let address = if bytes == 0 { Some(0) } else { pool::allocate_paged(owner, bytes, TAG) };
        let Some(address) = address else { return STATUS_INSUFFICIENT_RESOURCES };
        let buffer: *mut u16 = std::ptr::with_exposed_provenance_mut(address);
        for (index, &unit) in units.iter().enumerate() {
            // SAFETY: the block that was just allocated has as many units, of which nobody else knows yet.
            unsafe { buffer.wrapping_add(index).write_unaligned(unit) };
        }
        let kind = StringObject { address, bytes: u16::try_from(bytes).unwrap_or(u16::MAX) };
        let parent = state.driver_object(owner);
        let Some(object) = state.create_object(Kind::String(Arc::new(kind)), attributes, parent) else {
            return STATUS_INSUFFICIENT_RESOURCES;
        };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(object.pointer()) };
        STATUS_SUCCESS
    })
}

/// The text is the object's own: it is there as long as that.
pub extern "C" fn WdfStringGetUnicodeString(_globals: PWDF_DRIVER_GLOBALS, handle: WDFSTRING, place: PUNICODE_STRING) {
    function!("WdfStringGetUnicodeString", |state| {
        let (_, string): (_, Arc<StringObject>) = state.given_as(handle);
        let (bytes, buffer) = (string.bytes, std::ptr::with_exposed_provenance_mut(string.address));
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: buffer }) };
    });
}
