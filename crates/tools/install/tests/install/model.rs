//! A model of Windows: as unkind as Windows is where it matters for an installer.
//!
//! - The driver store goes by the INF: a package of a version that is there already is not added, whatever its files.
//! - A package that devices use cannot be deleted.
//! - A package is added only if both stores have its certificate.
//! - A NIC is an interface once it runs, and has IPv4 a while later. What the IP Helper has set goes when it restarts.
//! - Only who is elevated changes anything.
//!
//! Any call can fail, before it has done anything or after ([`Failing`]).

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use install::{
    AddressState, Certificate, Device, Driver, Facts, Fault, Firewall, Interface, Left, Machine, NIC, Package,
    Processor, Restart, Result, Staged, Store, Version,
};

/// Which calls fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failing {
    /// None.
    #[default]
    Never,
    /// The one with this number, before it has done anything.
    Before(usize),
    /// The one with this number, after it has done what it does.
    After(usize),
    /// All from this one on.
    From(usize),
    /// This one, and from then on all that change something.
    ChangesFrom(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    driver: &'static Driver,
    version: Version,
    fingerprint: u64,
}

/// A package in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    name: String,
    media: Media,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub driver: &'static Driver,
    pub instance: String,
    /// What stands for the files of its driver.
    pub files: Option<u64>,
    pub started: bool,
    pub problem: u32,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Net {
    luid: u64,
    guid: String,
    alias: String,
    dad: u32,
    addresses: BTreeSet<Ipv4Addr>,
    neighbours: BTreeMap<Ipv4Addr, [u8; 6]>,
    routes: BTreeSet<Ipv4Addr>,
}

/// All that an installer can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    certificates: BTreeSet<(Store, Vec<u8>)>,
    store: Vec<Stored>,
    devices: Vec<Made>,
    nets: Vec<Net>,
    loaded: BTreeSet<&'static str>,
}

/// How this Windows behaves.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a habit of its own")]
pub struct Manners {
    pub facts: Facts,
    /// A new device is listed only by who waits for it.
    pub late: bool,
    /// Drivers with these files fail to start: problem 10.
    pub broken: BTreeSet<u64>,
    /// A device that runs gets a new driver at the restart only.
    pub restart: bool,
    /// A driver stays in the kernel when its last device goes.
    pub held: bool,
    /// A new NIC has no IPv4 until somebody has waited for it.
    pub slow_stack: bool,
    /// It never has.
    pub no_stack: bool,
    /// Somebody else on the cable has these addresses.
    pub duplicates: BTreeSet<Ipv4Addr>,
    /// Windows leaves devices the driver that they have.
    pub stubborn: bool,
}

impl Default for Manners {
    fn default() -> Self {
        let facts = Facts {
            version: (10, 0, 20348),
            processor: Processor::OWN,
            elevated: true,
            test_signing: Some(true),
            secure_boot: Some(false),
            hvci: Some(false),
        };
        Self {
            facts,
            late: false,
            broken: BTreeSet::new(),
            restart: false,
            held: false,
            slow_stack: false,
            no_stack: false,
            duplicates: BTreeSet::new(),
            stubborn: false,
        }
    }
}

/// The model.
#[derive(Debug, Default)]
pub struct Model {
    pub state: RefCell<State>,
    pub manners: Manners,
    pub failing: Cell<Failing>,
    /// The calls so far.
    pub calls: RefCell<Vec<&'static str>>,
    /// Packages as files.
    pub media: RefCell<BTreeMap<PathBuf, Media>>,
    /// Devices that are not listed yet, interfaces that have no IPv4 yet.
    pub unlisted: RefCell<BTreeSet<String>>,
    pub stackless: RefCell<BTreeSet<String>>,
}

/// The certificate of the tests.
pub fn certificate() -> Certificate {
    Certificate { der: Arc::from([0x30, 0x82, 1, 2].as_slice()), path: PathBuf::from("test.cer") }
}

/// A package: the version is `0.minor.0.0`.
pub fn package(driver: &'static Driver, minor: u16, fingerprint: u64) -> Package {
    Package {
        driver,
        inf: PathBuf::from(format!("media/{}/{minor}/{fingerprint}/{}", driver.name, driver.inf())),
        version: Version { date: (2026, 1, 1), number: [0, minor, 0, 0] },
        processors: Processor::OWN.into_iter().collect(),
        fingerprint,
    }
}

