//! A datagram socket of Winsock Kernel: from its creation to its close, and the calls in between.
//!
//! Nobody may call a function of a socket that is being closed, and its requests are over when it is closed. [`Current`] counts both.

use core::{ffi::c_void, net::SocketAddr, ptr};

use driver_common::os::{Kernel, KernelLock};
use engine::os::{Os, SpinLock};
use kernel::{Event, OwnIrp, WskProvider};
use ndis::{
    IPPROTO_UDP, IRP, NPI_WSK_INTERFACE_ID, PFN_WSK_BIND, PFN_WSK_CLOSE_SOCKET, PFN_WSK_CONTROL_SOCKET,
    PFN_WSK_SEND_MESSAGES, PFN_WSK_SEND_TO, SO_WSK_EVENT_CALLBACK, SOCK_DGRAM, SOL_SOCKET, WSK_BUF_LIST,
    WSK_CLIENT_DATAGRAM_DISPATCH, WSK_CONTROL_SOCKET_TYPE, WSK_EVENT_CALLBACK_CONTROL, WSK_EVENT_RECEIVE_FROM,
    WSK_FLAG_DATAGRAM_SOCKET, WSK_PROVIDER_DATAGRAM_DISPATCH, WSK_SOCKET,
};
use ndkpi::{NtStatus, SOCKADDR_INET};

/// A socket, and its functions.
///
/// # Invariants
///
/// The socket is open, and the functions are its own.
#[derive(Clone, Copy)]
pub struct Socket {
    raw: *mut WSK_SOCKET,
    close: PFN_WSK_CLOSE_SOCKET,
    send_to: PFN_WSK_SEND_TO,
    send_messages: PFN_WSK_SEND_MESSAGES,
}

// SAFETY: Winsock Kernel's functions may be called on any thread, several at a time.
unsafe impl Send for Socket {}

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
    /// # Safety
    ///
    /// `request` gives the IRP to one request.
    unsafe fn ask(&mut self, request: impl FnOnce(*mut IRP) -> NtStatus) -> Result<usize, NtStatus> {
        // SAFETY: nobody has the IRP: `self` is borrowed for this call alone, which waits. One request gets it (`# Safety`).
        unsafe { self.irp.ask(&self.answered, |irp| request(irp.cast())) }
    }
}

impl Socket {
    /// Makes a socket at that address, whose events are those of `events` with this context. `PASSIVE_LEVEL`.
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
        events: &'static WSK_CLIENT_DATAGRAM_DISPATCH,
        context: *mut c_void,
    ) -> Result<Self, NtStatus> {
        let (client, make) = (provider.client(), provider.dispatch().WskSocket.ok_or(NtStatus::NOT_SUPPORTED)?);
        let address = SOCKADDR_INET::from(local);
        let (none, flags) = (ptr::null_mut(), WSK_FLAG_DATAGRAM_SOCKET);
        let events: *const c_void = ptr::from_ref(events).cast();
        // SAFETY: the provider is captured, the table is static, and the context is good until the socket is closed (`# Safety`).
        let made = unsafe {
            asking.ask(|irp| {
                make(client, address.family(), SOCK_DGRAM, IPPROTO_UDP, flags, context, events, none, none, none, irp)
            })
        }?;
        let raw: *mut WSK_SOCKET = ptr::with_exposed_provenance_mut(made);
        // SAFETY: a socket of datagrams, which was just made.
        let functions = unsafe { (*raw).Dispatch.cast::<WSK_PROVIDER_DATAGRAM_DISPATCH>().read() };
        // Without this one nothing can be done about the socket.
        let close = functions.Basic.WskCloseSocket.ok_or(NtStatus::NOT_SUPPORTED)?;
        let found = functions.WskSendTo.zip(functions.WskSendMessages);
        let bound = found.zip(functions.WskBind.zip(functions.Basic.WskControlSocket)).ok_or(NtStatus::NOT_SUPPORTED);
        let ready = bound.and_then(|((send_to, send_messages), (bind, control))| {
            // SAFETY: the functions are those of the socket, which is open.
            unsafe { ready(raw, asking, &address, bind, control) }?;
            Ok(Self { raw, close, send_to, send_messages })
        });
        ready.inspect_err(|_| {
            // Nobody could do anything about it.
            // SAFETY: the socket is open, nobody else has it, and it is not used again.
            let _ = unsafe { asking.ask(|irp| close(raw, irp)) };
        })
    }

    /// Closes it: waits for callbacks that run. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    ///
    /// No call of its functions is in progress, and the socket is not used again.
    unsafe fn close(self, asking: &mut Asking) {
        // It is gone, whatever it says.
        // SAFETY: the socket is open (invariant), and no call of its functions is in progress (`# Safety`).
        let _ = unsafe { asking.ask(|irp| (self.close)(self.raw, irp)) };
    }
}

