//! Which adapters a program gets: the driver's, or some in its own process.

use std::fmt::{self, Display};

use nd2::BackEnd;

/// What programs open to reach the driver.
pub const DEVICE: &str = r"\\.\SoftNdkNd";

/// Where a program's adapters are.
#[derive(Debug)]
pub enum Choice<T, E> {
    /// In the driver, which is reached by this.
    Driver(T),
    /// In the process: because of this, or because the settings say so.
    Process(Option<E>),
}

/// Chooses as the settings say. `open` opens the driver's device, and is not called if nobody asks for it.
///
/// # Errors
///
/// What `open` says, if nothing but the driver will do.
pub fn choose<T, E>(wanted: BackEnd, open: impl FnOnce() -> Result<T, E>) -> Result<Choice<T, E>, E> {
    match (wanted, open) {
        (BackEnd::Process, _) => Ok(Choice::Process(None)),
        (BackEnd::Driver, open) => open().map(Choice::Driver),
        (BackEnd::Auto, open) => Ok(open().map_or_else(|error| Choice::Process(Some(error)), Choice::Driver)),
    }
}

impl<T, E: Display> Display for Choice<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(_) => write!(f, "driver: {DEVICE}"),
            Self::Process(None) => f.write_str("process: the setting `backend` says so"),
            Self::Process(Some(why)) => write!(f, "process: {DEVICE} cannot be used: {why}"),
        }
    }
}
