//! What all NDKPI objects have in common: creation, reference counts and close.

use alloc::boxed::Box;
use core::{
    cell::UnsafeCell,
    ffi::c_void,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use engine::os::{Event, Os};
use fallible::{Arc, UniqueArc, try_box};
use ndkpi::{GUID, NDK_EXTENSION_INTERFACE, NDK_FN_CLOSE_COMPLETION, NDK_OBJECT_HEADER, NDK_VERSION, NtStatus, Object};

pub use crate::borrow::{Borrowed, EngineObject, borrow};
use crate::{
    NdkOs,
    adapter::Adapter,
    completion::{CompletionCallback, CompletionTiming, Completions},
    connector::ConnectorObject,
    cq::CompletionQueue,
    device::Device,
    fifo::Node,
    listener::ListenerObject,
    mr::MemoryRegion,
    mw::MemoryWindow,
    pd::ProtectionDomain,
    qp::QueuePair,
    shared_endpoint::SharedEndpointObject,
    srq::SharedReceiveQueue,
};

/// The part of an object that depends on its type. [`kind!`] writes the items that tell the types apart.
pub trait Body: Send + Sync + Sized + 'static {
    /// The operating system.
    type Os: NdkOs;

    /// Marks live objects of this type, so that a consumer's other pointers are recognised.
    const SIGNATURE: u32;

    /// Wraps an object without references.
    fn into_any(object: UniqueArc<Ndk<Self>>) -> AnyObject<Self::Os>;

    /// Wraps a reference to the object.
    fn into_any_ref(object: ObjectRef<Self>) -> AnyRef<Self::Os>;

    /// The structure that the consumer sees.
    type Public: Object;

    /// Makes the structure for the consumer, with the dispatch table of this type.
    fn public(version: NDK_VERSION) -> Self::Public;

    /// The device on which the object lives.
    fn device(&self) -> &Arc<Device<Self::Os>>;

    /// Begins the close: cancels requests and releases engine objects. Infallible (`NDKPI 7.9`, rule 2).
    ///
    /// # Safety
    ///
    /// Called once, by close, when no other call of the consumer on this object runs.
    unsafe fn begin_close(&self);

    /// The event that is set when the object is gone; the adapter's close waits for it.
    fn gone(&self) -> Option<Arc<<Self::Os as Os>::Event>> {
        None
    }
}

/// A node for the queue of completion callbacks.
type Reserved<O> = Box<Node<CompletionCallback<O>>>;

/// The close that the consumer has asked for.
#[derive(Clone, Copy)]
struct CloseRequest {
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
}

/// An object: the structure that the consumer sees, and behind it the provider's own part.
///
/// # Invariants
///
/// - It lives in an [`Arc`].
/// - `public` is the consumer's once the object was handed out: it is not read again (`NDKPI 7.10`).
/// - `close` and `node` are written by close, before it gives its reference back, and read by who has the last reference.
#[repr(C)]
pub struct Ndk<B: Body> {
    public: UnsafeCell<B::Public>,
    pub(crate) signature: AtomicU32,
    close: UnsafeCell<Option<CloseRequest>>,
    /// The node for the close's callback: a close must not fail, so it must not allocate.
    node: UnsafeCell<Option<Reserved<B::Os>>>,
    body: B,
}

#[allow(clippy::non_send_fields_in_send_ty, reason = "`public` holds pointers that are the consumer's")]
// SAFETY: `public` is never used here after it was made; `close` and `node` are used as the invariant says, first by one
// thread and then, after the reference count has passed it on, by another. `B` is `Send` and `Sync`.
unsafe impl<B: Body> Send for Ndk<B> {}
// SAFETY: as for `Send`.
unsafe impl<B: Body> Sync for Ndk<B> {}

impl<B: Body> Deref for Ndk<B> {
    type Target = B;

    #[inline]
    fn deref(&self) -> &B {
        &self.body
    }
}

impl<B: Body> Drop for Ndk<B> {
    fn drop(&mut self) {
        // A consumer that uses the object now has a chance to be told.
        self.signature.store(0, Ordering::Relaxed);
    }
}

