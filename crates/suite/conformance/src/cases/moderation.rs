//! Interrupt moderation (`NDKPI 7.1.6`).

use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION, NDK_CQ_NOTIFY_ANY as ANY,
    NDK_CQ_NOTIFY_SOLICITED as SOLICITED, NtStatus,
};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{CqCore, Session},
    fixture::{Pair, Plan},
};

/// No limit from this side.
const MAX: u32 = u32::MAX;
/// So long that nobody waits for it, in microseconds.
const LONG: u32 = 600_000_000;

pub const CASES: &[Case] = &[
    Case::new(
        "moderation.unsupported",
        "NDKPI 7.1.6",
        "Sets a moderation on an adapter without the flag.",
        "STATUS_NOT_SUPPORTED: the slot is there.",
        unsupported,
    ),
    Case::new(
        "moderation.default-is-none",
        "NDKPI 7.1.1",
        "Arms a new queue and lets a receive complete.",
        "The callback comes at once.",
        default_is_none,
    ),
    Case::new(
        "moderation.no-limit-at-all",
        "NDKPI 7.1.6",
        "Sets the interval MAXULONG with the count MAXULONG, then with a count just above the depth.",
        "STATUS_INVALID_PARAMETER_MIX, and the moderation is as before.",
        no_limit_at_all,
    ),
    Case::new(
        "moderation.every-mix",
        "NDKPI 7.1.6",
        "Sets every pair of 0, 1, 2, the depth, the depth and one, MAXULONG - 1 and MAXULONG.",
        "STATUS_SUCCESS, or STATUS_INVALID_PARAMETER_MIX if neither side has a limit; never STATUS_PENDING.",
        every_mix,
    ),
    Case::new(
        "moderation.interval-zero",
        "NDKPI 7.1.6",
        "Sets the interval 0 with a count of 10, arms and lets one receive complete.",
        "The callback comes at once: no moderation.",
        interval_zero,
    ),
    Case::new(
        "moderation.count-zero-or-one",
        "NDKPI 7.1.6",
        "Sets a long interval with the counts 0 and 1, arms and lets one receive complete.",
        "The callback comes at once: no moderation.",
        count_zero_or_one,
    ),
    Case::new(
        "moderation.count-alone",
        "NDKPI 7.1.6",
        "Sets the interval MAXULONG and the count 5, arms, and lets five receives complete one by one.",
        "One callback, with the fifth at the latest. Open: whether it comes earlier.",
        count_alone,
    ),
    Case::new(
        "moderation.count-of-the-depth",
        "NDKPI 7.1.6",
        "Sets the interval MAXULONG and the count that is the depth of the queue, arms, and fills the queue.",
        "One callback.",
        count_of_the_depth,
    ),
    Case::new(
        "moderation.interval-alone",
        "NDKPI 7.1.6",
        "Sets an interval of 2 ms and the count MAXULONG, arms, and lets one receive complete.",
        "The callback comes. Open: how long it was held.",
        interval_alone,
    ),
    Case::new(
        "moderation.count-above-depth",
        "NDKPI 7.1.6",
        "Sets an interval of 2 ms and a count above the depth, arms, and lets one receive complete.",
        "The callback comes: the interval alone governs.",
        count_above_depth,
    ),
    Case::new(
        "moderation.whichever-is-first",
        "NDKPI 7.1.6",
        "Sets a long interval and the count 3, arms, and lets three receives complete.",
        "The callback comes with the third at the latest.",
        whichever_is_first,
    ),
    Case::new(
        "moderation.newest-call-wins",
        "NDKPI 7.1.6",
        "Holds a callback back by a long interval, then sets no moderation.",
        "The callback comes.",
        newest_call_wins,
    ),
    Case::new(
        "moderation.one-callback-per-hold",
        "NDKPI 7.1.3",
        "Holds back by the count 4, arms twice while it is held back, and lets four receives complete.",
        "At least one callback and not more than there were arms.",
        one_callback_per_hold,
    ),
    //= NDKPI 7.1.6
    Case::new(
        "moderation.failed-request",
        "NDKPI 9",
        "Sets a long interval and a large count, arms SOLICITED, and flushes a receive.",
        "Open: whether the failure is held back.",
        failed_request,
    ),
    Case::new(
        "moderation.overrun",
        "NDKPI 7.1.10",
        "Sets a long interval and a large count, arms, and overruns the queue.",
        "A callback with STATUS_BUFFER_OVERFLOW is not held back.",
        overrun,
    ),
    Case::new(
        "moderation.close-while-held",
        "NDKPI 7.1.12",
        "Closes a queue whose callback is held back.",
        "The close completes, and no callback comes after it.",
        close_while_held,
    ),
    Case::new(
        "moderation.fine-intervals",
        "NDKPI 7.1.6",
        "Sets intervals from 1 to 100 microseconds, and for each arms and lets a receive complete.",
        "Each callback comes: an interval finer than the timer is rounded down.",
        fine_intervals,
    ),
];

