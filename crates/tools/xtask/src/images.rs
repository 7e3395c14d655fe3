use std::{fs, path::Path, thread};

use anyhow::{Context as _, Result, bail, ensure};
use regex::Regex;
use xshell::cmd;

use crate::{
    context::{Context, MINGW, WINDOWS_GNU, expect_file, files, processors, say},
    drivers::Drivers,
    wine::{self, Wine, cache, run_into},
};

/// Tests with the images; that of the seeds has its turn after the others.
const TESTS: [&str; 4] = ["probes", "drivers", "driver_runs", "nic"];
const SEEDED: &str = "suite::the_suite_counts_the_same_with_every_seed_finder_and_engine";

/// The source of the probes, and how many there are.
const PROBE: &str = "tests-host/driver-images/probe/probe.c";
const PROBES: u32 = 15;

/// Runs the drivers' tests under Wine, with their images in place of their code
///
/// Builds the drivers, and the simulated kernel for Windows. What `cargo xtask worker` makes is made too. Ten minutes. What is missing is
/// installed from Debian; without Wine the tests are built and not run.
#[derive(clap::Args)]
pub struct Images {
    /// Take the images that are in target/drivers/x86_64
    #[arg(long)]
    no_drivers: bool,
    /// So many runs of the suite, with a seed each
    #[arg(long, default_value_t = 2)]
    seeds: usize,
    /// So many at a time [default: the processors]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

impl Images {
    pub fn run(&self, context: &Context) -> Result<()> {
        wine::need(context, &[("clang", "clang"), ("lld-link-19", "lld-19")])?;
        if !self.no_drivers {
            Drivers::x86_64(false).run(context)?;
        }
        let sh = &context.sh;
        let cache = cache();
        let images = sh.create_dir(cache.join("images"))?;
        for driver in ["softndk", "softndknic", "ndktest"] {
            let image = format!("target/drivers/x86_64/{driver}.sys");
            expect_file(&image, "cargo xtask drivers")?;
            sh.copy_file(image, &images)?;
        }
        say("building the probes");
        build_probes(context, &images)?;
        say(format_args!("building the simulated kernel and the tests for {WINDOWS_GNU}"));
        wine::cargo(context, "test")?.args(["--quiet", "--no-run", "--package", "driver-images"]).run()?;
        // The worker of ndkctl run is made with the tests.
        wine::keep_worker(context)?;

        let left_out = "the tests were built, not run";
        let Some(wine) = Wine::start(context, "wine", cache.join("prefix"), left_out) else { return Ok(()) };
        let folder = sh.create_dir(cache.join("wine"))?;
        context.random_numbers(MINGW, &cache, &folder)?;
        say(format_args!("{}: running the tests with the drivers' images", wine.version(context)?));
        let tests =
            Tests { wine: &wine, folder: &folder, images: format!("Z:{}", images.display()).replace('/', "\\") };
        let jobs = self.jobs.map_or_else(processors, usize::from);
        for test in TESTS {
            sh.copy_file(newest(test)?, folder.join(test).with_extension("exe"))?;
            say(test);
            tests.run(test, test, &[&format!("--test-threads={jobs}"), "--skip", SEEDED], None)?;
        }

        say(format_args!("the suite with the seeds 1 to {}", self.seeds));
        // Each process takes a share of the seeds.
        let share = |job: usize| format!("{}..{}", self.seeds * job / jobs + 1, self.seeds * (job + 1) / jobs);
        let seeded = |job: usize| tests.run("nic", &format!("seeds-{job}"), &["--exact", SEEDED], Some(&share(job)));
        thread::scope(|scope| {
            #[expect(clippy::needless_collect, reason = "all of them run before the first is waited for")]
            let jobs: Vec<_> = (0..jobs).map(|job| scope.spawn(move || seeded(job))).collect();
            let results: Vec<_> = jobs.into_iter().map(|job| job.join().expect("no panic")).collect();
            results.into_iter().collect()
        })
    }
}

/// The newest program of a test: cargo names them in JSON only.
fn newest(test: &str) -> Result<std::path::PathBuf> {
    let name = Regex::new(&format!("^{test}-[0-9a-f]+[.]exe$"))?;
    let is_program =
        |path: &&std::path::PathBuf| name.is_match(&path.file_name().unwrap_or_default().to_string_lossy());
    let programs = files(&cache().join(WINDOWS_GNU).join("debug/deps"))?;
    let modified = |path: &&std::path::PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
    programs.iter().filter(is_program).max_by_key(modified).cloned().with_context(|| format!("no program of {test}"))
}

struct Tests<'a> {
    wine: &'a Wine,
    folder: &'a Path,
    images: String,
}

