//! NDKPI 7.6, 7.9: the ends of a window and of the fast-registered region that it is bound to, while a peer writes 8 MiB through the
//! window. When the first of the two has completed no byte is written any more.

use std::sync::Arc;

use engine::{
    memory::{Bind, FastRegister, PAGE_SIZE, Region, RegionKind, Released, Rights, Window},
    nic::NicMode,
    qp::Work,
};
use host::{HostMemory, PinnedBuffer, machine::Machine};
use ndkpi::NtStatus;
use testing::qp_fixture::{Net, PARAMETERS, PLAIN, TestQp, all};

const LENGTH: usize = 8 << 20;
const RIGHTS: Rights = Rights::REMOTE_READ.and(Rights::REMOTE_WRITE);
/// What the writer sends, and what the owner writes when it has its bytes back.
const WRITTEN: u8 = 7;
const REUSED: u8 = 0x55;

/// How the two are ended, in this order.
#[derive(Clone, Copy, Debug)]
enum Ends {
    CloseRegionInvalidateWindow,
    InvalidateWindowCloseRegion,
    CloseWindowInvalidateRegion,
    InvalidateBoth,
}

const ENDS: [Ends; 4] = [
    Ends::CloseRegionInvalidateWindow,
    Ends::InvalidateWindowCloseRegion,
    Ends::CloseWindowInvalidateRegion,
    Ends::InvalidateBoth,
];

