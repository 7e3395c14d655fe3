//! The adviser in front of an adapter (`docs/adviser.md`): off, unless the registry says otherwise.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use control::provider_device::ADVISER_MODES;
use fallible::Arc;
use interpose::{
    Function, ObjectId,
    adviser::{Adviser, Finding, Mode, Report, Settings, Sink, Step, Totals},
};
use ndkpi::{NDK_ADAPTER, NDK_OPERATION_TYPE, NtStatus};
use provider::Reason;
use recorder::{Findings, Recorder, Ring};
use wdk_sys::ntddk::KeBugCheckEx;

use crate::{os::Kernel, trace};

/// The code with which the adviser stops the machine, if it is told to: one that Windows does not have.
///
/// Its parameters are the number of the finding, the type and the number of the object, and the function (`docs/adviser.md`).
pub const BUGCHECK: u32 = 0x534E_4144;

/// What the adviser does with what it finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advise {
    /// It is not there.
    #[default]
    Off,
    /// It is.
    On(Mode),
}

impl Advise {
    /// By the number in the registry; off for every other one.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::On(Mode::Log),
            2 => Self::On(Mode::Count),
            3 => Self::On(Mode::Break),
            4 => Self::On(Mode::Bugcheck),
            _ => Self::Off,
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::On(Mode::Log) => 1,
            Self::On(Mode::Count) => 2,
            Self::On(Mode::Break) => 3,
            Self::On(Mode::Bugcheck) => 4,
        }
    }
}

/// What the adviser of a driver does with what it finds of a consumer that opens an adapter from now on: as the registry says, until a
/// program says otherwise.
pub struct Advising(AtomicU32);

impl Advising {
    /// As the registry says.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(advise: Advise) -> Result<Arc<Self>, NtStatus> {
        Ok(Arc::try_new(Self(AtomicU32::new(advise.number())))?)
    }

    /// What it does now.
    #[must_use]
    pub fn now(&self) -> Advise {
        Advise::from_number(self.0.load(Relaxed))
    }

    /// Takes the input of a request.
    ///
    /// # Errors
    ///
    /// `STATUS_INVALID_PARAMETER` for a value out of range; then nothing has changed.
    pub fn set(&self, wanted: &control::provider_device::Adviser) -> Result<(), NtStatus> {
        if !ADVISER_MODES.contains(&wanted.mode) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.0.store(wanted.mode, Relaxed);
        Ok(())
    }

    /// The answer to `QUERY_ADVICE`. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn answer<'a>(&self, advice: &(impl Iterator<Item = &'a Advice> + Clone)) -> Result<Vec<u8>, NtStatus> {
        let mut bytes = Vec::new();
        let room = control::provider_device::Advice::BYTES + Finding::ALL.len() * size_of::<u32>();
        bytes.try_reserve_exact(room).map_err(|_| NtStatus::INSUFFICIENT_RESOURCES)?;
        let count = u32::try_from(Finding::ALL.len()).unwrap_or(u32::MAX);
        let head = control::provider_device::Advice { mode: self.now().number(), count };
        bytes.extend_from_slice(&head.to_bytes());
        for finding in Finding::ALL {
            let of_all = advice.clone().map(|advice| advice.totals.of(*finding)).fold(0, u32::wrapping_add);
            bytes.extend_from_slice(&of_all.to_le_bytes());
        }
        Ok(bytes)
    }
}

/// Traces what is found, notes it in the recording, if one goes on, and stops where that is wanted.
pub struct Tracer {
    recorded: Option<Findings<Kernel>>,
}

impl Sink for Tracer {
    fn report(&self, report: &Report<'_>) {
        trace::finding(report);
        if let Some(recorded) = &self.recorded {
            recorded.record(report);
        }
    }

    fn failed(&self, function: Function, object: ObjectId, status: NtStatus) {
        trace::failure(function.name(), object, status, Reason::of_call(function.name(), status));
    }

    fn request_failed(&self, kind: Option<NDK_OPERATION_TYPE>, cq: ObjectId, status: NtStatus) {
        let reason = kind.and_then(|kind| Reason::of_request(kind, status));
        let name = kind.and_then(NDK_OPERATION_TYPE::name).unwrap_or("request");
        trace::failure(name, cq, status, reason);
    }

    fn follows(&self) -> bool {
        trace::is_following()
    }

    fn follow(&self, step: &Step<'_>) {
        trace::step(step);
    }

    fn break_in(&self) {
        // What the compiler's `__debugbreak` is.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: enters the debugger, which goes on behind it; without one the machine stops, as the setting says.
        unsafe {
            core::arch::asm!("int3");
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: enters the debugger, as `int3` does on the other architecture.
        unsafe {
            core::arch::asm!("brk #0xF000");
        }
    }

    fn bugcheck(&self, report: &Report<'_>) {
        let kind = u64::from(report.object.kind.0.cast_unsigned());
        let (finding, object) = (u64::from(report.finding.number()), u64::from(report.object.number));
        // SAFETY: stops the machine, as the setting says. `IRQL` does not matter.
        unsafe { KeBugCheckEx(BUGCHECK, finding, kind, object, report.function as u64) };
    }
}

/// The layer with the adviser.
pub type Layer = Adviser<Kernel, Tracer>;

/// The layer with the recorder, and the adviser behind it.
///
/// One layer, because the adviser keeps closed objects for a while: a recorder's own layer in front of it would look for what it knows of
/// an object in memory that is free, before the adviser names the use after the close.
pub type RecordedLayer = (Recorder<Kernel>, Layer);

/// What the adviser has found on an adapter.
pub struct Advice {
    totals: Arc<Totals>,
    sink: Arc<Tracer>,
}

impl Advice {
    /// Nothing yet.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new() -> Result<Self, NtStatus> {
        Ok(Self { totals: Arc::try_new(Totals::default())?, sink: Arc::try_new(Tracer { recorded: None })? })
    }

    /// How often each finding was made.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Puts the adviser in front of an adapter that was just opened, with a recorder if there is a ring for it. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`: then the adapter is as it was.
    ///
    /// # Safety
    ///
    /// `adapter` is open, and nobody else has it.
    pub unsafe fn wrap(
        &self,
        mode: Mode,
        adapter: *mut NDK_ADAPTER,
        ring: Option<Arc<Ring>>,
    ) -> Result<*mut NDK_ADAPTER, NtStatus> {
        let settings = Settings { mode, ..Settings::default() };
        let adviser = |sink| Adviser::new(Kernel, settings, sink, self.totals.clone());
        let Some(ring) = ring else {
            // SAFETY: `adapter` is open and nobody else's (`# Safety`), which is what `wrap` asks for.
            return unsafe { interpose::wrap(adapter, adviser(self.sink.clone())) };
        };
        let recorded = Findings::new(Kernel, ring.clone(), recorder::Adviser::Behind);
        let sink = Arc::try_new(Tracer { recorded: Some(recorded) })?;
        let hooks: RecordedLayer = (Recorder::new(Kernel, ring), adviser(sink));
        // SAFETY: `adapter` is open and nobody else's (`# Safety`), which is what `wrap` asks for.
        unsafe { interpose::wrap(adapter, hooks) }
    }
}
