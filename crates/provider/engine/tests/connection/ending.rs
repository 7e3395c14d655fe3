//! How connections end (`NDKPI 7.7.5` to `7.7.7`).

use std::sync::{Arc, Mutex};

use engine::{
    connection::{Answer, Connector, ConnectorRequest, DisconnectReason},
    cq::{Cq, notify::CqFailure},
    qp::Qp,
};
use ndkpi::NtStatus;

use crate::world::{Node, Said, Server, Side, TIMEOUTS, World, answer};

const OK: NtStatus = NtStatus::SUCCESS;
const CANCELLED: NtStatus = NtStatus::CANCELLED;

/// Two adapters with a connection between them.
fn connection() -> (World, Server, Side, Side) {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let (active, passive) = world.connected("10.0.0.1", &client, &server);
    (world, server, active, passive)
}

fn finish(world: World, server: Server, sides: impl IntoIterator<Item = Side>) {
    for side in sides {
        side.close();
    }
    server.close();
    world.finish();
}

fn disconnect(side: &Side) -> Result<Answer, NtStatus> {
    Connector::disconnect(&side.node.connector)
}

const fn disconnected(status: NtStatus) -> Said {
    answer(ConnectorRequest::Disconnect, status)
}

const fn lost(reason: DisconnectReason) -> Said {
    Said::Disconnected(reason)
}

//= NDKPI 7.7.6
#[test]
fn a_disconnect_is_answered_flushes_and_is_indicated_once_without_a_flush() {
    let (world, server, mut active, mut passive) = connection();
    active.queues.receive(1);
    passive.queues.receive(2);
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]), "nothing is told inline");
    world.run();
    assert_eq!(active.heard(), [disconnected(OK)]);
    assert_eq!(passive.heard(), [lost(DisconnectReason::Disconnected)]);
    assert_eq!(active.queues.completed(), [(1, CANCELLED)], "an implicit flush");
    assert_eq!(passive.queues.completed(), [], "an incoming disconnect does not flush");
    for side in [&mut active, &mut passive] {
        assert_eq!(side.queues.send(3), Err(NtStatus::CONNECTION_INVALID));
    }
    passive.queues.receive(4);
    world.run();
    assert_eq!(passive.queues.completed(), []);
    // The consumer's own disconnect does.
    assert_eq!(disconnect(&passive), Ok(Answer::Done));
    world.run();
    assert_eq!(passive.queues.completed(), [(2, CANCELLED), (4, CANCELLED)]);
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]), "told once");
    finish(world, server, [active, passive]);
}

//= NDKPI 7.7.5
#[test]
fn what_was_posted_before_a_disconnect_is_carried_out_silent_requests_included() {
    let (world, server, mut active, mut passive) = connection();
    for context in 0..4 {
        passive.queues.receive(context);
    }
    active.queues.send(10).expect("connected");
    active.queues.send_silently(11).expect("connected");
    active.queues.send_silently(12).expect("connected");
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    world.run();
    assert_eq!(active.heard(), [disconnected(OK)]);
    assert_eq!(active.queues.completed(), [(10, OK)]);
    assert_eq!(passive.queues.completed(), [(0, OK), (1, OK), (2, OK)]);
    assert_eq!(passive.heard(), [lost(DisconnectReason::Disconnected)]);
    finish(world, server, [active, passive]);
}

#[test]
fn a_disconnect_waits_for_its_requests_and_the_peer_is_not_told_before() {
    let (world, server, mut active, mut passive) = connection();
    active.queues.send(1).expect("connected");
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    world.run();
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]));
    passive.queues.receive(2);
    world.run();
    assert_eq!(passive.queues.completed(), [(2, OK)]);
    assert_eq!(passive.heard(), [lost(DisconnectReason::Disconnected)]);
    assert_eq!(active.heard(), [disconnected(OK)]);
    finish(world, server, [active, passive]);
}

#[test]
fn a_disconnect_whose_requests_do_not_end_in_time_times_out_and_ends_the_connection() {
    let (world, server, mut active, mut passive) = connection();
    active.queues.send(1).expect("connected");
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    world.machine.run_for(TIMEOUTS.disconnect - 100);
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]));
    world.machine.run_for(200);
    assert_eq!(active.heard(), [disconnected(NtStatus::IO_TIMEOUT)]);
    assert_eq!(passive.heard(), [lost(DisconnectReason::TimedOut)]);
    assert_eq!(active.queues.completed(), [(1, CANCELLED)]);
    passive.queues.receive(2);
    assert_eq!(disconnect(&active), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(disconnect(&passive), Err(NtStatus::CONNECTION_ABORTED));
    world.run();
    assert_eq!(passive.queues.completed(), [(2, CANCELLED)]);
    finish(world, server, [active, passive]);
}

