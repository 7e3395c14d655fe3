//! The state of the kernel that runs: what every routine needs, and a place for what each part keeps.
//!
//! A part is whatever a file of this crate keeps from call to call: the adapters of NDIS, the sockets of Winsock Kernel, the objects in
//! drivers' memory. It is a type of that file, found in the state by its type ([`State::part`]), so this file names none of them. What
//! some want to hear from the core is in [`Watch`].

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use host::machine::MachineRef;

use crate::{baton::Baton, dispatcher::Dispatcher, report::bug_check, rule::Rule};

pub use crate::sync::lock;

/// What a part of the kernel keeps.
pub trait Part: Any + Send + Sync {
    /// The part as one that hears from the core.
    fn watch(&self) -> Option<&dyn Watch> {
        None
    }
}

/// A part that hears from the core.
pub trait Watch {
    /// The memory in this range is about to be given back.
    fn memory_is_to_go(&self, _range: &Range<usize>) {}

    /// The memory in this range was given back.
    fn memory_is_gone(&self, _state: &State, _range: &Range<usize>) {}

    /// The functions have returned on whose stack the objects at these addresses lay.
    fn stack_is_gone(&self, _state: &State, _addresses: &[usize]) {}
}

/// The parts of a kernel.
#[derive(Default)]
pub struct Parts {
    all: Vec<Box<dyn Part>>,
    /// Those that hear from the core, in the order in which they do.
    watching: Vec<usize>,
    by_type: HashMap<TypeId, usize, BuildHasherDefault<OfTypeId>>,
}

impl Parts {
    /// Adds a part that keeps nothing yet.
    pub fn add<P: Part + Default>(&mut self) {
        let before = self.by_type.insert(TypeId::of::<P>(), self.all.len());
        assert!(before.is_none(), "{} is added once", std::any::type_name::<P>());
        let part = P::default();
        if part.watch().is_some() {
            self.watching.push(self.all.len());
        }
        self.all.push(Box::new(part));
    }
}

/// A type's identifier is a hash already.
#[derive(Default)]
struct OfTypeId(u64);

impl Hasher for OfTypeId {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A DPC: real time plus what it stalled.
    pub dpc: Duration,
    /// DPCs, one after the other, on a processor.
    pub dispatch: Duration,
    /// A wait.
    pub hang: Duration,
}

/// What all routines share.
pub struct State {
    pub machine: MachineRef,
    pub seed: Option<u64>,
    pub baton: Option<Baton>,
    pub dispatcher: Dispatcher,
    pub limits: Limits,
    /// Calls of the routines and functions, for the statistics.
    pub calls: AtomicU64,
    next: AtomicU64,
    parts: Parts,
}

impl State {
    /// The state of a new kernel.
    pub fn new(machine: MachineRef, seed: Option<u64>, baton: Option<Baton>, limits: Limits, parts: Parts) -> Self {
        let (dispatcher, calls, next) = (Dispatcher::default(), AtomicU64::new(0), AtomicU64::new(1));
        Self { machine, seed, baton, dispatcher, limits, calls, next, parts }
    }

    /// What a part of the kernel keeps.
    pub fn part<P: Part>(&self) -> &P {
        let part = self.parts.by_type.get(&TypeId::of::<P>()).map(|&place| &*self.parts.all[place] as &dyn Any);
        let Some(part) = part.and_then(<dyn Any>::downcast_ref) else {
            unreachable!("{} is not among the parts of the kernel", std::any::type_name::<P>());
        };
        part
    }

    /// Locks a part that is behind a lock.
    pub fn locked<T>(&self) -> MutexGuard<'_, T>
    where
        Mutex<T>: Part,
    {
        lock(self.part::<Mutex<T>>())
    }

    /// The parts that hear from the core.
    pub fn watching(&self) -> impl Iterator<Item = &dyn Watch> {
        self.parts.watching.iter().filter_map(|&place| self.parts.all[place].watch())
    }

    /// A number that nothing else has.
    pub fn next(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// How long, in microseconds, a request may take.
    pub fn request_limit(&self) -> u64 {
        u64::try_from(self.limits.hang.as_micros()).unwrap_or(u64::MAX)
    }

    /// A point at which others may get in between.
    pub fn preempt(&self) {
        self.machine.preempt();
        if let Some(baton) = &self.baton {
            baton.preempt(&self.machine, &self.dispatcher);
        }
    }
}

static CURRENT: RwLock<Option<Arc<State>>> = RwLock::new(None);

/// The kernel that runs.
pub fn current() -> Arc<State> {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone();
    current.unwrap_or_else(|| {
        bug_check(Rule::NotSimulated, format_args!("a routine was called while no kernel runs"));
    })
}

/// From here on this kernel runs, or none.
pub fn set_current(state: Option<Arc<State>>) {
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = state;
}

/// The state, for a message: nobody may wait for it there.
pub fn glance<R>(look: impl FnOnce(&State) -> Option<R>) -> Option<R> {
    CURRENT.try_read().ok().and_then(|current| look(current.as_ref()?))
}
