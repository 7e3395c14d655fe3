//! `rping` of librdmacm against Linux' rxe: one frame a datagram over a UDP socket, the network cable of a QEMU guest.
//!
//! ```text
//! rping LOCAL-PORT REMOTE-PORT [--lose N] [--pcap FILE] [--linger SECONDS] CASE...
//! ```
//!
//! A case is `client/ADDRESS/SIZE/COUNT`, which connects to `rping -s` at the guest's address, or `server/SIZE/COUNT`, which answers one
//! `rping -c`. They run one after the other; data is compared. `--lose` drops that many frames of a thousand in each direction;
//! `--linger` goes on answering that long at the end.
//! `cargo xtask rxe` runs it all.

#![allow(clippy::cast_possible_truncation, reason = "frames and messages are small")]

// What the tests use too: cargo builds examples from a folder of their own.
#[path = "../tests/common/mod.rs"]
mod common;

use std::{
    fs::File,
    io::{self, Write},
    net::{IpAddr, SocketAddr, UdpSocket},
    process::ExitCode,
    time::{Duration, Instant},
};

use common::memory::Memory;
use roce::{
    Config, FRAME, Network, Stack,
    cm::{Connect, Event, EventKind, ReadLimits, Room, Times},
    qp::{Flags, Request, Sizes, Work},
};

const PORT: u16 = 7174;
const LIMITS: ReadLimits = ReadLimits { inbound: 16, outbound: 16 };
/// How long a case may take, and its guest to boot before.
const PATIENCE: Duration = Duration::from_mins(4);

/// What a client says about a buffer: address, key, size.
const MESSAGE: usize = 16;
const SOURCE: u32 = 0x0101;
const SINK: u32 = 0x0202;
/// Names of requests.
const TELL: u64 = 1;
const MOVE: u64 = 2;

type Failure = Box<dyn std::error::Error>;

/// A stack on a socket.
struct End {
    stack: Stack,
    memory: Memory,
    socket: UdpSocket,
    begun: Instant,
    pcap: Option<File>,
    lose: u32,
    random: u32,
    events: Vec<Event>,
    receives: u64,
}

impl End {
    fn new(local: u16, remote: u16, pcap: Option<&str>, lose: u32) -> Result<Self, Failure> {
        let networks = [
            Network { address: [10, 0, 0, 2].into(), prefix: 24 },
            Network { address: "fd00::2".parse()?, prefix: 64 },
        ];
        let config = Config {
            mac: [2, 0, 0, 0, 0, 2],
            tag: None,
            networks: &networks,
            gateways: [None, None],
            network_mtu: 1500,
            guid: 0x0000_00FF_FE00_0002,
            queue_pairs: 16,
            room: Room { connections: 16, half_open: 8, listeners: 2 },
            neighbours: 16,
            times: Times::default(),
            seed: std::process::id().into(),
        };
        let mut stack = Stack::new(&config).map_err(|error| error.to_string())?;
        stack.listen(None, PORT).map_err(|error| format!("{error:?}"))?;
        let socket = UdpSocket::bind(("127.0.0.1", local))?;
        socket.connect(("127.0.0.1", remote))?;
        let mut pcap = pcap.map(File::create).transpose()?;
        if let Some(file) = &mut pcap {
            for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 0x0001_0000, 1] {
                file.write_all(&word.to_le_bytes())?;
            }
        }
        let (memory, events) = (Memory::default(), Vec::new());
        Ok(Self { stack, memory, socket, begun: Instant::now(), pcap, lose, random: 12345, events, receives: 0 })
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    fn is_lost(&mut self) -> bool {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random / 0x1_0000 % 1000 < self.lose
    }

    fn note(&mut self, frame: &[u8]) -> io::Result<()> {
        let now = self.now();
        let Some(file) = &mut self.pcap else { return Ok(()) };
        let length = frame.len() as u32;
        for word in [(now / 1_000_000) as u32, (now % 1_000_000) as u32, length, length] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(frame)
    }

    /// Sends what may go, waits for a frame or the deadline, and takes what has come.
    fn turn(&mut self) -> Result<(), Failure> {
        let mut frame = [0; FRAME];
        while let Some(length) = self.stack.transmit(self.now(), &mut frame, &mut self.memory) {
            self.note(&frame[..length])?;
            if !self.is_lost() {
                // Nobody may be there yet.
                let _ = self.socket.send(&frame[..length]);
            }
        }
        let wait =
            self.stack.deadline().map_or(20_000, |deadline| deadline.saturating_sub(self.now())).clamp(100, 20_000);
        self.socket.set_read_timeout(Some(Duration::from_micros(wait)))?;
        for _ in 0..64 {
            match self.socket.recv(&mut frame) {
                Ok(length) => {
                    self.note(&frame[..length])?;
                    if !self.is_lost() {
                        self.stack.receive(self.now(), &frame[..length], &mut self.memory);
                    }
                    self.socket.set_nonblocking(true)?;
                }
                Err(_) => break,
            }
        }
        self.socket.set_nonblocking(false)?;
        self.stack.tick(self.now(), &mut self.memory);
        self.events.extend(std::iter::from_fn(|| self.stack.event()));
        Ok(())
    }

