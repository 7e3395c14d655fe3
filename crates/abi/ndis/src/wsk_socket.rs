//! Sockets of Winsock Kernel: datagram sockets. Those of streams are in [`wsk_stream`](crate::wsk_stream).
//!
//! Each request takes an IRP, which Winsock Kernel completes whatever becomes of the request, before the function returns or later, and
//! at any IRQL up to `DISPATCH_LEVEL`. An IRP of the client's own has a completion routine for every end, which keeps it.

use core::ffi::c_void;

use ndkpi::{GUID, MDL, NtStatus, SOCKADDR, WSK_CLIENT};

use crate::{ADDRINFOEXW, IRP, WSK_CLIENT_CONNECTION_DISPATCH, layout, open_enum};

/// Names an interface of the network: here that of Winsock Kernel itself, [`NPI_WSK_INTERFACE_ID`].
pub type NPIID = GUID;

/// The interface of Winsock Kernel: whose events [`WSK_EVENT_CALLBACK_CONTROL`] is about.
///
/// The kit's header declares it, and its import library has the value, which public sources of clients without that library repeat.
pub static NPI_WSK_INTERFACE_ID: NPIID = NPIID::from_u128(0x2227_E803_8D8B_11D4_ABAD_0090_2771_9E09);

/// Datagrams: the type of a socket.
pub const SOCK_DGRAM: u16 = 2;
/// The protocol of UDP.
pub const IPPROTO_UDP: u32 = 17;
/// The level of the options that are Winsock Kernel's own.
pub const SOL_SOCKET: u32 = 0xFFFF;

/// The datagram was longer than its buffer.
pub const MSG_TRUNC: u32 = 0x0100;
/// The control information was longer than its buffer.
pub const MSG_CTRUNC: u32 = 0x0200;

/// A socket that has options only.
pub const WSK_FLAG_BASIC_SOCKET: u32 = 0;
/// A socket that listens for connections.
pub const WSK_FLAG_LISTEN_SOCKET: u32 = 1;
/// A socket that is connected.
pub const WSK_FLAG_CONNECTION_SOCKET: u32 = 2;
/// A socket that sends and receives datagrams.
pub const WSK_FLAG_DATAGRAM_SOCKET: u32 = 4;
/// A socket that listens or is connected.
pub const WSK_FLAG_STREAM_SOCKET: u32 = 8;

/// A callback is called at `DISPATCH_LEVEL`. Without it, it may be as well.
pub const WSK_FLAG_AT_DISPATCH_LEVEL: u32 = 8;

/// The event of datagrams that have come.
pub const WSK_EVENT_RECEIVE_FROM: u32 = 0x0100;
/// The event that the mask names is disabled. One event at a time.
pub const WSK_EVENT_DISABLE: u32 = 0x8000_0000;
/// The option that enables and disables events. Its value is a [`WSK_EVENT_CALLBACK_CONTROL`].
pub const SO_WSK_EVENT_CALLBACK: u32 = 0x4002;
/// The client's control code that has events enabled on each of its sockets for good. Before the first one; without an IRP.
pub const WSK_SET_STATIC_EVENT_CALLBACKS: u32 = 7;

/// Only datagrams of that address come, and those without an address go there. Without input: no more.
pub const SIO_WSK_SET_REMOTE_ADDRESS: u32 = 0x8F00_0001;
/// Datagrams without an address go there. Without input: no more.
pub const SIO_WSK_SET_SENDTO_ADDRESS: u32 = 0x8F00_0006;

open_enum! {
    /// What is asked of `WskControlSocket`.
    WSK_CONTROL_SOCKET_TYPE {
        /// An option is set.
        SET_OPTION = 0, "WskSetOption";
        /// An option is asked for.
        GET_OPTION = 1, "WskGetOption";
        /// A control code.
        IOCTL = 2, "WskIoctl";
        /// The end of the others.
        MAX = 3, "WskControlMax";
    }
}

/// Bytes in a chain of MDLs, whose memory is locked or non-paged until the request is complete.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_BUF {
    /// The first MDL. May be null if there are no bytes.
    pub Mdl: *mut MDL,
    /// Bytes of the first MDL that come before: the first byte lies in it.
    pub Offset: u32,
    /// Bytes.
    pub Length: usize,
}

