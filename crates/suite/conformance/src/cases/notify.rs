//! The notification callback: when it must come, when it must not, and what may be done inside it (`NDKPI 7.1.5`, `7.1.7`).

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use ndkpi::{
    GROUP_AFFINITY, NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION,
    NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE, NDK_CQ_NOTIFY_ANY as ANY, NDK_CQ_NOTIFY_ERRORS as ERRORS,
    NDK_CQ_NOTIFY_SOLICITED as SOLICITED, NDK_OP_FLAG_SILENT_SUCCESS, NtStatus,
};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{CqCore, Hook, Later, Owned, Pending, QpCore, Session},
    fixture::{Pair, Plan},
};

pub const CASES: &[Case] = &[
    Case::new(
        "notify.at-once-any",
        "NDKPI 7.1.5",
        "Lets a receive complete, then arms ANY.",
        "The callback comes at once: a completion arrived since the last callback.",
        at_once_any,
    ),
    Case::new(
        "notify.at-once-solicited",
        "NDKPI 7.1.5",
        "Lets a solicited receive complete, then arms SOLICITED.",
        "The callback comes at once.",
        at_once_solicited,
    ),
    Case::new(
        "notify.at-once-by-weaker-entry",
        "NDKPI 7.1.5",
        "Lets a plain receive complete, then arms ERRORS and SOLICITED.",
        "Open: whether an entry of a weaker class satisfies the arm at once.",
        at_once_by_weaker_entry,
    ),
    Case::new(
        "notify.not-inside-arm",
        "NDKPI 7.1.5",
        "Arms at DISPATCH_LEVEL with a new completion in the queue, many times.",
        "The callback comes, but never on the stack of NdkArmCq.",
        not_inside_arm,
    ),
    Case::new(
        "notify.drained-entries-do-not-count",
        "NDKPI 7.1.5",
        "Lets receives complete, takes them all, then arms ANY; then completes one more.",
        "No callback for what was taken, one for the new one.",
        drained_entries_do_not_count,
    ),
    Case::new(
        "notify.may-case",
        "NDKPI 7.1.5",
        "Leaves the entry of a callback in the queue and arms ANY again, with nothing new.",
        "Open: the provider may call back or not.",
        may_case,
    ),
    Case::new(
        "notify.new-entry-behind-old-ones",
        "NDKPI 7.1.5",
        "Leaves the entry of a callback in the queue, lets another complete, then arms ANY.",
        "The callback comes at once.",
        new_entry_behind_old_ones,
    ),
    Case::new(
        "notify.entry-during-callback",
        "NDKPI 7.1.7",
        "Inside the callback: completes another receive, then arms ANY.",
        "A second callback, after the first has returned.",
        entry_during_callback,
    ),
    //= NDKPI 7.1.7
    Case::new(
        "notify.arm-before-entry-during-callback",
        "NDKPI 7.1.7",
        "Inside the callback: arms ANY, then completes another receive.",
        "A second callback, after the first has returned.",
        arm_before_entry_during_callback,
    ),
    Case::new(
        "notify.poll-inside",
        "NDKPI 7.1.7",
        "Polls to empty and arms inside every callback, for fifty receives.",
        "Every receive is found by the callbacks alone.",
        poll_inside,
    ),
    //= NDKPI 7.1.2
    Case::new(
        "notify.callback-beside-arm",
        "NDKPI 7.1.2",
        "Arms with a new completion in the queue; the callback, which may come on another processor before NdkArmCq has \
         returned, polls and arms. A thousand times.",
        "The poll finds the completion, and the arm holds.",
        callback_beside_arm,
    ),
    Case::new(
        "notify.post-inside",
        "NDKPI 7.1.7",
        "Posts a receive and answers with a send inside the callback.",
        "The posts are accepted and complete.",
        post_inside,
    ),
    Case::new(
        "notify.resize-inside",
        "NDKPI 7.1.11",
        "Resizes the queue inside its callback.",
        "The resize succeeds, nothing is lost.",
        resize_inside,
    ),
    Case::new(
        "notify.moderate-inside",
        "NDKPI 7.1.6",
        "Changes the moderation of the queue inside its callback.",
        "STATUS_SUCCESS.",
        moderate_inside,
    ),
    Case::new(
        "notify.close-inside",
        "NDKPI 7.1.12",
        "Closes the queue inside its callback, while a queue pair uses it; then closes the queue pair.",
        "The close pends until the callback has returned and the queue pair is closed; no callback follows.",
        close_inside,
    ),
    Case::new(
        "notify.silent-success",
        "NDKPI 7.3",
        "Arms the initiator's queue and completes silent sends, then a signalled one.",
        "No callback for silent successes, one for the signalled send.",
        silent_success,
    ),
    Case::new(
        "notify.queues-are-independent",
        "NDKPI 7.1.3",
        "Arms only one of two queues that get completions at the same time.",
        "Only the armed queue calls back.",
        queues_are_independent,
    ),
    Case::new(
        "notify.burst",
        "NDKPI 7.1.3",
        "Arms once, then completes a burst of sixty receives.",
        "One callback.",
        burst,
    ),
    Case::new(
        "notify.affinity",
        "NDKPI 5.2",
        "Creates a queue for each processor by its affinity and looks where callbacks run.",
        "Open: affinity is advice.",
        affinity,
    ),
];

