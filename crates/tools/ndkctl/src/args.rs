//! The commands and their arguments.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::PossibleValue};
use conformance::host::{Impairments, Scheduler, Setup};
use control::network::AGENT_PORT;
use engine::{memory::FastTokens, nic::NicMode};
use ndkpi::{NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED, NDK_VERSION};
use provider::{CompletionMode, Profile};

use crate::{
    driver::Of,
    interrupt::First,
    nd2_selftest::Nd2Selftest,
    size::{parse_count, parse_processors, parse_repeat, parse_seconds, parse_seed, parse_size},
};

const EXAMPLES: &str = "\
Try first:
  ndkctl selftest                      run the conformance suite on this machine
  ndkctl selftest --filter arm         only the cases whose name or section contains `arm`
  ndkctl selftest --list               list the cases and the rules they check
  ndkctl ping --size 4K --notify any   measure a ping-pong between two queue pairs
  ndkctl info --memory                 show the adapter's limits, and the memory each object takes in the driver
  ndkctl counters --watch              watch the adapters' counters

With cargo, put the arguments after two dashes: cargo run -- selftest

Exit code: 0 for success, 1 if a check or the command itself failed, 2 for a wrong argument, 130 after Ctrl-C.
docs/ndkctl.md describes JSON output, colours, widths and completions.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "ndkctl", version, about, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the conformance suite: every rule of NDKPI, checked on a provider
    Selftest(Selftest),
    /// Measure the latency of a ping-pong between two queue pairs
    Ping(Ping),
    /// Use and end connections at random for a long time, and check that no byte is wrong and nothing leaks
    Soak(Soak),
    /// Show the limits and flags of the adapter (NDK_ADAPTER_INFO)
    Info(Info),
    /// Explain a finding of the adviser, or the reason of a failed request
    Explain(crate::explain::Explain),
    /// List the failures that NDKPI allows, or inject them in front of the driver's adapters (docs/faults.md)
    Faults(crate::fault_plan::FaultsArgs),
    /// Run benchmarks, each beside the best of its kind
    Bench(crate::bench::Bench),
    /// List the network interfaces and their NDK capabilities (not on Windows: this program's own adapters)
    Adapters(Adapters),
    /// Print completions of commands and arguments for a shell
    Completions(crate::completions::Completions),
    /// Write manual pages, one for each command
    Man(crate::man::Man),
    /// Show the RDMA counters: the driver's on Windows, elsewhere those of traffic that this command makes
    Counters(Counters),
    /// List connections and listeners: the driver's on Windows, elsewhere those of traffic that this command makes
    Netstat(Netstat),
    /// Show or install the user-mode interface, softnd.dll
    Nd2(crate::nd2::Nd2),
    /// Run the self-test of the user-mode interface
    Nd2Selftest(Nd2Selftest),
    /// Run driver images in a simulated kernel that checks every rule and repeats a run from its seed (not on Windows: under
    /// Wine)
    Run(crate::run::Run),
    /// Install the drivers, look at them, run tests in them, change their settings (Windows)
    Driver(DriverArgs),
    /// Join virtual NICs (Windows)
    Nic(crate::installing::NicArgs),
    /// Show what stands between this machine and a working SoftNDK, and what to do about it
    Doctor(crate::doctor::Doctor),
    /// The former name of `driver run`
    #[command(hide = true)]
    DriverRun(DriverRun),
    /// The former name of `driver settings`
    #[command(hide = true)]
    DriverSettings(DriverSettings),
    /// Make a project for a consumer in C or in Rust, which builds, runs and has a CI file
    New(crate::new::New),
    /// Record what consumers do with the driver softndk (Windows)
    Record(crate::driver_record::DriverRecord),
    /// Repeat a recording on this machine's provider, and show the differences
    Replay(crate::replay::Replay),
    /// Show the results of a self-test as an HTML page, or what has changed since others
    Report(crate::report::ReportArgs),
    /// Draw a recording: an HTML page with zoom and search, or a picture
    Timeline(crate::timeline::TimelineArgs),
    /// Write the RoCEv2 packets that a recording over a wire has, for tools that read pcapng
    Packets(crate::timeline::Packets),
    /// Talk to other machines over RoCEv2: Linux' rxe, RoCE cards, other SoftNDKs (docs/wire.md)
    Wire(crate::wire::args::WireArgs),
}

