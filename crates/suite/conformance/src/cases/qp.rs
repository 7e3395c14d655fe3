//! Making queue pairs, and how many requests they hold (`NDKPI 5.3`, `7.2`).

use ndkpi::{NDK_ADAPTER_INFO, NDK_OP_FLAG_SILENT_SUCCESS, NtStatus};

use crate::{
    case::{Case, HELD, Verdict},
    client::{QpSizes, Session},
    fixture::{Pair, Plan, posted},
};

pub const CASES: &[Case] = &[
    Case::new(
        "qp.limits",
        "NDKPI 5.3",
        "Creates queue pairs with each of the five sizes at the adapter's limit, the others small.",
        "They are created, or there are no resources for one.",
        limits,
    ),
    Case::new(
        "qp.above-limits",
        "NDKPI 5.3",
        "Creates queue pairs with each of the five sizes above the adapter's limit, by one and by as much as possible.",
        "STATUS_INVALID_PARAMETER.",
        above_limits,
    ),
    //= NDKPI 7.2.2
    Case::new(
        "qp.smallest",
        "NDKPI 7.2",
        "Sends a hundred times over queue pairs for one request of one element in each queue.",
        "It works.",
        smallest,
    ),
    Case::new(
        "qp.without-receive-queue",
        "NDKPI 9",
        "Creates a queue pair with a receive queue of depth 0.",
        "Open: the status.",
        without_receive_queue,
    ),
    //= NDKPI 7.2.1
    //= NDKPI 7.2.2
    Case::new(
        "qp.receive-queue-is-exact",
        "NDKPI 7.2",
        "Posts as many receives as the receive queue is deep, then one more; then uses them.",
        "All but the last are accepted, and all accepted ones complete. Open: the status of the last.",
        receive_queue_is_exact,
    ),
    //= NDKPI 7.2.1
    //= NDKPI 7.2.2
    Case::new(
        "qp.initiator-queue-is-exact",
        "NDKPI 7.2",
        "Posts as many sends as the initiator queue is deep before anything was received.",
        "All are accepted, and complete. Open: the status of one more.",
        initiator_queue_is_exact,
    ),
    Case::new(
        "qp.slots-come-back",
        "NDKPI 7.3",
        "Fills both queues and drains them, a hundred times.",
        "A completion that was seen has given its place back.",
        slots_come_back,
    ),
    Case::new(
        "qp.slots-of-silent-requests",
        "NDKPI 9",
        "Fills the initiator queue with silent sends but for the last, and waits for that one; a hundred times.",
        "All are accepted: a signalled completion implies all earlier ones.",
        slots_of_silent_requests,
    ),
    Case::new(
        "qp.same-queue-for-both",
        "NDKPI 7.1.1",
        "Creates a queue pair whose two queues complete on one completion queue.",
        "It works in both directions.",
        same_queue_for_both,
    ),
    Case::new(
        "qp.queue-of-another-adapter",
        "NDKPI 7.9",
        "Creates a queue pair on a completion queue of another adapter.",
        "It fails. Open: the status.",
        queue_of_another_adapter,
    ),
];

const SMALL: QpSizes = QpSizes { receive_depth: 1, initiator_depth: 1, receive_sge: 1, initiator_sge: 1, inline: 0 };

