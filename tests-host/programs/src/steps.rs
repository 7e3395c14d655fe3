//! The steps of a program.

use conformance::{Check, Stop, client::Remote, platform::Platform};
use ndkpi::{
    NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_SOLICITED, NDK_OP_FLAG_DEFER as DEFER,
    NDK_OP_FLAG_READ_FENCE as FENCE, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT as SOLICIT,
    NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NDK_SGE, NtStatus,
};

use crate::{
    bytes::Bytes,
    memory::{BUFFERS, Element, REGISTERED, Window, owner},
    oracle::{Data, ELEMENTS, INLINE, QPS, Receive, Request, State, Work, consumer, peer},
    world::{World, rights_of},
};

/// Steps of one program at most.
const LONGEST: usize = 120;

/// The same on a cable that loses frames, where steps take time: no send waits for a receive for more than a minute (RoCEv2 0.5).
const LONGEST_SPOILT: usize = 40;

/// Bytes of an element at most, unless it is too long on purpose.
const LARGEST: usize = 48;

/// A program's steps.
pub trait Program {
    /// Carries them out until there are no more bytes, then empties all queues.
    fn steps(&mut self, bytes: &mut Bytes<'_>) -> Check;
}

impl Program for World<'_, '_> {
    fn steps(&mut self, bytes: &mut Bytes<'_>) -> Check {
        let longest = if self.oracle.way.is_spoilt() { LONGEST_SPOILT } else { LONGEST };
        for _ in 0..longest {
            if bytes.is_empty() {
                break;
            }
            self.counts.steps += 1;
            self.step(bytes)?;
            self.settle()?;
        }
        for at in 0..QPS {
            self.qps[at].flush()?;
            self.oracle.run();
            self.oracle.flush(at);
            self.settle()?;
        }
        for cq in 0..self.cqs.len() {
            while self.poll(cq, 16)? > 0 {}
            let left = self.oracle.cqs[cq].length();
            if left > 0 && !self.oracle.cqs[cq].loose {
                differ!("{left} completions of queue {cq} have not come");
            }
            self.counts.callbacks += u64::from(self.cqs[cq].callbacks());
            self.counts.overruns += u64::from(self.oracle.cqs[cq].loose);
        }
        Ok(())
    }
}

fn sge(element: &Element) -> NDK_SGE {
    let address = usize::try_from(element.address).unwrap_or(usize::MAX);
    let length = u32::try_from(element.length).unwrap_or(u32::MAX);
    NDK_SGE::new(core::ptr::without_provenance_mut(address), length, element.token)
}

impl World<'_, '_> {
    fn step(&mut self, bytes: &mut Bytes<'_>) -> Check {
        let choice = bytes.next();
        let (kind, at) = (choice % 16, usize::from(choice >> 4) % QPS);
        self.platform.log(format_args!("step {kind} of {at}"));
        match kind {
            0..=2 => self.receive(at, bytes),
            3..=7 => self.initiate(at, kind, bytes),
            8 => self.arm(at, bytes.next()),
            9 | 10 => self.poll(at, 1 + bytes.below(16)).map(drop),
            11 => self.fill(at, bytes),
            12 => self.register_or_not(at, bytes.next()),
            13 => self.window(at, bytes),
            14 => self.resize(at, bytes.next()),
            _ => self.seldom(at, bytes.next()),
        }
    }

    /// What would end a program if it came often.
    fn seldom(&mut self, at: usize, choice: u8) -> Check {
        match choice % 16 {
            0 | 1 => {
                self.qps[at].flush()?;
                self.oracle.flush(at);
                Ok(())
            }
            2 => self.disconnect(at),
            3 => self.close_connector(at),
            _ => Ok(()),
        }
    }

