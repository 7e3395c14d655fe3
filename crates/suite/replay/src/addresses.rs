//! Addresses as NDKPI passes them: `SOCKADDR_IN` and `SOCKADDR_IN6` (`NDKPI 0.2`).

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use ndkpi::SOCKADDR;
use recording::Private;

/// Reads an address.
pub fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip: IpAddr = match u16::from_le_bytes(bytes.get(..2)?.try_into().ok()?) {
        2 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?).into(),
        23 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// An address for a call: aligned, with the length that was recorded.
pub struct Raw {
    bytes: [u64; 16],
    length: u32,
}

impl Raw {
    /// The pointer; null if there were no bytes.
    pub const fn pointer(&self) -> *const SOCKADDR {
        if self.length == 0 { std::ptr::null() } else { self.bytes.as_ptr().cast() }
    }

    /// The length in bytes.
    pub const fn length(&self) -> u32 {
        self.length
    }
}

/// Port numbers that the provider has chosen: those of the recording and those of here.
#[derive(Default)]
pub struct Ports(HashMap<SocketAddr, u16>);

impl Ports {
    /// The recorded address is this one here.
    pub fn learn(&mut self, recorded: &[u8], here: &[u8]) {
        if let (Some(recorded), Some(here)) = (parse(recorded), parse(here)) {
            self.0.insert(recorded, here.port());
        }
    }

    /// The address for a call.
    pub fn translate(&self, recorded: &Private) -> Raw {
        let mut raw = Raw { bytes: [0; 16], length: 0 };
        let kept = recorded.bytes.len().min(128);
        let mut bytes = recorded.bytes[..kept].to_vec();
        if let Some(port) = parse(&bytes).and_then(|address| self.0.get(&address)) {
            bytes[2..4].copy_from_slice(&port.to_be_bytes());
        }
        for (word, chunk) in raw.bytes.iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(padded);
        }
        raw.length = u32::try_from(kept).unwrap_or(0);
        raw
    }
}
