//! Local addresses: listeners, shared endpoints, and who may have them (`NDKPI 5.9`, `NDKPI 7.8`).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use ndkpi::NtStatus;

use crate::{
    case::{Case, Check, HELD, Stop, Verdict},
    client::{Connector, OnDisconnect, RawAddress, Session, SharedEndpoint},
    fixture::{Pair, Plan, Side, Terms, listen},
    platform::Family,
};

/// The ports from which a provider picks (`NDKPI 7.7.1`).
const EPHEMERAL: core::ops::RangeInclusive<u16> = 49152..=65535;

pub const CASES: &[Case] = &[
    Case::new(
        "endpoint.listen-picks-a-port",
        "NDKPI 5.9",
        "Listens at port 0.",
        "A port from 49152-65535, which NdkGetLocalAddress tells.",
        listen_picks_a_port,
    ),
    Case::new(
        "endpoint.listen-twice-at-one-port",
        "NDKPI 7.8",
        "Listens at the address and port of another listener; closes that one and listens again.",
        "STATUS_SHARING_VIOLATION, then success.",
        listen_twice_at_one_port,
    ),
    Case::new(
        "endpoint.listen-elsewhere",
        "NDKPI 5.9",
        "Listens at an address that the adapter does not have.",
        "STATUS_INVALID_ADDRESS.",
        listen_elsewhere,
    ),
    Case::new(
        "endpoint.listen-ipv6",
        "NDKPI 7.8",
        "Listens at an IPv6 address, and asks for it with buffers of 16 and 28 bytes.",
        "STATUS_BUFFER_TOO_SMALL with 28, then the address.",
        listen_ipv6,
    ),
    //= NDKPI 7.8.1
    Case::new(
        "endpoint.port-stays-in-use",
        "NDKPI 7.8",
        "Closes a listener while a connection over it is open, and listens at its port; then closes the connection.",
        "STATUS_SHARING_VIOLATION, then success.",
        port_stays_in_use,
    ),
    Case::new(
        "endpoint.shared-address",
        "NDKPI 5.9",
        "Makes a shared endpoint at port 0 and asks for its address.",
        "A port from 49152-65535.",
        shared_address,
    ),
    Case::new(
        "endpoint.shared-in-use",
        "NDKPI 5.2",
        "Makes a shared endpoint at the port of a listener, and one at the port of another.",
        "STATUS_SHARING_VIOLATION.",
        shared_in_use,
    ),
    Case::new(
        "endpoint.shared-elsewhere",
        "NDKPI 5.2",
        "Makes a shared endpoint at an address that the adapter does not have.",
        "STATUS_INVALID_ADDRESS.",
        shared_elsewhere,
    ),
    //= NDKPI 7.8.3
    Case::new(
        "endpoint.shared-serves-many",
        "NDKPI 7.8",
        "Connects twice from one shared endpoint, to different listeners.",
        "Both connect, from the same local address.",
        shared_serves_many,
    ),
    Case::new(
        "endpoint.shared-same-remote",
        "NDKPI 5.8",
        "Connects twice from one shared endpoint to the same listener.",
        "STATUS_ADDRESS_ALREADY_EXISTS the second time.",
        shared_same_remote,
    ),
    //= NDKPI 7.8.3
    Case::new(
        "endpoint.shared-close-pends",
        "NDKPI 7.8",
        "Closes a shared endpoint while a connector over it is open.",
        "The close completes when the connector is closed; the port is in use until then.",
        shared_close_pends,
    ),
];

fn shared<'s>(s: &'s Session<'s>, at: SocketAddr) -> Check<Result<SharedEndpoint<'s>, NtStatus>> {
    s.adapter()?.try_create_shared_endpoint(&RawAddress::new(at))
}

fn must(endpoint: Result<SharedEndpoint<'_>, NtStatus>) -> Check<SharedEndpoint<'_>> {
    endpoint.map_err(|status| Stop::status("NdkCreateSharedEndpoint", status))
}

fn any_port(s: &Session<'_>) -> Check<SocketAddr> {
    s.address(s.adapter()?.number(), Family::V4, 0)
}

const fn foreign() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)), 0)
}

fn listen_picks_a_port(s: &Session<'_>) -> Verdict {
    let (first, second) = (listen(s, Family::V4)?, listen(s, Family::V4)?);
    for address in [first.1, second.1] {
        ensure!(EPHEMERAL.contains(&address.port()), "the provider picked port {}", address.port());
    }
    ensure!(first.1 != second.1, "two listeners have the address {}", first.1);
    HELD
}

fn listen_twice_at_one_port(s: &Session<'_>) -> Verdict {
    let (first, address) = listen(s, Family::V4)?;
    let second = s.peer_adapter()?.create_listener(None)?;
    second.core().listen(address)?.ends_with(NtStatus::SHARING_VIOLATION)?;
    first.close()?;
    second.core().listen(address)?.succeeds()?;
    HELD
}

fn listen_elsewhere(s: &Session<'_>) -> Verdict {
    let listener = s.adapter()?.create_listener(None)?;
    listener.core().listen(foreign())?.ends_with(NtStatus::INVALID_ADDRESS)?;
    listener.core().listen(any_port(s)?)?.succeeds()?;
    HELD
}

fn listen_ipv6(s: &Session<'_>) -> Verdict {
    let (listener, _) = listen(s, Family::V6)?;
    let short = listener.local_address(Some(16))?;
    ensure_eq!(short.status, NtStatus::BUFFER_TOO_SMALL, "NdkGetLocalAddress with 16 bytes for an IPv6 address");
    ensure_eq!(short.length, 28, "length stored");
    ensure!(!short.overran, "bytes behind the buffer were written");
    ensure_eq!(listener.local_address(Some(28))?.status, NtStatus::SUCCESS, "NdkGetLocalAddress with 28 bytes");
    HELD
}

