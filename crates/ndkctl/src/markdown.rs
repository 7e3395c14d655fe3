//! The cases as a document.

use std::fmt::Write as _;

use conformance::Case;

const BEGINNING: &str = "\
# What the conformance suite checks

Generated: `cargo run --release -- selftest --list --markdown > docs/conformance.md`. A test fails when it is out of date.

Each case is one rule of NDKPI as an NDK consumer sees it, checked through dispatch tables only, so on any `NDK_ADAPTER`. A
section names the sheet in `docs/reference` in which the rule stands. Where the documentation leaves something open, the case
says *Open* and reports what the provider does; that is no failure. Besides its own rule, every case fails on a *fault*: two
callbacks of one completion queue at a time, a callback of an unarmed or closed queue, a completion that comes twice or never,
a close that completes before what depends on it, a callback while a lock is held.

Run it with `ndkctl selftest`, a theme with `ndkctl selftest --filter arm`.
";

/// All of them, by theme.
pub fn document(cases: &[&'static Case]) -> String {
    let mut text = BEGINNING.to_owned();
    let mut theme = "";
    for case in cases {
        if case.theme() != theme {
            theme = case.theme();
            let count = cases.iter().filter(|other| other.theme() == theme).count();
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "\n## `{theme}` ({count})\n\n| case | section | what is done | what is expected |\n|---|---|---|---|\n"
            );
        }
        let rule = case.name.split_once('.').map_or(case.name, |(_, rule)| rule);
        let _ = writeln!(text, "| `{rule}` | {} | {} | {} |", case.section, case.does, case.expects);
    }
    let _ = write!(text, "\n{} cases.\n", cases.len());
    text
}

#[cfg(test)]
mod tests {
    use conformance::cases;

    use super::document;

    #[test]
    fn the_document_in_the_repository_is_up_to_date() {
        let written = include_str!("../../../docs/conformance.md").replace("\r\n", "\n");
        let generated = document(&cases::all().collect::<Vec<_>>());
        let differs = written.lines().zip(generated.lines()).find(|(written, generated)| written != generated);
        assert!(
            written == generated,
            "docs/conformance.md is out of date: cargo run --release -- selftest --list --markdown > docs/conformance.md; \
             first difference: {differs:?}"
        );
    }

    #[test]
    fn nothing_breaks_a_row() {
        for case in cases::all() {
            for text in [case.name, case.section, case.does, case.expects] {
                assert!(!text.contains(['|', '\n']), "{}: {text}", case.name);
                assert!(!text.contains("  "), "{}: {text}", case.name);
            }
        }
    }
}
