//! What a script says.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use network::Impairment;
use ntstatus::NtStatus;
use serde::{Deserialize, Serialize};

use crate::{
    bytes::{Pattern, Template},
    disk::{self, DiskEntry},
    socket::SocketAction,
};

/// A script: what there is, and what is done with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Settings of the kernel.
    pub kernel: Settings,
    /// The drivers.
    pub images: Vec<Image>,
    /// Their devices.
    pub devices: Vec<Device>,
    /// The folder whose files drivers find on `C:`, relative to the script.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// Those files, once they are read.
    #[serde(default)]
    pub files: Vec<DiskEntry>,
    /// What is done, in order. At the end everything is closed, removed and unloaded.
    pub steps: Vec<Step>,
    /// The machines, if there is more than one: then all of the above is empty, and each has its own.
    pub machines: Vec<Node>,
    /// What is between them.
    pub network: NetworkSettings,
}

/// One of several machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name in the script.
    pub name: String,
    /// The addresses of its interface in the network between the machines, with the lengths of their prefixes. No driver has it.
    pub addresses: Vec<Prefix>,
    /// What is done there. It has no machines of its own.
    pub script: Script,
}

/// What the network between machines does to datagrams. Chances are in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSettings {
    /// How long each datagram is under way at least, in microseconds.
    pub delay: u64,
    /// Datagrams that are lost.
    pub loss: u32,
    /// Datagrams that come twice.
    pub double: u32,
    /// Datagrams that come later than some that were sent after them.
    pub reorder: u32,
    /// Datagrams that are changed on their way.
    pub corrupt: u32,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self { delay: 50, loss: 0, double: 0, reorder: 0, corrupt: 0 }
    }
}

impl NetworkSettings {
    /// What comes late is this many delays later at most.
    const LATENESS: u32 = 8;

    /// The same for the network that carries them.
    #[must_use]
    pub fn impairment(&self) -> Impairment {
        let delay = Duration::from_micros(self.delay);
        Impairment {
            lost: self.loss,
            doubled: self.double,
            changed: self.corrupt,
            late: self.reorder,
            lateness: delay.saturating_mul(Self::LATENESS),
            delay,
        }
    }
}

/// Settings of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How many processors there are.
    pub processors: u32,
    /// How often others get in between where they could, in percent.
    pub preemption: u8,
    /// Processors and system threads are threads of this machine and run at the same time. The seed decides nothing then but what
    /// fails.
    pub threads: bool,
    /// Datagrams of Winsock Kernel travel over the host's loopback, and not in memory. Only with `threads`: no seed knows what comes.
    pub host_datagrams: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { processors: 4, preemption: 20, threads: false, host_datagrams: false }
    }
}

/// A driver. Two of them may be of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its name in the script.
    pub name: String,
    /// The file, relative to the script. What is linked into the program has a name and no file.
    pub file: PathBuf,
    /// The name of its service key.
    pub service: String,
    /// The values in the `Parameters` of that key.
    pub registry: Vec<(String, RegistryValue)>,
    /// What a program sends to the driver once its first device is started, in order.
    pub ioctls: Vec<Ioctl>,
}

/// A control code that a program sends to a driver as soon as its first device is started, which has to succeed. Before that a driver need not
/// have its control device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ioctl {
    /// The driver's device: `\DosDevices\Name`.
    pub link: String,
    /// The control code.
    pub code: u32,
    /// The input.
    pub input: Vec<u8>,
    /// Where in the input the seed of the run stands, in eight bytes.
    pub seed_at: Option<usize>,
}

impl Ioctl {
    /// The input in the run with that seed.
    #[must_use]
    pub fn input_for(&self, seed: u64) -> Vec<u8> {
        let mut input = self.input.clone();
        if let Some(place) = self.seed_at.and_then(|at| input.get_mut(at..)?.first_chunk_mut()) {
            *place = seed.to_le_bytes();
        }
        input
    }
}

impl Image {
    /// What findings call it: its file, and its name in the script if that is another.
    #[must_use]
    pub fn shown(&self) -> String {
        let file = self.file.file_name().map_or_else(|| self.name.clone(), |file| file.to_string_lossy().into_owned());
        if service_of(&self.file) == self.name { file } else { format!("{file}:{}", self.name) }
    }
}

