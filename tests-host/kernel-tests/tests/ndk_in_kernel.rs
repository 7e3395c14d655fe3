//! The wrapper `ndk` as a driver uses it: on `kernel::KernelRuntime`, in the simulated kernel, which looks for what is left behind.

#![cfg(unix)]

extern crate wdk_bindings as wdk_sys;

use std::{cell::Cell, ffi::c_void, ptr, sync::mpsc};

use driver_common::os::Kernel as KernelOs;
use kernel::{KernelRuntime, at_dispatch_level};
use ndk::{Access, Adapter, Completion, Connection, Cq, Flags, Mr, Notify, NtStatus, Offer, Operation, Qp, QpSizes};
use ndkpi::{
    NDK_ADAPTER, NDK_FN_CREATE_COMPLETION, NDK_FN_REQUEST_COMPLETION, NDK_MR, NDK_MR_FLAG_ALLOW_LOCAL_WRITE,
    NDK_OBJECT_HEADER, NDK_PD,
};
use provider::{CompletionMode, Config, Device};
use simulated_kernel::{Kernel, Rule};
use wdk_sys::{
    MDL, POOL_FLAG_NON_PAGED, POOL_FLAG_PAGED, PVOID,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, IoAllocateMdl, IoFreeMdl, MmBuildMdlForNonPagedPool, MmProbeAndLockPages,
        MmUnlockPages,
    },
};

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

/// A provider's adapter, and non-paged or pageable memory of the driver's own with an MDL.
struct Lender {
    adapter: *mut NDK_ADAPTER,
    mr: *mut NDK_MR,
    block: PVOID,
    mdl: *mut MDL,
}

const TAG: u32 = u32::from_ne_bytes(*b"Lend");
const BYTES: usize = 8192;

unsafe extern "system" fn created(_: *mut c_void, _: NtStatus, _: *mut NDK_OBJECT_HEADER) {}
unsafe extern "system" fn requested(_: *mut c_void, _: NtStatus) {}
unsafe extern "system" fn closed(_: *mut c_void) {}

/// A call of an object's dispatch table, which completes in the call.
macro_rules! ndk {
    ($object:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the object is open.
        let table = unsafe { (*$object).Dispatch };
        // SAFETY: the provider's tables live as long as the program.
        let function = unsafe { (*table).$function }.expect("a full table");
        // SAFETY: the object is open; the rest is as right or wrong as the test wants it.
        unsafe { function($($argument),*) }
    }};
}

impl Lender {
    /// Registers the region.
    fn lend(&self) {
        let done = (Some(requested as NDK_FN_REQUEST_COMPLETION), ptr::null_mut());
        let flags = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        let status = ndk!(self.mr, NdkRegisterMr(self.mr, self.mdl.cast(), BYTES, flags, done.0, done.1));
        assert_eq!(status, NtStatus::SUCCESS);
    }

    fn take_back(&self) {
        let status = ndk!(self.mr, NdkDeregisterMr(self.mr, Some(requested), ptr::null_mut()));
        assert_eq!(status, NtStatus::SUCCESS);
    }

    fn close_region(&self) {
        // SAFETY: a region begins with its header.
        let header = unsafe { &raw mut (*self.mr).Header };
        assert_eq!(ndk!(self.mr, NdkCloseMr(header, Some(closed), ptr::null_mut())), NtStatus::SUCCESS);
    }

    /// A mapping with room for its pages.
    fn map(&self) -> [u64; 8] {
        let mut mapping = [0_u64; 8];
        let (mut size, mut first) = (64, 0);
        let place = ptr::from_mut(&mut mapping).cast();
        let status = ndk!(
            self.adapter,
            NdkBuildLAM(
                self.adapter,
                self.mdl.cast(),
                BYTES,
                None,
                ptr::null_mut(),
                place,
                &raw mut size,
                &raw mut first
            )
        );
        assert_eq!(status, NtStatus::SUCCESS);
        mapping
    }

    fn unmap(&self, mut mapping: [u64; 8]) {
        ndk!(self.adapter, NdkReleaseLAM(self.adapter, ptr::from_mut(&mut mapping).cast()));
    }

    fn free_block(&self) {
        // SAFETY: the driver's own block.
        unsafe { ExFreePoolWithTag(self.block, TAG) };
    }

