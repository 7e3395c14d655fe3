//! Establishing connections (`NDKPI 5.8`, `NDKPI 7.7.1` to `7.7.4`, `NDKPI 7.7.8`).

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use ndkpi::{NDK_VERSION, NtStatus};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{Connector, Offer, OnDisconnect, RawAddress, Session},
    fixture::{Link, Pair, Plan, QP_A, Side, Terms, listen},
    platform::Family,
};

/// The ports from which a provider picks (`NDKPI 7.7.1`).
const EPHEMERAL: core::ops::RangeInclusive<u16> = 49152..=65535;

pub const CASES: &[Case] = &[
    Case::new("connect.ipv4", "NDKPI 7.7.1", "Connects over IPv4 and sends a message each way.", "Both arrive.", ipv4),
    //= NDKPI 7.8.3
    Case::new("connect.ipv6", "NDKPI 7.8", "Connects over IPv6 and sends a message each way.", "Both arrive.", ipv6),
    Case::new(
        "connect.addresses",
        "NDKPI 5.8",
        "Asks both connectors of a connection for their addresses.",
        "What is local for one is the peer's for the other; the active side's port was picked from 49152-65535.",
        addresses,
    ),
    Case::new(
        "connect.address-buffer",
        "NDKPI 5.8",
        "Asks for addresses with buffers of every size up to 28 bytes, and without one.",
        "STATUS_BUFFER_TOO_SMALL with the size that is needed, nothing behind the buffer written.",
        address_buffer,
    ),
    Case::new(
        "connect.no-listener",
        "NDKPI 5.8",
        "Connects to a port at which nobody listens any more; then listens there and connects again.",
        "STATUS_CONNECTION_REFUSED, and the same connector and queue pair connect the second time.",
        no_listener,
    ),
    Case::new(
        "connect.foreign-local-address",
        "NDKPI 5.8",
        "Connects from an address that the adapter does not have.",
        "STATUS_INVALID_ADDRESS.",
        foreign_local_address,
    ),
    Case::new(
        "connect.local-port-in-use",
        "NDKPI 5.8",
        "Connects from the port of a listener of the same adapter.",
        "STATUS_SHARING_VIOLATION.",
        local_port_in_use,
    ),
    Case::new(
        "connect.unreachable",
        "NDKPI 5.8",
        "Connects to an address of a network that nobody is in.",
        "STATUS_NETWORK_UNREACHABLE, STATUS_HOST_UNREACHABLE or STATUS_IO_TIMEOUT.",
        unreachable,
    ),
    Case::new(
        "connect.malformed-address",
        "NDKPI 5.8",
        "Connects with null, short and unknown addresses.",
        "A failure, and the connector connects afterwards.",
        malformed_address,
    ),
    Case::new(
        "connect.timeouts",
        "NDKPI 5.8",
        "Leaves a connection request without an answer, and an accepted connection without its completion.",
        "The connect ends with STATUS_IO_TIMEOUT, and so does the accept.",
        timeouts,
    ),
    //= NDKPI 7.7.2
    Case::new(
        "connect.accept-pends",
        "NDKPI 7.7.2",
        "Accepts, and completes the connect later.",
        "The accept completes when the connect is completed, not before.",
        accept_pends,
    ),
    //= NDKPI 7.7.2
    Case::new(
        "connect.rejected",
        "NDKPI 7.7.2",
        "Rejects a connection request.",
        "The connect ends with STATUS_CONNECTION_REFUSED, and can be tried again.",
        rejected,
    ),
    Case::new(
        "connect.rejected-by-close",
        "NDKPI 7.7.2",
        "Closes the connector of a connection request.",
        "The connect ends with STATUS_CONNECTION_REFUSED.",
        rejected_by_close,
    ),
    Case::new(
        "connect.rejected-by-active-side",
        "NDKPI 7.7.1",
        "Rejects the connection after it was accepted, instead of completing the connect.",
        "The accept ends with STATUS_CONNECTION_ABORTED.",
        rejected_by_active_side,
    ),
    //= NDKPI 7.7.1
    Case::new(
        "connect.active-side-gives-up",
        "NDKPI 5.8",
        "Closes the active connector after the connection was accepted.",
        "The accept ends with STATUS_CONNECTION_ABORTED.",
        active_side_gives_up,
    ),
    Case::new(
        "connect.passive-side-gives-up",
        "NDKPI 5.8",
        "Closes the passive connector after it has accepted, then completes the connect.",
        "STATUS_CONNECTION_ABORTED.",
        passive_side_gives_up,
    ),
    //= NDKPI 7.7.2
    Case::new(
        "connect.rejected-after-the-peer-gave-up",
        "NDKPI 5.8",
        "Rejects after the other side has given up: a request whose active side has closed its connector, before and after the \
         accept, and an accept whose passive side has closed its connector.",
        "STATUS_CONNECTION_ABORTED.",
        rejected_after_the_peer_gave_up,
    ),
    Case::new(
        "connect.complete-without-connect",
        "NDKPI 5.8",
        "Completes a connect that was not begun.",
        "STATUS_CONNECTION_INVALID.",
        complete_without_connect,
    ),
    //= NDKPI 7.7.4
    Case::new(
        "connect.private-data",
        "NDKPI 7.7.4",
        "Sends private data with the connect and with the accept.",
        "Each side reads what the other gave.",
        private_data,
    ),
    //= NDKPI 7.7.4
    Case::new(
        "connect.private-data-sizes",
        "NDKPI 7.7.4",
        "Reads private data without a buffer, with too small ones and with a larger one.",
        "RDS in every case; the bytes that fit, with STATUS_BUFFER_TOO_SMALL if not all do.",
        private_data_sizes,
    ),
    Case::new(
        "connect.private-data-too-long",
        "NDKPI 9",
        "Connects with one byte more than MaxCallerData.",
        "A failure; which is open.",
        private_data_too_long,
    ),
    //= NDKPI 7.7.3
    Case::new(
        "connect.read-limits",
        "NDKPI 7.7.3",
        "Connects with different read limits on the two sides, and with limits above the adapter's.",
        "Each is the least of what was asked, what the adapter has and what the peer's other direction has.",
        read_limits,
    ),
    Case::new(
        "connect.no-reads",
        "NDKPI 7.7.3",
        "Connects with an outbound read limit of 0 on one side, then with an inbound one of 0 on the other, and reads.",
        "The reads fail and move nothing; the other side reads as it may. Open: how they fail.",
        no_reads,
    ),
    //= NDKPI 7.7.8
    Case::new(
        "connect.paused-events",
        "NDKPI 7.7.8",
        "Pauses connect events, connects, resumes and connects again.",
        "The first is refused without an event, the second is not.",
        paused_events,
    ),
    //= NDKPI 7.8.2
    Case::new(
        "connect.closed-listener-refuses",
        "NDKPI 7.8",
        "Closes a listener while a connection over it is open, and connects to it.",
        "The connect is refused, and the close completes when the connector is closed.",
        closed_listener_refuses,
    ),
    Case::new(
        "connect.events-with-a-reason",
        "NDKPI 5.8",
        "Establishes a connection with NdkAcceptEx and NdkCompleteConnectEx, and closes one side.",
        "The other side gets the event of NDKPI 2.1, once.",
        events_of_2_1,
    ),
    //= NDKPI 7.2.3
    Case::new(
        "connect.queue-pair-not-reused",
        "NDKPI 7.2",
        "Connects with a queue pair that was disconnected, on a new connector.",
        "A failure.",
        queue_pair_not_reused,
    ),
    //= NDKPI 7.2.3
    Case::new(
        "connect.connector-not-reused",
        "NDKPI 7.2",
        "Connects with a connector that was disconnected, and a new queue pair.",
        "A failure.",
        connector_not_reused,
    ),
    Case::new(
        "connect.queue-pair-in-use",
        "NDKPI 7.2",
        "Connects with a queue pair that is connected.",
        "A failure, and the connection goes on.",
        queue_pair_in_use,
    ),
    Case::new(
        "connect.sixteen",
        "NDKPI 7.7.2",
        "Has sixteen connections over one listener at a time.",
        "All carry messages.",
        sixteen,
    ),
];

