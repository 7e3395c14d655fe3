//! Findings about completion queues: who commits them, and who comes close.

use conformance::Platform;
use interpose::{Function, adviser::Finding};
use ndkpi::*;

use crate::{
    consumer::{Differs, Moved, Pair, World, ndk},
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
