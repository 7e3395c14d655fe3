//! A timeline as a picture.

use std::fmt::Write;

use super::{Lane, LaneKind, Mark, MarkKind, Timeline};

/// What a moment's place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// By its time.
    Time,
    /// By its place among those that are shown: as far from one to the next, whatever the time.
    Order,
}

/// What the picture shows and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// In pixels.
    pub width: u32,
    /// Where moments are.
    pub scale: Scale,
    /// The moments that are shown, from this on and before that.
    pub moments: (usize, usize),
    /// The lanes that are shown, by name; all if there is none.
    pub lanes: Vec<String>,
    /// Above the picture.
    pub title: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { width: 1200, scale: Scale::Time, moments: (0, usize::MAX), lanes: Vec::new(), title: String::new() }
    }
}

const LEFT: u32 = 124;
const RIGHT: u32 = 64;
const ROW: u32 = 22;
const GAP: u32 = 14;
const LETTER: f64 = 6.3;

/// The colours of both themes; a picture in a page follows the reader's.
const STYLE: &str = "\
svg{font:11.5px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;background:#fff}\
text{fill:#1f2328}.lane{font-weight:600}.axis,.faint{fill:#656d76}.title{font-size:15px;font-weight:600}\
.band{fill:#f6f8fa}.line{stroke:#d0d7de}.arrow{stroke:#8250df;fill:none;stroke-width:1.5}.head{fill:#8250df}\
.call{fill:#b6d4fe}.callback{fill:#d8b9ff}.request{fill:#a5d6a7}.failure{fill:#ffaba8}.armed{fill:#ffe08a}\
.merge{fill:#ffb454}.decision{fill:#8250df}.poll{fill:#7cc4fa}.empty-poll{fill:#dde3ea}.control{fill:#c9b8a5}\
.packet{fill:#9fd8cb}.retry{fill:#f2994a}.ack{fill:#d6e685}.nak{fill:#eb5757}.management{fill:#bdbdd7}\
.finding{fill:#d1242f}a:hover rect,a:hover path{stroke:#1f2328}\
@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.mark text{fill:#1f2328}\
.axis,.faint{fill:#8d96a0}.band{fill:#151b23}.line{stroke:#30363d}a:hover rect,a:hover path{stroke:#fff}\
.mark .out{fill:#e6edf3}}";

/// Text for a picture or page: no letter of it is markup.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A mark with its place: the row of its lane and how far to the right it begins and ends.
struct Placed<'t> {
    mark: &'t Mark,
    index: usize,
    row: usize,
    from: f64,
    to: f64,
}

/// A lane with its place.
struct Row<'t> {
    lane: &'t Lane,
    index: usize,
    top: u32,
    rows: u32,
}

/// Draws the timeline.
#[must_use]
pub fn svg(timeline: &Timeline, options: &Options) -> String {
    let shown = |lane: &Lane| options.lanes.is_empty() || options.lanes.contains(&lane.name);
    let (first, end) = (options.moments.0, options.moments.1.min(timeline.moments.len()));
    let is_there =
        |mark: &Mark| shown(&timeline.lanes[mark.lane]) && mark.to >= first && mark.from < end.max(first + 1);
    let axis = Axis::of(timeline, options, (first, end), is_there);
    let mut lanes: Vec<(usize, &Lane)> = timeline.lanes.iter().enumerate().filter(|(_, lane)| shown(lane)).collect();
    lanes.sort_by_key(|(_, lane)| (lane.kind, lane.number));
    let (mut rows, mut placed) = (Vec::new(), Vec::new());
    let mut top = if options.title.is_empty() { 34 } else { 62 };
    for (index, lane) in lanes {
        let mut marks =
            timeline.marks.iter().enumerate().filter(|(_, mark)| mark.lane == index && is_there(mark)).peekable();
        if marks.peek().is_none() {
            continue;
        }
        let (found, count) = place(marks, &axis);
        placed.extend(found);
        rows.push(Row { lane, index, top, rows: count });
        top += count * ROW + GAP;
    }
    draw(timeline, options, &axis, &rows, &placed, top)
}

