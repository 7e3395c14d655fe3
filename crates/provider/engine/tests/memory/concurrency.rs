//! Look-ups on several threads while registrations come and go.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use engine::memory::{Access, Bind, FastRegister, Release, Rights, transfer};
use testing::done::Done;

use super::{
    bytes::Buffer,
    world::{ALL, World, fast, region, register, registered, window},
};

const ROUNDS: u64 = if cfg!(debug_assertions) { 100 } else { 400 };

/// Waits for what other threads do.
fn wait_until(condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_mins(1), "it never happens");
        thread::yield_now();
    }
}

/// Waits up to 70 ms for a thread to find a registration: most are found before they end, some are not.
fn wait_a_little(round: u64, is_found: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_found() && started.elapsed() < Duration::from_millis(round % 8 * 10) {
        thread::yield_now();
    }
}

//= NDKPI 7.4.3
#[test]
fn a_deregistered_buffer_is_not_touched_after_it_was_released() {
    let world = World::new();
    let domain = world.domain();
    let region = region(&domain);
    let (token, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let found = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (domain, token, done, found) = (&domain, &token, &done, &found);
            scope.spawn(move || {
                let source = registered(domain, &Buffer::patterned(0x9000, 256, seed), ALL);
                while !done.load(SeqCst) {
                    let Ok(segment) = domain.resolve(token.load(SeqCst), 0x1000, 256, Access::RemoteWrite) else {
                        continue;
                    };
                    found.fetch_add(1, SeqCst);
                    let from =
                        domain.resolve(source.local_token(), 0x9000, 256, Access::LocalRead).expect("registered");
                    transfer(&[segment], 0, &[from], 0, 256);
                }
            });
        }
        let _done = Done(&done);
        for round in 0..ROUNDS {
            let buffer = Buffer::new(0x1000, 256);
            register(&region, &buffer, ALL).expect("memory");
            token.store(region.remote_token(), SeqCst);
            let before = found.load(SeqCst);
            wait_a_little(round, || found.load(SeqCst) != before);
            if region.deregister().expect("registered") == Release::Pending {
                wait_until(|| buffer.told() != 0);
                assert_eq!(buffer.told(), 1);
            } else {
                assert_eq!(buffer.told(), 0);
            }
            assert!(!buffer.is_mapped());
        }
    });
    assert!(found.load(SeqCst) > 0, "the test tested nothing");
}

#[test]
fn invalidated_bytes_are_not_touched_when_transfers_are_over() {
    let world = World::new();
    let domain = world.domain();
    let (fast_region, view) = (fast(&domain), window(&domain));
    let buffer = Buffer::new(0, 8192);
    let pages: Vec<u64> = world.map(&buffer).page_addresses().rev().collect();
    let tokens = [AtomicU32::new(0), AtomicU32::new(0)];
    let done = AtomicBool::new(false);
    let marks = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        for token in &tokens {
            let (domain, done, marks) = (&domain, &done, marks.clone());
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    if let Ok(segment) = domain.resolve(token.load(SeqCst), 0x1000, 4096, Access::RemoteWrite) {
                        segment.write(4000, &[0xFF; 96]);
                        segment.write(0, &[0xFF; 8]);
                        marks.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        let _done = Done(&done);
        for round in 0..ROUNDS {
            let before = marks.load(SeqCst);
            let what = FastRegister { pages: &pages, first_byte: 0, length: 8192, base: 0x1000, rights: ALL };
            domain
                .commit(domain.prepare_fast_register(&fast_region, &what).expect("room"))
                .expect("invalidated before");
            tokens[0].store(fast_region.remote_token(), SeqCst);
            let what = Bind { address: 0x1000, length: 4096, rights: Rights::REMOTE_WRITE };
            domain.commit(domain.prepare_bind(&view, &fast_region, &what).expect("room")).expect("invalidated before");
            tokens[1].store(view.remote_token(), SeqCst);
            wait_a_little(round, || marks.load(SeqCst) != before);
            for token in [view.remote_token(), fast_region.remote_token()] {
                domain.invalidate(token).expect("in force");
                wait_until(|| domain.transfers(token).are_over());
            }
            // Now the bytes are the consumer's own again.
            buffer.with(|bytes| bytes.fill(0));
            thread::yield_now();
            assert!(buffer.with(|bytes| bytes.iter().all(|&byte| byte == 0)), "written after the invalidation");
        }
    });
    assert!(marks.load(SeqCst) > 0, "the test tested nothing");
}

#[test]
fn objects_are_made_and_dropped_by_several_threads() {
    let world = World::new();
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            let world = &world;
            scope.spawn(move || {
                let domain = world.domain();
                for _ in 0..ROUNDS {
                    let buffer = Buffer::new(0x1000 * (seed + 1), 64);
                    let normal = registered(&domain, &buffer, ALL);
                    let mapping = world.map(&buffer);
                    let view = window(&domain);
                    let what = Bind { address: buffer.base(), length: 64, rights: Rights::REMOTE_READ };
                    domain.commit(domain.prepare_bind(&view, &normal, &what).expect("in it")).expect("not bound");
                    drop(normal);
                    drop(domain.resolve(view.remote_token(), buffer.base(), 64, Access::RemoteRead).expect("bound"));
                    drop(view);
                    let _ = world.table.unmap(mapping.key()).expect("mapped");
                    assert!(!buffer.is_mapped());
                }
            });
        }
    });
    let counts = world.table.counts();
    assert_eq!((counts.domains, counts.regions, counts.windows, counts.mappings), (0, 0, 0, 0));
}
