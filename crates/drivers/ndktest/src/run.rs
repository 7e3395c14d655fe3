//! Runs: one at a time, each on a thread of its own, and each can be ended at any point.

use alloc::{string::String, vec::Vec};
use core::{
    fmt::{self, Write as _},
    net::SocketAddr,
    sync::atomic::{
        AtomicBool, AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use conformance::{
    Case, cases,
    platform::{Step, Task},
};
use control::{
    case::{Names, StartCase},
    network::{Begun, Problem, Reason, StartOn},
    report::Line,
    test_device::{Kind, Progress, SECONDS, Start, State},
};
use fallible::Arc;
use kernel::{Event, Thread, WaitLock};
use ndis::NET_IFINDEX;
use ndkpi::{NDK_VERSION, NtStatus};
use remote::WithPeer;
use wdk_sys::WDFDEVICE;

use crate::{
    adapter::Adapter,
    finder::Link,
    machine::{
        agent::{self, Lanes},
        far::Far,
    },
    network::{self, Refused, Watch},
    performance,
    platform::{self, KernelPlatform, OpenAdapters},
    provider::Target,
    room::Room,
    suite, trace,
};

/// A report is cut after as many bytes.
const REPORT_BYTES: usize = 256 * 1024;

/// A run, going on or over.
pub struct Run {
    start: Start,
    kind: Kind,
    /// The only case of the suite to run; none for all of them.
    case: Option<&'static Case>,
    /// True if the provider may be given what a correct consumer never gives.
    hostile: bool,
    cancel: AtomicBool,
    /// A [`Reason`] why it has ended early.
    reason: AtomicU32,
    /// Set together with `cancel`, for who sleeps.
    cancelled: Event,
    /// Set when the thread has let go of everything that is the provider's.
    over: Event,
    done: AtomicU32,
    total: AtomicU32,
    passed: AtomicU32,
    failed: AtomicU32,
    report: WaitLock<String>,
}

impl Run {
    fn try_new(start: Start, kind: Kind, case: Option<&'static Case>, hostile: bool) -> Result<Arc<Self>, NtStatus> {
        let run = Self {
            start,
            kind,
            case,
            hostile,
            cancel: AtomicBool::new(false),
            reason: AtomicU32::new(Reason::None as u32),
            cancelled: Event::try_new()?,
            over: Event::try_new()?,
            done: AtomicU32::new(0),
            total: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            report: WaitLock::try_new(String::new())?,
        };
        Arc::try_new(run).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// What the run was started with.
    pub const fn start(&self) -> &Start {
        &self.start
    }

    /// What the run does.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The only case of the suite to run; none for all of them.
    pub const fn case(&self) -> Option<&'static Case> {
        self.case
    }

    /// Returns true if the provider may be given what a correct consumer never gives.
    pub const fn hostile(&self) -> bool {
        self.hostile
    }

    /// Returns true if somebody wants the run to end. Asked between any two things that it does.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Acquire)
    }

    /// Asks the run to end soon.
    pub fn cancel(&self) {
        self.cancel.store(true, Release);
        self.cancelled.set();
    }

    /// Asks the run to end soon, for a reason of which the first is kept. At any `IRQL <= DISPATCH_LEVEL`.
    pub fn end_early(&self, reason: Reason) {
        let _ = self.reason.compare_exchange(Reason::None as u32, reason as u32, Relaxed, Relaxed);
        self.cancel();
    }

    /// Sleeps, but not longer than until somebody wants the run to end.
    pub fn sleep(&self, micros: u64) {
        let _ = self.cancelled.wait_micros(micros);
    }

    /// Asks the run to end and waits until it has let go of the provider.
    pub fn end(&self) {
        self.cancel();
        self.over.wait();
    }

    /// How many steps there will be.
    pub fn expect(&self, total: u32) {
        self.total.store(total, Relaxed);
    }

    /// One more step is done, and how it went.
    pub fn step(&self, line: &Line<'_>) {
        self.say(format_args!("{line}"));
        if line.is_failure() { &self.failed } else { &self.passed }.fetch_add(1, Relaxed);
        self.done.fetch_add(1, Relaxed);
    }

    /// Adds a line to the report, as long as there is room and memory.
    pub fn say(&self, line: fmt::Arguments<'_>) {
        self.report.with(|report| {
            // Formatting into a string that has no room aborts if there is no memory; so it goes where nothing allocates.
            let mut room = Room::new(report, REPORT_BYTES);
            let _ = room.write_fmt(line).and_then(|()| room.write_str("\n"));
        });
    }

    fn is_over(&self) -> bool {
        self.over.is_set()
    }

    fn progress(&self) -> Progress {
        let state = match (self.is_over(), self.is_cancelled()) {
            (false, _) => State::Running,
            (true, false) => State::Finished,
            (true, true) => State::Cancelled,
        };
        Progress {
            state: state as u32,
            kind: self.kind as u32,
            done: self.done.load(Relaxed),
            total: self.total.load(Relaxed),
            passed: self.passed.load(Relaxed),
            failed: self.failed.load(Relaxed),
            report_bytes: self.report.with(|report| u32::try_from(report.len()).unwrap_or(u32::MAX)),
            reason: self.reason.load(Relaxed),
        }
    }
}

/// The runs of a device.
pub struct Runs {
    latest: WaitLock<Latest>,
}

/// The run that was started last, and what it needs. The order of the fields is that in which they have to go.
#[derive(Default)]
struct Latest {
    thread: Option<Thread>,
    targets: Vec<Target>,
    run: Option<Arc<Run>>,
    /// No more runs.
    stopped: bool,
}

impl Runs {
    /// No run yet.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        Ok(Self { latest: WaitLock::try_new(Latest::default())? })
    }

    /// Opens all of the provider's adapters and begins a run.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_BUSY` if one is going on; `STATUS_INVALID_PARAMETER`; what opening an adapter says.
    ///
    /// # Safety
    ///
    /// `device` is the driver's live device.
    pub unsafe fn start(&self, device: WDFDEVICE, links: &[Link], start: Start) -> Result<(), NtStatus> {
        // SAFETY: `device` is the driver's live device (`# Safety`).
        unsafe { self.start_private((device, links), start, None, NDK_VERSION::V2_1) }
    }

    /// Like [`Runs::start`], for one case of the suite. That there is no such case is in the answer.
    ///
    /// # Errors
    ///
    /// As for [`Runs::start`].
    ///
    /// # Safety
    ///
    /// As for [`Runs::start`].
    pub unsafe fn start_case(
        &self,
        device: WDFDEVICE,
        links: &[Link],
        how: &StartCase,
        case: &str,
    ) -> Result<Begun, NtStatus> {
        let Some(case) = find(case) else { return Ok(UNKNOWN_CASE) };
        let version = if how.major == 1 { NDK_VERSION::V1_2 } else { NDK_VERSION::V2_1 };
        // SAFETY: `device` is the driver's live device (`# Safety`).
        unsafe { self.start_private((device, links), of_case(how), Some(case), version) }.map(|()| Begun::default())
    }

    /// Begins a run on the adapters behind the links.
    ///
    /// # Safety
    ///
    /// As for [`Runs::start`].
    unsafe fn start_private(
        &self,
        (device, links): (WDFDEVICE, &[Link]),
        start: Start,
        case: Option<&'static Case>,
        version: NDK_VERSION,
    ) -> Result<(), NtStatus> {
        // An agent is for an interface.
        if start.kind == Kind::Agent as u32 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // `SoftNDK` bears what a correct consumer never gives.
        self.begin(start, case, true, |run, targets| {
            // SAFETY: `device` is the driver's live device (`# Safety`).
            let adapters = unsafe { open(device, links, run, targets) }?;
            Ok((Source { machine: None, adapters: Arc::try_new(adapters)?, version, _watch: None }, ()))
        })
    }

    /// Begins a run on the adapter of a network interface, or of two.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_BUSY` if one is going on; `STATUS_INVALID_PARAMETER`; `STATUS_INSUFFICIENT_RESOURCES`. What is wrong with
    /// the interfaces is in the answer.
    pub fn start_on(&self, how: &StartOn, interface: &str, peer: &str) -> Result<Begun, NtStatus> {
        let start = Start { kind: how.kind, seconds: how.seconds, seed: how.seed };
        self.start_ports(start, None, how.hostile != 0, (interface, peer, 0))
    }

    /// Like [`Runs::start_on`], for one case of the suite.
    ///
    /// # Errors
    ///
    /// As for [`Runs::start_on`].
    pub fn start_case_on(&self, how: &StartCase, names: Names<'_>) -> Result<Begun, NtStatus> {
        let Some(case) = find(names.case) else { return Ok(UNKNOWN_CASE) };
        self.start_ports(of_case(how), Some(case), how.hostile != 0, (names.interface, names.peer, how.major))
    }

    /// Begins a run on the adapters of interfaces, opened with this major version, or with the best for 0.
    fn start_ports(
        &self,
        start: Start,
        case: Option<&'static Case>,
        hostile: bool,
        (interface, peer, major): (&str, &str, u32),
    ) -> Result<Begun, NtStatus> {
        let kind = Kind::from_number(start.kind).ok_or(NtStatus::INVALID_PARAMETER)?;
        let begun = self.begin(start, case, hostile, |run, _| {
            let end = End::named(kind, peer)?;
            let peer = if end.is_some() { "" } else { peer };
            let network::Ports { adapters, version, watch, index } = network::choose(run, interface, peer, major)?;
            let adapters = Arc::try_new(adapters).map_err(NtStatus::from)?;
            let machine = end.map(|end| Machine::open(end, index)).transpose()?;
            Ok((Source { machine, adapters, version, _watch: Some(watch) }, Begun { index, ..Begun::default() }))
        });
        begun.or_else(|refused| match refused {
            Refused::Problem(problem) => Ok(problem),
            Refused::Status(status) => Err(status),
        })
    }

    /// Begins a run on the adapters that `open` opens.
    fn begin<T, E: From<NtStatus>>(
        &self,
        start: Start,
        case: Option<&'static Case>,
        hostile: bool,
        open: impl FnOnce(&Arc<Run>, &mut Vec<Target>) -> Result<(Source, T), E>,
    ) -> Result<T, E> {
        let kind = Kind::from_number(start.kind).filter(|_| SECONDS.contains(&start.seconds));
        let kind = kind.ok_or(NtStatus::INVALID_PARAMETER)?;
        self.latest.with(|latest| {
            if latest.stopped {
                return Err(NtStatus::DEVICE_NOT_READY.into());
            }
            if latest.run.as_ref().is_some_and(|run| !run.is_over()) {
                return Err(NtStatus::DEVICE_BUSY.into());
            }
            latest.thread = None;
            latest.targets = Vec::new();
            let run = Run::try_new(start, kind, case, hostile)?;
            let mut targets = Vec::new();
            let begun = open(&run, &mut targets).and_then(|(source, answer)| {
                let (mine, opened) = (run.clone(), OpenAdapters::try_new()?);
                let thread = Thread::try_spawn(move || carry_out(&mine, source, &opened))?;
                Ok((thread, answer))
            });
            // As soon as a target is open plug and play may wait for the run to be over, and closing the target for plug and
            // play: so if the run does not begin it is over first.
            let (thread, answer) = begun.inspect_err(|_| run.over.set())?;
            *latest = Latest { thread: Some(thread), targets, run: Some(run), stopped: false };
            Ok(answer)
        })
    }

    /// How far the latest run is.
    pub fn progress(&self) -> Progress {
        self.latest().map_or_else(Progress::default, |run| run.progress())
    }

    /// Asks the latest run to end soon.
    pub fn cancel(&self) {
        if let Some(run) = self.latest() {
            run.cancel();
        }
    }

    /// The latest run's report from that byte on, `most` bytes at most, and whether that is all.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn report(&self, offset: usize, most: usize) -> Result<(Vec<u8>, bool), NtStatus> {
        let Some(run) = self.latest() else { return Ok((Vec::new(), true)) };
        run.report.with(|report| {
            let rest = report.as_bytes().get(offset..).unwrap_or_default();
            let part = &rest[..rest.len().min(most)];
            let mut copy = Vec::new();
            copy.try_reserve_exact(part.len()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
            copy.extend_from_slice(part);
            Ok((copy, part.len() == rest.len()))
        })
    }

    /// Ends the run that is going on, and lets none begin any more.
    pub fn stop(&self) {
        let (thread, targets) = self.latest.with(|latest| {
            latest.stopped = true;
            if let Some(run) = &latest.run {
                run.cancel();
            }
            (latest.thread.take(), core::mem::take(&mut latest.targets))
        });
        // Waits for the thread. Not under the lock, which progress requests take.
        drop(thread);
        drop(targets);
    }

    fn latest(&self) -> Option<Arc<Run>> {
        self.latest.with(|latest| latest.run.clone())
    }
}

