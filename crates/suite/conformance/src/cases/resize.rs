//! Resizing a completion queue (`NDKPI 7.1.11`).

use ndkpi::{NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE, NDK_CQ_NOTIFY_ANY as ANY, NtStatus};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::Session,
    fixture::{Pair, Plan, is_success},
};

pub const CASES: &[Case] = &[
    Case::new(
        "resize.grow",
        "NDKPI 7.1.11",
        "Fills a queue of depth 4, makes it 32 deep, and lets 28 more complete.",
        "All 32 are found, in order: no overrun.",
        grow,
    ),
    Case::new(
        "resize.shrink",
        "NDKPI 7.1.11",
        "Makes a queue of depth 32 with 3 entries 4 deep, and lets one more complete.",
        "All 4 are found, in order.",
        shrink,
    ),
    Case::new(
        "resize.shrink-to-what-is-queued",
        "NDKPI 7.1.11",
        "Makes a queue with 5 entries exactly 5 deep, drains it and fills it again.",
        "Nothing is lost: no overrun.",
        shrink_to_what_is_queued,
    ),
    //= NDKPI 7.1.11
    Case::new(
        "resize.shrink-below-what-is-queued",
        "NDKPI 9",
        "Makes a queue of depth 16 with 5 entries 4 deep.",
        "Nothing is lost, whatever the status; on failure the queue holds 16 as before. Open: the status.",
        shrink_below_what_is_queued,
    ),
    Case::new(
        "resize.depth-is-exact",
        "NDKPI 7.1.10",
        "Makes a queue of depth 16 two deep and lets three complete.",
        "The third one overruns it: the new depth counts.",
        depth_is_exact,
    ),
    Case::new(
        "resize.above-maximum",
        "NDKPI 5.4",
        "Asks for more than MaxCqDepth.",
        "STATUS_INVALID_PARAMETER; the queue is as it was.",
        above_maximum,
    ),
    Case::new("resize.zero", "NDKPI 9", "Asks for depth 0.", "Nothing is lost. Open: the status.", zero),
    Case::new("resize.same", "NDKPI 7.1.11", "Asks for the depth that the queue has.", "STATUS_SUCCESS.", same),
    Case::new(
        "resize.keeps-the-arm",
        "NDKPI 7.1.3",
        "Arms ANY, makes the queue larger and smaller, then lets a receive complete.",
        "No callback for the resizes, one for the receive.",
        keeps_the_arm,
    ),
    //= NDKPI 7.1.11
    Case::new(
        "resize.wrapped-ring",
        "NDKPI 7.1.11",
        "Resizes to other depths at every position of a queue whose entries wrap around its end.",
        "Every entry comes once, in order.",
        wrapped_ring,
    ),
    Case::new(
        "resize.at-random",
        "NDKPI 7.1.11",
        "Four hundred rounds of completions, polls and resizes at random.",
        "Every entry comes once, in order; a queue never holds more than its depth.",
        at_random,
    ),
];

fn resized<'s>(s: &'s Session<'s>, depth: u32) -> Check<Pair<'s>> {
    s.need_flag(RESIZE, "CQ_RESIZE_SUPPORTED")?;
    let mut plan = Plan::new();
    plan.sizes.receive_depth = 64;
    Pair::with(s, &plan, &Plan { depths: [depth, 64], ..plan })
}

/// Lets receives `first` to `last` complete.
fn deliver(pair: &Pair<'_>, first: usize, last: usize) -> Check {
    for number in first..=last {
        pair.deliver(number, false)?;
    }
    Ok(())
}

/// Takes receives `first` to `last`, in order.
fn take(pair: &Pair<'_>, first: usize, last: usize) -> Check {
    for (number, done) in (first..).zip(pair.b.receive_cq.take(last + 1 - first)?) {
        is_success(&done, number)?;
    }
    Ok(())
}

fn grow(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 4)?;
    deliver(&pair, 1, 4)?;
    pair.b.receive_cq.core().resize(32)?.succeeds()?;
    deliver(&pair, 5, 32)?;
    take(&pair, 1, 32)?;
    pair.b.receive_cq.stays_empty()?;
    HELD
}

fn shrink(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 32)?;
    deliver(&pair, 1, 3)?;
    pair.b.receive_cq.core().resize(4)?.succeeds()?;
    deliver(&pair, 4, 4)?;
    take(&pair, 1, 4)?;
    pair.b.receive_cq.stays_empty()?;
    HELD
}

