//! Logical addresses and the privileged token (`NDKPI 7.5`).

use std::collections::HashSet;

use engine::memory::{Access, MemoryLimits, PAGE_SIZE, Release, pages_touched, transfer};
use ndkpi::NtStatus;

use super::{
    bytes::Buffer,
    world::{ALL, SMALL, VIOLATION, World, fast, fast_register, read, refusal, registered},
};

const LOCAL: [Access; 3] = [Access::LocalRead, Access::LocalWrite, Access::ReadSink];

//= NDKPI 7.5.1
#[test]
fn a_mapping_has_the_pages_that_its_bytes_touch() {
    let world = World::new();
    for (base, length, pages, first_byte) in [
        (0, 4096, 1, 0),
        (0x10_0000, 4097, 2, 0),
        (0x10_0FFF, 1, 1, 0xFFF),
        (0x10_0FFF, 2, 2, 0xFFF),
        (0x10_0010, 8192, 3, 0x10),
        (0x10_0010, 0, 0, 0x10),
    ] {
        let mapping = world.map(&Buffer::new(base, length));
        assert_eq!((mapping.pages(), mapping.first_byte()), (pages, first_byte), "{base:#x}+{length}");
        assert_eq!(pages_touched(first_byte, length as u64), u64::from(pages));
        assert_eq!(mapping.page_addresses().len(), pages as usize);
        for page in mapping.page_addresses() {
            assert_eq!(page % PAGE_SIZE, 0);
            assert_ne!(page, 0);
            assert!(page.cast_signed() > 0, "NDK_LOGICAL_ADDRESS is signed");
        }
    }
}

#[test]
fn logical_addresses_name_the_bytes() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::patterned(0x10_0010, 10_000, 5);
    let mapping = world.map(&buffer);
    let pages: Vec<u64> = mapping.page_addresses().collect();
    let token = domain.privileged_token();
    for access in LOCAL {
        let segment = domain.resolve(token, pages[0] + 0x10, 10_000, access).expect("mapped");
        assert_eq!(read(&segment), buffer.contents());
        let segment = domain.resolve(token, pages[1] + 5, 100, access).expect("mapped");
        assert_eq!(read(&segment), buffer.contents()[4096 - 0x10 + 5..][..100]);
    }
    let segment = domain.resolve(token, pages[2], 3, Access::LocalWrite).expect("mapped");
    segment.write(0, b"abc");
    assert_eq!(&buffer.contents()[8192 - 0x10..][..3], b"abc");
}

#[test]
fn logical_address_that_nothing_covers_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0x10_0010, 10_000);
    let mapping = world.map(&buffer);
    let (base, token) = (mapping.key(), domain.privileged_token());
    let end = base + 0x10 + 10_000;
    for (address, length) in [
        (base + 0xF, 1),
        (base, 1),
        (base, 0x11),
        (end, 1),
        (end - 1, 2),
        (base + 0x10, 10_001),
        (base - 1, 1),
        (base - PAGE_SIZE, 1),
        (0, 1),
        (buffer.base(), 1),
        (1 << 34, 1),
        (base + (1 << 34), 1),
        (base + (1 << 43), 1),
        (base | 1 << 63, 1),
        (u64::MAX, 1),
        (u64::MAX, u32::MAX),
        (base + 0x10, u32::MAX),
    ] {
        for access in LOCAL {
            assert_eq!(refusal(&domain, token, address, length, access), VIOLATION, "{address:#x}+{length}");
        }
    }
    assert_eq!(refusal(&domain, token, end - 1, 1, Access::LocalRead), NtStatus::SUCCESS);
}

//= NDKPI 7.5.4
#[test]
fn privileged_token_grants_no_remote_access() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0x10_0000, 4096);
    let mapping = world.map(&buffer);
    let region = registered(&domain, &buffer, super::world::ALL);
    for access in [Access::RemoteRead, Access::RemoteWrite] {
        for address in [mapping.key(), buffer.base()] {
            assert_eq!(refusal(&domain, domain.privileged_token(), address, 1, access), VIOLATION);
        }
    }
    // Nor does a region's token make logical addresses of its own ones, or the other way round.
    assert_eq!(refusal(&domain, region.local_token(), mapping.key(), 1, Access::LocalRead), VIOLATION);
    assert_eq!(refusal(&domain, domain.privileged_token(), buffer.base(), 1, Access::LocalRead), VIOLATION);
}

