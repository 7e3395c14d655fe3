//! The agent: a run in which another machine makes the calls on this one's adapter.

use alloc::vec::Vec;
use core::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use conformance::platform::{Platform as _, Step, Task};
use control::network::{Problem, Reason};
use fallible::Arc;
use kernel::{WaitLock, WskProvider};
use ndkpi::NtStatus;
use remote::Agent;

use super::{
    frame::{Head, Kind, is_same_machine},
    lane::{LANES, Lane},
};
use crate::{
    platform::{KernelPlatform, now},
    run::Run,
};

/// How long a lane waits for a datagram before it looks whether the run is over, in microseconds.
const LOOK: u64 = 50_000;
/// The session of a machine that was not heard of for so many microseconds is over when another one wants to begin.
const SILENT: u64 = 15_000_000;
/// Milliseconds to wait for Winsock Kernel.
const PATIENCE: u32 = 2_000;

/// The lanes of an agent, at as many ports in a row.
pub struct Lanes {
    all: Vec<Lane>,
    /// Whose calls are taken.
    of: IpAddr,
}

impl Lanes {
    /// Lanes at that port and those behind it, for a machine at that address.
    ///
    /// # Errors
    ///
    /// What is wrong, and the status: that a port is in use.
    pub fn open(of: SocketAddr) -> Result<Self, (Problem, NtStatus)> {
        let provider = WskProvider::capture(PATIENCE).map_err(|status| (Problem::NoWinsock, status))?;
        let provider = Arc::try_new(provider).map_err(|error| (Problem::NoPort, error.into()))?;
        let local: IpAddr = if of.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let mut all = Vec::new();
        all.try_reserve_exact(LANES.into()).map_err(|_| (Problem::NoPort, NtStatus::INSUFFICIENT_RESOURCES))?;
        for port in (of.port()..).take(LANES.into()) {
            all.push(Lane::open(&provider, SocketAddr::new(local, port)).map_err(|status| (Problem::NoPort, status))?);
        }
        Ok(Self { all, of: of.ip() })
    }
}

/// The session that there is.
#[derive(Default)]
struct Session<'run> {
    number: u64,
    agent: Option<Arc<Agent<'run>>>,
    /// The one before: what is late of it begins none.
    over: u64,
}

/// What the lanes share.
struct Serving<'run> {
    run: &'run Run,
    platform: &'run KernelPlatform<'run>,
    of: IpAddr,
    session: WaitLock<Session<'run>>,
    /// When the other machine was heard of last.
    heard: AtomicU64,
    calls: AtomicU64,
    /// A socket has failed: there is no serving any more.
    has_failed: AtomicBool,
}

/// Serves another machine until the run is to end.
pub fn run(run: &Run, platform: &KernelPlatform<'_>, lanes: &mut Lanes) {
    let until = now() + u64::from(run.start().seconds) * 1_000_000;
    let session = match WaitLock::try_new(Session::default()) {
        Ok(session) => session,
        Err(status) => return failed(run, status),
    };
    let serving = Serving {
        run,
        platform,
        of: lanes.of,
        session,
        heard: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
    };
    let mut served = Vec::new();
    let mut tasks: Vec<&mut dyn Task> = Vec::new();
    let count = lanes.all.len();
    if served.try_reserve_exact(count).is_err() || tasks.try_reserve_exact(count).is_err() {
        return failed(run, NtStatus::INSUFFICIENT_RESOURCES);
    }
    let fresh = lanes.all.iter_mut().enumerate().map(|(number, lane)| {
        let is_first = number == 0;
        Served { serving: &serving, lane, is_first, done: None, until }
    });
    served.extend(fresh);
    tasks.extend(served.iter_mut().map(|lane| -> &mut dyn Task { lane }));
    if let Err(status) = platform.run(&mut tasks) {
        failed(run, status);
    }
    serving.end();
}

/// Says why there is no serving any more.
fn failed(run: &Run, status: NtStatus) {
    run.say(format_args!("the agent has ended: {status}"));
    run.end_early(Reason::AgentFailed);
}

