//! Messages of eight bytes between two cores, through NDKPI's dispatch tables.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    time::Instant,
};

use ndkpi::{NDK_OP_FLAG_DEFER, NDK_OP_FLAG_INLINE, NDK_OP_FLAG_SILENT_SUCCESS, NDK_RESULT_EX, NtStatus};

use super::bounds;
use crate::{
    Beside, Context,
    distance::Line,
    kind::Kind,
    measure::{Samples, Subject, Wait, each},
    ndk::{Connection, Layer, Plan, Side},
    peers::Peer,
    row::{Goal, Row, Unit},
};

/// Bytes of a message.
const SIZE: u32 = 8;
/// Messages on the way at most.
const WINDOW: usize = 64;
/// Requests that each queue has room for.
const DEPTH: u32 = 256;
/// Receives that are posted before the first message. Half of the room: whoever fills a queue up has to look at the other side's
/// index with every post.
const RECEIVES: usize = DEPTH as usize / 2;
/// Round trips between two looks at the clock.
const GROUP: usize = 8;
/// One send in so many is signalled: a success implies those before it.
const SIGNAL: usize = 16;

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("8 byte latency", latency);
    context.row("8 byte message rate, window 64", rate);
}

const fn plan(kind: Kind) -> Plan {
    Plan { kind, depth: DEPTH, bytes: 64 << 10, inline: 64, steps: false }
}

/// A place in the buffer for every receive, each on a cache line of its own.
const fn place(number: usize) -> usize {
    (1 + number % RECEIVES) * 64
}

fn post(status: NtStatus) {
    assert_eq!(status, NtStatus::SUCCESS, "a post has failed");
}

/// Receives a message and looks at it.
fn receive(side: &mut Side, number: usize, results: &mut [NDK_RESULT_EX]) {
    let mut wait = Wait::new();
    while side.received(results) == 0 {
        wait.once();
    }
    let mut message = [0; SIZE as usize];
    side.buffer().read(place(number), &mut message);
    assert_eq!(message, [0; SIZE as usize], "another message");
}

/// Sends and gives a full queue time to get empty.
struct Sender {
    sent: usize,
    signalled: usize,
}

impl Sender {
    const fn new() -> Self {
        Self { sent: 0, signalled: 0 }
    }

    fn send(&mut self, side: &mut Side, flags: u32) {
        self.sent += 1;
        let silent = if self.sent.is_multiple_of(SIGNAL) { 0 } else { NDK_OP_FLAG_SILENT_SUCCESS };
        post(side.send(0, SIZE, flags | silent));
        if silent == 0 {
            self.signalled += side.initiated(&mut [NDK_RESULT_EX::ZEROED; 8]);
        }
    }

    /// Waits until all sends that are signalled have completed.
    fn finish(&mut self, side: &mut Side) {
        let mut wait = Wait::new();
        while self.signalled < self.sent / SIGNAL {
            self.signalled += side.initiated(&mut [NDK_RESULT_EX::ZEROED; 8]);
            wait.once();
        }
    }
}

/// Half a round trip: the median of groups of them, as UCX reports its median.
fn ping_pong(context: &Context<'_>, connection: &mut Connection, count: usize, flags: u32) -> f64 {
    let [here, there] = &mut connection.sides;
    for number in 0..RECEIVES {
        post(here.receive(place(number), SIZE));
        post(there.receive(place(number), SIZE));
    }
    let play = |side: &mut Side, first: bool| {
        let (mut sender, mut results) = (Sender::new(), [NDK_RESULT_EX::ZEROED; 1]);
        let (mut groups, mut began) = (Vec::with_capacity(count / GROUP), Instant::now());
        let mut send = |side: &mut Side| {
            let _raised = side.raised();
            sender.send(side, flags);
        };
        if first {
            send(side);
        }
        for number in 0..count {
            if first && number > 0 && number.is_multiple_of(GROUP) {
                let now = Instant::now();
                groups.push(each(now - began, 2 * GROUP));
                began = now;
            }
            receive(side, number, &mut results);
            if !first || number + 1 < count {
                send(side);
            }
            post(side.receive(place(number), SIZE));
        }
        sender.finish(side);
        groups
    };
    let mut groups = Vec::new();
    // The receives that are left over are flushed later.
    let on = |processor| context.os.machine().run_on(processor);
    context.cores.both(
        || {
            let _on = on(0);
            groups = play(here, true);
        },
        || {
            let _on = on(1);
            drop(play(there, false));
        },
    );
    Samples::new(groups).median()
}

