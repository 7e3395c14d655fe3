//! One queue pair, and packets made by hand for it.

use roce::{
    Counters, FRAME, Failure,
    mtu::Mtu,
    path::Path,
    psn::Psn,
    qp::{Flags, Link, QueuePair, Request, Sizes, State, Work},
    wire::{Aeth, Bth, Envelope, Extended, Opcode, Packet, Reth, Syndrome, U24},
};

use super::memory::Memory;

/// The queue pair, and its peer's.
pub const QP: u32 = 0x11;
pub const PEER: u32 = 0x22;
/// The first number of each direction.
pub const IN: u32 = 0xFF_FFFE;
pub const OUT: u32 = 0xFF_FFFD;
/// What an unanswered request waits for.
pub const TIMEOUT: u64 = 67_108;

pub fn path() -> Path {
    Path {
        local_mac: [2, 0, 0, 0, 0, 1],
        remote_mac: [2, 0, 0, 0, 0, 2],
        tag: None,
        local: [10, 0, 0, 1].into(),
        remote: [10, 0, 0, 2].into(),
        source_port: 0xC001,
        traffic_class: 0,
        hop_limit: 64,
    }
}

pub fn link() -> Link {
    Link {
        qp: QP,
        remote_qpn: PEER,
        path: path(),
        mtu: Mtu::Bytes256,
        send_psn: Psn::new(OUT),
        receive_psn: Psn::new(IN),
        inbound_reads: 2,
        outbound_reads: 2,
        ack_timeout: Some(TIMEOUT),
        retry_count: 3,
        rnr_retry_count: 2,
        rnr_timer: 14,
    }
}

/// A packet that went out.
#[derive(Debug)]
pub struct Sent {
    pub bth: Bth,
    pub extended: Extended,
    pub payload: Vec<u8>,
}

impl Sent {
    /// Opcode and distance of its number from the first one.
    pub fn short(&self, first: u32) -> (Opcode, u32) {
        (self.bth.opcode, self.bth.psn.since(Psn::new(first)))
    }

    pub fn syndrome(&self) -> u8 {
        self.extended.aeth.expect("an AETH").syndrome
    }

    pub fn msn(&self) -> u32 {
        self.extended.aeth.expect("an AETH").msn.get()
    }
}

pub struct Rig {
    pub qp: QueuePair,
    pub memory: Memory,
    pub counters: Counters,
    pub now: u64,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(link())
    }

    pub fn with(link: Link) -> Self {
        let sizes =
            Sizes { send_depth: 16, inline_bytes: 32, inbound_reads: 2, outbound_reads: 2, window: 64, before_ack: 8 };
        let mut qp = QueuePair::new(QP, sizes).expect("memory");
        assert!(qp.connect(link));
        Self { qp, memory: Memory::default(), counters: Counters::default(), now: 1_000_000 }
    }

    /// A packet of the peer. `psn` counts from the first one that is expected.
    pub fn feed(&mut self, opcode: Opcode, psn: u32, extended: Extended, payload: &[u8]) {
        self.feed_from(opcode, Psn::new(IN).plus(psn), extended, payload, path().remote);
    }

    pub fn feed_from(
        &mut self,
        opcode: Opcode,
        psn: Psn,
        extended: Extended,
        payload: &[u8],
        source: std::net::IpAddr,
    ) {
        let mut bth = Bth::new(opcode, QP, psn);
        bth.acknowledge = opcode.position().ends();
        let way = path();
        let back =
            Path { local: source, remote: way.local, local_mac: way.remote_mac, remote_mac: way.local_mac, ..way };
        let mut frame = vec![0; FRAME];
        let fill = |bytes: &mut [u8]| {
            bytes.copy_from_slice(payload);
            Ok::<(), ()>(())
        };
        let length = back.emit(bth, &extended, payload.len() as u32, &mut frame, fill).expect("a frame");
        let (envelope, packet) = Envelope::parse(&frame[..length]).expect("a packet");
        self.qp.receive(self.now, &envelope, &packet, &mut self.memory, &mut self.counters);
    }

    /// A SEND of one packet.
    pub fn send_only(&mut self, psn: u32, payload: &[u8]) {
        self.feed(Opcode::SendOnly, psn, Extended::default(), payload);
    }

    pub fn read(&mut self, psn: u32, address: u64, key: u32, length: u32) {
        let extended = Extended { reth: Some(Reth::new(address, key, length)), ..Extended::default() };
        self.feed(Opcode::ReadRequest, psn, extended, &[]);
    }

    /// An answer to what this side has sent. `psn` counts from its first packet.
    pub fn answer(&mut self, syndrome: Syndrome, psn: u32) {
        let aeth = Aeth { syndrome: syndrome.to_byte(), msn: U24::new(0) };
        let extended = Extended { aeth: Some(aeth), ..Extended::default() };
        let from = path().remote;
        self.feed_from(Opcode::Acknowledge, Psn::new(OUT).plus(psn), extended, &[], from);
    }

    pub fn response(&mut self, opcode: Opcode, psn: u32, payload: &[u8]) {
        let aeth = opcode.has_aeth().then_some(Aeth { syndrome: 0x1F, msn: U24::new(0) });
        let from = path().remote;
        self.feed_from(opcode, Psn::new(OUT).plus(psn), Extended { aeth, ..Extended::default() }, payload, from);
    }

    pub fn post(&mut self, context: u64, work: Work, data: Vec<u8>) {
        self.post_with(context, work, data, Flags::default());
    }

    pub fn post_with(&mut self, context: u64, work: Work, data: Vec<u8>, flags: Flags) {
        let length = data.len() as u32;
        self.memory.local.insert(context, data);
        self.qp.post(Request { context, work, flags, length }, None).expect("room");
    }

    /// The next packet that goes out.
    pub fn take(&mut self) -> Option<Sent> {
        let mut frame = vec![0; FRAME];
        let length = self.qp.transmit(self.now, &mut frame, &mut self.memory, &mut self.counters)?;
        let (_, Packet { bth, extended, payload }) = Envelope::parse(&frame[..length]).expect("a packet");
        Some(Sent { bth, extended, payload: payload.to_vec() })
    }

    pub fn take_all(&mut self) -> Vec<Sent> {
        std::iter::from_fn(|| self.take()).collect()
    }

    pub fn short(&mut self, first: u32) -> Vec<(Opcode, u32)> {
        self.take_all().iter().map(|sent| sent.short(first)).collect()
    }

    /// Waits until the queue pair's deadline.
    pub fn wait(&mut self) {
        self.now = self.qp.deadline().expect("a deadline").max(self.now);
        self.qp.tick(self.now, &mut self.memory, &mut self.counters);
    }

    pub fn failure(&self) -> Option<Failure> {
        match self.qp.state() {
            State::Error(failure) => Some(failure),
            _ => None,
        }
    }
}
