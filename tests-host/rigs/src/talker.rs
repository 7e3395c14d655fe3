//! A small KMDF driver that talks over Winsock Kernel as a program tells it by control codes: streams, and datagrams that it sends back.
//!
//! It has one socket of each kind at a time. Each control code waits for what it asks Winsock Kernel for.

use std::{
    ptr,
    sync::{Mutex, PoisonError},
};

use kernel::{
    Asking, DatagramSocket, WskProvider, unicode,
    wdf::{attributes, create_driver},
};
use ndis::{
    IPPROTO_TCP, PFN_WSK_CLOSE_SOCKET, SOCK_STREAM, WSK_BUF, WSK_BUF_LIST, WSK_FLAG_CONNECTION_SOCKET,
    WSK_FLAG_LISTEN_SOCKET, WSK_FLAG_WAITALL, WSK_NO_WAIT, WSK_PROVIDER_BASIC_DISPATCH,
    WSK_PROVIDER_CONNECTION_DISPATCH, WSK_PROVIDER_LISTEN_DISPATCH, WSK_SOCKET,
};
use ndkpi::{NtStatus, SOCKADDR_INET};
use simulated_kernel::DuringRun;
use wdk_sys::{
    _WDF_DRIVER_INIT_FLAGS, _WDF_EXECUTION_LEVEL, _WDF_IO_QUEUE_DISPATCH_TYPE, MDL, NTSTATUS, PCUNICODE_STRING,
    PDRIVER_OBJECT, POOL_FLAG_NON_PAGED, PVOID, PWDFDEVICE_INIT, WDF_DRIVER_CONFIG, WDF_IO_QUEUE_CONFIG, WDFDEVICE,
    WDFDRIVER, WDFQUEUE, WDFREQUEST, call_unsafe_wdf_function_binding,
    ntddk::{ExAllocatePool2, ExFreePoolWithTag, IoAllocateMdl, IoFreeMdl, MmBuildMdlForNonPagedPool},
};

use crate::{skeleton::complete, small_driver::size};

const TAG: u32 = u32::from_ne_bytes(*b"Talk");
/// Bytes of a request at most.
const ROOM: usize = 128 << 10;
/// The first of its control codes: the number of what it is asked for stands from bit 2 on.
const FIRST: u32 = 0x22_2000;

struct State {
    provider: Option<WskProvider>,
    /// One that listens, one that is connected.
    streams: [*mut WSK_SOCKET; 2],
    datagrams: Option<DatagramSocket>,
    /// What a close takes, there from the beginning: it cannot fail.
    closing: Option<Asking>,
}

// SAFETY: the sockets are used by one thread at a time.
unsafe impl Send for State {}

static STATE: DuringRun<Mutex<State>> =
    DuringRun::new(Mutex::new(State { provider: None, streams: [ptr::null_mut(); 2], datagrams: None, closing: None }));

/// Which of the two streams.
const LISTENER: usize = 0;
const CONNECTION: usize = 1;

fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    work(&mut STATE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn stream(which: usize) -> Result<*mut WSK_SOCKET, NtStatus> {
    let socket = with(|state| state.streams[which]);
    if socket.is_null() { Err(NtStatus::INVALID_DEVICE_STATE) } else { Ok(socket) }
}

/// The functions of a socket, whose table is that of its kind.
fn functions<T: Copy>(socket: *mut WSK_SOCKET) -> T {
    // SAFETY: a socket that is not closed.
    let table = unsafe { (*socket).Dispatch };
    // SAFETY: the table of its kind, as the caller says.
    unsafe { table.cast::<T>().read() }
}

/// Its entry.
///
/// # Safety
///
/// The arguments of `DriverEntry`.
pub unsafe extern "system" fn entry(driver: PDRIVER_OBJECT, path: PCUNICODE_STRING) -> NTSTATUS {
    let config = WDF_DRIVER_CONFIG {
        EvtDriverUnload: Some(unload),
        DriverInitFlags: _WDF_DRIVER_INIT_FLAGS::WdfDriverInitNonPnpDriver.cast_unsigned(),
        ..WDF_DRIVER_CONFIG::default()
    };
    // SAFETY: the arguments of this call.
    let driver = match unsafe { create_driver(driver, path, config, attributes()) } {
        Ok(driver) => driver,
        Err(status) => return status.0,
    };
    let had = Asking::try_new().and_then(|closing| Ok((closing, WskProvider::capture(WSK_NO_WAIT)?)));
    match had {
        Ok((closing, provider)) => with(|state| (state.closing, state.provider) = (Some(closing), Some(provider))),
        Err(status) => return status.to_bits().cast_signed(),
    }
    let status = create_device(driver);
    if status < 0 {
        close_all();
    }
    status
}

/// A string of the kernel's, which takes no memory that could not be there.
fn wide<const LENGTH: usize>(text: &[u8; LENGTH]) -> [u16; LENGTH] {
    text.map(u16::from)
}

fn create_device(driver: WDFDRIVER) -> NTSTATUS {
    let (access, name, link) = (wide(b"D:P(A;;GA;;;SY)"), wide(br"\Device\Talker"), wide(br"\DosDevices\Talker"));
    let (access, name, link) = (unicode(&access), unicode(&name), unicode(&link));
    // SAFETY: the driver is live, and the string lives until the call returns.
    let mut init: PWDFDEVICE_INIT =
        unsafe { call_unsafe_wdf_function_binding!(WdfControlDeviceInitAllocate, driver, &raw const access) };
    if init.is_null() {
        return wdk_sys::STATUS_INSUFFICIENT_RESOURCES;
    }
    // SAFETY: the structure was just made, and the string lives until the call returns.
    let named = unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitAssignName, init, &raw const name) };
    if named < 0 {
        // SAFETY: the structure was just made, and there is no device of it.
        unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitFree, init) };
        return named;
    }
    let mut attributes = attributes();
    attributes.ExecutionLevel = _WDF_EXECUTION_LEVEL::WdfExecutionLevelPassive;
    let mut device = ptr::null_mut();
    // SAFETY: the structures live until the call returns.
    let made = unsafe {
        call_unsafe_wdf_function_binding!(WdfDeviceCreate, &raw mut init, &raw mut attributes, &raw mut device)
    };
    if made < 0 {
        // SAFETY: the structure is the driver's still, for there is no device of it.
        unsafe { call_unsafe_wdf_function_binding!(WdfDeviceInitFree, init) };
        return made;
    }
    // SAFETY: the device is live, and the string lives until the call returns.
    let linked = unsafe { call_unsafe_wdf_function_binding!(WdfDeviceCreateSymbolicLink, device, &raw const link) };
    let made = if linked < 0 { linked } else { create_queue(device) };
    if made < 0 {
        // SAFETY: the device is live, and not used again.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, device.cast()) };
        return made;
    }
    // SAFETY: the device is complete.
    unsafe { call_unsafe_wdf_function_binding!(WdfControlFinishInitializing, device) };
    made
}

fn create_queue(device: WDFDEVICE) -> NTSTATUS {
    let mut config = WDF_IO_QUEUE_CONFIG {
        Size: size::<WDF_IO_QUEUE_CONFIG>(),
        DispatchType: _WDF_IO_QUEUE_DISPATCH_TYPE::WdfIoQueueDispatchSequential,
        DefaultQueue: 1,
        EvtIoDeviceControl: Some(control),
        ..WDF_IO_QUEUE_CONFIG::default()
    };
    let (none, mut queue) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the device is live, and the structures live until the call returns.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoQueueCreate, device, &raw mut config, none, &raw mut queue) }
}

unsafe extern "C" fn unload(_: WDFDRIVER) {
    close_all();
}

/// Closes what there is, and lets Winsock Kernel go.
fn close_all() {
    for which in [CONNECTION, LISTENER] {
        // There may be none.
        let _ = close(which);
    }
    let _ = close_datagrams();
    let left = with(|state| (state.closing.take(), state.provider.take()));
    drop(left);
}

