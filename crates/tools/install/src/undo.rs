//! What a part of the machine was before a plan touched it, and how it is made so again.

use std::{collections::BTreeSet, fmt, net::Ipv4Addr, path::PathBuf, time::Duration};

use serde::{Serialize, Serializer};

use crate::{Certificate, Device, Driver, Interface, Machine, Restart, Staged, Store, machine::Result};

/// What is not as it was, after everything was tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// A certificate is still trusted.
    Trusted(Store),
    /// A certificate is no longer trusted.
    NotTrusted(Store),
    /// A device is there.
    Device(String),
    /// A device is gone.
    NoDevice(String),
    /// A package is in the driver store.
    Package(String),
    /// A package is gone; the copy of it.
    NoPackage(String, Option<PathBuf>),
    /// A device has the driver of another package.
    Bound(String),
    /// The driver is still in the kernel.
    Loaded(String),
    /// An interface has another name.
    Name(String),
    /// An interface does not look for duplicates of its addresses.
    Dad(u64),
    /// An interface has an address.
    Address(Ipv4Addr),
    /// An interface has a neighbour for good.
    Neighbour(Ipv4Addr),
    /// There is a route.
    Route(Ipv4Addr),
    /// An interface has lost its name or its addresses.
    Interface(String),
    /// It could not be looked at: what it is about, and why not.
    Unknown(String),
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trusted(store) => write!(f, "the certificate is in LocalMachine\\{}", store.name()),
            Self::NotTrusted(store) => write!(f, "the certificate is no longer in LocalMachine\\{}", store.name()),
            Self::Device(instance) => write!(f, "the device {instance} is there: `ndkctl driver uninstall` removes it"),
            Self::NoDevice(instance) => write!(f, "the device {instance} is gone: `ndkctl driver install` makes one"),
            Self::Package(name) => write!(f, "the package {name} is there: `pnputil /delete-driver {name}` deletes it"),
            Self::NoPackage(name, Some(kept)) => write!(f, "the package {name} is gone; a copy is {}", kept.display()),
            Self::NoPackage(name, None) => write!(f, "the package {name} is gone"),
            Self::Bound(instance) => write!(f, "the device {instance} has the driver of another package than before"),
            Self::Loaded(name) => {
                write!(f, "{name} is still in the kernel: somebody has it open, or a restart is due")
            }
            Self::Name(name) => write!(f, "an interface is no longer called `{name}`"),
            Self::Dad(_) => write!(f, "an interface does not look for duplicates of its address any more"),
            Self::Address(address) => write!(f, "the address {address} is set"),
            Self::Neighbour(address) => write!(f, "the neighbour {address} is set"),
            Self::Route(address) => write!(f, "the route to {address}/32 is set"),
            Self::Interface(alias) => {
                write!(f, "the interface `{alias}` is not as it was (name, addresses): `ndkctl nic pair` sets it up")
            }
            Self::Unknown(what) => write!(f, "unknown: {what}"),
        }
    }
}

impl Serialize for Left {
    fn serialize<S: Serializer>(&self, serializer: S) -> core::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a driver's part of the machine was.
#[derive(Debug)]
pub struct OfDriver {
    pub driver: &'static Driver,
    packages: Vec<Staged>,
    devices: Vec<Device>,
    /// The network interfaces of the devices, by the names of these.
    interfaces: Vec<(String, Interface)>,
    /// The devices that the plan has made, listed or not.
    pub made: Vec<String>,
    /// Copies of packages that the plan took out of the store, by what stands for their files.
    pub kept: Vec<(u64, PathBuf)>,
}

impl OfDriver {
    pub fn look(machine: &impl Machine, driver: &'static Driver) -> Result<Self> {
        let (packages, devices) = (machine.staged(driver)?, machine.devices(driver)?);
        let mut interfaces = Vec::new();
        for device in &devices {
            if let Some(interface) = of_device(machine, device)? {
                interfaces.push((device.instance.clone(), interface));
            }
        }
        Ok(Self { driver, packages, devices, interfaces, made: Vec::new(), kept: Vec::new() })
    }

    /// Returns true if its devices were network interfaces.
    pub const fn has_interfaces(&self) -> bool {
        !self.interfaces.is_empty()
    }

    fn had(&self, instance: &str) -> bool {
        self.devices.iter().any(|device| device.instance == instance)
    }

    /// What stands for the files of the package of this name.
    fn files_of(packages: &[Staged], name: Option<&str>) -> Option<u64> {
        packages.iter().find(|one| Some(one.name.as_str()) == name).map(|one| one.fingerprint)
    }

