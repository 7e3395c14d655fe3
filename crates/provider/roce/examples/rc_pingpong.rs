//! `ibv_rc_pingpong -g` of libibverbs, by the crate `roce` alone: no NDKPI, and no connection manager, as that program has none.
//!
//! ```text
//! rc_pingpong --local 10.0.0.2/24 --peer 192.0.2.1:4789 [HOST]
//! ```
//!
//! Both sides tell each other their queue pairs over TCP: with a HOST this one connects to `ibv_rc_pingpong -g INDEX` there, without one it
//! waits for `ibv_rc_pingpong -g INDEX` to come. Then messages go to and fro, over RoCEv2 in VXLAN. That program receives where it
//! sends from, so it sends what it has got, and this one compares.
//! `cargo xtask rxe` runs both ways.

#![allow(clippy::cast_possible_truncation, reason = "lengths of messages, and times of minutes")]

// What the tests use too: cargo builds examples from a folder of their own.
#[path = "../tests/roce/common/mod.rs"]
mod common;

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use common::memory::Memory;
use pico_args::Arguments;
use roce::{
    Config, FRAME, Network, Stack,
    cm::{Room, Times},
    mtu::Mtu,
    path::Path,
    psn::Psn,
    qp::{Flags, Link, Request, Sizes, Work},
    timeout, vxlan,
};

const USAGE: &str = "\
rc_pingpong --local ADDRESS/PREFIX --peer ADDRESS:PORT [OPTIONS] [HOST]

  HOST                    where ibv_rc_pingpong waits, for TCP; without one this side waits
  --local ADDRESS/PREFIX  this side's address in the VXLAN network
  --peer ADDRESS:PORT     the other side of VXLAN
  --bind ADDRESS:PORT     this side of VXLAN [default: its port, of all addresses]
  --vni NUMBER            the network [default: 42]
  --port PORT             of TCP [default: 18515, as there]
  --size BYTES            of a message [default: 4096, as there]
  --iters COUNT           round trips [default: 1000, as there]
  --wait SECONDS          for the other side to come [default: 60]
  --lose COUNT            of a thousand frames, each way [default: 0]
";

type Failure = Box<dyn std::error::Error>;

/// What one side tells the other: local identifier, queue pair, first packet, address as a GID.
const TOLD: usize = "0000:000000:000000:00000000000000000000000000000000\0".len();
/// What the client says then.
const DONE: &[u8] = b"done\0";
/// Receives that wait, as many as the peer can fill at once and more.
const RECEIVES: u64 = 16;
/// How long the peer may be silent.
const PATIENCE: Duration = Duration::from_mins(1);
/// The peer is content if it says nothing for so long.
const CONTENT: Duration = Duration::from_secs(2);

struct Options {
    host: Option<String>,
    local: Network,
    peer: SocketAddr,
    bind: SocketAddr,
    vni: u32,
    port: u16,
    size: usize,
    iters: u32,
    wait: Duration,
    lose: u32,
}

fn network(text: &str) -> Result<Network, String> {
    let (address, prefix) = text.split_once('/').ok_or("an address and a prefix: 10.0.0.2/24")?;
    let address = address.parse().map_err(|error| format!("{address}: {error}"))?;
    Ok(Network { address, prefix: prefix.parse().map_err(|error| format!("{prefix}: {error}"))? })
}