//= NDKPI 7.9.7
/// A counted reference to an object, and the pointer that its consumer has. The last one completes the close.
///
/// # Invariants
///
/// The pointer came from [`Arc::into_raw`], and the reference is counted.
pub struct ObjectRef<B: Body>(pub(crate) NonNull<Ndk<B>>);

// SAFETY: it is an `Arc`, which may go where its value may be shared.
unsafe impl<B: Body> Send for ObjectRef<B> {}
// SAFETY: as for `Send`.
unsafe impl<B: Body> Sync for ObjectRef<B> {}

impl<B: Body> ObjectRef<B> {
    /// Makes an object.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(version: NDK_VERSION, body: B) -> Result<Self, NtStatus> {
        let node = try_box(Node::new())?;
        let object = Arc::try_new(Ndk {
            public: UnsafeCell::new(B::public(version)),
            signature: AtomicU32::new(B::SIGNATURE),
            close: UnsafeCell::new(None),
            node: UnsafeCell::new(Some(node)),
            body,
        })?;
        // SAFETY: the address of a value is not zero.
        Ok(Self(unsafe { NonNull::new_unchecked(Arc::into_raw(object).cast_mut()) }))
    }

    /// Hands the object out: the pointer is this reference.
    #[must_use]
    pub fn into_public(self) -> *mut B::Public {
        ManuallyDrop::new(self).as_public()
    }

    /// Returns the consumer's pointer. Gives no reference away.
    #[must_use]
    pub const fn as_public(&self) -> *mut B::Public {
        self.0.as_ptr().cast()
    }

    /// The counted reference that this one is. The caller uses only one of the two.
    const fn counted(&self) -> Arc<Ndk<B>> {
        // SAFETY: the pointer came from `into_raw` (invariant), and the reference is taken back once: all callers see to it.
        unsafe { Arc::from_raw(self.0.as_ptr()) }
    }
}

impl<B: EngineObject> ObjectRef<B> {
    //= NDKPI 7.10.1
    /// Makes an object, then the engine's object, which gets a reference to the first.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; those of `make`.
    pub fn try_new_with(
        version: NDK_VERSION,
        body: B,
        make: impl FnOnce(Self) -> Result<Arc<B::Engine>, NtStatus>,
    ) -> Result<Self, NtStatus> {
        let object = Self::try_new(version, body)?;
        let engine = make(object.clone())?;
        // SAFETY: the object is being made: no consumer knows it.
        unsafe { object.slot().replace(Some(engine)) };
        Ok(object)
    }
}

impl<B: Body> ObjectRef<B> {
    /// Gives the reference back without completing a close. Returns the object if it was the last reference.
    fn release(self) -> Option<UniqueArc<Ndk<B>>> {
        ManuallyDrop::new(self).counted().release()
    }
}

impl<B: Body> Deref for ObjectRef<B> {
    type Target = Ndk<B>;

    #[inline]
    fn deref(&self) -> &Ndk<B> {
        // SAFETY: a reference is counted (invariant), so the object lives as long as `self`.
        unsafe { self.0.as_ref() }
    }
}

impl<B: Body> Clone for ObjectRef<B> {
    fn clone(&self) -> Self {
        // Neither is dropped: one is `self`, the other the result.
        let _both = [ManuallyDrop::new(self.counted()).clone(), ManuallyDrop::new(self.counted())];
        Self(self.0)
    }
}

impl<B: Body> Drop for ObjectRef<B> {
    fn drop(&mut self) {
        if let Some(object) = self.counted().release() {
            complete_close(object);
        }
    }
}

//= NDKPI 7.9.3
//= NDKPI 7.9.4
//= NDKPI 7.9.5
/// The last reference is gone: completes the close by its callback, in a DPC.
fn complete_close<B: Body>(mut object: UniqueArc<Ndk<B>>) {
    let (request, node) = (object.close.get_mut().take(), object.node.get_mut().take());
    let (Some(request), Some(node)) = (request, node) else {
        // An adapter, or an object that was never handed out.
        let gone = object.gone();
        drop(object);
        if let Some(gone) = gone {
            gone.set();
        }
        return;
    };
    let device = object.device().clone();
    let callback = CompletionCallback::Closed {
        completion: request.completion,
        context: request.context,
        object: B::into_any(object),
    };
    Completions::push(device.completions().clone(), node, callback);
}

