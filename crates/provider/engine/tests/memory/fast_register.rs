//! Fast registration and invalidation (`NDKPI 7.4`, `7.6`).

use engine::memory::{
    Access, FastRegister, MOST_POSTED, MemoryLimits, PAGE_SIZE, Posted, Region, RegionKind, Release, Rights,
};
use ndkpi::NtStatus;
use testing::allocation;

use super::{
    bytes::Buffer,
    world::{
        ACCESSES, ALL, SMALL, TestDomain, TestRegion, VIOLATION, World, fast, fast_register, read, refusal, region,
        token_for,
    },
};

/// A domain, a region for up to 16 pages, and a buffer of `pages` pages with their logical addresses.
fn setup(world: &World, pages: usize) -> (TestDomain, TestRegion, Buffer, Vec<u64>) {
    let domain = world.domain();
    let region = fast(&domain);
    let buffer = Buffer::patterned(0x7000_0000, pages * 4096, 9);
    let addresses = world.map(&buffer).page_addresses().collect();
    (domain, region, buffer, addresses)
}

#[test]
fn tokens_are_there_after_initialisation_but_give_no_access() {
    let world = World::new();
    let (domain, region, ..) = setup(&world, 1);
    for access in ACCESSES {
        assert_ne!(token_for(&region, access), 0);
        assert_eq!(refusal(&domain, token_for(&region, access), 0, 1, access), VIOLATION);
    }
}

//= NDKPI 7.4.4
#[test]
fn remote_token_is_valid_at_return_and_usable_when_carried_out() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 1);
    let what = FastRegister { pages: &pages, first_byte: 0, length: 4096, base: 0x9000, rights: ALL };
    let posted = domain.prepare_fast_register(&region, &what).expect("mapped");
    let token = region.remote_token();
    assert_eq!(refusal(&domain, token, 0x9000, 1, Access::RemoteRead), VIOLATION);
    domain.commit(posted).expect("not registered before");
    assert_eq!(region.remote_token(), token);
    for access in ACCESSES {
        assert_eq!(refusal(&domain, token_for(&region, access), 0x9000, 4096, access), NtStatus::SUCCESS);
        assert_eq!(refusal(&domain, token_for(&region, access), 0x8FFF, 1, access), VIOLATION);
        assert_eq!(refusal(&domain, token_for(&region, access), 0x9000, 4097, access), VIOLATION);
    }
}

#[test]
fn pages_that_follow_each_other_are_the_bytes_in_order() {
    let world = World::new();
    let (domain, region, buffer, pages) = setup(&world, 4);
    fast_register(&domain, &region, &pages, 0x1_0005, 3 * 4096, ALL).expect("mapped");
    let segment = domain.resolve(region.local_token(), 0x1_0005, 3 * 4096, Access::LocalRead).expect("registered");
    assert_eq!(read(&segment), buffer.contents()[5..][..3 * 4096]);
}

#[test]
fn pages_need_not_follow_each_other() {
    let world = World::new();
    let (domain, region, buffer, pages) = setup(&world, 8);
    let order = [6, 2, 3, 0, 7, 1];
    let list: Vec<u64> = order.iter().map(|&page| pages[page]).collect();
    let (first, length) = (100, 5 * 4096);
    fast_register(&domain, &region, &list, first, length, ALL).expect("mapped");
    let before = buffer.contents();
    let expected: Vec<u8> = order.iter().flat_map(|page| before[page * 4096..][..4096].iter().copied()).collect();
    let expected = &expected[100..][..5 * 4096];
    let segment = domain.resolve(region.local_token(), first, 5 * 4096, Access::LocalWrite).expect("registered");
    assert_eq!(read(&segment), expected);
    for (offset, length) in [(0, 1), (3995, 2), (3996, 4096), (3000, 10_000), (20_479, 1)] {
        let segment = domain
            .resolve(region.local_token(), first + offset, length, Access::LocalWrite)
            .expect("in the registration");
        let at = usize::try_from(offset).expect("small");
        assert_eq!(read(&segment), expected[at..][..length as usize]);
    }
    segment.write(3990, &[0xEE; 20]);
    let after = buffer.contents();
    let changed: Vec<usize> = (0..after.len()).filter(|&at| after[at] != before[at]).collect();
    let touched = |at: usize| (6 * 4096 + 4090..7 * 4096).contains(&at) || (2 * 4096..2 * 4096 + 14).contains(&at);
    assert!(!changed.is_empty() && changed.iter().all(|&at| touched(at)), "{changed:?}");
}

