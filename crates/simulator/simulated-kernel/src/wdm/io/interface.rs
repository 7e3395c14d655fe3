//! Device interfaces that drivers of plain WDM register, enable and disable. Those of the framework are in its devices; what is enabled, and
//! who is told, is one table (`wdm/notification.rs`).

use std::sync::{Arc, Mutex};

use wdk_bindings::{
    BOOLEAN, GUID, NTSTATUS, PDEVICE_OBJECT, PUNICODE_STRING, STATUS_INSUFFICIENT_RESOURCES,
    STATUS_INVALID_DEVICE_REQUEST, STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, ULONG, UNICODE_STRING,
};

use super::device::{Device, link_name};
use crate::{
    argument::same,
    context::{self, DriverId, NOBODY},
    pool,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{Part, State},
    text,
};

/// What was asked for is there already. A success in form.
pub const STATUS_OBJECT_NAME_EXISTS: NTSTATUS = 0x4000_0000;
/// The tag of the names that drivers get, and free.
const TAG: u32 = u32::from_ne_bytes(*b"Pp  ");
/// `DEVICE_INTERFACE_INCLUDE_NONACTIVE`.
const NOT_ACTIVE_TOO: ULONG = 1;

/// An interface that a driver has registered.
struct Interface {
    class: GUID,
    link: Vec<u16>,
    /// The driver's reference string; empty without one.
    reference: String,
    /// The address of the bus driver's device.
    physical: usize,
    enabled: bool,
}

/// Interfaces, and the devices that are started: before that nobody hears of an interface, or opens it.
#[derive(Default)]
pub struct Interfaces {
    all: Vec<Interface>,
    started: Vec<usize>,
}

impl Part for Mutex<Interfaces> {}

impl Interfaces {
    /// The enabled interfaces of a device, as everybody is told of them.
    fn enabled_of(&self, physical: usize) -> Vec<(GUID, Vec<u16>)> {
        let own = self.all.iter().filter(|one| one.physical == physical && one.enabled);
        own.map(|one| (one.class, one.link.clone())).collect()
    }
}

impl State {
    /// All drivers of a device have started it: what they have enabled can be opened.
    pub fn device_started(self: &Arc<Self>, physical: &Device) {
        let enabled = {
            let mut interfaces = self.locked::<Interfaces>();
            interfaces.started.push(physical.address);
            interfaces.enabled_of(physical.address)
        };
        self.interfaces_change(&enabled, true);
    }

    /// A device goes, and with it its interfaces, which the system disables if its driver has not.
    pub fn device_gone(self: &Arc<Self>, physical: &Device) {
        let (left, was_started) = {
            let mut interfaces = self.locked::<Interfaces>();
            let left = interfaces.enabled_of(physical.address);
            let was_started = interfaces.started.contains(&physical.address);
            interfaces.all.retain(|one| one.physical != physical.address);
            interfaces.started.retain(|&one| one != physical.address);
            (left, was_started)
        };
        if was_started {
            self.interfaces_change(&left, false);
        }
    }

    /// The address of the bus driver's device behind an enabled interface with that name, and the interface's reference string, with a
    /// backslash in front.
    pub fn device_behind_interface(&self, link: &str) -> Option<(usize, String)> {
        let interfaces = self.locked::<Interfaces>();
        let wanted = link_name(link);
        let is_it = |one: &&Interface| one.enabled && link_name(&String::from_utf16_lossy(&one.link)) == wanted;
        let found = interfaces.all.iter().find(is_it)?;
        interfaces.started.contains(&found.physical).then(|| (found.physical, behind(&found.reference)))
    }

    /// The names of a device's interfaces that are enabled.
    pub fn interfaces_of(&self, physical: &Device) -> Vec<String> {
        let enabled = self.locked::<Interfaces>().enabled_of(physical.address);
        enabled.into_iter().map(|(_, link)| String::from_utf16_lossy(&link)).collect()
    }
}

/// A reference string as it stands behind the name of a device.
pub fn behind(reference: &str) -> String {
    if reference.is_empty() { String::new() } else { format!(r"\{reference}") }
}

/// The name of an interface of a device that has that number among those of its kind.
pub fn link_of(kind: &str, number: u64, class: &GUID, behind: &str) -> Vec<u16> {
    format!(r"\??\ROOT#{kind}#{number:04}#{{{:08x}}}{behind}", class.Data1).encode_utf16().collect()
}

