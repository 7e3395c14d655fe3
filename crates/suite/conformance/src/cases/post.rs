//! Posting work requests: what is accepted, and what the flags do (`NDKPI 5.7`, `7.3`).

use alloc::vec::Vec;

use ndkpi::{
    NDK_OP_FLAG_DEFER as DEFER, NDK_OP_FLAG_READ_FENCE as FENCE, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT as SOLICIT,
    NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NDK_SGE, NDK_VERSION, NtStatus,
};

use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{FastRegistration, Session},
    fixture::{Pair, Plan, Side, posted},
};

pub const CASES: &[Case] = &[
    Case::new(
        "post.unconnected",
        "NDKPI 5.7",
        "Posts a send, write, read, bind, fast registration, invalidation and send-and-invalidate on an unconnected queue \
         pair.",
        "STATUS_CONNECTION_INVALID.",
        unconnected,
    ),
    Case::new(
        "post.receive-before-the-connection",
        "NDKPI 5.7",
        "Posts receives, then connects the queue pair and sends.",
        "The receives are accepted and used.",
        receive_before_the_connection,
    ),
    //= NDKPI 7.3.3
    Case::new(
        "post.too-many-elements",
        "NDKPI 7.3",
        "Posts a send, a receive, a write and a read with one element more than the queue pair may have.",
        "They are not posted, and the queue pair goes on. Open: the statuses.",
        too_many_elements,
    ),
    Case::new(
        "post.as-many-elements-as-allowed",
        "NDKPI 7.3",
        "Posts sends, receives, writes and reads with as many elements as the adapter allows.",
        "They are posted and complete, with the right bytes.",
        as_many_elements_as_allowed,
    ),
    //= NDKPI 7.3.3
    Case::new(
        "post.longer-than-a-transfer-may-be",
        "NDKPI 7.3",
        "Posts a send whose elements are together longer than MaxTransferLength.",
        "It is not posted, or completes with a failure; nothing moves. Open: the status.",
        longer_than_a_transfer_may_be,
    ),
    Case::new(
        "post.unknown-flags",
        "NDKPI 9",
        "Posts a send with a flag that does not exist and a write with the flag to solicit an event.",
        "Open: the statuses. The queue pair goes on.",
        unknown_flags,
    ),
    Case::new(
        "post.no-list",
        "NDKPI 9",
        "Posts sends and receives of no element and no list.",
        "Open: whether they are accepted. If so, they complete with 0 bytes.",
        no_list,
    ),
    Case::new(
        "post.elements-without-a-list",
        "NDKPI 7.3",
        "Posts a send and a receive of two elements without a list.",
        "They are not posted, and the queue pair goes on.",
        elements_without_a_list,
    ),
    //= NDKPI 7.3.2
    Case::new(
        "post.list-is-copied",
        "NDKPI 7.3",
        "Overwrites the list of elements as soon as the post has returned.",
        "The request uses the elements as they were.",
        list_is_copied,
    ),
    //= NDKPI 7.3.4
    Case::new(
        "post.silent-success",
        "NDKPI 7.3",
        "Posts silent sends, writes and reads.",
        "They are carried out and complete nothing.",
        silent_success,
    ),
    //= NDKPI 7.3.4
    Case::new(
        "post.silent-failure",
        "NDKPI 7.3",
        "Posts a silent send whose element names memory that is not registered.",
        "It completes with a failure.",
        silent_failure,
    ),
    //= NDKPI 7.3.8
    Case::new(
        "post.deferred-chain",
        "NDKPI 7.3",
        "Posts three deferred sends and one that is not.",
        "All complete, in order.",
        deferred_chain,
    ),
    //= NDKPI 7.3.8
    Case::new(
        "post.deferred-then-failure",
        "NDKPI 7.3",
        "Posts three deferred sends, then a send that cannot be posted, and nothing more.",
        "The deferred sends complete: the failure has to push them.",
        deferred_then_failure,
    ),
    Case::new(
        "post.deferred-then-failure-of-another-kind",
        "NDKPI 7.3",
        "Posts a deferred send, then a read, a write or an invalidation that cannot be posted, and nothing more.",
        "The deferred send completes.",
        deferred_then_failure_of_another_kind,
    ),
    //= NDKPI 7.3.5
    Case::new(
        "post.read-fence",
        "NDKPI 7.3",
        "Reads from the peer and sends what was read in a fenced send, before the read has completed; a hundred times.",
        "The send carries the bytes that were read.",
        read_fence,
    ),
    Case::new(
        "post.every-flag-at-once",
        "NDKPI 7.3",
        "Posts a send with all flags that a send can have.",
        "It is carried out as one that is silent, and solicits an event.",
        every_flag_at_once,
    ),
    Case::new(
        "post.at-dispatch-level",
        "NDKPI 5",
        "Posts, polls and arms at DISPATCH_LEVEL.",
        "It works as at PASSIVE_LEVEL.",
        at_dispatch_level,
    ),
];

