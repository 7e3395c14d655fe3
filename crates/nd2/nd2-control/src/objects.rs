//! Adapters, and how objects are made and given back.

use core::{ffi::c_void, net::SocketAddr};

use nd2::{
    Client, Engine,
    abi::{
        HRESULT, IID_IND2Adapter, IID_IND2Connector, IID_IND2Listener, IID_IND2Provider, IND2AdapterVtbl,
        IND2OverlappedVtbl, IND2ProviderVtbl, IUnknownVtbl, ND2_ADAPTER_INFO,
    },
};
use ndkpi::{GUID, NtStatus};
use zerocopy::little_endian::U32;

use crate::{
    Adapter, Request, Session, System,
    handles::{Com, Kind, Object},
    server::FILE,
    wire::{AdapterAddress, AdapterInfo, Handle, address_bytes, all, answer},
};

/// The result of a method as a status; success has none.
pub const fn done(result: HRESULT) -> Result<(), NtStatus> {
    match result {
        HRESULT::ND_SUCCESS => Ok(()),
        result => Err(result.to_status()),
    }
}

impl<S: System> Session<S> {
    /// `Addresses`.
    pub(crate) fn addresses(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        if !request.input().is_empty() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let output = request.output();
        let (mut count, mut length) = (0_u32, size_of::<U32>());
        let mut written = Ok(());
        self.system().each_device(&mut |device| {
            if written.is_err() || !device.is_present() {
                return;
            }
            let mut write = |address| {
                let address = address_bytes(SocketAddr::new(address, 0));
                let entry = AdapterAddress { adapter: device.config().info.AdapterId.into(), address };
                length += answer(output.get_mut(length..).unwrap_or_default(), &entry)?;
                count += 1;
                Ok(())
            };
            written = device.addresses().and_then(|own| own.into_iter().try_for_each(&mut write));
        });
        written?;
        answer(output, &U32::new(count))?;
        Ok(length)
    }

    /// `Open`.
    pub(crate) fn open(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let adapter = one(request)?;
        let mut found = None;
        self.system().each_device(&mut |device| {
            if device.config().info.AdapterId == adapter {
                found = Some(device.clone());
            }
        });
        let device = found.ok_or(NtStatus::INVALID_PARAMETER)?;
        self.make(request, Kind::Adapter, |out| open(&device, &self.client(), out))
    }