/// Gives a socket its address, and has it tell of datagrams.
///
/// # Safety
///
/// The functions are those of the socket, which is open.
unsafe fn ready(
    raw: *mut WSK_SOCKET,
    asking: &mut Asking,
    address: &SOCKADDR_INET,
    bind: PFN_WSK_BIND,
    control: PFN_WSK_CONTROL_SOCKET,
) -> Result<(), NtStatus> {
    // SAFETY: the functions of an open socket (`# Safety`); the address lives until the request is complete.
    unsafe { asking.ask(|irp| bind(raw, address.as_ptr().cast_mut(), 0, irp)) }?;
    let mut events =
        WSK_EVENT_CALLBACK_CONTROL { NpiId: &raw const NPI_WSK_INTERFACE_ID, EventMask: WSK_EVENT_RECEIVE_FROM };
    let (size, none) = (size_of::<WSK_EVENT_CALLBACK_CONTROL>(), ptr::null_mut());
    let set = WSK_CONTROL_SOCKET_TYPE::SET_OPTION;
    let (input, no_size) = ((&raw mut events).cast(), ptr::null_mut());
    // SAFETY: the functions of an open socket (`# Safety`), which enable events without an IRP; the structure lives until the call returns.
    unsafe { control(raw, set, SO_WSK_EVENT_CALLBACK, SOL_SOCKET, size, input, 0, none, no_size, ptr::null_mut()) }.ok()
}

/// The socket that there is now, and what goes on with it.
pub struct Current {
    state: KernelLock<State>,
    /// Set when somebody has left a socket that is being closed.
    left: Event,
}

#[derive(Default)]
struct State {
    socket: Option<Socket>,
    /// It is being closed: no call of its functions begins.
    leaves: bool,
    /// It does not work any more.
    is_broken: bool,
    /// Calls that have not returned.
    calls: u32,
    /// Requests that are not complete.
    requests: u32,
}

/// A socket in a call of its functions.
pub struct Used<'current> {
    current: &'current Current,
    socket: Socket,
}

impl Current {
    /// No socket.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        Ok(Self { state: Kernel.lock(State::default())?, left: Event::try_new()? })
    }

    /// The socket, for calls of its functions, if there is one. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn enter(&self) -> Option<Used<'_>> {
        self.state.with(|state| {
            let socket = state.socket.filter(|_| !state.leaves && !state.is_broken)?;
            state.calls += 1;
            Some(Used { current: self, socket })
        })
    }

    /// A request of the socket is complete. The last thing that its completion routine does. `IRQL <= DISPATCH_LEVEL`.
    pub fn complete(&self) {
        self.state.with(|state| {
            state.requests -= 1;
            self.tell(state);
        });
    }

    /// Wakes who waits until nothing goes on any more. Under the lock: who has waited takes it before this may go.
    fn tell(&self, state: &State) {
        if state.leaves && (state.calls == 0 || state.requests == 0) {
            self.left.set();
        }
    }

    /// Returns true if there is a socket.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.with(|state| state.socket.is_some())
    }

    /// The socket does not work any more. True if that is news. `IRQL <= DISPATCH_LEVEL`.
    #[must_use]
    pub fn set_broken(&self) -> bool {
        self.state.with(|state| !core::mem::replace(&mut state.is_broken, true))
    }

    /// Returns true if the socket does not work any more.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.state.with(|state| state.is_broken)
    }

    /// Forgets that the last socket broke: a new one is made.
    pub fn renew(&self) {
        self.state.with(|state| state.is_broken = false);
    }

    /// There is a socket. It may have broken while it was made.
    pub fn put(&self, socket: Socket) {
        self.state.with(|state| state.socket = Some(socket));
    }

    /// Closes the socket, if there is one, and waits until all its requests are complete. `PASSIVE_LEVEL`, one at a time.
    pub fn close(&self, asking: &mut Asking) {
        let Some(socket) = self.state.with(|state| state.socket.inspect(|_| state.leaves = true)) else { return };
        self.wait(|state| state.calls == 0);
        // SAFETY: no call of its functions is in progress, and none begins: it leaves.
        unsafe { socket.close(asking) };
        self.wait(|state| state.requests == 0);
        self.state.with(|state| *state = State::default());
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        loop {
            self.left.clear();
            if self.state.with(|state| until(state)) {
                return;
            }
            self.left.wait();
        }
    }
}

impl Used<'_> {
    /// Sends datagrams to one address with one request, which is told of by [`Current::complete`]. `IRQL <= DISPATCH_LEVEL`, no lock held:
    /// it may be complete when this returns.
    ///
    /// # Safety
    ///
    /// The IRP was begun for this request. The list, what it describes, and the address stay as they are until it is complete.
    pub unsafe fn send(&self, list: *mut WSK_BUF_LIST, to: *const SOCKADDR_INET, irp: *mut IRP) {
        self.current.state.with(|state| state.requests += 1);
        let (socket, to, none) = (self.socket, to.cast_mut().cast(), ptr::null_mut());
        // SAFETY: the list stays until the request is complete (`# Safety`).
        let is_one = unsafe { (*list).Next.is_null() };
        // What it says is what the request ends with, or that this comes later.
        let _ = if is_one {
            // SAFETY: the socket is open (invariant) until this call is over; the list stays, and the IRP is begun (`# Safety`).
            unsafe { (socket.send_to)(socket.raw, &raw mut (*list).Buffer, 0, to, 0, none, irp) }
        } else {
            // SAFETY: as above.
            unsafe { (socket.send_messages)(socket.raw, list, 0, to, 0, none, irp) }
        };
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.current.state.with(|state| {
            state.calls -= 1;
            self.current.tell(state);
        });
    }
}
