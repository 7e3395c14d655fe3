//! Invalidation by the peer (`NDKPI 7.1.9`, `7.6`).

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ndkpi::{
    NDK_CQ_NOTIFY_ANY as ANY, NDK_CQ_NOTIFY_SOLICITED as SOLICITED, NDK_OP_FLAG_ALLOW_REMOTE_READ as REMOTE_READ,
    NDK_OP_FLAG_ALLOW_REMOTE_WRITE as REMOTE_WRITE, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT as SOLICIT,
    NDK_OP_FLAG_SILENT_SUCCESS as SILENT, NDK_OPERATION_TYPE as Type, NDK_VERSION, NtStatus,
};

use super::fast::{Fast, write};
use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{FastRegistration, Later, Mapping, MrCore, PAGE, QpCore, Session},
    fixture::{Pair, Plan, posted},
};

pub const CASES: &[Case] = &[
    Case::new(
        "invalidate.by-the-peer",
        "NDKPI 7.6",
        "Invalidates the peer's fast-registered region by a send, and writes with its token.",
        "The receive says so and names the token; the write fails.",
        by_the_peer,
    ),
    Case::new(
        "invalidate.window-by-the-peer",
        "NDKPI 7.6",
        "Invalidates the peer's window by a send, and writes with its token.",
        "The receive says so and names the token; the write fails.",
        window_by_the_peer,
    ),
    //= NDKPI 7.6.4
    Case::new(
        "invalidate.before-the-receive-completes",
        "NDKPI 7.6",
        "As soon as a receive has invalidated the region, posts its next fast registration; two hundred times.",
        "It succeeds: the token was dead before the completion became visible.",
        before_the_receive_completes,
    ),
    Case::new(
        "invalidate.before-the-callback",
        "NDKPI 7.6",
        "The same from inside the callback of the receive.",
        "It succeeds.",
        before_the_callback,
    ),
    Case::new(
        "invalidate.through-the-plain-call",
        "NDKPI 7.1.9",
        "Takes the completion by NdkGetCqResults.",
        "It is there as a receive; the token is dead all the same.",
        through_the_plain_call,
    ),
    Case::new(
        "invalidate.type-of-the-sender",
        "NDKPI 2.2",
        "Looks at the sender's completion.",
        "NdkOperationTypeSend.",
        type_of_the_sender,
    ),
    Case::new(
        "invalidate.then-locally",
        "NDKPI 7.1.9",
        "Invalidates locally what the peer has invalidated.",
        "It fails. Open: how.",
        then_locally,
    ),
    //= NDKPI 7.6.4
    Case::new(
        "invalidate.bad-token",
        "NDKPI 7.6",
        "Sends with tokens that are none to invalidate.",
        "The connection is aborted: no later request succeeds, and the receive is no success.",
        bad_token,
    ),
    Case::new(
        "invalidate.plain-region",
        "NDKPI 7.6",
        "Sends with the token of a region that was registered plainly.",
        "Open: what happens to the region and to the connection.",
        plain_region,
    ),
    Case::new(
        "invalidate.token-of-another-domain",
        "NDKPI 7.2",
        "Sends with the token of a region of another protection domain than the peer's queue pair.",
        "The region stays registered.",
        token_of_another_domain,
    ),
    Case::new(
        "invalidate.with-flags",
        "NDKPI 7.3",
        "Invalidates by a send that is inline, silent and solicits an event.",
        "All of it works.",
        with_flags,
    ),
];

const BOTH: u32 = REMOTE_READ | REMOTE_WRITE;

/// A pair and a region of the passive side that the active side may invalidate.
fn prepared<'s>(s: &'s Session<'s>) -> Check<(Pair<'s>, Fast<'s>)> {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let fast = Fast::new(&s.peer_adapter()?, &pair.b, 1, true)?;
    fast.register(&pair.b, BOTH)?;
    Ok((pair, fast))
}

/// Sends with a token to invalidate; the passive side has a receive for it.
fn send(pair: &Pair<'_>, token: u32, flags: u32) -> Check {
    pair.b.receive(1, 0, 64)?;
    posted("NdkSendAndInvalidate", pair.a.qp.send_and_invalidate(2, &[pair.a.region.element(0, 16)], flags, token)?)
}

