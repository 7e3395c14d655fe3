//! Instructions, counted by callgrind: the same on a busy machine as on an idle one.
//!
//! The program runs itself under callgrind, with a scenario. Only what happens inside of `repeat` is counted.

use std::{
    collections::BTreeMap,
    fs,
    hint::black_box,
    process::{Command, Stdio},
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Release},
    },
};

use engine::cq::{
    Cq, CqClient, CqConsumer, CqParameters,
    notify::{ArmType, CqFailure},
};
use fallible::Shared;
use host::{HostOs, machine::Machine};
use ndkpi::{NDK_OP_FLAG_INLINE, NDK_RESULT_EX, NtStatus};
use provider::NicMode;

use crate::{
    ndk::{Connection, Plan},
    rows::cq::{Quiet, completion},
};

/// The environment variable that names the scenario to run, instead of anything else.
pub const SCENARIO: &str = "SOFTNDK_BENCH_SCENARIO";

/// Repetitions: enough that what is done once does not show.
const COUNT: usize = 4096;

/// What is counted: a name, and what one repetition does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// Nothing: the cost of repeating.
    Nothing,
    /// An arm of a queue that has nothing new.
    ArmNothingNew,
    /// An arm that an entry satisfies already: the callback is queued.
    ArmFires,
    /// A completion put into a queue that is not armed.
    PushUnarmed,
    /// A completion put into a queue that is armed for solicited ones.
    PushArmed,
    /// A completion taken out of a queue.
    Poll,
    /// Arm, completion, callback, poll.
    CallbackRoundTrip,
    /// A message of 8 bytes: receive, inline send, and both completions, through the dispatch tables.
    Message,
    /// An RDMA write of 64 bytes and its completion, through the dispatch tables.
    Write,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Nothing,
        Self::ArmNothingNew,
        Self::ArmFires,
        Self::PushUnarmed,
        Self::PushArmed,
        Self::Poll,
        Self::CallbackRoundTrip,
        Self::Message,
        Self::Write,
    ];

    /// Its name, on the command line and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::ArmNothingNew => "arm-nothing-new",
            Self::ArmFires => "arm-fires",
            Self::PushUnarmed => "push-unarmed",
            Self::PushArmed => "push-armed",
            Self::Poll => "poll",
            Self::CallbackRoundTrip => "callback-round-trip",
            Self::Message => "message",
            Self::Write => "write",
        }
    }

    /// What the report calls it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::ArmNothingNew => "arm with nothing new",
            Self::ArmFires => "arm that fires, without the callback",
            Self::PushUnarmed => "completion into an unarmed CQ",
            Self::PushArmed => "completion that does not satisfy the arm",
            Self::Poll => "poll of one completion",
            Self::CallbackRoundTrip => "arm, completion, callback, poll (simulated kernel's scheduler included)",
            Self::Message => "8 byte message over NDKPI, both sides, direct engine",
            Self::Write => "64 byte RDMA write over NDKPI, direct engine",
        }
    }

    /// Runs it, to be counted.
    ///
    /// # Panics
    ///
    /// If it does not do what it should.
    pub fn run(self) {
        // A machine without threads: nothing else runs.
        let machine = Machine::seeded(1).processors(1).start();
        let os = HostOs::unwatched(&machine);
        match self {
            Self::Nothing => repeat(|_| {}),
            Self::ArmNothingNew => {
                let (cq, mut consumer) = quiet(&os);
                Cq::push(&cq, &[completion(0)]);
                consumer.poll(1, |_| {});
                repeat(|_| consumer.arm(ArmType::Any));
            }
            Self::ArmFires => Self::arm_fires(&machine, &os),
            Self::PushUnarmed => {
                let (cq, _consumer) = quiet(&os);
                repeat(|number| Cq::push_one(&cq, completion(number)));
            }
            Self::PushArmed => {
                let (cq, mut consumer) = quiet(&os);
                consumer.arm(ArmType::Solicited);
                repeat(|number| Cq::push_one(&cq, completion(number)));
            }
            Self::Poll => {
                let (cq, mut consumer) = quiet(&os);
                (0..COUNT).for_each(|number| Cq::push_one(&cq, completion(number)));
                repeat(|_| {
                    consumer.poll(1, |entry| {
                        black_box(entry.request_context);
                    });
                });
            }
            Self::CallbackRoundTrip => {
                let calls = Calls::default();
                let (cq, mut consumer) = queue(&os, calls.clone());
                repeat(|number| {
                    consumer.arm(ArmType::Any);
                    Cq::push_one(&cq, completion(number));
                    machine.step();
                    consumer.poll(1, |_| {});
                });
                assert_eq!(calls.0.load(Acquire), COUNT, "a callback for each");
            }
            Self::Message => message(&os),
            Self::Write => write(&os),
        }
        machine.run_until_idle();
        machine.shutdown();
    }

    fn arm_fires(machine: &Machine, os: &HostOs) {
        // One queue for each repetition: the callback is not counted.
        let queues: Vec<_> = (0..COUNT).map(|_| queue(os, Calls::default())).collect();
        let mut consumers = Vec::new();
        for (cq, consumer) in queues {
            Cq::push_one(&cq, completion(0));
            consumers.push(consumer);
        }
        repeat(|number| consumers[number].arm(ArmType::Any));
        machine.run_until_idle();
    }
}

