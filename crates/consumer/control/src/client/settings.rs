//! The settings of `softndk`.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, little_endian::U64};

use super::{Answer, DeviceControl, Refusal};
use crate::provider_device::{
    FAULT_PLAN_ANSWER_BYTES, FAULT_PLAN_BYTES, QUERY_FAULT_PLAN, QUERY_SETTINGS, SET_FAULT_PLAN, SET_SETTINGS, Settings,
};

/// The answer to `QUERY_FAULT_PLAN`.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FaultPlanAnswer {
    plan: [u8; FAULT_PLAN_BYTES],
    counts: [[U64; 2]; 8],
}

/// The driver `softndk`.
pub struct ProviderDriver<T> {
    pub(super) transport: T,
}

impl<T: DeviceControl> ProviderDriver<T> {
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
        let answer = room.get(..length).and_then(|answer| FaultPlanAnswer::ref_from_bytes(answer).ok());
        let FaultPlanAnswer { plan, counts } = answer.ok_or(Refusal::Nonsense)?;
        Ok((*plan, counts.map(|of_rule| of_rule.map(U64::get))))
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
