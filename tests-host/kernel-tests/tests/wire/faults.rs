//! Everything that can fail does, one after the other. The driver says so, leaves nothing behind, and still unloads.

use std::sync::Arc;

use kernel::KernelRuntime;
use ndk::{Access, Adapter, Completion, Flags, Notify, NtStatus, Offer, QpSizes, Runtime};
use ndkpi::NDK_ADAPTER;
use simulated_kernel::{Injection, Kernel, NdkProvider};

use crate::{
    machine::{ADDRESSES, IPV6_ADDRESSES, VERSION, configure, frame, is_no_memory, load},
    sides::{BELOW, link},
};

/// An adapter as a consumer has it. Nothing here allocates but what may fail: it is the driver's heap.
fn adopt(provider: &Arc<dyn NdkProvider>, raw: *mut NDK_ADAPTER) -> Result<Adapter, NtStatus> {
    let (closes, undone) = (provider.clone(), provider.clone());
    // SAFETY: the adapter came from this provider, and is not used again.
    let os = KernelRuntime::new(move |adapter| unsafe { closes.close(adapter) });
    let os: Box<dyn Runtime> = fallible::try_box(os).map_err(|_| {
        // SAFETY: the adapter came from this provider, and is not used again.
        unsafe { undone.close(raw) };
        NtStatus::INSUFFICIENT_RESOURCES
    })?;
    // SAFETY: the adapter was just opened, and `os` closes such an adapter.
    unsafe { Adapter::from_raw(raw, os) }
}

/// A connection, and a write of several packets over it.
fn use_rdma([near, far]: [Result<Adapter, NtStatus>; 2]) -> Result<(), NtStatus> {
    const LENGTH: u32 = 3000;
    let (near, far) = (near?, far?);
    let (near_domain, far_domain) = (near.create_pd()?, far.create_pd()?);
    let (mut near_queue, far_queue) = (near.create_cq(16)?, far.create_cq(16)?);
    let mut source = near_domain.register(near.memory(4096)?, Access::LOCAL_WRITE)?;
    let target = far_domain.register(far.memory(4096)?, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let mut active = near_domain.create_qp(&near_queue, &near_queue, QpSizes::default(), 1)?;
    let passive = far_domain.create_qp(&far_queue, &far_queue, QpSizes::default(), 2)?;
    let acceptor = far.acceptor((ADDRESSES[1], 0).into())?;
    let from = (&near, (ADDRESSES[0], 0).into());
    let connections = acceptor.connect(from, &active, &passive, &Offer::default(), 5_000_000)?;
    source.write(2900, b"the end")?;
    active.initiator.write(1, &[source.sge(0, LENGTH)?], target.remote(0), Flags::empty())?;
    let mut results = [Completion::EMPTY; 1];
    for result in near_queue.wait(&mut results, Notify::Any)? {
        result.ok()?;
    }
    let mut seen = [0; 7];
    target.read(2900, &mut seen)?;
    assert_eq!(&seen, b"the end");
    drop(connections);
    Ok(())
}

fn scenario(kernel: &Kernel) {
    let driver = match load(kernel) {
        Ok(driver) => driver,
        Err(status) => return assert!(is_no_memory(ndkpi::NtStatus(status)), "{status:#x}"),
    };
    let nics = [0, 1].map(|end| {
        let (local, peer) = (BELOW[end].to_string(), BELOW[1 - end].to_string());
        driver.add_nic(&[("WirePeer", peer.as_str()), ("WireLocal", local.as_str())])
    });
    if let [Ok(one), Ok(other)] = &nics {
        // A socket that could not be had is tried again.
        let mut last = [None; 2];
        for _ in 0..250 {
            if [one, other].iter().zip(&mut last).all(|(nic, last)| link(nic, last) == Some(true)) {
                break;
            }
            kernel.sleep(10_000);
        }
        configure(kernel, [one, other]);
        let bytes = frame(one, other, 1, 300);
        assert_eq!(one.send(&[&bytes, &bytes]).wait().len(), 2);
        let providers = [one.ndk_provider(), other.ndk_provider()];
        // NDIS is not the driver.
        let opened = providers.each_ref().map(|provider| provider.open(VERSION));
        let status = driver.run(|| {
            let adapters = [0, 1].map(|end| opened[end].and_then(|raw| adopt(&providers[end], raw)));
            use_rdma(adapters)
        });
        // Whatever has failed: somebody has said that there is no memory, here or to the peer, or the network has lost it.
        let lost = [
            NtStatus::IO_TIMEOUT,
            NtStatus::HOST_UNREACHABLE,
            NtStatus::INVALID_ADDRESS,
            NtStatus::CONNECTION_REFUSED,
            NtStatus::CONNECTION_ABORTED,
            NtStatus::CONNECTION_INVALID,
            NtStatus::NDIS_ADAPTER_NOT_READY,
        ];
        if let Err(status) = status {
            assert!(is_no_memory(status) || lost.contains(&status), "{status}");
        }
        for address in ADDRESSES.into_iter().chain(IPV6_ADDRESSES) {
            kernel.network().remove_address(address);
        }
    }
    for nic in nics {
        match nic {
            Ok(nic) => nic.remove(),
            Err(status) => assert!(is_no_memory(status), "{status}"),
        }
    }
    driver.unload();
}

#[test]
fn each_call_site_fails_once() {
    let kernel = Kernel::threads().start();
    crate::sides::add_network_below(&kernel);
    kernel.inject(Injection::EachSite);
    let mut sites = 0;
    loop {
        scenario(&kernel);
        let now = kernel.faults_injected();
        if now == sites {
            break;
        }
        sites = now;
    }
    assert!(sites > 60, "only {sites} call sites were reached");
    kernel.inject(Injection::None);
    scenario(&kernel);
}
