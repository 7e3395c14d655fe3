//! Contexts: what a framework object carries for the driver.

use core::{
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire},
};

use fallible::Arc;
use wdk_sys::{
    PCWDF_OBJECT_CONTEXT_TYPE_INFO, WDF_OBJECT_ATTRIBUTES, WDF_OBJECT_CONTEXT_TYPE_INFO, WDFOBJECT,
    call_unsafe_wdf_function_binding,
};

/// The framework's memory for one object: a counted reference, or null.
///
/// The framework gives it zeroed, and frees it without asking what is in it.
#[repr(transparent)]
struct Slot<T>(AtomicPtr<T>);

/// A kind of context: framework objects of this kind carry a reference to a `T`. One static for each kind.
///
/// [`context!`](crate::context) defines one.
///
/// # Invariants
///
/// `info` describes memory of the size of a `Slot` and names itself, the beginning of this, as the unique type.
#[repr(C)]
pub struct ContextType<T> {
    info: WDF_OBJECT_CONTEXT_TYPE_INFO,
    destroy: Destroy,
    holds: PhantomData<fn() -> Arc<T>>,
}

/// Defines `static CONTEXT: ContextType<T>`, one to a module, and the routine that gives the reference back when the framework
/// destroys an object.
///
/// `context!(NAME: T, ...)` calls it `NAME`, for modules with several kinds.
#[macro_export]
macro_rules! context {
    ($type:ty, $name:literal) => {
        $crate::context!(CONTEXT: $type, $name);
    };
    ($static:ident: $type:ty, $name:literal) => {
        static $static: $crate::wdf::ContextType<$type> = {
            unsafe extern "C" fn destroy(object: wdk_sys::WDFOBJECT) {
                // SAFETY: the framework calls this for an object that was created with a context of this kind.
                unsafe { $static.take(object) };
            }
            // SAFETY: the address is that of this static, and `destroy` takes its contexts away.
            unsafe { $crate::wdf::ContextType::new($name, &raw const $static, destroy) }
        };
    };
}

// SAFETY: the description is never changed.
unsafe impl<T> Sync for ContextType<T> {}

impl<T: Send + Sync + 'static> ContextType<T> {
    /// The description of the static at `address`.
    ///
    /// # Safety
    ///
    /// `address` is that of the static which the result initialises. `destroy` calls [`ContextType::take`] of that static.
    #[must_use]
    pub const unsafe fn new(name: &'static core::ffi::CStr, address: *const Self, destroy: Destroy) -> Self {
        let info = WDF_OBJECT_CONTEXT_TYPE_INFO {
            Size: super::size::<WDF_OBJECT_CONTEXT_TYPE_INFO>(),
            // Later versions declare the field as a constant string, so the pointer is left to be inferred.
            ContextName: name.as_ptr().cast_mut().cast(),
            ContextSize: size_of::<Slot<T>>(),
            UniqueType: address.cast(),
            EvtDriverGetUniqueContextType: None,
        };
        Self { info, destroy, holds: PhantomData }
    }

    /// Makes objects that are created with `attributes` carry a context of this kind.
    ///
    /// The reference is given back when the framework destroys the object, after its last use.
    pub const fn describe(&'static self, attributes: &mut WDF_OBJECT_ATTRIBUTES) {
        attributes.ContextTypeInfo = self.info();
        attributes.EvtDestroyCallback = Some(self.destroy);
    }

    /// Stores a reference in `object`. The one before is given back.
    ///
    /// # Safety
    ///
    /// `object` is a live object that was created with attributes from [`ContextType::describe`] of this kind.
    pub unsafe fn put(&'static self, object: WDFOBJECT, value: Arc<T>) {
        // SAFETY: `object` is live and has a context of this kind (`# Safety`).
        let slot = unsafe { self.slot(object) };
        release(slot.0.swap(Arc::into_raw(value).cast_mut(), AcqRel));
    }

    /// Takes the reference from `object`.
    ///
    /// # Safety
    ///
    /// As for [`ContextType::put`], or the object is just being destroyed.
    pub unsafe fn take(&'static self, object: WDFOBJECT) {
        // SAFETY: `object` has a context of this kind, which is there until its destruction has ended (`# Safety`).
        let slot = unsafe { self.slot(object) };
        release(slot.0.swap(ptr::null_mut(), AcqRel));
    }

    /// Returns what `object` carries. `None` if no reference was stored.
    ///
    /// # Safety
    ///
    /// As for [`ContextType::put`]. The reference is not taken away while this runs: it is, after the object was created,
    /// only when it is destroyed.
    #[must_use]
    pub unsafe fn get(&'static self, object: WDFOBJECT) -> Option<Arc<T>> {
        // SAFETY: `object` is live and has a context of this kind (`# Safety`).
        let slot = unsafe { self.slot(object) };
        let raw = slot.0.load(Acquire).cast_const();
        if raw.is_null() {
            return None;
        }
        // SAFETY: the pointer came from `into_raw` in `put`, whose reference is counted until `take`.
        let counted = core::mem::ManuallyDrop::new(unsafe { Arc::from_raw(raw) });
        Some((*counted).clone())
    }

    const fn info(&'static self) -> PCWDF_OBJECT_CONTEXT_TYPE_INFO {
        &raw const self.info
    }

    /// # Safety
    ///
    /// As for [`ContextType::put`].
    unsafe fn slot(&'static self, object: WDFOBJECT) -> &'static Slot<T> {
        // SAFETY: the object is live and has a context of this kind (`# Safety`).
        let memory = unsafe { call_unsafe_wdf_function_binding!(WdfObjectGetTypedContextWorker, object, self.info()) };
        // SAFETY: the framework gave zeroed memory of this size (invariant), aligned as its pool is, and zero is a slot.
        // It lives as long as the object, which is longer than any use in this module.
        unsafe { &*memory.cast::<Slot<T>>() }
    }
}

/// A routine that the framework calls when it destroys an object.
type Destroy = unsafe extern "C" fn(WDFOBJECT);

fn release<T>(raw: *mut T) {
    if !raw.is_null() {
        // SAFETY: a slot holds null or a pointer from `into_raw`, and the caller has just taken it out of the slot.
        drop(unsafe { Arc::from_raw(raw.cast_const()) });
    }
}
