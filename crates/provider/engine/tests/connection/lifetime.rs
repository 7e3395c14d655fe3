//! The order in which things go (`NDKPI 7.8`, `7.9`).

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use engine::connection::{Listener, Owner, Port, SharedEndpoint};
use host::HostOs;

use crate::world::{Said, Side, World, accept, at, connect, connect_from, connect_shared};

/// What went, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn adds(&self, what: &'static str) -> impl Fn() + Send + Sync + use<> {
        let log = self.0.clone();
        move || log.lock().expect("no panic").push(what)
    }

    fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

/// Checks that `address` is free at this moment.
fn assert_free(port: &fallible::Arc<Port<HostOs>>, address: SocketAddr) {
    drop(SharedEndpoint::try_new(port, address, Owner::default(), ()).expect("it is free"));
}

#[test]
fn an_address_is_free_before_the_consumer_knows_that_what_used_it_is_closed() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let log = Log::default();
    // A listener.
    let (silent, gone) = world.silent();
    let (own, add) = (adapter.clone(), log.adds("listener"));
    let silent = silent.at_last(move || {
        assert_free(&own, at("10.0.0.1:1"));
        add();
    });
    let server = world.idle_server_of(&adapter, silent, gone).expect("memory");
    Listener::listen(&server.listener, at("10.0.0.1:1")).expect("a free port");
    // A connector with an endpoint of its own.
    let (own, add) = (adapter.clone(), log.adds("connector"));
    let node = world.node_that(
        &adapter,
        Box::new(move |said| {
            if *said == Said::Gone {
                assert_free(&own, at("10.0.0.1:2"));
                add();
            }
        }),
    );
    let side = Side { node, queues: world.queues() };
    connect_from(&side, at("10.0.0.1:2"), at("10.0.0.1:1"), b"").expect("pending");
    // A shared endpoint.
    let (own, add) = (adapter.clone(), log.adds("shared endpoint"));
    let (silent, _) = world.silent();
    let client = silent.at_last(move || {
        assert_free(&own, at("10.0.0.1:3"));
        add();
    });
    drop(SharedEndpoint::try_new(&adapter, at("10.0.0.1:3"), Owner::default(), client).expect("a free port"));
    side.close();
    world.run();
    server.close();
    world.run();
    assert_eq!(log.taken(), ["shared endpoint", "connector", "listener"]);
    drop(adapter);
    world.finish();
}

#[test]
fn a_pair_of_addresses_is_free_before_the_consumer_knows_that_its_connector_is_closed() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (shared, _) = world.shared(&adapter, "10.0.0.1:2").expect("a free port");
    let next = Arc::new(Side { node: world.node(&adapter), queues: world.queues() });
    let (inside, endpoint) = (Arc::downgrade(&next), shared.clone());
    let node = world.node_that(
        &adapter,
        Box::new(move |said| {
            if *said == Said::Gone {
                let next = inside.upgrade().expect("it is there");
                connect_shared(&next, &endpoint, at("10.0.0.1:1")).expect("it is free");
            }
        }),
    );
    let side = Side { node, queues: world.queues() };
    connect_shared(&side, &shared, server.address).expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    accept(&passive, b"").expect("pending");
    world.run();
    side.close();
    passive.close();
    world.run();
    server.arrival().close();
    Arc::into_inner(next).expect("the only one").close();
    server.close();
    drop((shared, adapter));
    world.finish();
}

//= NDKPI 7.9.1
#[test]
fn a_connector_goes_before_its_queue_pair_its_listener_and_its_shared_endpoint() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let log = Log::default();
    let (silent, gone) = world.silent();
    let server = world.idle_server_of(&adapter, silent.at_last(log.adds("listener")), gone).expect("memory");
    Listener::listen(&server.listener, at("10.0.0.1:1")).expect("a free port");
    let (silent, _) = world.silent();
    let client = silent.at_last(log.adds("shared endpoint"));
    let shared = SharedEndpoint::try_new(&adapter, at("10.0.0.1:2"), Owner::default(), client).expect("a free port");
    let add = log.adds("connector");
    let node = world.node_that(
        &adapter,
        Box::new(move |said| {
            if *said == Said::Gone {
                add();
            }
        }),
    );
    let (silent, gone) = world.silent();
    let queues = world.try_queues_of(silent.at_last(log.adds("queue pair")), gone).expect("memory");
    let active = Side { node, queues };
    connect_shared(&active, &shared, at("10.0.0.1:1")).expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    accept(&passive, b"").expect("pending");
    world.run();
    // Everything is closed before what depends on it.
    drop(shared);
    server.close();
    let Side { node, queues } = active;
    queues.close();
    world.run();
    assert!(log.taken().is_empty(), "their closes pend");
    node.close();
    world.run();
    let order = log.taken();
    assert_eq!((order.len(), order[0]), (3, "connector"), "{order:?}");
    assert!(order.contains(&"queue pair") && order.contains(&"shared endpoint"), "{order:?}");
    passive.close();
    world.run();
    assert_eq!(log.taken(), ["listener"]);
    drop(adapter);
    world.finish();
}

#[test]
fn an_accepting_connector_goes_before_its_queue_pair() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, node) = world.request("10.0.0.1", &adapter, &server);
    let heard_before = Arc::<Mutex<Vec<Said>>>::default();
    let (silent, gone) = world.silent();
    let (heard, noted) = (node.heard.clone(), heard_before.clone());
    let silent = silent.at_last(move || noted.lock().expect("no panic").extend(heard.take()));
    let queues = world.try_queues_of(silent, gone).expect("memory");
    let passive = Side { node, queues };
    accept(&passive, b"").expect("pending");
    world.run();
    assert_eq!(passive.heard(), []);
    let Side { node, queues } = passive;
    queues.close();
    node.close();
    world.run();
    assert_eq!(heard_before.lock().expect("no panic").last(), Some(&Said::Gone), "the queue pair goes last");
    active.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn a_peer_keeps_nothing_of_a_side_that_is_closed() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, passive) = world.connected("10.0.0.1", &adapter, &server);
    let Side { node, queues } = active;
    let gone = queues.close();
    let heard = node.close();
    world.run();
    assert_eq!(heard.take(), [Said::Gone]);
    assert!(gone.get());
    let unanswered = Side { node: world.node(&adapter), queues: world.queues() };
    connect(&unanswered, "10.0.0.1", server.address, b"").expect("pending");
    world.run();
    let arrival = server.arrival();
    let Side { node, queues } = unanswered;
    let gone = queues.close();
    node.close();
    world.run();
    assert!(gone.get(), "also while the peer has not answered");
    arrival.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}
