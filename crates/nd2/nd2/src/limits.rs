//! How much of what an adapter gives to its clients, all of them together.

use core::sync::atomic::{AtomicU64, Ordering};

use fallible::Arc;
use ndkpi::NtStatus;

use crate::{Account, Charge, Device, Item, OverlappedOs};

/// What an adapter has a limited amount of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Queue pairs.
    QueuePairs,
    /// Completion queues of either version.
    CompletionQueues,
    /// Shared receive queues.
    SharedReceiveQueues,
    /// Memory regions, registered or not.
    MemoryRegions,
    /// Memory windows.
    MemoryWindows,
    /// Connectors.
    Connectors,
    /// Listeners.
    Listeners,
    /// Bytes that are registered, counted once for each region they are in.
    RegisteredBytes,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::QueuePairs,
        Self::CompletionQueues,
        Self::SharedReceiveQueues,
        Self::MemoryRegions,
        Self::MemoryWindows,
        Self::Connectors,
        Self::Listeners,
        Self::RegisteredBytes,
    ];

    /// What its limit is called in settings and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueuePairs => "queue_pairs",
            Self::CompletionQueues => "completion_queues",
            Self::SharedReceiveQueues => "shared_receive_queues",
            Self::MemoryRegions => "memory_regions",
            Self::MemoryWindows => "memory_windows",
            Self::Connectors => "connectors",
            Self::Listeners => "listeners",
            Self::RegisteredBytes => "registered_bytes",
        }
    }
}

/// The most that there is of each resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits([u64; Resource::ALL.len()]);

impl Default for Limits {
    /// About what an RDMA adapter has. There are fewer connectors than ephemeral ports, and more than queue pairs: a client that
    /// connects until it is refused a queue pair leaves some to who accepts.
    fn default() -> Self {
        let mut limits = Self([8 << 10; Resource::ALL.len()]);
        limits.set(Resource::Connectors, 12 << 10);
        limits.set(Resource::CompletionQueues, 16 << 10);
        limits.set(Resource::MemoryRegions, 64 << 10);
        limits.set(Resource::MemoryWindows, 64 << 10);
        limits.set(Resource::Listeners, 1 << 10);
        limits.set(Resource::RegisteredBytes, 1 << 40);
        limits
    }
}

impl Limits {
    /// The most that there is.
    #[must_use]
    pub const fn get(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// Sets the most that there is.
    pub const fn set(&mut self, resource: Resource, most: u64) {
        self.0[resource as usize] = most;
    }
}

/// What has been taken of each resource.
#[derive(Default)]
pub struct InUse([AtomicU64; Resource::ALL.len()]);

/// An amount of a resource. Dropping it gives it back.
pub struct Reservation<P: OverlappedOs> {
    device: Arc<Device<P>>,
    resource: Resource,
    amount: u64,
    _charge: Charge,
}

impl<P: OverlappedOs> Reservation<P> {
    /// Takes `amount` of a resource for a client with this account.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES` if the adapter is to make that fault; `STATUS_IMPLEMENTATION_LIMIT` if there is not so much
    /// left: clients are told `ND_INSUFFICIENT_RESOURCES`, and the platform which limit it was.
    pub fn try_new(
        device: &Arc<Device<P>>,
        account: Option<&Arc<Account>>,
        resource: Resource,
        amount: u64,
    ) -> Result<Self, NtStatus> {
        let most = device.config().limits.get(resource);
        let more = |now: u64| now.checked_add(amount).filter(|sum| *sum <= most);
        if device.faults().refuses() {
            // As if there were none left: for a client that is to show what it does then.
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let charge = device.charge(account, Item::Resource(resource), amount)?;
        let in_use = &device.in_use().0[resource as usize];
        if in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            device.platform().limit_reached(resource.name(), most);
            return Err(NtStatus::IMPLEMENTATION_LIMIT);
        }
        Ok(Self { device: device.clone(), resource, amount, _charge: charge })
    }
}

impl<P: OverlappedOs> Drop for Reservation<P> {
    fn drop(&mut self) {
        self.device.in_use().0[self.resource as usize].fetch_sub(self.amount, Ordering::Relaxed);
    }
}
