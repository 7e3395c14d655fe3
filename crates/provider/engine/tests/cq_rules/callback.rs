//! NDKPI 7.1.7: callbacks of one queue come one after the other, and may do everything.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use engine::{
    cq::{
        CqParameters,
        notify::ArmType::{Any, Errors, Solicited},
    },
    os::{Affinity, Os},
};
use host::{
    HostOs,
    machine::{Arguments, Dpc, Machine},
};
use ndkpi::NtStatus;
use testing::cq_fixture::{MAX_DEPTH, TestCq, on_seeds, plain, plains, solicited};

const DEPTH: u32 = 64;

//= NDKPI 7.1.7
//= bug 3
#[test]
fn an_arm_from_inside_the_callback_fires_after_it_returned() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        let rounds = Arc::new(AtomicUsize::new(0));
        let counter = rounds.clone();
        cq.on_callback(move |cq, _| {
            if counter.fetch_add(1, Relaxed) < 2 {
                // Came during the callback, so it is new.
                cq.push(&[plain(1)]);
                let before = cq.calls();
                cq.arm(Any);
                assert_eq!(cq.calls(), before, "never inside the running one");
            }
        });
        cq.arm(Any);
        cq.push(&[plain(0)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 3);
        assert_eq!(rounds.load(Relaxed), 3);
    });
}

//= NDKPI 7.1.7
#[test]
fn completions_that_come_during_a_callback_are_new() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.on_callback(|cq, _| {
            if cq.calls() == 1 {
                cq.push(&[plain(2)]);
            }
        });
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "not armed");
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 2, "the second completion is newer than the beginning of the last callback");
    });
}

#[test]
fn completions_that_a_callback_was_made_for_are_old() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.on_callback(|cq, _| cq.arm(Any));
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "arming without polling does not spin");
    });
}

#[test]
fn completions_between_the_satisfied_arm_and_the_callback_are_old() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.arm(Any);
        cq.push(&[plain(1)]);
        cq.push(&[plain(2)]);
        machine.run_until_idle();
        cq.arm(Any);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

//= NDKPI 7.1.7
//= invariant 2
#[test]
fn at_most_one_callback_waits() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.on_callback(|cq, _| {
            if cq.calls() == 1 {
                for context in 1..=5 {
                    cq.arm(Any);
                    cq.push(&[plain(context)]);
                }
            }
        });
        cq.arm(Any);
        cq.push(&[plain(0)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 2, "five arms were satisfied during the callback: one callback waited");
        cq.push(&[plain(6)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 2, "and none of the arms is left");
    });
}

#[test]
fn satisfied_arms_before_the_callback_begins_are_one_callback() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        for context in 0..5 {
            cq.arm(Any);
            cq.push(&[plain(context)]);
        }
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1);
    });
}

//= NDKPI 7.1.7
//= invariant 2
#[test]
fn callbacks_of_one_queue_do_not_overlap_on_many_processors() {
    // The fixture's client panics if they do. Preemption lets other processors in at every lock.
    for seed in 0..20 {
        let machine = Machine::seeded(seed).processors(4).preemption(30).start();
        let os = HostOs::new(&machine);
        let cq = TestCq::new(&os, DEPTH);
        cq.on_callback(|cq, _| {
            // Only the callback consumes.
            cq.arm(Any);
            cq.drain();
        });
        cq.arm(Any);
        let pushed = Arc::new(AtomicUsize::new(0));
        let dpcs: Vec<_> = (0..4)
            .map(|processor| {
                let (cq, pushed) = (cq.clone(), pushed.clone());
                let dpc = Dpc::try_new(&machine, "producer", move |_| {
                    cq.push(&[plain(pushed.fetch_add(1, Relaxed))]);
                })
                .expect("memory");
                dpc.set_target(Some(processor));
                dpc
            })
            .collect();
        for _ in 0..10 {
            for dpc in &dpcs {
                dpc.queue(Arguments::NONE);
            }
            machine.run_until_idle();
        }
        assert_eq!(pushed.load(Relaxed), 40);
        assert!(cq.calls() > 0);
        cq.close();
        drop(dpcs);
        machine.shutdown();
    }
}

