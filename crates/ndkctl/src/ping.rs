//! `ndkctl ping`: messages to and fro between two queue pairs, and how long they take.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use conformance::host::HostPlatform;
use conformance::{
    Check, HELD, Platform, Stop,
    client::{CqCore, Options, QpSizes, Session},
    fixture::{Pair, Plan, Side, is_success},
    text::Text,
};
use hdrhistogram::Histogram;
use host::say;
use ndkpi::{
    NDK_CQ_NOTIFY_ANY, NDK_CQ_NOTIFY_SOLICITED, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, NDK_OP_FLAG_SILENT_SUCCESS,
    NDK_RESULT_EX,
};
use serde::Serialize;

use crate::{
    End,
    args::{Notify, Ping},
    output::{align_right, bytes, duration, print_json, print_table, progress, table},
    record::Latest,
};

/// Sends of which only one is signalled: a success implies those before it.
const SIGNAL_EVERY: u32 = 8;
/// Requests outstanding at most on each queue.
const DEPTH: u32 = 32;

/// Rings when the completion queue calls back.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_one();
    }

    /// Waits for the next ring, or for a moment, so that a wish to end is seen.
    fn wait(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.rings.wait_timeout_while(rung, Duration::from_millis(100), |rung| !*rung);
        *wait.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// One end of the ping-pong.
struct Player<'p, 's> {
    side: &'p Side<'s>,
    bell: &'p Bell,
    args: &'p Ping,
    interrupted: &'p AtomicBool,
    /// Sends since the last signalled one, and signalled ones whose completion has not been seen.
    unsignalled: u32,
    results: [NDK_RESULT_EX; 8],
}

impl<'p, 's> Player<'p, 's> {
    const fn new(side: &'p Side<'s>, bell: &'p Bell, args: &'p Ping, interrupted: &'p AtomicBool) -> Self {
        Self { side, bell, args, interrupted, unsignalled: 0, results: [NDK_RESULT_EX::ZEROED; 8] }
    }

    fn post_receive(&self) -> Check {
        self.side.receive(1, 0, self.args.size)
    }

    fn send(&mut self) -> Check {
        let solicit = if self.args.notify == Notify::Solicited { NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT } else { 0 };
        self.unsignalled += 1;
        let signalled = self.unsignalled == SIGNAL_EVERY;
        let silent = if signalled { 0 } else { NDK_OP_FLAG_SILENT_SUCCESS };
        self.side.send(2, 0, self.args.size, solicit | silent)?;
        if signalled {
            self.unsignalled = 0;
            self.drain_sends()?;
        }
        Ok(())
    }

    /// Takes the completion of a signalled send, without which the queue would fill up.
    fn drain_sends(&mut self) -> Check {
        let mut seen = 0;
        while seen == 0 {
            let mut outcome = Ok(());
            seen = self.side.initiated().poll_with(&mut self.results, |done| outcome = is_success(&done, 2))?;
            outcome?;
            self.go_on()?;
            if seen == 0 {
                thread::yield_now();
            }
        }
        Ok(())
    }

    fn go_on(&self) -> Check {
        if self.interrupted.load(Relaxed) {
            return Err(Stop::Skipped(Text::new(format_args!("interrupted"))));
        }
        Ok(())
    }

    /// Waits for a message.
    fn receive(&mut self) -> Check {
        let cq: &CqCore<'_> = self.side.receive_cq.core();
        let mut spins = 0_u32;
        loop {
            let mut outcome = Ok(());
            let seen = cq.poll_with(&mut self.results[..1], |done| outcome = is_success(&done, 1))?;
            outcome?;
            if seen > 0 {
                return Ok(());
            }
            match self.args.notify {
                Notify::Poll => {
                    spins += 1;
                    if spins.is_multiple_of(16) {
                        self.go_on()?;
                        thread::yield_now();
                    }
                    std::hint::spin_loop();
                }
                Notify::Any | Notify::Solicited => {
                    self.go_on()?;
                    // A message that came since the poll satisfies the arm at once.
                    let solicited = self.args.notify == Notify::Solicited;
                    cq.arm(if solicited { NDK_CQ_NOTIFY_SOLICITED } else { NDK_CQ_NOTIFY_ANY })?;
                    self.bell.wait();
                }
            }
        }
    }
}

/// What a ping-pong has shown.
struct Shown {
    /// Nanoseconds of each round trip.
    rounds: Histogram<u64>,
    took: Duration,
}

/// Runs the command.
pub fn run(args: &Ping, interrupted: &Arc<AtomicBool>) -> Result<End, String> {
    let host = HostPlatform::start_with_cancel(args.machine.setup(0), interrupted)
        .map_err(|status| format!("no machine: {status}"))?;
    let (host, latest) = (Arc::new(host), Latest::default());
    let recorded = args.record.is_wanted().then(|| args.record.platform(&host, &latest)).transpose()?;
    let platform: &dyn Platform = match &recorded {
        Some(recorded) => &**recorded,
        None => &*host,
    };
    let version = args.machine.profile.version(None)?;
    let options = Options { name: "ping", version, seed: 0, hostile: false };
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    let mut shown = None;
    let verdict = Session::with(platform, &options, |session| {
        let mut plans = [Plan::new(); 2];
        for (plan, bell) in plans.iter_mut().zip(&bells) {
            let bell: &Arc<Bell> = session.own(bell.clone())?;
            plan.on_receive = Some(session.keep(|_: &CqCore<'_>, _| {
                bell.ring();
                Ok(())
            })?);
            plan.bytes = args.size as usize;
            plan.sizes = QpSizes { receive_depth: DEPTH, initiator_depth: DEPTH, ..plan.sizes };
        }
        let pair = Pair::with(session, &plans[0], &plans[1])?;
        shown = Some(play(&pair, args, [&bells[0], &bells[1]], interrupted)?);
        HELD
    });
    if let Some(file) = latest.file() {
        args.record.write(&file)?;
    }
    drop(recorded);
    let ended =
        Arc::into_inner(host).map_or_else(|| Err("somebody still uses the machine".to_owned()), HostPlatform::finish);
    if interrupted.load(Relaxed) {
        return Ok(End::Interrupted);
    }
    ended?;
    match (verdict, shown) {
        (Ok(_), Some(shown)) => report(args, &shown).map(|()| End::Good),
        (Err(Stop::Failed(text) | Stop::Skipped(text)), _) => Err(text.as_str().to_owned()),
        (Ok(_), None) => Err("nothing was measured".to_owned()),
    }
}

