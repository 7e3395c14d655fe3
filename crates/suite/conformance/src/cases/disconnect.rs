//! Ending connections (`NDKPI 7.7.5` to `7.7.7`).

use ndkpi::NtStatus;

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{ConnectorCore, DisconnectHook, OnDisconnect, Remote, Session},
    fixture::{Pair, Plan, Terms, is_done},
};

pub const CASES: &[Case] = &[
    //= NDKPI 7.7.5
    Case::new(
        "disconnect.graceful",
        "NDKPI 7.7.5",
        "Disconnects one side of an idle connection.",
        "Success; one event at the other side, none at this one.",
        graceful,
    ),
    Case::new(
        "disconnect.both-sides",
        "NDKPI 7.7.5",
        "Disconnects one side, then the other.",
        "Success for both.",
        both_sides,
    ),
    Case::new(
        "disconnect.at-the-same-time",
        "NDKPI 7.7.6",
        "Begins to disconnect both sides before either is done; several times.",
        "Both requests complete, no side gets more than one event.",
        at_the_same_time,
    ),
    //= NDKPI 7.2.6
    Case::new(
        "disconnect.flushes-own-receives",
        "NDKPI 7.7.5",
        "Posts receives and disconnects.",
        "They complete with STATUS_CANCELLED, in order.",
        flushes_own_receives,
    ),
    //= NDKPI 7.2.6
    //= NDKPI 7.7.6
    Case::new(
        "disconnect.incoming-does-not-flush",
        "NDKPI 7.7.6",
        "Posts receives, and the peer disconnects.",
        "Nothing completes before the consumer flushes; then all do, with STATUS_CANCELLED.",
        incoming_does_not_flush,
    ),
    //= NDKPI 7.7.6
    Case::new(
        "disconnect.abort-does-not-flush",
        "NDKPI 7.7.6",
        "Posts receives, and the peer closes its connector.",
        "The event comes, nothing completes before the consumer disconnects.",
        abort_does_not_flush,
    ),
    Case::new(
        "disconnect.posts-afterwards",
        "NDKPI 5.7",
        "Posts each kind of request after a disconnect.",
        "STATUS_CONNECTION_INVALID.",
        posts_afterwards,
    ),
    Case::new(
        "disconnect.posts-after-the-peers",
        "NDKPI 5.7",
        "Waits for the event of the peer's disconnect and posts a send.",
        "STATUS_CONNECTION_INVALID, or a completion that is no success.",
        posts_after_the_peers,
    ),
    //= NDKPI 7.7.5
    Case::new(
        "disconnect.carries-out-what-was-posted",
        "NDKPI 7.7.5",
        "Posts ten silent writes and disconnects.",
        "When the disconnect completes all their bytes are at the peer.",
        carries_out_what_was_posted,
    ),
    //= NDKPI 7.7.5
    Case::new(
        "disconnect.nothing-left-to-wait-for",
        "NDKPI 7.7.5",
        "Posts a send for which the peer has no receive, and disconnects both sides.",
        "Both requests complete, neither with STATUS_IO_TIMEOUT; the send does not succeed.",
        nothing_left_to_wait_for,
    ),
    //= NDKPI 7.7.7
    Case::new(
        "disconnect.close-aborts",
        "NDKPI 7.7.7",
        "Closes the connector of a connection without disconnecting.",
        "One event at the other side, none at this one; the close completes.",
        close_aborts,
    ),
    Case::new(
        "disconnect.without-event",
        "NDKPI 7.7.6",
        "Establishes a connection without disconnect events, and closes one side.",
        "Nothing is called, and the other side can be closed.",
        without_event,
    ),
    //= NDKPI 7.2.7
    Case::new(
        "disconnect.failure-is-told-to-both",
        "NDKPI 7.7.6",
        "Writes with a token that does not exist.",
        "The write fails, and both sides get one event.",
        failure_is_told_to_both,
    ),
    //= NDKPI 7.9.3
    //= NDKPI 7.9.4
    Case::new(
        "disconnect.close-inside-the-event",
        "NDKPI 7.9",
        "Closes the connector inside its disconnect event.",
        "The close completes after the event has returned.",
        close_inside_the_event,
    ),
    Case::new(
        "disconnect.disconnect-inside-the-event",
        "NDKPI 7.7.5",
        "Disconnects inside the disconnect event, as consumers do.",
        "The request completes.",
        disconnect_inside_the_event,
    ),
    Case::new(
        "disconnect.never-connected",
        "NDKPI 9",
        "Disconnects a connector that was never connected.",
        "A failure; which is open.",
        never_connected,
    ),
    Case::new(
        "disconnect.twice",
        "NDKPI 9",
        "Disconnects a connector twice.",
        "The second time a failure or a success; which is open.",
        twice,
    ),
];

