//! RDMA reads and writes beside `memcpy` of the same bytes on the same core.

use std::{hint::black_box, ptr};

use host::{HostOs, machine::Machine};
use ndkpi::{NDK_OP_FLAG_DEFER, NDK_OP_FLAG_SILENT_SUCCESS, NDK_RESULT_EX, NtStatus};

use super::bounds;
use crate::{
    Context,
    kind::Kind,
    measure::{Samples, Subject, alone},
    ndk::{Connection, Plan},
    plot::{Curve, Plot},
    row::{Goal, Row, Unit},
};

/// Sizes of transfers.
const SIZES: [usize; 8] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

/// The same bytes again and again are others in the next run, up to so many: which of them share a place in the caches is the luck
/// of their pages, and the best runs count.
const SPOTS: usize = 13;
/// What begins of runs are multiples of.
const PAGE: usize = 4096;
/// Requests that ring the doorbell once, in a row of its own.
const BATCH: usize = 16;
/// Above this size it makes no difference.
const MOST_IN_BATCHES: usize = 64 << 10;

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("RDMA write and read", bandwidth);
}

/// What is a goal at this size.
const fn goal(size: usize) -> Goal {
    match size {
        0x1000 => Goal::AtLeast(0.8),
        0x1_0000.. => Goal::AtLeast(0.95),
        _ => Goal::Reported,
    }
}

/// What bounds the rows of this size: what there is besides the copy.
const fn bounds_of(size: usize, places: usize) -> &'static [Bound] {
    match (size, places) {
        (0x1000, 1) => &[Bound::Exchange, Bound::Completion, Bound::Calls],
        (0x1_0000, _) => &[Bound::Calls],
        _ => &[],
    }
}

/// The least of a transfer, or a part of it: see [`bounds::copy`].
#[derive(Clone, Copy)]
enum Bound {
    /// One thing is owned during the copy.
    Exchange,
    /// What has to be owned is, and a completion goes to the consumer.
    Completion,
    /// The same by calls.
    Calls,
}

impl Bound {
    const fn words(self) -> &'static str {
        match self {
            Self::Exchange => "an atomic exchange and a store",
            Self::Completion => "two atomic exchanges and a completion through a queue with a lock",
            Self::Calls => "two atomic exchanges and a completion, posted and polled by calls",
        }
    }

    fn subject<'a>(self, count: usize, length: u32, copy: impl FnMut() + 'a) -> Subject<'a> {
        match self {
            Self::Exchange => Box::new(bounds::copy::owning_one(count, copy)),
            Self::Completion => Box::new(bounds::copy::completed(count, copy)),
            Self::Calls => Box::new(bounds::copy::called(count, length, copy)),
        }
    }
}

/// Whether writes of this size, at so many places, are measured in batches as well.
const fn has_batches(size: usize, places: usize) -> bool {
    places == 1 && size <= MOST_IN_BATCHES
}

/// A size in words.
fn words(size: usize) -> String {
    if size < 1 << 20 { format!("{} KiB", size >> 10) } else { format!("{} MiB", size >> 20) }
}

/// Where a run copies: at one place after the other, over and over.
struct Places {
    first: usize,
    size: usize,
    end: usize,
    next: usize,
}

impl Places {
    /// The next one.
    #[inline]
    fn step(&mut self) -> usize {
        let place = self.next;
        // A division would take longer.
        self.next = if place + self.size == self.end { self.first } else { place + self.size };
        place
    }
}

fn bandwidth(context: &Context<'_>) -> Vec<Row> {
    let most = if context.is_quick() { 1 << 20 } else { 64 << 20 };
    // A machine of one thread: a deferred call runs on the core of who queued it, as in a kernel.
    let machine = Machine::seeded(1).processors(1).start();
    let os = HostOs::unwatched(&machine);
    context.cores.pin_first();
    let plan = Plan { kind: Kind::DIRECT, depth: 16, bytes: most, inline: 0, steps: true };
    let mut connection = Connection::new(&os, plan);
    for side in &connection.sides {
        side.buffer().fill(1);
    }
    let mut rows = Vec::new();
    for (through, file, title) in [
        (false, "transfer", "RDMA beside memcpy, the same bytes again and again, one core"),
        (true, "transfer-streaming", "RDMA beside memcpy, through buffers larger than the cache, one core"),
    ] {
        let mut curves = [Vec::new(), Vec::new(), Vec::new()];
        for size in SIZES.into_iter().filter(|size| *size <= most) {
            let places = if through { most / size } else { 1 };
            if through && places == 1 {
                continue;
            }
            let samples = of_size(context, &machine, &mut connection, size, places);
            let (unit, all) = (Unit::Gibibytes(size), if through { ", through all memory" } else { "" });
            let row = |what, ours, peer| {
                let name = format!("RDMA {what}, {}{all}", words(size));
                Row::in_rounds(&name, "memcpy, same core", unit, goal(size), ours, peer)
            };
            rows.push(row("write", &samples[0], &samples[2]));
            rows.push(row("read", &samples[1], &samples[3]));
            let mut others = samples.iter().skip(4);
            if has_batches(size, places)
                && let Some(ours) = others.next()
            {
                let name = format!("RDMA write, {}, {BATCH} a doorbell", words(size));
                rows.push(Row::in_rounds(&name, "memcpy, same core", unit, Goal::Reported, ours, &samples[2]));
            }
            for (bound, least) in bounds_of(size, places).iter().zip(others) {
                let name = format!("machine: memcpy of {}, {}{all}", words(size), bound.words());
                rows.push(Row::in_rounds(&name, "memcpy, same core", unit, Goal::Reported, least, &samples[2]));
            }
            for (curve, samples) in curves.iter_mut().zip(&samples) {
                #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
                curve.push((size as f64, unit.of(samples.median())));
            }
        }
        let [write, read, memcpy] = curves;
        let curves = vec![Curve::new("write", write), Curve::new("read", read), Curve::new("memcpy", memcpy)];
        context.plot(Plot { file, title, x: "bytes", y: "GiB/s", curves });
    }
    connection.close();
    machine.shutdown();
    rows
}

