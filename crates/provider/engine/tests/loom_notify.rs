//! Every interleaving of arms, pushes, callbacks, timers and closes of one completion queue, checked by loom.
//!
//! What is checked besides data races: no wake-up is lost (an armed queue with a new completion that nobody took is not a
//! final state), callbacks do not overlap, none comes without an arm, none after the close.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p engine --test loom_notify --target-dir target/loom
//! ```

#![cfg(loom)]

mod loom_os;

use engine::cq::{
    Cq, CqClient, CqConsumer, CqParameters, Cqe, CqeOutcome, Operation, Received,
    notify::{
        ArmType::{Any, Solicited},
        CqFailure,
    },
};
use loom::{
    cell::UnsafeCell,
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};
use loom_os::{LoomOs, interleavings};
use ntstatus::NtStatus;

/// Runs `test` in every interleaving with at most so many pre-emptions.
fn model(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    let count = interleavings(&builder, test);
    assert!(count > 10, "loom has found only {count} interleavings");
}

const fn entry(context: usize) -> Cqe {
    Cqe {
        qp_context: 0,
        outcome: CqeOutcome::new(Operation::Receive, NtStatus::SUCCESS).soliciting(true),
        request_context: context,
        received: Received::new(0, 0),
    }
}

/// What the consumer has seen.
#[derive(Default)]
struct Seen {
    /// Begun callbacks.
    calls: AtomicUsize,
    /// Of these, with a failure.
    failures: AtomicUsize,
    /// Completions taken.
    taken: AtomicUsize,
    /// The client is gone.
    gone: AtomicBool,
}

/// The consumer's end, which only one thread uses at a time: loom sees to it.
struct Consumer(UnsafeCell<Option<CqConsumer<LoomOs>>>);

// SAFETY: loom checks that the accesses do not overlap, and that each happens after the one before.
unsafe impl Send for Consumer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Consumer {}

impl Consumer {
    fn with<U>(&self, work: impl FnOnce(&mut CqConsumer<LoomOs>) -> U) -> Option<U> {
        self.0.with_mut(|consumer| {
            // SAFETY: see the type.
            let consumer = unsafe { &mut *consumer };
            consumer.as_mut().map(work)
        })
    }
}

/// A consumer that drains and arms in its callback, or does nothing there.
struct Client {
    seen: Arc<Seen>,
    consumer: Option<Arc<Consumer>>,
    /// Two callbacks at the same time would both write.
    serial: UnsafeCell<()>,
}

// SAFETY: loom checks that the accesses to `serial` do not overlap.
unsafe impl Send for Client {}
// SAFETY: as for `Send`.
unsafe impl Sync for Client {}

impl CqClient for Client {
    fn notify(&self, status: NtStatus) {
        self.serial.with_mut(|_| {
            assert!(!self.seen.gone.load(SeqCst), "called after the end");
            self.seen.calls.fetch_add(1, SeqCst);
            if !status.is_success() {
                self.seen.failures.fetch_add(1, SeqCst);
            }
            if let Some(consumer) = &self.consumer {
                consumer.with(|consumer| {
                    self.seen.taken.fetch_add(consumer.poll(usize::MAX, |_| {}), SeqCst);
                    consumer.arm(Any);
                });
            }
        });
    }

    fn failed(&self, _: CqFailure) {}
}

impl Drop for Client {
    fn drop(&mut self) {
        self.serial.with_mut(|_| self.seen.gone.store(true, SeqCst));
    }
}

const fn parameters(depth: u32) -> CqParameters {
    CqParameters { depth, max_depth: 16, processor: 0 }
}

/// A queue whose callback does nothing.
fn quiet(os: &LoomOs, depth: u32) -> (fallible::Arc<Cq<LoomOs>>, CqConsumer<LoomOs>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let client = Client { seen: seen.clone(), consumer: None, serial: UnsafeCell::new(()) };
    let (cq, consumer) = Cq::try_new(os, parameters(depth), client).expect("memory");
    (cq, consumer, seen)
}