fn graceful(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.link.a.core().disconnect()?.succeeds()?;
    pair.link.b.wait_disconnect()?;
    pair.link.b.stays_at_disconnects(1)?;
    pair.link.a.stays_at_disconnects(0)?;
    HELD
}

fn both_sides(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.link.b.core().disconnect()?.succeeds()?;
    pair.link.a.wait_disconnect()?;
    pair.link.a.core().disconnect()?.succeeds()?;
    pair.link.b.stays_at_disconnects(0)?;
    HELD
}

fn at_the_same_time(s: &Session<'_>) -> Verdict {
    for _ in 0..8 {
        let pair = Pair::new(s)?;
        let (first, second) = (pair.link.a.core().disconnect()?, pair.link.b.core().disconnect()?);
        for status in [first.wait()?, second.wait()?] {
            let allowed = [NtStatus::SUCCESS, NtStatus::CONNECTION_ABORTED, NtStatus::CONNECTION_INVALID];
            ensure!(allowed.contains(&status), "a disconnect ended with {status}");
        }
        s.settle();
        ensure!(pair.link.a.disconnects() <= 1, "{} events at the active side", pair.link.a.disconnects());
        ensure!(pair.link.b.disconnects() <= 1, "{} events at the passive side", pair.link.b.disconnects());
    }
    HELD
}

/// Looks that these receives of a side complete as cancelled, in order.
fn all_cancelled(pair: &Pair<'_>, contexts: core::ops::Range<usize>) -> Check {
    for context in contexts {
        is_done(&pair.b.receive_cq.take_one()?, context, NtStatus::CANCELLED)?;
    }
    pair.b.receive_cq.stays_empty()
}

fn flushes_own_receives(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for context in 0..5 {
        pair.b.receive(context, 0, 64)?;
    }
    pair.link.b.core().disconnect()?.succeeds()?;
    all_cancelled(&pair, 0..5)?;
    HELD
}

fn incoming_does_not_flush(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for context in 0..5 {
        pair.b.receive(context, 0, 64)?;
    }
    pair.link.a.core().disconnect()?.succeeds()?;
    pair.link.b.wait_disconnect()?;
    pair.b.receive_cq.stays_empty()?;
    pair.b.qp.flush()?;
    all_cancelled(&pair, 0..5)?;
    HELD
}

fn abort_does_not_flush(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    for context in 0..5 {
        pair.b.receive(context, 0, 64)?;
    }
    let Pair { link, a, b } = pair;
    link.a.close()?;
    link.b.wait_disconnect()?;
    b.receive_cq.stays_empty()?;
    // The connection is gone: whatever the disconnect says, it flushes.
    let _ = link.b.core().disconnect()?.wait()?;
    for context in 0..5 {
        is_done(&b.receive_cq.take_one()?, context, NtStatus::CANCELLED)?;
    }
    drop(a);
    HELD
}

fn posts_afterwards(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (mr, mw) = (pair.a.pd.core().create_mr(true)?, pair.a.pd.core().create_mw()?);
    pair.link.a.core().disconnect()?.succeeds()?;
    let (qp, list) = (&pair.a.qp, [pair.a.region.element(0, 8)]);
    let remote = pair.b.remote(0);
    for (what, status) in [
        ("NdkSend", qp.send(1, &list, 0)?),
        ("NdkWrite", qp.write(2, &list, remote, 0)?),
        ("NdkRead", qp.read(3, &list, remote, 0)?),
        ("NdkSend, inline", qp.send_inline(4, &[b"1234"], 0)?),
        ("NdkInvalidate", qp.invalidate_mw(5, &mw, 0)?),
        ("NdkBind", qp.bind(6, &mr, &mw, pair.a.region.address(0), 8, 0)?),
    ] {
        ensure_eq!(status, NtStatus::CONNECTION_INVALID, "{what} on a disconnected queue pair");
    }
    pair.a.initiated().stays_empty()?;
    HELD
}

fn posts_after_the_peers(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.link.a.core().disconnect()?.succeeds()?;
    pair.link.b.wait_disconnect()?;
    let status = pair.b.qp.send(1, &[pair.b.region.element(0, 8)], 0)?;
    if status == NtStatus::SUCCESS {
        let done = pair.b.initiated().take_one()?;
        ensure!(!done.status.is_success(), "a send without a peer succeeded: {done:?}");
    } else {
        ensure_eq!(status, NtStatus::CONNECTION_INVALID, "NdkSend after the peer's disconnect");
    }
    HELD
}

