//! More completions than a queue holds (`NDKPI 7.1.10`). A fault of the consumer, which these cases make on purpose.

use ndkpi::{NDK_CQ_NOTIFY_ANY as ANY, NDK_CQ_NOTIFY_ERRORS as ERRORS, NDK_CQ_NOTIFY_SOLICITED as SOLICITED, NtStatus};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::Session,
    fixture::{Pair, Plan},
};

pub const CASES: &[Case] = &[
    Case::new(
        "overrun.reported-to-errors",
        "NDKPI 7.1.10",
        "Arms ERRORS and overruns the queue.",
        "One callback with STATUS_BUFFER_OVERFLOW.",
        reported_to_errors,
    ),
    Case::new(
        "overrun.reported-to-solicited",
        "NDKPI 7.1.10",
        "Arms SOLICITED and overruns the queue with plain receives.",
        "One callback with STATUS_BUFFER_OVERFLOW.",
        reported_to_solicited,
    ),
    Case::new(
        "overrun.reported-to-any",
        "NDKPI 7.1.10",
        "Fills the queue, waits for the callback, arms ANY again and overruns the queue.",
        "A second callback, with STATUS_BUFFER_OVERFLOW.",
        reported_to_any,
    ),
    Case::new(
        "overrun.unarmed",
        "NDKPI 7.1.10",
        "Overruns an unarmed queue; arms ANY after that.",
        "No callback before the arm. Open: whether the arm is answered with the error.",
        unarmed,
    ),
    //= NDKPI 7.1.10
    Case::new(
        "overrun.once",
        "NDKPI 7.1.10",
        "Overruns a queue that is armed for ERRORS, and arms it again and again after the callback.",
        "Open: whether the error is reported again.",
        once,
    ),
    //= NDKPI 7.1.10
    Case::new(
        "overrun.queued-entries",
        "NDKPI 7.1.10",
        "Overruns a queue of depth 2, and polls.",
        "Never more than 2 completions. Open: whether the 2 are still there.",
        queued_entries,
    ),
    Case::new(
        "overrun.queue-pair-is-unusable",
        "NDKPI 7.1.10",
        "Overruns a queue and goes on to use the queue pair.",
        "No further completion is reported.",
        queue_pair_is_unusable,
    ),
    //= NDKPI 7.1.10
    Case::new(
        "overrun.every-queue-pair",
        "NDKPI 7.1.10",
        "Overruns a queue with one of the two queue pairs that use it, then uses the other, in both directions.",
        "No further completion is reported, and nothing succeeds: every attached queue pair is unusable.",
        every_queue_pair,
    ),
    Case::new(
        "overrun.others-go-on",
        "NDKPI 7.1.10",
        "Overruns a queue, then sends over a connection that does not use it.",
        "It works as before.",
        others_go_on,
    ),
    Case::new(
        "overrun.everything-closes",
        "NDKPI 7.9",
        "Overruns a queue and closes the queue pair, then the queue.",
        "The closes complete.",
        everything_closes,
    ),
];

/// A pair whose passive side has two places for receives, of which none are free.
fn full<'s>(s: &'s Session<'s>) -> Check<Pair<'s>> {
    let pair = Pair::with(s, &Plan::new(), &Plan { depths: [2, 16], ..Plan::new() })?;
    for number in 0..2 {
        pair.deliver(number, false)?;
    }
    s.settle();
    Ok(pair)
}

/// Overruns a queue that is full and not armed, and waits until it is said: over a network that loses frames that takes as long as it takes.
fn overrun(pair: &Pair<'_>) -> Check {
    let cq = pair.b.receive_cq.core();
    let before = cq.callbacks();
    cq.arm(ERRORS)?;
    pair.start_delivery(3, false)?;
    cq.wait_callbacks(before + 1)?;
    ensure_eq!(cq.error(), NtStatus::BUFFER_OVERFLOW, "status of the callback");
    cq.session().settle();
    Ok(())
}

fn reported(pair: &Pair<'_>, before: u32) -> Check {
    let cq = pair.b.receive_cq.core();
    pair.start_delivery(3, false)?;
    cq.wait_callbacks(before + 1)?;
    ensure_eq!(cq.errors(), 1, "callbacks with an error");
    ensure_eq!(cq.error(), NtStatus::BUFFER_OVERFLOW, "status of the callback");
    cq.stays_at_callbacks(before + 1)
}

fn reported_to_errors(s: &Session<'_>) -> Verdict {
    let pair = Pair::with(s, &Plan::new(), &Plan { depths: [2, 16], ..Plan::new() })?;
    pair.b.receive_cq.arm(ERRORS)?;
    for number in 0..2 {
        pair.deliver(number, true)?;
    }
    pair.b.receive_cq.stays_at_callbacks(0)?;
    reported(&pair, 0)?;
    HELD
}

fn reported_to_solicited(s: &Session<'_>) -> Verdict {
    let pair = Pair::with(s, &Plan::new(), &Plan { depths: [2, 16], ..Plan::new() })?;
    pair.b.receive_cq.arm(SOLICITED)?;
    for number in 0..2 {
        pair.deliver(number, false)?;
    }
    pair.b.receive_cq.stays_at_callbacks(0)?;
    reported(&pair, 0)?;
    HELD
}

