//! Version 1: structures, and tables of functions in the order of the public header (`NDSPI 8`).

#![expect(non_snake_case, non_camel_case_types, reason = "the names of the public header")]

use core::ffi::c_void;

use ndkpi::{GUID, SOCKADDR};

use super::{
    BOOL, HANDLE, HRESULT, IUnknownVtbl, ND_RESULT, OVERLAPPED, SOCKET_ADDRESS_LIST, Table, layout, tables::interface,
};

/// A registration. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct ND_MR_HANDLE(pub usize);

/// A piece of the client's memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ND_SGE {
    /// The first byte.
    pub pAddr: *mut c_void,
    /// The number of bytes.
    pub Length: usize,
    /// The registration that holds them; zero if they are taken during the call.
    pub hMr: ND_MR_HANDLE,
}

layout!(ND_SGE: size 0x18 / 0x0C, {
    pAddr @ 0x00 / 0x00, Length @ 0x08 / 0x04, hMr @ 0x10 / 0x08
});

/// A memory window, as it is sent to peers. All numbers are in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ND_MW_DESCRIPTOR {
    /// The address of its first byte.
    pub Base: [u8; 8],
    /// The number of bytes.
    pub Length: [u8; 8],
    /// Its token.
    pub Token: [u8; 4],
}

layout!(ND_MW_DESCRIPTOR: size 0x14 / 0x14, {
    Base @ 0x00 / 0x00, Length @ 0x08 / 0x08, Token @ 0x10 / 0x10
});

/// What an adapter can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "as in NDSPI 4, where the names tell what they count")]
pub struct ND_ADAPTER_INFO1 {
    pub VendorId: u32,
    pub DeviceId: u32,
    pub MaxInboundSge: usize,
    pub MaxInboundRequests: usize,
    pub MaxInboundLength: usize,
    pub MaxOutboundSge: usize,
    pub MaxOutboundRequests: usize,
    pub MaxOutboundLength: usize,
    pub MaxInlineData: usize,
    pub MaxInboundReadLimit: usize,
    pub MaxOutboundReadLimit: usize,
    pub MaxCqEntries: usize,
    pub MaxRegistrationSize: usize,
    pub MaxWindowSize: usize,
    pub LargeRequestThreshold: usize,
    pub MaxCallerData: usize,
    pub MaxCalleeData: usize,
}

layout!(ND_ADAPTER_INFO1: size 0x80 / 0x44, {
    VendorId @ 0x00 / 0x00, DeviceId @ 0x04 / 0x04, MaxInboundSge @ 0x08 / 0x08, MaxInboundRequests @ 0x10 / 0x0C,
    MaxInboundLength @ 0x18 / 0x10, MaxOutboundSge @ 0x20 / 0x14, MaxOutboundRequests @ 0x28 / 0x18,
    MaxOutboundLength @ 0x30 / 0x1C, MaxInlineData @ 0x38 / 0x20, MaxInboundReadLimit @ 0x40 / 0x24,
    MaxOutboundReadLimit @ 0x48 / 0x28, MaxCqEntries @ 0x50 / 0x2C, MaxRegistrationSize @ 0x58 / 0x30,
    MaxWindowSize @ 0x60 / 0x34, LargeRequestThreshold @ 0x68 / 0x38, MaxCallerData @ 0x70 / 0x3C,
    MaxCalleeData @ 0x78 / 0x40
});

interface! {
    /// `INDOverlapped`. Its identifier and the byte count make it another interface than `IND2Overlapped`.
    INDOverlappedVtbl: IUnknownVtbl {
        fn CancelOverlappedRequests() -> HRESULT;
        fn GetOverlappedResult(overlapped: *mut OVERLAPPED, bytes: *mut usize, wait: BOOL) -> HRESULT;
    }
}

interface! {
    /// `INDCompletionQueue`.
    INDCompletionQueueVtbl: INDOverlappedVtbl {
        fn Resize(entries: usize) -> HRESULT;
        fn Notify(kind: u32, overlapped: *mut OVERLAPPED) -> HRESULT;
        fn GetResults(results: *mut *mut ND_RESULT, count: usize) -> usize;
    }
}

