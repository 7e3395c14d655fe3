//! DPCs that a thread queues to itself with no lock.

use std::{
    ptr,
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::{self, ThreadId},
    time::Duration,
};

use host::machine::{
    Arguments, Builder, Dpc, Importance, Irql, LockName, Machine, MachineRef, PlainDpc, RawSpinLock, Rule,
    current_irql, lower, raise,
};

use super::{Log, breaks, logging, wait_until};

/// Runs `test` at `DISPATCH_LEVEL`, on a thread that is what processor 0 runs. What it has queued runs before this returns.
fn raised(machine: Builder, test: impl FnOnce(&Machine)) {
    let machine = machine.start();
    let here = machine.run_on(0);
    let before = raise(Irql::DISPATCH_LEVEL);
    test(&machine);
    lower(before);
    drop(here);
    machine.shutdown();
}

fn two() -> Builder {
    Machine::threads().processors(2)
}

/// What calls of [`noting`] are about.
#[derive(Default)]
struct Notes {
    log: Log,
    threads: Mutex<Vec<ThreadId>>,
}

impl Notes {
    /// The arguments of a call that notes `number`. The notes outlive it.
    fn arguments(&self, number: usize) -> Arguments {
        Arguments { first: ptr::from_ref(self).cast_mut().cast(), second: ptr::without_provenance_mut(number) }
    }
}

/// A DPC on processor 0 that notes its second argument, and the thread.
fn noting(machine: &MachineRef) -> PlainDpc {
    plain(machine, |arguments| {
        // SAFETY: the first argument is of notes that outlive the call.
        let notes = unsafe { &*arguments.first.cast_const().cast::<Notes>() };
        assert_eq!(current_irql(), Irql::DISPATCH_LEVEL);
        notes.threads.lock().expect("no test fails under it").push(thread::current().id());
        // Last: what waits for a call looks here.
        notes.log.add(arguments.second.addr());
    })
}

fn plain(machine: &MachineRef, routine: fn(Arguments)) -> PlainDpc {
    let dpc = PlainDpc::try_new(machine, "plain", routine).expect("memory");
    dpc.set_target(Some(0));
    dpc
}

#[test]
fn a_call_runs_once_with_the_first_arguments_when_the_level_drops() {
    let notes = Notes::default();
    raised(two(), |machine| {
        let dpc = noting(machine);
        for round in 0..3 {
            assert!(dpc.queue_with(|| notes.arguments(round)));
            assert!(!dpc.queue_with(|| unreachable!("it is queued")));
            assert!(!dpc.queue_unraised_with(|| unreachable!("it is queued")));
            assert_eq!(notes.log.len(), 0);
            lower(Irql::PASSIVE_LEVEL);
            assert_eq!(notes.log.taken(), [round]);
            // Below `DISPATCH_LEVEL` it interrupts the thread at once.
            assert!(dpc.queue_with(|| notes.arguments(7)));
            assert_eq!(notes.log.taken(), [7]);
            let _ = raise(Irql::DISPATCH_LEVEL);
        }
        let own = thread::current().id();
        assert!(notes.threads.lock().expect("a list").iter().all(|&thread| thread == own));
        assert_eq!(machine.statistics().processors[0].dpcs_run, 6);
    });
}

#[test]
fn calls_run_in_the_order_of_the_queue_whoever_sees_it() {
    let notes = Notes::default();
    raised(two(), |machine| {
        let calls = [(); 4].map(|()| noting(machine));
        let others = [(); 2].map(|()| logging(machine, &notes.log));
        calls[0].queue_with(|| notes.arguments(0));
        others[0].queue(Arguments::numbers(1, 0));
        calls[1].queue_with(|| notes.arguments(2));
        thread::scope(|scope| {
            scope.spawn(|| others[1].queue(Arguments::numbers(3, 0)));
        });
        calls[2].queue_with(|| notes.arguments(4));
        lower(Irql::PASSIVE_LEVEL);
        assert_eq!(notes.log.taken(), [0, 1, 2, 3, 4]);
        let _ = raise(Irql::DISPATCH_LEVEL);
        // One that goes ahead, by another thread and by this one.
        let high = [logging(machine, &notes.log), logging(machine, &notes.log)];
        for dpc in &high {
            dpc.set_importance(Importance::High);
        }
        calls[3].set_importance(Importance::High);
        calls[0].queue_with(|| notes.arguments(5));
        calls[1].queue_with(|| notes.arguments(6));
        thread::scope(|scope| {
            scope.spawn(|| high[0].queue(Arguments::numbers(7, 0)));
        });
        calls[3].queue_with(|| notes.arguments(8));
        lower(Irql::PASSIVE_LEVEL);
        assert_eq!(notes.log.taken(), [8, 7, 5, 6]);
        let _ = raise(Irql::DISPATCH_LEVEL);
    });
}

