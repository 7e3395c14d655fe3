//! Names of files, as Windows compares and allows them. They are here because a script's files are looked at where no kernel is.

/// Letters of a name at most, in UTF-16.
const LONGEST: usize = 255;

/// Whether that can be the name of a file or folder, for a driver that names it: programs cannot name one that ends with a dot or a space.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let allowed = |letter: char| letter >= ' ' && !"\"*/:<>?\\|".contains(letter);
    let is_long = name.encode_utf16().count() > LONGEST;
    !name.is_empty() && !is_long && name != "." && name != ".." && name.chars().all(allowed)
}

/// A name with its letters as they are compared: each by itself, so that no name gets longer.
#[must_use]
pub fn folded(name: &str) -> String {
    let large = |letter: char| {
        let mut large = letter.to_uppercase();
        match (large.next(), large.next()) {
            (Some(one), None) => one,
            _ => letter,
        }
    };
    name.chars().map(large).collect()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, folded, is_name};

    #[test]
    fn a_name_has_letters_that_windows_allows_and_not_too_many() {
        let longest = "a".repeat(LONGEST);
        for name in ["a", "a.txt", "a b", ".a", "a.", "\u{e4}", longest.as_str()] {
            assert!(is_name(name), "{name}");
        }
        let longer = "a".repeat(LONGEST + 1);
        // Of 129 letters, each of which is two in UTF-16.
        let wider = "\u{1f600}".repeat(LONGEST / 2 + 2);
        for name in ["", ".", "..", "a:b", "a/b", "a\\b", "a*", "a?", "a|b", "<a>", "\"a\"", "a\n", &longer, &wider] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn letters_are_compared_one_by_one() {
        assert_eq!(folded("a.Txt"), "A.TXT");
        assert_eq!(folded("stra\u{df}e"), "STRA\u{df}E", "one letter stays one");
    }
}
