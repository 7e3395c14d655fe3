//! Logical addresses and the privileged token (`NDKPI 7.5`).

use ndkpi::{
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED as SINK_NOT_REQUIRED, NDK_LOGICAL_ADDRESS, NDK_SGE, NtStatus,
};

use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{Adapter, Buffer, Mapping, PAGE, Remote, Session},
    fixture::{Pair, posted},
    platform::Shape,
};

pub const CASES: &[Case] = &[
    //= NDKPI 7.5.1
    Case::new(
        "logical.mapping",
        "NDKPI 7.5",
        "Maps buffers of 1 byte to 17 pages.",
        "As many pages as the bytes touch, each page-aligned, and the offset of the first byte.",
        mapping,
    ),
    //= NDKPI 7.5.2
    Case::new(
        "logical.size",
        "NDKPI 7.5",
        "Asks for mappings with places that are too small, by one page and altogether.",
        "STATUS_BUFFER_TOO_SMALL, and the size that is needed.",
        size,
    ),
    //= NDKPI 7.5.1
    Case::new(
        "logical.chain",
        "NDKPI 7.5",
        "Maps a chain of MDLs, and a chain that leaves out a page.",
        "The first is mapped; the second gets STATUS_INVALID_PARAMETER.",
        chain,
    ),
    Case::new(
        "logical.no-bytes",
        "NDKPI 9",
        "Maps 0 bytes.",
        "Open: whether that succeeds. If so, the mapping has at most one page and can be released.",
        no_bytes,
    ),
    //= NDKPI 7.5.4
    //= NDKPI 7.5.5
    Case::new(
        "logical.privileged-token",
        "NDKPI 7.5",
        "Sends from and receives into logical addresses by the privileged token, one element for each page.",
        "The bytes arrive.",
        privileged_token,
    ),
    Case::new(
        "logical.privileged-token-of-each-domain",
        "NDKPI 7.5",
        "Sends from logical addresses by the privileged token of another protection domain.",
        "Open: whether it works.",
        privileged_token_of_each_domain,
    ),
    //= NDKPI 7.5.4
    Case::new(
        "logical.never-remote",
        "NDKPI 7.5",
        "Writes and reads at logical addresses of the peer by its privileged token.",
        "The requests fail, and no byte moves.",
        never_remote,
    ),
    //= NDKPI 7.5.4
    Case::new(
        "logical.read-sink",
        "NDKPI 7.5",
        "Reads from the peer into logical addresses by the privileged token.",
        "It works if the adapter requires no right for read sinks, and fails otherwise.",
        read_sink,
    ),
    Case::new(
        "logical.unmapped-address",
        "NDKPI 7.5",
        "Sends from and receives into logical addresses that no mapping covers.",
        "The requests fail, and no byte moves. Open: the status.",
        unmapped_address,
    ),
    //= NDKPI 7.5.3
    Case::new(
        "logical.after-release",
        "NDKPI 7.5",
        "Releases a mapping and sends from its addresses.",
        "The send fails. Open: the status.",
        after_release,
    ),
    Case::new(
        "logical.build-and-release",
        "NDKPI 7.5",
        "Maps and releases a buffer two hundred times.",
        "It works each time.",
        build_and_release,
    ),
    Case::new(
        "logical.one-buffer-twice",
        "NDKPI 7.5",
        "Maps a buffer twice, releases the first mapping and sends by the second.",
        "It works.",
        one_buffer_twice,
    ),
];

/// A mapping of a whole buffer.
pub fn map<'s>(adapter: &Adapter<'s>, buffer: &'s Buffer) -> Check<&'s Mapping<'s>> {
    let pages = u32::try_from(buffer.length().div_ceil(PAGE) + 1).unwrap_or(u32::MAX);
    let (pending, mapping) = adapter.build_lam(buffer, buffer.length(), pages)?;
    match pending.wait()? {
        NtStatus::SUCCESS => Ok(mapping),
        status => Err(Stop::status("NdkBuildLAM", status)),
    }
}

fn mapping(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    for length in [1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 16 * PAGE + 100] {
        let buffer = Buffer::new(s, length)?;
        let offset = usize::try_from(buffer.address(0) % PAGE as u64).unwrap_or(0);
        let mapping = map(&adapter, buffer)?;
        ensure_eq!(mapping.offset() as usize, offset, "offset of the first byte of {length}");
        let pages = mapping.pages()?;
        ensure_eq!(pages.len(), (offset + length).div_ceil(PAGE), "pages of {length} bytes at offset {offset}");
        for page in pages {
            ensure!(page.to_bits().is_multiple_of(PAGE as u64), "the logical page {page:?} is not page-aligned");
        }
        mapping.release()?;
    }
    HELD
}

