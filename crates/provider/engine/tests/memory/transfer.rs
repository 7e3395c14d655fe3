//! Copies between lists of segments are what they would be between rows of bytes, for random lists. A failure names its seed.

use engine::memory::{Access, Segment, transfer, transfer_in_disorder};

use super::{
    bytes::Buffer,
    random::Random,
    world::{ALL, TestDomain, TestRegion, TestSegment, World, fast, fast_register, registered},
};

/// How many random cases.
const CASES: u64 = 300;

/// A list of segments, and where each of its bytes is: which buffer, and which byte of it.
struct List {
    buffers: Vec<Buffer>,
    segments: Vec<TestSegment>,
    places: Vec<(usize, usize)>,
    /// Keeps the registrations.
    regions: Vec<TestRegion>,
}

/// The pages of a buffer, each of which may begin and end anywhere in the segments.
const PAGES: usize = 5;

/// A list of up to five segments: of registered buffers, of logical addresses, and of pages in any order.
fn list(world: &World, domain: &TestDomain, random: &mut Random) -> List {
    let mut list = List { buffers: vec![], segments: vec![], places: vec![], regions: vec![] };
    for index in 0..random.below(6) {
        let buffer = Buffer::patterned(0x10_0000, PAGES * 4096, random.below(1000));
        let offset = random.edge(3 * 4096);
        let length = random.edge(PAGES * 4096 - offset);
        let (at, size) = (offset as u64, u32::try_from(length).expect("small"));
        let mut order: Vec<usize> = (0..PAGES).collect();
        let segment = match random.below(3) {
            0 => {
                list.regions.push(registered(domain, &buffer, ALL));
                let token = list.regions[list.regions.len() - 1].local_token();
                domain.resolve(token, buffer.base() + at, size, Access::LocalWrite)
            }
            1 => {
                let base = world.map(&buffer).key();
                domain.resolve(domain.privileged_token(), base + at, size, Access::LocalWrite)
            }
            _ => {
                let region = fast(domain);
                let all: Vec<u64> = world.map(&buffer).page_addresses().collect();
                order = random.order(PAGES);
                let pages: Vec<u64> = order.iter().map(|&page| all[page]).collect();
                fast_register(domain, &region, &pages, 0, PAGES as u64 * 4096, ALL).expect("mapped");
                let segment = domain.resolve(region.remote_token(), at, size, Access::RemoteWrite);
                list.regions.push(region);
                segment
            }
        };
        list.buffers.push(buffer);
        list.segments.push(segment.expect("registered"));
        list.places.extend((offset..offset + length).map(|at| (index, order[at / 4096] * 4096 + at % 4096)));
    }
    list
}

#[test]
fn transfer_equals_a_model() {
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let world = World::new();
        let domain = world.domain();
        let (to, from) = (list(&world, &domain, &mut random), list(&world, &domain, &mut random));
        // A window that both lists have.
        let (to_offset, from_offset) = (random.edge(to.places.len()), random.edge(from.places.len()));
        let length = random.edge((to.places.len() - to_offset).min(from.places.len() - from_offset));

        let sources: Vec<Vec<u8>> = from.buffers.iter().map(Buffer::contents).collect();
        let mut model: Vec<Vec<u8>> = to.buffers.iter().map(Buffer::contents).collect();
        for index in 0..length {
            let (buffer, at) = to.places[to_offset + index];
            let (source, source_at) = from.places[from_offset + index];
            model[buffer][at] = sources[source][source_at];
        }

        // In chunks, as quanta do it.
        let chunk = 1 + random.edge(20_000);
        let chunk = if chunk < 100 { chunk * 50 } else { chunk };
        let mut moved = 0;
        while moved < length {
            let now = chunk.min(length - moved);
            transfer(&to.segments, to_offset + moved, &from.segments, from_offset + moved, now);
            moved += now;
        }
        for (buffer, expected) in to.buffers.iter().zip(&model) {
            assert!(buffer.contents() == *expected, "seed {seed}: {length} bytes from {from_offset} to {to_offset}");
        }
        for (buffer, expected) in from.buffers.iter().zip(&sources) {
            assert!(buffer.contents() == *expected, "seed {seed}: the source was changed");
        }
    }
}