fn moderated<'s>(s: &'s Session<'s>, interval: u32, count: u32) -> Check<Pair<'s>> {
    s.need_flag(MODERATION, "CQ_INTERRUPT_MODERATION_SUPPORTED")?;
    let pair = Pair::with(s, &Plan::new(), &Plan { depths: [10, 64], ..Plan::new() })?;
    set(pair.b.receive_cq.core(), interval, count)?;
    Ok(pair)
}

fn set(cq: &CqCore<'_>, interval: u32, count: u32) -> Check {
    let status = cq.moderate(interval, count)?;
    ensure_eq!(status, NtStatus::SUCCESS, "moderation with interval {interval} and count {count}");
    Ok(())
}

fn unsupported(s: &Session<'_>) -> Verdict {
    if s.adapter()?.has(MODERATION) {
        skip!("the adapter has the flag CQ_INTERRUPT_MODERATION_SUPPORTED");
    }
    let cq = s.adapter()?.create_cq(10, None)?;
    ensure_eq!(cq.moderate(100, 5)?, NtStatus::NOT_SUPPORTED, "moderation without the flag");
    HELD
}

fn default_is_none(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.b.receive_cq.arm(ANY)?;
    pair.deliver(1, false)?;
    pair.b.receive_cq.wait_callbacks(1)?;
    HELD
}

fn no_limit_at_all(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, 0, 0)?;
    let cq = pair.b.receive_cq.core();
    for count in [MAX, 11, MAX - 1] {
        let status = cq.moderate(MAX, count)?;
        ensure_eq!(status, NtStatus::INVALID_PARAMETER_MIX, "interval MAXULONG and count {count} for depth 10");
    }
    cq.arm(ANY)?;
    pair.deliver(1, false)?;
    cq.wait_callbacks(1)?;
    HELD
}

fn every_mix(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, 0, 0)?;
    let cq = pair.b.receive_cq.core();
    let values = [0, 1, 2, 10, 11, MAX - 1, MAX];
    for interval in values {
        for count in values {
            let status = cq.moderate(interval, count)?;
            let unlimited = interval == MAX && count > 10;
            let expected = if unlimited { NtStatus::INVALID_PARAMETER_MIX } else { NtStatus::SUCCESS };
            ensure_eq!(status, expected, "interval {interval} and count {count} for depth 10");
        }
    }
    HELD
}

/// Arms, lets one receive complete, and expects the callback.
fn called_for_one(pair: &Pair<'_>, callbacks: u32) -> Check {
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    pair.deliver(1, false)?;
    cq.wait_callbacks(callbacks)?;
    cq.take(1)?;
    Ok(())
}

fn interval_zero(s: &Session<'_>) -> Verdict {
    called_for_one(&moderated(s, 0, 10)?, 1)?;
    HELD
}

fn count_zero_or_one(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, LONG, 0)?;
    called_for_one(&pair, 1)?;
    set(pair.b.receive_cq.core(), LONG, 1)?;
    called_for_one(&pair, 2)?;
    set(pair.b.receive_cq.core(), MAX, 1)?;
    called_for_one(&pair, 3)?;
    HELD
}

fn count_alone(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, MAX, 5)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    let mut called_with = 0;
    for number in 1..=5 {
        pair.deliver(number, false)?;
        s.settle();
        if called_with == 0 && cq.callbacks() > 0 {
            called_with = number;
        }
    }
    cq.wait_callbacks(1)?;
    if called_with == 0 {
        called_with = 5;
    }
    cq.stays_at_callbacks(1)?;
    observed!("the callback comes with completion {called_with} of 5")
}

