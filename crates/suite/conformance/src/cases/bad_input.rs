//! What a correct consumer never passes (`NDKPI 5`, `7.3`).
//!
//! Whatever the provider answers: it fails the call or does what it can with it, and everything else goes on. What limits,
//! null lists and missing callbacks are about stands with the themes of the objects.

use core::fmt;

use ndkpi::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_WRITE, NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
    NDK_OP_FLAG_ALLOW_REMOTE_READ as REMOTE_READ, NDK_OP_FLAG_RDMA_READ_SINK,
    NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT as SOLICIT, NtStatus,
};

use super::common::{BASE, EVERYTHING, Fast, initiator_fails, must_fail, refused};
use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{Adapter, Buffer, PAGE, Pd, QpSizes, Remote, Session},
    fixture::{Pair, Plan},
};

pub const CASES: &[Case] = &[
    Case::new(
        "bad-input.no-mdl",
        "NDKPI 5.5",
        "Registers memory without an MDL.",
        "It fails, and the region can be registered after that. Open: the status.",
        no_mdl,
    ),
    Case::new(
        "bad-input.region-flags",
        "NDKPI 2.5",
        "Registers memory with flags that do not exist.",
        "Open: whether that fails. If not, it gives a peer no right.",
        region_flags,
    ),
    Case::new(
        "bad-input.half-of-remote-write",
        "NDKPI 2.5",
        "Registers memory with one of the two bits of remote write: the one that is not local write.",
        "Open: whether that fails. If not, a peer cannot write.",
        half_of_remote_write,
    ),
    Case::new(
        "bad-input.request-flags",
        "NDKPI 2.4",
        "Posts binds, fast registrations and invalidations with flags of other requests, and with such that do not exist.",
        "Open: the statuses. The queue pair goes on if the posts fail.",
        request_flags,
    ),
    Case::new(
        "bad-input.greatest-lengths",
        "NDKPI 5.2",
        "Maps, binds and fast-registers as many bytes as a length can say.",
        "It fails. Open: the statuses.",
        greatest_lengths,
    ),
    Case::new(
        "bad-input.receives-without-list",
        "NDKPI 7.3",
        "Posts receives and sends of as many elements as a number can say, without a list.",
        "They fail, and the queue pair goes on.",
        receives_without_list,
    ),
    Case::new(
        "bad-input.regions-of-another-adapter",
        "NDKPI 7.9",
        "Binds, fast-registers and invalidates with regions and windows of another adapter.",
        "It fails. Open: the statuses.",
        regions_of_another_adapter,
    ),
    Case::new(
        "bad-input.shared-queue-of-another-domain",
        "NDKPI 7.9",
        "Creates a queue pair with the shared receive queue of another adapter, and of another protection domain.",
        "The first fails. Open: the second.",
        shared_queue_of_another_domain,
    ),
    Case::new(
        "bad-input.token-of-nothing",
        "NDKPI 5.5",
        "Asks for the tokens of regions that are not registered, and of a window that is not bound; uses them.",
        "No token gives access to anything.",
        token_of_nothing,
    ),
];

/// Looks that the connection still works.
fn goes_on(pair: &Pair<'_>) -> Check {
    pair.deliver(0x600D, false)?;
    pair.b.receive_done(0x600D).map(|_| ())
}

/// A status, or that there was a success.
struct Answer(Result<NtStatus, NtStatus>);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(post) => write!(f, "{post} from the post"),
            Err(done) => write!(f, "{done}"),
        }
    }
}

/// Waits for the end of an initiator request of the passive side.
fn answer(pair: &Pair<'_>, post: NtStatus) -> Check<Answer> {
    if post != NtStatus::SUCCESS {
        refused("a post", post).map(|_| ())?;
        goes_on(pair)?;
        return Ok(Answer(Ok(post)));
    }
    Ok(Answer(Err(pair.b.initiated().take_one()?.status)))
}

