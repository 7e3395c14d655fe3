//! Output that all commands share: formatted for a terminal, plain elsewhere.

use std::{fmt, io::IsTerminal as _, process::ExitCode, time::Duration};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use conformance::Outcome;
use console::{Style, Term};
use host::{note, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use serde::Serialize;

/// Prints one line about a failure of the program itself.
pub fn fail(what: fmt::Arguments<'_>) -> ExitCode {
    note!("ndkctl: {what}");
    ExitCode::FAILURE
}

/// Returns true if the standard output is a terminal.
pub fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Turns colours off if `NO_COLOR` is set, whatever other variables say.
pub fn respect_no_color() {
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        console::set_colors_enabled(false);
        console::set_colors_enabled_stderr(false);
    }
}

/// The width of the output: `COLUMNS`, else the width of the terminal, else [`ELSEWHERE`].
fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let columns = columns.filter(|columns| *columns > 0);
    columns.or_else(|| Term::stdout().size_checked().map(|(_, columns)| columns)).unwrap_or(ELSEWHERE)
}

/// The width in a pipe or a file.
const ELSEWHERE: u16 = 120;

/// The width from which two columns of sentences are readable.
const WIDE: u16 = 100;

/// Returns true if a table with several columns of sentences is readable.
pub fn is_wide() -> bool {
    width() >= WIDE
}

/// A table with these headings: ruled in a terminal, with spaces elsewhere. It fits the terminal.
pub fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(if is_terminal() { presets::UTF8_FULL_CONDENSED } else { presets::NOTHING });
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width());
    table.set_header(headings);
    // Names stay whole, so that they can be copied.
    keep_whole(&mut table, 0);
    table
}

/// Aligns the numbers of a column, and keeps them whole however narrow the terminal is.
pub fn align_right(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    keep_whole(table, column);
}

/// Never breaks what is in a column, however narrow the terminal is.
pub fn keep_whole(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
}

/// Paragraphs with a label each. Lines wrap at the width of the terminal and stay right of the labels.
pub fn labelled(indent: u16, rows: &[(&str, &str)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width());
    table.add_rows(rows.iter().map(|(label, text)| [*label, *text]));
    if let Some(labels) = table.column_mut(0) {
        labels.set_constraint(ColumnConstraint::ContentWidth).set_padding((indent, 2));
    }
    if let Some(texts) = table.column_mut(1) {
        texts.set_padding((0, 0));
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Prints a table without trailing spaces.
pub fn print_table(table: &Table) {
    for line in table.to_string().lines() {
        say!("{}", line.trim_end());
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    say!("{text}");
    Ok(())
}

/// The progress bar of a number of cases, on the standard error; invisible unless that is a terminal.
pub fn bar(length: u64) -> ProgressBar {
    let bar = progress(length, "{bar:30} {pos}/{len} {elapsed} {wide_msg}");
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A progress bar on the standard error; invisible unless that is a terminal.
pub fn progress(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// Says on the standard error, if that is a terminal, what is being done and for how long. It goes when the bar is dropped.
pub fn working(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_finish(ProgressFinish::AndClear);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// The word for an outcome, in its colour.
pub fn word(outcome: &Outcome) -> String {
    let style = match outcome {
        Outcome::Passed => Style::new().green(),
        Outcome::Failed(_) => Style::new().red().bold(),
        Outcome::Skipped(_) => Style::new().yellow(),
        Outcome::Observed(_) => Style::new().cyan(),
        Outcome::Inconclusive(_) => Style::new().magenta().bold(),
    };
    style.apply_to(format_args!("{:<12}", outcome.word())).to_string()
}

/// A duration in a suitable unit.
pub fn duration(took: Duration) -> String {
    let micros = took.as_micros();
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.1} ms", took.as_secs_f64() * 1e3),
        _ => format!("{:.2} s", took.as_secs_f64()),
    }
}

/// A number of bytes in a suitable unit.
pub fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (bits, unit) in UNITS {
        let whole = 1_u64 << bits;
        if count >= whole && count.is_multiple_of(whole) {
            return format!("{} {unit}", count >> bits);
        }
    }
    format!("{count} bytes")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{bytes, duration, labelled};

    #[test]
    fn paragraphs_wrap_beside_their_labels() {
        let text = labelled(2, &[("why", &"word ".repeat(60)), ("cause", "short")]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("  why    word"), "{text}");
        assert!(lines[1].starts_with("         word"), "{text}");
        assert_eq!(lines.last(), Some(&"  cause  short"), "{text}");
        assert_eq!(text.matches("word").count(), 60, "{text}");
    }

    #[test]
    fn durations_and_sizes_have_suitable_units() {
        assert_eq!(duration(Duration::from_micros(7)), "7 us");
        assert_eq!(duration(Duration::from_micros(1_250)), "1.2 ms");
        assert_eq!(duration(Duration::from_millis(61_500)), "61.50 s");
        assert_eq!(bytes(100), "100 bytes");
        assert_eq!(bytes(64 << 10), "64 KiB");
        assert_eq!(bytes(1 << 40), "1 TiB");
        assert_eq!(bytes((1 << 30) + 1), "1073741825 bytes");
    }
}
