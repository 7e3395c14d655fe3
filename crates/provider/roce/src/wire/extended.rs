//! The extended headers: RETH, AETH, DETH, immediate data, IETH (RoCEv2 1).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    big_endian::{U32, U64},
};

use super::{Kind, Opcode, U24};

/// RDMA extended transport header: the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Reth {
    /// The first byte.
    pub address: U64,
    /// The remote token.
    pub key: U32,
    /// Bytes of the whole message.
    pub length: U32,
}

impl Reth {
    /// The header for `length` bytes at `address`.
    #[must_use]
    pub const fn new(address: u64, key: u32, length: u32) -> Self {
        Self { address: U64::new(address), key: U32::new(key), length: U32::new(length) }
    }
}

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Aeth {
    /// What the answer says: [`Syndrome`](super::Syndrome).
    pub syndrome: u8,
    /// The responder's count of messages.
    pub msn: U24,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Deth {
    /// The key of the queue that the datagram is for.
    pub q_key: U32,
    reserved: u8,
    /// The queue pair that sent it.
    pub source: U24,
}

impl Deth {
    /// The header of a datagram.
    #[must_use]
    pub const fn new(q_key: u32, source: u32) -> Self {
        Self { q_key: U32::new(q_key), reserved: 0, source: U24::new(source) }
    }
}

/// The extended headers of a packet: those that its opcode has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extended {
    /// Of the first packet of a WRITE, and of a READ request.
    pub reth: Option<Reth>,
    /// Of an ACK, and of the data of a READ but its middle.
    pub aeth: Option<Aeth>,
    /// Of a datagram.
    pub deth: Option<Deth>,
    /// Of the last packet of a message with immediate data.
    pub immediate: Option<u32>,
    /// The key in the IETH of the last packet of a SEND with invalidate.
    pub invalidate: Option<u32>,
}

/// The most bytes that extended headers take: RETH and immediate.
pub const MOST: usize = size_of::<Reth>() + 4;
/// Bytes of an atomic request's header, which is not looked at.
const ATOMIC: usize = 28;
/// Bytes of an atomic answer's data behind its AETH.
const ATOMIC_ANSWER: usize = 8;

/// Takes a header off the front of `bytes`.
fn take<T: FromBytes>(bytes: &mut &[u8]) -> Option<T> {
    let (header, rest) = T::read_from_prefix(bytes).ok()?;
    *bytes = rest;
    Some(header)
}

impl Extended {
    /// The headers at the front of `bytes` of a packet with this opcode, and what follows them. `None` if it is too short.
    #[must_use]
    #[inline]
    pub fn parse(opcode: Opcode, mut bytes: &[u8]) -> Option<(Self, &[u8])> {
        let rest = &mut bytes;
        let mut headers = Self::default();
        if opcode.has_deth() {
            headers.deth = Some(take(rest)?);
        }
        if opcode.has_reth() {
            headers.reth = Some(take(rest)?);
        }
        if opcode.has_aeth() {
            headers.aeth = Some(take(rest)?);
        }
        if opcode.has_immediate() {
            headers.immediate = Some(take::<U32>(rest)?.get());
        }
        if opcode.has_ieth() {
            headers.invalidate = Some(take::<U32>(rest)?.get());
        }
        match opcode.kind() {
            Kind::Atomic => *rest = rest.get(ATOMIC..)?,
            Kind::AtomicAcknowledge => *rest = rest.get(ATOMIC_ANSWER..)?,
            _ => {}
        }
        Some((headers, bytes))
    }

    /// Writes the headers to the front of `bytes`, which has room for them, and returns their length.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let mut length = 0;
        let mut put = |header: &[u8]| {
            bytes[length..][..header.len()].copy_from_slice(header);
            length += header.len();
        };
        if let Some(deth) = &self.deth {
            put(deth.as_bytes());
        }
        if let Some(reth) = &self.reth {
            put(reth.as_bytes());
        }
        if let Some(aeth) = &self.aeth {
            put(aeth.as_bytes());
        }
        for word in [self.immediate, self.invalidate].into_iter().flatten() {
            put(&word.to_be_bytes());
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::{Aeth, Extended, Opcode, U24};

    #[test]
    fn the_headers_of_atomics_are_passed_over() {
        let mut bytes = [0; 30];
        bytes.iter_mut().zip(0..).for_each(|(byte, index)| *byte = index);
        for opcode in [Opcode::CompareSwap, Opcode::FetchAdd] {
            assert_eq!(Extended::parse(opcode, &bytes), Some((Extended::default(), &[28, 29][..])));
            assert_eq!(Extended::parse(opcode, &bytes[..27]), None, "too short");
        }
        let aeth = Some(Aeth { syndrome: 0, msn: U24::new(0x01_0203) });
        let answer = Extended { aeth, ..Extended::default() };
        assert_eq!(Extended::parse(Opcode::AtomicAcknowledge, &bytes[..14]), Some((answer, &[12, 13][..])));
        assert_eq!(Extended::parse(Opcode::AtomicAcknowledge, &bytes[..11]), None, "too short");
    }
}
