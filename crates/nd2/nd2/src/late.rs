//! Overlapped requests that end late, because the adapter's settings ask for it.

use alloc::vec::Vec;

use delay::Delay;
use engine::os::{Os, Routine, SpinLock, Timer};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::{Device, OverlappedOs, overlapped::Pending};

/// A request that ends when it is time.
struct Late<P: OverlappedOs> {
    due: u64,
    request: Pending<P>,
    status: NtStatus,
}

/// The requests of an adapter that end late.
pub struct LateRequests<P: OverlappedOs> {
    delay: Delay,
    list: <P::Os as Os>::Lock<Vec<Late<P>>>,
    timer: <P::Os as Os>::Timer<Ends<P>>,
}

/// The time of a request has come.
pub struct Ends<P>(core::marker::PhantomData<P>);

impl<P: OverlappedOs> Routine for Ends<P> {
    type Target = Device<P>;

    fn run(device: &Arc<Device<P>>) {
        if let Some(late) = device.late() {
            late.end_due(device);
        }
    }
}

impl<P: OverlappedOs> LateRequests<P> {
    /// For an adapter whose requests end late; `None` if they do not.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(os: &P::Os, delay: Delay) -> Result<Option<Self>, NtStatus> {
        if delay == Delay::NONE {
            return Ok(None);
        }
        Ok(Some(Self { delay, list: os.lock(Vec::new())?, timer: os.timer()? }))
    }

    /// Ends a request of the adapter, when it is time. Without memory that is now.
    pub fn end(&self, device: &Arc<Device<P>>, request: Pending<P>, status: NtStatus) {
        let os = device.platform().os();
        let due = os.now().saturating_add(self.delay.draw(random(os)));
        let refused = self.list.with(|list| {
            if list.try_reserve(1).is_err() {
                return Some(request);
            }
            list.push(Late { due, request, status });
            self.set_timer(device, list);
            None
        });
        if let Some(request) = refused {
            request.complete_now(status);
        }
    }

    /// Ends the requests whose time has come.
    fn end_due(&self, device: &Arc<Device<P>>) {
        loop {
            let now = device.platform().os().now();
            let late = self.list.with(|list| {
                let next =
                    list.iter().enumerate().min_by_key(|(_, late)| late.due).map(|(index, late)| (index, late.due));
                match next {
                    // The others keep their order: those that are due at the same time end as they came.
                    Some((index, due)) if due <= now => Some(list.remove(index)),
                    _ => {
                        self.set_timer(device, list);
                        None
                    }
                }
            });
            let Some(Late { request, status, .. }) = late else { return };
            request.complete_now(status);
        }
    }

    /// Sets the timer for the first of the requests. The lock is held, so nobody else does.
    fn set_timer(&self, device: &Arc<Device<P>>, list: &[Late<P>]) {
        if let Some(due) = list.iter().map(|late| late.due).min() {
            self.timer.set(due.saturating_sub(device.platform().os().now()), device);
        }
    }
}

/// A number that looks like chance.
pub fn random(os: &impl Os) -> u64 {
    u64::from(os.random()) << 32 | u64::from(os.random())
}
