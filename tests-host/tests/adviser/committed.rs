//! For each finding a consumer that commits it, and one that comes close and does not.

use std::{collections::BTreeSet, ptr};

use conformance::{Platform, platform::PinnedMemory};
use host::machine::{Irql, lower, raise};
use interpose::{Function, adviser::Finding};
use ndkpi::*;
use provider::CompletionMode;

use crate::consumer::{Differs, Done, Moved, World, closed, ndk};

type Found = Vec<(Finding, String)>;

/// A consumer that commits a finding, and one that comes close.
struct Row {
    finding: Finding,
    commits: fn() -> Found,
    near: fn() -> Found,
}

const LOCAL_WRITE: u32 = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;

/// A world with a connected pair, which is ended if `ends`.
fn with_pair(ends: bool, depth: u32, entries: u32, work: impl FnOnce(&World, &crate::consumer::Pair)) -> Found {
    let world = World::new();
    let pair = world.pair(depth, entries);
    work(&world, &pair);
    if !ends {
        return world.abandon();
    }
    world.end_pair(&pair);
    world.end()
}

fn committed(work: impl FnOnce(&World, &crate::consumer::Pair)) -> Found {
    with_pair(false, 8, 64, work)
}

fn near(work: impl FnOnce(&World, &crate::consumer::Pair)) -> Found {
    with_pair(true, 8, 64, work)
}

/// Notifies a completion queue by a send, and takes the completions if `drains`.
fn notify(world: &World, pair: &crate::consumer::Pair, drains: bool) {
    let before = world.platform.now();
    ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    assert!(pair.receive(1, 64).is_success());
    assert!(pair.send(2, 64, 0).is_success());
    world.platform.settle();
    assert!(world.platform.now() >= before);
    if drains {
        assert_eq!(world.completions(pair.cq, 2).len(), 2);
    }
}

fn connector_with_data(length: usize) -> Found {
    let world = World::new();
    let (pd, cq) = (world.pd(), world.cq(8));
    let (qp, connector) = (world.qp(pd, cq, 4, 1), world.connector());
    let (local, data) = (world.address(0), vec![7_u8; length]);
    // Nobody listens there: the connect ends with a refusal.
    let remote = world.address(9);
    let status = world.request(|completion, context| {
        ndk!(
            connector,
            NdkConnect(
                qp,
                local.as_ptr(),
                local.length(),
                remote.as_ptr(),
                remote.length(),
                1,
                1,
                data.as_ptr().cast(),
                u32::try_from(length).expect("small"),
                completion,
                context
            )
        )
    });
    assert!(!status.is_success());
    world.close(connector);
    world.close(qp);
    world.close(cq);
    world.close(pd);
    world.end()
}

fn resize_and_moderate(without: bool, interval: u32, count: u32) -> Found {
    let adjust: fn(&mut provider::Config) = if without {
        |config| {
            config.info.AdapterFlags &=
                !(NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED);
        }
    } else {
        |_| {}
    };
    let world = World::with(Differs { adjust, ..Differs::default() });
    let cq = world.cq(8);
    world.try_request(|completion, context| ndk!(cq, NdkResizeCq(16, completion, context)));
    let _ = ndk!(cq, NdkControlCqInterruptModeration(interval, count));
    world.close(cq);
    world.end()
}

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