fn no_mdl(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pd = s.adapter()?.create_pd()?;
    let mr = pd.core().create_mr(false)?;
    let status = refused("a registration of nothing", mr.core().register_nothing(PAGE, 0)?.wait()?)?;
    let empty = mr.core().register_nothing(0, 0)?.wait()?;
    if empty.is_success() {
        mr.core().deregister()?.succeeds()?;
    }
    mr.core().register(Buffer::new(s, PAGE)?, PAGE, 0)?.succeeds()?;
    observed!("{status}; with a length of 0: {empty}")
}

/// Registers memory with these flags. If that succeeds, a peer's `try` must fail.
fn strange_flags(s: &Session<'_>, flags: u32) -> Check<NtStatus> {
    let pair = Pair::new(s)?;
    let (buffer, mr) = (Buffer::new(s, PAGE)?, pair.b.pd.core().create_mr(false)?);
    buffer.fill(0, PAGE, 0xEE)?;
    let status = mr.core().register(buffer, PAGE, flags)?.wait()?;
    if status.is_success() {
        let remote = Remote { address: buffer.address(0), token: mr.remote_token()? };
        must_fail(&pair.a, 1, pair.a.qp.write(1, &[pair.a.region.element(0, 64)], remote, 0)?)?;
        buffer.is_filled(0, PAGE, 0xEE)?;
    } else {
        goes_on(&pair)?;
    }
    Ok(status)
}

fn region_flags(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let mut seen = [NtStatus::SUCCESS; 3];
    for (seen, flags) in seen.iter_mut().zip([0x10, 0x8000_0000, 0xFFFF_FFF0]) {
        *seen = strange_flags(s, flags)?;
    }
    observed!("{}, {}, {}", seen[0], seen[1], seen[2])
}

fn half_of_remote_write(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let status = strange_flags(s, NDK_MR_FLAG_ALLOW_REMOTE_WRITE & !NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
    observed!("{status}")
}

fn request_flags(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    let mw = pair.b.pd.core().create_mw()?;
    let (b, mr, address) = (&pair.b, pair.b.region.mr.core(), pair.b.region.address(0));
    let bind = answer(&pair, b.qp.bind(1, mr, mw.core(), address, 64, REMOTE_READ | NDK_OP_FLAG_RDMA_READ_SINK)?)?;
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 2, true)?;
    let register = answer(&pair, pair.b.qp.fast_register(2, fast.mr.core(), &fast.whole(EVERYTHING | SOLICIT)?)?)?;
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 2, true)?;
    fast.register_whole(&pair.b, EVERYTHING)?;
    let flags = NDK_OP_FLAG_ALLOW_LOCAL_WRITE | 0x8000_0000;
    let invalidate = answer(&pair, pair.b.qp.invalidate_mr(3, fast.mr.core(), flags)?)?;
    observed!("bind: {bind}, fast registration: {register}, invalidation: {invalidate}")
}

fn greatest_lengths(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let adapter = s.peer_adapter()?;
    let (pending, mapping) = adapter.build_lam(Buffer::new(s, PAGE)?, usize::MAX, 1)?;
    let map = pending.wait()?;
    if map.is_success() {
        mapping.release()?;
        fail!("a mapping of more bytes than there are succeeded");
    }
    let pair = Pair::new(s)?;
    let (mw, mr) = (pair.b.pd.core().create_mw()?, pair.b.region.mr.core());
    let post = pair.b.qp.bind(1, mr, mw.core(), pair.b.region.address(0), usize::MAX, REMOTE_READ)?;
    let bind = initiator_fails(&pair.b, 1, post)?;
    let pair = Pair::new(s)?;
    let fast = Fast::new(pair.b.pd.core(), 2, true)?;
    let mut what = fast.whole(EVERYTHING)?;
    what.length = usize::MAX;
    let register = initiator_fails(&pair.b, 1, pair.b.qp.fast_register(1, fast.mr.core(), &what)?)?;
    observed!("map: {map}, bind: {bind}, fast registration: {register}")
}