    /// An element of `consumer`'s memory, mostly a good one.
    fn element(&self, consumer: usize, remote: bool, bytes: &mut Bytes<'_>) -> Element {
        let (choice, offset, length) = (bytes.next(), bytes.next(), bytes.next());
        let buffer = 2 * consumer + usize::from(choice & 1);
        let all = REGISTERED[buffer % 2];
        let (mut offset, mut length) = (usize::from(offset) % (all - LARGEST + 1), 1 + usize::from(length) % LARGEST);
        let registration = self.oracle.memory.registrations[buffer];
        let mut token = registration.map_or(0, |one| if remote { one.remote } else { one.local });
        // One in sixteen of those that could be wrong is.
        let kind = if choice >> 4 >= 12 && choice & 0x0E != 0 { 0 } else { choice >> 4 };
        if kind == 15 {
            length += all - offset;
        }
        match kind {
            // One byte before, one byte behind, a token of nobody.
            12 => return Element { token, address: self.oracle.memory.bases[buffer] - 1, length },
            13 => offset = all - length + 1,
            14 => token ^= 0x5A5A_5A00,
            8 | 9 if remote => {
                let window = self.oracle.memory.windows[consumer];
                let is_uncertain = self.oracle.is_wire() && matches!(window, Window::Posted(_));
                if let Some(binding) = window.binding().filter(|_| !is_uncertain) {
                    let base = self.oracle.memory.bases[binding.buffer];
                    let end = base + (binding.offset + binding.length) as u64;
                    let address = base + (binding.offset + offset % binding.length) as u64;
                    let room = usize::try_from(end - address).unwrap_or(0);
                    // Now and then one byte more than the window shows.
                    let length = if kind == 9 && choice & 6 == 0 { room + 1 } else { length.min(room).max(1) };
                    return Element { token: binding.token, address, length };
                }
            }
            _ => {}
        }
        Element { token, address: self.oracle.memory.bases[buffer] + offset as u64, length }
    }

    fn remote(&self, at: usize, bytes: &mut Bytes<'_>) -> Element {
        self.element(consumer(peer(at)), true, bytes)
    }

    /// A list of elements, seldom too long.
    fn list(&self, at: usize, bytes: &mut Bytes<'_>) -> Vec<Element> {
        let count = match bytes.next() % 64 {
            0 => 0,
            1..=6 => 2,
            7 if bytes.next() < 64 => ELEMENTS + 1,
            _ => 1,
        };
        (0..count).map(|_| self.element(consumer(at), false, bytes)).collect()
    }

    fn receive(&mut self, at: usize, bytes: &mut Bytes<'_>) -> Check {
        let mut list = self.list(at, bytes);
        // Mostly there is room for any message.
        if let [only] = &mut *list
            && only.length % 8 != 0
        {
            only.length = LARGEST;
        }
        let context = self.next;
        self.next += 1;
        let elements: Vec<_> = list.iter().map(sge).collect();
        let status = self.qps[at].receive(context, &elements)?;
        self.counts.posts += 1;
        let qp = &mut self.oracle.qps[at];
        let mut may_be = Vec::new();
        if qp.receives.len() >= qp.receive_depth {
            may_be.push(NtStatus::NO_MORE_ENTRIES);
        }
        if list.len() > ELEMENTS {
            may_be.push(NtStatus::DATA_OVERRUN);
        }
        let is_right = if may_be.is_empty() { status == NtStatus::SUCCESS } else { may_be.contains(&status) };
        if !is_right && !qp.loose {
            differ!("NdkReceive of {list:?} on queue pair {at}, which is {:?}: {status}, not {may_be:?}", qp.state);
        }
        if !status.is_success() {
            self.counts.refused += 1;
        } else if qp.loose {
            self.oracle.receive_loosely(at, &Receive { context, list });
        } else {
            qp.receives.push_back(Receive { context, list });
            if qp.state == State::Over {
                self.oracle.flush_receives(at);
            }
        }
        Ok(())
    }

    /// Posts one request, or several of which all but the last are deferred. A refusal does not end the chain.
    fn initiate(&mut self, at: usize, kind: u8, bytes: &mut Bytes<'_>) -> Check {
        let first = self.oracle.qps[at].initiator.len();
        let mut before = 0;
        loop {
            let choice = bytes.next();
            let deferred = choice & 0x0C == 0x0C && !bytes.is_empty();
            let work = match kind {
                6 => Work::Write(self.remote(at, bytes)),
                7 => Work::Read(self.remote(at, bytes)),
                _ => Work::Send,
            };
            let behind = (before > 0).then_some(first + before);
            before += usize::from(self.post(at, work, choice, (behind, deferred), bytes)?);
            if !deferred {
                return Ok(());
            }
        }
    }

