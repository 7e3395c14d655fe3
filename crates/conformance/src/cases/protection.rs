//! What tokens give access to, and what they do not (`NDKPI 2.5`, `7.3`, `7.4`).

use ndkpi::{
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED as SINK_NOT_REQUIRED, NDK_MR_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE,
    NDK_MR_FLAG_ALLOW_REMOTE_READ as REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE,
    NDK_MR_FLAG_RDMA_READ_SINK as READ_SINK, NDK_SGE, NtStatus,
};

use super::common::{Statuses, element_at, fails, initiator_fails};
use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{ALL_RIGHTS, Buffer, PAGE, Region, Remote, Session},
    fixture::{Pair, posted},
};

pub const CASES: &[Case] = &[
    Case::new(
        "protection.local-read",
        "NDKPI 2.5",
        "Sends and writes from a region without any right.",
        "It works: local read is always granted.",
        local_read,
    ),
    Case::new(
        "protection.local-write",
        "NDKPI 2.5",
        "Receives into a region without local write.",
        "The receive fails, and nothing is written.",
        local_write,
    ),
    Case::new(
        "protection.remote-rights",
        "NDKPI 2.5",
        "Lets a peer read from and write to regions with every set of rights.",
        "Only what the rights say works. Local write alone does not let a peer write: remote write is two bits.",
        remote_rights,
    ),
    Case::new(
        "protection.read-sink",
        "NDKPI 7.4",
        "Reads into regions with local write, with and without the right to be the target of reads.",
        "With it the read works; without it also, if the adapter says that the right is not required.",
        read_sink,
    ),
    Case::new(
        "protection.edges",
        "NDKPI 7.4",
        "Writes, reads, sends and receives the first byte, the last byte and all bytes of a region.",
        "It works.",
        edges,
    ),
    Case::new(
        "protection.outside-local",
        "NDKPI 3.9",
        "Uses elements that leave the region by one byte at either side, as source and as target.",
        "The request fails, and no byte is moved.",
        outside_local,
    ),
    Case::new(
        "protection.outside-remote",
        "NDKPI 7.4",
        "Writes to and reads from bytes that leave the peer's region by one at either side.",
        "The request fails, and no byte is moved.",
        outside_remote,
    ),
    Case::new(
        "protection.wrapping-local",
        "NDKPI 3.9",
        "Uses elements whose address and length wrap, or whose lengths together do.",
        "The request fails, and no byte is moved.",
        wrapping_local,
    ),
    Case::new(
        "protection.wrapping-remote",
        "NDKPI 5.7",
        "Writes to and reads from remote addresses near the end of the address space, and such that wrap.",
        "The request fails.",
        wrapping_remote,
    ),
    Case::new(
        "protection.other-domain-local",
        "NDKPI 5.3",
        "Sends with the token of a region of another protection domain.",
        "The request fails.",
        other_domain_local,
    ),
    Case::new(
        "protection.other-domain-remote",
        "NDKPI 5.3",
        "Writes to a region of another protection domain than that of the peer's queue pair.",
        "The request fails, and no byte is moved.",
        other_domain_remote,
    ),
    Case::new(
        "protection.stale-local",
        "NDKPI 7.4",
        "Sends with the token of a region that was deregistered, and of one that was closed.",
        "The request fails.",
        stale_local,
    ),
    Case::new(
        "protection.stale-remote",
        "NDKPI 7.4",
        "Writes with the token of a region that was deregistered, of one that was closed, and of one that was registered \
         again with the same memory.",
        "The request fails, and no byte is moved. Open: whether a new registration has the old token.",
        stale_remote,
    ),
    Case::new(
        "protection.guessed",
        "NDKPI 7.4",
        "Writes with tokens that nobody gave out: zero, all ones, neighbours of a valid one, random ones.",
        "The request fails, and no byte is moved.",
        guessed,
    ),
    Case::new(
        "protection.tokens-confused",
        "NDKPI 5.5",
        "Gives a region's local token to the peer, and sends with its remote token.",
        "Open: whether one is good for the other's purpose.",
        tokens_confused,
    ),
    Case::new(
        "protection.no-bytes",
        "NDKPI 9",
        "Writes and reads 0 bytes with a token and an address that are not valid.",
        "Open: whether that succeeds.",
        no_bytes,
    ),
];