#[test]
fn pages_of_several_mappings_make_one_region() {
    let world = World::new();
    let domain = world.domain();
    let region = fast(&domain);
    let (first, second) = (Buffer::patterned(0xFF0, 0x10, 1), Buffer::patterned(0, 4096, 2));
    let pages: Vec<u64> =
        [&first, &second].iter().flat_map(|buffer| world.map(buffer).page_addresses().collect::<Vec<_>>()).collect();
    fast_register(&domain, &region, &pages, 0x5FF0, 0x10 + 4096, ALL).expect("mapped");
    let segment = domain.resolve(region.remote_token(), 0x5FF0, 0x10 + 4096, Access::RemoteRead).expect("registered");
    assert_eq!(read(&segment), [first.contents(), second.contents()].concat());
}

//= NDKPI 7.4.6
#[test]
fn fast_register_arithmetic() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 16);
    let good = FastRegister { pages: &pages[..2], first_byte: 16, length: 8176, base: 0x9010, rights: ALL };
    let unaligned = [pages[0] + 1];
    let many = [pages.as_slice(), &pages[..1]].concat();
    for bad in [
        FastRegister { first_byte: 17, ..good },
        FastRegister { base: 0x9000, ..good },
        FastRegister { base: 0, ..good },
        FastRegister { length: 8177, ..good },
        FastRegister { length: u64::MAX, ..good },
        FastRegister { first_byte: 4096, base: 0x9000, length: 1, ..good },
        FastRegister { first_byte: u32::MAX, base: 0x9FFF, length: 0, ..good },
        FastRegister { pages: &[], ..good },
        FastRegister { pages: &[], length: 0, ..good },
        FastRegister { pages: &unaligned, length: 1, ..good },
        FastRegister { pages: &many, ..good },
        FastRegister { base: u64::MAX - 4079, length: 4081, ..good },
    ] {
        assert_eq!(domain.prepare_fast_register(&region, &bad), Err(NtStatus::INVALID_PARAMETER), "{bad:?}");
    }
    for sound in [
        good,
        FastRegister { length: 0, ..good },
        FastRegister { pages: &[], length: 0, first_byte: 0, base: 0, ..good },
        FastRegister { first_byte: 0, base: 0, length: 8192, ..good },
        FastRegister { base: u64::MAX - 4079, length: 4080, ..good },
        FastRegister { pages: &pages, length: 1, ..good },
    ] {
        let posted =
            domain.prepare_fast_register(&region, &sound).unwrap_or_else(|status| panic!("{status}: {sound:?}"));
        domain.cancel(posted);
    }
}

//= NDKPI 7.4.5
#[test]
fn remote_rights_without_remote_access_are_refused() {
    let world = World::new();
    let (domain, _, _, pages) = setup(&world, 1);
    let region = Region::try_new(&domain, RegionKind::Fast).expect("memory");
    region.initialize_fast_register(1, false).expect("memory");
    for rights in [Rights::REMOTE_READ, Rights::REMOTE_WRITE, ALL] {
        assert_eq!(fast_register(&domain, &region, &pages, 0, 4096, rights), Err(VIOLATION));
    }
    for rights in [Rights::LOCAL_READ, Rights::LOCAL_WRITE, Rights::READ_SINK] {
        fast_register(&domain, &region, &pages, 0, 4096, rights).expect("local rights");
        domain.invalidate(region.local_token()).expect("registered");
    }
}

#[test]
fn rights_of_the_registration_decide() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 1);
    for rights in
        [Rights::LOCAL_READ, Rights::LOCAL_WRITE, Rights::REMOTE_READ, Rights::REMOTE_WRITE, Rights::READ_SINK]
    {
        fast_register(&domain, &region, &pages, 0, 4096, rights).expect("mapped");
        for access in ACCESSES {
            let expected = if rights.in_force(false).allow(access) { NtStatus::SUCCESS } else { VIOLATION };
            assert_eq!(refusal(&domain, token_for(&region, access), 0, 1, access), expected, "{rights:?} {access:?}");
        }
        domain.invalidate(region.local_token()).expect("registered");
    }
}