/// A message from `a` to `b`, and its completions.
fn message(a: &Side<'_>, b: &Side<'_>, context: usize) -> Check {
    b.receive(context, 0, 64)?;
    a.send(context, 64, 32, 0)?;
    let done = b.receive_done(context)?;
    ensure_eq!(done.bytes, 32, "bytes received");
    a.initiator_done(context)?;
    Ok(())
}

fn both_ways(s: &Session<'_>, family: Family) -> Verdict {
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let pair = Pair::join(s, a, b, &Terms { family, ..Terms::new() })?;
    message(&pair.a, &pair.b, 1)?;
    message(&pair.b, &pair.a, 2)?;
    HELD
}

fn ipv4(s: &Session<'_>) -> Verdict {
    both_ways(s, Family::V4)
}

fn ipv6(s: &Session<'_>) -> Verdict {
    both_ways(s, Family::V6)
}

fn addresses(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (a, b) = (pair.link.a.core(), pair.link.b.core());
    ensure_eq!(a.peer()?, b.local()?, "peer address of the active side");
    ensure_eq!(b.peer()?, a.local()?, "peer address of the passive side");
    ensure_eq!(b.local()?, pair.link.listener.address()?, "local address of the passive side");
    let port = a.local()?.port();
    ensure!(EPHEMERAL.contains(&port), "the provider picked port {port}");
    HELD
}