/// A value of the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegistryValue {
    /// `REG_DWORD`.
    Number(u32),
    /// `REG_QWORD`.
    Long(u64),
    /// `REG_SZ`.
    Text(String),
    /// `REG_MULTI_SZ`.
    Texts(Vec<String>),
    /// `REG_BINARY`.
    Binary(Vec<u8>),
}

/// How a device comes to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceKind {
    /// By plug and play: `EvtDriverDeviceAdd` or `AddDevice`.
    PnP,
    /// By NDIS: `MiniportInitializeEx`.
    Nic,
    /// By whichever of the two its driver has asked for when it was loaded; not at all if it has asked for neither.
    Registered,
}

/// A device of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name in the script.
    pub name: String,
    /// The name of its driver's image.
    pub image: String,
    /// The names of the images whose drivers have their devices above it, the lowest first: upper filters.
    pub filters: Vec<String>,
    /// How it comes to its driver.
    pub kind: DeviceKind,
    /// Keywords of a NIC.
    pub keywords: Vec<(String, String)>,
    /// Addresses of a NIC with the lengths of their prefixes.
    pub addresses: Vec<Prefix>,
    /// The interface of a NIC.
    pub interface: Interface,
    /// What its bus gives it.
    #[serde(default)]
    pub resources: Resources,
}

impl Device {
    /// Returns true if that image has a device in its stack.
    #[must_use]
    pub fn is_of(&self, image: &str) -> bool {
        self.image == image || self.filters.iter().any(|filter| filter == image)
    }
}

/// What a bus gives a device of plug and play.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Ranges of physical memory, in bytes.
    pub memory: Vec<u32>,
    /// How many messages are its interrupts.
    pub interrupts: u32,
}

/// An address, and how many bits of it are its prefix.
pub type Prefix = (IpAddr, u8);

/// The network interface of a NIC, as far as a script says what it is like: consumers have these compiled in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its index; otherwise the next one that is free.
    pub index: Option<u32>,
    /// The `Value` of its `NET_LUID`; otherwise one that the index makes.
    pub luid: Option<u64>,
    /// Its name; otherwise `Ethernet` and the index.
    pub alias: Option<String>,
    /// Its hardware address. It is the keyword `NetworkAddress` too, which a driver may leave alone.
    pub mac: Option<[u8; 6]>,
    /// What leaves through it, besides the prefixes of its addresses.
    pub routes: Vec<Prefix>,
}

impl Interface {
    /// What only one interface of a machine can have, and the device that has the same.
    pub(crate) fn shared_with<'devices>(&self, others: &'devices [Device]) -> Option<(&'static str, &'devices str)> {
        others.iter().find_map(|Device { name, interface: other, .. }| {
            let is_shared = [
                ("index", self.index.is_some() && self.index == other.index),
                ("luid", self.luid.is_some() && self.luid == other.luid),
                ("alias", self.alias.is_some() && self.alias == other.alias),
                ("mac", self.mac.is_some() && self.mac == other.mac),
            ];
            is_shared.into_iter().find_map(|(key, is_shared)| is_shared.then_some((key, name.as_str())))
        })
    }
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The line of the script; 0 for what is done at the end without being in the script.
    pub line: usize,
    /// What is done.
    pub action: Action,
    /// The status that it has to have.
    #[serde(with = "status")]
    pub status: NtStatus,
}

/// Behind the name of a device: the symbolic link of its first interface, which the system makes.
pub const INTERFACE: &str = ".interface";

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asks {
    /// What a control code means.
    Control,
    /// Bytes of the device.
    Read,
    /// That the device takes bytes.
    Write,
}

