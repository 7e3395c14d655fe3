//! Access to memory that a request must not have: out of range, by wrong tokens, of other domains (`NDKPI 7.4`).
//!
//! A request that is refused breaks its connection, so every attempt has its own.

use ndkpi::{NDK_SGE, NtStatus};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{ALL_RIGHTS, PAGE, Region, Remote, Session},
    fixture::{Pair, Plan, Side},
};

pub const CASES: &[Case] = &[
    Case::new(
        "access.exact-range",
        "NDKPI 7.4",
        "Sends, receives, reads and writes exactly the first and the last bytes of regions, and all of them.",
        "It works.",
        exact_range,
    ),
    Case::new(
        "access.local-range",
        "NDKPI 7.4",
        "Sends and receives with elements that begin one byte before a region or end one byte behind it.",
        "The requests fail, and no byte moves.",
        local_range,
    ),
    Case::new(
        "access.remote-range",
        "NDKPI 7.4",
        "Reads and writes that begin one byte before the peer's region or end one byte behind it.",
        "The requests fail, and no byte moves.",
        remote_range,
    ),
    Case::new(
        "access.arithmetic-that-wraps",
        "NDKPI 7.4",
        "Uses addresses and lengths whose sum is beyond the end of the address space.",
        "The requests fail, and no byte moves.",
        arithmetic_that_wraps,
    ),
    Case::new(
        "access.second-element-is-wrong",
        "NDKPI 7.4",
        "Sends two elements of which the second is out of range.",
        "The send fails.",
        second_element_is_wrong,
    ),
    Case::new(
        "access.wrong-local-token",
        "NDKPI 7.4",
        "Sends and receives with tokens that are no token: 0, all bits, one bit off.",
        "The requests fail, and no byte moves.",
        wrong_local_token,
    ),
    //= NDKPI 7.3.10
    Case::new(
        "access.wrong-remote-token",
        "NDKPI 7.4",
        "Reads and writes with tokens that are no token: 0, all bits, one bit off.",
        "The requests fail, and no byte moves.",
        wrong_remote_token,
    ),
    Case::new(
        "access.local-token-of-another-domain",
        "NDKPI 7.2",
        "Sends with the token of a region of another protection domain.",
        "The send fails.",
        local_token_of_another_domain,
    ),
    Case::new(
        "access.remote-token-of-another-domain",
        "NDKPI 7.2",
        "Writes with the remote token of a region that is in another protection domain than the peer's queue pair.",
        "The write fails, and no byte moves.",
        remote_token_of_another_domain,
    ),
    Case::new(
        "access.tokens-confused",
        "NDKPI 5.5",
        "Writes with the local token of the peer's region.",
        "Open: whether local and remote token are the same.",
        tokens_confused,
    ),
    Case::new(
        "access.nothing-beyond",
        "NDKPI 7.4",
        "Reads no bytes at the end of the peer's region and beyond it.",
        "Open: whether a request of no bytes is checked.",
        nothing_beyond,
    ),
    Case::new(
        "access.read-past-the-end",
        "NDKPI 5.7",
        "Reads past the end of the peer's memory.",
        "It fails; the documented status is STATUS_REMOTE_RESOURCES. Open: whether inline or by completion.",
        read_past_the_end,
    ),
];

const SIZE: u32 = 2 * PAGE as u32;

/// How a request ended that was posted with this status.
fn outcome(side: &Side<'_>, posted: NtStatus) -> Check<NtStatus> {
    if posted.is_success() { Ok(side.initiated().take_one()?.status) } else { Ok(posted) }
}

/// Sends an element from the active side; the passive side has a receive for it.
fn send(s: &Session<'_>, element: impl FnOnce(&Pair<'_>) -> NDK_SGE) -> Check<NtStatus> {
    let pair = Pair::new(s)?;
    pair.b.region.buffer.fill(0, 8192, 0xEE)?;
    pair.b.receive(1, 0, 8192)?;
    let status = outcome(&pair.a, pair.a.qp.send(1, &[element(&pair)], 0)?)?;
    if !status.is_success() {
        s.settle();
        pair.b.region.buffer.is_filled(0, 8192, 0xEE)?;
    }
    Ok(status)
}