fn unconnected(s: &Session<'_>) -> Verdict {
    let (side, _other) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let element = [side.region.element(0, 16)];
    let remote = side.remote(0);
    let mw = side.pd.core().create_mw()?;
    let fast = side.pd.core().create_mr(true)?;
    fast.core().initialize(1, false)?.succeeds()?;
    let (qp, mr) = (&side.qp, side.region.mr.core());
    let registration = FastRegistration { pages: &[], offset: 0, length: 0, base: 0, flags: 0 };
    let invalid = NtStatus::CONNECTION_INVALID;
    ensure_eq!(qp.send(1, &element, 0)?, invalid, "NdkSend");
    ensure_eq!(qp.write(2, &element, remote, 0)?, invalid, "NdkWrite");
    ensure_eq!(qp.read(3, &element, remote, 0)?, invalid, "NdkRead");
    ensure_eq!(qp.bind(4, mr, mw.core(), side.region.address(0), 16, 0)?, invalid, "NdkBind");
    ensure_eq!(qp.fast_register(5, fast.core(), &registration)?, invalid, "NdkFastRegister");
    ensure_eq!(qp.invalidate_mr(6, fast.core(), 0)?, invalid, "NdkInvalidate");
    if s.version()? >= NDK_VERSION::V1_2 {
        ensure_eq!(qp.send_and_invalidate(7, &element, 0, remote.token)?, invalid, "NdkSendAndInvalidate");
    }
    side.initiated().stays_empty()?;
    HELD
}

fn receive_before_the_connection(s: &Session<'_>) -> Verdict {
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    for number in 0..5 {
        b.receive(number, 0, 64)?;
    }
    let pair = Pair::join(s, a, b, &crate::fixture::Terms::new())?;
    for number in 0..5 {
        pair.a.send(number, 0, 16, 0)?;
        pair.b.receive_done(number)?;
    }
    HELD
}

/// The pair still works.
fn goes_on(pair: &Pair<'_>) -> Check {
    pair.deliver(99, false)?;
    pair.b.receive_done(99)?;
    pair.a.initiated().stays_empty()
}

fn too_many_elements(s: &Session<'_>) -> Verdict {
    let mut plan = Plan::new();
    plan.sizes.initiator_sge = 2;
    plan.sizes.receive_sge = 2;
    let pair = Pair::with(s, &plan, &plan)?;
    let three = [pair.a.region.element(0, 8); 3];
    let received = [pair.b.region.element(0, 8); 3];
    let remote = pair.b.remote(0);
    let seen = [
        pair.a.qp.send(1, &three, 0)?,
        pair.b.qp.receive(2, &received)?,
        pair.a.qp.write(3, &three, remote, 0)?,
        pair.a.qp.read(4, &three, remote, 0)?,
    ];
    for (name, status) in ["send", "receive", "write", "read"].iter().zip(seen) {
        ensure!(!status.is_success(), "a {name} of three elements was posted to a queue for two: {status}");
    }
    goes_on(&pair)?;
    observed!("send {}, receive {}, write {}, read {}", seen[0], seen[1], seen[2], seen[3])
}

