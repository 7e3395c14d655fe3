//! The command line of SoftNDK: the self-test, a ping-pong and what an adapter can do, on the host and through NDKPI's
//! dispatch tables; on Windows also what the drivers do in the kernel.

// Its output can be closed: `host::say!`, not `println!`.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(
    clippy::collection_is_never_read,
    clippy::doc_markdown,
    clippy::struct_excessive_bools,
    clippy::trivially_copy_pass_by_ref,
    reason = "the help of a command is plain text, its switches are booleans, and its writers have one shape"
)]

mod adapters;
mod advise;
mod args;
mod bench;
mod completions;
mod consumer;
mod counters;
mod doctor;
mod driver;
mod driver_agent;
mod driver_interface;
mod driver_record;
mod driver_run;
mod driver_settings;
mod example;
mod explain;
mod fault_plan;
mod fault_rule;
mod faults;
mod info;
mod installing;
mod interrupt;
mod load;
mod man;
mod markdown;
mod nd2;
mod nd2_selftest;
mod netstat;
mod new;
mod output;
mod ping;
mod record;
mod replay;
mod report;
mod run;
#[cfg(test)]
mod schema;
mod selftest;
mod size;
mod soak;
mod timeline;
mod usage;
mod wire;
mod words;

use std::process::ExitCode;

use args::{Cli, Command, DriverCommand};
use clap::Parser;

/// A wrong flag or value.
const USAGE: u8 = 2;
/// Ended by Ctrl-C: what shells report for a program that SIGINT has ended.
const INTERRUPTED: u8 = 130;

/// How a command ended.
enum End {
    /// Everything is as it should be.
    Good,
    /// Something is not, as the output says.
    Bad,
    /// Somebody wanted it to end.
    Interrupted,
    /// A value that only the command itself could judge was wrong; it has been said what is allowed.
    Refused,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if arguments.len() < 2 {
        usage::print_help();
        return ExitCode::SUCCESS;
    }
    if arguments[1] == "help" {
        let words = arguments[2..].iter().map(|word| word.to_string_lossy().into_owned());
        // `ndkctl help ping --help` asks for the same twice.
        let words: Vec<_> = words.filter(|word| !word.starts_with('-')).collect();
        return usage::help(&words);
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return usage::refuse(&error, &arguments),
    };
    output::respect_no_color();
    let interrupted = match interrupt::watch(cli.command.at_ctrl_c()) {
        Ok(interrupted) => interrupted,
        Err(error) => return output::fail(format_args!("Ctrl-C cannot be watched: {error}")),
    };
    let end = match &cli.command {
        Command::Selftest(args) => selftest::run(args, &interrupted),
        Command::Ping(args) => ping::run(args, &interrupted),
        Command::Soak(args) => soak::run(args, &interrupted),
        Command::Info(args) => info::run(args),
        Command::Explain(args) => Ok(explain::run(args)),
        Command::Faults(args) => fault_plan::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Adapters(args) => adapters::run(args),
        Command::Man(args) => man::run(args),
        Command::New(args) => new::run(args),
        Command::Completions(args) => completions::run(*args),
        Command::Counters(args) => counters::run(args, &interrupted),
        Command::Netstat(args) => netstat::run(args, &interrupted),
        Command::Nd2(args) => nd2::run(args),
        Command::Nd2Selftest(args) => nd2_selftest::run(args),
        Command::Run(args) => run::run(args, &interrupted),
        Command::Driver(args) => match &args.command {
            DriverCommand::Install(args) => installing::install(args, &interrupted),
            DriverCommand::Uninstall(args) => installing::uninstall(args, &interrupted),
            DriverCommand::Status(args) => installing::status(*args),
            DriverCommand::Run(args) => driver_run::run(args, &interrupted),
            DriverCommand::Agent(args) => driver_agent::run(args, &interrupted),
            DriverCommand::Settings(args) => driver_settings::run(*args),
        },
        Command::Nic(args) => installing::nic(args, &interrupted),
        Command::Doctor(args) => doctor::run(*args),
        Command::DriverRun(args) => driver_run::run(args, &interrupted),
        Command::DriverSettings(args) => driver_settings::run(*args),
        Command::Record(args) => driver_record::run(args, &interrupted),
        Command::Replay(args) => replay::run(args),
        Command::Report(args) => report::run(args),
        Command::Timeline(args) => timeline::run(args),
        Command::Packets(args) => timeline::packets(args),
        // It has exit codes of its own.
        Command::Wire(args) => return wire::run(args, &interrupted),
    };
    match end {
        Ok(End::Good) => ExitCode::SUCCESS,
        Ok(End::Bad) => ExitCode::FAILURE,
        Ok(End::Interrupted) => ExitCode::from(INTERRUPTED),
        Ok(End::Refused) => ExitCode::from(USAGE),
        Err(error) => output::fail(format_args!("{error}")),
    }
}