/// Receives into an element of the passive side.
fn receive(s: &Session<'_>, element: impl FnOnce(&Pair<'_>) -> NDK_SGE) -> Check<NtStatus> {
    let pair = Pair::new(s)?;
    pair.b.region.buffer.fill(0, 8192, 0xEE)?;
    let element = element(&pair);
    let status = pair.b.qp.receive(1, &[element])?;
    if !status.is_success() {
        return Ok(status);
    }
    pair.a.send(1, 0, element.Length.min(8192), 0)?;
    let status = pair.b.receive_cq.take_one()?.status;
    if !status.is_success() {
        pair.b.region.buffer.is_filled(0, 8192, 0xEE)?;
    }
    Ok(status)
}

/// Writes to and reads from memory of the passive side. No byte may move if it fails.
fn remote(s: &Session<'_>, length: u32, at: impl Fn(&Pair<'_>) -> Remote) -> Check<[NtStatus; 2]> {
    let mut statuses = [NtStatus::SUCCESS; 2];
    for (is_read, status) in [false, true].into_iter().zip(&mut statuses) {
        let plan = Plan { bytes: 3 * PAGE, ..Plan::new() };
        let pair = Pair::with(s, &plan, &Plan::new())?;
        pair.a.region.buffer.fill(0, 8192, if is_read { 0xEE } else { 0x11 })?;
        pair.b.region.buffer.fill(0, 8192, if is_read { 0x11 } else { 0xEE })?;
        let (element, remote) = ([pair.a.region.element(0, length)], at(&pair));
        let posted =
            if is_read { pair.a.qp.read(1, &element, remote, 0)? } else { pair.a.qp.write(1, &element, remote, 0)? };
        *status = outcome(&pair.a, posted)?;
        if !status.is_success() {
            s.settle();
            let untouched = if is_read { pair.a.region.buffer } else { pair.b.region.buffer };
            untouched.is_filled(0, 8192, 0xEE)?;
        }
    }
    Ok(statuses)
}

fn refused(what: &str, statuses: &[NtStatus]) -> Check {
    for status in statuses {
        ensure!(!status.is_success(), "{what} succeeded");
    }
    Ok(())
}

fn exact_range(s: &Session<'_>) -> Verdict {
    for (offset, length) in [(0, SIZE), (0, 1), (SIZE as isize - 1, 1), (1, SIZE - 1)] {
        let what = format_args!("{length} bytes at {offset} of a region of {SIZE}");
        let good = NtStatus::SUCCESS;
        ensure_eq!(send(s, |pair| pair.a.region.element(offset, length))?, good, "send of {what}");
        ensure_eq!(receive(s, |pair| pair.b.region.element(offset, length))?, good, "receive of {what}");
        ensure_eq!(remote(s, length, |pair| pair.b.remote(offset))?, [good; 2], "write and read of {what}");
    }
    HELD
}

/// Ranges that leave a region of `SIZE` bytes on one side.
const OUTSIDE: [(isize, u32); 6] =
    [(-1, 1), (-1, 2), (SIZE as isize, 1), (SIZE as isize - 1, 2), (1, SIZE), (-1, SIZE + 1)];

fn local_range(s: &Session<'_>) -> Verdict {
    let mut seen = [NtStatus::SUCCESS; 2];
    for (offset, length) in OUTSIDE {
        seen[0] = send(s, |pair| pair.a.region.element(offset, length))?;
        seen[1] = receive(s, |pair| pair.b.region.element(offset, length))?;
        ensure!(
            seen.iter().all(|status| !status.is_success()),
            "{length} bytes at {offset} of a region of {SIZE}: send {}, receive {}",
            seen[0],
            seen[1]
        );
    }
    observed!("send {}, receive {}", seen[0], seen[1])
}

fn remote_range(s: &Session<'_>) -> Verdict {
    let mut seen = [NtStatus::SUCCESS; 2];
    for (offset, length) in OUTSIDE {
        seen = remote(s, length, |pair| pair.b.remote(offset))?;
        ensure!(
            seen.iter().all(|status| !status.is_success()),
            "{length} bytes at {offset} of a region of {SIZE}: write {}, read {}",
            seen[0],
            seen[1]
        );
    }
    observed!("write {}, read {}", seen[0], seen[1])
}