/// The bytes of the regions here, in the middle of which there is a page's end. The memory behind them goes on.
const LENGTH: usize = PAGE + 100;

/// The first bytes of a buffer that goes on after them.
fn part<'s>(pair: &Pair<'s>, active: bool, rights: u32) -> Check<Region<'s>> {
    let pd = if active { &pair.a.pd } else { &pair.b.pd };
    let region = Region::of(pd.core(), Buffer::new(pd.core().session(), 2 * PAGE)?, LENGTH, rights)?;
    region.buffer.fill(0, 2 * PAGE, 0xEE)?;
    Ok(region)
}

fn remote_of(region: &Region<'_>, offset: isize) -> Remote {
    Remote { address: region.address(offset), token: region.remote() }
}

fn local_read(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let source = part(&pair, true, 0)?;
    source.buffer.fill_pattern(0, 64, 1)?;
    pair.b.receive(1, 0, 64)?;
    posted("NdkSend", pair.a.qp.send(1, &[source.element(0, 64)], 0)?)?;
    pair.a.initiator_done(1)?;
    pair.b.receive_done(1)?;
    pair.b.region.buffer.has_pattern(0, 64, 1)?;
    posted("NdkWrite", pair.a.qp.write(2, &[source.element(0, 64)], pair.b.remote(64), 0)?)?;
    pair.a.initiator_done(2)?;
    pair.b.region.buffer.has_pattern(64, 64, 1)?;
    HELD
}

fn local_write(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::ACCESS_VIOLATION);
    for rights in [0, REMOTE_READ] {
        let pair = Pair::new(s)?;
        let target = part(&pair, false, rights)?;
        let post = pair.b.qp.receive(1, &[target.element(0, 64)])?;
        if post == NtStatus::SUCCESS {
            pair.a.send(1, 0, 64, 0)?;
        }
        statuses.note("the receive", fails(pair.b.receive_cq.core(), 1, post)?);
        s.settle();
        target.buffer.is_filled(0, PAGE, 0xEE)?;
    }
    statuses.verdict()
}

fn remote_rights(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::REMOTE_RESOURCES);
    for rights in [0, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, LOCAL_WRITE | REMOTE_READ, REMOTE_READ | REMOTE_WRITE] {
        for writes in [false, true] {
            let pair = Pair::new(s)?;
            let target = part(&pair, false, rights)?;
            let (element, remote) = (pair.a.region.element(0, 64), remote_of(&target, 0));
            pair.a.region.buffer.fill_pattern(0, 64, 1)?;
            let (post, right, name) = if writes {
                (pair.a.qp.write(1, &[element], remote, 0)?, REMOTE_WRITE, "a write")
            } else {
                (pair.a.qp.read(1, &[element], remote, 0)?, REMOTE_READ, "a read")
            };
            if rights & right == right {
                posted(name, post)?;
                pair.a.initiator_done(1)?;
                continue;
            }
            ensure!(
                post != NtStatus::SUCCESS || !pair.a.initiated().take_one()?.status.is_success(),
                "{name} of a region with the rights {rights:#x} succeeded"
            );
            if post != NtStatus::SUCCESS {
                statuses.note(name, post);
            }
            target.buffer.is_filled(0, PAGE, 0xEE)?;
            pair.a.region.buffer.has_pattern(0, 64, 1)?;
        }
    }
    statuses.verdict()
}

