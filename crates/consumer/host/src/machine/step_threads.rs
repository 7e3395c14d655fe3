//! Threads that take steps of a seeded machine while the thread that they pre-empt holds spin locks.
//!
//! A step on the stack of the thread that it pre-empts could never wait for that thread's locks. So it runs on a thread of its
//! own, which stands for another processor, and stops where it meets a lock of a paused thread. One of all these threads runs
//! at a time: whoever lets another one go on waits until that one has finished its step or waits for a lock. So what happens
//! still depends on the seed alone.
//!
//! A step that waits goes on when the lock is released, before its holder does anything else. So there is none when no lock
//! is held.

use std::{
    any::Any,
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use super::{core::MachineRef, thread as current};

/// The tokens of all threads that wait for a step thread, or are one that waits for a lock. They do not run, so a lock that
/// one of them holds is not released meanwhile.
static PAUSED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

thread_local! {
    /// The ends of a step thread's channels.
    static OWN_ENDS: RefCell<Option<Ends>> = const { RefCell::new(None) };
}

/// What a step thread is told to do.
enum Order {
    /// Take a step that lets no time pass beyond the limit.
    Step(MachineRef, u64),
    /// The lock is free.
    GoOn,
}

/// Why a step thread does not run any more.
enum Report {
    /// It has taken a step, or there was none to take.
    Stepped(bool),
    /// The step panicked.
    Panicked(Box<dyn Any + Send>),
    /// It waits for the lock at this address.
    Waits(usize),
}

struct Ends {
    orders: Receiver<Order>,
    reports: Sender<Report>,
}

struct StepThread {
    orders: Sender<Order>,
    reports: Receiver<Report>,
    handle: JoinHandle<()>,
}

/// The step threads of a machine.
#[derive(Default)]
pub struct StepThreads {
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    idle: Vec<StepThread>,
    /// Each with the address of the lock that it waits for, the longest waiting first.
    waiting: Vec<(usize, StepThread)>,
}

impl StepThreads {
    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a step thread take a step, and waits until it has taken it or waits for a lock. `false` if there is no step to take.
    pub fn step(&self, machine: &MachineRef, limit: u64) -> bool {
        let idle = self.lock().idle.pop();
        self.run(idle.unwrap_or_else(StepThread::start), Order::Step(machine.clone(), limit))
    }

    /// Returns true if a step waits for the lock at `address`.
    pub fn is_awaited(&self, address: usize) -> bool {
        self.lock().waiting.iter().any(|(lock, _)| *lock == address)
    }

    /// The lock at `address` is free: the step that has waited longest for it goes on.
    pub fn go_on(&self, address: usize) {
        let thread = {
            let waiting = &mut self.lock().waiting;
            waiting.iter().position(|(lock, _)| *lock == address).map(|index| waiting.remove(index).1)
        };
        if let Some(thread) = thread {
            self.run(thread, Order::GoOn);
        }
    }

    fn run(&self, thread: StepThread, order: Order) -> bool {
        let report = {
            let _pause = Pause::new();
            thread.orders.send(order).ok().and_then(|()| thread.reports.recv().ok())
        };
        match report {
            Some(Report::Stepped(stepped)) => {
                self.lock().idle.push(thread);
                stepped
            }
            Some(Report::Panicked(panic)) => {
                self.lock().idle.push(thread);
                resume_unwind(panic)
            }
            Some(Report::Waits(address)) => {
                self.lock().waiting.push((address, thread));
                true
            }
            None => unreachable!("a step thread reports before it ends"),
        }
    }

    /// Ends the threads that have nothing to do. Those that wait for the lock of a thread that has panicked stay where they
    /// are: the machine is of no use any more.
    pub fn end(&self) {
        let idle = std::mem::take(&mut self.lock().idle);
        for StepThread { orders, reports, handle } in idle {
            drop((orders, reports));
            let _ = handle.join();
        }
    }
}

impl StepThread {
    fn start() -> Self {
        let (orders, of_thread) = channel();
        let (to_starter, reports) = channel();
        let ends = Ends { orders: of_thread, reports: to_starter };
        let handle = thread::Builder::new().name("step".to_owned()).spawn(move || {
            OWN_ENDS.set(Some(ends));
            while let Some(Order::Step(machine, limit)) = next_order() {
                let outcome = catch_unwind(AssertUnwindSafe(|| machine.take_step(limit)));
                // The machine may not go away here.
                drop(machine);
                report(outcome.map_or_else(Report::Panicked, Report::Stepped));
            }
        });
        Self { orders, reports, handle: handle.expect("the operating system gives the machine its threads") }
    }
}

fn next_order() -> Option<Order> {
    OWN_ENDS.with_borrow(|ends| ends.as_ref().and_then(|ends| ends.orders.recv().ok()))
}

fn report(report: Report) {
    OWN_ENDS.with_borrow(|ends| {
        if let Some(ends) = ends {
            // Nobody listens if the machine is gone; then there are no orders either.
            let _ = ends.reports.send(report);
        }
    });
}

/// The current thread does not run as long as this lives.
struct Pause(usize);

impl Pause {
    fn new() -> Self {
        let token = current::with(current::ThreadState::token);
        paused().push(token);
        Self(token)
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let mut all = paused();
        if let Some(index) = all.iter().rposition(|token| *token == self.0) {
            all.swap_remove(index);
        }
    }
}

fn paused() -> MutexGuard<'static, Vec<usize>> {
    PAUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For a thread that spins for the lock at `address`, which the thread with the token `holder` has. A step thread waits here if
/// that one does not run; all others spin on.
pub fn wait_for(address: usize, holder: usize) {
    let is_step_thread = OWN_ENDS.with_borrow(Option::is_some);
    if !is_step_thread || !paused().contains(&holder) {
        return;
    }
    let _pause = Pause::new();
    report(Report::Waits(address));
    if next_order().is_none() {
        // The holder has panicked, and the machine is gone. Unwinding from here would run code that expects the lock.
        loop {
            thread::park();
        }
    }
}
