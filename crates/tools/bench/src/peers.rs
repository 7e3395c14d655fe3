//! Programs that measure other transports on this machine: UCX and libfabric, over shared memory and TCP.

use std::{
    io::Read,
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::measure::Cores;

/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(30);

/// What an absent program is reported with.
pub const ABSENT: &str = "not installed (cargo xtask bench --peers)";

/// A program with two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// `ucx_perftest -t tag_lat`: the median of half round trips.
    UcxLatency,
    /// `ucx_perftest -t tag_lat` over TCP on this machine.
    UcxTcpLatency,
    /// `ucx_perftest -t tag_bw -O 64`: messages with so many on the way.
    UcxRate,
    /// `fi_pingpong` of the provider `shm`: half round trips.
    FabricLatency,
}

impl Peer {
    /// What the report calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UcxLatency => "UCX tag_lat, posix shm",
            Self::UcxTcpLatency => "UCX tag_lat, tcp",
            Self::UcxRate => "UCX tag_bw, posix shm",
            Self::FabricLatency => "libfabric fi_pingpong, shm",
        }
    }

    const fn program(self) -> &'static str {
        match self {
            Self::UcxLatency | Self::UcxTcpLatency | Self::UcxRate => "ucx_perftest",
            Self::FabricLatency => "fi_pingpong",
        }
    }

    /// Returns true if the program is there.
    #[must_use]
    pub fn is_installed(self) -> bool {
        let mut command = Command::new(self.program());
        command.arg("-h").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok()
    }

    /// One run with messages of `size` bytes, each side on its core: nanoseconds for a message.
    ///
    /// # Errors
    ///
    /// In words, what went wrong.
    pub fn run(self, cores: &Cores, size: u32, messages: usize) -> Result<f64, String> {
        let port = free_port()?;
        let server = self.start(cores, false, port, size, messages)?;
        let mut server = Killed(server);
        let started = Instant::now();
        // The server listens in a moment; until then there is nobody to connect to.
        thread::sleep(Duration::from_millis(200));
        loop {
            let client = Killed(self.start(cores, true, port, size, messages)?);
            let (good, output) = client.output()?;
            if good {
                server.0.wait().map_err(|error| error.to_string())?;
                return self.parse(&output).ok_or_else(|| format!("{} said: {output}", self.program()));
            }
            if started.elapsed() > Duration::from_secs(5) {
                return Err(format!("{} fails: {output}", self.program()));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn start(self, cores: &Cores, client: bool, port: u16, size: u32, messages: usize) -> Result<Child, String> {
        let mut command = Command::new(self.program());
        let (size, messages, port) = (size.to_string(), messages.to_string(), port.to_string());
        match self {
            Self::UcxLatency | Self::UcxTcpLatency | Self::UcxRate => {
                let test = if self == Self::UcxRate { "tag_bw" } else { "tag_lat" };
                let transport = if self == Self::UcxTcpLatency { "tcp" } else { "posix" };
                command.env("UCX_TLS", transport).env("UCX_LOG_LEVEL", "error");
                if self == Self::UcxTcpLatency {
                    command.env("UCX_NET_DEVICES", "lo");
                }
                command.args(["-t", test, "-p", &port, "-s", &size, "-n", &messages, "-f", "-v"]);
                if self == Self::UcxRate {
                    command.args(["-O", "64"]);
                }
                if client {
                    command.arg("localhost");
                }
            }
            Self::FabricLatency => {
                command.args(["-p", "shm", "-e", "rdm", "-S", &size, "-I", &messages]);
                if client {
                    command.args(["-P", &port, "localhost"]);
                } else {
                    command.args(["-B", &port]);
                }
            }
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(if client { Stdio::piped() } else { Stdio::null() });
        // A program that is started inherits the core of the thread that starts it.
        if client {
            cores.pin_second();
        } else {
            cores.pin_first();
        }
        let child = command.spawn().map_err(|error| format!("{}: {error}", self.program()));
        cores.pin_first();
        child
    }

    /// Nanoseconds for a message, out of what the program has written.
    fn parse(self, output: &str) -> Option<f64> {
        let mut lines = output.lines().rev().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        let line = lines.next()?;
        match self {
            // iterations,median,average,overall latency in microseconds, bandwidths, rates
            Self::UcxLatency | Self::UcxTcpLatency => {
                line.split(',').nth(1)?.parse::<f64>().ok().map(|micros| micros * 1e3)
            }
            Self::UcxRate => line.split(',').next_back()?.trim().parse::<f64>().ok().map(|rate| 1e9 / rate),
            // bytes, sent, acknowledged, total, time, MB/sec, usec/xfer, Mxfers/sec
            Self::FabricLatency => line.split_whitespace().nth(6)?.parse::<f64>().ok().map(|micros| micros * 1e3),
        }
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// A program that does not outlive the value.
struct Killed(Child);

impl Killed {
    /// Waits for the end. Whether it was a good one, and what the program has written.
    fn output(mut self) -> Result<(bool, String), String> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().map_err(|error| error.to_string())? {
                let mut output = String::new();
                if let Some(mut pipe) = self.0.stdout.take() {
                    pipe.read_to_string(&mut output).map_err(|error| error.to_string())?;
                }
                return Ok((status.success(), output));
            }
            if started.elapsed() > LIMIT {
                return Err("it does not end".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // It has ended already, unless something went wrong.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::Peer;

    #[test]
    fn the_figure_is_found_in_the_output() {
        let output = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                      200000,0.160,0.162,0.162,47.03,47.03,6164853,6164853\n";
        assert_eq!(Peer::UcxLatency.parse(output), Some(160.0));
        assert_eq!(Peer::UcxRate.parse(output), Some(1e9 / 6_164_853.0));
        let output = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                      8       100k    =100k    1.5m        0.05s     30.84       0.26       3.86\n";
        assert_eq!(Peer::FabricLatency.parse(output), Some(260.0));
        assert_eq!(Peer::UcxLatency.parse("nothing"), None);
    }
}
