//! Connectors and listeners: how connections begin.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nd2::abi::{HRESULT, IID_IND2Adapter};

use crate::{
    Case, Client, Failure, World,
    case::{holds, is, ok},
    client::{Connector, Listener, Overlapped, Qp},
    stream::made,
    world::{HERE, HERE_V6, SIZES, THERE},
};

pub const CASES: &[Case] = &[
    Case::new("connection.establish", "IND2Connector, remarks; IND2Listener, remarks", establish),
    Case::new("connection.waiting_requests", "IND2Listener::GetConnectionRequest, remarks", waiting),
    Case::new("connection.requests_in_order", "IND2Listener::GetConnectionRequest, remarks", in_order),
    Case::new("connection.backlog", "IND2Listener::Listen, parameters 1", backlog),
    Case::new("connection.refused", "IND2Connector::Connect, return value 9", refused),
    Case::new("connection.unreachable", "IND2Connector::Connect, return values 7, 8", unreachable),
    Case::new("connection.reject", "IND2Connector::Reject; GetPrivateData", reject),
    Case::new("connection.addresses_in_use", "IND2Connector::Bind, return value 4", in_use),
    Case::new("connection.bind_again", "IND2Connector::Bind; IND2Listener::Bind", bind_again),
    Case::new("connection.read_limits", "IND2Connector::GetReadLimits", read_limits),
    Case::new("connection.cancel_gives_up", "IND2Connector::Connect, remarks 3", cancel),
    Case::new("connection.cancel_and_connect_again", "IND2Connector::Connect, remarks 3", cancel_and_again),
    Case::new("connection.between_adapters", "IND2Listener, remarks", between),
    Case::new("connection.too_much_private_data", "IND2Connector::Connect, return value 3", private_data),
    Case::new("connection.address_after_bind", "IND2Connector, IND2Listener, GetLocalAddress", address_after_bind),
    Case::new("connection.listener_released", "IND2Listener::GetConnectionRequest, return value 3", listener_released),
];

/// Objects for a connection.
pub struct Side {
    pub qp: Qp,
    pub connector: Connector,
}

pub fn side(world: &World) -> Result<Side, Failure> {
    let queue = made("a queue", world.adapter.queue(world.file, 64, 0))?;
    let qp = made("a queue pair", world.adapter.qp(queue.as_ptr(), queue.as_ptr(), 0, SIZES))?;
    Ok(Side { qp, connector: made("a connector", world.adapter.connector(world.file))? })
}

pub fn listen(world: &World, backlog: u32) -> Result<(Listener, SocketAddr), Failure> {
    let listener = made("a listener", world.adapter.listener(world.file))?;
    is("an address before Listen", listener.local(), Err(HRESULT::ND_INVALID_DEVICE_STATE))?;
    is("Listen before Bind", listener.listen(backlog), HRESULT::ND_INVALID_DEVICE_STATE)?;
    ok("Bind", listener.bind(SocketAddr::new(HERE, 0)))?;
    ok("Listen", listener.listen(backlog))?;
    let at = made("the address", listener.local())?;
    holds("an ephemeral port", at.port() >= 49152)?;
    Ok((listener, at))
}

/// Begins to connect, with data; not for the first time, if the connector is bound.
pub fn connect(world: &World, side: &Side, to: SocketAddr) -> Result<Client, Failure> {
    let request = world.request();
    if side.connector.local().is_err() {
        ok("Bind", side.connector.bind(SocketAddr::new(HERE, 0)))?;
    }
    is("Connect", side.connector.connect(&side.qp, to, (3, 5), b"from a", &request), HRESULT::ND_PENDING)?;
    Ok(request)
}

