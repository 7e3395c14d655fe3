//! Calls in a wrong order, and objects where they do not belong. A provider refuses them and goes on.

use core::net::SocketAddr;

use ndkpi::NtStatus;

use super::common::refused;
use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{Connector, OnDisconnect, Pending, RawAddress, Session},
    fixture::{Pair, Plan, QP_A, Side, Terms, listen},
    platform::Family,
};

pub const CASES: &[Case] = &[
    Case::new(
        "bad-input.connections-out-of-order",
        "NDKPI 7.7",
        "Asks, accepts, rejects, completes and disconnects before there is a connection; accepts twice; completes twice.",
        "All of it fails, and the connection comes about.",
        connections_out_of_order,
    ),
    Case::new(
        "bad-input.listen-twice-over-one-listener",
        "NDKPI 5.9",
        "Lets a listener that listens listen again, at another port.",
        "It fails, and the listener listens where it did.",
        listen_twice_over_one_listener,
    ),
    Case::new(
        "bad-input.malformed-local-addresses",
        "NDKPI 5.9",
        "Listens at null, short and unknown addresses, and makes shared endpoints of them.",
        "It fails, and the listener listens afterwards.",
        malformed_local_addresses,
    ),
    Case::new(
        "bad-input.queue-pair-of-another-adapter",
        "NDKPI 7.9",
        "Connects and accepts with a queue pair of another adapter than the connector's.",
        "It fails. Open: the statuses.",
        queue_pair_of_another_adapter,
    ),
    Case::new(
        "bad-input.objects-of-another-kind",
        "NDKPI 5.7",
        "Binds a completion queue to a protection domain, and invalidates a completion queue.",
        "It fails, and the queue pair goes on. Open: the statuses.",
        objects_of_another_kind,
    ),
];

/// Like [`fails`], whatever the status.
fn must_fail(what: &str, pending: &Pending<'_>) -> Check {
    fails(what, pending).map(|_| ())
}

/// Like [`refused`], whatever the status.
fn must_be_refused(what: &str, status: NtStatus) -> Check {
    refused(what, status).map(|_| ())
}

/// Waits for the end of a request that must fail.
fn fails(what: &str, pending: &Pending<'_>) -> Check<NtStatus> {
    refused(what, pending.wait()?)
}

fn connector_at<'s>(s: &'s Session<'s>) -> Check<(Connector<'s>, SocketAddr)> {
    let adapter = s.adapter()?;
    Ok((adapter.create_connector()?, s.address(adapter.number(), Family::V4, 0)?))
}

fn connections_out_of_order(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let (listener, address) = listen(s, Family::V4)?;
    let (active, from) = connector_at(s)?;
    let terms = Terms::new();
    ensure!(!active.connection_data_length()?.0.is_success(), "there is connection data before a connect");
    ensure!(!active.local_address(Some(28))?.status.is_success(), "there is a local address before a connect");
    ensure!(!active.peer_address(Some(28))?.status.is_success(), "there is a peer's address before a connect");
    must_fail("a completion of nothing", &active.core().complete_connect(OnDisconnect::Count)?)?;
    must_fail("an accept of nothing", &active.core().accept(a.qp.core(), &terms.b, OnDisconnect::Count)?)?;
    must_be_refused("a reject of nothing", active.core().reject(&[])?)?;
    must_fail("a disconnect of nothing", &active.core().disconnect()?)?;
    let connecting = active.core().connect(a.qp.core(), from, address, &terms.a)?;
    let passive = listener.take()?;
    must_fail("a second connect", &active.core().connect(a.qp.core(), from, address, &terms.a)?)?;
    must_fail("a completion before the answer", &active.core().complete_connect(OnDisconnect::Count)?)?;
    must_fail("a disconnect before the accept", &passive.core().disconnect()?)?;
    let accepting = passive.core().accept(b.qp.core(), &terms.b, OnDisconnect::Count)?;
    must_fail("a second accept", &passive.core().accept(b.qp.core(), &terms.b, OnDisconnect::Count)?)?;
    must_be_refused("a reject after the accept", passive.core().reject(&[])?)?;
    connecting.succeeds()?;
    active.core().complete_connect(OnDisconnect::Count)?.succeeds()?;
    accepting.succeeds()?;
    must_fail("a second completion", &active.core().complete_connect(OnDisconnect::Count)?)?;
    must_be_refused("a reject of a connection", active.core().reject(&[])?)?;
    b.receive(1, 0, 64)?;
    a.send(2, 0, 16, 0)?;
    a.initiator_done(2)?;
    b.receive_done(1)?;
    HELD
}

fn listen_twice_over_one_listener(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let (listener, address) = listen(s, Family::V4)?;
    let again = SocketAddr::new(address.ip(), 0);
    must_fail("a second NdkListen", &listener.core().listen(again)?)?;
    ensure_eq!(listener.address()?, address, "where the listener listens");
    HELD
}

fn malformed_local_addresses(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let adapter = s.adapter()?;
    let at = s.address(adapter.number(), Family::V4, 0)?;
    let (listener, good) = (adapter.create_listener(None)?, RawAddress::new(at));
    for bad in [good.null(), good.with_length(0), good.with_length(15), good.with_family(77), good.with_family(0)] {
        must_fail("NdkListen", &listener.core().listen(bad)?)?;
        if adapter.try_create_shared_endpoint(&bad)?.is_ok() {
            fail!("a shared endpoint of {bad:?} was made");
        }
    }
    listener.core().listen(at)?.succeeds()?;
    HELD
}

fn queue_pair_of_another_adapter(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    s.need_one_machine()?;
    let (here, elsewhere) = (s.adapter()?, s.second_adapter()?);
    let foreign = Side::new(&elsewhere, &Plan::new(), QP_A)?;
    let own = Side::new(&here, &Plan::new(), QP_A)?;
    let listener = here.create_listener(None)?;
    listener.core().listen(s.address(here.number(), Family::V4, 0)?)?.succeeds()?;
    let address = listener.address()?;
    let (connector, from) = connector_at(s)?;
    let terms = Terms::new();
    let connect = fails("a connect", &connector.core().connect(foreign.qp.core(), from, address, &terms.a)?)?;
    if !here.has(ndkpi::NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED) {
        return observed!("connect: {connect}");
    }
    let connecting = connector.core().connect(own.qp.core(), from, address, &terms.a)?;
    let passive = listener.take()?;
    let accept = fails("an accept", &passive.core().accept(foreign.qp.core(), &terms.b, OnDisconnect::Count)?)?;
    passive.close()?;
    connecting.ends_with(NtStatus::CONNECTION_REFUSED)?;
    observed!("connect: {connect}, accept: {accept}")
}

fn objects_of_another_kind(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let pair = Pair::new(s)?;
    let (cq, pd) = (pair.b.receive_cq.life(), pair.b.pd.life());
    let bind = refused("a bind", pair.b.qp.bind_any(1, cq, pd)?)?;
    let invalidate = refused("an invalidation", pair.b.qp.invalidate_any(2, cq)?)?;
    pair.deliver(3, false)?;
    pair.b.receive_done(3)?;
    observed!("bind: {bind}, invalidate: {invalidate}")
}
