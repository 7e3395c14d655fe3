//! Many things at once, with a fixed bound and a seed that replays: on a platform with threads the tasks run on several
//! processors, on a seeded one their order is the seed's.

use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE,
    NDK_CQ_NOTIFY_ANY as ANY, NDK_CQ_NOTIFY_SOLICITED as SOLICITED, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT as SOLICIT,
    NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NtStatus,
};

use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{CqCore, Offer, OnDisconnect, Session},
    fixture::{Pair, Plan, Side, Terms, is_success},
    platform::{Family, Step, Task},
    random::Random,
};

pub const CASES: &[Case] = &[
    Case::new(
        "stress.messages",
        "NDKPI 7.3",
        "Four connections carry two thousand messages each, of random length, beside each other.",
        "Each message arrives once, in order, with its bytes.",
        messages,
    ),
    Case::new(
        "stress.sleeping-consumer",
        "NDKPI 7.1.5",
        "A consumer that only polls in callbacks and arms at their end gets five thousand messages from another processor.",
        "It never sleeps while a message waits: no wake-up is lost between drained and armed.",
        sleeping_consumer,
    ),
    Case::new(
        "stress.sleeping-consumer-solicited",
        "NDKPI 7.1.5",
        "The same with SOLICITED and messages that solicit an event at random, the last of each group always.",
        "No wake-up is lost.",
        sleeping_consumer_solicited,
    ),
    Case::new(
        "stress.arming-from-outside",
        "NDKPI 7.1.2",
        "A consumer arms, polls and polls again outside of callbacks while messages come and callbacks run.",
        "Never more callbacks than arms, never two at a time, and every message is found.",
        arming_from_outside,
    ),
    Case::new(
        "stress.resize-under-load",
        "NDKPI 7.1.11",
        "Resizes a completion queue three hundred times while messages come and a consumer polls.",
        "Every completion comes once, in order.",
        resize_under_load,
    ),
    Case::new(
        "stress.moderation-under-load",
        "NDKPI 7.1.6",
        "Changes the moderation all the time while a consumer that only polls in callbacks gets messages.",
        "No wake-up is lost.",
        moderation_under_load,
    ),
    Case::new(
        "stress.many-producers",
        "NDKPI 7.1.1",
        "Six queue pairs complete on one completion queue from several processors.",
        "Every completion comes once, in the order of its queue.",
        many_producers,
    ),
    //= NDKPI 7.2.5
    Case::new(
        "stress.flush-beside-posts",
        "NDKPI 7.2",
        "Flushes a queue pair again and again while another task posts receives to it.",
        "Every receive that was posted completes once, in order.",
        flush_beside_posts,
    ),
    //= NDKPI 7.2.5
    Case::new(
        "stress.close-beside-posts",
        "NDKPI 7.2",
        "Closes the connector of a queue pair while another task posts to it; a hundred times.",
        "Every request that was posted completes once; everything closes.",
        close_beside_posts,
    ),
    Case::new(
        "stress.connections",
        "NDKPI 7.7",
        "Three tasks make and end eighty connections each, some gracefully, some by closing, some rejected.",
        "Every request comes to its end, and everything closes.",
        connections,
    ),
    Case::new(
        "stress.registrations",
        "NDKPI 7.4",
        "One task writes to a region of the peer while another deregisters and registers it.",
        "A write succeeds or fails, but no byte lands outside of what is registered.",
        registrations,
    ),
];

/// What the tasks of a case share: whether one has failed, and until when they have to be done.
struct Crew<'s> {
    session: &'s Session<'s>,
    failed: AtomicBool,
    deadline: u64,
}

