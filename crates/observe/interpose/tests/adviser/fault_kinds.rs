//! Each fault as a consumer sees it, which the adviser watches: a fault leads no correct consumer to a finding.

use std::ptr;

use conformance::Platform;
use interpose::{
    Function,
    faults::{Delay, Kind, Rule, Which},
};
use ndkpi::*;

use crate::consumer::{Differs, Done, Pair, World, ndk, requested};

/// A machine with one fault.
fn world(rule: Rule) -> World {
    World::with(Differs { faults: Some(rule), ..Differs::default() })
}

fn rule(kind: Kind, which: Which, function: Function) -> Rule {
    Rule { function: Some(function), ..Rule::new(kind, which) }
}

/// Ends a machine on which the fault has happened so often.
#[track_caller]
fn end(world: World, made: u64) {
    assert_eq!(world.tally.made(), made, "faults");
    assert_eq!(world.end(), []);
}

fn initialise(mr: *mut NDK_MR) -> (NtStatus, &'static Done) {
    let done = Done::new();
    (ndk!(mr, NdkInitializeFastRegisterMr(1, 0, Some(requested), done.context())), done)
}

#[test]
fn a_call_is_refused() {
    let world = world(rule(Kind::Refuse, Which::Nth(2), Function::CreatePd));
    let first = world.pd();
    let (done, mut out) = (Done::new(), ptr::null_mut());
    let status = ndk!(world.adapter, NdkCreatePd(Some(crate::consumer::created), done.context(), &raw mut out));
    assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES);
    let third = world.pd();
    world.close(third);
    world.close(first);
    end(world, 1);
}

#[test]
fn a_request_pends_and_fails() {
    let fail = Rule {
        status: Some(NtStatus::HOST_UNREACHABLE),
        delay: Delay::Fixed(300),
        ..rule(Kind::Fail, Which::Nth(1), Function::Connect)
    };
    let world = world(fail);
    let (pd, cq) = (world.pd(), world.cq(8));
    let (qp, connector) = (world.qp(pd, cq, 4, 1), world.connector());
    let (local, remote, done) = (world.address(0), world.address(9), Done::new());
    let before = world.platform.now();
    let status = ndk!(
        connector,
        NdkConnect(
            qp,
            local.as_ptr(),
            local.length(),
            remote.as_ptr(),
            remote.length(),
            1,
            1,
            ptr::null(),
            0,
            Some(requested),
            done.context()
        )
    );
    assert_eq!((status, done.count()), (NtStatus::PENDING, 0));
    assert_eq!(world.finish(status, done), NtStatus::HOST_UNREACHABLE);
    assert!(world.platform.now() >= before + 300);
    world.close(connector);
    world.close(qp);
    world.close(cq);
    world.close(pd);
    end(world, 1);
}

#[test]
fn a_completion_comes_late_and_the_close_waits_for_it() {
    let late =
        Rule { delay: Delay::Fixed(2_000), ..rule(Kind::Late, Which::Every(1), Function::InitializeFastRegisterMr) };
    let world = world(late);
    let pd = world.pd();
    let mr = world.mr(pd, true);
    let before = world.platform.now();
    let (status, done) = initialise(mr);
    assert_eq!((status, done.count()), (NtStatus::PENDING, 0));
    // NDKPI 7.9: the close completes after the request, whose completion is still to come.
    let closed = Done::new();
    assert_eq!(World::close_with(mr, closed.context()), NtStatus::PENDING);
    world.wait("the close", &|| closed.count() == 1);
    assert_eq!((done.count(), done.status()), (1, NtStatus::SUCCESS));
    assert!(world.platform.now() >= before + 2_000);
    world.close(pd);
    end(world, 1);
}

#[test]
fn a_creation_completes_late() {
    let late = Rule { delay: Delay::Fixed(500), ..rule(Kind::Late, Which::Nth(1), Function::CreateCq) };
    let world = world(late);
    let before = world.platform.now();
    let cq = world.cq(8);
    assert!(world.platform.now() >= before + 500);
    assert_eq!(World::drain(cq), []);
    world.close(cq);
    end(world, 1);
}

