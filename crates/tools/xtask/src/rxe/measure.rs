//! `ndkctl wire` and rxe measured against the same rxe over the same veth, in one guest.
//!
//! ```text
//!   rxe r0 --- v0 ===== v1 --- rxe r1            first perftest on both sides
//!   rxe r0 --- v0 ===== v1 --- ndkctl wire       then ours in the place of r1, as client and as server
//! ```
//!
//! rxe of 6.1 and 6.12 receives in the first network namespace only, so both of them are there; rules of routing make packets between two
//! addresses of the same machine go over the cable. The guest's clock counts instructions (`-icount`): a nanosecond for each, whatever else
//! this machine does, and none while nothing runs. So the figures are those of a processor that does an instruction a nanosecond, the same
//! in each run but for a few in a hundred; what they say is the ratio. There is one processor, for which the two sides and the kernel
//! take turns. So perftest waits for events (`-e`): polling would take the time from the other side.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use xshell::cmd;

use super::{Running, guest::Guest};
use crate::context::{Context, absolute};

/// A test of perftest, bytes of a message, messages.
///
/// Not the other tests of latency, whose servers poll. `ib_send_lat -e` waits for the events of both completion queues on one channel, and
/// takes the one of a message for that of its own request when they come in this order: `ndkctl` sends an ACK first on a packet socket.
const CASES: [(&str, u32, u32); 3] = [("send-bw", 8, 2000), ("send-bw", 65536, 100), ("send-lat", 8, 2000)];

/// Returns true if a test has one message at a time: its messages a second are those of both sides, one
/// after the other, at the median time.
fn is_latency(test: &str) -> bool {
    test.ends_with("-lat")
}

/// Seconds, of the guest's clock, that a side may take: one that has missed an event waits for ever, and so does the other one.
const PATIENCE: u32 = 60;

/// The two ends of the cable, and rules for two addresses of one machine.
const CABLE: &str = "\
while read -r file; do insmod /modules/$file 2>/dev/null; done < /modules/veth.list
/bin/ip link add v0 address 02:53:0a:01:00:01 type veth peer name v1 address 02:53:0a:01:00:02
for end in v0 v1; do
    echo 1 > /proc/sys/net/ipv6/conf/$end/disable_ipv6
    echo 1 > /proc/sys/net/ipv4/conf/$end/accept_local
    echo 0 > /proc/sys/net/ipv4/conf/$end/rp_filter
    /bin/ip link set $end up
done
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
/bin/ip addr add 10.1.0.1/32 dev v0
/bin/ip addr add 10.1.0.2/32 dev v1
/bin/ip route add 10.1.0.2/32 dev v0 src 10.1.0.1
/bin/ip route add 10.1.0.1/32 dev v1 src 10.1.0.2
/bin/ip rule add pref 1 iif v0 lookup local
/bin/ip rule add pref 2 iif v1 lookup local
/bin/ip rule add pref 100 to 10.1.0.0/24 lookup main
/bin/ip rule add pref 32765 lookup local
/bin/ip rule del pref 0
rdma link add r0 type rxe netdev v0
rdma link add r1 type rxe netdev v1
sleep 1
";

/// What comes between: the other end is free for another stack, whose station is not that of the system, which passes its frames over then.
const CHANGE: &str = "\
rdma link del r1
/bin/ip addr flush dev v1
/bin/ip rule del pref 2
/bin/ip route add 10.1.0.2/32 dev v0 src 10.1.0.1 2>/dev/null
/bin/ip neigh flush all
/bin/ip link set v1 promisc on
";

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Who {
    /// rxe on both ends.
    Rxe,
    /// `ndkctl wire ping`, to rxe.
    Client,
    /// rxe, to `ndkctl wire serve`.
    Server,
}

impl Who {
    const ALL: [Self; 3] = [Self::Rxe, Self::Client, Self::Server];

    const fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe to rxe",
            Self::Client => "ndkctl to rxe",
            Self::Server => "rxe to ndkctl",
        }
    }
}

#[derive(Serialize)]
struct Row {
    test: &'static str,
    size: u32,
    messages: u32,
    who: Who,
    /// By the guest's clock. Two rxe may not come to an end: `ib_send_lat -e` does not on Linux 6.12, whose completion queues run over.
    messages_per_second: Option<f64>,
    /// How many times the rate of two rxe this is.
    times_rxe: Option<f64>,
}