impl Command {
    /// What the first Ctrl-C does to it.
    pub const fn at_ctrl_c(&self) -> First {
        match self {
            Self::Selftest(_)
            | Self::Ping(_)
            | Self::Soak(_)
            | Self::Counters(_)
            | Self::Netstat(_)
            | Self::DriverRun(_)
            // What was begun is undone.
            | Self::Nic(_)
            | Self::Record(_)
            | Self::Run(_)
            | Self::Wire(_) => First::SetsTheFlag,
            Self::Driver(args) => match args.command {
                DriverCommand::Install(_)
                | DriverCommand::Uninstall(_)
                | DriverCommand::Run(_)
                | DriverCommand::Agent(_) => First::SetsTheFlag,
                DriverCommand::Status(_) | DriverCommand::Settings(_) => First::Ends,
            },
            Self::Adapters(_)
            | Self::Doctor(_)
            | Self::Explain(_)
            | Self::Faults(_)
            | Self::Info(_)
            | Self::Bench(_)
            | Self::Completions(_)
            | Self::Nd2(_)
            | Self::Nd2Selftest(_)
            | Self::DriverSettings(_)
            | Self::Man(_)
            | Self::New(_)
            | Self::Replay(_)
            | Self::Report(_)
            | Self::Timeline(_)
            | Self::Packets(_) => First::Ends,
        }
    }
}

/// The kind of machine and provider.
#[derive(Clone, Copy, Debug, Args)]
pub struct Machine {
    /// How requests complete that may pend
    #[arg(long, value_enum, default_value = "mixed", value_name = "MODE")]
    pub completion: Completion,
    /// Number of processors, 1 to 64; by default as many as the host has, between 2 and 8
    #[arg(long, alias = "threads", value_name = "N", value_parser = parse_processors, allow_negative_numbers = true)]
    pub processors: Option<u32>,
    /// Where work requests are carried out
    #[arg(long, value_enum, default_value = "deferred", value_name = "WHERE")]
    pub nic: Nic,
    /// What spin locks do besides locking
    #[arg(long, value_enum, default_value = "watched", value_name = "KIND")]
    pub locks: Locks,
    /// Give a fast-registered region a new remote token with each registration
    #[arg(long)]
    pub rotate_tokens: bool,
    /// Limit the adapter like this kind of hardware (docs/registry.md)
    #[arg(long, value_enum, default_value = "own", value_name = "PROFILE")]
    pub profile: Kind,
    /// Connect two adapters by RoCEv2 frames over a wire in memory, instead of through memory alone (docs/wire.md)
    #[arg(long)]
    pub wire: bool,
    /// With --wire: lose so many frames of a hundred, by the seed
    #[arg(long, requires = "wire", value_name = "PERCENT", value_parser = parse_loss)]
    pub lose: Option<u16>,
}

/// Parts in a thousand, from a percentage.
fn parse_loss(text: &str) -> Result<u16, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok().filter(|number| (0.0..=50.0).contains(number));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 500")]
    number.map(|number| (number * 10.0).round() as u16).ok_or_else(|| "a percentage from 0 to 50: 1, 0.5".to_owned())
}

/// The kind of hardware whose limits an adapter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub Profile);

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Self] {
        const KINDS: [Kind; Profile::ALL.len()] = {
            let mut kinds = [Kind(Profile::Own); Profile::ALL.len()];
            let mut number = 0;
            while number < kinds.len() {
                kinds[number] = Kind(Profile::ALL[number]);
                number += 1;
            }
            kinds
        };
        &KINDS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.title()))
    }
}

impl Kind {
    /// The version to open the adapter with: that of the major version asked for, or of the newest that the profile has.
    ///
    /// # Errors
    ///
    /// One line, if the profile does not have the major version.
    pub fn version(self, asked: Option<Major>) -> Result<NDK_VERSION, String> {
        let has = |major: Major| self.0.versions().iter().any(|version| version.Major == major.version().Major);
        match asked {
            None => Ok(if has(Major::Two) { Major::Two } else { Major::One }.version()),
            Some(major) if has(major) => Ok(major.version()),
            Some(_) => Err(format!("the profile {} has NDKPI 1 only: use --ndkpi 1", self.0.name())),
        }
    }
}

