//! Keys of the registry that each device has: one for what is known of the device, one for its driver. They outlive the device.

use std::sync::Mutex;

use litemap::LiteMap;
use wdk_bindings::{
    ACCESS_MASK, NTSTATUS, PDEVICE_OBJECT, PHANDLE, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER,
    STATUS_SUCCESS, ULONG,
};

use super::registry::open_at;
use crate::{
    context::{self, NOBODY},
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
};

/// `PLUGPLAY_REGKEY_DEVICE`, `PLUGPLAY_REGKEY_DRIVER` and `PLUGPLAY_REGKEY_CURRENT_HWPROFILE`.
const DEVICE: ULONG = 1;
const DRIVER: ULONG = 2;
const IN_PROFILE: ULONG = 4;
/// Where the two keys of each device are.
const ENUM: &str = r"\Registry\Machine\System\CurrentControlSet\Enum\ROOT";
const CLASS: &str = r"\Registry\Machine\System\CurrentControlSet\Control\Class";

/// How the devices of the bus are called that somebody has asked for a key of: by the address of the device.
#[derive(Default)]
pub struct Instances(LiteMap<usize, String>);

impl Part for Mutex<Instances> {}

impl State {
    /// The name of a device among those of its bus: of the driver that is the first to ask, and the first number that none of its devices
    /// has. So a device that comes back finds its keys.
    fn instance(&self, physical: usize) -> String {
        let service = self.drivers().get(&context::caller()).map(|driver| driver.name.clone()).unwrap_or_default();
        let mut instances = self.locked::<Instances>();
        if let Some(known) = instances.0.get(&physical) {
            return known.clone();
        }
        let names = (0..=instances.0.len()).map(|number| format!(r"{service}\{number:04}"));
        let free = names.into_iter().find(|name| !instances.0.values().any(|taken| taken == name));
        let name = free.unwrap_or(service);
        instances.0.insert(physical, name.clone());
        name
    }

    /// The device is gone, and its name free.
    pub fn forget_instance(&self, physical: usize) {
        self.locked::<Instances>().0.remove(&physical);
    }

    /// The path of a key of a device of the bus, which is there from now on. `None` if there is no such kind of key.
    pub fn device_key(&self, physical: usize, kind: ULONG) -> Option<String> {
        if kind & IN_PROFILE != 0 && [DEVICE, DRIVER].contains(&(kind & !IN_PROFILE)) {
            bug_check(Rule::NotSimulated, format_args!("a key of a device in a hardware profile"));
        }
        let path = match kind {
            DEVICE => format!(r"{ENUM}\{}\Device Parameters", self.instance(physical)),
            DRIVER => format!(r"{CLASS}\{}", self.instance(physical)),
            _ => return None,
        };
        self.found_key(&path);
        Some(path)
    }
}

#[unsafe(no_mangle)]
extern "C" fn IoOpenDeviceRegistryKey(
    device: PDEVICE_OBJECT,
    kind: ULONG,
    _access: ACCESS_MASK,
    place: PHANDLE,
) -> NTSTATUS {
    routine!("IoOpenDeviceRegistryKey", PASSIVE_LEVEL, |state| {
        let physical = state.device_at(device);
        if physical.owner != NOBODY {
            return STATUS_INVALID_PARAMETER;
        }
        let Some(path) = state.device_key(physical.address, kind) else { return STATUS_INVALID_PARAMETER };
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let key = open_at(state, path, 0);
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(key) };
        STATUS_SUCCESS
    })
}
