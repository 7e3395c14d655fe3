//! `ndkctl explain STATUS_CANCELLED`: a status, and what this provider means by it.

use std::fmt::Write as _;

use ndkpi::NtStatus;
use provider::Reason;

use super::about;
use crate::output::labelled;

/// The status of this name, with `STATUS_` or without, or of this number: hexadecimal after 0x, or decimal as the system's
/// structures have it.
pub fn parse(text: &str) -> Option<NtStatus> {
    let upper = text.to_ascii_uppercase();
    let named = |name: &str| NtStatus::NAMED.iter().copied().find(|status| status.name() == Some(name));
    named(&upper).or_else(|| named(&format!("STATUS_{upper}"))).or_else(|| number(&upper))
}

fn number(upper: &str) -> Option<NtStatus> {
    if let Some(digits) = upper.strip_prefix("0X") {
        return u32::from_str_radix(digits, 16).ok().map(NtStatus::from_bits);
    }
    // Small numbers are those of findings.
    let number: i64 = upper.parse().ok()?;
    let is_failure = number < 0 || number > i64::from(i32::MAX);
    let bits = i32::try_from(number).map(i32::cast_unsigned).or_else(|_| u32::try_from(number)).ok()?;
    is_failure.then(|| NtStatus::from_bits(bits))
}

/// The page of a status.
pub fn page(status: NtStatus) -> String {
    let kind = match status {
        status if status.is_pending() => "not known yet: a completion follows",
        status if status.is_success() => "a success",
        status if status.is_warning() => "a warning",
        _ => "an error",
    };
    let name = status.name().unwrap_or("a status without a name here");
    let mut text = format!("{name}  {:#010X}, {}  ({kind})\n\n", status.to_bits(), status.0);
    let reasons: Vec<_> = Reason::ALL.iter().filter(|reason| reason.status == status).collect();
    if reasons.is_empty() {
        text.push_str("SoftNDK's provider never fails a call or a request with it.\n");
    }
    for reason in reasons {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{reason} ({})", reason.section);
        text.push_str(&labelled(2, &[("of", &about(reason)), ("why", reason.what), ("fix", reason.fix)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use ndkpi::NtStatus;

    use super::{page, parse};

    #[test]
    fn a_status_is_named_in_each_form_in_which_it_is_printed() {
        for text in [
            "STATUS_CANCELLED",
            "status_cancelled",
            "cancelled",
            "0xC0000120",
            "0xc0000120",
            "3221225760",
            "-1073741536",
        ] {
            assert_eq!(parse(text), Some(NtStatus::CANCELLED), "{text}");
        }
        for text in ["", "3", "SN0003", "0x", "0x1C0000120", "STATUS_NO_SUCH", "99999999999"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_has_the_reasons_of_the_status() {
        let text = page(NtStatus::INVALID_PARAMETER);
        assert!(text.starts_with("STATUS_INVALID_PARAMETER  0xC000000D, -1073741811  (an error)"), "{text}");
        assert!(text.contains("SR0") && text.contains("why"), "{text}");
        assert!(page(NtStatus::from_bits(0xC0FF_EE00)).contains("without a name"));
    }
}
