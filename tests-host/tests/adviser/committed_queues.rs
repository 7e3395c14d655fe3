//! Findings about completion queues: who commits them, and who comes close.

use std::ptr;

use conformance::Platform;
use interpose::{Function, adviser::Finding};
use ndkpi::*;
use provider::CompletionMode;

use crate::{
    consumer::{Differs, Done, Moved, Pair, World, created, ndk},
    rows::{Found, Row, near, with_pair},
};

/// Notifies a completion queue by a send, and takes the completions if `drains`.
fn notify(world: &World, pair: &Pair, drains: bool) {
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

pub const ROWS: &[Row] = &[
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
];

/// The list of a completion queue has no place for all queue pairs that are being made at once. Those without one are not followed, and
/// what they have posted is not counted for ever.
#[test]
fn queue_pairs_that_are_made_at_once_are_not_accused_of_an_overrun() {
    let world = World::with(Differs { completion: CompletionMode::Pending, ..Differs::default() });
    let (pd, cq) = (world.pd(), world.cq(4));
    let region = world.region(pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let begun: Vec<_> = (1..=12)
        .map(|qp_context| {
            let (done, mut none) = (Done::new(), ptr::null_mut());
            let (context, out) = (ptr::without_provenance_mut(qp_context), &raw mut none);
            let status = ndk!(pd, NdkCreateQp(cq, cq, context, 1, 1, 2, 2, 16, Some(created), done.context(), out));
            assert_eq!(status, NtStatus::PENDING);
            done
        })
        .collect();
    world.wait("the creations", &|| begun.iter().all(|done| done.count() > 0));
    let qps: Vec<*mut NDK_QP> = begun.iter().map(|done| done.object()).collect();
    for (context, &qp) in (1..).zip(&qps) {
        let element = region.element(0, 64);
        let status = ndk!(qp, NdkReceive(ptr::without_provenance_mut(context), &raw const element, 1));
        assert!(status.is_success());
        ndk!(qp, NdkFlush());
        assert_eq!(world.completions(cq, 1).len(), 1);
    }
    for qp in qps {
        world.close(qp);
    }
    world.close(region.mr);
    world.close(cq);
    world.close(pd);
    assert_eq!(world.end(), []);
}
