//! DPCs that interrupt the thread that a processor runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, ThreadId},
};

use engine::os::{Dpc as _, Os, Routine, SpinLock};
use host::{
    HostOs,
    machine::{
        Arguments, Dpc, Importance, Irql, LockName, Machine, RawSpinLock, Rule, Timer, current_irql, lower, raise,
    },
};

use super::{Busy, Log, breaks, logging, low_importance_runs, wait_until};

/// Runs `test` on a thread that is what processor 0 of three runs.
fn on_processor(test: impl FnOnce(&Machine)) {
    let machine = Machine::threads().processors(3).start();
    let here = machine.run_on(0);
    assert_eq!(machine.current_processor(), 0);
    test(&machine);
    assert_eq!(current_irql(), Irql::PASSIVE_LEVEL);
    drop(here);
    machine.shutdown();
}

/// A DPC on `processor`, and the threads on which it has run.
fn noting(machine: &Machine, processor: u32) -> (Dpc, Arc<std::sync::Mutex<Vec<ThreadId>>>) {
    let threads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = threads.clone();
    let dpc = Dpc::try_new(machine, "noting", move |_| {
        assert_eq!(current_irql(), Irql::DISPATCH_LEVEL);
        noted.lock().expect("no test fails under it").push(thread::current().id());
    });
    let dpc = dpc.expect("memory");
    dpc.set_target(Some(processor));
    (dpc, threads)
}

#[test]
fn a_call_queued_below_dispatch_level_has_run_when_queueing_returns() {
    on_processor(|machine| {
        let (dpc, threads) = noting(machine, 0);
        for level in [Irql::PASSIVE_LEVEL, Irql::APC_LEVEL] {
            let before = raise(level);
            assert!(dpc.queue(Arguments::NONE));
            assert_eq!(threads.lock().expect("a list").pop(), Some(thread::current().id()));
            assert_eq!(current_irql(), level);
            lower(before);
        }
        assert_eq!(machine.statistics().processors[0].dpcs_run, 2);
    });
}

#[test]
fn calls_queued_at_dispatch_level_run_when_it_drops_and_in_the_order_of_the_queue() {
    on_processor(|machine| {
        let log = Log::default();
        let dpcs = [Importance::Medium, Importance::MediumHigh, Importance::High].map(|importance| {
            let dpc = logging(machine, &log);
            dpc.set_importance(importance);
            dpc
        });
        let before = raise(Irql::DISPATCH_LEVEL);
        for (number, dpc) in dpcs.iter().enumerate() {
            assert!(dpc.queue(Arguments::numbers(number, 0)));
            assert!(!dpc.queue(Arguments::NONE), "queued already");
        }
        let high = raise(Irql::HIGH_LEVEL);
        lower(high);
        assert_eq!(log.taken(), [], "the level has not dropped below DISPATCH_LEVEL");
        lower(before);
        assert_eq!(log.taken(), [2, 0, 1]);
    });
}

#[test]
fn a_call_queued_under_a_lock_runs_when_the_lock_is_released() {
    on_processor(|machine| {
        let (outer, inner) = (RawSpinLock::new(), RawSpinLock::new());
        let name = |class| LockName { class, instance: 0 };
        let log = Log::default();
        let dpc = logging(machine, &log);
        let first = outer.acquire(name("outer"));
        let second = inner.acquire(name("inner"));
        dpc.queue(Arguments::numbers(1, 0));
        inner.release(second);
        assert_eq!(log.len(), 0, "the outer lock is held");
        outer.release(first);
        assert_eq!(log.taken(), [1]);
    });
}

#[test]
fn a_call_that_queues_itself_runs_again_before_the_level_drops() {
    on_processor(|machine| {
        let runs = Arc::new(AtomicUsize::new(0));
        let place = Arc::new(std::sync::OnceLock::<host::machine::DpcHandle>::new());
        let (counted, handle) = (runs.clone(), place.clone());
        let dpc = Dpc::try_new(machine, "again", move |_| {
            if counted.fetch_add(1, SeqCst) < 2 {
                assert!(handle.get().expect("set below").queue(Arguments::NONE));
            }
        })
        .expect("memory");
        dpc.set_target(Some(0));
        assert!(place.set(dpc.handle()).is_ok());
        dpc.queue(Arguments::NONE);
        assert_eq!(runs.load(SeqCst), 3);
    });
}

