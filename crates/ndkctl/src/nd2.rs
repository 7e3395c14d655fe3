//! `ndkctl nd2 info`: the adapter of the user-mode interface as the environment wants it, and where a program finds it.

use std::{
    fs::{File, OpenOptions},
    io,
};

use ::nd2::settings::Settings;
use clap::{Args, Subcommand};
use nd2_remote::{Choice, DEVICE, choose};
use serde::Serialize;

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
    /// Show the settings that softnd.dll finds in SOFTND_CONFIG and in environment variables
    Info(Nd2Info),
}

/// How to show it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Nd2Info {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What JSON shows.
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
    let Nd2Command::Info(args) = args.command;
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
        println!("adapters: {reason}");
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