impl Model {
    pub fn new(manners: Manners) -> Self {
        Self { manners, ..Self::default() }
    }

    /// A model in this state with its manners and its files, whose calls are counted anew.
    pub fn again(&self, failing: Failing) -> Self {
        Self {
            state: self.state.clone(),
            manners: self.manners.clone(),
            failing: Cell::new(failing),
            calls: RefCell::default(),
            media: self.media.clone(),
            unlisted: self.unlisted.clone(),
            stackless: self.stackless.clone(),
        }
    }

    /// Puts the files of a package where the plan will look for them.
    pub fn bring(&self, package: &Package) {
        let media = Media { driver: package.driver, version: package.version, fingerprint: package.fingerprint };
        self.media.borrow_mut().insert(package.inf.clone(), media);
    }

    /// A network interface of somebody else.
    pub fn add_foreign(&self, alias: &str, address: Ipv4Addr) {
        let net = Net {
            luid: 1,
            guid: format!("{{{alias}}}"),
            alias: alias.to_owned(),
            dad: 3,
            addresses: BTreeSet::from([address]),
            ..Net::default()
        };
        self.state.borrow_mut().nets.push(net);
    }

    /// Gives a device a problem, or none.
    pub fn set_problem(&self, instance: &str, problem: u32) {
        let mut state = self.state.borrow_mut();
        let device = state.devices.iter_mut().find(|device| device.instance == instance).expect("a device");
        (device.problem, device.started) = (problem, problem == 0);
    }

    pub fn device_list(&self) -> Vec<Made> {
        self.state.borrow().devices.clone()
    }

    pub fn versions(&self, driver: &Driver) -> Vec<u16> {
        let state = self.state.borrow();
        state.store.iter().filter(|one| one.media.driver == driver).map(|one| one.media.version.number[1]).collect()
    }

    pub fn aliases(&self) -> Vec<String> {
        self.state.borrow().nets.iter().map(|net| net.alias.clone()).collect()
    }

    pub fn trusted(&self) -> usize {
        self.state.borrow().certificates.len()
    }

    /// Begins a call: false if it fails after it has done what it does.
    fn call(&self, name: &'static str, changes: bool) -> Result<bool> {
        let number = self.calls.borrow().len();
        self.calls.borrow_mut().push(name);
        let fault = || Fault::new(name, 31, "a device attached to the system is not functioning");
        match self.failing.get() {
            Failing::Before(which) if which == number => return Err(fault()),
            Failing::From(first) if number >= first => return Err(fault()),
            Failing::ChangesFrom(first) if number == first || (number > first && changes) => return Err(fault()),
            _ => {}
        }
        if changes && !self.manners.facts.elevated {
            return Err(Fault::new(name, 5, "access is denied"));
        }
        Ok(self.failing.get() != Failing::After(number))
    }

    fn read(&self, name: &'static str) -> Result<()> {
        Self::end(name, self.call(name, false)?, ())
    }

    fn end<T>(name: &'static str, good: bool, value: T) -> Result<T> {
        if good { Ok(value) } else { Err(Fault::new(name, 1460, "the time-out period expired")) }
    }

    fn name_of(state: &State, files: Option<u64>) -> Option<String> {
        let found = state.store.iter().find(|one| Some(one.media.fingerprint) == files);
        files.map(|_| found.map_or_else(|| "oem-gone.inf".to_owned(), |one| one.name.clone()))
    }

    fn guid(instance: &str) -> String {
        format!("{{{instance}}}")
    }

    fn view(state: &State, made: &Made) -> Device {
        let nic = made.driver == &NIC;
        let guid = Self::guid(&made.instance);
        Device {
            instance: made.instance.clone(),
            started: made.started,
            problem: made.problem,
            inf: Self::name_of(state, made.files),
            interface: (nic && state.nets.iter().any(|net| net.guid == guid)).then_some(guid),
            rdma: nic.then_some(true),
        }
    }