#[test]
fn a_call_for_another_processor_goes_there() {
    on_processor(|machine| {
        let (dpc, threads) = noting(machine, 1);
        dpc.queue(Arguments::NONE);
        wait_until(machine, || !threads.lock().expect("a list").is_empty());
        assert_ne!(threads.lock().expect("a list")[0], thread::current().id());
    });
}

#[test]
fn at_dispatch_level_a_thread_has_its_processor_for_itself() {
    on_processor(|machine| {
        let log = Log::default();
        let dpc = logging(machine, &log);
        let before = raise(Irql::DISPATCH_LEVEL);
        thread::scope(|scope| {
            let queued = scope.spawn(|| {
                machine.bind_current_thread(1);
                dpc.queue(Arguments::numbers(1, 0));
                // The processor's own thread is woken, and may not run the call.
                (0..100).for_each(|_| thread::yield_now());
            });
            queued.join().expect("it is queued");
        });
        assert_eq!(log.len(), 0);
        lower(before);
        machine.flush();
        assert_eq!(log.taken(), [1]);
    });
}

#[test]
fn threads_on_one_processor_are_never_at_dispatch_level_together() {
    let machine = Machine::threads().processors(1).start();
    let (inside, runs) = (Arc::new(AtomicUsize::new(0)), 2000);
    let alone = |inside: &AtomicUsize| {
        assert_eq!(inside.fetch_add(1, SeqCst), 0, "somebody else is on the processor");
        inside.fetch_sub(1, SeqCst);
    };
    let in_call = inside.clone();
    let dpc = Dpc::try_new(&machine, "alone", move |_| alone(&in_call)).expect("memory");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _here = machine.run_on(0);
                for _ in 0..runs {
                    let before = raise(Irql::DISPATCH_LEVEL);
                    alone(&inside);
                    lower(before);
                    dpc.queue(Arguments::NONE);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..runs {
                dpc.queue(Arguments::NONE);
            }
        });
    });
    machine.flush();
    machine.shutdown();
}

#[test]
fn a_queued_call_can_be_removed_until_the_level_drops() {
    on_processor(|machine| {
        let log = Log::default();
        let dpc = logging(machine, &log);
        let before = raise(Irql::DISPATCH_LEVEL);
        dpc.queue(Arguments::numbers(7, 0));
        let removed = thread::scope(|scope| scope.spawn(|| dpc.remove()).join().expect("no rule is broken"));
        assert_eq!(removed, Some(Arguments::numbers(7, 0)), "also by another thread");
        lower(before);
        assert_eq!(log.len(), 0);
    });
}

#[test]
fn low_importance_waits_for_the_clock() {
    on_processor(low_importance_runs);
}

#[test]
fn a_timer_that_the_thread_sets_expires() {
    on_processor(|machine| {
        let log = Log::default();
        let dpc = logging(machine, &log);
        let timer = Timer::queueing(machine, "once", &dpc).expect("memory");
        assert_eq!(timer.set(10, 0, Arguments::numbers(1, 0)), None);
        wait_until(machine, || log.len() == 1);
    });
}

#[test]
fn a_routine_that_breaks_a_rule_or_panics_is_a_failure_of_the_processor() {
    on_processor(|machine| {
        let bad = |name, routine: fn()| {
            let dpc = Dpc::try_new(machine, name, move |_| routine()).expect("memory");
            dpc.set_target(Some(0));
            dpc.queue(Arguments::NONE);
            let failures = machine.take_failures();
            assert_eq!(failures.len(), 1, "{name}: {failures:?}");
            assert_eq!((failures[0].processor, failures[0].routine), (0, name));
            failures[0].message.clone()
        };
        assert!(bad("panics", || panic!("on purpose")).contains("on purpose"));
        assert!(bad("lowers", || lower(Irql::PASSIVE_LEVEL)).contains(&Rule::IrqlNotRestored.to_string()));
        assert!(
            bad("waits", || host::machine::assert_irql_at_most(Irql::APC_LEVEL))
                .contains(&Rule::IrqlTooHigh.to_string())
        );
        assert_eq!(current_irql(), Irql::PASSIVE_LEVEL);
    });
}

