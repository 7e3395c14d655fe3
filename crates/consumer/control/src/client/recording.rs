//! Recordings of `softndk`.

use crate::provider_device::{
    QUERY_RECORDING, READ_RECORDING, Recording, RecordingFrom, RecordingPart, RecordingState, SET_RECORDING, SLOT_BYTES,
};

use super::{Answer, DeviceControl, ProviderDriver, Refusal};

/// The number of slots to read at a time.
const SLOTS: usize = 1 << 10;

/// The bytes of a slot.
pub type Slot = [u8; SLOT_BYTES];

impl<T: DeviceControl> ProviderDriver<T> {
    /// Starts a recording of all adapters opened from now on, or ends the running one if the number of slots is 0.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] for a value out of range; the driver is out of memory, or is gone.
    pub fn record(&self, wanted: &Recording) -> Result<(), Refusal> {
        self.transport.control(SET_RECORDING, &wanted.to_bytes(), &mut []).map(drop)
    }

    /// The state of the latest recording.
    ///
    /// # Errors
    ///
    /// The driver is gone; [`Refusal::Nonsense`] if it is of another version.
    pub fn recording(&self) -> Result<RecordingState, Refusal> {
        let mut room = [0; RecordingState::BYTES];
        let Answer { length, .. } = self.transport.control(QUERY_RECORDING, &[], &mut room)?;
        room.get(..length).and_then(RecordingState::from_bytes).ok_or(Refusal::Nonsense)
    }

    /// The slots of that recording that are available.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] if another one has started meanwhile; [`Refusal::Nonsense`] if the driver is of another version; it
    /// is gone.
    pub fn recorded(&self, state: &RecordingState) -> Result<Vec<Slot>, Refusal> {
        let (mut slots, mut ordinal) = (Vec::new(), state.first);
        let mut room = vec![0; RecordingPart::BYTES + SLOTS * SLOT_BYTES];
        while ordinal < state.end {
            let from = RecordingFrom { ordinal, generation: state.generation, reserved: 0 };
            let Answer { length, .. } = self.transport.control(READ_RECORDING, &from.to_bytes(), &mut room)?;
            let answer = room.get(..length).and_then(|answer| answer.split_at_checked(RecordingPart::BYTES));
            let (part, bytes) = answer.ok_or(Refusal::Nonsense)?;
            let part = RecordingPart::from_bytes(part).filter(|part| part.next > ordinal).ok_or(Refusal::Nonsense)?;
            slots.extend(bytes.chunks_exact(SLOT_BYTES).filter_map(|slot| Slot::try_from(slot).ok()));
            ordinal = part.next;
        }
        Ok(slots)
    }
}