fn establish(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let (listener, at) = listen(world, 0)?;
    is("a local address before", a.connector.local(), Err(HRESULT::ND_CONNECTION_INVALID))?;
    let [arrives, accepts, completes] = [(); 3].map(|()| world.request());
    is("GetConnectionRequest", listener.request(&b.connector, &arrives), HRESULT::ND_PENDING)?;
    let connects = connect(world, &a, at)?;
    world.ends("the request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
    world.pends("the connect", &a.connector, &connects)?;
    let again = world.request();
    let result = a.connector.connect(&a.qp, at, (0, 0), &[], &again);
    world.refuses("another Connect meanwhile", &again, result, HRESULT::ND_CONNECTION_ACTIVE)?;
    let result = a.connector.disconnect(&again);
    world.refuses("Disconnect meanwhile", &again, result, HRESULT::ND_CONNECTION_INVALID)?;
    world.refuses(
        "another role meanwhile",
        &again,
        listener.request(&a.connector, &again),
        HRESULT::ND_CONNECTION_ACTIVE,
    )?;
    is("the peer's address", b.connector.peer(), a.connector.local())?;
    is("the listener's address", b.connector.local(), Ok(at))?;
    let mut data = [0; 512];
    is("private data", b.connector.private_data(&mut data), (HRESULT::ND_SUCCESS, 512))?;
    is("the text", &data[..6], b"from a")?;
    let mut short = [0; 4];
    is("a short buffer", b.connector.private_data(&mut short), (HRESULT::ND_BUFFER_OVERFLOW, 512))?;
    is("what fitted", &short, b"from")?;
    world.refuses(
        "CompleteConnect too early",
        &completes,
        a.connector.complete(&completes),
        HRESULT::ND_CONNECTION_INVALID,
    )?;
    is("Accept", b.connector.accept(&b.qp, (8, 8), b"from b", &accepts), HRESULT::ND_PENDING)?;
    world.ends("the connect", &a.connector, &connects, HRESULT::ND_SUCCESS)?;
    world.pends("the accept", &b.connector, &accepts)?;
    is("private data", a.connector.private_data(&mut data).0, HRESULT::ND_SUCCESS)?;
    is("the answer", &data[..6], b"from b")?;
    world.now("CompleteConnect", &a.connector, &completes, a.connector.complete(&completes))?;
    world.ends("the accept", &b.connector, &accepts, HRESULT::ND_SUCCESS)?;
    is("addresses", (a.connector.peer(), b.connector.peer()), (Ok(at), a.connector.local()))?;
    is("the size of an address", a.connector.local_length(), (HRESULT::ND_BUFFER_OVERFLOW, 16))?;
    Ok("Connect, Accept, CompleteConnect, with private data both ways".into())
}

fn waiting(world: &World) -> Result<String, Failure> {
    let (listener, at) = listen(world, 0)?;
    let actives = [side(world)?, side(world)?];
    let passives = [side(world)?, side(world)?];
    // One request waits for a connection, one connection for a request.
    let [first, second] = [(); 2].map(|()| world.request());
    is("GetConnectionRequest", listener.request(&passives[0].connector, &first), HRESULT::ND_PENDING)?;
    world.refuses(
        "the same again",
        &second,
        listener.request(&passives[0].connector, &second),
        HRESULT::ND_CONNECTION_ACTIVE,
    )?;
    let connects = [connect(world, &actives[0], at)?, connect(world, &actives[1], at)?];
    world.ends("the first", &listener, &first, HRESULT::ND_SUCCESS)?;
    world.settle();
    world.now("GetConnectionRequest", &listener, &second, listener.request(&passives[1].connector, &second))?;
    for passive in &passives {
        ok("Reject", passive.connector.reject(&[]))?;
    }
    for (active, connect) in actives.iter().zip(&connects) {
        world.ends("a connect", &active.connector, connect, HRESULT::ND_CONNECTION_REFUSED)?;
    }
    Ok("requests wait for connections and connections for requests".into())
}

fn in_order(world: &World) -> Result<String, Failure> {
    let (port, (listener, at)) = (world.port()?, listen(world, 0)?);
    let (active, passives) = (side(world)?, [side(world)?, side(world)?, side(world)?]);
    let waits = [(); 3].map(|()| world.request());
    for (passive, request) in passives.iter().zip(&waits) {
        is("GetConnectionRequest", listener.request(&passive.connector, request), HRESULT::ND_PENDING)?;
    }
    let connects = connect(world, &active, at)?;
    world.ends("the first", &listener, &waits[0], HRESULT::ND_SUCCESS)?;
    for request in &waits[1..] {
        world.pends("the others", &listener, request)?;
    }
    ok("Reject", passives[0].connector.reject(&[]))?;
    world.ends("the connect", &active.connector, &connects, HRESULT::ND_CONNECTION_REFUSED)?;
    world.drain(&port);
    ok("cancel", listener.cancel())?;
    for request in &waits[1..] {
        let packet = port.get().map(|packet| (packet.overlapped, packet.status));
        is("the packet", packet, Some((request.as_ptr(), HRESULT::ND_CANCELED)))?;
    }
    Ok("one for each connection, in the order of their issue; cancelled in the same order".into())
}

fn backlog(world: &World) -> Result<String, Failure> {
    let (listener, at) = listen(world, 1)?;
    let sides = [side(world)?, side(world)?];
    let first = connect(world, &sides[0], at)?;
    world.settle();
    let second = connect(world, &sides[1], at)?;
    world.ends("one too many", &sides[1].connector, &second, HRESULT::ND_CONNECTION_REFUSED)?;
    world.pends("the one that fits", &sides[0].connector, &first)?;
    drop(listener);
    world.ends("when nobody listens any more", &sides[0].connector, &first, HRESULT::ND_CONNECTION_REFUSED)?;
    Ok("ND_CONNECTION_REFUSED beyond the backlog".into())
}

fn refused(world: &World) -> Result<String, Failure> {
    let (side, request) = (side(world)?, world.request());
    let nobody = SocketAddr::new(HERE, 9);
    let result = side.connector.connect(&side.qp, nobody, (0, 0), &[], &request);
    is("nobody listens", result, HRESULT::ND_PENDING)?;
    world.ends("the connect", &side.connector, &request, HRESULT::ND_CONNECTION_REFUSED)?;
    // It can be tried again.
    let (listener, at) = listen(world, 0)?;
    let request = world.request();
    is("again", side.connector.connect(&side.qp, at, (0, 0), &[], &request), HRESULT::ND_PENDING)?;
    drop(listener);
    world.ends("the second", &side.connector, &request, HRESULT::ND_CONNECTION_REFUSED)?;
    Ok("ND_CONNECTION_REFUSED, and the attempt can be repeated".into())
}

fn unreachable(world: &World) -> Result<String, Failure> {
    let (side, request) = (side(world)?, world.request());
    let refused = |what: &str, ip, port, with| {
        let result = side.connector.connect(&side.qp, SocketAddr::new(ip, port), (0, 0), &[], &request);
        world.refuses(what, &request, result, with)
    };
    refused("a host", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 77)), 5, HRESULT::ND_HOST_UNREACHABLE)?;
    refused("a network", IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1)), 5, HRESULT::ND_NETWORK_UNREACHABLE)?;
    let nobodys = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, Ipv4Addr::new(224, 0, 0, 1)];
    for (ip, port) in nobodys.map(|ip| (IpAddr::V4(ip), 5)).into_iter().chain([(HERE, 0)]) {
        refused(&format!("{ip}, port {port}"), ip, port, HRESULT::ND_INVALID_ADDRESS)?;
    }
    Ok("ND_HOST_UNREACHABLE and ND_NETWORK_UNREACHABLE".into())
}

