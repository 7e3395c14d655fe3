//! Frames: a net buffer describes the bytes of one in a chain of MDLs, a net buffer list holds net buffers that travel together.

use core::ffi::c_void;

use ndkpi::{BOOLEAN, MDL, NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT};

use crate::{NDIS_PORT_NUMBER, NDIS_STATUS, header, layout};

/// The sender is at `DISPATCH_LEVEL`.
pub const NDIS_SEND_FLAGS_DISPATCH_LEVEL: u32 = 1;
/// A frame may be for the sender's own adapter.
pub const NDIS_SEND_FLAGS_CHECK_FOR_LOOPBACK: u32 = 2;
/// The completion comes at `DISPATCH_LEVEL`.
pub const NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL: u32 = 1;
/// The indication comes at `DISPATCH_LEVEL`.
pub const NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL: u32 = 1;
/// The miniport takes the frames back when the indication returns: who is told has to copy them.
pub const NDIS_RECEIVE_FLAGS_RESOURCES: u32 = 2;
/// The return comes at `DISPATCH_LEVEL`.
pub const NDIS_RETURN_FLAGS_DISPATCH_LEVEL: u32 = 1;
/// Lists of a pool that belong to no particular protocol.
pub const NDIS_PROTOCOL_ID_DEFAULT: u8 = 0;

/// The index in [`NET_BUFFER_LIST::NetBufferListInfo`] of the priority and the VLAN, an `NDIS_NET_BUFFER_LIST_8021Q_INFO`.
///
/// From the lowest bit on: three bits of priority, the canonical format indicator, and twelve bits of the identifier of the VLAN.
#[expect(non_upper_case_globals, reason = "an enumerator of C")]
pub const Ieee8021QNetBufferListInfo: usize = 4;
/// The index in [`NET_BUFFER_LIST::NetBufferListInfo`] of the identifier by which sends are cancelled.
#[expect(non_upper_case_globals, reason = "an enumerator of C")]
pub const NetBufferListCancelId: usize = 5;
/// The index in [`NET_BUFFER_LIST::NetBufferListInfo`] of the type of the frames, in the order of bytes of the wire.
#[expect(non_upper_case_globals, reason = "an enumerator of C")]
pub const NetBufferListFrameType: usize = 7;
/// The slots of [`NET_BUFFER_LIST::NetBufferListInfo`] in NDIS 6.80.
#[expect(non_upper_case_globals, reason = "an enumerator of C")]
pub const MaxNetBufferListInfo: usize = 27;

/// The bytes of a frame: in 32 bits, which is what drivers read and write, or as wide as an address.
#[derive(Clone, Copy)]
#[repr(C)]
pub union NET_BUFFER_DATA_LENGTH {
    /// The length.
    pub DataLength: u32,
    /// The length where it may be larger.
    pub stDataLength: usize,
}

const _: () = assert!(size_of::<NET_BUFFER_DATA_LENGTH>() == 0x08 && align_of::<NET_BUFFER_DATA_LENGTH>() == 8);

impl core::fmt::Debug for NET_BUFFER_DATA_LENGTH {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NET_BUFFER_DATA_LENGTH").finish_non_exhaustive()
    }
}

/// A frame.
///
/// Its bytes begin `DataOffset` bytes into the chain, which is `CurrentMdlOffset` bytes into `CurrentMdl`, and are
/// `DataLength` long. (`NET_BUFFER` of C has a union in front that this structure writes out.)
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct NET_BUFFER {
    /// The next net buffer of the list.
    pub Next: *mut Self,
    /// The MDL that the first byte lies in.
    pub CurrentMdl: *mut MDL,
    /// Where in it.
    pub CurrentMdlOffset: u32,
    /// The bytes of the frame.
    pub DataLength: NET_BUFFER_DATA_LENGTH,
    /// The chain.
    pub MdlChain: *mut MDL,
    /// Bytes of the chain before the first one.
    pub DataOffset: u32,
    /// Not there in C, which aligns what comes before to 16 bytes.
    pub Padding: u32,
    /// For checksums of hardware.
    pub ChecksumBias: u16,
    /// Zero.
    pub Reserved: u16,
    /// The pool it was allocated from.
    pub NdisPoolHandle: NDIS_HANDLE,
    /// Belongs to NDIS.
    pub NdisReserved: [*mut c_void; 2],
    /// Belongs to the protocol.
    pub ProtocolReserved: [*mut c_void; 6],
    /// Belongs to the miniport.
    pub MiniportReserved: [*mut c_void; 4],
    /// The bus address of the bytes.
    pub DataPhysicalAddress: u64,
    /// Shared memory or the list of a scatter/gather transfer.
    pub SharedMemoryInfo: *mut c_void,
}

/// Frames that travel together.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct NET_BUFFER_LIST {
    /// The next list.
    pub Next: *mut Self,
    /// The first frame.
    pub FirstNetBuffer: *mut NET_BUFFER,
    /// Memory for drivers on the way.
    pub Context: *mut c_void,
    /// The list that this one is a clone of.
    pub ParentNetBufferList: *mut Self,
    /// The pool it was allocated from.
    pub NdisPoolHandle: NDIS_HANDLE,
    /// Not there in C, which aligns the next field to 16 bytes.
    pub Padding: *mut c_void,
    /// Belongs to NDIS.
    pub NdisReserved: [*mut c_void; 2],
    /// Belongs to the protocol.
    pub ProtocolReserved: [*mut c_void; 4],
    /// Belongs to the miniport.
    pub MiniportReserved: [*mut c_void; 2],
    /// Belongs to whoever has the list.
    pub Scratch: *mut c_void,
    /// Who sent it; a miniport sets it before it indicates a receive.
    pub SourceHandle: NDIS_HANDLE,
    /// A combination of `NDIS_NBL_FLAGS_`.
    pub NblFlags: u32,
    /// Clones that are still on the way.
    pub ChildRefCount: i32,
    /// Belongs to NDIS.
    pub Flags: u32,
    /// How the send ended.
    pub Status: NDIS_STATUS,
    /// Values about the frames, by index.
    pub NetBufferListInfo: [*mut c_void; MaxNetBufferListInfo],
}

