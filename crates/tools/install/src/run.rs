//! Carries a plan out, and undoes it if a step fails.

use std::{
    fmt,
    net::Ipv4Addr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use serde::Serialize;

use crate::{
    AddressState, Device, Driver, Fault, Interface, Machine, NIC, Package, Plan, Restart, Staged, Step, Version,
    describe::problem,
    network::{self, same_name},
    undo::{Before, Left, OfDriver},
};

/// How to carry a plan out.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Undo nothing if a step fails: what is there can be looked at.
    pub keep: bool,
    /// How long to wait for a device, for an interface and for an address.
    pub within: Duration,
    /// Once this is set, no further step is begun, and what was done is undone.
    pub interrupted: Option<&'a AtomicBool>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { keep: false, within: Duration::from_mins(1), interrupted: None }
    }
}

/// What a plan that was carried out has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Done {
    /// The steps.
    pub steps: Vec<String>,
    /// What one should know.
    pub notices: Vec<String>,
    /// A restart is needed before all of it is in force.
    pub restart: bool,
    /// What was to go and is still there.
    pub left: Vec<Left>,
}

/// A plan that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// The step that failed.
    pub step: String,
    /// Why.
    pub reason: String,
    /// What to do about it, if that is known.
    pub remedy: Option<String>,
    /// A restart is needed before everything is as it was.
    pub restart: bool,
    /// What is not as it was. Nothing: the machine is as before.
    pub left: Vec<Left>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.reason)?;
        if let Some(remedy) = &self.remedy {
            write!(f, ": {remedy}")?;
        }
        Ok(())
    }
}

