//! NDK over NDIS: opening and closing, enabling and disabling, removal.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use ndis::NDIS_STATUS;
use ndkpi::{NDK_VERSION, NtStatus, OID_NDK_SET_STATE};
use simulated_kernel::{Kernel, NdkEvent, Nic};

use crate::machine::{VERSION, add, load, on_both, with_pair};

fn set_state(nic: &Nic, enable: bool) {
    assert_eq!(nic.set(OID_NDK_SET_STATE, &[enable.into()]).status, NDIS_STATUS::SUCCESS);
}

#[test]
fn an_adapter_opens_for_versions_that_there_are() {
    with_pair(&Kernel::threads().start(), &[], |one, other| {
        assert!(one.is_ndk_enabled());
        let adapters: Vec<_> = [one, other, one].map(|nic| (nic, nic.open_ndk(VERSION).expect("it opens"))).into();
        assert_eq!((one.ndk_open(), other.ndk_open()), (2, 1));
        for (nic, adapter) in adapters {
            nic.close_ndk(adapter);
        }
        assert_eq!(one.open_ndk(NDK_VERSION::new(3, 0)), Err(NtStatus::NDIS_BAD_VERSION));
        assert_eq!(one.open_ndk(NDK_VERSION::new(2, 9)), Err(NtStatus::NDIS_BAD_VERSION));
    });
}

/// The version shows the profile. The numbers of the other ones are `provider::Profile`'s.
#[test]
fn an_adapter_is_limited_like_its_profile() {
    let kernel = Kernel::threads().start();
    let driver = load(&kernel).expect("it loads");
    for (profile, versions) in [("0", [true, true]), ("4", [false, true]), ("6", [true, true])] {
        let nic = add(&driver, &[("RdmaProfile", profile)]);
        for (major, is_there) in [2, 1].into_iter().zip(versions) {
            let opened = nic.open_ndk(NDK_VERSION::new(major, 0));
            assert_eq!(opened.is_ok(), is_there, "profile {profile}, NDKPI {major}");
            if let Ok(adapter) = opened {
                nic.close_ndk(adapter);
            }
        }
        nic.remove();
    }
    driver.unload();
}

#[test]
fn what_the_administrator_has_switched_off_stays_off() {
    let kernel = Kernel::threads().start();
    let driver = load(&kernel).expect("it loads");
    let nic = add(&driver, &[("*NetworkDirect", "0")]);
    assert!(!nic.is_ndk_enabled());
    assert_eq!(nic.open_ndk(VERSION), Err(NtStatus::NDIS_ADAPTER_NOT_READY));
    set_state(&nic, true);
    kernel.sleep(10_000);
    assert!(!nic.is_ndk_enabled());
    assert_eq!(nic.open_ndk(VERSION), Err(NtStatus::NDIS_ADAPTER_NOT_READY));
    nic.remove();
    driver.unload();
}

#[test]
fn ndk_is_switched_off_and_on_while_consumers_have_adapters_open() {
    on_both(5, |kernel| {
        let events = Arc::new([const { AtomicU32::new(0) }; 2]);
        let heard = events.clone();
        kernel.on_ndk(move |_, event| {
            match event {
                NdkEvent::Enabled => heard[1].fetch_add(1, SeqCst),
                NdkEvent::Disabled => heard[0].fetch_add(1, SeqCst),
                NdkEvent::Leaving => 0,
            };
        });
        with_pair(kernel, &[], |nic, _| {
            for round in 1..4 {
                let adapter = nic.open_ndk(VERSION).expect("it is enabled");
                set_state(nic, false);
                assert_eq!(nic.open_ndk(VERSION), Err(NtStatus::NDIS_ADAPTER_NOT_READY), "at once");
                kernel.wait_until(|| events[0].load(SeqCst) == round);
                kernel.sleep(2_000);
                // Asked to come back while the event waits for the consumer: it does when that has closed.
                set_state(nic, true);
                kernel.sleep(2_000);
                assert_eq!(events[1].load(SeqCst), round - 1, "the consumer has not closed yet");
                nic.close_ndk(adapter);
                kernel.wait_until(|| events[1].load(SeqCst) == round);
                kernel.wait_until(|| nic.is_ndk_enabled());
            }
        });
    });
}

#[test]
fn changing_ones_mind_ends_where_it_was_asked_to() {
    for seed in 1..20 {
        let kernel = Kernel::seeded(seed).start();
        with_pair(&kernel, &[], |nic, _| {
            for step in 0..8 {
                set_state(nic, step % 3 == 1);
            }
            set_state(nic, true);
            kernel.wait_until(|| nic.is_ndk_enabled());
            kernel.sleep(20_000);
            assert!(nic.is_ndk_enabled());
            let adapter = nic.open_ndk(VERSION).expect("it is enabled");
            nic.close_ndk(adapter);
            set_state(nic, false);
        });
    }
}