    /// Makes an object with `make`, and answers with its handle.
    pub(crate) fn make(
        &self,
        request: &mut S::Request,
        kind: Kind,
        make: impl FnOnce(*mut *mut c_void) -> HRESULT,
    ) -> Result<usize, NtStatus> {
        if request.output().len() < size_of::<u64>() {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        let mut object = core::ptr::null_mut();
        let result = make(&raw mut object);
        // SAFETY: what was made is an object of `nd2`, with a reference that is the caller's.
        let object = unsafe { Com::new(object) };
        done(result)?;
        let handle = self.insert(kind, object.ok_or(NtStatus::INTERNAL_ERROR)?)?;
        answer(request.output(), &Handle { object: handle.into() })
    }

    /// `Close`.
    pub(crate) fn close(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let handle = one(request)?;
        self.remove(handle).map(drop).ok_or(NtStatus::INVALID_HANDLE)?;
        Ok(0)
    }

    /// `Cancel`.
    pub(crate) fn cancel(&self, request: &S::Request) -> Result<usize, NtStatus> {
        let (kind, object) = self.any(one(request)?)?;
        match kind {
            Kind::Adapter | Kind::MemoryWindow | Kind::QueuePair => return Err(NtStatus::INVALID_HANDLE),
            Kind::Listener
            | Kind::Connector
            | Kind::SharedReceiveQueue
            | Kind::MemoryRegion
            | Kind::CompletionQueue => {}
        }
        // SAFETY: a COM object begins with a pointer to its table.
        let table = unsafe { object.as_ptr().cast::<*const IND2OverlappedVtbl>().read() };
        // SAFETY: the tables of these kinds begin with that of overlapped objects.
        let table = unsafe { &*table };
        // SAFETY: the object is held.
        done(unsafe { (table.CancelOverlappedRequests)(object.as_ptr()) })?;
        Ok(0)
    }

    /// `Query`.
    pub(crate) fn query(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let adapter: Object<IND2AdapterVtbl> = self.object(one(request)?)?;
        let mut info = ND2_ADAPTER_INFO { InfoVersion: 1, ..ND2_ADAPTER_INFO::default() };
        let mut length = 0x60;
        // SAFETY: the adapter is held, and the structure has as many bytes.
        done(unsafe { (adapter.table().Query)(adapter.as_ptr(), &raw mut info, &raw mut length) })?;
        answer(request.output(), &as_sent(&info))
    }

    /// `CreateConnector`.
    pub(crate) fn create_connector(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let adapter: Object<IND2AdapterVtbl> = self.object(one(request)?)?;
        let iid = IID_IND2Connector;
        // SAFETY: the adapter is held, the identifier and the place are valid, and every adapter has that file.
        let make = |out| unsafe { (adapter.table().CreateConnector)(adapter.as_ptr(), &raw const iid, FILE, out) };
        self.make(request, Kind::Connector, make)
    }

    /// `CreateListener`.
    pub(crate) fn create_listener(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let adapter: Object<IND2AdapterVtbl> = self.object(one(request)?)?;
        let iid = IID_IND2Listener;
        // SAFETY: the adapter is held, the identifier and the place are valid, and every adapter has that file.
        let make = |out| unsafe { (adapter.table().CreateListener)(adapter.as_ptr(), &raw const iid, FILE, out) };
        self.make(request, Kind::Listener, make)
    }
}

/// An adapter's description as it is sent.
fn as_sent(info: &ND2_ADAPTER_INFO) -> AdapterInfo {
    AdapterInfo {
        info_version: info.InfoVersion.into(),
        vendor_id: info.VendorId.into(),
        device_id: info.DeviceId.into(),
        adapter_id: info.AdapterId.into(),
        max_registration_size: (info.MaxRegistrationSize as u64).into(),
        max_window_size: (info.MaxWindowSize as u64).into(),
        max_initiator_sge: info.MaxInitiatorSge.into(),
        max_receive_sge: info.MaxReceiveSge.into(),
        max_read_sge: info.MaxReadSge.into(),
        max_transfer_length: info.MaxTransferLength.into(),
        max_inline_data_size: info.MaxInlineDataSize.into(),
        max_inbound_read_limit: info.MaxInboundReadLimit.into(),
        max_outbound_read_limit: info.MaxOutboundReadLimit.into(),
        max_receive_queue_depth: info.MaxReceiveQueueDepth.into(),
        max_initiator_queue_depth: info.MaxInitiatorQueueDepth.into(),
        max_shared_receive_queue_depth: info.MaxSharedReceiveQueueDepth.into(),
        max_completion_queue_depth: info.MaxCompletionQueueDepth.into(),
        inline_request_threshold: info.InlineRequestThreshold.into(),
        large_request_threshold: info.LargeRequestThreshold.into(),
        max_caller_data: info.MaxCallerData.into(),
        max_callee_data: info.MaxCalleeData.into(),
        adapter_flags: info.AdapterFlags.into(),
    }
}

/// An input that is one handle.
pub fn one<S: System>(request: &impl Request<S>) -> Result<u64, NtStatus> {
    all::<Handle>(request.input()).map(|input| input.object.get())
}

/// Opens an adapter, with its one file.
fn open<S: System>(device: &Adapter<S>, client: &Client, out: *mut *mut c_void) -> HRESULT {
    let (mut provider, iid) = (core::ptr::null_mut(), IID_IND2Provider);
    let devices = core::slice::from_ref(device);
    // SAFETY: the identifier and the place are valid.
    let made = unsafe { Engine::create(devices, client, &raw const iid, &raw mut provider) };
    // SAFETY: what was made is an object of `nd2`, with a reference that is the caller's.
    let Some(provider) = (unsafe { Com::new(provider) }) else { return made };
    let iid: GUID = IID_IND2Adapter;
    let id = device.config().info.AdapterId;
    // SAFETY: a COM object begins with a pointer to its table.
    let table = unsafe { provider.as_ptr().cast::<*const IND2ProviderVtbl>().read() };
    // SAFETY: that of a provider.
    let table = unsafe { &*table };
    let mut adapter = core::ptr::null_mut();
    // SAFETY: the provider is held, and the identifier and the place are valid.
    let opened = unsafe { (table.OpenAdapter)(provider.as_ptr(), &raw const iid, id, &raw mut adapter) };
    if opened != HRESULT::ND_SUCCESS {
        return opened;
    }
    // SAFETY: a COM object begins with a pointer to its table.
    let table = unsafe { adapter.cast::<*const IND2AdapterVtbl>().read() };
    // SAFETY: that of an adapter.
    let table = unsafe { &*table };
    let mut file = core::ptr::null_mut();
    // SAFETY: the adapter is held, and the place is valid.
    let made = unsafe { (table.CreateOverlappedFile)(adapter, &raw mut file) };
    if made != HRESULT::ND_SUCCESS {
        let unknown: &IUnknownVtbl = &table.base;
        // SAFETY: the reference is given back, and not used again.
        unsafe { (unknown.Release)(adapter) };
        return made;
    }
    // SAFETY: the caller's place.
    unsafe { out.write(adapter) };
    made
}
