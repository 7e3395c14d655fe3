//! Protocols above the small miniport: one that does everything right is bound, sends, receives, asks, pauses and leaves; one that breaks a
//! rule is caught.

use std::{
    ffi::c_void,
    mem::offset_of,
    ptr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_OBJECT_TYPE_OID_REQUEST, NDIS_OID_REQUEST, NDIS_REQUEST_TYPE, NDIS_STATUS,
    NDIS_STATUS_INDICATION, NDIS_STATUS_PAUSED, NET_BUFFER, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS,
    NdisAllocateMdl, NdisAllocateNetBufferAndNetBufferList, NdisAllocateNetBufferListPool, NdisFreeMdl,
    NdisFreeNetBufferList, NdisFreeNetBufferListPool, OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_VENDOR_ID, QUERY,
    REQUEST_DATA, SET,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NET_PNP_EVENT_NOTIFICATION, NtStatus,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use simulated_kernel::{Driver, DuringRun, Kernel, Nic, Rule, caught};
use wdk_sys::{
    KEVENT, NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, PVOID, UNICODE_STRING,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag},
};

use crate::miniport::{self, Handlers};

// The kit declares them, the crate `ndis` leaves them out: SoftNDK is no protocol.
unsafe extern "system" {
    fn NdisRegisterProtocolDriver(
        context: NDIS_HANDLE,
        characteristics: *const u64,
        place: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    fn NdisDeregisterProtocolDriver(handle: NDIS_HANDLE);
    fn NdisOpenAdapterEx(
        protocol: NDIS_HANDLE,
        context: NDIS_HANDLE,
        parameters: *const OpenParameters,
        bind: NDIS_HANDLE,
        place: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    fn NdisCloseAdapterEx(handle: NDIS_HANDLE) -> NDIS_STATUS;
    fn NdisCompleteBindAdapterEx(bind: NDIS_HANDLE, status: NDIS_STATUS);
    fn NdisCompleteUnbindAdapterEx(unbind: NDIS_HANDLE);
    fn NdisCompleteNetPnPEvent(handle: NDIS_HANDLE, event: *const NET_PNP_EVENT_NOTIFICATION, status: NDIS_STATUS);
    fn NdisOidRequest(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS;
    fn NdisSendNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, port: u32, flags: u32);
    fn NdisCancelSendNetBufferLists(handle: NDIS_HANDLE, cancel: *mut c_void);
    fn NdisReturnNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32);
    fn NdisQueryAdapterInstanceName(place: *mut UNICODE_STRING, handle: NDIS_HANDLE) -> NDIS_STATUS;
    fn NdisFreeMemory(block: PVOID, length: u32, flags: u32);
    fn NdisCopyFromNetBufferToNetBuffer(
        target: *mut NET_BUFFER,
        target_offset: u32,
        count: u32,
        source: *const NET_BUFFER,
        source_offset: u32,
        copied: *mut u32,
    ) -> NTSTATUS;
    fn NdisInitializeEvent(place: *mut KEVENT);
    fn NdisSetEvent(place: *mut KEVENT);
    fn NdisWaitEvent(place: *mut KEVENT, milliseconds: u32) -> u8;
}

/// A call of the kernel, right, or as wrong as the test wants it.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or are as wrong as the test wants.
        unsafe { $name($($argument),*) }
    }};
}

const TAG: u32 = u32::from_ne_bytes(*b"Prot");
const PAUSE: i32 = 8;
const RESTART: i32 = 9;
const BOUND: i32 = 6;
const RESOURCES: u32 = 2;
/// A type of frames, as it lies in them.
const OTHERS: &[u16] = &[u16::from_le_bytes([0x88, 0x8E])];
/// A frame to the small miniport, and one to all, of the type of IPv4 and of another.
pub const TO_IT: [u8; 60] = frame([2, 0, 0, 0, 0, 1], [8, 0]);
pub const TO_ALL: [u8; 60] = frame([0xFF; 6], [8, 0]);
const OTHER_TYPE: [u8; 60] = frame([2, 0, 0, 0, 0, 1], [0x88, 0x8E]);

const fn frame(to: [u8; 6], kind: [u8; 2]) -> [u8; 60] {
    let mut frame = [0; 60];
    let mut at = 0;
    while at < 6 {
        frame[at] = to[at];
        at += 1;
    }
    (frame[12], frame[13]) = (kind[0], kind[1]);
    frame
}

#[repr(C)]
struct OpenParameters {
    header: NDIS_OBJECT_HEADER,
    name: *const UNICODE_STRING,
    media: *const u32,
    media_count: u32,
    selected: *mut u32,
    types: *const u16,
    types_count: u32,
}

