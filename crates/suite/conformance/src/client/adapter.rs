//! `NDK_ADAPTER` (`NDKPI 5.2`).

use core::{ffi::c_void, mem::size_of, ptr};

use ndkpi::{
    GROUP_AFFINITY, GUID, MDL, NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_CONNECTOR, NDK_CQ, NDK_EXTENSION_INTERFACE,
    NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_LISTENER, NDK_LOGICAL_ADDRESS_MAPPING, NDK_PD, NDK_SHARED_ENDPOINT,
    NDK_VERSION, NtStatus, SOCKADDR,
};

use super::{
    address::RawAddress,
    connector::{Connector, ConnectorCore},
    cq::{Cq, CqCore, Hook, notified},
    endpoint::{SharedEndpoint, SharedEndpointCore},
    lam::Mapping,
    life::{Kind, Life, Owned},
    listener::{ConnectHook, Listener, ListenerCore, connection_came},
    memory::Buffer,
    pd::{Pd, PdCore},
    request::{Pending, create, request_on_adapter},
    session::{CompletionKind, Session},
};
use crate::{
    case::{Check, Stop},
    platform::Platform,
};

/// An adapter as a session keeps it.
pub struct AdapterCore {
    raw: *mut NDK_ADAPTER,
    number: u32,
    version: NDK_VERSION,
    info: NDK_ADAPTER_INFO,
}

// SAFETY: the pointer is only passed to the adapter's functions, which any thread may call.
unsafe impl Send for AdapterCore {}
// SAFETY: as for `Send`.
unsafe impl Sync for AdapterCore {}

#[expect(clippy::cast_possible_truncation, reason = "a small structure")]
const INFO_SIZE: u32 = size_of::<NDK_ADAPTER_INFO>() as u32;

impl AdapterCore {
    /// An adapter that was just opened.
    pub(super) fn new(raw: *mut NDK_ADAPTER, number: u32) -> Check<Self> {
        if raw.is_null() {
            fail!("the open of adapter {number} succeeded without an adapter");
        }
        // SAFETY: the adapter is open, so its header is valid for reading.
        let version = unsafe { (*raw).Header.Version };
        let mut core = Self { raw, number, version, info: NDK_ADAPTER_INFO::default() };
        let mut size = INFO_SIZE;
        let info = &raw mut core.info;
        // SAFETY: the information is as large as `size` says.
        let status = unsafe { query_info(raw, info, &raw mut size) }?;
        if status != NtStatus::SUCCESS {
            return Err(Stop::status("NdkQueryAdapterInfo", status));
        }
        Ok(core)
    }

    /// The adapter.
    pub(super) const fn raw(&self) -> *mut NDK_ADAPTER {
        self.raw
    }
}

/// Calls `NdkQueryAdapterInfo`.
///
/// # Safety
///
/// The adapter is open; `info` is null or valid for writing `*size` bytes.
unsafe fn query_info(adapter: *mut NDK_ADAPTER, info: *mut NDK_ADAPTER_INFO, size: *mut u32) -> Check<NtStatus> {
    // SAFETY: the adapter is open (`# Safety`). The slot is in the table of every version.
    let slot = unsafe { (*(*adapter).Dispatch).NdkQueryAdapterInfo };
    let Some(function) = slot else { fail!("the slot NdkQueryAdapterInfo is NULL (NDKPI 4)") };
    // SAFETY: the adapter is open, and `info` has room for `*size` bytes (`# Safety`); called at `PASSIVE_LEVEL`.
    Ok(unsafe { function(adapter, info, size) })
}

/// An open adapter.
#[derive(Clone, Copy)]
pub struct Adapter<'s> {
    session: &'s Session<'s>,
    core: &'s AdapterCore,
}

/// Reads a slot of the adapter's table.
macro_rules! adapter_slot {
    ($self:expr, $slot:ident) => {{
        // SAFETY: the adapter is open as long as its session is. The slot is in the table of every version; only the slot is
        // read.
        let slot = unsafe { (*(*$self.core.raw).Dispatch).$slot };
        let Some(slot) = slot else { fail!(concat!("the slot ", stringify!($slot), " is NULL (NDKPI 4)")) };
        slot
    }};
}

impl<'s> Adapter<'s> {
    pub(super) const fn new(session: &'s Session<'s>, core: &'s AdapterCore) -> Self {
        Self { session, core }
    }

