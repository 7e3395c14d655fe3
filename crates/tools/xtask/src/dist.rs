use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::cmd;

use crate::context::{Context, Needed, absolute, cargo_home, files, root, say, variable};

const NEEDED: [Needed; 4] = [("dpkg-deb", "dpkg"), ("xz", "xz-utils"), ("tar", "tar"), ("gzip", "gzip")];
const OUT: &str = "target/dist";
/// Where the files of a package lie.
const LIBRARY: &str = "usr/lib/softndk";
const DOCUMENTS: &str = "usr/share/doc/softndk";
/// What `ndkctl completions` knows, and where a package has it.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/ndkctl"),
    ("zsh", "usr/share/zsh/vendor-completions/_ndkctl"),
    ("fish", "usr/share/fish/vendor_completions.d/ndkctl.fish"),
];

/// Makes what Linux users download: a tar, a Debian package, parts and checksums
///
/// `ndkctl`, manual pages, completions, documents, headers for consumers, and the worker of `ndkctl run` if `cargo xtask worker` has made
/// it. The list of parts (SBOM, CycloneDX) is cargo-cyclonedx's, which is installed. Results in target/dist. The same commit gives the same
/// bytes, with the same compiler. Ten minutes. What Windows has is built and attached by .github/workflows/drivers.yml.
///
/// NDKCTL names a build of ndkctl: then packages are made of that one, in seconds. With --check that says everything but whether two builds
/// of ndkctl are equal; two packages of it have to be.
#[derive(clap::Args)]
pub struct Dist {
    /// Look whether the packages are complete and work; make them a second time, in a copy of the repository elsewhere, and compare the
    /// bytes
    #[arg(long)]
    check: bool,
}

impl Dist {
    pub fn run(&self, context: &Context) -> Result<()> {
        context.need(&NEEDED)?;
        context.cargo_tool("cargo-cyclonedx", &[])?;
        if self.check {
            let clean = cmd!(context.sh, "git status --porcelain").quiet().read()?.is_empty();
            ensure!(clean, "--check compares with a copy of the last commit: commit first");
        }
        let sums = build(context)?;
        print!("{sums}");
        if !self.check {
            return Ok(());
        }
        let scratch = context.sh.create_temp_dir()?;
        look(context, scratch.path())?;
        let copy = scratch.path().join("elsewhere");
        let (sh, from) = (&context.sh, root());
        cmd!(sh, "git clone --quiet {from} {copy}").run()?;
        if sh.path_exists("target/runner") {
            let to = sh.create_dir(copy.join("target/runner"))?;
            for file in worker()? {
                sh.copy_file(file, &to)?;
            }
        }
        let _folder = sh.push_dir(&copy);
        // Only this program is built there: ndkctl has a folder of its own, in the copy.
        let again = cmd!(sh, "cargo xtask dist").env("CARGO_TARGET_DIR", absolute("target")).ignore_stdout();
        // A name from here means something else there.
        match variable("NDKCTL") {
            Some(named) => again.env("NDKCTL", absolute(&named)).run()?,
            None => again.run()?,
        }
        let again = sh.read_file(copy.join(OUT).join("SHA256SUMS"))?;
        ensure!(again == sums, "another folder gives other bytes:\n{again}");
        let of = if variable("NDKCTL").is_some() { ", of one build of ndkctl" } else { "" };
        println!("the same bytes in another folder{of}");
        Ok(())
    }
}

