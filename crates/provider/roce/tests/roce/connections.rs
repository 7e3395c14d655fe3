//! Rules of the connection manager (RoCEv2 8), each with a test named after it.

use roce::{
    Config, FRAME, Failure, Network, Stack,
    cm::{CallError, Connect, Ending, EventKind, Refusal, Room, State, Times},
    qp::Work,
    wire::{
        Envelope, Kind, Packet,
        cm::{Attribute, Dreq, Mad, Message, Mra, Reason, Rej, Rep, Req, Rtu},
    },
};

use crate::common::{
    self, pcap,
    world::{LIMITS, PORT, Side, World},
};

const SEND: Work = Work::Send { invalidate: None };

/// The messages of the connection manager in these frames.
fn messages<'frames>(frames: impl IntoIterator<Item = &'frames Vec<u8>>) -> Vec<(Attribute, Envelope, Mad)> {
    let mut found = Vec::new();
    for frame in frames {
        let Ok((envelope, packet)) = Envelope::parse(frame) else { continue };
        if packet.bth.opcode.kind() == Kind::Datagram {
            let mad = *Mad::parse(packet.payload).expect("a message");
            found.push((mad.attribute().expect("a known one"), envelope, mad));
        }
    }
    found
}

fn sent_by(world: &World, side: usize) -> Vec<Attribute> {
    let frames: Vec<_> = world.sent.iter().filter(|(_, from, _)| *from == side).map(|(_, _, frame)| frame).collect();
    messages(frames).into_iter().map(|(attribute, ..)| attribute).collect()
}

#[test]
fn two_sides_connect_and_disconnect_over_both_families() {
    for v6 in [false, true] {
        let mut world = World::new(1);
        let [active, passive] = world.connect(v6);
        let info = world.sides[1].stack.connection(passive.0).expect("a connection");
        assert_eq!((info.private.len(), &info.private[..6]), (56, &b"hello\0"[..]), "all 56 bytes, with zeros");
        let info = world.sides[0].stack.connection(active.0).expect("a connection");
        assert_eq!((info.private.len(), &info.private[..8]), (196, &b"welcome\0"[..]));
        assert_eq!(info.state, State::Established);
        world.disconnect(0, active.0);
        let gone = world.wait_event(1, |kind| matches!(kind, EventKind::Disconnected(_)));
        assert_eq!(gone.kind, EventKind::Disconnected(Ending::Graceful));
        world.wait_event(0, |kind| *kind == EventKind::DisconnectComplete(Ok(())));
        world.close(0, active.0);
        world.close(1, passive.0);
        let expected = [Attribute::Req, Attribute::Rtu, Attribute::Dreq];
        assert_eq!(sent_by(&world, 0), expected);
        assert_eq!(sent_by(&world, 1), [Attribute::Rep, Attribute::Drep]);
    }
}

/// The REQ of rping, and the same one made here from what is in it that rping chose.
#[test]
fn the_req_has_the_bytes_that_rxe_sends() {
    for (name, v6) in [("rping-v4", false), ("rping-v6", true)] {
        let (_, envelope, theirs) = messages(&pcap::capture(name)).into_iter().next().expect("a REQ");
        let theirs: Req = *theirs.message().expect("a REQ");
        let (local, destination) = theirs.private.addresses.get().expect("RDMA_CM's header");
        let networks = [Network { address: local.ip(), prefix: if v6 { 64 } else { 24 } }];
        let config = Config {
            mac: envelope.ethernet.source,
            tag: None,
            networks: &networks,
            gateways: [None, None],
            network_mtu: 1500,
            guid: theirs.guid.get(),
            queue_pairs: 4,
            room: Room { connections: 4, half_open: 4, listeners: 4 },
            neighbours: 4,
            times: Times { response: 20, retries: 15, ack: 19, ..Times::default() },
            seed: 7,
        };
        let mut stack = Stack::new(&config).expect("memory");
        let mut memory = common::memory::Memory::default();
        let qp = stack.create_queue_pair(common::world::sizes()).expect("memory").expect("a place");
        let remote = std::net::SocketAddr::new(destination, PORT);
        let limits = roce::cm::ReadLimits { inbound: theirs.responder_resources, outbound: theirs.initiator_depth };
        let private = theirs.private.consumer;
        stack.connect(0, &Connect { qp, local, remote, private: &private, limits }, &mut memory).expect("it begins");
        // The station of the peer is in the capture too.
        let mut frame = vec![0; FRAME];
        let length = stack.transmit(0, &mut frame, &mut memory).expect("a question for the station");
        let answer = answer_to(&frame[..length], envelope.ethernet.destination);
        stack.receive(1, &answer, &mut memory);
        let length = stack.transmit(1, &mut frame, &mut memory).expect("a REQ");
        let (_, _, mad) = messages([&frame[..length].to_vec()])[0];
        let mut ours: Req = *mad.message().expect("a REQ");
        // What each side draws for itself.
        (ours.local_id, ours.qpn, ours.starting_psn) = (theirs.local_id, theirs.qpn, theirs.starting_psn);
        assert_eq!(ours, theirs, "{name}");
    }
}

/// The answer to a question of ARP or neighbour discovery: the station `mac` has the address.
fn answer_to(question: &[u8], mac: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0; FRAME];
    let ethertype = u16::from_be_bytes([question[12], question[13]]);
    let (address, asker): (std::net::IpAddr, std::net::IpAddr) = if ethertype == 0x0806 {
        let bytes = |at: usize| <[u8; 4]>::try_from(&question[at..at + 4]).expect("four bytes");
        (bytes(38).into(), bytes(28).into())
    } else {
        let bytes = |at: usize| <[u8; 16]>::try_from(&question[at..at + 16]).expect("sixteen bytes");
        (bytes(62).into(), bytes(22).into())
    };
    // A stack with that address answers.
    let networks = [Network { address, prefix: if asker.is_ipv4() { 24 } else { 64 } }];
    let config = Config {
        mac,
        tag: None,
        networks: &networks,
        gateways: [None, None],
        network_mtu: 1500,
        guid: 1,
        queue_pairs: 1,
        room: Room { connections: 1, half_open: 1, listeners: 1 },
        neighbours: 1,
        times: Times::default(),
        seed: 1,
    };
    let mut stack = Stack::new(&config).expect("memory");
    let mut memory = common::memory::Memory::default();
    stack.receive(0, question, &mut memory);
    let length = stack.transmit(0, &mut frame, &mut memory).expect("an answer");
    frame.truncate(length);
    frame
}

/// Plays the passive side of a capture's exchange: its REQ is answered by ours, and then its own packets follow.
#[test]
fn the_req_of_each_capture_is_accepted() {
    for name in ["rping-v4", "rping-v6", "rping-v4-3000", "nvme-connect"] {
        let frames = pcap::capture(name);
        let found = messages(&frames);
        let (_, envelope, mad) = found.iter().find(|(attribute, ..)| *attribute == Attribute::Req).expect("a REQ");
        let req: &Req = mad.message().expect("a REQ");
        let port = (req.service.get() & 0xFFFF) as u16;
        let prefix = if envelope.ip.source.is_ipv4() { 24 } else { 64 };
        let networks = [Network { address: envelope.ip.destination, prefix }];
        let config = Config {
            mac: envelope.ethernet.destination,
            tag: None,
            networks: &networks,
            gateways: [None, None],
            network_mtu: 1500,
            guid: 5,
            queue_pairs: 4,
            room: Room { connections: 4, half_open: 4, listeners: 4 },
            neighbours: 4,
            times: Times::default(),
            seed: 7,
        };
        let mut stack = Stack::new(&config).expect("memory");
        let mut memory = common::memory::Memory::default();
        stack.listen(None, port).expect("free");
        let frame = frames.iter().find(|frame| messages([*frame]).first().is_some_and(|it| it.0 == Attribute::Req));
        stack.receive(0, frame.expect("a REQ"), &mut memory);
        let event = stack.event().unwrap_or_else(|| panic!("{name}: {:?}", stack.counters()));
        let qp = stack.create_queue_pair(common::world::sizes()).expect("memory").expect("a place");
        stack.accept(0, event.connection, qp, LIMITS, b"", &mut memory).expect("it begins");
        let mut out = vec![0; FRAME];
        let length = stack.transmit(0, &mut out, &mut memory).expect("a REP");
        let (attribute, back, mad) = messages([&out[..length].to_vec()])[0];
        let rep: &Rep = mad.message().expect("a REP");
        assert_eq!(attribute, Attribute::Rep, "{name}");
        assert_eq!((back.ip.destination, back.ethernet.destination), (envelope.ip.source, envelope.ethernet.source));
        assert_eq!(rep.remote_id, req.local_id);
        assert_eq!(rep.responder_resources, req.initiator_depth.min(4), "{name}");
        assert_eq!(rep.initiator_depth, req.responder_resources.min(4), "{name}");
        let link = *stack.queue_pair(qp).expect("a queue pair").link().expect("it is connected");
        assert_eq!((link.remote_qpn, link.send_psn.get()), (req.qpn.get(), req.starting_psn.get()), "{name}");
        // Its REP is like that of rxe but for what each side chooses.
        let theirs = found.iter().find(|(attribute, ..)| *attribute == Attribute::Rep).expect("a REP");
        let theirs: &Rep = theirs.2.message().expect("a REP");
        // Flow control is the consumer's there.
        assert_eq!(
            (rep.ack_delay, rep.rnr_retry, rep.q_key),
            (theirs.ack_delay & !1, theirs.rnr_retry, theirs.q_key),
            "{name}"
        );
    }
}

