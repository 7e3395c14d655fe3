//! The layer between consumer and provider: with it everything is as without it, and its hooks hear of everything.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use conformance::{
    Outcome, Platform, Run, cases,
    host::{Harness, Interposed, Scheduler, Setup},
};
use host::HostOs;
use interpose::{Event, Function, Hooks, Misuse, NoHooks, ObjectId, ObjectRef, Phase, Verdict};
use ndkpi::{NDK_ADAPTER_INFO, NDK_OBJECT_TYPE, NDK_VERSION, NtStatus};
use provider::CompletionMode;
use testing::on_event::OnEvent;

fn setup(completion: CompletionMode) -> Setup {
    Setup {
        scheduler: Scheduler::Seeded { seed: 0, preemption: 10 },
        tokens: Some(1 << 12),
        completion,
        ..Setup::default()
    }
}

/// How each case ends.
fn outcomes(harness: &Harness, version: NDK_VERSION) -> BTreeMap<&'static str, String> {
    let how = Run { version, seed: 7, hostile: true };
    cases::all()
        .map(|case| {
            let outcome = harness.run(case, how).outcome;
            (case.name, outcome.to_string())
        })
        .collect()
}

#[test]
fn the_suite_ends_as_without_the_layer() {
    for (completion, version) in
        [(CompletionMode::Mixed, NDK_VERSION::new(2, 0)), (CompletionMode::Early, NDK_VERSION::new(1, 0))]
    {
        let plain = Harness::new(setup(completion));
        let layered = plain
            .clone()
            .with_layer(Arc::new(|platform| Box::new(Interposed::new(platform, Box::new(|os| NoHooks(os.clone()))))));
        let (without, with) = thread::scope(|scope| {
            let without = scope.spawn(|| outcomes(&plain, version));
            let with = outcomes(&layered, version);
            (without.join().expect("the cases have ended"), with)
        });
        assert_eq!(without, with, "{completion:?}, NDKPI {version}");
    }
}