    /// Opens an adapter with another version, asks what it can do, and closes it. The version is that of the header.
    ///
    /// # Errors
    ///
    /// The provider breaks the rules of the calls.
    pub fn glimpse(
        platform: &dyn Platform,
        number: u32,
        version: NDK_VERSION,
    ) -> Check<Result<(NDK_VERSION, NDK_ADAPTER_INFO), NtStatus>> {
        let raw = match platform.open(number, version) {
            Ok(raw) => raw,
            Err(status) => return Ok(Err(status)),
        };
        let core = AdapterCore::new(raw, number);
        // SAFETY: the adapter was opened here, and nothing was made on it.
        let closed = raw.is_null() || unsafe { platform.close(raw) };
        ensure!(closed, "the close of an adapter without objects does not return (NDKPI 7.9)");
        core.map(|core| Ok((core.version, core.info)))
    }

    /// The session.
    #[must_use]
    pub const fn session(&self) -> &'s Session<'s> {
        self.session
    }

    /// The adapter's number on its platform.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.core.number
    }

    /// The version in force.
    #[must_use]
    pub const fn version(&self) -> NDK_VERSION {
        self.core.version
    }

    /// The adapter's information.
    #[must_use]
    pub const fn info(&self) -> &'s NDK_ADAPTER_INFO {
        &self.core.info
    }

    /// Returns true if it has this flag (`NDKPI 2.6`).
    #[must_use]
    pub const fn has(&self, flag: u32) -> bool {
        self.core.info.AdapterFlags & flag == flag
    }

    /// The object itself, for what is not made of calls.
    #[must_use]
    pub const fn raw(&self) -> *mut NDK_ADAPTER {
        self.core.raw
    }

    /// `NdkQueryAdapterInfo` with a buffer that is said to have `size` bytes: at most as many as the structure has count.
    /// Returns the status, the size stored and the information.
    ///
    /// # Errors
    ///
    /// The slot is null.
    pub fn query(&self, size: u32) -> Check<(NtStatus, u32, NDK_ADAPTER_INFO)> {
        let mut info = NDK_ADAPTER_INFO::default();
        let mut stored = size.min(INFO_SIZE);
        // SAFETY: the adapter is open, and the information is at least as large as `stored` says.
        let status = unsafe { query_info(self.core.raw, &raw mut info, &raw mut stored) }?;
        Ok((status, stored, info))
    }

    /// `NdkQueryExtension`.
    ///
    /// # Errors
    ///
    /// The slot is null.
    pub fn query_extension(&self, id: &GUID, version: NDK_VERSION) -> Check<NtStatus> {
        let function = adapter_slot!(self, NdkQueryExtension);
        let mut interface = NDK_EXTENSION_INTERFACE { Dispatch: ptr::null() };
        // SAFETY: the adapter is open, the other pointers are valid for the call.
        Ok(unsafe { function(self.core.raw.cast(), ptr::from_ref(id), version, &raw mut interface) })
    }

    /// Creates a completion queue.
    ///
    /// # Errors
    ///
    /// It is not created.
    pub fn create_cq(&self, depth: u32, hook: Option<Hook<'s>>) -> Check<Cq<'s>> {
        self.try_create_cq(depth, hook, None)?.map_err(|status| Stop::status("NdkCreateCq", status))
    }

    /// Creates a completion queue, or says why there is none.
    ///
    /// # Errors
    ///
    /// The provider breaks the rules of create requests.
    pub fn try_create_cq(
        &self,
        depth: u32,
        hook: Option<Hook<'s>>,
        affinity: Option<GROUP_AFFINITY>,
    ) -> Check<Result<Cq<'s>, NtStatus>> {
        self.make_cq(depth, hook, affinity, Some(notified))
    }

    /// Creates a completion queue without a notification callback, for polling only, or says why there is none.
    ///
    /// # Errors
    ///
    /// The provider breaks the rules of create requests.
    pub fn try_create_polled_cq(&self, depth: u32) -> Check<Result<Cq<'s>, NtStatus>> {
        self.make_cq(depth, None, None, None)
    }

    fn make_cq(
        &self,
        depth: u32,
        hook: Option<Hook<'s>>,
        affinity: Option<GROUP_AFFINITY>,
        notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    ) -> Check<Result<Cq<'s>, NtStatus>> {
        let session = self.session;
        let core = session.keep(CqCore::new(Life::new(session, Kind::Cq, &[]), hook))?;
        let function = adapter_slot!(self, NdkCreateCq);
        let affinity = affinity.as_ref().map_or(ptr::null(), ptr::from_ref);
        let created = create::<NDK_CQ>(session, None, "NdkCreateCq", |completion, context, place| {
            // SAFETY: the adapter is open, the contexts are kept by the session, the affinity is valid for the call.
            unsafe {
                function(self.core.raw, depth, notification, core.context(), affinity, completion, context, place)
            }
        })?;
        // SAFETY: the object was just created for this core.
        Ok(created.map(|object| unsafe { Owned::adopt(core, object, self.version()) }))
    }

    /// Calls `NdkCreateCq` with no completion callback, or no place for the object: against the rules of the call.
    ///
    /// # Errors
    ///
    /// The slot is null.
    pub fn create_cq_without(&self, without: Without) -> Check<NtStatus> {
        let function = adapter_slot!(self, NdkCreateCq);
        let core = self.session.keep(CqCore::new(Life::new(self.session, Kind::Cq, &[]), None))?;
        let created = create::<NDK_CQ>(self.session, None, "NdkCreateCq", |completion, context, place| {
            let completion = if without == Without::Completion { None } else { completion };
            let place = if without == Without::Place { ptr::null_mut() } else { place };
            // SAFETY: as in `try_create_cq`, but for the missing pointer, which the provider has to see.
            unsafe {
                function(self.core.raw, 16, Some(notified), core.context(), ptr::null(), completion, context, place)
            }
        })?;
        Ok(match created {
            Ok(object) => {
                // SAFETY: the object was just created for this core.
                drop(unsafe { Owned::adopt(core, object, self.version()) });
                NtStatus::SUCCESS
            }
            Err(status) => status,
        })
    }

    /// Creates a protection domain.
    ///
    /// # Errors
    ///
    /// It is not created.
    pub fn create_pd(&self) -> Check<Pd<'s>> {
        let session = self.session;
        let core = session.keep(PdCore::new(Life::new(session, Kind::Pd, &[]), *self))?;
        let function = adapter_slot!(self, NdkCreatePd);
        let created = create::<NDK_PD>(session, None, "NdkCreatePd", |completion, context, place| {
            // SAFETY: the adapter is open, the context is kept by the session.
            unsafe { function(self.core.raw, completion, context, place) }
        })?;
        let object = created.map_err(|status| Stop::status("NdkCreatePd", status))?;
        // SAFETY: the object was just created for this core.
        Ok(unsafe { Owned::adopt(core, object, self.version()) })
    }

    /// Creates a connector.
    ///
    /// # Errors
    ///
    /// It is not created.
    pub fn create_connector(&self) -> Check<Connector<'s>> {
        let session = self.session;
        let core = session.keep(ConnectorCore::new(Life::new(session, Kind::Connector, &[]), *self))?;
        let function = adapter_slot!(self, NdkCreateConnector);
        let created = create::<NDK_CONNECTOR>(session, None, "NdkCreateConnector", |completion, context, place| {
            // SAFETY: the adapter is open, the context is kept by the session.
            unsafe { function(self.core.raw, completion, context, place) }
        })?;
        let object = created.map_err(|status| Stop::status("NdkCreateConnector", status))?;
        // SAFETY: the object was just created for this core.
        Ok(unsafe { Owned::adopt(core, object, self.version()) })
    }

    /// Takes over the connector that a connect event brought.
    pub(super) fn adopt_connector(&self, object: *mut NDK_CONNECTOR, listener: &'s Life<'s>) -> Check<Connector<'s>> {
        let life = Life::new(self.session, Kind::Connector, &[listener]);
        let kept = self.session.keep(ConnectorCore::new(life, *self));
        let core = kept.inspect_err(|_| {
            // SAFETY: the connector belongs to the consumer, who has no place to keep it.
            unsafe { close_unkept(object) };
        })?;
        // SAFETY: the connector belongs to the consumer from its connect event on (NDKPI 7.7.2).
        Ok(unsafe { Owned::adopt(core, object, self.version()) })
    }

    /// Creates a listener. Without a hook, connectors are kept for [`ListenerCore::take`].
    ///
    /// # Errors
    ///
    /// It is not created.
    pub fn create_listener(&self, hook: Option<ConnectHook<'s>>) -> Check<Listener<'s>> {
        let session = self.session;
        let core = session.keep(ListenerCore::new(Life::new(session, Kind::Listener, &[]), *self, hook))?;
        let function = adapter_slot!(self, NdkCreateListener);
        let created = create::<NDK_LISTENER>(session, None, "NdkCreateListener", |completion, context, place| {
            // SAFETY: the adapter is open, the contexts are kept by the session.
            unsafe { function(self.core.raw, Some(connection_came), core.context(), completion, context, place) }
        })?;
        let object = created.map_err(|status| Stop::status("NdkCreateListener", status))?;
        // SAFETY: the object was just created for this core.
        Ok(unsafe { Owned::adopt(core, object, self.version()) })
    }

    /// Creates a shared endpoint, or says why there is none.
    ///
    /// # Errors
    ///
    /// The provider breaks the rules of create requests.
    pub fn try_create_shared_endpoint(&self, address: &RawAddress) -> Check<Result<SharedEndpoint<'s>, NtStatus>> {
        let session = self.session;
        let core = session.keep(SharedEndpointCore::new(Life::new(session, Kind::SharedEndpoint, &[])))?;
        let function = adapter_slot!(self, NdkCreateSharedEndpoint);
        let (pointer, length): (*const SOCKADDR, u32) = address.parts();
        let created =
            create::<NDK_SHARED_ENDPOINT>(session, None, "NdkCreateSharedEndpoint", |completion, context, place| {
                // SAFETY: the adapter is open, the address is valid for the call, the context is kept by the session.
                unsafe { function(self.core.raw, pointer, length, completion, context, place) }
            })?;
        // SAFETY: the object was just created for this core.
        Ok(created.map(|object| unsafe { Owned::adopt(core, object, self.version()) }))
    }

    /// `NdkBuildLAM` of the first `length` bytes of a buffer into a place of `size` bytes, which is large enough for `pages`
    /// pages. Returns the request and, once that has succeeded, what holds the mapping.
    ///
    /// # Errors
    ///
    /// The slot is null, or there is no memory.
    pub fn build_lam(&self, buffer: &'s Buffer, length: usize, pages: u32) -> Check<(Pending<'s>, &'s Mapping<'s>)> {
        let session = self.session;
        let function = adapter_slot!(self, NdkBuildLAM);
        let mapping = Mapping::reserve(*self, pages)?;
        let (place, size, offset) = mapping.places();
        let mdl: *mut MDL = buffer.mdl();
        let built = session.keep(move |status: NtStatus| {
            if status == NtStatus::SUCCESS {
                mapping.built();
            }
        })?;
        let pending = request_on_adapter(session, "NdkBuildLAM", Some(built), |completion, context| {
            // SAFETY: the adapter is open; the MDL, the place, the size and the offset are kept by the session.
            unsafe { function(self.core.raw, mdl, length, completion, context, place, size, offset) }
        })?;
        if pending.kind() == CompletionKind::Inline
            && let Some(status) = pending.outcome()
        {
            built(status);
        }
        Ok((pending, mapping))
    }

    /// `NdkReleaseLAM`.
    pub(super) fn release_lam(&self, place: *mut NDK_LOGICAL_ADDRESS_MAPPING) -> Check {
        let function = adapter_slot!(self, NdkReleaseLAM);
        // SAFETY: the adapter is open, and the mapping was built and not released (`Mapping`).
        unsafe { function(self.core.raw, place) };
        Ok(())
    }
}

/// An argument that is left out of a create request, against the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// The completion callback.
    Completion,
    /// The place for the object.
    Place,
}

/// Closes a connector for which there is no memory, which refuses its connection (`NDKPI 7.7.2`).
///
/// # Safety
///
/// The connector is open, and nothing uses it any more.
unsafe fn close_unkept(connector: *mut NDK_CONNECTOR) {
    const unsafe extern "system" fn closed(_context: *mut c_void) {}

    // SAFETY: the connector is open. The slot is in the table of every version.
    let slot = unsafe { (*(*connector).Dispatch).NdkCloseConnector };
    if let Some(close) = slot {
        // SAFETY: the connector is open and not used any more.
        let _ = unsafe { close(connector.cast(), Some(closed), ptr::null_mut()) };
    }
}