#[test]
fn a_close_is_late_and_antecedents_wait_for_it() {
    let late = Rule {
        object_type: Some(NDK_OBJECT_TYPE::MR),
        delay: Delay::Fixed(3_000),
        ..rule(Kind::Late, Which::Nth(1), Function::Close)
    };
    let world = world(late);
    let pd = world.pd();
    let mr = world.mr(pd, false);
    let (first, second) = (Done::new(), Done::new());
    let before = world.platform.now();
    assert_eq!(World::close_with(mr, first.context()), NtStatus::PENDING);
    assert_eq!(World::close_with(pd, second.context()), NtStatus::PENDING);
    world.wait("the domain's close", &|| second.count() == 1);
    assert_eq!(first.count(), 1);
    assert!(world.platform.now() >= before + 3_000);
    end(world, 1);
}

#[test]
fn an_adapter_waits_for_what_is_late() {
    let late = Rule { delay: Delay::Fixed(3_000), ..rule(Kind::Late, Which::Every(1), Function::Close) };
    let world = world(late);
    let (pd, done) = (world.pd(), Done::new());
    assert_eq!(World::close_with(pd, done.context()), NtStatus::PENDING);
    let tally = world.tally.clone();
    assert_eq!(world.end(), []);
    assert_eq!((tally.made(), done.count()), (1, 1));
}

#[test]
fn a_completion_comes_before_the_call_returns() {
    let world = world(rule(Kind::Early, Which::Nth(1), Function::InitializeFastRegisterMr));
    let pd = world.pd();
    let mr = world.mr(pd, true);
    let (status, done) = initialise(mr);
    assert_eq!((status, done.count(), done.status()), (NtStatus::PENDING, 1, NtStatus::SUCCESS));
    world.close(mr);
    world.close(pd);
    end(world, 1);
}

/// Sends once.
fn send(pair: &Pair) {
    assert!(pair.receive(1, 64).is_success());
    assert!(pair.send(2, 64, 0).is_success());
}

