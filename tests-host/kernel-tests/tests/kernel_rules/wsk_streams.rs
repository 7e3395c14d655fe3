//! Winsock Kernel: sockets that listen and sockets that are connected.

use std::{
    cell::RefCell,
    ffi::c_void,
    io::{Read, Write},
    net::SocketAddr,
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use ndis::{
    ADDRINFOEXW, IPPROTO_IPV6, IPPROTO_TCP, IPV6_V6ONLY, NDIS_STRING, SIO_WSK_QUERY_IDEAL_SEND_BACKLOG,
    SIO_WSK_QUERY_RECEIVE_BACKLOG, SO_WSK_EVENT_CALLBACK, SOCK_STREAM, SOL_SOCKET, WSK_BUF,
    WSK_CLIENT_CONNECTION_DISPATCH, WSK_CLIENT_LISTEN_DISPATCH, WSK_CONTROL_SOCKET_TYPE, WSK_DATA_INDICATION,
    WSK_EVENT_ACCEPT, WSK_EVENT_CALLBACK_CONTROL, WSK_EVENT_DISABLE, WSK_EVENT_DISCONNECT, WSK_EVENT_RECEIVE,
    WSK_EVENT_SEND_BACKLOG, WSK_FLAG_ABORTIVE, WSK_FLAG_BASIC_SOCKET, WSK_FLAG_CONNECTION_SOCKET, WSK_FLAG_DRAIN,
    WSK_FLAG_LISTEN_SOCKET, WSK_FLAG_NODELAY, WSK_FLAG_STREAM_SOCKET, WSK_FLAG_WAITALL, WSK_PROVIDER_BASIC_DISPATCH,
    WSK_PROVIDER_CONNECTION_DISPATCH, WSK_PROVIDER_LISTEN_DISPATCH, WSK_SET_STATIC_EVENT_CALLBACKS, WSK_SOCKET,
};
use ndkpi::{AF_INET, AF_INET6, NtStatus, SOCKADDR, SOCKADDR_INET};
use simulated_kernel::{Driver, DuringRun, Impairment, Injection, Kernel, Medium, Network, Rule, caught};
use wdk_sys::{PVOID, ntddk::IoCancelIrp};

use crate::{
    raise,
    skeleton::{allocate, keep},
    wsk_sockets::{
        A, ADDRESS_ALREADY_EXISTS, B, CANCELLED, Chain, Client, DATA_NOT_ACCEPTED, EVENT_PENDING, FILE_FORCED_CLOSED,
        INVALID_DEVICE_STATE, PENDING, Request, bytes_of, call, events, free, inet, on, seeds, sleep, with_seed,
    },
};

const REQUEST_NOT_ACCEPTED: NtStatus = NtStatus::from_bits(0xC000_00D0);
const CONNECTION_RESET: NtStatus = NtStatus::from_bits(0xC000_020D);
const GRACEFUL_DISCONNECT: NtStatus = NtStatus::from_bits(0xC000_0237);
const SUCCESS: NtStatus = NtStatus::SUCCESS;
const SO_REUSEADDR: u32 = 4;
const SO_CONDITIONAL_ACCEPT: u32 = 0x3002;
const TCP_NODELAY: u32 = 1;

/// What the callbacks do.
#[derive(Clone, Copy)]
struct Does {
    accept: fn(Stream) -> NtStatus,
    receive: fn(*mut WSK_DATA_INDICATION, &mut usize) -> NtStatus,
}

static DOES: DuringRun<Mutex<Does>> = DuringRun::new(Mutex::new(CALM));
const CALM: Does = Does { accept: |_| SUCCESS, receive: |list, _| note(list) };
/// The socket that was accepted by the callback, and calls of the callbacks.
static ACCEPTED: DuringRun<AtomicPtr<WSK_SOCKET>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static SOCKET: DuringRun<AtomicPtr<WSK_SOCKET>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
/// The lists that callbacks have kept.
static KEPT: DuringRun<Mutex<Vec<usize>>> = DuringRun::new(Mutex::new(Vec::new()));
static CALLS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static ENDS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
/// The flags of the last disconnect, without that of the level, and how many there were.
static DISCONNECTED: DuringRun<Mutex<Vec<u32>>> = DuringRun::new(Mutex::new(Vec::new()));
static BACKLOG: DuringRun<AtomicUsize> = DuringRun::new(AtomicUsize::new(0));
static SEEN: DuringRun<Mutex<Vec<u8>>> = DuringRun::new(Mutex::new(Vec::new()));

static LISTENS: WSK_CLIENT_LISTEN_DISPATCH =
    WSK_CLIENT_LISTEN_DISPATCH { WskAcceptEvent: Some(on_accept), WskInspectEvent: None, WskAbortEvent: None };
static LOUD: WSK_CLIENT_CONNECTION_DISPATCH = WSK_CLIENT_CONNECTION_DISPATCH {
    WskReceiveEvent: Some(on_receive),
    WskDisconnectEvent: Some(on_disconnect),
    WskSendBacklogEvent: Some(on_backlog),
};

fn does() -> Does {
    *DOES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn let_it(does: Does) {
    *DOES.lock().unwrap_or_else(PoisonError::into_inner) = does;
}

fn seen() -> Vec<u8> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn disconnected() -> Vec<u32> {
    DISCONNECTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Notes what is in a list.
fn note(mut list: *mut WSK_DATA_INDICATION) -> NtStatus {
    while !list.is_null() {
        // SAFETY: a piece of the list.
        let here = unsafe { list.read() };
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes_of(&here.Buffer));
        list = here.Next;
    }
    SUCCESS
}

/// Keeps the list.
fn hold(list: *mut WSK_DATA_INDICATION, _: &mut usize) -> NtStatus {
    let _ = note(list);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(list.expose_provenance());
    PENDING
}

/// A list that was kept.
fn kept() -> *mut WSK_DATA_INDICATION {
    let list = KEPT.lock().unwrap_or_else(PoisonError::into_inner).pop();
    ptr::with_exposed_provenance_mut(list.expect("a list"))
}

unsafe extern "system" fn on_accept(
    _: PVOID,
    _: u32,
    local: *mut SOCKADDR,
    remote: *mut SOCKADDR,
    socket: *mut WSK_SOCKET,
    context: *mut PVOID,
    dispatch: *mut *const WSK_CLIENT_CONNECTION_DISPATCH,
) -> NtStatus {
    CALLS.fetch_add(1, SeqCst);
    if socket.is_null() {
        ENDS.fetch_add(1, SeqCst);
        return REQUEST_NOT_ACCEPTED;
    }
    for place in [local, remote] {
        // SAFETY: an address of either family.
        let length = if unsafe { (*place).sa_family } == AF_INET { 16 } else { 28 };
        // SAFETY: an address of either family.
        assert!(unsafe { SOCKADDR_INET::read(place, length) }.is_some());
    }
    let answer = (does().accept)(Stream(socket));
    if answer == SUCCESS {
        ACCEPTED.store(socket, SeqCst);
        // SAFETY: places that live until it returns.
        unsafe { context.write(ptr::null_mut()) };
        // SAFETY: places that live until it returns.
        unsafe { dispatch.write(&raw const LOUD) };
    }
    answer
}

unsafe extern "system" fn on_receive(
    _: PVOID,
    _: u32,
    list: *mut WSK_DATA_INDICATION,
    _: usize,
    accepted: *mut usize,
) -> NtStatus {
    CALLS.fetch_add(1, SeqCst);
    if list.is_null() {
        ENDS.fetch_add(1, SeqCst);
        return SUCCESS;
    }
    // SAFETY: a place that lives until it returns.
    (does().receive)(list, unsafe { &mut *accepted })
}

unsafe extern "system" fn on_disconnect(_: PVOID, flags: u32) -> NtStatus {
    DISCONNECTED.lock().unwrap_or_else(PoisonError::into_inner).push(flags & WSK_FLAG_ABORTIVE);
    SUCCESS
}

unsafe extern "system" fn on_backlog(_: PVOID, size: usize) -> NtStatus {
    BACKLOG.store(size, SeqCst);
    SUCCESS
}

fn forget() {
    let_it(CALM);
    for list in [&ACCEPTED, &SOCKET] {
        list.store(ptr::null_mut(), SeqCst);
    }
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    CALLS.store(0, SeqCst);
    ENDS.store(0, SeqCst);
    BACKLOG.store(0, SeqCst);
    *SEEN.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    *DISCONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
}

/// A socket.
#[derive(Clone, Copy)]
struct Stream(*mut WSK_SOCKET);

impl Stream {
    fn table<T: Copy>(self) -> T {
        // SAFETY: a socket that is not closed.
        let table = unsafe { (*self.0).Dispatch };
        // SAFETY: the table of its kind, as the caller says.
        unsafe { table.cast::<T>().read() }
    }

    fn functions(self) -> WSK_PROVIDER_CONNECTION_DISPATCH {
        self.table()
    }

    fn bind(self, address: &str) -> NtStatus {
        let (request, address) = (Request::new(), inet(address));
        // Both kinds have the function at one place.
        let bind = self.functions().WskBind.expect("a function");
        let said = call!(bind(self.0, address.as_ptr().cast_mut(), 0, request.irp()));
        request.end(said).0
    }

    fn connect_as(self, address: &str, request: &Request) -> NtStatus {
        let (address, connect) = (inet(address), self.functions().WskConnect.expect("a function"));
        call!(connect(self.0, address.as_ptr().cast_mut(), 0, request.irp()))
    }

    fn connect(self, address: &str) -> NtStatus {
        let request = Request::new();
        let said = self.connect_as(address, &request);
        request.end(said).0
    }

    fn accept_as(self, remote: *mut SOCKADDR, table: bool, request: &Request) -> NtStatus {
        let accept = self.table::<WSK_PROVIDER_LISTEN_DISPATCH>().WskAccept.expect("a function");
        let table = if table { &raw const LOUD } else { ptr::null() };
        call!(accept(self.0, 0, ptr::null_mut(), table, ptr::null_mut(), remote, request.irp()))
    }

    fn accept(self) -> Self {
        let request = Request::new();
        let said = self.accept_as(ptr::null_mut(), true, &request);
        let (status, socket) = request.end(said);
        assert_eq!(status, SUCCESS);
        Self(ptr::with_exposed_provenance_mut(socket))
    }

    fn send_as(self, buffer: &mut WSK_BUF, request: &Request) -> NtStatus {
        let send = self.functions().WskSend.expect("a function");
        call!(send(self.0, buffer, WSK_FLAG_NODELAY, request.irp()))
    }

    fn send(self, bytes: &[u8]) -> (NtStatus, usize) {
        let (mut chain, request) = (Chain::of(&[bytes]), Request::new());
        let said = self.send_as(&mut chain.buffer, &request);
        let outcome = request.end(said);
        chain.free();
        outcome
    }

    fn receive_as(self, buffer: &mut WSK_BUF, flags: u32, request: &Request) -> NtStatus {
        let receive = self.functions().WskReceive.expect("a function");
        call!(receive(self.0, buffer, flags, request.irp()))
    }

    fn receive(self, room: usize, flags: u32) -> Result<Vec<u8>, NtStatus> {
        let (mut chain, request) = (Chain::of(&[&vec![0; room]]), Request::new());
        let said = self.receive_as(&mut chain.buffer, flags, &request);
        let (status, count) = request.end(said);
        let mut bytes = chain.bytes();
        bytes.truncate(count);
        chain.free();
        status.ok().map(|()| bytes)
    }

    fn disconnect_as(self, last: *mut WSK_BUF, flags: u32, request: &Request) -> NtStatus {
        let disconnect = self.functions().WskDisconnect.expect("a function");
        call!(disconnect(self.0, last, flags, request.irp()))
    }

    fn disconnect(self, last: &[u8], flags: u32) -> NtStatus {
        let (mut chain, request) = (Chain::of(&[last]), Request::new());
        let buffer = if last.is_empty() { ptr::null_mut() } else { &raw mut chain.buffer };
        let said = self.disconnect_as(buffer, flags, &request);
        let (status, _) = request.end(said);
        chain.free();
        status
    }

    fn release(self, list: *mut WSK_DATA_INDICATION) -> NtStatus {
        let release = self.functions().WskRelease.expect("a function");
        call!(release(self.0, list))
    }

    /// Asks a socket that listens for its port.
    fn port(self) -> u16 {
        let (request, place) = (Request::new(), allocate(28).cast::<SOCKADDR>());
        let ask = self.table::<WSK_PROVIDER_LISTEN_DISPATCH>().WskGetLocalAddress.expect("a function");
        let said = call!(ask(self.0, place, request.irp()));
        assert_eq!(request.end(said).0, SUCCESS);
        // SAFETY: the block has room for any address.
        let address = unsafe { SOCKADDR_INET::read(place, 28) }.and_then(|address| address.to_socket_addr());
        free(place.cast());
        address.expect("an address").port()
    }

    fn ask(self, remote: bool) -> Result<SocketAddr, NtStatus> {
        let (request, place) = (Request::new(), allocate(28).cast::<SOCKADDR>());
        let said = if remote {
            let ask = self.functions().WskGetRemoteAddress.expect("a function");
            call!(ask(self.0, place, request.irp()))
        } else {
            let ask = self.functions().WskGetLocalAddress.expect("a function");
            call!(ask(self.0, place, request.irp()))
        };
        let (status, _) = request.end(said);
        // SAFETY: the block has room for any address.
        let address = unsafe { SOCKADDR_INET::read(place, 28) };
        free(place.cast());
        status.ok().map(|()| address.and_then(|address| address.to_socket_addr()).expect("an address"))
    }

    fn control(
        self,
        (kind, code, level): (WSK_CONTROL_SOCKET_TYPE, u32, u32),
        (size, input): (usize, *mut c_void),
        (room, output): (usize, *mut c_void),
        irp: *mut ndis::IRP,
    ) -> NtStatus {
        let control = self.table::<WSK_PROVIDER_BASIC_DISPATCH>().WskControlSocket.expect("a function");
        call!(control(self.0, kind, code, level, size, input, room, output, ptr::null_mut(), irp))
    }

    fn set_event(self, mask: u32, irp: *mut ndis::IRP) -> NtStatus {
        let mut control = events(mask);
        let input = (size_of::<WSK_EVENT_CALLBACK_CONTROL>(), (&raw mut control).cast());
        let code = (WSK_CONTROL_SOCKET_TYPE::SET_OPTION, SO_WSK_EVENT_CALLBACK, SOL_SOCKET);
        self.control(code, input, (0, ptr::null_mut()), irp)
    }

    fn enable(self, mask: u32) {
        assert_eq!(self.set_event(mask, ptr::null_mut()), SUCCESS);
    }

    fn set(self, level: u32, code: u32, mut value: u32) -> NtStatus {
        let request = Request::new();
        let code = (WSK_CONTROL_SOCKET_TYPE::SET_OPTION, code, level);
        let said = self.control(code, (4, (&raw mut value).cast()), (0, ptr::null_mut()), request.irp());
        request.end(said).0
    }

    /// The answer to a question for a size.
    fn size(self, code: u32) -> usize {
        let (request, place) = (Request::new(), allocate(8).cast::<usize>());
        let none = (0, ptr::null_mut());
        let said = self.control((WSK_CONTROL_SOCKET_TYPE::IOCTL, code, 0), none, (8, place.cast()), request.irp());
        assert_eq!(request.end(said), (SUCCESS, 8));
        // SAFETY: the request has written it.
        let size = unsafe { place.read() };
        free(place.cast());
        size
    }

    fn close(self) {
        let close = self.table::<WSK_PROVIDER_BASIC_DISPATCH>().WskCloseSocket.expect("a function");
        let request = Request::new();
        let said = call!(close(self.0, request.irp()));
        assert_eq!(request.end(said).0, SUCCESS);
    }
}

/// What a client does about streams.
trait Streams {
    fn ask(self, family: u16, flags: u32, table: *const c_void, request: &Request) -> NtStatus;
    fn made(self, family: u16, flags: u32, table: *const c_void) -> Stream;
    fn listens(self, address: &str) -> Stream;
    fn bound(self, address: &str) -> Stream;
    fn pair(self) -> (Stream, Stream, Stream);
    fn set_static(self, mask: u32);
}

impl Streams for Client {
    fn ask(self, family: u16, flags: u32, table: *const c_void, request: &Request) -> NtStatus {
        // SAFETY: the table is static.
        let make = unsafe { (*self.npi.Dispatch).WskSocket }.expect("a function");
        let none = ptr::null_mut();
        let irp = request.irp();
        call!(make(self.npi.Client, family, SOCK_STREAM, IPPROTO_TCP, flags, none, table, none, none, none, irp))
    }

    fn made(self, family: u16, flags: u32, table: *const c_void) -> Stream {
        let request = Request::new();
        let said = Streams::ask(self, family, flags, table, &request);
        let (status, socket) = request.end(said);
        assert_eq!(status, SUCCESS);
        Stream(ptr::with_exposed_provenance_mut(socket))
    }

    fn listens(self, address: &str) -> Stream {
        let socket = self.made(AF_INET, WSK_FLAG_LISTEN_SOCKET, (&raw const LISTENS).cast());
        assert_eq!(socket.bind(address), SUCCESS);
        socket
    }

    fn bound(self, address: &str) -> Stream {
        let socket = self.made(AF_INET, WSK_FLAG_CONNECTION_SOCKET, (&raw const LOUD).cast());
        assert_eq!(socket.bind(address), SUCCESS);
        socket
    }

    /// A socket that listens at `A`, one that is connected to it, and the one that was accepted.
    fn pair(self) -> (Stream, Stream, Stream) {
        let (listener, one) = (self.listens(A), Streams::bound(self, "0.0.0.0:0"));
        assert_eq!(one.connect(A), SUCCESS);
        (listener, one, listener.accept())
    }

    fn set_static(self, mask: u32) {
        let mut control = events(mask);
        // SAFETY: the table is static.
        let function = unsafe { (*self.npi.Dispatch).WskControlClient }.expect("a function");
        let (size, none) = (size_of::<WSK_EVENT_CALLBACK_CONTROL>(), ptr::null_mut());
        let (code, input) = (WSK_SET_STATIC_EVENT_CALLBACKS, (&raw mut control).cast());
        let status = call!(function(self.npi.Client, code, size, input, 0, none, ptr::null_mut(), ptr::null_mut()));
        assert_eq!(status, SUCCESS);
    }
}

fn close_all(client: Client, sockets: impl IntoIterator<Item = Stream>) {
    sockets.into_iter().for_each(Stream::close);
    client.end();
}

/// Has each seed do it.
fn each(work: fn(Client)) {
    for seed in seeds() {
        once(seed, work);
    }
}

fn once(seed: u64, work: impl FnOnce(Client)) {
    with_seed(seed, |_, driver| {
        driver.run(|| {
            forget();
            work(Client::new());
            forget();
        });
    });
}

/// So many bytes, each other than its neighbours.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|number| u8::try_from(number % 251).expect("small")).collect()
}

#[test]
fn bytes_go_both_ways_and_each_side_ends_its_stream() {
    each(|client| {
        let (listener, one, two) = client.pair();
        assert_eq!(one.ask(true), Ok(A.parse().expect("an address")));
        assert_eq!(two.ask(true), one.ask(false), "each is the other's other end");
        assert_eq!((one.send(b"to "), one.send(b"the other")), ((SUCCESS, 3), (SUCCESS, 9)));
        assert_eq!(two.receive(12, WSK_FLAG_WAITALL), Ok(b"to the other".to_vec()));
        assert_eq!(two.send(b"and back"), (SUCCESS, 8));
        assert_eq!(one.receive(3, 0), Ok(b"and".to_vec()));
        assert_eq!(one.receive(64, 0), Ok(b" back".to_vec()));
        // Half of the connection is closed, with last bytes, and the other half goes on.
        assert_eq!(one.disconnect(b"bye", 0), SUCCESS);
        assert_eq!(two.receive(64, WSK_FLAG_WAITALL), Ok(b"bye".to_vec()));
        assert_eq!(two.receive(64, 0), Ok(Vec::new()), "the end");
        assert_eq!(one.send(b"more"), (GRACEFUL_DISCONNECT, 0));
        assert_eq!(two.send(b"still"), (SUCCESS, 5));
        assert_eq!(one.receive(5, WSK_FLAG_WAITALL), Ok(b"still".to_vec()));
        assert_eq!(two.disconnect(b"", 0), SUCCESS);
        assert_eq!(one.receive(64, 0), Ok(Vec::new()));
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn a_connection_waits_to_be_accepted_and_a_request_to_accept_waits_for_one() {
    each(|client| {
        let listener = client.listens(A);
        let (request, place) = (Request::new(), allocate(28).cast::<SOCKADDR>());
        let said = listener.accept_as(place, false, &request);
        assert_eq!(said, PENDING);
        let (one, other) = (Streams::bound(client, B), Streams::bound(client, "0.0.0.0:0"));
        assert_eq!((one.connect(A), other.connect(A)), (SUCCESS, SUCCESS));
        let (status, first) = request.end(said);
        assert_eq!(status, SUCCESS);
        // SAFETY: an address of the socket's family.
        let from = unsafe { SOCKADDR_INET::read(place, 16) }.and_then(|address| address.to_socket_addr());
        assert_eq!(from, Some(B.parse().expect("an address")));
        assert_eq!(other.send(b"early"), (SUCCESS, 5), "before anybody has accepted it");
        let second = listener.accept();
        assert_eq!(second.receive(64, 0), Ok(b"early".to_vec()));
        free(place.cast());
        close_all(client, [one, other, Stream(ptr::with_exposed_provenance_mut(first)), second, listener]);
    });
}

#[test]
fn the_callback_accepts_and_hands_on_the_events_of_its_socket() {
    each(|client| {
        let listener = client.listens(A);
        listener.enable(WSK_EVENT_ACCEPT | WSK_EVENT_RECEIVE | WSK_EVENT_DISCONNECT);
        let one = Streams::bound(client, "0.0.0.0:0");
        assert_eq!(one.connect(A), SUCCESS);
        assert_eq!(one.send(b"without a request"), (SUCCESS, 17));
        assert_eq!(one.disconnect(b"", 0), SUCCESS);
        sleep(1);
        assert_eq!((seen(), disconnected()), (b"without a request".to_vec(), vec![0]));
        close_all(client, [one, Stream(ACCEPTED.load(SeqCst)), listener]);
    });
}

#[test]
fn what_the_callback_does_not_accept_is_closed() {
    each(|client| {
        client.set_static(WSK_EVENT_ACCEPT);
        let_it(Does { accept: |_| REQUEST_NOT_ACCEPTED, ..CALM });
        let (listener, one) = (client.listens(A), Streams::bound(client, "0.0.0.0:0"));
        assert_eq!(one.connect(A), SUCCESS, "TCP has accepted it before");
        assert_eq!(one.receive(8, 0), Err(CONNECTION_RESET));
        assert_eq!(one.send(b"x"), (CONNECTION_RESET, 0));
        assert_eq!(CALLS.load(SeqCst), 1);
        close_all(client, [one, listener]);
    });
}

#[test]
fn a_receiver_that_does_not_take_leaves_sends_pending() {
    each(|client| {
        let (listener, one, two) = client.pair();
        let bytes = pattern(100_000);
        let (mut chain, request) = (Chain::of(&[&bytes[..10], &bytes[10..]]), Request::new());
        let said = one.send_as(&mut chain.buffer, &request);
        assert_eq!(said, PENDING);
        sleep(1);
        assert_eq!(two.size(SIO_WSK_QUERY_RECEIVE_BACKLOG), 64 << 10, "the window ends");
        assert!(one.size(SIO_WSK_QUERY_IDEAL_SEND_BACKLOG) >= 64 << 10);
        assert_eq!(two.receive(100_000, WSK_FLAG_WAITALL), Ok(bytes));
        assert_eq!(request.end(said), (SUCCESS, 100_000));
        chain.free();
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn the_callback_takes_a_part_none_or_keeps_it_all() {
    each(|client| {
        let (listener, one, two) = client.pair();
        let_it(Does { receive: |_, _| DATA_NOT_ACCEPTED, ..CALM });
        two.enable(WSK_EVENT_RECEIVE);
        assert_eq!(one.send(b"0123456789"), (SUCCESS, 10));
        sleep(1);
        assert_eq!(one.send(b"abc"), (SUCCESS, 3));
        sleep(1);
        assert_eq!(CALLS.load(SeqCst), 1, "no more calls after a refusal");
        let_it(Does {
            receive: |list, accepted| {
                let status = note(list);
                *accepted = 4;
                SEEN.lock().unwrap_or_else(PoisonError::into_inner).truncate(4);
                status
            },
            ..CALM
        });
        assert_eq!(two.receive(0, 0), Ok(Vec::new()), "a call without room has the callback called again");
        sleep(1);
        assert_eq!((CALLS.load(SeqCst), seen()), (2, b"0123".to_vec()));
        let_it(Does { receive: hold, ..CALM });
        assert_eq!(two.receive(2, 0), Ok(b"45".to_vec()));
        sleep(1);
        assert_eq!(seen(), b"01236789abc");
        assert_eq!(two.release(kept()), SUCCESS);
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn lists_that_are_kept_keep_the_window_closed() {
    each(|client| {
        let (listener, one, two) = client.pair();
        let_it(Does { receive: hold, ..CALM });
        let (mut chain, request) = (Chain::of(&[&pattern(70_000)]), Request::new());
        let said = one.send_as(&mut chain.buffer, &request);
        two.enable(WSK_EVENT_RECEIVE);
        sleep(1);
        assert_eq!(seen().len(), 64 << 10);
        while seen().len() < 70_000 {
            assert_eq!(two.release(kept()), SUCCESS);
            sleep(1);
        }
        assert_eq!(request.end(said), (SUCCESS, 70_000), "the rest came when the window was open");
        assert_eq!(seen(), pattern(70_000));
        while !KEPT.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            assert_eq!(two.release(kept()), SUCCESS);
        }
        chain.free();
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn a_request_may_wait_for_the_end_and_drop_what_comes() {
    each(|client| {
        let (listener, one, two) = client.pair();
        two.enable(WSK_EVENT_DISCONNECT);
        let (request, mut none) = (Request::new(), Chain::of(&[]));
        let said = two.receive_as(&mut none.buffer, WSK_FLAG_DRAIN, &request);
        assert_eq!(said, PENDING);
        assert_eq!(one.send(&pattern(90_000)), (SUCCESS, 90_000), "the window opens all the same");
        assert_eq!(one.disconnect(b"", 0), SUCCESS);
        assert_eq!(request.end(said), (SUCCESS, 0));
        sleep(1);
        assert_eq!(disconnected(), [0]);
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn a_client_hears_of_another_ideal_backlog() {
    once(3, |client| {
        let (listener, one, two) = client.pair();
        one.enable(WSK_EVENT_SEND_BACKLOG);
        assert_eq!(one.send(&[1; 3000]), (SUCCESS, 3000));
        sleep(1);
        assert_eq!(BACKLOG.load(SeqCst), one.size(SIO_WSK_QUERY_IDEAL_SEND_BACKLOG));
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn a_connection_is_refused_finds_no_way_or_nobody() {
    each(|client| {
        let one = Streams::bound(client, "0.0.0.0:0");
        assert_eq!(one.connect(A), NtStatus::CONNECTION_REFUSED, "nobody listens");
        assert_eq!(one.connect("192.168.1.99:7"), NtStatus::IO_TIMEOUT, "nobody has the address");
        assert_eq!(one.ask(true), Err(INVALID_DEVICE_STATE));
        let listener = client.listens(A);
        assert_eq!(one.connect(A), SUCCESS, "a socket may try again");
        close_all(client, [one, listener]);
    });
}

#[test]
fn too_many_connections_that_nobody_accepts_are_refused() {
    once(1, |client| {
        let listener = client.listens(A);
        let all: Vec<Stream> = (0..201).map(|_| Streams::bound(client, "0.0.0.0:0")).collect();
        let refused: Vec<_> = all.iter().filter(|one| one.connect(A) != SUCCESS).collect();
        assert_eq!(refused.len(), 1);
        drop(refused);
        listener.close();
        sleep(1);
        assert_eq!(all[0].send(b"x"), (CONNECTION_RESET, 0), "whoever waited is told of the close");
        close_all(client, all);
    });
}

#[test]
fn an_abortive_disconnect_drops_what_is_under_way() {
    each(|client| {
        let (listener, one, two) = client.pair();
        for socket in [one, two] {
            socket.enable(WSK_EVENT_DISCONNECT);
        }
        let (request, mut room) = (Request::new(), Chain::of(&[&[0; 8]]));
        let said = two.receive_as(&mut room.buffer, 0, &request);
        let (mut chain, sending) = (Chain::of(&[&pattern(100_000)]), Request::new());
        let mine = two.send_as(&mut chain.buffer, &sending);
        assert_eq!(one.disconnect(b"", WSK_FLAG_ABORTIVE), SUCCESS);
        assert_eq!(request.end(said), (CONNECTION_RESET, 0));
        assert_eq!(sending.end(mine), (CONNECTION_RESET, 0));
        sleep(1);
        assert_eq!(disconnected(), [WSK_FLAG_ABORTIVE], "only the other side's client is told");
        assert_eq!(one.send(b"x"), (NtStatus::CONNECTION_ABORTED, 0));
        assert_eq!(two.receive(8, 0), Err(CONNECTION_RESET));
        [room, chain].into_iter().for_each(Chain::free);
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn a_close_resets_the_other_side_unless_both_have_ended() {
    each(|client| {
        let (listener, one, two) = client.pair();
        one.close();
        assert_eq!(two.receive(8, 0), Err(CONNECTION_RESET));
        two.close();
        let again = Streams::bound(client, "0.0.0.0:0");
        assert_eq!(again.connect(A), SUCCESS);
        let two = listener.accept();
        two.enable(WSK_EVENT_DISCONNECT);
        assert_eq!((again.disconnect(b"", 0), two.disconnect(b"", 0)), (SUCCESS, SUCCESS));
        sleep(1);
        again.close();
        sleep(1);
        assert_eq!(disconnected(), [0]);
        close_all(client, [two, listener]);
    });
}

#[test]
fn requests_are_cancelled_by_their_client_and_by_the_close() {
    each(|client| {
        let (listener, one, two) = client.pair();
        let accepting = Request::new();
        assert_eq!(listener.accept_as(ptr::null_mut(), false, &accepting), PENDING);
        let (receiving, mut room) = (Request::new(), Chain::of(&[&[0; 8]]));
        assert_eq!(one.receive_as(&mut room.buffer, 0, &receiving), PENDING);
        let nobody = Streams::bound(client, "0.0.0.0:0");
        let connecting = Request::new();
        assert_eq!(nobody.connect_as("192.168.1.99:7", &connecting), PENDING);
        for request in [accepting, receiving, connecting] {
            call!(IoCancelIrp(request.irp));
            assert_eq!(request.end(PENDING), (CANCELLED, 0));
        }
        let (sending, mut chain) = (Request::new(), Chain::of(&[&pattern(100_000)]));
        assert_eq!(one.send_as(&mut chain.buffer, &sending), PENDING);
        sleep(1);
        call!(IoCancelIrp(sending.irp));
        assert_eq!(sending.end(PENDING), (CANCELLED, 0));
        sleep(1);
        assert_eq!(two.receive(8, 0), Err(CONNECTION_RESET), "some of it was sent: the stream is of no use");
        let requests = [(); 2].map(|()| Request::new());
        assert_eq!(listener.accept_as(ptr::null_mut(), false, &requests[0]), PENDING);
        assert_eq!(nobody.connect_as("192.168.1.99:7", &requests[1]), PENDING);
        [nobody, listener].into_iter().for_each(Stream::close);
        for request in requests {
            assert_eq!(request.end(PENDING), (CANCELLED, 0));
        }
        [room, chain].into_iter().for_each(Chain::free);
        close_all(client, [one, two]);
    });
}

#[test]
fn a_socket_is_made_bound_and_connected_by_one_call() {
    each(|client| {
        // SAFETY: the table is static.
        let make = unsafe { (*client.npi.Dispatch).WskSocketConnect }.expect("a function");
        let ask = |from: &str, to: &str| {
            let (request, from, to) = (Request::new(), inet(from), inet(to));
            let (from, to) = (from.as_ptr().cast_mut(), to.as_ptr().cast_mut());
            let (none, irp) = (ptr::null_mut(), request.irp());
            let said = call!(make(
                client.npi.Client,
                SOCK_STREAM,
                IPPROTO_TCP,
                from,
                to,
                0,
                none,
                &raw const LOUD,
                none,
                none,
                none,
                irp
            ));
            request.end(said)
        };
        assert_eq!(ask("0.0.0.0:0", A), (NtStatus::CONNECTION_REFUSED, 0), "and there is no socket");
        let listener = client.listens(A);
        assert_eq!(ask(A, A), (ADDRESS_ALREADY_EXISTS, 0));
        let (status, socket) = ask(B, A);
        assert_eq!(status, SUCCESS);
        let one = Stream(ptr::with_exposed_provenance_mut(socket));
        let two = listener.accept();
        assert_eq!(two.ask(true), Ok(B.parse().expect("an address")));
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn the_first_bytes_may_go_with_the_request_to_connect() {
    each(|client| {
        let (listener, one, address) = (client.listens(A), Streams::bound(client, "0.0.0.0:0"), inet(A));
        let connect = one.functions().WskConnectEx.expect("a function");
        for (count, status) in [(65_536, NtStatus::BUFFER_OVERFLOW), (65_535, SUCCESS)] {
            let (mut first, request) = (Chain::of(&[&pattern(count)]), Request::new());
            let said = call!(connect(one.0, address.as_ptr().cast_mut(), &raw mut first.buffer, 0, request.irp()));
            assert_eq!(request.end(said).0, status);
            first.free();
        }
        let two = listener.accept();
        assert_eq!(two.receive(65_535, WSK_FLAG_WAITALL), Ok(pattern(65_535)));
        close_all(client, [one, two, listener]);
    });
}

#[test]
fn a_socket_of_ipv6_listens_to_ipv4_too_if_it_is_asked_to() {
    each(|client| {
        client.set_static(WSK_EVENT_ACCEPT);
        let listener = client.made(AF_INET6, WSK_FLAG_LISTEN_SOCKET, (&raw const LISTENS).cast());
        assert_eq!(listener.set(IPPROTO_IPV6, IPV6_V6ONLY, 0), SUCCESS);
        assert_eq!(listener.bind("[::]:40007"), SUCCESS);
        let one = Streams::bound(client, B);
        assert_eq!(one.connect("192.168.1.11:40007"), SUCCESS);
        sleep(1);
        let two = Stream(ACCEPTED.load(SeqCst));
        assert_eq!(two.ask(true), Ok("[::ffff:192.168.1.12]:4789".parse().expect("an address")));
        let six = client.made(AF_INET6, WSK_FLAG_CONNECTION_SOCKET, ptr::null());
        assert_eq!((six.bind("[::]:0"), six.connect("[::1]:40007")), (SUCCESS, SUCCESS));
        assert_eq!(one.send(b"mapped"), (SUCCESS, 6));
        assert_eq!(two.receive(6, WSK_FLAG_WAITALL), Ok(b"mapped".to_vec()));
        sleep(1);
        close_all(client, [Stream(ACCEPTED.load(SeqCst)), one, two, six, listener]);
    });
}

#[test]
fn options_are_kept_and_looked_at() {
    once(1, |client| {
        let (get, none) = (WSK_CONTROL_SOCKET_TYPE::GET_OPTION, (0, ptr::null_mut()));
        let one = client.made(AF_INET, WSK_FLAG_CONNECTION_SOCKET, ptr::null());
        assert_eq!(one.set(IPPROTO_TCP, TCP_NODELAY, 1), SUCCESS);
        let mut value = 0_u32;
        let output = (4, (&raw mut value).cast());
        assert_eq!(one.control((get, TCP_NODELAY, IPPROTO_TCP), none, output, ptr::null_mut()), SUCCESS);
        assert_eq!(value, 1);
        let short = (2, (&raw mut value).cast());
        let set = (WSK_CONTROL_SOCKET_TYPE::SET_OPTION, TCP_NODELAY, IPPROTO_TCP);
        assert_eq!(one.control(set, short, none, ptr::null_mut()), NtStatus::INVALID_PARAMETER);
        let code = (get, TCP_NODELAY, IPPROTO_TCP);
        assert_eq!(one.control(code, none, short, ptr::null_mut()), NtStatus::BUFFER_TOO_SMALL);
        let basic = client.made(AF_INET, WSK_FLAG_BASIC_SOCKET, ptr::null());
        assert_eq!(basic.set(SOL_SOCKET, SO_REUSEADDR, 1), SUCCESS);
        // An address is shared by those who want that, and by no others.
        let shared = [(); 2].map(|()| client.made(AF_INET, WSK_FLAG_LISTEN_SOCKET, ptr::null()));
        for socket in shared {
            assert_eq!((socket.set(SOL_SOCKET, SO_REUSEADDR, 1), socket.bind(A)), (SUCCESS, SUCCESS));
        }
        assert_eq!(one.bind(A), ADDRESS_ALREADY_EXISTS);
        assert_eq!(shared[0].set(SOL_SOCKET, SO_REUSEADDR, 0), NtStatus::INVALID_PARAMETER, "it is bound");
        close_all(client, [one, basic, shared[0], shared[1]]);
    });
}

#[test]
fn an_event_that_is_disabled_is_over_when_the_request_is_complete() {
    each(|client| {
        let (listener, one, two) = client.pair();
        SOCKET.store(two.0, SeqCst);
        let_it(Does {
            receive: |list, _| {
                let socket = Stream(SOCKET.load(SeqCst));
                let mask = WSK_EVENT_DISABLE | WSK_EVENT_RECEIVE;
                assert_eq!(socket.set_event(mask, ptr::null_mut()), EVENT_PENDING);
                assert_eq!(socket.set_event(WSK_EVENT_DISABLE | WSK_EVENT_DISCONNECT, ptr::null_mut()), SUCCESS);
                note(list)
            },
            ..CALM
        });
        two.enable(WSK_EVENT_RECEIVE | WSK_EVENT_DISCONNECT);
        assert_eq!(one.send(b"1"), (SUCCESS, 1));
        sleep(1);
        assert_eq!(one.send(b"2"), (SUCCESS, 1));
        sleep(1);
        assert_eq!((seen(), disconnected()), (b"1".to_vec(), Vec::new()));
        two.enable(WSK_EVENT_RECEIVE);
        sleep(1);
        assert_eq!(seen(), b"12");
        close_all(client, [one, two, listener]);
    });
}

/// What comes of a stream of 200,000 bytes and an answer over such a network.
fn through(impairment: Impairment, seed: u64) {
    with_seed(5, |network, driver| {
        network.set_medium(Medium::Unchecked { impairment, seed });
        driver.run(|| {
            forget();
            let client = Client::new();
            let (listener, one, two) = client.pair();
            two.enable(WSK_EVENT_RECEIVE | WSK_EVENT_DISCONNECT);
            for piece in pattern(200_000).chunks(50_000) {
                assert_eq!(one.send(piece), (SUCCESS, 50_000));
            }
            assert_eq!(one.disconnect(b"", 0), SUCCESS);
            while disconnected().is_empty() {
                sleep(1);
            }
            assert_eq!(seen(), pattern(200_000));
            assert_eq!(two.send(b"an answer"), (SUCCESS, 9));
            assert_eq!(one.receive(9, WSK_FLAG_WAITALL), Ok(b"an answer".to_vec()));
            close_all(client, [one, two, listener]);
            forget();
        });
    });
}

#[test]
fn a_stream_is_whole_over_any_network() {
    let delay = Duration::from_micros(50);
    through(Impairment { delay, ..Impairment::default() }, 1);
    for seed in 1..4 {
        let (lost, doubled, changed, late) = (100_000, 100_000, 100_000, 300_000);
        let lateness = Duration::from_millis(3);
        through(Impairment { lost, doubled, changed, late, lateness, delay }, seed);
    }
}

#[test]
fn a_network_that_loses_everything_ends_connections() {
    with_seed(5, |network, driver| {
        network.set_medium(Medium::Memory {
            impairment: Impairment { lost: 1_000_000, ..Impairment::default() },
            seed: 1,
        });
        driver.run(|| {
            let client = Client::new();
            let (listener, one) = (client.listens(A), Streams::bound(client, "0.0.0.0:0"));
            assert_eq!(one.connect(A), NtStatus::IO_TIMEOUT);
            close_all(client, [one, listener]);
        });
    });
}

#[test]
fn sockets_that_are_no_longer_functional_say_so() {
    for seed in seeds() {
        with_seed(seed, |network, driver| {
            static SOCKETS: DuringRun<Mutex<[usize; 3]>> = DuringRun::new(Mutex::new([0; 3]));
            let registration = driver.run(|| {
                forget();
                let client = Client::new();
                let (listener, one, two) = client.pair();
                listener.enable(WSK_EVENT_ACCEPT);
                one.enable(WSK_EVENT_RECEIVE);
                *SOCKETS.lock().expect("nobody panics") =
                    [listener, one, two].map(|socket| socket.0.expose_provenance());
                client.registration.expose_provenance()
            });
            let sockets =
                SOCKETS.lock().expect("nobody panics").map(|socket| Stream(ptr::with_exposed_provenance_mut(socket)));
            let [listener, _, two] = sockets;
            let (receiving, accepting, mut room) =
                driver.run(|| (Request::new(), Request::new(), Chain::of(&[&[0; 8]])));
            let said = driver.run(|| {
                (
                    two.receive_as(&mut room.buffer, 0, &receiving),
                    listener.accept_as(ptr::null_mut(), false, &accepting),
                )
            });
            network.break_sockets();
            driver.run(|| {
                assert_eq!(receiving.end(said.0), (FILE_FORCED_CLOSED, 0));
                assert_eq!(accepting.end(said.1), (FILE_FORCED_CLOSED, 0));
                sleep(1);
                assert_eq!(ENDS.load(SeqCst), 2, "both callbacks were told");
                assert_eq!(two.send(b"x"), (FILE_FORCED_CLOSED, 0));
                room.free();
                sockets.into_iter().for_each(Stream::close);
                let registration = ptr::with_exposed_provenance_mut(registration);
                crate::wsk::release(registration);
                crate::wsk::deregister(registration);
                forget();
            });
        });
    }
}

#[test]
fn a_request_that_fails_completes_its_irp() {
    for seed in seeds() {
        let kernel = Kernel::seeded(seed).start();
        on(&kernel, |_, driver| {
            driver.run(|| {
                let fails = |ask: &dyn Fn(&Request) -> NtStatus| {
                    let request = Request::new();
                    kernel.inject(Injection::Nth(1));
                    let said = ask(&request);
                    kernel.inject(Injection::None);
                    request.end(said).0
                };
                let client = Client::new();
                let (listener, one, two) = client.pair();
                let (new, chain) = (Streams::bound(client, "0.0.0.0:0"), RefCell::new(Chain::of(&[b"x"])));
                let statuses = [
                    fails(&|request| Streams::ask(client, AF_INET, WSK_FLAG_LISTEN_SOCKET, ptr::null(), request)),
                    fails(&|request| new.connect_as(A, request)),
                    fails(&|request| listener.accept_as(ptr::null_mut(), false, request)),
                    fails(&|request| one.send_as(&mut chain.borrow_mut().buffer, request)),
                ];
                assert_eq!(statuses, [NtStatus::INSUFFICIENT_RESOURCES; 4]);
                chain.into_inner().free();
                close_all(client, [one, two, new, listener]);
            });
        });
    }
}

#[test]
fn a_program_outside_connects_and_is_connected_to() {
    on(&Kernel::threads().start(), |network, driver| {
        network.set_medium(Medium::Host);
        let outside = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of the host");
        let theirs = outside.local_addr().expect("an address").to_string();
        let (client, listener, port) = driver.run(|| {
            forget();
            let client = Client::new();
            let (listener, one) = (client.listens("0.0.0.0:0"), Streams::bound(client, "0.0.0.0:0"));
            assert_eq!(one.connect("127.0.0.1:1"), NtStatus::CONNECTION_REFUSED);
            assert_eq!(one.connect(&theirs), SUCCESS);
            assert_eq!(one.send(&pattern(300)), (SUCCESS, 300));
            assert_eq!(one.disconnect(b"", 0), SUCCESS);
            one.close();
            (client, listener, listener.port())
        });
        let mut bytes = Vec::new();
        let (mut stream, _) = outside.accept().expect("a connection");
        stream.read_to_end(&mut bytes).expect("bytes");
        assert_eq!(bytes, pattern(300));
        // More than a window, which the driver echoes.
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let mut theirs = stream.try_clone().expect("the same");
        let writes = std::thread::spawn(move || theirs.write_all(&pattern(200_000)));
        let reads = std::thread::spawn(move || {
            let mut bytes = vec![0; 200_000];
            stream.read_exact(&mut bytes).map(|()| bytes)
        });
        driver.run(|| {
            let two = listener.accept();
            let mut left = 200_000;
            while left > 0 {
                let bytes = two.receive(10_000, 0).expect("bytes");
                left -= bytes.len();
                assert_eq!(two.send(&bytes), (SUCCESS, bytes.len()));
            }
            let _ = two.disconnect(b"", 0);
            // The program has gone by now, or will have.
            while two.receive(8, 0).is_ok_and(|bytes| !bytes.is_empty()) {}
            close_all(client, [two, listener]);
        });
        writes.join().expect("no panic").expect("it is written");
        assert_eq!(reads.join().expect("no panic").expect("it is read"), pattern(200_000));
    });
}

#[test]
fn connections_are_used_on_several_processors_at_once() {
    on(&Kernel::threads().start(), |_, driver| {
        driver.run(|| {
            forget();
            let client = Client::new();
            let (listener, one, two) = client.pair();
            two.enable(WSK_EVENT_RECEIVE | WSK_EVENT_DISCONNECT);
            for piece in pattern(100_000).chunks(1_000) {
                assert_eq!(one.send(piece), (SUCCESS, 1_000));
            }
            assert_eq!(one.disconnect(b"", 0), SUCCESS);
            while disconnected().is_empty() {
                sleep(1);
            }
            assert_eq!(seen(), pattern(100_000));
            close_all(client, [one, two, listener]);
            forget();
        });
    });
}

#[test]
fn an_echo_server_in_the_order_of_calls_of_many_drivers() {
    each(|client| {
        // The event on all sockets, then the provider is released: sockets do without it.
        client.set_static(WSK_EVENT_ACCEPT);
        let (listener, one) = (client.listens(A), Streams::bound(client, "0.0.0.0:0"));
        assert_eq!(one.connect(A), SUCCESS);
        sleep(1);
        let server = Stream(ACCEPTED.load(SeqCst));
        for round in 1..4 {
            let bytes = pattern(round * 700);
            let (mut rooms, requests) =
                ([(); 2].map(|()| Chain::of(&[&vec![0; 1024]])), [(); 2].map(|()| Request::new()));
            let said = [0, 1].map(|index: usize| server.receive_as(&mut rooms[index].buffer, 0, &requests[index]));
            assert_eq!(one.send(&bytes), (SUCCESS, bytes.len()));
            let mut echoed = 0;
            let mut left = Vec::new();
            for (place, request) in requests.into_iter().enumerate() {
                if echoed == bytes.len() {
                    left.push(request);
                    continue;
                }
                let (status, count) = request.end(said[place]);
                assert_eq!(status, SUCCESS);
                assert_eq!(server.send(&rooms[place].bytes()[..count]), (SUCCESS, count));
                echoed += count;
            }
            while echoed < bytes.len() {
                let more = server.receive(1024, 0).expect("bytes");
                assert_eq!(server.send(&more), (SUCCESS, more.len()));
                echoed += more.len();
            }
            assert_eq!(one.receive(bytes.len(), WSK_FLAG_WAITALL), Ok(bytes));
            for request in left {
                call!(IoCancelIrp(request.irp));
                assert_eq!(request.end(PENDING), (CANCELLED, 0));
            }
            rooms.into_iter().for_each(Chain::free);
        }
        assert_eq!(one.disconnect(b"", 0), SUCCESS);
        assert_eq!(server.receive(8, 0), Ok(Vec::new()));
        assert_eq!(server.disconnect(b"", 0), SUCCESS);
        close_all(client, [server, one, listener]);
    });
}

/// Units of a name, and a string of them that ends with a zero.
fn string(words: &str, room: usize) -> (PVOID, NDIS_STRING) {
    let units: Vec<u16> = words.encode_utf16().collect();
    let block = allocate(room.max(2));
    // SAFETY: the block has room for them.
    unsafe { block.cast::<u16>().copy_from_nonoverlapping(units.as_ptr(), units.len()) };
    let bytes = |count: usize| u16::try_from(count).expect("few");
    let string = NDIS_STRING { Length: bytes(units.len() * 2), MaximumLength: bytes(room), Buffer: block.cast() };
    (block, string)
}

/// Asks for the addresses of a name: the status, the addresses, and the list, which is not freed.
fn addresses(client: Client, node: &str, service: &str) -> (NtStatus, Vec<SocketAddr>, *mut ADDRINFOEXW) {
    // SAFETY: the table is static.
    let get = unsafe { (*client.npi.Dispatch).WskGetAddressInfo }.expect("a function");
    let ((one, mut node), (other, mut service)) = (string(node, 64), string(service, 64));
    let (request, place, none) = (Request::new(), allocate(8).cast::<*mut ADDRINFOEXW>(), ptr::null_mut());
    let (process, hints) = (ptr::null_mut(), ptr::null_mut());
    let (node, service) = (&raw mut node, &raw mut service);
    let irp = request.irp();
    let said = call!(get(client.npi.Client, node, service, 0, none, hints, place, process, process, irp));
    let (status, _) = request.end(said);
    let (mut found, mut list) = (Vec::new(), ptr::null_mut());
    if status == SUCCESS {
        // SAFETY: the request has written it.
        list = unsafe { place.read() };
        let mut next = list;
        while !next.is_null() {
            // SAFETY: a structure of the list.
            let here = unsafe { next.read() };
            // SAFETY: an address of that length.
            let address = unsafe { SOCKADDR_INET::read(here.ai_addr, u32::try_from(here.ai_addrlen).expect("short")) };
            found.push(address.and_then(|address| address.to_socket_addr()).expect("an address"));
            next = here.ai_next;
        }
    }
    [one, other, place.cast()].into_iter().for_each(free);
    (status, found, list)
}

fn free_list(client: Client, list: *mut ADDRINFOEXW) {
    // SAFETY: the table is static.
    let function = unsafe { (*client.npi.Dispatch).WskFreeAddressInfo }.expect("a function");
    call!(function(client.npi.Client, list));
}

/// The name of an address, with that much room, in bytes.
fn name_of(client: Client, address: &str, room: usize, flags: u32) -> Result<String, NtStatus> {
    // SAFETY: the table is static.
    let get = unsafe { (*client.npi.Dispatch).WskGetNameInfo }.expect("a function");
    let ((block, mut node), request, address) = (string("", room), Request::new(), inet(address));
    let (place, none) = (&raw mut node, ptr::null_mut());
    let from = address.as_ptr().cast_mut();
    let said = call!(get(client.npi.Client, from, 28, place, ptr::null_mut(), flags, none, none, request.irp()));
    let (status, _) = request.end(said);
    // SAFETY: the block has that many units.
    let units = unsafe { std::slice::from_raw_parts(block.cast::<u16>(), usize::from(node.Length / 2)) };
    let name = String::from_utf16_lossy(units);
    free(block);
    status.ok().map(|()| name)
}

#[test]
fn names_stand_for_addresses_and_addresses_for_names() {
    const NO_MATCH: NtStatus = NtStatus::from_bits(0xC000_0272);
    for seed in seeds() {
        with_seed(seed, |network, driver| {
            network.add_name("Server", "192.168.1.11".parse().expect("an address"));
            driver.run(|| {
                let client = Client::new();
                for (node, service, expected) in [
                    ("192.168.1.12", "80", &["192.168.1.12:80"][..]),
                    ("fe80::1", "", &["[fe80::1]:0"]),
                    ("server", "7", &["192.168.1.11:7"]),
                    ("localhost", "7", &["[::1]:7", "127.0.0.1:7"]),
                ] {
                    let (status, found, list) = addresses(client, node, service);
                    let expected: Vec<SocketAddr> =
                        expected.iter().map(|address| address.parse().expect("an address")).collect();
                    assert_eq!((status, found), (SUCCESS, expected), "{node}");
                    free_list(client, list);
                }
                assert_eq!(addresses(client, "nobody", "7").0, NO_MATCH);
                assert_eq!(addresses(client, "server", "http").0, NO_MATCH, "names of services are not known");
                assert_eq!(name_of(client, A, 64, 0), Ok("server".to_owned()));
                assert_eq!(name_of(client, A, 64, 2), Ok("192.168.1.11".to_owned()));
                assert_eq!(name_of(client, B, 64, 0), Ok("192.168.1.12".to_owned()));
                assert_eq!(name_of(client, B, 64, 4), Err(NO_MATCH));
                assert_eq!(name_of(client, A, 12, 0), Err(NtStatus::BUFFER_TOO_SMALL), "no room for the zero");
                client.end();
            });
        });
    }
}

/// What a client does wrong.
fn wrong(work: fn(Client)) -> impl FnOnce(&Network, &Driver) {
    move |_, driver| {
        driver.run(|| {
            forget();
            work(Client::new());
        });
    }
}

/// Tests that break a rule, each named after what it does.
macro_rules! breaks {
    ($($name:ident breaks $rule:ident by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || with_seed(1, wrong($work)));
            }
        )+
    };
}

/// A socket whose callback has got bytes, and does this with them.
fn indicated(client: Client, receive: fn(*mut WSK_DATA_INDICATION, &mut usize) -> NtStatus) -> Stream {
    let (_, one, two) = client.pair();
    let_it(Does { receive, ..CALM });
    SOCKET.store(two.0, SeqCst);
    two.enable(WSK_EVENT_RECEIVE);
    let _ = one.send(b"some bytes");
    sleep(1);
    two
}

/// A socket to which a connection has come, and whose callback does this with it.
fn asked(client: Client, accept: fn(Stream) -> NtStatus) {
    let_it(Does { accept, ..CALM });
    let (listener, one) = (client.listens(A), Streams::bound(client, "0.0.0.0:0"));
    listener.enable(WSK_EVENT_ACCEPT);
    let _ = one.connect(A);
    sleep(1);
}

/// A send that waits, as long as nobody takes what was sent.
fn pending_send(client: Client) -> (Request, Chain) {
    let (_, one, _) = client.pair();
    let (request, mut chain) = (Request::new(), Chain::of(&[&pattern(100_000)]));
    assert_eq!(one.send_as(&mut chain.buffer, &request), PENDING);
    (request, chain)
}

breaks! {
    a_send_before_the_connection breaks WskSocketState by |client| { let _ = Streams::bound(client, B).send(b"x"); };
    a_receive_before_the_connection breaks WskSocketState by |client| { let _ = Streams::bound(client, B).receive(8, 0); };
    a_disconnect_before_the_connection breaks WskSocketState by |client| { let _ = Streams::bound(client, B).disconnect(b"", 0); };
    a_socket_connected_before_it_is_bound breaks WskSocketState by |client| {
        let _ = client.made(AF_INET, WSK_FLAG_CONNECTION_SOCKET, ptr::null()).connect(A);
    };
    a_socket_connected_twice breaks WskSocketState by |client| { let _ = client.pair().1.connect(A); };
    a_socket_bound_twice breaks WskSocketState by |client| { let _ = client.listens(A).bind(B); };
    an_accept_before_the_socket_is_bound breaks WskSocketState by |client| {
        let _ = client.made(AF_INET, WSK_FLAG_LISTEN_SOCKET, ptr::null()).accept();
    };
    an_event_enabled_before_the_connection breaks WskSocketState by |client| Streams::bound(client, B).enable(WSK_EVENT_RECEIVE);
    an_event_of_listeners_on_a_connection breaks BadArgument by |client| client.pair().1.enable(WSK_EVENT_ACCEPT);
    two_events_disabled_at_once breaks BadArgument by |client| {
        let mask = WSK_EVENT_RECEIVE | WSK_EVENT_DISCONNECT;
        let _ = client.pair().1.set_event(mask | WSK_EVENT_DISABLE, ptr::null_mut());
    };
    an_event_of_connections_disabled_on_a_listener breaks BadArgument by |client| {
        let _ = client.listens(A).set_event(WSK_EVENT_RECEIVE | WSK_EVENT_DISABLE, ptr::null_mut());
    };
    an_event_without_a_callback breaks BadArgument by |client| {
        let one = client.made(AF_INET, WSK_FLAG_CONNECTION_SOCKET, ptr::null());
        let listener = client.listens(A);
        assert_eq!((one.bind(B), one.connect(A)), (SUCCESS, SUCCESS));
        let _ = listener;
        one.enable(WSK_EVENT_RECEIVE);
    };
    a_static_event_without_a_callback breaks BadArgument by |client| {
        client.set_static(WSK_EVENT_RECEIVE);
        let _ = client.made(AF_INET, WSK_FLAG_CONNECTION_SOCKET, ptr::null());
    };
    a_static_event_enabled_once_more breaks WskSocketState by |client| {
        client.set_static(WSK_EVENT_ACCEPT);
        client.listens(A).enable(WSK_EVENT_ACCEPT);
    };
    a_basic_socket_with_a_callback breaks BadArgument by |client| {
        let _ = client.made(AF_INET, WSK_FLAG_BASIC_SOCKET, (&raw const LOUD).cast());
    };
    a_socket_for_either breaks NotSimulated by |client| {
        let _ = Streams::ask(client, AF_INET, WSK_FLAG_STREAM_SOCKET, ptr::null(), &Request::new());
    };
    an_inspection breaks NotSimulated by |client| {
        let listener = client.made(AF_INET, WSK_FLAG_LISTEN_SOCKET, ptr::null());
        let _ = listener.set(SOL_SOCKET, SO_CONDITIONAL_ACCEPT, 1);
    };
    a_receive_that_waits_for_all_and_drops_it breaks BadArgument by |client| {
        let _ = client.pair().1.receive(0, WSK_FLAG_WAITALL | WSK_FLAG_DRAIN);
    };
    a_drain_with_room breaks BadArgument by |client| { let _ = client.pair().1.receive(8, WSK_FLAG_DRAIN); };
    an_abortive_disconnect_with_last_bytes breaks BadArgument by
        |client| { let _ = client.pair().1.disconnect(b"last", WSK_FLAG_ABORTIVE); };
    a_function_of_another_kind_of_socket breaks BadHandle by |client| {
        let (listener, one, _) = client.pair();
        let mut room = Chain::of(&[&[0; 8]]);
        let receive = one.functions().WskReceive.expect("a function");
        let _ = call!(receive(listener.0, &raw mut room.buffer, 0, Request::new().irp()));
    };
    a_send_without_an_irp breaks WskIrp by |client| {
        let (_, one, _) = client.pair();
        let (mut chain, send) = (Chain::of(&[b"x"]), one.functions().WskSend.expect("a function"));
        let _ = call!(send(one.0, &raw mut chain.buffer, 0, ptr::null_mut()));
    };
    a_buffer_longer_than_its_mdls breaks WskBuffer by |client| {
        let (_, one, _) = client.pair();
        let mut chain = Chain::of(&[b"abcd"]);
        chain.buffer.Length = 5;
        let _ = one.send_as(&mut chain.buffer, &Request::new());
    };
    a_buffer_freed_before_it_is_sent breaks WskMemoryInUse by |client| free(pending_send(client).1.parts[0].0);
    bytes_changed_before_they_are_sent breaks WskMemoryInUse by |client| {
        let (_, one, two) = client.pair();
        let (request, mut chain) = (Request::new(), Chain::of(&[&pattern(100_000)]));
        let said = one.send_as(&mut chain.buffer, &request);
        // SAFETY: as wrong as the test wants it.
        unsafe { chain.parts[0].0.cast::<u8>().add(99_999).write(b'!') };
        let _ = two.receive(100_000, WSK_FLAG_WAITALL);
        let _ = request.end(said);
    };
    a_place_freed_before_the_accept breaks WskMemoryInUse by |client| {
        let (listener, place) = (client.listens(A), allocate(28));
        assert_eq!(listener.accept_as(place.cast(), false, &Request::new()), PENDING);
        free(place);
    };
    a_list_released_twice breaks WskIndication by |client| {
        let two = indicated(client, hold);
        let list = kept();
        let _ = two.release(list);
        let _ = two.release(list);
    };
    a_list_released_that_nobody_has breaks WskIndication by |client| {
        let _ = client.pair().1.release(keep(allocate(64)).cast());
    };
    a_list_released_and_not_kept breaks WskIndication by |client| {
        indicated(client, |list, _| { let _ = Stream(SOCKET.load(SeqCst)).release(list); SUCCESS });
    };
    a_list_kept_over_the_close breaks WskIndication by |client| indicated(client, hold).close();
    a_list_used_after_the_callback breaks UseAfterFree by |client| {
        let receive = |list: *mut WSK_DATA_INDICATION, _: &mut usize| {
            KEPT.lock().expect("nobody panics").push(list.expose_provenance());
            SUCCESS
        };
        let_it(Does { receive, ..CALM });
        let (listener, one, two) = client.pair();
        two.enable(WSK_EVENT_RECEIVE);
        let _ = one.send(b"some bytes");
        sleep(1);
        // SAFETY: as wrong as the test wants it.
        unsafe { (*kept()).Next = ptr::null_mut() };
        forget();
        close_all(client, [listener, one, two]);
    };
    more_bytes_accepted_than_came breaks WskIndication by |client| { indicated(client, |_, accepted| { *accepted += 1; SUCCESS }); };
    an_answer_of_the_receive_that_is_none breaks WskIndication by
        |client| { indicated(client, |_, _| NtStatus::INVALID_PARAMETER); };
    an_answer_of_the_accept_that_is_none breaks WskIndication by |client| asked(client, |_| PENDING);
    a_socket_that_was_not_accepted_is_used breaks BadHandle by |client| {
        asked(client, |socket| { SOCKET.store(socket.0, SeqCst); REQUEST_NOT_ACCEPTED });
        // SAFETY: the functions of a socket that was.
        let close = Streams::bound(client, B).functions().Basic.WskCloseSocket.expect("a function");
        let _ = call!(close(SOCKET.load(SeqCst), Request::new().irp()));
    };
    a_wait_in_the_accept breaks IrqlTooHigh by |client| asked(client, |socket| { let _ = socket.receive(8, 0); SUCCESS });
    a_socket_that_is_never_closed breaks WskSocketsOpen by |client| {
        let (listener, one, _) = client.pair();
        [listener, one].into_iter().for_each(Stream::close);
        client.end();
    };
    a_list_of_addresses_freed_twice breaks BadHandle by |client| {
        let (_, _, list) = addresses(client, "localhost", "");
        free_list(client, list);
        free_list(client, list);
    };
    a_list_of_addresses_that_is_never_freed breaks ReferenceLeak by |client| {
        let _ = addresses(client, "localhost", "");
        client.end();
    };
    a_name_asked_for_above_passive_level breaks IrqlTooHigh by |client| {
        let (request, (_, mut node)) = (Request::new(), string("localhost", 64));
        // SAFETY: the table is static.
        let get = unsafe { (*client.npi.Dispatch).WskGetAddressInfo }.expect("a function");
        let (mut list, none) = (ptr::null_mut(), ptr::null_mut());
        let (node, place, hints) = (&raw mut node, &raw mut list, ptr::null_mut());
        raise(2);
        let irp = request.irp();
        let _ = call!(get(client.npi.Client, node, ptr::null_mut(), 0, ptr::null_mut(), hints, place, none, none, irp));
    };
    a_connect_above_dispatch_level breaks IrqlTooHigh by |client| {
        let (one, request) = (Streams::bound(client, B), Request::new());
        raise(3);
        let _ = one.connect_as(A, &request);
    };
}
