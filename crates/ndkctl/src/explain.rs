//! `ndkctl explain`: the pages of the adviser's findings.

use std::fmt::Write;

use clap::Args;
use host::{note, say};
use interpose::adviser::{Finding, Severity};

use crate::{
    End,
    output::{print_table, table},
};

/// `ndkctl explain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit code: 0, or 2 if there is no such finding.")]
pub struct Explain {
    /// The number of a finding: SN0003, or 3
    #[arg(value_name = "FINDING", required_unless_present_any = ["list", "markdown"])]
    pub finding: Option<String>,
    /// Show all findings, a line each
    #[arg(long, conflicts_with = "finding")]
    pub list: bool,
    /// Print all pages, as the document docs/findings.md
    #[arg(long, conflicts_with_all = ["finding", "list"])]
    pub markdown: bool,
}

/// Runs the command.
pub fn run(args: &Explain) -> End {
    if args.markdown {
        say!("{}", document().trim_end());
        return End::Good;
    }
    let Some(wanted) = args.finding.as_deref().filter(|_| !args.list) else {
        let mut table = table(&["finding", "kind", "section", "what it is"]);
        for finding in Finding::ALL {
            let page = finding.page();
            table.add_row([&finding.to_string(), kind(page.severity), page.section, page.title]);
        }
        print_table(&table);
        return End::Good;
    };
    let Some(finding) = parse(wanted) else {
        let last = Finding::ALL.last().map(ToString::to_string).unwrap_or_default();
        note!("ndkctl explain: there is no finding `{wanted}`; they are SN0001 to {last}, see ndkctl explain --list");
        return End::Refused;
    };
    say!("{}", page(finding).trim_end());
    End::Good
}

/// `SN0003`, `sn3` or `3`.
fn parse(text: &str) -> Option<Finding> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.strip_prefix("SN").unwrap_or(&upper);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Finding::from_number(if is_number { digits.parse().ok()? } else { return None })
}

const fn kind(severity: Severity) -> &'static str {
    match severity {
        Severity::Duty => "duty",
        Severity::Advice => "advice",
    }
}

/// The page of a finding, for a terminal.
fn page(finding: Finding) -> String {
    let page = finding.page();
    let mut text = format!("{finding}  {}  ({}, {})\n\n", page.title, page.section, kind(page.severity));
    for (word, what) in [("rule", page.rule), ("why", page.why), ("cause", page.cause), ("fix", page.fix)] {
        let _ = writeln!(text, "{word:<6} {what}");
    }
    text
}

/// All pages, as a document.
pub fn document() -> String {
    let mut text = String::from(
        "# Findings of the adviser\n\nWritten by `ndkctl explain --markdown`. What the adviser is, and how to use it, is in \
         [adviser](adviser.md). A *duty*\nis one that NDKPI puts on the consumer; *advice* is about what is allowed and works on \
         few adapters, or has no effect.\n\n| finding | kind | section | what it is |\n|---|---|---|---|\n",
    );
    for finding in Finding::ALL {
        let page = finding.page();
        let _ = writeln!(text, "| {finding} | {} | {} | {} |", kind(page.severity), page.section, page.title);
    }
    for finding in Finding::ALL {
        let page = finding.page();
        let _ = write!(
            text,
            "\n## {finding}: {}\n\n- **Rule** ({}): {}\n- **Why**: {}\n- **Typical cause**: {}\n- **Instead**: {}\n",
            page.title, page.section, page.rule, page.why, page.cause, page.fix
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use interpose::adviser::Finding;

    use super::{document, page, parse};

    #[test]
    fn a_finding_is_named_by_its_number_in_any_of_three_forms() {
        for text in ["SN0003", "sn3", "3"] {
            assert_eq!(parse(text), Some(Finding::NotDrained), "{text}");
        }
        for text in ["", "SN", "SN0000", "SN9999", "three", "-3", "+3", "SN0003x", "99999999999"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_page_says_the_rule_why_whence_and_what_instead() {
        for &finding in Finding::ALL {
            let text = page(finding);
            for word in ["\nrule ", "\nwhy ", "\ncause ", "\nfix "] {
                let at = text.find(word).unwrap_or_else(|| panic!("{finding}: {word}"));
                assert!(text[at + word.len()..].trim().len() > 20, "{finding}: {word}");
            }
            assert!(text.contains("NDKPI "), "{finding}");
        }
    }

    #[test]
    fn the_document_is_what_the_command_prints() {
        let kept = include_str!("../../../docs/findings.md").replace("\r\n", "\n");
        assert_eq!(kept.trim_end(), document().trim_end(), "ndkctl explain --markdown > docs/findings.md");
    }
}
