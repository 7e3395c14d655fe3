//! An adapter that is pulled while a consumer has a connection over it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use kernel::ConsumerOs;
use ndis::NDIS_STATUS;
use ndk::{Acceptor, Adapter, Connection, Cq, Offer, Pd, Qp, QpSizes};
use ndkpi::{
    NDIS_NDK_LOCAL_ENDPOINT_ENTRY, NDIS_NDK_LOCAL_ENDPOINTS, NtStatus, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE,
};
use simulated_kernel::{Kernel, NdkEvent, Nic};

use crate::machine::{ADDRESSES, VERSION, add, configure, load};

/// A consumer with a connection, and what it is made of in the order in which it has to end.
struct Consumer {
    _connections: [Connection; 2],
    acceptor: Acceptor,
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
    Ok(Consumer { _connections: connections, acceptor, _queue_pairs: [near, far], _queue: cq, _domain: pd, adapter })
}

/// The addresses of the endpoints that an adapter lists, and which of them are listeners'.
fn endpoints(nic: &Nic) -> Vec<([u8; 28], bool)> {
    let head = NDIS_NDK_LOCAL_ENDPOINTS::size_for(0);
    let answer = nic.query(OID_NDK_LOCAL_ENDPOINTS, 1024);
    assert_eq!(answer.status, NDIS_STATUS::SUCCESS);
    let (header, entries) = answer.bytes.split_at(head);
    let entries = entries.chunks_exact(size_of::<NDIS_NDK_LOCAL_ENDPOINT_ENTRY>());
    assert_eq!(header[8..12], u32::try_from(entries.len()).expect("few").to_le_bytes(), "as many as it says");
    entries.map(|entry| (*entry.first_chunk().expect("an address"), entry[29] != 0)).collect()
}

#[test]
fn consumers_lose_their_connections_before_they_are_asked_to_leave_an_adapter_that_is_gone() {
    for seed in 1..8 {
        pulled(&Kernel::seeded(seed).start());
    }
}

fn pulled(kernel: &Kernel) {
    let driver = Arc::new(load(kernel).expect("it loads"));
    let (one, other) = (add(&driver, &[]), add(&driver, &[]));
    configure(kernel, [&one, &other]);
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
    let listens_at = held.acceptor.local_address().expect("it listens");
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
                let _ = event.wait_micros(5_000);
                assert_eq!(provider.open(VERSION).err(), Some(NtStatus::NDIS_ADAPTER_NOT_READY));
                assert!(held.as_ref().is_some_and(|held| held.adapter.create_pd().is_ok()), "objects can be used");
                drop(held);
            });
            asked.fetch_add(1, SeqCst);
        }
    });
    assert_eq!(endpoints(&one), [(driver_common::socket::bytes(listens_at), true)], "connections are listed elsewhere");
    // What follows from this comes when the adapter is gone, and must not let anybody in.
    assert_eq!(one.set(OID_NDK_SET_STATE, &[1]).status, NDIS_STATUS::SUCCESS);
    one.surprise_remove();
    assert_eq!(heard.load(SeqCst), 1);
    other.remove();
    Arc::into_inner(driver).expect("nobody else has it").unload();
}
