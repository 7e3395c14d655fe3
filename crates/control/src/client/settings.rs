//! The settings of `softndk`.

use crate::provider_device::{QUERY_SETTINGS, SET_SETTINGS, Settings};

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

    /// Puts `settings` in force.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] if a value is out of range; then nothing has changed.
    pub fn set(&self, settings: &Settings) -> Result<(), Refusal> {
        self.transport.control(SET_SETTINGS, &settings.to_bytes(), &mut []).map(drop)
    }
}