/// Measures write, read and memcpy of `size` bytes, at so many places one after the other.
fn of_size(
    context: &Context<'_>,
    machine: &Machine,
    connection: &mut Connection,
    size: usize,
    places: usize,
) -> Vec<Samples> {
    let count = context.effort.scale((128 << 20) / size).clamp(2, 1 << 14);
    let length = u32::try_from(size).expect("a size of the list");
    let [here, there] = &mut connection.sides;
    let here_bytes = here.buffer().len();
    let (from, to) = (here.buffer().pointer(0), there.buffer().pointer(0));
    let sides = std::cell::RefCell::new((here, there));
    let copy_between = move |from: *mut u8, to: *mut u8, place: usize| {
        let (from, to) = (from.wrapping_add(place), to.wrapping_add(place));
        // SAFETY: both buffers have so many bytes there, and no request uses them now.
        unsafe { ptr::copy_nonoverlapping(black_box(from), to, size) };
    };
    let copy = move |place| copy_between(from, to, place);
    let spots = if places == 1 { (here_bytes / size).min(SPOTS) } else { 1 };
    // Where a subject's next run copies. The bytes are in the caches when it begins, as far as they fit.
    let begin = |runs: &mut usize| {
        let begin = *runs % spots * (here_bytes / spots / PAGE * PAGE);
        *runs += 1;
        copy(begin);
        Places { first: begin, size, end: begin + places * size, next: begin }
    };
    let run = |write: bool| {
        let (sides, begin, mut runs) = (&sides, &begin, 0);
        move || {
            let (mut places, (here, there)) = (begin(&mut runs), &mut *sides.borrow_mut());
            alone(count, || {
                for _ in 0..count {
                    let place = places.step();
                    let status =
                        if write { here.write(there, place, length, 0) } else { here.read(there, place, length, 0) };
                    assert_eq!(status, NtStatus::SUCCESS, "a post has failed");
                    let mut results = [NDK_RESULT_EX::ZEROED; 1];
                    while here.initiated(&mut results) == 0 {
                        machine.step();
                    }
                }
            })
        }
    };
    let mut batches = 0;
    let in_batches = || {
        let (place, (here, there)) = (begin(&mut batches).first, &mut *sides.borrow_mut());
        let batches = count.div_ceil(BATCH);
        alone(batches * BATCH, || {
            for _ in 0..batches {
                for number in 1..=BATCH {
                    let more = if number < BATCH { NDK_OP_FLAG_DEFER | NDK_OP_FLAG_SILENT_SUCCESS } else { 0 };
                    assert_eq!(here.write(there, place, length, more), NtStatus::SUCCESS, "a post has failed");
                }
                while here.initiated(&mut [NDK_RESULT_EX::ZEROED; 1]) == 0 {
                    machine.step();
                }
            }
        })
    };
    // A write is beside a copy from here to there, a read beside one from there to here.
    let memcpy = |from, to| {
        let (begin, mut runs) = (&begin, 0);
        move || {
            let mut places = begin(&mut runs);
            alone(count, || (0..count).for_each(|_| copy_between(from, to, places.step())))
        }
    };
    let mut subjects: Vec<Subject<'_>> =
        vec![Box::new(run(true)), Box::new(run(false)), Box::new(memcpy(from, to)), Box::new(memcpy(to, from))];
    if has_batches(size, places) {
        subjects.push(Box::new(in_batches));
    }
    // What bounds them, where the copy is not nearly all.
    let copy_next = || {
        let (begin, mut runs, mut left) = (&begin, 0, 0);
        let mut places = begin(&mut runs);
        move || {
            if left == 0 {
                (places, left) = (begin(&mut runs), count);
            }
            left -= 1;
            copy(places.step());
        }
    };
    subjects.extend(bounds_of(size, places).iter().map(|bound| bound.subject(count, length, copy_next())));
    context.interleave(subjects)
}
