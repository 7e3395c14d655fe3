//! Queries for an interface of a driver (`IRP_MN_QUERY_INTERFACE`), which go down the whole stack of a device. Who answers, and what the
//! drivers below may do to the answer, is that of the framework's published source (`FxPkgPnp::HandleQueryInterface`).

use std::sync::{Arc, atomic::Ordering::Acquire};

use wdk_bindings::{
    GUID, INTERFACE, LPCGUID, NTSTATUS, PINTERFACE, PVOID, PWDF_DRIVER_GLOBALS, PWDF_QUERY_INTERFACE_CONFIG,
    STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER,
    STATUS_NOT_SUPPORTED, STATUS_SUCCESS, USHORT, WDF_QUERY_INTERFACE_CONFIG, WDFDEVICE, WDFIOTARGET,
};

use super::{
    device::{DeviceObject, QueryInterface, device},
    function::{entry, function},
    target::target,
};
use crate::{
    argument::{check_size, same},
    context,
    report::bug_check,
    routine::routine,
    rule::Rule,
    state::{State, lock},
};

/// A query, and where the answer goes.
#[derive(Clone, Copy)]
pub struct Query {
    pub kind: GUID,
    pub place: PINTERFACE,
    pub size: USHORT,
    pub version: USHORT,
    pub specific: PVOID,
}

/// What the framework puts where a driver has no routine.
unsafe extern "C" fn nothing(_: PVOID) {}

impl State {
    /// Asks the drivers of a stack, from the highest on. Each that knows the interface fills it in; the bus leaves it as it is.
    pub fn query_interface(&self, of: &Arc<DeviceObject>, query: &Query) -> NTSTATUS {
        let mut status = STATUS_NOT_SUPPORTED;
        let mut next = Some(of.stack_top());
        while let Some(device) = next {
            match self.answer_query(&device, query) {
                None => {}
                Some(said) if said < 0 && said != STATUS_NOT_SUPPORTED => return said,
                Some(said) => status = said,
            }
            next = device.lower.get().cloned();
        }
        status
    }

    /// What the driver of a device says to a query. `None` if it has no such interface.
    #[expect(clippy::unused_self, reason = "only a running kernel answers")]
    fn answer_query(&self, device: &DeviceObject, query: &Query) -> Option<NTSTATUS> {
        let found = lock(&device.queries).iter().find(|one| same(&one.kind, &query.kind)).cloned()?;
        if let Some((bytes, size)) = &found.exposed {
            // SAFETY: the copy is at least as long as the structure, and aligned to eight bytes.
            let interface = unsafe { bytes.as_ptr().cast::<INTERFACE>().read() };
            // A later version than the one there is is served with that one.
            if interface.Version > query.version || usize::from(query.size) < *size {
                return Some(STATUS_INVALID_BUFFER_SIZE);
            }
            if !found.imports {
                // SAFETY: the caller's place has as many bytes as it says, which are not fewer than those copied.
                unsafe { query.place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr().cast(), *size) };
            }
        }
        let status = found.process.map_or(STATUS_SUCCESS, |process| {
            let mut kind = query.kind;
            context::call(device.owner, "EvtDeviceProcessQueryInterfaceRequest", || {
                let handle = std::ptr::without_provenance_mut(device.handle.load(Acquire));
                // SAFETY: the driver's own callback, with a live handle and the places of the query.
                unsafe { process(handle, &raw mut kind, query.place, query.specific) }
            })
        });
        let is_refused = status < 0 && status != STATUS_NOT_SUPPORTED;
        if is_refused || usize::from(query.size) < size_of::<INTERFACE>() {
            return Some(status);
        }
        // SAFETY: the caller's place has room for the structure, and is filled in by now.
        let interface = unsafe { query.place.read_unaligned() };
        if let Some(reference) = interface.InterfaceReference {
            context::call(device.owner, "InterfaceReference", || {
                // SAFETY: the interface's own routine and context.
                unsafe { reference(interface.Context) };
            });
        }
        Some(status)
    }
}

