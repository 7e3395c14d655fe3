//! Filters between the small miniport and the small protocol: one that does everything right is attached, passes on what goes through it, sends,
//! indicates and asks itself, pauses and is detached; one that breaks a rule is caught.

use std::{
    ffi::c_void,
    ptr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_OBJECT_TYPE_OID_REQUEST, NDIS_OID_REQUEST, NDIS_REQUEST_TYPE, NDIS_STATUS,
    NDIS_STATUS_FAILURE, NDIS_STATUS_INDICATION, NDIS_STATUS_PAUSED, NET_BUFFER_LIST, NET_BUFFER_LIST_POOL_PARAMETERS,
    NET_DEVICE_PNP_EVENT, NdisAllocateMdl, NdisAllocateNetBufferAndNetBufferList, NdisAllocateNetBufferListPool,
    NdisFreeMdl, NdisFreeNetBufferList, NdisFreeNetBufferListPool, NdisSetOptionalHandlers, OID_GEN_VENDOR_ID, QUERY,
    REQUEST_DATA,
};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDK_VERSION, NET_PNP_EVENT_NOTIFICATION,
    status::{NDIS_STATUS_PENDING, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};
use rigs::machine;
use simulated_kernel::{Driver, DuringRun, Kernel, Nic, Rule, caught};
use wdk_sys::{
    NTSTATUS, PCUNICODE_STRING, PDRIVER_OBJECT, POOL_FLAG_NON_PAGED, PVOID,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag},
};

use crate::{
    miniport::{self, Handlers},
    protocols::{self, TO_ALL, TO_IT},
};

// The kit declares them, the crate `ndis` leaves them out: SoftNDK is no filter.
unsafe extern "system" {
    fn NdisFRegisterFilterDriver(
        object: PDRIVER_OBJECT,
        context: NDIS_HANDLE,
        characteristics: *const u64,
        place: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;
    fn NdisFDeregisterFilterDriver(handle: NDIS_HANDLE);
    fn NdisFSetAttributes(handle: NDIS_HANDLE, context: NDIS_HANDLE, attributes: *const u64) -> NDIS_STATUS;
    fn NdisFPauseComplete(handle: NDIS_HANDLE);
    fn NdisFRestartComplete(handle: NDIS_HANDLE, status: NDIS_STATUS);
    fn NdisFRestartFilter(handle: NDIS_HANDLE) -> NDIS_STATUS;
    fn NdisFSendNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, port: u32, flags: u32);
    fn NdisFSendNetBufferListsComplete(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32);
    fn NdisFCancelSendNetBufferLists(handle: NDIS_HANDLE, cancel: *mut c_void);
    fn NdisFIndicateReceiveNetBufferLists(
        handle: NDIS_HANDLE,
        first: *mut NET_BUFFER_LIST,
        port: u32,
        count: u32,
        flags: u32,
    );
    fn NdisFReturnNetBufferLists(handle: NDIS_HANDLE, first: *mut NET_BUFFER_LIST, flags: u32);
    fn NdisFOidRequest(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS;
    fn NdisFOidRequestComplete(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST, status: NDIS_STATUS);
    fn NdisFDirectOidRequest(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS;
    fn NdisFDirectOidRequestComplete(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST, status: NDIS_STATUS);
    fn NdisFCancelOidRequest(handle: NDIS_HANDLE, id: PVOID);
    fn NdisFCancelDirectOidRequest(handle: NDIS_HANDLE, id: PVOID);
    fn NdisAllocateCloneOidRequest(
        handle: NDIS_HANDLE,
        request: *const NDIS_OID_REQUEST,
        tag: u32,
        place: *mut *mut NDIS_OID_REQUEST,
    ) -> NDIS_STATUS;
    fn NdisFreeCloneOidRequest(handle: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST);
    fn NdisFIndicateStatus(handle: NDIS_HANDLE, indication: *const NDIS_STATUS_INDICATION);
    fn NdisFDevicePnPEventNotify(handle: NDIS_HANDLE, event: *mut NET_DEVICE_PNP_EVENT);
    fn NdisFNetPnPEvent(handle: NDIS_HANDLE, event: *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS;
}

/// A call of the kernel, right, or as wrong as the test wants it.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or are as wrong as the test wants.
        unsafe { $name($($argument),*) }
    }};
}

const TAG: u32 = u32::from_ne_bytes(*b"Filt");
const RESOURCES: u32 = 2;
const CONTEXT: usize = 0xF117;
const VENDOR: u32 = OID_GEN_VENDOR_ID;

/// What a filter has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Options,
    Attach,
    ModuleOptions,
    Restart,
    Pause(u32),
    Detach,
    Send(usize),
    Sent(NDIS_STATUS),
    Receive(u32),
    Returned,
    Cancel,
    Oid,
    Answer(NDIS_STATUS),
    CancelOid,
    Status(i32),
    Device(i32),
    Net(i32),
}

/// What a test can replace. The first argument is the module's handle, which is its context too.
#[derive(Clone, Copy)]
struct Does {
    attach: fn(NDIS_HANDLE, *const c_void) -> NDIS_STATUS,
    module_options: fn(NDIS_HANDLE) -> NDIS_STATUS,
    restart: fn(NDIS_HANDLE, *const c_void) -> NDIS_STATUS,
    pause: fn(NDIS_HANDLE) -> NDIS_STATUS,
    detach: fn(NDIS_HANDLE),
    send: fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32),
    sent: fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32),
    receive: fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32, u32),
    returned: fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32),
    oid: fn(NDIS_HANDLE, *mut NDIS_OID_REQUEST) -> NDIS_STATUS,
    answered: fn(NDIS_HANDLE, *mut NDIS_OID_REQUEST, NDIS_STATUS),
    status: fn(NDIS_HANDLE, *const NDIS_STATUS_INDICATION),
    /// Offsets of handlers that it has not.
    without: &'static [usize],
    deregisters: bool,
}

impl Default for Does {
    fn default() -> Self {
        Self {
            attach,
            module_options: |_| NDIS_STATUS_SUCCESS,
            restart: |_, _| NDIS_STATUS_SUCCESS,
            pause: |_| NDIS_STATUS_SUCCESS,
            detach,
            send: |module, list, flags| call!(NdisFSendNetBufferLists(module, list, 0, flags)),
            sent: |module, list, flags| {
                if !takes_back(module, list) {
                    call!(NdisFSendNetBufferListsComplete(module, list, flags));
                }
            },
            receive: |module, list, count, flags| {
                call!(NdisFIndicateReceiveNetBufferLists(module, list, 0, count, flags));
            },
            returned: |module, list, flags| {
                if !takes_back(module, list) {
                    call!(NdisFReturnNetBufferLists(module, list, flags));
                }
            },
            oid: pass_clone,
            answered: answer_original,
            status: |module, indication| call!(NdisFIndicateStatus(module, indication)),
            without: &[],
            deregisters: true,
        }
    }
}

/// What the filter keeps. Its code allocates nothing on a heap, where it would be the driver's.
struct World {
    does: Does,
    drivers: [NDIS_HANDLE; 2],
    count: usize,
    /// The module that was attached last, and its pool.
    module: NDIS_HANDLE,
    pool: NDIS_HANDLE,
    heard: [Option<Heard>; 512],
    noted: usize,
    kept: *mut NET_BUFFER_LIST,
    request: *mut NDIS_OID_REQUEST,
}

