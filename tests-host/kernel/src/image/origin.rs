//! Whose call it is: what a thunk notes on the way from an image to the kernel.

use std::sync::OnceLock;

use windows_sys::Win32::System::Threading::{TlsAlloc, TlsGetValue, TlsSetValue};

use crate::context::DriverId;

/// Two slots of each thread: the driver, and the address to which its call returns.
#[derive(Clone, Copy)]
pub struct Slots {
    pub driver: u32,
    pub site: u32,
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
        Slots { driver: slot(), site: slot() }
    })
}

/// The driver whose thunk was passed since the last call of this function, and the address to which its call returns.
pub fn origin() -> Option<(DriverId, usize)> {
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
    Some((DriverId(u32::try_from(driver).unwrap_or(0)), site))
}

/// Notes a call that goes through no thunk: an instruction that the kernel carries out for an image.
pub fn note(driver: Option<DriverId>, site: usize) {
    let Some(DriverId(driver)) = driver else { return };
    let slots = slots();
    // SAFETY: a slot of this process.
    unsafe { TlsSetValue(slots.site, std::ptr::without_provenance(site)) };
    // SAFETY: a slot of this process.
    unsafe { TlsSetValue(slots.driver, std::ptr::without_provenance(driver as usize)) };
}