#[test]
fn low_importance_waits_for_the_clock() {
    let notes = Notes::default();
    raised(two(), |machine| {
        let (low, next) = (noting(machine), noting(machine));
        low.set_importance(Importance::Low);
        low.queue_with(|| notes.arguments(0));
        lower(Irql::PASSIVE_LEVEL);
        wait_until(machine, || notes.log.len() == 1);
        let _ = raise(Irql::DISPATCH_LEVEL);
        // Another that is begun with takes it along.
        low.queue_with(|| notes.arguments(1));
        next.queue_with(|| notes.arguments(2));
        lower(Irql::PASSIVE_LEVEL);
        wait_until(machine, || notes.log.len() == 3);
        assert_eq!(notes.log.taken(), [0, 1, 2]);
        let _ = raise(Irql::DISPATCH_LEVEL);
    });
}

#[test]
fn any_number_of_calls_run_in_order() {
    let notes = Notes::default();
    raised(two(), |machine| {
        let calls: Vec<_> = (0..200).map(|_| noting(machine)).collect();
        for _ in 0..3 {
            for (number, dpc) in calls.iter().enumerate() {
                assert!(dpc.queue_with(|| notes.arguments(number)));
            }
            lower(Irql::PASSIVE_LEVEL);
            assert_eq!(notes.log.taken(), (0..200).collect::<Vec<_>>());
            let _ = raise(Irql::DISPATCH_LEVEL);
        }
        assert_eq!(machine.statistics().processors[0].dpcs_run, 600);
    });
}

#[test]
fn a_call_for_another_processor_goes_there() {
    let notes = Notes::default();
    raised(two(), |machine| {
        let dpc = noting(machine);
        dpc.set_target(Some(1));
        dpc.queue_with(|| notes.arguments(1));
        wait_until_raised(|| notes.log.len() == 1);
        assert_ne!(notes.threads.lock().expect("a list")[0], thread::current().id());
    });
}

