//! DPCs.

use std::sync::{
    Arc, Mutex,
    atomic::{
        AtomicBool, AtomicU32, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use engine::os::Memory;
use host::{
    HostMemory, PinnedBuffer,
    machine::{Arguments, Dpc, Importance, Irql, LockName, Machine, RawSpinLock, Rule, current_irql, lower, raise},
};

use super::{Busy, Log, breaks, is_seeded, logging, low_importance_runs, on_both, wait_until};

#[test]
fn dpc_queued_twice_runs_once_with_first_arguments() {
    on_both(|machine| {
        let log = Log::default();
        let dpc = logging(machine, &log);
        let busy = Busy::new(machine, 0, is_seeded(machine));
        assert!(dpc.queue(Arguments::numbers(1, 0)));
        assert!(!dpc.queue(Arguments::numbers(2, 0)), "it is queued already");
        drop(busy);
        machine.flush();
        assert_eq!(log.taken(), [1]);
        assert!(dpc.queue(Arguments::numbers(3, 0)), "it has run");
        machine.flush();
        assert_eq!(log.taken(), [3]);
    });
}

#[test]
fn dpc_fifo() {
    on_both(|machine| {
        let log = Log::default();
        let dpcs: Vec<Dpc> = (0..20).map(|_| logging(machine, &log)).collect();
        let busy = Busy::new(machine, 0, is_seeded(machine));
        for (number, dpc) in dpcs.iter().enumerate() {
            assert!(dpc.queue(Arguments::numbers(number, 0)));
        }
        drop(busy);
        machine.flush();
        assert_eq!(log.taken(), (0..20).collect::<Vec<_>>());
        assert!(machine.statistics().processors[0].longest_queue >= 20);
    });
}

#[test]
fn high_importance_goes_first() {
    on_both(|machine| {
        let log = Log::default();
        let importances =
            [Importance::Medium, Importance::Low, Importance::MediumHigh, Importance::High, Importance::High];
        let dpcs = importances.map(|importance| {
            let dpc = logging(machine, &log);
            dpc.set_importance(importance);
            dpc
        });
        let busy = Busy::new(machine, 0, is_seeded(machine));
        for (number, dpc) in dpcs.iter().enumerate() {
            dpc.queue(Arguments::numbers(number, 0));
        }
        drop(busy);
        machine.flush();
        assert_eq!(log.taken(), [4, 3, 0, 1, 2], "each High one goes to the beginning, all others to the end");
    });
}

#[test]
fn low_importance_runs_without_being_begun() {
    on_both(low_importance_runs);
}

#[test]
fn medium_importance_on_another_processor_runs() {
    on_both(|machine| {
        machine.bind_current_thread(3);
        let log = Log::default();
        let dpc = logging(machine, &log);
        dpc.set_importance(Importance::Medium);
        dpc.queue(Arguments::numbers(1, 0));
        wait_until(machine, || log.len() == 1);
    });
}

#[test]
fn target_processor_honoured() {
    on_both(|machine| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let dpcs: Vec<Dpc> = (0..4)
            .map(|target| {
                let (seen, on) = (seen.clone(), (**machine).clone());
                let routine = move |_| seen.lock().expect("no panic").push((target, on.current_processor()));
                let dpc = Dpc::try_new(machine, "where", routine).expect("memory");
                dpc.set_target(Some(target));
                dpc
            })
            .collect();
        for _ in 0..10 {
            for dpc in &dpcs {
                assert!(dpc.queue(Arguments::NONE));
            }
            machine.flush();
        }
        let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
        assert_eq!(seen.len(), 40);
        assert!(seen.iter().all(|(target, ran_on)| target == ran_on), "{seen:?}");
    });
}

#[test]
fn without_a_target_the_call_runs_on_the_processor_that_queues() {
    on_both(|machine| {
        let (seen, on) = (Arc::new(AtomicU32::new(u32::MAX)), (**machine).clone());
        let of_dpc = seen.clone();
        let dpc =
            Dpc::try_new(machine, "where", move |_| of_dpc.store(on.current_processor(), SeqCst)).expect("memory");
        for processor in [2, 0, 3] {
            machine.bind_current_thread(processor);
            dpc.queue(Arguments::NONE);
            machine.flush();
            assert_eq!(seen.load(SeqCst), processor);
        }
    });
}

#[test]
fn dpc_runs_at_dispatch_level() {
    on_both(|machine| {
        let seen = Arc::new(Mutex::new(Irql::PASSIVE_LEVEL));
        let of_dpc = seen.clone();
        let dpc = Dpc::try_new(machine, "irql", move |_| *of_dpc.lock().expect("no panic") = current_irql());
        let dpc = dpc.expect("memory");
        dpc.queue(Arguments::NONE);
        machine.flush();
        assert_eq!(*seen.lock().expect("no panic"), Irql::DISPATCH_LEVEL);
        assert_eq!(current_irql(), Irql::PASSIVE_LEVEL);
    });
}

/// A DPC that is told of itself after it was made.
fn knowing_itself(machine: &Machine, name: &'static str, work: fn(&Dpc, usize)) -> Arc<Dpc> {
    Arc::new_cyclic(|weak: &std::sync::Weak<Dpc>| {
        let weak = weak.clone();
        let routine = move |arguments: Arguments| work(&weak.upgrade().expect("alive"), arguments.first.addr());
        Dpc::try_new(machine, name, routine).expect("memory")
    })
}

#[test]
fn a_running_dpc_can_be_queued_again() {
    on_both(|machine| {
        let dpc = knowing_itself(machine, "counting down", |dpc, left| {
            if left > 0 {
                assert!(!dpc.is_queued(), "it runs");
                assert!(dpc.queue(Arguments::numbers(left - 1, 0)));
                assert!(!dpc.queue(Arguments::numbers(7, 0)), "once only");
            }
        });
        let before = machine.statistics().dpcs_run();
        dpc.queue(Arguments::numbers(100, 0));
        wait_until(machine, || machine.statistics().dpcs_run() == before + 101);
        machine.flush();
        assert_eq!(machine.statistics().dpcs_run(), before + 101);
    });
}

#[test]
fn a_dpc_without_target_can_run_on_two_processors_at_once() {
    let machine = Machine::threads().processors(2).start();
    let inside = Arc::new(AtomicUsize::new(0));
    let of_dpc = inside.clone();
    let dpc = Dpc::try_new(&machine, "twice", move |_| {
        of_dpc.fetch_add(1, SeqCst);
        while of_dpc.load(SeqCst) < 2 {
            std::thread::yield_now();
        }
    })
    .expect("memory");
    machine.bind_current_thread(0);
    assert!(dpc.queue(Arguments::NONE));
    wait_until(&machine, || inside.load(SeqCst) == 1);
    machine.bind_current_thread(1);
    assert!(dpc.queue(Arguments::NONE), "a running call is not queued");
    machine.flush();
    assert_eq!(inside.load(SeqCst), 2);
}

#[test]
fn remove_queued_dpc() {
    on_both(|machine| {
        let log = Log::default();
        let (first, second) = (logging(machine, &log), logging(machine, &log));
        let busy = Busy::new(machine, 0, is_seeded(machine));
        assert_eq!(first.remove(), None, "it is not queued");
        first.queue(Arguments::numbers(1, 11));
        second.queue(Arguments::numbers(2, 22));
        assert_eq!(first.remove(), Some(Arguments::numbers(1, 11)));
        assert_eq!(first.remove(), None, "it was removed");
        assert!(first.queue(Arguments::numbers(3, 33)), "a removed call can be queued again");
        drop(busy);
        machine.flush();
        assert_eq!(log.taken(), [2, 3]);
    });
}

#[test]
fn a_running_dpc_cannot_be_removed() {
    on_both(|machine| {
        let dpc = knowing_itself(machine, "removing", |dpc, _| assert_eq!(dpc.remove(), None));
        dpc.queue(Arguments::NONE);
        machine.flush();
    });
}

#[test]
fn remove_and_run_exclude_each_other() {
    let machine = Machine::threads().processors(2).start();
    let log = Log::default();
    let dpc = logging(&machine, &log);
    let removed = (0..5_000).filter(|_| dpc.queue(Arguments::NONE) && dpc.remove().is_some()).count();
    machine.flush();
    let queued = log.len() + removed;
    assert!(queued <= 5_000 && !dpc.is_queued(), "each queueing ends in one run or one removal: {queued}");
    assert_eq!(machine.statistics().dpcs_run(), log.len() as u64);
}

#[test]
fn flush_waits() {
    on_both(|machine| {
        let log = Log::default();
        let dpcs: Vec<Dpc> = (0..4)
            .map(|target| {
                let dpc = logging(machine, &log);
                dpc.set_target(Some(target));
                dpc.set_importance(Importance::Low);
                dpc
            })
            .collect();
        for _ in 0..50 {
            for dpc in &dpcs {
                assert!(dpc.queue(Arguments::NONE));
            }
            machine.flush();
            assert_eq!(log.taken().len(), 4);
        }
    });
}

#[test]
fn flush_waits_for_a_call_that_runs() {
    let machine = Machine::threads().processors(1).start();
    let (begun, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begun_in_dpc, ended_in_dpc) = (begun.clone(), ended.clone());
    let dpc = Dpc::try_new(&machine, "slow", move |_| {
        begun_in_dpc.store(true, SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(20));
        ended_in_dpc.store(true, SeqCst);
    })
    .expect("memory");
    dpc.queue(Arguments::NONE);
    wait_until(&machine, || begun.load(SeqCst));
    machine.flush();
    assert!(ended.load(SeqCst));
}

#[test]
fn flush_does_not_wait_for_what_is_queued_later() {
    on_both(|machine| {
        static STOP: AtomicBool = AtomicBool::new(false);
        STOP.store(false, SeqCst);
        let dpc = knowing_itself(machine, "endless", |dpc, _| {
            if !STOP.load(SeqCst) {
                dpc.queue(Arguments::NONE);
            }
        });
        dpc.queue(Arguments::NONE);
        machine.flush();
        machine.flush();
        STOP.store(true, SeqCst);
        // The run that did not see it yet, and the one that it queued.
        machine.flush();
        machine.flush();
    });
}

#[test]
fn flush_at_dispatch_level_is_caught() {
    on_both(|machine| {
        let before = raise(Irql::DISPATCH_LEVEL);
        breaks(Rule::IrqlTooHigh, || machine.flush());
        lower(before);
    });
}

/// What a caller has written before an unsuccessful queueing, the run sees: the doorbell of the NIC depends on it.
#[test]
fn what_happened_before_an_unsuccessful_queueing_is_seen_by_the_run() {
    let machine = Machine::threads().processors(2).start();
    let (posted, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (of_dpc, seen_by_dpc) = (posted.clone(), seen.clone());
    // Relaxed: only the queue orders the two.
    let dpc = Dpc::try_new(&machine, "doorbell", move |_| seen_by_dpc.store(of_dpc.load(Relaxed), Relaxed));
    let dpc = dpc.expect("memory");
    dpc.set_target(Some(1));
    for round in 1..=100 {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        posted.fetch_add(1, Relaxed);
                        dpc.queue(Arguments::NONE);
                    }
                });
            }
        });
        machine.flush();
        assert_eq!(seen.load(Relaxed), round * 150);
    }
}