#[test]
fn initialisation_above_the_limit_is_refused() {
    let world = World::with_limits(MemoryLimits { fast_register_pages: 32, ..SMALL });
    let domain = world.domain();
    let region = Region::try_new(&domain, RegionKind::Fast).expect("memory");
    for count in [0, 33, u32::MAX] {
        assert_eq!(region.initialize_fast_register(count, true), Err(NtStatus::IMPLEMENTATION_LIMIT));
    }
    assert_eq!(region.local_token(), 0);
    assert_eq!(region.initialize_fast_register(32, true), Ok(()));
    let token = region.local_token();
    assert_eq!(region.initialize_fast_register(32, true), Err(NtStatus::INVALID_DEVICE_STATE), "once");
    assert_eq!(region.local_token(), token);
}

#[test]
fn fast_register_needs_the_right_region() {
    let world = World::new();
    let (domain, fast_region, _, pages) = setup(&world, 1);
    let other = world.domain();
    let new = Region::try_new(&domain, RegionKind::Fast).expect("memory");
    assert_eq!(fast_register(&domain, &new, &pages, 0, 1, ALL), Err(NtStatus::INVALID_DEVICE_STATE));
    assert_eq!(fast_register(&domain, &region(&domain), &pages, 0, 1, ALL), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(fast_register(&other, &fast_region, &pages, 0, 1, ALL), Err(NtStatus::INVALID_PARAMETER));
}

//= NDKPI 7.4.7
#[test]
fn pages_that_nothing_covers_are_refused() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 2);
    let partial = world.map(&Buffer::new(0x10, 100)).key();
    let gone = world.map(&Buffer::new(0, 4096)).key();
    let _ = world.table.unmap(gone).expect("mapped");
    for (pages, base, length, good) in [
        (vec![0], 0, 1, false),
        (vec![gone], 0, 1, false),
        (vec![pages[0], gone], 0, 4097, false),
        (vec![pages[0], gone], 0, 4096, true),
        (vec![partial], 0x10, 100, true),
        (vec![partial], 0x10, 101, false),
        (vec![partial], 0xF, 1, false),
        (vec![pages[0], partial], 0, 4097, false),
        (vec![partial, pages[0]], 0x10, 5000, false),
        (vec![pages[1], pages[1] + PAGE_SIZE], 0, 4097, false),
    ] {
        let done = fast_register(&domain, &region, &pages, base, length, ALL);
        assert_eq!(done, if good { Ok(()) } else { Err(VIOLATION) }, "{pages:x?} {base:#x}+{length}");
        if good {
            domain.invalidate(region.local_token()).expect("registered");
        }
    }
    // A refused post leaves nothing behind: all of the room that the region was made with is free.
    let allocated = allocation::count(|| {
        for _ in 0..4 {
            let what = FastRegister { pages: &pages, first_byte: 0, length: 4096, base: 0, rights: ALL };
            assert!(domain.prepare_fast_register(&region, &what).is_ok());
        }
    });
    assert_eq!(allocated, 0);
}

#[test]
fn mapping_released_under_a_registration_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let region = fast(&domain);
    let (first, second) = (Buffer::patterned(0, 4096, 1), Buffer::patterned(0, 4096, 2));
    let (first_key, second_key) = (world.map(&first).key(), world.map(&second).key());
    fast_register(&domain, &region, &[second_key, first_key], 0, 8192, ALL).expect("mapped");
    let segment = domain.resolve(region.local_token(), 0, 8192, Access::LocalWrite).expect("registered");
    assert_eq!(world.table.unmap(first_key), Ok(Release::Done));
    assert!(!first.is_mapped());
    let token = region.local_token();
    assert_eq!(refusal(&domain, token, 0, 4096, Access::LocalRead), NtStatus::SUCCESS);
    assert_eq!(refusal(&domain, token, 4095, 2, Access::LocalRead), VIOLATION);
    assert_eq!(refusal(&domain, token, 4096, 4096, Access::LocalRead), VIOLATION);
    // A transfer that had found the bytes before touches those that are left.
    segment.write(4090, &[0xEE; 12]);
    assert_eq!(&second.contents()[4090..], [0xEE; 6]);
    assert_eq!(first.contents(), Buffer::patterned(0, 4096, 1).contents());
    assert_eq!(&read(&segment)[4096..4100], [0; 4]);
}

