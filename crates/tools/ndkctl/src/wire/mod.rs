//! `ndkctl wire`: an adapter whose peers are other machines, over RoCEv2.

pub mod args;
mod fault;
mod info;
mod line;
mod perf;
mod perftest;
mod ping;
mod probe;
mod report;
mod rping;
mod serve;
mod ucmatose;

use std::{
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use args::{WireArgs, WireCommand};
use fault::Fault;
use host::note;

/// Runs the command.
pub fn run(args: &WireArgs, interrupted: &Arc<AtomicBool>) -> ExitCode {
    let (name, result) = match &args.command {
        WireCommand::Info(args) => ("info", info::run(args, interrupted)),
        WireCommand::Serve(args) => ("serve", serve::run(args, interrupted)),
        WireCommand::Ping(args) => ("ping", ping::run(args, interrupted)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Fault::Interrupted) => ExitCode::from(crate::INTERRUPTED),
        Err(fault) => {
            note!("ndkctl wire {name}: {fault}");
            ExitCode::from(fault.code())
        }
    }
}