// SAFETY: handles and addresses, used by one thread at a time.
unsafe impl Send for World {}

static WORLD: DuringRun<Mutex<Option<World>>> = DuringRun::new(Mutex::new(None));

fn with<R>(work: impl FnOnce(&mut World) -> R) -> R {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    work(world.as_mut().expect("a scenario runs"))
}

fn note(heard: Heard) -> Does {
    with(|world| {
        if world.noted < world.heard.len() {
            world.heard[world.noted] = Some(heard);
            world.noted += 1;
        }
        world.does
    })
}

fn heard() -> Vec<Heard> {
    with(|world| {
        world.noted = 0;
        std::mem::replace(&mut world.heard, [None; 512]).into_iter().flatten().collect()
    })
}

fn prepare(does: Does) {
    let none = ptr::null_mut();
    let world = World {
        does,
        drivers: [none; 2],
        count: 0,
        module: none,
        pool: none,
        heard: [None; 512],
        noted: 0,
        kept: ptr::null_mut(),
        request: ptr::null_mut(),
    };
    *WORLD.lock().unwrap_or_else(PoisonError::into_inner) = Some(world);
}

fn characteristics(without: &[usize]) -> [u64; 28] {
    let handlers: [(usize, *const ()); 20] = [
        (64, on_options as *const ()),
        (72, on_module_options as *const ()),
        (80, on_attach as *const ()),
        (88, on_detach as *const ()),
        (96, on_restart as *const ()),
        (104, on_pause as *const ()),
        (112, on_send as *const ()),
        (120, on_sent as *const ()),
        (128, on_cancel as *const ()),
        (136, on_receive as *const ()),
        (144, on_returned as *const ()),
        (152, on_oid as *const ()),
        (160, on_answer as *const ()),
        (168, on_cancel_oid as *const ()),
        (176, on_device as *const ()),
        (184, on_net as *const ()),
        (192, on_status as *const ()),
        (200, on_direct_oid as *const ()),
        (208, on_direct_answer as *const ()),
        (216, on_cancel_direct_oid as *const ()),
    ];
    let mut characteristics = [0_u64; 28];
    characteristics[0] = u64::from_le_bytes([0x8B, 2, 224, 0, 6, 30, 1, 0]);
    for (offset, handler) in handlers {
        if !without.contains(&offset) {
            characteristics[offset / 8] = handler.addr() as u64;
        }
    }
    characteristics
}

unsafe extern "system" fn entry(object: PDRIVER_OBJECT, _: PCUNICODE_STRING) -> NTSTATUS {
    // SAFETY: the driver's own object.
    unsafe { (*object).DriverUnload = Some(unload) };
    let characteristics = characteristics(with(|world| world.does).without);
    let mut handle = ptr::null_mut();
    let context = ptr::without_provenance_mut(CONTEXT);
    let status = call!(NdisFRegisterFilterDriver(object, context, characteristics.as_ptr(), &raw mut handle));
    with(|world| {
        world.drivers[world.count] = handle;
        world.count += 1;
    });
    status.0
}

unsafe extern "C" fn unload(_: PDRIVER_OBJECT) {
    let (driver, deregisters) = with(|world| {
        world.count -= 1;
        (world.drivers[world.count], world.does.deregisters)
    });
    if deregisters {
        call!(NdisFDeregisterFilterDriver(driver));
    }
}

unsafe extern "system" fn on_options(_: NDIS_HANDLE, context: NDIS_HANDLE) -> NDIS_STATUS {
    assert_eq!(context.addr(), CONTEXT);
    note(Heard::Options);
    NDIS_STATUS_SUCCESS
}

unsafe extern "system" fn on_attach(module: NDIS_HANDLE, context: NDIS_HANDLE, parameters: *mut c_void) -> NDIS_STATUS {
    assert_eq!(context.addr(), CONTEXT);
    (note(Heard::Attach).attach)(module, parameters)
}

/// Looks at the parameters, says what the module is called, and makes a pool.
fn attach(module: NDIS_HANDLE, parameters: *const c_void) -> NDIS_STATUS {
    // SAFETY: NDIS's parameters, which have the hardware address there, and the medium.
    let (mac, medium) =
        unsafe { (parameters.byte_add(98).cast::<[u8; 6]>().read(), parameters.byte_add(72).cast::<u32>().read()) };
    assert_eq!((mac, medium), ([2, 0, 0, 0, 0, 1], 0));
    let status = set_attributes(module);
    if status != NDIS_STATUS_SUCCESS {
        return status;
    }
    let parameters = NET_BUFFER_LIST_POOL_PARAMETERS {
        Header: NET_BUFFER_LIST_POOL_PARAMETERS::HEADER,
        ProtocolId: 0,
        fAllocateNetBuffer: 1,
        ContextSize: 16,
        PoolTag: TAG,
        DataSize: 0,
    };
    let pool = call!(NdisAllocateNetBufferListPool(module, &raw const parameters));
    if pool.is_null() {
        return NDIS_STATUS_RESOURCES;
    }
    with(|world| (world.module, world.pool) = (module, pool));
    NDIS_STATUS_SUCCESS
}

fn set_attributes(module: NDIS_HANDLE) -> NDIS_STATUS {
    let attributes = u64::from_le_bytes([0x8D, 1, 8, 0, 0, 0, 0, 0]);
    call!(NdisFSetAttributes(module, module, &raw const attributes))
}

unsafe extern "system" fn on_detach(module: NDIS_HANDLE) {
    (note(Heard::Detach).detach)(module);
}

fn detach(module: NDIS_HANDLE) {
    let pool = with(|world| (world.module == module).then_some(world.pool));
    if let Some(pool) = pool {
        call!(NdisFreeNetBufferListPool(pool));
    }
}

unsafe extern "system" fn on_module_options(module: NDIS_HANDLE) -> NDIS_STATUS {
    (note(Heard::ModuleOptions).module_options)(module)
}

unsafe extern "system" fn on_restart(module: NDIS_HANDLE, parameters: *mut c_void) -> NDIS_STATUS {
    // SAFETY: NDIS's parameters, which have a list of attributes there: the MTU is behind their head and header.
    let mtu = unsafe { parameters.byte_add(16).cast::<*const u32>().read().byte_add(20).read() };
    assert!(mtu >= 1500, "{mtu}");
    (note(Heard::Restart).restart)(module, parameters)
}

unsafe extern "system" fn on_pause(module: NDIS_HANDLE, parameters: *mut c_void) -> NDIS_STATUS {
    // SAFETY: NDIS's parameters, which have the reason there.
    let reason = unsafe { parameters.byte_add(8).cast::<u32>().read() };
    (note(Heard::Pause(reason)).pause)(module)
}

fn length(first: *mut NET_BUFFER_LIST) -> usize {
    let (mut list, mut count) = (first, 0);
    while !list.is_null() {
        // SAFETY: a list that the filter has.
        list = unsafe { (*list).Next };
        count += 1;
    }
    count
}

unsafe extern "system" fn on_send(module: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _: u32, flags: u32) {
    (note(Heard::Send(length(list))).send)(module, list, flags);
}

