//! Whole frames: Ethernet, IP, UDP 4791, a packet, its ICRC.

use super::{
    Ethernet, Ip, Packet, Udp, ethernet, icrc, ip,
    packet::{ICRC, OVERHEAD},
    udp,
};

/// The most bytes that a frame has beside its payload.
pub const MOST_HEADERS: usize = ethernet::MOST + ip::V6 + udp::LENGTH + OVERHEAD;

/// What is around a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The station's header.
    pub ethernet: Ethernet,
    /// The network's header.
    pub ip: Ip,
    /// The ports.
    pub udp: Udp,
}

/// Why a frame is not looked at further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is not RoCEv2.
    Other,
    /// A header or length is wrong, or the opcode unknown.
    Malformed,
    /// The ICRC is wrong.
    Icrc,
}

impl Envelope {
    /// Bytes of all three headers.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.ethernet.length() + self.ip.length() + udp::LENGTH
    }

    /// Takes a frame apart as far as its packet. The ICRC has been checked.
    ///
    /// # Errors
    ///
    /// Why it is not a packet.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, Packet<'_>), Unreadable> {
        let (ethernet, network) = Ethernet::parse(frame).ok_or(Unreadable::Other)?;
        let (ip, rest) = Ip::parse(ethernet.ethertype, network).ok_or(Unreadable::Other)?;
        if ip.protocol != ip::protocol::UDP {
            return Err(Unreadable::Other);
        }
        let (udp, transport) = Udp::parse(rest).ok_or(Unreadable::Other)?;
        if udp.destination != udp::ROCE {
            return Err(Unreadable::Other);
        }
        let packet = Packet::parse(transport).ok_or(Unreadable::Malformed)?;
        let covered = ip.length() + udp::LENGTH + transport.len() - ICRC;
        let found = &transport[transport.len() - ICRC..];
        let start = ethernet.length();
        if icrc::of_frame(&frame[..start + covered], start).is_none_or(|right| right != found) {
            return Err(Unreadable::Icrc);
        }
        Ok((Self { ethernet, ip, udp }, packet))
    }

    /// Writes the headers before a packet of `packet` bytes. Returns where that begins.
    ///
    /// # Panics
    ///
    /// If the frame is shorter than that, or the packet has 64 KiB or more.
    #[inline]
    pub fn emit_headers(&self, frame: &mut [u8], packet: usize) -> usize {
        let network = self.ethernet.emit(frame);
        let udp = network + self.ip.emit(&mut frame[network..], udp::LENGTH + packet);
        udp + self.udp.emit(&mut frame[udp..], packet)
    }

    /// Writes the ICRC of a packet of `packet` bytes, before which the headers are. Returns the frame's length.
    ///
    /// # Panics
    ///
    /// If the frame is shorter than that.
    #[inline]
    pub fn seal(&self, frame: &mut [u8], packet: usize) -> usize {
        let end = self.length() + packet;
        let value =
            icrc::of_frame_in_place(&mut frame[..end - ICRC], self.ethernet.length()).expect("a packet has a BTH");
        frame[end - ICRC..end].copy_from_slice(&value);
        end
    }

    /// Writes a frame with this packet to the front of `frame`, which has room for it. Returns its length.
    pub fn emit(&self, packet: &Packet<'_>, frame: &mut [u8]) -> usize {
        let length = packet.emit(&mut frame[self.length()..]);
        self.emit_headers(frame, length);
        self.seal(frame, length)
    }
}
