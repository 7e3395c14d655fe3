//! Shared receive queues (`NDKPI 7.12`).

use ndkpi::{NDK_SGE, NtStatus};

use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{Adapter, Pd, Region, Session, Srq, SrqCore, SrqHook},
    fixture::{Pair, Plan, Side, is_success, posted},
};

pub const CASES: &[Case] = &[
    //= NDKPI 7.12.6
    Case::new(
        "srq.receive",
        "NDKPI 7.12",
        "Receives over a queue pair with a shared receive queue.",
        "Receives are used in the order of posting, and complete on the queue pair's completion queue with its context.",
        receive,
    ),
    //= NDKPI 7.12.6
    Case::new(
        "srq.shared-by-two",
        "NDKPI 7.12",
        "Two queue pairs take their receives from one queue, in turn and both at once.",
        "Each receive completes once, on the completion queue of the queue pair that used it.",
        shared_by_two,
    ),
    Case::new(
        "srq.limits",
        "NDKPI 5.3",
        "Creates queues of the greatest depth and of the most elements.",
        "They are created.",
        limits,
    ),
    Case::new(
        "srq.above-limits",
        "NDKPI 5.3",
        "Creates queues with one more than the greatest depth, and one more element.",
        "STATUS_INVALID_PARAMETER.",
        above_limits,
    ),
    Case::new(
        "srq.depth-is-exact",
        "NDKPI 7.12",
        "Posts as many receives as the queue is deep, then one more.",
        "All but the last are accepted. Open: the status of the last.",
        depth_is_exact,
    ),
    Case::new(
        "srq.too-many-elements",
        "NDKPI 7.3",
        "Posts a receive with one element more than the queue may have.",
        "It is not posted. Open: the status.",
        too_many_elements,
    ),
    //= NDKPI 7.2.8
    Case::new(
        "srq.receive-on-the-queue-pair",
        "NDKPI 9",
        "Posts a receive to the queue pair itself.",
        "It fails. Open: the status.",
        receive_on_the_queue_pair,
    ),
    //= NDKPI 7.12.2
    Case::new(
        "srq.notification",
        "NDKPI 7.12",
        "Sets the threshold 3 with five receives in the queue, then uses them one by one.",
        "One callback, when fewer than three are left; nothing more until the next modification.",
        notification,
    ),
    //= NDKPI 7.12.2
    Case::new(
        "srq.already-below",
        "NDKPI 7.12",
        "Sets a threshold above the number of receives in the queue.",
        "The callback comes now.",
        already_below,
    ),
    //= NDKPI 7.12.3
    Case::new(
        "srq.one-shot",
        "NDKPI 7.12",
        "After the callback fills the queue, uses it up, and sets the threshold again.",
        "No callback until the threshold is set again, then one.",
        one_shot,
    ),
    //= NDKPI 7.12.2
    Case::new(
        "srq.threshold-zero-keeps-the-arm",
        "NDKPI 7.12",
        "Sets a threshold, then modifies the depth with the threshold 0.",
        "Threshold and arm are as before.",
        threshold_zero_keeps_the_arm,
    ),
    //= NDKPI 7.12.2
    Case::new(
        "srq.depth-zero-keeps-the-depth",
        "NDKPI 7.12",
        "Modifies the threshold with the depth 0.",
        "The depth is as before.",
        depth_zero_keeps_the_depth,
    ),
    Case::new(
        "srq.grow",
        "NDKPI 7.12",
        "Makes a full queue of depth 4 eight deep and posts four more; uses them all.",
        "They are used in order.",
        grow,
    ),
    Case::new(
        "srq.shrink-below-what-is-queued",
        "NDKPI 9",
        "Makes a queue with five receives three deep.",
        "No receive is lost. Open: the status.",
        shrink_below_what_is_queued,
    ),
    Case::new(
        "srq.modify-above-the-limit",
        "NDKPI 5.6",
        "Asks for a depth above the limit.",
        "STATUS_INVALID_PARAMETER.",
        modify_above_the_limit,
    ),
    //= NDKPI 7.12.1
    Case::new(
        "srq.armed-at-creation",
        "NDKPI 9",
        "Creates a queue with a threshold, posts receives and uses them up.",
        "Open: whether creation arms the notification.",
        armed_at_creation,
    ),
    Case::new(
        "srq.without-notification",
        "NDKPI 5.3",
        "Creates a queue without a callback, sets a threshold and uses the receives up.",
        "Nothing happens.",
        without_notification,
    ),
    Case::new(
        "srq.modify-inside-its-callback",
        "NDKPI 7.12",
        "Posts receives and sets the threshold again inside the callback, as consumers do, while all receives are used up.",
        "A callback each time fewer are left, never two at a time.",
        modify_inside_its_callback,
    ),
    //= NDKPI 7.9.3
    Case::new(
        "srq.close-inside-its-callback",
        "NDKPI 7.9",
        "Closes the queue inside its callback, while a queue pair uses it; then closes the queue pair.",
        "The close pends until both the callback has returned and the queue pair is closed.",
        close_inside_its_callback,
    ),
    Case::new(
        "srq.flush-of-a-queue-pair",
        "NDKPI 7.12",
        "Flushes and closes one of two queue pairs of a queue with receives in it.",
        "The other one still uses them.",
        flush_of_a_queue_pair,
    ),
    Case::new(
        "srq.close-waits-for-queue-pairs",
        "NDKPI 7.9",
        "Closes a queue while a queue pair uses it.",
        "The close pends until the queue pair is closed.",
        close_waits_for_queue_pairs,
    ),
    Case::new(
        "srq.close-with-receives",
        "NDKPI 7.9",
        "Closes a queue with receives that nobody has used.",
        "The close completes; nothing completes on a completion queue.",
        close_with_receives,
    ),
];

