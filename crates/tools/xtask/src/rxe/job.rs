//! What the guest does, one case after the other, and says of each.

use std::fmt::Write as _;

/// A run of rping, in each direction.
pub struct Case {
    /// Of IP: 4 or 6.
    pub family: u8,
    /// Bytes of a message. What rping takes is 64 KiB at most, and at least what its text needs.
    pub size: u32,
    pub count: u32,
    /// Where the guest's server listens. Each has a port of its own: where packets are lost it still disconnects when the next client comes,
    /// and would take that for its own.
    pub port: u16,
}

/// The first ports of the guest's servers, of rping and of ucmatose.
const PINGS: u16 = 7200;
const UCMATOSE: u16 = 7300;

/// The cases of a run.
pub struct Job {
    pub cases: Vec<Case>,
    /// Bytes of ucmatose's messages: sizes that rping does not have.
    pub sizes: Vec<u32>,
    /// Connections of ucmatose at once.
    pub at_once: u32,
    /// Programs of perftest, without `ib_`.
    pub tests: Vec<&'static str>,
    /// Bytes of ibv_rc_pingpong's messages, and round trips: where its TCP comes too.
    pub pingpongs: Vec<(u32, u32)>,
}

/// Bytes of perftest's messages, and how many.
pub const MEASURED: (u32, u32) = (3000, 150);

const SHORT: [(u8, u32, u32); 4] = [(4, 64, 10), (4, 3000, 5), (4, 60000, 3), (6, 3000, 5)];
const FULL: [(u8, u32, u32); 10] = [
    (4, 32, 20),
    (4, 64, 100),
    (4, 1024, 20),
    (4, 1025, 20),
    (4, 3000, 50),
    (4, 60000, 20),
    (6, 32, 20),
    (6, 64, 100),
    (6, 3000, 50),
    (6, 65000, 20),
];

impl Job {
    pub fn new(short: bool, loss: u32, largest: u32, has_tcp: bool) -> Self {
        // Fewer messages where each loss costs time.
        let fewer = |count: u32| match loss {
            0 => count,
            1..5 => count / 4 + 1,
            5.. => count / 10 + 1,
        };
        let cases: &[_] = if short { &SHORT } else { &FULL };
        let case = |(port, &(family, size, count))| Case { family, size, count: fewer(count), port };
        let cases = (PINGS..).zip(cases).map(case).collect();
        let sizes: &[u32] = if short { &[1, 1 << 20] } else { &[1, 2, 1024, 1025, 65536, 1 << 20] };
        let sizes = sizes.iter().copied().filter(|size| *size <= largest).collect();
        let tests: &[_] = match (loss, short) {
            (0, true) => &["send_bw", "write_lat"],
            (0, false) => &["send_bw", "write_bw", "read_bw", "send_lat", "write_lat", "read_lat"],
            // What they say to each other is the same, and they end when they are not fast enough.
            _ => &[],
        };
        let pingpongs: &[_] = match (has_tcp, short) {
            (false, _) => &[],
            (true, true) => &[(4096, 100)],
            (true, false) => &[(1, 100), (4096, 400), (100_000, 40)],
        };
        let pingpongs = pingpongs.iter().map(|&(size, count)| (size, fewer(count))).collect();
        Self { cases, sizes, at_once: if short { 16 } else { 64 }, tests: tests.to_vec(), pingpongs }
    }

    /// The ports of the guest's servers of ucmatose, each with the bytes of its messages.
    pub fn ucmatose(&self) -> impl Iterator<Item = (u16, u32)> {
        (UCMATOSE..).zip(self.sizes.iter().copied())
    }

    /// How many cases the guest judges.
    pub fn verdicts(&self) -> usize {
        self.pings_judged() + 2 * self.sizes.len() + 1 + 2 * self.tests.len() + 2 * self.pingpongs.len()
    }

    /// How many of them are rping's.
    pub const fn pings_judged(&self) -> usize {
        2 * self.cases.len() + 1
    }

