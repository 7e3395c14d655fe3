use std::path::Path;

use anyhow::Result;
use xshell::cmd;

use crate::context::{Context, Needed, absolute, have, root, say};

const NEEDED: [Needed; 4] = [("clang", "clang"), ("lld-link", "lld"), ("llvm-dlltool", "llvm"), ("patch", "patch")];
const NIC: &str = "target/drivers/x86_64/softndknic.sys";

/// Makes consumers with `ndkctl new` outside of the repository, builds and runs them
///
/// One in Rust with `ndk` as its only dependency: its tests, and a run under the adviser. One in C: its image with clang, and where
/// target/drivers/x86_64/softndknic.sys, target/runner/worker.exe and Wine are there, a run of it. Minutes the first time. NDKCTL names a
/// build of ndkctl; without it one is made.
#[derive(clap::Args)]
pub struct Projects;

impl Projects {
    pub fn run(&self, context: &Context) -> Result<()> {
        context.need(&NEEDED)?;
        let ndkctl = context.ndkctl("dev")?;
        let scratch = context.sh.create_temp_dir()?;
        rust(context, &ndkctl, &scratch.path().join("my-consumer"))?;
        c(context, &ndkctl, &scratch.path().join("my-driver"))
    }
}

fn rust(context: &Context, ndkctl: &Path, folder: &Path) -> Result<()> {
    let sh = &context.sh;
    let repository = root();
    cmd!(sh, "{ndkctl} new consumer-rust {folder} --repository {repository}").run()?;
    // The versions that are known to work, which are here already.
    sh.copy_file("Cargo.lock", folder)?;
    let _folder = sh.push_dir(folder);
    let target = absolute("target/projects");
    cmd!(sh, "cargo test --quiet").env("CARGO_TARGET_DIR", &target).run()?;
    say("its run under the adviser");
    Ok(cmd!(sh, "cargo run --quiet").env("CARGO_TARGET_DIR", &target).env("NDK_ADVISE", "1").run()?)
}

fn c(context: &Context, ndkctl: &Path, folder: &Path) -> Result<()> {
    let sh = &context.sh;
    cmd!(sh, "{ndkctl} new consumer-c {folder}").run()?;
    let build = folder.join("build.sh");
    cmd!(sh, "{build}").run()?;
    if !(sh.path_exists(NIC) && sh.path_exists("target/runner/worker.exe") && have("wine")) {
        say("its image is not run: that takes Wine, cargo xtask drivers and cargo xtask worker");
        return Ok(());
    }
    let (image, script) = (folder.join("build/consumer.sys"), folder.join("run.toml"));
    Ok(cmd!(sh, "{ndkctl} run {NIC} {image} --script {script} --seeds 1..5").run()?)
}
