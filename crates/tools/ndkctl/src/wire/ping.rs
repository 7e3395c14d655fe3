//! `ndkctl wire ping`.

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use host::say;
use indicatif::ProgressBar;
use ndk::{Connection, Offer};
use serde::Serialize;

use super::{
    args::WirePing,
    fault::Fault,
    line::{End, Line, READS},
    perf::{self, Kind, Wanted},
    perftest,
    report::{FaultJson, WireJson, histogram, json, record, show},
    rping, ucmatose,
};
use crate::output::{bytes, duration, print_json, progress};

#[derive(Serialize)]
struct PingJson {
    peer: String,
    segment: String,
    mode: &'static str,
    size: u32,
    path_mtu: u32,
    connections: u32,
    messages: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    microseconds: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_microseconds: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mebibytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_per_second: Option<f64>,
    wire: WireJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FaultJson>,
}

/// What was done so far.
struct Done {
    connections: u32,
    messages: u64,
    times: Histogram<u64>,
    connects: Histogram<u64>,
    /// Of requests several at a time: how many, and how long they took together.
    many: (u64, Duration),
    took: Duration,
}

/// What the arguments ask to measure; `None` for rping.
fn wanted(args: &WirePing) -> Option<Wanted> {
    let kinds = [(args.send, Kind::Send), (args.write, Kind::Write), (args.read, Kind::Read)];
    let kind = kinds.into_iter().find_map(|(is_wanted, kind)| is_wanted.then_some(kind))?;
    Some(Wanted { kind, size: args.size })
}

/// Runs the command.
pub fn run(args: &WirePing, interrupted: &AtomicBool) -> Result<(), Fault> {
    if args.size > 16 << 20 {
        let what = "--size is 16M at most on a wire".to_owned();
        return Err(Fault::Open(network::OpenError::Wrong(what)));
    }
    if args.ucmatose && args.count > ucmatose::MOST {
        let what = format!("--count is {} at most with --ucmatose", ucmatose::MOST);
        return Err(Fault::Open(network::OpenError::Wrong(what)));
    }
    let mut done = Done {
        connections: 0,
        messages: 0,
        times: histogram()?,
        connects: histogram()?,
        many: Default::default(),
        took: Duration::ZERO,
    };
    let line = Line::open(&args.of, interrupted)?;
    let begun = Instant::now();
    let total = u64::from(args.count) * u64::from(args.connections);
    let bar = if args.of.json {
        ProgressBar::hidden()
    } else {
        progress(total, "{bar:40} {pos}/{len} messages, {per_sec}, {eta} left")
    };
    let mut result = (0..args.connections).try_for_each(|number| one(&line, args, number, &bar, &mut done));
    bar.finish_and_clear();
    done.took = begun.elapsed();
    let (segment, path_mtu, wire) = (line.description.clone(), line.path_mtu(), line.counters().into());
    let finished = line.finish();
    if result.is_ok() {
        result = finished;
    }
    report(args, &done, (segment, path_mtu, wire), result.as_ref().err()).map_err(Fault::Other)?;
    result
}

/// A connection, and what was made for it.
struct Connected<'line, 'run> {
    end: End<'line, 'run>,
    connection: Connection,
    /// What the peer has sent along.
    private: Vec<u8>,
    side: Option<ucmatose::Side>,
    took: Duration,
}

/// Connects, and asks again as long as the arguments want it.
fn connect<'line, 'run>(
    line: &'line Line<'run>,
    args: &WirePing,
    wanted: Option<Wanted>,
) -> Result<Connected<'line, 'run>, Fault> {
    let private = wanted.map_or_else(Vec::new, Wanted::encode);
    perftest::until_there(line, wait(args), || {
        let mut end = End::new(line, if args.ucmatose { args.count } else { perf::DEPTH })?;
        let side = if args.ucmatose {
            Some(ucmatose::Side::new(&mut end, args.size, args.count)?)
        } else {
            end.post_messages()?;
            None
        };
        let offer = Offer { inbound_reads: READS, outbound_reads: READS, private_data: &private };
        let begun = Instant::now();
        let (connection, private) = line.connect(&end.qp, args.target, &offer, &end.gone)?;
        Ok(Connected { end, connection, private, side, took: begun.elapsed() })
    })
}

/// How long a peer that is not there yet is asked again.
fn wait(args: &WirePing) -> Duration {
    Duration::from_secs(args.wait.into())
}