/// A queue whose callback drains and arms again. The consumer's end is in the second value.
fn busy(os: &LoomOs, depth: u32, first: u64) -> (fallible::Arc<Cq<LoomOs>>, Arc<Consumer>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let place = Arc::new(Consumer(UnsafeCell::new(None)));
    let client = Client { seen: seen.clone(), consumer: Some(place.clone()), serial: UnsafeCell::new(()) };
    let (cq, consumer) = Cq::try_new_at(os, parameters(depth), client, first).expect("memory");
    place.0.with_mut(|place| {
        // SAFETY: nobody else has the queue yet.
        unsafe { *place = Some(consumer) };
    });
    (cq, place, seen)
}

/// Ends a queue that [`busy`] made: breaks the circle of references.
fn end(os: &LoomOs, cq: &fallible::Arc<Cq<LoomOs>>, place: &Consumer) {
    cq.close();
    os.run_all();
    let consumer = place.0.with_mut(|place| {
        // SAFETY: no DPC is left, so nobody else uses the consumer's end.
        unsafe { (*place).take() }
    });
    drop(consumer);
}

#[test]
fn an_arm_and_a_push_do_not_miss_each_other() {
    model(9, || {
        let os = LoomOs::new();
        let (cq, mut consumer, seen) = quiet(&os, 2);
        let producer = {
            let cq = cq.clone();
            thread::spawn(move || Cq::push(&cq, entry(0)))
        };
        // Drained, so arm and sleep: the classical place to lose a wake-up.
        let taken = consumer.poll(2, |_| {});
        consumer.arm(Any);
        producer.join().expect("no panic");
        os.run_all();
        let calls = seen.calls.load(SeqCst);
        assert_eq!(calls, usize::from(taken == 0), "one wake-up, unless the completion was taken before the arm");
        assert_eq!(consumer.poll(2, |_| {}), 1 - taken);
        cq.close();
    });
}

//= bug 2
#[test]
fn two_producers_and_two_arms_do_not_miss_each_other() {
    model(4, || {
        let os = LoomOs::new();
        let (cq, mut consumer, seen) = quiet(&os, 4);
        let producers: Vec<_> = (0..2)
            .map(|context| {
                let cq = cq.clone();
                thread::spawn(move || Cq::push(&cq, entry(context)))
            })
            .collect();
        consumer.arm(Solicited);
        let taken = consumer.poll(4, |_| {});
        os.run_one();
        consumer.arm(Any);
        for producer in producers {
            producer.join().expect("no panic");
        }
        os.run_all();
        let calls = seen.calls.load(SeqCst);
        assert!((1..=2).contains(&calls), "{calls} callbacks for two arms");
        assert_eq!(taken + consumer.poll(4, |_| {}), 2);
        cq.close();
    });
}

//= NDKPI 7.1.7
//= bug 6
#[test]
fn a_consumer_that_drains_and_arms_in_its_callback_gets_everything() {
    model(4, || {
        let os = LoomOs::new();
        let (cq, place, seen) = busy(&os, 4, u64::MAX - 1);
        place.with(|consumer| consumer.arm(Any));
        let producer = {
            let cq = cq.clone();
            thread::spawn(move || {
                Cq::push(&cq, entry(0));
                Cq::push(&cq, entry(1));
            })
        };
        // Two processors: loom sees it if their callbacks overlap.
        let processor = {
            let os = os.clone();
            thread::spawn(move || {
                os.run_one();
                os.run_one();
            })
        };
        os.run_one();
        producer.join().expect("no panic");
        processor.join().expect("no panic");
        os.run_all();
        assert_eq!(seen.taken.load(SeqCst), 2, "completions that nobody was woken for");
        assert!((1..=2).contains(&seen.calls.load(SeqCst)), "one callback for one arm");
        end(&os, &cq, &place);
        drop(cq);
        assert!(seen.gone.load(SeqCst));
    });
}

