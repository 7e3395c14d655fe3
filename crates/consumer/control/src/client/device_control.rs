//! How a request reaches a driver.

use std::fmt;

/// Carries requests to a control device.
pub trait DeviceControl {
    /// Sends a control code with `input` and receives the answer in `output`.
    ///
    /// # Errors
    ///
    /// The driver, or the system on the way to it, refused.
    fn control(&self, code: u32, input: &[u8], output: &mut [u8]) -> Result<Answer, Refusal>;
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of bytes.
    pub length: usize,
    /// The answer was truncated.
    pub more: bool,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such device: the driver is not installed, or its device is not started.
    NotThere,
    /// Only administrators can open it.
    Denied,
    /// The driver is doing something else.
    Busy,
    /// The driver waits for something, `ndktest` for a provider.
    NotReady,
    /// The driver does not accept the values.
    Invalid,
    /// The driver cannot do this.
    NotSupported,
    /// The driver's answer does not fit the request.
    Nonsense,
    /// Another error, with the system's number.
    Other(i32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotThere => "there is no such device: the driver is not installed, or its device is not started",
            Self::Denied => "only administrators may do this",
            Self::Busy => "a run is going on already",
            Self::NotReady => "the driver is not ready: it finds no provider",
            Self::Invalid => "the driver does not accept these values",
            Self::NotSupported => "the driver cannot do this",
            Self::Nonsense => "the driver's answer is none; program and driver are of different versions",
            Self::Other(number) => return write!(f, "the system says {number}"),
        })
    }
}

impl std::error::Error for Refusal {}
