//! Fast registration (`NDKPI 7.4`).

use alloc::vec::Vec;

use ndkpi::{
    NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED as LOCAL_INVALIDATE, NDK_LOGICAL_ADDRESS,
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE as LOCAL_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_READ as REMOTE_READ,
    NDK_OP_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE as INVALIDATE_SINK,
    NDK_OP_FLAG_RDMA_READ_SINK as READ_SINK, NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NDK_OPERATION_TYPE as Type,
    NDK_VERSION, NtStatus,
};

use super::{
    common::send_token,
    logical::map,
    registration::{LOAD, under_load},
};
use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{Adapter, Buffer, FastRegistration, Mapping, Mr, PAGE, Remote, Session},
    fixture::{Pair, Plan, QP_A, QP_B, Side, Terms, posted},
};

pub const CASES: &[Case] = &[
    Case::new(
        "fast.register-use-invalidate",
        "NDKPI 7.4",
        "Fast-registers a buffer, lets the peer write to it, invalidates it; thirty times with other buffers.",
        "It works each time, with the token read after each registration.",
        register_use_invalidate,
    ),
    //= NDKPI 7.4.4
    Case::new(
        "fast.token-is-valid-at-return",
        "NDKPI 7.4",
        "Posts a silent fast registration and sends its token in the next request, without waiting.",
        "The peer can write with it as soon as it has the message.",
        token_is_valid_at_return,
    ),
    Case::new(
        "fast.local-use",
        "NDKPI 7.4",
        "Receives into and sends from a fast-registered region.",
        "The bytes arrive.",
        local_use,
    ),
    Case::new(
        "fast.pages-in-any-order",
        "NDKPI 7.4",
        "Registers the pages of a buffer in reverse order.",
        "The bytes lie where the order of the pages puts them.",
        pages_in_any_order,
    ),
    Case::new(
        "fast.range",
        "NDKPI 7.4",
        "Writes exactly to the first and last bytes of a registration that begins and ends inside pages, then one byte beside.",
        "The first writes work; the others fail, and no byte moves.",
        range,
    ),
    Case::new(
        "fast.rights",
        "NDKPI 2.4",
        "Registers with every set of rights and reads and writes remotely.",
        "What was not granted fails.",
        rights,
    ),
    //= NDKPI 7.4.5
    Case::new(
        "fast.remote-rights-need-initialisation",
        "NDKPI 7.4",
        "Asks for remote rights on a region that was initialised without remote access.",
        "STATUS_ACCESS_VIOLATION inline.",
        remote_rights_need_initialisation,
    ),
    Case::new(
        "fast.page-count-unsupported",
        "NDKPI 5.5",
        "Initialises for FRMRPageCount pages, and for as many as there can be.",
        "The first succeeds, the second gets STATUS_IMPLEMENTATION_LIMIT.",
        page_count_unsupported,
    ),
    //= NDKPI 7.4.6
    Case::new(
        "fast.bad-arithmetic",
        "NDKPI 7.4",
        "Registers more pages than initialised for, an offset of a page, more bytes than the pages hold, a base that does not \
         match the offset.",
        "None is posted. Open: the statuses.",
        bad_arithmetic,
    ),
    //= NDKPI 7.4.6
    Case::new(
        "fast.base-of-zero",
        "NDKPI 7.4",
        "Registers at the base address 0 with the offset 0.",
        "It works: the peer writes at address 0 and on.",
        base_of_zero,
    ),
    Case::new(
        "fast.completion-types",
        "NDKPI 2.2",
        "Looks at the completions of a fast registration and an invalidation.",
        "They have their types.",
        completion_types,
    ),
    Case::new(
        "fast.invalidated-token",
        "NDKPI 7.6",
        "Lets the peer write with a token that was invalidated.",
        "It fails, and no byte moves.",
        invalidated_token,
    ),
    //= NDKPI 7.6.3
    Case::new(
        "fast.invalidate-twice",
        "NDKPI 9",
        "Invalidates twice.",
        "The second fails. Open: how.",
        invalidate_twice,
    ),
    Case::new(
        "fast.register-twice",
        "NDKPI 9",
        "Fast-registers again without an invalidation in between.",
        "Open: what happens.",
        register_twice,
    ),
    //= NDKPI 7.3.9
    Case::new(
        "fast.read-and-invalidate",
        "NDKPI 7.3",
        "Reads into a fast-registered region with the flag that invalidates the token of the first element.",
        "With the adapter flag the region can be registered again at once; without it the request flag is ignored.",
        read_and_invalidate,
    ),
    //= NDKPI 7.6.3
    Case::new(
        "fast.invalidate-a-plain-region",
        "NDKPI 7.6",
        "Invalidates a region that was registered plainly.",
        "It fails. Open: how.",
        invalidate_a_plain_region,
    ),
    Case::new(
        "fast.largest",
        "NDKPI 3.11",
        "Registers FRMRPageCount pages at once and writes to the last byte.",
        "It works.",
        largest,
    ),
    Case::new(
        "fast.invalidated-under-load",
        "NDKPI 7.6",
        "Invalidates a fast-registered region over another connection while a peer writes megabytes to it.",
        "No byte changes after the invalidation is complete.",
        invalidated_under_load,
    ),
    Case::new(
        "fast.closed-under-load",
        "NDKPI 7.9",
        "Closes a fast-registered region while a peer writes megabytes to it.",
        "The close completes, and no byte changes after that.",
        closed_under_load,
    ),
];