/// Does something with what a close takes.
fn closing(work: impl FnOnce(&mut Asking)) {
    let mut closing = with(|state| state.closing.take()).expect("it is there while the driver is loaded");
    work(&mut closing);
    with(|state| state.closing = Some(closing));
}

unsafe extern "C" fn control(_: WDFQUEUE, request: WDFREQUEST, output: usize, input: usize, code: u32) {
    let mut places = [ptr::null_mut::<u8>(); 2];
    if input > 0 {
        // SAFETY: the framework's request, and a place that lives until the call returns.
        let found = unsafe {
            let place = (&raw mut places[0]).cast();
            call_unsafe_wdf_function_binding!(WdfRequestRetrieveInputBuffer, request, 1, place, ptr::null_mut())
        };
        assert_eq!(found, 0);
    }
    if output > 0 {
        // SAFETY: the framework's request, and a place that lives until the call returns.
        let found = unsafe {
            let place = (&raw mut places[1]).cast();
            call_unsafe_wdf_function_binding!(WdfRequestRetrieveOutputBuffer, request, 1, place, ptr::null_mut())
        };
        assert_eq!(found, 0);
    }
    let input = if input > 0 {
        // SAFETY: the request's buffer, which has as many bytes, and is written to when nobody reads it any more.
        unsafe { std::slice::from_raw_parts(places[0], input) }
    } else {
        &[]
    };
    let done = talk(code.wrapping_sub(FIRST) >> 2, input, output.min(ROOM));
    let (status, block) = done.map_or_else(|status| (status, None), |block| (NtStatus::SUCCESS, block));
    let count = block.as_ref().map_or(0, |block| block.buffer.Length);
    if let Some(block) = &block {
        // SAFETY: the request's buffer, which has room for all that was asked for, and a block with as many bytes.
        unsafe { places[1].copy_from_nonoverlapping(block.memory.cast(), count) };
    }
    drop(block);
    complete(request, status.to_bits().cast_signed(), count);
}

/// What a program asks for.
fn talk(number: u32, input: &[u8], room: usize) -> Result<Option<Block>, NtStatus> {
    match number {
        0 => listen(&address(input)?).map(nothing),
        1 => accept().map(nothing),
        2 => connect(&address(input)?).map(nothing),
        3 => send(input).map(nothing),
        4 => receive(room).map(Some),
        5 => end().map(nothing),
        6 => close(CONNECTION).map(nothing),
        7 => close(LISTENER).map(nothing),
        8 => bind(&address(input)?).map(nothing),
        9 => answer(room).map(Some),
        10 => close_datagrams().map(nothing),
        _ => Err(NtStatus::INVALID_DEVICE_REQUEST),
    }
}

const fn nothing(_: ()) -> Option<Block> {
    None
}

fn address(input: &[u8]) -> Result<SOCKADDR_INET, NtStatus> {
    let length = u32::try_from(input.len()).unwrap_or(u32::MAX);
    // SAFETY: the place has as many bytes as is said.
    unsafe { SOCKADDR_INET::read(input.as_ptr().cast(), length) }.ok_or(NtStatus::INVALID_PARAMETER)
}

/// Makes a stream's socket at that address.
fn make(at: &SOCKADDR_INET, flags: u32, asking: &mut Asking) -> Result<*mut WSK_SOCKET, NtStatus> {
    let (client, make) = with(|state| {
        let provider = state.provider.as_ref().expect("it is there while the driver is loaded");
        (provider.client(), provider.dispatch().WskSocket.expect("a function"))
    });
    let none = ptr::null_mut();
    // SAFETY: the provider is captured, and the one request gets the IRP.
    let made = unsafe {
        asking.ask(|irp| {
            make(client, at.family(), SOCK_STREAM, IPPROTO_TCP, flags, none, ptr::null(), none, none, none, irp)
        })
    }?;
    let socket: *mut WSK_SOCKET = ptr::with_exposed_provenance_mut(made);
    // Both kinds have the function at one place.
    let bind = functions::<WSK_PROVIDER_CONNECTION_DISPATCH>(socket).WskBind.expect("a function");
    // SAFETY: the socket is open, and the address lives until the request is complete.
    let bound = unsafe { asking.ask(|irp| bind(socket, at.as_ptr().cast_mut(), 0, irp)) };
    bound.map(|_| socket).inspect_err(|_| close_socket(socket, asking))
}

