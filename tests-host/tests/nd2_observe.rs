//! What a completion queue shows to a client that decides for each of its own waiters (NDSPI 9).

use engine::{
    cq::{
        Cq, CqClient, CqParameters, Cqe, CqeOutcome, Operation, Received,
        notify::{ArmType, Class, CqFailure, Notify},
    },
    os::Os,
};
use host::{HostOs, machine::Machine};
use ndkpi::NtStatus;

struct Nobody;

impl CqClient for Nobody {
    fn notify(&self, _: NtStatus) {}

    fn failed(&self, _: CqFailure) {}
}

const fn completion(status: NtStatus, solicited: bool) -> Cqe {
    Cqe {
        qp_context: 0,
        outcome: CqeOutcome::new(Operation::Receive, status).soliciting(solicited),
        request_context: 0,
        received: Received::new(0, 0),
    }
}

#[test]
fn the_newest_failed_entry_is_known_apart_from_the_newest_solicited_one() {
    // Also where the ordinals wrap around.
    for first in [0, u64::MAX - 2] {
        let mut notify = Notify::new(first);
        assert_eq!(notify.newest_failed(), first, "there is none yet");
        let mut expected = (first, first);
        for (step, class) in (1..).zip([Class::Plain, Class::Failed, Class::Solicited, Class::Plain, Class::Failed]) {
            let _ = notify.queued(class, false);
            let ordinal = first.wrapping_add(step);
            expected = match class {
                Class::Plain => expected,
                Class::Solicited => (ordinal, expected.1),
                Class::Failed => (ordinal, ordinal),
            };
            assert_eq!((notify.view().newest_solicited, notify.newest_failed()), expected, "after {class:?}");
        }
    }
}

#[test]
fn who_arms_and_then_looks_sees_what_is_queued_taken_and_failed() {
    let machine = Machine::seeded(1).start();
    let os = HostOs::new(&machine);
    let parameters = CqParameters { depth: 4, max_depth: 4, processor: os.current_processor() };
    let (cq, mut consumer) = Cq::try_new(&os, parameters, Nobody).expect("memory");
    let completions = [completion(NtStatus::SUCCESS, true), completion(NtStatus::CANCELLED, false)];
    Cq::push_all(&cq, || &completions);
    assert_eq!(consumer.poll(1, |_| {}), 1);
    consumer.arm(ArmType::Errors);
    let seen = cq.observe();
    assert_eq!((seen.view.newest, seen.view.taken, seen.newest_failed, seen.failure), (2, 1, 2, None));
    Cq::fail(&cq, CqFailure::Fatal);
    assert_eq!(cq.observe().failure, Some(CqFailure::Fatal));
    cq.close();
    drop((cq, consumer));
    machine.shutdown();
}