/// All addresses of this machine, of the peer's family.
const fn any(peer: SocketAddr) -> IpAddr {
    match peer {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

impl Options {
    fn parse(mut arguments: Arguments) -> Result<Self, Failure> {
        let peer = arguments.value_from_str("--peer")?;
        let options = Self {
            local: arguments.value_from_fn("--local", network)?,
            peer,
            bind: arguments.opt_value_from_str("--bind")?.unwrap_or_else(|| (any(peer), vxlan::PORT).into()),
            vni: arguments.opt_value_from_str("--vni")?.unwrap_or(42),
            port: arguments.opt_value_from_str("--port")?.unwrap_or(18515),
            size: arguments.opt_value_from_str("--size")?.unwrap_or(4096),
            iters: arguments.opt_value_from_str("--iters")?.unwrap_or(1000),
            wait: Duration::from_secs(arguments.opt_value_from_str("--wait")?.unwrap_or(60)),
            lose: arguments.opt_value_from_str("--lose")?.unwrap_or(0),
            host: arguments.opt_free_from_str()?,
        };
        let rest = arguments.finish();
        if rest.is_empty() { Ok(options) } else { Err(format!("what is {rest:?}?").into()) }
    }
}

/// What a side says of its queue pair.
#[derive(Debug)]
struct Destination {
    qpn: u32,
    psn: Psn,
    address: IpAddr,
}

impl Destination {
    fn to_bytes(&self) -> Vec<u8> {
        let gid = match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        format!("0000:{:06x}:{:06x}:{:032x}\0", self.qpn, self.psn.get(), gid.to_bits()).into_bytes()
    }

    fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let text = std::str::from_utf8(bytes)?.trim_end_matches('\0');
        let [_, qpn, psn, gid] = text.split(':').collect::<Vec<_>>()[..] else { return Err(text.into()) };
        let gid = Ipv6Addr::from_bits(u128::from_str_radix(gid, 16)?);
        Ok(Self {
            qpn: u32::from_str_radix(qpn, 16)?,
            psn: Psn::new(u32::from_str_radix(psn, 16)?),
            address: gid.to_canonical(),
        })
    }
}

/// A stack on a VXLAN network, and its queue pair.
struct End {
    stack: Stack,
    memory: Memory,
    socket: UdpSocket,
    peer: SocketAddr,
    vni: u32,
    begun: Instant,
    heard: Instant,
    qp: u32,
    size: usize,
    receives: u64,
    lose: u32,
    random: u32,
}

impl End {
    fn new(options: &Options, random: u64) -> Result<Self, Failure> {
        let &Options { local, peer, bind, vni, size, lose, .. } = options;
        let [.., first, second] = random.to_be_bytes();
        let config = Config {
            mac: [2, 0, 0, 1, first, second],
            tag: None,
            networks: &[local],
            gateways: [None; 2],
            network_mtu: 1450,
            guid: random | 1,
            queue_pairs: 1,
            room: Room { connections: 1, half_open: 1, listeners: 1 },
            neighbours: 4,
            times: Times::default(),
            seed: random,
        };
        let mut stack = Stack::new(&config).map_err(|error| error.to_string())?;
        let qp =
            stack.create_queue_pair(Sizes::default()).map_err(|error| error.to_string())?.ok_or("no queue pair")?;
        let socket = UdpSocket::bind(bind).map_err(|error| format!("{bind}: {error}"))?;
        let (memory, now) = (Memory::default(), Instant::now());
        let mut end =
            Self { stack, memory, socket, peer, vni, begun: now, heard: now, qp, size, receives: 0, lose, random: 1 };
        (0..RECEIVES).for_each(|_| end.post_receive());
        Ok(end)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    fn is_lost(&mut self) -> bool {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random / 0x1_0000 % 1000 < self.lose
    }

    fn post_receive(&mut self) {
        self.receives += 1;
        self.memory.post_receive(self.receives, self.size as u32);
    }

    /// Sends what may go, waits for a frame or the deadline, and takes in what has come.
    fn turn(&mut self) -> Result<(), Failure> {
        let (mut frame, mut datagram) = ([0; FRAME], [0; FRAME + vxlan::HEADER]);
        while let Some(length) = self.stack.transmit(self.now(), &mut frame, &mut self.memory) {
            let length = vxlan::encapsulate(self.vni, &frame[..length], &mut datagram).ok_or("a long frame")?;
            if !self.is_lost() {
                // Nobody may be there yet.
                let _ = self.socket.send_to(&datagram[..length], self.peer);
            }
        }
        let due = self.stack.deadline().map_or(20_000, |deadline| deadline.saturating_sub(self.now()));
        self.socket.set_read_timeout(Some(Duration::from_micros(due.clamp(100, 20_000))))?;
        // Linux' VXLAN has a source port for each flow.
        if let Ok((length, from)) = self.socket.recv_from(&mut datagram)
            && from.ip() == self.peer.ip()
            && let Some((vni, frame)) = vxlan::decapsulate(&datagram[..length])
            && vni == self.vni
            && !self.is_lost()
        {
            self.heard = Instant::now();
            self.stack.receive(self.now(), frame, &mut self.memory);
        }
        self.stack.tick(self.now(), &mut self.memory);
        Ok(())
    }

    /// Takes turns until `done` gives something.
    fn until<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        self.heard = Instant::now();
        loop {
            if let Some(value) = done(self)? {
                return Ok(value);
            }
            if self.heard.elapsed() > PATIENCE {
                return Err(format!("{what}: nothing comes; {:#?}", self.stack.counters()).into());
            }
            self.turn()?;
        }
    }

    fn connect(&mut self, local: IpAddr, psn: Psn, peer: &Destination) -> Result<(), Failure> {
        let path = Path {
            local,
            remote: peer.address,
            traffic_class: 0,
            hop_limit: 64,
            // The stack knows these.
            local_mac: [0; 6],
            remote_mac: [0; 6],
            tag: None,
            source_port: 0,
        };
        // The rest is what ibv_rc_pingpong has.
        let link = Link {
            qp: self.qp,
            remote_qpn: peer.qpn,
            path,
            mtu: Mtu::Bytes1024,
            send_psn: psn,
            receive_psn: peer.psn,
            inbound_reads: 1,
            outbound_reads: 1,
            ack_timeout: timeout::of_code(14),
            retry_count: 7,
            rnr_retry_count: 7,
            rnr_timer: 12,
        };
        self.until("the peer's station", |end| match end.stack.connect_out_of_band(end.now(), &link) {
            Ok(connected) => Ok(connected.then_some(())),
            Err(error) => Err(format!("{}: {error:?}", peer.address).into()),
        })
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        let length = message.len() as u32;
        let request = Request { context: 1, work: Work::Send { invalidate: None }, flags: Flags::default(), length };
        self.memory.local.insert(1, message.to_vec());
        self.stack.post(self.now(), self.qp, request, None).map_err(|error| format!("{error:?}").into())
    }

    /// Waits until what was sent has arrived.
    fn sent(&mut self) -> Result<(), Failure> {
        let completed = self.until("a completion", |end| Ok(end.memory.completed.pop()))?;
        completed.outcome.map_err(|failure| format!("a send has failed: {failure:?}").into())
    }

    fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        let take = |end: &mut Self| {
            if let Some(failed) = end.memory.completed.iter().find_map(|completed| completed.outcome.err()) {
                return Err(format!("a send has failed: {failed:?}").into());
            }
            Ok((!end.memory.received.is_empty()).then(|| end.memory.received.remove(0)))
        };
        let (received, bytes) = self.until("a message", take)?;
        received.outcome.map_err(|failure| format!("a receive has failed: {failure:?}"))?;
        self.post_receive();
        Ok(bytes)
    }
}

