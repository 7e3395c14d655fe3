//! What a stack does with frames that are not for it, and with its neighbours (RoCEv2 1, 8.8).

use roce::{
    Counters, FRAME, Failure, NETWORKS, Network,
    cm::{CallError, EventKind},
    mtu::Mtu,
    path::Path,
    psn::Psn,
    qp::{Link, Sizes, Work},
    wire::{Bth, Deth, Envelope, Ethernet, Extended, Opcode, Packet, cm, ethernet::ethertype},
};

use crate::common::{
    self,
    world::{Side, World},
};

const SEND: Work = Work::Send { invalidate: None };

/// A connection, and a SEND on its way to side 1 that did not arrive.
fn send_on_its_way() -> (World, Vec<u8>) {
    let mut world = World::new(1);
    let ends = world.connect(false);
    world.sides[1].memory.post_receive(1, 64);
    world.deaf[1] = true;
    assert!(world.post(0, ends[0].1, 1, SEND, b"the message".to_vec()));
    world.flush();
    let frame = world.sent.last().expect("a SEND").2.clone();
    world.run(1000);
    (world, frame)
}

/// Changes the SEND, with a right ICRC, and returns what was counted. It must not be received.
fn dropped(change: impl FnOnce(&mut Envelope, &mut Bth)) -> Counters {
    let (mut world, frame) = send_on_its_way();
    let (mut envelope, mut packet) = Envelope::parse(&frame).expect("a packet");
    change(&mut envelope, &mut packet.bth);
    let mut out = vec![0; FRAME];
    let length = envelope.emit(&packet, &mut out);
    let sent = world.sent.len();
    world.inject(1, &out[..length]);
    world.flush();
    assert!(world.sides[1].memory.received.is_empty(), "it was received");
    assert_eq!(world.sent.len(), sent, "it was answered");
    *world.sides[1].stack.counters()
}

#[test]
fn the_message_itself_is_received() {
    let (mut world, frame) = send_on_its_way();
    world.inject(1, &frame);
    assert_eq!(world.sides[1].memory.received[0].1, b"the message");
}

#[test]
fn a_wrong_icrc_is_dropped_and_counted() {
    let (mut world, mut frame) = send_on_its_way();
    *frame.last_mut().expect("a byte") ^= 1;
    world.inject(1, &frame);
    assert!(world.sides[1].memory.received.is_empty());
    assert_eq!(world.sides[1].stack.counters().wrong_icrc, 1);
}

#[test]
fn another_partition_is_dropped_and_counted() {
    assert_eq!(dropped(|_, bth| bth.p_key = 0x8001).wrong_p_key, 1);
}

#[test]
fn a_limited_member_of_the_partition_is_one_of_it() {
    let (mut world, frame) = send_on_its_way();
    let (envelope, mut packet) = Envelope::parse(&frame).expect("a packet");
    packet.bth.p_key = 0x7FFF;
    let mut out = vec![0; FRAME];
    let length = envelope.emit(&packet, &mut out);
    world.inject(1, &out[..length]);
    assert_eq!(world.sides[1].memory.received.len(), 1);
}

#[test]
fn another_source_is_dropped_and_counted() {
    assert_eq!(dropped(|envelope, _| envelope.ip.source = [10, 0, 0, 9].into()).unknown_source, 1);
}

#[test]
fn another_destination_station_or_vlan_is_not_for_this_stack() {
    let before = dropped(|_, bth| bth.p_key = 0).not_for_us;
    assert_eq!(dropped(|envelope, _| envelope.ip.destination = [10, 0, 0, 9].into()).not_for_us, before + 1);
    assert_eq!(dropped(|envelope, _| envelope.ethernet.destination[5] = 9).not_for_us, before + 1);
    assert_eq!(dropped(|envelope, _| envelope.ethernet.tag = Some(5)).not_for_us, before + 1);
}