unsafe extern "system" fn on_sent(module: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, flags: u32) {
    // SAFETY: a list that the filter has.
    let status = unsafe { (*list).Status };
    (note(Heard::Sent(status)).sent)(module, list, flags);
}

unsafe extern "system" fn on_cancel(module: NDIS_HANDLE, cancel: *mut c_void) {
    note(Heard::Cancel);
    call!(NdisFCancelSendNetBufferLists(module, cancel));
}

unsafe extern "system" fn on_receive(module: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _: u32, count: u32, flags: u32) {
    assert_eq!(length(list), count as usize);
    (note(Heard::Receive(flags & RESOURCES)).receive)(module, list, count, flags);
}

unsafe extern "system" fn on_returned(module: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, flags: u32) {
    (note(Heard::Returned).returned)(module, list, flags);
}

/// Frees a list if it is the filter's own. A chain here is of one kind.
fn takes_back(module: NDIS_HANDLE, list: *mut NET_BUFFER_LIST) -> bool {
    // SAFETY: a list that the filter has.
    let is_own = unsafe { (*list).SourceHandle } == module;
    if is_own {
        free(list);
    }
    is_own
}

/// A list of the filter's own, whose context has the block and the MDL of its frame. Null if there is no memory.
fn own_list(bytes: &[u8; 60]) -> *mut NET_BUFFER_LIST {
    let (pool, module) = with(|world| (world.pool, world.module));
    let block = call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, 60, TAG));
    if block.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: a new block of as many bytes.
    unsafe { block.cast::<[u8; 60]>().write(*bytes) };
    let mdl = call!(NdisAllocateMdl(module, block, 60));
    if mdl.is_null() {
        call!(ExFreePoolWithTag(block, TAG));
        return ptr::null_mut();
    }
    let list = call!(NdisAllocateNetBufferAndNetBufferList(pool, 16, 0, mdl, 0, 60));
    if list.is_null() {
        call!(NdisFreeMdl(mdl));
        call!(ExFreePoolWithTag(block, TAG));
        return list;
    }
    // SAFETY: the list was just made, and its context has room for two addresses.
    unsafe {
        (*list).SourceHandle = module;
        (*list).Context.cast::<PVOID>().write(block);
        (*list).Context.cast::<PVOID>().add(1).write(mdl.cast());
    }
    list
}

fn free(list: *mut NET_BUFFER_LIST) {
    // SAFETY: what the filter has put there.
    let (block, mdl) = unsafe {
        let context = (*list).Context.cast::<PVOID>();
        (context.read(), context.add(1).read())
    };
    call!(NdisFreeNetBufferList(list));
    call!(NdisFreeMdl(mdl.cast()));
    call!(ExFreePoolWithTag(block, TAG));
}

fn module() -> NDIS_HANDLE {
    with(|world| world.module)
}

fn send_own() {
    call!(NdisFSendNetBufferLists(module(), own_list(&TO_ALL), 0, 0));
}

fn indicate_own(flags: u32) -> *mut NET_BUFFER_LIST {
    let list = own_list(&TO_IT);
    call!(NdisFIndicateReceiveNetBufferLists(module(), list, 0, 1, flags));
    list
}

unsafe extern "system" fn on_oid(module: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    (note(Heard::Oid).oid)(module, request)
}

