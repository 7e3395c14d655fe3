//! Adapters.

use alloc::boxed::Box;
use core::{
    any::Any,
    mem::forget,
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use fallible::Arc;
use ndkpi::{NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_VERSION, NtStatus};

use crate::{
    object::slot,
    os::{Event, PinnedMemory, Runtime},
};

/// The state of an adapter that everything created from it shares.
///
/// # Invariants
///
/// `raw` is an open adapter as long as `open` is not zero.
pub struct AdapterCore {
    raw: *mut NDK_ADAPTER,
    pub(crate) version: NDK_VERSION,
    info: NDK_ADAPTER_INFO,
    os: Box<dyn Runtime>,
    /// The number of [`Adapter`]s and [`AdapterRef`]s.
    open: AtomicUsize,
    /// Set when `open` becomes zero.
    empty: Box<dyn Event>,
    /// An [`Adapter`] exists, which will close it.
    owned: AtomicBool,
}

// SAFETY: an adapter's functions may be called on any thread, as NDKPI's are in general; the rest is `Send` and `Sync`.
unsafe impl Send for AdapterCore {}
// SAFETY: as for `Send`.
unsafe impl Sync for AdapterCore {}

impl AdapterCore {
    pub(crate) const fn raw(&self) -> *mut NDK_ADAPTER {
        self.raw
    }

    pub(crate) fn os(&self) -> &dyn Runtime {
        &*self.os
    }

    pub(crate) const fn has(&self, flags: u32) -> bool {
        self.info.AdapterFlags & flags == flags
    }
}

/// Keeps an adapter open.
pub struct AdapterRef(Arc<AdapterCore>);

impl AdapterRef {
    /// A reference for a new object, from an object that has one.
    pub fn of(core: &Arc<AdapterCore>) -> Self {
        // The caller has a reference, so the count is not zero and the adapter is open.
        core.open.fetch_add(1, Relaxed);
        Self(core.clone())
    }

    pub const fn core(&self) -> &Arc<AdapterCore> {
        &self.0
    }
}

impl Drop for AdapterRef {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, AcqRel) == 1 {
            // The core owns the event, and this still has a reference to it.
            self.0.empty.set();
        }
    }
}

/// An open adapter.
///
/// Dropping it waits until everything created from it is closed and no callback runs any more; after that a driver may unload
/// (`NDKPI 7.9`, rule 5). So drop it last, at `PASSIVE_LEVEL`, never in a callback. In a structure make it the last field: Rust
/// drops fields in declaration order. If it is dropped where waiting is not allowed, the adapter stays open for ever.
pub struct Adapter {
    core: Arc<AdapterCore>,
    /// What has to outlive the open adapter: the machine, on a host. Dropped when the adapter has closed.
    keeps: Option<Box<dyn Any + Send + Sync>>,
}

impl Adapter {
    /// Takes over an open adapter. `os` will close it. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// The status of `NdkQueryAdapterInfo`, or `STATUS_INSUFFICIENT_RESOURCES`. The adapter is then closed.
    ///
    /// # Safety
    ///
    /// `raw` is an open adapter whose provider keeps the rules of NDKPI (`NDKPI 7`), for example from `WskOpenNdkAdapter`, and
    /// one that [`Runtime::close`] of `os` can close. Nobody else closes it or what is created from it here.
    pub unsafe fn from_raw(raw: *mut NDK_ADAPTER, os: Box<dyn Runtime>) -> Result<Self, NtStatus> {
        // SAFETY: `raw` is open, its provider keeps the rules of NDKPI, and `os` can close it (`# Safety`).
        let core = unsafe { AdapterCore::new(raw, os) }?;
        let core = Arc::try_new(core)?;
        core.owned.store(true, Relaxed);
        Ok(Self { core, keeps: None })
    }

    /// Keeps something until the adapter has closed.
    #[cfg(feature = "host")]
    pub(crate) fn keep(&mut self, keeps: Box<dyn Any + Send + Sync>) {
        self.keeps = Some(keeps);
    }

    pub(crate) const fn core(&self) -> &Arc<AdapterCore> {
        &self.core
    }

    pub(crate) fn reference(&self) -> AdapterRef {
        AdapterRef::of(&self.core)
    }

    /// The version in force (`NDKPI 1`).
    #[must_use]
    pub fn version(&self) -> NDK_VERSION {
        self.core.version
    }

    /// The limits and flags of the adapter (`NDKPI 3.11`).
    #[must_use]
    pub fn info(&self) -> &NDK_ADAPTER_INFO {
        &self.core.info
    }

    /// Returns true if the adapter has all of these flags (`NDKPI 2.6`).
    #[must_use]
    pub fn has(&self, flags: u32) -> bool {
        self.core.has(flags)
    }

    /// The number of objects and mappings of this adapter that are still open. Dropping the adapter waits for them.
    #[must_use]
    pub fn open_objects(&self) -> usize {
        self.core.open.load(Acquire) - 1
    }

    /// Allocates zeroed memory that can be registered. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn memory(&self, length: usize) -> Result<Box<dyn PinnedMemory>, NtStatus> {
        self.core.os.memory(length)
    }
}

impl AdapterCore {
    /// # Safety
    ///
    /// Like [`Adapter::from_raw`].
    unsafe fn new(raw: *mut NDK_ADAPTER, os: Box<dyn Runtime>) -> Result<Self, NtStatus> {
        let empty = match os.event() {
            Ok(empty) => empty,
            Err(status) => {
                // SAFETY: the adapter is open and this is what closes it (`# Safety`).
                unsafe { os.close(raw) };
                return Err(status);
            }
        };
        // SAFETY: the adapter is open.
        let version = unsafe { (*raw).Header.Version };
        let info = NDK_ADAPTER_INFO::default();
        let owned = AtomicBool::new(false);
        let mut this = Self { raw, version, info, os, open: AtomicUsize::new(1), empty, owned };
        let query = slot!(raw, NdkQueryAdapterInfo)?;
        let mut size = u32::try_from(size_of::<NDK_ADAPTER_INFO>()).unwrap_or(0);
        // SAFETY: the adapter is open, the information has as many bytes as the size says, and the caller is at
        // `PASSIVE_LEVEL`.
        unsafe { query(raw, &raw mut this.info, &raw mut size) }.ok()?;
        Ok(this)
    }
}

impl Drop for AdapterCore {
    fn drop(&mut self) {
        if !*self.owned.get_mut() {
            // SAFETY: no `Adapter` came about, so the adapter is still open and nothing was made of it.
            unsafe { self.os.close(self.raw) };
        }
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        let core = &self.core;
        if !core.os.may_wait() {
            return forget(self.keeps.take());
        }
        if core.open.fetch_sub(1, AcqRel) != 1 {
            while core.open.load(Acquire) != 0 {
                core.empty.wait();
            }
        }
        // SAFETY: everything that was made of the adapter has begun to close, and nobody can use the adapter any more: an
        // `AdapterRef` is made from another one or from this `Adapter`, and there is none.
        unsafe { core.os.close(core.raw) };
    }
}

impl core::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Adapter")
            .field("version", &self.core.version)
            .field("raw", &self.core.raw)
            .finish_non_exhaustive()
    }
}