/// Counts callbacks.
#[derive(Clone, Default)]
struct Calls(std::sync::Arc<AtomicUsize>);

impl CqClient for Calls {
    fn notify(&self, _: NtStatus) {
        self.0.fetch_add(1, Release);
    }

    fn failed(&self, failure: CqFailure) {
        panic!("a completion queue has failed: {failure:?}");
    }
}

fn queue(os: &HostOs, client: impl CqClient) -> (Shared<Cq<HostOs>>, CqConsumer<HostOs>) {
    let depth = u32::try_from(2 * COUNT).unwrap_or(u32::MAX);
    Cq::try_new(os, CqParameters { depth, max_depth: depth, processor: 0 }, client).expect("memory")
}

fn quiet(os: &HostOs) -> (Shared<Cq<HostOs>>, CqConsumer<HostOs>) {
    queue(os, Quiet)
}

fn connection(os: &HostOs) -> Connection {
    Connection::new(os, Plan { nic: NicMode::Direct, depth: 64, bytes: 4096, inline: 64, steps: true })
}

fn message(os: &HostOs) {
    let mut connection = connection(os);
    let [here, there] = &mut connection.sides;
    let mut results = [NDK_RESULT_EX::ZEROED; 1];
    repeat(|_| {
        let posted = there.receive(64, 8);
        let sent = here.send(0, 8, NDK_OP_FLAG_INLINE);
        assert!(posted == NtStatus::SUCCESS && sent == NtStatus::SUCCESS);
        assert_eq!(there.received(&mut results) + here.initiated(&mut results), 2, "both have completed");
    });
    connection.close();
}

fn write(os: &HostOs) {
    let mut connection = connection(os);
    let [here, there] = &mut connection.sides;
    let mut results = [NDK_RESULT_EX::ZEROED; 1];
    repeat(|_| {
        let posted = here.write(there, 0, 64, 0);
        assert_eq!(posted, NtStatus::SUCCESS);
        assert_eq!(here.initiated(&mut results), 1, "it has completed");
    });
    connection.close();
}

/// What is counted.
#[inline(never)]
fn repeat(mut work: impl FnMut(usize)) {
    softndk_bench_counted(&mut work);
}

/// Callgrind finds it by its name.
#[inline(never)]
fn softndk_bench_counted(work: &mut dyn FnMut(usize)) {
    for number in 0..COUNT {
        work(black_box(number));
    }
}

/// Instructions of each scenario, without those of repeating it.
pub type Counts = BTreeMap<String, f64>;

/// Runs the scenario that the environment names, if it names one.
///
/// # Panics
///
/// If there is no such scenario.
#[must_use]
pub fn run_if_asked() -> bool {
    let Ok(name) = std::env::var(SCENARIO) else { return false };
    let found = Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
    found.unwrap_or_else(|| panic!("no scenario `{name}`")).run();
    true
}

/// Counts one scenario, by running this program under callgrind.
///
/// # Errors
///
/// In words, why it cannot be counted.
pub fn count(scenario: Scenario) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let file = std::env::temp_dir().join(format!("softndk-{}-{}.callgrind", std::process::id(), scenario.name()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--toggle-collect=*softndk_bench_counted*", "--quiet"]);
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(program).arg("bench").env(SCENARIO, scenario.name());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| format!("valgrind: {error}"))?;
    let output = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()));
    // It may not be there.
    let _ = fs::remove_file(&file);
    if !status.success() {
        return Err(format!("valgrind: {status}"));
    }
    let total = output?.lines().find_map(|line| line.strip_prefix("summary: ")?.trim().parse::<f64>().ok());
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    total.map(|total| total / COUNT as f64).ok_or_else(|| "callgrind has counted nothing".to_owned())
}

/// Counts all scenarios.
///
/// # Errors
///
/// In words, why they cannot be counted.
pub fn count_all() -> Result<Counts, String> {
    let nothing = count(Scenario::Nothing)?;
    let counted = Scenario::ALL.into_iter().skip(1);
    counted.map(|scenario| Ok((scenario.name().to_owned(), (count(scenario)? - nothing).round()))).collect()
}