/// Makes a clone that knows what it is a clone of.
fn clone(module: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> Result<*mut NDIS_OID_REQUEST, NDIS_STATUS> {
    let mut clone = ptr::null_mut();
    match call!(NdisAllocateCloneOidRequest(module, request, TAG, &raw mut clone)) {
        NDIS_STATUS_SUCCESS => {
            // SAFETY: the clone was just made, and that field is the filter's.
            unsafe { (&raw mut (*clone).SourceReserved).cast::<*mut NDIS_OID_REQUEST>().write_unaligned(request) };
            Ok(clone)
        }
        status => Err(status),
    }
}

fn pass_clone(module: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let clone = match clone(module, request) {
        Ok(clone) => clone,
        Err(status) => return status,
    };
    match call!(NdisFOidRequest(module, clone)) {
        NDIS_STATUS_PENDING => {}
        status => answer_original(module, clone, status),
    }
    NDIS_STATUS_PENDING
}

unsafe extern "system" fn on_answer(module: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST, status: NDIS_STATUS) {
    (note(Heard::Answer(status)).answered)(module, request, status);
}

/// Copies the answer into the original, and frees the clone.
fn finish_clone(module: NDIS_HANDLE, clone: *mut NDIS_OID_REQUEST) -> *mut NDIS_OID_REQUEST {
    // SAFETY: the clone is the filter's again, and knows the original, which the filter has. One arm has the place of the others.
    let original = unsafe {
        let original = (&raw const (*clone).SourceReserved).cast::<*mut NDIS_OID_REQUEST>().read_unaligned();
        if !original.is_null() {
            (*original).DATA = (*clone).DATA;
        }
        original
    };
    if !original.is_null() {
        call!(NdisFreeCloneOidRequest(module, clone));
    }
    original
}

fn answer_original(module: NDIS_HANDLE, clone: *mut NDIS_OID_REQUEST, status: NDIS_STATUS) {
    let original = finish_clone(module, clone);
    if !original.is_null() {
        call!(NdisFOidRequestComplete(module, original, status));
    }
}

unsafe extern "system" fn on_cancel_oid(module: NDIS_HANDLE, id: PVOID) {
    note(Heard::CancelOid);
    call!(NdisFCancelOidRequest(module, id));
}

unsafe extern "system" fn on_direct_oid(module: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    note(Heard::Oid);
    let clone = match clone(module, request) {
        Ok(clone) => clone,
        Err(status) => return status,
    };
    match call!(NdisFDirectOidRequest(module, clone)) {
        NDIS_STATUS_PENDING => NDIS_STATUS_PENDING,
        status => {
            finish_clone(module, clone);
            status
        }
    }
}

unsafe extern "system" fn on_direct_answer(module: NDIS_HANDLE, clone: *mut NDIS_OID_REQUEST, status: NDIS_STATUS) {
    note(Heard::Answer(status));
    let original = finish_clone(module, clone);
    call!(NdisFDirectOidRequestComplete(module, original, status));
}

unsafe extern "system" fn on_cancel_direct_oid(module: NDIS_HANDLE, id: PVOID) {
    note(Heard::CancelOid);
    call!(NdisFCancelDirectOidRequest(module, id));
}

unsafe extern "system" fn on_device(module: NDIS_HANDLE, event: *mut NET_DEVICE_PNP_EVENT) {
    // SAFETY: NDIS's event, which lives until the call returns.
    note(Heard::Device(unsafe { (*event).DevicePnPEvent.0 }));
    call!(NdisFDevicePnPEventNotify(module, event));
}

unsafe extern "system" fn on_net(module: NDIS_HANDLE, event: *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS {
    // SAFETY: NDIS's event, which lives until the call returns.
    note(Heard::Net(unsafe { (*event).NetPnPEvent.NetEvent.0 }));
    call!(NdisFNetPnPEvent(module, event))
}

unsafe extern "system" fn on_status(module: NDIS_HANDLE, indication: *const NDIS_STATUS_INDICATION) {
    // SAFETY: NDIS's indication, which lives until the call returns.
    let code = unsafe { (*indication).StatusCode.0 };
    (note(Heard::Status(code)).status)(module, indication);
}

/// A request for a number.
fn request(number: *mut u32) -> NDIS_OID_REQUEST {
    let query = QUERY {
        Oid: VENDOR,
        InformationBuffer: number.cast(),
        InformationBufferLength: 4,
        BytesWritten: 0,
        BytesNeeded: 0,
    };
    // SAFETY: every field of the structure may be zero.
    let mut request: NDIS_OID_REQUEST = unsafe { std::mem::zeroed() };
    let size = u16::try_from(size_of::<NDIS_OID_REQUEST>()).expect("small");
    request.Header = NDIS_OBJECT_HEADER { Type: NDIS_OBJECT_TYPE_OID_REQUEST, Revision: 1, Size: size };
    request.RequestType = NDIS_REQUEST_TYPE::QUERY_INFORMATION;
    request.DATA = REQUEST_DATA { QUERY_INFORMATION: query };
    request
}

/// A miniport with an adapter, and a filter and a protocol above it. What the filter has heard.
fn run_seeded(
    seed: u64,
    handlers: Handlers,
    does: Does,
    work: impl FnOnce(&Kernel, &Nic, &Driver, &Driver, &Driver),
) -> Vec<Heard> {
    let kernel = Kernel::seeded(seed).hang_limit(Duration::from_secs(2)).start();
    miniport::prepare(Handlers { oid: protocols::answer, ..handlers });
    protocols::prepare(protocols::Does::default());
    prepare(does);
    let mini = kernel.load("mini", miniport::driver_entry).expect("the miniport loads");
    let filter = kernel.load("filter", entry).expect("the filter loads");
    let protocol = kernel.load("proto", protocols::entry).expect("the protocol loads");
    let nic = mini.add_nic(&[("Test", "42")]).expect("the adapter starts");
    work(&kernel, &nic, &mini, &filter, &protocol);
    nic.remove();
    protocol.unload();
    filter.unload();
    mini.unload();
    heard()
}

fn run(does: Does, work: impl FnOnce(&Kernel, &Nic, &Driver, &Driver, &Driver)) -> Vec<Heard> {
    run_seeded(1, Handlers::default(), does, work)
}

/// Of what was heard, where a module is in its life.
fn life(heard: &[Heard]) -> Vec<Heard> {
    let is_life = |heard: &Heard| matches!(heard, Heard::Attach | Heard::Restart | Heard::Pause(_) | Heard::Detach);
    heard.iter().copied().filter(is_life).collect()
}

#[test]
fn a_filter_is_attached_paused_restarted_and_detached() {
    for seed in 0..20 {
        let heard = run_seeded(seed, Handlers::default(), Does::default(), |_, nic, _, _, _| {
            nic.pause();
            nic.restart().expect("it restarts");
        });
        assert_eq!(heard[..4], [Heard::Options, Heard::Attach, Heard::ModuleOptions, Heard::Restart], "seed {seed}");
        let expected =
            [Heard::Attach, Heard::Restart, Heard::Pause(1), Heard::Restart, Heard::Pause(128), Heard::Detach];
        assert_eq!(life(&heard), expected, "seed {seed}");
    }
}

#[test]
fn a_filter_comes_and_goes_while_frames_pass() {
    for seed in 0..20 {
        let kernel = Kernel::seeded(seed).hang_limit(Duration::from_secs(2)).start();
        miniport::prepare(Handlers { oid: protocols::answer, ..Handlers::default() });
        protocols::prepare(protocols::Does::default());
        let mini = kernel.load("mini", miniport::driver_entry).expect("the miniport loads");
        let protocol = kernel.load("proto", protocols::entry).expect("the protocol loads");
        let nic = mini.add_nic(&[]).expect("the adapter starts");
        protocol.run(|| protocols::listen(9));
        for _ in 0..3 {
            prepare(Does::default());
            let filter = kernel.load("filter", entry).expect("the filter loads");
            for _ in 0..5 {
                let outcomes = nic.send(&[&TO_ALL, &TO_IT]).wait();
                assert!(outcomes.iter().all(|status| [NDIS_STATUS_SUCCESS, NDIS_STATUS_PAUSED].contains(status)));
            }
            kernel.wait_until(|| with(|world| world.heard.contains(&Some(Heard::Restart))));
            assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
            assert!(mini.run(|| miniport::receive(&TO_IT)));
            filter.unload();
            let heard = heard();
            let expected = [Heard::Attach, Heard::Restart, Heard::Pause(0x20), Heard::Detach];
            assert_eq!(life(&heard), expected, "seed {seed}: {heard:?}");
            assert!(heard.contains(&Heard::Receive(0)), "seed {seed}: {heard:?}");
            assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
            assert_eq!(protocols::received(), [TO_IT], "seed {seed}");
        }
        nic.remove();
        protocol.unload();
        mini.unload();
    }
}

#[test]
fn a_filter_that_leaves_at_once_is_not_attached_any_more() {
    for seed in 0..20 {
        let kernel = Kernel::seeded(seed).hang_limit(Duration::from_secs(2)).start();
        miniport::prepare(Handlers::default());
        let mini = kernel.load("mini", miniport::driver_entry).expect("the miniport loads");
        let nic = mini.add_nic(&[]).expect("the adapter starts");
        for _ in 0..3 {
            prepare(Does::default());
            kernel.load("filter", entry).expect("the filter loads").unload();
            let heard = heard();
            let ends = [Heard::Attach, Heard::Detach].map(|end| heard.iter().filter(|&&one| one == end).count());
            assert_eq!(ends[0], ends[1], "seed {seed}: {heard:?}");
        }
        nic.pause();
        nic.restart().expect("it restarts");
        nic.remove();
        mini.unload();
    }
}

#[test]
fn frames_pass_through_a_filter_both_ways() {
    let heard = run(Does::default(), |_, nic, mini, _, protocol| {
        heard();
        protocol.run(|| protocols::send(&TO_ALL));
        assert_eq!(protocols::sent(), [NDIS_STATUS_SUCCESS]);
        assert_eq!(nic.send_lists(&[vec![&TO_ALL, &TO_IT], vec![&TO_IT]]).wait(), [NDIS_STATUS_SUCCESS; 2]);
        let sent = Heard::Sent(NDIS_STATUS_SUCCESS);
        assert_eq!(heard(), [Heard::Send(1), sent, Heard::Send(2), sent], "a chain stays one");
        protocol.run(|| protocols::listen(9));
        heard();
        assert!(mini.run(|| miniport::receive(&TO_IT)));
        assert_eq!(protocols::received(), [TO_IT]);
        assert_eq!(heard(), [Heard::Receive(0), Heard::Returned]);
        let lent = mini.run(|| miniport::make_list(&TO_ALL));
        mini.run(|| {
            miniport::indicate(lent, RESOURCES);
            miniport::free_list(lent);
        });
        assert_eq!(heard(), [Heard::Receive(RESOURCES)]);
        assert_eq!((protocols::received().len(), nic.take_received().len()), (1, 2));
        nic.cancel_sends(7);
    });
    assert!(heard.contains(&Heard::Cancel));
}

#[test]
fn a_filter_is_passed_by_where_it_has_no_handler() {
    let without: &[usize] = &[112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216];
    let heard = run(Does { without, ..Does::default() }, |_, nic, mini, _, protocol| {
        protocol.run(|| protocols::listen(9));
        assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
        assert!(mini.run(|| miniport::receive(&TO_IT)));
        assert_eq!(protocols::received(), [TO_IT]);
        assert_eq!(nic.query(VENDOR, 4).status, NDIS_STATUS_SUCCESS);
        nic.cancel_sends(7);
    });
    assert_eq!(life(&heard).len() + 2, heard.len(), "its options beside: {heard:?}");
}

#[test]
fn a_filter_without_completions_hears_of_none() {
    let without: &[usize] = &[120, 144];
    let heard = run(Does { without, ..Does::default() }, |_, nic, mini, _, _| {
        assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
        assert!(mini.run(|| miniport::receive(&TO_IT)));
    });
    assert!(heard.contains(&Heard::Send(1)) && heard.contains(&Heard::Receive(0)));
}

#[test]
fn a_filter_has_frames_of_its_own() {
    run(Does::default(), |_, nic, _, filter, protocol| {
        protocol.run(|| protocols::listen(9));
        heard();
        filter.run(send_own);
        assert_eq!(heard(), [Heard::Sent(NDIS_STATUS_SUCCESS)], "it does not go through the filter itself");
        filter.run(|| indicate_own(0));
        assert_eq!(heard(), [Heard::Returned]);
        nic.keep_received(true);
        filter.run(|| indicate_own(0));
        assert_eq!((heard(), nic.give_back()), (Vec::new(), 1));
        assert_eq!(heard(), [Heard::Returned]);
        nic.keep_received(false);
        filter.run(|| free(indicate_own(RESOURCES)));
        assert_eq!((protocols::received(), nic.take_received().len()), (vec![TO_IT; 3], 3));
    });
}

#[test]
fn two_filters_are_above_each_other() {
    let kernel = Kernel::seeded(1).start();
    miniport::prepare(Handlers { oid: protocols::answer, ..Handlers::default() });
    prepare(Does::default());
    let mini = kernel.load("mini", miniport::driver_entry).expect("the miniport loads");
    let nic = mini.add_nic(&[]).expect("the adapter starts");
    // The lower one has no pool to free: only the module that came last has.
    with(|world| world.does.attach = |module, _| set_attributes(module));
    let lower = kernel.load("lower", entry).expect("it loads");
    kernel.wait_until(|| with(|world| world.heard.contains(&Some(Heard::Restart))));
    with(|world| world.does.attach = attach);
    let upper = kernel.load("upper", entry).expect("it loads");
    kernel.wait_until(|| with(|world| world.heard.iter().flatten().filter(|&&one| one == Heard::Restart).count() == 3));
    heard();
    assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
    let sent = Heard::Sent(NDIS_STATUS_SUCCESS);
    assert_eq!(heard(), [Heard::Send(1), Heard::Send(1), sent, sent]);
    assert!(mini.run(|| miniport::receive(&TO_IT)));
    assert_eq!(heard(), [Heard::Receive(0), Heard::Receive(0), Heard::Returned, Heard::Returned]);
    // What the upper one begins with goes through the lower one alone.
    upper.run(send_own);
    assert_eq!(heard(), [Heard::Send(1), sent, sent]);
    upper.run(|| indicate_own(0));
    assert_eq!(heard(), [Heard::Returned]);
    assert_eq!(nic.query(VENDOR, 4).status, NDIS_STATUS_SUCCESS);
    mini.run(|| miniport::indicate_status(miniport::with(|world| world.adapter)));
    let heard_of = heard();
    assert_eq!(heard_of.iter().filter(|heard| matches!(heard, Heard::Status(_))).count(), 2);
    assert_eq!(heard_of.iter().filter(|&&heard| heard == Heard::Oid).count(), 2);
    upper.unload();
    lower.unload();
    nic.remove();
    mini.unload();
}

#[test]
fn softndknic_passes_frames_and_opens_ndk_below_a_filter() {
    const COUNT: usize = 20;
    for seed in 0..3 {
        let kernel = Kernel::seeded(seed).start();
        prepare(Does { attach: |module, _| set_attributes(module), ..Does::default() });
        let filter = kernel.load("filter", entry).expect("the filter loads");
        machine::with_pair(&kernel, &[], |one, other| {
            let frames: Vec<_> = (0..COUNT).map(|number| machine::frame(one, other, number as u64, 200)).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            assert_eq!(one.send(&frames).wait(), [NDIS_STATUS_SUCCESS; COUNT]);
            kernel.wait_until(|| other.received() == COUNT);
            let opened = one.open_ndk(NDK_VERSION { Major: 2, Minor: 0 }).expect("it opens");
            one.pause();
            one.restart().expect("it restarts");
            one.close_ndk(opened);
        });
        filter.unload();
        let heard = heard();
        let count = |wanted| heard.iter().filter(|&&heard| heard == wanted).count();
        assert!(count(Heard::Send(COUNT)) == 1 && count(Heard::Receive(0)) > 0, "seed {seed}: {heard:?}");
        assert_eq!((count(Heard::Attach), count(Heard::Detach)), (2, 2), "seed {seed}");
    }
}

/// Keeps what it receives until it is paused.
fn keep(_: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _: u32, flags: u32) {
    assert_eq!(flags & RESOURCES, 0);
    with(|world| world.kept = list);
}

#[test]
fn a_filter_queues_and_a_pause_may_pend() {
    fn pause(module: NDIS_HANDLE) -> NDIS_STATUS {
        let kept = with(|world| std::mem::replace(&mut world.kept, ptr::null_mut()));
        if !kept.is_null() {
            call!(NdisFReturnNetBufferLists(module, kept, 0));
        }
        call!(NdisFPauseComplete(module));
        NDIS_STATUS_PENDING
    }
    fn restart(module: NDIS_HANDLE, _: *const c_void) -> NDIS_STATUS {
        call!(NdisFRestartComplete(module, NDIS_STATUS_SUCCESS));
        NDIS_STATUS_PENDING
    }
    run(Does { receive: keep, pause, restart, ..Does::default() }, |_, nic, mini, filter, _| {
        assert!(mini.run(|| miniport::receive(&TO_IT)));
        assert_eq!(nic.received(), 0);
        // It passes the frame on when it wants to.
        filter.run(|| call!(NdisFIndicateReceiveNetBufferLists(module(), with(|world| world.kept), 0, 1, 0)));
        assert_eq!(nic.received(), 1);
        with(|world| world.kept = ptr::null_mut());
        assert!(mini.run(|| miniport::receive(&TO_IT)));
        nic.pause();
        assert_eq!(miniport::with(|world| world.indicated), 0);
        assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_PAUSED]);
        nic.restart().expect("it restarts");
    });
}

