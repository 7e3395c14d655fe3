//! Counters and listings (`NDIS-NDK 3`, `6`).

use engine::{
    connection::{ConnectionCounters, ConnectionEntry, Connector, EndpointEntry, EndpointKind, Listener, Owner, Port},
    qp::Qp,
};
use fallible::Arc;
use host::HostOs;
use ndkpi::NtStatus;

use crate::world::{Side, TIMEOUTS, World, accept, at, connect, connect_from};

const ZERO: ConnectionCounters =
    ConnectionCounters { connect: 0, accept: 0, connect_failure: 0, connection_error: 0, active: 0 };

fn connections(port: &Arc<Port<HostOs>>) -> Vec<ConnectionEntry> {
    let mut found = Vec::new();
    let result: Result<(), ()> = port.connections(|entry| {
        found.push(entry);
        Ok(())
    });
    assert_eq!(result, Ok(()));
    found
}

fn endpoints(port: &Arc<Port<HostOs>>) -> Vec<EndpointEntry> {
    let mut found = Vec::new();
    let result: Result<(), ()> = port.endpoints(|entry| {
        found.push(entry);
        Ok(())
    });
    assert_eq!(result, Ok(()));
    found
}

#[test]
fn connections_are_counted_on_their_side_and_active_until_they_end() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let (active, passive) = world.accepted("10.0.0.1", &client, &server);
    assert_eq!((client.counters(), peer.counters()), (ZERO, ZERO), "not established yet");
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    assert_eq!(client.counters(), ConnectionCounters { connect: 1, active: 1, ..ZERO });
    assert_eq!(peer.counters(), ConnectionCounters { accept: 1, active: 1, ..ZERO });
    world.run();
    Connector::disconnect(&active.node.connector).expect("connected");
    world.run();
    assert_eq!(client.counters(), ConnectionCounters { connect: 1, ..ZERO });
    assert_eq!(peer.counters(), ConnectionCounters { accept: 1, ..ZERO });
    active.close();
    passive.close();
    assert_eq!(client.counters(), ConnectionCounters { connect: 1, ..ZERO });
    server.close();
    drop((client, peer));
    world.finish();
}

#[test]
fn failed_attempts_are_counted_on_both_sides_if_a_listener_took_them() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let failures = || (client.counters().connect_failure, peer.counters().connect_failure);
    let side = Side { node: world.node(&client), queues: world.queues() };
    // What is wrong with the local endpoint is no attempt.
    assert_eq!(connect(&side, "10.0.0.2", server.address, b""), Err(NtStatus::INVALID_ADDRESS));
    assert_eq!(connect(&side, "10.0.0.1", at("0.0.0.0:1"), b""), Err(NtStatus::INVALID_ADDRESS));
    assert_eq!(failures(), (0, 0));
    // No listener has taken these.
    assert_eq!(connect(&side, "10.0.0.1", at("10.0.0.2:9"), b""), Err(NtStatus::CONNECTION_REFUSED));
    assert_eq!(connect(&side, "10.0.0.1", at("10.0.0.9:1"), b""), Err(NtStatus::HOST_UNREACHABLE));
    server.listener.pause(true);
    assert_eq!(connect(&side, "10.0.0.1", server.address, b""), Err(NtStatus::CONNECTION_REFUSED));
    server.listener.pause(false);
    assert_eq!(failures(), (3, 0));
    // Rejected.
    connect(&side, "10.0.0.1", server.address, b"").expect("pending");
    world.run();
    let arrival = server.arrival();
    Connector::reject(&arrival.connector, b"").expect("waiting");
    arrival.close();
    world.run();
    assert_eq!(failures(), (4, 1));
    // Out of time.
    connect(&side, "10.0.0.1", server.address, b"").expect("pending");
    world.machine.run_for(TIMEOUTS.connect + 100);
    server.arrival().close();
    assert_eq!(failures(), (5, 2));
    // Not completed.
    connect(&side, "10.0.0.1", server.address, b"").expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    accept(&passive, b"").expect("pending");
    world.run();
    side.close();
    passive.close();
    world.run();
    assert_eq!(failures(), (6, 3));
    let expected = ConnectionCounters { connect_failure: 6, ..ZERO };
    assert_eq!(client.counters(), expected);
    server.close();
    drop((client, peer));
    world.finish();
}

