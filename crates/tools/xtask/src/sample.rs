use std::{
    net::UdpSocket,
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::Instant,
};

use anyhow::{Result, bail, ensure};
use regex::Regex;
use xshell::cmd;

use crate::context::{Context, absolute, expect_file, have, processors};

const NIC: &str = "target/drivers/x86_64/softndknic.sys";
const SAMPLE: &str = "samples/consumer-c";
/// What is said of a mistake besides its rule. A close that waits is allowed: it is the wait for ever that is found, and said with it is
/// what the adviser had to say before.
const SAID: [(&str, &[&str]); 5] = [
    (
        "memory-freed-early",
        &["an MDL of a region (registered at ", "before the region is deregistered or closed", " RegisterBuffer ("],
    ),
    ("mdl-freed-in-flight", &["an MDL of a region (registered at ", " Round ("]),
    ("stale-token", &["A token that stands for nothing (NDKPI 7.4)", "Qp ", "in NdkWrite"]),
    ("invalidated-token", &["A token used after its invalidation (NDKPI 7.6)", "Qp ", "in NdkWrite"]),
    ("wrong-close-order", &["the adviser has said SN0039", "Cq ", "in NdkCloseObject"]),
];
const COMPILERS: [&str; 2] = ["clang", "mingw"];

/// Runs the images of the sample consumer in C with `ndkctl run`, right and wrong
///
/// On the image of softndknic: the sample with many seeds, and each of its wrong variants, which has to break the rule that
/// samples/consumer-c/README.md names; with the line, where the PDB file can tell it. Then the sample pings `ndkctl wire`, and is pinged, over
/// the wire of softndknic and this machine's loopback. Minutes.
///
/// Needs target/drivers/x86_64/softndknic.sys (`cargo xtask drivers`) and target/runner/worker.exe (`cargo xtask worker`); builds the
/// rest. Skipped where Wine is not installed. NDKCTL names a build of ndkctl; without it one is made.
#[derive(clap::Args)]
pub struct Sample {
    /// How many seeds for the sample as it is
    #[arg(default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
}

impl Sample {
    pub fn run(&self, context: &Context) -> Result<()> {
        expect_file(NIC, "cargo xtask drivers --arch x86_64")?;
        expect_file("target/runner/worker.exe", "cargo xtask worker")?;
        if !have("wine") {
            println!("skipped: Wine is not installed");
            return Ok(());
        }
        let sh = &context.sh;
        for compiler in COMPILERS {
            let out = format!("target/consumer-c-{compiler}");
            cmd!(sh, "{SAMPLE}/build.sh --compiler {compiler} --out {out}").ignore_stdout().run()?;
        }
        let runs = Runs { ndkctl: context.ndkctl("dev")? };
        let began = Instant::now();
        for compiler in COMPILERS {
            runs.succeed(&consumer(compiler, "consumer"), &["--seeds", &format!("1..{}", self.seeds)])?;
        }
        let seeds = f64::from(2 * self.seeds) * 60.0 / began.elapsed().as_secs_f64();
        println!("{seeds:.0} seeds a minute");
        // The same images on processors that run side by side.
        for processors in ["2", "4"] {
            println!("{processors} processors at once");
            runs.succeed(
                &consumer("clang", "consumer"),
                &["--threads", processors, "--seeds", "1..10", "--jobs", "1"],
            )?;
        }
        runs.mistakes(&mistakes(&sh.read_file(format!("{SAMPLE}/README.md"))?)?)?;
        println!("two machines in one run");
        runs.two_machines()?;
        println!("the wire, with a peer outside");
        runs.wire(context)
    }
}

/// The option that names an image of the sample.
fn consumer(compiler: &str, name: &str) -> String {
    format!("consumer=target/consumer-c-{compiler}/{name}.sys")
}

