//! Memory windows (`NDKPI 7.6`).

use engine::memory::{Access, Bind, MemoryLimits, Region, RegionKind, Release, Rights, Window};
use ndkpi::NtStatus;
use testing::allocation;

use super::{
    bytes::Buffer,
    world::{
        ACCESSES, ALL, SMALL, VIOLATION, World, bind, fast, fast_register, read, refusal, region, register, registered,
        window,
    },
};

const BASE: u64 = 0x1000;
const REMOTE: Rights = Rights::REMOTE_READ.and(Rights::REMOTE_WRITE);

#[test]
fn a_window_gives_peers_its_bytes_and_no_others() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::patterned(BASE, 1000, 4);
    let region = registered(&domain, &buffer, Rights::LOCAL_WRITE);
    let window = window(&domain);
    bind(&domain, &window, &region, BASE + 100, 50, REMOTE).expect("in the region");
    let token = window.remote_token();
    let segment = domain.resolve(token, BASE + 100, 50, Access::RemoteRead).expect("bound");
    assert_eq!(read(&segment), buffer.contents()[100..150]);
    for (address, length) in [(BASE + 99, 1), (BASE + 150, 1), (BASE + 100, 51), (BASE, 1), (BASE + 101, 50)] {
        assert_eq!(refusal(&domain, token, address, length, Access::RemoteRead), VIOLATION);
    }
    for access in [Access::LocalRead, Access::LocalWrite, Access::ReadSink] {
        assert_eq!(refusal(&domain, token, BASE + 100, 1, access), VIOLATION, "a window is for peers");
    }
    assert_eq!(
        refusal(&domain, region.remote_token(), BASE + 100, 1, Access::RemoteRead),
        VIOLATION,
        "the region is not"
    );
    for access in ACCESSES {
        assert_eq!(refusal(&domain, window.invalidation_token(), BASE + 100, 1, access), VIOLATION);
        assert_eq!(refusal(&world.domain(), token, BASE + 100, 1, access), VIOLATION);
    }
}

#[test]
fn a_region_says_whether_windows_keep_it() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::patterned(BASE, 1000, 4);
    let region = registered(&domain, &buffer, Rights::LOCAL_WRITE);
    let (window, fast) = (window(&domain), fast(&domain));
    let local = region.local_token();
    assert!(!domain.has_windows(local));
    bind(&domain, &window, &region, BASE, 50, REMOTE).expect("in the region");
    assert!(domain.has_windows(local));
    for other in [window.remote_token(), fast.local_token(), region.remote_token(), 0xDEAD_BEEF] {
        assert!(!domain.has_windows(other), "{other:#x} is no local token of a normal registration");
    }
    domain.invalidate(window.remote_token()).expect("bound");
    assert!(!domain.has_windows(local));
}

#[test]
fn rights_of_the_window_decide() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    for (rights, may_read, may_write) in
        [(Rights::REMOTE_READ, true, false), (Rights::REMOTE_WRITE, false, true), (REMOTE, true, true)]
    {
        bind(&domain, &window, &region, BASE, 16, rights).expect("in the region");
        for (access, may) in [(Access::RemoteRead, may_read), (Access::RemoteWrite, may_write)] {
            let expected = if may { NtStatus::SUCCESS } else { VIOLATION };
            assert_eq!(refusal(&domain, window.remote_token(), BASE, 16, access), expected, "{rights:?} {access:?}");
        }
        domain.invalidate(window.invalidation_token()).expect("bound");
    }
}

#[test]
fn remote_write_needs_a_region_with_local_write() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), Rights::REMOTE_READ);
    let window = window(&domain);
    assert_eq!(bind(&domain, &window, &region, BASE, 16, Rights::REMOTE_WRITE), Err(VIOLATION));
    assert_eq!(window.remote_token(), 0, "nothing was posted");
    assert_eq!(bind(&domain, &window, &region, BASE, 16, Rights::REMOTE_READ), Ok(()));
}

