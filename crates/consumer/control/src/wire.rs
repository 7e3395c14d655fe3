//! Structures that are passed through a control device.

/// A structure of little-endian numbers without padding, as C lays it out, with its bytes.
///
/// Reading one checks only the length: every bit pattern is a valid value.
macro_rules! wire {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl $name {
            /// The size in bytes.
            pub const BYTES: usize = 0 $(+ size_of::<$type>())+;

            /// The structure as bytes to send.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; Self::BYTES] {
                let mut bytes = [0; Self::BYTES];
                let mut rest = &mut bytes[..];
                $({
                    let (field, after) = rest.split_at_mut(size_of::<$type>());
                    field.copy_from_slice(&self.$field.to_le_bytes());
                    rest = after;
                })+
                debug_assert!(rest.is_empty());
                bytes
            }

            /// Decodes the structure; `None` if the length is wrong.
            #[must_use]
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                let rest = bytes;
                $(let ($field, rest) = rest.split_first_chunk()?;)+
                rest.is_empty().then(|| Self { $($field: <$type>::from_le_bytes(*$field),)+ })
            }
        }

        const _: () = assert!(size_of::<$name>() == $name::BYTES, "padding");
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
