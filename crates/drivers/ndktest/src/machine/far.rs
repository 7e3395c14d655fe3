//! The way to the agent of another machine ([`super::agent`]).

use alloc::vec::Vec;
use core::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{
        AtomicI32,
        Ordering::{Acquire, Release},
    },
};

use control::network::Problem;
use fallible::Arc;
use kernel::{Event, WaitLock, WskProvider, irql};
use ndkpi::NtStatus;
use remote::Channel;

use super::{
    frame::{Head, Kind, is_same_machine},
    lane::{LANES, Lane},
};
use crate::platform::{now, ticks};

/// After so many microseconds without an answer a call is sent again for the first time; later, after twice as many each time.
const FIRST: u64 = 20_000;
/// At least once in as many.
const LAST: u64 = 500_000;
/// A machine that has not answered for so many microseconds is gone.
const GONE: u64 = 10_000_000;
/// One that has not answered the first question in so many is not there.
const ABSENT: u64 = 3_000_000;
/// Milliseconds to wait for Winsock Kernel, which is there soon after the system has started.
const PATIENCE: u32 = 2_000;

/// A session with the agent of another machine. It ends when this is dropped.
pub struct Far {
    to: SocketAddr,
    session: u64,
    /// Those that nobody uses. The first of all is used by whoever comes first, so a session begins on it.
    free: WaitLock<Vec<Numbered>>,
    freed: Event,
    /// Why nothing can be called any more, if that is so.
    dead: AtomicI32,
}

/// A lane, and how many calls were made on it.
struct Numbered {
    lane: Lane,
    number: u16,
    sequence: u32,
}

/// What has come.
enum Came {
    /// The answer, which has so many bytes.
    Answer(usize),
    Busy,
}

impl Far {
    /// Asks the agent at that address whether it can begin a session.
    ///
    /// # Errors
    ///
    /// What is wrong, and the status.
    pub fn open(to: SocketAddr) -> Result<Self, (Problem, NtStatus)> {
        let provider = WskProvider::capture(PATIENCE).map_err(|status| (Problem::NoWinsock, status))?;
        let made = Arc::try_new(provider).map_err(NtStatus::from).and_then(|provider| Self::with_lanes(&provider, to));
        let far = made.map_err(|status| (Problem::NoMachine, status))?;
        let mut lane = far.take();
        let head = Head { kind: Kind::Ask, sequence: 0, session: far.session };
        let asked = far.exchange(&mut lane, head, 0, ABSENT, &mut []);
        far.give_back(lane);
        match asked {
            Ok(Came::Answer(_)) => Ok(far),
            Ok(Came::Busy) => Err((Problem::BusyMachine, NtStatus::DEVICE_BUSY)),
            Err(status) => Err((Problem::NoMachine, status)),
        }
    }

    fn with_lanes(provider: &Arc<WskProvider>, to: SocketAddr) -> Result<Self, NtStatus> {
        let local: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let mut free = Vec::new();
        free.try_reserve_exact(LANES.into()).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        // The last one is taken first.
        for number in (0..LANES).rev() {
            let lane = Lane::open(provider, SocketAddr::new(local, 0))?;
            free.push(Numbered { lane, number, sequence: 0 });
        }
        // As good as chance: a boot has one of each.
        let session = ticks();
        let (freed, dead) = (Event::try_new()?, AtomicI32::new(0));
        Ok(Self { to, session, free: WaitLock::try_new(free)?, freed, dead })
    }

    /// A lane that nobody uses, when there is one.
    fn take(&self) -> Numbered {
        loop {
            self.freed.clear();
            let (lane, has_more) = self.free.with(|free| (free.pop(), !free.is_empty()));
            if has_more {
                // For others whom `clear` has kept from hearing of it.
                self.freed.set();
            }
            if let Some(lane) = lane {
                return lane;
            }
            self.freed.wait();
        }
    }

    fn give_back(&self, lane: Numbered) {
        // There is room for all.
        self.free.with(|free| free.push(lane));
        self.freed.set();
    }

    /// Sends what the lane's body has until its answer comes, which is copied.
    fn exchange(
        &self,
        numbered: &mut Numbered,
        head: Head,
        length: usize,
        patience: u64,
        answer: &mut [u8],
    ) -> Result<Came, NtStatus> {
        let Numbered { lane, number, .. } = numbered;
        let to = SocketAddr::new(self.to.ip(), self.to.port().saturating_add(*number));
        let (began, mut wait) = (now(), FIRST);
        loop {
            // That there is no way, for now, is as good as a datagram that is lost.
            let sent = lane.send(to, head, length);
            let until = now() + wait;
            loop {
                let left = until.saturating_sub(now());
                let Some((from, length)) = lane.receive(left)? else { break };
                let Some((said, body)) = Head::parse(lane.both(length).0) else { continue };
                if !is_same_machine(from, to.ip()) || (said.sequence, said.session) != (head.sequence, head.session) {
                    continue;
                }
                match said.kind {
                    Kind::Answer => {
                        let length = body.len().min(answer.len());
                        answer[..length].copy_from_slice(&body[..length]);
                        return Ok(Came::Answer(length));
                    }
                    Kind::Busy => return Ok(Came::Busy),
                    Kind::Call | Kind::End | Kind::Ask => {}
                }
            }
            if now() - began >= patience {
                return Err(sent.err().unwrap_or(NtStatus::IO_TIMEOUT));
            }
            wait = (2 * wait).min(LAST);
        }
    }

    /// Makes a call of a kind on a lane.
    fn make(&self, numbered: &mut Numbered, kind: Kind, call: &[u8], answer: &mut [u8]) -> Result<usize, NtStatus> {
        let body = numbered.lane.both(0).1.get_mut(..call.len()).ok_or(NtStatus::INVALID_BUFFER_SIZE)?;
        body.copy_from_slice(call);
        numbered.sequence += 1;
        let head = Head { kind, sequence: numbered.sequence, session: self.session };
        match self.exchange(numbered, head, call.len(), GONE, answer)? {
            Came::Answer(length) => Ok(length),
            Came::Busy => Err(NtStatus::DEVICE_BUSY),
        }
    }
}

impl Channel for Far {
    fn call(&self, call: &[u8], answer: &mut [u8]) -> Result<usize, NtStatus> {
        NtStatus(self.dead.load(Acquire)).ok()?;
        let mut lane = self.take();
        let made = self.make(&mut lane, Kind::Call, call, answer);
        self.give_back(lane);
        made.inspect_err(|status| self.dead.store(status.0, Release))
    }

    fn may_wait(&self) -> bool {
        irql() == 0
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // An agent that does not answer ends the session by itself.
        if NtStatus(self.dead.load(Acquire)).is_success() {
            let mut lane = self.take();
            if lane.sequence > 0 {
                let _ = self.make(&mut lane, Kind::End, &[], &mut []);
            }
            self.give_back(lane);
        }
    }
}
