//! Tokens name what they were made for, and nothing else does.

use std::collections::HashSet;

use engine::memory::{Access, FastRegister, Rights};
use ndkpi::NtStatus;

use super::{
    bytes::Buffer,
    world::{
        ACCESSES, ALL, VIOLATION, World, bind, fast, fast_register, read, refusal, region, register, registered,
        token_for, window,
    },
};

#[test]
fn zero_is_never_a_token() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 16);
    for _ in 0..100 {
        let region = region(&domain);
        let window = window(&domain);
        assert_eq!((region.local_token(), region.remote_token(), window.remote_token()), (0, 0, 0), "not valid yet");
        register(&region, &buffer, ALL).expect("memory");
        bind(&domain, &window, &region, 0x1000, 16, Rights::REMOTE_READ).expect("in the region");
        for token in [region.local_token(), region.remote_token(), window.remote_token(), domain.privileged_token()] {
            assert_ne!(token, 0);
        }
        for access in ACCESSES {
            assert_eq!(refusal(&domain, 0, 0x1000, 1, access), VIOLATION);
        }
    }
}

#[test]
fn all_tokens_differ() {
    let world = World::new();
    let domain = world.domain();
    let mut tokens = HashSet::from([domain.privileged_token()]);
    let mut kept = Vec::new();
    for _ in 0..1000 {
        let (normal, fast) = (registered(&domain, &Buffer::new(0, 1), ALL), fast(&domain));
        let window = window(&domain);
        for token in [
            normal.local_token(),
            normal.remote_token(),
            fast.local_token(),
            fast.remote_token(),
            window.invalidation_token(),
        ] {
            assert!(tokens.insert(token), "{token:#x} twice");
        }
        kept.push((normal, fast, window));
    }
    assert_eq!(tokens.len(), 1 + 5 * kept.len());
}

//= invariant 7
#[test]
fn token_of_another_domain_is_refused() {
    let world = World::new();
    let (mine, other) = (world.domain(), world.domain());
    let region = registered(&other, &Buffer::new(0x1000, 16), ALL);
    for access in ACCESSES {
        let token = token_for(&region, access);
        assert_eq!(refusal(&other, token, 0x1000, 16, access), NtStatus::SUCCESS);
        assert_eq!(refusal(&mine, token, 0x1000, 16, access), VIOLATION);
    }
    let mapping = world.map(&Buffer::new(0x1000, 16));
    assert_eq!(refusal(&mine, mine.privileged_token(), mapping.key(), 16, Access::LocalRead), NtStatus::SUCCESS);
    assert_eq!(refusal(&mine, other.privileged_token(), mapping.key(), 16, Access::LocalRead), VIOLATION);
}

#[test]
fn local_and_remote_tokens_are_not_interchangeable() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(0x1000, 16), ALL);
    for access in ACCESSES {
        let wrong = if access.is_remote() { region.local_token() } else { region.remote_token() };
        assert_eq!(refusal(&domain, wrong, 0x1000, 16, access), VIOLATION);
    }
}

//= invariant 7
#[test]
fn a_guessed_tag_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(0x1000, 16), ALL);
    let number = region.remote_token() & !0x7FF;
    let good: Vec<u32> = (number..number + 0x800)
        .filter(|&token| refusal(&domain, token, 0x1000, 1, Access::RemoteWrite) == NtStatus::SUCCESS)
        .collect();
    assert_eq!(good, [region.remote_token()], "one of all tags of the region's slot");
}

#[test]
fn a_number_of_no_slot_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(0x1000, 16), ALL);
    let (own, tag) = (region.remote_token() >> 11, region.remote_token() & 0x7FF);
    let good: Vec<u32> = (0..1 << 21)
        .filter(|number| refusal(&domain, number << 11 | tag, 0x1000, 1, Access::RemoteWrite) == NtStatus::SUCCESS)
        .collect();
    assert_eq!(good, [own], "one of all numbers there are, beyond the table too");
}

#[test]
fn tags_are_random() {
    let world = World::new();
    let domain = world.domain();
    let region = region(&domain);
    let buffer = Buffer::new(0x1000, 16);
    let mut tags = HashSet::new();
    for _ in 0..500 {
        register(&region, &buffer, ALL).expect("memory");
        tags.insert(region.remote_token() & 0x7FF);
        let _ = region.deregister().expect("registered");
    }
    assert!(tags.len() > 300, "{} of 1024 tags in 500 slots", tags.len());
}

