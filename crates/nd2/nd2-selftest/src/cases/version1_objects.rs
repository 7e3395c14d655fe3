//! Version 1 whole: class factory, provider, adapter, registrations, windows, connections, endpoints (`NDSPI 8`).

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ptr,
};

use nd2::{
    abi::{
        HRESULT, IClassFactoryVtbl, IID_IClassFactory, IID_IND2Adapter, IID_IND2Provider, IID_INDAdapter,
        IID_INDOverlapped, IID_INDProvider, IND2ProviderVtbl, INDOverlappedVtbl, INDProviderVtbl, IUnknownVtbl,
        ND_ADAPTER_INFO1, ND_MR_HANDLE, ND_MW_DESCRIPTOR, ND_RESULT, ND_SGE, ND_VERSION_1, ND_VERSION_2,
        op_flags::{ND_OP_FLAG_ALLOW_READ, ND_OP_FLAG_ALLOW_WRITE, ND_OP_FLAG_INLINE},
    },
    live_objects,
};

use crate::{
    Case, Failure, World,
    case::{holds, is, ok},
    client::{Adapter1, Com, Connector1, Endpoint1, Factory, Overlapped, Provider1, Queue1, Region1},
    stream::made,
    world::{HERE, SIZES, THERE},
};

pub const CASES: &[Case] = &[
    Case::new("v1.class_factory", "Instantiating a provider, steps 2, 3", class_factory),
    Case::new("v1.lock_server", "IClassFactory::LockServer", lock_server),
    Case::new("v1.open_adapter", "INDProvider::OpenAdapter", open_adapter),
    Case::new("v1.address_list", "INDProvider::QueryAddressList", address_list),
    Case::new("v1.adapter", "INDAdapter::Query; GetFileHandle; Control", adapter),
    Case::new("v1.create_completion_queue", "INDAdapter::CreateCompletionQueue", completion_queue),
    Case::new("v1.register_memory", "INDAdapter::RegisterMemory; DeregisterMemory", register_memory),
    Case::new("v1.deregister_busy", "INDAdapter::DeregisterMemory, return value 4", deregister_busy),
    Case::new("v1.listen", "INDAdapter::Listen", listen),
    Case::new("v1.connect", "INDConnector, remarks", connect),
    Case::new("v1.reject", "INDConnector::Reject; GetConnectionData", reject),
    Case::new("v1.disconnect", "INDConnector::NotifyDisconnect; Disconnect", disconnect),
    Case::new("v1.both_versions", "INDConnector::Connect", both_versions),
    Case::new("v1.send", "INDEndpoint::Send; Receive", send),
    Case::new("v1.inline", "ND_SGE, hMr", inline),
    Case::new("v1.read_and_write", "INDEndpoint::Bind; Read; Write", read_and_write),
    Case::new("v1.invalidate", "INDEndpoint::Invalidate", invalidate),
    Case::new("v1.send_and_invalidate", "INDEndpoint::SendAndInvalidate", send_and_invalidate),
    Case::new("v1.request_batch", "INDEndpoint::StartRequestBatch; SubmitRequestBatch", batch),
    Case::new("v1.flush", "INDEndpoint::Flush", flush),
    Case::new("v1.limits", "INDEndpoint, return values", limits),
    Case::new("v1.removed", "INDAdapter, return values", removed),
];

const EMPTY: ND_RESULT = ND_RESULT { Status: HRESULT::ND_PENDING, BytesTransferred: usize::MAX };

fn provider(world: &World) -> Result<Provider1, Failure> {
    let factory: Factory = made("the factory", Com::make(|out| world.class_object(&raw const IID_CLASS_FACTORY, out)))?;
    made("the provider", factory.create(ptr::null_mut(), &IID_INDProvider))
}

static IID_CLASS_FACTORY: ndkpi::GUID = IID_IClassFactory;

fn open(world: &World) -> Result<Adapter1, Failure> {
    made("the adapter", provider(world)?.open(SocketAddr::new(HERE, 0)))
}