    fn net(&self, name: &'static str, luid: u64, change: impl FnOnce(&mut Net)) -> Result<()> {
        let good = self.call(name, true)?;
        let mut state = self.state.borrow_mut();
        let net = state.nets.iter_mut().find(|net| net.luid == luid);
        let net = net.ok_or_else(|| Fault::new(name, 1168, "element not found"))?;
        change(net);
        drop(state);
        Self::end(name, good, ())
    }

    fn as_interface(state: &State, place: usize) -> Interface {
        let net = &state.nets[place];
        Interface {
            guid: net.guid.clone(),
            luid: net.luid,
            index: u32::try_from(place).expect("few interfaces") + 10,
            alias: net.alias.clone(),
            mac: [2, 0, 0, 0, 0, u8::try_from(net.luid).expect("few interfaces")],
            up: true,
            addresses: net.addresses.iter().copied().collect(),
            dad_transmits: net.dad,
        }
    }

    /// Starts a device with the driver of these files, anew.
    fn start(&self, state: &mut State, instance: &str, files: u64) {
        let broken = self.manners.broken.contains(&files);
        let device = state.devices.iter_mut().find(|device| device.instance == instance).expect("a device");
        device.files = Some(files);
        (device.started, device.problem) = (!broken, if broken { 10 } else { 0 });
        let driver = device.driver;
        if broken {
            return;
        }
        state.loaded.insert(driver.name);
        if driver == &NIC {
            let guid = Self::guid(instance);
            if let Some(net) = state.nets.iter_mut().find(|net| net.guid == guid) {
                (net.addresses, net.neighbours, net.routes) = Default::default();
            } else {
                let luid = state.nets.iter().map(|net| net.luid).max().unwrap_or(1) + 1;
                state.nets.push(Net {
                    luid,
                    guid: guid.clone(),
                    alias: format!("Ethernet {luid}"),
                    dad: 3,
                    ..Net::default()
                });
                if self.manners.slow_stack || self.manners.no_stack {
                    self.stackless.borrow_mut().insert(guid);
                }
            }
        }
    }
}

impl Machine for Model {
    fn facts(&self) -> Result<Facts> {
        self.read("facts")?;
        Ok(self.manners.facts.clone())
    }

    fn trusts(&self, store: Store, certificate: &Certificate) -> Result<bool> {
        self.read("trusts")?;
        Ok(self.state.borrow().certificates.contains(&(store, certificate.der.to_vec())))
    }

    fn trust(&self, store: Store, certificate: &Certificate) -> Result<()> {
        let good = self.call("trust", true)?;
        self.state.borrow_mut().certificates.insert((store, certificate.der.to_vec()));
        Self::end("trust", good, ())
    }

    fn distrust(&self, store: Store, certificate: &Certificate) -> Result<()> {
        let good = self.call("distrust", true)?;
        self.state.borrow_mut().certificates.remove(&(store, certificate.der.to_vec()));
        Self::end("distrust", good, ())
    }

    fn staged(&self, driver: &Driver) -> Result<Vec<Staged>> {
        self.read("staged")?;
        let state = self.state.borrow();
        let of_driver = state.store.iter().filter(|one| one.media.driver == driver);
        let staged = of_driver.map(|one| Staged {
            name: one.name.clone(),
            version: one.media.version,
            path: PathBuf::from(format!("store/{}", one.name)),
            fingerprint: one.media.fingerprint,
        });
        Ok(staged.collect())
    }

    fn stage(&self, inf: &Path) -> Result<()> {
        let good = self.call("stage", true)?;
        let media = self.media.borrow().get(inf).cloned();
        let media = media.ok_or_else(|| Fault::new("stage", 2, "the system cannot find the file"))?;
        let mut state = self.state.borrow_mut();
        if Store::ALL.iter().any(|store| !state.certificates.iter().any(|(one, _)| one == store)) {
            return Err(Fault::new("stage", 0x800B_0109, "a root certificate is not trusted"));
        }
        let there =
            state.store.iter().any(|one| one.media.driver == media.driver && one.media.version == media.version);
        if !there {
            let names: BTreeSet<_> = state.store.iter().map(|one| one.name.clone()).collect();
            let free = (0..1000).map(|number| format!("oem{number}.inf")).find(|name| !names.contains(name));
            state.store.push(Stored { name: free.expect("a name"), media });
        }
        drop(state);
        Self::end("stage", good, ())
    }

