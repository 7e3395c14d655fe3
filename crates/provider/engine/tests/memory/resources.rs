//! What memory costs, and that nothing of it is lost.

use std::time::Instant;

use engine::memory::{
    Access, Bind, Domain, FastRegister, FastTokens, MemoryCounts, MemoryLimits, MemoryRules, MemoryTable, Region,
    RegionKind, Rights, Window, transfer,
};
use ndkpi::NtStatus;
use testing::allocation::{count, fail_nth, growth};

use super::{
    bytes::Buffer,
    world::{ALL, SMALL, TestOs, VIOLATION, World, bind, fast, fast_register, refusal, registered, window},
};

#[test]
fn nothing_allocates_on_the_data_path() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::new(0, 16 * 4096);
    let mapping = world.map(&buffer);
    let pages: Vec<u64> = mapping.page_addresses().collect();
    let scattered: Vec<u64> = pages.iter().rev().copied().collect();
    let normal = registered(&domain, &buffer, ALL);
    let (fast_region, view) = (fast(&domain), window(&domain));
    let work = || {
        let length = 16 * 4096;
        for pages in [&pages, &scattered] {
            let what = FastRegister { pages, first_byte: 0, length, base: 0x1000, rights: ALL };
            let posted = domain.prepare_fast_register(&fast_region, &what)?;
            domain.cancel(posted);
            domain.commit(domain.prepare_fast_register(&fast_region, &what)?)?;
            let what = Bind { address: 0x2000, length: 4096, rights: Rights::REMOTE_READ };
            domain.commit(domain.prepare_bind(&view, &fast_region, &what)?)?;
            let bytes = 16 * 4096;
            let segments = [
                domain.resolve(fast_region.local_token(), 0x1000, bytes, Access::LocalWrite)?,
                domain.resolve(normal.remote_token(), 0, bytes, Access::RemoteRead)?,
                domain.resolve(domain.privileged_token(), mapping.key(), bytes, Access::LocalRead)?,
                domain.resolve(view.remote_token(), 0x2000, 4096, Access::RemoteRead)?,
            ];
            transfer(&segments[..1], 0, &segments[1..], 5, 60_000);
            segments[0].write(4000, &[1; 200]);
            segments[0].read(4000, &mut [0; 200]);
            domain.invalidate_remote(view.remote_token())?;
            domain.invalidate(fast_region.local_token())?;
            assert!(!domain.transfers(fast_region.remote_token()).are_over());
        }
        Ok::<(), NtStatus>(())
    };
    // The first time teaches the machine which locks there are.
    work().expect("all is registered");
    let mut result = Ok(());
    let allocations = count(|| result = work());
    assert_eq!((result, allocations), (Ok(()), 0));
}

/// Everything that allocates, once.
fn build(os: &TestOs, buffer: &Buffer, memories: &mut Vec<super::bytes::TestMemory>) -> Result<(), NtStatus> {
    let table = MemoryTable::try_new(os, MemoryLimits { tokens: 100, mappings: 100, ..SMALL })?;
    let outcome = (|| {
        let domain = Domain::try_new(&table)?;
        let normal = Region::try_new(&domain, RegionKind::Normal)?;
        let other = Region::try_new(&domain, RegionKind::Fast)?;
        let window = Window::try_new(&domain)?;
        other.initialize_fast_register(8, true)?;
        let mut memory = || memories.pop().expect("prepared");
        normal.register(memory(), ALL, buffer.client())?;
        let mapping = table.map(memory(), buffer.client())?;
        fast_register(&domain, &other, &[mapping.key()], 0, 4096, ALL)?;
        bind(&domain, &window, &normal, 0, 4096, Rights::REMOTE_READ)?;
        let _ = domain.resolve(window.remote_token(), 0, 4096, Access::RemoteRead)?;
        let _ = table.unmap(mapping.key())?;
        Ok(())
    })();
    let MemoryCounts { domains, regions, windows, mappings, .. } = table.counts();
    assert_eq!((domains, regions, windows), (0, 0, 0), "all is undone");
    assert!(outcome.is_err() || mappings == 0);
    outcome
}