//= NDKPI 7.6.1
#[test]
fn window_outside_region_is_refused() {
    let world = World::with_limits(MemoryLimits { registration: 4096, ..SMALL });
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    for (address, length) in [
        (BASE - 1, 1),
        (BASE - 1, 18),
        (BASE, 17),
        (BASE + 16, 1),
        (BASE + 1, 16),
        (0, 1),
        (u64::MAX, 2),
        (u64::MAX, 1),
    ] {
        assert_eq!(bind(&domain, &window, &region, address, length, REMOTE), Err(VIOLATION), "{address:#x}+{length}");
    }
    assert_eq!(bind(&domain, &window, &region, BASE, 4096, REMOTE), Err(VIOLATION));
    assert_eq!(bind(&domain, &window, &region, BASE, 4097, REMOTE), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(region.deregister(), Ok(Release::Done), "nothing was bound");
}

#[test]
fn zero_length_window_gives_nothing() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    bind(&domain, &window, &region, BASE + 16, 0, REMOTE).expect("in the region");
    assert_eq!(refusal(&domain, window.remote_token(), BASE + 16, 1, Access::RemoteRead), VIOLATION);
}

#[test]
fn window_token_is_valid_at_return_and_usable_when_carried_out() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    let mut last = 0;
    for _ in 0..100 {
        let what = Bind { address: BASE, length: 16, rights: REMOTE };
        let posted = domain.prepare_bind(&window, &region, &what).expect("in the region");
        let token = window.remote_token();
        assert_ne!(token, last);
        assert_eq!(refusal(&domain, token, BASE, 1, Access::RemoteRead), VIOLATION);
        domain.commit(posted).expect("not bound before");
        assert_eq!(window.remote_token(), token);
        assert_eq!(refusal(&domain, token, BASE, 1, Access::RemoteRead), NtStatus::SUCCESS);
        assert_eq!(refusal(&domain, last, BASE, 1, Access::RemoteRead), VIOLATION);
        domain.invalidate_remote(token).expect("bound");
        assert_eq!(refusal(&domain, token, BASE, 1, Access::RemoteRead), VIOLATION);
        last = token;
    }
}

#[test]
fn bind_needs_a_registered_region_of_the_domain() {
    let world = World::new();
    let (domain, other) = (world.domain(), world.domain());
    let region = region(&domain);
    assert_eq!(bind(&domain, &window(&domain), &region, 0, 0, REMOTE), Err(NtStatus::INVALID_DEVICE_STATE));
    register(&region, &Buffer::new(BASE, 16), ALL).expect("memory");
    assert_eq!(bind(&domain, &window(&other), &region, BASE, 16, REMOTE), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(bind(&other, &window(&other), &region, BASE, 16, REMOTE), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(bind(&other, &window(&domain), &region, BASE, 16, REMOTE), Err(NtStatus::INVALID_PARAMETER));
    assert_eq!(bind(&domain, &window(&domain), &fast(&domain), BASE, 16, REMOTE), Err(NtStatus::INVALID_DEVICE_STATE));
    assert_eq!(region.deregister(), Ok(Release::Done), "nothing was bound");
}

#[test]
fn bind_again_needs_an_invalidation() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    bind(&domain, &window, &region, BASE, 8, REMOTE).expect("in the region");
    let token = window.remote_token();
    assert_eq!(bind(&domain, &window, &region, BASE, 16, REMOTE), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(refusal(&domain, token, BASE, 8, Access::RemoteRead), NtStatus::SUCCESS, "the first one stays");
    domain.invalidate(window.invalidation_token()).expect("bound");
    assert_eq!(region.deregister(), Ok(Release::Done), "the bind that failed does not count");
}

//= NDKPI 7.6.2
#[test]
fn deregister_with_bound_window_is_busy() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let (first, second) = (window(&domain), window(&domain));
    bind(&domain, &first, &region, BASE, 16, REMOTE).expect("in the region");
    bind(&domain, &second, &region, BASE, 8, REMOTE).expect("in the region");
    assert_eq!(region.deregister(), Err(NtStatus::DEVICE_BUSY));
    domain.invalidate(first.invalidation_token()).expect("bound");
    assert_eq!(region.deregister(), Err(NtStatus::DEVICE_BUSY));
    assert_eq!(refusal(&domain, region.local_token(), BASE, 16, Access::LocalRead), NtStatus::SUCCESS, "as it was");
    drop(second);
    assert_eq!(region.deregister(), Ok(Release::Done), "a window that goes away is unbound");
}

#[test]
fn deregister_with_a_posted_bind_is_busy() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    let what = Bind { address: BASE, length: 16, rights: REMOTE };
    let posted = domain.prepare_bind(&window, &region, &what).expect("in the region");
    assert_eq!(region.deregister(), Err(NtStatus::DEVICE_BUSY));
    domain.cancel(posted);
    domain.cancel(posted);
    assert_eq!(domain.commit(posted), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(region.deregister(), Ok(Release::Done));
}

#[test]
fn a_bound_region_stays_until_its_windows_are_gone() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(BASE, 16);
    let region = registered(&domain, &buffer, ALL);
    let window = window(&domain);
    bind(&domain, &window, &region, BASE, 16, REMOTE).expect("in the region");
    drop(region);
    assert!(buffer.is_mapped());
    assert_eq!(refusal(&domain, window.remote_token(), BASE, 16, Access::RemoteWrite), NtStatus::SUCCESS);
    domain.invalidate(window.invalidation_token()).expect("bound");
    assert_eq!((buffer.is_mapped(), buffer.told(), world.table.counts().regions), (false, 1, 0));
}

