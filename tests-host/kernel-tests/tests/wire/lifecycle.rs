//! From load to unload; sockets that fail, sleep, peers that die.

use std::sync::atomic::Ordering::SeqCst;

use ndis::{NDIS_DEVICE_POWER_STATE, NDIS_STATUS};
use simulated_kernel::Kernel;

use crate::{
    machine::{ADDRESSES, configure, frame, load, on_both, statistics},
    sides::{BELOW, Side, add_end, add_network_below, connect, connected, exchange, link, wait_for_links, with_wire},
};

#[test]
fn adapters_with_a_wire_come_and_go() {
    on_both(6, |kernel| {
        add_network_below(kernel);
        for round in 0..3 {
            let driver = load(kernel).expect("it loads");
            let one = add_end(&driver, 0, &[]);
            if round == 1 {
                // Before its socket may be there.
                one.remove();
                driver.unload();
                continue;
            }
            let other = add_end(&driver, 1, &[]);
            wait_for_links(kernel, [&one, &other]);
            let bytes = frame(&one, &other, 7, 100);
            let _ = one.send(&[&bytes]).wait();
            kernel.wait_until(|| other.received() == 1);
            one.remove();
            // Nobody is there: it is lost on the way, or at the end.
            let _ = other.send(&[&bytes]).wait();
            let again = add_end(&driver, 0, &[]);
            let mut last = None;
            kernel.wait_until(|| link(&again, &mut last) == Some(true));
            let _ = other.send(&[&frame(&other, &again, 8, 100)]).wait();
            kernel.wait_until(|| again.received() == 1);
            again.remove();
            other.remove();
            driver.unload();
        }
    });
}

/// Waits in the driver's context.
fn sleep(micros: u64) {
    let _ = kernel::Event::try_new().expect("memory").wait_micros(micros);
}

#[test]
fn a_socket_that_breaks_is_opened_again_and_connections_outlive_it() {
    for seed in 1..6 {
        let kernel = Kernel::seeded(seed).start();
        with_wire(&kernel, &[], |driver, nics| {
            connected(driver, nics, |near, far| {
                exchange(near, far, 1, 5000).expect("it arrives");
                // One that breaks soon after it was opened has to wait.
                sleep(2_000_000);
                kernel.network().break_sockets();
                exchange(near, far, 2, 5000).expect("it arrives after a while");
                assert_eq!((near.lost.load(SeqCst), far.lost.load(SeqCst)), (0, 0));
            });
            for nic in nics {
                let mut last = None;
                assert_eq!(link(nic, &mut last), Some(true), "it was down, and is up");
            }
        });
    }
}

#[test]
fn without_its_address_the_link_is_down_until_that_comes() {
    let kernel = Kernel::seeded(2).start();
    let driver = load(&kernel).expect("it loads");
    let one = add_end(&driver, 0, &[]);
    kernel.sleep(5_000_000);
    let mut last = None;
    assert_eq!(link(&one, &mut last), None, "it was never up");
    let sent = one.send(&[&[0xFF; 60]]).wait();
    assert_eq!(sent, [NDIS_STATUS::SUCCESS]);
    assert_eq!(statistics(&one).ifOutDiscards, 1, "it has nowhere to go");
    add_network_below(&kernel);
    kernel.wait_until(|| link(&one, &mut last) == Some(true));
    one.remove();
    driver.unload();
}

/// Winsock Kernel is there later than the driver, when the system starts.
#[test]
fn winsock_kernel_may_come_later() {
    let kernel = Kernel::seeded(3).start();
    add_network_below(&kernel);
    kernel.network().set_wsk_ready(false);
    let driver = load(&kernel).expect("it loads");
    let one = add_end(&driver, 0, &[]);
    kernel.sleep(3_000_000);
    kernel.network().set_wsk_ready(true);
    let mut last = None;
    kernel.wait_until(|| link(&one, &mut last) == Some(true));
    one.remove();
    driver.unload();
}

#[test]
fn an_adapter_that_sleeps_has_no_socket() {
    for seed in 1..6 {
        let kernel = Kernel::seeded(seed).start();
        with_wire(&kernel, &[], |driver, [one, other]| {
            let mut lost = None;
            connected(driver, [one, other], |near, far| {
                let mut last = [None; 2];
                assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS::SUCCESS);
                let event = kernel::Event::try_new().expect("memory");
                let heard = |side: &Side| (0..1_000).any(|_| side.lost.load(SeqCst) == 1 || event.wait_micros(1_000));
                assert!(heard(near), "its own side at once");
                assert!(heard(far), "the other one by the wire, or by its time-out");
                lost = Some(());
                // It goes on a little, so that the peer hears of it.
                sleep(100_000);
                assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS::SUCCESS);
                assert_eq!(link(other, &mut last[1]), None, "the other one has seen nothing of it");
            });
            let mut last = None;
            let _ = link(one, &mut last);
            kernel.wait_until(|| link(one, &mut last) == Some(true));
            connected(driver, [one, other], |near, far| exchange(near, far, 1, 3000).expect("it arrives"));
            assert!(lost.is_some());
        });
    }
}

#[test]
fn a_peer_that_dies_without_a_word_is_noticed_by_its_silence() {
    let kernel = Kernel::seeded(7).start();
    with_wire(&kernel, &[], |driver, nics| {
        connected(driver, nics, |near, far| {
            exchange(near, far, 1, 3000).expect("it arrives");
            // Its machine has no address any more: nothing that is sent there arrives.
            kernel.network().remove_address(ADDRESSES[1]);
            sleep(10_000);
            near.memory.write(0, &[1; 64]).expect("memory");
            let sent = near.memory.sge(0, 64).expect("memory");
            near.qp.initiator.write(9, &[sent], far.memory.remote(0), ndk::Flags::empty()).expect("it is posted");
            assert_eq!(near.complete(), Err(ndk::NtStatus::IO_TIMEOUT));
            let event = kernel::Event::try_new().expect("memory");
            assert!((0..1_000).any(|_| near.lost.load(SeqCst) == 1 || event.wait_micros(1_000)));
        });
    });
}

/// The adapters of a machine with wires do not take each other for partners, and one with a cable has none among them.
#[test]
fn a_wire_is_nobody_s_cable() {
    let kernel = Kernel::seeded(8).start();
    add_network_below(&kernel);
    let driver = load(&kernel).expect("it loads");
    let wired = add_end(&driver, 0, &[]);
    let plain = crate::machine::add(&driver, &[]);
    let mut last = None;
    kernel.wait_until(|| link(&wired, &mut last) == Some(true));
    configure(&kernel, [&wired, &plain]);
    for (from, to) in [(&wired, &plain), (&plain, &wired)] {
        let _ = from.send(&[&frame(from, to, 1, 100)]).wait();
        kernel.sleep(20_000);
        assert_eq!(to.received(), 0);
    }
    driver.run(|| {
        let [mut near, mut far] = [&wired, &plain].map(|nic| Side::open(nic).expect("it opens"));
        let refused = connect(&mut near, &mut far, ADDRESSES).expect_err("nobody answers");
        assert!([ndk::NtStatus::IO_TIMEOUT, ndk::NtStatus::HOST_UNREACHABLE].contains(&refused), "{refused}");
    });
    wired.remove();
    plain.remove();
    driver.unload();
    assert_eq!(BELOW.len(), 2);
}
