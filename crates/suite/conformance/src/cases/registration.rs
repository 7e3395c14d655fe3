//! Registering and deregistering memory (`NDKPI 5.5`, `7.4`).

use alloc::vec::Vec;

use ndkpi::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ as REMOTE_READ,
    NDK_OP_FLAG_ALLOW_REMOTE_READ, NtStatus,
};

use super::common::{must_fail, refused};
use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{ALL_RIGHTS, Buffer, PAGE, Region, Remote, Session},
    fixture::{Pair, Plan, posted},
    platform::Shape,
};

pub const CASES: &[Case] = &[
    Case::new(
        "registration.use",
        "NDKPI 7.4",
        "Registers memory, and sends, receives, writes and reads with its tokens.",
        "The tokens are valid as soon as the registration is complete; the bytes arrive.",
        use_it,
    ),
    Case::new(
        "registration.again",
        "NDKPI 5.5",
        "Registers and deregisters one region thirty times, with another buffer each time, and writes to it each time.",
        "All of it succeeds; the tokens name the buffer of the latest registration.",
        again,
    ),
    Case::new(
        "registration.many",
        "NDKPI 7.4",
        "Registers two hundred regions and writes to each of them.",
        "No two remote tokens are equal, nor two local ones; each write lands in its own buffer.",
        many,
    ),
    Case::new(
        "registration.overlapping",
        "NDKPI 7.4",
        "Registers one buffer twice, with and without the right of remote reads.",
        "Each token has the rights of its own registration.",
        overlapping,
    ),
    //= NDKPI 7.4.1
    Case::new(
        "registration.chain",
        "NDKPI 7.4",
        "Registers chains of MDLs of one page, three pages, and 4 KiB and a bit each, and writes across their ends.",
        "A chain is one range.",
        chain,
    ),
    Case::new(
        "registration.part-of-a-chain",
        "NDKPI 7.4",
        "Registers fewer bytes than a chain has: up to the end of the first MDL, and one byte more.",
        "It succeeds, and the last byte can be written.",
        part_of_a_chain,
    ),
    Case::new(
        "registration.not-contiguous",
        "NDKPI 5.5",
        "Registers a chain that leaves a page out.",
        "STATUS_INVALID_PARAMETER. The region can be registered with other memory after that.",
        not_contiguous,
    ),
    //= NDKPI 7.4.1
    Case::new(
        "registration.longer-than-the-memory",
        "NDKPI 7.4",
        "Registers one byte more than the MDLs have, twice as many, and as many as a length can say.",
        "It fails. Open: the statuses.",
        longer_than_the_memory,
    ),
    Case::new(
        "registration.no-bytes",
        "NDKPI 9",
        "Registers 0 bytes.",
        "Open: whether that succeeds. If so, no byte can be written.",
        no_bytes,
    ),
    Case::new(
        "registration.registered-twice",
        "NDKPI 7.4",
        "Registers a registered region.",
        "It fails, and the first registration is as it was. Open: the status.",
        registered_twice,
    ),
    //= NDKPI 7.4.3
    Case::new(
        "registration.not-registered",
        "NDKPI 7.4",
        "Deregisters a region that is not registered, or not any more.",
        "It fails. Open: the status.",
        not_registered,
    ),
    Case::new(
        "registration.wrong-kind",
        "NDKPI 5.3",
        "Registers and deregisters a region for fast registration; initialises one for normal registration.",
        "It fails. Open: the statuses.",
        wrong_kind,
    ),
    Case::new(
        "registration.deregistered-with-a-window",
        "NDKPI 9",
        "Deregisters a region that a window is bound to.",
        "Open: whether that succeeds. If so, the window gives access to nothing; if not, the window is as it was, and the \
         region can be deregistered after the window's invalidation.",
        deregistered_with_a_window,
    ),
    //= NDKPI 7.4.3
    Case::new(
        "registration.deregistered-under-load",
        "NDKPI 7.9",
        "Deregisters a region while a peer writes megabytes to it.",
        "No byte changes after the deregistration is complete.",
        deregistered_under_load,
    ),
    //= invariant 9
    Case::new(
        "registration.closed-under-load",
        "NDKPI 7.9",
        "Closes a region while a peer writes megabytes to it.",
        "The close completes, and no byte changes after that.",
        closed_under_load,
    ),
];

