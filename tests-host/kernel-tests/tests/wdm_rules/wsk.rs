//! Requests of programs that a driver gives to Winsock Kernel, which completes them.

use std::{
    net::SocketAddr,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst},
};

use ndis::{
    SOCK_DGRAM, WSK_BUF, WSK_CLIENT_DISPATCH, WSK_CLIENT_NPI, WSK_FLAG_DATAGRAM_SOCKET, WSK_NO_WAIT,
    WSK_PROVIDER_DATAGRAM_DISPATCH, WSK_PROVIDER_NPI, WSK_REGISTRATION, WSK_SOCKET, WSK_VERSION_1_0,
    WskCaptureProviderNPI, WskDeregister, WskRegister, WskReleaseProviderNPI,
};
use ndkpi::{AF_INET, NtStatus, SOCKADDR_INET};
use simulated_kernel::{DuringRun, Rule, caught};
use wdk_sys::{
    KEVENT, MDL, NTSTATUS, PDEVICE_OBJECT, PIRP, POOL_FLAG_NON_PAGED, PVOID, STATUS_CANCELLED, STATUS_SUCCESS,
    ntddk::{
        ExAllocatePool2, ExFreePoolWithTag, IoAllocateIrp, IoAllocateMdl, IoDeleteDevice, IoFreeIrp, IoFreeMdl,
        KeInitializeEvent, KeWaitForSingleObject, MmBuildMdlForNonPagedPool,
    },
};

use crate::{
    driver::{self, CODE, Parts, run},
    stacks::{self, set_completion},
};

const TAG: u32 = u32::from_ne_bytes(*b"Plai");
const ADDRESS: &str = "127.0.0.1:4791";

static REGISTRATION: DuringRun<AtomicPtr<WSK_REGISTRATION>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static SOCKET: DuringRun<AtomicPtr<WSK_SOCKET>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
/// The bytes of each request, and their MDL.
static BYTES: DuringRun<AtomicPtr<u8>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static BUFFER: DuringRun<AtomicPtr<MDL>> = DuringRun::new(AtomicPtr::new(ptr::null_mut()));
static CALLED: DuringRun<AtomicU32> = DuringRun::new(AtomicU32::new(0));

static DISPATCH: WSK_CLIENT_DISPATCH =
    WSK_CLIENT_DISPATCH { Version: WSK_VERSION_1_0, Reserved: 0, WskClientEvent: None };

/// A call of the kernel that needs nothing but live arguments.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments live until the call returns, and longer where the routine keeps them; or as wrong as the test wants it.
        unsafe { $name($($argument),*) }
    }};
}

fn block(size: usize) -> PVOID {
    call!(ExAllocatePool2(POOL_FLAG_NON_PAGED, size as u64, TAG))
}

fn free(block: PVOID) {
    call!(ExFreePoolWithTag(block, TAG));
}

/// A request of the driver's own. What it ends with.
fn ask(request: impl FnOnce(*mut ndis::IRP) -> NtStatus) -> usize {
    let (irp, event) = (call!(IoAllocateIrp(1, 0)), block(size_of::<KEVENT>()).cast::<KEVENT>());
    call!(KeInitializeEvent(event, 0, 0));
    set_completion(irp, Some(stacks::keep), event.cast());
    let _ = request(irp.cast());
    call!(KeWaitForSingleObject(event.cast(), 0, 0, 0, ptr::null_mut()));
    assert_eq!(driver::status(irp), STATUS_SUCCESS);
    // SAFETY: the IRP is the driver's again.
    let information = unsafe { (*irp).IoStatus.Information };
    call!(IoFreeIrp(irp));
    free(event.cast());
    usize::try_from(information).expect("a number")
}

fn functions() -> WSK_PROVIDER_DATAGRAM_DISPATCH {
    // SAFETY: the socket is open.
    let table = unsafe { (*SOCKET.load(SeqCst)).Dispatch };
    // SAFETY: that of a datagram socket.
    unsafe { table.cast::<WSK_PROVIDER_DATAGRAM_DISPATCH>().read() }
}

fn address() -> SOCKADDR_INET {
    ADDRESS.parse::<SocketAddr>().expect("an address").into()
}

/// A socket that sends to itself.
fn open(_: PDEVICE_OBJECT) {
    CALLED.store(0, SeqCst);
    let registration: *mut WSK_REGISTRATION = block(size_of::<WSK_REGISTRATION>()).cast();
    let client = WSK_CLIENT_NPI { ClientContext: ptr::null_mut(), Dispatch: &raw const DISPATCH };
    assert_eq!(call!(WskRegister(&raw const client, registration)), NtStatus::SUCCESS);
    REGISTRATION.store(registration, SeqCst);
    let mut npi = WSK_PROVIDER_NPI { Client: ptr::null_mut(), Dispatch: ptr::null() };
    assert_eq!(call!(WskCaptureProviderNPI(registration, WSK_NO_WAIT, &raw mut npi)), NtStatus::SUCCESS);
    // SAFETY: the table is static.
    let make = unsafe { (*npi.Dispatch).WskSocket }.expect("a function");
    let none = ptr::null_mut();
    let socket = ask(|irp| {
        let flags = WSK_FLAG_DATAGRAM_SOCKET;
        call!(make(npi.Client, AF_INET, SOCK_DGRAM, 17, flags, none, ptr::null(), none, none, none, irp))
    });
    SOCKET.store(ptr::with_exposed_provenance_mut(socket), SeqCst);
    let bind = functions().WskBind.expect("a function");
    let here = address();
    ask(|irp| call!(bind(SOCKET.load(SeqCst), here.as_ptr().cast_mut(), 0, irp)));
    let bytes = block(8);
    let mdl = call!(IoAllocateMdl(bytes, 8, 0, 0, ptr::null_mut()));
    call!(MmBuildMdlForNonPagedPool(mdl));
    BYTES.store(bytes.cast(), SeqCst);
    BUFFER.store(mdl, SeqCst);
}

