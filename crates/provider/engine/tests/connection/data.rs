//! Private data and read limits (`NDKPI 7.7.3`, `7.7.4`).

use engine::{
    connection::{ConnectParameters, ConnectionData, ConnectionLimits, Connector, ReadLimits},
    nic::NicMode,
};
use ndkpi::NtStatus;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN};

use crate::world::{LIMITS, Node, READS, Side, TIMEOUTS, World, accept, asking, at, connect};

pub const CALLER: usize = LIMITS.max_caller_data as usize;
pub const CALLEE: usize = LIMITS.max_callee_data as usize;

/// What can be read into `room` bytes: the size there is, and the bytes.
pub fn data(node: &Node, room: usize) -> (Result<usize, NtStatus>, Vec<u8>) {
    let mut into = vec![0xAA; room];
    let found = node.connector.connection_data(&mut into);
    (found.map(|data| data.required), into)
}

/// `bytes`, then zeros, `size` in all.
pub fn padded(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(size, 0);
    padded
}

//= NDKPI 7.7.4
#[test]
fn private_data_is_read_as_a_block_of_the_required_size() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let active = Side { node: world.node(&adapter), queues: world.queues() };
    assert_eq!(data(&active.node, 0).0, Err(NtStatus::CONNECTION_INVALID));
    connect(&active, "10.0.0.1", server.address, b"hello").expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    assert_eq!(data(&active.node, 0).0, Err(NtStatus::CONNECTION_INVALID), "nobody has answered");
    // No buffer: the size. A small one: what fits. A large one: RDS bytes, and the rest untouched.
    assert_eq!(data(&passive.node, 0).0, Ok(CALLER));
    assert_eq!(data(&passive.node, 3), (Ok(CALLER), b"hel".to_vec()));
    let (size, bytes) = data(&passive.node, CALLER + 2);
    assert_eq!(size, Ok(CALLER));
    assert_eq!(bytes[..CALLER], padded(b"hello", CALLER));
    assert_eq!(bytes[CALLER..], [0xAA; 2]);
    accept(&passive, b"good day").expect("pending");
    world.run();
    assert_eq!(data(&active.node, CALLEE), (Ok(CALLEE), padded(b"good day", CALLEE)));
    drop(Connector::complete_connect(&active.node.connector).expect("accepted"));
    world.run();
    assert_eq!(data(&active.node, 4), (Ok(CALLEE), b"good".to_vec()), "it goes on to answer");
    assert_eq!(data(&passive.node, 4), (Ok(CALLER), b"hell".to_vec()));
    passive.close();
    world.run();
    assert_eq!(data(&active.node, 4), (Ok(CALLEE), b"good".to_vec()), "when it is over too");
    active.close();
    server.close();
    drop(adapter);
    world.finish();
}

#[test]
fn private_data_of_the_full_size_is_taken_and_more_is_an_invalid_buffer_size() {
    let world = World::new();
    let adapter = world.adapter(&["10.0.0.1"]);
    let server = world.server(&adapter, "10.0.0.1:1");
    let active = Side { node: world.node(&adapter), queues: world.queues() };
    let long = vec![7; CALLEE + 1];
    let invalid = Err(NtStatus::INVALID_BUFFER_SIZE);
    assert_eq!(connect(&active, "10.0.0.1", server.address, &long[..=CALLER]), invalid);
    connect(&active, "10.0.0.1", server.address, &long[..CALLER]).expect("pending");
    world.run();
    let passive = Side { node: server.arrival(), queues: world.queues() };
    assert_eq!(data(&passive.node, CALLER).1, long[..CALLER]);
    assert_eq!(accept(&passive, &long), invalid);
    assert_eq!(Connector::reject(&passive.node.connector, &long), invalid);
    accept(&passive, &long[..CALLEE]).expect("pending");
    world.run();
    assert_eq!(data(&active.node, CALLEE).1, long[..CALLEE]);
    active.close();
    passive.close();
    server.close();
    drop(adapter);
    world.finish();
}