/// Why a step has not done what it should.
#[derive(Debug)]
enum Stop {
    Fault(Fault),
    /// A device has a problem.
    Problem(String, u32),
    /// A device does not run in time, and has no problem either.
    NotStarted(String),
    /// A device that was made is not listed in time.
    NotListed(String),
    /// Windows has given a device another driver.
    OtherDriver(String, Option<String>),
    /// A package is not in the driver store.
    NotStaged(&'static Driver, Version),
    /// There are fewer virtual NICs than ends.
    Ends(usize),
    /// An interface has no IPv4 stack in time.
    NotBound(String),
    /// Another interface has the name.
    NameTaken(String),
    /// Another interface of this machine has the address.
    AddressTaken(Ipv4Addr, String),
    /// Somebody else has the address, or it is not known in time whether.
    Address(Ipv4Addr, AddressState),
    /// Somebody wants it to end.
    Interrupted,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Stop {
    /// What is wrong, and what to do about it.
    fn words(&self) -> (String, Option<String>) {
        let some = |text: &str| Some(text.to_owned());
        match self {
            Self::Fault(fault) => (fault.to_string(), None),
            Self::Problem(instance, code) => {
                let problem = problem(*code);
                (format!("{instance} has problem {code}: {}", problem.text), some(problem.remedy))
            }
            Self::NotStarted(instance) => (
                format!("{instance} has no problem, but does not run in time"),
                some("--keep leaves it for a debugger"),
            ),
            Self::NotListed(instance) => {
                (format!("{instance} was made, but Windows does not list it in time"), some("run it again"))
            }
            Self::OtherDriver(instance, inf) => {
                let inf = inf.as_deref().unwrap_or("none");
                (
                    format!("Windows has left {instance} its driver ({inf})"),
                    some("`ndkctl driver uninstall`, then again"),
                )
            }
            Self::NotStaged(driver, version) => {
                (format!("{} {version} is not in the driver store", driver.name), some("run it again"))
            }
            Self::Ends(count) => {
                (format!("there are {count} virtual NICs instead of two"), some("--package installs the driver"))
            }
            Self::NotBound(alias) => (
                format!("the interface {alias} has no IPv4 in time"),
                some("see that `Internet Protocol Version 4` is enabled on it (ncpa.cpl)"),
            ),
            Self::NameTaken(name) => {
                (format!("another interface is called `{name}`"), some("--names chooses other names"))
            }
            Self::AddressTaken(address, alias) => {
                (format!("{address} is an address of {alias}"), some("--addresses chooses others"))
            }
            Self::Address(address, AddressState::Duplicate) => {
                (format!("somebody else has the address {address}"), some("--addresses chooses others"))
            }
            Self::Interrupted => ("interrupted".to_owned(), None),
            Self::Address(address, _) => (format!("{address} cannot be used in time"), some("run it again")),
        }
    }
}

/// A plan that is being carried out.
struct Runner<'a, M> {
    machine: &'a M,
    options: Options<'a>,
    /// What parts of the machine were, in the order in which they were touched.
    journal: Vec<Before>,
    done: Done,
    ends: [Interface; 2],
    /// What is left to do needs a restart first.
    unfinished: bool,
}

impl Plan {
    /// Carries the plan out, and calls `show` with each step before it is done. If one fails, everything is made as it was.
    ///
    /// # Errors
    ///
    /// The step that failed, why, and what is not as it was. A plan with a refusal is not begun.
    pub fn run(
        &self,
        machine: &impl Machine,
        options: Options<'_>,
        show: &mut dyn FnMut(&str),
    ) -> Result<Done, Failed> {
        if let Some(refusal) = self.refusals.first() {
            let (reason, remedy) = (refusal.what.clone(), Some(refusal.remedy.clone()));
            return Err(Failed { step: "looking first".to_owned(), reason, remedy, restart: false, left: Vec::new() });
        }
        let done = Done { notices: self.notices.clone(), ..Done::default() };
        let mut runner =
            Runner { machine, options, journal: Vec::new(), done, ends: Default::default(), unfinished: false };
        for step in &self.steps {
            let text = step.to_string();
            show(&text);
            let interrupted = options.interrupted.is_some_and(|interrupted| interrupted.load(Relaxed));
            let applied = if interrupted { Err(Stop::Interrupted) } else { runner.apply(step) };
            if let Err(stop) = applied {
                return Err(runner.failed(text, &stop, show));
            }
            if runner.unfinished && !matches!(step, Step::Forget { .. }) {
                let again = "the rest can only be done after a restart: run it again then";
                runner.done.notices.push(again.to_owned());
                break;
            }
            runner.done.steps.push(text);
        }
        Ok(runner.over())
    }
}

impl<M: Machine> Runner<'_, M> {
    /// What was of the driver, from the first time that it is touched.
    fn of_driver(&mut self, driver: &'static Driver) -> Result<&mut OfDriver, Fault> {
        let is = |before: &Before| matches!(before, Before::Driver(before) if before.driver == driver);
        let found = self.journal.iter().position(is);
        if found.is_none() {
            self.journal.push(Before::Driver(OfDriver::look(self.machine, driver)?));
        }
        let place = found.unwrap_or(self.journal.len() - 1);
        match &mut self.journal[place] {
            Before::Driver(before) => Ok(before),
            _ => unreachable!("the place is that of a driver"),
        }
    }

    fn note(&mut self, restart: Restart) {
        self.done.restart |= restart == Restart::Needed;
    }

