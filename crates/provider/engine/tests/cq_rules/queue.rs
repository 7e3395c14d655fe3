//! NDKPI 7.1.1, 7.1.8 and 7.1.9: the queue itself.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use engine::cq::{CqParameters, Cqe, CqeOutcome, Received, notify::ArmType::Any, notify::CqFailure};
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;
use testing::{
    allocation,
    cq_fixture::{MAX_DEPTH, OPERATIONS, TestCq, failed, on_seeds, plain, plains},
};

const fn parameters(depth: u32, max_depth: u32) -> CqParameters {
    CqParameters { depth, max_depth, processor: 0 }
}

//= NDKPI 7.1.1
#[test]
fn a_depth_of_zero_is_an_invalid_parameter() {
    on_seeds(|_, os| {
        let error = TestCq::with(os, parameters(0, MAX_DEPTH), 0).expect_err("no queue");
        assert_eq!(error, NtStatus::INVALID_PARAMETER);
    });
}

#[test]
fn a_depth_above_the_adapters_limit_is_an_invalid_parameter() {
    on_seeds(|_, os| {
        for depth in [17, 18, u32::MAX] {
            let error = TestCq::with(os, parameters(depth, 16), 0).expect_err("no queue");
            assert_eq!(error, NtStatus::INVALID_PARAMETER);
        }
    });
}

//= NDKPI 7.1.1
#[test]
fn depths_from_one_to_the_adapters_limit_are_good() {
    on_seeds(|_, os| {
        for depth in [1, 2, 3, 1_000, MAX_DEPTH - 1, MAX_DEPTH] {
            let cq = TestCq::with(os, parameters(depth, MAX_DEPTH), 0).expect("a queue");
            cq.push(&plains(0..depth as usize));
            assert_eq!(cq.failure(), None);
            assert_eq!(cq.drain().len(), depth as usize);
        }
    });
}

//= NDKPI 7.1.1
#[test]
fn the_depth_counts_completions_exactly_also_after_some_were_taken() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 5);
        let mut next = 0;
        cq.push(&plains(0..5));
        for taken in [1, 2, 5, 3, 4] {
            assert_eq!(cq.poll(taken), (next..next + taken).collect::<Vec<_>>());
            cq.push(&plains(next + 5..next + 5 + taken));
            next += taken;
            assert_eq!(cq.failure(), None);
        }
        cq.push(&[plain(0)]);
        assert_eq!(cq.failure(), Some(CqFailure::Overrun));
    });
}

//= NDKPI 7.1.8
#[test]
fn a_poll_for_none_takes_none() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 8);
        assert_eq!(cq.poll(0), [0; 0]);
        cq.push(&plains(0..3));
        assert_eq!(cq.poll(0), [0; 0]);
        assert_eq!(cq.drain(), [0, 1, 2]);
    });
}

#[test]
fn a_poll_of_an_empty_queue_takes_none() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 8);
        assert_eq!(cq.poll(8), [0; 0]);
        cq.push(&[plain(1)]);
        assert_eq!(cq.drain(), [1]);
        assert_eq!(cq.poll(1), [0; 0]);
    });
}

#[test]
fn a_poll_takes_no_more_than_asked_for() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 8);
        cq.push(&plains(0..8));
        assert_eq!(cq.poll(3), [0, 1, 2]);
        assert_eq!(cq.poll(1), [3]);
        assert_eq!(cq.poll(100), [4, 5, 6, 7], "fewer than asked for: drained");
    });
}

//= NDKPI 7.1.8
#[test]
fn completions_come_in_the_order_in_which_they_were_queued() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 7);
        let mut pushed = 0;
        let mut polled = 0;
        for round in 0..500 {
            let batch = round % 5;
            cq.push(&plains(pushed..pushed + batch));
            pushed += batch;
            let taken = cq.poll(4);
            assert_eq!(taken, (polled..polled + taken.len()).collect::<Vec<_>>());
            polled += taken.len();
            if pushed - polled > 3 {
                polled += cq.drain().len();
            }
        }
        assert_eq!(cq.failure(), None);
    });
}

