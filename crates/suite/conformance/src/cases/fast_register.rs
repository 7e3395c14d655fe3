//! Fast registration (`NDKPI 5.5`, `5.7`, `7.4`).

use alloc::vec::Vec;

use ndkpi::{
    NDK_LOGICAL_ADDRESS, NDK_OP_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_READ as REMOTE_READ,
    NDK_OP_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE, NtStatus,
};

use super::common::{BASE, EVERYTHING, Fast, Statuses, fails, initiator_fails, must_fail};
use crate::{
    case::{Case, HELD, Stop, Verdict},
    client::{FastRegistration, PAGE, Remote, Session},
    fixture::{Pair, Plan, posted},
};

pub const CASES: &[Case] = &[
    Case::new(
        "fast-register.initialise",
        "NDKPI 5.5",
        "Initialises regions for 1, 16 and FRMRPageCount pages, with remote access and without.",
        "It succeeds; FRMRPageCount is at least 16.",
        initialise,
    ),
    Case::new(
        "fast-register.initialise-too-much",
        "NDKPI 5.5",
        "Initialises a region for as many pages as a number can say; then for one.",
        "STATUS_IMPLEMENTATION_LIMIT, then success.",
        initialise_too_much,
    ),
    Case::new(
        "fast-register.initialise-nothing",
        "NDKPI 9",
        "Initialises a region for 0 pages.",
        "Open: the status.",
        initialise_nothing,
    ),
    Case::new(
        "fast-register.initialise-twice",
        "NDKPI 9",
        "Initialises a region twice.",
        "Open: the status.",
        initialise_twice,
    ),
    Case::new(
        "fast-register.again",
        "NDKPI 7.4",
        "Registers and invalidates one region thirty times, at another base each time, asking for the tokens each time.",
        "A peer's write by the new token and base arrives each time.",
        again,
    ),
    Case::new(
        "fast-register.token",
        "NDKPI 7.4",
        "Reads the remote token when the initialisation is complete, then registers and invalidates the region five times. A \
         peer writes with the token that the region has then, and with the last one after the last invalidation.",
        "The writes to a registration arrive, the last one fails. Open: whether the token stays the same.",
        token,
    ),
    Case::new(
        "fast-register.posted-together",
        "NDKPI 7.4",
        "Posts a registration and, without waiting, a send that carries its token; the peer then writes with the token.",
        "The remote token is valid when the post has returned: the peer's write arrives.",
        posted_together,
    ),
    Case::new(
        "fast-register.rights",
        "NDKPI 2.4",
        "Lets a peer read and write regions registered with every set of remote rights.",
        "Only what the rights say works.",
        rights,
    ),
    Case::new(
        "fast-register.local-rights",
        "NDKPI 2.4",
        "Receives into a registration without local write, and sends from it.",
        "The send works, the receive fails.",
        local_rights,
    ),
    Case::new(
        "fast-register.first-byte",
        "NDKPI 7.4",
        "Registers from the bytes 0, 1, 100 and 4095 of the first page on, and writes the first and the last byte.",
        "The base is the address of that byte.",
        first_byte,
    ),
    Case::new(
        "fast-register.outside",
        "NDKPI 7.4",
        "Lets a peer write one byte before and one byte behind what was registered of two pages.",
        "It fails, and the bytes around are as they were.",
        outside,
    ),
    Case::new(
        "fast-register.wrong-arithmetic",
        "NDKPI 7.4",
        "Posts registrations with FBO not below the page size, more bytes than the pages have, a base that does not fit \
         FBO, pages that are not page-aligned, and more pages than the region was initialised for.",
        "They fail.",
        wrong_arithmetic,
    ),
    Case::new(
        "fast-register.pages-without-mapping",
        "NDKPI 7.4",
        "Registers logical addresses that no mapping covers, and of a mapping that was released.",
        "It fails: nothing is written by the peer's write.",
        pages_without_mapping,
    ),
    Case::new(
        "fast-register.not-initialised",
        "NDKPI 7.4",
        "Posts a registration of a region that was not initialised, and of one for normal registration.",
        "It fails. Open: the statuses.",
        not_initialised,
    ),
    Case::new(
        "fast-register.used-after-invalidation",
        "NDKPI 7.6",
        "Invalidates a region; then a peer writes with its token, and the owner sends from it.",
        "It fails, and no byte is written.",
        used_after_invalidation,
    ),
    Case::new(
        "fast-register.invalidated-twice",
        "NDKPI 7.6",
        "Invalidates a region twice, and one that was never registered.",
        "The second invalidation fails.",
        invalidated_twice,
    ),
    //= NDKPI 7.4.5
    Case::new(
        "fast-register.at-the-depth-of-the-queue",
        "NDKPI 7.4",
        "Registers 16 pages in reverse order; then posts an invalidation and another registration in turn, one behind the other, \
         until the initiator queue is full.",
        "All complete, in order, and a peer's write arrives in the last registration.",
        at_the_depth_of_the_queue,
    ),
    Case::new(
        "fast-register.closed-while-registered",
        "NDKPI 7.9",
        "Closes a region that is registered; then a peer writes with its token.",
        "The close completes, the write fails, and no byte is written.",
        closed_while_registered,
    ),
];