impl Machine {
    /// The machine with this seed.
    pub fn setup(self, seed: u64) -> Setup {
        Setup {
            completion: self.completion.into(),
            processors: self.processors,
            nic: self.nic.into(),
            watched_locks: self.locks == Locks::Watched,
            profile: self.profile.0,
            fast_tokens: if self.rotate_tokens { FastTokens::Rotating } else { FastTokens::Stable },
            seed,
            // Without connections to themselves the suite takes both adapters, and all goes over the wire.
            without: if self.wire { NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED } else { 0 },
            wire: self.wire.then(|| Impairments { loss: self.lose.unwrap_or(0), ..Impairments::default() }),
            ..Setup::default()
        }
    }
}

/// How requests complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Completion {
    /// Within the call.
    Inline,
    /// By a callback after the call has returned.
    Pending,
    /// By a callback before the call returns.
    Early,
    /// Any of these.
    Mixed,
}

impl From<Completion> for CompletionMode {
    fn from(completion: Completion) -> Self {
        match completion {
            Completion::Inline => Self::Inline,
            Completion::Pending => Self::Pending,
            Completion::Early => Self::Early,
            Completion::Mixed => Self::Mixed,
        }
    }
}

/// Where work requests are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Nic {
    /// In a DPC, as hardware would.
    Deferred,
    /// In the consumer's post, where possible.
    Direct,
}

impl From<Nic> for NicMode {
    fn from(nic: Nic) -> Self {
        match nic {
            Nic::Deferred => Self::Deferred,
            Nic::Direct => Self::Direct,
        }
    }
}

/// What spin locks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Locks {
    /// Raise the IRQL and check for misuse.
    Watched,
    /// Nothing: the fastest.
    Plain,
}

/// The major version to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Major {
    /// NDKPI 1: Windows Server 2012 and 2012 R2.
    #[value(name = "1")]
    One,
    /// NDKPI 2: Windows Server 2016 and later.
    #[value(name = "2")]
    Two,
}

impl Major {
    /// The version with which a consumer asks for it.
    pub const fn version(self) -> NDK_VERSION {
        match self {
            Self::One => NDK_VERSION::new(1, 0),
            Self::Two => NDK_VERSION::new(2, 0),
        }
    }
}

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhichFaults {
    /// Each one, once.
    EachCall,
}