#[test]
fn two_producers_on_two_processors_wake_the_consumer_for_everything() {
    model(4, || {
        let os = LoomOs::new();
        let (cq, place, seen) = busy(&os, 4, 0);
        place.with(|consumer| consumer.arm(Any));
        let producers: Vec<_> = (0..2)
            .map(|context| {
                let (cq, os) = (cq.clone(), os.clone());
                thread::spawn(move || {
                    Cq::push(&cq, entry(context));
                    os.run_one();
                })
            })
            .collect();
        for producer in producers {
            producer.join().expect("no panic");
        }
        os.run_all();
        assert_eq!(seen.taken.load(SeqCst), 2);
        end(&os, &cq, &place);
    });
}

#[test]
fn nothing_is_called_after_the_close_and_the_client_goes_once() {
    model(6, || {
        let os = LoomOs::new();
        let (cq, mut consumer, seen) = quiet(&os, 2);
        consumer.arm(Any);
        let producer = {
            let (cq, os) = (cq.clone(), os.clone());
            thread::spawn(move || {
                Cq::push(&cq, entry(0));
                drop(cq);
                os.run_one();
            })
        };
        cq.close();
        let calls = seen.calls.load(SeqCst);
        drop(consumer);
        drop(cq);
        producer.join().expect("no panic");
        os.run_all();
        assert!(seen.gone.load(SeqCst), "nothing refers to the queue any more");
        assert!(seen.calls.load(SeqCst) <= calls + 1, "at most the one that was about to run");
    });
}

#[test]
fn the_timer_and_the_count_make_one_callback() {
    model(6, || {
        let os = LoomOs::new();
        let (cq, mut consumer, seen) = quiet(&os, 4);
        Cq::moderate(&cq, 1, 2).expect("a limit");
        consumer.arm(Any);
        Cq::push(&cq, entry(0));
        let clock = {
            let os = os.clone();
            // Too early, as far as the queue knows: it sets the timer again.
            thread::spawn(move || os.expire_one())
        };
        Cq::push(&cq, entry(1));
        clock.join().expect("no panic");
        os.run_all();
        assert_eq!(seen.calls.load(SeqCst), 1);
        cq.close();
        drop(consumer);
    });
}

#[test]
fn a_close_and_an_expiring_timer_leave_nothing() {
    model(6, || {
        let os = LoomOs::new();
        let (cq, mut consumer, seen) = quiet(&os, 4);
        Cq::moderate(&cq, 1, 4).expect("a limit");
        consumer.arm(Any);
        Cq::push(&cq, entry(0));
        let clock = {
            let os = os.clone();
            thread::spawn(move || os.expire_one())
        };
        cq.close();
        drop(consumer);
        drop(cq);
        clock.join().expect("no panic");
        os.run_all();
        assert!(seen.gone.load(SeqCst));
        assert_eq!(seen.calls.load(SeqCst), 0, "time stands still, so the hold was not over");
    });
}

//= NDKPI 7.1.10
#[test]
fn two_overruns_and_an_arm_tell_the_failure_once() {
    model(4, || {
        let os = LoomOs::new();
        let (cq, mut consumer, seen) = quiet(&os, 1);
        let producers: Vec<_> = (0..2)
            .map(|context| {
                let (cq, os) = (cq.clone(), os.clone());
                thread::spawn(move || {
                    Cq::push(&cq, entry(context));
                    os.run_one();
                })
            })
            .collect();
        consumer.arm(Any);
        for producer in producers {
            producer.join().expect("no panic");
        }
        os.run_all();
        consumer.arm(Any);
        os.run_all();
        assert_eq!(cq.failure(), Some(CqFailure::Overrun));
        assert_eq!(seen.failures.load(SeqCst), 1, "told once");
        assert_eq!(consumer.poll(4, |_| {}), 1, "what was queued still drains");
        cq.close();
    });
}
