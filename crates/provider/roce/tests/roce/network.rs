//! Whatever a network does to packets, each request is carried out once and in order, or the connection ends on both sides with the
//! statuses of RoCEv2 7.

use std::collections::HashSet;

use proptest::prelude::*;
use roce::{Failure, cm::EventKind, qp::Work};

use crate::common::world::{Impairment, Side, World};

/// What a side has posted.
struct Posted {
    context: u64,
    work: Work,
    data: Vec<u8>,
}

const KEY: u32 = 7;
const BASE: u64 = 0x10_0000;
/// Each WRITE has a place of its own in the region, so that a second execution shows.
const PLACE: usize = 6000;
const REQUESTS: usize = 40;

fn random_bytes(world: &mut World, length: usize) -> Vec<u8> {
    (0..length).map(|_| world.number(256) as u8).collect()
}

/// A length: often small, sometimes of several packets, at times none.
fn random_length(world: &mut World) -> usize {
    match world.number(4) {
        0 => 0,
        1 => world.number(64) as usize,
        2 => 1024 * (1 + world.number(3) as usize),
        _ => world.number(PLACE as u32) as usize,
    }
}

/// Both sides post random requests while the network does what it does. Returns true if the connection outlived it.
fn play(seed: u64, impairment: Impairment, receives_late: bool) -> bool {
    let mut world = World::new(seed);
    let ends = world.connect(seed % 2 == 1);
    let remote = random_bytes(&mut world, PLACE * REQUESTS * 2);
    for side in &mut world.sides {
        side.memory.register(KEY, BASE, remote.clone());
    }
    let mut posted: [Vec<Posted>; 2] = [Vec::new(), Vec::new()];
    let mut receives = [0_u64; 2];
    world.impairment = impairment;
    for round in 0..REQUESTS {
        for side in 0..2 {
            let length = random_length(&mut world);
            let context = round as u64;
            // WRITEs go to the first half of the region, READs come from the second.
            let (work, data) = match world.number(3) {
                0 => (Work::Send { invalidate: None }, random_bytes(&mut world, length)),
                1 => {
                    (Work::Write { address: BASE + (round * PLACE) as u64, key: KEY }, random_bytes(&mut world, length))
                }
                _ => (Work::Read { address: BASE + ((REQUESTS + round) * PLACE) as u64, key: KEY }, vec![0; length]),
            };
            if world.post(side, ends[side].1, context, work, data.clone()) {
                posted[side].push(Posted { context, work, data });
            }
            if !receives_late || world.number(3) == 0 {
                world.sides[side].memory.post_receive(receives[side], PLACE as u32);
                receives[side] += 1;
            }
        }
        if world.number(2) == 0 {
            let pause = world.number(500);
            world.run(pause.into());
        }
    }
    // The last receives come while the senders are asking for them.
    world.run(20_000);
    for (side, posted) in world.sides.iter_mut().zip(receives) {
        (posted..REQUESTS as u64).for_each(|context| side.memory.post_receive(context, PLACE as u32));
    }
    world.run(300_000_000);
    let failed = [0, 1].map(|side| judge(&world, side, &posted, &remote));
    let told = [0, 1].map(|side: usize| {
        world.sides[side].events.iter().any(|event| matches!(event.kind, EventKind::Disconnected(_)))
    });
    assert_eq!(told[0], told[1], "both or none");
    if failed.contains(&true) {
        assert!(told[0], "a failure ends the connection");
    } else if !told[0] {
        // It still works.
        for side in &mut world.sides {
            side.memory.post_receive(1000, 16);
        }
        world.impairment = Impairment::default();
        for (side, (_, qp)) in ends.into_iter().enumerate() {
            assert!(world.post(side, qp, 1000, Work::Send { invalidate: None }, b"alive".to_vec()));
        }
        world.run(10_000_000);
        for Side { memory, .. } in &world.sides {
            assert_eq!(memory.received.last().expect("a message").1, b"alive");
        }
    }
    !told[0]
}

