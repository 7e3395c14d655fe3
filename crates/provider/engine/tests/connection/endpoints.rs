//! Addresses and endpoints (`NDKPI 7.8`).

use std::net::SocketAddr;

use engine::connection::{Connector, ConnectorRequest, InterfaceAddress, Listener, MAX_ADDRESSES, Port};
use fallible::Arc;
use host::HostOs;
use ndkpi::NtStatus;

use crate::world::{Said, Server, Side, World, accept, answer, at, connect, connect_from, connect_shared, interface};

/// The status of listening at `address`.
pub fn listen(world: &World, port: &Arc<Port<HostOs>>, address: &str) -> NtStatus {
    let server = world.idle_server(port).expect("memory");
    let status = Listener::listen(&server.listener, at(address)).into();
    server.close();
    world.run();
    status
}

/// The status of connecting from `from` to `to`; the connector is closed.
pub fn try_connect(world: &World, port: &Arc<Port<HostOs>>, from: &str, to: &str) -> NtStatus {
    let side = Side { node: world.node(port), queues: world.queues() };
    let status = connect_from(&side, at(from), at(to), b"").into();
    side.close();
    world.run();
    status
}

#[test]
fn an_address_of_no_adapter_or_of_another_one_is_an_invalid_address() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1", "fd00::1"]);
    let other = world.adapter(&["10.0.0.2"]);
    let server = world.server(&other, "10.0.0.2:7");
    for address in ["10.0.0.2:5", "10.0.0.9:5", "0.0.0.0:5", "0.0.0.0:0", "[::]:5", "[::ffff:10.0.0.1]:5"] {
        assert_eq!(listen(&world, &adapter, address), NtStatus::INVALID_ADDRESS, "{address}");
        assert_eq!(world.shared(&adapter, address).err(), Some(NtStatus::INVALID_ADDRESS), "{address}");
        assert_eq!(try_connect(&world, &adapter, address, "10.0.0.2:7"), NtStatus::INVALID_ADDRESS, "{address}");
    }
    server.close();
    drop((adapter, other));
    world.finish();
}

#[test]
fn a_port_in_use_is_a_sharing_violation_whatever_uses_it() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let target = world.server(&adapter, "10.0.0.1:1");
    let server = world.server(&adapter, "10.0.0.1:2");
    let (shared, _) = world.shared(&adapter, "10.0.0.1:3").expect("a free port");
    let side = Side { node: world.node(&adapter), queues: world.queues() };
    connect_from(&side, at("10.0.0.1:4"), target.address, b"").expect("pending");
    for port in ["10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4"] {
        assert_eq!(listen(&world, &adapter, port), NtStatus::SHARING_VIOLATION, "{port}");
        assert_eq!(world.shared(&adapter, port).err(), Some(NtStatus::SHARING_VIOLATION), "{port}");
        assert_eq!(try_connect(&world, &adapter, port, "10.0.0.1:1"), NtStatus::SHARING_VIOLATION, "{port}");
    }
    side.close();
    server.close();
    drop(shared);
    world.run();
    for port in ["10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4"] {
        assert_eq!(listen(&world, &adapter, port), NtStatus::SUCCESS, "{port} is free again");
    }
    for arrival in target.arrivals() {
        arrival.close();
    }
    target.close();
    drop(adapter);
    world.finish();
}

#[test]
fn the_same_port_of_two_addresses_are_two_endpoints() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1", "10.0.0.2", "fd00::1"]);
    let servers = ["10.0.0.1:9", "10.0.0.2:9", "[fd00::1]:9"].map(|address| world.server(&adapter, address));
    for server in servers {
        server.close();
    }
    drop(adapter);
    world.finish();
}

#[test]
fn port_0_gives_an_ephemeral_port_that_can_be_read_back() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:0");
    let (shared, _) = world.shared(&adapter, "10.0.0.1:0").expect("a free port");
    let side = Side { node: world.node(&adapter), queues: world.queues() };
    connect(&side, "10.0.0.1", server.address, b"").expect("pending");
    let mut ports = [server.address, shared.local_address(), side.node.connector.local_address().expect("it has one")]
        .map(|address| address.port());
    assert!(ports.iter().all(|port| (49152..=65535).contains(port)), "{ports:?}");
    ports.sort_unstable();
    assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "{ports:?}");
    assert_eq!(listen(&world, &adapter, &server.address.to_string()), NtStatus::SHARING_VIOLATION);
    side.close();
    world.run();
    server.arrival().close();
    server.close();
    drop((shared, adapter));
    world.finish();
}

