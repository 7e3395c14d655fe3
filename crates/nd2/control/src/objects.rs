//! Adapters, and how objects are made and given back.

use core::{ffi::c_void, net::SocketAddr};

use nd2::{
    Client, Provider,
    abi::{
        HRESULT, IID_IND2Adapter, IID_IND2Connector, IID_IND2Listener, IID_IND2Provider, IND2AdapterVtbl,
        IND2OverlappedVtbl, IND2ProviderVtbl, IUnknownVtbl, ND2_ADAPTER_INFO,
    },
};
use ndkpi::{GUID, NtStatus, SOCKADDR_INET};

use crate::{
    Adapter, Request, Session, System,
    handles::{Com, Kind, Object},
    server::FILE,
    wire::{ADDRESS, Reader, Writer},
};

/// Bytes of the answer to a query.
const INFO: usize = 8 + 3 * 8 + 16 * 4;

/// An address as it is sent.
pub fn write_address(writer: &mut Writer<'_>, address: SocketAddr) -> Result<(), NtStatus> {
    let raw = SOCKADDR_INET::from(address);
    let mut bytes = [0; ADDRESS];
    let length = (raw.length() as usize).min(ADDRESS);
    for (index, byte) in bytes.iter_mut().take(length).enumerate() {
        // SAFETY: the structure has that many bytes, all of them initialised.
        let place = unsafe { raw.as_ptr().cast::<u8>().add(index) };
        // SAFETY: as before.
        *byte = unsafe { place.read() };
    }
    writer.bytes(&bytes).map(drop)
}

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
        Reader::new(request.input()).end()?;
        let mut writer = Writer::new(request.output());
        let (mut count, mut written) = (0_u32, writer.u32(0).map(drop));
        self.system().each_device(&mut |device| {
            if written.is_err() || !device.is_present() {
                return;
            }
            let mut write = |address| {
                count += 1;
                writer.u64(device.config().info.AdapterId)?;
                write_address(&mut writer, SocketAddr::new(address, 0))
            };
            written = device.addresses().and_then(|own| own.into_iter().try_for_each(&mut write));
        });
        written?;
        let total = writer.written();
        Writer::new(request.output()).u32(count)?;
        Ok(total)
    }

    /// `Open`.
    pub(crate) fn open(&self, request: &mut S::Request) -> Result<usize, NtStatus> {
        let mut input = Reader::new(request.input());
        let adapter = input.u64()?;
        input.end()?;
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
        let mut writer = Writer::new(request.output());
        writer.u64(handle)?;
        Ok(writer.written())
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
        if request.output().len() < INFO {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        let mut writer = Writer::new(request.output());
        writer.u32(info.InfoVersion)?.bytes(&info.VendorId.to_le_bytes())?.bytes(&info.DeviceId.to_le_bytes())?;
        writer.u64(info.AdapterId)?;
        writer.u64(info.MaxRegistrationSize as u64)?.u64(info.MaxWindowSize as u64)?;
        for number in [
            info.MaxInitiatorSge,
            info.MaxReceiveSge,
            info.MaxReadSge,
            info.MaxTransferLength,
            info.MaxInlineDataSize,
            info.MaxInboundReadLimit,
            info.MaxOutboundReadLimit,
            info.MaxReceiveQueueDepth,
            info.MaxInitiatorQueueDepth,
            info.MaxSharedReceiveQueueDepth,
            info.MaxCompletionQueueDepth,
            info.InlineRequestThreshold,
            info.LargeRequestThreshold,
            info.MaxCallerData,
            info.MaxCalleeData,
            info.AdapterFlags,
        ] {
            writer.u32(number)?;
        }
        Ok(writer.written())
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

/// An input that is one handle.
pub fn one<S: System>(request: &impl Request<S>) -> Result<u64, NtStatus> {
    let mut input = Reader::new(request.input());
    let handle = input.u64()?;
    input.end()?;
    Ok(handle)
}

/// Opens an adapter, with its one file.
fn open<S: System>(device: &Adapter<S>, client: &Client, out: *mut *mut c_void) -> HRESULT {
    let (mut provider, iid) = (core::ptr::null_mut(), IID_IND2Provider);
    let devices = core::slice::from_ref(device);
    // SAFETY: the identifier and the place are valid.
    let made = unsafe { Provider::create(devices, client, &raw const iid, &raw mut provider) };
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