#[test]
fn a_notification_is_late_and_answers_the_arms_before_it() {
    let late = Rule { delay: Delay::Fixed(5_000), ..rule(Kind::Event, Which::Nth(1), Function::CqNotification) };
    let world = world(late);
    let pair = world.pair(8, 64);
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    send(&pair);
    world.platform.settle();
    assert_eq!(pair.notified.count(), 0, "it comes later");
    assert_eq!(World::drain(pair.cq).len(), 2, "who polls sees them");
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    world.wait("the notification", &|| pair.notified.count() > 0);
    send(&pair);
    world.platform.sleep(20_000);
    assert_eq!(pair.notified.count(), 1, "the one that was due answers both arms");
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    world.wait("the next notification", &|| pair.notified.count() == 2);
    world.completions(pair.cq, 2);
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn the_close_of_a_queue_waits_for_its_notification() {
    let late = Rule { delay: Delay::Fixed(5_000), ..rule(Kind::Event, Which::Nth(1), Function::CqNotification) };
    let world = world(late);
    let pair = world.pair(8, 64);
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    send(&pair);
    world.platform.settle();
    World::drain(pair.cq);
    assert_eq!(pair.notified.count(), 0);
    world.end_pair(&pair);
    assert_eq!(pair.notified.count(), 1, "called before the close has completed");
    end(world, 1);
}

#[test]
fn connect_and_disconnect_events_are_late() {
    let late = Rule { delay: Delay::Fixed(4_000), ..Rule::new(Kind::Event, Which::Every(1)) };
    let world = world(Rule { object_type: Some(NDK_OBJECT_TYPE::CONNECTOR), ..late });
    let pair = world.pair(8, 64);
    let before = world.platform.now();
    let _ = world.request(|completion, context| ndk!(pair.connectors[0], NdkDisconnect(completion, context)));
    world.wait("the event", &|| pair.ended[1].count() == 1);
    assert!(world.platform.now() >= before + 4_000);
    world.end_pair(&pair);
    end(world, 1);
    let late = Rule { delay: Delay::Fixed(4_000), ..rule(Kind::Event, Which::Every(1), Function::ConnectEvent) };
    let world = self::world(late);
    let before = world.platform.now();
    let pair = world.pair(8, 64);
    assert!(world.platform.now() >= before + 4_000);
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn completions_are_held_back_and_the_next_arm_is_satisfied_by_them() {
    let hold = Rule { delay: Delay::Fixed(5_000), ..Rule::new(Kind::Hold, Which::Nth(1)) };
    let world = world(hold);
    let pair = world.pair(8, 64);
    send(&pair);
    world.platform.settle();
    assert_eq!(World::drain(pair.cq), [], "held back");
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    world.wait("the notification", &|| pair.notified.count() == 1);
    assert_eq!(world.completions(pair.cq, 2), [NtStatus::SUCCESS; 2]);
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn who_is_notified_finds_what_there_is() {
    let hold = Rule { delay: Delay::Fixed(1_000_000), ..Rule::new(Kind::Hold, Which::Nth(1)) };
    let world = world(hold);
    let pair = world.pair(8, 64);
    assert_eq!(World::drain(pair.cq), [], "nothing is there, and that is held back");
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    send(&pair);
    world.wait("the notification", &|| pair.notified.count() == 1);
    assert_eq!(world.completions(pair.cq, 2), [NtStatus::SUCCESS; 2]);
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn a_request_fails_and_its_queue_pair_with_it() {
    let fail = Rule { status: Some(NtStatus::IO_TIMEOUT), ..Rule::new(Kind::Result, Which::Nth(2)) };
    let world = world(fail);
    let pair = world.pair(8, 64);
    for context in 0..3 {
        assert!(pair.receive(10 + context, 64).is_success());
    }
    assert!(pair.send(1, 64, 0).is_success());
    assert!(pair.send(2, 64, 0).is_success());
    world.platform.settle();
    let statuses = World::drain(pair.cq);
    let of = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    // The receives are the peer's, whose queue pair is whole. Of the sends the first has failed, so the second is cancelled.
    assert_eq!((of(NtStatus::SUCCESS), of(NtStatus::IO_TIMEOUT), of(NtStatus::CANCELLED)), (2, 1, 1), "{statuses:?}");
    assert_eq!(pair.send(3, 64, 0), NtStatus::CONNECTION_INVALID);
    assert!(pair.receive(20, 64).is_success());
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn a_send_fails_as_if_it_had_met_no_receive() {
    let world = world(Rule::new(Kind::NotReady, Which::Nth(1)));
    let pair = world.pair(8, 64);
    for context in 0..2 {
        assert!(pair.receive(10 + context, 64).is_success());
        assert!(pair.send(context, 64, 0).is_success());
    }
    world.platform.settle();
    let mut statuses = World::drain(pair.cq);
    statuses.sort_by_key(|status| status.to_bits());
    // The receives are the peer's.
    let mut expected = [NtStatus::SUCCESS, NtStatus::SUCCESS, NtStatus::IO_TIMEOUT, NtStatus::CANCELLED];
    expected.sort_by_key(|status| status.to_bits());
    assert_eq!(statuses, expected);
    assert_eq!(pair.send(3, 64, 0), NtStatus::CONNECTION_INVALID);
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn receives_are_seen_before_the_sends_that_completed_before_them() {
    use NDK_OPERATION_TYPE as Type;
    for crossed in [false, true] {
        let world = world(Rule::new(Kind::Cross, Which::Nth(if crossed { 1 } else { 2 })));
        let pair = world.pair(8, 64);
        for context in 0..2 {
            assert!(pair.receive(10 + context, 64).is_success());
            assert!(pair.send(context, 64, 0).is_success());
        }
        world.platform.settle();
        let mut results = [NDK_RESULT_EX::ZEROED; 8];
        assert_eq!(ndk!(pair.cq, NdkGetCqResultsEx(results.as_mut_ptr(), 8)), 4);
        let kinds = results[..4].iter().map(|result| result.Type).collect::<Vec<_>>();
        let contexts = results[..4].iter().map(|result| result.RequestContext.addr()).collect::<Vec<_>>();
        if crossed {
            assert_eq!(kinds, [Type::RECEIVE, Type::RECEIVE, Type::SEND, Type::SEND]);
            assert_eq!(contexts, [10, 11, 0, 1], "each queue has kept its order");
        } else {
            assert_eq!(kinds, [Type::RECEIVE, Type::SEND, Type::RECEIVE, Type::SEND]);
        }
        world.end_pair(&pair);
        end(world, u64::from(crossed));
    }
}

#[test]
fn a_connection_ends_and_both_sides_are_told_once() {
    let ends = Rule { delay: Delay::Fixed(10_000), ..rule(Kind::Disconnect, Which::Nth(1), Function::CompleteConnect) };
    let world = world(ends);
    let pair = world.pair(8, 64);
    send(&pair);
    assert_eq!(world.completions(pair.cq, 2), [NtStatus::SUCCESS; 2]);
    // The peer's part of the disconnect.
    world.wait("the peer", &|| pair.ended[1].count() == 1);
    world.try_request(|completion, context| ndk!(pair.connectors[1], NdkDisconnect(completion, context)));
    world.wait("the consumer", &|| pair.ended[0].count() == 1);
    let status = world.request(|completion, context| ndk!(pair.connectors[0], NdkDisconnect(completion, context)));
    assert_eq!(status, NtStatus::CONNECTION_ABORTED);
    assert!(!pair.send(5, 64, 0).is_success());
    world.platform.settle();
    assert_eq!(pair.ended.map(Done::count), [1, 1]);
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn a_connection_that_is_closed_before_its_end_does_not_end_twice() {
    let ends = Rule { delay: Delay::Fixed(50_000), ..Rule::new(Kind::Disconnect, Which::Every(1)) };
    let world = world(ends);
    let pair = world.pair(8, 64);
    world.end_pair(&pair);
    assert!(pair.ended.iter().all(|ended| ended.count() <= 1));
    end(world, 2);
}

fn queue_fails(kind: Kind, status: NtStatus) {
    let world = world(rule(kind, Which::Nth(2), Function::ArmCq));
    let pair = world.pair(8, 64);
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ERRORS));
    assert_eq!(pair.notified.count(), 0);
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    world.wait("the notification", &|| pair.notified.count() == 1);
    assert_eq!(pair.notified.status(), status);
    assert!(pair.receive(1, 64).is_success());
    assert_eq!(pair.send(2, 64, 0), NtStatus::CONNECTION_INVALID);
    world.platform.settle();
    assert_eq!(World::drain(pair.cq), [], "nothing completes any more");
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    world.wait("who arms a queue that has failed", &|| pair.notified.count() == 2);
    assert_eq!(pair.notified.status(), status);
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn a_completion_queue_fails() {
    queue_fails(Kind::CqError, NtStatus::INTERNAL_ERROR);
    queue_fails(Kind::Overrun, NtStatus::BUFFER_OVERFLOW);
}

#[test]
fn an_adapter_is_pulled() {
    let world = world(rule(Kind::Remove, Which::Nth(1), Function::Send));
    let pair = world.pair(8, 64);
    assert!(pair.receive(1, 64).is_success());
    let _ = pair.send(2, 64, 0);
    world.wait("both sides", &|| pair.ended.iter().all(|ended| ended.count() == 1));
    world.platform.settle();
    World::drain(pair.cq);
    assert_eq!(pair.send(3, 64, 0), NtStatus::CONNECTION_INVALID);
    world.end_pair(&pair);
    end(world, 1);
}

#[test]
fn another_consumer_or_object_is_left_alone() {
    for other in [
        Rule { consumer: Some(2), ..Rule::new(Kind::Refuse, Which::Every(1)) },
        Rule { object: Some(77), ..Rule::new(Kind::Refuse, Which::Every(1)) },
        Rule { object_type: Some(NDK_OBJECT_TYPE::SRQ), ..Rule::new(Kind::Refuse, Which::Every(1)) },
    ] {
        let world = world(other);
        let pair = world.pair(8, 64);
        world.end_pair(&pair);
        end(world, 0);
    }
}

#[test]
fn every_fault_has_a_rule_and_happens_to_something() {
    for (number, &kind) in (1..).zip(Kind::ALL) {
        let page = kind.page();
        assert_eq!((Kind::from_number(number), Kind::from_name(page.name)), (Some(kind), Some(kind)));
        assert!(page.section.starts_with("NDKPI ") || page.section.starts_with("NDIS-NDK "), "{}", page.name);
        assert!(page.rule.len() > 40 && page.what.len() > 20 && page.operations.len() > 10, "{}", page.name);
        let functions: Vec<_> = Function::ALL.iter().filter(|function| kind.happens_to(**function)).collect();
        assert!(!functions.is_empty(), "{}", page.name);
        if page.has_status {
            assert!(functions.iter().all(|function| !kind.statuses(**function).is_empty()), "{}", page.name);
        }
    }
    // What cannot fail by its page is never refused.
    for function in [Function::Close, Function::DeregisterMr, Function::ArmCq, Function::Disconnect, Function::Receive]
    {
        assert!(!Kind::Refuse.happens_to(function) && !Kind::Fail.happens_to(function), "{function:?}");
    }
}
