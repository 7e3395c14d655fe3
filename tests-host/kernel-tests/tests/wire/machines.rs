//! The conformance suite from `ndktest` of one machine, with the second adapter on another one: two kernels, each in a process of its own.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, SocketAddr},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    time::Duration,
};

use conformance::cases;
use control::{
    case::{Names, StartCase},
    client::{Event, Refusal, TestDriver},
    network::{Begun, Problem, Reason, StartOn},
    test_device::{Kind, Progress, State},
};
use ndkpi::NtStatus;
use network::{
    Impairment,
    lockstep::{Exchange, Grant, Lockstep, Next, Report},
};
use simulated_kernel::{Kernel, NewInterface, Nic};

use crate::{
    machine::{configure_end, load, statistics, wait_for_addresses},
    sides::{BELOW, add_end, link},
    transport::ToKernel,
    world::{Consumer, consumer_control},
};

/// Tells a process which machine it is.
const MACHINE: &str = "TEST_MACHINE";
/// What a machine says to the network.
const REPORT: &str = "report: ";
/// The same, when it has come to its end.
const LAST: &str = "last report: ";
/// What a machine answers to the test.
const ANSWER: &str = "answer: ";

/// A profile whose adapters do not connect to themselves.
const PROFILE: (&str, &str) = ("RdmaProfile", "2");

/// The way of a machine to the network: its standard output and input.
struct Line;

impl Exchange for Line {
    fn exchange(&mut self, report: Report) -> Option<Grant> {
        say(REPORT, &serde_json::to_string(&report).expect("a report is JSON"));
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        read.ok().and_then(|_| serde_json::from_str(&line).ok())
    }
}

/// Not through the macro, whose output the test harness would keep to itself.
fn say(kind: &str, words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{kind}{words}").and_then(|()| out.flush()).expect("the test listens");
}

/// The process of a machine, as the test has it.
struct Member {
    child: Child,
    to: ChildStdin,
    said: BufReader<ChildStdout>,
    answers: Vec<String>,
    last: Report,
}

