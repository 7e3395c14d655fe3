//! COM: identity, references, and the making of objects.

use std::ptr;

use nd2::{
    abi::{
        HRESULT, IID_IND2Adapter, IID_IND2CompletionQueue, IID_IND2Connector, IID_IND2Overlapped, IID_IND2Provider,
        IID_IND2QueuePair, IID_IUnknown, IND2AdapterVtbl, IND2CompletionQueueVtbl, IND2OverlappedVtbl, IUnknownVtbl,
        ND_VERSION_2, ND2_ADAPTER_INFO, notify::ND_CQ_NOTIFY_ANY,
    },
    class::can_unload_now,
};
use ndkpi::{GUID, SOCKADDR_INET};
use std::net::SocketAddr;

use crate::{
    Case, Failure, World,
    case::{holds, is, ok},
    client::{Com, Overlapped, Provider, QpSizes},
    stream::made,
    world::{HERE, HERE_V6, MAX_LISTENERS, MAX_REGISTERED, SIZES, THERE},
};

pub const CASES: &[Case] = &[
    Case::new("com.class_object", "NetworkDirectSPI, instantiating a provider 2", class_object),
    Case::new("com.unload", "NetworkDirectSPI, DllCanUnloadNow", unload),
    Case::new("com.identity", "COM, QueryInterface", identity),
    Case::new("com.references", "COM, AddRef and Release", references),
    Case::new("com.objects_outlive_the_adapter", "IND2Provider::OpenAdapter, implementation notes", outlive),
    Case::new("provider.resolve_address", "IND2Provider::ResolveAddress", resolve),
    Case::new("provider.open_adapter", "IND2Provider::OpenAdapter", open),
    Case::new("provider.address_list", "IND2Provider::QueryAddressList", provider_addresses),
    Case::new("adapter.query", "IND2Adapter::Query", query),
    Case::new("adapter.address_list", "IND2Adapter::QueryAddressList", adapter_addresses),
    Case::new("adapter.files", "IND2Adapter::CreateOverlappedFile", files),
    Case::new("adapter.closed_files", "IND2Adapter::CreateOverlappedFile, remarks", closed_files),
    Case::new("adapter.create_completion_queue", "IND2Adapter::CreateCompletionQueue", create_queue),
    Case::new("adapter.create_queue_pair", "IND2Adapter::CreateQueuePair", create_queue_pair),
    Case::new("adapter.limits", "IND2Adapter::CreateQueuePair, return value 4", limits),
    Case::new("adapter.objects_of_another", "IND2Adapter::CreateQueuePair, return value 2", of_another),
];

fn class_object(world: &World) -> Result<String, Failure> {
    let object = |iid: GUID| Provider::make(|out| world.class_object(&raw const iid, out));
    let provider = made("IND2Provider", object(IID_IND2Provider))?;
    let unknown = provider.query::<IUnknownVtbl>(&IID_IUnknown);
    made("IUnknown", unknown)?;
    is("another interface", object(IID_IND2Adapter).err(), Some(HRESULT::E_NOINTERFACE))?;
    let mut place = ptr::null_mut();
    let result = world.class_object(ptr::null(), &raw mut place);
    is("no identifier", result, HRESULT::E_POINTER)?;
    Ok("IND2Provider itself, without a class factory".into())
}

fn unload(world: &World) -> Result<String, Failure> {
    is("with objects", can_unload_now(), HRESULT::S_FALSE)?;
    let before = nd2::live_objects();
    holds("the provider and the adapter", before >= 2)?;
    made("the window", world.adapter.window()).map(drop)?;
    Ok("S_FALSE while there are objects".into())
}

fn identity(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let unknown = made("IUnknown", queue.query::<IUnknownVtbl>(&IID_IUnknown))?;
    let overlapped = made("IND2Overlapped", queue.query::<IND2OverlappedVtbl>(&IID_IND2Overlapped))?;
    let same = made("from IUnknown", unknown.query::<IND2CompletionQueueVtbl>(&IID_IND2CompletionQueue))?;
    let again = made("IUnknown again", overlapped.query::<IUnknownVtbl>(&IID_IUnknown))?;
    is("IUnknown", again.as_ptr(), unknown.as_ptr())?;
    is("the queue", same.as_ptr(), queue.as_ptr())?;
    // The base interface works on its own.
    let request = world.request();
    is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    ok("cancel through the base", overlapped.cancel())?;
    is("result through the base", overlapped.outcome(&request, false), HRESULT::ND_CANCELED)?;
    is("a foreign interface", queue.query::<IND2AdapterVtbl>(&IID_IND2Adapter).err(), Some(HRESULT::E_NOINTERFACE))?;
    let strange = GUID::from_u128(0x0123_4567);
    is("an unknown interface", queue.query::<IUnknownVtbl>(&strange).err(), Some(HRESULT::E_NOINTERFACE))?;
    let mut place = ptr::without_provenance_mut(1);
    // SAFETY: the object is held, and the pointers are valid.
    let result = unsafe { (unknown.table().QueryInterface)(unknown.as_ptr(), &raw const strange, &raw mut place) };
    is("the place for it", (result, place), (HRESULT::E_NOINTERFACE, ptr::null_mut()))?;
    Ok("one IUnknown, reflexive, symmetric and transitive; E_NOINTERFACE for others".into())
}

