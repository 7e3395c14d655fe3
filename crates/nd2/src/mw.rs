//! `IND2MemoryWindow`.

use core::ffi::c_void;

use engine::memory::Window;
use fallible::Arc;
use ndkpi::{GUID, NtStatus};

use crate::{
    Item, Platform,
    abi::{IID_IND2MemoryWindow, IND2MemoryWindowVtbl},
    adapter::AdapterCore,
    com::{Class, borrow, find, unknown},
    limits::{Resource, Taken},
};

/// A memory window.
pub struct MemoryWindow<P: Platform> {
    adapter: Arc<AdapterCore<P>>,
    window: Arc<Window<P::Os>>,
}

impl<P: Platform> MemoryWindow<P> {
    /// Makes a window that is not bound.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_DEVICE_REMOVED`, `STATUS_IMPLEMENTATION_LIMIT`.
    pub fn try_new(adapter: &Arc<AdapterCore<P>>) -> Result<Self, NtStatus> {
        adapter.device().check_present()?;
        let device = adapter.device();
        let taken = Taken::try_new(device, adapter.account(), Resource::MemoryWindows, 1)?;
        let charges = (device.charge(adapter.account(), Item::Tokens, 1)?, adapter.charge_object(0)?);
        // Given back after the last transfer through the window.
        let window = Window::try_new_for(adapter.domain(), (taken, charges))?;
        Ok(Self { adapter: adapter.clone(), window })
    }

    /// The engine's window behind a client's pointer, if it is one of this adapter.
    ///
    /// # Safety
    ///
    /// `unknown` is null or a COM object.
    pub unsafe fn find(adapter: &Arc<AdapterCore<P>>, unknown: *mut c_void) -> Option<Arc<Window<P::Os>>> {
        let window = |window: &Self| Arc::ptr_eq(&window.adapter, adapter).then(|| window.window.clone());
        // SAFETY: the caller's promise.
        unsafe { find::<Self, _>(unknown, window) }?
    }
}

impl<P: Platform> Class for MemoryWindow<P> {
    type Table = IND2MemoryWindowVtbl;

    const TABLE: &'static IND2MemoryWindowVtbl =
        &IND2MemoryWindowVtbl { base: unknown::<Self>(), GetRemoteToken: get_remote_token::<P> };
    const INTERFACES: &'static [GUID] = &[IID_IND2MemoryWindow];
}

/// `IND2MemoryWindow::GetRemoteToken`: that of the bind posted last; zero, which is no token, before the first.
///
/// # Safety
///
/// `this` is such a window.
unsafe extern "system" fn get_remote_token<P: Platform>(this: *mut c_void) -> u32 {
    // SAFETY: the client calls through the table of an object it holds.
    let object = unsafe { borrow::<MemoryWindow<P>>(this) };
    object.window.remote_token()
}
