//! Findings about memory, tokens and mappings: who commits them, and who comes close.

use std::ptr;

use conformance::Platform;
use interpose::adviser::Finding;
use ndkpi::*;

use crate::{
    consumer::{Contexts, Pair, World, ndk},
    rows::{Found, LOCAL_WRITE, Row, invalidate_and_use, near},
};

/// A fast registration of one page on a connected pair, with what is wrong with it.
fn fast_register(first_byte: u32, length: usize, base: usize, remote: bool) -> Found {
    near(|world, pair| {
        let mr = world.mr(pair.pd, true);
        let status =
            world.request(|completion, context| ndk!(mr, NdkInitializeFastRegisterMr(1, 0, completion, context)));
        assert_eq!(status, NtStatus::SUCCESS);
        let page = NDK_LOGICAL_ADDRESS::from_bits(0x1000);
        let flags = if remote { NDK_OP_FLAG_ALLOW_REMOTE_READ } else { 0 };
        let base = ptr::without_provenance_mut(base);
        let status = ndk!(
            pair.qps[0],
            NdkFastRegister(ptr::without_provenance_mut(5), mr, 1, &raw const page, first_byte, length, base, flags)
        );
        world.platform.settle();
        let _ = status;
        World::drain(pair.cq);
        world.close(mr);
    })
}

/// Binds a window to a plain region of these flags, for a peer to write.
fn bind(flags: u32, length: usize) -> Found {
    near(|world, pair| {
        let region = world.region(pair.pd, flags);
        let mw: *mut NDK_MW =
            world.create(|completion, context, out| ndk!(pair.pd, NdkCreateMw(completion, context, out)));
        let address = ptr::without_provenance_mut(usize::try_from(region.address(0)).expect("an address"));
        let context = ptr::without_provenance_mut(5);
        let flags = NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
        let _ = ndk!(pair.qps[0], NdkBind(context, region.mr, mw, address, length, flags));
        world.platform.settle();
        World::drain(pair.cq);
        world.close(mw);
        world.close(region.mr);
    })
}

fn map_and_release(times: usize) -> Found {
    use conformance::platform::PinnedMemory;
    let world = World::new();
    let memory = conformance::host::HostPinned::new(conformance::platform::Shape::Whole, 4096).expect("memory");
    let (mut size, mut first_byte, mut mapping) = (4096_u32, 0_u32, vec![0_u64; 512]);
    let lam: *mut NDK_LOGICAL_ADDRESS_MAPPING = mapping.as_mut_ptr().cast();
    let status = world.request(|completion, context| {
        let mdl = memory.mdl();
        ndk!(world.adapter, NdkBuildLAM(mdl, 4096, completion, context, lam, &raw mut size, &raw mut first_byte))
    });
    assert_eq!(status, NtStatus::SUCCESS);
    for _ in 0..times {
        ndk!(world.adapter, NdkReleaseLAM(lam));
    }
    world.end()
}

fn receive_into(flags: u32) -> Found {
    near(|world, pair| {
        let region = world.region(pair.pd, flags);
        let element = region.element(0, 64);
        let _ = ndk!(pair.qps[1], NdkReceive(ptr::null_mut(), &raw const element, 1));
        ndk!(pair.qps[1], NdkFlush());
        world.platform.settle();
        World::drain(pair.cq);
        world.close(region.mr);
    })
}

/// A mapping of the first page of a pair's memory, its pages, and the offset of the first byte.
struct Mapped {
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    pages: *const NDK_LOGICAL_ADDRESS,
    first_byte: u32,
}

impl Mapped {
    fn new(world: &World, pair: &Pair) -> Self {
        use conformance::platform::PinnedMemory;
        let (mut size, mut first_byte) = (4096_u32, 0_u32);
        let lam: *mut NDK_LOGICAL_ADDRESS_MAPPING = Box::leak(Box::new([0_u64; 512])).as_mut_ptr().cast();
        let status = world.request(|completion, context| {
            let mdl = pair.region.memory.mdl();
            ndk!(world.adapter, NdkBuildLAM(mdl, 4096, completion, context, lam, &raw mut size, &raw mut first_byte))
        });
        assert_eq!(status, NtStatus::SUCCESS);
        // SAFETY: the mapping was built, of at least one page.
        let pages = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(lam) };
        Self { lam, pages, first_byte }
    }

    /// Registers so many of its bytes.
    fn register(&self, pair: &Pair, mr: *mut NDK_MR, length: usize, base: usize, flags: u32) {
        let context = Contexts::request(length);
        let base = ptr::without_provenance_mut(base + self.first_byte as usize);
        let (qp, pages, first_byte) = (pair.qps[0], self.pages, self.first_byte);
        let post = ndk!(qp, NdkFastRegister(context, mr, 1, pages, first_byte, length, base, flags));
        assert_eq!(post, NtStatus::SUCCESS);
    }
}

