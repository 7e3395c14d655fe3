//! What the commands show.

use std::time::Duration;

use hdrhistogram::Histogram;
use host::say;
use ndk::host::Counters;
use serde::Serialize;

use super::fault::Fault;
use crate::output::{align_right, print_table, table};

/// The percentiles that are shown.
const PERCENTILES: [(&str, f64); 5] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

/// Times of a minute at most.
pub fn histogram() -> Result<Histogram<u64>, Fault> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|error| Fault::Other(error.to_string()))
}

/// Notes a time.
pub fn record(times: &mut Histogram<u64>, took: Duration) {
    times.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
}

#[expect(clippy::cast_precision_loss, reason = "microseconds with three digits")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

fn values(times: &Histogram<u64>) -> Vec<(&'static str, f64)> {
    let percentiles = PERCENTILES.iter().map(|(name, at)| (*name, micros(times.value_at_percentile(*at))));
    std::iter::once(("min", micros(times.min()))).chain(percentiles).collect()
}

/// The values for JSON.
pub fn json(times: &Histogram<u64>) -> serde_json::Map<String, serde_json::Value> {
    values(times).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

/// Prints the values.
pub fn show(what: &str, times: &Histogram<u64>) {
    let (names, times): (Vec<_>, Vec<_>) =
        values(times).into_iter().map(|(name, value)| (name, format!("{value:.1}"))).unzip();
    let mut list = table(&std::iter::once("us").chain(names).collect::<Vec<_>>());
    list.add_row(std::iter::once(what.to_owned()).chain(times));
    (1..7).for_each(|column| align_right(&mut list, column));
    print_table(&list);
}

/// What the wire has counted.
#[derive(Serialize)]
pub struct WireJson {
    frames_sent: u64,
    frames_received: u64,
    goes_back: u64,
    timeouts: u64,
    naks_received: u64,
    naks_sent: u64,
    rnr_naks_received: u64,
    duplicates: u64,
    wrong_icrc: u64,
    malformed: u64,
}

impl From<Counters> for WireJson {
    fn from(counters: Counters) -> Self {
        Self {
            frames_sent: counters.frames_sent,
            frames_received: counters.frames_received,
            goes_back: counters.goes_back,
            timeouts: counters.timeouts,
            naks_received: counters.naks_received,
            naks_sent: counters.naks_sent,
            rnr_naks_received: counters.rnr_naks_received,
            duplicates: counters.duplicates,
            wrong_icrc: counters.wrong_icrc,
            malformed: counters.malformed,
        }
    }
}

impl WireJson {
    /// Prints them in a line.
    pub fn show(&self) {
        say!(
            "frames: {} sent, {} received, {} wrong; went back {} times, {} time-outs, {} NAKs and {} RNR NAKs received",
            self.frames_sent,
            self.frames_received,
            self.wrong_icrc + self.malformed,
            self.goes_back,
            self.timeouts,
            self.naks_received,
            self.rnr_naks_received
        );
    }
}

/// What went wrong.
#[derive(Serialize)]
pub struct FaultJson {
    code: u8,
    what: String,
}

impl From<&Fault> for FaultJson {
    fn from(fault: &Fault) -> Self {
        Self { code: fault.code(), what: fault.to_string() }
    }
}

impl FaultJson {
    /// What it says.
    pub fn what(&self) -> &str {
        &self.what
    }
}