/// The case of that name.
fn find(name: &str) -> Option<&'static Case> {
    cases::all().find(|case| case.name == name)
}

/// The answer to a name that is none.
const UNKNOWN_CASE: Begun = Begun { problem: Problem::UnknownCase as u32, peer: 0, status: 0, index: 0 };

/// What a run of one case is started with.
const fn of_case(how: &StartCase) -> Start {
    Start { kind: Kind::Conformance as u32, seconds: how.seconds, seed: how.seed }
}

/// What a run is about. The order of the fields is that in which they have to go.
struct Source {
    machine: Option<Machine>,
    adapters: Arc<Vec<Adapter>>,
    version: NDK_VERSION,
    _watch: Option<Watch>,
}

/// What another machine is to a run.
#[derive(Clone, Copy)]
enum End {
    /// It has the second adapter: its agent is at that address.
    Agent(SocketAddr),
    /// It makes the calls, from that address, to this port.
    Caller(SocketAddr),
}

impl End {
    /// The machine that a second name is that of, if it is one.
    fn named(kind: Kind, name: &str) -> Result<Option<Self>, Refused> {
        let Some(machine) = network::machine(name) else {
            return if kind == Kind::Agent { Err(NtStatus::INVALID_PARAMETER.into()) } else { Ok(None) };
        };
        let address =
            machine.ok_or_else(|| network::problem(Problem::BadMachine, NtStatus::INVALID_ADDRESS, 0).of_peer())?;
        match kind {
            Kind::Agent => Ok(Some(Self::Caller(address))),
            Kind::Conformance | Kind::Stress => Ok(Some(Self::Agent(address))),
            Kind::Performance => Err(NtStatus::INVALID_PARAMETER.into()),
        }
    }
}