/// A fast-register region of a side, a mapped buffer for it, and how it is registered.
pub struct Fast<'s> {
    pub mr: Mr<'s>,
    pub buffer: &'s Buffer,
    pub mapping: &'s Mapping<'s>,
}

impl<'s> Fast<'s> {
    /// A region for the pages of a new buffer.
    pub fn new(adapter: &Adapter<'s>, side: &Side<'s>, pages: u32, remote: bool) -> Check<Self> {
        let mr = side.pd.core().create_mr(true)?;
        mr.core().initialize(pages, remote)?.succeeds()?;
        let buffer = Buffer::new(adapter.session(), pages as usize * PAGE)?;
        Ok(Self { mr, buffer, mapping: map(adapter, buffer)? })
    }

    /// All bytes of the buffer, at its own address.
    pub fn all(&self, flags: u32) -> Check<FastRegistration<'_>> {
        Ok(FastRegistration {
            pages: self.mapping.pages()?,
            offset: self.mapping.offset(),
            length: self.buffer.length(),
            base: self.buffer.address(0),
            flags,
        })
    }

    /// Posts the registration of all bytes and waits for its completion.
    pub fn register(&self, side: &Side<'s>, flags: u32) -> Check {
        posted("NdkFastRegister", side.qp.fast_register(0xFA, self.mr.core(), &self.all(flags)?)?)?;
        side.initiator_done(0xFA).map(|_| ())
    }

    /// Posts the invalidation and waits for its completion.
    pub fn invalidate(&self, side: &Side<'s>) -> Check {
        posted("NdkInvalidate", side.qp.invalidate_mr(0xFB, self.mr.core(), 0)?)?;
        side.initiator_done(0xFB).map(|_| ())
    }

    /// A byte of the region, for the peer.
    pub fn remote(&self, offset: isize) -> Check<Remote> {
        Ok(Remote { address: self.buffer.address(offset), token: self.mr.remote_token()? })
    }
}

const BOTH: u32 = REMOTE_READ | REMOTE_WRITE;

/// A region of the passive side.
fn there<'s>(s: &'s Session<'s>, pair: &Pair<'s>, pages: u32) -> Check<Fast<'s>> {
    Fast::new(&s.peer_adapter()?, &pair.b, pages, true)
}

/// How a write of the active side ends.
pub fn write(pair: &Pair<'_>, remote: Remote, length: u32) -> Check<NtStatus> {
    let status = pair.a.qp.write(7, &[pair.a.region.element(0, length)], remote, 0)?;
    if status.is_success() { Ok(pair.a.initiated().take_one()?.status) } else { Ok(status) }
}

/// How a read of the active side ends.
pub fn read(pair: &Pair<'_>, remote: Remote, length: u32) -> Check<NtStatus> {
    let status = pair.a.qp.read(8, &[pair.a.region.element(0, length)], remote, 0)?;
    if status.is_success() { Ok(pair.a.initiated().take_one()?.status) } else { Ok(status) }
}

