//! Sockets of Winsock Kernel for streams: those that listen for connections, and those that are connected; and the resolution of names.
//!
//! What [`wsk_socket`](crate::wsk_socket) says of requests goes for these too.

use core::ffi::c_void;

use ndkpi::{GUID, NtStatus, SOCKADDR};

use crate::{
    IRP, PFN_WSK_BIND, PFN_WSK_GET_LOCAL_ADDRESS, WSK_BUF, WSK_PROVIDER_BASIC_DISPATCH, WSK_SOCKET, layout, open_enum,
};

/// A stream of bytes: the type of a socket.
pub const SOCK_STREAM: u16 = 1;
/// The protocol of TCP.
pub const IPPROTO_TCP: u32 = 6;
/// The level of the options of IPv6.
pub const IPPROTO_IPV6: u32 = 41;
/// An option of IPv6: the socket is for IPv6 only, as it is by default.
pub const IPV6_V6ONLY: u32 = 27;

/// The event of a connection that has come.
pub const WSK_EVENT_ACCEPT: u32 = 0x0200;
/// The event of data that have come.
pub const WSK_EVENT_RECEIVE: u32 = 0x0040;
/// The event of a connection that the other side has ended.
pub const WSK_EVENT_DISCONNECT: u32 = 0x0080;
/// The event of another ideal size of what is being sent.
pub const WSK_EVENT_SEND_BACKLOG: u32 = 0x0010;

/// A disconnect drops what is under way, both ways.
pub const WSK_FLAG_ABORTIVE: u32 = 1;
/// A send goes out without waiting for more.
pub const WSK_FLAG_NODELAY: u32 = 2;
/// A receive waits until its buffer is full.
pub const WSK_FLAG_WAITALL: u32 = 2;
/// A receive waits for the end of the connection, and drops what comes.
pub const WSK_FLAG_DRAIN: u32 = 4;
/// The data of an indication are to be released soon.
pub const WSK_FLAG_RELEASE_ASAP: u32 = 2;
/// The data of an indication end where the other side has ended a send.
pub const WSK_FLAG_ENTIRE_MESSAGE: u32 = 4;

/// How many bytes are to be under way, so that the stream does not run dry. The output is a `usize`.
pub const SIO_WSK_QUERY_IDEAL_SEND_BACKLOG: u32 = 0x4F00_0003;
/// How many bytes wait to be received. The output is a `usize`.
pub const SIO_WSK_QUERY_RECEIVE_BACKLOG: u32 = 0x4F00_0004;

open_enum! {
    /// What becomes of a connection that was inspected.
    WSK_INSPECT_ACTION {
        /// It is refused.
        REJECT = 0, "WskInspectReject";
        /// It is accepted.
        ACCEPT = 1, "WskInspectAccept";
        /// `WskInspectComplete` will say.
        PEND = 2, "WskInspectPend";
        /// The end of the others.
        MAX = 3, "WskInspectMax";
    }
}

/// Identifies a connection that is inspected.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_INSPECT_ID {
    /// Winsock Kernel's own.
    pub Key: usize,
    /// Winsock Kernel's own.
    pub SerialNumber: u32,
}

layout!(WSK_INSPECT_ID: size 0x10, align 8, { Key @ 0x00, SerialNumber @ 0x08 });

/// Data that have come. They are Winsock Kernel's: valid until the callback returns or, if that keeps the list, until `WskRelease`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_DATA_INDICATION {
    /// The next ones, or null.
    pub Next: *mut Self,
    /// The bytes.
    pub Buffer: WSK_BUF,
}

layout!(WSK_DATA_INDICATION: size 0x20, align 8, { Next @ 0x00, Buffer @ 0x08 });

/// An address that a name stands for.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ADDRINFOEXW {
    /// Flags of a hint.
    pub ai_flags: i32,
    /// The family.
    pub ai_family: i32,
    /// The type of a socket.
    pub ai_socktype: i32,
    /// The protocol.
    pub ai_protocol: i32,
    /// Bytes of the address.
    pub ai_addrlen: usize,
    /// The name, or null.
    pub ai_canonname: *mut u16,
    /// The address.
    pub ai_addr: *mut SOCKADDR,
    /// What the provider of names adds.
    pub ai_blob: *mut c_void,
    /// Bytes of that.
    pub ai_bloblen: usize,
    /// The provider of names.
    pub ai_provider: *mut GUID,
    /// The next one, or null.
    pub ai_next: *mut Self,
}

layout!(ADDRINFOEXW: size 0x48, align 8, {
    ai_flags @ 0x00,
    ai_family @ 0x04,
    ai_socktype @ 0x08,
    ai_protocol @ 0x0C,
    ai_addrlen @ 0x10,
    ai_canonname @ 0x18,
    ai_addr @ 0x20,
    ai_blob @ 0x28,
    ai_bloblen @ 0x30,
    ai_provider @ 0x38,
    ai_next @ 0x40,
});

