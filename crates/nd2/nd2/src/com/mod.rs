//! COM objects: a pointer to a table, counted references, `QueryInterface`; and those of version 2 of the interface, over a
//! [back end](crate::back_end).
//!
//! Written by hand because the crates that make COM objects cannot report a failed allocation, and because little is needed: no
//! apartments, no aggregation, one table for each object.

mod adapter;
mod connector;
mod cq;
mod listener;
mod memory;
mod overlapped;
mod part;
mod provider;
mod qp;
mod srq;

use core::{
    any::TypeId,
    ffi::c_void,
    hash::{Hash, Hasher},
    mem::ManuallyDrop,
    ops::Deref,
    sync::atomic::{AtomicU32, Ordering},
};

use fallible::{AllocError, Arc};
use ndkpi::GUID;

pub use connector::Connector;
pub use cq::{CompletionQueue1, CompletionQueue2, find_queue};
pub use listener::Listener;
pub use memory::MemoryRegion;
pub use provider::Provider;
pub use srq::SharedReceiveQueue;

use crate::abi::{HRESULT, IID_IUnknown, IUnknownVtbl, Table};

/// Objects that exist.
static LIVE: AtomicU32 = AtomicU32::new(0);

/// Counts the COM objects of this crate. As long as there are any, its code must stay loaded.
#[must_use]
pub fn live_objects() -> u32 {
    LIVE.load(Ordering::Acquire)
}

/// `IClassFactory::LockServer`: counts a lock as an object, or gives it back.
pub fn lock_server(lock: bool) -> HRESULT {
    let change = |count: u32| if lock { count.checked_add(1) } else { count.checked_sub(1) };
    match LIVE.fetch_update(Ordering::AcqRel, Ordering::Acquire, change) {
        Ok(_) => HRESULT::S_OK,
        Err(_) => HRESULT::ND_INVALID_PARAMETER,
    }
}

/// What is behind a table. Dropped when the client has released its last reference.
pub trait Class: Send + Sync + Sized + 'static {
    /// The type of the table.
    type Table: Table;
    /// The table.
    const TABLE: &'static Self::Table;
    /// The interfaces that the table implements, besides `IUnknown`.
    const INTERFACES: &'static [GUID];
}

/// An object, as the client's pointer shows it.
#[repr(C)]
pub struct Object<C: Class> {
    table: &'static C::Table,
    class: C,
    /// Last, because the object is there until what it is made of has been dropped: the library may be unloaded then.
    _counted: Counted,
}

/// An object that exists.
struct Counted;

impl Counted {
    fn new() -> Self {
        LIVE.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Release);
    }
}

impl<C: Class> Object<C> {
    /// Makes an object if it has the interface `iid`, and stores the client's first reference to it in `out`.
    ///
    /// # Safety
    ///
    /// `iid` is null or valid for reading, `out` null or valid for writing.
    pub unsafe fn hand_out(
        iid: *const GUID,
        out: *mut *mut c_void,
        make: impl FnOnce() -> Result<C, HRESULT>,
    ) -> HRESULT {
        if out.is_null() || iid.is_null() {
            return HRESULT::E_POINTER;
        }
        // SAFETY: `iid` is not null.
        let wanted = unsafe { iid.read() };
        if !implements::<C>(&wanted) {
            // SAFETY: `out` is not null.
            unsafe { out.write(core::ptr::null_mut()) };
            return HRESULT::E_NOINTERFACE;
        }
        let attempt = make().and_then(|class| {
            Arc::try_new(Self { table: C::TABLE, class, _counted: Counted::new() })
                .map_err(|AllocError| HRESULT::ND_NO_MEMORY)
        });
        let (object, result) = match attempt {
            Ok(object) => (Arc::into_raw(object).cast_mut().cast(), HRESULT::ND_SUCCESS),
            Err(result) => (core::ptr::null_mut(), result),
        };
        // SAFETY: `out` is not null.
        unsafe { out.write(object) };
        result
    }
}

/// An object that a client calls. The reference is the client's.
pub struct Borrowed<C: Class> {
    object: ManuallyDrop<Arc<Object<C>>>,
}

impl<C: Class> Deref for Borrowed<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.object.class
    }
}

