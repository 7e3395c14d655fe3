//! `ndkctl wire serve`.

use std::{
    net::SocketAddr,
    sync::{
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{AcqRel, Acquire},
        },
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use host::{note, say};
use ndk::{Incoming, NtStatus, Offer};
use serde::Serialize;

use super::{
    args::{PORT, WireServe},
    fault::Fault,
    line::{End, Line, READS},
    perf::{DEPTH, Server, Wanted},
    perftest,
    report::{FaultJson, WireJson},
    rping, ucmatose,
};
use crate::output::{bytes, print_json};

/// Connections served at a time. More are refused.
const MOST: u32 = 64;

#[derive(Serialize)]
struct ConnectionJson {
    peer: String,
    mode: &'static str,
    messages: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FaultJson>,
}

#[derive(Serialize)]
struct ServeJson {
    segment: String,
    connections: Vec<ConnectionJson>,
    seconds: f64,
    wire: WireJson,
}

/// Connections of which the report has each one; of more only the failed ones.
const LISTED: usize = 1000;

/// Runs the command.
pub fn run(args: &WireServe, interrupted: &AtomicBool) -> Result<(), Fault> {
    let told = args.size.is_some() || args.count.is_some();
    if told && !args.ucmatose && args.perftest.is_none() {
        let what = "--size and --count go with --ucmatose or --perftest".to_owned();
        return Err(Fault::Open(network::OpenError::Wrong(what)));
    }
    if args.ucmatose && count(args) > ucmatose::MOST {
        let what = format!("--count is {} at most with --ucmatose", ucmatose::MOST);
        return Err(Fault::Open(network::OpenError::Wrong(what)));
    }
    let line = Line::open(&args.of, interrupted)?;
    let begun = Instant::now();
    let mut connections = Vec::new();
    let result = serve(&line, args, &mut connections);
    let (segment, wire) = (line.description.clone(), WireJson::from(line.counters()));
    let finished = line.finish();
    let failed = connections.iter().filter(|connection| connection.error.is_some()).count();
    let count = connections.len();
    if args.of.json {
        let shown = ServeJson { segment, connections, seconds: begun.elapsed().as_secs_f64(), wire };
        print_json(&shown).map_err(Fault::Other)?;
    } else {
        say!("{count} connections, {failed} of them failed");
        wire.show();
    }
    result.and(finished)?;
    if failed > 0 {
        return Err(Fault::Other(format!("{failed} of {count} connections failed")));
    }
    Ok(())
}

/// Messages of a connection, and bytes of one, where both sides have to be told.
fn count(args: &WireServe) -> u32 {
    args.count.unwrap_or_else(|| if args.perftest.is_some() { 1000 } else { 10 })
}

fn size(args: &WireServe) -> u32 {
    args.size.unwrap_or(100)
}

fn serve(line: &Line<'_>, args: &WireServe, connections: &mut Vec<ConnectionJson>) -> Result<(), Fault> {
    // Those that nobody takes are refused when the channel ends.
    let (send, requests) = mpsc::sync_channel::<Incoming>(MOST as usize);
    let mut listeners = Vec::new();
    let port = args.port.unwrap_or(match args.perftest {
        Some(_) => perftest::PORT,
        None if args.ucmatose => ucmatose::PORT,
        None => PORT,
    });
    for local in &args.of.local {
        let at = SocketAddr::new(local.address, port);
        let send = send.clone();
        let listener = line.adapter().listen(at, move |incoming| drop(send.try_send(incoming)));
        listeners.push(listener.map_err(|status| Fault::of(&format!("listen on {at}"), status))?);
    }
    if !args.of.json {
        let at: Vec<_> = args.of.local.iter().map(|local| local.address.to_string()).collect();
        say!("{}: listening on port {port} of {}", line.description, at.join(", "));
    }
    if let Some(test) = args.perftest {
        let wanted = perftest::Wanted { test, size: size(args), count: count(args) };
        return serve_perftest(line, args, wanted, &requests, connections);
    }
    let busy = AtomicU32::new(0);
    let (report, reports) = mpsc::channel();
    let mut taken = 0;
    let mut wrong = 0_usize;
    let result = thread::scope(|scope| {
        loop {
            while let Ok(connection) = reports.try_recv() {
                note_end(args, connections, &mut wrong, connection);
            }
            if args.connections.is_some_and(|most| taken >= most) {
                return Ok(());
            }
            line.go_on()?;
            let incoming = match requests.recv_timeout(Duration::from_millis(20)) {
                Ok(incoming) => incoming,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(Fault::Other("the listener has ended".to_owned())),
            };
            if busy.fetch_add(1, AcqRel) >= MOST {
                busy.fetch_sub(1, AcqRel);
                // The peer may have given up.
                let _ = incoming.reject(b"");
                continue;
            }
            taken += 1;
            let (report, busy) = (report.clone(), &busy);
            scope.spawn(move || {
                // The other end of the channel lives longer.
                let _ = report.send(one(line, args, incoming));
                busy.fetch_sub(1, AcqRel);
            });
        }
    });
    drop(report);
    for connection in reports {
        note_end(args, connections, &mut wrong, connection);
    }
    debug_assert_eq!(busy.load(Acquire), 0, "the scope has ended");
    drop((requests, listeners));
    result
}

/// Answers tests of perftest, one after the other: each has two connections.
fn serve_perftest(
    line: &Line<'_>,
    args: &WireServe,
    wanted: perftest::Wanted,
    requests: &mpsc::Receiver<Incoming>,
    connections: &mut Vec<ConnectionJson>,
) -> Result<(), Fault> {
    let (mut taken, mut wrong) = (0, 0);
    while args.connections.is_none_or(|most| taken < most) {
        line.go_on()?;
        let Ok(first) = requests.recv_timeout(Duration::from_millis(20)) else { continue };
        taken += 1;
        let peer = first.peer_address().map_or_else(|status| status.to_string(), |peer| peer.to_string());
        let result = perftest::answer(line, wanted, first, || perftest::next(line, requests));
        let messages = *result.as_ref().unwrap_or(&0);
        let connection = ConnectionJson {
            peer,
            mode: wanted.test.name(),
            messages,
            bytes: messages.saturating_mul(wanted.size.into()),
            error: result.as_ref().err().map(Into::into),
        };
        note_end(args, connections, &mut wrong, connection);
    }
    Ok(())
}

fn note_end(args: &WireServe, all: &mut Vec<ConnectionJson>, wrong: &mut usize, connection: ConnectionJson) {
    if let Some(fault) = &connection.error {
        *wrong += 1;
        if !args.of.json {
            note!("{}: {}", connection.peer, fault.what());
        }
    } else if !args.of.json {
        let ConnectionJson { peer, mode, messages, bytes: total, .. } = &connection;
        say!("{peer}: {mode}, {messages} messages, {}", bytes(*total));
    }
    if all.len() < LISTED || connection.error.is_some() {
        all.push(connection);
    }
}

/// Serves one connection.
fn one(line: &Line<'_>, args: &WireServe, incoming: Incoming) -> ConnectionJson {
    let peer = incoming.peer_address().map_or_else(|status| status.to_string(), |peer| peer.to_string());
    let mut mode = if args.ucmatose { "ucmatose" } else { "rping" };
    let result = answer(line, args, incoming, &mut mode);
    let (messages, bytes) = *result.as_ref().unwrap_or(&(0, 0));
    ConnectionJson { peer, mode, messages, bytes, error: result.as_ref().err().map(Into::into) }
}

fn answer(line: &Line<'_>, args: &WireServe, incoming: Incoming, mode: &mut &'static str) -> Result<(u64, u64), Fault> {
    let failed = |status: NtStatus| Fault::of("accept", status);
    let mut private = vec![0; 56];
    incoming.connection_data(&mut private).map_err(failed)?;
    let wanted = Wanted::decode(&private).filter(|_| !args.ucmatose);
    let mut end = End::new(line, if args.ucmatose { count(args) } else { DEPTH })?;
    let side = if args.ucmatose { Some(ucmatose::Side::new(&mut end, size(args), count(args))?) } else { None };
    let mut server = match wanted {
        None => {
            if side.is_none() {
                end.post_messages()?;
            }
            None
        }
        Some(wanted) => {
            *mode = wanted.kind.name();
            Some(Server::new(&mut end, wanted)?)
        }
    };
    let answer = server.as_ref().map_or_else(Vec::new, Server::encode);
    let offer = Offer { inbound_reads: READS, outbound_reads: READS, private_data: &answer };
    let gone = end.gone.clone();
    let accepting = incoming.accept(&end.qp, &offer, move || gone.set()).map_err(failed)?;
    let connection = accepting.wait().map_err(failed)?;
    let served = match (&mut server, &side) {
        (_, Some(side)) => side.serve(&mut end),
        (None, None) => rping::serve(&mut end),
        (Some(server), None) => {
            // Of several connections the first: it does the work of all.
            let _driving = line.drive(server.size());
            server.serve(&mut end)
        }
    };
    if !end.gone.is_set() {
        // This side has found something wrong, or is to end: the peer should know.
        let _ = connection.disconnect().and_then(ndk::Pending::wait);
    }
    served
}