fn reported_to_any(s: &Session<'_>) -> Verdict {
    let pair = full(s)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    cq.wait_callbacks(1)?;
    ensure_eq!(cq.errors(), 0, "callbacks with an error from a queue that is exactly full");
    cq.arm(ANY)?;
    s.settle();
    let before = cq.callbacks();
    if before > 1 {
        // The provider fired in the may case; the queue has to be armed again.
        cq.arm(ERRORS)?;
    }
    reported(&pair, before)?;
    HELD
}

fn unarmed(s: &Session<'_>) -> Verdict {
    let pair = full(s)?;
    let cq = pair.b.receive_cq.core();
    pair.start_delivery(3, false)?;
    cq.stays_at_callbacks(0)?;
    cq.arm(ANY)?;
    s.settle();
    if cq.errors() == 0 {
        return observed!("callbacks: {}, none with an error", cq.callbacks());
    }
    observed!("the arm is answered with {}", cq.error())
}

fn once(s: &Session<'_>) -> Verdict {
    let pair = full(s)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ERRORS)?;
    reported(&pair, 0)?;
    for _ in 0..5 {
        cq.arm(ERRORS)?;
        s.settle();
    }
    observed!("five more arms were answered {} times", cq.callbacks() - 1)
}

fn queued_entries(s: &Session<'_>) -> Verdict {
    let pair = full(s)?;
    overrun(&pair)?;
    let left = pair.b.receive_cq.poll(16)?;
    ensure!(left.len() <= 2, "a queue of depth 2 has {} completions after an overrun", left.len());
    for (number, done) in left.iter().enumerate() {
        crate::fixture::is_success(done, number)?;
    }
    s.settle();
    ensure_eq!(pair.b.receive_cq.poll(16)?.len(), 0, "completions after the queue was drained");
    observed!("{} of 2 entries are still there", left.len())
}

/// Uses a queue pair that should not work any more, and looks that nothing completes.
fn nothing_completes(pair: &Pair<'_>) -> Check {
    // Whatever these posts return: nothing may complete.
    let _ = pair.b.qp.receive(10, &[pair.b.region.element(0, 64)])?;
    let _ = pair.b.qp.send(11, &[pair.b.region.element(0, 16)], 0)?;
    let _ = pair.a.qp.send(12, &[pair.a.region.element(0, 16)], 0)?;
    pair.b.receive_cq.session().settle();
    let late = pair.b.receive_cq.poll(16)?;
    ensure!(late.is_empty(), "a queue that was overrun reports a completion: {:?}", late[0]);
    Ok(())
}

fn queue_pair_is_unusable(s: &Session<'_>) -> Verdict {
    let pair = full(s)?;
    overrun(&pair)?;
    pair.b.receive_cq.poll(16)?;
    nothing_completes(&pair)?;
    pair.b.qp.flush()?;
    nothing_completes(&pair)?;
    HELD
}

fn every_queue_pair(s: &Session<'_>) -> Verdict {
    let first = Pair::apart(s, &Plan::new(), &Plan { depths: [2, 16], ..Plan::new() })?;
    let mut second = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let (cq, other) = (first.1.receive_cq.core(), second.1.initiated());
    second.1.qp = second.1.pd.core().create_qp(cq, other, 0xC3, Plan::new().sizes)?;
    let terms = crate::fixture::Terms::new();
    let first = Pair::join(s, first.0, first.1, &terms)?;
    let second = Pair::join(s, second.0, second.1, &terms)?;
    for number in 0..2 {
        first.deliver(number, false)?;
    }
    s.settle();
    overrun(&first)?;
    cq.poll(16)?;
    let _ = second.b.qp.receive(20, &[second.b.region.element(0, 64)])?;
    let _ = second.a.qp.send(21, &[second.a.region.element(0, 16)], 0)?;
    s.settle();
    ensure_eq!(cq.poll(16)?.len(), 0, "completions of another queue pair of the queue that was overrun");
    // Its sends complete on a queue that was not overrun.
    second.a.receive(22, 0, 64)?;
    let status = second.b.qp.send(23, &[second.b.region.element(0, 16)], 0)?;
    if status.is_success() {
        s.settle();
        let done = other.poll(16)?;
        ensure!(done.iter().all(|done| !done.status.is_success()), "a queue pair of the queue goes on: {done:?}");
    }
    HELD
}

fn others_go_on(s: &Session<'_>) -> Verdict {
    let other = Pair::new(s)?;
    let pair = full(s)?;
    overrun(&pair)?;
    for number in 0..10 {
        other.deliver(number, false)?;
        other.b.receive_done(number)?;
    }
    HELD
}

fn everything_closes(s: &Session<'_>) -> Verdict {
    let pair = full(s)?;
    overrun(&pair)?;
    let Pair { link, a, b } = pair;
    link.a.close()?;
    link.b.close()?;
    a.qp.close()?;
    b.qp.close()?;
    b.receive_cq.close()?;
    HELD
}