    /// Posts one request, behind others, and deferred or not. Returns true if it was accepted.
    fn post(
        &mut self,
        at: usize,
        work: Work,
        choice: u8,
        (behind, deferred): (Option<usize>, bool),
        bytes: &mut Bytes<'_>,
    ) -> Check<bool> {
        let chosen = |bit: u8, flag: u32| if choice & bit == bit { flag } else { 0 };
        let solicit = if matches!(work, Work::Send) { chosen(2, SOLICIT) } else { 0 };
        // If the connection ends with an answer lost, nobody knows if a silent request completes.
        let silent = if self.oracle.way.is_spoilt() { 0 } else { chosen(1, SILENT) };
        let must_fence = self.oracle.is_wire() && self.oracle.has_read(at);
        let fence = if must_fence { FENCE } else { chosen(16, FENCE) };
        let flags = silent | solicit | if deferred { DEFER } else { 0 } | fence;
        let is_inline = choice >> 5 == 7 && !matches!(work, Work::Read(_));
        let context = self.next;
        let mut refusals = Vec::new();
        let (data, status);
        if is_inline {
            let length = bytes.below(40);
            let taken: Vec<u8> = (0..length).map(|_| bytes.next()).collect();
            if length > INLINE {
                refusals.push(NtStatus::INVALID_BUFFER_SIZE);
            }
            let pieces = <[&[u8]; 2]>::from(taken.split_at(length / 2));
            status = match &work {
                Work::Write(remote) => self.qps[at].write_inline(context, &pieces, names(remote), flags)?,
                _ => self.qps[at].send_inline(context, &pieces, flags)?,
            };
            data = Data::Inline(taken);
        } else {
            let list = self.list(at, bytes);
            if list.len() > ELEMENTS {
                refusals.push(NtStatus::DATA_OVERRUN);
            }
            let elements: Vec<_> = list.iter().map(sge).collect();
            status = match &work {
                Work::Write(remote) => self.qps[at].write(context, &elements, names(remote), flags)?,
                Work::Read(remote) => self.qps[at].read(context, &elements, names(remote), flags)?,
                _ => self.qps[at].send(context, &elements, flags)?,
            };
            data = Data::Elements(list);
        }
        // The remote bytes are as many as the local ones.
        let work = match work {
            Work::Write(remote) => Work::Write(Element { length: data.length(), ..remote }),
            Work::Read(remote) => Work::Read(Element { length: data.length(), ..remote }),
            other => other,
        };
        let request = Request { context, work, data, silent: flags & SILENT != 0, solicited: flags & SOLICIT != 0 };
        self.posted(at, status, request, behind, &refusals)
    }

    fn arm(&mut self, cq: usize, choice: u8) -> Check {
        let kind = match choice % 8 {
            0 => NDK_CQ_NOTIFY_ERRORS,
            1..=2 => NDK_CQ_NOTIFY_SOLICITED,
            3 => 3,
            _ => NDK_CQ_NOTIFY_ANY,
        };
        self.cqs[cq].arm(kind)?;
        self.oracle.cqs[cq].arm(kind);
        Ok(())
    }

    /// Takes completions, each of which has to be the next of its queue. How many there were.
    fn poll(&mut self, cq: usize, most: usize) -> Check<usize> {
        let there = self.oracle.cqs[cq].length();
        let taken = self.cqs[cq].poll(most)?;
        if taken.len() != there.min(most) && !self.oracle.cqs[cq].loose {
            differ!("a poll of queue {cq} for {most} got {}; there were {there}", taken.len());
        }
        if let Some(left) = &mut self.oracle.cqs[cq].left {
            let Some(still) = left.checked_sub(taken.len()) else {
                differ!("queue {cq} has overrun with {left} completions, and has {} more", taken.len() - *left);
            };
            *left = still;
        }
        for done in &taken {
            self.platform.log(format_args!("queue {cq}: {done:?}"));
            self.counts.completions += 1;
            self.counts.failures += u64::from(!done.status.is_success());
            let receives = done.kind.is_some_and(|kind| kind == ndkpi::NDK_OPERATION_TYPE::RECEIVE);
            let Some(qp) = self.oracle.qps.get_mut(done.qp) else { differ!("a completion of nobody: {done:?}") };
            if qp.cq(receives) != cq {
                differ!("a completion in the wrong queue: {done:?}");
            }
            if let Some(expected) = self.oracle.cqs[cq].take((done.qp, receives)) {
                // The first answer that is lost is a time-out; nothing has succeeded behind it.
                let lost = if qp.has_lost { NtStatus::CANCELLED } else { NtStatus::IO_TIMEOUT };
                let is_lost = expected.may_be_lost && done.status == lost;
                qp.has_lost |= is_lost;
                let status = if is_lost || (expected.may_be_lost && qp.has_lost) { lost } else { expected.status };
                let seen = (done.request, done.status, done.kind);
                let right = seen == (expected.context, status, Some(expected.kind))
                    && (!receives || !done.status.is_success() || done.bytes == expected.bytes);
                if !right {
                    differ!("queue {cq} has {done:?}, and should have {expected:?}");
                }
                continue;
            }
            // In order, but some may be missing.
            let open = &mut qp.may_complete[usize::from(!receives)];
            let Some(place) = open.iter().position(|context| *context == done.request) else {
                differ!("queue {cq} has {done:?}, which nobody waits for");
            };
            open.drain(..=place);
        }
        Ok(taken.len())
    }

