//! The adapter on its wire, and connections over it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

use engine::connection::InterfaceAddress;
use host::machine::Machine;
use ndk::{
    Access, Adapter, Completion, Connection, Cq, Mr, Notify, NtStatus, Offer, Pd, Qp, QpSizes,
    host::{self as ndk_host, Counters, Driver, Outlet, WireConfig, Wired, at_dispatch},
};
use network::{Aside, Captured, Datagrams, Impaired, Pump, Segment, Vxlan, VxlanConfig};
use recorder::Ring;
use roce::{
    mtu::Mtu,
    vxlan,
    wire::{Envelope, cm},
};

use super::{
    args::{Carrier, Of},
    fault::Fault,
};

/// Reads that each side lets the other have under way.
pub const READS: u32 = 16;
/// How long one look at completions takes at most, in microseconds: how late the end is noticed.
const WAIT: u64 = 20_000;

/// How long a thread that drives the adapter looks for frames before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Bytes of a message up to which a thread drives the adapter: what it does with longer ones keeps the peer waiting for too long.
const DRIVEN: u32 = 64 << 10;

/// A segment that is captured, to be finished.
pub type Capture = Arc<Captured<Box<dyn Segment>>>;

/// Opens the segment that the arguments name, with what stands before it. The capture is there too, to be finished.
pub fn open_segment(of: &Of) -> Result<(Arc<dyn Segment>, Option<Capture>), Fault> {
    let wrong = |what: &str| Fault::Open(network::OpenError::Wrong(what.to_owned()));
    let port = |address: SocketAddr| {
        if address.port() == 0 { SocketAddr::new(address.ip(), vxlan::PORT) } else { address }
    };
    let peers: Vec<_> = of.peer.iter().map(|peer| port(peer.address)).collect();
    let mut segment: Box<dyn Segment> = match of.network {
        Carrier::Vxlan => {
            let config = VxlanConfig::new(of.vni, peers);
            let local = of.bind.unwrap_or(config.local);
            Box::new(Vxlan::open(&VxlanConfig { local, ..config })?)
        }
        Carrier::Dgram => {
            let [peer] = peers[..] else { return Err(wrong("--network dgram needs one --peer HOST:PORT")) };
            let local = of.bind.ok_or_else(|| wrong("--network dgram needs --bind IP:PORT"))?;
            Box::new(Datagrams::open(local, peer)?)
        }
        Carrier::Tap | Carrier::Interface => open_real(of)?,
    };
    if !of.impairment().is_none() {
        let impaired = Impaired::new(segment, of.impairment(), of.seed);
        segment = Box::new(impaired.map_err(|error| Fault::Other(format!("no thread for late frames: {error}")))?);
    }
    if usize::from(of.network_mtu()) + 14 > segment.longest() {
        let most = segment.longest() - 14;
        return Err(wrong(&format!("--mtu {}: {} takes {most} at most", of.network_mtu(), segment.describe())));
    }
    let Some(path) = &of.pcap else { return Ok((Arc::from(segment), None)) };
    let captured = Captured::to_file(segment, path);
    let captured = Arc::new(captured.map_err(|error| Fault::Other(format!("{}: {error}", path.display())))?);
    Ok((captured.clone(), Some(captured)))
}

#[cfg(target_os = "linux")]
fn open_real(of: &Of) -> Result<Box<dyn Segment>, Fault> {
    let name = of.interface.as_deref().ok_or_else(|| {
        Fault::Open(network::OpenError::Wrong("--network tap and --network interface need --interface NAME".to_owned()))
    })?;
    if of.network == Carrier::Tap {
        return Ok(Box::new(network::real::Tap::open(name)?));
    }
    Ok(Box::new(network::real::Packets::open(name)?))
}

#[cfg(not(target_os = "linux"))]
fn open_real(_: &Of) -> Result<Box<dyn Segment>, Fault> {
    let what = "tap devices and packet sockets are for Linux only: use --network vxlan";
    Err(Fault::Open(network::OpenError::Wrong(what.to_owned())))
}

/// What the last REJ said: its reason in the lower half, the MTU that it wants in the upper.
#[derive(Default)]
struct Rejected(AtomicU32);

