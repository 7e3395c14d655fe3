//! Several producers on one completion queue.
//!
//! Four producers and a consumer are five threads, and there are two cores: whatever is measured, at most two of them run. If
//! all five go on as they like, the operating system decides the figure. A producer that finds the queue full, and a consumer
//! that finds it empty, keep the core that somebody else needs to change that, and if the consumer gets ahead of the producers,
//! every entry makes its way between the cores alone. Both queues then show rates that differ by a factor of ten from run to
//! run. That is [`beside`], which has no goal.
//!
//! What has a goal goes in bursts: four producers, two on each core, fill the queue; then the consumer empties it. So the two
//! producers that run meet in the queue all the time, and nobody ever waits for room or for an entry. The time is that from the
//! beginning of a burst until the last entry is taken out. Both queues are as deep as a burst and are used in the same way.
//! `ArrayQueue` cannot take or give several entries at once. A turn of a NIC puts in several where it has them, and a consumer
//! polls for several, as NDKPI has it. So there are two rows with the goal: entries one by one, and eight at a time.

use std::{
    hint::black_box,
    sync::{
        Mutex,
        atomic::Ordering::{AcqRel, Acquire, Release},
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_queue::ArrayQueue;
use engine::{
    cq::{Cq, Cqe},
    os::{Os, SpinLock},
};
use ndkpi::NDK_RESULT_EX;
use provider::extended_result;

use super::{
    cq::queue_of,
    entry::{Entry, completion},
};
use crate::{
    Context,
    distance::Line,
    kind::{CalledOs, Lock},
    measure::{Gate, each},
    row::{Goal, Row, Unit},
};

/// Producers, each of which has a quarter of the queue for its entries.
const PRODUCERS: usize = 4;
/// Entries that every queue holds, and a burst has: a turn of a producer then is much longer than the change to the next one.
const DEPTH: u32 = 1 << 14;
/// Entries of a producer in a burst.
const SHARE: usize = DEPTH as usize / PRODUCERS;
/// Bursts in one run.
const BURSTS: usize = 8;
/// Entries that the consumer asks for.
const POLL: usize = 32;
/// Entries that a NIC puts in at once.
const TURN: usize = 8;

/// The rows of this file.
pub fn rows(context: &mut Context<'_>) {
    context.row("CQ, four producers", four_producers);
}

fn four_producers(context: &Context<'_>) -> Vec<Row> {
    let name = |lock: Lock, what| format!("CQ, four producers{what}, {}", lock.words());
    let (inlined, called) = (Lock::Inlined, Lock::Called);
    if !context.cores.are_two() {
        let (name, goal) = (name(inlined, ""), Goal::AtLeast(2.0));
        return vec![Row::skipped(&name, "crossbeam ArrayQueue", Unit::Millions, goal, "one core")];
    }
    let measured = context.interleave_on_two(vec![
        Box::new(|| ours_in_bursts(context, context.os, 1)),
        Box::new(|| ours_in_bursts(context, context.os, TURN)),
        Box::new(|| ours_in_bursts(context, &CalledOs::new(context.os), 1)),
        Box::new(|| ours_in_bursts(context, &CalledOs::new(context.os), TURN)),
        Box::new(|| crossbeam_in_bursts(context)),
        Box::new(|| ours_beside(context)),
        Box::new(|| crossbeam_beside(context)),
        Box::new(|| apart_in_bursts(context, 1)),
        Box::new(|| apart_in_bursts(context, TURN)),
        Box::new(|| locked_in_bursts(context)),
    ]);
    let [single, turns, called_single, called_turns, crossbeam, others @ ..] = &measured.samples[..] else {
        unreachable!("ten subjects")
    };
    let [ours_beside, crossbeam_beside, apart, apart_turns, locked] = others else { unreachable!("ten subjects") };
    let (turn, beside) = (", eight entries at a time", ", the consumer beside them");
    let each_its_own = "machine: four producers, each with an rtrb of its own and an atomic exchange";
    let row =
        |name: &str, ours, peer, goal| Row::measured(name, "crossbeam ArrayQueue", Unit::Millions, goal, ours, peer);
    let goal = Goal::AtLeast(2.0);
    let least =
        row("machine: four producers, a lock around the store of each entry", locked, crossbeam, Goal::Reported);
    vec![
        row(&name(inlined, ""), single, crossbeam, goal).bounded(goal, &least),
        row(&name(inlined, turn), turns, crossbeam, goal),
        row(&name(called, ""), called_single, crossbeam, Goal::Reported),
        row(&name(called, turn), called_turns, crossbeam, Goal::Reported),
        row(&name(inlined, beside), ours_beside, crossbeam_beside, Goal::Reported),
        row(&format!("{each_its_own} for every entry"), apart, crossbeam, Goal::Reported),
        row(&format!("{each_its_own} for eight entries"), apart_turns, crossbeam, Goal::Reported),
        least,
        measured.row("CQ, four producers"),
    ]
}

/// The completion `number` of a producer.
const fn completion_of(producer: usize, number: usize) -> Cqe {
    Cqe { qp_context: producer, ..completion(number) }
}

/// The same as a peer holds it.
fn entry(producer: usize, number: usize) -> Entry {
    Entry(extended_result(&completion_of(producer, number)))
}

/// [`TURN`] of what `entry` makes, from the number `first` on.
fn turn<T>(producer: usize, first: usize, entry: impl Fn(usize, usize) -> T) -> [T; TURN] {
    std::array::from_fn(|index| entry(producer, first + index))
}

/// What a consumer does with a result.
fn count(from: &mut [u64; PRODUCERS], result: &NDK_RESULT_EX) {
    from[black_box(result.QPContext.addr())] += 1;
}

/// Lets four producers `fill` a queue, two on each core, and a consumer `drain` it, again and again.
fn bursts(context: &Context<'_>, fill: impl Fn(usize) + Sync, mut drain: impl FnMut()) -> f64 {
    let bursts = context.effort.scale(BURSTS);
    let (begun, done) = (Line::default(), Line::default());
    let until = |line: &Line, value: usize| {
        while line.load(Acquire) < value as u64 {
            thread::yield_now();
        }
    };
    context.cores.pin_first();
    let time = thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (begun, done, fill) = (&begun, &done, &fill);
            scope.spawn(move || {
                if producer % 2 == 1 {
                    context.cores.pin_second();
                }
                done.fetch_add(1, AcqRel);
                for burst in 1..=bursts {
                    until(begun, burst);
                    fill(producer);
                    done.fetch_add(1, AcqRel);
                }
            });
        }
        until(&done, PRODUCERS);
        let mut time = Duration::ZERO;
        for burst in 1..=bursts {
            let started = Instant::now();
            begun.store(burst as u64, Release);
            until(&done, (burst + 1) * PRODUCERS);
            drain();
            time += started.elapsed();
        }
        time
    });
    each(time, bursts * PRODUCERS * SHARE)
}

