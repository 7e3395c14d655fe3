//! Making completion queues (`NDKPI 5.2`, `NDKPI 7.1.1`).

use alloc::vec::Vec;

use ndkpi::{GROUP_AFFINITY, NDK_CQ_NOTIFY_ANY, NtStatus};

use crate::{
    case::{Case, HELD, Stop, Verdict},
    client::{QpSizes, Session, Without},
    fixture::{Pair, Plan, QP_B, Terms, is_success},
};

pub const CASES: &[Case] = &[
    Case::new(
        "cq.depth-one",
        "NDKPI 7.1.1",
        "Creates a completion queue for one entry and lets a hundred sends complete on it, one after the other.",
        "All are found, in order.",
        depth_one,
    ),
    Case::new(
        "cq.depth-is-exact",
        "NDKPI 7.1.10",
        "Fills completion queues of depth 1 to 9 with exactly as many completions.",
        "All are found: no overrun.",
        depth_is_exact,
    ),
    Case::new(
        "cq.depth-maximum",
        "NDKPI 5.2",
        "Creates a completion queue of the depth MaxCqDepth.",
        "It is created, or there are no resources for it.",
        depth_maximum,
    ),
    Case::new(
        "cq.depth-above-maximum",
        "NDKPI 5.2",
        "Creates completion queues that are deeper than MaxCqDepth, by one and by as much as possible.",
        "STATUS_INVALID_PARAMETER.",
        depth_above_maximum,
    ),
    Case::new("cq.depth-zero", "NDKPI 9", "Creates a completion queue of depth 0.", "Open: the status.", depth_zero),
    Case::new(
        "cq.affinity-is-advice",
        "NDKPI 5.2",
        "Creates completion queues with affinities of no processor, of a group that does not exist, of all processors.",
        "They are created.",
        affinity_is_advice,
    ),
    Case::new(
        "cq.without-what-is-mandatory",
        "NDKPI 5.2",
        "Creates a completion queue without a completion callback, and without a place for the object.",
        "It fails, and the provider goes on.",
        without_what_is_mandatory,
    ),
    Case::new(
        "cq.polling-only",
        "NDKPI 5.2",
        "Creates a completion queue without a notification callback, and polls it.",
        "Open: whether there is such a queue. Its completions come.",
        polling_only,
    ),
    Case::new(
        "cq.many",
        "NDKPI 7.9",
        "Creates two hundred completion queues and closes them in another order.",
        "All are created and closed.",
        many,
    ),
    Case::new(
        "cq.one-for-everything",
        "NDKPI 7.1.1",
        "Lets both queues of two queue pairs complete on one completion queue.",
        "Every completion comes, each queue's in order.",
        one_for_everything,
    ),
    Case::new(
        "cq.wraps-around",
        "NDKPI 7.1.8",
        "Sends two thousand times over completion queues of depth 3, so that their rings wrap around.",
        "Every completion comes once, in order.",
        wraps_around,
    ),
];

fn depth_one(s: &Session<'_>) -> Verdict {
    let plan = Plan { depths: [1, 1], ..Plan::new() };
    let pair = Pair::tested(s, &plan, &plan)?;
    for number in 1..=100 {
        pair.deliver(number, false)?;
        pair.b.receive_done(number)?;
    }
    pair.b.receive_cq.stays_empty()?;
    HELD
}

fn depth_is_exact(s: &Session<'_>) -> Verdict {
    for depth in 1..=9_u32 {
        let plan = Plan { depths: [depth, depth], ..Plan::new() };
        let pair = Pair::tested(s, &plan, &plan)?;
        let count = depth as usize;
        for number in 0..count {
            pair.start_delivery(number, false)?;
        }
        for done in [pair.a.initiated().take(count)?, pair.b.receive_cq.take(count)?] {
            for (number, done) in done.iter().enumerate() {
                crate::fixture::is_success(done, number)?;
            }
        }
        // It still works.
        pair.deliver(99, false)?;
        pair.b.receive_done(99)?;
    }
    HELD
}

fn depth_maximum(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    match adapter.try_create_cq(adapter.info().MaxCqDepth, None, None)? {
        Ok(cq) => {
            ensure_eq!(cq.poll(16)?.len(), 0, "completions of a new queue");
            cq.close()?;
            HELD
        }
        Err(NtStatus::INSUFFICIENT_RESOURCES) => observed!("no resources for a queue of the maximum depth"),
        Err(status) => fail!("NdkCreateCq of the depth MaxCqDepth: {status}"),
    }
}

fn depth_above_maximum(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let most = adapter.info().MaxCqDepth;
    let Some(more) = most.checked_add(1) else { skip!("MaxCqDepth is the greatest number there is") };
    for depth in [more, u32::MAX] {
        match adapter.try_create_cq(depth, None, None)? {
            Ok(_) => fail!("a completion queue of depth {depth} was created, MaxCqDepth is {most}"),
            Err(status) => ensure_eq!(status, NtStatus::INVALID_PARAMETER, "NdkCreateCq of depth {depth}"),
        }
    }
    HELD
}