    fn free_mdl(&self) {
        // SAFETY: the driver's own MDL.
        unsafe { IoFreeMdl(self.mdl) };
    }

    fn unlock(&self) {
        // SAFETY: the driver's own MDL, whose pages are locked.
        unsafe { MmUnlockPages(self.mdl) };
    }
}

/// Runs `work` with memory that is pageable, and locked, or not. At its end that is free, and the region closed.
fn lending(is_paged: bool, work: fn(&Lender)) {
    let kernel = Kernel::seeded(1).start();
    let driver = kernel.load("softndk", softndk::driver_entry).expect("the provider loads");
    driver.run(|| {
        let config = Config { mode: CompletionMode::Inline, ..Config::default() };
        let device = Device::try_new(&KernelOs, config).expect("an adapter");
        let adapter = Device::open(&device, ndk::NDK_VERSION::V2_1).expect("it opens");
        let (mut pd, mut mr): (*mut NDK_PD, *mut NDK_MR) = Default::default();
        let done = Some(created as NDK_FN_CREATE_COMPLETION);
        let status = ndk!(adapter, NdkCreatePd(adapter, done, ptr::null_mut(), &raw mut pd));
        assert_eq!(status, NtStatus::SUCCESS);
        let status = ndk!(pd, NdkCreateMr(pd, 0, done, ptr::null_mut(), &raw mut mr));
        assert_eq!(status, NtStatus::SUCCESS);
        let pool = if is_paged { POOL_FLAG_PAGED } else { POOL_FLAG_NON_PAGED };
        // SAFETY: no conditions at this IRQL.
        let block = unsafe { ExAllocatePool2(pool, BYTES as u64, TAG) };
        // SAFETY: a block of so many bytes.
        let mdl = unsafe { IoAllocateMdl(block, BYTES.try_into().expect("a small block"), 0, 0, ptr::null_mut()) };
        if is_paged {
            // SAFETY: a new MDL of pageable memory that is there.
            unsafe { MmProbeAndLockPages(mdl, 0, 0) };
        } else {
            // SAFETY: a new MDL of non-paged pool.
            unsafe { MmBuildMdlForNonPagedPool(mdl) };
        }
        work(&Lender { adapter, mr, block, mdl });
        // SAFETY: a domain begins with its header.
        let header = unsafe { &raw mut (*pd).Header };
        assert_eq!(ndk!(pd, NdkClosePd(header, Some(closed), ptr::null_mut())), NtStatus::SUCCESS);
        // SAFETY: the adapter came from `Device::open` and is not used again.
        unsafe { Device::<KernelOs>::close(adapter) };
        drop(device);
    });
    driver.unload();
}

//= NDKPI 7.4.1
//= NDKPI 7.5.3
#[test]
fn memory_is_the_consumers_again_when_nothing_uses_it() {
    lending(false, |lender| {
        lender.lend();
        lender.take_back();
        // The region can be registered again, and a mapping may outlive its MDL.
        lender.lend();
        lender.take_back();
        lender.close_region();
        let mapping = lender.map();
        lender.free_mdl();
        lender.unmap(mapping);
        lender.free_block();
    });
    lending(true, |lender| {
        // A close ends a registration too.
        lender.lend();
        lender.close_region();
        lender.unlock();
        lender.free_mdl();
        lender.free_block();
    });
}

macro_rules! lent_too_long {
    ($($name:ident by $is_paged:literal $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let name = concat!(module_path!(), "::", stringify!($name));
                simulated_kernel::caught(name, Rule::NdkMemoryInUse, || lending($is_paged, $work));
            }
        )+
    };
}

lent_too_long! {
    a_block_freed_while_its_region_is_registered by false |lender| { lender.lend(); lender.free_block(); };
    an_mdl_freed_while_its_region_is_registered by false |lender| { lender.lend(); lender.free_mdl(); };
    pageable_memory_freed_while_its_region_is_registered by true |lender| { lender.lend(); lender.free_block(); };
    pages_unlocked_while_their_region_is_registered by true |lender| { lender.lend(); lender.unlock(); };
    a_block_freed_while_a_mapping_is_built by false |lender| { let _mapping = lender.map(); lender.free_block(); };
    pages_unlocked_while_a_mapping_is_built by true |lender| { let _mapping = lender.map(); lender.unlock(); };
}
