//! What a program gets for a control code.

use wdk_bindings::{NTSTATUS, STATUS_SUCCESS};

/// What a program gets for a control code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status of the request.
    pub status: NTSTATUS,
    /// The bytes of the answer.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// Returns true if the request succeeded.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.status == STATUS_SUCCESS
    }
}
