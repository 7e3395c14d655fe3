//! Linux' rxe as the judge of the wire: it runs in a guest, `ndkctl wire` is the other end.

mod driver;
mod guest;
mod job;
mod measure;
mod nvme;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::cmd;

use crate::{
    context::{Context, absolute, files, variable},
    packets::read_frames,
};
use guest::Guest;
use job::{Case, Job, MEASURED};

/// Ports of UDP: of this side, and of the guest's. Guests beside each other have ports of their own.
#[derive(Clone, Copy)]
struct Ports {
    here: u16,
    there: u16,
}

impl Ports {
    /// Those of the guest with this number.
    const fn of(number: u16) -> Self {
        Self { here: 25202 + 2 * number, there: 25201 + 2 * number }
    }
}

/// Of a guest that runs alone.
const PORTS: Ports = Ports::of(0);

/// Has Linux' rxe, in a QEMU guest, judge the wire
///
/// A guest with rdma_rxe runs rping, ucmatose, perftest and ibv_rc_pingpong; `ndkctl wire` is the other end, as an ordinary program: no
/// privileges, no kernel module here (of the last one an example of the crate roce is). Both directions, IPv4 and IPv6, data compared; clean over one frame a datagram, and over VXLAN with 1 and 5 % of frames lost each
/// way; refusals; many connections; a guest that is stopped in the middle. Then the example nvme_read reads and writes blocks of Linux'
/// NVMe target, compared on both sides. Five minutes where QEMU has to emulate the processor.
///
/// The guest is made of Debian's packages, and kept in target/rxe. IMAGE names a kernel (linux-image-6.12...); without it the
/// distribution's own is taken. LIMIT is the guest's time in seconds, NDKCTL the program, which is built otherwise.
#[derive(clap::Args)]
pub struct Rxe {
    /// Only make the guest
    #[arg(long)]
    guest: bool,
    /// Less of everything
    #[arg(long)]
    short: bool,
    /// Only the driver's wire: softndknic.sys and the sample consumer in the simulated kernel, under Wine, ping the guest and are pinged.
    /// Needs what `cargo xtask drivers --arch x86_64` and `cargo xtask worker` make
    #[arg(long)]
    driver: bool,
    /// Only measure: perftest between two rxe, and `ndkctl wire` in the place of one of them, over the same cable in one guest whose clock
    /// counts instructions
    #[arg(long, conflicts_with_all = ["short", "driver"])]
    measure: bool,
    /// With --measure: print JSON
    #[arg(long, requires = "measure")]
    json: bool,
}

/// How a guest's frames come here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    /// Its frames are datagrams.
    Dgram,
    /// QEMU's user network; the guest has a VXLAN device over it.
    Vxlan,
}

/// A run of the guest.
struct Run {
    name: &'static str,
    ports: Ports,
    network: Network,
    /// How many frames in a hundred are lost, each way.
    loss: u32,
    connections: u32,
    /// The largest size of ucmatose's messages. rxe's own time-out is 2 s or more, and with each lost NAK it has one.
    largest: u32,
}

