//! Findings in the consumer's terms: functions and lines where symbols are known, without the provider's own frames in front of them.

use std::{fmt::Write as _, path::Path};

use runner::report::ImageOffset;

use super::observed::is_provider;

/// The words of a finding, with the places that have a name by their names: `OpenSide (side.c:120)` for `consumer.sys+0x16d6`.
///
/// Of a list of places those of the provider are left out that lead to somebody else's.
pub fn name(words: &str, places: &[ImageOffset]) -> String {
    let mut named = words.to_owned();
    for place in places {
        let written = format!("{}+{:#x}", place.image, place.offset);
        if is_provider(&place.image) {
            named = replaced(&named, &written, |behind| behind.strip_prefix(", ").map(|rest| (String::new(), rest)));
        } else if let Some(name) = name_of(place) {
            named = replaced(&named, &written, |behind| Some((name.clone(), behind)));
        }
    }
    named
}

/// The function and the line of a place; of the file only its name, as the whole path stands below.
fn name_of(place: &ImageOffset) -> Option<String> {
    let mut name = place.function.clone()?;
    if let Some(file) = &place.file {
        // A path of Windows in an image that was built there.
        let file = Path::new(file.rsplit('\\').next().unwrap_or(file)).file_name()?.to_string_lossy();
        let line = place.line.map_or_else(String::new, |line| format!(":{line}"));
        let _ = write!(name, " ({file}{line})");
    }
    Some(name)
}

/// Replaces `written` wherever it stands alone and `by` says with what, and what stands behind it then.
fn replaced<'words>(
    words: &'words str,
    written: &str,
    by: impl Fn(&'words str) -> Option<(String, &'words str)>,
) -> String {
    let (mut text, mut rest) = (String::with_capacity(words.len()), words);
    while let Some(at) = rest.find(written) {
        let (before, behind) = (&rest[..at], &rest[at + written.len()..]);
        let is_longer = behind.starts_with(|letter: char| letter.is_ascii_hexdigit());
        // A script's own name for an image stands before it: `consumer-wrong.sys:consumer+0x10` is one place.
        let is_part = before.ends_with(|letter: char| letter.is_alphanumeric() || "-_.:".contains(letter));
        text.push_str(before);
        if let Some((name, behind)) = by(behind).filter(|_| !is_longer && !is_part) {
            text.push_str(&name);
            rest = behind;
        } else {
            text.push_str(written);
            rest = behind;
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use runner::report::ImageOffset;

    use super::name;

    fn place(image: &str, offset: u32, function: Option<&str>) -> ImageOffset {
        ImageOffset {
            image: image.to_owned(),
            offset,
            is_return: true,
            function: function.map(str::to_owned),
            file: function.map(|_| "C:\\src\\side.c".to_owned()),
            line: function.map(|_| 120),
        }
    }

    #[test]
    fn who_made_it_is_a_function_and_a_line_without_the_provider_in_front() {
        let words = "Qp 4: no region has the token, in NdkWrite; created at softndknic.sys+0x8, softndknic.sys+0x88, \
                     a.sys:consumer+0x18, a.sys:consumer+0x188; waiting in softndknic.sys+0x8; my-a.sys:consumer+0x18";
        let places = [
            place("softndknic.sys", 8, None),
            place("softndknic.sys", 0x88, None),
            place("a.sys:consumer", 0x18, Some("OpenSide")),
            place("a.sys:consumer", 0x188, None),
        ];
        assert_eq!(
            name(words, &places),
            "Qp 4: no region has the token, in NdkWrite; created at OpenSide (side.c:120), a.sys:consumer+0x188; \
             waiting in softndknic.sys+0x8; my-a.sys:consumer+0x18"
        );
        assert_eq!(name(words, &[]), words);
    }
}