fn as_many_elements_as_allowed(s: &Session<'_>) -> Verdict {
    const MOST: usize = 64;
    let info = s.info()?;
    let count = |limit: u32| (limit as usize).min(MOST);
    let mut plan = Plan::new();
    plan.sizes.initiator_sge = info.MaxInitiatorRequestSge;
    plan.sizes.receive_sge = info.MaxReceiveRequestSge;
    let pair = Pair::with(s, &plan, &plan)?;
    // Not on the stack: a kernel's is small.
    let list = |side: &crate::fixture::Side<'_>, step: u32| -> Check<Vec<NDK_SGE>> {
        let mut list = Vec::new();
        list.try_reserve_exact(MOST).map_err(|_| Stop::inconclusive(format_args!("no memory for the case")))?;
        // Each element begins somewhere else, and none is as long as its place.
        list.extend((0..MOST).map(|index| side.region.element(index as isize * 100, step)));
        Ok(list)
    };
    let (from, to) = (list(&pair.a, 37)?, list(&pair.b, 90)?);
    let (sent, read) =
        (count(info.MaxInitiatorRequestSge), count(info.MaxReadRequestSge.min(info.MaxInitiatorRequestSge)));
    let received = count(info.MaxReceiveRequestSge);
    let total = (sent * 37).min(received * 90);
    pair.a.region.buffer.fill_pattern(0, 8192, 3)?;
    pair.b.region.buffer.fill(0, 8192, 0)?;
    posted("NdkReceive", pair.b.qp.receive(1, &to[..received])?)?;
    posted("NdkSend", pair.a.qp.send(1, &from[..total / 37], 0)?)?;
    pair.a.initiator_done(1)?;
    ensure_eq!(pair.b.receive_done(1)?.bytes as usize, total / 37 * 37, "bytes received");
    for byte in 0..total / 37 * 37 {
        let (mut source, mut target) = ([0], [0]);
        pair.a.region.buffer.read(byte / 37 * 100 + byte % 37, &mut source)?;
        pair.b.region.buffer.read(byte / 90 * 100 + byte % 90, &mut target)?;
        ensure_eq!(target, source, "byte {byte} of a message in {sent} elements");
    }
    posted("NdkWrite", pair.a.qp.write(2, &from[..sent], pair.b.remote(0), 0)?)?;
    pair.a.initiator_done(2)?;
    pair.a.region.buffer.fill(0, 8192, 0)?;
    posted("NdkRead", pair.a.qp.read(3, &from[..read], pair.b.remote(0), 0)?)?;
    pair.a.initiator_done(3)?;
    for byte in 0..read * 37 {
        let (mut source, mut target) = ([0], [0]);
        pair.b.region.buffer.read(byte, &mut source)?;
        pair.a.region.buffer.read(byte / 37 * 100 + byte % 37, &mut target)?;
        ensure_eq!(target, source, "byte {byte} of a read into {read} elements");
    }
    // The limit for reads is one of its own.
    if read < sent {
        let status = pair.a.qp.read(4, &from[..=read], pair.b.remote(0), 0)?;
        ensure!(!status.is_success(), "a read into {} elements was posted: {status}", read + 1);
        pair.a.initiated().stays_empty()?;
    }
    HELD
}

fn longer_than_a_transfer_may_be(s: &Session<'_>) -> Verdict {
    let most = s.info()?.MaxTransferLength;
    let pair = Pair::new(s)?;
    let half = most / 2 + 1;
    pair.b.receive(1, 0, 64)?;
    let list = [pair.a.region.element(0, half), pair.a.region.element(0, half)];
    let status = pair.a.qp.send(1, &list, 0)?;
    let outcome = if status.is_success() { pair.a.initiated().take_one()?.status } else { status };
    ensure!(!outcome.is_success(), "a send of more than MaxTransferLength bytes succeeded");
    let when = if status.is_success() { "completes with" } else { "is refused with" };
    observed!("it {when} {outcome}")
}

