//! The methods of `IND2Overlapped`, which several classes share (`NDSPI 1`).

use core::{ffi::c_void, ptr::NonNull};

use ndkpi::NtStatus;

use super::{Class, borrow, part::Part, unknown};
use crate::{
    abi::{BOOL, HRESULT, IND2OverlappedVtbl, OVERLAPPED},
    back_end::{RequestFile, Requests},
};

/// The table's first functions.
pub const fn overlapped<C>() -> IND2OverlappedVtbl
where
    C: Part<Behind: Requests<C::BackEnd>>,
{
    IND2OverlappedVtbl {
        base: unknown::<C>(),
        CancelOverlappedRequests: cancel_overlapped_requests::<C>,
        GetOverlappedResult: get_overlapped_result::<C>,
    }
}

/// A method that performs an overlapped request on the object, or refuses a client that gives no structure for it.
///
/// # Safety
///
/// `this` is an object of the class.
pub unsafe fn request<C: Class>(
    this: *mut c_void,
    overlapped: *mut OVERLAPPED,
    perform: impl FnOnce(&C, NonNull<OVERLAPPED>) -> NtStatus,
) -> HRESULT {
    let Some(overlapped) = NonNull::new(overlapped) else { return HRESULT::ND_INVALID_PARAMETER };
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    perform(&object, overlapped).into()
}

/// `IND2Overlapped::CancelOverlappedRequests`.
///
/// # Safety
///
/// `this` is an object of the class.
pub unsafe extern "system" fn cancel_overlapped_requests<C>(this: *mut c_void) -> HRESULT
where
    C: Part<Behind: Requests<C::BackEnd>>,
{
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    object.behind().cancel().into()
}

/// `IND2Overlapped::GetOverlappedResult`.
///
/// # Safety
///
/// `this` is an object of the class; `overlapped` is null or was given to one of its methods and is still valid.
pub unsafe extern "system" fn get_overlapped_result<C>(
    this: *mut c_void,
    overlapped: *mut OVERLAPPED,
    wait: BOOL,
) -> HRESULT
where
    C: Part<Behind: Requests<C::BackEnd>>,
{
    // SAFETY: the client calls through the table of an object it holds. The structure is valid (`# Safety`), and a client
    // that waits has given an event (`NDSPI 1`).
    unsafe {
        request::<C>(this, overlapped, |object, overlapped| {
            let file = object.behind().file();
            if wait == 0 { file.status(overlapped) } else { file.wait(overlapped) }
        })
    }
}
