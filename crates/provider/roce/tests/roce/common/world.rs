//! Two stacks and a network between them, in virtual time.

use std::{collections::BTreeMap, net::SocketAddr};

use rand_xoshiro::{
    Xoshiro256StarStar,
    rand_core::{Rng, SeedableRng},
};
use roce::{
    Config, FRAME, Network, Stack,
    cm::{Connect, Event, EventKind, ReadLimits, Room, Times},
    qp::{Flags, Request, Sizes, Work},
};

use super::memory::Memory;

/// What the network does to frames, each in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairment {
    pub lost: u32,
    pub doubled: u32,
    pub late: u32,
    pub changed: u32,
}

pub struct Side {
    pub stack: Stack,
    pub memory: Memory,
    pub events: Vec<Event>,
}

pub struct World {
    pub sides: [Side; 2],
    pub now: u64,
    pub impairment: Impairment,
    /// Nothing arrives at this side.
    pub deaf: [bool; 2],
    /// Every frame that was sent, with its time.
    pub sent: Vec<(u64, usize, Vec<u8>)>,
    on_the_way: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    random: Xoshiro256StarStar,
    count: u64,
}

pub const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };
pub const PORT: u16 = 7174;
/// One way, in microseconds.
const DELAY: u64 = 50;

pub fn sizes() -> Sizes {
    Sizes { send_depth: 64, inline_bytes: 64, inbound_reads: 4, outbound_reads: 4, window: 64, before_ack: 8 }
}

/// The stack of a side: `10.0.0.1` and `fd00::1`, or `10.0.0.2` and `fd00::2`.
pub fn stack(side: usize, seed: u64, network_mtu: usize) -> Stack {
    make_stack(side, seed, network_mtu, None)
}

/// The same, with a tag.
pub fn tagged_stack(side: usize, seed: u64, tag: Option<u16>) -> Stack {
    make_stack(side, seed, 1500, tag)
}