fn read_sink(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let not_required = s.adapter()?.has(SINK_NOT_REQUIRED);
    pair.b.region.buffer.fill_pattern(0, 64, 1)?;
    for rights in [LOCAL_WRITE | READ_SINK, ALL_RIGHTS, LOCAL_WRITE] {
        if rights == LOCAL_WRITE && !not_required {
            continue;
        }
        let target = part(&pair, true, rights)?;
        posted("NdkRead", pair.a.qp.read(1, &[target.element(0, 64)], pair.b.remote(0), 0)?)?;
        pair.a.initiator_done(1)?;
        target.buffer.has_pattern(0, 64, 1)?;
    }
    HELD
}

fn edges(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (near, far) = (part(&pair, true, ALL_RIGHTS)?, part(&pair, false, ALL_RIGHTS)?);
    for (offset, length) in [(0, 1), (LENGTH - 1, 1), (0, LENGTH)] {
        let (place, bytes) = (offset as isize, length as u32);
        near.buffer.fill_pattern(offset, length, 1)?;
        posted("NdkWrite", pair.a.qp.write(1, &[near.element(place, bytes)], remote_of(&far, place), 0)?)?;
        pair.a.initiator_done(1)?;
        far.buffer.has_pattern(offset, length, 1)?;
        far.buffer.fill_pattern(offset, length, 2)?;
        posted("NdkRead", pair.a.qp.read(2, &[near.element(place, bytes)], remote_of(&far, place), 0)?)?;
        pair.a.initiator_done(2)?;
        near.buffer.has_pattern(offset, length, 2)?;
        posted("NdkReceive", pair.b.qp.receive(3, &[far.element(place, bytes)])?)?;
        near.buffer.fill_pattern(offset, length, 3)?;
        posted("NdkSend", pair.a.qp.send(3, &[near.element(place, bytes)], 0)?)?;
        pair.a.initiator_done(3)?;
        pair.b.receive_done(3)?;
        far.buffer.has_pattern(offset, length, 3)?;
    }
    near.buffer.is_filled(LENGTH, 2 * PAGE - LENGTH, 0xEE)?;
    far.buffer.is_filled(LENGTH, 2 * PAGE - LENGTH, 0xEE)?;
    HELD
}

/// Bytes that are not all in a region of [`LENGTH`] bytes.
const OUTSIDE: [(isize, u32); 6] = [
    (-1, 1),
    (-1, 8),
    (LENGTH as isize, 1),
    (LENGTH as isize - 7, 8),
    (0, LENGTH as u32 + 1),
    (-1, LENGTH as u32 + 2),
];

/// Uses an element in every way, on a connection of its own each. It must not work.
fn element_fails<'s>(
    s: &'s Session<'s>,
    statuses: &mut Statuses,
    element: impl Fn(&Region<'s>) -> NDK_SGE,
) -> Check {
    for way in ["a send", "a write", "a read", "a receive"] {
        let pair = Pair::new(s)?;
        let region = part(&pair, true, ALL_RIGHTS)?;
        let list = [element(&region)];
        pair.b.region.buffer.fill(0, 2 * PAGE, 0xDD)?;
        let (a, remote) = (&pair.a, pair.b.remote(0));
        if way == "a receive" {
            let post = a.qp.receive(1, &list)?;
            if post == NtStatus::SUCCESS {
                pair.b.send(1, 0, 1, 0)?;
            }
            statuses.note(way, fails(a.receive_cq.core(), 1, post)?);
        } else {
            pair.b.receive(1, 0, 8192)?;
            let post = match way {
                "a send" => a.qp.send(1, &list, 0)?,
                "a write" => a.qp.write(1, &list, remote, 0)?,
                _ => a.qp.read(1, &list, remote, 0)?,
            };
            statuses.note(way, initiator_fails(a, 1, post)?);
        }
        s.settle();
        region.buffer.is_filled(0, 2 * PAGE, 0xEE)?;
        pair.b.region.buffer.is_filled(0, 2 * PAGE, 0xDD)?;
    }
    Ok(())
}

