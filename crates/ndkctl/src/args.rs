//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, builder::PossibleValue};
use conformance::host::{Scheduler, Setup};
use engine::{memory::FastTokens, nic::NicMode};
use ndkpi::NDK_VERSION;
use provider::{CompletionMode, Profile};

use crate::{
    interrupt::First,
    nd2_selftest::Nd2Selftest,
    size::{parse_count, parse_processors, parse_repeat, parse_seconds, parse_seed, parse_size},
};

const EXAMPLES: &str = "\
Try first:
  ndkctl selftest                      every rule of NDKPI, checked on the host
  ndkctl selftest --filter arm         only the cases whose name or section contains `arm`
  ndkctl selftest --list               what is checked, and where the rule stands
  ndkctl ping --size 4K --notify any   latency of a ping-pong over two queue pairs
  ndkctl info --memory                 what the adapter can do, and what objects take in the driver
  ndkctl counters --watch              what adapters count, beside traffic between them

With cargo, put the arguments after two dashes: cargo run --release -- selftest

Exit code: 0 if all is well, 1 if something is not or the command failed, 2 for a wrong argument, 130 after Ctrl-C.
docs/ndkctl.md has more: output for programs, colours, widths, completions.";

/// SoftNDK: an RDMA adapter made of code, for testing NDK consumers.
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
    /// Check every rule of NDKPI on the provider
    Selftest(Selftest),
    /// Measure the latency of a ping-pong over two queue pairs
    Ping(Ping),
    /// Use and end connections in every way for a long time, at random, and look that nothing is left
    Soak(Soak),
    /// Show what the adapter can do (NDK_ADAPTER_INFO)
    Info(Info),
    /// Explain a finding of the adviser (docs/adviser.md)
    Explain(crate::explain::Explain),
    /// List what can go wrong as NDKPI allows, or let it happen in front of the driver's adapters (docs/faults.md)
    Faults(crate::fault_plan::FaultsArgs),
    /// Measure, each figure beside the best of its kind
    Bench(crate::bench::Bench),
    /// List the network interfaces, and which have NDK with what (on other systems the adapters of this program)
    Adapters(Adapters),
    /// Write completions of commands and arguments for a shell
    Completions(crate::completions::Completions),
    /// Show what adapters count (NDIS_NDK_PERFORMANCE_COUNTERS): the driver's on Windows, else this program's beside traffic
    Counters(Counters),
    /// List connections: the driver's on Windows, else this program's, with local endpoints, beside traffic
    Netstat(Netstat),
    /// Show the adapter of the user-mode interface
    Nd2(crate::nd2::Nd2),
    /// Check every sentence about completion queues of the user-mode interface
    Nd2Selftest(Nd2Selftest),
    /// Run driver images in a simulated kernel that checks every rule and replays by seed (elsewhere than on Windows with Wine)
    Run(crate::run::Run),
    /// Have the driver ndktest run for a while in the kernel (Windows)
    DriverRun(DriverRun),
    /// Show or change the settings of the driver softndk (Windows)
    DriverSettings(DriverSettings),
    /// Record what consumers do with the driver softndk (Windows)
    Record(crate::driver_record::DriverRecord),
    /// Run a recording again on the host's provider, and say where it differs
    Replay(crate::replay::Replay),
    /// Draw a recording: a page with zoom and search, or a picture
    Timeline(crate::timeline::TimelineArgs),
    /// Write a recording as packets of RoCE v2, for tools that read pcapng
    Packets(crate::timeline::Packets),
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
            | Self::Record(_) => First::SetsTheFlag,
            Self::Adapters(_)
            | Self::Explain(_)
            | Self::Faults(_)
            | Self::Info(_)
            | Self::Bench(_)
            | Self::Completions(_)
            | Self::Nd2(_)
            | Self::Nd2Selftest(_)
            | Self::Run(_)
            | Self::DriverSettings(_)
            | Self::Replay(_)
            | Self::Timeline(_)
            | Self::Packets(_) => First::Ends,
        }
    }
}