layout!(WSK_BUF: size 0x18, align 8, { Mdl @ 0x00, Offset @ 0x08, Length @ 0x10 });

/// Datagrams to send with one request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_BUF_LIST {
    /// The next one, or null.
    pub Next: *mut Self,
    /// This one.
    pub Buffer: WSK_BUF,
}

layout!(WSK_BUF_LIST: size 0x20, align 8, { Next @ 0x00, Buffer @ 0x08 });

/// What goes with a datagram beside its bytes: a head, and data behind it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CMSGHDR {
    /// Bytes, with the head.
    pub cmsg_len: usize,
    /// The protocol that it belongs to.
    pub cmsg_level: i32,
    /// What it is.
    pub cmsg_type: i32,
}

layout!(CMSGHDR: size 0x10, align 8, { cmsg_len @ 0x00, cmsg_level @ 0x08, cmsg_type @ 0x0C });

/// Room for an address of any family.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(clippy::pub_underscore_fields, reason = "names of C")]
pub struct SOCKADDR_STORAGE {
    /// The family.
    pub ss_family: u16,
    /// Of the address.
    pub __ss_pad1: [i8; 6],
    /// Of the address.
    pub __ss_align: i64,
    /// Of the address.
    pub __ss_pad2: [i8; 112],
}

layout!(SOCKADDR_STORAGE: size 0x80, align 8, {
    ss_family @ 0x00, __ss_pad1 @ 0x02, __ss_align @ 0x08, __ss_pad2 @ 0x10,
});

/// A datagram that has come. It is Winsock Kernel's: valid until the callback returns or, if that keeps the list, until
/// `WskRelease`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_DATAGRAM_INDICATION {
    /// The next one, or null.
    pub Next: *mut Self,
    /// Its bytes.
    pub Buffer: WSK_BUF,
    /// What came with it, or null.
    pub ControlInfo: *mut CMSGHDR,
    /// Bytes of that.
    pub ControlInfoLength: u32,
    /// Whose it is: an address of the socket's family.
    pub RemoteAddress: *mut SOCKADDR,
}

layout!(WSK_DATAGRAM_INDICATION: size 0x38, align 8, {
    Next @ 0x00, Buffer @ 0x08, ControlInfo @ 0x20, ControlInfoLength @ 0x28, RemoteAddress @ 0x30,
});

/// Which events are enabled or disabled.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_EVENT_CALLBACK_CONTROL {
    /// [`NPI_WSK_INTERFACE_ID`].
    pub NpiId: *const NPIID,
    /// The events, or one with [`WSK_EVENT_DISABLE`].
    pub EventMask: u32,
}

layout!(WSK_EVENT_CALLBACK_CONTROL: size 0x10, align 8, { NpiId @ 0x00, EventMask @ 0x08 });

/// A socket. It is Winsock Kernel's, until it is closed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_SOCKET {
    /// Its functions: a [`WSK_PROVIDER_DATAGRAM_DISPATCH`] of a datagram socket, and so on.
    pub Dispatch: *const c_void,
}

layout!(WSK_SOCKET: size 0x08, align 8, { Dispatch @ 0x00 });

/// Makes a socket; the IRP's `Information` is a pointer to it. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_SOCKET = unsafe extern "system" fn(
    Client: *mut WSK_CLIENT,
    AddressFamily: u16,
    SocketType: u16,
    Protocol: u32,
    Flags: u32,
    SocketContext: *mut c_void,
    Dispatch: *const c_void,
    OwningProcess: *mut c_void,
    OwningThread: *mut c_void,
    SecurityDescriptor: *mut c_void,
    Irp: *mut IRP,
) -> NtStatus;

/// Makes a socket, binds and connects it. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_SOCKET_CONNECT = unsafe extern "system" fn(
    Client: *mut WSK_CLIENT,
    SocketType: u16,
    Protocol: u32,
    LocalAddress: *mut SOCKADDR,
    RemoteAddress: *mut SOCKADDR,
    Flags: u32,
    SocketContext: *mut c_void,
    Dispatch: *const WSK_CLIENT_CONNECTION_DISPATCH,
    OwningProcess: *mut c_void,
    OwningThread: *mut c_void,
    SecurityDescriptor: *mut c_void,
    Irp: *mut IRP,
) -> NtStatus;

