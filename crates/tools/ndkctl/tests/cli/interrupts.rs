//! Ctrl-C (`docs/ndkctl.md`) as a terminal sends it: to every process of the group, in the middle of the work.

use std::{
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::text;

/// Long enough for a command to be in the middle of it.
const MIDDLE: Duration = Duration::from_millis(700);
/// Every end has come by then.
const LONG: Duration = Duration::from_mins(2);

fn begun(arguments: &[&str], shown: bool, environment: &[(&str, &str)]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ndkctl"))
        .args(arguments)
        .envs(environment.iter().copied())
        .process_group(0)
        .stdout(if shown { Stdio::piped() } else { Stdio::null() })
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs")
}

/// What the terminal does.
fn interrupt(child: &Child) {
    let group = format!("-{}", child.id());
    let sent = Command::new("kill").args(["-INT", "--", &group]).status().expect("kill runs");
    assert!(sent.success());
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < LONG, "{what}");
        sleep(Duration::from_millis(20));
    }
}

fn ended(mut child: Child, what: &str) -> Output {
    wait_for(&format!("{what} does not end"), || child.try_wait().expect("it can be waited for").is_some());
    child.wait_with_output().expect("it has ended")
}

#[test]
fn ctrl_c_ends_every_command_quietly() {
    for arguments in [
        &["selftest", "--repeat", "100000"][..],
        &["selftest", "--repeat", "100000", "--json"],
        &["ping", "--count", "100000000"],
        &["counters", "--watch"],
        &["nd2-selftest", "--seed", "1"],
        &["bench", "--alone"],
    ] {
        let mut child = begun(arguments, arguments[0] == "ping", &[]);
        sleep(MIDDLE);
        assert!(child.try_wait().expect("the program can be waited for").is_none(), "{arguments:?} is over already");
        interrupt(&child);
        let output = ended(child, arguments[0]);
        assert_eq!(output.status.code(), Some(130), "{arguments:?}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        let loud = said.lines().find(|line| !line.starts_with("measuring: "));
        assert_eq!(loud, None, "{arguments:?}");
        // What there is until then is shown.
        if arguments[0] == "ping" {
            let shown = text(&output.stdout);
            let counted = shown.split(' ').next().and_then(|count| count.parse::<u64>().ok());
            assert!(counted.is_some_and(|count| (1..100_000_000).contains(&count)), "{shown}");
        }
    }
}

/// In a terminal of its own, by the key.
#[test]
fn the_key_shows_what_ping_has() {
    let command = format!("'{}' ping --count 100000000", env!("CARGO_BIN_EXE_ndkctl"));
    let started = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(child) = started else {
        println!("not checked: there is no `script` to make a terminal");
        return;
    };
    sleep(2 * MIDDLE);
    child.stdin.as_ref().expect("a terminal").write_all(b"\x03").expect("the key is pressed");
    let output = ended(child, "ping");
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{shown}");
    for words in ["round trips", "p99", "per second"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("panicked"), "{shown}");
}

/// An image that runs, and what runs it; none where `cargo xtask drivers` and `cargo xtask worker` have made none.
fn image() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_ndkctl")).ancestors().nth(2)?;
    let is_there = target.join("runner/worker.exe").is_file();
    Some(target.join("drivers/x86_64/softndk.sys")).filter(|image| is_there && image.is_file())
}

/// Processes whose environment has this.
fn processes_with(mark: &str) -> usize {
    let environments = fs::read_dir("/proc").into_iter().flatten().flatten();
    let environments = environments.filter_map(|entry| fs::read(entry.path().join("environ")).ok());
    environments.filter(|bytes| bytes.windows(mark.len()).any(|part| part == mark.as_bytes())).count()
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_a_run_with_the_seeds_that_it_has_and_leaves_no_worker() {
    let Some(image) = image() else {
        println!("not checked: there is no image, or no worker");
        return;
    };
    let image = image.to_str().expect("a path in UTF-8");
    for presses in [1, 2] {
        let mark = format!("interrupts-{}-{presses}", std::process::id());
        let arguments = ["run", image, "--seeds", "1..100000", "--jobs", "2"];
        let child = begun(&arguments, true, &[("NDKCTL_TEST", &mark)]);
        // Workers are there and have begun, however long Wine takes to start.
        let of_run = format!("NDKCTL_TEST={mark}");
        wait_for("no worker is started", || processes_with(&of_run) >= 3);
        sleep(5 * MIDDLE);
        interrupt(&child);
        if presses == 2 {
            sleep(Duration::from_millis(5));
            interrupt(&child);
        }
        let output = ended(child, "run");
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(130), "{shown}{said}");
        assert!(!shown.contains("crash") && !said.contains("panicked"), "no worker was hit by the key: {shown}{said}");
        if presses == 1 {
            assert!(said.contains("interrupted: ") && said.contains(" of 100000 seeds have ended"), "{said}");
            assert!(shown.contains("passed"), "{shown}");
        }
        wait_for("a worker goes on", || processes_with(&of_run) == 0);
    }
}
