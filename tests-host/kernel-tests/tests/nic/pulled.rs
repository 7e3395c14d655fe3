//! An adapter that is pulled, halted or goes to sleep while a consumer has a connection over it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use kernel::KernelRuntime;
use ndis::{NDIS_DEVICE_POWER_STATE, NDIS_STATUS, NL_DAD_STATE};
use ndk::{Acceptor, Adapter, Connection, Cq, Offer, Pd, Qp, QpSizes};
use ndkpi::{
    NDIS_NDK_LOCAL_ENDPOINT_ENTRY, NDIS_NDK_LOCAL_ENDPOINTS, NtStatus, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE,
};
use simulated_kernel::{Driver, Kernel, NdkEvent, Nic};

use crate::machine::{ADDRESSES, VERSION, add, configure, load};

/// A connection between two queue pairs of an adapter, in the order in which they have to end.
struct Line {
    _connections: [Connection; 2],
    _queue_pairs: [Qp; 2],
}

/// A consumer with connections, and what it is made of in the order in which it has to end.
struct Consumer {
    lines: Vec<Line>,
    acceptor: Acceptor,
    queue: Cq,
    domain: Pd,
    adapter: Adapter,
}

impl Consumer {
    /// Connects two queue pairs of an adapter; `lost` counts the sides that hear of the end.
    fn try_new(adapter: Adapter, lost: &Arc<AtomicU32>) -> Result<Self, NtStatus> {
        let (domain, queue) = (adapter.create_pd()?, adapter.create_cq(64)?);
        let acceptor = adapter.acceptor((ADDRESSES[0], 0).into())?;
        let mut this = Self { lines: Vec::new(), acceptor, queue, domain, adapter };
        this.connect(lost)?;
        Ok(this)
    }

    /// Connects two more queue pairs.
    fn connect(&mut self, lost: &Arc<AtomicU32>) -> Result<(), NtStatus> {
        let Self { acceptor, queue, domain, adapter, .. } = self;
        let near = domain.create_qp(queue, queue, QpSizes::default(), 1)?;
        let far = domain.create_qp(queue, queue, QpSizes::default(), 2)?;
        let (here, there) = ((ADDRESSES[0], 0).into(), acceptor.local_address()?);
        let connecting = adapter.create_connector()?.connect(&near, here, there, &Offer::default())?;
        let count = || {
            let lost = lost.clone();
            move || {
                lost.fetch_add(1, SeqCst);
            }
        };
        let accepting = acceptor.wait_for(1_000_000)?.accept(&far, &Offer::default(), count())?;
        let active = connecting.wait()?.complete(count())?.wait()?;
        let line = Line { _connections: [active, accepting.wait()?], _queue_pairs: [near, far] };
        self.lines.push(line);
        Ok(())
    }
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

/// A consumer that has an adapter open, with a connection.
fn open(driver: &Driver, nic: &Nic, lost: &Arc<AtomicU32>) -> Consumer {
    let provider = nic.ndk_provider();
    let raw = provider.open(VERSION).expect("it is enabled");
    driver.run(|| {
        let os = Box::new(KernelRuntime::new(move |adapter| {
            // SAFETY: the adapter came from this provider, and is not used again.
            unsafe { provider.close(adapter) };
        }));
        // SAFETY: the adapter was just opened, and `os` closes such an adapter.
        let adapter = unsafe { Adapter::from_raw(raw, os) }.expect("information");
        Consumer::try_new(adapter, lost).expect("a connection")
    })
}

/// Waits until that many sides have heard of the end of their connection.
fn wait_for(lost: &AtomicU32, sides: u32) {
    let event = kernel::Event::try_new().expect("memory");
    let heard = (0..1_000).find(|_| lost.load(SeqCst) == sides || event.wait_micros(1_000));
    assert!(heard.is_some(), "{} sides of {sides} have heard of it", lost.load(SeqCst));
}

/// Nobody has told the consumer to close when the adapter is halted: it closes because it has lost its connection.
#[test]
fn a_halt_ends_connections_before_it_waits_for_who_has_the_adapter_open() {
    for seed in 1..8 {
        let kernel = Kernel::seeded(seed).start();
        let driver = load(&kernel).expect("it loads");
        let (one, other) = (add(&driver, &[]), add(&driver, &[]));
        configure(&kernel, [&one, &other]);
        let lost = Arc::new(AtomicU32::new(0));
        let held = open(&driver, &one, &lost);
        let closer = driver.run(|| {
            let lost = lost.clone();
            let close = move || {
                wait_for(&lost, 2);
                drop(held);
            };
            kernel::Thread::try_spawn(close).expect("a thread")
        });
        one.remove_untold();
        driver.run(|| drop(closer));
        other.remove();
        driver.unload();
    }
}

/// Sleep ends what goes over an adapter, as hardware without power does, and it can be used again when it wakes.
#[test]
fn consumers_lose_their_connections_when_the_adapter_sleeps_and_begin_anew_when_it_wakes() {
    for seed in 1..8 {
        let kernel = Kernel::seeded(seed).start();
        let driver = load(&kernel).expect("it loads");
        let (one, other) = (add(&driver, &[]), add(&driver, &[]));
        configure(&kernel, [&one, &other]);
        let lost = Arc::new(AtomicU32::new(0));
        let mut held = open(&driver, &one, &lost);
        for round in 1..3 {
            assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS::SUCCESS);
            driver.run(|| wait_for(&lost, 2 * round));
            let closed = one.open_ndk(VERSION).err();
            assert_eq!(closed, Some(NtStatus::NDIS_ADAPTER_NOT_READY), "who wants to begin waits until it wakes");
            assert!(driver.run(|| held.connect(&lost)).is_err(), "nothing begins while it sleeps");
            // As Windows has the addresses of an interface without a link.
            kernel.network().set_dad_state(ADDRESSES[0], NL_DAD_STATE::TENTATIVE);
            kernel.sleep(5_000);
            // From one state of low power to another one.
            assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D2).status, NDIS_STATUS::SUCCESS);
            assert_eq!(one.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS::SUCCESS);
            kernel.network().set_dad_state(ADDRESSES[0], NL_DAD_STATE::PREFERRED);
            kernel.sleep(5_000);
            // The same objects, and the listener that there was.
            driver.run(|| held.connect(&lost)).expect("a connection");
            let opened = one.open_ndk(VERSION).expect("it is awake");
            one.close_ndk(opened);
            assert_eq!(lost.load(SeqCst), 2 * round, "the new connection is whole");
        }
        driver.run(|| drop(held));
        one.remove();
        other.remove();
        driver.unload();
    }
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
        let os = Box::new(KernelRuntime::new(move |adapter| {
            // SAFETY: the adapter came from this provider, and is not used again.
            unsafe { theirs.close(adapter) };
        }));
        // SAFETY: the adapter was just opened, and `os` closes such an adapter.
        let adapter = unsafe { Adapter::from_raw(raw, os) }.expect("information");
        Consumer::try_new(adapter, &lost).expect("a connection")
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
