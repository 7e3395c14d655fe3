//! What stands between a consumer and the adapters of a [`Loopback`](super::Loopback): an adviser, a recorder, faults.

use alloc::boxed::Box;
use std::{
    env, format, fs,
    path::PathBuf,
    process,
    string::String,
    string::ToString as _,
    sync::{
        Arc as StdArc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
    vec::Vec,
};

use fallible::Arc;
use host::{HostOs, note};
use interpose::{
    Hooks,
    adviser::{Adviser, Finding, Mode, Report, Settings, Sink, Totals},
    faults::{Faults, Plan, Tally},
};
use ndkpi::{NDK_ADAPTER, NtStatus};
use recorder::{Findings, Keep, Recorder, Ring};

use super::watch::{Activity, Watch};

/// The variable that puts the adviser in front of the adapters.
pub const ADVISE: &str = "NDK_ADVISE";
/// The variable that names the file of a recording.
pub const RECORD: &str = "NDK_RECORD";

/// Slots of a recording.
const SLOTS: usize = 256 << 10;
/// How long nothing may happen before a program counts as asleep.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Closes an adapter.
pub type Close = Box<dyn Fn(*mut NDK_ADAPTER) + Send + Sync>;

/// What a machine's adapters have in front of them. Ends with the machine's last adapter: then the recording is written, and the
/// findings are said.
#[derive(Default)]
pub struct Observed {
    advice: Option<Advice>,
    recording: Option<Kept>,
    faults: Option<Arc<Tally>>,
    /// Everything was said.
    is_over: AtomicBool,
}

/// What the adviser has found.
struct Advice {
    totals: Arc<Totals>,
    activity: StdArc<Activity>,
}

/// A recording.
struct Kept {
    ring: Arc<Ring>,
    /// Where it goes, and of how many processors it is; `None` if somebody else has the ring.
    file: Option<(PathBuf, u32)>,
}

/// Prints findings as they are made, and notes them in the recording, if there is one.
struct Printer {
    recorded: Option<Findings<HostOs>>,
}

impl Sink for Printer {
    fn report(&self, report: &Report<'_>) {
        if let Some(recorded) = &self.recorded {
            recorded.record(report);
        }
        note!("{report}");
        for (who, frames) in report.stacks() {
            note!("  {who} {}", host::names(frames).join(", "));
        }
    }
}

impl Observed {
    /// With the adviser.
    pub fn advised(&mut self) -> Result<(), NtStatus> {
        let activity = StdArc::default();
        self.advice = Some(Advice { totals: Arc::try_new(Totals::default())?, activity });
        Ok(())
    }

    /// With a recording that goes to this file.
    pub fn recorded(&mut self, path: PathBuf, processors: u32) -> Result<(), NtStatus> {
        let ring = Ring::try_new(SLOTS, Keep::Last, processors)?;
        self.recording = Some(Kept { ring, file: Some((path, processors)) });
        Ok(())
    }

    /// With a recording in this ring.
    pub fn recorded_in(&mut self, ring: Arc<Ring>) {
        self.recording = Some(Kept { ring, file: None });
    }

    /// Where is recorded.
    pub fn ring(&self) -> Option<Arc<Ring>> {
        self.recording.as_ref().map(|kept| kept.ring.clone())
    }

    /// With faults by this plan.
    pub fn with_faults(&mut self, plan: &Plan) -> Result<(), NtStatus> {
        self.faults = Some(Arc::try_new(Tally::new(*plan))?);
        Ok(())
    }

    /// What the environment asks for.
    pub fn from_environment(processors: u32) -> Result<StdArc<Self>, NtStatus> {
        let mut this = Self::default();
        let advise = env::var_os(ADVISE).is_some_and(|value| !value.is_empty() && value != "0");
        if advise {
            this.advised()?;
        }
        if let Some(path) = env::var_os(RECORD).filter(|path| !path.is_empty()) {
            this.recorded(path.into(), processors)?;
        }
        let this = StdArc::new(this);
        if advise {
            this.end_when_asleep();
        }
        Ok(this)
    }

    /// The findings that were made, and how often each.
    pub fn findings(&self) -> Vec<(Finding, u32)> {
        self.advice.as_ref().map(|advice| advice.totals.made().collect()).unwrap_or_default()
    }

    /// The faults that have happened.
    pub fn faults_made(&self) -> u64 {
        self.faults.as_ref().map_or(0, |tally| tally.made())
    }

    /// Lines about completion queues that sleep, if nothing happens any more.
    pub fn asleep(&self) -> Vec<String> {
        self.advice.as_ref().map(|advice| advice.activity.asleep()).unwrap_or_default()
    }

    /// Puts what is wanted in front of an adapter, which `close` closes: faults next to the provider, the adviser next to the
    /// consumer.
    ///
    /// # Errors
    ///
    /// What the layers say. The adapter is closed then.
    ///
    /// # Safety
    ///
    /// `adapter` is open, used by nobody else, and `close` closes it.
    pub unsafe fn wrap(
        &self,
        os: &HostOs,
        mut adapter: *mut NDK_ADAPTER,
        mut close: Close,
    ) -> Result<(*mut NDK_ADAPTER, Close), NtStatus> {
        if let Some(tally) = &self.faults {
            // SAFETY: `adapter` is open, used by nobody else, and closed by `close` (`# Safety`).
            (adapter, close) = unsafe { layer(adapter, close, Faults::new(os.clone(), tally.clone())) }?;
        }
        if let Some(kept) = &self.recording {
            // SAFETY: the adapter is the caller's, or that of the layer behind, with what closes it.
            (adapter, close) = unsafe { layer(adapter, close, Recorder::new(os.clone(), kept.ring.clone())) }?;
        }
        if let Some(advice) = &self.advice {
            // How long a callback takes on a host says nothing: its processors are threads.
            let settings = Settings { mode: Mode::Log, advice: true, longest_callback: 0 };
            let noted = |ring| Findings::new(os.clone(), ring, recorder::Adviser::InFront);
            let sink = Arc::try_new(Printer { recorded: self.ring().map(noted) });
            let Ok(sink) = sink else {
                close(adapter);
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            };
            let adviser = Adviser::new(os.clone(), settings, sink, advice.totals.clone());
            let watch = Watch::new(os.clone(), advice.activity.clone());
            // SAFETY: what the layer before returned: open, used by nobody else, and closed by its `close`.
            (adapter, close) = unsafe { layer(adapter, close, (adviser, watch)) }?;
        }
        Ok((adapter, close))
    }

    /// Ends the program, with all that is known, when it does nothing any more and a queue of it sleeps: it would hang.
    fn end_when_asleep(self: &StdArc<Self>) {
        let this = StdArc::downgrade(self);
        // Without a thread the program hangs as it would have.
        let _ = thread::Builder::new().name("ndk adviser".to_string()).spawn(move || wait_until_asleep(&this));
    }

    /// Says what was found, and writes the recording. Once.
    fn end(&self) {
        if self.is_over.swap(true, Relaxed) {
            return;
        }
        if self.advice.is_some() {
            let found: Vec<_> =
                self.findings().iter().map(|(finding, times)| format!("{finding} ({times} times)")).collect();
            if !found.is_empty() {
                note!("the adviser's findings: {}; ndkctl explain FINDING has more", found.join(", "));
            }
        }
        if let Some(Kept { ring, file: Some((path, processors)) }) = &self.recording
            && let Err(error) = fs::write(path, recording::write(ring, *processors))
        {
            note!("the recording cannot be written: {}: {error}", path.display());
        }
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until the program does nothing any more, or the machine has gone.
fn wait_until_asleep(observed: &Weak<Observed>) {
    let (mut seen, mut since) = (0, Instant::now());
    loop {
        thread::sleep(LOOK);
        let Some(this) = observed.upgrade() else { return };
        let Some(advice) = &this.advice else { return };
        let events = advice.activity.events();
        if events != seen {
            (seen, since) = (events, Instant::now());
        }
        let asleep = if since.elapsed() >= PATIENCE { advice.activity.asleep() } else { Vec::new() };
        if asleep.is_empty() {
            continue;
        }
        note!("nothing has happened for {} s, and nothing will:", PATIENCE.as_secs());
        for line in asleep {
            note!("  {line}");
        }
        this.end();
        // Whoever waits in the program waits for ever.
        process::exit(1);
    }
}

/// Puts hooks in front of an adapter.
///
/// # Safety
///
/// `adapter` is open, used by nobody else, and `close` closes it.
unsafe fn layer<H: Hooks<Os = HostOs>>(
    adapter: *mut NDK_ADAPTER,
    close: Close,
    hooks: H,
) -> Result<(*mut NDK_ADAPTER, Close), NtStatus> {
    // SAFETY: `adapter` is open and used by nobody else (`# Safety`).
    let wrapped = unsafe { interpose::wrap(adapter, hooks) };
    match wrapped {
        Ok(wrapped) => {
            let through = move |adapter| {
                // SAFETY: what is closed is the adapter that `wrap` has made here, with these hooks, once.
                unsafe { interpose::close::<H, _>(adapter, &close) };
            };
            Ok((wrapped, Box::new(through)))
        }
        Err(status) => {
            close(adapter);
            Err(status)
        }
    }
}
