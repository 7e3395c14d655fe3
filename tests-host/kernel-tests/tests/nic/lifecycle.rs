//! From load to unload, and what an adapter is on the way.

use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_MAC_OPTION_8021P_PRIORITY, NDIS_MAC_OPTION_8021Q_VLAN,
    NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA, NDIS_MAC_OPTION_NO_LOOPBACK, NDIS_MAC_OPTION_TRANSFERS_NOT_PEND,
    NDIS_SHUTDOWN_ACTION, NDIS_STATUS, NDIS_STATUS_PAUSED,
};
use simulated_kernel::Kernel;

use crate::machine::{add, frame, load, on_both, with_pair};

#[test]
fn the_driver_loads_and_unloads_with_adapters_and_without() {
    on_both(4, |kernel| {
        load(kernel).expect("it loads").unload();
        with_pair(kernel, &[], |_, _| ());
        let driver = load(kernel).expect("it loads again");
        let nics: Vec<_> = (0..8).map(|_| driver.add_nic(&[]).expect("an adapter")).collect();
        assert!(driver.add_nic(&[]).is_err(), "eight at most");
        for nic in nics {
            nic.remove();
        }
        driver.unload();
    });
}

/// What there is without 802.1Q.
const PLAIN: u32 =
    NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA | NDIS_MAC_OPTION_TRANSFERS_NOT_PEND | NDIS_MAC_OPTION_NO_LOOPBACK;

#[test]
fn an_adapter_is_fast_ethernet_with_an_address_of_its_own() {
    with_pair(&Kernel::threads().start(), &[], |one, other| {
        assert_eq!(one.mtu_and_speed(), (1500, 100_000_000_000));
        assert_eq!(one.mac()[0], 2, "administered locally");
        let options = NDIS_MAC_OPTION_8021P_PRIORITY | NDIS_MAC_OPTION_8021Q_VLAN;
        assert_eq!(one.mac_options(), PLAIN | options);
        assert_ne!(one.mac(), other.mac());
    });
    let keywords = [("NetworkAddress", "02-11-22-33-44-55"), ("*JumboPacket", "9014")];
    let kernel = Kernel::threads().start();
    let driver = load(&kernel).expect("it loads");
    for (value, options) in [
        ("0", 0),
        ("1", NDIS_MAC_OPTION_8021P_PRIORITY),
        ("2", NDIS_MAC_OPTION_8021Q_VLAN),
        ("4", NDIS_MAC_OPTION_8021P_PRIORITY | NDIS_MAC_OPTION_8021Q_VLAN),
    ] {
        let nic = add(&driver, &[("*PriorityVLANTag", value)]);
        assert_eq!(nic.mac_options(), PLAIN | options, "*PriorityVLANTag {value}");
        nic.remove();
    }
    let nic = add(&driver, &keywords);
    assert_eq!(nic.mac(), [2, 0x11, 0x22, 0x33, 0x44, 0x55]);
    assert_eq!(nic.mtu_and_speed().0, 9000);
    nic.remove();
    let nic = add(&driver, &[("NetworkAddress", "02-11-22-33")]);
    assert_eq!(nic.mac()[1], b'N', "that is none");
    nic.remove();
    // A group's address is nobody's.
    let nic = add(&driver, &[("NetworkAddress", "03-11-22-33-44-55"), ("*JumboPacket", "77")]);
    assert_eq!((nic.mac()[1], nic.mtu_and_speed().0), (b'N', 1500));
    nic.remove();
    driver.unload();
}

#[test]
fn a_paused_adapter_sends_nothing_and_goes_on_after_a_restart() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        let bytes = frame(one, other, 1, 100);
        one.pause();
        assert_eq!(one.send(&[&bytes, &bytes]).wait(), [NDIS_STATUS_PAUSED; 2]);
        one.restart().expect("it restarts");
        assert_eq!(one.send(&[&bytes]).wait(), [NDIS_STATUS::SUCCESS]);
        kernel.wait_until(|| other.received() == 1);
        // To an end that is paused, frames are lost.
        other.pause();
        assert_eq!(one.send(&[&bytes]).wait(), [NDIS_STATUS::SUCCESS]);
        kernel.sleep(10_000);
        other.restart().expect("it restarts");
        kernel.sleep(10_000);
        assert_eq!(other.received(), 1);
    });
}

