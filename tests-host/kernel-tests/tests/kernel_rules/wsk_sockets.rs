//! Winsock Kernel: datagram sockets, their requests and their callbacks.

use std::{
    cell::RefCell,
    ffi::c_void,
    net::SocketAddr,
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use ndis::{
    NPI_WSK_INTERFACE_ID, SIO_WSK_SET_REMOTE_ADDRESS, SIO_WSK_SET_SENDTO_ADDRESS, SO_WSK_EVENT_CALLBACK, SOCK_DGRAM,
    SOL_SOCKET, WSK_BUF, WSK_BUF_LIST, WSK_CLIENT_DATAGRAM_DISPATCH, WSK_CONTROL_SOCKET_TYPE, WSK_DATAGRAM_INDICATION,
    WSK_EVENT_CALLBACK_CONTROL, WSK_EVENT_DISABLE, WSK_EVENT_RECEIVE_FROM, WSK_FLAG_DATAGRAM_SOCKET,
    WSK_FLAG_LISTEN_SOCKET, WSK_NO_WAIT, WSK_PROVIDER_DATAGRAM_DISPATCH, WSK_PROVIDER_NPI, WSK_REGISTRATION,
    WSK_SET_STATIC_EVENT_CALLBACKS, WSK_SOCKET,
};
use ndkpi::{AF_INET, NtStatus, SOCKADDR, SOCKADDR_INET};
use simulated_kernel::{
    Driver, DuringRun, Impairment, Injection, Kernel, Medium, Network, NewInterface, Rule, caught, irql,
    object_attributes,
};
use wdk_sys::{
    _EVENT_TYPE, _KWAIT_REASON, IRP, KEVENT, LARGE_INTEGER, MDL, NTSTATUS, PDEVICE_OBJECT, PIRP, PVOID,
    SL_INVOKE_ON_CANCEL, SL_INVOKE_ON_ERROR, SL_INVOKE_ON_SUCCESS, STATUS_MORE_PROCESSING_REQUIRED,
    ntddk::{
        ExFreePoolWithTag, IoAllocateIrp, IoAllocateMdl, IoCancelIrp, IoFreeIrp, IoFreeMdl, IoReuseIrp,
        KeDelayExecutionThread, KeInitializeEvent, KeSetEvent, KeWaitForSingleObject, MmBuildMdlForNonPagedPool,
        MmMapLockedPagesSpecifyCache, MmProbeAndLockPages, MmUnlockPages, MmUnmapLockedPages, PsCreateSystemThread,
        ZwClose, ZwWaitForSingleObject,
    },
};

use crate::{
    TAG, acquire, lower, new_lock, raise, release as unlock,
    skeleton::{Wrong, allocate, keep, run_in},
    wsk::{capture, deregister, register, release},
};

pub const PENDING: NtStatus = NtStatus::PENDING;
pub const CANCELLED: NtStatus = NtStatus::from_bits(0xC000_0120);
pub const FILE_FORCED_CLOSED: NtStatus = NtStatus::from_bits(0xC000_00B6);
pub const INVALID_DEVICE_STATE: NtStatus = NtStatus::from_bits(0xC000_0184);
const INVALID_BUFFER_SIZE: NtStatus = NtStatus::from_bits(0xC000_0206);
const INVALID_ADDRESS_COMPONENT: NtStatus = NtStatus::from_bits(0xC000_0207);
pub const ADDRESS_ALREADY_EXISTS: NtStatus = NtStatus::from_bits(0xC000_020A);
pub const DATA_NOT_ACCEPTED: NtStatus = NtStatus::from_bits(0xC000_021B);
pub const EVENT_PENDING: NtStatus = NtStatus::from_bits(0x4000_0013);

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

pub(crate) use call;

/// Has a routine called when an IRP of the driver's own is complete (`IoSetCompletionRoutine`).
pub fn set_completion(irp: PIRP, routine: wdk_sys::PIO_COMPLETION_ROUTINE, context: PVOID, when: u32) {
    // SAFETY: the driver's IRP, of which nobody else has anything.
    let irp = unsafe { &*irp };
    // SAFETY: the arm that the I/O manager uses.
    let overlay = unsafe { &irp.Tail.Overlay };
    // SAFETY: the arm that the I/O manager uses.
    let next = unsafe { overlay.__bindgen_anon_2.__bindgen_anon_1.CurrentStackLocation }.wrapping_sub(1);
    // SAFETY: the location of the next driver.
    let next = unsafe { &mut *next };
    (next.CompletionRoutine, next.Context) = (routine, context);
    next.Control = u8::try_from(when).expect("flags");
}

pub const EVERY: u32 = SL_INVOKE_ON_SUCCESS | SL_INVOKE_ON_ERROR | SL_INVOKE_ON_CANCEL;

/// Keeps the IRP, and tells who waits.
pub unsafe extern "C" fn done(_: PDEVICE_OBJECT, _: PIRP, event: PVOID) -> NTSTATUS {
    call!(KeSetEvent(event.cast(), 0, 0));
    STATUS_MORE_PROCESSING_REQUIRED
}

/// Keeps no IRP.
unsafe extern "C" fn let_go(_: PDEVICE_OBJECT, _: PIRP, event: PVOID) -> NTSTATUS {
    call!(KeSetEvent(event.cast(), 0, 0));
    0
}

pub fn wait_for(event: *mut KEVENT) {
    let status = call!(KeWaitForSingleObject(event.cast(), _KWAIT_REASON::Executive, 0, 0, ptr::null_mut()));
    assert_eq!(status, 0);
}

pub fn sleep(milliseconds: i64) {
    let mut interval = LARGE_INTEGER { QuadPart: -10_000 * milliseconds };
    let _ = call!(KeDelayExecutionThread(0, 0, &raw mut interval));
}

/// An IRP with its event.
pub struct Request {
    pub irp: *mut IRP,
    event: *mut KEVENT,
}

impl Request {
    pub fn new() -> Self {
        let irp = call!(IoAllocateIrp(1, 0));
        assert!(!irp.is_null());
        let event: *mut KEVENT = allocate(size_of::<KEVENT>()).cast();
        let request = Self { irp, event };
        request.arm();
        request
    }

    pub fn arm(&self) {
        call!(KeInitializeEvent(self.event, _EVENT_TYPE::NotificationEvent, 0));
        set_completion(self.irp, Some(done), self.event.cast(), EVERY);
    }

    pub fn irp(&self) -> *mut ndis::IRP {
        self.irp.cast()
    }

    /// Waits for the end. The status and the information, which are also what the function has said.
    pub fn end(self, said: NtStatus) -> (NtStatus, usize) {
        let outcome = self.outcome(said);
        self.free();
        outcome
    }

    pub fn outcome(&self, said: NtStatus) -> (NtStatus, usize) {
        wait_for(self.event);
        // SAFETY: the IRP is the driver's again.
        let block = unsafe { (*self.irp).IoStatus };
        // SAFETY: the arm that is in use.
        let status = NtStatus::from_bits(unsafe { block.__bindgen_anon_1.Status }.cast_unsigned());
        assert!(said == PENDING || said == status, "said {said:?}, and ended with {status:?}");
        (status, usize::try_from(block.Information).expect("a number"))
    }

    pub fn free(self) {
        call!(IoFreeIrp(self.irp));
        free(self.event.cast());
    }
}

pub fn free(block: PVOID) {
    call!(ExFreePoolWithTag(block, TAG));
}

/// A client with the provider captured.
#[derive(Clone, Copy)]
pub struct Client {
    pub registration: *mut WSK_REGISTRATION,
    pub npi: WSK_PROVIDER_NPI,
}

impl Client {
    pub fn new() -> Self {
        let registration = register();
        let npi = capture(registration, WSK_NO_WAIT).expect("the provider");
        Self { registration, npi }
    }

    pub fn end(self) {
        release(self.registration);
        deregister(self.registration);
    }

    fn ask(self, flags: u32, callback: Option<Callback>, request: &Request) -> NtStatus {
        static LOUD: WSK_CLIENT_DATAGRAM_DISPATCH =
            WSK_CLIENT_DATAGRAM_DISPATCH { WskReceiveFromEvent: Some(on_datagrams) };
        // SAFETY: the table is static.
        let make = unsafe { (*self.npi.Dispatch).WskSocket }.expect("a function");
        if let Some(callback) = callback {
            *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner) = callback;
        }
        let table: *const WSK_CLIENT_DATAGRAM_DISPATCH = if callback.is_some() { &raw const LOUD } else { ptr::null() };
        let none = ptr::null_mut();
        call!(make(
            self.npi.Client,
            AF_INET,
            SOCK_DGRAM,
            17,
            flags,
            none,
            table.cast(),
            none,
            none,
            none,
            request.irp()
        ))
    }

    fn socket(self, callback: Option<Callback>) -> Socket {
        let request = Request::new();
        let said = self.ask(WSK_FLAG_DATAGRAM_SOCKET, callback, &request);
        let (status, socket) = request.end(said);
        assert_eq!(status, NtStatus::SUCCESS);
        Socket(ptr::with_exposed_provenance_mut(socket))
    }

    /// What the bind of one more socket says.
    fn try_bind(self, address: &str) -> NtStatus {
        let socket = self.socket(None);
        let status = socket.bind(address);
        socket.close();
        status
    }

    fn bound(self, address: &str, callback: Option<Callback>) -> Socket {
        let socket = self.socket(callback);
        assert_eq!(socket.bind(address), NtStatus::SUCCESS);
        socket
    }

    /// Has the event enabled on each socket.
    fn set_static(self) {
        let mut control = events(WSK_EVENT_RECEIVE_FROM);
        // SAFETY: the table is static.
        let function = unsafe { (*self.npi.Dispatch).WskControlClient }.expect("a function");
        let (size, none) = (size_of::<WSK_EVENT_CALLBACK_CONTROL>(), ptr::null_mut());
        let status = call!(function(
            self.npi.Client,
            WSK_SET_STATIC_EVENT_CALLBACKS,
            size,
            (&raw mut control).cast(),
            0,
            none,
            ptr::null_mut(),
            ptr::null_mut(),
        ));
        assert_eq!(status, NtStatus::SUCCESS);
    }
}

