//! Plain WDM: device objects, IRPs and their cancellation, work items, remove locks.

mod attach;
mod cancel;
mod csq;
mod device;
mod file;
mod irp;
mod own;
mod plug;
mod power;
mod remove_lock;
mod work_item;

use std::{collections::BTreeMap, sync::Arc};

pub use self::irp::Request;
use self::work_item::WorkItem;
pub use self::{
    cancel::IoReleaseCancelSpinLock,
    device::{Device, Functions},
    file::{IoFile, IoPending},
    plug::{PlainDevice, add_device_of},
    remove_lock::RemoveLock,
    work_item::{Queued, check_queue},
};
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
    /// The devices of a stack: by the address of each that is attached, that of the one below.
    attached: BTreeMap<usize, usize>,
    /// Devices that drivers have opened by their names, by the address of the file object.
    opened: BTreeMap<usize, attach::Opened>,
    /// References of drivers to device and driver objects, and whose they are.
    references: BTreeMap<usize, (DriverId, i64)>,
    /// The power states that drivers have told of their devices.
    power: BTreeMap<usize, power::Told>,
}

impl State {
    /// A driver is unloaded: nothing of it may be left.
    pub fn check_io(&self, owner: DriverId, name: &str) {
        let io = lock(&self.wdm.io);
        let request = io.requests.values().any(|request| request.is_at(owner));
        let device = io.devices.values().any(|device| device.owner == owner);
        let link = io.links.values().any(|(one, _)| *one == owner);
        let item = io.work_items.values().any(|item| item.owner == owner);
        let file = io.opened.values().any(|opened| opened.is_of(owner));
        let reference = io.references.values().any(|&(one, _)| one == owner);
        drop(io);
        let own = self.has_own_irps(owner);
        if request {
            bug_check(Rule::IrpNeverCompleted, format_args!("driver {name} left an IRP that is not completed"));
        }
        for (left, what) in [
            (device, "a device object"),
            (link, "a symbolic link"),
            (item, "a work item"),
            (file, "a reference to the file of a device"),
            (reference, "a reference to a device or driver object"),
            (own, "an IRP of its own"),
        ] {
            if left {
                bug_check(Rule::ReferenceLeak, format_args!("driver {name} left {what}"));
            }
        }
    }
}