/// A size of a queue pair: its name, the adapter's limit for it, and the sizes in which it alone is not small.
type Size = (&'static str, u32, fn(u32) -> QpSizes);

/// The five sizes.
fn sizes(info: &NDK_ADAPTER_INFO) -> [Size; 5] {
    [
        ("ReceiveQueueDepth", info.MaxReceiveQueueDepth, |size| QpSizes { receive_depth: size, ..SMALL }),
        ("InitiatorQueueDepth", info.MaxInitiatorQueueDepth, |size| QpSizes { initiator_depth: size, ..SMALL }),
        ("MaxReceiveRequestSge", info.MaxReceiveRequestSge, |size| QpSizes { receive_sge: size, ..SMALL }),
        ("MaxInitiatorRequestSge", info.MaxInitiatorRequestSge, |size| QpSizes { initiator_sge: size, ..SMALL }),
        ("InlineDataSize", info.MaxInlineDataSize, |size| QpSizes { inline: size, ..SMALL }),
    ]
}

fn limits(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
    for (name, limit, with) in sizes(adapter.info()) {
        match pd.core().try_create_qp(cq.core(), cq.core(), 0, with(limit))? {
            Ok(qp) => {
                qp.close()?;
            }
            Err(NtStatus::INSUFFICIENT_RESOURCES) => {}
            Err(status) => fail!("NdkCreateQp with {name} {limit}, the limit: {status}"),
        }
    }
    HELD
}

fn above_limits(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
    for (name, limit, with) in sizes(adapter.info()) {
        for size in [limit.saturating_add(1), u32::MAX] {
            if size == limit {
                continue;
            }
            match pd.core().try_create_qp(cq.core(), cq.core(), 0, with(size))? {
                Ok(_) => fail!("a queue pair with {name} {size} was created, the limit is {limit}"),
                Err(status) => ensure_eq!(status, NtStatus::INVALID_PARAMETER, "NdkCreateQp with {name} {size}"),
            }
        }
    }
    HELD
}

fn smallest(s: &Session<'_>) -> Verdict {
    let plan = Plan { sizes: SMALL, depths: [1, 1], ..Plan::new() };
    let pair = Pair::tested(s, &plan, &plan)?;
    for number in 0..100 {
        pair.deliver(number, false)?;
        pair.b.receive_done(number)?;
    }
    HELD
}

fn without_receive_queue(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
    match pd.core().try_create_qp(cq.core(), cq.core(), 0, QpSizes { receive_depth: 0, ..SMALL })? {
        Ok(qp) => {
            let status = qp.receive(1, &[])?;
            ensure!(!status.is_success(), "a receive was posted to a queue of depth 0");
            observed!("it is created; a receive gets {status}")
        }
        Err(status) => observed!("{status}"),
    }
}

fn receive_queue_is_exact(s: &Session<'_>) -> Verdict {
    let mut plan = Plan::new();
    plan.sizes.receive_depth = 5;
    let pair = Pair::tested(s, &Plan::new(), &plan)?;
    for number in 0..5 {
        pair.b.receive(number, 0, 64)?;
    }
    let status = pair.b.qp.receive(5, &[pair.b.region.element(0, 64)])?;
    ensure!(status != NtStatus::SUCCESS, "a receive was posted to a full queue");
    for number in 0..5 {
        pair.a.send(number, 0, 16, 0)?;
        pair.b.receive_done(number)?;
    }
    pair.b.receive_cq.stays_empty()?;
    pair.b.receive(6, 0, 64)?;
    pair.a.send(6, 0, 16, 0)?;
    pair.b.receive_done(6)?;
    observed!("a receive for a full queue gets {status}")
}

fn initiator_queue_is_exact(s: &Session<'_>) -> Verdict {
    let mut plan = Plan::new();
    plan.sizes.initiator_depth = 5;
    let pair = Pair::tested(s, &plan, &Plan::new())?;
    for number in 0..5 {
        pair.a.send_unready(number, 0, 16, 0)?;
    }
    let status = pair.a.qp.send(5, &[pair.a.region.element(0, 16)], 0)?;
    let accepted = if status == NtStatus::SUCCESS { 6 } else { 5 };
    for number in 0..accepted {
        pair.b.receive(number, 0, 64)?;
    }
    for (number, done) in pair.a.initiated().take(accepted)?.iter().enumerate() {
        if done.status == NtStatus::IO_TIMEOUT {
            skip!("a message that met no receive has failed");
        }
        crate::fixture::is_success(done, number)?;
    }
    pair.a.initiated().stays_empty()?;
    observed!("a send for a full queue gets {status}")
}

fn slots_come_back(s: &Session<'_>) -> Verdict {
    let mut plan = Plan::new();
    plan.sizes.initiator_depth = 3;
    plan.sizes.receive_depth = 3;
    let pair = Pair::tested(s, &plan, &plan)?;
    for _ in 0..100 {
        for number in 0..3 {
            pair.start_delivery(number, false)?;
        }
        pair.a.initiated().take(3)?;
        pair.b.receive_cq.take(3)?;
    }
    HELD
}

fn slots_of_silent_requests(s: &Session<'_>) -> Verdict {
    let mut plan = Plan::new();
    plan.sizes.initiator_depth = 4;
    plan.sizes.receive_depth = 4;
    let pair = Pair::tested(s, &plan, &plan)?;
    for _ in 0..100 {
        for number in 0..4 {
            pair.b.receive(number, 0, 64)?;
        }
        for number in 0..4 {
            pair.a.send(number, 0, 16, if number < 3 { NDK_OP_FLAG_SILENT_SUCCESS } else { 0 })?;
        }
        pair.a.initiator_done(3)?;
        pair.b.receive_cq.take(4)?;
    }
    pair.a.initiated().stays_empty()?;
    HELD
}

fn same_queue_for_both(s: &Session<'_>) -> Verdict {
    let plan = Plan { one_cq: true, ..Plan::new() };
    let pair = Pair::tested(s, &plan, &plan)?;
    for number in 0..10 {
        pair.b.receive(1, 0, 64)?;
        pair.a.send(2, 0, 16, 0)?;
        pair.a.initiator_done(2)?;
        pair.b.receive_done(1)?;
        pair.a.receive(3, 0, 64)?;
        pair.b.send(4, 0, 16, 0)?;
        pair.b.initiator_done(4)?;
        pair.a.receive_done(3)?;
        let _ = number;
    }
    HELD
}

fn queue_of_another_adapter(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    s.need_one_machine()?;
    let (here, there) = (s.adapter()?, s.second_adapter()?);
    let (pd, own, foreign) = (here.create_pd()?, here.create_cq(16, None)?, there.create_cq(16, None)?);
    let mut seen = [NtStatus::SUCCESS; 2];
    for (seen, (receive, initiator)) in
        seen.iter_mut().zip([(own.core(), foreign.core()), (foreign.core(), own.core())])
    {
        match pd.core().try_create_qp(receive, initiator, 0, SMALL)? {
            Ok(_) => fail!("a queue pair was created on a completion queue of another adapter"),
            Err(status) => *seen = status,
        }
    }
    posted(
        "a queue pair on the own queue",
        pd.core().create_qp(own.core(), own.core(), 0, SMALL).map(|_| NtStatus::SUCCESS)?,
    )?;
    observed!("initiator queue foreign: {}, receive queue foreign: {}", seen[0], seen[1])
}