/// `ndkctl selftest`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit code: 0 if every rule that applies holds, 1 if a case failed or was inconclusive, 2 for a wrong argument, \
                        130 after Ctrl-C."
)]
pub struct Selftest {
    /// Run only cases whose name or section contains this, or the case of this name; separate several with commas
    #[arg(long, value_name = "PART", value_parser = crate::words::filter)]
    pub filter: Option<String>,
    /// Leave out what this file names: a case or a theme on each line, # before a remark
    #[arg(long, value_name = "FILE")]
    pub exclude: Option<PathBuf>,
    /// Leave out the cases before this one, in the order of --list
    #[arg(long, value_name = "CASE")]
    pub from: Option<String>,
    /// Run the suite in the kernel, with the driver ndktest on the driver softndk (Windows)
    #[arg(long, conflicts_with_all = [
        "deterministic", "completion", "processors", "nic", "locks", "rotate_tokens", "profile", "wire",
    ])]
    pub driver: bool,
    /// With --driver: test the NDK adapter of this network interface, from any vendor; its alias, index or local address
    #[arg(long, requires = "driver", conflicts_with_all = ["recorded", "fault", "advise"], value_name = "INTERFACE")]
    pub interface: Option<String>,
    /// With --interface: a second interface that the first can connect to, for NICs that cannot connect to themselves; or
    /// @ADDRESS, a machine on which `ndkctl driver agent` runs
    #[arg(long, requires = "interface", value_name = "INTERFACE")]
    pub peer: Option<String>,
    /// With --interface: include calls that a correct consumer never makes; they crash the machine if the driver trusts its
    /// consumers
    #[arg(long, requires = "interface")]
    pub hostile: bool,
    /// List the cases instead of running them
    #[arg(long, conflicts_with_all = ["repeat", "recorded", "junit", "advise", "verbose", "deterministic"])]
    pub list: bool,
    /// With --list: print the document docs/conformance.md
    #[arg(long, requires = "list", conflicts_with = "json")]
    pub markdown: bool,
    /// Number of runs, each with the next seed: 1 to 1000000
    #[arg(long, default_value = "1", value_name = "N", value_parser = parse_repeat, allow_negative_numbers = true)]
    pub repeat: u32,
    /// Seed of the random choices; decimal, or hexadecimal after 0x
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Run on one thread in an order that the seed determines, so that a run can be repeated
    #[arg(long)]
    pub deterministic: bool,
    /// Major version of NDKPI to open the adapter with; by default the newest that the profile has
    #[arg(long, value_enum, value_name = "MAJOR")]
    pub ndkpi: Option<Major>,
    /// The kind of machine and provider.
    #[command(flatten)]
    pub machine: Machine,
    /// Fail every call that may fail, one per run of a case, and check that nothing breaks or leaks
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with_all = ["driver", "list", "json", "junit", "advise", "recorded"])]
    pub faults: Option<WhichFaults>,
    /// Inject a failure, written as for `ndkctl faults`: late,chance=300000,delay=~200; up to eight times
    #[arg(long, value_name = "RULE", value_parser = crate::fault_rule::parse,
        conflicts_with_all = ["list", "advise", "faults", "recorded"])]
    pub fault: Vec<interpose::faults::Rule>,
    /// Run under the adviser and show its findings; with --verbose each one as it is made
    #[arg(long)]
    pub advise: bool,
    /// The recording of the first case that fails, or of the last one.
    #[command(flatten)]
    pub record: crate::record::Record,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Also write the results to this file, in JUnit format
    #[arg(long, value_name = "FILE", value_parser = crate::words::out_file)]
    pub junit: Option<PathBuf>,
    /// Keep in this file which case is running, so that a crash of the machine does not lose it; with --driver always done, and
    /// by default in the folder for temporary files
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "faults"])]
    pub progress: Option<PathBuf>,
    /// Go on with the run that the progress file is about, behind the case that was running when it ended; with the arguments of
    /// that run
    #[arg(long, conflicts_with_all = [
        "filter", "exclude", "from", "list", "markdown", "repeat", "seed", "interface", "peer", "hostile", "fault", "faults",
        "recorded", "advise", "ndkpi", "deterministic", "completion", "processors", "nic", "locks", "rotate_tokens", "profile",
        "wire", "lose",
    ])]
    pub resume: bool,
    /// Show the notes of the suite as it runs
    #[arg(long)]
    pub verbose: bool,
}

impl Selftest {
    /// The machine to run on.
    pub fn setup(&self) -> Setup {
        let setup = self.machine.setup(self.seed);
        if self.deterministic {
            return Setup { scheduler: Scheduler::Seeded { seed: self.seed, preemption: 10 }, ..setup };
        }
        setup
    }
}

/// `ndkctl driver`.
#[derive(Clone, Debug, Args)]
pub struct DriverArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: DriverCommand,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum DriverCommand {
    /// Install drivers from their packages, or replace those that are there (elevated)
    Install(crate::installing::Install),
    /// Remove the devices and packages of drivers (elevated)
    Uninstall(crate::installing::Uninstall),
    /// Show the packages and the devices of the drivers
    Status(crate::installing::Status),
    /// Run a stress test or a benchmark in the kernel, with the driver ndktest
    Run(DriverRun),
    /// Let another machine's run of the suite have the adapter of this one, with the driver ndktest on both
    Agent(DriverAgent),
    /// Show or change the settings of the driver softndk
    Settings(DriverSettings),
}