/// One end of a connection.
struct End {
    connector: Connector1,
    endpoint: Endpoint1,
    queue: Queue1,
}

impl End {
    fn new(adapter: &Adapter1) -> Result<Self, Failure> {
        let queue = made("a queue", adapter.queue(64))?;
        let connector = made("a connector", adapter.connector())?;
        let (endpoint, inline) = made("an endpoint", connector.endpoint([&queue, &queue], 16, (3, 2)))?;
        is("inline bytes", inline, 1024)?;
        Ok(Self { connector, endpoint, queue })
    }

    /// Waits for the next result, which has to be in this block.
    fn result(&self, world: &World, block: &ND_RESULT) -> Result<ND_RESULT, Failure> {
        let mut found = Vec::new();
        world.until("a result", || {
            found = self.queue.results(1);
            !found.is_empty()
        })?;
        is("the block", found[0].cast_const(), ptr::from_ref(block))?;
        // SAFETY: the block is the case's, and valid.
        Ok(unsafe { found[0].read() })
    }

    fn succeeds(&self, world: &World, block: &ND_RESULT) -> Result<usize, Failure> {
        let result = self.result(world, block)?;
        ok("the request", result.Status)?;
        Ok(result.BytesTransferred)
    }
}

/// Registers zeroed bytes.
fn memory(world: &World, adapter: &Adapter1, length: usize) -> Result<Region1, Failure> {
    let (buffer, request, mut handle) = (world.bytes(length)?, world.request(), ND_MR_HANDLE(0));
    let result = adapter.register(buffer.pointer(0).cast(), length, &request, &mut handle);
    world.now("RegisterMemory", adapter, &request, result)?;
    holds("a handle", handle.0 != 0)?;
    Ok(Region1 { handle, buffer })
}

/// Two ends that are connected.
struct Pair {
    near: End,
    far: End,
    /// Of both.
    region: Region1,
    adapter: Adapter1,
}

impl Pair {
    fn new(world: &World) -> Result<Self, Failure> {
        let adapter = open(world)?;
        let (near, far) = (End::new(&adapter)?, End::new(&adapter)?);
        establish(world, &adapter, &near, &far)?;
        let region = memory(world, &adapter, 8192)?;
        Ok(Self { near, far, region, adapter })
    }

    /// The bytes of the far end's memory, bound to a window.
    fn window(
        &self,
        world: &World,
        (offset, length): (usize, usize),
        flags: u32,
    ) -> Result<(Com<IUnknownVtbl>, ND_MW_DESCRIPTOR), Failure> {
        let (mut unused, mut block) = (EMPTY, EMPTY);
        let window = made("a window", self.adapter.window(&mut unused))?;
        let bound = self.far.endpoint.bind(&mut block, &self.region, &window, (offset, length), flags);
        let descriptor = made("Bind", bound)?;
        self.far.succeeds(world, &block)?;
        is("its length", u64::from_be_bytes(descriptor.Length), length as u64)?;
        Ok((window, descriptor))
    }
}

fn establish(world: &World, adapter: &Adapter1, near: &End, far: &End) -> Result<(), Failure> {
    let (listen, port) = made("Listen", adapter.listen(0, 0))?;
    let [arrives, connects, accepts, completes] = [(); 4].map(|()| world.request());
    is("GetConnectionRequest", listen.request(&far.connector, &arrives), HRESULT::ND_PENDING)?;
    let to = SocketAddr::new(HERE, port);
    is("Connect", near.connector.connect(near.endpoint.as_ptr(), to, b"hello", &connects), HRESULT::ND_PENDING)?;
    world.ends("the connection request", &listen, &arrives, HRESULT::ND_SUCCESS)?;
    is("Accept", far.connector.accept(far.endpoint.as_ptr(), b"welcome", &accepts), HRESULT::ND_PENDING)?;
    world.ends("the connect", &near.connector, &connects, HRESULT::ND_SUCCESS)?;
    world.now("CompleteConnect", &near.connector, &completes, near.connector.complete(&completes))?;
    world.ends("the accept", &far.connector, &accepts, HRESULT::ND_SUCCESS)
}

