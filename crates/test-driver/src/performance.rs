//! The performance run: latency, rate and bandwidth, through the dispatch tables, from one thread at `PASSIVE_LEVEL` that is
//! both sides of a connection of the adapter with itself.
//!
//! What is measured is a consumer that looks at everything: the suite's client checks each call and each result. Times come
//! from the interrupt-time clock, in units of 100 nanoseconds. Besides, there is what spin locks cost ([`locks`]).

use core::cell::Cell;

use conformance::{
    Check, HELD, Stop,
    client::{CqCore, Options, Session},
    fixture::{Pair, Plan, is_success},
    text::Text,
};
use control::report::{FAILED, Line};
use ndkpi::{NDK_CQ_NOTIFY_ANY, NDK_RESULT_EX};

use crate::{
    histogram::Histogram,
    locks,
    platform::{KernelPlatform, now, ticks},
    run::Run,
};

/// Bytes of a small message.
const SMALL: u32 = 64;
/// Bytes of a large one.
const LARGE: u32 = 64 << 10;
/// Requests on their way at a time where that matters.
const WINDOW: u32 = 16;
/// Rounds between two looks at the clock and at whether somebody wants the run to end.
const ROUNDS: u32 = 32;

/// Measures until the time is over, and says what it has seen.
type Measure = for<'s> fn(&'s Session<'s>, &Until<'_>) -> Check<Text>;

const MEASURES: [(&str, Measure); 6] = [
    ("round-trip.polled", |session, until| round_trips(session, until, false)),
    ("round-trip.notified", |session, until| round_trips(session, until, true)),
    ("rate.sends", sends),
    ("bandwidth.writes", writes),
    ("lock.alone", |session, until| locks::measure(session.platform(), until, 1)),
    ("lock.contended", |session, until| locks::measure(session.platform(), until, locks::THREADS)),
];

/// When a measurement ends.
pub struct Until<'run> {
    run: &'run Run,
    end: u64,
}

impl Until<'_> {
    /// Returns true if it has to end at once.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.run.is_cancelled()
    }

    /// Returns true if it has had its time, or has to end at once.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_cancelled() || now() >= self.end
    }
}

/// Carries out a run: each measurement for its share of the time.
pub fn run(run: &Run, platform: &KernelPlatform<'_>) {
    let count = u32::try_from(MEASURES.len()).unwrap_or(u32::MAX);
    run.expect(count);
    let share = u64::from(run.start().seconds) * 1_000_000 / u64::from(count);
    for (name, measure) in MEASURES {
        if run.is_cancelled() {
            return run.say(format_args!("ended before everything was measured"));
        }
        let began = now();
        let until = Until { run, end: began + share };
        let options = Options { name, version: platform.version(), seed: run.start().seed, hostile: false };
        let mut shown = Text::default();
        let verdict = Session::with(platform, &options, |session| {
            shown = measure(session, &until)?;
            HELD
        });
        let (outcome, text) = match &verdict {
            Ok(_) => ("measured", &shown),
            Err(Stop::Failed(text)) => (FAILED, text),
            Err(Stop::Skipped(text)) => ("skipped", text),
        };
        run.step(&Line { name, outcome, micros: now() - began, text: text.as_str() });
    }
}

/// Waits for as many completions of a queue, all of them successes with this context.
fn await_done(session: &Session<'_>, cq: &CqCore<'_>, context: usize, count: u32) -> Check {
    let left = Cell::new(count as usize);
    let outcome = Cell::new(Ok(()));
    session.wait("completions", || {
        let mut results = [NDK_RESULT_EX::ZEROED; WINDOW as usize];
        let most = left.get().min(results.len());
        let mut found = Ok(());
        let seen = cq.poll_with(&mut results[..most], |done| {
            if found.is_ok() {
                found = is_success(&done, context);
            }
        });
        match (seen, found) {
            (Ok(seen), Ok(())) => left.set(left.get() - seen.min(left.get())),
            (Err(stop), _) | (_, Err(stop)) => {
                outcome.set(Err(stop));
                left.set(0);
            }
        }
        left.get() == 0
    })?;
    outcome.into_inner()
}

