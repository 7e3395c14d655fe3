//! One adapter: what all clients that have it open share, and its sudden removal.

use alloc::vec::Vec;
use core::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use engine::{
    Nic,
    connection::{ConnectionLimits, Fabric, InterfaceAddress, Port, ReadLimits, Timeouts},
    cq::{Cq, notify::CqFailure},
    memory::{MemoryLimits, MemoryRules, MemoryTable},
    nic::{NicMode, NicRules, NotReady},
    os::{Os, SpinLock},
    qp::Qp,
    slab::Slab,
};
use fallible::Arc;
use ndkpi::{NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, NDK_ADAPTER_INFO, NtStatus};

use crate::{
    Account, Charge, CompletionPolicy, Engine, Item, OverlappedOs,
    abi::{
        ND2_ADAPTER_INFO,
        adapter_flags::{
            ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED,
            ND_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED, ND_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED,
        },
    },
    adapter::AdapterCore,
    com::find_queue,
    connector, cq,
    faults::{FaultState, Faults},
    late::LateRequests,
    limits::{InUse, Limits, Reservation, Resource},
    listener, srq,
};

/// What the engine's tokens have room for, and the address space.
#[expect(clippy::cast_possible_truncation, reason = "no more than there is room for")]
const LARGEST_REGISTRATION: usize = {
    const MOST: u64 = usize::MAX as u64;
    if MemoryLimits::MAX.registration < MOST { MemoryLimits::MAX.registration as usize } else { usize::MAX }
};

/// How an adapter is made.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What the adapter says of itself and enforces.
    pub info: ND2_ADAPTER_INFO,
    /// How much of everything there is.
    pub limits: Limits,
    /// How overlapped requests end that wait for nothing.
    pub policy: CompletionPolicy,
    /// Requests for notification that may be outstanding on one queue.
    pub max_notify_requests: u32,
    /// Memory regions, windows and open adapters at most, together.
    pub max_tokens: u32,
    /// Connection requests that a listener holds at most, whatever backlog its client asks for.
    pub max_backlog: u32,
    /// How long the other side of a connection is waited for.
    pub timeouts: Timeouts,
    /// Which engine carries work requests out.
    pub nic: NicMode,
    /// What becomes of a message for which the peer has no receive.
    pub not_ready: NotReady,
    /// The most microseconds that the completion of an initiator request comes late.
    pub initiator_delay: u32,
    /// What it does wrong on purpose.
    pub faults: Faults,
    /// True if reads may put their data only in regions that grant the read sink; false if local write is enough.
    pub read_sink_required: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            info: ND2_ADAPTER_INFO {
                InfoVersion: 1,
                // No vendor: the identifier is administered locally.
                VendorId: 0x0200,
                DeviceId: 1,
                AdapterId: 1,
                MaxRegistrationSize: LARGEST_REGISTRATION,
                MaxWindowSize: LARGEST_REGISTRATION,
                MaxInitiatorSge: 16,
                MaxReceiveSge: 16,
                MaxReadSge: 16,
                MaxTransferLength: 1 << 30,
                MaxInlineDataSize: 1024,
                MaxInboundReadLimit: 128,
                MaxOutboundReadLimit: 128,
                MaxReceiveQueueDepth: 16 << 10,
                MaxInitiatorQueueDepth: 16 << 10,
                MaxSharedReceiveQueueDepth: 16 << 10,
                MaxCompletionQueueDepth: 1 << 20,
                InlineRequestThreshold: 256,
                LargeRequestThreshold: 64 << 10,
                MaxCallerData: 512,
                MaxCalleeData: 512,
                AdapterFlags: ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED
                    | ND_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
                    | ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
                    | ND_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED,
            },
            limits: Limits::default(),
            policy: CompletionPolicy::Pending,
            max_notify_requests: 1024,
            max_tokens: MemoryLimits::MAX.tokens,
            max_backlog: 1024,
            // Clients need not hurry: minutes, not seconds.
            timeouts: Timeouts { connect: 120_000_000, establish: 120_000_000, disconnect: 10_000_000 },
            nic: NicMode::Deferred,
            not_ready: NotReady::Wait,
            initiator_delay: 0,
            faults: Faults::default(),
            read_sink_required: false,
        }
    }
}