fn carries_out_what_was_posted(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.a.region.buffer.fill_pattern(0, 5000, 9)?;
    pair.b.region.buffer.fill(0, 5000, 0)?;
    for part in 0..10_u32 {
        let offset = isize::try_from(part * 500).unwrap_or(0);
        pair.a.write(part as usize, offset, 500, pair.b.remote(offset), ndkpi::NDK_OP_FLAG_SILENT_SUCCESS)?;
    }
    pair.link.a.core().disconnect()?.succeeds()?;
    pair.b.region.buffer.has_pattern(0, 5000, 9)?;
    HELD
}

fn nothing_left_to_wait_for(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.a.send(1, 0, 8, 0)?;
    let (first, second) = (pair.link.a.core().disconnect()?, pair.link.b.core().disconnect()?);
    for status in [first.wait()?, second.wait()?] {
        // A provider whose receiver was not ready in time has ended the connection.
        let allowed = [NtStatus::SUCCESS, NtStatus::CONNECTION_ABORTED, NtStatus::CONNECTION_INVALID];
        ensure!(allowed.contains(&status), "a disconnect ended with {status}");
    }
    let done = pair.a.initiated().take_one()?;
    ensure!(!done.status.is_success(), "a send without a receive succeeded");
    HELD
}

fn close_aborts(s: &Session<'_>) -> Verdict {
    let Pair { link, a, b } = Pair::new(s)?;
    let closed = link.a.core();
    link.a.close()?;
    link.b.wait_disconnect()?;
    link.b.stays_at_disconnects(1)?;
    ensure_eq!(closed.disconnects(), 0, "events at the side that closed");
    drop((a, b));
    HELD
}

fn without_event(s: &Session<'_>) -> Verdict {
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let terms = Terms { on_a: OnDisconnect::Nothing, on_b: OnDisconnect::Nothing, ..Terms::new() };
    let Pair { link, a, b } = Pair::join(s, a, b, &terms)?;
    link.b.close()?;
    s.settle();
    ensure_eq!(link.a.disconnects(), 0, "events, though no callback was given");
    link.a.close()?;
    drop((a, b));
    HELD
}

fn failure_is_told_to_both(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let nowhere = Remote { token: pair.b.region.remote() ^ 0xFF, ..pair.b.remote(0) };
    pair.a.write(1, 0, 8, nowhere, 0)?;
    let done = pair.a.initiated().take_one()?;
    ensure!(!done.status.is_success(), "a write with a wrong token succeeded");
    pair.link.a.wait_disconnect()?;
    pair.link.b.wait_disconnect()?;
    pair.link.a.stays_at_disconnects(1)?;
    pair.link.b.stays_at_disconnects(1)?;
    HELD
}

fn close_inside_the_event<'s>(s: &'s Session<'s>) -> Verdict {
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let close = s.keep(|connector: &'s ConnectorCore<'s>| {
        let closing = connector.life().close_within(0)?;
        ensure!(!closing.is_done(), "a close completed while a callback of the connector runs");
        Ok(())
    })?;
    let hook = s.keep(close as DisconnectHook<'s>)?;
    let terms = Terms { on_b: OnDisconnect::Do(hook), ..Terms::new() };
    let Pair { link, a, b } = Pair::join(s, a, b, &terms)?;
    link.a.close()?;
    s.wait("the close that was begun inside the event (NDKPI 7.9)", || link.b.life().is_closed())?;
    drop((a, b));
    HELD
}

fn disconnect_inside_the_event<'s>(s: &'s Session<'s>) -> Verdict {
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let disconnect = s.keep(|connector: &'s ConnectorCore<'s>| {
        let pending = connector.disconnect()?;
        if let Some(status) = pending.outcome() {
            ensure_eq!(status, NtStatus::SUCCESS, "NdkDisconnect inside the event");
        }
        Ok(())
    })?;
    let hook = s.keep(disconnect as DisconnectHook<'s>)?;
    let terms = Terms { on_b: OnDisconnect::Do(hook), ..Terms::new() };
    let pair = Pair::join(s, a, b, &terms)?;
    pair.link.a.core().disconnect()?.succeeds()?;
    pair.link.b.wait_disconnect()?;
    s.settle();
    HELD
}

fn never_connected(s: &Session<'_>) -> Verdict {
    let connector = s.adapter()?.create_connector()?;
    let status = connector.core().disconnect()?.wait()?;
    ensure!(!status.is_success(), "a connector that was never connected was disconnected");
    observed!("disconnect without a connection: {status}")
}

fn twice(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.link.a.core().disconnect()?.succeeds()?;
    let status = pair.link.a.core().disconnect()?.wait()?;
    observed!("a second disconnect: {status}")
}