fn latency(context: &Context<'_>) -> Vec<Row> {
    let name = "8 byte latency, polled, half round trip";
    let goal = Goal::AtMost(0.5);
    if !context.cores.are_two() {
        return vec![Row::skipped(name, "UCX tag_lat", Unit::Nanoseconds, goal, "one core")];
    }
    let count = context.effort.scale(1 << 15);
    let ours = |kind, flags| {
        move || {
            let mut connection = Connection::new(context.os, plan(kind));
            let time = ping_pong(context, &mut connection, count, flags);
            connection.close();
            time
        }
    };
    let subjects: Vec<Subject<'_>> = vec![
        Box::new(ours(Kind::DIRECT, NDK_OP_FLAG_INLINE)),
        Box::new(ours(Kind::DIRECT, 0)),
        Box::new(ours(Kind::DIRECT.called(), NDK_OP_FLAG_INLINE)),
        Box::new(ours(Kind::DEFERRED, NDK_OP_FLAG_INLINE)),
        Box::new(ours(Kind::DEFERRED.called(), NDK_OP_FLAG_INLINE)),
        Box::new(|| bounds::message::ping_pong(&context.cores, count)),
    ];
    let peers = [Peer::UcxLatency, Peer::FabricLatency];
    let (measured, peers) = context.beside(subjects, &peers, SIZE, context.effort.scale(1 << 17));
    let ours = &measured.samples;
    let row = |kind: Kind, what: &str, ours: &Samples, peer: &Beside, goal| {
        peer.row(&format!("{name}, {}{what}", kind.words()), Unit::Nanoseconds, goal, ours)
    };
    let (inline, deferred) = (", inline data", Goal::AtMost(1.0));
    let least = peers[0].row(
        "machine: the lines of a message there and back, halved",
        Unit::Nanoseconds,
        Goal::Reported,
        &ours[5],
    );
    vec![
        row(Kind::DIRECT, inline, &ours[0], &peers[0], goal).bounded(goal, &least),
        row(Kind::DIRECT, inline, &ours[0], &peers[1], Goal::Reported),
        row(Kind::DIRECT, "", &ours[1], &peers[0], Goal::Reported),
        row(Kind::DIRECT.called(), inline, &ours[2], &peers[0], Goal::Reported),
        row(Kind::DEFERRED, inline, &ours[3], &peers[0], deferred).bounded(deferred, &least),
        row(Kind::DEFERRED.called(), inline, &ours[4], &peers[0], Goal::Reported),
        least,
        measured.row("8 byte latency"),
    ]
}

/// One side sends as long as the other has posted receives, as consumers do that give each other credits.
fn stream(context: &Context<'_>, connection: &mut Connection, count: usize, flags: u32, batch: usize) -> f64 {
    let [here, there] = &mut connection.sides;
    for number in 0..RECEIVES {
        post(there.receive(place(number), SIZE));
    }
    let credit = Line::new(AtomicU64::new(RECEIVES as u64));
    let mut send = || {
        let (mut sender, mut seen) = (Sender::new(), 0);
        let mut wait = Wait::new();
        while sender.sent < count {
            let window = sender.signalled * SIGNAL + WINDOW;
            if sender.sent + batch > window {
                sender.signalled += here.initiated(&mut [NDK_RESULT_EX::ZEROED; 8]);
                wait.once();
                continue;
            }
            while (sender.sent + batch) as u64 > seen {
                seen = credit.load(Acquire);
                wait.once();
            }
            wait.over();
            let _raised = here.raised();
            for number in 1..=batch {
                let defer = if number < batch { NDK_OP_FLAG_DEFER } else { 0 };
                sender.send(here, flags | defer);
            }
        }
        sender.finish(here);
    };
    let mut drain = || {
        let (mut results, mut got) = ([NDK_RESULT_EX::ZEROED; 32], 0);
        let mut wait = Wait::new();
        while got < count {
            let now = there.received(&mut results);
            if now == 0 {
                wait.once();
                continue;
            }
            wait.over();
            for _ in 0..now {
                post(there.receive(place(got), SIZE));
                got += 1;
            }
            credit.store((got + RECEIVES) as u64, Release);
        }
    };
    let on = |processor| context.os.machine().run_on(processor);
    let sending = || {
        let _on = on(0);
        send();
    };
    let draining = || {
        let _on = on(1);
        drain();
    };
    let (time, ()) = context.cores.both(sending, draining);
    each(time, count)
}

