//! What is asked of Windows.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;

use crate::{Certificate, Driver, Fault, Version};

/// What a call answers.
pub type Result<T> = core::result::Result<T, Fault>;

/// A processor that drivers are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Processor {
    /// x64.
    Amd64,
    /// ARM64.
    Arm64,
}

impl Processor {
    /// The one that this program is built for, if it is one of these.
    pub const OWN: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::Amd64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Self::Arm64)
    } else {
        None
    };

    /// The one that a decoration of an INF names, such as `ntamd64.10.0...19041`.
    pub(crate) fn of_decoration(decoration: &str) -> Option<Self> {
        let first = decoration.split('.').next()?;
        match first {
            "ntamd64" => Some(Self::Amd64),
            "ntarm64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "x64",
            Self::Arm64 => "ARM64",
        }
    }
}

/// What Windows says of itself. `None`: it does not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Major version, minor version, build.
    pub version: (u32, u32, u32),
    /// The processor of the machine, which need not be that of this program.
    pub processor: Option<Processor>,
    /// This program runs elevated.
    pub elevated: bool,
    /// Drivers with a test signature are loaded.
    pub test_signing: Option<bool>,
    /// Secure Boot is on: test signing cannot be turned on.
    pub secure_boot: Option<bool>,
    /// The hypervisor checks the code of the kernel (HVCI, memory integrity).
    pub hvci: Option<bool>,
}

/// A store of certificates of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Store {
    /// Whom the machine believes.
    Root,
    /// Whose drivers are installed without a question.
    TrustedPublisher,
}

impl Store {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Root, Self::TrustedPublisher];

    /// Its name in Windows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Root => "Root",
            Self::TrustedPublisher => "TrustedPublisher",
        }
    }
}

/// A package in the driver store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Staged {
    /// Its name there: `oem7.inf`.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Its INF in the store.
    pub path: PathBuf,
    /// What stands for the bytes of its files ([`crate::Package::fingerprint`]).
    #[serde(skip)]
    pub fingerprint: u64,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// What Windows calls it: `ROOT\NET\0000`.
    pub instance: String,
    /// Its driver runs it.
    pub started: bool,
    /// Why it does not run: a problem code of Windows; zero if there is none.
    pub problem: u32,
    /// The package that its driver is from, if it has one: `oem7.inf`.
    pub inf: Option<String>,
    /// Its network interface: a GUID in braces.
    pub interface: Option<String>,
    /// RDMA is not turned off on it (`*NetworkDirect`).
    pub rdma: Option<bool>,
}

/// What a change leaves to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Restart {
    /// Nothing.
    NotNeeded,
    /// A restart of the machine.
    Needed,
}

/// A network interface with an IPv4 stack on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Its GUID, in braces.
    pub guid: String,
    /// Its locally unique identifier.
    pub luid: u64,
    /// Its index.
    pub index: u32,
    /// Its alias: the name that people see.
    pub alias: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// It is connected.
    pub up: bool,
    /// Its IPv4 addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// How often it asks whether somebody else has a new address.
    pub dad_transmits: u32,
}

/// What has become of a new address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressState {
    /// It can be used.
    Preferred,
    /// Somebody else has it.
    Duplicate,
    /// That is not known yet.
    Tentative,
}

/// What the firewall does with frames of a network that Windows does not know: its profile is Public.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Firewall {
    /// It looks at them.
    On,
    /// It lets them pass.
    Off,
}

/// A machine with Windows. All times are limits.
///
/// Every call can fail, and a call that changes something can have changed it and fail all the same.
#[expect(clippy::missing_errors_doc, reason = "what Windows answers: so it is for all of them")]
pub trait Machine {
    /// What Windows says of itself.
    fn facts(&self) -> Result<Facts>;

    /// Returns true if the certificate is in the store.
    fn trusts(&self, store: Store, certificate: &Certificate) -> Result<bool>;
    /// Puts the certificate into the store.
    fn trust(&self, store: Store, certificate: &Certificate) -> Result<()>;
    /// Takes the certificate out of the store.
    fn distrust(&self, store: Store, certificate: &Certificate) -> Result<()>;

