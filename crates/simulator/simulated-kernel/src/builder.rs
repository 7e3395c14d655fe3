//! How a test starts a kernel, and of which parts one is made.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use host::machine::Machine;

use crate::{
    baton::Baton,
    callers::Images,
    drivers::Drivers,
    ending::ending,
    faults::Faults,
    findings::Findings,
    kernel::{Kernel, wait_for_others},
    ndis::{
        self, adapter::Adapters, bind::Binds, binding::Bindings, clients::Clients as NdisClients,
        configuration::Configurations, device::ControlDevices, pool::Pools, registration::Miniports, send::Sends,
    },
    ndk_memory::NdkMemory,
    ndk_steps::{self, NdkSteps},
    netio::{self, stack::Net, tables::Tables},
    pins::Pins,
    processors::AtDispatch,
    recordings::Recordings,
    report,
    state::{Limits, Parts, State},
    tracked::Tracked,
    wdf::{device::Nodes, device_init::Inits, object::Objects, preprocess::Seen, request::Completed},
    wdm::{
        self,
        callback::Callbacks,
        clock::{LastTime, Resolution},
        dpc::RunningDpcs,
        ex_timer::ExTimers,
        files::Files,
        handles::Handles,
        io::{
            self, attach::Stacks, cancel::CancelLock, device::Devices, error_log::LogEntries, extension::Extensions,
            interface::Interfaces, open::OpenedFiles, plug::BusIsLate, power::PowerStates, timer::DeviceTimers,
        },
        io_space::IoSpace,
        lock::{LockWaits, SpinLocks},
        mdl::Mdls,
        notification::Notifications,
        registry::{Hive, Keys},
        rundown::Rundowns,
        shared_lock::SharedLocks,
        system_callbacks::SystemCallbacks,
        system_thread::Threads,
        trace::{Events, Providers},
    },
    wsk::{
        clients::Clients, clockwork::Going, host_stream::Delivery, joined::Joined, medium::Carrier, names::Names,
        program::ProgramSockets, request::PendedRequests, sockets::Sockets,
    },
};

/// Settings of a [`Kernel`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `start`"]
pub struct Builder {
    seed: Option<u64>,
    processors: u32,
    preemption: u8,
    pace: u32,
    dpc_limit: Duration,
    dispatch_limit: Duration,
    hang_limit: Duration,
    turn_limit: Duration,
}

impl Builder {
    /// The number of processors. Default: 4.
    pub const fn processors(mut self, count: u32) -> Self {
        self.processors = count;
        self
    }

    /// Seeded only: the chance, in percent, that others get in between at each point where they could. Default: 20.
    pub const fn preemption(mut self, percent: u8) -> Self {
        self.preemption = percent;
        self
    }

    /// Threads only: how many microseconds of real time a microsecond of the kernel takes. Default: one. Time-outs then last as much
    /// longer, which a busy host needs.
    pub const fn pace(mut self, pace: u32) -> Self {
        self.pace = pace;
        self
    }

    /// How long a DPC may run: real time plus what it stalled. Default: two seconds, for hosts are busy.
    pub const fn dpc_limit(mut self, limit: Duration) -> Self {
        self.dpc_limit = limit;
        self
    }

    /// How long DPCs, one after the other, may keep a processor at `DISPATCH_LEVEL`. Default: two minutes, as Windows
    /// has it.
    ///
    /// Not real time, which says more of the host than of the driver: each call counts as 100 microseconds, which is what the
    /// DDI reference allows it, or as long as it stalls.
    pub const fn dispatch_limit(mut self, limit: Duration) -> Self {
        self.dispatch_limit = limit;
        self
    }

    /// How long a thread may wait, unless it is bound to a processor and serves that. Default: one minute.
    pub const fn hang_limit(mut self, limit: Duration) -> Self {
        self.hang_limit = limit;
        self
    }

    /// Seeded only: how long, in real time, a thread may not get its turn because others run. What other machines take of it is not
    /// counted. Default: five minutes.
    pub const fn turn_limit(mut self, limit: Duration) -> Self {
        self.turn_limit = limit;
        self
    }

    /// Starts the kernel. Waits while another one runs in this process.
    pub fn start(self) -> Kernel {
        let only = wait_for_others();
        let builder = self.seed.map_or_else(Machine::threads, |seed| Machine::seeded(seed).preemption(self.preemption));
        let machine = builder.processors(self.processors).hang_limit(self.hang_limit).pace(self.pace).start();
        let baton = self.seed.map(|seed| Baton::new(seed, self.preemption, self.turn_limit));
        let limits = Limits { dpc: self.dpc_limit, dispatch: self.dispatch_limit, hang: self.hang_limit };
        let state = Arc::new(State::new(machine.clone(), self.seed, baton, limits, parts()));
        state.dispatcher.say_besides(ndk_steps::in_words);
        install();
        Kernel::begin(state, machine, only)
    }
}

