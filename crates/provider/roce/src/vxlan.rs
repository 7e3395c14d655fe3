//! VXLAN: Ethernet frames in the datagrams of a UDP socket (RoCEv2 9).

mod bridge;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use self::bridge::{AGE, Bridge, Counters, Dropped, HEAD, PEERS, STATIONS};
use crate::wire::U24;

/// The UDP port.
pub const PORT: u16 = 4789;

/// The header before the frame.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    flags: u8,
    reserved: U24,
    /// The network's identifier.
    vni: U24,
    reserved2: u8,
}

/// Bytes before the frame.
pub const HEADER: usize = size_of::<Header>();

/// The identifier is valid: the only flag that there is.
const VALID: u8 = 1 << 3;

/// The header of a datagram of the network `vni` (24 bits); the frame follows it.
#[must_use]
pub fn header(vni: u32) -> [u8; HEADER] {
    zerocopy::transmute!(Header { flags: VALID, reserved: U24::new(0), vni: U24::new(vni), reserved2: 0 })
}

/// The network and the frame of a datagram; `None` if it is not of VXLAN.
#[must_use]
pub fn decapsulate(datagram: &[u8]) -> Option<(u32, &[u8])> {
    let (header, frame) = Header::ref_from_prefix(datagram).ok()?;
    (header.flags & VALID != 0).then_some((header.vni.get(), frame))
}

/// Writes the datagram of `frame` in the network `vni` to the front of `datagram`, and returns its length; `None` if there is no room.
pub fn encapsulate(vni: u32, frame: &[u8], datagram: &mut [u8]) -> Option<usize> {
    let (front, rest) = datagram.split_first_chunk_mut::<HEADER>()?;
    rest.get_mut(..frame.len())?.copy_from_slice(frame);
    *front = header(vni);
    Some(HEADER + frame.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_goes_in_and_comes_out() {
        let mut datagram = [0xFF; 16];
        assert_eq!(encapsulate(42, b"frame", &mut datagram), Some(13));
        assert_eq!(datagram[..8], [8, 0, 0, 0, 0, 0, 42, 0]);
        assert_eq!(decapsulate(&datagram[..13]), Some((42, &b"frame"[..])));
        assert_eq!(encapsulate(42, &[0; 9], &mut datagram), None);
        datagram[0] = 0;
        assert_eq!(decapsulate(&datagram), None, "without a valid identifier");
        assert_eq!(decapsulate(&datagram[..7]), None);
    }
}