impl Rxe {
    pub fn run(&self, context: &Context) -> Result<()> {
        let guest = guest::make(context)?;
        if self.guest {
            return Ok(());
        }
        if self.measure {
            return measure::measure(context, &guest, &context.ndkctl("release")?, self.json);
        }
        let ndkctl = context.ndkctl("dev")?;
        if self.driver {
            driver::need(context)?;
            for (name, percent) in [("driver-clean", 0), ("driver-lossy", 1)] {
                driver::judge(
                    context,
                    &guest,
                    &ndkctl,
                    name,
                    &Job::new(self.short, percent, 0, false),
                    percent * 10_000,
                )?;
            }
            return Ok(());
        }
        let pingpong = context.example("rc_pingpong")?;
        let many = if self.short { 50 } else { 1000 };
        let mut runs = vec![
            Run {
                name: "clean",
                ports: Ports::of(0),
                network: Network::Dgram,
                loss: 0,
                connections: many,
                largest: 1 << 20,
            },
            Run {
                name: "lossy",
                ports: Ports::of(1),
                network: Network::Vxlan,
                loss: 1,
                connections: 10,
                largest: if self.short { 1 << 16 } else { 1 << 20 },
            },
        ];
        if !self.short {
            let (ports, network) = (Ports::of(2), Network::Vxlan);
            runs.push(Run { name: "very-lossy", ports, network, loss: 5, connections: 5, largest: 1 << 16 });
        }
        // Beside each other: with losses most of the time is spent waiting.
        let outcomes: Vec<Result<bool>> = thread::scope(|scope| {
            #[expect(clippy::needless_collect, reason = "all begin before the first is waited for")]
            let threads: Vec<_> =
                runs.iter().map(|run| scope.spawn(|| self.judge(run, &guest, &ndkctl, &pingpong))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a run has panicked"))).collect()
        });
        let mut failed = 0;
        for (run, outcome) in runs.iter().zip(outcomes) {
            failed += usize::from(!outcome.with_context(|| run.name)?);
        }
        if let Err(error) = nvme::judge(context, &guest) {
            failed += 1;
            println!("nvme: {error}");
        }
        for capture in files(&absolute("target/rxe/clean"))? {
            if capture.extension().is_some_and(|end| end == "pcap")
                && let Err(error) = read_frames(context, &capture)
            {
                failed += 1;
                println!("{error}");
            }
        }
        ensure!(failed == 0, "rxe or tshark do not agree");
        Ok(())
    }

    /// One run; whether rxe agrees.
    fn judge(&self, run: &Run, guest: &Guest, ndkctl: &Path, pingpong: &Path) -> Result<bool> {
        // A shell is one thread's.
        let context = Context::new(false)?;
        let job = Job::new(self.short, run.loss, run.largest, run.network == Network::Vxlan);
        let mut judged = Judged { run, job: &job, ndkctl, pingpong, failures: Vec::new() };
        let begun = Instant::now();
        judged.judge(&context, guest)?;
        judged.failures.iter().for_each(|failure| println!("{}: {failure}", run.name));
        if judged.failures.is_empty() {
            println!("{}: rxe agrees, {} s", run.name, begun.elapsed().as_secs());
        }
        Ok(judged.failures.is_empty())
    }
}

struct Judged<'a> {
    run: &'a Run,
    job: &'a Job,
    ndkctl: &'a Path,
    /// The example of `roce`.
    pingpong: &'a Path,
    failures: Vec<String>,
}

