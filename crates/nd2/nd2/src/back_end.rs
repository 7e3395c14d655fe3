//! Where a program's adapters are.

use core::{fmt, str::FromStr};

/// Where a program's adapters are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackEnd {
    /// In the driver if its device is there and can be opened, and in the process if not.
    #[default]
    Auto,
    /// In the driver: other processes and kernel consumers are on the same fabric.
    Driver,
    /// In the process, with a fabric of its own.
    Process,
}

impl BackEnd {
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

impl fmt::Display for BackEnd {
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

impl core::error::Error for UnknownBackEnd {}

impl FromStr for BackEnd {
    type Err = UnknownBackEnd;

    fn from_str(name: &str) -> Result<Self, UnknownBackEnd> {
        Self::ALL.into_iter().find(|back_end| back_end.name() == name).ok_or(UnknownBackEnd)
    }
}
