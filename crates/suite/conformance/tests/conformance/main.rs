//! SoftNDK's provider passes the conformance suite: in every completion mode, with both versions, on threads and in orders
//! that a seed determines, and it leaves nothing behind.

mod live;

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use conformance::host::{Harness, HostPlatform, Scheduler, Setup};
use conformance::{Case, Outcome, Platform, Run, cases};
use engine::nic::NicMode;
use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE,
    NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK,
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED as LOCAL_INVALIDATE, NDK_VERSION,
};
use provider::CompletionMode::{Early, Inline, Mixed, Pending};

const ONE: NDK_VERSION = NDK_VERSION::new(1, 0);
const TWO: NDK_VERSION = NDK_VERSION::new(2, 0);

/// One test at a time: each uses all processors, and one counts what lives in the whole program.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A machine of threads, whose adapters have fewer tokens than by default: they are made for every case.
fn threads() -> Setup {
    Setup { tokens: Some(1 << 12), ..Setup::default() }
}

/// A machine whose order a seed determines.
fn seeded(preemption: u8) -> Setup {
    Setup { scheduler: Scheduler::Seeded { seed: 0, preemption }, ..threads() }
}

/// A run of all cases.
struct Row {
    setup: Setup,
    version: NDK_VERSION,
    outcomes: Vec<(&'static Case, Outcome)>,
}

impl Row {
    fn new(setup: Setup, version: NDK_VERSION) -> Self {
        let harness = Harness::new(setup);
        let how = Run { version, seed: 1, hostile: true };
        let outcomes = cases::all().map(|case| (case, harness.run(case, how).outcome)).collect();
        Self { setup, version, outcomes }
    }
}

/// Each pair of completion mode, version, engine, locks and scheduler meets once. Among them are machines of one and of four processors, seeds
/// that change processors often and never, and adapters without what is optional.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let direct = |setup| Setup { nic: NicMode::Direct, ..setup };
    let plain = |setup| Setup { watched_locks: false, ..setup };
    let on = |processors, setup| Setup { processors: Some(processors), ..setup };
    let on_threads = [
        (threads(), Inline, ONE),
        (plain(on(1, threads())), Pending, TWO),
        (plain(direct(threads())), Early, ONE),
        (direct(on(4, threads())), Mixed, TWO),
    ];
    let by_seeds = [
        (plain(direct(seeded(0))), Inline, TWO),
        (direct(seeded(20)), Pending, ONE),
        (seeded(10), Early, TWO),
        (plain(seeded(10)), Mixed, ONE),
        (Setup { without: OPTIONAL, read_sge: Some(3), ..seeded(10) }, Mixed, TWO),
    ];
    // The rows with seeds use one processor; those on threads mostly wait.
    thread::scope(|scope| {
        let start =
            |(setup, completion, version)| scope.spawn(move || Row::new(Setup { completion, ..setup }, version));
        let (on_threads, by_seeds) = (on_threads.map(start), by_seeds.map(start));
        on_threads.into_iter().chain(by_seeds).map(|row| row.join().expect("the cases have ended")).collect()
    })
});

/// The flags of what an adapter need not support.
const OPTIONAL: u32 = MODERATION | RESIZE | LOOPBACK | LOCAL_INVALIDATE;

