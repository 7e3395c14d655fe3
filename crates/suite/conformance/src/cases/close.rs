//! Closing objects (`NDKPI 5.1`, `NDKPI 7.9`).
//!
//! What every close has to do is watched in every case: it never fails, completes once, calls nothing afterwards, and not
//! while a callback runs. Here are the orders in which objects can be closed.

use alloc::boxed::Box;

use ndkpi::{NDK_CQ_NOTIFY_ANY as ANY, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NtStatus};

use super::registration::LOAD;
use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{ALL_RIGHTS, Closing, Owned, Region, Remote, Session},
    fixture::{Link, Pair, Plan, Side, is_done, posted},
};

pub const CASES: &[Case] = &[
    //= NDKPI 7.1.12
    Case::new(
        "close.queue-waits-for-queue-pair",
        "NDKPI 7.9",
        "Closes the completion queues of an open queue pair, then the queue pair.",
        "The queues' closes complete after the queue pair's.",
        queue_waits_for_queue_pair,
    ),
    //= NDKPI 7.9.1
    //= NDKPI 7.9.5
    Case::new(
        "close.domain-waits-for-children",
        "NDKPI 7.9",
        "Closes a protection domain with an open region, window and queue pair, then these.",
        "The domain's close completes after theirs.",
        domain_waits_for_children,
    ),
    //= NDKPI 7.9.1
    Case::new(
        "close.queue-pair-waits-for-connector",
        "NDKPI 7.9",
        "Closes a connected queue pair, then its connector.",
        "The queue pair's close completes after the connector's.",
        queue_pair_waits_for_connector,
    ),
    //= NDKPI 7.9.1
    //= NDKPI 7.9.5
    //= invariant 6
    Case::new(
        "close.every-order",
        "NDKPI 7.9",
        "Closes all objects of a connection in thirty random orders, each close begun without waiting for another.",
        "All closes complete.",
        every_order,
    ),
    //= NDKPI 7.9.2
    Case::new(
        "close.queue-pair-flushes",
        "NDKPI 7.9",
        "Closes a queue pair with posted receives, unconnected.",
        "They complete with STATUS_CANCELLED, or not at all; the close completes.",
        queue_pair_flushes,
    ),
    //= NDKPI 7.1.8
    Case::new(
        "close.entries-stay",
        "NDKPI 7.1.8",
        "Closes a connection whose completions were not polled, then polls.",
        "They are there.",
        entries_stay,
    ),
    //= NDKPI 7.1.12
    //= bug 1
    Case::new(
        "close.queue-inside-its-callback",
        "NDKPI 7.1.12",
        "Closes a completion queue inside its notification callback.",
        "The close completes after the callback has returned.",
        queue_inside_its_callback,
    ),
    //= NDKPI 7.1.12
    Case::new("close.armed-queue", "NDKPI 7.1.12", "Closes an armed completion queue.", "No callback.", armed_queue),
    //= NDKPI 7.6.2
    Case::new(
        "close.region-with-window",
        "NDKPI 7.9",
        "Closes a region that a window is bound to, then the window.",
        "The region's close completes when the window is closed.",
        region_with_window,
    ),
    Case::new(
        "close.registered-region",
        "NDKPI 7.9",
        "Closes a region without deregistering it; writes to its token afterwards.",
        "The close completes, the write fails.",
        registered_region,
    ),
    //= NDKPI 7.9.3
    Case::new(
        "close.while-disconnecting",
        "NDKPI 7.9",
        "Disconnects while a send waits for a receive of the peer, and closes the connector at once.",
        "Both complete, the disconnect first.",
        while_disconnecting,
    ),
    //= NDKPI 7.9.3
    Case::new(
        "close.while-deregistering",
        "NDKPI 7.9",
        "Deregisters a region while a peer writes megabytes to it, and closes it at once.",
        "Both complete, the deregistration first.",
        while_deregistering,
    ),
    //= NDKPI 7.9.4
    Case::new(
        "close.during-traffic",
        "NDKPI 7.9",
        "Closes connectors and queue pairs while writes are on their way, twenty times.",
        "All closes complete.",
        during_traffic,
    ),
];

fn pends(s: &Session<'_>, closing: &Closing<'_>, what: &str) -> Check {
    s.settle();
    ensure!(!closing.is_done(), "the close of {what} completed while a successor is open");
    Ok(())
}

fn queue_waits_for_queue_pair(s: &Session<'_>) -> Verdict {
    let Side { qp, region, receive_cq, initiator_cq, pd } = Side::new(&s.adapter()?, &Plan::new(), 1)?;
    let first = receive_cq.start_close()?;
    let second = initiator_cq.map(Owned::start_close).transpose()?;
    pends(s, &first, "the receives' queue")?;
    if let Some(second) = &second {
        pends(s, second, "the initiator's queue")?;
    }
    qp.close()?;
    first.wait()?;
    second.map(Closing::wait).transpose()?;
    drop((region, pd));
    HELD
}

