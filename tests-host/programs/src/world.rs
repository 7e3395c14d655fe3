//! The objects of a program, and its steps: each is done to the provider and to the oracle, and what can be seen is compared.
//!
//! Two consumers have an adapter each, two completion queues, two buffers that are registered again and again, a window, and two
//! queue pairs, which are connected with those of the other.

use core::fmt;
use std::collections::VecDeque;

use conformance::{
    Check, HELD, Stop, Verdict,
    client::{Buffer, Cq, Mr, Mw, Pd, Qp as RealQp, QpSizes, Session},
    fixture::{Link, Terms},
    host::HostPlatform,
    platform::Platform,
};
use ndkpi::{
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED as SINK_NOT_REQUIRED, NDK_MR_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE,
    NDK_OP_FLAG_ALLOW_REMOTE_READ as OP_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE as OP_WRITE, NtStatus,
};

use crate::{
    Way,
    bytes::Bytes,
    cq::Cq as CqOracle,
    memory::{BACKGROUND, BUFFER_BYTES, BUFFERS, Binding, Memory, REGISTERED, Registration, Window, owner},
    oracle::{Data, ELEMENTS, INLINE, Oracle, QPS, Qp, Request, State, Work, consumer, peer},
    steps::Program,
};

/// Ends a program: the provider and the oracle disagree.
macro_rules! differ {
    ($($words:tt)+) => { return Err(Stop::failed(format_args!($($words)+))) };
}

/// What programs came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Programs.
    pub programs: u64,
    /// Their steps.
    pub steps: u64,
    /// Requests posted, those that were refused included.
    pub posts: u64,
    /// Posts that were refused.
    pub refused: u64,
    /// Completions taken.
    pub completions: u64,
    /// Completions of requests that have failed.
    pub failures: u64,
    /// Notification callbacks.
    pub callbacks: u64,
    /// Completion queues that an overrun had to do with.
    pub overruns: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} programs, {} steps, {} posts ({} refused), {} completions ({} failed), {} callbacks, {} queues overrun",
            self.programs,
            self.steps,
            self.posts,
            self.refused,
            self.completions,
            self.failures,
            self.callbacks,
            self.overruns
        )
    }
}

impl Counts {
    /// Adds what others came to.
    pub const fn add(&mut self, other: &Self) {
        self.programs += other.programs;
        self.steps += other.steps;
        self.posts += other.posts;
        self.refused += other.refused;
        self.completions += other.completions;
        self.failures += other.failures;
        self.callbacks += other.callbacks;
        self.overruns += other.overruns;
    }
}

/// Microseconds until a send that has met no receive has been sent again, several times.
const RECEIVE_WAIT: u64 = 4_000;
/// Until what is lost has been sent again, several times: an adapter waits 268 ms for an answer.
const REPAIR: u64 = 1_200_000;
/// Until a requester has given up whose peer says no more.
const END: u64 = 2_600_000;

