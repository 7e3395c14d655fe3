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

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use xshell::cmd;

use super::{Running, guest::Guest};
use crate::context::{Context, absolute};

/// A test of perftest, bytes of a message, messages.
const CASES: [(&str, u32, u32); 3] = [("send-bw", 8, 2000), ("send-bw", 65536, 100), ("send-lat", 8, 300)];

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

/// What comes between: the other end is free for another stack.
const CHANGE: &str = "\
rdma link del r1
/bin/ip addr flush dev v1
/bin/ip rule del pref 2
/bin/ip route add 10.1.0.2/32 dev v0 src 10.1.0.1 2>/dev/null
/bin/ip neigh flush all
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

/// What one test has shown.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Figures {
    /// Messages a second; none of a test of latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages_per_second: Option<f64>,
    /// Half a round trip in the middle, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    microseconds: Option<f64>,
}

impl Figures {
    /// How many times as good this is.
    fn times(self, other: Self) -> Option<f64> {
        match (self, other) {
            (Self { messages_per_second: Some(ours), .. }, Self { messages_per_second: Some(theirs), .. }) => {
                Some(ours / theirs)
            }
            (Self { microseconds: Some(ours), .. }, Self { microseconds: Some(theirs), .. }) => Some(theirs / ours),
            _ => None,
        }
    }
}

#[derive(Serialize)]
struct Row {
    test: &'static str,
    size: u32,
    messages: u32,
    who: Who,
    #[serde(flatten)]
    figures: Figures,
    /// How many times as good as rxe: of a rate, more; of a time, less.
    times_rxe: f64,
}

/// The guest's part.
fn script() -> String {
    let mut script = CABLE.to_owned();
    let ours = "--local 10.1.0.2/24 --network interface --interface v1 --patience 60 --json";
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
            script += &format!(
                "{server} > /tmp/server 2>&1 & sleep 2\n{client} > /tmp/client 2>&1; code=$?; wait\n\
                 echo \"BEGIN {who:?} {number}\"; cat /tmp/client; echo \"END $code\"; cat /tmp/server\n"
            );
        }
    }
    script
}

/// What a test has said of itself, between its marks.
fn said<'a>(log: &'a str, who: Who, number: usize) -> Result<&'a str> {
    let begin = format!("BEGIN {who:?} {number}\n");
    let rest = log.split_once(&begin).map(|(_, rest)| rest).context("the guest has not come to it")?;
    let (said, code) = rest.split_once("\nEND ").context("the guest has ended in it")?;
    ensure!(code.starts_with("0\n"), "it has failed: {said}");
    Ok(said)
}

/// The last line of perftest's table.
fn of_perftest(said: &str, is_latency: bool) -> Result<Figures> {
    let (_, table) = said.split_once("#bytes").context("no table")?;
    let line = table.lines().nth(1).context("no line in the table")?;
    let numbers: Vec<f64> = line.split_whitespace().map_while(|number| number.parse().ok()).collect();
    // Latency: bytes, count, min, max, typical. Bandwidth: bytes, count, peak, mean, rate in millions.
    let number = *numbers.get(4).with_context(|| format!("perftest's line is {line:?}"))?;
    Ok(if is_latency {
        Figures { messages_per_second: None, microseconds: Some(number) }
    } else {
        Figures { messages_per_second: Some(number * 1e6), microseconds: None }
    })
}

/// The report of `ndkctl wire ping`.
fn of_ndkctl(said: &str) -> Result<Figures> {
    let from = said.find('{').context("no report")?;
    let report: serde_json::Value = serde_json::from_str(&said[from..])?;
    let figures = Figures {
        messages_per_second: report["messages_per_second"].as_f64(),
        microseconds: report["microseconds"]["p50"].as_f64(),
    };
    ensure!(figures.times(figures).is_some(), "neither a rate nor a time: {report}");
    Ok(figures)
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
            let figures = said(&text, who, number).and_then(|said| {
                if who == Who::Client { of_ndkctl(said) } else { of_perftest(said, test.ends_with("lat")) }
            });
            let figures = figures.with_context(|| {
                format!("{}, {test} of {size} bytes; {} has what the guest says", who.name(), log.display())
            })?;
            let reference = *reference.get_or_insert(figures);
            let times_rxe = figures.times(reference).context("the same figures of both")?;
            rows.push(Row { test, size, messages, who, figures, times_rxe });
        }
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    for Row { test, size, who, figures, times_rxe, .. } in rows {
        let figure = match (figures.messages_per_second, figures.microseconds) {
            (Some(rate), _) => {
                format!("{rate:9.0} messages/s {:8.2} MiB/s", rate * f64::from(size) / f64::from(1 << 20))
            }
            (None, Some(time)) => format!("{time:9.2} us half a round trip"),
            (None, None) => String::new(),
        };
        println!("{test:9} {size:6}  {:14} {figure:32}  {times_rxe:5.2} of rxe", who.name());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CASES, Figures, Who, of_ndkctl, of_perftest, said, script};

    #[test]
    fn a_script_has_a_mark_for_each_case() {
        let script = script();
        assert_eq!(script.matches("BEGIN ").count(), CASES.len() * Who::ALL.len());
        assert_eq!(script.matches("rdma link del").count(), 1, "the other end changes once");
    }

    #[test]
    fn tables_and_reports_are_read() {
        let table = "x\n #bytes #iterations t_min[usec]\n 8 300 35.00 39.64 35.01 35.03 0.12\n---\n";
        let time = of_perftest(table, true).expect("a table");
        assert_eq!(time, Figures { messages_per_second: None, microseconds: Some(35.01) });
        let rate = of_perftest(" #bytes\n 8 2000 0.27 0.22 0.029424\n", false).expect("a table");
        assert!(rate.messages_per_second.is_some_and(|rate| (rate - 29424.0).abs() < 1.0));
        assert!(of_perftest("#bytes\n 8 2000\n", false).is_err());
        let ours = of_ndkctl("{\"microseconds\": {\"p50\": 70.02}}").expect("a report");
        assert!(ours.times(time).is_some_and(|times| (times - 0.5).abs() < 0.001));
        assert!(ours.times(rate).is_none());
        assert!(of_ndkctl("{}").is_err());
        assert_eq!(said("BEGIN Rxe 0\nwords\nEND 0\n", Who::Rxe, 0).expect("it ended well"), "words");
        assert!(said("BEGIN Rxe 0\nwords\nEND 1\n", Who::Rxe, 0).is_err());
    }
}
