//! Completion queues beside other queues: entries of the same size, in the same batches.

use std::sync::atomic::{Ordering::Acquire, Ordering::Release};

use crossbeam_queue::ArrayQueue;
use engine::{
    cq::{
        Cq, CqClient, CqConsumer, CqParameters, Cqe,
        notify::{ArmType, CqFailure},
    },
    os::Os,
};
use fallible::Arc;
use ndkpi::NtStatus;
use provider::extended_result;
use rtrb::chunks::ChunkError;

use super::{
    bounds, callback, counted,
    entry::{Entry, Reader, completion, entry},
    producers,
};
use crate::{
    Context,
    distance::Line,
    kind::{CalledOs, Lock},
    measure::{Wait, alone, each},
    row::{Goal, Row, Unit},
};

/// Entries that every queue holds.
const DEPTH: u32 = 1024;
/// Entries handed over at once.
const BATCH: usize = 32;

/// A consumer that is never called back; a queue that fails ends the measurement.
pub struct Quiet;

impl CqClient for Quiet {
    fn notify(&self, _: NtStatus) {}

    fn failed(&self, failure: CqFailure) {
        panic!("a completion queue has failed: {failure:?}");
    }
}

/// A queue of [`DEPTH`] entries.
pub fn queue<O: Os>(os: &O) -> (Arc<Cq<O>>, CqConsumer<O>) {
    queue_of(os, DEPTH)
}

/// A queue of `depth` entries.
pub fn queue_of<O: Os>(os: &O, depth: u32) -> (Arc<Cq<O>>, CqConsumer<O>) {
    let parameters = CqParameters { depth, max_depth: depth, processor: 0 };
    Cq::try_new(os, parameters, Quiet).expect("memory")
}

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("CQ hand-off on two cores, batch 32", hand_off);
    context.row("CQ push one, poll one, one thread", one_thread);
    producers::rows(context);
    counted::rows(context);
    callback::rows(context);
}

fn hand_off(context: &Context<'_>) -> Vec<Row> {
    let name = |lock: Lock| format!("CQ hand-off on two cores, batch 32, {}", lock.words());
    let goal = Goal::AtLeast(1.0);
    if !context.cores.are_two() {
        return vec![Row::skipped(&name(Lock::Inlined), "rtrb", Unit::Millions, goal, "one core")];
    }
    // Two milliseconds: most runs are over before either thread is taken off its core for somebody else.
    let count = context.effort.scale(1 << 18) / BATCH * BATCH;
    let read_short = |short: &Cqe, reader: &mut Reader| reader.read(&extended_result(short));
    let measured = context.interleave_on_two(vec![
        Box::new(|| ours_handed_off(context, context.os, count)),
        Box::new(|| ours_handed_off(context, &CalledOs::new(context.os), count)),
        Box::new(|| rtrb_handed_off(context, count, entry, |Entry(result), reader| reader.read(result))),
        Box::new(|| rtrb_handed_off(context, count, completion, read_short)),
        Box::new(|| {
            let (mut producer, consumer) = bounds::queue::locked(DEPTH as usize);
            let push = move |batch: &[_; BATCH]| producer.push_all(batch);
            by_chunks(context, count, (completion, push), (consumer, read_short))
        }),
    ]);
    let [ours, called, rtrb, short, locked] = &measured.samples[..] else { unreachable!("five subjects") };
    let (peer, short_peer) = ("rtrb, slices of 32", "rtrb, slices of 32, 32-byte entries");
    let least = Row::measured(
        "machine: rtrb and a lock for its producers, 32-byte entries, batch 32",
        peer,
        Unit::Millions,
        Goal::Reported,
        locked,
        rtrb,
    );
    vec![
        Row::measured(&name(Lock::Inlined), peer, Unit::Millions, goal, ours, rtrb).bounded(goal, &least),
        Row::measured(&name(Lock::Called), peer, Unit::Millions, Goal::Reported, called, rtrb),
        Row::measured(&name(Lock::Inlined), short_peer, Unit::Millions, Goal::Reported, ours, short),
        least,
        measured.row("CQ hand-off"),
    ]
}

/// Makes the entries from the number `first` on, in place: an array that is made anew would be copied to where it stays.
fn refill<T>(batch: &mut [T; BATCH], first: usize, entry: impl Fn(usize) -> T) {
    for (number, place) in (first..).zip(batch) {
        *place = entry(number);
    }
}

/// The producer of a completion queue may not overrun it: a NIC has no more requests than the queue has room for. Here the
/// consumer says how much it has taken.
///
/// Each end is moved to where its thread is: side by side, the ends would share a cache line that has nothing to do with the queue.
fn ours_handed_off<O: Os>(context: &Context<'_>, os: &O, count: usize) -> f64 {
    let (cq, mut consumer) = queue(os);
    let taken = &Line::default();
    let produce = move || {
        let (mut batch, mut sent, mut seen, mut wait) = ([completion(0); BATCH], 0, 0, Wait::new());
        while sent < count {
            while sent + BATCH - seen > DEPTH as usize {
                #[expect(clippy::cast_possible_truncation, reason = "at most `count`")]
                let now = taken.load(Acquire) as usize;
                if now == seen {
                    wait.once();
                }
                seen = now;
            }
            wait.over();
            refill(&mut batch, sent, completion);
            Cq::push_all(&cq, || &batch);
            sent += BATCH;
        }
    };
    let consume = move || {
        let (mut reader, mut got, mut wait) = (Reader::default(), 0, Wait::new());
        while got < count {
            let now = consumer.poll(BATCH, |completion| reader.read(&extended_result(completion)));
            if now == 0 {
                wait.once();
                continue;
            }
            wait.over();
            got += now;
            taken.store(got as u64, Release);
        }
        reader.check(count);
    };
    let (time, ()) = context.cores.both(consume, produce);
    each(time, count)
}

