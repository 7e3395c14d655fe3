//! `tracelogging` for drivers that are linked off Windows.
//!
//! That crate writes events on Windows only: elsewhere its provider is never enabled. A driver that is linked with a simulated kernel calls
//! this kernel's `EtwRegister` and `EtwWriteTransfer`, as an image does, so that both are heard in one place. Only the provider is here;
//! the macros, and what they make of an event, are those of `tracelogging`. A driver's crate has this one under that name.
//!
//! One static provider may be that of several drivers that are linked into one program, of which one is loaded at a time.

#![no_std]

use core::{
    ffi::c_void,
    sync::atomic::{
        AtomicI32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

pub use tracelogging::{Channel, Guid, InType, Level, Opcode, OutType, define_provider, write_event};

use self::_internal::{EventDataDescriptor, EventDescriptor};

/// What the macros name.
#[doc(hidden)]
pub mod _internal {
    pub use tracelogging::_internal::{
        EventDataDescriptor, EventDescriptor, counted_size, meta_as_bytes, slice_count, tag_encode, tag_size,
    };

    pub use super::{provider_new, provider_write_transfer};
}

/// `PETWENABLECALLBACK`.
type EnableCallback = unsafe extern "C" fn(*const Guid, u32, u8, u64, u64, *const c_void, *const c_void);

unsafe extern "C" {
    fn EtwRegister(id: *const Guid, callback: EnableCallback, context: *const c_void, handle: *mut u64) -> i32;
    fn EtwUnregister(handle: u64) -> i32;
    fn EtwSetInformation(handle: u64, class: u32, information: *const u8, length: u32) -> i32;
    fn EtwWriteTransfer(
        handle: u64,
        descriptor: *const EventDescriptor,
        activity: Option<&[u8; 16]>,
        related: Option<&[u8; 16]>,
        count: u32,
        data: *const EventDataDescriptor<'_>,
    ) -> i32;
}

/// Nobody listens.
const NOBODY: i32 = -1;

/// A provider of events.
#[derive(Debug)]
pub struct Provider {
    meta: &'static [u8],
    id: Guid,
    /// Zero without a registration.
    handle: AtomicU64,
    /// What a session listens to.
    level: AtomicI32,
    any_of: AtomicU64,
    all_of: AtomicU64,
}

impl Provider {
    /// The description of the provider, which is a part of each event.
    #[must_use]
    pub const fn raw_meta(&self) -> &[u8] {
        self.meta
    }

    /// Returns true if a session listens to events of that level with that keyword.
    #[must_use]
    pub fn enabled(&self, level: Level, keyword: u64) -> bool {
        if i32::from(level.as_int()) > self.level.load(Acquire) {
            return false;
        }
        let (any, all) = (self.any_of.load(Relaxed), self.all_of.load(Relaxed));
        keyword == 0 || keyword & any != 0 && keyword & all == all
    }

    /// Registers it, and returns the status. `PASSIVE_LEVEL`.
    ///
    /// A registration that is still there belongs to a kernel that has gone.
    ///
    /// # Safety
    ///
    /// It is unregistered before the driver is unloaded, and no other driver that shares it is loaded.
    pub unsafe fn register(&'static self) -> u32 {
        /// `EventProviderSetTraits`.
        const TRAITS: u32 = 2;
        self.level.store(NOBODY, Release);
        let mut handle = 0;
        // SAFETY: the provider is static, and so is its identifier; the place lives until the call returns.
        let status = unsafe { EtwRegister(&raw const self.id, enable, (&raw const *self).cast(), &raw mut handle) };
        self.handle.store(handle, Release);
        if status == 0 {
            let length = u32::try_from(self.meta.len()).unwrap_or(0);
            // Without them the events are there all the same.
            // SAFETY: so many bytes, which are static.
            let _ = unsafe { EtwSetInformation(handle, TRAITS, self.meta.as_ptr(), length) };
        }
        status.cast_unsigned()
    }

    /// Unregisters it, if it is registered, and returns the status. `PASSIVE_LEVEL`.
    pub fn unregister(&self) -> u32 {
        self.level.store(NOBODY, Release);
        match self.handle.swap(0, Acquire) {
            0 => 0,
            // SAFETY: `EtwRegister` has made the handle, which is not used again.
            handle => unsafe { EtwUnregister(handle) }.cast_unsigned(),
        }
    }
}

/// A session begins to listen, or ends.
unsafe extern "C" fn enable(
    _source: *const Guid,
    control: u32,
    level: u8,
    any_of: u64,
    all_of: u64,
    _filter: *const c_void,
    provider: *const c_void,
) {
    // SAFETY: the context of the registration, which is a static provider.
    let provider = unsafe { &*provider.cast::<Provider>() };
    match control {
        0 => provider.level.store(NOBODY, Release),
        1 => {
            provider.any_of.store(any_of, Relaxed);
            provider.all_of.store(all_of, Relaxed);
            provider.level.store(level.into(), Release);
        }
        _ => {}
    }
}

/// For `define_provider!`: a provider that is not registered.
///
/// # Safety
///
/// Nothing is asked for. That of `tracelogging` is unsafe, and the macro calls it so.
#[doc(hidden)]
#[must_use]
pub const unsafe fn provider_new(meta: &'static [u8], id: &Guid) -> Provider {
    let [any_of, all_of, handle] = [const { AtomicU64::new(0) }; 3];
    Provider { meta, id: *id, handle, level: AtomicI32::new(NOBODY), any_of, all_of }
}

/// For `write_event!`: writes an event.
#[doc(hidden)]
#[must_use]
pub fn provider_write_transfer(
    provider: &Provider,
    descriptor: &EventDescriptor,
    activity: Option<&[u8; 16]>,
    related: Option<&[u8; 16]>,
    data: &[EventDataDescriptor<'_>],
) -> u32 {
    let count = u32::try_from(data.len()).unwrap_or(0);
    // SAFETY: as many parts, which live until the call returns, as do the descriptor and the identifiers. The handle is registered, or zero,
    // to which nobody listens.
    unsafe { EtwWriteTransfer(provider.handle.load(Acquire), descriptor, activity, related, count, data.as_ptr()) }
        .cast_unsigned()
}