/// `ndkctl driver run`.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "Exit code: 0 if no step failed, 1 if one did, 2 for a wrong argument, 130 after Ctrl-C.")]
pub struct DriverRun {
    /// What to run
    #[arg(value_enum, value_name = "WHAT")]
    pub kind: DriverRunKind,
    /// Duration in seconds, 1 to 3600
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: u32,
    /// Seed of the random choices; decimal, or hexadecimal after 0x
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl driver agent`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "On the other machine: ndkctl selftest --driver --interface \"Ethernet 3\" --peer @ADDRESS, with an address of this one. \
                  Windows' firewall has to let the eight ports in. Whoever sends from the address that is named may have the kernel \
                  of this machine call its NDK provider: for networks of a laboratory.\n\n\
                  Exit code: 0 when the time is up, 2 for a wrong argument, 130 after Ctrl-C."
)]
pub struct DriverAgent {
    /// The NDK adapter of this network interface, from any vendor; its alias, index or local address
    #[arg(long, value_name = "INTERFACE")]
    pub interface: String,
    /// The address of the machine whose run it is for; nobody else's calls are taken
    #[arg(long, value_name = "ADDRESS")]
    pub calls_from: IpAddr,
    /// The first of eight UDP ports
    #[arg(long, default_value_t = AGENT_PORT, value_name = "PORT",
        value_parser = clap::value_parser!(u16).range(1..=65_528))]
    pub port: u16,
    /// Duration in seconds, 1 to 3600; by default 3600
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: Option<u32>,
}

/// `ndkctl driver settings`.
#[derive(Clone, Copy, Debug, Args)]
#[command(
    after_help = "Without an option, shows the settings, and of adapters with a wire WirePeer, WireVni, WireLocal and WirePort, which are \
                  changed by Set-NetAdapterAdvancedProperty. A change here lasts until the driver is loaded again; docs/registry.md has \
                  the settings it starts with."
)]
pub struct DriverSettings {
    /// How requests complete that could complete within the call
    #[arg(long, value_enum, value_name = "MODE")]
    pub completion: Option<Completion>,
    /// Where work requests of new queue pairs are carried out
    #[arg(long, value_enum, value_name = "WHERE")]
    pub nic: Option<Nic>,
    /// Timer granularity of moderated notifications, in microseconds: 1 to 100000
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub granularity: Option<u32>,
    #[command(flatten)]
    pub of: Of,
    /// Print the settings as JSON
    #[arg(long)]
    pub json: bool,
}

/// What the driver runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DriverRunKind {
    /// The suite, repeated with different random numbers.
    Stress,
    /// Latency, rate and bandwidth of messages.
    Performance,
}

/// How each side of a ping-pong learns of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Notify {
    /// Polls all the time.
    Poll,
    /// Arms for any completion and waits for the callback.
    Any,
    /// Arms for solicited completions and waits for the callback.
    Solicited,
}

/// `ndkctl ping`.
#[derive(Clone, Debug, Args)]
pub struct Ping {
    /// Message size, 1 to 1G bytes; K, M and G are powers of 1024
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = parse_size, allow_negative_numbers = true)]
    pub size: u32,
    /// Number of round trips, 1 to 100000000
    #[arg(long, default_value = "20000", value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub count: u32,
    /// How each side learns of completions
    #[arg(long, value_enum, default_value = "poll", value_name = "HOW")]
    pub notify: Notify,
    /// The kind of machine and provider.
    #[command(flatten)]
    pub machine: Machine,
    /// The recording.
    #[command(flatten)]
    pub record: crate::record::Record,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl soak`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit code: 0 for success, 1 if a round failed, 2 for a wrong argument, 130 after Ctrl-C.")]
pub struct Soak {
    /// Duration in minutes, 1 to 10080
    #[arg(long, default_value = "10", value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=10_080))]
    pub minutes: u32,
    /// Number of rounds, instead of a duration: 1 to 1000000
    #[arg(long, value_name = "N", value_parser = parse_repeat, conflicts_with = "minutes", allow_negative_numbers = true)]
    pub rounds: Option<u32>,
    /// Seed of the first round; each further round has the next one. Decimal, or hexadecimal after 0x
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Concurrent connections, 1 to 64
    #[arg(long, default_value = "8", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workers: u32,
    /// Run on one thread in an order that the seed determines, so that a run can be repeated
    #[arg(long)]
    pub deterministic: bool,
    /// The kind of machine and provider.
    #[command(flatten)]
    pub machine: Machine,
    /// The recording of the round that fails, or of the last one.
    #[command(flatten)]
    pub record: crate::record::Record,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl info`.
#[derive(Clone, Debug, Args)]
pub struct Info {
    /// Show the non-paged pool that each object takes in the driver
    #[arg(long)]
    pub memory: bool,
    /// Major version of NDKPI to open the adapter with; by default the newest that the profile has
    #[arg(long, value_enum, value_name = "MAJOR")]
    pub ndkpi: Option<Major>,
    /// Limit the adapter like this kind of hardware (docs/registry.md)
    #[arg(long, value_enum, default_value = "own", value_name = "PROFILE")]
    pub profile: Kind,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl adapters`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Adapters {
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl counters`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Counters {
    /// Repeat every second with the difference, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    #[command(flatten)]
    pub of: Of,
    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl netstat`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Netstat {
    #[command(flatten)]
    pub of: Of,
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}
