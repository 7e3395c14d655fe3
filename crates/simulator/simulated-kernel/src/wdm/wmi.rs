//! Data blocks of WMI, as far as a driver opens them. Nobody provides any here: what is asked for is not found, and no event ever comes.

use std::{ptr, sync::Mutex};

use litemap::LiteMap;
use wdk_bindings::{
    GUID, NTSTATUS, PDEVICE_OBJECT, PVOID, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
    ULONG,
};

use super::references::To;
use crate::{
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// `STATUS_WMI_GUID_NOT_FOUND`.
const NOT_FOUND: NTSTATUS = 0xC000_0295_u32.cast_signed();
/// `WMIGUID_NOTIFICATION`: a block may be opened for its events before anybody provides it.
const NOTIFICATION: ULONG = 4;

/// The data blocks that are open, and whether they have a callback.
#[derive(Default)]
pub struct DataBlocks(LiteMap<usize, bool>);

impl Part for Mutex<DataBlocks> {}

impl State {
    /// Counts references to a data block, which is closed with the last one. `None` if the object is none.
    pub fn count_data_block(&self, object: usize, by: i64) -> Option<i64> {
        if !self.locked::<DataBlocks>().0.contains_key(&object) {
            return None;
        }
        let left = self.refer(object, To::Wmi, by).unwrap_or_else(|| {
            bug_check(
                Rule::ReferenceUnderflow,
                format_args!("a data block of WMI is dereferenced by another driver than its own"),
            )
        });
        if left == 0 {
            self.locked::<DataBlocks>().0.remove(&object);
        }
        Some(left)
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoWMIOpenBlock(kind: *const GUID, access: ULONG, place: *mut PVOID) -> NTSTATUS {
    routine!("IoWMIOpenBlock", PASSIVE_LEVEL, |state| {
        if kind.is_null() || place.is_null() {
            bug_check(Rule::BadArgument, format_args!("IoWMIOpenBlock without a GUID, or a place"));
        }
        if access & NOTIFICATION == 0 {
            return NOT_FOUND;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let object = 0xFA30_0000_0000 + 16 * usize::try_from(state.next()).unwrap_or(0);
        state.locked::<DataBlocks>().0.insert(object, false);
        state.refer(object, To::Wmi, 1);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(ptr::without_provenance_mut(object)) };
        STATUS_SUCCESS
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoWMISetNotificationCallback(object: PVOID, callback: PVOID, _context: PVOID) -> NTSTATUS {
    routine!("IoWMISetNotificationCallback", PASSIVE_LEVEL, |state| {
        if callback.is_null() {
            return STATUS_INVALID_PARAMETER;
        }
        let mut blocks = state.locked::<DataBlocks>();
        let Some(has_callback) = blocks.0.get_mut(&object.addr()) else {
            drop(blocks);
            bug_check(Rule::BadHandle, format_args!("{object:p} is no data block of WMI, or was closed"));
        };
        *has_callback = true;
        STATUS_SUCCESS
    })
}

/// A number that tells one device from another.
#[unsafe(no_mangle)]
extern "C" fn IoWMIDeviceObjectToProviderId(device: PDEVICE_OBJECT) -> ULONG {
    routine!("IoWMIDeviceObjectToProviderId", HIGH_LEVEL, |_| {
        if device.is_null() {
            bug_check(Rule::BadArgument, format_args!("a provider of WMI without a device"));
        }
        // The low half of an address is as good as any number.
        let [low @ .., _, _, _, _] = (device.addr() as u64).to_le_bytes();
        ULONG::from_le_bytes(low)
    })
}