/// What a step does. Strings are names of the script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Loads an image and calls its entry.
    Load(String),
    /// Unloads it.
    Unload(String),
    /// Adds a device and starts it.
    Start(String),
    /// Stops a device and starts it again.
    Restart(String),
    /// Has it send the message with that number: an interrupt.
    Interrupt(String, u32),
    /// Sends it to a power state, D0 to D3.
    Power(String, u8),
    /// Removes it, if nobody says no.
    Remove(String),
    /// Removes it without asking.
    SurpriseRemove(String),
    /// Opens a device by its symbolic link.
    Open {
        /// The name of the file.
        file: String,
        /// `\DosDevices\Name`, or the name of a device and [`INTERFACE`].
        link: String,
        /// The name of a file on the device, with a backslash in front; empty for the device itself.
        #[serde(default)]
        path: String,
    },
    /// Closes a file.
    Close(String),
    /// Sends a request.
    Begin {
        /// The name of the request.
        request: String,
        /// The file.
        file: String,
        /// What it asks for.
        asks: Asks,
        /// The control code; zero without one.
        code: u32,
        /// The input, or what is written.
        input: Template,
        /// Bytes of room for output, or how many are read.
        output: usize,
        /// Where a read or write begins, in bytes.
        offset: i64,
    },
    /// Waits for a request.
    Wait {
        /// The request.
        request: String,
        /// What its output has to be; `None` if that does not matter.
        output: Option<Pattern>,
    },
    /// Cancels a request, which is waited for as any other.
    Cancel(String),
    /// Lets microseconds pass.
    Sleep(u64),
    /// Waits until every machine has come to the barrier of that name.
    Barrier(String),
    /// Sends a frame by a NIC, as a protocol does that is bound to it.
    SendFrame {
        /// The NIC.
        device: String,
        /// From the destination on.
        input: Template,
    },
    /// Waits for a frame that a NIC receives.
    ReceiveFrame {
        /// The NIC.
        device: String,
        /// What it has to be.
        expect: Pattern,
    },
    /// Pulls the machine's cable to the other ones, for good.
    Unplug,
    /// A program talks over a socket.
    Socket {
        /// The name of the socket.
        socket: String,
        /// What it does with it.
        does: SocketAction,
    },
}

impl Action {
    /// The word of the script, and what it is done with.
    #[must_use]
    pub fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Load(name) => ("load", name),
            Self::Unload(name) => ("unload", name),
            Self::Start(name) => ("start", name),
            Self::Restart(name) => ("restart", name),
            Self::Interrupt(name, _) => ("interrupt", name),
            Self::Power(name, _) => ("power", name),
            Self::Remove(name) => ("remove", name),
            Self::SurpriseRemove(name) => ("surprise-remove", name),
            Self::Open { file, .. } => ("open", file),
            Self::Close(name) => ("close", name),
            Self::Begin { request, .. } => ("begin", request),
            Self::Wait { request, .. } => ("wait", request),
            Self::Cancel(name) => ("cancel", name),
            Self::Sleep(_) => ("sleep", ""),
            Self::Barrier(name) => ("barrier", name),
            Self::SendFrame { device, .. } => ("send-frame", device),
            Self::ReceiveFrame { device, .. } => ("receive-frame", device),
            Self::Unplug => ("unplug", ""),
            Self::Socket { socket, does } => (does.word(), socket),
        }
    }
}

impl Script {
    /// A script in which nothing is done.
    #[must_use]
    pub fn new(kernel: Settings) -> Self {
        Self {
            kernel,
            images: Vec::new(),
            devices: Vec::new(),
            folder: None,
            files: Vec::new(),
            steps: Vec::new(),
            machines: Vec::new(),
            network: NetworkSettings::default(),
        }
    }

    /// The images of all machines.
    pub fn all_images(&self) -> impl Iterator<Item = &Image> {
        self.images.iter().chain(self.machines.iter().flat_map(|node| &node.script.images))
    }

    /// The same, to change them.
    pub fn all_images_mut(&mut self) -> impl Iterator<Item = &mut Image> {
        self.images.iter_mut().chain(self.machines.iter_mut().flat_map(|node| &mut node.script.images))
    }

    /// Reads the files that drivers find: on each machine those of its own folder, or everywhere those of this one.
    ///
    /// # Errors
    ///
    /// As [`disk::read`].
    pub fn read_files(&mut self, everywhere: Option<&Path>) -> Result<(), String> {
        if let Some(folder) = everywhere.or(self.folder.as_deref()) {
            self.files = disk::read(folder)?;
        }
        self.machines.iter_mut().try_for_each(|node| node.script.read_files(everywhere))
    }

    /// What is done on the machine of that name, or on the only one.
    #[must_use]
    pub fn on(&self, machine: Option<&str>) -> &Self {
        let node = self.machines.iter().find(|node| Some(node.name.as_str()) == machine);
        node.map_or(self, |node| &node.script)
    }