fn play(pair: &Pair<'_>, args: &Ping, bells: [&Bell; 2], interrupted: &AtomicBool) -> Check<Shown> {
    let trouble = |what: &dyn std::fmt::Display| Stop::Failed(Text::new(format_args!("{what}")));
    let mut rounds = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|error| trouble(&error))?;
    let mut near = Player::new(&pair.a, bells[0], args, interrupted);
    pair.b.receive(1, 0, args.size)?;
    near.post_receive()?;
    thread::scope(|scope| {
        let count = args.count;
        let echo = scope.spawn(move || -> Check {
            let mut far = Player::new(&pair.b, bells[1], args, interrupted);
            for round in 1..=count {
                far.receive()?;
                if round < count {
                    far.post_receive()?;
                }
                far.send()?;
            }
            Ok(())
        });
        let bar = if args.json {
            indicatif::ProgressBar::hidden()
        } else {
            progress(u64::from(count), "{bar:40} {pos}/{len} round trips, {per_sec}, {eta} left")
        };
        let started = Instant::now();
        let mut drawn = started;
        let mut result = Ok(());
        for round in 1..=count {
            let began = Instant::now();
            result = near.send().and_then(|()| near.receive());
            let now = Instant::now();
            if result.is_err() {
                break;
            }
            rounds.saturating_record(u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX));
            if round < count {
                result = near.post_receive();
            }
            if now - drawn > Duration::from_millis(100) {
                bar.set_position(u64::from(round));
                drawn = now;
            }
        }
        let took = started.elapsed();
        bar.finish_and_clear();
        if result.is_err() {
            // The other side waits for a message that does not come.
            interrupted.store(true, Relaxed);
        }
        let echoed = echo.join().unwrap_or_else(|_| Err(trouble(&"the echo has panicked")));
        result.and(echoed).map(|()| Shown { rounds, took })
    })
}

/// The percentiles that are shown.
const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("max", 100.0)];

#[derive(Serialize)]
struct PingJson {
    size: u32,
    count: u32,
    notify: String,
    completion: String,
    round_trips_per_second: f64,
    microseconds: serde_json::Map<String, serde_json::Value>,
    seconds: f64,
}

#[expect(clippy::cast_precision_loss, reason = "microseconds with three digits")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

fn report(args: &Ping, shown: &Shown) -> Result<(), String> {
    let Shown { rounds, took } = shown;
    let rate = f64::from(args.count) / took.as_secs_f64();
    let values = || {
        let percentiles = PERCENTILES.iter().map(|(name, at)| (*name, micros(rounds.value_at_percentile(*at))));
        std::iter::once(("min", micros(rounds.min()))).chain(percentiles)
    };
    if args.json {
        return print_json(&PingJson {
            size: args.size,
            count: args.count,
            notify: format!("{:?}", args.notify).to_lowercase(),
            completion: format!("{:?}", args.machine.completion).to_lowercase(),
            round_trips_per_second: rate,
            microseconds: values().map(|(name, value)| (name.to_owned(), value.into())).collect(),
            seconds: took.as_secs_f64(),
        });
    }
    say!(
        "{} round trips of {} in {}: {rate:.0} per second, {:.1} MiB/s each way",
        args.count,
        bytes(args.size.into()),
        duration(*took),
        rate * f64::from(args.size) / f64::from(1 << 20)
    );
    let (names, times): (Vec<_>, Vec<_>) = values().map(|(name, value)| (name, format!("{value:.1}"))).unzip();
    let mut list = table(&std::iter::once("round trip, us").chain(names).collect::<Vec<_>>());
    list.add_row(std::iter::once(format!("{:?}", args.notify).to_lowercase()).chain(times));
    (1..8).for_each(|column| align_right(&mut list, column));
    print_table(&list);
    Ok(())
}
