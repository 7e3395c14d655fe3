//! One adapter: its limits, its NIC, and the `NDK_ADAPTER`s that are open on it.

use alloc::boxed::Box;
use core::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicU32, Ordering},
};

use engine::{
    Nic,
    connection::{ConnectionLimits, Fabric, InterfaceAddress, Port, ReadLimits, Timeouts},
    memory::{FastTokens, MemoryLimits, MemoryRules, MemoryTable},
    nic::{NicMode, NicRules, NotReady},
    os::Event,
    wire::{Cable, MAX_CALLEE_DATA, MAX_CALLER_DATA, Network, Wire, WireConfig},
};
use fallible::Arc;
use ndkpi::{
    NDIS_NDK_PERFORMANCE_COUNTERS, NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_RDMA_TECHNOLOGY, NDK_VERSION, NtStatus,
    adapter_flags,
};

use crate::{
    CompletionMode, NdkOs,
    adapter::Adapter,
    completion::Completions,
    object::{ObjectRef, borrow},
};

/// The versions that a consumer can get (`NDKPI 1`): of each major version the highest minor.
pub const VERSIONS: [NDK_VERSION; 2] = [NDK_VERSION::V1_2, NDK_VERSION::V2_1];

/// The largest registration that the engine's table can hold.
#[expect(clippy::cast_possible_truncation, reason = "NDKPI exists on 64-bit systems")]
const MAX_REGISTRATION: usize = MemoryLimits::MAX.registration as usize;

/// The most addresses of one adapter.
pub const MAX_ADDRESSES: usize = 8;

/// The configuration of a device.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The adapter's limits and flags, which it enforces. `Version` is filled in for each consumer. Without the flags of
    /// moderation, resize, local invalidation or connections with itself these are refused; without that of read sinks a read
    /// needs their right. The other flags describe what it always does.
    pub info: NDK_ADAPTER_INFO,
    /// The versions that a consumer can get, of each major version the highest minor (`NDKPI 1`): [`VERSIONS`], or fewer.
    pub versions: &'static [NDK_VERSION],
    /// The most queue pairs of the device.
    pub max_qps: u32,
    /// The most completion queues of the device.
    pub max_cqs: u32,
    /// The most protection domains of the device.
    pub max_pds: u32,
    /// The most memory regions, windows and protection domains of the device, together.
    pub max_tokens: u32,
    /// The most logical address mappings of the device.
    pub max_mappings: u32,
    /// How fast registrations change remote tokens.
    pub fast_tokens: FastTokens,
    /// The link of the fabric that the adapter is on: it reaches the adapters of that link.
    pub link: u32,
    /// The adapter's addresses.
    pub addresses: [Option<InterfaceAddress>; MAX_ADDRESSES],
    /// The most connection requests that a listener holds.
    pub backlog: u32,
    /// How long connections may take to be established and to end.
    pub timeouts: Timeouts,
    /// Where requests are carried out.
    pub nic: NicMode,
    /// What becomes of messages for which the peer has no receive.
    pub not_ready: NotReady,
    /// How often a profile of RoCE sends such a message again; 7 is without end.
    pub rnr_retries: u32,
    /// Microseconds before each time.
    pub rnr_timer: u32,
    /// The most microseconds that completions of initiator requests come late, so that answers may come before them.
    pub initiator_delay: u32,
    /// How requests complete at first.
    pub mode: CompletionMode,
    /// The seed of the sequence of [`CompletionMode::Mixed`].
    pub seed: u64,
}

/// The most retries that InfiniBand counts; its seven is without end.
pub const RNR_RETRIES: u32 = 6;
/// The longest timer of InfiniBand, in microseconds, which is what connection managers ask for.
pub const RNR_TIMER: u32 = 655_360;

