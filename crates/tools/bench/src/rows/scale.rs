//! What costs the same however many there are: queue pairs on a completion queue, tokens in a table.

use std::{cell::Cell, hint::black_box, iter};

use engine::{
    Nic,
    cq::{Cq, CqConsumer, CqParameters},
    memory::{Access, Domain, MemoryLimits, MemoryTable, Region, RegionKind, Rights},
    nic::NicMode,
    qp::{Flags, NewQp, Payload, Qp, QpParameters, Work},
};
use fallible::Arc;
use host::{HostMemory, HostOs, PinnedBuffer};
use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};

use super::{cq::Quiet, entry::completion};
use crate::{
    Context,
    measure::{Effort, Samples, Subject, alone},
    plot::{Curve, Plot},
    row::{Goal, Row, Unit},
};

/// Numbers of queue pairs.
const QPS: [usize; 5] = [1, 10, 100, 1000, 10_000];
/// Numbers of regions.
const REGIONS: [usize; 6] = [10, 100, 1000, 10_000, 100_000, 1 << 20];
/// Tables of the same size: one for each run that a subject has in a turn.
const TABLES: usize = Effort::FULL.repeats;
/// Tables with more regions than this are made once.
const LARGE: usize = 100_000;
/// Completions between two looks at the completion queue.
const BURST: usize = 32;

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("QPs on one CQ", queue_pairs);
    context.row("token look-up", tokens);
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn point(x: usize, samples: &Samples) -> (f64, f64) {
    (x as f64, samples.median())
}

/// The parameters of a queue pair with `depth` requests in each queue.
const fn parameters(context: usize, depth: u32) -> QpParameters {
    QpParameters {
        receive_depth: depth,
        initiator_depth: depth,
        max_receive_sge: 1,
        max_initiator_sge: 1,
        max_peer_sge: 1,
        inline_size: 0,
        max_transfer: 1 << 20,
        context,
    }
}

/// Queue pairs that complete in one queue, in pairs that are connected.
struct Fabric {
    cq: Arc<Cq<HostOs>>,
    consumer: CqConsumer<HostOs>,
    pairs: Vec<[NewQp<HostOs>; 2]>,
}

impl Fabric {
    fn new(os: &HostOs, qps: usize) -> Self {
        let nic = Nic::try_new_in(os, NicMode::Direct).expect("memory");
        let limits = MemoryLimits { tokens: 16, mappings: 16, ..MemoryLimits::MAX };
        let domain = Domain::try_new(&MemoryTable::try_new(os, limits).expect("memory")).expect("memory");
        let depth = 1 << 12;
        let (cq, consumer) =
            Cq::try_new(os, CqParameters { depth, max_depth: depth, processor: 0 }, Quiet).expect("memory");
        let make = |number| Qp::try_new(&nic, &domain, &cq, &cq, None, &parameters(number, 64), ()).expect("memory");
        let pairs = (0..qps.div_ceil(2)).map(|number| {
            let pair = [make(2 * number), make(2 * number + 1)];
            Qp::link(&pair[0].qp, &pair[1].qp).expect("two new queue pairs");
            pair
        });
        let pairs = pairs.collect();
        Self { cq, consumer, pairs }
    }

    /// A receive, an empty send and both completions, for `count` completions, on one pair after the other.
    fn exchange(&mut self, count: usize) {
        let (mut done, mut next, pairs) = (0, 0, self.pairs.len());
        while done < count {
            for _ in 0..BURST / 2 {
                let [near, far] = &mut self.pairs[next];
                next = (next + 1) % pairs;
                let queue = &mut far.receive_queue;
                Qp::post_receive(&far.qp, next, iter::empty(), queue).expect("room");
                let (work, queue) = (Work::Send { invalidate: None }, &mut near.send_queue);
                let nothing = Payload::of_elements(iter::empty());
                Qp::post(&near.qp, next, work, Flags::default(), nothing, queue).expect("room");
            }
            done += self.consumer.poll(BURST, |entry| {
                black_box(entry.request_context);
            });
        }
    }