    /// Takes turns until `done` gives something.
    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> Result<T, Failure> {
        let begun = Instant::now();
        loop {
            if let Some(value) = done(self) {
                return Ok(value);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{what}: never; {:?}", self.stack.counters()).into());
            }
            self.turn()?;
        }
    }

    fn take_event(&mut self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        let place = self.events.iter().position(wanted)?;
        Some(self.events.remove(place))
    }

    fn create(&mut self) -> Result<u32, Failure> {
        let sizes = Sizes::default();
        let qp = self.stack.create_queue_pair(sizes).map_err(|error| error.to_string())?.ok_or("no queue pair left")?;
        for _ in 0..8 {
            self.receives += 1;
            self.memory.post_receive(self.receives, MESSAGE as u32);
        }
        Ok(qp)
    }

    fn post(&mut self, qp: u32, context: u64, work: Work, data: Vec<u8>) -> Result<(), Failure> {
        let request = Request { context, work, flags: Flags::default(), length: data.len() as u32 };
        self.memory.local.insert(context, data);
        self.stack.post(self.now(), qp, request, None).map_err(|error| format!("{error:?}"))?;
        Ok(())
    }

    /// Waits for the completion of the request that was posted.
    fn completed(&mut self, what: &str) -> Result<(), Failure> {
        let completed = self.until(what, |wire| wire.memory.completed.pop())?;
        completed.outcome.map_err(|failure| format!("{what}: {failure:?}").into())
    }

    fn message(&mut self, what: &str) -> Result<Vec<u8>, Failure> {
        let (received, bytes) =
            self.until(what, |wire| (!wire.memory.received.is_empty()).then(|| wire.memory.received.remove(0)))?;
        received.outcome.map_err(|failure| format!("{what}: {failure:?}"))?;
        self.receives += 1;
        self.memory.post_receive(self.receives, MESSAGE as u32);
        Ok(bytes)
    }

    fn end(&mut self, connection: u32, qp: u32) {
        let now = self.now();
        let _ = self.stack.close(now, connection, &mut self.memory);
        self.stack.destroy_queue_pair(now, qp, &mut self.memory);
        self.memory.receives.clear();
        self.memory.received.clear();
        self.memory.completed.clear();
        self.memory.filled.clear();
    }

    /// Connects to `rping -s`, and plays its client.
    fn client(&mut self, address: IpAddr, size: usize, count: u32) -> Result<(), Failure> {
        let begun = Instant::now();
        let qp = self.create()?;
        let local = if address.is_ipv4() { "10.0.0.2:0".parse()? } else { "[fd00::2]:0".parse()? };
        let connection = loop {
            let connect = Connect { qp, local, remote: SocketAddr::new(address, PORT), private: b"", limits: LIMITS };
            let now = self.now();
            let connection =
                self.stack.connect(now, &connect, &mut self.memory).map_err(|error| format!("{error:?}"))?;
            let connected = self.until("connect", |wire| {
                wire.take_event(|event| event.connection == connection && matches!(event.kind, EventKind::Connected(_)))
            })?;
            match connected.kind {
                EventKind::Connected(Ok(())) => break connection,
                // The guest boots, or its server does not listen yet.
                _ if begun.elapsed() < PATIENCE => self.stack.close(now, connection, &mut self.memory).unwrap_or(()),
                kind => return Err(format!("{kind:?}").into()),
            }
            let again = Instant::now() + Duration::from_millis(300);
            self.until("a while", |_| (Instant::now() > again).then_some(()))?;
        };
        let now = self.now();
        self.stack.complete_connect(now, connection, &mut self.memory).map_err(|error| format!("{error:?}"))?;
        for ping in 0..count {
            let mut data = format!("rdma-ping-{ping}: ").into_bytes();
            data.extend((data.len()..size - 1).map(|index| 65 + ((index as u32 + ping) % 58) as u8));
            data.push(0);
            self.memory.register(SOURCE, 0x1_0000, data.clone());
            self.memory.register(SINK, 0x20_0000, vec![0; size]);
            for (key, address) in [(SOURCE, 0x1_0000_u64), (SINK, 0x20_0000)] {
                let mut message = address.to_be_bytes().to_vec();
                message.extend(key.to_be_bytes());
                message.extend((size as u32).to_be_bytes());
                self.post(qp, TELL, Work::Send { invalidate: None }, message)?;
                self.completed("tell")?;
                self.message("an answer")?;
            }
            if self.memory.regions[&SINK].bytes != data {
                return Err(format!("ping {ping}: other bytes came back").into());
            }
        }
        let now = self.now();
        self.stack.disconnect(now, connection, &mut self.memory).map_err(|error| format!("{error:?}"))?;
        let ended = self.until("disconnect", |wire| {
            wire.take_event(|event| matches!(event.kind, EventKind::DisconnectComplete(_) | EventKind::Disconnected(_)))
        })?;
        if ended.kind != EventKind::DisconnectComplete(Ok(())) {
            return Err(format!("{:?}", ended.kind).into());
        }
        self.end(connection, qp);
        Ok(())
    }

