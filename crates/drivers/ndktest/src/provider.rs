//! An adapter of the provider, opened.

use core::{net::IpAddr, ptr};

use control::{GUID_SOFTNDK, SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION, interface::SOFTNDK_INTERFACE_SIZE};
use fallible::Arc;
use kernel::{
    check, context, unicode,
    wdf::{attributes, size},
};
use ndkpi::{NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_VERSION, NtStatus, SOCKADDR_INET};
use wdk_sys::{
    _WDF_IO_TARGET_OPEN_TYPE, GENERIC_READ, GENERIC_WRITE, GUID, INTERFACE, NTSTATUS, STATUS_SUCCESS,
    WDF_IO_TARGET_OPEN_PARAMS, WDFDEVICE, WDFIOTARGET, call_unsafe_wdf_function_binding,
};

use crate::run::Run;

/// The provider's device, open. It is deleted when dropped.
///
/// While it is open plug and play tells of the provider's removal. The run is then cancelled, and the removal waits until
/// it has let go of the adapter.
///
/// # Invariants
///
/// `target` is live, and nobody else deletes it.
pub struct Target {
    target: WDFIOTARGET,
}

// SAFETY: the framework's handle may be used on any thread.
unsafe impl Send for Target {}

context!(Run, c"ndktest target");

impl Target {
    /// Opens the device with that symbolic link for a run.
    ///
    /// # Errors
    ///
    /// What the framework and the provider say.
    ///
    /// # Safety
    ///
    /// `device` is the driver's live device.
    pub unsafe fn open(device: WDFDEVICE, link: &[u16], run: &Arc<Run>) -> Result<Self, NtStatus> {
        /// `FILE_OPEN`: the device is there already.
        const EXISTING: u32 = 1;
        /// `FILE_NON_DIRECTORY_FILE`.
        const NO_DIRECTORY: u32 = 0x40;
        let mut attributes = attributes();
        CONTEXT.describe(&mut attributes);
        let mut target = ptr::null_mut();
        // SAFETY: the device is live (`# Safety`), and the structures live until the call returns.
        check(unsafe {
            call_unsafe_wdf_function_binding!(WdfIoTargetCreate, device, &raw mut attributes, &raw mut target)
        })?;
        let this = Self { target };
        // SAFETY: the target is live and was created with a context of this kind.
        unsafe { CONTEXT.put(target.cast(), run.clone()) };
        let mut parameters = WDF_IO_TARGET_OPEN_PARAMS {
            Size: size::<WDF_IO_TARGET_OPEN_PARAMS>(),
            Type: _WDF_IO_TARGET_OPEN_TYPE::WdfIoTargetOpenByName,
            EvtIoTargetQueryRemove: Some(query_remove),
            EvtIoTargetRemoveComplete: Some(removed),
            TargetDeviceName: unicode(link),
            DesiredAccess: GENERIC_READ | GENERIC_WRITE,
            CreateDisposition: EXISTING,
            CreateOptions: NO_DIRECTORY,
            ..WDF_IO_TARGET_OPEN_PARAMS::default()
        };
        // SAFETY: the target is live, and the parameters and the name live until the call returns.
        check(unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetOpen, target, &raw mut parameters) })?;
        Ok(this)
    }

    /// Asks the provider for its interface.
    ///
    /// # Errors
    ///
    /// `STATUS_NOT_SUPPORTED` if the device does not know it, or has an earlier version of it; what the framework says.
    pub fn query(&self) -> Result<Interface, NtStatus> {
        let kind = GUID_SOFTNDK;
        let kind = GUID { Data1: kind.Data1, Data2: kind.Data2, Data3: kind.Data3, Data4: kind.Data4 };
        let mut interface = SOFTNDK_INTERFACE::EMPTY;
        let place = (&raw mut interface).cast::<INTERFACE>();
        // SAFETY: the target is open (invariant); the identifier and the place live until the call returns, and the place has
        // the size that is said.
        check(unsafe {
            call_unsafe_wdf_function_binding!(
                WdfIoTargetQueryForInterface,
                self.target,
                &raw const kind,
                place,
                SOFTNDK_INTERFACE_SIZE,
                SOFTNDK_INTERFACE_VERSION,
                ptr::null_mut()
            )
        })?;
        // From here on it is counted, and dereferenced if it is refused.
        let mut interface = Interface { interface, addresses: [None; 8] };
        // The framework also serves who has asked for a later version than the provider has.
        if interface.interface.Version < SOFTNDK_INTERFACE_VERSION || !interface.is_complete() {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        interface.addresses = interface.query_addresses();
        Ok(interface)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: the target is live and ours (invariant), and not used again. It is closed if it is open.
        unsafe { call_unsafe_wdf_function_binding!(WdfObjectDelete, self.target.cast()) };
    }
}

