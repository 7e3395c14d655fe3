//! The machine that runs the suite.

mod adapter;
mod connecting;
mod link;
mod mirror;
mod posts;
mod proxy;
mod pump;
mod queues;
mod request;

use alloc::{boxed::Box, vec::Vec};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
    sync::atomic::Ordering::{Acquire, Release},
};

use conformance::platform::{CaseMemory, ExecutionContext, Family, PinnedMemory, Platform, Shape, Task};
use fallible::{Arc, try_box};
use ndkpi::{NDK_ADAPTER, NDK_OBJECT_TYPE, NDK_VERSION, NtStatus};

use self::{
    adapter::ADAPTER,
    link::Link,
    mirror::Mirrored,
    proxy::{Own, Proxy},
};
use crate::{
    Channel,
    lock::Lock,
    wire::{Answer, Call, Function, VERSION},
};

/// A platform with one adapter more than another: that of the other machine, the last number. The suite puts the other end of each
/// connection there.
pub struct WithPeer<'p> {
    inner: &'p dyn Platform,
    link: Arc<Link>,
    addresses: [Option<IpAddr>; 2],
    /// The proxies of open adapters.
    adapters: Lock<Vec<*mut Proxy>>,
    /// Taken by the thread that pumps.
    pumping: Lock<()>,
}

// SAFETY: the proxies of adapters are only compared and freed, by the thread that closes them.
unsafe impl Send for WithPeer<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for WithPeer<'_> {}

impl<'p> WithPeer<'p> {
    /// Greets the agent at the other end of the channel, which closes what it has from before. At `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`, `STATUS_NDIS_BAD_VERSION` if the agent has another version of the protocol, or the channel's
    /// status.
    pub fn try_new(inner: &'p dyn Platform, channel: &'p dyn Channel) -> Result<Self, NtStatus> {
        // SAFETY: `drop` calls `leave`, and both live longer than this.
        let link = Arc::try_new(unsafe { Link::new(inner, channel) })?;
        let mut this =
            Self { inner, link, addresses: [None; 2], adapters: Lock::new(Vec::new()), pumping: Lock::new(()) };
        let answer = this.link.send(&mut Call::try_new(Function::Hello, 0)?.word(0, VERSION))?;
        this.link.delivered.store(answer.word(1), Release);
        this.addresses = addresses(&answer);
        Ok(this)
    }

    /// Waits for events of the other machine, not longer than some tens of milliseconds, and makes their callbacks. `false` once
    /// [`WithPeer::end`] was called. One thread runs it in a loop, at `PASSIVE_LEVEL`, as long as cases run.
    ///
    /// # Errors
    ///
    /// The channel is dead, and what was open at the peer is closed.
    pub fn pump(&self) -> Result<bool, NtStatus> {
        let _pumping = self.pumping.lock(self.inner);
        pump::round(&self.link)
    }

    /// Ends the pump, whose last round may take some tens of milliseconds. Nothing may be open on the other machine's adapter.
    pub fn end(&self) {
        self.link.ended.store(true, Release);
        if self.link.dead().is_none()
            && let Ok(mut call) = Call::try_new(Function::Wake, 0)
        {
            let _ = self.link.send(&mut call);
        }
    }

    fn open_peer(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let mut adapters = self.adapters.lock(self.inner);
        adapters.try_reserve(1).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let asked = u64::from(version.Major) << 16 | u64::from(version.Minor);
        let answer = self.link.send(&mut Call::try_new(Function::OpenAdapter, 0)?.word(0, asked))?;
        answer.status().ok()?;
        let (handle, got) = (answer.word(0), answer.word(1));
        let version = NDK_VERSION::new((got >> 16) as u16, got as u16);
        let table = ptr::from_ref(&ADAPTER).cast();
        let proxy = Proxy::try_new(&self.link, NDK_OBJECT_TYPE::ADAPTER, version, table, Own::None, None);
        let proxy = proxy.inspect_err(|_| {
            let call = Call::try_new(Function::CloseAdapter, handle);
            let _ = call.and_then(|mut call| self.link.send(&mut call));
        })?;
        proxy.set_made(handle);
        let proxy = Box::into_raw(proxy);
        adapters.push(proxy);
        Ok(proxy.cast())
    }

    /// Closes an adapter of the other machine.
    fn close_peer(&self, proxy: *mut Proxy) -> bool {
        // SAFETY: the proxy was in the list of open adapters, and whoever took it out frees it.
        let proxy = unsafe { Box::from_raw(proxy) };
        let closed =
            Call::try_new(Function::CloseAdapter, proxy.handle()).and_then(|mut call| self.link.send(&mut call));
        let patience = self.inner.patience();
        // No callback comes after the close.
        let delivered = |count| self.inner.wait(patience, &|| self.has_delivered(count));
        let done = closed.map_or_else(|_| self.link.dead().is_some(), |answer| delivered(answer.word(0)));
        if !done {
            // Its objects may still be used.
            Box::leak(proxy);
        }
        done
    }

    fn has_delivered(&self, count: u64) -> bool {
        self.link.dead().is_some() || self.link.delivered.load(Acquire) >= count
    }
}

/// The addresses that the agent has told, IPv4 and IPv6.
fn addresses(answer: &Answer) -> [Option<IpAddr>; 2] {
    let Some((v4, rest)) = answer.tail().split_first_chunk::<4>() else { return [None; 2] };
    let v6 = rest.first_chunk::<16>();
    let has = |bit: u32| answer.word(2) >> bit & 1 != 0;
    [has(0).then(|| Ipv4Addr::from(*v4).into()), v6.filter(|_| has(1)).map(|address| Ipv6Addr::from(*address).into())]
}

impl Drop for WithPeer<'_> {
    fn drop(&mut self) {
        self.link.leave();
    }
}

impl Platform for WithPeer<'_> {
    fn adapters(&self) -> u32 {
        self.inner.adapters() + 1
    }

    fn open(&self, adapter: u32, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        if adapter == self.inner.adapters() { self.open_peer(version) } else { self.inner.open(adapter, version) }
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) -> bool {
        let ours = {
            let mut adapters = self.adapters.lock(self.inner);
            let place = adapters.iter().position(|proxy| ptr::addr_eq(*proxy, adapter));
            place.map(|place| adapters.swap_remove(place))
        };
        if let Some(proxy) = ours {
            return self.close_peer(proxy);
        }
        // SAFETY: the adapter came from `open` (the trait's `# Safety`), and is not the other machine's.
        unsafe { self.inner.close(adapter) }
    }

    fn address(&self, adapter: u32, family: Family) -> Option<IpAddr> {
        if adapter == self.inner.adapters() {
            return self.addresses[usize::from(family == Family::V6)];
        }
        self.inner.address(adapter, family)
    }

    fn memory(&self, shape: Shape, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        self.inner.memory(shape, length)
    }

    fn case_memory(&self, shape: Shape, length: usize) -> Result<Box<dyn CaseMemory>, NtStatus> {
        Ok(try_box(Mirrored::try_new(&self.link, self.inner.memory(shape, length)?, shape)?)?)
    }

    fn take_excuse(&self) -> Option<&'static str> {
        self.link.take_excuse()
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
        let there = Call::try_new(Function::Settle, 0).and_then(|mut call| self.link.send(&mut call));
        self.inner.settle();
        if let Ok(answer) = there {
            let _ = self.inner.wait(self.inner.patience(), &|| self.has_delivered(answer.word(0)));
        }
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
