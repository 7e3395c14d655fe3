//! The smallest operating system on which loom can run the engine.
//!
//! DPCs lie in one queue; who takes one out and runs it stands for a processor at that moment. Timers lie in a list
//! until a test lets them expire, and time stands still.

use std::collections::VecDeque;

use engine::{
    cq::{CqClient, notify::CqFailure},
    os::{Affinity, Dpc, Event, Memory, Os, Routine, SpinLock, Timer},
};
use loom::{
    model::Builder,
    sync::{
        Arc, Mutex,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire},
        },
    },
};
use ntstatus::NtStatus;

/// Runs `test` in every interleaving that `model` allows, and says how many there were.
pub fn interleavings(model: &Builder, test: impl Fn() + Send + Sync + 'static) -> usize {
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = count.clone();
    model.check(move || {
        counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        test();
    });
    let count = count.load(std::sync::atomic::Ordering::Relaxed);
    println!("{count} interleavings");
    count
}

/// A consumer that need not be told anything.
#[allow(dead_code, reason = "not every test has one")]
pub struct Nobody;

impl CqClient for Nobody {
    fn notify(&self, _: NtStatus) {}

    fn failed(&self, _: CqFailure) {}
}

type Call = Box<dyn FnOnce() + Send>;

/// Calls that wait for a processor, and timers that wait for their time.
#[derive(Default)]
struct Scheduled {
    calls: VecDeque<Call>,
    timers: VecDeque<Call>,
}

/// An operating system without processors.
#[derive(Clone)]
pub struct LoomOs(Arc<Mutex<Scheduled>>);

impl LoomOs {
    /// An operating system that has nothing to do.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Scheduled::default())))
    }

    fn with<U>(&self, work: impl FnOnce(&mut Scheduled) -> U) -> U {
        work(&mut self.0.lock().expect("no panic"))
    }

    /// Runs the next DPC, if there is one.
    pub fn run_one(&self) -> bool {
        let call = self.with(|waiting| waiting.calls.pop_front());
        call.map(|call| call()).is_some()
    }

    /// Runs DPCs until there are none.
    pub fn run_all(&self) {
        while self.run_one() {}
    }

    /// Lets the timer expire that was set first, if one is set.
    #[allow(dead_code, reason = "not every test has timers")]
    pub fn expire_one(&self) -> bool {
        let timer = self.with(|waiting| waiting.timers.pop_front());
        timer.map(|timer| timer()).is_some()
    }
}

impl Os for LoomOs {
    type Lock<T: Send + 'static> = Lock<T>;
    type Dpc<R: Routine> = Deferred;
    type Timer<R: Routine> = OneShot<R>;
    type Event = NoEvent;
    type Memory = Byte;

    fn lock<T: Send + 'static>(&self, value: T) -> Result<Lock<T>, NtStatus> {
        Ok(Lock(Mutex::new(value)))
    }

    fn dpc<R: Routine>(&self, _: u32) -> Result<Deferred, NtStatus> {
        Ok(Deferred { os: self.clone(), queued: Arc::new(AtomicBool::new(false)) })
    }

    fn timer<R: Routine>(&self) -> Result<OneShot<R>, NtStatus> {
        Ok(OneShot { os: self.clone(), set: Arc::new(Mutex::new(None)) })
    }

    fn event(&self) -> Result<NoEvent, NtStatus> {
        Ok(NoEvent)
    }

    fn processors(&self) -> u32 {
        1
    }

    fn current_processor(&self) -> u32 {
        0
    }

    fn processor_for(&self, _: Affinity) -> Option<u32> {
        Some(0)
    }

    fn now(&self) -> u64 {
        0
    }

    fn timer_resolution(&self) -> u32 {
        1
    }

    fn random(&self) -> u32 {
        7
    }
}

/// A lock of loom.
pub struct Lock<T>(Mutex<T>);

impl<T: Send> SpinLock<T> for Lock<T> {
    fn with<U>(&self, work: impl FnOnce(&mut T) -> U) -> U {
        work(&mut self.0.lock().expect("no panic"))
    }
}

/// A DPC: queued at most once at a time.
pub struct Deferred {
    os: LoomOs,
    queued: Arc<AtomicBool>,
}

impl<R: Routine> Dpc<R> for Deferred {
    fn queue(&self, target: &fallible::Arc<R::Target>) -> bool {
        if self.queued.swap(true, AcqRel) {
            return false;
        }
        let (queued, target) = (self.queued.clone(), target.clone());
        self.os.with(|waiting| {
            waiting.calls.push_back(Box::new(move || {
                // Reads what every unsuccessful queueing wrote, as the kernel's interlocked operations do.
                queued.swap(false, AcqRel);
                R::run(&target);
            }));
        });
        true
    }
}

/// A one-shot timer. Its expiry, once begun, is not stopped by a cancellation.
pub struct OneShot<R: Routine> {
    os: LoomOs,
    set: Arc<Mutex<Option<fallible::Arc<R::Target>>>>,
}

impl<R: Routine> Timer<R> for OneShot<R> {
    fn set(&self, _: u64, target: &fallible::Arc<R::Target>) {
        let before = self.set.lock().expect("no panic").replace(target.clone());
        if before.is_some() {
            return;
        }
        let set = self.set.clone();
        self.os.with(|waiting| {
            waiting.timers.push_back(Box::new(move || {
                let target = set.lock().expect("no panic").take();
                if let Some(target) = target {
                    R::run(&target);
                }
            }));
        });
    }

    fn cancel(&self) -> bool {
        self.set.lock().expect("no panic").take().is_some()
    }
}

/// Nothing to wait for.
pub struct NoEvent;

impl Event for NoEvent {
    fn set(&self) {}

    fn wait(&self) {
        unreachable!("no test waits");
    }
}

/// A byte that nobody looks at. Whoever frees it says so, and then nobody may copy it.
pub struct Byte {
    /// Where it is said to lie.
    pub address: u64,
    /// It was freed.
    pub is_free: Arc<AtomicBool>,
}

impl Memory for Byte {
    fn base(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        1
    }

    fn read(&self, _: usize, _: &mut [u8]) {
        unreachable!("nobody looks at it");
    }

    fn write(&self, _: usize, _: &[u8]) {
        assert!(!self.is_free.load(Acquire), "bytes are written that were freed");
    }

    fn copy_from(&self, _: usize, from: &Self, _: usize, _: usize) {
        let are_free = [self, from].map(|byte| byte.is_free.load(Acquire));
        assert_eq!(are_free, [false; 2], "a copy of bytes that were freed");
    }
}
