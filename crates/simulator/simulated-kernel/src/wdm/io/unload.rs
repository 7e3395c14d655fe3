//! What a driver may not leave behind.

use super::{device::Devices, error_log::LogEntries, open::OpenedFiles, request::Requests, work_item::WorkItems};
use crate::{context::DriverId, report::bug_check, rule::Rule, state::State};

impl State {
    /// A driver is unloaded: nothing of it may be left.
    pub fn check_io(&self, owner: DriverId, name: &str) {
        if self.locked::<Requests>().all().any(|request| request.is_at(owner)) {
            bug_check(Rule::IrpNeverCompleted, format_args!("driver {name} left an IRP that is not completed"));
        }
        let left = self.locked::<Devices>().left_by(owner);
        let what = if left.is_some() {
            left
        } else if self.locked::<WorkItems>().are_of(owner) {
            Some("a work item")
        } else if self.locked::<OpenedFiles>().are_of(owner) {
            Some("a reference to the file of a device")
        } else if self.locked::<Devices>().are_referred_to_by(owner) {
            Some("a reference to a device or driver object")
        } else if self.locked::<LogEntries>().are_of(owner) {
            Some("an entry of the error log, neither written nor freed")
        } else if self.has_own_irps(owner) {
            Some("an IRP of its own")
        } else {
            None
        };
        if let Some(what) = what {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left {what}"));
        }
    }
}
