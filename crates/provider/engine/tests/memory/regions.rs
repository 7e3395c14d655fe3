//! Regions that are registered and deregistered (`NDKPI 7.4`).

use engine::memory::{Access, MAX_LENGTH, MemoryLimits, Region, RegionKind, Release, Rights};
use ndkpi::NtStatus;

use super::{
    bytes::Buffer,
    world::{ACCESSES, ALL, SMALL, VIOLATION, World, fast, read, refusal, region, register, registered, token_for},
};

//= invariant 7
#[test]
fn access_one_byte_before_and_after_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let (base, length) = (0x1234_5678, 100_u32);
    let region = registered(&domain, &Buffer::new(base, length as usize), ALL);
    for access in ACCESSES {
        let token = token_for(&region, access);
        let end = base + u64::from(length);
        for (address, length, good) in [
            (base, length, true),
            (base, 1, true),
            (end - 1, 1, true),
            (base + 1, length - 1, true),
            (base - 1, 1, false),
            (base - 1, length, false),
            (base, length + 1, false),
            (base + 1, length, false),
            (end, 1, false),
            (base - 1, length + 2, false),
            (base, u32::MAX, false),
            (0, 1, false),
            (u64::MAX, 1, false),
        ] {
            let expected = if good { NtStatus::SUCCESS } else { VIOLATION };
            assert_eq!(refusal(&domain, token, address, length, access), expected, "{address:#x}+{length} {access:?}");
        }
    }
}

//= invariant 7
#[test]
fn address_arithmetic_that_wraps_is_refused() {
    let world = World::new();
    let domain = world.domain();
    // The last sixteen addresses there are.
    let base = u64::MAX - 15;
    let last = registered(&domain, &Buffer::new(base, 16), ALL);
    let token = last.local_token();
    for (address, length, good) in [
        (base, 16, true),
        (u64::MAX, 1, true),
        (u64::MAX, 2, false),
        (base, 17, false),
        (base + 1, 16, false),
        (base, u32::MAX, false),
        (0, 1, false),
        (base - 1, 17, false),
    ] {
        let expected = if good { NtStatus::SUCCESS } else { VIOLATION };
        assert_eq!(refusal(&domain, token, address, length, Access::LocalRead), expected, "{address:#x}+{length}");
    }
    // A region at the first addresses must not be reached from the last ones.
    let first = registered(&domain, &Buffer::new(0, 16), ALL);
    assert_eq!(refusal(&domain, first.local_token(), u64::MAX, 2, Access::LocalRead), VIOLATION);
    assert_eq!(refusal(&domain, first.local_token(), u64::MAX - 1, u32::MAX, Access::LocalRead), VIOLATION);
    // And one that would wrap itself is none.
    assert_eq!(register(&region(&domain), &Buffer::new(u64::MAX - 15, 17), ALL), Err(NtStatus::INVALID_PARAMETER));
}

#[test]
fn a_read_sink_needs_its_right_where_the_adapter_asks_for_it() {
    for (world, enough) in [(World::new(), true), (World::with_read_sinks(), false)] {
        let domain = world.domain();
        let expected = if enough { NtStatus::SUCCESS } else { VIOLATION };
        for rights in [Rights::LOCAL_WRITE, Rights::REMOTE_WRITE, Rights::REMOTE_READ | Rights::LOCAL_WRITE] {
            let refused = |rights: Rights| {
                let region = registered(&domain, &Buffer::new(0x1000, 16), rights);
                refusal(&domain, region.local_token(), 0x1000, 16, Access::ReadSink)
            };
            assert_eq!(refused(rights), expected, "{rights:?}");
            assert_eq!(refused(rights | Rights::READ_SINK), NtStatus::SUCCESS, "{rights:?}");
        }
        let buffer = Buffer::new(0x1000, 16);
        let mapping = world.map(&buffer);
        let address = mapping.key();
        assert_eq!(refusal(&domain, domain.privileged_token(), address, 16, Access::ReadSink), expected);
        assert_eq!(refusal(&domain, domain.privileged_token(), address, 16, Access::LocalWrite), NtStatus::SUCCESS);
    }
}

//= NDKPI 7.4.2
#[test]
fn rights_decide() {
    use Access::{LocalRead, LocalWrite, ReadSink, RemoteRead, RemoteWrite};
    let world = World::new();
    let domain = world.domain();
    let cases: [(Rights, &[Access]); 7] = [
        (Rights::LOCAL_READ, &[LocalRead]),
        (Rights::LOCAL_WRITE, &[LocalRead, LocalWrite, ReadSink]),
        (Rights::READ_SINK, &[LocalRead, ReadSink]),
        (Rights::REMOTE_READ, &[LocalRead, RemoteRead]),
        (Rights::REMOTE_WRITE, &[LocalRead, LocalWrite, ReadSink, RemoteWrite]),
        (Rights::REMOTE_READ | Rights::LOCAL_WRITE, &[LocalRead, LocalWrite, ReadSink, RemoteRead]),
        (ALL, &ACCESSES),
    ];
    for (rights, allowed) in cases {
        let region = registered(&domain, &Buffer::new(0x1000, 16), rights);
        for access in ACCESSES {
            let expected = if allowed.contains(&access) { NtStatus::SUCCESS } else { VIOLATION };
            assert_eq!(
                refusal(&domain, token_for(&region, access), 0x1000, 16, access),
                expected,
                "{rights:?} {access:?}"
            );
        }
    }
}

