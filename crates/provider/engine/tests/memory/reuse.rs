//! How soon a token comes back. The bounds are by construction, so each test drives the construction into its worst case: few
//! objects, one slot over and over, tokens in use that have to be passed over, and every order of registering and deregistering.

use std::collections::HashMap;

use engine::memory::{Access, FastRegister, Rights};
use ndkpi::NtStatus;

use super::{
    bytes::Buffer,
    random::Random,
    world::{
        ALL, SMALL, TestDomain, TestRegion, VIOLATION, World, bind, fast, fast_register, refusal, region, register,
        registered, window,
    },
};
use engine::memory::{Bind, FastTokens, MemoryLimits, MemoryRules};

/// What every kind of object has to keep: uses between two times that a token is given.
const BOUND: u64 = 1 << 16;
/// Registrations between two times that a normal region's token is given.
const FIXED: u64 = 1 << 20;
/// Tags of one slot whose tokens rotate, without the most that may be in use at a time.
const ROTATING: u64 = (1 << 17) - 7;

const REMOTE: Rights = Rights::REMOTE_READ.and(Rights::REMOTE_WRITE);

/// The uses in which each token was given last, and the shortest way back so far.
#[derive(Default)]
struct Ways {
    uses: u64,
    last: HashMap<u32, u64>,
    shortest: Option<u64>,
}

impl Ways {
    /// The next use, which gives `token`.
    fn take(&mut self, token: u32) {
        assert_ne!(token, 0);
        self.uses += 1;
        if let Some(last) = self.last.insert(token, self.uses) {
            let way = self.uses - last;
            self.shortest = Some(self.shortest.map_or(way, |shortest| shortest.min(way)));
        }
    }

    /// Tokens have come back, and none sooner than that.
    fn check(&self, least: u64) {
        let shortest = self.shortest.expect("tokens come back");
        assert!(shortest >= least, "one came back after {shortest} uses of {}", self.uses);
    }

    /// No token has come back.
    fn none(&self, least: u64) {
        assert!(self.uses > least, "too few uses to tell");
        assert_eq!(self.shortest, None, "of {} uses", self.uses);
    }
}

fn registration(region: &TestRegion) -> u32 {
    let zero = Buffer::new(0, 0);
    region.register(zero.memory(), ALL, ()).expect("memory");
    region.local_token()
}

/// An adapter for `tokens` objects.
fn world(tokens: u32, fast_tokens: FastTokens) -> (World, TestDomain) {
    let world = World::with(MemoryLimits { tokens, ..SMALL }, MemoryRules { fast_tokens, ..MemoryRules::default() });
    let domain = world.domain();
    (world, domain)
}

//= invariant 7
#[test]
fn a_region_that_is_registered_over_and_over() {
    // Room for the domain and one region.
    let (_world, domain) = world(2, FastTokens::Stable);
    let (region, mut ways) = (region(&domain), Ways::default());
    for _ in 0..FIXED + (1 << 12) {
        ways.take(registration(&region));
        let _ = region.deregister().expect("registered");
    }
    ways.check(FIXED);
}

#[test]
fn a_region_that_is_made_and_registered_over_and_over() {
    let (_world, domain) = world(2, FastTokens::Stable);
    let mut ways = Ways::default();
    for _ in 0..3 * BOUND {
        ways.take(registration(&region(&domain)));
    }
    ways.none(BOUND);
}

#[test]
fn a_fast_registered_region_that_is_made_over_and_over() {
    let (_world, domain) = world(2, FastTokens::Stable);
    let mut ways = Ways::default();
    for _ in 0..2 * BOUND {
        ways.take(fast(&domain).local_token());
    }
    ways.none(BOUND);
}

/// Which of the registered regions is deregistered next.
type Order = fn(&mut Random, usize) -> usize;

