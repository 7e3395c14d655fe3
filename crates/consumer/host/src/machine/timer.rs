//! Timers.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use fallible::{AllocError, Arc, try_box};

use super::{
    core::MachineRef,
    dpc::{Arguments, Dpc},
    irql::{Irql, assert_irql_at_most},
    rules::{Rule, broken_at_drop},
};

/// The part of a timer that the queue of timers refers to.
pub struct TimerInner {
    pub machine: MachineRef,
    pub name: &'static str,
    pub number: u64,
    /// True if the timer is in the queue. Written under the lock of the queue, as are the next two.
    set: AtomicBool,
    due: AtomicU64,
    order: AtomicU64,
    expire: Box<dyn Fn(Arguments) + Send + Sync>,
}

impl TimerInner {
    /// Its key in the queue of timers: the due time, and the number among all settings. `None` if it is not queued. For the
    /// queue, under its lock.
    pub fn key(&self) -> Option<(u64, u64)> {
        self.set.load(Acquire).then(|| (self.due.load(Relaxed), self.order.load(Relaxed)))
    }

    /// Sets the timer's key in the queue. For the queue, under its lock.
    pub fn set_key(&self, key: Option<(u64, u64)>) {
        if let Some((due, order)) = key {
            self.due.store(due, Relaxed);
            self.order.store(order, Relaxed);
        }
        self.set.store(key.is_some(), Release);
    }

    /// Runs the expiry on the current thread.
    pub fn expire(&self, arguments: Arguments) {
        (self.expire)(arguments);
    }
}

impl Drop for TimerInner {
    fn drop(&mut self) {
        self.machine.core.timers.forget();
    }
}

/// A timer object: `KTIMER`. Its owner may not drop it while it is set, as the kernel's may not be freed then.
pub struct Timer {
    inner: Arc<TimerInner>,
}

impl Timer {
    /// A timer that calls `expire` when its time has come: `KeInitializeTimerEx`. `name` appears in messages.
    ///
    /// `expire` stands for the clock interrupt, at `DISPATCH_LEVEL` on the processor that has set the timer. It should do no
    /// more than queue a DPC, as the kernel does, with the arguments that were given to [`Timer::set`].
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory. Setting needs none.
    pub fn try_new(
        machine: &MachineRef,
        name: &'static str,
        expire: impl Fn(Arguments) + Send + Sync + 'static,
    ) -> Result<Self, AllocError> {
        let expire: Box<dyn Fn(Arguments) + Send + Sync> = try_box(expire)?;
        machine.core.timers.expect()?;
        // From here on the value's drop takes back what `expect` has done.
        let inner = Arc::try_new(TimerInner {
            machine: machine.clone(),
            name,
            number: machine.next_number(),
            set: AtomicBool::new(false),
            due: AtomicU64::new(0),
            order: AtomicU64::new(0),
            expire,
        })?;
        Ok(Self { inner })
    }

    /// A timer that queues `dpc`. An expiry while the call is queued already adds nothing.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory.
    pub fn queueing(machine: &MachineRef, name: &'static str, dpc: &Dpc) -> Result<Self, AllocError> {
        let dpc = dpc.handle();
        Self::try_new(machine, name, move |arguments| {
            // Two expiries before the call begins are one call: the contract of a DPC.
            let _ = dpc.queue(arguments);
        })
    }

    /// Lets the timer expire `delay` microseconds from now, and, if `period` is not zero, every `period` microseconds after
    /// that: `KeSetTimerEx`. A timer that is set forgets what it was set for.
    ///
    /// Returns the arguments with which it was set before, if it was still in the queue (the kernel's TRUE).
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlTooHigh`] above `DISPATCH_LEVEL`.
    #[track_caller]
    #[must_use = "the arguments may hold a reference"]
    pub fn set(&self, delay: u64, period: u64, arguments: Arguments) -> Option<Arguments> {
        assert_irql_at_most(Irql::DISPATCH_LEVEL);
        let machine = &self.inner.machine;
        let due = machine.now().saturating_add(delay);
        let before = machine.core.timers.insert(&self.inner, due, period, arguments, machine.current_processor());
        machine.preempt();
        before
    }

    /// Lets the timer expire at a time of the machine's clock, in microseconds, on the first processor. For what comes from outside in the
    /// middle of a step: nobody gets in between here. A timer that is set forgets what it was set for.
    pub fn set_at(&self, due: u64) {
        // Nobody is told what it was set for before: it had no arguments.
        let _ = self.inner.machine.core.timers.insert(&self.inner, due, 0, Arguments::NONE, 0);
    }

    /// Takes the timer out of the queue: `KeCancelTimer`. Returns its arguments if it was there.
    ///
    /// `None` means that it is not set or has expired: its DPC may be about to be queued, be queued or run. A periodic timer
    /// stays in the queue when it expires.
    ///
    /// # Panics
    ///
    /// [`Rule::IrqlTooHigh`] above `DISPATCH_LEVEL`.
    #[track_caller]
    #[must_use = "the arguments may hold a reference"]
    pub fn cancel(&self) -> Option<Arguments> {
        assert_irql_at_most(Irql::DISPATCH_LEVEL);
        self.inner.machine.preempt();
        self.inner.machine.core.timers.remove(&self.inner)
    }

    /// Returns true if the timer is in the queue.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.inner.key().is_some()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.is_set() && !self.inner.machine.is_stopped() {
            let TimerInner { name, number, .. } = &*self.inner;
            broken_at_drop(Rule::TimerFreedWhileSet, format_args!("timer `{name}` #{number}"));
        }
    }
}