//= NDKPI 7.1.12
//= NDKPI 7.9.1
//= NDKPI 7.9.2
/// `NDK_FN_CLOSE_OBJECT` (`NDKPI 5.1`, `NDKPI 7.9`).
///
/// # Safety
///
/// As `NDKPI 7.9` has it: `header` is an open object, no other call of the consumer on it runs, and none is made after this
/// one.
pub unsafe extern "system" fn close<B: Body>(
    header: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NtStatus {
    // SAFETY: the caller passes an open object.
    let Ok(object) = (unsafe { borrow::<B>(header.cast()) }) else {
        // Not an object: a close cannot fail, and there is nothing to close.
        return NtStatus::SUCCESS;
    };
    let timing = object.device().completions().timing();
    // SAFETY: nobody reads the cell before the last reference is gone, and the consumer's is not given back yet.
    unsafe { *object.close.get() = Some(CloseRequest { completion, context }) };
    // SAFETY: the consumer makes no other call on the object, and closes it once.
    unsafe { object.begin_close() };
    // SAFETY: the consumer does not use the pointer after close, and closes once.
    let handed_out = unsafe { object.take_back() };
    let Some(mut last) = handed_out.release() else { return NtStatus::PENDING };
    match timing {
        CompletionTiming::Inline => {
            *last.close.get_mut() = None;
            drop(last);
            NtStatus::SUCCESS
        }
        CompletionTiming::Early => {
            *last.close.get_mut() = None;
            if let Some(completion) = completion {
                // SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held.
                unsafe { completion(context) };
            }
            // The antecedents go after the callback has returned (`NDKPI 7.9`, rule 5).
            drop(last);
            NtStatus::PENDING
        }
        CompletionTiming::Later => {
            complete_close(last);
            NtStatus::PENDING
        }
    }
}

/// `NDK_FN_QUERY_EXTENSION_INTERFACE` (`NDKPI 5.1`): this provider has no extension.
///
/// # Safety
///
/// The pointers are not used.
pub const unsafe extern "system" fn query_extension(
    _object: *mut NDK_OBJECT_HEADER,
    _id: *const GUID,
    _version: NDK_VERSION,
    _interface: *mut NDK_EXTENSION_INTERFACE,
) -> NtStatus {
    NtStatus::NOT_SUPPORTED
}

/// In an implementation of [`Body`] for the operating system `O`: its variant of [`AnyObject`], and its signature.
macro_rules! kind {
    ($kind:ident, $signature:literal) => {
        type Os = O;

        const SIGNATURE: u32 = u32::from_le_bytes(*$signature);

        fn into_any(object: fallible::UniqueArc<crate::object::Ndk<Self>>) -> crate::object::AnyObject<O> {
            crate::object::AnyObject::$kind(object)
        }

        fn into_any_ref(object: crate::object::ObjectRef<Self>) -> crate::object::AnyRef<O> {
            crate::object::AnyRef::$kind(object)
        }
    };
}
pub(crate) use kind;

macro_rules! any {
    ($($kind:ident($body:ident)),+ $(,)?) => {
        /// An object without references, of any type.
        pub enum AnyObject<O: NdkOs> {
            $(#[doc = concat!("See [`", stringify!($body), "`].")] $kind(UniqueArc<Ndk<$body<O>>>),)+
        }

        /// A reference to an object of any type.
        pub enum AnyRef<O: NdkOs> {
            $(#[doc = concat!("See [`", stringify!($body), "`].")] $kind(ObjectRef<$body<O>>),)+
        }
    };
}

any! {
    Adapter(Adapter),
    Pd(ProtectionDomain),
    Cq(CompletionQueue),
    Qp(QueuePair),
    Srq(SharedReceiveQueue),
    Mr(MemoryRegion),
    Mw(MemoryWindow),
    Connector(ConnectorObject),
    Listener(ListenerObject),
    SharedEndpoint(SharedEndpointObject),
}
