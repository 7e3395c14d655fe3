//! Memory windows (`NDKPI 7.6`).

use ndkpi::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE as MR_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ as MR_REMOTE_READ,
    NDK_OP_FLAG_ALLOW_REMOTE_READ as REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE,
    NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NDK_OPERATION_TYPE as Type, NDK_VERSION, NtStatus,
};

use super::{
    common::send_token,
    fast::{Fast, beside, loaded, read, write},
    registration::{LOAD, under_load},
};
use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{Mw, PAGE, Region, Remote, Session},
    fixture::{Pair, Plan, Side, posted},
};

pub const CASES: &[Case] = &[
    Case::new(
        "window.bind-use-invalidate",
        "NDKPI 7.6",
        "Binds a window to part of a region, lets the peer write and read through it, invalidates it; thirty times.",
        "It works each time.",
        bind_use_invalidate,
    ),
    //= NDKPI 7.6.1
    Case::new(
        "window.token-is-valid-at-return",
        "NDKPI 7.6",
        "Posts a silent bind and sends its token in the next request, without waiting.",
        "The peer can write with it as soon as it has the message.",
        token_is_valid_at_return,
    ),
    Case::new(
        "window.range",
        "NDKPI 7.6",
        "Writes exactly to the first and last bytes of a window, then one byte beside.",
        "The first writes work; the others fail, and no byte moves.",
        range,
    ),
    Case::new(
        "window.rights",
        "NDKPI 7.6",
        "Binds with the right to read, the right to write, both and none, and uses the window.",
        "What was not granted fails.",
        rights,
    ),
    Case::new(
        "window.rights-that-the-region-lacks",
        "NDKPI 5.7",
        "Binds with remote write to a region without local write.",
        "STATUS_ACCESS_VIOLATION inline.",
        rights_that_the_region_lacks,
    ),
    Case::new(
        "window.needs-no-remote-right-of-the-region",
        "NDKPI 7.6",
        "Binds with remote rights to a region that has local write only.",
        "Open: whether it is accepted.",
        needs_no_remote_right_of_the_region,
    ),
    //= NDKPI 7.6.1
    Case::new(
        "window.outside-of-the-region",
        "NDKPI 7.6",
        "Binds windows that leave the region by one byte, on either side, and by arithmetic that wraps.",
        "They fail. Open: how.",
        outside_of_the_region,
    ),
    Case::new(
        "window.completion-type",
        "NDKPI 2.2",
        "Looks at the completions of a bind and an invalidation.",
        "They have their types.",
        completion_type,
    ),
    Case::new(
        "window.invalidated-token",
        "NDKPI 7.6",
        "Lets the peer write with the token of an invalidated window.",
        "It fails, and no byte moves.",
        invalidated_token,
    ),
    Case::new(
        "window.invalidate-twice",
        "NDKPI 9",
        "Invalidates a window twice, and one that was never bound.",
        "They fail. Open: how.",
        invalidate_twice,
    ),
    //= NDKPI 7.6.1
    Case::new(
        "window.at-the-depth-of-the-queue",
        "NDKPI 7.6",
        "Posts a bind of one window and its invalidation in turn, one behind the other, until the initiator queue is full, and a \
         last bind when they have completed.",
        "All complete, in order, and a peer's write through the window arrives.",
        at_the_depth_of_the_queue,
    ),
    Case::new("window.bind-twice", "NDKPI 9", "Binds a window that is bound.", "Open: what happens.", bind_twice),
    Case::new(
        "window.several-on-one-region",
        "NDKPI 7.6",
        "Binds four windows with other rights to one region.",
        "Each grants its own.",
        several_on_one_region,
    ),
    Case::new(
        "window.deregister-the-region",
        "NDKPI 9",
        "Deregisters a region to which a window is bound.",
        "Open: the status. After the invalidation of the window it succeeds.",
        deregister_the_region,
    ),
    Case::new(
        "window.of-another-domain",
        "NDKPI 7.6",
        "Binds a window to a region of another protection domain.",
        "It fails. Open: how.",
        of_another_domain,
    ),
    Case::new(
        "window.closed-under-load",
        "NDKPI 7.9",
        "Closes a region and then the window that is bound to it, while a peer writes megabytes through the window.",
        "Both closes complete, the window's first, and no byte changes after that.",
        closed_under_load,
    ),
    //= NDKPI 7.4.3
    Case::new(
        "window.region-closed-under-load",
        "NDKPI 7.9",
        "Invalidates a window over another connection and closes its fast-registered region, while a peer writes megabytes \
         through the window; waits for the region only.",
        "The close completes, and no byte changes after that.",
        region_closed_under_load,
    ),
];