/// Sets or asks for an option, or does something else with a socket. The IRP is needed, may be or must not be there, by what is asked.
/// IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_CONTROL_SOCKET = unsafe extern "system" fn(
    Socket: *mut WSK_SOCKET,
    RequestType: WSK_CONTROL_SOCKET_TYPE,
    ControlCode: u32,
    Level: u32,
    InputSize: usize,
    InputBuffer: *mut c_void,
    OutputSize: usize,
    OutputBuffer: *mut c_void,
    OutputSizeReturned: *mut usize,
    Irp: *mut IRP,
) -> NtStatus;

/// Closes a socket. IRQL <= `DISPATCH_LEVEL`.
///
/// Requests that are out are cancelled; callbacks that run are waited for. No other call of the socket's functions is in progress, and lists
/// that were kept are released before.
pub type PFN_WSK_CLOSE_SOCKET = unsafe extern "system" fn(Socket: *mut WSK_SOCKET, Irp: *mut IRP) -> NtStatus;

/// Gives a socket its address. `Flags` are zero. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_BIND = unsafe extern "system" fn(
    Socket: *mut WSK_SOCKET,
    LocalAddress: *mut SOCKADDR,
    Flags: u32,
    Irp: *mut IRP,
) -> NtStatus;

/// Sends a datagram; the IRP's `Information` is its length. IRQL <= `DISPATCH_LEVEL`.
///
/// Without an address it goes to the fixed one. `Flags` are zero. MDLs and control information stay as they are until the IRP is complete.
pub type PFN_WSK_SEND_TO = unsafe extern "system" fn(
    Socket: *mut WSK_SOCKET,
    Buffer: *mut WSK_BUF,
    Flags: u32,
    RemoteAddress: *mut SOCKADDR,
    ControlInfoLength: u32,
    ControlInfo: *mut CMSGHDR,
    Irp: *mut IRP,
) -> NtStatus;

/// Sends several datagrams to one address, since Windows 8; the IRP's `Information` is the length of all.
/// IRQL <= `DISPATCH_LEVEL`: the reference names none.
pub type PFN_WSK_SEND_MESSAGES = unsafe extern "system" fn(
    Socket: *mut WSK_SOCKET,
    BufferList: *mut WSK_BUF_LIST,
    Flags: u32,
    RemoteAddress: *mut SOCKADDR,
    ControlInfoLength: u32,
    ControlInfo: *mut CMSGHDR,
    Irp: *mut IRP,
) -> NtStatus;

/// Receives a datagram; the IRP's `Information` is its length. All places stay until the IRP is complete. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_RECEIVE_FROM = unsafe extern "system" fn(
    Socket: *mut WSK_SOCKET,
    Buffer: *mut WSK_BUF,
    Flags: u32,
    RemoteAddress: *mut SOCKADDR,
    ControlLength: *mut u32,
    ControlInfo: *mut CMSGHDR,
    ControlFlags: *mut u32,
    Irp: *mut IRP,
) -> NtStatus;

/// Gives back a list of datagrams that a callback has kept: the whole, by its first. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_RELEASE_DATAGRAM_INDICATION_LIST =
    unsafe extern "system" fn(Socket: *mut WSK_SOCKET, DatagramIndication: *mut WSK_DATAGRAM_INDICATION) -> NtStatus;

/// Asks for the address of a socket that is bound. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_GET_LOCAL_ADDRESS =
    unsafe extern "system" fn(Socket: *mut WSK_SOCKET, LocalAddress: *mut SOCKADDR, Irp: *mut IRP) -> NtStatus;