#[test]
fn every_rule_holds_in_every_completion_mode_and_version() {
    let _alone = alone();
    let mut failed = Vec::new();
    for Row { setup, version, outcomes } in &*ROWS {
        for (case, outcome) in outcomes.iter().filter(|(_, outcome)| outcome.is_bad()) {
            failed.push(format!("{} ({}), NDKPI {version}, {setup:?}: {outcome}", case.name, case.section));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The themes of what [`OPTIONAL`] names.
fn is_about_what_is_optional(name: &str) -> bool {
    ["resize.", "moderation.", "notify.resize-inside", "notify.moderate-inside", "stress.resize", "stress.moderation"]
        .iter()
        .chain(&["close-inside.completion-of-a-resize", "close-inside.moderation"])
        .any(|part| name.starts_with(part))
}

#[test]
fn nothing_is_skipped_but_what_the_adapter_cannot_be_asked() {
    let _alone = alone();
    for Row { setup, version, outcomes } in &*ROWS {
        let skipped = outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::Skipped(_)));
        let skipped: Vec<_> = skipped.map(|(case, _)| case.name).collect();
        if setup.without == OPTIONAL {
            assert!(!skipped.contains(&"moderation.unsupported"), "an adapter without moderation can be asked that");
            let others: Vec<_> = skipped.iter().filter(|name| !is_about_what_is_optional(name)).collect();
            assert!(others.is_empty(), "{others:?}");
            assert!(skipped.len() > 20, "{skipped:?}");
            continue;
        }
        let expected = if *version == ONE {
            // What came with NDKPI 2.1.
            &["results.error-code-is-zero-on-success", "moderation.unsupported", "connect.events-with-a-reason"][..]
        } else {
            &["moderation.unsupported"][..]
        };
        assert_eq!(skipped, expected, "NDKPI {version}, {setup:?}");
    }
}

#[test]
fn open_points_are_as_decided() {
    let _alone = alone();
    let whole = ROWS.iter().filter(|row| row.version == TWO && row.setup.without == 0);
    let mut rows = 0;
    for Row { setup, outcomes, .. } in whole {
        rows += 1;
        for (name, decision) in testing::decisions::DECISIONS {
            let outcome = outcomes.iter().find(|(case, _)| case.name == *name).map(|(_, outcome)| outcome.to_string());
            assert_eq!(outcome, Some(format!("observed: {decision}")), "{name}, {setup:?}");
        }
    }
    assert!(rows > 1, "few runs were looked at");
}

/// A run that is not the first leaves as many bytes alive as there were before it.
///
/// What the test runner itself does meanwhile, when another test ends, happens once; a leak happens every time.
fn leaves_nothing(case: &Case, run: impl Fn()) {
    let mut left = Vec::new();
    for _ in 0..3 {
        let before = live::bytes();
        run();
        let after = live::bytes();
        if after == before {
            return;
        }
        left.push((before, after));
    }
    panic!("{}: bytes that live before and after it: {left:?}", case.name);
}

/// Twice the same run: it goes the same way, and the second leaves nothing in memory that was not there before it.
#[test]
fn the_same_seed_gives_the_same_run_and_nothing_stays_in_memory() {
    let _alone = alone();
    let harness = Harness::new(Setup { completion: Mixed, ..seeded(10) });
    let how = |seed| Run { version: TWO, seed, hostile: true };
    let mut traces = BTreeMap::new();
    for case in cases::all() {
        // The first run also makes what the program keeps for good.
        let first = harness.run(case, how(11));
        let first = (first.outcome.to_string(), first.trace);
        leaves_nothing(case, || {
            let second = harness.run(case, how(11));
            assert_eq!(first, (second.outcome.to_string(), second.trace), "{}: two runs with one seed", case.name);
        });
        traces.insert(case.name, first.1);
    }
    let some: Vec<_> = cases::all().step_by(8).collect();
    let other = some.iter().filter(|case| traces[case.name] != harness.run(case, how(12)).trace).count();
    assert!(other > some.len() * 3 / 4, "another seed has changed only {other} of {} runs", some.len());
}

#[test]
fn nothing_stays_in_memory_on_threads() {
    let _alone = alone();
    let harness = Harness::new(Setup { completion: Mixed, ..threads() });
    let how = Run { version: TWO, seed: 15, hostile: true };
    // Cases that begin and end most: a machine of threads keeps nothing that a seeded one would not.
    for case in cases::all().filter(|case| ["close", "stress"].contains(&case.theme())) {
        let _ = harness.run(case, how);
        leaves_nothing(case, || drop(harness.run(case, how)));
    }
}

/// As beside busy processes, where each look takes milliseconds.
#[test]
fn a_wait_keeps_its_limit_however_long_a_look_takes() {
    let platform = HostPlatform::start(Setup { adapters: 1, ..threads() }).expect("a machine");
    let looks = Cell::new(0);
    let look = || {
        looks.set(looks.get() + 1);
        thread::sleep(Duration::from_millis(1));
        false
    };
    assert!(!platform.wait(5_000, &look));
    assert!(
        (2..=6).contains(&looks.get()),
        "{} looks of a millisecond in five of them, the last one behind the end",
        looks.get()
    );
    platform.finish().expect("nothing is left");
}
