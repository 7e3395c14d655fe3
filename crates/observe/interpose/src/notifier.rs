//! Notifications of a completion queue that hooks hold back, and those of a queue that they let fail.
//!
//! An arm while a notification is due is answered by it, and two are never called at once (`NDKPI 7.1.7`).

use engine::os::{Os, SpinLock};
use fallible::Arc;
use ndkpi::{NDK_FN_CQ_NOTIFICATION_CALLBACK, NtStatus};

use crate::{
    Args, Function, Hooks, Outcome, Phase,
    call::EventReport,
    later::{Later, Work},
    shadow::ShadowRef,
};

/// What is known of the notifications of a queue.
#[derive(Default)]
struct State {
    /// The consumer has asked for one.
    is_armed: bool,
    /// With this status one is due.
    due: Option<NtStatus>,
    /// It will be called by the place.
    is_waiting: bool,
    /// One is being called.
    is_running: bool,
    /// The queue has failed.
    failed: Option<NtStatus>,
}

/// Of one completion queue.
pub struct Notifier<H: Hooks> {
    state: <H::Os as Os>::Lock<State>,
    later: Option<Arc<Later<H>>>,
}

impl<H: Hooks> Notifier<H> {
    /// For a queue that has no notification yet.
    pub fn try_new(os: &H::Os) -> Result<Self, NtStatus> {
        Ok(Self { state: os.lock(State::default())?, later: Later::try_new(os)? })
    }

    /// How the queue has failed.
    pub fn failed(&self) -> Option<NtStatus> {
        self.state.with(|state| state.failed)
    }

    /// The queue fails: whoever waits for a notification gets it, with the status.
    pub fn fail(&self, cq: &ShadowRef<H>, status: NtStatus) {
        let is_due = self.state.with(|state| {
            state.failed = Some(status);
            core::mem::take(&mut state.is_armed)
        });
        if is_due {
            self.came(cq, status, 0, false);
        }
    }

    /// The consumer arms. Returns true if the provider is to hear of it.
    pub fn armed(&self, cq: &ShadowRef<H>) -> bool {
        let failed = self.state.with(|state| {
            if state.failed.is_some() {
                return Err(state.failed);
            }
            // The one that is due answers this arm too.
            if state.is_waiting {
                return Err(None);
            }
            state.is_armed = true;
            Ok(())
        });
        if let Err(Some(status)) = failed {
            self.came(cq, status, 0, false);
        }
        failed.is_ok()
    }

    /// A notification came. It is called now if there is no delay, no other one runs, and `here` says that it may.
    pub fn came(&self, cq: &ShadowRef<H>, status: NtStatus, delay: u64, here: bool) {
        let is_now = self.state.with(|state| {
            state.is_armed = false;
            let failure = state.due.filter(|due| !due.is_success());
            state.due = Some(failure.unwrap_or(status));
            if state.is_waiting || state.is_running {
                return None;
            }
            let now = delay == 0 && here;
            state.is_waiting = !now;
            state.is_running = now;
            Some(now)
        });
        match is_now {
            Some(true) => self.call(cq),
            Some(false) => self.call_later(cq, delay),
            None => {}
        }
    }

    fn call_later(&self, cq: &ShadowRef<H>, delay: u64) {
        // Refused only while the queue is being closed, and then nobody waits for it.
        if Later::put(self.later.as_ref(), delay, Work::Notification(cq.clone())).is_err() {
            self.state.with(|state| (state.due, state.is_waiting) = (None, false));
        }
    }

    /// Calls the consumer. Whoever calls this has set `is_running`.
    fn call(&self, cq: &ShadowRef<H>) {
        let status = self.state.with(|state| state.due.take());
        if let Some(status) = status {
            tell(cq, status);
        }
        let again = self.state.with(|state| {
            state.is_running = false;
            state.is_waiting = state.due.is_some();
            state.is_waiting
        });
        if again {
            self.call_later(cq, 0);
        }
    }
}

/// A notification that was held back is due.
pub fn deliver_notification<H: Hooks>(cq: &ShadowRef<H>) {
    let Some(notifier) = cq.notifier() else { return };
    let is_free = notifier.state.with(|state| {
        state.is_waiting = false;
        !core::mem::replace(&mut state.is_running, true)
    });
    if is_free {
        notifier.call(cq);
    }
}

/// Calls the consumer, between the events of it.
pub fn tell<H: Hooks>(shadow: &ShadowRef<H>, status: NtStatus) {
    let Some(event) = shadow.event() else { return };
    let function = if shadow.id().kind == ndkpi::NDK_OBJECT_TYPE::CQ {
        Function::CqNotification
    } else {
        Function::SrqNotification
    };
    let args = Args::Event { context: event.context.addr(), reason: 0 };
    let mut report = EventReport::new(shadow, function, args);
    report.tell(Phase::Callback, Outcome::Status(status));
    // SAFETY: the creation of a queue has noted a function of this type, and the two types are the same.
    let callback = unsafe { core::mem::transmute::<*const (), NDK_FN_CQ_NOTIFICATION_CALLBACK>(event.function) };
    // SAFETY: the consumer's callback with its context (`NDKPI 6`); no lock is held.
    unsafe { callback(event.context, status) };
    report.tell(Phase::CallbackReturn, Outcome::Status(status));
}
