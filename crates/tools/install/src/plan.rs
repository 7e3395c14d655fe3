//! What is to be done, made from what the machine says of itself.

use std::{fmt, net::Ipv4Addr};

use serde::{Serialize, Serializer};

use crate::{
    Certificate, Choice, Driver, Facts, Fault, Machine, NIC, Package, Processor, Staged, Store, describe::Why,
};

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put a certificate into a store.
    Trust {
        /// The store.
        store: Store,
        /// The certificate.
        certificate: Certificate,
    },
    /// Take it out again.
    Distrust {
        /// The store.
        store: Store,
        /// The certificate.
        certificate: Certificate,
    },
    /// Remove a device.
    RemoveDevice {
        /// Its driver.
        driver: &'static Driver,
        /// Its name.
        instance: String,
    },
    /// See whether the driver has left the kernel.
    Unload {
        /// The driver.
        driver: &'static Driver,
        /// Another build of it is to take its place.
        replaced: bool,
    },
    /// Take a package out of the driver store, and keep a copy for the undo.
    Unstage {
        /// Its driver.
        driver: &'static Driver,
        /// The package.
        package: Staged,
    },
    /// Put a package into the driver store.
    Stage {
        /// The package.
        package: Package,
    },
    /// Make a device.
    CreateDevice {
        /// Its driver.
        driver: &'static Driver,
    },
    /// Give all devices of the driver the driver of the package.
    Bind {
        /// The package.
        package: Package,
    },
    /// Wait until all devices of the driver run with the driver of the package.
    Await {
        /// The package.
        package: Package,
    },
    /// Take a package that has been replaced out of the driver store. The last steps of a plan, when nothing can fail any more that
    /// would need it.
    Forget {
        /// Its driver.
        driver: &'static Driver,
        /// The package.
        package: Staged,
    },
    /// Wait until both ends of the cable are network interfaces with an IPv4 stack.
    AwaitEnds {
        /// Their names, as they are to be.
        names: [String; 2],
    },
    /// Name an end.
    Rename {
        /// The end.
        end: usize,
        /// Its name.
        name: String,
    },
    /// Have an end not ask who else has its address: nobody else is on the cable.
    QuietDad {
        /// The end.
        end: usize,
    },
    /// Give an end its address.
    Address {
        /// The end.
        end: usize,
        /// The address.
        address: Ipv4Addr,
        /// The bits of its network.
        bits: u8,
    },
    /// Tell an end the hardware address of the other one.
    Neighbour {
        /// The end.
        end: usize,
        /// The other end's address.
        address: Ipv4Addr,
    },
    /// Route the other end's address through this one.
    Route {
        /// The end.
        end: usize,
        /// The other end's address.
        address: Ipv4Addr,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trust { store, certificate } => {
                write!(f, "trust {} (LocalMachine\\{})", certificate.path.display(), store.name())
            }
            Self::Distrust { store, certificate } => {
                write!(f, "no longer trust {} (LocalMachine\\{})", certificate.path.display(), store.name())
            }
            Self::RemoveDevice { driver, instance } => write!(f, "remove the {} {instance}", driver.device),
            Self::Unload { driver, .. } => write!(f, "see that {} has left the kernel", driver.name),
            Self::Unstage { package, driver } | Self::Forget { package, driver } => {
                write!(f, "delete the package {} ({} {})", package.name, driver.name, package.version)
            }
            Self::Stage { package } => {
                write!(f, "add the package {} ({})", package.inf.display(), package.version)
            }
            Self::CreateDevice { driver } => write!(f, "make a {} ({})", driver.device, driver.hardware_id),
            Self::Bind { package } => {
                write!(f, "have every {} use {} {}", package.driver.device, package.driver.name, package.version)
            }
            Self::Await { package } => write!(f, "wait until every {} runs", package.driver.device),
            Self::AwaitEnds { .. } => write!(f, "wait until both ends of the cable are network interfaces with IPv4"),
            Self::Rename { end, name } => write!(f, "name end {} `{name}`", end + 1),
            Self::QuietDad { end } => write!(f, "have end {} not look for duplicates of its address", end + 1),
            Self::Address { end, address, bits } => write!(f, "give end {} the address {address}/{bits}", end + 1),
            Self::Neighbour { end, address } => {
                write!(f, "tell end {} the hardware address of {address}", end + 1)
            }
            Self::Route { end, address } => write!(f, "route {address}/32 through end {}", end + 1),
        }
    }
}