fn register_use_invalidate(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 2)?;
    let others = [fast.buffer, Buffer::new(s, 2 * PAGE)?, Buffer::new(s, 2 * PAGE)?];
    for round in 0..30_u8 {
        let buffer = others[usize::from(round) % 3];
        let mapping = map(&s.peer_adapter()?, buffer)?;
        let registration = FastRegistration {
            pages: mapping.pages()?,
            offset: mapping.offset(),
            length: buffer.length(),
            base: buffer.address(0),
            flags: BOTH,
        };
        posted("NdkFastRegister", pair.b.qp.fast_register(1, fast.mr.core(), &registration)?)?;
        pair.b.initiator_done(1)?;
        pair.a.region.buffer.fill_pattern(0, 200, round)?;
        let remote = Remote { address: buffer.address(PAGE as isize - 100), token: fast.mr.remote_token()? };
        ensure_eq!(write(&pair, remote, 200)?, NtStatus::SUCCESS, "a write to a fast-registered region");
        buffer.has_pattern(PAGE - 100, 200, round)?;
        fast.invalidate(&pair.b)?;
        mapping.release()?;
    }
    fast.mapping.release()?;
    HELD
}

fn token_is_valid_at_return(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 1)?;
    for round in 0..30_u8 {
        pair.a.receive(1, 0, 64)?;
        let qp = &pair.b.qp;
        posted("NdkFastRegister", qp.fast_register(2, fast.mr.core(), &fast.all(BOTH | SILENT)?)?)?;
        let remote = fast.remote(0)?;
        send_token(s, &pair.b, 3, remote.token)?;
        pair.a.receive_done(1)?;
        let mut token = [0; 4];
        pair.a.region.buffer.read(0, &mut token)?;
        pair.a.region.buffer.fill_pattern(0, 64, round)?;
        let remote = Remote { token: u32::from_ne_bytes(token), ..remote };
        ensure_eq!(write(&pair, remote, 64)?, NtStatus::SUCCESS, "a write with the token of the message");
        fast.buffer.has_pattern(0, 64, round)?;
        pair.b.initiator_done(3)?;
        fast.invalidate(&pair.b)?;
    }
    HELD
}

fn local_use(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 2)?;
    fast.register(&pair.b, LOCAL_WRITE)?;
    let token = fast.mr.local_token()?;
    pair.a.region.buffer.fill_pattern(0, 3000, 1)?;
    posted("NdkReceive", pair.b.qp.receive(1, &[fast.buffer.element(2000, 3000, token)])?)?;
    pair.a.send(1, 0, 3000, 0)?;
    pair.a.initiator_done(1)?;
    pair.b.receive_done(1)?;
    fast.buffer.has_pattern(2000, 3000, 1)?;
    pair.a.region.buffer.fill(0, 8192, 0)?;
    pair.a.receive(2, 0, 4096)?;
    posted("NdkSend", pair.b.qp.send(2, &[fast.buffer.element(2000, 3000, token)], 0)?)?;
    pair.b.initiator_done(2)?;
    pair.a.receive_done(2)?;
    pair.a.region.buffer.has_pattern(0, 3000, 1)?;
    HELD
}

fn pages_in_any_order(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 2)?;
    let pages = fast.mapping.pages()?;
    if fast.mapping.offset() != 0 {
        skip!("the buffer does not begin with a page");
    }
    let reversed = [pages[1], pages[0]];
    let registration = FastRegistration { pages: &reversed, ..fast.all(BOTH)? };
    posted("NdkFastRegister", pair.b.qp.fast_register(1, fast.mr.core(), &registration)?)?;
    pair.b.initiator_done(1)?;
    pair.a.region.buffer.fill_pattern(0, 2 * PAGE, 5)?;
    ensure_eq!(write(&pair, fast.remote(0)?, 2 * PAGE as u32)?, NtStatus::SUCCESS, "a write over both pages");
    let expected = pair.a.region.buffer.bytes(0, 2 * PAGE)?;
    let seen = fast.buffer.bytes(0, 2 * PAGE)?;
    ensure!(
        seen[..PAGE] == expected[PAGE..] && seen[PAGE..] == expected[..PAGE],
        "the bytes do not lie where the order of the pages puts them"
    );
    HELD
}