/// [`wait_until`] for a thread that keeps its level.
fn wait_until_raised(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn it_may_not_be_freed_while_it_is_queued() {
    let notes = Notes::default();
    raised(two(), |machine| {
        let dpc = noting(machine);
        dpc.queue_with(|| notes.arguments(1));
        breaks(Rule::DpcFreedWhileQueued, || drop(dpc));
        lower(Irql::PASSIVE_LEVEL);
        assert_eq!(notes.log.taken(), [1], "it is lost, and still runs");
        let _ = raise(Irql::DISPATCH_LEVEL);
    });
}

#[test]
fn its_routine_may_free_it() {
    let place = Mutex::new(None::<PlainDpc>);
    raised(two(), |machine| {
        let free = |arguments: Arguments| {
            // SAFETY: the first argument is of a place that outlives the call.
            let place = unsafe { &*arguments.first.cast_const().cast::<Mutex<Option<PlainDpc>>>() };
            assert!(place.lock().expect("a place").take().is_some());
        };
        let dpc: *const PlainDpc = place.lock().expect("a place").insert(plain(machine, free));
        // SAFETY: it is in its place until the call runs, and nobody moves it.
        let dpc = unsafe { &*dpc };
        dpc.queue_with(|| Arguments { first: ptr::from_ref(&place).cast_mut().cast(), second: ptr::null_mut() });
        lower(Irql::PASSIVE_LEVEL);
        assert!(place.lock().expect("a place").is_none());
        let _ = raise(Irql::DISPATCH_LEVEL);
    });
}

#[test]
fn a_routine_that_breaks_a_rule_or_panics_is_a_failure_of_the_processor() {
    raised(two().dpc_time_limit(Duration::ZERO), |machine| {
        let bad = |routine: fn(Arguments)| {
            let dpc = plain(machine, routine);
            dpc.queue_with(|| Arguments::NONE);
            lower(Irql::PASSIVE_LEVEL);
            let failures = machine.take_failures();
            let _ = raise(Irql::DISPATCH_LEVEL);
            assert_eq!(failures.len(), 1, "{failures:?}");
            assert_eq!((failures[0].processor, failures[0].routine), (0, "plain"));
            failures[0].message.clone()
        };
        assert!(bad(|_| panic!("on purpose")).contains("on purpose"));
        assert!(bad(|_| lower(Irql::PASSIVE_LEVEL)).contains(&Rule::IrqlNotRestored.to_string()));
        assert!(bad(|_| thread::sleep(Duration::from_micros(1))).contains(&Rule::DpcTooLong.to_string()));
    });
}

#[test]
fn a_panic_leaves_the_calls_to_the_processor_in_their_order() {
    let machine = two().start();
    let notes = Notes::default();
    let calls = [(); 2].map(|()| noting(&machine));
    let other = logging(&machine, &notes.log);
    let lock = RawSpinLock::new();
    let here = machine.run_on(0);
    let before = lock.acquire(LockName { class: "a lock", instance: 0 });
    calls[0].queue_with(|| notes.arguments(0));
    calls[1].queue_with(|| notes.arguments(1));
    thread::scope(|scope| {
        scope.spawn(|| other.queue(Arguments::numbers(2, 0)));
    });
    lock.release_in_panic(before);
    // A flush that begins now waits for all of them.
    machine.flush();
    assert_eq!(notes.log.taken(), [0, 1, 2]);
    assert!(!notes.threads.lock().expect("a list").contains(&thread::current().id()));
    assert_eq!(machine.statistics().processors[0].dpcs_run, 3);
    drop(here);
    machine.shutdown();
}

#[test]
fn a_flush_waits_for_what_is_queued_and_for_nothing_later() {
    /// Queues itself until it is told to stop.
    struct Again {
        dpc: PlainDpc,
        runs: AtomicUsize,
        stop: AtomicBool,
    }
    fn again(arguments: Arguments) {
        // SAFETY: the first argument is of a value that outlives the call.
        let this = unsafe { &*arguments.first.cast_const().cast::<Again>() };
        this.runs.fetch_add(1, SeqCst);
        if !this.stop.load(SeqCst) {
            this.dpc.queue_with(|| arguments);
        }
        thread::yield_now();
    }
    let machine = two().start();
    let (raised, open) = (AtomicBool::new(false), AtomicBool::new(false));
    let this = Again { dpc: plain(&machine, again), runs: AtomicUsize::new(0), stop: AtomicBool::new(false) };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _here = machine.run_on(0);
            let before = raise(Irql::DISPATCH_LEVEL);
            this.dpc
                .queue_with(|| Arguments { first: ptr::from_ref(&this).cast_mut().cast(), second: ptr::null_mut() });
            raised.store(true, SeqCst);
            wait_until_raised(|| open.load(SeqCst));
            lower(before);
        });
        wait_until(&machine, || raised.load(SeqCst));
        scope.spawn(|| {
            (0..1000).for_each(|_| thread::yield_now());
            assert_eq!(this.runs.load(SeqCst), 0);
            open.store(true, SeqCst);
        });
        machine.flush();
        assert!(this.runs.load(SeqCst) > 0, "the call that was queued has run");
        assert!(!this.stop.swap(true, SeqCst), "the ones after it go on");
    });
    machine.flush();
    machine.shutdown();
}

#[test]
fn every_successful_queueing_is_one_run() {
    #[derive(Default)]
    struct Counts {
        inside: AtomicUsize,
        runs: AtomicUsize,
        sum: AtomicUsize,
    }
    let machine = Machine::threads().processors(1).start();
    let counts = Counts::default();
    let dpc = plain(&machine, |arguments| {
        // SAFETY: the first argument is of a value that outlives the calls.
        let counts = unsafe { &*arguments.first.cast_const().cast::<Counts>() };
        assert_eq!(counts.inside.fetch_add(1, SeqCst), 0, "one processor runs one call at a time");
        counts.runs.fetch_add(1, Relaxed);
        counts.sum.fetch_add(arguments.second.addr(), Relaxed);
        counts.inside.fetch_sub(1, SeqCst);
    });
    let (queued, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let queue = |number: usize| {
        let first = ptr::from_ref(&counts).cast_mut().cast();
        if dpc.queue_with(|| Arguments { first, second: ptr::without_provenance_mut(number) }) {
            queued.fetch_add(1, Relaxed);
            sum.fetch_add(number, Relaxed);
        }
    };
    let others = Dpc::try_new(&machine, "others", |_| ()).expect("memory");
    let (on, queue) = (&*machine, &queue);
    thread::scope(|scope| {
        for part in 0..2 {
            scope.spawn(move || {
                let _here = on.run_on(0);
                for number in 0..4000 {
                    let before = raise(Irql::DISPATCH_LEVEL);
                    queue(2 * number + part);
                    queue(number);
                    lower(before);
                    queue(number);
                }
            });
        }
        scope.spawn(|| {
            for number in 0..4000 {
                queue(number);
                others.queue(Arguments::NONE);
            }
        });
    });
    machine.flush();
    assert_eq!((counts.runs.load(SeqCst), counts.sum.load(SeqCst)), (queued.load(SeqCst), sum.load(SeqCst)));
    machine.shutdown();
}
