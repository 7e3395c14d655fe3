//! What goes over the cable and what does not.

use std::net::{IpAddr, SocketAddr};

use conformance::{
    HELD,
    client::QpSizes,
    fixture::{Pair, Plan, Side, Terms},
    host::{Impairments, Scheduler, Setup},
    platform::Family,
};
use engine::wire::Wire;
use ndkpi::NtStatus;

use super::{CLEAN, LOOPBACK, SEEDED, counters, on_cable, run};

/// So many frames at least, with these bytes, and each with its headers and ICRC: from those of IPv4 to those of IPv6 and the longest of a
/// request (RoCEv2 1).
fn are_frames(octets: u64, frames: u64, bytes: u64, least: u64) {
    assert!(frames >= least, "{frames} frames");
    assert!((bytes + 58 * frames..=bytes + 110 * frames).contains(&octets), "{octets} octets of {frames} frames");
}

#[test]
fn bytes_arrive_and_are_counted() {
    for scheduler in [SEEDED, Scheduler::Threads] {
        run(on_cable(scheduler, CLEAN), |s, platform| {
            let plan = Plan { bytes: 3 * 8192, ..Plan::new() };
            let pair = Pair::with(s, &plan, &plan)?;
            pair.a.region.buffer.fill(0, 8192, 0x5A)?;
            // A send of several packets, a write, and a read of what was written.
            pair.b.receive(1, 0, 5000)?;
            pair.a.send(2, 0, 5000, 0)?;
            assert_eq!(pair.b.receive_done(1)?.bytes, 5000);
            pair.a.initiator_done(2)?;
            pair.b.region.buffer.is_filled(0, 5000, 0x5A)?;
            pair.a.write(3, 0, 8000, pair.b.remote(8192), 0)?;
            pair.a.initiator_done(3)?;
            pair.b.region.buffer.is_filled(8192, 8000, 0x5A)?;
            pair.a.read(4, 8192, 7000, pair.b.remote(8192), 0)?;
            pair.a.initiator_done(4)?;
            pair.a.region.buffer.is_filled(8192, 7000, 0x5A)?;
            let [a, b] = [0, 1].map(|adapter| platform.devices()[adapter].counters());
            // In packets of 1024 bytes: five of the send, eight of the write and the request of the read one way, seven of the read and
            // acknowledgements the other.
            are_frames(a.RDMAOutOctets, a.RDMAOutFrames, 13_000, 14);
            are_frames(a.RDMAInOctets, a.RDMAInFrames, 7000, 8);
            are_frames(b.RDMAInOctets, b.RDMAInFrames, 13_000, 14);
            are_frames(b.RDMAOutOctets, b.RDMAOutFrames, 7000, 8);
            assert_eq!((a.Connect, a.ActiveConnection, b.Accept, b.ActiveConnection), (1, 1, 1, 1));
            let wire = counters(platform, 0);
            assert!(wire.frames_sent >= 14 && wire.frames_received >= 8, "{wire:?}");
            assert_eq!((wire.malformed, wire.wrong_icrc, wire.unknown_queue_pair, wire.goes_back), (0, 0, 0, 0));
            HELD
        });
    }
}

/// As long as there is work the DPC of the wire queues itself again, so that others get their turn between two of its runs.
#[test]
fn a_run_of_the_wires_dpc_makes_a_bounded_number_of_frames() {
    /// Frames of a run at most: eight rounds of sixteen.
    const MOST: u64 = 128;
    const WRITES: usize = 60;
    let scheduler = Scheduler::Seeded { seed: 7, preemption: 0 };
    run(on_cable(scheduler, CLEAN), |s, platform| {
        let plan = Plan { sizes: QpSizes { initiator_depth: 64, ..Plan::new().sizes }, ..Plan::new() };
        let pair = Pair::with(s, &plan, &plan)?;
        let machine = platform.devices()[0].os().machine().clone();
        // Eight packets of 1024 bytes each.
        for context in 0..WRITES {
            pair.a.write(context, 0, 8192, pair.b.remote(0), 0)?;
        }
        let (mut most, mut runs, mut before) = (0, 0, counters(platform, 0).frames_sent);
        while machine.step() {
            let now = counters(platform, 0).frames_sent;
            most = most.max(now - before);
            runs += u64::from(now > before);
            before = now;
        }
        assert!(most <= MOST, "{most} frames in one run");
        assert!(most > 8 && runs > 3, "{runs} runs, of {most} frames at most: the wire had enough to do");
        for context in 0..WRITES {
            pair.a.initiator_done(context)?;
        }
        HELD
    });
}

