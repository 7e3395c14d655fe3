//! Two adapters with a wire between them, and a connection.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the rows over UDP are measured on Linux only"))]

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Barrier, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use host::machine::{Machine, OnProcessor};
use ndk::{
    Access, Adapter, Completion, Connection, Cq, Flags, Mr, Notify, Pd, Qp, QpSizes, Remote,
    host::{Cable, Config, Driver, InterfaceAddress, Outlet, Plug, WireConfig, Wired, at_dispatch},
};
use network::{Datagrams, Pump, Segment};

use crate::measure::{Cores, each};

/// Bytes of a write.
pub const WRITE: usize = 64 << 10;
/// Bytes of it in a packet, on Ethernet of 1500.
pub const PAYLOAD: usize = 1024;
/// Writes that are on their way at once over UDP: as many packets as the plain program has.
pub const IN_FLIGHT: usize = 2;
/// Bytes of a small message.
const SMALL: u32 = 8;
/// How long a completion may take, in microseconds.
const PATIENCE: u64 = 20_000_000;
/// How long a thread looks for frames before it sleeps.
pub const SPIN: Duration = Duration::from_micros(50);
/// How long a thread waits for frames at most: how late it notices an end.
const LOOK: Duration = Duration::from_millis(5);

/// One end of a connection.
struct End {
    qp: Qp,
    sends: Cq,
    receives: Cq,
    mr: Mr,
    _pd: Pd,
}

impl End {
    fn new(adapter: &Adapter) -> Self {
        let pd = adapter.create_pd().expect("a protection domain");
        let memory = adapter.memory(WRITE + PAYLOAD).expect("memory");
        let mr = pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("a region");
        let [sends, receives] = [0, 1].map(|_| adapter.create_cq(64).expect("a completion queue"));
        let qp = pd.create_qp(&receives, &sends, QpSizes::default(), 0).expect("a queue pair");
        Self { qp, sends, receives, mr, _pd: pd }
    }

    fn write(&mut self, to: Remote) {
        let element = [self.mr.sge(0, u32::try_from(WRITE).expect("it fits")).expect("in the region")];
        at_dispatch(|| self.qp.initiator.write(0, &element, to, Flags::empty())).expect("a write");
    }

    fn post_receive(&mut self) {
        let element = [self.mr.sge(WRITE, SMALL).expect("in the region")];
        self.qp.receiver.receive(0, &element).expect("a receive");
    }

    fn send(&mut self) {
        let element = [self.mr.sge(0, SMALL).expect("in the region")];
        at_dispatch(|| self.qp.initiator.send(0, &element, Flags::empty())).expect("a send");
    }
}

/// Takes one completion, however long it sleeps for it.
fn wait(cq: &mut Cq) {
    let mut results = [Completion::EMPTY];
    let done = cq.wait_for(&mut results, Notify::Any, PATIENCE).expect("a notification");
    done.first().expect("a request completes").ok().expect("a request succeeds");
}

/// Takes one completion by polling: between two polls it lets `turn` bring one.
fn poll(cq: &mut Cq, mut turn: impl FnMut()) {
    let mut results = [Completion::EMPTY];
    let begun = Instant::now();
    loop {
        if let [done] = cq.poll(&mut results) {
            done.ok().expect("a request succeeds");
            return;
        }
        turn();
        assert!(begun.elapsed() < Duration::from_micros(PATIENCE), "a request completes");
    }
}

fn config(number: u8) -> (Config, WireConfig, SocketAddr) {
    let address = Ipv4Addr::new(192, 0, 2, number);
    let mut config = Config { addresses: [None; _], ..Config::default() };
    config.addresses[0] = Some(InterfaceAddress::new(address.into(), 24));
    (config, WireConfig::new([2, 0, 0, 0, 0, number]), (address, 0).into())
}

/// Two connected ends. What is declared first ends first.
struct Ends {
    near: End,
    far: End,
    _connections: [Connection; 2],
    _adapters: [Adapter; 2],
}