fn class_factory(world: &World) -> Result<String, Failure> {
    let object = |iid: ndkpi::GUID| Factory::make(|out| world.class_object(&raw const iid, out));
    let factory = made("IClassFactory", object(IID_IClassFactory))?;
    made("itself", factory.query::<IClassFactoryVtbl>(&IID_IClassFactory))?;
    let aggregated = factory.create::<INDProviderVtbl>(factory.as_ptr(), &IID_INDProvider).err();
    is("aggregated", aggregated, Some(HRESULT::CLASS_E_NOAGGREGATION))?;
    let other = factory.create::<INDProviderVtbl>(ptr::null_mut(), &IID_IND2Adapter).err();
    is("another interface", other, Some(HRESULT::E_NOINTERFACE))?;
    let provider = made("INDProvider", factory.create::<INDProviderVtbl>(ptr::null_mut(), &IID_INDProvider))?;
    let second = provider.query::<IND2ProviderVtbl>(&IID_IND2Provider).err();
    is("version 2 of it", second, Some(HRESULT::E_NOINTERFACE))?;
    made("IND2Provider", factory.create::<IND2ProviderVtbl>(ptr::null_mut(), &IID_IND2Provider))?;
    is("INDProvider without a factory", object(IID_INDProvider).err(), Some(HRESULT::E_NOINTERFACE))?;
    Ok("IClassFactory, and INDProvider from it".into())
}

/// More locks than any other run in this process has objects: their number is theirs to change at any time.
const LOCKS: u32 = 100_000;

fn lock_server(world: &World) -> Result<String, Failure> {
    let factory: Factory = made("the factory", Com::make(|out| world.class_object(&raw const IID_CLASS_FACTORY, out)))?;
    for _ in 0..LOCKS {
        ok("LockServer", factory.lock(true))?;
    }
    let counted = live_objects();
    for _ in 0..LOCKS {
        ok("LockServer again", factory.lock(false))?;
    }
    holds("each lock is one more reason to stay", counted >= LOCKS)?;
    Ok("counted like objects".into())
}

fn open_adapter(world: &World) -> Result<String, Failure> {
    let provider = provider(world)?;
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 0);
    is("a foreign address", provider.open(nobody).err(), Some(HRESULT::ND_INVALID_ADDRESS))?;
    // The port is ignored.
    let adapter = made("the adapter", provider.open(SocketAddr::new(HERE, 7)))?;
    drop(provider);
    made("INDOverlapped", adapter.query::<INDOverlappedVtbl>(&IID_INDOverlapped))?;
    let second = adapter.query::<IUnknownVtbl>(&IID_IND2Adapter).err();
    is("version 2 of it", second, Some(HRESULT::E_NOINTERFACE))?;
    made("itself", adapter.query::<IUnknownVtbl>(&IID_INDAdapter))?;
    made("a queue", adapter.queue(8))?;
    Ok("by its address; it outlives the provider".into())
}

fn address_list(world: &World) -> Result<String, Failure> {
    let (provider, mut length) = (provider(world)?, 0);
    is("how long", provider.addresses(&mut [], &mut length), HRESULT::ND_BUFFER_OVERFLOW)?;
    let mut room = vec![0_u64; length / 8 + 4];
    let needed = length;
    length = size_of_val(room.as_slice());
    ok("QueryAddressList", provider.addresses(&mut room, &mut length))?;
    is("its length", length, needed)?;
    // The number of addresses comes first.
    is("addresses", room[0] & 0xFFFF_FFFF, 3)?;
    Ok("those of both adapters".into())
}