impl Row {
    /// For people.
    fn line(&self) -> String {
        let Self { test, size, who, .. } = *self;
        let Some(rate) = self.messages_per_second else {
            return format!("{test} {size:6}  {:14} did not end", who.name());
        };
        let what = if is_latency(test) {
            format!("{:9.2} us, half a round trip", 1e6 / rate)
        } else {
            format!("{rate:9.0} messages/s {:8.2} MiB/s", rate * f64::from(size) / f64::from(1 << 20))
        };
        let beside = self.times_rxe.map(|times| format!("  {times:5.2} of rxe's rate")).unwrap_or_default();
        format!("{test} {size:6}  {:14} {what:34}{beside}", who.name())
    }
}

/// The guest's part.
fn script() -> String {
    let mut script = CABLE.to_owned();
    let ours = "--local 10.1.0.2/24 --network interface --interface v1 --mac 02:53:0a:01:00:03 --patience 60 --json";
    for who in Who::ALL {
        if who == Who::Client {
            script += CHANGE;
        }
        for (number, (test, size, count)) in CASES.into_iter().enumerate() {
            let program = format!("ib_{} -R -e -F -s {size} -n {count}", test.replace('-', "_"));
            let told = format!("--perftest {test} --size {size} --count {count}");
            let (server, client) = match who {
                Who::Rxe => (format!("{program} -d r1"), format!("{program} -d r0 10.1.0.2")),
                Who::Client => {
                    (format!("{program} -d r0"), format!("/ndkctl wire ping 10.1.0.1:18515 {told} --wait 20 {ours}"))
                }
                Who::Server => {
                    (format!("/ndkctl wire serve {told} --connections 1 {ours}"), format!("{program} -d r0 10.1.0.2"))
                }
            };
            _ = writeln!(
                script,
                "timeout {PATIENCE} {server} > /tmp/server 2>&1 & sleep 2\ntimeout {PATIENCE} {client} > /tmp/client 2>&1; code=$?; wait\n\
                 echo \"BEGIN {who:?} {number}\"; cat /tmp/client; echo \"END $code\"; cat /tmp/server"
            );
        }
    }
    script
}

/// What a test has said of itself, between its marks.
fn said(log: &str, who: Who, number: usize) -> Result<&str> {
    let begin = format!("BEGIN {who:?} {number}\n");
    let rest = log.split_once(&begin).map(|(_, rest)| rest).context("the guest has not come to it")?;
    let (said, code) = rest.split_once("\nEND ").context("the guest has ended in it")?;
    ensure!(code.starts_with("0\n"), "it has failed: {said}");
    Ok(said)
}

/// Messages a second, by the last line of perftest's table.
fn of_perftest(said: &str, test: &str) -> Result<f64> {
    let (_, table) = said.split_once("#bytes").context("no table")?;
    let line = table.lines().nth(1).context("no line in the table")?;
    let numbers: Vec<f64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let rate = if is_latency(test) {
        // Bytes, count, microseconds for half a round trip: least, most, median.
        numbers.get(4).map(|median| 1.0 / median)
    } else {
        // Bytes, count, peak, mean, rate in millions.
        numbers.get(4).copied()
    };
    let rate = rate.filter(|rate| rate.is_finite() && *rate > 0.0);
    Ok(rate.with_context(|| format!("perftest's line is {line:?}"))? * 1e6)
}

/// Messages a second, by the report of `ndkctl wire ping`.
fn of_ndkctl(said: &str, test: &str) -> Result<f64> {
    let from = said.find('{').context("no report")?;
    let report: serde_json::Value = serde_json::from_str(&said[from..])?;
    let rate = if is_latency(test) {
        report["microseconds"]["p50"].as_f64().map(|median| 1e6 / median)
    } else {
        report["messages_per_second"].as_f64()
    };
    rate.filter(|rate| rate.is_finite() && *rate > 0.0).with_context(|| format!("no rate: {report}"))
}

