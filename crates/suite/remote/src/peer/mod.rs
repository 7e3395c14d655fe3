//! The machine that runs the suite.

use alloc::boxed::Box;
use core::{fmt, net::IpAddr};

use conformance::platform::{ExecutionContext, Family, PinnedMemory, Platform, Shape, Task};
use ndkpi::{NDK_ADAPTER, NDK_VERSION, NtStatus};

use crate::Channel;

/// A platform with one adapter more than another: that of the other machine, the last number. The suite puts the other end of each
/// connection there.
pub struct WithPeer<'p> {
    inner: &'p dyn Platform,
    channel: &'p dyn Channel,
}

impl<'p> WithPeer<'p> {
    /// Greets the agent at the other end of the channel, which closes what it has from before.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_NDIS_BAD_VERSION` if the agent has another version of the protocol, or the channel's status.
    pub fn try_new(inner: &'p dyn Platform, channel: &'p dyn Channel) -> Result<Self, NtStatus> {
        Ok(Self { inner, channel })
    }

    /// Waits for events of the other machine, not longer than some tens of milliseconds, and makes their callbacks. `false` once
    /// [`WithPeer::end`] was called. One thread runs it in a loop, at `PASSIVE_LEVEL`, as long as there are open adapters.
    ///
    /// # Errors
    ///
    /// The channel is dead, and everything that was open has been closed.
    pub fn pump(&self) -> Result<bool, NtStatus> {
        let _ = self.channel;
        Err(NtStatus::NOT_SUPPORTED)
    }

    /// Ends the pump. Nothing may be open on the other machine's adapter.
    pub fn end(&self) {}
}

impl Platform for WithPeer<'_> {
    fn adapters(&self) -> u32 {
        self.inner.adapters() + 1
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        self.inner.open(adapter, version)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        // SAFETY: the adapter came from `open` (the trait's `# Safety`).
        unsafe { self.inner.close(adapter) }
    }

    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr> {
        self.inner.address(adapter, family)
    }

    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        self.inner.memory(shape, length)
    }

    fn peer(&self) -> Option<u32> {
        Some(self.inner.adapters())
    }

    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn patience(&self) -> u64 {
        self.inner.patience()
    }

    fn timeouts(&self) -> Option<u64> {
        self.inner.timeouts()
    }

    fn wait(&self, limit: u64, until: &dyn Fn() -> bool) -> bool {
        self.inner.wait(limit, until)
    }

    fn dwell(&self, until: &dyn Fn() -> bool) -> bool {
        self.inner.dwell(until)
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn sleep(&self, micros: u64) {
        self.inner.sleep(micros);
    }

    fn raised(&self, work: &mut dyn FnMut()) {
        self.inner.raised(work);
    }

    fn execution_context(&self) -> ExecutionContext {
        self.inner.execution_context()
    }

    fn processors(&self) -> u32 {
        self.inner.processors()
    }

    fn run(&self, tasks: &mut [&mut dyn Task]) -> Result<(), NtStatus> {
        self.inner.run(tasks)
    }

    fn inspect_callback(&self) -> Result<(), &'static str> {
        self.inner.inspect_callback()
    }

    fn cancelled(&self) -> bool {
        self.inner.cancelled()
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        self.inner.log(line);
    }
}