pub extern "C" fn WdfDeviceAddQueryInterface(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    config: PWDF_QUERY_INTERFACE_CONFIG,
) -> NTSTATUS {
    function!("WdfDeviceAddQueryInterface", |state| {
        let (_, device) = device(state, handle);
        // SAFETY: the driver's structure, which lives until the call returns.
        let config = unsafe { config.read() };
        check_size::<WDF_QUERY_INTERFACE_CONFIG>(config.Size, "WDF_QUERY_INTERFACE_CONFIG");
        if device.control {
            return STATUS_INVALID_DEVICE_REQUEST;
        }
        let imports = config.ImportInterface != 0;
        // Queries for the parent's stack are those of a bus driver's devices, of which there are none here.
        let is_parents = config.SendQueryToParentStack != 0;
        let lacks_callback = imports && config.EvtDeviceProcessQueryInterfaceRequest.is_none();
        let lacks_interface = config.Interface.is_null() && !imports;
        if config.InterfaceType.is_null() || is_parents || lacks_callback || lacks_interface {
            return STATUS_INVALID_PARAMETER;
        }
        let size = if config.Interface.is_null() {
            0
        } else {
            // SAFETY: not null, so the driver's structure, which lives until the call returns.
            usize::from(unsafe { (*config.Interface).Size })
        };
        if !config.Interface.is_null() && size < size_of::<INTERFACE>() {
            return STATUS_INVALID_PARAMETER;
        }
        if state.strikes() {
            return STATUS_INSUFFICIENT_RESOURCES;
        }
        let exposed = (size > 0).then(|| {
            let mut bytes = vec![0_u64; size.div_ceil(8)];
            // SAFETY: the driver's structure has as many bytes as it says, and the copy has room for them.
            unsafe { bytes.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(config.Interface.cast(), size) };
            // SAFETY: the copy is at least as long as the structure, and aligned to eight bytes.
            let interface = unsafe { &mut *bytes.as_mut_ptr().cast::<INTERFACE>() };
            interface.InterfaceReference.get_or_insert(nothing);
            interface.InterfaceDereference.get_or_insert(nothing);
            (bytes, size)
        });
        // SAFETY: the driver's identifier, which lives until the call returns.
        let kind = unsafe { config.InterfaceType.read() };
        let process = config.EvtDeviceProcessQueryInterfaceRequest;
        lock(&device.queries).push(QueryInterface { kind, exposed, process, imports });
        STATUS_SUCCESS
    })
}

/// Asks a stack for a driver.
///
/// # Safety
///
/// `kind` is the driver's identifier, and `place` has room for `size` bytes.
unsafe fn ask(
    state: &State,
    of: &Arc<DeviceObject>,
    kind: LPCGUID,
    (place, size, version, specific): (PINTERFACE, USHORT, USHORT, PVOID),
) -> NTSTATUS {
    if kind.is_null() || place.is_null() {
        bug_check(Rule::BadArgument, format_args!("a query without an interface's identifier or a place for it"));
    }
    if state.strikes() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    // SAFETY: the driver's identifier, which lives until the call returns (`# Safety`).
    let kind = unsafe { kind.read() };
    state.query_interface(of, &Query { kind, place, size, version, specific })
}

/// Asks the whole stack of the device, and not what is below it only.
pub extern "C" fn WdfFdoQueryForInterface(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFDEVICE,
    kind: LPCGUID,
    place: PINTERFACE,
    size: USHORT,
    version: USHORT,
    specific: PVOID,
) -> NTSTATUS {
    routine!("WdfFdoQueryForInterface", PASSIVE_LEVEL, |state| {
        let (_, device) = device(state, handle);
        if device.is_of_miniport() {
            bug_check(Rule::NotSimulated, format_args!("a query for an interface below a miniport's device"));
        }
        if device.control {
            return STATUS_INVALID_PARAMETER;
        }
        // SAFETY: the driver's identifier and place, which live until the call returns.
        unsafe { ask(state, &device, kind, (place, size, version, specific)) }
    })
}

/// Asks the whole stack that the target leads to: also of the target of what is below a device, whose stack has that device too.
pub extern "C" fn WdfIoTargetQueryForInterface(
    _globals: PWDF_DRIVER_GLOBALS,
    handle: WDFIOTARGET,
    kind: LPCGUID,
    place: PINTERFACE,
    size: USHORT,
    version: USHORT,
    specific: PVOID,
) -> NTSTATUS {
    function!("WdfIoTargetQueryForInterface", |state| {
        let target = target(state, handle);
        let device = match target.leads_to() {
            Ok(Some((device, _))) => device,
            Ok(None) => target.device.clone(),
            Err(status) => return status,
        };
        // SAFETY: the driver's identifier and place, which live until the call returns.
        unsafe { ask(state, &device, kind, (place, size, version, specific)) }
    })
}

/// What the bindings of the drivers' crates have no type and no index for.
pub fn entries() -> [(&'static str, *const ()); 1] {
    [entry!(WdfFdoQueryForInterface)]
}
