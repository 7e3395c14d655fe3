//! The management datagram that every message lies in: 24 bytes of header, 232 of the message.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned,
    big_endian::{U16, U32, U64},
};

/// What message a datagram carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u8)]
#[expect(missing_docs, reason = "the field's names")]
pub enum Attribute {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
}

/// The header of a management datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    base_version: u8,
    class: u8,
    class_version: u8,
    method: u8,
    status: U16,
    class_specific: U16,
    /// Chosen by the sender of a REQ or DREQ; the answers repeat it.
    pub transaction: U64,
    attribute: U16,
    reserved: U16,
    /// Of REQ and REP, something of ECE that is not spoken here.
    pub modifier: U32,
}

/// Bytes of a message.
pub const DATA: usize = 232;
/// Bytes of a datagram.
pub const LENGTH: usize = 256;
/// The same, as the length of a payload.
pub const BYTES: u32 = 256;

const _: () = assert!(size_of::<Mad>() == LENGTH);

/// A management datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Mad {
    /// Its header.
    pub header: Header,
    /// The message.
    pub data: [u8; DATA],
}

const CLASS: u8 = 0x07;
const SEND: u8 = 3;

impl Mad {
    /// The datagram with this message, which is as long as messages are.
    #[must_use]
    pub fn new(attribute: Attribute, transaction: u64, message: &(impl IntoBytes + Immutable)) -> Self {
        let mut data = [0; DATA];
        data.copy_from_slice(message.as_bytes());
        let header = Header {
            base_version: 1,
            class: CLASS,
            class_version: 2,
            method: SEND,
            status: U16::ZERO,
            class_specific: U16::ZERO,
            transaction: U64::new(transaction),
            attribute: U16::new(attribute as u16),
            reserved: U16::ZERO,
            modifier: U32::ZERO,
        };
        Self { header, data }
    }

    /// The datagram in `bytes`; `None` if it is not one of a connection manager.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<&Self> {
        let mad = Self::ref_from_bytes(bytes).ok()?;
        let Header { base_version, class, class_version, method, .. } = mad.header;
        (base_version == 1 && class == CLASS && class_version == 2 && method == SEND).then_some(mad)
    }

    /// What message it is; `None` for one that is not spoken here.
    #[must_use]
    pub fn attribute(&self) -> Option<Attribute> {
        let number = u8::try_from(self.header.attribute.get()).ok()?;
        Attribute::try_read_from_bytes(&[number]).ok()
    }

    /// The message, as one of the types whose layout is that of a message.
    #[must_use]
    pub fn message<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> Option<&T> {
        T::ref_from_bytes(&self.data).ok()
    }
}