impl Rejected {
    fn see(&self, frame: &[u8]) {
        let Ok((_, packet)) = Envelope::parse(frame) else { return };
        if packet.bth.destination != cm::QP {
            return;
        }
        let Some(mad) = cm::Mad::parse(packet.payload) else { return };
        if let Some(rej) = mad.message::<cm::Rej>() {
            let wanted = Mtu::from_code(rej.information[0]).map_or(0, Mtu::bytes);
            self.0.store(wanted << 16 | u32::from(rej.reason.get()), Relaxed);
        }
    }

    fn take(&self) -> Option<(u16, u32)> {
        let seen = self.0.swap(0, Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let reason = seen as u16;
        (seen != 0).then_some((reason, seen >> 16))
    }
}

/// An adapter on a wire.
pub struct Line<'run> {
    // The adapter is closed before its machine ends.
    adapter: Option<Adapter>,
    wired: Option<Wired>,
    pump: Option<Pump>,
    segment: Arc<dyn Segment>,
    rejected: Arc<Rejected>,
    connecting: Arc<AtomicBool>,
    capture: Option<Capture>,
    interrupted: &'run AtomicBool,
    /// What is recorded, and of how many processors.
    recorded: Option<(fallible::Arc<Ring>, u32)>,
    pub of: &'run Of,
    pub description: String,
}

impl<'run> Line<'run> {
    /// Opens the segment and the adapter.
    pub fn open(of: &'run Of, interrupted: &'run AtomicBool) -> Result<Self, Fault> {
        let (segment, capture) = open_segment(of)?;
        Self::on(of, interrupted, segment, capture)
    }

    /// Opens the adapter on a segment.
    pub fn on(
        of: &'run Of,
        interrupted: &'run AtomicBool,
        segment: Arc<dyn Segment>,
        capture: Option<Capture>,
    ) -> Result<Self, Fault> {
        let mut config = provider::Config::default();
        if of.local.len() > config.addresses.len() {
            return Err(Fault::Other(format!("--local is possible {} times at most", config.addresses.len())));
        }
        config.addresses = [None; _];
        for (place, local) in config.addresses.iter_mut().zip(&of.local) {
            *place = Some(InterfaceAddress::new(local.address, local.prefix));
        }
        let gateway = |is_v4: bool| of.gateway.iter().find(|gateway| gateway.is_ipv4() == is_v4).copied();
        let wire = WireConfig {
            gateways: [gateway(true), gateway(false)],
            network_mtu: of.network_mtu(),
            before_ack: of.before_ack(),
            // What a peer cannot guess, and what differs from one run to the next: a peer remembers connections for a while.
            seed: u64::from(std::process::id()) << 32
                ^ std::time::UNIX_EPOCH.elapsed().map_or(0, |time| u64::from(time.subsec_nanos())),
            ..WireConfig::new(of.station())
        };
        let description = segment.describe();
        let failed = |status: NtStatus| Fault::Other(format!("no adapter: {status}"));
        // One processor, which a thread can be that drives the adapter.
        let machine = Machine::threads().processors(1).start();
        let out = segment.clone();
        let cable = Outlet(move |frames: &[&[u8]]| drop(out.send_all(frames)));
        let wired = Wired::unwatched(machine, config, wire, Box::new(cable)).map_err(failed)?;
        let (wired, recorded) = if of.record.is_wanted() {
            let processors = wired.machine().processors();
            let ring = of.record.ring(processors).map_err(Fault::Other)?;
            (wired.recorded_in(ring.clone()).map_err(failed)?, Some((ring, processors)))
        } else {
            (wired, None)
        };
        let connecting = Arc::new(AtomicBool::new(false));
        let rejected = Arc::new(Rejected::default());
        let pump = {
            let (plug, connecting, rejected) = (wired.plug(), connecting.clone(), rejected.clone());
            Pump::start(segment.clone(), move |frame| {
                if connecting.load(Relaxed) {
                    rejected.see(frame);
                }
                plug.receive(frame);
            })
        };
        let pump = pump.map_err(|error| Fault::Other(format!("no thread: {error}")))?;
        let adapter = wired.open().map_err(failed)?;
        Ok(Self {
            adapter: Some(adapter),
            wired: Some(wired),
            pump: Some(pump),
            segment,
            rejected,
            connecting,
            capture,
            interrupted,
            recorded,
            of,
            description,
        })
    }