/// How many bytes were written.
/// Passes what it is asked on, unless it is a state of power: for that there is no memory.
fn refuses_power(module: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: a request that is on its way; all of its kinds begin with the number.
    let oid = unsafe { (*request).DATA.QUERY_INFORMATION.Oid };
    if oid == ndis::OID_PNP_SET_POWER { NDIS_STATUS_RESOURCES } else { pass_clone(module, request) }
}

#[test]
fn a_filter_may_refuse_a_state_of_power_and_the_adapter_stays_awake() {
    let does = Does { oid: refuses_power, ..Does::default() };
    run(does, |_, nic, _, _, _| {
        assert_eq!(nic.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS_RESOURCES);
        assert!(heard().contains(&Heard::Restart), "the stack runs again");
        assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
        with(|world| world.does.oid = pass_clone);
        assert_eq!(nic.set_power(NDIS_DEVICE_POWER_STATE::D3).status, NDIS_STATUS_SUCCESS);
        with(|world| world.does.oid = refuses_power);
        assert_eq!(nic.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS_RESOURCES);
        with(|world| world.does.oid = pass_clone);
        assert_eq!(nic.set_power(NDIS_DEVICE_POWER_STATE::D0).status, NDIS_STATUS_SUCCESS);
        assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
    });
}