impl<'run> Serving<'run> {
    /// The agent for a call; `None` for a call that is not answered.
    fn agent(&self, head: Head, is_first_lane: bool) -> Result<Option<Arc<Agent<'run>>>, NtStatus> {
        self.session.with(|session| {
            if head.session == session.number && session.agent.is_some() {
                self.calls.fetch_add(1, Relaxed);
                self.heard.store(now(), Release);
                return Ok(session.agent.clone());
            }
            if head.sequence != 1 || !is_first_lane || head.session == session.over {
                return Ok(None);
            }
            // Whoever is silent for as long has gone.
            self.finish(session);
            let agent = Arc::try_new(Agent::try_new(self.platform, 0)?).map_err(NtStatus::from)?;
            (session.number, session.agent) = (head.session, Some(agent.clone()));
            self.calls.store(1, Relaxed);
            self.heard.store(now(), Release);
            self.run.say(format_args!("session {:#x} of {} has begun", head.session, self.of));
            Ok(Some(agent))
        })
    }

    /// Returns true if somebody else has the agent.
    fn is_busy(&self, session: u64) -> bool {
        let other = self.session.with(|current| current.agent.is_some() && current.number != session);
        other && now().saturating_sub(self.heard.load(Acquire)) < SILENT
    }

    fn finish(&self, session: &mut Session<'run>) {
        if let Some(agent) = session.agent.take() {
            agent.close();
            session.over = session.number;
            let calls = self.calls.load(Relaxed);
            self.run.say(format_args!("session {:#x} is over after {calls} calls", session.number));
        }
    }

    /// The session of that number is over, if there is one.
    fn over(&self, number: u64) {
        self.session.with(|session| {
            if session.number == number {
                self.finish(session);
            }
        });
    }

    fn end(&self) {
        self.session.with(|session| self.finish(session));
    }
}

/// A lane, and the call that was answered last on it.
struct Served<'task, 'run> {
    serving: &'task Serving<'run>,
    lane: &'task mut Lane,
    is_first: bool,
    /// Its session and number, and the length of the answer, which the lane still has.
    done: Option<(u64, u32, usize)>,
    until: u64,
}

impl Served<'_, '_> {
    /// Waits for a datagram, and answers it.
    ///
    /// # Errors
    ///
    /// What Winsock Kernel says of the socket.
    fn serve(&mut self) -> Result<(), NtStatus> {
        let Self { serving, lane, is_first, done, .. } = self;
        let Some((from, length)) = lane.receive(LOOK)? else { return Ok(()) };
        let (datagram, body) = lane.both(length);
        let Some((head, call)) = Head::parse(datagram).filter(|_| is_same_machine(from, serving.of)) else {
            return Ok(());
        };
        let (kind, length) = match (head.kind, *done) {
            (Kind::Answer | Kind::Busy, _) => return Ok(()),
            // The answer is lost, and the lane still has it.
            (Kind::Call | Kind::End, Some((session, sequence, length)))
                if (session, sequence) == (head.session, head.sequence) =>
            {
                (Kind::Answer, length)
            }
            _ if serving.is_busy(head.session) => (Kind::Busy, 0),
            (Kind::Ask, _) => (Kind::Answer, 0),
            (Kind::Call, _) => {
                let Some(agent) = serving.agent(head, *is_first)? else { return Ok(()) };
                (Kind::Answer, agent.answer(call, body))
            }
            (Kind::End, _) => {
                serving.over(head.session);
                (Kind::Answer, 0)
            }
        };
        if matches!(head.kind, Kind::Call | Kind::End) && kind == Kind::Answer {
            *done = Some((head.session, head.sequence, length));
        }
        // One that is lost is asked for again.
        let _ = lane.send(from, Head { kind, ..head }, length);
        Ok(())
    }
}

impl Task for Served<'_, '_> {
    fn step(&mut self) -> Step {
        let Serving { run, has_failed, .. } = self.serving;
        if run.is_cancelled() || has_failed.load(Acquire) || now() >= self.until {
            return Step::Done;
        }
        if let Err(status) = self.serve() {
            has_failed.store(true, Release);
            failed(run, status);
            return Step::Done;
        }
        Step::Worked
    }
}