fn make_stack(side: usize, seed: u64, network_mtu: usize, tag: Option<u16>) -> Stack {
    let last = side as u8 + 1;
    let networks = [
        Network { address: [10, 0, 0, last].into(), prefix: 24 },
        Network { address: format!("fd00::{last}").parse().expect("an address"), prefix: 64 },
    ];
    let config = Config {
        mac: [2, 0, 0, 0, 0, last],
        tag,
        networks: &networks,
        gateways: [None, None],
        network_mtu,
        guid: 0x0200_00FF_FE00_0000 | u64::from(last),
        queue_pairs: 16,
        room: Room { connections: 16, half_open: 4, listeners: 4 },
        neighbours: 8,
        times: Times::default(),
        seed: seed ^ u64::from(last) << 40,
    };
    Stack::new(&config).expect("memory")
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self::with_mtu(seed, 1500)
    }

    pub fn with_mtu(seed: u64, network_mtu: usize) -> Self {
        let side =
            |index| Side { stack: stack(index, seed, network_mtu), memory: Memory::default(), events: Vec::new() };
        Self {
            sides: [side(0), side(1)],
            now: 1_000_000,
            impairment: Impairment::default(),
            deaf: [false; 2],
            sent: Vec::new(),
            on_the_way: BTreeMap::new(),
            random: Xoshiro256StarStar::seed_from_u64(seed),
            count: 0,
        }
    }

    fn chance(&mut self, in_a_thousand: u32) -> bool {
        self.random.next_u32() % 1000 < in_a_thousand
    }

    pub fn number(&mut self, below: u32) -> u32 {
        self.random.next_u32() % below
    }

    /// A frame of `from` goes onto the network.
    fn carry(&mut self, from: usize, frame: &[u8]) {
        self.sent.push((self.now, from, frame.to_vec()));
        let Impairment { lost, doubled, late, changed } = self.impairment;
        let copies = if self.chance(doubled) { 2 } else { 1 };
        for _ in 0..copies {
            if self.chance(lost) {
                continue;
            }
            let mut frame = frame.to_vec();
            if self.chance(changed) {
                let at = self.number(frame.len() as u32) as usize;
                frame[at] ^= 1 << self.number(8);
            }
            let delay = if self.chance(late) { DELAY * u64::from(1 + self.number(40)) } else { DELAY };
            self.count += 1;
            self.on_the_way.insert((self.now + delay, self.count), (1 - from, frame));
        }
    }

    /// Puts a frame before a side, now.
    pub fn inject(&mut self, side: usize, frame: &[u8]) {
        let Side { stack, memory, .. } = &mut self.sides[side];
        stack.receive(self.now, frame, memory);
    }

    /// Sends everything that may go now.
    pub fn flush(&mut self) {
        let mut frame = vec![0; FRAME];
        for index in 0..2 {
            loop {
                let Side { stack, memory, .. } = &mut self.sides[index];
                let Some(length) = stack.transmit(self.now, &mut frame, memory) else { break };
                self.carry(index, &frame[..length]);
            }
        }
        for Side { stack, events, .. } in &mut self.sides {
            events.extend(std::iter::from_fn(|| stack.event()));
        }
    }

    /// Goes on to the next thing that happens; false if nothing ever will before `end`.
    pub fn step(&mut self, end: u64) -> bool {
        self.flush();
        let arrival = self.on_the_way.keys().next().map(|(time, _)| *time);
        let deadlines = self.sides.iter().filter_map(|side| side.stack.deadline());
        let Some(next) = deadlines.chain(arrival).min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.on_the_way.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (to, frame) = entry.remove();
            if !self.deaf[to] {
                self.inject(to, &frame);
            }
        }
        for Side { stack, memory, .. } in &mut self.sides {
            stack.tick(self.now, memory);
        }
        true
    }

    /// Runs for so many microseconds, or until nothing happens any more.
    pub fn run(&mut self, time: u64) {
        let end = self.now + time;
        let mut steps = 0;
        while self.step(end) {
            steps += 1;
            assert!(
                steps < 100_000,
                "no end: {:?} at {}",
                self.sides.each_ref().map(|side| side.stack.deadline()),
                self.now
            );
        }
        self.now = self.now.max(end);
    }

    /// Runs until `done`; panics if that is not within two minutes.
    pub fn run_until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now + 120_000_000;
        while !done(self) {
            assert!(self.step(end), "it never happens: {:?} {:?}", self.sides[0].events, self.sides[1].events);
        }
    }

    pub fn create(&mut self, side: usize) -> u32 {
        self.sides[side].stack.create_queue_pair(sizes()).expect("memory").expect("a place")
    }

    /// The event of a kind, which is taken.
    pub fn take_event(&mut self, side: usize, wanted: impl Fn(&EventKind) -> bool) -> Option<Event> {
        self.flush();
        let events = &mut self.sides[side].events;
        let place = events.iter().position(|event| wanted(&event.kind))?;
        Some(events.remove(place))
    }

    pub fn wait_event(&mut self, side: usize, wanted: impl Fn(&EventKind) -> bool + Copy) -> Event {
        self.run_until(|world| world.sides[side].events.iter().any(|event| wanted(&event.kind)));
        self.take_event(side, wanted).expect("the event")
    }

    pub fn addresses(v6: bool) -> (SocketAddr, SocketAddr) {
        let addresses = if v6 { ("[fd00::1]:0", "[fd00::2]:7174") } else { ("10.0.0.1:0", "10.0.0.2:7174") };
        (addresses.0.parse().expect("an address"), addresses.1.parse().expect("an address"))
    }

    /// Side 0 asks side 1. Returns the connection and the queue pair of side 0.
    pub fn ask(&mut self, v6: bool, private: &[u8]) -> (u32, u32) {
        let (qp, (local, remote)) = (self.create(0), Self::addresses(v6));
        let connect = Connect { qp, local, remote, private, limits: LIMITS };
        let Side { stack, memory, .. } = &mut self.sides[0];
        let connection = stack.connect(self.now, &connect, memory).expect("it begins");
        (connection, qp)
    }

    pub fn accept(&mut self, connection: u32, private: &[u8]) -> u32 {
        let qp = self.create(1);
        let Side { stack, memory, .. } = &mut self.sides[1];
        stack.accept(self.now, connection, qp, LIMITS, private, memory).expect("it begins");
        qp
    }

    pub fn complete_connect(&mut self, connection: u32) {
        let Side { stack, memory, .. } = &mut self.sides[0];
        stack.complete_connect(self.now, connection, memory).expect("a reply");
    }

    /// Connects. Returns connection and queue pair of each side.
    pub fn connect(&mut self, v6: bool) -> [(u32, u32); 2] {
        let _ = self.sides[1].stack.listen(None, PORT);
        let (connection, qp) = self.ask(v6, b"hello");
        let asked = self.wait_event(1, |kind| *kind == EventKind::Requested).connection;
        let accepted = self.accept(asked, b"welcome");
        self.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
        self.complete_connect(connection);
        self.wait_event(1, |kind| *kind == EventKind::Accepted(Ok(())));
        [(connection, qp), (asked, accepted)]
    }

    /// Lets the sides find each other's station: a connection comes and goes.
    pub fn meet(&mut self) {
        let [active, passive] = self.connect(false);
        self.close(0, active.0);
        self.run(1_000_000);
        self.close(1, passive.0);
        for side in &mut self.sides {
            side.events.clear();
        }
        self.sent.clear();
    }

    pub fn post(&mut self, side: usize, qp: u32, context: u64, work: Work, data: Vec<u8>) -> bool {
        let request = Request { context, work, flags: Flags::default(), length: data.len() as u32 };
        let Side { stack, memory, .. } = &mut self.sides[side];
        memory.local.insert(context, data);
        stack.post(self.now, qp, request, None).is_ok()
    }

    pub fn disconnect(&mut self, side: usize, connection: u32) {
        let Side { stack, memory, .. } = &mut self.sides[side];
        stack.disconnect(self.now, connection, memory).expect("it begins");
    }

    pub fn close(&mut self, side: usize, connection: u32) {
        let Side { stack, memory, .. } = &mut self.sides[side];
        stack.close(self.now, connection, memory).expect("it is there");
    }
}
