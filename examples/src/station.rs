//! An adapter on an Ethernet segment: what [`ndk::host::Wired`] is, with a thread that brings frames in.

use std::{net::IpAddr, sync::Arc};

use ndk::{
    Adapter, NtStatus,
    host::{Config, InterfaceAddress, Outlet, WireConfig, Wired},
};
use network::{Pump, Segment};

/// An adapter with one address on a segment.
pub struct Station {
    wired: Wired,
    address: IpAddr,
    frames: Option<Pump>,
}

impl Station {
    /// A station of the network that `address` with a prefix of so many bits names. Packets of the network have `mtu` bytes at most.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn start(segment: Arc<dyn Segment>, address: IpAddr, prefix: u8, mtu: u16) -> Result<Self, NtStatus> {
        let mut config = Config { addresses: [None; _], ..Config::default() };
        config.addresses[0] = Some(InterfaceAddress::new(address, prefix));
        // A locally administered address of its own, and what differs from one run to the next: peers remember connections.
        let last = match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(address) => address.octets()[15],
        };
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| u64::from(time.subsec_nanos()));
        let seed = u64::from(std::process::id()) << 32 ^ now;
        let wire = WireConfig { network_mtu: mtu, seed, ..WireConfig::new([2, 0, 0, 0, 1, last]) };
        let out = segment.clone();
        let cable = Outlet(move |frames: &[&[u8]]| drop(out.send_all(frames)));
        let wired = Wired::start(config, wire, Box::new(cable))?;
        let plug = wired.plug();
        let frames = Pump::start(segment, move |frame| plug.receive(frame));
        let frames = frames.map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        Ok(Self { wired, address, frames: Some(frames) })
    }

    /// The station's own address.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Opens the adapter.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn open(&self) -> Result<Adapter, NtStatus> {
        self.wired.open()
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.frames.take().map(Pump::finish) {
            eprintln!("the segment has failed: {error}");
        }
    }
}