impl Judged<'_> {
    fn judge(&mut self, context: &Context, guest: &Guest) -> Result<()> {
        let sh = &context.sh;
        let scratch = absolute("target/rxe").join(self.run.name);
        sh.remove_path(&scratch)?;
        sh.create_dir(scratch.join("job"))?;
        sh.write_file(scratch.join("job/job.sh"), self.job.script())?;
        let log = scratch.join("guest.txt");
        let mut guest = Running::start(context, guest, &scratch, self.run.network, self.run.ports)?;

        for (number, case) in self.job.cases.iter().enumerate() {
            let capture = format!("ping-{number}.pcap");
            let (at, size, count) = (case.guest(), case.size.to_string(), case.count.to_string());
            let ping = ["ping", &at, "--size", &size, "--count", &count, "--wait", "200", "--pcap", &capture];
            self.ours(&scratch, 0, &format!("ping-IPv{}-{size}", case.family), &ping)?;
        }
        self.ours(&scratch, 4, "refused", &["ping", "10.0.0.1:9999"])?;
        let connections = self.job.cases.len().to_string();
        self.ours(&scratch, 0, "serve", &["serve", "--connections", &connections, "--pcap", "serve.pcap"])?;
        for (port, size) in self.job.ucmatose() {
            let (at, bytes) = (format!("10.0.0.1:{port}"), size.to_string());
            let ping = ["ping", &at, "--ucmatose", "--size", &bytes, "--count", "5", "--wait", "60"];
            self.ours(&scratch, 0, &format!("ucmatose-ping-{size}"), &ping)?;
        }
        for size in &self.job.sizes {
            let (bytes, capture) = (size.to_string(), format!("ucmatose-serve-{size}.pcap"));
            let serve =
                ["serve", "--ucmatose", "--size", &bytes, "--count", "5", "--connections", "1", "--pcap", &capture];
            self.ours(&scratch, 0, &format!("ucmatose-serve-{size}"), &serve)?;
        }
        let at_once = self.job.at_once.to_string();
        let serve =
            ["serve", "--ucmatose", "--port", "7472", "--size", "3000", "--count", "10", "--connections", &at_once];
        self.ours(&scratch, 0, "ucmatose-at-once", &serve)?;
        self.perftest(&scratch)?;
        self.pingpongs(&scratch)?;
        let connections = self.run.connections.to_string();
        self.ours(
            &scratch,
            0,
            "connections",
            &["ping", "10.0.0.1", "--connections", &connections, "--count", "1", "--wait", "60"],
        )?;
        self.ours(&scratch, 0, "info", &["info", "10.0.0.1"])?;

        // The guest stops in the middle of a long run: our side ends by itself, and says so.
        let machine = guest.machine(context);
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_secs(3));
                Command::new("kill").args(["-STOP", &machine.to_string()]).status()
            });
            self.ours(&scratch, 8, "stopped", &["ping", "10.0.0.1", "--count", "100000000"])
        })?;
        guest.stop();
        let said = String::from_utf8_lossy(&fs::read(&log)?).replace('\r', "");
        self.failures.extend(judged_by(&said, &log, self.job.verdicts()));
        Ok(())
    }

    /// Perftest's programs as servers, then as clients.
    fn perftest(&mut self, scratch: &Path) -> Result<()> {
        let (size, count) = (MEASURED.0.to_string(), MEASURED.1.to_string());
        let names: Vec<_> = self.job.tests.iter().map(|test| test.replace('_', "-")).collect();
        let (ping, serve): (&[_], &[_]) =
            (&["ping", "10.0.0.1:18515", "--wait", "60"], &["serve", "--connections", "1"]);
        for (begin, what) in [(ping, "client"), (serve, "server")] {
            for test in &names {
                let words = [begin, &["--perftest", test, "--size", &size, "--count", &count]].concat();
                self.ours(scratch, 0, &format!("{test}-{what}"), &words)?;
            }
        }
        Ok(())
    }

    /// ibv_rc_pingpong as a server, then as a client. Its TCP comes by the ports that VXLAN has for UDP.
    fn pingpongs(&mut self, scratch: &Path) -> Result<()> {
        let Ports { here, there } = self.run.ports;
        for (port, what, host) in [(there, "client", Some("127.0.0.1")), (here, "server", None)] {
            for (size, count) in &self.job.pingpongs {
                let words = [("--size", *size), ("--iters", *count), ("--lose", self.run.loss * 10)];
                let mut ours = Command::new(self.pingpong);
                ours.args(["--local", "10.0.0.2/24", "--port", &port.to_string()]).args(host);
                ours.args(["--bind", &format!("127.0.0.1:{here}"), "--peer", &format!("127.0.0.1:{there}")]);
                ours.args(words.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]));
                self.ends(ours, scratch, 0, &format!("rc-pingpong-{what}-{size}"), "txt")?;
            }
        }
        Ok(())
    }

    /// Our side of a case, which must end with this code. `--pcap` names a file in the folder of the run.
    fn ours(&mut self, folder: &Path, expected: i32, what: &str, arguments: &[&str]) -> Result<()> {
        let network = if self.run.network == Network::Dgram { "dgram" } else { "vxlan" };
        let mut wire = Command::new(self.ndkctl);
        wire.arg("wire").args(arguments).current_dir(folder);
        wire.args(["--local", "10.0.0.2/24", "--local", "fd00::2/64", "--network", network]);
        let Ports { here, there } = self.run.ports;
        wire.args(["--bind", &format!("127.0.0.1:{here}"), "--peer", &format!("127.0.0.1:{there}")]);
        wire.args([
            "--lose",
            &self.run.loss.to_string(),
            "--seed",
            &variable("SEED").unwrap_or_else(|| "1".to_owned()),
        ]);
        wire.args(["--json", "--patience", if expected == 8 { "20" } else { "60" }]);
        self.ends(wire, folder, expected, what, "json")
    }

    /// Runs our side of a case, which must end with this code. What it says is kept in the folder, in files named for the case.
    fn ends(&mut self, mut side: Command, folder: &Path, expected: i32, what: &str, form: &str) -> Result<()> {
        let (report, errors) = (folder.join(format!("{what}.{form}")), folder.join(format!("{what}.err")));
        let status = side.stdout(fs::File::create(&report)?).stderr(fs::File::create(&errors)?).status()?;
        if status.code() == Some(expected) || self.lost_dreq(&fs::read_to_string(&report)?) {
            println!("  {} {what}: right", self.run.name);
        } else {
            self.failures.push(format!("    {what}: {status}: {}", fs::read_to_string(&errors)?));
        }
        Ok(())
    }

    /// Whether nothing is wrong but that the peer says no more when it might begin again. A Linux process that ends sends its DREQ once: if
    /// that is lost this side waits in vain. The guest says if all messages were right.
    fn lost_dreq(&self, report: &str) -> bool {
        let mut wrong = report.lines().filter(|line| line.contains("\"what\"")).peekable();
        self.run.loss > 0
            && wrong.peek().is_some()
            && wrong.all(|line| line.contains("a source: the peer does not answer any more"))
    }
}