fn adapter(world: &World) -> Result<String, Failure> {
    let (adapter, mut length) = (open(world)?, 0);
    is("how long", adapter.info(ND_VERSION_1, &mut length).err(), Some(HRESULT::ND_BUFFER_OVERFLOW))?;
    is("that long", length, size_of::<ND_ADAPTER_INFO1>())?;
    let info = made("Query", adapter.info(ND_VERSION_1, &mut length))?;
    let own = &world.config().info;
    is("vendor", info.VendorId, own.VendorId.into())?;
    is("receives", info.MaxInboundRequests, own.MaxReceiveQueueDepth as usize)?;
    is("elements of any request", info.MaxOutboundSge, 3)?;
    is("inline", info.MaxInlineData, own.MaxInlineDataSize as usize)?;
    is("private data", (info.MaxCallerData, info.MaxCalleeData), (512, 512))?;
    is("version 2", adapter.info(ND_VERSION_2, &mut length).err(), Some(HRESULT::ND_INVALID_PARAMETER))?;
    let file = adapter.file();
    is("the file, again", adapter.file(), file)?;
    let port = world.platform.completion_port(file).ok_or_else(|| Failure::new("the file can have a port"))?;
    is("Control", adapter.control(&world.request()), HRESULT::ND_NOT_SUPPORTED)?;
    let queue = made("a queue", adapter.queue(8))?;
    let request = world.request();
    is("Notify", queue.notify(1, &request), HRESULT::ND_PENDING)?;
    ok("cancel", queue.cancel())?;
    let packet = port.get().map(|packet| (packet.overlapped, packet.status));
    is("the packet", packet, Some((request.as_ptr(), HRESULT::ND_CANCELED)))?;
    drop((queue, adapter));
    holds("its file is closed with it", world.platform.completion_port(file).is_none())?;
    Ok("limits in the words of version 1; the file belongs to the adapter".into())
}

fn completion_queue(world: &World) -> Result<String, Failure> {
    let adapter = open(world)?;
    let most = world.config().info.MaxCompletionQueueDepth as usize;
    is("none", adapter.queue(0).err(), Some(HRESULT::ND_INVALID_PARAMETER))?;
    is("too many", adapter.queue(most + 1).err(), Some(HRESULT::ND_INVALID_PARAMETER))?;
    is("very many", adapter.queue(usize::MAX).err(), Some(HRESULT::ND_INVALID_PARAMETER))?;
    made("a queue", adapter.queue(1))?;
    Ok("INDCompletionQueue, up to the adapter's depth".into())
}

fn register_memory(world: &World) -> Result<String, Failure> {
    let (adapter, request, mut none) = (open(world)?, world.request(), ND_MR_HANDLE(77));
    let result = adapter.register(ptr::null(), 64, &request, &mut none);
    is("nothing", (result, none), (HRESULT::ND_ACCESS_VIOLATION, ND_MR_HANDLE(0)))?;
    let region = memory(world, &adapter, 4096)?;
    let other = memory(world, &adapter, 4096)?;
    holds("handles differ", region.handle != other.handle)?;
    let request = world.request();
    world.now("DeregisterMemory", &adapter, &request, adapter.deregister(region.handle, &request))?;
    is("once more", adapter.deregister(region.handle, &world.request()), HRESULT::ND_INVALID_HANDLE)?;
    is("no handle", adapter.deregister(ND_MR_HANDLE(0), &world.request()), HRESULT::ND_INVALID_HANDLE)?;
    let after = memory(world, &adapter, 4096)?;
    holds("no handle comes back", after.handle != region.handle)?;
    Ok("a handle for each, good until it is deregistered".into())
}

fn deregister_busy(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    let (window, _) = pair.window(world, (0, 64), ND_OP_FLAG_ALLOW_READ)?;
    let request = world.request();
    world.refuses(
        "with a window",
        &request,
        pair.adapter.deregister(pair.region.handle, &request),
        HRESULT::ND_DEVICE_BUSY,
    )?;
    let mut block = EMPTY;
    ok("Invalidate", pair.far.endpoint.invalidate(&mut block, &window))?;
    pair.far.succeeds(world, &block)?;
    let result = pair.adapter.deregister(pair.region.handle, &request);
    world.now("without", &pair.adapter, &request, result)?;
    Ok("ND_DEVICE_BUSY while a window is bound, and the handle stays good".into())
}