impl Config {
    /// Gives the adapter the limits and flags of one of NDKPI, as far as this interface has them.
    pub const fn take_limits(&mut self, of: &NDK_ADAPTER_INFO) {
        self.info = ND2_ADAPTER_INFO {
            MaxRegistrationSize: of.MaxRegistrationSize,
            MaxWindowSize: of.MaxWindowSize,
            MaxInitiatorSge: of.MaxInitiatorRequestSge,
            MaxReceiveSge: of.MaxReceiveRequestSge,
            MaxReadSge: of.MaxReadRequestSge,
            MaxTransferLength: of.MaxTransferLength,
            MaxInlineDataSize: of.MaxInlineDataSize,
            MaxInboundReadLimit: of.MaxInboundReadLimit,
            MaxOutboundReadLimit: of.MaxOutboundReadLimit,
            MaxReceiveQueueDepth: of.MaxReceiveQueueDepth,
            MaxInitiatorQueueDepth: of.MaxInitiatorQueueDepth,
            MaxSharedReceiveQueueDepth: of.MaxSrqDepth,
            MaxCompletionQueueDepth: of.MaxCqDepth,
            LargeRequestThreshold: of.LargeRequestThreshold,
            MaxCallerData: of.MaxCallerData,
            MaxCalleeData: of.MaxCalleeData,
            // The flags that both interfaces have are the same bits; moderation has no method here.
            AdapterFlags: of.AdapterFlags
                & (ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED
                    | ND_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
                    | ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
                    | ND_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED),
            ..self.info
        };
        if self.info.InlineRequestThreshold > of.MaxInlineDataSize {
            self.info.InlineRequestThreshold = of.MaxInlineDataSize;
        }
        self.read_sink_required = of.AdapterFlags & NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED == 0;
    }
}

/// What has to know when the adapter is removed.
pub enum Member<P: OverlappedOs> {
    CompletionQueue(Arc<cq::core::Core<P>>),
    SharedReceiveQueue(Arc<srq::Core<P>>),
    QueuePair(Arc<Qp<P::Os>>),
    Connector(Arc<connector::Core<P>>),
    Listener(Arc<listener::Core<P>>),
}

impl<P: OverlappedOs> Member<P> {
    const fn resource(&self) -> Resource {
        match self {
            Self::CompletionQueue(_) => Resource::CompletionQueues,
            Self::SharedReceiveQueue(_) => Resource::SharedReceiveQueues,
            Self::QueuePair(_) => Resource::QueuePairs,
            Self::Connector(_) => Resource::Connectors,
            Self::Listener(_) => Resource::Listeners,
        }
    }
}

impl<P: OverlappedOs> Clone for Member<P> {
    fn clone(&self) -> Self {
        match self {
            Self::CompletionQueue(core) => Self::CompletionQueue(core.clone()),
            Self::SharedReceiveQueue(core) => Self::SharedReceiveQueue(core.clone()),
            Self::QueuePair(qp) => Self::QueuePair(qp.clone()),
            Self::Connector(core) => Self::Connector(core.clone()),
            Self::Listener(core) => Self::Listener(core.clone()),
        }
    }
}

/// A member's place. Dropping it gives the place up.
pub struct Membership<P: OverlappedOs> {
    device: Arc<Device<P>>,
    number: usize,
    _taken: Reservation<P>,
}

impl<P: OverlappedOs> Drop for Membership<P> {
    fn drop(&mut self) {
        // The reference is dropped after the lock is released.
        drop(self.device.members.with(|members| members.remove(self.number)));
    }
}

/// A NIC, and its port on a fabric.
pub type Hardware<'a, O> = (&'a Arc<Nic<O>>, &'a Arc<Port<O>>);

/// One adapter.
pub struct Device<P: OverlappedOs> {
    platform: P,
    config: Config,
    nic: Arc<Nic<P::Os>>,
    memory: Arc<MemoryTable<P::Os>>,
    port: Arc<Port<P::Os>>,
    addresses: <P::Os as Os>::Lock<Vec<IpAddr>>,
    /// A thread looks at the machine's interfaces.
    following: AtomicBool,
    /// Others use the port too.
    shares_port: bool,
    removed: AtomicBool,
    in_use: InUse,
    faults: FaultState,
    late: Option<LateRequests<P>>,
    members: <P::Os as Os>::Lock<Slab<Member<P>>>,
}

impl<P: OverlappedOs> Device<P> {
    /// Makes an adapter with these addresses on a fabric.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `STATUS_INVALID_ADDRESS`, `STATUS_SHARING_VIOLATION` for an address that cannot be
    /// the adapter's.
    pub fn try_new(
        platform: &P,
        fabric: &Arc<Fabric<P::Os>>,
        addresses: &[InterfaceAddress],
        config: Config,
    ) -> Result<Arc<Self>, NtStatus> {
        let info = &config.info;
        let limits = ConnectionLimits {
            max_caller_data: info.MaxCallerData,
            max_callee_data: info.MaxCalleeData,
            max_reads: ReadLimits { inbound: info.MaxInboundReadLimit, outbound: info.MaxOutboundReadLimit },
            backlog: config.max_backlog,
            loopback: true,
        };
        let port = Port::try_new(fabric, limits, config.timeouts)?;
        for address in addresses {
            port.add_address(*address)?;
        }
        let in_order = info.AdapterFlags & ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED != 0;
        let Config { not_ready, initiator_delay, .. } = config;
        let rules = NicRules { not_ready, in_order, initiator_delay, ..NicRules::default() };
        let nic = Nic::try_new_with(platform.os(), config.nic, rules)?;
        Self::make(platform, (&nic, &port), addresses.iter().map(|one| one.address), config, false)
    }

