//! Every case of the self-test as a program of the simulated kernel: the client's code and the library's are those of any other run, and
//! behind them is the driver.
//!
//! Each case has a kernel, a driver and a process of its own. When it has ended the process ends, the adapters are removed and the driver
//! is unloaded, and nothing may be left.

use std::{
    cell::RefCell,
    ffi::c_void,
    ptr::NonNull,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use nd2::{CompletionPolicy, Config, abi::HRESULT};
use nd2_selftest::{
    Environment, Failure, Memory, Outcome, OverlappedHost, Schedule, cases,
    environment::{HERE, HERE_V6, THERE, first, second, shared},
    run_in,
};
use ndkpi::{GUID, NtStatus};
use simulated_kernel::{Device, Driver, Kernel, Process, Value};
use softndk::nd::access;
use testing::alone::in_a_process_of_its_own;

use crate::{library::ProcessTransport, world::World};

/// The longest that something may take before it is called a hang.
const PATIENCE: Duration = Duration::from_mins(1);

/// The provider on a simulated kernel, and a process.
struct Simulated {
    platform: OverlappedHost,
    config: Config,
    schedule: Schedule,
    /// `None` when it has ended.
    running: Option<Running>,
}

struct Running {
    transport: ProcessTransport,
    adapters: RefCell<Vec<Option<Device>>>,
    driver: Driver,
    kernel: Kernel,
}

/// The driver's `CompletionMode` for a policy.
const fn completion_mode(policy: CompletionPolicy) -> u32 {
    match policy {
        CompletionPolicy::Inline => 0,
        CompletionPolicy::Pending => 1,
        CompletionPolicy::Mixed => 3,
    }
}

fn change(number: u8, config: &mut Config) {
    if number == 1 {
        first(config);
    } else {
        second(config);
    }
    shared(config);
}

/// Lets everything happen that is going to: a DPC may queue another.
fn settle(kernel: &Kernel) {
    for _ in 0..6 {
        kernel.machine().flush();
    }
}

impl Simulated {
    fn start(schedule: Schedule, policy: CompletionPolicy) -> Self {
        let kernel = match schedule {
            Schedule::Threads => Kernel::threads(),
            Schedule::Seeded(seed, percent) => Kernel::seeded(seed).preemption(percent),
        };
        // There is one kernel at a time, and what is kept is of the driver on this one.
        let kernel = kernel.processors(2).start();
        access::open(change);
        let addresses = [format!("1={HERE}/24"), format!("1={HERE_V6}/64"), format!("2={THERE}/24")];
        let addresses = Value::list(&addresses.each_ref().map(String::as_str));
        let parameters = [("CompletionMode", Value::Number(completion_mode(policy))), ("Addresses", addresses)];
        let World { kernel, driver, adapters } = World::on(kernel, 2, &parameters);
        let config = access::adapter(1).map(|adapter| *adapter.config()).expect("the first adapter");
        assert_eq!(config.policy, policy);
        let platform = OverlappedHost::new(kernel.machine());
        let transport = ProcessTransport::open(kernel.process(), &platform).expect("a session");
        let adapters = RefCell::new(adapters.into_iter().map(Some).collect());
        let running = Some(Running { transport, adapters, driver, kernel });
        Self { platform, config, schedule, running }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("it has not ended")
    }

    fn process(&self) -> &Arc<Process> {
        self.running().transport.process()
    }
}

impl Running {
    /// Ends the process and unloads the driver. The kernel looks what is left of both.
    fn end(self) -> Result<(), Failure> {
        let Self { transport, adapters, driver, kernel } = self;
        settle(&kernel);
        let outstanding = transport.process().outstanding();
        let process = Arc::into_inner(transport.into_process()).expect("the library has let the process go");
        process.kill();
        driver.run(access::close);
        let adapters = adapters.into_inner().into_iter().flatten().collect();
        World { kernel, driver, adapters }.end();
        if outstanding == 0 { Ok(()) } else { Err(Failure::new(format!("{outstanding} requests are left"))) }
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        // A case has failed, which is what the test says.
        if !thread::panicking()
            && let Some(running) = self.running.take()
        {
            let _ = running.end();
        }
    }
}

impl Environment for Simulated {
    unsafe fn class_object(&self, iid: *const GUID, out: *mut *mut c_void) -> HRESULT {
        let transport = self.running().transport.clone();
        // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (the trait's `# Safety`).
        unsafe { softnd::driver::get_class_object(iid, out, || Ok(transport)) }
    }

    fn platform(&self) -> &OverlappedHost {
        &self.platform
    }

    fn schedule(&self) -> Schedule {
        self.schedule
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn every_request_pends(&self) -> bool {
        true
    }

    fn memory(&self, length: usize) -> Result<Memory, NtStatus> {
        let process = self.process();
        let bytes = NonNull::new(process.allocate_view(length)).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        let pages = Pages { process: Arc::downgrade(process), address: bytes.expose_provenance().get() as u64 };
        // SAFETY: the process keeps the memory until it is given back, and nobody makes references to it.
        Ok(unsafe { Memory::of(bytes, length, pages) })
    }

    fn remove(&self, number: usize) {
        let adapter = self.running().adapters.borrow_mut()[number].take();
        adapter.expect("an adapter that is there").surprise_remove();
    }

    unsafe fn break_queue(&self, queue: *mut c_void) -> Result<(), Failure> {
        // SAFETY: `queue` is null or a COM object (the trait's `# Safety`).
        let handle = unsafe { softnd::driver::queue_handle::<ProcessTransport>(queue) }.unwrap_or(0);
        let process = self.process().number();
        Ok(self.running().driver.run(|| access::break_completion_queue(process, handle))?)
    }

    fn references(&self) -> usize {
        self.running().driver.run(|| {
            let adapter = access::adapter(1).expect("the first adapter");
            // This one, and that of the test build.
            fallible::Arc::references_now(&adapter) - 2
        })
    }

    fn limits_reached(&self) -> Vec<(&'static str, u64)> {
        access::limits_reached().into_iter().flatten().collect()
    }

    fn settle(&self) {
        settle(&self.running().kernel);
    }

    fn wait(&self, what: &str, condition: &mut dyn FnMut() -> bool) -> bool {
        if let Schedule::Seeded(..) = self.schedule {
            self.process().wait_until(what, condition);
            return true;
        }
        // A program that polls.
        let started = Instant::now();
        while !condition() {
            if started.elapsed() > PATIENCE {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    fn let_pass(&self, time: u64) {
        self.running().kernel.sleep(time);
    }

    fn end(mut self: Box<Self>) -> Result<(), Failure> {
        self.running.take().map_or(Ok(()), Running::end)
    }
}

/// Memory of the process, until this is dropped.
struct Pages {
    process: Weak<Process>,
    address: u64,
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(process) = self.process.upgrade() {
            process.free(self.address);
        }
    }
}

/// What cases say that are about threads of the client, where a seed decides.
const ONLY_WITH_THREADS: &str = "only with threads";

/// These cases.
const OF_THREADS: [&str; 3] =
    ["notify.threads_in_parallel", "overlapped.cancel_by_several_threads", "overlapped.concurrent_waits"];

/// Runs every case. Those of threads do nothing with a seed, and no other leaves anything out.
fn every_case_passes(schedule: Schedule, policy: CompletionPolicy) {
    let mut left_out = Vec::new();
    for case in cases() {
        // What a bug check of the simulated kernel does not know.
        println!("{policy}, {schedule:?}: {}", case.name);
        let world = || nd2_selftest::World::on(Box::new(Simulated::start(schedule, policy)));
        let row = run_in(&case, world);
        match row.outcome {
            Outcome::Passed(seen) if seen == ONLY_WITH_THREADS => left_out.push(row.name),
            Outcome::Passed(_) => {}
            Outcome::Failed(seen) => panic!("{policy}, {schedule:?}: {} ({}): {seen}", row.name, row.place),
        }
    }
    let expected: &[&str] = if schedule == Schedule::Threads { &[] } else { &OF_THREADS };
    assert_eq!(left_out, expected, "{policy}, {schedule:?}");
}

#[test]
fn every_case_passes_in_a_process_when_requests_pend() {
    in_a_process_of_its_own("selftest::every_case_passes_in_a_process_when_requests_pend", || {
        every_case_passes(Schedule::Seeded(2, 30), CompletionPolicy::Pending);
    });
}

#[test]
fn every_case_passes_in_a_process_when_methods_answer() {
    in_a_process_of_its_own("selftest::every_case_passes_in_a_process_when_methods_answer", || {
        every_case_passes(Schedule::Seeded(4, 40), CompletionPolicy::Inline);
    });
}

#[test]
fn every_case_passes_in_a_process_when_nobody_knows() {
    in_a_process_of_its_own("selftest::every_case_passes_in_a_process_when_nobody_knows", || {
        every_case_passes(Schedule::Seeded(5, 0), CompletionPolicy::Mixed);
    });
}

#[test]
fn every_case_passes_in_a_process_with_threads() {
    in_a_process_of_its_own("selftest::every_case_passes_in_a_process_with_threads", || {
        every_case_passes(Schedule::Threads, CompletionPolicy::Mixed);
    });
}