/// Per second, of so many in so many microseconds.
fn per_second(count: u64, micros: u64) -> u64 {
    count.saturating_mul(1_000_000) / micros.max(1)
}

/// A message to and fro, again and again. The receiver polls, or arms its queue and waits for the callback.
fn round_trips<'s>(session: &'s Session<'s>, until: &Until<'_>, notified: bool) -> Check<Text> {
    const RECEIVE: usize = 1;
    const SEND: usize = 2;
    let pair = Pair::new(session)?;
    let mut times = Histogram::try_new().map_err(|_| Stop::skipped(format_args!("no memory")))?;
    let began = now();
    while !until.is_over() {
        for _ in 0..ROUNDS {
            let sides = [(&pair.a, &pair.b), (&pair.b, &pair.a)];
            for (_, to) in sides {
                to.receive(RECEIVE, 0, SMALL)?;
            }
            let start = ticks();
            for (from, to) in sides {
                let cq = to.receive_cq.core();
                let callbacks = cq.callbacks();
                if notified {
                    cq.arm(NDK_CQ_NOTIFY_ANY)?;
                }
                from.send(SEND, 0, SMALL, 0)?;
                if notified {
                    session.wait("a callback", || cq.callbacks() != callbacks)?;
                }
                await_done(session, cq, RECEIVE, 1)?;
            }
            times.record(ticks() - start);
            for (from, _) in sides {
                await_done(session, from.initiated(), SEND, 1)?;
            }
        }
    }
    let rate = per_second(times.total(), now() - began);
    // Ten ticks are a microsecond.
    let shown = [500, 990, 999].map(|per_mille| times.percentile(per_mille));
    let [(p50, p50_tenth), (p99, p99_tenth), (p999, p999_tenth)] = shown.map(|ticks| (ticks / 10, ticks % 10));
    let (most, most_tenth) = (times.largest() / 10, times.largest() % 10);
    Ok(Text::new(format_args!(
        "{} round trips of {SMALL} bytes, {rate} per second; p50 {p50}.{p50_tenth} us, p99 {p99}.{p99_tenth} us, \
         p99.9 {p999}.{p999_tenth} us, max {most}.{most_tenth} us",
        times.total()
    )))
}

/// Small messages in one direction.
fn sends<'s>(session: &'s Session<'s>, until: &Until<'_>) -> Check<Text> {
    let pair = Pair::new(session)?;
    let (began, mut count) = (now(), 0);
    while !until.is_over() {
        for _ in 0..ROUNDS {
            for _ in 0..WINDOW {
                pair.b.receive(1, 0, SMALL)?;
            }
            for _ in 0..WINDOW {
                pair.a.send(2, 0, SMALL, 0)?;
            }
            await_done(session, pair.b.receive_cq.core(), 1, WINDOW)?;
            await_done(session, pair.a.initiated(), 2, WINDOW)?;
            count += u64::from(WINDOW);
        }
    }
    let rate = per_second(count, now() - began);
    Ok(Text::new(format_args!("{count} messages of {SMALL} bytes, {rate} per second")))
}

/// Large writes into the peer's memory.
fn writes<'s>(session: &'s Session<'s>, until: &Until<'_>) -> Check<Text> {
    let plan = Plan { bytes: LARGE as usize, ..Plan::new() };
    let pair = Pair::with(session, &plan, &plan)?;
    let (began, mut count) = (now(), 0);
    while !until.is_over() {
        for _ in 0..ROUNDS {
            for _ in 0..WINDOW {
                pair.a.write(3, 0, LARGE, pair.b.remote(0), 0)?;
            }
            await_done(session, pair.a.initiated(), 3, WINDOW)?;
            count += u64::from(WINDOW);
        }
    }
    let mebibytes = per_second(count * u64::from(LARGE), now() - began) >> 20;
    Ok(Text::new(format_args!("{count} writes of {} KiB, {mebibytes} MiB per second", LARGE >> 10)))
}
