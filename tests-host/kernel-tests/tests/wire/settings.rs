//! The keywords of a wire.

use ndis::NDIS_STATUS;
use simulated_kernel::{Impairment, Kernel, Medium};

use crate::{
    machine::{add, frame, load, statistics},
    sides::{BELOW, add_network_below, link},
};

#[test]
fn a_wire_that_cannot_be_leaves_the_link_down() {
    let kernel = Kernel::seeded(1).start();
    add_network_below(&kernel);
    let driver = load(&kernel).expect("it loads");
    for keywords in [
        &[("WirePeer", "the other one")][..],
        &[("WirePeer", "192.0.2.12,2001:db8::1")],
        &[("WirePeer", "192.0.2.12"), ("WireLocal", "2001:db8::1")],
        &[("WirePeer", "192.0.2.12"), ("WireLocal", "here")],
        &[("WirePeer", "192.0.2.12"), ("WireVni", "16777216")],
        &[("WirePeer", "192.0.2.12"), ("WirePort", "0")],
        &[("WirePeer", "01-00-5E-00-00-01=192.0.2.12")],
    ] {
        let nic = add(&driver, keywords);
        let partner = add(&driver, &[]);
        kernel.sleep(3_000_000);
        let mut last = None;
        assert_eq!(link(&nic, &mut last), None, "{keywords:?}");
        assert_eq!(nic.send(&[&frame(&nic, &partner, 1, 60)]).wait(), [NDIS_STATUS::SUCCESS]);
        assert_eq!((statistics(&nic).ifOutDiscards, partner.received()), (1, 0), "it is no cable: {keywords:?}");
        partner.remove();
        nic.remove();
    }
    // Nothing in it is no wire.
    let [one, other] = [(); 2].map(|()| add(&driver, &[("WirePeer", " "), ("WireLocal", "")]));
    let _ = one.send(&[&frame(&one, &other, 1, 60)]).wait();
    kernel.wait_until(|| other.received() == 1);
    one.remove();
    other.remove();
    driver.unload();
}

#[test]
fn networks_of_different_numbers_do_not_mix_and_ports_are_those_that_are_said() {
    let kernel = Kernel::seeded(2).start();
    add_network_below(&kernel);
    let driver = load(&kernel).expect("it loads");
    let (here, there) = (BELOW[0].to_string(), BELOW[1].to_string());
    let near = add(&driver, &[("WirePeer", &there), ("WireLocal", &here), ("WirePort", "7000"), ("WireVni", "7")]);
    let mut ends = Vec::new();
    for (port, vni) in [("7000", "8"), ("7001", "7"), ("7000", "7")] {
        let far = add(&driver, &[("WirePeer", &here), ("WireLocal", &there), ("WirePort", port), ("WireVni", vni)]);
        let mut last = None;
        kernel.wait_until(|| link(&far, &mut last) == Some(true));
        let _ = near.send(&[&frame(&near, &far, 1, 60)]).wait();
        kernel.sleep(50_000);
        ends.push((far.received(), statistics(&far).ifInErrors));
        far.remove();
    }
    assert_eq!(ends, [(0, 1), (0, 0), (1, 0)], "another network, another port, the same");
    near.remove();
    driver.unload();
}

/// Three ends: frames for a station go where it was heard, or where the keyword says that it is; others to both.
#[test]
fn frames_go_where_their_station_is() {
    let kernel = Kernel::seeded(3).start();
    kernel.network().set_medium(Medium::Memory { impairment: Impairment::default(), seed: 1 });
    let driver = load(&kernel).expect("it loads");
    let ends: [(&str, &[u16]); 3] = [("7001", &[7002, 7003]), ("7002", &[7001]), ("7003", &[7001])];
    let station = "02-4E-44-00-00-63";
    let nics = ends.map(|(port, peers)| {
        let mut list: Vec<_> = peers.iter().map(|peer| format!("127.0.0.1:{peer}")).collect();
        if port == "7001" {
            list.push(format!("{station}=127.0.0.1:7003"));
        }
        add(&driver, &[("WirePeer", &list.join(", ")), ("WireLocal", &format!("127.0.0.1:{port}"))])
    });
    for nic in &nics {
        let mut last = None;
        kernel.wait_until(|| link(nic, &mut last) == Some(true));
    }
    let [hub, one, other] = &nics;
    let errors = |nic| statistics(nic).ifInErrors;
    let received = || {
        kernel.sleep(50_000);
        [one, other].map(|nic| nic.take_received().len())
    };
    let mut everybody = frame(hub, one, 1, 60);
    everybody[..6].fill(0xFF);
    let _ = hub.send(&[&everybody]).wait();
    assert_eq!(received(), [1, 1], "everybody");
    // Not heard yet: both get it, and one takes it.
    let for_one = frame(hub, one, 2, 60);
    let _ = hub.send(&[&for_one]).wait();
    assert_eq!(received(), [1, 0]);
    let _ = one.send(&[&frame(one, hub, 3, 60)]).wait();
    kernel.wait_until(|| hub.received() == 1);
    let _ = hub.send(&[&for_one]).wait();
    assert_eq!(received(), [1, 0]);
    // A station that is fixed: it is not the adapter's, so nobody takes it, but only one is sent to.
    let mut fixed = for_one;
    fixed[..6].copy_from_slice(&[2, 0x4E, 0x44, 0, 0, 0x63]);
    let _ = hub.send(&[&fixed]).wait();
    assert_eq!(received(), [0, 0]);
    assert_eq!([errors(hub), errors(one), errors(other)], [0; 3]);
    for nic in nics {
        nic.remove();
    }
    driver.unload();
}
