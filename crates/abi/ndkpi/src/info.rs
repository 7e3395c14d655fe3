//! What an adapter can do (NDKPI 2.7, NDKPI 3.11).

use crate::NDK_VERSION;

open_enum! {
    /// The protocol below the interface (NDKPI 2.7). The INF keyword `*NetworkDirectTechnology` has the same numbers.
    NDK_RDMA_TECHNOLOGY {
        /// Not said.
        UNDEFINED = 0, "NdkUndefined";
        /// iWARP.
        IWARP = 1, "NdkiWarp";
        /// InfiniBand.
        INFINIBAND = 2, "NdkInfiniBand";
        /// RDMA over Converged Ethernet, version 1.
        ROCE = 3, "NdkRoCE";
        /// RDMA over Converged Ethernet, version 2.
        ROCE_V2 = 4, "NdkRoCEv2";
        /// One more than the greatest technology.
        MAX = 5, "NdkMaxTechnology";
    }
}

/// The limits and abilities of an adapter (NDKPI 3.11). Queried at `PASSIVE_LEVEL`.
///
/// Depths are numbers of requests or completions, limits of scatter/gather entries are per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NDK_ADAPTER_INFO {
    /// The version in force.
    pub Version: NDK_VERSION,
    /// The organisationally unique identifier of the vendor.
    pub VendorId: u32,
    /// A number of the vendor's choice.
    pub DeviceId: u32,
    /// The greatest length of a memory region, in bytes.
    pub MaxRegistrationSize: usize,
    /// The greatest length of a memory window, in bytes.
    pub MaxWindowSize: usize,
    /// The size of a fast registration, in pages, at which the adapter supports the most regions; at least 16.
    pub FRMRPageCount: u32,
    /// Scatter/gather entries of a request on the initiator queue.
    pub MaxInitiatorRequestSge: u32,
    /// Scatter/gather entries of a receive.
    pub MaxReceiveRequestSge: u32,
    /// Scatter/gather entries of a read, in place of `MaxInitiatorRequestSge`.
    pub MaxReadRequestSge: u32,
    /// Bytes in all entries of one send, receive, read or write together.
    pub MaxTransferLength: u32,
    /// Bytes that one send or write may carry inline.
    pub MaxInlineDataSize: u32,
    /// Reads of the peer in progress on one queue pair.
    pub MaxInboundReadLimit: u32,
    /// Own reads in progress on one queue pair.
    pub MaxOutboundReadLimit: u32,
    /// Depth of a receive queue.
    pub MaxReceiveQueueDepth: u32,
    /// Depth of an initiator queue.
    pub MaxInitiatorQueueDepth: u32,
    /// Depth of a shared receive queue; 0 if the adapter has none.
    pub MaxSrqDepth: u32,
    /// Depth of a completion queue.
    pub MaxCqDepth: u32,
    /// A hint: for more bytes than this, read and write are better than send and receive.
    pub LargeRequestThreshold: u32,
    /// Bytes of private data in a connect.
    pub MaxCallerData: u32,
    /// Bytes of private data in an accept or reject.
    pub MaxCalleeData: u32,
    /// A combination of the `NDK_ADAPTER_FLAG_` constants; see [`adapter_flags`](crate::adapter_flags).
    pub AdapterFlags: u32,
    /// The protocol below the interface. Not there in versions before 2.0.
    pub RdmaTechnology: NDK_RDMA_TECHNOLOGY,
}

layout!(NDK_ADAPTER_INFO: size 0x68, align 8, {
    Version @ 0x00,
    VendorId @ 0x04,
    DeviceId @ 0x08,
    MaxRegistrationSize @ 0x10,
    MaxWindowSize @ 0x18,
    FRMRPageCount @ 0x20,
    MaxInitiatorRequestSge @ 0x24,
    MaxReceiveRequestSge @ 0x28,
    MaxReadRequestSge @ 0x2C,
    MaxTransferLength @ 0x30,
    MaxInlineDataSize @ 0x34,
    MaxInboundReadLimit @ 0x38,
    MaxOutboundReadLimit @ 0x3C,
    MaxReceiveQueueDepth @ 0x40,
    MaxInitiatorQueueDepth @ 0x44,
    MaxSrqDepth @ 0x48,
    MaxCqDepth @ 0x4C,
    LargeRequestThreshold @ 0x50,
    MaxCallerData @ 0x54,
    MaxCalleeData @ 0x58,
    AdapterFlags @ 0x5C,
    RdmaTechnology @ 0x60,
});

impl NDK_ADAPTER_INFO {
    /// The size of the structure without `RdmaTechnology`, in bytes.
    pub const SIZE_WITHOUT_TECHNOLOGY: usize = core::mem::offset_of!(Self, RdmaTechnology);
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(NDK_ADAPTER_INFO::SIZE_WITHOUT_TECHNOLOGY == 0x60);