//= NDKPI 7.6.3
#[test]
fn invalidate_twice_fails() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 1);
    let token = region.invalidation_token().expect("initialised");
    assert_eq!(domain.invalidate(token), Err(NtStatus::INVALID_DEVICE_REQUEST), "not registered yet");
    fast_register(&domain, &region, &pages, 0, 4096, ALL).expect("mapped");
    assert_eq!(domain.invalidate(token), Ok(()));
    for access in ACCESSES {
        assert_eq!(refusal(&domain, token_for(&region, access), 0, 1, access), VIOLATION);
    }
    assert_eq!(domain.invalidate(token), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(domain.invalidate(region.remote_token()), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(domain.invalidate_remote(region.remote_token()), Err(NtStatus::INVALID_DEVICE_REQUEST));
}

//= NDKPI 7.6.3
#[test]
fn invalidate_after_a_remote_invalidation_fails() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 1);
    fast_register(&domain, &region, &pages, 0, 4096, ALL).expect("mapped");
    assert_eq!(domain.invalidate_remote(region.remote_token()), Ok(()));
    assert_eq!(domain.invalidate(region.local_token()), Err(NtStatus::INVALID_DEVICE_REQUEST));
}

//= NDKPI 7.3.9
#[test]
fn invalidate_after_a_reads_local_invalidation_fails() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 1);
    fast_register(&domain, &region, &pages, 0, 4096, Rights::LOCAL_WRITE).expect("mapped");
    // The token of a read's first element is a local one.
    assert_eq!(domain.invalidate(region.local_token()), Ok(()));
    assert_eq!(
        domain.invalidate(region.invalidation_token().expect("initialised")),
        Err(NtStatus::INVALID_DEVICE_REQUEST)
    );
}

//= NDKPI 7.6.4
#[test]
fn a_peer_invalidates_by_a_good_remote_token_only() {
    // Tokens that stay the same cannot tell an earlier registration from a later one.
    let world = World::rotating();
    let (domain, region, _, pages) = setup(&world, 1);
    fast_register(&domain, &region, &pages, 0, 4096, ALL).expect("mapped");
    let stale = region.remote_token();
    domain.invalidate_remote(stale).expect("registered");
    fast_register(&domain, &region, &pages, 0, 4096, ALL).expect("mapped");
    let token = region.remote_token();
    for wrong in [stale, region.local_token(), token ^ 1, 0, domain.privileged_token()] {
        assert_eq!(domain.invalidate_remote(wrong), Err(NtStatus::INVALID_DEVICE_REQUEST), "{wrong:#x}");
    }
    assert_eq!(world.domain().invalidate_remote(token), Err(NtStatus::INVALID_DEVICE_REQUEST), "another domain's");
    assert_eq!(refusal(&domain, token, 0, 1, Access::RemoteRead), NtStatus::SUCCESS);
    assert_eq!(domain.invalidate_remote(token), Ok(()));
}

#[test]
fn fast_register_again_needs_an_invalidation() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 2);
    fast_register(&domain, &region, &pages[..1], 0, 4096, ALL).expect("mapped");
    let token = region.remote_token();
    assert_eq!(fast_register(&domain, &region, &pages[1..], 0, 4096, ALL), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(refusal(&domain, token, 0, 1, Access::RemoteRead), NtStatus::SUCCESS, "the first one stays");
    domain.invalidate(token).expect("registered");
    fast_register(&domain, &region, &pages[1..], 0, 4096, ALL).expect("invalidated");
}

#[test]
fn registrations_posted_together_are_carried_out_in_order() {
    let world = World::new();
    let (domain, region, buffer, pages) = setup(&world, 3);
    let key = region.invalidation_token().expect("initialised");
    // Fast register, invalidate, fast register, invalidate, fast register: all posted before the first is carried out.
    let post = |page: usize| {
        let what = FastRegister { pages: &pages[page..=page], first_byte: 0, length: 4096, base: 0, rights: ALL };
        (domain.prepare_fast_register(&region, &what).expect("room for it"), region.remote_token())
    };
    let posted = [post(0), post(1), post(2)];
    for (index, (posted, token)) in posted.into_iter().enumerate() {
        if index > 0 {
            domain.invalidate(key).expect("registered");
        }
        domain.commit(posted).expect("in order");
        let segment = domain.resolve(token, 0, 4096, Access::RemoteRead).expect("registered");
        assert_eq!(read(&segment), buffer.contents()[index * 4096..][..4096]);
    }
}

/// The 64 pages of `pages`, in an order in which no two follow each other; another one for each number.
fn scattered(pages: &[u64], number: usize) -> Vec<u64> {
    (0..64).map(|place| pages[(place * 37 + number) % 64]).collect()
}

const fn of_pages(pages: &[u64]) -> FastRegister<'_> {
    FastRegister { pages, first_byte: 0, length: pages.len() as u64 * PAGE_SIZE, base: 0, rights: ALL }
}

