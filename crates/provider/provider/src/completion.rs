//! How requests complete: in the call, by a callback before the call returns, or by a callback later.
//!
//! NDKPI lets the provider choose (`NDKPI 5.0`), and consumers have to cope with all of it. A device can be told to do one
//! of them always, or all of them mixed, so that a consumer is tested on each.

use alloc::boxed::Box;
use core::{
    ffi::c_void,
    marker::PhantomData,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use engine::{
    connection::Hold,
    os::{Dpc, Routine, SpinLock},
};
use fallible::{Arc, try_box};
use ndkpi::{
    NDK_FN_CLOSE_COMPLETION, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_OBJECT_HEADER, NtStatus,
};
use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};

use crate::{
    NdkOs,
    fifo::{Fifo, Node},
    object::{AnyObject, AnyRef, Body, ObjectRef},
};

/// Callbacks that one run of the DPC makes before it queues itself again.
const CALLBACKS_PER_RUN: usize = 16;

/// How the requests of a device complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompletionMode {
    /// In the call, where that is possible: the status is the result.
    #[default]
    Inline,
    /// By a callback from a DPC; the call returns `STATUS_PENDING`.
    Pending,
    /// By a callback before the call returns `STATUS_PENDING`.
    Early,
    /// Any of these, chosen by a sequence that the seed of the device determines.
    Mixed,
}

impl CompletionMode {
    const ALL: [Self; 4] = [Self::Inline, Self::Pending, Self::Early, Self::Mixed];

    const fn to_bits(self) -> u32 {
        match self {
            Self::Inline => 0,
            Self::Pending => 1,
            Self::Early => 2,
            Self::Mixed => 3,
        }
    }
}

/// When one request completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionTiming {
    /// In the call.
    Inline,
    /// By a callback before the call returns.
    Early,
    /// By a callback from a DPC.
    Later,
}

/// A callback that completes a request: its arguments, and what must stay alive until it has returned.
pub enum CompletionCallback<O: NdkOs> {
    /// A create request is finished.
    Created {
        /// The consumer's callback.
        completion: NDK_FN_CREATE_COMPLETION,
        /// Its context.
        context: *mut c_void,
        /// Success, or why there is no object.
        status: NtStatus,
        /// The object, or null.
        object: *mut NDK_OBJECT_HEADER,
        /// The object on which it was created.
        held: AnyRef<O>,
    },
    /// A request is finished.
    Requested {
        /// The consumer's callback.
        completion: NDK_FN_REQUEST_COMPLETION,
        /// Its context.
        context: *mut c_void,
        /// How it went.
        status: NtStatus,
        /// The object of the request.
        held: AnyRef<O>,
        /// Keeps events back that the consumer must not see before the callback.
        events: Option<Hold<O>>,
    },
    /// An object is closed.
    Closed {
        /// The consumer's callback; none if the consumer gave none.
        completion: Option<NDK_FN_CLOSE_COMPLETION>,
        /// Its context.
        context: *mut c_void,
        /// What is left of the object: the references to its antecedents, which go after the callback.
        object: AnyObject<O>,
    },
}

// SAFETY: the pointers are handed back to the consumer and not used here; a consumer's callback may come on any thread
// (`NDKPI 6`).
unsafe impl<O: NdkOs> Send for CompletionCallback<O> {}

impl<O: NdkOs> CompletionCallback<O> {
    /// Calls the consumer, then drops what had to stay alive until then.
    pub fn deliver(self) {
        match self {
            Self::Created { completion, context, status, object, held } => {
                // SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held.
                unsafe { completion(context, status, object) };
                drop(held);
            }
            Self::Requested { completion, context, status, held, events } => {
                // SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held.
                unsafe { completion(context, status) };
                drop(events);
                drop(held);
            }
            Self::Closed { completion, context, object } => {
                if let Some(completion) = completion {
                    // SAFETY: the consumer's callback, with its context (`NDKPI 6`); no lock is held.
                    unsafe { completion(context) };
                }
                drop(object);
            }
        }
    }
}