fn use_it(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (a, b) = (&pair.a, &pair.b);
    a.region.buffer.fill_pattern(0, 4096, 1)?;
    b.receive(1, 4096, 4096)?;
    a.send(2, 0, 4096, 0)?;
    a.initiator_done(2)?;
    b.receive_done(1)?;
    b.region.buffer.has_pattern(4096, 4096, 1)?;
    a.region.buffer.fill_pattern(0, 4096, 2)?;
    a.write(3, 0, 4096, b.remote(0), 0)?;
    a.initiator_done(3)?;
    b.region.buffer.has_pattern(0, 4096, 2)?;
    a.read(4, 4096, 4096, b.remote(4096), 0)?;
    a.initiator_done(4)?;
    a.region.buffer.has_pattern(4096, 4096, 1)?;
    HELD
}

fn again(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mr = pair.b.pd.core().create_mr(false)?;
    for round in 0..30_u8 {
        let buffer = Buffer::new(s, 256)?;
        buffer.fill(0, 256, 0xEE)?;
        mr.core().register(buffer, 256, ALL_RIGHTS)?.succeeds()?;
        let remote = Remote { address: buffer.address(0), token: mr.remote_token()? };
        pair.a.region.buffer.fill_pattern(0, 256, round)?;
        pair.a.write(1, 0, 256, remote, 0)?;
        pair.a.initiator_done(1)?;
        buffer.has_pattern(0, 256, round)?;
        let local = buffer.element(0, 256, mr.local_token()?);
        pair.a.receive(2, 4096, 256)?;
        posted("NdkSend", pair.b.qp.send(3, &[local], 0)?)?;
        pair.b.initiator_done(3)?;
        pair.a.receive_done(2)?;
        pair.a.region.buffer.has_pattern(4096, 256, round)?;
        mr.core().deregister()?.succeeds()?;
    }
    HELD
}

fn no_memory<T>(_: T) -> Stop {
    Stop::inconclusive(format_args!("no memory for the case"))
}

fn many(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let mut regions: Vec<Region<'_>> = Vec::new();
    regions.try_reserve(200).map_err(no_memory)?;
    for number in 0..200 {
        let region = Region::new(pair.b.pd.core(), 64, ALL_RIGHTS)?;
        for (other, earlier) in regions.iter().enumerate() {
            ensure!(region.remote() != earlier.remote(), "regions {other} and {number} have one remote token");
            ensure!(region.local() != earlier.local(), "regions {other} and {number} have one local token");
        }
        regions.push(region);
    }
    for (seed, region) in (0..).zip(&regions) {
        pair.a.region.buffer.fill_pattern(0, 64, seed)?;
        pair.a.write(1, 0, 64, Remote { address: region.address(0), token: region.remote() }, 0)?;
        pair.a.initiator_done(1)?;
    }
    for (seed, region) in (0..).zip(&regions) {
        region.buffer.has_pattern(0, 64, seed)?;
    }
    HELD
}

fn overlapping(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let buffer = Buffer::new(s, PAGE)?;
    let open = Region::of(pair.b.pd.core(), buffer, PAGE, REMOTE_READ)?;
    let shut = Region::of(pair.b.pd.core(), buffer, PAGE, LOCAL_WRITE)?;
    buffer.fill_pattern(0, 64, 1)?;
    pair.a.read(1, 0, 64, Remote { address: buffer.address(0), token: open.remote() }, 0)?;
    pair.a.initiator_done(1)?;
    pair.a.region.buffer.has_pattern(0, 64, 1)?;
    let element = pair.a.region.element(0, 64);
    let remote = Remote { address: buffer.address(0), token: shut.remote() };
    must_fail(&pair.a, 2, pair.a.qp.read(2, &[element], remote, 0)?)?;
    HELD
}

fn chain(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for piece in [PAGE, 3 * PAGE, PAGE + 64] {
        let length = 5 * PAGE + 100;
        let Ok(buffer) = Buffer::with_shape(s, Shape::Chained(piece), length) else { continue };
        let region = Region::of(pair.b.pd.core(), buffer, length, ALL_RIGHTS)?;
        buffer.fill(0, length, 0xEE)?;
        for end in (piece..length).step_by(piece) {
            let start = end - 30;
            pair.a.region.buffer.fill_pattern(0, 60, 7)?;
            let remote = Remote { address: region.address(0) + start as u64, token: region.remote() };
            pair.a.write(1, 0, 60, remote, 0)?;
            pair.a.initiator_done(1)?;
            buffer.has_pattern(start, 60, 7)?;
            buffer.is_filled(start - 30, 30, 0xEE)?;
            buffer.is_filled(start + 60, 30.min(length - start - 60), 0xEE)?;
        }
    }
    HELD
}

