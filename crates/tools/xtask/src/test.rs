use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Mutex,
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use xshell::cmd;

use crate::context::Context;

/// What has tests beyond those of the default members.
const PACKAGES: [&str; 20] = [
    "ndkctl",
    "bench",
    "cable",
    "driver-common",
    "image-loader",
    "install",
    "kernel",
    "kernel-tests",
    "mutants",
    "programs",
    "recorder",
    "recording",
    "remote",
    "replay",
    "runner",
    "schemas",
    "script-machine",
    "softndk",
    "softndknic",
    "xtask",
];

/// How many test programs run beside each other. One alone leaves processors idle: its last test often is its longest.
const BESIDE: usize = 2;

/// Runs the tests that `cargo test` leaves out, because they take long to build
///
/// Those of the drivers in the simulated kernel, of that kernel, of recordings, of ndkctl and of these chores; random programs.
/// They need nothing but the compiler, and use again what `cargo run` and `cargo test` have built. Two test programs run at a time: what one
/// says comes when it has ended. Then what ndkctl has printed as JSON is compared with its schemas. Ten minutes.
#[derive(clap::Args)]
pub struct Test {
    /// Only these test programs
    #[arg(long = "test", value_name = "PROGRAM")]
    pub programs: Vec<String>,
    /// Only tests with one of these in their names
    pub filter: Vec<String>,
}

impl Test {
    pub fn run(&self, context: &Context) -> Result<()> {
        let targets: Vec<_> = if self.programs.is_empty() {
            // Also what a manifest keeps from the default members.
            ["--no-run", "--lib", "--bins", "--test=*"].map(str::to_owned).into()
        } else {
            let only = self.programs.iter().map(|program| format!("--test={program}"));
            std::iter::once("--no-run".to_owned()).chain(only).collect()
        };
        let mut programs = build(context, "test", &targets)?;
        programs.retain(|program| program.has_tests);
        ensure!(!programs.is_empty(), "nothing was built that has tests");

        let values = context.sh.create_temp_dir()?;
        self.run_all(&programs, values.path())?;
        if self.programs.is_empty() && self.filter.is_empty() {
            compare_with_schemas(context, values.path())?;
        }
        Ok(())
    }

    fn run_all(&self, programs: &[Program], values: &Path) -> Result<()> {
        let began = Instant::now();
        let next = Mutex::new(programs.iter());
        let failed = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..BESIDE {
                scope.spawn(|| {
                    while let Some(program) = { next.lock().expect("no panic").next() } {
                        let done = program.run(&self.filter, values);
                        // One at a time: what it says stays together.
                        let mut failed = failed.lock().expect("no panic");
                        if !program.tell(done) {
                            failed.push(program.name.as_str());
                        }
                    }
                });
            }
        });
        let (failed, all) = (failed.into_inner().expect("no panic"), programs.len());
        ensure!(failed.is_empty(), "{} of {all} test programs have failed: {}", failed.len(), failed.join(", "));
        println!("{all} test programs in {} s", began.elapsed().as_secs());
        Ok(())
    }
}

/// Compares what ndkctl has printed as JSON with its schemas, by the crate `schemas`: its tests keep it where `NDKCTL_VALUES` says.
fn compare_with_schemas(context: &Context, values: &Path) -> Result<()> {
    let programs = build(context, "build", &["--bin=schemas".to_owned()])?;
    let program = programs.iter().find(|program| program.name == "schemas").context("it was not built")?;
    let (sh, program) = (&context.sh, &program.path);
    Ok(cmd!(sh, "{program} {values}").run()?)
}

/// What cargo has built.
struct Program {
    name: String,
    path: PathBuf,
    /// That of its package, where cargo runs tests.
    folder: PathBuf,
    has_tests: bool,
}

/// Builds with all those packages, whatever is wanted of them: with others cargo would build them with other features, and again.
fn build(context: &Context, command: &str, options: &[String]) -> Result<Vec<Program>> {
    let sh = &context.sh;
    let packages = PACKAGES.map(|package| format!("--package={package}"));
    let cargo = cmd!(sh, "cargo {command} {packages...} --features softndk/faults {options...}");
    let said = cargo.arg("--message-format=json-render-diagnostics").read()?;
    said.lines().filter_map(|line| Program::of(line).transpose()).collect()
}

impl Program {
    /// The program that a line of cargo's is about, if it is about one.
    fn of(line: &str) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Message {
            executable: Option<PathBuf>,
            manifest_path: Option<PathBuf>,
            profile: Option<Profile>,
            target: Option<Target>,
        }
        #[derive(Deserialize)]
        struct Profile {
            test: bool,
        }
        #[derive(Deserialize)]
        struct Target {
            name: String,
        }
        let message = serde_json::from_str(line).with_context(|| format!("cargo said: {line}"))?;
        let Message {
            executable: Some(path),
            manifest_path: Some(manifest),
            profile: Some(profile),
            target: Some(target),
        } = message
        else {
            return Ok(None);
        };
        let folder = manifest.parent().context("a manifest lies in a folder")?.to_owned();
        Ok(Some(Self { name: target.name, path, folder, has_tests: profile.test }))
    }

    fn run(&self, filter: &[String], values: &Path) -> Result<Output> {
        let mut program = Command::new(&self.path);
        program
            .args(filter)
            .current_dir(&self.folder)
            .env("NDKCTL_VALUES", values)
            .output()
            .context("it does not start")
    }

    /// Prints what it has said, under the line that cargo has before it. Whether it passed.
    fn tell(&self, done: Result<Output>) -> bool {
        println!("     Running {} ({})", self.name, self.path.display());
        match done {
            Ok(done) => {
                print!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
                if !done.status.success() {
                    println!("{}", done.status);
                }
                done.status.success()
            }
            Err(error) => {
                println!("{error:#}");
                false
            }
        }
    }
}

#[test]
fn programs_are_taken_from_what_cargo_says() {
    let artifact = r#"{"reason":"compiler-artifact","manifest_path":"/a/b/Cargo.toml","target":{"name":"rules"},"profile":{"test":true},
        "executable":"/a/target/debug/deps/rules-1"}"#;
    let program = Program::of(artifact).expect("JSON").expect("a program");
    assert_eq!((program.name.as_str(), program.has_tests), ("rules", true));
    assert_eq!((program.path, program.folder), ("/a/target/debug/deps/rules-1".into(), "/a/b".into()));
    for none in
        [r#"{"reason":"build-finished","success":true}"#, &artifact.replace("\"/a/target/debug/deps/rules-1\"", "null")]
    {
        assert!(Program::of(none).expect("JSON").is_none(), "{none}");
    }
    assert!(Program::of("Compiling").is_err());
}