pub const fn events(mask: u32) -> WSK_EVENT_CALLBACK_CONTROL {
    WSK_EVENT_CALLBACK_CONTROL { NpiId: &raw const NPI_WSK_INTERFACE_ID, EventMask: mask }
}

pub fn inet(address: &str) -> SOCKADDR_INET {
    address.parse::<SocketAddr>().expect("an address").into()
}

/// A socket, and its functions.
#[derive(Clone, Copy)]
struct Socket(*mut WSK_SOCKET);

impl Socket {
    fn functions(self) -> WSK_PROVIDER_DATAGRAM_DISPATCH {
        // SAFETY: a socket that is not closed.
        let table = unsafe { (*self.0).Dispatch };
        // SAFETY: that of a datagram socket.
        unsafe { table.cast::<WSK_PROVIDER_DATAGRAM_DISPATCH>().read() }
    }

    fn bind(self, address: &str) -> NtStatus {
        let (request, address) = (Request::new(), inet(address));
        let bind = self.functions().WskBind.expect("a function");
        let said = call!(bind(self.0, address.as_ptr().cast_mut(), 0, request.irp()));
        request.end(said).0
    }

    fn local(self) -> Result<SocketAddr, NtStatus> {
        let (request, place) = (Request::new(), allocate(size_of::<SOCKADDR_INET>()).cast::<SOCKADDR>());
        let ask = self.functions().WskGetLocalAddress.expect("a function");
        let said = call!(ask(self.0, place, request.irp()));
        let (status, _) = request.end(said);
        // SAFETY: the block has room for any address.
        let address = unsafe { SOCKADDR_INET::read(place, 28) };
        free(place.cast());
        status.ok().map(|()| address.and_then(|address| address.to_socket_addr()).expect("an address"))
    }

    fn close(self) {
        let close = self.functions().Basic.WskCloseSocket.expect("a function");
        let request = Request::new();
        let said = call!(close(self.0, request.irp()));
        assert_eq!(request.end(said).0, NtStatus::SUCCESS);
    }

    fn send_as(self, buffer: &mut WSK_BUF, to: Option<&str>, request: &Request) -> NtStatus {
        let send = self.functions().WskSendTo.expect("a function");
        let address = to.map(inet);
        let place = address.as_ref().map_or(ptr::null_mut(), |address| address.as_ptr().cast_mut());
        call!(send(self.0, buffer, 0, place, 0, ptr::null_mut(), request.irp()))
    }

    fn send(self, bytes: &[u8], to: Option<&str>) -> (NtStatus, usize) {
        let mut chain = Chain::of(&[bytes]);
        let request = Request::new();
        let said = self.send_as(&mut chain.buffer, to, &request);
        let outcome = request.end(said);
        chain.free();
        outcome
    }

    fn receive_as(self, buffer: &mut WSK_BUF, from: *mut SOCKADDR, flags: *mut u32, request: &Request) -> NtStatus {
        let receive = self.functions().WskReceiveFrom.expect("a function");
        call!(receive(self.0, buffer, 0, from, ptr::null_mut(), ptr::null_mut(), flags, request.irp()))
    }

    /// Enables or disables its event.
    fn set_event(self, mask: u32, irp: *mut ndis::IRP) -> NtStatus {
        let mut control = events(mask);
        let (set, size) = (WSK_CONTROL_SOCKET_TYPE::SET_OPTION, size_of::<WSK_EVENT_CALLBACK_CONTROL>());
        self.control((set, SO_WSK_EVENT_CALLBACK, SOL_SOCKET), (size, (&raw mut control).cast()), irp)
    }

    fn enable(self) {
        assert_eq!(self.set_event(WSK_EVENT_RECEIVE_FROM, ptr::null_mut()), NtStatus::SUCCESS);
    }

