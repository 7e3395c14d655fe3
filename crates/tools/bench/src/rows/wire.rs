//! Packets of RoCEv2: through memory on one core, beside the copy and the check that each needs; over UDP on this machine, beside a
//! plain program that sends the same datagrams.

mod pair;
#[cfg(target_os = "linux")]
mod plain;

use std::hint::black_box;

use crate::{
    Context,
    measure::{Subject, alone, together},
    row::{Goal, Row, Unit},
};

use pair::{InMemory, PAYLOAD, WRITE};

/// Writes of a run.
const WRITES: usize = 256;
/// Bytes of a packet beside its payload: Ethernet, IPv4, UDP, BTH, ICRC.
const HEADERS: usize = 14 + 20 + 8 + 12 + 4;

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("wire: packets of 1024 bytes in memory, on one core", packets);
    #[cfg(target_os = "linux")]
    {
        context.row("wire: writes of 64 KiB over UDP", udp::bandwidth);
        context.row("wire: half a round trip over UDP", udp::latency);
    }
}

/// Both ends of a wire, on a thread that is the processor of their machine; the time of all threads, should another do something.
fn packets(context: &Context<'_>) -> Vec<Row> {
    context.cores.pin_first();
    let count = context.effort.scale(WRITES);
    let mut wire = InMemory::start();
    let packets = count * WRITE / PAYLOAD;
    let samples = context.interleave(vec![
        Box::new(move || together(packets, || (0..count).for_each(|_| wire.write()))),
        checked(packets, 1),
        checked(packets, 2),
    ]);
    let [ours, once, twice] = &samples[..] else { unreachable!("three subjects") };
    let name = "wire: packets of 1024 bytes in memory, on one core, both ends";
    let against = "memcpy and CRC-32 of the same bytes";
    let goal = Goal::AtLeast(0.5);
    let least = "machine: memcpy and CRC-32 of a packet of 1024 bytes by its sender, and by its receiver";
    let least = Row::measured(least, against, Unit::Millions, Goal::Reported, twice, once);
    let row = Row::measured(name, against, Unit::Millions, goal, ours, once).bounded(goal, &least);
    vec![row, least]
}

/// Nanoseconds for a packet that is copied and of which the CRC is made, so many times: the ICRC is a CRC-32 of nearly all of it.
fn checked<'a>(packets: usize, times: usize) -> Subject<'a> {
    let memory = vec![3_u8; WRITE];
    let mut packet = [0; HEADERS + PAYLOAD];
    Box::new(move || {
        alone(packets, || {
            for number in 0..packets {
                let at = number * PAYLOAD % WRITE;
                for _ in 0..times {
                    packet[HEADERS..].copy_from_slice(black_box(&memory[at..][..PAYLOAD]));
                    let mut crc = crc32fast::Hasher::new();
                    crc.update(black_box(&packet));
                    black_box(crc.finalize());
                }
            }
        })
    })
}

/// Over UDP, between two adapters of this program, beside plain programs of two threads: each side on its core.
#[cfg(target_os = "linux")]
mod udp {
    use std::cell::RefCell;

    use super::{
        WRITES,
        pair::{OverUdp, WRITE},
        plain::{self, Way},
    };
    use crate::{
        Context,
        peers::Peer,
        row::{Goal, Row, Unit},
    };

    /// Round trips of a run.
    const ROUNDS: usize = 1 << 11;

    pub fn bandwidth(context: &Context<'_>) -> Vec<Row> {
        let count = context.effort.scale(WRITES);
        let mut wire = OverUdp::start(context.cores);
        let plain = plain::Stream::start(context.cores);
        let samples = context.interleave(vec![Box::new(|| wire.writes(count)), Box::new(|| plain.messages(count))]);
        let [ours, theirs] = &samples[..] else { unreachable!("two subjects") };
        let (unit, goal) = (Unit::Gibibytes(WRITE), Goal::AtLeast(0.8));
        let name = "wire: writes of 64 KiB over UDP on this machine, two in flight";
        vec![Row::in_rounds(name, "sendmmsg and recvmmsg of the same datagrams", unit, goal, ours, theirs)]
    }

    pub fn latency(context: &Context<'_>) -> Vec<Row> {
        let count = context.effort.scale(ROUNDS);
        // One subject at a time has the pair.
        let wire = RefCell::new(OverUdp::start(context.cores));
        let ways = [(false, false), (true, false), (true, true)];
        let [sleeping, polling, answering] =
            ways.map(|(polls, answers)| plain::Echo::start(context.cores, Way { polls, answers }));
        let subjects: Vec<crate::measure::Subject<'_>> = vec![
            Box::new(|| wire.borrow_mut().round_trips(count) / 2.0),
            Box::new(|| wire.borrow_mut().round_trips_by_threads(count) / 2.0),
            Box::new(|| sleeping.round_trips(count) / 2.0),
            Box::new(|| polling.round_trips(count) / 2.0),
            Box::new(|| answering.round_trips(count) / 2.0),
        ];
        let (measured, peers) = context.beside(subjects, &[Peer::UcxTcpLatency], 8, count);
        let [ours, by_threads, sleeping, polling, answering] = &measured.samples[..] else {
            unreachable!("five subjects")
        };
        let name = "wire: half a round trip of 8 bytes over UDP on this machine";
        let threads = "wire: half a round trip of 8 bytes over UDP on this machine, by threads and notifications";
        // A message is a datagram, and so is the answer to it.
        let least = "machine: the datagrams of a message and its answer, by polling";
        let (echo, unit, tcp) = ("a plain UDP echo", Unit::Nanoseconds, &peers[0]);
        let (beside_echo, beside_tcp) = (Goal::AtMost(1.3), Goal::AtMost(0.8));
        let least_beside_echo = Row::measured(least, echo, unit, Goal::Reported, answering, sleeping);
        let least_beside_tcp = tcp.row(least, unit, Goal::Reported, answering);
        vec![
            Row::measured(name, echo, unit, beside_echo, ours, sleeping).bounded(beside_echo, &least_beside_echo),
            Row::measured(name, "a plain UDP echo that polls", unit, Goal::Reported, ours, polling),
            tcp.row(name, unit, beside_tcp, ours).bounded(beside_tcp, &least_beside_tcp),
            Row::measured(threads, echo, unit, Goal::Reported, by_threads, sleeping),
            least_beside_echo,
            least_beside_tcp,
        ]
    }
}
