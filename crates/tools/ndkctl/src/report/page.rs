//! Results as a page that needs nothing else: by rule, with a filter, and all that is known of each case.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use recording::timeline::escape;

use super::Drawn;
use crate::{
    output::duration,
    selftest::{
        json::{EntryJson, ResultsJson},
        junit::properties,
    },
};

/// The page, with places for what it shows.
const PAGE: &str = include_str!("page.html");

/// Outcomes with a box to show or hide them.
const OUTCOMES: [&str; 5] = ["failed", "inconclusive", "observed", "passed", "skipped"];

/// The page of a run; what was recorded is a picture in its case.
pub fn page(run: &ResultsJson, drawn: Option<&Drawn>) -> String {
    let title = match (run.failed, run.inconclusive) {
        (0, 0) => "NDKPI conformance: every rule holds that applies".to_owned(),
        (failed, inconclusive) => format!("NDKPI conformance: {failed} failed, {inconclusive} inconclusive"),
    };
    let title = if run.interrupted { format!("{title} (interrupted)") } else { title };
    // What is filled in later may contain anything, also the name of a place: so each is filled in where it stands.
    let parts =
        [("title", escape(&title)), ("facts", facts(run)), ("counts", counts(run)), ("rules", rules(run, drawn))];
    let mut pieces = PAGE.split("{{");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or_default();
        page.push_str(parts.iter().find(|(part, _)| *part == name).map_or("", |(_, text)| text));
        page.push_str(rest);
    }
    page
}

fn facts(run: &ResultsJson) -> String {
    let time = duration(Duration::try_from_secs_f64(run.seconds).unwrap_or_default());
    let mut text = String::new();
    for (name, value) in properties(run).into_iter().chain([("time", time)]) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(&value));
    }
    text
}

fn counts(run: &ResultsJson) -> String {
    let mut text = String::new();
    for outcome in OUTCOMES {
        let count = run.cases.iter().filter(|entry| entry.outcome == outcome).count();
        let _ =
            writeln!(text, "<label><input type=\"checkbox\" value=\"{outcome}\" checked> {count} {outcome}</label>");
    }
    text
}

/// A section as numbers, so that 7.10 comes behind 7.9.
fn place(section: &str) -> Vec<u32> {
    section.split(|letter: char| !letter.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn rules(run: &ResultsJson, drawn: Option<&Drawn>) -> String {
    let mut by_rule = BTreeMap::<(Vec<u32>, &str), Vec<&EntryJson>>::new();
    for entry in &run.cases {
        let section = entry.case.section.as_str();
        by_rule.entry((place(section), section)).or_default().push(entry);
    }
    let mut text = String::new();
    for ((_, section), entries) in by_rule {
        let _ = writeln!(text, "<section><h2>{}</h2>", escape(section));
        for entry in entries {
            case(&mut text, entry, drawn.filter(|(name, _)| *name == entry.case.name));
        }
        text.push_str("</section>\n");
    }
    text
}

fn case(text: &mut String, entry: &EntryJson, drawn: Option<&Drawn>) {
    let EntryJson { case, outcome, text: seen, micros, seed, again } = entry;
    // An outcome that a later version may have is shown like one that applies to nothing.
    let class = OUTCOMES.into_iter().find(|known| known == outcome).unwrap_or("skipped");
    let open = if matches!(class, "failed" | "inconclusive") { " open" } else { "" };
    let find = format!("{} {} {} {} {outcome} {seen}", case.name, case.section, case.does, case.expects).to_lowercase();
    let time = duration(Duration::from_micros(*micros));
    let _ = writeln!(
        text,
        "<details class=\"{class}\" data-find=\"{}\"{open}><summary><i>{}</i><b>{}</b><span>{time}</span></summary>",
        escape(&find),
        escape(outcome),
        escape(&case.name)
    );
    let seen = if seen.is_empty() && outcome == "passed" { "the rule holds" } else { seen };
    let rows = [("does", &*case.does), ("expected", &*case.expects), ("seen", seen), ("seed", &seed.to_string())];
    text.push_str("<table>");
    for (name, value) in rows {
        let _ = write!(text, "<tr><th>{name}</th><td>{}</td></tr>", escape(value));
    }
    if !again.is_empty() {
        let _ = write!(text, "<tr><th>again</th><td><code>{}</code></td></tr>", escape(again));
    }
    text.push_str("</table>");
    match drawn {
        Some((_, Ok(svg))) => {
            let _ = write!(text, "<figure>{svg}</figure>");
        }
        Some((_, Err(why))) => {
            let _ = write!(text, "<p>The recording cannot be drawn: {}</p>", escape(why));
        }
        None => {}
    }
    text.push_str("</details>\n");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{page, place};
    use crate::selftest::json::ResultsJson;

    fn run(text: &str) -> ResultsJson {
        let case = |name: &str, outcome: &str, section: &str| {
            json!({
                "name": name, "section": section, "does": "Arms & waits.", "expects": "One <callback>.", "outcome": outcome,
                "text": text, "micros": 1500, "seed": 77, "again": "ndkctl selftest --fault \"late,delay=~200\"",
            })
        };
        let cases = [
            case("arm.one", "failed", "NDKPI 7.10"),
            case("arm.two", "passed", "NDKPI 7.9"),
            case("arm.three", "inconclusive", "NDKPI 7.9"),
        ];
        serde_json::from_value(json!({
            "seed": 77, "completion": "mixed", "ndkpi": "2.0", "deterministic": false, "interrupted": false, "passed": 1,
            "failed": 1, "observed": 0, "skipped": 0, "inconclusive": 1, "seconds": 2.5, "cases": cases, "profile": "own",
            "adapter": { "name": "Ethernet 3", "ndkpi": "2.1" }, "faults": ["late,delay=~200"],
        }))
        .expect("results")
    }

    #[test]
    fn a_failure_is_open_with_all_that_is_known_of_it() {
        let page =
            page(&run("two callbacks"), Some(&("arm.one".to_owned(), Ok("<svg id=\"drawn\"></svg>".to_owned()))));
        for part in [
            "<title>NDKPI conformance: 1 failed, 1 inconclusive</title>",
            "<td>Ethernet 3</td>",
            "<td>late,delay=~200</td>",
            "<details class=\"failed\"",
            "<b>arm.one</b>",
            "<td>Arms &amp; waits.</td>",
            "<td>One &lt;callback&gt;.</td>",
            "<td>two callbacks</td>",
            "<code>ndkctl selftest --fault &quot;late,delay=~200&quot;</code>",
            "<figure><svg id=\"drawn\">",
            "1 failed</label>",
            "id=\"filter\"",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(page.contains("NDKPI 7.9</h2>") && page.find("NDKPI 7.9</h2>") < page.find("NDKPI 7.10</h2>"));
        assert_eq!(page.matches("\" open>").count(), 2, "what failed, and what is not known");
        // Nothing is fetched.
        for address in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(address), "{address}");
        }
    }

    #[test]
    fn what_a_provider_says_stays_text() {
        let text = "</details><script>alert(1)</script>{{rules}}\"";
        let page = page(&run(text), Some(&("arm.one".to_owned(), Err(text.to_owned()))));
        assert_eq!(page.matches("<script>").count(), 1, "the page's own");
        assert_eq!(page.matches("</details>").count(), 3, "one for each case");
        assert!(page.contains("{{rules}}"), "it is not filled in");
    }

    #[test]
    fn sections_are_in_the_order_of_their_numbers() {
        assert!(place("NDKPI 7.9") < place("NDKPI 7.10") && place("NDKPI 2") < place("NDKPI 2.6"));
    }
}