fn number_of(request: &NDIS_OID_REQUEST) -> u32 {
    // SAFETY: the request is a query.
    unsafe { request.DATA.QUERY_INFORMATION }.BytesWritten
}

#[test]
fn requests_pass_through_a_filter_and_it_asks_itself() {
    for seed in 0..20 {
        let mut power = Vec::new();
        let after = run_seeded(seed, Handlers::default(), Does::default(), |kernel, nic, mini, filter, protocol| {
            heard();
            let answer = nic.query(VENDOR, 4);
            assert_eq!((answer.status, answer.bytes.len()), (NDIS_STATUS_SUCCESS, 4));
            assert!(heard().contains(&Heard::Oid));
            assert_eq!(nic.query_directly(VENDOR, 4).status, NDIS_STATUS_SUCCESS);
            assert!(heard().contains(&Heard::Oid));
            protocol.run(|| protocols::listen(9));
            mini.run(|| miniport::indicate_status(miniport::with(|world| world.adapter)));
            assert_eq!(nic.take_statuses().len(), 1);
            for power in [NDIS_DEVICE_POWER_STATE::D3, NDIS_DEVICE_POWER_STATE::D0] {
                assert_eq!(nic.set_power(power).status, NDIS_STATUS_SUCCESS);
            }
            power = heard();
            assert!(
                protocols::heard().contains(&protocols::Heard::Event(0)),
                "seed {seed}: the filter passes power on"
            );
            for _ in 0..3 {
                heard();
                let mut number = 0;
                let mut own = request(&raw mut number);
                let status = filter.run(|| call!(NdisFOidRequest(module(), &raw mut own)));
                if status == NDIS_STATUS_PENDING {
                    let answer = Some(Heard::Answer(NDIS_STATUS_SUCCESS));
                    kernel.wait_until(|| with(|world| world.heard.contains(&answer)));
                }
                assert_eq!((number, number_of(&own)), (7, 4), "{status}");
                let status = filter.run(|| call!(NdisFDirectOidRequest(module(), &raw mut own)));
                assert_eq!(status, NDIS_STATUS_SUCCESS);
            }
        });
        for wanted in [Heard::Net(0), Heard::Device(5), Heard::Pause(2)] {
            assert!(power.contains(&wanted), "seed {seed}: no {wanted:?} in {power:?}");
        }
        for wanted in [Heard::Net(2), Heard::Device(0), Heard::Pause(128)] {
            assert!(after.contains(&wanted), "seed {seed}: no {wanted:?} in {after:?}");
        }
    }
}

#[test]
fn a_request_that_pends_is_cancelled_through_a_filter() {
    fn keeps(request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
        if miniport::asked(request).0 != VENDOR {
            return protocols::answer(request);
        }
        with(|world| world.request = request);
        NDIS_STATUS_PENDING
    }
    fn cancel() {
        let request = with(|world| std::mem::replace(&mut world.request, ptr::null_mut()));
        let adapter = miniport::with(|world| world.adapter);
        // SAFETY: the miniport has the request.
        unsafe { ndis::NdisMOidRequestComplete(adapter, request, NDIS_STATUS_FAILURE) };
    }
    for without in [&[] as &'static [usize], &[168]] {
        let kernel = Kernel::seeded(1).start();
        miniport::prepare(Handlers { oid: keeps, cancel_oid: cancel, ..Handlers::default() });
        prepare(Does { without, ..Does::default() });
        let mini = kernel.load("mini", miniport::driver_entry).expect("the miniport loads");
        let filter = kernel.load("filter", entry).expect("the filter loads");
        let nic = mini.add_nic(&[]).expect("the adapter starts");
        let pending = nic.begin_query(VENDOR, 4);
        kernel.wait_until(|| with(|world| !world.request.is_null()));
        pending.cancel();
        assert_eq!(pending.wait().status, NDIS_STATUS_FAILURE);
        assert_eq!(heard().contains(&Heard::CancelOid), without.is_empty());
        nic.remove();
        filter.unload();
        mini.unload();
    }
}

#[test]
fn a_stack_lives_on_without_a_filter_that_refuses() {
    let does = Does { attach: |_, _| NDIS_STATUS_RESOURCES, ..Does::default() };
    let heard = run(does, |_, nic, _, _, _| assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]));
    assert_eq!(life(&heard), [Heard::Attach]);
    let does = Does { restart: |_, _| NDIS_STATUS_FAILURE, ..Does::default() };
    let heard = run(does, |_, nic, _, _, _| assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]));
    assert_eq!(life(&heard), [Heard::Attach, Heard::Restart, Heard::Detach]);
}

#[test]
fn a_filter_changes_its_handlers_by_a_restart() {
    fn options(module: NDIS_HANDLE) -> NDIS_STATUS {
        let mut partial = [0_u64; 6];
        partial[0] = u64::from_le_bytes([0x8C, 1, 48, 0, 0, 0, 0, 0]);
        call!(NdisSetOptionalHandlers(module, partial.as_ptr().cast()))
    }
    run(Does::default(), |kernel, nic, _, filter, _| {
        assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
        assert!(heard().contains(&Heard::Send(1)));
        with(|world| world.does.module_options = options);
        assert_eq!(filter.run(|| call!(NdisFRestartFilter(module()))), NDIS_STATUS_SUCCESS);
        kernel.wait_until(|| with(|world| world.heard.contains(&Some(Heard::Restart))));
        assert_eq!(life(&heard()), [Heard::Pause(0x40), Heard::Restart]);
        assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
        assert!(heard().is_empty(), "it has no handlers for frames any more");
    });
}

#[test]
fn who_begins_to_send_while_it_is_paused_gets_the_list_back() {
    fn pause(_: NDIS_HANDLE) -> NDIS_STATUS {
        send_own();
        NDIS_STATUS_SUCCESS
    }
    let heard = run(Does { pause, ..Does::default() }, |_, nic, _, _, _| {
        heard();
        nic.pause();
        assert_eq!(heard(), [Heard::Pause(1), Heard::Sent(NDIS_STATUS_PAUSED)]);
        nic.restart().expect("it restarts");
    });
    assert!(heard.contains(&Heard::Sent(NDIS_STATUS_PAUSED)), "at the removal too");
}