/// One connection: its messages, and its end.
fn one(line: &Line<'_>, args: &WirePing, number: u32, bar: &ProgressBar, done: &mut Done) -> Result<(), Fault> {
    line.go_on()?;
    if let Some(test) = args.perftest {
        let Done { times, messages, .. } = done;
        let wanted = perftest::Wanted { test, size: args.size, count: args.count };
        let before = *messages;
        let measured = perftest::ask(line, args.target, wanted, wait(args), &mut |number, took| {
            *messages = before + u64::from(number);
            bar.set_position(*messages);
            if let Some(took) = took {
                record(times, took);
            }
        })?;
        record(&mut done.connects, measured.connect);
        if let Some(took) = measured.together {
            done.many = (done.many.0 + u64::from(args.count), done.many.1 + took);
        }
        done.connections += 1;
        return Ok(());
    }
    let wanted = wanted(args);
    let Connected { mut end, connection, private, side, took } = connect(line, args, wanted)?;
    record(&mut done.connects, took);
    let before = u64::from(number) * u64::from(args.count);
    if let Some(side) = side {
        let begun = Instant::now();
        side.ask(&mut end)?;
        record(&mut done.times, begun.elapsed());
        done.messages += u64::from(args.count);
        done.connections += 1;
        return Ok(());
    }
    match wanted {
        None => {
            let mut client = rping::Client::new(&end, args.size)?;
            for ping in 0..args.count {
                record(&mut done.times, client.ping(&mut end, ping)?);
                done.messages += 1;
                bar.set_position(before + u64::from(ping) + 1);
            }
        }
        Some(wanted) => {
            let mut client = perf::Client::new(&end, wanted, &private)?;
            let driving = line.drive(wanted.size);
            let (single, many) = (args.count.div_ceil(2), args.count / 2);
            let Done { times, messages, .. } = done;
            client.one_by_one(&mut end, single, |number, took| {
                record(times, took);
                *messages += 1;
                bar.set_position(before + u64::from(number));
            })?;
            if many > 0 {
                let took = client.together(&mut end, many, |number| {
                    bar.set_position(before + u64::from(single + number));
                })?;
                done.messages += u64::from(many);
                done.many = (done.many.0 + u64::from(many), done.many.1 + took);
            }
            client.verify(&mut end)?;
            drop(driving);
        }
    }
    let failed = |status| Fault::of("disconnect", status);
    connection.disconnect().map_err(failed)?.wait().map_err(failed)?;
    done.connections += 1;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "rates")]
fn report(
    args: &WirePing,
    done: &Done,
    (segment, path_mtu, wire): (String, u32, WireJson),
    fault: Option<&Fault>,
) -> Result<(), String> {
    let plain = match args.perftest {
        Some(test) => test.name(),
        None if args.ucmatose => "ucmatose",
        None => "rping",
    };
    let mode = wanted(args).map_or(plain, |wanted| wanted.kind.name());
    let rate = (done.many.0 > 0).then(|| done.many.0 as f64 / done.many.1.as_secs_f64());
    let bandwidth = rate.map(|rate| rate * f64::from(args.size) / f64::from(1 << 20));
    if args.of.json {
        return print_json(&PingJson {
            peer: args.target.to_string(),
            segment,
            mode,
            size: args.size,
            path_mtu,
            connections: done.connections,
            messages: done.messages,
            seconds: done.took.as_secs_f64(),
            microseconds: (!done.times.is_empty()).then(|| json(&done.times)),
            connect_microseconds: (!done.connects.is_empty()).then(|| json(&done.connects)),
            mebibytes_per_second: bandwidth,
            messages_per_second: rate,
            wire,
            error: fault.map(Into::into),
        });
    }
    if done.messages > 0 {
        let compared = match args.perftest {
            Some(_) => "no byte",
            None if args.ucmatose => "every length",
            None => "every byte",
        };
        say!(
            "{mode} to {}: {} messages of {} in {}, {compared} compared; {} of {} connections ended well",
            args.target,
            done.messages,
            bytes(args.size.into()),
            duration(done.took),
            done.connections,
            args.connections
        );
        if !done.times.is_empty() {
            show(if args.ucmatose { "all messages" } else { "a message" }, &done.times);
        }
    }
    if !done.connects.is_empty() && args.connections > 1 {
        show("a connect", &done.connects);
    }
    if let (Some(rate), Some(bandwidth)) = (rate, bandwidth) {
        say!("several at a time: {rate:.0} messages per second, {bandwidth:.1} MiB/s");
    }
    if done.messages > 0 {
        wire.show();
    }
    Ok(())
}
