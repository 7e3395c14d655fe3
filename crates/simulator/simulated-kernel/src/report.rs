//! The bug check: how a broken rule ends the test.

use std::{
    fmt,
    io::Write,
    panic::{self, PanicHookInfo},
    process,
    sync::OnceLock,
};

use crate::{rule::Rule, running};

/// The exit code of a process that a bug check has ended.
pub const EXIT_CODE: i32 = 188;

/// The environment variable that tells a test's process to carry out the scenario that it names, and to be ended by it.
pub const CHILD: &str = "SIMULATED_KERNEL_SCENARIO";

/// Ends the process, as a kernel that has found a driver breaking a rule does.
#[cold]
pub fn bug_check(rule: Rule, details: fmt::Arguments<'_>) -> ! {
    stop(format_args!("rule broken: {rule}: {details}"))
}

/// The same for a rule that the kernel does not know, by its name.
#[cold]
pub fn bug_check_of(rule: fmt::Arguments<'_>, details: fmt::Arguments<'_>) -> ! {
    stop(format_args!("rule broken: {rule}: {details}"))
}

/// Ends the process with the words of a panic, which may name a rule of the machine.
#[cold]
pub fn bug_check_panic(words: &str) -> ! {
    if let Some((_, rule)) = words.split_once("rule broken: ") {
        stop(format_args!("rule broken: {rule}"));
    }
    bug_check(Rule::DriverPanicked, format_args!("{words}"))
}

fn stop(words: fmt::Arguments<'_>) -> ! {
    running::leave_driver();
    let ending = ENDING.get().map(|ending| ending()).unwrap_or_default();
    // Not through the macro, whose output a test harness would keep to itself.
    let _ = writeln!(std::io::stderr(), "simulated kernel: bug check: {words}{ending}");
    #[cfg(windows)]
    for frame in crate::sites::frames::stack() {
        let _ = writeln!(std::io::stderr(), "    called from {frame}");
    }
    let _ = std::io::stderr().flush();
    process::exit(EXIT_CODE)
}

/// What a message says at its end of where the thread is and what was done to the kernel: a function of whoever knows that.
static ENDING: OnceLock<fn() -> String> = OnceLock::new();

/// Lets a panic inside of a driver, which cannot unwind through the kernel, end as a bug check, and messages with what `ending` says.
pub fn begin(ending: fn() -> String) {
    ENDING.get_or_init(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if running::in_driver() {
                running::leave_driver();
                bug_check(Rule::DriverPanicked, format_args!("{info}"));
            }
            before(info);
        }));
        ending
    });
}

/// The words of a caught panic.
pub fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
