//! Ends a run when an address of its interfaces goes.

use alloc::boxed::Box;
use core::{ffi::c_void, net::IpAddr, ptr};

use control::network::Reason;
use fallible::{Arc, try_box};
use ndis::{
    AF_UNSPEC, CancelMibChangeNotify2, MIB_NOTIFICATION_TYPE, MIB_UNICASTIPADDRESS_ROW, NotifyUnicastIpAddressChange,
};
use ndkpi::NtStatus;

use super::{ADDRESSES, Chosen};
use crate::run::Run;

/// A run and the addresses that it lives on.
struct Watched {
    run: Arc<Run>,
    addresses: [[Option<IpAddr>; ADDRESSES]; 2],
}

/// A registration for changes of addresses. Cancelled when dropped.
///
/// # Invariants
///
/// `handle` is a registration whose context is `_watched`.
pub struct Watch {
    handle: *mut c_void,
    _watched: Box<Watched>,
}

// SAFETY: the handle is only handed back, on any thread.
unsafe impl Send for Watch {}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; what the IP helper says.
    pub fn start(run: &Arc<Run>, chosen: &[Option<Chosen>; 2]) -> Result<Self, NtStatus> {
        let addresses = chosen.map(|chosen| chosen.map_or([None; ADDRESSES], |chosen| chosen.addresses));
        let watched = Watched { run: run.clone(), addresses };
        let watched = try_box(watched).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let mut handle = ptr::null_mut();
        let context: *const Watched = &raw const *watched;
        // SAFETY: at `PASSIVE_LEVEL`; the context stays in its box until the registration is cancelled, which waits for callbacks
        // that run; the place lives until the call returns.
        let status = unsafe {
            NotifyUnicastIpAddressChange(AF_UNSPEC, Some(changed), context.cast_mut().cast(), 0, &raw mut handle)
        };
        status.ok().map(|()| Self { handle, _watched: watched })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: the registration is ours (invariant) and not used again. Nobody holds a lock here that the callback takes: it
        // takes none.
        let _ = unsafe { CancelMibChangeNotify2(self.handle) };
    }
}

/// At a level that is not documented: only sets flags and events.
unsafe extern "system" fn changed(
    context: *mut c_void,
    row: *mut MIB_UNICASTIPADDRESS_ROW,
    kind: MIB_NOTIFICATION_TYPE,
) {
    // SAFETY: `Watch::start` registered this context, which lives until the registration is cancelled.
    let watched = unsafe { &*context.cast::<Watched>() };
    // SAFETY: null or the address that has changed, which lives until the call returns.
    let row = unsafe { row.as_ref() };
    let address = row.and_then(|row| row.Address.to_socket_addr()).map(|address| address.ip());
    let mine = |address| watched.addresses.as_flattened().contains(&Some(address));
    if kind == MIB_NOTIFICATION_TYPE::DELETE_INSTANCE && address.is_some_and(mine) {
        watched.run.end_early(Reason::AddressGone);
    }
}
