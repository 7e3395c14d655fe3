//! Generic objects: handles of drivers of NDIS that have no other.

use std::{ffi::c_void, ptr};

use miniport::{Handlers, TAG};
use ndis::NdisFreeNetBufferListPool;
use ndkpi::{NDIS_HANDLE, NDIS_OBJECT_HEADER};
use simulated_kernel::{Rule, caught};
use wdk_sys::ntddk::{KeLowerIrql, KfRaiseIrql};

use crate::{lifecycle::run, miniport, own::call};

/// `NDIS_GENERIC_OBJECT`.
#[repr(C)]
struct GenericObject {
    header: NDIS_OBJECT_HEADER,
    reserved: [*mut c_void; 2],
    driver: *mut c_void,
}

unsafe extern "system" {
    // The crate `ndis` leaves them out: SoftNDK does not call them.
    fn NdisAllocateGenericObject(driver: *mut c_void, tag: u32, size: u16) -> NDIS_HANDLE;
    fn NdisFreeGenericObject(object: NDIS_HANDLE);
}

fn allocate() -> NDIS_HANDLE {
    let object = call!(NdisAllocateGenericObject(ptr::null_mut(), TAG, 16));
    assert!(!object.is_null());
    object
}

fn free(object: NDIS_HANDLE) {
    call!(NdisFreeGenericObject(object));
}

/// Has a driver do something, after which its adapter is halted and it is unloaded.
fn does(work: fn()) {
    run(Handlers::default(), |_, driver, _| driver.run(work));
}

#[test]
fn a_generic_object_is_a_handle_with_bytes_of_the_driver() {
    does(|| {
        let before = call!(KfRaiseIrql(2));
        let object = allocate();
        let place = object.cast::<GenericObject>();
        // SAFETY: the driver's object, with as many bytes behind it as were asked for.
        let (read, own) = unsafe { (place.read(), place.add(1).cast::<[u8; 16]>()) };
        assert_eq!((read.header.Revision, read.header.Size, read.driver), (1, 32, ptr::null_mut()));
        // SAFETY: the driver's object, with as many bytes behind it as were asked for.
        assert_eq!(unsafe { own.replace([7; 16]) }, [0; 16]);
        let pool = miniport::create_pool(object);
        assert!(!pool.is_null());
        call!(NdisFreeNetBufferListPool(pool));
        free(object);
        call!(KeLowerIrql(before));
    });
}

wrong! {
    a_generic_object_without_a_tag breaks PoolTag by || {
        call!(NdisAllocateGenericObject(ptr::null_mut(), 0, 16));
    };
    a_generic_object_that_is_freed_before_its_pool breaks PoolLeak by || {
        let object = allocate();
        assert!(!miniport::create_pool(object).is_null());
        free(object);
    };
    a_generic_object_that_is_freed_twice breaks BadHandle by || {
        let object = allocate();
        free(object);
        free(object);
    };
    a_pool_of_a_generic_object_that_is_free breaks BadHandle by || {
        let object = allocate();
        free(object);
        miniport::create_pool(object);
    };
    a_generic_object_that_is_left breaks PoolLeak by || {
        allocate();
    };
    a_generic_object_above_dispatch_level breaks IrqlTooHigh by || {
        call!(KfRaiseIrql(5));
        allocate();
    };
}