fn close_socket(socket: *mut WSK_SOCKET, asking: &mut Asking) {
    let close: PFN_WSK_CLOSE_SOCKET =
        functions::<WSK_PROVIDER_BASIC_DISPATCH>(socket).WskCloseSocket.expect("a function");
    // It is gone, whatever it says.
    // SAFETY: the socket is open, no call of its functions is in progress, and it is not used again.
    let _ = unsafe { asking.ask(|irp| close(socket, irp)) };
}

fn keep(which: usize, socket: *mut WSK_SOCKET, asking: &mut Asking) {
    let before = with(|state| std::mem::replace(&mut state.streams[which], socket));
    if !before.is_null() {
        close_socket(before, asking);
    }
}

fn listen(at: &SOCKADDR_INET) -> Result<(), NtStatus> {
    let mut asking = Asking::try_new()?;
    let socket = make(at, WSK_FLAG_LISTEN_SOCKET, &mut asking)?;
    keep(LISTENER, socket, &mut asking);
    Ok(())
}

fn accept() -> Result<(), NtStatus> {
    let (listener, mut asking) = (stream(LISTENER)?, Asking::try_new()?);
    let accept = functions::<WSK_PROVIDER_LISTEN_DISPATCH>(listener).WskAccept.expect("a function");
    let (none, nowhere) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the socket is open, and the one request gets the IRP.
    let came = unsafe { asking.ask(|irp| accept(listener, 0, none, ptr::null(), nowhere, nowhere, irp)) }?;
    keep(CONNECTION, ptr::with_exposed_provenance_mut(came), &mut asking);
    Ok(())
}