const BOTH: u32 = REMOTE_READ | REMOTE_WRITE;

/// Binds a window of the passive side to bytes of its region and waits for the completion.
fn bind(side: &Side<'_>, mw: &Mw<'_>, offset: isize, length: usize, flags: u32) -> Check<NtStatus> {
    let status = post_bind(side, &side.region, mw, offset, length, flags)?;
    if status.is_success() { Ok(side.initiated().take_one()?.status) } else { Ok(status) }
}

fn post_bind(
    side: &Side<'_>,
    region: &Region<'_>,
    mw: &Mw<'_>,
    offset: isize,
    length: usize,
    flags: u32,
) -> Check<NtStatus> {
    side.qp.bind(0xB1, region.mr.core(), mw.core(), region.address(offset), length, flags)
}

fn bound<'s>(side: &Side<'s>, offset: isize, length: usize, flags: u32) -> Check<(Mw<'s>, u32)> {
    let mw = side.pd.core().create_mw()?;
    ensure_eq!(bind(side, &mw, offset, length, flags)?, NtStatus::SUCCESS, "a bind with the rights {flags:#x}");
    let token = mw.remote_token()?;
    Ok((mw, token))
}

fn invalidate(side: &Side<'_>, mw: &Mw<'_>) -> Check {
    posted("NdkInvalidate", side.qp.invalidate_mw(0xB2, mw.core(), 0)?)?;
    side.initiator_done(0xB2).map(|_| ())
}

fn at(side: &Side<'_>, token: u32, offset: isize) -> Remote {
    Remote { address: side.region.address(offset), token }
}

fn bind_use_invalidate(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mw = pair.b.pd.core().create_mw()?;
    for round in 0..30_u8 {
        let offset = 100 * isize::from(round);
        ensure_eq!(bind(&pair.b, &mw, offset, 1000, BOTH)?, NtStatus::SUCCESS, "a bind");
        let remote = at(&pair.b, mw.remote_token()?, offset + 10);
        pair.a.region.buffer.fill_pattern(0, 500, round)?;
        ensure_eq!(write(&pair, remote, 500)?, NtStatus::SUCCESS, "a write through a window");
        pair.b.region.buffer.has_pattern(usize::from(round) * 100 + 10, 500, round)?;
        pair.a.region.buffer.fill(0, 500, 0)?;
        ensure_eq!(read(&pair, remote, 500)?, NtStatus::SUCCESS, "a read through a window");
        pair.a.region.buffer.has_pattern(0, 500, round)?;
        invalidate(&pair.b, &mw)?;
    }
    HELD
}

fn token_is_valid_at_return(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mw = pair.b.pd.core().create_mw()?;
    for round in 0..30_u8 {
        pair.a.receive(1, 0, 64)?;
        posted("NdkBind", post_bind(&pair.b, &pair.b.region, &mw, 0, 64, BOTH | SILENT)?)?;
        let token = mw.remote_token()?;
        send_token(s, &pair.b, 2, token)?;
        pair.a.receive_done(1)?;
        let mut received = [0; 4];
        pair.a.region.buffer.read(0, &mut received)?;
        pair.a.region.buffer.fill_pattern(0, 64, round)?;
        let remote = at(&pair.b, u32::from_ne_bytes(received), 0);
        ensure_eq!(write(&pair, remote, 64)?, NtStatus::SUCCESS, "a write with the token of the message");
        pair.b.region.buffer.has_pattern(0, 64, round)?;
        pair.b.initiator_done(2)?;
        invalidate(&pair.b, &mw)?;
    }
    HELD
}

