//! The drivers on Linux, without the kit. What the stand-ins for the kit's crates are and why they can be trusted is in
//! docs/cross-build.md.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use xshell::cmd;

use crate::context::{COMPILER, Context, absolute, cargo_home, files, have, root, say, variable};

const DRIVERS: [&str; 3] = ["softndk", "softndknic", "ndktest"];
const INF_SOURCES: [&str; 3] =
    ["driver.inx", "crates/drivers/softndknic/softndknic.inx", "crates/drivers/ndktest/ndktest.inx"];
const LINKER: &str = "lld-link-19";

/// What the kit's build support gives the linker for a KMDF driver, and what makes images of equal sources equal.
const LINK_ARGUMENTS: [&str; 13] = [
    "/DRIVER",
    "/NODEFAULTLIB",
    "/SUBSYSTEM:NATIVE,10.00",
    "/OSVERSION:10.00",
    "/ENTRY:FxDriverEntry",
    "/MANIFEST:NO",
    "/NXCOMPAT",
    "/DYNAMICBASE",
    "/INTEGRITYCHECK",
    "/OPT:REF,ICF",
    "/RELEASE",
    "/Brepro",
    "/DEBUG:NONE",
];

/// What notes the type of each function and indirect call (kcfi), keeps functions apart that have one body, and lets a tool find the
/// function that an instruction comes from.
const TYPES_FLAGS: [&str; 7] = [
    "-Zsanitizer=kcfi",
    "-Cpanic=abort",
    "-Ccontrol-flow-guard=nochecks",
    "-Zmerge-functions=disabled",
    "-Clink-arg=/OPT:NOICF",
    "-Clink-arg=/MAP",
    "-Clink-arg=/DEBUG:DWARF",
];

/// Builds the drivers on Linux, without the Windows Driver Kit, and test-signs them
///
/// Results: target/drivers/<arch>/{softndk,softndknic,ndktest}.sys, with the driver packages beside them; with --debug in
/// target/drivers/debug/<arch>. Minutes the first time. What is missing is installed from Debian: its compiler, lld, osslsigncode, openssl.
#[derive(clap::Args)]
pub struct Drivers {
    #[arg(long, default_value = "all")]
    arch: Arch,
    /// With debug assertions, into target/drivers/debug
    #[arg(long)]
    debug: bool,
    /// Failures can be asked for: for tests of consumers
    #[arg(long)]
    faults: bool,
    /// Build twice, in different directories, and compare the bytes
    #[arg(long)]
    check_reproducible: bool,
    #[arg(long)]
    no_sign: bool,
    /// Images of x86-64 for `cargo xtask stack-depth`, which nobody installs, into target/drivers/types
    #[arg(long, conflicts_with = "arch")]
    types: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Arch {
    #[value(name = "x86_64")]
    X86,
    #[value(name = "aarch64")]
    Arm,
    All,
}

impl Drivers {
    /// The drivers of x86-64 as they are installed, or with types.
    pub const fn x86_64(types: bool) -> Self {
        Self { arch: Arch::X86, debug: false, faults: false, check_reproducible: false, no_sign: false, types }
    }