    fn control(
        self,
        (kind, code, level): (WSK_CONTROL_SOCKET_TYPE, u32, u32),
        (size, input): (usize, *mut c_void),
        irp: *mut ndis::IRP,
    ) -> NtStatus {
        let control = self.functions().Basic.WskControlSocket.expect("a function");
        call!(control(self.0, kind, code, level, size, input, 0, ptr::null_mut(), ptr::null_mut(), irp))
    }

    /// Sets or clears a fixed address.
    fn fix(self, code: u32, address: Option<&str>) -> NtStatus {
        let (request, mut address) = (Request::new(), address.map(inet));
        let input = address.as_mut().map_or((0, ptr::null_mut()), |address| (16, (&raw mut *address).cast()));
        let said = self.control((WSK_CONTROL_SOCKET_TYPE::IOCTL, code, 0), input, request.irp());
        request.end(said).0
    }
}

/// A chain of MDLs with bytes of the driver's, and the `WSK_BUF` of all of them.
pub struct Chain {
    pub buffer: WSK_BUF,
    pub parts: Vec<(PVOID, *mut MDL)>,
}

impl Chain {
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut made: Vec<(PVOID, *mut MDL)> = Vec::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let block = allocate(part.len());
            // SAFETY: a new block with room for it.
            unsafe { block.cast::<u8>().copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            let length = u32::try_from(part.len()).expect("few bytes");
            let mdl = call!(IoAllocateMdl(block, length, 0, 0, ptr::null_mut()));
            call!(MmBuildMdlForNonPagedPool(mdl));
            if let Some(&(_, last)) = made.last() {
                // SAFETY: an MDL of the driver's.
                unsafe { (*last).Next = mdl };
            }
            made.push((block, mdl));
        }
        let length = parts.iter().map(|part| part.len()).sum();
        let first = made.first().map_or(ptr::null_mut(), |&(_, mdl)| mdl);
        Self { buffer: WSK_BUF { Mdl: first.cast(), Offset: 0, Length: length }, parts: made }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(block, mdl) in &self.parts {
            // SAFETY: an MDL of the driver's.
            let length = unsafe { (*mdl).ByteCount } as usize;
            // SAFETY: the block has that many bytes.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(block.cast::<u8>(), length) });
        }
        bytes
    }

    pub fn free(self) {
        for (block, mdl) in self.parts {
            call!(IoFreeMdl(mdl));
            free(block);
        }
    }
}

/// The bytes of a datagram that a callback gets.
pub fn bytes_of(buffer: &WSK_BUF) -> Vec<u8> {
    let (mut mdl, mut offset, mut left): (*mut MDL, _, _) = (buffer.Mdl.cast(), buffer.Offset as usize, buffer.Length);
    let mut bytes = Vec::new();
    while left > 0 {
        // SAFETY: an MDL of the chain.
        let here = unsafe { mdl.read() };
        let count = left.min(here.ByteCount as usize - offset);
        let start = here.MappedSystemVa.cast::<u8>().wrapping_add(offset);
        // SAFETY: bytes that the MDL describes.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, count) });
        (left, offset, mdl) = (left - count, 0, here.Next);
    }
    bytes
}

/// What a callback does with a list.
type Callback = fn(*mut WSK_DATAGRAM_INDICATION) -> NtStatus;

type Datagram = (Vec<u8>, SocketAddr);

static CALLBACK: DuringRun<Mutex<Callback>> = DuringRun::new(Mutex::new(take));
/// What callbacks have seen.
static SEEN: DuringRun<Mutex<Vec<Datagram>>> = DuringRun::new(Mutex::new(Vec::new()));
/// Calls, the datagrams of the longest list, and the last null.
static CALLS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static LONGEST: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static ENDS: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));
static LEVEL: DuringRun<AtomicI32> = DuringRun::new(AtomicI32::new(0));
/// A list that a callback has kept.
static KEPT: DuringRun<AtomicPtr<WSK_DATAGRAM_INDICATION>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
/// The socket of the callbacks, and the one that sends to it.
static SOCKET: DuringRun<AtomicPtr<WSK_SOCKET>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static OTHER: DuringRun<AtomicPtr<WSK_SOCKET>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

unsafe extern "system" fn on_datagrams(_: PVOID, _: u32, list: *mut WSK_DATAGRAM_INDICATION) -> NtStatus {
    CALLS.fetch_add(1, SeqCst);
    LEVEL.store(i32::from(irql()), SeqCst);
    if list.is_null() {
        ENDS.fetch_add(1, SeqCst);
        return NtStatus::SUCCESS;
    }
    let callback = *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner);
    callback(list)
}

/// Notes what is in a list.
fn note(mut list: *mut WSK_DATAGRAM_INDICATION) {
    let mut count = 0;
    while !list.is_null() {
        // SAFETY: a datagram of the list.
        let here = unsafe { list.read() };
        // SAFETY: an address of the socket's family.
        let source = unsafe { SOCKADDR_INET::read(here.RemoteAddress, 16) }.expect("an address");
        let source = source.to_socket_addr().expect("an address");
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).push((bytes_of(&here.Buffer), source));
        (list, count) = (here.Next, count + 1);
    }
    LONGEST.fetch_max(count, SeqCst);
}

fn take(list: *mut WSK_DATAGRAM_INDICATION) -> NtStatus {
    note(list);
    NtStatus::SUCCESS
}

/// Keeps the list.
fn hold(list: *mut WSK_DATAGRAM_INDICATION) -> NtStatus {
    note(list);
    KEPT.store(list, SeqCst);
    NtStatus::PENDING
}

fn release_list(socket: Socket, list: *mut WSK_DATAGRAM_INDICATION) -> NtStatus {
    let function = socket.functions().WskRelease.expect("a function");
    call!(function(socket.0, list))
}

fn forget() {
    *SEEN.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
    for count in [&CALLS, &LONGEST, &ENDS] {
        count.store(0, SeqCst);
    }
    KEPT.store(ptr::null_mut(), SeqCst);
}

fn seen() -> Vec<(Vec<u8>, SocketAddr)> {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub const A: &str = "192.168.1.11:4789";
pub const B: &str = "192.168.1.12:4789";

/// Two machines' addresses, a driver, and a seed.
pub fn with_seed(seed: u64, work: impl FnOnce(&Network, &Driver)) {
    let limit = Duration::from_secs(5);
    on(&Kernel::seeded(seed).hang_limit(limit).start(), work);
}

pub fn on(kernel: &Kernel, work: impl FnOnce(&Network, &Driver)) {
    let network = kernel.network();
    for (name, address) in [("Ethernet 3", A), ("Ethernet 4", B)] {
        let index = network.add_interface(&NewInterface::ethernet(name)).0;
        network.add_address(index, address.parse::<SocketAddr>().expect("an address").ip(), 24);
    }
    run_in(kernel, Wrong::default(), |driver, _| {
        // One at a time: callbacks have no context here.
        forget();
        work(&network, driver);
        // What callbacks have noted is the driver's.
        driver.run(forget);
    });
}

pub fn seeds() -> impl Iterator<Item = u64> {
    0..24
}

#[test]
fn a_socket_is_made_bound_asked_and_closed() {
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            let (before, any, taken, foreign, after) = driver.run(|| {
                let client = Client::new();
                let one = client.socket(None);
                let before = one.local();
                assert_eq!(one.bind(A), NtStatus::SUCCESS);
                let any = client.bound("0.0.0.0:0", None);
                let other = client.socket(None);
                let statuses = (other.bind(A), other.bind("192.168.7.7:1"));
                let after = one.local();
                let port = any.local().expect("bound").port();
                [one, any, other].into_iter().for_each(Socket::close);
                client.end();
                (before, port, statuses.0, statuses.1, after)
            });
            assert_eq!(before, Err(INVALID_DEVICE_STATE));
            assert_eq!(after, Ok(A.parse().expect("an address")));
            assert!(any >= 49_152, "{any}");
            assert_eq!((taken, foreign), (ADDRESS_ALREADY_EXISTS, INVALID_ADDRESS_COMPONENT));
        });
    }
}

