//! Keywords of an adapter in the registry.

use core::ffi::c_void;

use ndkpi::{NDIS_HANDLE, NDIS_OBJECT_HEADER};

use crate::{NDIS_STATUS, NDIS_STRING, header, layout, open_enum};

/// The type of [`NDIS_CONFIGURATION_OBJECT`].
pub const NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT: u8 = 0xA9;
/// The only revision of [`NDIS_CONFIGURATION_OBJECT`].
pub const NDIS_CONFIGURATION_OBJECT_REVISION_1: u8 = 1;
/// The bytes of [`NDIS_CONFIGURATION_OBJECT`], which ends before the padding.
pub const NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1: u16 = 0x14;

/// Whose keywords are opened.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_CONFIGURATION_OBJECT {
    /// See [`Self::HEADER`].
    pub Header: NDIS_OBJECT_HEADER,
    /// The handle that NDIS gave the adapter.
    pub NdisHandle: NDIS_HANDLE,
    /// Zero.
    pub Flags: u32,
}

layout!(NDIS_CONFIGURATION_OBJECT: size 0x18, align 8, { Header @ 0x00, NdisHandle @ 0x08, Flags @ 0x10 });

header!(NDIS_CONFIGURATION_OBJECT:
    NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT,
    NDIS_CONFIGURATION_OBJECT_REVISION_1,
    NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1);

open_enum! {
    /// The type of a keyword's value.
    NDIS_PARAMETER_TYPE {
        /// A number, written in decimal digits.
        INTEGER = 0, "NdisParameterInteger";
        /// A number, written in hexadecimal digits.
        HEX_INTEGER = 1, "NdisParameterHexInteger";
        /// A text.
        STRING = 2, "NdisParameterString";
        /// Several texts.
        MULTI_STRING = 3, "NdisParameterMultiString";
        /// Bytes.
        BINARY = 4, "NdisParameterBinary";
    }
}

/// Bytes of a keyword.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BINARY_DATA {
    /// How many there are.
    pub Length: u16,
    /// The bytes.
    pub Buffer: *mut c_void,
}

/// The value of a keyword, by its type.
#[derive(Clone, Copy)]
#[repr(C)]
pub union NDIS_CONFIGURATION_PARAMETER_DATA {
    /// A number.
    pub IntegerData: u32,
    /// A text.
    pub StringData: NDIS_STRING,
    /// Bytes.
    pub BinaryData: BINARY_DATA,
}

impl core::fmt::Debug for NDIS_CONFIGURATION_PARAMETER_DATA {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("NDIS_CONFIGURATION_PARAMETER_DATA").finish_non_exhaustive()
    }
}

/// A keyword's value. NDIS owns it until the configuration is closed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NDIS_CONFIGURATION_PARAMETER {
    /// Which field of the data it is.
    pub ParameterType: NDIS_PARAMETER_TYPE,
    /// The value.
    pub ParameterData: NDIS_CONFIGURATION_PARAMETER_DATA,
}

layout!(NDIS_CONFIGURATION_PARAMETER: size 0x18, align 8, { ParameterType @ 0x00, ParameterData @ 0x08 });

#[cfg_attr(windows, link(name = "ndis.sys", kind = "raw-dylib", modifiers = "+verbatim"))]
unsafe extern "system" {
    /// Opens the keywords of an adapter. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisOpenConfigurationEx(
        ConfigObject: *const NDIS_CONFIGURATION_OBJECT,
        ConfigurationHandle: *mut NDIS_HANDLE,
    ) -> NDIS_STATUS;

    /// Closes them, and frees every value that was read. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisCloseConfiguration(ConfigurationHandle: NDIS_HANDLE);

    /// Reads a keyword. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisReadConfiguration(
        Status: *mut NDIS_STATUS,
        ParameterValue: *mut *mut NDIS_CONFIGURATION_PARAMETER,
        ConfigurationHandle: NDIS_HANDLE,
        Keyword: *const NDIS_STRING,
        ParameterType: NDIS_PARAMETER_TYPE,
    );

    /// Reads the hardware address that the administrator chose. IRQL: `PASSIVE_LEVEL`.
    pub fn NdisReadNetworkAddress(
        Status: *mut NDIS_STATUS,
        NetworkAddress: *mut *mut c_void,
        NetworkAddressLength: *mut u32,
        ConfigurationHandle: NDIS_HANDLE,
    );
}
