//! The settings of `softndk`.

use crate::provider_device::{
    FAULT_PLAN_ANSWER_BYTES, FAULT_PLAN_BYTES, QUERY_FAULT_PLAN, QUERY_SETTINGS, SET_FAULT_PLAN, SET_SETTINGS, Settings,
};

use super::{Answer, Refusal, Transport};

/// The driver `softndk`.
pub struct ProviderDriver<T> {
    pub(super) transport: T,
}

impl<T: Transport> ProviderDriver<T> {
    /// The driver at the other end of `transport`.
    pub const fn new(transport: T) -> Self {
        Self { transport }
    }

    /// The transport to the driver.
    pub const fn transport(&self) -> &T {
        &self.transport
    }

    /// The settings in force.
    ///
    /// # Errors
    ///
    /// The driver is gone; [`Refusal::Nonsense`] if it is of another version.
    pub fn settings(&self) -> Result<Settings, Refusal> {
        let mut room = [0; Settings::BYTES];
        let Answer { length, .. } = self.transport.control(QUERY_SETTINGS, &[], &mut room)?;
        room.get(..length).and_then(Settings::from_bytes).ok_or(Refusal::Nonsense)
    }

    /// Applies `settings`.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] if a value is out of range; then nothing has changed.
    pub fn set(&self, settings: &Settings) -> Result<(), Refusal> {
        self.transport.control(SET_SETTINGS, &settings.to_bytes(), &mut []).map(drop)
    }

    /// The fault plan in force, as bytes, and for each of its eight rules the number of matching calls and of injected faults.
    ///
    /// # Errors
    ///
    /// The driver is gone; [`Refusal::Nonsense`] if it is of another version.
    pub fn fault_plan(&self) -> Result<([u8; FAULT_PLAN_BYTES], [[u64; 2]; 8]), Refusal> {
        let mut room = [0; FAULT_PLAN_ANSWER_BYTES];
        let Answer { length, .. } = self.transport.control(QUERY_FAULT_PLAN, &[], &mut room)?;
        let answer = room.get(..length).and_then(|answer| answer.split_first_chunk());
        let (plan, counts) = answer.filter(|_| length == room.len()).ok_or(Refusal::Nonsense)?;
        let mut numbers = counts.chunks_exact(8).filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        Ok((*plan, [(); 8].map(|()| [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)])))
    }

    /// Sets the fault plan for adapters opened from now on.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] if the plan is not valid for the driver's version; then nothing has changed.
    pub fn set_fault_plan(&self, plan: &[u8; FAULT_PLAN_BYTES]) -> Result<(), Refusal> {
        self.transport.control(SET_FAULT_PLAN, plan, &mut []).map(drop)
    }
}