/// A shared receive queue of the peer's adapter with the domain and the bytes for it.
struct Pool<'s> {
    srq: Srq<'s>,
    region: Region<'s>,
    pd: Pd<'s>,
    adapter: Adapter<'s>,
}

impl<'s> Pool<'s> {
    fn new(s: &'s Session<'s>, depth: u32, threshold: u32) -> Check<Self> {
        Self::with(s, depth, threshold, None)
    }

    fn with(s: &'s Session<'s>, depth: u32, threshold: u32, hook: Option<SrqHook<'s>>) -> Check<Self> {
        let adapter = s.peer_adapter()?;
        if adapter.info().MaxSrqDepth == 0 {
            skip!("the adapter has no shared receive queues");
        }
        let pd = adapter.create_pd()?;
        let srq = pd.core().try_create_srq(depth, 2, threshold, hook, true)?;
        let srq = srq.map_err(|status| Stop::status("NdkCreateSrq", status))?;
        let region = Region::new(pd.core(), 8192, crate::client::ALL_RIGHTS)?;
        Ok(Self { srq, region, pd, adapter })
    }

    fn element(&self) -> NDK_SGE {
        self.region.element(0, 64)
    }

    /// Posts receives `first` to `last`.
    fn post(&self, first: usize, last: usize) -> Check {
        for number in first..=last {
            posted("NdkSrqReceive", self.srq.receive(number, &[self.element()])?)?;
        }
        Ok(())
    }

    /// A pair whose passive side takes its receives from the queue.
    fn pair(&self, s: &'s Session<'s>, context: usize) -> Check<Pair<'s>> {
        let a = Side::new(&s.adapter()?, &Plan::new(), crate::fixture::QP_A)?;
        let mut b = Side::new(&self.adapter, &Plan::new(), crate::fixture::QP_B)?;
        let (receive, initiator) = (b.receive_cq.core(), b.initiated());
        let sizes = Plan::new().sizes.within(self.adapter.info());
        let qp = self.pd.core().try_create_qp_with_srq(receive, initiator, self.srq.core(), context, sizes)?;
        b.qp = qp.map_err(|status| Stop::status("NdkCreateQpWithSrq", status))?;
        Pair::join(s, a, b, &crate::fixture::Terms::new())
    }
}

