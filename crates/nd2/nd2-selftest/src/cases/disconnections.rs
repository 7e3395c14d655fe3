//! How connections end.

use nd2::abi::{HRESULT, IID_IND2Adapter};

use crate::{
    Case, Failure, World,
    case::{holds, is, ok},
    cases::{
        connections::{Side, connect, listen, side},
        results::take,
    },
    client::Overlapped,
    stream::{Stream, made},
    world::SIZES,
};

pub const CASES: &[Case] = &[
    Case::new("connection.cancelled_disconnect", "CancelOverlappedRequests, summary", cancelled_disconnect),
    Case::new("connection.queue_pair_released", "IND2Connector::Connect, return value 4", queue_pair_released),
    Case::new("connection.refused_queue_pair", "IND2Connector::Connect, return value 6", refused_queue_pair),
    Case::new("connection.gave_up_before_complete", "IND2Connector::CompleteConnect, return value 2", gave_up),
    Case::new("connection.notify_disconnect", "IND2Connector::NotifyDisconnect", notify_disconnect),
    Case::new("connection.peer_disconnect_flushes", "IND2Connector, remarks; IND2Listener, remarks", peer_disconnects),
    Case::new("connection.notify_disconnect_canceled", "IND2Connector::NotifyDisconnect, return values", no_disconnect),
    Case::new("connection.disconnect_flushes", "IND2Connector::Disconnect, remarks", disconnect),
    Case::new("connection.disconnect_cancels_sends", "IND2Connector::Disconnect, remarks", disconnect_cancels),
    Case::new("connection.disconnect_when_broken", "IND2Connector::Disconnect, return value 5", broken),
    Case::new("connection.disconnect_while_breaking", "IND2Connector::Disconnect, return values", breaking),
    Case::new("connection.release_disconnects", "IND2Connector::Disconnect, implementation notes", release),
    Case::new("connection.device_removed", "IND2Connector, IND2Listener, return values", removed),
];

fn cancelled_disconnect(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let link = world.connect(&a.qp, &b.qp)?;
    let [hears, peer_hears, disconnects, late] = [(); 4].map(|()| world.request());
    is("NotifyDisconnect", link.active.notify_disconnect(&hears), HRESULT::ND_PENDING)?;
    is("NotifyDisconnect", link.passive.notify_disconnect(&peer_hears), HRESULT::ND_PENDING)?;
    let disconnect = link.active.disconnect(&disconnects);
    ok("cancel", link.active.cancel())?;
    if disconnect.is_pending() {
        let result = link.active.outcome(&disconnects, false);
        holds("ND_CANCELED, or it was over", [HRESULT::ND_CANCELED, HRESULT::ND_SUCCESS].contains(&result))?;
    } else {
        ok("Disconnect", disconnect)?;
    }
    world.until("the end of the notification", || !hears.status().is_pending())?;
    world.ends("the peer's notification", &link.passive, &peer_hears, HRESULT::ND_SUCCESS)?;
    world.now("NotifyDisconnect afterwards", &link.active, &late, link.active.notify_disconnect(&late))?;
    is("a send", a.qp.send(1, &[], 0), HRESULT::ND_CONNECTION_INVALID)?;
    Ok("the connection is over, whoever was first".into())
}

fn queue_pair_released(world: &World) -> Result<String, Failure> {
    let a = side(world)?;
    let (listener, at) = listen(world, 0)?;
    let connects = connect(world, &a, at)?;
    world.settle();
    let Side { qp, connector } = a;
    drop(qp);
    world.ends("the connect", &connector, &connects, HRESULT::ND_CANCELED)?;
    drop(listener);
    Ok("ND_CANCELED".into())
}

fn refused_queue_pair(world: &World) -> Result<String, Failure> {
    let (a, late) = (side(world)?, world.request());
    let (listener, at) = listen(world, 0)?;
    let connects = connect(world, &a, at)?;
    let other = made("another connector", world.adapter.connector(world.file))?;
    let result = other.connect(&a.qp, at, (0, 0), &[], &late);
    world.refuses("Connect with a queue pair in use", &late, result, HRESULT::ND_CONNECTION_ACTIVE)?;
    world.pends("the first connect", &a.connector, &connects)?;
    let Side { qp, connector } = a;
    drop(qp);
    // Before the other connector or the listener goes.
    world.ends("the first connect", &connector, &connects, HRESULT::ND_CANCELED)?;
    drop((other, listener));
    Ok("a connector that was refused does not take the queue pair: its release ends the first Connect".into())
}