fn unknown_flags(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let element = [pair.a.region.element(0, 16)];
    pair.b.receive(1, 0, 64)?;
    let unknown = pair.a.qp.send(1, &element, 0x4000_0000)?;
    let foreign = pair.a.qp.write(2, &element, pair.b.remote(0), SOLICIT)?;
    if unknown.is_success() {
        pair.b.receive_cq.take_one()?;
    } else {
        pair.a.send(1, 0, 16, 0)?;
        pair.b.receive_done(1)?;
    }
    pair.a.initiated().take(1 + usize::from(foreign.is_success()))?;
    goes_on(&pair)?;
    observed!("an unknown flag: {unknown}, a flag of other requests: {foreign}")
}

fn no_list(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let received = pair.b.qp.receive(1, &[])?;
    if !received.is_success() {
        return observed!("a receive without elements gets {received}");
    }
    let sent = pair.a.qp.send(1, &[], 0)?;
    if !sent.is_success() {
        return observed!("a send without elements gets {sent}");
    }
    pair.a.initiator_done(1)?;
    ensure_eq!(pair.b.receive_done(1)?.bytes, 0, "bytes received");
    observed!("they are accepted")
}

fn elements_without_a_list(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    let received = pair.b.qp.receive_nowhere(1, 2)?;
    ensure!(!received.is_success(), "a receive of two elements without a list was posted");
    let sent = pair.a.qp.send_nowhere(1, 2, 0)?;
    ensure!(!sent.is_success(), "a send of two elements without a list was posted");
    goes_on(&pair)?;
    HELD
}

fn list_is_copied(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    // An adapter with one element gets all bytes in it.
    let count = s.elements(2)?;
    let list_of = |side: &Side<'_>, (first, offset): (u32, isize)| match count {
        1 => [side.region.element(0, 256); 2],
        _ => [side.region.element(0, first), side.region.element(offset, 256 - first)],
    };
    pair.a.region.buffer.fill_pattern(0, 256, 9)?;
    for _ in 0..50 {
        pair.b.region.buffer.fill(0, 256, 0)?;
        let mut list = list_of(&pair.b, (128, 128));
        posted("NdkReceive", pair.b.qp.receive(1, &list[..count])?)?;
        list.fill(pair.b.region.element(4096, 1));
        let mut list = list_of(&pair.a, (100, 100));
        posted("NdkSend", pair.a.qp.send(1, &list[..count], 0)?)?;
        list.fill(pair.a.region.element(4096, 1));
        pair.a.initiator_done(1)?;
        ensure_eq!(pair.b.receive_done(1)?.bytes, 256, "bytes received");
        pair.b.region.buffer.has_pattern(0, 256, 9)?;
    }
    HELD
}

fn silent_success(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.a.region.buffer.fill_pattern(0, 64, 5)?;
    pair.b.receive(1, 0, 64)?;
    pair.a.send(1, 0, 64, SILENT)?;
    pair.a.write(2, 0, 64, pair.b.remote(1000), SILENT)?;
    pair.a.read(3, 2000, 64, pair.b.remote(1000), SILENT)?;
    pair.b.receive_done(1)?;
    // One that is signalled, so that the others are known to be done.
    pair.a.write(4, 0, 1, pair.b.remote(4000), 0)?;
    pair.a.initiator_done(4)?;
    pair.a.initiated().stays_empty()?;
    pair.b.region.buffer.has_pattern(0, 64, 5)?;
    pair.b.region.buffer.has_pattern(1000, 64, 5)?;
    pair.a.region.buffer.has_pattern(2000, 64, 5)?;
    HELD
}

fn silent_failure(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.b.receive(1, 0, 64)?;
    let wrong = [pair.a.region.buffer.element(0, 16, !pair.a.region.local())];
    let status = pair.a.qp.send(7, &wrong, SILENT)?;
    if !status.is_success() {
        return observed!("it is refused at once with {status}");
    }
    let done = pair.a.initiated().take_one()?;
    ensure!(done.request == 7 && !done.status.is_success(), "a silent request that fails completed as {done:?}");
    HELD
}