/// From moments to places.
struct Axis {
    /// The place of each moment.
    places: Vec<f64>,
    /// Where there is a number, and which.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    fn of(
        timeline: &Timeline,
        options: &Options,
        (first, end): (usize, usize),
        is_there: impl Fn(&Mark) -> bool,
    ) -> Self {
        let room = f64::from(options.width.saturating_sub(LEFT + RIGHT).max(100));
        let left = f64::from(LEFT);
        let time = |moment: usize| timeline.moments.get(moment).copied().unwrap_or(0);
        let (begin, last) = (time(first), time(end.saturating_sub(1)));
        match options.scale {
            Scale::Time => {
                let long = number(last.saturating_sub(begin).max(1));
                let at =
                    |ticks: u64| (number(ticks.saturating_sub(begin).min(last - begin)) / long).mul_add(room, left);
                let places = timeline.moments.iter().map(|ticks| at(*ticks)).collect();
                let ticks = (0..=8_u64).map(|part| begin + (last - begin) / 8 * part);
                Self { places, ticks: ticks.map(|ticks| (at(ticks), super::words::time(ticks - begin))).collect() }
            }
            Scale::Order => {
                let mut used = vec![false; timeline.moments.len()];
                for mark in timeline.marks.iter().filter(|mark| is_there(mark)) {
                    for moment in [mark.from, mark.to] {
                        if (first..end).contains(&moment) {
                            used[moment] = true;
                        }
                    }
                }
                let count = used.iter().filter(|used| **used).count().max(2);
                let step = room / index(count - 1);
                let (mut places, mut ticks, mut nth) = (Vec::new(), Vec::new(), 0);
                for (moment, used) in used.iter().enumerate() {
                    let place = index(nth).mul_add(step, left);
                    places.push(place.min(left + room));
                    if *used {
                        let words = super::words::time(time(moment) - begin);
                        let is_new = ticks.last().is_none_or(|(_, before)| *before != words);
                        if is_new && nth.is_multiple_of(count.div_ceil(20)) {
                            ticks.push((place, words));
                        }
                        nth += 1;
                    }
                }
                Self { places, ticks }
            }
        }
    }

    fn at(&self, moment: usize) -> f64 {
        self.places.get(moment).copied().unwrap_or_else(|| f64::from(LEFT))
    }
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
const fn number(ticks: u64) -> f64 {
    ticks as f64
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
const fn index(index: usize) -> f64 {
    index as f64
}

/// Gives each mark of a lane a row where it does not lie over another one. Returns how many rows there are.
fn place<'t>(marks: impl Iterator<Item = (usize, &'t Mark)>, axis: &Axis) -> (Vec<Placed<'t>>, u32) {
    /// Marks beyond so many rows lie over others: the picture stays a picture.
    const MOST_ROWS: usize = 8;
    let mut marks: Vec<_> = marks.collect();
    marks.sort_by_key(|(_, mark)| (mark.from, std::cmp::Reverse(mark.to)));
    let (mut ends, mut placed) = (Vec::<f64>::new(), Vec::new());
    for (index, mark) in marks {
        let from = axis.at(mark.from);
        let to = axis.at(mark.to).max(from + 7.0);
        let row = ends.iter().position(|end| *end <= from).unwrap_or(ends.len()).min(MOST_ROWS - 1);
        if row == ends.len() {
            ends.push(0.0);
        }
        // With room for the words behind a short one.
        let words = index_width(&mark.label);
        ends[row] = if words < to - from { to + 2.0 } else { (to + words).min(to + 90.0) + 4.0 };
        placed.push(Placed { mark, index, row, from, to });
    }
    (placed, u32::try_from(ends.len().max(1)).unwrap_or(1))
}

fn index_width(label: &str) -> f64 {
    index(label.chars().count()).mul_add(LETTER, 6.0)
}