impl<'s> Crew<'s> {
    fn new(session: &'s Session<'s>) -> Check<&'s Self> {
        let platform = session.platform();
        let deadline = platform.now().saturating_add(12 * platform.patience());
        session.keep(Self { session, failed: AtomicBool::new(false), deadline })
    }

    /// A task that does `work` until it says that it is done, fails, or the time is over.
    fn task<'t>(
        &'t self,
        what: &'static str,
        work: impl FnMut() -> Check<Step> + Send + 't,
    ) -> Member<'t, 's, impl FnMut() -> Check<Step> + Send + 't> {
        Member { crew: self, what, work }
    }

    /// Runs tasks and tells how they went.
    fn run(&self, tasks: &mut [&mut dyn Task]) -> Check {
        self.session
            .platform()
            .run(tasks)
            .map_err(|status| Stop::inconclusive(format_args!("no threads for the case: {status}")))
    }
}

struct Member<'t, 's, F> {
    crew: &'t Crew<'s>,
    what: &'static str,
    work: F,
}

impl<F: FnMut() -> Check<Step> + Send> Task for Member<'_, '_, F> {
    fn step(&mut self) -> Step {
        let Self { crew, what, work } = self;
        let platform = crew.session.platform();
        if crew.failed.load(Relaxed) || platform.cancelled() {
            return Step::Done;
        }
        if platform.now() > crew.deadline {
            crew.failed.store(true, Relaxed);
            crew.session.fault(format_args!("{what} does not come to an end"));
            return Step::Done;
        }
        match work() {
            Ok(step) => step,
            Err(Stop::Skipped(_) | Stop::Inconclusive(_)) => {
                crew.failed.store(true, Relaxed);
                Step::Done
            }
            Err(Stop::Failed(seen)) => {
                crew.failed.store(true, Relaxed);
                crew.session.fault(format_args!("{what}: {seen}"));
                Step::Done
            }
        }
    }
}

/// Takes what is in a queue and gives it to `each`.
fn drain(cq: &CqCore<'_>, mut each: impl FnMut(crate::client::Done) -> Check) -> Check<usize> {
    let mut result = Ok(());
    let count = cq.poll_each(8, |done| {
        if result.is_ok() {
            result = each(done);
        }
    })?;
    result?;
    Ok(count)
}

/// Deep enough for a stream of messages.
const fn stream_plan<'s>() -> Plan<'s> {
    let mut plan = Plan::new();
    plan.sizes.receive_depth = 32;
    plan.sizes.initiator_depth = 32;
    plan
}

/// Sends numbered messages as fast as the peer's receives allow. The receiver says how many receives it has posted.
struct Sender<'p, 's> {
    side: &'p Side<'s>,
    posted: &'p AtomicU32,
    total: u32,
    sent: u32,
    done: u32,
    random: Random,
    /// How often, out of a hundred, a message solicits an event; the last one always does.
    solicit: u32,
}

impl Sender<'_, '_> {
    fn step(&mut self) -> Check<Step> {
        let done = &mut self.done;
        let taken = drain(self.side.initiated(), |completion| {
            is_success(&completion, *done as usize)?;
            *done += 1;
            Ok(())
        })?;
        if self.done == self.total {
            return Ok(Step::Done);
        }
        if self.sent < self.total && self.sent - self.done < 32 && self.sent < self.posted.load(Acquire) {
            let length = self.random.below(512);
            let last = self.sent + 1 == self.total || self.sent + 1 == self.posted.load(Acquire);
            let flags = if last || self.random.chance(self.solicit) { SOLICIT } else { 0 };
            self.side.send(self.sent as usize, 0, length, flags)?;
            self.sent += 1;
            return Ok(Step::Worked);
        }
        Ok(if taken > 0 { Step::Worked } else { Step::Waits })
    }
}

const fn sender<'p, 's>(side: &'p Side<'s>, posted: &'p AtomicU32, total: u32, random: Random) -> Sender<'p, 's> {
    Sender { side, posted, total, sent: 0, done: 0, random, solicit: 20 }
}

/// Receives numbered messages by polling.
struct Receiver<'p, 's> {
    side: &'p Side<'s>,
    posted: &'p AtomicU32,
    total: u32,
    received: u32,
}

