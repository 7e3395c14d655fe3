//! Tables of functions, in the order of the public header (`NDSPI 1`, `NDSPI 2`, `NDSPI 8`).

#![expect(non_snake_case, reason = "the names of the public header")]

use core::ffi::c_void;

use ndkpi::{GUID, SOCKADDR};

use super::{BOOL, HANDLE, HRESULT, KAFFINITY, ND2_ADAPTER_INFO, ND2_RESULT, ND2_SGE, OVERLAPPED, SOCKET_ADDRESS_LIST};

/// Every table begins with this one.
#[repr(C)]
pub struct IUnknownVtbl {
    /// `QueryInterface`.
    pub QueryInterface:
        unsafe extern "system" fn(this: *mut c_void, iid: *const GUID, object: *mut *mut c_void) -> HRESULT,
    /// `AddRef`.
    pub AddRef: unsafe extern "system" fn(this: *mut c_void) -> u32,
    /// `Release`.
    pub Release: unsafe extern "system" fn(this: *mut c_void) -> u32,
}

/// A table of functions.
pub trait Table: Sized + 'static {
    /// Its first functions.
    fn unknown(&self) -> &IUnknownVtbl;

    /// The names of the functions, in their order.
    fn slots() -> impl Iterator<Item = &'static str>;
}

impl Table for IUnknownVtbl {
    fn unknown(&self) -> &IUnknownVtbl {
        self
    }

    fn slots() -> impl Iterator<Item = &'static str> {
        ["QueryInterface", "AddRef", "Release"].into_iter()
    }
}

