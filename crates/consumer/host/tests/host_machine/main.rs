//! The machine of the host keeps the kernel's contracts, and catches those who do not: one test for each.

mod allocation;
mod dispatch;
mod dpc;
mod in_order;
mod lifetime;
mod lock;
mod memory;
mod os;
mod plain;
mod seeded;
mod timer;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use host::machine::{Arguments, Dpc, Importance, Machine, MachineRef, Rule};

/// Long enough to be sure that something does not happen any more, on a busy host too.
const NEVER: Duration = Duration::from_mins(1);

/// Runs `test` on a machine of threads, and on seeded machines with several seeds.
fn on_both(test: impl Fn(&Machine)) {
    let threads = Machine::threads().processors(4).start();
    test(&threads);
    threads.shutdown();
    for seed in 0..8 {
        let seeded = Machine::seeded(seed).processors(4).start();
        test(&seeded);
        seeded.shutdown();
    }
}

/// A call of low importance waits for the clock of its processor.
fn low_importance_runs(machine: &Machine) {
    let log = Log::default();
    let dpc = logging(machine, &log);
    dpc.set_importance(Importance::Low);
    dpc.queue(Arguments::numbers(1, 0));
    wait_until(machine, || log.len() == 1);
}

/// Checks that `work` breaks `rule`, and gives the panic message.
#[track_caller]
fn breaks<T>(rule: Rule, work: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(work)).err().expect("no rule was broken");
    let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains(&format!("rule broken: {rule}:")), "expected {rule}, got: {message}");
    message
}

/// Waits until `condition` holds, in either kind of machine.
#[track_caller]
fn wait_until(machine: &MachineRef, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < NEVER, "it never happens");
        machine.yield_now();
    }
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<usize>>>);

impl Log {
    fn add(&self, what: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn taken(&self) -> Vec<usize> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A DPC on processor 0 that logs its first argument.
fn logging(machine: &MachineRef, log: &Log) -> Dpc {
    let log = log.clone();
    let dpc = Dpc::try_new(machine, "logging", move |arguments| log.add(arguments.first.addr())).expect("memory");
    dpc.set_target(Some(0));
    dpc
}

/// Keeps a processor of a machine of threads busy, as long as it lives. On a seeded machine nothing runs by itself.
struct Busy {
    machine: MachineRef,
    open: Arc<AtomicBool>,
    dpc: Dpc,
}

impl Busy {
    fn new(machine: &MachineRef, processor: u32, seeded: bool) -> Self {
        let open = Arc::new(AtomicBool::new(false));
        let begun = Arc::new(AtomicBool::new(false));
        let (of_dpc, begun_in_dpc) = (open.clone(), begun.clone());
        let dpc = Dpc::try_new(machine, "busy", move |_| {
            begun_in_dpc.store(true, SeqCst);
            while !of_dpc.load(SeqCst) {
                std::thread::yield_now();
            }
        })
        .expect("memory");
        dpc.set_target(Some(processor));
        dpc.set_importance(Importance::High);
        if !seeded {
            dpc.queue(Arguments::NONE);
            wait_until(machine, || begun.load(SeqCst));
        }
        Self { machine: machine.clone(), open, dpc }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.open.store(true, SeqCst);
        let _ = self.dpc.remove();
        if !std::thread::panicking() {
            self.machine.flush();
        }
    }
}

/// Returns true if the machine is a seeded one.
fn is_seeded(machine: &MachineRef) -> bool {
    machine.timer_resolution() == 1
}
