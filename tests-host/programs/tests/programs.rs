//! Random programs do what the oracle says. That a wrong provider does not pass is in `tests-host/broken`.

use std::{fs, path::Path};

use programs::{Counts, generate};

#[test]
fn programs_do_what_the_oracle_says() {
    let mut counts = Counts::default();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/programs");
    for seed in fs::read_dir(&seeds).expect("the fuzzer has seeds") {
        let path = seed.expect("a seed").path();
        let program = fs::read(&path).expect("a seed can be read");
        programs::run(&program, &mut counts).unwrap_or_else(|words| panic!("{}: {words}", path.display()));
    }
    assert!(counts.programs > 4, "{} seeds", counts.programs);
    for number in 0..1_000 {
        let program = generate::program(1, number);
        if let Err(words) = programs::run(&program, &mut counts) {
            let shorter = generate::shrink(program);
            let again = programs::run(&shorter, &mut Counts::default());
            panic!("program {number}: {words}\nagain: --program {}: {again:?}", generate::digits(&shorter));
        }
    }
    println!("{counts}");
}

#[test]
fn what_the_fuzzer_has_kept_does_what_the_oracle_says() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/programs.txt");
    let text = fs::read_to_string(&corpus).expect("the fuzzer has a corpus");
    let mut counts = Counts::default();
    for line in text.lines() {
        let program = generate::from_digits(line).expect("an even number of hex digits");
        programs::run(&program, &mut counts).unwrap_or_else(|words| panic!("--program {line}: {words}"));
    }
    assert!(counts.programs > 100, "{} programs", counts.programs);
}
