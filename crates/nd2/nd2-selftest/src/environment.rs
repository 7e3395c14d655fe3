//! What a case runs on: two adapters, the process of the client, and how one waits there.

use std::{
    ffi::c_void,
    net::IpAddr,
    time::{Duration, Instant},
};

use engine::connection::{Fabric, InterfaceAddress, Timeouts};
use host::machine::Machine;
use nd2::{
    Config, Device, Item, OverlappedOs, Quota, Resource,
    abi::{HRESULT, adapter_flags::ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED},
    class::get_class_object,
};
use nd2_control::Server;
use ndkpi::{GUID, NtStatus};

use crate::{
    BackEnd, Failure, Memory, Options, OverlappedHost,
    case::is,
    codes::{HostSystem, HostTransport},
    world::{MAX_LISTENERS, MAX_NOTIFY_REQUESTS, MAX_READ_SGE, MAX_REGISTERED, Schedule},
};

pub use crate::world::{HERE, HERE_V6, THERE};

/// The longest that something may take before it is called a hang.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where a case runs.
///
/// There are two adapters, with the numbers 1 and 2, the addresses [`HERE`], [`HERE_V6`] and [`THERE`], and what [`first`] and [`second`]
/// make of their settings.
pub trait Environment {
    /// `DllGetClassObject` of version 2.
    ///
    /// # Safety
    ///
    /// `iid` is null or valid for reading, `out` null or valid for writing.
    unsafe fn class_object(&self, iid: *const GUID, out: *mut *mut c_void) -> HRESULT;

    /// Handles, events and completion ports of the client's process.
    fn platform(&self) -> &OverlappedHost;

    /// What decides what happens next.
    fn schedule(&self) -> Schedule;

    /// What the first adapter was made with.
    fn config(&self) -> &Config;

    /// True if every request pends, also one that fails at once, whatever the policy of the adapters is.
    fn every_request_pends(&self) -> bool {
        false
    }

    /// Zeroed bytes of the client's process.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn memory(&self, length: usize) -> Result<Memory, NtStatus> {
        Memory::try_new(length)
    }

    /// Removes an adapter: the first has number 0.
    fn remove(&self, number: usize);

    /// Lets a completion queue of the client fail as broken hardware would.
    ///
    /// # Errors
    ///
    /// There is no such queue.
    ///
    /// # Safety
    ///
    /// `queue` is a COM object of the client's.
    unsafe fn break_queue(&self, queue: *mut c_void) -> Result<(), Failure>;

    /// References to the first adapter, besides those of the environment itself.
    fn references(&self) -> usize;

    /// The limits that the client has reached since this was asked last, with their names.
    fn limits_reached(&self) -> Vec<(&'static str, u64)>;

    /// Lets everything happen that is going to, without time that passes.
    fn settle(&self);

    /// Waits for `what`: until `condition` holds. False if it has waited in vain.
    ///
    /// A condition that does not hold has looked at everything there is: it may not be asked again before something happens.
    fn wait(&self, what: &str, condition: &mut dyn FnMut() -> bool) -> bool;

    /// Lets time pass, in microseconds.
    fn let_pass(&self, time: u64);

    /// Ends it, when the client has closed everything.
    ///
    /// # Errors
    ///
    /// What is left.
    fn end(self: Box<Self>) -> Result<(), Failure>;
}

/// Makes the first adapter's settings what the cases expect.
pub fn first(config: &mut Config) {
    let second = 1_000_000;
    // Who waits for the peer to answer Disconnect waits longer than any case does.
    config.timeouts = Timeouts { connect: 60 * second, establish: 60 * second, disconnect: 120 * second };
    config.max_notify_requests = MAX_NOTIFY_REQUESTS;
    config.limits.set(Resource::Listeners, MAX_LISTENERS);
    config.limits.set(Resource::RegisteredBytes, MAX_REGISTERED);
    // Fewer than of other requests.
    config.info.MaxReadSge = MAX_READ_SGE;
}

/// The same for the second one, which cannot resize queues.
pub fn second(config: &mut Config) {
    first(config);
    config.info.AdapterId = 2;
    config.info.AdapterFlags &= !ND_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED;
}

/// Gives one of several clients that share the adapter as much as the cases expect.
pub fn shared(config: &mut Config) {
    for resource in [Resource::Listeners, Resource::RegisteredBytes] {
        let all = config.limits.get(resource) * u64::from(Quota::default().shares);
        config.limits.set(resource, all);
    }
}

/// Where the adapters are.
enum Adapters {
    /// In the client's process.
    Here([fallible::Arc<Device<OverlappedHost>>; 2]),
    /// Behind control codes.
    Codes([Adapter2; 2], HostSystem, HostTransport),
}

type Adapter2 = nd2_control::Adapter<HostSystem>;

/// A machine of the host's.
pub struct HostEnvironment {
    adapters: Adapters,
    platform: OverlappedHost,
    schedule: Schedule,
    /// The longest that the adapters are late on purpose, in microseconds.
    late: u64,
    /// Last, because everything above lives on it.
    machine: Machine,
}

