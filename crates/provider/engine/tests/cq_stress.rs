//! Cqe queues on threads that really run at the same time: no wake-up is lost, nothing is lost or changes places.
//!
//! Each test does a fixed amount of work, counts what happened, and fails if it was too little. Nothing depends on how long
//! it takes, except that a consumer that sleeps for a minute while there is work has missed a wake-up.

#![cfg(not(loom))]

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::Duration,
};

use engine::cq::{
    Cq, Cqe,
    notify::{
        ArmType::{self, Any, Solicited},
        CqFailure,
    },
};
use host::{HostOs, machine::Machine};
use testing::cq_fixture::{TestCq, failed, plain, solicited};

/// Sleeping longer than this is sleeping for ever.
const FOR_EVER: Duration = Duration::from_mins(1);
/// Producers.
const PRODUCERS: usize = 3;
/// A number that tells the completions of one producer from those of another.
const EACH: usize = 1 << 24;

/// Something to sleep on.
#[derive(Default)]
struct Alarm {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Alarm {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_one();
    }

    /// Sleeps until the next ring, or the last one if nobody has heard it.
    #[track_caller]
    fn sleep(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut rung, timeout) =
            self.bell.wait_timeout_while(rung, FOR_EVER, |rung| !*rung).unwrap_or_else(PoisonError::into_inner);
        *rung = false;
        drop(rung);
        assert!(!timeout.timed_out(), "a wake-up was lost");
    }
}

/// How many completions may be outstanding: a consumer sizes its queue for them.
struct Credits(AtomicUsize);

impl Credits {
    fn take(&self, count: usize) {
        while self.0.fetch_update(Acquire, Relaxed, |left| left.checked_sub(count)).is_err() {
            thread::yield_now();
        }
    }

    fn give(&self, count: usize) {
        self.0.fetch_add(count, Release);
    }
}

/// A machine with a queue and what its users share.
struct Field {
    machine: Machine,
    cq: TestCq,
    alarm: Arc<Alarm>,
    credits: Credits,
}

impl Field {
    fn new(depth: u32, credits: usize) -> Self {
        let machine = Machine::threads().processors(2).start();
        let cq = TestCq::new(&HostOs::new(&machine), depth);
        let alarm = Arc::new(Alarm::default());
        let bell = alarm.clone();
        cq.on_callback(move |_, _| bell.ring());
        Self { machine, cq, alarm, credits: Credits(AtomicUsize::new(credits)) }
    }

    /// Pushes `count` completions in batches, the last of each of the kind `last`.
    fn produce(&self, producer: usize, count: usize, last: impl Fn(usize) -> Cqe) {
        let cq = self.cq.cq();
        let mut next = 0;
        while next < count {
            let length = (next % 7 + 1).min(count - next);
            self.credits.take(length);
            let mut batch = [plain(0); 8];
            for (offset, place) in batch[..length].iter_mut().enumerate() {
                let context = producer * EACH + next + offset;
                *place = if offset + 1 == length { last(context) } else { plain(context) };
            }
            Cq::push_all(&cq, || &batch[..length]);
            next += length;
        }
    }

    /// Checks and counts what is there now.
    fn drain(&self, order: &mut Order) -> usize {
        let taken = self.cq.consume(|consumer| consumer.poll(usize::MAX, |entry| order.see(entry.request_context)));
        self.credits.give(taken);
        taken
    }

    /// Consumes `count` completions: drains, arms, and sleeps until called back. Says how often it slept.
    fn consume(&self, count: usize, kind: ArmType) -> usize {
        let (mut order, mut left, mut sleeps) = (Order::default(), count, 0);
        loop {
            left -= self.drain(&mut order);
            if left == 0 {
                return sleeps;
            }
            // No second look at the queue: what came after the drain has to satisfy the arm.
            self.cq.arm(kind);
            self.alarm.sleep();
            sleeps += 1;
        }
    }

    fn end(self) {
        assert_eq!(self.cq.failure(), None);
        self.cq.close();
        self.machine.flush();
        assert!(self.cq.is_gone());
        drop(self.cq);
        self.machine.shutdown();
    }
}

/// Which completion of each producer is next.
#[derive(Default)]
struct Order([usize; PRODUCERS]);

impl Order {
    #[track_caller]
    fn see(&mut self, context: usize) {
        let next = &mut self.0[context / EACH];
        assert_eq!(context % EACH, *next, "lost, doubled or out of order");
        *next += 1;
    }
}

/// Runs producers beside a consumer that sleeps. Says how often it slept.
fn run(field: &Field, each: usize, kind: ArmType, last: impl Fn(usize) -> Cqe + Copy + Send) -> usize {
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            scope.spawn(move || field.produce(producer, each, last));
        }
        field.consume(PRODUCERS * each, kind)
    })
}

#[test]
fn a_sleeping_consumer_is_woken_for_everything() {
    let field = Field::new(1_024, 1_000);
    let sleeps = run(&field, 70_000, Any, plain);
    let calls = field.cq.calls();
    println!("210000 completions, {sleeps} sleeps, {calls} callbacks");
    assert!(sleeps > 100, "it hardly slept: {sleeps}");
    assert!(calls >= sleeps, "a callback for each wake-up");
    field.end();
}

