//! Who has an adapter open: what the open and close handlers of NDK do (`NDIS-NDK 4`).

use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire},
};

use fallible::Arc;
use kernel::Rundown;
use ndkpi::{NDIS_OPEN_NDK_ADAPTER_PARAMETERS, NDK_ADAPTER, NDK_VERSION, NtStatus};
use recorder::Recorder;

use crate::{
    advise::{self, Advice, Advise, Advising},
    controls::Controls,
    fault_plan::{self, InjectedFaults, Pulled},
    os::Kernel,
    presence::{Fail, Presence},
    record::{self, Recordings},
    trace,
};

/// The consumers of one adapter.
pub struct Consumers {
    provider: Arc<provider::Device<Kernel>>,
    /// Everybody who has the adapter open is inside.
    users: Rundown,
    presence: Arc<Presence>,
    open: AtomicU32,
    /// Opens so far.
    opened: AtomicU32,
    faults: Arc<InjectedFaults>,
    advise: Arc<Advising>,
    advice: Advice,
    recordings: Arc<Recordings>,
}

impl Consumers {
    /// Nobody has the adapter open, and nobody can open it yet. `fail` is how plug and play hears that a fault has pulled it.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(provider: Arc<provider::Device<Kernel>>, controls: &Controls, fail: Fail) -> Result<Self, NtStatus> {
        Ok(Self {
            provider,
            users: Rundown::try_new()?,
            presence: Arc::try_new(Presence::new(fail))?,
            open: AtomicU32::new(0),
            opened: AtomicU32::new(0),
            faults: controls.faults().clone(),
            advise: controls.advising().clone(),
            advice: Advice::try_new()?,
            recordings: controls.recordings().clone(),
        })
    }

    /// The adapter of plug and play that it is, or none any more.
    #[must_use]
    pub fn presence(&self) -> &Presence {
        &self.presence
    }

    /// What the adviser has found of the consumers.
    #[must_use]
    pub const fn advice(&self) -> &Advice {
        &self.advice
    }

    /// The adapter behind it.
    #[must_use]
    pub const fn provider(&self) -> &Arc<provider::Device<Kernel>> {
        &self.provider
    }

    /// How many `NDK_ADAPTER`s are open.
    #[must_use]
    pub fn open_count(&self) -> u32 {
        self.open.load(Acquire)
    }

    /// Returns true if consumers can open the adapter.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.presence.is_ready()
    }

    /// Lets consumers open the adapter, or lets no more of them. Those that have it open keep it. `IRQL <= DISPATCH_LEVEL`.
    pub fn set_ready(&self, ready: bool) {
        self.presence.set_ready(ready);
    }

    /// Opens an `NDK_ADAPTER`. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `NDIS_STATUS_ADAPTER_NOT_READY` while the adapter is not [ready](Self::set_ready), and for good after
    /// [`Consumers::shut`]; `NDIS_STATUS_BAD_VERSION`; `STATUS_INSUFFICIENT_RESOURCES`, which is `NDIS_STATUS_RESOURCES`.
    pub fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let permit = self.users.enter().filter(|_| self.is_ready()).ok_or(NtStatus::NDIS_ADAPTER_NOT_READY)?;
        let mut adapter = provider::Device::open(&self.provider, version)?;
        if let Err(status) = self.put_layers(&mut adapter) {
            // SAFETY: the adapter was just opened; nothing was made on it.
            unsafe { close_layers(adapter) };
            return Err(status);
        }
        let open = self.open.fetch_add(1, AcqRel) + 1;
        trace::opened(version, open);
        // Given back by `close`.
        permit.keep();
        Ok(adapter)
    }

    /// Puts in front of an adapter of the provider what there is to be: faults; then the adviser, the recorder, or one layer of
    /// both: the recorder sees what the consumer sees. After an error the layers that were put are there.
    fn put_layers(&self, adapter: &mut *mut NDK_ADAPTER) -> Result<(), NtStatus> {
        let consumer = self.opened.fetch_add(1, AcqRel).wrapping_add(1);
        let pulled = || Pulled::new(self.provider.clone(), self.presence.clone());
        // SAFETY: the adapter was just opened, and nobody else has it.
        *adapter = unsafe { self.faults.wrap(*adapter, consumer, pulled) }?;
        *adapter = match (self.advise.now(), self.recordings.running()) {
            (Advise::Off, None) => return Ok(()),
            // SAFETY: what `faults` returned wraps the adapter that was just opened; nobody else has it.
            (Advise::Off, Some(ring)) => unsafe { record::wrap(*adapter, ring) }?,
            // SAFETY: what `faults` returned wraps the adapter that was just opened; nobody else has it.
            (Advise::On(mode), ring) => unsafe { self.advice.wrap(mode, *adapter, ring) }?,
        };
        Ok(())
    }

    /// [`Consumers::open`], as `OPEN_NDK_ADAPTER_HANDLER` has it. `STATUS_INVALID_PARAMETER` for a null pointer.
    ///
    /// # Safety
    ///
    /// `parameters` is null or begins with a version; `opened` is null or a place for a pointer.
    pub unsafe fn serve_open(
        &self,
        parameters: *const NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
        opened: *mut *mut NDK_ADAPTER,
    ) -> NtStatus {
        if parameters.is_null() || opened.is_null() {
            return NtStatus::INVALID_PARAMETER;
        }
        // A structure of NDIS 6.30 ends after the version, so there must be no reference to all of it.
        // SAFETY: not null, so it is the caller's structure, which begins with the version.
        let version = unsafe { parameters.cast::<NDK_VERSION>().read() };
        match self.open(version) {
            Ok(new) => {
                // SAFETY: not null, so it is the caller's place for the adapter.
                unsafe { opened.write(new) };
                NtStatus::SUCCESS
            }
            Err(status) => {
                trace::refused(version, status);
                status
            }
        }
    }

    /// Closes an `NDK_ADAPTER`; waits until everything that was created from it is closed. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    ///
    /// `adapter` came from [`Consumers::open`] of this adapter and is not used after this call.
    pub unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: `adapter` came from `open`, so the layers are those of `put_layers`; it is not used after this call.
        unsafe { close_layers(adapter) };
        let open = self.open.fetch_sub(1, AcqRel) - 1;
        trace::closed(open);
        self.users.leave();
    }

    /// Lets nobody open the adapter any more, for good, and waits until everybody has closed it. `PASSIVE_LEVEL`.
    pub fn shut(&self) {
        self.set_ready(false);
        if self.open_count() != 0 {
            trace::waiting(self.open_count());
        }
        self.users.shut();
    }
}

