//! What every chore uses: the repository's root, the programs of this machine, the packages of Debian.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Cmd, Shell, cmd};

/// Debian's Rust compiler. rustup brings libraries for the host only; beside this one lies the source of the library, from which that of
/// a Windows target is built.
pub const COMPILER: &str = "/usr/bin/rustc";

/// The packages of that compiler.
const COMPILER_PACKAGES: [&str; 2] = ["rustc-web", "rust-web-src"];

/// The oldest minor version of that compiler, as in `rust-version`.
const COMPILER_MINOR: u32 = 91;

/// Debian's clippy, which belongs to that compiler.
pub const CLIPPY: &str = "/usr/bin/clippy-driver";

/// The target of programs that run under Wine, and its linker.
pub const WINDOWS_GNU: &str = "x86_64-pc-windows-gnu";
pub const MINGW: &str = "x86_64-w64-mingw32-gcc-win32";

/// A program, and the package of Debian that has it.
pub type Needed = (&'static str, &'static str);

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .expect("xtask lies three folders below the root")
        .to_owned()
}

/// A path below the root, for programs that run elsewhere.
pub fn absolute(path: &str) -> PathBuf {
    root().join(path)
}

/// Says what is done next.
pub fn say(text: impl std::fmt::Display) {
    println!("== {text}");
}

/// Whether there is a program of this name.
pub fn have(program: &str) -> bool {
    let with = |folder: &Path| {
        let file = folder.join(program);
        file.is_file() || file.with_extension("exe").is_file()
    };
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| with(&folder)))
}

/// The processors of this machine.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The value of a variable of the environment, unless it is empty.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where cargo keeps what it has fetched and installed.
pub fn cargo_home() -> PathBuf {
    variable("CARGO_HOME").map_or_else(|| env::home_dir().unwrap_or_default().join(".cargo"), PathBuf::from)
}

/// The major version of LLVM in what `rustc -vV` says.
pub fn llvm_version(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()
}

/// The machine that a compiler is for, of which `rustc -vV` says this.
pub fn host(said: &str) -> Result<&str> {
    said.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc says no host")
}

/// Where a chore runs.
pub struct Context {
    /// In the repository's root.
    pub sh: Shell,
    may_install: bool,
}

impl Context {
    pub fn new(may_install: bool) -> Result<Self> {
        let sh = Shell::new()?;
        sh.change_dir(root());
        Ok(Self { sh, may_install })
    }

    /// Installs the packages of those programs that are missing, or says which.
    pub fn need(&self, programs: &[Needed]) -> Result<()> {
        self.install(&missing(programs))
    }

    /// Installs packages of Debian, or says which are missing. Nothing happens if there are none.
    pub fn install(&self, packages: &[&str]) -> Result<()> {
        if packages.is_empty() {
            return Ok(());
        }
        let advice = format!("missing: {0}. On Debian: apt-get install {0}", packages.join(" "));
        ensure!(self.may_install, "{advice}");
        ensure!(have("apt-get"), "{advice} (this is no Debian: install them by its own means)");
        let installed = self.apt_get(packages);
        installed.map_err(|error| error.context(advice))
    }

    fn apt_get(&self, packages: &[&str]) -> Result<()> {
        let sh = &self.sh;
        let as_root: &[&str] = if cmd!(sh, "id -u").quiet().read()? == "0" { &[] } else { &["sudo", "-n"] };
        say(format_args!("installing {}", packages.join(" ")));
        // An archive directory of its own: another apt process may clean the common one. While that one installs, this waits.
        let archives = sh.create_temp_dir()?;
        sh.create_dir(archives.path().join("partial"))?;
        let archives = format!("Dir::Cache::archives={}", archives.path().display());
        cmd!(sh, "env {as_root...} apt-get update -qq").quiet().run()?;
        let install = cmd!(
            sh,
            "env {as_root...} env DEBIAN_FRONTEND=noninteractive apt-get -o {archives} -o DPkg::Lock::Timeout=300"
        );
        Ok(install
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(packages)
            .quiet()
            .ignore_stdout()
            .run()?)
    }

