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

/// How long one look at the source takes at most, beside what the system's clock adds to it: how late it is noticed that another thread has
/// set an event.
const LOOK: Duration = Duration::from_millis(1);
/// Looks at the source between two at the clock.
const LOOKS: u32 = 4;
/// Waits in a row that are spent the same way. What one brings may be what the next need not wait for, so they are judged together.
const BLOCK: u32 = 8;
/// Of so many blocks one is spent the other way, to find out whether that has become the better one.
const TRIES: u32 = 64;

std::thread_local! {
    /// What this thread drives.
    static DRIVES: RefCell<Option<Drives>> = const { RefCell::new(None) };
}

struct Drives {
    plug: Plug,
    source: Source,
    habit: Habit,
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
    /// sleeps, or sleeps at once, as its [`Habit`] is. `begun` is now, for who knows it.
    fn turn(&mut self, begun: Option<Instant>, patience: Duration, is_over: impl Fn() -> bool) -> usize {
        self.go_on();
        if is_over() {
            return 0;
        }
        if patience.is_zero() {
            return self.look(patience);
        }
        let begun = begun.unwrap_or_else(Instant::now);
        let looks = self.habit.looks();
        if looks {
            let end = self.habit.longest.min(patience);
            for times in 1_u32.. {
                let count = self.look(Duration::ZERO);
                if count > 0 {
                    self.habit.looked(begun.elapsed());
                    return count;
                }
                if is_over() {
                    return 0;
                }
                // Without lending the core to others: on a busy machine it would come back much later than to one who sleeps.
                if times.is_multiple_of(LOOKS) && begun.elapsed() >= end {
                    break;
                }
                hint::spin_loop();
            }
        }
        // As long as was asked for, also behind a look: a source that sleeps for the same time each time need not say it again.
        let count = self.look(patience);
        if looks {
            self.habit.looked(begun.elapsed());
        } else if count > 0 {
            self.habit.slept(begun.elapsed());
        }
        count
    }
}

/// How a thread waits: it looks for frames over and over, or sleeps until they come, whichever has brought them sooner of late.
///
/// Which one that is depends on where the peer runs. One on the same core cannot answer while this thread looks; one on another core, or on
/// another machine, answers sooner than a core wakes up.
#[derive(Debug)]
struct Habit {
    /// How long it looks before it sleeps at most.
    longest: Duration,
    /// How long waits have taken that began with looking.
    looking: Duration,
    /// How long those have taken that began with sleeping.
    sleeping: Duration,
    /// This block of waits begins with looking.
    looks: bool,
    /// Waits of this block, and how long they have taken.
    waits: u32,
    took: Duration,
    /// Blocks since the last one that was spent the other way.
    blocks: u32,
}

impl Habit {
    /// It begins with looking.
    const fn new(longest: Duration) -> Self {
        let (looking, took) = (Duration::ZERO, Duration::ZERO);
        Self { longest, looking, sleeping: longest, looks: true, waits: 0, took, blocks: 0 }
    }

    /// Returns true if a wait is to begin with looking.
    const fn looks(&self) -> bool {
        self.looks && !self.longest.is_zero()
    }

    /// A wait that began with looking has taken so long; also one in which nothing has come.
    fn looked(&mut self, time: Duration) {
        self.has_waited(time.min(self.longest * 2));
    }

    /// Frames have come in a wait that began with sleeping, so long after that.
    fn slept(&mut self, time: Duration) {
        // How long nothing is sent says nothing about how fast it comes.
        if time <= self.longest * 2 {
            self.has_waited(time);
        }
    }

    fn has_waited(&mut self, time: Duration) {
        (self.waits, self.took) = (self.waits + 1, self.took + time);
        if self.waits < BLOCK {
            return;
        }
        let mean = if self.looks { &mut self.looking } else { &mut self.sleeping };
        *mean = (*mean + self.took / BLOCK) / 2;
        (self.waits, self.took) = (0, Duration::ZERO);
        self.blocks = (self.blocks + 1) % TRIES;
        let is_try = self.blocks == 0;
        self.looks = (self.looking <= self.sleeping) != is_try;
    }
}

/// Waits for an event, at most so many microseconds, by driving what this thread drives. Returns whether it was set; `None` if the thread
/// drives nothing.
pub fn wait_for(event: &machine::Event, micros: Option<u64>) -> Option<bool> {
    DRIVES.with(|drives| {
        // What is borrowed is being driven: who waits inside that waits as others do.
        let mut drives = drives.try_borrow_mut().ok()?;
        let drives = drives.as_mut()?;
        let mut now = Instant::now();
        let end = micros.map(|micros| now + Duration::from_micros(micros));
        while !event.is_set() {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(now));
            if left.is_zero() {
                break;
            }
            drives.turn(Some(now), left.min(LOOK), || event.is_set());
            if event.is_set() {
                break;
            }
            now = Instant::now();
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
            let now = Instant::now();
            let left = end.saturating_duration_since(now);
            if left.is_zero() {
                return false;
            }
            drives.turn(Some(now), left, || false);
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
    ///   there, and returns how many. It looks for up to `spin` before it sleeps, or sleeps at once, whichever has brought frames sooner of
    ///   late.
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
        let drives = Drives { plug: self.plug(), source, habit: Habit::new(spin), is_due: false };
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
            drives.as_mut().map_or(0, |drives| drives.turn(None, patience, || false))
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

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::{BLOCK, Habit, TRIES};

    const LONGEST: Duration = Duration::from_micros(50);
    /// Waits of as many blocks as have one that is a try.
    const WAITS: usize = (BLOCK * TRIES) as usize;

    /// Waits that take so many microseconds, one after the other, when they begin with looking, and with sleeping; how many of the last ones
    /// began with looking.
    fn waits(habit: &mut Habit, looking: &[u64], sleeping: &[u64]) -> usize {
        let mut wait = |number: &usize| {
            let looks = habit.looks();
            let times = if looks { looking } else { sleeping };
            let time = Duration::from_micros(times[number % times.len()]);
            if looks {
                habit.looked(time);
            } else {
                habit.slept(time);
            }
            looks
        };
        (0..20 * WAITS).for_each(|number| _ = wait(&number));
        (0..WAITS).filter(wait).count()
    }

    #[test]
    fn a_thread_waits_as_frames_come_sooner_and_tries_the_other_way_seldom() {
        let mut habit = Habit::new(LONGEST);
        assert!(habit.looks(), "looking first");
        assert_eq!(waits(&mut habit, &[5], &[40]), WAITS - BLOCK as usize);
        assert_eq!(waits(&mut habit, &[60], &[4]), BLOCK as usize, "the peer has come to the same core");
        assert_eq!(waits(&mut habit, &[5], &[40]), WAITS - BLOCK as usize, "and has left it");
    }

    #[test]
    fn who_waits_long_sleeps_and_who_may_not_look_does_too() {
        let mut habit = Habit::new(LONGEST);
        assert_eq!(waits(&mut habit, &[5_000], &[5_000]), 0, "no wait was short enough to find out anything");
        assert_eq!(waits(&mut Habit::new(Duration::ZERO), &[5], &[40]), 0);
    }

    #[test]
    fn a_short_wait_before_a_long_one_says_nothing_for_that() {
        // An ACK comes at once, and what is waited for later: by who looks, as late as it has looked.
        assert_eq!(waits(&mut Habit::new(LONGEST), &[1, 85], &[20, 35]), BLOCK as usize);
        assert_eq!(waits(&mut Habit::new(LONGEST), &[1, 10], &[20, 35]), WAITS - BLOCK as usize);
    }
}
