//! The Network Direct Kernel Provider Interface (NDKPI) up to version 2.1: structures, constants and function types, and
//! nothing else.
//!
//! # What is here
//!
//! | Module | Contents | Reference |
//! |---|---|---|
//! | [`status`] | [`NtStatus`] and the codes the interface uses | NDKPI 2.8 |
//! | [`version`] | [`NDK_VERSION`] and its negotiation | NDKPI 1 |
//! | [`object`] | the object header and the ten objects | NDKPI 2.1, 3.2 to 3.4 |
//! | [`dispatch`] | the functions of the provider and their tables | NDKPI 4, 5 |
//! | [`callbacks`] | the functions of the consumer | NDKPI 6 |
//! | [`info`], [`adapter_flags`] | what an adapter can do | NDKPI 2.6, 2.7, 3.11 |
//! | [`sge`], [`op_flags`] | work requests | NDKPI 2.4, 3.9 |
//! | [`result`], [`notify`] | completions and notification | NDKPI 2.2, 2.3, 3.5, 3.6 |
//! | [`lam`], [`mr_flags`] | memory | NDKPI 2.5, 3.7, 3.8 |
//! | [`extension`] | extension interfaces | NDKPI 3.10, 5.1 |
//! | [`address`], [`base`] | the Windows types that the interface borrows | NDKPI 0.2, 3.12 |
//! | [`ndis`] | registration, information requests and events of a provider | NDIS-NDK 2 to 6 |
//! | [`wsk`] | how a kernel consumer opens an adapter | NDIS-NDK 8 |
//!
//! NDKPI, NDIS-NDK and NDSPI are `ndkpi.md`, `ndis-ndk.md` and `ndspi.md` in `docs/reference`; a number is a section.
//!
//! Structures, functions and constants have their names of C and are all at the root of the crate as well. Sizes and
//! offsets are asserted when the crate is compiled, and compared with those of the headers in
//! `tests-host/tests/ndk_layouts.rs`. The kernel has 64 bits, and so have they. On 32 bits the crate compiles for what a
//! program takes from here, which is addresses, identifiers and status codes; nothing is said there of NDKPI's own structures.
//!
//! # How C is turned into Rust
//!
//! - Every value that the other side may send is a valid value here. Enumerations are integers with named constants,
//!   `BOOLEAN` is a byte, and functions are in [`Option`], also where NDKPI demands one: a null pointer is an error to
//!   report and not undefined behaviour.
//! - Objects and buffers are raw pointers. What a function may assume of them is in its documentation and in NDKPI 7.
//! - Slots that a minor version added are reached through functions that look at the version first, such as
//!   [`NDK_CQ::get_cq_results_ex`]: in an older table there is no such slot.
//! - `extern "system"` is the one calling convention of 64-bit Windows.
//!
//! # Example
//!
//! A receive into a buffer, and what its completion says:
//!
//! ```
//! use ndkpi::{NDK_OPERATION_TYPE, NDK_RESULT_EX, NDK_SGE, NDK_VERSION, NtStatus};
//!
//! let mut buffer = [0_u8; 64];
//! let token = 0x1234; // of the memory region that the buffer lies in
//! let entry = NDK_SGE::new(buffer.as_mut_ptr().cast(), 64, token);
//! assert_eq!((entry.Length, entry.MemoryRegionToken), (64, token));
//!
//! // What `NdkGetCqResultsEx` stores when a peer's send-and-invalidate arrives.
//! let result = NDK_RESULT_EX {
//!     Status: NtStatus::SUCCESS,
//!     BytesTransferred: 16,
//!     Type: NDK_OPERATION_TYPE::RECEIVE_AND_INVALIDATE,
//!     TypeSpecificCompletionOutput: 0x5678,
//!     ..NDK_RESULT_EX::ZEROED
//! };
//! assert!(result.Type.is_receive());
//! assert_eq!(result.bytes_received(), Some(16));
//! assert_eq!(result.invalidated_token(), Some(0x5678));
//! assert_eq!(result.provider_error_code(NDK_VERSION::V1_2), None, "the field came with 2.1");
//! ```

#![no_std]
#![expect(
    non_camel_case_types,
    non_snake_case,
    reason = "types and fields have the names of NDKPI, by which its readers know them"
)]

#[macro_use]
mod macros;

pub mod adapter_flags;
pub mod address;
pub mod base;
pub mod callbacks;
pub mod dispatch;
pub mod extension;
pub mod info;
pub mod lam;
pub mod mr_flags;
pub mod ndis;
pub mod notify;
pub mod object;
pub mod op_flags;
pub mod result;
pub mod sge;
/// Status codes: those of the crate [`ntstatus`].
pub mod status {
    pub use ntstatus::*;
}
pub mod version;
pub mod wsk;

pub use adapter_flags::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED,
    NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED,
    NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED, NDK_ADAPTER_FLAG_RDMA_READ_LOCAL_INVALIDATE_SUPPORTED,
    NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED,
};
pub use address::*;
pub use base::*;
pub use callbacks::*;
pub use dispatch::*;
pub use extension::*;
pub use info::*;
pub use lam::*;
pub use mr_flags::{
    NDK_MR_FLAG_ALLOW_LOCAL_READ, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ,
    NDK_MR_FLAG_ALLOW_REMOTE_WRITE, NDK_MR_FLAG_RDMA_READ_SINK,
};
pub use ndis::*;
pub use notify::*;
pub use object::*;
pub use op_flags::{
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE, NDK_OP_FLAG_DEFER,
    NDK_OP_FLAG_INLINE, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE, NDK_OP_FLAG_RDMA_READ_SINK, NDK_OP_FLAG_READ_FENCE,
    NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT, NDK_OP_FLAG_SILENT_SUCCESS,
};
pub use result::*;
pub use sge::*;
pub use status::*;
pub use version::*;
pub use wsk::*;