fn address_buffer(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let connector = pair.link.a.core();
    for size in core::iter::once(None).chain((0..=28).map(Some)) {
        for (what, answer) in [
            ("NdkGetLocalAddress", connector.local_address(size)?),
            ("NdkGetPeerAddress", connector.peer_address(size)?),
            ("NdkGetLocalAddress of the listener", pair.link.listener.local_address(size)?),
        ] {
            let fits = size.is_some_and(|size| size >= 16);
            let expected = if fits { NtStatus::SUCCESS } else { NtStatus::BUFFER_TOO_SMALL };
            ensure_eq!(answer.status, expected, "{what} with {size:?} bytes");
            ensure_eq!(answer.length, 16, "length stored by {what} with {size:?} bytes");
            ensure!(!answer.overran, "{what} wrote behind {size:?} bytes");
        }
    }
    HELD
}

/// An address at which nobody listens, and did just before.
fn deserted<'s>(s: &'s Session<'s>) -> Check<SocketAddr> {
    let (listener, address) = listen(s, Family::V4)?;
    listener.close()?;
    Ok(address)
}

/// A connector and a side for a connect from the adapter.
fn active_side<'s>(s: &'s Session<'s>) -> Check<(Side<'s>, Connector<'s>, SocketAddr)> {
    let adapter = s.adapter()?;
    let side = Side::new(&adapter, &Plan::new(), QP_A)?;
    Ok((side, adapter.create_connector()?, s.address(adapter.number(), Family::V4, 0)?))
}

/// Goes through with a connection from `connector`.
fn connect_with<'s>(s: &'s Session<'s>, side: &Side<'s>, connector: &Connector<'s>, from: SocketAddr) -> Check {
    let (listener, address) = listen(s, Family::V4)?;
    connect_to(s, side, connector, from, address, || listener.take())
}

fn connect_to<'s>(
    s: &'s Session<'s>,
    side: &Side<'s>,
    connector: &Connector<'s>,
    from: SocketAddr,
    to: SocketAddr,
    take: impl FnOnce() -> Check<Connector<'s>>,
) -> Check {
    let peer = Side::new(&s.peer_adapter()?, &Plan::new(), 2)?;
    let offer = Terms::new().a;
    let connecting = connector.core().connect(side.qp.core(), from, to, &offer)?;
    let passive = take()?;
    let accepting = passive.core().accept(peer.qp.core(), &offer, OnDisconnect::Count)?;
    connecting.succeeds()?;
    connector.core().complete_connect(OnDisconnect::Count)?.succeeds()?;
    accepting.succeeds()?;
    message(side, &peer, 1)
}