#[test]
fn a_pause_waits_for_what_the_protocols_keep() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        other.keep_received(true);
        let frames: Vec<_> = (0..20).map(|number| frame(one, other, number, 60)).collect();
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        let _ = one.send(&frames).wait();
        kernel.wait_until(|| other.kept() == 20);
        // The simulated NDIS gives back what is kept, while the pause is pending.
        other.pause();
        assert_eq!(other.kept(), 0);
        other.restart().expect("it restarts");
    });
}

#[test]
fn without_power_no_frames_go() {
    let kernel = Kernel::threads().start();
    with_pair(&kernel, &[], |one, other| {
        let bytes = frame(one, other, 1, 100);
        assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS::SUCCESS);
        assert_eq!(one.send(&[&bytes]).wait(), [NDIS_STATUS_PAUSED], "NDIS has paused it");
        let _ = other.send(&[&frame(other, one, 1, 100)]).wait();
        kernel.sleep(10_000);
        assert_eq!(one.received(), 0);
        assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS::SUCCESS);
        assert_eq!(one.send(&[&bytes]).wait(), [NDIS_STATUS::SUCCESS]);
        kernel.wait_until(|| other.received() == 1);
    });
}

/// `*NetworkDirectRoCEFrameSize`: what is in force may be less than what was asked for, and then an event says so.
#[test]
fn a_path_mtu_that_is_not_the_one_of_the_keyword_is_logged() {
    const WANTED: (&str, &str) = ("*NetworkDirectRoCEFrameSize", "4096");
    for (keywords, count) in [(&[WANTED, ("*JumboPacket", "9014")][..], 0), (&[], 0), (&[WANTED], 1)] {
        let kernel = Kernel::threads().start();
        let driver = load(&kernel).expect("it loads");
        add(&driver, keywords).remove();
        driver.unload();
        let written = kernel.events().get("RoCEFrameSize").copied().unwrap_or(0);
        assert_eq!(written, count, "{keywords:?}");
    }
}

#[test]
fn a_shutdown_asks_nothing_of_the_adapter() {
    with_pair(&Kernel::threads().start(), &[], |one, other| {
        one.shut_down(NDIS_SHUTDOWN_ACTION::POWER_OFF);
        other.shut_down(NDIS_SHUTDOWN_ACTION::BUG_CHECK);
    });
}

#[test]
fn there_are_four_cables_between_eight_adapters() {
    let kernel = Kernel::threads().start();
    let driver = load(&kernel).expect("it loads");
    let nics: Vec<_> = (0..8).map(|_| add(&driver, &[])).collect();
    for pair in nics.chunks(2) {
        for [from, to] in [[&pair[0], &pair[1]], [&pair[1], &pair[0]]] {
            assert_eq!(from.send(&[&frame(from, to, 1, 100)]).wait(), [NDIS_STATUS::SUCCESS]);
            kernel.wait_until(|| to.received() == 1);
        }
    }
    for nic in nics {
        nic.remove();
    }
    driver.unload();
}

#[test]
fn one_end_can_go_while_frames_come_to_it() {
    for seed in 1..6 {
        let kernel = Kernel::seeded(seed).start();
        let driver = load(&kernel).expect("it loads");
        let (one, other) = (add(&driver, &[]), add(&driver, &[]));
        let frames: Vec<_> = (0..200).map(|number| frame(&one, &other, number, 200)).collect();
        let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
        let sent = one.send(&frames);
        other.surprise_remove();
        assert_eq!(sent.wait().len(), 200, "each list comes back");
        // Alone, an adapter completes and drops.
        assert_eq!(one.send(&frames).wait(), [NDIS_STATUS::SUCCESS; 200]);
        let again = add(&driver, &[]);
        let bytes = frame(&one, &again, 7, 60);
        assert_eq!(one.send(&[&bytes]).wait(), [NDIS_STATUS::SUCCESS]);
        kernel.wait_until(|| again.received() == 1);
        one.remove();
        again.remove();
        driver.unload();
    }
}