/// A fast-registered region that is used before or after its invalidation. The adviser looks at the order of the posts; whether
/// the transfer succeeds does not matter.
fn invalidate_and_use(before: bool) -> Found {
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

/// Closes a protection domain that has a region, with the context on the stack or not; then the region.
fn close_in_order(successors_first: bool) -> Found {
    let world = World::with(Differs { completion: CompletionMode::Pending, ..Differs::default() });
    let pd = world.pd();
    let mr = world.mr(pd, false);
    // Lives longer than all calls: on the stack, but never returned from.
    let here = Done::default();
    let context = ptr::from_ref(&here).cast_mut().cast();
    if successors_first {
        world.close(mr);
    }
    let status = World::close_with(pd, context);
    if !successors_first {
        world.close(mr);
    }
    if status == NtStatus::PENDING {
        world.wait("the close", &|| here.count() > 0);
    }
    world.end()
}

/// A close whose context lies in a frame that returns while it pends.
#[inline(never)]
fn close_and_return(world: &World, pd: *mut NDK_PD, waits: bool) -> usize {
    let here = Done::default();
    let status = World::close_with(pd, ptr::from_ref(&here).cast_mut().cast());
    if waits && status == NtStatus::PENDING {
        world.wait("the close", &|| here.count() > 0);
    }
    std::hint::black_box(ptr::from_ref(&here).addr())
}

/// The same, far down the stack: what comes after it does not reach as far.
#[inline(never)]
fn close_far_down(world: &World, pd: *mut NDK_PD, waits: bool) {
    #[expect(clippy::large_stack_arrays, reason = "the stack is what it is about")]
    let room = [0_u8; 48 << 10];
    std::hint::black_box(&room);
    close_and_return(world, pd, waits);
    std::hint::black_box(&room);
}

fn stack_context(waits: bool) -> Found {
    let world = World::with(Differs { completion: CompletionMode::Pending, ..Differs::default() });
    let (pd, other) = (world.pd(), world.pd());
    close_far_down(&world, pd, waits);
    let _ = ndk!(other, NdkQueryExtension(ptr::null(), NDK_VERSION::V1_2, ptr::null_mut()));
    if !waits {
        return world.abandon();
    }
    world.close(other);
    world.end()
}

/// A notification that closes the adapter, or not, or takes long, or returns at another IRQL.
fn in_notification(work: fn(&World), differs: Differs) -> Found {
    struct Context {
        world: *const World,
        work: fn(&World),
    }
    unsafe extern "system" fn callback(context: *mut std::ffi::c_void, _: NtStatus) {
        // SAFETY: the test waits for the notification before the context ends.
        let context = unsafe { &*context.cast::<Context>() };
        // SAFETY: as above.
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

fn connection_data(buffer: bool, length: u32) -> Found {
    near(|_, pair| {
        let (mut data, mut length) = ([0_u8; 600], length);
        let buffer = if buffer { data.as_mut_ptr().cast() } else { ptr::null_mut() };
        let _ =
            ndk!(pair.connectors[0], NdkGetConnectionData(ptr::null_mut(), ptr::null_mut(), buffer, &raw mut length));
    })
}

fn cq_of(depth: u32) -> Found {
    let world = World::new();
    let mut out = ptr::null_mut();
    let done = Done::new();
    let status = ndk!(
        world.adapter,
        NdkCreateCq(
            depth,
            Some(crate::consumer::notified),
            done.context(),
            ptr::null(),
            Some(crate::consumer::created),
            done.context(),
            &raw mut out
        )
    );
    if status.is_success() {
        world.close(out);
    }
    world.end()
}

fn disconnect(waits: bool) -> Found {
    near(|world, pair| {
        assert!(pair.receive(1, 64).is_success());
        assert!(pair.send(2, 64, 0).is_success());
        if waits {
            world.completions(pair.cq, 2);
        }
        let status = world.request(|completion, context| ndk!(pair.connectors[0], NdkDisconnect(completion, context)));
        assert_eq!(status, NtStatus::SUCCESS);
        if !waits {
            World::drain(pair.cq);
        }
    })
}

const ROWS: &[Row] = &[
    Row {
        finding: Finding::OverlappingCqCalls,
        commits: || {
            let world = World::new();
            let cq = Moved::new(world.cq(8));
            world.inside(Function::GetCqResultsEx, move || ndk!(cq.get(), NdkArmCq(NDK_CQ_NOTIFY_ANY)));
            World::drain(cq.get());
            world.close(cq.get());
            world.end()
        },
        near: || {
            let world = World::new();
            let (one, other) = (world.cq(8), Moved::new(world.cq(8)));
            world.inside(Function::GetCqResultsEx, move || ndk!(other.get(), NdkArmCq(NDK_CQ_NOTIFY_ANY)));
            World::drain(one);
            ndk!(one, NdkArmCq(NDK_CQ_NOTIFY_ANY));
            world.close(one);
            world.close(other.get());
            world.end()
        },
    },
    Row {
        finding: Finding::OverlappingPosts,
        commits: || {
            committed(|world, pair| {
                let qp = Moved::new(pair.qps[0]);
                world.inside(Function::Send, move || {
                    let _ = ndk!(qp.get(), NdkSend(ptr::null_mut(), ptr::null(), 0, 0));
                });
                assert!(pair.send(2, 64, 0).is_success());
            })
        },
        near: || {
            near(|world, pair| {
                let qp = Moved::new(pair.qps[0]);
                world.inside(Function::Send, move || {
                    let _ = ndk!(qp.get(), NdkReceive(ptr::null_mut(), ptr::null(), 0));
                });
                assert!(pair.receive(1, 64).is_success());
                assert!(pair.send(2, 64, 0).is_success());
                world.completions(pair.cq, 2);
            })
        },
    },
    Row {
        finding: Finding::NotDrained,
        commits: || {
            near(|world, pair| {
                notify(world, pair, false);
                // Two completions are there, and one is looked at.
                let mut result = [NDK_RESULT_EX::ZEROED; 1];
                assert_eq!(ndk!(pair.cq, NdkGetCqResultsEx(result.as_mut_ptr(), 1)), 1);
                notify(world, pair, false);
                world.completions(pair.cq, 3);
            })
        },
        near: || {
            near(|world, pair| {
                notify(world, pair, true);
                notify(world, pair, true);
            })
        },
    },
    Row {
        finding: Finding::WeakerArm,
        commits: || {
            near(|_, pair| {
                ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
                ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_SOLICITED));
            })
        },
        near: || {
            near(|world, pair| {
                ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ERRORS));
                ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_SOLICITED));
                notify(world, pair, true);
                ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_SOLICITED));
            })
        },
    },
    Row {
        finding: Finding::UnknownArm,
        commits: || near(|_, pair| ndk!(pair.cq, NdkArmCq(3))),
        near: || near(|_, pair| ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_SOLICITED))),
    },
    Row {
        finding: Finding::ResizeUnsupported,
        commits: || resize_and_moderate(true, 0, 0),
        near: || resize_and_moderate(false, 0, 0),
    },
    Row {
        finding: Finding::ModerationUnsupported,
        commits: || resize_and_moderate(true, 0, 0),
        near: || resize_and_moderate(false, 10, 4),
    },
    Row {
        finding: Finding::ModerationUnlimited,
        commits: || resize_and_moderate(false, u32::MAX, u32::MAX),
        near: || resize_and_moderate(false, u32::MAX, 8),
    },
    Row {
        finding: Finding::CqOverrun,
        commits: || {
            with_pair(false, 8, 4, |_, pair| {
                for context in 0..5 {
                    assert!(pair.receive(context, 64).is_success());
                }
            })
        },
        near: || {
            with_pair(true, 8, 4, |world, pair| {
                for context in 0..4 {
                    assert!(pair.receive(context, 64).is_success());
                }
                ndk!(pair.qps[1], NdkFlush());
                world.platform.settle();
                assert_eq!(world.completions(pair.cq, 4).len(), 4);
            })
        },
    },
    Row { finding: Finding::AboveLimit, commits: || cq_of(u32::MAX), near: || cq_of(1 << 10) },
    Row {
        finding: Finding::MissingCallback,
        commits: || {
            let world = World::new();
            let mut out = ptr::null_mut();
            let status = ndk!(world.adapter, NdkCreatePd(None, ptr::null_mut(), &raw mut out));
            assert!(!status.is_success());
            world.end()
        },
        near: || {
            let world = World::new();
            let pd = world.pd();
            world.close(pd);
            world.end()
        },
    },
    Row {
        finding: Finding::BadFlags,
        commits: || near(|_, pair| assert!(!pair.send(1, 64, NDK_OP_FLAG_ALLOW_REMOTE_READ).is_success())),
        near: || {
            near(|world, pair| {
                assert!(pair.receive(1, 64).is_success());
                let flags = NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT;
                assert!(pair.send(2, 64, flags).is_success());
                world.completions(pair.cq, 2);
            })
        },
    },
    Row {
        finding: Finding::QueueFull,
        commits: || {
            near(|_, pair| {
                for context in 0..8 {
                    assert!(pair.receive(context, 64).is_success());
                }
                let _ = pair.receive(8, 64);
            })
        },
        near: || {
            near(|world, pair| {
                for round in 0..3 {
                    for context in 0..8 {
                        assert!(pair.receive(context + 8 * round, 64).is_success());
                    }
                    // Silent requests need no completion to be known of, when later ones fill the queue.
                    for context in 100..108 {
                        assert!(pair.send(context, 64, NDK_OP_FLAG_SILENT_SUCCESS).is_success());
                    }
                    world.platform.settle();
                    assert_eq!(world.completions(pair.cq, 8).len(), 8);
                }
            })
        },
    },
    Row {
        finding: Finding::TooManySges,
        commits: || {
            near(|_, pair| {
                let elements = [pair.region.element(0, 8); 3];
                let _ = ndk!(pair.qps[0], NdkSend(ptr::null_mut(), elements.as_ptr(), 3, 0));
            })
        },
        near: || {
            near(|world, pair| {
                assert!(pair.receive(1, 64).is_success());
                let elements = [pair.region.element(0, 8); 2];
                assert!(ndk!(pair.qps[0], NdkSend(ptr::null_mut(), elements.as_ptr(), 2, 0)).is_success());
                world.completions(pair.cq, 2);
            })
        },
    },
    Row {
        finding: Finding::TooLong,
        commits: || {
            near(|_, pair| {
                let _ = pair.send_element(1, pair.region.element(0, u32::MAX));
            })
        },
        near: || {
            near(|world, pair| {
                assert!(pair.receive(1, 4096).is_success());
                assert!(pair.send(2, 4096, 0).is_success());
                world.completions(pair.cq, 2);
            })
        },
    },
    Row {
        finding: Finding::InlineTooLong,
        commits: || near(|_, pair| assert!(!pair.send(1, 17, NDK_OP_FLAG_INLINE).is_success())),
        near: || {
            near(|world, pair| {
                assert!(pair.receive(1, 64).is_success());
                assert!(pair.send(2, 16, NDK_OP_FLAG_INLINE).is_success());
                world.completions(pair.cq, 2);
            })
        },
    },
    Row {
        finding: Finding::MissingList,
        commits: || {
            near(|_, pair| {
                let _ = ndk!(pair.qps[0], NdkSend(ptr::null_mut(), ptr::null(), 1, 0));
            })
        },
        near: || {
            near(|world, pair| {
                assert!(pair.receive(1, 64).is_success());
                let _ = ndk!(pair.qps[0], NdkSend(ptr::null_mut(), ptr::null(), 0, 0));
                world.platform.settle();
                World::drain(pair.cq);
            })
        },
    },
    Row {
        finding: Finding::OpenDeferChain,
        commits: || {
            near(|world, pair| {
                assert!(pair.receive(1, 64).is_success());
                assert!(pair.send(2, 64, NDK_OP_FLAG_DEFER).is_success());
                world.platform.settle();
            })
        },
        near: || {
            near(|world, pair| {
                assert!(pair.receive(1, 64).is_success());
                assert!(pair.receive(2, 64).is_success());
                assert!(pair.send(3, 64, NDK_OP_FLAG_DEFER).is_success());
                assert!(pair.send(4, 64, 0).is_success());
                world.completions(pair.cq, 4);
            })
        },
    },
    Row {
        finding: Finding::PostBeforeConnection,
        commits: || {
            let world = World::new();
            let (pd, cq) = (world.pd(), world.cq(8));
            let qp = world.qp(pd, cq, 4, 1);
            let _ = ndk!(qp, NdkSend(ptr::null_mut(), ptr::null(), 0, 0));
            world.close(qp);
            world.close(cq);
            world.close(pd);
            world.end()
        },
        near: || in_notification(|_| {}, Differs::default()),
    },
    Row { finding: Finding::ReceiveBesideSrq, commits: || with_srq(true), near: || with_srq(false) },
    Row {
        finding: Finding::ReadLimit,
        commits: || {
            near(|world, pair| {
                for context in 0..3 {
                    assert!(pair.read(context, pair.region.element(4096, 64)).is_success());
                }
                world.completions(pair.cq, 3);
            })
        },
        near: || {
            near(|world, pair| {
                for _ in 0..3 {
                    for context in 0..2 {
                        assert!(pair.read(context, pair.region.element(4096, 64)).is_success());
                    }
                    world.completions(pair.cq, 2);
                }
            })
        },
    },
    Row {
        finding: Finding::ReadSink,
        commits: || read_into(LOCAL_WRITE),
        near: || read_into(LOCAL_WRITE | NDK_MR_FLAG_RDMA_READ_SINK),
    },
    Row {
        finding: Finding::LocalInvalidate,
        commits: || read_and_invalidate(true),
        near: || read_and_invalidate(false),
    },
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
    Row { finding: Finding::Mapping, commits: || map_and_release(2), near: || map_and_release(1) },
    Row { finding: Finding::StackContext, commits: || stack_context(false), near: || stack_context(true) },
    Row {
        finding: Finding::UseAfterClose,
        commits: || {
            let world = World::new();
            let cq = world.cq(8);
            world.close(cq);
            World::drain(cq);
            world.end()
        },
        near: || {
            let world = World::new();
            let cq = world.cq(8);
            World::drain(cq);
            world.close(cq);
            world.end()
        },
    },
    Row {
        finding: Finding::WrongKind,
        commits: || {
            near(|_, pair| {
                let _ = ndk!(pair.qps[0], NdkInvalidate(ptr::null_mut(), pair.cq.cast(), 0));
            })
        },
        near: || invalidate_and_use(false),
    },
    Row {
        finding: Finding::CloseDuringCall,
        commits: || {
            let world = World::new();
            let cq = Moved::new(world.cq(8));
            world.inside(Function::GetCqResultsEx, move || {
                let any = cq.get();
                let done = Done::new();
                let _ = ndk!(any, NdkQueryExtension(ptr::null(), NDK_VERSION::V1_2, ptr::null_mut()));
                // SAFETY: an open queue.
                let table = unsafe { (*any).Dispatch };
                // SAFETY: as above.
                let slot = unsafe { (*table).NdkCloseCq }.expect("the slot");
                // The provider is asked to close while its poll has not begun: on this thread nothing is freed under it.
                // SAFETY: open, and closed once.
                let _ = unsafe { slot(any.cast(), Some(closed), done.context()) };
            });
            let mut results = [NDK_RESULT_EX::ZEROED; 1];
            // The close is found; what the poll does is not looked at, so it polls nothing.
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _ = ndk!(cq.get(), NdkGetCqResultsEx(results.as_mut_ptr(), 0));
            }))
            .ok();
            world.abandon()
        },
        near: || {
            let world = World::new();
            let (cq, other) = (world.cq(8), Moved::new(world.cq(8)));
            world.inside(Function::GetCqResultsEx, move || {
                let any = other.get();
                // SAFETY: an open queue.
                let table = unsafe { (*any).Dispatch };
                // SAFETY: as above.
                let slot = unsafe { (*table).NdkCloseCq }.expect("the slot");
                // SAFETY: open, and closed once.
                let _ = unsafe { slot(any.cast(), Some(closed), Done::new().context()) };
            });
            World::drain(cq);
            world.close(cq);
            world.end()
        },
    },
    Row { finding: Finding::CloseWaitsForItself, commits: || close_in_order(false), near: || close_in_order(true) },
    Row {
        finding: Finding::AdapterClosedInCallback,
        commits: || in_completion(World::pretend_to_close).abandon(),
        near: || {
            let world = World::new();
            let pd = world.pd();
            world.close(pd);
            world.end()
        },
    },
    Row {
        finding: Finding::CallbackIrql,
        commits: || {
            let world = in_completion(|_| {
                let _before = raise(Irql::DISPATCH_LEVEL);
            });
            lower(Irql::PASSIVE_LEVEL);
            world.abandon()
        },
        near: || in_completion(|_| lower(raise(Irql::DISPATCH_LEVEL))).abandon(),
    },
    Row {
        finding: Finding::LongCallback,
        commits: || in_notification(busy, long(10_000)),
        near: || in_notification(busy, long(600_000_000)),
    },
    Row { finding: Finding::WrongIrql, commits: || query_info(true), near: || query_info(false) },
    Row {
        finding: Finding::Length,
        commits: || connection_data(false, 0xCCCC_CCCC),
        near: || connection_data(true, 600),
    },
    Row { finding: Finding::PrivateData, commits: || connector_with_data(513), near: || connector_with_data(56) },
    Row { finding: Finding::PrivateDataRoce, commits: || connector_with_data(57), near: || connector_with_data(56) },
    Row {
        finding: Finding::ConnectionOrder,
        commits: || {
            near(|world, pair| {
                world.try_request(|completion, context| {
                    ndk!(pair.connectors[0], NdkCompleteConnect(None, ptr::null_mut(), completion, context))
                });
            })
        },
        near: || near(|_, _| {}),
    },
    Row {
        finding: Finding::QpReused,
        commits: || {
            near(|world, pair| {
                let disconnect = |completion, context| ndk!(pair.connectors[0], NdkDisconnect(completion, context));
                assert_eq!(world.request(disconnect), NtStatus::SUCCESS);
                let (connector, local, remote) = (world.connector(), world.address(0), world.address(9));
                world.try_request(|completion, context| {
                    ndk!(
                        connector,
                        NdkConnect(
                            pair.qps[0],
                            local.as_ptr(),
                            local.length(),
                            remote.as_ptr(),
                            remote.length(),
                            1,
                            1,
                            ptr::null(),
                            0,
                            completion,
                            context
                        )
                    )
                });
                world.close(connector);
            })
        },
        near: || connector_with_data(0),
    },
    Row { finding: Finding::DisconnectInFlight, commits: || disconnect(false), near: || disconnect(true) },
    Row {
        finding: Finding::StillOpen,
        commits: || {
            // The close of the adapter would wait: the objects are closed inside it, after the adviser has looked.
            let world = World::new();
            let pd = Moved::new(world.pd());
            world.inside(Function::CloseAdapter, move || {
                let any: *mut NDK_CQ = pd.get().cast();
                // SAFETY: an open object; slot 0 is the close.
                let table = unsafe { (*any).Dispatch };
                // SAFETY: as above.
                let slot = unsafe { (*table).NdkCloseCq }.expect("the slot");
                // SAFETY: open, and closed once.
                let _ = unsafe { slot(any.cast(), Some(closed), Done::new().context()) };
            });
            world.end()
        },
        near: || {
            let world = World::new();
            let pd = world.pd();
            world.close(pd);
            world.end()
        },
    },
];

