//! `ndkctl explain`: the pages of the adviser's findings, of the reasons why the provider refuses a call or fails a request, and of
//! whatever else output names: statuses, cases of the suite, faults.

mod status;

use std::fmt::Write;

use clap::Args;
use conformance::{Case, cases};
use host::{note, say};
use image_loader::Rule;
use interpose::{
    adviser::{Finding, Severity},
    faults::Kind,
};
use provider::{About, Reason};

use crate::{
    End,
    output::{labelled, print_table, table},
};

/// `ndkctl explain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit code: 0 for success, 2 if there is nothing of this name.")]
pub struct Explain {
    /// A finding (SN0003 or 3), a reason (SR0004, the ProviderErrorCode of a failed request), a status (STATUS_CANCELLED or
    /// 0xC0000120), a rule by the name of its case (arm.one-callback-per-arm), a rule of ndkctl run (pool-leak), or a fault (late)
    #[arg(value_name = "NAME", allow_negative_numbers = true, required_unless_present_any = ["list", "markdown", "reasons"])]
    pub number: Option<String>,
    /// List all findings
    #[arg(long, conflicts_with = "number")]
    pub list: bool,
    /// List all reasons
    #[arg(long, conflicts_with_all = ["number", "list"])]
    pub reasons: bool,
    /// Print the document docs/findings.md, or with --reasons docs/reasons.md
    #[arg(long, conflicts_with_all = ["number", "list"])]
    pub markdown: bool,
}

/// Runs the command.
pub fn run(args: &Explain) -> End {
    match (args.reasons, args.markdown) {
        (true, true) => say!("{}", reasons().trim_end()),
        (false, true) => say!("{}", document().trim_end()),
        (true, false) => {
            let mut table = table(&["reason", "status", "section", "of", "why"]);
            for reason in Reason::ALL {
                let status = reason.status.name().unwrap_or_default();
                table.add_row([&reason.to_string(), status, reason.section, &about(reason), reason.what]);
            }
            print_table(&table);
        }
        (false, false) => return explain(args),
    }
    End::Good
}

/// Shows the list of findings, or a page.
fn explain(args: &Explain) -> End {
    let Some(wanted) = args.number.as_deref().filter(|_| !args.list) else {
        let mut table = table(&["finding", "kind", "section", "what it is"]);
        for finding in Finding::ALL {
            let page = finding.page();
            table.add_row([&finding.to_string(), kind(page.severity), page.section, page.title]);
        }
        print_table(&table);
        return End::Good;
    };
    if let Some(reason) = parse_reason(wanted) {
        say!("{}", reason_page(reason).trim_end());
        return End::Good;
    }
    if let Some(text) = parse(wanted).map(page).or_else(|| other_page(wanted)) {
        say!("{}", text.trim_end());
        return End::Good;
    }
    let last = Finding::ALL.last().map(ToString::to_string).unwrap_or_default();
    note!(
        "ndkctl explain: there is nothing named `{wanted}`; findings are SN0001 to {last} (ndkctl explain --list), reasons SR0001 \
         and so on (--reasons), statuses STATUS_CANCELLED or 0xC0000120, rules as in ndkctl selftest --list and as ndkctl run names them, faults as in \
         ndkctl faults --list"
    );
    End::Refused
}

/// The page of what is neither a finding nor a reason: a status, a rule by the name of its case, a fault.
fn other_page(wanted: &str) -> Option<String> {
    let is_it = |name: &str| name.eq_ignore_ascii_case(wanted);
    if let Some(status) = status::parse(wanted) {
        return Some(status::page(status));
    }
    if let Some(case) = cases::all().find(|case| is_it(case.name)) {
        return Some(case_page(case));
    }
    if let Some(rule) = Rule::ALL.iter().find(|rule| is_it(rule.name())) {
        return Some(rule_page(*rule));
    }
    if let Some((name, what)) = ENDS.iter().find(|(name, _)| is_it(name)) {
        return Some(format!("{name}\n\n{}", labelled(0, &[("found", what)])));
    }
    Kind::ALL.iter().find(|kind| is_it(kind.page().name)).map(|kind| {
        let page = kind.page();
        let mut text = format!("{}  ({})\n\n", page.name, page.section);
        text.push_str(&labelled(0, &[("what", page.what), ("to", page.operations), ("rule", page.rule)]));
        text
    })
}

/// What a finding of `ndkctl run` is called that is no rule of the simulated kernel.
const ENDS: [(&str, &str); 3] = [
    ("script", "A step ended otherwise than the script says (docs/run.md)."),
    (
        "crash",
        "The process ended without naming a rule: its last line, and what the same run does once more, are beside it.",
    ),
    ("no-end", "A step took longer than --limit in real time, and its process was ended."),
];

/// The page of a rule of the simulated kernel.
fn rule_page(rule: Rule) -> String {
    let mut text = format!("{}  (the simulated kernel: docs/simulated-kernel.md)\n\n", rule.name());
    text.push_str(&labelled(0, &[("found", rule.about().trim()), ("Windows", rule.windows())]));
    text
}

