//! Plain WDM: device objects, IRPs and their cancellation, work items, remove locks.

mod cancel;
mod csq;
mod device;
mod file;
mod irp;
mod remove_lock;
mod work_item;

use std::{collections::BTreeMap, sync::Arc};

pub use self::{
    device::{Device, Functions},
    file::{IoFile, IoPending},
    remove_lock::RemoveLock,
    work_item::Queued,
};
use self::{irp::Request, work_item::WorkItem};
use crate::{
    context::DriverId,
    kernel::{State, lock},
    report::bug_check,
    rule::Rule,
};

/// What the I/O manager keeps.
#[derive(Default)]
pub struct Io {
    /// By the address of the device object.
    devices: BTreeMap<usize, Arc<Device>>,
    /// Names for programs: who made each, and of which device.
    links: BTreeMap<String, (DriverId, String)>,
    /// Requests that are not complete, by the address of the IRP.
    requests: BTreeMap<usize, Arc<Request>>,
    work_items: BTreeMap<usize, Arc<WorkItem>>,
}

impl State {
    /// A driver is unloaded: nothing of it may be left.
    pub fn check_io(&self, owner: DriverId, name: &str) {
        let io = lock(&self.wdm.io);
        let request = io.requests.values().any(|request| request.device.owner == owner);
        let device = io.devices.values().any(|device| device.owner == owner);
        let link = io.links.values().any(|(one, _)| *one == owner);
        let item = io.work_items.values().any(|item| item.owner == owner);
        drop(io);
        if request {
            bug_check(Rule::IrpNeverCompleted, format_args!("driver {name} left an IRP that is not completed"));
        }
        for (left, what) in [(device, "device object"), (link, "symbolic link"), (item, "work item")] {
            if left {
                bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a {what}"));
            }
        }
    }
}
