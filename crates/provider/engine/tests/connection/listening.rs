//! Listeners (`NDKPI 7.7.8`, `7.8`).

use engine::connection::{ConnectionLimits, Connector, ConnectorRequest, Listener};
use ndkpi::NtStatus;

use crate::{
    endpoints::{listen, try_connect},
    world::{LIMITS, Side, TIMEOUTS, World, accept, answer, at, connect},
};

//= NDKPI 7.8.1
//= NDKPI 7.8.2
#[test]
fn a_listener_refuses_from_the_moment_its_close_is_issued_and_keeps_its_port() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let (active, passive) = world.connected("10.0.0.1", &client, &server);
    // This one has not been delivered when the listener is closed.
    let waiting = Side { node: world.node(&client), queues: world.queues() };
    connect(&waiting, "10.0.0.1", server.address, b"").expect("pending");
    let gone = server.close();
    assert_eq!(try_connect(&world, &client, "10.0.0.1:0", "10.0.0.2:1"), NtStatus::CONNECTION_REFUSED);
    assert_eq!(waiting.heard(), [answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)]);
    assert!(!gone.get(), "the close pends");
    assert_eq!(listen(&world, &peer, "10.0.0.2:1"), NtStatus::SHARING_VIOLATION);
    assert_eq!(active.heard(), [], "the connection goes on");
    passive.close();
    world.run();
    assert!(gone.get());
    assert_eq!(listen(&world, &peer, "10.0.0.2:1"), NtStatus::SUCCESS);
    active.close();
    waiting.close();
    drop((client, peer));
    world.finish();
}

#[test]
fn a_listener_listens_once_and_says_where() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.idle_server(&adapter).expect("memory");
    assert_eq!(server.listener.local_address(), Err(NtStatus::INVALID_DEVICE_STATE));
    assert_eq!(Listener::listen(&server.listener, at("10.0.0.2:1")), Err(NtStatus::INVALID_ADDRESS));
    Listener::listen(&server.listener, at("10.0.0.1:1")).expect("it may try again");
    assert_eq!(Listener::listen(&server.listener, at("10.0.0.1:2")), Err(NtStatus::INVALID_DEVICE_STATE));
    assert_eq!(listen(&world, &adapter, "10.0.0.1:2"), NtStatus::SUCCESS, "that port was not taken");
    assert_eq!(server.listener.local_address(), Ok(at("10.0.0.1:1")));
    let gone = server.close();
    world.run();
    assert!(gone.get());
    drop(adapter);
    world.finish();
}

//= NDKPI 7.7.8
#[test]
fn a_paused_listener_refuses_as_if_there_were_none_and_resumes() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let early = Side { node: world.node(&adapter), queues: world.queues() };
    connect(&early, "10.0.0.1", server.address, b"").expect("pending");
    server.listener.pause(true);
    assert_eq!(try_connect(&world, &adapter, "10.0.0.1:0", "10.0.0.1:1"), NtStatus::CONNECTION_REFUSED);
    assert_eq!(early.heard(), [answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)], "refused, not queued");
    assert!(server.arrivals().is_empty());
    server.listener.pause(false);
    connect(&early, "10.0.0.1", server.address, b"").expect("pending");
    world.run();
    server.arrival().close();
    early.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn an_adapter_without_loopback_connects_to_others_only() {
    let world = World::new();
    let alone = world.adapter_with(&["10.0.0.1"], ConnectionLimits { loopback: false, ..LIMITS }, TIMEOUTS);
    let other = world.adapter_with(&["10.0.0.2"], LIMITS, TIMEOUTS);
    let (own, peer) = (world.server(&alone, "10.0.0.1:1"), world.server(&other, "10.0.0.2:1"));
    assert_eq!(try_connect(&world, &alone, "10.0.0.1:0", "10.0.0.1:1"), NtStatus::HOST_UNREACHABLE, "a listener");
    assert_eq!(try_connect(&world, &alone, "10.0.0.1:0", "10.0.0.1:2"), NtStatus::HOST_UNREACHABLE, "no listener");
    let sides = [(&alone, "10.0.0.1", &peer), (&other, "10.0.0.2", &own), (&other, "10.0.0.2", &peer)];
    let sides = sides.map(|(from, address, server)| {
        let side = Side { node: world.node(from), queues: world.queues() };
        connect(&side, address, server.address, b"").expect("pending");
        side
    });
    world.run();
    let (to_own, to_peer) = (own.arrivals(), peer.arrivals());
    assert_eq!((to_own.len(), to_peer.len()), (1, 2));
    to_own.into_iter().chain(to_peer).for_each(|arrival| drop(arrival.close()));
    for side in sides {
        drop(side.close());
    }
    own.close();
    peer.close();
    drop((alone, other));
    world.finish();
}

#[test]
fn the_backlog_is_bounded_and_a_decision_makes_room() {
    let world = World::new();
    let limits = ConnectionLimits { backlog: 3, ..LIMITS };
    let adapter = world.adapter_with(&["10.0.0.1"], limits, TIMEOUTS);
    let server = world.server(&adapter, "10.0.0.1:1");
    let side = || Side { node: world.node(&adapter), queues: world.queues() };
    let mut sides: Vec<_> = (0..3).map(|_| side()).collect();
    connect(&sides[0], "10.0.0.1", server.address, b"").expect("pending");
    world.run();
    connect(&sides[1], "10.0.0.1", server.address, b"").expect("pending");
    connect(&sides[2], "10.0.0.1", server.address, b"").expect("pending");
    let full = NtStatus::CONNECTION_REFUSED;
    assert_eq!(try_connect(&world, &adapter, "10.0.0.1:0", "10.0.0.1:1"), full, "delivered or not");
    assert_eq!(try_connect(&world, &adapter, "10.0.0.1:0", "10.0.0.1:1"), full, "all delivered");
    let mut arrivals = server.arrivals();
    assert_eq!(arrivals.len(), 3);
    // Each decision makes room for one: an accept, a reject, a close.
    let accepted = Side { node: arrivals.remove(0), queues: world.queues() };
    accept(&accepted, b"").expect("pending");
    Connector::reject(&arrivals[0].connector, b"").expect("waiting");
    arrivals.pop().expect("one is left").close();
    for _ in 0..3 {
        let side = side();
        connect(&side, "10.0.0.1", server.address, b"").expect("pending");
        sides.push(side);
    }
    assert_eq!(try_connect(&world, &adapter, "10.0.0.1:0", "10.0.0.1:1"), full);
    world.run();
    let later = server.arrivals();
    assert_eq!(later.len(), 3);
    for node in arrivals.into_iter().chain(later) {
        node.close();
    }
    accepted.close();
    for side in sides {
        side.close();
    }
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn many_requests_at_once_all_come_in() {
    const MANY: usize = 20;
    let world = World::new();
    let limits = ConnectionLimits { backlog: 20, ..LIMITS };
    let adapter = world.adapter_with(&["10.0.0.1"], limits, TIMEOUTS);
    let server = world.server(&adapter, "10.0.0.1:1");
    let sides: Vec<_> = (0..MANY).map(|_| Side { node: world.node(&adapter), queues: world.queues() }).collect();
    for side in &sides {
        connect(side, "10.0.0.1", server.address, b"").expect("pending");
    }
    assert!(server.arrivals().is_empty(), "no event comes inside of a connect");
    world.run();
    let arrivals = server.arrivals();
    assert_eq!(arrivals.len(), MANY);
    for node in arrivals {
        node.close();
    }
    for side in sides {
        side.close();
    }
    server.close();
    drop(adapter);
    world.finish();
}
