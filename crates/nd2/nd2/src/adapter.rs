//! Open adapters: files for overlapped requests, the adapter's limits, and the creation of everything else.

use alloc::vec::Vec;
use core::{ffi::c_void, net::IpAddr};

use engine::{
    connection::Owner,
    memory::Domain,
    os::{Affinity, Os, SpinLock},
};
use fallible::Arc;
use ndkpi::NtStatus;

use crate::{
    Account, Charge, Client, Device, Engine, Item, OverlappedFile, OverlappedOs,
    abi::{HANDLE, HRESULT, ND2_ADAPTER_INFO},
    back_end::{self, QueuePairSizes, RequestFile, SharedReceiveQueueSizes},
    connector::Connector,
    cq::{self, core::Owned},
    listener::Listener,
    mr::MemoryRegion,
    mw::MemoryWindow,
    qp::QueuePair,
    srq::SharedReceiveQueue,
};

/// An open adapter, as everything made on it refers to it.
pub struct AdapterCore<P: OverlappedOs> {
    device: Arc<Device<P>>,
    /// Registered memory is good for all objects of one open adapter.
    domain: Arc<Domain<P::Os>>,
    client: Client,
    _charges: [Charge; 2],
    files: <P::Os as Os>::Lock<Files<P>>,
}

/// The files of an open adapter.
struct Files<P: OverlappedOs> {
    list: Vec<Arc<P::File>>,
    /// Where the next search for closed ones begins.
    next: usize,
}

/// Bytes that every object takes besides what grows with its parameters: the COM object, its core and locks, what the engine has of
/// it, its place in tables, and the headers of all of these.
const OBJECT: u64 = 2048;

/// Bytes that a connection or a listener takes besides that.
pub const CONNECTION: u64 = 4096;

/// How many files are checked when one is made, for those that are closed: a bound, for clients with many of them.
const FILES_LOOKED_AT: usize = 16;

impl<P: OverlappedOs> AdapterCore<P> {
    /// Opens `device` for `client`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_IMPLEMENTATION_LIMIT`.
    pub fn try_new(device: &Arc<Device<P>>, client: &Client) -> Result<Arc<Self>, NtStatus> {
        let account = client.account.as_ref();
        let charges = [device.charge(account, Item::Memory, OBJECT)?, device.charge(account, Item::Tokens, 1)?];
        let domain = Domain::try_new(device.memory())?;
        let files = device.platform().os().lock(Files { list: Vec::new(), next: 0 })?;
        let core = Self { device: device.clone(), domain, client: client.clone(), _charges: charges, files };
        Arc::try_new(core).map_err(Into::into)
    }

    pub const fn device(&self) -> &Arc<Device<P>> {
        &self.device
    }

    pub const fn domain(&self) -> &Arc<Domain<P::Os>> {
        &self.domain
    }

    /// Whose connections and listeners are made on it.
    pub const fn owner(&self) -> Owner {
        self.client.owner
    }

    /// What everything that is made on it is charged to.
    pub const fn account(&self) -> Option<&Arc<Account>> {
        self.client.account.as_ref()
    }

    /// Charges the client for memory that one of its objects takes: `bytes`, and what every object takes.
    ///
    /// # Errors
    ///
    /// `STATUS_IMPLEMENTATION_LIMIT`.
    pub fn charge_object(&self, bytes: u64) -> Result<Charge, NtStatus> {
        self.device.charge(self.account(), Item::Memory, OBJECT + bytes)
    }

    /// Charges more for memory that has grown to `bytes`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: methods that let an object grow know no limits.
    pub fn raise(&self, charge: &Charge, bytes: u64) -> Result<(), NtStatus> {
        charge.raise(OBJECT + bytes).map_err(|exhausted| {
            self.device.platform().limit_reached(exhausted.name, exhausted.most);
            NtStatus::INSUFFICIENT_RESOURCES
        })
    }

    /// The file with this handle.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_HANDLE` if it is none of this adapter's; `STATUS_DEVICE_REMOVED`.
    fn file(&self, handle: HANDLE) -> Result<Arc<P::File>, NtStatus> {
        self.device.check_present()?;
        let found = self.files.with(|files| files.list.iter().rev().find(|file| file.handle() == handle).cloned());
        let file = found.ok_or(NtStatus::INVALID_HANDLE)?;
        file.prepare()?;
        Ok(file)
    }

    /// Releases files that nothing uses and whose handles the client has closed.
    fn forget_closed_files(&self) {
        for _ in 0..FILES_LOOKED_AT {
            let file = self.files.with(|files| {
                files.next = if files.next < files.list.len() { files.next } else { 0 };
                files.list.get(files.next).cloned()
            });
            let Some(file) = file else { return };
            // References of the list and of this loop: no object has one.
            let is_over = Arc::references_now(&file) == 2 && file.is_closed();
            // Dropped after the lock is released.
            drop(self.files.with(|files| {
                if is_over && files.list.get(files.next).is_some_and(|found| Arc::ptr_eq(found, &file)) {
                    return Some(files.list.swap_remove(files.next));
                }
                files.next += 1;
                None
            }));
        }
    }

    /// Closes the client's handle of a file. What uses the file keeps it.
    fn close_file(&self, handle: HANDLE) -> Result<(), NtStatus> {
        let found = self.files.with(|files| {
            let place = files.list.iter().position(|file| file.handle() == handle)?;
            Some(files.list.swap_remove(place))
        });
        found.ok_or(NtStatus::INVALID_HANDLE)?.close();
        Ok(())
    }

