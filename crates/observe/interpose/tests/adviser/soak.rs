//! Random consumers that keep every rule: nothing is found of them, however much or little their contexts say, and each request succeeds, as it
//! does without the adviser.

use std::ptr;

use conformance::{Platform, random::Random};
use interpose::adviser::Finding;
use ndkpi::*;
use provider::CompletionMode;

use crate::consumer::{Contexts, Differs, Done, Pair, World, ndk, notified};

/// Requests of each queue.
const DEPTH: usize = 8;

/// Queue pairs on one completion queue, half of which receive from one shared receive queue, and a region for fast registration.
struct Consumer {
    world: World,
    random: Random,
    pd: *mut NDK_PD,
    cq: *mut NDK_CQ,
    notifications: &'static Done,
    srq: *mut NDK_SRQ,
    /// With true for one that receives from the shared queue.
    pairs: Vec<(Pair, bool)>,
    fast: *mut NDK_MR,
    fast_token: u32,
    next: usize,
}

impl Consumer {
    fn new(seed: u64) -> Self {
        let modes = [CompletionMode::Inline, CompletionMode::Pending, CompletionMode::Early, CompletionMode::Mixed];
        let mut random = Random::new(seed, "correct consumers");
        let completion = modes[random.below(4) as usize];
        let world = World::with(Differs { completion, ..Differs::default() });
        let (pd, notifications) = (world.pd(), Done::new());
        let cq = world.cq_with(128, Some(notified), notifications.context());
        let srq = world.create(|completion, context, out| {
            ndk!(pd, NdkCreateSrq(8, 2, 0, None, ptr::null_mut(), ptr::null(), completion, context, out))
        });
        let fast = world.mr(pd, true);
        let status =
            world.request(|completion, context| ndk!(fast, NdkInitializeFastRegisterMr(2, 0, completion, context)));
        assert_eq!(status, NtStatus::SUCCESS);
        let fast_token = ndk!(fast, NdkGetLocalTokenFromMr());
        let mut consumer =
            Self { world, random, pd, cq, notifications, srq, pairs: Vec::new(), fast, fast_token, next: 1 };
        consumer.connect(false);
        consumer.connect(true);
        consumer
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(u32::try_from(end).expect("small")) as usize
    }