/// A registration of 5000 bytes from byte 1000 of the first page on.
fn inner<'f>(fast: &'f Fast<'_>, flags: u32) -> Check<FastRegistration<'f>> {
    Ok(FastRegistration { offset: 1000, length: 5000, base: fast.buffer.address(1000), ..fast.all(flags)? })
}

fn range(s: &Session<'_>) -> Verdict {
    for (offset, length, works) in [
        (1000, 1, true),
        (5999, 1, true),
        (1000, 5000, true),
        (999, 1, false),
        (999, 2, false),
        (6000, 1, false),
        (5999, 2, false),
    ] {
        let pair = Pair::new(s)?;
        let fast = there(s, &pair, 2)?;
        if fast.mapping.offset() != 0 {
            skip!("the buffer does not begin with a page");
        }
        fast.buffer.fill(0, 2 * PAGE, 0xEE)?;
        posted("NdkFastRegister", pair.b.qp.fast_register(1, fast.mr.core(), &inner(&fast, BOTH)?)?)?;
        pair.b.initiator_done(1)?;
        let status = write(&pair, fast.remote(offset)?, length)?;
        if works {
            ensure_eq!(status, NtStatus::SUCCESS, "a write of {length} bytes at {offset} of 1000 to 5999");
        } else {
            ensure!(!status.is_success(), "a write of {length} bytes at {offset} of 1000 to 5999 succeeded");
            s.settle();
            fast.buffer.is_filled(0, 2 * PAGE, 0xEE)?;
        }
    }
    HELD
}

fn rights(s: &Session<'_>) -> Verdict {
    for flags in [0, LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, BOTH, BOTH | READ_SINK] {
        for is_read in [false, true] {
            let pair = Pair::new(s)?;
            let fast = there(s, &pair, 1)?;
            fast.buffer.fill(0, 64, 0xEE)?;
            fast.register(&pair.b, flags)?;
            let granted = if is_read { flags & REMOTE_READ != 0 } else { flags & REMOTE_WRITE == REMOTE_WRITE };
            let remote = fast.remote(0)?;
            let status = if is_read { read(&pair, remote, 64)? } else { write(&pair, remote, 64)? };
            let what = if is_read { "read" } else { "write" };
            if granted {
                ensure_eq!(status, NtStatus::SUCCESS, "a remote {what} with the rights {flags:#x}");
            } else {
                ensure!(!status.is_success(), "a remote {what} with the rights {flags:#x} succeeded");
                s.settle();
                fast.buffer.is_filled(0, 64, 0xEE)?;
            }
        }
    }
    HELD
}

fn remote_rights_need_initialisation(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = Fast::new(&s.peer_adapter()?, &pair.b, 1, false)?;
    for flags in [REMOTE_READ, REMOTE_WRITE, BOTH] {
        let status = pair.b.qp.fast_register(1, fast.mr.core(), &fast.all(flags)?)?;
        ensure_eq!(status, NtStatus::ACCESS_VIOLATION, "NdkFastRegister with the rights {flags:#x}");
    }
    fast.register(&pair.b, LOCAL_WRITE)?;
    HELD
}

fn page_count_unsupported(s: &Session<'_>) -> Verdict {
    let pd = s.adapter()?.create_pd()?;
    let count = s.info()?.FRMRPageCount;
    ensure!(count >= 16, "FRMRPageCount is {count}, less than 16 (NDKPI 3.11)");
    let fits = pd.core().create_mr(true)?;
    fits.core().initialize(count, true)?.succeeds()?;
    let mr = pd.core().create_mr(true)?;
    mr.core().initialize(u32::MAX, true)?.ends_with(NtStatus::IMPLEMENTATION_LIMIT)?;
    mr.core().initialize(1, true)?.succeeds()?;
    HELD
}

