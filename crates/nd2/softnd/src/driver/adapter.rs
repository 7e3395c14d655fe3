//! What is behind `IND2Adapter`.

use std::{
    ffi::c_void,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use engine::os::Affinity;
use fallible::Arc;
use nd2::{
    abi::{HANDLE, HRESULT, ND2_ADAPTER_INFO},
    back_end::{self, QueuePairSizes, RequestFile, SharedReceiveQueueSizes},
};
use nd2_control::wire::{
    AdapterInfo, CreateCompletionQueue, CreateQueuePair, CreateQueuePairWithShared, CreateSharedReceiveQueue, Handle,
    Processors, Verb,
};
use ndkpi::NtStatus;
use zerocopy::IntoBytes;

use super::{
    Driver, Transport,
    connection::{Connector, Listener},
    held::{DriverHandle, OverlappedObject},
    memory::{MemoryRegion, MemoryWindow},
    provider,
    qp::QueuePair,
    queues::{CompletionQueue, SharedReceiveQueue},
};

/// An open adapter, as everything made on it refers to it.
pub struct Adapter<T: Transport> {
    pub held: DriverHandle<T>,
    number: u64,
    info: ND2_ADAPTER_INFO,
    files: Mutex<Vec<Arc<T::File>>>,
}

impl<T: Transport> Adapter<T> {
    pub fn try_new(transport: &T, number: u64) -> Result<Arc<Self>, NtStatus> {
        let held = DriverHandle::make(transport, Verb::Open, Handle { object: number.into() }.as_bytes())?;
        let info = read_info(&held)?;
        Ok(Arc::try_new(Self { held, number, info, files: Mutex::default() })?)
    }

    /// What the adapter can do, as it was when it was opened.
    pub const fn known_info(&self) -> &ND2_ADAPTER_INFO {
        &self.info
    }

    /// The file with this handle.
    pub fn file(&self, handle: HANDLE) -> Result<Arc<T::File>, NtStatus> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let found = files.iter().rev().find(|file| file.handle() == handle && !file.is_closed()).cloned();
        found.ok_or(NtStatus::INVALID_HANDLE)
    }

    /// Closes the client's handle of a file. What uses the file keeps it.
    fn close_file(&self, handle: HANDLE) -> Result<(), NtStatus> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let place = files.iter().position(|file| file.handle() == handle).ok_or(NtStatus::INVALID_HANDLE)?;
        let file = files.swap_remove(place);
        drop(files);
        file.close();
        Ok(())
    }

    fn create_file(&self) -> Result<HANDLE, NtStatus> {
        // The driver knows if the adapter is still there.
        read_info(&self.held)?;
        let file = self.held.transport.open()?;
        let handle = file.handle();
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        // What no object uses, and the client has closed.
        files.retain(|file| Arc::references_now(file) > 1 || !file.is_closed());
        files.push(Arc::try_new(file)?);
        Ok(handle)
    }
}

fn read_info<T: Transport>(held: &DriverHandle<T>) -> Result<ND2_ADAPTER_INFO, NtStatus> {
    let sent: AdapterInfo = held.ask(Verb::Query, held.handle().as_bytes())?;
    Ok(ND2_ADAPTER_INFO {
        InfoVersion: sent.info_version.get(),
        VendorId: sent.vendor_id.get(),
        DeviceId: sent.device_id.get(),
        AdapterId: sent.adapter_id.get(),
        MaxRegistrationSize: usize::try_from(sent.max_registration_size.get()).unwrap_or(usize::MAX),
        MaxWindowSize: usize::try_from(sent.max_window_size.get()).unwrap_or(usize::MAX),
        MaxInitiatorSge: sent.max_initiator_sge.get(),
        MaxReceiveSge: sent.max_receive_sge.get(),
        MaxReadSge: sent.max_read_sge.get(),
        MaxTransferLength: sent.max_transfer_length.get(),
        MaxInlineDataSize: sent.max_inline_data_size.get(),
        MaxInboundReadLimit: sent.max_inbound_read_limit.get(),
        MaxOutboundReadLimit: sent.max_outbound_read_limit.get(),
        MaxReceiveQueueDepth: sent.max_receive_queue_depth.get(),
        MaxInitiatorQueueDepth: sent.max_initiator_queue_depth.get(),
        MaxSharedReceiveQueueDepth: sent.max_shared_receive_queue_depth.get(),
        MaxCompletionQueueDepth: sent.max_completion_queue_depth.get(),
        InlineRequestThreshold: sent.inline_request_threshold.get(),
        LargeRequestThreshold: sent.large_request_threshold.get(),
        MaxCallerData: sent.max_caller_data.get(),
        MaxCalleeData: sent.max_callee_data.get(),
        AdapterFlags: sent.adapter_flags.get(),
    })
}