//= NDKPI 7.6.3
#[test]
fn window_invalidated_twice_fails() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    assert_eq!(domain.invalidate(window.invalidation_token()), Err(NtStatus::INVALID_DEVICE_REQUEST), "never bound");
    bind(&domain, &window, &region, BASE, 16, REMOTE).expect("in the region");
    let token = window.remote_token();
    assert_eq!(domain.invalidate_remote(window.invalidation_token()), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(world.domain().invalidate_remote(token), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(domain.invalidate_remote(token), Ok(()));
    assert_eq!(domain.invalidate_remote(token), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(domain.invalidate(window.invalidation_token()), Err(NtStatus::INVALID_DEVICE_REQUEST));
}

#[test]
fn transfers_of_an_invalidated_window_are_over_when_the_last_has_let_go() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(BASE, 16);
    let region = registered(&domain, &buffer, ALL);
    let window = window(&domain);
    bind(&domain, &window, &region, BASE, 16, REMOTE).expect("in the region");
    let token = window.remote_token();
    let segment = domain.resolve(token, BASE, 16, Access::RemoteWrite).expect("bound");
    domain.invalidate(token).expect("bound");
    assert!(!domain.transfers(token).are_over());
    assert_eq!(region.deregister(), Ok(Release::Pending), "the transfer goes on");
    drop(segment);
    assert!(domain.transfers(token).are_over());
    assert_eq!(buffer.told(), 1);
}

#[test]
fn windows_of_a_fast_registered_region() {
    let world = World::new();
    let domain = world.domain();
    let region = fast(&domain);
    let buffer = Buffer::patterned(0, 3 * 4096, 6);
    let pages: Vec<u64> = world.map(&buffer).page_addresses().collect();
    // Fast register and bind are posted together: the bind is checked against what was posted before it.
    let scattered = [pages[2], pages[0]];
    let what = engine::memory::FastRegister { pages: &scattered, first_byte: 0, length: 8192, base: BASE, rights: ALL };
    let registration = domain.prepare_fast_register(&region, &what).expect("mapped");
    let window = window(&domain);
    let what = Bind { address: BASE + 4000, length: 200, rights: REMOTE };
    let posted = domain.prepare_bind(&window, &region, &what).expect("in the region");
    domain.commit(registration).expect("in order");
    domain.commit(posted).expect("in order");
    let segment = domain.resolve(window.remote_token(), BASE + 4000, 200, Access::RemoteRead).expect("bound");
    let contents = buffer.contents();
    assert_eq!(read(&segment), [&contents[2 * 4096 + 4000..], &contents[..104]].concat());
    assert_eq!(domain.invalidate(region.local_token()), Err(NtStatus::DEVICE_BUSY));
    assert_eq!(domain.invalidate_remote(region.remote_token()), Err(NtStatus::DEVICE_BUSY));
    domain.invalidate(window.invalidation_token()).expect("bound");
    domain.invalidate(region.local_token()).expect("registered");
    assert!(!domain.transfers(window.remote_token()).are_over());
}

#[test]
fn bind_to_a_registration_that_is_gone_fails_when_carried_out() {
    let world = World::new();
    let domain = world.domain();
    let region = fast(&domain);
    let mapping = world.map(&Buffer::new(0, 8192));
    let pages: Vec<u64> = mapping.page_addresses().collect();
    let window = window(&domain);
    let what = Bind { address: BASE + 4096, length: 4096, rights: REMOTE };
    fast_register(&domain, &region, &pages, BASE, 8192, ALL).expect("mapped");
    let (first, second) = (domain.prepare_bind(&window, &region, &what), domain.prepare_bind(&window, &region, &what));
    domain.invalidate(region.local_token()).expect("a posted bind is behind the invalidation in its queue");
    assert_eq!(domain.commit(first.expect("in the region")), Err(NtStatus::INVALID_DEVICE_REQUEST));
    fast_register(&domain, &region, &pages, BASE, 4096, ALL).expect("mapped");
    assert_eq!(domain.commit(second.expect("in the region")), Err(VIOLATION), "the new registration is too short");
    domain.invalidate(region.local_token()).expect("nothing is bound");
}

//= NDKPI 7.6.1
#[test]
fn binds_are_posted_at_the_depth_of_the_queue() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 4096), ALL);
    let window = window(&domain);
    let bind = |number: u64| Bind { address: BASE + number, length: 16, rights: REMOTE };
    let mut tokens = Vec::new();
    let posted: Vec<_> = (0..300)
        .map(|number| {
            let posted = domain.prepare_bind(&window, &region, &bind(number)).expect("as many as the queue holds");
            tokens.push(window.remote_token());
            posted
        })
        .collect();
    for (number, (posted, token)) in (0..).zip(posted.into_iter().zip(&tokens)) {
        domain.commit(posted).expect("the one before it was invalidated");
        assert_eq!(refusal(&domain, *token, BASE + number, 16, Access::RemoteWrite), NtStatus::SUCCESS);
        assert_eq!(refusal(&domain, *token, BASE + number + 1, 16, Access::RemoteWrite), VIOLATION);
        domain.invalidate(window.invalidation_token()).expect("bound");
    }
    let different: std::collections::BTreeSet<_> = tokens.iter().collect();
    assert_eq!(different.len(), tokens.len());
    assert_eq!(region.deregister(), Ok(Release::Done), "nothing is posted or bound any more");
}