    fn apply(&mut self, step: &Step) -> Result<(), Stop> {
        let machine = self.machine;
        match step {
            Step::Trust { store, certificate } => {
                let was = machine.trusts(*store, certificate)?;
                self.journal.push(Before::Certificate { store: *store, certificate: certificate.clone(), was });
                if !was {
                    machine.trust(*store, certificate)?;
                }
            }
            Step::Distrust { store, certificate } => {
                let was = machine.trusts(*store, certificate)?;
                self.journal.push(Before::Certificate { store: *store, certificate: certificate.clone(), was });
                if was {
                    machine.distrust(*store, certificate)?;
                }
            }
            Step::RemoveDevice { driver, instance } => {
                self.of_driver(driver)?;
                let restart = machine.remove_device(instance)?;
                self.note(restart);
            }
            Step::Unload { driver, replaced } => match machine.loaded(driver)? {
                true if *replaced => {
                    self.done.restart = true;
                    let name = driver.name;
                    self.done.notices.push(format!("the {name} in the kernel is the old one until a restart"));
                }
                true => self.done.left.push(Left::Loaded(driver.name.to_owned())),
                false => {}
            },
            Step::Unstage { driver, package } => {
                self.of_driver(driver)?;
                let kept = machine.keep(driver, package)?;
                self.of_driver(driver)?.kept.push((package.fingerprint, kept));
                machine.unstage(package)?;
            }
            Step::Forget { driver: _, package } => {
                // All is done: an old package harms nobody.
                if let Err(fault) = machine.unstage(package) {
                    self.done.notices.push(format!("the replaced package could not be deleted: {fault}"));
                    self.done.left.push(Left::Package(package.name.clone()));
                }
            }
            Step::Stage { package } => {
                self.of_driver(package.driver)?;
                machine.stage(&package.inf)?;
            }
            Step::CreateDevice { driver } => {
                self.of_driver(driver)?;
                let instance = machine.create_device(driver)?;
                self.of_driver(driver)?.made.push(instance);
            }
            Step::Bind { package } => {
                self.of_driver(package.driver)?;
                let staged = self.staged(package)?;
                let restart = machine.bind(package.driver, &staged)?;
                self.note(restart);
            }
            Step::Await { package } => self.await_devices(package)?,
            Step::AwaitEnds { names } => self.await_ends(names)?,
            Step::Rename { .. }
            | Step::QuietDad { .. }
            | Step::Address { .. }
            | Step::Neighbour { .. }
            | Step::Route { .. } => self.apply_to_end(step)?,
        }
        Ok(())
    }

    /// The package in the driver store.
    fn staged(&self, package: &Package) -> Result<Staged, Stop> {
        let staged = self.machine.staged(package.driver)?;
        let found = staged.into_iter().find(|one| one.fingerprint == package.fingerprint);
        found.ok_or(Stop::NotStaged(package.driver, package.version))
    }

    /// Waits for the devices of a driver: those that are listed, and those that were made.
    fn await_devices(&mut self, package: &Package) -> Result<(), Stop> {
        let driver = package.driver;
        let name = self.staged(package)?.name;
        let mut instances: Vec<_> = self.machine.devices(driver)?.into_iter().map(|device| device.instance).collect();
        instances.extend(self.of_driver(driver)?.made.clone());
        instances.sort();
        instances.dedup();
        for instance in instances {
            let found = self.machine.await_device(driver, &instance, self.options.within)?;
            let device = found.ok_or_else(|| Stop::NotListed(instance.clone()))?;
            self.judge(&device, &name)?;
        }
        Ok(())
    }

    /// Is the device as it should be?
    fn judge(&mut self, device: &Device, inf: &str) -> Result<(), Stop> {
        let instance = &device.instance;
        let problem = problem(device.problem);
        if !device.started && (self.done.restart || problem.restart) {
            self.done.restart = true;
            self.done.notices.push(format!("{instance} runs after a restart only"));
            return Ok(());
        }
        match device.problem {
            0 if !device.started => return Err(Stop::NotStarted(instance.clone())),
            // Somebody wants it so.
            22 => self.done.notices.push(format!("{instance} is disabled")),
            0 => {}
            code => return Err(Stop::Problem(instance.clone(), code)),
        }
        if device.inf.as_deref() == Some(inf) {
            return Ok(());
        }
        if self.done.restart {
            self.done.notices.push(format!("{instance} still has its old driver until a restart"));
            return Ok(());
        }
        Err(Stop::OtherDriver(instance.clone(), device.inf.clone()))
    }