/// Looks whether the packages have all that they are to have, nothing of this machine, and work where they are unpacked.
fn look(context: &Context, scratch: &Path) -> Result<()> {
    let sh = &context.sh;
    let made = |kind: &str| {
        let mut found = files(&absolute(OUT))?;
        found.retain(|file| file.to_string_lossy().ends_with(kind));
        let [file] = &found[..] else { bail!("{} files of {OUT} end with {kind}", found.len()) };
        Ok(file.clone())
    };
    let (tar, deb, parts) = (made(".tar.xz")?, made(".deb")?, made(".cdx.json")?);
    let (of_tar, of_deb) = (sh.create_dir(scratch.join("tar"))?, sh.create_dir(scratch.join("deb"))?);
    cmd!(sh, "tar --extract --strip-components=1 --directory {of_tar} --file {tar}").quiet().run()?;
    cmd!(sh, "dpkg-deb --extract {deb} {of_deb}").quiet().run()?;
    cmd!(sh, "diff --recursive --no-dereference {of_tar} {of_deb}").quiet().run().context("tar and package differ")?;

    // From the package, and with nothing of the repository.
    let (ndkctl, empty) = (of_deb.join("usr/bin/ndkctl"), sh.create_dir(scratch.join("empty"))?);
    let inside = sh.push_dir(&empty);
    cmd!(sh, "{ndkctl} selftest --filter arm.one-callback-per-arm").quiet().ignore_stdout().run()?;
    let shown = scratch.join("pages");
    cmd!(sh, "{ndkctl} man {shown}").quiet().ignore_stdout().run()?;
    drop(inside);
    let mut wanted: Vec<PathBuf> = Vec::new();
    for page in files(&shown)? {
        let name = page.file_name().context("a page has a name")?.to_string_lossy().into_owned();
        wanted.push(Path::new("usr/share/man/man1").join(name + ".gz"));
    }
    wanted.extend(SHELLS.map(|(_, file)| file.into()));
    let listed = cmd!(sh, "git ls-files README.md CHANGELOG.md SECURITY.md LICENSE-APACHE LICENSE-MIT docs").quiet();
    wanted.extend(listed.read()?.lines().map(|file| Path::new(DOCUMENTS).join(file)));
    wanted.extend(["copyright", "softndk.cdx.json"].map(|file| Path::new(DOCUMENTS).join(file)));
    for header in
        cmd!(sh, "git ls-files crates/abi/ndkpi/include crates/consumer/control/include").quiet().read()?.lines()
    {
        wanted.push(Path::new("usr/include/softndk").join(Path::new(header).file_name().context("a header")?));
    }
    wanted.extend(["ndkctl"].map(|file| Path::new(LIBRARY).join(file)));
    if sh.path_exists("target/runner/worker.exe") {
        wanted.push(Path::new(LIBRARY).join("ndkctl-worker.exe"));
    }
    for file in &wanted {
        ensure!(of_deb.join(file).is_file(), "the package has no {}", file.display());
    }
    let parts = sh.read_file(parts)?;
    let here = root().display().to_string();
    for (what, text) in
        [("the list of parts", &parts), ("the first page", &sh.read_file(of_deb.join(DOCUMENTS).join("README.md"))?)]
    {
        ensure!(!text.contains(&here), "{what} names a folder of this machine: {here}");
    }
    let count = complete(context, &parts)?;
    println!(
        "{} files that have to be there are; tar and package have the same; {count} parts are listed",
        wanted.len()
    );
    Ok(())
}

/// Fails unless the list of parts has every crate that `ndkctl` is linked from. Returns how many those are.
fn complete(context: &Context, parts: &str) -> Result<usize> {
    let parts: serde_json::Value = serde_json::from_str(parts)?;
    let listed: BTreeSet<_> = parts["components"]
        .as_array()
        .context("a list of components")?
        .iter()
        .filter_map(|part| Some((part["name"].as_str()?.to_owned(), part["version"].as_str()?.to_owned())))
        .collect();
    let format = "{p}";
    let tree = cmd!(
        context.sh,
        "cargo tree --quiet --locked --package ndkctl --edges normal --prefix none --no-dedupe --format {format}"
    );
    let mut linked = BTreeSet::new();
    for line in tree.quiet().read()?.lines() {
        let mut words = line.split(' ');
        let (name, version) = words.next().zip(words.next()).with_context(|| format!("no crate: {line}"))?;
        if name != "ndkctl" {
            linked.insert((name.to_owned(), version.trim_start_matches('v').to_owned()));
        }
    }
    let missing: Vec<_> = linked.difference(&listed).map(|(name, version)| format!("{name} {version}")).collect();
    ensure!(missing.is_empty(), "the list of parts does not have {}", missing.join(", "));
    Ok(linked.len())
}

