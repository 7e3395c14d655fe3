//! Adapters of SoftNDK on a host: a network of them, on a machine of threads or a deterministic one.

mod driver;
mod observed;
mod outlet;
mod tapped;
mod watch;

use alloc::{boxed::Box, vec};
use core::{
    any::Any,
    net::{IpAddr, SocketAddr},
};
use std::{format, path::PathBuf, string::String, sync::Arc as StdArc, vec::Vec};

use engine::connection::Fabric;
pub use engine::connection::InterfaceAddress;
use engine::wire::Wire;
pub use engine::wire::{Cable, Counters, WireConfig};
use fallible::{Arc, try_box};
use host::{
    HostOs, PinnedBuffer,
    device::{self, HostDevice},
    machine::{self, EventKind, Irql, Machine, MachineRef, current_irql, locks_held},
};
use interpose::adviser::Finding;
pub use interpose::faults;
use ndkpi::{MDL, NDK_ADAPTER, NDK_VERSION, NtStatus};
pub use provider::Config;
use recorder::{Ring, Tap};

pub use self::{
    driver::{Driver, at_dispatch, drives, rest},
    outlet::Outlet,
};
use self::{
    observed::Observed,
    tapped::{TapSlot, Tapped},
};

use crate::{
    Adapter,
    os::{Event, PinnedMemory, Runtime},
};

/// A machine whose adapters can connect to each other and to themselves.
///
/// ```
/// use ndk::host::Loopback;
///
/// # fn main() -> Result<(), ndk::NtStatus> {
/// let machine = Loopback::start(2)?;
/// let adapter = machine.open(1)?;
/// assert!(adapter.info().MaxCqDepth > 0);
/// assert!(machine.address(1, 4791).is_ipv4());
/// drop(adapter);
/// machine.finish().expect("everything is closed");
/// # Ok(())
/// # }
/// ```
///
/// Adapters keep the machine: it stops when this and the last open adapter have been dropped.
///
/// # Under the adviser, and recorded
///
/// [`Loopback::advised`], [`Loopback::recorded`] and [`Loopback::with_faults`] put something in front of the adapters that are
/// opened afterwards. Two variables of the environment do it for any program, at its start:
///
/// - `NDK_ADVISE=1`: the adviser, whose findings are printed to the standard error as they are made, and once more at the end. A
///   program that does nothing any more because a completion queue was not armed again says so after three seconds, and ends with
///   exit code 1.
/// - `NDK_RECORD=FILE`: a recording, which is written when the last adapter of the machine has gone. With several machines in one
///   program, it is that of the last one.
pub struct Loopback {
    devices: Vec<Arc<HostDevice>>,
    /// In front of the machine: it ends before that.
    observed: StdArc<Observed>,
    machine: Arc<Machine>,
}