/// The pending completion callbacks of a device, in order.
pub struct Completions<O: NdkOs> {
    waiting: O::Lock<Fifo<CompletionCallback<O>>>,
    dpc: O::Dpc<Deliver<O>>,
    mode: AtomicU32,
    sequence: AtomicU64,
}

impl<O: NdkOs> Completions<O> {
    /// Makes an empty queue of callbacks. `mode` says how requests complete.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(os: &O, mode: CompletionMode, seed: u64) -> Result<Arc<Self>, NtStatus> {
        Arc::try_new(Self {
            waiting: os.lock(Fifo::new())?,
            dpc: os.dpc(0)?,
            mode: AtomicU32::new(mode.to_bits()),
            sequence: AtomicU64::new(seed),
        })
        .map_err(Into::into)
    }

    /// Sets how the requests from now on complete.
    pub fn set_mode(&self, mode: CompletionMode) {
        self.mode.store(mode.to_bits(), Ordering::Relaxed);
    }

    /// Returns when the next request completes.
    #[must_use]
    pub fn timing(&self) -> CompletionTiming {
        let mode = CompletionMode::ALL[self.mode.load(Ordering::Relaxed) as usize % CompletionMode::ALL.len()];
        match mode {
            CompletionMode::Inline => CompletionTiming::Inline,
            CompletionMode::Pending => CompletionTiming::Later,
            CompletionMode::Early => CompletionTiming::Early,
            CompletionMode::Mixed => match self.draw() % 3 {
                0 => CompletionTiming::Inline,
                1 => CompletionTiming::Early,
                _ => CompletionTiming::Later,
            },
        }
    }

    /// The next number of the sequence.
    fn draw(&self) -> u64 {
        SplitMix64::seed_from_u64(self.sequence.fetch_add(1, Ordering::Relaxed)).next_u64()
    }
}

impl<O: NdkOs> Completions<O> {
    /// Makes the callback in a DPC. Until then it is in `node`.
    ///
    /// `this` is not borrowed through the object of the request: as soon as the callback is in the list, a DPC that
    /// already runs may make it, and the consumer may close that object and the adapter before the call is queued here.
    #[expect(clippy::needless_pass_by_value, reason = "the reference has to outlive the object of the request")]
    pub fn push(this: Arc<Self>, mut node: Box<Node<CompletionCallback<O>>>, callback: CompletionCallback<O>) {
        node.work = Some(callback);
        this.waiting.with(|waiting| waiting.push(node));
        this.dpc.queue(&this);
    }

    /// Makes the callback in a DPC.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; the callback is not made then.
    pub fn try_push(this: Arc<Self>, callback: CompletionCallback<O>) -> Result<(), NtStatus> {
        let node = try_box(Node::new())?;
        Self::push(this, node, callback);
        Ok(())
    }

    fn deliver(this: &Arc<Self>) {
        for _ in 0..CALLBACKS_PER_RUN {
            let Some(node) = this.waiting.with(Fifo::pop) else { return };
            if let Some(callback) = node.work {
                callback.deliver();
            }
        }
        if this.waiting.with(|waiting| !waiting.is_empty()) {
            this.dpc.queue(this);
        }
    }
}

/// The DPC that makes callbacks.
pub struct Deliver<O>(PhantomData<O>);

impl<O: NdkOs> Routine for Deliver<O> {
    type Target = Completions<O>;

    fn run(completions: &Arc<Completions<O>>) {
        Completions::deliver(completions);
    }
}

/// A consumer's create request, with its callback.
pub struct CreateRequest<P> {
    completion: NDK_FN_CREATE_COMPLETION,
    context: *mut c_void,
    out: *mut *mut P,
}

impl<P> CreateRequest<P> {
    /// Makes the request.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if there is no callback or no place for the object.
    pub fn new(
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        out: *mut *mut P,
    ) -> Result<Self, NtStatus> {
        match completion {
            Some(completion) if !out.is_null() => Ok(Self { completion, context, out }),
            _ => Err(NtStatus::INVALID_PARAMETER),
        }
    }