    /// The consumer changes its own bytes.
    fn fill(&mut self, buffer: usize, bytes: &mut Bytes<'_>) -> Check {
        let buffer = buffer % BUFFERS;
        let offset = bytes.below(200) % REGISTERED[buffer % 2];
        let length = (1 + bytes.below(64)).min(REGISTERED[buffer % 2] - offset);
        let first = bytes.next();
        let pattern: Vec<u8> = (0..=255_u8).take(length).map(|index| first.wrapping_add(index)).collect();
        self.buffer(buffer).write(offset, &pattern)?;
        self.oracle.memory.bytes[buffer][offset..offset + length].copy_from_slice(&pattern);
        Ok(())
    }

    fn register_or_not(&mut self, buffer: usize, choice: u8) -> Check {
        let is_registered = self.oracle.memory.registrations[buffer].is_some();
        let window = self.oracle.memory.windows[owner(buffer)];
        match (is_registered, window) {
            // What is posted for the window leaves this open.
            (true, Window::Posted(_) | Window::Ending(_)) => Ok(()),
            // So does a send that waits for a receive: when its elements are looked at again.
            (true, _) if self.waits(owner(buffer)) => Ok(()),
            (true, _) if choice < 32 => self.deregister(buffer),
            (true, _) => Ok(()),
            (false, _) => self.register(buffer, rights_of(choice)),
        }
    }

    /// Returns true if a request of a consumer waits.
    fn waits(&self, owner: usize) -> bool {
        (0..QPS).any(|at| consumer(at) == owner && !self.oracle.qps[at].initiator.is_empty())
    }

    fn resize(&mut self, cq: usize, choice: u8) -> Check {
        if self.oracle.cqs[cq].loose {
            return Ok(());
        }
        let depth = choice % 40;
        let status = self.cqs[cq].core().resize(depth.into())?.wait()?;
        let expected = self.oracle.cqs[cq].resize(depth.into());
        if status != expected {
            differ!("NdkResizeCq of queue {cq} to {depth}: {status}, and should be {expected}");
        }
        Ok(())
    }

    /// The graceful end, with nothing outstanding that could not be carried out.
    fn disconnect(&mut self, at: usize) -> Check {
        let waits = [at, peer(at)].iter().any(|at| !self.oracle.qps[*at].initiator.is_empty());
        if self.oracle.qps[at].state != State::Connected || self.oracle.qps[at].loose || waits {
            return Ok(());
        }
        let Some(link) = &self.links[at / 2] else { return Ok(()) };
        let connector = if at.is_multiple_of(2) { &link.a } else { &link.b };
        connector.core().disconnect()?.succeeds()?;
        self.oracle.end(at);
        Ok(())
    }

    fn close_connector(&mut self, at: usize) -> Check {
        // The other connector and the listener go too, which is another end at nearly the same time.
        if self.oracle.qps[at].state != State::Connected || self.oracle.qps[at].loose {
            return Ok(());
        }
        let Some(link) = self.links[at / 2].take() else { return Ok(()) };
        let (mine, other) = if at.is_multiple_of(2) { (link.a, link.b) } else { (link.b, link.a) };
        mine.close()?;
        self.oracle.end(at);
        self.settle()?;
        other.close()?;
        self.oracle.end(peer(at));
        Ok(())
    }
}

const fn names(remote: &Element) -> Remote {
    Remote { address: remote.address, token: remote.token }
}