fn deferred_chain(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    for round in 0..20 {
        for number in 0..4 {
            pair.b.receive(number, 0, 64)?;
        }
        for number in 0..4 {
            let flags = if number < 3 { DEFER } else { 0 } | if round % 2 == 1 && number < 3 { SILENT } else { 0 };
            pair.a.send(number, 0, 16, flags)?;
        }
        for number in if round % 2 == 1 { 3..4 } else { 0..4 } {
            pair.a.initiator_done(number)?;
        }
        for number in 0..4 {
            pair.b.receive_done(number)?;
        }
    }
    HELD
}

/// Posts deferred sends, then calls `fail`, whose post has to fail, and expects the sends to complete.
fn pushed_by_failure(pair: &Pair<'_>, fail: impl Fn() -> Check<NtStatus>) -> Check {
    for number in 0..3 {
        pair.b.receive(number, 0, 64)?;
    }
    for number in 0..3 {
        pair.a.send(number, 0, 16, DEFER)?;
    }
    let status = fail()?;
    ensure!(!status.is_success(), "a post that has to fail was accepted");
    for number in 0..3 {
        pair.a.initiator_done(number)?;
        pair.b.receive_done(number)?;
    }
    Ok(())
}

fn deferred_then_failure(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let five = [pair.a.region.element(0, 8); 5];
    pushed_by_failure(&pair, || pair.a.qp.send(9, &five, DEFER))?;
    pushed_by_failure(&pair, || pair.a.qp.send(9, &five, 0))?;
    HELD
}

fn deferred_then_failure_of_another_kind(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let five = [pair.a.region.element(0, 8); 5];
    let remote = pair.b.remote(0);
    pushed_by_failure(&pair, || pair.a.qp.read(9, &five, remote, 0))?;
    pushed_by_failure(&pair, || pair.a.qp.write(9, &five, remote, 0))?;
    let long = [0; 65];
    pushed_by_failure(&pair, || pair.a.qp.send_inline(9, &[&long], 0))?;
    HELD
}

fn read_fence(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for round in 0..100_u8 {
        pair.b.region.buffer.fill_pattern(0, 2048, round)?;
        pair.b.receive(1, 4096, 2048)?;
        pair.a.read(2, 0, 2048, pair.b.remote(0), SILENT)?;
        pair.a.send(3, 0, 2048, FENCE)?;
        pair.a.initiator_done(3)?;
        pair.b.receive_done(1)?;
        pair.b.region.buffer.has_pattern(4096, 2048, round)?;
    }
    HELD
}

fn every_flag_at_once(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    s.need_inline(9)?;
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    cq.arm(ndkpi::NDK_CQ_NOTIFY_SOLICITED)?;
    pair.b.receive(1, 0, 64)?;
    posted("NdkSend", pair.a.qp.send_inline(1, &[b"all", b" of it"], SILENT | FENCE | SOLICIT | DEFER)?)?;
    pair.start_delivery(2, false)?;
    pair.a.initiator_done(2)?;
    ensure_eq!(pair.b.receive_done(1)?.bytes, 9, "bytes received");
    cq.wait_callbacks(1)?;
    pair.a.initiated().stays_empty()?;
    HELD
}

fn at_dispatch_level(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let cq = pair.b.receive_cq.core();
    for number in 0..10 {
        let mut result = Ok(());
        s.platform().raised(&mut || {
            result = pair
                .start_delivery(1, true)
                .and_then(|()| cq.poll_each(0, |_| {}))
                .and_then(|_| cq.arm(ndkpi::NDK_CQ_NOTIFY_ANY));
        });
        result?;
        cq.wait_callbacks(number + 1)?;
        pair.a.initiator_done(1)?;
        pair.b.receive_done(1)?;
    }
    HELD
}
