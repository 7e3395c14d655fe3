//! The soak test: random traffic on concurrent connections, which are used and ended in every way.
//!
//! Each request moves a pattern of its own, and every byte that arrives is compared. An episode is one connection: a few
//! operations, then one of the ways to end. Every posted request is followed to its completion, so an episode that returns has
//! left nothing in the queues.

use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use ndkpi::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED as MODERATION, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED as RESIZE,
    NDK_CQ_NOTIFY_ANY as ANY, NDK_CQ_NOTIFY_ERRORS as ERRORS, NDK_OP_FLAG_ALLOW_REMOTE_READ as REMOTE_READ,
    NDK_OP_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE, NDK_OP_FLAG_DEFER as DEFER,
    NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT as SOLICIT, NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NtStatus,
};

use crate::{
    case::{Check, HELD, Stop, Verdict},
    cases::Fast,
    client::{Remote, Session},
    fixture::{Pair, Plan, Side, is_done, is_success, posted},
    platform::{Step, Task},
    random::Random,
};

/// Counts of what was done, for people to read.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; Counted::NAMES.len()]);

/// The kinds of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Connections made.
    Connections,
    /// Messages sent and received.
    Messages,
    /// Remote writes.
    Writes,
    /// Remote reads.
    Reads,
    /// Bytes that moved and were compared.
    Bytes,
    /// Regions fast-registered, used and invalidated.
    FastRegistrations,
    /// Windows bound, used and invalidated.
    Windows,
    /// Completion queues resized.
    Resizes,
    /// Completion queues moderated.
    Moderations,
    /// Notification callbacks waited for.
    Callbacks,
    /// Completion queues overrun.
    Overruns,
    /// Connections ended by a graceful disconnect.
    Disconnects,
    /// Connections ended by closing their connector.
    Closes,
    /// Requests that had to fail.
    Failures,
    /// Requests that were flushed.
    Flushed,
}

impl Counted {
    /// The names, in the order of the values.
    pub const NAMES: [&'static str; 15] = [
        "connections",
        "messages",
        "writes",
        "reads",
        "bytes",
        "fast registrations",
        "windows",
        "resizes",
        "moderations",
        "callbacks",
        "overruns",
        "disconnects",
        "closes",
        "failures",
        "flushed",
    ];
}

impl Counts {
    fn add(&self, what: Counted, count: u64) {
        self.0[what as usize].fetch_add(count, Relaxed);
    }

    /// Each count with its name.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Counted::NAMES.into_iter().zip(self.0.iter().map(|count| count.load(Relaxed)))
    }
}

/// One round: `workers` tasks carry out `episodes` episodes each.
///
/// # Errors
///
/// The first failure, which ends the round.
pub fn round(session: &Session<'_>, counts: &Counts, workers: u32, episodes: u32) -> Verdict {
    let (mut random, failed) = (session.random(), AtomicBool::new(false));
    let mut tasks = Vec::new();
    let no_memory = |_| Stop::inconclusive(format_args!("no memory for the tasks"));
    tasks.try_reserve_exact(workers as usize).map_err(no_memory)?;
    for _ in 0..workers {
        tasks.push(Worker { session, counts, failed: &failed, random: random.split(), left: episodes, seen: Ok(()) });
    }
    let mut refs: Vec<&mut dyn Task> = Vec::new();
    refs.try_reserve_exact(tasks.len()).map_err(no_memory)?;
    refs.extend(tasks.iter_mut().map(|task| -> &mut dyn Task { task }));
    let run = session.platform().run(&mut refs);
    run.map_err(|status| Stop::inconclusive(format_args!("no threads for the tasks: {status}")))?;
    for task in tasks {
        task.seen?;
    }
    HELD
}

struct Worker<'w, 's> {
    session: &'s Session<'s>,
    counts: &'w Counts,
    /// One of the workers has failed.
    failed: &'w AtomicBool,
    random: Random,
    left: u32,
    seen: Check,
}

