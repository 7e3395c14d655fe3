//! A timeline as a page that needs nothing else: zoom, density, groups, search, details.
//!
//! A million marks have to fit into a page. Most of what they say is the same but for numbers: so the data has each sentence once, as a
//! *shape* with gaps, and of each mark its shape and what stands in the gaps.

use std::{collections::HashMap, fmt::Write as _};

use serde::Serialize;

use super::{Mark, Timeline, rules::BASE, svg::escape};

/// The page, with places for the title and the data.
const PAGE: &str = include_str!("page.html");
/// A gap in a shape.
const GAP: char = '\u{1}';

#[derive(Serialize)]
struct LaneJson<'a> {
    kind: u8,
    number: u32,
    name: &'a str,
    group: &'a str,
}

/// A shape, in the order: kind, label, text, section, place of the rule.
type Shape = (&'static str, String, String, &'static str, &'static str);

#[derive(Serialize)]
struct PageJson<'a> {
    base: &'static str,
    remark: &'a str,
    lanes: Vec<LaneJson<'a>>,
    shapes: Vec<Shape>,
    /// Of each mark, by when it begins: its shape, its lane, how many moments after the one before it begins, and how many it takes.
    marks: [Vec<usize>; 4],
    /// What stands in the gaps of each mark: a line of words.
    words: String,
    arrows: Vec<(usize, usize)>,
    /// Each moment, from the one before it.
    moments: Vec<u64>,
}

/// Splits a text into what it has in common with others, and the rest: what begins with a digit.
fn shape(text: &str, words: &mut String) -> String {
    let (mut shape, mut rest) = (String::with_capacity(text.len()), text);
    let is_part = |letter: char| letter.is_ascii_alphanumeric();
    let mut is_inside = false;
    while let Some(letter) = rest.chars().next() {
        if letter.is_ascii_digit() && !is_inside {
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            words.push_str(&rest[..end]);
            words.push(' ');
            shape.push(GAP);
            rest = &rest[end..];
            continue;
        }
        // A digit inside of a word, such as QP1, belongs to the word.
        is_inside = is_part(letter);
        shape.push(letter);
        rest = &rest[letter.len_utf8()..];
    }
    shape
}

/// The page of a timeline.
#[must_use]
pub fn html(timeline: &Timeline, title: &str) -> String {
    let lanes = timeline.lanes.iter();
    let lanes = lanes
        .map(|lane| LaneJson { kind: lane.kind as u8, number: lane.number, name: &lane.name, group: &lane.group })
        .collect();
    let mut order: Vec<usize> = (0..timeline.marks.len()).collect();
    order.sort_by_key(|place| timeline.marks[*place].from);
    let mut places = vec![0; order.len()];
    let (mut shapes, mut known) = (Vec::new(), HashMap::<Shape, usize>::new());
    let (mut marks, mut words, mut before): ([Vec<usize>; 4], String, usize) = Default::default();
    for (place, index) in order.into_iter().enumerate() {
        let Mark { lane, kind, from, to, label, text, rule } = &timeline.marks[index];
        places[index] = place;
        let (label, text) = (shape(label, &mut words), shape(text, &mut words));
        words.push('\n');
        let shape = (kind.name(), label, text, rule.section, rule.place);
        let number = *known.entry(shape).or_insert_with_key(|shape| {
            shapes.push(shape.clone());
            shapes.len() - 1
        });
        for (column, value) in marks.iter_mut().zip([number, *lane, from - before, to.saturating_sub(*from)]) {
            column.push(value);
        }
        before = *from;
    }
    let mut last = 0;
    let moments = timeline.moments.iter().map(|moment| moment - std::mem::replace(&mut last, *moment)).collect();
    let page = PageJson {
        base: BASE,
        remark: &timeline.remark,
        lanes,
        shapes,
        marks,
        words,
        arrows: timeline.arrows.iter().map(|arrow| (places[arrow.from], places[arrow.to])).collect(),
        moments,
    };
    // Numbers, texts and lists have a form in JSON. The data ends no element of the page.
    let data = serde_json::to_string(&page).unwrap_or_default().replace('<', "\\u003c");
    let (front, back) = PAGE.split_once("{{data}}").unwrap_or((PAGE, ""));
    let title = escape(title);
    let mut out = String::with_capacity(PAGE.len() + data.len());
    // Writing to a string does not fail.
    let _ = write!(out, "{}{data}{}", front.replace("{{title}}", &title), back);
    out
}

#[cfg(test)]
mod tests {
    use super::{super::Timeline, GAP, html, shape};

    #[test]
    fn what_is_shown_does_not_end_the_data() {
        let remark = "</script><script>alert(1)</script>".to_owned();
        let page = html(&Timeline { remark, ..Timeline::default() }, "<b>");
        assert_eq!(page.matches("</script>").count(), 2, "the data's and the program's");
        assert!(page.contains("&lt;b&gt;") && !page.contains("{{"));
    }

    #[test]
    fn a_shape_and_its_words_are_the_text() {
        for text in ["", "QP 1: context 0x1f, 3.5 us", "7", "NAK 0x60 12", "a\u{e4}1 1\u{e4} -2", "QP1 x"] {
            let mut words = String::new();
            let shape = shape(text, &mut words);
            assert!(
                !shape.chars().any(|letter| letter.is_ascii_digit())
                    || text.contains("QP1")
                    || text.contains("\u{e4}1")
            );
            let mut words = words.split(' ');
            let whole: String = shape
                .chars()
                .map(|letter| if letter == GAP { words.next().unwrap_or("").to_owned() } else { letter.to_string() })
                .collect();
            assert_eq!(whole, text);
        }
    }
}
