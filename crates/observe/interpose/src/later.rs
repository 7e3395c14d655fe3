//! What happens later than the provider has it: completions and events that hooks hold back, closes, disconnects.
//!
//! The places and timers for it are allocated with the objects, and only for hooks that [interfere](Hooks::INTERFERES).

use core::{ffi::c_void, marker::PhantomData};

use engine::os::{Os, Routine, SpinLock, Timer};
use fallible::Arc;
use ndkpi::{NDK_OBJECT_HEADER, NtStatus};

use crate::{
    Function, Hooks,
    call::{deliver_created, deliver_requested},
    close::finish_close,
    connect::deliver_disconnect,
    ending::end,
    listener::deliver_connection,
    notifier::deliver_notification,
    request::Request,
    shadow::{Root, ShadowRef},
};

/// Something to do later.
pub enum Work<H: Hooks> {
    /// The completion of a request.
    Request { place: *mut Request<H>, shadow: ShadowRef<H>, status: NtStatus },
    /// The completion of a creation; `new` is the reference to the shadow that was given to the provider.
    Created { parent: ShadowRef<H>, new: *mut c_void, status: NtStatus, object: *mut NDK_OBJECT_HEADER },
    /// The close of the provider's object.
    Close(ShadowRef<H>),
    /// The notification of a completion queue.
    Notification(ShadowRef<H>),
    /// A connect event with its number: the listener, and the connector that came.
    Connection { listener: ShadowRef<H>, connector: ShadowRef<H>, call: u64 },
    /// A disconnect event: the connector, and the place of the event.
    Disconnect { connector: ShadowRef<H>, place: *mut c_void, function: Function, reason: u32 },
    /// The end of a connection that nobody has asked for.
    End(ShadowRef<H>),
}

// SAFETY: the pointers are the layer's, the provider's and the consumer's, and are only handed on, which NDKPI allows on any
// thread.
unsafe impl<H: Hooks> Send for Work<H> {}

impl<H: Hooks> Work<H> {
    /// The object that it is about.
    const fn object(&self) -> &ShadowRef<H> {
        match self {
            Self::Request { shadow: object, .. }
            | Self::Created { parent: object, .. }
            | Self::Close(object)
            | Self::Notification(object)
            | Self::Connection { listener: object, .. }
            | Self::Disconnect { connector: object, .. }
            | Self::End(object) => object,
        }
    }

    /// The object whose close waits for it.
    fn held(&self) -> Option<&ShadowRef<H>> {
        (!matches!(self, Self::End(_))).then(|| self.object())
    }

    fn root(&self) -> &Arc<Root<H>> {
        &self.object().root
    }

    fn run(self) {
        let held = self.held().cloned();
        match self {
            // SAFETY: the place is of a request whose one completion was held back.
            Self::Request { place, status, .. } => unsafe { deliver_requested::<H>(place, status) },
            // SAFETY: the reference is that of a creation whose one completion was held back.
            Self::Created { new, status, object, .. } => unsafe { deliver_created::<H>(new, status, object) },
            Self::Close(_) => {}
            Self::Notification(cq) => deliver_notification(&cq),
            Self::Connection { listener, connector, call } => deliver_connection(&listener, connector, call),
            Self::Disconnect { connector, place, function, reason } => {
                // SAFETY: the place is one of the connector's, which lives.
                unsafe { deliver_disconnect::<H>(&connector, place, function, reason) };
            }
            Self::End(connector) => end(&connector),
        }
        if let Some(held) = held {
            leave(&held);
        }
    }
}

/// Ends what was begun by [`crate::gate::Gate::enter`].
pub fn leave<H: Hooks>(shadow: &ShadowRef<H>) {
    if shadow.gate.leave() {
        finish_close(shadow);
    }
}

/// A place for one thing to do later.
pub struct Later<H: Hooks> {
    work: <H::Os as Os>::Lock<Option<Work<H>>>,
    timer: <H::Os as Os>::Timer<Expired<H>>,
}

/// The routine of the timer.
pub struct Expired<H>(PhantomData<fn() -> H>);

impl<H: Hooks> Routine for Expired<H> {
    type Target = Later<H>;

    fn run(target: &Arc<Later<H>>) {
        let Some(work) = target.work.with(Option::take) else { return };
        let root = work.root().clone();
        work.run();
        root.done();
    }
}

impl<H: Hooks> Later<H> {
    /// A place, if these hooks interfere at all.
    pub fn try_new(os: &H::Os) -> Result<Option<Arc<Self>>, NtStatus> {
        if !H::INTERFERES {
            return Ok(None);
        }
        let later = Self { work: os.lock(None)?, timer: os.timer()? };
        Ok(Some(Arc::try_new(later)?))
    }

    /// Does something `delay` microseconds from now. The close of its object waits for that. Gives the work back if it cannot be
    /// done later, because the object is being closed, or the place is taken.
    pub fn put(this: Option<&Arc<Self>>, delay: u64, work: Work<H>) -> Result<(), Work<H>> {
        let Some(this) = this.filter(|_| H::INTERFERES) else { return Err(work) };
        let held = work.held().cloned();
        if held.as_ref().is_some_and(|held| !held.gate.enter()) {
            return Err(work);
        }
        let root = work.root().clone();
        root.begin();
        let refused = this.work.with(|place| {
            if place.is_some() {
                return Some(work);
            }
            *place = Some(work);
            None
        });
        let Some(refused) = refused else {
            this.timer.set(delay, this);
            return Ok(());
        };
        root.done();
        if let Some(held) = held {
            leave(&held);
        }
        Err(refused)
    }

    /// Does it no more, if it was not begun.
    pub fn cancel(&self) {
        if self.timer.cancel()
            && let Some(work) = self.work.with(Option::take)
        {
            work.root().clone().done();
        }
    }
}