fn count_of_the_depth(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, MAX, 10)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    for number in 1..=10 {
        pair.deliver(number, false)?;
    }
    cq.wait_callbacks(1)?;
    cq.take(10)?;
    HELD
}

fn interval_alone(s: &Session<'_>) -> Verdict {
    held_for(s, 2000, MAX)
}

fn count_above_depth(s: &Session<'_>) -> Verdict {
    held_for(s, 2000, 11)
}

fn held_for(s: &Session<'_>, interval: u32, count: u32) -> Verdict {
    let pair = moderated(s, interval, count)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    let begun = s.platform().now();
    pair.deliver(1, false)?;
    cq.wait_callbacks(1)?;
    let held = s.platform().now() - begun;
    cq.stays_at_callbacks(1)?;
    observed!("held: {}", if held >= u64::from(interval) { "at least for the interval" } else { "shorter" })
}

fn whichever_is_first(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, LONG, 3)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    for number in 1..=3 {
        pair.deliver(number, false)?;
    }
    cq.wait_callbacks(1)?;
    cq.take(3)?;
    HELD
}

fn newest_call_wins(s: &Session<'_>) -> Verdict {
    for (interval, count) in [(0, 0), (100, 5), (LONG, 1), (MAX, 1)] {
        let pair = moderated(s, LONG, 8)?;
        let cq = pair.b.receive_cq.core();
        cq.arm(ANY)?;
        pair.deliver(1, false)?;
        s.settle();
        set(cq, interval, count)?;
        cq.wait_callbacks(1)?;
    }
    HELD
}

fn one_callback_per_hold(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, MAX, 4)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    pair.deliver(1, false)?;
    cq.arm(ANY)?;
    pair.deliver(2, false)?;
    pair.deliver(3, false)?;
    pair.deliver(4, false)?;
    s.wait("a callback", || cq.callbacks() > 0)?;
    s.settle();
    ensure!(cq.callbacks() <= 2, "{} callbacks for two arms", cq.callbacks());
    HELD
}

fn failed_request(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, LONG, 9)?;
    let cq = pair.b.receive_cq.core();
    pair.b.receive(1, 0, 64)?;
    cq.arm(SOLICITED)?;
    pair.b.qp.flush()?;
    s.settle();
    let held = cq.callbacks() == 0;
    set(cq, 0, 0)?;
    cq.wait_callbacks(1)?;
    observed!("a failed request is {}", if held { "held back" } else { "not held back" })
}

fn overrun(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, LONG, u32::MAX)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    for number in 1..=10 {
        pair.deliver(number, false)?;
    }
    s.settle();
    // A provider may let go what it holds back when the queue is full.
    if cq.callbacks() > 0 {
        cq.arm(ndkpi::NDK_CQ_NOTIFY_ERRORS)?;
    }
    pair.start_delivery(11, false)?;
    s.wait("the callback for the overrun", || cq.errors() == 1)?;
    ensure_eq!(cq.error(), NtStatus::BUFFER_OVERFLOW, "status of the callback");
    HELD
}

fn close_while_held(s: &Session<'_>) -> Verdict {
    let Pair { link, a, b } = moderated(s, 2000, 9)?;
    b.receive_cq.arm(ANY)?;
    b.receive(1, 0, 64)?;
    a.send(1, 0, 16, 0)?;
    a.initiator_done(1)?;
    link.a.close()?;
    link.b.close()?;
    b.qp.close()?;
    let cq = b.receive_cq.core();
    b.receive_cq.close()?;
    let callbacks = cq.callbacks();
    s.platform().sleep(3000);
    cq.stays_at_callbacks(callbacks)?;
    HELD
}

fn fine_intervals(s: &Session<'_>) -> Verdict {
    let pair = moderated(s, 0, 0)?;
    for (number, interval) in (1..).zip([1, 2, 3, 7, 10, 30, 49, 50, 51, 99, 100]) {
        set(pair.b.receive_cq.core(), interval, 9)?;
        called_for_one(&pair, number)?;
    }
    HELD
}