/// Sends one message and looks that the receive `number` took it.
fn uses(pair: &Pair<'_>, number: usize) -> Check {
    pair.a.send(number, 0, 16, 0)?;
    pair.a.initiator_done(number)?;
    pair.b.receive_done(number).map(|_| ())
}

fn receive(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 16, 0)?;
    let pair = pool.pair(s, 0xC3)?;
    pool.post(1, 10)?;
    pair.a.region.buffer.fill_pattern(0, 64, 3)?;
    for number in 1..=10 {
        pair.a.send(number, 0, 50, 0)?;
        pair.a.initiator_done(number)?;
        let done = pair.b.receive_done(number)?;
        ensure_eq!((done.qp, done.bytes), (0xC3, 50), "context of the queue pair, and bytes received");
        pool.region.buffer.has_pattern(0, 50, 3)?;
    }
    HELD
}

fn shared_by_two(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 16, 0)?;
    let pairs = [pool.pair(s, 0xC1)?, pool.pair(s, 0xC2)?];
    pool.post(0, 9)?;
    for number in 0..10 {
        uses(&pairs[number % 2], number)?;
    }
    pool.post(0, 9)?;
    for pair in &pairs {
        for number in 0..5 {
            pair.a.send(number, 0, 16, 0)?;
        }
    }
    let mut used = [false; 10];
    for (pair, context) in pairs.iter().zip([0xC1, 0xC2]) {
        let mut last = None;
        for done in pair.b.receive_cq.take(5)? {
            ensure!(done.status == NtStatus::SUCCESS && done.qp == context, "a receive of {context:#x} is {done:?}");
            ensure!(done.request < 10 && !used[done.request], "receive {} was used twice", done.request);
            ensure!(last < Some(done.request), "receives of one queue pair in another order than posted");
            used[done.request] = true;
            last = Some(done.request);
        }
    }
    HELD
}

fn limits(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 1, 0)?;
    let info = pool.adapter.info();
    for (depth, sge) in [(info.MaxSrqDepth, 1), (1, info.MaxReceiveRequestSge)] {
        match pool.pd.core().try_create_srq(depth, sge, 0, None, true)? {
            Ok(srq) => {
                srq.close()?;
            }
            Err(NtStatus::INSUFFICIENT_RESOURCES) => {}
            Err(status) => fail!("NdkCreateSrq of depth {depth} and {sge} elements: {status}"),
        }
    }
    HELD
}

fn above_limits(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 1, 0)?;
    let info = pool.adapter.info();
    let more = [
        (info.MaxSrqDepth.saturating_add(1), 1),
        (u32::MAX, 1),
        (1, info.MaxReceiveRequestSge.saturating_add(1)),
        (1, u32::MAX),
    ];
    for (depth, sge) in more {
        match pool.pd.core().try_create_srq(depth, sge, 0, None, true)? {
            Ok(_) => fail!("a shared receive queue of depth {depth} and {sge} elements was created"),
            Err(status) => ensure_eq!(status, NtStatus::INVALID_PARAMETER, "NdkCreateSrq of {depth}, {sge} elements"),
        }
    }
    HELD
}

fn depth_is_exact(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 5, 0)?;
    let pair = pool.pair(s, 0)?;
    pool.post(0, 4)?;
    let status = pool.srq.receive(5, &[pool.element()])?;
    ensure!(!status.is_success() || status != NtStatus::SUCCESS, "a receive was posted to a full queue");
    for number in 0..5 {
        uses(&pair, number)?;
    }
    pool.post(6, 10)?;
    uses(&pair, 6)?;
    observed!("{status}")
}

fn too_many_elements(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 5, 0)?;
    let pair = pool.pair(s, 0)?;
    let status = pool.srq.receive(1, &[pool.element(); 3])?;
    ensure!(!status.is_success(), "a receive of three elements was posted to a queue for two");
    pool.post(2, 2)?;
    uses(&pair, 2)?;
    observed!("{status}")
}

fn receive_on_the_queue_pair(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 5, 0)?;
    let pair = pool.pair(s, 0)?;
    let status = pair.b.qp.receive(1, &[pool.element()])?;
    ensure!(!status.is_success(), "a receive was posted to a queue pair with a shared receive queue");
    pool.post(2, 2)?;
    uses(&pair, 2)?;
    observed!("{status}")
}