/// Accepts a connection, or waits for one; the IRP's `Information` is a pointer to its socket. `Flags` are zero. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_ACCEPT = unsafe extern "system" fn(
    ListenSocket: *mut WSK_SOCKET,
    Flags: u32,
    AcceptSocketContext: *mut c_void,
    AcceptSocketDispatch: *const WSK_CLIENT_CONNECTION_DISPATCH,
    LocalAddress: *mut SOCKADDR,
    RemoteAddress: *mut SOCKADDR,
    Irp: *mut IRP,
) -> NtStatus;

/// Says what becomes of a connection whose inspection was left open. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_INSPECT_COMPLETE = unsafe extern "system" fn(
    ListenSocket: *mut WSK_SOCKET,
    InspectID: *mut WSK_INSPECT_ID,
    Action: WSK_INSPECT_ACTION,
    Irp: *mut IRP,
) -> NtStatus;

/// Connects a socket that is bound. `Flags` are zero. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_CONNECT = unsafe extern "system" fn(
    Socket: *mut WSK_SOCKET,
    RemoteAddress: *mut SOCKADDR,
    Flags: u32,
    Irp: *mut IRP,
) -> NtStatus;

/// Connects a socket that is bound and sends the first bytes, at most 65,535. `Flags` are zero. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_CONNECT_EX = unsafe extern "system" fn(
    Socket: *mut WSK_SOCKET,
    RemoteAddress: *mut SOCKADDR,
    Buffer: *mut WSK_BUF,
    Flags: u32,
    Irp: *mut IRP,
) -> NtStatus;

/// Asks for the address at the other end. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_GET_REMOTE_ADDRESS =
    unsafe extern "system" fn(Socket: *mut WSK_SOCKET, RemoteAddress: *mut SOCKADDR, Irp: *mut IRP) -> NtStatus;

/// Sends bytes; complete when all have been sent. The flag is [`WSK_FLAG_NODELAY`]. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_SEND =
    unsafe extern "system" fn(Socket: *mut WSK_SOCKET, Buffer: *mut WSK_BUF, Flags: u32, Irp: *mut IRP) -> NtStatus;

/// Receives bytes; none when the other side has ended the stream. The flag is [`WSK_FLAG_WAITALL`] or [`WSK_FLAG_DRAIN`].
/// IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_RECEIVE =
    unsafe extern "system" fn(Socket: *mut WSK_SOCKET, Buffer: *mut WSK_BUF, Flags: u32, Irp: *mut IRP) -> NtStatus;

/// Ends the stream to the other side, after the last bytes if there are any, or with [`WSK_FLAG_ABORTIVE`] the connection.
/// IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_DISCONNECT =
    unsafe extern "system" fn(Socket: *mut WSK_SOCKET, Buffer: *mut WSK_BUF, Flags: u32, Irp: *mut IRP) -> NtStatus;

/// Gives back data that a callback has kept: the whole list, by its first. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_RELEASE_DATA_INDICATION_LIST =
    unsafe extern "system" fn(Socket: *mut WSK_SOCKET, DataIndication: *mut WSK_DATA_INDICATION) -> NtStatus;

/// A connection has come; a null socket: the one that listens has to be closed. IRQL <= `DISPATCH_LEVEL`.
///
/// `STATUS_SUCCESS`: the socket is the client's. `STATUS_REQUEST_NOT_ACCEPTED`: it is closed. The addresses are valid until it returns.
pub type PFN_WSK_ACCEPT_EVENT = unsafe extern "system" fn(
    SocketContext: *mut c_void,
    Flags: u32,
    LocalAddress: *mut SOCKADDR,
    RemoteAddress: *mut SOCKADDR,
    AcceptSocket: *mut WSK_SOCKET,
    AcceptSocketContext: *mut *mut c_void,
    AcceptSocketDispatch: *mut *const WSK_CLIENT_CONNECTION_DISPATCH,
) -> NtStatus;

/// A connection is about to come. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_INSPECT_EVENT = unsafe extern "system" fn(
    SocketContext: *mut c_void,
    LocalAddress: *mut SOCKADDR,
    RemoteAddress: *mut SOCKADDR,
    InspectID: *mut WSK_INSPECT_ID,
) -> WSK_INSPECT_ACTION;

/// A connection that was inspected does not come. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_ABORT_EVENT =
    unsafe extern "system" fn(SocketContext: *mut c_void, InspectID: *mut WSK_INSPECT_ID) -> NtStatus;

/// Data have come; null: the socket has to be closed. IRQL <= `DISPATCH_LEVEL`.
///
/// `STATUS_SUCCESS`: all were taken, or as many as `BytesAccepted` says. `STATUS_PENDING`: the list is kept until `WskRelease`.
/// `STATUS_DATA_NOT_ACCEPTED`: none were taken. What is left waits, and so does the callback, until the client calls `WskReceive`.
pub type PFN_WSK_RECEIVE_EVENT = unsafe extern "system" fn(
    SocketContext: *mut c_void,
    Flags: u32,
    DataIndication: *mut WSK_DATA_INDICATION,
    BytesIndicated: usize,
    BytesAccepted: *mut usize,
) -> NtStatus;

