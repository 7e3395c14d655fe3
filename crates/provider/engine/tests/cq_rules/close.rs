//! NDKPI 7.1.12: nothing is called after the close, and what runs keeps the queue. That the close of an `NDK_CQ` pends until
//! the client is dropped is the provider's part.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use engine::cq::notify::{ArmType::Any, CqFailure};
use host::{HostOs, machine::Machine};
use testing::cq_fixture::{TestCq, on_seeds, plain};

const DEPTH: u32 = 8;

#[test]
fn a_closed_queue_is_gone() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.push(&[plain(1)]);
        cq.close();
        assert!(cq.is_gone());
        machine.run_until_idle();
    });
}

//= NDKPI 7.1.12
//= bug 1
#[test]
fn a_due_callback_does_not_begin_after_the_close() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1)]);
        // The DPC is queued and holds the queue.
        cq.close();
        assert!(!cq.is_gone(), "the DPC refers to it");
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0);
        assert!(cq.is_gone());
    });
}

#[test]
fn a_callback_that_moderation_holds_back_does_not_begin_after_the_close() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(100, 8).expect("a limit");
        cq.arm(Any);
        cq.push(&[plain(1)]);
        cq.close();
        assert!(cq.is_gone(), "the timer was cancelled: the close does not wait for it");
        assert_eq!(machine.leaks(), None);
        machine.run_for(1_000);
        assert_eq!(cq.calls(), 0);
    });
}

//= NDKPI 7.9.4
#[test]
fn a_timer_that_has_expired_does_not_call_back_after_the_close() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.moderate(100, 8).expect("a limit");
        cq.arm(Any);
        cq.push(&[plain(1)]);
        while machine.leaks().is_some_and(|leaks| leaks.contains("timer")) {
            assert!(machine.step(), "the timer expires");
        }
        let pending = cq.calls() == 0;
        cq.close();
        machine.run_until_idle();
        assert!(cq.is_gone());
        assert!(pending && cq.calls() == 0, "the expiry was on its way when the queue was closed");
    });
}

//= NDKPI 7.1.12
#[test]
fn a_completion_after_the_close_calls_nobody() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        // A producer: a queue pair that is still open.
        let producer = cq.cq();
        cq.close();
        engine::cq::Cq::push(&producer, plain(1));
        engine::cq::Cq::fail(&producer, CqFailure::Fatal);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 0);
        assert!(!cq.is_gone(), "the producer keeps it");
        drop(producer);
        machine.run_until_idle();
        assert!(cq.is_gone());
    });
}

//= NDKPI 7.1.12
//= bug 1
#[test]
fn the_queue_lives_until_a_running_callback_has_returned() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        let alive = Arc::new(AtomicBool::new(false));
        let alive_inside = alive.clone();
        cq.on_callback(move |cq, _| {
            cq.close();
            alive_inside.store(!cq.is_gone(), Relaxed);
        });
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_until_idle();
        assert!(alive.load(Relaxed));
        assert!(cq.is_gone());
    });
}

#[test]
fn a_close_while_the_callback_runs_on_another_processor_lets_it_finish() {
    for seed in 0..8 {
        let machine = Machine::threads().processors(2).start();
        let os = HostOs::new(&machine);
        let cq = TestCq::new(&os, DEPTH);
        let (begun, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (begun_inside, go_on_inside) = (begun.clone(), go_on.clone());
        cq.on_callback(move |cq, _| {
            begun_inside.store(true, Relaxed);
            while !go_on_inside.load(Relaxed) {
                std::thread::yield_now();
            }
            assert!(!cq.is_gone(), "the client is in use");
        });
        cq.arm(Any);
        cq.push(&[plain(seed)]);
        while !begun.load(Relaxed) {
            machine.yield_now();
        }
        cq.close();
        assert!(!cq.is_gone(), "the callback runs");
        go_on.store(true, Relaxed);
        machine.flush();
        assert!(cq.is_gone());
        assert_eq!(cq.calls(), 1);
        machine.shutdown();
    }
}
