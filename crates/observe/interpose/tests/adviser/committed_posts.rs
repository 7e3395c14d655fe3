//! Findings about posts: who commits them, and who comes close.

use std::ptr;

use conformance::Platform;
use interpose::{Function, adviser::Finding};
use ndkpi::*;

use crate::{
    consumer::{Contexts, Differs, Done, Moved, World, ndk, notified},
    rows::{Found, LOCAL_WRITE, Row, committed, in_notification, near},
};

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

pub const ROWS: &[Row] = &[
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
                // A success is the completion of the one that is not silent, even if all have one context.
                for _ in 0..3 {
                    for number in 1..=8 {
                        assert!(pair.receive(200, 64).is_success());
                        let flags = if number < 8 { NDK_OP_FLAG_SILENT_SUCCESS } else { 0 };
                        assert!(pair.send(300, 64, flags).is_success());
                    }
                    world.platform.settle();
                    assert_eq!(world.completions(pair.cq, 9).len(), 9);
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
];

/// What a shared receive queue has given out is not in flight there any more, however alike its queue pairs look, and also if the queue pair
/// that got it is closed before the completion is taken.
#[test]
fn receives_of_a_shared_queue_whose_queue_pairs_look_alike_are_not_counted_for_ever() {
    for contexts in Contexts::ALL {
        let found = contexts.of(|| {
            let world = World::new();
            let (pd, notifications) = (world.pd(), Done::new());
            let cq = world.cq_with(64, Some(notified), notifications.context());
            let srq: *mut NDK_SRQ = world.create(|completion, context, out| {
                ndk!(pd, NdkCreateSrq(4, 2, 0, None, ptr::null_mut(), ptr::null(), completion, context, out))
            });
            let receives: *mut NDK_QP = world.create(|completion, context, out| {
                ndk!(pd, NdkCreateQpWithSrq(cq, cq, srq, Contexts::qp(2), 8, 2, 16, completion, context, out))
            });
            let pair = world.connect(pd, cq, notifications, [world.qp(pd, cq, 8, 1), receives]);
            let element = pair.region.element(4096, 64);
            let post = || {
                for context in 0..4 {
                    let status = ndk!(srq, NdkSrqReceive(Contexts::request(context), &raw const element, 1));
                    assert_eq!(status, NtStatus::SUCCESS);
                }
            };
            for round in 0..4 {
                post();
                for context in 0..4 {
                    assert!(pair.send(context, 64, 0).is_success());
                }
                world.platform.settle();
                if round < 3 {
                    assert_eq!(world.completions(cq, 8).len(), 8);
                }
            }
            pair.connectors.into_iter().for_each(|connector| world.close(connector));
            world.close(pair.listener);
            world.close(receives);
            World::drain(cq);
            post();
            world.close(pair.qps[0]);
            world.close(srq);
            world.close(pair.region.mr);
            world.close(cq);
            world.close(pd);
            world.end()
        });
        assert_eq!(found, [], "{contexts:?}");
    }
}