fn at_once_any(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.deliver(1, false)?;
    s.settle();
    pair.b.receive_cq.arm(ANY)?;
    pair.b.receive_cq.wait_callbacks(1)?;
    pair.b.receive_cq.stays_at_callbacks(1)?;
    HELD
}

fn at_once_solicited(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.deliver(1, true)?;
    pair.deliver(2, false)?;
    s.settle();
    pair.b.receive_cq.arm(SOLICITED)?;
    pair.b.receive_cq.wait_callbacks(1)?;
    HELD
}

fn at_once_by_weaker_entry(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    pair.deliver(1, false)?;
    s.settle();
    cq.arm(ERRORS)?;
    s.settle();
    let by_errors = cq.callbacks() > 0;
    cq.arm(SOLICITED)?;
    s.settle();
    let by_solicited = cq.callbacks() > u32::from(by_errors);
    let word = |yes| if yes { "yes" } else { "no" };
    observed!("a plain entry satisfies ERRORS: {}, SOLICITED: {}", word(by_errors), word(by_solicited))
}

fn not_inside_arm(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    for number in 1..=20_u32 {
        pair.deliver(number as usize, false)?;
        s.settle();
        cq.arm_raised(ANY)?;
        cq.wait_callbacks(number)?;
        ensure_eq!(cq.callbacks_inside_arm(), 0, "callbacks made inside NdkArmCq");
        cq.take(1)?;
    }
    HELD
}

fn drained_entries_do_not_count(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    for number in 0..5 {
        pair.deliver(number, true)?;
    }
    cq.take(5)?;
    cq.arm(ANY)?;
    cq.stays_at_callbacks(0)?;
    pair.deliver(5, false)?;
    cq.wait_callbacks(1)?;
    HELD
}

fn may_case(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    pair.deliver(1, false)?;
    cq.wait_callbacks(1)?;
    s.settle();
    cq.arm(ANY)?;
    s.settle();
    let fires = cq.callbacks() > 1;
    if !fires {
        // The arm stands: the next entry has to call back.
        pair.deliver(2, false)?;
        cq.wait_callbacks(2)?;
    }
    observed!("fires in the may case: {}", if fires { "yes" } else { "no" })
}

fn new_entry_behind_old_ones(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    pair.deliver(1, false)?;
    cq.wait_callbacks(1)?;
    pair.deliver(2, false)?;
    s.settle();
    cq.arm(ANY)?;
    cq.wait_callbacks(2)?;
    cq.take(2)?;
    HELD
}