fn part_of_a_chain(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for length in [PAGE, PAGE + 1] {
        let buffer = Buffer::with_shape(s, Shape::Chained(PAGE), 3 * PAGE)?;
        let region = Region::of(pair.b.pd.core(), buffer, length, ALL_RIGHTS)?;
        pair.a.region.buffer.fill(0, 1, 0x5A)?;
        let remote = Remote { address: region.address(0) + length as u64 - 1, token: region.remote() };
        pair.a.write(1, 0, 1, remote, 0)?;
        pair.a.initiator_done(1)?;
        buffer.is_filled(length - 1, 1, 0x5A)?;
    }
    HELD
}

fn not_contiguous(s: &Session<'_>) -> Verdict {
    let pd = s.adapter()?.create_pd()?;
    let gap = Buffer::with_shape(s, Shape::Gap, 3 * PAGE)?;
    let mr = pd.core().create_mr(false)?;
    mr.core().register(gap, 3 * PAGE, LOCAL_WRITE)?.ends_with(NtStatus::INVALID_PARAMETER)?;
    mr.core().register(Buffer::new(s, PAGE)?, PAGE, LOCAL_WRITE)?.succeeds()?;
    mr.core().deregister()?.succeeds()?;
    HELD
}

fn longer_than_the_memory(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pd = s.adapter()?.create_pd()?;
    let mr = pd.core().create_mr(false)?;
    let buffer = Buffer::new(s, PAGE)?;
    let mut seen = [NtStatus::SUCCESS; 3];
    for (seen, length) in seen.iter_mut().zip([PAGE + 1, 2 * PAGE, usize::MAX]) {
        *seen = refused("a registration of more bytes than there are", mr.core().register(buffer, length, 0)?.wait()?)?;
    }
    mr.core().register(buffer, PAGE, 0)?.succeeds()?;
    observed!("{}, {}, {}", seen[0], seen[1], seen[2])
}

fn no_bytes(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (buffer, mr) = (Buffer::new(s, PAGE)?, pair.b.pd.core().create_mr(false)?);
    buffer.fill(0, PAGE, 0xEE)?;
    let status = mr.core().register(buffer, 0, ALL_RIGHTS)?.wait()?;
    if !status.is_success() {
        return observed!("{status}");
    }
    let remote = Remote { address: buffer.address(0), token: mr.remote_token()? };
    let post = pair.a.qp.write(1, &[pair.a.region.element(0, 1)], remote, 0)?;
    must_fail(&pair.a, 1, post)?;
    buffer.is_filled(0, PAGE, 0xEE)?;
    mr.core().deregister()?.succeeds()?;
    observed!("{status}")
}

fn registered_twice(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    let (remote, mr) = (pair.b.remote(0), pair.b.region.mr.core());
    let status = refused("a second registration", mr.register(Buffer::new(s, PAGE)?, PAGE, ALL_RIGHTS)?.wait()?)?;
    ensure_eq!(pair.b.region.mr.remote_token()?, remote.token, "remote token after a registration that failed");
    pair.a.region.buffer.fill_pattern(0, 64, 3)?;
    pair.a.write(1, 0, 64, remote, 0)?;
    pair.a.initiator_done(1)?;
    pair.b.region.buffer.has_pattern(0, 64, 3)?;
    observed!("{status}")
}

fn not_registered(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pd = s.adapter()?.create_pd()?;
    let mr = pd.core().create_mr(false)?;
    let first = refused("a deregistration before any registration", mr.core().deregister()?.wait()?)?;
    mr.core().register(Buffer::new(s, PAGE)?, PAGE, 0)?.succeeds()?;
    mr.core().deregister()?.succeeds()?;
    let second = refused("a second deregistration", mr.core().deregister()?.wait()?)?;
    observed!("never registered: {first}, not any more: {second}")
}

