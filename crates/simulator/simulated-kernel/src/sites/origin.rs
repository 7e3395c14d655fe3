//! Whose call it is: what a thunk notes on the way from an image to the kernel.

use std::sync::OnceLock;

use windows_sys::Win32::System::Threading::{TlsAlloc, TlsGetValue, TlsSetValue};

use crate::running::DriverId;

/// Slots of each thread: the driver, the address to which its call returns, and the stack pointer at the call.
#[derive(Clone, Copy)]
pub struct Slots {
    pub driver: u32,
    pub site: u32,
    pub stack: u32,
}

/// A call of an image.
#[derive(Clone, Copy)]
pub struct Origin {
    pub driver: DriverId,
    /// The address to which it returns.
    pub site: usize,
    /// The caller's stack pointer when it has returned.
    pub stack: usize,
}

/// Where the slots of a thread lie in its block, which `gs` points to.
const IN_BLOCK: u32 = 0x1480;
/// As many slots lie there.
const DIRECT: u32 = 64;

/// The offset of a slot from `gs`.
pub const fn offset(slot: u32) -> u32 {
    IN_BLOCK + 8 * slot
}

/// The slots of this process.
pub fn slots() -> Slots {
    static SLOTS: OnceLock<Slots> = OnceLock::new();
    *SLOTS.get_or_init(|| {
        let slot = || {
            // SAFETY: the call has no conditions.
            let slot = unsafe { TlsAlloc() };
            assert!(slot < DIRECT, "the process has no slots left that thunks can reach");
            slot
        };
        Slots { driver: slot(), site: slot(), stack: slot() }
    })
}

/// The call that has passed a thunk since this function was last called.
pub fn origin() -> Option<Origin> {
    let slots = slots();
    // SAFETY: a slot of this process.
    let driver = unsafe { TlsGetValue(slots.driver) }.addr();
    if driver == 0 {
        return None;
    }
    // SAFETY: a slot of this process.
    unsafe { TlsSetValue(slots.driver, std::ptr::null()) };
    // SAFETY: a slot of this process.
    let site = unsafe { TlsGetValue(slots.site) }.addr();
    // SAFETY: a slot of this process.
    let stack = unsafe { TlsGetValue(slots.stack) }.addr();
    let driver = DriverId(u32::try_from(driver).unwrap_or(0));
    Some(Origin { driver, site, stack: stack + size_of::<usize>() })
}

/// Notes a call that goes through no thunk: an instruction that the kernel carries out for an image, which leaves the stack as it is.
pub fn note(driver: Option<DriverId>, site: usize, stack: usize) {
    let Some(DriverId(driver)) = driver else { return };
    let slots = slots();
    // SAFETY: a slot of this process.
    unsafe {
        TlsSetValue(slots.site, std::ptr::without_provenance(site));
        TlsSetValue(slots.stack, std::ptr::without_provenance(stack - size_of::<usize>()));
        TlsSetValue(slots.driver, std::ptr::without_provenance(driver as usize));
    }
}