    /// The guest's part of rping's, as its shell reads it.
    pub fn pings(&self) -> String {
        let mut script = String::new();
        for Case { family, size, count, port } in &self.cases {
            let at = if *family == 4 { "10.0.0.1" } else { "fd00::1" };
            let serve = format!("rping -s -a {at} -p {port} -S {size} -C {count} -V");
            script += &once(&serve, &format!("server {family} {size} {count}"), "$?");
        }
        for (number, Case { family, size, count, .. }) in self.cases.iter().enumerate() {
            let at = if *family == 4 { "10.0.0.2" } else { "fd00::2" };
            let ping = format!("rping -c -a {at} -S {size} -C {count} -V");
            script += &until_there(&ping, &format!("client {family} {size} {count}"));
            if number == 0 {
                // While the program is there: one more case follows.
                script += &once("rping -c -a 10.0.0.2 -p 9999 -C 1", "refused", "$(($? == 0))");
            }
        }
        script
    }

    /// The guest's part of all of them.
    pub fn script(&self) -> String {
        let mut script = self.pings();
        // Sizes that rping does not have; then connections all at once.
        for (port, size) in self.ucmatose() {
            let server = format!("ucmatose -b 10.0.0.1 -p {port} -S {size} -C 5");
            script += &once(&server, &format!("ucmatose server {size}"), "$?");
        }
        for size in &self.sizes {
            let client = format!("ucmatose -s 10.0.0.2 -S {size} -C 5");
            script += &until_there(&client, &format!("ucmatose client {size}"));
        }
        let client = format!("ucmatose -s 10.0.0.2 -p 7472 -S 3000 -C 10 -c {}", self.at_once);
        script += &until_there(&client, "ucmatose at once");
        let (size, count) = MEASURED;
        for test in &self.tests {
            script += &once(&format!("ib_{test} -R -F -s {size} -n {count}"), &format!("{test} server"), "$?");
        }
        for test in &self.tests {
            let client = format!("ib_{test} -R -F -s {size} -n {count} 10.0.0.2");
            script += &until_there(&client, &format!("{test} client"));
        }
        if !self.pingpongs.is_empty() {
            script += "gid=$(cd /sys/class/infiniband/rxe0/ports/1/gids; grep -l :ffff:0a00:0001 * | head -n 1)\n";
        }
        for (size, count) in &self.pingpongs {
            let server = format!("ibv_rc_pingpong -g $gid -s {size} -n {count}");
            script += &once(&server, &format!("rc_pingpong server {size}"), "$?");
        }
        for (size, count) in &self.pingpongs {
            let client = format!("ibv_rc_pingpong -g $gid -s {size} -n {count} -p $port 10.0.2.2");
            script += &until_there(&client, &format!("rc_pingpong client {size}"));
        }
        // For many connections, and for the end in the middle.
        _ = writeln!(script, "rping -s -P -a 10.0.0.1 > /tmp/out 2>&1");
        script
    }
}

/// Runs a command, says a verdict, and what the command has said.
fn once(command: &str, what: &str, code: &str) -> String {
    format!("{command} > /tmp/out 2>&1; echo \"JUDGE {what}: rc {code}\"; cat /tmp/out\n")
}

/// Runs a command until the program at the other end has come to this case.
fn until_there(command: &str, what: &str) -> String {
    format!(
        "n=0; until {command} > /tmp/out 2>&1 || [ $n -gt 60 ]; do n=$((n+1)); sleep 1; done\n\
         echo \"JUDGE {what}: rc $((n > 60))\"; cat /tmp/out\n"
    )
}

#[test]
fn a_script_says_every_verdict() {
    for short in [false, true] {
        for (loss, largest) in [(0, 1 << 20), (5, 1 << 16)] {
            let job = Job::new(short, loss, largest, loss > 0);
            assert_eq!(job.script().matches("JUDGE").count(), job.verdicts());
        }
    }
}
