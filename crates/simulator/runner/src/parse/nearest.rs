//! What somebody may have meant.

/// How alike two names have to be, from 0 to 1, for one to be taken for a slip of the other.
const ALIKE: f64 = 0.7;

/// `: did you mean `x`?` for the name that is most like the one that there is not; nothing if none is.
pub fn nearest<'names>(wanted: &str, names: impl IntoIterator<Item = &'names str>) -> String {
    let wanted = wanted.to_lowercase();
    let alike = names.into_iter().map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), name));
    let best = alike.filter(|(alike, _)| *alike >= ALIKE).max_by(|one, other| one.0.total_cmp(&other.0));
    best.map_or_else(String::new, |(_, name)| format!("; did you mean `{name}`?"))
}

/// The same for the error of a key that there is not, which names it and those that there are, each between backquotes.
pub fn nearest_key(error: &str) -> String {
    let mut names = error.split('`').skip(1).step_by(2);
    let Some(wanted) = names.next().filter(|_| error.contains("unknown field")) else { return String::new() };
    nearest(wanted, names)
}

#[cfg(test)]
mod tests {
    use super::{nearest, nearest_key};

    #[test]
    fn a_slip_has_a_nearest_name_and_another_word_has_none() {
        let names = ["consumer", "nic", "Processors"];
        for (wanted, meant) in [("consumr", "consumer"), ("NIC", "nic"), ("procesors", "Processors")] {
            assert_eq!(nearest(wanted, names), format!("; did you mean `{meant}`?"));
        }
        for wanted in ["", "toaster", "x"] {
            assert_eq!(nearest(wanted, names), "", "{wanted}");
        }
    }

    #[test]
    fn an_unknown_key_is_read_out_of_its_error() {
        let error = "unknown field `indx`, expected one of `name`, `image`, `index`";
        assert_eq!(nearest_key(error), "; did you mean `index`?");
        assert_eq!(nearest_key("invalid type: `name`, expected `index`"), "");
        assert_eq!(nearest_key(""), "");
    }
}