#[test]
fn a_datagram_goes_to_a_request_that_waits_or_comes_later() {
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            driver.run(|| {
                let client = Client::new();
                let (one, two) = (client.bound(A, None), client.bound(B, None));
                let mut room = Chain::of(&[&[0; 3], &[0; 7]]);
                let (from, flags) = (allocate(28).cast::<SOCKADDR>(), allocate(4).cast::<u32>());
                for late in [false, true] {
                    let request = Request::new();
                    if late {
                        assert_eq!(one.send(b"0123456789AB", Some(B)), (NtStatus::SUCCESS, 12));
                        sleep(1);
                    }
                    let said = two.receive_as(&mut room.buffer, from, flags, &request);
                    if !late {
                        assert_eq!((said, one.send(b"01234", Some(B))), (PENDING, (NtStatus::SUCCESS, 5)));
                    }
                    assert_eq!(request.end(said), (NtStatus::SUCCESS, if late { 10 } else { 5 }));
                    // SAFETY: an address of the socket's family.
                    let source = unsafe { SOCKADDR_INET::read(from, 16) }.expect("an address");
                    assert_eq!(source.to_socket_addr(), Some(A.parse().expect("an address")));
                    // SAFETY: the request has written it.
                    assert_eq!(unsafe { flags.read() }, if late { ndis::MSG_TRUNC } else { 0 });
                }
                assert_eq!(room.bytes(), b"0123456789");
                [from.cast(), flags.cast()].into_iter().for_each(free);
                room.free();
                [one, two].into_iter().for_each(Socket::close);
                client.end();
            });
        });
    }
}

#[test]
fn a_callback_gets_lists_at_dispatch_level_and_may_keep_them() {
    let mut longest = 0;
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            driver.run(|| {
                let client = Client::new();
                let (one, two) = (client.bound(A, None), client.bound(B, Some(take)));
                for number in 0..6_u8 {
                    assert_eq!(one.send(&[number; 50], Some(B)), (NtStatus::SUCCESS, 50));
                }
                sleep(1);
                assert_eq!(CALLS.load(SeqCst), 0, "the event is disabled at first");
                two.enable();
                sleep(1);
                assert_eq!(
                    seen().iter().map(|(bytes, _)| bytes.clone()).collect::<Vec<_>>(),
                    [0, 1, 2, 3, 4, 5].map(|n| vec![n; 50])
                );
                assert_eq!(LEVEL.load(SeqCst), 2);
                longest = longest.max(LONGEST.load(SeqCst));
                *CALLBACK.lock().expect("a callback") = hold;
                assert_eq!(one.send(b"kept", Some(B)), (NtStatus::SUCCESS, 4));
                sleep(1);
                let list = KEPT.load(SeqCst);
                // SAFETY: the list is kept.
                assert_eq!(bytes_of(&unsafe { list.read() }.Buffer), b"kept");
                assert_eq!(release_list(two, list), NtStatus::SUCCESS);
                assert_eq!(one.send(b"", Some(B)), (NtStatus::SUCCESS, 0));
                sleep(1);
                assert_eq!(seen().last().map(|(bytes, _)| bytes.len()), Some(0));
                assert_eq!(release_list(two, KEPT.load(SeqCst)), NtStatus::SUCCESS);
                [one, two].into_iter().for_each(Socket::close);
                client.end();
            });
        });
    }
    assert!((2..=4).contains(&longest), "{longest}");
}

#[test]
fn what_a_callback_refuses_comes_again_when_the_event_is_enabled() {
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            driver.run(|| {
                let client = Client::new();
                let (one, two) = (client.bound(A, None), client.bound(B, Some(|_| DATA_NOT_ACCEPTED)));
                two.enable();
                for number in 0..3_u8 {
                    assert_eq!(one.send(&[number], Some(B)), (NtStatus::SUCCESS, 1));
                    sleep(1);
                }
                assert_eq!((CALLS.load(SeqCst), seen().len()), (1, 0), "the event is disabled by the refusal");
                *CALLBACK.lock().expect("a callback") = take;
                two.enable();
                sleep(1);
                let bytes: Vec<_> = seen().into_iter().map(|(bytes, _)| bytes).collect();
                assert_eq!(bytes, [[0], [1], [2]]);
                [one, two].into_iter().for_each(Socket::close);
                client.end();
            });
        });
    }
}

#[test]
fn an_event_of_all_sockets_stays_enabled() {
    with_seed(3, |_, driver| {
        driver.run(|| {
            let client = Client::new();
            client.set_static();
            let (one, two) = (client.bound(A, Some(take)), client.bound(B, Some(|_| DATA_NOT_ACCEPTED)));
            for number in 0..3_u8 {
                assert_eq!(one.send(&[number], Some(B)), (NtStatus::SUCCESS, 1));
                sleep(1);
            }
            assert_eq!(CALLS.load(SeqCst), 3, "a refusal does not disable it");
            [one, two].into_iter().for_each(Socket::close);
            client.end();
        });
    });
}

#[test]
fn an_event_that_is_disabled_is_over_when_the_request_is_complete() {
    fn disable(list: *mut WSK_DATAGRAM_INDICATION) -> NtStatus {
        note(list);
        let socket = Socket(SOCKET.load(SeqCst));
        let status = socket.set_event(WSK_EVENT_RECEIVE_FROM | WSK_EVENT_DISABLE, ptr::null_mut());
        assert_eq!(status, EVENT_PENDING, "this call is in progress");
        NtStatus::SUCCESS
    }
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            driver.run(|| {
                let client = Client::new();
                let (one, two) = (client.bound(A, None), client.bound(B, Some(disable)));
                SOCKET.store(two.0, SeqCst);
                two.enable();
                for _ in 0..3 {
                    assert_eq!(one.send(b"1", Some(B)), (NtStatus::SUCCESS, 1));
                    sleep(1);
                }
                assert_eq!(CALLS.load(SeqCst), 1);
                *CALLBACK.lock().expect("a callback") = take;
                two.enable();
                let request = Request::new();
                let said = two.set_event(WSK_EVENT_RECEIVE_FROM | WSK_EVENT_DISABLE, request.irp());
                assert_eq!(request.end(said).0, NtStatus::SUCCESS);
                let calls = CALLS.load(SeqCst);
                sleep(1);
                assert_eq!(CALLS.load(SeqCst), calls);
                [one, two].into_iter().for_each(Socket::close);
                client.end();
            });
        });
    }
}