    /// The adapter.
    pub fn adapter(&self) -> &Adapter {
        self.adapter.as_ref().unwrap_or_else(|| unreachable!("the line is open"))
    }

    /// What the wire has counted.
    pub fn counters(&self) -> Counters {
        self.wired.as_ref().map(Wired::counters).unwrap_or_default()
    }

    /// The path MTU that a connection gets.
    pub fn path_mtu(&self) -> u32 {
        Mtu::of_network(self.of.network_mtu().into()).bytes()
    }

    /// An error if somebody wants the program to end.
    pub fn go_on(&self) -> Result<(), Fault> {
        if self.interrupted.load(Relaxed) { Err(Fault::Interrupted) } else { Ok(()) }
    }

    /// How long a peer that has stopped is waited for.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.of.patience.into())
    }

    /// Lets the current thread do the adapter's work, until the result is dropped, for messages of a size. `None` if another thread does
    /// that, or the messages are too long.
    pub fn drive(&self, size: u32) -> Option<Driving> {
        let (wired, pump) = (self.wired.as_ref()?, self.pump.as_ref()?);
        let aside = (size <= DRIVEN).then(|| pump.aside()).flatten()?;
        let segment = self.segment.clone();
        let source = move |patience: Duration, take: &mut dyn FnMut(&[u8])| {
            // The thread for frames finds out the same, and says it in the end.
            segment.receive(patience, take).unwrap_or(0)
        };
        Some(Driving { driver: wired.drive(SPIN, source), _aside: aside })
    }

    /// Connects a queue pair, and says why if it cannot.
    pub fn connect(
        &self,
        qp: &Qp,
        to: SocketAddr,
        offer: &Offer<'_>,
        gone: &Gone,
    ) -> Result<(Connection, Vec<u8>), Fault> {
        let failed = |status| Fault::of("connect", status);
        let from = self.of.beside(to.ip()).ok_or_else(|| Fault::NoRoute(to.ip()))?;
        self.rejected.take();
        self.connecting.store(true, Relaxed);
        let connecting = self.adapter().create_connector().map_err(failed)?.connect(qp, (from, 0).into(), to, offer);
        let connecting = connecting.map_err(failed)?;
        while connecting.outcome().is_none() {
            self.go_on()?;
            thread::sleep(Duration::from_micros(200));
        }
        self.connecting.store(false, Relaxed);
        let offered = connecting.wait().map_err(|status| match (status, self.rejected.take()) {
            (NtStatus::HOST_UNREACHABLE, _) => Fault::NoNeighbour(to.ip()),
            (NtStatus::NETWORK_UNREACHABLE, _) => Fault::NoRoute(to.ip()),
            (NtStatus::CONNECTION_REFUSED, Some((26, wanted))) => Fault::OtherMtu((wanted != 0).then_some(wanted)),
            (NtStatus::CONNECTION_REFUSED, seen) => Fault::Refused(seen.map(|(reason, _)| reason)),
            (status, _) => Fault::of("connect", status),
        })?;
        let mut private = vec![0; 148];
        offered.connection_data(&mut private).map_err(failed)?;
        let gone = gone.clone();
        let connection = offered.complete(move || gone.set()).map_err(failed)?.wait().map_err(failed)?;
        Ok((connection, private))
    }

    /// Closes everything, and says what is wrong then.
    pub fn finish(mut self) -> Result<(), Fault> {
        drop(self.adapter.take());
        let ended = self.wired.take().map_or(Ok(()), Wired::finish);
        let pumped = self.pump.take().map_or(Ok(()), Pump::finish);
        let pumped = pumped.map_err(|error| format!("{}: {error}", self.description));
        let captured = self
            .capture
            .take()
            .map_or(Ok(()), |capture| capture.finish().map_err(|error| format!("the capture is not whole: {error}")));
        let recorded = self
            .recorded
            .take()
            .map_or(Ok(()), |(ring, processors)| self.of.record.write(&recording::write(&ring, processors)));
        ended.and(pumped).and(captured).and(recorded).map_err(Fault::Other)
    }
}