layout!(NET_BUFFER: size 0xB0, align 16, {
    Next @ 0x00,
    CurrentMdl @ 0x08,
    CurrentMdlOffset @ 0x10,
    DataLength @ 0x18,
    MdlChain @ 0x20,
    DataOffset @ 0x28,
    Padding @ 0x2C,
    ChecksumBias @ 0x30,
    Reserved @ 0x32,
    NdisPoolHandle @ 0x38,
    NdisReserved @ 0x40,
    ProtocolReserved @ 0x50,
    MiniportReserved @ 0x80,
    DataPhysicalAddress @ 0xA0,
    SharedMemoryInfo @ 0xA8,
});

layout!(NET_BUFFER_LIST: size 0x170, align 16, {
    Next @ 0x00,
    FirstNetBuffer @ 0x08,
    Context @ 0x10,
    ParentNetBufferList @ 0x18,
    NdisPoolHandle @ 0x20,
    Padding @ 0x28,
    NdisReserved @ 0x30,
    ProtocolReserved @ 0x40,
    MiniportReserved @ 0x60,
    Scratch @ 0x70,
    SourceHandle @ 0x78,
    NblFlags @ 0x80,
    ChildRefCount @ 0x84,
    Flags @ 0x88,
    Status @ 0x8C,
    NetBufferListInfo @ 0x90,
});

/// The only revision of [`NET_BUFFER_LIST_POOL_PARAMETERS`].
pub const NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1: u8 = 1;
/// The bytes of [`NET_BUFFER_LIST_POOL_PARAMETERS`].
pub const NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1: u16 = 0x10;

/// A pool of net buffer lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct NET_BUFFER_LIST_POOL_PARAMETERS {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// [`NDIS_PROTOCOL_ID_DEFAULT`].
    pub ProtocolId: u8,
    /// True if each list comes with a net buffer.
    pub fAllocateNetBuffer: BOOLEAN,
    /// Bytes of context of each list; a multiple of 16.
    pub ContextSize: u16,
    /// The tag of the pool's memory.
    pub PoolTag: u32,
    /// Bytes of data of each net buffer; 0 for none.
    pub DataSize: u32,
}

layout!(NET_BUFFER_LIST_POOL_PARAMETERS: size 0x10, align 4, {
    Header @ 0x00,
    ProtocolId @ 0x04,
    fAllocateNetBuffer @ 0x05,
    ContextSize @ 0x06,
    PoolTag @ 0x08,
    DataSize @ 0x0C,
});

header!(NET_BUFFER_LIST_POOL_PARAMETERS:
    NDIS_OBJECT_TYPE_DEFAULT,
    NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1,
    NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1);

#[cfg_attr(windows, link(name = "ndis.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// Makes a pool; null if there is no memory. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisAllocateNetBufferListPool(
        NdisHandle: NDIS_HANDLE,
        Parameters: *const NET_BUFFER_LIST_POOL_PARAMETERS,
    ) -> NDIS_HANDLE;

    /// Frees a pool from which nothing is allocated any more. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisFreeNetBufferListPool(PoolHandle: NDIS_HANDLE);

    /// Allocates a list with one net buffer that describes `DataLength` bytes of a chain; null if there is no memory.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisAllocateNetBufferAndNetBufferList(
        PoolHandle: NDIS_HANDLE,
        ContextSize: u16,
        ContextBackFill: u16,
        MdlChain: *mut MDL,
        DataOffset: u32,
        DataLength: usize,
    ) -> *mut NET_BUFFER_LIST;

    /// Frees a list and its net buffer, not the bytes. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisFreeNetBufferList(NetBufferList: *mut NET_BUFFER_LIST);

    /// Makes an MDL for non-paged memory; null if there is no memory. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisAllocateMdl(NdisHandle: NDIS_HANDLE, VirtualAddress: *mut c_void, Length: u32) -> *mut MDL;

    /// Frees it. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisFreeMdl(Mdl: *mut MDL);

    /// The first `BytesNeeded` bytes of a frame: where they lie if they are in one piece, a copy in `Storage` if not, null if
    /// there are fewer, or if a copy is needed and there is no storage. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisGetDataBuffer(
        NetBuffer: *mut NET_BUFFER,
        BytesNeeded: u32,
        Storage: *mut c_void,
        AlignMultiple: u32,
        AlignOffset: u32,
    ) -> *mut c_void;

    /// Gives sent lists back. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisMSendNetBufferListsComplete(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetBufferList: *mut NET_BUFFER_LIST,
        SendCompleteFlags: u32,
    );

    /// Indicates received lists, which come back by the return handler, or when the call returns if the flags say
    /// [`NDIS_RECEIVE_FLAGS_RESOURCES`]. IRQL <= `DISPATCH_LEVEL`.
    pub fn NdisMIndicateReceiveNetBufferLists(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetBufferList: *mut NET_BUFFER_LIST,
        PortNumber: NDIS_PORT_NUMBER,
        NumberOfNetBufferLists: u32,
        ReceiveFlags: u32,
    );
}
