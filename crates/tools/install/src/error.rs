//! Why Windows has not done something.

use std::fmt;

use serde::Serialize;

/// A call of Windows that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The call.
    pub call: &'static str,
    /// Its error: a number of Windows, of `SetupAPI` or of COM; zero if there is none.
    pub code: u32,
    /// The error in words, in Windows' own where it has some.
    pub text: String,
}

impl Fault {
    /// A call that failed with this number.
    pub fn new(call: &'static str, code: u32, text: impl Into<String>) -> Self {
        Self { call, code, text: text.into() }
    }

    /// What to do about it, if that is known.
    #[must_use]
    pub const fn remedy(&self) -> Option<&'static str> {
        Some(match self.code {
            5 | 0x8007_0005 => "run it from an elevated prompt",
            // ERROR_DRIVER_BLOCKED, ERROR_INVALID_IMAGE_HASH
            1275 | 577 | 0x8007_04FB | 0x8007_0241 => {
                "Windows does not accept the signature: `bcdedit /set testsigning on` and a restart"
            }
            // TRUST_E_NOSIGNATURE, SPAPI_E_NO_AUTHENTICODE... and their numbers in SetupAPI.
            0x800B_0100 | 0xE000_022F | 0x800F_022F => {
                "the package has no signed catalog: `cargo make drivers` makes one"
            }
            // CERT_E_UNTRUSTEDROOT, CERT_E_CHAINING, SPAPI_E_AUTHENTICODE_TRUST_NOT_ESTABLISHED,
            // SPAPI_E_AUTHENTICODE_PUBLISHER_NOT_TRUSTED
            0x800B_0109 | 0x800B_010A | 0xE000_0242 | 0x800F_0242 | 0xE000_0243 | 0x800F_0243 => {
                "the machine does not trust who signed it: give the certificate (--certificate)"
            }
            // ERROR_HASH..., TRUST_E_BAD_DIGEST: a file was changed after the catalog was made.
            0x8009_6010 => "a file is not the one that was signed: build the package again",
            // ERROR_IN_WOW64
            0xE000_0235 => "use the ndkctl of this machine's own processor",
            // ERROR_NO_SUCH_DEVINST
            0xE000_020B => "no device has this hardware identifier any more: run it again",
            // ERROR_OBJECT_ALREADY_EXISTS
            5010 => "another interface has this address: --addresses chooses others",
            _ => return None,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.text)?;
        if self.code != 0 {
            write!(f, " ({})", Code(self.code))?;
        }
        if let Some(remedy) = self.remedy() {
            write!(f, ": {remedy}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

/// An error's number as people look for it: small ones decimal.
struct Code(u32);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0x1_0000 { write!(f, "error {}", self.0) } else { write!(f, "error {:#010X}", self.0) }
    }
}