#[test]
fn a_consumer_of_a_nearly_full_queue_is_woken_for_everything() {
    // So few credits that producers wait for the consumer all the time.
    let field = Field::new(8, 8);
    let sleeps = run(&field, 7_000, Any, plain);
    println!("21000 completions, {sleeps} sleeps");
    assert!(sleeps > 100, "it hardly slept: {sleeps}");
    field.end();
}

#[test]
fn a_consumer_of_solicited_completions_is_woken_for_each_group() {
    for last in [solicited, failed] {
        let field = Field::new(1_024, 1_000);
        let sleeps = run(&field, 20_000, Solicited, last);
        println!("60000 completions, {sleeps} sleeps");
        assert!(sleeps > 20, "it hardly slept: {sleeps}");
        field.end();
    }
}

#[test]
fn a_moderated_consumer_is_woken_for_everything() {
    let field = Field::new(1_024, 1_000);
    Cq::moderate(&field.cq.cq(), 200, 64).expect("a limit");
    let sleeps = run(&field, 20_000, Any, plain);
    let fired = field.machine.statistics().timers_fired;
    println!("60000 completions, {sleeps} sleeps, {fired} timers");
    assert!(sleeps > 20, "it hardly slept: {sleeps}");
    field.end();
}

#[test]
fn a_consumer_that_drains_in_its_callback_gets_everything() {
    let field = Field::new(1_024, 1_000);
    let (total, each) = (PRODUCERS * 50_000, 50_000);
    let field = Arc::new(field);
    let (taken, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(Alarm::default()));
    let (weak, counter, done) = (Arc::downgrade(&field), taken.clone(), finished.clone());
    let mut order = Order::default();
    field.cq.on_callback(move |cq, _| {
        let Some(field) = weak.upgrade() else { return };
        let now = field.drain(&mut order);
        if counter.fetch_add(now, Relaxed) + now == total {
            done.ring();
        }
        cq.arm(Any);
    });
    field.cq.arm(Any);
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let field = &field;
            scope.spawn(move || field.produce(producer, each, plain));
        }
        finished.sleep();
    });
    assert_eq!(taken.load(Relaxed), total);
    println!("{total} completions, {} callbacks", field.cq.calls());
    assert!(field.cq.calls() > 100);
    field.machine.flush();
    Arc::into_inner(field).expect("no callback runs").end();
}

#[test]
fn resizes_under_load_lose_nothing_and_keep_the_order() {
    // Never more outstanding than the smallest depth.
    let field = Field::new(64, 60);
    let finished = AtomicBool::new(false);
    let (mut resizes, mut sleeps) = (0_u32, 0);
    thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let cq = field.cq.cq();
            let depths = [64, 4_096, 100, 64, 65, 1_000, 128, 60, 3_000];
            let mut count = 0;
            for depth in depths.into_iter().cycle() {
                if finished.load(Relaxed) {
                    break;
                }
                Cq::resize(&cq, depth).expect("there is room for what is outstanding");
                count += 1;
                if count % 4 == 0 {
                    thread::yield_now();
                }
            }
            count
        });
        sleeps = run(&field, 15_000, Any, plain);
        finished.store(true, Relaxed);
        resizes = changing.join().expect("no panic");
    });
    println!("45000 completions, {resizes} resizes, {sleeps} sleeps");
    assert!(resizes > 50, "hardly a resize: {resizes}");
    field.end();
}

#[test]
fn a_close_while_producers_go_on_calls_nobody_afterwards() {
    let machine = Machine::threads().processors(2).start();
    let os = HostOs::new(&machine);
    let mut callbacks = 0;
    for round in 0..500 {
        let cq = TestCq::new(&os, 4_096);
        if round % 3 == 0 {
            Cq::moderate(&cq.cq(), 50, 16).expect("a limit");
        }
        cq.on_callback(|cq, _| {
            // The consumer's end may be gone already.
            let engine = cq.try_cq();
            if let Some(engine) = engine {
                Cq::push(&engine, plain(1));
            }
        });
        cq.arm(Any);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                let (producer, stop): (fallible::Arc<Cq<HostOs>>, _) = (cq.cq(), &stop);
                scope.spawn(move || {
                    for _ in 0..1_000 {
                        Cq::push(&producer, plain(0));
                        if stop.load(Relaxed) {
                            break;
                        }
                    }
                });
            }
            for _ in 0..round % 50 {
                std::hint::spin_loop();
            }
            cq.close();
            stop.store(true, Relaxed);
        });
        machine.flush();
        callbacks += cq.calls();
        assert!(cq.is_gone(), "nothing refers to it");
    }
    println!("500 closes, {callbacks} callbacks before them");
    machine.shutdown();
}

#[test]
fn an_overrun_under_load_is_told_once() {
    let machine = Machine::threads().processors(2).start();
    let os = HostOs::new(&machine);
    for _ in 0..200 {
        let cq = TestCq::new(&os, 64);
        cq.arm(Any);
        thread::scope(|scope| {
            for _ in 0..2 {
                let producer = cq.cq();
                scope.spawn(move || (0..60).for_each(|context| Cq::push(&producer, plain(context))));
            }
        });
        machine.flush();
        cq.arm(Any);
        machine.flush();
        assert_eq!(cq.failures(), [CqFailure::Overrun]);
        let statuses = cq.take_statuses();
        assert_eq!(statuses.iter().filter(|status| !status.is_success()).count(), 1, "{statuses:?}");
        assert_eq!(cq.drain().len(), 64);
    }
    machine.shutdown();
}