/// The way to another machine.
enum Machine {
    /// To that with the second adapter.
    Far(Far),
    /// From that which makes the calls.
    Lanes(Lanes),
}

impl Machine {
    fn open(end: End, index: NET_IFINDEX) -> Result<Self, Refused> {
        let opened = match end {
            End::Agent(address) => Far::open(address).map(Self::Far),
            End::Caller(address) => Lanes::open(address).map(Self::Lanes),
        };
        opened.map_err(|(problem, status)| network::problem(problem, status, index).of_peer())
    }
}

/// Opens the provider's devices, with a target each, and asks for their interfaces.
///
/// # Safety
///
/// `device` is the driver's live device.
unsafe fn open(
    device: WDFDEVICE,
    links: &[Link],
    run: &Arc<Run>,
    targets: &mut Vec<Target>,
) -> Result<Vec<Adapter>, NtStatus> {
    let mut adapters = Vec::new();
    targets.try_reserve_exact(links.len()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    adapters.try_reserve_exact(links.len()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
    for link in links {
        // SAFETY: `device` is the driver's live device (`# Safety`).
        targets.push(unsafe { Target::open(device, link, run) }?);
    }
    for target in &*targets {
        adapters.push(Adapter::Private(target.query()?));
    }
    Ok(adapters)
}

/// The thread of a run.
fn carry_out(run: &Run, mut source: Source, opened: &OpenAdapters) {
    trace::begun(run.start.kind, run.start.seed);
    let platform = KernelPlatform::new(run, &source.adapters, source.version, opened);
    match (run.kind, &mut source.machine) {
        (Kind::Conformance | Kind::Stress, Some(Machine::Far(far))) => with_peer(run, &platform, far),
        (Kind::Conformance | Kind::Stress, _) => suite::run(run, &platform, platform.version()),
        (Kind::Performance, _) => performance::run(run, &source.adapters, &platform),
        (Kind::Agent, Some(Machine::Lanes(lanes))) => agent::run(run, &platform, lanes),
        // `End::named` has seen to it that there are lanes.
        (Kind::Agent, _) => {}
    }
    drop(source);
    run.over.set();
    trace::over(&run.progress());
}

/// The suite, with the second adapter on another machine.
fn with_peer(run: &Run, platform: &KernelPlatform<'_>, far: &Far) {
    let done = WithPeer::try_new(platform, far).and_then(|peer| {
        platform::beside(&mut Pump(&peer), || {
            suite::run(run, &peer, platform.version());
            peer.end();
        })
    });
    if let Err(status) = done {
        run.say(format_args!("the other machine: {status}"));
        run.end_early(Reason::MachineGone);
    }
}

/// Makes the callbacks of the adapter that is on another machine.
struct Pump<'run, 'peer>(&'run WithPeer<'peer>);

impl Task for Pump<'_, '_> {
    fn step(&mut self) -> Step {
        // Without the other machine there is nothing to wait for: the calls say so.
        if self.0.pump().unwrap_or(false) { Step::Worked } else { Step::Done }
    }
}