impl Loopback {
    /// Starts a machine of threads with this many adapters.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn start(adapters: u8) -> Result<Self, NtStatus> {
        Self::with(Machine::threads().start(), adapters, |_| {})
    }

    /// Starts a deterministic machine: the same seed repeats the same run.
    ///
    /// Time passes there when the seed says so, also while a DPC is queued: a request with a time-out, such as a disconnect, may end
    /// with `STATUS_IO_TIMEOUT` although nothing was slow.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn seeded(seed: u64, adapters: u8) -> Result<Self, NtStatus> {
        Self::with(Machine::seeded(seed).start(), adapters, |_| {})
    }

    /// Creates adapters on a machine. `adjust` can change each one's configuration: how requests complete, its limits.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn with(machine: Machine, adapters: u8, adjust: impl Fn(&mut Config)) -> Result<Self, NtStatus> {
        let os = HostOs::new(&machine);
        let observed = Observed::from_environment(machine.processors())?;
        let fabric = Fabric::try_new(&os)?;
        let mut devices = Vec::new();
        for number in 1..=adapters {
            let mut config = Config { addresses: Config::addresses_of(number), ..Config::default() };
            adjust(&mut config);
            devices.push(device::on_fabric(&os, &fabric, config)?);
        }
        Ok(Self { devices, observed, machine: Arc::try_new(machine)? })
    }

    /// Puts the adviser in front of adapters that are opened from now on. It prints its findings to the standard error.
    ///
    /// ```
    /// use ndk::{Notify, host::Loopback};
    ///
    /// # fn main() -> Result<(), ndk::NtStatus> {
    /// let machine = Loopback::start(1)?.advised()?;
    /// let adapter = machine.open(0)?;
    /// let mut cq = adapter.create_cq(16)?;
    /// cq.poller().arm(Notify::Any);
    /// cq.poller().arm(Notify::Errors);
    /// let findings = machine.findings();
    /// assert_eq!(findings[0].0.to_string(), "SN0004", "armed for less than it was");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`; `STATUS_DEVICE_BUSY` if an adapter is open.
    pub fn advised(self) -> Result<Self, NtStatus> {
        self.observed(Observed::advised)
    }

    /// Records what happens on adapters that are opened from now on, and writes it to a file when the last of them and this have
    /// gone: `ndkctl timeline`, `replay` and `packets` read it. It keeps the newest of 16 MiB.
    ///
    /// # Errors
    ///
    /// As [`Loopback::advised`].
    pub fn recorded(self, path: impl Into<PathBuf>) -> Result<Self, NtStatus> {
        let processors = self.machine.processors();
        self.observed(|observed| observed.recorded(path.into(), processors))
    }

    /// As [`Loopback::recorded`], into memory of the caller: a [ring](recorder::Ring) that it can make a file of at any time.
    ///
    /// # Errors
    ///
    /// As [`Loopback::advised`].
    pub fn recorded_in(self, ring: Arc<Ring>) -> Result<Self, NtStatus> {
        self.observed(|observed| {
            observed.recorded_in(ring);
            Ok(())
        })
    }

    /// Lets something go wrong on adapters that are opened from now on, as NDKPI allows it: [`faults`] has what there is.
    ///
    /// ```
    /// use ndk::host::{Loopback, faults::{Kind, Plan, Rule, Which}};
    ///
    /// # fn main() -> Result<(), ndk::NtStatus> {
    /// let plan = Plan::new(1).with(Rule::new(Kind::Refuse, Which::Nth(1))).expect("a rule");
    /// let machine = Loopback::start(1)?.with_faults(plan)?;
    /// let adapter = machine.open(0)?;
    /// assert!(adapter.create_pd().is_err() && adapter.create_pd().is_ok());
    /// assert_eq!(machine.faults_made(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Loopback::advised`].
    pub fn with_faults(self, plan: faults::Plan) -> Result<Self, NtStatus> {
        self.observed(|observed| observed.with_faults(&plan))
    }

    /// The same with more in front of the adapters.
    fn observed(mut self, more: impl FnOnce(&mut Observed) -> Result<(), NtStatus>) -> Result<Self, NtStatus> {
        more(StdArc::get_mut(&mut self.observed).ok_or(NtStatus::DEVICE_BUSY)?)?;
        Ok(self)
    }

    /// The adviser's findings so far, and how often each was made.
    #[must_use]
    pub fn findings(&self) -> Vec<(Finding, u32)> {
        self.observed.findings()
    }

    /// How many faults have happened.
    #[must_use]
    pub fn faults_made(&self) -> u64 {
        self.observed.faults_made()
    }

    /// Under the adviser, in a program that does nothing any more: a line for each completion queue that has called back, was not
    /// armed since, and has requests that no poll has found.
    #[must_use]
    pub fn asleep(&self) -> Vec<String> {
        self.observed.asleep()
    }

    /// Opens an adapter with the newest version.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` if there is no such adapter; otherwise the provider's status.
    pub fn open(&self, adapter: usize) -> Result<Adapter, NtStatus> {
        let device = self.devices.get(adapter).ok_or(NtStatus::INVALID_PARAMETER)?;
        // In the order in which they end.
        let keeps: Box<dyn Any + Send + Sync> = try_box((self.observed.clone(), self.machine.clone()))?;
        let mut adapter = self.open_observed(device)?;
        adapter.keep(keeps);
        Ok(adapter)
    }

    fn open_observed(&self, device: &Arc<HostDevice>) -> Result<Adapter, NtStatus> {
        let raw = device::open(device, NDK_VERSION::V2_1)?;
        let close = |adapter| {
            // SAFETY: the adapter came from `device::open` above, and is not used again.
            unsafe { device::close(adapter) };
        };
        // SAFETY: the adapter was just opened, `close` closes such an adapter, and nobody else has it.
        let (raw, close) = unsafe { self.observed.wrap(device.os(), raw, Box::new(close)) }?;
        // SAFETY: as above; `close` closes what is in front of it first.
        unsafe { adopt(&self.machine, raw, close) }
    }

    /// The IPv4 address of an adapter, with a port. Port 0 lets the provider choose.
    ///
    /// # Panics
    ///
    /// If there is no such adapter.
    #[must_use]
    pub fn address(&self, adapter: usize, port: u16) -> SocketAddr {
        let mut addresses = self.devices[adapter].config().addresses.iter().flatten().map(|one| one.address);
        let address = addresses.find(IpAddr::is_ipv4).unwrap_or(IpAddr::V4(core::net::Ipv4Addr::LOCALHOST));
        SocketAddr::new(address, port)
    }

    /// The devices behind the adapters, with their counters and connections.
    #[must_use]
    pub fn devices(&self) -> &[Arc<HostDevice>] {
        &self.devices
    }

    /// The machine, with its clock and processors.
    #[must_use]
    pub fn machine(&self) -> &MachineRef {
        &self.machine
    }

    /// Checks that every adapter is closed, and stops the machine.
    ///
    /// # Errors
    ///
    /// A description of what is still open.
    pub fn finish(self) -> Result<(), String> {
        let Self { devices, observed, machine } = self;
        machine.flush();
        for (number, device) in devices.iter().enumerate() {
            let references = Arc::references_now(device);
            if references != 1 {
                return Err(format!("{} references to adapter {number} are left", references - 1));
            }
        }
        drop(devices);
        // What was seen is said and written.
        drop(observed);
        // The last reference: no adapter is open. Dropping it stops the machine.
        drop(machine);
        Ok(())
    }
}

