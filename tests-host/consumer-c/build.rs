//! Compiles `samples/consumer-c` for this machine, with mingw-w64's DDK headers: as it is, and with each patch of `wrong` applied.
//!
//! The routines of Windows that it calls are those of the crate `simulated-kernel`. So it is compiled with the calling convention of
//! this machine, and with 16-bit wide characters. Each variant has its entry under a name of its own; everything else is static.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Where Debian has the headers of mingw-w64.
const HEADERS: &str = "/usr/share/mingw-w64/include";

/// A header of the driver kit, which has all that is needed with it.
const HEADER: &str = "ddk/ntddk.h";

/// What changes when Debian installs a package.
const PACKAGES: &str = "/var/lib/dpkg/status";

/// A variant: its name, and its source.
struct Variant {
    name: String,
    source: String,
}

fn main() {
    println!("cargo::rerun-if-env-changed=MINGW_INCLUDE");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sample = root.join("samples/consumer-c");
    println!("cargo::rerun-if-changed={}", sample.display());
    println!("cargo::rerun-if-changed={}", root.join("crates/abi/ndkpi/include").display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let missing = why_not();
    // A file that is not there would have this crate, and all that are above it, built by each command.
    let watched = if missing.is_none() { headers().join(HEADER) } else { PACKAGES.into() };
    if watched.exists() {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let variants = if missing.is_none() { variants(&sample) } else { Vec::new() };
    fs::write(out.join("variants.rs"), entries(&variants, missing.as_deref())).expect("a file of the build");
    if !variants.is_empty() {
        compile(&variants, &out, &root, &sample);
    }
}

/// What is missing, if something is.
fn why_not() -> Option<String> {
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux")
        || env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64")
    {
        return Some("the sample is compiled for Linux on x86-64 only".to_owned());
    }
    if !headers().join(HEADER).exists() {
        return Some("mingw-w64's DDK headers are missing (Debian: mingw-w64-x86-64-dev)".to_owned());
    }
    let compiler = cc::Build::new().cargo_metadata(false).try_get_compiler();
    let works = compiler.is_ok_and(|compiler| compiler.to_command().arg("--version").output().is_ok());
    (!works).then(|| "there is no C compiler".to_owned())
}

fn headers() -> PathBuf {
    env::var_os("MINGW_INCLUDE").map_or_else(|| PathBuf::from(HEADERS), PathBuf::from)
}

/// The sample, and what becomes of it with each patch.
fn variants(sample: &Path) -> Vec<Variant> {
    let right = fs::read_to_string(sample.join("consumer.c")).expect("the sample");
    let folder = fs::read_dir(sample.join("wrong")).expect("the patches");
    let mut patches: Vec<_> = folder.map(|entry| entry.expect("an entry").path()).collect();
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    let wrong = patches.iter().map(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(path).expect("a patch");
        let patch = diffy::Patch::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let source = diffy::apply(&right, &patch).unwrap_or_else(|error| panic!("{name} does not apply: {error}"));
        Variant { name, source }
    });
    let wrong: Vec<_> = wrong.collect();
    std::iter::once(Variant { name: "right".to_owned(), source: right }).chain(wrong).collect()
}

fn symbol(name: &str) -> String {
    format!("consumer_{}", name.replace('-', "_"))
}

fn compile(variants: &[Variant], out: &Path, root: &Path, sample: &Path) {
    let common = precompiled(out, root, sample);
    let compiler = || {
        let mut build = cc::Build::new();
        build.include(sample).include(root.join("crates/abi/ndkpi/include"));
        build.flag("-isystem").flag(headers().join("ddk")).flag("-isystem").flag(headers());
        // A tag of the pool is four characters in one constant.
        build.flag("-fshort-wchar").flag("-fno-builtin").flag("-Wno-multichar").std("gnu11");
        build
    };
    // The kit's headers are most of what there is to read, and the same for all variants. Without it they are read each time.
    let mut once = compiler().get_compiler().to_command();
    once.args(["-x", "c-header"]).arg(&common).arg("-o").arg(common.with_extension("h.gch"));
    let _read_each_time = once.status();
    for variant in variants {
        let file = out.join(format!("{}.c", variant.name));
        fs::write(&file, &variant.source).expect("a file of the build");
        let symbol = symbol(&variant.name);
        let mut build = compiler();
        build.file(&file).flag("-include").flag(&common).define("DriverEntry", symbol.as_str());
        // What is wrong on purpose is not for the compiler to say.
        build.warnings(variant.name == "right").extra_warnings(variant.name == "right");
        build.compile(&symbol);
    }
}

/// Writes the header that comes before everything.
fn precompiled(out: &Path, root: &Path, sample: &Path) -> PathBuf {
    let headers = [root.join("tests-host/consumer-c/linux.h"), sample.join("mingw.h")];
    let lines = headers.map(|header| format!("#include {:?}\n", header.display().to_string()));
    let common = out.join("common.h");
    fs::write(&common, lines.concat() + "#include <wsk.h>\n").expect("a file of the build");
    common
}

/// The table of entries, as Rust.
fn entries(variants: &[Variant], missing: Option<&str>) -> String {
    let declared = variants.iter().map(|variant| {
        format!(
            "    fn {}(driver: wdk::PDRIVER_OBJECT, path: wdk::PCUNICODE_STRING) -> wdk::NTSTATUS;\n",
            symbol(&variant.name)
        )
    });
    let rows = variants
        .iter()
        .map(|variant| format!("    Variant {{ name: {:?}, entry: {} }},\n", variant.name, symbol(&variant.name)));
    format!(
        "{}unsafe extern \"system\" {{\n{}}}\n\n\
         /// The sample as it is, `right`, and with each patch.\npub static VARIANTS: &[Variant] = &[\n{}];\n\n\
         /// Why there are none.\npub const MISSING: Option<&str> = {missing:?};\n",
        if variants.is_empty() { "" } else { "use simulated_kernel::wdk;\n\n" },
        declared.collect::<String>(),
        rows.collect::<String>()
    )
}