fn ours_in_bursts<O: Os>(context: &Context<'_>, os: &O, batch: usize) -> f64 {
    let (cq, mut consumer) = queue_of(os, DEPTH);
    let fill = |producer| {
        for first in (0..SHARE).step_by(batch) {
            if batch == 1 {
                Cq::push(&cq, completion_of(producer, first));
            } else {
                let batch = turn(producer, first, completion_of);
                Cq::push_all(&cq, || &batch);
            }
        }
    };
    bursts(context, fill, || {
        let mut from = [0; PRODUCERS];
        while consumer.poll(POLL, |completion| count(&mut from, &extended_result(completion))) > 0 {}
        assert_eq!(from, [SHARE as u64; PRODUCERS], "entries were lost");
    })
}

/// Four producers that never meet: each has a queue of its own, which is `rtrb`. But whoever has put entries in has to look whether
/// the consumer wants to be told, and not before they can be seen (`NDKPI 7.1.3`, `7.1.5`). That is an atomic exchange, which waits
/// until all stores before it have reached the cache, and so for every line of the queue that the consumer's core has read.
fn apart_in_bursts(context: &Context<'_>, batch: usize) -> f64 {
    let (producers, mut consumers): (Vec<_>, Vec<_>) = (0..PRODUCERS).map(|_| rtrb::RingBuffer::new(SHARE)).unzip();
    let producers = producers.into_iter().map(|queue| Mutex::new((queue, Line::default()))).collect::<Vec<_>>();
    let fill = |producer: usize| {
        let (queue, armed) = &mut *producers[producer].lock().expect("nobody has panicked");
        let look = || assert_eq!(black_box(&*armed).swap(0, AcqRel), 0, "nobody has armed");
        for first in (0..SHARE).step_by(batch) {
            let is_pushed = if batch == 1 {
                queue.push(entry(producer, first)).is_ok()
            } else {
                queue.push_entire_slice(&turn(producer, first, entry)).is_ok()
            };
            assert!(is_pushed, "the queue is as deep as a burst");
            look();
        }
    };
    bursts(context, fill, || {
        let mut from = [0; PRODUCERS];
        for consumer in &mut consumers {
            while let Ok(entries) = consumer.read_chunk(POLL) {
                let (first, second) = entries.as_slices();
                first.iter().chain(second).for_each(|Entry(result)| count(&mut from, result));
                entries.commit_all();
            }
        }
        assert_eq!(from, [SHARE as u64; PRODUCERS], "entries were lost");
    })
}