    /// Makes it so again, as far as Windows lets it. Each part is tried, whatever became of the others: what is missing then is seen
    /// by looking.
    fn restore(&self, machine: &impl Machine) -> Restart {
        let mut restart = Restart::NotNeeded;
        let mut note = |result: Result<Restart>| {
            if result == Ok(Restart::Needed) {
                restart = Restart::Needed;
            }
        };
        // Nothing is made that could be there already: what cannot be looked at, twice, is left and named.
        let look = || machine.devices(self.driver).or_else(|_| machine.devices(self.driver));
        let Ok(now) = look() else { return restart };
        let without_driver = |was: &Device| was.inf.is_none() && bound(&now, &was.instance);
        let unwanted = now.iter().map(|device| &device.instance).filter(|instance| !self.had(instance));
        let unwanted = unwanted
            .chain(&self.made)
            .chain(self.devices.iter().filter(|was| without_driver(was)).map(|was| &was.instance));
        // One may be listed and made.
        let unwanted: BTreeSet<_> = unwanted.collect();
        for instance in unwanted {
            note(machine.remove_device(instance));
        }
        // If the store cannot be read, staging what is there already does nothing.
        let staged = machine.staged(self.driver).unwrap_or_default();
        for package in &self.packages {
            let kept = self.kept.iter().find(|(files, _)| *files == package.fingerprint);
            if let Some((_, inf)) = kept
                && !staged.iter().any(|one| one.fingerprint == package.fingerprint)
            {
                let _staged = machine.stage(inf);
            }
        }
        if let Ok(now) = look() {
            for was in &self.devices {
                if !now.iter().any(|device| device.instance == was.instance) {
                    let _created = machine.create_device(self.driver);
                }
            }
        }
        if let (Ok(staged), Ok(now)) = (machine.staged(self.driver), machine.devices(self.driver)) {
            if let Some(files) = self.devices.iter().find_map(|was| self.unlike(was, &now, &staged))
                && let Some(package) = staged.iter().find(|one| one.fingerprint == files)
            {
                note(machine.bind(self.driver, package));
            }
            for package in staged {
                if !self.packages.iter().any(|was| was.fingerprint == package.fingerprint) {
                    let _unstaged = machine.unstage(&package);
                }
            }
        }
        restart
    }

    /// What stands for the files of the driver that a device had, if it has another one now.
    fn unlike(&self, was: &Device, now: &[Device], staged: &[Staged]) -> Option<u64> {
        let files = Self::files_of(&self.packages, was.inf.as_deref())?;
        let device = now.iter().find(|device| device.instance == was.instance)?;
        let same = Self::files_of(staged, device.inf.as_deref()) == Some(files) && (device.started || !was.started);
        (!same).then_some(files)
    }

    /// What is not as it was.
    fn left(&self, machine: &impl Machine) -> Vec<Left> {
        let name = self.driver.name;
        let unknown = |what: &str, fault| vec![Left::Unknown(format!("the {what} of {name} ({fault})"))];
        let (staged, now) = match (machine.staged(self.driver), machine.devices(self.driver)) {
            (Ok(staged), Ok(devices)) => (staged, devices),
            (Err(fault), _) => return unknown("packages", fault),
            (_, Err(fault)) => return unknown("devices", fault),
        };
        let mut left: BTreeSet<_> = now
            .iter()
            .filter(|device| !self.had(&device.instance))
            .map(|device| Left::Device(device.instance.clone()))
            .collect();
        // One that was made may not be listed yet.
        let unlisted = |instance: &&String| !now.iter().any(|device| device.instance == **instance);
        for instance in self.made.iter().filter(unlisted).filter(|instance| !self.had(instance)) {
            match machine.await_device(self.driver, instance, Duration::ZERO) {
                Ok(None) => {}
                Ok(Some(_)) => ignore(left.insert(Left::Device(instance.clone()))),
                Err(fault) => ignore(left.insert(Left::Unknown(format!("the device {instance} ({fault})")))),
            }
        }
        for was in &self.devices {
            if !now.iter().any(|device| device.instance == was.instance) {
                left.insert(Left::NoDevice(was.instance.clone()));
            } else if self.unlike(was, &now, &staged).is_some() || (was.inf.is_none() && bound(&now, &was.instance)) {
                left.insert(Left::Bound(was.instance.clone()));
            }
        }
        for (instance, was) in &self.interfaces {
            let device = now.iter().find(|device| device.instance == *instance);
            match device.map_or(Ok(None), |device| of_device(machine, device)) {
                Ok(Some(now))
                    if now
                        == Interface {
                            guid: now.guid.clone(),
                            luid: now.luid,
                            index: now.index,
                            mac: now.mac,
                            ..was.clone()
                        } => {}
                Ok(_) => ignore(left.insert(Left::Interface(was.alias.clone()))),
                Err(fault) => ignore(left.insert(Left::Unknown(format!("the interface `{}` ({fault})", was.alias)))),
            }
        }
        for package in &staged {
            if !self.packages.iter().any(|was| was.fingerprint == package.fingerprint) {
                left.insert(Left::Package(package.name.clone()));
            }
        }
        for was in &self.packages {
            if !staged.iter().any(|one| one.fingerprint == was.fingerprint) {
                let kept = self.kept.iter().find(|(files, _)| *files == was.fingerprint);
                left.insert(Left::NoPackage(was.name.clone(), kept.map(|(_, inf)| inf.clone())));
            }
        }
        left.into_iter().collect()
    }