fn no_listener(s: &Session<'_>) -> Verdict {
    let (side, connector, from) = active_side(s)?;
    let address = deserted(s)?;
    connector
        .core()
        .connect(side.qp.core(), from, address, &Terms::new().a)?
        .ends_with(NtStatus::CONNECTION_REFUSED)?;
    let listener = s.peer_adapter()?.create_listener(None)?;
    listener.core().listen(address)?.succeeds()?;
    connect_to(s, &side, &connector, from, address, || listener.take())?;
    HELD
}

fn foreign_local_address(s: &Session<'_>) -> Verdict {
    let (side, connector, from) = active_side(s)?;
    let (_listener, address) = listen(s, Family::V4)?;
    let foreign = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 77)), 0);
    let offer = Terms::new().a;
    connector.core().connect(side.qp.core(), foreign, address, &offer)?.ends_with(NtStatus::INVALID_ADDRESS)?;
    connect_with(s, &side, &connector, from)?;
    HELD
}

fn local_port_in_use(s: &Session<'_>) -> Verdict {
    let (side, connector, from) = active_side(s)?;
    let (_listener, address) = listen(s, Family::V4)?;
    let own = s.adapter()?.create_listener(None)?;
    own.core().listen(from)?.succeeds()?;
    let taken = own.address()?;
    let offer = Terms::new().a;
    connector.core().connect(side.qp.core(), taken, address, &offer)?.ends_with(NtStatus::SHARING_VIOLATION)?;
    connect_with(s, &side, &connector, from)?;
    HELD
}

fn unreachable(s: &Session<'_>) -> Verdict {
    let (side, connector, from) = active_side(s)?;
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 445);
    let status = connector.core().connect(side.qp.core(), from, nowhere, &Terms::new().a)?.wait()?;
    let allowed = [NtStatus::NETWORK_UNREACHABLE, NtStatus::HOST_UNREACHABLE, NtStatus::IO_TIMEOUT];
    ensure!(allowed.contains(&status), "the connect ended with {status}");
    connect_with(s, &side, &connector, from)?;
    HELD
}

fn malformed_address(s: &Session<'_>) -> Verdict {
    s.need_hostile()?;
    let (side, connector, from) = active_side(s)?;
    let (_listener, address) = listen(s, Family::V4)?;
    let good = RawAddress::new(from);
    for bad in [good.null(), good.with_length(0), good.with_length(15), good.with_family(77), good.with_family(0)] {
        let offer = Terms::new().a;
        let status = connector.core().connect(side.qp.core(), bad, address, &offer)?.wait()?;
        ensure!(!status.is_success(), "a connect from {bad:?} ended with {status}");
        let status = connector.core().connect(side.qp.core(), from, bad, &offer)?.wait()?;
        ensure!(!status.is_success(), "a connect to {bad:?} ended with {status}");
    }
    connect_with(s, &side, &connector, from)?;
    HELD
}

/// A connection that is requested and not answered.
struct Requested<'s> {
    a: Side<'s>,
    b: Side<'s>,
    active: Connector<'s>,
    passive: Connector<'s>,
    connecting: crate::client::Pending<'s>,
    from: SocketAddr,
    _listener: crate::client::Listener<'s>,
}

fn requested<'s>(s: &'s Session<'s>, offer: &Offer<'_>) -> Check<Requested<'s>> {
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let (listener, address) = listen(s, Family::V4)?;
    let adapter = s.adapter()?;
    let active = adapter.create_connector()?;
    let from = s.address(adapter.number(), Family::V4, 0)?;
    let connecting = active.core().connect(a.qp.core(), from, address, offer)?;
    let passive = listener.take()?;
    Ok(Requested { a, b, active, passive, connecting, from, _listener: listener })
}

fn accept_pends(s: &Session<'_>) -> Verdict {
    let r = requested(s, &Terms::new().a)?;
    s.settle();
    ensure!(r.connecting.outcome().is_none(), "the connect ended before it was accepted");
    let accepting = r.passive.core().accept(r.b.qp.core(), &Terms::new().b, OnDisconnect::Count)?;
    r.connecting.succeeds()?;
    s.settle();
    ensure!(accepting.outcome().is_none(), "the accept ended before the connect was completed");
    r.active.core().complete_connect(OnDisconnect::Count)?.succeeds()?;
    accepting.succeeds()?;
    HELD
}

