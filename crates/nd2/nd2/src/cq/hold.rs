//! Completions that the client sees late, because the adapter's settings ask for it.
//!
//! ```text
//! Shut   the client has seen everything; what comes next begins a delay
//! Held   something has come: polls find nothing, and requests for notification wait
//! Open   the delay is over: the client sees what there is and what comes, until it has seen everything
//! ```
//!
//! So what is held back is newer than everything that the client has seen and than every event, and satisfies the requests that
//! wait for it when the delay is over. The failure of a queue is not held back.

use delay::Delay;
use engine::os::{Os, Routine, Timer};
use fallible::Arc;
use ndkpi::NtStatus;

use super::core::Core;
use crate::{OverlappedOs, late::random};

/// What the client sees of a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Shut,
    Held,
    Open,
}

/// The delay of a queue's completions.
pub struct Hold<P: OverlappedOs> {
    delay: Delay,
    sight: Sight,
    timer: <P::Os as Os>::Timer<Over<P>>,
}

/// A delay is over.
pub struct Over<P>(core::marker::PhantomData<P>);

impl<P: OverlappedOs> Routine for Over<P> {
    type Target = Core<P>;

    fn run(core: &Arc<Core<P>>) {
        Core::delay_is_over(core);
    }
}

impl<P: OverlappedOs> Hold<P> {
    /// For a queue whose completions are seen late; `None` if they are not.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(os: &P::Os, delay: Delay) -> Result<Option<Self>, NtStatus> {
        if delay == Delay::NONE {
            return Ok(None);
        }
        Ok(Some(Self { delay, sight: Sight::Shut, timer: os.timer()? }))
    }

    /// Returns true if the client sees what is in the queue. `waits`: there is something that it has not seen. Called with the
    /// queue's lock held.
    pub fn sees(&mut self, core: &Arc<Core<P>>, waits: bool) -> bool {
        if self.sight == Sight::Shut && waits {
            let os = core.adapter().device().platform().os();
            self.sight = Sight::Held;
            self.timer.set(self.delay.draw(random(os)), core);
        }
        self.sight == Sight::Open
    }

    /// The client has seen everything.
    pub const fn shut(&mut self) {
        if matches!(self.sight, Sight::Open) {
            self.sight = Sight::Shut;
        }
    }

    /// The delay is over.
    pub const fn open(&mut self) {
        self.sight = Sight::Open;
    }

    /// Nobody will look any more.
    pub fn end(&self) {
        self.timer.cancel();
    }
}