fn bad_arithmetic(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 2)?;
    let pages = fast.mapping.pages()?;
    let three = [pages[0], pages[1], pages[0]];
    let all = fast.all(BOTH)?;
    let off_page = [NDK_LOGICAL_ADDRESS::from_bits(pages[0].to_bits() + 1), pages[1]];
    let wrong = [
        ("three pages in a region for two", FastRegistration { pages: &three, ..all }),
        ("an offset of a page", FastRegistration { offset: PAGE as u32, length: 10, base: all.base, ..all }),
        ("one byte more than the pages hold", FastRegistration { length: 2 * PAGE + 1, ..all }),
        (
            "more bytes than the pages hold behind the offset",
            FastRegistration { offset: 1, length: 2 * PAGE, base: all.base + 1, ..all },
        ),
        ("a base that does not match the offset", FastRegistration { length: 100, base: all.base + 1, ..all }),
        ("a page that is not page-aligned", FastRegistration { pages: &off_page, ..all }),
        ("as many bytes as there can be", FastRegistration { length: usize::MAX, ..all }),
    ];
    let mut first = NtStatus::SUCCESS;
    for (what, registration) in wrong {
        let status = pair.b.qp.fast_register(1, fast.mr.core(), &registration)?;
        ensure!(!status.is_success(), "a fast registration with {what} was posted");
        first = status;
    }
    fast.register(&pair.b, BOTH)?;
    observed!("the last gets {first}")
}

fn base_of_zero(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 1)?;
    let registration = FastRegistration { offset: 0, base: 0, ..fast.all(BOTH)? };
    posted("NdkFastRegister", pair.b.qp.fast_register(1, fast.mr.core(), &registration)?)?;
    pair.b.initiator_done(1)?;
    pair.a.region.buffer.fill_pattern(0, 100, 2)?;
    let remote = Remote { address: 10, token: fast.mr.remote_token()? };
    ensure_eq!(write(&pair, remote, 100)?, NtStatus::SUCCESS, "a write at address 10 of a region at 0");
    fast.buffer.has_pattern(10, 100, 2)?;
    HELD
}

fn completion_types(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 1)?;
    posted("NdkFastRegister", pair.b.qp.fast_register(1, fast.mr.core(), &fast.all(BOTH)?)?)?;
    ensure_eq!(pair.b.initiator_done(1)?.kind, Some(Type::FAST_REGISTER), "type of a fast registration");
    posted("NdkInvalidate", pair.b.qp.invalidate_mr(2, fast.mr.core(), 0)?)?;
    ensure_eq!(pair.b.initiator_done(2)?.kind, Some(Type::INVALIDATE), "type of an invalidation");
    HELD
}

fn invalidated_token(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 1)?;
    fast.buffer.fill(0, 64, 0xEE)?;
    fast.register(&pair.b, BOTH)?;
    let remote = fast.remote(0)?;
    fast.invalidate(&pair.b)?;
    let status = write(&pair, remote, 64)?;
    ensure!(!status.is_success(), "a write with an invalidated token succeeded");
    s.settle();
    fast.buffer.is_filled(0, 64, 0xEE)?;
    HELD
}

fn invalidate_twice(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 1)?;
    fast.register(&pair.b, BOTH)?;
    fast.invalidate(&pair.b)?;
    let status = pair.b.qp.invalidate_mr(1, fast.mr.core(), 0)?;
    if !status.is_success() {
        return observed!("inline {status}");
    }
    let done = pair.b.initiated().take_one()?;
    ensure!(!done.status.is_success(), "a second invalidation succeeded");
    observed!("by completion {}", done.status)
}

fn register_twice(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let fast = there(s, &pair, 1)?;
    fast.register(&pair.b, BOTH)?;
    let status = pair.b.qp.fast_register(1, fast.mr.core(), &fast.all(BOTH)?)?;
    if !status.is_success() {
        return observed!("inline {status}");
    }
    observed!("by completion {}", pair.b.initiated().take_one()?.status)
}