fn range(s: &Session<'_>) -> Verdict {
    for (offset, length, works) in [
        (1000, 1, true),
        (1999, 1, true),
        (1000, 1000, true),
        (999, 1, false),
        (999, 2, false),
        (2000, 1, false),
        (1999, 2, false),
    ] {
        let pair = Pair::new(s)?;
        pair.b.region.buffer.fill(0, 8192, 0xEE)?;
        let (_mw, token) = bound(&pair.b, 1000, 1000, BOTH)?;
        let status = write(&pair, at(&pair.b, token, offset), length)?;
        if works {
            ensure_eq!(status, NtStatus::SUCCESS, "a write of {length} bytes at {offset} of 1000 to 1999");
        } else {
            ensure!(!status.is_success(), "a write of {length} bytes at {offset} of 1000 to 1999 succeeded");
            s.settle();
            pair.b.region.buffer.is_filled(0, 8192, 0xEE)?;
        }
    }
    HELD
}

fn rights(s: &Session<'_>) -> Verdict {
    for flags in [0, REMOTE_READ, REMOTE_WRITE, BOTH] {
        for is_read in [false, true] {
            let pair = Pair::new(s)?;
            pair.b.region.buffer.fill(0, 64, 0xEE)?;
            let (_mw, token) = bound(&pair.b, 0, 64, flags)?;
            let granted = if is_read { flags & REMOTE_READ != 0 } else { flags & REMOTE_WRITE == REMOTE_WRITE };
            let remote = at(&pair.b, token, 0);
            let status = if is_read { read(&pair, remote, 64)? } else { write(&pair, remote, 64)? };
            let what = if is_read { "read" } else { "write" };
            if granted {
                ensure_eq!(status, NtStatus::SUCCESS, "a {what} through a window with the rights {flags:#x}");
            } else {
                ensure!(!status.is_success(), "a {what} through a window with the rights {flags:#x} succeeded");
                s.settle();
                pair.b.region.buffer.is_filled(0, 64, 0xEE)?;
            }
        }
    }
    HELD
}

fn rights_that_the_region_lacks(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mw = pair.b.pd.core().create_mw()?;
    let region = Region::new(pair.b.pd.core(), PAGE, MR_REMOTE_READ)?;
    for flags in [REMOTE_WRITE, BOTH] {
        let status = post_bind(&pair.b, &region, &mw, 0, 64, flags)?;
        ensure_eq!(status, NtStatus::ACCESS_VIOLATION, "NdkBind with the rights {flags:#x}");
    }
    pair.b.initiated().stays_empty()?;
    HELD
}

fn needs_no_remote_right_of_the_region(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mw = pair.b.pd.core().create_mw()?;
    let region = Region::new(pair.b.pd.core(), PAGE, MR_LOCAL_WRITE)?;
    let status = post_bind(&pair.b, &region, &mw, 0, 64, BOTH)?;
    if !status.is_success() {
        return observed!("inline {status}");
    }
    let status = pair.b.initiated().take_one()?.status;
    let remote = Remote { address: region.address(0), token: mw.remote_token()? };
    observed!("the bind completes with {status}, a write with {}", write(&pair, remote, 64)?)
}