impl Member {
    fn start(test: &str, number: usize) -> Self {
        let program = env::current_exe().expect("a test knows its own program");
        let mut command = Command::new(program);
        command.args(["--exact", test, "--nocapture", "--include-ignored"]).env(MACHINE, number.to_string());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a test can start its own program");
        let (to, said) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, to, said: BufReader::new(said), answers: Vec::new(), last: Report::default() }
    }

    /// Hears the machine until it waits; `None` if it has ended well.
    ///
    /// # Errors
    ///
    /// How it has ended.
    fn hear(&mut self) -> Result<Option<Report>, ExitStatus> {
        let mut line = String::new();
        while self.said.read_line(&mut line).expect("lines of text") > 0 {
            if let Some(report) = line.strip_prefix(REPORT) {
                return Ok(Some(serde_json::from_str(report).expect("a report")));
            }
            if let Some(report) = line.strip_prefix(LAST) {
                self.last = serde_json::from_str(report).expect("a report");
            }
            self.answers.extend(line.strip_prefix(ANSWER).map(|answer| answer.trim_end().to_owned()));
            line.clear();
        }
        let status = self.child.wait().expect("the process ends");
        if status.success() { Ok(None) } else { Err(status) }
    }

    fn go(&mut self, grant: &Grant) {
        let line = serde_json::to_string(grant).expect("a grant is JSON");
        // One that has ended is seen by its end.
        let _ = writeln!(self.to, "{line}").and_then(|()| self.to.flush());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Nothing happens to one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does the work of the test with this name on two machines with the addresses of [`BELOW`], whose network does that to datagrams, and
/// compares what they have [said](say) as answers. The work gets the number of its machine.
fn on_two_machines(
    test: &str,
    impairment: Impairment,
    seed: u64,
    work: impl FnOnce(usize, &Kernel),
    compare: impl FnOnce([Vec<String>; 2]),
) {
    if let Ok(number) = env::var(MACHINE) {
        let number: usize = number.parse().expect("the number of a machine");
        let kernel = Kernel::seeded(seed + number as u64).start();
        kernel.network().join(Box::new(Line));
        work(number, &kernel);
        let report = Report { next: None, sent: kernel.network().unsent() };
        return say(LAST, &serde_json::to_string(&report).expect("a report is JSON"));
    }
    let mut network = Lockstep::new(BELOW.iter().map(|address| vec![*address]).collect(), impairment, seed);
    let mut members = [0, 1].map(|number| Member::start(test, number));
    let mut running = vec![0, 1];
    loop {
        for number in std::mem::take(&mut running) {
            match members[number].hear() {
                Ok(Some(report)) => network.report(number, report),
                Ok(None) => {
                    network.report(number, std::mem::take(&mut members[number].last));
                    network.end(number);
                }
                Err(status) => {
                    let answers = members.each_ref().map(|member| &member.answers);
                    panic!("machine {number} has ended with {status}; said until then: {answers:#?}");
                }
            }
        }
        match network.go_on() {
            Next::Go(grants) => {
                for (number, grant) in grants {
                    members[number].go(&grant);
                    running.push(number);
                }
            }
            Next::Stuck(machines) => panic!("the machines {machines:?} wait for ever"),
            Next::Over => break,
        }
    }
    compare(members.each_mut().map(|member| std::mem::take(&mut member.answers)));
}

/// The adapter of a machine, which has a wire to that of the other one.
fn with_end(number: usize, kernel: &Kernel, work: impl FnOnce(&Nic)) {
    let (interface, _) = kernel.network().add_interface(&NewInterface::ethernet("Ethernet 3"));
    kernel.network().add_address(interface, BELOW[number], 24);
    let driver = load(kernel).expect("the driver loads");
    let nic = add_end(&driver, number, &[PROFILE]);
    let mut last = None;
    kernel.wait_until(|| link(&nic, &mut last) == Some(true));
    configure_end(kernel, &nic, number);
    wait_for_addresses(kernel);
    work(&nic);
    nic.remove();
    driver.unload();
}

/// A name for the machine at that address.
fn at(address: IpAddr) -> String {
    format!("@{address}")
}

/// The agent's machine: until the other one has done its work.
fn serve(kernel: &Kernel, nic: &Nic, program: &TestDriver<ToKernel>) {
    let how = StartOn { kind: Kind::Agent as u32, seconds: 3_600, hostile: 1, ..StartOn::default() };
    let begun = program.start_on(&how, &nic.if_index().to_string(), &at(BELOW[0])).expect("an answer");
    assert_eq!(begun.problem, Problem::None as u32);
    kernel.network().meet("the agent is there", 1);
    kernel.network().meet("the suite is done", 1);
    program.cancel().expect("the run is cancelled");
    let mut sessions = 0;
    let show = |event: Event<'_>| {
        if let Event::Remark(line) = event {
            sessions += u32::from(line.ends_with("has begun"));
        }
    };
    let last = program.watch(|| kernel.sleep(2_000), || false, show).expect("the driver is there");
    assert_eq!((last.state, last.reason), (State::Cancelled as u32, Reason::None as u32));
    say(ANSWER, &sessions.to_string());
}

/// A case of the suite, and how it has ended.
fn run(kernel: &Kernel, nic: &Nic, program: &TestDriver<ToKernel>, case: &str, seed: u64) -> (Progress, String) {
    let how = StartCase { seed, seconds: 600, hostile: 1, ..StartCase::default() };
    let (interface, peer) = (nic.if_index().to_string(), at(BELOW[1]));
    let begun = program.start_case(&how, Names { case, interface: &interface, peer: &peer }).expect("an answer");
    assert_eq!(begun, Begun { index: begun.index, ..Begun::default() }, "{case}");
    let mut outcome = String::new();
    let show = |event: Event<'_>| {
        if let Event::Step(line) = event {
            outcome = format!("{}: {}", line.outcome, line.text);
        }
    };
    let last = program.watch(|| kernel.sleep(2_000), || false, show).expect("the driver is there");
    (last, outcome)
}

/// One in so many cases of the suite, with the second adapter on the other machine: how each has ended.
fn suite(number: usize, kernel: &Kernel, one_in: usize, seed: u64) {
    with_end(number, kernel, |nic| {
        let consumer = Consumer::load(kernel).expect("the consumer loads");
        let program = TestDriver::new(ToKernel(consumer_control(kernel)));
        if number == 1 {
            serve(kernel, nic, &program);
        } else {
            kernel.network().meet("the agent is there", 1);
            for case in cases::all().step_by(one_in) {
                let (last, outcome) = run(kernel, nic, &program, case.name, seed);
                assert_eq!((last.state, last.reason), (State::Finished as u32, Reason::None as u32), "{}", case.name);
                say(ANSWER, &format!("{}: {outcome}", case.name));
            }
            kernel.network().meet("the suite is done", 1);
            let counted = statistics(nic);
            assert!(counted.ifHCOutUcastOctets > 0 && counted.ifHCInUcastOctets > 0, "{counted:?}");
        }
        assert_eq!(kernel.network().open_ndk_adapters(), 0);
        drop(program);
        consumer.unload();
    });
}

