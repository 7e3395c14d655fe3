//! Random programs, which the product passes (`tests-host/programs`), find wrong providers.

use engine::switch;
use programs::{Counts, generate};

#[test]
fn wrong_providers_do_not_pass() {
    const MISTAKES: [&str; 16] = [
        "ArmDowngraded",
        "ArmMissesQueuedEntry",
        "ArmIsNotOneShot",
        "PlainEntrySolicits",
        "FailedRequestDoesNotSolicit",
        "DepthOffByOne",
        "ResizeLosesEntry",
        "WrongOrder",
        "SilentSuccessCompletes",
        "BytesWrong",
        "TooManyElementsAccepted",
        "RangeOffByOneAbove",
        "RangeOffByOneBelow",
        "RightsNotChecked",
        "TokenAfterInvalidate",
        "FlushOnIncomingDisconnect",
    ];
    let mut passed = Vec::new();
    for mistake in MISTAKES {
        let fails = |number: &u64| programs::run(&generate::program(2, *number), &mut Counts::default()).is_err();
        let found = switch::making(mistake, || (0..1_000).find(fails));
        println!("{mistake}: {found:?}");
        if found.is_none() {
            passed.push(mistake);
        }
    }
    assert!(passed.is_empty(), "these mistakes pass: {passed:?}");
}