fn rate(context: &Context<'_>) -> Vec<Row> {
    let name = "8 byte message rate, window 64";
    let goal = Goal::AtLeast(2.0);
    if !context.cores.are_two() {
        return vec![Row::skipped(name, "UCX tag_bw", Unit::Millions, goal, "one core")];
    }
    let count = context.effort.scale(1 << 18);
    let ours = |kind, flags, batch| {
        move || {
            let mut connection = Connection::new(context.os, plan(kind));
            let time = stream(context, &mut connection, count, flags, batch);
            connection.close();
            time
        }
    };
    let behind = |kind, layer| {
        move || {
            let mut connection = Connection::behind(context.os, plan(kind), layer);
            let time = stream(context, &mut connection, count, NDK_OP_FLAG_INLINE, 32);
            connection.close();
            time
        }
    };
    let subjects: Vec<Subject<'_>> = vec![
        Box::new(ours(Kind::DIRECT, NDK_OP_FLAG_INLINE, 32)),
        Box::new(ours(Kind::DIRECT, NDK_OP_FLAG_INLINE, 1)),
        Box::new(ours(Kind::DIRECT, 0, 32)),
        Box::new(ours(Kind::DIRECT.called(), NDK_OP_FLAG_INLINE, 32)),
        Box::new(ours(Kind::DEFERRED, NDK_OP_FLAG_INLINE, 32)),
        Box::new(ours(Kind::DEFERRED.called(), NDK_OP_FLAG_INLINE, 32)),
        Box::new(|| bounds::message::stream(&context.cores, count)),
        Box::new(behind(Kind::DIRECT, Layer::Forwarding)),
        Box::new(behind(Kind::DIRECT, Layer::Advising)),
        Box::new(behind(Kind::DIRECT, Layer::Recording)),
        Box::new(behind(Kind::DEFERRED.called(), Layer::Advising)),
        Box::new(behind(Kind::DEFERRED.called(), Layer::Recording)),
    ];
    let (measured, peers) = context.beside(subjects, &[Peer::UcxRate], SIZE, context.effort.scale(1 << 19));
    let ours = &measured.samples;
    let row = |kind: Kind, what: &str, ours: &Samples, goal| {
        peers[0].row(&format!("{name}, {}{what}", kind.words()), Unit::Millions, goal, ours)
    };
    let batch = ", inline data, 32 a doorbell";
    let layered = |kind: Kind, layer: Layer, ours: &Samples, plain: &Samples| {
        let name = format!("{name}, {}{batch}, {}", kind.words(), layer.words());
        Row::measured(&name, "the same without the layer", Unit::Millions, Goal::AtLeast(0.5), ours, plain)
    };
    let least =
        peers[0].row("machine: the lines of messages in one direction", Unit::Millions, Goal::Reported, &ours[6]);
    vec![
        row(Kind::DIRECT, batch, &ours[0], goal).bounded(goal, &least),
        row(Kind::DIRECT, ", inline data", &ours[1], Goal::Reported),
        row(Kind::DIRECT, ", 32 a doorbell", &ours[2], Goal::Reported),
        row(Kind::DIRECT.called(), batch, &ours[3], Goal::Reported),
        row(Kind::DEFERRED, batch, &ours[4], goal).bounded(goal, &least),
        row(Kind::DEFERRED.called(), batch, &ours[5], Goal::Reported),
        layered(Kind::DIRECT, Layer::Forwarding, &ours[7], &ours[0]),
        layered(Kind::DIRECT, Layer::Advising, &ours[8], &ours[0]),
        layered(Kind::DIRECT, Layer::Recording, &ours[9], &ours[0]),
        layered(Kind::DEFERRED.called(), Layer::Advising, &ours[10], &ours[5]),
        layered(Kind::DEFERRED.called(), Layer::Recording, &ours[11], &ours[5]),
        least,
        measured.row("8 byte message rate"),
    ]
}