fn connect(to: &SOCKADDR_INET) -> Result<(), NtStatus> {
    let mut asking = Asking::try_new()?;
    let any: std::net::SocketAddr =
        if to.family() == ndkpi::AF_INET { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = make(&any.into(), WSK_FLAG_CONNECTION_SOCKET, &mut asking)?;
    let connect = functions::<WSK_PROVIDER_CONNECTION_DISPATCH>(socket).WskConnect.expect("a function");
    // SAFETY: the socket is open and bound, and the address lives until the request is complete.
    let connected = unsafe { asking.ask(|irp| connect(socket, to.as_ptr().cast_mut(), 0, irp)) };
    connected.inspect_err(|_| close_socket(socket, &mut asking))?;
    keep(CONNECTION, socket, &mut asking);
    Ok(())
}

fn send(bytes: &[u8]) -> Result<(), NtStatus> {
    let (socket, mut asking, mut block) = (stream(CONNECTION)?, Asking::try_new()?, Block::of(bytes)?);
    let send = functions::<WSK_PROVIDER_CONNECTION_DISPATCH>(socket).WskSend.expect("a function");
    // SAFETY: the socket is open, and the block stays until the request is complete.
    unsafe { asking.ask(|irp| send(socket, &raw mut block.buffer, 0, irp)) }.map(|_| ())
}

fn receive(room: usize) -> Result<Block, NtStatus> {
    let (socket, mut asking, mut block) = (stream(CONNECTION)?, Asking::try_new()?, Block::zeroed(room)?);
    let receive = functions::<WSK_PROVIDER_CONNECTION_DISPATCH>(socket).WskReceive.expect("a function");
    // SAFETY: as for `send`.
    let count = unsafe { asking.ask(|irp| receive(socket, &raw mut block.buffer, WSK_FLAG_WAITALL, irp)) }?;
    block.buffer.Length = count;
    Ok(block)
}

fn end() -> Result<(), NtStatus> {
    let (socket, mut asking) = (stream(CONNECTION)?, Asking::try_new()?);
    let disconnect = functions::<WSK_PROVIDER_CONNECTION_DISPATCH>(socket).WskDisconnect.expect("a function");
    // SAFETY: the socket is open, and the one request gets the IRP.
    unsafe { asking.ask(|irp| disconnect(socket, ptr::null_mut(), 0, irp)) }.map(|_| ())
}

fn close(which: usize) -> Result<(), NtStatus> {
    let socket = stream(which)?;
    with(|state| state.streams[which] = ptr::null_mut());
    closing(|asking| close_socket(socket, asking));
    Ok(())
}

fn bind(at: &SOCKADDR_INET) -> Result<(), NtStatus> {
    let at = at.to_socket_addr().ok_or(NtStatus::INVALID_PARAMETER)?;
    let mut asking = Asking::try_new()?;
    let provider = with(|state| state.provider.take()).expect("it is there while the driver is loaded");
    // SAFETY: without events there is no context, and the socket is closed before the provider goes.
    let opened = unsafe { DatagramSocket::open(&provider, &mut asking, at, None, ptr::null_mut()) };
    with(|state| state.provider = Some(provider));
    let opened = opened?;
    let before = with(|state| state.datagrams.replace(opened));
    if let Some(before) = before {
        // SAFETY: nobody calls its functions, and it is not used again.
        unsafe { before.close(&mut asking) };
    }
    Ok(())
}

/// Waits for a datagram, and sends it back.
fn answer(room: usize) -> Result<Block, NtStatus> {
    let socket = with(|state| state.datagrams).ok_or(NtStatus::INVALID_DEVICE_STATE)?;
    let (mut asking, mut block) = (Asking::try_new()?, Block::zeroed(room)?);
    let from = Block::zeroed(size_of::<SOCKADDR_INET>())?;
    let place: *mut SOCKADDR_INET = from.memory.cast();
    // SAFETY: the socket is open, and the blocks stay until the request is complete.
    let count = unsafe { asking.ask(|irp| socket.receive(&raw mut block.buffer, place, irp)) }?;
    block.buffer.Length = count;
    let WSK_BUF { Mdl, Offset, Length } = block.buffer;
    let mut list = WSK_BUF_LIST { Next: ptr::null_mut(), Buffer: WSK_BUF { Mdl, Offset, Length } };
    // SAFETY: as above; the list and the address stay too.
    unsafe { asking.ask(|irp| socket.send(&raw mut list, place, irp)) }?;
    Ok(block)
}

fn close_datagrams() -> Result<(), NtStatus> {
    let socket = with(|state| state.datagrams.take()).ok_or(NtStatus::INVALID_DEVICE_STATE)?;
    // SAFETY: nobody calls its functions, and it is not used again.
    closing(|asking| unsafe { socket.close(asking) });
    Ok(())
}

/// Bytes in the pool with their MDL.
struct Block {
    buffer: WSK_BUF,
    memory: PVOID,
    mdl: *mut MDL,
}

impl Block {
    fn of(bytes: &[u8]) -> Result<Self, NtStatus> {
        let block = Self::zeroed(bytes.len())?;
        // SAFETY: a new block with room for them.
        unsafe { block.memory.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(block)
    }

    fn zeroed(length: usize) -> Result<Self, NtStatus> {
        // One without bytes has a byte of memory.
        let size = u32::try_from(length.max(1)).unwrap_or(u32::MAX);
        // SAFETY: an allocation like any other.
        let memory = unsafe { ExAllocatePool2(POOL_FLAG_NON_PAGED, size.into(), TAG) };
        if memory.is_null() {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        // SAFETY: the block has as many bytes.
        let mdl = unsafe { IoAllocateMdl(memory, size, 0, 0, ptr::null_mut()) };
        if mdl.is_null() {
            // SAFETY: nobody has it.
            unsafe { ExFreePoolWithTag(memory, TAG) };
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        // SAFETY: the MDL describes a block of non-paged pool.
        unsafe { MmBuildMdlForNonPagedPool(mdl) };
        Ok(Self { buffer: WSK_BUF { Mdl: mdl.cast(), Offset: 0, Length: length }, memory, mdl })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the request that had it is complete.
        unsafe { IoFreeMdl(self.mdl) };
        // SAFETY: the request that had it is complete.
        unsafe { ExFreePoolWithTag(self.memory, TAG) };
    }
}
