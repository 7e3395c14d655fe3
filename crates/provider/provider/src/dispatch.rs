//! The common part of the functions in the dispatch tables.
//!
//! Each of them borrows the consumer's object, checks its type, and answers with a status or by a callback. That is written here
//! once; the body of a function is its rule.

use core::ffi::c_void;

use ndkpi::{NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NtStatus};

use crate::{
    completion::{AsyncRequest, CreateRequest},
    object::{Body, Borrowed, ObjectRef, borrow},
};

/// Applies `rule` to the object that the consumer names.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if `public` is no object of this type; those of `rule`.
///
/// # Safety
///
/// `public` is null, or an object of this provider that stays open until this returns.
#[inline]
pub unsafe fn with<B: Body, T>(
    public: *mut B::Public,
    rule: impl FnOnce(&Borrowed<B>) -> Result<T, NtStatus>,
) -> Result<T, NtStatus> {
    // SAFETY: `public` is null or stays open until this returns (`# Safety`).
    let object = unsafe { borrow::<B>(public) }?;
    rule(&object)
}

/// Creates an object on `parent`: `rule` makes it, or says why there is none.
///
/// # Safety
///
/// As [`with`], and `out` is null or valid for writing.
pub unsafe fn create<P: Body, B: Body<Os = P::Os>>(
    parent: *mut P::Public,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut B::Public,
    rule: impl FnOnce(&Borrowed<P>) -> Result<ObjectRef<B>, NtStatus>,
) -> NtStatus {
    let create = |parent: &Borrowed<P>| {
        let request = CreateRequest::new(completion, context, out)?;
        let result = rule(parent);
        // SAFETY: `out` is not null here, and valid for writing (`# Safety`).
        Ok(unsafe { request.finish(parent, result) })
    };
    // SAFETY: `parent` is null or stays open until this returns (`# Safety`).
    unsafe { with(parent, create) }.unwrap_or_else(|status| status)
}

/// Makes a request on an object. `rule` does what was asked; its result completes the request.
///
/// # Safety
///
/// As [`with`].
pub unsafe fn request<B: Body>(
    public: *mut B::Public,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    rule: impl FnOnce(&Borrowed<B>) -> Result<(), NtStatus>,
) -> NtStatus {
    let finish = |object: &Borrowed<B>, request: AsyncRequest| {
        let status = rule(object).into();
        Ok(request.finish(object, status))
    };
    // SAFETY: `public` is null or stays open until this returns (`# Safety`).
    unsafe { request_that_may_pend(public, completion, context, finish) }
}

/// Makes a request on an object. `rule` completes the request itself, or keeps it and returns `STATUS_PENDING`.
///
/// # Safety
///
/// As [`with`].
pub unsafe fn request_that_may_pend<B: Body>(
    public: *mut B::Public,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    rule: impl FnOnce(&Borrowed<B>, AsyncRequest) -> Result<NtStatus, NtStatus>,
) -> NtStatus {
    let begin = |object: &Borrowed<B>| rule(object, AsyncRequest::new(completion, context)?);
    // SAFETY: `public` is null or stays open until this returns (`# Safety`).
    unsafe { with(public, begin) }.unwrap_or_else(|status| status)
}