//= NDKPI 7.7.5
#[test]
fn two_disconnects_with_nothing_left_to_wait_for_end_at_once() {
    // The peer's notice is there and no byte moves (`NDKPI 7.7.5`). Who posts what: `true` for a send without a receive.
    for sends in [[true, false], [false, true], [true, true]] {
        for passive_first in [false, true] {
            let (world, server, mut active, mut passive) = connection();
            for (side, sends) in [(&mut active, sends[0]), (&mut passive, sends[1])] {
                if sends {
                    side.queues.send(1).expect("connected");
                    side.queues.send(2).expect("connected");
                }
            }
            let (first, second) = if passive_first { (&passive, &active) } else { (&active, &passive) };
            assert_eq!(disconnect(first), Ok(Answer::Pending));
            let first_sends = sends[usize::from(passive_first)];
            if first_sends {
                world.run();
                assert_eq!((first.heard(), second.heard()), (vec![], vec![]), "no notice of the peer yet");
            }
            assert_eq!(disconnect(second), Ok(Answer::Pending));
            world.run();
            for (side, sends) in [(&mut active, sends[0]), (&mut passive, sends[1])] {
                assert_eq!(side.heard(), [disconnected(OK)], "sends: {sends}, the passive side first: {passive_first}");
                let cancelled = [(1, CANCELLED), (2, CANCELLED)];
                assert_eq!(side.queues.completed(), if sends { &cancelled[..] } else { &[] });
            }
            finish(world, server, [active, passive]);
        }
    }
}

#[test]
fn both_sides_may_disconnect_and_neither_gets_an_indication() {
    let (world, server, mut active, mut passive) = connection();
    active.queues.send(1).expect("connected");
    passive.queues.send(2).expect("connected");
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    world.run();
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]), "the peer's notice has not come");
    // What can be carried out is carried out.
    passive.queues.receive(3);
    active.queues.receive(4);
    assert_eq!(disconnect(&passive), Ok(Answer::Pending));
    world.run();
    assert_eq!(active.queues.completed(), [(1, OK), (4, OK)]);
    assert_eq!(passive.queues.completed(), [(3, OK), (2, OK)]);
    assert_eq!((active.heard(), passive.heard()), (vec![disconnected(OK)], vec![disconnected(OK)]));
    finish(world, server, [active, passive]);
}

#[test]
fn a_disconnect_that_waits_is_answered_when_the_peer_disconnects_too() {
    let (world, server, mut active, passive) = connection();
    active.queues.send(1).expect("connected");
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    world.machine.run_for(TIMEOUTS.disconnect / 2);
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]));
    assert_eq!(disconnect(&passive), Ok(Answer::Pending));
    world.run();
    assert_eq!(active.heard(), [disconnected(OK)]);
    assert_eq!(passive.heard(), [disconnected(OK)]);
    world.machine.run_for(TIMEOUTS.disconnect);
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]), "no time-out comes later");
    finish(world, server, [active, passive]);
}

#[test]
fn a_second_disconnect_is_invalid() {
    let (world, server, active, passive) = connection();
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    assert_eq!(disconnect(&active), Err(NtStatus::CONNECTION_INVALID));
    world.run();
    assert_eq!(active.heard(), [disconnected(OK)]);
    assert_eq!(disconnect(&active), Err(NtStatus::CONNECTION_INVALID));
    assert_eq!(disconnect(&passive), Ok(Answer::Done));
    assert_eq!(disconnect(&passive), Err(NtStatus::CONNECTION_INVALID));
    finish(world, server, [active, passive]);
}

//= NDKPI 7.7.7
#[test]
fn closing_a_connector_aborts_the_connection_and_flushes() {
    let (world, server, mut active, mut passive) = connection();
    active.queues.receive(1);
    active.queues.send(2).expect("connected");
    passive.queues.send(3).expect("connected");
    world.run();
    assert_eq!(active.queues.completed(), [(1, OK)]);
    assert_eq!(passive.queues.completed(), [(3, OK)]);
    active.queues.receive(4);
    let heard = active.node.close();
    world.run();
    assert_eq!(heard.take(), [Said::Gone], "no indication of its own doing");
    let completed = active.queues.completed();
    assert!(completed == [(2, CANCELLED), (4, CANCELLED)] || completed == [(4, CANCELLED), (2, CANCELLED)]);
    assert_eq!(passive.heard(), [lost(DisconnectReason::Closed)]);
    assert_eq!(disconnect(&passive), Err(NtStatus::CONNECTION_ABORTED));
    active.queues.close();
    finish(world, server, [passive]);
}

