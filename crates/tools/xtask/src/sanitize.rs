use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use xshell::{Cmd, cmd};

use crate::context::{COMPILER, Context, absolute, files, host, llvm_version};

/// Runs engine, provider, host and suite under a sanitizer
///
/// On a machine of threads: random traffic (`ndkctl soak`) and the cases that run several tasks, with both engines. Minutes.
/// AddressSanitizer also looks for leaks. It needs a nightly compiler, and the standard library is not instrumented. `ThreadSanitizer`
/// has to know what the locks of the standard library order, so it builds that too, from the source that comes with Debian's compiler,
/// and takes the sanitizer's runtime of the nightly toolchain, which Debian's lacks: both are of one LLVM.
#[derive(clap::Args)]
pub struct Sanitize {
    /// Rounds of traffic for each engine
    #[arg(default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    #[arg(default_value = "address")]
    sanitizer: Sanitizer,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Sanitizer {
    Address,
    Thread,
}

impl Sanitize {
    pub fn run(&self, context: &Context) -> Result<()> {
        let sh = &context.sh;
        let nightly = cmd!(sh, "rustc +nightly -vV").quiet().ignore_stderr().read();
        let nightly = nightly.context("there is no nightly compiler: rustup toolchain install nightly")?;
        let host = host(&nightly)?;
        // With a target given, build scripts and macros are not instrumented.
        let build = |folder: &str| {
            let build = cmd!(sh, "cargo +nightly build --quiet -p ndkctl --target {host} --target-dir {folder}");
            (build, absolute(folder).join(host).join("debug/ndkctl"))
        };
        let ndkctl = match self.sanitizer {
            Sanitizer::Address => {
                let (build, ndkctl) = build("target/sanitize");
                build.env("RUSTFLAGS", "-Zsanitizer=address").run()?;
                ndkctl
            }
            Sanitizer::Thread => {
                let sysroot = make_sysroot(context, host, llvm_version(&nightly))?;
                let (build, ndkctl) = build("target/sanitize-thread");
                let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
                let build = build.arg("-Zbuild-std").env("RUSTC", COMPILER).env("RUSTC_BOOTSTRAP", "1");
                build.env("RUSTFLAGS", format!("--sysroot={} {flags}", sysroot.display())).run()?;
                ndkctl
            }
        };

        let (rounds, ndkctl) = (self.rounds.to_string(), &ndkctl);
        for nic in ["deferred", "direct"] {
            let soak = cmd!(sh, "{ndkctl} soak --rounds {rounds} --workers 4 --nic {nic} --completion mixed");
            last_lines(soak, 1)?;
            last_lines(cmd!(sh, "{ndkctl} selftest --filter stress.,close. --nic {nic}"), 2)?;
        }
        last_lines(cmd!(sh, "{ndkctl} soak --rounds {rounds} --workers 4 --nic direct --locks plain"), 1)
    }
}

/// Runs a program under its sanitizer, and says the last lines of what it says.
fn last_lines(program: Cmd<'_>, count: usize) -> Result<()> {
    let suppressions = absolute("tools/tsan.supp");
    let thread = format!("halt_on_error=1:second_deadlock_stack=1:suppressions={}", suppressions.display());
    let said = program.env("ASAN_OPTIONS", "detect_leaks=1").env("TSAN_OPTIONS", thread).read()?;
    let lines: Vec<_> = said.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// The libraries of Debian's compiler beside the runtime of the nightly toolchain, by the name that the former asks for.
fn make_sysroot(context: &Context, host: &str, nightly: Option<&str>) -> Result<PathBuf> {
    context.need_compiler(&[])?;
    let sh = &context.sh;
    let debian = cmd!(sh, "{COMPILER} -vV").quiet().read()?;
    ensure!(
        llvm_version(&debian) == nightly,
        "Debian's compiler and the nightly one are of different versions of LLVM"
    );
    let root = absolute("target/sanitize-thread/sysroot");
    let libraries = Path::new("lib/rustlib").join(host).join("lib");
    sh.remove_path(&root)?;
    let to = sh.create_dir(root.join(&libraries))?;
    let sysroot = |compiler: Cmd<'_>| compiler.args(["--print", "sysroot"]).quiet().read().map(PathBuf::from);
    let from = sysroot(cmd!(sh, "{COMPILER}"))?.join("lib/rustlib");
    for file in files(&from.join(host).join("lib"))? {
        cmd!(sh, "ln -s {file} {to}").quiet().run()?;
    }
    let (source, target) = (from.join("src"), root.join("lib/rustlib/src"));
    cmd!(sh, "ln -s {source} {target}").quiet().run()?;
    let is_runtime = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("librustc-") && name.ends_with("_rt.tsan.a")
    };
    let nightly = files(&sysroot(cmd!(sh, "rustc +nightly"))?.join(&libraries))?;
    let runtime =
        nightly.into_iter().find(is_runtime).context("the nightly toolchain has no runtime of ThreadSanitizer")?;
    sh.copy_file(runtime, to.join("librustc-stable_rt.tsan.a"))?;
    Ok(root)
}
