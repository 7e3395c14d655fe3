//! NDK over NDIS: opening and closing, enabling and disabling, removal.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use ndis::NDIS_STATUS;
use ndkpi::{NDK_VERSION, NtStatus, OID_NDK_SET_STATE};
use simulated_kernel::{Kernel, NdkEvent, Nic};

use kernel::ConsumerOs;
use ndk::{Acceptor, Adapter, Connection, Cq, Offer, Pd, Qp, QpSizes};

use crate::machine::{ADDRESSES, VERSION, add, configure, load, on_both, with_pair};

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

/// A consumer with a connection, and what it is made of in the order in which it has to end.
struct Consumer {
    _connections: [Connection; 2],
    _acceptor: Acceptor,
    _queue_pairs: [Qp; 2],
    _queue: Cq,
    _domain: Pd,
    adapter: Adapter,
}

/// Connects two queue pairs of an adapter; `lost` counts the sides that hear of the end.
fn consume(adapter: Adapter, lost: &Arc<AtomicU32>) -> Result<Consumer, NtStatus> {
    let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(64)?);
    let near = pd.create_qp(&cq, &cq, QpSizes::default(), 1)?;
    let far = pd.create_qp(&cq, &cq, QpSizes::default(), 2)?;
    let here = (ADDRESSES[0], 0).into();
    let acceptor = adapter.acceptor(here)?;
    let connecting = adapter.create_connector()?.connect(&near, here, acceptor.local_address()?, &Offer::default())?;
    let count = || {
        let lost = lost.clone();
        move || {
            lost.fetch_add(1, SeqCst);
        }
    };
    let accepting = acceptor.wait_for(1_000_000)?.accept(&far, &Offer::default(), count())?;
    let active = connecting.wait()?.complete(count())?.wait()?;
    let connections = [active, accepting.wait()?];
    Ok(Consumer {
        _connections: connections,
        _acceptor: acceptor,
        _queue_pairs: [near, far],
        _queue: cq,
        _domain: pd,
        adapter,
    })
}

#[test]
fn consumers_lose_their_connections_before_they_are_asked_to_leave_an_adapter_that_is_gone() {
    let kernel = Kernel::threads().start();
    let driver = Arc::new(load(&kernel).expect("it loads"));
    let (one, other) = (add(&driver, &[]), add(&driver, &[]));
    configure(&kernel, [&one, &other]);
    let (provider, index) = (one.ndk_provider(), one.if_index());
    let raw = provider.open(VERSION).expect("it is enabled");
    let lost = Arc::new(AtomicU32::new(0));
    let held = driver.run(|| {
        let theirs = provider.clone();
        let os = Box::new(ConsumerOs::new(move |adapter| {
            // SAFETY: the adapter came from this provider, and is not used again.
            unsafe { theirs.close(adapter) };
        }));
        // SAFETY: the adapter was just opened, and `os` closes such an adapter.
        let adapter = unsafe { Adapter::from_raw(raw, os) }.expect("information");
        consume(adapter, &lost).expect("a connection")
    });
    let (heard, code) = (Arc::new(AtomicU32::new(0)), Arc::downgrade(&driver));
    let (held, asked) = (Mutex::new(Some(held)), heard.clone());
    kernel.on_ndk(move |interface, event| {
        if interface == index && event == NdkEvent::Leaving {
            let held = held.lock().expect("no panic").take();
            code.upgrade().expect("the driver is loaded").run(|| {
                // Both sides hear of it, before anything is closed.
                let event = kernel::Event::try_new().expect("memory");
                let waited = (0..1_000).find(|_| lost.load(SeqCst) == 2 || event.wait_micros(1_000));
                assert!(waited.is_some(), "{} sides have heard of it", lost.load(SeqCst));
                assert_eq!(provider.open(VERSION).err(), Some(NtStatus::NDIS_ADAPTER_NOT_READY));
                assert!(held.as_ref().is_some_and(|held| held.adapter.create_pd().is_ok()), "objects can be used");
                drop(held);
            });
            asked.fetch_add(1, SeqCst);
        }
    });
    one.surprise_remove();
    assert_eq!(heard.load(SeqCst), 1);
    other.remove();
    Arc::into_inner(driver).expect("nobody else has it").unload();
}