/// Builds everything; returns the checksums.
fn build(context: &Context) -> Result<String> {
    let sh = &context.sh;
    // The moment that files are said to be of.
    let moment = cmd!(sh, "git log -1 --format=%ct").quiet().read()?;
    sh.set_var("SOURCE_DATE_EPOCH", &moment);
    sh.remove_path(OUT)?;
    let out = sh.create_dir(OUT)?;
    let version = version(context)?;
    let arch = cmd!(sh, "dpkg --print-architecture").quiet().read()?;
    let name = format!("softndk_{version}_{arch}");
    let stage = out.join(&name);

    say("ndkctl");
    let ndkctl = compile(context)?;
    let library = sh.create_dir(stage.join(LIBRARY))?;
    sh.copy_file(&ndkctl, library.join("ndkctl"))?;
    let bin = sh.create_dir(stage.join("usr/bin"))?;
    cmd!(sh, "ln -s ../lib/softndk/ndkctl {bin}/ndkctl").quiet().run()?;
    if sh.path_exists("target/runner/worker.exe") {
        for file in worker()? {
            let name = file.file_name().context("a file has a name")?.to_string_lossy().into_owned();
            let name = if name == "worker.exe" { "ndkctl-worker.exe".to_owned() } else { name };
            sh.copy_file(&file, library.join(name))?;
        }
    } else {
        say("without the worker of `ndkctl run`, which cargo xtask worker makes");
    }
    pages(context, &ndkctl, &stage)?;
    texts(context, &stage)?;
    say("the list of parts");
    let parts = out.join(format!("{name}.cdx.json"));
    parts_of(context, &parts)?;
    sh.copy_file(&parts, stage.join(DOCUMENTS).join("softndk.cdx.json"))?;

    // Nobody's files, all of one moment, in one order, whatever the umask.
    cmd!(sh, "chmod -R u=rwX,go=rX {stage}").quiet().run()?;
    let touch = ["-exec", "touch", "--no-dereference", &format!("--date=@{moment}"), "{}", "+"];
    cmd!(sh, "find {stage} {touch...}").quiet().run()?;
    say("the packages");
    let tar = out.join(format!("{name}.tar.xz"));
    let of = [
        "--sort=name".to_owned(),
        format!("--mtime=@{moment}"),
        "--owner=0".to_owned(),
        "--group=0".to_owned(),
        "--numeric-owner".to_owned(),
    ];
    cmd!(sh, "tar --xz {of...} --directory {out} --create --file {tar} {name}").quiet().run()?;
    control(context, &stage, &version, &arch)?;
    let package = out.join(format!("{name}.deb"));
    cmd!(sh, "dpkg-deb --root-owner-group -Zxz --build {stage} {package}").quiet().ignore_stdout().run()?;
    sh.remove_path(&stage)?;
    let _folder = sh.push_dir(&out);
    let names: Vec<_> = files(&out)?.iter().filter_map(|file| file.file_name().map(PathBuf::from)).collect();
    let sums = cmd!(sh, "sha256sum {names...}").quiet().read()? + "\n";
    sh.write_file("SHA256SUMS", &sums)?;
    Ok(sums)
}

/// The files of the worker. Beside them lies the Windows in which it has run.
fn worker() -> Result<Vec<PathBuf>> {
    Ok(files(&absolute("target/runner"))?.into_iter().filter(|file| file.is_file()).collect())
}

/// The version of the workspace.
fn version(context: &Context) -> Result<String> {
    let manifest: toml::Table = toml::from_str(&context.sh.read_file("Cargo.toml")?)?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    Ok(version.context("the workspace has no version")?.to_owned())
}

/// Builds `ndkctl` so that where it was built does not show.
fn compile(context: &Context) -> Result<PathBuf> {
    let sh = &context.sh;
    if let Some(named) = variable("NDKCTL") {
        return Ok(absolute(&named));
    }
    let target = absolute("target/dist-build");
    let flags = [
        format!("--remap-path-prefix={}=/softndk", root().display()),
        format!("--remap-path-prefix={}=/cargo", cargo_home().display()),
    ];
    cmd!(sh, "cargo build --quiet --locked --release --package ndkctl")
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .run()?;
    Ok(target.join("release/ndkctl"))
}