#[test]
fn a_tag_with_a_priority_only_changes_nothing() {
    let (mut world, frame) = send_on_its_way();
    let (mut envelope, packet) = Envelope::parse(&frame).expect("a packet");
    envelope.ethernet.tag = Some(3 << 13);
    let mut out = vec![0; FRAME];
    let length = envelope.emit(&packet, &mut out);
    world.inject(1, &out[..length]);
    assert_eq!(world.sides[1].memory.received.len(), 1);
}

#[test]
fn an_unknown_queue_pair_is_dropped_and_counted() {
    assert_eq!(dropped(|_, bth| bth.destination ^= 1).unknown_queue_pair, 1);
    assert_eq!(dropped(|_, bth| bth.destination = 0).unknown_queue_pair, 1);
    assert_eq!(dropped(|_, bth| bth.destination = cm::QP).unknown_queue_pair, 1, "no datagram");
}

#[test]
fn a_number_of_a_queue_pair_does_not_come_again_soon() {
    let mut world = World::new(2);
    let mut numbers = std::collections::HashSet::new();
    for _ in 0..1000 {
        let number = world.create(0);
        assert!(number > 1 && number < 1 << 24 && numbers.insert(number), "{number:#x}");
        let Side { stack, memory, .. } = &mut world.sides[0];
        stack.destroy_queue_pair(world.now, number, memory);
    }
}

#[test]
fn a_datagram_with_another_queue_key_is_dropped_and_counted() {
    let (mut world, frame) = send_on_its_way();
    let (envelope, packet) = Envelope::parse(&frame).expect("a packet");
    let bth = Bth::new(Opcode::UdSendOnly, cm::QP, packet.bth.psn);
    let extended = Extended { deth: Some(Deth::new(5, 1)), ..Extended::default() };
    let mut out = vec![0; FRAME];
    let length = envelope.emit(&Packet { bth, extended, payload: &[0; 256] }, &mut out);
    world.inject(1, &out[..length]);
    assert_eq!(world.sides[1].stack.counters().wrong_q_key, 1);
}

#[test]
fn a_stack_on_a_vlan_speaks_and_hears_its_tag_only() {
    let mut world = World::new(3);
    for (index, side) in world.sides.iter_mut().enumerate() {
        side.stack = common::world::tagged_stack(index, 3, Some(2 << 13 | 7));
    }
    let ends = world.connect(true);
    world.sides[1].memory.post_receive(1, 64);
    assert!(world.post(0, ends[0].1, 1, SEND, b"tagged".to_vec()));
    world.run(1000);
    assert_eq!(world.sides[1].memory.received.len(), 1);
    for (_, _, frame) in &world.sent {
        assert_eq!(Ethernet::parse(frame).expect("a header").0.tag, Some(2 << 13 | 7));
    }
}

#[test]
fn a_question_for_an_address_of_another_is_not_answered() {
    let mut world = World::new(4);
    let _ = world.connect(false);
    let question = world.sent.iter().find(|(_, from, frame)| {
        *from == 0 && Ethernet::parse(frame).is_some_and(|(ethernet, _)| ethernet.ethertype == ethertype::ARP)
    });
    let mut question = question.expect("a question").2.clone();
    let sent = world.sent.len();
    world.inject(1, &question);
    world.flush();
    assert_eq!(world.sent.len(), sent + 1);
    question[41] = 9;
    world.inject(1, &question);
    world.flush();
    assert_eq!(world.sent.len(), sent + 1);
}

#[test]
fn questions_of_others_do_not_fill_the_cache() {
    let mut world = World::new(5);
    let _ = world.connect(false);
    let (_, _, question) = world.sent[0].clone();
    for asker in 10..250 {
        let mut question = question.clone();
        question[31] = asker;
        world.inject(1, &question);
        world.flush();
    }
    // There is room for the station that this side asks for.
    world.sides[0].stack.listen(None, 5).expect("free");
    let qp = world.create(1);
    let (local, remote) = ("10.0.0.2:0".parse().expect("an address"), "10.0.0.1:5".parse().expect("an address"));
    let connect = roce::cm::Connect { qp, local, remote, private: b"", limits: common::world::LIMITS };
    let Side { stack, memory, .. } = &mut world.sides[1];
    stack.connect(world.now, &connect, memory).expect("it begins");
    world.wait_event(0, |kind| *kind == roce::cm::EventKind::Requested);
}