impl Default for Config {
    fn default() -> Self {
        Self {
            info: NDK_ADAPTER_INFO {
                Version: NDK_VERSION::V2_1,
                // No vendor has this identifier: bit 25 marks one that is administered locally.
                VendorId: 0x0200_0000,
                DeviceId: 1,
                MaxRegistrationSize: MAX_REGISTRATION,
                MaxWindowSize: MAX_REGISTRATION,
                FRMRPageCount: 512,
                MaxInitiatorRequestSge: 16,
                MaxReceiveRequestSge: 16,
                MaxReadRequestSge: 16,
                MaxTransferLength: 1 << 30,
                MaxInlineDataSize: 1024,
                MaxInboundReadLimit: 128,
                MaxOutboundReadLimit: 128,
                MaxReceiveQueueDepth: 16 << 10,
                MaxInitiatorQueueDepth: 16 << 10,
                MaxSrqDepth: 16 << 10,
                MaxCqDepth: 1 << 20,
                LargeRequestThreshold: 64 << 10,
                MaxCallerData: 512,
                MaxCalleeData: 512,
                AdapterFlags: adapter_flags::NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED
                    | adapter_flags::NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
                    | adapter_flags::NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
                    | adapter_flags::NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
                    | adapter_flags::NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
                    | adapter_flags::NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
                    | adapter_flags::NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED,
                RdmaTechnology: NDK_RDMA_TECHNOLOGY::UNDEFINED,
            },
            versions: &VERSIONS,
            max_qps: 16 << 10,
            max_cqs: 64 << 10,
            max_pds: 16 << 10,
            // A million regions, and windows and domains beside them.
            max_tokens: (1 << 20) + (1 << 17),
            max_mappings: 64 << 10,
            fast_tokens: FastTokens::Stable,
            link: 0,
            addresses: Self::addresses_of(1),
            backlog: 128,
            timeouts: Timeouts { connect: 10_000_000, establish: 10_000_000, disconnect: 10_000_000 },
            nic: NicMode::Deferred,
            not_ready: NotReady::Wait,
            rnr_retries: RNR_RETRIES,
            rnr_timer: RNR_TIMER,
            initiator_delay: 0,
            mode: CompletionMode::Inline,
            seed: 0,
        }
    }
}

impl Config {
    /// The addresses of adapter `number` (from 1) of a fabric. They are of the networks for documentation: no real host has them.
    #[must_use]
    pub fn addresses_of(number: u8) -> [Option<InterfaceAddress>; MAX_ADDRESSES] {
        let ipv4 = Ipv4Addr::new(192, 0, 2, number);
        let ipv6 = Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, u16::from(number));
        let mut addresses = [None; MAX_ADDRESSES];
        addresses[0] = Some(InterfaceAddress::new(ipv4.into(), 24));
        addresses[1] = Some(InterfaceAddress::new(ipv6.into(), 64));
        addresses
    }

    const fn nic_rules(&self) -> NicRules {
        NicRules {
            not_ready: self.not_ready,
            in_order: self.info.AdapterFlags & adapter_flags::NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED != 0,
            initiator_delay: self.initiator_delay,
            seed: self.seed,
        }
    }

    const fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            max_caller_data: self.info.MaxCallerData,
            max_callee_data: self.info.MaxCalleeData,
            max_reads: ReadLimits { inbound: self.info.MaxInboundReadLimit, outbound: self.info.MaxOutboundReadLimit },
            backlog: self.backlog,
            loopback: self.info.AdapterFlags & adapter_flags::NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED != 0,
        }
    }
}

const fn memory_limits(config: &Config) -> MemoryLimits {
    MemoryLimits {
        tokens: config.max_tokens,
        mappings: config.max_mappings,
        registration: config.info.MaxRegistrationSize as u64,
        fast_register_pages: config.info.FRMRPageCount,
    }
}

const fn memory_rules(config: &Config) -> MemoryRules {
    let flag = adapter_flags::NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED;
    MemoryRules { fast_tokens: config.fast_tokens, read_sink_required: config.info.AdapterFlags & flag == 0 }
}

/// A limit on the number of objects.
pub struct Quota {
    used: AtomicU32,
    limit: u32,
}

impl Quota {
    const fn new(limit: u32) -> Self {
        Self { used: AtomicU32::new(0), limit }
    }

