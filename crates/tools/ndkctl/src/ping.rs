//! `ndkctl ping`: messages to and fro between two queue pairs, and how long they take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use conformance::{Platform, host::HostPlatform, platform::Family};
use hdrhistogram::Histogram;
use host::say;
use ndk::{Access, Adapter, Completion, Cq, Flags, Mr, NtStatus, Offer, Qp, QpSizes};
use serde::Serialize;

use crate::{
    End,
    args::{Notify, Ping},
    consumer,
    output::{align_right, bytes, duration, print_json, print_table, progress, table},
    record::Latest,
};

/// Sends of which only one is signalled: a success implies those before it.
const SIGNAL_EVERY: u32 = 8;
/// Requests outstanding at most on each queue.
const DEPTH: u32 = 32;
/// How long a side waits for a notification before it checks whether to stop, in microseconds.
const PATIENCE: u64 = 100_000;
/// How long establishing the connection may take, in microseconds.
const CONNECT: u64 = 5_000_000;

/// Why a side ends before its last round.
enum Ended {
    Failed(NtStatus),
    Interrupted,
}

impl From<NtStatus> for Ended {
    fn from(status: NtStatus) -> Self {
        Self::Failed(status)
    }
}

/// Stops both sides: Ctrl-C, or a failure of one of them.
struct Stop<'p> {
    interrupted: &'p AtomicBool,
    failed: AtomicBool,
}