/// No case has failed, and most have passed.
fn all_right(ended: &[String], cases: usize) {
    assert_eq!(ended.len(), cases);
    let outcome = |line: &str| line.split_once(": ").map(|(_, outcome)| outcome.to_owned()).unwrap_or_default();
    let wrong: Vec<_> = ended.iter().filter(|line| outcome(line).starts_with("failed")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let passed = ended.iter().filter(|line| outcome(line).starts_with("passed")).count();
    assert!(passed > cases / 2, "{passed} of {cases} cases have passed: {ended:#?}");
}

/// Loses nothing. Each exchange of the machines with the network is one of their processes, so the delay is not that of a cable.
const CLEAN: Impairment = Impairment {
    delay: Duration::from_micros(200),
    lost: 0,
    doubled: 0,
    changed: 0,
    late: 0,
    lateness: Duration::ZERO,
};

fn with_an_end_on_each(test: &str, one_in: usize, impairment: Impairment, seed: u64) {
    let work = |number, kernel: &Kernel| suite(number, kernel, one_in, seed);
    on_two_machines(test, impairment, seed, work, |[ended, sessions]| {
        let count = cases::all().step_by(one_in).count();
        all_right(&ended, count);
        assert_eq!(sessions, [count.to_string()], "each case is a session");
    });
}

#[test]
fn a_part_of_the_suite_passes_with_an_end_on_each_machine() {
    with_an_end_on_each("machines::a_part_of_the_suite_passes_with_an_end_on_each_machine", 17, CLEAN, 11);
}

#[test]
#[ignore = "once a night, as with loss below: cargo test -p kernel-tests --test wire -- --ignored"]
fn the_suite_passes_with_an_end_on_each_machine() {
    with_an_end_on_each("machines::the_suite_passes_with_an_end_on_each_machine", 1, CLEAN, 12);
}

#[test]
#[ignore = "once a night: cargo test -p kernel-tests --test wire -- --ignored"]
fn the_suite_passes_with_an_end_on_each_machine_and_a_network_that_loses_datagrams() {
    let impairment = Impairment { lost: 10_000, ..CLEAN };
    let test = "machines::the_suite_passes_with_an_end_on_each_machine_and_a_network_that_loses_datagrams";
    with_an_end_on_each(test, 1, impairment, 13);
}

/// One machine of the two, with a program.
fn on_one_machine(work: impl FnOnce(&Kernel, &Nic, &TestDriver<ToKernel>)) {
    let kernel = Kernel::seeded(3).start();
    with_end(1, &kernel, |nic| {
        let consumer = Consumer::load(&kernel).expect("the consumer loads");
        let program = TestDriver::new(ToKernel(consumer_control(&kernel)));
        work(&kernel, nic, &program);
        drop(program);
        consumer.unload();
    });
}

/// Begins a run with a machine.
fn begin(program: &TestDriver<ToKernel>, nic: &Nic, kind: Kind, peer: &str) -> Result<Begun, Refusal> {
    let how = StartOn { kind: kind as u32, seconds: 60, hostile: 1, ..StartOn::default() };
    program.start_on(&how, &nic.if_index().to_string(), peer)
}

#[test]
fn what_is_wrong_with_the_other_machine_is_said() {
    on_one_machine(|_, nic, program| {
        let said = |kind, peer: &str| {
            let begun = begin(program, nic, kind, peer).expect("an answer");
            assert_eq!(begun.peer, 1, "{peer}");
            (Problem::from_number(begun.problem).expect("a problem"), NtStatus::from_bits(begun.status))
        };
        assert_eq!(said(Kind::Conformance, "@beta"), (Problem::BadMachine, NtStatus::INVALID_ADDRESS));
        assert_eq!(said(Kind::Conformance, "@192.0.2.99"), (Problem::NoMachine, NtStatus::IO_TIMEOUT));
        // The wire has one of the eight.
        let taken = (Problem::NoPort, NtStatus::ADDRESS_ALREADY_EXISTS);
        assert_eq!(said(Kind::Agent, "@192.0.2.11:4785"), taken);
        for (kind, peer) in [(Kind::Agent, ""), (Kind::Performance, "@192.0.2.11")] {
            assert_eq!(begin(program, nic, kind, peer), Err(Refusal::Invalid), "{kind:?}");
        }
    });
}

/// What a datagram of a session is.
const CALL: u32 = 0;
const ANSWER_TO: u32 = 1;
const END: u32 = 2;
const ASK: u32 = 3;
const BUSY: u32 = 4;

/// A datagram as `ndktest` has them.
fn datagram(kind: u32, sequence: u32, session: u64) -> Vec<u8> {
    let numbers = [kind.to_le_bytes(), sequence.to_le_bytes()].concat();
    [b"NDK\x01", numbers.as_slice(), &session.to_le_bytes()].concat()
}

#[test]
fn an_agent_is_for_one_machine_and_one_session_at_a_time() {
    on_one_machine(|kernel, nic, program| {
        let begun = begin(program, nic, Kind::Agent, &at(BELOW[0])).expect("an answer");
        assert_eq!(begun.problem, Problem::None as u32);
        let network = kernel.network();
        let port = |lane: u16| SocketAddr::new(BELOW[1], 4792 + lane);
        // What the agent says to a datagram on a lane. The network of one machine says that it comes from the address that it is for.
        let says = |lane, from: IpAddr, bytes: &[u8]| {
            let last = || network.last_datagram(SocketAddr::new(from, port(lane).port()));
            let before = last();
            network.inject(SocketAddr::new(from, 50_000), port(lane), bytes);
            kernel.sleep(5_000);
            last().filter(|now| Some(now) != before.as_ref())
        };
        let head = |answer: Option<Vec<u8>>| answer.map(|bytes| bytes[..20].to_vec());
        let friend = BELOW[0];
        assert_eq!(says(0, "192.0.2.13".parse().expect("an address"), &datagram(ASK, 0, 7)), None, "a stranger");
        for wrong in [&[][..], b"NDK\x02", &datagram(9, 0, 7), &datagram(ASK, 0, 7)[..19], &datagram(ANSWER_TO, 1, 7)] {
            assert_eq!(says(0, friend, wrong), None, "{wrong:?}");
        }
        assert_eq!(says(0, friend, &datagram(ASK, 0, 7)), Some(datagram(ANSWER_TO, 0, 7)));
        assert_eq!(says(0, friend, &datagram(CALL, 2, 7)), None, "a session begins with its first call");
        assert_eq!(says(1, friend, &datagram(CALL, 1, 7)), None, "on the first lane");
        // Whatever the call is, it is answered.
        assert_eq!(head(says(0, friend, &datagram(CALL, 1, 7))), Some(datagram(ANSWER_TO, 1, 7)));
        assert_eq!(head(says(0, friend, &datagram(CALL, 2, 7))), Some(datagram(ANSWER_TO, 2, 7)));
        assert_eq!(head(says(1, friend, &datagram(CALL, 1, 7))), Some(datagram(ANSWER_TO, 1, 7)));
        assert_eq!(says(2, friend, &datagram(ASK, 0, 8)), Some(datagram(BUSY, 0, 8)), "it has a session");
        assert_eq!(says(0, friend, &datagram(CALL, 1, 8)), Some(datagram(BUSY, 1, 8)));
        assert_eq!(says(3, friend, &datagram(END, 5, 7)), Some(datagram(ANSWER_TO, 5, 7)));
        assert_eq!(says(4, friend, &datagram(ASK, 0, 8)), Some(datagram(ANSWER_TO, 0, 8)), "and has none any more");
        assert_eq!(says(0, friend, &datagram(CALL, 1, 7)), None, "one that is over does not begin again");
        // One that is silent for long makes room.
        assert_eq!(head(says(0, friend, &datagram(CALL, 1, 9))), Some(datagram(ANSWER_TO, 1, 9)));
        assert_eq!(says(5, friend, &datagram(ASK, 0, 10)), Some(datagram(BUSY, 0, 10)));
        kernel.sleep(15_000_000);
        assert_eq!(says(5, friend, &datagram(ASK, 0, 11)), Some(datagram(ANSWER_TO, 0, 11)));
        assert_eq!(head(says(0, friend, &datagram(CALL, 1, 11))), Some(datagram(ANSWER_TO, 1, 11)));
        assert_eq!(program.progress().expect("an answer").state, State::Running as u32);
        network.break_sockets();
        let last = program.watch(|| kernel.sleep(2_000), || false, |_| {}).expect("the driver is there");
        assert_eq!((last.state, last.reason), (State::Cancelled as u32, Reason::AgentFailed as u32));
    });
}