fn draw(
    timeline: &Timeline,
    options: &Options,
    axis: &Axis,
    rows: &[Row<'_>],
    placed: &[Placed<'_>],
    bottom: u32,
) -> String {
    let mut out = String::new();
    let width = options.width;
    let height = bottom + if timeline.remark.is_empty() { 10 } else { 28 };
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{}\">\n<style>{STYLE}</style>\n\
         <defs><marker id=\"h\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n",
        escape(if options.title.is_empty() { "timeline" } else { &options.title })
    );
    let axis_at = if options.title.is_empty() {
        18
    } else {
        let _ = writeln!(out, "<text class=\"title\" x=\"12\" y=\"24\">{}</text>", escape(&options.title));
        48
    };
    for (place, words) in &axis.ticks {
        let _ = writeln!(
            out,
            "<line class=\"line\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{}\" y2=\"{bottom}\"/><text class=\"axis\" x=\"{place:.1}\" y=\"{axis_at}\" text-anchor=\"middle\">{words}</text>",
            axis_at + 6
        );
    }
    for row in rows {
        let high = row.rows * ROW + 6;
        let _ = writeln!(
            out,
            "<g><rect class=\"band\" x=\"0\" y=\"{}\" width=\"{width}\" height=\"{high}\" opacity=\".6\"/><text class=\"lane\" x=\"12\" y=\"{}\">{}</text>{}</g>",
            row.top - 3,
            row.top + 14,
            escape(&row.lane.name),
            kind_below(row)
        );
    }
    for one in placed {
        let Some(row) = rows.iter().find(|row| row.index == one.mark.lane) else { continue };
        draw_mark(&mut out, one, row);
    }
    for arrow in &timeline.arrows {
        draw_arrow(&mut out, rows, placed, arrow);
    }
    if !timeline.remark.is_empty() {
        let _ =
            writeln!(out, "<text class=\"faint\" x=\"12\" y=\"{}\">{}</text>", bottom + 14, escape(&timeline.remark));
    }
    out.push_str("</svg>\n");
    out
}

/// What a lane is about, below its name, if there is room.
fn kind_below(row: &Row<'_>) -> String {
    let words = match row.lane.kind {
        LaneKind::QueuePair if row.rows > 1 => "queue pair",
        LaneKind::CompletionQueue if row.rows > 1 => "completion queue",
        _ => return String::new(),
    };
    format!("<text class=\"faint\" x=\"12\" y=\"{}\">{words}</text>", row.top + 30)
}

fn top_of(one: &Placed<'_>, row: &Row<'_>) -> u32 {
    row.top + u32::try_from(one.row).unwrap_or(0) * ROW
}

fn draw_mark(out: &mut String, one: &Placed<'_>, row: &Row<'_>) {
    let (mark, top) = (one.mark, top_of(one, row));
    let class = mark.kind.name();
    let (from, wide) = (one.from, one.to - one.from);
    let middle = f64::from(top) + 8.0;
    let _ = write!(
        out,
        "<a href=\"{}\"><g class=\"mark\"><title>{} ({})</title>",
        escape(&mark.rule.address()),
        escape(&mark.text),
        mark.rule.section
    );
    match mark.kind {
        MarkKind::Decision | MarkKind::Merge | MarkKind::Finding => {
            let (low, high, right) = (middle - 7.0, middle + 7.0, from + 14.0);
            let centre = from + 7.0;
            let _ = write!(
                out,
                "<path class=\"{class}\" d=\"M{centre:.1} {low:.1}L{right:.1} {middle:.1}L{centre:.1} {high:.1}L{from:.1} {middle:.1}z\"/>"
            );
        }
        _ => {
            let _ = write!(
                out,
                "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top}\" width=\"{wide:.1}\" height=\"16\" rx=\"3\"/>"
            );
        }
    }
    let inside = index_width(&mark.label) <= wide
        && !matches!(mark.kind, MarkKind::Decision | MarkKind::Merge | MarkKind::Finding);
    let (class, place) = match (inside, mark.kind) {
        (true, _) => ("in", from + 4.0),
        (false, MarkKind::Decision | MarkKind::Merge | MarkKind::Finding) => ("out", from + 17.0),
        (false, _) => ("out", from + wide + 3.0),
    };
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{place:.1}\" y=\"{}\">{}</text></g></a>",
        top + 12,
        escape(&mark.label)
    );
}

fn draw_arrow(out: &mut String, rows: &[Row<'_>], placed: &[Placed<'_>], arrow: &super::Arrow) {
    let find = |index: usize| {
        let one = placed.iter().find(|one| one.index == index)?;
        let row = rows.iter().find(|row| row.index == one.mark.lane)?;
        Some((one, f64::from(top_of(one, row)) + 8.0))
    };
    let (Some((from, from_y)), Some((to, to_y))) = (find(arrow.from), find(arrow.to)) else { return };
    let (x1, x2) = (from.to, to.from);
    let bend = ((x2 - x1) / 2.0).clamp(6.0, 40.0);
    let _ = writeln!(
        out,
        "<path class=\"arrow\" marker-end=\"url(#h)\" d=\"M{x1:.1} {from_y:.1}C{:.1} {from_y:.1} {:.1} {to_y:.1} {x2:.1} {to_y:.1}\"/>",
        x1 + bend,
        x2 - bend
    );
}

#[cfg(test)]
mod tests {
    use super::{MarkKind, STYLE, escape};

    #[test]
    fn every_kind_of_mark_has_a_colour() {
        for kind in MarkKind::ALL {
            let class = format!(".{}{{fill:#", kind.name());
            assert!(STYLE.contains(&class), "{class}");
            assert!(include_str!("page.html").contains(&class), "{class}");
        }
    }

    #[test]
    fn no_letter_is_markup() {
        assert_eq!(escape("<a href='x'>&\"\u{0}"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot; ");
    }
}