const BYTES: usize = 2 * PAGE;

fn initialise(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let count = adapter.info().FRMRPageCount;
    ensure!(count >= 16, "FRMRPageCount is {count} (NDKPI 3.11)");
    let pd = adapter.create_pd()?;
    for pages in [1, 16, count] {
        for remote in [false, true] {
            let mr = pd.core().create_mr(true)?;
            mr.core().initialize(pages, remote)?.succeeds()?;
            mr.close()?;
        }
    }
    HELD
}

fn initialise_too_much(s: &Session<'_>) -> Verdict {
    let pd = s.adapter()?.create_pd()?;
    let mr = pd.core().create_mr(true)?;
    mr.core().initialize(u32::MAX, true)?.ends_with(NtStatus::IMPLEMENTATION_LIMIT)?;
    mr.core().initialize(1, true)?.succeeds()?;
    HELD
}

fn initialise_nothing(s: &Session<'_>) -> Verdict {
    let pd = s.adapter()?.create_pd()?;
    let mr = pd.core().create_mr(true)?;
    let status = mr.core().initialize(0, true)?.wait()?;
    observed!("{status}")
}

fn initialise_twice(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pd = s.adapter()?.create_pd()?;
    let mr = pd.core().create_mr(true)?;
    mr.core().initialize(2, true)?.succeeds()?;
    let status = mr.core().initialize(4, true)?.wait()?;
    observed!("{status}")
}

fn again(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 2, true)?;
    for round in 0..30_u8 {
        let base = BASE + u64::from(round) * 0x1_0000;
        fast.register(&pair.b, &FastRegistration { base, ..fast.whole(EVERYTHING)? })?;
        let remote = Remote { address: base + 1, token: fast.mr.remote_token()? };
        pair.a.region.buffer.fill_pattern(0, 100, round)?;
        pair.a.write(1, 0, 100, remote, 0)?;
        pair.a.initiator_done(1)?;
        fast.mapped.buffer.has_pattern(1, 100, round)?;
        fast.invalidate(&pair.b)?;
    }
    HELD
}

fn token(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 2, true)?;
    let first = fast.mr.remote_token()?;
    let mut changes = 0;
    for round in 0..5_u8 {
        fast.register_whole(&pair.b, EVERYTHING)?;
        let remote = fast.remote(0)?;
        changes += u32::from(remote.token != first);
        pair.a.region.buffer.fill_pattern(0, 100, round)?;
        pair.a.write(1, 0, 100, remote, 0)?;
        pair.a.initiator_done(1)?;
        fast.mapped.buffer.has_pattern(0, 100, round)?;
        fast.invalidate(&pair.b)?;
    }
    fast.mapped.buffer.fill(0, BYTES, 0xEE)?;
    must_fail(&pair.a, 2, pair.a.qp.write(2, &[pair.a.region.element(0, 64)], fast.remote(0)?, 0)?)?;
    s.settle();
    fast.mapped.buffer.is_filled(0, BYTES, 0xEE)?;
    match changes {
        0 => observed!("the remote token stays the same"),
        _ => observed!("{changes} of 5 registrations have another remote token than the initialised region"),
    }
}