    pub fn run(&self, context: &Context) -> Result<()> {
        let sign = !self.no_sign && !self.types;
        let mut needed = vec![(LINKER, "lld-19")];
        needed.extend(sign.then_some([("osslsigncode", "osslsigncode"), ("openssl", "openssl")]).into_iter().flatten());
        context.need_compiler(&needed)?;

        let sh = &context.sh;
        let (compiler, linker) =
            (cmd!(sh, "{COMPILER} --version").quiet().read()?, cmd!(sh, "{LINKER} --version").quiet());
        let linker = linker.read()?;
        say(format_args!("{compiler}, {}", linker.lines().next().unwrap_or_default()));
        let cache = variable("DRIVERS_TARGET_DIR").map_or_else(|| absolute("target/drivers-build"), PathBuf::from);
        let cache = if self.types { cache.join("types") } else { cache };
        sh.create_dir(&cache)?;
        let certificate = if sign { Some(certificate(context, &cache.join("certificate"))?) } else { None };
        let out = absolute("target/drivers").join(match (self.types, self.debug) {
            (true, _) => "types",
            (false, true) => "debug",
            (false, false) => "",
        });

        let mut images = Vec::new();
        for arch in self.architectures() {
            let first = cache.join("first");
            say(format_args!("building for {arch}"));
            self.build(context, arch, &first)?;
            if self.check_reproducible {
                self.compare(context, arch, &first, &cache.join("second"))?;
            }
            let folder = sh.create_dir(out.join(arch))?;
            for product in self.products(arch, &first) {
                let image = folder.join(product.with_extension("sys").file_name().unwrap_or_default());
                sh.copy_file(&product, &image)?;
                if let Some(certificate) = &certificate {
                    certificate.sign(context, &image)?;
                }
                if self.types {
                    let map = product.with_extension("map");
                    let made = product.with_file_name("deps").join(map.file_name().unwrap_or_default());
                    sh.copy_file(made, image.with_extension("map"))?;
                }
            }
            if !self.types {
                write_packages(context, arch, &folder)?;
            }
            images.extend(files(&folder)?.into_iter().filter(|file| file.extension().is_some_and(|end| end == "sys")));
        }
        list(context, &images, sign)
    }

    fn architectures(&self) -> &'static [&'static str] {
        match self.arch {
            _ if self.types => &["x86_64"],
            Arch::X86 => &["x86_64"],
            Arch::Arm => &["aarch64"],
            Arch::All => &["x86_64", "aarch64"],
        }
    }

    /// Where cargo puts the drivers.
    fn products(&self, arch: &str, folder: &Path) -> [PathBuf; 3] {
        let profile = if self.debug { "debug" } else { "release" };
        let folder = folder.join(format!("{arch}-pc-windows-msvc")).join(profile);
        DRIVERS.map(|driver| folder.join(driver).with_extension("dll"))
    }

    /// Builds once more, elsewhere: equal sources give equal images.
    fn compare(&self, context: &Context, arch: &str, first: &Path, second: &Path) -> Result<()> {
        let sh = &context.sh;
        say(format_args!("building for {arch} again, elsewhere"));
        sh.remove_path(second)?;
        self.build(context, arch, second)?;
        for (one, other) in self.products(arch, first).iter().zip(self.products(arch, second)) {
            ensure!(sh.read_binary_file(one)? == sh.read_binary_file(other)?, "not reproducible: {}", one.display());
        }
        sh.remove_path(second)?;
        say(format_args!("both builds for {arch} gave the same bytes"));
        Ok(())
    }

    /// Builds the three drivers.
    fn build(&self, context: &Context, arch: &str, folder: &Path) -> Result<()> {
        let sh = &context.sh;
        let beside = |suffix: &str| folder.with_extension(suffix);
        let triple = format!("{arch}-pc-windows-msvc");
        let library = sh.create_dir(beside("lib"))?;
        let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned(), "-Ccontrol-flow-guard".to_owned()];
        flags.extend(LINK_ARGUMENTS.map(|argument| format!("-Clink-arg={argument}")));
        flags.push(format!("-Clink-arg=/LIBPATH:{}", library.display()));
        let mut target = vec![format!("--target={triple}")];
        if self.types {
            let file = sh.create_dir(beside("target"))?.join(&triple).with_extension("json");
            sh.write_file(&file, target_with_types(context, &triple)?)?;
            target = vec![format!("--target={}", file.display()), "-Zjson-target-spec".to_owned()];
            flags.extend(TYPES_FLAGS.map(str::to_owned));
        }
        flags.extend(remapped_paths(context)?);

