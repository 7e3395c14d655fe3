//! Where a program's adapters are.

use std::cell::Cell;

use softnd::{
    choice::{Choice, Wanted, choose},
    settings::Settings,
};

#[test]
fn the_drivers_adapters_are_taken_where_they_are_and_the_processs_own_where_not() {
    let there = || Ok::<_, &str>("a session");
    let missing = || Err::<&str, _>("no such file");
    let choice = choose(Wanted::Auto, there).expect("a choice");
    assert!(matches!(choice, Choice::Driver("a session")));
    assert_eq!(choice.to_string(), r"driver: \\.\SoftNdkNd");
    let choice = choose(Wanted::Auto, missing).expect("a choice");
    assert!(matches!(choice, Choice::Process(Some("no such file"))));
    assert_eq!(choice.to_string(), r"process: \\.\SoftNdkNd cannot be used: no such file");
    // Nothing else will do.
    assert!(matches!(choose(Wanted::Driver, there), Ok(Choice::Driver(_))));
    assert_eq!(choose(Wanted::Driver, missing).expect_err("no driver"), "no such file");
}

#[test]
fn a_program_that_wants_its_own_adapters_does_not_open_the_driver() {
    let opened = Cell::new(false);
    let open = || {
        opened.set(true);
        Ok::<_, &str>(())
    };
    let choice = choose(Wanted::Process, open).expect("a choice");
    assert_eq!(choice.to_string(), "process: the setting `backend` says so");
    assert!(!opened.get());
}

#[test]
fn settings_say_where_and_how_much_is_told() {
    let mut settings = Settings::default();
    assert_eq!((settings.back_end, settings.verbose), (Wanted::Auto, false));
    settings.set("backend", "driver").expect("a back end");
    settings.set("log", "all").expect("how much is told");
    assert_eq!((settings.back_end, settings.verbose), (Wanted::Driver, true));
    let error = settings.set("backend", "kernel").expect_err("no back end");
    assert_eq!(error, "backend cannot be `kernel`; allowed: auto, driver or process");
    let error = settings.set("log", "much").expect_err("no such amount");
    assert_eq!(error, "log cannot be `much`; allowed: `errors` or `all`");
}
