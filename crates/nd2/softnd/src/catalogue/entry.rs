//! An entry: a `WSAPROTOCOL_INFOW`, byte by byte, so that it is the same wherever it is made.

use std::fmt;

use ndkpi::GUID;

/// Bytes of a `WSAPROTOCOL_INFOW`.
const SIZE: usize = 628;
/// Characters of its name.
const NAME: usize = 256;

/// Where its fields are.
mod at {
    pub const SERVICE_FLAGS: usize = 0x00;
    pub const PROVIDER_FLAGS: usize = 0x10;
    pub const PROVIDER: usize = 0x14;
    pub const CHAIN_LENGTH: usize = 0x28;
    pub const VERSION: usize = 0x48;
    pub const FAMILY: usize = 0x4C;
    pub const LONGEST_ADDRESS: usize = 0x50;
    pub const SHORTEST_ADDRESS: usize = 0x54;
    pub const SOCKET_TYPE: usize = 0x58;
    pub const PROTOCOL: usize = 0x5C;
    pub const PROTOCOL_RANGE: usize = 0x60;
    pub const MESSAGE_SIZE: usize = 0x6C;
    pub const NAME: usize = 0x74;
}

/// `XP1_GUARANTEED_DELIVERY | XP1_GUARANTEED_ORDER | XP1_MESSAGE_ORIENTED | XP1_CONNECT_DATA`.
const SERVICE: u32 = 0x02 | 0x04 | 0x08 | 0x80;
/// `PFL_HIDDEN`: no sockets are made with it.
const HIDDEN: u32 = 0x04;
/// `PFL_NETWORKDIRECT_PROVIDER`.
const NETWORK_DIRECT: u32 = 0x10;
/// `SOCKADDR_IN`.
const SHORTEST: u32 = 16;
/// `SOCKADDR_IN6`.
const LONGEST: u32 = 28;

/// A version of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Found by a class factory.
    One,
    /// The current one.
    Two,
}

impl Version {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Two, Self::One];

    /// What `iVersion` says. The document has 2 for the second, installers and programs this (`ND_VERSION_2`).
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 0x2_0000,
        }
    }

    /// The provider that `softnd.dll` is for it.
    #[must_use]
    pub const fn provider(self) -> GUID {
        match self {
            Self::One => GUID::from_u128(0x0E6A_5D4C_93B7_4F28_8A61_5C0D_71E2_B901),
            Self::Two => GUID::from_u128(0x0E6A_5D4C_93B7_4F28_8A61_5C0D_71E2_B902),
        }
    }

    /// The version with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::One => "1",
            Self::Two => "2",
        })
    }
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::V4 => 2,
            Self::V6 => 23,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// An entry of the catalogue.
#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct Entry([u8; SIZE]);

impl Entry {
    /// An entry of nothing, to be filled.
    pub const EMPTY: Self = Self([0; SIZE]);

    /// The entry of `softnd.dll` for a version and a family.
    #[must_use]
    pub fn of(version: Version, family: Family) -> Self {
        let mut entry = Self::EMPTY;
        entry.put(at::SERVICE_FLAGS, SERVICE);
        entry.put(at::PROVIDER_FLAGS, HIDDEN | NETWORK_DIRECT);
        entry.put_provider(&version.provider());
        // A provider of its own, and no layer over another.
        entry.put(at::CHAIN_LENGTH, 1);
        entry.put(at::VERSION, version.number());
        entry.put(at::FAMILY, family.number());
        entry.put(at::LONGEST_ADDRESS, LONGEST);
        entry.put(at::SHORTEST_ADDRESS, SHORTEST);
        // No type of socket: -1.
        entry.put(at::SOCKET_TYPE, u32::MAX);
        entry.put(at::MESSAGE_SIZE, u32::MAX);
        let name = format!("SoftNDK NetworkDirect {version} [{family}]");
        for (place, unit) in entry.0[at::NAME..].chunks_exact_mut(2).zip(name.encode_utf16().take(NAME - 1)) {
            place.copy_from_slice(&unit.to_le_bytes());
        }
        entry
    }

    /// Its bytes, as a `WSAPROTOCOL_INFOW` has them.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; SIZE] {
        &self.0
    }

    fn put(&mut self, place: usize, value: u32) {
        self.0[place..place + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn get(&self, place: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[place..place + 4]);
        u32::from_le_bytes(bytes)
    }

    fn put_provider(&mut self, provider: &GUID) {
        self.put(at::PROVIDER, provider.Data1);
        self.0[at::PROVIDER + 4..at::PROVIDER + 6].copy_from_slice(&provider.Data2.to_le_bytes());
        self.0[at::PROVIDER + 6..at::PROVIDER + 8].copy_from_slice(&provider.Data3.to_le_bytes());
        self.0[at::PROVIDER + 8..at::PROVIDER + 16].copy_from_slice(&provider.Data4);
    }

    /// Its provider.
    #[must_use]
    pub fn provider(&self) -> GUID {
        let half = |place: usize| u16::from_le_bytes([self.0[place], self.0[place + 1]]);
        let mut last = [0; 8];
        last.copy_from_slice(&self.0[at::PROVIDER + 8..at::PROVIDER + 16]);
        GUID {
            Data1: self.get(at::PROVIDER),
            Data2: half(at::PROVIDER + 4),
            Data3: half(at::PROVIDER + 6),
            Data4: last,
        }
    }

    /// The version of the interface, if it is one that there is.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        Version::from_number(self.get(at::VERSION))
    }

    /// Its family of addresses, if it is one that NetworkDirect has.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.number() == self.get(at::FAMILY))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        let units = self.0[at::NAME..].chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let units: Vec<_> = units.take_while(|unit| *unit != 0).collect();
        String::from_utf16_lossy(&units)
    }

    /// Returns true if programs take it for a NetworkDirect provider, by the rules of the public framework. Version 1 need not have
    /// the flag of NetworkDirect.
    #[must_use]
    pub fn is_network_direct(&self) -> bool {
        let flags = self.get(at::PROVIDER_FLAGS);
        let wanted = match self.version() {
            Some(Version::One) => HIDDEN,
            Some(Version::Two) => HIDDEN | NETWORK_DIRECT,
            None => return false,
        };
        self.get(at::SERVICE_FLAGS) & SERVICE == SERVICE
            && flags & wanted == wanted
            && self.family().is_some()
            && self.get(at::SOCKET_TYPE) == u32::MAX
            && self.get(at::PROTOCOL) == 0
            && self.get(at::PROTOCOL_RANGE) == 0
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name())
            .field("provider", &self.provider().to_string())
            .field("version", &self.version())
            .field("family", &self.family())
            .finish_non_exhaustive()
    }
}
