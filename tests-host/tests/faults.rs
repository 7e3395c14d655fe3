//! Faults that completion queues of other systems have shipped with, each as a test that this one does not have it.
//!
//! The histories are public: Linux soft-RoCE (rxe) and siw, libfabric, UCX, SPDK and their users. Each test says what went
//! wrong there. On the seeded machine with pre-emption other processors get in between at every lock, differently for each
//! seed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use engine::{
    cq::{
        CqParameters,
        notify::{
            ArmType::{Any, Errors, Solicited},
            CqFailure,
        },
    },
    nic::NicMode,
    os::{Affinity, Os},
    qp::Qp,
};
use host::{
    HostOs,
    machine::{Arguments, Dpc, Machine, locks_held},
};
use ndkpi::NtStatus;
use testing::{
    cq_fixture::{MAX_DEPTH, TestCq, failed, plain, plains, solicited},
    qp_fixture::{Net, PARAMETERS, PLAIN, SEND, all},
};

/// Runs `test` on machines of four processors that get in between at every lock.
fn on_busy_machines(seeds: u64, test: impl Fn(&Machine, &HostOs)) {
    for seed in 0..seeds {
        let machine = Machine::seeded(seed).processors(4).preemption(40).start();
        test(&machine, &HostOs::new(&machine));
        machine.run_until_idle();
        machine.shutdown();
    }
}

/// A DPC on `processor` that does `work` when the machine comes to it.
fn on_processor(machine: &Machine, processor: u32, work: impl Fn() + Send + Sync + 'static) -> Dpc {
    let dpc = Dpc::try_new(machine, "test", move |_| work()).expect("memory");
    dpc.set_target(Some(processor));
    dpc.queue(Arguments::NONE);
    dpc
}

/// rxe, first design: the notification ran from a deferred tasklet, and the queue could be destroyed before it ran.
#[test]
fn a_queue_is_not_destroyed_under_its_deferred_notification() {
    on_busy_machines(100, |machine, os| {
        let cq = TestCq::new(os, 8);
        cq.arm(Any);
        let producer = cq.cq();
        let dpc = on_processor(machine, 1, move || engine::cq::Cq::push(&producer, plain(1)));
        cq.close();
        let before = cq.calls();
        machine.run_until_idle();
        assert_eq!(cq.calls(), before, "a callback after the close");
        drop(dpc);
        assert!(cq.is_gone(), "the close waits for the DPC, and for nothing else");
    });
}

/// rxe, second design: the callback was made inline, the arm was read and cleared without protection; the handler was entered
/// again from inside, and events were lost.
#[test]
fn an_arm_is_cleared_in_one_step_with_the_decision_and_handlers_are_not_entered_twice() {
    on_busy_machines(100, |machine, os| {
        let cq = TestCq::new(os, 64);
        // The fixture panics if a callback begins inside another.
        cq.on_callback(|cq, _| {
            cq.push(&[plain(0)]);
            if cq.calls() < 5 {
                cq.arm(Any);
            }
        });
        cq.arm(Any);
        let producers: Vec<_> = (0..4)
            .map(|processor| {
                let cq = cq.clone();
                on_processor(machine, processor, move || cq.push(&[plain(1)]))
            })
            .collect();
        machine.run_until_idle();
        assert_eq!(cq.calls(), 5, "each arm is answered once: a completion comes after every one of them");
        drop(producers);
    });
}

/// rxe, third design: the callback was moved inside the queue's spin lock, and a handler that arms or polls deadlocked.
#[test]
fn no_lock_is_held_in_a_callback_so_it_may_call_everything() {
    on_busy_machines(20, |machine, os| {
        let cq = TestCq::new(os, 64);
        let reached = Arc::new(AtomicBool::new(false));
        let flag = reached.clone();
        cq.on_callback(move |cq, _| {
            assert_eq!(locks_held(), 0);
            cq.drain();
            cq.arm(Any);
            cq.resize(128).expect("memory");
            cq.moderate(10, 2).expect("a limit");
            cq.push(&[plain(2)]);
            cq.poll(1);
            cq.fail(CqFailure::Fatal);
            cq.close();
            flag.store(true, Relaxed);
        });
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_until_idle();
        assert!(reached.load(Relaxed), "a deadlock would have been a panic of the machine");
        assert!(cq.is_gone());
    });
}

/// siw: arming SOLICITED after ANY overwrote it.
#[test]
fn a_weaker_arm_does_not_overwrite_a_stronger_one() {
    on_busy_machines(4, |machine, os| {
        for weaker in [Solicited, Errors] {
            let cq = TestCq::new(os, 8);
            cq.arm(Any);
            cq.arm(weaker);
            cq.push(&[plain(1)]);
            machine.run_until_idle();
            assert_eq!(cq.calls(), 1, "ANY, then {weaker:?}");
        }
    });
}