unsafe extern "C" fn query_remove(target: WDFIOTARGET) -> NTSTATUS {
    // SAFETY: the framework's own argument, a target that was created with a context of this kind.
    if let Some(run) = unsafe { CONTEXT.get(target.cast()) } {
        run.end();
    }
    // SAFETY: the framework's own argument; the run does not use it any more.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetCloseForQueryRemove, target) };
    STATUS_SUCCESS
}

unsafe extern "C" fn removed(target: WDFIOTARGET) {
    // SAFETY: as in `query_remove`.
    if let Some(run) = unsafe { CONTEXT.get(target.cast()) } {
        run.end();
    }
    // SAFETY: as in `query_remove`.
    unsafe { call_unsafe_wdf_function_binding!(WdfIoTargetClose, target) };
}

/// The provider's interface. Dereferenced when dropped, before the device is closed.
///
/// # Invariants
///
/// The interface is counted, and the device stays open as long as this value lives.
pub struct Interface {
    interface: SOFTNDK_INTERFACE,
    addresses: [Option<IpAddr>; 8],
}

// SAFETY: the provider's functions may be called on any thread.
unsafe impl Send for Interface {}
// SAFETY: as for `Send`, several at a time.
unsafe impl Sync for Interface {}

impl Interface {
    const fn is_complete(&self) -> bool {
        self.interface.OpenNdkAdapter.is_some() && self.interface.CloseNdkAdapter.is_some()
    }

    /// Opens the adapter.
    ///
    /// # Errors
    ///
    /// What the provider answers.
    pub fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let parameters = NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, ..Default::default() };
        let mut adapter = ptr::null_mut();
        let open = self.interface.OpenNdkAdapter.ok_or(NtStatus::NOT_SUPPORTED)?;
        // SAFETY: the interface's own function and context (invariant), and structures that live until the call returns.
        let status = unsafe { open(self.interface.AdapterContext, &raw const parameters, &raw mut adapter) };
        status.ok().map(|()| adapter)
    }

    /// The adapter's addresses, as many as there are places. None if the provider does not tell.
    #[must_use]
    pub const fn addresses(&self) -> &[Option<IpAddr>; 8] {
        &self.addresses
    }

    fn query_addresses(&self) -> [Option<IpAddr>; 8] {
        let mut found = [None; 8];
        let mut room = [SOCKADDR_INET::UNSPECIFIED; 8];
        let mut count = 8;
        if let Some(query) = self.interface.QueryNdkAddresses {
            // SAFETY: the interface's own function and context (invariant), and an array of the length that is said.
            let status = unsafe { query(self.interface.AdapterContext, room.as_mut_ptr(), &raw mut count) };
            if status.ok().is_ok() {
                for (place, address) in found.iter_mut().zip(room).take(count as usize) {
                    *place = address.to_socket_addr().map(|address| address.ip());
                }
            }
        }
        found
    }

    /// Closes the adapter. Waits until everything that was created from it is closed.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`Interface::open`] of this interface and is not used after this call.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        if let Some(close) = self.interface.CloseNdkAdapter {
            // SAFETY: the interface's own function and context (invariant); it opened the adapter, which is not used again (`# Safety`).
            unsafe { close(self.interface.AdapterContext, adapter) };
        }
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        if let Some(dereference) = self.interface.InterfaceDereference {
            // SAFETY: the interface is counted (invariant), and not used again.
            unsafe { dereference(self.interface.Context) };
        }
    }
}
