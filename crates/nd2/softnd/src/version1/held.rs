//! Objects of version 2 that an object of version 1 holds, and the overlapped requests of both.

use std::{ffi::c_void, marker::PhantomData, ptr, ptr::NonNull};

use nd2::{
    abi::{BOOL, HRESULT, IND2OverlappedVtbl, INDOverlappedVtbl, IUnknownVtbl, OVERLAPPED, Table},
    com::{Class, borrow, unknown},
};
use ndkpi::GUID;

/// A reference to an object with the table `T`.
///
/// # Invariants
///
/// The pointer is that of a COM object whose table begins as a `T`, and one reference belongs to this value.
pub struct ComRef<T: Table>(NonNull<c_void>, PhantomData<fn() -> T>);

// SAFETY: the objects may be used by any thread (`NDSPI`, threads).
unsafe impl<T: Table> Send for ComRef<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Table> Sync for ComRef<T> {}

impl<T: Table> ComRef<T> {
    /// What `make` stores as an object with the interface `iid`.
    ///
    /// # Errors
    ///
    /// What `make` says.
    ///
    /// # Safety
    ///
    /// On success `make` stores an object whose table begins as a `T`, and one reference is this value's.
    pub unsafe fn make(
        iid: &GUID,
        make: impl FnOnce(*const GUID, *mut *mut c_void) -> HRESULT,
    ) -> Result<Self, HRESULT> {
        let mut object = ptr::null_mut();
        let result = make(iid, &raw mut object);
        if result != HRESULT::ND_SUCCESS {
            return Err(result);
        }
        NonNull::new(object).map(|object| Self(object, PhantomData)).ok_or(HRESULT::ND_INTERNAL_ERROR)
    }

    /// The object's pointer.
    pub const fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// The object's table.
    pub fn table(&self) -> &T {
        // SAFETY: a COM object begins with a pointer to its table (invariant).
        let table = unsafe { self.0.cast::<*const T>().read() };
        // SAFETY: the table is a `T` (invariant), and there as long as the object.
        unsafe { &*table }
    }

    fn unknown(&self) -> &IUnknownVtbl {
        self.table().unknown()
    }

    /// Asks the object for an interface.
    ///
    /// # Safety
    ///
    /// `iid` is null or valid for reading, `out` null or valid for writing.
    pub unsafe fn query(&self, iid: *const GUID, out: *mut *mut c_void) -> HRESULT {
        // SAFETY: the object is held; `iid` is null or valid for reading, `out` null or valid for writing (`# Safety`).
        unsafe { (self.unknown().QueryInterface)(self.as_ptr(), iid, out) }
    }
}

impl<T: Table> Drop for ComRef<T> {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's (invariant), and given back once.
        unsafe { (self.unknown().Release)(self.as_ptr()) };
    }
}

/// A class with overlapped requests, which are those of an object of version 2.
pub trait Overlapped: Class {
    /// That object's table and pointer.
    fn overlapped(&self) -> (&IND2OverlappedVtbl, *mut c_void);

    /// Cancels what is outstanding.
    fn cancel(&self) -> HRESULT {
        let (table, this) = self.overlapped();
        // SAFETY: the object is held.
        unsafe { (table.CancelOverlappedRequests)(this) }
    }

    /// A request has ended as its client is told now.
    fn ended(&self, _: *mut OVERLAPPED, _: HRESULT) {}
}

/// The table's first functions.
pub const fn overlapped<C: Overlapped>() -> INDOverlappedVtbl {
    INDOverlappedVtbl {
        base: unknown::<C>(),
        CancelOverlappedRequests: cancel_overlapped_requests::<C>,
        GetOverlappedResult: get_overlapped_result::<C>,
    }
}

/// `INDOverlapped::CancelOverlappedRequests`.
///
/// # Safety
///
/// `this` is an object of the class.
unsafe extern "system" fn cancel_overlapped_requests<C: Overlapped>(this: *mut c_void) -> HRESULT {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    object.cancel()
}

/// `INDOverlapped::GetOverlappedResult`. No request of this interface transfers bytes.
///
/// # Safety
///
/// `this` is an object of the class; `overlapped` is null or was given to one of its methods and is valid; `bytes` is null or
/// valid for writing.
unsafe extern "system" fn get_overlapped_result<C: Overlapped>(
    this: *mut c_void,
    overlapped: *mut OVERLAPPED,
    bytes: *mut usize,
    wait: BOOL,
) -> HRESULT {
    if !bytes.is_null() {
        // SAFETY: the pointer is not null.
        unsafe { bytes.write(0) };
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    let (table, held) = object.overlapped();
    // SAFETY: the object is held; `overlapped` is null or of one of its requests, and valid (`# Safety`).
    let result = unsafe { (table.GetOverlappedResult)(held, overlapped, wait) };
    if !result.is_pending() {
        object.ended(overlapped, result);
    }
    result
}

/// A length of version 1 as version 2 has it. What does not fit is longer than anything there is.
pub fn short(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Has a method of version 2 fill a buffer whose length version 1 counts in another type.
///
/// # Safety
///
/// `length` is null or valid for reading and writing.
pub unsafe fn with_length(length: *mut usize, fill: impl FnOnce(*mut u32) -> HRESULT) -> HRESULT {
    if length.is_null() {
        return HRESULT::ND_INVALID_PARAMETER;
    }
    // SAFETY: the pointer is not null.
    let mut own = short(unsafe { length.read() });
    let result = fill(&raw mut own);
    // SAFETY: the pointer is not null.
    unsafe { length.write(own as usize) };
    result
}