fn arithmetic_that_wraps(s: &Session<'_>) -> Verdict {
    for address in [u64::MAX, u64::MAX - 1, u64::MAX - u64::from(SIZE) + 1, 0] {
        let seen = remote(s, SIZE, |pair| Remote { address, token: pair.b.region.remote() })?;
        refused("a transfer at the end of the address space", &seen)?;
        let at = |side: &Side<'_>, length| {
            let offset = address.wrapping_sub(side.region.address(0)).cast_signed();
            side.region.element(isize::try_from(offset).unwrap_or(0), length)
        };
        for length in [SIZE, u32::MAX] {
            refused("a send from the end of the address space", &[send(s, |pair| at(&pair.a, length))?])?;
            refused("a receive to the end of the address space", &[receive(s, |pair| at(&pair.b, length))?])?;
        }
    }
    // An element that would come round to the region again.
    refused(
        "a send of four gigabytes from a region of two pages",
        &[send(s, |pair| pair.a.region.element(16, u32::MAX))?],
    )?;
    HELD
}

fn second_element_is_wrong(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.b.receive(1, 0, 8192)?;
    let list = [pair.a.region.element(0, 16), pair.a.region.element(8190, 3)];
    let status = outcome(&pair.a, pair.a.qp.send(1, &list, 0)?)?;
    ensure!(!status.is_success(), "a send whose second element is out of range succeeded");
    HELD
}

/// Tokens that are not `token`.
const fn wrong(token: u32) -> [u32; 6] {
    [0, u32::MAX, token ^ 1, token ^ 0x80, token ^ 0x8000_0000, !token]
}

fn wrong_local_token(s: &Session<'_>) -> Verdict {
    for index in 0..6 {
        let by_send = send(s, |pair| {
            let token = wrong(pair.a.region.local())[index];
            pair.a.region.buffer.element(0, 64, token)
        })?;
        refused("a send with a token that is none", &[by_send])?;
        let by_receive = receive(s, |pair| {
            let token = wrong(pair.b.region.local())[index];
            pair.b.region.buffer.element(0, 64, token)
        })?;
        refused("a receive with a token that is none", &[by_receive])?;
    }
    HELD
}

fn wrong_remote_token(s: &Session<'_>) -> Verdict {
    for index in 0..6 {
        let seen = remote(s, 64, |pair| Remote { token: wrong(pair.b.region.remote())[index], ..pair.b.remote(0) })?;
        refused("a transfer with a token that is none", &seen)?;
    }
    HELD
}

fn local_token_of_another_domain(s: &Session<'_>) -> Verdict {
    let pd = s.adapter()?.create_pd()?;
    let foreign = Region::new(pd.core(), 2 * PAGE, ALL_RIGHTS)?;
    let status = send(s, |_| foreign.element(0, 64))?;
    refused("a send with a token of another domain", &[status])?;
    observed!("{status}")
}

fn remote_token_of_another_domain(s: &Session<'_>) -> Verdict {
    let pd = s.peer_adapter()?.create_pd()?;
    let foreign = Region::new(pd.core(), 2 * PAGE, ALL_RIGHTS)?;
    foreign.buffer.fill(0, 8192, 0xEE)?;
    let at = Remote { address: foreign.address(0), token: foreign.remote() };
    let seen = remote(s, 64, |_| at)?;
    refused("a transfer with a token of another domain", &seen)?;
    foreign.buffer.is_filled(0, 8192, 0xEE)?;
    observed!("write {}, read {}", seen[0], seen[1])
}

fn tokens_confused(s: &Session<'_>) -> Verdict {
    let seen = remote(s, 64, |pair| Remote { token: pair.b.region.local(), ..pair.b.remote(0) })?;
    observed!("a write with the local token: {}, a read: {}", seen[0], seen[1])
}

fn nothing_beyond(s: &Session<'_>) -> Verdict {
    let at_end = remote(s, 0, |pair| pair.b.remote(SIZE as isize))?;
    let beyond = remote(s, 0, |pair| pair.b.remote(SIZE as isize + 1))?;
    let nowhere = remote(s, 0, |_| Remote { address: 0, token: 0 })?;
    observed!("at the end {}, beyond it {}, without a token {}", at_end[1], beyond[1], nowhere[1])
}

fn read_past_the_end(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let posted = pair.a.qp.read(1, &[pair.a.region.element(0, 64)], pair.b.remote(SIZE as isize - 32), 0)?;
    let when = if posted.is_success() { "by completion" } else { "inline" };
    let status = outcome(&pair.a, posted)?;
    refused("a read past the end of the peer's memory", &[status])?;
    observed!("{status} {when}")
}