#[test]
fn a_bind_for_which_there_is_no_memory_is_refused_and_nothing_has_changed() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    let what = Bind { address: BASE, length: 16, rights: REMOTE };
    let mut refused = 0;
    for _ in 0..20 {
        let token = window.remote_token();
        if let (Err(status), _) = allocation::fail_nth(0, || domain.prepare_bind(&window, &region, &what)) {
            assert_eq!(status, NtStatus::INSUFFICIENT_RESOURCES);
            assert_eq!(window.remote_token(), token);
            refused += 1;
            domain.prepare_bind(&window, &region, &what).expect("memory");
        }
    }
    assert!((1..5).contains(&refused), "room is doubled: {refused}");
    drop(window);
    assert_eq!(region.deregister(), Ok(Release::Done), "posted binds go away with the window");
}

#[test]
fn posted_binds_keep_their_region_until_the_window_goes() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(BASE, 16), ALL);
    let window = window(&domain);
    let what = Bind { address: BASE, length: 16, rights: REMOTE };
    let posted: Vec<_> = (0..9).map(|_| domain.prepare_bind(&window, &region, &what).expect("room")).collect();
    domain.commit(posted[0]).expect("not bound before");
    assert_eq!(region.deregister(), Err(NtStatus::DEVICE_BUSY));
    drop(window);
    assert_eq!(region.deregister(), Ok(Release::Done), "posted binds go away with the window");
}

#[test]
fn a_window_of_no_domain_is_none() {
    let world = World::with_limits(MemoryLimits { tokens: 1, ..SMALL });
    let domain = world.domain();
    assert_eq!(Window::try_new(&domain).err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
    assert_eq!(world.table.counts().windows, 0);
}

#[test]
fn bind_needs_an_initialised_region() {
    let world = World::new();
    let domain = world.domain();
    let region = Region::try_new(&domain, RegionKind::Fast).expect("memory");
    let status = bind(&domain, &window(&domain), &region, 0, 0, Rights::REMOTE_READ);
    assert_eq!(status, Err(NtStatus::INVALID_DEVICE_STATE));
}
