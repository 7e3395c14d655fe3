//! RDMA reads and writes beside `memcpy` of the same bytes on the same core.

use std::{cell::RefCell, hint::black_box, ptr, sync::Arc};

use host::{HostOs, PinnedBuffer, machine::Machine};
use ndkpi::{NDK_OP_FLAG_DEFER, NDK_OP_FLAG_SILENT_SUCCESS, NDK_RESULT_EX, NtStatus};
use provider::NicMode;

use super::bounds;
use crate::{
    Context,
    kind::{Kind, Lock},
    measure::{Samples, Subject, alone},
    ndk::{Connection, Plan, Side},
    plot::{Curve, Plot},
    row::{Goal, Row, Unit},
    settle,
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
/// Nor above this one.
const MOST_WITH_CALLS: usize = 64 << 10;

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("RDMA write and read", bandwidth);
}

/// What is a goal of this kind of adapter at this size.
fn goal(kind: Kind, size: usize) -> Goal {
    match size {
        0x1000 if kind == Kind::DIRECT => Goal::AtLeast(0.8),
        0x1_0000.. if kind.lock == Lock::Inlined => Goal::AtLeast(0.95),
        _ => Goal::Reported,
    }
}

/// The kinds of adapter that are measured at this size.
const fn kinds(size: usize, places: usize) -> &'static [Kind] {
    const ALL: [Kind; 4] = [Kind::DIRECT, Kind::DEFERRED, Kind::DIRECT.called(), Kind::DEFERRED.called()];
    // Where the copy is nearly all, it makes no difference what a lock costs.
    if places == 1 && size <= MOST_WITH_CALLS { &ALL } else { ALL.split_at(2).0 }
}

/// What bounds the rows of this size: what there is besides the copy.
const fn bounds_of(size: usize, places: usize) -> &'static [Bound] {
    match (size, places) {
        (0x1000, 1) => &[Bound::Exchange, Bound::Completion, Bound::Calls],
        (0x1_0000 | 0x4_0000, _) => &[Bound::Calls, Bound::Deferred],
        _ => &[],
    }
}

/// The least of a transfer, or a part of it: see [`bounds::copy`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// One thing is owned during the copy.
    Exchange,
    /// What has to be owned is, and a completion goes to the consumer.
    Completion,
    /// The same by calls.
    Calls,
    /// The same in a DPC.
    Deferred,
}

impl Bound {
    const fn words(self) -> &'static str {
        match self {
            Self::Exchange => "an atomic exchange and a store",
            Self::Completion => "two atomic exchanges and a completion through a queue with a lock",
            Self::Calls => "two atomic exchanges and a completion, posted and polled by calls",
            Self::Deferred => "two atomic exchanges and a completion in a DPC, posted and polled by calls",
        }
    }

    /// What the least of this kind of adapter is.
    fn of(kind: Kind) -> Self {
        if kind.engine == NicMode::Deferred { Self::Deferred } else { Self::Calls }
    }

    fn subject<'a>(self, context: &'a Context<'_>, count: usize, length: u32, copy: impl FnMut() + 'a) -> Subject<'a> {
        match self {
            Self::Exchange => Box::new(bounds::copy::owning_one(count, copy)),
            Self::Completion => Box::new(bounds::copy::completed(count, copy)),
            Self::Calls => Box::new(bounds::copy::called(count, length, copy)),
            Self::Deferred => Box::new(bounds::copy::deferred(context.os, count, length, copy)),
        }
    }
}

/// Returns true if writes of this size, at so many places, are measured in batches as well.
const fn has_batches(size: usize, places: usize) -> bool {
    places == 1 && size <= MOST_IN_BATCHES
}

/// A size in words.
fn words(size: usize) -> String {
    if size < 1 << 20 { format!("{} KiB", size >> 10) } else { format!("{} MiB", size >> 20) }
}

/// Where a run copies: at one place after the other, over and over.
struct Positions {
    first: usize,
    size: usize,
    end: usize,
    next: usize,
}

impl Positions {
    /// The next one.
    #[inline]
    fn step(&mut self) -> usize {
        let place = self.next;
        // A division would take longer.
        self.next = if place + self.size == self.end { self.first } else { place + self.size };
        place
    }
}

/// An adapter of a kind on a machine of its own, where nothing else runs.
struct Adapter {
    kind: Kind,
    machine: Machine,
    /// One that is lent to whoever has its turn.
    connection: RefCell<Connection>,
}