fn rejected(s: &Session<'_>) -> Verdict {
    let r = requested(s, &Terms::new().a)?;
    ensure_eq!(r.passive.core().reject(&[])?, NtStatus::SUCCESS, "NdkReject");
    r.connecting.ends_with(NtStatus::CONNECTION_REFUSED)?;
    connect_with(s, &r.a, &r.active, r.from)?;
    HELD
}

fn rejected_by_close(s: &Session<'_>) -> Verdict {
    let r = requested(s, &Terms::new().a)?;
    r.passive.close()?;
    r.connecting.ends_with(NtStatus::CONNECTION_REFUSED)?;
    HELD
}

fn rejected_by_active_side(s: &Session<'_>) -> Verdict {
    let r = requested(s, &Terms::new().a)?;
    let accepting = r.passive.core().accept(r.b.qp.core(), &Terms::new().b, OnDisconnect::Count)?;
    r.connecting.succeeds()?;
    ensure_eq!(r.active.core().reject(&[])?, NtStatus::SUCCESS, "NdkReject");
    accepting.ends_with(NtStatus::CONNECTION_ABORTED)?;
    r.passive.core().stays_at_disconnects(0)?;
    HELD
}

fn timeouts(s: &Session<'_>) -> Verdict {
    let Some(limit) = s.platform().timeouts() else { skip!("it would take longer than the platform wants to wait") };
    let (unanswered, incomplete) = (requested(s, &Terms::new().a)?, requested(s, &Terms::new().a)?);
    let accepting = incomplete.passive.core().accept(incomplete.b.qp.core(), &Terms::new().b, OnDisconnect::Count)?;
    incomplete.connecting.succeeds()?;
    let over = || unanswered.connecting.outcome().is_some() && accepting.outcome().is_some();
    ensure!(s.platform().wait(limit, &over), "neither request may go on for ever");
    unanswered.connecting.ends_with(NtStatus::IO_TIMEOUT)?;
    accepting.ends_with(NtStatus::IO_TIMEOUT)?;
    HELD
}

fn active_side_gives_up(s: &Session<'_>) -> Verdict {
    let r = requested(s, &Terms::new().a)?;
    let accepting = r.passive.core().accept(r.b.qp.core(), &Terms::new().b, OnDisconnect::Count)?;
    r.connecting.succeeds()?;
    r.active.close()?;
    accepting.ends_with(NtStatus::CONNECTION_ABORTED)?;
    r.passive.core().stays_at_disconnects(0)?;
    HELD
}

fn passive_side_gives_up(s: &Session<'_>) -> Verdict {
    let r = requested(s, &Terms::new().a)?;
    let accepting = r.passive.core().accept(r.b.qp.core(), &Terms::new().b, OnDisconnect::Count)?;
    r.connecting.succeeds()?;
    // A close cancels what pends (`NDKPI 7.9`).
    let closing = r.passive.start_close()?;
    let status = accepting.wait()?;
    ensure!(!status.is_success(), "the accept of a closed connector ended with {status}");
    closing.wait()?;
    r.active.core().complete_connect(OnDisconnect::Count)?.ends_with(NtStatus::CONNECTION_ABORTED)?;
    HELD
}

fn rejected_after_the_peer_gave_up(s: &Session<'_>) -> Verdict {
    for accepted in [false, true] {
        let r = requested(s, &Terms::new().a)?;
        if accepted {
            let accepting = r.passive.core().accept(r.b.qp.core(), &Terms::new().b, OnDisconnect::Count)?;
            r.connecting.succeeds()?;
            r.active.close()?;
            accepting.ends_with(NtStatus::CONNECTION_ABORTED)?;
        } else {
            let closing = r.active.start_close()?;
            let status = r.connecting.wait()?;
            ensure!(!status.is_success(), "the connect of a closed connector ended with {status}");
            closing.wait()?;
        }
        ensure_eq!(r.passive.core().reject(&[])?, NtStatus::CONNECTION_ABORTED, "NdkReject, accepted: {accepted}");
    }
    let r = requested(s, &Terms::new().a)?;
    let accepting = r.passive.core().accept(r.b.qp.core(), &Terms::new().b, OnDisconnect::Count)?;
    r.connecting.succeeds()?;
    let closing = r.passive.start_close()?;
    let status = accepting.wait()?;
    ensure!(!status.is_success(), "the accept of a closed connector ended with {status}");
    closing.wait()?;
    ensure_eq!(r.active.core().reject(&[])?, NtStatus::CONNECTION_ABORTED, "NdkReject by the active side");
    HELD
}

