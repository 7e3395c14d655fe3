//! The performance run: latency, rate and bandwidth, through the dispatch tables, from one thread at `PASSIVE_LEVEL` that is
//! both sides of a connection of the adapter with itself.
//!
//! Times come from the interrupt-time clock, in units of 100 nanoseconds. Besides, there is what spin locks cost ([`locks`]).

use alloc::vec::Vec;

use conformance::{
    Check, Stop,
    platform::{Family, Platform},
    text::Text,
};
use control::report::{FAILED, Line};
use fallible::Arc;
use ndk::NtStatus;

use crate::{
    adapter::Adapter,
    histogram::Histogram,
    locks,
    peers::{Peers, WINDOW},
    platform::{self, KernelPlatform, now, ticks},
    run::Run,
};

/// Bytes of a small message.
const SMALL: u32 = 64;
/// Bytes of a large one.
const LARGE: u32 = 64 << 10;
/// Rounds between two looks at the clock and at whether somebody wants the run to end.
const ROUNDS: u32 = 32;

/// Measures until the time is over, and says what it has seen.
type Measure = fn(&Setup<'_>, &Until<'_>) -> Check<Text>;

const MEASURES: [(&str, Measure); 6] = [
    ("round-trip.polled", |setup, until| round_trips(setup, until, false)),
    ("round-trip.notified", |setup, until| round_trips(setup, until, true)),
    ("rate.sends", sends),
    ("bandwidth.writes", writes),
    ("lock.alone", |setup, until| locks::measure(setup.platform, until, 1)),
    ("lock.contended", |setup, until| locks::measure(setup.platform, until, locks::THREADS)),
];

/// What a measurement is made with.
struct Setup<'run> {
    adapters: &'run Arc<Vec<Adapter>>,
    platform: &'run KernelPlatform<'run>,
}

impl Setup<'_> {
    /// Opens the first adapter for one measurement.
    fn open(&self) -> Check<ndk::Adapter> {
        Adapter::open_to_consume(self.adapters, self.platform.version())
            .map_err(|status| Stop::status("the adapter cannot be opened", status))
    }

    /// Connects the adapter with itself.
    fn connect(&self, adapter: &ndk::Adapter, size: u32, notified: bool) -> Check<Peers> {
        let at = [Family::V4, Family::V6].into_iter().find_map(|family| self.platform.address(0, family));
        let at = at.ok_or_else(|| Stop::skipped(format_args!("the adapter has no address")))?;
        Peers::connect(adapter, (at, 0).into(), size, notified).map_err(|status| Stop::status("no connection", status))
    }
}

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

    /// Waits a moment for something that is waited for since `began`, in microseconds of interrupt time.
    ///
    /// # Errors
    ///
    /// `STATUS_CANCELLED` if the run has to end; `STATUS_IO_TIMEOUT` after [`platform::PATIENCE`].
    pub fn pause(&self, began: u64) -> Result<(), NtStatus> {
        let waited = now() - began;
        if self.is_cancelled() {
            return Err(NtStatus::CANCELLED);
        }
        if waited >= platform::PATIENCE {
            return Err(NtStatus::IO_TIMEOUT);
        }
        platform::pause(waited);
        Ok(())
    }
}

/// Carries out a run: each measurement for its share of the time.
pub fn run(run: &Run, adapters: &Arc<Vec<Adapter>>, platform: &KernelPlatform<'_>) {
    let count = u32::try_from(MEASURES.len()).unwrap_or(u32::MAX);
    run.expect(count);
    let share = u64::from(run.start().seconds) * 1_000_000 / u64::from(count);
    let setup = Setup { adapters, platform };
    for (name, measure) in MEASURES {
        if run.is_cancelled() {
            return run.say(format_args!("ended before everything was measured"));
        }
        let began = now();
        let until = Until { run, end: began + share };
        let shown = measure(&setup, &until);
        let (outcome, text) = match &shown {
            Ok(text) => ("measured", text),
            // What fails when the run has to end was not the provider's fault.
            Err(Stop::Failed(text) | Stop::Inconclusive(text)) if !run.is_cancelled() => (FAILED, text),
            Err(Stop::Failed(text) | Stop::Skipped(text) | Stop::Inconclusive(text)) => ("skipped", text),
        };
        run.step(&Line { name, outcome, micros: now() - began, text: text.as_str() });
    }
}

/// Per second, of so many in so many microseconds.
fn per_second(count: u64, micros: u64) -> u64 {
    count.saturating_mul(1_000_000) / micros.max(1)
}

fn failed(status: NtStatus) -> Stop {
    Stop::status("the provider", status)
}

/// A message to and fro, again and again. The receiver polls, or is told by the callback of its queue.
fn round_trips(setup: &Setup<'_>, until: &Until<'_>, notified: bool) -> Check<Text> {
    let adapter = setup.open()?;
    let mut peers = setup.connect(&adapter, SMALL, notified)?;
    let mut times = Histogram::try_new().map_err(|_| Stop::skipped(format_args!("no memory")))?;
    let began = now();
    while !until.is_over() {
        for _ in 0..ROUNDS {
            times.record(round_trip(&mut peers, until).map_err(failed)?);
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

/// One round trip: the units of 100 nanoseconds that it took.
fn round_trip(peers: &mut Peers, until: &Until<'_>) -> Result<u64, NtStatus> {
    let Peers { a, b, .. } = peers;
    a.receive()?;
    b.receive()?;
    let start = ticks();
    a.send()?;
    b.await_messages(1, until)?;
    b.send()?;
    a.await_messages(1, until)?;
    let took = ticks() - start;
    a.await_requests(1, until)?;
    b.await_requests(1, until)?;
    Ok(took)
}

/// Small messages in one direction.
fn sends(setup: &Setup<'_>, until: &Until<'_>) -> Check<Text> {
    let adapter = setup.open()?;
    let Peers { a, b, .. } = &mut setup.connect(&adapter, SMALL, false)?;
    let (began, mut count) = (now(), 0);
    while !until.is_over() {
        for _ in 0..ROUNDS {
            let posted =
                (0..WINDOW).try_for_each(|_| b.receive()).and_then(|()| (0..WINDOW).try_for_each(|_| a.send()));
            let arrived = posted.and_then(|()| b.await_messages(WINDOW, until));
            arrived.and_then(|()| a.await_requests(WINDOW, until)).map_err(failed)?;
            count += u64::from(WINDOW);
        }
    }
    let rate = per_second(count, now() - began);
    Ok(Text::new(format_args!("{count} messages of {SMALL} bytes, {rate} per second")))
}

/// Large writes into the peer's memory.
fn writes(setup: &Setup<'_>, until: &Until<'_>) -> Check<Text> {
    let adapter = setup.open()?;
    let Peers { a, b, .. } = &mut setup.connect(&adapter, LARGE, false)?;
    let to = b.remote();
    let (began, mut count) = (now(), 0);
    while !until.is_over() {
        for _ in 0..ROUNDS {
            let posted = (0..WINDOW).try_for_each(|_| a.write(to));
            posted.and_then(|()| a.await_requests(WINDOW, until)).map_err(failed)?;
            count += u64::from(WINDOW);
        }
    }
    let mebibytes = per_second(count * u64::from(LARGE), now() - began) >> 20;
    Ok(Text::new(format_args!("{count} writes of {} KiB, {mebibytes} MiB per second", LARGE >> 10)))
}
