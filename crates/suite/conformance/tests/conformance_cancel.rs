//! The conformance suite can be ended at any moment, as plug and play does when an adapter goes: every case then lets go of
//! what it has made, so that its adapter can be closed.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::AcqRel},
    },
    thread,
};

use conformance::host::{Harness, HostPlatform, Scheduler, Setup};
use conformance::{
    Platform, cases,
    platform::{ExecutionContext, Family, PinnedMemory, Shape, Task},
    runner::{Outcome, Run},
};
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};
use provider::CompletionMode;

/// A host on which somebody wants the suite to end once it has asked a number of times whether anybody does.
struct Impatient {
    host: Arc<HostPlatform>,
    questions: AtomicI64,
}

impl Platform for Impatient {
    fn adapters(&self) -> u32 {
        self.host.adapters()
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        self.host.open(adapter, version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        // SAFETY: the adapter came from `open`, which is the host's (`# Safety` of the trait).
        unsafe { self.host.close(adapter) }
    }

    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr> {
        self.host.address(adapter, family)
    }

    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        self.host.memory(shape, length)
    }

    fn now(&self) -> u64 {
        self.host.now()
    }

    fn patience(&self) -> u64 {
        self.host.patience()
    }

    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        self.host.wait(limit, until)
    }

    fn dwell(&self, until: &dyn Fn() -> bool) -> bool {
        self.host.dwell(until)
    }

    fn settle(&self) {
        self.host.settle();
    }

    fn sleep(&self, micros: u64) {
        self.host.sleep(micros);
    }

    fn raised(&self, work: &mut dyn FnMut()) {
        self.host.raised(work);
    }

    fn execution_context(&self) -> ExecutionContext {
        self.host.execution_context()
    }

    fn processors(&self) -> u32 {
        self.host.processors()
    }

    fn run(&self, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
        self.host.run(tasks)
    }

    fn inspect_callback(&self) -> Result<(), &'static str> {
        self.host.inspect_callback()
    }

    fn cancelled(&self) -> bool {
        self.questions.fetch_sub(1, AcqRel) <= 0
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.host.log(line);
    }
}

/// Runs every case, ended after that many questions; how many of them that has ended.
fn ended(questions: i64, completion: CompletionMode) -> usize {
    let scheduler = Scheduler::Seeded { seed: 11, preemption: 20 };
    let setup = Setup { scheduler, completion, ..Setup::default() };
    let layer = move |host: &Arc<HostPlatform>| -> Box<dyn Platform + Send> {
        Box::new(Impatient { host: host.clone(), questions: AtomicI64::new(questions) })
    };
    let harness = Harness::new(setup).with_layer(Arc::new(layer));
    let how = Run { version: NDK_VERSION::V2_1, seed: 5, hostile: true };
    let mut ended = 0;
    for case in cases::all() {
        // Also looks that no reference to an adapter is left.
        let outcome = harness.run(case, how).outcome;
        assert!(!outcome.is_bad(), "{}, ended after {questions} questions: {}", case.name, outcome.text());
        ended += usize::from(matches!(&outcome, Outcome::Skipped(text) if text.as_str() == "cancelled"));
    }
    ended
}

#[test]
fn a_case_that_is_ended_at_any_moment_leaves_nothing_open() {
    // The runner asks first, then every wait: cases are ended in their first waits, and in later ones.
    thread::scope(|scope| {
        for (questions, completion) in [
            (1, CompletionMode::Mixed),
            (2, CompletionMode::Inline),
            (5, CompletionMode::Mixed),
            (13, CompletionMode::Inline),
        ] {
            scope.spawn(move || {
                let ended = ended(questions, completion);
                assert!(ended > 10, "{ended} cases were ended after {questions} questions");
            });
        }
    });
}
