//! Registry parameters.

use core::ptr;

use ndkpi::NtStatus;
use wdk_sys::{KEY_READ, ULONG, WDFDRIVER, WDFKEY, call_unsafe_wdf_function_binding};

use super::size;
use crate::{check, unicode};

/// The most bytes of a list of strings in the registry, terminators included.
pub const REGISTRY_LIST_BYTES: usize = 1024;

/// `REG_MULTI_SZ`.
const TYPE_LIST: ULONG = 7;

/// An open registry key. Closed when dropped.
///
/// # Invariants
///
/// `key` is open and nobody else closes it.
pub struct Key {
    key: WDFKEY,
}

impl Key {
    /// The `Parameters` key of the driver's service.
    ///
    /// # Errors
    ///
    /// What the framework says; `STATUS_OBJECT_NAME_NOT_FOUND` if there is no such key.
    ///
    /// # Safety
    ///
    /// `driver` is the driver's live framework object.
    pub unsafe fn parameters(driver: WDFDRIVER) -> Result<Self, NtStatus> {
        let mut key = ptr::null_mut();
        // SAFETY: the driver object is live (`# Safety`), and the place lives until the call returns.
        let status = unsafe {
            call_unsafe_wdf_function_binding!(
                WdfDriverOpenParametersRegistryKey,
                driver,
                KEY_READ,
                ptr::null_mut(),
                &raw mut key
            )
        };
        check(status).map(|()| Self { key })
    }

    /// Reads a number (`REG_DWORD`). `None` if there is none of this name and type.
    #[must_use]
    pub fn number(&self, name: &[u16]) -> Option<u32> {
        let (name, mut value) = (unicode(name), 0);
        // SAFETY: the key is open (invariant), and the name and the place live until the call returns.
        let status = unsafe {
            call_unsafe_wdf_function_binding!(WdfRegistryQueryULong, self.key, &raw const name, &raw mut value)
        };
        check(status).ok().map(|()| value)
    }

    /// A list of strings (`REG_MULTI_SZ`): its code units, each string with its terminator. `None` if there is none of that
    /// name and type, or if it is longer than [`REGISTRY_LIST_BYTES`].
    #[must_use]
    pub fn list<'room>(&self, name: &[u16], room: &'room mut [u16; REGISTRY_LIST_BYTES / 2]) -> Option<&'room [u16]> {
        let name = unicode(name);
        let (mut length, mut kind) = (0, 0);
        // SAFETY: the key is open (invariant); the name and the places live until the call returns, and `room` has as many
        // bytes as are said.
        let status = unsafe {
            call_unsafe_wdf_function_binding!(
                WdfRegistryQueryValue,
                self.key,
                &raw const name,
                size::<[u16; REGISTRY_LIST_BYTES / 2]>(),
                room.as_mut_ptr().cast(),
                &raw mut length,
                &raw mut kind
            )
        };
        check(status).ok()?;
        let units = usize::try_from(length).ok()? / 2;
        (kind == TYPE_LIST).then(|| room.get(..units))?
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key is open and ours (invariant), and not used again.
        unsafe { call_unsafe_wdf_function_binding!(WdfRegistryClose, self.key) };
    }
}