impl Task for Worker<'_, '_> {
    fn step(&mut self) -> Step {
        if self.left == 0 || self.failed.load(Acquire) || self.session.platform().cancelled() {
            return Step::Done;
        }
        self.left -= 1;
        self.seen = Episode { session: self.session, counts: self.counts, random: &mut self.random }.run();
        if self.seen.is_err() {
            self.failed.swap(true, AcqRel);
            return Step::Done;
        }
        Step::Worked
    }
}

/// The maximum size of a request, and its place in a region: sends use the lower half of a region, receives the upper half.
const SLOT: u32 = 512;
const SLOTS: u32 = 8;
const UPPER: u32 = SLOT * SLOTS;

/// The offset of a slot's bytes, as the client counts them.
const fn at(offset: u32) -> isize {
    offset as isize
}

struct Episode<'e, 's> {
    session: &'s Session<'s>,
    counts: &'e Counts,
    random: &'e mut Random,
}

impl<'s> Episode<'_, 's> {
    fn run(mut self) -> Check {
        if self.random.chance(5) {
            return self.overrun();
        }
        let plan = Plan { one_cq: self.random.chance(25), ..Plan::new() };
        let pair = Pair::with(self.session, &plan, &plan)?;
        self.counts.add(Counted::Connections, 1);
        for _ in 0..=self.random.below(16) {
            let sides = if self.random.chance(50) { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
            match self.random.below(10) {
                0..=2 => self.messages(sides)?,
                3 | 4 => self.write(sides)?,
                5 => self.read(sides)?,
                6 => self.fast_registration(sides)?,
                7 => self.window(sides)?,
                8 => self.resize(sides.0)?,
                _ => self.callback(sides)?,
            }
        }
        match self.random.below(5) {
            0 => self.disconnect(&pair),
            1 => self.close(pair),
            2 => self.bad_token(&pair),
            3 => self.flush(&pair.b),
            _ => Ok(()),
        }
    }

    fn seed(&mut self) -> u8 {
        self.random.draw().to_le_bytes()[0]
    }

    fn length(&mut self) -> u32 {
        1 + self.random.below(SLOT)
    }

    /// A batch of messages. Any may be silent, deferred or solicit an event, but the last one has a completion.
    fn messages(&mut self, (from, to): (&Side<'s>, &Side<'s>)) -> Check {
        let count = 1 + self.random.below(SLOTS);
        let mut sent = [(0, 0); SLOTS as usize];
        for (number, (length, seed)) in (0..count).zip(&mut sent) {
            (*length, *seed) = (self.length(), self.seed());
            from.region.buffer.fill_pattern((number * SLOT) as usize, *length as usize, *seed)?;
            to.receive(number as usize, at(UPPER + number * SLOT), SLOT)?;
        }
        let mut signalled = Vec::new();
        signalled.try_reserve(count as usize).map_err(|_| Stop::inconclusive(format_args!("no memory for a batch")))?;
        for (number, (length, _)) in (0..count).zip(&sent) {
            let last = number + 1 == count;
            let flag = |flag, chosen| if chosen { flag } else { 0 };
            let silent = !last && self.random.chance(40);
            let flags = flag(SILENT, silent)
                | flag(DEFER, !last && self.random.chance(30))
                | flag(SOLICIT, self.random.chance(30));
            from.send(number as usize, at(number * SLOT), *length, flags)?;
            if !silent {
                signalled.push(number as usize);
            }
        }
        for (done, context) in from.initiated().take(signalled.len())?.iter().zip(signalled) {
            is_success(done, context)?;
        }
        for ((number, done), (length, seed)) in to.receive_cq.take(count as usize)?.iter().enumerate().zip(&sent) {
            is_success(done, number)?;
            ensure_eq!(done.bytes, *length, "bytes of message {number}");
            to.region.buffer.has_pattern(UPPER as usize + number * SLOT as usize, *length as usize, *seed)?;
            self.counts.add(Counted::Bytes, u64::from(*length));
        }
        self.counts.add(Counted::Messages, u64::from(count));
        Ok(())
    }

    /// Writes a pattern to `remote`, which is `offset` in the peer's bytes.
    fn write_to(&mut self, (from, to): (&Side<'s>, &Side<'s>), remote: Remote, offset: u32) -> Check {
        let (length, seed) = (self.length(), self.seed());
        from.region.buffer.fill_pattern(0, length as usize, seed)?;
        from.write(7, 0, length, remote, 0)?;
        from.initiator_done(7)?;
        to.region.buffer.has_pattern(offset as usize, length as usize, seed)?;
        self.counts.add(Counted::Bytes, u64::from(length));
        Ok(())
    }

    fn write(&mut self, sides: (&Side<'s>, &Side<'s>)) -> Check {
        let offset = UPPER + SLOT * self.random.below(SLOTS);
        self.counts.add(Counted::Writes, 1);
        self.write_to(sides, sides.1.remote(at(offset)), offset)
    }

    fn read(&mut self, (from, to): (&Side<'s>, &Side<'s>)) -> Check {
        let (length, seed) = (self.length(), self.seed());
        to.region.buffer.fill_pattern(0, length as usize, seed)?;
        from.read(8, at(UPPER), length, to.remote(0), 0)?;
        from.initiator_done(8)?;
        from.region.buffer.has_pattern(UPPER as usize, length as usize, seed)?;
        self.counts.add(Counted::Reads, 1);
        self.counts.add(Counted::Bytes, u64::from(length));
        Ok(())
    }

    fn fast_registration(&mut self, (from, to): (&Side<'s>, &Side<'s>)) -> Check {
        let fast = Fast::new(to.pd.core(), 2, true)?;
        for _ in 0..=self.random.below(3) {
            fast.register_whole(to, REMOTE_READ | REMOTE_WRITE)?;
            let (length, seed) = (self.length(), self.seed());
            from.region.buffer.fill_pattern(0, length as usize, seed)?;
            // Across the two pages.
            from.write(9, 0, length, fast.remote(4096 - 256)?, 0)?;
            from.initiator_done(9)?;
            fast.mapped.buffer.has_pattern(4096 - 256, length as usize, seed)?;
            fast.invalidate(to)?;
            self.counts.add(Counted::FastRegistrations, 1);
            self.counts.add(Counted::Bytes, u64::from(length));
        }
        Ok(())
    }

    fn window(&mut self, (from, to): (&Side<'s>, &Side<'s>)) -> Check {
        let window = to.pd.core().create_mw()?;
        let (mr, address) = (to.region.mr.core(), to.region.address(at(UPPER)));
        let bound = to.qp.bind(10, mr, window.core(), address, SLOT as usize, REMOTE_READ | REMOTE_WRITE)?;
        posted("NdkBind", bound)?;
        to.initiator_done(10)?;
        let remote = Remote { address, token: window.core().remote_token()? };
        self.write_to((from, to), remote, UPPER)?;
        posted("NdkInvalidate", to.qp.invalidate_mw(11, window.core(), 0)?)?;
        to.initiator_done(11)?;
        self.counts.add(Counted::Windows, 1);
        Ok(())
    }

    fn resize(&mut self, side: &Side<'s>) -> Check {
        if !side.pd.core().adapter().has(RESIZE) {
            return Ok(());
        }
        // Never below what one batch needs.
        side.receive_cq.core().resize(32 + self.random.below(256))?.succeeds()?;
        self.counts.add(Counted::Resizes, 1);
        Ok(())
    }

    /// An arm, a message and the callback; sometimes with moderation.
    fn callback(&mut self, (from, to): (&Side<'s>, &Side<'s>)) -> Check {
        let cq = to.receive_cq.core();
        let moderated = to.pd.core().adapter().has(MODERATION) && self.random.chance(50);
        if moderated {
            // The count is never reached, so the interval ends the wait.
            ensure_eq!(
                cq.moderate(1 + self.random.below(2000), 2)?,
                NtStatus::SUCCESS,
                "NdkControlCqInterruptModeration"
            );
            self.counts.add(Counted::Moderations, 1);
        }
        let before = cq.callbacks();
        cq.arm(ANY)?;
        to.receive(12, at(UPPER), SLOT)?;
        from.send(13, 0, 16, 0)?;
        cq.wait_callbacks(before + 1)?;
        from.initiator_done(13)?;
        to.receive_done(12)?;
        if moderated {
            ensure_eq!(cq.moderate(0, 0)?, NtStatus::SUCCESS, "NdkControlCqInterruptModeration");
        }
        self.counts.add(Counted::Callbacks, 1);
        Ok(())
    }

    /// Posts receives that nobody will fill. Returns how many.
    fn idle_receives(&mut self, side: &Side<'s>) -> Check<u32> {
        let count = 1 + self.random.below(SLOTS);
        for number in 0..count {
            side.receive(number as usize, at(UPPER + number * SLOT), SLOT)?;
        }
        Ok(count)
    }

    /// Checks that all of them were flushed, in order.
    fn are_flushed(&self, side: &Side<'s>, count: u32) -> Check {
        for (number, done) in side.receive_cq.take(count as usize)?.iter().enumerate() {
            is_done(done, number, NtStatus::CANCELLED)?;
        }
        self.counts.add(Counted::Flushed, u64::from(count));
        Ok(())
    }

    fn flush(&mut self, side: &Side<'s>) -> Check {
        let count = self.idle_receives(side)?;
        side.qp.flush()?;
        self.are_flushed(side, count)
    }

    fn disconnect(&mut self, pair: &Pair<'s>) -> Check {
        let (own, others) = (self.idle_receives(&pair.a)?, self.idle_receives(&pair.b)?);
        pair.link.a.core().disconnect()?.succeeds()?;
        self.are_flushed(&pair.a, own)?;
        pair.link.b.core().wait_disconnect()?;
        ensure!(pair.b.receive_cq.poll(1)?.is_empty(), "an incoming disconnect flushes nothing (NDKPI 7.2)");
        pair.b.qp.flush()?;
        self.are_flushed(&pair.b, others)?;
        self.counts.add(Counted::Disconnects, 1);
        Ok(())
    }

    fn close(&mut self, pair: Pair<'s>) -> Check {
        let Pair { link, a, b } = pair;
        let (own, others) = (self.idle_receives(&a)?, self.idle_receives(&b)?);
        link.a.close()?;
        link.b.core().wait_disconnect()?;
        for (side, count) in [(&a, own), (&b, others)] {
            side.qp.flush()?;
            self.are_flushed(side, count)?;
        }
        self.counts.add(Counted::Closes, 1);
        Ok(())
    }

    /// A write with an invalid token fails and moves nothing. The connection is not used afterwards.
    fn bad_token(&mut self, pair: &Pair<'s>) -> Check {
        let seed = self.seed();
        pair.b.region.buffer.fill_pattern(UPPER as usize, SLOT as usize, seed)?;
        let remote = pair.b.remote(at(UPPER));
        pair.a.write(14, 0, SLOT, Remote { token: remote.token ^ 0x5A5A_5A00, ..remote }, 0)?;
        let done = pair.a.initiated().take_one()?;
        ensure!(!done.status.is_success() && done.request == 14, "a write with a wrong token: {done:?}");
        pair.b.region.buffer.has_pattern(UPPER as usize, SLOT as usize, seed)?;
        self.counts.add(Counted::Failures, 1);
        Ok(())
    }

    /// More completions than a queue holds.
    fn overrun(&self) -> Check {
        let pair = Pair::with(self.session, &Plan::new(), &Plan { depths: [2, 16], ..Plan::new() })?;
        let cq = pair.b.receive_cq.core();
        cq.arm(ERRORS)?;
        for number in 0..2 {
            pair.deliver(number, false)?;
        }
        pair.start_delivery(3, false)?;
        cq.wait_callbacks(1)?;
        ensure_eq!(cq.error(), NtStatus::BUFFER_OVERFLOW, "status of the callback of an overrun");
        self.counts.add(Counted::Connections, 1);
        self.counts.add(Counted::Overruns, 1);
        Ok(())
    }
}
