//! An adapter's life, with a miniport that does everything right.

use miniport::Handlers;
use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_SHUTDOWN_ACTION, NDIS_STATUS, NDIS_STATUS_PAUSED, NdisFreeNetBufferListPool,
    OID_GEN_VENDOR_ID,
};
use ndkpi::{
    NDK_VERSION, NtStatus, OID_NDK_STATISTICS,
    status::{NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS},
};
use simulated_kernel::{Driver, Kernel, Nic};
use wdk_sys::ntddk::{KeLowerIrql, KfRaiseIrql};

use crate::miniport;

/// Loads the driver with an adapter on a seeded kernel, has `work` use it, and unloads it.
pub fn run(handlers: Handlers, work: impl FnOnce(&Kernel, &Driver, &Nic)) {
    let kernel = Kernel::seeded(1).preemption(0).hang_limit(std::time::Duration::from_secs(2)).start();
    miniport::prepare(handlers);
    let driver = kernel.load("mini", miniport::driver_entry).expect("the driver loads");
    let nic = driver.add_nic(&[("Test", "42")]).expect("the adapter starts");
    work(&kernel, &driver, &nic);
    nic.remove();
    driver.unload();
}

const VERSION: NDK_VERSION = NDK_VERSION { Major: 2, Minor: 0 };

#[test]
fn an_adapter_lives_and_its_keywords_are_read() {
    run(Handlers::default(), |_, _, nic| {
        assert_eq!(miniport::with(|world| world.keyword), 42);
        assert_eq!(nic.mac(), [2, 0, 0, 0, 0, 1]);
        assert_eq!(nic.mtu_and_speed(), (1500, 100_000_000_000));
        assert_eq!(nic.supported_oids().len(), 4);
    });
}

#[test]
fn frames_are_sent_and_received_and_kept() {
    run(Handlers::default(), |_, driver, nic| {
        let statuses = nic.send(&[&[1; 60], &[2; 1500]]).wait();
        assert_eq!(statuses, [NDIS_STATUS_SUCCESS; 2]);
        let statuses = nic.send_lists(&[vec![&[1; 60], &[2; 61]], vec![&[3; 62]]]).wait();
        assert_eq!(statuses, [NDIS_STATUS_SUCCESS; 2]);
        nic.keep_received(true);
        assert!(driver.run(|| miniport::receive(&[5; 100]) && miniport::receive(&[6; 64])));
        assert_eq!((nic.kept(), nic.take_received()), (2, vec![vec![5; 100], vec![6; 64]]));
        assert_eq!(nic.give_back(), 2);
        nic.keep_received(false);
        assert!(driver.run(|| miniport::receive(&[7; 100])));
        assert_eq!(miniport::with(|world| world.indicated), 0, "the list came back at once");
    });
}

#[test]
fn a_pool_of_lists_is_made_and_freed_at_dispatch_level() {
    run(Handlers::default(), |_, driver, _| {
        let adapter = miniport::with(|world| world.adapter);
        driver.run(|| {
            // SAFETY: it is lowered below.
            let before = unsafe { KfRaiseIrql(2) };
            let pool = miniport::create_pool(adapter);
            assert!(!pool.is_null());
            // SAFETY: the pool has no lists.
            unsafe { NdisFreeNetBufferListPool(pool) };
            // SAFETY: as it was before.
            unsafe { KeLowerIrql(before) };
        });
    });
}

#[test]
fn a_pause_waits_for_what_the_protocols_keep() {
    run(Handlers::default(), |_, driver, nic| {
        nic.keep_received(true);
        assert!(driver.run(|| miniport::receive(&[5; 100]) && miniport::receive(&[6; 64])));
        nic.pause();
        assert_eq!(nic.kept(), 0);
        let refused: Vec<NDIS_STATUS> = nic.send(&[&[1; 60]]).wait();
        assert_eq!(refused, [NDIS_STATUS_PAUSED]);
        nic.restart().expect("the adapter restarts");
        assert!(driver.run(|| miniport::receive(&[5; 100])));
    });
}

#[test]
fn requests_are_answered() {
    run(Handlers::default(), |_, _, nic| {
        let answer = nic.query(OID_GEN_VENDOR_ID, 4);
        assert_eq!((answer.status, answer.bytes), (NDIS_STATUS_SUCCESS, vec![7, 0, 0, 0]));
        let answer = nic.query(OID_GEN_VENDOR_ID, 2);
        assert_eq!((answer.status, answer.needed), (NDIS_STATUS_BUFFER_TOO_SHORT, 4));
        assert_eq!(nic.query(1, 4).status, NDIS_STATUS_NOT_SUPPORTED);
        assert_eq!(nic.query_directly(OID_NDK_STATISTICS, 4).status, NDIS_STATUS_SUCCESS);
        assert_eq!(nic.query_synchronously(OID_NDK_STATISTICS, 4).bytes, [7, 0, 0, 0]);
        assert_eq!(nic.method(1, &[1], 4).status, NDIS_STATUS_NOT_SUPPORTED);
    });
}