/// Closes an adapter, whichever layers are in front of it. `PASSIVE_LEVEL`.
///
/// # Safety
///
/// `adapter` came from [`provider::Device::open`] or [`Consumers::put_layers`], and is not used after this call.
unsafe fn close_layers(adapter: *mut NDK_ADAPTER) {
    let close = |adapter| {
        // SAFETY: the adapter of the provider, which nobody uses any more.
        unsafe { provider::Device::<Kernel>::close(adapter) };
    };
    let close = |adapter| {
        // SAFETY: the adapter behind the adviser, the recorder or both, which nobody uses any more.
        unsafe { interpose::close_through::<fault_plan::Layer, _>(adapter, close) };
    };
    let close = |adapter| {
        // SAFETY: the adapter, unless there is another layer in front of it: then that is no adviser without a recorder.
        unsafe { interpose::close_through::<advise::Layer, _>(adapter, close) };
    };
    let close = |adapter| {
        // SAFETY: as above: then that is no recorder without an adviser.
        unsafe { interpose::close_through::<Recorder<Kernel>, _>(adapter, close) };
    };
    // SAFETY: the outermost layers that `put_layers` puts are one of these three; the adapter is not used after this call.
    unsafe { interpose::close_through::<advise::RecordedLayer, _>(adapter, close) };
}
