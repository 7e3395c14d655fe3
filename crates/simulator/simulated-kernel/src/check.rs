//! What tests ask of the kernel.

use std::process::Command;

use host::machine;

use crate::{
    report::{CHILD, EXIT_CODE, bug_check},
    rule::Rule,
};

/// The IRQL of the current thread.
#[must_use]
pub fn irql() -> u8 {
    machine::current_irql().0
}

/// The number of spin locks that the current thread holds.
#[must_use]
pub fn locks_held() -> usize {
    machine::locks_held()
}

/// To be called by a consumer's callback: ends the test if the provider holds a lock or is above `DISPATCH_LEVEL`.
pub fn assert_consumer_callback() {
    if machine::locks_held() > 0 {
        bug_check(Rule::LockHeld, format_args!("a spin lock is held over a consumer's callback"));
    }
    if machine::current_irql() > machine::Irql::DISPATCH_LEVEL {
        bug_check(Rule::IrqlTooHigh, format_args!("a consumer's callback at {}", machine::current_irql()));
    }
}

/// Checks that `scenario` breaks `rule`. It runs in a process of its own, in which the test of that name is run again.
///
/// # Panics
///
/// If the process ends in another way than by a bug check that names the rule.
pub fn caught(test: &str, rule: Rule, scenario: impl FnOnce()) {
    caught_saying(test, rule, "", scenario);
}

/// As [`caught`], by a bug check that says `words` too.
///
/// # Panics
///
/// As [`caught`], and if the words are not said.
pub fn caught_saying(test: &str, rule: Rule, words: &str, scenario: impl FnOnce()) {
    if std::env::var(CHILD).is_ok_and(|child| child == test) {
        scenario();
        eprintln!("the scenario has come to its end, and nothing was caught");
        std::process::exit(0);
    }
    let program = std::env::current_exe().expect("a test knows its own program");
    let name = test.split_once("::").map_or(test, |(_, name)| name);
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .output()
        .expect("a test can start its own program");
    let errors = String::from_utf8_lossy(&output.stderr);
    let broken = format!("rule broken: {rule}:");
    assert!(
        output.status.code() == Some(EXIT_CODE) && errors.contains(&broken) && errors.contains(words),
        "`{rule}` ({words}) was not caught: {}\n{errors}",
        output.status
    );
}