/// What a new kernel is made of. Where two parts have something to say of memory that is freed, the first one in this list does.
fn parts() -> Parts {
    let mut parts = Parts::default();
    // The core.
    parts.add::<AtDispatch>();
    parts.add::<Drivers>();
    parts.add::<Faults>();
    parts.add::<Findings>();
    parts.add::<NdkSteps>();
    parts.add::<Mutex<Images>>();
    parts.add::<Mutex<Pins>>();
    parts.add::<Mutex<NdkMemory>>();
    parts.add::<Recordings>();
    parts.add::<Mutex<Tracked>>();
    // WDM.
    parts.add::<Mutex<SpinLocks>>();
    parts.add::<Mutex<SharedLocks>>();
    parts.add::<LockWaits>();
    parts.add::<Mutex<wdm::bug_check_callbacks::BugCheckCallbacks>>();
    parts.add::<Mutex<Callbacks>>();
    parts.add::<LastTime>();
    parts.add::<Mutex<Resolution>>();
    parts.add::<Mutex<wdm::extended_state::Saved>>();
    parts.add::<Mutex<wdm::paging::Sections>>();
    parts.add::<Mutex<RunningDpcs>>();
    parts.add::<Mutex<wdm::event_object::EventObjects>>();
    parts.add::<Mutex<wdm::power_setting::Settings>>();
    parts.add::<Mutex<wdm::processor_change::Registrations>>();
    parts.add::<Mutex<ExTimers>>();
    parts.add::<Mutex<Handles>>();
    parts.add::<Mutex<IoSpace>>();
    parts.add::<Mutex<Mdls>>();
    parts.add::<Mutex<Notifications>>();
    parts.add::<Mutex<Keys>>();
    parts.add::<Mutex<Hive>>();
    parts.add::<Mutex<wdm::device_keys::Instances>>();
    parts.add::<Mutex<Files>>();
    parts.add::<Mutex<Rundowns>>();
    parts.add::<Mutex<SystemCallbacks>>();
    parts.add::<Mutex<Threads>>();
    parts.add::<Mutex<wdm::process::Running>>();
    parts.add::<Mutex<wdm::references::References>>();
    parts.add::<Mutex<wdm::wmi::DataBlocks>>();
    parts.add::<Mutex<wdm::generic_table::Tables>>();
    parts.add::<Mutex<Providers>>();
    parts.add::<Mutex<Events>>();
    parts.add::<Mutex<Stacks>>();
    parts.add::<CancelLock>();
    parts.add::<Mutex<Devices>>();
    parts.add::<Mutex<OpenedFiles>>();
    parts.add::<BusIsLate>();
    parts.add::<crate::wdf::sent::BusIsLate>();
    parts.add::<Mutex<PowerStates>>();
    parts.add::<Mutex<io::request::Requests>>();
    parts.add::<Mutex<io::work_item::WorkItems>>();
    // The framework.
    parts.add::<Mutex<Objects>>();
    parts.add::<Mutex<Nodes>>();
    parts.add::<Mutex<Inits>>();
    parts.add::<Mutex<Completed>>();
    parts.add::<Mutex<Extensions>>();
    parts.add::<Mutex<Interfaces>>();
    parts.add::<Mutex<DeviceTimers>>();
    parts.add::<Mutex<io::device_queue::Entries>>();
    parts.add::<Mutex<io::start_io::Starts>>();
    parts.add::<Mutex<LogEntries>>();
    parts.add::<Mutex<Seen>>();
    // The network stack and Winsock Kernel.
    parts.add::<Mutex<Net>>();
    parts.add::<Mutex<netio::changes::Listeners>>();
    parts.add::<Mutex<Tables>>();
    parts.add::<Mutex<Clients>>();
    parts.add::<Mutex<Going>>();
    parts.add::<Mutex<Carrier>>();
    parts.add::<Mutex<Joined>>();
    parts.add::<Mutex<Delivery>>();
    parts.add::<Mutex<Names>>();
    parts.add::<Mutex<PendedRequests>>();
    parts.add::<Mutex<ProgramSockets>>();
    parts.add::<Mutex<Sockets>>();
    // NDIS.
    parts.add::<Mutex<Miniports>>();
    parts.add::<Mutex<NdisClients>>();
    parts.add::<Mutex<Bindings>>();
    parts.add::<Mutex<Binds>>();
    parts.add::<Mutex<Adapters>>();
    parts.add::<Mutex<Configurations>>();
    parts.add::<Mutex<ndis::configuration::Written>>();
    parts.add::<Mutex<ControlDevices>>();
    parts.add::<Mutex<ndis::ndk::Listeners>>();
    parts.add::<Mutex<ndis::oid::Requests>>();
    parts.add::<Mutex<ndis::module::Modules>>();
    parts.add::<Mutex<ndis::filter_oid::Clones>>();
    parts.add::<Mutex<Pools>>();
    parts.add::<Mutex<ndis::net_buffer::BufferPools>>();
    parts.add::<Mutex<ndis::list_context::Contexts>>();
    parts.add::<Mutex<ndis::clone::Clones>>();
    parts.add::<Mutex<ndis::data_start::DataStarts>>();
    parts.add::<Mutex<Sends>>();
    parts.add::<Mutex<ndis::work_item::WorkItems>>();
    parts.add::<Mutex<ndis::timer::Timers>>();
    parts.add::<Mutex<ndis::rw_lock::RwLocks>>();
    parts.add::<Mutex<ndis::generic_object::GenericObjects>>();
    parts
}

/// Has messages, faults of the processor and the framework's table lead here, once.
fn install() {
    report::begin(ending);
    #[cfg(unix)]
    crate::violation::install_handler();
    #[cfg(unix)]
    crate::wdf::install();
    #[cfg(windows)]
    crate::image::traps::install();
}

impl Kernel {
    /// A kernel whose processors are threads.
    pub const fn threads() -> Builder {
        Builder {
            seed: None,
            processors: 4,
            preemption: 20,
            pace: 1,
            dpc_limit: Duration::from_secs(2),
            dispatch_limit: Duration::from_mins(2),
            hang_limit: Duration::from_mins(1),
            turn_limit: Duration::from_mins(5),
        }
    }

    /// A kernel in which a seed decides what happens next. The same seed, the same run.
    pub const fn seeded(seed: u64) -> Builder {
        Builder { seed: Some(seed), ..Self::threads() }
    }
}