impl Tests<'_> {
    /// Runs a test program; if it fails, says the end of what it said.
    fn run(&self, test: &str, output: &str, arguments: &[&str], seeds: Option<&str>) -> Result<()> {
        let mut command = self.wine.command(2400);
        command
            .arg(format!("./{test}.exe"))
            .args(arguments)
            .current_dir(self.folder)
            .env("SOFTNDK_IMAGES", &self.images);
        if let Some(seeds) = seeds {
            command.env("SOFTNDK_SEEDS", seeds);
        }
        let (good, said) = run_into(command, &cache().join(output).with_extension("txt"))?;
        let lines: Vec<_> = said.lines().collect();
        if !good {
            bail!(
                "{}\nthe tests {test} have failed with the images",
                lines[lines.len().saturating_sub(60)..].join("\n")
            );
        }
        lines.iter().filter(|line| line.starts_with("test result")).for_each(|line| println!("{line}"));
        Ok(())
    }
}

/// Builds small images, one for each thing that code of an image may do without a call: clang and lld have the exceptions of C for Windows.
fn build_probes(context: &Context, images: &Path) -> Result<()> {
    let sh = &context.sh;
    let cache = cache();
    let library = |name: &str, definitions: &str| -> Result<String> {
        let (definition, library) = (cache.join(name).with_extension("def"), cache.join(name).with_extension("lib"));
        sh.write_file(&definition, definitions)?;
        let arguments = [format!("/def:{}", definition.display()), format!("/out:{}", library.display())];
        cmd!(sh, "lld-link-19 /lib /machine:x64 {arguments...}").quiet().run()?;
        Ok(library.display().to_string())
    };
    let kernel = library(
        "probe",
        &format!(
            "LIBRARY ntoskrnl.exe\nEXPORTS\n__C_specific_handler\n__chkstk\n{}\n",
            imports(&sh.read_file(PROBE)?)?
        ),
    )?;
    // Probe 14 has what probe 15 wants: a routine by its number, one by a name that leads on to the kernel, and one that is asked for late.
    let now = library("probe14", "LIBRARY probe14.sys\nEXPORTS\nDoubled @7 NONAME\nClock\n")?;
    let late = library("probe14-late", "LIBRARY probe14.dll\nEXPORTS\nTripled\n")?;
    let object = cache.join("probe.obj");
    for number in 1..=PROBES {
        let probe = format!("-DPROBE={number}");
        let compile =
            cmd!(sh, "clang --target=x86_64-pc-windows-msvc -ffreestanding -O1 -fms-extensions -fasync-exceptions");
        let compile = compile.args(["-Wall", "-Werror", "-c", &probe, PROBE, "-o"]).arg(&object);
        compile.quiet().run()?;
        let more: &[&str] = match number {
            14 => &[
                "/export:Doubled=Double,@7,NONAME",
                "/export:Tripled=Triple",
                "/export:Clock=ntoskrnl.KeQueryUnbiasedInterruptTime",
            ],
            15 => &[&now, &late, "/delayload:probe14.dll"],
            _ => &[],
        };
        let out = format!("/out:{}", images.join(format!("probe{number}.sys")).display());
        let link =
            cmd!(sh, "lld-link-19 /driver /nodefaultlib /subsystem:native,10.00 /entry:DriverEntry /manifest:no");
        link.args(["/dynamicbase", "/debug:none", &out, &kernel]).arg(&object).args(more).quiet().run()?;
    }
    Ok(())
}

/// What the probes import, one a line as a definition of a library has it.
fn imports(source: &str) -> Result<String> {
    let import = Regex::new(r"(?m)^IMPORT.*[ *](\w+)(\(.*|;.*)$")?;
    let line =
        |found: regex::Captures<'_>| format!("{}{}", &found[1], if found[2].starts_with(';') { " DATA" } else { "" });
    let lines: Vec<_> = import.captures_iter(source).map(line).collect();
    ensure!(!lines.is_empty(), "{PROBE} imports nothing");
    Ok(lines.join("\n"))
}
