use std::{
    fs::OpenOptions,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::context::{Context, absolute};

/// What has to hold, and the commands that show it: words separated by spaces, variables in front.
struct Step {
    what: &'static str,
    run: &'static [&'static str],
    /// Then these, whose tests are added to those of `cargo test` (.ci/run counts them).
    count: &'static [&'static str],
}

/// Before a change lands.
const GATE: [Step; 6] = [
    Step {
        what: "formatting",
        run: &[
            "cargo fmt --all -- --check",
            // The stand-ins for the kit's crates are no members of the workspace.
            "rustfmt --check --edition 2024 xbuild/wdk-build/src/lib.rs xbuild/wdk-sys/src/lib.rs",
        ],
        count: &[],
    },
    Step {
        what: "clippy",
        // In one command: what several want is checked once. driver-images is for Windows only, and the wrong providers are the night's. The
        // last two selections have what is not of `cargo test` and `cargo bench`; `--benches` would have each library once more.
        run: &[
            "cargo clippy --workspace --exclude driver-images --exclude broken --exclude broken-* --lib --bins --examples --tests --test * --bench * -- -D warnings",
        ],
        count: &[],
    },
    Step {
        what: "kernel drivers",
        run: &[
            // What Makefile.toml has for Linux, of one architecture: the night makes both, by cargo-make, whose build takes minutes on a new
            // machine.
            "cargo xtask drivers --arch x86_64",
            "cargo xtask stack-depth target/drivers/x86_64/ndktest.sys target/drivers/x86_64/softndk.sys \
             target/drivers/x86_64/softndknic.sys",
        ],
        count: &[],
    },
    Step {
        what: "the tests that `cargo test` leaves out; the images, compared with what Windows wants of one",
        run: &[],
        count: &["SOFTNDK_REQUIRE_DRIVERS=1 cargo xtask test"],
    },
    Step { what: "packets of a recording, read by tshark", run: &["cargo xtask packets"], count: &[] },
    Step {
        what: "the wire: Linux' rxe and its NVMe target at the other end",
        run: &["cargo xtask rxe --short"],
        count: &[],
    },
];

/// What takes another build of much, or finds the more the longer it runs: at night (host.yml), and whenever a change is of its kind.
const NIGHT: [Step; 10] = [
    Step {
        what: "tests for which once a night is enough, and those of the simulated kernel's own parts",
        run: &[
            "cargo test --test adviser --test nd2 --test wire_engine -- --ignored",
            "cargo test -p remote -- --ignored",
            "cargo test -p simulated-kernel",
        ],
        count: &[],
    },
    Step {
        what: "the headers for consumers; the sample consumer in C, built and run",
        run: &["cargo xtask header"],
        count: &[],
    },
    Step {
        what: "documentation",
        run: &[
            "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps",
            "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps -p cable -p recorder -p recording -p replay",
        ],
        count: &[],
    },
    Step {
        what: "providers that are wrong on purpose",
        run: &["cargo clippy -p broken -p broken-* --lib --tests -- -D warnings", "cargo test -p broken"],
        count: &[],
    },
    Step { what: "model checks (loom)", run: &["cargo xtask loom"], count: &[] },
    Step { what: "random schedules of the provider", run: &["cargo xtask schedules 1000000"], count: &[] },
    Step {
        what: "the images of the drivers, run under Wine",
        run: &["cargo xtask drivers --arch x86_64", "cargo xtask images --no-drivers"],
        count: &[],
    },
    Step {
        what: "the images of the sample consumer and its mistakes",
        run: &["cargo xtask worker", "cargo xtask sample"],
        count: &[],
    },
    Step { what: "the self-test, as released", run: &["cargo run --release -- selftest"], count: &[] },
    Step { what: "counted instructions against those kept", run: &["cargo xtask bench --smoke"], count: &[] },
];

/// The commands of all steps.
pub fn ci_commands() -> impl Iterator<Item = &'static str> {
    GATE.iter().chain(&NIGHT).flat_map(|step| step.run.iter().chain(step.count)).copied()
}

/// Does everything that has to hold before a change lands, but the README's two commands
///
/// .ci/run does those first. What the commands need is installed. Twenty minutes; --from goes on where it stopped.
#[derive(clap::Args)]
pub struct Ci {
    /// Only list the steps and their commands
    #[arg(long)]
    list: bool,
    /// Begin with the step of this number
    #[arg(long, value_name = "STEP", default_value_t = 1)]
    from: usize,
    /// Instead, what is done once a night: an hour
    #[arg(long)]
    night: bool,
}

impl Ci {
    pub fn run(&self, _: &Context) -> Result<()> {
        let began = Instant::now();
        let steps: &[Step] = if self.night { &NIGHT } else { &GATE };
        if self.list {
            list(steps);
            return Ok(());
        }
        ensure!((1..=steps.len()).contains(&self.from), "there are steps 1 to {}: --list shows them", steps.len());
        // Asked for now: a step that builds this package puts another file in its place, and Linux then has no path for it.
        let myself = std::env::current_exe()?;
        let mut times = Vec::new();
        for (number, step) in (1..).zip(steps).skip(self.from - 1) {
            let step_began = Instant::now();
            println!("\n=== {number}. {} (at {} s)", step.what, began.elapsed().as_secs());
            let commands = step.run.iter().map(|line| (line, false)).chain(step.count.iter().map(|line| (line, true)));
            for (line, counted) in commands {
                println!("$ {line}");
                let mut command = command(&myself, line)?;
                let status = if counted { copied(command)? } else { command.status()? };
                ensure!(
                    status.success(),
                    "step {number} has failed: {line}\ncargo xtask ci {}--from {number} goes on from here",
                    if self.night { "--night " } else { "" }
                );
            }
            times.push((step_began.elapsed().as_secs(), number, step.what));
        }
        times.sort_unstable_by(|one, other| other.cmp(one));
        println!("\nthe steps, the slowest first:");
        for (seconds, number, what) in times {
            println!("{seconds:6} s  {number}. {what}");
        }
        Ok(())
    }
}

fn list(steps: &[Step]) {
    for (number, step) in (1..).zip(steps) {
        println!("{number:2}. {}", step.what);
        step.run.iter().chain(step.count).for_each(|command| println!("      {command}"));
    }
}

/// The command of a line. `myself` is this program.
fn command(myself: &Path, line: &str) -> Result<Command> {
    let mut words = line.split(' ').peekable();
    let mut variables = Vec::new();
    while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
        variables.push((name, value));
        words.next();
    }
    let words: Vec<_> = words.collect();
    let mut command = match words[..] {
        // Not by way of cargo, which would look whether this program is up to date.
        ["cargo", "xtask", ref arguments @ ..] => {
            let mut command = Command::new(myself);
            command.args(arguments);
            command
        }
        [program, ref arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        [] => bail!("an empty command"),
    };
    command.envs(variables).current_dir(absolute("."));
    Ok(command)
}

/// Runs a command, and appends what it says to target/test-output.txt.
fn copied(mut command: Command) -> Result<ExitStatus> {
    let mut file = OpenOptions::new().create(true).append(true).open(absolute("target/test-output.txt"))?;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        writeln!(file, "{line}")?;
    }
    Ok(child.wait()?)
}
