//! Flushing a queue pair (`NDKPI 7.2`).

use ndkpi::{NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NtStatus};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{CqCore, Session},
    fixture::{Pair, Plan, is_done},
};

pub const CASES: &[Case] = &[
    Case::new(
        "flush.receives",
        "NDKPI 7.2",
        "Flushes a queue pair with ten receives.",
        "They complete with STATUS_CANCELLED, in order, and nothing else does.",
        receives,
    ),
    Case::new(
        "flush.unconnected",
        "NDKPI 7.2",
        "Flushes a queue pair that was never connected and has receives.",
        "They complete with STATUS_CANCELLED, in order.",
        unconnected,
    ),
    Case::new(
        "flush.initiator-requests",
        "NDKPI 7.2",
        "Flushes a queue pair with sends for which the peer has no receives.",
        "Each send completes once, in order: with STATUS_CANCELLED from the first on that does.",
        initiator_requests,
    ),
    Case::new(
        "flush.silent-requests",
        "NDKPI 7.2",
        "Flushes a queue pair with silent sends for which the peer has no receives.",
        "Those that are cancelled complete, silent or not: they have failed.",
        silent_requests,
    ),
    Case::new(
        "flush.nothing",
        "NDKPI 7.2",
        "Flushes idle queue pairs, again and again.",
        "Nothing completes.",
        nothing,
    ),
    Case::new(
        "flush.completed-requests-stay",
        "NDKPI 7.2",
        "Flushes a queue pair whose completions were not taken yet.",
        "They are there as before, and only what was outstanding is cancelled.",
        completed_requests_stay,
    ),
    Case::new(
        "flush.error-codes",
        "NDKPI 3.6",
        "Looks at the types and contexts of flushed receives and sends.",
        "They are those of the requests.",
        error_codes,
    ),
    Case::new(
        "flush.then-post",
        "NDKPI 7.2",
        "Flushes both sides and goes on posting.",
        "Open: whether the connection still carries messages.",
        then_post,
    ),
    Case::new(
        "flush.twice",
        "NDKPI 7.2",
        "Flushes twice, one right after the other.",
        "Every request completes once.",
        twice,
    ),
    Case::new(
        "flush.does-not-touch-the-peer",
        "NDKPI 7.2",
        "Flushes one side while the other has receives posted.",
        "The other side's receives stay posted.",
        does_not_touch_the_peer,
    ),
];

/// Takes `count` completions and looks that all are cancelled, in order from request 0 on.
fn cancelled(cq: &CqCore<'_>, count: usize) -> Check {
    for (number, done) in cq.take(count)?.iter().enumerate() {
        is_done(done, number, NtStatus::CANCELLED)?;
    }
    cq.stays_empty()
}

fn receives(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..10 {
        pair.b.receive(number, 0, 64)?;
    }
    pair.b.qp.flush()?;
    cancelled(pair.b.receive_cq.core(), 10)?;
    pair.b.initiated().stays_empty()?;
    HELD
}

fn unconnected(s: &Session<'_>) -> Verdict {
    let (side, _other) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    for number in 0..10 {
        side.receive(number, 0, 64)?;
    }
    side.qp.flush()?;
    cancelled(side.receive_cq.core(), 10)?;
    HELD
}

fn initiator_requests(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..8 {
        pair.a.send_unready(number, 0, 64, 0)?;
    }
    pair.a.qp.flush()?;
    for (number, done) in pair.a.initiated().take(8)?.iter().enumerate() {
        ensure!(
            done.request == number && !done.status.is_success(),
            "send {number} of a flushed queue pair completed as {done:?}"
        );
        if number > 0 {
            ensure_eq!(done.status, NtStatus::CANCELLED, "status of send {number} of a flushed queue pair");
        }
    }
    pair.a.initiated().stays_empty()?;
    HELD
}

fn silent_requests(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..8 {
        pair.a.send_unready(number, 0, 64, if number % 2 == 0 { SILENT } else { 0 })?;
    }
    pair.a.qp.flush()?;
    for (number, done) in pair.a.initiated().take(8)?.iter().enumerate() {
        ensure!(
            done.request == number && !done.status.is_success(),
            "send {number} of a flushed queue pair completed as {done:?}"
        );
    }
    pair.a.initiated().stays_empty()?;
    HELD
}

fn nothing(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for _ in 0..20 {
        pair.a.qp.flush()?;
        pair.b.qp.flush()?;
    }
    for side in [&pair.a, &pair.b] {
        side.initiated().stays_empty()?;
        side.receive_cq.stays_empty()?;
    }
    HELD
}

fn completed_requests_stay(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..6 {
        pair.b.receive(number, 0, 64)?;
    }
    for number in 0..3 {
        pair.a.send(number, 0, 16, 0)?;
        pair.a.initiator_done(number)?;
    }
    s.settle();
    pair.b.qp.flush()?;
    for (number, done) in pair.b.receive_cq.take(6)?.iter().enumerate() {
        let status = if number < 3 { NtStatus::SUCCESS } else { NtStatus::CANCELLED };
        is_done(done, number, status)?;
    }
    pair.b.receive_cq.stays_empty()?;
    HELD
}

fn error_codes(s: &Session<'_>) -> Verdict {
    s.need_version(ndkpi::NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    pair.a.receive(0, 0, 64)?;
    pair.a.send(0, 0, 64, 0)?;
    pair.a.qp.flush()?;
    let (received, sent) = (pair.a.receive_cq.take_one()?, pair.a.initiated().take_one()?);
    ensure_eq!(received.kind, Some(ndkpi::NDK_OPERATION_TYPE::RECEIVE), "type of a flushed receive");
    ensure_eq!(sent.kind, Some(ndkpi::NDK_OPERATION_TYPE::SEND), "type of a flushed send");
    ensure_eq!([received.qp, sent.qp], [crate::fixture::QP_A; 2], "context of the flushed queue pair");
    HELD
}

fn then_post(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.a.qp.flush()?;
    pair.b.qp.flush()?;
    s.settle();
    let status = pair.b.qp.receive(1, &[pair.b.region.element(0, 64)])?;
    if !status.is_success() {
        return observed!("a receive after the flush gets {status}");
    }
    let status = pair.a.qp.send(1, &[pair.a.region.element(0, 16)], 0)?;
    if !status.is_success() {
        return observed!("a send after the flush gets {status}");
    }
    observed!("a send after the flush completes with {}", pair.a.initiated().take_one()?.status)
}

fn twice(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..10 {
        pair.b.receive(number, 0, 64)?;
    }
    pair.b.qp.flush()?;
    pair.b.qp.flush()?;
    cancelled(pair.b.receive_cq.core(), 10)?;
    HELD
}

fn does_not_touch_the_peer(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 0..4 {
        pair.a.receive(number, 0, 64)?;
        pair.b.receive(number, 0, 64)?;
    }
    pair.b.qp.flush()?;
    cancelled(pair.b.receive_cq.core(), 4)?;
    pair.a.receive_cq.stays_empty()?;
    HELD
}