#[test]
fn private_data_beyond_what_a_message_has_is_refused() {
    let mut world = World::new(2);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (qp, (local, remote)) = (world.create(0), World::addresses(false));
    let connect = |private| Connect { qp, local, remote, private, limits: LIMITS };
    let Side { stack, memory, .. } = &mut world.sides[0];
    assert_eq!(stack.connect(0, &connect(&[1; 57]), memory), Err(CallError::TooMuchData));
    let connection = stack.connect(0, &connect(&[1; 56]), memory).expect("it begins");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    let accepted = world.create(1);
    let Side { stack, memory, .. } = &mut world.sides[1];
    assert_eq!(stack.accept(0, asked, accepted, LIMITS, &[1; 197], memory), Err(CallError::TooMuchData));
    assert_eq!(stack.reject(0, asked, &[1; 149], memory), Err(CallError::TooMuchData));
    stack.reject(0, asked, &[3; 148], memory).expect("it is there");
    let refused = world.wait_event(0, |kind| matches!(kind, EventKind::Connected(_)));
    assert_eq!(refused.kind, EventKind::Connected(Err(Refusal::Rejected(Reason::CONSUMER))));
    assert_eq!(world.sides[0].stack.connection(connection).expect("it is there").private, [3; 148]);
}

#[test]
fn without_a_listener_a_connect_is_refused() {
    let mut world = World::new(3);
    world.sides[1].stack.listen(None, PORT).expect("free");
    world.sides[1].stack.pause(None, PORT, true).expect("it listens");
    for paused in [true, false] {
        if !paused {
            world.sides[1].stack.stop_listening(None, PORT).expect("it listens");
        }
        let (connection, qp) = world.ask(false, b"");
        let refused = world.wait_event(0, |kind| matches!(kind, EventKind::Connected(_)));
        let refusal = Refusal::Rejected(Reason::BAD_SERVICE_ID);
        assert_eq!(refused.kind, EventKind::Connected(Err(refusal)));
        assert_eq!(refusal.status().to_string(), "STATUS_CONNECTION_REFUSED");
        world.close(0, connection);
        assert_eq!(world.sides[0].stack.queue_pair(qp).expect("it stays").state(), roce::qp::State::Idle);
    }
    assert_eq!(world.sides[1].events, []);
}

#[test]
fn a_station_that_does_not_answer_is_unreachable() {
    let mut world = World::new(4);
    world.deaf = [true, true];
    let started = world.now;
    let _ = world.ask(false, b"");
    let event = world.wait_event(0, |kind| matches!(kind, EventKind::Connected(_)));
    assert_eq!(event.kind, EventKind::Connected(Err(Refusal::HostUnreachable)));
    assert!(world.now - started < 5_000_000);
    assert_eq!(world.sent.len(), 3, "three questions");
}

#[test]
fn without_a_route_nothing_begins() {
    let mut world = World::new(5);
    let qp = world.create(0);
    let local = "10.0.0.1:0".parse().expect("an address");
    let Side { stack, memory, .. } = &mut world.sides[0];
    let cases = [
        ("192.168.0.1:1", CallError::NoRoute),
        ("10.0.0.1:1", CallError::BadAddress),
        ("127.0.0.1:1", CallError::BadAddress),
        ("224.0.0.1:1", CallError::BadAddress),
        ("[fd00::2]:1", CallError::BadAddress),
    ];
    for (remote, error) in cases {
        let remote = remote.parse().expect("an address");
        let connect = Connect { qp, local, remote, private: b"", limits: LIMITS };
        assert_eq!(stack.connect(0, &connect, memory), Err(error), "{remote}");
    }
}

#[test]
fn a_peer_that_does_not_answer_is_a_time_out_after_ten_to_twenty_seconds() {
    let mut world = World::new(6);
    // The station answers, the connection manager does not.
    let _ = world.connect(false);
    let started = world.now;
    world.deaf[1] = true;
    world.sent.clear();
    let _ = world.ask(false, b"");
    let event = world.wait_event(0, |kind| matches!(kind, EventKind::Connected(_)));
    assert_eq!(event.kind, EventKind::Connected(Err(Refusal::Timeout)));
    assert_eq!(Refusal::Timeout.status().to_string(), "STATUS_IO_TIMEOUT");
    let taken = (world.now - started) / 1_000_000;
    assert!((10..=20).contains(&taken), "{taken} s");
    let requests: Vec<_> =
        messages(world.sent.iter().map(|(_, _, frame)| frame)).into_iter().map(|(_, _, mad)| mad).collect();
    assert_eq!(requests.len(), 16, "a REQ, repeated 14 times, and a REJ");
    assert_eq!(world.sides[0].stack.counters().cm_retries, 14);
    assert!(requests[..15].iter().all(|mad| *mad == requests[0]), "unchanged");
}

#[test]
fn a_rep_that_comes_again_is_answered_with_an_mra_and_then_with_an_rtu() {
    let mut world = World::new(7);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, _) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.accept(asked, b"");
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    world.run(10_000_000);
    assert_eq!(sent_by(&world, 0), [Attribute::Req, Attribute::Mra]);
    assert_eq!(sent_by(&world, 1), [Attribute::Rep, Attribute::Rep], "it waits as it was asked");
    // The RTU is lost.
    world.deaf[1] = true;
    world.complete_connect(connection);
    world.run(1_000);
    world.deaf[1] = false;
    world.wait_event(1, |kind| *kind == EventKind::Accepted(Ok(())));
    assert_eq!(sent_by(&world, 0)[..4], [Attribute::Req, Attribute::Mra, Attribute::Rtu, Attribute::Rtu]);
}

#[test]
fn a_rep_to_a_connection_that_is_gone_ends_the_accept() {
    let mut world = World::new(26);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, _) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.accept(asked, b"");
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    // The REJ of the close is lost, and nothing is left of the connection.
    world.deaf[1] = true;
    world.close(0, connection);
    world.run(1_000);
    world.deaf[1] = false;
    let event = world.wait_event(1, |kind| matches!(kind, EventKind::Accepted(_)));
    assert_eq!(event.kind, EventKind::Accepted(Err(Refusal::Withdrawn(Reason::BAD_COMMUNICATION_ID))));
    assert_eq!(sent_by(&world, 1), [Attribute::Rep; 2]);
}

#[test]
fn an_rtu_that_was_lost_comes_again_although_the_peer_waits() {
    let mut world = World::new(25);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, _) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.accept(asked, b"");
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    // The consumer thinks until the REP has come again, which an MRA answers.
    world.run(6_000_000);
    assert!(sent_by(&world, 0).contains(&Attribute::Mra));
    world.deaf[1] = true;
    let Side { stack, memory, .. } = &mut world.sides[0];
    stack.complete_connect(world.now, connection, memory).expect("a reply");
    world.run(500_000);
    assert_eq!(sent_by(&world, 0).iter().filter(|sent| **sent == Attribute::Rtu).count(), 1, "not at once");
    world.deaf[1] = false;
    let before = world.now;
    world.wait_event(1, |kind| *kind == EventKind::Accepted(Ok(())));
    assert!(world.now - before < 2_000_000, "{} microseconds", world.now - before);
    world.run(20_000_000);
    assert_eq!(sent_by(&world, 0).iter().filter(|sent| **sent == Attribute::Rtu).count(), 4);
}

