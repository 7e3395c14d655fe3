//! Faults on purpose: the n-th thing that can fail does, or the first one at each call site.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use crate::{
    kernel::Kernel,
    state::{Part, State, lock},
};

/// Counts what can fail, and lets one of it fail.
#[derive(Default)]
pub struct Faults {
    counted: AtomicU64,
    failing: AtomicU64,
    period: AtomicU64,
    /// Call sites at which something has failed, if each is to fail once.
    sites: Mutex<Option<BTreeSet<u64>>>,
    happened: AtomicBool,
    /// How often a fault was injected.
    injected: AtomicU64,
}

/// What is to fail, counted from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// Nothing.
    None,
    /// The one with this number; 1 is the next one.
    Nth(u64),
    /// Every one of so many, for good.
    Every(u64),
    /// At each call site the first one: of the drivers that [`Kernel::image`] knows.
    EachSite,
}

impl Part for Faults {}

impl Faults {
    /// Returns true if something was made to fail since the last plan was made.
    pub fn has_struck(&self) -> bool {
        self.injected.load(Relaxed) > 0
    }
}

impl State {
    /// Something that can fail is about to be done. Whether it fails.
    pub fn strikes(&self) -> bool {
        let faults = self.part::<Faults>();
        let number = faults.counted.fetch_add(1, AcqRel) + 1;
        let (failing, period) = (faults.failing.load(Acquire), faults.period.load(Acquire));
        let by_number = number == failing || (period != 0 && number.is_multiple_of(period));
        let by_site = lock(&faults.sites).is_some() && {
            let site = self.call_site();
            lock(&faults.sites).as_mut().is_some_and(|sites| sites.insert(site))
        };
        if by_number || by_site {
            faults.happened.store(true, Release);
            faults.injected.fetch_add(1, Relaxed);
        }
        by_number || by_site
    }
}

impl Kernel {
    /// Lets allocations, creations of objects, mappings and the like fail, counted from now on.
    ///
    /// Counted are allocations from the pool (a driver's boxes and vectors too), objects and device structures of the
    /// framework, symbolic links, interfaces, registrations, threads, MDLs and mappings, and of NDIS registrations,
    /// configurations and their values, attributes, pools, lists, MDLs and work items, in one sequence.
    pub fn inject(&self, plan: Injection) {
        let faults = self.state.part::<Faults>();
        let (failing, period) = match plan {
            Injection::None | Injection::EachSite => (0, 0),
            Injection::Nth(number) => (number, 0),
            Injection::Every(period) => (0, period),
        };
        *lock(&faults.sites) = (plan == Injection::EachSite).then(BTreeSet::new);
        faults.happened.store(false, Release);
        faults.counted.store(0, Release);
        faults.injected.store(0, Release);
        faults.failing.store(failing, Release);
        faults.period.store(period, Release);
    }

    /// Returns true if a fault was injected since the last plan was made.
    #[must_use]
    pub fn fault_happened(&self) -> bool {
        self.state.part::<Faults>().happened.load(Acquire)
    }

    /// Runs `scenario` once for each of `numbers`, with the fault of that number, until there is none with it. No fault is
    /// injected afterwards. Returns how many there were.
    pub fn fail_each(&self, numbers: impl IntoIterator<Item = u64>, mut scenario: impl FnMut()) -> usize {
        let mut failures = 0;
        for number in numbers {
            self.inject(Injection::Nth(number));
            scenario();
            if !self.fault_happened() {
                break;
            }
            failures += 1;
        }
        self.inject(Injection::None);
        failures
    }

    /// How many faults were injected since the last plan was made.
    #[must_use]
    pub fn faults_injected(&self) -> u64 {
        self.state.part::<Faults>().injected.load(Acquire)
    }

    /// How many things that can fail were done since the last plan was made.
    #[must_use]
    pub fn counted_faults(&self) -> u64 {
        self.state.part::<Faults>().counted.load(Acquire)
    }
}