fn gave_up(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let (listener, at) = listen(world, 0)?;
    let [arrives, accepts, completes] = [(); 3].map(|()| world.request());
    is("GetConnectionRequest", listener.request(&b.connector, &arrives), HRESULT::ND_PENDING)?;
    let connects = connect(world, &a, at)?;
    world.ends("the request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
    is("Accept", b.connector.accept(&b.qp, (0, 0), &[], &accepts), HRESULT::ND_PENDING)?;
    world.ends("the connect", &a.connector, &connects, HRESULT::ND_SUCCESS)?;
    ok("cancel", b.connector.cancel())?;
    world.ends("the accept", &b.connector, &accepts, HRESULT::ND_CANCELED)?;
    world.settle();
    world.refuses("CompleteConnect", &completes, a.connector.complete(&completes), HRESULT::ND_CONNECTION_INVALID)?;
    Ok("ND_CONNECTION_INVALID when the passive side has given up".into())
}

fn notify_disconnect(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let [never, first, second, late] = [(); 4].map(|()| world.request());
    world.refuses("never connected", &never, a.connector.notify_disconnect(&never), HRESULT::ND_CONNECTION_INVALID)?;
    let link = world.connect(&a.qp, &b.qp)?;
    for request in [&first, &second] {
        is("NotifyDisconnect", link.active.notify_disconnect(request), HRESULT::ND_PENDING)?;
    }
    world.pends("while connected", &link.active, &first)?;
    let disconnects = world.request();
    let result = link.passive.disconnect(&disconnects);
    holds("Disconnect", result == HRESULT::ND_SUCCESS || result.is_pending())?;
    for request in [&first, &second] {
        world.ends("the notification", &link.active, request, HRESULT::ND_SUCCESS)?;
    }
    world.until("the disconnect", || !disconnects.status().is_pending())?;
    world.now("afterwards", &link.active, &late, link.active.notify_disconnect(&late))?;
    Ok("pending until the peer disconnects, ND_SUCCESS at once afterwards".into())
}

fn peer_disconnects(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let numbers = [stream.receive()?, stream.receive()?];
    let [hears, disconnects] = [(); 2].map(|()| world.request());
    is("NotifyDisconnect", stream.link.passive.notify_disconnect(&hears), HRESULT::ND_PENDING)?;
    let result = stream.link.active.disconnect(&disconnects);
    holds("Disconnect", result == HRESULT::ND_SUCCESS || result.is_pending())?;
    let found = take(world, &stream.queue, 2)?;
    let found: Vec<_> = found.iter().map(|result| (result.RequestContext.addr(), result.Status)).collect();
    is("the receives", found, numbers.map(|number| (number, HRESULT::ND_CANCELED)).to_vec())?;
    // It was told before.
    is("the notification", stream.link.passive.outcome(&hears, false), HRESULT::ND_SUCCESS)?;
    world.until("the disconnect", || !disconnects.status().is_pending())?;
    is("a send", stream.receiver.send(1, &[], 0), HRESULT::ND_CONNECTION_INVALID)?;
    Ok("receives end with ND_CANCELED, after NotifyDisconnect".into())
}

fn no_disconnect(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let link = world.connect(&a.qp, &b.qp)?;
    let request = world.request();
    is("NotifyDisconnect", link.active.notify_disconnect(&request), HRESULT::ND_PENDING)?;
    ok("cancel", link.active.cancel())?;
    is("the notification", link.active.outcome(&request, false), HRESULT::ND_CANCELED)?;
    // The connection is none the worse.
    let again = world.request();
    is("NotifyDisconnect", link.active.notify_disconnect(&again), HRESULT::ND_PENDING)?;
    world.pends("the connection", &link.active, &again)?;
    ok("cancel", link.active.cancel())?;
    Ok("ND_CANCELED by CancelOverlappedRequests, and the connection stays".into())
}

fn disconnect(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let number = stream.receive()?;
    let (request, hears) = (world.request(), world.request());
    is("NotifyDisconnect", stream.link.passive.notify_disconnect(&hears), HRESULT::ND_PENDING)?;
    let result = stream.link.passive.disconnect(&request);
    world.succeeds("Disconnect", &stream.link.passive, &request, result)?;
    world.ends("its own notification", &stream.link.passive, &hears, HRESULT::ND_SUCCESS)?;
    let mut results = Vec::new();
    world.until("the receive", || {
        results.extend(stream.queue.results(4));
        !results.is_empty()
    })?;
    let found = (results[0].RequestContext.addr(), results[0].Status);
    is("the receive", found, (number, HRESULT::ND_CANCELED))?;
    is("a send", stream.receiver.send(1, &[], 0), HRESULT::ND_CONNECTION_INVALID)?;
    world.refuses("again", &request, stream.link.passive.disconnect(&request), HRESULT::ND_CONNECTION_INVALID)?;
    Ok("what was outstanding is ND_CANCELED".into())
}

fn disconnect_cancels(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    // The peer has no receive for either.
    for number in [1, 2] {
        ok("Send", stream.sender.send(number, &[stream.memory.sge(0, 8)], 0))?;
    }
    world.settle();
    let request = world.request();
    let result = stream.link.active.disconnect(&request);
    holds("Disconnect", result == HRESULT::ND_SUCCESS || result.is_pending())?;
    if result.is_pending() {
        world.ends("Disconnect", &stream.link.active, &request, HRESULT::ND_SUCCESS)?;
    }
    let found = take(world, &stream.sends, 2)?;
    let found: Vec<_> = found.iter().map(|result| (result.RequestContext.addr(), result.Status)).collect();
    is("the sends", found, vec![(1, HRESULT::ND_CANCELED), (2, HRESULT::ND_CANCELED)])?;
    Ok("sends that wait for receives are ND_CANCELED, and nobody waits for a timeout".into())
}

fn broken(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    is("NotifyDisconnect", stream.link.active.notify_disconnect(&request), HRESULT::ND_PENDING)?;
    world.break_queue(stream.queue.as_ptr())?;
    world.ends("the end of the connection", &stream.link.active, &request, HRESULT::ND_SUCCESS)?;
    for connector in [&stream.link.active, &stream.link.passive] {
        let again = world.request();
        world.refuses("Disconnect", &again, connector.disconnect(&again), HRESULT::ND_CONNECTION_INVALID)?;
    }
    Ok("ND_CONNECTION_INVALID: a connection that has broken is none".into())
}

fn breaking(world: &World) -> Result<String, Failure> {
    let stream = Stream::new(world, 8)?;
    let request = world.request();
    let result = stream.link.active.disconnect(&request);
    holds("Disconnect", result == HRESULT::ND_SUCCESS || result.is_pending())?;
    // Before the peer has answered, unless it has been quick.
    world.break_queue(stream.queue.as_ptr())?;
    world.succeeds("Disconnect", &stream.link.active, &request, result)?;
    Ok("the connection has ended, which is what was asked for".into())
}

fn release(world: &World) -> Result<String, Failure> {
    let (a, b) = (side(world)?, side(world)?);
    let link = world.connect(&a.qp, &b.qp)?;
    let hears = world.request();
    is("NotifyDisconnect", link.active.notify_disconnect(&hears), HRESULT::ND_PENDING)?;
    drop(b);
    world.ends("the notification", &link.active, &hears, HRESULT::ND_SUCCESS)?;
    Ok("releasing a connected queue pair disconnects it".into())
}

fn removed(world: &World) -> Result<String, Failure> {
    let (a, b, c) = (side(world)?, side(world)?, side(world)?);
    let link = world.connect(&a.qp, &b.qp)?;
    let (listener, at) = listen(world, 0)?;
    let [hears, waits, connects, late] = [(); 4].map(|()| world.request());
    is("NotifyDisconnect", link.active.notify_disconnect(&hears), HRESULT::ND_PENDING)?;
    let connecting = connect(world, &c, at)?;
    world.settle();
    let (idle, waiting) = (listen(world, 0)?.0, side(world)?);
    is("GetConnectionRequest", idle.request(&waiting.connector, &waits), HRESULT::ND_PENDING)?;
    world.remove(0);
    let gone = HRESULT::ND_DEVICE_REMOVED;
    // The connection is over, which is what it waits for.
    world.until("the notification", || !hears.status().is_pending())?;
    let heard = link.active.outcome(&hears, false);
    holds("ND_SUCCESS or ND_DEVICE_REMOVED", [HRESULT::ND_SUCCESS, gone].contains(&heard))?;
    world.ends("the connect", &c.connector, &connecting, gone)?;
    world.ends("the connection request", &idle, &waits, gone)?;
    world.refuses("Connect", &connects, c.connector.connect(&c.qp, at, (0, 0), &[], &connects), gone)?;
    world.refuses("GetConnectionRequest", &late, idle.request(&waiting.connector, &late), gone)?;
    is("Listen", listener.listen(0), gone)?;
    is("Bind", c.connector.bind(at), gone)?;
    world.refuses("NotifyDisconnect", &late, link.active.notify_disconnect(&late), gone)?;
    world.refuses("Disconnect", &late, link.active.disconnect(&late), gone)?;
    is("Receive", a.qp.receive(1, &[]), gone)?;
    ok("CancelOverlappedRequests", link.active.cancel())?;
    // Nobody finds the adapter any more.
    let other = made("the other adapter", world.provider.open(&IID_IND2Adapter, 2))?;
    let file = made("its file", other.file())?;
    let queue = made("its queue", other.queue(file, 8, 0))?;
    let qp = made("its queue pair", other.qp(queue.as_ptr(), queue.as_ptr(), 0, SIZES))?;
    let connector = made("its connector", other.connector(file))?;
    let result = connector.connect(&qp, at, (0, 0), &[], &late);
    world.refuses("Connect from another adapter", &late, result, HRESULT::ND_HOST_UNREACHABLE)?;
    Ok("ND_DEVICE_REMOVED for what was outstanding and for what comes later".into())
}