#[test]
fn data_before_the_rtu_are_taken_and_complete_the_accept() {
    let mut world = World::new(8);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, qp) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.accept(asked, b"");
    world.sides[1].memory.post_receive(1, 16);
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    world.deaf[1] = true;
    world.complete_connect(connection);
    world.run(1_000);
    world.deaf[1] = false;
    assert!(world.post(0, qp, 1, SEND, b"early".to_vec()));
    world.run(10_000);
    assert_eq!(world.sides[1].memory.received[0].1, b"early");
    assert!(world.take_event(1, |kind| *kind == EventKind::Accepted(Ok(()))).is_some());
}

/// A packet ahead of the expected one may be of an earlier connection.
#[test]
fn data_ahead_of_what_is_expected_do_not_complete_the_accept() {
    let mut world = World::new(7);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, qp) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.accept(asked, b"");
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    world.sides[1].memory.post_receive(1, 16);
    world.sides[1].memory.post_receive(2, 16);
    world.deaf[1] = true;
    world.complete_connect(connection);
    assert!(world.post(0, qp, 1, SEND, b"lost".to_vec()));
    world.run(100);
    world.deaf[1] = false;
    assert!(world.post(0, qp, 2, SEND, b"ahead".to_vec()));
    world.flush();
    let ahead = last_of(&world, 0);
    world.inject(1, &ahead);
    world.flush();
    assert_eq!(world.sides[1].stack.counters().psn_ahead, 1);
    assert!(world.take_event(1, |kind| matches!(kind, EventKind::Accepted(_))).is_none());
    world.wait_event(1, |kind| *kind == EventKind::Accepted(Ok(())));
    assert_eq!(world.sides[1].memory.received.len(), 2, "by what came again");
}

#[test]
fn a_listener_that_has_ended_takes_no_request() {
    let mut world = World::new(8);
    world.sides[1].stack.listen(None, PORT).expect("free");
    assert_eq!(world.sides[1].stack.stop_listening(None, PORT), Ok(()));
    assert_eq!(world.sides[1].stack.stop_listening(None, PORT), Err(CallError::Unknown));
    world.ask(false, b"");
    let refusal = Refusal::Rejected(Reason::BAD_SERVICE_ID);
    world.wait_event(0, |kind| *kind == EventKind::Connected(Err(refusal)));
    assert_eq!(world.sides[1].stack.listen(None, PORT), Ok(()), "the port is free");
}

#[test]
fn an_accept_whose_peer_is_silent_is_a_time_out() {
    let mut world = World::new(9);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let _ = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.deaf = [true, true];
    world.accept(asked, b"");
    let event = world.wait_event(1, |kind| matches!(kind, EventKind::Accepted(_)));
    assert_eq!(event.kind, EventKind::Accepted(Err(Refusal::Timeout)));
}

#[test]
fn while_the_consumer_decides_a_req_that_comes_again_asks_for_time() {
    let mut world = World::new(10);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, _) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.run(60_000_000);
    assert_eq!(sent_by(&world, 1), [Attribute::Mra], "nothing the first time");
    assert_eq!(world.sides[1].events, [], "one request is one event");
    assert_eq!(sent_by(&world, 0), [Attribute::Req; 3], "and then it waits");
    world.accept(asked, b"");
    assert_eq!(world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(()))).connection, connection);
}

#[test]
fn a_connect_that_is_rejected_after_the_reply_aborts_the_accept() {
    let mut world = World::new(11);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, _) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.accept(asked, b"");
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    let Side { stack, memory, .. } = &mut world.sides[0];
    stack.reject(world.now, connection, b"no", memory).expect("a reply");
    let event = world.wait_event(1, |kind| matches!(kind, EventKind::Accepted(_)));
    assert_eq!(event.kind, EventKind::Accepted(Err(Refusal::Withdrawn(Reason::CONSUMER))));
    let frames: Vec<_> = world.sent.iter().map(|(_, _, frame)| frame).collect();
    let (.., mad) = messages(frames).pop().expect("a REJ");
    let rej: &Rej = mad.message().expect("a REJ");
    assert_eq!((rej.message >> 6, rej.reason.get(), &rej.private[..2]), (1, 28, &b"no"[..]));
}

#[test]
fn a_rej_that_was_lost_comes_again() {
    for closed in [false, true] {
        let mut world = World::new(24);
        world.sides[1].stack.listen(None, PORT).expect("free");
        world.ask(false, b"");
        let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
        world.deaf[0] = true;
        let Side { stack, memory, .. } = &mut world.sides[1];
        stack.reject(world.now, asked, b"no", memory).expect("it waits");
        if closed {
            world.close(1, asked);
        }
        world.run(100_000);
        world.deaf[0] = false;
        let event = world.wait_event(0, |kind| matches!(kind, EventKind::Connected(_)));
        assert_eq!(event.kind, EventKind::Connected(Err(Refusal::Rejected(Reason::CONSUMER))), "closed: {closed}");
        assert_eq!(sent_by(&world, 0), [Attribute::Req; 2]);
        let info = world.sides[0].stack.connection(event.connection).expect("it is there");
        assert_eq!(info.private[..2], *b"no");
        assert_eq!(world.sides[1].events, [], "it is asked once");
    }
}

#[test]
fn closing_a_connector_at_each_stage_ends_the_other_side() {
    for side in 0..2 {
        let mut world = World::new(12);
        world.sides[1].stack.listen(None, PORT).expect("free");
        let (connection, _) = world.ask(false, b"");
        let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
        world.close(side, [connection, asked][side]);
        world.run(1_000_000);
        if side == 1 {
            let refusal = Refusal::Rejected(Reason::CONSUMER);
            assert!(world.take_event(0, |kind| *kind == EventKind::Connected(Err(refusal))).is_some());
        } else {
            assert_eq!(world.sides[1].stack.connection(asked).expect("it is there").state, State::Over);
            let qp = world.create(1);
            let Side { stack, memory, .. } = &mut world.sides[1];
            assert_eq!(stack.accept(world.now, asked, qp, LIMITS, b"", memory), Err(CallError::WrongState));
        }

        let mut world = World::new(12);
        let ends = world.connect(false);
        world.close(side, ends[side].0);
        let event = world.wait_event(1 - side, |kind| matches!(kind, EventKind::Disconnected(_)));
        assert_eq!(event.kind, EventKind::Disconnected(Ending::Graceful));
        world.run(1_000_000);
        assert!(world.sides[side].stack.connection(ends[side].0).is_none());
    }
}

#[test]
fn what_is_outstanding_when_the_peer_disconnects_is_a_time_out() {
    let mut world = World::new(13);
    let [active, passive] = world.connect(false);
    for context in 0..2 {
        assert!(world.post(0, active.1, context, SEND, b"nobody receives it".to_vec()));
    }
    world.run(1_000);
    world.disconnect(1, passive.0);
    world.wait_event(0, |kind| *kind == EventKind::Disconnected(Ending::Graceful));
    let expected = [(0, Err(Failure::Disconnected)), (1, Err(Failure::Flushed))];
    assert_eq!(world.sides[0].memory.outcomes(), expected);
    assert_eq!(Failure::Disconnected.status().to_string(), "STATUS_IO_TIMEOUT");
    assert!(!world.post(0, active.1, 3, SEND, Vec::new()));
    world.disconnect(0, active.0);
    assert!(world.take_event(0, |kind| *kind == EventKind::DisconnectComplete(Ok(()))).is_some(), "at once");
}

#[test]
fn what_has_arrived_is_acknowledged_though_its_receiver_ends_at_once() {
    for is_destroyed in [false, true] {
        let mut world = World::new(18);
        let [active, passive] = world.connect(false);
        world.sides[1].memory.post_receive(7, 100);
        assert!(world.post(0, active.1, 1, SEND, b"the last word".to_vec()));
        // It is here, and the ACK has not gone out yet.
        world.run_until(|world| !world.sides[1].memory.received.is_empty());
        world.close(1, passive.0);
        if is_destroyed {
            let Side { stack, memory, .. } = &mut world.sides[1];
            stack.destroy_queue_pair(world.now, passive.1, memory);
        }
        world.wait_event(0, |kind| *kind == EventKind::Disconnected(Ending::Graceful));
        assert_eq!(world.sides[0].memory.outcomes(), [(1, Ok(()))], "the queue pair is destroyed: {is_destroyed}");
        assert_eq!(world.sides[1].stack.counters().acks_sent, 1);
    }
}