fn size(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let buffer = Buffer::new(s, 5 * PAGE)?;
    for pages in [4, 1, 0] {
        let (pending, mapping) = adapter.build_lam(buffer, 5 * PAGE, pages)?;
        pending.ends_with(NtStatus::BUFFER_TOO_SMALL)?;
        ensure_eq!(mapping.size(), 0x10 + 8 * 5, "the size that a mapping of five pages needs");
    }
    let (pending, mapping) = adapter.build_lam(buffer, 5 * PAGE, 5)?;
    pending.succeeds()?;
    mapping.release()?;
    HELD
}

fn chain(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    for piece in [100, PAGE, 5000] {
        let buffer = Buffer::with_shape(s, Shape::Chained(piece), 4 * PAGE)?;
        let mapping = map(&adapter, buffer)?;
        ensure_eq!(mapping.pages()?.len(), 4, "pages of a chain of MDLs of {piece} bytes");
        mapping.release()?;
    }
    let buffer = Buffer::with_shape(s, Shape::Gap, 4 * PAGE)?;
    let (pending, _) = adapter.build_lam(buffer, 3 * PAGE, 8)?;
    pending.ends_with(NtStatus::INVALID_PARAMETER)?;
    HELD
}

fn no_bytes(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let (pending, mapping) = adapter.build_lam(Buffer::new(s, PAGE)?, 0, 2)?;
    let status = pending.wait()?;
    if status.is_success() {
        ensure!(mapping.pages()?.len() <= 1, "no bytes touch more than a page");
        mapping.release()?;
    }
    observed!("{status}")
}

fn privileged_token(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (from, to) = (Buffer::new(s, 3 * PAGE)?, Buffer::new(s, 3 * PAGE)?);
    let (source, target) = (map(&s.adapter()?, from)?, map(&s.peer_adapter()?, to)?);
    let tokens = (pair.a.pd.privileged_token()?, pair.b.pd.privileged_token()?);
    from.fill_pattern(0, 3 * PAGE, 4)?;
    let size = u32::try_from(PAGE).unwrap_or(0);
    let pages = s.elements(3)?;
    let mut lists = [[NDK_SGE::new(core::ptr::null_mut(), 0, 0); 3]; 2];
    let [sources, targets] = &mut lists;
    for (page, (from, to)) in sources.iter_mut().zip(targets).enumerate() {
        *from = source.element(page * PAGE, size, tokens.0)?;
        *to = target.element(page * PAGE, size, tokens.1)?;
    }
    posted("NdkReceive", pair.b.qp.receive(1, &lists[1][..pages])?)?;
    posted("NdkSend", pair.a.qp.send(1, &lists[0][..pages], 0)?)?;
    pair.a.initiator_done(1)?;
    ensure_eq!(pair.b.receive_done(1)?.bytes as usize, pages * PAGE, "bytes received");
    to.has_pattern(0, pages * PAGE, 4)?;
    // In the middle of a page, and to a write.
    let element = [source.element(PAGE + 100, 50, tokens.0)?];
    posted("NdkWrite", pair.a.qp.write(2, &element, pair.b.remote(0), 0)?)?;
    pair.a.initiator_done(2)?;
    let (mut sent, mut written) = ([0; 50], [0; 50]);
    from.read(PAGE + 100, &mut sent)?;
    pair.b.region.buffer.read(0, &mut written)?;
    ensure_eq!(written, sent, "bytes written from a logical address");
    source.release()?;
    target.release()?;
    HELD
}

fn privileged_token_of_each_domain(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let pd = s.adapter()?.create_pd()?;
    let mapping = map(&s.adapter()?, Buffer::new(s, PAGE)?)?;
    let tokens = [pair.a.pd.privileged_token()?, pd.privileged_token()?];
    let element = [mapping.element(0, 64, tokens[1])?];
    pair.b.receive(1, 0, 64)?;
    let status = pair.a.qp.send(1, &element, 0)?;
    let status = if status.is_success() { pair.a.initiated().take_one()?.status } else { status };
    mapping.release()?;
    let same = if tokens[0] == tokens[1] { "the domains have one token" } else { "each domain has its own" };
    observed!("{same}; a send by that of another domain: {status}")
}