//= NDKPI 7.4.2
#[test]
fn local_write_alone_does_not_grant_remote_write() {
    // In NDKPI the two share a bit (`NDKPI 2.4`).
    assert!(!Rights::LOCAL_WRITE.contain(Rights::REMOTE_WRITE));
    assert!(Rights::REMOTE_WRITE.contain(Rights::LOCAL_WRITE));
    assert!(!Rights::LOCAL_WRITE.are_remote());
    assert!(Rights::REMOTE_WRITE.are_remote() && Rights::REMOTE_READ.are_remote());
}

#[test]
fn a_piece_is_the_bytes_of_the_registration() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::patterned(0x5000, 1000, 3);
    let region = registered(&domain, &buffer, ALL);
    let segment = domain.resolve(region.remote_token(), 0x5000 + 17, 900, Access::RemoteWrite).expect("registered");
    assert_eq!(segment.len(), 900);
    assert_eq!(read(&segment), buffer.contents()[17..917]);
    segment.write(5, b"hello");
    assert_eq!(&buffer.contents()[22..27], b"hello");
}

#[test]
#[should_panic(expected = "outside of the segment")]
fn a_piece_is_not_used_beyond_its_end() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(0x5000, 1000), ALL);
    let segment = domain.resolve(region.local_token(), 0x5000, 10, Access::LocalRead).expect("registered");
    assert!(!segment.is_empty());
    segment.read(10, &mut [0]);
}

#[test]
fn without_bytes_nothing_is_checked() {
    let world = World::new();
    let domain = world.domain();
    for access in ACCESSES {
        let segment = domain.resolve(0xDEAD_BEEF, 77, 0, access).expect("nothing to protect");
        assert!(segment.is_empty());
        assert_eq!(segment.len(), 0);
    }
}

#[test]
fn zero_length_registration_is_allowed() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 0);
    let region = registered(&domain, &buffer, ALL);
    assert_ne!(region.local_token(), 0);
    assert_eq!(refusal(&domain, region.local_token(), 0x1000, 0, Access::LocalRead), NtStatus::SUCCESS);
    assert_eq!(refusal(&domain, region.local_token(), 0x1000, 1, Access::LocalRead), VIOLATION);
    assert_eq!(region.deregister(), Ok(Release::Done));
}

#[test]
fn registration_above_the_limit_is_refused() {
    let world = World::with_limits(MemoryLimits { registration: 100, ..SMALL });
    let domain = world.domain();
    assert_eq!(register(&region(&domain), &Buffer::new(0, 100), ALL), Ok(()));
    let buffer = Buffer::new(0, 101);
    assert_eq!(register(&region(&domain), &buffer, ALL), Err(NtStatus::INVALID_PARAMETER));
    assert!(!buffer.is_mapped(), "what was handed in is given up");
    assert_eq!(buffer.told(), 0, "nobody is told of what was never registered");
    assert_eq!(
        engine::memory::MemoryTable::try_new(&world.os, MemoryLimits { registration: MAX_LENGTH + 1, ..SMALL }).err(),
        Some(NtStatus::INVALID_PARAMETER)
    );
}

#[test]
fn register_twice_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let (first, second) = (Buffer::new(0x1000, 16), Buffer::new(0x1000, 16));
    let region = registered(&domain, &first, ALL);
    let token = region.local_token();
    assert_eq!(register(&region, &second, ALL), Err(NtStatus::INVALID_DEVICE_STATE));
    assert!(!second.is_mapped());
    assert_eq!(second.told(), 0);
    assert_eq!(region.local_token(), token, "the first registration stays");
    assert_eq!(refusal(&domain, token, 0x1000, 16, Access::LocalRead), NtStatus::SUCCESS);
}

#[test]
fn deregister_what_is_not_registered_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let region = region(&domain);
    assert_eq!(region.deregister(), Err(NtStatus::INVALID_DEVICE_STATE));
    register(&region, &Buffer::new(0, 1), ALL).expect("memory");
    assert_eq!(region.deregister(), Ok(Release::Done));
    assert_eq!(region.deregister(), Err(NtStatus::INVALID_DEVICE_STATE));
}