#[test]
fn a_request_that_waits_is_cancelled_by_its_client_and_by_the_close() {
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            driver.run(|| {
                let client = Client::new();
                let socket = client.bound(A, None);
                let mut rooms = [(); 2].map(|()| Chain::of(&[&[0; 8]]));
                let requests = [(); 2].map(|()| Request::new());
                let said = [0, 1].map(|index: usize| {
                    socket.receive_as(&mut rooms[index].buffer, ptr::null_mut(), ptr::null_mut(), &requests[index])
                });
                assert_eq!(said, [PENDING; 2]);
                let [first, second] = requests;
                assert_eq!(call!(IoCancelIrp(second.irp)), 1);
                assert_eq!(second.end(PENDING), (CANCELLED, 0));
                socket.close();
                assert_eq!(first.end(PENDING), (CANCELLED, 0));
                rooms.into_iter().for_each(Chain::free);
                client.end();
            });
        });
    }
}

#[test]
fn an_irp_is_used_again_after_it_was_made_anew() {
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            driver.run(|| {
                let client = Client::new();
                let socket = client.bound(A, None);
                let (request, mut chain) = (Request::new(), Chain::of(&[b"abc", b"defg"]));
                for _ in 0..4 {
                    let said = socket.send_as(&mut chain.buffer, Some(B), &request);
                    assert_eq!(request.outcome(said), (NtStatus::SUCCESS, 7));
                    call!(IoReuseIrp(request.irp, 0));
                    request.arm();
                }
                request.free();
                chain.free();
                socket.close();
                client.end();
            });
        });
    }
}

#[test]
fn a_fixed_address_is_where_datagrams_go_and_whose_come() {
    with_seed(1, |_, driver| {
        driver.run(|| {
            let client = Client::new();
            let (one, two) = (client.bound(A, Some(take)), client.bound(B, None));
            let third = client.bound("192.168.1.12:99", None);
            one.enable();
            for code in [SIO_WSK_SET_SENDTO_ADDRESS, SIO_WSK_SET_REMOTE_ADDRESS] {
                assert_eq!(one.fix(code, Some(B)), NtStatus::SUCCESS);
                assert_eq!(one.send(b"there", None), (NtStatus::SUCCESS, 5));
                for socket in [two, third] {
                    assert_eq!(socket.send(b"here", Some(A)), (NtStatus::SUCCESS, 4));
                }
                sleep(1);
                let ports: Vec<u16> = seen().iter().map(|(_, source)| source.port()).collect();
                assert_eq!(ports, if code == SIO_WSK_SET_REMOTE_ADDRESS { vec![4789] } else { vec![4789, 99] });
                assert_eq!(one.fix(code, None), NtStatus::SUCCESS);
                forget();
            }
            assert_eq!(third.send(b"again", Some(A)), (NtStatus::SUCCESS, 5));
            sleep(1);
            assert_eq!(seen().len(), 1);
            [one, two, third].into_iter().for_each(Socket::close);
            client.end();
        });
    });
}

#[test]
fn several_datagrams_are_sent_with_one_request() {
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            driver.run(|| {
                let client = Client::new();
                let (one, two) = (client.bound(A, None), client.bound(B, Some(take)));
                two.enable();
                let (first, second) = (Chain::of(&[b"one"]), Chain::of(&[b"tw", b"o!"]));
                let mut last = WSK_BUF_LIST { Next: ptr::null_mut(), Buffer: second.buffer };
                let mut list = WSK_BUF_LIST { Next: &raw mut last, Buffer: first.buffer };
                let (send, request, to) =
                    (one.functions().WskSendMessages.expect("a function"), Request::new(), inet(B));
                let none = ptr::null_mut();
                let said = call!(send(one.0, &raw mut list, 0, to.as_ptr().cast_mut(), 0, none, request.irp()));
                assert_eq!(request.end(said), (NtStatus::SUCCESS, 7));
                sleep(1);
                assert_eq!(
                    seen().iter().map(|(bytes, _)| bytes.as_slice()).collect::<Vec<_>>(),
                    [&b"one"[..], b"two!"]
                );
                [first, second].into_iter().for_each(Chain::free);
                [one, two].into_iter().for_each(Socket::close);
                client.end();
            });
        });
    }
}

#[test]
fn a_datagram_that_is_too_long_is_refused() {
    with_seed(1, |_, driver| {
        driver.run(|| {
            let client = Client::new();
            let socket = client.bound(A, None);
            assert_eq!(socket.send(&vec![0; 65_507], Some(B)), (NtStatus::SUCCESS, 65_507));
            assert_eq!(socket.send(&vec![0; 65_508], Some(B)), (INVALID_BUFFER_SIZE, 0));
            socket.close();
            client.end();
        });
    });
}

#[test]
fn a_socket_that_is_no_longer_functional_says_so() {
    for seed in seeds() {
        with_seed(seed, |network, driver| {
            let client = driver.run(|| {
                let client = Client::new();
                let (one, two) = (client.bound(A, Some(take)), client.bound(B, None));
                one.enable();
                SOCKET.store(one.0, SeqCst);
                OTHER.store(two.0, SeqCst);
                client.registration.expose_provenance()
            });
            let (request, mut room) = driver.run(|| (Request::new(), Chain::of(&[&[0; 8]])));
            let (one, two) = (Socket(SOCKET.load(SeqCst)), Socket(OTHER.load(SeqCst)));
            let said = driver.run(|| two.receive_as(&mut room.buffer, ptr::null_mut(), ptr::null_mut(), &request));
            network.break_sockets();
            driver.run(|| {
                assert_eq!(request.end(said), (FILE_FORCED_CLOSED, 0));
                sleep(1);
                assert_eq!(ENDS.load(SeqCst), 1, "the callback was told");
                assert_eq!(one.send(b"x", Some(B)), (FILE_FORCED_CLOSED, 0));
                room.free();
                [one, two].into_iter().for_each(Socket::close);
                let registration = ptr::with_exposed_provenance_mut(client);
                release(registration);
                deregister(registration);
            });
        });
    }
}

/// What comes of three hundred datagrams, by their numbers.
fn through(impairment: Impairment, seed: u64) -> Vec<u16> {
    // The test's memory, and not the driver's.
    let mut numbers = Vec::with_capacity(1000);
    with_seed(5, |network, driver| {
        network.set_medium(Medium::Memory { impairment, seed });
        driver.run(|| {
            let client = Client::new();
            let (one, two) = (client.bound(A, None), client.bound(B, Some(take)));
            two.enable();
            for number in 0..300_u16 {
                assert_eq!(one.send(&number.to_be_bytes(), Some(B)), (NtStatus::SUCCESS, 2));
            }
            sleep(20);
            [one, two].into_iter().for_each(Socket::close);
            client.end();
            numbers.extend(seen().iter().map(|(bytes, _)| u16::from_be_bytes([bytes[0], bytes[1]])));
        });
    });
    numbers
}