fn reject(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let (listener, at) = listen(world, 0)?;
    let arrives = world.request();
    is("GetConnectionRequest", listener.request(&b.connector, &arrives), HRESULT::ND_PENDING)?;
    let connects = connect(world, &a, at)?;
    world.ends("the request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
    ok("Reject", b.connector.reject(b"no, thank you"))?;
    world.ends("the connect", &a.connector, &connects, HRESULT::ND_CONNECTION_REFUSED)?;
    let mut data = [0; 512];
    is("private data", a.connector.private_data(&mut data), (HRESULT::ND_SUCCESS, 512))?;
    is("the text", &data[..13], b"no, thank you")?;
    Ok("ND_CONNECTION_REFUSED, with the reason".into())
}

fn in_use(world: &World) -> Result<String, Failure> {
    let (listener, at) = listen(world, 0)?;
    let side = side(world)?;
    is("a connector", side.connector.bind(at), HRESULT::ND_SHARING_VIOLATION)?;
    let other = made("a listener", world.adapter.listener(world.file))?;
    is("a listener", other.bind(at), HRESULT::ND_SHARING_VIOLATION)?;
    is("a foreign address", other.bind(SocketAddr::new(THERE, 0)), HRESULT::ND_INVALID_ADDRESS)?;
    drop(listener);
    world.settle();
    ok("after the release", other.bind(at))?;
    let any = made("a listener", world.adapter.listener(world.file))?;
    ok("any address", any.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)))?;
    ok("Listen", any.listen(0))?;
    is("which is the first", made("the address", any.local())?.ip(), HERE)?;
    let six = made("a listener", world.adapter.listener(world.file))?;
    ok("an address of IPv6", six.bind(SocketAddr::new(HERE_V6, 0)))?;
    Ok("ND_SHARING_VIOLATION until it is released".into())
}