fn long(longest_callback: u64) -> Differs {
    Differs { longest_callback, threads: true, ..Differs::default() }
}

/// Keeps the processor for three milliseconds.
fn busy(world: &World) {
    let end = world.platform.now() + 3_000;
    while world.platform.now() < end {
        std::hint::spin_loop();
    }
}

/// Does something in a completion that comes before its call returns.
fn in_completion(work: fn(&World)) -> World {
    struct Context {
        world: *const World,
        work: fn(&World),
    }
    unsafe extern "system" fn callback(context: *mut std::ffi::c_void, _: NtStatus) {
        // SAFETY: the completion comes inside the call, and the context lives longer.
        let context = unsafe { &*context.cast::<Context>() };
        // SAFETY: as above.
        (context.work)(unsafe { &*context.world });
    }
    let world = World::with(Differs { completion: CompletionMode::Early, ..Differs::default() });
    let mr = world.mr(world.pd(), true);
    let context = Box::leak(Box::new(Context { world: &raw const world, work }));
    let context = ptr::from_ref(context).cast_mut().cast();
    assert_eq!(ndk!(mr, NdkInitializeFastRegisterMr(1, 0, Some(callback), context)), NtStatus::PENDING);
    world
}

fn query_info(raised: bool) -> Found {
    let world = World::new();
    let mut info = NDK_ADAPTER_INFO::default();
    let mut size = u32::try_from(size_of::<NDK_ADAPTER_INFO>()).expect("small");
    let before = raised.then(|| raise(Irql::DISPATCH_LEVEL));
    let _ = ndk!(world.adapter, NdkQueryAdapterInfo(&raw mut info, &raw mut size));
    if let Some(before) = before {
        lower(before);
    }
    world.end()
}