impl Serialize for Step {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Why it cannot be carried out, each with what to do about it. With one of these it is not even begun.
    pub refusals: Vec<Why>,
    /// What one should know.
    pub notices: Vec<String>,
    /// The steps, in their order.
    pub steps: Vec<Step>,
}

/// What is to be installed.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The packages, and how many devices each is to have.
    pub packages: Vec<(Choice, Package)>,
    /// The certificate that they are signed with; `None` if the machine trusts them already.
    pub certificate: Option<Certificate>,
    /// A package may be older than the one that is there.
    pub downgrade: bool,
}

/// The first build of Windows with what the drivers call: Windows 10 version 2004.
pub const FIRST_BUILD: u32 = 19041;

/// Why drivers cannot be installed here, whichever they are.
fn about_the_machine(facts: &Facts, test_signed: bool, plan: &mut Plan) {
    let (.., build) = facts.version;
    if build < FIRST_BUILD {
        plan.refusals.push(Why::new(
            format!("Windows build {build}"),
            "use Windows 10 version 2004, Windows Server 2022 or later",
        ));
    }
    if let (Some(machine), Some(own)) = (facts.processor, Processor::OWN)
        && machine != own
    {
        plan.refusals.push(Why::new(
            format!("this is the ndkctl for {}, and the machine is {}", own.name(), machine.name()),
            format!("use the ndkctl for {}", machine.name()),
        ));
    }
    elevation(facts, plan);
    if test_signed {
        match (facts.test_signing, facts.secure_boot) {
            (Some(true), _) => {}
            (Some(false), Some(true)) => plan.refusals.push(Why::new(
                "test signing is off, and Secure Boot is on",
                "turn Secure Boot off in the machine's firmware, then `bcdedit /set testsigning on`, then restart",
            )),
            (Some(false), _) => plan.refusals.push(Why::new(
                "test signing is off: Windows does not load drivers with a test signature",
                "`bcdedit /set testsigning on`, then restart (tools\\windows\\Prepare-Vm.ps1 does it)",
            )),
            (None, _) => plan.notices.push("Windows does not say whether test signing is on".to_owned()),
        }
    }
}

/// Whoever changes something runs elevated.
pub fn elevation(facts: &Facts, plan: &mut Plan) {
    if !facts.elevated {
        plan.refusals.push(Why::new("this program does not run elevated", "run it from an elevated prompt"));
    }
}

/// What installs the packages: little, or nothing, if they are there already.
///
/// # Errors
///
/// The machine could not be looked at.
pub fn install(machine: &impl Machine, wanted: &Wanted) -> Result<Plan, Fault> {
    let mut plan = Plan::default();
    let facts = machine.facts()?;
    about_the_machine(&facts, wanted.certificate.is_some(), &mut plan);
    match &wanted.certificate {
        Some(certificate) => {
            for store in Store::ALL {
                if !machine.trusts(store, certificate)? {
                    plan.steps.push(Step::Trust { store, certificate: certificate.clone() });
                }
            }
        }
        None => plan.notices.push("no certificate is given: the machine has to trust the signature already".to_owned()),
    }
    let mut forget = Vec::new();
    for (choice, package) in &wanted.packages {
        if let Some(machine) = facts.processor
            && !package.processors.contains(&machine)
        {
            plan.refusals.push(Why::new(
                format!("{} is not built for {}", package.inf.display(), machine.name()),
                "take the package of this machine's processor",
            ));
        }
        one(machine, (*choice, package), wanted.downgrade, &mut plan, &mut forget)?;
    }
    plan.steps.extend(forget);
    Ok(plan)
}

