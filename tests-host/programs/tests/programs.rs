//! Random programs do what the oracle says, and a wrong provider does not pass.

use std::{
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use engine::fault::{self, Fault};
use programs::{Counts, generate};

/// A mistake is made in the whole program: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn programs_do_what_the_oracle_says() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
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
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/programs.txt");
    let text = fs::read_to_string(&corpus).expect("the fuzzer has a corpus");
    let mut counts = Counts::default();
    for line in text.lines() {
        let program = generate::from_digits(line).expect("an even number of hex digits");
        programs::run(&program, &mut counts).unwrap_or_else(|words| panic!("--program {line}: {words}"));
    }
    assert!(counts.programs > 100, "{} programs", counts.programs);
}

#[test]
fn wrong_providers_do_not_pass() {
    const MISTAKES: [Fault; 16] = [
        Fault::ArmDowngraded,
        Fault::ArmMissesQueuedEntry,
        Fault::ArmIsNotOneShot,
        Fault::PlainEntrySolicits,
        Fault::FailedRequestDoesNotSolicit,
        Fault::DepthOffByOne,
        Fault::ResizeLosesEntry,
        Fault::WrongOrder,
        Fault::SilentSuccessCompletes,
        Fault::BytesWrong,
        Fault::TooManyElementsAccepted,
        Fault::RangeOffByOneAbove,
        Fault::RangeOffByOneBelow,
        Fault::RightsNotChecked,
        Fault::TokenAfterInvalidate,
        Fault::FlushOnIncomingDisconnect,
    ];
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut passed = Vec::new();
    for mistake in MISTAKES {
        fault::set(Some(mistake));
        let found =
            (0..1_000).find(|number| programs::run(&generate::program(2, *number), &mut Counts::default()).is_err());
        fault::set(None);
        println!("{mistake:?}: {found:?}");
        if found.is_none() {
            passed.push(mistake);
        }
    }
    assert!(passed.is_empty(), "these mistakes pass: {passed:?}");
}