//= NDKPI 7.1.9
#[test]
fn a_completion_keeps_all_its_fields() {
    on_seeds(|_, os| {
        let cq = TestCq::new(os, 16);
        let completions = OPERATIONS.map(|operation| Cqe {
            qp_context: usize::MAX,
            outcome: CqeOutcome::new(operation, NtStatus::IO_TIMEOUT).soliciting(true),
            request_context: usize::MAX - 1,
            received: Received::new(u32::MAX, 0xDEAD_BEEF),
        });
        cq.push(&completions);
        assert_eq!(cq.poll_entries(usize::MAX), completions, "together");
        for completion in completions {
            for outcome in [completion.outcome, completion.outcome.soliciting(false), plain(0).outcome] {
                let completion = Cqe { outcome, ..completion };
                cq.push(&[completion]);
                assert_eq!(cq.poll_entries(usize::MAX), [completion], "alone");
            }
        }
    });
}

#[test]
fn a_completion_can_be_read_in_the_message_of_a_failure() {
    let outcome = CqeOutcome::new(OPERATIONS[1], NtStatus::CANCELLED).soliciting(true);
    let text = format!("{outcome:?}, {:?}", Received::new(8, 5));
    let (operation, status) = (outcome.operation(), outcome.status());
    assert_eq!(
        text,
        format!(
            "CqeOutcome {{ operation: {operation:?}, status: {status:?}, is_solicited: true, cause: None }}, \
             Received {{ bytes: 8, invalidated_token: 5 }}"
        )
    );
}

#[test]
fn an_outcome_says_what_it_was_made_of() {
    for operation in OPERATIONS {
        for status in [0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xC000_00B5, 0xFFFF_FFFF].map(NtStatus::from_bits) {
            let plain = CqeOutcome::new(operation, status);
            let solicited = plain.soliciting(true);
            for outcome in [plain, solicited] {
                assert_eq!((outcome.operation(), outcome.status()), (operation, status));
            }
            assert_eq!((plain.is_solicited(), solicited.is_solicited()), (false, true));
            assert_eq!((plain.soliciting(false), solicited.soliciting(false)), (plain, plain));
        }
    }
}

#[test]
fn failed_requests_are_noted_whether_armed_or_not_and_in_batches_too() {
    on_seeds(|machine, os| {
        for armed in [false, true] {
            let cq = TestCq::new(os, 16);
            if armed {
                cq.arm(Any);
            }
            assert_eq!(cq.cq().observe().newest_failed, 0);
            cq.push(&[plain(1), failed(2), plain(3)]);
            assert_eq!(cq.cq().observe().newest_failed, 2, "armed: {armed}");
            cq.push(&[failed(4)]);
            let observation = cq.cq().observe();
            assert_eq!((observation.newest_failed, observation.view.newest), (4, 4));
            machine.run_until_idle();
        }
    });
}

//= bug 5
#[test]
fn running_numbers_wrap_around() {
    on_seeds(|machine, os| {
        for first in [u64::MAX, u64::MAX - 1, u64::MAX - 7, i64::MAX as u64 - 3] {
            let cq = TestCq::with(os, parameters(5, MAX_DEPTH), first).expect("a queue");
            for round in 0..8 {
                cq.arm(Any);
                machine.run_until_idle();
                assert_eq!(cq.calls(), 0, "nothing new, from {first}");
                cq.push(&plains(round..round + 3));
                machine.run_until_idle();
                assert_eq!(cq.take_calls().len(), 1);
                cq.arm(Any);
                machine.run_until_idle();
                assert_eq!(cq.calls(), 0, "the *may* case, from {first}");
                cq.push(&[failed(round + 3)]);
                machine.run_until_idle();
                assert_eq!(cq.take_calls().len(), 1);
                assert_eq!(cq.drain(), (round..round + 4).collect::<Vec<_>>());
            }
            cq.push(&plains(0..5));
            assert_eq!(cq.failure(), None);
            cq.push(&[plain(5)]);
            assert_eq!(cq.failure(), Some(CqFailure::Overrun), "the depth is exact across the wrap-around");
            assert_eq!(cq.drain(), [0, 1, 2, 3, 4]);
        }
    });
}

