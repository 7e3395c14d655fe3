//! The repository's chores: `cargo xtask --help` lists them.
//!
//! One module each, which has the arguments, what they mean and how long it takes. What several of them need is in `context`. Nothing of
//! it is part of the product. Documents may name only commands that it knows: a test of ndkctl parses them.

mod bench;
mod ci;
mod context;
mod coverage;
mod dist;
mod dpcs;
mod drivers;
mod fuzz;
mod header;
mod images;
mod installer;
mod loom;
mod memcheck;
mod mutants;
mod nd2;
mod no_std;
mod packets;
mod projects;
mod repeat;
mod routines;
mod rxe;
mod sample;
mod sanitize;
mod schedules;
mod semantics;
mod slowest;
mod stack_depth;
mod test;
mod timed;
mod timeline;
mod windows;
mod wine;
mod workflows;

use anyhow::Result;
pub use ci::ci_commands;
use clap::{Parser, Subcommand};
use context::Context;
pub use semantics::semantics_page;

/// The chores of SoftNDK's repository: what builds it elsewhere, checks it longer or measures it
///
/// `cargo test` needs none of them. What they need is installed from Debian, as root or by sudo.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub struct Arguments {
    /// Install nothing: say which of Debian's packages are missing
    #[arg(long, global = true)]
    no_install: bool,
    #[command(subcommand)]
    command: Command,
}

macro_rules! chores {
    ($($(#[$attribute:meta])? $module:ident::$chore:ident,)*) => {
        #[derive(Subcommand)]
        enum Command {
            $($(#[$attribute])? $chore($module::$chore),)*
        }

        impl Command {
            fn run(&self, context: &Context) -> Result<()> {
                match self {
                    $(Self::$chore(chore) => chore.run(context),)*
                }
            }
        }
    };
}

chores! {
    bench::Bench,
    ci::Ci,
    coverage::Coverage,
    dist::Dist,
    dpcs::Dpcs,
    drivers::Drivers,
    packets::Frames,
    fuzz::Fuzz,
    header::Header,
    images::Images,
    installer::Installer,
    loom::Loom,
    memcheck::Memcheck,
    mutants::Mutants,
    nd2::Nd2,
    no_std::NoStd,
    packets::Packets,
    projects::Projects,
    repeat::Repeat,
    #[command(hide = true)]
    repeat::Repeated,
    routines::Routines,
    rxe::Rxe,
    sample::Sample,
    sanitize::Sanitize,
    schedules::Schedules,
    semantics::Semantics,
    slowest::Slowest,
    stack_depth::StackDepth,
    test::Test,
    #[command(hide = true)]
    timed::Timed,
    timeline::Timeline,
    windows::Windows,
    wine::Worker,
    workflows::Workflows,
}

impl Arguments {
    /// Does what the arguments ask for.
    ///
    /// # Errors
    ///
    /// What was found, or what kept it from being looked for.
    pub fn run(&self) -> Result<()> {
        self.command.run(&Context::new(!self.no_install)?)
    }
}

#[test]
fn each_chore_says_in_one_line_what_it_does_and_more_below() {
    use clap::CommandFactory as _;

    let arguments = Arguments::command();
    arguments.clone().debug_assert();
    for chore in arguments.get_subcommands().filter(|chore| !chore.is_hide_set() && chore.get_name() != "slowest") {
        let line = chore.get_about().expect("a line").to_string();
        assert!(line.len() <= 85, "{line}");
        assert!(chore.get_long_about().is_some(), "{} has a line only", chore.get_name());
    }
}
