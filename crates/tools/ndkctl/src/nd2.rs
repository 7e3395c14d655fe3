//! `ndkctl nd2`: the adapter of the user-mode interface as the environment wants it, where a program finds it, and how programs
//! find `softnd.dll`.

use std::{
    env,
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use host::say;
use serde::Serialize;
use softnd::{
    catalogue::Listed,
    choice::{Choice, DEVICE, choose},
    settings::Settings,
};

use crate::{
    End,
    output::{print_json, print_table, table},
};

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Nd2 {
    /// What to do.
    #[command(subcommand)]
    pub command: Nd2Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Nd2Command {
    /// Show the settings that softnd.dll gets from SOFTND_CONFIG and from environment variables
    Info(Nd2Info),
    /// List the NetworkDirect providers in the Winsock catalogue, where programs look for them
    List(Nd2Info),
    /// Copy softnd.dll to the system directory and register it for all programs (as administrator)
    Install(Nd2Install),
    /// Undo `install` (as administrator)
    Uninstall,
}

/// What to install.
#[derive(Clone, Debug, Args)]
pub struct Nd2Install {
    /// softnd.dll for 64-bit programs; by default the one beside this program
    #[arg(long, value_name = "FILE")]
    pub dll: Option<PathBuf>,
    /// softnd.dll for 32-bit programs; without it they find no provider
    #[arg(long, value_name = "FILE")]
    pub dll32: Option<PathBuf>,
}

/// How to show it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Nd2Info {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// The output as JSON.
#[derive(Serialize)]
struct Info {
    adapters: &'static str,
    reason: String,
    settings: Vec<Row>,
}

/// A setting.
#[derive(Serialize)]
struct Row {
    setting: &'static str,
    value: String,
    variable: String,
}

/// Runs the command.
pub fn run(args: &Nd2) -> Result<End, String> {
    match &args.command {
        Nd2Command::Info(args) => info(*args),
        Nd2Command::List(args) => show_list(*args),
        Nd2Command::Install(args) => install(args),
        Nd2Command::Uninstall => print_lines(&uninstall()?),
    }
}

fn info(args: Nd2Info) -> Result<End, String> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let settings = Settings::load(|name| std::env::var(name).ok(), read)?;
    let row = |setting: &'static str| {
        let variable = format!("SOFTND_{}", setting.to_uppercase());
        settings.get(setting).map(|value| Row { setting, value, variable })
    };
    let rows: Vec<_> = Settings::names().filter_map(row).collect();
    let (adapters, reason) = match choose(settings.back_end, open) {
        Ok(choice) => (if matches!(choice, Choice::Driver(_)) { "driver" } else { "process" }, choice.to_string()),
        Err(error) => ("none", format!("none: {DEVICE} cannot be used: {error}")),
    };
    if args.json {
        print_json(&Info { adapters, reason, settings: rows })?;
    } else {
        let mut shown = table(&["setting", "value", "variable"]);
        for row in rows {
            shown.add_row([row.setting, &row.value, &row.variable]);
        }
        print_table(&shown);
        say!("adapters: {reason}");
    }
    Ok(End::Good)
}

/// Opens the driver's device, as softnd.dll does first.
fn open() -> io::Result<File> {
    if !cfg!(windows) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this is not Windows"));
    }
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// A provider, as JSON shows it.
#[derive(Serialize)]
struct Found {
    bits: u8,
    version: String,
    family: String,
    name: String,
    provider: String,
    library: String,
    softndk: bool,
}

impl From<Listed> for Found {
    fn from(listed: Listed) -> Self {
        Self {
            bits: listed.bits,
            version: listed.version.to_string(),
            family: listed.family.to_string(),
            name: listed.name,
            provider: listed.provider.to_string(),
            library: listed.path,
            softndk: listed.own,
        }
    }
}

fn show_list(args: Nd2Info) -> Result<End, String> {
    let providers: Vec<Found> = list()?.into_iter().map(Found::from).collect();
    if args.json {
        print_json(&providers)?;
        return Ok(End::Good);
    }
    if providers.is_empty() {
        say!("no NetworkDirect provider is registered; `ndkctl nd2 install` registers softnd.dll");
        return Ok(End::Good);
    }
    let mut shown = table(&["bits", "version", "family", "name", "library"]);
    for one in providers {
        shown.add_row([one.bits.to_string(), one.version, one.family, one.name, one.library]);
    }
    print_table(&shown);
    Ok(End::Good)
}

fn install(args: &Nd2Install) -> Result<End, String> {
    let beside = || {
        let own = env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
        Ok::<_, String>(own.with_file_name("softnd.dll"))
    };
    let library = args.dll.clone().map_or_else(beside, Ok)?;
    for file in [Some(&library), args.dll32.as_ref()].into_iter().flatten() {
        if !file.is_file() {
            return Err(format!("{}: no such file; cargo xtask nd2 builds it, and --dll names it", file.display()));
        }
    }
    print_lines(&register(&library, args.dll32.as_deref())?)
}

#[expect(clippy::unnecessary_wraps, reason = "how every command ends")]
fn print_lines(lines: &[String]) -> Result<End, String> {
    for line in lines {
        say!("{line}");
    }
    Ok(End::Good)
}

/// The message on systems without a catalogue.
#[cfg(not(windows))]
const NOT_WINDOWS: &str =
    "the Winsock catalogue is a part of Windows: run this on the machine whose programs are to find softnd.dll";

#[cfg(windows)]
fn list() -> Result<Vec<Listed>, String> {
    softnd::catalogue::list(&softnd::catalogue::Windows)
}

#[cfg(not(windows))]
fn list() -> Result<Vec<Listed>, String> {
    Err(NOT_WINDOWS.to_owned())
}

#[cfg(windows)]
fn register(library: &Path, library_32: Option<&Path>) -> Result<Vec<String>, String> {
    softnd::catalogue::install(&softnd::catalogue::Windows, library, library_32)
}

#[cfg(not(windows))]
fn register(_: &Path, _: Option<&Path>) -> Result<Vec<String>, String> {
    Err(NOT_WINDOWS.to_owned())
}

#[cfg(windows)]
fn uninstall() -> Result<Vec<String>, String> {
    softnd::catalogue::uninstall(&softnd::catalogue::Windows)
}

#[cfg(not(windows))]
fn uninstall() -> Result<Vec<String>, String> {
    Err(NOT_WINDOWS.to_owned())
}

#[cfg(test)]
mod tests {
    use softnd::catalogue::{Family, Listed, Version};

    use super::Found;
    use crate::schema;

    #[test]
    fn what_programs_get_is_as_documented() {
        let versions =
            Version::ALL.iter().flat_map(|version| Family::ALL.iter().map(move |family| (*version, *family)));
        let listed = versions.zip([32, 64, 32, 64]).map(|((version, family), bits)| Listed {
            bits,
            version,
            family,
            name: "SoftNDK".to_owned(),
            provider: version.provider(),
            path: r"C:\Windows\System32\softnd.dll".to_owned(),
            own: true,
        });
        let found: Vec<_> = listed.map(Found::from).collect();
        assert_eq!(found.len(), 4);
        schema::check("nd2 list", &serde_json::to_value(found).expect("JSON"));
    }
}