/// Accesses a peer's memory by write and by read, on a connection of its own each. It must not work.
fn remote_fails<'s>(
    s: &'s Session<'s>,
    statuses: &mut Statuses,
    length: u32,
    remote: impl Fn(&Pair<'s>, &Region<'s>) -> Check<Remote>,
) -> Check {
    for writes in [true, false] {
        let pair = Pair::new(s)?;
        let region = part(&pair, false, ALL_RIGHTS)?;
        pair.a.region.buffer.fill(0, 2 * PAGE, 0xDD)?;
        let (remote, list) = (remote(&pair, &region)?, [pair.a.region.element(0, length)]);
        let (what, post) = if writes {
            ("a write", pair.a.qp.write(1, &list, remote, 0)?)
        } else {
            ("a read", pair.a.qp.read(1, &list, remote, 0)?)
        };
        statuses.note(what, initiator_fails(&pair.a, 1, post)?);
        s.settle();
        region.buffer.is_filled(0, 2 * PAGE, 0xEE)?;
        pair.a.region.buffer.is_filled(0, 2 * PAGE, 0xDD)?;
    }
    Ok(())
}

fn outside_local(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::ACCESS_VIOLATION);
    for (offset, length) in OUTSIDE {
        element_fails(s, &mut statuses, |region| region.element(offset, length))?;
    }
    statuses.verdict()
}

fn outside_remote(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::REMOTE_RESOURCES);
    for (offset, length) in OUTSIDE {
        remote_fails(s, &mut statuses, length, |_, region| Ok(remote_of(region, offset)))?;
    }
    statuses.verdict()
}

fn wrapping_local(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::ACCESS_VIOLATION);
    let most = s.info()?.MaxTransferLength;
    for (address, length) in [(u64::MAX, 2), (u64::MAX - 3, 8), (u64::MAX - 63, 64), (0, 64)] {
        element_fails(s, &mut statuses, |region| element_at(address, length, region.local()))?;
    }
    element_fails(s, &mut statuses, |region| region.element(0, most))?;
    // Two elements whose lengths add up to 64 in 32 bits.
    let pair = Pair::new(s)?;
    let list = [pair.a.region.element(0, u32::MAX), pair.a.region.element(0, 65)];
    pair.b.receive(1, 0, 64)?;
    let status = initiator_fails(&pair.a, 1, pair.a.qp.send(1, &list, 0)?)?;
    if status != NtStatus::BUFFER_OVERFLOW {
        statuses.note("lengths that wrap together", status);
    }
    statuses.verdict()
}

fn wrapping_remote(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::REMOTE_RESOURCES);
    for (address, length) in [(u64::MAX, 2), (u64::MAX - 3, 8), (u64::MAX - 63, 64), (0, 64)] {
        remote_fails(s, &mut statuses, length, |_, region| Ok(Remote { address, token: region.remote() }))?;
    }
    statuses.verdict()
}

fn other_domain_local(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::ACCESS_VIOLATION);
    let other = s.adapter()?.create_pd()?;
    let foreign = Region::new(other.core(), PAGE, ALL_RIGHTS)?;
    foreign.buffer.fill(0, PAGE, 0xEE)?;
    element_fails(s, &mut statuses, |_| foreign.element(0, 8))?;
    foreign.buffer.is_filled(0, PAGE, 0xEE)?;
    statuses.verdict()
}

fn other_domain_remote(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::REMOTE_RESOURCES);
    let other = s.peer_adapter()?.create_pd()?;
    let foreign = Region::new(other.core(), PAGE, ALL_RIGHTS)?;
    foreign.buffer.fill(0, PAGE, 0xEE)?;
    remote_fails(s, &mut statuses, 8, |_, _| Ok(remote_of(&foreign, 0)))?;
    foreign.buffer.is_filled(0, PAGE, 0xEE)?;
    statuses.verdict()
}