/// What the protocol keeps.
struct World {
    does: Does,
    driver: NDIS_HANDLE,
    binding: NDIS_HANDLE,
    pool: NDIS_HANDLE,
    /// Where it waits for what pends.
    event: *mut KEVENT,
    status: NDIS_STATUS,
    /// What it has heard, in order.
    heard: Row<Heard>,
    received: Row<[u8; 60]>,
    kept: Row<*mut NET_BUFFER_LIST>,
    sent: Row<NDIS_STATUS>,
}

/// What a protocol has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    Bind,
    OpenedLate,
    Unbind,
    ClosedLate,
    Event(i32),
    Status(i32),
}

/// A few values. The driver's code allocates nothing on a heap, where it would be the driver's.
struct Row<T> {
    values: [Option<T>; 64],
    count: usize,
}

impl<T: Copy> Default for Row<T> {
    fn default() -> Self {
        Self { values: [None; 64], count: 0 }
    }
}

impl<T: Copy> Row<T> {
    fn push(&mut self, value: T) {
        self.values[self.count] = Some(value);
        self.count += 1;
    }

    fn all(&self) -> impl Iterator<Item = T> {
        self.values.iter().copied().flatten()
    }
}

// SAFETY: handles and addresses, used by one thread at a time.
unsafe impl Send for World {}

/// What a test can replace.
#[derive(Clone, Copy)]
pub struct Does {
    pub bind: fn(NDIS_HANDLE, *const c_void) -> NDIS_STATUS,
    pub unbind: fn(NDIS_HANDLE) -> NDIS_STATUS,
    pub pause: fn(*mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS,
    /// Whether it keeps what it receives.
    pub keeps: bool,
    /// The types of frames that it wants.
    pub types: &'static [u16],
}

impl Default for Does {
    fn default() -> Self {
        Self { bind, unbind, pause: |_| flush(), keeps: false, types: &[] }
    }
}

static WORLD: DuringRun<Mutex<Option<World>>> = DuringRun::new(Mutex::new(None));

fn with<R>(work: impl FnOnce(&mut World) -> R) -> R {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    work(world.as_mut().expect("a scenario runs"))
}

fn note(heard: Heard) {
    with(|world| world.heard.push(heard));
}

pub unsafe extern "system" fn entry(object: PDRIVER_OBJECT, _: PCUNICODE_STRING) -> NTSTATUS {
    // SAFETY: the driver's own object.
    unsafe { (*object).DriverUnload = Some(unload) };
    let handlers: [(usize, *const ()); 9] = [
        (40, on_bind as *const ()),
        (48, on_unbind as *const ()),
        (56, on_opened as *const ()),
        (64, on_closed as *const ()),
        (72, on_event as *const ()),
        (88, on_answer as *const ()),
        (96, on_status as *const ()),
        (104, on_receive as *const ()),
        (112, on_sent as *const ()),
    ];
    let mut characteristics = [0_u64; 16];
    characteristics[0] = u64::from_le_bytes([0x95, 2, 128, 0, 6, 30, 1, 0]);
    for (offset, handler) in handlers {
        characteristics[offset / 8] = handler.addr() as u64;
    }
    // NDIS writes the handle before it binds, which may be before the call returns: so the place is where the bind handler looks.
    let place = with(|world| &raw mut world.driver);
    let status = call!(NdisRegisterProtocolDriver(ptr::null_mut(), characteristics.as_ptr(), place));
    status.0
}

unsafe extern "C" fn unload(_: PDRIVER_OBJECT) {
    call!(NdisDeregisterProtocolDriver(with(|world| world.driver)));
}

unsafe extern "system" fn on_bind(_: NDIS_HANDLE, bind: NDIS_HANDLE, parameters: *const c_void) -> NDIS_STATUS {
    note(Heard::Bind);
    with(|world| world.does.bind)(bind, parameters)
}

/// Opens the adapter, waits for that, and makes a pool.
fn bind(bind: NDIS_HANDLE, parameters: *const c_void) -> NDIS_STATUS {
    match open(bind, parameters) {
        NDIS_STATUS_SUCCESS => make_pool(),
        status => status,
    }
}

fn driver_handle() -> NDIS_HANDLE {
    with(|world| world.driver)
}

fn open(bind: NDIS_HANDLE, parameters: *const c_void) -> NDIS_STATUS {
    // SAFETY: NDIS's parameters, which have the name there.
    let name = unsafe { parameters.byte_add(16).cast::<*const UNICODE_STRING>().read() };
    // SAFETY: as above, and the hardware address there.
    let mac: [u8; 6] = unsafe { parameters.byte_add(106).cast::<[u8; 6]>().read() };
    assert_eq!(mac, [2, 0, 0, 0, 0, 1]);
    let (media, mut selected) = ([5_u32, 0], 0);
    let types = with(|world| world.does.types);
    let wanted = OpenParameters {
        header: NDIS_OBJECT_HEADER { Type: 0x87, Revision: 1, Size: 56 },
        name,
        media: media.as_ptr(),
        media_count: 2,
        selected: &raw mut selected,
        types: types.as_ptr(),
        types_count: u32::try_from(types.len()).expect("a few"),
    };
    let (event, mut handle) = (prepare_wait(), ptr::null_mut());
    let protocol = driver_handle();
    let status = call!(NdisOpenAdapterEx(protocol, context(), &raw const wanted, bind, &raw mut handle));
    with(|world| world.binding = handle);
    let status = ended(event, status);
    assert!(status != NDIS_STATUS_SUCCESS || selected == 1, "the medium is Ethernet");
    status
}

const CONTEXT: usize = 0x5107;

const fn context() -> NDIS_HANDLE {
    ptr::without_provenance_mut(CONTEXT)
}

fn check(context: NDIS_HANDLE) {
    assert_eq!(context.addr(), CONTEXT);
}

/// An event that what pends sets.
fn prepare_wait() -> *mut KEVENT {
    let event = with(|world| world.event);
    call!(NdisInitializeEvent(event));
    event
}

/// The status in the end.
fn ended(event: *mut KEVENT, status: NDIS_STATUS) -> NDIS_STATUS {
    if status != NDIS_STATUS_PENDING {
        return status;
    }
    assert_eq!(call!(NdisWaitEvent(event, 0)), 1);
    with(|world| world.status)
}

fn set(status: NDIS_STATUS) {
    let event = with(|world| {
        world.status = status;
        world.event
    });
    call!(NdisSetEvent(event));
}

fn make_pool() -> NDIS_STATUS {
    let parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
        Header: NET_BUFFER_LIST_POOL_PARAMETERS::HEADER,
        ProtocolId: 6,
        fAllocateNetBuffer: 1,
        ContextSize: 16,
        PoolTag: TAG,
        DataSize: 0,
    };
    let pool = call!(NdisAllocateNetBufferListPool(driver_handle(), &raw const parameters));
    with(|world| world.pool = pool);
    if pool.is_null() { NDIS_STATUS_RESOURCES } else { NDIS_STATUS_SUCCESS }
}