impl Stop<'_> {
    fn go_on(&self) -> Result<(), Ended> {
        if self.interrupted.load(Relaxed) || self.failed.load(Relaxed) { Err(Ended::Interrupted) } else { Ok(()) }
    }

    /// Polls until there is a completion.
    fn poll(&self, cq: &mut Cq) -> Result<(), Ended> {
        let mut spins = 0_u32;
        loop {
            if let [done] = cq.poll(&mut [Completion::EMPTY]) {
                done.ok()?;
                return Ok(());
            }
            spins += 1;
            if spins.is_multiple_of(16) {
                self.go_on()?;
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

/// One end of the ping-pong. It sends the first half of its memory and receives into the second.
struct Side {
    mr: Mr,
    receives: Cq,
    sends: Cq,
    qp: Qp,
    /// Sends since the last signalled one.
    unsignalled: u32,
}

impl Side {
    fn new(adapter: &Adapter, size: u32) -> Result<Self, NtStatus> {
        let pd = adapter.create_pd()?;
        let mr = pd.register(adapter.memory(2 * size as usize)?, Access::LOCAL_WRITE)?;
        let (receives, sends) = (adapter.create_cq(DEPTH)?, adapter.create_cq(DEPTH)?);
        let sizes = QpSizes { receives: DEPTH, requests: DEPTH, ..QpSizes::default() };
        let qp = pd.create_qp(&receives, &sends, sizes, 0)?;
        Ok(Self { mr, receives, sends, qp, unsignalled: 0 })
    }

    fn post_receive(&mut self, args: &Ping) -> Result<(), Ended> {
        Ok(self.qp.receiver.receive(1, &[self.mr.sge(args.size as usize, args.size)?])?)
    }

    /// Sends the message of a round. The last one is signalled: until its completion the requests before it are in flight, and
    /// their memory must stay (`NDKPI 7.4`).
    fn send(&mut self, args: &Ping, stop: &Stop<'_>, round: u32) -> Result<(), Ended> {
        self.unsignalled += 1;
        let signalled = self.unsignalled == SIGNAL_EVERY || round == args.count;
        let mut flags = Flags::empty();
        flags.set(Flags::SOLICIT, args.notify == Notify::Solicited);
        flags.set(Flags::SILENT, !signalled);
        self.qp.initiator.send(2, &[self.mr.sge(0, args.size)?], flags)?;
        if signalled {
            self.unsignalled = 0;
            // Without its completion the queue would fill up.
            stop.poll(&mut self.sends)?;
        }
        Ok(())
    }

    /// Waits for a message.
    fn receive(&mut self, args: &Ping, stop: &Stop<'_>) -> Result<(), Ended> {
        let notify = match args.notify {
            Notify::Poll => return stop.poll(&mut self.receives),
            Notify::Any => ndk::Notify::Any,
            Notify::Solicited => ndk::Notify::Solicited,
        };
        loop {
            if let [done] = self.receives.wait_for(&mut [Completion::EMPTY], notify, PATIENCE)? {
                done.ok()?;
                return Ok(());
            }
            stop.go_on()?;
        }
    }

    /// Answers `args.count` messages.
    fn echo(&mut self, args: &Ping, stop: &Stop<'_>) -> Result<(), Ended> {
        for round in 1..=args.count {
            self.receive(args, stop)?;
            if round < args.count {
                self.post_receive(args)?;
            }
            self.send(args, stop, round)?;
        }
        Ok(())
    }

    /// Sends messages and waits for the answers. `seen` gets each round and its time.
    fn ping(&mut self, args: &Ping, stop: &Stop<'_>, mut seen: impl FnMut(u32, Duration)) -> Result<(), Ended> {
        for round in 1..=args.count {
            let began = Instant::now();
            self.send(args, stop, round)?;
            self.receive(args, stop)?;
            seen(round, began.elapsed());
            if round < args.count {
                self.post_receive(args)?;
            }
        }
        Ok(())
    }
}

/// The result of a ping-pong.
struct Shown {
    /// Nanoseconds of each round trip.
    rounds: Histogram<u64>,
    took: Duration,
}

/// Runs the command.
pub fn run(args: &Ping, interrupted: &Arc<AtomicBool>) -> Result<End, String> {
    let host = HostPlatform::start(args.machine.setup(0)).map_err(|status| format!("no machine: {status}"))?;
    let (host, latest) = (Arc::new(host), Latest::default());
    let stop = Stop { interrupted, failed: AtomicBool::new(false) };
    let shown = play(&host, args, &latest, &stop);
    if let Some(file) = latest.file() {
        args.record.write(&file)?;
    }
    let ended =
        Arc::into_inner(host).map_or_else(|| Err("somebody still uses the machine".to_owned()), HostPlatform::finish);
    let shown = shown?;
    ended?;
    // After Ctrl-C, what there is.
    if !shown.rounds.is_empty() {
        report(args, &shown)?;
    }
    Ok(if interrupted.load(Relaxed) { End::Interrupted } else { End::Good })
}

/// Opens the first adapter, or both ends of the wire; recorded if that is wanted.
fn open(host: &Arc<HostPlatform>, args: &Ping, latest: &Latest) -> Result<(Adapter, Option<Adapter>), String> {
    let platform: Arc<dyn Platform + Send> =
        if args.record.is_wanted() { Arc::from(args.record.platform(host, latest, None)?) } else { host.clone() };
    let version = args.machine.profile.version(None)?;
    let near = consumer::open(host, platform.clone(), 0, version)?;
    let far = args.machine.wire.then(|| consumer::open(host, platform, 1, version)).transpose()?;
    Ok((near, far))
}

/// Makes two sides, on the first adapter or at the ends of the wire, and lets them play.
fn play(host: &Arc<HostPlatform>, args: &Ping, latest: &Latest, stop: &Stop<'_>) -> Result<Shown, String> {
    let failed = |what: &'static str| move |status: NtStatus| format!("{what}: {status}");
    let address = |adapter| host.address(adapter, Family::V4).ok_or("the adapter has no address");
    let (adapter, other) = open(host, args, latest)?;
    let (there, to) = other.as_ref().map_or((&adapter, 0), |other| (other, 1));
    let side = |adapter| Side::new(adapter, args.size).map_err(failed("no queue pair"));
    let (mut near, mut far) = (side(&adapter)?, side(there)?);
    let acceptor = there.acceptor((address(to)?, 0).into()).map_err(failed("no listener"))?;
    let from = (&adapter, (address(0)?, 0).into());
    let connected = acceptor.connect(from, &near.qp, &far.qp, &Offer::default(), CONNECT);
    let _connections = connected.map_err(failed("no connection"))?;

    let mut rounds = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|error| error.to_string())?;
    let bar = if args.json {
        indicatif::ProgressBar::hidden()
    } else {
        progress(u64::from(args.count), "{bar:40} {pos}/{len} round trips, {per_sec}, {eta} left")
    };
    let started = Instant::now();
    let mut drawn = started;
    let end = |result: Result<(), Ended>| match result {
        Err(Ended::Failed(status)) => {
            // The other side waits for a message that does not come.
            stop.failed.store(true, Relaxed);
            Err(format!("the ping-pong has failed: {status}"))
        }
        Ok(()) | Err(Ended::Interrupted) => Ok(()),
    };
    let result = thread::scope(|scope| {
        // First the receives: a message has to find one.
        end(far.post_receive(args).and_then(|()| near.post_receive(args)))?;
        let echo = scope.spawn(|| end(far.echo(args, stop)));
        let pinged = end(near.ping(args, stop, |round, took| {
            rounds.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            if drawn.elapsed() > Duration::from_millis(100) {
                bar.set_position(u64::from(round));
                drawn = Instant::now();
            }
        }));
        let echoed = echo.join().unwrap_or_else(|_| Err("the echo has panicked".to_owned()));
        pinged.and(echoed)
    });
    let took = started.elapsed();
    bar.finish_and_clear();
    result.map(|()| Shown { rounds, took })
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
    // Fewer than were asked for, if Ctrl-C came between.
    let count = u32::try_from(rounds.len()).unwrap_or(u32::MAX);
    let rate = f64::from(count) / took.as_secs_f64();
    let values = || {
        let percentiles = PERCENTILES.iter().map(|(name, at)| (*name, micros(rounds.value_at_percentile(*at))));
        std::iter::once(("min", micros(rounds.min()))).chain(percentiles)
    };
    if args.json {
        return print_json(&PingJson {
            size: args.size,
            count,
            notify: format!("{:?}", args.notify).to_lowercase(),
            completion: format!("{:?}", args.machine.completion).to_lowercase(),
            round_trips_per_second: rate,
            microseconds: values().map(|(name, value)| (name.to_owned(), value.into())).collect(),
            seconds: took.as_secs_f64(),
        });
    }
    say!(
        "{count} round trips of {} in {}: {rate:.0} per second, {:.1} MiB/s each way",
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