/// What hooks use of a pair, which is made after them.
#[derive(Default)]
struct Stage<'s> {
    a: Later<'s, QpCore<'s>>,
    b: Later<'s, QpCore<'s>>,
    a_done: Later<'s, CqCore<'s>>,
    rounds: AtomicU32,
    closed: AtomicBool,
    resize: Later<'s, Pending<'s>>,
    status: AtomicU32,
}

impl<'s> Stage<'s> {
    fn new(s: &'s Session<'s>) -> Check<&'s Self> {
        s.keep(Self::default())
    }

    /// A pair whose passive side's completion queue for receives has this hook.
    fn pair(&'s self, s: &'s Session<'s>, hook: Hook<'s>) -> Check<Pair<'s>> {
        let pair = Pair::with(s, &Plan::new(), &Plan { on_receive: Some(hook), ..Plan::new() })?;
        self.a.set(pair.a.qp.core());
        self.b.set(pair.b.qp.core());
        self.a_done.set(pair.a.initiated());
        Ok(pair)
    }

    /// Sends nothing to the passive side, from inside a callback.
    fn send(&self, context: usize) -> Check {
        let (Some(a), Some(b)) = (self.a.get(), self.b.get()) else { return Ok(()) };
        ensure_eq!(b.receive(context, &[])?, NtStatus::SUCCESS, "NdkReceive inside a callback");
        ensure_eq!(a.send(context, &[], 0)?, NtStatus::SUCCESS, "NdkSend inside a callback");
        Ok(())
    }

    /// Waits a little for the completion of a send, from inside a callback.
    fn dwell(&self, s: &Session<'s>) {
        if let Some(cq) = self.a_done.get() {
            s.platform().dwell(&|| cq.poll_each(1, |_| {}).is_ok_and(|count| count > 0));
        }
    }
}

fn entry_during_callback(s: &Session<'_>) -> Verdict {
    let stage = Stage::new(s)?;
    let hook = s.hook(move |cq, _| {
        if stage.rounds.fetch_add(1, Relaxed) == 0 {
            stage.send(2)?;
            stage.dwell(s);
            cq.arm(ANY)?;
        }
        Ok(())
    })?;
    second_callback(s, stage, hook)
}

fn arm_before_entry_during_callback(s: &Session<'_>) -> Verdict {
    let stage = Stage::new(s)?;
    let hook = s.hook(move |cq, _| {
        if stage.rounds.fetch_add(1, Relaxed) == 0 {
            cq.arm(ANY)?;
            stage.send(2)?;
            stage.dwell(s);
        }
        Ok(())
    })?;
    second_callback(s, stage, hook)
}

/// Arms, delivers, and expects a second callback that the hook of the first has asked for.
fn second_callback<'s>(s: &'s Session<'s>, stage: &'s Stage<'s>, hook: Hook<'s>) -> Verdict {
    let pair = stage.pair(s, hook)?;
    let cq = pair.b.receive_cq.core();
    // The callback posts, so nothing else may be posting then.
    pair.deliver(1, false)?;
    cq.arm(ANY)?;
    s.wait("the second callback (NDKPI 7.1.7)", || cq.callbacks() >= 2)?;
    cq.stays_at_callbacks(2)?;
    cq.take(2)?;
    HELD
}

fn poll_inside(s: &Session<'_>) -> Verdict {
    let found = s.keep(AtomicU32::new(0))?;
    let hook = s.hook(move |cq, _| {
        while cq.poll_each(4, |_| {
            found.fetch_add(1, Relaxed);
        })? > 0
        {}
        cq.arm(ANY)
    })?;
    let pair = Pair::with(s, &Plan::new(), &Plan { on_receive: Some(hook), ..Plan::new() })?;
    pair.b.receive_cq.arm(ANY)?;
    for number in 0..50 {
        pair.deliver(number, number % 3 == 0)?;
    }
    s.wait("fifty receives to be found by callbacks (NDKPI 7.1.7)", || found.load(Relaxed) == 50)?;
    HELD
}