fn listen(world: &World) -> Result<String, Failure> {
    let adapter = open(world)?;
    let (listen, port) = made("Listen", adapter.listen(1, 7100))?;
    is("the port", port, 7100)?;
    is("in use", adapter.listen(1, 7100).err(), Some(HRESULT::ND_SHARING_VIOLATION))?;
    let (_any, port) = made("any port", adapter.listen(0, 0))?;
    holds("an ephemeral one", port >= 49152)?;
    let (end, request) = (End::new(&adapter)?, world.request());
    is("GetConnectionRequest", listen.request(&end.connector, &request), HRESULT::ND_PENDING)?;
    ok("cancel", listen.cancel())?;
    world.ends("the request", &listen, &request, HRESULT::ND_CANCELED)?;
    drop(listen);
    world.settle();
    made("after the release", adapter.listen(1, 7100))?;
    Ok("listens at once, at the port that is asked for or at a free one".into())
}

fn connect(world: &World) -> Result<String, Failure> {
    let adapter = open(world)?;
    let (near, far) = (End::new(&adapter)?, End::new(&adapter)?);
    is("before", near.connector.address(true), Err(HRESULT::ND_CONNECTION_INVALID))?;
    let request = world.request();
    let nobody = SocketAddr::new(HERE, 9);
    let no_endpoint = near.connector.connect(ptr::null_mut(), nobody, &[], &request);
    world.refuses("without an endpoint", &request, no_endpoint, HRESULT::ND_INVALID_PARAMETER)?;
    let result = near.connector.connect(near.endpoint.as_ptr(), nobody, &[], &request);
    is("to nobody", result, HRESULT::ND_PENDING)?;
    world.ends("that connect", &near.connector, &request, HRESULT::ND_CONNECTION_REFUSED)?;
    establish(world, &adapter, &near, &far)?;
    let mut data = [0; 512];
    let (result, reads, _) = near.connector.data(&mut data);
    ok("GetConnectionData", result)?;
    // What the one takes, the other may send.
    is("reads", reads, (2, 2))?;
    is("private data", &data[..7], b"welcome")?;
    let (result, _, length) = far.connector.data(&mut data[..3]);
    is("a short buffer", (result, length), (HRESULT::ND_BUFFER_OVERFLOW, 512))?;
    is("what fits", &data[..3], b"hel")?;
    let [here, there] = [&near, &far].map(|end| (end.connector.address(false), end.connector.address(true)));
    is("each other's addresses", (here.0, here.1), (there.1, there.0))?;
    is("at the adapter", here.0.map(|address| address.ip()), Ok(HERE))?;
    Ok("refused once, and established with the same objects".into())
}

fn reject(world: &World) -> Result<String, Failure> {
    let adapter = open(world)?;
    let (near, far) = (End::new(&adapter)?, End::new(&adapter)?);
    let (listen, port) = made("Listen", adapter.listen(0, 0))?;
    let [arrives, connects] = [(); 2].map(|()| world.request());
    is("GetConnectionRequest", listen.request(&far.connector, &arrives), HRESULT::ND_PENDING)?;
    let to = SocketAddr::new(HERE, port);
    is("Connect", near.connector.connect(near.endpoint.as_ptr(), to, &[], &connects), HRESULT::ND_PENDING)?;
    world.ends("the request", &listen, &arrives, HRESULT::ND_SUCCESS)?;
    ok("Reject", far.connector.reject(b"no"))?;
    world.ends("the connect", &near.connector, &connects, HRESULT::ND_CONNECTION_REFUSED)?;
    let mut data = [0; 512];
    ok("GetConnectionData", near.connector.data(&mut data).0)?;
    is("the reason", &data[..2], b"no")?;
    Ok("ND_CONNECTION_REFUSED, with the reason".into())
}