    /// Makes an adapter of a NIC and a port that has these addresses, and that others may use too. The port's limits are those
    /// of connections, and its timeouts hold, not the configuration's.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new_on(
        platform: &P,
        (nic, port): Hardware<'_, P::Os>,
        addresses: impl Iterator<Item = IpAddr>,
        config: Config,
    ) -> Result<Arc<Self>, NtStatus> {
        Self::make(platform, (nic, port), addresses, config, true)
    }

    fn make(
        platform: &P,
        (nic, port): Hardware<'_, P::Os>,
        addresses: impl Iterator<Item = IpAddr>,
        config: Config,
        shares_port: bool,
    ) -> Result<Arc<Self>, NtStatus> {
        let memory_limits = MemoryLimits {
            tokens: config.max_tokens,
            mappings: 0,
            registration: config.info.MaxRegistrationSize as u64,
            fast_register_pages: 1,
        };
        let memory_rules = MemoryRules { read_sink_required: config.read_sink_required, ..MemoryRules::default() };
        let mut own = Vec::new();
        for address in addresses {
            own.try_reserve(1).map_err(fallible::AllocError::from)?;
            own.push(address);
        }
        let os = platform.os();
        Arc::try_new(Self {
            platform: platform.clone(),
            config,
            nic: nic.clone(),
            memory: MemoryTable::try_new_with(os, memory_limits, memory_rules)?,
            port: port.clone(),
            addresses: os.lock(own)?,
            following: AtomicBool::new(false),
            shares_port,
            removed: AtomicBool::new(false),
            in_use: InUse::default(),
            faults: FaultState::new(config.faults),
            late: LateRequests::try_new(os, config.faults.request_delay)?,
            members: os.lock(Slab::new())?,
        })
        .map_err(Into::into)
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The adapter's addresses, as they are now.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, NtStatus> {
        self.follow_interfaces()?;
        self.known_addresses()
    }

    fn known_addresses(&self) -> Result<Vec<IpAddr>, NtStatus> {
        let mut room = Vec::new();
        loop {
            // Room is made with no lock held.
            let copied = self.addresses.with(|own| {
                if room.capacity() < own.len() {
                    return Err(own.len());
                }
                room.extend_from_slice(own);
                Ok(())
            });
            match copied {
                Ok(()) => return Ok(room),
                Err(count) => room.try_reserve_exact(count).map_err(fallible::AllocError::from)?,
            }
        }
    }

    /// Gives the adapter the addresses that the machine's interfaces have now, if it is to have those. What is connected at an
    /// address that has gone goes on; nothing new begins there.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn follow_interfaces(&self) -> Result<(), NtStatus> {
        if self.shares_port || self.check_present().is_err() {
            return Ok(());
        }
        let Some(now) = self.platform.interfaces() else { return Ok(()) };
        // One thread at a time; the others take what there is.
        if self.following.swap(true, Ordering::Acquire) {
            return Ok(());
        }
        let followed = self.follow(&now);
        self.following.store(false, Ordering::Release);
        followed
    }

    fn follow(&self, now: &[InterfaceAddress]) -> Result<(), NtStatus> {
        let before = self.known_addresses()?;
        let mut own = Vec::new();
        own.try_reserve_exact(now.len()).map_err(fallible::AllocError::from)?;
        for gone in before.iter().filter(|address| now.iter().all(|one| one.address != **address)) {
            self.port.remove_address(*gone);
        }
        for one in now {
            // An address that no adapter can have is left out.
            if before.contains(&one.address) || self.port.add_address(*one).is_ok() {
                own.push(one.address);
            }
        }
        // Dropped after the lock is released.
        drop(self.addresses.with(|place| core::mem::replace(place, own)));
        Ok(())
    }

    /// Returns true if a request that has succeeded is to pend first.
    pub(crate) fn pends(&self) -> bool {
        match self.config.policy {
            CompletionPolicy::Pending => true,
            CompletionPolicy::Inline => false,
            CompletionPolicy::Mixed => self.platform.os().random() & 1 == 0,
        }
    }

    pub(crate) const fn faults(&self) -> &FaultState {
        &self.faults
    }

    /// The requests that end late, if the adapter's do.
    pub(crate) const fn late(&self) -> Option<&LateRequests<P>> {
        self.late.as_ref()
    }

    /// Charges a client for something.
    ///
    /// # Errors
    ///
    /// `STATUS_IMPLEMENTATION_LIMIT` if it has no more of it: clients are told `ND_INSUFFICIENT_RESOURCES`, and the platform which limit
    /// it was.
    pub(crate) fn charge(&self, to: Option<&Arc<Account>>, item: Item, amount: u64) -> Result<Charge, NtStatus> {
        let all = match item {
            Item::Tokens => self.config.max_tokens.into(),
            // There are no more tokens for windows, whatever the limit is.
            Item::Resource(Resource::MemoryWindows) => {
                self.config.limits.get(Resource::MemoryWindows).min(MemoryLimits::WINDOWS.into())
            }
            Item::Resource(resource) => self.config.limits.get(resource),
            Item::Memory | Item::Locked | Item::Requests | Item::Sessions => 0,
        };
        Charge::try_new(to, item, amount, all).map_err(|exhausted| {
            self.platform.limit_reached(exhausted.name, exhausted.most);
            NtStatus::IMPLEMENTATION_LIMIT
        })
    }

    pub(crate) const fn in_use(&self) -> &InUse {
        &self.in_use
    }

    pub(crate) const fn platform(&self) -> &P {
        &self.platform
    }

    pub(crate) const fn nic(&self) -> &Arc<Nic<P::Os>> {
        &self.nic
    }

    pub(crate) const fn memory(&self) -> &Arc<MemoryTable<P::Os>> {
        &self.memory
    }

    pub(crate) const fn port(&self) -> &Arc<Port<P::Os>> {
        &self.port
    }

    /// Returns true if the adapter is still there.
    pub fn is_present(&self) -> bool {
        self.check_present().is_ok()
    }

    /// Checks that the adapter is still there.
    ///
    /// # Errors
    ///
    /// `STATUS_DEVICE_REMOVED`.
    pub(crate) fn check_present(&self) -> Result<(), NtStatus> {
        if self.removed.load(Ordering::Acquire) { Err(NtStatus::DEVICE_REMOVED) } else { Ok(()) }
    }

    /// Lets `member`, which is made on `adapter`, know when the device is removed.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_DEVICE_REMOVED`, `STATUS_IMPLEMENTATION_LIMIT`.
    pub(crate) fn join(adapter: &AdapterCore<P>, member: Member<P>) -> Result<Membership<P>, NtStatus> {
        let this = adapter.device();
        let taken = Reservation::try_new(this, adapter.account(), member.resource(), 1)?;
        let number = this.members.with(|members| members.try_insert(member))?;
        let membership = Membership { device: this.clone(), number, _taken: taken };
        // Removed meanwhile: the removal may have passed this member by.
        this.check_present()?;
        Ok(membership)
    }

    /// The adapter is gone: what is outstanding ends with `ND_DEVICE_REMOVED`, connections break, and from now on only
    /// cleaning up succeeds.
    pub fn remove(&self) {
        self.removed.store(true, Ordering::Release);
        // What is outstanding ends because the adapter is gone, and not because that ends something else.
        self.for_each(|member| match member {
            Member::CompletionQueue(core) => core.removed(),
            Member::SharedReceiveQueue(core) => core.removed(),
            Member::Connector(core) => core.removing(),
            Member::QueuePair(_) | Member::Listener(_) => {}
        });
        self.for_each(|member| match member {
            Member::QueuePair(qp) => Qp::fail(&qp),
            Member::Connector(core) => core.removed(),
            Member::Listener(core) => core.removed(),
            Member::CompletionQueue(_) | Member::SharedReceiveQueue(_) => {}
        });
        if !self.shares_port {
            self.port.detach();
        }
    }

    /// Calls `each` for every member, with no lock held.
    fn for_each(&self, mut each: impl FnMut(Member<P>)) {
        for number in 0..self.members.with(|members| members.bound()) {
            if let Some(member) = self.members.with(|members| members.get(number).cloned()) {
                each(member);
            }
        }
    }

    /// Lets a completion queue fail as broken hardware would. For tests.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if it is none of this crate.
    ///
    /// # Safety
    ///
    /// `queue` is null or a COM object.
    pub unsafe fn break_completion_queue(queue: *mut core::ffi::c_void) -> Result<(), NtStatus> {
        // SAFETY: `queue` is null or a COM object (`# Safety`).
        let queue = unsafe { find_queue::<Engine<P>>(queue) }.ok_or(NtStatus::INVALID_PARAMETER)?;
        Cq::fail(&queue.cq, CqFailure::Fatal);
        Ok(())
    }
}
