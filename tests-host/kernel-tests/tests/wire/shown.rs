//! What programs and traces are told of a wire.

use std::net::SocketAddr;

use control::{
    client::ProviderDriver,
    provider_device::{NIC_LINK_NAME, Wire},
};
use roce::vxlan;
use simulated_kernel::{Impairment, Kernel, Medium};

use crate::{
    machine::ADDRESSES,
    sides::{BELOW, connected, exchange, with_wire},
    transport::ToNic,
};

#[test]
fn a_program_is_told_the_keywords_and_the_counters_of_each_wire() {
    let kernel = Kernel::seeded(3).start();
    with_wire(&kernel, &[("WireVni", "77")], |driver, nics| {
        let device = kernel.open_device(NIC_LINK_NAME).expect("the driver has a control device");
        let program = ProviderDriver::new(ToNic(device));
        connected(driver, nics, |near, far| exchange(near, far, 1, 20_000).expect("it arrives"));
        // Nothing is under way any more.
        kernel.sleep(1_000_000);
        let mut wires = program.wires().expect("an answer");
        wires.sort_by_key(|wire| wire.adapter);
        assert_eq!(wires.len(), 2);
        for (end, wire) in wires.iter().enumerate() {
            let peers: Vec<_> = wire.peers().map(|peer| (peer.ip(), peer.port())).collect();
            assert_eq!((wire.vni, wire.is_up, peers), (77, 1, vec![(BELOW[1 - end], 4789)]));
            assert_eq!(wire.local().map(|local| local.ip()), Some(BELOW[end]));
            assert!(wire.frames_sent > 20 && wire.frames_received > 20, "{wire:?}");
            // Not the time-outs: time passes as the seed says, in a third of all seeds for longer than an answer is waited for.
            assert_eq!((wire.naks_sent, wire.wrong_icrc, wire.lost), (0, 0, 0), "{wire:?}");
        }
        assert_eq!(wires[0].frames_sent, wires[1].frames_received);
    });
}

