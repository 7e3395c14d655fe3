//! Arming a completion queue (`NDKPI 7.1.3` to `7.1.5`).

use ndkpi::{NDK_CQ_NOTIFY_ANY as ANY, NDK_CQ_NOTIFY_ERRORS as ERRORS, NDK_CQ_NOTIFY_SOLICITED as SOLICITED, NtStatus};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{QpSizes, Session},
    fixture::{Pair, Plan},
};

pub const CASES: &[Case] = &[
    //= NDKPI 7.1.1
    Case::new(
        "arm.new-queue-is-unarmed",
        "NDKPI 7.1.1",
        "Completes sends and receives on queues that were never armed.",
        "No callback.",
        new_queue_is_unarmed,
    ),
    //= NDKPI 7.1.3
    Case::new(
        "arm.one-callback-per-arm",
        "NDKPI 7.1.3",
        "Arms ANY once, then completes three receives.",
        "Exactly one callback, with STATUS_SUCCESS.",
        one_callback_per_arm,
    ),
    //= NDKPI 7.1.3
    Case::new(
        "arm.again-after-each-callback",
        "NDKPI 7.1.3",
        "Arms, completes a receive, waits for the callback, drains; twenty times.",
        "One callback for each arm.",
        again_after_each_callback,
    ),
    //= NDKPI 7.1.4
    Case::new(
        "arm.merge-any-any",
        "NDKPI 7.1.4",
        "Arms ANY, then ANY.",
        "ANY: a plain receive calls back, once.",
        merge_any_any,
    ),
    Case::new(
        "arm.merge-any-errors",
        "NDKPI 7.1.4",
        "Arms ANY, then ERRORS.",
        "ANY: the arm is not weakened.",
        merge_any_errors,
    ),
    //= bug 4
    Case::new(
        "arm.merge-any-solicited",
        "NDKPI 7.1.4",
        "Arms ANY, then SOLICITED.",
        "ANY: the arm is not weakened.",
        merge_any_solicited,
    ),
    Case::new("arm.merge-errors-any", "NDKPI 7.1.4", "Arms ERRORS, then ANY.", "ANY.", merge_errors_any),
    Case::new(
        "arm.merge-errors-errors",
        "NDKPI 7.1.4",
        "Arms ERRORS, then ERRORS.",
        "ERRORS: neither a plain nor a solicited receive calls back, an overrun does.",
        merge_errors_errors,
    ),
    Case::new(
        "arm.merge-errors-solicited",
        "NDKPI 7.1.4",
        "Arms ERRORS, then SOLICITED.",
        "SOLICITED: a plain receive does not call back, a solicited one does.",
        merge_errors_solicited,
    ),
    Case::new("arm.merge-solicited-any", "NDKPI 7.1.4", "Arms SOLICITED, then ANY.", "ANY.", merge_solicited_any),
    Case::new(
        "arm.merge-solicited-errors",
        "NDKPI 7.1.4",
        "Arms SOLICITED, then ERRORS.",
        "SOLICITED: the arm is not weakened.",
        merge_solicited_errors,
    ),
    Case::new(
        "arm.merge-solicited-solicited",
        "NDKPI 7.1.4",
        "Arms SOLICITED, then SOLICITED.",
        "SOLICITED.",
        merge_solicited_solicited,
    ),
    //= NDKPI 7.1.4
    Case::new(
        "arm.merge-triples",
        "NDKPI 7.1.4",
        "Arms three times, in each of the 27 orders, before anything completes.",
        "The strongest of the three holds, in the order ERRORS, SOLICITED, ANY.",
        merge_triples,
    ),
    //= NDKPI 7.1.5
    //= NDKPI 7.3.6
    Case::new(
        "arm.solicited-ignores-plain",
        "NDKPI 7.1.5",
        "Arms SOLICITED and completes ten plain receives, then a solicited one.",
        "No callback for the first ten, one for the last.",
        solicited_ignores_plain,
    ),
    //= NDKPI 7.1.5
    Case::new(
        "arm.solicited-by-error",
        "NDKPI 7.1.5",
        "Arms SOLICITED and flushes a posted receive.",
        "A callback: a request that fails satisfies SOLICITED.",
        solicited_by_error,
    ),
    //= NDKPI 7.1.5
    Case::new("arm.any-by-error", "NDKPI 7.1.5", "Arms ANY and flushes a posted receive.", "A callback.", any_by_error),
    Case::new(
        "arm.errors-by-failed-request",
        "NDKPI 9",
        "Arms ERRORS and flushes a posted receive.",
        "Open: whether a failed request alone satisfies an ERRORS arm.",
        errors_by_failed_request,
    ),
    //= NDKPI 7.1.4
    Case::new(
        "arm.unknown-type",
        "NDKPI 7.1.4",
        "Arms with a type that does not exist, then completes receives; then arms ANY.",
        "ANY still works. Open: whether the unknown type calls back.",
        unknown_type,
    ),
];

/// The strongest arm of several (`NDKPI 7.1.4`).
fn strongest(arms: &[u32]) -> u32 {
    if arms.contains(&ANY) {
        ANY
    } else if arms.contains(&SOLICITED) {
        SOLICITED
    } else {
        ERRORS
    }
}

/// A pair whose passive side has a completion queue for two receives.
fn shallow_pair<'s>(s: &'s Session<'s>) -> Check<Pair<'s>> {
    Pair::with(s, &Plan::new(), &Plan { depths: [2, 16], ..Plan::new() })
}