/// A region for fast registration of one page.
fn fast_region(world: &World, pair: &Pair) -> *mut NDK_MR {
    let mr = world.mr(pair.pd, true);
    let status = world.request(|completion, context| ndk!(mr, NdkInitializeFastRegisterMr(1, 1, completion, context)));
    assert_eq!(status, NtStatus::SUCCESS);
    mr
}

/// Registers the pages of a mapping, twice or with an invalidation between; then releases the mapping, before or after the last invalidation.
fn register_pages(again: bool, invalidates: bool, releases_late: bool, flags: u32) -> Found {
    near(|world, pair| {
        let (mr, mapped, qp) = (fast_region(world, pair), Mapped::new(world, pair), pair.qps[0]);
        let invalidate = || {
            assert_eq!(ndk!(qp, NdkInvalidate(Contexts::request(3), mr.cast(), 0)), NtStatus::SUCCESS);
            world.platform.settle();
            World::drain(pair.cq);
        };
        mapped.register(pair, mr, 64, 0x10_0000, flags);
        world.platform.settle();
        World::drain(pair.cq);
        if again {
            if invalidates {
                invalidate();
            }
            mapped.register(pair, mr, 32, 0x20_0000, flags);
            world.platform.settle();
            World::drain(pair.cq);
        }
        if releases_late {
            invalidate();
        }
        ndk!(world.adapter, NdkReleaseLAM(mapped.lam));
        world.close(mr);
    })
}

const OP_WRITE: u32 = NDK_OP_FLAG_ALLOW_LOCAL_WRITE;
const OP_REMOTE: u32 = NDK_OP_FLAG_ALLOW_REMOTE_READ;

/// What is registered twice may be either: a window over the first registration is no finding of its own.
#[test]
fn of_what_is_registered_twice_only_that_is_found() {
    let found = near(|world, pair| {
        let (mr, mapped, qp) = (fast_region(world, pair), Mapped::new(world, pair), pair.qps[0]);
        let mw: *mut NDK_MW =
            world.create(|completion, context, out| ndk!(pair.pd, NdkCreateMw(completion, context, out)));
        mapped.register(pair, mr, 512, 0x10_0000, OP_WRITE);
        mapped.register(pair, mr, 64, 0x20_0000, OP_WRITE);
        let first = ptr::without_provenance_mut(0x10_0000 + mapped.first_byte as usize);
        let flags = NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
        let _ = ndk!(qp, NdkBind(Contexts::request(7), mr, mw, first, 512, flags));
        world.platform.settle();
        World::drain(pair.cq);
        ndk!(qp, NdkFlush());
        world.platform.settle();
        World::drain(pair.cq);
        ndk!(world.adapter, NdkReleaseLAM(mapped.lam));
        world.close(mw);
        world.close(mr);
    });
    let findings: Vec<_> = found.iter().map(|(finding, _)| *finding).collect();
    assert_eq!(findings, [Finding::RegionState], "{found:?}");
}

/// A peer may have invalidated it, and polls that do not tell the type have not said so.
#[test]
fn what_a_peer_may_have_invalidated_is_registered_again_without_a_finding() {
    let found = Contexts::One.of(|| {
        near(|world, pair| {
            assert!(pair.receive(1, 64).is_success());
            assert!(pair.send(2, 64, 0).is_success());
            world.completions(pair.cq, 2);
            let (mr, mapped) = (fast_region(world, pair), Mapped::new(world, pair));
            mapped.register(pair, mr, 64, 0x10_0000, OP_REMOTE);
            mapped.register(pair, mr, 64, 0x10_0000, OP_REMOTE);
            world.platform.settle();
            World::drain(pair.cq);
            ndk!(world.adapter, NdkReleaseLAM(mapped.lam));
            world.close(mr);
        })
    });
    assert_eq!(found, []);
}

