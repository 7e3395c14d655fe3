//! Reads and writes of every size, and in every shape (`NDKPI 5.7`, `7.3`).

use alloc::vec::Vec;

use ndkpi::{NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NDK_SGE, NtStatus};

use super::common::initiator_fails;
use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{ALL_RIGHTS, Buffer, PAGE, Region, Remote, Session},
    fixture::{Pair, Plan, posted},
    random::Random,
};

pub const CASES: &[Case] = &[
    Case::new(
        "rdma.sizes",
        "NDKPI 7.3",
        "Writes and reads 0 and 1 bytes, a page, one byte less and more, 64 KiB and 1 MiB, from and to odd places.",
        "The bytes arrive, and those around them are as they were.",
        sizes,
    ),
    Case::new(
        "rdma.shapes",
        "NDKPI 7.3",
        "Writes from and reads into sixty lists of up to four elements of random lengths and places, some of them empty.",
        "The bytes lie one after the other, and those around them are as they were.",
        shapes,
    ),
    //= NDKPI 7.3.10
    Case::new(
        "rdma.over-page-ends",
        "NDKPI 7.4",
        "Writes and reads 64 bytes at every place around the ends of three pages.",
        "The bytes arrive.",
        over_page_ends,
    ),
    Case::new(
        "rdma.in-order",
        "NDKPI 7.3",
        "Writes to one place again and again, silently, then sends.",
        "When the receive completes, the latest write is there.",
        in_order,
    ),
    Case::new(
        "rdma.reads-see-earlier-writes",
        "NDKPI 7.3",
        "Writes, and reads the same bytes back with the next request, without waiting.",
        "The read brings what was written.",
        reads_see_earlier_writes,
    ),
    Case::new(
        "rdma.both-ways-at-once",
        "NDKPI 7.2",
        "Both sides write to each other at the same time.",
        "All of it arrives.",
        both_ways_at_once,
    ),
    Case::new(
        "rdma.longer-than-a-transfer-may-be",
        "NDKPI 3.11",
        "Writes and reads one byte more than MaxTransferLength.",
        "It fails. Open: the statuses.",
        longer_than_a_transfer_may_be,
    ),
];

/// A buffer with room around the middle.
fn around<'s>(s: &'s Session<'s>, length: usize) -> Check<&'s Buffer> {
    let buffer = Buffer::new(s, length + 2 * PAGE)?;
    buffer.fill(0, buffer.length(), 0xEE)?;
    Ok(buffer)
}

/// Looks at the bytes around the middle.
fn untouched_around(buffer: &Buffer, start: usize, length: usize) -> Check {
    buffer.is_filled(0, start, 0xEE)?;
    buffer.is_filled(start + length, buffer.length() - start - length, 0xEE)
}

fn sizes(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let most = s.info()?.MaxTransferLength;
    for length in [0, 1, 4095, 4096, 4097, 1 << 16, 1 << 20] {
        if length > most {
            continue;
        }
        let (bytes, start) = (length as usize, 4093);
        let (near, far) = (around(s, bytes)?, around(s, bytes)?);
        let near = Region::of(pair.a.pd.core(), near, near.length(), ALL_RIGHTS)?;
        let far = Region::of(pair.b.pd.core(), far, far.length(), ALL_RIGHTS)?;
        let remote = Remote { address: far.address(4093), token: far.remote() };
        near.buffer.fill_pattern(start, bytes, 1)?;
        posted("NdkWrite", pair.a.qp.write(1, &[near.element(4093, length)], remote, 0)?)?;
        pair.a.initiator_done(1)?;
        far.buffer.has_pattern(start, bytes, 1)?;
        untouched_around(far.buffer, start, bytes)?;
        far.buffer.fill_pattern(start, bytes, 2)?;
        posted("NdkRead", pair.a.qp.read(2, &[near.element(4093, length)], remote, 0)?)?;
        pair.a.initiator_done(2)?;
        near.buffer.has_pattern(start, bytes, 2)?;
        untouched_around(near.buffer, start, bytes)?;
    }
    HELD
}

/// A piece of a buffer.
#[derive(Clone, Copy)]
struct Part {
    place: usize,
    length: u32,
}

/// Up to four pieces that do not overlap, some of them without bytes.
fn parts(random: &mut Random) -> [Part; 4] {
    let mut parts = [Part { place: 0, length: 0 }; 4];
    for (index, part) in parts.iter_mut().enumerate() {
        let length = if random.chance(20) { 0 } else { random.below(1500) };
        // Each has a quarter of two pages, which it cannot leave.
        *part = Part { place: index * 2048 + random.below(2048 - length) as usize, length };
    }
    parts
}