/// What an object of the provider would be: it is closed when the engine has dropped it.
struct Alive(#[expect(dead_code, reason = "held")] Arc<()>);

/// Keeps bytes until the engine has let go of them.
struct Keep(#[expect(dead_code, reason = "held")] Arc<PinnedBuffer>);

impl Released for Keep {
    fn released(&self) {}
}

/// An end that has begun.
enum Pending<'a> {
    Closed(Arc<()>),
    Posted(&'a TestQp),
}

impl Pending<'_> {
    /// Returns true if the consumer is told now.
    fn is_complete(&self) -> bool {
        match self {
            Self::Closed(alive) => Arc::strong_count(alive) == 1,
            Self::Posted(qp) => {
                let done = qp.sent();
                assert!(done.is_empty() || done == all([9], NtStatus::SUCCESS), "{done:?}");
                !done.is_empty()
            }
        }
    }
}

fn check(ends: Ends, order: fn(&mut [u64]), steps: usize) {
    // One processor: each step moves a megabyte.
    let machine = Machine::seeded(0).processors(1).start();
    let net = Net::new(&machine, NicMode::Deferred);
    let srq = net.srq(8, 0);
    let domain = srq.region().domain().clone();
    let writer = net.qp_on(PARAMETERS, &net.cq(8), &net.cq(8), LENGTH);
    let target = net.joined_on(&srq, 1, &writer);
    let (far, near) = net.pair_on(&srq, 2);
    let (other_far, other) = net.pair_on(&srq, 3);

    let buffer = Arc::new(PinnedBuffer::new(LENGTH).expect("memory"));
    // SAFETY: the descriptors are the buffer's own, and its bytes live until the engine has let go of them: the client keeps the
    // buffer.
    let memory = unsafe { HostMemory::from_mdl(buffer.mdl(), LENGTH) }.expect("a good chain");
    let mapping = domain.table().map(memory, Keep(buffer.clone())).expect("memory");
    assert_eq!(mapping.first_byte(), 0);
    let mut pages: Vec<u64> = mapping.page_addresses().collect();
    order(&mut pages);
    let [region_alive, window_alive] = [(); 2].map(|()| Arc::new(()));
    let region = Region::try_new_for(&domain, RegionKind::Fast, Alive(region_alive.clone())).expect("memory");
    let most = u32::try_from(LENGTH as u64 / PAGE_SIZE).expect("few");
    region.initialize_fast_register(most, true).expect("memory");
    let what = FastRegister { pages: &pages, first_byte: 0, length: LENGTH as u64, base: 0x10_0000, rights: RIGHTS };
    let posted = domain.prepare_fast_register(&region, &what).expect("mapped");
    near.post(1, Work::FastRegister(posted), PLAIN, &[]).expect("room");
    let window = Window::try_new_for(&domain, Alive(window_alive.clone())).expect("memory");
    let what = Bind { address: 0x10_0000, length: LENGTH as u64, rights: RIGHTS };
    let posted = domain.prepare_bind(&window, &region, &what).expect("in the region");
    near.post(2, Work::Bind(posted), PLAIN, &[]).expect("room");
    net.settle();
    assert_eq!(near.sent(), all([1, 2], NtStatus::SUCCESS));

    writer.buffer().fill(WRITTEN);
    let write = Work::Write { address: 0x10_0000, token: window.remote_token() };
    let length = u32::try_from(LENGTH).expect("small");
    writer.post(3, write, PLAIN, &[writer.sge(0, length)]).expect("room");
    for _ in 0..steps {
        assert!(machine.step());
    }
    let written: usize = buffer.bytes(0, LENGTH).iter().map(|&byte| usize::from(byte == WRITTEN)).sum();
    assert!(written > 0 && written < LENGTH, "in the middle of it: {written} bytes");

    let tokens = [window.invalidation_token(), region.invalidation_token().expect("initialised")];
    let invalidate = |qp: &TestQp, token| qp.post(9, Work::Invalidate { token }, PLAIN, &[]).expect("room");
    let pending = match ends {
        Ends::CloseRegionInvalidateWindow => {
            drop(region);
            invalidate(&near, tokens[0]);
            [Pending::Closed(region_alive), Pending::Posted(&near)]
        }
        Ends::InvalidateWindowCloseRegion => {
            invalidate(&near, tokens[0]);
            drop(region);
            [Pending::Posted(&near), Pending::Closed(region_alive)]
        }
        Ends::CloseWindowInvalidateRegion => {
            drop(window);
            invalidate(&near, tokens[1]);
            [Pending::Closed(window_alive), Pending::Posted(&near)]
        }
        Ends::InvalidateBoth => {
            invalidate(&near, tokens[0]);
            // The region cannot be invalidated before the window was, but before that has completed.
            machine.step();
            invalidate(&other, tokens[1]);
            [Pending::Posted(&near), Pending::Posted(&other)]
        }
    };
    let (mut pending, mut is_reused) = (Vec::from(pending), false);
    loop {
        let before = pending.len();
        pending.retain(|end| !end.is_complete());
        if pending.len() < before && !is_reused {
            // The owner has its bytes back.
            buffer.fill(REUSED);
            is_reused = true;
        }
        if !machine.step() {
            break;
        }
    }
    pending.retain(|end| !end.is_complete());
    assert!(pending.is_empty() && is_reused, "{ends:?} after {steps} steps: {} ends never complete", pending.len());
    let changed = buffer.bytes(0, LENGTH).iter().filter(|&&byte| byte != REUSED).count();
    assert_eq!(changed, 0, "{ends:?} after {steps} steps: bytes written after the first completion");
    assert_eq!(writer.sent(), all([3], NtStatus::SUCCESS), "what was in progress came to its end");

    let _ = domain.table().unmap(mapping.key()).expect("mapped");
    drop((far, near, other_far, other, target, writer, srq, domain, net));
    machine.run_until_idle();
    machine.shutdown();
}

//= NDKPI 7.4.3
#[test]
fn no_byte_is_written_after_the_first_end_of_a_window_or_its_region_completes() {
    for ends in ENDS {
        for steps in [1, 2, 5, 7] {
            // Pages that follow each other, and that do not.
            for order in [|_: &mut [u64]| {}, <[u64]>::reverse] {
                check(ends, order, steps);
            }
        }
    }
}