/// The wrong variants, and the rule that each breaks: rows of the table in the README of the sample.
fn mistakes(readme: &str) -> Result<Vec<(String, String)>> {
    let row = Regex::new(r"(?m)^\| `([a-z-]+)\.patch` \|.*\| `([A-Za-z0-9-]+)` \|$")?;
    let rows: Vec<_> = row.captures_iter(readme).map(|row| (row[1].to_owned(), row[2].to_owned())).collect();
    ensure!(!rows.is_empty(), "{SAMPLE}/README.md lists no patches");
    Ok(rows)
}

/// The sizes of ping.toml and serve.toml, and how many pings of each.
const PINGS: [(&str, &str); 3] = [("64", "10"), ("3000", "5"), ("65535", "3")];

/// A program that is ended with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = (self.0.kill(), self.0.wait());
    }
}

impl Ended {
    /// Waits until it ends by itself, which it has to do well.
    fn wait(mut self, what: &str) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "{what}: {status}");
        Ok(())
    }
}

struct Runs {
    ndkctl: std::path::PathBuf,
}

impl Runs {
    /// Runs an image; returns whether no rule was broken, and the report.
    fn run(&self, consumer: &str, options: &[&str]) -> Result<(bool, String)> {
        let script = format!("{SAMPLE}/run.toml");
        let output = self.command(&[&["run", NIC, consumer, "--script", &script], options].concat()).output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).replace('\r', "")))
    }

    fn succeed(&self, consumer: &str, options: &[&str]) -> Result<()> {
        let (good, said) = self.run(consumer, options)?;
        print!("{said}");
        ensure!(good, "the sample breaks a rule");
        Ok(())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.ndkctl);
        command.args(arguments).current_dir(absolute("."));
        command
    }

    /// Runs a script of the sample with these ports of its two ends.
    fn script(&self, context: &Context, name: &str, [serves, pings]: &[String; 2]) -> Result<Command> {
        let text = context.sh.read_file(format!("{SAMPLE}/{name}"))?;
        let end = |at: &str| format!("\"{at}\"");
        let text = text.replace("\"127.0.0.1:5001\"", &end(serves)).replace("\"127.0.0.1:5002\"", &end(pings));
        let path = absolute("target/consumer-c-clang").join(name);
        context.sh.write_file(&path, text)?;
        let mut command = self.command(&["run", NIC, &consumer("clang", "consumer"), "--seeds", "1", "--script"]);
        command.arg(path);
        Ok(command)
    }

    /// The sample on two machines, with loss between them, by seed.
    fn two_machines(&self) -> Result<()> {
        let (consumer, script) = (consumer("clang", "consumer"), format!("{SAMPLE}/two.toml"));
        let file = |name: &str| absolute("target/consumer-c-clang").join(name).display().to_string();
        let (recording, timeline) = (file("two.ndkrec"), file("two.html"));
        let kept: Vec<_> = ["server", "client"]
            .iter()
            .flat_map(|machine| [file(&format!("two-{machine}.ndkrec")), file(&format!("two-{machine}.html"))])
            .collect();
        // Of an earlier run, if they are there.
        for file in &kept {
            drop(std::fs::remove_file(file));
        }
        let run = ["run", NIC, &consumer, "--seeds", "1..3", "--script", &script];
        let status = self.command(&run).args(["--record", &recording, "--timeline", &timeline]).status()?;
        ensure!(status.success(), "two.toml finds something");
        // Each machine has its own, and only one of them connects.
        for (files, machine) in kept.chunks(2).zip(["server", "client"]) {
            ensure!(std::fs::read_to_string(&files[1])?.contains("<html"), "{} is no page", files[1]);
            let events = file("two.json");
            let status = self.command(&["timeline", &files[0], "--perfetto", &events]).status()?;
            ensure!(status.success(), "the recording of {machine} does not open");
            let connects = std::fs::read_to_string(&events)?.contains(r#""name":"Connect""#);
            ensure!(connects == (machine == "client"), "{machine} connects: {connects}");
        }
        Ok(())
    }

    /// The sample pings `ndkctl wire serve`, then `ndkctl wire ping` the sample.
    fn wire(&self, context: &Context) -> Result<()> {
        let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
        let ports = [sockets[0].local_addr()?.to_string(), sockets[1].local_addr()?.to_string()];
        drop(sockets);
        let [serves, pings] = &ports;
        let mut serve = self.command(&["wire", "serve", "--local", "10.0.0.1/24", "--bind", serves, "--peer", pings]);
        let serve = Ended(serve.args(["--connections", &PINGS.len().to_string()]).stdin(Stdio::null()).spawn()?);
        ensure!(self.script(context, "ping.toml", &ports)?.status()?.success(), "ping.toml finds something");
        serve.wait("ndkctl wire serve")?;

        let serve = Ended(self.script(context, "serve.toml", &ports)?.stdin(Stdio::null()).spawn()?);
        for (size, count) in PINGS {
            let mut ping = self.command(&["wire", "ping", "10.0.0.1", "--local", "10.0.0.2/24", "--wait", "60"]);
            ping.args(["--bind", pings, "--peer", serves, "--size", size, "--count", count]);
            ensure!(ping.status()?.success(), "ndkctl wire ping --size {size} finds something");
        }
        serve.wait("serve.toml")
    }

    /// Runs the wrong variants. A run waits more than it works, so that several go on at one time.
    fn mistakes(&self, mistakes: &[(String, String)]) -> Result<()> {
        let (left, results) = (Mutex::new(mistakes.iter()), Mutex::new(Vec::new()));
        let work = || {
            loop {
                let Some((name, rule)) = left.lock().expect("no panic").next() else { return };
                let result = self.mistake(name, rule);
                results.lock().expect("no panic").push((name, result));
            }
        };
        thread::scope(|scope| (0..2 * processors()).for_each(|_| drop(scope.spawn(work))));
        let mut results = results.into_inner().expect("no panic");
        results.sort_by_key(|(name, _)| *name);
        let (mut lines, mut failed) = (0, 0);
        for (_, result) in results {
            match result {
                Ok(found) => {
                    lines += usize::from(found.contains(".c:"));
                    println!("{found}");
                }
                Err(error) => {
                    failed += 1;
                    println!("{error:#}");
                }
            }
        }
        ensure!(failed == 0, "{failed} wrong variants do not break their rule");
        ensure!(lines >= 10, "only {lines} findings have a line");
        Ok(())
    }

    /// Runs a wrong variant: says what it has broken and where, and fails if that is not the rule.
    fn mistake(&self, name: &str, rule: &str) -> Result<String> {
        let consumer = consumer("clang", &format!("consumer-{name}"));
        let mut said = String::new();
        // Some mistakes show with one seed in ten only.
        for seeds in ["1..8", "9..16", "17..24", "25..32"] {
            let (good, report) = self.run(&consumer, &["--seeds", seeds])?;
            said = report;
            if !good {
                break;
            }
            said.insert_str(0, "nothing: ");
        }
        let broken = broken(&said);
        if broken != [rule] {
            bail!("{name} has to break {rule}:\n{said}");
        }
        let words = SAID.iter().filter(|(of, _)| *of == name).flat_map(|(_, words)| words.iter());
        for words in words {
            ensure!(said.contains(words), "{name}: nothing is said of `{words}`:\n{said}");
        }
        // A call that is the last thing a function does leaves nothing of that function on the stack.
        let place = Regex::new(&format!(r"{name}\.c:\d+"))?.find(&said).map(|place| format!(", {}", place.as_str()));
        Ok(format!("{name}: {rule}{}", place.unwrap_or_default()))
    }
}

/// The rules that a report names: a line for each, with what belongs to it below, indented; at the end the sum.
fn broken(report: &str) -> Vec<&str> {
    let mut lines: Vec<_> = report.lines().filter(|line| !line.starts_with(' ')).collect();
    lines.pop();
    let mut rules: Vec<_> = lines.iter().map(|line| line.split(':').next().unwrap_or_default()).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

#[test]
fn a_report_names_each_rule_once() {
    let report = "deadlock: twice\n  at x.c:3\nirql: once\ndeadlock: again\n3 findings\n";
    assert_eq!(broken(report), ["deadlock", "irql"]);
}
