//! How rows are shown: tables for people, JSON for programs.

use std::fmt::Write;

use comfy_table::{
    Cell, CellAlignment, Table, TableStyle,
    presets::{ASCII_MARKDOWN, NOTHING},
};
use serde::{Deserialize, Serialize};

use crate::row::Row;

/// A row as programs read it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured, and against what.
    pub row: String,
    /// The median of ours, in `unit`.
    pub ours: Option<f64>,
    /// The median of what it is compared with, in `unit`.
    pub peer: Option<f64>,
    /// The unit of `ours` and `peer`.
    pub unit: String,
    /// `ours` divided by `peer`.
    pub ratio: Option<f64>,
    /// What the ratio should be.
    pub goal: Option<String>,
    /// True if the goal is met.
    pub met: Option<bool>,
    /// Why it was not measured, if it was not.
    pub skipped: Option<String>,
}

impl From<&Row> for Figure {
    fn from(row: &Row) -> Self {
        let Row { row, ours, peer, unit, ratio, goal, met, skipped, against, .. } = row.clone();
        let row = if against.is_empty() { row } else { format!("{row} | {against}") };
        Self { row, ours, peer, unit: unit.to_owned(), ratio, goal, met, skipped }
    }
}

/// All rows as JSON: a list of objects.
///
/// # Errors
///
/// In words, why not.
pub fn json(rows: &[Row]) -> Result<String, String> {
    let figures: Vec<_> = rows.iter().map(Figure::from).collect();
    serde_json::to_string_pretty(&figures).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// What a reader of the table has to know.
const LEGEND: &str =
    "ours, peer: medians of the rounds, and half of the distance between their quartiles. ratio: ours by peer, on two cores of the
medians, on one core the median of the rounds' ratios. bound: the ratio of the least that anybody has to do.
docs/performance/README.md says how it is measured.";

/// A table of all rows, and how to read it.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    format!("{}\n\n{LEGEND}", styled(rows, NOTHING).trim_fmt())
}

/// What stands before the figures in a page that has them.
const BEGIN: &str = "<!-- figures: written by `bench --report`, do not edit -->\n";
/// What stands behind them.
const END: &str = "<!-- end of the figures -->\n";

/// `page` with figures in the place of those that it has: the machine, the command and a table of all rows, as Markdown.
///
/// # Errors
///
/// In words, if the page has no place for them.
pub fn markdown(page: &str, rows: &[Row], machine: &[String], command: &str) -> Result<String, String> {
    let place = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = place.ok_or("no place for the figures between two comments")?;
    let mut text = format!("{before}{BEGIN}\nBy `{command}`, on:\n\n");
    // Writing to a string does not fail.
    for line in machine {
        let _ = writeln!(text, "- {line}");
    }
    let goals = rows.iter().filter_map(|row| row.met).collect::<Vec<_>>();
    let met = goals.iter().filter(|met| **met).count();
    let _ = writeln!(text, "\nGoals met: {met} of {}.\n\n{}\n\n{END}", goals.len(), styled(rows, ASCII_MARKDOWN));
    // The line's end is in the comment already.
    text.pop();
    Ok(text + after)
}

fn styled(rows: &[Row], style: TableStyle) -> Table {
    let mut table = Table::new();
    table.load_style(style);
    table.set_header(["row", "against", "ours", "peer", "unit", "ratio", "goal", "met", "bound"]);
    for row in rows {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let figure = |value: Option<f64>, spread: Option<f64>| {
            right(value.map_or_else(String::new, |value| with_spread(value, spread)))
        };
        let met = match (&row.skipped, row.met) {
            (Some(why), _) => format!("skipped: {why}"),
            (None, Some(true)) => "yes".to_owned(),
            (None, Some(false)) if row.is_in_reach == Some(false) => "NO, nor by the bound".to_owned(),
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
            right(row.bound.map_or_else(String::new, |bound| format!("{bound:.2}"))),
        ]);
    }
    table
}

fn with_spread(value: f64, spread: Option<f64>) -> String {
    let digits = if value.abs() >= 100.0 { 0 } else { 2 };
    let value = format!("{value:.digits$}");
    spread.map_or_else(|| value.clone(), |spread| format!("{value} ±{:.0}%", spread * 100.0))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, json, markdown};
    use crate::{
        measure::Samples,
        row::{Goal, Row, Unit},
    };

    fn rows() -> [Row; 2] {
        let (ours, peer) = (Samples::new(vec![50.0]), Samples::new(vec![100.0]));
        [
            Row::measured("a", "b", Unit::Nanoseconds, Goal::AtMost(0.5), &ours, &peer),
            Row::skipped("c", "", Unit::Bytes, Goal::Reported, "absent"),
        ]
    }

    #[test]
    fn a_row_is_an_object_of_eight_fields() {
        let text = json(&rows()).expect("rows");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let first = value[0].as_object().expect("an object");
        let names: Vec<_> = first.keys().map(String::as_str).collect();
        assert_eq!(names, ["goal", "met", "ours", "peer", "ratio", "row", "skipped", "unit"], "in no order");
        assert_eq!((&first["row"], &first["met"]), (&"a | b".into(), &true.into()));
        assert_eq!((&value[1]["row"], &value[1]["skipped"]), (&"c".into(), &"absent".into()));
    }

    #[test]
    fn figures_take_the_place_of_those_before() {
        let page = format!("# Page\n\n{BEGIN}old\n{END}\nMore.\n");
        let text = markdown(&page, &rows(), &["a machine".to_owned()], "bench --all").expect("a place");
        assert!(text.contains("`bench --all`") && text.contains("| 50.00 ±0% | 100 ±0% |"), "{text}");
        assert!(text.starts_with("# Page\n") && text.ends_with("\nMore.\n") && !text.contains("old"), "{text}");
        assert_eq!(markdown(&text, &rows(), &["a machine".to_owned()], "bench --all").as_ref(), Ok(&text), "again");
        assert!(markdown("# Page\n", &rows(), &[], "bench").is_err(), "no place");
    }

    #[test]
    fn a_goal_that_the_bound_misses_is_marked() {
        let row = |ours| {
            let (ours, peer) = (Samples::new(vec![ours]), Samples::new(vec![100.0]));
            Row::measured("a", "b", Unit::Nanoseconds, Goal::AtMost(0.5), &ours, &peer)
        };
        let page = format!("{BEGIN}{END}");
        let text = |least| markdown(&page, &[row(70.0).bounded(Goal::AtMost(0.5), &row(least))], &[], "bench");
        assert!(text(60.0).is_ok_and(|text| text.contains("| NO, nor by the bound |  0.60 |")));
        assert!(text(40.0).is_ok_and(|text| text.contains("| NO  |  0.40 |")));
    }
}