/// [`ours_handed_off`] for `rtrb`.
fn rtrb_handed_off<T: Copy + Send>(
    context: &Context<'_>,
    count: usize,
    make: impl Fn(usize) -> T + Send + Sync,
    read: impl Fn(&T, &mut Reader),
) -> f64 {
    let (mut producer, consumer) = rtrb::RingBuffer::new(DEPTH as usize);
    by_chunks(context, count, (make, move |batch| producer.push_entire_slice(batch).is_ok()), (consumer, read))
}

/// Hands entries over that `make` makes, `push` puts in unless there is no room, and `read` reads.
fn by_chunks<T: Copy + Send>(
    context: &Context<'_>,
    count: usize,
    (make, mut push): (impl Fn(usize) -> T + Send + Sync, impl FnMut(&[T; BATCH]) -> bool + Send),
    (mut consumer, read): (rtrb::Consumer<T>, impl Fn(&T, &mut Reader)),
) -> f64 {
    let produce = move || {
        let (mut batch, mut sent, mut wait) = ([make(0); BATCH], 0, Wait::new());
        while sent < count {
            refill(&mut batch, sent, &make);
            while !push(&batch) {
                wait.once();
            }
            wait.over();
            sent += BATCH;
        }
    };
    let consume = move || {
        let (mut reader, mut got, mut wait) = (Reader::default(), 0, Wait::new());
        while got < count {
            let chunk = match consumer.read_chunk(BATCH) {
                Ok(chunk) => Some(chunk),
                Err(ChunkError::TooFewSlots(0)) => None,
                Err(ChunkError::TooFewSlots(some)) => consumer.read_chunk(some).ok(),
            };
            let Some(chunk) = chunk else {
                wait.once();
                continue;
            };
            wait.over();
            let (first, second) = chunk.as_slices();
            first.iter().chain(second).for_each(|entry| read(entry, &mut reader));
            got += chunk.len();
            chunk.commit_all();
        }
        reader.check(count);
    };
    let (time, ()) = context.cores.both(consume, produce);
    each(time, count)
}

fn one_thread(context: &Context<'_>) -> Vec<Row> {
    let count = context.effort.scale(1 << 20);
    context.cores.pin_first();
    let called = CalledOs::new(context.os);
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(DEPTH as usize);
    let rtrb = move || {
        alone(count, || {
            let mut reader = Reader::default();
            for number in 0..count {
                if producer.push(entry(number)).is_err() {
                    break;
                }
                if let Ok(Entry(result)) = consumer.pop() {
                    reader.read(&result);
                }
            }
            reader.check(count);
        })
    };
    let array = ArrayQueue::new(DEPTH as usize);
    let crossbeam = move || {
        alone(count, || {
            let mut reader = Reader::default();
            for number in 0..count {
                if array.push(entry(number)).is_err() {
                    break;
                }
                if let Some(Entry(result)) = array.pop() {
                    reader.read(&result);
                }
            }
            reader.check(count);
        })
    };
    let samples = context.interleave(vec![
        Box::new(ours_one_by_one(queue(context.os), count)),
        Box::new(ours_one_by_one(armed(queue(context.os)), count)),
        Box::new(ours_one_by_one(queue(&called), count)),
        Box::new(rtrb),
        Box::new(crossbeam),
        Box::new(bounds::queue::one_by_one(DEPTH as usize, count)),
    ]);
    let [unarmed, armed, called, rtrb, crossbeam, least] = &samples[..] else { unreachable!("six subjects") };
    let name = "CQ push one, poll one, one thread, inlined lock";
    let called_name = "CQ push one, poll one, one thread, called lock";
    let bound = "machine: rtrb and a lock for its producers, push one, pop one, one thread";
    let least = [
        Row::in_rounds(bound, "rtrb", Unit::Nanoseconds, Goal::Reported, least, rtrb),
        Row::in_rounds(bound, "crossbeam ArrayQueue", Unit::Millions, Goal::Reported, least, crossbeam),
    ];
    let goals = [Goal::AtMost(2.0), Goal::AtLeast(3.0)];
    let mut rows = vec![
        Row::in_rounds(name, "rtrb", Unit::Nanoseconds, goals[0], unarmed, rtrb).bounded(goals[0], &least[0]),
        Row::in_rounds(name, "crossbeam ArrayQueue", Unit::Millions, goals[1], unarmed, crossbeam)
            .bounded(goals[1], &least[1]),
        Row::in_rounds(
            &format!("{name}, armed for solicited entries"),
            "rtrb",
            Unit::Nanoseconds,
            Goal::Reported,
            armed,
            rtrb,
        ),
        Row::in_rounds(called_name, "rtrb", Unit::Nanoseconds, Goal::Reported, called, rtrb),
        Row::in_rounds(called_name, "crossbeam ArrayQueue", Unit::Millions, Goal::Reported, called, crossbeam),
    ];
    rows.extend(least);
    rows
}

/// The queue, armed for solicited entries, which never come.
fn armed<O: Os>((cq, mut consumer): (Arc<Cq<O>>, CqConsumer<O>)) -> (Arc<Cq<O>>, CqConsumer<O>) {
    consumer.arm(ArmType::Solicited);
    (cq, consumer)
}

fn ours_one_by_one<O: Os>((cq, mut consumer): (Arc<Cq<O>>, CqConsumer<O>), count: usize) -> impl FnMut() -> f64 {
    move || {
        alone(count, || {
            let mut reader = Reader::default();
            for number in 0..count {
                Cq::push(&cq, completion(number));
                consumer.poll(1, |completion| reader.read(&extended_result(completion)));
            }
            reader.check(count);
        })
    }
}