/// What installs one package.
fn one(
    machine: &impl Machine,
    (choice, package): (Choice, &Package),
    downgrade: bool,
    plan: &mut Plan,
    forget: &mut Vec<Step>,
) -> Result<(), Fault> {
    let driver = package.driver;
    let (staged, devices) = (machine.staged(driver)?, machine.devices(driver)?);
    if let Some(newer) = staged.iter().find(|one| one.version > package.version)
        && !downgrade
    {
        plan.refusals.push(Why::new(
            format!("{} of {} is newer than {}", newer.version, driver.name, package.version),
            "--downgrade installs the older one all the same",
        ));
    }
    let same = staged.iter().find(|one| one.fingerprint == package.fingerprint);
    // The store goes by the INF: what has the same version would stay, with its files.
    let rebuilt: Vec<_> =
        staged.iter().filter(|one| same.is_none() && one.version == package.version).cloned().collect();
    let there = if rebuilt.is_empty() {
        devices.len()
    } else {
        plan.notices.push(format!(
            "{} {} is there with other files: its devices are removed and made again",
            driver.name, package.version
        ));
        for device in devices.iter().rev() {
            plan.steps.push(Step::RemoveDevice { driver, instance: device.instance.clone() });
        }
        plan.steps.push(Step::Unload { driver, replaced: true });
        0
    };
    plan.steps.extend(rebuilt.iter().cloned().map(|package| Step::Unstage { driver, package }));
    if same.is_none() {
        plan.steps.push(Step::Stage { package: package.clone() });
    }
    let count = choice.devices.max(devices.len());
    plan.steps.extend((there..count).map(|_| Step::CreateDevice { driver }));
    let right = |name: &str| devices.iter().all(|device| device.started && device.inf.as_deref() == Some(name));
    if there < count || !same.is_some_and(|same| right(&same.name)) {
        if driver == &NIC && !devices.is_empty() {
            plan.notices.push("a NIC whose driver changes loses its addresses: `ndkctl nic pair` sets them".to_owned());
        }
        plan.steps.push(Step::Bind { package: package.clone() });
        plan.steps.push(Step::Await { package: package.clone() });
    }
    let others = staged.into_iter().filter(|one| one.fingerprint != package.fingerprint && !rebuilt.contains(one));
    forget.extend(others.map(|package| Step::Forget { driver, package }));
    Ok(())
}

/// What takes the drivers away, with their devices and packages, and with `certificate` the trust in who signed them.
///
/// # Errors
///
/// The machine could not be looked at.
pub fn uninstall(
    machine: &impl Machine,
    drivers: &[&'static Driver],
    certificate: Option<&Certificate>,
) -> Result<Plan, Fault> {
    let mut plan = Plan::default();
    elevation(&machine.facts()?, &mut plan);
    // Who opens others first.
    for driver in Driver::ALL.into_iter().rev().filter(|driver| drivers.contains(driver)) {
        let (devices, staged) = (machine.devices(driver)?, machine.staged(driver)?);
        for device in devices.iter().rev() {
            plan.steps.push(Step::RemoveDevice { driver, instance: device.instance.clone() });
        }
        if !devices.is_empty() || machine.loaded(driver)? {
            plan.steps.push(Step::Unload { driver, replaced: false });
        }
        plan.steps.extend(staged.into_iter().map(|package| Step::Unstage { driver, package }));
    }
    for store in Store::ALL {
        if let Some(certificate) = certificate
            && machine.trusts(store, certificate)?
        {
            plan.steps.push(Step::Distrust { store, certificate: certificate.clone() });
        }
    }
    Ok(plan)
}