/// A domain, a region for 64 pages, and as many pages with their bytes.
fn setup_64(world: &World) -> (TestDomain, TestRegion, Vec<u8>, Vec<u64>) {
    let (domain, buffer) = (world.domain(), Buffer::patterned(0, 64 * 4096, 9));
    let pages = world.map(&buffer).page_addresses().collect();
    let region = Region::try_new(&domain, RegionKind::Fast).expect("memory");
    region.initialize_fast_register(64, true).expect("memory");
    (domain, region, buffer.contents(), pages)
}

/// Carries out what was posted, with an invalidation behind each, and looks that each has its own bytes.
fn carry_out_in_turn(
    (domain, region, contents, pages): &(TestDomain, TestRegion, Vec<u8>, Vec<u64>),
    posted: impl IntoIterator<Item = (Posted, Vec<u64>)>,
) {
    for (posted, list) in posted {
        domain.commit(posted).expect("the one before it was invalidated");
        let bytes: Vec<u8> = list
            .iter()
            .flat_map(|page| {
                let index = pages.iter().position(|known| known == page).expect("one of them");
                contents[index * 4096..][..4096].iter().copied()
            })
            .collect();
        for at in [0, 1, 4095, 4096, 8191, 40_000, bytes.len() - 1] {
            let Some(expected) = bytes.get(at..) else { continue };
            let count = u32::try_from(expected.len()).expect("small");
            // The local token is that of all of them; a remote one that rotates is that of the last post.
            let segment = domain.resolve(region.local_token(), at as u64, count, Access::LocalRead);
            assert_eq!(read(&segment.expect("registered")), expected, "from {at}");
        }
        let beyond = bytes.len() as u64 - 1;
        assert_eq!(refusal(domain, region.local_token(), beyond, 2, Access::LocalRead), VIOLATION);
        domain.invalidate(region.local_token()).expect("registered");
    }
}

//= NDKPI 7.4.5
#[test]
fn scattered_registrations_are_posted_at_the_depth_of_the_queue() {
    for world in [World::new(), World::rotating()] {
        let all = setup_64(&world);
        let (domain, region, _, pages) = &all;
        // Each with another number of runs: one, a few, all.
        let lists: Vec<Vec<u64>> = (0..300)
            .map(|number| match number % 3 {
                0 => scattered(pages, number),
                1 => scattered(pages, number)[..5].to_vec(),
                _ => pages[number % 32..][..20].to_vec(),
            })
            .collect();
        let post = |list: &Vec<u64>| {
            let posted = domain.prepare_fast_register(region, &of_pages(list));
            (posted.expect("as many as the queue holds"), list.clone())
        };
        let posted: Vec<_> = lists.iter().map(post).collect();
        carry_out_in_turn(&all, posted);
    }
}

#[test]
fn a_row_of_registrations_that_was_posted_before_is_posted_without_an_allocation() {
    let world = World::new();
    let all = setup_64(&world);
    let (domain, region, _, pages) = &all;
    let lists: Vec<_> = (0..40).map(|number| scattered(pages, number)).collect();
    let mut least = u64::MAX;
    for _ in 0..4 {
        let mut posted = Vec::with_capacity(lists.len());
        let allocated = allocation::count(|| {
            for list in &lists {
                posted.push(domain.prepare_fast_register(region, &of_pages(list)).expect("room"));
            }
        });
        least = least.min(allocated);
        carry_out_in_turn(&all, posted.into_iter().zip(lists.iter().cloned()));
    }
    assert_eq!(least, 0);
}

#[test]
fn a_registration_for_which_there_is_no_memory_is_refused_and_nothing_has_changed() {
    let world = World::rotating();
    let all = setup_64(&world);
    let (domain, region, _, pages) = &all;
    let mut posted = Vec::with_capacity(100);
    let mut refused = 0;
    for number in 0..40 {
        let list = scattered(pages, number);
        for nth in 0.. {
            let token = region.remote_token();
            let (done, _) = allocation::fail_nth(nth, || domain.prepare_fast_register(region, &of_pages(&list)));
            match done {
                Ok(post) => {
                    posted.push((post, list));
                    break;
                }
                Err(status) => {
                    assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES);
                    assert_eq!(region.remote_token(), token);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0, "no post has allocated");
    carry_out_in_turn(&all, posted);
}

#[test]
fn a_list_that_transfers_use_is_not_filled_anew() {
    let world = World::new();
    let all = setup_64(&world);
    let (domain, region, contents, pages) = &all;
    let mut held = Vec::new();
    for number in 0..40 {
        let list = scattered(pages, number);
        fast_register(domain, region, &list, 0, 64 * PAGE_SIZE, ALL).expect("mapped");
        held.push(domain.resolve(region.local_token(), 0, 64 * 4096, Access::LocalRead).expect("registered"));
        domain.invalidate(region.local_token()).expect("registered");
    }
    for (number, segment) in held.into_iter().enumerate() {
        let index = number % 64;
        assert_eq!(read(&segment)[..4096], contents[index * 4096..][..4096], "registration {number}");
    }
}

#[test]
fn registrations_posted_without_end_are_refused() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 1);
    let what = of_pages(&pages);
    let posted: Vec<_> =
        (0..MOST_POSTED).map(|_| domain.prepare_fast_register(&region, &what).expect("room")).collect();
    assert_eq!(domain.prepare_fast_register(&region, &what), Err(NtStatus::NO_MORE_ENTRIES));
    domain.cancel(posted[1]);
    assert!(domain.prepare_fast_register(&region, &what).is_ok(), "a flushed request gives its room back");
}