fn receives_without_list(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    for count in [1, 4, u32::MAX] {
        refused("a receive without a list", pair.b.qp.receive_nowhere(1, count)?).map(|_| ())?;
        refused("a send without a list", pair.a.qp.send_nowhere(1, count, 0)?).map(|_| ())?;
        goes_on(&pair)?;
    }
    HELD
}

fn other_adapter<'s>(s: &'s Session<'s>) -> Check<Adapter<'s>> {
    if s.peer_adapter()?.number() == 0 { s.second_adapter() } else { s.adapter() }
}

fn regions_of_another_adapter(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    s.need_one_machine()?;
    let there: Pd<'_> = other_adapter(s)?.create_pd()?;
    let foreign = Fast::new(there.core(), 2, true)?;
    let window = there.core().create_mw()?;
    let pair = Pair::new(s)?;
    let own = pair.b.pd.core().create_mw()?;
    let post = pair.b.qp.bind(1, foreign.mr.core(), own.core(), BASE, 64, REMOTE_READ)?;
    let region = initiator_fails(&pair.b, 1, post)?;
    let pair = Pair::new(s)?;
    let post = pair.b.qp.bind(1, pair.b.region.mr.core(), window.core(), pair.b.region.address(0), 64, REMOTE_READ)?;
    let to_window = initiator_fails(&pair.b, 1, post)?;
    let pair = Pair::new(s)?;
    let post = pair.b.qp.fast_register(1, foreign.mr.core(), &foreign.whole(EVERYTHING)?)?;
    let register = initiator_fails(&pair.b, 1, post)?;
    let pair = Pair::new(s)?;
    let invalidate = initiator_fails(&pair.b, 1, pair.b.qp.invalidate_mw(1, window.core(), 0)?)?;
    observed!("bind of a region: {region}, of a window: {to_window}; register: {register}, invalidate: {invalidate}")
}

fn shared_queue_of_another_domain(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    s.need_one_machine()?;
    let here = s.peer_adapter()?;
    if here.info().MaxSrqDepth == 0 {
        skip!("the adapter has no shared receive queues");
    }
    let pd = here.create_pd()?;
    let Ok(srq) = pd.core().try_create_srq(8, 1, 0, None, true)? else { skip!("there is no shared receive queue") };
    let mut seen = [NtStatus::SUCCESS; 2];
    for (seen, adapter) in seen.iter_mut().zip([other_adapter(s)?, here]) {
        let (pd, cq) = (adapter.create_pd()?, adapter.create_cq(16, None)?);
        let sizes = QpSizes { inline: 0, initiator_sge: 1, ..Plan::new().sizes }.within(adapter.info());
        if let Err(status) = pd.core().try_create_qp_with_srq(cq.core(), cq.core(), srq.core(), 0, sizes)? {
            *seen = status;
        }
    }
    refused("a queue pair with the shared queue of another adapter", seen[0]).map(|_| ())?;
    observed!("other adapter: {}, other domain: {}", seen[0], seen[1])
}

fn token_of_nothing(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    for round in 0..4 {
        let pair = Pair::new(s)?;
        let pd = pair.b.pd.core();
        let (normal, fast, mw) = (pd.create_mr(false)?, pd.create_mr(true)?, pd.create_mw()?);
        let token = match round {
            0 => normal.remote_token()?,
            1 => normal.local_token()?,
            2 => fast.remote_token()?,
            _ => mw.remote_token()?,
        };
        pair.b.region.buffer.fill(0, PAGE, 0xEE)?;
        let remote = Remote { token, ..pair.b.remote(0) };
        must_fail(&pair.a, 1, pair.a.qp.write(1, &[pair.a.region.element(0, 64)], remote, 0)?)?;
        pair.b.region.buffer.is_filled(0, PAGE, 0xEE)?;
    }
    HELD
}