fn domain_waits_for_children(s: &Session<'_>) -> Verdict {
    let Side { qp, region, receive_cq, initiator_cq, pd } = Side::new(&s.adapter()?, &Plan::new(), 1)?;
    let window = pd.core().create_mw()?;
    let closing = pd.start_close()?;
    pends(s, &closing, "the domain")?;
    qp.close()?;
    pends(s, &closing, "the domain")?;
    window.close()?;
    pends(s, &closing, "the domain")?;
    region.mr.close()?;
    closing.wait()?;
    drop((receive_cq, initiator_cq));
    HELD
}

fn queue_pair_waits_for_connector(s: &Session<'_>) -> Verdict {
    let Pair { link, a, b } = Pair::new(s)?;
    let Side { qp, region, receive_cq, initiator_cq, pd } = a;
    let closing = qp.start_close()?;
    pends(s, &closing, "the queue pair")?;
    link.a.close()?;
    closing.wait()?;
    drop((region, receive_cq, initiator_cq, pd, b));
    HELD
}

fn every_order(s: &Session<'_>) -> Verdict {
    let mut random = s.random();
    for _ in 0..30 {
        let Pair { link, a, b } = Pair::new(s)?;
        let mut parts: [Option<Part<'_, '_>>; 13] = [const { None }; 13];
        let mut place = parts.iter_mut();
        let mut add = |part| {
            if let Some(place) = place.next() {
                *place = Some(part);
            }
        };
        add(boxed(|| link.a.start_close())?);
        add(boxed(|| link.b.start_close())?);
        add(boxed(|| link.listener.start_close())?);
        for side in [a, b] {
            let Side { qp, region, receive_cq, initiator_cq, pd } = side;
            add(boxed(|| qp.start_close())?);
            add(boxed(|| region.mr.start_close())?);
            add(boxed(|| receive_cq.start_close())?);
            if let Some(cq) = initiator_cq {
                add(boxed(|| cq.start_close())?);
            }
            add(boxed(|| pd.start_close())?);
        }
        let mut closings: [Option<Closing<'_>>; 13] = [const { None }; 13];
        for number in 0..closings.len() {
            let left = u32::try_from(closings.len() - number).unwrap_or(1);
            let pick = number + random.below(left) as usize;
            parts.swap(number, pick);
            if let Some(part) = parts[number].take() {
                closings[number] = Some(part()?);
            }
        }
        for closing in closings.into_iter().flatten() {
            closing.wait()?;
        }
    }
    HELD
}

/// Something that begins a close.
type Part<'c, 's> = Box<dyn FnOnce() -> Check<Closing<'s>> + 'c>;

fn boxed<'c, 's>(close: impl FnOnce() -> Check<Closing<'s>> + 'c) -> Check<Part<'c, 's>> {
    match fallible::try_box(close) {
        Ok(close) => Ok(close),
        Err(_) => inconclusive!("no memory for the case"),
    }
}

fn queue_pair_flushes(s: &Session<'_>) -> Verdict {
    let side = Side::new(&s.adapter()?, &Plan::new(), 1)?;
    for context in 0..4 {
        side.receive(context, 0, 64)?;
    }
    let Side { qp, region, receive_cq, initiator_cq, pd } = side;
    qp.close()?;
    s.settle();
    let left = receive_cq.poll(8)?;
    for (context, done) in left.iter().enumerate() {
        is_done(done, context, NtStatus::CANCELLED)?;
    }
    drop((region, initiator_cq, pd));
    observed!("completions of receives that were posted when the queue pair was closed: {}", left.len())
}

fn entries_stay(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for context in 0..4 {
        pair.deliver(context, false)?;
    }
    let Pair { link, a, b } = pair;
    link.a.close()?;
    link.b.close()?;
    let Side { qp, region, receive_cq, initiator_cq, pd } = b;
    qp.close()?;
    for (context, done) in receive_cq.take(4)?.iter().enumerate() {
        is_done(done, context, NtStatus::SUCCESS)?;
    }
    drop((a, region, initiator_cq, pd));
    HELD
}

fn queue_inside_its_callback<'s>(s: &'s Session<'s>) -> Verdict {
    let hook = s.hook(|cq, _| {
        let closing = cq.life().close_within(0)?;
        ensure!(!closing.is_done(), "the close of a completion queue completed inside its callback");
        Ok(())
    })?;
    let Side { qp, region, receive_cq, initiator_cq, pd } =
        Side::new(&s.adapter()?, &Plan { on_receive: Some(hook), ..Plan::new() }, 1)?;
    posted("NdkReceive", qp.receive(1, &[region.element(0, 8)])?)?;
    receive_cq.arm(ANY)?;
    qp.flush()?;
    s.wait("the close that was begun inside the callback", || {
        receive_cq.life().callbacks() == 0 && receive_cq.callbacks() == 1
    })?;
    qp.close()?;
    s.wait("the close that was begun inside the callback (NDKPI 7.9)", || receive_cq.life().is_closed())?;
    drop((region, initiator_cq, pd));
    HELD
}