fn port_stays_in_use(s: &Session<'_>) -> Verdict {
    let Pair { link, a, b } = Pair::new(s)?;
    let address = link.listener.address()?;
    let closing = link.listener.start_close()?;
    let other = s.peer_adapter()?.create_listener(None)?;
    other.core().listen(address)?.ends_with(NtStatus::SHARING_VIOLATION)?;
    link.b.close()?;
    closing.wait()?;
    other.core().listen(address)?.succeeds()?;
    drop((link.a, a, b));
    HELD
}

fn shared_address(s: &Session<'_>) -> Verdict {
    let endpoint = must(shared(s, any_port(s)?)?)?;
    let answer = endpoint.local_address(Some(28))?;
    ensure_eq!(answer.status, NtStatus::SUCCESS, "NdkGetLocalAddress");
    let port = answer.address.map_or(0, |address| address.port());
    ensure!(EPHEMERAL.contains(&port), "the provider picked port {port}");
    ensure_eq!(endpoint.local_address(Some(15))?.status, NtStatus::BUFFER_TOO_SMALL, "with 15 bytes");
    ensure_eq!(endpoint.local_address(None)?.status, NtStatus::BUFFER_TOO_SMALL, "without a buffer");
    HELD
}

fn address_of(endpoint: &SharedEndpoint<'_>) -> Check<SocketAddr> {
    let answer = endpoint.local_address(Some(28))?;
    answer.address.ok_or_else(|| Stop::status("NdkGetLocalAddress of the endpoint", answer.status))
}

fn shared_in_use(s: &Session<'_>) -> Verdict {
    let listener = s.adapter()?.create_listener(None)?;
    listener.core().listen(any_port(s)?)?.succeeds()?;
    let first = must(shared(s, any_port(s)?)?)?;
    for taken in [listener.address()?, address_of(&first)?] {
        match shared(s, taken)? {
            Ok(_) => fail!("two have the address {taken}"),
            Err(status) => ensure_eq!(status, NtStatus::SHARING_VIOLATION, "a shared endpoint at {taken}"),
        }
    }
    HELD
}

fn shared_elsewhere(s: &Session<'_>) -> Verdict {
    match shared(s, foreign())? {
        Ok(_) => fail!("a shared endpoint at an address of nobody"),
        Err(status) => ensure_eq!(status, NtStatus::INVALID_ADDRESS, "NdkCreateSharedEndpoint"),
    }
    HELD
}

/// Two sides that are connected from a shared endpoint.
struct FromShared<'s> {
    a: Side<'s>,
    b: Side<'s>,
    active: Connector<'s>,
    passive: Connector<'s>,
}

fn connect_from<'s>(
    s: &'s Session<'s>,
    endpoint: &SharedEndpoint<'s>,
    listener: &crate::client::Listener<'s>,
) -> Check<FromShared<'s>> {
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let active = s.adapter()?.create_connector()?;
    let offer = Terms::new().a;
    let connecting = active.core().connect_shared(a.qp.core(), endpoint.core(), listener.address()?, &offer)?;
    let passive = listener.take()?;
    let accepting = passive.core().accept(b.qp.core(), &offer, OnDisconnect::Count)?;
    connecting.succeeds()?;
    active.core().complete_connect(OnDisconnect::Count)?.succeeds()?;
    accepting.succeeds()?;
    b.receive(1, 0, 64)?;
    a.send(1, 0, 16, 0)?;
    b.receive_done(1)?;
    a.initiator_done(1)?;
    Ok(FromShared { a, b, active, passive })
}

fn shared_serves_many(s: &Session<'_>) -> Verdict {
    let endpoint = must(shared(s, any_port(s)?)?)?;
    let ((one, _), (other, _)) = (listen(s, Family::V4)?, listen(s, Family::V4)?);
    let (first, second) = (connect_from(s, &endpoint, &one)?, connect_from(s, &endpoint, &other)?);
    let own = address_of(&endpoint)?;
    for connection in [&first, &second] {
        ensure_eq!(connection.active.core().local()?, own, "local address of a connector over the endpoint");
        ensure_eq!(connection.passive.core().peer()?, own, "peer address of the passive side");
    }
    HELD
}

fn shared_same_remote(s: &Session<'_>) -> Verdict {
    let endpoint = must(shared(s, any_port(s)?)?)?;
    let (listener, address) = listen(s, Family::V4)?;
    let first = connect_from(s, &endpoint, &listener)?;
    let side = Side::new(&s.adapter()?, &Plan::new(), 3)?;
    let connector = s.adapter()?.create_connector()?;
    let offer = Terms::new().a;
    let connecting = connector.core().connect_shared(side.qp.core(), endpoint.core(), address, &offer)?;
    connecting.ends_with(NtStatus::ADDRESS_ALREADY_EXISTS)?;
    drop(first);
    HELD
}

fn shared_close_pends(s: &Session<'_>) -> Verdict {
    let endpoint = must(shared(s, any_port(s)?)?)?;
    let own = address_of(&endpoint)?;
    let (listener, _) = listen(s, Family::V4)?;
    let FromShared { a, b, active, passive } = connect_from(s, &endpoint, &listener)?;
    let closing = endpoint.start_close()?;
    s.settle();
    ensure!(!closing.is_done(), "the endpoint's close completed while a connector over it is open");
    if shared(s, own)?.is_ok() {
        fail!("the address {own} was given out again while a connector uses it");
    }
    active.close()?;
    closing.wait()?;
    must(shared(s, own)?)?.close()?;
    drop((a, b, passive));
    HELD
}