#[test]
fn the_suite_holds_on_threads_behind_the_layer() {
    let harness = Harness::new(Setup { completion: CompletionMode::Mixed, tokens: Some(1 << 12), ..Setup::default() })
        .with_layer(Arc::new(|platform| Box::new(Interposed::new(platform, Box::new(|os| NoHooks(os.clone()))))));
    let how = Run { version: NDK_VERSION::new(2, 0), seed: 3, hostile: true };
    let failed: Vec<_> = cases::all()
        .filter(|case| ["close", "stress", "close-inside", "object", "disconnect"].contains(&case.theme()))
        .filter_map(|case| {
            let outcome = harness.run(case, how).outcome;
            outcome.is_bad().then(|| format!("{}: {outcome}", case.name))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What hooks have heard: how often each function in each phase, and which objects live.
#[derive(Default)]
struct Heard {
    events: Mutex<BTreeMap<(Function, &'static str), usize>>,
    calls: Mutex<BTreeMap<u64, Function>>,
    wrong: Mutex<Vec<String>>,
    alive: AtomicUsize,
}

/// Counts, and looks that events come in pairs.
struct Listener {
    os: HostOs,
    heard: Arc<Heard>,
}

struct Alive(Arc<Heard>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, SeqCst);
    }
}

impl Listener {
    fn alive(&self) -> Alive {
        self.heard.alive.fetch_add(1, SeqCst);
        Alive(self.heard.clone())
    }

    fn wrong(&self, what: String) {
        self.heard.wrong.lock().expect("no panic").push(what);
    }
}

impl Hooks for Listener {
    type Os = HostOs;
    type State = Alive;
    type Call = ();
    const KEPT: usize = 8;

    fn os(&self) -> &HostOs {
        &self.os
    }

    fn adapter(&self, _: &NDK_ADAPTER_INFO) -> Result<Alive, NtStatus> {
        Ok(self.alive())
    }

    fn object(&self, _: &Event<'_, Alive>, id: ObjectId) -> Result<Alive, NtStatus> {
        if id.number == 0 {
            self.wrong(format!("{id} has the number of the adapter"));
        }
        Ok(self.alive())
    }

    fn event(&self, event: &Event<'_, Alive>, (): &mut ()) -> Verdict {
        let phase = match event.phase {
            Phase::Call => "call",
            Phase::Return => "return",
            Phase::Callback => "callback",
            Phase::CallbackReturn => "callback return",
        };
        *self.heard.events.lock().expect("no panic").entry((event.function, phase)).or_default() += 1;
        let mut calls = self.heard.calls.lock().expect("no panic");
        let before = calls.insert(event.call, event.function);
        if event.phase == Phase::Call && before.is_some() {
            drop(calls);
            self.wrong(format!("two calls have the number {}", event.call));
        } else if before.is_some_and(|before| before != event.function) {
            drop(calls);
            self.wrong(format!("{:?} of {:?} has the number of {before:?}", event.phase, event.function));
        }
        Verdict::Forward
    }

    fn misuse(&self, _: Function, _: ObjectRef<'_, Alive>, _: NDK_OBJECT_TYPE, _: Misuse) {}
}

/// Runs the suite with hooks that hear of it; each adapter has hooks of its own.
fn hear(completion: CompletionMode) -> Vec<Arc<Heard>> {
    let all: Arc<Mutex<Vec<Arc<Heard>>>> = Arc::default();
    let kept = all.clone();
    let harness = Harness::new(setup(completion)).with_layer(Arc::new(move |platform| {
        let kept = kept.clone();
        Box::new(Interposed::new(
            platform,
            Box::new(move |os| {
                let heard = Arc::new(Heard::default());
                kept.lock().expect("no panic").push(heard.clone());
                Listener { os: os.clone(), heard }
            }),
        ))
    }));
    let how = Run { version: NDK_VERSION::new(2, 0), seed: 9, hostile: true };
    for case in cases::all() {
        let outcome = harness.run(case, how).outcome;
        assert!(!outcome.is_bad(), "{}: {outcome}", case.name);
    }
    let all = all.lock().expect("no panic");
    all.clone()
}

#[test]
fn hooks_hear_of_every_function_in_pairs_and_nothing_is_left() {
    let adapters = hear(CompletionMode::Mixed);
    let mut total = BTreeMap::<(Function, &str), usize>::new();
    for heard in &adapters {
        assert_eq!(heard.wrong.lock().expect("no panic").as_slice(), [""; 0]);
        assert_eq!(heard.alive.load(SeqCst), 0, "objects of a closed adapter are left");
        for (&what, count) in &*heard.events.lock().expect("no panic") {
            *total.entry(what).or_default() += count;
        }
    }
    let count = |function, phase| total.get(&(function, phase)).copied().unwrap_or(0);
    for &function in Function::ALL {
        assert_eq!(count(function, "call"), count(function, "return"), "{function:?}");
        assert_eq!(count(function, "callback"), count(function, "callback return"), "{function:?}");
        let heard = count(function, "call") + count(function, "callback");
        assert!(heard > 0, "the hooks have heard nothing of {function:?}");
    }
    // Nothing but what pends is called back.
    for function in [Function::Send, Function::ArmCq, Function::GetCqResults, Function::Reject] {
        assert_eq!(count(function, "callback"), 0, "{function:?}");
    }
    for function in [Function::CreateQp, Function::Close, Function::RegisterMr, Function::Accept] {
        assert!(count(function, "callback") > 0, "{function:?} never pended");
    }
}

fn run_refused(function: Function, name: &str) -> Outcome {
    let status = NtStatus::INSUFFICIENT_RESOURCES;
    let harness = Harness::new(setup(CompletionMode::Inline)).with_layer(Arc::new(move |platform| {
        let make = move |os: &HostOs| {
            OnEvent::new(os, move |event| {
                let is_it = event.phase == Phase::Call && event.function == function;
                if is_it { Verdict::Refuse(status) } else { Verdict::Forward }
            })
        };
        let layer: Box<dyn Platform + Send> = Box::new(Interposed::new(platform, Box::new(make)));
        layer
    }));
    let case = cases::all().find(|case| case.name == name).expect("the case");
    harness.run(case, Run { version: NDK_VERSION::new(2, 0), seed: 1, hostile: true }).outcome
}

#[test]
fn what_hooks_refuse_does_not_reach_the_provider_and_leaves_nothing() {
    // The case needs what is refused: it stops, and says with which status. Nothing else goes wrong on its way out.
    for function in [Function::CreateCq, Function::CreateQp, Function::RegisterMr, Function::Listen] {
        let outcome = run_refused(function, "transfer.bytes-arrive");
        let text = outcome.to_string();
        assert!(outcome.is_bad() && text.contains("STATUS_INSUFFICIENT_RESOURCES"), "{function:?}: {text}");
    }
}