/// A consumer's objects, but for its queues.
pub struct Consumer<'s> {
    pub window: Mw<'s>,
    pub regions: [Mr<'s>; 2],
    pub buffers: [&'s Buffer; 2],
    _pd: Pd<'s>,
}

/// Both sides of everything.
pub struct World<'s, 'p> {
    pub platform: &'p HostPlatform,
    pub links: Vec<Option<Link<'s>>>,
    pub qps: Vec<RealQp<'s>>,
    pub consumers: Vec<Consumer<'s>>,
    pub cqs: Vec<Cq<'s>>,
    pub oracle: Oracle,
    pub counts: Counts,
    /// The context of the next request.
    pub next: usize,
    /// Frames that both adapters had sent after the last step.
    sent: u64,
    /// Queue pairs that were connected then.
    connected: usize,
}

/// All rights of a buffer for what peers and reads may do, by two bits and one.
pub const fn rights_of(choice: u8) -> u32 {
    match choice % 8 {
        0 => 0,
        1 => LOCAL_WRITE,
        2 => ndkpi::NDK_MR_FLAG_ALLOW_REMOTE_READ,
        3 => LOCAL_WRITE | ndkpi::NDK_MR_FLAG_ALLOW_REMOTE_READ,
        _ => conformance::client::ALL_RIGHTS,
    }
}

impl<'s, 'p> World<'s, 'p> {
    /// Makes everything; the program says how large.
    pub fn new(
        session: &'s Session<'s>,
        (platform, way): (&'p HostPlatform, Way),
        bytes: &mut Bytes<'_>,
    ) -> Check<Self> {
        let adapters = [session.adapter()?, session.second_adapter()?];
        let (mut cqs, mut consumers, mut pds) = (Vec::new(), Vec::new(), Vec::new());
        let mut oracle = Oracle { cqs: Vec::new(), qps: Vec::new(), memory: Memory::new([0; BUFFERS]), way };
        oracle.memory.sink_not_required = adapters[0].has(SINK_NOT_REQUIRED);
        for number in 0..4 {
            let depth = 4 + bytes.below(28);
            cqs.push(adapters[number / 2].create_cq(u32::try_from(depth).unwrap_or(1), None)?);
            oracle.cqs.push(CqOracle::new(depth));
        }
        for (number, adapter) in adapters.iter().enumerate() {
            let pd = adapter.create_pd()?;
            let buffers = [Buffer::new(session, BUFFER_BYTES)?, Buffer::new(session, BUFFER_BYTES)?];
            for (index, buffer) in buffers.iter().enumerate() {
                buffer.fill(0, BUFFER_BYTES, BACKGROUND)?;
                oracle.memory.bases[2 * number + index] = buffer.address(0);
            }
            let regions = [pd.core().create_mr(false)?, pd.core().create_mr(false)?];
            let window = pd.core().create_mw()?;
            pds.push(pd.core());
            consumers.push(Consumer { window, regions, buffers, _pd: pd });
        }
        let mut qps = Vec::new();
        for number in 0..QPS {
            let (choice, sizes) = (bytes.next(), bytes.next());
            let own = consumer(number);
            let (receive_cq, initiator_cq) =
                (2 * own + usize::from(choice & 1), 2 * own + usize::from(choice >> 1 & 1));
            let (depth, receive_depth) = (1 + u32::from(sizes & 7), 1 + u32::from(sizes >> 4 & 7));
            let elements = u32::try_from(ELEMENTS).unwrap_or(1);
            let inline = u32::try_from(INLINE).unwrap_or(0);
            let sizes = QpSizes {
                receive_depth,
                initiator_depth: depth,
                receive_sge: elements,
                initiator_sge: elements,
                inline,
            };
            let (receives, initiates) = (cqs[receive_cq].core(), cqs[initiator_cq].core());
            qps.push(pds[own].create_qp(receives, initiates, number, sizes)?);
            oracle.qps.push(Qp {
                state: State::Unconnected,
                initiator: VecDeque::new(),
                receives: VecDeque::new(),
                depth: depth as usize,
                receive_depth: receive_depth as usize,
                receive_cq,
                initiator_cq,
                loose: false,
                may_complete: Default::default(),
                disconnects: 0,
                has_lost: false,
            });
        }
        let mut world = Self {
            platform,
            links: vec![None, None],
            qps,
            consumers,
            cqs,
            oracle,
            counts: Counts { programs: 1, ..Counts::default() },
            next: 1,
            sent: 0,
            connected: 0,
        };
        for buffer in 0..BUFFERS {
            world.register(buffer, conformance::client::ALL_RIGHTS)?;
        }
        // The second connection may stay away.
        let connected = if bytes.below(8) == 7 { 1 } else { 2 };
        for number in 0..connected {
            let (active, passive) = (2 * number, 2 * number + 1);
            let link = Link::between(session, world.qps[active].core(), world.qps[passive].core(), &Terms::new())?;
            world.links[number] = Some(link);
            world.oracle.qps[active].state = State::Connected;
            world.oracle.qps[passive].state = State::Connected;
        }
        Ok(world)
    }

    /// The region of a buffer.
    pub fn region(&self, buffer: usize) -> &Mr<'s> {
        &self.consumers[owner(buffer)].regions[buffer % 2]
    }

    /// The bytes of a buffer.
    pub fn buffer(&self, buffer: usize) -> &'s Buffer {
        self.consumers[owner(buffer)].buffers[buffer % 2]
    }

    /// Registers a buffer.
    pub fn register(&mut self, buffer: usize, rights: u32) -> Check {
        let region = self.region(buffer);
        region.core().register(self.buffer(buffer), REGISTERED[buffer % 2], rights)?.succeeds()?;
        let (local, remote) = (region.local_token()?, region.remote_token()?);
        self.oracle.memory.registrations[buffer] = Some(Registration { local, remote, rights });
        Ok(())
    }

    /// Deregisters a buffer.
    pub fn deregister(&mut self, buffer: usize) -> Check {
        let windows = &self.oracle.memory.windows;
        let window = windows[owner(buffer)];
        let status = self.region(buffer).core().deregister()?.wait()?;
        let expected = match window.binding() {
            // A bind that is not carried out yet leaves this open.
            Some(binding) if binding.buffer == buffer => NtStatus::DEVICE_BUSY,
            _ => NtStatus::SUCCESS,
        };
        if status != expected {
            differ!("NdkDeregisterMr of buffer {buffer}: {status}, and should be {expected}; the window is {window:?}");
        }
        if status.is_success() {
            self.oracle.memory.registrations[buffer] = None;
        }
        Ok(())
    }

    /// Posts a bind of the window of a queue pair's consumer, or the end of it.
    pub fn window(&mut self, at: usize, bytes: &mut Bytes<'_>) -> Check {
        let own = consumer(at);
        let (choice, rights, offset) = (bytes.next(), bytes.below(4), bytes.below(64));
        let context = self.next;
        if self.oracle.qps[at].loose {
            return Ok(());
        }
        match self.oracle.memory.windows[own] {
            Window::Free => {
                let buffer = 2 * own + usize::from(choice & 1);
                let Some(registration) = self.oracle.memory.registrations[buffer] else { return Ok(()) };
                let flags = [0, OP_READ, OP_WRITE, OP_READ | OP_WRITE][rights];
                if flags & OP_WRITE != 0 && registration.rights & LOCAL_WRITE == 0 {
                    return Ok(());
                }
                let length = 1 + usize::from(choice >> 1 & 15).min(REGISTERED[buffer % 2] - offset - 1);
                let address = self.oracle.memory.bases[buffer] + offset as u64;
                let (mr, mw) = (self.region(buffer).core(), self.consumers[own].window.core());
                let status = self.qps[at].bind(context, mr, mw, address, length, flags)?;
                let request = Self::local(context, Work::Bind);
                if self.posted(at, status, request, None, &[])? {
                    let token = self.consumers[own].window.core().remote_token()?;
                    let binding = Binding { token, buffer, offset, length, rights: flags };
                    self.oracle.memory.windows[own] = Window::Posted(binding);
                }
            }
            Window::Bound(binding) => {
                let status = self.qps[at].invalidate_mw(context, self.consumers[own].window.core(), 0)?;
                if self.posted(at, status, Self::local(context, Work::Invalidate), None, &[])? {
                    self.oracle.memory.windows[own] = Window::Ending(binding);
                }
            }
            Window::Posted(_) | Window::Ending(_) => {}
        }
        Ok(())
    }

    const fn local(context: usize, work: Work) -> Request {
        Request { context, work, data: Data::Elements(Vec::new()), silent: false, solicited: false }
    }

    /// An initiator request was posted: looks at the status, and queues it. Returns true if it was accepted. `refusals` are the
    /// statuses for what is wrong with the call itself. `behind` is how many requests there are if none of those that were posted
    /// just before it has been carried out yet, or none if nothing was.
    pub fn posted(
        &mut self,
        at: usize,
        status: NtStatus,
        request: Request,
        behind: Option<usize>,
        refusals: &[NtStatus],
    ) -> Check<bool> {
        self.next += 1;
        self.counts.posts += 1;
        self.platform.log(format_args!("queue pair {at}: {request:?}: {status}"));
        let is_full = |oracle: &Oracle| oracle.qps[at].initiator.len() >= oracle.qps[at].depth;
        if behind.is_some() {
            if status == NtStatus::CONNECTION_INVALID {
                self.oracle.run();
            } else if status.is_success() {
                self.oracle.make_room(at);
            }
        }
        let mut may_be = refusals.to_vec();
        if self.oracle.qps[at].state != State::Connected {
            may_be.push(NtStatus::CONNECTION_INVALID);
        }
        let may_be_full = behind.is_some_and(|there| there >= self.oracle.qps[at].depth);
        if is_full(&self.oracle) || may_be_full && status == NtStatus::NO_MORE_ENTRIES {
            may_be.push(NtStatus::NO_MORE_ENTRIES);
        }
        let qp = &mut self.oracle.qps[at];
        let is_right = if may_be.is_empty() { status == NtStatus::SUCCESS } else { may_be.contains(&status) };
        if !is_right && !qp.loose {
            differ!(
                "posting {request:?} to queue pair {at}, which is {:?}: {status}, and should be {may_be:?}",
                qp.state
            );
        }
        if !status.is_success() {
            self.counts.refused += 1;
            return Ok(false);
        }
        if qp.loose {
            self.oracle.initiate_loosely(at, &request);
        } else {
            qp.initiator.push_back(request);
        }
        Ok(true)
    }

    /// Frames that both adapters have sent.
    fn frames_sent(&self) -> u64 {
        let wires = self.platform.devices().iter().filter_map(|device| device.wire());
        wires.map(|wire| wire.counters().frames_sent).sum()
    }

    /// Lets the provider do all that can be done: over a wire also what needs time, because a receive was not there or a frame is lost.
    fn do_all(&mut self, waits: bool, has_ended: bool) {
        let machine = self.platform.machine();
        machine.run_until_idle();
        if !self.oracle.is_wire() || (self.frames_sent() == self.sent && !waits) {
            return;
        }
        machine.run_for(match (self.oracle.way.is_spoilt(), has_ended) {
            (false, _) => RECEIVE_WAIT,
            (true, false) => REPAIR,
            (true, true) => END,
        });
        machine.run_until_idle();
        self.sent = self.frames_sent();
    }

    /// Everything is carried out that can be, here and there. Compares memory and callbacks.
    pub fn settle(&mut self) -> Check {
        let waits = self.oracle.waits();
        self.oracle.run();
        let connected = self.oracle.qps.iter().filter(|qp| qp.state == State::Connected).count();
        let has_ended = std::mem::replace(&mut self.connected, connected) != connected;
        self.do_all(waits, has_ended);
        for (number, (cq, oracle)) in self.cqs.iter().zip(&mut self.oracle.cqs).enumerate() {
            let (callbacks, errors) = (cq.callbacks(), cq.errors());
            if let Err(words) = oracle.settle(callbacks, errors) {
                differ!("completion queue {number}: {words}");
            }
        }
        let mut found = [0; BUFFER_BYTES];
        for buffer in 0..BUFFERS {
            self.buffer(buffer).read(0, &mut found)?;
            if let Err(words) = self.oracle.memory.compare(buffer, &found) {
                differ!("{words}");
            }
        }
        self.oracle.memory.unknown.clear();
        for at in 0..QPS {
            let Some(link) = &self.links[at / 2] else { continue };
            let connector = if at % 2 == 0 { &link.a } else { &link.b };
            let (seen, most) = (connector.core().disconnects(), self.oracle.qps[at].disconnects);
            if seen > most && !self.oracle.qps[at].loose {
                differ!(
                    "queue pair {at}, which is {:?}, is told that {} has gone",
                    self.oracle.qps[at].state,
                    peer(at)
                );
            }
        }
        Ok(())
    }
}

/// Runs one program on an open adapter.
pub fn run(
    session: &Session<'_>,
    platform: (&HostPlatform, Way),
    bytes: &mut Bytes<'_>,
    counts: &mut Counts,
) -> Verdict {
    let mut world = World::new(session, platform, bytes)?;
    world.settle()?;
    let result = world.steps(bytes);
    counts.add(&world.counts);
    result?;
    HELD
}