/// Reads from the peer. Who it is may be asked for meanwhile.
fn hear(end: &mut End, stream: &mut TcpStream, mut bytes: &mut [u8]) -> Result<(), Failure> {
    stream.set_nonblocking(true)?;
    end.until("what the peer has", |_| {
        while !bytes.is_empty() {
            match stream.read(bytes) {
                Ok(0) => return Err("it has hung up".into()),
                Ok(length) => bytes = &mut std::mem::take(&mut bytes)[length..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(()))
    })?;
    Ok(stream.set_nonblocking(false)?)
}

/// Connects to the server and hears of it. It may still have to come: then nobody accepts, or whoever does hangs up, as a user network
/// does.
fn reach(
    end: &mut End,
    host: &str,
    options: &Options,
    mine: &Destination,
) -> Result<(TcpStream, Destination), Failure> {
    let mut meet = || -> Result<_, Failure> {
        let (mut stream, mut told) = (TcpStream::connect((host, options.port))?, [0; TOLD]);
        stream.write_all(&mine.to_bytes())?;
        hear(end, &mut stream, &mut told)?;
        Ok((stream, Destination::parse(&told)?))
    };
    let begun = Instant::now();
    loop {
        match meet() {
            Err(error) if begun.elapsed() >= options.wait => return Err(format!("{host}: {error}").into()),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
            met => return met,
        }
    }
}

/// Waits for the client.
fn await_client(options: &Options) -> Result<TcpStream, Failure> {
    let listener = TcpListener::bind((any(options.peer), options.port))?;
    listener.set_nonblocking(true)?;
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && begun.elapsed() < options.wait => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(format!("nobody has come: {error}").into()),
        }
    }
}

/// Both sides tell each other what they have, and the queue pairs are connected.
fn meet(end: &mut End, options: &Options, psn: Psn) -> Result<(), Failure> {
    let mine = Destination { qpn: end.qp, psn, address: options.local.address };
    if let Some(host) = &options.host {
        let (mut stream, told) = reach(end, host, options, &mine)?;
        end.connect(mine.address, psn, &told)?;
        stream.write_all(DONE)?;
    } else {
        let (mut stream, mut told) = (await_client(options)?, [0; TOLD]);
        hear(end, &mut stream, &mut told)?;
        // Before the answer: the client begins when it has that.
        end.connect(mine.address, psn, &Destination::parse(&told)?)?;
        stream.write_all(&mine.to_bytes())?;
        hear(end, &mut stream, &mut told[..DONE.len()])?;
    }
    Ok(())
}

/// The bytes of a message.
fn message(size: usize, number: u32) -> Vec<u8> {
    (0..size).map(|index| (index as u32).wrapping_mul(31).wrapping_add(number) as u8).collect()
}

fn run(options: &Options) -> Result<(), Failure> {
    let random = RandomState::new().build_hasher().finish();
    let mut end = End::new(options, random)?;
    meet(&mut end, options, Psn::new((random >> 16) as u32 & 0xFF_FFFF))?;
    let is_client = options.host.is_some();
    let begun = Instant::now();
    let mut before = None;
    for number in 0..options.iters {
        let sent = message(options.size, number);
        if is_client {
            end.send(&sent)?;
        }
        let came = end.receive()?;
        let is_right = match &before {
            // That program sends what it has got: as a server this message, as a client the one before, and bytes of its own first.
            _ if came == sent => true,
            _ if is_client => false,
            Some(before) => came == *before,
            None => came.len() == options.size,
        };
        if !is_right {
            return Err(format!("round trip {number}: other bytes came").into());
        }
        if !is_client {
            end.send(&sent)?;
        }
        end.sent()?;
        before = Some(sent);
    }
    let time = begun.elapsed();
    // The last ACK may have been lost.
    while end.heard.elapsed() < CONTENT {
        end.turn()?;
    }
    let (iters, size) = (options.iters, options.size);
    println!("{iters} round trips of {size} bytes, {:.1} us each", time.as_secs_f64() * 1e6 / f64::from(iters));
    Ok(())
}

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::from_env();
    if arguments.contains(["-h", "--help"]) {
        print!("{USAGE}");
        return Ok(());
    }
    run(&Options::parse(arguments).map_err(|error| format!("{error}; --help"))?)
}