/// A field of an event, and the counter that it tells of.
type Counted = (&'static str, fn(&Wire) -> u64);

/// Those of the event `WireTroubles`.
const TROUBLES: [Counted; 6] = [
    ("NaksSent", |wire| wire.naks_sent),
    ("NaksReceived", |wire| wire.naks_received),
    ("RnrNaksReceived", |wire| wire.rnr_naks_received),
    ("Retries", |wire| wire.retries),
    ("TimeOuts", |wire| wire.timeouts),
    ("CmRetries", |wire| wire.cm_retries),
];

/// The events of the drivers tell as much as the counters of all wires say, once the timer has looked.
fn told_is_counted(kernel: &Kernel, wires: &[Wire]) {
    for (field, counter) in TROUBLES {
        let counted: u64 = wires.iter().map(counter).sum();
        assert_eq!(kernel.event_sum("WireTroubles", field), counted, "{field}: {wires:?}");
    }
}

/// How often an event was written.
fn written(kernel: &Kernel, event: &str) -> u32 {
    kernel.events().get(event).copied().unwrap_or(0)
}

#[test]
fn what_a_bad_network_costs_is_counted_and_told() {
    let kernel = Kernel::seeded(4).start();
    let impairment = Impairment { lost: 30_000, ..Impairment::default() };
    kernel.network().set_medium(Medium::Memory { impairment, seed: 2 });
    with_wire(&kernel, &[], |driver, nics| {
        let device = kernel.open_device(NIC_LINK_NAME).expect("the driver has a control device");
        let program = ProviderDriver::new(ToNic(device));
        connected(driver, nics, |near, far| {
            for round in 0..10 {
                exchange(near, far, round, 20_000).expect("it arrives");
            }
        });
        // The timer that looks for troubles fires, and is not set again.
        kernel.sleep(3_000_000);
        let wires = program.wires().expect("an answer");
        told_is_counted(&kernel, &wires);
        let sum = |counter: fn(&Wire) -> u64| wires.iter().map(counter).sum::<u64>();
        assert!(sum(|wire| wire.naks_sent) > 0 && sum(|wire| wire.out_of_order) > 0, "{wires:?}");
        assert!(sum(|wire| wire.naks_sent) >= sum(|wire| wire.naks_received), "{wires:?}");
        assert!(sum(|wire| wire.retries + wire.timeouts) > 0, "{wires:?}");
        assert!(sum(|wire| wire.frames_sent) > sum(|wire| wire.frames_received), "{wires:?}");
        // At most one a second for each adapter.
        let events = u64::from(written(&kernel, "WireTroubles"));
        let second = 1_000_000;
        assert!((1..=2 * (kernel.now() / second + 1)).contains(&events), "{events} events by {}", kernel.now());
    });
}

#[test]
fn a_connection_is_told_of_by_both_sides_and_a_good_network_by_nobody() {
    let kernel = Kernel::seeded(5).preemption(0).start();
    with_wire(&kernel, &[], |driver, nics| {
        let told = || ["Wire", "Connected", "Accepted", "Disconnected"].map(|event| written(&kernel, event));
        assert_eq!(told(), [2, 0, 0, 0], "a socket for each");
        connected(driver, nics, |near, far| {
            assert_eq!(told(), [2, 1, 1, 0]);
            exchange(near, far, 1, 20_000).expect("it arrives");
            near.connection.take().expect("a connection").disconnect().expect("it begins").wait().expect("it ends");
        });
        kernel.sleep(3_000_000);
        assert_eq!(told()[..3], [2, 1, 1]);
        assert_eq!(told()[3], 1, "by the side that disconnects");
        let failures = ["ConnectionLost", "WireFailed", "WireBroken", "Rejected"].map(|event| written(&kernel, event));
        assert_eq!(failures, [1, 0, 0, 0], "the other side has lost it");
        // Nothing is lost, so nobody asks for anything again but who waits for long: of a wait of 20 s the simulated kernel looks every 1.25 s.
        let troubles = TROUBLES.map(|(field, _)| (field, kernel.event_sum("WireTroubles", field)));
        assert!(troubles.iter().all(|(field, count)| *count == 0 || *field == "CmRetries"), "{troubles:?}");
    });
    assert_eq!(kernel.event_sum("Wire", "Up"), 2);
}

#[test]
fn a_peer_that_falls_silent_is_told_of_by_time_outs_and_then_no_more() {
    let kernel = Kernel::seeded(6).start();
    with_wire(&kernel, &[], |driver, nics| {
        let device = kernel.open_device(NIC_LINK_NAME).expect("the driver has a control device");
        let program = ProviderDriver::new(ToNic(device));
        connected(driver, nics, |near, far| {
            kernel.network().remove_address(ADDRESSES[1]);
            let event = kernel::Event::try_new().expect("memory");
            let _ = event.wait_micros(10_000);
            let sent = near.memory.sge(0, 64).expect("memory");
            near.qp.initiator.write(9, &[sent], far.memory.remote(0), ndk::Flags::empty()).expect("it is posted");
            assert_eq!(near.complete(), Err(ndk::NtStatus::IO_TIMEOUT));
        });
        kernel.sleep(60_000_000);
        let wires = program.wires().expect("an answer");
        told_is_counted(&kernel, &wires);
        assert!(kernel.event_sum("WireTroubles", "TimeOuts") > 1, "{:?}", kernel.events());
        assert!(written(&kernel, "ConnectionLost") > 0, "{:?}", kernel.events());
        let events = kernel.events();
        kernel.sleep(60_000_000);
        assert_eq!(kernel.events(), events, "silence is not told of");
    });
}

/// Whoever reaches the port can send what he likes: that is counted, and tells nobody anything by itself.
#[test]
fn frames_from_nobody_make_no_events_without_bound() {
    const SECONDS: u64 = 10;
    const IN_A_SECOND: u64 = 200;
    let kernel = Kernel::seeded(7).preemption(0).start();
    with_wire(&kernel, &[], |driver, nics| {
        let device = kernel.open_device(NIC_LINK_NAME).expect("the driver has a control device");
        let program = ProviderDriver::new(ToNic(device));
        let [peer, own] = BELOW.map(|address| SocketAddr::new(address, vxlan::PORT));
        // The packets of a connection that has gone: a REQ, requests, answers.
        let mut packets = Vec::new();
        connected(driver, nics, |near, far| {
            packets.extend(kernel.network().last_datagram(peer));
            near.qp.initiator.send(1, &[], ndk::Flags::empty()).expect("it is posted");
            far.qp.receiver.receive(1, &[]).expect("it is posted");
            near.complete().expect("it arrives");
            far.complete().expect("it arrives");
            packets.extend(kernel.network().last_datagram(peer));
        });
        packets.extend(kernel.network().last_datagram(peer));
        // No frame at all, one of another network, and one whose ICRC is wrong.
        packets.push(vec![0x55; 60]);
        let mut wrong = packets[0].clone();
        wrong[4] ^= 1;
        packets.push(wrong);
        let mut spoilt = packets[0].clone();
        *spoilt.last_mut().expect("some bytes") ^= 1;
        packets.push(spoilt);
        kernel.sleep(3_000_000);
        let (before, counted) = (kernel.events(), program.wires().expect("an answer"));
        for packet in packets.iter().cycle().zip(0..SECONDS * IN_A_SECOND).map(|(packet, _)| packet) {
            kernel.network().inject(peer, own, packet);
            kernel.sleep(1_000_000 / IN_A_SECOND);
        }
        kernel.sleep(3_000_000);
        let (after, now) = (kernel.events(), program.wires().expect("an answer"));
        let received = |wires: &[Wire]| wires.iter().map(|wire| wire.frames_received).sum::<u64>();
        assert!(received(&now) - received(&counted) > SECONDS * IN_A_SECOND / 2, "they reach the engine");
        let mut more = after;
        for (event, count) in more.iter_mut() {
            *count -= before.get(event).copied().unwrap_or(0);
        }
        let troubles = more.remove("WireTroubles").unwrap_or(0);
        assert!(u64::from(troubles) <= SECONDS + 3, "{troubles} of WireTroubles");
        assert!(more.values().all(|count| *count == 0), "{more:?}");
    });
}