/// Tells of datagrams that have come; null: the socket has to be closed. IRQL <= `DISPATCH_LEVEL`.
///
/// `STATUS_SUCCESS`: they were taken. `STATUS_PENDING`: the list is kept until `WskRelease`. `STATUS_DATA_NOT_ACCEPTED`: they are kept for
/// later, and the event is disabled unless it is static. Must not wait for requests of Winsock Kernel.
pub type PFN_WSK_RECEIVE_FROM_EVENT = unsafe extern "system" fn(
    SocketContext: *mut c_void,
    Flags: u32,
    DataIndication: *mut WSK_DATAGRAM_INDICATION,
) -> NtStatus;

/// Resolves a name. IRQL: `PASSIVE_LEVEL`.
pub type PFN_WSK_GET_ADDRESS_INFO = unsafe extern "system" fn(
    Client: *mut WSK_CLIENT,
    NodeName: *mut crate::NDIS_STRING,
    ServiceName: *mut crate::NDIS_STRING,
    NameSpace: u32,
    Provider: *mut GUID,
    Hints: *mut ADDRINFOEXW,
    Result: *mut *mut ADDRINFOEXW,
    OwningProcess: *mut c_void,
    OwningThread: *mut c_void,
    Irp: *mut IRP,
) -> NtStatus;

/// Frees what that returned. IRQL: `PASSIVE_LEVEL`.
pub type PFN_WSK_FREE_ADDRESS_INFO = unsafe extern "system" fn(Client: *mut WSK_CLIENT, AddrInfo: *mut ADDRINFOEXW);

/// Resolves an address. IRQL: `PASSIVE_LEVEL`.
pub type PFN_WSK_GET_NAME_INFO = unsafe extern "system" fn(
    Client: *mut WSK_CLIENT,
    SockAddr: *mut SOCKADDR,
    SockAddrLength: u32,
    NodeName: *mut crate::NDIS_STRING,
    ServiceName: *mut crate::NDIS_STRING,
    Flags: u32,
    OwningProcess: *mut c_void,
    OwningThread: *mut c_void,
    Irp: *mut IRP,
) -> NtStatus;

/// What every socket has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_BASIC_DISPATCH {
    /// Options and control codes.
    pub WskControlSocket: Option<PFN_WSK_CONTROL_SOCKET>,
    /// The end.
    pub WskCloseSocket: Option<PFN_WSK_CLOSE_SOCKET>,
}

layout!(WSK_PROVIDER_BASIC_DISPATCH: size 0x10, align 8, { WskControlSocket @ 0x00, WskCloseSocket @ 0x08 });

/// What a datagram socket has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_DATAGRAM_DISPATCH {
    /// What every socket has. C has no name for it.
    pub Basic: WSK_PROVIDER_BASIC_DISPATCH,
    /// Gives it an address.
    pub WskBind: Option<PFN_WSK_BIND>,
    /// Sends a datagram.
    pub WskSendTo: Option<PFN_WSK_SEND_TO>,
    /// Receives one.
    pub WskReceiveFrom: Option<PFN_WSK_RECEIVE_FROM>,
    /// Gives datagrams back that a callback has kept.
    pub WskRelease: Option<PFN_WSK_RELEASE_DATAGRAM_INDICATION_LIST>,
    /// Its address.
    pub WskGetLocalAddress: Option<PFN_WSK_GET_LOCAL_ADDRESS>,
    /// Sends several datagrams.
    pub WskSendMessages: Option<PFN_WSK_SEND_MESSAGES>,
}

layout!(WSK_PROVIDER_DATAGRAM_DISPATCH: size 0x40, align 8, {
    Basic @ 0x00,
    WskBind @ 0x10,
    WskSendTo @ 0x18,
    WskReceiveFrom @ 0x20,
    WskRelease @ 0x28,
    WskGetLocalAddress @ 0x30,
    WskSendMessages @ 0x38,
});

/// What Winsock Kernel calls of a datagram socket's client. Stays in place until the socket is closed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_CLIENT_DATAGRAM_DISPATCH {
    /// Datagrams have come. `None` if the event is never enabled.
    pub WskReceiveFromEvent: Option<PFN_WSK_RECEIVE_FROM_EVENT>,
}

layout!(WSK_CLIENT_DATAGRAM_DISPATCH: size 0x08, align 8, { WskReceiveFromEvent @ 0x00 });