#[test]
fn an_adapter_reaches_its_own_addresses_without_a_frame() {
    let setup = Setup { without: 0, ..on_cable(SEEDED, CLEAN) };
    run(setup, |s, platform| {
        let pair = Pair::new(s)?;
        pair.deliver(1, false)?;
        pair.b.receive_done(1)?;
        assert_eq!(counters(platform, 0).frames_sent, 0);
        assert_ne!(platform.devices()[0].config().info.AdapterFlags & LOOPBACK, 0);
        HELD
    });
}

#[test]
fn an_address_of_nobody_is_not_reached() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let side = Side::new(&s.adapter()?, &Plan::new(), 1)?;
        let from = s.address(0, Family::V4, 0)?;
        let there = |address: [u8; 4], port| SocketAddr::new(IpAddr::from(address), port);
        let cases = [
            (there([192, 0, 2, 77], 1000), NtStatus::HOST_UNREACHABLE),
            (there([203, 0, 113, 1], 1000), NtStatus::NETWORK_UNREACHABLE),
            // The other adapter, where nobody listens.
            (there([192, 0, 2, 2], 1000), NtStatus::CONNECTION_REFUSED),
        ];
        for (to, expected) in cases {
            let connector = s.adapter()?.create_connector()?;
            connector.core().connect(side.qp.core(), from, to, &Terms::new().a)?.ends_with(expected)?;
            connector.close()?;
        }
        assert_eq!(platform.devices()[0].counters().ConnectFailure, 3);
        HELD
    });
}

#[test]
fn bytes_of_no_station_change_nothing() {
    run(on_cable(SEEDED, CLEAN), |s, platform| {
        let pair = Pair::new(s)?;
        pair.deliver(1, false)?;
        let _ = pair.b.receive_cq.core().poll(1)?;
        pair.b.region.buffer.fill(0, 8192, 0xC3)?;
        let wire = platform.devices()[1].wire().expect("a wire");
        let mut random = s.random();
        for length in 0..600_usize {
            let mut frame: Vec<u8> = (0..length).map(|_| random.below(256).to_le_bytes()[0]).collect();
            // Some are for this station, and look like RoCE over IPv4.
            if length > 60 && length % 2 == 0 {
                frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
                frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
                frame[23] = 17;
                frame[36..38].copy_from_slice(&4791_u16.to_be_bytes());
            }
            Wire::receive(&wire, &frame);
        }
        s.settle();
        pair.b.region.buffer.is_filled(0, 8192, 0xC3)?;
        assert_eq!(pair.link.b.core().disconnects(), 0);
        let seen = wire.counters();
        assert!(seen.not_for_us + seen.malformed + seen.wrong_icrc >= 600, "{seen:?}");
        pair.start_delivery(2, false)?;
        pair.a.initiator_done(2)?;
        HELD
    });
}

#[test]
fn a_spoilt_cable_is_repaired() {
    for seed in 0..8 {
        let setup = Setup { seed, ..on_cable(SEEDED, Impairments::all(20)) };
        run(setup, |s, platform| {
            let plan = Plan { bytes: 1 << 17, ..Plan::new() };
            let pair = Pair::with(s, &plan, &plan)?;
            pair.a.region.buffer.fill(0, 1 << 16, 0x11)?;
            for round in 0..4_usize {
                pair.a.write(round, 0, 1 << 16, pair.b.remote(0), 0)?;
                pair.a.initiator_done(round)?;
                pair.b.region.buffer.is_filled(0, 1 << 16, 0x11)?;
                pair.a.read(round, 1 << 16, 1 << 16, pair.b.remote(0), 0)?;
                pair.a.initiator_done(round)?;
                pair.a.region.buffer.is_filled(1 << 16, 1 << 16, 0x11)?;
            }
            let [a, b] = [0, 1].map(|adapter| counters(platform, adapter));
            assert!(a.goes_back + a.timeouts > 0, "{a:?}");
            assert!(a.wrong_icrc + b.wrong_icrc + a.not_for_us + b.not_for_us + a.malformed + b.malformed > 0);
            assert!(b.duplicates > 0, "{b:?}");
            HELD
        });
    }
}