    fn close(self) {
        for [near, far] in &self.pairs {
            Qp::close(&near.qp);
            Qp::close(&far.qp);
        }
        self.cq.close();
        drop(self);
    }
}

fn queue_pairs(context: &Context<'_>) -> Vec<Row> {
    context.cores.pin_first();
    let most = if context.is_quick() { 100 } else { 10_000 };
    let numbers: Vec<_> = QPS.into_iter().filter(|number| *number <= most).collect();
    let count = context.effort.scale(1 << 17);
    // The completion queue alone: completions of so many queue pairs, in bursts, polled in bursts.
    let queue = |qps: usize| {
        let (cq, mut consumer) = super::cq::queue(context.os);
        move || {
            alone(count, || {
                let (mut qp, mut sum) = (0, 0);
                for _ in 0..count / BURST {
                    for _ in 0..BURST {
                        qp = if qp + 1 == qps { 0 } else { qp + 1 };
                        let entry = completion(qp);
                        Cq::push(&cq, engine::cq::Cqe { qp_context: qp, ..entry });
                    }
                    consumer.poll(BURST, |entry| sum += entry.qp_context);
                }
                black_box(sum);
            })
        }
    };
    let alone_samples =
        context.interleave(numbers.iter().map(|number| -> Subject<'_> { Box::new(queue(*number)) }).collect());
    let mut fabrics: Vec<_> = numbers.iter().map(|number| Fabric::new(context.os, *number)).collect();
    let whole = context.interleave(
        fabrics
            .iter_mut()
            .map(|fabric| -> Subject<'_> { Box::new(move || alone(count, || fabric.exchange(count))) })
            .collect(),
    );
    fabrics.into_iter().for_each(Fabric::close);
    context.settle();
    let mut rows = Vec::new();
    let mut curves = [Vec::new(), Vec::new()];
    for (index, number) in numbers.iter().enumerate() {
        for (curve, samples) in curves.iter_mut().zip([&alone_samples, &whole]) {
            curve.push(point(*number, &samples[index]));
        }
        if index > 0 {
            let name = format!("{number} QPs on one CQ, cost of a completion in the CQ, inlined lock");
            let (goal, against) = (Goal::AtMost(1.25), "1 QP");
            let row = Row::in_rounds(&name, against, Unit::Nanoseconds, goal, &alone_samples[index], &alone_samples[0]);
            rows.push(row);
            let name = format!(
                "{number} QPs on one CQ, half of a receive, a send and both completions, direct engine, inlined lock"
            );
            let row = Row::in_rounds(&name, "1 QP", Unit::Nanoseconds, Goal::Reported, &whole[index], &whole[0]);
            rows.push(row);
        }
    }
    let [queue, whole] = curves;
    context.plot(Plot {
        file: "queue-pairs",
        title: "Queue pairs on one completion queue",
        x: "queue pairs",
        y: "ns for a completion",
        curves: vec![
            Curve::new("completion queue alone", queue),
            Curve::new("receive, send and both completions, halved", whole),
        ],
    });
    rows
}

/// Tables of the same size that have their turns one after the other: what one of them shares its places in the caches with is luck,
/// and stays the same for a run of the program.
struct Tables {
    tables: Vec<Regions>,
    turn: Cell<usize>,
}

impl Tables {
    /// As many as [`TABLES`], but one where it takes seconds to make it.
    fn new(os: &HostOs, count: usize) -> Self {
        let tables = if count > LARGE { 1 } else { TABLES };
        Self { tables: (0..tables).map(|_| Regions::new(os, count)).collect(), turn: Cell::new(0) }
    }

    /// How many regions each of them has.
    fn regions(&self) -> usize {
        self.tables[0].all.len()
    }

    fn next(&self) -> &Regions {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        &self.tables[turn % self.tables.len()]
    }
}

/// A table with some regions, and their tokens.
struct Regions {
    domain: Arc<Domain<HostOs>>,
    all: Vec<Arc<Region<HostOs>>>,
    tokens: Vec<u32>,
    buffer: PinnedBuffer,
}

impl Regions {
    fn new(os: &HostOs, count: usize) -> Self {
        let limits = MemoryLimits { mappings: 16, ..MemoryLimits::MAX };
        let domain = Domain::try_new(&MemoryTable::try_new(os, limits).expect("memory")).expect("memory");
        let buffer = PinnedBuffer::new(4096).expect("memory");
        let make = |_| {
            let region = Region::try_new(&domain, RegionKind::Normal).expect("memory");
            // SAFETY: the buffer outlives the regions, and nobody looks at its bytes.
            let memory = unsafe { HostMemory::from_mdl(buffer.mdl(), 4096) }.expect("memory");
            region.register(memory, Rights::LOCAL_WRITE, ()).expect("memory");
            region
        };
        let regions: Vec<_> = (0..count).map(make).collect();
        // In an order that no prefetcher knows.
        let mut tokens: Vec<_> = regions.iter().map(|region| region.local_token()).collect();
        let mut random = SplitMix64::seed_from_u64(1);
        for last in (1..tokens.len()).rev() {
            tokens.swap(last, (random.next_u64() >> 33) as usize % (last + 1));
        }
        Self { domain, all: regions, tokens, buffer }
    }

    fn look_up(&self, tokens: &[u32], rounds: usize) -> f64 {
        let address = self.buffer.address(0);
        alone(tokens.len() * rounds, || {
            for _ in 0..rounds {
                for token in tokens {
                    let piece = self.domain.resolve(*token, address, 64, Access::LocalWrite);
                    black_box(piece.expect("a token of a region").len());
                }
            }
        })
    }
}

fn tokens(context: &Context<'_>) -> Vec<Row> {
    context.cores.pin_first();
    let most = if context.is_quick() { 1000 } else { usize::MAX };
    // A place less than tokens have room for belongs to the domain.
    let counts = REGIONS.into_iter().filter(|count| *count <= most).map(|count| count.min((1 << 20) - 2));
    let tables: Vec<_> = counts.map(|count| Tables::new(context.os, count)).collect();
    let looks = context.effort.scale(1 << 18);
    // Ten of all regions: what the table costs. All of them: what the caches cost besides.
    let ten = |table: &Regions| table.look_up(&table.tokens[..10], looks / 10);
    let all = |table: &Regions| {
        let some = table.tokens.len().min(looks);
        table.look_up(&table.tokens[..some], looks / some)
    };
    let subjects = |look: &dyn Fn(&Regions) -> f64| -> Vec<Samples> {
        context.interleave(tables.iter().map(|tables| -> Subject<'_> { Box::new(|| look(tables.next())) }).collect())
    };
    let (few, every) = (subjects(&ten), subjects(&all));
    let mut rows = Vec::new();
    let mut curves = [Vec::new(), Vec::new()];
    for (index, tables) in tables.iter().enumerate() {
        let count = tables.regions();
        curves[0].push(point(count, &few[index]));
        curves[1].push(point(count, &every[index]));
        if index > 0 {
            let name = format!("token look-up, ten of {count} regions, inlined lock");
            rows.push(Row::in_rounds(&name, "10 regions", Unit::Nanoseconds, Goal::AtMost(1.3), &few[index], &few[0]));
            let name = format!("token look-up, any of {count} regions, inlined lock");
            let row = Row::measured(&name, "10 regions", Unit::Nanoseconds, Goal::Reported, &every[index], &few[0]);
            rows.push(row);
        }
    }
    let [few, every] = curves;
    context.plot(Plot {
        file: "tokens",
        title: "Look-up of a token, one thread",
        x: "regions",
        y: "ns",
        curves: vec![Curve::new("ten of them", few), Curve::new("any of them, in no order", every)],
    });
    rows
}