/// What is wrong, if the guest does not agree with so many cases.
fn judged_by(said: &str, log: &Path, cases: usize) -> Option<String> {
    let verdicts = said.lines().map(str::trim_end).filter(|line| line.contains("JUDGE"));
    let (good, wrong): (Vec<&str>, Vec<&str>) = verdicts.partition(|line| line.ends_with(": rc 0"));
    if good.len() == cases {
        return None;
    }
    let mut failure =
        format!("the guest agrees with {} of {cases} cases; {} has what it says", good.len(), log.display());
    for line in wrong {
        _ = write!(failure, "\n    {line}");
    }
    Some(failure)
}

/// A guest that runs. It ends with this value.
struct Running(Child);

impl Running {
    fn start(context: &Context, guest: &Guest, scratch: &Path, network: Network, ports: Ports) -> Result<Self> {
        let Ports { here, there } = ports;
        let initrd = join(context, guest, scratch)?;
        let (netdev, name) = match network {
            Network::Dgram => (
                format!(
                    "dgram,id=n0,local.type=inet,local.host=127.0.0.1,local.port={there},remote.type=inet,\
                     remote.host=127.0.0.1,remote.port={here}"
                ),
                "dgram",
            ),
            Network::Vxlan => (
                format!("user,id=n0,hostfwd=udp:127.0.0.1:{there}-:{here},hostfwd=tcp:127.0.0.1:{there}-:18515"),
                "vxlan",
            ),
        };
        Self::machine_of(guest, scratch, initrd, &format!("network={name} port={here}"), &netdev, &[])
    }

    /// A guest without peers outside. Its clock counts instructions.
    fn counting(context: &Context, guest: &Guest, scratch: &Path) -> Result<Self> {
        let initrd = join(context, guest, scratch)?;
        Self::machine_of(guest, scratch, initrd, "network=none", "user,id=n0", &["-icount", "shift=0,sleep=off"])
    }

    fn machine_of(
        guest: &Guest,
        scratch: &Path,
        initrd: PathBuf,
        words: &str,
        netdev: &str,
        more: &[&str],
    ) -> Result<Self> {
        let line = format!("console=ttyS0 panic=-1 quiet no_timer_check rcupdate.rcu_cpu_stall_suppress=1 {words}");
        let mut qemu = Command::new("timeout");
        qemu.arg(variable("LIMIT").unwrap_or_else(|| "500".to_owned())).arg("qemu-system-x86_64");
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "q35", "-accel", "tcg"]);
        qemu.args(["-cpu", "max", "-smp", "1", "-m", "448"]).args(more);
        qemu.arg("-serial").arg(format!("file:{}", scratch.join("guest.txt").display()));
        qemu.arg("-kernel").arg(&guest.kernel).arg("-initrd").arg(initrd).args(["-append", &line, "-netdev", netdev]);
        qemu.args(["-device", "virtio-net-pci,netdev=n0,mac=02:00:00:00:00:01"]);
        Ok(Self(qemu.stdin(Stdio::null()).spawn().context("timeout")?))
    }

    /// Waits until the guest has ended by itself.
    fn wait(&mut self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if let Some(status) = self.0.try_wait()? {
                ensure!(status.success(), "the guest: {status}; LIMIT is its time in seconds");
                return Ok(());
            }
            thread::sleep(Duration::from_millis(200));
        }
        bail!("the guest has not ended")
    }

    /// The process of QEMU itself, which `timeout` has started.
    fn machine(&self, context: &Context) -> u32 {
        let (sh, parent) = (&context.sh, self.0.id());
        let id = parent.to_string();
        let child = cmd!(sh, "pgrep -P {id}").quiet().read().ok();
        child.and_then(|child| child.trim().parse().ok()).unwrap_or(parent)
    }

    fn stop(&mut self) {
        let children = Command::new("pkill").args(["-KILL", "-P", &self.0.id().to_string()]).status();
        // Both may have ended by themselves.
        _ = (children, self.0.kill(), self.0.wait());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the kernel unpacks at its start: the job, and the guest's root.
fn join(context: &Context, guest: &Guest, scratch: &Path) -> Result<PathBuf> {
    let (job, whole) = (scratch.join("job.cpio"), scratch.join("guest.cpio"));
    guest::pack(context, &scratch.join("job"), &job)?;
    let mut bytes = fs::read(job)?;
    bytes.extend(fs::read(&guest.root)?);
    context.sh.write_file(&whole, bytes)?;
    Ok(whole)
}

impl Case {
    /// The guest's server.
    fn guest(&self) -> String {
        let address = if self.family == 4 { "10.0.0.1" } else { "[fd00::1]" };
        format!("{address}:{}", self.port)
    }
}
