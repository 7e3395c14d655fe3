use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result};
use data_encoding::HEXLOWER;
use xshell::cmd;

use crate::context::{Context, absolute, files, have};

const TARGETS: [&str; 9] =
    ["control_codes", "nd2_codes", "query_interface", "recording", "programs", "images", "oids", "frames", "datagrams"];

/// The kernel's pool has guards and poison of its own, and a handler for faults: no other sanitizer. A crate in one piece, as it is without
/// a number of units, keeps all processors but one waiting.
const OPTIONS: [&str; 8] =
    ["--fuzz-dir", "tests-host/fuzz", "--target-dir", "target/fuzz", "--sanitizer", "none", "--codegen-units", "16"];

/// Fuzzes drivers, readers, the wire and the provider (libFuzzer)
///
/// The drivers in the simulated kernel (the control codes of both, those of NetworkDirect, queries for the provider's interface, OIDs),
/// the readers of recordings and of images, the wire by frames, and that of the driver by datagrams, against a live connection, and the provider through its dispatch tables,
/// beside a sequential oracle (tests-host/programs).
///
/// Each target begins with its inputs in tests-host/fuzz: seeds, which are written by hand, and corpus, which --minimise makes. libFuzzer
/// needs a nightly compiler and a C++ compiler. Without them this says so and does nothing: `cargo test` runs the same targets for a
/// moment, without looking at what they reach. What is found lies in target/fuzz-artifacts. The first build takes minutes.
#[derive(clap::Args)]
pub struct Fuzz {
    /// How long, for all targets together
    #[arg(default_value_t = 60)]
    seconds: u64,
    /// Then keep, of all inputs of up to 512 bytes, the fewest that reach as much
    #[arg(long)]
    minimise: bool,
}

impl Fuzz {
    pub fn run(&self, context: &Context) -> Result<()> {
        if let Some(missing) = missing(context) {
            println!("fuzzing is left out: {missing}");
            return Ok(());
        }
        context.cargo_tool("cargo-fuzz", &[])?;
        let sh = &context.sh;
        // The targets are a workspace of their own, with versions of their own: cargo-fuzz would change them without a word.
        let locked = cmd!(sh, "cargo metadata --locked --format-version 1 --manifest-path tests-host/fuzz/Cargo.toml");
        locked.ignore_stdout().run()?;
        for target in TARGETS {
            cmd!(sh, "cargo +nightly fuzz build {OPTIONS...} {target}").run()?;
        }
        for target in TARGETS {
            self.fuzz(context, target)?;
        }
        Ok(())
    }

    fn fuzz(&self, context: &Context, target: &str) -> Result<()> {
        let sh = &context.sh;
        let folder = |name: &str| absolute("target").join(name).join(target);
        let (corpus, kept, fewest) = (folder("fuzz-corpus"), folder("fuzz-kept"), folder("fuzz-fewest"));
        let packed = absolute(&format!("tests-host/fuzz/corpus/{target}.txt"));
        let seeds = absolute(&format!("tests-host/fuzz/seeds/{target}"));
        let artifacts = sh.create_dir("target/fuzz-artifacts")?.join(target);
        for empty in [&kept, &fewest] {
            sh.remove_path(empty)?;
            sh.create_dir(empty)?;
        }
        sh.create_dir(&corpus)?;
        if packed.exists() {
            unpack(&packed, &kept)?;
        }
        let seconds = self.seconds / TARGETS.len() as u64;
        let length = format!("-max_len={}", if self.minimise { 512 } else { 2048 });
        println!("fuzzing {target} for {seconds} s");
        let options = [
            format!("-max_total_time={seconds}"),
            length.clone(),
            "-len_control=0".to_owned(),
            "-timeout=60".to_owned(),
            "-print_final_stats=1".to_owned(),
            format!("-artifact_prefix={}-", artifacts.display()),
        ];
        cmd!(sh, "cargo +nightly fuzz run {OPTIONS...} {target} {corpus} {kept} {seeds} -- {options...}").run()?;
        if self.minimise {
            let merge = cmd!(sh, "cargo +nightly fuzz run {OPTIONS...} {target} {fewest} {corpus} {kept} --");
            merge.args(["-merge=1", &length, "-timeout=60"]).run()?;
            let inputs = pack(&fewest, &packed)?;
            println!("{target}: {inputs} inputs in {}", packed.display());
        }
        Ok(())
    }
}

/// What libFuzzer needs and is not there.
fn missing(context: &Context) -> Option<&'static str> {
    let sh = &context.sh;
    if !have("rustup") {
        return Some("there is no rustup to ask for a nightly compiler");
    }
    if cmd!(sh, "rustup run nightly rustc --version").quiet().ignore_stderr().read().is_err() {
        return Some("there is no nightly compiler (rustup toolchain install nightly)");
    }
    (!have("c++")).then_some("there is no C++ compiler for libFuzzer")
}

/// Keeps the inputs of a folder as lines of hex digits, the shortest first: one file instead of hundreds. Returns how many.
fn pack(folder: &Path, file: &Path) -> Result<usize> {
    let mut inputs = BTreeSet::new();
    for path in files(folder)? {
        let input = fs::read(path)?;
        inputs.insert((input.len(), input));
    }
    let hex = |input: &[u8]| HEXLOWER.encode(input) + "\n";
    let lines: Vec<_> = inputs.iter().filter(|(length, _)| *length > 0).map(|(_, input)| hex(input)).collect();
    fs::create_dir_all(file.parent().unwrap_or_else(|| Path::new(".")))?;
    fs::write(file, lines.concat())?;
    Ok(lines.len())
}

/// Makes a folder with the inputs that `pack` has kept, one file each.
fn unpack(file: &Path, folder: &Path) -> Result<()> {
    for (number, line) in fs::read_to_string(file)?.split_whitespace().enumerate() {
        let input = HEXLOWER.decode(line.as_bytes());
        let input = input.with_context(|| format!("{}: line {}", file.display(), number + 1))?;
        fs::write(folder.join(format!("{number:05}")), input)?;
    }
    Ok(())
}

#[test]
fn inputs_come_back_sorted_and_once() {
    let sh = xshell::Shell::new().expect("a shell");
    let scratch = sh.create_temp_dir().expect("a folder");
    let (before, after, packed) =
        (scratch.path().join("before"), scratch.path().join("after"), scratch.path().join("packed.txt"));
    for (name, input) in [("a", &[7, 255][..]), ("b", &[9]), ("c", &[9]), ("d", &[])] {
        sh.write_file(before.join(name), input).expect("a file");
    }
    assert_eq!(pack(&before, &packed).expect("inputs"), 2);
    assert_eq!(fs::read_to_string(&packed).expect("lines"), "09\n07ff\n");
    sh.create_dir(&after).expect("a folder");
    unpack(&packed, &after).expect("inputs");
    let inputs = files(&after).expect("files").iter().map(|path| fs::read(path).expect("bytes")).collect::<Vec<_>>();
    assert_eq!(inputs, [vec![9], vec![7, 255]]);
}