/// Defines a table and asserts that nothing lies between its functions.
macro_rules! interface {
    ($(#[$doc:meta])+ $table:ident: $base:ident { $(fn $slot:ident($($name:ident: $type:ty),*) -> $result:ty;)+ }) => {
        $(#[$doc])+
        #[repr(C)]
        pub struct $table {
            /// The table that this one continues.
            pub base: $base,
            $(
                #[doc = concat!("`", stringify!($slot), "`.")]
                pub $slot: unsafe extern "system" fn(this: *mut c_void, $($name: $type),*) -> $result,
            )+
        }

        const _: () = {
            let slots = [$(core::mem::offset_of!($table, $slot)),+];
            let first = size_of::<$base>();
            assert!(size_of::<$table>() == first + size_of::<usize>() * slots.len(), concat!("size of ", stringify!($table)));
            let mut index = 0;
            while index < slots.len() {
                assert!(slots[index] == first + size_of::<usize>() * index, concat!("order of ", stringify!($table)));
                index += 1;
            }
        };

        impl Table for $table {
            fn unknown(&self) -> &IUnknownVtbl {
                self.base.unknown()
            }

            fn slots() -> impl Iterator<Item = &'static str> {
                $base::slots().chain([$(stringify!($slot)),+])
            }
        }
    };
}

pub(super) use interface;

interface! {
    /// `IND2Overlapped`.
    IND2OverlappedVtbl: IUnknownVtbl {
        fn CancelOverlappedRequests() -> HRESULT;
        fn GetOverlappedResult(overlapped: *mut OVERLAPPED, wait: BOOL) -> HRESULT;
    }
}

interface! {
    /// `IND2CompletionQueue`.
    IND2CompletionQueueVtbl: IND2OverlappedVtbl {
        fn GetNotifyAffinity(group: *mut u16, affinity: *mut KAFFINITY) -> HRESULT;
        fn Resize(depth: u32) -> HRESULT;
        fn Notify(kind: u32, overlapped: *mut OVERLAPPED) -> HRESULT;
        fn GetResults(results: *mut ND2_RESULT, count: u32) -> u32;
    }
}

interface! {
    /// `IND2SharedReceiveQueue`.
    IND2SharedReceiveQueueVtbl: IND2OverlappedVtbl {
        fn GetNotifyAffinity(group: *mut u16, affinity: *mut KAFFINITY) -> HRESULT;
        fn Modify(depth: u32, threshold: u32) -> HRESULT;
        fn Notify(overlapped: *mut OVERLAPPED) -> HRESULT;
        fn Receive(context: *mut c_void, list: *const ND2_SGE, count: u32) -> HRESULT;
    }
}

interface! {
    /// `IND2MemoryWindow`.
    IND2MemoryWindowVtbl: IUnknownVtbl {
        fn GetRemoteToken() -> u32;
    }
}

interface! {
    /// `IND2MemoryRegion`.
    IND2MemoryRegionVtbl: IND2OverlappedVtbl {
        fn Register(buffer: *const c_void, length: usize, flags: u32, overlapped: *mut OVERLAPPED) -> HRESULT;
        fn Deregister(overlapped: *mut OVERLAPPED) -> HRESULT;
        fn GetLocalToken() -> u32;
        fn GetRemoteToken() -> u32;
    }
}

interface! {
    /// `IND2QueuePair`.
    IND2QueuePairVtbl: IUnknownVtbl {
        fn Flush() -> HRESULT;
        fn Send(context: *mut c_void, list: *const ND2_SGE, count: u32, flags: u32) -> HRESULT;
        fn Receive(context: *mut c_void, list: *const ND2_SGE, count: u32) -> HRESULT;
        fn Bind(
            context: *mut c_void,
            region: *mut c_void,
            window: *mut c_void,
            buffer: *const c_void,
            length: usize,
            flags: u32
        ) -> HRESULT;
        fn Invalidate(context: *mut c_void, window: *mut c_void, flags: u32) -> HRESULT;
        fn Read(
            context: *mut c_void,
            list: *const ND2_SGE,
            count: u32,
            address: u64,
            token: u32,
            flags: u32
        ) -> HRESULT;
        fn Write(
            context: *mut c_void,
            list: *const ND2_SGE,
            count: u32,
            address: u64,
            token: u32,
            flags: u32
        ) -> HRESULT;
    }
}

interface! {
    /// `IND2Connector`.
    IND2ConnectorVtbl: IND2OverlappedVtbl {
        fn Bind(address: *const SOCKADDR, length: u32) -> HRESULT;
        fn Connect(
            qp: *mut c_void,
            address: *const SOCKADDR,
            length: u32,
            inbound: u32,
            outbound: u32,
            data: *const c_void,
            data_length: u32,
            overlapped: *mut OVERLAPPED
        ) -> HRESULT;
        fn CompleteConnect(overlapped: *mut OVERLAPPED) -> HRESULT;
        fn Accept(
            qp: *mut c_void,
            inbound: u32,
            outbound: u32,
            data: *const c_void,
            data_length: u32,
            overlapped: *mut OVERLAPPED
        ) -> HRESULT;
        fn Reject(data: *const c_void, data_length: u32) -> HRESULT;
        fn GetReadLimits(inbound: *mut u32, outbound: *mut u32) -> HRESULT;
        fn GetPrivateData(data: *mut c_void, length: *mut u32) -> HRESULT;
        fn GetLocalAddress(address: *mut SOCKADDR, length: *mut u32) -> HRESULT;
        fn GetPeerAddress(address: *mut SOCKADDR, length: *mut u32) -> HRESULT;
        fn NotifyDisconnect(overlapped: *mut OVERLAPPED) -> HRESULT;
        fn Disconnect(overlapped: *mut OVERLAPPED) -> HRESULT;
    }
}

interface! {
    /// `IND2Listener`.
    IND2ListenerVtbl: IND2OverlappedVtbl {
        fn Bind(address: *const SOCKADDR, length: u32) -> HRESULT;
        fn Listen(backlog: u32) -> HRESULT;
        fn GetLocalAddress(address: *mut SOCKADDR, length: *mut u32) -> HRESULT;
        fn GetConnectionRequest(connector: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT;
    }
}

interface! {
    /// `IND2Adapter`.
    IND2AdapterVtbl: IUnknownVtbl {
        fn CreateOverlappedFile(file: *mut HANDLE) -> HRESULT;
        fn Query(info: *mut ND2_ADAPTER_INFO, length: *mut u32) -> HRESULT;
        fn QueryAddressList(list: *mut SOCKET_ADDRESS_LIST, length: *mut u32) -> HRESULT;
        fn CreateCompletionQueue(
            iid: *const GUID,
            file: HANDLE,
            depth: u32,
            group: u16,
            affinity: KAFFINITY,
            queue: *mut *mut c_void
        ) -> HRESULT;
        fn CreateMemoryRegion(iid: *const GUID, file: HANDLE, region: *mut *mut c_void) -> HRESULT;
        fn CreateMemoryWindow(iid: *const GUID, window: *mut *mut c_void) -> HRESULT;
        fn CreateSharedReceiveQueue(
            iid: *const GUID,
            file: HANDLE,
            depth: u32,
            max_sge: u32,
            threshold: u32,
            group: u16,
            affinity: KAFFINITY,
            queue: *mut *mut c_void
        ) -> HRESULT;
        fn CreateQueuePair(
            iid: *const GUID,
            receive_queue: *mut c_void,
            initiator_queue: *mut c_void,
            context: *mut c_void,
            receive_depth: u32,
            initiator_depth: u32,
            max_receive_sge: u32,
            max_initiator_sge: u32,
            inline_size: u32,
            qp: *mut *mut c_void
        ) -> HRESULT;
        fn CreateQueuePairWithSrq(
            iid: *const GUID,
            receive_queue: *mut c_void,
            initiator_queue: *mut c_void,
            shared_receive_queue: *mut c_void,
            context: *mut c_void,
            initiator_depth: u32,
            max_initiator_sge: u32,
            inline_size: u32,
            qp: *mut *mut c_void
        ) -> HRESULT;
        fn CreateConnector(iid: *const GUID, file: HANDLE, connector: *mut *mut c_void) -> HRESULT;
        fn CreateListener(iid: *const GUID, file: HANDLE, listener: *mut *mut c_void) -> HRESULT;
    }
}

interface! {
    /// `IND2Provider`.
    IND2ProviderVtbl: IUnknownVtbl {
        fn QueryAddressList(list: *mut SOCKET_ADDRESS_LIST, length: *mut u32) -> HRESULT;
        fn ResolveAddress(address: *const SOCKADDR, length: u32, adapter: *mut u64) -> HRESULT;
        fn OpenAdapter(iid: *const GUID, adapter: u64, object: *mut *mut c_void) -> HRESULT;
    }
}

interface! {
    /// `IND2Adapter`, and what version 1 of the interface needs besides.
    SoftAdapterVtbl: IND2AdapterVtbl {
        fn CloseOverlappedFile(file: HANDLE) -> HRESULT;
    }
}

interface! {
    /// `IND2QueuePair`, and what version 1 of the interface needs besides.
    SoftQueuePairVtbl: IND2QueuePairVtbl {
        fn SendAndInvalidate(
            context: *mut c_void,
            list: *const ND2_SGE,
            count: u32,
            token: u32,
            flags: u32
        ) -> HRESULT;
    }
}
