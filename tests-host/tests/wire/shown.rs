//! What programs and traces are told of a wire.

use control::{
    client::ProviderDriver,
    provider_device::{NIC_LINK_NAME, Wire},
};
use simulated_kernel::{Impairment, Kernel, Medium};

use crate::{
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
        let mut wires = program.wires().expect("an answer");
        wires.sort_by_key(|wire| wire.adapter);
        assert_eq!(wires.len(), 2);
        for (end, wire) in wires.iter().enumerate() {
            let peers: Vec<_> = wire.peers().map(|peer| (peer.ip(), peer.port())).collect();
            assert_eq!((wire.vni, wire.is_up, peers), (77, 1, vec![(BELOW[1 - end], 4789)]));
            assert_eq!(wire.local().map(|local| local.ip()), Some(BELOW[end]));
            assert!(wire.frames_sent > 20 && wire.frames_received > 20, "{wire:?}");
            assert_eq!((wire.naks_sent, wire.timeouts, wire.wrong_icrc, wire.lost), (0, 0, 0, 0), "{wire:?}");
        }
        assert_eq!(wires[0].frames_sent, wires[1].frames_received);
    });
}

/// The event that tells of them, `WireTroubles`, is written by images only.
#[test]
fn what_a_bad_network_costs_is_counted() {
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
        let sum = |counter: fn(&Wire) -> u64| wires.iter().map(counter).sum::<u64>();
        assert!(sum(|wire| wire.naks_sent) > 0 && sum(|wire| wire.out_of_order) > 0, "{wires:?}");
        assert!(sum(|wire| wire.naks_sent) >= sum(|wire| wire.naks_received), "{wires:?}");
        assert!(sum(|wire| wire.retries + wire.timeouts) > 0, "{wires:?}");
        assert!(sum(|wire| wire.frames_sent) > sum(|wire| wire.frames_received), "{wires:?}");
    });
}