    /// Answers one `rping -c`.
    fn server(&mut self, size: usize, count: u32) -> Result<(), Failure> {
        let connection =
            self.until("a request", |wire| wire.take_event(|event| event.kind == EventKind::Requested))?.connection;
        let qp = self.create()?;
        let now = self.now();
        let accepted = self.stack.accept(now, connection, qp, LIMITS, b"", &mut self.memory);
        accepted.map_err(|error| format!("{error:?}"))?;
        let established =
            self.until("accept", |wire| wire.take_event(|event| matches!(event.kind, EventKind::Accepted(_))))?;
        if established.kind != EventKind::Accepted(Ok(())) {
            return Err(format!("{:?}", established.kind).into());
        }
        for ping in 0..count {
            let (address, key, length) = read_message(&self.message("a source")?)?;
            if length != size {
                return Err(format!("the client has {length} bytes").into());
            }
            self.post(qp, MOVE, Work::Read { address, key }, vec![0; size])?;
            self.completed("READ")?;
            let data = self.memory.local[&MOVE].clone();
            if !data.starts_with(format!("rdma-ping-{ping}: ").as_bytes()) {
                return Err(format!("ping {ping}: other bytes: {:?}", String::from_utf8_lossy(&data[..20])).into());
            }
            self.post(qp, TELL, Work::Send { invalidate: None }, vec![0; MESSAGE])?;
            self.completed("go on")?;
            let (address, key, _) = read_message(&self.message("a sink")?)?;
            self.post(qp, MOVE, Work::Write { address, key }, data)?;
            self.post(qp, TELL, Work::Send { invalidate: None }, vec![0; MESSAGE])?;
            self.completed("WRITE")?;
            self.completed("done")?;
        }
        self.until("disconnect", |wire| wire.take_event(|event| matches!(event.kind, EventKind::Disconnected(_))))?;
        // The answer to the DREQ goes out.
        self.turn()?;
        self.end(connection, qp);
        Ok(())
    }
}

fn read_message(message: &[u8]) -> Result<(u64, u32, usize), Failure> {
    let message: &[u8; MESSAGE] = message.try_into()?;
    let address = u64::from_be_bytes(message[..8].try_into()?);
    let key = u32::from_be_bytes(message[8..12].try_into()?);
    Ok((address, key, u32::from_be_bytes(message[12..].try_into()?) as usize))
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut rest = arguments.iter().map(String::as_str);
    let (local, remote) = (rest.next().ok_or("no port")?.parse()?, rest.next().ok_or("no remote port")?.parse()?);
    let (mut pcap, mut lose, mut linger, mut cases) = (None, 0, 1, Vec::new());
    while let Some(argument) = rest.next() {
        match argument {
            "--pcap" => pcap = rest.next(),
            "--lose" => lose = rest.next().ok_or("lose how many?")?.parse()?,
            "--linger" => linger = rest.next().ok_or("linger how long?")?.parse()?,
            case => cases.push(case),
        }
    }
    let mut wire = End::new(local, remote, pcap, lose)?;
    for case in &cases {
        let begun = Instant::now();
        match case.split('/').collect::<Vec<_>>()[..] {
            ["client", address, size, count] => wire.client(address.parse()?, size.parse()?, count.parse()?),
            ["server", size, count] => wire.server(size.parse()?, count.parse()?),
            _ => Err("no such case".into()),
        }
        .map_err(|error| format!("{case}: {error}\n{:#?}", wire.stack.counters()))?;
        println!("{case}: right, {} ms", begun.elapsed().as_millis());
    }
    let end = Instant::now() + Duration::from_secs(linger);
    wire.until("the end", |_| (Instant::now() > end).then_some(()))?;
    println!("{:#?}", wire.stack.counters());
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
