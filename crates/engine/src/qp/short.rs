//! The short way to carry a request out: what most requests are is done in one go, without anything to be kept between steps.
//!
//! Reads, writes and sends go this way whose bytes lie in one piece on both sides. Whatever else a request may be, and whatever
//! may be wrong with it, is left to the long way ([`super::transmit`]), which has the same effects step by step.

use fallible::Shared;

use super::{
    Qp, Work,
    request::{HERE, Request, Source},
};
use crate::{
    cq::Operation,
    memory::{Access, Wanted},
    os::{Memory, Os},
};

/// Bytes that may be moved under the locks of the tokens: at most a page, less than a microsecond.
const UNDER_LOCKS: usize = 4096;

/// A request that was carried out: what its completion needs.
pub(super) struct Done {
    pub context: usize,
    pub operation: Operation,
    pub length: u32,
    pub silent_success: bool,
}

/// Carries `request` out, all but its completion, if it is short and moves `most` bytes at most. `None` if it is something else
/// or if something is wrong with it: then nothing has been done.
#[inline]
pub(super) fn carry_out<O: Os>(qp: &Qp<O>, peer: &Shared<Qp<O>>, request: &Request, most: usize) -> Option<Done> {
    let length = request.length;
    if length as usize > most {
        return None;
    }
    let (operation, is_done) = match request.work {
        Work::Send { invalidate: None } => (Operation::Send, send(qp, peer, request)),
        Work::Write { address, token } => {
            let there = Wanted { token, address, length, access: Access::RemoteWrite };
            (Operation::Write, write(qp, peer, request, &there))
        }
        Work::Read { address, token } if !request.flags.local_invalidate => {
            let there = Wanted { token, address, length, access: Access::RemoteRead };
            (Operation::Read, read(qp, peer, request, &there))
        }
        _ => return None,
    };
    let (context, silent_success) = (request.context, request.flags.silent_success);
    is_done.then_some(Done { context, operation, length, silent_success })
}

#[inline]
fn send<O: Os>(qp: &Qp<O>, peer: &Shared<Qp<O>>, request: &Request) -> bool {
    let length = request.length as usize;
    Qp::receive_at_once(peer, request.length, request.flags.solicit, |sink| {
        let there = sink.wanted(Access::LocalWrite);
        match &request.source {
            Source::Inline { first } if length <= HERE => {
                peer.domain.with_range(&there, |to, at| to.write(at, &first[..length])).is_some()
            }
            Source::Elements { count: 1, first } if length <= UNDER_LOCKS => {
                let copy = |(from, start): At<'_, O>, (to, at): At<'_, O>| to.copy_from(at, from, start, length);
                qp.domain.with_ranges(&first.wanted(Access::LocalRead), &peer.domain, &there, copy).is_some()
            }
            Source::Inline { .. } | Source::Elements { .. } => false,
        }
    })
}

#[inline]
fn write<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request, there: &Wanted) -> bool {
    match &request.source {
        Source::Inline { first } if (1..=HERE).contains(&(request.length as usize)) => {
            let bytes = &first[..request.length as usize];
            peer.domain.with_range(there, |to, at| to.write(at, bytes)).is_some()
        }
        Source::Elements { count: 1, first } => {
            let here = first.wanted(Access::LocalRead);
            copy(qp, peer, &here, there, |here, there, length| there.0.copy_from(there.1, here.0, here.1, length))
        }
        Source::Inline { .. } | Source::Elements { .. } => false,
    }
}

#[inline]
fn read<O: Os>(qp: &Qp<O>, peer: &Qp<O>, request: &Request, there: &Wanted) -> bool {
    let Source::Elements { count: 1, first } = &request.source else { return false };
    let here = first.wanted(Access::ReadSink);
    copy(qp, peer, &here, there, |here, there, length| here.0.copy_from(here.1, there.0, there.1, length))
}

/// Memory, and where in it bytes begin.
type At<'a, O> = (&'a <O as Os>::Memory, usize);

/// Finds the bytes of both sides and lets `copy` copy them.
#[inline]
fn copy<O: Os>(
    qp: &Qp<O>,
    peer: &Qp<O>,
    here: &Wanted,
    there: &Wanted,
    copy: impl FnOnce(At<'_, O>, At<'_, O>, usize),
) -> bool {
    let length = there.length as usize;
    if length == 0 {
        return false;
    }
    if length <= UNDER_LOCKS {
        return qp.domain.with_ranges(here, &peer.domain, there, |here, there| copy(here, there, length)).is_some();
    }
    let found = [(&peer.domain, there), (&qp.domain, here)]
        .map(|(domain, wanted)| domain.resolve(wanted.token, wanted.address, wanted.length, wanted.access));
    let [Ok(there), Ok(here)] = &found else { return false };
    let (Some(there), Some(here)) = (there.range(), here.range()) else { return false };
    copy(here, there, length);
    true
}