#[test]
fn every_allocation_may_fail() {
    let world = World::new();
    let buffer = Buffer::new(0, 4096);
    // The first time teaches the machine which locks there are.
    build(&world.os, &buffer, &mut vec![buffer.memory(), buffer.memory()]).expect("memory");
    for nth in 0.. {
        let (mut result, mut failed) = (Ok(()), false);
        let lost = growth(|| {
            let mut memories = vec![buffer.memory(), buffer.memory()];
            (result, failed) = fail_nth(nth, || build(&world.os, &buffer, &mut memories));
        });
        assert_eq!(lost, 0, "bytes lost when allocation {nth} fails");
        assert!(!buffer.is_mapped(), "allocation {nth}");
        if !failed {
            assert_eq!(result, Ok(()));
            assert!(nth > 20, "there is something to fail");
            break;
        }
        assert_eq!(result, Err(NtStatus::INSUFFICIENT_RESOURCES), "allocation {nth}");
    }
}

#[test]
fn nothing_is_left_after_close() {
    let world = World::new();
    let lives = || {
        let table = MemoryTable::try_new(&world.os, SMALL).expect("memory");
        let domain = Domain::try_new(&table).expect("memory");
        let buffer = Buffer::new(0, 8192);
        let mapping = table.map(buffer.memory(), buffer.client()).expect("memory");
        let (normal, other) = (registered(&domain, &buffer, ALL), fast(&domain));
        let pages: Vec<u64> = mapping.page_addresses().rev().collect();
        fast_register(&domain, &other, &pages, 0, 8192, ALL).expect("mapped");
        let (first, second) = (window(&domain), window(&domain));
        bind(&domain, &first, &normal, 0, 10, Rights::REMOTE_READ).expect("in the region");
        bind(&domain, &second, &other, 0, 10, Rights::REMOTE_READ).expect("in the region");
        let what = Bind { address: 0, length: 1, rights: Rights::REMOTE_READ };
        let _ = domain.prepare_bind(&first, &other, &what).expect("in the region");
        let segment = domain.resolve(second.remote_token(), 0, 10, Access::RemoteRead).expect("bound");
        // Antecedents first, and a mapping that nobody released.
        drop((table, domain, other, normal, second, first));
        drop(segment);
        assert!(!buffer.is_mapped());
        assert_eq!(buffer.told(), 2);
    };
    // The first time teaches the machine which locks there are.
    lives();
    assert_eq!(growth(lives), 0);
}

