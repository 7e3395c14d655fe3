//! How connections are established (`NDKPI 7.7.1`, `7.7.2`).

use std::sync::{Arc, Mutex};

use engine::{
    connection::{Connector, ConnectorRequest, DisconnectReason},
    qp::Qp,
};
use host::machine::Machine;
use ndkpi::NtStatus;

use crate::world::{Node, READS, Said, Side, World, accept, answer, asking, at, connect};

//= NDKPI 7.7.1
//= NDKPI 7.7.2
#[test]
fn connect_is_answered_by_the_accept_and_accept_by_the_completed_connect() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let (mut active, arrival) = world.request("10.0.0.1", &client, &server);
    let mut passive = Side { node: arrival, queues: world.queues() };
    assert_eq!(active.heard(), []);
    accept(&passive, b"").expect("pending");
    world.run();
    assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, NtStatus::SUCCESS)]);
    assert_eq!(passive.heard(), []);
    assert_eq!(active.queues.send(1), Err(NtStatus::CONNECTION_INVALID), "not established yet");
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    // Both queue pairs can be used before the passive consumer has heard of it.
    active.queues.send(1).expect("connected");
    passive.queues.receive(2);
    world.run();
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::SUCCESS)]);
    passive.queues.send(3).expect("connected");
    active.queues.receive(4);
    world.run();
    assert_eq!(active.queues.completed(), [(1, NtStatus::SUCCESS), (4, NtStatus::SUCCESS)]);
    assert_eq!(passive.queues.completed(), [(2, NtStatus::SUCCESS), (3, NtStatus::SUCCESS)]);
    active.close();
    passive.close();
    server.close();
    drop((client, peer));
    world.finish();
}

#[test]
fn accept_and_complete_connect_may_be_called_inside_the_callbacks() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let own = Arc::new(Mutex::new(None::<Node>));
    let inside = own.clone();
    let node = world.node_that(
        &adapter,
        Box::new(move |said| {
            if *said == answer(ConnectorRequest::Connect, NtStatus::SUCCESS) {
                let node = inside.lock().expect("no panic").clone().expect("set");
                drop(Connector::complete_connect(&node.connector).expect("accepted"));
            }
        }),
    );
    *own.lock().expect("no panic") = Some(node.clone());
    let active = Side { node, queues: world.queues() };
    connect(&active, "10.0.0.1", server.address, b"").expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    accept(&passive, b"").expect("pending");
    world.run();
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::SUCCESS)]);
    *own.lock().expect("no panic") = None;
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn what_was_answered_already_is_still_told_after_a_close() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, passive) = world.accepted("10.0.0.1", &adapter, &server);
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    let heard = passive.close();
    world.run();
    assert_eq!(heard.take(), [answer(ConnectorRequest::Accept, NtStatus::SUCCESS), Said::Gone]);
    assert_eq!(active.heard(), [Said::Disconnected(DisconnectReason::Closed)]);
    active.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn requests_out_of_their_order_are_invalid_or_find_the_connection_active() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let invalid = Some(NtStatus::CONNECTION_INVALID);
    let in_use = Err(NtStatus::CONNECTION_ACTIVE);
    let active = Side { node: world.node(&adapter), queues: world.queues() };
    let own = &active.node.connector;
    for address in [own.local_address(), own.peer_address()] {
        assert_eq!(address.err(), invalid);
    }
    assert_eq!(Connector::complete_connect(own).err(), invalid);
    assert_eq!(accept(&active, b"").err(), invalid);
    assert_eq!(Connector::disconnect(own).err(), invalid);
    connect(&active, "10.0.0.1", server.address, b"").expect("pending");
    assert_eq!(connect(&active, "10.0.0.1", server.address, b""), in_use);
    assert_eq!(Connector::complete_connect(own).err(), invalid, "nobody has accepted");
    assert_eq!(accept(&active, b"").err(), invalid, "it is the active side");
    assert_eq!(Connector::disconnect(own).err(), invalid);
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    let other = &passive.node.connector;
    assert_eq!(Connector::complete_connect(other).err(), invalid, "it is the passive side");
    assert_eq!(connect(&passive, "10.0.0.1", server.address, b""), in_use);
    accept(&passive, b"").expect("pending");
    let spare = world.queues();
    assert_eq!(Connector::accept(other, &spare.qp, READS, b""), in_use, "it has accepted");
    assert_eq!(Connector::complete_connect(own).err(), invalid, "it does not know yet");
    assert_eq!(Connector::disconnect(other).err(), invalid);
    world.run();
    assert_eq!(Connector::disconnect(own).err(), invalid);
    drop(Connector::complete_connect(own).expect("accepted"));
    assert_eq!(Connector::complete_connect(own).err(), invalid, "it is established");
    assert_eq!(Connector::disconnect(other).err(), invalid, "it does not know yet");
    world.run();
    assert_eq!(connect(&active, "10.0.0.1", server.address, b""), in_use);
    assert_eq!(Connector::accept(other, &spare.qp, READS, b""), in_use);
    active.close();
    passive.close();
    spare.close();
    server.close();
    drop(adapter);
    world.finish();
}

