//! Findings about objects, closes, callbacks and levels: who commits them, and who comes close.

use std::ptr;

use conformance::Platform;
use host::machine::{Irql, lower, raise};
use interpose::{Function, adviser::Finding};
use ndkpi::*;
use provider::CompletionMode;

use crate::{
    consumer::{Differs, Done, Moved, World, closed, ndk, requested},
    rows::{Found, Row, in_notification, invalidate_and_use, long, near},
};

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
        // SAFETY: the world outlives the call in which the completion comes.
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

pub const ROWS: &[Row] = &[
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
                // SAFETY: an open queue's table, with every slot.
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
                // SAFETY: an open queue's table, with every slot.
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
        finding: Finding::StillOpen,
        commits: || {
            // The close of the adapter would wait: the objects are closed inside it, after the adviser has looked.
            let world = World::new();
            let pd = Moved::new(world.pd());
            world.inside(Function::CloseAdapter, move || {
                let any: *mut NDK_CQ = pd.get().cast();
                // SAFETY: an open object; slot 0 is the close.
                let table = unsafe { (*any).Dispatch };
                // SAFETY: an open object's table, whose slot 0 is the close.
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

/// A request whose context is in this frame, which waits for it.
#[inline(never)]
fn request_and_wait(world: &World, mr: *mut NDK_MR) {
    let here = Done::default();
    let context = ptr::from_ref(&here).cast_mut().cast();
    let status = ndk!(mr, NdkInitializeFastRegisterMr(1, 0, Some(requested), context));
    if status == NtStatus::PENDING {
        world.wait("the request", &|| here.count() > 0);
    }
}

/// The same, far down the stack.
#[inline(never)]
fn request_far_down(world: &World, mr: *mut NDK_MR) {
    #[expect(clippy::large_stack_arrays, reason = "the stack is what it is about")]
    let room = [0_u8; 48 << 10];
    std::hint::black_box(&room);
    request_and_wait(world, mr);
    std::hint::black_box(&room);
}

/// Who waits for what pends has its contexts on the stack by right, also if the completion comes before the call has returned.
#[test]
fn a_context_on_the_stack_that_is_waited_for_is_never_found() {
    for completion in [CompletionMode::Inline, CompletionMode::Pending, CompletionMode::Early, CompletionMode::Mixed] {
        let world = World::with(Differs { completion, ..Differs::default() });
        let pd = world.pd();
        for _ in 0..4 {
            let mr = world.mr(pd, true);
            request_far_down(&world, mr);
            world.close(mr);
        }
        close_far_down(&world, pd, true);
        assert_eq!(world.end(), [], "{completion:?}");
    }
}
