//! `ndkctl counters`: the RDMA counters (`NDIS_NDK_PERFORMANCE_COUNTERS`) of the driver, or of this program's adapters under
//! traffic that it makes.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use control::provider_device::Wire;
use host::say;
use ndkpi::NDIS_NDK_PERFORMANCE_COUNTERS;
use serde::Serialize;

use crate::{
    End,
    args::Counters,
    driver, load,
    output::{align_right, print_json, print_table, table},
};

/// A counter: by its name in `NDIS-NDK 3`, or one of wires.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: &'static str,
    adapters: Vec<u64>,
}

fn rows(counters: &[NDIS_NDK_PERFORMANCE_COUNTERS], wires: &[Wire]) -> Vec<Row> {
    let row = |name, pick: fn(&NDIS_NDK_PERFORMANCE_COUNTERS) -> u64| Row {
        name,
        adapters: counters.iter().map(pick).collect(),
    };
    let mut rows = vec![
        row("Connect", |counters| counters.Connect),
        row("Accept", |counters| counters.Accept),
        row("ConnectFailure", |counters| counters.ConnectFailure),
        row("ConnectionError", |counters| counters.ConnectionError),
        row("ActiveConnection", |counters| counters.ActiveConnection),
        row("CQError", |counters| counters.CQError),
        row("RDMAInOctets", |counters| counters.RDMAInOctets),
        row("RDMAOutOctets", |counters| counters.RDMAOutOctets),
        row("RDMAInFrames", |counters| counters.RDMAInFrames),
        row("RDMAOutFrames", |counters| counters.RDMAOutFrames),
    ];
    if !wires.is_empty() {
        rows.extend(OF_WIRES.map(|(name, pick)| Row { name, adapters: vec![wires.iter().map(pick).sum()] }));
    }
    rows
}

/// A counter of wires: its name, and where it is.
type OfWires = (&'static str, fn(&Wire) -> u64);

/// What a driver's wires have counted, together.
const OF_WIRES: [OfWires; 15] = [
    ("WireFramesReceived", |wire| wire.frames_received),
    ("WireFramesSent", |wire| wire.frames_sent),
    ("WireLost", |wire| wire.lost),
    ("WireMalformed", |wire| wire.malformed),
    ("WireWrongIcrc", |wire| wire.wrong_icrc),
    ("WireNotTaken", |wire| wire.not_taken),
    ("WireDuplicates", |wire| wire.duplicates),
    ("WireOutOfOrder", |wire| wire.out_of_order),
    ("WireNaksSent", |wire| wire.naks_sent),
    ("WireNaksReceived", |wire| wire.naks_received),
    ("WireRnrNaksReceived", |wire| wire.rnr_naks_received),
    ("WireRetries", |wire| wire.retries),
    ("WireTimeOuts", |wire| wire.timeouts),
    ("WireCmRetries", |wire| wire.cm_retries),
    ("WireRefused", |wire| wire.refused),
];

/// Shows the counters once, or every second.
///
/// # Errors
///
/// The reason, in one line.
pub fn run(args: &Counters, interrupted: &AtomicBool) -> Result<End, String> {
    let mut before: Option<Vec<Row>> = None;
    let mut look = |counters: &[NDIS_NDK_PERFORMANCE_COUNTERS], wires: &[Wire], names: &[&str]| {
        let now = rows(counters, wires);
        if args.json {
            print_json(&now)?;
        } else {
            show(&now, before.as_deref(), names);
        }
        before = Some(now);
        Ok::<_, String>(args.watch)
    };
    let (provider, whose) = driver::provider_or_host(args.of)?;
    if !args.json {
        say!("{whose}");
    }
    if let Some(opened) = provider {
        loop {
            let counters = opened.driver.counters().map_err(|refusal| opened.refused(refusal))?;
            let wires = opened.driver.wires().map_err(|refusal| opened.refused(refusal))?;
            if !look(&[counters], &wires, &["all adapters"])? || wait_a_second(interrupted) {
                break;
            }
        }
    } else {
        let pause = Duration::from_millis(if args.watch { 1000 } else { 200 });
        load::beside(interrupted, |machine| {
            thread::sleep(pause);
            let counters: Vec<_> = machine.devices().iter().map(|device| device.counters()).collect();
            look(&counters, &[], &["adapter 0", "adapter 1"])
        })?;
    }
    Ok(if interrupted.load(Relaxed) { End::Interrupted } else { End::Good })
}

/// Waits a second. Returns true if the command should end.
fn wait_a_second(interrupted: &AtomicBool) -> bool {
    for _ in 0..20 {
        if interrupted.load(Relaxed) {
            return true;
        }
        thread::sleep(Duration::from_millis(50));
    }
    interrupted.load(Relaxed)
}

fn show(now: &[Row], before: Option<&[Row]>, names: &[&str]) {
    let more = names.iter().map(|name| format!("{name}: added"));
    let header: Vec<_> = std::iter::once(&"counter").chain(names).map(|name| (*name).to_owned()).chain(more).collect();
    let mut table = table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    (1..header.len()).for_each(|column| align_right(&mut table, column));
    for (number, row) in now.iter().enumerate() {
        let more = row.adapters.iter().enumerate().map(|(adapter, count)| {
            // An adapter with a wire may have come meanwhile.
            let earlier = before.and_then(|before| before.get(number)).map(|before| before.adapters[adapter]);
            earlier.map_or_else(String::new, |earlier| count.wrapping_sub(earlier).to_string())
        });
        let counts = row.adapters.iter().map(ToString::to_string);
        table.add_row(std::iter::once(row.name.to_owned()).chain(counts).chain(more));
    }
    print_table(&table);
    say!();
}