/// The address that a frame of ARP asks for or tells of: its last byte; `None` of any other frame.
fn arp(frame: &[u8], operation: u8) -> Option<u8> {
    let is_arp = Ethernet::parse(frame).is_some_and(|(ethernet, _)| ethernet.ethertype == ethertype::ARP);
    (is_arp && frame[21] == operation).then(|| frame[if operation == 1 { 41 } else { 31 }])
}

/// Which station the frames went to that side 0 has sent since, those of ARP aside.
fn stations(world: &World, since: usize) -> Vec<u8> {
    let sent = world.sent[since..].iter().filter(|(_, from, frame)| *from == 0 && arp(frame, 1).is_none());
    sent.map(|(_, _, frame)| frame[5]).collect()
}

/// Nothing proves an answer. What it cannot do is come before the question, or change what was answered.
#[test]
fn an_answer_is_believed_if_it_was_asked_for_and_the_first_until_it_is_doubted() {
    const WANTED: u8 = 77;
    let mut world = World::new(7);
    let _ = world.connect(false);
    let answer = world.sent.iter().find(|(_, from, frame)| *from == 1 && arp(frame, 2).is_some());
    let answer = answer.expect("an answer").2.clone();
    let claims = |station: u8| {
        let mut frame = answer.clone();
        for place in [6, 22] {
            frame[place..place + 6].copy_from_slice(&[2, 0, 0, 0, 0, station]);
        }
        frame[31] = WANTED;
        frame
    };
    world.inject(0, &claims(9));
    let since = world.sent.len();
    let qp = world.create(0);
    let (local, remote) = ("10.0.0.1:0".parse().expect("an address"), "10.0.0.77:5".parse().expect("an address"));
    let connect = roce::cm::Connect { qp, local, remote, private: b"", limits: common::world::LIMITS };
    let Side { stack, memory, .. } = &mut world.sides[0];
    stack.connect(world.now, &connect, memory).expect("it begins");
    world.flush();
    let asked = |world: &World, since: usize| {
        world.sent[since..].iter().filter(|(_, from, frame)| *from == 0 && arp(frame, 1) == Some(WANTED)).count()
    };
    assert_eq!((asked(&world, since), stations(&world, since)), (1, vec![]), "what nobody had asked for was not kept");

    world.inject(0, &claims(8));
    world.inject(0, &claims(9));
    world.flush();
    assert_eq!(stations(&world, since), [8], "the first answer holds");
    // The station does not answer the request, so its address is asked for again.
    let end = world.now + 60_000_000;
    while asked(&world, since) < 2 {
        assert!(world.step(end), "it is never asked for again");
    }
    assert!(stations(&world, since).iter().all(|&station| station == 8));
    let doubted = world.sent.len();
    world.inject(0, &claims(9));
    while stations(&world, doubted).is_empty() {
        assert!(world.step(end), "nothing goes to the other station");
    }
    assert_eq!(stations(&world, doubted)[0], 9);
}

#[test]
fn without_work_there_is_no_deadline() {
    let mut world = World::new(6);
    assert_eq!(world.sides[0].stack.deadline(), None);
    assert!(!world.sides[0].stack.may_transmit());
    let ends = world.connect(false);
    world.disconnect(0, ends[0].0);
    world.run(300_000_000);
    for side in &world.sides {
        assert_eq!(side.stack.deadline(), None);
        assert!(!side.stack.may_transmit());
    }
}

#[test]
fn queue_pairs_send_in_turns_that_end() {
    let mut world = World::new(1);
    let qps = [(); 2].map(|()| world.connect(false)[0].1);
    world.deaf[1] = true;
    let first = world.sent.len();
    for qp in qps {
        assert!(world.post(0, qp, u64::from(qp), SEND, vec![0; 30 * 1024]));
    }
    world.flush();
    let destinations: Vec<_> = world.sent[first..]
        .iter()
        .filter_map(|(_, _, frame)| Envelope::parse(frame).ok()?.1.bth.destination.into())
        .collect();
    assert_eq!(destinations.len(), 60);
    for turn in destinations[..32].chunks(16) {
        assert!(turn.iter().all(|destination| destination == &turn[0]), "a turn is not interrupted");
    }
    assert_ne!(destinations[0], destinations[16], "nor longer than 16 packets while another waits");
    assert_eq!(destinations[32], destinations[0]);
}

