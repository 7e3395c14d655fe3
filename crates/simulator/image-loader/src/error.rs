//! What can be wrong with an image.

use std::fmt;

/// Why an image cannot be loaded. Its text is one line, which says what to do where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is no image at all.
    NotAnImage,
    /// It is for another processor: the machine of its header.
    Machine(u16),
    /// It is a program or a library of user mode: the subsystem of its header.
    Subsystem(u16),
    /// It cannot be moved from the address that it was linked for.
    NoRelocations,
    /// Its sections are aligned to so many bytes, less than a page.
    Alignment(u32),
    /// So large that it is no driver: bytes in memory.
    TooLarge(u32),
    /// Something in it lies outside of the file or of the image, or contradicts something else.
    Broken {
        /// The part of the image.
        part: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Error {
    pub(crate) const fn broken(part: &'static str, problem: &'static str) -> Self {
        Self::Broken { part, problem }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotAnImage => write!(f, "it is no Windows image: give the .sys file that the linker made"),
            Self::Machine(machine) => {
                let of = match machine {
                    0x014C => "32-bit x86",
                    0x01C0 | 0x01C4 => "32-bit ARM",
                    0xAA64 => "ARM64",
                    0x0200 => "Itanium",
                    _ => return write!(f, "it is for an unknown processor ({machine:#06x}): build it for x64"),
                };
                write!(f, "it is for {of}: build it for x64")
            }
            Self::Subsystem(subsystem) => {
                write!(f, "its subsystem is {subsystem} and not 1: link it with /DRIVER and /SUBSYSTEM:NATIVE")
            }
            Self::NoRelocations => write!(f, "it has no relocations: link it without /FIXED"),
            Self::Alignment(bytes) => {
                write!(f, "its sections are aligned to {bytes} bytes: link it with /ALIGN:4096, the default")
            }
            Self::TooLarge(bytes) => write!(f, "it says that it takes {bytes} bytes of memory, more than 256 MiB"),
            Self::Broken { part, problem } => write!(f, "its {part} is broken: {problem}; link it again"),
        }
    }
}

impl std::error::Error for Error {}