#[test]
fn errors_are_connections_that_end_before_a_consumer_disconnects() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let errors = || (client.counters().connection_error, peer.counters().connection_error);
    let finish = |active: Side, passive: Side| {
        active.close();
        passive.close();
        world.run();
    };
    // A disconnect is none, not even one that does not end well.
    let (active, passive) = world.connected("10.0.0.1", &client, &server);
    Connector::disconnect(&passive.node.connector).expect("connected");
    world.run();
    finish(active, passive);
    let (mut active, passive) = world.connected("10.0.0.1", &client, &server);
    active.queues.send(1).expect("connected");
    Connector::disconnect(&active.node.connector).expect("connected");
    world.machine.run_for(TIMEOUTS.disconnect + 100);
    finish(active, passive);
    let (mut active, passive) = world.connected("10.0.0.1", &client, &server);
    active.queues.send(1).expect("connected");
    Connector::disconnect(&active.node.connector).expect("connected");
    Qp::fail(&passive.queues.qp);
    world.run();
    finish(active, passive);
    assert_eq!(errors(), (0, 0));
    // A queue pair that fails is one for both.
    let (active, passive) = world.connected("10.0.0.1", &client, &server);
    Qp::fail(&active.queues.qp);
    world.run();
    finish(active, passive);
    assert_eq!(errors(), (1, 1));
    // A close is one for the peer.
    let (active, passive) = world.connected("10.0.0.1", &client, &server);
    finish(active, passive);
    assert_eq!(errors(), (1, 2));
    assert_eq!((client.counters().active, peer.counters().active), (0, 0));
    server.close();
    drop((client, peer));
    world.finish();
}

#[test]
fn active_connections_are_listed_on_both_sides() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let (active, passive) = world.accepted("10.0.0.1", &client, &server);
    assert_eq!((connections(&client), connections(&peer)), (vec![], vec![]));
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    let (local, remote) = (active.node.connector.local_address().expect("it has one"), at("10.0.0.2:1"));
    assert_eq!(connections(&client), [ConnectionEntry { local, remote, owner: Owner::default() }]);
    // Connectors that come over a listener belong to whom the listener does.
    let owner = Owner { process: Some(7) };
    assert_eq!(connections(&peer), [ConnectionEntry { local: remote, remote: local, owner }]);
    world.run();
    Connector::disconnect(&passive.node.connector).expect("connected");
    world.run();
    assert_eq!((connections(&client), connections(&peer)), (vec![], vec![]));
    active.close();
    passive.close();
    server.close();
    drop((client, peer));
    world.finish();
}

#[test]
fn many_connections_are_listed_and_a_sink_that_fails_ends_it() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let sides: Vec<_> = (0..40).map(|_| world.connected("10.0.0.1", &adapter, &server)).collect();
    let mut listed: Vec<_> = connections(&adapter).into_iter().map(|entry| (entry.local, entry.remote)).collect();
    listed.sort_unstable();
    let mut expected: Vec<_> = sides
        .iter()
        .flat_map(|(active, passive)| [active, passive])
        .map(|side| &side.node.connector)
        .map(|connector| {
            (connector.local_address().expect("it has one"), connector.peer_address().expect("it has one"))
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    let mut room = 5;
    let result = adapter.connections(|_| {
        room -= 1;
        if room == 0 { Err("full") } else { Ok(()) }
    });
    assert_eq!((result, room), (Err("full"), 0));
    for (active, passive) in sides {
        active.close();
        passive.close();
    }
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn listeners_and_shared_endpoints_are_listed_as_long_as_they_use_their_port() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1", "fd00::1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (shared, _) = world.shared(&adapter, "[fd00::1]:2").expect("a free port");
    let side = Side { node: world.node(&adapter), queues: world.queues() };
    connect_from(&side, at("10.0.0.1:3"), server.address, b"").expect("pending");
    let listener =
        EndpointEntry { local: at("10.0.0.1:1"), kind: EndpointKind::Listener, owner: Owner { process: Some(7) } };
    let endpoint = EndpointEntry { local: at("[fd00::1]:2"), kind: EndpointKind::Shared, owner: Owner::default() };
    assert_eq!(endpoints(&adapter), [listener, endpoint], "and no connector");
    drop(shared);
    assert_eq!(endpoints(&adapter), [listener]);
    world.run();
    let arrival = server.arrival();
    Listener::close(&server.listener);
    assert_eq!(endpoints(&adapter), [listener]);
    drop(server);
    arrival.close();
    world.run();
    assert_eq!(endpoints(&adapter), []);
    side.close();
    drop(adapter);
    world.finish();
}