/// Looks at what came of the requests of one side. Returns true if one of them failed.
fn judge(world: &World, side: usize, posted: &[Vec<Posted>; 2], before: &[u8]) -> bool {
    let (own, peer, posted) = (&world.sides[side].memory, &world.sides[1 - side].memory, &posted[side]);
    let outcomes = own.outcomes();
    let contexts: Vec<u64> = outcomes.iter().map(|(context, _)| *context).collect();
    let expected: Vec<u64> = posted.iter().map(|posted| posted.context).collect();
    assert_eq!(contexts, expected, "each completes once, in order");
    let good = outcomes.iter().take_while(|(_, outcome)| outcome.is_ok()).count();
    for (index, (_, outcome)) in outcomes[good..].iter().enumerate() {
        let failure = outcome.expect_err("nothing succeeds behind a failure");
        let may_be_first = [Failure::RetryExceeded, Failure::RnrRetryExceeded, Failure::Disconnected, Failure::Flushed]
            .contains(&failure);
        assert!(if index == 0 { may_be_first } else { failure == Failure::Flushed }, "{index}: {failure:?}");
    }
    // The peer's receives are the SENDs in order: all that succeeded, and perhaps some whose ACK was lost.
    let is_send = |posted: &&Posted| matches!(posted.work, Work::Send { .. });
    let sends: Vec<&Posted> = posted.iter().filter(is_send).collect();
    let received: Vec<_> = peer.received.iter().filter(|(received, _)| received.outcome.is_ok()).collect();
    assert!(received.len() <= sends.len());
    for (posted, (_, bytes)) in sends.iter().zip(&received) {
        assert_eq!(posted.data, *bytes, "request {}", posted.context);
    }
    let good_sends = posted[..good].iter().filter(is_send).count();
    assert!(received.len() >= good_sends, "a SEND that succeeded was received");
    // WRITEs that succeeded are there, no packet of any was carried out twice, and nothing else has changed.
    let mut places = HashSet::new();
    assert!(peer.writes.iter().all(|write| places.insert(write.1)), "a packet was carried out twice");
    let region = &peer.regions[&KEY].bytes;
    for (index, posted) in posted.iter().enumerate() {
        let length = posted.data.len();
        match posted.work {
            Work::Write { address, .. } if index < good => {
                let at = (address - BASE) as usize;
                assert_eq!(region[at..][..length], posted.data, "WRITE {}", posted.context);
                assert_eq!(region[at + length..][..PLACE - length], before[at + length..][..PLACE - length]);
            }
            Work::Read { address, .. } if index < good => {
                let at = (address - BASE) as usize;
                assert_eq!(own.local[&posted.context], before[at..][..length], "READ {}", posted.context);
            }
            _ => {}
        }
    }
    assert_eq!(region[PLACE * REQUESTS..], before[PLACE * REQUESTS..], "nobody writes there");
    good < outcomes.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_request_is_carried_out_once_and_in_order(
        seed: u64,
        lost in 0..60_u32,
        doubled in 0..60_u32,
        late in 0..200_u32,
        changed in 0..30_u32,
        receives_late: bool,
    ) {
        play(seed, Impairment { lost, doubled, late, changed }, receives_late);
    }
}

#[test]
fn a_network_that_loses_nothing_lets_every_connection_live() {
    for seed in 0..8 {
        assert!(play(seed, Impairment { doubled: 100, late: 300, ..Impairment::default() }, false), "{seed}");
    }
}

#[test]
fn a_network_that_loses_most_ends_connections_on_both_sides() {
    let lived = (0..8).filter(|seed| play(*seed, Impairment { lost: 800, ..Impairment::default() }, false)).count();
    assert!(lived < 8, "all lived");
}

#[test]
fn connections_come_and_go_in_the_room_of_a_few() {
    let mut world = World::new(99);
    for _ in 0..40 {
        let ends = world.connect(false);
        world.disconnect(0, ends[0].0);
        world.wait_event(0, |kind| *kind == EventKind::DisconnectComplete(Ok(())));
        world.run(1000);
        for (side, (connection, qp)) in ends.into_iter().enumerate() {
            world.close(side, connection);
            let Side { stack, memory, .. } = &mut world.sides[side];
            stack.destroy_queue_pair(world.now, qp, memory);
            assert!(stack.connection(connection).is_none() && stack.queue_pair(qp).is_none());
        }
        world.sides.iter_mut().for_each(|side| side.events.clear());
    }
}