fn with_srq(receives: bool) -> Found {
    let world = World::new();
    let (pd, cq) = (world.pd(), world.cq(16));
    let srq: *mut NDK_SRQ = world.create(|completion, context, out| {
        ndk!(pd, NdkCreateSrq(4, 1, 0, None, ptr::null_mut(), ptr::null(), completion, context, out))
    });
    let qp: *mut NDK_QP = world.create(|completion, context, out| {
        ndk!(pd, NdkCreateQpWithSrq(cq, cq, srq, ptr::null_mut(), 4, 1, 0, completion, context, out))
    });
    if receives {
        let _ = ndk!(qp, NdkReceive(ptr::null_mut(), ptr::null(), 0));
    } else {
        assert!(ndk!(srq, NdkSrqReceive(ptr::null_mut(), ptr::null(), 0)).is_success());
    }
    world.close(qp);
    world.close(srq);
    world.close(cq);
    world.close(pd);
    world.end()
}

/// A read into a region of these flags, on an adapter that needs the right of a read sink.
fn read_into(flags: u32) -> Found {
    let adjust: fn(&mut provider::Config) =
        |config| config.info.AdapterFlags &= !NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED;
    let world = World::with(Differs { adjust, ..Differs::default() });
    let pair = world.pair(8, 64);
    let region = world.region(pair.pd, flags);
    let _ = pair.read(1, region.element(0, 64));
    world.platform.settle();
    World::drain(pair.cq);
    world.close(region.mr);
    world.end_pair(&pair);
    world.end()
}

