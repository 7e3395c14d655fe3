//! The wrapper `ndk` as a driver uses it: on `kernel::KernelRuntime`, in the simulated kernel, which looks for what is left behind.

#![cfg(unix)]

use std::{cell::Cell, sync::mpsc};

use driver_common::os::Kernel as KernelOs;
use kernel::{KernelRuntime, at_dispatch_level};
use ndk::{Access, Adapter, Completion, Connection, Cq, Flags, Mr, Notify, NtStatus, Offer, Operation, Qp, QpSizes};
use provider::{CompletionMode, Config, Device};
use simulated_kernel::Kernel;

/// Runs `work` on an adapter, as code of a driver that is loaded for it, in each way in which requests complete.
fn on_an_adapter(work: impl Fn(&Adapter) -> Result<(), NtStatus>) {
    let modes = [CompletionMode::Inline, CompletionMode::Pending, CompletionMode::Early, CompletionMode::Mixed];
    let kernels = [Kernel::threads(), Kernel::seeded(3), Kernel::seeded(4).preemption(40), Kernel::threads()];
    for (mode, kernel) in modes.into_iter().zip(kernels) {
        let kernel = kernel.start();
        let driver = kernel.load("softndk", softndk::driver_entry).expect("the provider loads");
        driver.run(|| {
            let config = Config { mode, addresses: Config::addresses_of(1), ..Config::default() };
            let device = Device::try_new(&KernelOs, config).expect("an adapter");
            let raw = Device::open(&device, ndk::NDK_VERSION::V2_1).expect("it opens");
            let os = Box::new(KernelRuntime::new(|adapter| {
                // SAFETY: the adapter came from `Device::open` and is not used again.
                unsafe { Device::<KernelOs>::close(adapter) }
            }));
            // SAFETY: the adapter was just opened, and `os` closes such an adapter.
            let adapter = unsafe { Adapter::from_raw(raw, os) }.expect("information");
            assert_eq!(work(&adapter), Ok(()));
            drop(adapter);
            drop(device);
        });
        // Looks for memory, MDLs and DPCs that are left.
        driver.unload();
    }
}

struct Sides {
    mr: Mr,
    cq: Cq,
    near: Qp,
    far: Qp,
    connections: [Connection; 2],
}

fn sides(adapter: &Adapter) -> Result<Sides, NtStatus> {
    let pd = adapter.create_pd()?;
    let mr = pd.register(adapter.memory(8192)?, Access::LOCAL_WRITE)?;
    let cq = adapter.create_cq(64)?;
    let near = pd.create_qp(&cq, &cq, QpSizes::default(), 1)?;
    let far = pd.create_qp(&cq, &cq, QpSizes::default(), 2)?;
    let here = "192.0.2.1:0".parse().expect("an address");
    let acceptor = adapter.acceptor(here)?;
    assert_eq!(acceptor.wait_for(100).err(), Some(NtStatus::IO_TIMEOUT));
    let connecting = adapter.create_connector()?.connect(&near, here, acceptor.local_address()?, &Offer::default())?;
    let accepting = acceptor.wait_for(1_000_000)?.accept(&far, &Offer::default(), || ())?;
    let active = connecting.wait()?.complete(|| ())?.wait()?;
    Ok(Sides { mr, cq, near, far, connections: [active, accepting.wait()?] })
}

#[test]
fn a_message_arrives_and_nothing_is_left() {
    on_an_adapter(|adapter| {
        let mut all = sides(adapter)?;
        all.mr.write(0, b"message")?;
        all.far.receiver.receive(1, &[all.mr.sge(4096, 7)?])?;
        all.near.initiator.send(2, &[all.mr.sge(0, 7)?], Flags::empty())?;
        let (mut results, mut seen) = ([Completion::EMPTY; 4], 0);
        while seen < 2 {
            for done in all.cq.wait(&mut results, Notify::Any)? {
                done.ok()?;
                seen += 1;
            }
        }
        let mut bytes = [0; 7];
        all.mr.read(4096, &mut bytes)?;
        assert_eq!(&bytes, b"message");
        all.connections[0].disconnect()?.wait()
    });
}

#[test]
fn a_callback_owns_its_queue_pairs_and_ends_at_dispatch_level() {
    on_an_adapter(|adapter| {
        let Sides { mr, cq, near, mut far, connections } = sides(adapter)?;
        let (tell, told) = mpsc::channel();
        far.receiver.receive(1, &[mr.sge(0, 8)?])?;
        let mut near_initiator = near.initiator;
        near_initiator.send(2, &[mr.sge(64, 8)?], Flags::SILENT)?;
        let notified = cq.notify(Notify::Any, move |poller, status| {
            let _owned = &far;
            let mut results = [Completion::EMPTY; 4];
            for done in poller.poll(&mut results) {
                let _ = tell.send((done.operation(), done.status(), status));
            }
            poller.arm(Notify::Any);
        })?;
        let event = kernel::Event::try_new()?;
        let first = loop {
            match told.try_recv() {
                Ok(first) => break first,
                Err(_) => drop(event.wait_micros(100)),
            }
        };
        assert_eq!(first, (Some(Operation::Receive), NtStatus::SUCCESS, NtStatus::SUCCESS));
        let pieces = Cell::new(Some((notified, near_initiator, near.receiver, connections, mr)));
        // Everything may go at DISPATCH_LEVEL; creating waits, so it is refused there.
        let refused = at_dispatch_level(|| {
            drop(pieces.take());
            adapter.create_pd().err()
        });
        assert_eq!(refused, Some(NtStatus::INVALID_DEVICE_STATE));
        Ok(())
    });
}