#[test]
fn reads_and_writes_equal_a_model() {
    for seed in 0..CASES {
        let mut random = Random::new(seed);
        let world = World::new();
        let domain = world.domain();
        let list = list(&world, &domain, &mut random);
        let mut first = 0;
        for (index, segment) in list.segments.iter().enumerate() {
            let places = &list.places[first..first + segment.len()];
            first += segment.len();
            let at = random.edge(segment.len());
            let length = random.edge(segment.len() - at);
            let mut model = list.buffers[index].contents();
            let mut bytes = vec![0; length];
            segment.read(at, &mut bytes);
            let expected: Vec<u8> = places[at..at + length].iter().map(|(_, place)| model[*place]).collect();
            assert!(bytes == expected, "seed {seed}: {length} bytes at {at}");
            for (offset, byte) in bytes.iter_mut().enumerate() {
                *byte = byte.wrapping_add(1);
                model[places[at + offset].1] = *byte;
            }
            segment.write(at, &bytes);
            assert!(list.buffers[index].contents() == model, "seed {seed}: {length} bytes at {at}");
        }
    }
}

#[test]
fn a_transfer_of_nothing_needs_nothing() {
    transfer::<super::world::TestOs>(&[], 0, &[], 0, 0);
    transfer::<super::world::TestOs>(&[Segment::empty()], 0, &[Segment::empty(), Segment::empty()], 0, 0);
}

#[test]
fn a_transfer_within_one_buffer() {
    let world = World::new();
    let domain = world.domain();
    let buffer = Buffer::patterned(0, 1000, 1);
    let region = registered(&domain, &buffer, ALL);
    let segment = |at| domain.resolve(region.local_token(), at, 400, Access::LocalWrite).expect("registered");
    let before = buffer.contents();
    transfer(&[segment(500)], 0, &[segment(0)], 0, 400);
    assert_eq!(buffer.contents()[500..900], before[..400]);
}

/// `NDKPI 2.6`: without `IN_ORDER_DMA_SUPPORTED` whoever polls the last byte sees it before others have come.
#[test]
fn bytes_in_disorder_land_all_and_the_last_ones_before_others() {
    let world = World::new();
    let domain = world.domain();
    let (from, to) = (Buffer::patterned(0, 40_000, 3), Buffer::new(0x10_0000, 40_000));
    let regions = [&from, &to].map(|buffer| registered(&domain, buffer, ALL));
    let segment = |index: usize, at: u64, length| {
        domain.resolve(regions[index].local_token(), at, length, Access::LocalWrite).expect("registered")
    };
    let mut random = Random::new(1);
    for length in [1, 64, 65, 128, 129, 200, 1000, 4096, 4097, 30_000, 39_000] {
        let mut early = 0;
        for _ in 0..100 {
            let order = (0..4).fold(0, |order, _| order << 16 | random.below(1 << 16) as u64);
            let size = u32::try_from(length).expect("small");
            to.with(|bytes| bytes.fill(0));
            to.take_written();
            transfer_in_disorder(&[segment(1, 0x10_0000 + 7, size)], 0, &[segment(0, 9, size)], 0, length, order);
            assert!(to.contents()[7..7 + length] == from.contents()[9..9 + length], "{length} bytes, {order:#x}");
            let written = to.take_written();
            let last = written.iter().max().expect("it was written to");
            early += u32::from(written.last() != Some(last));
        }
        match length {
            // A cache line lands whole.
            ..=64 => assert_eq!(early, 0, "{length}"),
            // One order of two pieces is that of the bytes.
            65..=128 => assert!((25..75).contains(&early), "{length}: {early}"),
            _ => assert_eq!(early, 100, "{length}"),
        }
    }
}
