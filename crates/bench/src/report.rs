//! How rows are shown: a table for people, JSON for programs.

use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_NO_BORDERS};

use crate::row::Row;

/// A table of all rows.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_NO_BORDERS);
    table.set_header(["row", "against", "ours", "peer", "unit", "ratio", "goal", "met"]);
    for row in rows {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let figure = |value: Option<f64>, spread: Option<f64>| {
            right(value.map_or_else(String::new, |value| with_spread(value, spread)))
        };
        let met = match (&row.skipped, row.met) {
            (Some(why), _) => format!("skipped: {why}"),
            (None, Some(true)) => "yes".to_owned(),
            (None, Some(false)) => "NO".to_owned(),
            (None, None) => String::new(),
        };
        table.add_row([
            Cell::new(&row.row),
            Cell::new(&row.against),
            figure(row.ours, row.spread[0]),
            figure(row.peer, row.spread[1]),
            Cell::new(row.unit),
            right(row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))),
            Cell::new(row.goal.as_deref().unwrap_or_default()),
            Cell::new(met),
        ]);
    }
    table.to_string()
}

fn with_spread(value: f64, spread: Option<f64>) -> String {
    let digits = if value.abs() >= 100.0 { 0 } else { 2 };
    let value = format!("{value:.digits$}");
    spread.map_or_else(|| value.clone(), |spread| format!("{value} ±{:.0}%", spread * 100.0))
}