#[test]
fn each_call_of_a_filter_fails_once() {
    fn scenario(kernel: &Kernel) {
        miniport::prepare(Handlers::default());
        prepare(Does::default());
        let Ok(mini) = kernel.load("mini", miniport::driver_entry) else { return };
        let Ok(filter) = kernel.load("filter", entry) else {
            mini.unload();
            return;
        };
        if let Ok(nic) = mini.add_nic(&[]) {
            assert_eq!(nic.send(&[&TO_ALL]).wait(), [NDIS_STATUS_SUCCESS]);
            let status = nic.query(VENDOR, 4).status;
            assert!([NDIS_STATUS_SUCCESS, NDIS_STATUS_RESOURCES].contains(&status));
            nic.remove();
        }
        filter.unload();
        mini.unload();
    }
    let kernel = Kernel::seeded(1).preemption(0).start();
    let failures = kernel.fail_each(1.., || scenario(&kernel));
    assert!(failures > 8, "{failures}: the miniport's, and the filter's registration, attributes, pool and clone");
}

/// Keeps what it is to send until the test ends.
const fn keep_sent(_: *mut NET_BUFFER_LIST) {}

/// Keeps what it is to send, of the filter.
fn keep_send(_: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, _: u32) {
    with(|world| world.kept = list);
}

/// The list that the filter keeps.
fn kept() -> *mut NET_BUFFER_LIST {
    with(|world| world.kept)
}

fn keeps_request(_: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    with(|world| world.request = request);
    NDIS_STATUS_PENDING
}

/// Tests of filters that break a rule.
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

type Five = (fn(&Kernel, &Nic, &Driver, &Driver, &Driver),);

const NOTHING: Five = (|_, _, _, _, _| (),);

