//! The class factory, which only version 1 asks for.

use std::ffi::c_void;

use nd2::{
    abi::{
        BOOL, HRESULT, IClassFactoryVtbl, IID_IClassFactory, IID_IND2Provider, IID_INDProvider, IID_IUnknown,
        IND2ProviderVtbl,
    },
    class,
    com::{Class, Object, borrow, lock_server, unknown},
};
use ndkpi::GUID;

use crate::version1::{held::ComRef, provider::Provider};

/// Returns true if [`get_class_object`] has the interface.
#[must_use]
pub fn has(iid: &GUID) -> bool {
    *iid == IID_IClassFactory || class::has(iid)
}

/// `DllGetClassObject` of both versions: a class factory for version 1, and for version 2 the provider itself, which `provider`
/// makes. It is called only if the interface exists.
///
/// # Safety
///
/// `iid` is null or valid for reading, `out` null or valid for writing. `provider` is `DllGetClassObject` of version 2.
pub unsafe fn get_class_object(
    iid: *const GUID,
    out: *mut *mut c_void,
    provider: impl FnOnce(*const GUID, *mut *mut c_void) -> HRESULT,
) -> HRESULT {
    // SAFETY: `iid` is not null, and valid for reading (`# Safety`).
    if iid.is_null() || unsafe { iid.read() } != IID_IClassFactory {
        return provider(iid, out);
    }
    // SAFETY: what `provider` makes has this table.
    let make = || unsafe { ComRef::make(&IID_IND2Provider, provider) }.map(Factory);
    // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(iid, out, make) }
}

/// A class factory, with the provider of version 2 behind all that it makes.
struct Factory(ComRef<IND2ProviderVtbl>);

impl Class for Factory {
    type Table = IClassFactoryVtbl;

    const TABLE: &'static IClassFactoryVtbl =
        &IClassFactoryVtbl { base: unknown::<Self>(), CreateInstance: create_instance, LockServer: lock };
    const INTERFACES: &'static [GUID] = &[IID_IClassFactory];
}

/// `IClassFactory::CreateInstance`: a provider of version 1, or that of version 2.
///
/// # Safety
///
/// `this` is such a factory; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe extern "system" fn create_instance(
    this: *mut c_void,
    outer: *mut c_void,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    if iid.is_null() || out.is_null() {
        return HRESULT::E_POINTER;
    }
    // SAFETY: the pointer is not null.
    unsafe { out.write(std::ptr::null_mut()) };
    if !outer.is_null() {
        return HRESULT::CLASS_E_NOAGGREGATION;
    }
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<Factory>(this) };
    // SAFETY: the pointer is not null.
    let wanted = unsafe { iid.read() };
    if wanted != IID_INDProvider && wanted != IID_IUnknown {
        // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
        return unsafe { object.0.query(iid, out) };
    }
    let query = |iid, out| {
        // SAFETY: both pointers are valid.
        unsafe { object.0.query(iid, out) }
    };
    // SAFETY: the object has this interface, whose table this is.
    let make = || unsafe { ComRef::make(&IID_IND2Provider, query) }.map(Provider);
    // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(iid, out, make) }
}

/// `IClassFactory::LockServer`.
///
/// # Safety
///
/// `this` is such a factory.
unsafe extern "system" fn lock(_: *mut c_void, lock: BOOL) -> HRESULT {
    lock_server(lock != 0)
}
