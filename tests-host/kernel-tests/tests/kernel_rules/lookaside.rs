//! The framework's lookaside lists, and memory objects out of them.

use std::ptr;

use simulated_kernel::{Rule, caught};
use wdk_sys::{
    _POOL_TYPE, NTSTATUS, PVOID, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, WDF_OBJECT_ATTRIBUTES, WDFDEVICE, WDFMEMORY,
    WDFOBJECT, call_unsafe_wdf_function_binding,
};

use crate::{
    TAG,
    made::{Made, device, with_device},
    raise, rules,
    sent::framework,
    skeleton::{Loaded, Wrong, default_queue, run},
    small_driver::attributes,
};

/// Does `work` as the driver, when it has a device.
fn loads(work: fn(&Loaded)) {
    run(Wrong { load: work, ..Wrong::default() });
}

fn try_list(pool: i32, bytes: usize, memory: WDF_OBJECT_ATTRIBUTES) -> Result<WDFOBJECT, NTSTATUS> {
    try_list_of(pool, bytes, attributes(), memory)
}

fn try_list_of(
    pool: i32,
    bytes: usize,
    mut own: WDF_OBJECT_ATTRIBUTES,
    mut memory: WDF_OBJECT_ATTRIBUTES,
) -> Result<WDFOBJECT, NTSTATUS> {
    let mut list: WDFOBJECT = ptr::null_mut();
    let (own, memory, place) = (&raw mut own, &raw mut memory, &raw mut list);
    let status = framework!(WdfLookasideListCreate(
        own => *mut WDF_OBJECT_ATTRIBUTES,
        bytes => usize,
        pool => i32,
        memory => *mut WDF_OBJECT_ATTRIBUTES,
        TAG => u32,
        place => *mut WDFOBJECT,
    ) -> NTSTATUS);
    if status < 0 { Err(status) } else { Ok(list) }
}

fn list(pool: i32) -> WDFOBJECT {
    try_list(pool, 24, attributes()).expect("a list")
}

fn below(parent: WDFOBJECT) -> WDF_OBJECT_ATTRIBUTES {
    WDF_OBJECT_ATTRIBUTES { ParentObject: parent, ..attributes() }
}

fn memory_of(list: WDFOBJECT) -> WDFMEMORY {
    let mut memory: WDFMEMORY = ptr::null_mut();
    let place = &raw mut memory;
    let status = framework!(WdfMemoryCreateFromLookaside(list => WDFOBJECT, place => *mut WDFMEMORY) -> NTSTATUS);
    assert_eq!(status, STATUS_SUCCESS);
    memory
}

fn buffer_of(memory: WDFMEMORY) -> (PVOID, usize) {
    let mut length = 0;
    // SAFETY: the test's scenario; the place lives until the call returns.
    let buffer = unsafe { call_unsafe_wdf_function_binding!(WdfMemoryGetBuffer, memory, &raw mut length) };
    (buffer, length)
}

fn fill(memory: WDFMEMORY, bytes: usize) {
    // SAFETY: as wrong as the test wants it.
    unsafe { buffer_of(memory).0.cast::<u8>().write_bytes(7, bytes) };
}

fn delete<T>(object: *mut T) {
    // SAFETY: the test's scenario, right or wrong.
    unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, object.cast()) };
}

#[test]
fn memory_out_of_a_list_has_the_lists_size_and_outlives_it() {
    loads(|_| {
        assert_eq!(try_list(_POOL_TYPE::NonPagedPoolNx, 0, attributes()), Err(STATUS_INVALID_PARAMETER));
        let list = list(_POOL_TYPE::NonPagedPoolNx);
        let (first, second) = (memory_of(list), memory_of(list));
        assert_eq!((buffer_of(first).1, buffer_of(second).1), (24, 24));
        assert_ne!(buffer_of(first).0, buffer_of(second).0);
        delete(first);
        delete(list);
        // Its parent is the driver, with which it goes.
        fill(second, 24);
    });
}

#[test]
fn memory_out_of_a_list_goes_with_the_parent_that_the_list_names() {
    loads(|_| {
        let parent = memory_of(list(_POOL_TYPE::PagedPool));
        let list = try_list(_POOL_TYPE::PagedPool, 24, below(parent.cast())).expect("a list");
        fill(memory_of(list), 24);
        delete(parent);
    });
}

#[test]
fn a_list_of_paged_pool_and_its_memory_are_of_one_device() {
    with_device(Made::default(), |_, driver, _| {
        let first = device();
        let other = driver.add_device().expect("the driver takes two");
        let second = device();
        driver.run(|| {
            let list = |pool, memory: WDFDEVICE| try_list_of(pool, 8, below(first.cast()), below(memory.cast()));
            assert!(list(_POOL_TYPE::PagedPool, first).is_ok());
            assert_eq!(list(_POOL_TYPE::PagedPool, second), Err(STATUS_INVALID_PARAMETER));
            assert!(list(_POOL_TYPE::NonPagedPoolNx, second).is_ok(), "which is looked at for paged pool only");
        });
        assert!(other.remove().is_ok(), "nobody refuses");
    });
}

rules! {
    a_list_of_paged_pool_at_dispatch_level breaks IrqlTooHigh by |_| { raise(2); list(_POOL_TYPE::PagedPool); };
    paged_memory_out_of_a_list_at_dispatch_level breaks IrqlTooHigh by |_| {
        let list = list(_POOL_TYPE::PagedPool);
        raise(2);
        memory_of(list);
    };
    a_list_of_no_pool breaks PoolFlags by |_| { list(2); };
    memory_out_of_something_else breaks BadHandle by |_| { memory_of(default_queue().cast()); };
    memory_out_of_a_list_that_is_deleted breaks BadHandle by |_| {
        let list = list(_POOL_TYPE::NonPagedPoolNx);
        delete(list);
        memory_of(list);
    };
    more_than_a_list_has_room_for breaks Overrun by |_| {
        let memory = memory_of(list(_POOL_TYPE::NonPagedPoolNx));
        fill(memory, 25);
        delete(memory);
    };
    memory_out_of_a_list_used_after_its_deletion breaks UseAfterFree by |_| {
        let memory = memory_of(list(_POOL_TYPE::NonPagedPoolNx));
        let buffer = buffer_of(memory).0;
        delete(memory);
        // SAFETY: as wrong as the test wants it.
        unsafe { buffer.cast::<u8>().write(0x7A) };
    };
}