/// The least for producers that exclude each other ([`queue`](super::bounds::queue)): a lock, the one that the completion queue has,
/// and an entry that is stored, read once and given back. Nobody asks whether there is room, nothing is published for a consumer that
/// has no lock, and nothing is decided about an arm.
fn locked_in_bursts(context: &Context<'_>) -> f64 {
    let entries = vec![completion(0); DEPTH as usize].into_boxed_slice();
    let queue = context.os.lock((entries, 0)).expect("memory");
    let fill = |producer| {
        for number in 0..SHARE {
            queue.with(|(entries, tail)| {
                entries[*tail % DEPTH as usize] = completion_of(producer, number);
                *tail += 1;
            });
        }
    };
    bursts(context, fill, || {
        let mut from = [0; PRODUCERS];
        queue.with(|(entries, _)| {
            for completion in &mut *entries {
                count(&mut from, &extended_result(completion));
                completion.qp_context = PRODUCERS;
            }
        });
        assert_eq!(from, [SHARE as u64; PRODUCERS], "entries were lost");
    })
}

fn crossbeam_in_bursts(context: &Context<'_>) -> f64 {
    let queue = ArrayQueue::new(DEPTH as usize);
    let fill = |producer| {
        for number in 0..SHARE {
            assert!(queue.push(entry(producer, number)).is_ok(), "the queue is as deep as a burst");
        }
    };
    bursts(context, fill, || {
        let mut from = [0; PRODUCERS];
        while let Some(Entry(result)) = queue.pop() {
            count(&mut from, &result);
        }
        assert_eq!(from, [SHARE as u64; PRODUCERS], "entries were lost");
    })
}

/// Runs four producers, one of them on the consumer's core, and the consumer. Who has to wait lends its core to others.
fn beside(context: &Context<'_>, produce: impl Fn(usize) + Sync, consume: impl FnOnce(usize)) -> f64 {
    let entries = context.effort.scale(BURSTS) * PRODUCERS * SHARE;
    let gate = Gate::new(1 + u32::try_from(PRODUCERS).unwrap_or(u32::MAX));
    context.cores.pin_first();
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (gate, produce) = (&gate, &produce);
            scope.spawn(move || {
                if producer > 0 {
                    context.cores.pin_second();
                }
                gate.pass();
                produce(producer);
            });
        }
        gate.pass();
        let started = Instant::now();
        consume(entries);
        each(started.elapsed(), entries)
    })
}

/// A completion queue may not be overrun: each producer has a quarter of it, as queue pairs share one that is as deep as all of
/// them, and the consumer says how much it has taken.
fn ours_beside(context: &Context<'_>) -> f64 {
    let (cq, mut consumer) = queue_of(context.os, DEPTH);
    let taken: &[Line; PRODUCERS] = &Default::default();
    let share = context.effort.scale(BURSTS) * SHARE;
    let produce = |producer: usize| {
        let mut room = SHARE as u64;
        for number in 0..share {
            while number as u64 == room {
                room = taken[producer].load(Acquire) + SHARE as u64;
                if number as u64 == room {
                    thread::yield_now();
                }
            }
            Cq::push(&cq, completion_of(producer, number));
        }
    };
    // Moved, so that the consumer's end shares no cache line with what the producers look at.
    beside(context, produce, move |entries| {
        let (mut from, mut got) = ([0; PRODUCERS], 0);
        while got < entries {
            let now = consumer.poll(POLL, |completion| count(&mut from, &extended_result(completion)));
            got += now;
            if now == 0 {
                thread::yield_now();
            }
            for (line, count) in taken.iter().zip(from) {
                line.store(count, Release);
            }
        }
    })
}

fn crossbeam_beside(context: &Context<'_>) -> f64 {
    let queue = ArrayQueue::new(DEPTH as usize);
    let share = context.effort.scale(BURSTS) * SHARE;
    let produce = |producer: usize| {
        for number in 0..share {
            while queue.push(entry(producer, number)).is_err() {
                thread::yield_now();
            }
        }
    };
    beside(context, produce, |entries| {
        let mut from = [0; PRODUCERS];
        for _ in 0..entries {
            let Entry(result) = loop {
                match queue.pop() {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            count(&mut from, &result);
        }
    })
}