//= NDKPI 7.5.3
#[test]
fn logical_address_after_release_is_refused() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0, 4096);
    let mapping = world.map(&buffer);
    assert_eq!(world.table.unmap(mapping.key()), Ok(Release::Done));
    assert_eq!((buffer.is_mapped(), buffer.told()), (false, 0));
    assert_eq!(refusal(&domain, domain.privileged_token(), mapping.key(), 1, Access::LocalRead), VIOLATION);
    assert_eq!(world.table.unmap(mapping.key()), Err(NtStatus::INVALID_DEVICE_REQUEST), "released once");
}

#[test]
fn logical_address_does_not_become_that_of_another_mapping_soon() {
    // The fewest places, each of which is used again three times.
    let world = World::with_limits(MemoryLimits { mappings: 1, ..SMALL });
    let domain = world.domain();
    let buffer = Buffer::new(0, 4096);
    let first = world.map(&buffer);
    let mut keys = HashSet::from([first.key()]);
    let _ = world.table.unmap(first.key()).expect("mapped");
    for _ in 0..4 * 4096 {
        let other = world.map(&buffer);
        assert_eq!(refusal(&domain, domain.privileged_token(), other.key(), 1, Access::LocalRead), NtStatus::SUCCESS);
        assert_eq!(refusal(&domain, domain.privileged_token(), first.key(), 1, Access::LocalRead), VIOLATION);
        assert_eq!(world.table.unmap(first.key()), Err(NtStatus::INVALID_DEVICE_REQUEST));
        assert!(keys.insert(other.key()), "{:#x} was another mapping's", other.key());
        let _ = world.table.unmap(other.key()).expect("mapped");
    }
}

//= NDKPI 7.5.3
#[test]
fn only_the_key_releases_a_mapping() {
    let world = World::new();
    let mapping = world.map(&Buffer::new(0, 8192));
    for key in [0, 1, mapping.key() + 1, mapping.key() + PAGE_SIZE, u64::MAX, mapping.key() | 1 << 63] {
        assert_eq!(world.table.unmap(key), Err(NtStatus::INVALID_DEVICE_REQUEST));
    }
    assert_eq!(world.table.unmap(mapping.key()), Ok(Release::Done));
}

#[test]
fn release_under_a_transfer_is_reported() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0, 4096);
    let mapping = world.map(&buffer);
    let segment = domain.resolve(domain.privileged_token(), mapping.key(), 4096, Access::LocalWrite).expect("mapped");
    assert_eq!(world.table.unmap(mapping.key()), Ok(Release::Pending));
    segment.write(0, &[1]);
    drop(segment);
    assert_eq!((buffer.is_mapped(), buffer.told()), (false, 1));
}

#[test]
fn mapping_above_the_limits_is_refused() {
    let world = World::with_limits(MemoryLimits { mappings: 2, registration: 4096, ..SMALL });
    let long = Buffer::new(0, 4097);
    assert_eq!(world.table.map(long.memory(), long.client()), Err(NtStatus::INVALID_PARAMETER));
    let buffer = Buffer::new(0, 4096);
    let (first, _) = (world.map(&buffer), world.map(&buffer));
    let third = Buffer::new(0, 1);
    assert_eq!(world.table.map(third.memory(), third.client()), Err(NtStatus::INSUFFICIENT_RESOURCES));
    for refused in [long, third] {
        assert_eq!((refused.is_mapped(), refused.told()), (false, 0));
    }
    let _ = world.table.unmap(first.key()).expect("mapped");
    assert!(world.table.map(buffer.memory(), buffer.client()).is_ok(), "its place is free again");
}

#[test]
fn a_transfer_leaves_out_the_pages_of_a_mapping_that_was_released_under_it() {
    let world = World::new();
    let domain = world.domain();
    let buffers = [Buffer::patterned(0, 4096, 1), Buffer::patterned(0, 4096, 2)];
    let [first, second] = [0, 1].map(|number: usize| world.map(&buffers[number]));
    let region = fast(&domain);
    fast_register(&domain, &region, &[first.key(), second.key()], 0x4000, 8192, ALL).expect("mapped");
    let source = domain.resolve(region.local_token(), 0x4000, 8192, Access::LocalRead).expect("registered");
    let mut expected = buffers[0].contents();
    expected.extend(buffers[1].contents());
    assert_eq!(read(&source), expected);
    assert_eq!(world.table.unmap(second.key()), Ok(Release::Done), "against NDKPI 7.5");
    expected[4096..].fill(0);
    assert_eq!(read(&source), expected);
    let target = Buffer::patterned(0x10_0000, 8192, 3);
    expected[4096..].copy_from_slice(&target.contents()[4096..]);
    let sink = registered(&domain, &target, ALL);
    let sink = domain.resolve(sink.local_token(), 0x10_0000, 8192, Access::LocalWrite).expect("registered");
    transfer(&[sink], 0, &[source], 0, 8192);
    assert_eq!(target.contents(), expected);
}
