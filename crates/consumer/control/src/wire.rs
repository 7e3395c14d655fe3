//! Structures that are passed through a control device.

// The structures have numbers of the machine, which are the wire's on every machine that Windows runs on.
const _: () = assert!(cfg!(target_endian = "little"));

/// A structure of little-endian numbers without padding, as C lays it out, with its bytes.
///
/// Reading one checks only the length: every bit pattern is a valid value.
macro_rules! wire {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
        )]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl $name {
            /// The size in bytes.
            pub const BYTES: usize = size_of::<Self>();

            /// The structure as bytes to send.
            #[must_use]
            pub const fn to_bytes(&self) -> [u8; Self::BYTES] {
                zerocopy::transmute!(*self)
            }

            /// Decodes the structure; `None` if the length is wrong.
            #[must_use]
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                zerocopy::FromBytes::read_from_bytes(bytes).ok()
            }
        }
    };
}

pub(crate) use wire;

/// `CTL_CODE` for a buffered control code in the vendor range.
pub const fn control_code(function: u32, access: u32) -> u32 {
    /// `FILE_DEVICE_NETWORK`.
    const DEVICE: u32 = 0x12;
    /// The first function number for vendors.
    const VENDOR: u32 = 0x800;
    /// `METHOD_BUFFERED`: the system copies input and output.
    const METHOD: u32 = 0;
    DEVICE << 16 | access << 14 | (VENDOR + function) << 2 | METHOD
}

/// `FILE_READ_DATA`: the handle must be open for reading.
pub const READ: u32 = 1;
/// `FILE_WRITE_DATA`: the handle must be open for writing.
pub const WRITE: u32 = 2;