#[test]
fn what_is_behind_a_read_without_an_answer_is_not_acknowledged() {
    let mut world = World::new(19);
    let [active, passive] = world.connect(false);
    world.sides[1].memory.register(5, 0, vec![1; 100]);
    world.sides[1].memory.post_receive(7, 100);
    assert!(world.post(0, active.1, 1, Work::Read { address: 0, key: 5 }, vec![0; 100]));
    assert!(world.post(0, active.1, 2, SEND, b"behind it".to_vec()));
    // Both arrive before anything is answered.
    let mut frame = vec![0; FRAME];
    while world.sides[1].memory.received.is_empty() {
        let Side { stack, memory, .. } = &mut world.sides[0];
        let length = stack.transmit(world.now, &mut frame, memory).expect("the SEND does not wait for the READ");
        world.inject(1, &frame[..length]);
    }
    world.close(1, passive.0);
    world.wait_event(0, |kind| *kind == EventKind::Disconnected(Ending::Graceful));
    assert_eq!(world.sides[0].memory.outcomes(), [(1, Err(Failure::Disconnected)), (2, Err(Failure::Flushed))]);
    assert_eq!(world.sides[1].stack.counters().acks_sent, 0);
}

#[test]
fn simultaneous_disconnects_both_complete() {
    let mut world = World::new(14);
    let [active, passive] = world.connect(false);
    world.disconnect(0, active.0);
    world.disconnect(1, passive.0);
    for side in 0..2 {
        world.wait_event(side, |kind| *kind == EventKind::DisconnectComplete(Ok(())));
    }
    assert!(world.sides.iter().all(|side| side.events.is_empty()), "no disconnect event for those who disconnect");
}

#[test]
fn a_disconnect_without_an_answer_is_a_time_out() {
    let mut world = World::new(15);
    let [active, _] = world.connect(false);
    world.deaf[1] = true;
    world.disconnect(0, active.0);
    world.wait_event(0, |kind| *kind == EventKind::DisconnectComplete(Err(Refusal::Timeout)));
}

#[test]
fn a_peer_that_dies_ends_the_connection_by_the_retries_of_a_request() {
    let mut world = World::new(16);
    let [active, _] = world.connect(false);
    world.deaf[1] = true;
    assert!(world.post(0, active.1, 1, SEND, b"anybody?".to_vec()));
    let event = world.wait_event(0, |kind| matches!(kind, EventKind::Disconnected(_)));
    assert_eq!(event.kind, EventKind::Disconnected(Ending::Lost));
    assert_eq!(world.sides[0].memory.outcomes(), [(1, Err(Failure::RetryExceeded))]);
    world.run(30_000_000);
    assert_eq!(world.sides[0].events, [], "told once");
    assert!(sent_by(&world, 0).contains(&Attribute::Dreq), "the peer is told, if it can hear it");
}

#[test]
fn a_failed_queue_pair_ends_the_connection_on_both_sides() {
    let mut world = World::new(17);
    let [active, passive] = world.connect(false);
    let write = Work::Write { address: 0, key: 99 };
    assert!(world.post(0, active.1, 1, write, b"not allowed".to_vec()));
    for side in 0..2 {
        world.wait_event(side, |kind| matches!(kind, EventKind::Disconnected(_)));
    }
    assert_eq!(world.sides[0].memory.outcomes(), [(1, Err(Failure::RemoteAccess))]);
    for (side, end) in [active, passive].into_iter().enumerate() {
        world.disconnect(side, end.0);
        world.wait_event(side, |kind| *kind == EventKind::DisconnectComplete(Ok(())));
    }
}

#[test]
fn a_dreq_of_nobody_is_answered_and_one_for_another_queue_pair_is_not() {
    let mut world = World::new(18);
    let [active, passive] = world.connect(false);
    world.disconnect(0, active.0);
    world.run(1_000_000);
    let dreq =
        world.sent.iter().find(|(_, _, frame)| messages([frame]).first().is_some_and(|it| it.0 == Attribute::Dreq));
    let dreq = dreq.expect("a DREQ").2.clone();
    let answers = |world: &World| sent_by(world, 1).into_iter().filter(|it| *it == Attribute::Drep).count();
    assert_eq!(answers(&world), 1);
    world.close(1, passive.0);
    world.inject(1, &dreq);
    world.flush();
    assert_eq!(answers(&world), 2);

    let mut world = World::new(18);
    let [_, passive] = world.connect(false);
    let (envelope, packet) = Envelope::parse(&dreq).expect("a packet");
    let mad = Mad::parse(packet.payload).expect("a message");
    let mut message: Dreq = *mad.message().expect("a DREQ");
    message.qpn = roce::wire::U24::new(passive.1 ^ 1);
    let changed = Mad::new(Attribute::Dreq, 1, &message);
    let packet = Packet { payload: zerocopy::IntoBytes::as_bytes(&changed), ..packet };
    let mut frame = vec![0; FRAME];
    let length = envelope.emit(&packet, &mut frame);
    world.inject(1, &frame[..length]);
    world.flush();
    assert_eq!(answers(&world), 0);
    assert_eq!(world.sides[1].stack.connection(passive.0).expect("it is there").state, State::Established);
}

/// Changes the REQ of a connect before it arrives, and gives what comes back.
fn answer_to_changed(change: impl Fn(&mut Req)) -> (Attribute, Rej) {
    let mut world = World::new(19);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let _ = world.connect(false);
    world.sent.clear();
    world.deaf[1] = true;
    let _ = world.ask(false, b"");
    world.run(1_000);
    let (_, _, frame) = world.sent.last().expect("a REQ").clone();
    let (envelope, packet) = Envelope::parse(&frame).expect("a packet");
    let mad = Mad::parse(packet.payload).expect("a message");
    let mut req: Req = *mad.message().expect("a REQ");
    change(&mut req);
    let changed = Mad::new(Attribute::Req, 1, &req);
    let packet = Packet { payload: zerocopy::IntoBytes::as_bytes(&changed), ..packet };
    let mut out = vec![0; FRAME];
    let length = envelope.emit(&packet, &mut out);
    world.inject(1, &out[..length]);
    world.sent.clear();
    world.flush();
    if let Some(event) = world.take_event(1, |kind| *kind == EventKind::Requested) {
        world.accept(event.connection, b"");
        world.flush();
    }
    let (_, _, answer) = world.sent.first().expect("an answer");
    let (attribute, _, mad) = messages([answer])[0];
    (attribute, *mad.message().expect("232 bytes"))
}

#[test]
fn a_req_with_one_wrong_field_is_refused_with_its_reason() {
    let refused = |reason: Reason, change: &dyn Fn(&mut Req)| {
        let (attribute, rej) = answer_to_changed(change);
        assert_eq!((attribute, Reason(rej.reason.get()), rej.local_id.get()), (Attribute::Rej, reason, 0));
        rej
    };
    refused(Reason::BAD_SERVICE_ID, &|req| req.service = (roce::wire::cm::service_id(PORT) + 1).into());
    refused(Reason::BAD_SERVICE_ID, &|req| req.service = 0x0111_1C06.into());
    refused(Reason::BAD_TRANSPORT, &|req| req.remote_timeout |= 2);
    let rej = refused(Reason::BAD_GID, &|req| req.primary.remote_gid[15] = 9);
    assert_eq!(rej.information[..16], roce::wire::cm::gid([10, 0, 0, 2].into()), "what would be right");
    refused(Reason::BAD_GID, &|req| req.p_key = 0x1234.into());
    for qpn in [0, 1] {
        refused(Reason::NO_QP, &|req| req.qpn = roce::wire::U24::new(qpn));
    }
    for code in [0, 4, 5, 6] {
        let rej = refused(Reason::BAD_MTU, &|req| req.mtu = code << 4 | 7);
        assert_eq!((rej.information_length >> 1, rej.information[0]), (1, 3));
    }
    let (ours, theirs) = ("10.0.0.1:5".parse().expect("an address"), [10, 0, 0, 3].into());
    refused(Reason::CONSUMER, &|req| req.private.addresses = roce::wire::cm::IpAddresses::new(ours, theirs));
    // RDMA_CM's header: its version, and IP's.
    for (place, value) in [(140, 0x10), (141, 0x50)] {
        refused(Reason::CONSUMER, &|req| zerocopy::IntoBytes::as_mut_bytes(req)[place] = value);
    }
    for change in [
        |req: &mut Req| req.primary.hop_limit = 1,
        |req: &mut Req| req.p_key = 0x7FFF.into(),
        |req: &mut Req| req.primary.ack_timeout = 0,
        |req: &mut Req| req.guid = 0.into(),
        |req: &mut Req| req.qpn = roce::wire::U24::new(2),
        |req: &mut Req| req.mtu = 2 << 4 | 7,
    ] {
        assert_eq!(answer_to_changed(change).0, Attribute::Rep);
    }
}

