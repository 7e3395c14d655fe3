use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::cmd;

use crate::{
    context::{Context, absolute, say, variable},
    drivers::remapped_paths,
    wine::{Wine, run_into},
};

/// What a client looks for, and nothing else.
const EXPORTS: [&str; 2] = ["DllCanUnloadNow", "DllGetClassObject"];

/// Builds softnd.dll (NetworkDirect), and runs C++ clients of it under Wine
///
/// For Windows on Linux (Debian), for programs of 64 bits and of 32: a client of its interface, and one that loads and unloads it N times.
/// Results: target/nd2/softnd.dll, and target/nd2/32/softnd.dll for programs of 32 bits. Minutes.
///
/// What is missing is installed from Debian; without Wine the tests are skipped with a message, and everything else still counts. Wine
/// runs programs of 32 bits where Debian's wine32 is installed beside it, which needs `dpkg --add-architecture i386`; this does not change
/// that. WINE32 names another command that runs them.
#[derive(clap::Args)]
pub struct Nd2 {
    /// Build only
    #[arg(long)]
    no_test: bool,
    /// For programs of 64 or of 32 bits [default: both]
    #[arg(long, value_parser = clap::value_parser!(u8).range(32..=64))]
    bits: Option<u8>,
    /// How often it is loaded and unloaded
    #[arg(long, default_value_t = 10_000)]
    rounds: u32,
    /// Build twice, in different directories, and compare the bytes
    #[arg(long)]
    check_reproducible: bool,
}

/// What differs between programs of 64 and of 32 bits.
struct Width {
    bits: u8,
    triple: &'static str,
    mingw: &'static str,
    gcc: &'static str,
    gxx: &'static str,
    gcc_package: &'static str,
    gxx_package: &'static str,
    out: &'static str,
}

const WIDTHS: [Width; 2] = [
    Width {
        bits: 64,
        triple: "x86_64-pc-windows-gnu",
        mingw: "x86_64-w64-mingw32",
        gcc: "x86_64-w64-mingw32-gcc-win32",
        gxx: "x86_64-w64-mingw32-g++-win32",
        gcc_package: "gcc-mingw-w64-x86-64-win32",
        gxx_package: "g++-mingw-w64-x86-64-win32",
        out: "target/nd2",
    },
    Width {
        bits: 32,
        triple: "i686-pc-windows-gnu",
        mingw: "i686-w64-mingw32",
        gcc: "i686-w64-mingw32-gcc-win32",
        gxx: "i686-w64-mingw32-g++-win32",
        gcc_package: "gcc-mingw-w64-i686-win32",
        gxx_package: "g++-mingw-w64-i686-win32",
        out: "target/nd2/32",
    },
];

impl Nd2 {
    pub fn run(&self, context: &Context) -> Result<()> {
        let widths: Vec<_> = WIDTHS.iter().filter(|width| self.bits.is_none_or(|bits| bits == width.bits)).collect();
        ensure!(!widths.is_empty(), "--bits is 64 or 32");
        let mut needed = Vec::new();
        for width in &widths {
            needed.push((width.gcc, width.gcc_package));
            needed.extend((!self.no_test).then_some((width.gxx, width.gxx_package)));
        }
        context.need_compiler(&needed)?;
        let cache = variable("ND2_TARGET_DIR").map_or_else(|| absolute("target/nd2-build"), PathBuf::from);
        context.sh.create_dir(&cache)?;
        for width in widths {
            self.library(context, width, &cache)?;
            if !self.no_test {
                self.programs(context, width, &cache)?;
            }
        }
        Ok(())
    }

    /// Builds the library, and looks at its image.
    fn library(&self, context: &Context, width: &Width, cache: &Path) -> Result<()> {
        let sh = &context.sh;
        let product = |folder: &str| cache.join(folder).join(width.triple).join("release/softnd.dll");
        say(format_args!("building softnd.dll for programs of {} bits", width.bits));
        build(context, width, &cache.join("first"))?;
        if self.check_reproducible {
            say("building it again, elsewhere");
            let second = cache.join("second");
            sh.remove_path(&second)?;
            build(context, width, &second)?;
            ensure!(
                sh.read_binary_file(product("first"))? == sh.read_binary_file(product("second"))?,
                "softnd.dll is not reproducible"
            );
            sh.remove_path(&second)?;
            say("both builds gave the same bytes");
        }
        let library = sh.create_dir(width.out)?.join("softnd.dll");
        sh.copy_file(product("first"), &library)?;

        // The exports that a client looks for, by these names and no others, and no library that Windows does not have.
        let objdump = format!("{}-objdump", width.mingw);
        let image = cmd!(sh, "{objdump} -p {library}").quiet().read()?;
        let exported = exports(&image);
        ensure!(exported == EXPORTS, "softnd.dll exports {exported:?}");
        let (bytes, digest) = (library.metadata()?.len(), cmd!(sh, "sha256sum {library}").quiet().read()?);
        println!("{:<12} {bytes:>10} bytes  sha256 {}", "softnd.dll", digest.split(' ').next().unwrap_or_default());
        let imports = image.lines().filter_map(|line| line.trim().strip_prefix("DLL Name: "));
        imports.for_each(|name| println!("imports {name}"));
        Ok(())
    }

