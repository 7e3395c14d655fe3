//! The kernel's strings.

use wdk_sys::UNICODE_STRING;

/// The UTF-16 code units of an ASCII string, for a constant.
///
/// ```
/// const NAME: [u16; 3] = kernel::wide("ndk");
/// assert_eq!(NAME, [0x6e, 0x64, 0x6b]);
/// ```
///
/// # Panics
///
/// When compiled, if `text` is not `N` ASCII characters.
#[must_use]
pub const fn wide<const N: usize>(text: &str) -> [u16; N] {
    let bytes = text.as_bytes();
    assert!(bytes.len() == N, "the array has another length than the string");
    let mut units = [0; N];
    let mut index = 0;
    while index < N {
        assert!(bytes[index].is_ascii(), "only ASCII has one code unit for each byte");
        units[index] = bytes[index] as u16;
        index += 1;
    }
    units
}

/// [`wide`] with a zero behind it, for [`terminated`]: `N` is one more than the string has characters.
///
/// # Panics
///
/// When compiled, if `text` is not `N - 1` ASCII characters.
#[must_use]
pub const fn wide_terminated<const N: usize>(text: &str) -> [u16; N] {
    let bytes = text.as_bytes();
    assert!(bytes.len() + 1 == N, "the array has another length than the string and a zero");
    let mut units = [0; N];
    let mut index = 0;
    while index < bytes.len() {
        assert!(bytes[index].is_ascii(), "only ASCII has one code unit for each byte");
        units[index] = bytes[index] as u16;
        index += 1;
    }
    units
}

/// Makes a `UNICODE_STRING` of `units`, which must outlive it, without the zero that they end with: it is there, and not counted.
#[must_use]
pub fn terminated(units: &[u16]) -> UNICODE_STRING {
    let whole = unicode(units);
    UNICODE_STRING { Length: whole.Length.saturating_sub(2), ..whole }
}

/// Makes a `UNICODE_STRING` of `units`, which must outlive it. A string that is too long for the structure is cut.
#[must_use]
pub fn unicode(units: &[u16]) -> UNICODE_STRING {
    let bytes = u16::try_from(size_of_val(units)).unwrap_or(u16::MAX - 1);
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_ptr().cast_mut() }
}
