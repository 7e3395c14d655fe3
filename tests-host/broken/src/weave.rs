//! Writes all mistakes into a source at once: where one of them is made, the source asks which.

use std::{fmt::Write, ops::Range};

use crate::{Edit, Kind, Mistake};

/// Where the place of an edit is in `source`. Text may be broken into lines in any way.
///
/// # Errors
///
/// How often the text around the place occurs, if that is not once.
///
/// # Panics
///
/// If the edit does not mark a place.
pub fn locate(edit: &Edit, source: &str) -> Result<Range<usize>, usize> {
    let marked = edit.place.split_once('«').and_then(|(before, rest)| Some((before, rest.split_once('»')?)));
    let Some((before, (inside, after))) = marked else { panic!("no place is marked in {:?}", edit.place) };
    let at = |(begin, _)| {
        let start = end_of(before, source, begin)?;
        let end = end_of(inside, source, start)?;
        end_of(after, source, end).map(|_| start..end)
    };
    let found: Vec<_> = source.char_indices().filter_map(at).collect();
    if let [place] = &found[..] { Ok(place.clone()) } else { Err(found.len()) }
}

/// Where `text` ends if it stands in `source` at `at`. Any white space is like any other.
fn end_of(text: &str, source: &str, mut at: usize) -> Option<usize> {
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        let rest = source[at..].strip_prefix(word)?;
        let spaces = if words.peek().is_some() { rest.len() - rest.trim_start().len() } else { 0 };
        if words.peek().is_some() && spaces == 0 {
            return None;
        }
        at += word.len() + spaces;
    }
    Some(at)
}

/// The places of the mistakes that are no more in the sources, in words. `read` returns the text of a file.
pub fn misfits(mistake: &Mistake, read: impl Fn(&str) -> String) -> Vec<String> {
    let misfit = |edit: &Edit| {
        let times = locate(edit, &read(edit.file)).err()?;
        let (name, file, place) = (mistake.name, edit.file, edit.place);
        Some(format!(
            "the mistake {name} has lost its place: this text is {times} times in crates/provider/{file}, and not once:\n{place}\n\
             The source has changed. Write the edit anew in tests-host/broken/src/mistakes, so that {name} is again what it says: {}",
            mistake.about
        ))
    };
    mistake.edits.iter().filter_map(misfit).collect()
}

/// The source `file` with the mistakes in it, of which the function `on` says whether one is made.
///
/// # Panics
///
/// If edits overlap, or an edit has no place.
#[must_use]
pub fn weave(file: &str, source: &str, mistakes: &[(usize, &Mistake)], on: &str) -> String {
    let edits = mistakes.iter().flat_map(|(number, mistake)| mistake.edits.iter().map(|edit| (*number, edit)));
    let of_file = edits.filter(|(_, edit)| edit.file == file);
    let mut places: Vec<_> =
        of_file.map(|(number, edit)| (locate(edit, source).expect("a place"), number, edit)).collect();
    places.sort_by_key(|(range, ..)| (range.start, range.end));

    let (mut woven, mut at) = (String::with_capacity(2 * source.len()), 0);
    for same in places.chunk_by(|one, next| one.0 == next.0) {
        let Range { start, end } = same[0].0.clone();
        assert!(at <= start, "edits of {file} overlap: {:?}", same[0].2.place);
        woven.push_str(&source[at..start]);
        woven.push_str(&chosen(&source[start..end], same.iter().map(|(_, number, edit)| (*number, *edit)), on));
        at = end;
    }
    woven.push_str(&source[at..]);
    woven
}

/// What comes in the place of `original`.
fn chosen<'a>(original: &str, edits: impl Iterator<Item = (usize, &'a Edit)>, on: &str) -> String {
    let (mut woven, mut choice) = (String::new(), String::new());
    for (number, edit) in edits {
        let text = edit.text;
        let written = match (edit.kind, original) {
            (Kind::State, _) => write!(woven, "{text} "),
            (Kind::Wrong, "") => write!(woven, "if {on}({number}) {{ {text} }} "),
            (Kind::Wrong, _) => write!(choice, "if {on}({number}) {{ {text} }} else "),
        };
        written.expect("a string takes what is written to it");
    }
    if choice.is_empty() { woven + original } else { format!("{woven}({choice}{{ {original} }})") }
}

#[cfg(test)]
mod tests {
    use super::{locate, misfits, weave};
    use crate::{Edit, Kind, Mistake};

    const fn edit(place: &'static str, text: &'static str, kind: Kind) -> Edit {
        Edit { file: "a.rs", place, text, kind }
    }

    const fn mistake(edits: &'static [Edit]) -> Mistake {
        Mistake { name: "Off", about: "One too many.", cases: &[], edits }
    }

    const SOURCE: &str = "struct A {}\nfn f(a: u8) -> u8 {\n    a + 1\n}\n";

    #[test]
    fn an_expression_stands_beside_the_right_one() {
        let one = mistake(const { &[edit("{ «a + 1» }", "a", Kind::Wrong)] });
        let two = mistake(const { &[edit("«a + 1»", "a + 2", Kind::Wrong)] });
        let woven = weave("a.rs", SOURCE, &[(3, &one), (4, &two)], "on");
        let expected = "(if on(3) { a } else if on(4) { a + 2 } else { a + 1 })";
        assert_eq!(woven, SOURCE.replace("a + 1", expected));
        assert_eq!(weave("b.rs", SOURCE, &[(3, &one)], "on"), SOURCE, "another file");
    }

    #[test]
    fn statements_come_where_nothing_is() {
        let one =
            mistake(const { &[edit("{«»}", "late: bool", Kind::State), edit("«»a + 1", "return 0;", Kind::Wrong)] });
        let woven = weave("a.rs", SOURCE, &[(1, &one)], "on");
        assert_eq!(woven, "struct A {late: bool }\nfn f(a: u8) -> u8 {\n    if on(1) { return 0; } a + 1\n}\n");
    }

    #[test]
    fn a_place_that_is_gone_or_not_the_only_one_is_named() {
        let gone = mistake(const { &[edit("«a + 2»", "a", Kind::Wrong)] });
        let [words] = &misfits(&gone, |_| SOURCE.to_owned())[..] else { panic!("one place") };
        for word in ["the mistake Off", "0 times", "crates/provider/a.rs", "a + 2", "One too many."] {
            assert!(words.contains(word), "{words}");
        }
        assert_eq!(locate(&edit("«a»", "", Kind::Wrong), SOURCE), Err(2));
        assert_eq!(locate(&edit("f(«a»", "", Kind::Wrong), SOURCE), Ok(17..18));
        assert_eq!(locate(&edit("u8 {«»", "", Kind::Wrong), SOURCE), Ok(31..31));
        assert_eq!(locate(&edit("+1«»", "", Kind::Wrong), SOURCE), Err(0), "a space is missing");
    }
}