    /// Deletes the copies, but for those that somebody may still want.
    pub fn drop_kept(&self, machine: &impl Machine, left: &[Left]) {
        for (_, inf) in &self.kept {
            let wanted = left.iter().any(|one| matches!(one, Left::NoPackage(_, Some(kept)) if kept == inf));
            if !wanted && !left.iter().any(|one| matches!(one, Left::Unknown(_))) {
                // A copy in the folder for temporary files harms nobody.
                let _dropped = machine.drop_kept(inf);
            }
        }
    }
}

/// That something was left already does not matter.
const fn ignore(_: bool) {}

/// The network interface of a device.
fn of_device(machine: &impl Machine, device: &Device) -> Result<Option<Interface>> {
    device.interface.as_deref().map_or(Ok(None), |guid| machine.interface(guid))
}

/// Returns true if the device has a driver.
fn bound(now: &[Device], instance: &str) -> bool {
    now.iter().any(|device| device.instance == instance && device.inf.is_some())
}

/// What a part of the machine was.
#[derive(Debug)]
pub enum Before {
    Certificate { store: Store, certificate: Certificate, was: bool },
    Driver(OfDriver),
    Name { guid: String, was: String },
    Dad { guid: String, luid: u64, was: u32 },
    Address { luid: u64, guid: String, address: Ipv4Addr },
    Neighbour { luid: u64, address: Ipv4Addr, was: Option<[u8; 6]> },
    Route { luid: u64, address: Ipv4Addr },
}

impl Before {
    /// Makes it so again, as far as Windows lets it.
    pub fn restore(&self, machine: &impl Machine) -> Restart {
        // What has failed is seen by looking (`left`).
        match self {
            Self::Certificate { store, certificate, was } => {
                // If the store cannot be read, what the plan was about to do is undone all the same.
                if machine.trusts(*store, certificate).as_ref() != Ok(was) {
                    let _done =
                        if *was { machine.trust(*store, certificate) } else { machine.distrust(*store, certificate) };
                }
            }
            Self::Driver(before) => return before.restore(machine),
            Self::Name { guid, was } => {
                let _done = machine.rename(guid, was);
            }
            Self::Dad { luid, was, .. } => {
                let _done = machine.set_dad_transmits(*luid, *was);
            }
            Self::Address { luid, address, .. } => {
                let _done = machine.remove_address(*luid, *address);
            }
            Self::Neighbour { luid, address, was } => {
                let _done = was.map_or_else(
                    || machine.remove_neighbour(*luid, *address),
                    |mac| machine.set_neighbour(*luid, *address, mac),
                );
            }
            Self::Route { luid, address } => {
                let _done = machine.remove_route(*luid, *address);
            }
        }
        Restart::NotNeeded
    }

    /// What is not as it was.
    pub fn left(&self, machine: &impl Machine) -> Vec<Left> {
        let interface = |guid: &str| machine.interface(guid);
        let answer = match self {
            Self::Certificate { store, certificate, was } => machine.trusts(*store, certificate).map(|trusts| {
                let left = if *was { Left::NotTrusted(*store) } else { Left::Trusted(*store) };
                (trusts != *was).then_some(left)
            }),
            Self::Driver(before) => return before.left(machine),
            // An interface that is gone has taken all of it along.
            Self::Name { guid, was } => {
                interface(guid).map(|found| found.filter(|found| found.alias != *was).map(|_| Left::Name(was.clone())))
            }
            Self::Dad { guid, luid, was } => {
                interface(guid).map(|found| found.filter(|found| found.dad_transmits != *was).map(|_| Left::Dad(*luid)))
            }
            Self::Address { guid, address, .. } => interface(guid)
                .map(|found| found.filter(|found| found.addresses.contains(address)).map(|_| Left::Address(*address))),
            Self::Neighbour { luid, address, was } => {
                machine.neighbour(*luid, *address).map(|now| (now != *was).then_some(Left::Neighbour(*address)))
            }
            Self::Route { luid, address } => {
                machine.routed(*luid, *address).map(|routed| routed.then_some(Left::Route(*address)))
            }
        };
        match answer {
            Ok(left) => left.into_iter().collect(),
            Err(fault) => vec![Left::Unknown(format!("{} ({fault})", self.what()))],
        }
    }

    /// Returns true if it is about a network interface.
    pub const fn is_of_interface(&self) -> bool {
        !matches!(self, Self::Certificate { .. } | Self::Driver(_))
    }

    /// What it is about.
    fn what(&self) -> String {
        match self {
            Self::Certificate { store, .. } => format!("the certificate in LocalMachine\\{}", store.name()),
            Self::Driver(before) => format!("the driver {}", before.driver.name),
            Self::Name { was, .. } => format!("the name of the interface that was called `{was}`"),
            Self::Dad { luid, .. } => format!("how the interface {luid:#x} looks for duplicates of its address"),
            Self::Address { address, .. } => format!("the address {address}"),
            Self::Neighbour { address, .. } => format!("the neighbour {address}"),
            Self::Route { address, .. } => format!("the route to {address}/32"),
        }
    }
}