#[test]
fn stale_token_of_the_same_region_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let region = region(&domain);
    let buffer = Buffer::new(0x1000, 16);
    let mut stale: Vec<(u32, u32)> = Vec::new();
    for _ in 0..100 {
        register(&region, &buffer, ALL).expect("memory");
        for (local, remote) in &stale {
            assert_eq!(refusal(&domain, *local, 0x1000, 1, Access::LocalRead), VIOLATION);
            assert_eq!(refusal(&domain, *remote, 0x1000, 1, Access::RemoteRead), VIOLATION);
        }
        stale.push((region.local_token(), region.remote_token()));
        let _ = region.deregister().expect("registered");
        assert_eq!((region.local_token(), region.remote_token()), (0, 0));
        assert_eq!(refusal(&domain, stale[stale.len() - 1].0, 0x1000, 1, Access::LocalRead), VIOLATION);
    }
}

#[test]
fn a_slot_rests_before_it_is_used_again() {
    // The table has room for the domain and one region.
    let world = World::with_limits(engine::memory::MemoryLimits { tokens: 2, ..super::world::SMALL });
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 16);
    let mut tokens: Vec<u32> = Vec::new();
    for _ in 0..5000 {
        let region = registered(&domain, &buffer, ALL);
        let token = region.remote_token();
        let slot = |token: u32| token >> 11;
        assert!(tokens.iter().rev().take(1024).all(|last| slot(*last) != slot(token)), "after {}", tokens.len());
        assert_eq!(refusal(&domain, token, 0x1000, 1, Access::RemoteRead), NtStatus::SUCCESS);
        tokens.push(token);
    }
}

//= invariant 7
#[test]
fn stale_token_of_a_reused_slot_is_refused() {
    let world = World::with_limits(engine::memory::MemoryLimits { tokens: 2, ..super::world::SMALL });
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 16);
    let first = registered(&domain, &buffer, ALL).remote_token();
    for _ in 0..5 {
        let same = |region: &super::world::TestRegion| region.remote_token() >> 11 == first >> 11;
        let region = (0..2000).map(|_| registered(&domain, &buffer, ALL)).find(same).expect("it comes round");
        assert_ne!(region.remote_token(), first);
        assert_eq!(refusal(&domain, first, 0x1000, 1, Access::RemoteRead), VIOLATION);
    }
}

#[test]
fn the_remote_token_of_a_fast_registered_region_stays_the_same() {
    let world = World::new();
    let domain = world.domain();
    let region = fast(&domain);
    let buffer = Buffer::patterned(0, 2 * 4096, 3);
    let pages: Vec<u64> = world.map(&buffer).page_addresses().collect();
    // Read once, when the initialisation is complete.
    let (local, remote) = (region.local_token(), region.remote_token());
    for round in 0..100 {
        let (page, base) = (round % 2, 0x4000 + 0x10_000 * round as u64);
        assert_eq!(refusal(&domain, remote, base, 1, Access::RemoteRead), VIOLATION, "not registered");
        assert_eq!(domain.invalidate_remote(remote), Err(NtStatus::INVALID_DEVICE_REQUEST), "not registered");
        let what = FastRegister { pages: &pages[page..=page], first_byte: 0, length: 4096, base, rights: ALL };
        let posted = domain.prepare_fast_register(&region, &what).expect("mapped");
        assert_eq!(refusal(&domain, remote, base, 1, Access::RemoteRead), VIOLATION, "posted and not carried out");
        domain.commit(posted).expect("not registered");
        assert_eq!((region.local_token(), region.remote_token()), (local, remote));
        let segment = domain.resolve(remote, base, 4096, Access::RemoteRead).expect("registered");
        assert_eq!(read(&segment), buffer.contents()[page * 4096..][..4096], "the bytes of this registration");
        drop(segment);
        domain.invalidate_remote(remote).expect("registered");
    }
}

#[test]
fn a_rotating_remote_token_changes_with_each_registration() {
    let world = World::rotating();
    let domain = world.domain();
    let region = fast(&domain);
    let mapping = world.map(&Buffer::new(0, 4096));
    for _ in 0..64 {
        let region = fast(&domain);
        assert_ne!(region.remote_token(), region.local_token(), "neither is good for the other's purpose");
    }
    let local = region.local_token();
    let mut stale = vec![region.remote_token()];
    for _ in 0..1000 {
        fast_register(&domain, &region, &[mapping.key()], 0x4000, 4096, ALL).expect("mapped");
        let token = region.remote_token();
        assert_eq!(region.local_token(), local, "the local token stays");
        assert_ne!(token, local);
        for old in &stale {
            assert_eq!(refusal(&domain, *old, 0x4000, 1, Access::RemoteRead), VIOLATION);
        }
        assert_eq!(refusal(&domain, token, 0x4000, 1, Access::RemoteRead), NtStatus::SUCCESS);
        domain.invalidate_remote(token).expect("registered");
        stale.push(token);
    }
}
