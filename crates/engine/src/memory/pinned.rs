//! Bytes that a consumer handed in, and the moment when nobody uses them any more.

use alloc::boxed::Box;

use fallible::{AllocError, Arc, try_box};

use crate::{
    mistake,
    os::Memory,
    sync::{AtomicBool, Ordering},
};

/// Who is told that registered bytes are not used any more.
pub trait Released: Send + Sync + 'static {
    /// Nothing of the engine refers to the bytes any more; their [`Memory`] is dropped.
    ///
    /// Called once at most, at `IRQL <= DISPATCH_LEVEL`, from whatever let go last: that may be a turn of a queue pair in a NIC
    /// engine, **with locks of the engine held**. It may note the fact and queue a deferred call or a work item, nothing else.
    fn released(&self);
}

/// For those who need not be told.
impl Released for () {
    fn released(&self) {}
}

/// What the end of a registration found: are its bytes still used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Release {
    /// No: their [`Memory`] is dropped, and their [`Released`] too, without a call.
    Done,
    /// Yes, by transfers in progress: [`Released::released`] is called when the last of them lets go, perhaps already.
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
    /// Dropped after `memory`, because it is declared after it: who is told may unmap the bytes at once.
    teller: Teller,
}

impl<M: Memory> Pinned<M> {
    /// Takes `memory` over. The client is told nothing before [`Pinned::arm`].
    ///
    /// # Errors
    ///
    /// [`AllocError`].
    pub fn try_new(memory: M, client: impl Released) -> Result<Arc<Self>, AllocError> {
        let teller = Teller { client: try_box(client)?, armed: AtomicBool::new(false) };
        Arc::try_new(Self { memory, teller })
    }

    /// The bytes are registered: from now on the client is told when they are not used any more.
    pub fn arm(&self) {
        self.teller.armed.store(true, Ordering::Relaxed);
    }

    /// The bytes.
    #[inline]
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Gives up the reference of a registration. The client is told, unless this reference was the last.
    pub fn let_go(this: Arc<Self>) -> Release {
        let Some(last) = this.release() else {
            return mistake!(DeregisterDoesNotWait => Release::Done, else Release::Pending);
        };
        last.teller.armed.store(false, Ordering::Relaxed);
        Release::Done
    }
}
