//! Properties of devices: what this kernel's bus, which is that of devices that are made by the root, can say of each.

use wdk_bindings::{
    NTSTATUS, PDEVICE_OBJECT, PULONG, PVOID, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_PARAMETER_2, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, ULONG,
};

use crate::{context::NOBODY, report::bug_check, routine::routine, rule::Rule};

/// `DevicePropertyEnumeratorName`, `-Address`, `-UINumber`, `-InstallState` and `-ContainerID`, the last one.
const ENUMERATOR_NAME: i32 = 15;
const ADDRESS: i32 = 16;
const UI_NUMBER: i32 = 17;
const INSTALL_STATE: i32 = 18;
const LAST: i32 = 22;
/// As the links of device interfaces begin.
const ENUMERATOR: &str = "ROOT";
/// What a bus says that has no addresses or numbers, and that a device is installed.
const NO_NUMBER: u32 = u32::MAX;
const INSTALLED: u32 = 0;

/// A property of a device.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER_2` if there is none of that number, `STATUS_OBJECT_NAME_NOT_FOUND` if the device does not have it.
pub fn value(property: i32) -> Result<Vec<u8>, NTSTATUS> {
    match property {
        ENUMERATOR_NAME => {
            let units = ENUMERATOR.encode_utf16().chain(std::iter::once(0));
            Ok(units.flat_map(u16::to_le_bytes).collect())
        }
        ADDRESS | UI_NUMBER => Ok(NO_NUMBER.to_le_bytes().to_vec()),
        INSTALL_STATE => Ok(INSTALLED.to_le_bytes().to_vec()),
        0..=LAST => Err(STATUS_OBJECT_NAME_NOT_FOUND),
        _ => Err(STATUS_INVALID_PARAMETER_2),
    }
}

/// Gives a driver a property, in a buffer of so many bytes.
pub fn answer(property: i32, length: ULONG, buffer: PVOID, result: PULONG) -> NTSTATUS {
    if result.is_null() || length != 0 && buffer.is_null() {
        bug_check(Rule::BadArgument, format_args!("a property without a place for it, or for its length"));
    }
    let (bytes, status) = match value(property) {
        Ok(bytes) if bytes.len() > length as usize => (bytes, STATUS_BUFFER_TOO_SMALL),
        Ok(bytes) => (bytes, STATUS_SUCCESS),
        Err(status) => (Vec::new(), status),
    };
    if status == STATUS_SUCCESS {
        // SAFETY: the driver's buffer, which has room for as many bytes.
        unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
    // SAFETY: not null, so the driver's place, which lives until the call returns.
    unsafe { result.write(ULONG::try_from(bytes.len()).unwrap_or(ULONG::MAX)) };
    status
}

#[unsafe(no_mangle)]
extern "C" fn IoGetDeviceProperty(
    device: PDEVICE_OBJECT,
    property: i32,
    length: ULONG,
    buffer: PVOID,
    result: PULONG,
) -> NTSTATUS {
    routine!("IoGetDeviceProperty", PASSIVE_LEVEL, |state| {
        // The bus driver's own is the system's.
        if state.device_at(device).owner != NOBODY {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        answer(property, length, buffer, result)
    })
}