fn shrink_to_what_is_queued(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 32)?;
    deliver(&pair, 1, 5)?;
    s.settle();
    pair.b.receive_cq.core().resize(5)?.succeeds()?;
    take(&pair, 1, 5)?;
    deliver(&pair, 6, 10)?;
    take(&pair, 6, 10)?;
    HELD
}

fn shrink_below_what_is_queued(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 16)?;
    deliver(&pair, 1, 5)?;
    s.settle();
    let status = pair.b.receive_cq.core().resize(4)?.wait()?;
    if status == NtStatus::SUCCESS {
        take(&pair, 1, 5)?;
    } else {
        deliver(&pair, 6, 16)?;
        take(&pair, 1, 16)?;
    }
    pair.b.receive_cq.stays_empty()?;
    observed!("{status}")
}

fn depth_is_exact(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 16)?;
    let cq = pair.b.receive_cq.core();
    cq.resize(2)?.succeeds()?;
    deliver(&pair, 1, 2)?;
    cq.arm(ndkpi::NDK_CQ_NOTIFY_ERRORS)?;
    cq.stays_at_callbacks(0)?;
    pair.start_delivery(3, false)?;
    cq.wait_callbacks(1)?;
    ensure_eq!(cq.error(), NtStatus::BUFFER_OVERFLOW, "status of the callback");
    HELD
}

fn above_maximum(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 4)?;
    let most = s.peer_adapter()?.info().MaxCqDepth;
    let Some(more) = most.checked_add(1) else { skip!("MaxCqDepth is the greatest number there is") };
    for depth in [more, u32::MAX] {
        pair.b.receive_cq.core().resize(depth)?.ends_with(NtStatus::INVALID_PARAMETER)?;
    }
    deliver(&pair, 1, 4)?;
    take(&pair, 1, 4)?;
    HELD
}

fn zero(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 4)?;
    deliver(&pair, 1, 2)?;
    let status = pair.b.receive_cq.core().resize(0)?.wait()?;
    take(&pair, 1, 2)?;
    observed!("{status}")
}

fn same(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 4)?;
    deliver(&pair, 1, 2)?;
    pair.b.receive_cq.core().resize(4)?.succeeds()?;
    deliver(&pair, 3, 4)?;
    take(&pair, 1, 4)?;
    HELD
}

fn keeps_the_arm(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 4)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    cq.resize(40)?.succeeds()?;
    cq.resize(3)?.succeeds()?;
    cq.stays_at_callbacks(0)?;
    deliver(&pair, 1, 1)?;
    cq.wait_callbacks(1)?;
    cq.resize(8)?.succeeds()?;
    cq.stays_at_callbacks(1)?;
    HELD
}

fn wrapped_ring(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 4)?;
    let mut number = 0;
    for turn in 0..5 {
        for depth in [5, 4, 7, 4, 16, 4, 4] {
            // Move on by `turn`, so that the entries lie elsewhere in the ring.
            deliver(&pair, number, number + turn % 4)?;
            take(&pair, number, number + turn % 4)?;
            number += turn % 4 + 1;
            deliver(&pair, number, number + 3)?;
            pair.b.receive_cq.core().resize(depth)?.succeeds()?;
            take(&pair, number, number + 3)?;
            number += 4;
        }
    }
    HELD
}

fn at_random(s: &Session<'_>) -> Verdict {
    let pair = resized(s, 4)?;
    let cq = pair.b.receive_cq.core();
    let mut random = s.random();
    let (mut depth, mut sent, mut taken) = (4_usize, 0, 0);
    for _ in 0..400 {
        match random.below(4) {
            0 => {
                let wanted = 1 + random.below(24);
                let queued = sent - taken;
                let status = cq.resize(wanted)?.wait()?;
                let fits = wanted as usize >= queued;
                if fits {
                    ensure_eq!(status, NtStatus::SUCCESS, "resize to {wanted} with {queued} entries");
                }
                if status == NtStatus::SUCCESS {
                    depth = (wanted as usize).max(queued);
                }
            }
            1 if taken < sent => {
                let count = 1 + random.below(u32::try_from(sent - taken).unwrap_or(1)) as usize;
                take(&pair, taken, taken + count - 1)?;
                taken += count;
            }
            _ if sent - taken < depth => {
                deliver(&pair, sent, sent)?;
                sent += 1;
            }
            _ => {}
        }
    }
    if taken < sent {
        take(&pair, taken, sent - 1)?;
    }
    cq.stays_empty()?;
    HELD
}
