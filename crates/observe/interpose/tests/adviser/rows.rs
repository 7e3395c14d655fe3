//! What the consumers have in common that commit findings.

use std::ptr;

use conformance::{Platform, platform::PinnedMemory};
use interpose::adviser::Finding;
use ndkpi::*;

use crate::consumer::{Differs, World, ndk};

pub type Found = Vec<(Finding, String)>;

/// A consumer that commits a finding, and one that comes close.
pub struct Row {
    pub finding: Finding,
    pub commits: fn() -> Found,
    pub near: fn() -> Found,
}

pub const LOCAL_WRITE: u32 = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;

/// A world with a connected pair, which is ended if `ends`.
pub fn with_pair(ends: bool, depth: u32, entries: u32, work: impl FnOnce(&World, &crate::consumer::Pair)) -> Found {
    let world = World::new();
    let pair = world.pair(depth, entries);
    work(&world, &pair);
    if !ends {
        return world.abandon();
    }
    world.end_pair(&pair);
    world.end()
}

pub fn committed(work: impl FnOnce(&World, &crate::consumer::Pair)) -> Found {
    with_pair(false, 8, 64, work)
}

pub fn near(work: impl FnOnce(&World, &crate::consumer::Pair)) -> Found {
    with_pair(true, 8, 64, work)
}

/// A fast-registered region that is used before or after its invalidation. The adviser looks at the order of the posts; whether
/// the transfer succeeds does not matter.
pub fn invalidate_and_use(before: bool) -> Found {
    near(|world, pair| {
        let mr = world.mr(pair.pd, true);
        let status =
            world.request(|completion, context| ndk!(mr, NdkInitializeFastRegisterMr(1, 1, completion, context)));
        assert_eq!(status, NtStatus::SUCCESS);
        let token = ndk!(mr, NdkGetLocalTokenFromMr());
        let (mut size, mut first_byte) = (4096_u32, 0_u32);
        let mut mapping = vec![0_u64; 512];
        let lam: *mut NDK_LOGICAL_ADDRESS_MAPPING = mapping.as_mut_ptr().cast();
        let status = world.request(|completion, context| {
            let mdl = pair.region.memory.mdl();
            ndk!(world.adapter, NdkBuildLAM(mdl, 4096, completion, context, lam, &raw mut size, &raw mut first_byte))
        });
        assert_eq!(status, NtStatus::SUCCESS);
        // SAFETY: the mapping was built, of at least one page.
        let pages = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(lam) };
        let qp = pair.qps[0];
        let base = ptr::without_provenance_mut(0x10_0000);
        let flags = NDK_OP_FLAG_ALLOW_LOCAL_WRITE;
        let post =
            ndk!(qp, NdkFastRegister(ptr::without_provenance_mut(11), mr, 1, pages, first_byte, 4096, base, flags));
        assert_eq!(post, NtStatus::SUCCESS);
        let invalidate = || {
            let post = ndk!(qp, NdkInvalidate(ptr::without_provenance_mut(12), mr.cast(), 0));
            assert_eq!(post, NtStatus::SUCCESS);
        };
        assert!(pair.receive(13, 64).is_success());
        if before {
            invalidate();
        }
        assert!(pair.send_element(14, NDK_SGE::new(base, 64, token)).is_success());
        if !before {
            invalidate();
        }
        world.platform.settle();
        World::drain(pair.cq);
        ndk!(qp, NdkFlush());
        world.platform.settle();
        World::drain(pair.cq);
        ndk!(world.adapter, NdkReleaseLAM(lam));
        world.close(mr);
    })
}

/// A notification that closes the adapter, or not, or takes long, or returns at another IRQL.
pub fn in_notification(work: fn(&World), differs: Differs) -> Found {
    struct Context {
        world: *const World,
        work: fn(&World),
    }
    unsafe extern "system" fn callback(context: *mut std::ffi::c_void, _: NtStatus) {
        // SAFETY: the test waits for the notification before the context ends.
        let context = unsafe { &*context.cast::<Context>() };
        // SAFETY: the test waits for the notification before the world ends.
        (context.work)(unsafe { &*context.world });
    }
    let world = World::with(differs);
    let context = Context { world: &raw const world, work };
    let cq = world.cq_with(8, Some(callback), ptr::from_ref(&context).cast_mut().cast());
    let pd = world.pd();
    // A queue pair that was never connected can be flushed: its receives complete.
    let qp = world.qp(pd, cq, 4, 1);
    ndk!(cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    assert!(ndk!(qp, NdkReceive(ptr::null_mut(), ptr::null(), 0)).is_success());
    ndk!(qp, NdkFlush());
    world.platform.settle();
    World::drain(cq);
    world.close(qp);
    world.close(pd);
    world.close(cq);
    world.end()
}

pub fn long(longest_callback: u64) -> Differs {
    Differs { longest_callback, threads: true, ..Differs::default() }
}