/// The current thread does the adapter's work.
pub struct Driving {
    // Ends first: then the thread for frames goes on.
    driver: Driver,
    _aside: Aside,
}

impl Driving {
    /// For who waits for something that is no completion: takes in the frames that come within `patience`. Returns how many.
    pub fn turn(&mut self, patience: Duration) -> usize {
        self.driver.turn(patience)
    }
}

/// Whether the peer has disconnected.
#[derive(Clone, Default)]
pub struct Gone(Arc<AtomicBool>);

impl Gone {
    /// It has.
    pub fn set(&self) {
        self.0.store(true, Release);
    }

    /// Returns true if it has.
    pub fn is_set(&self) -> bool {
        self.0.load(Acquire)
    }
}

/// Small messages that can wait for this side.
pub const SLOTS: u32 = 32;
/// Bytes of a small message.
pub const MESSAGE: usize = 16;

/// A queue pair with its queues, and memory for small messages.
pub struct End<'line, 'run> {
    line: &'line Line<'run>,
    pub qp: Qp,
    pub sends: Cq,
    pub receives: Cq,
    pub pd: Pd,
    pub gone: Gone,
    messages: Mr,
}

impl<'line, 'run> End<'line, 'run> {
    /// A queue pair for requests of up to `depth` at a time, with receives for small messages.
    pub fn new(line: &'line Line<'run>, depth: u32) -> Result<Self, Fault> {
        let failed = |status| Fault::of("a queue pair", status);
        let adapter = line.adapter();
        let pd = adapter.create_pd().map_err(failed)?;
        let memory = adapter.memory(MESSAGE * (SLOTS as usize + 1)).map_err(failed)?;
        let messages = pd.register(memory, Access::LOCAL_WRITE).map_err(failed)?;
        let sends = adapter.create_cq(depth + 8).map_err(failed)?;
        let receives = adapter.create_cq(depth + SLOTS + 8).map_err(failed)?;
        let sizes = QpSizes { receives: SLOTS + depth, requests: depth + 4, ..QpSizes::default() };
        let qp = pd.create_qp(&receives, &sends, sizes, 0).map_err(failed)?;
        Ok(Self { line, qp, sends, receives, pd, gone: Gone::default(), messages })
    }

    /// Posts the receives for small messages.
    pub fn post_messages(&mut self) -> Result<(), Fault> {
        (0..SLOTS as usize).try_for_each(|slot| self.post_message(slot))
    }

    fn post_message(&mut self, slot: usize) -> Result<(), Fault> {
        let failed = |status| Fault::of("a receive", status);
        let element = self.messages.sge(MESSAGE * (slot + 1), 16).map_err(failed)?;
        at_dispatch(|| self.qp.receiver.receive(slot, &[element])).map_err(failed)
    }

    /// Sends a small message, and waits until it has arrived.
    pub fn tell(&mut self, message: &[u8; MESSAGE]) -> Result<(), Fault> {
        self.post_tell(message)?;
        self.completed("a message").map(drop)
    }

    /// Sends a small message.
    pub fn post_tell(&mut self, message: &[u8; MESSAGE]) -> Result<(), Fault> {
        let failed = |status| Fault::of("a message", status);
        self.messages.write(0, message).map_err(failed)?;
        let element = self.messages.sge(0, 16).map_err(failed)?;
        at_dispatch(|| self.qp.initiator.send(usize::MAX, &[element], ndk::Flags::empty())).map_err(failed)
    }

    /// Waits for the next completion of a request.
    pub fn completed(&mut self, what: &str) -> Result<usize, Fault> {
        let done = next(self.line, &mut self.sends, &self.gone, what)?;
        done.ok().map_err(|status| Self::fault(what, status))
    }

    /// Waits for the next completion of a receive: its context and its bytes.
    pub fn received(&mut self, what: &str) -> Result<(usize, u32), Fault> {
        let done = next(self.line, &mut self.receives, &self.gone, what)?;
        let context = done.ok().map_err(|status| Self::fault(what, status))?;
        Ok((context, done.bytes()))
    }

