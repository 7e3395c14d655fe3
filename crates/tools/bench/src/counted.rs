//! Instructions, counted by callgrind: the same on a busy machine as on an idle one.
//!
//! The program runs itself under callgrind, with a scenario. Only what happens inside of `repeat` is counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    hint::black_box,
    path::Path,
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
use host::{HostOs, machine::Machine};
use ndkpi::{NDK_OP_FLAG_DEFER, NDK_OP_FLAG_INLINE, NDK_OP_FLAG_SILENT_SUCCESS, NDK_RESULT_EX, NtStatus};
use provider::NicMode;

use crate::{
    kind::{Kind, Lock},
    ndk::{Connection, Layer, Plan, Side},
    rows::{cq::Quiet, entry::completion},
    settle,
};

/// The environment variable that names the scenario to run, instead of anything else.
pub const SCENARIO: &str = "SOFTNDK_BENCH_SCENARIO";

/// Repetitions: enough that what is done once does not show.
const COUNT: usize = 4096;

/// In the names of what takes the place of a kernel's scheduling: processors, queues of DPCs and levels, the call that
/// puts one into its queue, and how a thread finds its processor.
const MACHINE: [&str; 3] = ["host::machine::", "host::os::dpc::", "std::thread::local::LocalKey"];

/// Messages that ring the doorbell once.
const BATCH: usize = 32;

/// What is counted: a name, and what one repetition does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    Message(Kind),
    /// A batch of such messages that ring the doorbell once, the last of them signalled.
    Messages(Kind),
    /// An RDMA write of 64 bytes and its completion, through the dispatch tables.
    Write(Kind),
    /// A request of the direct engine, behind a layer.
    Behind(Request, Layer),
    /// A request of the direct engine without a layer, while other adapters of the program are behind one each.
    Beside(Request),
}

/// A request that passes a layer, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// As [`Scenario::Message`].
    Message,
    /// As [`Scenario::Write`].
    Write,
}

impl Request {
    /// The scenario of an adapter without a layer.
    const fn plain(self) -> Scenario {
        match self {
            Self::Message => Scenario::Message(Kind::DIRECT),
            Self::Write => Scenario::Write(Kind::DIRECT),
        }
    }

    fn repeat(self, connection: &mut Connected) {
        match self {
            Self::Message => message(connection),
            Self::Write => write(connection),
        }
    }
}