impl Ends {
    fn connect(wires: &[Wired; 2], [near_at, far_at]: [SocketAddr; 2]) -> Self {
        let adapters = [0, 1].map(|number: usize| wires[number].open().expect("an adapter"));
        let [near, far] = [0, 1].map(|number: usize| End::new(&adapters[number]));
        let acceptor = adapters[1].acceptor(far_at).expect("a listener");
        let offer = ndk::Offer::default();
        let connections = acceptor.connect((&adapters[0], near_at), &near.qp, &far.qp, &offer, PATIENCE);
        Self { near, far, _connections: connections.expect("a connection"), _adapters: adapters }
    }
}

/// Leads to the other adapter, in the call.
struct Straight(Arc<OnceLock<Plug>>);

impl Cable for Straight {
    fn send(&self, frame: &[u8]) {
        if let Some(far) = self.0.get() {
            far.receive(frame);
        }
    }

    fn send_all(&self, frames: &mut dyn Iterator<Item = &[u8]>) {
        if let Some(far) = self.0.get() {
            far.receive_all(&frames.collect::<Vec<_>>());
        }
    }
}

/// A machine with one processor: what a thread is on that does the work itself.
fn machine() -> Machine {
    Machine::threads().processors(1).start()
}

/// Two adapters whose frames go through memory: in the call that sends one it arrives. Both are on the processor that the consumer is on,
/// which posts at `DISPATCH_LEVEL`: their calls run there when the level drops, one after the other, as in a kernel with one core.
pub struct InMemory {
    _on: OnProcessor,
    ends: Ends,
    remote: Remote,
    _wires: [Wired; 2],
}

impl InMemory {
    /// Makes and connects them.
    pub fn start() -> Self {
        let plugs: [Arc<OnceLock<Plug>>; 2] = Default::default();
        let cable = |number: usize| Box::new(Straight(plugs[1 - number].clone()));
        let [(near, near_wire, near_at), (far, far_wire, far_at)] = [config(1), config(2)];
        let near = Wired::unwatched(machine(), near, near_wire, cable(0)).expect("an adapter on a wire");
        let far = near.beside(far, far_wire, cable(1)).expect("an adapter on a wire");
        let wires = [near, far];
        for (place, wire) in plugs.iter().zip(&wires) {
            assert!(place.set(wire.plug()).is_ok(), "it is set once");
        }
        let ends = Ends::connect(&wires, [near_at, far_at]);
        let remote = ends.far.mr.remote(0);
        Self { _on: wires[0].machine().run_on(0), ends, remote, _wires: wires }
    }

    /// Writes, and takes the completion.
    pub fn write(&mut self) {
        self.ends.near.write(self.remote);
        poll(&mut self.ends.near.sends, thread::yield_now);
    }
}

/// Two adapters whose frames are datagrams on this machine, each side with all its threads on its own core, as on a machine of its own.
pub struct OverUdp {
    cores: Cores,
    ends: Ends,
    remote: Remote,
    segments: [Arc<dyn Segment>; 2],
    wires: [Wired; 2],
}

impl OverUdp {
    /// Makes and connects them. The near side is on the first core, with the current thread.
    pub fn start(cores: Cores) -> Self {
        let free = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let ports = free.map(|socket| socket.local_addr().expect("an address"));
        let segments = [0, 1].map(|number: usize| -> Arc<dyn Segment> {
            Arc::new(Datagrams::open(ports[number], ports[1 - number]).expect("a socket"))
        });
        let wires = on_each(cores, |number| {
            let (config, wire, _) = config([1, 2][number]);
            let out = segments[number].clone();
            let cable = Box::new(Outlet(move |frames: &[&[u8]]| drop(out.send_all(frames))));
            Wired::unwatched(machine(), config, wire, cable).expect("an adapter on a wire")
        });
        let pumps = pumps(cores, &segments, &wires);
        let ends = Ends::connect(&wires, [config(1).2, config(2).2]);
        drop(pumps);
        let remote = ends.far.mr.remote(0);
        Self { cores, ends, remote, segments, wires }
    }