impl Receiver<'_, '_> {
    fn step(&mut self) -> Check<Step> {
        let received = &mut self.received;
        let count = drain(self.side.receive_cq.core(), |completion| {
            is_success(&completion, *received as usize)?;
            *received += 1;
            Ok(())
        })?;
        if self.received == self.total {
            return Ok(Step::Done);
        }
        let posted = self.posted.load(Relaxed);
        if posted < self.total && posted - self.received < 32 {
            self.side.receive(posted as usize, 4096, 512)?;
            self.posted.store(posted + 1, Release);
            return Ok(Step::Worked);
        }
        Ok(if count > 0 { Step::Worked } else { Step::Waits })
    }
}

fn messages(s: &Session<'_>) -> Verdict {
    const TOTAL: u32 = 2000;
    let crew = Crew::new(s)?;
    let mut random = s.random();
    let plan = stream_plan();
    let posted = [const { AtomicU32::new(0) }; 4];
    // Not on the stack, of which a kernel has little.
    let (mut pairs, mut parts) = (Vec::new(), Vec::new());
    for _ in &posted {
        if pairs.try_reserve(1).is_err() {
            inconclusive!("no memory for the case");
        }
        pairs.push(Pair::with(s, &plan, &plan)?);
    }
    for (pair, posted) in pairs.iter().zip(&posted) {
        if parts.try_reserve(1).is_err() {
            inconclusive!("no memory for the case");
        }
        let receiver = Receiver { side: &pair.b, posted, total: TOTAL, received: 0 };
        parts.push((sender(&pair.a, posted, TOTAL, random.split()), receiver));
    }
    let [first, second, third, fourth] = &mut parts[..] else { fail!("four connections") };
    let mut tasks = [
        crew.task("messages of connection 1", both(first)),
        crew.task("messages of connection 2", both(second)),
        crew.task("messages of connection 3", both(third)),
        crew.task("messages of connection 4", both(fourth)),
    ];
    let [one, two, three, four] = &mut tasks;
    crew.run(&mut [one, two, three, four])?;
    HELD
}

/// A sender and its receiver in turn.
fn both<'t>(parts: &'t mut (Sender<'_, '_>, Receiver<'_, '_>)) -> impl FnMut() -> Check<Step> + Send + 't {
    let mut done = [false; 2];
    move || {
        let mut steps = [Step::Done; 2];
        if !done[0] {
            steps[0] = parts.0.step()?;
        }
        if !done[1] {
            steps[1] = parts.1.step()?;
        }
        done = [steps[0] == Step::Done, steps[1] == Step::Done];
        Ok(match steps {
            [Step::Done, Step::Done] => Step::Done,
            [Step::Worked, _] | [_, Step::Worked] => Step::Worked,
            _ => Step::Waits,
        })
    }
}

/// A consumer that does everything in callbacks: polls to empty, posts receives again, arms.
fn sleeper<'s>(s: &'s Session<'s>, arm: u32, total: u32) -> Check<(Pair<'s>, &'s AtomicU32, &'s AtomicU32)> {
    use crate::client::{Later, QpCore};

    let (posted, received) = (s.keep(AtomicU32::new(0))?, s.keep(AtomicU32::new(0))?);
    let qp: &'s Later<'s, QpCore<'s>> = s.keep(Later::new())?;
    let hook = s.hook(move |cq, _| {
        let Some(qp) = qp.get() else { return Ok(()) };
        loop {
            let count = drain(cq, |done| {
                let number = received.fetch_add(1, Relaxed);
                is_success(&done, number as usize)
            })?;
            for _ in 0..count {
                let number = posted.load(Relaxed);
                if number < total {
                    crate::fixture::posted("NdkReceive", qp.receive(number as usize, &[])?)?;
                    posted.store(number + 1, Release);
                }
            }
            if count == 0 {
                return cq.arm(arm);
            }
        }
    })?;
    let plan = stream_plan();
    let pair = Pair::with(s, &plan, &Plan { on_receive: Some(hook), ..plan })?;
    for number in 0..32 {
        crate::fixture::posted("NdkReceive", pair.b.qp.receive(number, &[])?)?;
    }
    posted.store(32, Release);
    qp.set(pair.b.qp.core());
    pair.b.receive_cq.arm(arm)?;
    Ok((pair, posted, received))
}