//= NDKPI 7.7.3
#[test]
fn read_limits_are_the_least_of_what_both_sides_ask_and_their_adapters_allow() {
    let world = World::new();
    let reads = |inbound, outbound| ReadLimits { inbound, outbound };
    let (client, peer) = (
        world.adapter(&["10.0.0.1"]),
        world.adapter_with(&["10.0.0.2"], ConnectionLimits { max_reads: reads(6, 9), ..LIMITS }, TIMEOUTS),
    );
    let servers = [world.server(&peer, "10.0.0.2:1"), world.server(&client, "10.0.0.1:1")];
    // Who connects, what the active side asks, what the passive side sees then, what it asks, and what the two have in the end.
    for (who, asked, seen, answered, active_gets) in [
        (0, reads(100, 100), reads(6, 9), reads(100, 100), reads(9, 6)),
        (0, reads(5, 4), reads(4, 5), reads(100, 100), reads(5, 4)),
        (0, reads(5, 4), reads(4, 5), reads(2, 3), reads(3, 2)),
        (0, reads(0, 0), reads(0, 0), reads(8, 8), reads(0, 0)),
        (0, reads(100, 100), reads(6, 9), reads(1, 0), reads(0, 1)),
        (1, reads(100, 100), reads(9, 6), reads(100, 100), reads(6, 9)),
    ] {
        let (adapter, server) = ([&client, &peer][who], &servers[who]);
        let active = Side { node: world.node(adapter), queues: world.queues() };
        let parameters = ConnectParameters { reads: asked, ..asking(server.address, b"") };
        let from = at(["10.0.0.1:0", "10.0.0.2:0"][who]);
        Connector::connect(&active.node.connector, &active.queues.qp, from, &parameters).expect("pending");
        world.run();
        let passive = Side { node: server.arrival(), queues: world.queues() };
        let found = |side: &Side| side.node.connector.connection_data(&mut []).map(|data: ConnectionData| data.reads);
        assert_eq!(found(&passive), Ok(seen), "{asked:?}");
        Connector::accept(&passive.node.connector, &passive.queues.qp, answered, b"").expect("pending");
        world.run();
        assert_eq!(found(&active), Ok(active_gets), "{asked:?} {answered:?}");
        assert_eq!(found(&passive), Ok(reads(active_gets.outbound, active_gets.inbound)), "{asked:?} {answered:?}");
        active.close();
        passive.close();
    }
    for server in servers {
        server.close();
    }
    drop((client, peer));
    world.finish();
}

#[test]
fn reads_are_refused_where_the_outbound_limit_is_zero() {
    for mode in [NicMode::Deferred, NicMode::Direct] {
        let world = World::new();
        let net = Net::new(&world.machine, mode);
        let (client, peer) = (world.adapter(&["10.0.0.1"]), world.adapter(&["10.0.0.2"]));
        let server = world.server(&peer, "10.0.0.2:1");
        for (limit, posted) in [(0, Err(NtStatus::INVALID_DEVICE_REQUEST)), (1, Ok(()))] {
            let (a, b, node) = (net.qp(PARAMETERS), net.qp(PARAMETERS), world.node(&client));
            let reads = ReadLimits { outbound: limit, ..READS };
            let parameters = ConnectParameters { reads, ..asking(server.address, b"") };
            Connector::connect(&node.connector, a.qp(), at("10.0.0.1:0"), &parameters).expect("pending");
            world.run();
            let arrival = server.arrival();
            Connector::accept(&arrival.connector, b.qp(), READS, b"").expect("pending");
            world.run();
            drop(Connector::complete_connect(&node.connector).expect("accepted"));
            world.run();
            // The first request finds that the queue pair is new, the one after that nothing to be done before it.
            for write in 0..2 {
                assert_eq!(a.post(write, b.write_to(0), PLAIN, &[a.sge(0, 8)]), Ok(()), "{mode:?}");
                world.run();
            }
            assert_eq!(a.post(2, b.read_from(0), PLAIN, &[a.sge(0, 8)]), posted, "{mode:?}");
            world.run();
            assert_eq!(a.sent().len(), if posted.is_ok() { 3 } else { 2 }, "{mode:?}");
            node.close();
            arrival.close();
            a.close();
            b.close();
        }
        server.close();
        drop((net, client, peer));
        world.finish();
    }
}