    /// The packages of Debian's compiler, if it is missing, too old, or has no library source beside it.
    pub fn missing_compiler(&self) -> Vec<&'static str> {
        if self.has_compiler() { Vec::new() } else { COMPILER_PACKAGES.to_vec() }
    }

    fn has_compiler(&self) -> bool {
        let sh = &self.sh;
        let said = |options: &[&str]| cmd!(sh, "{COMPILER}").args(options).quiet().ignore_stderr().read().ok();
        let minor = |version: &str| version.strip_prefix("rustc 1.")?.split('.').next()?.parse::<u32>().ok();
        Path::new(COMPILER).is_file()
            && said(&["--print", "sysroot"]).is_some_and(|sysroot| {
                Path::new(&sysroot).join("lib/rustlib/src/rust/library/std/Cargo.toml").is_file()
            })
            && said(&["--version"]).and_then(|version| minor(&version)).is_some_and(|minor| minor >= COMPILER_MINOR)
    }

    /// Has Debian's compiler, and these programs.
    pub fn need_compiler(&self, programs: &[Needed]) -> Result<()> {
        let mut packages = self.missing_compiler();
        packages.extend(missing(programs));
        self.install(&packages)?;
        ensure!(
            self.has_compiler(),
            "{COMPILER} is older than Rust 1.{COMPILER_MINOR} or has no library source beside it; needed: Debian's {} of \
             1.{COMPILER_MINOR} or later (docs/cross-build.md)",
            COMPILER_PACKAGES.join(" and "),
        );
        Ok(())
    }

    /// A command of cargo with Debian's compiler, which may build the library of another target.
    pub fn debian_cargo(&self, command: &str) -> Cmd<'_> {
        let sh = &self.sh;
        cmd!(sh, "cargo {command}").env("RUSTC", COMPILER).env("RUSTC_BOOTSTRAP", "1")
    }

    /// A lock file for a build that changes what is locked: a copy of the committed one, which stays as it is. The options that name it.
    pub fn lock_file(&self, folder: &Path) -> Result<[String; 3]> {
        self.sh.create_dir(folder)?;
        let copy = folder.join("Cargo.lock");
        self.sh.copy_file("Cargo.lock", &copy)?;
        Ok([
            "-Zlockfile-path".to_owned(),
            "--config".to_owned(),
            format!("resolver.lockfile-path='{}'", copy.display()),
        ])
    }

    /// Installs a subcommand of cargo if it is missing. Not optimised, which takes half the time: it only calls others.
    pub fn cargo_tool(&self, name: &str, options: &[&str]) -> Result<()> {
        if have(name) || cargo_home().join("bin").join(name).is_file() {
            return Ok(());
        }
        say(format_args!("installing {name}"));
        let sh = &self.sh;
        Ok(cmd!(sh, "cargo install --quiet --locked --debug {options...} {name}")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .run()?)
    }

    /// The build of ndkctl that `NDKCTL` names, or one that is made now: `dev`, which `cargo run` has built, or `release`, to measure.
    pub fn ndkctl(&self, profile: &str) -> Result<PathBuf> {
        if let Some(named) = variable("NDKCTL") {
            return Ok(self.sh.current_dir().join(named));
        }
        let sh = &self.sh;
        cmd!(sh, "cargo build --quiet --profile {profile} --bin ndkctl").run()?;
        let folder = if profile == "dev" { "debug" } else { profile };
        Ok(absolute("target").join(folder).join("ndkctl").with_extension(env::consts::EXE_EXTENSION))
    }

    /// An example of a default member. No package is named: so what `cargo run` and `cargo test` have built is used again.
    pub fn example(&self, name: &str) -> Result<PathBuf> {
        let sh = &self.sh;
        cmd!(sh, "cargo build --quiet --example {name}").run()?;
        Ok(absolute("target/debug/examples").join(name).with_extension(env::consts::EXE_EXTENSION))
    }

    /// An example, optimised. `package`: its name, and options of cargo behind it.
    pub fn optimised_example(&self, package: &[&str], name: &str) -> Result<PathBuf> {
        let sh = &self.sh;
        cmd!(sh, "cargo build --quiet --release --package {package...} --example {name}").run()?;
        Ok(absolute("target/release/examples").join(name).with_extension(env::consts::EXE_EXTENSION))
    }

    /// Whether there is Wine: it is installed if that is possible, or a message says what is left out.
    pub fn have_wine(&self, wine: &str, left_out: &str) -> bool {
        if have(wine) {
            return true;
        }
        match self.install(&["wine", "wine64"]) {
            Ok(()) => true,
            Err(error) => {
                say(format_args!("skipped, because there is no Wine: {left_out} ({error})"));
                false
            }
        }
    }

    /// Wines before 9 lack the library in which Windows keeps its random numbers: makes one in a folder.
    pub fn random_numbers(&self, linker: &str, cache: &Path, folder: &Path) -> Result<()> {
        const SOURCE: &str = "#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T length) { return SystemFunction036(bytes, (ULONG)length); }
";
        let sh = &self.sh;
        let (source, library) = (cache.join("prng.c"), folder.join("bcryptprimitives.dll"));
        sh.write_file(&source, SOURCE)?;
        Ok(cmd!(sh, "{linker} -shared -Wl,--kill-at -o {library} {source} -ladvapi32").quiet().run()?)
    }
}

/// Runs a command of cargo that builds, and returns the programs that were made.
pub fn executables(build: Cmd<'_>) -> Result<Vec<PathBuf>> {
    let said = build.arg("--message-format=json-render-diagnostics").read()?;
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    };
    Ok(said.lines().filter_map(executable).collect())
}

fn missing(programs: &[Needed]) -> Vec<&'static str> {
    let mut packages: Vec<_> =
        programs.iter().filter(|(program, _)| !have(program)).map(|(_, package)| *package).collect();
    packages.dedup();
    packages
}

/// The files of a folder, in order.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}

/// Fails with a text unless a file is there.
pub fn expect_file(path: &str, made_by: &str) -> Result<()> {
    if !absolute(path).is_file() {
        bail!("there is no {path}: {made_by} makes it");
    }
    Ok(())
}