pub const ROWS: &[Row] = &[
    Row {
        finding: Finding::MemoryInFlight,
        commits: || {
            near(|world, pair| {
                let region = world.region(pair.pd, LOCAL_WRITE);
                let element = region.element(0, 64);
                assert!(ndk!(pair.qps[1], NdkReceive(ptr::null_mut(), &raw const element, 1)).is_success());
                world.try_request(|completion, context| ndk!(region.mr, NdkDeregisterMr(completion, context)));
                world.close(region.mr);
            })
        },
        near: || {
            near(|world, pair| {
                let region = world.region(pair.pd, LOCAL_WRITE);
                let element = region.element(0, 64);
                assert!(ndk!(pair.qps[1], NdkReceive(ptr::null_mut(), &raw const element, 1)).is_success());
                assert!(pair.send(1, 64, 0).is_success());
                world.completions(pair.cq, 2);
                world.try_request(|completion, context| ndk!(region.mr, NdkDeregisterMr(completion, context)));
                world.close(region.mr);
            })
        },
    },
    Row {
        finding: Finding::UnknownToken,
        commits: || {
            near(|world, pair| {
                let region = world.region(pair.pd, LOCAL_WRITE);
                world.try_request(|completion, context| ndk!(region.mr, NdkDeregisterMr(completion, context)));
                let _ = pair.send_element(1, region.element(0, 64));
                world.platform.settle();
                world.close(region.mr);
            })
        },
        near: || {
            near(|world, pair| {
                let region = world.region(pair.pd, LOCAL_WRITE);
                assert!(pair.receive(1, 64).is_success());
                assert!(pair.send_element(2, region.element(0, 64)).is_success());
                world.completions(pair.cq, 2);
                world.close(region.mr);
            })
        },
    },
    Row {
        finding: Finding::TokenAfterInvalidate,
        commits: || invalidate_and_use(true),
        near: || invalidate_and_use(false),
    },
    Row {
        finding: Finding::OutsideRegistration,
        commits: || {
            near(|world, pair| {
                let _ = pair.send_element(1, pair.region.element(8190, 3));
                world.platform.settle();
            })
        },
        near: || {
            near(|world, pair| {
                assert!(pair.receive(1, 64).is_success());
                assert!(pair.send_element(2, pair.region.element(8189, 3)).is_success());
                world.completions(pair.cq, 2);
            })
        },
    },
    Row { finding: Finding::NoLocalWrite, commits: || receive_into(0), near: || receive_into(LOCAL_WRITE) },
    Row {
        finding: Finding::OtherDomain,
        commits: || {
            near(|world, pair| {
                let pd = world.pd();
                let region = world.region(pd, LOCAL_WRITE);
                let _ = pair.send_element(1, region.element(0, 64));
                world.platform.settle();
                world.close(region.mr);
                world.close(pd);
            })
        },
        near: || receive_into(LOCAL_WRITE),
    },
    Row {
        finding: Finding::RegionState,
        commits: || {
            let world = World::new();
            let pd = world.pd();
            let mr = world.mr(pd, true);
            world.try_request(|completion, context| ndk!(mr, NdkDeregisterMr(completion, context)));
            world.close(mr);
            world.close(pd);
            world.end()
        },
        near: || {
            let world = World::new();
            let pd = world.pd();
            let region = world.region(pd, LOCAL_WRITE);
            world.try_request(|completion, context| ndk!(region.mr, NdkDeregisterMr(completion, context)));
            world.close(region.mr);
            world.close(pd);
            world.end()
        },
    },
    Row {
        finding: Finding::FastRegister,
        commits: || fast_register(8, 4096, 0x1_0008, false),
        near: || fast_register(8, 4088, 0x1_0008, false),
    },
    Row { finding: Finding::BindRights, commits: || bind(0, 64), near: || bind(LOCAL_WRITE, 8192) },
    Row {
        finding: Finding::RegionState,
        commits: || register_pages(true, false, false, OP_WRITE),
        near: || register_pages(true, true, true, OP_WRITE),
    },
    Row {
        finding: Finding::MappingInUse,
        commits: || register_pages(false, false, false, OP_REMOTE),
        near: || register_pages(false, false, true, OP_REMOTE),
    },
    Row { finding: Finding::Mapping, commits: || map_and_release(2), near: || map_and_release(1) },
];