#[test]
fn a_thread_leaves_its_processor_below_dispatch_level_only() {
    let machine = Machine::threads().processors(1).start();
    let here = machine.run_on(0);
    let log = Log::default();
    let dpc = logging(&machine, &log);
    let _ = raise(Irql::DISPATCH_LEVEL);
    dpc.queue(Arguments::numbers(1, 0));
    breaks(Rule::IrqlNotRestored, || drop(here));
    assert_eq!(current_irql(), Irql::PASSIVE_LEVEL, "nothing else can be done with it");
    wait_until(&machine, || log.len() == 1);
    machine.shutdown();
}

#[test]
fn a_panic_under_a_lock_leaves_the_processor_to_others() {
    let machine = Machine::threads().processors(1).start();
    let os = HostOs::new(&machine);
    let lock = os.lock(0_u32).expect("memory");
    let log = Log::default();
    let dpc = logging(&machine, &log);
    let here = machine.run_on(0);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        lock.with(|_| {
            dpc.queue(Arguments::numbers(1, 0));
            panic!("on purpose");
        });
    }));
    assert!(panicked.is_err());
    wait_until(&machine, || log.len() == 1);
    drop(here);
    machine.shutdown();
}

#[test]
fn a_flush_waits_for_calls_that_run_on_the_thread_of_another_processor() {
    let machine = Machine::threads().processors(2).start();
    let (queued, flushed) = (AtomicBool::new(false), AtomicBool::new(false));
    let log = Log::default();
    let dpc = logging(&machine, &log);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _here = machine.run_on(0);
            let before = raise(Irql::DISPATCH_LEVEL);
            dpc.queue(Arguments::numbers(1, 0));
            queued.store(true, SeqCst);
            (0..1000).for_each(|_| thread::yield_now());
            assert!(!flushed.load(SeqCst), "the call has not run");
            lower(before);
        });
        wait_until(&machine, || queued.load(SeqCst));
        machine.flush();
        flushed.store(true, SeqCst);
        assert_eq!(log.taken(), [1]);
    });
    machine.shutdown();
}

#[test]
fn a_busy_processor_is_waited_for() {
    let machine = Machine::threads().processors(1).start();
    let busy = Busy::new(&machine, 0, false);
    let raised = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _here = machine.run_on(0);
            let before = raise(Irql::DISPATCH_LEVEL);
            raised.store(true, SeqCst);
            lower(before);
        });
        (0..100).for_each(|_| thread::yield_now());
        assert!(!raised.load(SeqCst), "a call runs on the processor");
        drop(busy);
    });
    assert!(raised.load(SeqCst));
    machine.shutdown();
}

struct Bell;

#[derive(Default)]
struct Rung(AtomicUsize);

impl Routine for Bell {
    type Target = Rung;

    fn run(target: &fallible::Arc<Rung>) {
        target.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn with_locks_that_do_not_raise_a_call_interrupts_at_a_drop_only() {
    on_processor(|machine| {
        let os = HostOs::unwatched(machine);
        let (lock, dpc) = (os.lock(()).expect("memory"), os.dpc::<Bell>(0).expect("memory"));
        let rung = fallible::Arc::try_new(Rung::default()).expect("memory");
        let count = || rung.0.load(SeqCst);
        // Nobody can tell that the lock is held: the processor's own thread has to run the call, and may wait for the lock.
        lock.with(|()| dpc.queue(&rung));
        wait_until(machine, || count() == 1);
        let before = raise(Irql::DISPATCH_LEVEL);
        lock.with(|()| dpc.queue(&rung));
        assert_eq!(count(), 1);
        lower(before);
        assert_eq!(count(), 2);
    });
}