/// Manual pages, compressed as Debian wants them, and completions.
fn pages(context: &Context, ndkctl: &Path, stage: &Path) -> Result<()> {
    let sh = &context.sh;
    let manual = sh.create_dir(stage.join("usr/share/man/man1"))?;
    cmd!(sh, "{ndkctl} man {manual}").quiet().ignore_stdout().run()?;
    let pages = files(&manual)?;
    ensure!(pages.len() > 20, "{} has {} pages only", manual.display(), pages.len());
    cmd!(sh, "gzip -9n {pages...}").quiet().run()?;
    for (shell, file) in SHELLS {
        let script = cmd!(sh, "{ndkctl} completions {shell}").quiet().read()?;
        sh.write_file(stage.join(file), script + "\n")?;
    }
    Ok(())
}

/// Documents, licences, and the headers for consumers.
fn texts(context: &Context, stage: &Path) -> Result<()> {
    let sh = &context.sh;
    let documents = sh.create_dir(stage.join(DOCUMENTS))?;
    // What is known to git: a folder may have more.
    let listed =
        cmd!(sh, "git ls-files README.md CHANGELOG.md SECURITY.md LICENSE-APACHE LICENSE-MIT docs").quiet().read()?;
    for file in listed.lines() {
        let to = documents.join(file);
        sh.create_dir(to.parent().context("a file is in a folder")?)?;
        sh.copy_file(absolute(file), to)?;
    }
    let licence = "Upstream-Name: SoftNDK\n\nLicensed under either of Apache-2.0 (LICENSE-APACHE) or MIT (LICENSE-MIT), at your option.\n";
    sh.write_file(documents.join("copyright"), licence)?;
    let headers = sh.create_dir(stage.join("usr/include/softndk"))?;
    for folder in ["crates/abi/ndkpi/include", "crates/consumer/control/include"] {
        for file in files(&absolute(folder))? {
            sh.copy_file(file, &headers)?;
        }
    }
    Ok(())
}

/// What `ndkctl` is made of.
fn parts_of(context: &Context, to: &Path) -> Result<()> {
    let sh = &context.sh;
    let made = absolute("crates/tools/ndkctl/softndk-parts.json");
    cmd!(sh, "cargo cyclonedx --quiet --format json --override-filename softndk-parts")
        .args(["--manifest-path", "crates/tools/ndkctl/Cargo.toml"])
        .run()?;
    let mut parts: serde_json::Value = serde_json::from_str(&sh.read_file(&made)?)?;
    // It makes one for each member of the workspace.
    for line in cmd!(sh, "git ls-files --others crates examples tests-host xbuild").quiet().read()?.lines() {
        if line.ends_with("softndk-parts.json") {
            sh.remove_path(absolute(line))?;
        }
    }
    let Some(fields) = parts.as_object_mut() else { bail!("the list of parts is no object") };
    // A number for this run of the program.
    fields.remove("serialNumber");
    // Paths of this machine.
    let text = serde_json::to_string_pretty(&parts)?.replace(&root().display().to_string(), "/softndk");
    fs::write(to, text + "\n")?;
    Ok(())
}

/// What Debian's package says of itself.
fn control(context: &Context, stage: &Path, version: &str, arch: &str) -> Result<()> {
    let text = format!(
        "Package: softndk\nVersion: {version}\nArchitecture: {arch}\nMaintainer: SoftNDK <softndk@users.noreply.github.com>\n\
         Section: net\nPriority: optional\nHomepage: https://github.com/softndk/softndk\nDepends: libc6\nSuggests: wine, man-db\n\
         Description: software NDK provider, its conformance suite and tools\n \
         ndkctl runs the conformance suite of Microsoft's Network Direct Kernel Provider Interface,\n \
         runs Windows drivers in a simulated kernel, and talks RoCEv2 to other machines.\n"
    );
    Ok(context.sh.write_file(stage.join("DEBIAN/control"), text)?)
}
