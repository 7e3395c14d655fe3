//! The datagram socket of a wire, and the calls in between its creation and its close.
//!
//! Nobody may call a function of a socket that is being closed, and its requests are over when it is closed. [`Current`] counts both.

use driver_common::os::{Kernel, KernelLock};
use engine::os::{Os, SpinLock};
use kernel::{Asking, DatagramSocket, Event};
use ndis::{IRP, WSK_BUF_LIST};
use ndkpi::{NtStatus, SOCKADDR_INET};

/// The socket that there is now, and what goes on with it.
pub struct Current {
    state: KernelLock<State>,
    /// Set when somebody has left a socket that is being closed.
    left: Event,
}

#[derive(Default)]
struct State {
    socket: Option<DatagramSocket>,
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
    socket: DatagramSocket,
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
    pub fn put(&self, socket: DatagramSocket) {
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
        // SAFETY: the socket is open until this call is over; all places stay, and the IRP is begun (`# Safety`).
        let _ = unsafe { self.socket.send(list, to, irp) };
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