#[test]
fn the_states_of_power_pause_and_restart() {
    run(Handlers::default(), |_, driver, nic| {
        assert_eq!(nic.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS_SUCCESS);
        assert!(miniport::with(|world| world.paused));
        assert_eq!(nic.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS_SUCCESS);
        assert!(driver.run(|| miniport::receive(&[5; 100])));
        nic.shut_down(NDIS_SHUTDOWN_ACTION::POWER_OFF);
        nic.shut_down(NDIS_SHUTDOWN_ACTION::BUG_CHECK);
    });
}

/// As the page of `OID_PNP_SET_POWER` has it: protocols may keep lists while the adapter sleeps, and give them back then.
#[test]
fn a_miniport_that_is_not_paused_may_leave_lists_with_the_protocols_when_it_sleeps() {
    let handlers = Handlers { attributes: miniport::set_attributes_without_pause, ..Handlers::default() };
    run(handlers, |_, driver, nic| {
        nic.keep_received(true);
        assert!(driver.run(|| miniport::receive(&[5; 100]) && miniport::receive(&[6; 100])));
        assert_eq!(nic.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS_SUCCESS);
        assert!(!miniport::with(|world| world.paused));
        assert_eq!((nic.kept(), nic.give_back()), (2, 2));
        assert_eq!(nic.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS_SUCCESS);
        assert!(driver.run(|| miniport::receive(&[7; 100])));
        assert_eq!(nic.received(), 3);
    });
}

#[test]
fn ndk_is_opened_disabled_and_enabled() {
    run(Handlers::default(), |_, driver, nic| {
        let opened = nic.open_ndk(VERSION).expect("NDK is enabled");
        assert_eq!(nic.ndk_open(), 1);
        nic.close_ndk(opened);
        driver.run(|| assert_eq!(miniport::raise(ndkpi::NET_PNP_EVENT_CODE::NDK_DISABLE), NDIS_STATUS_SUCCESS));
        assert_eq!(nic.open_ndk(VERSION), Err(NtStatus::NDIS_ADAPTER_NOT_READY));
        driver.run(|| assert_eq!(miniport::raise(ndkpi::NET_PNP_EVENT_CODE::NDK_ENABLE), NDIS_STATUS_SUCCESS));
        assert!(nic.is_ndk_enabled());
        let opened = nic.open_ndk(VERSION).expect("NDK is enabled");
        nic.close_ndk(opened);
    });
}

#[test]
fn a_surprise_removal_ends_the_adapter() {
    let kernel = Kernel::seeded(1).start();
    miniport::prepare(Handlers::default());
    let driver = kernel.load("mini", miniport::driver_entry).expect("the driver loads");
    let nic = driver.add_nic(&[]).expect("the adapter starts");
    nic.keep_received(true);
    assert!(driver.run(|| miniport::receive(&[5; 100])));
    nic.surprise_remove();
    let nic = driver.add_nic(&[]).expect("another adapter starts");
    nic.remove();
    driver.unload();
}

#[test]
fn an_adapter_for_packets_of_ip_has_no_address() {
    let handlers = Handlers { attributes: miniport::set_attributes_for_ip, ..Handlers::default() };
    run(handlers, |_, driver, nic| {
        assert!(nic.mac().is_empty());
        let mut packet = [0; 40];
        packet[0] = 0x45;
        assert!(driver.run(|| miniport::receive(&packet)));
        assert_eq!(nic.take_received(), [packet.to_vec()]);
        assert_eq!(nic.send(&[&packet]).wait(), [NDIS_STATUS_SUCCESS]);
        for power in [NDIS_DEVICE_POWER_STATE::D3, NDIS_DEVICE_POWER_STATE::D0] {
            assert_eq!(nic.set_power(power).status, NDIS_STATUS_SUCCESS);
        }
    });
}

#[test]
fn a_status_is_indicated() {
    run(Handlers::default(), |_, driver, nic| {
        driver.run(|| miniport::indicate_status(miniport::with(|world| world.adapter)));
        let statuses = nic.take_statuses();
        assert_eq!((statuses.len(), statuses[0].code), (1, ndis::NDIS_STATUS_LINK_STATE));
        assert_eq!(statuses[0].bytes, [5, 0, 0, 0]);
    });
}
