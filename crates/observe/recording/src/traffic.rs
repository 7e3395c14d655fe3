//! The frames of a recording in words: whose they are, what they do, which of them are sent again, and what they belong to.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt::Write as _,
    net::IpAddr,
};

use interpose::{Function, Phase};
use roce::{
    mtu::Mtu,
    wire::{Envelope, Ethernet, Kind, Nak, Opcode, Packet, Syndrome, Unreadable, cm, ethernet::ethertype},
};

use crate::{
    Arguments, Frame, Outcome, Record, Recording,
    timeline::{Names, describe},
};

/// What a frame is to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A part of a message, or data of a READ.
    Packet,
    /// A part of a message, or data of a READ, that this side has sent before.
    Again,
    /// An ACK.
    Ack,
    /// A NAK, or an RNR NAK.
    Nak,
    /// A message of the connection manager, ARP or neighbour discovery.
    Management,
    /// Nothing that an adapter looks at: its ICRC is wrong, or its headers are.
    Unreadable,
}

/// A frame in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub what: What,
    /// The queue pair of the recording that it is of; `None` if it is of none, or its connection began before the recording.
    pub qp: Option<u32>,
    /// A few words: `SEND only 17`.
    pub label: String,
    /// Sentences: what it is, from whom to whom, what it belongs to.
    pub text: String,
}

/// A queue pair, as far as its frames tell.
#[derive(Default)]
struct Side {
    /// Requests that were posted and of which no packet was seen yet, the oldest first.
    posted: VecDeque<(Kind, String)>,
    /// Messages that were sent: the number of the first packet, and what was posted.
    messages: VecDeque<(u32, String)>,
    /// The highest numbers that were sent: of requests, of answers.
    highest: [Option<u32>; 2],
    mtu: Option<Mtu>,
}

/// Messages of a queue pair that are remembered: more than can be on their way.
const MESSAGES: usize = 512;
/// The numbers of packets have so many bits.
const PSN_BITS: u32 = 24;

/// Returns true if `psn` comes behind `other`, in the circle of numbers.
const fn is_behind(psn: u32, other: u32) -> bool {
    let distance = psn.wrapping_sub(other) & ((1 << PSN_BITS) - 1);
    distance != 0 && distance < 1 << (PSN_BITS - 1)
}

/// What is known of connections from the messages of their managers.
#[derive(Default)]
struct Managers {
    /// Of a REQ: wire, whether it came in, its communication id, the peer: the sender's queue pair and the MTU.
    wanted: HashMap<(u8, bool, u32, IpAddr), (u32, u8)>,
    /// Of a peer's queue pair: wire, the peer's address, its number: the number of this side's.
    peers: HashMap<(u8, IpAddr, u32), (u32, u8)>,
}

impl Managers {
    fn learn(&mut self, frame: &Frame, peer: IpAddr, mad: &cm::Mad) {
        let wire = frame.wire;
        match mad.attribute() {
            Some(cm::Attribute::Req) => {
                let Some(req) = mad.message::<cm::Req>() else { return };
                let key = (wire, frame.came_in, req.local_id.get(), peer);
                self.wanted.insert(key, (req.qpn.get(), req.mtu_code()));
            }
            Some(cm::Attribute::Rep) => {
                let Some(rep) = mad.message::<cm::Rep>() else { return };
                let key = (wire, !frame.came_in, rep.remote_id.get(), peer);
                let Some((asking, mtu)) = self.wanted.get(&key).copied() else { return };
                let (far, near) = if frame.came_in { (rep.qpn.get(), asking) } else { (asking, rep.qpn.get()) };
                self.peers.insert((wire, peer, far), (near, mtu));
            }
            _ => {}
        }
    }
}

/// The requests of consumers that go over the wire, at their places in the recording.
fn posts(recording: &Recording) -> Vec<(usize, &Record, Kind)> {
    let is_refused = |record: &&Record| {
        record.phase == Phase::Return && matches!(record.outcome, Outcome::Status(status) if !status.is_success())
    };
    let refused: HashSet<_> =
        recording.records.iter().filter(is_refused).map(|record| (record.adapter, record.call)).collect();
    let kind_of = |record: &Record| match record.function {
        Function::Send | Function::SendAndInvalidate => Some(Kind::Send),
        Function::Write => Some(Kind::Write),
        Function::Read => Some(Kind::Read),
        _ => None,
    };
    let calls = recording.records.iter().enumerate().filter(|(_, record)| record.phase == Phase::Call);
    let taken = calls.filter(|(_, record)| !refused.contains(&(record.adapter, record.call)));
    let transfers = taken.filter(|(_, record)| matches!(record.arguments, Arguments::Transfer { .. }));
    transfers.filter_map(|(place, record)| Some((place, record, kind_of(record)?))).collect()
}