fn by_the_peer(s: &Session<'_>) -> Verdict {
    let (pair, fast) = prepared(s)?;
    let remote = fast.remote(0)?;
    send(&pair, remote.token, 0)?;
    pair.a.initiator_done(2)?;
    let done = pair.b.receive_done(1)?;
    ensure_eq!(done.kind, Some(Type::RECEIVE_AND_INVALIDATE), "type of the receive");
    ensure_eq!(done.token, Some(remote.token), "the invalidated token");
    ensure_eq!(done.bytes, 16, "bytes received");
    let status = write(&pair, remote, 16)?;
    ensure!(!status.is_success(), "a write with a token that a send has invalidated succeeded");
    HELD
}

fn window_by_the_peer(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let mw = pair.b.pd.core().create_mw()?;
    let address = pair.b.region.address(0);
    posted("NdkBind", pair.b.qp.bind(1, pair.b.region.mr.core(), mw.core(), address, 64, BOTH)?)?;
    pair.b.initiator_done(1)?;
    let remote = crate::client::Remote { address, token: mw.remote_token()? };
    send(&pair, remote.token, 0)?;
    pair.a.initiator_done(2)?;
    ensure_eq!(pair.b.receive_done(1)?.token, Some(remote.token), "the invalidated token");
    let status = write(&pair, remote, 16)?;
    ensure!(!status.is_success(), "a write with a token that a send has invalidated succeeded");
    HELD
}

fn before_the_receive_completes(s: &Session<'_>) -> Verdict {
    let (pair, fast) = prepared(s)?;
    for _ in 0..200 {
        send(&pair, fast.mr.remote_token()?, 0)?;
        pair.b.receive_done(1)?;
        // Nothing is waited for: whoever sees the receive may use the region again.
        posted("NdkFastRegister", pair.b.qp.fast_register(3, fast.mr.core(), &fast.all(BOTH)?)?)?;
        let done = pair.b.initiated().take_one()?;
        ensure_eq!(done.status, NtStatus::SUCCESS, "a fast registration after the receive that has invalidated");
        let remote = fast.remote(0)?;
        pair.a.initiator_done(2)?;
        ensure_eq!(write(&pair, remote, 16)?, NtStatus::SUCCESS, "a write with the new token");
    }
    HELD
}

/// What the hook of [`before_the_callback`] uses, which is made after it.
struct Stage<'s> {
    qp: Later<'s, QpCore<'s>>,
    fast: Later<'s, MrCore<'s>>,
    mapping: Later<'s, Mapping<'s>>,
    registered: AtomicU32,
}

fn before_the_callback(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let stage =
        s.keep(Stage { qp: Later::new(), fast: Later::new(), mapping: Later::new(), registered: AtomicU32::new(0) })?;
    let hook = s.hook(move |cq, _| {
        let (Some(qp), Some(fast), Some(mapping)) = (stage.qp.get(), stage.fast.get(), stage.mapping.get()) else {
            return Ok(());
        };
        let mut came = 0;
        while cq.poll_each(4, |_| came += 1)? > 0 {}
        if came > 0 {
            let pages = mapping.pages()?;
            let all = FastRegistration { pages, offset: 0, length: PAGE, base: 0, flags: BOTH };
            posted("NdkFastRegister inside the callback", qp.fast_register(3, fast, &all)?)?;
            stage.registered.fetch_add(1, Relaxed);
        }
        cq.arm(ANY)
    })?;
    let pair = Pair::with(s, &Plan::new(), &Plan { on_receive: Some(hook), ..Plan::new() })?;
    let fast = Fast::new(&s.peer_adapter()?, &pair.b, 1, true)?;
    fast.register(&pair.b, BOTH)?;
    stage.qp.set(pair.b.qp.core());
    stage.fast.set(fast.mr.core());
    stage.mapping.set(fast.mapping);
    pair.b.receive_cq.arm(ANY)?;
    for round in 1..=100 {
        send(&pair, fast.mr.remote_token()?, 0)?;
        s.wait("the callback to register again", || stage.registered.load(Relaxed) == round)?;
        // The peer may use the token when the registration is carried out.
        pair.b.initiator_done(3)?;
        pair.a.initiator_done(2)?;
    }
    HELD
}

