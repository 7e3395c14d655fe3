//! A timeline as a page that needs nothing else: zoom, search, details.

use serde::Serialize;

use super::{Timeline, rules::BASE, svg::escape};

/// The page, with places for the title and the data.
const PAGE: &str = include_str!("page.html");

#[derive(Serialize)]
struct LaneJson<'a> {
    kind: u8,
    number: u32,
    name: &'a str,
}

/// A mark, in the order: lane, kind, from, to, label, text, section, place of the rule.
type MarkJson<'a> = (usize, &'static str, usize, usize, &'a str, &'a str, &'static str, &'static str);

#[derive(Serialize)]
struct PageJson<'a> {
    base: &'static str,
    remark: &'a str,
    lanes: Vec<LaneJson<'a>>,
    marks: Vec<MarkJson<'a>>,
    arrows: Vec<(usize, usize)>,
    moments: &'a [u64],
}

/// The page of a timeline.
#[must_use]
pub fn html(timeline: &Timeline, title: &str) -> String {
    let lanes = timeline.lanes.iter();
    let lanes = lanes.map(|lane| LaneJson { kind: lane.kind as u8, number: lane.number, name: &lane.name }).collect();
    let marks = timeline.marks.iter().map(|mark| {
        let (section, place) = (mark.rule.section, mark.rule.place);
        (mark.lane, mark.kind.name(), mark.from, mark.to, &*mark.label, &*mark.text, section, place)
    });
    let page = PageJson {
        base: BASE,
        remark: &timeline.remark,
        lanes,
        marks: marks.collect(),
        arrows: timeline.arrows.iter().map(|arrow| (arrow.from, arrow.to)).collect(),
        moments: &timeline.moments,
    };
    // Numbers, texts and lists have a form in JSON. The data ends no element of the page.
    let data = serde_json::to_string(&page).unwrap_or_default().replace('<', "\\u003c");
    PAGE.replace("{{title}}", &escape(title)).replacen("{{data}}", &data, 1)
}

#[cfg(test)]
mod tests {
    use super::{super::Timeline, html};

    #[test]
    fn what_is_shown_does_not_end_the_data() {
        let remark = "</script><script>alert(1)</script>".to_owned();
        let page = html(&Timeline { remark, ..Timeline::default() }, "<b>");
        assert_eq!(page.matches("</script>").count(), 2, "the data's and the program's");
        assert!(page.contains("&lt;b&gt;") && !page.contains("{{"));
    }
}