/// What programs expect of a second `Bind` or `Listen`, which the pages do not mention.
const BOUND: HRESULT = HRESULT::of(ndkpi::NtStatus::ADDRESS_ALREADY_ASSOCIATED);

fn bind_again(world: &World) -> Result<String, Failure> {
    let any = SocketAddr::new(HERE, 0);
    let (listener, at) = listen(world, 0)?;
    is("Bind of a listener that listens", listener.bind(any), BOUND)?;
    is("Listen again", listener.listen(1), BOUND)?;
    let bound = made("a listener", world.adapter.listener(world.file))?;
    ok("Bind", bound.bind(any))?;
    let own = bound.local();
    is("Bind of a listener that is bound", bound.bind(any), BOUND)?;
    is("its address", bound.local(), own)?;
    ok("Listen", bound.listen(0))?;

    let side = side(world)?;
    ok("Bind", side.connector.bind(any))?;
    let own = side.connector.local();
    is("Bind of a connector that is bound", side.connector.bind(any), BOUND)?;
    let request = world.request();
    is("Connect", side.connector.connect(&side.qp, at, (0, 0), &[], &request), HRESULT::ND_PENDING)?;
    is("Bind of a connector that connects", side.connector.bind(any), BOUND)?;
    is("its address", side.connector.local(), own)?;
    let passive = made("a connector", world.adapter.connector(world.file))?;
    let arrives = world.request();
    let result = listener.request(&passive, &arrives);
    world.succeeds("GetConnectionRequest", &listener, &arrives, result)?;
    is("Bind of a connector that has a request", passive.bind(any), BOUND)?;
    ok("cancel", side.connector.cancel())?;
    world.ends("the connect", &side.connector, &request, HRESULT::ND_CANCELED)?;
    is("Bind after a connect that has failed", side.connector.bind(any), BOUND)?;
    Ok("refused: bound once, for good".into())
}