/// The same, and requests for the device have a location for Winsock Kernel.
fn open_with_location(device: PDEVICE_OBJECT) {
    // SAFETY: the driver's device.
    unsafe { (*device).StackSize += 1 };
    open(device);
}

fn close(device: PDEVICE_OBJECT) {
    let close = functions().Basic.WskCloseSocket.expect("a function");
    ask(|irp| call!(close(SOCKET.load(SeqCst), irp)));
    let registration = REGISTRATION.load(SeqCst);
    call!(WskReleaseProviderNPI(registration));
    call!(WskDeregister(registration));
    call!(IoFreeMdl(BUFFER.load(SeqCst)));
    free(BYTES.load(SeqCst).cast());
    free(registration.cast());
    call!(IoDeleteDevice(device));
}

/// An even byte is sent, an odd one asks for a datagram.
fn give_away(irp: PIRP) -> NTSTATUS {
    // SAFETY: the request has a byte of input.
    let asks = unsafe { driver::buffer(irp).read() } % 2 == 1;
    let mut buffer = WSK_BUF { Mdl: BUFFER.load(SeqCst).cast(), Offset: 0, Length: 8 };
    let (place, none, irp) = (&raw mut buffer, ptr::null_mut(), irp.cast());
    let status = if asks {
        let receive = functions().WskReceiveFrom.expect("a function");
        call!(receive(SOCKET.load(SeqCst), place, 0, none, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), irp))
    } else {
        let (send, there) = (functions().WskSendTo.expect("a function"), address());
        call!(send(SOCKET.load(SeqCst), place, 0, there.as_ptr().cast_mut(), 0, ptr::null_mut(), irp))
    };
    status.to_bits().cast_signed()
}

/// Without a completion routine: what Winsock Kernel says is what the driver says.
fn plainly(_: PDEVICE_OBJECT, irp: PIRP) -> NTSTATUS {
    give_away(irp)
}

/// Lets the request go on, marked as pending if it was below.
unsafe extern "C" fn go_on(_: PDEVICE_OBJECT, irp: PIRP, _: PVOID) -> NTSTATUS {
    CALLED.fetch_add(1, SeqCst);
    // SAFETY: the routine has the IRP.
    if unsafe { (*irp).PendingReturned } != 0 {
        driver::mark(irp);
    }
    STATUS_SUCCESS
}

/// The same, but that is forgotten.
unsafe extern "C" fn forget(_: PDEVICE_OBJECT, _: PIRP, _: PVOID) -> NTSTATUS {
    STATUS_SUCCESS
}

const fn parts(load: fn(PDEVICE_OBJECT), control: fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS) -> Parts {
    Parts { load, control, unload: close, deletes_device: false, deletes_link: true }
}

#[test]
fn a_request_of_a_program_is_completed_by_winsock_kernel() {
    let with_routine = |_, irp| {
        set_completion(irp, Some(go_on), ptr::null_mut());
        give_away(irp)
    };
    for (control, called) in [(plainly as fn(PDEVICE_OBJECT, PIRP) -> NTSTATUS, 0), (with_routine, 13)] {
        run(parts(open_with_location, control), |_, _, file| {
            for _ in 0..6 {
                assert!(file.control(CODE, &[0], 0).is_success(), "it is sent");
                assert!(file.control(CODE, &[1], 0).is_success(), "and comes back");
            }
            let pending = file.begin(CODE, &[1], 0);
            pending.cancel();
            assert_eq!(pending.wait().status, STATUS_CANCELLED);
            assert_eq!(CALLED.load(SeqCst), called);
        });
    }
}

#[test]
fn a_request_without_a_location_for_winsock_kernel() {
    let test = concat!(module_path!(), "::a_request_without_a_location_for_winsock_kernel");
    caught(test, Rule::IrpStackLocations, || {
        run(parts(open, plainly), |_, _, file| drop(file.control(CODE, &[0], 0)));
    });
}

#[test]
fn a_completion_routine_that_does_not_mark_what_was_pending() {
    let test = concat!(module_path!(), "::a_completion_routine_that_does_not_mark_what_was_pending");
    let control = |_, irp| {
        set_completion(irp, Some(forget), ptr::null_mut());
        give_away(irp)
    };
    caught(test, Rule::IrpStatus, || {
        run(parts(open_with_location, control), |_, _, file| {
            (0..20).for_each(|_| drop(file.control(CODE, &[0], 0)));
        });
    });
}