impl Adapter {
    /// The direct engine leaves what is long to DPCs, which run when the machine is told to. Those of the deferred
    /// engine run as in a kernel.
    fn new(kind: Kind, buffers: &[Arc<PinnedBuffer>; 2]) -> Self {
        let is_direct = kind.engine == NicMode::Direct;
        let machine = if is_direct { Machine::seeded(1) } else { Machine::threads() }.processors(1).start();
        let plan = Plan { kind, depth: 16, bytes: buffers[0].len(), inline: 0, steps: is_direct };
        let connection = Connection::with_buffers(&HostOs::unwatched(&machine), plan, buffers.clone());
        Self { kind, machine, connection: RefCell::new(connection) }
    }

    /// `work` with the thread on the adapter's processor.
    fn run(&self, work: impl FnOnce(&mut Side, &Side) -> f64) -> f64 {
        let connection = &mut *self.connection.borrow_mut();
        let [here, there] = &mut connection.sides;
        let _on = (self.kind.engine == NicMode::Deferred).then(|| self.machine.run_on(0));
        work(here, there)
    }

    /// Waits for a completion.
    fn complete(&self, here: &mut Side) {
        while here.initiated(&mut [NDK_RESULT_EX::ZEROED; 1]) == 0 {
            assert!(self.kind.engine == NicMode::Direct, "DPCs have run");
            self.machine.step();
        }
    }

    fn close(self) {
        self.connection.into_inner().close();
        settle(&HostOs::unwatched(&self.machine));
        self.machine.shutdown();
    }
}

fn bandwidth(context: &Context<'_>) -> Vec<Row> {
    let most = if context.is_quick() { 1 << 20 } else { 64 << 20 };
    context.cores.pin_first();
    let buffers = [(); 2].map(|()| Arc::new(PinnedBuffer::new(most).expect("memory")));
    for buffer in &buffers {
        buffer.fill(1);
    }
    let adapters: Vec<_> = kinds(0, 1).iter().map(|kind| Adapter::new(*kind, &buffers)).collect();
    let mut rows = Vec::new();
    for (through, file, title) in [
        (false, "transfer", "RDMA beside memcpy, the same bytes again and again, one core, inlined lock"),
        (
            true,
            "transfer-streaming",
            "RDMA beside memcpy, through buffers larger than the cache, one core, inlined lock",
        ),
    ] {
        let mut curves = ["write, direct", "write, deferred", "read, direct", "read, deferred", "memcpy"]
            .map(|name| (name, Vec::new()));
        for size in SIZES.into_iter().filter(|size| *size <= most) {
            let places = if through { most / size } else { 1 };
            if through && places == 1 {
                continue;
            }
            let samples = of_size(context, &adapters, &buffers, size, places);
            let all = if through { ", through all memory" } else { "" };
            rows.extend(samples.rows(size, places, all));
            let OfSize { memcpy: [to, _], write, read, .. } = &samples;
            for ((_, curve), samples) in curves.iter_mut().zip([&write[0], &write[1], &read[0], &read[1], to]) {
                #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
                curve.push((size as f64, Unit::Gibibytes(size).of(samples.median())));
            }
        }
        let curves = curves.into_iter().map(|(name, points)| Curve::new(name, points)).collect();
        context.plot(Plot { file, title, x: "bytes", y: "GiB/s", curves });
    }
    adapters.into_iter().for_each(Adapter::close);
    rows
}

/// What was measured of one size.
struct OfSize {
    /// Of each kind of adapter.
    write: Vec<Samples>,
    read: Vec<Samples>,
    /// From here to there, beside which a write is, and back.
    memcpy: [Samples; 2],
    batches: Option<Samples>,
    bounds: Vec<Samples>,
}

impl OfSize {
    fn rows(&self, size: usize, places: usize, all: &str) -> Vec<Row> {
        let row = |name: &str, goal, ours, peer| {
            Row::in_rounds(name, "memcpy, same core", Unit::Gibibytes(size), goal, ours, peer)
        };
        let name = |what: &str, kind: Kind| format!("RDMA {what}, {}{all}, {}", words(size), kind.words());
        let [to, from] = &self.memcpy;
        let bounds = bounds_of(size, places);
        let least: Vec<_> = bounds
            .iter()
            .zip(&self.bounds)
            .map(|(bound, least)| {
                let name = format!("machine: memcpy of {}, {}{all}", words(size), bound.words());
                row(&name, Goal::Reported, least, to)
            })
            .collect();
        let bounded = |kind: Kind, row: Row| {
            let of_kind = bounds.iter().position(|bound| *bound == Bound::of(kind));
            of_kind.map_or_else(|| row.clone(), |index| row.clone().bounded(goal(kind, size), &least[index]))
        };
        let mut rows = Vec::new();
        for (kind, (write, read)) in kinds(size, places).iter().zip(self.write.iter().zip(&self.read)) {
            rows.push(bounded(*kind, row(&name("write", *kind), goal(*kind, size), write, to)));
            rows.push(bounded(*kind, row(&name("read", *kind), goal(*kind, size), read, from)));
        }
        if let Some(batches) = &self.batches {
            let name = format!("{}, {BATCH} a doorbell", name("write", Kind::DIRECT));
            rows.push(row(&name, Goal::Reported, batches, to));
        }
        rows.extend(least);
        rows
    }
}