/// Processors as they are sent.
fn as_sent(affinity: Affinity) -> Processors {
    Processors { group: u32::from(affinity.group).into(), affinity: affinity.mask.into() }
}

impl<T: Transport> back_end::Adapter<Driver<T>> for Adapter<T> {
    fn create_file(&self) -> Result<HANDLE, HRESULT> {
        Ok(self.create_file()?)
    }

    fn close_file(&self, handle: HANDLE) -> Result<(), NtStatus> {
        self.close_file(handle)
    }

    fn info(&self) -> Result<ND2_ADAPTER_INFO, NtStatus> {
        read_info(&self.held)
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, NtStatus> {
        // The driver knows if the adapter is still there.
        read_info(&self.held)?;
        let found = provider::addresses(&self.held.transport)?;
        Ok(found.iter().filter(|(number, _)| *number == self.number).map(|(_, one)| one.ip()).collect())
    }

    fn create_completion_queue(
        this: &Arc<Self>,
        file: HANDLE,
        depth: u32,
        affinity: Affinity,
    ) -> Result<CompletionQueue<T>, HRESULT> {
        let adapter = this.held.handle.into();
        let input = CreateCompletionQueue { adapter, depth: depth.into(), processors: as_sent(affinity) };
        OverlappedObject::make(this, file, Verb::CreateCompletionQueue, input.as_bytes()).map(CompletionQueue)
    }

    fn create_memory_region(this: &Arc<Self>, file: HANDLE) -> Result<MemoryRegion<T>, HRESULT> {
        OverlappedObject::make(this, file, Verb::CreateRegion, this.held.handle().as_bytes()).map(MemoryRegion::new)
    }

    fn create_memory_window(this: &Arc<Self>) -> Result<MemoryWindow<T>, HRESULT> {
        let held = DriverHandle::make(&this.held.transport, Verb::CreateWindow, this.held.handle().as_bytes())?;
        Ok(MemoryWindow { adapter: this.clone(), held })
    }

    fn create_shared_receive_queue(
        this: &Arc<Self>,
        file: HANDLE,
        sizes: &SharedReceiveQueueSizes,
    ) -> Result<SharedReceiveQueue<T>, HRESULT> {
        let input = CreateSharedReceiveQueue {
            adapter: this.held.handle.into(),
            depth: sizes.depth.into(),
            elements: sizes.max_sge.into(),
            threshold: sizes.threshold.into(),
            processors: as_sent(sizes.affinity),
        };
        OverlappedObject::make(this, file, Verb::CreateSharedReceiveQueue, input.as_bytes()).map(SharedReceiveQueue)
    }

    fn create_queue_pair(
        this: &Arc<Self>,
        [receive, initiator]: [&CompletionQueue<T>; 2],
        shared: Option<&SharedReceiveQueue<T>>,
        context: *mut c_void,
        sizes: &QueuePairSizes,
    ) -> Result<QueuePair<T>, HRESULT> {
        let adapter = this.held.handle.into();
        let [receive_queue, initiator_queue] = [receive, initiator].map(|queue| queue.0.held.handle.into());
        let context = (context.expose_provenance() as u64).into();
        let (initiator_depth, inline_bytes) = (sizes.initiator_depth.into(), sizes.inline_size.into());
        let initiator_elements = sizes.max_initiator_sge.into();
        let transport = &this.held.transport;
        let held = if let Some(shared) = shared {
            let input = CreateQueuePairWithShared {
                adapter,
                receive_queue,
                initiator_queue,
                shared: shared.0.held.handle.into(),
                context,
                initiator_depth,
                initiator_elements,
                inline_bytes,
            };
            DriverHandle::make(transport, Verb::CreateQueuePairWithShared, input.as_bytes())?
        } else {
            let input = CreateQueuePair {
                adapter,
                receive_queue,
                initiator_queue,
                context,
                receive_depth: sizes.receive_depth.into(),
                initiator_depth,
                receive_elements: sizes.max_receive_sge.into(),
                initiator_elements,
                inline_bytes,
            };
            DriverHandle::make(transport, Verb::CreateQueuePair, input.as_bytes())?
        };
        Ok(QueuePair { adapter: this.clone(), held })
    }

    fn create_connector(this: &Arc<Self>, file: HANDLE) -> Result<Connector<T>, HRESULT> {
        OverlappedObject::make(this, file, Verb::CreateConnector, this.held.handle().as_bytes()).map(Connector)
    }

    fn create_listener(this: &Arc<Self>, file: HANDLE) -> Result<Listener<T>, HRESULT> {
        OverlappedObject::make(this, file, Verb::CreateListener, this.held.handle().as_bytes()).map(Listener)
    }
}
