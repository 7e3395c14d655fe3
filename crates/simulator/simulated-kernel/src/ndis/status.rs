//! Statuses that miniports indicate.

use ndis::NDIS_STATUS;

/// A status that a miniport has indicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it is about, an `NDIS_STATUS`.
    pub code: NDIS_STATUS,
    /// More about it.
    pub bytes: Vec<u8>,
}