#[test]
fn a_cancelled_registration_is_never_carried_out() {
    let world = World::new();
    let (domain, region, _, pages) = setup(&world, 1);
    let what = FastRegister { pages: &pages, first_byte: 0, length: 4096, base: 0, rights: ALL };
    let posted = domain.prepare_fast_register(&region, &what).expect("mapped");
    domain.cancel(posted);
    domain.cancel(posted);
    assert_eq!(domain.commit(posted), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(refusal(&domain, region.remote_token(), 0, 1, Access::RemoteRead), VIOLATION);
    let posted = domain.prepare_fast_register(&region, &what).expect("mapped");
    drop(region);
    assert_eq!(domain.commit(posted), Err(NtStatus::INVALID_DEVICE_REQUEST), "the region is gone");
    domain.cancel(posted);
}

#[test]
fn transfers_of_an_invalidated_region_are_over_when_the_last_has_let_go() {
    let world = World::new();
    let (domain, region, buffer, pages) = setup(&world, 3);
    for list in [vec![pages[0]], vec![pages[2], pages[0]]] {
        let length = list.len() as u64 * PAGE_SIZE;
        fast_register(&domain, &region, &list, 0, length, ALL).expect("mapped");
        let token = region.remote_token();
        assert!(domain.transfers(token).are_over());
        let segment = domain.resolve(token, 0, 4096, Access::RemoteWrite).expect("registered");
        let copy = segment.clone();
        domain.invalidate(token).expect("registered");
        assert!(!domain.transfers(token).are_over());
        drop(segment);
        copy.write(0, &[1]);
        assert!(!domain.transfers(token).are_over());
        drop(copy);
        assert!(domain.transfers(token).are_over());
    }
    assert!(buffer.is_mapped(), "the mapping has its own life");
}

#[test]
fn a_transfer_in_progress_keeps_its_pages_when_others_are_registered() {
    let world = World::new();
    let (domain, region, buffer, pages) = setup(&world, 4);
    fast_register(&domain, &region, &[pages[1], pages[0]], 0, 8192, ALL).expect("mapped");
    let old = domain.resolve(region.local_token(), 0, 8192, Access::LocalRead).expect("registered");
    let expected = [&buffer.contents()[4096..8192], &buffer.contents()[..4096]].concat();
    // The same region over and over, as long as there is room besides the old pages.
    for _ in 0..10 {
        domain.invalidate(region.local_token()).expect("registered");
        fast_register(&domain, &region, &[pages[3], pages[2]], 0, 8192, ALL).expect("mapped");
        assert_eq!(read(&old), expected);
    }
}

#[test]
fn a_registration_beside_one_in_force_need_not_wait_to_fail() {
    let world = World::new();
    let (domain, region, _buffer, pages) = setup(&world, 2);
    fast_register(&domain, &region, &pages, 0x4000, 8192, ALL).expect("mapped");
    let what = FastRegister { pages: &pages, first_byte: 0, length: 8192, base: 0x4000, rights: ALL };
    let posted = domain.prepare_fast_register(&region, &what).expect("mapped");
    let segment = domain.resolve(region.local_token(), 0x4000, 1, Access::LocalRead).expect("registered");
    assert!(domain.may_commit(posted), "whoever uses the one in force");
    domain.invalidate(region.local_token()).expect("registered");
    assert!(!domain.may_commit(posted), "the bytes of the one before are in use");
    drop(segment);
    assert!(domain.may_commit(posted));
    assert_eq!(domain.commit(posted), Ok(()));
}