fn outside_of_the_region(s: &Session<'_>) -> Verdict {
    let mut seen = (NtStatus::SUCCESS, "");
    for (offset, length) in
        [(-1, 64), (8192, 1), (8191, 2), (1, 8192), (0, 8193), (16, usize::MAX), (16, usize::MAX - 15)]
    {
        let pair = Pair::new(s)?;
        let mw = pair.b.pd.core().create_mw()?;
        let status = post_bind(&pair.b, &pair.b.region, &mw, offset, length, BOTH)?;
        seen = match status.is_success() {
            true => (pair.b.initiated().take_one()?.status, "by completion"),
            false => (status, "inline"),
        };
        ensure!(!seen.0.is_success(), "a window of {length} bytes at {offset} of a region of 8192 was bound");
    }
    observed!("{} {}", seen.0, seen.1)
}

fn completion_type(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let mw = pair.b.pd.core().create_mw()?;
    posted("NdkBind", post_bind(&pair.b, &pair.b.region, &mw, 0, 64, BOTH)?)?;
    ensure_eq!(pair.b.initiator_done(0xB1)?.kind, Some(Type::BIND), "type of a bind");
    posted("NdkInvalidate", pair.b.qp.invalidate_mw(2, mw.core(), 0)?)?;
    ensure_eq!(pair.b.initiator_done(2)?.kind, Some(Type::INVALIDATE), "type of an invalidation");
    HELD
}

fn invalidated_token(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.b.region.buffer.fill(0, 64, 0xEE)?;
    let (mw, token) = bound(&pair.b, 0, 64, BOTH)?;
    invalidate(&pair.b, &mw)?;
    let status = write(&pair, at(&pair.b, token, 0), 64)?;
    ensure!(!status.is_success(), "a write with the token of an invalidated window succeeded");
    s.settle();
    pair.b.region.buffer.is_filled(0, 64, 0xEE)?;
    HELD
}

fn invalidate_twice(s: &Session<'_>) -> Verdict {
    let mut seen = [NtStatus::SUCCESS; 2];
    for (seen, was_bound) in seen.iter_mut().zip([true, false]) {
        let pair = Pair::new(s)?;
        let mw = pair.b.pd.core().create_mw()?;
        if was_bound {
            ensure_eq!(bind(&pair.b, &mw, 0, 64, BOTH)?, NtStatus::SUCCESS, "a bind");
            invalidate(&pair.b, &mw)?;
        }
        let status = pair.b.qp.invalidate_mw(1, mw.core(), 0)?;
        *seen = if status.is_success() { pair.b.initiated().take_one()?.status } else { status };
        ensure!(!seen.is_success(), "a window that is not bound was invalidated");
    }
    observed!("a second time: {}, never bound: {}", seen[0], seen[1])
}

fn bind_twice(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (mw, _) = bound(&pair.b, 0, 64, BOTH)?;
    let status = post_bind(&pair.b, &pair.b.region, &mw, 100, 64, BOTH)?;
    if !status.is_success() {
        return observed!("inline {status}");
    }
    observed!("by completion {}", pair.b.initiated().take_one()?.status)
}

fn at_the_depth_of_the_queue(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mw = pair.b.pd.core().create_mw()?;
    let depth = Plan::new().sizes.initiator_depth as usize;
    for context in 0..depth {
        if context % 2 == 0 {
            let offset = isize::try_from(context * 64).unwrap_or(0);
            let (qp, region) = (&pair.b.qp, &pair.b.region);
            let status = qp.bind(context, region.mr.core(), mw.core(), region.address(offset), 64, BOTH)?;
            posted("NdkBind", status)?;
        } else {
            posted("NdkInvalidate", pair.b.qp.invalidate_mw(context, mw.core(), 0)?)?;
        }
    }
    for context in 0..depth {
        pair.b.initiator_done(context)?;
    }
    ensure_eq!(bind(&pair.b, &mw, 0, 64, BOTH)?, NtStatus::SUCCESS, "the last bind");
    pair.a.region.buffer.fill_pattern(0, 64, 3)?;
    ensure_eq!(write(&pair, at(&pair.b, mw.remote_token()?, 0), 64)?, NtStatus::SUCCESS, "a write through the window");
    pair.b.region.buffer.has_pattern(0, 64, 3)?;
    HELD
}