#[test]
fn without_a_free_ephemeral_port_there_are_too_many_addresses() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1", "10.0.0.2"]);
    let target = world.server(&adapter, "10.0.0.1:1");
    let mut all: Vec<_> = (0..16384).map(|_| world.shared(&adapter, "10.0.0.1:0").expect("a free port").0).collect();
    assert_eq!(world.shared(&adapter, "10.0.0.1:0").err(), Some(NtStatus::TOO_MANY_ADDRESSES));
    assert_eq!(listen(&world, &adapter, "10.0.0.1:0"), NtStatus::TOO_MANY_ADDRESSES);
    assert_eq!(try_connect(&world, &adapter, "10.0.0.1:0", "10.0.0.1:1"), NtStatus::TOO_MANY_ADDRESSES);
    assert_eq!(listen(&world, &adapter, "10.0.0.1:2"), NtStatus::SUCCESS, "other ports are free");
    assert_eq!(listen(&world, &adapter, "10.0.0.2:0"), NtStatus::SUCCESS, "other addresses are free");
    let freed = all.swap_remove(5000).local_address();
    assert_eq!(world.shared(&adapter, "10.0.0.1:0").expect("a free port").0.local_address(), freed);
    target.close();
    drop((all, adapter));
    world.finish();
}

#[test]
fn a_shared_endpoint_serves_connections_as_long_as_the_remote_addresses_differ() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let servers = ["10.0.0.2:1", "10.0.0.2:2"].map(|address| world.server(&peer, address));
    let (shared, gone) = world.shared(&client, "10.0.0.1:5").expect("a free port");
    let side = || Side { node: world.node(&client), queues: world.queues() };
    let (first, second, third) = (side(), side(), side());
    connect_shared(&first, &shared, servers[0].address).expect("pending");
    assert_eq!(connect_shared(&second, &shared, servers[0].address), Err(NtStatus::ADDRESS_ALREADY_EXISTS));
    connect_shared(&second, &shared, servers[1].address).expect("the connector was not used up");
    for (side, server) in [(&first, &servers[0]), (&second, &servers[1])] {
        assert_eq!(side.node.connector.local_address(), Ok(at("10.0.0.1:5")));
        assert_eq!(side.node.connector.peer_address(), Ok(server.address));
    }
    world.run();
    let arrivals: Vec<_> = servers.iter().flat_map(Server::arrivals).collect();
    assert_eq!(arrivals[0].connector.peer_address(), Ok(at("10.0.0.1:5")));
    // Until the connector is closed, whatever became of the connection.
    Connector::reject(&arrivals[1].connector, b"").expect("waiting");
    world.run();
    assert_eq!(second.heard(), [answer(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)]);
    connect_shared(&third, &shared, servers[1].address).expect("a refused connect has given the addresses up");
    first.close();
    connect_shared(&second, &shared, servers[0].address).expect("a closed one too");
    second.close();
    third.close();
    // Closed early, the endpoint stays until the last connector over it is closed.
    drop(shared);
    world.run();
    assert!(gone.get());
    for node in arrivals.into_iter().chain(servers.iter().flat_map(Server::arrivals)) {
        node.close();
    }
    for server in servers {
        server.close();
    }
    drop((client, peer));
    world.finish();
}

//= NDKPI 7.8.3
#[test]
fn a_shared_endpoint_is_released_when_it_and_its_connectors_are_closed() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (shared, gone) = world.shared(&adapter, "10.0.0.1:5").expect("a free port");
    let side = Side { node: world.node(&adapter), queues: world.queues() };
    connect_shared(&side, &shared, server.address).expect("pending");
    world.run();
    drop(shared);
    world.run();
    assert!(!gone.get(), "the close pends");
    assert_eq!(listen(&world, &adapter, "10.0.0.1:5"), NtStatus::SHARING_VIOLATION);
    side.close();
    world.run();
    assert!(gone.get());
    assert_eq!(listen(&world, &adapter, "10.0.0.1:5"), NtStatus::SUCCESS);
    server.arrival().close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn a_scope_id_that_says_nothing_does_not_make_another_address() {
    let world = World::new();
    let adapter = world.adapter(&["fe80::1"]);
    let server = world.server(&adapter, "[fe80::1]:1");
    let (shared, _) = world.shared(&adapter, "[fe80::1%2]:5").expect("a free port");
    let sides = [(); 2].map(|()| Side { node: world.node(&adapter), queues: world.queues() });
    connect_shared(&sides[0], &shared, at("[fe80::1]:1")).expect("pending");
    let again = connect_shared(&sides[1], &shared, at("[fe80::1%2]:1"));
    assert_eq!(again, Err(NtStatus::ADDRESS_ALREADY_EXISTS));
    world.run();
    server.arrival().close();
    for side in sides {
        side.close();
    }
    server.close();
    drop((shared, adapter));
    world.finish();
}