fn never_remote(s: &Session<'_>) -> Verdict {
    let buffer = Buffer::new(s, PAGE)?;
    buffer.fill(0, PAGE, 0xEE)?;
    let mapping = map(&s.peer_adapter()?, buffer)?;
    let page = mapping.pages()?[0].to_bits();
    for is_read in [false, true] {
        for address in [page, buffer.address(0), 0] {
            let pair = Pair::new(s)?;
            pair.a.region.buffer.fill(0, 64, 0x11)?;
            let remote = Remote { address, token: pair.b.pd.privileged_token()? };
            let element = [pair.a.region.element(0, 64)];
            let status = if is_read {
                pair.a.qp.read(1, &element, remote, 0)?
            } else {
                pair.a.qp.write(1, &element, remote, 0)?
            };
            let status = if status.is_success() { pair.a.initiated().take_one()?.status } else { status };
            ensure!(!status.is_success(), "the privileged token has given the peer access to {address:#x}");
            s.settle();
            buffer.is_filled(0, PAGE, 0xEE)?;
            pair.a.region.buffer.is_filled(0, 64, 0x11)?;
        }
    }
    mapping.release()?;
    HELD
}

fn read_sink(s: &Session<'_>) -> Verdict {
    let works = s.adapter()?.has(SINK_NOT_REQUIRED);
    let pair = Pair::new(s)?;
    let buffer = Buffer::new(s, PAGE)?;
    let mapping = map(&s.adapter()?, buffer)?;
    pair.b.region.buffer.fill_pattern(0, 64, 3)?;
    let element = [mapping.element(0, 64, pair.a.pd.privileged_token()?)?];
    let status = pair.a.qp.read(1, &element, pair.b.remote(0), 0)?;
    let status = if status.is_success() { pair.a.initiated().take_one()?.status } else { status };
    if works {
        ensure_eq!(status, NtStatus::SUCCESS, "a read into a logical address");
        buffer.has_pattern(0, 64, 3)?;
    } else {
        ensure!(!status.is_success(), "a read into a logical address succeeded, though read sinks need a right");
    }
    mapping.release()?;
    HELD
}

/// Sends from and receives into a logical address that is not good.
fn refused(s: &Session<'_>, address: u64, length: u32) -> Check<NtStatus> {
    let pair = Pair::new(s)?;
    pair.b.region.buffer.fill(0, 8192, 0xEE)?;
    pair.b.receive(1, 0, 8192)?;
    let address = NDK_LOGICAL_ADDRESS::from_bits(address);
    let element = [NDK_SGE::logical(address, length, pair.a.pd.privileged_token()?)];
    let status = pair.a.qp.send(1, &element, 0)?;
    let status = if status.is_success() { pair.a.initiated().take_one()?.status } else { status };
    ensure!(!status.is_success(), "a send from the logical address {address:?} succeeded");
    s.settle();
    pair.b.region.buffer.is_filled(0, 8192, 0xEE)?;

    let pair = Pair::new(s)?;
    let element = [NDK_SGE::logical(address, length, pair.b.pd.privileged_token()?)];
    let posted = pair.b.qp.receive(1, &element)?;
    if posted.is_success() {
        pair.a.send(1, 0, length.min(64), 0)?;
        let done = pair.b.receive_cq.take_one()?;
        ensure!(!done.status.is_success(), "a receive into the logical address {address:?} succeeded");
    }
    Ok(status)
}

fn unmapped_address(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let buffer = Buffer::new(s, 2 * PAGE)?;
    let mapping = map(&s.adapter()?, buffer)?;
    let (first, last) = (mapping.pages()?[0].to_bits(), mapping.pages()?[1].to_bits());
    let mut seen = NtStatus::SUCCESS;
    let ranges =
        [(0, 64), (u64::MAX, 1), (last + PAGE as u64, 1), (last + PAGE as u64 - 1, 2), (first.wrapping_sub(1), 1)];
    for (address, length) in ranges {
        seen = refused(s, address, length)?;
    }
    mapping.release()?;
    observed!("{seen}")
}

fn after_release(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let mapping = map(&s.adapter()?, Buffer::new(s, PAGE)?)?;
    let address = mapping.pages()?[0].to_bits();
    mapping.release()?;
    let status = refused(s, address, 64)?;
    observed!("{status}")
}

fn build_and_release(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let buffer = Buffer::new(s, 2 * PAGE)?;
    for _ in 0..200 {
        map(&adapter, buffer)?.release()?;
    }
    HELD
}

fn one_buffer_twice(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let buffer = Buffer::new(s, PAGE)?;
    let (first, second) = (map(&s.adapter()?, buffer)?, map(&s.adapter()?, buffer)?);
    first.release()?;
    buffer.fill_pattern(0, 64, 2)?;
    pair.b.receive(1, 0, 64)?;
    let element = [second.element(0, 64, pair.a.pd.privileged_token()?)?];
    posted("NdkSend", pair.a.qp.send(1, &element, 0)?)?;
    pair.a.initiator_done(1)?;
    pair.b.receive_done(1)?;
    pair.b.region.buffer.has_pattern(0, 64, 2)?;
    second.release()?;
    HELD
}