fn disconnect(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    let [hears, ends] = [(); 2].map(|()| world.request());
    is("NotifyDisconnect", pair.far.connector.notify_disconnect(&hears), HRESULT::ND_PENDING)?;
    let mut block = EMPTY;
    ok("Receive", pair.far.endpoint.receive(&mut block, &[pair.region.sge(0, 64)]))?;
    let result = pair.near.connector.disconnect(&ends);
    world.succeeds("Disconnect", &pair.near.connector, &ends, result)?;
    world.ends("the other side", &pair.far.connector, &hears, HRESULT::ND_SUCCESS)?;
    is("its receive", pair.far.result(world, &block)?.Status, HRESULT::ND_CANCELED)?;
    let mut late = EMPTY;
    let result = pair.near.endpoint.send(&mut late, &[], 0);
    is("a send after it", result, HRESULT::ND_CONNECTION_INVALID)?;
    Ok("heard of by the peer, whose receives are cancelled".into())
}

fn both_versions(world: &World) -> Result<String, Failure> {
    // The active side is version 1, the passive side version 2, at another adapter.
    let adapter = open(world)?;
    let near = End::new(&adapter)?;
    let other = made("the other adapter", world.provider.open(&IID_IND2Adapter, 2))?;
    let file = made("its file", other.file())?;
    let queue = made("its queue", other.queue(file, 8, 0))?;
    let qp = made("its queue pair", other.qp(queue.as_ptr(), queue.as_ptr(), 0, SIZES))?;
    let passive = made("its connector", other.connector(file))?;
    let listener = made("its listener", other.listener(file))?;
    ok("Bind", listener.bind(SocketAddr::new(THERE, 7200)))?;
    ok("Listen", listener.listen(0))?;
    let [arrives, connects, accepts, completes] = [(); 4].map(|()| world.request());
    is("GetConnectionRequest", listener.request(&passive, &arrives), HRESULT::ND_PENDING)?;
    let to = SocketAddr::new(THERE, 7200);
    is("Connect", near.connector.connect(near.endpoint.as_ptr(), to, b"one", &connects), HRESULT::ND_PENDING)?;
    world.ends("the request", &listener, &arrives, HRESULT::ND_SUCCESS)?;
    is("Accept", passive.accept(&qp, (4, 4), b"two", &accepts), HRESULT::ND_PENDING)?;
    world.ends("the connect", &near.connector, &connects, HRESULT::ND_SUCCESS)?;
    world.now("CompleteConnect", &near.connector, &completes, near.connector.complete(&completes))?;
    world.ends("the accept", &passive, &accepts, HRESULT::ND_SUCCESS)?;
    ok("Receive", qp.receive(1, &[]))?;
    let mut block = EMPTY;
    ok("Send", near.endpoint.send(&mut block, &[], 0))?;
    near.succeeds(world, &block)?;
    world.until("the message", || !queue.results(4).is_empty())?;
    Ok("an endpoint of version 1 with a queue pair of version 2".into())
}

fn send(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    pair.region.buffer.write(0, b"version one");
    let (mut received, mut sent) = (EMPTY, EMPTY);
    ok("Receive", pair.far.endpoint.receive(&mut received, &[pair.region.sge(4096, 4), pair.region.sge(5000, 60)]))?;
    ok("Send", pair.near.endpoint.send(&mut sent, &[pair.region.sge(0, 8), pair.region.sge(8, 3)], 0))?;
    pair.near.succeeds(world, &sent)?;
    is("bytes", pair.far.succeeds(world, &received)?, 11)?;
    is("the first element", &pair.region.buffer.bytes(4096, 4)[..], b"vers")?;
    is("the second", &pair.region.buffer.bytes(5000, 7)[..], b"ion one")?;
    Ok("results are in the client's blocks".into())
}

