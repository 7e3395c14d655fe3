//! Random programs do what the oracle says over a wire too: on a clean cable, and on one that spoils frames in each way by itself and in all
//! ways together.

use std::{fs, path::Path};

use programs::{Counts, Way, generate};

fn run_all(name: &str, way: Way, programs: impl Iterator<Item = Vec<u8>>) -> Counts {
    let mut counts = Counts::default();
    for program in programs {
        if let Err(words) = programs::run_on(&program, &mut counts, way, false) {
            let shorter = generate::shrink_on(program, way);
            let again = programs::run_on(&shorter, &mut Counts::default(), way, false);
            panic!("{name}: {words}\nagain: --wire {name} --program {}: {again:?}", generate::digits(&shorter));
        }
    }
    println!("{name}: {counts}");
    counts
}

#[test]
fn programs_do_what_the_oracle_says_on_each_cable() {
    for (seed, (name, way)) in (1..).zip(Way::cables()) {
        let count = if name == "clean" { 100 } else { 15 };
        let counts = run_all(name, way, (0..count).map(|number| generate::program(seed, number)));
        assert!(counts.completions > 0 && counts.failures > 0 && counts.callbacks > 0, "{name}: {counts}");
    }
}

#[test]
fn a_third_of_what_the_fuzzer_has_kept_does_what_the_oracle_says_on_a_clean_cable() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/programs.txt");
    let text = fs::read_to_string(&corpus).expect("the fuzzer has a corpus");
    let programs =
        text.lines().step_by(3).map(|line| generate::from_digits(line).expect("an even number of hex digits"));
    let (name, way) = Way::cables()[0];
    assert!(run_all(name, way, programs).programs > 100);
}
