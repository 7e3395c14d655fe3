//! What a wire is made from.

use alloc::boxed::Box;
use core::net::IpAddr;

use fallible::{AllocError, try_box};
pub use roce::Network;
use roce::{
    Stack,
    cm::{ReadLimits, Room, Times},
    qp::Sizes,
};

/// The parameters of a wire. Its addresses are those of the adapter.
#[derive(Clone, Copy, Debug)]
pub struct WireConfig {
    /// The station's address.
    pub mac: [u8; 6],
    /// The tag of frames that go out: priority and VLAN. Frames that come in must be of the same VLAN.
    pub tag: Option<u16>,
    /// Routers, one for each family of addresses.
    pub gateways: [Option<IpAddr>; 2],
    /// Bytes of the network's packets: Ethernet's 1500, 1450 in VXLAN over that.
    pub network_mtu: u16,
    /// The adapter's identifier, which no other adapter has; zero: made from `mac`.
    pub guid: u64,
    /// Bits that a peer cannot guess.
    pub seed: u64,
    /// Connections at one time.
    pub connections: u16,
    /// Of these, those that peers have asked for and that are not established.
    pub half_open: u16,
    /// Listeners.
    pub listeners: u16,
    /// Stations that are remembered.
    pub neighbours: u16,
    /// Connected queue pairs.
    pub queue_pairs: u16,
    /// Requests of a queue pair that are on their way at a time.
    pub send_depth: u16,
    /// Packets of a queue pair that are on their way at a time.
    pub window: u16,
    /// Packets of a queue pair's requests that go before an ACK that waits ([`Sizes::before_ack`](roce::qp::Sizes::before_ack)); zero: none.
    pub before_ack: u8,
    /// How long peers are waited for, and how often they are asked again.
    pub times: Times,
}

impl WireConfig {
    /// Sizes for a few hundred connections.
    #[must_use]
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            tag: None,
            gateways: [None; 2],
            network_mtu: 1500,
            guid: 0,
            seed: 0x534F_4654_4E44_4B00,
            connections: 512,
            half_open: 128,
            listeners: 64,
            neighbours: 64,
            queue_pairs: 512,
            send_depth: 64,
            window: 64,
            before_ack: 8,
            times: Times::default(),
        }
    }

    /// An EUI-64 of the MAC address.
    fn guid(&self) -> u64 {
        let [first, second, third, rest @ ..] = self.mac;
        let vendor = [first ^ 2, second, third, 0xFF];
        let made = u64::from_be_bytes([vendor[0], vendor[1], vendor[2], vendor[3], 0xFE, rest[0], rest[1], rest[2]]);
        if self.guid == 0 { made } else { self.guid }
    }

    // Not inlined, for the same reason as `Wire::try_new`.
    #[inline(never)]
    pub(super) fn stack(&self, networks: &[Network]) -> Result<Box<Stack>, AllocError> {
        let stack = Stack::new(&roce::Config {
            mac: self.mac,
            tag: self.tag,
            networks,
            gateways: self.gateways,
            network_mtu: self.network_mtu.into(),
            guid: self.guid(),
            queue_pairs: self.queue_pairs.into(),
            room: Room {
                connections: self.connections.into(),
                half_open: self.half_open.into(),
                listeners: self.listeners.into(),
            },
            neighbours: self.neighbours.into(),
            times: self.times,
            seed: self.seed,
        })?;
        try_box(stack)
    }

    pub(super) fn sizes(&self, limits: ReadLimits) -> Sizes {
        Sizes {
            send_depth: self.send_depth.into(),
            // Inline bytes stay in the send queue of the engine.
            inline_bytes: 0,
            inbound_reads: limits.inbound,
            outbound_reads: limits.outbound,
            window: self.window.into(),
            before_ack: self.before_ack,
        }
    }
}