#[test]
fn who_stops_in_the_middle_of_a_turn_finds_the_deadline_of_what_has_gone() {
    let mut world = World::new(2);
    let qp = world.connect(false)[0].1;
    world.run(300_000_000);
    assert!(world.post(0, qp, 1, SEND, vec![0; 30 * 1024]));
    assert_eq!(world.sides[0].stack.deadline(), None, "nothing has gone");
    let mut frame = vec![0; FRAME];
    let Side { stack, memory, .. } = &mut world.sides[0];
    let mut next = |now| {
        let length = stack.transmit(now, &mut frame, memory).expect("a packet");
        Envelope::parse(&frame[..length]).expect("a packet").1.bth.psn
    };
    let sent: [_; 3] = std::array::from_fn(|_| next(world.now));
    // Nothing of it arrives, and nobody sends the rest.
    let Side { stack, memory, .. } = &mut world.sides[0];
    assert!(stack.may_transmit(), "there is more");
    let deadline = stack.deadline().expect("an answer is waited for");
    assert!(deadline > world.now);
    stack.tick(deadline - 1, memory);
    assert_eq!((stack.counters().timeouts, stack.deadline()), (0, Some(deadline)));
    stack.tick(deadline, memory);
    assert_eq!(stack.counters().timeouts, 1);
    // A question for the peer's station may go before it.
    (world.now, world.deaf[1]) = (deadline, true);
    let since = world.sent.len();
    world.flush();
    let again = world.sent[since..].iter().find_map(|(_, _, frame)| Envelope::parse(frame).ok()).expect("a packet");
    assert_eq!(again.1.bth.psn, sent[0], "from the first one on");
    assert!(world.sides[0].stack.deadline().is_some_and(|next| next > deadline), "and waited for again");
}

#[test]
fn frames_packets_and_their_bytes_are_counted() {
    let mut world = World::new(8);
    let ends = world.connect(true);
    world.sides[1].memory.post_receive(1, 64);
    assert!(world.post(0, ends[0].1, 1, SEND, b"counted".to_vec()));
    world.run(1000);
    for side in 0..2 {
        let sent: Vec<_> = world.sent.iter().filter(|(_, from, _)| *from == side).map(|(_, _, frame)| frame).collect();
        let packets: Vec<_> = sent.iter().filter(|frame| Envelope::parse(frame).is_ok()).collect();
        let octets: usize = packets.iter().map(|frame| frame.len()).sum();
        assert!(packets.len() < sent.len(), "neighbour discovery is not counted as packets");
        let (ours, others) = (world.sides[side].stack.counters(), world.sides[1 - side].stack.counters());
        let expected = (sent.len() as u64, packets.len() as u64, octets as u64);
        assert_eq!((ours.frames_sent, ours.packets_sent, ours.octets_sent), expected);
        assert_eq!((others.frames_received, others.packets_received, others.octets_received), expected);
    }
    assert_eq!(world.sides[1].stack.counters().acks_sent, 1);
}

#[test]
fn what_is_no_frame_of_this_stack_is_counted_by_its_reason() {
    let (mut world, frame) = send_on_its_way();
    let before = *world.sides[1].stack.counters();
    // An opcode that is none; another protocol in IPv4; nothing but an Ethernet header.
    let (mut opcode, mut protocol) = (frame.clone(), frame.clone());
    opcode[42] = 0x7F;
    (protocol[23], protocol[25]) = (6, protocol[25].wrapping_add(11));
    for frame in [&opcode, &protocol, &frame[..14]] {
        world.inject(1, frame);
    }
    let after = *world.sides[1].stack.counters();
    let expected = Counters {
        frames_received: before.frames_received + 3,
        malformed: before.malformed + 1,
        not_for_us: before.not_for_us + 2,
        ..before
    };
    assert_eq!(after, expected);
}

