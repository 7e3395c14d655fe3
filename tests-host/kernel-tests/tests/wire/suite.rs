//! The conformance suite, from `ndktest` over Winsock Kernel, between two adapters with a wire.

use std::{net::SocketAddr, time::Duration};

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
    machine::{configure, statistics, with_pair},
    sides::{BELOW, with_wire, with_wire_by},
    transport::ToKernel,
    world::{Consumer, consumer_control},
};

/// A profile whose adapters do not connect to themselves: then the suite has one side of each connection on the other adapter.
const PROFILE: &str = "2";

/// Cases that end otherwise over a wire than by a cable, or may do so: with the beginning of how, and why. `wire_engine` has the same.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("connect.passive-side-gives-up", "failed: NdkCompleteConnect: STATUS_SUCCESS", REJ),
    ("connect.rejected-after-the-peer-gave-up", "failed: NdkReject by the active side: STATUS_SUCCESS", REJ),
    ("connect.rejected-after-the-peer-gave-up", "failed: NdkReject, accepted: false: STATUS_SUCCESS", REJ),
    ("fast-register.used-after-invalidation", "observed: a peer's write: STATUS_IO_TIMEOUT", NAK),
    (
        "invalidate.bad-token",
        "observed: the send ends with STATUS_SUCCESS, the receive with STATUS_INVALID",
        INVALIDATE,
    ),
    ("invalidate.bad-token", "observed: the send ends with STATUS_IO_TIMEOUT, the receive with STATUS_INVALID", ENDS),
    (
        "invalidate.plain-region",
        "observed: the send ends with STATUS_SUCCESS, the receive with STATUS_INVALID",
        INVALIDATE,
    ),
    (
        "invalidate.plain-region",
        "observed: the send ends with STATUS_IO_TIMEOUT, the receive with STATUS_INVALID",
        ENDS,
    ),
    ("invalidate.token-of-another-domain", "observed: the receive ends with STATUS_INVALID_DEVICE_REQUEST", INVALIDATE),
    ("object.requests-complete-once", "observed: ", "a connect over the wire pends, whatever the mode"),
    ("transfer.receives-come-late", "observed: the sends wait", RNR),
    ("qp.initiator-queue-is-exact", "observed: a send for a full queue gets STATUS_NO_MORE_ENTRIES", RNR),
    ("flush.initiator-requests", "passed: ", RNR),
    ("flush.silent-requests", "passed: ", RNR),
    ("overrun.unarmed", "observed: callbacks: 1, none with an error", "the messages that overrun the queue come later"),
];

const REJ: &str = "the peer's REJ is still on its way; the disconnect event follows";
const NAK: &str = "the NAK is lost, or the DREQ overtakes it";
const ENDS: &str = "as with STATUS_SUCCESS, but the end of the connection comes before the ACK, or that is lost";
const RNR: &str =
    "the profile ends a send that finds no receive; over a wire it is sent again after an RNR NAK (RoCEv2 7)";
const INVALIDATE: &str = "RoCEv2 7: the responder acknowledges the SEND, fails its receive, and ends the connection";

/// Returns true if a case is listed with such an end.
fn is_listed(case: &str, outcome: &str) -> bool {
    DIFFERENCES.iter().any(|(name, text, _)| *name == case && outcome.starts_with(text))
}

/// A responder that refuses a request says so once. If that NAK is lost, or the DREQ overtakes it, the requester learns of the end only: its
/// request ends with `STATUS_IO_TIMEOUT` in place of `STATUS_REMOTE_RESOURCES`.
fn is_lost_nak(by_cable: &str, over_the_wire: &str) -> bool {
    let is_what_it_looks_for = over_the_wire.starts_with("observed: not STATUS_REMOTE_RESOURCES but ")
        && over_the_wire.ends_with(": STATUS_IO_TIMEOUT");
    over_the_wire.replace("STATUS_IO_TIMEOUT", "STATUS_REMOTE_RESOURCES") == by_cable
        || by_cable.starts_with("passed") && is_what_it_looks_for
}

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

/// How a case has ended.
struct Ended {
    case: &'static str,
    last: Progress,
    outcome: String,
}

/// Which cases of the suite.
#[derive(Clone, Copy)]
struct Share {
    first: usize,
    /// One in so many from there.
    one_in: usize,
}

impl Share {
    const ALL: Self = Self { first: 0, one_in: 1 };
}