        // wdk-macros keeps what it has read in the bindings' types.rs, which is made from these facts, and never looks again.
        if folder.is_dir() {
            let stale =
                ["-name", "cached_function_info_map.json", "!", "-newer", "tests-host/facts/wdk-facts.json", "-delete"];
            cmd!(sh, "find {folder} {stale...}").quiet().run()?;
        }
        // The crate tracelogging has a function for programs that needs this library. The linker leaves the function out of a driver, and
        // with it the import; the test driver_pe would see it.
        let (definitions, import) = (library.join("rpcrt4.def"), library.join("rpcrt4.lib"));
        sh.write_file(&definitions, "LIBRARY rpcrt4.dll\nEXPORTS\nUuidCreate\n")?;
        let machine = if arch == "x86_64" { "x64" } else { "arm64" };
        let arguments = [
            format!("/def:{}", definitions.display()),
            format!("/machine:{machine}"),
            format!("/out:{}", import.display()),
        ];
        cmd!(sh, "{LINKER} /lib {arguments...}").quiet().run()?;

        // The patches change what is locked.
        let lock = context.lock_file(&beside("lock"))?;
        let stand_in =
            |name: &str| format!("patch.crates-io.{name}.path='{}'", absolute("xbuild").join(name).display());
        let patches = [stand_in("wdk-build"), stand_in("wdk-sys")];
        let linker = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase().replace('-', "_"));
        for driver in DRIVERS {
            // In its own directory a driver has the profiles that it has on Windows. Cargo prefers the encoded flags to all others, so that
            // a RUSTFLAGS of the environment does not replace these.
            let _folder = sh.push_dir(root().join("crates/drivers").join(driver));
            let features = (self.faults && driver == "softndk").then_some("--features=faults");
            context
                .debian_cargo("build")
                .args(["--quiet", "--profile", if self.debug { "dev" } else { "release" }])
                .args(&target)
                .args(features)
                .args(["-Zbuild-std=core,alloc,compiler_builtins", "-Zbuild-std-features=compiler-builtins-mem"])
                .args(&lock)
                .args(patches.iter().flat_map(|patch| ["--config", patch]))
                .env("CARGO_TARGET_DIR", folder)
                .env(&linker, LINKER)
                .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
                .run()?;
        }
        Ok(())
    }
}

/// The compiler's flags that leave no path of this machine in an image.
pub fn remapped_paths(context: &Context) -> Result<[String; 3]> {
    let sh = &context.sh;
    let sysroot = cmd!(sh, "{COMPILER} --print sysroot").quiet().read()?;
    Ok([
        format!("--remap-path-prefix={}=softndk", root().display()),
        format!("--remap-path-prefix={}=cargo", cargo_home().display()),
        format!("--remap-path-prefix={sysroot}=rust"),
    ])
}

/// The compiler's description of a target, but for two things that it does not offer for Windows: kcfi, and debug information that
/// addr2line reads. The file that it is written to has to have the triple's name.
fn target_with_types(context: &Context, triple: &str) -> Result<String> {
    let sh = &context.sh;
    let print = cmd!(sh, "{COMPILER} -Zunstable-options --print target-spec-json --target {triple}");
    let mut target: serde_json::Value = serde_json::from_str(&print.env("RUSTC_BOOTSTRAP", "1").quiet().read()?)?;
    let expected = "describes its targets in another way than is expected here (target_with_types)";
    ensure!(target["debuginfo-kind"] == "pdb", "{COMPILER} {expected}: debuginfo-kind");
    target["debuginfo-kind"] = "dwarf".into();
    target["split-debuginfo"] = "off".into();
    target["supported-split-debuginfo"] = serde_json::json!(["off"]);
    let sanitizers = target["supported-sanitizers"].as_array_mut();
    sanitizers.with_context(|| format!("{COMPILER} {expected}: supported-sanitizers"))?.push("kcfi".into());
    Ok(serde_json::to_string_pretty(&target)?)
}

/// A certificate for tests: its key is made here and protects nothing.
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
}