/// Measures, and prints a table, or JSON.
pub fn measure(context: &Context, guest: &Guest, ndkctl: &Path, json: bool) -> Result<()> {
    let sh = &context.sh;
    let scratch = absolute("target/rxe/measure");
    sh.remove_path(&scratch)?;
    sh.write_file(scratch.join("job/job.sh"), script())?;
    let program = scratch.join("job/ndkctl");
    sh.copy_file(ndkctl, &program)?;
    // It is unpacked into the guest's memory.
    cmd!(sh, "strip {program}").quiet().run()?;
    let log = scratch.join("guest.txt");
    let mut running = Running::counting(context, guest, &scratch)?;
    let ended = running.wait(Duration::from_mins(20));
    running.stop();
    let text = String::from_utf8_lossy(&fs::read(&log)?).replace('\r', "");
    ended.with_context(|| format!("{} has what the guest says", log.display()))?;
    let mut rows = Vec::new();
    for (number, (test, size, messages)) in CASES.into_iter().enumerate() {
        let mut reference = None;
        for who in Who::ALL {
            let rate = said(&text, who, number)
                .and_then(|said| if who == Who::Client { of_ndkctl(said, test) } else { of_perftest(said, test) });
            let messages_per_second = match rate {
                Err(error) if who == Who::Rxe => {
                    eprintln!("{}, {test} of {size} bytes is not measured: {error:#}", who.name());
                    None
                }
                rate => Some(rate.with_context(|| {
                    format!("{}, {test} of {size} bytes; {} has what the guest says", who.name(), log.display())
                })?),
            };
            if who == Who::Rxe {
                reference = messages_per_second;
            }
            let times_rxe = messages_per_second.zip(reference).map(|(ours, theirs)| ours / theirs);
            rows.push(Row { test, size, messages, who, messages_per_second, times_rxe });
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    for row in rows {
        println!("{}", row.line());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CASES, Row, Who, of_ndkctl, of_perftest, said, script};

    #[test]
    fn a_script_has_a_mark_for_each_case() {
        let script = script();
        assert_eq!(script.matches("BEGIN ").count(), CASES.len() * Who::ALL.len());
        assert_eq!(script.matches("rdma link del").count(), 1, "the other end changes once");
    }

    #[test]
    fn a_row_says_what_it_is_beside_or_that_there_is_nothing() {
        let row = |test, rate, times_rxe| {
            let row = Row { test, size: 8, messages: 2000, who: Who::Rxe, messages_per_second: rate, times_rxe };
            row.line().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            row("send-bw", Some(1024.0), Some(0.5)),
            "send-bw 8 rxe to rxe 1024 messages/s 0.01 MiB/s 0.50 of rxe's rate"
        );
        assert_eq!(row("send-lat", Some(20_000.0), None), "send-lat 8 rxe to rxe 50.00 us, half a round trip");
        assert_eq!(row("send-lat", None, None), "send-lat 8 rxe to rxe did not end");
    }

    #[test]
    fn tables_and_reports_are_read() {
        let (rates, times) = ("send-bw", "send-lat");
        let rate = of_perftest("x\n #bytes #iterations\n 8 2000 0.27 0.22 0.029424\n---\n", rates).expect("a table");
        assert!((rate - 29424.0).abs() < 1.0);
        assert!(of_perftest("#bytes\n 8 2000\n", rates).is_err());
        assert!(of_perftest("#bytes\n 8 2000 0.00 0.00 0.000000\n", rates).is_err());
        let rate = of_perftest("#bytes\n 8 2000 20.00 90.10 31.00 32.00 1.5 40.0 80.0\n", times).expect("a table");
        assert!((rate - 32258.0).abs() < 1.0);
        assert!(of_perftest("#bytes\n 8 2000 0.00 0.00 0.00 0.00 0.00\n", times).is_err());
        let rate = of_ndkctl("a line\n{\"messages_per_second\": 70.5}", rates).expect("a report");
        assert!((rate - 70.5).abs() < 0.1);
        assert!(of_ndkctl("{}", rates).is_err());
        let rate = of_ndkctl("{\"microseconds\": {\"p50\": 32.0, \"p90\": 50.0}}", times).expect("a report");
        assert!((rate - 31250.0).abs() < 1.0);
        assert!(of_ndkctl("{\"microseconds\": {\"p50\": 0.0}}", times).is_err());
        assert_eq!(said("BEGIN Rxe 0\nwords\nEND 0\n", Who::Rxe, 0).expect("it ended well"), "words");
        assert!(said("BEGIN Rxe 0\nwords\nEND 1\n", Who::Rxe, 0).is_err());
    }
}