    /// Counts one more object.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES` at the limit.
    pub fn take(&self) -> Result<(), NtStatus> {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| (used < self.limit).then(|| used + 1))
            .map(drop)
            .map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// Counts one object fewer.
    pub fn give_back(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An adapter's port. Dropping this detaches it from the fabric.
struct PortGuard<O: NdkOs>(Arc<Port<O>>);

impl<O: NdkOs> Drop for PortGuard<O> {
    fn drop(&mut self) {
        self.0.detach();
        self.0.unplug();
    }
}

/// One adapter.
pub struct Device<O: NdkOs> {
    os: O,
    config: Config,
    nic: Arc<Nic<O>>,
    port: PortGuard<O>,
    memory: Arc<MemoryTable<O>>,
    completions: Arc<Completions<O>>,
    /// Queue pairs.
    pub(crate) qps: Quota,
    /// Completion queues.
    pub(crate) cqs: Quota,
    /// Protection domains.
    pub(crate) pds: Quota,
    /// Completion queues that have failed (`CQError`, `NDIS-NDK 3`).
    pub(crate) cq_errors: AtomicU32,
}

impl<O: NdkOs> Device<O> {
    /// Makes an adapter on a fabric of its own. It can connect to itself only.
    ///
    /// # Errors
    ///
    /// As [`Device::try_new_on`].
    pub fn try_new(os: &O, config: Config) -> Result<Arc<Self>, NtStatus> {
        Self::try_new_on(os, &Fabric::try_new(os)?, config)
    }

    /// Makes an adapter on a fabric that it shares with others.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_ADDRESS` for an address that no adapter can have, `STATUS_SHARING_VIOLATION` for one that another adapter
    /// of the link has, `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new_on(os: &O, fabric: &Arc<Fabric<O>>, config: Config) -> Result<Arc<Self>, NtStatus> {
        Self::make(os, fabric, &config, None)
    }

    /// Makes an adapter with a wire that ends in `cable`: by it the adapter reaches addresses that no adapter of its link has. A message
    /// of a connection manager has room for less private data than the adapter might allow otherwise, so the limits of that are lowered.
    ///
    /// # Errors
    ///
    /// As [`Device::try_new_on`].
    pub fn try_new_with_cable(
        os: &O,
        fabric: &Arc<Fabric<O>>,
        mut config: Config,
        wire: WireConfig,
        cable: Box<dyn Cable>,
    ) -> Result<Arc<Self>, NtStatus> {
        config.info.MaxCallerData = config.info.MaxCallerData.min(MAX_CALLER_DATA);
        config.info.MaxCalleeData = config.info.MaxCalleeData.min(MAX_CALLEE_DATA);
        let network = |address: InterfaceAddress| Network { address: address.address, prefix: address.prefix };
        let networks = config.addresses.iter().flatten().map(|address| network(*address));
        let mut all = [Network { address: Ipv4Addr::UNSPECIFIED.into(), prefix: 32 }; MAX_ADDRESSES];
        let count = all.iter_mut().zip(networks).map(|(place, network)| *place = network).count();
        let wire = Wire::try_new(os, wire, &all[..count], cable)?;
        Self::make(os, fabric, &config, Some(wire))
    }

    fn make(
        os: &O,
        fabric: &Arc<Fabric<O>>,
        config: &Config,
        wire: Option<Arc<Wire<O>>>,
    ) -> Result<Arc<Self>, NtStatus> {
        let port = Port::try_new_on_link(fabric, config.link, config.connection_limits(), config.timeouts)?;
        // Dropped, unless the device is made: the fabric forgets the addresses then.
        let port = PortGuard(port);
        for address in config.addresses.iter().flatten() {
            port.0.add_address(*address)?;
        }
        if let Some(wire) = wire {
            Port::plug(&port.0, wire)?;
        }
        Arc::try_new(Self {
            os: os.clone(),
            config: *config,
            nic: Nic::try_new_with(os, config.nic, config.nic_rules())?,
            port,
            memory: MemoryTable::try_new_with(os, memory_limits(config), memory_rules(config))?,
            completions: Completions::try_new(os, config.mode, config.seed)?,
            qps: Quota::new(config.max_qps),
            cqs: Quota::new(config.max_cqs),
            pds: Quota::new(config.max_pds),
            cq_errors: AtomicU32::new(0),
        })
        .map_err(Into::into)
    }

    /// Opens an `NDK_ADAPTER`, as `OPEN_NDK_ADAPTER_HANDLER` does (`NDIS-NDK 4`). `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `NDIS_STATUS_BAD_VERSION` by the rule of `NDKPI 1`; `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn open(this: &Arc<Self>, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let version = version.negotiate(this.config.versions)?;
        let closed = Arc::try_new(this.os.event()?)?;
        let adapter = ObjectRef::try_new(version, Adapter::new(this.clone(), version, closed))?;
        Ok(adapter.into_public())
    }