/// Sends messages without bytes to a consumer that sleeps.
struct Waker<'p, 's> {
    pair: &'p Pair<'s>,
    posted: &'p AtomicU32,
    total: u32,
    sent: u32,
    done: u32,
    random: Random,
    /// Only the last message that the consumer has receives for solicits an event for certain.
    sparing: bool,
}

impl Waker<'_, '_> {
    fn step(&mut self) -> Check<Step> {
        let done = &mut self.done;
        drain(self.pair.a.initiated(), |completion| {
            is_success(&completion, *done as usize)?;
            *done += 1;
            Ok(())
        })?;
        if self.done == self.total {
            return Ok(Step::Done);
        }
        let posted = self.posted.load(Acquire);
        if self.sent < posted && self.sent - self.done < 32 {
            let last = self.sent + 1 == posted || self.sent + 1 == self.total;
            let flags = if !self.sparing || last || self.random.chance(20) { SOLICIT } else { 0 };
            let status = self.pair.a.qp.send(self.sent as usize, &[], flags)?;
            crate::fixture::posted("NdkSend", status)?;
            self.sent += 1;
            return Ok(Step::Worked);
        }
        Ok(Step::Waits)
    }
}

fn wake(s: &Session<'_>, arm: u32, total: u32) -> Verdict {
    let crew = Crew::new(s)?;
    let (pair, posted, received) = sleeper(s, arm, total)?;
    let mut waker =
        Waker { pair: &pair, posted, total, sent: 0, done: 0, random: s.random(), sparing: arm == SOLICITED };
    crew.run(&mut [&mut crew.task("a consumer that sleeps until it is called", move || waker.step())])?;
    s.wait_for(format_args!("the last of {total} messages to be found by a callback (NDKPI 7.1.5)"), || {
        received.load(Relaxed) == total
    })?;
    HELD
}

fn sleeping_consumer(s: &Session<'_>) -> Verdict {
    wake(s, ANY, 5000)
}

fn sleeping_consumer_solicited(s: &Session<'_>) -> Verdict {
    wake(s, SOLICITED, 5000)
}

fn arming_from_outside(s: &Session<'_>) -> Verdict {
    const TOTAL: u32 = 3000;
    let crew = Crew::new(s)?;
    let mut random = s.random();
    let plan = stream_plan();
    let pair = Pair::with(s, &plan, &plan)?;
    let posted = AtomicU32::new(0);
    let mut sender = sender(&pair.a, &posted, TOTAL, random.split());
    let mut receiver = Receiver { side: &pair.b, posted: &posted, total: TOTAL, received: 0 };
    let cq = pair.b.receive_cq.core();
    let receive = move || {
        match random.below(4) {
            0 => cq.arm(ANY)?,
            1 => cq.arm(SOLICITED)?,
            _ => {}
        }
        receiver.step()
    };
    crew.run(&mut [&mut crew.task("sends", move || sender.step()), &mut crew.task("receives", receive)])?;
    HELD
}

