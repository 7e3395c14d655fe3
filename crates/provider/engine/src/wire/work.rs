//! What a run of the wire's DPC does.

use alloc::boxed::Box;
use core::marker::PhantomData;

use arrayvec::ArrayVec;
use fallible::{AllocError, Arc, try_slice};
use roce::{
    FRAME, Stack,
    cm::EventKind,
    qp::{Flags, Request, State as QpState, Work},
};

use super::{Party, State, Wanted, Wire};
use crate::{
    os::{Dpc, Os, Routine, SpinLock, Timer},
    qp::{self, Fed, Outgoing, Qp},
};

/// Frames that are made under one hold of the lock, and leave with one call.
const FRAMES: usize = 32;
/// Queue pairs that are fed under one hold of it.
const QUEUE_PAIRS: usize = 8;
/// Requests that a queue pair is fed with at a time.
const REQUESTS: usize = 32;
/// Holds of it in one run.
const ROUNDS: usize = 4;
/// Events that are told in one round.
const EVENTS: usize = 8;

/// Where a frame begins: at a cache line.
const ALIGNED: usize = 64;

/// Frames that go out, one behind the other: those of a usual size stay in the processor's first cache.
pub(super) struct Frames {
    bytes: Box<[u8]>,
    lengths: ArrayVec<usize, FRAMES>,
}

impl Frames {
    pub fn try_new() -> Result<Self, AllocError> {
        Ok(Self { bytes: try_slice(FRAMES * FRAME.next_multiple_of(ALIGNED), |_| 0)?, lengths: ArrayVec::new() })
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.bytes;
        self.lengths.iter().map(move |&length| {
            let (frame, behind) = rest.split_at(length.next_multiple_of(ALIGNED));
            rest = behind;
            &frame[..length]
        })
    }

    /// Adds frames as long as there is room, and `next` writes one to the front of the bytes that it gets. Returns its length.
    fn fill(&mut self, mut next: impl FnMut(&mut [u8]) -> Option<usize>) {
        let mut start = 0;
        while !self.lengths.is_full() {
            // There is room for as many of the longest.
            let Some(length) = next(&mut self.bytes[start..]) else { return };
            self.lengths.push(length);
            start += length.next_multiple_of(ALIGNED);
        }
    }
}

/// What a round has found besides frames.
enum News {
    Happened(Arc<Box<dyn Party>>, EventKind),
    Requested(Wanted),
}

/// The DPC of a wire.
pub struct WireDpc<O>(PhantomData<O>);

impl<O: Os> Routine for WireDpc<O> {
    type Target = Wire<O>;

    fn run(wire: &Arc<Wire<O>>) {
        Wire::run(wire);
    }
}

/// The timer of a wire: something is due.
pub struct Deadline<O>(PhantomData<O>);

impl<O: Os> Routine for Deadline<O> {
    type Target = Wire<O>;

    fn run(wire: &Arc<Wire<O>>) {
        wire.state.with(|state| state.armed = None);
        Wire::run(wire);
    }
}

impl<O: Os> State<O> {
    /// Returns true if a run has something to do.
    pub fn is_due(&self, now: u64) -> bool {
        let deadline = self.stack.deadline();
        let is_early = |deadline| deadline <= now || self.armed.is_none_or(|armed| deadline < armed);
        self.stack.may_transmit() || self.stack.has_event() || self.table.has_held() || deadline.is_some_and(is_early)
    }

    /// Takes requests of a queue pair. Returns true if it has more.
    fn feed(&mut self, now: u64, number: u32) -> bool {
        let Self { stack, table, .. } = self;
        let Some(entry) = table.get_mut(number) else { return false };
        let qp = entry.qp().clone();
        let fed = if qp.has_flushed_claim() {
            // The message that fills the receive may never end.
            Fed::Ends
        } else {
            Qp::feed(&qp, REQUESTS, |outgoing| post(stack, now, number, outgoing))
        };
        if fed == Fed::Ends {
            stack.flush(now, number, table);
        }
        let is_over = stack.queue_pair(number).is_none_or(|qp| matches!(qp.state(), QpState::Error(_)));
        if is_over && stack.queue_pair(number).is_none_or(|qp| qp.outstanding() == 0) {
            Qp::land(&qp);
        }
        fed == Fed::Again
    }

    fn transmit(&mut self, now: u64, frames: &mut Frames) {
        let Self { stack, table, .. } = self;
        frames.fill(|frame| stack.transmit(now, frame, table));
    }

