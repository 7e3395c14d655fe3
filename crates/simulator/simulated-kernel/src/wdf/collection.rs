//! The framework's collections and strings.

use std::sync::{Arc, Mutex};

use wdk_bindings::{
    NTSTATUS, PCUNICODE_STRING, PUNICODE_STRING, PWDF_DRIVER_GLOBALS, PWDF_OBJECT_ATTRIBUTES,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_SUCCESS, ULONG, UNICODE_STRING, WDFCOLLECTION, WDFOBJECT, WDFSTRING,
};

use super::{
    function::function,
    object::{Kind, Object, Part},
};
use crate::{
    context::{self, DriverId},
    pool,
    report::bug_check,
    rule::Rule,
    state::{State, lock},
    text,
};

/// The tag of what the framework allocates.
const TAG: u32 = u32::from_ne_bytes(*b"FxDr");

/// A collection: handles of objects, each of which it refers to.
#[derive(Default)]
pub struct CollectionObject(Mutex<Vec<usize>>);

impl Part for CollectionObject {
    const NAME: &'static str = "collection";
}

impl Kind for CollectionObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn end(&self, state: &Arc<State>, _object: &Object) {
        for member in self.take() {
            state.dereference(&state.object(member));
        }
    }
}

impl Part for StringObject {
    const NAME: &'static str = "string";
}

impl Kind for StringObject {
    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl CollectionObject {
    /// The collection is being deleted: takes out what is in it.
    pub fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// A string.
pub struct StringObject(Mutex<Text>);

impl StringObject {
    /// Has it hold another text. `None` if there is no memory for that.
    pub fn set(&self, owner: DriverId, units: &[u16]) -> Option<()> {
        let text = Text::of(owner, units)?;
        *lock(&self.0) = text;
        Some(())
    }
}

/// Text in a block of the pool that may be paged out.
struct Text {
    /// Zero if the text is empty.
    address: usize,
    bytes: u16,
}

impl Text {
    fn of(owner: DriverId, units: &[u16]) -> Option<Self> {
        let bytes = size_of_val(units);
        let address = if bytes == 0 { 0 } else { pool::allocate_paged(owner, bytes, TAG)? };
        let buffer: *mut u16 = std::ptr::with_exposed_provenance_mut(address);
        for (index, &unit) in units.iter().enumerate() {
            // SAFETY: the block that was just allocated has as many units, of which nobody else knows yet.
            unsafe { buffer.wrapping_add(index).write_unaligned(unit) };
        }
        Some(Self { address, bytes: u16::try_from(bytes).unwrap_or(u16::MAX) })
    }
}

impl Drop for Text {
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
        let Some(object) = state.create_object(Arc::new(CollectionObject::default()), attributes, parent) else {
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

pub extern "C" fn WdfCollectionGetFirstItem(_globals: PWDF_DRIVER_GLOBALS, handle: WDFCOLLECTION) -> WDFOBJECT {
    function!("WdfCollectionGetFirstItem", |state| {
        let member = lock(&collection(state, handle).0).first().copied();
        std::ptr::without_provenance_mut(member.unwrap_or(0))
    })
}

pub extern "C" fn WdfCollectionGetLastItem(_globals: PWDF_DRIVER_GLOBALS, handle: WDFCOLLECTION) -> WDFOBJECT {
    function!("WdfCollectionGetLastItem", |state| {
        let member = lock(&collection(state, handle).0).last().copied();
        std::ptr::without_provenance_mut(member.unwrap_or(0))
    })
}

/// Takes out the member at a place, which has to be there, and gives up the collection's reference to it.
fn remove(state: &Arc<State>, collection: &CollectionObject, place: impl FnOnce(&[usize]) -> Option<usize>) {
    let mut members = lock(&collection.0);
    let Some(index) = place(&members).filter(|&index| index < members.len()) else {
        drop(members);
        bug_check(Rule::BadArgument, format_args!("what is to be removed is not in the collection"));
    };
    let member = members.remove(index);
    drop(members);
    state.dereference(&state.object(member));
}

pub extern "C" fn WdfCollectionRemove(_globals: PWDF_DRIVER_GLOBALS, handle: WDFCOLLECTION, member: WDFOBJECT) {
    function!("WdfCollectionRemove", |state| {
        let member = member.addr();
        remove(state, &collection(state, handle), |members| members.iter().position(|&one| one == member));
    });
}

pub extern "C" fn WdfCollectionRemoveItem(_globals: PWDF_DRIVER_GLOBALS, handle: WDFCOLLECTION, index: ULONG) {
    function!("WdfCollectionRemoveItem", |state| {
        remove(state, &collection(state, handle), |_| usize::try_from(index).ok());
    });
}

pub extern "C" fn WdfStringCreate(
    _globals: PWDF_DRIVER_GLOBALS,
    string: PCUNICODE_STRING,
    attributes: PWDF_OBJECT_ATTRIBUTES,
    place: *mut WDFSTRING,
) -> NTSTATUS {
    function!("WdfStringCreate", |state| {
        let owner = context::caller();
        let Some(text) = Text::of(owner, &text::units(string)) else { return STATUS_INSUFFICIENT_RESOURCES };
        let kind = StringObject(Mutex::new(text));
        let parent = state.driver_object(owner);
        let Some(object) = state.create_object(Arc::new(kind), attributes, parent) else {
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
        let text = lock(&string.0);
        let (bytes, buffer) = (text.bytes, std::ptr::with_exposed_provenance_mut(text.address));
        drop(text);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: buffer }) };
    });
}
