//! Bytes that a consumer registered, and the end of their use.

use alloc::boxed::Box;

use fallible::{AllocError, Arc, try_box};

use crate::{
    os::Memory,
    sync::{AtomicBool, Ordering},
};

/// Called at the end of the use of registered bytes.
pub trait Released: Send + Sync + 'static {
    /// The engine does not refer to the bytes any more; their [`Memory`] has been dropped.
    ///
    /// Called at most once, at `IRQL <= DISPATCH_LEVEL`, by the last user: possibly a quantum of a queue pair, **with locks of the
    /// engine held**. It may only note the fact and queue a DPC or a work item.
    fn released(&self);
}

/// No call.
impl Released for () {
    fn released(&self) {}
}

/// The state of the bytes at the end of their registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Release {
    /// Not in use: their [`Memory`] has been dropped, and their [`Released`] too, without a call.
    Done,
    /// In use by transfers. At the end of the last one [`Released::released`] is called, or has been.
    Pending,
}

/// Tells its client when it is dropped.
struct Teller {
    client: Box<dyn Released>,
    armed: AtomicBool,
}

impl Drop for Teller {
    fn drop(&mut self) {
        if self.armed.load(Ordering::Relaxed) {
            self.client.released();
        }
    }
}

/// Bytes of a consumer that stay mapped as long as something refers to them.
pub struct Pinned<M: Memory> {
    memory: M,
    /// Declared after `memory`, and so dropped after it: the client may unmap the bytes at once.
    teller: Teller,
}

impl<M: Memory> Pinned<M> {
    /// Takes ownership of `memory`. The client is not called before [`Pinned::arm`].
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn try_new(memory: M, client: impl Released) -> Result<Arc<Self>, AllocError> {
        let teller = Teller { client: try_box(client)?, armed: AtomicBool::new(false) };
        Arc::try_new(Self { memory, teller })
    }

    /// The bytes are registered: from now on the client is called at the end of their use.
    pub fn arm(&self) {
        self.teller.armed.store(true, Ordering::Relaxed);
    }

    /// The bytes.
    #[inline]
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Drops the reference of a registration. The client is called at the end of use, unless that is now.
    pub fn let_go(this: Arc<Self>) -> Release {
        let Some(last) = this.release() else {
            return Release::Pending;
        };
        last.teller.armed.store(false, Ordering::Relaxed);
        Release::Done
    }
}