/// An adapter on a wire: it reaches what is at the other end of a [`Cable`].
///
/// Frames leave by the cable, and come in by a [`Plug`].
///
/// ```
/// use ndk::host::{Cable, WireConfig, Wired};
///
/// /// Leads nowhere.
/// struct Nowhere;
///
/// impl Cable for Nowhere {
///     fn send(&self, _frame: &[u8]) {}
/// }
///
/// # fn main() -> Result<(), ndk::NtStatus> {
/// let wire = WireConfig::new([2, 0, 0, 0, 0, 1]);
/// let wired = Wired::start(provider::Config::default(), wire, Box::new(Nowhere))?;
/// let plug = wired.plug();
/// plug.receive(b"what no station sends");
/// assert_eq!(wired.counters().frames_received, 1);
/// let adapter = wired.open()?;
/// assert_eq!(adapter.info().MaxCallerData, 56);
/// drop(adapter);
/// wired.finish().expect("everything is closed");
/// # Ok(())
/// # }
/// ```
pub struct Wired {
    loopback: Loopback,
    plug: Plug,
}

/// The way of frames into an adapter. Once the adapter has gone they are dropped.
#[derive(Clone)]
pub struct Plug {
    wire: Arc<Wire<HostOs>>,
    tap: TapSlot,
}

impl Plug {
    /// A frame has come: an Ethernet frame without its check sequence. Any bytes may be one.
    pub fn receive(&self, frame: &[u8]) {
        self.receive_all(&[frame]);
    }

    /// Frames have come, in this order: each as by [`Plug::receive`], which costs more.
    pub fn receive_all(&self, frames: &[&[u8]]) {
        self.tap.with(|tap| frames.iter().for_each(|frame| tap.received(frame)));
        Wire::receive_all(&self.wire, frames);
    }
}

