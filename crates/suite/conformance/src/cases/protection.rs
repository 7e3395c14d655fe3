//! What tokens give access to, and what they do not (`NDKPI 2.5`, `7.3`, `7.4`).

use ndkpi::{
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED as SINK_NOT_REQUIRED, NDK_MR_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE,
    NDK_MR_FLAG_ALLOW_REMOTE_READ as REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE,
    NDK_MR_FLAG_RDMA_READ_SINK as READ_SINK, NDK_SGE, NtStatus,
};

use super::common::{Statuses, fails, initiator_fails};
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
    //= NDKPI 7.4.2
    Case::new(
        "protection.remote-rights",
        "NDKPI 2.5",
        "Lets a peer read from and write to regions with every set of rights.",
        "Only what the rights say works. Local write alone does not let a peer write: remote write is two bits.",
        remote_rights,
    ),
    //= NDKPI 7.4.2
    Case::new(
        "protection.read-sink",
        "NDKPI 7.4",
        "Reads into regions with local write, with and without the right to be the target of reads.",
        "With it the read works; without it also, if the adapter says that the right is not required.",
        read_sink,
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
    //= NDKPI 7.2.7
    Case::new(
        "protection.local-errors-first",
        "NDKPI 7.2",
        "Sends more than the peer's receive has room for, and writes to and reads from bytes outside the peer's region, each with \
         an element that leaves its own region.",
        "The request fails as it does if nothing is wrong with the peer, whose receive is not failed.",
        local_errors_first,
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
];

/// The bytes of the regions here, in the middle of which there is a page's end. The memory behind them goes on.
const LENGTH: usize = PAGE + 100;
const BYTES: u32 = 4196;
const END: isize = 4196;

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

/// Bytes that are not all in a region of [`LENGTH`] bytes.
const OUTSIDE: [(isize, u32); 6] = [(-1, 1), (-1, 8), (END, 1), (END - 7, 8), (0, BYTES + 1), (-1, BYTES + 2)];

/// Uses an element in every way, on a connection of its own each. It must not work.
fn element_fails<'s>(s: &'s Session<'s>, statuses: &mut Statuses, element: impl Fn(&Region<'s>) -> NDK_SGE) -> Check {
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

/// Lets a request fail whose own element leaves its region. At the peer nothing is wrong with it, or as much.
fn fails_at_both(s: &Session<'_>, way: &str, peer_is_good: bool) -> Check<NtStatus> {
    let pair = Pair::new(s)?;
    let (mine, theirs) = (part(&pair, true, ALL_RIGHTS)?, part(&pair, false, ALL_RIGHTS)?);
    let (a, list) = (&pair.a, [mine.element(END - 32, 64)]);
    let remote = remote_of(&theirs, if peer_is_good { 0 } else { END - 32 });
    pair.b.receive(1, 0, if peer_is_good { 64 } else { 8 })?;
    let post = match way {
        "a send" => a.qp.send(1, &list, 0)?,
        "a write" => a.qp.write(1, &list, remote, 0)?,
        _ => a.qp.read(1, &list, remote, 0)?,
    };
    let status = initiator_fails(a, 1, post)?;
    s.settle();
    let received = pair.b.receive_cq.core().poll(1)?;
    ensure!(received.iter().all(|done| done.status == NtStatus::CANCELLED), "{way} has reached the peer: {received:?}");
    mine.buffer.is_filled(0, 2 * PAGE, 0xEE)?;
    theirs.buffer.is_filled(0, 2 * PAGE, 0xEE)?;
    Ok(status)
}

fn local_errors_first(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::ACCESS_VIOLATION);
    for way in ["a send", "a write", "a read"] {
        let alone = fails_at_both(s, way, true)?;
        ensure_eq!(fails_at_both(s, way, false)?, alone, "status of a request with errors at both sides");
        statuses.note(way, alone);
    }
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