/// rxe users: the consumer's index passed the producer's after a resize or an overrun.
#[test]
fn the_consumer_does_not_pass_the_producer_after_a_resize_or_an_overrun() {
    for back in 0..20 {
        let machine = Machine::seeded(back).start();
        let os = HostOs::new(&machine);
        let parameters = CqParameters { depth: 4, max_depth: MAX_DEPTH, processor: 0 };
        let cq = TestCq::with(&os, parameters, u64::MAX - back).expect("a queue");
        let (mut pushed, mut polled) = (0, 0);
        for depth in [4, 16, 5, 8, 3, 64, 4] {
            cq.resize(depth).expect("it is empty");
            while pushed - polled < depth as usize {
                cq.push(&[plain(pushed)]);
                pushed += 1;
            }
            assert_eq!(cq.poll(2), [polled, polled + 1]);
            cq.push(&plains(pushed..pushed + 2));
            let taken = cq.drain();
            assert_eq!(taken, (polled + 2..pushed + 2).collect::<Vec<_>>(), "depth {depth}");
            (pushed, polled) = (pushed + 2, pushed + 2);
            assert_eq!(cq.drain(), [0; 0]);
        }
        cq.push(&plains(0..9));
        assert_eq!(cq.drain(), [0, 1, 2, 3], "what overran is not there");
        cq.push(&[plain(9)]);
        assert_eq!(cq.drain(), [0; 0]);
        drop(cq);
        machine.run_until_idle();
        machine.shutdown();
    }
}

/// Consumers of libfabric, brpc, UCX and MANA: a completion that came between "drained" and "armed" woke nobody.
#[test]
fn no_wake_up_is_lost_between_drained_and_armed() {
    let woken = AtomicUsize::new(0);
    on_busy_machines(500, |machine, os| {
        let cq = TestCq::new(os, 8);
        let producer = cq.cq();
        let dpc = on_processor(machine, 2, move || engine::cq::Cq::push(&producer, plain(1)));
        let drained = cq.drain().len();
        machine.preempt();
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1 - drained, "exactly one wake-up, unless the completion was seen before the arm");
        woken.fetch_add(cq.calls(), Relaxed);
        drop(dpc);
    });
    let woken = woken.into_inner();
    assert!((50..=490).contains(&woken), "{woken} of 500: the race was not tried");
}

/// Several providers: an overrun dropped or damaged completions in silence.
#[test]
fn an_overrun_is_not_silent() {
    on_busy_machines(10, |machine, os| {
        let net = Net::new(machine, NicMode::Deferred);
        let small = TestCq::new(os, 3);
        let a = net.qp_on(PARAMETERS, &small, &net.cq(64), 4_096);
        let b = net.qp(PARAMETERS);
        Qp::link(a.qp(), b.qp()).expect("both are new");
        for context in 0..8 {
            b.receive(context, 8);
        }
        small.arm(Errors);
        for context in 0..8 {
            // Refused once the queue pair has failed.
            let _ = a.post(context, SEND, PLAIN, &[a.sge(0, 8)]);
        }
        machine.run_until_idle();
        assert_eq!(small.failure(), Some(CqFailure::Overrun), "it stays");
        assert_eq!(small.failures(), [CqFailure::Overrun], "it is counted once");
        assert_eq!(small.take_statuses(), [NtStatus::BUFFER_OVERFLOW], "it is told once");
        assert_eq!(a.sent(), all(0..3, NtStatus::SUCCESS), "what was there is undamaged");
        assert!(a.qp().is_dead(), "its queue pairs fail");
        assert_eq!(a.post(9, SEND, PLAIN, &[]), Err(NtStatus::CONNECTION_INVALID));
    });
}

/// SPDK and others: a resize was not supported, or lost completions.
#[test]
fn a_resize_under_full_load_loses_and_reorders_nothing() {
    on_busy_machines(50, |machine, os| {
        let cq = TestCq::new(os, 40);
        let next = Arc::new(AtomicUsize::new(0));
        let (producer, counter) = (cq.cq(), next.clone());
        // Each run pushes some completions at moments of its own.
        let dpc = Dpc::try_new(machine, "producer", move |_| {
            for _ in 0..4 {
                engine::cq::Cq::push(&producer, plain(counter.fetch_add(1, Relaxed)));
            }
        })
        .expect("memory");
        dpc.set_target(Some(3));
        let mut taken = Vec::new();
        for depth in [40, 1_000, 41, 64, 40, 2_048, 333, 40, 100, 40] {
            dpc.queue(Arguments::NONE);
            cq.resize(depth).expect("no more than 40 are outstanding");
            taken.extend(cq.poll(3));
            machine.preempt();
        }
        machine.run_until_idle();
        taken.extend(cq.drain());
        assert_eq!(cq.failure(), None);
        assert_eq!(taken, (0..next.load(Relaxed)).collect::<Vec<_>>());
        drop(dpc);
    });
}

/// Consumers of notification affinity: callbacks came on the wrong processor.
#[test]
fn callbacks_come_on_the_processor_that_was_asked_for() {
    on_busy_machines(10, |machine, os| {
        for wanted in 0..4 {
            let processor = os.processor_for(Affinity { group: 0, mask: 1 << wanted }).expect("it is there");
            let parameters = CqParameters { depth: 64, max_depth: MAX_DEPTH, processor };
            let cq = TestCq::with(os, parameters, 0).expect("memory");
            for from in 0..4 {
                cq.arm(Solicited);
                let producer = cq.cq();
                let completion = if from % 2 == 0 { solicited(1) } else { failed(1) };
                let dpc = on_processor(machine, from, move || engine::cq::Cq::push(&producer, completion));
                machine.run_until_idle();
                drop(dpc);
            }
            let calls = cq.take_calls();
            assert_eq!(calls.len(), 4);
            assert!(calls.iter().all(|call| call.processor == wanted), "wanted {wanted}: {calls:?}");
        }
    });
}
