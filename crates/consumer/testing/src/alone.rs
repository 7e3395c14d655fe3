//! Tests in processes of their own.
//!
//! A process has one simulated kernel at a time, and static variables of the drivers that are linked into it outlive a kernel. In
//! processes of their own, long tests run in parallel.

use std::{array, env, process::Command, thread};

/// Tells the process of a test to do its work.
const ALONE: &str = "TEST_ALONE";

/// Tells it which part of the work that is.
const PART: &str = "TEST_PART";

/// What a line of an answer begins with.
const ANSWER: &str = "answer: ";

fn is_alone(test: &str) -> bool {
    env::var(ALONE).is_ok_and(|name| name == test)
}

/// Runs the test in a process of its own. The lines that it answers.
fn run_alone(test: &str, part: usize) -> Vec<String> {
    let program = env::current_exe().expect("a test knows its own program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--include-ignored"]).env(ALONE, test).env(PART, part.to_string());
    let output = command.output().expect("a test can start its own program");
    let words = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && words.0.contains("1 passed"), "{}{}", words.0, words.1);
    words.0.lines().filter_map(|line| Some(line.split_once(ANSWER)?.1.to_owned())).collect()
}

/// Does the work of the test with this name in a process of its own.
///
/// # Panics
///
/// Panics if it does there.
pub fn in_a_process_of_its_own(test: &str, work: impl FnOnce()) {
    if is_alone(test) {
        return work();
    }
    run_alone(test, 0);
}

/// Does the parts of a test's work, which have numbers, at one time, each in a process of its own, and compares the lines that they answer.
///
/// # Panics
///
/// Panics if a part does, or answers nothing.
pub fn in_processes_of_their_own<const PARTS: usize>(
    test: &str,
    work: impl FnOnce(usize) -> Vec<String>,
    compare: impl FnOnce([Vec<String>; PARTS]),
) {
    if is_alone(test) {
        let part = env::var(PART).ok().and_then(|part| part.parse().ok()).expect("the part to do");
        for line in work(part) {
            println!("{ANSWER}{line}");
        }
        return;
    }
    compare(thread::scope(|scope| {
        let parts: [_; PARTS] = array::from_fn(|part| scope.spawn(move || run_alone(test, part)));
        parts.map(|part| {
            let answer = part.join().expect("the part is done");
            assert!(!answer.is_empty(), "{test} has answered nothing");
            answer
        })
    }));
}
