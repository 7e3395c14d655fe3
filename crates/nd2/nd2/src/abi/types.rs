//! Structures (`NDSPI 3`, `NDSPI 4`, `NDSPI 8`) and those of Windows that methods take.

#![expect(non_snake_case, non_camel_case_types, reason = "the names of the public headers")]

use core::{
    ffi::c_void,
    fmt, ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use ndkpi::SOCKADDR;

use super::{HRESULT, layout};

/// A handle of Windows, or what stands for one.
pub type HANDLE = *mut c_void;
/// A set of processors of one group.
pub type KAFFINITY = usize;
/// A truth value.
pub type BOOL = i32;

/// An asynchronous request, as Windows has it. Belongs to the client; while the request is outstanding the provider writes
/// the first two fields, and readers must expect that.
#[repr(C)]
pub struct OVERLAPPED {
    /// The status, `STATUS_PENDING` until the request is complete.
    pub Internal: AtomicUsize,
    /// For the provider: documentation gives the client no meaning for it.
    pub InternalHigh: AtomicUsize,
    /// Not used.
    pub Offset: u32,
    /// Not used.
    pub OffsetHigh: u32,
    /// The event to set, or null. The lowest bit set says that no completion port is to be told.
    pub hEvent: HANDLE,
}

layout!(OVERLAPPED: size 0x20 / 0x14, {
    Internal @ 0x00 / 0x00, InternalHigh @ 0x08 / 0x04, Offset @ 0x10 / 0x08, OffsetHigh @ 0x14 / 0x0C,
    hEvent @ 0x18 / 0x10
});

impl OVERLAPPED {
    /// A request that was never issued, with an event or null.
    #[must_use]
    pub const fn new(event: HANDLE) -> Self {
        Self {
            Internal: AtomicUsize::new(0),
            InternalHigh: AtomicUsize::new(0),
            Offset: 0,
            OffsetHigh: 0,
            hEvent: event,
        }
    }

    /// The low half of the status field.
    pub fn status(&self) -> HRESULT {
        #[expect(clippy::cast_possible_truncation, reason = "a status is 32 bits")]
        let bits = self.Internal.load(Ordering::Acquire) as u32;
        HRESULT::from_bits(bits)
    }
}

// SAFETY: the event is a name of something, and the fields that change are atomic.
unsafe impl Send for OVERLAPPED {}
// SAFETY: as for `Send`.
unsafe impl Sync for OVERLAPPED {}

/// The kind of request a result is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ND2_REQUEST_TYPE(pub i32);

impl ND2_REQUEST_TYPE {
    /// `Nd2RequestTypeReceive`.
    pub const RECEIVE: Self = Self(0);
    /// `Nd2RequestTypeSend`.
    pub const SEND: Self = Self(1);
    /// `Nd2RequestTypeBind`.
    pub const BIND: Self = Self(2);
    /// `Nd2RequestTypeInvalidate`.
    pub const INVALIDATE: Self = Self(3);
    /// `Nd2RequestTypeRead`.
    pub const READ: Self = Self(4);
    /// `Nd2RequestTypeWrite`.
    pub const WRITE: Self = Self(5);
    /// All of them.
    pub const ALL: [Self; 6] = [Self::RECEIVE, Self::SEND, Self::BIND, Self::INVALIDATE, Self::READ, Self::WRITE];
}

impl fmt::Debug for ND2_REQUEST_TYPE {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 6] = ["Receive", "Send", "Bind", "Invalidate", "Read", "Write"];
        match usize::try_from(self.0).ok().and_then(|index| NAMES.get(index)) {
            Some(name) => f.pad(name),
            None => write!(f, "request type {}", self.0),
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ND2_RESULT {
    /// Success, or why the request failed.
    pub Status: HRESULT,
    /// Bytes that a receive has received.
    pub BytesTransferred: u32,
    /// What the client gave when it created the queue pair.
    pub QueuePairContext: *mut c_void,
    /// What the client gave when it posted the request.
    pub RequestContext: *mut c_void,
    /// The kind of request.
    pub RequestType: ND2_REQUEST_TYPE,
}

layout!(ND2_RESULT: size 0x20 / 0x14, {
    Status @ 0x00 / 0x00, BytesTransferred @ 0x04 / 0x04, QueuePairContext @ 0x08 / 0x08,
    RequestContext @ 0x10 / 0x0C, RequestType @ 0x18 / 0x10
});

impl Default for ND2_RESULT {
    fn default() -> Self {
        Self {
            Status: HRESULT::ND_SUCCESS,
            BytesTransferred: 0,
            QueuePairContext: ptr::null_mut(),
            RequestContext: ptr::null_mut(),
            RequestType: ND2_REQUEST_TYPE::RECEIVE,
        }
    }
}

/// A piece of the client's memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ND2_SGE {
    /// The first byte.
    pub Buffer: *mut c_void,
    /// The number of bytes.
    pub BufferLength: u32,
    /// The local token of the region that holds them.
    pub MemoryRegionToken: u32,
}

layout!(ND2_SGE: size 0x10 / 0x0C, {
    Buffer @ 0x00 / 0x00, BufferLength @ 0x08 / 0x04, MemoryRegionToken @ 0x0C / 0x08
});

/// What an adapter can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in NDSPI 4")]
pub struct ND2_ADAPTER_INFO {
    pub InfoVersion: u32,
    pub VendorId: u16,
    pub DeviceId: u16,
    pub AdapterId: u64,
    pub MaxRegistrationSize: usize,
    pub MaxWindowSize: usize,
    pub MaxInitiatorSge: u32,
    pub MaxReceiveSge: u32,
    pub MaxReadSge: u32,
    pub MaxTransferLength: u32,
    pub MaxInlineDataSize: u32,
    pub MaxInboundReadLimit: u32,
    pub MaxOutboundReadLimit: u32,
    pub MaxReceiveQueueDepth: u32,
    pub MaxInitiatorQueueDepth: u32,
    pub MaxSharedReceiveQueueDepth: u32,
    pub MaxCompletionQueueDepth: u32,
    pub InlineRequestThreshold: u32,
    pub LargeRequestThreshold: u32,
    pub MaxCallerData: u32,
    pub MaxCalleeData: u32,
    pub AdapterFlags: u32,
}

layout!(ND2_ADAPTER_INFO: size 0x60 / 0x58, {
    InfoVersion @ 0x00 / 0x00, VendorId @ 0x04 / 0x04, DeviceId @ 0x06 / 0x06, AdapterId @ 0x08 / 0x08,
    MaxRegistrationSize @ 0x10 / 0x10, MaxWindowSize @ 0x18 / 0x14, MaxInitiatorSge @ 0x20 / 0x18,
    MaxReceiveSge @ 0x24 / 0x1C, MaxReadSge @ 0x28 / 0x20, MaxTransferLength @ 0x2C / 0x24,
    MaxInlineDataSize @ 0x30 / 0x28, MaxInboundReadLimit @ 0x34 / 0x2C, MaxOutboundReadLimit @ 0x38 / 0x30,
    MaxReceiveQueueDepth @ 0x3C / 0x34, MaxInitiatorQueueDepth @ 0x40 / 0x38,
    MaxSharedReceiveQueueDepth @ 0x44 / 0x3C, MaxCompletionQueueDepth @ 0x48 / 0x40,
    InlineRequestThreshold @ 0x4C / 0x44, LargeRequestThreshold @ 0x50 / 0x48, MaxCallerData @ 0x54 / 0x4C,
    MaxCalleeData @ 0x58 / 0x50, AdapterFlags @ 0x5C / 0x54
});

/// Version 1: the outcome of a request, in the client's own memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ND_RESULT {
    /// Success, or why the request failed.
    pub Status: HRESULT,
    /// Bytes that a receive has received.
    pub BytesTransferred: usize,
}

layout!(ND_RESULT: size 0x10 / 0x08, {
    Status @ 0x00 / 0x00, BytesTransferred @ 0x08 / 0x04
});

/// An address and its length.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SOCKET_ADDRESS {
    /// Where it is.
    pub lpSockaddr: *mut SOCKADDR,
    /// Bytes.
    pub iSockaddrLength: i32,
}

layout!(SOCKET_ADDRESS: size 0x10 / 0x08, {
    lpSockaddr @ 0x00 / 0x00, iSockaddrLength @ 0x08 / 0x04
});

/// A list of addresses, the first of which is here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SOCKET_ADDRESS_LIST {
    /// How many there are.
    pub iAddressCount: i32,
    /// The first.
    pub Address: [SOCKET_ADDRESS; 1],
}

layout!(SOCKET_ADDRESS_LIST: size 0x18 / 0x0C, {
    iAddressCount @ 0x00 / 0x00, Address @ 0x08 / 0x04
});
