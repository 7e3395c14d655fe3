//! `ndkctl counters`: what an adapter counts (`NDIS_NDK_PERFORMANCE_COUNTERS`), beside traffic of this program.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use host::say;
use ndkpi::NDIS_NDK_PERFORMANCE_COUNTERS;
use serde::Serialize;

use crate::{
    End,
    args::Counters,
    load,
    output::{align_right, print_json, print_table, table},
};

/// The counters that are not reserved, by their names in `NDIS-NDK 3`.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    name: &'static str,
    adapters: [u64; 2],
}

fn rows(counters: &[NDIS_NDK_PERFORMANCE_COUNTERS; 2]) -> [Row; 10] {
    let row = |name, pick: fn(&NDIS_NDK_PERFORMANCE_COUNTERS) -> u64| Row {
        name,
        adapters: [pick(&counters[0]), pick(&counters[1])],
    };
    [
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
    ]
}

/// Shows the counters once, or every second.
///
/// # Errors
///
/// What went wrong.
pub fn run(args: &Counters, interrupted: &AtomicBool) -> Result<End, String> {
    let mut before: Option<[Row; 10]> = None;
    let pause = Duration::from_millis(if args.watch { 1000 } else { 200 });
    load::beside(interrupted, |platform| {
        thread::sleep(pause);
        let [first, second] = platform.devices() else { return Err("two adapters are expected".to_owned()) };
        let now = rows(&[first.counters(), second.counters()]);
        if args.json {
            print_json(&now)?;
        } else {
            show(&now, before.as_ref());
        }
        before = Some(now);
        Ok(args.watch)
    })?;
    Ok(if interrupted.load(Relaxed) { End::Interrupted } else { End::Good })
}

fn show(now: &[Row; 10], before: Option<&[Row; 10]>) {
    let mut table = table(&["counter", "adapter 0", "adapter 1", "more in 0", "more in 1"]);
    (1..5).for_each(|column| align_right(&mut table, column));
    for (number, row) in now.iter().enumerate() {
        let more = |adapter: usize| {
            before.map_or_else(String::new, |before| {
                (row.adapters[adapter].wrapping_sub(before[number].adapters[adapter])).to_string()
            })
        };
        let [first, second] = row.adapters.map(|count| count.to_string());
        table.add_row([row.name.to_owned(), first, second, more(0), more(1)]);
    }
    print_table(&table);
    say!();
}
