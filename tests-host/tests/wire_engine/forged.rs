//! Frames of an attacker who has seen one of the connection: each is dropped and counted.

use std::net::IpAddr;

use conformance::{
    fixture::{Pair, is_done},
    host::HostPlatform,
};
use engine::wire::{Counters, Wire};
use ndkpi::NtStatus;
use roce::{
    FRAME,
    wire::{Bth, Envelope, Opcode, Packet},
};

use super::{CLEAN, SEEDED, counters, on_cable, run};

/// The write that A has sent last, and what is around it.
fn seen(platform: &HostPlatform) -> (Envelope, Bth, Vec<u8>) {
    let frame = platform.last_frame(0);
    let (envelope, packet) = Envelope::parse(&frame).expect("a packet of RoCEv2");
    assert_eq!(packet.bth.opcode, Opcode::WriteOnly);
    (envelope, packet.bth, frame)
}

type Forge = fn(&mut Envelope, &mut Bth);
type Counter = fn(&Counters) -> u64;

/// What is wrong with a frame, and where it is counted.
const FORGERIES: [(&str, Forge, Counter); 8] = [
    ("P_Key", |_, bth| bth.p_key = 0x9234, |it| it.wrong_p_key),
    ("queue pair", |_, bth| bth.destination ^= 0x00_8000, |it| it.unknown_queue_pair),
    ("queue pair 0", |_, bth| bth.destination = 0, |it| it.unknown_queue_pair + it.malformed),
    ("source", |envelope, _| envelope.ip.source = IpAddr::from([192, 0, 2, 77]), |it| it.unknown_source),
    ("destination", |envelope, _| envelope.ip.destination = IpAddr::from([192, 0, 2, 78]), |it| it.not_for_us),
    ("station", |envelope, _| envelope.ethernet.destination = [2, 0, 0, 0, 0, 9], |it| it.not_for_us),
    ("PSN ahead", |_, bth| bth.psn = bth.psn.plus(1000), |it| it.psn_ahead),
    ("PSN behind", |_, bth| bth.psn = bth.psn.plus((1 << 24) - 1000), |it| it.duplicates),
];

#[test]
fn each_forgery_is_dropped_and_counted() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        let wire = platform.devices()[1].wire().expect("a wire");
        pair.a.region.buffer.fill(0, 64, 0x11)?;
        let write = |context| {
            pair.a.write(context, 0, 64, pair.b.remote(0), 0)?;
            pair.a.initiator_done(context)
        };
        write(1)?;
        let (_, _, frame) = seen(platform);
        // The same write again, as the next one: it would be carried out.
        let (_, packet) = Envelope::parse(&frame).expect("a packet");
        let extended = packet.extended;
        pair.b.region.buffer.fill(0, 8192, 0xC3)?;
        for (number, (what, forge, counter)) in FORGERIES.into_iter().enumerate() {
            let (mut envelope, mut bth, _) = seen(platform);
            bth.psn = bth.psn.plus(1);
            forge(&mut envelope, &mut bth);
            let mut out = vec![0; FRAME];
            let length = envelope.emit(&Packet { bth, extended, payload: &[0xEE; 64] }, &mut out);
            let before = counter(&counters(platform, 1));
            Wire::receive(&wire, &out[..length]);
            s.settle();
            assert_eq!(counter(&counters(platform, 1)), before + 1, "{what}");
            pair.b.region.buffer.is_filled(0, 8192, 0xC3)?;
            // The connection lives.
            write(number + 2)?;
            pair.b.region.buffer.is_filled(0, 64, 0x11)?;
            pair.b.region.buffer.fill(0, 64, 0xC3)?;
        }
        // A right frame with a bit of its ICRC wrong.
        let (envelope, mut bth, _) = seen(platform);
        bth.psn = bth.psn.plus(1);
        let mut out = vec![0; FRAME];
        let length = envelope.emit(&Packet { bth, extended, payload: &[0xEE; 64] }, &mut out);
        out[length - 1] ^= 1;
        let before = counters(platform, 1).wrong_icrc;
        Wire::receive(&wire, &out[..length]);
        s.settle();
        assert_eq!(counters(platform, 1).wrong_icrc, before + 1);
        pair.b.region.buffer.is_filled(0, 8192, 0xC3)?;
        assert_eq!(pair.link.b.core().disconnects(), 0);
        conformance::HELD
    });
}

#[test]
fn a_foreign_token_ends_the_connection_and_moves_no_byte() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        let wire = platform.devices()[1].wire().expect("a wire");
        pair.a.write(1, 0, 64, pair.b.remote(0), 0)?;
        pair.a.initiator_done(1)?;
        pair.b.region.buffer.fill(0, 8192, 0xC3)?;
        let (envelope, mut bth, frame) = seen(platform);
        bth.psn = bth.psn.plus(1);
        let mut extended = Envelope::parse(&frame).expect("a packet").1.extended;
        let reth = extended.reth.as_mut().expect("a write has one");
        reth.key = (reth.key.get() ^ 0x100).into();
        let mut out = vec![0; FRAME];
        let length = envelope.emit(&Packet { bth, extended, payload: &[0xEE; 64] }, &mut out);
        Wire::receive(&wire, &out[..length]);
        pair.link.b.core().wait_disconnect()?;
        assert!(counters(platform, 1).naks_sent > 0);
        pair.b.region.buffer.is_filled(0, 8192, 0xC3)?;
        pair.link.a.core().wait_disconnect()?;
        conformance::HELD
    });
}

#[test]
fn an_answer_that_nobody_waits_for_is_a_ghost() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        pair.a.write(1, 0, 64, pair.b.remote(0), 0)?;
        pair.a.initiator_done(1)?;
        let wire = platform.devices()[0].wire().expect("a wire");
        let frame = platform.last_frame(1);
        let (envelope, packet) = Envelope::parse(&frame).expect("B's ACK");
        assert_eq!(packet.bth.opcode, Opcode::Acknowledge);
        // A refusal of what comes next, and one of what is long over.
        for distance in [0, 1, 500, 1 << 23] {
            for syndrome in [0x1F, 0x2E, 0x61, 0x62, 0x63] {
                let mut forged = packet;
                forged.bth.psn = packet.bth.psn.plus(distance);
                forged.extended.aeth.as_mut().expect("an AETH").syndrome = syndrome;
                let mut out = vec![0; FRAME];
                let length = envelope.emit(&forged, &mut out);
                let before = counters(platform, 0).ghosts;
                Wire::receive(&wire, &out[..length]);
                s.settle();
                assert_eq!(counters(platform, 0).ghosts, before + 1, "{syndrome:#x} at {distance}");
            }
        }
        pair.a.write(2, 0, 64, pair.b.remote(0), 0)?;
        is_done(&pair.a.initiated().take_one()?, 2, NtStatus::SUCCESS)?;
        conformance::HELD
    });
}

#[test]
fn bytes_of_a_fuzzer_reach_the_connection_and_break_nothing() {
    let mut reached = frames::Reached::default();
    for seed in 1..40_u32 {
        let bytes: Vec<u8> =
            (0..400_u32).map(|number| ((number + 1) * seed).wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
        reached.add(frames::exercise(&bytes));
    }
    // Else this would say nothing.
    assert!(reached.frames > 400 && reached.taken_apart > 50 && reached.for_the_connection > 20, "{reached:?}");
}