fn callback_beside_arm(s: &Session<'_>) -> Verdict {
    let found = s.keep(AtomicU32::new(0))?;
    let empty = s.keep(AtomicU32::new(0))?;
    let hook = s.hook(move |cq, _| {
        let count = cq.poll_each(4, |_| {})?;
        if count == 0 {
            empty.fetch_add(1, Relaxed);
        }
        found.fetch_add(u32::try_from(count).unwrap_or(0), Relaxed);
        cq.arm(ANY)
    })?;
    let pair = Pair::with(s, &Plan::new(), &Plan { on_receive: Some(hook), ..Plan::new() })?;
    let cq = pair.b.receive_cq.core();
    for number in 0..1000_u32 {
        if number % 2 == 0 {
            // Satisfied at once by what is there, or later by what comes.
            pair.deliver(1, false)?;
            if number == 0 {
                cq.arm(ANY)?;
            }
        } else {
            pair.start_delivery(1, false)?;
            pair.a.initiator_done(1)?;
        }
        let (expected, callbacks) = (number + 1, cq.callbacks());
        if s.wait("the callback to find a completion", || found.load(Relaxed) == expected).is_err() {
            fail!(
                "after {expected} completions, callbacks ({callbacks} so far) had found {}, {} polls inside them found nothing",
                found.load(Relaxed),
                empty.load(Relaxed)
            );
        }
    }
    HELD
}

fn post_inside(s: &Session<'_>) -> Verdict {
    let stage = Stage::new(s)?;
    let hook = s.hook(move |cq, _| {
        while cq.poll_each(4, |_| {})? > 0 {}
        if stage.rounds.fetch_add(1, Relaxed) < 10 {
            stage.send(7)?;
        }
        cq.arm(ANY)
    })?;
    let pair = stage.pair(s, hook)?;
    // The callbacks post, so nothing else may be posting then.
    pair.deliver(1, false)?;
    pair.b.receive_cq.arm(ANY)?;
    s.wait("ten rounds of posts inside callbacks (NDKPI 7.1.7)", || stage.rounds.load(Relaxed) > 10)?;
    for done in pair.a.initiated().take(10)? {
        ensure_eq!(done.status, NtStatus::SUCCESS, "a send posted inside a callback");
    }
    HELD
}

fn resize_inside(s: &Session<'_>) -> Verdict {
    s.need_flag(RESIZE, "CQ_RESIZE_SUPPORTED")?;
    let stage = Stage::new(s)?;
    let hook = s.hook(move |cq, _| {
        stage.resize.set(s.keep(cq.resize(100)?)?);
        Ok(())
    })?;
    let pair = stage.pair(s, hook)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    pair.deliver(1, false)?;
    cq.wait_callbacks(1)?;
    let Some(pending) = stage.resize.get() else { fail!("the callback did not resize") };
    pending.succeeds()?;
    for number in 2..=10 {
        pair.deliver(number, false)?;
    }
    for (number, done) in (1..).zip(cq.take(10)?) {
        ensure_eq!(done.request, number, "order after a resize inside the callback");
    }
    HELD
}

fn moderate_inside(s: &Session<'_>) -> Verdict {
    s.need_flag(MODERATION, "CQ_INTERRUPT_MODERATION_SUPPORTED")?;
    let stage = Stage::new(s)?;
    let hook = s.hook(move |cq, _| {
        stage.status.store(cq.moderate(0, 0)?.to_bits(), Relaxed);
        stage.closed.store(true, Relaxed);
        Ok(())
    })?;
    let pair = stage.pair(s, hook)?;
    pair.b.receive_cq.arm(ANY)?;
    pair.deliver(1, false)?;
    pair.b.receive_cq.wait_callbacks(1)?;
    ensure!(stage.closed.load(Relaxed), "the callback did not change the moderation");
    let status = NtStatus::from_bits(stage.status.load(Relaxed));
    ensure_eq!(status, NtStatus::SUCCESS, "NdkControlCqInterruptModeration inside the callback");
    HELD
}