fn resize_under_load(s: &Session<'_>) -> Verdict {
    const TOTAL: u32 = 4000;
    s.need_flag(RESIZE, "CQ_RESIZE_SUPPORTED")?;
    let crew = Crew::new(s)?;
    let mut random = s.random();
    let plan = stream_plan();
    let pair = Pair::with(s, &plan, &plan)?;
    let (posted, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let mut sender = sender(&pair.a, &posted, TOTAL, random.split());
    let mut receiver = Receiver { side: &pair.b, posted: &posted, total: TOTAL, received: 0 };
    let cq = pair.b.receive_cq.core();
    let (mut resizes, mut running) = (0, None);
    let resize = || {
        if let Some(pending) = running {
            let pending: crate::client::Pending<'_> = pending;
            let Some(status) = pending.outcome() else { return Ok(Step::Waits) };
            running = None;
            let refused = status == NtStatus::BUFFER_OVERFLOW;
            ensure!(refused || status == NtStatus::SUCCESS, "NdkResizeCq under load: {status}");
        }
        if resizes == 300 || over.load(Relaxed) {
            return Ok(Step::Done);
        }
        resizes += 1;
        // Never fewer than there can be receives outstanding.
        running = Some(cq.resize(32 + random.below(100))?);
        Ok(Step::Worked)
    };
    let receive = || {
        let step = receiver.step()?;
        over.store(step == Step::Done, Relaxed);
        Ok(step)
    };
    crew.run(&mut [
        &mut crew.task("sends", move || sender.step()),
        &mut crew.task("receives", receive),
        &mut crew.task("resizes", resize),
    ])?;
    HELD
}

fn moderation_under_load(s: &Session<'_>) -> Verdict {
    const TOTAL: u32 = 2000;
    s.need_flag(MODERATION, "CQ_INTERRUPT_MODERATION_SUPPORTED")?;
    let crew = Crew::new(s)?;
    let mut random = s.random();
    let (pair, posted, received) = sleeper(s, ANY, TOTAL)?;
    let mut waker =
        Waker { pair: &pair, posted, total: TOTAL, sent: 0, done: 0, random: random.split(), sparing: false };
    let cq = pair.b.receive_cq.core();
    let moderate = move || {
        if received.load(Relaxed) == TOTAL {
            return Ok(Step::Done);
        }
        let (interval, count) = (random.below(200), random.below(8));
        let status = cq.moderate(interval, count)?;
        ensure_eq!(status, NtStatus::SUCCESS, "moderation {interval}, {count}");
        Ok(Step::Waits)
    };
    crew.run(&mut [
        &mut crew.task("a consumer that sleeps until it is called", move || waker.step()),
        &mut crew.task("moderation", moderate),
    ])?;
    s.wait("the last message to be found by a callback (NDKPI 7.1.6)", || received.load(Relaxed) == TOTAL)?;
    HELD
}

fn many_producers(s: &Session<'_>) -> Verdict {
    const PAIRS: usize = 6;
    const TOTAL: u32 = 800;
    let crew = Crew::new(s)?;
    let plan = stream_plan();
    let cq = s.peer_adapter()?.create_cq(512, None)?;
    let mut pairs = Vec::new();
    for context in 0..PAIRS {
        let (a, mut b) = Pair::apart(s, &plan, &plan)?;
        b.qp = b.pd.core().create_qp(cq.core(), cq.core(), context, plan.sizes)?;
        if pairs.try_reserve(1).is_err() {
            inconclusive!("no memory for the case");
        }
        pairs.push(Pair::join(s, a, b, &Terms::new())?);
    }
    let received = [const { AtomicU32::new(0) }; PAIRS];
    let consume = || {
        let count = drain(cq.core(), |done| {
            ensure!(done.qp < PAIRS, "a completion of a queue pair that there is not: {done:?}");
            let number = received[done.qp].fetch_add(1, Release);
            is_success(&done, number as usize)
        })?;
        if received.iter().all(|received| received.load(Relaxed) == TOTAL) {
            return Ok(Step::Done);
        }
        Ok(if count > 0 { Step::Worked } else { Step::Waits })
    };
    // Each task posts receives and sends for some of the connections; the consumer is one for all.
    let produce = |range: core::ops::Range<usize>| {
        let (pairs, received) = (&pairs, &received);
        let mut sent = [0_u32; PAIRS];
        let mut done = [0_u32; PAIRS];
        move || {
            let mut step = Step::Done;
            for index in range.clone() {
                let count = &mut done[index];
                drain(pairs[index].a.initiated(), |completion| {
                    is_success(&completion, *count as usize)?;
                    *count += 1;
                    Ok(())
                })?;
                if done[index] == TOTAL {
                    continue;
                }
                let outstanding = sent[index] - done[index].min(received[index].load(Acquire));
                if sent[index] < TOTAL && outstanding < 32 {
                    pairs[index].b.receive(sent[index] as usize, 4096, 64)?;
                    pairs[index].a.send(sent[index] as usize, 0, 16, 0)?;
                    sent[index] += 1;
                    step = Step::Worked;
                } else if step == Step::Done {
                    step = Step::Waits;
                }
            }
            Ok(step)
        }
    };
    crew.run(&mut [
        &mut crew.task("producers 1 to 3", produce(0..3)),
        &mut crew.task("producers 4 to 6", produce(3..6)),
        &mut crew.task("the consumer", consume),
    ])?;
    HELD
}

fn flush_beside_posts(s: &Session<'_>) -> Verdict {
    const TOTAL: u32 = 3000;
    let crew = Crew::new(s)?;
    let plan = stream_plan();
    let pair = Pair::with(s, &plan, &plan)?;
    let over = AtomicBool::new(false);
    let (mut posted, mut taken) = (0_u32, 0_u32);
    let post = || {
        drain(pair.b.receive_cq.core(), |done| {
            ensure!(
                done.request == taken as usize && done.status == NtStatus::CANCELLED,
                "flushed receive {taken} completed as {done:?}"
            );
            taken += 1;
            Ok(())
        })?;
        if taken == TOTAL {
            over.store(true, Relaxed);
            return Ok(Step::Done);
        }
        if posted < TOTAL && posted - taken < 32 {
            pair.b.receive(posted as usize, 0, 64)?;
            posted += 1;
            return Ok(Step::Worked);
        }
        Ok(Step::Waits)
    };
    let flush = || {
        pair.b.qp.flush()?;
        Ok(if over.load(Relaxed) { Step::Done } else { Step::Waits })
    };
    crew.run(&mut [&mut crew.task("posts", post), &mut crew.task("flushes", flush)])?;
    pair.b.receive_cq.stays_empty()?;
    HELD
}

fn close_beside_posts(s: &Session<'_>) -> Verdict {
    let mut random = s.random();
    for _ in 0..100 {
        let crew = Crew::new(s)?;
        let Pair { link, a, b } = Pair::new(s)?;
        let (closed, mut connector) = (AtomicBool::new(false), Some(link.a));
        let delay = random.below(20);
        let (mut posted, mut refused, mut waited) = (0_u32, 0, 0);
        let post = || {
            if posted == 16 || refused > 3 {
                return Ok(Step::Done);
            }
            let status =
                a.qp.send(posted as usize, &[a.region.element(0, 16)], if posted % 3 == 0 { SILENT } else { 0 })?;
            if status.is_success() {
                posted += 1;
            } else {
                refused += 1;
            }
            Ok(Step::Worked)
        };
        let close = || {
            waited += 1;
            if waited < delay {
                return Ok(Step::Worked);
            }
            if let Some(connector) = connector.take() {
                let _ = connector.start_close()?;
                closed.store(true, Relaxed);
            }
            Ok(Step::Done)
        };
        crew.run(&mut [&mut crew.task("posts", post), &mut crew.task("the close", close)])?;
        link.b.close()?;
        a.qp.flush()?;
        // There were no receives, so nothing can have succeeded: silent or not, each one completes.
        for (number, done) in a.initiated().take(posted as usize)?.iter().enumerate() {
            ensure!(
                done.request == number && !done.status.is_success(),
                "send {number} of a connection that was closed completed as {done:?}"
            );
        }
        a.qp.close()?;
        b.qp.close()?;
    }
    HELD
}

/// One connection: made, used or not, and ended in one of several ways.
fn one_connection(s: &Session<'_>, random: &mut Random) -> Check {
    // What is opened here is closed here, and waited for at the end of the session.
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let (listener, address) = crate::fixture::listen(s, Family::V4)?;
    let adapter = s.adapter()?;
    let active = adapter.create_connector()?;
    let from = s.address(adapter.number(), Family::V4, 0)?;
    let offer = Offer { inbound: 4, outbound: 4, data: &[] };
    let connecting = active.core().connect(a.qp.core(), from, address, &offer)?;
    let passive = listener.take()?;
    match random.below(5) {
        0 => {
            let _ = passive.reject(b"no")?;
            connecting.ends_with(NtStatus::CONNECTION_REFUSED)
        }
        1 => {
            passive.close()?;
            connecting.ends_with(NtStatus::CONNECTION_REFUSED)
        }
        how => {
            let accepting = passive.core().accept(b.qp.core(), &offer, OnDisconnect::Count)?;
            connecting.succeeds()?;
            active.core().complete_connect(OnDisconnect::Count)?.succeeds()?;
            accepting.succeeds()?;
            b.receive(1, 0, 64)?;
            a.send(1, 0, 16, 0)?;
            b.receive_done(1)?;
            match how {
                2 => active.core().disconnect()?.succeeds(),
                3 => passive.core().disconnect()?.succeeds(),
                _ => active.close().map(|_| ()),
            }
        }
    }
}

fn connections(s: &Session<'_>) -> Verdict {
    const EACH: u32 = 80;
    let crew = Crew::new(s)?;
    let mut random = s.random();
    let mut work = |count: u32| {
        let mut random = random.split();
        let mut made = 0;
        move || {
            one_connection(s, &mut random)?;
            made += 1;
            Ok(if made == count { Step::Done } else { Step::Worked })
        }
    };
    let tasks = (work(EACH), work(EACH), work(EACH));
    crew.run(&mut [
        &mut crew.task("connections 1", tasks.0),
        &mut crew.task("connections 2", tasks.1),
        &mut crew.task("connections 3", tasks.2),
    ])?;
    HELD
}

fn registrations(s: &Session<'_>) -> Verdict {
    use crate::client::{ALL_RIGHTS, Buffer, PAGE, Remote};

    for round in 0..30_u8 {
        let crew = Crew::new(s)?;
        let pair = Pair::new(s)?;
        let buffer = Buffer::new(s, 3 * PAGE)?;
        buffer.fill(0, 3 * PAGE, 0xEE)?;
        let mr = pair.b.pd.core().create_mr(false)?;
        mr.core().register(buffer, PAGE, ALL_RIGHTS)?.succeeds()?;
        let token = AtomicU32::new(mr.remote_token()?);
        let over = AtomicBool::new(false);
        pair.a.region.buffer.fill(0, PAGE, round)?;
        let (mut writes, mut outstanding) = (0, false);
        let write = || {
            if outstanding {
                let Some(done) = pair.a.initiated().poll(1)?.first().copied() else { return Ok(Step::Waits) };
                outstanding = false;
                if !done.status.is_success() {
                    over.store(true, Relaxed);
                }
            }
            if writes == 50 || over.load(Relaxed) {
                over.store(true, Relaxed);
                return Ok(Step::Done);
            }
            writes += 1;
            let remote = Remote { address: buffer.address(0), token: token.load(Acquire) };
            let status = pair.a.qp.write(1, &[pair.a.region.element(0, PAGE as u32)], remote, 0)?;
            outstanding = status.is_success();
            Ok(Step::Worked)
        };
        let mut pending: Option<(crate::client::Pending<'_>, bool)> = None;
        let register = || {
            if let Some((request, registers)) = pending {
                let Some(status) = request.outcome() else { return Ok(Step::Waits) };
                ensure_eq!(status, NtStatus::SUCCESS, "registration beside writes");
                if registers {
                    token.store(mr.remote_token()?, Release);
                }
                pending = if registers { None } else { Some((mr.core().register(buffer, PAGE, ALL_RIGHTS)?, true)) };
                return Ok(Step::Worked);
            }
            if over.load(Relaxed) {
                return Ok(Step::Done);
            }
            pending = Some((mr.core().deregister()?, false));
            Ok(Step::Worked)
        };
        crew.run(&mut [&mut crew.task("writes", write), &mut crew.task("registrations", register)])?;
        s.settle();
        buffer.is_filled(PAGE, 2 * PAGE, 0xEE)?;
    }
    HELD
}