#[test]
fn dpc_freed_while_queued_is_caught() {
    on_both(|machine| {
        let log = Log::default();
        let dpc = logging(machine, &log);
        let busy = Busy::new(machine, 0, is_seeded(machine));
        dpc.queue(Arguments::NONE);
        breaks(Rule::DpcFreedWhileQueued, || drop(dpc));
        drop(busy);
    });
}

#[test]
fn dpc_queued_after_it_was_freed_is_caught() {
    on_both(|machine| {
        let dpc = logging(machine, &Log::default());
        let handle = dpc.handle();
        drop(dpc);
        breaks(Rule::DpcFreedWhileQueued, || assert!(!handle.queue(Arguments::NONE)));
    });
}

#[test]
fn a_routine_may_free_its_own_dpc() {
    on_both(|machine| {
        let slot = Arc::new(Mutex::new(None::<Dpc>));
        let of_dpc = slot.clone();
        let free = move |_| drop(of_dpc.lock().expect("no panic").take());
        let dpc = Dpc::try_new(machine, "freeing itself", free).expect("memory");
        slot.lock().expect("no panic").insert(dpc).queue(Arguments::NONE);
        machine.flush();
        assert!(slot.lock().expect("no panic").is_none());
    });
}

static LEFT_HELD: RawSpinLock = RawSpinLock::new();
const LEFT_HELD_NAME: LockName = LockName { class: "left held", instance: 0 };