fn read_limits(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let (listener, at) = listen(world, 0)?;
    let [arrives, accepts, completes] = [(); 3].map(|()| world.request());
    is("before", a.connector.read_limits(), Err(HRESULT::ND_CONNECTION_INVALID))?;
    is("GetConnectionRequest", listener.request(&b.connector, &arrives), HRESULT::ND_PENDING)?;
    let connects = connect(world, &a, at)?;
    world.ends("the request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
    // What the one takes, the other may send.
    is("at the passive side", b.connector.read_limits(), Ok((5, 3)))?;
    is("Accept", b.connector.accept(&b.qp, (4, 9), &[], &accepts), HRESULT::ND_PENDING)?;
    world.ends("the connect", &a.connector, &connects, HRESULT::ND_SUCCESS)?;
    is("at the active side", a.connector.read_limits(), Ok((3, 4)))?;
    world.now("CompleteConnect", &a.connector, &completes, a.connector.complete(&completes))?;
    world.ends("the accept", &b.connector, &accepts, HRESULT::ND_SUCCESS)?;
    Ok("the lower of what one side asks and the other offers".into())
}

fn cancel(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let (listener, at) = listen(world, 0)?;
    let [arrives, accepts] = [(); 2].map(|()| world.request());
    is("GetConnectionRequest", listener.request(&b.connector, &arrives), HRESULT::ND_PENDING)?;
    let connects = connect(world, &a, at)?;
    world.ends("the request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
    ok("cancel", a.connector.cancel())?;
    is("the connect", a.connector.outcome(&connects, false), HRESULT::ND_CANCELED)?;
    world.settle();
    world.refuses(
        "Accept",
        &accepts,
        b.connector.accept(&b.qp, (0, 0), &[], &accepts),
        HRESULT::ND_CONNECTION_ABORTED,
    )?;
    // And once more with the same objects.
    let c = side(world)?;
    let arrives = world.request();
    is("GetConnectionRequest", listener.request(&c.connector, &arrives), HRESULT::ND_PENDING)?;
    let connects = connect(world, &a, at)?;
    world.ends("the second request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
    ok("Reject", c.connector.reject(&[]))?;
    world.ends("the second connect", &a.connector, &connects, HRESULT::ND_CONNECTION_REFUSED)?;
    // Those who wait for connections.
    let [waits, more] = [(); 2].map(|()| world.request());
    let d = [side(world)?, side(world)?];
    is("waiting", listener.request(&d[0].connector, &waits), HRESULT::ND_PENDING)?;
    is("waiting", listener.request(&d[1].connector, &more), HRESULT::ND_PENDING)?;
    ok("cancel", listener.cancel())?;
    for request in [&waits, &more] {
        is("a request", listener.outcome(request, false), HRESULT::ND_CANCELED)?;
    }
    Ok("ND_CANCELED; the other side's accept is ND_CONNECTION_ABORTED".into())
}

fn cancel_and_again(world: &World) -> Result<String, Failure> {
    let a = side(world)?;
    let (listener, at) = listen(world, 0)?;
    let attempts = 5;
    let mut connects = Vec::new();
    // Nothing happens in between: what the given up attempt still has to say comes when the next one is under way.
    for _ in 1..attempts {
        let given_up = connect(world, &a, at)?;
        ok("cancel", a.connector.cancel())?;
        is("the connect", a.connector.outcome(&given_up, false), HRESULT::ND_CANCELED)?;
        connects.push(given_up);
    }
    let last = connect(world, &a, at)?;
    world.pends("the last connect", &a.connector, &last)?;
    for given_up in &connects {
        is("a given up connect", a.connector.outcome(given_up, false), HRESULT::ND_CANCELED)?;
    }
    // The listener may still have those that were given up: one of its requests is the last attempt.
    let passives = (0..attempts).map(|_| side(world)).collect::<Result<Vec<_>, _>>()?;
    for passive in &passives {
        let arrives = world.request();
        let result = listener.request(&passive.connector, &arrives);
        if result.is_pending() && listener.outcome(&arrives, false).is_pending() {
            ok("cancel", listener.cancel())?;
            break;
        }
        world.succeeds("GetConnectionRequest", &listener, &arrives, result)?;
        let _ = passive.connector.reject(&[]);
    }
    world.ends("the last connect", &a.connector, &last, HRESULT::ND_CONNECTION_REFUSED)?;
    Ok(format!("{attempts} attempts without a pause: only the last is answered"))
}

fn between(world: &World) -> Result<String, Failure> {
    let other = made("the other adapter", world.provider.open(&IID_IND2Adapter, 2))?;
    let file = made("its file", other.file())?;
    let queue = made("its queue", other.queue(file, 8, 0))?;
    let qp = made("its queue pair", other.qp(queue.as_ptr(), queue.as_ptr(), 0, SIZES))?;
    let passive = made("its connector", other.connector(file))?;
    let listener = made("its listener", other.listener(file))?;
    ok("Bind", listener.bind(SocketAddr::new(THERE, 7000)))?;
    ok("Listen", listener.listen(0))?;
    let a = side(world)?;
    let [arrives, accepts, completes] = [(); 3].map(|()| world.request());
    is("GetConnectionRequest", listener.request(&passive, &arrives), HRESULT::ND_PENDING)?;
    let connects = connect(world, &a, SocketAddr::new(THERE, 7000))?;
    world.ends("the request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
    world.refuses(
        "a foreign queue pair",
        &accepts,
        passive.accept(&a.qp, (0, 0), &[], &accepts),
        HRESULT::ND_INVALID_PARAMETER,
    )?;
    is("Accept", passive.accept(&qp, (0, 0), &[], &accepts), HRESULT::ND_PENDING)?;
    world.ends("the connect", &a.connector, &connects, HRESULT::ND_SUCCESS)?;
    world.now("CompleteConnect", &a.connector, &completes, a.connector.complete(&completes))?;
    world.ends("the accept", &passive, &accepts, HRESULT::ND_SUCCESS)?;
    ok("Receive", qp.receive(1, &[]))?;
    ok("Send", a.qp.send(1, &[], 0))?;
    world.until("the message", || !queue.results(4).is_empty())?;
    Ok("10.0.0.1 to 10.0.0.2".into())
}

fn private_data(world: &World) -> Result<String, Failure> {
    let (side, request) = (side(world)?, world.request());
    let (listener, at) = listen(world, 0)?;
    let much = [0; 513];
    let result = side.connector.connect(&side.qp, at, (0, 0), &much, &request);
    world.refuses("Connect", &request, result, HRESULT::ND_INVALID_BUFFER_SIZE)?;
    drop(listener);
    Ok("ND_INVALID_BUFFER_SIZE beyond 512 bytes".into())
}

fn listener_released(world: &World) -> Result<String, Failure> {
    let (listener, _) = listen(world, 0)?;
    let (side, request) = (side(world)?, world.request());
    is("GetConnectionRequest", listener.request(&side.connector, &request), HRESULT::ND_PENDING)?;
    drop(listener);
    world.ends("the request", &side.connector, &request, HRESULT::ND_CANCELED)?;
    Ok("ND_CANCELED".into())
}

fn address_after_bind(world: &World) -> Result<String, Failure> {
    let (side, listener) = (side(world)?, made("a listener", world.adapter.listener(world.file))?);
    is("before Bind", side.connector.local(), Err(HRESULT::ND_CONNECTION_INVALID))?;
    ok("Listener::Bind", listener.bind(SocketAddr::new(HERE, 0)))?;
    let at = made("the listener's address", listener.local())?;
    holds("an ephemeral port", at.ip() == HERE && at.port() >= 49152)?;
    ok("Connector::Bind", side.connector.bind(SocketAddr::new(HERE, 0)))?;
    let own = made("the connector's address", side.connector.local())?;
    holds("another one", own.ip() == HERE && own.port() >= 49152 && own != at)?;
    ok("Listen", listener.listen(0))?;
    is("the listener's address", listener.local(), Ok(at))?;
    let request = world.request();
    is("Connect", side.connector.connect(&side.qp, at, (0, 0), &[], &request), HRESULT::ND_PENDING)?;
    is("while it connects", side.connector.local(), Ok(own))?;
    drop(listener);
    world.ends("the connect", &side.connector, &request, HRESULT::ND_CONNECTION_REFUSED)?;
    is("after the refusal", side.connector.local(), Ok(own))?;
    Ok("known from Bind on, with the port that it took".into())
}