rules! {
    an_attach_without_attributes breaks AttributeOrder with Handlers::default(), Does { attach: |_, _| NDIS_STATUS_SUCCESS, ..Does::default() }, by NOTHING.0;

    attributes_that_are_set_twice breaks AttributeOrder with Handlers::default(), Does {
        attach: |module, _| {
            assert_eq!(set_attributes(module), NDIS_STATUS_SUCCESS);
            set_attributes(module)
        },
        ..Does::default()
    }, by NOTHING.0;

    attributes_outside_of_the_attach breaks NdisPlace with Handlers::default(), Does::default(), by |_, _, _, filter, _| {
        let _ = filter.run(|| set_attributes(module()));
    };

    attributes_with_another_header breaks NdisHeader with Handlers::default(), Does {
        attach: |module, _| {
            let attributes = u64::from_le_bytes([0x8D, 2, 8, 0, 0, 0, 0, 0]);
            call!(NdisFSetAttributes(module, module, &raw const attributes))
        },
        ..Does::default()
    }, by NOTHING.0;

    an_attach_that_pends breaks BadArgument with Handlers::default(), Does {
        attach: |module, parameters| {
            assert_eq!(attach(module, parameters), NDIS_STATUS_SUCCESS);
            NDIS_STATUS_PENDING
        },
        ..Does::default()
    }, by NOTHING.0;

    an_attach_that_fails_and_leaves_a_pool breaks PoolLeak with Handlers::default(), Does {
        attach: |module, parameters| {
            assert_eq!(attach(module, parameters), NDIS_STATUS_SUCCESS);
            NDIS_STATUS_FAILURE
        },
        ..Does::default()
    }, by NOTHING.0;

    a_detach_that_leaves_a_pool breaks PoolLeak with Handlers::default(), Does { detach: |_| (), ..Does::default() }, by NOTHING.0;

    a_module_that_is_used_after_its_detach breaks BadHandle with Handlers::default(), Does::default(), by |_, nic, _, filter, _| {
        nic.pause();
        filter.run(|| call!(NdisFDeregisterFilterDriver(with(|world| world.drivers[0]))));
        let _ = filter.run(|| call!(NdisFRestartFilter(module())));
    };

    a_filter_that_stays_registered breaks ReferenceLeak with Handlers::default(), Does { deregisters: false, ..Does::default() }, by NOTHING.0;

    a_pause_that_is_refused breaks BadArgument with Handlers::default(), Does { pause: |_| NDIS_STATUS_FAILURE, ..Does::default() }, by NOTHING.0;

    a_pause_that_never_ends breaks PauseNeverCompleted with Handlers::default(), Does { receive: keep, pause: |_| NDIS_STATUS_PENDING, ..Does::default() }, by |_, nic, mini, _, _| {
        mini.run(|| miniport::receive(&TO_IT));
        nic.pause();
    };

    a_pause_that_ends_with_a_list_that_is_kept breaks PauseTooEarly with Handlers::default(), Does { receive: keep, ..Does::default() }, by |_, nic, mini, _, _| {
        mini.run(|| miniport::receive(&TO_IT));
        nic.pause();
    };

    a_pause_that_ends_with_an_own_list_on_its_way breaks PauseTooEarly with Handlers { send: keep_sent, ..Handlers::default() }, Does::default(), by |_, nic, _, filter, _| {
        filter.run(send_own);
        nic.pause();
    };

    a_pause_that_is_completed_twice breaks PauseTooEarly with Handlers::default(), Does {
        pause: |module| {
            call!(NdisFPauseComplete(module));
            NDIS_STATUS_SUCCESS
        },
        ..Does::default()
    }, by NOTHING.0;

    a_restart_that_never_ends breaks PauseNeverCompleted with Handlers::default(), Does { restart: |_, _| NDIS_STATUS_PENDING, ..Does::default() }, by NOTHING.0;

    a_restart_that_is_completed_twice breaks NdisPlace with Handlers::default(), Does {
        restart: |module, _| {
            call!(NdisFRestartComplete(module, NDIS_STATUS_SUCCESS));
            call!(NdisFRestartComplete(module, NDIS_STATUS_SUCCESS));
            NDIS_STATUS_PENDING
        },
        ..Does::default()
    }, by NOTHING.0;

    a_sent_list_that_is_kept breaks NblNeverCompleted with Handlers::default(), Does { send: keep_send, ..Does::default() }, by |_, nic, _, _, _| {
        let _ = nic.send(&[&TO_ALL]).wait();
    };

    a_list_that_is_sent_twice breaks NblNotOwned with Handlers { send: keep_sent, ..Handlers::default() }, Does {
        send: |module, list, flags| {
            call!(NdisFSendNetBufferLists(module, list, 0, flags));
            call!(NdisFSendNetBufferLists(module, list, 0, flags));
        },
        ..Does::default()
    }, by |_, nic, _, _, _| {
        let _ = nic.send(&[&TO_ALL]);
    };

    a_sent_list_that_is_indicated breaks NblNotOwned with Handlers { send: keep_sent, ..Handlers::default() }, Does { send: keep_send, ..Does::default() }, by |_, _, _, filter, protocol| {
        protocol.run(|| protocols::send(&TO_ALL));
        filter.run(|| {
            call!(NdisFSendNetBufferLists(module(), kept(), 0, 0));
            call!(NdisFIndicateReceiveNetBufferLists(module(), kept(), 0, 1, 0));
        });
    };

    a_list_that_is_completed_while_the_miniport_has_it breaks NblCompletedTwice with Handlers { send: keep_sent, ..Handlers::default() }, Does {
        send: |module, list, flags| {
            call!(NdisFSendNetBufferLists(module, list, 0, flags));
            call!(NdisFSendNetBufferListsComplete(module, list, 0));
        },
        ..Does::default()
    }, by |_, nic, _, _, _| {
        let _ = nic.send(&[&TO_ALL]);
    };

    an_own_list_that_is_completed breaks NblCompletedTwice with Handlers::default(), Does::default(), by |_, _, _, filter, _| {
        filter.run(|| call!(NdisFSendNetBufferListsComplete(module(), own_list(&TO_ALL), 0)));
    };

    a_sent_list_that_comes_back_changed breaks NblNotOwned with Handlers::default(), Does {
        sent: |module, list, flags| {
            // SAFETY: a list that the filter has, with a net buffer.
            unsafe { (*(*list).FirstNetBuffer).DataLength.DataLength -= 1 };
            call!(NdisFSendNetBufferListsComplete(module, list, flags));
        },
        ..Does::default()
    }, by |_, nic, _, _, _| {
        let _ = nic.send(&[&TO_ALL]).wait();
    };

    a_lent_list_that_is_changed breaks NblNotOwned with Handlers::default(), Does {
        receive: |_, list, _, _| {
            // SAFETY: a list that the filter has for the time of the call.
            unsafe { (*(*list).FirstNetBuffer).DataLength.DataLength -= 1 };
        },
        ..Does::default()
    }, by |_, _, mini, _, _| mini.run(|| miniport::indicate(miniport::make_list(&TO_IT), RESOURCES));

    a_lent_list_that_is_returned breaks NblNotOwned with Handlers::default(), Does {
        receive: |module, list, _, _| call!(NdisFReturnNetBufferLists(module, list, 0)),
        ..Does::default()
    }, by |_, _, mini, _, _| mini.run(|| miniport::indicate(miniport::make_list(&TO_IT), RESOURCES));

    a_lent_list_that_is_indicated_for_good breaks NblNotOwned with Handlers::default(), Does {
        receive: |module, list, count, _| call!(NdisFIndicateReceiveNetBufferLists(module, list, 0, count, 0)),
        ..Does::default()
    }, by |_, _, mini, _, _| mini.run(|| miniport::indicate(miniport::make_list(&TO_IT), RESOURCES));

    a_list_that_is_returned_twice breaks NblNotOwned with Handlers::default(), Does { receive: keep, ..Does::default() }, by |_, _, mini, filter, _| {
        mini.run(|| miniport::receive(&TO_IT));
        filter.run(|| {
            let list = kept();
            call!(NdisFIndicateReceiveNetBufferLists(module(), list, 0, 1, 0));
            call!(NdisFReturnNetBufferLists(module(), list, 0));
        });
    };

    a_send_while_paused breaks SentWhilePaused with Handlers::default(), Does::default(), by |_, nic, _, filter, _| {
        nic.pause();
        filter.run(send_own);
    };

    an_indication_while_paused breaks ReceivedWhilePaused with Handlers::default(), Does::default(), by |_, nic, _, filter, _| {
        nic.pause();
        let _ = filter.run(|| indicate_own(0));
    };

    a_send_without_the_handle_of_the_module breaks BadHandle with Handlers::default(), Does::default(), by |_, _, _, filter, _| {
        filter.run(|| {
            let list = own_list(&TO_ALL);
            // SAFETY: the filter's own list.
            unsafe { (*list).SourceHandle = ptr::null_mut() };
            call!(NdisFSendNetBufferLists(module(), list, 0, 0));
        });
    };

    an_own_list_without_a_handler_for_its_end breaks NdisHandler with Handlers::default(), Does { without: &[120], ..Does::default() }, by |_, _, _, filter, _| filter.run(send_own);

    an_indication_that_counts_wrong breaks BadArgument with Handlers::default(), Does::default(), by |_, _, _, filter, _| {
        filter.run(|| call!(NdisFIndicateReceiveNetBufferLists(module(), own_list(&TO_IT), 0, 2, 0)));
    };

    a_send_that_says_it_is_at_dispatch_level breaks BadArgument with Handlers::default(), Does::default(), by |_, _, _, filter, _| {
        filter.run(|| call!(NdisFSendNetBufferLists(module(), own_list(&TO_ALL), 0, 1)));
    };

    a_clone_that_is_not_freed breaks ReferenceLeak with Handlers::default(), Does {
        oid: |module, request| clone(module, request).map_or_else(|status| status, |_| NDIS_STATUS_FAILURE),
        ..Does::default()
    }, by |_, nic, _, _, _| {
        let _ = nic.query(VENDOR, 4);
    };

    a_clone_that_is_freed_twice breaks BadHandle with Handlers::default(), Does {
        oid: |module, request| {
            let clone = clone(module, request).expect("there is memory");
            call!(NdisFreeCloneOidRequest(module, clone));
            call!(NdisFreeCloneOidRequest(module, clone));
            NDIS_STATUS_FAILURE
        },
        ..Does::default()
    }, by |_, nic, _, _, _| {
        let _ = nic.query(VENDOR, 4);
    };

    a_request_that_is_passed_on_itself breaks NdisPlace with Handlers::default(), Does {
        oid: |module, request| call!(NdisFOidRequest(module, request)),
        ..Does::default()
    }, by |_, nic, _, _, _| {
        let _ = nic.query(VENDOR, 4);
    };

    a_request_that_is_completed_twice breaks OidCompletedTwice with Handlers::default(), Does {
        oid: |module, request| {
            call!(NdisFOidRequestComplete(module, request, NDIS_STATUS_FAILURE));
            NDIS_STATUS_FAILURE
        },
        ..Does::default()
    }, by |_, nic, _, _, _| {
        let _ = nic.query(VENDOR, 4);
    };

    a_request_that_is_never_completed breaks OidNeverCompleted with Handlers::default(), Does { oid: keeps_request, ..Does::default() }, by |_, nic, _, _, _| {
        let _ = nic.query(VENDOR, 4);
    };

    a_request_with_another_header breaks NdisHeader with Handlers::default(), Does::default(), by |_, _, _, filter, _| {
        filter.run(|| {
            let mut own = request(ptr::null_mut());
            own.Header.Type = 0;
            let _ = call!(NdisFOidRequest(module(), &raw mut own));
        });
    };

    a_request_of_another_module_that_is_completed breaks OidCompletedTwice with Handlers::default(), Does::default(), by |_, _, _, filter, _| {
        filter.run(|| {
            let mut own = request(ptr::null_mut());
            call!(NdisFOidRequestComplete(module(), &raw mut own, NDIS_STATUS_FAILURE));
        });
    };

    a_status_without_the_handle_of_a_driver_below breaks BadHandle with Handlers::default(), Does {
        status: |module, indication| {
            // SAFETY: NDIS's indication, which lives until the call returns.
            let mut changed = unsafe { indication.read() };
            changed.SourceHandle = ptr::null_mut();
            call!(NdisFIndicateStatus(module, &raw const changed));
        },
        ..Does::default()
    }, by |_, _, mini, _, _| mini.run(|| miniport::indicate_status(miniport::with(|world| world.adapter)));

    handlers_that_are_set_at_any_time breaks NdisPlace with Handlers::default(), Does::default(), by |_, _, _, filter, _| {
        let partial = [0_u64; 6];
        let _ = filter.run(|| call!(NdisSetOptionalHandlers(module(), partial.as_ptr().cast())));
    };
}
