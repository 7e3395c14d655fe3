//! The adviser of `softndk`.

use zerocopy::{FromBytes, little_endian::U32};

use super::{DeviceControl, ProviderDriver, Refusal};
use crate::provider_device::{Advice, Adviser, QUERY_ADVICE, SET_ADVISER};

/// Findings that there is room for at once.
const FINDINGS: usize = 128;

impl<T: DeviceControl> ProviderDriver<T> {
    /// Sets what the adviser does with what consumers do that open an adapter from now on.
    ///
    /// # Errors
    ///
    /// [`Refusal::Invalid`] for a value out of range; [`Refusal::NotSupported`] by a driver that is too old to know the question.
    pub fn set_adviser(&self, mode: u32) -> Result<(), Refusal> {
        self.transport.control(SET_ADVISER, &Adviser { mode }.to_bytes(), &mut []).map(drop)
    }

    /// What the adviser does now, and how often each finding was made, that of `SN0001` first.
    ///
    /// # Errors
    ///
    /// [`Refusal::NotSupported`] by a driver that is too old to know the question; [`Refusal::Nonsense`] if it is of another version.
    pub fn advice(&self) -> Result<(u32, Vec<u32>), Refusal> {
        let enough = |answer: &[u8]| {
            let head = Advice::from_bytes(answer.get(..Advice::BYTES)?)?;
            (head.count as usize).checked_mul(size_of::<u32>())?.checked_add(Advice::BYTES)
        };
        let answer = self.whole(QUERY_ADVICE, Advice::BYTES + FINDINGS * size_of::<u32>(), enough)?;
        let (head, counts) = answer.split_at_checked(Advice::BYTES).ok_or(Refusal::Nonsense)?;
        let head = Advice::from_bytes(head).ok_or(Refusal::Nonsense)?;
        let counts = <[U32]>::ref_from_bytes(counts).map_err(|_| Refusal::Nonsense)?;
        if counts.len() != head.count as usize {
            return Err(Refusal::Nonsense);
        }
        Ok((head.mode, counts.iter().map(|count| count.get()).collect()))
    }
}