//= NDKPI 7.2.3
#[test]
fn a_queue_pair_belongs_to_one_connector_and_is_never_connected_again() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, arrival) = world.request("10.0.0.1", &adapter, &server);
    let other = world.node(&adapter);
    let connect = |node: &Node, side: &Side| {
        Connector::connect(&node.connector, &side.queues.qp, at("10.0.0.1:0"), &asking(server.address, b""))
    };
    let in_use = Err(NtStatus::CONNECTION_ACTIVE);
    assert_eq!(connect(&other, &active), in_use);
    assert_eq!(Connector::accept(&arrival.connector, &active.queues.qp, READS, b""), in_use, "not to itself");
    let passive = Side { node: arrival, queues: world.queues() };
    accept(&passive, b"").expect("the connector was not used up");
    world.run();
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    world.run();
    assert_eq!(connect(&other, &passive), in_use);
    passive.node.clone().close();
    active.node.clone().close();
    world.run();
    for side in [&active, &passive] {
        assert_eq!(connect(&other, side), Err(NtStatus::CONNECTION_INVALID), "it is flushed for good");
    }
    let dead = world.queues();
    Qp::fail(&dead.qp);
    let asked = asking(server.address, b"");
    let invalid = Err(NtStatus::CONNECTION_INVALID);
    assert_eq!(Connector::connect(&other.connector, &dead.qp, at("10.0.0.1:0"), &asked), invalid);
    dead.close();
    other.close();
    active.queues.close();
    passive.queues.close();
    server.close();
    drop((active.node, passive.node, adapter));
    world.finish();
}

#[test]
fn a_queue_pair_that_was_not_connected_can_be_used_by_another_connector() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, passive) = world.accepted("10.0.0.1", &adapter, &server);
    active.node.close();
    passive.node.close();
    world.run();
    let active = Side { node: world.node(&adapter), queues: active.queues };
    connect(&active, "10.0.0.1", server.address, b"").expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: passive.queues };
    accept(&passive, b"").expect("pending");
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn a_queue_pair_that_fails_before_the_connect_is_completed_spoils_it() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    for (fails, status) in [(0, NtStatus::CONNECTION_INVALID), (1, NtStatus::CONNECTION_ABORTED)] {
        let (active, passive) = world.accepted("10.0.0.1", &adapter, &server);
        Qp::fail(&[&active, &passive][fails].queues.qp);
        world.run();
        assert_eq!(Connector::complete_connect(&active.node.connector).err(), Some(status));
        world.run();
        assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::CONNECTION_ABORTED)]);
        assert_eq!(active.heard(), []);
        active.close();
        passive.close();
    }
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn no_event_comes_before_the_consumer_knows_that_its_connect_is_complete() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, passive) = world.accepted("10.0.0.1", &adapter, &server);
    let hold = Connector::complete_connect(&active.node.connector).expect("accepted");
    Qp::fail(&passive.queues.qp);
    world.run();
    assert_eq!(active.heard(), []);
    let lost = Said::Disconnected(DisconnectReason::Failed);
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::SUCCESS), lost], "in this order");
    drop(hold);
    assert_eq!(active.heard(), [], "not told inline");
    world.run();
    assert_eq!(active.heard(), [lost]);
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn a_connector_closed_inside_its_last_completion_goes_after_it() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let own = Arc::new(Mutex::new(None::<Node>));
    let inside = own.clone();
    let node = world.node_that(
        &adapter,
        Box::new(move |_| {
            let own = inside.lock().expect("no panic").take();
            drop(own.map(Node::close));
        }),
    );
    let heard = node.heard.clone();
    let queues = world.queues();
    Connector::connect(&node.connector, &queues.qp, at("10.0.0.1:0"), &asking(server.address, b"")).expect("pending");
    *own.lock().expect("no panic") = Some(node);
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    accept(&passive, b"").expect("pending");
    world.run();
    assert_eq!(heard.take(), [answer(ConnectorRequest::Connect, NtStatus::SUCCESS), Said::Gone]);
    assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, NtStatus::CONNECTION_ABORTED)]);
    queues.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

//= NDKPI 7.2.5
#[test]
fn a_flush_at_the_same_time_as_the_completion_of_the_connect_leaves_a_connection_that_works() {
    for seed in 0..400 {
        let world = World::on(Machine::seeded(seed).processors(3).preemption(20).start());
        let (client, host) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
        let server = world.server(&host, "10.0.0.2:1");
        let (mut active, mut passive) = world.accepted("10.0.0.1", &client, &server);
        for side in [&active, &passive] {
            // What is to be cancelled is looked for while the queue pairs are linked.
            Qp::flush(&side.queues.qp);
        }
        drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
        passive.queues.receive(1);
        active.queues.send(2).expect("connected");
        active.queues.receive(3);
        passive.queues.send(4).expect("connected");
        world.run();
        for (side, contexts) in [(&mut active, [2, 3]), (&mut passive, [1, 4])] {
            let mut completed = side.queues.completed();
            completed.sort_unstable();
            assert_eq!(completed, contexts.map(|context| (context, NtStatus::SUCCESS)), "with the seed {seed}");
        }
        active.close();
        passive.close();
        server.close();
        drop((client, host));
        world.finish();
    }
}