fn notification(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 16, 0)?;
    let pair = pool.pair(s, 0)?;
    pool.post(1, 5)?;
    pool.srq.core().modify(0, 3)?.succeeds()?;
    pool.srq.stays_at_callbacks(0)?;
    uses(&pair, 1)?;
    uses(&pair, 2)?;
    pool.srq.stays_at_callbacks(0)?;
    uses(&pair, 3)?;
    pool.srq.wait_callbacks(1)?;
    ensure_eq!(pool.srq.status(), NtStatus::SUCCESS, "status of the callback");
    uses(&pair, 4)?;
    uses(&pair, 5)?;
    pool.srq.stays_at_callbacks(1)?;
    HELD
}

fn already_below(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 16, 0)?;
    pool.post(1, 2)?;
    pool.srq.core().modify(0, 3)?.succeeds()?;
    pool.srq.wait_callbacks(1)?;
    pool.srq.stays_at_callbacks(1)?;
    HELD
}

fn one_shot(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 16, 0)?;
    let pair = pool.pair(s, 0)?;
    pool.post(1, 3)?;
    pool.srq.core().modify(0, 3)?.succeeds()?;
    uses(&pair, 1)?;
    pool.srq.wait_callbacks(1)?;
    pool.post(4, 10)?;
    for number in 2..=9 {
        uses(&pair, number)?;
    }
    pool.srq.stays_at_callbacks(1)?;
    pool.srq.core().modify(0, 1)?.succeeds()?;
    pool.srq.stays_at_callbacks(1)?;
    uses(&pair, 10)?;
    pool.srq.wait_callbacks(2)?;
    HELD
}

fn threshold_zero_keeps_the_arm(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 8, 0)?;
    let pair = pool.pair(s, 0)?;
    pool.post(1, 4)?;
    pool.srq.core().modify(0, 3)?.succeeds()?;
    pool.srq.core().modify(12, 0)?.succeeds()?;
    uses(&pair, 1)?;
    pool.srq.stays_at_callbacks(0)?;
    uses(&pair, 2)?;
    pool.srq.wait_callbacks(1)?;
    // Not armed any more: 0 does not arm either.
    pool.srq.core().modify(8, 0)?.succeeds()?;
    uses(&pair, 3)?;
    pool.srq.stays_at_callbacks(1)?;
    HELD
}

fn depth_zero_keeps_the_depth(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 3, 0)?;
    pool.srq.core().modify(0, 1)?.succeeds()?;
    pool.srq.wait_callbacks(1)?;
    pool.post(1, 3)?;
    let status = pool.srq.receive(4, &[pool.element()])?;
    ensure!(status != NtStatus::SUCCESS, "a fourth receive was posted to a queue of depth 3");
    HELD
}

fn grow(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 4, 0)?;
    let pair = pool.pair(s, 0)?;
    pool.post(1, 4)?;
    pool.srq.core().modify(8, 0)?.succeeds()?;
    pool.post(5, 8)?;
    for number in 1..=8 {
        uses(&pair, number)?;
    }
    HELD
}

fn shrink_below_what_is_queued(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 8, 0)?;
    let pair = pool.pair(s, 0)?;
    pool.post(1, 5)?;
    let status = pool.srq.core().modify(3, 0)?.wait()?;
    for number in 1..=5 {
        uses(&pair, number)?;
    }
    observed!("{status}")
}

fn modify_above_the_limit(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 8, 0)?;
    let Some(more) = pool.adapter.info().MaxSrqDepth.checked_add(1) else { skip!("there is no more than the limit") };
    for depth in [more, u32::MAX] {
        pool.srq.core().modify(depth, 0)?.ends_with(NtStatus::INVALID_PARAMETER)?;
    }
    pool.post(1, 8)?;
    HELD
}

fn armed_at_creation(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 8, 2)?;
    let pair = pool.pair(s, 0)?;
    s.settle();
    let empty = pool.srq.callbacks();
    pool.post(1, 4)?;
    for number in 1..=4 {
        uses(&pair, number)?;
    }
    s.settle();
    observed!("callbacks while it is new and empty: {empty}, after its receives were used: {}", pool.srq.callbacks())
}