    /// The packages of the driver in the driver store.
    fn staged(&self, driver: &Driver) -> Result<Vec<Staged>>;
    /// Puts the package of an INF into the driver store.
    fn stage(&self, inf: &Path) -> Result<()>;
    /// Takes a package out of the driver store.
    fn unstage(&self, package: &Staged) -> Result<()>;
    /// Copies a package of the driver store to a folder, from which it can be staged again, and returns its INF there.
    fn keep(&self, driver: &Driver, package: &Staged) -> Result<PathBuf>;
    /// Deletes the folder of what was kept.
    fn drop_kept(&self, inf: &Path) -> Result<()>;

    /// The devices of the driver, those with problems too, in the order of their names.
    fn devices(&self, driver: &Driver) -> Result<Vec<Device>>;
    /// Makes a device, without a driver, and returns its name.
    fn create_device(&self, driver: &Driver) -> Result<String>;
    /// Removes a device.
    fn remove_device(&self, instance: &str) -> Result<Restart>;
    /// Gives all devices of the driver that of this package, even if theirs is newer, and starts them.
    fn bind(&self, driver: &Driver, package: &Staged) -> Result<Restart>;
    /// Waits until the device runs or has a problem, and returns what it is then; `None` if it is not listed.
    fn await_device(&self, driver: &Driver, instance: &str, within: Duration) -> Result<Option<Device>>;
    /// Returns true if the image of the driver is in the kernel.
    fn loaded(&self, driver: &Driver) -> Result<bool>;

    /// The interface, if it has an IPv4 stack.
    fn interface(&self, guid: &str) -> Result<Option<Interface>>;
    /// Waits until the interface has an IPv4 stack; `None` if it has none in time.
    fn await_interface(&self, guid: &str, within: Duration) -> Result<Option<Interface>>;
    /// The GUID of the interface with this alias, in any case of letters.
    fn named(&self, alias: &str) -> Result<Option<String>>;
    /// Gives the interface an alias.
    fn rename(&self, guid: &str, alias: &str) -> Result<()>;
    /// Sets how often the interface asks whether somebody else has a new address.
    fn set_dad_transmits(&self, luid: u64, count: u32) -> Result<()>;
    /// The alias of the interface that has the address.
    fn holder(&self, address: Ipv4Addr) -> Result<Option<String>>;
    /// Gives the interface an address, in a network of so many bits, until it goes or the machine restarts.
    fn add_address(&self, luid: u64, address: Ipv4Addr, bits: u8) -> Result<()>;
    /// Takes an address away.
    fn remove_address(&self, luid: u64, address: Ipv4Addr) -> Result<()>;
    /// Waits until it is known whether the address can be used.
    fn await_address(&self, luid: u64, address: Ipv4Addr, within: Duration) -> Result<AddressState>;
    /// The hardware address that the interface has for a neighbour for good.
    fn neighbour(&self, luid: u64, address: Ipv4Addr) -> Result<Option<[u8; 6]>>;
    /// Sets it.
    fn set_neighbour(&self, luid: u64, address: Ipv4Addr, mac: [u8; 6]) -> Result<()>;
    /// Forgets it.
    fn remove_neighbour(&self, luid: u64, address: Ipv4Addr) -> Result<()>;
    /// Returns true if there is a route to this one address through the interface.
    fn routed(&self, luid: u64, address: Ipv4Addr) -> Result<bool>;
    /// Adds it, with metric 0, until the interface goes or the machine restarts.
    fn add_route(&self, luid: u64, address: Ipv4Addr) -> Result<()>;
    /// Takes it away.
    fn remove_route(&self, luid: u64, address: Ipv4Addr) -> Result<()>;
    /// What the firewall does with frames of a network that Windows does not know.
    fn firewall(&self) -> Result<Firewall>;
}