    fn unstage(&self, package: &Staged) -> Result<()> {
        let good = self.call("unstage", true)?;
        let mut state = self.state.borrow_mut();
        if state.devices.iter().any(|device| device.files == Some(package.fingerprint)) {
            return Err(Fault::new("unstage", 0xE000_023D, "the package is in use by devices"));
        }
        state.store.retain(|one| one.name != package.name);
        drop(state);
        Self::end("unstage", good, ())
    }

    fn keep(&self, driver: &Driver, package: &Staged) -> Result<PathBuf> {
        let good = self.call("keep", false)?;
        let place = PathBuf::from(format!("kept/{}/{}", package.fingerprint, driver.inf()));
        let mut media = self.media.borrow_mut();
        let state = self.state.borrow();
        let stored = state.store.iter().find(|one| one.name == package.name);
        let stored = stored.ok_or_else(|| Fault::new("keep", 2, "the system cannot find the file"))?;
        media.insert(place.clone(), stored.media.clone());
        Self::end("keep", good, place)
    }

    fn drop_kept(&self, inf: &Path) -> Result<()> {
        let good = self.call("drop_kept", false)?;
        self.media.borrow_mut().remove(inf);
        Self::end("drop_kept", good, ())
    }

    fn devices(&self, driver: &Driver) -> Result<Vec<Device>> {
        self.read("devices")?;
        let (state, unlisted) = (self.state.borrow(), self.unlisted.borrow());
        let of_driver =
            state.devices.iter().filter(|device| device.driver == driver && !unlisted.contains(&device.instance));
        let mut all: Vec<_> = of_driver.map(|device| Self::view(&state, device)).collect();
        all.sort_by(|one, other| one.instance.cmp(&other.instance));
        Ok(all)
    }

    fn create_device(&self, driver: &Driver) -> Result<String> {
        let good = self.call("create_device", true)?;
        let driver = Driver::ALL.into_iter().find(|one| *one == driver).expect("a driver");
        let mut state = self.state.borrow_mut();
        let class = driver.class.to_uppercase();
        let free = (0..1000).map(|number| format!(r"ROOT\{class}\{number:04}"));
        let taken = |instance: &String| state.devices.iter().any(|device| device.instance == *instance);
        let instance = free.into_iter().find(|instance| !taken(instance)).expect("a name");
        state.devices.push(Made { driver, instance: instance.clone(), files: None, started: false, problem: 28 });
        drop(state);
        // One that is made although the call fails is listed: nobody has its name.
        if self.manners.late && good {
            self.unlisted.borrow_mut().insert(instance.clone());
        }
        Self::end("create_device", good, instance)
    }

    fn remove_device(&self, instance: &str) -> Result<Restart> {
        let good = self.call("remove_device", true)?;
        let mut state = self.state.borrow_mut();
        let driver = state.devices.iter().find(|device| device.instance == instance).map(|device| device.driver);
        state.devices.retain(|device| device.instance != instance);
        let guid = Self::guid(instance);
        state.nets.retain(|net| net.guid != guid);
        if let Some(driver) = driver
            && !self.manners.held
            && !state.devices.iter().any(|device| device.driver == driver && device.started)
        {
            state.loaded.remove(driver.name);
        }
        drop(state);
        self.unlisted.borrow_mut().remove(instance);
        Self::end("remove_device", good, if self.manners.held { Restart::Needed } else { Restart::NotNeeded })
    }

    fn bind(&self, driver: &Driver, package: &Staged) -> Result<Restart> {
        let good = self.call("bind", true)?;
        let mut state = self.state.borrow_mut();
        let stored = state.store.iter().find(|one| one.name == package.name);
        let files = stored.map(|one| one.media.fingerprint).ok_or_else(|| Fault::new("bind", 2, "no such file"))?;
        let mut restart = Restart::NotNeeded;
        let all: Vec<_> =
            state.devices.iter().filter(|one| one.driver == driver).map(|one| one.instance.clone()).collect();
        if all.is_empty() {
            return Err(Fault::new("bind", 0xE000_020B, "no such device"));
        }
        for (number, instance) in all.into_iter().enumerate() {
            // One that fails in the middle has changed the first device.
            if !good && number > 0 {
                break;
            }
            let device = state.devices.iter_mut().find(|device| device.instance == instance).expect("a device");
            if self.manners.stubborn && device.files.is_some() {
                continue;
            }
            if self.manners.restart && device.started && device.files != Some(files) {
                (device.problem, device.started) = (14, false);
                restart = Restart::Needed;
                continue;
            }
            self.start(&mut state, &instance, files);
        }
        drop(state);
        Self::end("bind", good, restart)
    }