#[test]
fn a_queue_pair_that_is_destroyed_completes_all_of_its_requests() {
    let mut world = World::new(9);
    let [(_, _), (asked, _)] = world.connect(false);
    let sizes = Sizes { send_depth: 200, ..common::world::sizes() };
    let qp = world.sides[0].stack.create_queue_pair(sizes).expect("memory").expect("a place");
    let (local, remote) = World::addresses(false);
    let connect = roce::cm::Connect { qp, local, remote, private: b"", limits: common::world::LIMITS };
    let Side { stack, memory, .. } = &mut world.sides[0];
    let connection = stack.connect(world.now, &connect, memory).expect("it begins");
    let second = world.wait_event(1, |kind| *kind == EventKind::Requested).connection;
    assert_ne!(second, asked);
    world.accept(second, b"");
    world.wait_event(0, |kind| *kind == EventKind::Connected(Ok(())));
    world.complete_connect(connection);
    world.deaf[1] = true;
    for context in 0..200 {
        assert!(world.post(0, qp, context, SEND, Vec::new()));
    }
    world.flush();
    let Side { stack, memory, .. } = &mut world.sides[0];
    stack.destroy_queue_pair(world.now, qp, memory);
    let flushed: Vec<_> = (0..200).map(|context| (context, Err(Failure::Flushed))).collect();
    assert_eq!(world.sides[0].memory.outcomes(), flushed);
    assert!(world.sides[0].stack.queue_pair(qp).is_none());
}

#[test]
fn a_flush_ends_requests_and_the_connection() {
    let mut world = World::new(10);
    let ends = world.connect(false);
    world.deaf[1] = true;
    assert!(world.post(0, ends[0].1, 1, SEND, b"unheard".to_vec()));
    world.flush();
    let Side { stack, memory, .. } = &mut world.sides[0];
    stack.flush(world.now, ends[0].1, memory);
    assert_eq!(memory.outcomes(), [(1, Err(Failure::Flushed))]);
    assert!(stack.has_event(), "the connection is over");
    world.wait_event(0, |kind| matches!(kind, EventKind::Disconnected(_)));
    assert!(!world.sides[0].stack.has_event());
    assert!(!world.post(0, ends[0].1, 2, SEND, b"too late".to_vec()));
}

#[test]
fn an_interface_hears_what_is_for_its_addresses_of_now() {
    let mut world = World::new(11);
    let ends = world.connect(false);
    let network = |last| Network { address: [10, 0, 0, last].into(), prefix: 24 };
    let stack = &mut world.sides[1].stack;
    assert_eq!(stack.set_networks(&[network(3); NETWORKS + 1]), Err(CallError::NoRoom));
    assert_eq!(stack.set_networks(&[network(3)]), Ok(()));
    let before = stack.counters().not_for_us;
    assert!(world.post(0, ends[0].1, 1, SEND, b"for nobody".to_vec()));
    world.run(1000);
    assert_eq!(world.sides[1].stack.counters().not_for_us, before + 1);
    assert_eq!(world.sides[1].stack.counters().rnr_naks_received, 0);
    assert!(world.sides[0].memory.completed.is_empty(), "no answer");
}

/// What the side knows of the other one's queue pair, whose first packets have the number of their side.
fn out_of_band(side: usize, qp: u32, remote_qpn: u32) -> Link {
    let address = |side: usize| [10, 0, 0, side as u8 + 1].into();
    let psn = |side: usize| Psn::new(0xAB_0000 | side as u32);
    Link {
        qp,
        remote_qpn,
        path: Path {
            local_mac: [0; 6],
            remote_mac: [0; 6],
            tag: None,
            local: address(side),
            remote: address(1 - side),
            source_port: 0,
            traffic_class: 0,
            hop_limit: 64,
        },
        mtu: Mtu::Bytes1024,
        send_psn: psn(side),
        receive_psn: psn(1 - side),
        inbound_reads: 1,
        outbound_reads: 1,
        ack_timeout: Some(67_000),
        retry_count: 7,
        rnr_retry_count: 7,
        rnr_timer: 12,
    }
}