fn posted_together(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (a, b) = (&pair.a, &pair.b);
    let fast = Fast::new(b.pd.core(), 2, true)?;
    for round in 0..20_u8 {
        a.receive(1, 0, 64)?;
        posted("NdkFastRegister", b.qp.fast_register(2, fast.mr.core(), &fast.whole(EVERYTHING)?)?)?;
        let remote = fast.remote(0)?;
        b.region.buffer.write(0, &remote.token.to_le_bytes())?;
        b.send(3, 0, 4, 0)?;
        a.receive_done(1)?;
        let mut token = [0; 4];
        a.region.buffer.read(0, &mut token)?;
        a.region.buffer.fill_pattern(64, 100, round)?;
        let remote = Remote { token: u32::from_le_bytes(token), ..remote };
        a.write(4, 64, 100, remote, 0)?;
        a.initiator_done(4)?;
        fast.mapped.buffer.has_pattern(0, 100, round)?;
        b.initiator_done(2)?;
        b.initiator_done(3)?;
        ensure_eq!(fast.mr.remote_token()?, remote.token, "remote token after the completion");
        fast.invalidate(b)?;
    }
    HELD
}

fn rights(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::REMOTE_RESOURCES);
    for flags in [0, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, REMOTE_READ | REMOTE_WRITE] {
        for writes in [false, true] {
            let pair = Pair::new(s)?;
            let fast = Fast::new(pair.b.pd.core(), 2, true)?;
            fast.register_whole(&pair.b, flags)?;
            fast.mapped.buffer.fill(0, BYTES, 0xEE)?;
            let (list, remote) = ([pair.a.region.element(0, 64)], fast.remote(0)?);
            let (post, right, name) = if writes {
                (pair.a.qp.write(1, &list, remote, 0)?, REMOTE_WRITE, "a write")
            } else {
                (pair.a.qp.read(1, &list, remote, 0)?, REMOTE_READ, "a read")
            };
            if flags & right == right {
                posted(name, post)?;
                pair.a.initiator_done(1)?;
                // The mapping is released before the region is closed.
                fast.invalidate(&pair.b)?;
            } else {
                statuses.note(name, initiator_fails(&pair.a, 1, post)?);
                fast.mapped.buffer.is_filled(0, BYTES, 0xEE)?;
                // The queue pair has ended, so nobody can invalidate any more: the region goes before its mapping.
                fast.mr.close()?;
            }
        }
    }
    statuses.verdict()
}

fn local_rights(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::ACCESS_VIOLATION);
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 2, true)?;
    fast.register_whole(&pair.b, REMOTE_READ)?;
    pair.a.receive(1, 0, 64)?;
    posted("NdkSend", pair.b.qp.send(1, &[fast.element(0, 64)?], 0)?)?;
    pair.b.initiator_done(1)?;
    pair.a.receive_done(1)?;
    fast.mapped.buffer.fill(0, BYTES, 0xEE)?;
    let post = pair.b.qp.receive(2, &[fast.element(0, 64)?])?;
    if post == NtStatus::SUCCESS {
        pair.a.send(2, 0, 64, 0)?;
    }
    statuses.note("the receive", fails(pair.b.receive_cq.core(), 2, post)?);
    fast.mapped.buffer.is_filled(0, BYTES, 0xEE)?;
    statuses.verdict()
}

fn first_byte(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 2, true)?;
    for (offset, start) in [(0, 0), (1, 1), (100, 100), (4095, 4095)] {
        let base = BASE + u64::from(offset);
        let length = BYTES - start;
        let what = FastRegistration { offset, length, base, ..fast.whole(EVERYTHING)? };
        fast.register(&pair.b, &what)?;
        fast.mapped.buffer.fill(0, BYTES, 0xEE)?;
        pair.a.region.buffer.fill(0, 1, 0x11)?;
        let last = i64::try_from(BYTES - 1).unwrap_or(0);
        for (number, place) in (1..).zip([i64::from(offset), last]) {
            pair.a.write(number, 0, 1, fast.remote(place)?, 0)?;
            pair.a.initiator_done(number)?;
        }
        fast.mapped.buffer.is_filled(0, start, 0xEE)?;
        fast.mapped.buffer.is_filled(start, 1, 0x11)?;
        fast.mapped.buffer.is_filled(start + 1, BYTES - start - 2, 0xEE)?;
        fast.mapped.buffer.is_filled(BYTES - 1, 1, 0x11)?;
        fast.invalidate(&pair.b)?;
    }
    HELD
}