fn depth_zero(s: &Session<'_>) -> Verdict {
    match s.adapter()?.try_create_cq(0, None, None)? {
        Ok(cq) => {
            cq.close()?;
            observed!("it is created")
        }
        Err(status) => observed!("{status}"),
    }
}

fn affinity_is_advice(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let affinities = [
        GROUP_AFFINITY { Mask: 0, Group: 0, Reserved: [0; 3] },
        GROUP_AFFINITY { Mask: 1, Group: 63, Reserved: [0; 3] },
        GROUP_AFFINITY { Mask: usize::MAX, Group: 0, Reserved: [0; 3] },
        GROUP_AFFINITY { Mask: 1 << 63, Group: 0, Reserved: [0; 3] },
    ];
    for affinity in affinities {
        let created = adapter.try_create_cq(16, None, Some(affinity))?;
        created.map_err(|status| Stop::failed(format_args!("NdkCreateCq with {affinity:?}: {status}")))?.close()?;
    }
    HELD
}

fn without_what_is_mandatory(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let adapter = s.adapter()?;
    let mut seen = [NtStatus::SUCCESS; 2];
    let kinds = [Without::Completion, Without::Place];
    for (seen, without) in seen.iter_mut().zip(kinds) {
        *seen = adapter.create_cq_without(without)?;
        ensure!(!seen.is_success(), "a completion queue was created without {without:?}");
    }
    adapter.create_cq(16, None)?.close()?;
    observed!("without completion {}, place {}", seen[0], seen[1])
}

fn polling_only(s: &Session<'_>) -> Verdict {
    let cq = match s.peer_adapter()?.try_create_polled_cq(16)? {
        Ok(cq) => cq,
        Err(status) => return observed!("there is no such queue: {status}"),
    };
    let (a, mut b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    b.qp = b.pd.core().create_qp(cq.core(), cq.core(), QP_B, Plan::new().sizes)?;
    let pair = Pair::join(s, a, b, &Terms::new())?;
    pair.deliver(1, false)?;
    is_success(&cq.core().take_one()?, 1)?;
    // Who has no callback has no reason to arm, and a driver that calls it all the same crashes.
    if s.need_hostile().is_err() {
        return observed!("there is such a queue, and results come by polling");
    }
    cq.core().arm(NDK_CQ_NOTIFY_ANY)?;
    pair.deliver(2, true)?;
    s.settle();
    is_success(&cq.core().take_one()?, 2)?;
    observed!("there is such a queue, and arming it does nothing")
}

fn many(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let mut queues = Vec::new();
    for number in 0..200 {
        if queues.try_reserve(1).is_err() {
            inconclusive!("no memory for the case");
        }
        queues.push(adapter.create_cq(1 + number % 32, None)?);
    }
    let mut random = s.random();
    while !queues.is_empty() {
        let count = u32::try_from(queues.len()).unwrap_or(1);
        queues.swap_remove(random.below(count) as usize).close()?;
    }
    HELD
}

fn one_for_everything(s: &Session<'_>) -> Verdict {
    let plan = Plan { one_cq: true, ..Plan::new() };
    let (first_a, first_b) = Pair::apart(s, &plan, &plan)?;
    let (second_a, mut second_b) = Pair::apart(s, &plan, &plan)?;
    let cq = first_b.receive_cq.core();
    let sizes: QpSizes = plan.sizes;
    second_b.qp = first_b.pd.core().create_qp(cq, cq, 0xC3, sizes)?;
    second_b.region = crate::client::Region::new(first_b.pd.core(), 8192, crate::client::ALL_RIGHTS)?;
    let first = Pair::join(s, first_a, first_b, &crate::fixture::Terms::new())?;
    let second = Pair::join(s, second_a, second_b, &crate::fixture::Terms::new())?;
    for number in 0..8 {
        for pair in [&first, &second] {
            pair.b.receive(number, 0, 64)?;
            pair.a.receive(number, 0, 64)?;
            pair.a.send(100 + number, 0, 16, 0)?;
            pair.b.send(100 + number, 0, 16, 0)?;
        }
    }
    let all = cq.take(32)?;
    for (qp, first) in [(crate::fixture::QP_B, 0), (0xC3, 0), (crate::fixture::QP_B, 100), (0xC3, 100)] {
        let of_queue = all.iter().filter(|done| done.qp == qp && (done.request >= 100) == (first == 100));
        for (number, done) in (first..first + 8).zip(of_queue) {
            crate::fixture::is_success(done, number)?;
        }
        let count = all.iter().filter(|done| done.qp == qp && (done.request >= 100) == (first == 100)).count();
        ensure_eq!(count, 8, "completions of one queue of the queue pair {qp:#x}");
    }
    HELD
}

fn wraps_around(s: &Session<'_>) -> Verdict {
    let plan = Plan { depths: [3, 3], ..Plan::new() };
    let pair = Pair::tested(s, &plan, &plan)?;
    for round in 0..1000 {
        let count = 1 + round % 3;
        for number in 0..count {
            pair.start_delivery(round + number, false)?;
        }
        for done in [pair.a.initiated().take(count)?, pair.b.receive_cq.take(count)?] {
            for (number, done) in done.iter().enumerate() {
                crate::fixture::is_success(done, round + number)?;
            }
        }
    }
    HELD
}
