//! The conformance suite, from `ndktest` over Winsock Kernel, between two adapters with a wire.

use conformance::cases;
use control::{
    case::{Names, StartCase},
    client::{Event, TestDriver},
    network::{Problem, Reason},
    test_device::{Progress, State},
};
use simulated_kernel::{Impairment, Kernel, Medium};
use testing::alone::in_a_process_of_its_own;

use crate::{
    machine::statistics,
    sides::with_wire,
    transport::ToKernel,
    world::{Consumer, consumer_control},
};

/// A profile whose adapters do not connect to themselves: then the suite has one side of each connection on the other adapter.
const PROFILE: &str = "2";

/// Cases that are not run, and why.
const LEFT_OUT: &[(&str, &str)] =
    &[("connect.rejected-after-the-peer-gave-up", "the peer's REJ is still on its way, and the reject succeeds")];

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
    with_wire(kernel, &[("RdmaProfile", PROFILE)], |_, nics| {
        let consumer = Consumer::load(kernel).expect("the consumer loads");
        let program = TestDriver::new(ToKernel(consumer_control(kernel)));
        let ends = nics.map(|nic| nic.if_index().to_string());
        let (mut wrong, mut passed) = (Vec::new(), 0);
        for case in cases::all().filter(|case| !LEFT_OUT.iter().any(|(name, _)| *name == case.name)) {
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
    });
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
