//! Winsock Kernel: registration, capture of the provider and its functions, among them the control call that yields
//! `WSK_PROVIDER_NDK_DISPATCH` (`NDIS-NDK 8`).

use core::ffi::c_void;

use ndkpi::{NtStatus, WSK_CLIENT};

use crate::{
    IRP, PFN_WSK_FREE_ADDRESS_INFO, PFN_WSK_GET_ADDRESS_INFO, PFN_WSK_GET_NAME_INFO, PFN_WSK_SOCKET,
    PFN_WSK_SOCKET_CONNECT, layout,
};

/// Wait for the provider as long as it takes. Only where a hang is better than a failure.
pub const WSK_INFINITE_WAIT: u32 = 0xFFFF_FFFF;
/// Do not wait for the provider.
pub const WSK_NO_WAIT: u32 = 0;
/// Winsock Kernel 1.0, the version that clients ask for (`MAKE_WSK_VERSION(1, 0)`).
pub const WSK_VERSION_1_0: u16 = 0x0100;

/// Tells a client of an event.
pub type PFN_WSK_CLIENT_EVENT = unsafe extern "system" fn(
    ClientContext: *mut c_void,
    EventType: u32,
    Information: *mut c_void,
    InformationLength: usize,
) -> NtStatus;

/// Controls the client itself, not a socket. Without an IRP for the control codes that complete at once.
/// IRQL: `PASSIVE_LEVEL` for the one that yields NDK's functions.
pub type PFN_WSK_CONTROL_CLIENT = unsafe extern "system" fn(
    Client: *mut WSK_CLIENT,
    ControlCode: u32,
    InputSize: usize,
    InputBuffer: *mut c_void,
    OutputSize: usize,
    OutputBuffer: *mut c_void,
    OutputSizeReturned: *mut usize,
    Irp: *mut IRP,
) -> NtStatus;

/// What a client says of itself.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_CLIENT_DISPATCH {
    /// The version it asks for, [`WSK_VERSION_1_0`].
    pub Version: u16,
    /// Zero.
    pub Reserved: u16,
    /// Hears of events; may be null.
    pub WskClientEvent: Option<PFN_WSK_CLIENT_EVENT>,
}

layout!(WSK_CLIENT_DISPATCH: size 0x10, align 8, { Version @ 0x00, Reserved @ 0x02, WskClientEvent @ 0x08 });

/// A client, as it registers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_CLIENT_NPI {
    /// The client's context.
    pub ClientContext: *mut c_void,
    /// Must stay in place until the client has deregistered.
    pub Dispatch: *const WSK_CLIENT_DISPATCH,
}

layout!(WSK_CLIENT_NPI: size 0x10, align 8, { ClientContext @ 0x00, Dispatch @ 0x08 });

/// A registration: memory of the client that belongs to Winsock Kernel, zeroed at first.
#[derive(Debug)]
#[repr(C)]
pub struct WSK_REGISTRATION {
    /// Belongs to Winsock Kernel.
    pub ReservedRegistrationState: u64,
    /// Belongs to Winsock Kernel.
    pub ReservedRegistrationContext: *mut c_void,
    /// Belongs to Winsock Kernel.
    pub ReservedRegistrationLock: usize,
}

layout!(WSK_REGISTRATION: size 0x18, align 8, {
    ReservedRegistrationState @ 0x00,
    ReservedRegistrationContext @ 0x08,
    ReservedRegistrationLock @ 0x10,
});

/// The functions of Winsock Kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_DISPATCH {
    /// The version of the provider.
    pub Version: u16,
    /// Zero.
    pub Reserved: u16,
    /// Makes a socket.
    pub WskSocket: Option<PFN_WSK_SOCKET>,
    /// Makes a socket and connects it.
    pub WskSocketConnect: Option<PFN_WSK_SOCKET_CONNECT>,
    /// Controls the client.
    pub WskControlClient: Option<PFN_WSK_CONTROL_CLIENT>,
    /// Resolves a name.
    pub WskGetAddressInfo: Option<PFN_WSK_GET_ADDRESS_INFO>,
    /// Frees what that returned.
    pub WskFreeAddressInfo: Option<PFN_WSK_FREE_ADDRESS_INFO>,
    /// Resolves an address.
    pub WskGetNameInfo: Option<PFN_WSK_GET_NAME_INFO>,
}

layout!(WSK_PROVIDER_DISPATCH: size 0x38, align 8, {
    Version @ 0x00,
    Reserved @ 0x02,
    WskSocket @ 0x08,
    WskSocketConnect @ 0x10,
    WskControlClient @ 0x18,
    WskGetAddressInfo @ 0x20,
    WskFreeAddressInfo @ 0x28,
    WskGetNameInfo @ 0x30,
});

/// Winsock Kernel, as a client captures it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_NPI {
    /// The client, as it identifies itself in calls.
    pub Client: *mut WSK_CLIENT,
    /// The functions.
    pub Dispatch: *const WSK_PROVIDER_DISPATCH,
}

layout!(WSK_PROVIDER_NPI: size 0x10, align 8, { Client @ 0x00, Dispatch @ 0x08 });

#[cfg_attr(windows, link(name = "netio.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// Registers a client. IRQL: `PASSIVE_LEVEL`.
    pub fn WskRegister(WskClientNpi: *const WSK_CLIENT_NPI, WskRegistration: *mut WSK_REGISTRATION) -> NtStatus;

    /// Deregisters it, and waits until everything captured is released. IRQL: `PASSIVE_LEVEL`.
    pub fn WskDeregister(WskRegistration: *mut WSK_REGISTRATION);

    /// Captures Winsock Kernel; waits for it that many milliseconds, [`WSK_NO_WAIT`] or [`WSK_INFINITE_WAIT`].
    /// IRQL: `PASSIVE_LEVEL` if it may wait, `<= DISPATCH_LEVEL` if not.
    pub fn WskCaptureProviderNPI(
        WskRegistration: *mut WSK_REGISTRATION,
        WaitTimeout: u32,
        WskProviderNpi: *mut WSK_PROVIDER_NPI,
    ) -> NtStatus;

    /// Releases it, when nothing opened through it is open any more. IRQL <= `DISPATCH_LEVEL`.
    pub fn WskReleaseProviderNPI(WskRegistration: *mut WSK_REGISTRATION);
}