fn outside(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::REMOTE_RESOURCES);
    for (place, length) in [(99, 1), (99, 8), (8092, 1), (8085, 8), (100, 7993)] {
        let pair = Pair::new(s)?;
        let fast = Fast::new(pair.b.pd.core(), 2, true)?;
        fast.mapped.buffer.fill(0, BYTES, 0xEE)?;
        let what = FastRegistration { offset: 100, base: BASE + 100, length: 7992, ..fast.whole(EVERYTHING)? };
        fast.register(&pair.b, &what)?;
        let post = pair.a.qp.write(1, &[pair.a.region.element(0, length)], fast.remote(place)?, 0)?;
        statuses.note("a write", initiator_fails(&pair.a, 1, post)?);
        s.settle();
        fast.mapped.buffer.is_filled(0, BYTES, 0xEE)?;
    }
    statuses.verdict()
}

fn wrong_arithmetic(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let mut statuses = Statuses::new(NtStatus::INVALID_PARAMETER);
    for wrong in 0..8 {
        let pair = Pair::new(s)?;
        let fast = Fast::new(pair.b.pd.core(), 2, true)?;
        let mut pages: Vec<NDK_LOGICAL_ADDRESS> = Vec::new();
        pages.try_reserve(3).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))?;
        pages.extend_from_slice(fast.mapped.mapping.pages()?);
        if wrong == 6 {
            pages[1] = NDK_LOGICAL_ADDRESS::from_bits(pages[1].to_bits() + 64);
        } else if wrong == 7 {
            pages.push(pages[0]);
        }
        let right = FastRegistration { pages: &pages, ..fast.whole(EVERYTHING)? };
        let (name, what) = match wrong {
            0 => ("FBO 4096", FastRegistration { offset: 4096, length: 64, ..right }),
            1 => ("FBO too large", FastRegistration { offset: u32::MAX, base: BASE + 0xFFF, length: 64, ..right }),
            2 => ("one byte too many", FastRegistration { length: BYTES + 1, ..right }),
            3 => {
                let (offset, base) = (100, BASE + 100);
                ("one byte too many behind FBO", FastRegistration { offset, base, length: BYTES - 99, ..right })
            }
            4 => ("a base that does not fit", FastRegistration { base: BASE + 1, length: 64, ..right }),
            5 => ("base 0 with an FBO", FastRegistration { base: 0, offset: 8, length: 64, ..right }),
            6 => ("a page that is not aligned", right),
            _ => ("one page too many", FastRegistration { length: 3 * PAGE, ..right }),
        };
        statuses.note(name, initiator_fails(&pair.b, 1, pair.b.qp.fast_register(1, fast.mr.core(), &what)?)?);
    }
    statuses.verdict()
}

fn pages_without_mapping(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let mut seen = [NtStatus::SUCCESS; 3];
    for (round, seen) in seen.iter_mut().enumerate() {
        let pair = Pair::new(s)?;
        let mut fast = Fast::new(pair.b.pd.core(), 2, true)?;
        let mapped = fast.mapped.mapping.pages()?[0];
        let beyond = NDK_LOGICAL_ADDRESS::from_bits(mapped.to_bits() + (1 << 40));
        let pages = match round {
            0 => [beyond, mapped],
            1 => [NDK_LOGICAL_ADDRESS::from_bits(u64::MAX - 4095), mapped],
            _ => [mapped, mapped],
        };
        if round == 2 {
            fast.mapped.release()?;
        }
        let what = FastRegistration { pages: &pages, ..fast.whole(EVERYTHING)? };
        let post = pair.b.qp.fast_register(1, fast.mr.core(), &what)?;
        *seen = if post == NtStatus::SUCCESS { pair.b.initiated().take_one()?.status } else { post };
        if seen.is_success() {
            must_fail(&pair.a, 2, pair.a.qp.write(2, &[pair.a.region.element(0, 64)], fast.remote(0)?, 0)?)?;
        }
    }
    observed!("far away: {}, at the end: {}, released: {}", seen[0], seen[1], seen[2])
}

fn not_initialised(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let mut seen = [NtStatus::SUCCESS; 2];
    for (seen, fast_kind) in seen.iter_mut().zip([true, false]) {
        let pair = Pair::new(s)?;
        let fast = Fast::new(pair.b.pd.core(), 2, true)?;
        let mr = pair.b.pd.core().create_mr(fast_kind)?;
        let post = pair.b.qp.fast_register(1, mr.core(), &fast.whole(EVERYTHING)?)?;
        *seen = initiator_fails(&pair.b, 1, post)?;
    }
    observed!("not initialised: {}, normal: {}", seen[0], seen[1])
}

