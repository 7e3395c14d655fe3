//! A thread that does itself what the machine of an adapter on a wire would do on threads of its own.
//!
//! ```text
//!   post ----> DPCs of the adapter, at once ----> frames leave
//!   wait ----> frames that wait to leave; frames come in ----> DPCs ----> completions
//! ```
//!
//! So no request and no completion is handed from one thread to another.

use alloc::boxed::Box;
use core::{cell::RefCell, hint, time::Duration};
use std::{thread, time::Instant};

use engine::wire::Wire;
use host::machine::{self, Irql, OnProcessor, lower, raise};

use super::{Plug, Wired};

/// Where frames come in: waits for one, at most so long, and gives those that there are. Returns how many.
type Source = Box<dyn FnMut(Duration, &mut dyn FnMut(&[u8])) -> usize>;

/// How long one look at the source takes at most: how late it is noticed that another thread has set an event.
const LOOK: Duration = Duration::from_millis(1);
/// Looks at the source between two at the clock.
const LOOKS: u32 = 4;

std::thread_local! {
    /// What this thread drives.
    static DRIVES: RefCell<Option<Drives>> = const { RefCell::new(None) };
}

struct Drives {
    plug: Plug,
    source: Source,
    /// How long to look before it sleeps: at most, and the next time.
    longest: Duration,
    spin: Duration,
    /// Frames have come in, and what is to be done about them is left for later.
    is_due: bool,
}

/// Runs `work` at `DISPATCH_LEVEL`. Calls that it queues run before this returns, if the thread [drives](Wired::drive) the adapter.
///
/// With locks that do not raise the IRQL ([`Wired::unwatched`]) a post has to be made so, for what it queues to run here.
pub fn at_dispatch<U>(work: impl FnOnce() -> U) -> U {
    let before = raise(Irql::DISPATCH_LEVEL);
    let result = work();
    lower(before);
    result
}

impl Drives {
    /// Does what was left for later.
    fn go_on(&mut self) {
        if core::mem::take(&mut self.is_due) {
            at_dispatch(|| Wire::go_on(&self.plug.wire));
        }
    }

    /// Takes frames in that come within `patience`. Returns how many.
    fn look(&mut self, patience: Duration) -> usize {
        let Self { plug, source, is_due, .. } = self;
        source(patience, &mut |frame| *is_due |= at_dispatch(|| plug.take_in(frame)))
    }

    /// Does what was left for later, and takes in the next frames: until it `is_over`, or `patience` has. It looks for a while before it
    /// sleeps, and for half as long the next time if that was in vain: then somebody else needs the core.
    fn turn(&mut self, patience: Duration, is_over: impl Fn() -> bool) -> usize {
        self.go_on();
        let begun = Instant::now();
        for looks in 1_u32.. {
            if is_over() {
                return 0;
            }
            let count = self.look(Duration::ZERO);
            if count > 0 || patience.is_zero() {
                if looks > 1 {
                    self.spin = self.longest;
                }
                return count;
            }
            // Without lending the core to others: on a busy machine it would come back much later than to one who sleeps.
            if looks.is_multiple_of(LOOKS) && begun.elapsed() >= self.spin.min(patience) {
                break;
            }
            hint::spin_loop();
        }
        self.spin = (self.spin / 2).max(self.longest / 16);
        self.look(patience.saturating_sub(begun.elapsed()))
    }
}

/// Waits for an event, at most so many microseconds, by driving what this thread drives. Returns whether it was set; `None` if the thread
/// drives nothing.
pub fn wait_for(event: &machine::Event, micros: Option<u64>) -> Option<bool> {
    DRIVES.with(|drives| {
        // What is borrowed is being driven: who waits inside that waits as others do.
        let mut drives = drives.try_borrow_mut().ok()?;
        let drives = drives.as_mut()?;
        let end = micros.map(|micros| Instant::now() + Duration::from_micros(micros));
        while !event.is_set() {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            drives.turn(left.min(LOOK), || event.is_set());
        }
        // Also to find out whether the machine has failed.
        Some(event.wait_for(0))
    })
}

/// Returns true if the current thread [drives](Wired::drive) an adapter.
#[must_use]
pub fn drives() -> bool {
    DRIVES.with(|drives| drives.try_borrow().map_or(true, |drives| drives.is_some()))
}

/// Waits so long: a thread that [drives](Wired::drive) an adapter does that meanwhile, any other sleeps.
pub fn rest(time: Duration) {
    let end = Instant::now() + time;
    let rests = DRIVES.with(|drives| {
        let Ok(mut drives) = drives.try_borrow_mut() else { return true };
        let Some(drives) = drives.as_mut() else { return true };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            drives.turn(left, || false);
        }
    });
    if rests {
        thread::sleep(time);
    }
}

/// The current thread drives an adapter on a wire: see [`Wired::drive`]. Dropping it ends that.
#[derive(Debug)]
pub struct Driver {
    /// What belongs to this thread: the driver stays on it.
    on: Option<OnProcessor>,
}

impl Wired {
    /// Makes the current thread the one that does the adapter's work, until the driver is dropped.
    ///
    /// - What the thread posts goes out in the post.
    /// - When the thread waits, for completions or for a request, frames come in from `source`, which waits for one, gives all that are
    ///   there, and returns how many. It looks for up to `spin` before it sleeps, for less after it has looked in vain.
    /// - Nothing else brings frames in: while the thread does something else, the peer gets no answers. What is to be answered
    ///   goes out with the thread's next request, or when it waits.
    ///
    /// The machine should have one processor, which the thread is on from then on (`host::machine::MachineRef::run_on`): calls of others
    /// run on their own threads. With [`Wired::unwatched`] posts are to be made [at `DISPATCH_LEVEL`](at_dispatch).
    ///
    /// # Panics
    ///
    /// If the thread drives an adapter or is on a processor already, or the machine is seeded.
    #[must_use = "dropping it ends it"]
    pub fn drive(
        &self,
        spin: Duration,
        source: impl FnMut(Duration, &mut dyn FnMut(&[u8])) -> usize + 'static,
    ) -> Driver {
        let on = self.machine().run_on(0);
        let source: Source = Box::new(source);
        let drives = Drives { plug: self.plug(), source, longest: spin, spin, is_due: false };
        DRIVES.with(|place| *place.borrow_mut() = Some(drives));
        Driver { on: Some(on) }
    }
}

impl Driver {
    /// For who polls, or waits for something that is no event: does what was left for later, and takes frames in that come within
    /// `patience`, which may be zero. Returns how many.
    pub fn turn(&mut self, patience: Duration) -> usize {
        DRIVES.with(|drives| {
            let mut drives = drives.borrow_mut();
            drives.as_mut().map_or(0, |drives| drives.turn(patience, || false))
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let drives = DRIVES.with(|drives| drives.try_borrow_mut().ok().and_then(|mut drives| drives.take()));
        if let Some(mut drives) = drives {
            drives.go_on();
        }
        drop(self.on.take());
    }
}

impl Plug {
    /// A frame has come. Returns true if [`Wire::go_on`] is to be called.
    fn take_in(&self, frame: &[u8]) -> bool {
        self.tap.with(|tap| tap.received(frame));
        Wire::take_in(&self.wire, &[frame])
    }
}
