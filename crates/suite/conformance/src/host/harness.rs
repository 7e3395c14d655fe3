//! Runs cases one after the other, each on a machine of its own, and survives whatever a provider does.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use crate::{
    Case, Platform,
    random::Random,
    runner::{self, Outcome, Run},
    text::Text,
};

use super::platform::{HostPlatform, Scheduler, Setup};

/// Puts something between the suite and the provider.
pub type Layer = Arc<dyn Fn(&Arc<HostPlatform>) -> Box<dyn Platform + Send> + Send + Sync>;

/// Runs cases.
#[derive(Clone)]
pub struct Harness {
    setup: Setup,
    layer: Option<Layer>,
    limit: Duration,
    cancelled: Arc<AtomicBool>,
    verbose: bool,
}

/// A case that has run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
    /// On a seeded machine: a number that depends on everything that happened. Equal for equal runs.
    pub trace: Option<u64>,
}

impl Harness {
    /// Runs cases on machines of this kind. Their seeds are not those of the setup, but determined by the seed of each run.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup, layer: None, limit: Duration::from_mins(2), cancelled: Arc::default(), verbose: false }
    }

    /// Puts a layer between the suite and the provider.
    #[must_use]
    pub fn with_layer(self, layer: Layer) -> Self {
        Self { layer: Some(layer), ..self }
    }

    /// How long a case may take before its thread is left behind. Default: two minutes.
    #[must_use]
    pub const fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Ends cases early when the flag is set.
    #[must_use]
    pub fn with_cancel_flag(self, cancelled: Arc<AtomicBool>) -> Self {
        Self { cancelled, ..self }
    }

    /// Prints what the suite logs.
    #[must_use]
    pub const fn verbose(mut self, verbose: bool) -> Self {
        self.verbose = verbose;
        self
    }

    /// Runs a case on a new machine, and looks that it leaves nothing behind.
    #[must_use]
    pub fn run(&self, case: &'static Case, how: Run) -> Finished {
        let started = Instant::now();
        let (outcome, trace) = self.run_beside(case, how);
        Finished { outcome, took: started.elapsed(), trace }
    }

    /// On a thread that is left behind if the case does not come to an end.
    fn run_beside(&self, case: &'static Case, how: Run) -> (Outcome, Option<u64>) {
        let (done, outcome) = mpsc::channel();
        let this = self.clone();
        let work = move || {
            // Nobody listens any more if it has taken too long.
            let _ = done.send(this.run_here(case, how));
        };
        let thread = match std::thread::Builder::new().name(case.name.to_owned()).spawn(work) {
            Ok(thread) => thread,
            Err(error) => {
                return (Outcome::Inconclusive(Text::new(format_args!("no thread for the case: {error}"))), None);
            }
        };
        match outcome.recv_timeout(self.limit) {
            Ok(outcome) => {
                let _ = thread.join();
                outcome
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = self.limit.as_secs();
                let text = Text::new(format_args!("a call of the provider has not returned within {seconds} s"));
                (Outcome::Failed(text), None)
            }
            Err(RecvTimeoutError::Disconnected) => {
                (Outcome::Failed(Text::new(format_args!("the thread of the case has gone"))), None)
            }
        }
    }

    fn run_here(&self, case: &Case, how: Run) -> (Outcome, Option<u64>) {
        let mut setup = self.setup;
        // The seed of the run alone, so that it is all that a replay needs.
        let mut random = Random::new(how.seed, case.name);
        setup.seed = random.draw();
        if let Scheduler::Seeded { seed, .. } = &mut setup.scheduler {
            *seed = random.draw();
        }
        let platform = match HostPlatform::start_with_cancel(setup, &self.cancelled) {
            Ok(platform) => Arc::new(platform),
            Err(status) => return (Outcome::Inconclusive(Text::new(format_args!("no machine: {status}"))), None),
        };
        platform.set_verbose(self.verbose);
        let layered = self.layer.as_ref().map(|layer| layer(&platform));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let platform: &dyn Platform = layered.as_deref().map_or(&*platform, |layered| layered);
            runner::run(case, platform, &how)
        }));
        drop(layered);
        let panic = platform.take_panic();
        let outcome = match (outcome, panic) {
            (Err(panic), _) => Outcome::Failed(Text::new(format_args!("panic: {}", message(&*panic)))),
            (Ok(outcome), None) => outcome,
            (Ok(outcome), Some(panic)) => {
                let before = if outcome.is_bad() { outcome.text() } else { "" };
                Outcome::Failed(Text::new(format_args!("{before} a processor panicked: {panic}")))
            }
        };
        let trace = matches!(setup.scheduler, Scheduler::Seeded { .. }).then(|| platform.machine().trace_hash());
        if outcome.is_bad() {
            // Whatever is still going on may go on: the machine is left behind.
            std::mem::forget(platform);
            return (outcome, trace);
        }
        let outcome = match Arc::into_inner(platform).map(HostPlatform::finish) {
            Some(Ok(())) => outcome,
            Some(Err(left)) => Outcome::Failed(Text::new(format_args!("left behind: {left}"))),
            None => Outcome::Failed(Text::new(format_args!("somebody still uses the machine"))),
        };
        (outcome, trace)
    }

    /// Returns true if somebody has set the flag.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}

/// The words of a panic.
fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}
