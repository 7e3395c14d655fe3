//! The host's platform with a layer between suite and provider (`interpose`).

use std::{
    boxed::Box,
    fmt,
    net::IpAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use host::HostOs;
use interpose::Hooks;
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};

use super::platform::{HostPlatform, Setup};
use crate::{
    Case, Outcome, Run,
    platform::{ExecutionContext, Family, PinnedMemory, Platform, Shape, Task},
    runner,
};

/// Makes the hooks for an adapter that is opened.
pub type MakeHooks<H> = Box<dyn Fn(&HostOs) -> H + Send + Sync>;

/// A platform whose adapters are those of another one, each behind a layer.
pub struct Interposed<H: Hooks<Os = HostOs>> {
    platform: Arc<HostPlatform>,
    make: MakeHooks<H>,
}

impl<H: Hooks<Os = HostOs>> Interposed<H> {
    /// Puts a layer with these hooks in front of every adapter that is opened.
    #[must_use]
    pub fn new(platform: &Arc<HostPlatform>, make: MakeHooks<H>) -> Self {
        Self { platform: platform.clone(), make }
    }
}

impl<H: Hooks<Os = HostOs>> Platform for Interposed<H> {
    fn adapters(&self) -> u32 {
        self.platform.adapters()
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let provider = self.platform.open(adapter, version)?;
        let os = self.platform.devices().first().map(|device| device.os().clone());
        let hooks = os.map(|os| (self.make)(&os)).ok_or(NtStatus::INTERNAL_ERROR)?;
        // SAFETY: the adapter was just opened, and nobody else has it.
        let wrapped = unsafe { interpose::wrap(provider, hooks) };
        if wrapped.is_err() {
            // SAFETY: the adapter was just opened; nothing was made on it.
            unsafe { self.platform.close(provider) };
        }
        wrapped
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        let close = |provider| {
            // SAFETY: the provider's adapter, which `open` has opened and nobody uses any more.
            unsafe { self.platform.close(provider) }
        };
        // SAFETY: the adapter came from `open`, and is not used after the call (`# Safety` of the trait).
        unsafe { interpose::close::<H, _>(adapter, close) }.unwrap_or(false)
    }

    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr> {
        self.platform.address(adapter, family)
    }

    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        self.platform.memory(shape, length)
    }

    fn now(&self) -> u64 {
        self.platform.now()
    }

    fn patience(&self) -> u64 {
        self.platform.patience()
    }

    fn timeouts(&self) -> Option<u64> {
        self.platform.timeouts()
    }

    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        self.platform.wait(limit, until)
    }

    fn dwell(&self, until: &dyn Fn() -> bool) -> bool {
        self.platform.dwell(until)
    }

    fn settle(&self) {
        self.platform.settle();
    }

    fn sleep(&self, micros: u64) {
        self.platform.sleep(micros);
    }

    fn raised(&self, work: &mut dyn FnMut()) {
        self.platform.raised(work);
    }

    fn execution_context(&self) -> ExecutionContext {
        self.platform.execution_context()
    }

    fn processors(&self) -> u32 {
        self.platform.processors()
    }

    fn run(&self, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
        self.platform.run(tasks)
    }

    fn inspect_callback(&self) -> Result<(), &'static str> {
        self.platform.inspect_callback()
    }

    fn cancelled(&self) -> bool {
        self.platform.cancelled()
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.platform.log(line);
    }
}

/// Runs a case behind a layer, on a machine of its own. Also a case that fails has to leave nothing behind.
///
/// # Errors
///
/// In words: there is no machine, something has panicked, or something is left.
pub fn run_behind<H: Hooks<Os = HostOs>>(
    setup: Setup,
    case: &'static Case,
    how: Run,
    make: MakeHooks<H>,
) -> Result<Outcome, String> {
    let platform = HostPlatform::start(setup).map_err(|status| format!("no machine: {status}"))?;
    let platform = Arc::new(platform);
    let layer = Interposed::new(&platform, make);
    let outcome = catch_unwind(AssertUnwindSafe(|| runner::run(case, &layer, &how)));
    drop(layer);
    let panicked = platform.take_panic();
    let (Ok(outcome), None) = (outcome, &panicked) else {
        // Whatever still goes on may go on: the machine is left behind.
        std::mem::forget(platform);
        return Err(format!("a panic: {}", panicked.unwrap_or_else(|| "in the case".to_owned())));
    };
    let platform = Arc::into_inner(platform).ok_or("somebody still uses the machine")?;
    platform.finish().map_err(|left| format!("left behind: {left}"))?;
    Ok(outcome)
}