/// The object behind a client's pointer.
///
/// # Safety
///
/// `this` is a pointer to an object of this class, to which the client holds a reference until its call returns.
pub const unsafe fn borrow<C: Class>(this: *mut c_void) -> Borrowed<C> {
    // SAFETY: `hand_out` made the pointer (`# Safety`), and the reference is not given back here.
    let object = unsafe { Arc::from_raw(this.cast_const().cast::<Object<C>>()) };
    Borrowed { object: ManuallyDrop::new(object) }
}

/// What [`find`] asks an object for: a name that only objects of the very same class in this very image know.
fn mark<C: Class>() -> GUID {
    struct Fold(u64);
    impl Hasher for Fold {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
            }
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }
    let mut class = Fold(0xCBF2_9CE4_8422_2325);
    TypeId::of::<C>().hash(&mut class);
    let image = (&raw const LIVE).addr() as u64;
    GUID::from_u128(u128::from(class.finish()) << 64 | u128::from(image))
}

fn implements<C: Class>(iid: &GUID) -> bool {
    *iid == IID_IUnknown || C::INTERFACES.contains(iid)
}

/// An object that a client has passed as an argument, with a reference of its own.
pub struct Found<C: Class> {
    object: Arc<Object<C>>,
}

impl<C: Class> Deref for Found<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.object.class
    }
}

/// The object that a client passes as an argument. `None` if it is not one of this class.
///
/// # Safety
///
/// `unknown` is null or a COM object.
pub unsafe fn find<C: Class>(unknown: *mut c_void) -> Option<Found<C>> {
    if unknown.is_null() {
        return None;
    }
    // SAFETY: a COM object begins with a pointer to its table.
    let table = unsafe { unknown.cast::<*const IUnknownVtbl>().read() };
    // SAFETY: the table is that of a COM object.
    let table = unsafe { &*table };
    let mut found = core::ptr::null_mut();
    let iid = mark::<C>();
    // SAFETY: `QueryInterface` of a COM object, with an identifier and a place for the result.
    let result = unsafe { (table.QueryInterface)(unknown, &raw const iid, &raw mut found) };
    if !result.succeeded() || found.is_null() {
        return None;
    }
    // SAFETY: only an object of this class knows the mark, and `QueryInterface` counted a reference, which is taken over here.
    let object = unsafe { Arc::from_raw(found.cast_const().cast::<Object<C>>()) };
    Some(Found { object })
}

/// `IUnknown` for a class.
#[must_use]
pub const fn unknown<C: Class>() -> IUnknownVtbl {
    IUnknownVtbl { QueryInterface: query_interface::<C>, AddRef: add_ref::<C>, Release: release::<C> }
}

/// `IUnknown::QueryInterface`.
///
/// # Safety
///
/// `this` is an object of the class; `iid` is null or valid for reading, `out` null or valid for writing.
unsafe extern "system" fn query_interface<C: Class>(
    this: *mut c_void,
    iid: *const GUID,
    out: *mut *mut c_void,
) -> HRESULT {
    if iid.is_null() || out.is_null() {
        return HRESULT::E_POINTER;
    }
    // SAFETY: `iid` is not null.
    let wanted = unsafe { iid.read() };
    if !implements::<C>(&wanted) && wanted != mark::<C>() {
        // SAFETY: `out` is not null.
        unsafe { out.write(core::ptr::null_mut()) };
        return HRESULT::E_NOINTERFACE;
    }
    // SAFETY: the client calls through the table of an object it holds.
    unsafe { add_ref::<C>(this) };
    // SAFETY: `out` is not null.
    unsafe { out.write(this) };
    HRESULT::S_OK
}

/// `IUnknown::AddRef`.
///
/// # Safety
///
/// `this` is an object of the class.
unsafe extern "system" fn add_ref<C: Class>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<C>(this) };
    let _ = ManuallyDrop::new(Arc::clone(&object.object));
    u32::try_from(Arc::references_now(&object.object)).unwrap_or(u32::MAX)
}

/// `IUnknown::Release`.
///
/// # Safety
///
/// `this` is an object of the class, and one reference less will be used.
unsafe extern "system" fn release<C: Class>(this: *mut c_void) -> u32 {
    // SAFETY: the client gives back a reference that it holds.
    let object = unsafe { Arc::from_raw(this.cast_const().cast::<Object<C>>()) };
    let left = Arc::references_now(&object) - 1;
    drop(object);
    u32::try_from(left).unwrap_or(u32::MAX)
}