//= invariant 7
#[test]
fn regions_that_are_deregistered_in_any_order() {
    let orders: [(&str, Order); 4] = [
        ("the oldest first", |_, _| 0),
        ("the latest first", |_, count| count - 1),
        ("any", Random::below),
        ("one of the latest", |random, count| count - 1 - random.below(count.min(3))),
    ];
    // Two objects, as many as slots rest, and many more.
    for most in [2, 1100, 3000] {
        for (name, order) in orders {
            let (_world, domain) = world(most + 1, FastTokens::Stable);
            let mut random = Random::new(most.into());
            let mut free: Vec<_> = (0..most).map(|_| region(&domain)).collect();
            let (mut registered, mut ways) = (Vec::new(), Ways::default());
            // When each slot was used last, and how often its rest was too short.
            let mut slots: HashMap<u32, (u64, u32)> = HashMap::new();
            while ways.uses < BOUND + 1000 {
                // Now nearly all are registered, now nearly none.
                let few = ways.uses % 4096 < 2048;
                let more = registered.is_empty() || (!free.is_empty() && random.below(8) < if few { 3 } else { 5 });
                if !more {
                    let region: TestRegion = registered.remove(order(&mut random, registered.len()));
                    let _ = region.deregister().expect("registered");
                    free.push(region);
                    continue;
                }
                let region = free.pop().expect("not all are registered");
                let token = registration(&region);
                registered.push(region);
                ways.take(token);
                let (last, short) = slots.entry(token >> 11).or_insert((0, 0));
                if *last != 0 && ways.uses - *last <= 1024 {
                    *short += 1;
                }
                *last = ways.uses;
            }
            ways.none(BOUND);
            // Once for each slot, before the table has grown to its rest.
            assert!(slots.values().all(|(_, short)| *short <= 1), "{most} regions, {name}");
        }
    }
}

//= invariant 7
#[test]
fn a_window_that_is_bound_over_and_over() {
    let (_world, domain) = world(3, FastTokens::Stable);
    let (region, window) = (registered(&domain, &Buffer::new(0, 16), ALL), window(&domain));
    let mut ways = Ways::default();
    ways.take(window.invalidation_token());
    for _ in 0..2 * ROTATING {
        bind(&domain, &window, &region, 0, 16, REMOTE).expect("in the region");
        ways.take(window.remote_token());
        domain.invalidate_remote(window.remote_token()).expect("bound");
    }
    ways.check(ROTATING);
}

#[test]
fn a_window_that_is_made_and_bound_over_and_over() {
    let (_world, domain) = world(3, FastTokens::Stable);
    let region = registered(&domain, &Buffer::new(0, 16), ALL);
    let mut ways = Ways::default();
    for number in 0..ROTATING {
        let window = window(&domain);
        ways.take(window.invalidation_token());
        if number % 2 == 0 {
            bind(&domain, &window, &region, 0, 16, REMOTE).expect("in the region");
            ways.take(window.remote_token());
        }
    }
    ways.check(ROTATING);
}

//= invariant 7
#[test]
fn tokens_in_use_are_passed_over() {
    let (_world, domain) = world(3, FastTokens::Stable);
    let (region, window) = (registered(&domain, &Buffer::new(0x1000, 16), ALL), window(&domain));
    let what = Bind { address: 0x1000, length: 16, rights: REMOTE };
    let prepare = || {
        let posted = domain.prepare_bind(&window, &region, &what).expect("there is room");
        (posted, window.remote_token())
    };
    // One binding in force and three that are posted, all the time; the fourth post is what comes and goes.
    bind(&domain, &window, &region, 0x1000, 16, REMOTE).expect("in the region");
    let bound = window.remote_token();
    let waiting = [prepare(), prepare(), prepare()];
    let mut ways = Ways::default();
    for token in waiting.map(|(_, token)| token).into_iter().chain([bound, window.invalidation_token()]) {
        ways.take(token);
    }
    for _ in 0..3 * ROTATING {
        let (posted, token) = prepare();
        ways.take(token);
        domain.cancel(posted);
    }
    ways.check(ROTATING);
    let kept = waiting.iter().map(|(_, token)| *token).chain([bound, window.invalidation_token()]);
    assert!(kept.into_iter().all(|token| ways.last[&token] <= 5), "none of them was given again");
    assert_eq!(refusal(&domain, bound, 0x1000, 1, Access::RemoteWrite), NtStatus::SUCCESS);
    for (posted, token) in waiting {
        assert!(domain.invalidate_remote(window.remote_token()).is_err(), "not in force");
        domain.invalidate(window.invalidation_token()).expect("bound");
        domain.commit(posted).expect("not bound");
        assert_eq!(refusal(&domain, token, 0x1000, 1, Access::RemoteWrite), NtStatus::SUCCESS);
    }
}