interface! {
    /// `INDEndpoint`.
    INDEndpointVtbl: IUnknownVtbl {
        fn Flush() -> HRESULT;
        fn StartRequestBatch() -> ();
        fn SubmitRequestBatch() -> ();
        fn Send(result: *mut ND_RESULT, list: *const ND_SGE, count: usize, flags: u32) -> HRESULT;
        fn SendAndInvalidate(
            result: *mut ND_RESULT,
            list: *const ND_SGE,
            count: usize,
            window: *const ND_MW_DESCRIPTOR,
            flags: u32
        ) -> HRESULT;
        fn Receive(result: *mut ND_RESULT, list: *const ND_SGE, count: usize) -> HRESULT;
        fn Bind(
            result: *mut ND_RESULT,
            region: ND_MR_HANDLE,
            window: *mut c_void,
            buffer: *const c_void,
            length: usize,
            flags: u32,
            descriptor: *mut ND_MW_DESCRIPTOR
        ) -> HRESULT;
        fn Invalidate(result: *mut ND_RESULT, window: *mut c_void, flags: u32) -> HRESULT;
        fn Read(
            result: *mut ND_RESULT,
            list: *const ND_SGE,
            count: usize,
            window: *const ND_MW_DESCRIPTOR,
            offset: u64,
            flags: u32
        ) -> HRESULT;
        fn Write(
            result: *mut ND_RESULT,
            list: *const ND_SGE,
            count: usize,
            window: *const ND_MW_DESCRIPTOR,
            offset: u64,
            flags: u32
        ) -> HRESULT;
    }
}

interface! {
    /// `INDConnector`.
    INDConnectorVtbl: INDOverlappedVtbl {
        fn CreateEndpoint(
            receive_queue: *mut c_void,
            initiator_queue: *mut c_void,
            receives: usize,
            requests: usize,
            receive_sge: usize,
            request_sge: usize,
            inbound_reads: usize,
            outbound_reads: usize,
            inline: *mut usize,
            endpoint: *mut *mut c_void
        ) -> HRESULT;
        fn Connect(
            endpoint: *mut c_void,
            address: *const SOCKADDR,
            length: usize,
            protocol: i32,
            port: u16,
            data: *const c_void,
            data_length: usize,
            overlapped: *mut OVERLAPPED
        ) -> HRESULT;
        fn CompleteConnect(overlapped: *mut OVERLAPPED) -> HRESULT;
        fn Accept(
            endpoint: *mut c_void,
            data: *const c_void,
            data_length: usize,
            overlapped: *mut OVERLAPPED
        ) -> HRESULT;
        fn Reject(data: *const c_void, data_length: usize) -> HRESULT;
        fn GetConnectionData(
            inbound: *mut usize,
            outbound: *mut usize,
            data: *mut c_void,
            length: *mut usize
        ) -> HRESULT;
        fn GetLocalAddress(address: *mut SOCKADDR, length: *mut usize) -> HRESULT;
        fn GetPeerAddress(address: *mut SOCKADDR, length: *mut usize) -> HRESULT;
        fn NotifyDisconnect(overlapped: *mut OVERLAPPED) -> HRESULT;
        fn Disconnect(overlapped: *mut OVERLAPPED) -> HRESULT;
    }
}

interface! {
    /// `INDListen`.
    INDListenVtbl: INDOverlappedVtbl {
        fn GetConnectionRequest(connector: *mut c_void, overlapped: *mut OVERLAPPED) -> HRESULT;
    }
}

interface! {
    /// `INDAdapter`.
    INDAdapterVtbl: INDOverlappedVtbl {
        fn GetFileHandle() -> HANDLE;
        fn Query(version: u32, info: *mut ND_ADAPTER_INFO1, length: *mut usize) -> HRESULT;
        fn Control(
            code: u32,
            input: *const c_void,
            input_length: usize,
            output: *mut c_void,
            output_length: usize,
            returned: *mut usize,
            overlapped: *mut OVERLAPPED
        ) -> HRESULT;
        fn CreateCompletionQueue(entries: usize, queue: *mut *mut c_void) -> HRESULT;
        fn RegisterMemory(
            buffer: *const c_void,
            length: usize,
            overlapped: *mut OVERLAPPED,
            handle: *mut ND_MR_HANDLE
        ) -> HRESULT;
        fn DeregisterMemory(handle: ND_MR_HANDLE, overlapped: *mut OVERLAPPED) -> HRESULT;
        fn CreateMemoryWindow(result: *mut ND_RESULT, window: *mut *mut c_void) -> HRESULT;
        fn CreateConnector(connector: *mut *mut c_void) -> HRESULT;
        fn Listen(
            backlog: usize,
            protocol: i32,
            port: u16,
            assigned: *mut u16,
            listen: *mut *mut c_void
        ) -> HRESULT;
    }
}

interface! {
    /// `INDProvider`.
    INDProviderVtbl: IUnknownVtbl {
        fn QueryAddressList(list: *mut SOCKET_ADDRESS_LIST, length: *mut usize) -> HRESULT;
        fn OpenAdapter(address: *const SOCKADDR, length: usize, adapter: *mut *mut c_void) -> HRESULT;
    }
}

interface! {
    /// `IClassFactory`.
    IClassFactoryVtbl: IUnknownVtbl {
        fn CreateInstance(outer: *mut c_void, iid: *const GUID, object: *mut *mut c_void) -> HRESULT;
        fn LockServer(lock: BOOL) -> HRESULT;
    }
}