#[test]
fn a_shared_endpoint_of_another_adapter_is_an_invalid_parameter() {
    let world = World::new();
    let (adapter, other) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
    let (shared, _) = world.shared(&other, "10.0.0.2:5").expect("a free port");
    let side = Side { node: world.node(&adapter), queues: world.queues() };
    assert_eq!(connect_shared(&side, &shared, at("10.0.0.2:1")), Err(NtStatus::INVALID_PARAMETER));
    side.close();
    drop((shared, adapter, other));
    world.finish();
}

#[test]
fn an_address_that_nobody_has_is_an_unreachable_host_or_network() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let other = world.adapter(&["10.1.0.1", "fd00::1"]);
    for (address, status) in [
        ("10.0.0.9:1", NtStatus::HOST_UNREACHABLE),
        ("10.1.0.9:1", NtStatus::HOST_UNREACHABLE),
        ("10.2.0.1:1", NtStatus::NETWORK_UNREACHABLE),
        ("[fd00::1]:1", NtStatus::NETWORK_UNREACHABLE),
        ("0.0.0.0:1", NtStatus::INVALID_ADDRESS),
        ("224.0.0.1:1", NtStatus::INVALID_ADDRESS),
        ("255.255.255.255:1", NtStatus::INVALID_ADDRESS),
        ("10.1.0.1:0", NtStatus::INVALID_ADDRESS),
        ("10.1.0.1:1", NtStatus::CONNECTION_REFUSED),
    ] {
        assert_eq!(try_connect(&world, &adapter, "10.0.0.1:0", address), status, "{address}");
    }
    assert_eq!(try_connect(&world, &other, "[fd00::1]:0", "[fd00::9]:1"), NtStatus::HOST_UNREACHABLE);
    assert_eq!(try_connect(&world, &other, "[fd00::1]:0", "[fd01::1]:1"), NtStatus::NETWORK_UNREACHABLE);
    drop((adapter, other));
    world.finish();
}

#[test]
fn connections_work_over_ipv6_and_to_oneself_in_one_zone() {
    let world = World::new();
    let adapter = world.adapter(&["fe80::1"]);
    let server = world.server(&adapter, "[fe80::1%3]:80");
    assert_eq!(server.address, at("[fe80::1%3]:80"));
    let side = Side { node: world.node(&adapter), queues: world.queues() };
    connect_from(&side, at("[fe80::1]:81"), at("[fe80::1%3]:80"), b"").expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    assert_eq!(passive.node.connector.peer_address(), Ok(at("[fe80::1%3]:81")));
    assert_eq!(passive.node.connector.local_address(), Ok(at("[fe80::1%3]:80")));
    accept(&passive, b"").expect("pending");
    world.run();
    assert_eq!(side.heard(), [answer(ConnectorRequest::Connect, NtStatus::SUCCESS)]);
    side.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn a_connectors_endpoint_is_released_when_the_connector_is_closed() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let (active, passive) = world.connected("10.0.0.1", &adapter, &server);
    let port = active.node.connector.local_address().expect("it has one").to_string();
    passive.close();
    world.run();
    assert_eq!(
        listen(&world, &adapter, &port),
        NtStatus::SHARING_VIOLATION,
        "the connection is gone, the connector not"
    );
    active.close();
    world.run();
    assert_eq!(listen(&world, &adapter, &port), NtStatus::SUCCESS);
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn an_address_belongs_to_one_adapter_and_must_name_a_host() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let other = world.adapter(&[]);
    for port in [&adapter, &other] {
        assert_eq!(port.add_address(interface("10.0.0.1")), Err(NtStatus::SHARING_VIOLATION));
    }
    for address in ["0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "ff02::1"] {
        assert_eq!(other.add_address(interface(address)), Err(NtStatus::INVALID_ADDRESS), "{address}");
    }
    for (address, prefix) in [("10.0.0.3", 33), ("fd00::3", 129)] {
        let wrong = InterfaceAddress { prefix, ..interface(address) };
        assert_eq!(other.add_address(wrong), Err(NtStatus::INVALID_ADDRESS), "{address}/{prefix}");
    }
    for (address, prefix) in [("10.0.0.3", 0), ("10.0.0.4", 32), ("fd00::3", 0), ("fd00::4", 128)] {
        other.add_address(InterfaceAddress { prefix, ..interface(address) }).expect("a possible prefix");
    }
    let left = MAX_ADDRESSES - 5;
    for index in 0..left {
        other.add_address(interface(&format!("10.9.{}.{}", index / 200, index % 200 + 1))).expect("room");
    }
    assert_eq!(other.add_address(interface("10.8.0.1")), Err(NtStatus::INSUFFICIENT_RESOURCES));
    drop((adapter, other));
    world.finish();
}

