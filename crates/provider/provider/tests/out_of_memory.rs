//! Memory runs out: every allocation of a whole case fails once, the consumer's and the provider's.
//!
//! The process must not be aborted (in a kernel that is a bugcheck), nothing may be left behind, and the case must not hang.
//! What it says of the failure is its own business: mostly that a status was `STATUS_INSUFFICIENT_RESOURCES`.
//!
//! The machine is seeded, so that everything happens on the thread whose allocations fail.

use conformance::host::{HostPlatform, Scheduler, Setup};
use conformance::{
    Case, cases,
    runner::{self, Outcome, Run},
};
use ndkpi::NDK_VERSION;
use provider::CompletionMode;
use testing::allocation::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A case that allocates more often than this has something wrong with it.
const MOST: u32 = 4000;

fn case(name: &str) -> &'static Case {
    cases::all().find(|case| case.name == name).expect("a case of the suite")
}

fn setup(completion: CompletionMode) -> Setup {
    let scheduler = Scheduler::Seeded { seed: 1, preemption: 0 };
    // A request whose completion cannot be had is not waited for long: time is simulated.
    Setup { scheduler, completion, adapters: 1, ..Setup::default() }
}

/// Runs the case with the allocation failing that follows `nth` others. Whether there were so many.
fn run(case: &Case, completion: CompletionMode, nth: u32) -> (Outcome, bool) {
    let platform = HostPlatform::start(setup(completion)).expect("memory before it runs out");
    let how = Run { version: NDK_VERSION::V2_1, seed: 1, hostile: false };
    let result = allocation::fail_nth(nth, || runner::run(case, &platform, &how));
    if let Err(left) = platform.finish() {
        panic!("{}, {completion:?}, allocation {nth}: {left} (the case: {})", case.name, result.0);
    }
    result
}

/// Runs the case once for each of its allocations.
fn exhaust(name: &str) {
    let case = case(name);
    for completion in [CompletionMode::Inline, CompletionMode::Pending] {
        let mut nth = 0;
        let outcome = loop {
            let (outcome, failed) = run(case, completion, nth);
            if !failed {
                break outcome;
            }
            nth += 1;
            assert!(nth < MOST, "{name} allocates without end");
        };
        assert_eq!(outcome, Outcome::Passed, "{name} with enough memory");
        assert!(nth > 20, "{name} allocates {nth} times only");
    }
}

macro_rules! every_allocation_fails_once {
    ($($test:ident: $case:literal;)+) => {
        $(#[test]
        fn $test() {
            exhaust($case);
        })+
    };
}

every_allocation_fails_once! {
    while_a_queue_is_armed: "arm.one-callback-per-arm";
    //= invariant 5
    while_a_connection_is_made: "connect.private-data";
    while_a_connection_is_refused: "connect.rejected";
    while_a_connection_ends: "disconnect.graceful";
    while_an_endpoint_is_shared: "endpoint.shared-same-remote";
    //= invariant 5
    while_objects_are_closed: "close.region-with-window";
    while_a_receive_queue_is_shared: "srq.receive";
}
