//! Protocols and filters: their registrations. Protocols are [bound](super::bind) to adapters, filters [attached](super::attach) between.

use std::{
    ffi::c_void,
    sync::{Arc, Mutex},
};

use litemap::LiteMap;
use ndis::{NDIS_OID_REQUEST, NDIS_STATUS, NDIS_STATUS_INDICATION, NET_BUFFER_LIST};
use ndkpi::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NET_PNP_EVENT_NOTIFICATION, NtStatus,
    status::{NDIS_STATUS_BAD_VERSION, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS},
};

use super::{filter::Filter, structure::pointer};
use crate::{
    context::{self, DriverId},
    report::bug_check,
    rule::Rule,
    state::{Part, State},
};

/// `NDIS_STATUS_BAD_CHARACTERISTICS`.
pub const BAD_CHARACTERISTICS: NDIS_STATUS = NtStatus(0xC001_0005_u32.cast_signed());

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
    sizes: &[200, 224, 240],
    owed: &[(80, "AttachHandler"), (88, "DetachHandler"), (96, "RestartHandler"), (104, "PauseHandler")],
};

/// `NDIS_PROTOCOL_DRIVER_CHARACTERISTICS` as far as each revision has it. That the handlers are there was checked, but for the first and the
/// seventh, which nobody owes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProtocolHandlers {
    header: NDIS_OBJECT_HEADER,
    versions: [u8; 4],
    flags: u32,
    name: [usize; 2],
    set_options: usize,
    pub bind: Option<unsafe extern "system" fn(NDIS_HANDLE, NDIS_HANDLE, *const c_void) -> NDIS_STATUS>,
    pub unbind: Option<unsafe extern "system" fn(NDIS_HANDLE, NDIS_HANDLE) -> NDIS_STATUS>,
    pub open_complete: Option<unsafe extern "system" fn(NDIS_HANDLE, NDIS_STATUS)>,
    pub close_complete: Option<unsafe extern "system" fn(NDIS_HANDLE)>,
    pub event: Option<unsafe extern "system" fn(NDIS_HANDLE, *mut NET_PNP_EVENT_NOTIFICATION) -> NDIS_STATUS>,
    uninstall: usize,
    pub oid_complete: Option<unsafe extern "system" fn(NDIS_HANDLE, *mut NDIS_OID_REQUEST, NDIS_STATUS)>,
    pub status: Option<unsafe extern "system" fn(NDIS_HANDLE, *const NDIS_STATUS_INDICATION)>,
    pub receive: Option<unsafe extern "system" fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32, u32, u32)>,
    pub sent: Option<unsafe extern "system" fn(NDIS_HANDLE, *mut NET_BUFFER_LIST, u32)>,
}

const _: () = assert!(size_of::<ProtocolHandlers>() == 120, "as long as the first revision");

/// A protocol that is registered.
pub struct Protocol {
    pub handle: usize,
    pub owner: DriverId,
    /// What it has registered with, which its bind handler gets.
    pub context: usize,
    pub handlers: ProtocolHandlers,
}

/// A registration.
struct Client {
    owner: DriverId,
    kind: Kind,
    protocol: Option<Arc<Protocol>>,
    filter: Option<Arc<Filter>>,
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

    /// The protocols, in the order of their registrations.
    pub fn protocols(&self) -> Vec<Arc<Protocol>> {
        self.locked::<Clients>().0.values().filter_map(|client| client.protocol.clone()).collect()
    }

    /// The protocol with that handle.
    pub fn protocol(&self, handle: usize) -> Option<Arc<Protocol>> {
        self.locked::<Clients>().0.get(&handle).and_then(|client| client.protocol.clone())
    }

    /// The filters, in the order of their registrations.
    pub fn filters(&self) -> Vec<Arc<Filter>> {
        self.locked::<Clients>().0.values().filter_map(|client| client.filter.clone()).collect()
    }

    /// The filter with that handle.
    pub fn filter(&self, handle: usize) -> Option<Arc<Filter>> {
        self.locked::<Clients>().0.get(&handle).and_then(|client| client.filter.clone())
    }

    /// Whose the registration with that handle is.
    pub fn client(&self, handle: usize) -> Option<DriverId> {
        self.locked::<Clients>().0.get(&handle).map(|client| client.owner)
    }

    /// Registers a protocol, which is bound to nothing yet.
    pub fn register_protocol(
        &self,
        context: NDIS_HANDLE,
        characteristics: *const u8,
        place: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS {
        self.register_client(&PROTOCOL, context, characteristics, place)
    }

    /// Ends the registration of a protocol, which is bound to nothing any more.
    pub fn deregister_protocol(&self, handle: NDIS_HANDLE) {
        self.deregister_client(Kind::Protocol, handle);
    }

    /// Registers a filter, which is attached to nothing yet.
    pub fn register_filter(
        &self,
        context: NDIS_HANDLE,
        characteristics: *const u8,
        place: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS {
        self.register_client(&FILTER, context, characteristics, place)
    }

    /// Ends the registration of a filter, which is attached to nothing any more.
    pub fn deregister_filter(&self, handle: NDIS_HANDLE) {
        self.deregister_client(Kind::Filter, handle);
    }

    fn register_client(
        &self,
        layout: &Layout,
        context: NDIS_HANDLE,
        characteristics: *const u8,
        place: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS {
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
        let owner = context::caller();
        let protocol = (layout.kind == Kind::Protocol).then(|| {
            // SAFETY: the header says that the structure is at least as long as the first revision.
            let handlers = unsafe { characteristics.cast::<ProtocolHandlers>().read_unaligned() };
            Arc::new(Protocol { handle, owner, context: context.expose_provenance(), handlers })
        });
        let filter = (layout.kind == Kind::Filter).then(|| {
            // SAFETY: the header says that the structure is as long as its revision.
            unsafe { Filter::read(characteristics, handle, owner, context.expose_provenance()) }
        });
        self.locked::<Clients>().0.insert(handle, Client { owner, kind: layout.kind, protocol, filter });
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
