//! Extension interfaces, which a provider may offer on any object (NDKPI 3.10, NDKPI 5.1).

use core::ffi::c_void;

use crate::{GUID, NDK_ADAPTER, NtStatus};

/// Where a provider stores the table of an extension (NDKPI 3.10).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDK_EXTENSION_INTERFACE {
    /// The table, whose type follows from the identifier and version that were asked for.
    pub Dispatch: *const c_void,
}

layout!(NDK_EXTENSION_INTERFACE: size 8, align 8, { Dispatch @ 0x00 });

/// The identifier of the one extension that Microsoft's headers define: receive-side scaling of an adapter (NDKPI 5.1).
/// A provider need not offer it.
pub const NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH: GUID = GUID::from_u128(0xBAB2_7026_86C3_4E31_9F72_4936_DED7_6D42);

/// The table of the extension [`NDK_EXTENSION_ID_ADAPTER_RSS_DISPATCH`] (NDKPI 5.1).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_EXTENSION_ADAPTER_RSS_DISPATCH {
    /// Tells which processors receive-side scaling uses.
    pub NdkGetRssProcessorInfo: Option<NDK_FN_GET_RSS_PROCESSOR_INFO>,
}

slots!(NDK_EXTENSION_ADAPTER_RSS_DISPATCH: NdkGetRssProcessorInfo);

opaque! {
    /// The processors that receive-side scaling uses. Its layout belongs to NDIS.
    NDIS_RSS_PROCESSOR_INFO
}

/// `NdkGetRssProcessorInfo`: tells which processors receive-side scaling uses, unless the pointer is null.
///
/// `Size` is the size of the buffer in bytes on entry. IRQL <= `DISPATCH_LEVEL` (NDKPI 5.1).
pub type NDK_FN_GET_RSS_PROCESSOR_INFO = unsafe extern "system" fn(
    pNdkAdapter: *mut NDK_ADAPTER,
    RssProcessorInfo: *mut NDIS_RSS_PROCESSOR_INFO,
    Size: *mut usize,
) -> NtStatus;