#[test]
fn the_kind_of_a_region_is_fixed() {
    let world = World::new();
    let domain = world.domain();
    let (normal, fast) = (region(&domain), fast(&domain));
    let buffer = Buffer::new(0, 1);
    assert_eq!(register(&fast, &buffer, ALL), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(fast.deregister(), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(normal.initialize_fast_register(1, true), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(normal.invalidation_token(), Err(NtStatus::INVALID_DEVICE_REQUEST));
    let new = Region::try_new(&domain, RegionKind::Fast).expect("memory");
    assert_eq!(register(&new, &buffer, ALL), Err(NtStatus::INVALID_DEVICE_REQUEST));
    assert_eq!(new.invalidation_token(), Err(NtStatus::INVALID_DEVICE_STATE));
    assert_eq!((buffer.is_mapped(), buffer.told()), (false, 0));
}

#[test]
fn a_normal_region_is_never_invalidated() {
    let world = World::new();
    let domain = world.domain();
    let region = registered(&domain, &Buffer::new(0, 16), ALL);
    for token in [region.local_token(), region.remote_token()] {
        assert_eq!(domain.invalidate(token), Err(NtStatus::INVALID_DEVICE_REQUEST));
        assert_eq!(domain.invalidate_remote(token), Err(NtStatus::INVALID_DEVICE_REQUEST));
    }
    assert_eq!(refusal(&domain, region.remote_token(), 0, 16, Access::RemoteRead), NtStatus::SUCCESS);
}

#[test]
fn deregister_without_transfers_is_done_at_once() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 16);
    let region = registered(&domain, &buffer, ALL);
    drop(domain.resolve(region.local_token(), 0x1000, 16, Access::LocalRead));
    assert!(buffer.is_mapped());
    assert_eq!(region.deregister(), Ok(Release::Done));
    assert!(!buffer.is_mapped());
    assert_eq!(buffer.told(), 0, "the result says it");
}

#[test]
fn a_transfer_in_progress_keeps_the_bytes_mapped() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 16);
    let region = registered(&domain, &buffer, ALL);
    let first = domain.resolve(region.local_token(), 0x1000, 16, Access::LocalWrite).expect("registered");
    let second = first.clone();
    assert_eq!(region.deregister(), Ok(Release::Pending));
    assert_eq!(
        refusal(&domain, region.local_token(), 0x1000, 16, Access::LocalRead),
        VIOLATION,
        "nobody else gets them"
    );
    drop(first);
    assert_eq!((buffer.is_mapped(), buffer.told()), (true, 0));
    second.write(0, b"late");
    assert_eq!(&buffer.contents()[..4], b"late");
    drop(second);
    assert_eq!((buffer.is_mapped(), buffer.told()), (false, 1), "told once, after the bytes were given up");
}

#[test]
fn register_again_while_an_old_transfer_goes_on() {
    let world = World::new();
    let domain = world.domain();
    let (old, new) = (Buffer::new(0x1000, 16), Buffer::new(0x1000, 16));
    let region = registered(&domain, &old, ALL);
    let segment = domain.resolve(region.local_token(), 0x1000, 16, Access::LocalWrite).expect("registered");
    assert_eq!(region.deregister(), Ok(Release::Pending));
    register(&region, &new, ALL).expect("memory");
    segment.write(0, b"old");
    assert_eq!(&old.contents()[..3], b"old");
    assert_eq!(new.contents(), [0; 16]);
    drop(segment);
    assert_eq!((old.told(), new.told()), (1, 0));
}

#[test]
fn a_region_that_goes_away_gives_its_bytes_up() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 16);
    let region = registered(&domain, &buffer, ALL);
    let token = region.local_token();
    let segment = domain.resolve(token, 0x1000, 16, Access::LocalWrite).expect("registered");
    drop(region);
    assert_eq!(refusal(&domain, token, 0x1000, 16, Access::LocalRead), VIOLATION);
    assert_eq!((buffer.is_mapped(), buffer.told()), (true, 0));
    drop(segment);
    assert_eq!((buffer.is_mapped(), buffer.told()), (false, 1));
}

#[test]
fn a_piece_outlives_everything() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::patterned(0x1000, 16, 1);
    let region = registered(&domain, &buffer, ALL);
    let segment = domain.resolve(region.local_token(), 0x1000, 16, Access::LocalWrite).expect("registered");
    drop((region, domain, world));
    assert_eq!(read(&segment), buffer.contents());
}

#[test]
fn a_client_is_optional_for_a_registration_that_outlives_its_end() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 16);
    let region = region(&domain);
    region.register(buffer.memory(), ALL, ()).expect("memory");
    let segment = domain.resolve(region.local_token(), 0x1000, 16, Access::LocalWrite).expect("registered");
    assert_eq!(region.deregister(), Ok(Release::Pending));
    assert!(buffer.is_mapped());
    drop(segment);
    assert!(!buffer.is_mapped());
}
