//! Any bytes as packets, against a live connection: no panic, no byte outside a registration.

use proptest::prelude::*;
use roce::{
    FRAME,
    psn::Psn,
    qp::Work,
    wire::{Aeth, Bth, Deth, Envelope, Extended, Opcode, Packet, Reth, U24, cm, icrc},
};

use crate::common::world::World;

const READABLE: u32 = 7;
const WRITABLE: u32 = 8;
const BASE: u64 = 0x1000;
const LENGTH: usize = 2048;

/// A connection with something outstanding, and a frame of it.
fn live(seed: u64) -> (World, [(u32, u32); 2], Vec<u8>) {
    let mut world = World::new(seed);
    let ends = world.connect(seed % 2 == 1);
    for side in &mut world.sides {
        side.memory.register(READABLE, BASE, vec![0x11; LENGTH]);
        side.memory.register(WRITABLE, BASE, vec![0x22; LENGTH]);
        side.memory.regions.get_mut(&READABLE).expect("the region").write = false;
        side.memory.regions.get_mut(&WRITABLE).expect("the region").read = false;
        side.memory.post_receive(1, 1500);
        side.memory.post_receive(2, 1500);
    }
    assert!(world.post(1, ends[1].1, 1, Work::Read { address: BASE, key: READABLE }, vec![0; 2000]));
    assert!(world.post(1, ends[1].1, 2, Work::Send { invalidate: None }, vec![9; 1500]));
    assert!(world.post(0, ends[0].1, 3, Work::Write { address: BASE, key: WRITABLE }, vec![0x22; 1500]));
    world.flush();
    let (_, _, frame) = world.sent.iter().rev().find(|(_, from, _)| *from == 0).expect("a frame").clone();
    (world, ends, frame)
}

fn check(world: &mut World) {
    world.run(100_000);
    for side in &world.sides {
        assert_eq!(side.memory.regions.get(&READABLE).map_or(&[0x11; LENGTH][..], |it| &it.bytes), [0x11; LENGTH]);
    }
    world.run(60_000_000);
}

/// A packet that gets past the ICRC, with anything in it.
#[derive(Clone, Debug)]
struct Any {
    opcode: u8,
    psn: u32,
    near: bool,
    address: u64,
    key: u32,
    length: u32,
    aeth: u8,
    flags: u8,
    payload: Vec<u8>,
    to_manager: bool,
}

fn any_packet() -> impl Strategy<Value = Any> {
    let reth =
        (prop_oneof![Just(BASE), Just(BASE + 1000), any::<u64>()], 5..10_u32, prop_oneof![0..3000_u32, any::<u32>()]);
    let rest = (any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..1400), any::<bool>());
    let front = (
        prop_oneof![0..0x18_u8, Just(0x64), Just(0x65), Just(0x81)],
        prop_oneof![0..6_u32, any::<u32>()],
        any::<bool>(),
    );
    (front, reth, rest).prop_map(|((opcode, psn, near), (address, key, length), (aeth, flags, payload, to_manager))| {
        Any { opcode, psn, near, address, key, length, aeth, flags, payload, to_manager }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_of_any_content(seed in 0..1000_u64, packets in prop::collection::vec(any_packet(), 1..12)) {
        let (mut world, ends, frame) = live(seed);
        let (envelope, _) = Envelope::parse(&frame).expect("a packet");
        let link = *world.sides[1].stack.queue_pair(ends[1].1).expect("a queue pair").link().expect("it is connected");
        for any in packets {
            let Some(opcode) = Opcode::from_byte(any.opcode) else { continue };
            let first = if opcode.has_aeth() { link.send_psn } else { link.receive_psn };
            let psn = if any.near { first.plus(any.psn & 7) } else { Psn::new(any.psn) };
            let destination = if any.to_manager { cm::QP } else { ends[1].1 };
            let mut bth = Bth::new(opcode, destination, psn);
            (bth.acknowledge, bth.solicited) = (any.flags & 1 != 0, any.flags & 2 != 0);
            let extended = Extended {
                reth: opcode.has_reth().then(|| Reth::new(any.address, any.key, any.length)),
                aeth: opcode.has_aeth().then_some(Aeth { syndrome: any.aeth, msn: U24::new(any.length) }),
                deth: opcode.has_deth().then(|| Deth::new(cm::Q_KEY, 1)),
                immediate: opcode.has_immediate().then_some(any.key),
                invalidate: opcode.has_ieth().then_some(any.key),
            };
            let length = any.payload.len();
            bth.pad = (length.wrapping_neg() & 3) as u8;
            let packet = Packet { bth, extended, payload: &any.payload };
            let mut out = vec![0; FRAME];
            let length = envelope.emit(&packet, &mut out);
            world.inject(1, &out[..length]);
            world.flush();
        }
        check(&mut world);
    }

    #[test]
    fn messages_of_the_connection_manager_of_any_content(
        seed in 0..1000_u64,
        attribute in 0x10..0x17_u8,
        changes in prop::collection::vec((0..256_usize, any::<u8>()), 0..24),
        known in any::<bool>(),
    ) {
        let (mut world, ends, _) = live(seed);
        let sent: Vec<Vec<u8>> = world.sent.iter().filter(|(_, from, _)| *from == 0).map(|(_, _, frame)| frame.clone()).collect();
        for frame in sent {
            let Ok((envelope, packet)) = Envelope::parse(&frame) else { continue };
            let Ok(mut payload) = <[u8; 256]>::try_from(packet.payload) else { continue };
            payload[17] = attribute;
            if known {
                payload[24..28].copy_from_slice(&ends[0].0.to_be_bytes());
                payload[28..32].copy_from_slice(&ends[1].0.to_be_bytes());
            }
            for (at, byte) in &changes {
                payload[*at] = *byte;
            }
            let mut out = vec![0; FRAME];
            let length = envelope.emit(&Packet { payload: &payload, ..packet }, &mut out);
            world.inject(1, &out[..length]);
            world.flush();
        }
        check(&mut world);
    }

    #[test]
    fn frames_of_any_bytes(
        seed in 0..1000_u64,
        cut in 0..200_usize,
        changes in prop::collection::vec((0..120_usize, any::<u8>()), 0..8),
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        right in any::<bool>(),
    ) {
        let (mut world, _, frame) = live(seed);
        let mut changed = frame[..cut.clamp(frame.len().min(60), frame.len())].to_vec();
        for (at, byte) in changes {
            if let Some(place) = changed.get_mut(at) {
                *place = byte;
            }
        }
        if let Some(end) = changed.len().checked_sub(4).filter(|end| right && *end > 14)
            && let Some(value) = icrc::of(&changed[14..end])
        {
            changed[end..].copy_from_slice(&value);
        }
        for bytes in [bytes, changed] {
            world.inject(1, &bytes);
            world.flush();
        }
        check(&mut world);
    }
}