fn several_on_one_region(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (_reads, reads) = bound(&pair.b, 0, 1000, REMOTE_READ)?;
    let (_writes, writes) = bound(&pair.b, 0, 1000, REMOTE_WRITE)?;
    let (_all, all) = bound(&pair.b, 500, 1000, BOTH)?;
    let (_rest, rest) = bound(&pair.b, 4000, 100, BOTH)?;
    pair.a.region.buffer.fill_pattern(0, 64, 1)?;
    for (token, offset) in [(writes, 0), (all, 600), (rest, 4036)] {
        ensure_eq!(write(&pair, at(&pair.b, token, offset), 64)?, NtStatus::SUCCESS, "a write through a window");
        pair.b.region.buffer.has_pattern(offset.unsigned_abs(), 64, 1)?;
    }
    for (token, offset) in [(reads, 0), (all, 600), (rest, 4036)] {
        pair.a.region.buffer.fill(0, 64, 0)?;
        ensure_eq!(read(&pair, at(&pair.b, token, offset), 64)?, NtStatus::SUCCESS, "a read through a window");
        pair.a.region.buffer.has_pattern(0, 64, 1)?;
    }
    let status = write(&pair, at(&pair.b, reads, 0), 64)?;
    ensure!(!status.is_success(), "a write through a window for reads succeeded");
    HELD
}

fn deregister_the_region(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (mw, _) = bound(&pair.b, 0, 64, BOTH)?;
    let status = pair.b.region.mr.core().deregister()?.wait()?;
    if !status.is_success() {
        invalidate(&pair.b, &mw)?;
        pair.b.region.mr.core().deregister()?.succeeds()?;
    }
    observed!("{status}")
}

fn of_another_domain(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    let pd = s.peer_adapter()?.create_pd()?;
    let mw = pd.core().create_mw()?;
    let status = post_bind(&pair.b, &pair.b.region, &mw, 0, 64, BOTH)?;
    let (how, status) = match status.is_success() {
        true => ("by completion", pair.b.initiated().take_one()?.status),
        false => ("inline", status),
    };
    ensure!(!status.is_success(), "a window of another domain was bound");
    observed!("{how} {status}")
}

fn region_closed_under_load(s: &Session<'_>) -> Verdict {
    let (pair, fast) = loaded(s)?;
    let other = beside(s, &pair)?;
    let mw = pair.b.pd.core().create_mw()?;
    let Fast { mr, buffer, .. } = fast;
    posted("NdkBind", pair.b.qp.bind(0xB1, mr.core(), mw.core(), buffer.address(0), LOAD, BOTH)?)?;
    pair.b.initiator_done(0xB1)?;
    let remote = Remote { address: buffer.address(0), token: mw.remote_token()? };
    let verdict = under_load(s, &pair, buffer, remote, || {
        posted("NdkInvalidate", other.b.qp.invalidate_mw(0xB2, mw.core(), 0)?)?;
        mr.close().map(|_| ())
    });
    other.b.initiator_done(0xB2)?;
    verdict
}

fn closed_under_load(s: &Session<'_>) -> Verdict {
    let plan = Plan { bytes: LOAD, ..Plan::new() };
    let pair = Pair::with(s, &plan, &plan)?;
    let mw = pair.b.pd.core().create_mw()?;
    let region = Region::new(pair.b.pd.core(), LOAD, MR_LOCAL_WRITE)?;
    let status = post_bind(&pair.b, &region, &mw, 0, LOAD, BOTH)?;
    ensure_eq!(status, NtStatus::SUCCESS, "NdkBind");
    pair.b.initiator_done(0xB1)?;
    mw.stays_bound_to(region.mr.core());
    let remote = Remote { address: region.address(0), token: mw.remote_token()? };
    let Region { mr, buffer, .. } = region;
    under_load(s, &pair, buffer, remote, || {
        let closing = mr.start_close()?;
        mw.close()?;
        closing.wait().map(|_| ())
    })
}