fn inline(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    let bytes = *b"on the stack";
    let (mut received, mut sent) = (EMPTY, EMPTY);
    ok("Receive", pair.far.endpoint.receive(&mut received, &[pair.region.sge(0, 64)]))?;
    let entry =
        |bytes: &[u8]| ND_SGE { pAddr: bytes.as_ptr().cast_mut().cast(), Length: bytes.len(), hMr: ND_MR_HANDLE(0) };
    ok("Send", pair.near.endpoint.send(&mut sent, &[entry(&bytes)], 0))?;
    pair.near.succeeds(world, &sent)?;
    is("bytes", pair.far.succeeds(world, &received)?, 12)?;
    is("them", &pair.region.buffer.bytes(0, 12)[..], b"on the stack")?;
    let long = [0; 1025];
    let mut block = EMPTY;
    let result = pair.near.endpoint.send(&mut block, &[entry(&long)], 0);
    is("more than can be inline", result.succeeded(), false)?;
    let result = pair.near.endpoint.send(&mut block, &[], ND_OP_FLAG_INLINE);
    is("the flag of version 2", result, HRESULT::ND_INVALID_PARAMETER)?;
    Ok("entries without a region are taken during the call".into())
}

fn read_and_write(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    let flags = ND_OP_FLAG_ALLOW_READ | ND_OP_FLAG_ALLOW_WRITE;
    let (_window, descriptor) = pair.window(world, (4096, 256), flags)?;
    is("its base", u64::from_be_bytes(descriptor.Base), pair.region.buffer.address(4096))?;
    pair.region.buffer.write(0, b"there and back");
    let (mut write, mut read) = (EMPTY, EMPTY);
    ok("Write", pair.near.endpoint.write(&mut write, &[pair.region.sge(0, 14)], &descriptor, 100))?;
    pair.near.succeeds(world, &write)?;
    is("at the offset", &pair.region.buffer.bytes(4196, 14)[..], b"there and back")?;
    ok("Read", pair.near.endpoint.read(&mut read, &[pair.region.sge(1000, 8)], &descriptor, 106))?;
    pair.near.succeeds(world, &read)?;
    is("from the offset", &pair.region.buffer.bytes(1000, 8)[..], b"and back")?;
    // One byte beyond the window.
    let mut beyond = EMPTY;
    ok("Write", pair.near.endpoint.write(&mut beyond, &[pair.region.sge(0, 14)], &descriptor, 243))?;
    is("beyond the window", pair.near.result(world, &beyond)?.Status, HRESULT::ND_REMOTE_ERROR)?;
    Ok("at offsets of the window, and not beyond it".into())
}

fn invalidate(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    let (window, descriptor) = pair.window(world, (4096, 64), ND_OP_FLAG_ALLOW_WRITE)?;
    let (mut ends, mut write) = (EMPTY, EMPTY);
    ok("Invalidate", pair.far.endpoint.invalidate(&mut ends, &window))?;
    pair.far.succeeds(world, &ends)?;
    ok("Write", pair.near.endpoint.write(&mut write, &[pair.region.sge(0, 8)], &descriptor, 0))?;
    is("the write", pair.near.result(world, &write)?.Status, HRESULT::ND_REMOTE_ERROR)?;
    Ok("the descriptor is good no more".into())
}

fn send_and_invalidate(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    let (window, descriptor) = pair.window(world, (4096, 64), ND_OP_FLAG_ALLOW_WRITE)?;
    let (mut write, mut received, mut sent) = (EMPTY, EMPTY, EMPTY);
    ok("Write", pair.near.endpoint.write(&mut write, &[pair.region.sge(0, 8)], &descriptor, 0))?;
    pair.near.succeeds(world, &write)?;
    ok("Receive", pair.far.endpoint.receive(&mut received, &[pair.region.sge(200, 64)]))?;
    let result = pair.near.endpoint.send_and_invalidate(&mut sent, &[pair.region.sge(0, 5)], &descriptor);
    ok("SendAndInvalidate", result)?;
    pair.near.succeeds(world, &sent)?;
    is("the message", pair.far.succeeds(world, &received)?, 5)?;
    // The window can be bound again, which it could not while it was bound.
    let mut block = EMPTY;
    let again = pair.far.endpoint.bind(&mut block, &pair.region, &window, (0, 16), ND_OP_FLAG_ALLOW_READ);
    let again = made("Bind", again)?;
    pair.far.succeeds(world, &block)?;
    holds("another token", again.Token != descriptor.Token)?;
    let mut late = EMPTY;
    ok("Write", pair.near.endpoint.write(&mut late, &[pair.region.sge(0, 8)], &descriptor, 0))?;
    is("a write after it", pair.near.result(world, &late)?.Status, HRESULT::ND_REMOTE_ERROR)?;
    Ok("ends the peer's window before its receive completes".into())
}