#[test]
fn a_routine_that_leaves_a_lock_or_an_irql_behind_is_caught() {
    for (rule, routine) in [
        (Rule::IrqlNotRestored, (|| lower(Irql::PASSIVE_LEVEL)) as fn()),
        (Rule::LockHeld, || LEFT_HELD.acquire_at_dispatch(LEFT_HELD_NAME)),
    ] {
        let machine = Machine::threads().start();
        let dpc = Dpc::try_new(&machine, "untidy", move |_| routine()).expect("memory");
        dpc.queue(Arguments::NONE);
        wait_until(&machine, || machine.statistics().dpcs_run() == 1 && !dpc.is_queued());
        breaks(Rule::RoutinePanicked, || {
            for _ in 0..1_000 {
                machine.flush();
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        });
        let failures = machine.take_failures();
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].routine, "untidy");
        assert!(failures[0].message.contains(&rule.to_string()), "{failures:?}");
    }
}

#[test]
fn dpc_time_limit_is_watched() {
    let limit = std::time::Duration::from_millis(1);
    let machine = Machine::seeded(1).dpc_time_limit(limit).start();
    let dpc = Dpc::try_new(&machine, "long", move |_| std::thread::sleep(limit * 20)).expect("memory");
    dpc.queue(Arguments::NONE);
    breaks(Rule::DpcTooLong, || machine.flush());
    assert_eq!(machine.take_failures().len(), 1);
}

#[test]
fn dpc_byte_limit_is_watched() {
    let buffer = PinnedBuffer::new(256).expect("memory");
    // SAFETY: the chain is that of a buffer that lives as long as the test, and its bytes are only copied.
    let memory = unsafe { HostMemory::from_mdl(buffer.mdl(), 256) }.expect("contiguous");
    let memory = Arc::new(memory);
    let machine = Machine::seeded(1).dpc_byte_limit(300).start();
    let user = memory.clone();
    let dpc = Dpc::try_new(&machine, "copies", move |arguments| {
        user.write(0, &[1; 100]);
        user.copy_from(100, &user, 0, 100);
        user.read(0, &mut vec![0; arguments.first.addr()]);
    });
    let dpc = dpc.expect("memory");
    // What is copied outside of a call, or by the call before, does not count.
    for _ in 0..3 {
        memory.write(0, &[2; 256]);
        dpc.queue(Arguments::numbers(100, 0));
        machine.flush();
    }
    assert_eq!(machine.statistics().most_copied, 300);
    dpc.queue(Arguments::numbers(101, 0));
    breaks(Rule::DpcTooLong, || machine.flush());
    assert_eq!(machine.take_failures().len(), 1);
}
