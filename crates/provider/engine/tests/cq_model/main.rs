//! Completion queues compared with a simple sequential model, over random histories: what is taken out, how often and with
//! which status the consumer is called back, and when.
//!
//! A failing history is shrunk and shown. `CQ_MODEL_SEED=<number>` repeats a run, `CQ_MODEL_CASES=<number>` makes it longer or
//! shorter.

#![cfg(not(loom))]

mod history;
mod model;

use std::{
    env,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use engine::cq::CqParameters;
use history::{History, Op, history};
use host::{
    HostOs,
    machine::{Machine, MachineRef},
};
use model::Model;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use testing::cq_fixture::{MAX_DEPTH, TestCq};

/// Histories of a seed.
const CASES: u32 = 1_000;

/// What the histories came to, to see that something happened.
#[derive(Default)]
struct Totals {
    callbacks: AtomicUsize,
    taken: AtomicUsize,
    failures: AtomicUsize,
    held: AtomicUsize,
    resizes: AtomicUsize,
}

/// A queue and its model side by side.
struct Pair {
    machine: MachineRef,
    model: Mutex<Model>,
    /// What each callback does.
    scripts: Vec<Vec<Op>>,
    totals: Arc<Totals>,
}

impl Pair {
    #[track_caller]
    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.try_lock().expect("a callback from inside a call")
    }

    /// Does the same to both and compares.
    fn apply(&self, cq: &TestCq, op: &Op) {
        let now = self.machine.now();
        let mut model = self.model();
        match op {
            Op::Push(completions) => {
                cq.push(completions);
                model.push(completions, now);
            }
            Op::PushEach(completions) => {
                for completion in completions.chunks(1) {
                    cq.push(completion);
                    model.push(completion, now);
                }
            }
            Op::Poll(most) => {
                let taken = cq.poll_entries(*most);
                assert_eq!(taken, model.poll(*most), "the completions taken");
                self.totals.taken.fetch_add(taken.len(), Relaxed);
            }
            Op::Arm(kind) => {
                cq.arm(*kind);
                model.arm(*kind);
            }
            Op::Resize(depth) => {
                let result = cq.resize(*depth);
                assert_eq!(result, model.resize(*depth), "a resize to {depth}");
                self.totals.resizes.fetch_add(usize::from(result.is_ok()), Relaxed);
            }
            Op::Moderate(interval, count) => {
                assert_eq!(cq.moderate(*interval, *count), model.moderate(*interval, *count, now));
            }
            Op::Fail(failure) => {
                cq.fail(*failure);
                model.fail(failure.status());
            }
            Op::Run | Op::Pass(_) => unreachable!("the machine is not run inside a callback"),
        }
        assert_eq!(cq.failure().map(engine::cq::notify::CqFailure::status), model.failure());
    }

    /// Lets the machine run.
    fn run(&self, cq: &TestCq, time: Option<u64>) {
        let was_held = self.model().is_held();
        self.totals.held.fetch_add(usize::from(was_held), Relaxed);
        match time {
            None => self.machine.run_until_idle(),
            Some(time) => self.machine.run_for(time),
        }
        let model = self.model();
        model.assert_settled(self.machine.now());
        assert_eq!(cq.calls(), model.calls(), "callbacks in all");
    }
}

/// Runs one history.
fn check(history: &History, totals: &Arc<Totals>) {
    let machine = Machine::seeded(history.seed).timer_resolution(history.resolution).start();
    // Without its watch a lock can be had at once, and most completions go another way.
    let os = if history.seed.is_multiple_of(2) { HostOs::new(&machine) } else { HostOs::unwatched(&machine) };
    let parameters = CqParameters { depth: history.depth, max_depth: MAX_DEPTH, processor: 1 };
    let cq = TestCq::with(&os, parameters, history.first).expect("memory");
    let pair = Arc::new(Pair {
        machine: (*machine).clone(),
        model: Mutex::new(Model::new(history.depth, MAX_DEPTH, history.resolution)),
        scripts: history.callbacks.clone(),
        totals: totals.clone(),
    });
    let inside = pair.clone();
    cq.on_callback(move |cq, status| {
        let number = inside.model().begin(status, inside.machine.now());
        inside.totals.callbacks.fetch_add(1, Relaxed);
        inside.totals.failures.fetch_add(usize::from(!status.is_success()), Relaxed);
        for op in inside.scripts.get(number).into_iter().flatten() {
            inside.apply(cq, op);
        }
        inside.model().end();
    });
    for op in &history.ops {
        match op {
            Op::Run => pair.run(&cq, None),
            Op::Pass(time) => pair.run(&cq, Some(*time)),
            op => pair.apply(&cq, op),
        }
    }
    if history.settles {
        pair.run(&cq, Some(10_000));
        assert_eq!(cq.poll_entries(usize::MAX), pair.model().poll(usize::MAX), "what is left");
    }
    let calls = cq.calls();
    cq.close();
    machine.run_for(10_000);
    assert_eq!(cq.calls(), calls, "nothing is called after the close");
    assert!(cq.is_gone(), "nothing keeps a closed queue");
    drop(cq);
    machine.shutdown();
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} has to be a number")))
}

/// Runs so many histories of a seed.
fn check_seed(seed: u64, cases: u32, totals: &Arc<Totals>) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let outcome = runner.run(&history(), |history| {
        check(&history, totals);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("repeat with CQ_MODEL_SEED={seed}: {error}");
    }
}

#[test]
fn a_queue_does_what_the_model_does() {
    let cases = number("CQ_MODEL_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(CASES);
    let seeds = number("CQ_MODEL_SEED")
        .map_or_else(|| [0, 1].map(|part| RandomState::new().hash_one(part)).into(), |seed| vec![seed]);
    let totals = Arc::new(Totals::default());
    // Each seed uses one processor.
    thread::scope(|scope| {
        for seed in seeds {
            let totals = &totals;
            scope.spawn(move || check_seed(seed, cases, totals));
        }
    });
    let Totals { callbacks, taken, failures, held, resizes } = &*totals;
    let counts = [callbacks, taken, failures, held, resizes].map(|count| count.load(Relaxed));
    println!(
        "{cases} histories of each seed; callbacks, completions, failures told, runs with a hold, resizes: {counts:?}"
    );
    if number("CQ_MODEL_CASES").is_none() {
        assert!(counts.iter().all(|count| *count > 100), "too little happened: {counts:?}");
    }
}