fn references(world: &World) -> Result<String, Failure> {
    let window = made("the window", world.adapter.window())?;
    let counts = [window.add_ref(), window.add_ref(), window.release(), window.release()];
    is("counts", counts, [2, 3, 2, 1])?;
    Ok("2, 3, 2, 1".into())
}

fn outlive(world: &World) -> Result<String, Failure> {
    let adapter = made("the adapter", world.provider.open(&IID_IND2Adapter, 1))?;
    let file = made("the file", adapter.file())?;
    let queue = made("the queue", adapter.queue(file, 8, 0))?;
    drop(adapter);
    let request = world.request();
    is("Notify", queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    ok("cancel", queue.cancel())?;
    is("the request", queue.outcome(&request, true), HRESULT::ND_CANCELED)?;
    Ok("a queue works after its adapter was released".into())
}

fn resolve(world: &World) -> Result<String, Failure> {
    let of = |address, port| world.provider.resolve(&SOCKADDR_INET::from(SocketAddr::new(address, port)));
    is("the first", (of(HERE, 0), of(HERE_V6, 4711)), (Ok(1), Ok(1)))?;
    is("the second", of(THERE, 0), Ok(2))?;
    let nobody = "10.9.9.9".parse().map_err(|_| Failure::new("an address"))?;
    is("nobody's", of(nobody, 0), Err(HRESULT::ND_INVALID_ADDRESS))?;
    let none = SOCKADDR_INET::UNSPECIFIED;
    is("no address", world.provider.resolve(&none), Err(HRESULT::ND_INVALID_ADDRESS))?;
    Ok("IPv4 and IPv6, the port ignored; ND_INVALID_ADDRESS for others".into())
}

fn open(world: &World) -> Result<String, Failure> {
    made("the second", world.provider.open(&IID_IND2Adapter, 2))?;
    let invalid = world.provider.open(&IID_IND2Adapter, 77).err();
    is("an unknown one", invalid, Some(HRESULT::ND_INVALID_PARAMETER))?;
    let interface = world.provider.open(&IID_IND2Connector, 1).err();
    is("an unknown interface", interface, Some(HRESULT::E_NOINTERFACE))?;
    world.remove(1);
    let removed = world.provider.open(&IID_IND2Adapter, 2).err();
    // A driver that has deleted the device does not know the number any more.
    let gone = [HRESULT::ND_DEVICE_REMOVED, HRESULT::ND_INVALID_PARAMETER];
    holds("a removed one is refused", removed.is_some_and(|result| gone.contains(&result)))?;
    let address = SOCKADDR_INET::from(SocketAddr::new(THERE, 0));
    is("its address", world.provider.resolve(&address), Err(HRESULT::ND_INVALID_ADDRESS))?;
    let left = [HERE, HERE_V6].map(|address| SocketAddr::new(address, 0));
    list(|into, length| world.provider.addresses(into, length), &left)?;
    Ok("known adapters open; ND_INVALID_PARAMETER for others".into())
}

/// The addresses in a list at the beginning of these words.
fn listed(words: &[u64]) -> Vec<SocketAddr> {
    let count = u32::try_from(words[0] & 0xFFFF_FFFF).unwrap_or(0);
    (0..count as usize)
        .map(|index| {
            let (pointer, length) = (words[1 + 2 * index], words[2 + 2 * index]);
            let place = ptr::with_exposed_provenance(usize::try_from(pointer).expect("an address"));
            // SAFETY: the list is full of pointers into itself, with their lengths.
            let address = unsafe { SOCKADDR_INET::read(place, u32::try_from(length & 0xFFFF_FFFF).expect("short")) };
            address.and_then(|address| address.to_socket_addr()).expect("an address")
        })
        .collect()
}

fn list(get: impl Fn(&mut [u64], &mut u32) -> HRESULT, wanted: &[SocketAddr]) -> Result<(), Failure> {
    let mut length = 0;
    is("no buffer", get(&mut [], &mut length), HRESULT::ND_BUFFER_OVERFLOW)?;
    let mut words = vec![0_u64; length.div_ceil(8) as usize + 4];
    let mut short = length - 1;
    is("too short", get(&mut words, &mut short), HRESULT::ND_BUFFER_OVERFLOW)?;
    is("the buffer, and what is needed", (words[0], short), (0, length))?;
    words.as_mut_ptr().expose_provenance();
    let mut long = length + 16;
    ok("long enough", get(&mut words, &mut long))?;
    is("what was used", long, length)?;
    is("the addresses", listed(&words), wanted.to_vec())
}

fn provider_addresses(world: &World) -> Result<String, Failure> {
    let wanted = [HERE, HERE_V6, THERE].map(|address| SocketAddr::new(address, 0));
    list(|into, length| world.provider.addresses(into, length), &wanted)?;
    Ok("three addresses of two adapters; ND_BUFFER_OVERFLOW and the size for a short buffer".into())
}

fn adapter_addresses(world: &World) -> Result<String, Failure> {
    let wanted = [HERE, HERE_V6].map(|address| SocketAddr::new(address, 0));
    list(|into, length| world.adapter.addresses(into, length), &wanted)?;
    Ok("two addresses; ND_BUFFER_OVERFLOW and the size for a short buffer".into())
}

fn query(world: &World) -> Result<String, Failure> {
    let mut length = 0;
    is("no buffer", world.adapter.info(None, &mut length), HRESULT::ND_BUFFER_OVERFLOW)?;
    is("the size", length, 0x60)?;
    let mut info = ND2_ADAPTER_INFO { InfoVersion: 1, ..Default::default() };
    let before = info;
    length = 0x5F;
    is("too short", world.adapter.info(Some(&mut info), &mut length), HRESULT::ND_BUFFER_OVERFLOW)?;
    is("the buffer", info, before)?;
    length = 0x1000;
    ok("too long", world.adapter.info(Some(&mut info), &mut length))?;
    is("what was used", length, 0x60)?;
    is("what it says", info, world.config().info)?;
    holds("reads have no more pieces than others", info.MaxReadSge <= info.MaxInitiatorSge)?;
    info.InfoVersion = ND_VERSION_2;
    ok("as the public clients ask", world.adapter.info(Some(&mut info), &mut length))?;
    let wanted = ND2_ADAPTER_INFO { InfoVersion: ND_VERSION_2, ..world.config().info };
    is("what it says then", info, wanted)?;
    info.InfoVersion = 9;
    is("another version", world.adapter.info(Some(&mut info), &mut length), HRESULT::ND_INVALID_PARAMETER)?;
    Ok("0x60 bytes of version 1, whether it is called 1 or ND_VERSION_2".into())
}

fn files(world: &World) -> Result<String, Failure> {
    let other = made("another file", world.adapter.file())?;
    holds("a file of its own", other != world.file && !other.is_null())?;
    made("a queue on it", world.adapter.queue(other, 8, 0))?;
    let unknown = world.adapter.queue(ptr::without_provenance_mut(0xDEAD), 8, 0).err();
    is("no such file", unknown, Some(HRESULT::ND_INVALID_HANDLE))?;
    is("no file", world.adapter.queue(ptr::null_mut(), 8, 0).err(), Some(HRESULT::ND_INVALID_HANDLE))?;
    Ok("any number; ND_INVALID_HANDLE for what is none".into())
}

fn closed_files(world: &World) -> Result<String, Failure> {
    let before = world.platform.files();
    let first = made("a file", world.adapter.file())?;
    let queue = made("its queue", world.adapter.queue(first, 8, 0))?;
    world.platform.close(first);
    for _ in 0..100 {
        world.platform.close(made("a file", world.adapter.file())?);
    }
    // The one that is in use, and the last one.
    is("files", world.platform.files() - before, 2)?;
    let request = world.request();
    is("Notify after the handle was closed", queue.notify(ND_CQ_NOTIFY_ANY, &request), HRESULT::ND_PENDING)?;
    ok("cancel", queue.cancel())?;
    is("the request", queue.outcome(&request, true), HRESULT::ND_CANCELED)?;
    drop(queue);
    world.settle();
    let last = made("a file", world.adapter.file())?;
    is("files", world.platform.files() - before, 1)?;
    made("a queue of the last", world.adapter.queue(last, 8, 0))?;
    Ok("the provider lets go of files that are closed and not used".into())
}

fn limits(world: &World) -> Result<String, Failure> {
    let refused = Some(HRESULT::ND_INSUFFICIENT_RESOURCES);
    let most = MAX_LISTENERS;
    let listeners = (0..most).map(|_| world.adapter.listener(world.file)).collect::<Result<Vec<_>, _>>();
    let mut listeners = made("listeners", listeners)?;
    is("one more", world.adapter.listener(world.file).err(), refused)?;
    is("which limit", world.limits_reached(), vec![("listeners", most)])?;
    listeners.pop();
    made("one in place of another", world.adapter.listener(world.file)).map(drop)?;
    // Bytes, of which the world's limit has room for two such regions.
    let half = usize::try_from(MAX_REGISTERED / 2).unwrap_or(usize::MAX);
    let first = world.memory(half, 0)?;
    let second = world.memory(half, 0)?;
    let region = made("a region", world.adapter.region(world.file))?;
    let request = world.request();
    let at = first.buffer.pointer(0).cast();
    world.refuses(
        "one byte more",
        &request,
        region.register(at, 1, 0, &request),
        HRESULT::ND_INSUFFICIENT_RESOURCES,
    )?;
    is("which limit", world.limits_reached(), vec![("registered_bytes", MAX_REGISTERED)])?;
    drop(second);
    world.settle();
    world.now("Register", &region, &request, region.register(at, 1, 0, &request))?;
    drop(listeners);
    Ok("ND_INSUFFICIENT_RESOURCES, and the name of the limit".into())
}

fn create_queue(world: &World) -> Result<String, Failure> {
    let most = world.config().info.MaxCompletionQueueDepth;
    for depth in [0, most + 1, u32::MAX] {
        is("depth", world.adapter.queue(world.file, depth, 0).err(), Some(HRESULT::ND_INVALID_PARAMETER_3))?;
    }
    made("one", world.adapter.queue(world.file, 1, 0))?;
    let (table, iid) = (world.adapter.table(), IID_IND2QueuePair);
    let mut place = ptr::without_provenance_mut(1);
    // SAFETY: the object is held, and the pointers are valid.
    let result = unsafe {
        (table.CreateCompletionQueue)(world.adapter.as_ptr(), &raw const iid, world.file, 8, 0, 0, &raw mut place)
    };
    is("another interface", (result, place), (HRESULT::E_NOINTERFACE, ptr::null_mut()))?;
    Ok(format!("1 to {most}; ND_INVALID_PARAMETER_3 for others"))
}

fn create_queue_pair(world: &World) -> Result<String, Failure> {
    let queue = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let cq = queue.as_ptr();
    let info = world.config().info;
    let with = |sizes: QpSizes| world.adapter.qp(cq, cq, 0, sizes).err();
    let null = ptr::null_mut();
    is("no receive queue", world.adapter.qp(null, cq, 0, SIZES).err(), Some(HRESULT::ND_INVALID_PARAMETER_2))?;
    is("no initiator queue", world.adapter.qp(cq, null, 0, SIZES).err(), Some(HRESULT::ND_INVALID_PARAMETER_3))?;
    let wrong = world.adapter.as_ptr();
    is("no queue", world.adapter.qp(wrong, cq, 0, SIZES).err(), Some(HRESULT::ND_INVALID_PARAMETER_2))?;
    let sizes = QpSizes { receives: info.MaxReceiveQueueDepth + 1, ..SIZES };
    is("receives", with(sizes), Some(HRESULT::ND_INVALID_PARAMETER_5))?;
    let sizes = QpSizes { initiates: info.MaxInitiatorQueueDepth + 1, ..SIZES };
    is("initiator requests", with(sizes), Some(HRESULT::ND_INVALID_PARAMETER_6))?;
    let sizes = QpSizes { receive_sge: info.MaxReceiveSge + 1, ..SIZES };
    is("pieces of a receive", with(sizes), Some(HRESULT::ND_INVALID_PARAMETER_7))?;
    let sizes = QpSizes { initiator_sge: info.MaxInitiatorSge + 1, ..SIZES };
    is("pieces of a request", with(sizes), Some(HRESULT::ND_INVALID_PARAMETER_8))?;
    let sizes = QpSizes { inline: info.MaxInlineDataSize + 1, ..SIZES };
    is("inline bytes", with(sizes), Some(HRESULT::ND_INVALID_PARAMETER_9))?;
    Ok("the parameter that is wrong, by its number".into())
}

fn of_another(world: &World) -> Result<String, Failure> {
    let other = made("the other adapter", world.provider.open(&IID_IND2Adapter, 2))?;
    let file = made("its file", other.file())?;
    let foreign = made("its queue", other.queue(file, 8, 0))?;
    let own = made("the queue", world.adapter.queue(world.file, 8, 0))?;
    let qp = world.adapter.qp(foreign.as_ptr(), own.as_ptr(), 0, SIZES).err();
    is("a queue of another adapter", qp, Some(HRESULT::ND_INVALID_PARAMETER_2))?;
    is("a file of another adapter", world.adapter.queue(file, 8, 0).err(), Some(HRESULT::ND_INVALID_HANDLE))?;
    let _: &Com<_> = &foreign;
    Ok("refused".into())
}