impl Wired {
    /// Starts a machine of threads with one adapter, whose frames go to `cable`.
    ///
    /// # Errors
    ///
    /// As [`provider::Device::try_new_with_cable`].
    pub fn start(config: Config, wire: WireConfig, cable: Box<dyn Cable>) -> Result<Self, NtStatus> {
        Self::with(Machine::threads().start(), config, wire, cable)
    }

    /// [`Wired::start`] on a machine.
    ///
    /// # Errors
    ///
    /// As [`Wired::start`].
    pub fn with(machine: Machine, config: Config, wire: WireConfig, cable: Box<dyn Cable>) -> Result<Self, NtStatus> {
        let os = HostOs::new(&machine);
        Self::on(&os, Arc::try_new(machine)?, &config, wire, cable)
    }

    /// [`Wired::with`] locks that do nothing but lock: they do not raise the IRQL, and find no mistakes. For measurements, and for programs
    /// that are tested.
    ///
    /// # Errors
    ///
    /// As [`Wired::start`].
    pub fn unwatched(
        machine: Machine,
        config: Config,
        wire: WireConfig,
        cable: Box<dyn Cable>,
    ) -> Result<Self, NtStatus> {
        let os = HostOs::unwatched(&machine);
        Self::on(&os, Arc::try_new(machine)?, &config, wire, cable)
    }

    /// One more adapter on the same machine, with locks of the same kind and a wire of its own: they reach each other by that only.
    ///
    /// # Errors
    ///
    /// As [`Wired::start`].
    pub fn beside(&self, config: Config, wire: WireConfig, cable: Box<dyn Cable>) -> Result<Self, NtStatus> {
        Self::on(self.device().os(), self.loopback.machine.clone(), &config, wire, cable)
    }

    fn on(
        os: &HostOs,
        machine: Arc<Machine>,
        config: &Config,
        wire: WireConfig,
        cable: Box<dyn Cable>,
    ) -> Result<Self, NtStatus> {
        let tap = TapSlot::default();
        let cable: Box<dyn Cable> = try_box(Tapped::new(cable, tap.clone()))?;
        let device = device::with_cable(os, &Fabric::try_new(os)?, *config, wire, cable)?;
        let plug = Plug { wire: device.wire().ok_or(NtStatus::INTERNAL_ERROR)?, tap };
        let devices = vec![device];
        let observed = Observed::from_environment(machine.processors())?;
        let this = Self { loopback: Loopback { devices, observed, machine }, plug };
        this.tap();
        Ok(this)
    }

    /// Records the frames too, if there is a recording.
    fn tap(&self) {
        if let Some(ring) = self.loopback.observed.ring() {
            self.plug.tap.set(Tap::new(self.device().os().clone(), ring));
        }
    }

    /// As [`Loopback::advised`].
    ///
    /// # Errors
    ///
    /// As [`Loopback::advised`].
    pub fn advised(self) -> Result<Self, NtStatus> {
        Ok(Self { loopback: self.loopback.advised()?, ..self })
    }

    /// As [`Loopback::recorded`], with every frame that the adapter sends and that comes in: `ndkctl packets` makes a capture of them.
    /// A frame of 1100 bytes takes 20 slots of the 256K.
    ///
    /// # Errors
    ///
    /// As [`Loopback::advised`].
    pub fn recorded(self, path: impl Into<PathBuf>) -> Result<Self, NtStatus> {
        let this = Self { loopback: self.loopback.recorded(path)?, ..self };
        this.tap();
        Ok(this)
    }

    /// As [`Loopback::with_faults`].
    ///
    /// # Errors
    ///
    /// As [`Loopback::advised`].
    pub fn with_faults(self, plan: faults::Plan) -> Result<Self, NtStatus> {
        Ok(Self { loopback: self.loopback.with_faults(plan)?, ..self })
    }