    /// What is done with images for which there is no script: each is loaded and gets a device, if it has asked for devices; then they
    /// are removed and unloaded, the newest first.
    #[must_use]
    pub fn default_for(files: &[PathBuf]) -> Self {
        let mut script = Self::new(Settings::default());
        for (number, file) in files.iter().enumerate() {
            let service = service_of(file);
            let name =
                if script.image(&service).is_some() { format!("{service}-{}", number + 1) } else { service.clone() };
            let device = format!("{name}-0");
            for action in [Action::Load(name.clone()), Action::Start(device.clone())] {
                script.steps.push(Step { line: 0, action, status: NtStatus::SUCCESS });
            }
            script.devices.push(Device {
                name: device,
                image: name.clone(),
                filters: Vec::new(),
                kind: DeviceKind::Registered,
                keywords: Vec::new(),
                addresses: Vec::new(),
                interface: Interface::default(),
                resources: Resources::default(),
            });
            script.images.push(Image { name, file: file.clone(), service, registry: Vec::new(), ioctls: Vec::new() });
        }
        script.finish();
        script
    }

    /// Puts the adviser (`docs/adviser.md`) in front of the adapters of `softndk` and `softndknic`, where the registry does not say what
    /// it does: it stops the machine at a duty that the consumer does not keep.
    pub fn advise(&mut self) {
        const ADVISE: &str = "Advise";
        const STOP: RegistryValue = RegistryValue::Number(4);
        for image in self.all_images_mut() {
            let is_ours = ["softndk", "softndknic"].contains(&service_of(&image.file).as_str());
            let says = image.registry.iter().any(|(name, _)| name.eq_ignore_ascii_case(ADVISE));
            if is_ours && !says {
                image.registry.push((ADVISE.to_owned(), STOP));
            }
        }
    }

    /// Has a program send this to the driver of each image whose file is called `stem`, without its extension, once it has a device. Returns
    /// false if there is none.
    pub fn send_ioctl(&mut self, stem: &str, ioctl: &Ioctl) -> bool {
        let mut is_there = false;
        for image in self.all_images_mut().filter(|image| service_of(&image.file) == stem) {
            image.ioctls.push(ioctl.clone());
            is_there = true;
        }
        is_there
    }

    /// The image of that name.
    #[must_use]
    pub fn image(&self, name: &str) -> Option<&Image> {
        self.images.iter().find(|image| image.name == name)
    }

    /// The device of that name.
    #[must_use]
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Adds the steps that take everything away that the script leaves, the newest first.
    pub(crate) fn finish(&mut self) {
        let mut left: Vec<Action> = Vec::new();
        for step in &self.steps {
            let succeeds = step.status.is_success();
            match &step.action {
                Action::Load(name) if succeeds => left.push(Action::Unload(name.clone())),
                Action::Start(name) if succeeds => left.push(Action::Remove(name.clone())),
                Action::Open { file, .. } if succeeds => left.push(Action::Close(file.clone())),
                Action::Socket { socket, does } if does.makes() && succeeds => {
                    left.push(Action::Socket { socket: socket.clone(), does: SocketAction::Close });
                }
                Action::Socket { socket, does } if does.ends() => {
                    let close = Action::Socket { socket: socket.clone(), does: SocketAction::Close };
                    left.retain(|action| action != &close);
                }
                // A program's requests are cancelled when it ends, and its files are closed then.
                Action::Begin { request, .. } => {
                    left.push(Action::Wait { request: request.clone(), output: None });
                    left.push(Action::Cancel(request.clone()));
                }
                Action::Unload(_) | Action::Close(_) | Action::Cancel(_) => {
                    left.retain(|action| action != &step.action);
                }
                Action::Remove(name) | Action::SurpriseRemove(name) if succeeds => {
                    left.retain(|action| action != &Action::Remove(name.clone()));
                }
                Action::Wait { request, .. } => {
                    let wait = Action::Wait { request: request.clone(), output: None };
                    left.retain(|action| action != &wait && action != &Action::Cancel(request.clone()));
                }
                _ => {}
            }
        }
        left.reverse();
        self.steps.extend(left.into_iter().map(|action| Step { line: 0, action, status: NtStatus::SUCCESS }));
    }
}

/// The service of an image that the script gives no name: the file's.
pub(crate) fn service_of(file: &std::path::Path) -> String {
    file.file_stem().map_or_else(|| "driver".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// A status as a number.
mod status {
    use ntstatus::NtStatus;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub fn serialize<S: Serializer>(status: &NtStatus, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(status.to_bits())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NtStatus, D::Error> {
        u32::deserialize(deserializer).map(NtStatus::from_bits)
    }
}
