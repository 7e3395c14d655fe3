//! The network stack: interfaces, addresses and routes, and the routines of the IP helper that ask about them.

#![allow(non_snake_case, reason = "names of the C headers")]

pub mod changes;
mod interfaces;
mod ip_interface;
mod names;
pub mod network;
mod routes;
pub mod stack;
pub mod tables;

use self::{changes::Listeners, tables::Tables};
use crate::{context::DriverId, report::bug_check, rule::Rule, state::State};

impl State {
    /// A driver is unloaded: it must have given everything back.
    pub fn check_netio(&self, owner: DriverId, name: &str) {
        let left = self.locked::<Tables>().left_by(owner);
        if let Some(what) = left {
            bug_check(Rule::PoolLeak, format_args!("driver {name} never freed a table of {what} (FreeMibTable)"));
        }
        if self.locked::<Listeners>().left_by(owner) {
            bug_check(
                Rule::ReferenceLeak,
                format_args!("driver {name} still listens for changes of addresses (CancelMibChangeNotify2)"),
            );
        }
    }
}