#[test]
fn a_network_in_memory_loses_doubles_and_delays_by_its_seed() {
    let clean = through(Impairment::default(), 1);
    assert_eq!(clean, (0..300).collect::<Vec<_>>(), "nothing happens to a datagram unless that is asked for");
    let lossy = through(Impairment { lost: 100_000, changed: 100_000, ..Impairment::default() }, 1);
    assert!((200..280).contains(&lossy.len()) && lossy.is_sorted(), "{}", lossy.len());
    let doubled = through(Impairment { doubled: 100_000, ..Impairment::default() }, 1);
    assert!((310..360).contains(&doubled.len()), "{}", doubled.len());
    let late = Impairment {
        late: 200_000,
        lateness: Duration::from_millis(2),
        delay: Duration::from_micros(50),
        ..Impairment::default()
    };
    let late = [1, 1, 2].map(|seed| through(late, seed));
    assert!(late[0].len() == 300 && !late[0].is_sorted());
    assert!(late[0] == late[1] && late[0] != late[2], "the seed decides");
}

#[test]
fn datagrams_travel_over_the_loopback_of_the_host() {
    on(&Kernel::threads().start(), |network, driver| {
        network.set_medium(Medium::Host);
        let host = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket of the host");
        let theirs = host.local_addr().expect("an address").to_string();
        let (socket, client, ours) = driver.run(|| {
            let client = Client::new();
            let socket = client.bound("0.0.0.0:0", Some(take));
            socket.enable();
            assert_eq!(socket.send(b"to the host", Some(&theirs)), (NtStatus::SUCCESS, 11));
            assert_eq!(client.try_bind("192.168.1.11:0"), INVALID_ADDRESS_COMPONENT);
            (socket, client, socket.local().expect("bound").port())
        });
        let mut bytes = [0; 64];
        let (count, source) = host.recv_from(&mut bytes).expect("a datagram");
        assert_eq!((&bytes[..count], source.port()), (&b"to the host"[..], ours));
        host.send_to(b"from the host", source).expect("it is sent");
        driver.run(|| {
            while seen().is_empty() {
                sleep(1);
            }
            assert_eq!(seen()[0].0, b"from the host");
            assert_eq!(LEVEL.load(SeqCst), 2);
            socket.close();
            client.end();
        });
    });
}

#[test]
fn a_request_that_fails_completes_its_irp() {
    for seed in seeds() {
        let kernel = Kernel::seeded(seed).start();
        on(&kernel, |_, driver| {
            let statuses = driver.run(|| {
                let fails = |ask: &dyn Fn(&Request) -> NtStatus| {
                    let request = Request::new();
                    kernel.inject(Injection::Nth(1));
                    let said = ask(&request);
                    kernel.inject(Injection::None);
                    request.end(said).0
                };
                let client = Client::new();
                let (new, bound) = (client.socket(None), client.bound(A, None));
                let (bind, send) = (new.functions().WskBind.expect("a function"), RefCell::new(Chain::of(&[b"x"])));
                let statuses = [
                    fails(&|request| client.ask(WSK_FLAG_DATAGRAM_SOCKET, None, request)),
                    fails(&|request| call!(bind(new.0, inet(B).as_ptr().cast_mut(), 0, request.irp()))),
                    fails(&|request| bound.send_as(&mut send.borrow_mut().buffer, Some(B), request)),
                ];
                send.into_inner().free();
                [new, bound].into_iter().for_each(Socket::close);
                client.end();
                statuses
            });
            assert_eq!(statuses, [NtStatus::INSUFFICIENT_RESOURCES; 3]);
        });
    }
}

#[test]
fn sockets_are_used_on_several_processors_at_once() {
    on(&Kernel::threads().start(), |_, driver| {
        driver.run(|| {
            let client = Client::new();
            let (one, two) = (client.bound(A, None), client.bound(B, Some(take)));
            two.enable();
            for round in 0..100_u32 {
                let (request, mut room) = (Request::new(), Chain::of(&[&[0; 8]]));
                let said = one.receive_as(&mut room.buffer, ptr::null_mut(), ptr::null_mut(), &request);
                for _ in 0..3 {
                    assert_eq!(one.send(b"to the callback", Some(B)), (NtStatus::SUCCESS, 15));
                }
                // Whichever comes first.
                let answer = two.send(b"an answer", Some(A));
                call!(IoCancelIrp(request.irp));
                let (status, count) = request.end(said);
                assert!(
                    [(NtStatus::SUCCESS, 8), (CANCELLED, 0)].contains(&(status, count)),
                    "round {round}: {status:?}"
                );
                assert_eq!(answer, (NtStatus::SUCCESS, 9));
                room.free();
            }
            while seen().len() < 300 {
                sleep(1);
            }
            let request = Request::new();
            let said = two.set_event(WSK_EVENT_RECEIVE_FROM | WSK_EVENT_DISABLE, request.irp());
            assert_eq!(request.end(said).0, NtStatus::SUCCESS);
            [one, two].into_iter().for_each(Socket::close);
            client.end();
        });
    });
}

/// Closes the socket later.
unsafe extern "C" fn close_later(_: PVOID) {
    sleep(3);
    Socket(SOCKET.load(SeqCst)).close();
}

#[test]
fn a_deregistration_waits_until_the_last_socket_is_closed() {
    for seed in seeds() {
        with_seed(seed, |_, driver| {
            driver.run(|| {
                let client = Client::new();
                SOCKET.store(client.bound(A, None).0, SeqCst);
                let (mut attributes, mut handle, none) = (object_attributes(), ptr::null_mut(), ptr::null_mut());
                let (place, attributes) = (&raw mut handle, &raw mut attributes);
                let routine = Some(close_later as _);
                assert_eq!(call!(PsCreateSystemThread(place, 0, attributes, none, ptr::null_mut(), routine, none)), 0);
                client.end();
                assert_eq!(call!(ZwWaitForSingleObject(handle, 0, ptr::null_mut())), 0);
                assert_eq!(call!(ZwClose(handle)), 0);
            });
        });
    }
}