#[test]
fn no_more_objects_than_the_limit() {
    let world = World::with_limits(MemoryLimits { tokens: 10, ..SMALL });
    let domain = world.domain();
    let mut regions: Vec<_> = (0..9).map(|_| Region::try_new(&domain, RegionKind::Normal).expect("memory")).collect();
    assert_eq!(Region::try_new(&domain, RegionKind::Fast).err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
    assert_eq!(Domain::try_new(&world.table).err(), Some(NtStatus::INSUFFICIENT_RESOURCES));
    assert_eq!(world.table.counts().regions as usize, regions.len());
    regions.pop();
    assert!(Region::try_new(&domain, RegionKind::Fast).is_ok(), "its place is free again");
    for limits in [
        MemoryLimits { tokens: MemoryLimits::MAX.tokens + 1, ..SMALL },
        MemoryLimits { mappings: MemoryLimits::MAX.mappings + 1, ..SMALL },
        MemoryLimits { fast_register_pages: MemoryLimits::MAX.fast_register_pages + 1, ..SMALL },
    ] {
        assert_eq!(MemoryTable::try_new(&world.os, limits).err(), Some(NtStatus::INVALID_PARAMETER));
    }
}

#[test]
fn tables_grow_with_what_they_hold() {
    const MANY: usize = 10_000;
    let world = World::with_limits(MemoryLimits::MAX);
    let domain = world.domain();
    let zero = Buffer::new(0, 0);
    let mut regions = Vec::with_capacity(2 * MANY);
    let mut add = || regions.push(registered(&domain, &zero, ALL));
    // After these each lane of the table has slots to spare.
    (0..16).for_each(|_| add());
    let of_a_region = growth(&mut add);
    let empty = world.table.counts().bytes;
    let grown = growth(|| (0..MANY).for_each(|_| add()));
    let of_the_table = i64::try_from(world.table.counts().bytes - empty).expect("a small number");
    assert_eq!(grown, 10_000 * of_a_region + of_the_table, "what is counted is what was allocated");
    assert!(0 < of_the_table && of_the_table < 10_000 * 200, "{of_the_table} bytes for 10000 regions");
    drop(regions);
}

#[test]
fn regions_with_rotating_tokens_count_too() {
    let world =
        World::with(MemoryLimits::MAX, MemoryRules { fast_tokens: FastTokens::Rotating, ..MemoryRules::default() });
    let domain = world.domain();
    let before = world.table.counts().bytes;
    let regions: Vec<_> = (0..1_000).map(|_| fast(&domain)).collect();
    let grown = world.table.counts().bytes - before;
    assert!(grown >= 1_000 * size_of::<u32>(), "{grown} bytes for 1000 regions");
    drop(regions);
}

#[test]
fn what_is_counted_of_a_table_that_is_empty_grows_with_what_it_allocates() {
    let world = World::new();
    let made = |tokens, mappings| {
        let mut bytes = 0;
        let lasting = growth(|| {
            let table = MemoryTable::try_new(&world.os, MemoryLimits { tokens, mappings, ..SMALL }).expect("memory");
            bytes = i64::try_from(table.counts().bytes).expect("a small number");
            std::mem::forget(table);
        });
        (bytes, lasting)
    };
    let (few, many_tokens, many_mappings) = (made(1, 1), made(100_000, 1), made(1, 100_000));
    assert!(0 < few.0 && few.0 <= few.1, "{few:?}");
    for many in [many_tokens, many_mappings] {
        // The host's locks have memory of their own beside the table's.
        let (counted, allocated) = (many.0 - few.0, many.1 - few.1);
        assert!((counted..=3 * counted).contains(&allocated), "{counted} bytes counted, {allocated} allocated");
        // A lock for a chunk of 64 slots.
        assert!(counted < 100_000 / 64 * 128, "{counted} bytes for what is not there yet");
    }
}

#[test]
fn mappings_are_counted() {
    let world = World::new();
    let buffer = Buffer::new(0, 4096);
    let mappings: Vec<_> = (1..=3)
        .map(|count| {
            let mapping = world.map(&buffer);
            assert_eq!(world.table.counts().mappings, count);
            mapping
        })
        .collect();
    for (mapping, left) in mappings.iter().zip([2, 1, 0]) {
        let _ = world.table.unmap(mapping.key()).expect("mapped");
        assert_eq!(world.table.counts().mappings, left);
    }
}

#[test]
fn a_table_takes_as_many_as_it_was_made_for() {
    // More than one row of its chunks, and not a whole number of them.
    const MANY: u32 = 3000;
    let world = World::with_limits(MemoryLimits { tokens: MANY, ..SMALL });
    let domain = world.domain();
    let zero = Buffer::new(0, 0);
    let mut regions = Vec::new();
    for count in 1..MANY {
        regions.push(registered(&domain, &zero, ALL));
        assert_eq!(world.table.counts().regions, count);
    }
    assert!(Region::try_new(&domain, RegionKind::Normal).is_err());
    drop(regions);
}

//= invariant 3
#[test]
fn one_mebi_regions() {
    // Debug builds watch every lock: fewer there.
    let most: u32 = if cfg!(debug_assertions) { 1 << 16 } else { 1 << 20 };
    let world = World::with_limits(MemoryLimits::MAX);
    let domain = world.domain();
    let buffer = Buffer::new(0x1000, 16);
    // The best of several rounds: the host may be busy with something else in some of them.
    let look_up = |token| {
        let rounds = (0..10).map(|_| {
            let started = Instant::now();
            for _ in 0..2000 {
                assert_eq!(refusal(&domain, token, 0x1000, 1, Access::LocalRead), NtStatus::SUCCESS);
            }
            started.elapsed()
        });
        rounds.min().expect("ten rounds")
    };
    let first = registered(&domain, &buffer, ALL);
    let alone = look_up(first.local_token());
    let zero = Buffer::new(0, 0);
    let mut regions = Vec::new();
    for _ in 1..most {
        let region = Region::try_new(&domain, RegionKind::Normal).expect("memory");
        region.register(zero.memory(), ALL, ()).expect("memory");
        regions.push(region);
    }
    let last = registered(&domain, &buffer, ALL);
    assert_eq!(world.table.counts().regions, most + 1);
    let (crowded, late) = (look_up(first.local_token()), look_up(last.local_token()));
    // The same but for caches.
    assert!(crowded.max(late) < alone * 10, "{alone:?} alone, {crowded:?} and {late:?} among {most}");
    for region in regions.iter().step_by(1000) {
        assert_eq!(refusal(&domain, region.local_token(), 0x1000, 1, Access::LocalRead), VIOLATION);
    }
    println!("2000 look-ups: {alone:?} alone, {crowded:?} and {late:?} among {most}; {:?}", world.table.counts());
}