#[test]
fn a_smaller_mtu_is_taken_when_the_peer_wants_it() {
    let mut world = World::with_mtu(20, 4200);
    world.sides[1].stack = common::world::stack(1, 20, 1500);
    let [active, passive] = world.connect(false);
    for (side, end) in [active, passive].into_iter().enumerate() {
        let link = world.sides[side].stack.queue_pair(end.1).expect("a queue pair").link().copied();
        assert_eq!(link.expect("it is connected").mtu.bytes(), 1024);
    }
}

#[test]
fn half_open_connections_are_bounded() {
    let mut world = World::new(21);
    world.sides[1].stack.listen(None, PORT).expect("free");
    for _ in 0..4 {
        let _ = world.ask(false, b"");
        world.wait_event(1, |kind| *kind == EventKind::Requested);
    }
    let _ = world.ask(false, b"");
    let event = world.wait_event(0, |kind| matches!(kind, EventKind::Connected(_)));
    assert_eq!(event.kind, EventKind::Connected(Err(Refusal::Rejected(Reason::NO_RESOURCES))));
    assert_eq!(world.sides[1].stack.counters().refused_for_room, 1);
}

#[test]
fn a_connection_whose_numbers_come_again_is_stale() {
    let mut world = World::new(22);
    let [_, passive] = world.connect(false);
    // The active side starts anew with the same queue pair numbers, and no memory of its connection.
    world.sides[0].stack = common::world::stack(0, 23, 1500);
    let (_, _) = world.ask(false, b"");
    let event = world.wait_event(1, |kind| matches!(kind, EventKind::Disconnected(_)));
    assert_eq!((event.connection, event.kind), (passive.0, EventKind::Disconnected(Ending::Lost)));
    assert!(sent_by(&world, 1).contains(&Attribute::Rej));
    // It asks again with another id, and gets what it wants.
    world.wait_event(1, |kind| *kind == EventKind::Requested);
}

#[test]
fn an_rtu_of_another_sender_is_not_one() {
    let mut world = World::new(23);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let _ = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.accept(asked, b"");
    world.flush();
    let (_, _, rep) = world.sent.last().expect("a REP");
    let (.., mad) = messages([rep])[0];
    let rep: &Rep = mad.message().expect("a REP");
    let rtu = Rtu { local_id: rep.remote_id, remote_id: rep.local_id, private: [0; 224] };
    let req =
        world.sent.iter().find(|(_, _, frame)| messages([frame]).first().is_some_and(|it| it.0 == Attribute::Req));
    let req = req.expect("a REQ").2.clone();
    let (mut envelope, packet) = Envelope::parse(&req).expect("a packet");
    envelope.ip.source = [10, 0, 0, 66].into();
    let mad = Mad::new(Attribute::Rtu, 1, &rtu);
    let packet = Packet { payload: zerocopy::IntoBytes::as_bytes(&mad), ..packet };
    let mut frame = vec![0; FRAME];
    let length = envelope.emit(&packet, &mut frame);
    world.inject(1, &frame[..length]);
    assert_eq!(world.sides[1].stack.connection(asked).expect("it is there").state, State::ReplySent);
}

/// What a side has sent last.
fn last_of(world: &World, side: usize) -> Vec<u8> {
    world.sent.iter().rfind(|(_, from, _)| *from == side).expect("a frame").2.clone()
}

/// Both sides of a connection with this world's clock, and that each can send to the other.
fn carries_both_ways(world: &mut World, queue_pairs: [u32; 2]) {
    for (side, qp) in queue_pairs.into_iter().enumerate() {
        world.sides[1 - side].memory.post_receive(1, 16);
        assert!(world.post(side, qp, 2, SEND, b"hello".to_vec()));
        world.run(10_000);
        assert_eq!(world.sides[1 - side].memory.received[0].1, b"hello", "from side {side}");
    }
}

/// Microseconds after which a message of the connection manager has been repeated once.
const AT_THE_NEXT_RETRY: u64 = 1_200_000;

/// Nothing but the link protects what a station says of itself.
#[test]
fn a_connect_finds_its_peer_although_the_answer_of_its_station_was_changed() {
    /// Behind Ethernet's header and eight bytes of ARP; behind those of IPv6, of the advertisement, and of its option.
    const STATION: usize = 14 + 8;
    let mut world = World::new(24);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, qp) = world.ask(false, b"");
    world.run(60);
    let mut answer = last_of(&world, 1);
    assert_eq!(answer[STATION..][..6], [2, 0, 0, 0, 0, 2], "an answer of ARP");
    answer[STATION + 4] ^= 0x10;
    world.deaf[0] = true;
    world.run(100);
    world.deaf[0] = false;
    world.inject(0, &answer);
    world.run(AT_THE_NEXT_RETRY);
    let asked = world.take_event(1, |kind| *kind == EventKind::Requested).expect("a REQ").connection;
    let accepted = world.accept(asked, b"");
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    world.complete_connect(connection);
    world.wait_event(1, |kind| *kind == EventKind::Accepted(Ok(())));
    carries_both_ways(&mut world, [qp, accepted]);
}

/// The ICRC does not cover where a frame says that it comes from.
#[test]
fn an_accept_finds_its_peer_although_the_station_of_its_req_was_changed() {
    const SOURCE: usize = 6;
    for v6 in [false, true] {
        let mut world = World::new(25);
        world.sides[1].stack.listen(None, PORT).expect("free");
        let (connection, qp) = world.ask(v6, b"");
        world.run(120);
        let mut req = last_of(&world, 0);
        assert_eq!(messages([&req])[0].0, Attribute::Req);
        req[SOURCE + 4] ^= 0x10;
        world.deaf[1] = true;
        world.run(100);
        world.deaf[1] = false;
        world.inject(1, &req);
        let asked = world.take_event(1, |kind| *kind == EventKind::Requested).expect("a REQ").connection;
        let accepted = world.accept(asked, b"");
        world.run(AT_THE_NEXT_RETRY);
        world.take_event(0, |kind| *kind == EventKind::Connected(Ok(()))).expect("a REP");
        world.complete_connect(connection);
        world.wait_event(1, |kind| *kind == EventKind::Accepted(Ok(())));
        carries_both_ways(&mut world, [qp, accepted]);
    }
}

/// Behind Ethernet's header and eight bytes of ARP.
const STATION_OF_ARP: usize = 14 + 8;

/// The active side waits for nothing any more when it has its REP, and so would never doubt the station that its RTU goes to.
#[test]
fn an_accept_ends_although_the_active_side_was_told_of_another_station() {
    let mut world = World::new(27);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, qp) = world.ask(false, b"");
    world.run(60);
    let mut answer = last_of(&world, 1);
    assert_eq!(answer[STATION_OF_ARP..][..6], [2, 0, 0, 0, 0, 2], "an answer of ARP");
    answer[STATION_OF_ARP + 4] ^= 0x10;
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.deaf[0] = true;
    let accepted = world.accept(asked, b"");
    world.run(900_000);
    world.deaf[0] = false;
    world.inject(0, &answer);
    // The REQ that is repeated goes to the wrong station, and the REP that is repeated comes.
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    world.complete_connect(connection);
    let event = world.wait_event(1, |kind| matches!(kind, EventKind::Accepted(_)));
    assert_eq!(event.kind, EventKind::Accepted(Ok(())));
    carries_both_ways(&mut world, [qp, accepted]);
}