fn through_the_plain_call(s: &Session<'_>) -> Verdict {
    let (pair, fast) = prepared(s)?;
    let remote = fast.remote(0)?;
    send(&pair, remote.token, 0)?;
    pair.a.initiator_done(2)?;
    s.settle();
    let mut seen = None;
    let count = pair.b.receive_cq.poll_plain(4, |done| seen = Some(done))?;
    ensure_eq!(count, 1, "results of NdkGetCqResults");
    let Some(done) = seen else { fail!("no result") };
    crate::fixture::is_success(&done, 1)?;
    ensure_eq!(done.bytes, 16, "bytes received");
    let status = write(&pair, remote, 16)?;
    ensure!(!status.is_success(), "a write with a token that a send has invalidated succeeded");
    HELD
}

fn type_of_the_sender(s: &Session<'_>) -> Verdict {
    let (pair, fast) = prepared(s)?;
    send(&pair, fast.mr.remote_token()?, 0)?;
    ensure_eq!(pair.a.initiator_done(2)?.kind, Some(Type::SEND), "type of a send-and-invalidate at the sender");
    HELD
}

fn then_locally(s: &Session<'_>) -> Verdict {
    let (pair, fast) = prepared(s)?;
    send(&pair, fast.mr.remote_token()?, 0)?;
    pair.b.receive_done(1)?;
    let status = pair.b.qp.invalidate_mr(3, fast.mr.core(), 0)?;
    let (how, status) = match status.is_success() {
        true => ("by completion", pair.b.initiated().take_one()?.status),
        false => ("inline", status),
    };
    ensure!(!status.is_success(), "what the peer has invalidated was invalidated again");
    observed!("{how} {status}")
}

/// How a send and its receive end; a receive that the abort of the connection leaves posted is flushed (`NDKPI 7.7.6`).
fn outcome(pair: &Pair<'_>, token: u32) -> Check<(NtStatus, NtStatus)> {
    send(pair, token, 0)?;
    let sent = pair.a.initiated().take_one()?.status;
    pair.b.receive_cq.session().settle();
    pair.b.qp.flush()?;
    Ok((sent, pair.b.receive_cq.take_one()?.status))
}

fn bad_token(s: &Session<'_>) -> Verdict {
    let mut seen = (NtStatus::SUCCESS, NtStatus::SUCCESS);
    for index in 0..3 {
        let (pair, fast) = prepared(s)?;
        let token = fast.mr.remote_token()?;
        seen = outcome(&pair, [0, !token, token ^ 1][index])?;
        ensure!(!seen.1.is_success(), "a receive with a token to invalidate that is none succeeded");
        let status = write(&pair, fast.remote(0)?, 16)?;
        ensure!(!status.is_success(), "the connection goes on after a bad token to invalidate");
    }
    observed!("the send ends with {}, the receive with {}", seen.0, seen.1)
}

fn plain_region(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let pair = Pair::new(s)?;
    let (sent, received) = outcome(&pair, pair.b.region.remote())?;
    observed!("the send ends with {sent}, the receive with {received}")
}

fn token_of_another_domain(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V1_2)?;
    let (attacker, owner) = (Pair::new(s)?, Pair::new(s)?);
    let fast = Fast::new(&s.peer_adapter()?, &owner.b, 1, true)?;
    fast.register(&owner.b, BOTH)?;
    let remote = fast.remote(0)?;
    let (_, status) = outcome(&attacker, remote.token)?;
    ensure!(!status.is_success(), "a send has invalidated a region of another domain");
    ensure_eq!(write(&owner, remote, 16)?, NtStatus::SUCCESS, "a write to the region that is still registered");
    observed!("the receive ends with {status}")
}

fn with_flags(s: &Session<'_>) -> Verdict {
    s.need_inline(4)?;
    let (pair, fast) = prepared(s)?;
    let token = fast.mr.remote_token()?;
    pair.b.receive_cq.arm(SOLICITED)?;
    pair.b.receive(1, 0, 64)?;
    let status = pair.a.qp.send_and_invalidate_inline(2, &[b"gone"], SILENT | SOLICIT, token)?;
    posted("NdkSendAndInvalidate", status)?;
    let done = pair.b.receive_done(1)?;
    ensure_eq!((done.token, done.bytes), (Some(token), 4), "the invalidated token, and the bytes received");
    pair.b.receive_cq.wait_callbacks(1)?;
    pair.a.initiated().stays_empty()?;
    HELD
}