/// Those cases between two adapters.
fn run_cases(share: Share, kernel: &Kernel, nics: [&Nic; 2], seed: u64) -> Vec<Ended> {
    let consumer = Consumer::load(kernel).expect("the consumer loads");
    let program = TestDriver::new(ToKernel(consumer_control(kernel)));
    let ends = nics.map(|nic| nic.if_index().to_string());
    let ended = cases::all().skip(share.first).step_by(share.one_in).map(|case| {
        let (last, outcome) = run(kernel, &program, case.name, &ends, seed);
        assert_eq!((last.state, last.reason), (State::Finished as u32, Reason::None as u32), "{}", case.name);
        Ended { case: case.name, last, outcome }
    });
    let ended = ended.collect();
    assert_eq!(kernel.network().open_ndk_adapters(), 0);
    drop(program);
    consumer.unload();
    ended
}

/// Those cases between the two ends of a wire.
fn over_the_wire(share: Share, kernel: &Kernel, medium: Medium, seed: u64) -> Vec<Ended> {
    kernel.network().set_medium(medium);
    with_wire(kernel, &[("RdmaProfile", PROFILE)], |_, nics| {
        let ended = run_cases(share, kernel, nics, seed);
        have_sent(nics);
        ended
    })
}

/// Both ends have seen traffic of RDMA, and no memory is between them.
fn have_sent(nics: [&Nic; 2]) {
    for nic in nics {
        let counted = statistics(nic);
        assert!(counted.ifHCOutUcastOctets > 0 && counted.ifHCInUcastOctets > 0, "{counted:?}");
    }
}