fn stale_local(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::ACCESS_VIOLATION);
    for close in [false, true] {
        let pair = Pair::new(s)?;
        let region = part(&pair, true, ALL_RIGHTS)?;
        let element = region.element(0, 64);
        if close {
            region.mr.close()?;
        } else {
            region.mr.core().deregister()?.succeeds()?;
        }
        pair.b.receive(1, 0, 64)?;
        let post = pair.a.qp.send(1, &[element], 0)?;
        statuses.note(if close { "closed" } else { "deregistered" }, initiator_fails(&pair.a, 1, post)?);
    }
    statuses.verdict()
}

fn stale_remote(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::REMOTE_RESOURCES);
    for how in ["deregistered", "registered again", "closed"] {
        let pair = Pair::new(s)?;
        let region = part(&pair, false, ALL_RIGHTS)?;
        let (remote, buffer) = (remote_of(&region, 0), region.buffer);
        let list = [pair.a.region.element(0, 64)];
        if how == "closed" {
            region.mr.close()?;
        } else {
            region.mr.core().deregister()?.succeeds()?;
            if how == "registered again" {
                region.mr.core().register(buffer, LENGTH, ALL_RIGHTS)?.succeeds()?;
                if region.mr.remote_token()? == remote.token {
                    return observed!("a region that is registered again gets the token that it had");
                }
            }
        }
        statuses.note(how, initiator_fails(&pair.a, 1, pair.a.qp.write(1, &list, remote, 0)?)?);
        s.settle();
        buffer.is_filled(0, 2 * PAGE, 0xEE)?;
    }
    statuses.verdict()
}

fn guessed(s: &Session<'_>) -> Verdict {
    let mut random = s.random();
    for round in 0..24 {
        let pair = Pair::new(s)?;
        let valid = [pair.b.region.remote(), pair.b.region.local(), pair.b.pd.privileged_token()?];
        let own = pair.b.region.remote();
        let token = match round {
            0 => 0,
            1 => u32::MAX,
            2 => own.wrapping_add(1),
            3 => own.wrapping_sub(1),
            4 => own.swap_bytes(),
            5..12 => own ^ (1 << random.below(32)),
            _ => (random.next() >> 32) as u32,
        };
        if valid.contains(&token) {
            continue;
        }
        pair.b.region.buffer.fill(0, PAGE, 0xEE)?;
        let remote = Remote { token, ..pair.b.remote(0) };
        let post = pair.a.qp.write(1, &[pair.a.region.element(0, 8)], remote, 0)?;
        initiator_fails(&pair.a, 1, post)?;
        pair.b.region.buffer.is_filled(0, PAGE, 0xEE)?;
    }
    HELD
}

fn tokens_confused(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    if pair.b.region.local() == pair.b.region.remote() {
        return observed!("they are equal");
    }
    let remote = Remote { token: pair.b.region.local(), ..pair.b.remote(0) };
    posted("NdkWrite", pair.a.qp.write(1, &[pair.a.region.element(0, 8)], remote, 0)?)?;
    let at_peer = pair.a.initiated().take_one()?.status;
    let pair = Pair::new(s)?;
    pair.b.receive(1, 0, 64)?;
    let element = pair.a.region.buffer.element(0, 8, pair.a.region.remote());
    let post = pair.a.qp.send(1, &[element], 0)?;
    let at_home = if post == NtStatus::SUCCESS { pair.a.initiated().take_one()?.status } else { post };
    observed!("a write with the peer's local token: {at_peer}; a send with the own remote token: {at_home}")
}

fn no_bytes(s: &Session<'_>) -> Verdict {
    let mut seen = [NtStatus::SUCCESS; 2];
    for (seen, writes) in seen.iter_mut().zip([true, false]) {
        let pair = Pair::new(s)?;
        let remote = Remote { address: 0x1234, token: 0xBAD0_70CE };
        let list = [pair.a.region.element(0, 0)];
        let post =
            if writes { pair.a.qp.write(1, &list, remote, 0)? } else { pair.a.qp.read(1, &list, remote, 0)? };
        *seen = if post == NtStatus::SUCCESS { pair.a.initiated().take_one()?.status } else { post };
    }
    observed!("write: {}, read: {}", seen[0], seen[1])
}
