//! Two adapters with a wire between them, and a connection.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the rows over UDP are measured on Linux only"))]

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, OnceLock},
    time::Instant,
};

use ndk::{
    Access, Adapter, Completion, Connection, Cq, Flags, Mr, Notify, Pd, Qp, QpSizes, Remote,
    host::{Cable, Config, InterfaceAddress, Plug, WireConfig, Wired},
};
use network::{Datagrams, Pump, Segment};

use crate::measure::each;

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
        self.qp.initiator.write(0, &element, to, Flags::empty()).expect("a write");
    }

    fn post_receive(&mut self) {
        let element = [self.mr.sge(WRITE, SMALL).expect("in the region")];
        self.qp.receiver.receive(0, &element).expect("a receive");
    }

    fn send(&mut self) {
        let element = [self.mr.sge(0, SMALL).expect("in the region")];
        self.qp.initiator.send(0, &element, Flags::empty()).expect("a send");
    }
}

/// Takes one completion, however long it sleeps for it.
fn wait(cq: &mut Cq) {
    let mut results = [Completion::EMPTY];
    let done = cq.wait_for(&mut results, Notify::Any, PATIENCE).expect("a notification");
    done.first().expect("a request completes").ok().expect("a request succeeds");
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
}

/// Two adapters whose frames go through memory: in the call that sends one it arrives.
pub struct InMemory {
    ends: Ends,
    remote: Remote,
    _wires: [Wired; 2],
}

impl InMemory {
    /// Makes and connects them.
    pub fn start() -> Self {
        let plugs: [Arc<OnceLock<Plug>>; 2] = Default::default();
        let wires = [0, 1].map(|number: usize| {
            let (config, wire, _) = config([1, 2][number]);
            let cable = Box::new(Straight(plugs[1 - number].clone()));
            let machine = host::machine::Machine::threads().processors(1).start();
            Wired::with(machine, config, wire, cable).expect("an adapter on a wire")
        });
        for (place, wire) in plugs.iter().zip(&wires) {
            assert!(place.set(wire.plug()).is_ok(), "it is set once");
        }
        let ends = Ends::connect(&wires, [config(1).2, config(2).2]);
        let remote = ends.far.mr.remote(0);
        Self { ends, remote, _wires: wires }
    }

    /// Writes, and waits for the completion.
    pub fn write(&mut self) {
        self.ends.near.write(self.remote);
        wait(&mut self.ends.near.sends);
    }
}

/// The way of frames into a socket.
struct Out(Arc<dyn Segment>);

impl Cable for Out {
    fn send(&self, frame: &[u8]) {
        // What cannot be sent is lost, as on any wire.
        let _ = self.0.send(frame);
    }

    fn send_all(&self, frames: &mut dyn Iterator<Item = &[u8]>) {
        let _ = self.0.send_all(&frames.collect::<Vec<_>>());
    }
}

/// Two adapters whose frames are datagrams on this machine.
pub struct OverUdp {
    ends: Ends,
    remote: Remote,
    _pumps: [Pump; 2],
    _wires: [Wired; 2],
}

impl OverUdp {
    /// Makes and connects them.
    pub fn start() -> Self {
        let free = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let ports = free.map(|socket| socket.local_addr().expect("an address"));
        let segments = [0, 1].map(|number: usize| -> Arc<dyn Segment> {
            Arc::new(Datagrams::open(ports[number], ports[1 - number]).expect("a socket"))
        });
        let wires = [0, 1].map(|number: usize| {
            let (config, wire, _) = config([1, 2][number]);
            Wired::start(config, wire, Box::new(Out(segments[number].clone()))).expect("an adapter on a wire")
        });
        let pumps = [0, 1].map(|number: usize| {
            let plug = wires[number].plug();
            Pump::start(segments[number].clone(), move |frame| plug.receive(frame)).expect("a thread")
        });
        let ends = Ends::connect(&wires, [config(1).2, config(2).2]);
        let remote = ends.far.mr.remote(0);
        Self { ends, remote, _pumps: pumps, _wires: wires }
    }

    /// Writes so many times; nanoseconds for a write.
    pub fn writes(&mut self, count: usize) -> f64 {
        let began = Instant::now();
        let near = &mut self.ends.near;
        for number in 0..count + IN_FLIGHT {
            if number >= IN_FLIGHT {
                wait(&mut near.sends);
            }
            if number < count {
                near.write(self.remote);
            }
        }
        each(began.elapsed(), count)
    }

    /// Sends a message there and one back, so many times; nanoseconds for both.
    pub fn round_trips(&mut self, count: usize) -> f64 {
        let Ends { near, far, .. } = &mut self.ends;
        near.post_receive();
        far.post_receive();
        let echo = |far: &mut End| {
            for number in 1..=count {
                wait(&mut far.receives);
                if number < count {
                    far.post_receive();
                }
                far.send();
                wait(&mut far.sends);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| echo(far));
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
        })
    }
}