    /// As [`Wired::recorded`], into memory of the caller: a [ring](recorder::Ring) that it can make a file of at any time.
    ///
    /// # Errors
    ///
    /// As [`Loopback::advised`].
    pub fn recorded_in(self, ring: Arc<Ring>) -> Result<Self, NtStatus> {
        let this = Self { loopback: self.loopback.recorded_in(ring)?, ..self };
        this.tap();
        Ok(this)
    }

    /// Opens the adapter with the newest version.
    ///
    /// # Errors
    ///
    /// The provider's status.
    pub fn open(&self) -> Result<Adapter, NtStatus> {
        self.loopback.open(0)
    }

    /// The way of frames into the adapter.
    #[must_use]
    pub fn plug(&self) -> Plug {
        self.plug.clone()
    }

    /// What the wire has counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.plug.wire.counters()
    }

    /// The device behind the adapter.
    #[must_use]
    pub fn device(&self) -> &Arc<HostDevice> {
        &self.loopback.devices[0]
    }

    /// The machine, with its clock and processors.
    #[must_use]
    pub fn machine(&self) -> &MachineRef {
        self.loopback.machine()
    }

    /// As [`Loopback::finish`].
    ///
    /// # Errors
    ///
    /// A description of what is still open.
    pub fn finish(self) -> Result<(), String> {
        self.loopback.finish()
    }
}

/// Takes over an adapter that was opened on a machine, but not by [`Loopback::open`] or [`Wired::open`], which also keep their machine.
///
/// # Errors
///
/// What the provider says. The adapter is closed then.
///
/// # Safety
///
/// The same as [`Adapter::from_raw`]; `close` closes the adapter and returns when that is complete. The machine runs until then.
pub unsafe fn adopt(
    machine: &MachineRef,
    raw: *mut NDK_ADAPTER,
    close: impl Fn(*mut NDK_ADAPTER) + Send + Sync + 'static,
) -> Result<Adapter, NtStatus> {
    let os = Box::new(HostPrograms(machine.clone(), close));
    // SAFETY: `raw` is an open adapter of a provider that keeps the rules, and `os` closes it by `close` (`# Safety`).
    unsafe { Adapter::from_raw(raw, os) }
}

/// [`Runtime`] for programs on a machine, with the function that closes their adapters.
struct HostPrograms<C>(MachineRef, C);

impl<C: Fn(*mut NDK_ADAPTER) + Send + Sync> Runtime for HostPrograms<C> {
    fn event(&self) -> Result<Box<dyn Event>, NtStatus> {
        let event = machine::Event::new(&self.0, EventKind::Notification);
        let event: Box<dyn Event> = try_box(HostEvent(event))?;
        Ok(event)
    }

    fn may_wait(&self) -> bool {
        current_irql() < Irql::DISPATCH_LEVEL && locks_held() == 0
    }

    fn memory(&self, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        let memory: Box<dyn PinnedMemory> = try_box(HostMemory(PinnedBuffer::new(length)?))?;
        Ok(memory)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        (self.1)(adapter);
    }
}

struct HostEvent(machine::Event);

impl Event for HostEvent {
    fn set(&self) {
        self.0.set();
    }

    fn clear(&self) {
        self.0.reset();
    }

    fn wait(&self) {
        if driver::wait_for(&self.0, None).is_none() {
            self.0.wait();
        }
    }

    fn wait_for(&self, micros: u64) -> bool {
        driver::wait_for(&self.0, Some(micros)).unwrap_or_else(|| self.0.wait_for(micros))
    }
}

/// A buffer of the host.
struct HostMemory(PinnedBuffer);

// SAFETY: the one descriptor of a `PinnedBuffer` is what SoftNDK takes for an MDL on a host, and describes all of the buffer,
// whose bytes are page-aligned, stay where they are, and are used through raw pointers only.
unsafe impl PinnedMemory for HostMemory {
    fn mdl(&self) -> *mut MDL {
        self.0.mdl().cast()
    }

    fn address(&self) -> *mut u8 {
        self.0.pointer(0)
    }

    fn length(&self) -> usize {
        self.0.len()
    }
}