/// Measures write, read and memcpy of `size` bytes, at so many places one after the other.
fn of_size<'a>(
    context: &Context<'_>,
    adapters: &'a [Adapter],
    buffers: &[Arc<PinnedBuffer>; 2],
    size: usize,
    places: usize,
) -> OfSize {
    let count = context.effort.scale((64 << 20) / size).clamp(2, 1 << 14);
    let length = u32::try_from(size).expect("a size of the list");
    let [from, to] = [buffers[0].pointer(0), buffers[1].pointer(0)];
    let copy_between = move |from: *mut u8, to: *mut u8, place: usize| {
        let (from, to) = (from.wrapping_add(place), to.wrapping_add(place));
        // SAFETY: both buffers have so many bytes there, and no request uses them now.
        unsafe { ptr::copy_nonoverlapping(black_box(from), to, size) };
    };
    let copy = move |place| copy_between(from, to, place);
    let spots = if places == 1 { (buffers[0].len() / size).min(SPOTS) } else { 1 };
    // Where a subject's next run copies. The bytes are in the caches when it begins, as far as they fit.
    let begin = |runs: &mut usize| {
        let begin = *runs % spots * (buffers[0].len() / spots / PAGE * PAGE);
        *runs += 1;
        copy(begin);
        Positions { first: begin, size, end: begin + places * size, next: begin }
    };
    let begin = &begin;
    let adapters = &adapters[..kinds(size, places).len()];
    let one_by_one = |adapter: &'a Adapter, write: bool| -> Subject<'_> {
        let mut runs = 0;
        Box::new(move || {
            let mut places = begin(&mut runs);
            adapter.run(|here, there| {
                alone(count, || {
                    for _ in 0..count {
                        let (place, raised) = (places.step(), here.raised());
                        let status = if write {
                            here.write(there, place, length, 0)
                        } else {
                            here.read(there, place, length, 0)
                        };
                        drop(raised);
                        assert_eq!(status, NtStatus::SUCCESS, "a post has failed");
                        adapter.complete(here);
                    }
                })
            })
        })
    };
    let in_batches = |adapter: &'a Adapter| -> Subject<'_> {
        let mut runs = 0;
        Box::new(move || {
            let place = begin(&mut runs).first;
            let batches = count.div_ceil(BATCH);
            adapter.run(|here, there| {
                alone(batches * BATCH, || {
                    for _ in 0..batches {
                        for number in 1..=BATCH {
                            let more = if number < BATCH { NDK_OP_FLAG_DEFER | NDK_OP_FLAG_SILENT_SUCCESS } else { 0 };
                            let status = here.write(there, place, length, more);
                            assert_eq!(status, NtStatus::SUCCESS, "a post has failed");
                        }
                        adapter.complete(here);
                    }
                })
            })
        })
    };
    // A write is beside a copy from here to there, a read beside one from there to here.
    let memcpy = |from, to| -> Subject<'_> {
        let mut runs = 0;
        Box::new(move || {
            let mut places = begin(&mut runs);
            alone(count, || (0..count).for_each(|_| copy_between(from, to, places.step())))
        })
    };
    // What bounds them, where the copy is not nearly all.
    let copy_next = || {
        let (mut runs, mut left) = (0, 0);
        let mut places = begin(&mut runs);
        move || {
            if left == 0 {
                (places, left) = (begin(&mut runs), count);
            }
            left -= 1;
            copy(places.step());
        }
    };
    let mut subjects = vec![memcpy(from, to), memcpy(to, from)];
    for write in [true, false] {
        subjects.extend(adapters.iter().map(|adapter| one_by_one(adapter, write)));
    }
    if has_batches(size, places) {
        subjects.push(in_batches(&adapters[0]));
    }
    subjects.extend(bounds_of(size, places).iter().map(|bound| bound.subject(context, count, length, copy_next())));
    let mut samples = context.interleave(subjects).into_iter();
    let mut next = || samples.next().expect("samples of every subject");
    OfSize {
        memcpy: [next(), next()],
        write: adapters.iter().map(|_| next()).collect(),
        read: adapters.iter().map(|_| next()).collect(),
        batches: has_batches(size, places).then(&mut next),
        bounds: samples.collect(),
    }
}
