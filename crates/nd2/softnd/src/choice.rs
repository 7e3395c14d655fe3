//! Which adapters a program gets: the driver's, or some in its own process.

use std::{
    fmt::{self, Display},
    str::FromStr,
};

/// Where a program's adapters are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// In the driver if its device is there and can be opened, and in the process if not.
    #[default]
    Auto,
    /// In the driver: other processes and kernel consumers are on the same fabric.
    Driver,
    /// In the process, with a fabric of its own.
    Process,
}

impl Wanted {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Driver, Self::Process];

    /// What it is called in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Driver => "driver",
            Self::Process => "process",
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Not the name of a back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownBackEnd;

impl fmt::Display for UnknownBackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("auto, driver or process")
    }
}

impl std::error::Error for UnknownBackEnd {}

impl FromStr for Wanted {
    type Err = UnknownBackEnd;

    fn from_str(name: &str) -> Result<Self, UnknownBackEnd> {
        Self::ALL.into_iter().find(|back_end| back_end.name() == name).ok_or(UnknownBackEnd)
    }
}

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
pub fn choose<T, E>(wanted: Wanted, open: impl FnOnce() -> Result<T, E>) -> Result<Choice<T, E>, E> {
    match (wanted, open) {
        (Wanted::Process, _) => Ok(Choice::Process(None)),
        (Wanted::Driver, open) => open().map(Choice::Driver),
        (Wanted::Auto, open) => Ok(open().map_or_else(|error| Choice::Process(Some(error)), Choice::Driver)),
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