fn complete_without_connect(s: &Session<'_>) -> Verdict {
    let (_side, connector, _) = active_side(s)?;
    connector.core().complete_connect(OnDisconnect::Count)?.ends_with(NtStatus::CONNECTION_INVALID)?;
    HELD
}

/// Reads as much private data as there is.
fn read_data(connector: &Connector<'_>, into: &mut [u8; 1024]) -> Check<usize> {
    let (status, length) = connector.core().connection_data_length()?;
    ensure_eq!(status, NtStatus::SUCCESS, "NdkGetConnectionData without a buffer");
    let length = (length as usize).min(into.len());
    let data = connector.core().connection_data(Some(&mut into[..length]))?;
    ensure_eq!(data.status, NtStatus::SUCCESS, "NdkGetConnectionData with a buffer of the size required");
    Ok(length)
}

fn private_data(s: &Session<'_>) -> Verdict {
    let (question, answer) = (b"what the active side asks", b"what the passive side says to that");
    let info = s.info()?;
    if (info.MaxCallerData as usize) < question.len() || (info.MaxCalleeData as usize) < answer.len() {
        skip!("the adapter carries less private data");
    }
    let terms = Terms::new();
    let r = requested(s, &Offer { data: question, ..terms.a })?;
    let mut buffer = [0; 1024];
    let length = read_data(&r.passive, &mut buffer)?;
    ensure!(buffer[..length].starts_with(question), "the passive side reads {:?}", &buffer[..length.min(32)]);
    let offer = Offer { data: answer, ..terms.b };
    let accepting = r.passive.core().accept(r.b.qp.core(), &offer, OnDisconnect::Count)?;
    r.connecting.succeeds()?;
    let length = read_data(&r.active, &mut buffer)?;
    ensure!(buffer[..length].starts_with(answer), "the active side reads {:?}", &buffer[..length.min(40)]);
    r.active.core().complete_connect(OnDisconnect::Count)?.succeeds()?;
    accepting.succeeds()?;
    HELD
}

fn private_data_sizes(s: &Session<'_>) -> Verdict {
    let data: [u8; 24] = core::array::from_fn(|index| b'a' + u8::try_from(index).unwrap_or(0));
    let r = requested(s, &Offer { data: &data, ..Terms::new().a })?;
    let (status, required) = r.passive.core().connection_data_length()?;
    ensure_eq!(status, NtStatus::SUCCESS, "NdkGetConnectionData without a buffer");
    ensure!(required as usize >= data.len(), "RDS is {required}, {} bytes were sent", data.len());
    if required as usize > 1024 {
        skip!("the provider requires a larger buffer than the case has");
    }
    let mut buffer = [0xEE_u8; 1024];
    for size in [1, 7, data.len(), required as usize - 1, required as usize, (required as usize + 9).min(1024)] {
        buffer.fill(0xEE);
        let answer = r.passive.core().connection_data(Some(&mut buffer[..size]))?;
        let fits = size >= required as usize;
        let expected = if fits { NtStatus::SUCCESS } else { NtStatus::BUFFER_TOO_SMALL };
        ensure_eq!(answer.status, expected, "NdkGetConnectionData with {size} bytes, RDS {required}");
        ensure_eq!(answer.length, required, "length stored with {size} bytes");
        let copied = size.min(data.len());
        ensure!(buffer[..copied] == data[..copied], "with {size} bytes the first {copied} are others than were sent");
        ensure!(buffer[size..].iter().all(|byte| *byte == 0xEE), "bytes behind a buffer of {size} bytes were written");
    }
    HELD
}