//= NDKPI 7.1.2
#[test]
fn several_producers_may_use_one_queue() {
    // Preemption lets the producers in at each other's locks.
    for seed in 0..10 {
        let machine = Machine::seeded(seed).processors(4).preemption(50).start();
        let os = HostOs::new(&machine);
        let cq = TestCq::new(&os, 512);
        let done = Arc::new(AtomicUsize::new(0));
        let dpcs: Vec<_> = (0..4)
            .map(|processor| {
                let (cq, done) = (cq.clone(), done.clone());
                let dpc = host::machine::Dpc::try_new(&machine, "producer", move |_| {
                    for number in 0..100 {
                        cq.push(&[plain(processor * 1_000 + number)]);
                    }
                    done.fetch_add(1, Relaxed);
                })
                .expect("memory");
                dpc.set_target(u32::try_from(processor).ok());
                dpc.queue(host::machine::Arguments::NONE);
                dpc
            })
            .collect();
        machine.run_until_idle();
        assert_eq!(done.load(Relaxed), 4);
        let taken = cq.drain();
        assert_eq!(taken.len(), 400);
        for producer in 0..4 {
            let of_one: Vec<_> = taken.iter().filter(|&&context| context / 1_000 == producer).collect();
            assert_eq!(of_one.len(), 100);
            assert!(of_one.is_sorted(), "the order of one producer is kept");
        }
        drop(dpcs);
        drop(cq);
        machine.shutdown();
    }
}

//= NDKPI 7.1.2
#[test]
fn nothing_allocates_between_create_and_close() {
    on_seeds(|machine, os| {
        let cq = TestCq::new(os, 64);
        let completions = plains(0..32);
        cq.moderate(10, 4).expect("a limit");
        let (engine, mut taken) = (cq.cq(), 0);
        let count = allocation::count(|| {
            for _ in 0..4 {
                cq.consume(|consumer| consumer.arm(Any));
                engine::cq::Cq::push_all(&engine, || &completions);
                taken += cq.consume(|consumer| consumer.poll(64, |_| {}));
            }
        });
        assert_eq!(taken, 128);
        assert_eq!(count, 0, "allocations on the data path");
        machine.run_for(100);
    });
}

#[test]
fn a_queue_that_cannot_be_made_leaves_nothing_behind() {
    on_seeds(|machine, os| {
        let before = machine.creations();
        drop(TestCq::new(os, 8));
        let creations = machine.creations() - before;
        assert!(creations >= 3, "a lock, a DPC and a timer");
        for nth in 1..=creations {
            machine.fail_creation(nth);
            let error = TestCq::with(os, parameters(8, MAX_DEPTH), 0).expect_err("one creation fails");
            assert_eq!(error, NtStatus::INSUFFICIENT_RESOURCES);
        }
        machine.fail_creation(0);
        drop(TestCq::new(os, 8));
        assert_eq!(machine.leaks(), None);
    });
}

#[test]
fn a_queue_without_memory_is_insufficient_resources() {
    on_seeds(|_, os| {
        for nth in 0..100 {
            let made = allocation::fail_nth(nth, || {
                let client = Nobody;
                engine::cq::Cq::try_new(os, parameters(64, MAX_DEPTH), client).map(drop)
            });
            match made {
                (Err(status), _) => assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES, "allocation {nth}"),
                (Ok(()), failed) => {
                    assert!(!failed, "allocation {nth} failed and nobody noticed");
                    assert!(nth > 4, "segment, slots, indices, queue");
                    return;
                }
            }
        }
        panic!("it never succeeds");
    });
}

struct Nobody;

impl engine::cq::CqClient for Nobody {
    fn notify(&self, _: NtStatus) {}

    fn failed(&self, _: CqFailure) {}
}