/// Arms in this order, and finds out by a plain receive, a solicited one and an overrun what the arms have become.
fn merge(s: &Session<'_>, arms: &[u32]) -> Check {
    let pair = shallow_pair(s)?;
    let cq = pair.b.receive_cq.core();
    for arm in arms {
        cq.arm(*arm)?;
    }
    let expected = strongest(arms);
    pair.deliver(1, false)?;
    if expected == ANY {
        cq.wait_callbacks(1)?;
    } else {
        cq.stays_at_callbacks(0)?;
    }
    pair.deliver(2, true)?;
    match expected {
        ANY => cq.stays_at_callbacks(1)?,
        SOLICITED => cq.wait_callbacks(1)?,
        _ => {
            cq.stays_at_callbacks(0)?;
            pair.start_delivery(3, false)?;
            cq.wait_callbacks(1)?;
            ensure_eq!(cq.error(), NtStatus::BUFFER_OVERFLOW, "status of the callback after an overrun");
            return Ok(());
        }
    }
    cq.stays_at_callbacks(1)?;
    ensure_eq!(cq.errors(), 0, "callbacks with an error");
    Ok(())
}

macro_rules! merges {
    ($($name:ident: $first:ident, $second:ident;)+) => {
        $(fn $name(s: &Session<'_>) -> Verdict {
            merge(s, &[$first, $second])?;
            HELD
        })+
    };
}

merges! {
    merge_any_any: ANY, ANY;
    merge_any_errors: ANY, ERRORS;
    merge_any_solicited: ANY, SOLICITED;
    merge_errors_any: ERRORS, ANY;
    merge_errors_errors: ERRORS, ERRORS;
    merge_errors_solicited: ERRORS, SOLICITED;
    merge_solicited_any: SOLICITED, ANY;
    merge_solicited_errors: SOLICITED, ERRORS;
    merge_solicited_solicited: SOLICITED, SOLICITED;
}

fn merge_triples(s: &Session<'_>) -> Verdict {
    let types = [ERRORS, ANY, SOLICITED];
    for first in types {
        for second in types {
            for third in types {
                merge(s, &[first, second, third])?;
            }
        }
    }
    HELD
}

fn new_queue_is_unarmed(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for number in 1..4 {
        pair.deliver(number, true)?;
    }
    pair.b.receive_cq.take(3)?;
    pair.b.receive_cq.stays_at_callbacks(0)?;
    pair.a.initiated().stays_at_callbacks(0)?;
    HELD
}

fn one_callback_per_arm(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    pair.deliver(1, false)?;
    cq.wait_callbacks(1)?;
    pair.deliver(2, false)?;
    pair.deliver(3, true)?;
    cq.stays_at_callbacks(1)?;
    ensure_eq!(cq.errors(), 0, "callbacks with an error");
    cq.take(3)?;
    HELD
}

fn again_after_each_callback(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    for number in 1..=20_u32 {
        cq.arm(if number % 2 == 0 { ANY } else { SOLICITED })?;
        pair.deliver(number as usize, true)?;
        cq.wait_callbacks(number)?;
        cq.take(1)?;
    }
    cq.stays_at_callbacks(20)?;
    HELD
}

fn solicited_ignores_plain(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(SOLICITED)?;
    for number in 0..10 {
        pair.deliver(number, false)?;
    }
    cq.stays_at_callbacks(0)?;
    pair.deliver(10, true)?;
    cq.wait_callbacks(1)?;
    cq.take(11)?;
    HELD
}

/// Arms, and lets a receive fail by a flush.
fn flush_armed<'s>(s: &'s Session<'s>, arm: u32) -> Check<Pair<'s>> {
    let pair = Pair::new(s)?;
    pair.b.receive(1, 0, 64)?;
    pair.b.receive_cq.arm(arm)?;
    pair.b.qp.flush()?;
    Ok(pair)
}

fn solicited_by_error(s: &Session<'_>) -> Verdict {
    let pair = flush_armed(s, SOLICITED)?;
    pair.b.receive_cq.wait_callbacks(1)?;
    ensure_eq!(pair.b.receive_cq.errors(), 0, "callbacks with an error, though the queue itself is fine");
    HELD
}

fn any_by_error(s: &Session<'_>) -> Verdict {
    let pair = flush_armed(s, ANY)?;
    pair.b.receive_cq.wait_callbacks(1)?;
    HELD
}

fn errors_by_failed_request(s: &Session<'_>) -> Verdict {
    let pair = flush_armed(s, ERRORS)?;
    pair.b.receive_cq.take(1)?;
    s.settle();
    observed!("callbacks: {}", pair.b.receive_cq.callbacks())
}

fn unknown_type(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair =
        Pair::with(s, &Plan::new(), &Plan { sizes: QpSizes { receive_depth: 8, ..Plan::new().sizes }, ..Plan::new() })?;
    let cq = pair.b.receive_cq.core();
    cq.arm(3)?;
    cq.arm(u32::MAX)?;
    pair.deliver(1, true)?;
    s.settle();
    let called = cq.callbacks();
    cq.take(1)?;
    cq.arm(ANY)?;
    pair.deliver(2, false)?;
    cq.wait_callbacks(called + 1)?;
    observed!("callbacks after an arm of an unknown type: {called}")
}
