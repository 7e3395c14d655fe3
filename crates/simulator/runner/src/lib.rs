//! Runs of drivers in the simulated kernel, as `ndkctl run` and tests make them: a script says what happens, a seed decides the rest.
//!
//! | module | what |
//! |---|---|
//! | [`script`] | what a script says |
//! | [`parse()`] | from TOML to a script; each error names the line and the key |
//! | [`machine`] | what a script needs of a kernel: the trait that simulated kernels implement |
//! | [`disk`] | the files that drivers find |
//! | [`drive`] | a script on a machine |
//! | [`socket`] | what a program does with sockets |
//! | [`seeds`] | `1..1000` |
//! | [`faults`] | what is made to fail, and how its runs are shared out |
//! | [`worker`] | processes that carry out seeds, because a broken rule ends its process |
//! | [`nodes`] | runs of several machines, each a worker of its own |
//! | [`places`] | places in images, as findings name them |
//! | [`report`] | text, JSON, JUnit, exit codes |
//!
//! `docs/run.md` has the format of scripts and reports. Nothing here depends on a platform.

pub mod bytes;
pub mod disk;
pub mod drive;
pub mod faults;
pub mod machine;
pub mod nodes;
pub mod parse;
pub mod places;
mod raw;
pub mod report;
pub mod script;
pub mod seeds;
pub mod socket;
mod status;
pub mod worker;

pub use crate::{
    faults::Faults,
    machine::{Answer, Machine},
    parse::{ScriptError, parse},
    report::Results,
    script::Script,
    seeds::Seeds,
};