/// Nor does the passive side when it has its RTU, and its consumer may have nothing to send.
#[test]
fn a_peer_gets_its_answers_although_the_passive_side_was_told_of_another_station() {
    let mut world = World::new(28);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (connection, qp) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.deaf[0] = true;
    let accepted = world.accept(asked, b"");
    world.run(900_000);
    world.deaf[0] = false;
    // The REP goes out again, and its side asks for the station, whose answer is changed.
    world.sent.clear();
    world.deaf[1] = true;
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    world.run(1_000);
    let is_arp = |frame: &[u8]| frame[12..14] == [0x08, 0x06];
    let mut answers = world.sent.iter().filter(|(_, side, frame)| *side == 0 && is_arp(frame));
    let mut answer = answers.next_back().expect("an answer of ARP").2.clone();
    answer[STATION_OF_ARP + 4] ^= 0x10;
    world.deaf[1] = false;
    world.inject(1, &answer);
    world.complete_connect(connection);
    world.wait_event(1, |kind| *kind == EventKind::Accepted(Ok(())));
    world.sides[1].memory.post_receive(1, 64);
    assert!(world.post(0, qp, 7, SEND, b"hello".to_vec()));
    world.run(3_000_000);
    assert_eq!(world.sides[0].memory.outcomes(), [(7, Ok(()))]);
    assert!(world.sides[1].stack.counters().duplicates > 0, "its first answers went astray");
    assert_eq!(world.sides[1].stack.connection(asked).map(|connection| connection.qp), Some(accepted));
}

/// Its machine may have got another adapter. It is asked for once a second at most.
#[test]
fn a_peer_that_does_not_answer_a_request_is_asked_for_its_station() {
    let mut world = World::new(26);
    let [active, _] = world.connect(false);
    world.run(2_000_000);
    world.sent.clear();
    world.deaf[1] = true;
    assert!(world.post(0, active.1, 1, SEND, b"anybody?".to_vec()));
    world.run(900_000);
    let questions = world.sent.iter().filter(|(_, _, frame)| frame[12..14] == [0x08, 0x06]).count();
    assert_eq!(questions, 1, "of ARP, for {} time-outs", world.sides[0].stack.counters().timeouts);
    assert!(world.sides[0].stack.counters().timeouts > 1);
}

/// The frame with another message of the connection manager in it.
fn carrying(frame: &[u8], mad: &Mad) -> Vec<u8> {
    let (envelope, packet) = Envelope::parse(frame).expect("a packet");
    let packet = Packet { payload: zerocopy::IntoBytes::as_bytes(mad), ..packet };
    let mut out = vec![0; FRAME];
    let length = envelope.emit(&packet, &mut out);
    out.truncate(length);
    out
}

/// The first REQ that was sent: its frame, and the message.
fn first_req(world: &World) -> (Vec<u8>, Req) {
    let is_req = |frame: &Vec<u8>| messages([frame]).first().is_some_and(|it| it.0 == Attribute::Req);
    let (_, _, frame) = world.sent.iter().find(|(_, _, frame)| is_req(frame)).expect("a REQ");
    let (.., mad) = messages([frame])[0];
    (frame.clone(), *mad.message().expect("a REQ"))
}

#[test]
fn a_port_has_one_listener_for_each_address_or_one_for_all() {
    let mut stack = common::world::stack(0, 27, 1500);
    let [one, two] = ["10.0.0.1", "fd00::1"].map(|text| Some(text.parse().expect("an address")));
    assert_eq!(stack.listen(one, 5), Ok(()));
    assert_eq!(stack.listen(one, 5), Err(CallError::InUse));
    assert_eq!(stack.listen(None, 5), Err(CallError::InUse), "all of them are one too");
    assert_eq!((stack.listen(two, 5), stack.listen(None, 6)), (Ok(()), Ok(())));
    assert_eq!(stack.listen(one, 6), Err(CallError::InUse));
    assert_eq!((stack.listen(one, 7), stack.listen(one, 8)), (Ok(()), Err(CallError::NoRoom)));
    for (address, port) in [(None, 5), (one, 6), (two, 7)] {
        assert_eq!(stack.pause(address, port, true), Err(CallError::Unknown), "{address:?} {port}");
        assert_eq!(stack.stop_listening(address, port), Err(CallError::Unknown), "{address:?} {port}");
    }
}

#[test]
fn a_req_with_the_id_of_another_adapter_is_another_one() {
    let mut world = World::new(28);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let _ = world.ask(false, b"");
    world.wait_event(1, |kind| *kind == EventKind::Requested);
    let (frame, req) = first_req(&world);
    world.inject(1, &frame);
    assert!(world.take_event(1, |kind| *kind == EventKind::Requested).is_none(), "the same one");
    let other = Req { guid: (req.guid.get() + 1).into(), ..req };
    world.inject(1, &carrying(&frame, &Mad::new(Attribute::Req, 1, &other)));
    assert!(world.take_event(1, |kind| *kind == EventKind::Requested).is_some());
}

#[test]
fn the_peers_time_for_an_ack_holds_on_the_passive_side() {
    let mut world = World::new(29);
    let [_, passive] = world.connect(false);
    let (_, req) = first_req(&world);
    let link = world.sides[1].stack.queue_pair(passive.1).expect("a queue pair").link().copied();
    let timeout = roce::timeout::of_code(req.primary.ack_timeout >> 3);
    assert!(timeout.is_some());
    assert_eq!(link.expect("it is connected").ack_timeout, timeout);
}

#[test]
fn the_peers_req_says_how_often_the_passive_side_repeats() {
    let mut world = World::new(46);
    let _ = world.connect(false);
    world.sent.clear();
    world.deaf[1] = true;
    let _ = world.ask(false, b"");
    world.run(100);
    let (frame, mut req) = first_req(&world);
    (req.local_timeout, req.mtu) = (req.local_timeout & !7 | 3, req.mtu & !7 | 2);
    world.inject(1, &carrying(&frame, &Mad::new(Attribute::Req, 1, &req)));
    let asked = world.take_event(1, |kind| *kind == EventKind::Requested).expect("a request").connection;
    let qp = world.accept(asked, b"");
    let link = world.sides[1].stack.queue_pair(qp).expect("a queue pair").link().copied().expect("it is connected");
    assert_eq!((link.retry_count, link.rnr_retry_count), (3, 2));
}

/// A connect whose REP is changed before it arrives: the event, and the queue pair of the active side.
fn connected_by(change: impl Fn(&mut Rep)) -> (World, EventKind, u32) {
    let mut world = World::new(49);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let (_, qp) = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    world.deaf[0] = true;
    world.accept(asked, b"");
    world.run(100);
    let frame = last_of(&world, 1);
    let (.., mad) = messages([&frame])[0];
    let mut rep: Rep = *mad.message().expect("a REP");
    change(&mut rep);
    world.inject(0, &carrying(&frame, &Mad::new(Attribute::Rep, 1, &rep)));
    let event = world.take_event(0, |kind| matches!(kind, EventKind::Connected(_))).expect("an outcome");
    (world, event.kind, qp)
}

#[test]
fn a_rep_without_a_queue_pair_of_connections_is_refused() {
    for qpn in [0, 1] {
        let (world, kind, _) = connected_by(|rep| rep.qpn = roce::wire::U24::new(qpn));
        assert_eq!(kind, EventKind::Connected(Err(Refusal::Rejected(Reason::NO_QP))), "{qpn}");
        assert_eq!(sent_by(&world, 0).last(), Some(&Attribute::Rej));
    }
    assert_eq!(connected_by(|rep| rep.qpn = roce::wire::U24::new(2)).1, EventKind::Connected(Ok(())));
}

#[test]
fn the_peers_delay_of_an_ack_makes_the_active_side_wait_longer() {
    // This side's own time has the code 16.
    for (delay, code) in [(0, 16), (15, 16), (16, 17), (20, 21), (31, 31)] {
        let (world, _, qp) = connected_by(|rep| rep.ack_delay = delay << 3 | rep.ack_delay & 7);
        let link = world.sides[0].stack.queue_pair(qp).expect("a queue pair").link().copied();
        let expected = roce::timeout::of_code(code);
        assert_eq!(link.expect("it is connected").ack_timeout, expected, "{delay}");
    }
}

#[test]
fn a_connect_without_a_port_takes_the_next_one_of_those_that_are_free_for_all() {
    let mut world = World::new(47);
    let mut before = None;
    for _ in 0..4 {
        let (connection, _) = world.ask(false, b"");
        let port = world.sides[0].stack.connection(connection).expect("it is there").local.port();
        assert!(port >= 49152, "{port}");
        if let Some(before) = before.replace(port) {
            assert_eq!(port, if before == 65534 { 49152 } else { before + 1 });
        }
    }
}