/// No case has failed, and most have passed.
fn all_right(ended: &[Ended]) {
    let is_wrong = |ended: &&Ended| ended.last.failed > 0 && !is_listed(ended.case, &ended.outcome);
    let wrong: Vec<_> = ended.iter().filter(is_wrong).collect();
    let wrong: Vec<_> = wrong.iter().map(|ended| format!("{}: {}", ended.case, ended.outcome)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let passed: u32 = ended.iter().map(|ended| ended.last.passed).sum();
    let cases = u32::try_from(ended.len()).expect("hundreds");
    assert!(passed > cases / 2, "{passed} cases have passed; the others say that the profile has not what they need");
}

#[test]
fn the_suite_passes_over_the_wire() {
    in_processes_of_their_own::<2>(
        "suite::the_suite_passes_over_the_wire",
        |half| {
            let share = Share { first: half, one_in: 2 };
            let ended = over_the_wire(share, &Kernel::seeded(7).start(), Medium::default(), 5);
            all_right(&ended);
            vec![ended.len().to_string()]
        },
        |halves| {
            let run = halves.iter().flatten().map(|count| count.parse::<usize>().expect("a number"));
            assert_eq!(run.sum::<usize>(), cases::all().count());
        },
    );
}

#[test]
#[ignore = "once a night, as with more networks below: cargo test -p kernel-tests --test wire -- --ignored"]
fn the_suite_passes_over_a_wire_that_loses_datagrams() {
    in_a_process_of_its_own("suite::the_suite_passes_over_a_wire_that_loses_datagrams", || {
        let impairment = Impairment { lost: 10_000, doubled: 10_000, ..Impairment::default() };
        all_right(&over_the_wire(Share::ALL, &Kernel::seeded(8).start(), Medium::Memory { impairment, seed: 6 }, 6));
    });
}

/// What a network does to datagrams, and whether their checksum tells that one was changed.
fn bad_networks(seed: u64) -> [(&'static str, Medium); 4] {
    /// Of a million.
    const FEW: u32 = 10_000;
    let slow = Impairment { delay: Duration::from_millis(3), ..Impairment::default() };
    let disorderly = Impairment { late: 10 * FEW, lateness: Duration::from_millis(2), ..Impairment::default() };
    let spoiling = Impairment { changed: FEW, ..Impairment::default() };
    let all = Impairment {
        lost: FEW / 2,
        doubled: FEW / 2,
        changed: FEW / 2,
        late: 2 * FEW,
        lateness: Duration::from_millis(1),
        delay: Duration::from_micros(200),
    };
    [
        ("slow", Medium::Memory { impairment: slow, seed }),
        ("disorderly", Medium::Memory { impairment: disorderly, seed }),
        ("spoiling", Medium::Unchecked { impairment: spoiling, seed }),
        ("all of it", Medium::Unchecked { impairment: all, seed }),
    ]
}

/// A case on two kinds of network, each with how it has ended, that has ended otherwise for no reason.
fn is_unlike(by_cable: &str, over_the_wire: &str) -> bool {
    let [(case, there), (_, here)] = [by_cable, over_the_wire].map(|line| line.split_once(": ").unwrap_or_default());
    there != here && !is_listed(case, here) && !is_lost_nak(there, here)
}

/// How each case has ended: that it has passed, or what it has seen, or what of the adapter it needs.
fn lines(ended: &[Ended]) -> Vec<String> {
    ended.iter().map(|Ended { case, outcome, .. }| format!("{case}: {outcome}")).collect()
}

/// Once a night. `SOFTNDK_SEEDS` says with which seeds.
#[test]
#[ignore = "minutes for each seed: cargo test -p kernel-tests --test wire -- --ignored"]
fn the_suite_ends_over_every_bad_network_as_it_does_by_cable() {
    let seeds = std::env::var("SOFTNDK_SEEDS").unwrap_or_else(|_| "1..2".to_owned());
    let (first, last) = seeds.split_once("..").expect("seeds as 1..100");
    let (first, last): (u64, u64) = (first.parse().expect("a seed"), last.parse().expect("a seed"));
    in_processes_of_their_own(
        "suite::the_suite_ends_over_every_bad_network_as_it_does_by_cable",
        |part| {
            let run = |seed| {
                let kernel = Kernel::seeded(seed).start();
                if part == 0 {
                    let mut ended = Vec::new();
                    with_pair(&kernel, &[("RdmaProfile", PROFILE)], |one, other| {
                        configure(&kernel, [one, other]);
                        ended = run_cases(Share::ALL, &kernel, [one, other], seed);
                    });
                    return lines(&ended);
                }
                let (name, medium) = bad_networks(seed)[part - 1];
                let ended = over_the_wire(Share::ALL, &kernel, medium, seed);
                println!("{name}, seed {seed}");
                lines(&ended)
            };
            (first..=last).flat_map(run).collect()
        },
        |[cable, slow, disorderly, spoiling, all]| {
            let networks = [("slow", slow), ("disorderly", disorderly), ("spoiling", spoiling), ("all of it", all)];
            let mut others = Vec::new();
            for (name, ended) in networks {
                assert_eq!(ended.len(), cable.len(), "{name}");
                others.extend(
                    ended
                        .iter()
                        .zip(&cable)
                        .filter(|(ours, theirs)| is_unlike(theirs, ours))
                        .map(|(ours, theirs)| format!("over the {name} network {ours}, by cable {theirs}")),
                );
            }
            assert!(others.is_empty(), "seeds {seeds}: {others:#?}");
        },
    );
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

/// Those cases of the suite, with two adapters that reach each other over another machine only: each of two processes says the same
/// of all of them.
fn over_another_machine(test: &str, share: Share, impairment: Impairment, seed: u64) {
    in_processes_of_their_own::<2>(
        test,
        |_| {
            let kernel = Kernel::seeded(seed).start();
            kernel.network().join(Box::new(Forwarder::new(impairment, seed)));
            let peer = FAR.ip().to_string();
            with_wire_by(&kernel, [peer.as_str(); 2], &[("RdmaProfile", PROFILE)], |_, nics| {
                all_right(&run_cases(share, &kernel, nics, seed));
                have_sent(nics);
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
#[ignore = "once a night, as with loss below: cargo test -p kernel-tests --test wire -- --ignored"]
fn the_suite_passes_over_another_machine() {
    over_another_machine("suite::the_suite_passes_over_another_machine", Share::ALL, DELAY, 9);
}

#[test]
#[ignore = "once a night: cargo test -p kernel-tests --test wire -- --ignored"]
fn the_suite_passes_over_another_machine_and_a_network_that_loses_datagrams() {
    let impairment = Impairment { lost: 10_000, ..DELAY };
    let test = "suite::the_suite_passes_over_another_machine_and_a_network_that_loses_datagrams";
    over_another_machine(test, Share::ALL, impairment, 10);
}

#[test]
fn a_part_of_the_suite_passes_over_another_machine_and_a_network_that_loses_datagrams() {
    let impairment = Impairment { lost: 10_000, ..DELAY };
    let test = "suite::a_part_of_the_suite_passes_over_another_machine_and_a_network_that_loses_datagrams";
    over_another_machine(test, Share { first: 0, one_in: 7 }, impairment, 10);
}