/// The frames of a recording in words, in their order.
#[must_use]
pub fn traffic(recording: &Recording) -> Vec<Seen> {
    if recording.frames.is_empty() {
        return Vec::new();
    }
    let names = Names::of(recording);
    let mut reader =
        Reader { names: &names, numbers: HashMap::new(), managers: Managers::default(), sides: HashMap::new() };
    // A frame may have left before it was written down whose queue pair it is.
    for number in &recording.numbers {
        reader.numbers.entry((number.wire, number.number)).or_insert(number.qp);
    }
    let posts = posts(recording);
    let (mut posts, mut numbers) = (posts.into_iter().peekable(), recording.numbers.iter().peekable());
    recording
        .frames
        .iter()
        .map(|frame| {
            while let Some((_, record, kind)) = posts.next_if(|(place, ..)| *place < frame.place) {
                reader.sides.entry(record.object).or_default().posted.push_back((kind, describe(record)));
            }
            while let Some(number) = numbers.next_if(|number| number.place <= frame.place) {
                reader.numbers.insert((number.wire, number.number), number.qp);
            }
            reader.see(frame)
        })
        .collect()
}

struct Reader<'a> {
    names: &'a Names,
    /// The queue pairs of the recording by wire and number.
    numbers: HashMap<(u8, u32), u32>,
    managers: Managers,
    sides: HashMap<u32, Side>,
}

impl Reader<'_> {
    fn see(&mut self, frame: &Frame) -> Seen {
        let way = if frame.came_in { "Comes in" } else { "Leaves" };
        let other = |what, label: &str, text: &str| {
            let text = format!("{way}: {text}, {} bytes.", frame.length);
            Seen { what, qp: None, label: label.to_owned(), text }
        };
        if frame.bytes.len() < frame.length as usize {
            return other(What::Unreadable, "long frame", "a frame of which only the beginning was recorded");
        }
        match Envelope::parse(&frame.bytes) {
            Ok((envelope, packet)) => self.packet(frame, way, &envelope, &packet),
            Err(Unreadable::Icrc) => other(What::Unreadable, "wrong ICRC", "a packet whose ICRC is wrong"),
            Err(Unreadable::Malformed) => other(What::Unreadable, "malformed", "a packet that is malformed"),
            Err(Unreadable::Other) => match Ethernet::parse(&frame.bytes).map(|(ethernet, _)| ethernet.ethertype) {
                Some(ethertype::ARP) => other(What::Management, "ARP", "ARP"),
                Some(ethertype::IPV6) => other(What::Management, "ICMPv6", "neighbour discovery"),
                _ => other(What::Unreadable, "other", "a frame of another protocol"),
            },
        }
    }

    fn packet(&mut self, frame: &Frame, way: &str, envelope: &Envelope, packet: &Packet<'_>) -> Seen {
        let (from, to) = (envelope.ip.source, envelope.ip.destination);
        let (peer, bth) = (if frame.came_in { from } else { to }, &packet.bth);
        if bth.destination == cm::QP {
            let mad = cm::Mad::parse(packet.payload);
            if let Some(mad) = mad {
                self.managers.learn(frame, peer, mad);
            }
            let name = mad
                .and_then(cm::Mad::attribute)
                .map_or_else(|| "an unknown message".to_owned(), |attribute| format!("{attribute:?}").to_uppercase());
            let text = format!("{way}: {name} of the connection manager, from {from} to {to}.");
            return Seen { what: What::Management, qp: None, label: name, text };
        }
        let (number, mtu) = if frame.came_in {
            (Some(bth.destination), None)
        } else {
            self.managers.peers.get(&(frame.wire, peer, bth.destination)).copied().unzip()
        };
        let qp = number.and_then(|number| self.numbers.get(&(frame.wire, number)).copied());
        let mut shown = packet_in_words(packet);
        let mut what = shown.what;
        let belongs = qp.and_then(|qp| {
            let side = self.sides.entry(qp).or_default();
            side.mtu = mtu.and_then(Mtu::from_code).or(side.mtu);
            if !frame.came_in && side.sent(packet) && what == What::Packet {
                what = What::Again;
            }
            side.belongs(packet, frame.came_in).map(str::to_owned)
        });
        if what == What::Again {
            shown.text.push_str(" It was sent before.");
        }
        if let Some(posted) = belongs {
            // Writing to a string does not fail.
            let _ = write!(shown.text, " Of {posted}.");
        }
        let whose = qp.map_or_else(|| "a queue pair that is not in the recording".to_owned(), |qp| self.names.name(qp));
        let destination = bth.destination;
        let text = format!("{way}, of {whose}, from {from} to {to}, queue pair {destination:#x}: {}", shown.text);
        Seen { what, qp, label: shown.label, text }
    }
}

impl Side {
    /// Returns true if a packet that leaves has left before.
    fn sent(&mut self, packet: &Packet<'_>) -> bool {
        let (kind, psn) = (packet.bth.opcode.kind(), packet.bth.psn.get());
        let (place, last) = match kind {
            Kind::Send | Kind::Write => (0, psn),
            Kind::Read => {
                let length = packet.extended.reth.map_or(0, |reth| reth.length.get());
                let responses = self.mtu.map_or(1, |mtu| mtu.packets(length));
                (0, psn.wrapping_add(responses - 1))
            }
            Kind::ReadResponse => (1, psn),
            _ => return false,
        };
        let is_new = self.highest[place].is_none_or(|highest| is_behind(psn, highest));
        if is_new {
            self.highest[place] = Some(last & ((1 << PSN_BITS) - 1));
            if place == 0 && packet.bth.opcode.position().begins() {
                self.begins(kind, psn);
            }
        }
        !is_new
    }