/// The page of a rule that a case checks.
fn case_page(case: &Case) -> String {
    let mut text = format!("{}  ({})\n\n", case.name, case.section);
    let run = format!("ndkctl selftest --filter {}", case.name);
    text.push_str(&labelled(0, &[("does", case.does), ("expects", case.expects), ("run", &run)]));
    text
}

/// `SN0003`, `sn3` or `3`.
fn parse(text: &str) -> Option<Finding> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.strip_prefix("SN").unwrap_or(&upper);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Finding::from_number(if is_number { digits.parse().ok()? } else { return None })
}

/// `SR0004` or `sr4`.
fn parse_reason(text: &str) -> Option<&'static Reason> {
    let upper = text.to_ascii_uppercase();
    let digits = upper.strip_prefix("SR")?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Reason::from_number(if is_number { digits.parse().ok()? } else { return None })
}

/// The calls or requests that a reason is about.
fn about(reason: &Reason) -> String {
    match reason.about {
        About::Calls(functions) => functions.join(", "),
        About::Requests(kinds) => {
            let names: Vec<_> = kinds.iter().filter_map(|kind| kind.name()).collect();
            format!("completions of {}", names.join(", "))
        }
        About::Wire(kinds) => {
            let names: Vec<_> = kinds.iter().filter_map(|kind| kind.name()).collect();
            format!("completions of {} over a wire", names.join(", "))
        }
        About::Rejections(numbers) => {
            let what = "connects and accepts over a wire";
            match numbers {
                [] => format!("{what}, other REJs"),
                [first, rest @ ..] => {
                    rest.iter().fold(format!("{what}, REJ {first}"), |text, next| format!("{text}, {next}"))
                }
            }
        }
    }
}

/// The page of a reason, for a terminal.
fn reason_page(reason: &Reason) -> String {
    let status = reason.status.name().unwrap_or_default();
    let mut text = format!("{reason}  {status}  ({})\n\n", reason.section);
    text.push_str(&labelled(0, &[("of", &about(reason)), ("why", reason.what), ("fix", reason.fix)]));
    text
}

/// All reasons, as a document.
pub fn reasons() -> String {
    let mut text = String::from(
        "# Reasons\n\nWritten by `ndkctl explain --reasons --markdown`. Why the provider refuses a call, or lets a request fail: one \
         number for each function\nand status, and for what the peer's adapter has said over a wire. That of a failed work request is its `ProviderErrorCode` (NDKPI 2.1, `NDK_RESULT_EX`), \
         and both are in the trace event\n`Failure` ([counters and tracing](counters-and-tracing.md)).\n\n| reason | status | of | \
         section | why | what to do |\n|---|---|---|---|---|---|\n",
    );
    for reason in Reason::ALL {
        let status = reason.status.name().unwrap_or_default();
        let (what, fix) = (reason.what, reason.fix);
        let _ = writeln!(text, "| {reason} | `{status}` | {} | {} | {what} | {fix} |", about(reason), reason.section);
    }
    text
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
    let parts = [("rule", page.rule), ("why", page.why), ("cause", page.cause), ("fix", page.fix)];
    text.push_str(&labelled(0, &parts));
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

    use image_loader::Rule;

    use super::{ENDS, document, other_page, page, parse, parse_reason, reasons};

    #[test]
    fn every_rule_of_a_run_has_a_page() {
        for rule in Rule::ALL {
            let page = other_page(&rule.name().to_uppercase()).unwrap_or_else(|| panic!("{rule} has a page"));
            assert!(page.starts_with(rule.name()) && page.contains("Windows"), "{page}");
        }
        for (name, _) in ENDS {
            assert!(other_page(name).is_some_and(|page| page.contains("found")), "{name}");
        }
        assert!(other_page("pool-leaks").is_none());
    }

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
        let kept = include_str!("../../../../docs/findings.md").replace("\r\n", "\n");
        assert_eq!(kept.trim_end(), document().trim_end(), "ndkctl explain --markdown > docs/findings.md");
    }

    #[test]
    fn rules_and_faults_have_pages_by_their_names() {
        for (name, part) in [
            ("arm.one-callback-per-arm", "NDKPI 7.1.3"),
            ("Arm.One-Callback-Per-Arm", "ndkctl selftest --filter arm.one-callback-per-arm"),
            ("late", "rule"),
            ("STATUS_IO_TIMEOUT", "an error"),
        ] {
            assert!(other_page(name).is_some_and(|page| page.contains(part)), "{name}");
        }
        assert_eq!(other_page("no such name"), None);
    }

    #[test]
    fn a_reason_is_named_by_its_number() {
        for text in ["SR0004", "sr4"] {
            assert_eq!(parse_reason(text).map(provider::Reason::number), Some(4), "{text}");
        }
        for text in ["4", "SR", "SR0000", "SR9999", "SN0004"] {
            assert!(parse_reason(text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_document_of_the_reasons_is_what_the_command_prints() {
        let kept = include_str!("../../../../docs/reasons.md").replace("\r\n", "\n");
        assert_eq!(kept.trim_end(), reasons().trim_end(), "ndkctl explain --reasons --markdown > docs/reasons.md");
    }
}