fn batch(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    let (mut receives, mut sends) = ([EMPTY; 4], [EMPTY; 4]);
    for block in &mut receives {
        ok("Receive", pair.far.endpoint.receive(block, &[]))?;
    }
    pair.near.endpoint.batch(false);
    for block in &mut sends {
        ok("Send", pair.near.endpoint.send(block, &[], 0))?;
    }
    pair.near.endpoint.batch(true);
    for block in &sends {
        pair.near.succeeds(world, block)?;
    }
    for block in &receives {
        pair.far.succeeds(world, block)?;
    }
    Ok("all of them, in their order".into())
}

fn flush(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    let mut blocks = [EMPTY; 3];
    for block in &mut blocks {
        ok("Receive", pair.far.endpoint.receive(block, &[pair.region.sge(0, 8)]))?;
    }
    ok("Flush", pair.far.endpoint.flush())?;
    for block in &blocks {
        is("a receive", pair.far.result(world, block)?.Status, HRESULT::ND_CANCELED)?;
    }
    Ok("ND_CANCELED, in the order of their issue".into())
}

fn limits(world: &World) -> Result<String, Failure> {
    let adapter = open(world)?;
    let (end, mut block) = (End::new(&adapter)?, EMPTY);
    is("before a connection", end.endpoint.send(&mut block, &[], 0), HRESULT::ND_CONNECTION_INVALID)?;
    let region = memory(world, &adapter, 64)?;
    let many = [(); 17].map(|()| region.sge(0, 1));
    is("two elements fit", end.endpoint.receive(&mut block, &many[..3]), HRESULT::ND_DATA_OVERRUN)?;
    is("more than any endpoint has", end.endpoint.receive(&mut block, &many), HRESULT::ND_DATA_OVERRUN)?;
    let long = ND_SGE { Length: 1 << 33, ..region.sge(0, 1) };
    is("longer than any request", end.endpoint.receive(&mut block, &[long]), HRESULT::ND_DATA_OVERRUN)?;
    let mut blocks = [EMPTY; 16];
    for block in &mut blocks {
        ok("Receive", end.endpoint.receive(block, &[]))?;
    }
    is("one more", end.endpoint.receive(&mut block, &[]), HRESULT::ND_NO_MORE_ENTRIES)?;
    let deep = end.connector.endpoint([&end.queue, &end.queue], usize::MAX, (0, 0)).err();
    is("deeper than the adapter", deep, Some(HRESULT::ND_INVALID_PARAMETER))?;
    Ok("refused by the method, and nothing has happened".into())
}

fn removed(world: &World) -> Result<String, Failure> {
    let pair = Pair::new(world)?;
    world.remove(0);
    let (request, mut handle, mut block, mut length) = (world.request(), ND_MR_HANDLE(0), EMPTY, 0x80);
    let bytes = world.bytes(64)?;
    let result = pair.adapter.register(bytes.pointer(0).cast(), 64, &request, &mut handle);
    is("RegisterMemory", (result, handle), (HRESULT::ND_DEVICE_REMOVED, ND_MR_HANDLE(0)))?;
    let info = pair.adapter.info(ND_VERSION_1, &mut length);
    is("Query", info.err(), Some(HRESULT::ND_DEVICE_REMOVED))?;
    is("CreateConnector", pair.adapter.connector().err(), Some(HRESULT::ND_DEVICE_REMOVED))?;
    is("Receive", pair.near.endpoint.receive(&mut block, &[]), HRESULT::ND_DEVICE_REMOVED)?;
    Ok("ND_DEVICE_REMOVED".into())
}
