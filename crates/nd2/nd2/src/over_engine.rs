//! The back end over the engine: the adapters of this machine.

use alloc::vec::Vec;
use core::{ffi::c_void, net::IpAddr};

use fallible::Arc;
use ndkpi::{GUID, NtStatus};

use crate::{
    Client, Device, OverlappedOs,
    abi::HRESULT,
    adapter::{AdapterCore, memory_result},
    back_end::BackEnd,
    com::{Object, Provider},
    connector::Connector,
    cq::core::Owned,
    listener::Listener,
    mr::MemoryRegion,
    mw::MemoryWindow,
    qp::QueuePair,
    srq::SharedReceiveQueue,
};

/// Some adapters of this machine, for one client.
pub struct Engine<P: OverlappedOs> {
    devices: Vec<Arc<Device<P>>>,
    client: Client,
}

impl<P: OverlappedOs> Engine<P> {
    /// Makes a COM object with the interface `iid` that provides `devices` to `client`.
    ///
    /// # Safety
    ///
    /// `iid` is null or valid for reading, `out` null or valid for writing.
    pub unsafe fn create(
        devices: &[Arc<Device<P>>],
        client: &Client,
        iid: *const GUID,
        out: *mut *mut c_void,
    ) -> HRESULT {
        let make = || {
            let mut own = Vec::new();
            own.try_reserve_exact(devices.len()).map_err(|_| HRESULT::ND_NO_MEMORY)?;
            own.extend(devices.iter().cloned());
            Ok(Provider(Self { devices: own, client: client.clone() }))
        };
        // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
        unsafe { Object::hand_out(iid, out, make) }
    }
}

impl<P: OverlappedOs> BackEnd for Engine<P> {
    type Adapter = AdapterCore<P>;
    type File = P::File;
    type CompletionQueue = Owned<P>;
    type SharedReceiveQueue = SharedReceiveQueue<P>;
    type QueuePair = QueuePair<P>;
    type MemoryRegion = MemoryRegion<P>;
    type MemoryWindow = MemoryWindow<P>;
    type Connector = Connector<P>;
    type Listener = Listener<P>;

    fn addresses(&self) -> Result<Vec<IpAddr>, NtStatus> {
        let mut all = Vec::new();
        for device in self.devices.iter().filter(|device| device.is_present()) {
            let own = device.addresses()?;
            all.try_reserve(own.len()).map_err(fallible::AllocError::from)?;
            all.extend(own);
        }
        Ok(all)
    }

    fn resolve(&self, address: IpAddr) -> Result<u64, NtStatus> {
        let has = |device: &&Arc<Device<P>>| {
            device.is_present() && device.addresses().is_ok_and(|own| own.contains(&address))
        };
        let found = self.devices.iter().find(has).ok_or(NtStatus::INVALID_ADDRESS)?;
        Ok(found.config().info.AdapterId)
    }

    fn open(&self, number: u64) -> Result<Arc<AdapterCore<P>>, HRESULT> {
        let is_it = |device: &&Arc<Device<P>>| device.config().info.AdapterId == number;
        let device = self.devices.iter().find(is_it).ok_or(HRESULT::ND_INVALID_PARAMETER)?;
        device.check_present()?;
        AdapterCore::try_new(device, &self.client).map_err(memory_result)
    }
}
