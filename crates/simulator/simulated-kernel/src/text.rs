//! Strings of the kernel.

use wdk_bindings::{PCUNICODE_STRING, UNICODE_STRING};

use crate::{report::bug_check, rule::Rule};

/// The code units of a driver's string. Empty if there is none.
pub fn units(string: PCUNICODE_STRING) -> Vec<u16> {
    // SAFETY: null or the driver's string, which lives until the call returns.
    let Some(string) = (unsafe { string.as_ref() }) else { return Vec::new() };
    of(string)
}

/// The code units of a string.
pub fn of(string: &UNICODE_STRING) -> Vec<u16> {
    if !string.Length.is_multiple_of(2) || string.Length > string.MaximumLength {
        bug_check(Rule::BadArgument, format_args!("a string of {} of {} bytes", string.Length, string.MaximumLength));
    }
    if string.Length == 0 {
        return Vec::new();
    }
    // SAFETY: the string says that it has as many bytes.
    unsafe { std::slice::from_raw_parts(string.Buffer, usize::from(string.Length / 2)) }.to_vec()
}

/// The string as text.
pub fn text(string: PCUNICODE_STRING) -> String {
    String::from_utf16_lossy(&units(string))
}

/// A string that ends with a zero. Empty if there is none.
pub fn wide(string: *const u16) -> String {
    if string.is_null() {
        return String::new();
    }
    let mut units = Vec::new();
    loop {
        // SAFETY: the driver's string ends with a zero, which was not met yet.
        let unit = unsafe { string.wrapping_add(units.len()).read() };
        if unit == 0 {
            return String::from_utf16_lossy(&units);
        }
        units.push(unit);
    }
}

/// A string of the kernel for `units`, which must outlive it.
pub fn unicode(units: &[u16]) -> UNICODE_STRING {
    let bytes = u16::try_from(size_of_val(units)).unwrap_or(0);
    UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: units.as_ptr().cast_mut() }
}

/// Where the name of a device may end in a path: what stands in front, and what behind, which begins with a backslash or is empty. The
/// shortest first, as the system looks for it.
pub fn parted(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let ends = path.match_indices('\\').map(|(at, _)| at).filter(|&at| at > 0);
    ends.chain(std::iter::once(path.len())).map(|at| path.split_at(at))
}