    /// Waits for completions of requests.
    pub fn some_completed<'place>(
        &mut self,
        place: &'place mut [Completion],
        what: &str,
    ) -> Result<&'place [Completion], Fault> {
        some(self.line, &mut self.sends, &self.gone, place, what)
    }

    /// Waits for completions of receives.
    pub fn some_received<'place>(
        &mut self,
        place: &'place mut [Completion],
        what: &str,
    ) -> Result<&'place [Completion], Fault> {
        some(self.line, &mut self.receives, &self.gone, place, what)
    }

    /// An error if somebody wants the program to end, or the peer has gone, or has been waited for since `begun` for too long.
    pub fn still_there(&self, begun: Instant, what: &str) -> Result<(), Fault> {
        still_there(self.line, &self.gone, begun, what)
    }

    /// Waits for a small message.
    pub fn message(&mut self, what: &str) -> Result<[u8; MESSAGE], Fault> {
        let (slot, bytes) = self.received(what)?;
        if bytes as usize != MESSAGE {
            return Err(Fault::WrongData(format!("{what} has {bytes} bytes and not {MESSAGE}")));
        }
        let mut message = [0; MESSAGE];
        self.messages.read(MESSAGE * (slot + 1), &mut message).map_err(|status| Fault::of(what, status))?;
        self.post_message(slot)?;
        Ok(message)
    }

    /// What a status is: the peer has gone, or something is wrong.
    pub fn fault(what: &str, status: NtStatus) -> Fault {
        match status {
            NtStatus::CANCELLED => Fault::Silent(format!("{what}: the connection has ended")),
            _ => Fault::of(what, status),
        }
    }

    /// Whether a last message has ended like this because the peer has it and has gone: then its answer may be lost, and nobody says it
    /// again. The disconnect event may come a moment after the completion.
    pub fn is_end(&self, fault: &Fault) -> bool {
        let begun = Instant::now();
        while matches!(fault, Fault::Silent(_)) && !self.gone.is_set() && begun.elapsed() < Duration::from_millis(200) {
            ndk_host::rest(Duration::from_millis(1));
        }
        matches!(fault, Fault::Silent(_)) && self.gone.is_set()
    }

    /// Waits until the peer has disconnected.
    pub fn wait_for_the_end(&self) -> Result<(), Fault> {
        let begun = Instant::now();
        while !self.gone.is_set() {
            self.line.go_on()?;
            if begun.elapsed() > self.line.patience() {
                return Err(Fault::Silent("the end of the connection".to_owned()));
            }
            ndk_host::rest(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Registers memory that the peer may use.
    pub fn region(&self, size: usize) -> Result<Mr, Fault> {
        let failed = |status| Fault::of("memory", status);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::READ_SINK;
        self.pd.register(self.line.adapter().memory(size).map_err(failed)?, rights).map_err(failed)
    }
}

/// Waits for completions: polls for a moment, then sleeps. Who drives the adapter brings them itself.
fn some<'place>(
    line: &Line<'_>,
    cq: &mut Cq,
    gone: &Gone,
    place: &'place mut [Completion],
    what: &str,
) -> Result<&'place [Completion], Fault> {
    // Also where nothing is ever waited for, because the peer is fast.
    line.go_on()?;
    let mut count = cq.poll(place).len();
    let begun = Instant::now();
    while count == 0 {
        if !ndk_host::drives() && begun.elapsed() < Duration::from_micros(30) {
            thread::yield_now();
            count = cq.poll(place).len();
            continue;
        }
        count = cq.wait_for(place, Notify::Any, WAIT).map_err(|status| Fault::of(what, status))?.len();
        if count == 0 {
            still_there(line, gone, begun, what)?;
        }
    }
    Ok(&place[..count])
}

/// Waits for a completion.
fn next(line: &Line<'_>, cq: &mut Cq, gone: &Gone, what: &str) -> Result<Completion, Fault> {
    some(line, cq, gone, &mut [Completion::EMPTY], what).map(|done| done[0])
}

/// An error if somebody wants the program to end, or the peer has gone, or has been waited for since `begun` for too long.
fn still_there(line: &Line<'_>, gone: &Gone, begun: Instant, what: &str) -> Result<(), Fault> {
    line.go_on()?;
    if gone.is_set() {
        return Err(Fault::Silent(format!("{what}: the peer has disconnected")));
    }
    if begun.elapsed() > line.patience() {
        return Err(Fault::Silent(what.to_owned()));
    }
    Ok(())
}