/// The other side has ended its stream or, with [`WSK_FLAG_ABORTIVE`], the connection. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_DISCONNECT_EVENT = unsafe extern "system" fn(SocketContext: *mut c_void, Flags: u32) -> NtStatus;

/// As many bytes are to be under way from now on. IRQL <= `DISPATCH_LEVEL`.
pub type PFN_WSK_SEND_BACKLOG_EVENT =
    unsafe extern "system" fn(SocketContext: *mut c_void, IdealBacklogSize: usize) -> NtStatus;

/// What Winsock Kernel calls of a listening socket's client. Stays in place until the socket is closed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_CLIENT_LISTEN_DISPATCH {
    /// A connection has come. `None` if the event is never enabled.
    pub WskAcceptEvent: Option<PFN_WSK_ACCEPT_EVENT>,
    /// A connection is about to come. `None` unless that is asked for.
    pub WskInspectEvent: Option<PFN_WSK_INSPECT_EVENT>,
    /// It does not come after all.
    pub WskAbortEvent: Option<PFN_WSK_ABORT_EVENT>,
}

layout!(WSK_CLIENT_LISTEN_DISPATCH: size 0x18, align 8, {
    WskAcceptEvent @ 0x00, WskInspectEvent @ 0x08, WskAbortEvent @ 0x10,
});

/// What Winsock Kernel calls of a connected socket's client. Stays in place until the socket is closed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_CLIENT_CONNECTION_DISPATCH {
    /// Data have come. `None` if the event is never enabled.
    pub WskReceiveEvent: Option<PFN_WSK_RECEIVE_EVENT>,
    /// The other side has ended. `None` if the event is never enabled.
    pub WskDisconnectEvent: Option<PFN_WSK_DISCONNECT_EVENT>,
    /// The ideal backlog is another. `None` if the event is never enabled.
    pub WskSendBacklogEvent: Option<PFN_WSK_SEND_BACKLOG_EVENT>,
}

layout!(WSK_CLIENT_CONNECTION_DISPATCH: size 0x18, align 8, {
    WskReceiveEvent @ 0x00, WskDisconnectEvent @ 0x08, WskSendBacklogEvent @ 0x10,
});

/// What a listening socket has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_LISTEN_DISPATCH {
    /// What every socket has. C has no name for it.
    pub Basic: WSK_PROVIDER_BASIC_DISPATCH,
    /// Gives it an address: it listens from then on.
    pub WskBind: Option<PFN_WSK_BIND>,
    /// Accepts a connection.
    pub WskAccept: Option<PFN_WSK_ACCEPT>,
    /// Ends an inspection.
    pub WskInspectComplete: Option<PFN_WSK_INSPECT_COMPLETE>,
    /// Its address.
    pub WskGetLocalAddress: Option<PFN_WSK_GET_LOCAL_ADDRESS>,
}

layout!(WSK_PROVIDER_LISTEN_DISPATCH: size 0x30, align 8, {
    Basic @ 0x00,
    WskBind @ 0x10,
    WskAccept @ 0x18,
    WskInspectComplete @ 0x20,
    WskGetLocalAddress @ 0x28,
});

/// What a connected socket has. Kits of later versions of Windows 10 have two more functions behind it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WSK_PROVIDER_CONNECTION_DISPATCH {
    /// What every socket has. C has no name for it.
    pub Basic: WSK_PROVIDER_BASIC_DISPATCH,
    /// Gives it an address.
    pub WskBind: Option<PFN_WSK_BIND>,
    /// Connects it.
    pub WskConnect: Option<PFN_WSK_CONNECT>,
    /// Its address.
    pub WskGetLocalAddress: Option<PFN_WSK_GET_LOCAL_ADDRESS>,
    /// The address at the other end.
    pub WskGetRemoteAddress: Option<PFN_WSK_GET_REMOTE_ADDRESS>,
    /// Sends.
    pub WskSend: Option<PFN_WSK_SEND>,
    /// Receives.
    pub WskReceive: Option<PFN_WSK_RECEIVE>,
    /// Ends the stream, or the connection.
    pub WskDisconnect: Option<PFN_WSK_DISCONNECT>,
    /// Gives data back that a callback has kept.
    pub WskRelease: Option<PFN_WSK_RELEASE_DATA_INDICATION_LIST>,
    /// Connects it and sends.
    pub WskConnectEx: Option<PFN_WSK_CONNECT_EX>,
}

layout!(WSK_PROVIDER_CONNECTION_DISPATCH: size 0x58, align 8, {
    Basic @ 0x00,
    WskBind @ 0x10,
    WskConnect @ 0x18,
    WskGetLocalAddress @ 0x20,
    WskGetRemoteAddress @ 0x28,
    WskSend @ 0x30,
    WskReceive @ 0x38,
    WskDisconnect @ 0x40,
    WskRelease @ 0x48,
    WskConnectEx @ 0x50,
});
