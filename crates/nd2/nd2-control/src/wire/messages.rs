//! Inputs and answers, byte for byte.
//!
//! A structure is the beginning of its verb's input, or all of it; elements, private data or inline bytes follow where the verb says so.

use core::net::SocketAddr;

use ndkpi::{NtStatus, SOCKADDR_INET};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

use super::{ADDRESS, KEY};

macro_rules! messages {
    ($($(#[$doc:meta])+ $name:ident { $($field:ident: $type:ty),+ $(,)? })+) => {
        $(
            $(#[$doc])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
            #[repr(C)]
            pub struct $name {
                $(
                    #[doc = concat!("`", stringify!($field), "`.")]
                    pub $field: $type,
                )+
            }
        )+
    };
}

messages! {
    /// The first word of a file: `Begin`, `Join`.
    Word { version: U32, key: [u8; KEY] }

    /// An object alone: the input of many verbs, and the answer of those that make one. For `Open` the adapter's number.
    Handle { object: U64 }

    /// An entry of the answer of `Addresses`, behind their count.
    AdapterAddress { adapter: U64, address: [u8; ADDRESS] }

    /// The answer of `Query`: `ND2_ADAPTER_INFO` with sizes of 64 bits.
    AdapterInfo {
        info_version: U32,
        vendor_id: U16,
        device_id: U16,
        adapter_id: U64,
        max_registration_size: U64,
        max_window_size: U64,
        max_initiator_sge: U32,
        max_receive_sge: U32,
        max_read_sge: U32,
        max_transfer_length: U32,
        max_inline_data_size: U32,
        max_inbound_read_limit: U32,
        max_outbound_read_limit: U32,
        max_receive_queue_depth: U32,
        max_initiator_queue_depth: U32,
        max_shared_receive_queue_depth: U32,
        max_completion_queue_depth: U32,
        inline_request_threshold: U32,
        large_request_threshold: U32,
        max_caller_data: U32,
        max_callee_data: U32,
        adapter_flags: U32,
    }

    /// A set of processors; the answer of `Affinity`.
    Processors { group: U32, affinity: U64 }

    /// `CreateCompletionQueue`.
    CreateCompletionQueue { adapter: U64, depth: U32, processors: Processors }

    /// `Resize`.
    Resize { queue: U64, depth: U32 }

    /// `Notify`.
    Notify { queue: U64, kind: U32 }

    /// A result, of which the answer of `Results` is a row.
    Completion { status: U32, bytes: U32, queue_pair_context: U64, request_context: U64, kind: U32 }

    /// `RegisterReadable`, `RegisterWritable`.
    Register { region: U64, address: U64, flags: U32 }

    /// The answer of `Tokens`.
    Tokens { local: U32, remote: U32 }

    /// The answer of `WindowToken` and `Bind`.
    Token { remote: U32 }

    /// `CreateSharedReceiveQueue`.
    CreateSharedReceiveQueue { adapter: U64, depth: U32, elements: U32, threshold: U32, processors: Processors }

    /// `Modify`.
    Modify { queue: U64, depth: U32, threshold: U32 }

    /// `CreateQueuePair`.
    CreateQueuePair {
        adapter: U64,
        receive_queue: U64,
        initiator_queue: U64,
        context: U64,
        receive_depth: U32,
        initiator_depth: U32,
        receive_elements: U32,
        initiator_elements: U32,
        inline_bytes: U32,
    }

    /// `CreateQueuePairWithShared`.
    CreateQueuePairWithShared {
        adapter: U64,
        receive_queue: U64,
        initiator_queue: U64,
        shared: U64,
        context: U64,
        initiator_depth: U32,
        initiator_elements: U32,
        inline_bytes: U32,
    }

    /// `Receive` and `ReceiveShared`, before the elements; and how the other requests begin.
    Post { queue: U64, context: U64 }

    /// `Send`, before elements or bytes.
    Send { post: Post, flags: U32 }

    /// `SendAndInvalidate`, before elements or bytes.
    SendAndInvalidate { post: Post, token: U32, flags: U32 }

    /// `Read`, before elements; `Write`, before elements or bytes.
    Access { post: Post, address: U64, token: U32, flags: U32 }

    /// An element.
    Element { address: U64, length: U32, token: U32 }

    /// `Bind`.
    Bind { post: Post, region: U64, window: U64, address: U64, length: U64, flags: U32 }

    /// `Invalidate`.
    Invalidate { post: Post, window: U64, flags: U32 }

    /// `BindConnector`, `BindListener`.
    BindAddress { object: U64, address: [u8; ADDRESS] }

    /// The answer of `ReadLimits`.
    Reads { inbound: U32, outbound: U32 }

    /// `Accept`, before private data; and how `Connect` begins.
    Accept { connector: U64, queue_pair: U64, reads: Reads }

    /// `Connect`, before private data.
    Connect { accept: Accept, address: [u8; ADDRESS] }

    /// `Listen`.
    Listen { listener: U64, backlog: U32 }

    /// `GetConnectionRequest`.
    GetConnectionRequest { listener: U64, connector: U64 }
}

/// An address as it is sent: what there is of a `sockaddr`, and zeros.
#[must_use]
pub fn address_bytes(address: SocketAddr) -> [u8; ADDRESS] {
    let raw = SOCKADDR_INET::from(address);
    let mut bytes = [0; ADDRESS];
    let length = (raw.length() as usize).min(ADDRESS);
    // SAFETY: the structure has as many bytes, all of them initialised.
    bytes[..length].copy_from_slice(unsafe { core::slice::from_raw_parts(raw.as_ptr().cast::<u8>(), length) });
    bytes
}

/// An input that is `T`.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if it is shorter or longer.
pub fn all<T: FromBytes + KnownLayout + Immutable + Unaligned>(input: &[u8]) -> Result<&T, NtStatus> {
    T::ref_from_bytes(input).map_err(|_| NtStatus::INVALID_PARAMETER)
}

/// An input that begins with `T`, and what follows.
///
/// # Errors
///
/// `STATUS_INVALID_PARAMETER` if it is shorter.
pub fn begin<T: FromBytes + KnownLayout + Immutable + Unaligned>(input: &[u8]) -> Result<(&T, &[u8]), NtStatus> {
    T::ref_from_prefix(input).map_err(|_| NtStatus::INVALID_PARAMETER)
}

/// Writes an answer. Returns its bytes.
///
/// # Errors
///
/// `STATUS_BUFFER_TOO_SMALL` if there is no room for it; then nothing is written.
pub fn answer<T: IntoBytes + Immutable>(output: &mut [u8], answer: &T) -> Result<usize, NtStatus> {
    answer.write_to_prefix(output).map_err(|_| NtStatus::BUFFER_TOO_SMALL)?;
    Ok(size_of::<T>())
}