fn private_data_too_long(s: &Session<'_>) -> Verdict {
    // Not on the stack, which is small in a kernel.
    static LONG: [u8; 4096] = [7; 4096];
    let (side, connector, from) = active_side(s)?;
    let (_listener, address) = listen(s, Family::V4)?;
    let most = s.info()?.MaxCallerData as usize;
    if most >= LONG.len() {
        skip!("the adapter carries {most} bytes");
    }
    let offer = Offer { data: &LONG[..=most], ..Terms::new().a };
    let status = connector.core().connect(side.qp.core(), from, address, &offer)?.wait()?;
    ensure!(!status.is_success(), "a connect with too much private data ended with {status}");
    connect_with(s, &side, &connector, from)?;
    observed!("too much private data: {status}")
}

fn read_limits(s: &Session<'_>) -> Verdict {
    let info = s.info()?;
    let (most_in, most_out) = (info.MaxInboundReadLimit, info.MaxOutboundReadLimit);
    for ((a_in, a_out), (b_in, b_out)) in
        [((4, 8), (6, 3)), ((0, 5), (9, 0)), ((u32::MAX, u32::MAX), (u32::MAX, u32::MAX))]
    {
        let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
        let offer = |inbound, outbound| Offer { inbound, outbound, data: &[] };
        let terms = Terms { a: offer(a_in, a_out), b: offer(b_in, b_out), ..Terms::new() };
        let pair = Pair::join(s, a, b, &terms)?;
        // The sample consumer asks after the connection is established (`NDKPI 7.7.4`).
        let (seen_a, seen_b) = (pair.link.a.connection_data(None)?, pair.link.b.connection_data(None)?);
        let expected = |inbound: u32, outbound: u32, peer_in: u32, peer_out: u32| {
            (inbound.min(most_in).min(peer_out.min(most_out)), outbound.min(most_out).min(peer_in.min(most_in)))
        };
        ensure_eq!((seen_a.inbound, seen_a.outbound), expected(a_in, a_out, b_in, b_out), "limits of the active side");
        ensure_eq!((seen_b.inbound, seen_b.outbound), expected(b_in, b_out, a_in, a_out), "limits of the passive side");
    }
    HELD
}

fn no_reads(s: &Session<'_>) -> Verdict {
    let mut seen = None;
    for (a_outbound, b_inbound) in [(0, 16), (16, 0)] {
        let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
        let offer = |inbound, outbound| Offer { inbound, outbound, data: &[] };
        let terms = Terms { a: offer(16, a_outbound), b: offer(b_inbound, 16), ..Terms::new() };
        let pair = Pair::join(s, a, b, &terms)?;
        let (a, b) = (&pair.a, &pair.b);
        a.region.buffer.fill_pattern(0, 64, 1)?;
        b.read(1, 0, 64, a.remote(0), 0)?;
        b.initiator_done(1)?;
        b.region.buffer.has_pattern(0, 64, 1)?;
        a.write(1, 0, 64, b.remote(0), 0)?;
        a.initiator_done(1)?;
        a.region.buffer.fill(64, 64, 0xEE)?;
        let status = a.qp.read(2, &[a.region.element(64, 64)], b.remote(0), 0)?;
        let (how, status) =
            if status.is_success() { ("by completion", a.initiated().take_one()?.status) } else { ("inline", status) };
        ensure!(!status.is_success(), "a read succeeded although the limit of reads in progress is 0");
        a.region.buffer.is_filled(64, 64, 0xEE)?;
        seen = Some((how, status));
    }
    match seen {
        Some((how, status)) => observed!("{how} {status}"),
        None => HELD,
    }
}

fn paused_events(s: &Session<'_>) -> Verdict {
    let (side, connector, from) = active_side(s)?;
    let (listener, address) = listen(s, Family::V4)?;
    listener.pause(true)?;
    let offer = Terms::new().a;
    connector.core().connect(side.qp.core(), from, address, &offer)?.ends_with(NtStatus::CONNECTION_REFUSED)?;
    s.settle();
    ensure_eq!(listener.events(), 0, "connect events while paused");
    listener.pause(false)?;
    connect_to(s, &side, &connector, from, address, || listener.take())?;
    HELD
}