/// A copy of text for a driver, which frees it.
fn copy(owner: DriverId, units: &[u16]) -> Option<*mut u16> {
    let block = pool::allocate_paged(owner, size_of_val(units).max(1), TAG)?;
    let place: *mut u16 = std::ptr::with_exposed_provenance_mut(block);
    for (index, &unit) in units.iter().enumerate() {
        // SAFETY: a new block with room for as many units.
        unsafe { place.wrapping_add(index).write_unaligned(unit) };
    }
    Some(place)
}

/// The name of an interface that is registered, and whether it was before.
fn register(state: &State, physical: &Device, class: GUID, reference: String) -> (Vec<u16>, bool) {
    let number = state.next();
    let mut interfaces = state.locked::<Interfaces>();
    let known = interfaces
        .all
        .iter()
        .find(|one| one.physical == physical.address && same(&one.class, &class) && one.reference == reference);
    if let Some(known) = known {
        return (known.link.clone(), true);
    }
    let link = link_of("PLAIN", number, &class, &behind(&reference));
    interfaces.all.push(Interface { class, link: link.clone(), reference, physical: physical.address, enabled: false });
    (link, false)
}

#[unsafe(no_mangle)]
extern "C" fn IoRegisterDeviceInterface(
    device: PDEVICE_OBJECT,
    class: *const GUID,
    reference: PUNICODE_STRING,
    place: PUNICODE_STRING,
) -> NTSTATUS {
    routine!("IoRegisterDeviceInterface", PASSIVE_LEVEL, |state| {
        let physical = state.device_at(device);
        let reference = text::text(reference);
        if physical.owner != NOBODY || reference.contains(['/', '\\']) {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        // SAFETY: the driver's identifier, which lives until the call returns.
        let (link, was_there) = register(state, &physical, unsafe { class.read() }, reference);
        let Some(buffer) = copy(context::caller(), &link) else { return STATUS_INSUFFICIENT_RESOURCES };
        let string = UNICODE_STRING { Buffer: buffer, ..text::unicode(&link) };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(string) };
        if was_there { STATUS_OBJECT_NAME_EXISTS } else { STATUS_SUCCESS }
    })
}

#[unsafe(no_mangle)]
extern "C" fn IoSetDeviceInterfaceState(link: PUNICODE_STRING, enable: BOOLEAN) -> NTSTATUS {
    routine!("IoSetDeviceInterfaceState", |state| {
        let (link, enable) = (text::units(link), enable != 0);
        let change = {
            let mut interfaces = state.locked::<Interfaces>();
            let Some(index) = interfaces.all.iter().position(|one| one.link == link) else {
                return STATUS_OBJECT_NAME_NOT_FOUND;
            };
            let one = &mut interfaces.all[index];
            if one.enabled == enable {
                return if enable { STATUS_OBJECT_NAME_EXISTS } else { STATUS_OBJECT_NAME_NOT_FOUND };
            }
            one.enabled = enable;
            let (class, physical) = (one.class, one.physical);
            interfaces.started.contains(&physical).then_some((class, link))
        };
        state.interfaces_change(change.as_slice(), enable);
        STATUS_SUCCESS
    })
}

/// The list ends with a zero more, and is the driver's to free.
#[unsafe(no_mangle)]
extern "C" fn IoGetDeviceInterfaces(
    class: *const GUID,
    device: PDEVICE_OBJECT,
    flags: ULONG,
    place: *mut *mut u16,
) -> NTSTATUS {
    routine!("IoGetDeviceInterfaces", PASSIVE_LEVEL, |state| {
        if flags & !NOT_ACTIVE_TOO != 0 {
            bug_check(Rule::BadArgument, format_args!("IoGetDeviceInterfaces with the flags {flags:#x}"));
        }
        // SAFETY: the driver's identifier, which lives until the call returns.
        let class = unsafe { class.read() };
        let mut links = if device.is_null() { state.enabled_interfaces(&class) } else { Vec::new() };
        if !device.is_null() || flags & NOT_ACTIVE_TOO != 0 {
            let interfaces = state.locked::<Interfaces>();
            let own = interfaces.all.iter().filter(|one| {
                let is_wanted = device.is_null() || one.physical == device.addr();
                is_wanted && same(&one.class, &class) && (one.enabled || flags & NOT_ACTIVE_TOO != 0)
            });
            let new: Vec<_> = own.map(|one| one.link.clone()).filter(|link| !links.contains(link)).collect();
            links.extend(new);
        }
        let list: Vec<u16> = links.into_iter().flat_map(|link| link.into_iter().chain([0])).chain([0]).collect();
        let copied = if state.strikes() { None } else { copy(context::caller(), &list) };
        let Some(buffer) = copied else { return STATUS_INSUFFICIENT_RESOURCES };
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(buffer) };
        STATUS_SUCCESS
    })
}
