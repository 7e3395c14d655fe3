//! How a machine is built.

use std::{num::NonZero, thread::available_parallelism, time::Duration};

use super::core::Machine;

/// Affinity masks have this many bits.
const MOST_PROCESSORS: u32 = 64;

/// What decides which processor is next.
#[derive(Clone, Copy, Debug)]
pub enum Scheduler {
    /// The operating system: a thread for each processor.
    Threads,
    /// A seed.
    Seeded(u64),
}

/// The settings of a machine.
#[derive(Clone, Debug)]
pub struct Settings {
    pub scheduler: Scheduler,
    pub processors: u32,
    pub timer_resolution: u32,
    pub pace: u32,
    pub spin: Duration,
    pub hang_limit: Duration,
    pub dpc_time_limit: Option<Duration>,
    pub dpc_byte_limit: usize,
    pub preemption: u8,
    pub step_limit: u64,
}

/// Builds a [`Machine`]: see [`Machine::threads`] and [`Machine::seeded`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct Builder {
    settings: Settings,
}

impl Builder {
    pub(super) fn new(scheduler: Scheduler) -> Self {
        let (processors, timer_resolution) = match scheduler {
            Scheduler::Threads => (default_processors(), 50),
            // The same on every host, so that a seed means the same everywhere.
            Scheduler::Seeded(_) => (2, 1),
        };
        Self {
            settings: Settings {
                scheduler,
                processors,
                timer_resolution,
                pace: 1,
                spin: Duration::ZERO,
                hang_limit: Duration::from_mins(2),
                dpc_time_limit: None,
                dpc_byte_limit: usize::MAX,
                preemption: 0,
                step_limit: 10_000_000,
            },
        }
    }

    /// The number of processors. Default: with threads the host's, between 2 and 8; seeded 2.
    ///
    /// # Panics
    ///
    /// If `count` is not between 1 and 64.
    pub fn processors(mut self, count: u32) -> Self {
        assert!((1..=MOST_PROCESSORS).contains(&count), "{count} processors: 1 to {MOST_PROCESSORS} are possible");
        self.settings.processors = count;
        self
    }

    /// The shortest delay that a timer can tell from none, in microseconds. Default: 50 with threads, 1 seeded.
    ///
    /// # Panics
    ///
    /// If it is zero.
    pub fn timer_resolution(mut self, microseconds: u32) -> Self {
        assert!(microseconds > 0, "a timer resolution of zero");
        self.settings.timer_resolution = microseconds;
        self
    }

    /// Threads only: how many microseconds of real time a microsecond of the machine takes. Default: one.
    ///
    /// On a busy host threads get their turn late, and what has time-outs gives up although nobody is to blame. With a slower clock all
    /// of them last longer.
    ///
    /// # Panics
    ///
    /// If it is zero.
    pub fn pace(mut self, pace: u32) -> Self {
        assert!(pace > 0, "a clock that stands still");
        self.settings.pace = pace;
        self
    }

    /// How long an idle processor looks for work before it sleeps, at most. Default: not at all.
    ///
    /// It pays when every processor and every consumer has a core of its own. A processor that looked in vain looks for a
    /// shorter time next time.
    pub const fn spin(mut self, longest: Duration) -> Self {
        self.settings.spin = longest;
        self
    }

    /// How long a thread may wait before the machine calls it a hang. Default: two minutes.
    pub const fn hang_limit(mut self, limit: Duration) -> Self {
        self.settings.hang_limit = limit;
        self
    }

    /// How long a DPC may run, in real time. Default: as long as it likes, for hosts may be busy.
    pub const fn dpc_time_limit(mut self, limit: Duration) -> Self {
        self.settings.dpc_time_limit = Some(limit);
        self
    }

    /// How many registered bytes a DPC may copy ([`HostMemory`](crate::HostMemory)). Default: as many as it likes.
    pub const fn dpc_byte_limit(mut self, bytes: usize) -> Self {
        self.settings.dpc_byte_limit = bytes;
        self
    }

    /// Seeded only: the chance, in percent, that other processors run something at a point where they could get in between:
    /// when a DPC is queued, a timer set or an event signalled with no lock held, and before and after every
    /// acquisition and release of a lock of [`HostOs`](crate::HostOs). While the thread holds locks the chance is a quarter of
    /// it. Default: 0.
    ///
    /// # Panics
    ///
    /// Above 90: the work would not come to an end.
    pub const fn preemption(mut self, percent: u8) -> Self {
        assert!(percent <= 90, "a chance of at most 90 percent is possible");
        self.settings.preemption = percent;
        self
    }

    /// Seeded only: how many steps may be taken in one wait or run before the machine calls it a livelock. Default: ten
    /// million.
    pub const fn step_limit(mut self, steps: u64) -> Self {
        self.settings.step_limit = steps;
        self
    }

    /// Starts the machine.
    ///
    /// # Panics
    ///
    /// If the operating system does not give it its threads.
    #[must_use = "dropping a machine shuts it down"]
    pub fn start(self) -> Machine {
        Machine::start(self.settings)
    }
}

fn default_processors() -> u32 {
    let host = available_parallelism().map_or(2, NonZero::get);
    u32::try_from(host).unwrap_or(8).clamp(2, 8)
}