/// Of what kind the machine and the provider are.
#[derive(Clone, Copy, Debug, Args)]
pub struct Machine {
    /// How requests complete: in the call, later, before the call returns, or any of these
    #[arg(long, value_enum, default_value = "mixed", value_name = "MODE")]
    pub completion: Completion,
    /// Processors of the machine, 1 to 64; as many as the host has, between 2 and 8, if not given
    #[arg(long, alias = "threads", value_name = "N", value_parser = parse_processors, allow_negative_numbers = true)]
    pub processors: Option<u32>,
    /// Where work requests are carried out: in deferred calls as hardware would, or in the post if possible
    #[arg(long, value_enum, default_value = "deferred", value_name = "WHERE")]
    pub nic: Nic,
    /// What spin locks do: raise the IRQL and find mistakes, or lock only, which is the shortest path of the engine
    #[arg(long, value_enum, default_value = "watched", value_name = "KIND")]
    pub locks: Locks,
    /// Give a fast-registered region a new remote token with each registration
    #[arg(long)]
    pub rotate_tokens: bool,
    /// What kind of adapter to be limited like (docs/registry.md)
    #[arg(long, value_enum, default_value = "own", value_name = "PROFILE")]
    pub profile: Kind,
}

/// What kind of adapter to be limited like.
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
            ..Setup::default()
        }
    }
}

/// How requests complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Completion {
    /// In the call.
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
    /// In deferred calls.
    Deferred,
    /// In the consumer's post, if possible.
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
    /// Raise the IRQL, and find mistakes.
    Watched,
    /// Nothing but lock.
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
#[command(after_help = "Exit code: 0 if no case failed, 1 if one did, 2 for a wrong argument, 130 after Ctrl-C.")]
pub struct Selftest {
    /// Only the cases whose name or section contains this; several parts are separated by commas
    #[arg(long, value_name = "PART")]
    pub filter: Option<String>,
    /// Have the driver ndktest run the cases in the kernel, on the provider's driver (Windows)
    #[arg(long, conflicts_with_all = [
        "filter", "list", "markdown", "deterministic", "ndkpi", "completion", "processors", "nic",
        "locks", "rotate_tokens", "profile", "recorded", "advise",
    ])]
    pub driver: bool,
    /// With --driver: on the NDK adapter of this network interface, whoever made it: its alias, index or local address
    #[arg(long, requires = "driver", value_name = "INTERFACE")]
    pub interface: Option<String>,
    /// With --interface: a second one, which the first can connect to; for NICs that do not connect to themselves
    #[arg(long, requires = "interface", value_name = "INTERFACE")]
    pub peer: Option<String>,
    /// With --interface: also what a correct consumer never does; a driver that trusts its consumers crashes the machine
    #[arg(long, requires = "interface")]
    pub hostile: bool,
    /// Show the cases instead of running them
    #[arg(long)]
    pub list: bool,
    /// With --list: as the document docs/conformance.md
    #[arg(long, requires = "list", conflicts_with = "json")]
    pub markdown: bool,
    /// Run all of it this often, each time with another seed: 1 to 1000000
    #[arg(long, default_value = "1", value_name = "N", value_parser = parse_repeat, allow_negative_numbers = true)]
    pub repeat: u32,
    /// Determines what is chosen at random; decimal, or hexadecimal after 0x
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Run on one thread in an order that the seed determines: the same seed, the same run
    #[arg(long)]
    pub deterministic: bool,
    /// The major version of NDKPI to open the adapter with; the newest that the profile has, if not given
    #[arg(long, value_enum, value_name = "MAJOR")]
    pub ndkpi: Option<Major>,
    /// The kind of machine and provider.
    #[command(flatten)]
    pub machine: Machine,
    /// Have each call fail once that a provider may fail, a run of the case for each, and look that nothing breaks or is left
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with_all = ["driver", "list", "json", "junit", "advise", "recorded"])]
    pub faults: Option<WhichFaults>,
    /// Let this go wrong, as in `ndkctl faults`: late,chance=300000,delay=~200; may be given up to eight times
    #[arg(long, value_name = "RULE", value_parser = crate::fault_rule::parse,
        conflicts_with_all = ["driver", "list", "advise", "faults", "recorded"])]
    pub fault: Vec<interpose::faults::Rule>,
    /// Run under the adviser, and show what it finds; with --verbose each finding as it is made
    #[arg(long, conflicts_with = "recorded")]
    pub advise: bool,
    /// The recording of the first case that fails, or of the last one.
    #[command(flatten)]
    pub record: crate::record::Record,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the results to this file in the format of JUnit
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Show what the suite notes while it runs
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