unsafe extern "system" fn on_opened(binding: NDIS_HANDLE, status: NDIS_STATUS) {
    check(binding);
    note(Heard::OpenedLate);
    set(status);
}

unsafe extern "system" fn on_unbind(unbind: NDIS_HANDLE, binding: NDIS_HANDLE) -> NDIS_STATUS {
    check(binding);
    note(Heard::Unbind);
    with(|world| world.does.unbind)(unbind)
}

fn unbind(_: NDIS_HANDLE) -> NDIS_STATUS {
    let pool = with(|world| std::mem::replace(&mut world.pool, ptr::null_mut()));
    call!(NdisFreeNetBufferListPool(pool));
    close()
}

fn close() -> NDIS_STATUS {
    let (event, binding) = (prepare_wait(), with(|world| world.binding));
    ended(event, call!(NdisCloseAdapterEx(binding)))
}

unsafe extern "system" fn on_closed(binding: NDIS_HANDLE) {
    check(binding);
    note(Heard::ClosedLate);
    set(NDIS_STATUS_SUCCESS);
}

unsafe extern "system" fn on_event(binding: NDIS_HANDLE, event: *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS {
    // SAFETY: NDIS's event, which lives until the call returns.
    let code = unsafe { (*event).NetPnPEvent.NetEvent.0 };
    if !binding.is_null() {
        check(binding);
    }
    note(Heard::Event(code));
    if code == PAUSE { with(|world| world.does.pause)(event) } else { NDIS_STATUS_SUCCESS }
}

/// Gives back what it keeps.
fn flush() -> NDIS_STATUS {
    let (kept, binding) = with(|world| (std::mem::take(&mut world.kept), world.binding));
    for list in kept.all() {
        call!(NdisReturnNetBufferLists(binding, list, 0));
    }
    NDIS_STATUS_SUCCESS
}

unsafe extern "system" fn on_answer(binding: NDIS_HANDLE, _: *mut NDIS_OID_REQUEST, status: NDIS_STATUS) {
    check(binding);
    set(status);
}

unsafe extern "system" fn on_status(binding: NDIS_HANDLE, indication: *const NDIS_STATUS_INDICATION) {
    check(binding);
    // SAFETY: NDIS's indication, which lives until the call returns.
    let code = unsafe { (*indication).StatusCode };
    note(Heard::Status(code.0));
}

unsafe extern "system" fn on_receive(
    binding: NDIS_HANDLE,
    first: *mut NET_BUFFER_LIST,
    _: u32,
    count: u32,
    flags: u32,
) {
    check(binding);
    let mut list = first;
    for _ in 0..count {
        // SAFETY: a list of the indication, with one net buffer.
        let (next, buffer) = unsafe { ((*list).Next, (*list).FirstNetBuffer) };
        let bytes = copy(buffer);
        let (keeps, handle) = with(|world| {
            world.received.push(bytes);
            (world.does.keeps, world.binding)
        });
        if flags & RESOURCES == 0 {
            // SAFETY: the protocol has the list.
            unsafe { (*list).Next = ptr::null_mut() };
            if keeps {
                with(|world| world.kept.push(list));
            } else {
                call!(NdisReturnNetBufferLists(handle, list, 0));
            }
        }
        list = next;
    }
}

/// The bytes of a received frame, by way of a net buffer of the protocol's own.
fn copy(buffer: *mut NET_BUFFER) -> [u8; 60] {
    let mut bytes = [0; 60];
    let (block, mdl, list) = own_list(&[0; 60]);
    // SAFETY: the list was just made.
    let own = unsafe { (*list).FirstNetBuffer };
    let mut copied = 0;
    assert_eq!(call!(NdisCopyFromNetBufferToNetBuffer(own, 0, 60, buffer, 0, &raw mut copied)), 0);
    // SAFETY: the protocol's own block of as many bytes.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(block.cast(), 60) };
    assert_eq!(copied, 60);
    free(block, mdl, list);
    bytes
}

fn own_list(bytes: &[u8]) -> (PVOID, *mut ndkpi::MDL, *mut NET_BUFFER_LIST) {
    let block = call!(ExAllocatePool2(wdk_sys::POOL_FLAG_NON_PAGED, bytes.len() as u64, TAG));
    // SAFETY: a new block of as many bytes.
    unsafe { block.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let (pool, binding) = with(|world| (world.pool, world.binding));
    let mdl = call!(NdisAllocateMdl(binding, block, u32::try_from(bytes.len()).expect("a short frame")));
    let list = call!(NdisAllocateNetBufferAndNetBufferList(pool, 16, 0, mdl, 0, bytes.len()));
    // SAFETY: the list was just made.
    unsafe { (*list).SourceHandle = binding };
    (block, mdl, list)
}

fn free(block: PVOID, mdl: *mut ndkpi::MDL, list: *mut NET_BUFFER_LIST) {
    call!(NdisFreeNetBufferList(list));
    call!(NdisFreeMdl(mdl));
    call!(ExFreePoolWithTag(block, TAG));
}

unsafe extern "system" fn on_sent(binding: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _: u32) {
    check(binding);
    // SAFETY: the protocol has the list again.
    let (status, next, context) = unsafe { ((*list).Status, (*list).Next, (*list).Context.cast::<PVOID>()) };
    assert!(next.is_null(), "one list");
    // SAFETY: what the protocol has put there when it sent the list.
    let (block, mdl) = unsafe { (context.read(), context.add(1).read()) };
    free(block, mdl.cast(), list);
    with(|world| world.sent.push(status));
}

/// Sends a frame.
pub fn send(bytes: &[u8]) {
    let list = list_to_send(bytes);
    call!(NdisSendNetBufferLists(with(|world| world.binding), list, 0, 0));
}

fn list_to_send(bytes: &[u8]) -> *mut NET_BUFFER_LIST {
    let (block, mdl, list) = own_list(bytes);
    // SAFETY: the context of the list has room for two addresses.
    unsafe {
        let context = (*list).Context.cast::<PVOID>();
        context.write(block);
        context.add(1).write(mdl.cast());
    }
    list
}

/// Asks for a value or sets it.
pub fn ask(kind: NDIS_REQUEST_TYPE, oid: u32, bytes: &mut [u8]) -> (NDIS_STATUS, u32) {
    let (buffer, length) = (bytes.as_mut_ptr().cast(), u32::try_from(bytes.len()).expect("a few bytes"));
    let data = if kind == NDIS_REQUEST_TYPE::SET_INFORMATION {
        let set =
            SET { Oid: oid, InformationBuffer: buffer, InformationBufferLength: length, BytesRead: 0, BytesNeeded: 0 };
        REQUEST_DATA { SET_INFORMATION: set }
    } else {
        let query = QUERY {
            Oid: oid,
            InformationBuffer: buffer,
            InformationBufferLength: length,
            BytesWritten: 0,
            BytesNeeded: 0,
        };
        REQUEST_DATA { QUERY_INFORMATION: query }
    };
    // SAFETY: every field of the structure may be zero.
    let mut request: NDIS_OID_REQUEST = unsafe { std::mem::zeroed() };
    let size = u16::try_from(offset_of!(NDIS_OID_REQUEST, NdisReserved)).expect("small");
    request.Header = NDIS_OBJECT_HEADER { Type: NDIS_OBJECT_TYPE_OID_REQUEST, Revision: 1, Size: size };
    (request.RequestType, request.DATA) = (kind, data);
    let (event, binding) = (prepare_wait(), with(|world| world.binding));
    let status = ended(event, call!(NdisOidRequest(binding, &raw mut request)));
    // SAFETY: the number lies at one place in both arms.
    (status, unsafe { request.DATA.QUERY_INFORMATION.BytesWritten })
}

pub fn listen(filter: u32) {
    let status = ask(NDIS_REQUEST_TYPE::SET_INFORMATION, OID_GEN_CURRENT_PACKET_FILTER, &mut filter.to_le_bytes()).0;
    assert_eq!(status, NDIS_STATUS_SUCCESS);
}

pub fn heard() -> Vec<Heard> {
    with(|world| std::mem::take(&mut world.heard)).all().collect()
}

pub fn received() -> Vec<[u8; 60]> {
    with(|world| std::mem::take(&mut world.received)).all().collect()
}

pub fn sent() -> Vec<NDIS_STATUS> {
    with(|world| std::mem::take(&mut world.sent)).all().collect()
}

/// Prepares the protocol, which has its event in memory of the test.
pub fn prepare(does: Does) {
    let event = Box::into_raw(Box::<KEVENT>::default());
    let (driver, binding, pool) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let status = NDIS_STATUS_SUCCESS;
    let (heard, received) = (Row::default(), Row::default());
    let (kept, sent) = (Row::default(), Row::default());
    let world = World { does, driver, binding, pool, event, status, heard, received, kept, sent };
    *WORLD.lock().unwrap_or_else(PoisonError::into_inner) = Some(world);
}

/// The miniport's answers: it takes any packet filter, too.
pub fn answer(request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: NDIS's request, which lives until it is complete.
    let request_is = unsafe { &mut *request };
    if request_is.RequestType == NDIS_REQUEST_TYPE::SET_INFORMATION {
        // SAFETY: the type says which arm it is.
        let set = unsafe { &mut request_is.DATA.SET_INFORMATION };
        if set.Oid == OID_GEN_CURRENT_PACKET_FILTER && set.InformationBufferLength == 4 {
            set.BytesRead = 4;
            return NDIS_STATUS_SUCCESS;
        }
    }
    miniport::answer(request)
}

/// A miniport with an adapter, and the protocol above it. What the protocol has heard.
fn run_seeded(
    seed: u64,
    handlers: Handlers,
    does: Does,
    work: impl FnOnce(&Kernel, &Nic, &Driver, &Driver),
) -> Vec<Heard> {
    let kernel = Kernel::seeded(seed).hang_limit(Duration::from_secs(2)).start();
    miniport::prepare(Handlers { oid: answer, ..handlers });
    prepare(does);
    let mini = kernel.load("mini", miniport::driver_entry).expect("the miniport loads");
    let protocol = kernel.load("proto", entry).expect("the protocol loads");
    let nic = mini.add_nic(&[("Test", "42")]).expect("the adapter starts");
    work(&kernel, &nic, &mini, &protocol);
    nic.remove();
    protocol.unload();
    mini.unload();
    // Before the kernel of the next test starts, which has a protocol of its own.
    heard()
}

fn run(does: Does, work: impl FnOnce(&Kernel, &Nic, &Driver, &Driver)) -> Vec<Heard> {
    run_seeded(1, Handlers::default(), does, work)
}

#[test]
fn a_protocol_is_bound_when_an_adapter_comes_and_unbound_when_it_goes() {
    for seed in 0..20 {
        let mut heard = run_seeded(seed, Handlers::default(), Does::default(), |_, nic, _, _| {
            nic.pause();
            nic.restart().expect("it restarts");
        });
        heard.retain(|heard| ![Heard::OpenedLate, Heard::ClosedLate, Heard::Event(BOUND)].contains(heard));
        let [pause, restart] = [PAUSE, RESTART].map(Heard::Event);
        let expected = [Heard::Bind, restart, pause, restart, Heard::Event(2), pause, Heard::Unbind];
        assert_eq!(heard, expected, "seed {seed}");
    }
}

#[test]
fn a_protocol_is_bound_to_what_is_there_when_it_registers() {
    for seed in 0..20 {
        let kernel = Kernel::seeded(seed).hang_limit(Duration::from_secs(2)).start();
        miniport::prepare(Handlers::default());
        prepare(Does::default());
        let mini = kernel.load("mini", miniport::driver_entry).expect("the miniport loads");
        let nic = mini.add_nic(&[]).expect("the adapter starts");
        let protocol = kernel.load("proto", entry).expect("the protocol loads");
        kernel.wait_until(|| with(|world| world.heard.all().any(|heard| heard == Heard::Event(BOUND))));
        protocol.unload();
        nic.remove();
        mini.unload();
        let heard = heard();
        let order = [Heard::Bind, Heard::Event(RESTART), Heard::Event(BOUND), Heard::Event(PAUSE), Heard::Unbind];
        let order = order.map(|wanted| heard.iter().position(|&one| one == wanted));
        assert!(order.is_sorted() && order[0].is_some(), "seed {seed}: {heard:?}");
    }
}

#[test]
fn a_protocol_that_leaves_at_once_is_not_bound_any_more() {
    for seed in 0..20 {
        let kernel = Kernel::seeded(seed).hang_limit(Duration::from_secs(2)).start();
        miniport::prepare(Handlers::default());
        let mini = kernel.load("mini", miniport::driver_entry).expect("the miniport loads");
        let nic = mini.add_nic(&[]).expect("the adapter starts");
        for _ in 0..3 {
            prepare(Does::default());
            kernel.load("proto", entry).expect("the protocol loads").unload();
            let heard = heard();
            let ends = [Heard::Bind, Heard::Unbind].map(|wanted| heard.iter().filter(|&&one| one == wanted).count());
            assert_eq!(ends[0], ends[1], "seed {seed}: {heard:?}");
        }
        nic.remove();
        mini.unload();
    }
}

#[test]
fn frames_go_down_and_come_up() {
    run(Does::default(), |_, nic, mini, protocol| {
        protocol.run(|| {
            send(&TO_ALL);
            send(&TO_IT);
        });
        assert_eq!(sent(), [NDIS_STATUS_SUCCESS; 2]);
        assert!(mini.run(|| miniport::receive(&TO_IT)));
        assert_eq!(with(|world| world.received.count), 0, "nobody has asked for frames");
        protocol.run(|| listen(1));
        assert!(mini.run(|| miniport::receive(&TO_IT) && miniport::receive(&TO_ALL)));
        assert_eq!(received(), [TO_IT]);
        protocol.run(|| listen(9));
        assert!(mini.run(|| miniport::receive(&TO_ALL)));
        // What others keep is lent to the protocol.
        nic.keep_received(true);
        assert!(mini.run(|| miniport::receive(&TO_IT)));
        assert_eq!((nic.kept(), with(|world| world.received.count)), (1, 2));
        assert_eq!(nic.give_back(), 1);
        nic.keep_received(false);
    });
}

#[test]
fn a_protocol_gets_the_types_of_frames_that_it_wants() {
    let does = Does { types: OTHERS, ..Does::default() };
    run(does, |_, _, mini, protocol| {
        protocol.run(|| listen(9));
        assert!(mini.run(|| miniport::receive(&TO_IT) && miniport::receive(&OTHER_TYPE)));
        assert_eq!(received(), [OTHER_TYPE]);
        protocol.run(|| listen(0x20));
        assert!(mini.run(|| miniport::receive(&TO_IT)));
        assert_eq!(with(|world| world.received.count), 1, "whoever wants any frame gets any");
    });
}

#[test]
fn what_a_protocol_keeps_comes_back_by_the_pause() {
    run(Does { keeps: true, ..Does::default() }, |_, nic, mini, protocol| {
        protocol.run(|| listen(9));
        assert!(mini.run(|| miniport::receive(&TO_IT) && miniport::receive(&TO_ALL)));
        assert_eq!(miniport::with(|world| world.indicated), 2);
        nic.pause();
        assert_eq!(miniport::with(|world| world.indicated), 0);
        nic.restart().expect("it restarts");
    });
}

#[test]
fn a_protocol_asks_and_is_told() {
    for seed in 0..20 {
        let heard = run_seeded(seed, Handlers::default(), Does::default(), |_, nic, mini, protocol| {
            protocol.run(|| {
                for _ in 0..2 {
                    let mut number = [0; 4];
                    let query = NDIS_REQUEST_TYPE::QUERY_INFORMATION;
                    assert_eq!(ask(query, OID_GEN_VENDOR_ID, &mut number), (NDIS_STATUS_SUCCESS, 4));
                    assert_ne!(number, [0; 4], "the miniport has answered");
                    let mut mac = [0; 6];
                    assert_eq!(ask(query, 0x0101_0102, &mut mac), (NDIS_STATUS_SUCCESS, 6));
                    assert_eq!(mac, [2, 0, 0, 0, 0, 1]);
                }
                let mut name = UNICODE_STRING::default();
                let binding = with(|world| world.binding);
                assert_eq!(call!(NdisQueryAdapterInstanceName(&raw mut name, binding)), NDIS_STATUS_SUCCESS);
                assert!(name.Length > 0);
                call!(NdisFreeMemory(name.Buffer.cast(), 0, 0));
                call!(NdisCancelSendNetBufferLists(binding, ptr::without_provenance_mut(7)));
            });
            mini.run(|| miniport::indicate_status(miniport::with(|world| world.adapter)));
            for power in [NDIS_DEVICE_POWER_STATE::D3, NDIS_DEVICE_POWER_STATE::D0] {
                assert_eq!(nic.set_power(power).status, NDIS_STATUS_SUCCESS);
            }
        });
        assert_eq!(heard.iter().filter(|heard| matches!(heard, Heard::Status(_))).count(), 1, "{heard:?}");
        assert_eq!(heard.iter().filter(|&&heard| heard == Heard::Event(0)).count(), 2, "to sleep, and awake");
    }
}

static LATER: Mutex<usize> = Mutex::new(0);

#[test]
fn bind_pause_and_unbind_may_pend() {
    fn binds(place: NDIS_HANDLE, parameters: *const c_void) -> NDIS_STATUS {
        let status = bind(place, parameters);
        call!(NdisCompleteBindAdapterEx(place, status));
        NDIS_STATUS_PENDING
    }
    fn unbinds(place: NDIS_HANDLE) -> NDIS_STATUS {
        assert_eq!(unbind(place), NDIS_STATUS_SUCCESS);
        call!(NdisCompleteUnbindAdapterEx(place));
        NDIS_STATUS_PENDING
    }
    fn pauses(event: *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS {
        *LATER.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        call!(NdisCompleteNetPnPEvent(with(|world| world.binding), event, NDIS_STATUS_SUCCESS));
        NDIS_STATUS_PENDING
    }
    run(Does { bind: binds, unbind: unbinds, pause: pauses, ..Does::default() }, |_, nic, _, _| {
        nic.pause();
        nic.restart().expect("it restarts");
    });
    assert_eq!(*LATER.lock().unwrap_or_else(PoisonError::into_inner), 2);
}

#[test]
fn a_bind_that_fails_leaves_nothing() {
    fn refuses(place: NDIS_HANDLE, parameters: *const c_void) -> NDIS_STATUS {
        assert_eq!(open(place, parameters), NDIS_STATUS_SUCCESS);
        assert_eq!(close(), NDIS_STATUS_SUCCESS);
        NDIS_STATUS_RESOURCES
    }
    let heard = run(Does { bind: refuses, ..Does::default() }, |_, _, _, _| ());
    assert!(!heard.contains(&Heard::Unbind));
}

#[test]
fn who_sends_while_a_pause_is_told_gets_the_list_back() {
    fn pause(_: *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS {
        send(&TO_ALL);
        NDIS_STATUS_SUCCESS
    }
    run(Does { pause, ..Does::default() }, |_, nic, _, _| {
        nic.pause();
        assert_eq!(sent(), [NDIS_STATUS_PAUSED]);
        nic.restart().expect("it restarts");
    });
}

/// Keeps what it is to send until the test ends.
const fn keep_sent(_: *mut NET_BUFFER_LIST) {}

fn keeping() -> Handlers {
    Handlers { send: keep_sent, ..Handlers::default() }
}

/// Tests of protocols that break a rule.
macro_rules! rules {
    ($($name:ident breaks $rule:ident with $handlers:expr, $does:expr, by $work:expr;)+) => {
        $(
            #[test]
            fn $name() {
                caught(concat!(module_path!(), "::", stringify!($name)), Rule::$rule, || {
                    run_seeded(1, $handlers, $does, $work);
                });
            }
        )+
    };
}

type Four = (fn(&Kernel, &Nic, &Driver, &Driver),);

const NOTHING: Four = (|_, _, _, _| (),);

rules! {
    an_unbind_without_a_close breaks ReferenceLeak with Handlers::default(), Does { unbind: |_| NDIS_STATUS_SUCCESS, ..Does::default() }, by NOTHING.0;

    a_bind_that_fails_with_the_adapter_open breaks ReferenceLeak with Handlers::default(), Does {
        bind: |place, parameters| {
            assert_eq!(open(place, parameters), NDIS_STATUS_SUCCESS);
            NDIS_STATUS_RESOURCES
        },
        ..Does::default()
    }, by NOTHING.0;

    a_bind_that_opens_nothing breaks NdisPlace with Handlers::default(), Does { bind: |_, _| NDIS_STATUS_SUCCESS, ..Does::default() }, by NOTHING.0;

    an_adapter_that_is_opened_twice breaks NdisPlace with Handlers::default(), Does {
        bind: |place, parameters| {
            assert_eq!(open(place, parameters), NDIS_STATUS_SUCCESS);
            open(place, parameters)
        },
        ..Does::default()
    }, by NOTHING.0;

    a_close_with_a_send_on_its_way breaks BindingInUse with keeping(), Does::default(), by |_, _, _, protocol| {
        protocol.run(|| {
            send(&TO_ALL);
            let _ = close();
        });
    };

    a_close_with_a_list_that_is_kept breaks BindingInUse with Handlers::default(), Does { keeps: true, ..Does::default() }, by |_, _, mini, protocol| {
        protocol.run(|| listen(9));
        mini.run(|| miniport::receive(&TO_IT));
        let _ = protocol.run(close);
    };

    a_binding_that_is_used_after_its_close breaks BadHandle with Handlers::default(), Does::default(), by |_, _, _, protocol| {
        protocol.run(|| {
            let list = list_to_send(&TO_ALL);
            let _ = close();
            call!(NdisSendNetBufferLists(with(|world| world.binding), list, 0, 0));
        });
    };

    a_send_without_the_handle_of_the_binding breaks BadHandle with Handlers::default(), Does::default(), by |_, _, _, protocol| {
        protocol.run(|| {
            let list = list_to_send(&TO_ALL);
            // SAFETY: the protocol's own list.
            unsafe { (*list).SourceHandle = ptr::null_mut() };
            call!(NdisSendNetBufferLists(with(|world| world.binding), list, 0, 0));
        });
    };

    a_list_that_is_sent_twice breaks NblNotOwned with keeping(), Does::default(), by |_, _, _, protocol| {
        protocol.run(|| {
            let (list, binding) = (list_to_send(&TO_ALL), with(|world| world.binding));
            call!(NdisSendNetBufferLists(binding, list, 0, 0));
            call!(NdisSendNetBufferLists(binding, list, 0, 0));
        });
    };

    a_send_while_paused breaks SentWhilePaused with Handlers::default(), Does::default(), by |_, nic, _, protocol| {
        nic.pause();
        protocol.run(|| send(&TO_ALL));
    };

    a_pause_that_ends_with_a_send_on_its_way breaks PauseTooEarly with keeping(), Does::default(), by |_, nic, _, protocol| {
        protocol.run(|| send(&TO_ALL));
        nic.pause();
    };

    a_pause_that_ends_with_a_list_that_is_kept breaks PauseTooEarly with Handlers::default(), Does { keeps: true, pause: |_| NDIS_STATUS_SUCCESS, ..Does::default() }, by |_, nic, mini, protocol| {
        protocol.run(|| listen(9));
        mini.run(|| miniport::receive(&TO_IT));
        nic.pause();
    };

    a_pause_that_never_ends breaks PauseNeverCompleted with Handlers::default(), Does { pause: |_| NDIS_STATUS_PENDING, ..Does::default() }, by |_, nic, _, _| nic.pause();

    a_pause_that_is_refused breaks BadArgument with Handlers::default(), Does { pause: |_| NDIS_STATUS_RESOURCES, ..Does::default() }, by |_, nic, _, _| nic.pause();

    a_list_that_is_returned_twice breaks NblNotOwned with Handlers::default(), Does { keeps: true, ..Does::default() }, by |_, _, mini, protocol| {
        protocol.run(|| listen(9));
        mini.run(|| miniport::receive(&TO_IT) && miniport::receive(&TO_ALL));
        protocol.run(|| {
            let (first, binding) = with(|world| (world.kept.values[0], world.binding));
            let first = first.expect("it was kept");
            call!(NdisReturnNetBufferLists(binding, first, 0));
            call!(NdisReturnNetBufferLists(binding, first, 0));
        });
    };

    a_request_with_another_header breaks NdisHeader with Handlers::default(), Does::default(), by |_, _, _, protocol| {
        protocol.run(|| {
            // SAFETY: every field of the structure may be zero.
            let mut request: NDIS_OID_REQUEST = unsafe { std::mem::zeroed() };
            let _ = call!(NdisOidRequest(with(|world| world.binding), &raw mut request));
        });
    };

    a_bind_that_is_completed_twice breaks NdisPlace with Handlers::default(), Does {
        bind: |place, parameters| {
            let status = bind(place, parameters);
            call!(NdisCompleteBindAdapterEx(place, status));
            call!(NdisCompleteBindAdapterEx(place, status));
            NDIS_STATUS_PENDING
        },
        ..Does::default()
    }, by NOTHING.0;

    a_protocol_that_stays_registered breaks ReferenceLeak with Handlers::default(), Does::default(), by |kernel, _, _, _| {
        unsafe extern "C" fn leaves(_: PDRIVER_OBJECT) {}
        unsafe extern "system" fn only_registers(object: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
            // SAFETY: the arguments of this call.
            let status = unsafe { entry(object, path) };
            // SAFETY: the driver's own object.
            unsafe { (*object).DriverUnload = Some(leaves) };
            status
        }
        prepare(Does { bind: |_, _| NDIS_STATUS_RESOURCES, ..Does::default() });
        kernel.load("stays", only_registers).expect("it loads").unload();
    };
}

/// The status that means nothing here, so that the compiler sees what is imported for it.
const _: NtStatus = NDIS_STATUS_SUCCESS;