/// What a client does wrong, with two addresses.
pub fn wrong(work: fn(Client)) -> impl FnOnce(&Network, &Driver) {
    move |_, driver| driver.run(|| work(Client::new()))
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

/// Sends until a request is pending. It, and its bytes.
fn pending_send(socket: Socket) -> (Request, Chain) {
    loop {
        let (request, mut chain) = (Request::new(), Chain::of(&[b"abcd", b"efgh"]));
        let said = socket.send_as(&mut chain.buffer, Some(B), &request);
        if said == PENDING {
            return (request, chain);
        }
        let _ = request.end(said);
        chain.free();
    }
}

/// A request that waits for a datagram.
fn pending_receive(socket: Socket, from: *mut SOCKADDR) -> Request {
    let (request, mut room) = (Request::new(), Chain::of(&[&[0; 8]]));
    assert_eq!(socket.receive_as(&mut room.buffer, from, ptr::null_mut(), &request), PENDING);
    request
}

/// A request that waits, with room in pages that are locked and mapped.
fn locked_receive(client: Client) -> *mut MDL {
    let (socket, block) = (client.bound(A, None), allocate(64));
    let mdl = call!(IoAllocateMdl(block, 64, 0, 0, ptr::null_mut()));
    call!(MmProbeAndLockPages(mdl, 0, 0));
    assert!(!call!(MmMapLockedPagesSpecifyCache(mdl, 0, 1, ptr::null_mut(), 0, 0)).is_null());
    let mut room = WSK_BUF { Mdl: mdl.cast(), Offset: 0, Length: 64 };
    assert_eq!(socket.receive_as(&mut room, ptr::null_mut(), ptr::null_mut(), &Request::new()), PENDING);
    mdl
}

/// A request whose place for the address is on the stack of a function that has returned.
#[inline(never)]
fn receive_on_the_stack(socket: Socket) {
    let mut place = SOCKADDR_INET::UNSPECIFIED;
    pending_receive(socket, (&raw mut place).cast());
    std::hint::black_box(&raw mut place);
}

fn with_irp(client: Client, change: fn(&Request)) {
    let request = Request::new();
    change(&request);
    let said = client.ask(WSK_FLAG_DATAGRAM_SOCKET, None, &request);
    let _ = request.end(said);
}

/// Sends something from a buffer that was changed.
fn send_with(client: Client, change: fn(&mut Chain)) {
    let (socket, mut chain, request) = (client.bound(A, None), Chain::of(&[b"abcd", b"ef"]), Request::new());
    change(&mut chain);
    let said = socket.send_as(&mut chain.buffer, Some(B), &request);
    let _ = request.end(said);
}

/// A socket whose callback does that with a datagram that comes.
fn indicated(client: Client, callback: Callback) -> Socket {
    let (one, two) = (client.bound(A, None), client.bound(B, Some(callback)));
    SOCKET.store(two.0, SeqCst);
    OTHER.store(one.0, SeqCst);
    two.enable();
    for _ in 0..2 {
        let _ = one.send(b"datagram", Some(B));
    }
    sleep(1);
    two
}

/// Closes its socket when a request of it is complete: in the call, sooner or later.
unsafe extern "C" fn close_inside(_: PDEVICE_OBJECT, _: PIRP, event: PVOID) -> NTSTATUS {
    if KEPT.load(SeqCst).is_null() {
        let close = Socket(SOCKET.load(SeqCst)).functions().Basic.WskCloseSocket.expect("a function");
        let _ = call!(close(SOCKET.load(SeqCst), Request::new().irp()));
    }
    call!(KeSetEvent(event.cast(), 0, 0));
    STATUS_MORE_PROCESSING_REQUIRED
}

/// A lock that the caller of a function holds.
static LOCK: DuringRun<AtomicPtr<u64>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));

/// Takes the lock of whoever has sent.
unsafe extern "C" fn under_the_lock(_: PDEVICE_OBJECT, _: PIRP, event: PVOID) -> NTSTATUS {
    let before = acquire(LOCK.load(SeqCst));
    unlock(LOCK.load(SeqCst), before);
    call!(KeSetEvent(event.cast(), 0, 0));
    STATUS_MORE_PROCESSING_REQUIRED
}

