//! Flags of [`NDK_ADAPTER_INFO::AdapterFlags`](crate::NDK_ADAPTER_INFO::AdapterFlags) (NDKPI 2.6).

/// Incoming bytes land in the consumer's buffer in order: the last byte never changes before an earlier one.
pub const NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED: u32 = 0x0000_0001;
/// The target of a read needs no special right, and may be named with the privileged token.
pub const NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED: u32 = 0x0000_0002;
/// `NdkControlCqInterruptModeration` may be called.
pub const NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED: u32 = 0x0000_0004;
/// Several connections in parallel can be faster than one.
pub const NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED: u32 = 0x0000_0008;
/// A read can invalidate the token of its first entry; from NDKPI 1.2.
pub const NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED: u32 = 0x0000_0010;
/// `NdkResizeCq` may be called.
pub const NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED: u32 = 0x0000_0100;
/// An address of the adapter may connect to an address of the same adapter.
pub const NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED: u32 = 0x0001_0000;

/// Every flag that has a name.
pub const ALL: u32 = NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED
    | NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
    | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
    | NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
    | NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED
    | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
    | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED;