#[test]
fn queue_pairs_are_connected_out_of_band_once_their_stations_are_known() {
    let mut world = World::new(1);
    let qps = [world.create(0), world.create(1)];
    let links = [out_of_band(0, qps[0], qps[1]), out_of_band(1, qps[1], qps[0])];
    for (side, link) in links.iter().enumerate() {
        let connect = |world: &mut World| world.sides[side].stack.connect_out_of_band(world.now, link);
        assert_eq!(connect(&mut world), Ok(false), "its station is asked for");
        world.run(1000);
        assert_eq!(connect(&mut world), Ok(true));
        assert_eq!(connect(&mut world), Err(CallError::WrongState), "once");
    }
    for (side, qp) in qps.into_iter().enumerate() {
        world.sides[1 - side].memory.post_receive(7, 5000);
        assert!(world.post(side, qp, 1, SEND, vec![side as u8; 5000]));
        world.run(1_000_000);
        assert_eq!(world.sides[side].memory.outcomes(), [(1, Ok(()))]);
        let (received, bytes) = world.sides[1 - side].memory.received.pop().expect("the message");
        assert_eq!((received.outcome, bytes), (Ok(()), vec![side as u8; 5000]));
    }
    // The peer's end is seen by the silence.
    let Side { stack, memory, .. } = &mut world.sides[1];
    stack.destroy_queue_pair(world.now, qps[1], memory);
    assert!(world.post(0, qps[0], 2, SEND, vec![1]));
    world.run(60_000_000);
    assert_eq!(world.sides[0].memory.outcomes()[1..], [(2, Err(Failure::RetryExceeded))]);
}

#[test]
fn what_cannot_be_connected_out_of_band_says_why() {
    let mut world = World::new(1);
    let qp = world.create(0);
    let right = out_of_band(0, qp, 7);
    let to = |local: [u8; 4], remote: [u8; 4]| Link {
        path: Path { local: local.into(), remote: remote.into(), ..right.path },
        ..right
    };
    let (ours, peer) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let six = Link { path: Path { remote: "fd00::2".parse().expect("an address"), ..right.path }, ..right };
    for (link, error) in [
        (Link { qp: qp + 1, ..right }, CallError::Unknown),
        (to([10, 0, 0, 9], peer), CallError::BadAddress),
        (to(ours, ours), CallError::BadAddress),
        (to(ours, [224, 0, 0, 1]), CallError::BadAddress),
        (six, CallError::BadAddress),
        (to(ours, [192, 0, 2, 1]), CallError::NoRoute),
        (Link { mtu: Mtu::Bytes2048, ..right }, CallError::NoRoom),
    ] {
        assert_eq!(world.sides[0].stack.connect_out_of_band(world.now, &link), Err(error), "{link:?}");
    }
    world.deaf[1] = true;
    let mut tries = (0..100).map(|_| {
        let outcome = world.sides[0].stack.connect_out_of_band(world.now, &right);
        world.run(100_000);
        outcome
    });
    assert_eq!(tries.next(), Some(Ok(false)), "it is asked for");
    assert_eq!(tries.find(Result::is_err), Some(Err(CallError::NoRoute)), "nobody answers");
    // As many stations as there is room for are asked for.
    let mut world = World::new(1);
    let qp = world.create(0);
    let mut tries = (2..100).map(|last| {
        let right = out_of_band(0, qp, 7);
        let link = Link { path: Path { remote: [10, 0, 0, last].into(), ..right.path }, ..right };
        world.sides[0].stack.connect_out_of_band(world.now, &link)
    });
    assert_eq!(tries.find(|outcome| *outcome != Ok(false)), Some(Err(CallError::NoRoom)));
    // One that the connection manager has.
    let mut world = World::new(1);
    let ends = world.connect(false);
    let link = out_of_band(0, ends[0].1, 7);
    assert_eq!(world.sides[0].stack.connect_out_of_band(world.now, &link), Err(CallError::WrongState));
}
