//! Which cases a run has.

use std::{fs, path::Path};

use conformance::{Case, cases, selects};

use crate::args::Selftest;

/// The cases that the arguments choose, in the order of the suite.
///
/// # Errors
///
/// One line: an argument chooses nothing, or names what there is not.
pub fn choose(args: &Selftest) -> Result<Vec<&'static Case>, String> {
    let mut chosen: Vec<_> = cases::all().collect();
    if let Some(filter) = &args.filter {
        chosen.retain(|case| selects(filter, case));
        if chosen.is_empty() {
            return Err(format!("no case matches `{filter}`; themes are {}", themes()));
        }
    }
    if let Some(from) = &args.from {
        let first = cases::all().position(|case| case.name == from);
        let first = first.ok_or_else(|| format!("--from: there is no case `{from}`; --list shows them"))?;
        let behind: Vec<_> = cases::all().skip(first).map(|case| case.name).collect();
        chosen.retain(|case| behind.contains(&case.name));
    }
    if let Some(path) = &args.exclude {
        let excluded = excluded(path)?;
        chosen.retain(|case| !excluded.iter().any(|line| names(line, case)));
    }
    if chosen.is_empty() {
        return Err("no case is left to run: --filter, --from and --exclude leave out all of them".to_owned());
    }
    Ok(chosen)
}

/// The names in a file of what to leave out.
fn excluded(path: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("--exclude: {}: {error}", path.display()))?;
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if !cases::all().any(|case| names(line, case)) {
            let place = format!("{}:{}", path.display(), number + 1);
            return Err(format!("--exclude: {place}: there is no case or theme `{line}`; themes are {}", themes()));
        }
        all.push(line.to_owned());
    }
    Ok(all)
}

/// Returns true if this is the name of the case, or of its theme.
fn names(line: &str, case: &Case) -> bool {
    case.name == line || case.theme() == line
}

fn themes() -> String {
    let mut themes: Vec<_> = cases::all().map(Case::theme).collect();
    themes.dedup();
    themes.join(", ")
}

#[cfg(test)]
mod tests {
    use conformance::{Case, cases};

    use super::choose;
    use crate::selftest::tests::selftest;

    fn chosen(words: &[&str]) -> Result<Vec<&'static str>, String> {
        choose(&selftest(words)).map(|cases| cases.iter().map(|case| case.name).collect())
    }

    #[test]
    fn a_whole_name_is_one_case_and_a_part_is_several() {
        assert_eq!(chosen(&["--filter", "cq.many"]).as_deref(), Ok(&["cq.many"][..]));
        assert!(chosen(&["--filter", "arm.merge"]).expect("cases").len() >= 9);
        // Whichever case it is: what `again` names is one case.
        for case in cases::all() {
            assert_eq!(chosen(&["--filter", case.name]).expect("a case"), [case.name]);
        }
    }

    #[test]
    fn from_leaves_out_what_comes_before() {
        let all: Vec<_> = cases::all().map(|case| case.name).collect();
        let behind = chosen(&["--from", all[7]]).expect("cases");
        assert_eq!(behind, all[7..]);
        let last = all.last().expect("cases");
        assert_eq!(chosen(&["--from", last]).as_deref(), Ok(&[*last][..]));
        let error = chosen(&["--from", "arm"]).expect_err("a theme is no case");
        assert!(error.contains("--list"), "{error}");
        let error = chosen(&["--filter", all[0], "--from", last]).expect_err("nothing is left");
        assert!(error.contains("no case is left"), "{error}");
    }

    #[test]
    fn a_file_leaves_out_cases_and_themes() {
        let file = std::env::temp_dir().join(format!("ndkctl-exclude-{}", std::process::id()));
        let name = file.to_str().expect("a name");
        std::fs::write(&file, "# known\narm.merge-triples  # since May\n\nstress\n").expect("room");
        let left = chosen(&["--exclude", name]).expect("cases");
        let out = cases::all().filter(|case| case.name == "arm.merge-triples" || Case::theme(case) == "stress").count();
        assert!(out > 5 && !left.iter().any(|name| name.starts_with("stress.")));
        assert_eq!(left.len(), cases::all().count() - out);
        std::fs::write(&file, "stress\narm.tripels\n").expect("room");
        let error = chosen(&["--exclude", name]).expect_err("a mistake");
        assert!(error.contains(":2: there is no case or theme `arm.tripels`"), "{error}");
        std::fs::remove_file(&file).expect("it is there");
        assert!(chosen(&["--exclude", name]).expect_err("no file").starts_with("--exclude: "));
    }
}
