//! Listeners (`NDKPI 5.9`, `NDKPI 7.7.2`).

use alloc::boxed::Box;
use core::{ffi::c_void, net::SocketAddr};

use fallible::try_box;
use ndkpi::{FALSE, NDK_CONNECTOR, NDK_LISTENER, NtStatus, SOCKADDR_INET, TRUE};

use crate::{
    adapter::{Adapter, AdapterRef},
    connector::{Incoming, ask},
    object::{Node, Object, Parts, slot},
    request::{Kept, complete},
};

/// The parts of a listener.
pub struct ListenerParts {
    handler: Box<dyn Fn(Incoming) + Send + Sync>,
}

impl Parts for ListenerParts {
    type Raw = NDK_LISTENER;
}

/// A listener. Dropping it refuses further connection requests; accepted connections continue.
pub struct Listener {
    pub(crate) object: Object<ListenerParts>,
}

impl Adapter {
    /// Listens at an address of the adapter. With port 0 the provider chooses a port. `PASSIVE_LEVEL`.
    ///
    /// `handler` gets each connection request, at `IRQL <= DISPATCH_LEVEL`, possibly several concurrently. It may accept the
    /// request or keep it for later; dropping it refuses the request.
    ///
    /// # Errors
    ///
    /// The status of `NdkListen`: `STATUS_SHARING_VIOLATION`, `STATUS_INVALID_ADDRESS`, `STATUS_TOO_MANY_ADDRESSES`.
    pub fn listen(
        &self,
        at: SocketAddr,
        handler: impl Fn(Incoming) + Send + Sync + 'static,
    ) -> Result<Listener, NtStatus> {
        let function = slot!(self.core().raw(), NdkCreateListener)?;
        let parts = ListenerParts { handler: try_box(handler)? };
        let object = Object::create(self.reference(), parts, |node, completion, context, place| {
            // SAFETY: the adapter is open, and both contexts live until the close or the request has completed.
            unsafe { function(self.core().raw(), Some(connecting), node.context(), completion, context, place) }
        })?;
        let function = slot!(object.raw(), NdkListen)?;
        let kept = Kept::new([SOCKADDR_INET::from(at), SOCKADDR_INET::default()], &[])?;
        let object = complete(self.core(), kept, object, |object, kept, completion, context| {
            let at = &kept.addresses[0];
            // SAFETY: the listener is open, and the address and the context live until the request has completed.
            unsafe { function(object.raw(), at.as_ptr(), at.length(), completion, context) }
        })?;
        Ok(Listener { object })
    }
}

impl Listener {
    /// The address it listens at. `IRQL <= DISPATCH_LEVEL`.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn local_address(&self) -> Result<SocketAddr, NtStatus> {
        let raw = self.object.raw();
        let function = slot!(raw, NdkGetLocalAddress)?;
        ask(|address, length| {
            // SAFETY: the listener is open, and the address has as many bytes as the length says.
            unsafe { function(raw, address, length) }
        })
    }

    pub(crate) fn may_wait(&self) -> bool {
        self.object.adapter().os().may_wait()
    }

    /// Pauses or resumes connection requests; while paused they are refused (`NDKPI 7.7.8`). `IRQL <= DISPATCH_LEVEL`.
    pub fn pause(&self, pause: bool) {
        let raw = self.object.raw();
        if let Ok(function) = slot!(raw, NdkControlConnectEvents) {
            // SAFETY: the listener is open.
            unsafe { function(raw, if pause { TRUE } else { FALSE }) };
        }
    }
}

/// `NDK_FN_CONNECT_EVENT_CALLBACK`.
///
/// # Safety
///
/// `context` is the node of an open listener; `connector` is new and belongs to the consumer from now on.
unsafe extern "system" fn connecting(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the node of an open listener (`# Safety`), which lives until the close has completed: that waits for this callback.
    let node = unsafe { &*context.cast_const().cast::<Node<ListenerParts>>() };
    if connector.is_null() {
        return;
    }
    // SAFETY: the connector is open and of the listener's adapter, and nobody else has it (`# Safety`).
    if let Ok(incoming) = unsafe { Incoming::adopt(AdapterRef::of(node.adapter()), connector) } {
        (node.parts.handler)(incoming);
    }
}