    /// A message begins.
    fn begins(&mut self, kind: Kind, psn: u32) {
        // Requests leave in the order of their posts. What does not fit says that some are not in the recording.
        let is_next = self.posted.front().is_some_and(|(posted, _)| *posted == kind);
        let posted = if is_next { self.posted.pop_front() } else { None };
        if self.messages.len() == MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back((psn, posted.map(|(_, words)| words).unwrap_or_default()));
    }

    /// The request of this side that a packet belongs to, or answers.
    fn belongs(&self, packet: &Packet<'_>, came_in: bool) -> Option<&str> {
        let kind = packet.bth.opcode.kind();
        let is_answer = matches!(kind, Kind::ReadResponse | Kind::Acknowledge);
        // Requests leave, and answers to them come in: the others are of the peer's requests.
        if is_answer != came_in {
            return None;
        }
        let psn = packet.bth.psn.get();
        let message = self.messages.iter().rev().find(|(first, _)| !is_behind(*first, psn))?;
        Some(message.1.as_str()).filter(|words| !words.is_empty())
    }
}

/// What a packet says of itself.
struct Description {
    what: What,
    label: String,
    text: String,
}

fn packet_in_words(packet: &Packet<'_>) -> Description {
    let (opcode, psn) = (packet.bth.opcode, packet.bth.psn.get());
    if opcode.kind() == Kind::Acknowledge {
        let syndrome = packet.extended.aeth.map_or(Syndrome::Reserved, |aeth| Syndrome::from_byte(aeth.syndrome));
        let (what, label, meaning) = match syndrome {
            Syndrome::Ack => (What::Ack, "ACK", "everything up to this packet has arrived"),
            Syndrome::RnrNak(_) => (What::Nak, "RNR NAK", "no receive is there: to be sent again later"),
            Syndrome::Nak(Nak::Sequence) => (What::Nak, "NAK 0x60", "packets from this one on are missing"),
            Syndrome::Nak(Nak::InvalidRequest) => (What::Nak, "NAK 0x61", "the request cannot be"),
            Syndrome::Nak(Nak::RemoteAccess) => (What::Nak, "NAK 0x62", "the remote token does not allow it"),
            Syndrome::Nak(Nak::RemoteOperation) => (What::Nak, "NAK 0x63", "the responder could not carry it out"),
            Syndrome::Reserved => (What::Nak, "reserved", "a syndrome that means nothing"),
        };
        return Description { what, label: format!("{label} {psn}"), text: format!("{label}, PSN {psn}: {meaning}.") };
    }
    let name = name(opcode);
    let mut text = format!("{name}, PSN {psn}, {} bytes", packet.payload.len());
    // Writing to a string does not fail.
    if let Some(reth) = packet.extended.reth {
        let (token, address, length) = (reth.key.get(), reth.address.get(), reth.length.get());
        let _ = write!(text, ", remote token {token:#x} at {address:#x}, {length} bytes in all");
    }
    if let Some(token) = packet.extended.invalidate {
        let _ = write!(text, ", invalidates {token:#x}");
    }
    for (is_set, words) in [(packet.bth.solicited, ", solicits"), (packet.bth.acknowledge, ", wants an ACK")] {
        text.push_str(if is_set { words } else { "" });
    }
    text.push('.');
    Description { what: What::Packet, label: format!("{name} {psn}"), text }
}

/// The field's name of an opcode.
const fn name(opcode: Opcode) -> &'static str {
    match opcode {
        Opcode::SendFirst => "SEND first",
        Opcode::SendMiddle => "SEND middle",
        Opcode::SendLast => "SEND last",
        Opcode::SendLastImmediate => "SEND last with immediate",
        Opcode::SendOnly => "SEND only",
        Opcode::SendOnlyImmediate => "SEND only with immediate",
        Opcode::WriteFirst => "WRITE first",
        Opcode::WriteMiddle => "WRITE middle",
        Opcode::WriteLast => "WRITE last",
        Opcode::WriteLastImmediate => "WRITE last with immediate",
        Opcode::WriteOnly => "WRITE only",
        Opcode::WriteOnlyImmediate => "WRITE only with immediate",
        Opcode::ReadRequest => "READ request",
        Opcode::ReadResponseFirst => "READ response first",
        Opcode::ReadResponseMiddle => "READ response middle",
        Opcode::ReadResponseLast => "READ response last",
        Opcode::ReadResponseOnly => "READ response only",
        Opcode::Acknowledge => "ACK",
        Opcode::AtomicAcknowledge => "atomic ACK",
        Opcode::CompareSwap => "compare and swap",
        Opcode::FetchAdd => "fetch and add",
        Opcode::SendLastInvalidate => "SEND last with invalidate",
        Opcode::SendOnlyInvalidate => "SEND only with invalidate",
        Opcode::UdSendOnly | Opcode::UdSendOnlyImmediate => "datagram",
        Opcode::Cnp => "congestion notification",
    }
}
