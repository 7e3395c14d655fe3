//! Objects that close themselves (`NDKPI 7.9`).

use core::{
    ffi::c_void,
    mem::{ManuallyDrop, forget},
    ops::Deref,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{Acquire, Release},
    },
};

use fallible::{Arc, UniqueArc};
use ndkpi::{NDK_CQ, NDK_FN_CLOSE_OBJECT, NDK_FN_CREATE_COMPLETION, NtStatus};

use crate::{
    adapter::{AdapterCore, AdapterRef},
    request::{Pending, create},
    waiters::Waiters,
};

/// The parts of an object of one type: what it was created from, and what its callbacks use.
pub trait Parts: Send + Sync + 'static {
    /// The structure of NDKPI.
    type Raw: ndkpi::Object;
}

/// An object and its parts, at a fixed address until the close has completed.
///
/// # Invariants
///
/// `raw` is null until the object is created, and from then on an open object of this adapter. Its close begins when no
/// [`Object`] refers to the node any more.
pub struct Node<P: Parts> {
    raw: AtomicPtr<P::Raw>,
    pub parts: P,
    /// Who waits for the close. They are told when this drops: after the parts, so that what an object needed is free.
    closing: Waiters,
    /// The last field: the parts drop before the adapter can close.
    adapter: AdapterRef,
}

impl<P: Parts> Node<P> {
    /// The object. Null only before it is created.
    pub fn raw(&self) -> *mut P::Raw {
        self.raw.load(Acquire)
    }

    /// The adapter.
    pub fn adapter(&self) -> &Arc<AdapterCore> {
        self.adapter.core()
    }

    /// The node's address, as the context of the object's callbacks. It is valid until the close has completed, after which
    /// the provider calls none of them (`NDKPI 7.9`, rule 4).
    pub const fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }
}

/// A counted reference to an object. The last one closes it.
///
/// It does not wait: if the close pends, the provider's callback drops the parts. So an object may be dropped at any `IRQL <=
/// DISPATCH_LEVEL`, even in its own callback. [`Adapter`](crate::Adapter) waits for all of them.
///
/// A call on an object borrows an `Object`, so none can run when the close begins (`NDKPI 7.9`, consumer rule 1).
pub struct Object<P: Parts>(ManuallyDrop<Arc<Node<P>>>);

impl<P: Parts> Object<P> {
    /// Creates an object and waits for it (pattern P1).
    pub fn create(
        adapter: AdapterRef,
        parts: P,
        call: impl FnOnce(&Node<P>, Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut P::Raw) -> NtStatus,
    ) -> Result<Self, NtStatus> {
        let node = Node { raw: AtomicPtr::new(ptr::null_mut()), parts, closing: Waiters::new(), adapter };
        let this = Self(ManuallyDrop::new(Arc::try_new(node)?));
        let raw = create(this.adapter(), |completion, context, place| call(&this, completion, context, place))?;
        this.raw.store(raw, Release);
        Ok(this)
    }

    /// Takes over an object that the provider has created.
    ///
    /// # Safety
    ///
    /// `raw` is an open object of this adapter, and belongs to nobody else.
    pub unsafe fn adopt(adapter: AdapterRef, parts: P, raw: *mut P::Raw) -> Result<Self, NtStatus> {
        let node = Node { raw: AtomicPtr::new(raw), parts, closing: Waiters::new(), adapter };
        match Arc::try_new(node) {
            Ok(node) => Ok(Self(ManuallyDrop::new(node))),
            Err(error) => {
                if let Some(close) = close_slot(raw.cast()) {
                    // SAFETY: the object is open and nobody uses it; the callback needs no context.
                    let _ = unsafe { close(raw.cast(), Some(nothing), ptr::null_mut()) };
                }
                Err(error.into())
            }
        }
    }

    /// Gives this reference back. The result says when the object has closed, which the last reference begins.
    pub fn close(self) -> Result<Pending<()>, NtStatus> {
        let (pending, state) = Pending::close(self.adapter())?;
        self.closing.add(state)?;
        Ok(pending)
    }

    /// Checks that both objects belong to one open adapter: a provider trusts the pointers it gets.
    pub fn same_adapter<Q: Parts>(&self, other: &Object<Q>) -> Result<(), NtStatus> {
        let same = Arc::ptr_eq(self.adapter(), other.adapter());
        if same { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
    }
}

impl<P: Parts> Clone for Object<P> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Parts> Deref for Object<P> {
    type Target = Node<P>;

    fn deref(&self) -> &Node<P> {
        &self.0
    }
}

impl<P: Parts> Drop for Object<P> {
    fn drop(&mut self) {
        // SAFETY: the value is being dropped, so its field is not used again.
        let node = unsafe { ManuallyDrop::take(&mut self.0) };
        if let Some(node) = node.release() {
            close(node);
        }
    }
}

/// Closes an object without references.
fn close<P: Parts>(node: UniqueArc<Node<P>>) {
    let raw = node.raw();
    if raw.is_null() {
        return;
    }
    let Some(close) = close_slot(raw.cast()) else {
        // It cannot be closed (`NDKPI 4` forbids that), so its callbacks may come at any time.
        return forget(node);
    };
    let context = UniqueArc::into_raw(node);
    // SAFETY: the object is open (invariant), and no call on it runs, because each borrows an `Object`. The context stays
    // until the close has completed.
    let status = unsafe { close(raw.cast(), Some(close_completed::<P>), context.cast()) };
    if status != NtStatus::PENDING {
        // SAFETY: the context came from `into_raw`, and the provider, which did not pend, does not call back.
        drop(unsafe { UniqueArc::from_raw(context) });
    }
}

/// The first entry of the object's table, which is the close in every table except the adapter's (`NDKPI 4`).
fn close_slot(object: *mut c_void) -> Option<NDK_FN_CLOSE_OBJECT> {
    // All object structures have one shape: the pointer to the table comes after the header (`NDKPI 3.4`).
    let object: *mut NDK_CQ = object.cast();
    // SAFETY: the callers give an open object, whose `Dispatch` is at this offset whatever its type.
    let table = unsafe { (*object).Dispatch };
    // SAFETY: every table is a row of function pointers, and the first one is that of the close.
    unsafe { table.cast::<Option<NDK_FN_CLOSE_OBJECT>>().read() }
}

/// `NDK_FN_CLOSE_COMPLETION`: drops the object's parts.
///
/// # Safety
///
/// `context` came from [`close`] of an object of this type, and this is the only call with it.
unsafe extern "system" fn close_completed<P: Parts>(context: *mut c_void) {
    // Whoever waits for the adapter goes on now, and may unload what is running here: so this comes last.
    // SAFETY: `close` gave this reference away, and only this call takes it back (`# Safety`). No callback of the object runs, and none
    drop(unsafe { UniqueArc::from_raw(context.cast::<Node<P>>()) });
}

/// `NDK_FN_CLOSE_COMPLETION` of an object without parts.
const unsafe extern "system" fn nothing(_context: *mut c_void) {}

/// Reads an entry of an object's table: `STATUS_NOT_SUPPORTED` if the provider left it empty.
macro_rules! slot {
    ($object:expr, $slot:ident) => {{
        let object = $object;
        // SAFETY: an `Object` is borrowed, so this is an open object. `Dispatch` is read anew for each call, because the
        // system may change it (NDKPI 7.10).
        let table = unsafe { (*object).Dispatch };
        // SAFETY: the slot is in the table of every version; only the slot is read.
        unsafe { (*table).$slot }.ok_or(ndkpi::NtStatus::NOT_SUPPORTED)
    }};
}
pub(crate) use slot;
