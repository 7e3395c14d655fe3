//! Findings about completion queues: who commits them, and who comes close.

use std::{
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst},
};

use conformance::Platform;
use interpose::{Function, adviser::Finding};
use ndkpi::*;
use provider::CompletionMode;

use crate::{
    consumer::{Contexts, Differs, Done, Moved, Pair, World, created, ndk, notified},
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

/// A queue with or without a notification, which is armed or not.
fn silent_queue(notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>, arms: bool) -> Found {
    let world = World::new();
    let (done, mut out) = (Done::new(), ptr::null_mut());
    let context = done.context();
    let status =
        ndk!(world.adapter, NdkCreateCq(8, notification, context, ptr::null(), Some(created), context, &raw mut out));
    if status.is_success() {
        if arms {
            ndk!(out, NdkArmCq(NDK_CQ_NOTIFY_ANY));
        }
        world.close(out);
    }
    world.end()
}

/// Another thread polls while this one is in its arm; or only after it.
fn arm_beside_a_poll(beside: bool) -> Found {
    let world = World::new();
    let cq = Moved::new(world.cq(8));
    let poll = move || {
        std::thread::spawn(move || World::drain(cq.get())).join().expect("it does not panic");
    };
    if beside {
        world.inside(Function::ArmCq, poll);
    }
    ndk!(cq.get(), NdkArmCq(NDK_CQ_NOTIFY_ANY));
    if !beside {
        poll();
    }
    world.close(cq.get());
    world.end()
}

/// Does something in the notification of so many receives that were flushed, and then takes what is left.
fn in_notification_of(receives: usize, work: fn(*mut NDK_CQ)) -> Found {
    struct Context {
        cq: AtomicPtr<NDK_CQ>,
        work: fn(*mut NDK_CQ),
        was_called: AtomicBool,
    }
    unsafe extern "system" fn callback(context: *mut std::ffi::c_void, _: NtStatus) {
        // SAFETY: the context lives as long as the program.
        let context = unsafe { &*context.cast::<Context>() };
        if !context.was_called.swap(true, SeqCst) {
            (context.work)(context.cq.load(SeqCst));
        }
    }
    let world = World::new();
    let context =
        Box::leak(Box::new(Context { cq: AtomicPtr::new(ptr::null_mut()), work, was_called: AtomicBool::new(false) }));
    let cq = world.cq_with(32, Some(callback), ptr::from_ref(context).cast_mut().cast());
    context.cq.store(cq, SeqCst);
    let pd = world.pd();
    let qp = world.qp(pd, cq, 16, 1);
    for number in 0..receives {
        assert!(ndk!(qp, NdkReceive(Contexts::request(number), ptr::null(), 0)).is_success());
    }
    ndk!(qp, NdkFlush());
    world.platform.settle();
    ndk!(cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    world.platform.settle();
    assert!(context.was_called.load(SeqCst));
    World::drain(cq);
    world.close(qp);
    world.close(cq);
    world.close(pd);
    world.end()
}

/// Who has taken as many as were in flight knows that nothing is left, however much room there was.
#[test]
fn who_knows_that_nothing_is_left_may_arm() {
    let found = near(|world, pair| {
        for _ in 0..2 {
            ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
            assert!(pair.receive(1, 64).is_success());
            assert!(pair.send(2, 64, 0).is_success());
            world.platform.settle();
            let mut results = [NDK_RESULT_EX::ZEROED; 2];
            assert_eq!(ndk!(pair.cq, NdkGetCqResultsEx(results.as_mut_ptr(), 2)), 2);
        }
        ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
    });
    assert_eq!(found, []);
}

pub const ROWS: &[Row] = &[
    Row {
        finding: Finding::OverlappingCqCalls,
        commits: || arm_beside_a_poll(true),
        near: || arm_beside_a_poll(false),
    },
    Row {
        finding: Finding::SilentQueue,
        commits: || silent_queue(None, false),
        near: || silent_queue(Some(notified), true),
    },
    Row {
        finding: Finding::MissingCallback,
        commits: || silent_queue(None, true),
        near: || silent_queue(Some(notified), true),
    },
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
        finding: Finding::NotDrained,
        commits: || {
            // Ten messages; the notification takes four and arms. Nothing comes after that.
            in_notification_of(10, |cq| {
                let mut results = [NDK_RESULT_EX::ZEROED; 4];
                assert_eq!(ndk!(cq, NdkGetCqResultsEx(results.as_mut_ptr(), 4)), 4);
                ndk!(cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
            })
        },
        near: || {
            // It arms with completions left, and takes them then.
            in_notification_of(10, |cq| {
                let mut results = [NDK_RESULT_EX::ZEROED; 4];
                assert_eq!(ndk!(cq, NdkGetCqResultsEx(results.as_mut_ptr(), 4)), 4);
                ndk!(cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
                World::drain(cq);
            })
        },
    },
    Row {
        finding: Finding::NotDrained,
        commits: || {
            // A thread takes one of two, arms, waits in vain and closes.
            let world = World::new();
            let (pd, cq) = (world.pd(), world.cq(16));
            let qp = world.qp(pd, cq, 8, 1);
            for context in 0..2 {
                assert!(ndk!(qp, NdkReceive(Contexts::request(context), ptr::null(), 0)).is_success());
            }
            ndk!(qp, NdkFlush());
            world.platform.settle();
            let mut results = [NDK_RESULT_EX::ZEROED; 1];
            assert_eq!(ndk!(cq, NdkGetCqResultsEx(results.as_mut_ptr(), 1)), 1);
            ndk!(cq, NdkArmCq(NDK_CQ_NOTIFY_ERRORS));
            world.close(qp);
            world.close(cq);
            world.close(pd);
            world.end()
        },
        near: || {
            // It looks once more before it arms.
            near(|world, pair| {
                assert!(pair.receive(1, 64).is_success());
                assert!(pair.send(2, 64, 0).is_success());
                world.platform.settle();
                let mut results = [NDK_RESULT_EX::ZEROED; 2];
                assert_eq!(ndk!(pair.cq, NdkGetCqResultsEx(results.as_mut_ptr(), 2)), 2);
                World::drain(pair.cq);
                ndk!(pair.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
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
