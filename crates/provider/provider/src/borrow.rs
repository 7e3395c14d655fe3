//! What a call of the consumer borrows: its object, and values in it that NDKPI's rules, not locks, protect from concurrent use.

use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::atomic::{AtomicBool, Ordering},
};

use engine::qp::Lend;
use fallible::Arc;
use ndkpi::NtStatus;

use crate::object::{Body, Ndk, ObjectRef};

/// The status of a call on a queue while another call on it runs, against `NDKPI 7.1.2` or `NDKPI 7.3`.
pub const OVERLAP: NtStatus = NtStatus::INVALID_DEVICE_STATE;

/// An object that has one of the engine.
pub trait EngineObject: Body {
    /// The engine's type.
    type Engine: Send + Sync;

    /// The slot of the engine's object, which is in it from the end of creation to the beginning of the close.
    fn slot(&self) -> &Slot<Arc<Self::Engine>>;
}

/// A consumer's object, borrowed for the length of a call.
///
/// # Invariants
///
/// The object is open while this lives.
pub struct Borrowed<B: Body>(ManuallyDrop<ObjectRef<B>>);

impl<B: Body> Deref for Borrowed<B> {
    type Target = ObjectRef<B>;

    #[inline]
    fn deref(&self) -> &ObjectRef<B> {
        &self.0
    }
}

impl<B: EngineObject> Borrowed<B> {
    /// The engine's object.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if there is none: the consumer has closed the object, against the rules.
    #[inline]
    pub fn engine(&self) -> Result<&Arc<B::Engine>, NtStatus> {
        // SAFETY: the object is open as long as `self` lives (invariant).
        unsafe { self.slot().get() }.ok_or(NtStatus::INVALID_PARAMETER)
    }
}

impl<B: Body> Borrowed<B> {
    /// The reference that the consumer's pointer is.
    ///
    /// # Safety
    ///
    /// The consumer does not use its pointer any more, and the reference is taken back once.
    #[must_use]
    pub const unsafe fn take_back(self) -> ObjectRef<B> {
        ManuallyDrop::into_inner(self.0)
    }
}

/// Borrows the object behind a consumer's pointer.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if it is no object of this type.
///
/// # Safety
///
/// `public` is null, or points to an object of this provider that is open and stays open as long as the result is used.
/// (Objects of other types are recognised; the consumer promises not to use closed ones, `NDKPI 7.9`.)
#[inline]
pub unsafe fn borrow<B: Body>(public: *mut B::Public) -> Result<Borrowed<B>, NtStatus> {
    let object = NonNull::new(public.cast::<Ndk<B>>()).filter(|object| object.is_aligned());
    let object = object.ok_or(NtStatus::INVALID_PARAMETER)?;
    // SAFETY: the pointer is to an object of this provider; all of them have their signature at the same offset.
    let signature = unsafe { &(*object.as_ptr()).signature };
    if signature.load(Ordering::Relaxed) != B::SIGNATURE {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // The signature says that it is an object of this type. Its pointer was made by `into_public`; the reference is not dropped.
    Ok(Borrowed(ManuallyDrop::new(ObjectRef(object))))
}

//= NDKPI 7.1.2
//= NDKPI 7.3.1
/// A value that one call at a time uses, because the consumer promises it (`NDKPI 7.1.2`, `NDKPI 7.3`).
///
/// A broken promise is noticed where that costs nothing: always if a call is made from inside another one, nearly always if
/// another thread makes it. The flag is not a lock: two calls that begin at the same instant are not noticed.
pub struct Exclusive<T> {
    busy: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is used by one thread at a time, as every user of `borrow` and `replace` promises; it moves between them.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    /// A cell without a value.
    pub const fn empty() -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }

    /// Borrows the value. `None` if there is none, or if another call uses it.
    ///
    /// # Safety
    ///
    /// No other call on this cell runs, or the one that does is further up on the stack of this thread.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "measured: what is done with the value stays in registers")]
    pub unsafe fn borrow(&self) -> Option<InUse<'_, T>> {
        if self.busy.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: no other call runs (`# Safety`), and none is further up on the stack, or it were busy.
        let value = unsafe { &mut *self.value.get() };
        let value = value.as_mut()?;
        self.busy.store(true, Ordering::Relaxed);
        Some(InUse { busy: &self.busy, value })
    }

    /// For a post of the engine, which fails with [`OVERLAP`] where [`Exclusive::borrow`] returns `None`.
    ///
    /// # Safety
    ///
    /// As [`Exclusive::borrow`], until the post has returned.
    pub const unsafe fn lender(&self) -> Lender<'_, T> {
        Lender(self)
    }

    /// Replaces the value and returns the old one. `None` also if a call uses it: then nothing is replaced.
    ///
    /// # Safety
    ///
    /// As [`Exclusive::borrow`].
    pub unsafe fn replace(&self, value: Option<T>) -> Option<T> {
        if self.busy.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: as in `borrow`.
        let place = unsafe { &mut *self.value.get() };
        core::mem::replace(place, value)
    }
}

/// A value that a post of the engine borrows for as long as it needs it.
pub struct Lender<'cell, T>(&'cell Exclusive<T>);

impl<'cell, T> Lend<T> for Lender<'cell, T> {
    type Lent = InUse<'cell, T>;

    #[inline]
    fn lend(self) -> Result<InUse<'cell, T>, NtStatus> {
        // SAFETY: no other call on the cell runs (the promise of `Exclusive::lender`).
        unsafe { self.0.borrow() }.ok_or(OVERLAP)
    }
}

/// The value of an [`Exclusive`] in use.
pub struct InUse<'cell, T> {
    busy: &'cell AtomicBool,
    value: &'cell mut T,
}

impl<T> Deref for InUse<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for InUse<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

impl<T> Drop for InUse<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.busy.store(false, Ordering::Relaxed);
    }
}

/// A value that is set when its object is created, used while the object is open, and taken by the close.
pub struct Slot<T>(UnsafeCell<Option<T>>);

// SAFETY: the value is only shared (`T: Sync`) except when the object is made or closed, when its user is alone with it and
// may move it (`T: Send`), as every user promises.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

impl<T> Slot<T> {
    /// A slot without a value.
    pub const fn empty() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Replaces the value and returns the old one.
    ///
    /// # Safety
    ///
    /// The object is being made or closed: no other call on this slot runs.
    pub unsafe fn replace(&self, value: Option<T>) -> Option<T> {
        // SAFETY: no other call runs (`# Safety`).
        let place = unsafe { &mut *self.0.get() };
        core::mem::replace(place, value)
    }

    /// Returns the value.
    ///
    /// # Safety
    ///
    /// The object is open, and is not closed while the result is in use: NDKPI has the consumer call close only when its
    /// other calls on the object have returned (`NDKPI 7.9`, consumer rule 1).
    #[inline]
    pub unsafe fn get(&self) -> Option<&T> {
        // SAFETY: nobody replaces the value (`# Safety`).
        unsafe { &*self.0.get() }.as_ref()
    }
}