    /// Builds and runs the test programs.
    fn programs(&self, context: &Context, width: &Width, cache: &Path) -> Result<()> {
        let sh = &context.sh;
        let bits = width.bits;
        let folder = sh.create_dir(Path::new(width.out).join("wine"))?;
        say(format_args!("building the test programs of {bits} bits"));
        for program in ["client", "rounds"] {
            let (source, out) =
                (format!("crates/nd2/softnd/client/{program}.cpp"), folder.join(format!("nd2-{program}.exe")));
            let compiler = width.gxx;
            let compile =
                cmd!(sh, "{compiler} -std=c++17 -O1 -Wall -Wextra -Wno-cast-function-type -Wno-non-virtual-dtor");
            compile.arg("-static").arg("-o").arg(&out).args([&source, "-lws2_32"]).quiet().run()?;
        }
        let command = variable("WINE32").filter(|_| bits == 32).unwrap_or_else(|| "wine".to_owned());
        let left_out = format!("the library of {bits} bits is built, and not run");
        let prefix = cache.join(format!("prefix-{bits}"));
        let Some(wine) = Wine::start(context, &command, prefix, &left_out) else { return Ok(()) };
        sh.copy_file(Path::new(width.out).join("softnd.dll"), &folder)?;
        context.random_numbers(width.gcc, cache, &folder)?;
        say(format_args!("{}: running the test program of {bits} bits", wine.version(context)?));
        let program = |seconds: u32, arguments: &[&str]| {
            let mut command = wine.command(seconds);
            command.args(arguments).current_dir(&folder);
            command
        };
        if bits == 32 {
            let (_, said) = run_into(program(100, &["./nd2-rounds.exe", "--bits"]), &cache.join("bits.txt"))?;
            if !said.lines().any(|line| line == "32") {
                say(format_args!("skipped, because this Wine runs no programs of 32 bits: {left_out}"));
                return Ok(());
            }
        }
        let client = || program(300, &["./nd2-client.exe", "softnd.dll"]);
        let mut command = client();
        command.env("SOFTND_LOG", "all");
        let (good, said) = run_into(command, &cache.join("client.txt"))?;
        ensure!(good, "{said}\nthe test program has failed");
        println!("{} passed, 0 failed", said.lines().filter(|line| line.ends_with(" passed")).count());
        // No driver has its device under Wine: the adapter is in the process, and the library says so. Who wants the driver is refused.
        let place = said.lines().find(|line| line.starts_with("softnd: process: "));
        println!("{}", place.context("softnd.dll does not say where its adapter is")?);
        let mut command = client();
        command.env("SOFTND_BACKEND", "driver");
        let (good, said) = run_into(command, &cache.join("driver.txt"))?;
        let refused = said.lines().any(|line| line.starts_with("softnd: the setting `backend` wants the driver"));
        ensure!(!good && refused, "{said}\nsoftnd.dll is to refuse where only the driver will do");

        let rounds = self.rounds.to_string();
        say(format_args!("loading and unloading it {rounds} times, and as often with an adapter"));
        let (good, said) =
            run_into(program(3000, &["./nd2-rounds.exe", "softnd.dll", &rounds]), &cache.join("rounds.txt"))?;
        if !good {
            bail!("{said}\nthe library does not survive being loaded and unloaded");
        }
        println!("{}", said.lines().last().unwrap_or_default());
        Ok(())
    }
}

/// The names that an image exports, in order, as objdump prints it.
fn exports(image: &str) -> Vec<&str> {
    let table = image.lines().skip_while(|line| !line.contains("[Ordinal/Name Pointer]")).skip(1);
    let mut names: Vec<_> = table.map_while(|line| line.split_whitespace().last()).collect();
    names.sort_unstable();
    names
}

/// Builds the library below a folder.
fn build(context: &Context, width: &Width, folder: &Path) -> Result<()> {
    let sh = &context.sh;
    let lock = context.lock_file(&folder.with_extension("lock"))?;
    let mut flags = vec!["-Cpanic=abort", "-Clink-arg=-static-libgcc", "-Clink-arg=-Wl,--no-insert-timestamp"];
    // Variables of threads in the image's own section, which the loader takes back with the image. Without it the library of Rust takes
    // slots with TlsAlloc and never gives them back: after some hundred loads a process has none left.
    flags.push("-Zhas-thread-local=yes");
    let mut objects = Vec::new();
    if width.bits == 32 {
        // On 32 bits a function's symbol ends with the bytes of its arguments. Its exported name does not: clients look for that.
        flags.push("-Clink-arg=-Wl,--kill-at");
        // On 32 bits an image registers its tables for unwinding, in two objects of the compiler's own that Debian does not have. Nothing
        // unwinds here: they are empty.
        let objects_in = sh.create_dir(folder.with_extension("objects"))?;
        for name in ["rsbegin.o", "rsend.o"] {
            let (compiler, object) = (width.gcc, objects_in.join(name));
            cmd!(sh, "{compiler} -c -x assembler /dev/null -o {object}").quiet().run()?;
        }
        objects.push(format!("-Lnative={}", objects_in.display()));
    }
    let remapped = remapped_paths(context)?;
    flags.extend(remapped.iter().map(String::as_str));
    let variable = |name: &str| format!("CARGO_TARGET_{}_{name}", width.triple.to_uppercase().replace('-', "_"));
    let build = context.debian_cargo("rustc").args(["--quiet", "--release", "--package", "softnd"]);
    build
        .args(["--target", width.triple, "-Zbuild-std=std,panic_abort"])
        .args(lock)
        .arg("--")
        .args(objects)
        .env("CARGO_TARGET_DIR", folder)
        .env(variable("LINKER"), width.gcc)
        .env(variable("RUSTFLAGS"), flags.join(" "))
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .run()?;
    Ok(())
}

#[test]
fn exports_are_read_from_the_table_of_names() {
    let image = "DLL Name: kernel32.dll\n[Ordinal/Name Pointer] Table\n\t[   1] +base[   2] 0001 DllGetClassObject\n\
                 \t[   0] +base[   1] 0000 DllCanUnloadNow\n\nThe Function Table\n";
    assert_eq!(exports(image), EXPORTS);
}