    fn await_device(&self, driver: &Driver, instance: &str, _: Duration) -> Result<Option<Device>> {
        self.read("await_device")?;
        self.unlisted.borrow_mut().remove(instance);
        let state = self.state.borrow();
        let found = state.devices.iter().find(|device| device.driver == driver && device.instance == instance);
        Ok(found.map(|device| Self::view(&state, device)))
    }

    fn loaded(&self, driver: &Driver) -> Result<bool> {
        self.read("loaded")?;
        Ok(self.state.borrow().loaded.contains(driver.name))
    }

    fn interface(&self, guid: &str) -> Result<Option<Interface>> {
        self.read("interface")?;
        let state = self.state.borrow();
        let place = state.nets.iter().position(|net| net.guid == guid && !self.stackless.borrow().contains(guid));
        Ok(place.map(|place| Self::as_interface(&state, place)))
    }

    fn await_interface(&self, guid: &str, _: Duration) -> Result<Option<Interface>> {
        self.read("await_interface")?;
        if !self.manners.no_stack {
            self.stackless.borrow_mut().remove(guid);
        }
        let state = self.state.borrow();
        let place = state.nets.iter().position(|net| net.guid == guid && !self.stackless.borrow().contains(guid));
        Ok(place.map(|place| Self::as_interface(&state, place)))
    }

    fn named(&self, alias: &str) -> Result<Option<String>> {
        self.read("named")?;
        let state = self.state.borrow();
        Ok(state.nets.iter().find(|net| net.alias.eq_ignore_ascii_case(alias)).map(|net| net.guid.clone()))
    }

    fn rename(&self, guid: &str, alias: &str) -> Result<()> {
        let good = self.call("rename", true)?;
        let mut state = self.state.borrow_mut();
        if state.nets.iter().any(|net| net.guid != guid && net.alias.eq_ignore_ascii_case(alias)) {
            return Err(Fault::new("rename", 52, "a duplicate name exists on the network"));
        }
        let net = state.nets.iter_mut().find(|net| net.guid == guid);
        alias.clone_into(&mut net.ok_or_else(|| Fault::new("rename", 1168, "element not found"))?.alias);
        drop(state);
        Self::end("rename", good, ())
    }

    fn set_dad_transmits(&self, luid: u64, count: u32) -> Result<()> {
        self.net("set_dad_transmits", luid, |net| net.dad = count)
    }

    fn holder(&self, address: Ipv4Addr) -> Result<Option<String>> {
        self.read("holder")?;
        let state = self.state.borrow();
        Ok(state.nets.iter().find(|net| net.addresses.contains(&address)).map(|net| net.alias.clone()))
    }

    fn add_address(&self, luid: u64, address: Ipv4Addr, _: u8) -> Result<()> {
        if self.state.borrow().nets.iter().any(|net| net.addresses.contains(&address)) {
            return Err(Fault::new("add_address", 5010, "the object already exists"));
        }
        self.net("add_address", luid, |net| {
            let _changed = net.addresses.insert(address);
        })
    }

    fn remove_address(&self, luid: u64, address: Ipv4Addr) -> Result<()> {
        self.net("remove_address", luid, |net| {
            let _changed = net.addresses.remove(&address);
        })
    }

    fn await_address(&self, _: u64, address: Ipv4Addr, _: Duration) -> Result<AddressState> {
        self.read("await_address")?;
        let duplicate = self.manners.duplicates.contains(&address);
        Ok(if duplicate { AddressState::Duplicate } else { AddressState::Preferred })
    }