fn certificate(context: &Context, folder: &Path) -> Result<Certificate> {
    let sh = &context.sh;
    let made = Certificate { certificate: folder.join("test.pem"), key: folder.join("test.key") };
    if !made.certificate.is_file() {
        say("making a test certificate");
        sh.create_dir(folder)?;
        let (pem, key) = (&made.certificate, &made.key);
        let subject = ["-subj", "/CN=SoftNDK test certificate"];
        let extensions = ["-addext", "extendedKeyUsage=codeSigning", "-addext", "basicConstraints=critical,CA:FALSE"];
        let request =
            cmd!(sh, "openssl req -x509 -newkey rsa:2048 -nodes -sha256 -days 3650 {subject...} {extensions...}");
        request.args([Path::new("-keyout"), key, Path::new("-out"), pem]).quiet().ignore_stderr().run()?;
    }
    Ok(made)
}

impl Certificate {
    /// Signs an image, and verifies that.
    fn sign(&self, context: &Context, image: &Path) -> Result<()> {
        let sh = &context.sh;
        let (pem, key, signed) = (&self.certificate, &self.key, image.with_extension("signed"));
        sh.remove_path(&signed)?;
        let sign = cmd!(sh, "osslsigncode sign -h sha256 -certs {pem} -key {key} -n SoftNDK -in {image} -out {signed}");
        sign.quiet().ignore_stdout().run()?;
        let verified = cmd!(sh, "osslsigncode verify -CAfile {pem} -in {signed}").quiet().ignore_status().output()?;
        ensure!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
        Ok(cmd!(sh, "mv {signed} {image}").quiet().run()?)
    }
}

/// Writes the INF files beside the drivers, with what stampinf would fill in.
fn write_packages(context: &Context, arch: &str, folder: &Path) -> Result<()> {
    let sh = &context.sh;
    let manifest: toml::Table = sh.read_file("Cargo.toml")?.parse()?;
    let workspace = &manifest["workspace"];
    let version = workspace["package"]["version"].as_str().context("the workspace has no version")?;
    let framework = &workspace["metadata"]["wdk"]["driver-model"]["target-kmdf-version-minor"].as_integer();
    let framework = framework.context("the workspace names no version of KMDF")?;
    // Equal sources give equal packages: the date is that of the sources.
    let seconds = variable("SOURCE_DATE_EPOCH").or_else(|| cmd!(sh, "git log -1 --format=%ct").quiet().read().ok());
    let seconds = format!("@{}", seconds.as_deref().unwrap_or("0"));
    let date = cmd!(sh, "date -u -d {seconds} +%m/%d/%Y").quiet().read()?;
    let catalogue = Regex::new(r"(?m)^CatalogFile *= *(.*)\.cat")?;
    let stamp = Regex::new(r"(?m)^(DriverVer *= *)[^\r\n]*")?;
    for source in INF_SOURCES {
        let text = sh.read_file(source)?;
        let name = catalogue.captures(&text).with_context(|| format!("{source} names no catalogue"))?[1].to_owned();
        let text = text.replace("$ARCH$", if arch == "x86_64" { "amd64" } else { "arm64" });
        let text = text.replace("$KMDFVERSION$", &format!("1.{framework}"));
        let text = stamp.replace_all(&text, format!("${{1}}{date},{version}.0"));
        sh.write_file(folder.join(name + ".inf"), text.as_bytes())?;
    }
    Ok(())
}

/// Says what was made.
fn list(context: &Context, images: &[PathBuf], signed: bool) -> Result<()> {
    let sh = &context.sh;
    println!("\n{:<10} {:<14} {:>10} {:<7} sha256", "arch", "driver", "bytes", "signed");
    for image in images {
        let arch = image.parent().and_then(Path::file_name).unwrap_or_default();
        let (name, bytes) = (image.file_name().unwrap_or_default(), image.metadata()?.len());
        let digest = if have("sha256sum") { cmd!(sh, "sha256sum {image}").quiet().read()? } else { String::new() };
        let digest = digest.split(' ').next().unwrap_or_default();
        let signed = if signed { "yes" } else { "no" };
        println!("{:<10} {:<14} {bytes:>10} {signed:<7} {digest}", arch.display(), name.display());
    }
    Ok(())
}