#[test]
fn a_connection_that_is_over_is_remembered_for_four_times_its_interval() {
    for (later, is_stale) in [(-1_i64, true), (0, false)] {
        let mut world = World::new(30);
        let [active, passive] = world.connect(false);
        let (frame, req) = first_req(&world);
        world.disconnect(0, active.0);
        world.run(1_000);
        world.close(1, passive.0);
        world.sides[1].events.clear();
        let interval = roce::timeout::of_code(req.local_timeout_code()).expect("a time");
        // Something is due at that time, at which what is forgotten is dropped.
        let (qp, local) = (world.create(1), "10.0.0.2:0".parse().expect("an address"));
        let remote = "10.0.0.9:5".parse().expect("an address");
        let connect = Connect { qp, local, remote, private: b"", limits: LIMITS };
        let Side { stack, memory, .. } = &mut world.sides[1];
        stack.connect(world.now, &connect, memory).expect("it begins");
        world.now = (world.now + interval * 4).strict_add_signed(later);
        world.sent.clear();
        assert!(stack.deadline().is_some_and(|deadline| deadline < world.now));
        stack.tick(world.now, memory);
        world.inject(1, &frame);
        let asked = world.take_event(1, |kind| *kind == EventKind::Requested);
        assert_eq!((asked.is_none(), sent_by(&world, 1) == [Attribute::Rej]), (is_stale, is_stale), "{later}");
    }
}

#[test]
fn a_connection_that_is_over_is_remembered_for_twice_the_time_of_an_ack_if_that_is_longer() {
    for (later, is_remembered) in [(-1_i64, true), (0, false)] {
        let mut world = World::new(37);
        world.sides[1].stack.listen(None, PORT).expect("free");
        world.meet();
        world.deaf[1] = true;
        let _ = world.ask(false, b"");
        world.run(100);
        let (frame, mut req) = first_req(&world);
        req.primary.ack_timeout = 22 << 3;
        let frame = carrying(&frame, &Mad::new(Attribute::Req, 1, &req));
        world.inject(1, &frame);
        let asked = world.take_event(1, |kind| *kind == EventKind::Requested).expect("a request").connection;
        world.close(1, asked);
        world.now = (world.now + 2 * 17_179_869).strict_add_signed(later);
        world.inject(1, &frame);
        let again = world.take_event(1, |kind| *kind == EventKind::Requested);
        assert_eq!(again.is_none(), is_remembered, "{later}");
    }
}

#[test]
fn each_connection_begins_with_numbers_that_nobody_can_guess() {
    let mut world = World::new(38);
    world.meet();
    let mut numbers = std::collections::HashSet::new();
    for _ in 0..4 {
        world.sent.clear();
        let _ = world.ask(false, b"");
        world.run(100);
        let (_, req) = first_req(&world);
        assert!(numbers.insert(req.starting_psn.get()));
    }
    let mut world = World::new(39);
    world.meet();
    let _ = world.ask(false, b"");
    world.run(100);
    assert!(numbers.insert(first_req(&world).1.starting_psn.get()), "the same as with another seed");
}

#[test]
fn the_packets_of_a_queue_pair_have_a_port_of_their_own() {
    let mut world = World::new(40);
    let ends = world.connect(false);
    for (side, (_, qp)) in ends.into_iter().enumerate() {
        let link = world.sides[side].stack.queue_pair(qp).expect("a queue pair").link().copied();
        let link = link.expect("it is connected");
        assert_eq!(link.path.source_port, roce::path::source_port(qp, ends[1 - side].1));
        assert_ne!(link.path.source_port, 0xC000, "that of datagrams");
    }
}

#[test]
fn a_queue_pair_whose_connect_was_refused_or_closed_may_connect_again() {
    let mut world = World::new(45);
    let (local, remote) = World::addresses(false);
    let (_, qp) = world.ask(false, b"");
    let connect = Connect { qp, local, remote, private: b"", limits: LIMITS };
    let Side { stack, memory, .. } = &mut world.sides[0];
    assert_eq!(stack.connect(world.now, &connect, memory), Err(CallError::WrongState), "while it connects");
    world.wait_event(0, |kind| matches!(kind, EventKind::Connected(Err(_))));
    let Side { stack, memory, .. } = &mut world.sides[0];
    assert!(stack.connect(world.now, &connect, memory).is_ok());

    let mut world = World::new(41);
    world.deaf = [true, true];
    let (connection, qp) = world.ask(false, b"");
    assert_eq!(world.sides[0].stack.connection(connection).expect("it is there").state, State::Resolving);
    world.close(0, connection);
    let connect = Connect { qp, ..connect };
    let Side { stack, memory, .. } = &mut world.sides[0];
    assert!(stack.connect(world.now, &connect, memory).is_ok());
}

#[test]
fn a_connect_whose_way_is_gone_is_unreachable() {
    let mut world = World::new(52);
    world.deaf = [true, true];
    world.ask(false, b"");
    world.sides[0].stack.set_networks(&[]).expect("room");
    let event = world.wait_event(0, |kind| matches!(kind, EventKind::Connected(_)));
    assert_eq!(event.kind, EventKind::Connected(Err(Refusal::NetworkUnreachable)));
    assert_eq!(Refusal::NetworkUnreachable.status().to_string(), "STATUS_NETWORK_UNREACHABLE");
}

#[test]
fn a_listener_on_one_address_hears_of_no_other() {
    let mut world = World::new(50);
    world.sides[1].stack.listen(Some([10, 0, 0, 2].into()), PORT).expect("free");
    world.ask(true, b"");
    let refused = EventKind::Connected(Err(Refusal::Rejected(Reason::BAD_SERVICE_ID)));
    world.wait_event(0, |kind| *kind == refused);
    world.ask(false, b"");
    world.wait_event(1, |kind| *kind == EventKind::Requested);
}

#[test]
fn a_queue_pair_that_has_a_connection_or_had_one_accepts_no_other() {
    let mut world = World::new(51);
    let [active, passive] = world.connect(false);
    world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    let accept = |world: &mut World, qp| {
        let Side { stack, memory, .. } = &mut world.sides[1];
        stack.accept(world.now, asked, qp, LIMITS, b"", memory)
    };
    // One that is connected, one that connects, and one whose connection is over.
    let connecting = world.create(1);
    let (local, remote) = ("10.0.0.2:0".parse().expect("an address"), "10.0.0.1:5".parse().expect("an address"));
    let connect = Connect { qp: connecting, local, remote, private: b"", limits: LIMITS };
    let Side { stack, memory, .. } = &mut world.sides[1];
    stack.connect(world.now, &connect, memory).expect("it begins");
    assert_eq!(accept(&mut world, passive.1), Err(CallError::WrongState));
    assert_eq!(accept(&mut world, connecting), Err(CallError::WrongState));
    world.disconnect(0, active.0);
    world.run(1_000);
    world.close(1, passive.0);
    assert_eq!(accept(&mut world, passive.1), Err(CallError::WrongState));
    let free = world.create(1);
    assert_eq!(accept(&mut world, free), Ok(()));
}

#[test]
fn a_queue_pair_connects_once_in_its_life() {
    let mut world = World::new(48);
    let [active, _] = world.connect(false);
    world.close(0, active.0);
    world.run(1_000);
    assert!(world.sides[0].stack.connection(active.0).is_none());
    let (local, remote) = World::addresses(false);
    let connect = Connect { qp: active.1, local, remote, private: b"", limits: LIMITS };
    let Side { stack, memory, .. } = &mut world.sides[0];
    assert_eq!(stack.connect(world.now, &connect, memory), Err(CallError::WrongState));
}

#[test]
fn answers_that_nobody_takes_are_dropped_and_counted() {
    let mut world = World::new(42);
    let [active, _] = world.connect(false);
    world.disconnect(0, active.0);
    world.run(1_000);
    let frame = last_of(&world, 0);
    let dreq =
        Dreq { local_id: 1.into(), remote_id: 2.into(), qpn: roce::wire::U24::new(3), reserved: 0, private: [0; 220] };
    let frame = carrying(&frame, &Mad::new(Attribute::Dreq, 1, &dreq));
    // Room for one of each of 16 connections, and 16 more.
    for _ in 0..40 {
        world.inject(1, &frame);
    }
    assert!(world.sides[1].stack.may_transmit());
    assert_eq!(world.sides[1].stack.counters().cm_overflows, 8);
    world.sent.clear();
    world.flush();
    assert_eq!(sent_by(&world, 1), [Attribute::Drep; 32]);
    assert!(!world.sides[1].stack.may_transmit());
}

