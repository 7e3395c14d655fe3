//! A datagram socket of Winsock Kernel, from its creation to its close.

use core::{ffi::c_void, net::SocketAddr, ptr};

use ndis::{
    IPPROTO_UDP, IRP, NPI_WSK_INTERFACE_ID, PFN_WSK_CLOSE_SOCKET, PFN_WSK_CONTROL_SOCKET, PFN_WSK_RECEIVE_FROM,
    PFN_WSK_SEND_MESSAGES, PFN_WSK_SEND_TO, SO_WSK_EVENT_CALLBACK, SOCK_DGRAM, SOL_SOCKET, WSK_BUF, WSK_BUF_LIST,
    WSK_CLIENT_DATAGRAM_DISPATCH, WSK_CONTROL_SOCKET_TYPE, WSK_EVENT_CALLBACK_CONTROL, WSK_EVENT_RECEIVE_FROM,
    WSK_FLAG_DATAGRAM_SOCKET, WSK_PROVIDER_DATAGRAM_DISPATCH, WSK_SOCKET,
};
use ndkpi::{NtStatus, SOCKADDR_INET};

use super::WskProvider;
use crate::{Event, OwnIrp};

/// What it takes to ask for something and wait: there before it is needed, so that a close cannot fail.
pub struct Asking {
    irp: OwnIrp,
    answered: Event,
}

impl Asking {
    /// What it takes.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        Ok(Self { irp: OwnIrp::try_new()?, answered: Event::try_new()? })
    }

    /// Asks for something that takes the IRP, and waits.
    ///
    /// # Errors
    ///
    /// What the request ends with.
    ///
    /// # Safety
    ///
    /// `request` gives the IRP to one request.
    pub unsafe fn ask(&mut self, request: impl FnOnce(*mut IRP) -> NtStatus) -> Result<usize, NtStatus> {
        // SAFETY: nobody has the IRP: `self` is borrowed for this call alone, which waits. One request gets it (`# Safety`).
        unsafe { self.irp.ask(&self.answered, |irp| request(irp.cast())) }
    }
}

/// A datagram socket, and its functions. Copies are of the same socket: whoever closes it sees to it that nobody uses another one.
///
/// # Invariants
///
/// The socket is open, and the functions are its own.
#[derive(Clone, Copy)]
pub struct DatagramSocket {
    raw: *mut WSK_SOCKET,
    close: PFN_WSK_CLOSE_SOCKET,
    send_to: PFN_WSK_SEND_TO,
    send_messages: PFN_WSK_SEND_MESSAGES,
    receive_from: PFN_WSK_RECEIVE_FROM,
}

// SAFETY: Winsock Kernel's functions may be called on any thread, several at a time.
unsafe impl Send for DatagramSocket {}
// SAFETY: as for `Send`.
unsafe impl Sync for DatagramSocket {}

impl DatagramSocket {
    /// Makes a socket at that address. With a table it tells of datagrams by that table's event, with this context; without one they are
    /// there for [`DatagramSocket::receive`].
    ///
    /// # Errors
    ///
    /// What Winsock Kernel says: that the port is in use, the address is not of this machine. Nothing is left then.
    ///
    /// # Safety
    ///
    /// The context is good until the socket is closed, and the provider is not dropped before that.
    #[inline(never)]
    pub unsafe fn open(
        provider: &WskProvider,
        asking: &mut Asking,
        local: SocketAddr,
        events: Option<&'static WSK_CLIENT_DATAGRAM_DISPATCH>,
        context: *mut c_void,
    ) -> Result<Self, NtStatus> {
        let (client, make) = (provider.client(), provider.dispatch().WskSocket.ok_or(NtStatus::NOT_SUPPORTED)?);
        let address = SOCKADDR_INET::from(local);
        let (none, flags) = (ptr::null_mut(), WSK_FLAG_DATAGRAM_SOCKET);
        let table: *const c_void = events.map_or(ptr::null(), |events| ptr::from_ref(events).cast());
        // SAFETY: the provider is captured, the table is static, and the context is good until the socket is closed (`# Safety`).
        let made = unsafe {
            asking.ask(|irp| {
                make(client, address.family(), SOCK_DGRAM, IPPROTO_UDP, flags, context, table, none, none, none, irp)
            })
        }?;
        let raw: *mut WSK_SOCKET = ptr::with_exposed_provenance_mut(made);
        // SAFETY: a socket of datagrams, which was just made.
        let functions = unsafe { (*raw).Dispatch.cast::<WSK_PROVIDER_DATAGRAM_DISPATCH>().read() };
        // Without this one nothing can be done about the socket.
        let close = functions.Basic.WskCloseSocket.ok_or(NtStatus::NOT_SUPPORTED)?;
        let mut ready = || -> Result<Self, NtStatus> {
            let missing = NtStatus::NOT_SUPPORTED;
            let (send_to, send_messages) = functions.WskSendTo.zip(functions.WskSendMessages).ok_or(missing)?;
            let receive_from = functions.WskReceiveFrom.ok_or(missing)?;
            let (bind, control) = functions.WskBind.zip(functions.Basic.WskControlSocket).ok_or(missing)?;
            // SAFETY: the function is that of the socket, which is open; the address lives until the request is complete.
            unsafe { asking.ask(|irp| bind(raw, address.as_ptr().cast_mut(), 0, irp)) }?;
            if events.is_some() {
                // SAFETY: the function is that of the socket, which is open and bound.
                unsafe { enable(raw, control) }?;
            }
            Ok(Self { raw, close, send_to, send_messages, receive_from })
        };
        ready().inspect_err(|_| {
            // Nobody could do anything about it.
            // SAFETY: the socket is open, nobody else has it, and it is not used again.
            let _ = unsafe { asking.ask(|irp| close(raw, irp)) };
        })
    }

