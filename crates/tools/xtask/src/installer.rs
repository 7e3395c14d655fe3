use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use regex::Regex;
use xshell::cmd;

use crate::{
    context::{Context, MINGW, executables, say, variable},
    wine::{self, cache},
};

/// Wine 8 has no CM_Register_Notification, and ends a program that calls it.
const WAITS: &str = "a_device_can_be_waited_for";

/// Runs the installer's tests under Wine
///
/// Those on the model of Windows, and those that only look at Windows (crates/tools/install/tests/windows.rs). How far Wine's setupapi,
/// crypt32 and iphlpapi go is printed call by call; docs/windows-vm.md says what to expect. Minutes the first time. What is missing is
/// installed from Debian; without Wine the tests are built, not run.
#[derive(clap::Args)]
pub struct Installer;

impl Installer {
    pub fn run(&self, context: &Context) -> Result<()> {
        wine::need(context, &[])?;
        say("building the tests of the installer for Windows");
        let mut programs = executables(wine::cargo(context, "test")?.args(["--no-run", "-p", "install"]))?;
        programs.retain(|program| program.extension().is_some_and(|end| end == "exe"));
        programs.sort();
        programs.dedup();
        let is_windows =
            |program: &&PathBuf| program.file_name().unwrap_or_default().to_string_lossy().starts_with("windows-");
        let windows = programs.iter().find(is_windows).context("no test of Windows was built")?;
        if !context.have_wine("wine", "the tests were built, not run") {
            return Ok(());
        }
        let sh = &context.sh;
        let _debug = sh.push_env("WINEDEBUG", variable("WINEDEBUG").unwrap_or_else(|| "-all".to_owned()));
        let prefix = variable("WINEPREFIX").map_or_else(|| cache().join("wine-install"), PathBuf::from);
        let _prefix = sh.push_env("WINEPREFIX", prefix);
        // The version of Windows that the drivers want.
        cmd!(sh, "wine winecfg -v win10").quiet().ignore_stdout().ignore_stderr().run()?;
        for program in &programs {
            let folder = program.parent().unwrap_or_else(|| Path::new("."));
            context.random_numbers(MINGW, &cache(), folder)?;
            make_netshell(context, folder)?;
            say(program.file_name().unwrap_or_default().display());
            cmd!(sh, "wine {program} --nocapture --test-threads 1 --skip {WAITS}").run()?;
        }
        say("notifications of devices");
        let waits = cmd!(sh, "wine {windows} --exact {WAITS}").ignore_status().output()?;
        let said = [waits.stdout, waits.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        match Regex::new(r"unimplemented function [\w.]*")?.find(&said) {
            _ if waits.status.success() => say("Wine has them: this test belongs to the others now"),
            Some(missing) => println!("{}", missing.as_str()),
            None => bail!("{said}"),
        }
        let version = cmd!(sh, "wine --version").quiet().ignore_stderr().read()?;
        say(format_args!("the other tests of the installer pass under {version}"));
        Ok(())
    }
}

/// The crate windows imports a function of netshell.dll that nobody calls, and Wine has no such library: makes one.
fn make_netshell(context: &Context, folder: &Path) -> Result<()> {
    const SOURCE: &str = "__declspec(dllexport) void NcFreeNetconProperties(void *properties) { (void)properties; }\n";
    let sh = &context.sh;
    let (source, library) = (cache().join("netshell.c"), folder.join("netshell.dll"));
    sh.write_file(&source, SOURCE)?;
    Ok(cmd!(sh, "{MINGW} -shared -o {library} {source}").quiet().run()?)
}