fn read_and_invalidate(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let fast = Fast::new(&s.adapter()?, &pair.a, 1, false)?;
    let works = s.adapter()?.has(LOCAL_INVALIDATE);
    pair.b.region.buffer.fill_pattern(0, 64, 9)?;
    for _ in 0..10 {
        fast.buffer.fill(0, 64, 0)?;
        fast.register(&pair.a, LOCAL_WRITE | READ_SINK)?;
        let sink = [fast.buffer.element(0, 64, fast.mr.local_token()?)];
        posted("NdkRead", pair.a.qp.read(1, &sink, pair.b.remote(0), INVALIDATE_SINK)?)?;
        pair.a.initiator_done(1)?;
        fast.buffer.has_pattern(0, 64, 9)?;
        if !works {
            fast.invalidate(&pair.a)?;
        }
    }
    if !works {
        return HELD;
    }
    // The token is dead already, so it cannot be invalidated again.
    fast.register(&pair.a, LOCAL_WRITE | READ_SINK)?;
    let sink = [fast.buffer.element(0, 64, fast.mr.local_token()?)];
    posted("NdkRead", pair.a.qp.read(2, &sink, pair.b.remote(0), INVALIDATE_SINK)?)?;
    pair.a.initiator_done(2)?;
    let status = pair.a.qp.invalidate_mr(3, fast.mr.core(), 0)?;
    let status = if status.is_success() { pair.a.initiated().take_one()?.status } else { status };
    ensure!(!status.is_success(), "a token that a read has invalidated was invalidated again");
    HELD
}

fn invalidate_a_plain_region(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    let status = pair.b.qp.invalidate_mr(1, pair.b.region.mr.core(), 0)?;
    let (how, status) = match status.is_success() {
        true => ("by completion", pair.b.initiated().take_one()?.status),
        false => ("inline", status),
    };
    ensure!(!status.is_success(), "a plainly registered region was invalidated");
    observed!("{how} {status}")
}

fn largest(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let count = s.peer_adapter()?.info().FRMRPageCount;
    if count > 8192 {
        skip!("FRMRPageCount is {count}, more than the case has memory for");
    }
    let fast = there(s, &pair, count)?;
    let mut pages = Vec::new();
    pages.try_reserve(count as usize).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))?;
    pages.extend_from_slice(fast.mapping.pages()?);
    pages.truncate(count as usize);
    let length = pages.len() * PAGE - fast.mapping.offset() as usize;
    let registration = FastRegistration { pages: &pages, length: length.min(fast.buffer.length()), ..fast.all(BOTH)? };
    posted("NdkFastRegister", pair.b.qp.fast_register(1, fast.mr.core(), &registration)?)?;
    pair.b.initiator_done(1)?;
    pair.a.region.buffer.fill(0, 1, 0x77)?;
    let last = registration.length - 1;
    ensure_eq!(write(&pair, fast.remote(last as isize)?, 1)?, NtStatus::SUCCESS, "a write to the last byte");
    fast.buffer.is_filled(last, 1, 0x77)?;
    HELD
}

/// A pair whose passive side has fast-registered as many bytes as [`under_load`] needs.
pub fn loaded<'s>(s: &'s Session<'s>) -> Check<(Pair<'s>, Fast<'s>)> {
    let pair = Pair::with(s, &Plan { bytes: LOAD, ..Plan::new() }, &Plan::new())?;
    let pages = u32::try_from(LOAD / PAGE).unwrap_or(u32::MAX);
    if s.peer_adapter()?.info().FRMRPageCount < pages {
        skip!("FRMRPageCount is below {pages}");
    }
    let fast = there(s, &pair, pages)?;
    fast.register(&pair.b, BOTH)?;
    Ok((pair, fast))
}

/// Another connection of the passive side's protection domain. The write that fails ends its own, so what ends the access of
/// peers goes over this one.
pub fn beside<'s>(s: &'s Session<'s>, pair: &Pair<'s>) -> Check<Pair<'s>> {
    let mut other = Side::new(&s.peer_adapter()?, &Plan::new(), QP_B)?;
    let sizes = Plan::new().sizes;
    other.qp = pair.b.pd.core().create_qp(other.receive_cq.core(), other.initiated(), QP_B, sizes)?;
    Pair::join(s, Side::new(&s.adapter()?, &Plan::new(), QP_A)?, other, &Terms::new())
}

fn invalidated_under_load(s: &Session<'_>) -> Verdict {
    let (pair, fast) = loaded(s)?;
    let other = beside(s, &pair)?;
    under_load(s, &pair, fast.buffer, fast.remote(0)?, || fast.invalidate(&other.b))
}

fn closed_under_load(s: &Session<'_>) -> Verdict {
    let (pair, fast) = loaded(s)?;
    let remote = fast.remote(0)?;
    let Fast { mr, buffer, .. } = fast;
    under_load(s, &pair, buffer, remote, || mr.close().map(|_| ()))
}