    fn await_ends(&mut self, names: &[String; 2]) -> Result<(), Stop> {
        let devices = self.machine.devices(&NIC)?;
        let chosen = network::ends(self.machine, &devices, names)?;
        for (end, device) in self.ends.iter_mut().zip(&chosen) {
            let Some(device) = device else { continue };
            let guid = device.interface.as_deref().unwrap_or_default();
            match self.machine.await_interface(guid, self.options.within)? {
                Some(interface) => *end = interface,
                None if self.done.restart => self.unfinished = true,
                None => return Err(Stop::NotBound(device.instance.clone())),
            }
        }
        match chosen.iter().flatten().count() {
            2 => Ok(()),
            _ if self.done.restart => {
                self.unfinished = true;
                Ok(())
            }
            count => Err(Stop::Ends(count)),
        }
    }

    /// The steps about an end of the cable. Each looks first whether it is so already.
    fn apply_to_end(&mut self, step: &Step) -> Result<(), Stop> {
        let machine = self.machine;
        match step {
            Step::Rename { end, name } => {
                let Interface { guid, alias, .. } = self.ends[*end].clone();
                if same_name(&alias, name) {
                    return Ok(());
                }
                if machine.named(name)?.is_some_and(|holder| holder != guid) {
                    return Err(Stop::NameTaken(name.clone()));
                }
                self.journal.push(Before::Name { guid: guid.clone(), was: alias });
                machine.rename(&guid, name)?;
                self.ends[*end].alias.clone_from(name);
            }
            Step::QuietDad { end } => {
                let Interface { guid, luid, dad_transmits: was, .. } = self.ends[*end].clone();
                if was != 0 {
                    self.journal.push(Before::Dad { guid, luid, was });
                    machine.set_dad_transmits(luid, 0)?;
                    self.ends[*end].dad_transmits = 0;
                }
            }
            Step::Address { end, address, bits } => {
                let Interface { guid, luid, addresses, .. } = self.ends[*end].clone();
                if !addresses.contains(address) {
                    if let Some(holder) = machine.holder(*address)? {
                        return Err(Stop::AddressTaken(*address, holder));
                    }
                    self.journal.push(Before::Address { luid, guid, address: *address });
                    machine.add_address(luid, *address, *bits)?;
                }
                match machine.await_address(luid, *address, self.options.within)? {
                    AddressState::Preferred => {}
                    state => return Err(Stop::Address(*address, state)),
                }
            }
            Step::Neighbour { end, address } => {
                let (luid, mac) = (self.ends[*end].luid, self.ends[1 - *end].mac);
                let was = machine.neighbour(luid, *address)?;
                if was != Some(mac) {
                    self.journal.push(Before::Neighbour { luid, address: *address, was });
                    machine.set_neighbour(luid, *address, mac)?;
                }
            }
            Step::Route { end, address } => {
                let luid = self.ends[*end].luid;
                if !machine.routed(luid, *address)? {
                    self.journal.push(Before::Route { luid, address: *address });
                    machine.add_route(luid, *address)?;
                }
            }
            _ => unreachable!("only steps about an end come here"),
        }
        Ok(())
    }

    /// The end of a plan that was carried out.
    fn over(self) -> Done {
        for before in &self.journal {
            if let Before::Driver(before) = before {
                before.drop_kept(self.machine, &[]);
            }
        }
        self.done
    }

    /// The end of one that failed.
    fn failed(self, step: String, stop: &Stop, show: &mut dyn FnMut(&str)) -> Failed {
        let (reason, remedy) = stop.words();
        let mut restart = self.done.restart;
        if !self.options.keep && !self.journal.is_empty() {
            show("undo what was done");
            for before in self.journal.iter().rev() {
                restart |= before.restore(self.machine) == Restart::Needed;
            }
        }
        let mut left = Vec::new();
        // What interfaces of devices that were touched have lost is said by the devices' part: they may be others by now.
        let touched =
            self.journal.iter().any(|before| matches!(before, Before::Driver(before) if before.has_interfaces()));
        for before in self.journal.iter().rev().filter(|before| !touched || !before.is_of_interface()) {
            let found = before.left(self.machine);
            if let Before::Driver(before) = before {
                before.drop_kept(self.machine, &found);
            }
            left.extend(found);
        }
        Failed { step, reason, remedy, restart, left }
    }
}
