//! What the suite needs of its platform: a kernel, or a program on a host.

use alloc::boxed::Box;
use core::{fmt, net::IpAddr};

use ndkpi::{MDL, NDK_ADAPTER, NDK_VERSION, NtStatus};

/// The two families of addresses, both of which a provider has to support (`NDKPI 7.8`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// How the pages of a buffer are described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// By one MDL.
    Whole,
    /// By a chain of MDLs of this many bytes each, the last one perhaps shorter: one virtually contiguous range.
    Chained(usize),
    /// By a chain of two MDLs between which a page is left out: not contiguous, so registering has to fail. At least three
    /// pages long.
    Gap,
}

/// Pinned memory that can be registered. Its MDL describes it as the [`Shape`] says for which it was made.
pub use ndk::PinnedMemory;

/// The bytes of a case, which may be doubled on another machine: there, an adapter reads and writes the double.
pub trait CaseMemory: PinnedMemory {
    /// The case has written these bytes. At `PASSIVE_LEVEL`, unless the case writes them elsewhere.
    fn written(&self, offset: usize, length: usize) {
        let _ = (offset, length);
    }

    /// The case is about to read these bytes. At `PASSIVE_LEVEL`, unless the case reads them elsewhere.
    fn to_be_read(&self, offset: usize, length: usize) {
        let _ = (offset, length);
    }

    /// The address under which a peer reaches the first byte.
    fn peer_address(&self) -> u64 {
        self.address().addr() as u64
    }
}

/// Memory that is only here.
struct Here(Box<dyn PinnedMemory>);

// SAFETY: everything is as with the memory inside.
unsafe impl PinnedMemory for Here {
    fn mdl(&self) -> *mut MDL {
        self.0.mdl()
    }

    fn address(&self) -> *mut u8 {
        self.0.address()
    }

    fn length(&self) -> usize {
        self.0.length()
    }
}

impl CaseMemory for Here {}

/// What a [`Task`] has done in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something; there is more to do.
    Worked,
    /// Nothing, because it waits for others.
    Waits,
    /// Everything is done.
    Done,
}

/// Work that runs beside other work. It is cut into steps, so that a platform without threads can run several.
pub trait Task: Send {
    /// Does a little. Not called again after [`Step::Done`].
    fn step(&mut self) -> Step;
}

/// Where code runs: no two places are equal at the same time if the code runs at `DISPATCH_LEVEL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionContext {
    /// The thread.
    pub thread: usize,
    /// The processor.
    pub processor: u32,
}

/// Where the suite runs.
///
/// Everything is called at `PASSIVE_LEVEL` unless it says otherwise.
pub trait Platform: Sync {
    /// How many adapters can be opened; the first has the number 0.
    fn adapters(&self) -> u32;

    /// Opens an adapter, the way a consumer on this platform does.
    ///
    /// # Errors
    ///
    /// What the provider answers, or the platform.
    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus>;

    /// Closes an adapter. `false` if that does not come to an end; the platform may also wait for ever.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`Platform::open`] of this platform, and is not used after the call.
    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool;

    /// An address of an adapter.
    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr>;

    /// Memory to register.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus>;

    /// Memory for a case: [`Platform::memory`], unless some of the adapters are on another machine.
    ///
    /// # Errors
    ///
    /// As [`Platform::memory`].
    fn case_memory(&self, shape: Shape, length: usize) -> Result<Box<dyn CaseMemory>, NtStatus> {
        let here = fallible::try_box(Here(self.memory(shape, length)?));
        Ok(here.map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?)
    }

    /// The number of the adapter that the other end of each connection is on, if that is to be a certain one: it is on another
    /// machine. By default the suite chooses.
    fn peer(&self) -> Option<u32> {
        None
    }

    /// Why the case that has just run says nothing, whatever its outcome: for example that it does at `DISPATCH_LEVEL` what on this
    /// platform has to wait. Asked once after each case, and forgotten then.
    fn take_excuse(&self) -> Option<&'static str> {
        None
    }

    /// Microseconds since some moment in the past. At any `IRQL <= DISPATCH_LEVEL`.
    fn now(&self) -> u64;

    /// How long, in microseconds, the suite waits at most for something that has to happen.
    fn patience(&self) -> u64 {
        5_000_000
    }

    /// How long, in microseconds, the suite waits at most for the provider to give a connection up that does not come about or
    /// does not end; `None` leaves those cases out.
    fn timeouts(&self) -> Option<u64> {
        None
    }

    /// Waits until `until` holds, but not longer than `limit` microseconds. Whether it holds.
    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool;

    /// Like [`Platform::wait`], from inside a callback: without sleeping, and for a short time only. A platform on which others
    /// cannot go on meanwhile returns at once.
    fn dwell(&self, until: &dyn Fn() -> bool) -> bool;

    /// Waits until the provider has certainly done what it has begun, and a callback that should not come would have come.
    fn settle(&self);

    /// Waits.
    fn sleep(&self, micros: u64);

    /// Runs `work` at `DISPATCH_LEVEL`, without changing the processor.
    fn raised(&self, work: &mut dyn FnMut());

    /// Where the caller runs. At any `IRQL <= DISPATCH_LEVEL`.
    fn execution_context(&self) -> ExecutionContext;

    /// The number of processors.
    fn processors(&self) -> u32;

    /// Runs tasks at the same time, if possible on different processors, until all are done.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES` if there are no threads for them.
    fn run(&self, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus>;

    /// Looks at the circumstances of a callback, which has just begun: for platforms that know more than the suite.
    ///
    /// # Errors
    ///
    /// What is wrong, for example that a lock is held.
    fn inspect_callback(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// Returns true if the suite is to end. At any `IRQL <= DISPATCH_LEVEL`.
    fn cancelled(&self) -> bool {
        false
    }

    /// Logs a line, for finding the cause of a failure. At `PASSIVE_LEVEL`, never in a callback.
    fn log(&self, line: fmt::Arguments<'_>) {
        let _ = line;
    }
}
