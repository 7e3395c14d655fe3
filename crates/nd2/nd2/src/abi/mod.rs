//! The binary interface: values, structures, identifiers and tables of functions (`NDSPI 1` to `NDSPI 8`).
//!
//! Names are those of the public headers. Layouts and orders are asserted at compile time.

mod ids;
mod status;
mod tables;
mod types;
mod version1;

pub use ids::*;
pub use status::HRESULT;
pub use tables::*;
pub use types::*;
pub use version1::*;

/// Asserts at compile time the size of a structure and the offset of every field: on 64 bits, and on 32.
macro_rules! layout {
    ($type:ident: size $size:literal / $size_32:literal, {
        $($field:ident @ $offset:literal / $offset_32:literal),+ $(,)?
    }) => {
        const _: () = {
            const WIDE: bool = cfg!(target_pointer_width = "64");
            assert!(size_of::<$type>() == if WIDE { $size } else { $size_32 }, concat!("size of ", stringify!($type)));
            $(assert!(
                core::mem::offset_of!($type, $field) == if WIDE { $offset } else { $offset_32 },
                concat!("offset of ", stringify!($type), "::", stringify!($field))
            );)+
        };
        const _: fn(&$type) = |value| {
            let $type { $($field: _),+ } = value;
        };
    };
}
use layout;

/// The version of version 1 (`NDSPI 5`).
pub const ND_VERSION_1: u32 = 0x1;
/// The version of version 2 (`NDSPI 5`).
pub const ND_VERSION_2: u32 = 0x2_0000;

/// What kind of notification a request waits for (`ND_CQ_NOTIFY_*`, `NDSPI 5`).
pub mod notify {
    /// Errors of the queue, and failed requests.
    pub const ND_CQ_NOTIFY_ERRORS: u32 = 0;
    /// Any completion.
    pub const ND_CQ_NOTIFY_ANY: u32 = 1;
    /// A receive whose sender asked for an event, and failed requests.
    pub const ND_CQ_NOTIFY_SOLICITED: u32 = 2;
}

/// Flags of requests (`ND_OP_FLAG_*`, `NDSPI 5`). Two of them differ from NDKPI's.
pub mod op_flags {
    /// Success makes no completion.
    pub const ND_OP_FLAG_SILENT_SUCCESS: u32 = 0x01;
    /// All reads before are complete when the request begins.
    pub const ND_OP_FLAG_READ_FENCE: u32 = 0x02;
    /// The receiver's completion is a solicited one.
    pub const ND_OP_FLAG_SEND_AND_SOLICIT_EVENT: u32 = 0x04;
    /// A window: the peer may read.
    pub const ND_OP_FLAG_ALLOW_READ: u32 = 0x08;
    /// A window: the peer may write. One bit, where NDKPI has two.
    pub const ND_OP_FLAG_ALLOW_WRITE: u32 = 0x10;
    /// The bytes are taken during the call. 0x40 in NDKPI.
    pub const ND_OP_FLAG_INLINE: u32 = 0x20;
}

/// Flags of registrations (`ND_MR_FLAG_*`, `NDSPI 5`).
pub mod mr_flags {
    /// The adapter may write.
    pub const ND_MR_FLAG_ALLOW_LOCAL_WRITE: u32 = 0x01;
    /// Peers may read.
    pub const ND_MR_FLAG_ALLOW_REMOTE_READ: u32 = 0x02;
    /// Peers may write: two bits, local write is one of them.
    pub const ND_MR_FLAG_ALLOW_REMOTE_WRITE: u32 = 0x05;
    /// A read may put its data here.
    pub const ND_MR_FLAG_RDMA_READ_SINK: u32 = 0x08;
    /// The range is not secured. Nothing secures ranges here.
    pub const ND_MR_FLAG_DO_NOT_SECURE_VM: u32 = 0x8000_0000;
    /// All of them.
    pub const ALL: u32 = 0x8000_000F;
}

/// Flags of adapters (`ND_ADAPTER_FLAG_*`, `NDSPI 5`).
pub mod adapter_flags {
    /// Bytes land in order.
    pub const ND_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED: u32 = 0x0000_0001;
    /// Completion queues can be moderated.
    pub const ND_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED: u32 = 0x0000_0004;
    /// Several connections can outperform one.
    pub const ND_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED: u32 = 0x0000_0008;
    /// Completion queues can be resized.
    pub const ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED: u32 = 0x0000_0100;
    /// An adapter can be connected with itself.
    pub const ND_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED: u32 = 0x0001_0000;
}