fn closed_listener_refuses(s: &Session<'_>) -> Verdict {
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let Link { a: active, b: passive, listener } = Link::establish(s, &a, &b, &Terms::new())?;
    let address = listener.address()?;
    let closing = listener.start_close()?;
    s.settle();
    ensure!(!closing.is_done(), "the listener's close completed while a connector that came over it is open");
    let (side, connector, from) = active_side(s)?;
    let offer = Terms::new().a;
    connector.core().connect(side.qp.core(), from, address, &offer)?.ends_with(NtStatus::CONNECTION_REFUSED)?;
    message(&a, &b, 5)?;
    passive.close()?;
    closing.wait()?;
    drop(active);
    HELD
}

fn events_of_2_1(s: &Session<'_>) -> Verdict {
    s.need_version(NDK_VERSION::V2_1)?;
    let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
    let terms = Terms { on_a: OnDisconnect::CountEx, on_b: OnDisconnect::CountEx, ..Terms::new() };
    let pair = Pair::join(s, a, b, &terms)?;
    pair.link.a.close()?;
    pair.link.b.wait_disconnect()?;
    pair.link.b.stays_at_disconnects(1)?;
    HELD
}

fn queue_pair_not_reused(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.link.a.core().disconnect()?.succeeds()?;
    let (_listener, address) = listen(s, Family::V4)?;
    let connector = s.adapter()?.create_connector()?;
    let from = s.address(s.adapter()?.number(), Family::V4, 0)?;
    let status = connector.core().connect(pair.a.qp.core(), from, address, &Terms::new().a)?.wait()?;
    ensure!(!status.is_success(), "a queue pair that was disconnected connected again");
    HELD
}

fn connector_not_reused(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    pair.link.a.core().disconnect()?.succeeds()?;
    let (_listener, address) = listen(s, Family::V4)?;
    let side = Side::new(&s.adapter()?, &Plan::new(), QP_A)?;
    let from = s.address(s.adapter()?.number(), Family::V4, 0)?;
    let status = pair.link.a.core().connect(side.qp.core(), from, address, &Terms::new().a)?.wait()?;
    ensure!(!status.is_success(), "a connector that was disconnected connected again");
    HELD
}

fn queue_pair_in_use(s: &Session<'_>) -> Verdict {
    let pair = Pair::new(s)?;
    let (_listener, address) = listen(s, Family::V4)?;
    let connector = s.adapter()?.create_connector()?;
    let from = s.address(s.adapter()?.number(), Family::V4, 0)?;
    let status = connector.core().connect(pair.a.qp.core(), from, address, &Terms::new().a)?.wait()?;
    ensure!(!status.is_success(), "a connected queue pair connected again");
    message(&pair.a, &pair.b, 3)?;
    HELD
}

fn sixteen(s: &Session<'_>) -> Verdict {
    let (listener, address) = listen(s, Family::V4)?;
    let adapter = s.adapter()?;
    let from = s.address(adapter.number(), Family::V4, 0)?;
    let offer = Terms::new().a;
    let mut open = alloc::vec::Vec::new();
    if open.try_reserve(16).is_err() {
        inconclusive!("no memory for the case");
    }
    for number in 0..16 {
        let (a, b) = Pair::apart(s, &Plan::new(), &Plan::new())?;
        let active = adapter.create_connector()?;
        let connecting = active.core().connect(a.qp.core(), from, address, &offer)?;
        let passive = listener.take()?;
        let accepting = passive.core().accept(b.qp.core(), &offer, OnDisconnect::Count)?;
        connecting.succeeds()?;
        active.core().complete_connect(OnDisconnect::Count)?.succeeds()?;
        accepting.succeeds()?;
        message(&a, &b, number)?;
        open.push((a, b, active, passive));
    }
    for (number, (a, b, _, _)) in open.iter().enumerate() {
        message(b, a, 100 + number)?;
    }
    HELD
}
