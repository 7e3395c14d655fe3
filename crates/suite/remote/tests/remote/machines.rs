//! Two machines: an agent with threads of its own, and a channel in memory between them.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use conformance::{
    Case, Outcome, Run,
    host::{HostPlatform, Setup},
    runner,
};
use host::machine::{Irql, current_irql, locks_held};
use ndkpi::{NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED as LOOPBACK, NtStatus};
use remote::{Agent, Channel, MOST, WithPeer};

/// A call, and where its answer goes.
type Sent = (Vec<u8>, Sender<Vec<u8>>);

/// A channel in memory.
pub struct InMemory {
    calls: Mutex<Sender<Sent>>,
    count: AtomicU64,
    /// The calls, if somebody wants them.
    heard: Option<&'static Mutex<Vec<Vec<u8>>>>,
    /// After so many calls it is dead.
    lives: u64,
    /// How long each call takes at least.
    delay: Duration,
}

impl Channel for InMemory {
    fn call(&self, call: &[u8], answer: &mut [u8]) -> Result<usize, NtStatus> {
        assert!(self.may_wait(), "a call where nobody may wait");
        assert!(call.len() <= MOST && answer.len() == MOST);
        if self.count.fetch_add(1, SeqCst) >= self.lives {
            return Err(NtStatus::IO_TIMEOUT);
        }
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
        if let Some(heard) = self.heard {
            heard.lock().unwrap_or_else(PoisonError::into_inner).push(call.to_vec());
        }
        let (back, answered) = channel();
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        calls.send((call.to_vec(), back)).map_err(|_| NtStatus::CONNECTION_ABORTED)?;
        let bytes = answered.recv().map_err(|_| NtStatus::CONNECTION_ABORTED)?;
        answer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn may_wait(&self) -> bool {
        current_irql() == Irql::PASSIVE_LEVEL && locks_held() == 0
    }
}

/// Answers calls until nobody can send any more.
fn serve(agent: &Agent<'_>, calls: &Mutex<Receiver<Sent>>) {
    loop {
        let next = calls.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((call, back)) = next else { return };
        let mut answer = vec![0; MOST];
        let length = agent.answer(&call, &mut answer);
        answer.truncate(length);
        // Nobody waits for it if the case has been given up.
        let _ = back.send(answer);
    }
}

/// What the channel is like.
#[derive(Clone, Copy, Default)]
pub struct Quality {
    /// After so many calls it is dead.
    pub lives: Option<u64>,
    /// How long each call takes at least.
    pub delay: Duration,
    /// Where the calls are noted.
    pub heard: Option<&'static Mutex<Vec<Vec<u8>>>>,
}

/// The adapters do not connect to themselves, as if each was on a machine of its own.
pub fn setup() -> Setup {
    Setup { tokens: Some(1 << 12), without: LOOPBACK, ..Setup::default() }
}

/// Runs `work` on a platform whose peer is adapter 1 behind an agent. Returns how many calls were made.
pub fn with_two_machines(platform: &HostPlatform, quality: Quality, work: impl FnOnce(&WithPeer<'_>)) -> u64 {
    let agent = Agent::try_new(platform, 1).expect("an agent");
    let (send, receive) = channel();
    let calls = Mutex::new(receive);
    let channel = InMemory {
        calls: Mutex::new(send),
        count: AtomicU64::new(0),
        heard: quality.heard,
        lives: quality.lives.unwrap_or(u64::MAX),
        delay: quality.delay,
    };
    let made = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve(&agent, &calls));
        }
        let channel = channel;
        {
            let peer = WithPeer::try_new(platform, &channel).expect("an answer");
            thread::scope(|scope| {
                scope.spawn(|| while peer.pump() == Ok(true) {});
                let done = catch_unwind(AssertUnwindSafe(|| work(&peer)));
                peer.end();
                done.expect("no panic");
            });
        }
        channel.count.load(SeqCst)
    });
    assert!(agent.close(), "something stays open on the other machine");
    made
}

/// Runs a case with the peer behind an agent. Returns how it has ended, and how many calls were made.
pub fn run(case: &'static Case, how: Run, setup: Setup, quality: Quality) -> Result<(Outcome, u64), String> {
    let platform = HostPlatform::start(setup).map_err(|status| format!("no machine: {status}"))?;
    let mut outcome = None;
    let calls = with_two_machines(&platform, quality, |peer| outcome = Some(runner::run(case, peer, &how)));
    let outcome = outcome.ok_or("no outcome")?;
    if let Some(panic) = platform.take_panic() {
        return Err(format!("a processor panicked: {panic}"));
    }
    if outcome.is_bad() {
        // Whatever is still going on may go on.
        std::mem::forget(platform);
        return Ok((outcome, calls));
    }
    platform.finish().map_err(|left| format!("left behind: {left}"))?;
    Ok((outcome, calls))
}

/// The same case with both adapters at hand.
pub fn run_directly(case: &'static Case, how: Run, setup: Setup) -> Outcome {
    conformance::host::Harness::new(setup).run(case, how).outcome
}