fn shapes(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mut random = s.random();
    let (near, far) = (pair.a.region.buffer, pair.b.region.buffer);
    // Adapters with fewer elements to a read exist.
    let most = s.info()?.MaxReadRequestSge.clamp(1, 4);
    for seed in 0..60_u8 {
        let mut parts = parts(&mut random);
        let count = 1 + random.below(most) as usize;
        // In any order.
        parts.swap(0, random.below(4) as usize);
        parts.swap(1, random.below(4) as usize);
        let parts = &parts[..count];
        let total: u32 = parts.iter().map(|part| part.length).sum();
        let mut list: Vec<NDK_SGE> = Vec::new();
        list.try_reserve(count).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))?;
        list.extend(parts.iter().map(|part| pair.a.region.element(part.place.cast_signed(), part.length)));
        let place = random.below(8192 - total + 1) as usize;
        let remote = pair.b.remote(place.cast_signed());
        near.fill_pattern(0, 8192, seed)?;
        far.fill(0, 8192, 0xEE)?;
        posted("NdkWrite", pair.a.qp.write(1, &list, remote, 0)?)?;
        pair.a.initiator_done(1)?;
        let mut at = place;
        for part in parts {
            let length = part.length as usize;
            ensure!(
                far.bytes(at, length)? == near.bytes(part.place, length)?,
                "round {seed}: the {length} bytes of the element at {} are not at {at}",
                part.place
            );
            at += length;
        }
        untouched_around(far, place, total as usize)?;
        far.fill_pattern(0, 8192, seed.wrapping_add(100))?;
        near.fill(0, 8192, 0xEE)?;
        posted("NdkRead", pair.a.qp.read(2, &list, remote, 0)?)?;
        pair.a.initiator_done(2)?;
        let mut at = place;
        for part in parts {
            let length = part.length as usize;
            ensure!(
                near.bytes(part.place, length)? == far.bytes(at, length)?,
                "round {seed}: the bytes read from {at} are not in the element at {}",
                part.place
            );
            near.fill(part.place, length, 0xEE)?;
            at += length;
        }
        near.is_filled(0, 8192, 0xEE)?;
    }
    HELD
}

fn over_page_ends(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let far = Region::new(pair.b.pd.core(), 4 * PAGE, ALL_RIGHTS)?;
    far.buffer.fill(0, 4 * PAGE, 0xEE)?;
    for end in [PAGE, 2 * PAGE, 3 * PAGE] {
        for place in end - 66..=end + 2 {
            let remote = Remote { address: far.address(place.cast_signed()), token: far.remote() };
            pair.a.region.buffer.fill_pattern(0, 64, 1)?;
            pair.a.write(1, 0, 64, remote, 0)?;
            pair.a.read(2, 4064, 64, remote, 0)?;
            pair.a.initiator_done(1)?;
            pair.a.initiator_done(2)?;
            pair.a.region.buffer.has_pattern(4064, 64, 1)?;
            far.buffer.has_pattern(place, 64, 1)?;
            far.buffer.fill(place, 64, 0xEE)?;
        }
    }
    far.buffer.is_filled(0, 4 * PAGE, 0xEE)?;
    HELD
}

fn in_order(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let bytes = 2048;
    for round in 0..20_u8 {
        for number in 0..3 {
            pair.a.region.buffer.fill(
                usize::from(number) * bytes,
                bytes,
                round.wrapping_mul(3).wrapping_add(number),
            )?;
        }
        pair.b.receive(9, 4096, 64)?;
        for place in [0, 2048, 4096] {
            pair.a.write(1, place, 2048, pair.b.remote(0), SILENT)?;
        }
        pair.a.send(2, 0, 0, 0)?;
        pair.b.receive_done(9)?;
        pair.b.region.buffer.is_filled(0, bytes, round.wrapping_mul(3).wrapping_add(2))?;
        pair.a.initiator_done(2)?;
    }
    HELD
}

fn reads_see_earlier_writes(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for round in 0..20 {
        pair.a.region.buffer.fill_pattern(0, 4096, round)?;
        pair.a.write(1, 0, 4096, pair.b.remote(0), 0)?;
        pair.a.read(2, 4096, 4096, pair.b.remote(0), 0)?;
        pair.a.initiator_done(1)?;
        pair.a.initiator_done(2)?;
        pair.a.region.buffer.has_pattern(4096, 4096, round)?;
    }
    HELD
}

fn both_ways_at_once(s: &Session<'_>) -> Verdict {
    let plan = Plan { bytes: 1 << 20, ..Plan::new() };
    let pair = Pair::with(s, &plan, &plan)?;
    let (half, length) = (1 << 19, 1_u32 << 19);
    for round in 0..4 {
        pair.a.region.buffer.fill_pattern(0, half, round)?;
        pair.b.region.buffer.fill_pattern(0, half, round + 50)?;
        pair.a.write(1, 0, length, pair.b.remote(half.cast_signed()), 0)?;
        pair.b.write(2, 0, length, pair.a.remote(half.cast_signed()), 0)?;
        pair.a.initiator_done(1)?;
        pair.b.initiator_done(2)?;
        pair.b.region.buffer.has_pattern(half, half, round)?;
        pair.a.region.buffer.has_pattern(half, half, round + 50)?;
    }
    HELD
}

fn longer_than_a_transfer_may_be(s: &Session<'_>) -> Verdict {
    let most = s.info()?.MaxTransferLength;
    let Some(too_long) = most.checked_add(1) else { skip!("there is no longer transfer") };
    let mut seen = [NtStatus::SUCCESS; 2];
    for (seen, writes) in seen.iter_mut().zip([true, false]) {
        let pair = Pair::new(s)?;
        pair.b.region.buffer.fill(0, 8192, 0xEE)?;
        // As elements of the region may not be: whichever limit the provider looks at first, nothing moves.
        let (list, remote) = ([pair.a.region.element(0, too_long)], pair.b.remote(0));
        let post = if writes { pair.a.qp.write(1, &list, remote, 0)? } else { pair.a.qp.read(1, &list, remote, 0)? };
        *seen = initiator_fails(&pair.a, 1, post)?;
        pair.b.region.buffer.is_filled(0, 8192, 0xEE)?;
    }
    observed!("write: {}, read: {}", seen[0], seen[1])
}