    /// Closes it: cancels what is out, and waits for callbacks that run. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    ///
    /// No call of its functions is in progress, and the socket is not used again.
    pub unsafe fn close(self, asking: &mut Asking) {
        // It is gone, whatever it says.
        // SAFETY: the socket is open (invariant), and no call of its functions is in progress (`# Safety`).
        let _ = unsafe { asking.ask(|irp| (self.close)(self.raw, irp)) };
    }

    /// Sends a list of datagrams to one address with one request. `IRQL <= DISPATCH_LEVEL`, no lock held: it may be complete when this returns.
    ///
    /// # Safety
    ///
    /// The IRP was begun for this request. The list, what it describes, and the address stay as they are until it is complete.
    pub unsafe fn send(&self, list: *mut WSK_BUF_LIST, to: *const SOCKADDR_INET, irp: *mut IRP) -> NtStatus {
        let (to, none) = (to.cast_mut().cast(), ptr::null_mut());
        // SAFETY: the list stays until the request is complete (`# Safety`).
        let is_one = unsafe { (*list).Next.is_null() };
        if is_one {
            // SAFETY: the socket is open (invariant); the list stays, and the IRP is begun (`# Safety`).
            unsafe { (self.send_to)(self.raw, &raw mut (*list).Buffer, 0, to, 0, none, irp) }
        } else {
            // SAFETY: the socket is open (invariant); every element of the list stays, and the IRP is begun (`# Safety`).
            unsafe { (self.send_messages)(self.raw, list, 0, to, 0, none, irp) }
        }
    }

    /// Receives a datagram, whose length is the request's information, and where it came from. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Safety
    ///
    /// As for [`DatagramSocket::send`]; the memory and the place for the address are written to until the request is complete.
    pub unsafe fn receive(&self, buffer: *mut WSK_BUF, from: *mut SOCKADDR_INET, irp: *mut IRP) -> NtStatus {
        let none = ptr::null_mut();
        // SAFETY: the socket is open (invariant); all places stay until the request is complete, and the IRP is begun (`# Safety`).
        unsafe { (self.receive_from)(self.raw, buffer, 0, from.cast(), none, ptr::null_mut(), none, irp) }
    }
}

/// Has a socket tell of datagrams.
///
/// # Safety
///
/// The function is that of the socket, which is open and bound.
unsafe fn enable(raw: *mut WSK_SOCKET, control: PFN_WSK_CONTROL_SOCKET) -> Result<(), NtStatus> {
    let mut events =
        WSK_EVENT_CALLBACK_CONTROL { NpiId: &raw const NPI_WSK_INTERFACE_ID, EventMask: WSK_EVENT_RECEIVE_FROM };
    let (size, none) = (size_of::<WSK_EVENT_CALLBACK_CONTROL>(), ptr::null_mut());
    let set = WSK_CONTROL_SOCKET_TYPE::SET_OPTION;
    let (input, no_size) = ((&raw mut events).cast(), ptr::null_mut());
    // SAFETY: the function of an open socket (`# Safety`), which enables events without an IRP; the structure lives until the call returns.
    unsafe { control(raw, set, SO_WSK_EVENT_CALLBACK, SOL_SOCKET, size, input, 0, none, no_size, ptr::null_mut()) }.ok()
}