    fn create_file(&self) -> Result<HANDLE, NtStatus> {
        self.device.check_present()?;
        self.forget_closed_files();
        let file = Arc::try_new(self.device.platform().create_file()?)?;
        let handle = file.handle();
        let replaced = self.files.with(|files| {
            // A handle that comes again was closed by the client. What uses the file keeps it.
            if let Some(old) = files.list.iter_mut().find(|old| old.handle() == handle) {
                return Ok(Some(core::mem::replace(old, file)));
            }
            files.list.try_reserve(1).map_err(fallible::AllocError::from)?;
            files.list.push(file);
            Ok::<_, NtStatus>(None)
        })?;
        drop(replaced);
        Ok(handle)
    }
}

/// For methods that tell memory from other resources, which the adapter's limits are.
pub const fn memory_result(status: NtStatus) -> HRESULT {
    match status {
        NtStatus::INSUFFICIENT_RESOURCES => HRESULT::ND_NO_MEMORY,
        NtStatus::IMPLEMENTATION_LIMIT => HRESULT::ND_INSUFFICIENT_RESOURCES,
        status => HRESULT::of(status),
    }
}

/// For methods that do not: the adapter's limits are resources like others.
pub const fn limit_result(status: NtStatus) -> HRESULT {
    match status {
        NtStatus::IMPLEMENTATION_LIMIT => HRESULT::ND_INSUFFICIENT_RESOURCES,
        status => HRESULT::of(status),
    }
}

const fn check(value: u32, limit: u32, result: HRESULT) -> Result<(), HRESULT> {
    if value <= limit { Ok(()) } else { Err(result) }
}

impl<P: OverlappedOs> back_end::Adapter<Engine<P>> for AdapterCore<P> {
    fn create_file(&self) -> Result<HANDLE, HRESULT> {
        self.create_file().map_err(memory_result)
    }

    fn close_file(&self, handle: HANDLE) -> Result<(), NtStatus> {
        self.close_file(handle)
    }

    fn info(&self) -> Result<ND2_ADAPTER_INFO, NtStatus> {
        self.device.check_present()?;
        Ok(self.device.config().info)
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, NtStatus> {
        self.device.check_present()?;
        self.device.addresses()
    }

    fn create_completion_queue(
        this: &Arc<Self>,
        file: HANDLE,
        depth: u32,
        affinity: Affinity,
    ) -> Result<Owned<P>, HRESULT> {
        let file = this.file(file)?;
        if !(1..=this.device.config().info.MaxCompletionQueueDepth).contains(&depth) {
            return Err(HRESULT::ND_INVALID_PARAMETER_3);
        }
        cq::core::Core::try_new(this, &file, depth, affinity).map_err(memory_result)
    }

    fn create_memory_region(this: &Arc<Self>, file: HANDLE) -> Result<MemoryRegion<P>, HRESULT> {
        MemoryRegion::try_new(this, &this.file(file)?).map_err(memory_result)
    }

    fn create_memory_window(this: &Arc<Self>) -> Result<MemoryWindow<P>, HRESULT> {
        MemoryWindow::try_new(this).map_err(limit_result)
    }

    fn create_shared_receive_queue(
        this: &Arc<Self>,
        file: HANDLE,
        sizes: &SharedReceiveQueueSizes,
    ) -> Result<SharedReceiveQueue<P>, HRESULT> {
        let file = this.file(file)?;
        let info = &this.device.config().info;
        if !(1..=info.MaxSharedReceiveQueueDepth).contains(&sizes.depth) {
            return Err(HRESULT::ND_INVALID_PARAMETER_3);
        }
        check(sizes.max_sge, info.MaxReceiveSge, HRESULT::ND_INVALID_PARAMETER_4)?;
        SharedReceiveQueue::try_new(this, &file, sizes).map_err(memory_result)
    }

    fn create_queue_pair(
        this: &Arc<Self>,
        [receive, initiator]: [&Owned<P>; 2],
        shared: Option<&SharedReceiveQueue<P>>,
        context: *mut c_void,
        sizes: &QueuePairSizes,
    ) -> Result<QueuePair<P>, HRESULT> {
        let info = &this.device.config().info;
        let QueuePairSizes { receive_depth, initiator_depth, max_receive_sge, max_initiator_sge, inline_size } = *sizes;
        // The parameters' numbers are those of the one and of the other method.
        if shared.is_none() {
            check(receive_depth, info.MaxReceiveQueueDepth, HRESULT::ND_INVALID_PARAMETER_5)?;
            check(initiator_depth, info.MaxInitiatorQueueDepth, HRESULT::ND_INVALID_PARAMETER_6)?;
            check(max_receive_sge, info.MaxReceiveSge, HRESULT::ND_INVALID_PARAMETER_7)?;
            check(max_initiator_sge, info.MaxInitiatorSge, HRESULT::ND_INVALID_PARAMETER_8)?;
            check(inline_size, info.MaxInlineDataSize, HRESULT::ND_INVALID_PARAMETER_9)?;
        } else {
            check(initiator_depth, info.MaxInitiatorQueueDepth, HRESULT::ND_INVALID_PARAMETER_6)?;
            check(max_initiator_sge, info.MaxInitiatorSge, HRESULT::ND_INVALID_PARAMETER_7)?;
            check(inline_size, info.MaxInlineDataSize, HRESULT::ND_INVALID_PARAMETER_8)?;
        }
        let queues = [receive.cq.clone(), initiator.cq.clone()];
        QueuePair::try_new(this, queues, shared.map(SharedReceiveQueue::srq), context, sizes).map_err(limit_result)
    }

    fn create_connector(this: &Arc<Self>, file: HANDLE) -> Result<Connector<P>, HRESULT> {
        Connector::try_new(this, &this.file(file)?).map_err(memory_result)
    }

    fn create_listener(this: &Arc<Self>, file: HANDLE) -> Result<Listener<P>, HRESULT> {
        Listener::try_new(this, &this.file(file)?).map_err(memory_result)
    }
}