//= NDKPI 7.1.7
#[test]
fn one_run_of_the_dpc_makes_a_bounded_number_of_callbacks() {
    // One processor: another DPC gets its turn although callbacks are always due.
    for seed in 0..4 {
        let machine = Machine::seeded(seed).processors(1).start();
        let os = HostOs::new(&machine);
        let cq = TestCq::new(&os, DEPTH);
        let other_ran_after = Arc::new(AtomicUsize::new(0));
        let other = {
            let (other_ran_after, cq) = (other_ran_after.clone(), cq.clone());
            Arc::new(
                Dpc::try_new(&machine, "other", move |_| other_ran_after.store(cq.calls(), Relaxed)).expect("memory"),
            )
        };
        other.set_target(Some(0));
        let other_in_callback = other.clone();
        cq.on_callback(move |cq, _| {
            if cq.calls() == 1 {
                other_in_callback.queue(Arguments::NONE);
            }
            if cq.calls() < 50 {
                cq.push(&[plain(0)]);
                cq.arm(Any);
                cq.drain();
            }
        });
        cq.arm(Any);
        cq.push(&[plain(0)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 50, "all of them came in the end");
        let waited = other_ran_after.load(Relaxed);
        assert!((1..=8).contains(&waited), "the other call waited for {waited} callbacks");
        cq.on_callback(|_, _| {});
        cq.close();
        machine.run_until_idle();
        drop(other);
        drop(cq);
        machine.shutdown();
    }
}

//= bug 3
//= invariant 4
#[test]
fn the_callback_may_poll() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        let polled = Arc::new(AtomicUsize::new(0));
        let sum = polled.clone();
        cq.on_callback(move |cq, _| {
            sum.fetch_add(cq.drain().len(), Relaxed);
            cq.arm(Any);
        });
        cq.arm(Any);
        for batch in 0..10 {
            cq.push(&plains(batch..batch + 3));
            machine.run_until_idle();
        }
        assert_eq!(polled.load(Relaxed), 30);
        assert_eq!(cq.calls(), 10);
    });
}

#[test]
fn the_callback_may_resize() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, 2);
        cq.on_callback(|cq, _| cq.resize(DEPTH).expect("memory"));
        cq.arm(Any);
        cq.push(&plains(0..2));
        machine.run_until_idle();
        cq.push(&plains(2..64));
        assert_eq!(cq.failure(), None);
        assert_eq!(cq.drain(), (0..64).collect::<Vec<_>>());
    });
}

#[test]
fn the_callback_may_moderate() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        cq.on_callback(|cq, _| {
            cq.moderate(1_000, u32::MAX).expect("a limit");
            cq.arm(Any);
        });
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "not moderated yet");
        cq.push(&[plain(2)]);
        machine.run_until_idle();
        assert_eq!(cq.calls(), 1, "moderated");
        machine.run_for(1_000);
        assert_eq!(cq.calls(), 2);
    });
}

//= NDKPI 7.1.12
#[test]
fn the_callback_may_close() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, DEPTH);
        let alive = Arc::new(AtomicBool::new(false));
        let alive_inside = alive.clone();
        cq.on_callback(move |cq, _| {
            cq.push(&[plain(2)]);
            cq.arm(Any);
            cq.close();
            alive_inside.store(!cq.is_gone(), Relaxed);
        });
        cq.arm(Any);
        cq.push(&[plain(1)]);
        machine.run_until_idle();
        assert!(alive.load(Relaxed), "the client lives as long as it is called");
        assert!(cq.is_gone(), "and not longer");
        assert_eq!(cq.calls(), 1, "what became due inside does not begin");
    });
}

//= bug 9
#[test]
fn callbacks_run_on_the_processor_of_the_affinity() {
    for seed in 0..4 {
        let machine = Machine::seeded(seed).processors(8).start();
        let os = HostOs::new(&machine);
        for wanted in 0..8 {
            let processor = os.processor_for(Affinity { group: 0, mask: 1 << wanted }).expect("it is there");
            let cq =
                TestCq::with(&os, CqParameters { depth: DEPTH, max_depth: MAX_DEPTH, processor }, 0).expect("memory");
            machine.bind_current_thread((wanted + 3) % 8);
            cq.moderate(100, 8).expect("a limit");
            cq.arm(Any);
            cq.push(&[plain(0)]);
            machine.run_for(1_000);
            cq.arm(Solicited);
            cq.push(&[solicited(1); 8]);
            machine.run_until_idle();
            cq.push(&[plain(2)]);
            cq.arm(Any);
            machine.run_until_idle();
            cq.arm(Errors);
            cq.fail(engine::cq::notify::CqFailure::Fatal);
            machine.run_until_idle();
            let calls = cq.take_calls();
            assert_eq!(calls.len(), 4, "by the timer, by the count, at once and by the failure");
            assert!(calls.iter().all(|call| call.processor == wanted), "wanted {wanted}: {calls:?}");
            assert_eq!(calls[3].status, NtStatus::INTERNAL_ERROR);
        }
        machine.shutdown();
    }
}

#[test]
fn an_affinity_without_a_processor_of_the_machine_names_none() {
    let machine = Machine::seeded(0).processors(2).start();
    let os = HostOs::new(&machine);
    assert_eq!(os.processor_for(Affinity { group: 0, mask: 0b100 }), None);
    assert_eq!(os.processor_for(Affinity { group: 1, mask: 0b1 }), None);
    machine.shutdown();
}