fn without_notification(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 8, 0)?;
    let srq = pool.pd.core().try_create_srq(8, 2, 0, None, false)?;
    let srq = srq.map_err(|status| Stop::status("NdkCreateSrq without a callback", status))?;
    srq.core().modify(0, 3)?.succeeds()?;
    srq.stays_at_callbacks(0)?;
    HELD
}

fn modify_inside_its_callback<'s>(s: &'s Session<'s>) -> Verdict {
    let again = s.keep(|srq: &'s SrqCore<'s>, _| {
        // As many as are left: the next one that is used is the next to tell.
        srq.modify(0, 6_u32.saturating_sub(srq.callbacks() + 1)).map(|_| ())
    })?;
    let pool = Pool::with(s, 16, 0, Some(again))?;
    let pair = pool.pair(s, 0)?;
    pool.post(1, 6)?;
    pool.srq.core().modify(0, 6)?.succeeds()?;
    pool.srq.stays_at_callbacks(0)?;
    for number in 1..=5 {
        uses(&pair, number)?;
        pool.srq.wait_callbacks(u32::try_from(number).unwrap_or(u32::MAX))?;
        s.settle();
    }
    pool.srq.stays_at_callbacks(5)?;
    HELD
}

fn close_inside_its_callback<'s>(s: &'s Session<'s>) -> Verdict {
    let close = s.keep(|srq: &'s SrqCore<'s>, _| {
        let closing = srq.life().close_within(0)?;
        ensure_eq!(closing.status(), NtStatus::PENDING, "the close of a queue inside its callback, with a queue pair");
        Ok(())
    })?;
    let pool = Pool::with(s, 8, 0, Some(close))?;
    let pair = pool.pair(s, 0)?;
    pool.post(1, 1)?;
    pool.srq.core().modify(0, 1)?.succeeds()?;
    uses(&pair, 1)?;
    let srq = pool.srq.core();
    srq.wait_callbacks(1)?;
    s.settle();
    ensure!(!srq.life().is_closed(), "the close of a shared receive queue completed before that of its queue pair");
    pair.link.b.close()?;
    pair.b.qp.close()?;
    s.wait("the close of the shared receive queue (NDKPI 7.9)", || srq.life().is_closed())?;
    srq.stays_at_callbacks(1)?;
    HELD
}

fn flush_of_a_queue_pair(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 8, 0)?;
    let (first, second) = (pool.pair(s, 1)?, pool.pair(s, 2)?);
    pool.post(1, 4)?;
    uses(&first, 1)?;
    first.b.qp.flush()?;
    first.b.receive_cq.stays_empty()?;
    first.link.b.close()?;
    first.b.qp.close()?;
    for (number, done) in (2..).zip({
        for number in 2..=4 {
            second.a.send(number, 0, 16, 0)?;
        }
        second.b.receive_cq.take(3)?
    }) {
        is_success(&done, number)?;
    }
    HELD
}

fn close_waits_for_queue_pairs(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 8, 0)?;
    let pair = pool.pair(s, 0)?;
    let Pool { srq, .. } = pool;
    let closing = srq.start_close()?;
    ensure_eq!(closing.status(), NtStatus::PENDING, "the close of a queue that a queue pair uses");
    s.settle();
    ensure!(!closing.is_done(), "the close of a shared receive queue completed before that of its queue pair");
    pair.link.b.close()?;
    pair.b.qp.close()?;
    closing.wait()?;
    HELD
}

fn close_with_receives(s: &Session<'_>) -> Verdict {
    let pool = Pool::new(s, 8, 0)?;
    let pair = pool.pair(s, 0)?;
    pool.post(1, 5)?;
    uses(&pair, 1)?;
    let Pair { link, a, b } = pair;
    link.b.close()?;
    b.qp.close()?;
    pool.srq.close()?;
    b.receive_cq.stays_empty()?;
    drop((link.a, a));
    HELD
}