#[test]
fn a_message_that_nobody_knows_is_malformed() {
    let mut world = World::new(43);
    let _ = world.connect(false);
    let (frame, req) = first_req(&world);
    world.sent.clear();
    // Another version, class, version of it, method; and SIDR REQ, which a datagram service would ask with.
    for (count, (place, value)) in (1..).zip([(0, 2), (1, 8), (2, 1), (3, 0x83), (17, 0x17)]) {
        let mut mad = Mad::new(Attribute::Req, 1, &req);
        zerocopy::IntoBytes::as_mut_bytes(&mut mad)[place] = value;
        world.inject(1, &carrying(&frame, &mad));
        world.flush();
        assert_eq!((world.sides[1].stack.counters().malformed, world.sent.len()), (count, 0), "byte {place}");
    }
}

/// An active side that has sent a REQ which nobody answers, a frame that its peer may have sent, and the MRA that asks it for time.
fn asked_for_time(about: Message, code: u8) -> (World, Vec<u8>) {
    let mut world = World::new(44);
    let _ = world.connect(false);
    let back = last_of(&world, 1);
    world.sent.clear();
    world.deaf[1] = true;
    let _ = world.ask(false, b"");
    world.flush();
    let (_, req) = first_req(&world);
    let mra = Mra {
        local_id: 5.into(),
        remote_id: req.local_id,
        message: (about as u8) << 6,
        service_timeout: code << 3,
        private: [0; 222],
    };
    (world, carrying(&back, &Mad::new(Attribute::Mra, 1, &mra)))
}

/// How long it takes until the REQ is repeated.
fn until_repeated(world: &mut World) -> u64 {
    let (before, sent) = (world.now, sent_by(world, 0).len());
    while sent_by(world, 0).len() == sent {
        assert!(world.step(before + 120_000_000), "it is never repeated");
        world.flush();
    }
    world.now - before
}

#[test]
fn a_peer_gets_the_time_that_it_asks_for_three_times() {
    const INTERVAL: u64 = 1_073_741;
    let (mut world, mra) = asked_for_time(Message::Req, 20);
    assert_eq!(until_repeated(&mut world), INTERVAL);
    for _ in 0..3 {
        world.inject(0, &mra);
        assert_eq!(until_repeated(&mut world), 4_294_967 + INTERVAL);
    }
    world.inject(0, &mra);
    assert_eq!(until_repeated(&mut world), INTERVAL, "its patience has an end");

    let (mut world, mra) = asked_for_time(Message::Req, 31);
    world.inject(0, &mra);
    assert_eq!(until_repeated(&mut world), 70_000_000 + INTERVAL, "no message asks for more");

    let (mut world, mra) = asked_for_time(Message::Rep, 20);
    world.inject(0, &mra);
    assert_eq!(until_repeated(&mut world), INTERVAL, "not what was sent");
}

#[test]
fn who_gives_up_before_the_reply_ends_that_request_only() {
    let mut world = World::new(31);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let mut asked = Vec::new();
    for _ in 0..3 {
        let (connection, _) = world.ask(false, b"");
        asked.push((connection, world.wait_event(1, |kind| *kind == EventKind::Requested).connection));
    }
    world.close(0, asked[1].0);
    world.run(1_000);
    let states: Vec<_> = asked.iter().map(|(_, id)| world.sides[1].stack.connection(*id).map(|it| it.state)).collect();
    assert_eq!(states, [Some(State::RequestReceived), Some(State::Over), Some(State::RequestReceived)]);
    // A peer that is another one, or none of its requests.
    let (.., mad) = messages([&last_of(&world, 0)])[0];
    let rej: Rej = *mad.message().expect("a REJ");
    let (_, first) = first_req(&world);
    let mut other = Rej { local_id: first.local_id, ..rej };
    other.information[7] ^= 1;
    for rej in [other, Rej { local_id: 99.into(), ..rej }] {
        let frame = carrying(&last_of(&world, 0), &Mad::new(Attribute::Rej, 1, &rej));
        world.inject(1, &frame);
        assert_eq!(world.sides[1].stack.connection(asked[0].1).expect("it is there").state, State::RequestReceived);
    }
}

#[test]
fn a_refusal_for_the_mtu_is_answered_with_a_smaller_one_and_only_then() {
    for (code, renews) in [(2, true), (3, false), (4, false), (0, false)] {
        let mut world = World::new(32);
        let _ = world.connect(false);
        let back = last_of(&world, 1);
        world.sent.clear();
        world.deaf[1] = true;
        let _ = world.ask(false, b"");
        world.run(100);
        let (_, req) = first_req(&world);
        let rej = Rej::new(0, req.local_id.get(), Message::Req, Reason::BAD_MTU, &[code]);
        world.sent.clear();
        world.inject(0, &carrying(&back, &Mad::new(Attribute::Rej, 1, &rej)));
        world.flush();
        if renews {
            let (_, again) = first_req(&world);
            assert_eq!((again.mtu >> 4, again.mtu & 15), (code, req.mtu & 15));
            assert_ne!(again.local_id, req.local_id, "with another id");
        } else {
            let refused = EventKind::Connected(Err(Refusal::Rejected(Reason::BAD_MTU)));
            assert!(world.take_event(0, |kind| *kind == refused).is_some(), "{code}");
            assert!(world.sent.is_empty(), "{code}");
        }
    }
}

#[test]
fn a_disconnect_of_what_has_failed_completes_with_the_peers_answer() {
    let mut world = World::new(33);
    let [active, _] = world.connect(false);
    world.deaf[1] = true;
    let Side { stack, memory, .. } = &mut world.sides[0];
    stack.flush(world.now, active.1, memory);
    world.wait_event(0, |kind| *kind == EventKind::Disconnected(Ending::Lost));
    world.disconnect(0, active.0);
    let Side { stack, memory, .. } = &mut world.sides[0];
    assert_eq!(stack.disconnect(world.now, active.0, memory), Err(CallError::WrongState), "twice");
    world.run(1_000);
    assert_eq!(world.sides[0].events, [], "the DREQ was lost");
    world.deaf[1] = false;
    world.wait_event(0, |kind| *kind == EventKind::DisconnectComplete(Ok(())));
}

#[test]
fn a_dreq_answers_a_dreq() {
    let mut world = World::new(34);
    let [active, passive] = world.connect(false);
    world.deaf[1] = true;
    world.disconnect(0, active.0);
    world.run(1_000);
    world.disconnect(1, passive.0);
    world.run(1_000);
    assert!(!sent_by(&world, 1).contains(&Attribute::Drep), "the first DREQ was lost");
    assert!(world.take_event(0, |kind| *kind == EventKind::DisconnectComplete(Ok(()))).is_some());
}

#[test]
fn a_queue_pair_that_fails_before_the_rtu_ends_the_accept_and_the_connect() {
    let mut world = World::new(35);
    world.sides[1].stack.listen(None, PORT).expect("free");
    let _ = world.ask(false, b"");
    let asked = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    let qp = world.accept(asked, b"");
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    let Side { stack, memory, .. } = &mut world.sides[1];
    stack.flush(world.now, qp, memory);
    world.wait_event(1, |kind| *kind == EventKind::Accepted(Err(Refusal::Aborted)));
    world.run(1_000);
    assert_eq!(sent_by(&world, 1), [Attribute::Rep, Attribute::Rej]);
}

#[test]
fn closing_a_connector_drops_its_own_events_only() {
    let mut world = World::new(36);
    world.meet();
    let _ = [world.ask(false, b""), world.ask(false, b"")];
    let end = world.now + 1_000;
    while !world.sides[1].stack.has_event() {
        assert!(world.step(end), "both arrive at once");
    }
    let Side { stack, memory, .. } = &mut world.sides[1];
    let first = stack.event().expect("the first request").connection;
    stack.close(world.now, first, memory).expect("it is there");
    let second = stack.event().expect("the second one stays");
    assert_eq!(second.kind, EventKind::Requested);
    assert_ne!(second.connection, first);
    let Side { stack, memory, .. } = &mut world.sides[1];
    stack.close(world.now, second.connection, memory).expect("it is there");
    assert!(stack.event().is_none());
}