    fn context(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    fn connect(&mut self, is_shared: bool) {
        let numbers = [self.context(), self.context()];
        let (world, pd, cq) = (&self.world, self.pd, self.cq);
        let passive = if is_shared {
            let context = Contexts::qp(numbers[1]);
            world.create(|completion, of, out| {
                ndk!(pd, NdkCreateQpWithSrq(cq, cq, self.srq, context, 8, 2, 16, completion, of, out))
            })
        } else {
            world.qp(pd, cq, 8, numbers[1])
        };
        let qps = [world.qp(pd, cq, 8, numbers[0]), passive];
        let pair = world.connect(pd, cq, self.notifications, qps);
        self.pairs.push((pair, is_shared));
    }

    /// Posts receives for a pair.
    fn receives(&mut self, at: usize, count: usize) {
        for _ in 0..count {
            let context = self.context();
            let (pair, is_shared) = &self.pairs[at];
            let element = pair.region.element(4096, 64);
            let status = if *is_shared {
                ndk!(self.srq, NdkSrqReceive(Contexts::request(context), &raw const element, 1))
            } else {
                pair.receive(context, 64)
            };
            assert_eq!(status, NtStatus::SUCCESS);
        }
    }

    /// Posts a batch on the queue pair that has connected. Returns how many completions come of it.
    fn batch(&mut self, at: usize) -> usize {
        let (sends, reads, writes) = (self.below(4), self.below(3), self.below(3));
        self.receives(at, sends);
        let mut kinds: Vec<_> = [vec![0; sends], vec![1; reads], vec![2; writes]].concat();
        // The order is any.
        for last in (1..kinds.len()).rev() {
            let other = self.below(last + 1);
            kinds.swap(last, other);
        }
        assert!(kinds.len() <= DEPTH);
        let mut signalled = 0;
        for (number, kind) in kinds.iter().enumerate() {
            let is_last = number + 1 == kinds.len();
            let is_silent = !is_last && self.random.chance(40);
            signalled += usize::from(!is_silent);
            let mut flags = if is_silent { NDK_OP_FLAG_SILENT_SUCCESS } else { 0 };
            if !is_last && self.random.chance(30) {
                flags |= NDK_OP_FLAG_DEFER;
            }
            let context = Contexts::request(self.context());
            let (pair, _) = &self.pairs[at];
            let (source, sink, remote) =
                (pair.region.element(0, 64), pair.region.element(4096, 64), pair.region.address(64));
            let (qp, token) = (pair.qps[0], pair.region.remote);
            let status = match kind {
                0 => ndk!(qp, NdkSend(context, &raw const source, 1, flags)),
                1 => ndk!(qp, NdkRead(context, &raw const sink, 1, remote, token, flags)),
                _ => ndk!(qp, NdkWrite(context, &raw const source, 1, remote, token, flags)),
            };
            assert_eq!(status, NtStatus::SUCCESS);
        }
        sends + signalled
    }

    /// Takes as many completions as come, until there are no more.
    fn take(&self, count: usize) {
        self.world.platform.settle();
        let statuses = self.world.completions(self.cq, count);
        assert_eq!(statuses, vec![NtStatus::SUCCESS; count]);
    }

    /// Registers memory, uses it once and deregisters it.
    fn use_once(&mut self) {
        let region = self.world.region(self.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
        self.send_from(region.element(0, 64));
        self.take(2);
        self.world.try_request(|completion, context| ndk!(region.mr, NdkDeregisterMr(completion, context)));
        self.world.close(region.mr);
    }

    fn send_from(&mut self, element: NDK_SGE) {
        let at = self.below(self.pairs.len());
        self.receives(at, 1);
        let context = self.context();
        assert_eq!(self.pairs[at].0.send_element(context, element), NtStatus::SUCCESS);
    }

    /// Maps a page, registers it, uses it, invalidates it, and releases the mapping, at once or one after the other.
    fn fast_register(&mut self) {
        use conformance::platform::PinnedMemory;
        let (mut size, mut first_byte, mut mapping) = (4096_u32, 0_u32, vec![0_u64; 64]);
        let lam: *mut NDK_LOGICAL_ADDRESS_MAPPING = mapping.as_mut_ptr().cast();
        let status = self.world.request(|completion, context| {
            let mdl = self.pairs[0].0.region.memory.mdl();
            let (size, first_byte) = (&raw mut size, &raw mut first_byte);
            ndk!(self.world.adapter, NdkBuildLAM(mdl, 4096, completion, context, lam, size, first_byte))
        });
        assert_eq!(status, NtStatus::SUCCESS);
        // SAFETY: the mapping was built, of at least one page.
        let pages = unsafe { NDK_LOGICAL_ADDRESS_MAPPING::pages(lam) };
        let base = ptr::without_provenance_mut(0x10_0000 + first_byte as usize);
        let times = 1 + self.below(2);
        for _ in 0..times {
            let at = self.below(self.pairs.len());
            let qp = self.pairs[at].0.qps[0];
            let count = if first_byte == 0 { 1 } else { 2 };
            let context = Contexts::request(self.context());
            let flags = NDK_OP_FLAG_ALLOW_LOCAL_WRITE;
            let post = ndk!(qp, NdkFastRegister(context, self.fast, count, pages, first_byte, 4096, base, flags));
            assert_eq!(post, NtStatus::SUCCESS);
            self.take(1);
            self.send_from(NDK_SGE::new(base, 64, self.fast_token));
            self.take(2);
            let context = Contexts::request(self.context());
            assert_eq!(ndk!(qp, NdkInvalidate(context, self.fast.cast(), 0)), NtStatus::SUCCESS);
            self.take(1);
        }
        ndk!(self.world.adapter, NdkReleaseLAM(lam));
    }

    fn step(&mut self) {
        match self.below(10) {
            0 => self.use_once(),
            1 => self.fast_register(),
            2 => {
                let is_shared = self.pairs.swap_remove(0);
                self.world.end_connection(&is_shared.0);
                self.connect(is_shared.1);
            }
            3 => {
                World::drain(self.cq);
                ndk!(self.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
            }
            _ => {
                let count = (0..self.pairs.len()).map(|at| self.batch(at)).sum();
                self.take(count);
            }
        }
    }

    fn end(self) -> Vec<(Finding, String)> {
        for (pair, _) in &self.pairs {
            self.world.end_connection(pair);
        }
        self.world.close(self.srq);
        self.world.close(self.fast);
        self.world.close(self.cq);
        self.world.close(self.pd);
        self.world.end()
    }
}

/// Of all kinds of contexts, with as many seeds as `ADVISER_SEEDS` says.
#[test]
fn nothing_is_found_of_random_consumers_that_keep_every_rule() {
    let seeds = std::env::var("ADVISER_SEEDS").map_or(12, |text| text.parse().expect("a number"));
    let mut wrong = Vec::new();
    for (seed, contexts) in (1..=seeds).flat_map(|seed| Contexts::ALL.map(|contexts| (seed, contexts))) {
        let found = contexts.of(|| {
            let mut consumer = Consumer::new(seed);
            (0..40).for_each(|_| consumer.step());
            consumer.end()
        });
        wrong.extend(found.into_iter().map(|(_, words)| format!("seed {seed}, {contexts:?}: {words}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