/// What another count may be at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The other count.
    pub of: Scenario,
    /// So many times it.
    pub most: f64,
    /// What rows say of it.
    pub words: &'static str,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 27] = [
        Self::Nothing,
        Self::ArmNothingNew,
        Self::ArmFires,
        Self::PushUnarmed,
        Self::PushArmed,
        Self::Poll,
        Self::CallbackRoundTrip,
        Self::Message(Kind::DIRECT),
        Self::Messages(Kind::DIRECT),
        Self::Write(Kind::DIRECT),
        Self::Message(Kind::DEFERRED),
        Self::Messages(Kind::DEFERRED),
        Self::Write(Kind::DEFERRED),
        Self::Message(Kind::DIRECT.called()),
        Self::Messages(Kind::DIRECT.called()),
        Self::Write(Kind::DIRECT.called()),
        Self::Message(Kind::DEFERRED.called()),
        Self::Messages(Kind::DEFERRED.called()),
        Self::Write(Kind::DEFERRED.called()),
        Self::Beside(Request::Message),
        Self::Behind(Request::Message, Layer::Forwarding),
        Self::Behind(Request::Message, Layer::Advising),
        Self::Behind(Request::Message, Layer::Recording),
        Self::Beside(Request::Write),
        Self::Behind(Request::Write, Layer::Forwarding),
        Self::Behind(Request::Write, Layer::Advising),
        Self::Behind(Request::Write, Layer::Recording),
    ];

    /// Its name, on the command line and in files.
    #[must_use]
    pub fn name(self) -> String {
        let of_kind = |name: &str, kind: Kind| {
            let engine = if kind.engine == NicMode::Deferred { "-deferred" } else { "" };
            let lock = if kind.lock == Lock::Called { "-called" } else { "" };
            format!("{name}{engine}{lock}")
        };
        let name = match self {
            Self::Nothing => "nothing",
            Self::ArmNothingNew => "arm-nothing-new",
            Self::ArmFires => "arm-fires",
            Self::PushUnarmed => "push-unarmed",
            Self::PushArmed => "push-armed",
            Self::Poll => "poll",
            Self::CallbackRoundTrip => "callback-round-trip",
            Self::Message(kind) => return of_kind("message", kind),
            Self::Messages(kind) => return of_kind("messages", kind),
            Self::Write(kind) => return of_kind("write", kind),
            Self::Behind(request, layer) => return format!("{}-{}", request.plain().name(), layer.name()),
            Self::Beside(request) => return format!("{}-beside-layers", request.plain().name()),
        };
        name.to_owned()
    }

    /// What the report calls it.
    #[must_use]
    pub fn words(self) -> String {
        let words = match self {
            Self::Nothing => "nothing",
            Self::ArmNothingNew => "arm with nothing new, inlined lock",
            Self::ArmFires => "arm that fires, without the callback, inlined lock",
            Self::PushUnarmed => "completion into an unarmed CQ, inlined lock",
            Self::PushArmed => "completion that does not satisfy the arm, inlined lock",
            Self::Poll => "poll of one completion",
            Self::CallbackRoundTrip => {
                "arm, completion, callback, poll (the machine's scheduling included), inlined lock"
            }
            Self::Message(kind) => return format!("8 byte message over NDKPI, both sides, {}", kind.words()),
            Self::Messages(kind) => {
                return format!("{BATCH} messages that ring the doorbell once, both sides, {}", kind.words());
            }
            Self::Write(kind) => return format!("64 byte RDMA write over NDKPI, {}", kind.words()),
            Self::Behind(request, layer) => return format!("{}, {}", request.plain().words(), layer.words()),
            Self::Beside(request) => {
                return format!("{}, other adapters behind each layer", request.plain().words());
            }
        };
        words.to_owned()
    }

    /// Functions with one of these in their names are not counted: what a kernel does by itself to run a DPC.
    fn left_out(self) -> &'static [&'static str] {
        match self {
            Self::Message(kind) | Self::Messages(kind) | Self::Write(kind) if is_deferred(kind) => &MACHINE,
            _ => &[],
        }
    }

    /// What it may be at most, beside another: that of the direct engine with the same lock, or without a layer in the program.
    #[must_use]
    pub fn limit(self) -> Option<Limit> {
        let direct = |kind: Kind| Kind { engine: NicMode::Direct, ..kind };
        let (of, most) = match self {
            Self::Message(kind) if is_deferred(kind) => (Self::Message(direct(kind)), 1.4),
            Self::Messages(kind) if is_deferred(kind) => (Self::Messages(direct(kind)), 1.1),
            Self::Write(kind) if is_deferred(kind) => (Self::Write(direct(kind)), 1.7),
            // Off means that it is not there: to the instruction.
            Self::Beside(request) => {
                return Some(Limit { of: request.plain(), most: 1.0, words: "no layer in the program" });
            }
            _ => return None,
        };
        Some(Limit { of, most, words: "direct engine" })
    }

    /// Runs it, to be counted.
    ///
    /// # Panics
    ///
    /// If it does not do what it should.
    pub fn run(self) {
        if let Self::Message(kind) | Self::Messages(kind) | Self::Write(kind) = self
            && is_deferred(kind)
        {
            return self.run_deferred(kind);
        }
        // A machine without threads: nothing else runs.
        let machine = Machine::seeded(1).processors(1).start();
        let os = HostOs::unwatched(&machine);
        match self {
            Self::Nothing => repeat(|_| {}),
            Self::ArmNothingNew => {
                let (cq, mut consumer) = quiet(&os);
                Cq::push(&cq, completion(0));
                consumer.poll(1, |_| {});
                repeat(|_| consumer.arm(ArmType::Any));
            }
            Self::ArmFires => Self::arm_fires(&machine, &os),
            Self::PushUnarmed => {
                let (cq, _consumer) = quiet(&os);
                repeat(|number| Cq::push(&cq, completion(number)));
            }
            Self::PushArmed => {
                let (cq, mut consumer) = quiet(&os);
                consumer.arm(ArmType::Solicited);
                repeat(|number| Cq::push(&cq, completion(number)));
            }
            Self::Poll => {
                let (cq, mut consumer) = quiet(&os);
                (0..COUNT).for_each(|number| Cq::push(&cq, completion(number)));
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
                    Cq::push(&cq, completion(number));
                    machine.step();
                    consumer.poll(1, |_| {});
                });
                assert_eq!(calls.0.load(Acquire), COUNT, "a callback for each");
            }
            Self::Message(kind) => message(&mut connection(&os, kind)),
            Self::Messages(kind) => messages(&mut connection(&os, kind)),
            Self::Write(kind) => write(&mut connection(&os, kind)),
            Self::Behind(request, layer) => request.repeat(&mut behind(&os, layer)),
            Self::Beside(request) => {
                let _others = [Layer::Forwarding, Layer::Advising, Layer::Recording].map(|layer| behind(&os, layer));
                request.repeat(&mut connection(&os, Kind::DIRECT));
            }
        }
        machine.run_until_idle();
        machine.shutdown();
    }

    /// A scenario of the deferred engine, with a thread that DPCs interrupt: nothing else runs.
    fn run_deferred(self, kind: Kind) {
        let machine = Machine::threads().processors(1).start();
        let os = HostOs::unwatched(&machine);
        let mut connection = connection(&os, kind);
        let on = machine.run_on(0);
        match self {
            Self::Message(_) => message(&mut connection),
            Self::Messages(_) => messages(&mut connection),
            _ => write(&mut connection),
        }
        drop(on);
        drop(connection);
        settle(&os);
        machine.shutdown();
    }

    fn arm_fires(machine: &Machine, os: &HostOs) {
        // One queue for each repetition: the callback is not counted.
        let queues: Vec<_> = (0..COUNT).map(|_| queue(os, Calls::default())).collect();
        let mut consumers = Vec::new();
        for (cq, consumer) in queues {
            Cq::push(&cq, completion(0));
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

fn queue(os: &HostOs, client: impl CqClient) -> (fallible::Arc<Cq<HostOs>>, CqConsumer<HostOs>) {
    let depth = u32::try_from(2 * COUNT).unwrap_or(u32::MAX);
    Cq::try_new(os, CqParameters { depth, max_depth: depth, processor: 0 }, client).expect("memory")
}

fn quiet(os: &HostOs) -> (fallible::Arc<Cq<HostOs>>, CqConsumer<HostOs>) {
    queue(os, Quiet)
}

fn is_deferred(kind: Kind) -> bool {
    kind.engine == NicMode::Deferred
}

/// Two connected queue pairs, which are closed when the value is dropped.
struct Connected(Option<Connection>);

fn plan(kind: Kind) -> Plan {
    Plan { kind, depth: 64, bytes: 4096, inline: 64, steps: !is_deferred(kind) }
}

fn connection(os: &HostOs, kind: Kind) -> Connected {
    Connected(Some(Connection::new(os, plan(kind))))
}

fn behind(os: &HostOs, layer: Layer) -> Connected {
    Connected(Some(Connection::behind(os, plan(Kind::DIRECT), layer)))
}

impl Connected {
    fn sides(&mut self) -> &mut [Side; 2] {
        &mut self.0.as_mut().expect("closed only when dropped").sides
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.close();
        }
    }
}

fn message(connection: &mut Connected) {
    let [here, there] = connection.sides();
    let mut results = [NDK_RESULT_EX::ZEROED; 1];
    repeat(|_| {
        let posted = there.receive(64, 8);
        let raised = here.raised();
        let sent = here.send(0, 8, NDK_OP_FLAG_INLINE);
        drop(raised);
        assert!(posted == NtStatus::SUCCESS && sent == NtStatus::SUCCESS);
        assert_eq!(there.received(&mut results) + here.initiated(&mut results), 2, "both have completed");
    });
}

fn messages(connection: &mut Connected) {
    let [here, there] = connection.sides();
    let mut results = [NDK_RESULT_EX::ZEROED; BATCH];
    repeat(|_| {
        let raised = here.raised();
        for number in 1..=BATCH {
            assert_eq!(there.receive(64 * (number % 2), 8), NtStatus::SUCCESS);
            let more = if number < BATCH { NDK_OP_FLAG_DEFER | NDK_OP_FLAG_SILENT_SUCCESS } else { 0 };
            assert_eq!(here.send(0, 8, NDK_OP_FLAG_INLINE | more), NtStatus::SUCCESS);
        }
        drop(raised);
        assert_eq!(there.received(&mut results), BATCH, "all of them are received");
        assert_eq!(here.initiated(&mut results), 1, "the last one has completed");
    });
}

fn write(connection: &mut Connected) {
    let [here, there] = connection.sides();
    let mut results = [NDK_RESULT_EX::ZEROED; 1];
    repeat(|_| {
        let raised = here.raised();
        let posted = here.write(there, 0, 64, 0);
        drop(raised);
        assert_eq!(posted, NtStatus::SUCCESS);
        assert_eq!(here.initiated(&mut results), 1, "it has completed");
    });
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
    command.arg(&program).arg("bench").env(SCENARIO, scenario.name());
    command.stdin(Stdio::null());
    let ended = command.output().map_err(|error| format!("valgrind: {error}"))?;
    let output = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()));
    // It may not be there.
    let _ = fs::remove_file(&file);
    if !ended.status.success() {
        let words = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("valgrind, scenario `{}`: {}\n{words}", scenario.name(), ended.status));
    }
    let total = of_program(&output?, &program, scenario.left_out()).ok_or_else(|| {
        format!("callgrind has counted nothing of {} (was it built anew meanwhile?)", program.display())
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    let each = total / COUNT as f64;
    Ok(each)
}

/// The instructions that callgrind's `output` has for functions of `program` itself whose names contain none of `left_out`. Those
/// of libraries are left out too: which copy routine the C library chooses depends on the processor.
fn of_program(output: &str, program: &Path, left_out: &[&str]) -> Option<f64> {
    // Objects and functions are named once, as `ob=(1) name`, and then by number. Those of callees are `cob` and `cfn`.
    let (mut ours, mut is_ours, mut is_call, mut total) = (None, false, false, 0.0);
    let (mut others, mut is_other) = (BTreeSet::new(), false);
    for line in output.lines() {
        if let Some((key @ ("" | "c"), function)) = line.split_once("fn=") {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if left_out.iter().any(|part| name.contains(part)) {
                others.insert(number);
            }
            if key.is_empty() {
                is_other = others.contains(number);
            }
            continue;
        }
        if let Some((key @ ("" | "c"), object)) = line.split_once("ob=") {
            let (number, name) = object.split_once(' ').unwrap_or((object, ""));
            if Path::new(name) == program {
                ours = Some(number);
            }
            if key.is_empty() {
                is_ours = ours == Some(number);
            }
        } else if line.starts_with("calls=") {
            // The next line has what the callee has cost, which is counted where it was spent.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split_once(' ').and_then(|(_, cost)| cost.parse::<f64>().ok());
            if let Some(cost) = cost
                && is_ours
                && !is_other
                && !is_call
            {
                total += cost;
            }
            is_call = false;
        }
    }
    (total > 0.0).then_some(total)
}

/// Returns true if callgrind is installed.
#[must_use]
pub fn is_possible() -> bool {
    let mut command = Command::new("valgrind");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Counts all scenarios.
///
/// # Errors
///
/// In words, why they cannot be counted.
pub fn count_all() -> Result<Counts, String> {
    let nothing = count(Scenario::Nothing)?;
    let counted = Scenario::ALL.into_iter().skip(1);
    counted.map(|scenario| Ok((scenario.name(), (count(scenario)? - nothing).round()))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::of_program;

    #[test]
    fn what_libraries_and_callees_have_cost_is_left_out() {
        let output = "events: Ir\n\nob=(1) /lib/c.so\nfl=(1) c.c\nfn=(1) copy\n5 1000\n+1 10\n\nob=(2) /bin/here\n\
            fl=(2) a.rs\nfn=(2) a\n7 3\n+2 4\ncfn=(3) b\ncalls=1 9\n* 500\n* 5\n\nob=(1)\nfn=(1)\n5 70\n\n\
            ob=(2)\nfn=(3)\n9 500\ncob=(1)\ncfn=(1)\ncalls=2 5\n9 70\n-4 1\nsummary: 1663\n";
        let program = Path::new("/bin/here");
        assert_eq!(of_program(output, program, &[]), Some(513.0));
        assert_eq!(of_program(output, program, &["x", "b"]), Some(12.0), "without the functions of that name");
        assert_eq!(of_program(output, Path::new("/bin/there"), &[]), None);
    }
}