    fn neighbour(&self, luid: u64, address: Ipv4Addr) -> Result<Option<[u8; 6]>> {
        self.read("neighbour")?;
        Ok(self
            .state
            .borrow()
            .nets
            .iter()
            .find(|net| net.luid == luid)
            .and_then(|net| net.neighbours.get(&address).copied()))
    }

    fn set_neighbour(&self, luid: u64, address: Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        self.net("set_neighbour", luid, |net| {
            let _changed = net.neighbours.insert(address, mac);
        })
    }

    fn remove_neighbour(&self, luid: u64, address: Ipv4Addr) -> Result<()> {
        self.net("remove_neighbour", luid, |net| {
            let _changed = net.neighbours.remove(&address);
        })
    }

    fn routed(&self, luid: u64, address: Ipv4Addr) -> Result<bool> {
        self.read("routed")?;
        Ok(self
            .state
            .borrow()
            .nets
            .iter()
            .find(|net| net.luid == luid)
            .is_some_and(|net| net.routes.contains(&address)))
    }

    fn add_route(&self, luid: u64, address: Ipv4Addr) -> Result<()> {
        self.net("add_route", luid, |net| {
            let _changed = net.routes.insert(address);
        })
    }

    fn remove_route(&self, luid: u64, address: Ipv4Addr) -> Result<()> {
        self.net("remove_route", luid, |net| {
            let _changed = net.routes.remove(&address);
        })
    }

    fn firewall(&self) -> Result<Firewall> {
        self.read("firewall")?;
        Ok(Firewall::On)
    }
}

/// What of the machine differs from what it was, as a report has to say it.
pub fn difference(was: &State, now: &State) -> BTreeSet<Left> {
    let mut left = BTreeSet::new();
    for store in Store::ALL {
        let has = |state: &State| state.certificates.iter().any(|(one, _)| *one == store);
        match (has(was), has(now)) {
            (false, true) => drop(left.insert(Left::Trusted(store))),
            (true, false) => drop(left.insert(Left::NotTrusted(store))),
            _ => {}
        }
    }
    let files = |state: &State| state.store.iter().map(|one| one.media.fingerprint).collect::<BTreeSet<_>>();
    for one in now.store.iter().filter(|one| !files(was).contains(&one.media.fingerprint)) {
        left.insert(Left::Package(one.name.clone()));
    }
    for one in was.store.iter().filter(|one| !files(now).contains(&one.media.fingerprint)) {
        let kept = PathBuf::from(format!("kept/{}/{}", one.media.fingerprint, one.media.driver.inf()));
        left.insert(Left::NoPackage(one.name.clone(), Some(kept)));
    }
    let device = |state: &State, instance: &str| state.devices.iter().find(|one| one.instance == instance).cloned();
    for one in &now.devices {
        match device(was, &one.instance) {
            None => drop(left.insert(Left::Device(one.instance.clone()))),
            Some(before) if before.files != one.files || (before.started && !one.started) => {
                left.insert(Left::Bound(one.instance.clone()));
            }
            Some(_) => {}
        }
    }
    for one in was.devices.iter().filter(|one| device(now, &one.instance).is_none()) {
        left.insert(Left::NoDevice(one.instance.clone()));
    }
    for net in &was.nets {
        if !now.nets.iter().any(|one| one.guid == net.guid) {
            left.insert(Left::Interface(net.alias.clone()));
        }
    }
    for net in &now.nets {
        // What a new one is before anybody has set anything.
        let fresh = Net { alias: format!("Ethernet {}", net.luid), dad: 3, ..Net::default() };
        let before = was.nets.iter().find(|one| one.guid == net.guid).unwrap_or(&fresh);
        if !before.addresses.is_subset(&net.addresses) {
            left.insert(Left::Interface(before.alias.clone()));
            continue;
        }
        if net.alias != before.alias {
            left.insert(Left::Name(before.alias.clone()));
        }
        if net.dad != before.dad {
            left.insert(Left::Dad(net.luid));
        }
        left.extend(net.addresses.difference(&before.addresses).copied().map(Left::Address));
        left.extend(net.routes.difference(&before.routes).copied().map(Left::Route));
        let new = net.neighbours.iter().filter(|(address, mac)| before.neighbours.get(*address) != Some(*mac));
        left.extend(new.map(|(address, _)| Left::Neighbour(*address)));
    }
    left
}
