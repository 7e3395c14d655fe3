//! Bytes of objects that do nothing.

use engine::{
    Nic,
    cq::{Cq, CqParameters, Cqe},
    memory::{Domain, MemoryLimits, MemoryTable},
    nic::NicMode,
    qp::{Qp, QpParameters},
};

use super::cq::Quiet;
use crate::{
    Context,
    allocated::in_use,
    row::{Row, Unit},
};

/// Objects that are made to measure one.
const COUNT: usize = 64;
/// What an object may have besides one and a half times its entries.
const ALLOWANCE: usize = 1 << 10;

/// The rows of this part.
pub fn rows(context: &mut Context<'_>) {
    context.row("memory of an idle QP and CQ", idle);
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn row(name: &str, bytes: usize, entries: usize) -> Row {
    let against = format!("1.5 x {entries} bytes of entries + 1 KiB");
    Row::limited(name, &against, Unit::Bytes, bytes as f64, (entries * 3 / 2 + ALLOWANCE) as f64)
}

fn idle(context: &Context<'_>) -> Vec<Row> {
    let names = [
        "memory of an idle CQ, depth 256, inlined lock",
        "memory of an idle QP, depth 64/64, one element each, inlined lock",
    ];
    let os = context.os;
    let before = in_use();
    let parameters = CqParameters { depth: 256, max_depth: 256, processor: 0 };
    let mut queues = Vec::with_capacity(COUNT);
    queues.extend((0..COUNT).map(|_| Cq::try_new(os, parameters, Quiet).expect("memory")));
    let bytes = (in_use() - before - queues.capacity() * size_of_val(&queues[0])) / COUNT;
    let cq = row(names[0], bytes, 256 * size_of::<Cqe>());

    let nic = Nic::try_new_in(os, NicMode::default()).expect("memory");
    let limits = MemoryLimits { tokens: 16, mappings: 16, ..MemoryLimits::MAX };
    let domain = Domain::try_new(&MemoryTable::try_new(os, limits).expect("memory")).expect("memory");
    let parameters = QpParameters {
        receive_depth: 64,
        initiator_depth: 64,
        max_receive_sge: 1,
        max_initiator_sge: 1,
        max_peer_sge: 1,
        inline_size: 0,
        max_transfer: 1 << 20,
        context: 0,
    };
    let queue = &queues[0].0;
    let make = || Qp::try_new(&nic, &domain, queue, queue, None, &parameters, ()).expect("memory");
    // The first makes room for others in the lists it is in.
    let mut pairs = Vec::with_capacity(2 * COUNT);
    pairs.extend((0..COUNT).map(|_| make()));
    let before = in_use();
    pairs.extend((0..COUNT).map(|_| make()));
    let bytes = (in_use() - before) / COUNT;
    let qp = row(names[1], bytes, parameters.entry_bytes());
    for pair in &pairs {
        Qp::close(&pair.qp);
    }
    for (queue, _) in &queues {
        queue.close();
    }
    context.settle();
    vec![cq, qp]
}