//= invariant 7
#[test]
fn a_rotating_region_that_is_registered_over_and_over() {
    let (world, domain) = world(2, FastTokens::Rotating);
    let region = fast(&domain);
    let page = world.map(&Buffer::new(0, 4096)).key();
    let mut ways = Ways::default();
    ways.take(region.local_token());
    for _ in 0..2 * ROTATING {
        fast_register(&domain, &region, &[page], 0x4000, 4096, ALL).expect("mapped");
        ways.take(region.remote_token());
        domain.invalidate_remote(region.remote_token()).expect("registered");
    }
    ways.check(ROTATING);
    assert_eq!(ways.last[&region.local_token()], 1, "the local token was not given again");
}

#[test]
fn a_rotating_region_that_is_posted_beside_a_registration_in_force() {
    let (world, domain) = world(2, FastTokens::Rotating);
    let region = fast(&domain);
    let page = [world.map(&Buffer::new(0, 4096)).key()];
    fast_register(&domain, &region, &page, 0x4000, 4096, ALL).expect("mapped");
    let (bound, mut ways) = (region.remote_token(), Ways::default());
    ways.take(bound);
    let what = FastRegister { pages: &page, first_byte: 0, length: 4096, base: 0x4000, rights: ALL };
    for _ in 0..2 * ROTATING {
        let posted = domain.prepare_fast_register(&region, &what).expect("there is room");
        ways.take(region.remote_token());
        domain.cancel(posted);
    }
    ways.check(ROTATING);
    assert_eq!(ways.last[&bound], 1);
    assert_eq!(refusal(&domain, bound, 0x4000, 1, Access::RemoteWrite), NtStatus::SUCCESS);
}

#[test]
fn a_token_of_long_ago_is_refused() {
    let (_world, domain) = world(2, FastTokens::Stable);
    let (region, buffer) = (region(&domain), Buffer::new(0x1000, 16));
    register(&region, &buffer, ALL).expect("memory");
    let old = [(region.local_token(), Access::LocalWrite), (region.remote_token(), Access::RemoteWrite)];
    let _ = region.deregister().expect("registered");
    for _ in 0..BOUND {
        register(&region, &buffer, ALL).expect("memory");
        for (token, access) in old {
            assert_eq!(refusal(&domain, token, 0x1000, 16, access), VIOLATION);
        }
        let _ = region.deregister().expect("registered");
    }
}

#[test]
fn a_post_of_a_region_that_is_gone_does_nothing_to_the_one_in_its_slot() {
    let (world, domain) = world(3, FastTokens::Stable);
    let page = world.map(&Buffer::new(0, 4096)).key();
    let what = FastRegister { pages: &[page], first_byte: 0, length: 4096, base: 0, rights: ALL };
    let gone = fast(&domain);
    let slot = gone.local_token() >> 11;
    let posted = domain.prepare_fast_register(&gone, &what).expect("there is room");
    drop(gone);
    assert_eq!(domain.commit(posted), Err(NtStatus::INVALID_DEVICE_REQUEST), "the slot is empty");
    let buffer = Buffer::new(0x1000, 16);
    let next = || Some(registered(&domain, &buffer, ALL)).filter(|region| region.local_token() >> 11 == slot);
    let region = (0..5000).find_map(|_| next()).expect("a slot comes back");
    domain.cancel(posted);
    assert!(domain.may_commit(posted), "nothing speaks against it but its end");
    assert_eq!(domain.commit(posted), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(refusal(&domain, region.local_token(), 0x1000, 16, Access::LocalWrite), NtStatus::SUCCESS);
}
