//! An adapter that goes without a word takes its connections along.

use engine::connection::{ConnectionCounters, ConnectorRequest, DisconnectReason, Port};
use fallible::Arc;
use host::HostOs;
use ndkpi::NtStatus;

use crate::world::{Said, Server, Side, World, accept, answer, connect, connect_shared};

const CANCELLED: NtStatus = NtStatus::CANCELLED;
const ABORTED: NtStatus = NtStatus::CONNECTION_ABORTED;
const REMOVED: Said = Said::Disconnected(DisconnectReason::Removed);

type Adapter = Arc<Port<HostOs>>;

fn two_adapters() -> (World, Adapter, Adapter, Server) {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let server = world.server(&peer, "10.0.0.2:1");
    (world, client, peer, server)
}

fn finish<const N: usize>(world: World, server: Server, adapters: [Adapter; N], sides: impl IntoIterator<Item = Side>) {
    for side in sides {
        side.close();
    }
    server.close();
    drop(adapters);
    world.finish();
}

#[test]
fn both_sides_are_told_once_and_only_the_one_on_the_adapter_that_goes_is_flushed() {
    let (world, client, peer, server) = two_adapters();
    let (mut active, mut passive) = world.connected("10.0.0.1", &client, &server);
    active.queues.receive(1);
    passive.queues.receive(2);
    peer.abort();
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]), "nothing is told inline");
    world.run();
    assert_eq!(active.heard(), [REMOVED]);
    assert_eq!(passive.heard(), [REMOVED]);
    assert_eq!(passive.queues.completed(), [(2, CANCELLED)], "its adapter has gone");
    assert_eq!(active.queues.completed(), [], "it only has no peer any more");
    for side in [&mut active, &mut passive] {
        assert_eq!(side.queues.send(3), Err(NtStatus::CONNECTION_INVALID));
    }
    peer.abort();
    world.run();
    assert_eq!((active.heard(), passive.heard()), (vec![], vec![]), "told once");
    finish(world, server, [client, peer], [active, passive]);
}

#[test]
fn lists_and_counters_know_of_it() {
    let (world, client, peer, server) = two_adapters();
    let sides = <[Side; 2]>::from(world.connected("10.0.0.1", &client, &server));
    client.abort();
    world.run();
    for adapter in [&client, &peer] {
        let ConnectionCounters { active, connection_error, .. } = adapter.counters();
        assert_eq!((active, connection_error), (0, 1));
        let listed = adapter.connections(Err);
        assert_eq!(listed, Ok(()));
    }
    finish(world, server, [client, peer], sides);
}

#[test]
fn a_request_in_progress_ends_with_its_connection() {
    let (world, client, peer, server) = two_adapters();
    let (mut active, passive) = world.connected("10.0.0.1", &client, &server);
    active.queues.send(1).expect("connected");
    active.queues.send(2).expect("connected");
    world.run();
    assert_eq!(active.queues.completed(), [], "no receive");
    client.abort();
    world.run();
    let ended = active.queues.completed();
    assert_eq!(ended.iter().map(|(context, _)| *context).collect::<Vec<_>>(), [1, 2]);
    assert!(ended.iter().all(|(_, status)| !status.is_success()), "{ended:?}");
    finish(world, server, [client, peer], [active, passive]);
}

#[test]
fn an_adapter_connected_with_itself_flushes_both_sides_of_every_connection() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    // More than are looked at with the list's lock held once.
    let mut sides = Vec::new();
    for _ in 0..20 {
        let (mut active, mut passive) = world.connected("10.0.0.1", &adapter, &server);
        active.queues.receive(1);
        passive.queues.receive(2);
        sides.extend([(active, 1), (passive, 2)]);
    }
    adapter.abort();
    world.run();
    for (side, context) in &mut sides {
        assert_eq!(side.heard(), [REMOVED]);
        assert_eq!(side.queues.completed(), [(*context, CANCELLED)]);
    }
    assert_eq!(adapter.counters().active, 0);
    finish(world, server, [adapter], sides.into_iter().map(|(side, _)| side));
}

#[test]
fn a_connect_that_waits_is_answered_and_cannot_be_accepted_any_more() {
    let (world, client, peer, server) = two_adapters();
    let (active, arrival) = world.request("10.0.0.1", &client, &server);
    client.abort();
    world.run();
    assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, ABORTED)]);
    let passive = Side { node: arrival, queues: world.queues() };
    assert_eq!(accept(&passive, b""), Err(ABORTED));
    finish(world, server, [client, peer], [active, passive]);
}

#[test]
fn an_accept_that_waits_is_answered_on_whichever_side_the_adapter_goes() {
    for active_goes in [true, false] {
        let (world, client, peer, server) = two_adapters();
        let (active, passive) = world.accepted("10.0.0.1", &client, &server);
        if active_goes { &client } else { &peer }.abort();
        world.run();
        assert_eq!(active.heard(), [], "its connect was answered before");
        assert_eq!(passive.heard(), [answer(ConnectorRequest::Accept, ABORTED)]);
        finish(world, server, [client, peer], [active, passive]);
    }
}

#[test]
fn nothing_begins_on_an_adapter_that_has_gone() {
    let (world, client, peer, server) = two_adapters();
    let (shared, _) = world.shared(&client, "10.0.0.1:9").expect("a free port");
    let (active, arrival) = world.request("10.0.0.1", &client, &server);
    let passive = Side { node: arrival, queues: world.queues() };
    peer.abort();
    assert_eq!(accept(&passive, b""), Err(NtStatus::DEVICE_REMOVED));
    let second = Side { node: world.node(&client), queues: world.queues() };
    assert_eq!(connect(&second, "10.0.0.1", server.address, b""), Err(NtStatus::HOST_UNREACHABLE));
    // What waits for an adapter that has gone ends when the consumer there lets go of it.
    world.run();
    assert_eq!(active.heard(), []);
    passive.close();
    world.run();
    assert_eq!(active.heard(), [answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)]);

    client.abort();
    assert_eq!(connect(&second, "10.0.0.1", server.address, b""), Err(NtStatus::INVALID_ADDRESS));
    let other = world.adapter(&["10.0.0.3"]);
    let reachable = world.server(&other, "10.0.0.3:1");
    assert_eq!(connect_shared(&second, &shared, reachable.address), Err(NtStatus::DEVICE_REMOVED));
    drop(shared);
    reachable.close();
    finish(world, server, [client, peer, other], [active, second]);
}

#[test]
fn an_adapter_that_loses_its_connections_breaks_them_on_both_sides_and_can_connect_again() {
    let (world, client, peer, server) = two_adapters();
    let (mut active, passive) = world.connected("10.0.0.1", &client, &server);
    active.queues.receive(1);
    client.lose_connections();
    world.run();
    for side in [&active, &passive] {
        assert_eq!(side.heard(), [Said::Disconnected(DisconnectReason::Failed)]);
    }
    assert_eq!(active.queues.completed(), [], "what was posted is the consumer's to flush");
    let again = world.connected("10.0.0.1", &client, &server);
    finish(world, server, [client, peer], [active, passive, again.0, again.1]);
}
