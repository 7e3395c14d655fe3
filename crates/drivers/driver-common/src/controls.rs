//! What programs can ask of a provider driver and set while it runs (`control::provider_device`), whichever of them it is.

use control::provider_device::{
    Adviser, FAULT_PLAN_BYTES, Faults, QUERY_ADVICE, QUERY_CONNECTIONS, QUERY_COUNTERS, QUERY_FAULT_PLAN, QUERY_INFO,
    QUERY_RECORDING, QUERY_SETTINGS, QUERY_WIRES, READ_RECORDING, Recording, RecordingFrom, RecordingPart, SET_ADVISER,
    SET_FAULT_PLAN, SET_FAULTS, SET_RECORDING, SET_SETTINGS, Wire,
};
use engine::os::{Os, SpinLock};
use fallible::Arc;
use kernel::Buffered;
use ndkpi::NtStatus;

use crate::{
    advise::Advising,
    consumers::Consumers,
    fault_plan::InjectedFaults,
    faults,
    os::{Kernel, KernelLock},
    record::Recordings,
    report,
    settings::Settings,
    trace,
};

/// The settings in force, the faults, the recordings and the adviser of a driver.
pub struct Controls {
    settings: KernelLock<Settings>,
    faults: Arc<InjectedFaults>,
    recordings: Arc<Recordings>,
    advising: Arc<Advising>,
}

impl Controls {
    /// With the settings of the registry; a recording goes on if they say so. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`.
    pub fn try_new(settings: Settings) -> Result<Self, NtStatus> {
        Kernel::set_granularity(settings.moderation_granularity);
        Ok(Self {
            settings: Kernel.lock(settings)?,
            faults: InjectedFaults::try_new()?,
            recordings: Recordings::try_new(settings.record)?,
            advising: Advising::try_new(settings.advise)?,
        })
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings.with(|settings| *settings)
    }

    /// The faults in front of what is opened.
    #[must_use]
    pub const fn faults(&self) -> &Arc<InjectedFaults> {
        &self.faults
    }

    /// What is recorded of the consumers.
    #[must_use]
    pub const fn recordings(&self) -> &Arc<Recordings> {
        &self.recordings
    }

    /// What the adviser does.
    #[must_use]
    pub const fn advising(&self) -> &Arc<Advising> {
        &self.advising
    }

    /// Changes what can be changed while the driver runs, for every adapter.
    ///
    /// How requests complete, the timers, and the engine of queue pairs that are made from now on.
    fn set<'a>(
        &self,
        adapters: impl Iterator<Item = &'a Consumers>,
        new: &control::provider_device::Settings,
    ) -> Result<(), NtStatus> {
        let changed = self.settings.with(|settings| settings.change(new).map(|()| *settings))?;
        trace::settings(changed.to_control());
        Kernel::set_granularity(changed.moderation_granularity);
        for adapter in adapters {
            let provider = adapter.provider();
            provider.completions().set_mode(Settings::provider_mode(changed.completion_mode));
            provider.nic().set_mode(Settings::provider_nic(changed.nic_mode));
        }
        Ok(())
    }

    /// Answers a control code about these adapters, of which some have wires. `PASSIVE_LEVEL`.
    pub fn serve<'a>(
        &self,
        adapters: impl Iterator<Item = &'a Consumers> + Clone,
        wires: impl Iterator<Item = impl FnOnce() -> Wire>,
        mut request: impl Buffered,
        code: u32,
    ) {
        let providers = || adapters.clone().map(Consumers::provider);
        match code {
            QUERY_INFO => request.answer(&report::info(adapters).to_bytes()),
            QUERY_COUNTERS => request.answer(&report::counters(providers())),
            QUERY_CONNECTIONS => match report::connections(providers()) {
                Ok(bytes) => request.answer_cut(&bytes),
                Err(status) => request.finish(Err(status)),
            },
            QUERY_WIRES => match report::wires(wires) {
                Ok(bytes) => request.answer_cut(&bytes),
                Err(status) => request.finish(Err(status)),
            },
            QUERY_SETTINGS => request.answer(&self.settings().to_control().to_bytes()),
            SET_SETTINGS => {
                let new = request.input(control::provider_device::Settings::BYTES);
                let new = new.map(control::provider_device::Settings::from_bytes);
                let set = new.and_then(|new| self.set(adapters, &new.ok_or(NtStatus::INVALID_PARAMETER)?));
                request.finish(set);
            }
            SET_FAULTS => {
                let bytes = if faults::AVAILABLE { Faults::BYTES } else { 0 };
                let set = request.input(bytes).and_then(|input| faults::set(providers(), input));
                request.finish(set);
            }
            SET_ADVISER => {
                let wanted = request.input(Adviser::BYTES).map(Adviser::from_bytes);
                let set = wanted.and_then(|wanted| self.advising.set(&wanted.ok_or(NtStatus::INVALID_PARAMETER)?));
                request.finish(set);
            }
            QUERY_ADVICE => match self.advising.answer(&adapters.map(Consumers::advice)) {
                Ok(bytes) => request.answer_cut(&bytes),
                Err(status) => request.finish(Err(status)),
            },
            QUERY_FAULT_PLAN => request.answer(&self.faults.answer()),
            SET_FAULT_PLAN => {
                let set = request.input(FAULT_PLAN_BYTES).and_then(|input| self.faults.set(input));
                request.finish(set);
            }
            SET_RECORDING => {
                let wanted = request.input(Recording::BYTES).map(Recording::from_bytes);
                let set = wanted.and_then(|wanted| self.recordings.set(&wanted.ok_or(NtStatus::INVALID_PARAMETER)?));
                request.finish(set);
            }
            QUERY_RECORDING => request.answer(&self.recordings.state().to_bytes()),
            READ_RECORDING => {
                let from = request.input(RecordingFrom::BYTES).map(RecordingFrom::from_bytes);
                let from = from.and_then(|from| from.ok_or(NtStatus::INVALID_PARAMETER));
                let read = from.and_then(|from| self.recordings.read(&from, request.output(RecordingPart::BYTES)?));
                match read {
                    Ok(length) => request.complete(NtStatus::SUCCESS, length),
                    Err(status) => request.finish(Err(status)),
                }
            }
            _ => request.finish(Err(NtStatus::INVALID_DEVICE_REQUEST)),
        }
    }
}
