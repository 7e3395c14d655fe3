//! Reads and writes whose bytes lie in one piece on both sides.

use super::{
    Flags, Qp, Work,
    execute::{Execution, UNDER_LOCKS},
    request::{INLINE, InlineData, LocalData, Sge, WorkRequest},
};
use crate::{
    memory::{Access, CacheResult, Lookup, MOST_BY_CACHE, Segment, Side},
    os::{Memory, Os},
    prefetch::cold_path,
};

/// Memory, and where in it bytes begin.
pub(super) type Location<'a, O> = (&'a <O as Os>::Memory, usize);

/// Which way bytes go: a type, so that all it means is known where the copy is compiled.
trait Direction {
    /// What it does with the bytes of its own side.
    const LOCAL: Access;
    /// What it does with the peer's.
    const REMOTE: Access;

    /// Copies `length` bytes.
    fn copy<O: Os>(local: Location<'_, O>, remote: Location<'_, O>, length: usize);
}

/// To the peer.
struct ToPeer;

/// From the peer.
struct FromPeer;

impl Direction for ToPeer {
    const LOCAL: Access = Access::LocalRead;
    const REMOTE: Access = Access::RemoteWrite;

    #[inline]
    fn copy<O: Os>((from, start): Location<'_, O>, (to, at): Location<'_, O>, length: usize) {
        to.copy_from(at, from, start, length);
    }
}

impl Direction for FromPeer {
    const LOCAL: Access = Access::ReadSink;
    const REMOTE: Access = Access::RemoteRead;

    #[inline]
    fn copy<O: Os>((to, at): Location<'_, O>, (from, start): Location<'_, O>, length: usize) {
        to.copy_from(at, from, start, length);
    }
}

impl<O: Os, R> Execution<'_, O, R> {
    /// Copies the bytes of a request, if it is a read or write that the executor can carry out. Returns false if not: then nothing
    /// has happened.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "counted: 30 instructions of a write")]
    pub(super) fn copy(qp: &Qp<O>, peer: &Qp<O>, request: &WorkRequest) -> bool {
        match (request.work, &request.data) {
            (Work::Write { address, token }, LocalData::Elements { count: 1, first }) => {
                Self::between::<ToPeer>(qp, peer, Sge { length: request.length, ..*first }, (address, token))
            }
            (Work::Write { address, token }, LocalData::Inline(bytes)) => {
                write_inline(peer, bytes, request.length, (address, token))
            }
            (Work::Read { address, token }, LocalData::Elements { count: 1, first })
                if !request.flags.contains(Flags::LOCAL_INVALIDATE) =>
            {
                Self::between::<FromPeer>(qp, peer, Sge { length: request.length, ..*first }, (address, token))
            }
            _ => false,
        }
    }

    /// Copies between the bytes of `element` and the peer's at an address, of a token, if the tokens allow it: found by the queue
    /// pair's cache or by the table of tokens.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `copy`")]
    fn between<D: Direction>(qp: &Qp<O>, peer: &Qp<O>, element: Sge, remote: (u64, u32)) -> bool {
        if element.length > MOST_BY_CACHE {
            cold_path();
            return by_table::<D, O>(qp, peer, element, remote, false);
        }
        let keys = keys::<D>(element, remote);
        let copy =
            |local: Location<'_, O>, remote: Location<'_, O>| D::copy::<O>(local, remote, element.length as usize);
        match qp.translations.with_both((keys.0, element.address), (keys.1, remote.0), element.length, copy) {
            CacheResult::Hit(()) => true,
            CacheResult::Miss { is_due } => by_table::<D, O>(qp, peer, element, remote, is_due),
        }
    }
}

/// Both tokens of a copy, and what they are used for.
#[inline]
const fn keys<D: Direction>(element: Sge, (_, token): (u64, u32)) -> (Lookup, Lookup) {
    (element.key(D::LOCAL), Lookup { token, access: D::REMOTE })
}

/// [`Execution::between`] by the table of tokens: few bytes while the tokens are locked, others with references to them. Puts the
/// tokens into the cache if that `is_due`.
#[inline(never)]
fn by_table<D: Direction, O: Os>(
    qp: &Qp<O>,
    peer: &Qp<O>,
    element: Sge,
    (address, token): (u64, u32),
    is_due: bool,
) -> bool {
    let (local, remote) = keys::<D>(element, (address, token));
    let length = element.length as usize;
    let copied = if length > UNDER_LOCKS {
        let segment = qp.domain.resolve(element.token, element.address, element.length, D::LOCAL).ok();
        let peers = peer.domain.resolve(token, address, element.length, D::REMOTE).ok();
        let ranges = segment.as_ref().and_then(Segment::range).zip(peers.as_ref().and_then(Segment::range));
        ranges.map(|(local, remote)| D::copy::<O>(local, remote, length))
    } else {
        let copied = qp.domain.with_tokens(local, &peer.domain, remote, |local, remote| {
            let local = local.locate(element.address, element.length)?;
            D::copy::<O>(local, remote.locate(address, element.length)?, length);
            Some(())
        });
        copied.flatten()
    };
    if is_due {
        qp.domain.cache(&qp.translations, Side::Local, local);
        peer.domain.cache(&qp.translations, Side::Remote, remote);
    }
    copied.is_some()
}

/// Writes few inline bytes to the peer's at an address, of a token.
#[inline(never)]
fn write_inline<O: Os>(peer: &Qp<O>, bytes: &InlineData, length: u32, (address, token): (u64, u32)) -> bool {
    if length == 0 || length as usize > INLINE {
        return false;
    }
    let written = peer.domain.with_token(Lookup { token, access: Access::RemoteWrite }, |remote| {
        put_inline(remote.locate(address, length)?, bytes, length as usize);
        Some(())
    });
    written.flatten().is_some()
}

/// Writes the first `length` of inline bytes. One word is stored without a call of the copy routine.
#[inline]
pub(super) fn put_inline<M: Memory>((to, at): (&M, usize), bytes: &InlineData, length: usize) {
    let words = bytes.bytes();
    if length == words[0].len() {
        to.write(at, &words[0]);
    } else {
        to.write(at, &words.as_flattened()[..length]);
    }
}
