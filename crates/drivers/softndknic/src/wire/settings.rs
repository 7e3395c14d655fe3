//! The keywords of a wire.

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cable::{
    Peers,
    peers::{self, Wrong},
};
use fallible::try_box;
use ndkpi::{NDIS_HANDLE, NtStatus};

use crate::configuration::{Configuration, WIRE_LOCAL, WIRE_PEER, WIRE_PORT, WIRE_VNI};

/// What the frame of an Ethernet under the wire has beside that of the wire: Ethernet, IPv4, UDP and VXLAN headers.
const AROUND_IPV4: u32 = 14 + 20 + 8 + 8;
/// The same with IPv6.
const AROUND_IPV6: u32 = AROUND_IPV4 + 20;

/// The ends of a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The other ends; there is one at least.
    pub peers: Peers,
    /// The network of VXLAN.
    pub vni: u32,
    /// Where datagrams come to. Of the peers' family.
    pub local: SocketAddr,
}

/// What is at the end of an adapter.
pub enum Wanted {
    /// A cable to the adapter's partner.
    Cable,
    /// A wire to other machines.
    Wire(Box<Ends>),
    /// A wire that cannot be: this keyword is wrong, for this reason. Nothing is at the adapter's end.
    Refused(&'static str, Wrong),
}

impl Ends {
    /// Bytes that a frame has less than one of the network below.
    #[must_use]
    pub fn around(&self) -> u32 {
        if self.peers.is_ipv6() { AROUND_IPV6 } else { AROUND_IPV4 }
    }
}

impl Wanted {
    /// Reads the keywords of an adapter. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// What NDIS says; `STATUS_INSUFFICIENT_RESOURCES`.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS.
    #[inline(never)]
    pub unsafe fn read(adapter: NDIS_HANDLE) -> Result<Self, NtStatus> {
        // SAFETY: an adapter of NDIS (`# Safety`).
        let configuration = unsafe { Configuration::open(adapter) }?;
        let Some(port) = configuration.number_in_range(&WIRE_PORT).and_then(|port| u16::try_from(port).ok()) else {
            return Ok(Self::Refused("WirePort", Wrong::Range));
        };
        let peers = match configuration.text(&WIRE_PEER, |text| Peers::parse_wide(text, port)) {
            Some(Ok(peers)) if !peers.is_empty() => peers,
            Some(Err(wrong)) => return Ok(Self::Refused("WirePeer", wrong)),
            Some(Ok(_)) | None => return Ok(Self::Cable),
        };
        let Some(vni) = configuration.number_in_range(&WIRE_VNI) else {
            return Ok(Self::Refused("WireVni", Wrong::Range));
        };
        let any = if peers.is_ipv6() { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let local = configuration.text(&WIRE_LOCAL, |text| {
            if text.iter().all(|unit| [0, u16::from(b' ')].contains(unit)) {
                return Ok(SocketAddr::new(any, port));
            }
            let local = peers::address_wide(text, port)?;
            if local.is_ipv6() == peers.is_ipv6() { Ok(local) } else { Err(Wrong::Families) }
        });
        match local.unwrap_or_else(|| Ok(SocketAddr::new(any, port))) {
            Ok(local) => {
                let ends = try_box(Ends { peers, vni, local }).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
                Ok(Self::Wire(ends))
            }
            Err(wrong) => Ok(Self::Refused("WireLocal", wrong)),
        }
    }
}