    /// Closes an `NDK_ADAPTER`, as `CLOSE_NDK_ADAPTER_HANDLER` does (`NDIS-NDK 4`): waits until every object that descends from
    /// it is closed and every callback has returned. `PASSIVE_LEVEL`, and never from a callback.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`Device::open`] and is not used after this call.
    pub unsafe fn close(adapter: *mut NDK_ADAPTER) {
        // SAFETY: the adapter is open.
        let Ok(object) = (unsafe { borrow::<Adapter<O>>(adapter) }) else { return };
        let closed = object.closed().clone();
        // SAFETY: the pointer was made by `into_public` and is not used after this: its reference is taken back once.
        drop(unsafe { object.take_back() });
        closed.wait();
    }

    /// The operating system.
    #[must_use]
    pub const fn os(&self) -> &O {
        &self.os
    }

    /// Returns the configuration that the device was made with.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns true if the adapter has this flag (`NDKPI 2.6`).
    #[must_use]
    pub const fn has(&self, flag: u32) -> bool {
        self.config.info.AdapterFlags & flag == flag
    }

    /// The NIC.
    #[must_use]
    pub const fn nic(&self) -> &Arc<Nic<O>> {
        &self.nic
    }

    /// The adapter's port.
    #[must_use]
    pub const fn port(&self) -> &Arc<Port<O>> {
        &self.port.0
    }

    /// The way to other machines, if there is one. Whatever has its frames passes them to [`Wire::receive`].
    #[must_use]
    pub fn wire(&self) -> Option<Arc<Wire<O>>> {
        self.port().wire()
    }

    /// The counters of the adapter (`NDIS-NDK 3`). Of a wire they have its frames of RoCEv2, acknowledgements and what is sent again too, as
    /// the reference wants it; within the machine there are none, and each message counts as one.
    #[must_use]
    pub fn counters(&self) -> NDIS_NDK_PERFORMANCE_COUNTERS {
        let (traffic, connections) = (self.nic.traffic(), self.port().counters());
        let wire = self.wire().map(|wire| wire.counters()).unwrap_or_default();
        NDIS_NDK_PERFORMANCE_COUNTERS {
            Connect: connections.connect,
            Accept: connections.accept,
            ConnectFailure: connections.connect_failure,
            ConnectionError: connections.connection_error,
            ActiveConnection: connections.active,
            CQError: self.cq_errors.load(Ordering::Relaxed).into(),
            RDMAInOctets: traffic.in_octets + wire.octets_received,
            RDMAOutOctets: traffic.out_octets + wire.octets_sent,
            RDMAInFrames: traffic.in_frames + wire.packets_received,
            RDMAOutFrames: traffic.out_frames + wire.packets_sent,
            ..NDIS_NDK_PERFORMANCE_COUNTERS::default()
        }
    }

    /// The tokens of the adapter.
    #[must_use]
    pub const fn memory(&self) -> &Arc<MemoryTable<O>> {
        &self.memory
    }

    /// The queue of completion callbacks.
    #[must_use]
    pub const fn completions(&self) -> &Arc<Completions<O>> {
        &self.completions
    }
}