fn used_after_invalidation(s: &Session<'_>) -> Verdict {
    let mut seen = [NtStatus::SUCCESS; 2];
    for local in [false, true] {
        let pair = Pair::new(s)?;
        let fast = Fast::new(pair.b.pd.core(), 2, true)?;
        fast.register_whole(&pair.b, EVERYTHING)?;
        let (remote, element) = (fast.remote(0)?, fast.element(0, 64)?);
        fast.invalidate(&pair.b)?;
        fast.mapped.buffer.fill(0, BYTES, 0xEE)?;
        if local {
            pair.a.receive(1, 0, 64)?;
            seen[1] = initiator_fails(&pair.b, 1, pair.b.qp.send(1, &[element], 0)?)?;
        } else {
            let post = pair.a.qp.write(1, &[pair.a.region.element(0, 64)], remote, 0)?;
            seen[0] = initiator_fails(&pair.a, 1, post)?;
        }
        s.settle();
        fast.mapped.buffer.is_filled(0, BYTES, 0xEE)?;
    }
    if seen == [NtStatus::REMOTE_RESOURCES, NtStatus::ACCESS_VIOLATION] {
        return HELD;
    }
    observed!("a peer's write: {}, a send: {}", seen[0], seen[1])
}

fn invalidated_twice(s: &Session<'_>) -> Verdict {
    let mut statuses = Statuses::new(NtStatus::INVALID_DEVICE_REQUEST);
    for registered in [true, false] {
        let pair = Pair::new(s)?;
        let fast = Fast::new(pair.b.pd.core(), 2, true)?;
        if registered {
            fast.register_whole(&pair.b, EVERYTHING)?;
            fast.invalidate(&pair.b)?;
        }
        let post = pair.b.qp.invalidate_mr(1, fast.mr.core(), 0)?;
        let name = if registered { "twice" } else { "never registered" };
        statuses.note(name, initiator_fails(&pair.b, 1, post)?);
    }
    statuses.verdict()
}

fn at_the_depth_of_the_queue(s: &Session<'_>) -> Verdict {
    const PAGES: usize = 16;
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 16, true)?;
    let mut pages = [NDK_LOGICAL_ADDRESS::from_bits(0); PAGES];
    pages.copy_from_slice(fast.mapped.mapping.pages()?);
    pages.reverse();
    let whole = fast.whole(EVERYTHING)?;
    fast.register(&pair.b, &FastRegistration { pages: &pages, ..whole })?;
    let depth = Plan::new().sizes.initiator_depth as usize;
    for context in 0..depth {
        if context % 2 == 0 {
            posted("NdkInvalidate", pair.b.qp.invalidate_mr(context, fast.mr.core(), 0)?)?;
        } else {
            pages.swap(context % PAGES, 0);
            let what = FastRegistration { pages: &pages, ..whole };
            posted("NdkFastRegister", pair.b.qp.fast_register(context, fast.mr.core(), &what)?)?;
        }
    }
    for context in 0..depth {
        pair.b.initiator_done(context)?;
    }
    let known = fast.mapped.mapping.pages()?;
    for (number, page) in pages.iter().enumerate() {
        let value = u8::try_from(number).unwrap_or(0);
        pair.a.region.buffer.fill(0, 64, value)?;
        pair.a.write(number, 0, 64, fast.remote(i64::try_from(number * PAGE).unwrap_or(0))?, 0)?;
        pair.a.initiator_done(number)?;
        let place = known.iter().position(|known| known.to_bits() == page.to_bits()).unwrap_or(0);
        fast.mapped.buffer.is_filled(place * PAGE, 64, value)?;
    }
    HELD
}

fn closed_while_registered(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 2, true)?;
    fast.register_whole(&pair.b, EVERYTHING)?;
    let remote = fast.remote(0)?;
    let Fast { mr, mapped } = fast;
    mr.close()?;
    mapped.buffer.fill(0, BYTES, 0xEE)?;
    must_fail(&pair.a, 1, pair.a.qp.write(1, &[pair.a.region.element(0, 64)], remote, 0)?)?;
    s.settle();
    mapped.buffer.is_filled(0, BYTES, 0xEE)?;
    HELD
}
