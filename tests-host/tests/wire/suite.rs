//! The conformance suite, from `ndktest` over Winsock Kernel, between two adapters with a wire.

use std::net::SocketAddr;

use conformance::cases;
use control::{
    case::{Names, StartCase},
    client::{Event, TestDriver},
    network::{Problem, Reason},
    test_device::{Progress, State},
};
use simulated_kernel::{
    Impairment, Kernel, Medium, Nic,
    lockstep::{Content, Exchange, Grant, Lockstep, Next, Report, Timed},
};
use testing::alone::{in_a_process_of_its_own, in_processes_of_their_own};

use crate::{
    machine::statistics,
    sides::{BELOW, with_wire, with_wire_by},
    transport::ToKernel,
    world::{Consumer, consumer_control},
};

/// A profile whose adapters do not connect to themselves: then the suite has one side of each connection on the other adapter.
const PROFILE: &str = "2";

/// Cases that are not run, and why.
const LEFT_OUT: &[(&str, &str)] =
    &[("connect.rejected-after-the-peer-gave-up", "the peer's REJ is still on its way, and the reject succeeds")];

/// Those that are not run where every datagram is under way for a while.
const LEFT_OUT_FAR: &[(&str, &str)] = &[
    LEFT_OUT[0],
    ("connect.passive-side-gives-up", "the news of it is still on its way, and the connect is completed; it ends then"),
];

/// Runs a case, and returns how it has ended.
fn run(
    kernel: &Kernel,
    driver: &TestDriver<ToKernel>,
    case: &str,
    ends: &[String; 2],
    seed: u64,
) -> (Progress, String) {
    let how = StartCase { seed, seconds: 600, hostile: 1, ..StartCase::default() };
    let begun = driver.start_case(&how, Names { case, interface: &ends[0], peer: &ends[1] }).expect("an answer");
    assert_eq!(begun.problem, Problem::None as u32, "{case}");
    let mut outcome = String::new();
    let last = driver.watch(
        || kernel.sleep(2_000),
        || false,
        |event| {
            if let Event::Step(line) = event {
                outcome = format!("{}: {}", line.outcome, line.text);
            }
        },
    );
    (last.expect("the driver is there"), outcome)
}

/// Each case between the two ends of a wire.
fn over_the_wire(kernel: &Kernel, impairment: Impairment, seed: u64) {
    kernel.network().set_medium(Medium::Memory { impairment, seed });
    with_wire(kernel, &[("RdmaProfile", PROFILE)], |_, nics| suite(kernel, nics, LEFT_OUT, seed));
}

/// All cases but these.
fn suite(kernel: &Kernel, nics: [&Nic; 2], left_out: &[(&str, &str)], seed: u64) {
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let program = TestDriver::new(ToKernel(consumer_control(kernel)));
    let ends = nics.map(|nic| nic.if_index().to_string());
    let (mut wrong, mut passed) = (Vec::new(), 0);
    for case in cases::all().filter(|case| !left_out.iter().any(|(name, _)| *name == case.name)) {
        let (last, outcome) = run(kernel, &program, case.name, &ends, seed);
        assert_eq!((last.state, last.reason), (State::Finished as u32, Reason::None as u32), "{}", case.name);
        passed += last.passed;
        if last.failed > 0 {
            wrong.push(format!("{}: {outcome}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(passed > 200, "{passed} cases have passed; the others say that the profile has not what they need");
    assert_eq!(kernel.network().open_ndk_adapters(), 0);
    // Both ends have seen traffic of RDMA, and no memory is between them.
    for nic in nics {
        let counted = statistics(nic);
        assert!(counted.ifHCOutUcastOctets > 0 && counted.ifHCInUcastOctets > 0, "{counted:?}");
    }
    drop(program);
    consumer.unload();
}

#[test]
fn the_suite_passes_over_the_wire() {
    in_a_process_of_its_own("suite::the_suite_passes_over_the_wire", || {
        over_the_wire(&Kernel::seeded(7).start(), Impairment::default(), 5);
    });
}

#[test]
fn the_suite_passes_over_a_wire_that_loses_datagrams() {
    in_a_process_of_its_own("suite::the_suite_passes_over_a_wire_that_loses_datagrams", || {
        let impairment = Impairment { lost: 10_000, doubled: 10_000, ..Impairment::default() };
        over_the_wire(&Kernel::seeded(8).start(), impairment, 6);
    });
}

/// Where another machine takes datagrams, and sends them on to the other end.
const FAR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 99)), 4789);

/// That machine. It has no kernel: all that it does is to send on what it gets.
struct Forwarder(Lockstep);

impl Forwarder {
    fn new(impairment: Impairment, seed: u64) -> Self {
        let mut network = Lockstep::new(vec![BELOW.to_vec(), vec![FAR.ip()]], impairment, seed);
        network.report(1, Report::default());
        Self(network)
    }
}

impl Exchange for Forwarder {
    fn exchange(&mut self, report: Report) -> Option<Grant> {
        self.0.report(0, report);
        loop {
            let Next::Go(grants) = self.0.go_on() else { return Some(Grant::default()) };
            let mut own = None;
            for (machine, grant) in grants {
                if machine == 0 {
                    own = Some(grant);
                    continue;
                }
                let sent = grant.came.into_iter().filter_map(|Timed { time, content }| {
                    let Content::Datagram { source, bytes, .. } = content else { return None };
                    let to = BELOW.into_iter().find(|address| *address != source.ip())?;
                    let destination = SocketAddr::new(to, FAR.port());
                    Some(Timed { time, content: Content::Datagram { source: FAR, destination, bytes } })
                });
                let sent = sent.collect();
                self.0.report(1, Report { next: None, sent });
            }
            if own.is_some() {
                return own;
            }
        }
    }
}

/// The suite with two adapters that reach each other over another machine only: each of two processes says the same of all cases.
fn over_another_machine(test: &str, impairment: Impairment, seed: u64) {
    in_processes_of_their_own::<2>(
        test,
        |_| {
            let kernel = Kernel::seeded(seed).start();
            kernel.network().join(Box::new(Forwarder::new(impairment, seed)));
            let peer = FAR.ip().to_string();
            with_wire_by(&kernel, [peer.as_str(); 2], &[("RdmaProfile", PROFILE)], |_, nics| {
                suite(&kernel, nics, LEFT_OUT_FAR, seed)
            });
            vec![format!("{:#x} at {} us", kernel.trace_hash(), kernel.now())]
        },
        |[one, other]| assert_eq!(one, other, "the same seed is the same run"),
    );
}

const DELAY: Impairment = Impairment {
    delay: std::time::Duration::from_micros(20),
    lost: 0,
    doubled: 0,
    changed: 0,
    late: 0,
    lateness: std::time::Duration::ZERO,
};

#[test]
fn the_suite_passes_over_another_machine() {
    over_another_machine("suite::the_suite_passes_over_another_machine", DELAY, 9);
}

#[test]
fn the_suite_passes_over_another_machine_and_a_network_that_loses_datagrams() {
    let impairment = Impairment { lost: 10_000, ..DELAY };
    let test = "suite::the_suite_passes_over_another_machine_and_a_network_that_loses_datagrams";
    over_another_machine(test, impairment, 10);
}