    /// Finishes the request on `parent` with the object or the reason that there is none. The result is for the consumer.
    ///
    /// # Safety
    ///
    /// `out` is valid for a write until the consumer's call returns.
    pub unsafe fn finish<B: Body<Public = P>, Q: Body<Os = B::Os>>(
        self,
        parent: &ObjectRef<Q>,
        result: Result<ObjectRef<B>, NtStatus>,
    ) -> NtStatus {
        let completions = parent.device().completions();
        let timing = completions.timing();
        let (status, object) = match result {
            Ok(object) if timing == CompletionTiming::Inline => {
                // SAFETY: `out` is valid for a write (`# Safety`).
                unsafe { self.out.write(object.into_public()) };
                return NtStatus::SUCCESS;
            }
            Ok(object) => (NtStatus::SUCCESS, Some(object)),
            Err(status) if timing == CompletionTiming::Inline => return status,
            Err(status) => (status, None),
        };
        // The reference goes to the consumer only when nothing can fail any more.
        let public = object.as_ref().map_or(core::ptr::null_mut(), |object| object.as_public().cast());
        let held = Q::into_any_ref(parent.clone());
        let callback = CompletionCallback::Created {
            completion: self.completion,
            context: self.context,
            status,
            object: public,
            held,
        };
        match timing {
            CompletionTiming::Later => match try_box(Node::new()) {
                Ok(node) => {
                    let _handed_out = object.map(ObjectRef::into_public);
                    Completions::push(completions.clone(), node, callback);
                }
                Err(error) => {
                    if let Some(object) = object {
                        // Engine objects refer to it until its close begins.
                        // SAFETY: nobody but this function knows the object, which is closed once.
                        unsafe { object.begin_close() };
                    }
                    return error.into();
                }
            },
            CompletionTiming::Early | CompletionTiming::Inline => {
                let _handed_out = object.map(ObjectRef::into_public);
                callback.deliver();
            }
        }
        NtStatus::PENDING
    }
}

/// A consumer's request that may complete later, with its callback.
pub struct AsyncRequest {
    completion: NDK_FN_REQUEST_COMPLETION,
    context: *mut c_void,
}

// SAFETY: the context is handed back to the consumer and not used here.
unsafe impl Send for AsyncRequest {}

impl AsyncRequest {
    /// Makes the request.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if there is no callback.
    pub fn new(completion: Option<NDK_FN_REQUEST_COMPLETION>, context: *mut c_void) -> Result<Self, NtStatus> {
        completion.map(|completion| Self { completion, context }).ok_or(NtStatus::INVALID_PARAMETER)
    }

    /// Finishes, from within the consumer's call, a request on `object`. The result is for the consumer.
    pub fn finish<B: Body>(self, object: &ObjectRef<B>, status: NtStatus) -> NtStatus {
        self.settle(object, status, None)
    }

    /// [`AsyncRequest::finish`], holding back events that the consumer must not see before the completion.
    pub fn finish_before<B: Body>(self, object: &ObjectRef<B>, status: NtStatus, events: Hold<B::Os>) -> NtStatus {
        self.settle(object, status, Some(events))
    }

    fn settle<B: Body>(self, object: &ObjectRef<B>, status: NtStatus, events: Option<Hold<B::Os>>) -> NtStatus {
        let completions = object.device().completions();
        let callback = |events| {
            let held = B::into_any_ref(object.clone());
            CompletionCallback::Requested { completion: self.completion, context: self.context, status, held, events }
        };
        match completions.timing() {
            CompletionTiming::Inline => status,
            CompletionTiming::Early => {
                callback(events).deliver();
                NtStatus::PENDING
            }
            CompletionTiming::Later => match Completions::try_push(completions.clone(), callback(events)) {
                Ok(()) => NtStatus::PENDING,
                // What was done is done: its status can still be returned.
                Err(_) => status,
            },
        }
    }

    /// Makes the callback that completes the request.
    #[must_use]
    pub fn into_callback<B: Body>(self, object: ObjectRef<B>, status: NtStatus) -> CompletionCallback<B::Os> {
        let held = B::into_any_ref(object);
        CompletionCallback::Requested { completion: self.completion, context: self.context, status, held, events: None }
    }
}
