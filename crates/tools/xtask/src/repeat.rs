use std::{
    env,
    ffi::OsString,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use anyhow::{Result, ensure};
use regex::Regex;
use xshell::cmd;

use crate::context::{Context, host, processors};

/// Runs each test program several times beside busy processors, and names what fails
///
/// One run says little about a test with threads, time-outs or a seed. What follows `--` goes to `cargo test`: `cargo xtask repeat 30 --
/// --example nvme_read`. All of them five times take an hour and more.
#[derive(clap::Args)]
pub struct Repeat {
    /// How often
    #[arg(default_value_t = 5)]
    times: u32,
    /// For `cargo test`
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

impl Repeat {
    pub fn run(&self, context: &Context) -> Result<()> {
        let sh = &context.sh;
        cmd!(sh, "cargo test --no-run").args(&self.arguments).run()?;
        let said = cmd!(sh, "rustc -vV").quiet().read()?;
        let runner = format!("CARGO_TARGET_{}_RUNNER", host(&said)?.to_uppercase().replace('-', "_"));
        let this = env::current_exe()?;
        let Self { times, arguments } = self;
        let tests = cmd!(sh, "cargo test --no-fail-fast").args(arguments);
        let tests = tests.env(runner, format!("{} repeated {times}", this.display()));
        beside_busy_processors(|| Ok(tests.run()?))
    }
}

/// Runs a test program so many times: the `runner` of the host's target in `repeat`
#[derive(clap::Args)]
pub struct Repeated {
    times: u32,
    program: OsString,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Repeated {
    pub fn run(&self, _: &Context) -> Result<()> {
        let mut failed = Vec::new();
        for time in 1..=self.times {
            let done = Command::new(&self.program).args(&self.arguments).output()?;
            let said = String::from_utf8_lossy(&done.stdout);
            if !done.status.success() {
                println!("{said}{}", String::from_utf8_lossy(&done.stderr));
                failed.push(format!("run {time}: {} {}", done.status, failures(&said).join(", ")));
            } else if time == self.times {
                said.lines().filter(|line| line.starts_with("test result")).for_each(|line| println!("{line}"));
            }
        }
        let Self { times, .. } = self;
        ensure!(failed.is_empty(), "{} of {times} runs have failed\n{}", failed.len(), failed.join("\n"));
        println!("{times} runs, none has failed");
        Ok(())
    }
}

/// The names of the tests that have failed, from lines such as "test name ... FAILED".
fn failures(said: &str) -> Vec<&str> {
    let line = Regex::new(r"(?m)^test (\S+) .*FAILED").expect("a pattern");
    line.captures_iter(said).filter_map(|found| found.get(1)).map(|name| name.as_str()).collect()
}

/// Does `work` while as many threads as there are processors want all their time.
fn beside_busy_processors(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..processors() {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = work();
        over.store(true, Relaxed);
        done
    })
}

#[test]
fn tests_that_fail_are_named() {
    let said = "running 3 tests\ntest one ... ok\ntest rules::two ... FAILED\ntest three ... ignored\n";
    assert_eq!(failures(said), ["rules::two"]);
}