    /// What has happened next.
    fn news(&mut self) -> Option<News> {
        loop {
            let event = self.stack.event()?;
            if event.kind != EventKind::Requested {
                if let Some(party) = self.parties.get(event.connection) {
                    return Some(News::Happened(party, event.kind));
                }
                continue;
            }
            let Some(info) = self.stack.connection(event.connection) else { continue };
            return Some(News::Requested(Wanted {
                connection: event.connection,
                local: info.local,
                remote: info.remote,
            }));
        }
    }
}

/// Hands a request to the stack, if it takes it.
fn post(stack: &mut Stack, now: u64, number: u32, outgoing: &Outgoing) -> bool {
    let work = match outgoing.work {
        qp::Work::Send { invalidate } => Work::Send { invalidate },
        qp::Work::Write { address, token } => Work::Write { address, key: token },
        qp::Work::Read { address, token } => Work::Read { address, key: token },
        qp::Work::FastRegister(_) | qp::Work::Bind(_) | qp::Work::Invalidate { .. } => return false,
    };
    let flags = Flags {
        // The place in the send queue has to be given back, whether the consumer hears of it or not.
        silent_success: false,
        read_fence: outgoing.flags.contains(qp::Flags::READ_FENCE),
        solicited: outgoing.flags.contains(qp::Flags::SOLICIT),
    };
    let request = Request { context: outgoing.number, work, flags, length: outgoing.length };
    stack.post(now, number, request, None).is_ok()
}

impl<O: Os> Wire<O> {
    fn run(this: &Arc<Self>) {
        let taken = this.state.with(|state| {
            // A run that has the buffers looks again.
            state.again = state.frames.is_none();
            state.frames.take()
        });
        let Some(mut frames) = taken else { return };
        let (mut is_unfinished, mut now) = (true, 0);
        for _ in 0..ROUNDS {
            now = this.os.now();
            is_unfinished = Self::round(this, now, &mut frames);
            // Otherwise there was no more to send, and what has come since is asked for when the buffers are given back.
            let may_have_more = frames.lengths.is_full();
            if !frames.lengths.is_empty() {
                this.cable.send_all(&mut frames.iter());
                frames.lengths.clear();
            }
            if !is_unfinished && !may_have_more {
                break;
            }
        }
        if Self::rest(this, now, frames) || is_unfinished {
            this.dpc.queue(this);
        }
    }

    /// One round. Returns true if there is more to do.
    fn round(this: &Arc<Self>, now: u64, frames: &mut Frames) -> bool {
        let (mut is_unfinished, has_events) = this.state.with(|state| {
            let mut is_unfinished = state.table.complete_held();
            if state.stack.deadline().is_some_and(|deadline| deadline <= now) {
                state.stack.tick(now, &mut state.table);
            }
            for _ in 0..QUEUE_PAIRS {
                let Some(number) = this.rung.with(super::ringing::Rung::pop) else { break };
                if state.feed(now, number) {
                    this.rung.with(|rung| rung.push(number));
                    is_unfinished = true;
                }
            }
            state.transmit(now, frames);
            (is_unfinished, state.stack.has_event())
        });
        for _ in 0..if has_events { EVENTS } else { 0 } {
            match this.state.with(State::news) {
                Some(News::Happened(party, kind)) => party.event(kind),
                Some(News::Requested(wanted)) => Self::requested(this, wanted),
                None => break,
            }
        }
        is_unfinished |= this.rung.with(|rung| !rung.is_empty());
        is_unfinished
    }

    fn requested(this: &Arc<Self>, wanted: Wanted) {
        match this.acceptor.with(|acceptor| acceptor.clone()) {
            Some(acceptor) => acceptor.requested(this, wanted),
            None => drop(Self::release(this, super::Names { connection: wanted.connection, qp: 0 })),
        }
    }

    /// Ends a run whose last round was at `now`: gives the buffers back, and sets the timer. Returns true if there is something to do.
    fn rest(this: &Arc<Self>, now: u64, frames: Frames) -> bool {
        this.state.with(|state| {
            state.frames = Some(frames);
            let is_due = match state.stack.deadline().filter(|_| !state.is_shut) {
                Some(deadline) if deadline <= now => true,
                Some(deadline) if state.armed.is_none_or(|armed| deadline < armed) => {
                    state.armed = Some(deadline);
                    this.timer.set(deadline - now, this);
                    false
                }
                _ => false,
            };
            let is_asked = core::mem::take(&mut state.again);
            is_due || is_asked || state.stack.may_transmit() || state.stack.has_event()
        })
    }
}