fn armed_queue(s: &Session<'_>) -> Verdict {
    let side = Side::new(&s.adapter()?, &Plan::new(), 1)?;
    side.receive(1, 0, 64)?;
    side.receive_cq.arm(ANY)?;
    let Side { qp, region, receive_cq, initiator_cq, pd } = side;
    let core = receive_cq.core();
    let closing = receive_cq.start_close()?;
    qp.close()?;
    closing.wait()?;
    let at_close = core.callbacks();
    s.settle();
    ensure_eq!(core.callbacks(), at_close, "callbacks after the close had completed");
    drop((region, initiator_cq, pd));
    HELD
}

fn region_with_window(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let window = pair.a.pd.core().create_mw()?;
    let extra = Region::new(pair.a.pd.core(), 4096, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
    let flags = ndkpi::NDK_OP_FLAG_ALLOW_REMOTE_READ;
    let status = pair.a.qp.bind(1, &extra.mr, &window, extra.address(0), 4096, flags)?;
    ensure_eq!(status, NtStatus::SUCCESS, "NdkBind");
    pair.a.initiator_done(1)?;
    window.stays_bound_to(extra.mr.core());
    let closing = extra.mr.start_close()?;
    pends(s, &closing, "the region")?;
    window.close()?;
    closing.wait()?;
    HELD
}

fn registered_region(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let remote = pair.b.remote(0);
    let Pair { link, a, b } = pair;
    let Side { qp, region, receive_cq, initiator_cq, pd } = b;
    let Region { mr, buffer, .. } = region;
    buffer.fill(0, 16, 7)?;
    mr.close()?;
    a.write(1, 64, 16, remote, 0)?;
    let done = a.initiated().take_one()?;
    ensure!(!done.status.is_success(), "a write to the token of a closed region succeeded");
    buffer.is_filled(0, 16, 7)?;
    drop((link, a, qp, receive_cq, initiator_cq, pd));
    HELD
}

fn while_disconnecting(s: &Session<'_>) -> Verdict {
    for _ in 0..5 {
        let Pair { link, a, b } = Pair::new(s)?;
        let Link { a: active, b: passive, listener } = link;
        a.send(1, 0, 16, 0)?;
        let pending = active.core().disconnect()?;
        active.start_close()?.wait()?;
        ensure!(pending.outcome().is_some(), "the close of a connector completed before its disconnect (NDKPI 7.9.3)");
        passive.close()?;
        drop((listener, a, b));
    }
    HELD
}

fn while_deregistering(s: &Session<'_>) -> Verdict {
    for _ in 0..5 {
        let pair = Pair::with(s, &Plan { bytes: LOAD, ..Plan::new() }, &Plan::new())?;
        let Region { mr, buffer, .. } = Region::new(pair.b.pd.core(), LOAD, ALL_RIGHTS)?;
        let remote = Remote { address: buffer.address(0), token: mr.remote_token()? };
        for number in 0..4 {
            pair.a.write(number, 0, 5 << 18, remote, 0)?;
        }
        s.platform().dwell(&|| buffer.holds(0, 0) != Ok(true));
        let pending = mr.core().deregister()?;
        mr.start_close()?.wait()?;
        ensure!(pending.outcome().is_some(), "the close of a region completed before its deregistration (NDKPI 7.9.3)");
        pending.succeeds()?;
        pair.a.initiated().take(4)?;
    }
    HELD
}

fn during_traffic(s: &Session<'_>) -> Verdict {
    for round in 0..20 {
        let big = Plan { bytes: 2 << 20, ..Plan::new() };
        let Pair { link, a, b } = Pair::with(s, &big, &big)?;
        for context in 0..12 {
            a.write(context, 0, 1 << 20, b.remote(0), 0)?;
            b.read(context, 1 << 20, 1 << 20, a.remote(0), 0)?;
        }
        let (first, second) = if round % 2 == 0 { (link.a, link.b) } else { (link.b, link.a) };
        let (first, second) = (first.start_close()?, second.start_close()?);
        let (qp_a, qp_b) = (a.qp.start_close()?, b.qp.start_close()?);
        for closing in [first, second, qp_a, qp_b] {
            closing.wait()?;
        }
        drop((a.region, b.region, a.receive_cq, b.receive_cq, a.initiator_cq, b.initiator_cq, a.pd, b.pd));
    }
    HELD
}