impl HostEnvironment {
    /// Starts the machine and makes the adapters.
    ///
    /// # Errors
    ///
    /// What did not work.
    pub fn try_new(options: &Options<'_>) -> Result<Self, Failure> {
        let Options { schedule, policy, nic, faults, .. } = *options;
        let machine = match schedule {
            Schedule::Threads => Machine::threads().processors(2).start(),
            Schedule::Seeded(seed, percent) => Machine::seeded(seed).preemption(percent).start(),
        };
        let platform = OverlappedHost::new(&machine);
        let mut config = Config { policy, nic, faults, ..Config::default() };
        first(&mut config);
        let adapters = match options.back_end {
            BackEnd::Process => Adapters::Here(devices(&platform, config)?),
            BackEnd::Codes => {
                shared(&mut config);
                let system = HostSystem::new(&platform);
                let devices = devices(&Server(system.clone()), config)?;
                system.set_devices(&devices);
                let transport = HostTransport::try_new(&system)?;
                Adapters::Codes(devices, system, transport)
            }
        };
        let late = faults.completion_delay.longest().max(faults.request_delay.longest()).into();
        Ok(Self { adapters, platform, schedule, late, machine })
    }

    /// Time passes only if the adapters are late: a timeout would be as good as anything else to a seeded machine.
    fn run_seeded(&self) {
        self.machine.run_for(self.late);
        self.machine.run_until_idle();
    }
}

impl Environment for HostEnvironment {
    unsafe fn class_object(&self, iid: *const GUID, out: *mut *mut c_void) -> HRESULT {
        match &self.adapters {
            // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (the trait's `# Safety`).
            Adapters::Here(devices) => unsafe { get_class_object(iid, out, || Ok(devices.clone())) },
            Adapters::Codes(_, _, transport) => {
                let transport = transport.clone();
                // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (the trait's `# Safety`).
                unsafe { softnd::driver::get_class_object(iid, out, || Ok(transport)) }
            }
        }
    }

    fn platform(&self) -> &OverlappedHost {
        &self.platform
    }

    fn schedule(&self) -> Schedule {
        self.schedule
    }

    fn config(&self) -> &Config {
        match &self.adapters {
            Adapters::Here(devices) => devices[0].config(),
            Adapters::Codes(devices, ..) => devices[0].config(),
        }
    }

    fn remove(&self, number: usize) {
        match &self.adapters {
            Adapters::Here(devices) => devices[number].remove(),
            Adapters::Codes(devices, ..) => devices[number].remove(),
        }
    }

    unsafe fn break_queue(&self, queue: *mut c_void) -> Result<(), Failure> {
        match &self.adapters {
            // SAFETY: `queue` is null or a COM object (the trait's `# Safety`).
            Adapters::Here(_) => unsafe { Device::<OverlappedHost>::break_completion_queue(queue) }?,
            Adapters::Codes(_, _, transport) => {
                // SAFETY: `queue` is null or a COM object (the trait's `# Safety`).
                let handle = unsafe { softnd::driver::queue_handle::<HostTransport>(queue) };
                transport.session().break_completion_queue(handle.unwrap_or(0))?;
            }
        }
        Ok(())
    }

    fn references(&self) -> usize {
        match &self.adapters {
            Adapters::Here(devices) => fallible::Arc::references_now(&devices[0]) - 1,
            Adapters::Codes(devices, ..) => fallible::Arc::references_now(&devices[0]) - 2,
        }
    }

    fn limits_reached(&self) -> Vec<(&'static str, u64)> {
        self.platform.limits_reached()
    }

    fn settle(&self) {
        if matches!(self.schedule, Schedule::Seeded(..)) {
            return self.run_seeded();
        }
        // A call that runs may queue another: longer chains than this are not in the way of a notification.
        for _ in 0..6 {
            self.machine.flush();
        }
    }

    fn wait(&self, _: &str, condition: &mut dyn FnMut() -> bool) -> bool {
        let started = Instant::now();
        while !condition() {
            match self.schedule {
                Schedule::Threads => self.machine.yield_now(),
                Schedule::Seeded(..) => self.run_seeded(),
            }
            if started.elapsed() > PATIENCE {
                return false;
            }
        }
        true
    }

    fn let_pass(&self, time: u64) {
        self.machine.run_for(time);
    }

    fn end(self: Box<Self>) -> Result<(), Failure> {
        let Self { adapters, platform, machine, .. } = *self;
        // What runs still refers to the adapters.
        for _ in 0..4 {
            machine.flush();
        }
        match adapters {
            Adapters::Here(devices) => no_references(devices)?,
            Adapters::Codes(devices, system, transport) => {
                let shared = Resource::ALL.map(Item::Resource);
                for item in [Item::Requests, Item::Locked].into_iter().chain(shared) {
                    is(&format!("{item:?} that are left"), transport.session().account().taken(item), 0)?;
                }
                system.set_devices(&[]);
                drop((transport, system));
                no_references(devices)?;
            }
        }
        drop(platform);
        machine.shutdown();
        Ok(())
    }
}

/// The two adapters on a fabric of their own.
fn devices<P: OverlappedOs>(platform: &P, config: Config) -> Result<[fallible::Arc<Device<P>>; 2], Failure> {
    let fabric = Fabric::try_new(platform.os())?;
    let network = |address: IpAddr| InterfaceAddress::new(address, if address.is_ipv4() { 24 } else { 64 });
    let here = Device::try_new(platform, &fabric, &[network(HERE), network(HERE_V6)], config)?;
    let mut other = config;
    second(&mut other);
    Ok([here, Device::try_new(platform, &fabric, &[network(THERE)], other)?])
}

fn no_references<P: OverlappedOs>(devices: [fallible::Arc<Device<P>>; 2]) -> Result<(), Failure> {
    for device in devices {
        is("references to the adapter that are left", fallible::Arc::references_now(&device), 1)?;
    }
    Ok(())
}