fn wrong_kind(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pd = s.adapter()?.create_pd()?;
    let (fast, normal) = (pd.core().create_mr(true)?, pd.core().create_mr(false)?);
    let buffer = Buffer::new(s, PAGE)?;
    let register = refused("NdkRegisterMr of the wrong kind", fast.core().register(buffer, PAGE, 0)?.wait()?)?;
    let deregister = refused("NdkDeregisterMr of the wrong kind", fast.core().deregister()?.wait()?)?;
    let initialize =
        refused("NdkInitializeFastRegisterMr of the wrong kind", normal.core().initialize(4, false)?.wait()?)?;
    fast.core().initialize(4, false)?.succeeds()?;
    normal.core().register(buffer, PAGE, 0)?.succeeds()?;
    normal.core().deregister()?.succeeds()?;
    observed!("register: {register}, deregister: {deregister}, initialise: {initialize}")
}

fn deregistered_with_a_window(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    let (b, mw) = (&pair.b, pair.b.pd.core().create_mw()?);
    let mr = b.region.mr.core();
    let bind = b.qp.bind(1, mr, mw.core(), b.region.address(0), 64, NDK_OP_FLAG_ALLOW_REMOTE_READ)?;
    posted("NdkBind", bind)?;
    b.initiator_done(1)?;
    b.region.buffer.fill_pattern(0, 64, 4)?;
    let status = mr.deregister()?.wait()?;
    let remote = Remote { address: b.region.address(0), token: mw.remote_token()? };
    let element = pair.a.region.element(0, 64);
    if status.is_success() {
        must_fail(&pair.a, 2, pair.a.qp.read(2, &[element], remote, 0)?)?;
        return observed!("{status}");
    }
    pair.a.read(2, 0, 64, remote, 0)?;
    pair.a.initiator_done(2)?;
    pair.a.region.buffer.has_pattern(0, 64, 4)?;
    posted("NdkInvalidate", b.qp.invalidate_mw(3, mw.core(), 0)?)?;
    b.initiator_done(3)?;
    mr.deregister()?.succeeds()?;
    observed!("{status}")
}

/// Writes to the passive side's region from now on, and `end`s its registration; then looks that nothing writes any more.
fn ends_under_load<'s>(s: &'s Session<'s>, end: impl FnOnce(&mut Option<Region<'s>>) -> Check) -> Verdict {
    let pair = Pair::with(s, &Plan { bytes: LOAD, ..Plan::new() }, &Plan::new())?;
    let region = Region::new(pair.b.pd.core(), LOAD, ALL_RIGHTS)?;
    let (buffer, remote) = (region.buffer, Remote { address: region.address(0), token: region.remote() });
    let mut region = Some(region);
    under_load(s, &pair, buffer, remote, || end(&mut region))
}

/// Bytes of one write of [`under_load`], and of the memory that it is about.
///
/// No power of two: a provider that works in steps of such sizes is to be met in the middle of a write.
pub const LOAD: usize = LOAD_BYTES as usize;
const LOAD_BYTES: u32 = 5 << 18;

/// Writes megabytes from the active side, ends the access of peers to `buffer` by `end` meanwhile, and looks that no byte
/// changes after that.
pub fn under_load(
    s: &Session<'_>,
    pair: &Pair<'_>,
    buffer: &Buffer,
    remote: Remote,
    end: impl FnOnce() -> Check,
) -> Verdict {
    const LENGTH: usize = LOAD;
    buffer.fill(0, LENGTH, 0)?;
    pair.a.region.buffer.fill(0, LENGTH, 0xAA)?;
    for number in 0..16 {
        pair.a.write(number, 0, LOAD_BYTES, remote, 0)?;
    }
    // The end is to come in the middle of a write. When that is depends on what the provider does in one go, so it is tried when
    // the first bytes have arrived and, as often, at once.
    if s.random().chance(50) {
        s.platform().dwell(&|| buffer.holds(0, 0) != Ok(true));
    }
    end()?;
    buffer.fill(0, LENGTH, 0x55)?;
    let done = pair.a.initiated().take(16)?;
    s.settle();
    buffer.is_filled(0, LENGTH, 0x55)?;
    let mut failed = false;
    for done in done {
        let succeeds = done.status.is_success();
        ensure!(!(failed && succeeds), "a write succeeded after one that failed: {done:?}");
        failed |= !succeeds;
    }
    HELD
}

fn deregistered_under_load(s: &Session<'_>) -> Verdict {
    ends_under_load(s, |region| {
        let Some(region) = region else { return Ok(()) };
        region.mr.core().deregister()?.succeeds()
    })
}

fn closed_under_load(s: &Session<'_>) -> Verdict {
    ends_under_load(s, |region| {
        let Some(region) = region.take() else { return Ok(()) };
        region.mr.close().map(|_| ())
    })
}