/// `ndkctl driver-run`.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "Exit code: 0 if no step failed, 1 if one did, 2 for a wrong argument, 130 after Ctrl-C.")]
pub struct DriverRun {
    /// What the driver does
    #[arg(value_enum, value_name = "WHAT")]
    pub kind: DriverRunKind,
    /// For how long, 1 to 3600
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub seconds: u32,
    /// Determines what is chosen at random; decimal, or hexadecimal after 0x
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl driver-settings`.
#[derive(Clone, Copy, Debug, Args)]
#[command(
    after_help = "Without an option nothing changes. Changes last until the driver is loaded anew; docs/registry.md has \
                        the values it starts with."
)]
pub struct DriverSettings {
    /// How requests complete that could complete in the call
    #[arg(long, value_enum, value_name = "MODE")]
    pub completion: Option<Completion>,
    /// Where queue pairs made from now on carry work requests out
    #[arg(long, value_enum, value_name = "WHERE")]
    pub nic: Option<Nic>,
    /// Moderated notifications are not timed finer than this, in microseconds: 1 to 100000
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub granularity: Option<u32>,
    /// Print the settings as JSON
    #[arg(long)]
    pub json: bool,
}

/// What the driver does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DriverRunKind {
    /// The suite again and again, each time with other random numbers.
    Stress,
    /// Latency, rate and bandwidth of messages.
    Performance,
}

/// How the sides of a ping-pong learn of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Notify {
    /// They ask again and again.
    Poll,
    /// They arm for any completion and wait for the callback.
    Any,
    /// They arm for solicited completions and wait for the callback.
    Solicited,
}

/// `ndkctl ping`.
#[derive(Clone, Debug, Args)]
pub struct Ping {
    /// Bytes of a message, 1 to 1G: a number, with K, M or G for powers of 1024
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = parse_size, allow_negative_numbers = true)]
    pub size: u32,
    /// Round trips, 1 to 100000000
    #[arg(long, default_value = "20000", value_name = "N", value_parser = parse_count, allow_negative_numbers = true)]
    pub count: u32,
    /// How the sides learn of completions
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
#[command(
    after_help = "Exit code: 0 if all went well, 1 if something did not, 2 for a wrong argument, 130 after Ctrl-C."
)]
pub struct Soak {
    /// For how long, 1 to 10080
    #[arg(long, default_value = "10", value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=10_080))]
    pub minutes: u32,
    /// So many rounds instead, 1 to 1000000
    #[arg(long, value_name = "N", value_parser = parse_repeat, conflicts_with = "minutes", allow_negative_numbers = true)]
    pub rounds: Option<u32>,
    /// Determines what is done: that of the first round, one more for each further round; decimal, or hexadecimal after 0x
    #[arg(long, default_value = "0", value_name = "SEED", value_parser = parse_seed, allow_negative_numbers = true)]
    pub seed: u64,
    /// Connections beside each other, 1 to 64
    #[arg(long, default_value = "8", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workers: u32,
    /// Run on one thread in an order that the seed determines: the same seed, the same run
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
    /// Show what each object takes of the non-paged pool in the driver, beside its entries
    #[arg(long)]
    pub memory: bool,
    /// The major version of NDKPI to open the adapter with; the newest that the profile has, if not given
    #[arg(long, value_enum, value_name = "MAJOR")]
    pub ndkpi: Option<Major>,
    /// What kind of adapter to be limited like (docs/registry.md)
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
    /// Show them every second, with what was added, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Print them as JSON
    #[arg(long)]
    pub json: bool,
}

/// `ndkctl netstat`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Netstat {
    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,
}