fn read_and_invalidate(without: bool) -> Found {
    let adjust: fn(&mut provider::Config) = if without {
        |config| config.info.AdapterFlags &= !NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
    } else {
        |_| {}
    };
    let world = World::with(Differs { adjust, ..Differs::default() });
    let pair = world.pair(8, 64);
    let (element, remote) = (pair.region.element(4096, 64), pair.region.address(0));
    let flags = NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
    let _ = ndk!(pair.qps[0], NdkRead(ptr::null_mut(), &raw const element, 1, remote, pair.region.remote, flags));
    world.platform.settle();
    World::drain(pair.cq);
    world.end_pair(&pair);
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

#[test]
fn each_finding_is_made_of_who_commits_it_and_not_of_who_comes_close() {
    let mut wrong = Vec::new();
    for row in ROWS {
        let found = (row.commits)();
        if !found.iter().any(|(finding, _)| *finding == row.finding) {
            wrong.push(format!("{}: not found, but {found:?}", row.finding));
        }
        let found = (row.near)();
        if !found.is_empty() {
            wrong.push(format!("{}: of who comes close {found:?}", row.finding));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_finding_is_committed_here() {
    let rows: BTreeSet<_> = ROWS.iter().map(|row| row.finding).collect();
    let all: BTreeSet<_> = Finding::ALL.iter().copied().collect();
    assert_eq!(rows, all);
}

#[test]
fn numbers_are_given_once_and_in_order() {
    let numbers: Vec<_> = Finding::ALL.iter().map(|finding| finding.number()).collect();
    let expected: Vec<u16> = (1..=u16::try_from(Finding::ALL.len()).expect("few")).collect();
    assert_eq!(numbers, expected);
    assert!(Finding::ALL.iter().all(|finding| Finding::from_number(finding.number()) == Some(*finding)));
    assert_eq!(Finding::from_number(0), None);
}