fn close_inside(s: &Session<'_>) -> Verdict {
    let stage = Stage::new(s)?;
    let hook = s.hook(move |cq, _| {
        if stage.closed.swap(true, Relaxed) {
            return Ok(());
        }
        cq.arm(ANY)?;
        let closing = cq.life().close_within(0)?;
        ensure_eq!(closing.status(), NtStatus::PENDING, "NdkCloseCq inside the callback, with a queue pair");
        Ok(())
    })?;
    let pair = stage.pair(s, hook)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    pair.deliver(1, false)?;
    cq.wait_callbacks(1)?;
    ensure!(stage.closed.load(Relaxed), "the callback did not close the queue");
    // More completions come, but the consumer wants to hear of none.
    pair.deliver(2, true)?;
    s.settle();
    ensure!(!cq.life().is_closed(), "the close of a completion queue completed before that of its queue pair");
    pair.link.b.close()?;
    pair.b.qp.close()?;
    s.wait("the close of the completion queue (NDKPI 7.1.12)", || cq.life().is_closed())?;
    cq.stays_at_callbacks(1)?;
    HELD
}

fn silent_success(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.a.initiated();
    cq.arm(ANY)?;
    for number in 0..5 {
        pair.b.receive(number, 0, 64)?;
        pair.a.send(number, 0, 16, NDK_OP_FLAG_SILENT_SUCCESS)?;
    }
    pair.b.receive_cq.take(5)?;
    cq.stays_at_callbacks(0)?;
    pair.start_delivery(5, false)?;
    cq.wait_callbacks(1)?;
    pair.a.initiator_done(5)?;
    cq.stays_empty()?;
    HELD
}

fn queues_are_independent(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.b.receive_cq.arm(ANY)?;
    pair.deliver(1, true)?;
    pair.b.receive_cq.wait_callbacks(1)?;
    pair.a.initiated().stays_at_callbacks(0)?;
    pair.b.initiated().stays_at_callbacks(0)?;
    HELD
}

fn burst(s: &Session<'_>) -> Verdict {
    let mut plan = Plan::new();
    plan.sizes.receive_depth = 64;
    plan.sizes.initiator_depth = 64;
    let pair = Pair::with(s, &plan, &plan)?;
    for number in 0..60 {
        pair.b.receive(number, 0, 64)?;
    }
    let cq = pair.b.receive_cq.core();
    cq.arm(ANY)?;
    for number in 0..60 {
        pair.a.send(number, 0, 1, 0)?;
    }
    pair.a.initiated().take(60)?;
    cq.wait_callbacks(1)?;
    cq.stays_at_callbacks(1)?;
    cq.take(60)?;
    HELD
}

fn affinity(s: &Session<'_>) -> Verdict {
    let processors = s.platform().processors().min(8);
    let mut honoured = 0;
    for processor in 0..processors {
        let seen = s.keep(AtomicU32::new(u32::MAX))?;
        let hook = s.hook(move |_, _| {
            seen.store(s.platform().execution_context().processor, Relaxed);
            Ok(())
        })?;
        let wanted = GROUP_AFFINITY { Mask: 1 << processor, ..GROUP_AFFINITY::default() };
        let adapter = s.peer_adapter()?;
        let created = adapter.try_create_cq(16, Some(hook), Some(wanted))?;
        let cq: Owned<'_, CqCore<'_>> =
            created.map_err(|status| crate::case::Stop::status("NdkCreateCq with an affinity", status))?;
        let mut pair = Pair::apart(s, &Plan::new(), &Plan::new())?;
        let sizes = Plan::new().sizes;
        pair.1.qp = pair.1.pd.core().create_qp(cq.core(), cq.core(), 0, sizes)?;
        let pair = Pair::join(s, pair.0, pair.1, &crate::fixture::Terms::new())?;
        cq.arm(ANY)?;
        pair.deliver(1, false)?;
        cq.wait_callbacks(1)?;
        honoured += u32::from(seen.load(Relaxed) == processor);
    }
    observed!("{honoured} of {processors} callbacks ran on the processor of the affinity")
}