//= NDKPI 7.8.1
#[test]
fn the_same_address_on_two_links_is_two_addresses() {
    let world = World::new();
    // Two cables, with the same addresses at their ends.
    let ends = [(0, [3, 4]), (1, [5, 6])].map(|(link, [one, other])| {
        (
            world.adapter_on(link, &[("fe80::1", one), ("169.254.0.1", 0), ("10.0.0.1", 0)]),
            world.adapter_on(link, &[("fe80::2", other), ("169.254.0.2", 0), ("10.0.0.2", 0)]),
        )
    });
    for (number, (client, peer)) in ends.iter().enumerate() {
        for (from, to) in [("fe80::1", "[fe80::2]:7"), ("169.254.0.1", "169.254.0.2:7"), ("10.0.0.1", "10.0.0.2:7")] {
            // The client's own interface has another number than the listener's.
            let server = world.server(peer, to).known_as(to);
            let (active, passive) = world.connected(from, client, &server);
            let (mine, theirs) = (&active.node.connector, &passive.node.connector);
            let scope = |address: Result<SocketAddr, NtStatus>| match address.expect("connected") {
                SocketAddr::V6(address) => address.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            // Each side names the link by the number of its own interface.
            let zones = if from == "fe80::1" { [[3, 4], [5, 6]][number] } else { [0, 0] };
            assert_eq!([scope(mine.local_address()), scope(theirs.local_address())], zones);
            assert_eq!([scope(mine.peer_address()), scope(theirs.peer_address())], zones);
            assert_eq!(theirs.peer_address().map(|address| address.ip()), Ok(from.parse().expect("an address")));
            let shown = |port: &Port<HostOs>| {
                let mut entries = Vec::new();
                let _ = port.connections(|entry| {
                    entries.push(entry);
                    Ok::<_, ()>(())
                });
                (entries[0].local, entries[0].remote)
            };
            assert_eq!(Ok(shown(client).0), mine.local_address());
            assert_eq!(Ok(shown(peer).1), theirs.peer_address());
            active.close();
            passive.close();
            // Nobody listens there on the other link.
            let other = &ends[1 - number].0;
            let status = try_connect(&world, other, &at_port(from, 0), to);
            assert_eq!(status, NtStatus::CONNECTION_REFUSED, "{to} by the other link");
            server.close();
            world.run();
        }
    }
    let [(one, two), (other, _)] = &ends;
    let taken = interface("10.0.0.2");
    assert_eq!(one.add_address(taken), Err(NtStatus::SHARING_VIOLATION), "on one link");
    two.remove_address(taken.address);
    assert_eq!(one.add_address(taken), Ok(()));
    // An address that goes from one link stays on the other.
    assert_eq!(other.add_address(taken), Err(NtStatus::SHARING_VIOLATION));
    drop(ends);
    world.finish();
}

fn at_port(address: &str, port: u16) -> String {
    SocketAddr::new(address.parse().expect("an address"), port).to_string()
}

#[test]
fn an_adapter_of_another_link_is_not_reached() {
    let world = World::new();
    let (client, peer) =
        (world.adapter_on(0, &[("10.0.0.1", 0)]), world.adapter_on(1, &[("10.0.0.2", 0), ("10.1.0.2", 0)]));
    let server = world.server(&peer, "10.0.0.2:7");
    assert_eq!(try_connect(&world, &client, "10.0.0.1:0", "10.0.0.2:7"), NtStatus::HOST_UNREACHABLE);
    assert_eq!(try_connect(&world, &client, "10.0.0.1:0", "10.1.0.2:7"), NtStatus::NETWORK_UNREACHABLE);
    server.close();
    drop((client, peer));
    world.finish();
}

//= NDKPI 7.8.1
#[test]
fn a_scope_id_is_kept_and_another_one_is_refused() {
    let world = World::new();
    let (client, peer) =
        (world.adapter_on(0, &[("fe80::1", 3)]), world.adapter_on(0, &[("fe80::2", 4), ("fd00::2", 0)]));
    for (address, expected) in
        [("[fe80::2]:7", "[fe80::2%4]:7"), ("[fe80::2%4]:7", "[fe80::2%4]:7"), ("[fd00::2%9]:7", "[fd00::2]:7")]
    {
        let server = world.server(&peer, address);
        assert_eq!(server.address, at(expected), "listening at {address}");
        let (endpoint, _) = world.shared(&peer, &address.replace(":7", ":8")).expect("a free port");
        assert_eq!(endpoint.local_address(), at(&expected.replace(":7", ":8")));
        drop(endpoint);
        server.close();
        world.run();
    }
    assert_eq!(listen(&world, &peer, "[fe80::2%3]:7"), NtStatus::INVALID_ADDRESS);
    assert_eq!(world.shared(&peer, "[fe80::2%3]:7").err(), Some(NtStatus::INVALID_ADDRESS));
    let server = world.server(&peer, "[fe80::2]:7");
    assert_eq!(try_connect(&world, &client, "[fe80::1%4]:0", "[fe80::2]:7"), NtStatus::INVALID_ADDRESS);
    // The peer's address is in the zone of one's own interface.
    assert_eq!(try_connect(&world, &client, "[fe80::1%3]:0", "[fe80::2%4]:7"), NtStatus::NETWORK_UNREACHABLE);
    assert_eq!(try_connect(&world, &client, "[fe80::1]:0", "[fe80::2%4]:7"), NtStatus::NETWORK_UNREACHABLE);
    for remote in ["[fe80::2]:7", "[fe80::2%3]:7"] {
        assert_eq!(try_connect(&world, &client, "[fe80::1]:0", remote), NtStatus::SUCCESS, "{remote}");
    }
    server.close();
    drop((client, peer));
    world.finish();
}

#[test]
fn an_interface_without_a_number_has_the_scope_id_that_its_consumer_names() {
    let world = World::new();
    let adapter = world.adapter_on(0, &[("fe80::1", 0)]);
    let server = world.server(&adapter, "[fe80::1%5]:7");
    assert_eq!(server.address, at("[fe80::1%5]:7"));
    assert_eq!(try_connect(&world, &adapter, "[fe80::1%5]:0", "[fe80::1%7]:7"), NtStatus::NETWORK_UNREACHABLE);
    assert_eq!(try_connect(&world, &adapter, "[fe80::1%7]:0", "[fe80::1%7]:7"), NtStatus::CONNECTION_REFUSED);
    for remote in ["[fe80::1]:7", "[fe80::1%5]:7"] {
        assert_eq!(try_connect(&world, &adapter, "[fe80::1]:0", remote), NtStatus::SUCCESS, "{remote}");
    }
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn an_address_that_is_taken_away_is_not_found_and_its_connections_go_on() {
    let world = World::new();
    let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2", "10.0.0.3"]));
    let server = world.server(&peer, "10.0.0.2:1");
    let (mut active, mut passive) = world.connected("10.0.0.1", &client, &server);
    peer.remove_address(at("10.0.0.2:1").ip());
    assert_eq!(try_connect(&world, &client, "10.0.0.1:0", "10.0.0.2:1"), NtStatus::HOST_UNREACHABLE);
    assert_eq!(listen(&world, &peer, "10.0.0.2:9"), NtStatus::INVALID_ADDRESS);
    passive.queues.receive(1);
    active.queues.send(2).expect("connected");
    world.run();
    assert_eq!(passive.queues.completed(), [(1, NtStatus::SUCCESS)]);
    assert_eq!(active.queues.completed(), [(2, NtStatus::SUCCESS)]);
    let heir = world.adapter(&["10.0.0.2"]);
    let moved = world.server(&heir, "10.0.0.2:1");
    peer.detach();
    assert_eq!(peer.add_address(interface("10.0.0.7")), Err(NtStatus::DEVICE_REMOVED));
    assert_eq!(try_connect(&world, &client, "10.0.0.1:0", "10.0.0.3:1"), NtStatus::HOST_UNREACHABLE);
    // An adapter that is gone is off the fabric, whether it was detached or not.
    for _ in 0..2 {
        drop(world.adapter(&["10.0.0.4"]));
        assert_eq!(try_connect(&world, &client, "10.0.0.1:0", "10.0.0.4:1"), NtStatus::HOST_UNREACHABLE);
    }
    let (again, arrival) = world.request("10.0.0.1", &client, &moved);
    assert_eq!(passive.heard(), []);
    arrival.close();
    world.run();
    assert_eq!(again.heard(), [Said::Completed(ConnectorRequest::Connect, NtStatus::CONNECTION_REFUSED)]);
    for side in [active, passive, again] {
        side.close();
    }
    for server in [server, moved] {
        server.close();
    }
    drop((client, peer, heir));
    world.finish();
}