    /// Writes so many times; nanoseconds for a write. The writer drives its adapter, and a thread that does nothing else the other one.
    pub fn writes(&mut self, count: usize) -> f64 {
        let Self { cores, ends, remote, segments, wires } = self;
        let near = &mut ends.near;
        let ends = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                cores.pin_second();
                let mut driver = drive(&wires[1], &segments[1]);
                while !ends.load(Relaxed) {
                    driver.turn(LOOK);
                }
            });
            let mut driver = drive(&wires[0], &segments[0]);
            let began = Instant::now();
            for number in 0..count + IN_FLIGHT {
                if number >= IN_FLIGHT {
                    poll(&mut near.sends, || _ = driver.turn(LOOK));
                }
                if number < count {
                    near.write(*remote);
                }
            }
            let took = each(began.elapsed(), count);
            ends.store(true, Relaxed);
            took
        })
    }

    /// Sends a message there and one back, so many times; nanoseconds for both. Each side drives its adapter and polls.
    pub fn round_trips(&mut self, count: usize) -> f64 {
        let Self { cores, ends: Ends { near, far, .. }, segments, wires, .. } = self;
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            let answers = scope.spawn(|| {
                cores.pin_second();
                let mut driver = drive(&wires[1], &segments[1]);
                echo(far, count, &begin, |cq| poll(cq, || _ = driver.turn(LOOK)));
            });
            let mut driver = drive(&wires[0], &segments[0]);
            let took = ask(near, count, &begin, |cq| poll(cq, || _ = driver.turn(LOOK)));
            // What the other side waits for yet.
            while !answers.is_finished() {
                driver.turn(LOOK);
            }
            took
        })
    }

    /// The same between consumers that wait for notifications, while threads of the machine do the work and others bring frames in.
    pub fn round_trips_by_threads(&mut self, count: usize) -> f64 {
        let Self { cores, ends: Ends { near, far, .. }, segments, wires, .. } = self;
        let _pumps = pumps(*cores, segments, wires);
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                cores.pin_second();
                echo(far, count, &begin, wait);
            });
            ask(near, count, &begin, wait)
        })
    }
}

/// Makes something of each side on its core, on which the threads that it starts stay. The current thread is on the first one then.
fn on_each<T>(cores: Cores, mut make: impl FnMut(usize) -> T) -> [T; 2] {
    cores.pin_second();
    let far = make(1);
    cores.pin_first();
    [make(0), far]
}

/// Threads that bring frames in.
fn pumps(cores: Cores, segments: &[Arc<dyn Segment>; 2], wires: &[Wired; 2]) -> [Pump; 2] {
    on_each(cores, |number| {
        let plug = wires[number].plug();
        Pump::start(segments[number].clone(), move |frame| plug.receive(frame)).expect("a thread")
    })
}

/// Lets the current thread drive an adapter.
fn drive(wire: &Wired, segment: &Arc<dyn Segment>) -> Driver {
    let segment = segment.clone();
    wire.drive(SPIN, move |patience, take| segment.receive(patience, take).expect("a socket"))
}

/// Answers so many messages.
fn echo(far: &mut End, count: usize, ready: &Barrier, mut wait: impl FnMut(&mut Cq)) {
    far.post_receive();
    ready.wait();
    for number in 1..=count {
        wait(&mut far.receives);
        if number < count {
            far.post_receive();
        }
        far.send();
        wait(&mut far.sends);
    }
}

/// Sends so many messages and waits for their answers; nanoseconds for both.
fn ask(near: &mut End, count: usize, begin: &Barrier, mut wait: impl FnMut(&mut Cq)) -> f64 {
    near.post_receive();
    begin.wait();
    let began = Instant::now();
    for number in 1..=count {
        near.send();
        wait(&mut near.receives);
        if number < count {
            near.post_receive();
        }
        wait(&mut near.sends);
    }
    each(began.elapsed(), count)
}
