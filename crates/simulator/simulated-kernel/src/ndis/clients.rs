//! Protocols and filters: their registrations. Nothing is bound here: neither is shown an adapter.

use std::sync::Mutex;

use litemap::LiteMap;
use ndis::{DRIVER_OBJECT, NDIS_STATUS};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NtStatus,
    status::{NDIS_STATUS_BAD_VERSION, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};

use super::structure::{ndis_routine, pointer};
use crate::{
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
    state::{Part, State},
};

/// `NDIS_STATUS_BAD_CHARACTERISTICS`.
const BAD_CHARACTERISTICS: NDIS_STATUS = NtStatus(0xC001_0005_u32.cast_signed());

/// What registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Protocol,
    Filter,
}

/// What the two structures have in common: how they begin, how long each revision is, and where their owed handlers are.
struct Layout {
    kind: Kind,
    object_type: u8,
    sizes: &'static [u16],
    owed: &'static [(usize, &'static str)],
}

const PROTOCOL: Layout = Layout {
    kind: Kind::Protocol,
    object_type: 0x95,
    sizes: &[120, 128],
    owed: &[
        (40, "BindAdapterHandlerEx"),
        (48, "UnbindAdapterHandlerEx"),
        (56, "OpenAdapterCompleteHandlerEx"),
        (64, "CloseAdapterCompleteHandlerEx"),
        (72, "NetPnPEventHandler"),
        (88, "OidRequestCompleteHandler"),
        (96, "StatusHandlerEx"),
        (104, "ReceiveNetBufferListsHandler"),
        (112, "SendNetBufferListsCompleteHandler"),
    ],
};

const FILTER: Layout = Layout {
    kind: Kind::Filter,
    object_type: 0x8B,
    sizes: &[200, 224, 248],
    owed: &[(80, "AttachHandler"), (88, "DetachHandler"), (96, "RestartHandler"), (104, "PauseHandler")],
};

/// A registration.
struct Client {
    owner: DriverId,
    kind: Kind,
}

/// The registrations, by their handles.
#[derive(Default)]
pub struct Clients(LiteMap<usize, Client>);

impl Part for Mutex<Clients> {}

impl State {
    /// A driver is unloaded: it may not be registered.
    pub fn check_ndis_clients(&self, driver: DriverId, name: &str) {
        let left = self.locked::<Clients>().0.values().find(|client| client.owner == driver).map(|client| client.kind);
        if let Some(kind) = left {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left itself registered as a {kind:?}"));
        }
    }

    /// Whether that is the handle of a filter of this driver.
    pub fn is_filter(&self, driver: DriverId, handle: usize) -> bool {
        let clients = self.locked::<Clients>();
        clients.0.get(&handle).is_some_and(|client| (client.owner, client.kind) == (driver, Kind::Filter))
    }

    fn register_client(&self, layout: &Layout, characteristics: *const u8, place: *mut NDIS_HANDLE) -> NDIS_STATUS {
        if characteristics.is_null() || place.is_null() {
            bug_check(
                Rule::BadArgument,
                format_args!("a {:?} registers without characteristics or a place", layout.kind),
            );
        }
        // SAFETY: the driver's structure begins with a header.
        let header = unsafe { characteristics.cast::<NDIS_OBJECT_HEADER>().read_unaligned() };
        let size = usize::from(header.Revision).checked_sub(1).and_then(|revision| layout.sizes.get(revision));
        if header.Type != layout.object_type || size.is_none_or(|&size| header.Size < size) {
            bug_check(
                Rule::NdisHeader,
                format_args!("the characteristics of a {:?} begin with {header:?}", layout.kind),
            );
        }
        // SAFETY: the structure has the versions behind its header.
        let major = unsafe { characteristics.add(4).read() };
        if major != 6 {
            return NDIS_STATUS_BAD_VERSION;
        }
        let is_missing = |&&(offset, _): &&(usize, &str)| {
            // SAFETY: the header says that the structure has this field, a pointer.
            unsafe { characteristics.add(offset).cast::<usize>().read_unaligned() == 0 }
        };
        if layout.owed.iter().any(|owed| is_missing(&owed)) {
            // NDIS refuses it: so a driver that looks at the status finds out by itself.
            return BAD_CHARACTERISTICS;
        }
        if self.strikes() {
            return NDIS_STATUS_RESOURCES;
        }
        let handle = self.new_handle();
        self.locked::<Clients>().0.insert(handle, Client { owner: context::caller(), kind: layout.kind });
        // SAFETY: the driver's place, which lives until the call returns.
        unsafe { place.write(pointer(handle)) };
        NDIS_STATUS_SUCCESS
    }

    fn deregister_client(&self, kind: Kind, handle: NDIS_HANDLE) {
        let mut clients = self.locked::<Clients>();
        let is_one = clients.0.get(&handle.addr()).is_some_and(|client| client.kind == kind);
        if is_one {
            clients.0.remove(&handle.addr());
            return;
        }
        drop(clients);
        bug_check(Rule::BadHandle, format_args!("{handle:p} is no registration of a {kind:?}, or was one"));
    }
}

#[unsafe(no_mangle)]
extern "system" fn NdisRegisterProtocolDriver(
    _context: NDIS_HANDLE,
    characteristics: *const u8,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisRegisterProtocolDriver", PASSIVE_LEVEL, |state| {
        state.register_client(&PROTOCOL, characteristics, place)
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisDeregisterProtocolDriver(handle: NDIS_HANDLE) {
    ndis_routine!("NdisDeregisterProtocolDriver", PASSIVE_LEVEL, |state| {
        state.deregister_client(Kind::Protocol, handle);
    });
}

#[unsafe(no_mangle)]
extern "system" fn NdisFRegisterFilterDriver(
    object: *mut DRIVER_OBJECT,
    _context: NDIS_HANDLE,
    characteristics: *const u8,
    place: *mut NDIS_HANDLE,
) -> NDIS_STATUS {
    ndis_routine!("NdisFRegisterFilterDriver", PASSIVE_LEVEL, |state| {
        let driver = context::caller();
        let is_own = state.drivers().get(&driver).is_some_and(|loaded| loaded.object == object.addr());
        if !is_own {
            bug_check(Rule::BadArgument, format_args!("a filter registers without its driver object"));
        }
        state.register_client(&FILTER, characteristics, place)
    })
}

#[unsafe(no_mangle)]
extern "system" fn NdisFDeregisterFilterDriver(handle: NDIS_HANDLE) {
    ndis_routine!("NdisFDeregisterFilterDriver", PASSIVE_LEVEL, |state| {
        state.deregister_client(Kind::Filter, handle);
    });
}
