//! The engine's operating system on the Windows kernel: one file for each thing it asks for.

mod dpc;
mod lock;
mod memory;
mod place;
mod processor;
mod random;
mod timer;
mod worker;

use engine::os::{Affinity, Event, Os, Routine};
use ndkpi::{MDL, NtStatus};
use provider::{Holder, NdkOs, Note};
use wdk_sys::{PDRIVER_OBJECT, ntddk::KeQueryInterruptTimePrecise};

use crate::trace;

pub use self::{
    dpc::KernelDpc,
    lock::KernelLock,
    memory::{KernelMemory, system_address, virtual_address},
    timer::KernelTimer,
};

/// The Windows kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

impl Kernel {
    /// Finds out what does not change while the driver is loaded, has the system's clock tick as fast as it can, and starts a
    /// thread on each processor for calls that have had it for too long.
    ///
    /// Undone by [`Kernel::stop`], also after an error. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES` or what the kernel says of a thread.
    ///
    /// # Safety
    ///
    /// `driver` is the driver's object.
    pub unsafe fn start(driver: PDRIVER_OBJECT) -> Result<(), NtStatus> {
        // SAFETY: `driver` is the driver's object (`# Safety`).
        unsafe { place::remember(driver) };
        processor::count();
        random::seed();
        timer::raise_resolution();
        worker::start()
    }

    /// Sets the timer granularity, in microseconds.
    pub fn set_granularity(microseconds: u32) {
        timer::set_granularity(microseconds);
    }

    /// Undoes [`Kernel::start`], and waits for DPCs that have not returned yet. `PASSIVE_LEVEL`.
    pub fn stop() {
        timer::restore_resolution();
        worker::stop();
    }
}

impl Os for Kernel {
    type Lock<T: Send + 'static> = KernelLock<T>;
    type Dpc<R: Routine> = KernelDpc<R>;
    type Timer<R: Routine> = KernelTimer<R>;
    type Event = KernelEvent;
    type Memory = KernelMemory;

    fn lock<T: Send + 'static>(&self, value: T) -> Result<Self::Lock<T>, NtStatus> {
        Ok(KernelLock::new(value))
    }

    fn dpc<R: Routine>(&self, processor: u32) -> Result<Self::Dpc<R>, NtStatus> {
        KernelDpc::try_new(processor)
    }

    fn timer<R: Routine>(&self) -> Result<Self::Timer<R>, NtStatus> {
        KernelTimer::try_new()
    }

    fn event(&self) -> Result<Self::Event, NtStatus> {
        kernel::Event::try_new().map(KernelEvent)
    }

    fn processors(&self) -> u32 {
        processor::known()
    }

    fn current_processor(&self) -> u32 {
        processor::current()
    }

    fn processor_for(&self, affinity: Affinity) -> Option<u32> {
        processor::one_of(affinity)
    }

    fn now(&self) -> u64 {
        let mut counter = 0;
        // SAFETY: the place lives until the call returns. Interrupt time counts units of 100 nanoseconds.
        unsafe { KeQueryInterruptTimePrecise(&raw mut counter) / 10 }
    }

    fn timer_resolution(&self) -> u32 {
        timer::resolution()
    }

    fn random(&self) -> u32 {
        random::next()
    }
}

impl NdkOs for Kernel {
    unsafe fn memory_from_mdl(&self, mdl: *mut MDL, length: usize) -> Result<Self::Memory, NtStatus> {
        // SAFETY: `from_mdl` asks for what the trait asks for: a chain of locked pages that outlives the result.
        unsafe { KernelMemory::from_mdl(mdl.cast(), length) }
    }

    fn borrow(&self, holder: Holder, mdl: *mut MDL, length: usize) {
        trace::borrowed(self, holder, mdl, length);
    }

    fn give_back(&self, holder: Holder) {
        trace::given_back(holder);
    }

    fn note(&self, note: Note) {
        trace::note(note);
    }
}

/// A notification event.
pub struct KernelEvent(kernel::Event);

impl Event for KernelEvent {
    fn set(&self) {
        self.0.set();
    }

    fn wait(&self) {
        self.0.wait();
    }
}