#[test]
fn a_close_answers_the_disconnect_that_waits() {
    let (world, server, mut active, passive) = connection();
    active.queues.send(1).expect("connected");
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    let heard = active.node.close();
    world.run();
    assert_eq!(heard.take(), [disconnected(CANCELLED), Said::Gone]);
    assert_eq!(passive.heard(), [lost(DisconnectReason::Closed)]);
    active.queues.close();
    finish(world, server, [passive]);
}

#[test]
fn a_close_of_the_peer_aborts_the_disconnect_that_waits() {
    let (world, server, mut active, passive) = connection();
    active.queues.send(1).expect("connected");
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    passive.node.close();
    world.run();
    assert_eq!(active.heard(), [disconnected(NtStatus::CONNECTION_ABORTED)]);
    passive.queues.close();
    finish(world, server, [active]);
}

#[test]
fn a_queue_pair_that_fails_breaks_the_connection_for_both() {
    let (world, server, active, passive) = connection();
    Cq::fail(passive.queues.completions.cq(), CqFailure::Fatal);
    world.run();
    for side in [&active, &passive] {
        assert_eq!(side.heard(), [lost(DisconnectReason::Failed)]);
        assert_eq!(disconnect(side), Err(NtStatus::CONNECTION_ABORTED));
    }
    finish(world, server, [active, passive]);
}

#[test]
fn a_queue_pair_that_fails_aborts_the_disconnect_that_waits() {
    let (world, server, mut active, passive) = connection();
    active.queues.send(1).expect("connected");
    assert_eq!(disconnect(&active), Ok(Answer::Pending));
    world.run();
    Qp::fail(&passive.queues.qp);
    world.run();
    assert_eq!(active.heard(), [disconnected(NtStatus::CONNECTION_ABORTED)]);
    assert_eq!(passive.heard(), [lost(DisconnectReason::Failed)]);
    finish(world, server, [active, passive]);
}

#[test]
fn a_disconnect_takes_an_indication_back_that_was_not_delivered() {
    let (world, server, active, passive) = connection();
    active.node.close();
    // The indication is queued now.
    assert_eq!(disconnect(&passive), Err(NtStatus::CONNECTION_ABORTED));
    world.run();
    assert_eq!(passive.heard(), []);
    active.queues.close();
    finish(world, server, [passive]);
}

#[test]
fn the_indication_may_disconnect_and_close() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let own = Arc::new(Mutex::new(None::<Node>));
    let inside = own.clone();
    let node = world.node_that(
        &adapter,
        Box::new(move |said| {
            if matches!(said, Said::Disconnected(_))
                && let Some(node) = inside.lock().expect("no panic").take()
            {
                assert_eq!(Connector::disconnect(&node.connector), Ok(Answer::Done));
                node.close();
            }
        }),
    );
    let (heard, queues) = (node.heard.clone(), world.queues());
    let active = Side { node, queues };
    crate::world::connect(&active, "10.0.0.1", server.address, b"").expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    crate::world::accept(&passive, b"").expect("pending");
    world.run();
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    world.run();
    let Side { node, queues } = active;
    *own.lock().expect("no panic") = Some(node);
    assert_eq!(disconnect(&passive), Ok(Answer::Pending));
    world.run();
    let reason = DisconnectReason::Disconnected;
    assert_eq!(heard.take(), [answer(ConnectorRequest::Connect, OK), lost(reason), Said::Gone]);
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, OK), disconnected(OK)]);
    queues.close();
    drop(adapter);
    finish(world, server, [passive]);
}

#[test]
fn a_queue_pair_is_not_closed_before_its_connector() {
    for is_active in [true, false] {
        let (world, server, active, passive) = connection();
        let (Side { node, queues }, peer) = if is_active { (active, passive) } else { (passive, active) };
        let gone = queues.close();
        world.run();
        assert!(!gone.get(), "the close pends");
        // Closing the queue pair has broken the connection, and the connector hears of it.
        assert_eq!(node.take(), [lost(DisconnectReason::Failed)]);
        peer.close();
        world.run();
        assert!(!gone.get(), "the peer does not keep it");
        let heard = node.close();
        world.run();
        assert_eq!(heard.take(), [Said::Gone]);
        assert!(gone.get());
        finish(world, server, []);
    }
}

#[test]
fn an_end_that_comes_before_an_answer_is_told_is_told_after_it() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let (active, passive) = world.accepted("10.0.0.1", &client, &server);
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    active.close();
    assert_eq!(passive.heard(), [], "nothing is told inline");
    world.run();
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, OK), lost(DisconnectReason::Closed)]);
    drop((client, peer));
    finish(world, server, [passive]);
}

#[test]
fn reasons_are_numbers_other_than_0() {
    use DisconnectReason::{Closed, Disconnected, Failed, TimedOut};
    assert_eq!([Disconnected, Closed, Failed, TimedOut].map(DisconnectReason::code), [1, 2, 3, 4]);
}