breaks! {
    a_lock_held_over_a_send_whose_completion_takes_it breaks RecursiveLock by |client| {
        let socket = client.bound(A, None);
        LOCK.store(new_lock(), SeqCst);
        loop {
            let (request, mut chain) = (Request::new(), Chain::of(&[b"x"]));
            set_completion(request.irp, Some(under_the_lock), request.event.cast(), EVERY);
            let before = acquire(LOCK.load(SeqCst));
            let said = socket.send_as(&mut chain.buffer, Some(B), &request);
            unlock(LOCK.load(SeqCst), before);
            let _ = request.end(said);
            chain.free();
        }
    };
    a_socket_never_closed breaks WskSocketsOpen by |client| { client.socket(None); client.end(); };
    a_socket_closed_twice breaks BadHandle by |client| {
        let one = client.socket(None);
        let close = one.functions().Basic.WskCloseSocket.expect("a function");
        one.close();
        let _ = call!(close(one.0, Request::new().irp()));
    };
    a_socket_looked_at_after_its_close breaks UseAfterFree by |client| { let one = client.socket(None); one.close(); one.close(); };
    a_send_after_the_close breaks BadHandle by |client| {
        let one = client.bound(A, None);
        let functions = one.functions();
        one.close();
        let (send, mut chain, to) = (functions.WskSendTo.expect("a function"), Chain::of(&[b"x"]), inet(B));
        let none = ptr::null_mut();
        let _ = call!(send(one.0, &raw mut chain.buffer, 0, to.as_ptr().cast_mut(), 0, none, Request::new().irp()));
    };
    a_socket_made_after_the_release breaks BadHandle by |client| { release(client.registration); client.socket(None); };
    a_socket_closed_inside_of_its_own_call breaks WskSocketState by |client| {
        let socket = client.bound(A, None);
        SOCKET.store(socket.0, SeqCst);
        loop {
            let (request, mut chain) = (Request::new(), Chain::of(&[b"x"]));
            // Only what is complete when the call returns closes.
            set_completion(request.irp, Some(close_inside), request.event.cast(), EVERY);
            KEPT.store(ptr::null_mut(), SeqCst);
            let before = raise(2);
            let said = socket.send_as(&mut chain.buffer, Some(B), &request);
            KEPT.store(ptr::without_provenance_mut(1), SeqCst);
            lower(before);
            let _ = request.end(said);
            chain.free();
        }
    };
    a_socket_bound_twice breaks WskSocketState by |client| { let _ = client.bound(A, None).bind(B); };
    a_send_before_the_bind breaks WskSocketState by |client| { let _ = client.socket(None).send(b"x", Some(B)); };
    an_event_enabled_before_the_bind breaks WskSocketState by |client| client.socket(Some(take)).enable();
    an_event_of_all_sockets_enabled_again breaks WskSocketState by |client| {
        client.set_static();
        client.bound(A, Some(take)).enable();
    };
    an_event_of_all_sockets_after_the_first breaks WskSocketState by |client| { client.socket(None); client.set_static(); };
    an_event_of_all_sockets_without_a_callback breaks BadArgument by |client| { client.set_static(); client.socket(None); };
    an_event_without_a_callback breaks BadArgument by |client| client.bound(A, None).enable();
    an_event_enabled_with_an_irp breaks WskIrp by |client| {
        let _ = client.bound(A, Some(take)).set_event(WSK_EVENT_RECEIVE_FROM, Request::new().irp());
    };
    a_fixed_address_without_an_irp breaks WskIrp by |client| {
        let (code, input) = ((WSK_CONTROL_SOCKET_TYPE::IOCTL, SIO_WSK_SET_REMOTE_ADDRESS, 0), (0, ptr::null_mut()));
        let _ = client.bound(A, None).control(code, input, ptr::null_mut());
    };
    an_option_that_is_not_simulated breaks NotSimulated by |client| {
        let code = (WSK_CONTROL_SOCKET_TYPE::GET_OPTION, 0x1234, SOL_SOCKET);
        let _ = client.bound(A, None).control(code, (0, ptr::null_mut()), ptr::null_mut());
    };
    datagrams_on_a_socket_that_listens breaks NotSimulated by
        |client| { let _ = client.ask(WSK_FLAG_LISTEN_SOCKET, None, &Request::new()); };
    a_send_without_an_address breaks BadArgument by |client| { let _ = client.bound(A, None).send(b"x", None); };
    an_address_of_another_family breaks BadArgument by |client| { let _ = client.socket(None).bind("[::1]:7"); };
    an_irp_without_a_completion_routine breaks WskIrp by |client| with_irp(client, |request| set_completion(request.irp, None, ptr::null_mut(), 0));
    an_irp_whose_completion_is_not_for_every_end breaks WskIrp by
        |client| with_irp(client, |request| set_completion(request.irp, Some(done), request.event.cast(), SL_INVOKE_ON_SUCCESS));
    an_irp_that_the_completion_does_not_keep breaks IrpNotTaken by
        |client| with_irp(client, |request| set_completion(request.irp, Some(let_go), request.event.cast(), EVERY));
    an_irp_used_again_as_it_is breaks WskIrp by |client| {
        let (socket, request, mut chain) = (client.bound(A, None), Request::new(), Chain::of(&[b"x"]));
        for _ in 0..2 {
            let said = socket.send_as(&mut chain.buffer, Some(B), &request);
            let _ = request.outcome(said);
            request.arm();
        }
    };
    an_irp_given_away_twice breaks IrpStackLocations by |client| {
        let (socket, mut room) = (client.bound(A, None), Chain::of(&[&[0; 8]]));
        let request = pending_receive(socket, ptr::null_mut());
        let _ = socket.receive_as(&mut room.buffer, ptr::null_mut(), ptr::null_mut(), &request);
    };
    an_irp_freed_before_it_is_complete breaks IrpFreed by |client| pending_receive(client.bound(A, None), ptr::null_mut()).free();
    a_buffer_longer_than_its_mdls breaks WskBuffer by |client| send_with(client, |chain| chain.buffer.Length = 7);
    an_offset_beyond_the_first_mdl breaks WskBuffer by
        |client| send_with(client, |chain| (chain.buffer.Offset, chain.buffer.Length) = (4, 1));
    an_mdl_that_is_not_locked breaks WskBuffer by |client| send_with(client, |chain| {
        let (block, _) = chain.parts[0];
        chain.buffer.Mdl = call!(IoAllocateMdl(block, 4, 0, 0, ptr::null_mut())).cast();
        chain.buffer.Length = 4;
    });
    a_buffer_that_is_free breaks UseAfterFree by |client| send_with(client, |chain| free(chain.parts[0].0));
    a_buffer_freed_before_the_irp_is_complete breaks WskMemoryInUse by |client| free(pending_send(client.bound(A, None)).1.parts[1].0);
    an_mdl_freed_before_the_irp_is_complete breaks WskMemoryInUse by
        |client| call!(IoFreeMdl(pending_send(client.bound(A, None)).1.parts[1].1));
    an_mdl_unlocked_before_the_irp_is_complete breaks WskMemoryInUse by |client| {
        let mdl = locked_receive(client);
        call!(MmUnlockPages(mdl));
    };
    an_mdl_unmapped_before_the_irp_is_complete breaks WskMemoryInUse by |client| {
        let mdl = locked_receive(client);
        // SAFETY: an MDL of the driver's.
        let base = unsafe { (*mdl).MappedSystemVa };
        call!(MmUnmapLockedPages(base, mdl));
    };
    bytes_changed_before_the_irp_is_complete breaks WskMemoryInUse by |client| {
        let (request, chain) = pending_send(client.bound(A, None));
        // SAFETY: as wrong as the test wants it.
        unsafe { chain.parts[1].0.cast::<u8>().write(b'!') };
        let _ = request.end(PENDING);
    };
    a_chain_changed_before_the_irp_is_complete breaks WskMemoryInUse by |client| {
        let (request, chain) = pending_send(client.bound(A, None));
        let (_, last) = chain.parts[1];
        // SAFETY: as wrong as the test wants it.
        unsafe { (*last).ByteOffset += 1 };
        let _ = request.end(PENDING);
    };
    a_place_on_the_stack_that_is_gone breaks WskMemoryInUse by |client| {
        receive_on_the_stack(client.bound(A, None));
        sleep(1);
    };
    a_place_freed_before_the_irp_is_complete breaks WskMemoryInUse by |client| {
        let place = allocate(28);
        pending_receive(client.bound(A, None), place.cast());
        free(place);
    };
    a_list_released_that_nobody_has breaks WskIndication by |client| {
        let one = client.bound(A, None);
        let _ = release_list(one, keep(allocate(64)).cast());
    };
    a_list_released_twice breaks WskIndication by |client| {
        let socket = indicated(client, hold);
        let list = KEPT.load(SeqCst);
        let _ = release_list(socket, list);
        let _ = release_list(socket, list);
    };
    a_list_released_and_not_kept breaks WskIndication by |client| {
        indicated(client, |list| { let _ = release_list(Socket(SOCKET.load(SeqCst)), list); NtStatus::SUCCESS });
    };
    a_list_taken_apart breaks WskIndication by |client| {
        indicated(client, |list| {
            // SAFETY: as wrong as the test wants it.
            unsafe { (*list).Next = list };
            NtStatus::SUCCESS
        });
    };
    a_list_kept_over_the_close breaks WskIndication by |client| indicated(client, hold).close();
    an_answer_that_is_none breaks WskIndication by |client| { indicated(client, |_| NtStatus::INVALID_PARAMETER); };
    a_list_used_after_the_callback breaks UseAfterFree by |client| {
        indicated(client, |list| { KEPT.store(list, SeqCst); NtStatus::SUCCESS });
        // SAFETY: as wrong as the test wants it.
        unsafe { (*KEPT.load(SeqCst)).Next = ptr::null_mut() };
        for socket in [&SOCKET, &OTHER] {
            Socket(socket.load(SeqCst)).close();
        }
        client.end();
    };
    a_socket_above_dispatch_level breaks IrqlTooHigh by |client| {
        let request = Request::new();
        raise(3);
        let _ = client.ask(WSK_FLAG_DATAGRAM_SOCKET, None, &request);
    };
    a_wait_in_a_callback breaks IrqlTooHigh by |client| {
        indicated(client, |_| { let _ = Socket(SOCKET.load(SeqCst)).send(b"answer", Some(A)); NtStatus::SUCCESS });
    };
}
